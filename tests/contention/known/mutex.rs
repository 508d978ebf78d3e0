//! A `std::sync::Mutex` for all: a plateau. The field is the mutex's futex word.

use std::hint::black_box;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

/// The data under the lock.
#[repr(align(64))]
struct Account {
    guarded: Mutex<u64>,
}

#[inline(never)]
fn deposit(account: &Account) {
    let mut balance = account.guarded.lock().unwrap();
    *balance += 1;
    work(10);
}

/// Private work in memory of the thread.
#[inline(never)]
fn work(steps: u64) {
    let mut own = vec![0u64; 16];
    for step in 0..steps {
        own[(step % 16) as usize] += step;
        black_box(&mut own);
    }
}

fn main() {
    let mut words = std::env::args().skip(1);
    let threads = words.next().and_then(|word| word.parse().ok());
    let threads = threads.unwrap_or_else(|| thread::available_parallelism().unwrap().get());
    let operations: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(200);
    let account = Arc::new(Account { guarded: Mutex::new(0) });
    let start = Arc::new(Barrier::new(threads));
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (account, start) = (Arc::clone(&account), Arc::clone(&start));
            thread::spawn(move || {
                start.wait();
                for _ in 0..operations {
                    deposit(&account);
                    work(50);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    let balance = *account.guarded.lock().unwrap();
    println!("balance {balance}");
    assert_eq!(balance, operations * threads as u64);
}
