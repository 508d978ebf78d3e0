//! Visits the table bucket by bucket: the clock, and visits to all entries.
//!
//! # Boundary
//! Visits and removes. The caller's verdict decides which entries are kept.
//!
//! # Concurrency
//! Visits are lookups without a key: pinned, without locks, by the rules of readers (B4). So a
//! visitor may do anything, also use the table. An entry that is present during the whole visit of
//! its bucket is visited exactly once. An entry that is inserted, removed or replaced meanwhile may
//! be visited or not.
//!
//! # Why
//! The table is the clock: entries are in no list, so they need no word for one, and a hit locks
//! nothing. The hand counts buckets and never goes back; modulo the table's size it is a position.
//! When the table doubles, the position is the same bucket or its upper half, so at most one
//! revolution of the new size remains. Weakness: sweeping a mostly vacant table visits many vacant
//! buckets.

use super::array::Array;
use super::{Entry, Guard, NameTable};
use uvfs_concurrent::primitive::atomic::{AtomicUsize, Ordering};

/// The position of the clock. All threads that sweep a table share it; each sweep takes the next
/// buckets.
#[derive(Debug)]
pub struct Hand(AtomicUsize);

impl Hand {
    /// At the first bucket.
    pub fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// At a given bucket: to visit a part of the table, or one bucket once more.
    pub fn at(bucket: usize) -> Self {
        Self(AtomicUsize::new(bucket))
    }
}

impl Default for Hand {
    fn default() -> Self {
        Self::new()
    }
}

/// The decision about a visited entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The entry stays.
    Keep,
    /// The entry is removed, if it is still in the table.
    Remove,
}

/// The result of a sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Buckets passed; at most one revolution.
    pub buckets: usize,
    /// Entries visited.
    pub visited: usize,
    /// Entries removed by this sweep.
    pub removed: usize,
    /// The memory of the removed entries.
    pub removed_bytes: usize,
}

impl<V: Send + Sync + 'static> NameTable<V> {
    /// Moves `hand` over the next `buckets` buckets (at most one revolution), calls `visit` for
    /// each entry, and removes it by the verdict. Also helps a growth in progress.
    ///
    /// `visit` runs without any lock of the table. No two sweeps get the same turn of a bucket.
    pub fn sweep<'g>(
        &'g self,
        guard: &'g Guard,
        hand: &Hand,
        buckets: usize,
        mut visit: impl FnMut(&'g Entry<V>) -> Verdict,
    ) -> Swept {
        let array = self.current(guard);
        let buckets = buckets.min(array.buckets());
        let mut swept = Swept { buckets, ..Swept::default() };
        // ORDERING: Relaxed; a share of work, nothing is reached through it.
        let first = hand.0.fetch_add(buckets, Ordering::Relaxed);
        for turn in 0..buckets {
            let bucket = first.wrapping_add(turn) as u64;
            self.visit(array, bucket, &mut |entry| {
                swept.visited += 1;
                if visit(entry) == Verdict::Remove && self.remove_entry(guard, entry) {
                    swept.removed += 1;
                    swept.removed_bytes += entry.bytes();
                }
            });
        }
        self.help(guard, array, buckets);
        swept
    }

    /// Visits every entry that is in the table from beginning to end of this call, once; other
    /// entries may be visited or not.
    pub fn for_each<'g>(&'g self, guard: &'g Guard, mut visit: impl FnMut(&'g Entry<V>)) {
        let array = self.current(guard);
        for bucket in 0..array.buckets() {
            self.visit(array, bucket as u64, &mut visit);
        }
    }

    /// Visits the entries that belong to a bucket of `array`, in the array that holds them now.
    fn visit<'g>(&'g self, array: Array<'g>, index: u64, visit: &mut dyn FnMut(&'g Entry<V>)) {
        let mut bucket = array.bucket(index);
        let mut control = bucket.control();
        if control.is_moved() {
            let next = array.next().expect("a bucket moves into the next array");
            let low = index & (array.buckets() - 1) as u64;
            self.visit(next, low, visit);
            return self.visit(next, low + array.buckets() as u64, visit);
        }
        loop {
            // SAFETY: a bucket of this table; `'g` is the lifetime of a guard.
            unsafe { bucket.entries::<V>() }.for_each(&mut *visit);
            // SAFETY: a bucket of this table; `'g` is the lifetime of a guard.
            match unsafe { control.overflow() } {
                Some(behind) => bucket = behind,
                None => return,
            }
            control = bucket.control();
        }
    }
}
