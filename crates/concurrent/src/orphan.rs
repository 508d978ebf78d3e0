//! Orphans: objects without a hold and without a name, each queued once.
//!
//! # Boundary
//! Counts an object's names and decides which thread queues the object. The caller owns the queue and handles its
//! objects; the object's holds are in its [`HoldWord`].
//!
//! ```text
//!                last name lost, or last hold released: the later of the two
//!   Elsewhere ─────────────────────────────────────────────────────────▶ Queued
//!       ▲                                                                 │   ▲
//!       └──────────── dequeued: it is held, or has a name ────────────────┘   │
//!                     dequeued: it is an orphan ──────────────────────────────┘ (the caller has it)
//! ```
//! N1. An object that is inactive and has no name is `Queued` when the operations that made it so have returned. It is
//!     in the queue, or with the one thread to which such an operation returned true.
//! N2. If several operations find an object to be an orphan, exactly one returns true until it is dequeued. Each
//!     decides by the one word `queued`, in one read-modify-write.
//!
//! O1. `lost_name` and `released`, store then load on both sides, with a SeqCst fence between: of the loss of the last
//!     name and the release of the last hold, at least one sees the other.
//! O2. `lost_name` and `released`, which find the object queued (Release) → `dequeued` (Acquire): the thread that
//!     dequeues the object sees that it became an orphan, and keeps it.
//!
//! Progress: wait-free. Weakness: an object that is used again stays in the queue until it is dequeued.
//! Checked by `model_last_hold_and_last_name` (O1), `model_orphan_while_it_is_dequeued` (O2), `model_all_three`.

use crate::hold::HoldWord;
use crate::primitive::atomic::{AtomicBool, AtomicU32, Ordering, fence};

/// The number of names of an object, and its queued flag. The protocol is in the module's documentation.
#[derive(Debug, Default)]
pub struct OrphanMark {
    names: AtomicU32,
    queued: AtomicBool,
}

impl OrphanMark {
    /// A new name leads to the object. The caller holds the object.
    pub fn gained_name(&self) {
        // ORDERING: Relaxed; while the caller holds the object no thread decides by the count. The caller's release
        // orders the count before a thread that does.
        self.names.fetch_add(1, Ordering::Relaxed);
    }

    /// A name of the object of `word` is lost. True if this made it an orphan: the caller must queue it.
    pub fn lost_name(&self, word: &HoldWord) -> bool {
        // ORDERING: Relaxed; the fence below orders it before the look at the holds.
        let names = self.names.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(names > 0, "a name that was not counted");
        if names != 1 {
            return false;
        }
        // ORDERING: SeqCst, partner the fence in `released` (O1).
        fence(Ordering::SeqCst);
        word.racy_inactive() && self.queue()
    }

    /// The last hold on the object is released. True if this made it an orphan: the caller must queue it.
    pub fn released(&self) -> bool {
        // ORDERING: SeqCst, partner the fence in `lost_name` (O1).
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed; after the fence.
        self.names.load(Ordering::Relaxed) == 0 && self.queue()
    }

    /// The object of `word` was dequeued. True if it is still an orphan: it counts as queued again, and the caller has
    /// it.
    pub fn dequeued(&self, word: &HoldWord) -> bool {
        // ORDERING: Acquire, partner `queue` (O2). A read-modify-write: the loads below cannot move before it, and a
        // mark that was set meanwhile is not overwritten unseen.
        self.queued.swap(false, Ordering::Acquire);
        // ORDERING: Relaxed; ordered by the swap.
        word.racy_inactive() && self.names.load(Ordering::Relaxed) == 0 && self.queue()
    }

