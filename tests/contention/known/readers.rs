//! Readers of a `std::sync::RwLock` around data without writers: each counts itself on the lock's
//! word, so readers that do not exclude each other still do not scale. The field is the lock's
//! state.

use std::hint::black_box;
use std::sync::{Arc, Barrier, RwLock};
use std::thread;

struct Settings {
    limit: u64,
    names: [u64; 6],
}

#[repr(align(64))]
struct Shared {
    settings: RwLock<Settings>,
}

#[inline(never)]
fn read(shared: &Shared, key: usize) -> u64 {
    let settings = shared.settings.read().unwrap();
    settings.limit + settings.names[key % 6]
}

#[repr(align(64))]
struct Steps([u64; 16]);

fn main() {
    let mut words = std::env::args().skip(1);
    let threads = words.next().and_then(|word| word.parse().ok());
    let threads = threads.unwrap_or_else(|| thread::available_parallelism().unwrap().get());
    let operations: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or(200);
    let settings = Settings { limit: 2, names: [1; 6] };
    let shared = Arc::new(Shared { settings: RwLock::new(settings) });
    let start = Arc::new(Barrier::new(threads));
    let workers: Vec<_> = (0..threads)
        .map(|me| {
            let (shared, start) = (Arc::clone(&shared), Arc::clone(&start));
            thread::spawn(move || {
                let mut own = Box::new(Steps([0; 16]));
                start.wait();
                let mut sum = 0;
                for turn in 0..operations {
                    sum += read(&shared, turn + me);
                    for step in 0..50 {
                        own.0[step % 16] += 1;
                        black_box(&mut own);
                    }
                }
                sum
            })
        })
        .collect();
    let sum: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    println!("read {sum}");
    assert_eq!(sum, 3 * (operations * threads) as u64);
}
