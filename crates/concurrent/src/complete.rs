//! Proof that a set is completely cached: a member that is not found in the table does not exist.
//!
//! # Boundary
//! Counts and compares. The set itself (the names of a directory) is in a table elsewhere, which may also evict.
//!
//! # Protocol
//! A thread that has just inserted all members into the table *declares* the set complete. From then on:
//!
//! C1. To evict a member that still exists, a thread first counts a *loss* ([`Generations::advance`]). Sets share
//!     counters by stripe: a loss may also end the completeness of another set, never the reverse.
//! C2. To change the true set, a thread *suspends* it before, and resumes it when the table agrees again, both under
//!     one lock of the caller. Each of the two changes the generation, which is odd while the set is complete.
//! C3. A reader takes a [`Claim`], finds nothing in the table, then checks that the claim still
//!     [stands](Complete::stands): same generation, same losses. Then the member did not exist at that moment.
//!
//! O1. `advance` (Release), then the removal (Release) → the look that misses it (Acquire), then `stands` (Acquire): a
//!     reader that misses the member sees the loss.
//! O2. `suspend`, then the change (Release: the table's store, or the store's answer) → the look, or the event that led
//!     the reader to look (Acquire), then `stands`: a reader that looks after the change sees the other generation. The
//!     generation itself is Relaxed on both sides.
//! O3. `declare`: `suspend`, then the losses and the time (Release) → `claim` and `stands` (Acquire): a reader that
//!     sees those of a later declaration sees the other generation in `stands`.
//! Progress: wait-free. Checked by `model_loss_is_seen`, `model_change_is_seen`, `model_declared_again` and
//! `model_a_claim_has_its_own_time`.
//! Weakness: under reclaim, stripes count losses all the time, and large directories lose their completeness.

use crate::generations::Generations;
use crate::primitive::atomic::{AtomicU64, Ordering};

/// The completeness of one set. The protocol is in the module's documentation.
#[derive(Debug, Default)]
pub struct Complete {
    generation: AtomicU64,
    /// The losses when the set was declared.
    losses: AtomicU64,
    /// The end of the declaration's validity; the caller defines the number.
    until: AtomicU64,
}

/// The state that a reader saw before it looked into the table.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    generation: u64,
    until: u64,
}

impl Claim {
    /// The `until` of the declaration; valid if the claim stands.
    pub fn until(self) -> u64 {
        self.until
    }
}

impl Complete {
    /// Declares that all members are in the table, inserted after `losses` were counted. `until` is stored with the
    /// declaration. The caller has the lock (C2), and knows that nothing was changed meanwhile.
    pub fn declare(&self, losses: u64, until: u64) {
        // Ends claims of an earlier declaration first: otherwise one of them could see the new losses with the old
        // generation.
        self.suspend();
        // ORDERING: Release, partner `stands` (O3).
        self.losses.store(losses, Ordering::Release);
        // ORDERING: Release, partner `claim` (O3).
        self.until.store(until, Ordering::Release);
        // ORDERING: Relaxed; the lock keeps writers apart.
        let generation = self.generation.load(Ordering::Relaxed);
        // ORDERING: Release, partner `claim`: a reader that sees it sees the losses and the members.
        self.generation.store(generation | 1, Ordering::Release);
    }

    /// The true set is about to change. Returns whether it was complete and may be resumed afterwards. The caller has
    /// the lock.
    pub fn suspend(&self) -> bool {
        // ORDERING: Relaxed; the lock keeps writers apart.
        let generation = self.generation.load(Ordering::Relaxed);
        if generation & 1 == 1 {
            // ORDERING: Relaxed; a thread that sees a later Release store sees this too (O2, O3).
            self.generation.store(generation + 1, Ordering::Relaxed);
        }
        generation & 1 == 1
    }

    /// The table agrees with the true set again. Only after a [`Complete::suspend`] that returned true, with no other
    /// change in between. The caller has the lock.
    pub fn resume(&self) {
        // ORDERING: Relaxed; the lock keeps writers apart.
        let generation = self.generation.load(Ordering::Relaxed);
        // ORDERING: Release, partner `claim`: a reader that sees it sees the table's members.
        self.generation.store(generation | 1, Ordering::Release);
    }

    /// The set is not complete any more. The caller has the lock.
    pub fn revoke(&self) {
        self.suspend();
    }

    /// A claim, to be checked after the look into the table; `None` if the set is not complete.
    pub fn claim(&self) -> Option<Claim> {
        // ORDERING: Acquire, partners `declare` and `resume`.
        let generation = self.generation.load(Ordering::Acquire);
        // ORDERING: Acquire, partner `declare` (O3): a later time comes with a later generation.
        (generation & 1 == 1)
            .then(|| Claim { generation, until: self.until.load(Ordering::Acquire) })
    }

