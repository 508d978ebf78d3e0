//! Hits of a `quick_cache::sync::Cache`, each thread on keys of its own.

use quick_cache::sync::Cache;

fn main() {
    let (threads, turns) = found::arguments(300);
    let cache: Cache<u64, u64> = Cache::new(16 * 1024);
    for key in 0..threads as u64 * 8 {
        cache.insert(key, 1);
    }
    let sum = found::run(threads, turns, |me, turn| {
        cache.get(&(me as u64 * 8 + turn % 8)).unwrap_or(0)
    });
    assert_eq!(sum, threads as u64 * turns);
    println!("{sum} hits");
}
