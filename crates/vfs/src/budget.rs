//! The budget: one number of bytes for everything that is cached, and the shares of it.
//!
//! Two sides share it: *pages*, and *metadata* (names, inodes, memos of paths, listings). [`crate::reclaim`] and
//! [`crate::page`] pass their sizes and choose victims.
//!
//! # The rule
//! The *room* is the limit less the process's other memory. Without cached pages, metadata may use all of it. Otherwise
//! metadata may use half, and pages the part that metadata has not used. Metadata memory is reused and returned only in
//! whole chunks on request ([`uvfs_containers::pool`]), so its peak since then counts. Garbage (retired, in its grace
//! period) reduces metadata's share by up to a sixteenth of the room, and pages' share above their half.
//!
//! | metadata wants | pages want | metadata has | pages have |
//! |---|---|---|---|
//! | all | nothing | half | 0 |
//! | little | all | its wish | the rest |
//! | all | all | half | half |
//! | all | are not cached | the room | 0 |
//! | more than half, all in use | all | its use | the rest, a sixteenth at least |
//!
//! The limit is one atomic word. Sizes are read without a lock: concurrent additions may exceed it until the next one.
//!
//! # Why
//! A hard limit can only be shared with consumers that can release memory. Fixed halves would waste one of them.
//! Weakness: inodes held by a kernel may exceed their half. After a walk over many files pages stay at half until
//! chunks are returned. A limit lowered far below the names' peak is exceeded by the difference.

use crate::error::{Error, Result};
use uvfs_concurrent::primitive::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Least [`crate::VfsConfig::cache_bytes`]: 8 MiB. Of it a small program takes up to 4 MiB. Half of the rest holds
/// 7,000 names with their inodes, so that a walk finds its directories again. The other half holds 2 MiB of pages:
/// several readers each have one window read ahead and one in use. Smaller caches only churn.
pub const MINIMUM_BYTES: u64 = 8 << 20;
/// Least room after the overhead. All operations work in it, because entries in use do not count as excess. But hardly
/// anything stays cached.
const ROOM_BYTES_MIN: u64 = 16 << 10;
/// Least bytes of pages in any room: 16 windows of 64 KiB. A page evicted before its read was fetched for nothing.
const PAGE_BYTES_MIN: u64 = 1 << 20;
/// Share of the room that pages keep when names and inodes in use take more than their half.
const PAGES_SURE_SHARE: u64 = 16;
/// Share of the room that garbage may take from names and inodes.
const GARBAGE_SHARE: u64 = 16;

/// Whether limit and overhead fit together.
///
/// # Errors
/// [`Error::Invalid`] names the rule.
pub(crate) fn check(limit_bytes: u64, overhead_bytes: u64) -> Result<()> {
    if limit_bytes < MINIMUM_BYTES {
        return Err(Error::Invalid("cache_bytes is at least 8 MiB"));
    }
    match overhead_bytes.checked_add(ROOM_BYTES_MIN) {
        Some(taken) if taken <= limit_bytes => Ok(()),
        _ => Err(Error::Invalid("cache_bytes is at least 16 KiB more than overhead_bytes")),
    }
}

/// The place where file data is cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Here, within the budget.
    Here,
    /// Elsewhere, or nowhere.
    Elsewhere,
}

/// The limits of all caches of one file system.
#[derive(Debug)]
pub(crate) struct Budget {
    limit_bytes: AtomicU64,
    overhead_bytes: AtomicU64,
    /// The least overhead, by the configuration. It alone decides which limits are accepted.
    fixed_bytes: u64,
    pages: Pages,
    /// The largest size of metadata, as far as it was seen.
    metadata_peak_bytes: AtomicU64,
    /// Steps over names since a step last reduced metadata.
    idle_steps: AtomicUsize,
}

impl Budget {
    /// A budget of `limit_bytes`, of which the process uses `overhead_bytes` otherwise. Both have passed [`check`].
    pub(crate) fn new(limit_bytes: u64, overhead_bytes: u64, pages: Pages) -> Self {
        Self {
            limit_bytes: AtomicU64::new(limit_bytes),
            overhead_bytes: AtomicU64::new(overhead_bytes),
            fixed_bytes: overhead_bytes,
            pages,
            metadata_peak_bytes: AtomicU64::new(0),
            idle_steps: AtomicUsize::new(0),
        }
    }

    /// The configured limit.
    pub(crate) fn limit(&self) -> u64 {
        // ORDERING: Relaxed; a limit, nothing is reached through it.
        self.limit_bytes.load(Relaxed)
    }

    /// The part of it that the process uses otherwise.
    pub(crate) fn overhead(&self) -> u64 {
        // ORDERING: Relaxed; a limit, nothing is reached through it.
        self.overhead_bytes.load(Relaxed)
    }

