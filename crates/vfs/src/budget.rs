//! The budget: one number of bytes for everything that is cached, and who may have how much of it.
//!
//! # Boundary
//! Arithmetic and the limit. Two sides ask it: *pages*, and *metadata* (names, inodes, memos of paths,
//! listings). What each holds it is told; what goes, and when, is decided in [`crate::reclaim`] for names
//! and inodes and in [`crate::page`] for pages.
//!
//! # The rule
//! The *room* is the limit less what the process needs besides the caches.
//!
//! * Where no pages are cached, metadata may have the room.
//! * Otherwise metadata may have half of it, and pages what metadata has not used. Metadata lies in
//!   memory that serves names again and again and goes back in whole chunks, when somebody asks for it
//!   ([`uvfs_concurrent::pool`]), so what it had since then counts as its own; a page's frame goes back to
//!   the system at once.
//! * Garbage (let go, and kept until every reader has passed) is memory, too: it is taken off what metadata
//!   may have, up to a sixteenth of the room. Evicting makes more of it before it makes less; without
//!   that bound a reader that stalls would empty the cache and gain nothing. It is taken off what pages
//!   may have above their half as well: they are freed at once.
//!
//! | metadata wants | pages want | metadata has | pages have |
//! |---|---|---|---|
//! | all | nothing | half | 0 |
//! | little | all | what it wants | the rest |
//! | all | all | half | half |
//! | all | are not cached | the room | 0 |
//! | more than half, all in use | all | what is in use | the rest, a sixteenth at least |
//!
//! # Concurrency
//! The limit is one atomic word. What the sides hold is read without a lock, so several threads that add at
//! once may together be beyond the limit by what each of them adds; the next one takes it back.
//!
//! # Why
//! A limit that holds at any moment can be shared only with who can give back. Fixed halves would waste
//! one of them where there are few names, which is most of the time; one clock over both would compare what
//! a page of 4096 bytes and a name of 100 are worth to a store that it does not know. Weakness: a walk
//! over very many files leaves pages at half until memory is given back; what is in use cannot go, so
//! inodes that a kernel holds may exceed their half, and take from the pages'; and a
//! limit that is lowered far below what names once had is exceeded by the difference.

use crate::error::{Error, Result};
use uvfs_concurrent::primitive::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Least [`crate::VfsConfig::cache_bytes`]: 8 MiB. Of it a small program takes up to 4 MiB. Half of what
/// is left holds 7,000 names with their inodes, so that a walk finds its directories again, and 2 MiB of
/// pages, so that several readers each have a window that is read ahead and one that is being read. Below
/// that the caches only churn.
pub const MINIMUM_BYTES: u64 = 8 << 20;
/// Least room that the overhead leaves. Everything works in it, since what is in use does not count as
/// too much; it only hardly caches.
const ROOM_BYTES_MIN: u64 = 16 << 10;
/// Pages are not pushed below this in any room: 16 windows of 64 KiB, since a page that goes before it
/// was read is read for nothing.
const PAGE_BYTES_MIN: u64 = 1 << 20;
/// Share of the room that pages keep when what is in use of names and inodes takes more than its half.
const PAGES_SURE_SHARE: u64 = 16;
/// Share of the room that garbage may take from names and inodes.
const GARBAGE_SHARE: u64 = 16;

/// Whether the two go together.
///
/// # Errors
/// [`Error::Invalid`] says the rule.
pub(crate) fn check(limit_bytes: u64, overhead_bytes: u64) -> Result<()> {
    if limit_bytes < MINIMUM_BYTES {
        return Err(Error::Invalid("cache_bytes is at least 8 MiB"));
    }
    match overhead_bytes.checked_add(ROOM_BYTES_MIN) {
        Some(taken) if taken <= limit_bytes => Ok(()),
        _ => Err(Error::Invalid("cache_bytes is at least 16 KiB more than overhead_bytes")),
    }
}

/// Where file data is cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Here, within the budget.
    Here,
    /// Elsewhere, or nowhere.
    Elsewhere,
}

/// What bounds all caches of one file system.
#[derive(Debug)]
pub(crate) struct Budget {
    limit_bytes: AtomicU64,
    overhead_bytes: AtomicU64,
    /// What the overhead is at least, by the configuration: it alone decides which limits are granted.
    fixed_bytes: u64,
    pages: Pages,
    /// The most that metadata ever had, as far as anybody has noticed.
    metadata_peak_bytes: AtomicU64,
    /// Steps over names since one of them has made metadata less.
    idle_steps: AtomicUsize,
}

