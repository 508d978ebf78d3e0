//! Two counters of an `Arc`, each written by half of the threads: false sharing on the heap, where the
//! type is known only from the allocation. The feature `apart` gives `b` a line of its own.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

#[cfg(feature = "apart")]
#[repr(align(64))]
struct Own(AtomicU64);
#[cfg(not(feature = "apart"))]
struct Own(AtomicU64);

#[repr(C, align(64))]
struct Counters {
    a: AtomicU64,
    b: Own,
}

#[inline(never)]
fn count_a(counters: &Counters) {
    counters.a.fetch_add(1, Ordering::Relaxed);
}

#[inline(never)]
fn count_b(counters: &Counters) {
    counters.b.0.fetch_add(1, Ordering::Relaxed);
}

#[repr(align(64))]
struct Steps([u64; 16]);

fn main() {
    let mut words = std::env::args().skip(1);
    let threads = words.next().and_then(|word| word.parse().ok());
    let threads = threads.unwrap_or_else(|| thread::available_parallelism().unwrap().get());
    let operations: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(400);
    let counters = Arc::new(Counters { a: AtomicU64::new(0), b: Own(AtomicU64::new(0)) });
    let start = Arc::new(Barrier::new(threads));
    let workers: Vec<_> = (0..threads)
        .map(|me| {
            let (counters, start) = (Arc::clone(&counters), Arc::clone(&start));
            thread::spawn(move || {
                let mut own = Box::new(Steps([0; 16]));
                start.wait();
                for _ in 0..operations {
                    if me % 2 == 0 { count_a(&counters) } else { count_b(&counters) }
                    for step in 0..8 {
                        own.0[step] += 1;
                        black_box(&mut own);
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    let sum = counters.a.load(Ordering::Relaxed) + counters.b.0.load(Ordering::Relaxed);
    println!("counted {sum}");
    assert_eq!(sum, operations * threads as u64);
}