    /// The least overhead, by the configuration.
    pub(crate) fn fixed(&self) -> u64 {
        self.fixed_bytes
    }

    /// Changes the overhead. Some room is always left.
    pub(crate) fn set_overhead(&self, overhead_bytes: u64) {
        // ORDERING: Relaxed; a limit, nothing is reached through it.
        self.overhead_bytes.store(overhead_bytes, Relaxed);
    }

    /// Metadata has returned memory to the system, and now has `metadata_bytes`, with unused gaps. Its peak counts if
    /// that is less: the return takes nothing from pages.
    pub(crate) fn gave_back(&self, metadata_bytes: u64) {
        // ORDERING: Relaxed; a size that may lag.
        self.metadata_peak_bytes.fetch_min(metadata_bytes, Relaxed);
    }

    /// The largest size of metadata, as far as it was seen. It still has that memory.
    pub(crate) fn metadata_peak(&self) -> u64 {
        // ORDERING: Relaxed; a size that may lag.
        self.metadata_peak_bytes.load(Relaxed)
    }

    /// Changes the limit. A caller that lowers it must evict ([`crate::Vfs::set_cache_bytes`]). An accepted limit is
    /// accepted again: the overhead measured at the moment does not refuse it.
    ///
    /// # Errors
    /// Those of [`check`]. Then the limit is unchanged.
    pub(crate) fn set_limit(&self, limit_bytes: u64) -> Result<()> {
        check(limit_bytes, self.fixed_bytes)?;
        // ORDERING: Relaxed; a limit, nothing is reached through it.
        self.limit_bytes.store(limit_bytes, Relaxed);
        Ok(())
    }

    /// The bytes for the caches.
    pub(crate) fn room(&self) -> u64 {
        self.limit().saturating_sub(self.overhead()).max(ROOM_BYTES_MIN)
    }

    /// The bytes for pages while names and inodes take `metadata_bytes`.
    pub(crate) fn pages_allowed(&self, metadata_bytes: u64, garbage_bytes: u64) -> u64 {
        let room = self.room();
        // ORDERING: Relaxed, both; a size that may lag.
        let mut peak = self.metadata_peak_bytes.load(Relaxed);
        if peak < metadata_bytes {
            self.metadata_peak_bytes.fetch_max(metadata_bytes, Relaxed);
            peak = metadata_bytes;
        }
        let left = room.saturating_sub(peak).saturating_sub(garbage_bytes);
        // Half, less the part of it that metadata in use takes.
        let sure = (room / 2).min(room.saturating_sub(metadata_bytes)).max(room / PAGES_SURE_SHARE);
        left.max(sure).max(PAGE_BYTES_MIN)
    }

    /// The bytes for names and inodes.
    pub(crate) fn metadata_allowed(&self, garbage_bytes: u64) -> u64 {
        let room = self.room();
        let share = match self.pages {
            Pages::Here => room / 2,
            Pages::Elsewhere => room,
        };
        share - garbage_bytes.min(room / GARBAGE_SHARE)
    }

    /// So many steps were taken over names. `helped` says whether metadata shrank.
    pub(crate) fn took(&self, steps: usize, helped: bool) {
        // ORDERING: Relaxed, all of these; a heuristic for the number of steps.
        match helped {
            true if self.idle_steps.load(Relaxed) == 0 => {}
            true => self.idle_steps.store(0, Relaxed),
            false => {
                self.idle_steps.fetch_add(steps, Relaxed);
            }
        }
    }

    /// Steps since the last one that helped.
    pub(crate) fn idle_steps(&self) -> usize {
        // ORDERING: Relaxed; a heuristic for the number of steps.
        self.idle_steps.load(Relaxed)
    }

