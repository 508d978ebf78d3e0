//! Directories change their parent one at a time.
//!
//! # Concurrency
//! A turn is no lock: no lookup waits for it, and a thread keeps it across a call to the store. Its
//! own lock is held for a moment.
//!
//! # Why
//! After two concurrent moves of one directory, the core would not know its last parent. Two moves
//! of directories into one another could leave each as the other's parent. Linux takes
//! `s_vfs_rename_mutex` for the same moves. Weakness: a store that does not answer one such move
//! blocks all others.

use crate::lock_order;
use uvfs_concurrent::lock::{Condvar, Mutex};

/// See the module.
#[derive(Debug)]
pub(crate) struct Turns {
    taken: Mutex<bool>,
    free: Condvar,
}

/// The turn is the caller's, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    pub(crate) fn new() -> Self {
        Self { taken: Mutex::new(&lock_order::MOVES, false), free: Condvar::default() }
    }

    /// Waits for the turn and takes it.
    pub(crate) fn take(&self) -> Turn<'_> {
        let mut taken = self.taken.lock();
        while *taken {
            self.free.wait(&mut taken);
        }
        *taken = true;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock() = false;
        self.0.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn one_at_a_time_and_all_in_the_end() {
        let (turns, inside, done) = (Turns::new(), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let _turn = turns.take();
                        assert_eq!(inside.fetch_add(1, SeqCst), 0);
                        inside.fetch_sub(1, SeqCst);
                        done.fetch_add(1, SeqCst);
                    }
                });
            }
        });
        assert_eq!(done.load(SeqCst), 2000);
    }
}
