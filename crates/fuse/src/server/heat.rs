//! Which directories the kernel asks about most.
//!
//! # Boundary
//! Counts by directory; one request in [`EVERY`] is looked at. Which directory a request is about, and where that lies, is said
//! by others.
//!
//! # Concurrency
//! Whose turn it is each thread counts for itself. The table is behind one lock, held for one step in it, by one
//! request in [`EVERY`].
//!
//! # Why
//! A counter in each directory would be a line that all threads store to where all ask about one directory, and that is what is to be
//! found out. A table of [`DIRECTORIES_MAX`] by the rule of space saving (Metwally 2005): who is new takes the place of whoever has
//! least, and what that one had is known not to be its own. So whatever is asked about often is in it, and no number is too
//! large. Weakness: of directories that are asked about alike, and are more than it has room for, none is told.

use crate::lock_order;
use std::cell::Cell;
use std::collections::HashMap;
use uvfs_concurrent::lock::Mutex;
use uvfs_vfs::InodeId;

/// Of so many requests of a thread one is looked at: a prime, which keeps no step with what repeats.
pub(crate) const EVERY: u32 = 61;
/// Directories that are told apart.
const DIRECTORIES_MAX: usize = 512;

thread_local!(static LEFT: Cell<u32> = const { Cell::new(EVERY) });

/// See the module.
pub(crate) struct Heat {
    seen: Mutex<HashMap<InodeId, Count>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    all: u64,
    /// Of these, what may have been of those that had the place before.
    before: u64,
}

impl Heat {
    pub(crate) fn new() -> Self {
        Self { seen: Mutex::new(&lock_order::FUSE_HEAT, HashMap::new()) }
    }

    /// Whether this request of the calling thread is one to look at.
    #[inline]
    pub(crate) fn is_turn(&self) -> bool {
        LEFT.with(|left| {
            let rest = left.get() - 1;
            left.set(if rest == 0 { EVERY } else { rest });
            rest == 0
        })
    }

    /// Such a request was about `directory`.
    pub(crate) fn note(&self, directory: InodeId) {
        let mut seen = self.seen.lock();
        if let Some(count) = seen.get_mut(&directory) {
            count.all += 1;
            return;
        }
        let mut before = 0;
        if seen.len() >= DIRECTORIES_MAX
            && let Some((&least, count)) = seen.iter().min_by_key(|(_, count)| count.all)
        {
            before = count.all;
            seen.remove(&least);
        }
        seen.insert(directory, Count { all: before + 1, before });
    }

    /// About how many requests there were at least, by directory.
    pub(crate) fn requests(&self) -> HashMap<InodeId, u64> {
        let seen = self.seen.lock();
        let own = |count: &Count| (count.all - count.before) * u64::from(EVERY);
        seen.iter().map(|(directory, count)| (*directory, own(count))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_so_many_is_looked_at() {
        let heat = Heat::new();
        let turns = (0..10 * EVERY).filter(|_| heat.is_turn()).count();
        assert_eq!(turns, 10);
    }

    #[test]
    fn what_is_asked_about_often_stays_and_no_number_is_too_large() {
        let heat = Heat::new();
        let many = 4 * DIRECTORIES_MAX as u64;
        for round in 0..many {
            heat.note(InodeId(1));
            heat.note(InodeId(1000 + round));
        }
        let told = heat.requests();
        assert_eq!(told.len(), DIRECTORIES_MAX);
        assert_eq!(told[&InodeId(1)], many * u64::from(EVERY));
        let others = told.iter().filter(|(directory, _)| **directory != InodeId(1));
        assert!(others.clone().all(|(_, count)| *count <= u64::from(EVERY)), "{told:?}");
        assert!(others.count() > 0);
    }
}
