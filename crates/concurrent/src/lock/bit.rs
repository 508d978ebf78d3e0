//! Locks that are one bit of a word, with a class, the order check and the meter.
//!
//! # Boundary
//! The structure that contains the bit owns the word, its orderings and the protected data. This module waits for the
//! bit and reports to the checker and the meter. For short critical sections only: a waiter spins, then yields the
//! processor between attempts.
//!
//! # Why
//! A bit in an existing word costs no memory, and taking it can validate the word in the same step. Weakness: no queue,
//! so no fairness; a holder that is descheduled keeps the spinners busy, which the meter's spin counts show.

use super::meter::{self, Mode};
use super::order::{Entered, LockClass};
use crate::primitive::record;

/// The number of attempts between which the thread only spins; after these, it yields.
const SPINS_BEFORE_YIELD: u64 = 64;

/// Represents a held bit lock; returned through [`unlock`] on the same thread.
#[derive(Debug)]
#[must_use = "hand it to `bit::unlock` when the bit is cleared"]
pub struct BitHeld {
    held: meter::Held,
    _entered: Entered,
}

/// Takes a bit lock of `class`: calls `attempt` until it returns true. `attempt` tries once to set the bit and returns
/// whether it did.
///
/// # Panics
/// In debug builds, when the lock order forbids it.
#[inline]
#[track_caller]
pub fn lock(class: &'static LockClass, attempt: impl FnMut() -> bool) -> BitHeld {
    let entered = Entered::new(class);
    record::lock();
    BitHeld { held: meter::spin(class, attempt, pause), _entered: entered }
}

/// Waits for a bit lock that a first attempt found held: calls `attempt` until it succeeds. The meter counts the
/// acquisition and the wait, but not the hold. For structures that cannot afford to report acquisitions without a wait;
/// they note the lock order themselves.
#[cold]
#[track_caller]
pub fn wait(class: &'static LockClass, mut attempt: impl FnMut() -> bool) {
    let mut tried = false;
    let attempt = || std::mem::replace(&mut tried, true) && attempt();
    std::mem::forget(meter::spin(class, attempt, pause));
}

/// Calls `attempt` once. Returns none if it does not succeed, which the meter counts as rejected.
///
/// # Panics
/// In debug builds, when it succeeds and the lock order forbids it.
#[inline]
#[track_caller]
pub fn try_lock(class: &'static LockClass, attempt: impl FnOnce() -> bool) -> Option<BitHeld> {
    if !attempt() {
        meter::rejected(class, Mode::Spin);
        return None;
    }
    let entered = Entered::new(class);
    record::lock();
    Some(BitHeld { held: meter::taken_unwaited(class, Mode::Spin), _entered: entered })
}

/// Runs `release`, which clears the bit, and notes the end of the hold.
#[inline]
pub fn unlock(mut held: BitHeld, release: impl FnOnce()) {
    held.held.ending();
    release();
}

/// Waits after `tries` failed attempts.
fn pause(tries: u64) {
    if tries < SPINS_BEFORE_YIELD { std::hint::spin_loop() } else { std::thread::yield_now() }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::primitive::atomic::{AtomicU64, Ordering};

    static CLASS: LockClass = LockClass::new(1, "bit-test", "test");
    const BIT: u64 = 1;

    fn set(word: &AtomicU64) -> bool {
        word.fetch_or(BIT, Ordering::Acquire) & BIT == 0
    }

    fn clear(word: &AtomicU64) {
        word.fetch_and(!BIT, Ordering::Release);
    }

    #[test]
    fn one_holder_at_a_time() {
        let (word, count) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5000 {
                        let held = lock(&CLASS, || set(&word));
                        // A load and a store: without the lock, some increments would be lost.
                        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        unlock(held, || clear(&word));
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 20_000);
    }

    #[test]
    fn a_held_bit_is_not_waited_for_by_a_try() {
        let word = AtomicU64::new(0);
        let held = lock(&CLASS, || set(&word));
        assert!(try_lock(&CLASS, || set(&word)).is_none());
        unlock(held, || clear(&word));
        let held = try_lock(&CLASS, || set(&word)).expect("free again");
        unlock(held, || clear(&word));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "taking `bit-test`")]
    fn the_lock_order_is_checked() {
        let (one, other) = (AtomicU64::new(0), AtomicU64::new(0));
        let _one = lock(&CLASS, || set(&one));
        let _other = lock(&CLASS, || set(&other));
    }
}
