//! Locks that are one bit of a word, with a class, the order check and the meter.
//!
//! # Boundary
//! The word, its orderings and what the bit protects belong to the structure that has it; here is how
//! to wait for it and what to tell the checker and the meter. For short critical sections only: whoever
//! waits spins, then yields the processor between tries.
//!
//! # Why
//! A bit in a word that is there anyway costs no memory, and taking it can validate the word in
//! the same step. Weakness: no queue, so no fairness, and a holder that loses its processor keeps the
//! spinners busy; the meter's spin counts show it.

use super::meter::{self, Mode};
use super::order::{Entered, LockClass};
use crate::primitive::record;

/// Tries between which only the processor is told to relax; after these, the thread yields.
const SPINS_BEFORE_YIELD: u64 = 64;

/// Says that a bit lock is held; goes back through [`unlock`] on the same thread.
#[derive(Debug)]
#[must_use = "hand it to `bit::unlock` when the bit is cleared"]
pub struct BitHeld {
    held: meter::Held,
    _entered: Entered,
}

/// Takes a bit lock of `class`: calls `attempt`, which tries to set the bit once and says whether it
/// did, until it succeeds.
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

/// Waits for a bit lock that a first try found held: calls `attempt` until it succeeds. The meter counts
/// the acquisition and the wait, but not the hold, for structures that cannot afford to tell it of the
/// acquisitions that did not wait; they note the lock order for themselves.
#[cold]
#[track_caller]
pub(crate) fn wait(class: &'static LockClass, mut attempt: impl FnMut() -> bool) {
    let mut tried = false;
    let attempt = || std::mem::replace(&mut tried, true) && attempt();
    std::mem::forget(meter::spin(class, attempt, pause));
}

/// Calls `attempt` once; none when it does not succeed, which the meter counts as rejected.
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

/// Passes the time after `tries` tries in vain.
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
                        // A load and a store: some would be lost without the lock.
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