impl Budget {
    /// A budget of `limit_bytes`, of which `overhead_bytes` are taken. Both have been through [`check`].
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

    /// The number that was asked for.
    pub(crate) fn limit(&self) -> u64 {
        // ORDERING: Relaxed; a limit, nothing is reached through it.
        self.limit_bytes.load(Relaxed)
    }

    /// What of it others take.
    pub(crate) fn overhead(&self) -> u64 {
        // ORDERING: Relaxed; as in `limit`.
        self.overhead_bytes.load(Relaxed)
    }

    /// What others take at least, by the configuration.
    pub(crate) fn fixed(&self) -> u64 {
        self.fixed_bytes
    }

    /// Changes what others take. What is left is never nothing.
    pub(crate) fn set_overhead(&self, overhead_bytes: u64) {
        // ORDERING: Relaxed; as in `limit`.
        self.overhead_bytes.store(overhead_bytes, Relaxed);
    }

    /// Metadata gave memory back to the system, and has so much now, with what lies unused between. Counted
    /// is what it used at most, where that is less: giving back takes nothing from pages.
    pub(crate) fn gave_back(&self, metadata_bytes: u64) {
        // ORDERING: Relaxed; a size that may lag.
        self.metadata_peak_bytes.fetch_min(metadata_bytes, Relaxed);
    }

    /// The most that metadata ever had, as far as anybody has noticed: so much memory it still has.
    pub(crate) fn metadata_peak(&self) -> u64 {
        // ORDERING: Relaxed; a size that may lag.
        self.metadata_peak_bytes.load(Relaxed)
    }

    /// Changes the limit. Whoever lowers it sees to it that something goes ([`crate::Vfs::set_cache_bytes`]).
    /// What was granted once is granted again: the overhead of the moment, as measured, does not refuse it.
    ///
    /// # Errors
    /// As [`check`]; the limit stays as it was.
    pub(crate) fn set_limit(&self, limit_bytes: u64) -> Result<()> {
        check(limit_bytes, self.fixed_bytes)?;
        // ORDERING: Relaxed; as in `limit`.
        self.limit_bytes.store(limit_bytes, Relaxed);
        Ok(())
    }

    /// What there is for the caches.
    pub(crate) fn room(&self) -> u64 {
        self.limit().saturating_sub(self.overhead()).max(ROOM_BYTES_MIN)
    }

    /// What pages may take while names and inodes take `metadata_bytes`.
    pub(crate) fn pages_allowed(&self, metadata_bytes: u64, garbage_bytes: u64) -> u64 {
        let room = self.room();
        // ORDERING: Relaxed, both; a size that may lag.
        let mut peak = self.metadata_peak_bytes.load(Relaxed);
        if peak < metadata_bytes {
            self.metadata_peak_bytes.fetch_max(metadata_bytes, Relaxed);
            peak = metadata_bytes;
        }
        let left = room.saturating_sub(peak).saturating_sub(garbage_bytes);
        // Half, but for what metadata in use takes of it.
        let sure = (room / 2).min(room.saturating_sub(metadata_bytes)).max(room / PAGES_SURE_SHARE);
        left.max(sure).max(PAGE_BYTES_MIN)
    }

    /// What names and inodes may take.
    pub(crate) fn metadata_allowed(&self, garbage_bytes: u64) -> u64 {
        let room = self.room();
        let share = match self.pages {
            Pages::Here => room / 2,
            Pages::Elsewhere => room,
        };
        share - garbage_bytes.min(room / GARBAGE_SHARE)
    }

    /// So many steps were taken over names; whether it `helped`.
    pub(crate) fn took(&self, steps: usize, helped: bool) {
        // ORDERING: Relaxed, all of these; it decides how many steps are worth a try.
        match helped {
            true if self.idle_steps.load(Relaxed) == 0 => {}
            true => self.idle_steps.store(0, Relaxed),
            false => {
                self.idle_steps.fetch_add(steps, Relaxed);
            }
        }
    }

    /// Steps that have not helped, since one has.
    pub(crate) fn idle_steps(&self) -> usize {
        // ORDERING: Relaxed; as in `took`.
        self.idle_steps.load(Relaxed)
    }

    /// What names and inodes may take however much garbage there is: below it none of them has to go.
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

    /// Whatever both want, and whatever names had before: together they are within the room.
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

    /// After a walk over 300,000 files `set cache-size=16M` was refused where 16M had been granted at the
    /// start, in 125 of 200 tries: the overhead measured at that moment was held against it.
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
