//! Buckets in which threads sleep until a frame's flag is cleared.
//!
//! W1. A sleeper sets WAITERS in the step that finds the flag still set, with its bucket locked. It
//!     releases the bucket only by going to sleep.
//! W2. The thread that clears the flag clears WAITERS in the same step. If WAITERS was set, it
//!     locks the bucket and wakes all its sleepers.
//!
//! No wake-up is lost, and no store has to be kept from passing a load: both steps are
//! read-modify-writes of one word, so one comes first. If the clearing comes first, the sleeper's
//! step does not find the flag and it does not sleep. If the sleeper's comes first, the clearing
//! finds WAITERS, and its lock of the bucket comes after the sleeper has gone to sleep (W1).
//!
//! Progress: that of the bucket's lock; a sleeper depends on the thread that holds the flag.
//! Checked by `model_waiters_are_woken`, with a loop of yields for the condition variable.
//!
//! # Why
//! A lock and a condition variable in each frame would cost more than its whole descriptor.
//! Weakness: all sleepers of a bucket are woken, for any frame and flag; they check and sleep
//! again.

use super::word::StateWord;
use uvfs_concurrent::lock::{Condvar, LockClass, Mutex, MutexGuard};
use uvfs_concurrent::padded::Padded;

const BUCKETS: usize = if cfg!(loom) { 1 } else { 64 };

/// The count of wake-ups, and the sleepers that wait for the next one.
#[derive(Debug)]
struct Bucket {
    wakes: Mutex<u64>,
    woken: Condvar,
}

/// The buckets of an arena. The protocol is in the module's documentation.
#[derive(Debug)]
pub(super) struct Waits([Padded<Bucket>; BUCKETS]);

impl Waits {
    pub(super) fn new(class: &'static LockClass) -> Self {
        let bucket = |_| Bucket { wakes: Mutex::new(class, 0), woken: Condvar::default() };
        Self(std::array::from_fn(|at| Padded(bucket(at))))
    }

    fn bucket(&self, frame: u32) -> &Bucket {
        &self.0[frame as usize % BUCKETS]
    }

    /// Sleeps until none of `flags` is set in `word`, the word of `frame`.
    #[cold]
    pub(super) fn sleep(&self, frame: u32, word: &StateWord, flags: u64) {
        let bucket = self.bucket(frame);
        let mut wakes = bucket.wakes.lock();
        while word.wait_mark(flags) {
            let before = *wakes;
            while *wakes == before {
                wakes = bucket.sleep(wakes);
            }
        }
    }

    /// Wakes the threads that sleep for `frame`.
    #[cold]
    pub(super) fn wake(&self, frame: u32) {
        let bucket = self.bucket(frame);
        *bucket.wakes.lock() += 1;
        bucket.woken.notify_all();
    }
}

impl Bucket {
    #[cfg(not(loom))]
    fn sleep<'a>(&'a self, mut wakes: MutexGuard<'a, u64>) -> MutexGuard<'a, u64> {
        self.woken.wait(&mut wakes);
        wakes
    }

    /// The model checker has no condition variable here: looks again after other threads ran.
    #[cfg(loom)]
    fn sleep<'a>(&'a self, wakes: MutexGuard<'a, u64>) -> MutexGuard<'a, u64> {
        drop(wakes);
        loom::thread::yield_now();
        self.wakes.lock()
    }
}
