//! The locations of the parts of objects: from an object and an offset to a run.
//!
//! # Boundary
//! Keeps runs that a caller has found and finds them again. The caller defines the objects, looks up their runs, and
//! purges changed ones.
//!
//! # Concurrency
//! One row's lock for each call, and no other shared state. A run is copied out.
//!
//! # Why
//! The seed's segmap: each row is its own free list. A key is an object with a *window* of offsets, so that one entry
//! serves all offsets of a window that one run covers. Numbers have 32 bits, as in ext, so a row of eight ways is four
//! cache lines. Weakness: of a window with several runs, only the last requested one is kept.

use super::hash::RowHash;
use super::{Key, SetAssociative};
use std::num::NonZeroU64;
use uvfs_concurrent::counter::Counter;
use uvfs_concurrent::lock::LockClass;

const WAYS: usize = 8;
/// Offsets of a window: 2 to the power of this.
const WINDOW_BITS: u32 = 8;

/// Consecutive offsets of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Run {
    /// The first offset.
    pub first: u32,
    /// The number of offsets.
    pub length: u32,
    /// The location of the first one; `None`: a hole, all of which reads as zeroes.
    pub at: Option<NonZeroU64>,
}

impl Run {
    /// Whether `offset` is in the run.
    pub fn covers(&self, offset: u32) -> bool {
        offset.checked_sub(self.first).is_some_and(|into| into < self.length)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Window {
    object: u32,
    number: u32,
}

impl Key for Window {
    fn number(self) -> u64 {
        u64::from(self.object) << 32 | u64::from(self.number)
    }
}

fn window(object: u32, offset: u32) -> Window {
    Window { object, number: offset >> WINDOW_BITS }
}

/// The counts of a cache of translations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TranslationCounts {
    /// Rows.
    pub rows: u64,
    /// Bytes of the rows; they do not change.
    pub bytes: u64,
    /// Look-ups that found a run.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Runs that were replaced by others.
    pub evictions: u64,
}

/// A cache of runs. Its layout is in the module's documentation.
#[derive(Debug)]
pub struct TranslationCache {
    table: SetAssociative<Window, Run, WAYS>,
    hits: Counter,
    misses: Counter,
    evictions: Counter,
}

impl TranslationCache {
    /// A cache of at most `bytes` bytes, at least one row, whose rows have locks of `class`.
    pub fn new(class: &'static LockClass, bytes: usize) -> Self {
        let row = SetAssociative::<Window, Run, WAYS>::new(class, 1, RowHash::process()).bytes();
        let table = SetAssociative::new(class, bytes / row, RowHash::process());
        let [hits, misses, evictions] = [(); 3].map(|()| Counter::new());
        Self { table, hits, misses, evictions }
    }

    /// The run that covers `offset` of `object`, if it is cached.
    pub fn get(&self, object: u32, offset: u32) -> Option<Run> {
        let run = self.table.get(window(object, offset)).filter(|run| run.covers(offset));
        if run.is_some() {
            self.hits.hit()
        } else {
            self.misses.hit()
        }
        run
    }

    /// Keeps `run` for the window of `offset`, the requested offset, which it covers.
    pub fn insert(&self, object: u32, offset: u32, run: Run) {
        debug_assert!(run.covers(offset), "{offset} is not in {run:?}");
        if self.table.insert(window(object, offset), run).is_some() {
            self.evictions.hit();
        }
    }

    /// Forgets all runs of `object`, row by row.
    pub fn purge(&self, object: u32) {
        self.table.purge(|window| window.object == object);
    }

    /// Bytes of the rows; they do not change.
    pub fn bytes(&self) -> u64 {
        self.table.bytes() as u64
    }

    /// The present size, and the counts so far.
    pub fn counts(&self) -> TranslationCounts {
        TranslationCounts {
            rows: self.table.rows() as u64,
            bytes: self.bytes(),
            hits: self.hits.total(),
            misses: self.misses.total(),
            evictions: self.evictions.total(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    static CLASS: LockClass = LockClass::new(1, "translations-test", "test");

    fn run(first: u32, length: u32, at: u64) -> Run {
        Run { first, length, at: NonZeroU64::new(at) }
    }

    #[test]
    fn a_row_is_four_lines() {
        assert_eq!(TranslationCache::new(&CLASS, 0).counts().bytes, 256);
        assert_eq!(TranslationCache::new(&CLASS, 64 << 10).counts().rows, 256);
    }

    #[test]
    fn a_run_is_found_where_it_covers_and_nowhere_else() {
        let cache = TranslationCache::new(&CLASS, 64 << 10);
        assert_eq!(cache.get(1, 10), None);
        cache.insert(1, 10, run(5, 10, 77));
        cache.insert(2, u32::MAX, run(u32::MAX - 1, 2, 0));
        assert_eq!([5, 14].map(|offset| cache.get(1, offset)), [Some(run(5, 10, 77)); 2]);
        assert_eq!([4, 15].map(|offset| cache.get(1, offset)), [None; 2]);
        assert_eq!(cache.get(2, u32::MAX), Some(run(u32::MAX - 1, 2, 0)), "a hole is known too");
        assert_eq!(cache.get(3, 10), None);
        cache.purge(1);
        assert_eq!((cache.get(1, 10), cache.get(2, u32::MAX).is_some()), (None, true));
        let counts = cache.counts();
        assert_eq!((counts.hits, counts.misses, counts.evictions), (4, 5, 0));
    }

    #[test]
    fn a_full_row_gives_up_what_was_used_longest_ago() {
        let cache = TranslationCache::new(&CLASS, 1);
        (0..8).for_each(|object| cache.insert(object, 0, run(0, 1, 1)));
        assert!(cache.get(0, 0).is_some());
        cache.insert(8, 0, run(0, 1, 1));
        assert_eq!((cache.get(0, 0).is_some(), cache.get(1, 0)), (true, None));
        assert_eq!(cache.counts().evictions, 1);
    }
}