    /// Whether the claim stood while the caller looked (C3).
    ///
    /// Why C3 holds: the set was complete and not suspended around the look. So an existing member would have been in
    /// the table, unless it was evicted; then its loss was counted before.
    pub fn stands(&self, claim: Claim, losses: &Generations, set: u64) -> bool {
        // Acquire inside: see O1.
        let lost = losses.of(set);
        // ORDERING: Acquire, partner `declare`: losses of a later declaration come with its generation.
        let declared = self.losses.load(Ordering::Acquire);
        // ORDERING: Relaxed; the earlier Acquire loads order it after them, and show all that it must see (O1 to O3).
        lost == declared && self.generation.load(Ordering::Relaxed) == claim.generation
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_claim_falls_with_a_change_and_with_a_loss() {
        let (losses, set) = (Generations::default(), Complete::default());
        assert!(set.claim().is_none());
        set.declare(losses.of(7), 3);
        let claim = set.claim().unwrap();
        assert!(set.stands(claim, &losses, 7) && claim.until() == 3);
        assert!(set.suspend() && set.claim().is_none() && !set.suspend());
        assert!(!set.stands(claim, &losses, 7));
        set.resume();
        assert!(!set.stands(claim, &losses, 7), "a change came in between");
        let claim = set.claim().unwrap();
        losses.advance(8);
        assert!(set.stands(claim, &losses, 7));
        losses.advance(7);
        assert!(!set.stands(claim, &losses, 7));
        set.declare(losses.of(7), 0);
        assert!(set.stands(set.claim().unwrap(), &losses, 7));
        set.revoke();
        assert!(set.claim().is_none());
    }

    #[test]
    fn a_loss_while_the_members_come_in_is_not_forgotten() {
        let (losses, set) = (Generations::default(), Complete::default());
        let before = losses.of(1);
        losses.advance(1);
        set.declare(before, 0);
        assert!(!set.stands(set.claim().unwrap(), &losses, 1));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitive::atomic::AtomicBool;
    use crate::primitive::model::{Model, reached};
    use loom::sync::Arc;
    use loom::thread;

    struct World {
        losses: Generations,
        set: Complete,
        /// The table has the member.
        cached: AtomicBool,
        /// The store has it.
        exists: AtomicBool,
    }

    /// A complete set, with or without its one possible member.
    fn world(member: bool) -> Arc<World> {
        let (losses, set) = (Generations::default(), Complete::default());
        set.declare(losses.of(0), 1);
        let (cached, exists) = (AtomicBool::new(member), AtomicBool::new(member));
        Arc::new(World { losses, set, cached, exists })
    }

    /// C1, O1: the member is evicted, and exists all the time. Fails if the loss is counted after the removal, or with
    /// a Relaxed removal.
    #[test]
    fn model_loss_is_seen() {
        Model::new(8, &["missed, and the claim fell", "found, and the claim stood"]).check(|| {
            let world = world(true);
            let other = world.clone();
            let evictor = thread::spawn(move || {
                other.losses.advance(0);
                other.cached.store(false, Ordering::Release);
            });
            let claim = world.set.claim().unwrap();
            let missed = !world.cached.load(Ordering::Acquire);
            let stands = world.set.stands(claim, &world.losses, 0);
            match (missed, stands) {
                (true, false) => reached("missed, and the claim fell"),
                (false, true) => reached("found, and the claim stood"),
                _ => (),
            }
            assert!(!(missed && stands), "a member that exists was denied");
            evictor.join().unwrap();
        });
    }

    /// C3: the member is evicted, and returns with a listing that declares the set anew. Fails if `declare` does not
    /// suspend first, or with Relaxed losses.
    #[test]
    fn model_declared_again() {
        Model::new(200, &["missed, and the claim fell", "no claim"]).check(|| {
            let world = world(true);
            let other = world.clone();
            let lister = thread::spawn(move || {
                other.losses.advance(0);
                other.cached.store(false, Ordering::Release);
                let losses = other.losses.of(0);
                other.cached.store(true, Ordering::Release);
                other.set.declare(losses, 2);
            });
            // None while the lister is between the steps of `declare`.
            if let Some(claim) = world.set.claim() {
                let missed = !world.cached.load(Ordering::Acquire);
                let stands = world.set.stands(claim, &world.losses, 0);
                if missed {
                    reached("missed, and the claim fell");
                }
                assert!(!(missed && stands), "a member that exists was denied");
            } else {
                reached("no claim");
            }
            lister.join().unwrap();
        });
    }

    /// O3: the set is declared anew while a reader claims. Fails if `declare` does not suspend first, or with a
    /// Relaxed store or look at the time.
    #[test]
    fn model_a_claim_has_its_own_time() {
        Model::new(20, &["the first time", "the second time", "fell"]).check(|| {
            let world = world(false);
            let other = world.clone();
            let lister = thread::spawn(move || other.set.declare(other.losses.of(0), 2));
            let first = Claim { generation: 1, until: 1 };
            if let Some(claim) = world.set.claim() {
                let stands = world.set.stands(claim, &world.losses, 0);
                let is_first = claim.generation == first.generation;
                match (stands, is_first) {
                    (false, _) => reached("fell"),
                    (true, true) => reached("the first time"),
                    (true, false) => reached("the second time"),
                }
                assert!(!stands || claim.until() == if is_first { 1 } else { 2 }, "{claim:?}");
            }
            lister.join().unwrap();
        });
    }

    /// C2, O2: the member is created. A reader that knew of it before the look finds no proof that it does not exist.
    /// Fails if the change is made before `suspend`.
    #[test]
    fn model_change_is_seen() {
        Model::new(100, &["denied before", "denied no more"]).check(|| {
            let world = world(false);
            let other = world.clone();
            let creator = thread::spawn(move || {
                assert!(other.set.suspend());
                other.exists.store(true, Ordering::Release);
                other.cached.store(true, Ordering::Release);
                other.set.resume();
            });
            let existed = world.exists.load(Ordering::Acquire);
            if let Some(claim) = world.set.claim() {
                let missed = !world.cached.load(Ordering::Acquire);
                let stands = world.set.stands(claim, &world.losses, 0);
                match (missed, stands) {
                    (true, true) => reached("denied before"),
                    (true, false) => reached("denied no more"),
                    _ => (),
                }
                assert!(!(existed && missed && stands), "a member that exists was denied");
            }
            creator.join().unwrap();
        });
    }
}
