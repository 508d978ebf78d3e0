//! Wakes threads that wait for pages to become clean.
//!
//! # Boundary
//! Counts the store's answers about dirty pages, and lets threads sleep until the next one. The waiting thread decides
//! about its condition and its time limit.
//!
//! # Concurrency
//! One lock over the count, taken once for each run that the store has answered. A thread reads the count before it
//! checks its condition, and sleeps only while the count is unchanged. A page that becomes clean after the check has
//! raised the count, so no wake-up is lost.
//!
//! # Why
//! Writers above the limit looked every millisecond. A lock is cheap enough: an answer of the store costs a thousand
//! times as much. Weakness: each answer wakes all waiting threads.

use crate::lock_order;
use std::time::Duration;
use uvfs_concurrent::lock::{Condvar, Mutex};

/// See the module.
#[derive(Debug)]
pub(super) struct Progress {
    answers: Mutex<u64>,
    more: Condvar,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { answers: Mutex::new(&lock_order::PAGE_PROGRESS, 0), more: Condvar::default() }
    }

    /// Answers so far.
    pub(super) fn seen(&self) -> u64 {
        *self.answers.lock()
    }

    /// One more answer has come.
    pub(super) fn made(&self) {
        *self.answers.lock() += 1;
        self.more.notify_all();
    }

    /// Sleeps until there are more answers than `seen`, for at most `limit`.
    pub(super) fn wait(&self, seen: u64, limit: Duration) {
        let mut answers = self.answers.lock();
        if *answers == seen {
            self.more.wait_for(&mut answers, limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With an hour to wait, a lost wake-up hangs the test.
    #[test]
    fn an_answer_between_the_look_and_the_sleep_is_not_lost() {
        let progress = Progress::new();
        let hour = Duration::from_secs(3600);
        let seen = progress.seen();
        progress.made();
        progress.wait(seen, hour);
        std::thread::scope(|scope| {
            let seen = progress.seen();
            let waits = scope.spawn({
                let progress = &progress;
                move || progress.wait(seen, hour)
            });
            progress.made();
            waits.join().unwrap();
        });
    }
}
