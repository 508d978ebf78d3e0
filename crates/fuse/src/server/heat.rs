//! The directories that the kernel asks about most, and how often the caches missed.
//!
//! # Boundary
//! Counts by directory, and samples one request in [`EVERY`]. Other modules find the directory of a request, and its
//! path.
//!
//! # Concurrency
//! Each thread counts its own requests to choose samples. The table is behind one lock, held for one step in it, by one
//! request in [`EVERY`].
//!
//! # Why
//! A counter in each directory would be a line to which all threads store when they ask about one directory, which is
//! the very case to be found. So this is a table of [`DIRECTORIES_MAX`] by the rule of space saving (Metwally 2005). A
//! new directory replaces the one with the smallest count, and keeps that count apart as possibly not its own. So each
//! frequent directory is in the table, and no count is too large. Weakness: if more directories than it has room for
//! are about equally frequent, it reports none.

use crate::lock_order;
use std::cell::Cell;
use std::collections::HashMap;
use uvfs_concurrent::lock::Mutex;
use uvfs_control::level::AskedOf;
use uvfs_vfs::InodeId;

/// One request in so many of a thread is sampled: a prime, which keeps no step with repeated patterns.
pub(crate) const EVERY: u32 = 61;
/// Directories that are counted apart.
const DIRECTORIES_MAX: usize = 512;

thread_local!(static LEFT: Cell<u32> = const { Cell::new(EVERY) });

/// See the module.
pub(crate) struct Heat {
    seen: Mutex<HashMap<InodeId, Count>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    all: u64,
    /// The part of these that may belong to directories which had the place before.
    before: u64,
    /// Requests of its own that were not answered at once.
    missed: u64,
}

impl Heat {
    pub(crate) fn new() -> Self {
        Self { seen: Mutex::new(&lock_order::FUSE_HEAT, HashMap::new()) }
    }

    /// Whether to sample this request of the calling thread.
    #[inline]
    pub(crate) fn is_turn(&self) -> bool {
        LEFT.with(|left| {
            let rest = left.get() - 1;
            left.set(if rest == 0 { EVERY } else { rest });
            rest == 0
        })
    }

    /// Such a request was about `directory`, and was `missed`: not answered at once.
    pub(crate) fn note(&self, directory: InodeId, missed: bool) {
        let missed = u64::from(missed);
        let mut seen = self.seen.lock();
        if let Some(count) = seen.get_mut(&directory) {
            count.all += 1;
            count.missed += missed;
            return;
        }
        let mut before = 0;
        if seen.len() >= DIRECTORIES_MAX
            && let Some((&least, count)) = seen.iter().min_by_key(|(_, count)| count.all)
        {
            before = count.all;
            seen.remove(&least);
        }
        seen.insert(directory, Count { all: before + 1, before, missed });
    }

    /// About how many requests there were at least, by directory.
    pub(crate) fn asked(&self) -> HashMap<InodeId, AskedOf> {
        let seen = self.seen.lock();
        let every = u64::from(EVERY);
        let own = |count: &Count| AskedOf {
            requests: (count.all - count.before) * every,
            misses: count.missed * every,
        };
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
            heat.note(InodeId(1), round % 4 == 0);
            heat.note(InodeId(1000 + round), true);
        }
        let counted = heat.asked();
        assert_eq!(counted.len(), DIRECTORIES_MAX);
        let every = u64::from(EVERY);
        assert_eq!(
            counted[&InodeId(1)],
            AskedOf { requests: many * every, misses: many / 4 * every }
        );
        let others = counted.iter().filter(|(directory, _)| **directory != InodeId(1));
        let is_few = |asked: &AskedOf| asked.requests <= every && asked.misses <= asked.requests;
        assert!(others.clone().all(|(_, asked)| is_few(asked)), "{counted:?}");
        assert!(others.count() > 0);
    }
}
