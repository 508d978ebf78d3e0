//! Going through the table bucket by bucket: the clock, and visits to everything.
//!
//! # Boundary
//! Visits and removes. What makes an entry worth keeping is the caller's verdict.
//!
//! # Concurrency
//! Visits are lookups without a key: pinned, without locks, by the rules that readers follow (B4),
//! so a visitor may do what it likes, use the table included. An entry that is there during the
//! whole visit of its bucket is visited exactly once; one that comes, goes or is replaced meanwhile
//! may or may not be.
//!
//! # Why
//! The table is the clock: no list to link entries into, so no word of an entry for it and nothing
//! to lock on a hit. The hand counts buckets and never goes back; modulo the table's size it is a
//! place. Doubling the table sends it to the same bucket or to its upper half, so what it has yet
//! to pass is at most one revolution of the new size. Weakness: sweeping a table that is mostly
//! vacant looks at many vacant buckets.

use super::array::Array;
use super::{Entry, Guard, NameTable};
use crate::primitive::atomic::{AtomicUsize, Ordering};

/// Where the clock stands. Shared by all who sweep a table; each sweep takes the next buckets.
#[derive(Debug)]
pub struct Hand(AtomicUsize);

impl Hand {
    /// At the first bucket.
    pub fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// At a bucket: to go over a part of the table, or once more over one.
    pub fn at(bucket: usize) -> Self {
        Self(AtomicUsize::new(bucket))
    }
}

impl Default for Hand {
    fn default() -> Self {
        Self::new()
    }
}

/// What is to become of an entry that was visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It stays.
    Keep,
    /// It goes, if it is still there.
    Remove,
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Buckets passed; at most one revolution.
    pub buckets: usize,
    /// Entries visited.
    pub visited: usize,
    /// Entries removed by this sweep.
    pub removed: usize,
    /// Their memory.
    pub removed_bytes: usize,
}

impl<V: Send + Sync + 'static> NameTable<V> {
    /// Moves `hand` over the next `buckets` buckets (at most one revolution) and calls `visit` for
    /// each entry; removes what it says. Helps a growth in progress along.
    ///
    /// `visit` runs without any lock of the table. Two sweeps never get the same turn of a bucket.
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

    /// Visits every entry that is in the table from beginning to end of this call, once; others
    /// perhaps.
    pub fn for_each<'g>(&'g self, guard: &'g Guard, mut visit: impl FnMut(&'g Entry<V>)) {
        let array = self.current(guard);
        for bucket in 0..array.buckets() {
            self.visit(array, bucket as u64, &mut visit);
        }
    }

    /// Visits what belongs to a bucket of `array`, in whichever array it is by now.
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
            // SAFETY: as above.
            match unsafe { control.overflow() } {
                Some(behind) => bucket = behind,
                None => return,
            }
            control = bucket.control();
        }
    }
}
