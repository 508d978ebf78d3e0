//! Hold word: counts the users of a cached object and the references that lead to it, in one word.
//!
//! Word: `state:2 | refs:24 | holds:38`. A *hold* keeps the object in use (an open file, a node that the kernel knows).
//! A *reference* (a table entry, a name) leads to the object and keeps only its memory.
//!
//! ```text
//!               hold (n + 1)
//!              ┌───────────┐
//!              │           ▼
//!   new ────▶ Active(n ≥ 1) ── last release ──▶ Inactive ── retire ──▶ Dead
//!              ▲     │                             │                     │
//!              │     └─ last release, no refs ─┐   │    last reference   │
//!              └────────── try_hold (revive) ──┼───┘                     │
//!                                              └───────▶ freed ◀─────────┘
//! ```
//!
//! `docs/protocols/hold.md` has the invariants and the orderings: inactive is a state (H1); one teardown (H2); one step
//! for each transition (H3); one free (H4); the reference of the last release (H5); O1 to O3.
//!
//! Progress: every operation is lock-free; a retry means that another operation succeeded. Checked by the models below.
//! Weakness: one hot object's word is one hot cache line; a walk that takes no hold avoids it.

use crate::primitive::atomic::{AtomicU64, Ordering};

const INACTIVE: u64 = 1 << 62;
const DEAD: u64 = 1 << 63;
const REFERENCE: u64 = 1 << HOLD_BITS;
const HOLD_BITS: u32 = 38;
const HOLDS: u64 = REFERENCE - 1;
const REFERENCES: u64 = (INACTIVE - 1) & !HOLDS;

/// The outcome of a `release`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// Others still hold the object.
    StillHeld,
    /// This was the last hold: the object is now inactive, and the caller owns a reference (H5).
    Inactive,
    /// This was the last hold, and no reference is left: the caller frees the object (H4).
    Unreachable,
}

/// The hold word of one object. The protocol is in the module's documentation.
#[derive(Debug)]
pub struct HoldWord(AtomicU64);

impl HoldWord {
    /// A new object, active, with one hold (the caller's) and no reference.
    pub fn new() -> Self {
        Self(AtomicU64::new(1))
    }

    /// Adds a hold to an object that the caller already holds.
    pub fn hold(&self) {
        // ORDERING: Relaxed; the caller's own hold keeps the object, nothing new is reached.
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        debug_assert!(before & (INACTIVE | DEAD) == 0 && before & HOLDS > 0, "hold without a hold");
    }

