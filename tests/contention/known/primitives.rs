//! The threading tools of `std`, each with a result that is wrong if the tool does not work: scoped
//! threads, park and unpark, channels with and without bound, `Condvar` with and without time
//! limit, `Barrier`, `Once`, `OnceLock`, `LazyLock`, thread-locals with destructors, `RwLock`, try
//! locks, a poisoned mutex, `sleep`, `Instant`, `available_parallelism`, thread names, a panic in a
//! thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock};
use std::thread;
use std::time::{Duration, Instant};

fn park_and_unpark(threads: usize) {
    let parked: Vec<_> = (0..threads)
        .map(|_| {
            let go = Arc::new(AtomicBool::new(false));
            let seen = Arc::clone(&go);
            let thread = thread::spawn(move || {
                while !seen.load(Ordering::Acquire) {
                    thread::park();
                }
            });
            (go, thread)
        })
        .collect();
    for (go, thread) in parked {
        go.store(true, Ordering::Release);
        thread.thread().unpark();
        thread.join().unwrap();
    }
    let before = Instant::now();
    thread::park_timeout(Duration::from_millis(3));
    assert!(before.elapsed() >= Duration::from_millis(2), "park_timeout waits");
}

fn channels(threads: usize) {
    let (sender, receiver) = mpsc::channel();
    let (bounded, replies) = mpsc::sync_channel(2);
    thread::scope(|scope| {
        for me in 0..threads as u64 {
            let (sender, bounded) = (sender.clone(), bounded.clone());
            scope.spawn(move || {
                for turn in 0..20 {
                    sender.send(me * 20 + turn).unwrap();
                    bounded.send(1u64).unwrap();
                }
            });
        }
        drop((sender, bounded));
        let all = 20 * threads as u64;
        assert_eq!(replies.iter().sum::<u64>(), all);
        assert_eq!(receiver.iter().sum::<u64>(), all * (all - 1) / 2);
    });
}

fn conditions(threads: usize) {
    let turn = (Mutex::new(0), Condvar::new());
    thread::scope(|scope| {
        for me in 0..threads {
            let (turn, moved) = (&turn.0, &turn.1);
            scope.spawn(move || {
                for _ in 0..4 {
                    let mut turn = turn.lock().unwrap();
                    while *turn % threads != me {
                        turn = moved.wait(turn).unwrap();
                    }
                    *turn += 1;
                    moved.notify_all();
                }
            });
        }
    });
    assert_eq!(*turn.0.lock().unwrap(), 4 * threads);
    let guard = turn.0.lock().unwrap();
    let (_guard, result) = turn.1.wait_timeout(guard, Duration::from_millis(2)).unwrap();
    assert!(result.timed_out());
}

fn once(threads: usize) {
    static ONCE: Once = Once::new();
    static CELL: OnceLock<u64> = OnceLock::new();
    static LAZY: LazyLock<u64> = LazyLock::new(|| COUNT.fetch_add(1, Ordering::SeqCst));
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let barrier = Barrier::new(threads);
    let leaders = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                if barrier.wait().is_leader() {
                    leaders.fetch_add(1, Ordering::SeqCst);
                }
                ONCE.call_once(|| {
                    thread::sleep(Duration::from_micros(50));
                    COUNT.fetch_add(1, Ordering::SeqCst);
                });
                CELL.get_or_init(|| COUNT.fetch_add(1, Ordering::SeqCst));
                LazyLock::force(&LAZY);
            });
        }
    });
    assert_eq!(COUNT.load(Ordering::SeqCst), 3, "each once");
    assert_eq!(leaders.load(Ordering::SeqCst), 1, "one leader");
}

fn thread_locals(threads: usize) {
    struct Counted(Cell<u64>);
    static LEFT: AtomicU64 = AtomicU64::new(0);
    impl Drop for Counted {
        fn drop(&mut self) {
            LEFT.fetch_add(self.0.get(), Ordering::SeqCst);
        }
    }
    thread_local!(static MINE: Counted = const { Counted(Cell::new(0)) });
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            thread::spawn(|| {
                for _ in 0..30 {
                    MINE.with(|mine| mine.0.set(mine.0.get() + 1));
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    assert_eq!(LEFT.load(Ordering::SeqCst), 30 * threads as u64, "destructors of thread-locals");
}

fn locks(threads: usize) {
    let pair = RwLock::new((0u64, 0u64));
    thread::scope(|scope| {
        for me in 0..threads {
            let pair = &pair;
            scope.spawn(move || {
                for turn in 0..30 {
                    if (turn + me) % 3 == 0 {
                        let mut pair = pair.write().unwrap();
                        pair.0 += 1;
                        pair.1 += 1;
                    } else {
                        let pair = pair.read().unwrap();
                        assert_eq!(pair.0, pair.1);
                    }
                }
            });
        }
    });
    let held = pair.write().unwrap();
    assert!(pair.try_read().is_err());
    drop(held);
    let mutex = Arc::new(Mutex::new(0));
    let guard = mutex.lock().unwrap();
    assert!(mutex.try_lock().is_err());
    drop(guard);
    let poisons = Arc::clone(&mutex);
    let died = thread::spawn(move || {
        let _guard = poisons.lock().unwrap();
        std::panic::resume_unwind(Box::new("as it should"));
    });
    assert!(died.join().is_err(), "a panic ends its thread and no other");
    assert!(mutex.is_poisoned());
}

fn clocks() {
    let before = Instant::now();
    thread::sleep(Duration::from_millis(10));
    let slept = before.elapsed();
    assert!(slept >= Duration::from_millis(10), "slept only {slept:?}");
    // A loop that only reads the clock: reading has to take time, or the loop never ends.
    let before = Instant::now();
    while before.elapsed() < Duration::from_micros(20) {
        std::hint::spin_loop();
    }
    let named = thread::Builder::new().name("named".into()).spawn(|| {
        assert_eq!(thread::current().name(), Some("named"));
    });
    named.unwrap().join().unwrap();
}

fn main() {
    let words = std::env::args().nth(1).and_then(|word| word.parse().ok());
    let threads = words.unwrap_or_else(|| thread::available_parallelism().unwrap().get());
    park_and_unpark(threads);
    channels(threads);
    conditions(threads);
    once(threads);
    thread_locals(threads);
    locks(threads);
    clocks();
    println!("all of {threads} threads");
}
