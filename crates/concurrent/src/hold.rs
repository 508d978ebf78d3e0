//! Hold word: who uses a cached object and who can still find it, in one word.
//!
//! Word: `state:2 | refs:24 | holds:38`.
//!
//! A *hold* keeps the object in use (an open file, a node the kernel knows). A *reference* only
//! leads to it (a table entry, a name) and keeps its memory.
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
//! H1. `Active` carries its number of holds, never 0; `Inactive` and `Dead` carry none. Inactive is
//!     a *state*, not "the count is 0", so a lookup that races the last release either finds
//!     `Active`, or finds `Inactive` and revives it; there is no in-between to misread (the rule of
//!     SVR4MP's vnodes, Peacock 1992).
//! H2. `Dead` is final. Exactly one `retire` returns true, and only from `Inactive`: the teardown
//!     runs once, and nobody holds the object while it runs.
//! H3. Every transition is one atomic read-modify-write.
//! H4. The memory goes with the last of all holds and references: exactly one of `release` and
//!     `drop_reference` says so. Who calls `try_hold` has a reference or borrows one, so there is
//!     none to come.
//! H5. The release that makes an object inactive takes a reference in the same step, so that it can
//!     still speak of the object although another may revive, retire and free it at once.
//!
//! O1. `release` (Release) → `retire` (Acquire): who tears down sees all that the holders wrote.
//! O2. `release` (Release) → `try_hold` (Acquire): who revives sees it too.
//! O3. `drop_reference` and `release` (Release) → the one that is last (Acquire): who frees sees
//!     all that anybody did with the object.
//!
//! Progress: every operation is lock-free; a retry means that another one succeeded.
//! Checked by `model_release_and_retire`, `model_release_and_try_hold`, `model_one_teardown`,
//! `model_one_free` and `model_last_hold_frees` below (`cargo xtask model`).
//! Weakness: one hot object's word is one hot cache line; the walk that takes no hold avoids it.

use crate::primitive::atomic::{AtomicU64, Ordering};

const INACTIVE: u64 = 1 << 62;
const DEAD: u64 = 1 << 63;
const REFERENCE: u64 = 1 << HOLD_BITS;
const HOLD_BITS: u32 = 38;
const HOLDS: u64 = REFERENCE - 1;
const REFERENCES: u64 = (INACTIVE - 1) & !HOLDS;

/// What a `release` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// Others still hold the object.
    StillHeld,
    /// This was the last hold: the object is now inactive, and the caller has a reference (H5).
    Inactive,
    /// This was the last hold, and nothing leads to the object: the caller frees it (H4).
    Unreachable,
}

/// The hold word of one object. See the module for the protocol.
#[derive(Debug)]
pub struct HoldWord(AtomicU64);

impl HoldWord {
    /// A new object, active, with one hold (the caller's) and no reference.
    pub fn new() -> Self {
        Self(AtomicU64::new(1))
    }

    /// Adds a hold to an object that the caller holds already.
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

    /// Gives one hold back.
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
            // ORDERING: AcqRel; Release for `retire` (O1), `try_hold` (O2) and who frees (O3),
            // Acquire because it may be us who frees.
            match self.0.compare_exchange_weak(word, left, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return outcome,
                Err(now) => word = now,
            }
        }
    }

    /// Adds a reference for somebody who has a hold or a reference. False if there are too many.
    pub fn try_reference(&self) -> bool {
        // ORDERING: Relaxed; the caller's own count keeps the object, nothing new is reached.
        let before = self.0.fetch_add(REFERENCE, Ordering::Relaxed);
        // Half of the range is kept free for those who add before they look.
        if before & REFERENCES > REFERENCES / 2 {
            // ORDERING: Relaxed; takes back what was added, and is not the last (ours remains).
            self.0.fetch_sub(REFERENCE, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Gives one reference back. True if nothing is left: the caller frees the object (H4).
    pub fn drop_reference(&self) -> bool {
        // ORDERING: AcqRel; Release for who frees, Acquire because it may be us (O3).
        let before = self.0.fetch_sub(REFERENCE, Ordering::AcqRel);
        debug_assert!(before & REFERENCES > 0, "a reference that nobody had");
        before & (REFERENCES | HOLDS) == REFERENCE
    }

    /// Kills the object if it is inactive. True for exactly one caller ever, who tears it down.
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

    /// Holds right now (0 when inactive or dead); a report, stale when read.
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

    /// An object whose content may be touched only by a holder, or by whoever tears it down.
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

    /// O2: a reviver sees what the last holder wrote. Fails with a Relaxed `release` or `try_hold`.
    #[test]
    fn model_release_and_try_hold() {
        Model::new(25, &["revived", "held beside the other"]).check(|| {
            let object = Object::new();
            let other = object.clone();
            let reviver = thread::spawn(move || {
                let revived = other.word.racy_inactive();
                assert!(other.word.try_hold());
                // Inactive before means that the holder below has gone, so we hold it alone.
                reached(if revived { "revived" } else { "held beside the other" });
                if revived {
                    other.content.with(|content| {
                        // SAFETY: ours is the only hold left, so nobody writes (H1).
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

    /// H4, O3: a holder and a reference part with the object at once; one of them frees it, and sees
    /// what the other did. Fails with a Relaxed `release`, or a Relaxed `drop_reference`.
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
                    // SAFETY: nobody writes before the last hold and reference are gone (H4).
                    unsafe { *content }
                });
                if other.word.drop_reference() {
                    reached("freed by the reference");
                    free(&other, &counted);
                }
            });
            object.content.with(|content| {
                // SAFETY: as above.
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

    /// H4, O3: the last hold frees what nothing leads to any more, after who dropped the last reference
    /// is done with it. Fails with a `release` that is only Release, or with a Relaxed `drop_reference`.
    #[test]
    fn model_last_hold_frees() {
        Model::new(8, &["freed with the last hold", "freed with the last reference"]).check(|| {
            let object = Object::new();
            let other = object.clone();
            let reference = thread::spawn(move || {
                other.content.with(|content| {
                    // SAFETY: nobody writes before the last hold and reference are gone (H4).
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