    /// Marks the object as queued. False if it already was.
    fn queue(&self) -> bool {
        // ORDERING: Release, partner `dequeued` (O2), also if this thread finds the object queued.
        !self.queued.swap(true, Ordering::Release)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::hold::Released;

    #[test]
    fn the_later_of_the_last_name_and_the_last_hold_queues() {
        for name_first in [false, true] {
            let (mark, word) = (OrphanMark::default(), HoldWord::new());
            assert!(word.try_reference());
            mark.gained_name();
            mark.gained_name();
            if name_first {
                assert!(!mark.lost_name(&word) && !mark.lost_name(&word), "held");
                assert_eq!(word.release(), Released::Inactive);
                assert!(mark.released());
            } else {
                assert_eq!(word.release(), Released::Inactive);
                assert!(!mark.released(), "named");
                assert!(!mark.lost_name(&word), "a second name");
                assert!(mark.lost_name(&word));
            }
            assert!(!mark.released(), "queued already");
            assert!(mark.dequeued(&word), "an orphan still");
            assert!(word.try_hold());
            assert!(!mark.dequeued(&word), "in use");
            mark.gained_name();
            assert_eq!(word.release(), Released::Inactive);
            assert!(!mark.dequeued(&word), "named");
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::hold::Released;
    use crate::primitive::model::{Model, Order};
    use loom::sync::Arc;
    use loom::thread;

    /// An object with one hold, one name, and the reference of its table.
    fn object() -> Arc<(OrphanMark, HoldWord)> {
        let object = (OrphanMark::default(), HoldWord::new());
        assert!(object.1.try_reference());
        object.0.gained_name();
        Arc::new(object)
    }

    fn release((mark, word): &(OrphanMark, HoldWord)) -> bool {
        assert_eq!(word.release(), Released::Inactive);
        mark.released()
    }

    /// N1, N2, O1: the last hold and the last name are dropped at the same time, and one thread queues the object.
    /// Fails without either fence, if either thread looks before it gives up its share, and if `queue` does not look.
    #[test]
    fn model_last_hold_and_last_name() {
        Model::new(10, &Order::ALL).check(|| {
            let (object, order) = (object(), Order::default());
            let (other, first) = (object.clone(), order.clone());
            let holder = thread::spawn(move || first.other(|| release(&other)));
            let by_name = order.one(|| object.0.lost_name(&object.1));
            let by_hold = holder.join().unwrap();
            assert_eq!(u8::from(by_name) + u8::from(by_hold), 1, "name: {by_name}");
        });
    }

    /// N1, N2, O2: an object in the queue, in use again, becomes an orphan while it is dequeued. Fails with
    /// a Relaxed swap in `dequeued` or in `queue`, and with a store for a swap.
    #[test]
    fn model_orphan_while_it_is_dequeued() {
        for last_is_name in [false, true] {
            Model::new(10, &Order::ALL).check(move || {
                let (object, order) = (object(), Order::default());
                if last_is_name {
                    assert!(!release(&object));
                } else {
                    assert!(!object.0.lost_name(&object.1));
                }
                assert!(object.0.queue());
                let (other, first) = (object.clone(), order.clone());
                let user = thread::spawn(move || {
                    first.other(|| match last_is_name {
                        true => other.0.lost_name(&other.1),
                        false => release(&other),
                    })
                });
                let kept = order.one(|| object.0.dequeued(&object.1));
                let queued = user.join().unwrap();
                assert_eq!(u8::from(kept) + u8::from(queued), 1, "kept: {kept}");
            });
        }
    }

    /// N1, N2: the last hold and the last name of a queued object are dropped while it is dequeued. Fails with each
    /// weakening that breaks the two models before it.
    #[test]
    fn model_all_three() {
        Model::new(100, &Order::ALL).preemptions(2).check(|| {
            let (object, order) = (object(), Order::default());
            assert!(object.0.queue());
            let (other, first) = (object.clone(), order.clone());
            let holder = thread::spawn(move || first.other(|| release(&other)));
            let other = object.clone();
            let cache = thread::spawn(move || other.0.lost_name(&other.1));
            let kept = order.one(|| object.0.dequeued(&object.1));
            let torn_down = [kept, holder.join().unwrap(), cache.join().unwrap()];
            assert_eq!(
                torn_down.into_iter().filter(|torn_down| *torn_down).count(),
                1,
                "{torn_down:?}"
            );
        });
    }
}
