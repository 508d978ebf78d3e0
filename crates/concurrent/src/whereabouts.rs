//! The location of a thing as an id, and a doubt mark: a bit of a word that readers load anyway.
//!
//! # Boundary
//! Two words of the caller, which may hold other things too: the id alone in one, the mark as a bit of the other. The
//! caller defines the ids; 0 means that no location is known.
//!
//! ```text
//!            doubt: id := 0, then the mark
//!   Known(id) ─────────────────────────────▶ Doubted (0, marked)
//!       ▲                                        │
//!       └────────────────────────────────────────┘
//!         set: id, then the mark is cleared, then a second look
//! ```
//! D1. With no operation in progress, the id is not 0 or the mark is set. An unknown location is therefore asked for
//!     again, and never taken for known.
//! D2. Only `set` clears the mark, after the id is stored.
//!
//! O1. `doubt`: the id (Relaxed), then the mark (Release) → the second look of `set` (Acquire), then the look at the
//!     id: the `set` that clears a mark sees that the id was cleared before it.
//!
//! Progress: wait-free.
//! Checked by `model_set_and_doubt`.
//! Weakness: a doubt that overlaps a `set` may leave its mark over the new id, which costs one question.

use crate::primitive::atomic::{AtomicU32, AtomicU64, Ordering};

/// The two words of one thing. The protocol is in the module's documentation.
#[derive(Debug, Clone, Copy)]
pub struct Whereabouts<'a> {
    /// The id of the location, or 0.
    pub id: &'a AtomicU64,
    /// The word that holds the mark, and other bits.
    pub flags: &'a AtomicU32,
    /// The bit that marks the location as unknown.
    pub mark: u32,
}

impl Whereabouts<'_> {
    /// The present id; 0 if it is not known.
    pub fn id(self) -> u64 {
        // ORDERING: Relaxed; an id: threads reach the object only under a lock.
        self.id.load(Ordering::Relaxed)
    }

    fn is_doubted(self) -> bool {
        // ORDERING: Acquire, partner `doubt` (O1).
        self.flags.load(Ordering::Acquire) & self.mark != 0
    }

    /// Stores the location `id`, which is not 0. If it differs from the old one, calls `moved` before the mark is
    /// cleared.
    pub fn set(self, id: u64, moved: impl FnOnce()) {
        debug_assert_ne!(id, 0, "nowhere known");
        // ORDERING: Relaxed; an id, as in `id`.
        if self.id() != id {
            self.id.store(id, Ordering::Relaxed);
            moved();
        }
        if self.is_doubted() {
            // ORDERING: Release; for readers of the other bits, and for the effects of `moved`.
            self.flags.fetch_and(!self.mark, Ordering::Release);
            // Another thread may have cleared the id before that. It sets the mark afterwards, and the thread that
            // clears the mark looks again (O1).
            if !self.is_doubted() && self.id() == 0 {
                // ORDERING: Release, partner the second look of another `set` (O1).
                self.flags.fetch_or(self.mark, Ordering::Release);
            }
        }
    }

    /// Declares the location unknown.
    pub fn doubt(self) {
        // ORDERING: Relaxed; the mark after it is the Release (O1). In the other order, a `set` in between would clear
        // the mark and the id would be cleared after it: unknown, and never asked for again.
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

        /// D1, after all operations have ended.
        fn check(&self) {
            let both = self.both();
            assert!(both.id() != 0 || both.is_doubted(), "unknown, and nobody asks again");
        }
    }

    /// D1: one thread sets the location while another one doubts it, with and without an earlier mark. Fails if `doubt`
    /// marks first, if `set` does not look again, and with a Relaxed mark or look.
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