    /// The bytes for names and inodes with any amount of garbage: below it no eviction is needed.
    pub(crate) fn metadata_sure(&self) -> u64 {
        self.metadata_allowed(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn budget() -> Budget {
        Budget::new(80 * MIB, 16 * MIB, Pages::Here)
    }

    #[test]
    fn pages_have_what_names_never_had() {
        let budget = budget();
        assert_eq!(budget.room(), 64 * MIB);
        assert_eq!(budget.pages_allowed(0, 0), 64 * MIB);
        assert_eq!(budget.pages_allowed(10 * MIB, 3 * MIB), 51 * MIB);
        assert_eq!(budget.pages_allowed(2 * MIB, 0), 54 * MIB, "names once had 10");
        assert_eq!(budget.metadata_allowed(0), 32 * MIB);
    }

    #[test]
    fn names_have_all_where_no_pages_are() {
        let budget = Budget::new(80 * MIB, 16 * MIB, Pages::Elsewhere);
        assert_eq!(budget.metadata_allowed(0), 64 * MIB);
        assert_eq!(budget.metadata_sure(), 60 * MIB);
    }

    #[test]
    fn half_is_sure_for_both() {
        let budget = budget();
        assert_eq!(budget.pages_allowed(32 * MIB, 0), 32 * MIB);
        assert_eq!(budget.metadata_sure(), 28 * MIB, "half, less the most that garbage takes");
    }

    /// While 10,000 files were open, pages kept their half beside inodes that had far more than theirs.
    #[test]
    fn what_is_in_use_of_names_takes_from_pages() {
        let budget = budget();
        assert_eq!(budget.pages_allowed(33 * MIB, 0), 31 * MIB);
        assert_eq!(budget.pages_allowed(8 * MIB, 0), 32 * MIB, "what it had counts up to a half");
        for other in [64 * MIB, 1 << 40, u64::MAX] {
            assert_eq!(budget.pages_allowed(other, 0), 4 * MIB);
            assert_eq!(budget.pages_allowed(other, other), 4 * MIB);
        }
        budget.gave_back(8 * MIB);
        assert_eq!(budget.pages_allowed(8 * MIB, 0), 56 * MIB, "and gives it back");
        budget.gave_back(20 * MIB);
        assert_eq!(budget.pages_allowed(8 * MIB, 0), 56 * MIB, "which takes nothing from pages");
    }

    /// Whatever both sides want, and whatever names had before: together they are within the room.
    #[test]
    fn both_together_are_within_the_room() {
        for before in (0..=128).map(|at| at * MIB) {
            for metadata in (0..=128).map(|at| at * MIB) {
                let budget = budget();
                let before = before.min(budget.metadata_allowed(0));
                let metadata = metadata.min(budget.metadata_allowed(0));
                budget.pages_allowed(before, 0);
                let pages = budget.pages_allowed(metadata, 0);
                assert!(before.max(metadata) + pages <= budget.room(), "{before}, {metadata}");
            }
        }
    }

    #[test]
    fn garbage_takes_from_names_a_sixteenth_at_most() {
        let budget = budget();
        assert_eq!(budget.metadata_allowed(MIB), 31 * MIB);
        assert_eq!(budget.metadata_allowed(1 << 40), 28 * MIB);
    }

    #[test]
    fn the_limit_changes_and_keeps_to_the_minimum() {
        let budget = Budget::new(80 * MIB, 16 * MIB, Pages::Here);
        let refused = budget.set_limit(MINIMUM_BYTES - 1).unwrap_err().to_string();
        assert!(refused.contains("at least 8 MiB"), "{refused}");
        let refused = budget.set_limit(16 * MIB).unwrap_err().to_string();
        assert!(refused.contains("overhead_bytes"), "{refused}");
        assert_eq!(budget.limit(), 80 * MIB, "as it was");
        budget.set_limit(1 << 40).unwrap();
        assert_eq!((budget.limit(), budget.room()), (1 << 40, (1 << 40) - 16 * MIB));
    }

    /// After a walk over 300,000 files `set cache-size=16M` was refused, in 125 of 200 tries, though 16M had been
    /// accepted at the start. The overhead measured at that moment counted against it.
    #[test]
    fn a_limit_that_was_granted_is_granted_again() {
        let budget = Budget::new(16 * MIB, 10 * MIB, Pages::Here);
        budget.set_overhead(90 * MIB);
        budget.set_limit(16 * MIB).unwrap();
        assert_eq!(budget.room(), ROOM_BYTES_MIN, "and there is no room until the overhead falls");
        assert!(budget.set_limit(10 * MIB).is_err());
    }

    #[test]
    fn steps_that_do_not_help_are_counted_until_one_does() {
        let budget = budget();
        budget.took(8, false);
        budget.took(8, false);
        assert_eq!(budget.idle_steps(), 16);
        budget.took(1, true);
        assert_eq!(budget.idle_steps(), 0);
    }

    #[test]
    fn the_smallest_room_still_has_pages() {
        let budget = Budget::new(MINIMUM_BYTES, MINIMUM_BYTES - ROOM_BYTES_MIN, Pages::Elsewhere);
        assert!(check(budget.limit(), budget.overhead()).is_ok());
        assert_eq!(budget.metadata_allowed(0), ROOM_BYTES_MIN);
        assert_eq!(budget.pages_allowed(u64::MAX, 0), PAGE_BYTES_MIN);
        assert!(check(MINIMUM_BYTES, MINIMUM_BYTES).is_err() && check(u64::MAX, u64::MAX).is_err());
    }
}
