//! Keeping names and inodes within their budget.
//!
//! # Boundary
//! Decides when there is too much and what goes. The clock that knows what was used is in [`crate::names`],
//! the queue of inodes without a name in [`crate::inode`].
//!
//! # Concurrency
//! Whoever adds something or stops using something does a few steps here, with no lock and no epoch
//! guard held: tearing an inode down calls the backend. Lookups never wait for it: they take no
//! lock, and a step holds one bucket's lock for some entries.
//!
//! # Why
//! One number of bytes for both, because they come in pairs: inodes that no name leads to go first,
//! then names that were not used since the clock hand last came by, each with its inode if nobody
//! holds that. Nothing is moved on a hit. Names that came with a listing are on probation: they go at
//! the hand's first visit, so that reading a huge directory once does not push out what is in use.
//! Weakness: what somebody holds cannot go, so a kernel that holds more inodes than fit keeps the
//! cache beyond its budget; and the hand visits what is held too.

use crate::inode::Inode;
use crate::vfs::Core;
use uvfs_concurrent::epoch;
use uvfs_concurrent::object::Ref;

/// Steps after something was added.
const STEPS: usize = 8;
/// Steps after something went out of use.
pub(crate) const STEPS_AFTER_RELEASE: usize = 2;
/// Buckets of the name table in one step.
const BUCKETS: usize = 4;
/// Steps over the negative names after one was added.
const NEGATIVE_STEPS: usize = 16;
/// Bytes of a negative name: one line, and its share of the table.
const NEGATIVE_BYTES: usize = 80;

impl Core {
    /// Bytes of names, inodes and whole paths.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.names.bytes() + self.inodes.bytes() + self.paths.bytes()
    }

    fn is_over(&self) -> bool {
        self.metadata_bytes() as u64 > self.config.metadata_bytes
    }

    /// Forgets some of what was used least, if there is too much. Calls the backend.
    pub(crate) fn make_room(&self) {
        if self.is_over() {
            self.reclaim(None, STEPS);
        }
    }

    /// Takes in `last`, an inode whose last hold is gone, then forgets for at most `steps` steps.
    ///
    /// An inode torn down gives back the hold on its parent, which may be the last one, and so on: a
    /// loop, not a recursion, since a tree may be deeper than a stack.
    pub(crate) fn reclaim(&self, last: Option<Ref<Inode>>, mut steps: usize) {
        let mut inactive = last;
        let mut idle: Vec<Ref<Inode>> = Vec::new();
        loop {
            if let Some(inode) = inactive.take() {
                let retired = self.inodes.inactive(self, inode);
                inactive = retired.and_then(|retired| retired.release_parent());
            } else if let Some(inode) = idle.pop() {
                match self.inodes.retire(self, &inode) {
                    Some(retired) => inactive = retired.release_parent(),
                    // In use again meanwhile. It is marked as queued, so it is queued.
                    None => self.inodes.enqueue(inode),
                }
            } else if steps == 0 || !self.is_over() {
                return;
            } else {
                steps -= 1;
                self.free_garbage();
                self.paths.sweep(&epoch::pin(), self.paths_max_bytes());
                idle = self.forget_some();
            }
        }
    }

    /// Names no memory that is only waiting for readers to pass is counted among the cached; but it
    /// is memory all the same, so it is not left to wait when there is little.
    fn free_garbage(&self) {
        if epoch::garbage_bytes() as u64 > self.config.metadata_bytes / 64 {
            epoch::collect();
        }
    }

    /// Inodes to be torn down, marked as queued: an orphan, or those whose names just went.
    fn forget_some(&self) -> Vec<Ref<Inode>> {
        match self.inodes.next_orphan() {
            Some(orphan) => vec![orphan],
            None => self.names.sweep(BUCKETS, &self.counters),
        }
    }

    /// Room for memos of whole paths.
    pub(crate) fn paths_max_bytes(&self) -> usize {
        usize::try_from(self.config.metadata_bytes / 8).unwrap_or(usize::MAX)
    }

    /// Forgets every name.
    pub(crate) fn forget_names(&self) {
        self.names.clear().into_iter().for_each(|orphan| self.inodes.enqueue(orphan));
    }

    /// Keeps negative names within their share. Those that were hit twice stay longest.
    pub(crate) fn trim_negatives(&self) {
        let share = self.config.metadata_bytes / 100 * u64::from(self.config.negative_percent);
        for _ in 0..NEGATIVE_STEPS {
            if (self.names.negatives() * NEGATIVE_BYTES) as u64 <= share {
                return;
            }
            self.names.sweep_negatives(BUCKETS, &self.counters);
        }
    }
}
