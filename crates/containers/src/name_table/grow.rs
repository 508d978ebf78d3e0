//! Growth: a table doubles bucket by bucket, while all operations continue.
//!
//! # Boundary
//! Decides when to grow, and moves buckets. The protocol is in [`super`] (B3, B6, O2, O5, O7).
//!
//! # Concurrency
//! A writer that finds a growth moves the bucket that it needs, then a few more. So the growth ends
//! long before the next one is due: moving all takes at most `buckets / HELP` writes, and it takes
//! `LOAD * buckets` insertions to fill the new array. Readers never move anything.
//!
//! # Why
//! Stopping all operations on a large table takes tens of milliseconds. Without growth, chains
//! become linear scans. Weakness: until a growth ends, a lookup in a moved bucket reads one line
//! more. In a table that is only read from then on, that stays so (a sweep ends it).

use super::array::{self, Array, LOG2_MAX};
use super::bucket::{Bucket, Control, Locked};
use super::{Guard, LOAD, NameTable};
use std::ptr::{self, NonNull};
use uvfs_concurrent::primitive::atomic::Ordering;

/// The number of further buckets that a writer moves.
pub(super) const HELP: usize = if cfg!(loom) { 1 } else { 2 };

impl<V: Send + Sync + 'static> NameTable<V> {
    /// Begins a growth if the load requires it and none is in progress.
    #[cold]
    pub(super) fn grow_if_full<'g>(&'g self, guard: &'g Guard) {
        let array = self.current(guard);
        if array.next().is_some() {
            return self.help(guard, array, HELP);
        }
        if self.len() <= LOAD * array.buckets() || array.log2() == LOG2_MAX {
            return;
        }
        // B6: `array` was current when it was loaded, and it stays so until the growth that begins
        // here has ended.
        // ORDERING: Relaxed; only the winner matters, `set_next` publishes the rest (O5).
        if array.header().growing.swap(true, Ordering::Relaxed) {
            return;
        }
        let log2 = array.log2() + 1;
        let Some(next) = Array::allocate(log2) else {
            // Chains get longer until a thread finds memory.
            // ORDERING: Relaxed; the next swap only needs to find it clear.
            array.header().growing.store(false, Ordering::Relaxed);
            return;
        };
        self.counts.add_array(array::bytes(log2) as isize);
        array.set_next(next);
        self.help(guard, array, HELP);
    }

    /// Moves up to `count` buckets of `array`, if it is growing.
    pub(super) fn help<'g>(&'g self, guard: &'g Guard, array: Array<'g>, count: usize) {
        let Some(next) = array.next() else { return };
        for index in array.claim(count) {
            let bucket = array.bucket(index as u64);
            if bucket.control().is_moved() {
                continue;
            }
            let locked = bucket.lock(self.class);
            if !locked.is_moved() {
                self.migrate(guard, array, next, index as u64, locked);
            }
        }
    }

    /// Moves a bucket that is locked and not moved yet; unlocks it.
    pub(super) fn migrate<'g>(
        &'g self,
        guard: &'g Guard,
        array: Array<'g>,
        next: Array<'g>,
        hash: u64,
        mut locked: Locked<'g>,
    ) {
        let split = array.buckets() as u64;
        let (low, high) = (next.bucket(hash & !split), next.bucket(hash | split));
        // SAFETY: a bucket of this table, and the two that receive its entries; no other thread
        // reaches those before this one is marked (B3).
        let (overflow, made) = unsafe { locked.move_to::<V>(split, low, high) };
        drop(locked);
        self.counts.add(0, (made * size_of::<Bucket>()) as isize);
        self.retire_overflow(guard, overflow);
        if array.count_migrated() {
            // ORDERING: Release, partner `current` (O5).
            self.current.store(next.word(), Ordering::Release);
            let bytes = array::bytes(array.log2());
            self.counts.add_array(-(bytes as isize));
            let word = ptr::without_provenance_mut(array.word() as usize);
            // SAFETY: `current` was the only way to this array; new readers begin in the next one.
            unsafe { guard.retire(bytes, word, Array::free) };
        }
    }

    /// Retires the overflow buckets of a bucket that moved.
    fn retire_overflow<'g>(&'g self, guard: &'g Guard, mut link: Control) {
        // SAFETY: links of a chain that never changes again (B3), read under the guard.
        while let Some(bucket) = unsafe { link.overflow::<'g>() } {
            link = bucket.control();
            // SAFETY: the head was marked and its link cut, so no new reader reaches this bucket.
            unsafe { self.retire_bucket(guard, NonNull::from(bucket)) };
        }
    }

    /// Retires one overflow bucket.
    ///
    /// # Safety
    /// It is unlinked: no reader that pins from now on can reach it.
    pub(super) unsafe fn retire_bucket(&self, guard: &Guard, bucket: NonNull<Bucket>) {
        self.counts.add(0, -(size_of::<Bucket>() as isize));
        // SAFETY: the caller's promise.
        unsafe { guard.retire(size_of::<Bucket>(), bucket.as_ptr().cast(), Bucket::free) };
    }
}
