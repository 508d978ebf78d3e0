//! A directory's state about the names below it: the oldest valid moment, the policy, completeness.
//!
//! # Boundary
//! Owns the words and their orderings. [`crate::clean`] decides when a directory applies a clean, [`crate::policy`] the
//! class of its marks. [`crate::names`] has the names themselves.
//!
//! # Concurrency
//! A walk reads two words of the inode's first line and takes no lock. They only rise, except in an inode that is being
//! inserted, which no other thread has. Changes of names are recorded under the lock over the entries.
//!
//! # Why
//! One store to one moment per directory makes all its cached names old, however many there are. Weakness: a change
//! that concerns one name only must not use it.

use super::rest::CleanTicks;
use super::table::EntriesState;
use super::{Asked, Clock, Expiry, Inode, Listed, Moment, Ticket};
use std::sync::Arc;
use uvfs_concurrent::complete::{Claim, Complete};
use uvfs_concurrent::primitive::atomic::Ordering::{Acquire, Relaxed, Release};
use uvfs_containers::class::Class;

impl Inode {
    /// Stamps a question about this directory's entries. Call this before the store is asked.
    pub(crate) fn ask_entries(&self, clock: &Clock) -> Asked {
        self.dir_state().entries.lock().ask(clock)
    }

    /// Whether this directory has applied all cleans up to `generation`.
    #[inline]
    pub(crate) fn knows_cleans(&self, generation: u64) -> bool {
        self.cleans.knows(generation)
    }

    /// Gives a directory that is being inserted its state from an earlier inode.
    pub(super) fn start_knowing(&self, known: EntriesState) {
        // ORDERING: Relaxed; published by the shard's lock, or by the node returned.
        self.names_after_or_parent.store(known.names_after, Relaxed);
        if known.cleaned != CleanTicks::default() {
            self.dir_state().cleaned.raise(known.cleaned);
        }
    }

    /// The cleans of all that is below this directory, as far as it has applied them.
    pub(crate) fn cleaned(&self) -> CleanTicks {
        self.known_directory().map_or_else(CleanTicks::default, |known| known.cleaned.ticks())
    }

    /// The directory's own mark.
    pub(crate) fn own_mark(&self) -> Option<Class> {
        self.known_directory().and_then(|known| known.own_mark.get())
    }

    /// The class of the directory's cached entries, as far as it has been found.
    pub(crate) fn class(&self) -> Class {
        self.known_directory().map_or(Class::Normal, |known| known.policy.class())
    }

    /// Whether the directory's class is that of `generation` of the marks.
    pub(crate) fn knows_policy(&self, generation: u64) -> bool {
        generation == 0
            || self.known_directory().is_some_and(|known| known.policy.knows(generation))
    }

    /// Records that `class` is valid for the directory as of `generation` of the marks.
    pub(crate) fn learn_class(&self, class: Class, generation: u64) {
        // Without any state, it counts as a normal one.
        if class != Class::Normal || self.known_directory().is_some() {
            self.dir_state().policy.learn(class, generation);
        }
    }

    /// Cleans all below this directory as of `ticks`. A thread that comes with a later generation sees it.
    pub(crate) fn raise_cleaned(&self, ticks: CleanTicks) {
        self.dir_state().cleaned.raise(ticks);
    }

    /// Applies the cleans up to `generation` to this directory.
    pub(crate) fn be_cleaned(&self, clock: &Clock, ticks: CleanTicks, generation: u64) {
        self.cleans.learn(generation, || {
            if ticks == CleanTicks::default() {
                return;
            }
            let known = self.dir_state();
            known.cleaned.raise(ticks);
            // ORDERING: Acquire, partner the store below: a clean that is seen here has been applied.
            if ticks.names > self.names_after_or_parent.load(Acquire) {
                let mut changes = known.entries.lock();
                changes.note_at(clock, ticks.names);
                known.complete.revoke();
                drop(changes);
                // ORDERING: Release, partner `names_valid_at`: a later lookup sees it.
                self.names_after_or_parent.fetch_max(ticks.names, Release);
            }
        });
    }

    /// Invalidates every name that was cached in this directory up to now.
    pub(crate) fn forget_names(&self, clock: &Clock) {
        // Held until the end: a listing begun in between would count as complete, with names older than the tick.
        let changes = self.known_directory().map(|known| {
            let mut changes = known.entries.lock();
            changes.note(clock);
            known.complete.revoke();
            changes
        });
        // ORDERING: Release, partner `names_valid_at`: a later lookup sees it.
        self.names_after_or_parent.fetch_max(clock.tick().to_word(), Release);
        drop(changes);
    }

    /// Whether a name cached in this directory at `stamp` is valid.
    #[inline]
    pub(crate) fn names_valid_at(&self, stamp: Ticket) -> bool {
        // ORDERING: Acquire, partner `forget_names`.
        stamp.to_word() >= self.names_after_or_parent.load(Acquire)
    }

    /// The moment from which names of this directory count: names from questions before it are not valid.
    pub(crate) fn names_after(&self) -> u64 {
        // ORDERING: Acquire, partner `forget_names`.
        self.names_after_or_parent.load(Acquire)
    }

    /// A claim that the directory is complete, to be checked after a look.
    pub(crate) fn claim_complete(
        &self,
        now: &mut Option<Moment>,
    ) -> Option<(&Complete, Claim, Expiry)> {
        let known = self.known_directory()?;
        let claim = known.complete.claim()?;
        let until = Expiry::from_word(claim.until());
        until.valid_at(now).then_some((&known.complete, claim, until))
    }

    /// Declares the directory complete, with names cached after `losses` were counted. Valid until `until`. The caller
    /// has the lock over its entries. `listed` are those names, if they are kept. Returns the earlier list.
    pub(crate) fn declare_complete(
        &self,
        losses: u64,
        until: Expiry,
        listed: Option<Arc<Listed>>,
    ) -> Option<Arc<Listed>> {
        let known = self.dir_state();
        let old = match listed {
            Some(listed) => known.kept().set(Some(listed)),
            None => known.known_kept().and_then(|mut kept| kept.set(None)),
        };
        known.complete.declare(losses, until.to_word());
        old
    }
}
