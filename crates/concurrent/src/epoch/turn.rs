//! A value that one thread at a time may use, and for which no thread waits.
//!
//! Word: `taken:1`.
//!
//! T1. Only the thread whose exchange found `false` uses the value, until it stores `false`.
//!
//! O1. Returning the turn (Release) → taking it (Acquire): the next thread sees all earlier work.
//!
//! Progress: wait-free; a thread that finds the turn taken continues without it.
//! Checked by `model_one_at_a_time` below (`cargo xtask model`).
//! Weakness: no fairness; use it only for work that any thread may do later.

use crate::primitive::atomic::{AtomicBool, Ordering};

#[cfg(loom)]
use loom::cell::UnsafeCell;
#[cfg(not(loom))]
use std::cell::UnsafeCell;

/// Holds a `T` for the thread that has the turn.
pub(super) struct Turn<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time uses the value (T1), so `Send` suffices.
unsafe impl<T: Send> Sync for Turn<T> {}

/// Returns the turn when it is dropped, also if the work panics.
struct Back<'a>(&'a AtomicBool);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        // ORDERING: Release, partner the exchange in `try_with` (O1).
        self.0.store(false, Ordering::Release);
    }
}

impl<T> Turn<T> {
    pub(super) fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Runs `work` on the value, or returns `None` at once if another thread (or a caller of this
    /// function) has the turn.
    pub(super) fn try_with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        // ORDERING: Acquire, partner `Back` (O1).
        if self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return None;
        }
        let _back = Back(&self.taken);
        #[cfg(not(loom))]
        // SAFETY: the exchange found `false`, so only this thread uses the value until `_back`
        // drops (T1).
        return Some(work(unsafe { &mut *self.value.get() }));
        #[cfg(loom)]
        return Some(self.value.with_mut(|value| {
            // SAFETY: the exchange found `false`, so only this thread uses the value until `_back`
            // drops (T1).
            work(unsafe { &mut *value })
        }));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_taken_turn_is_refused_and_comes_back_after_a_panic() {
        let turn = Turn::new(1);
        assert_eq!(turn.try_with(|_| turn.try_with(|value| *value)), Some(None));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            turn.try_with(|_| std::panic::resume_unwind(Box::new(())))
        }));
        assert!(panicked.is_err());
        assert_eq!(turn.try_with(|value| *value), Some(1));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitive::model::{Model, reached};
    use loom::sync::Arc;

    /// T1 and O1. Fails with a Relaxed exchange or a Relaxed store.
    #[test]
    fn model_one_at_a_time() {
        Model::new(4, &["taken in turn", "refused"]).check(|| {
            let turn = Arc::new(Turn::new(0));
            let other = turn.clone();
            let thread = loom::thread::spawn(move || other.try_with(|value| *value += 1).is_some());
            let mine = turn.try_with(|value| *value += 1).is_some();
            let theirs = thread.join().unwrap();
            let sum = turn.try_with(|value| *value).expect("no other thread is left");
            reached(if mine && theirs { "taken in turn" } else { "refused" });
            assert_eq!(sum, i32::from(mine) + i32::from(theirs));
        });
    }
}
