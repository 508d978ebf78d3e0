//! Hold word: the reference count of a cached object, with an explicit inactive state.
//!
//! Word: `state:2 | holds:62`.
//!
//! ```text
//!               hold (n + 1)
//!              ┌───────────┐
//!              │           ▼
//!   new ────▶ Active(n ≥ 1) ── last release ──▶ Inactive ── retire ──▶ Dead
//!              ▲                                   │
//!              └────────── try_hold (revive) ──────┘
//! ```
//!
//! H1. `Active` carries its number of holds, never 0; `Inactive` and `Dead` carry none. Inactive is
//!     a *state*, not "the count is 0", so a lookup that races the last release either finds
//!     `Active`, or finds `Inactive` and revives it; there is no in-between to misread (the rule of
//!     SVR4MP's vnodes, Peacock 1992).
//! H2. `Dead` is final. Exactly one `retire` returns true, and only from `Inactive`: the teardown
//!     runs once, and nobody holds the object while it runs.
//! H3. Every transition is one atomic read-modify-write.
//!
//! O1. `release` (Release) → `retire` (Acquire): who tears down sees all that the holders wrote.
//! O2. `release` (Release) → `try_hold` (Acquire): who revives sees it too.
//!
//! Progress: every operation is lock-free; a retry means that another one succeeded.
//! Checked by `model_release_and_retire`, `model_release_and_try_hold` and
//! `model_one_teardown` below (`cargo xtask model`).
//! Weakness: one hot object's word is one hot cache line; the walk that takes no hold removes it.

use crate::primitive::atomic::{AtomicU64, Ordering};

const INACTIVE: u64 = 1 << 62;
const DEAD: u64 = 1 << 63;

/// What the last `release` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// Others still hold the object.
    StillHeld,
    /// This was the last hold; the object is now inactive, and the caller should queue it.
    Inactive,
}

/// The hold word of one object. See the module for the protocol.
#[derive(Debug)]
pub struct HoldWord(AtomicU64);

impl HoldWord {
    /// A new object, active, with one hold (the caller's).
    pub fn new() -> Self {
        Self(AtomicU64::new(1))
    }

    /// Adds a hold to an object that the caller holds already.
    pub fn hold(&self) {
        // ORDERING: Relaxed; the caller's own hold keeps the object, nothing new is reached.
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        debug_assert!(before & (INACTIVE | DEAD) == 0 && before > 0, "hold without a hold");
    }

    /// Holds an object found through a table: revives it if inactive, fails if dead.
    pub fn try_hold(&self) -> bool {
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & DEAD != 0 {
                return false;
            }
            let held = if word == INACTIVE { 1 } else { word + 1 };
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
            debug_assert!(word & (INACTIVE | DEAD) == 0 && word > 0, "release without a hold");
            let left = if word == 1 { INACTIVE } else { word - 1 };
            // ORDERING: Release, partners `retire` (O1) and `try_hold` (O2).
            match self.0.compare_exchange_weak(word, left, Ordering::Release, Ordering::Relaxed) {
                Ok(_) if left == INACTIVE => return Released::Inactive,
                Ok(_) => return Released::StillHeld,
                Err(now) => word = now,
            }
        }
    }

    /// Kills the object if it is inactive. True for exactly one caller ever, who tears it down.
    pub fn retire(&self) -> bool {
        // ORDERING: Acquire, partner `release` (O1): teardown sees the last holder's writes.
        self.0.compare_exchange(INACTIVE, DEAD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Holds right now (0 when inactive or dead); a report, stale when read.
    pub fn racy_holds(&self) -> u64 {
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        self.0.load(Ordering::Relaxed) & !(INACTIVE | DEAD)
    }

    /// Whether the object was inactive at some instant during the call.
    pub fn racy_inactive(&self) -> bool {
        // ORDERING: Relaxed; a hint, `retire` decides.
        self.0.load(Ordering::Relaxed) == INACTIVE
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
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
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
        fn new() -> Arc<Self> {
            Arc::new(Self { word: HoldWord::new(), content: UnsafeCell::new(0) })
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
        loom::model(|| {
            let object = Object::new();
            let other = object.clone();
            let holder = thread::spawn(move || {
                other.touch();
                other.word.release();
            });
            if object.word.retire() {
                object.touch();
            }
            holder.join().unwrap();
        });
    }

    /// O2: a reviver sees what the last holder wrote. Fails with a Relaxed `release` or `try_hold`.
    #[test]
    fn model_release_and_try_hold() {
        loom::model(|| {
            let object = Object::new();
            let other = object.clone();
            let reviver = thread::spawn(move || {
                let revived = other.word.racy_inactive();
                assert!(other.word.try_hold());
                // Inactive before means that the holder below has gone, so we hold it alone.
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
        loom::model(|| {
            let object = Object::new();
            let deaths = Arc::new(loom::sync::atomic::AtomicU64::new(0));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (object, deaths) = (object.clone(), deaths.clone());
                    thread::spawn(move || {
                        if object.word.try_hold() {
                            assert_eq!(deaths.load(Ordering::SeqCst), 0, "held while torn down");
                            object.word.release();
                        }
                        if object.word.retire() {
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
}
