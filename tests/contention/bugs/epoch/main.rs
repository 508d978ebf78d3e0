//! Pins and unpins, as each lookup of a structure under epochs does, and now and then retires something.
//! Both packages beside this folder build it, with another version of crossbeam-epoch each.

use crossbeam_epoch::{self as epoch, Atomic, Owned};
use std::hint::black_box;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::thread;

#[inline(never)]
fn lookup(root: &Atomic<u64>) -> u64 {
    let guard = epoch::pin();
    let current = root.load(Ordering::Acquire, &guard);
    // SAFETY: the target of `root` under this guard is not freed while the guard lives.
    unsafe { current.as_ref() }.copied().unwrap_or(0)
}

#[inline(never)]
fn replace(own: &Atomic<u64>, value: u64) {
    let guard = epoch::pin();
    let old = own.swap(Owned::new(value), Ordering::AcqRel, &guard);
    if !old.is_null() {
        // SAFETY: the swap took the only pointer to it; readers that still have it are pinned.
        unsafe { guard.defer_destroy(old) };
    }
}

fn main() {
    let mut words = std::env::args().skip(1);
    let threads = words.next().and_then(|word| word.parse().ok());
    let threads = threads.unwrap_or_else(|| thread::available_parallelism().unwrap().get());
    let operations: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(4000);
    let root = Arc::new(Atomic::new(1u64));
    let start = Arc::new(Barrier::new(threads));
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (root, start) = (Arc::clone(&root), Arc::clone(&start));
            thread::spawn(move || {
                let own = Box::new(Atomic::null());
                start.wait();
                let mut sum = 0;
                for turn in 0..operations {
                    sum += lookup(black_box(&root));
                    if turn % 64 == 0 {
                        replace(&own, turn);
                    }
                }
                sum
            })
        })
        .collect();
    let sum: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    println!("{sum} lookups");
    assert_eq!(sum, operations * threads as u64);
}
