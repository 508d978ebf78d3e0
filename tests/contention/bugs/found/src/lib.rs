//! Shared parts of the programs: threads that begin together, and private work between operations.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;

/// The number of threads of the first argument, or that of the machine's cores; and the operations
/// of each.
pub fn arguments(operations: u64) -> (usize, u64) {
    let mut words = std::env::args().skip(1);
    let threads = words.next().and_then(|word| word.parse().ok());
    let threads = threads.unwrap_or_else(|| thread::available_parallelism().unwrap().get());
    (threads, words.next().and_then(|word| word.parse().ok()).unwrap_or(operations))
}

/// Calls `operation(thread, turn)` that often in each of so many threads; returns the sum of the
/// results.
pub fn run(threads: usize, turns: u64, operation: impl Fn(usize, u64) -> u64 + Sync) -> u64 {
    let (start, operation) = (Barrier::new(threads), &operation);
    thread::scope(|scope| {
        let work = |me| {
            let start = &start;
            move || {
                let mut own = Box::new(Steps([0; 16]));
                start.wait();
                let mut sum = 0;
                for turn in 0..turns {
                    sum += operation(me, turn);
                    own.work(16);
                }
                sum
            }
        };
        let workers: Vec<_> = (0..threads).map(|me| scope.spawn(work(me))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    })
}

#[repr(align(128))]
struct Steps([u64; 16]);

impl Steps {
    fn work(&mut self, steps: usize) {
        for step in 0..steps {
            self.0[step % 16] += 1;
            black_box(&mut self.0);
        }
    }
}
