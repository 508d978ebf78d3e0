//! A benchmark within the program: its own throughput, by its own clock. Each thread counts on one word. The program
//! prints nanoseconds, which are virtual under the analyser and the same in each run.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use std::{hash, thread};

fn main() {
    let threads = thread::available_parallelism().unwrap().get();
    let counter = AtomicU64::new(0);
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..200 {
                    counter.fetch_add(1, Ordering::Relaxed);
                    black_box(&counter);
                }
            });
        }
    });
    let took = start.elapsed().as_nanos();
    // A random number of the operating system: it too has to be the same in each run of a seed.
    let random = hash::BuildHasher::hash_one(&hash::RandomState::new(), 1);
    println!("{threads} threads, {took} ns, random {random:x}");
    assert_eq!(counter.load(Ordering::Relaxed), 200 * threads as u64);
}
