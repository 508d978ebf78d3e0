//! A map in shards, each behind a mutex and on separate lines, all in one `Vec`: linear. The feature `one` gives all
//! threads one shard.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

#[repr(align(128))]
struct Shard {
    names: Mutex<HashMap<u64, u64>>,
}

#[inline(never)]
fn insert(shard: &Shard, key: u64) {
    *shard.names.lock().unwrap().entry(key % 8).or_insert(0) += 1;
}

#[repr(align(64))]
struct Steps([u64; 16]);

fn main() {
    let mut words = std::env::args().skip(1);
    let threads = words.next().and_then(|word| word.parse().ok());
    let threads = threads.unwrap_or_else(|| thread::available_parallelism().unwrap().get());
    let operations: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(1500);
    let new = |_| Shard { names: Mutex::new(HashMap::new()) };
    let shards: Arc<Vec<Shard>> = Arc::new((0..threads).map(new).collect());
    let start = Arc::new(Barrier::new(threads));
    let workers: Vec<_> = (0..threads)
        .map(|me| {
            let (shards, start) = (Arc::clone(&shards), Arc::clone(&start));
            thread::spawn(move || {
                let shard = if cfg!(feature = "one") { &shards[0] } else { &shards[me] };
                let mut own = Box::new(Steps([0; 16]));
                start.wait();
                for turn in 0..operations {
                    insert(shard, turn);
                    for step in 0..50 {
                        own.0[step % 16] += 1;
                        black_box(&mut own);
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    let count = |shard: &Shard| shard.names.lock().unwrap().values().sum::<u64>();
    let sum: u64 = shards.iter().map(count).sum();
    println!("inserted {sum}");
    assert_eq!(sum, operations * threads as u64);
}
