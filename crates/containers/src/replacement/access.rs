//! The access word of one page: the number of its uses, and the time of the last counted one.
//!
//! Word: `stamp:29 | ahead:1 | count:2`. The stamp is the clock of admissions, truncated; `ahead` means that the page
//! was read ahead of any use.
//!
//! # Concurrency
//! Any thread may touch, and the queues' owner may change the word at the same time. Loads and stores are separate and
//! relaxed: a lost touch or a lost decay shifts one page by one round, and has no other effect.
//!
//! # Why
//! A read-modify-write on each hit would make hot pages hot cache lines. Here a hit is one load once a page has been
//! used three times. Weakness: two touches at the same moment may count as one.

use uvfs_concurrent::primitive::atomic::{AtomicU32, Ordering};

/// Uses within this many ticks of the clock belong to the last counted use. A file is read in parts of its pages, which
/// does not indicate a later use.
pub(super) const CORRELATED_TICKS: u32 = 256;
const COUNT: u32 = 0b011;
const AHEAD: u32 = 0b100;
const STAMP_SHIFT: u32 = 3;

/// The access word of one page.
#[derive(Debug, Default)]
pub struct AccessWord(AtomicU32);

impl AccessWord {
    /// Records a use at `clock`.
    #[inline]
    pub fn touch(&self, clock: u32) {
        // ORDERING: Relaxed; a guess about the future, nothing is reached through it.
        let word = self.0.load(Ordering::Relaxed);
        if word & COUNT == COUNT {
            return;
        }
        let stamp = clock << STAMP_SHIFT;
        if word & AHEAD != 0 {
            // The use for which the page was read ahead: as if it had been admitted now.
            // ORDERING: Relaxed; a guess about the future.
            self.0.store(stamp, Ordering::Relaxed);
        } else if stamp.wrapping_sub(word & !COUNT) >> STAMP_SHIFT >= CORRELATED_TICKS {
            // ORDERING: Relaxed; a guess about the future.
            self.0.store(stamp | ((word & COUNT) + 1), Ordering::Relaxed);
        }
    }

    /// Begins the word of a page that was just admitted, for a use or ahead of one.
    pub(super) fn start(&self, clock: u32, ahead: bool) {
        let ahead = if ahead { AHEAD } else { 0 };
        // ORDERING: Relaxed; a guess about the future.
        self.0.store(clock << STAMP_SHIFT | ahead, Ordering::Relaxed);
    }

    /// Whether the page was read ahead of a use that has not come yet; true once for each page.
    pub(super) fn spare_ahead(&self) -> bool {
        // ORDERING: Relaxed; a guess about the future.
        let word = self.0.load(Ordering::Relaxed);
        let spare = word & AHEAD != 0 && word & COUNT == 0;
        if spare {
            // The use, when it comes, begins the word again.
            // ORDERING: Relaxed; a guess about the future.
            self.0.store(word | 1, Ordering::Relaxed);
        }
        spare
    }

    /// The number of counted uses, at most 3.
    pub fn count(&self) -> u32 {
        // ORDERING: Relaxed; a guess about the future.
        self.0.load(Ordering::Relaxed) & COUNT
    }

    /// Subtracts one use, or all of them.
    pub(super) fn forget(&self, all: bool) {
        // ORDERING: Relaxed; a guess about the future.
        let word = self.0.load(Ordering::Relaxed);
        let count = if all { 0 } else { (word & COUNT).saturating_sub(1) };
        // ORDERING: Relaxed; a guess about the future.
        self.0.store(word & !COUNT | count, Ordering::Relaxed);
    }
}

/// Access to the words of pages.
pub trait Access {
    /// The word of the page in `frame`.
    fn access(&self, frame: u32) -> &AccessWord;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn uses_close_together_count_once() {
        let word = AccessWord::default();
        word.start(1000, false);
        word.touch(1000 + CORRELATED_TICKS - 1);
        assert_eq!(word.count(), 0, "part of the read that admitted it");
        word.touch(1000 + CORRELATED_TICKS);
        assert_eq!(word.count(), 1);
        word.touch(1000 + 2 * CORRELATED_TICKS - 1);
        assert_eq!(word.count(), 1, "part of the use that was counted");
        for round in 2..9 {
            word.touch(1000 + round * CORRELATED_TICKS);
        }
        assert_eq!(word.count(), 3, "no more than two bits");
        word.forget(false);
        assert_eq!(word.count(), 2);
        word.forget(true);
        assert_eq!(word.count(), 0);
        word.forget(false);
        assert_eq!(word.count(), 0);
    }

    #[test]
    fn the_use_that_a_page_was_read_ahead_for_does_not_count() {
        let word = AccessWord::default();
        word.start(1000, true);
        word.touch(5000);
        word.touch(5000 + CORRELATED_TICKS - 1);
        assert_eq!(word.count(), 0);
        word.touch(5000 + CORRELATED_TICKS);
        assert_eq!(word.count(), 1);
    }

    #[test]
    fn the_clock_may_come_round() {
        for last in [u32::MAX, (1 << 29) - 1] {
            let word = AccessWord::default();
            word.start(last - 10, false);
            word.touch(last);
            assert_eq!(word.count(), 0);
            word.touch((last - 10).wrapping_add(CORRELATED_TICKS));
            assert_eq!(word.count(), 1);
        }
    }
}
