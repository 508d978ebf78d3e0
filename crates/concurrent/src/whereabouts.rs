//! Where something lies, as an id, and whether that is in doubt, as a bit of a word that readers look at anyway.
//!
//! # Boundary
//! Two words of the caller's, which may hold other things too: the id alone in one, the mark a bit of the
//! other. What the ids mean is the caller's affair; 0 is nowhere known.
//!
//! ```text
//!            doubt: id := 0, then the mark
//!   Known(id) ─────────────────────────────▶ Doubted (0, marked)
//!       ▲                                        │
//!       └────────────────────────────────────────┘
//!         set: id, then the mark goes, then a second look
//! ```
//! D1. With no operation under way, the id is not 0 or the mark is there: what is not known is asked for
//!     again, and not for ever taken as known.
//! D2. A mark goes only by `set`, after the id is stored.
//!
//! O1. `doubt`: the id (Relaxed), then the mark (Release) → the second look of `set` (Acquire), then the look
//!     at the id: the `set` that takes a mark away sees the id that went before it.
//!
//! Progress: wait-free.
//! Checked by `model_set_and_doubt`.
//! Weakness: a doubt that overlaps a `set` may leave its mark over the new id, which costs a question.

use crate::primitive::atomic::{AtomicU32, AtomicU64, Ordering};

/// The two words of one thing. See the module.
#[derive(Debug, Clone, Copy)]
pub struct Whereabouts<'a> {
    /// Where it lies, or 0.
    pub id: &'a AtomicU64,
    /// The word that has the mark, and other bits.
    pub flags: &'a AtomicU32,
    /// The bit that says that nobody knows where it lies.
    pub mark: u32,
}

impl Whereabouts<'_> {
    /// The id now; 0 if it is not known.
    pub fn id(self) -> u64 {
        // ORDERING: Relaxed; an id, nothing is reached through it but by a lock.
        self.id.load(Ordering::Relaxed)
    }

    fn is_doubted(self) -> bool {
        // ORDERING: Acquire, partner `doubt` (O1).
        self.flags.load(Ordering::Acquire) & self.mark != 0
    }

    /// It lies at `id`, which is not 0. Calls `moved` if that is news, before anybody believes it.
    pub fn set(self, id: u64, moved: impl FnOnce()) {
        debug_assert_ne!(id, 0, "nowhere known");
        // ORDERING: Relaxed; as `id`.
        if self.id() != id {
            self.id.store(id, Ordering::Relaxed);
            moved();
        }
        if self.is_doubted() {
            // ORDERING: Release; for readers of the other bits, and what `moved` did.
            self.flags.fetch_and(!self.mark, Ordering::Release);
            // Another thread may have taken the id away before that: it marks afterwards, and whoever
            // clears the mark looks again (O1).
            if !self.is_doubted() && self.id() == 0 {
                // ORDERING: Release; as in `doubt`.
                self.flags.fetch_or(self.mark, Ordering::Release);
            }
        }
    }

    /// Nobody knows where it lies.
    pub fn doubt(self) {
        // ORDERING: Relaxed; the mark after it is the Release (O1). The other way round a `set` in between
        // would clear the mark, and the id goes after all: unknown, and nobody asks again.
        self.id.store(0, Ordering::Relaxed);
        // ORDERING: Release, partner the second look of `set` (O1).
        self.flags.fetch_or(self.mark, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_believed_and_other_bits_stay() {
        let (id, flags) = (AtomicU64::new(0), AtomicU32::new(3 | 4));
        let both = Whereabouts { id: &id, flags: &flags, mark: 4 };
        let mut moved = 0;
        both.set(7, || moved += 1);
        both.set(7, || moved += 1);
        assert_eq!((both.id(), flags.load(Ordering::Relaxed), moved), (7, 3, 1));
        both.doubt();
        assert_eq!((both.id(), flags.load(Ordering::Relaxed)), (0, 3 | 4));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitive::model::{Model, Order};
    use loom::sync::Arc;
    use loom::thread;

    const MARK: u32 = 4;

    #[derive(Default)]
    struct Words(AtomicU64, AtomicU32);

    impl Words {
        fn both(&self) -> Whereabouts<'_> {
            Whereabouts { id: &self.0, flags: &self.1, mark: MARK }
        }

        /// D1, when all is done.
        fn check(&self) {
            let both = self.both();
            assert!(both.id() != 0 || both.is_doubted(), "unknown, and nobody asks again");
        }
    }

    /// D1: it is found while another thread loses it, doubted before or not. Fails if `doubt` marks first, if
    /// `set` does not look again, and with a Relaxed mark or look.
    #[test]
    fn model_set_and_doubt() {
        for doubted in [false, true] {
            Model::new(10, &Order::ALL).check(move || {
                let (words, order) = (Arc::new(Words::default()), Order::default());
                words.both().set(1, || ());
                if doubted {
                    words.both().doubt();
                }
                let (other, first) = (words.clone(), order.clone());
                let loser = thread::spawn(move || first.other(|| other.both().doubt()));
                order.one(|| words.both().set(2, || ()));
                loser.join().unwrap();
                words.check();
            });
        }
    }
}