    /// Holds an object that a reference leads to: revives it if inactive, fails if dead.
    pub fn try_hold(&self) -> bool {
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & DEAD != 0 {
                return false;
            }
            let held = (word & !INACTIVE) + 1;
            // ORDERING: Acquire, partner `release` (O2).
            match self.0.compare_exchange_weak(word, held, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Releases one hold.
    pub fn release(&self) -> Released {
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            debug_assert!(
                word & (INACTIVE | DEAD) == 0 && word & HOLDS > 0,
                "release without a hold"
            );
            let (left, outcome) = match word & HOLDS {
                1 if word & REFERENCES == 0 => (DEAD, Released::Unreachable),
                1 => (((word - 1) | INACTIVE) + REFERENCE, Released::Inactive),
                _ => (word - 1, Released::StillHeld),
            };
            // ORDERING: AcqRel; Release for `retire` (O1), `try_hold` (O2) and the thread that frees (O3). Acquire
            // because this thread may be the one that frees.
            match self.0.compare_exchange_weak(word, left, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return outcome,
                Err(now) => word = now,
            }
        }
    }

    /// Adds a reference for a caller that has a hold or a reference. False if there are too many.
    pub fn try_reference(&self) -> bool {
        // ORDERING: Relaxed; the caller's own count keeps the object, nothing new is reached.
        let before = self.0.fetch_add(REFERENCE, Ordering::Relaxed);
        // Half of the range stays free for threads that add before they check.
        if before & REFERENCES > REFERENCES / 2 {
            // ORDERING: Relaxed; undoes the addition, and is not the last reference (the caller's remains).
            self.0.fetch_sub(REFERENCE, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Drops one reference. True if no reference and no hold is left: the caller frees the object (H4).
    pub fn drop_reference(&self) -> bool {
        // ORDERING: AcqRel; Release for the thread that frees, Acquire because it may be this one (O3).
        let before = self.0.fetch_sub(REFERENCE, Ordering::AcqRel);
        debug_assert!(before & REFERENCES > 0, "a reference that was not counted");
        before & (REFERENCES | HOLDS) == REFERENCE
    }

    /// Kills the object if it is inactive. Returns true to exactly one caller, which tears it down.
    pub fn retire(&self) -> bool {
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        while word & INACTIVE != 0 {
            let dead = (word & !INACTIVE) | DEAD;
            // ORDERING: Acquire, partner `release` (O1): teardown sees the last holder's writes.
            match self.0.compare_exchange_weak(word, dead, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// The number of holds at this moment (0 when inactive or dead); a statistic.
    pub fn racy_holds(&self) -> u64 {
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        self.0.load(Ordering::Relaxed) & HOLDS
    }

    /// Whether the object was inactive at some instant during the call.
    pub fn racy_inactive(&self) -> bool {
        // ORDERING: Relaxed; a hint, `retire` decides.
        self.0.load(Ordering::Relaxed) & INACTIVE != 0
    }
}

impl Default for HoldWord {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_release_makes_inactive_and_a_lookup_revives() {
        let word = HoldWord::new();
        assert!(word.try_reference());
        word.hold();
        assert_eq!(word.racy_holds(), 2);
        assert_eq!(word.release(), Released::StillHeld);
        assert!(!word.retire(), "an active object cannot be retired");
        assert_eq!(word.release(), Released::Inactive);
        assert!(word.racy_inactive());
        assert!(word.try_hold());
        assert_eq!(word.racy_holds(), 1);
        assert_eq!(word.release(), Released::Inactive);
        assert!(word.retire());
        assert!(!word.retire(), "torn down once");
        assert!(!word.try_hold(), "dead is final");
        assert!(!word.drop_reference(), "a release took one (H5)");
        assert!(!word.drop_reference());
        assert!(word.drop_reference(), "the last of three goes");
    }

    #[test]
    fn an_object_that_nothing_leads_to_goes_with_its_last_hold() {
        let word = HoldWord::new();
        assert!(word.try_reference());
        assert!(!word.drop_reference(), "it is held");
        word.hold();
        assert_eq!(word.release(), Released::StillHeld);
        assert_eq!(word.release(), Released::Unreachable);
    }

    #[test]
    fn references_stop_before_they_overflow() {
        let word = HoldWord::new();
        let most = (0..1u64 << 24).take_while(|_| word.try_reference()).count();
        assert_eq!(most, 1 << 23, "half of the range");
        assert_eq!(word.racy_holds(), 1, "holds are not touched by it");
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitive::model::{Model, reached};
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// An object whose content only a holder or the thread that tears it down may touch.
    struct Object {
        word: HoldWord,
        content: UnsafeCell<u32>,
    }

    // SAFETY: `content` is reached only under H1 and H2; loom's cell checks that claim.
    unsafe impl Sync for Object {}

    impl Object {
        /// A held object with one reference.
        fn new() -> Arc<Self> {
            let object = Self { word: HoldWord::new(), content: UnsafeCell::new(0) };
            assert!(object.word.try_reference());
            Arc::new(object)
        }
        fn touch(&self) {
            self.content.with_mut(|content| {
                // SAFETY: the caller holds the object alone, or retired it (H2).
                unsafe { *content += 1 }
            });
        }
    }

    /// O1: the teardown sees the last holder's writes. Fails with a Relaxed `release` or `retire`.
    #[test]
    fn model_release_and_retire() {
        Model::new(4, &["retired", "still held"]).check(|| {
            let object = Object::new();
            let other = object.clone();
            let holder = thread::spawn(move || {
                other.touch();
                other.word.release();
            });
            if object.word.retire() {
                reached("retired");
                object.touch();
            } else {
                reached("still held");
            }
            holder.join().unwrap();
        });
    }

    /// O2: a thread that revives sees the last holder's writes. Fails with a Relaxed `release` or `try_hold`.
    #[test]
    fn model_release_and_try_hold() {
        Model::new(25, &["revived", "held beside the other"]).check(|| {
            let object = Object::new();
            let other = object.clone();
            let reviver = thread::spawn(move || {
                let revived = other.word.racy_inactive();
                assert!(other.word.try_hold());
                // Inactive before means that the holder below has released, so this thread is the only holder.
                reached(if revived { "revived" } else { "held beside the other" });
                if revived {
                    other.content.with(|content| {
                        // SAFETY: this is the only hold left, so no thread writes (H1).
                        unsafe { *content }
                    });
                }
                other.word.release();
            });
            object.touch();
            object.word.release();
            reviver.join().unwrap();
            assert!(object.word.racy_inactive());
        });
    }

    /// H2: two lookups, a release and a retire; the object dies at most once and never under a hold.
    #[test]
    fn model_one_teardown() {
        // Three threads: every schedule with up to two preemptions, in seconds instead of hours.
        Model::new(500, &["held", "too late", "retired by a lookup"]).preemptions(2).check(|| {
            let object = Object::new();
            let deaths = Arc::new(AtomicU64::new(0));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (object, deaths) = (object.clone(), deaths.clone());
                    thread::spawn(move || {
                        if object.word.try_hold() {
                            assert_eq!(deaths.load(Ordering::SeqCst), 0, "held while torn down");
                            object.word.release();
                            reached("held");
                        } else {
                            reached("too late");
                        }
                        if object.word.retire() {
                            reached("retired by a lookup");
                            deaths.fetch_add(1, Ordering::SeqCst);
                        }
                    })
                })
                .collect();
            object.word.release();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            if object.word.retire() {
                deaths.fetch_add(1, Ordering::SeqCst);
            }
            assert_eq!(deaths.load(Ordering::SeqCst), 1);
        });
    }

    /// H4, O3: a holder and a reference are dropped at the same time; one thread frees the object and sees the other's
    /// writes. Fails with a Relaxed `release`, or a Relaxed `drop_reference`.
    #[test]
    fn model_one_free() {
        Model::new(10, &["freed by the holder", "freed by the reference"]).check(|| {
            let object = Object::new();
            assert!(object.word.try_reference());
            let frees = Arc::new(AtomicU64::new(0));
            let free = |object: &Object, frees: &AtomicU64| {
                object.touch();
                frees.fetch_add(1, Ordering::Relaxed);
            };
            let (other, counted) = (object.clone(), frees.clone());
            let reference = thread::spawn(move || {
                other.content.with(|content| {
                    // SAFETY: no thread writes before the last hold and reference are gone (H4).
                    unsafe { *content }
                });
                if other.word.drop_reference() {
                    reached("freed by the reference");
                    free(&other, &counted);
                }
            });
            object.content.with(|content| {
                // SAFETY: no thread writes before the last hold and reference are gone (H4).
                unsafe { *content }
            });
            let last = match object.word.release() {
                Released::Inactive => object.word.drop_reference(),
                Released::Unreachable => true,
                Released::StillHeld => false,
            };
            assert!(!last, "one reference is still there");
            if object.word.drop_reference() {
                reached("freed by the holder");
                free(&object, &frees);
            }
            reference.join().unwrap();
            assert_eq!(frees.load(Ordering::Relaxed), 1);
        });
    }

    /// H4, O3: the last hold frees an object without references, after the thread that dropped the last reference has
    /// finished with it. Fails with a `release` that is only Release, or with a Relaxed `drop_reference`.
    #[test]
    fn model_last_hold_frees() {
        Model::new(8, &["freed with the last hold", "freed with the last reference"]).check(|| {
            let object = Object::new();
            let other = object.clone();
            let reference = thread::spawn(move || {
                other.content.with(|content| {
                    // SAFETY: no thread writes before the last hold and reference are gone (H4).
                    unsafe { *content }
                });
                let last = other.word.drop_reference();
                if last {
                    reached("freed with the last reference");
                    other.touch();
                }
                last
            });
            let last = match object.word.release() {
                Released::Unreachable => {
                    reached("freed with the last hold");
                    true
                }
                Released::Inactive => object.word.drop_reference(),
                Released::StillHeld => panic!("a second hold"),
            };
            if last {
                object.touch();
            }
            assert!(reference.join().unwrap() != last, "freed once");
        });
    }
}
