//! Values that their users share: rows lead to them, and one that is in use stays.
//!
//! ```text
//!   row (16 ways, one lock) ──▶ Arc ◀── users
//!          │ all ways in use
//!          └─▶ overflow: leaves with the next miss after its last user
//! ```
//!
//! # Boundary
//! Finds and makes values; the caller defines their contents, which may change, and their own locks.
//!
//! # Concurrency
//! S1. A key has one value at a time while a thread uses it: it leaves only if the row has the only reference, seen under the
//!     row's lock, under which alone references are made from the row's.
//! S2. Values are made under the row's lock and dropped outside it, so `make` must be short.
//!
//! # Why
//! The blocks of a file system that is written cannot be frames, as those of [`super::buffers`]: a transaction keeps the contents of
//! a moment while others change them. Weakness: 19 bytes of tables for each value, from the start.

use super::SetAssociative;
use super::hash::RowHash;
use super::row::Row;
use std::sync::Arc;
use uvfs_concurrent::lock::LockClass;
use uvfs_concurrent::padded::Padded;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering};

const WAYS: usize = 16;

/// Values of a row beyond its ways; one word while there is none, which is nearly always.
type Overflow<T> = Option<Box<Vec<(u64, Arc<T>)>>>;

/// A cache of shared values by number. The rules are in the module's documentation.
#[derive(Debug)]
pub struct SharedCache<T> {
    table: SetAssociative<u64, Option<Arc<T>>, WAYS, Overflow<T>>,
    held: Padded<AtomicU64>,
}

/// Whether only the row has it (S1).
fn is_idle<T>(value: &Arc<T>) -> bool {
    Arc::strong_count(value) == 1
}

impl<T> SharedCache<T> {
    /// A cache with room for about `values`, at least one row of 16, whose rows have locks of `class`.
    pub fn new(class: &'static LockClass, values: usize) -> Self {
        let table = SetAssociative::new(class, values.div_ceil(WAYS), RowHash::process());
        Self { table, held: Padded(AtomicU64::new(0)) }
    }

    /// The value of `key`, which `make` makes if there is none. An unused value may leave for it, the oldest of its row.
    pub fn get(&self, key: u64, make: impl FnOnce() -> T) -> Arc<T> {
        let mut row = self.table.lock(self.table.row_of(key));
        if let Some(found) = Self::found(&mut row, key) {
            return found;
        }
        let mut gone = None;
        if let Some(spills) = &mut row.extra {
            let (idle, used): (Vec<_>, Vec<_>) =
                spills.drain(..).partition(|(_, spill)| is_idle(spill));
            self.less(idle.len());
            row.extra = (!used.is_empty()).then(|| Box::new(used));
            gone = Some(idle);
        }
        let value = Arc::new(make());
        // ORDERING: Relaxed; a size for reports and budgets.
        self.held.fetch_add(1, Ordering::Relaxed);
        let way = row.unused().or_else(|| row.oldest(|value| value.as_ref().is_none_or(is_idle)));
        let mut evicted = None;
        match way {
            Some(way) => {
                if row.is_used(way) {
                    evicted = row.clear(way).1;
                    self.less(1);
                }
                row.set(way, key, Some(value.clone()));
            }
            None => row.extra.get_or_insert_default().push((key, value.clone())),
        }
        drop(row);
        drop((gone, evicted));
        value
    }

    /// The value of `key`, if there is one.
    pub fn find(&self, key: u64) -> Option<Arc<T>> {
        Self::found(&mut self.table.lock(self.table.row_of(key)), key)
    }

    /// The value of `key`, which is then the youngest of its row.
    fn found(row: &mut Row<u64, Option<Arc<T>>, Overflow<T>, WAYS>, key: u64) -> Option<Arc<T>> {
        if let Some(way) = row.find(key) {
            row.touch(way);
            return row.value(way);
        }
        let spills = row.extra.as_ref()?;
        spills.iter().find(|(one, _)| *one == key).map(|(_, spill)| spill.clone())
    }

    /// How many values there are.
    pub fn held(&self) -> u64 {
        // ORDERING: Relaxed; a size that may lag.
        self.held.load(Ordering::Relaxed)
    }

    /// Bytes of the rows; they do not change.
    pub fn table_bytes(&self) -> u64 {
        self.table.bytes() as u64
    }

    /// Drops about `wanted` unused values, one of a row after the other, each the oldest of its row. Returns their number.
    pub fn shrink(&self, wanted: u64) -> u64 {
        let (mut dropped, mut in_vain) = (0, 0);
        while dropped < wanted && in_vain < self.table.rows() {
            let mut row = self.table.lock(self.table.next_row());
            let idle = row.oldest(|value| value.as_ref().is_none_or(is_idle));
            let evicted = idle.map(|way| row.clear(way));
            drop(row);
            match evicted {
                Some(_) => {
                    self.less(1);
                    (dropped, in_vain) = (dropped + 1, 0);
                }
                None => in_vain += 1,
            }
        }
        dropped
    }

    fn less(&self, values: usize) {
        // ORDERING: Relaxed; as where it grows.
        self.held.fetch_sub(values as u64, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    static CLASS: LockClass = LockClass::new(501, "test-shared-rows", "rows of the tests");

    #[test]
    fn the_oldest_idle_value_leaves_and_one_in_use_stays() {
        let cache = SharedCache::new(&CLASS, 16);
        let kept = cache.get(0, || 0);
        for key in 1..16 {
            cache.get(key, || key);
        }
        cache.get(1, || panic!("it is there"));
        let made = (16..30).filter(|key| *cache.get(*key, || *key) == *key).count();
        assert_eq!((made, cache.held()), (14, 16));
        assert!(Arc::ptr_eq(&kept, &cache.get(0, || panic!("it is in use"))));
        cache.get(1, || panic!("it was used last"));
        assert_eq!(*cache.get(2, || 77), 77, "it was the oldest one");
    }

    #[test]
    fn what_is_in_use_beyond_the_ways_is_found_and_leaves_after_its_last_user() {
        let cache = SharedCache::new(&CLASS, 1);
        let mut used: Vec<_> = (0..40).map(|key| cache.get(key, || key)).collect();
        assert_eq!(cache.held(), 40);
        for (key, value) in (0..).zip(&used) {
            assert!(Arc::ptr_eq(value, &cache.get(key, || panic!("in use"))));
            assert!(cache.find(key).is_some_and(|found| Arc::ptr_eq(value, &found)));
        }
        assert!(cache.find(99).is_none() && cache.held() == 40, "a search makes nothing");
        used.truncate(20);
        cache.get(99, || 99);
        assert_eq!(cache.held(), 21, "those of the overflow that are idle leave");
        drop(used);
        assert_eq!((cache.shrink(10), cache.held()), (10, 11));
        assert_eq!((cache.shrink(100), cache.held()), (6, 5), "the overflow leaves with a miss");
        cache.get(100, || 100);
        assert_eq!(cache.held(), 1);
    }

    /// S1. Two threads had two buffers of one block, and the changes of one were lost.
    #[test]
    fn a_key_has_one_value_while_it_is_in_use() {
        let cache = SharedCache::new(&CLASS, 16);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let cache = &cache;
                scope.spawn(move || {
                    for round in 0..20_000_u64 {
                        let key = (round * 7 + thread) % 24;
                        let one = cache.get(key, || key);
                        let again = cache.get(key, || key);
                        assert!(Arc::ptr_eq(&one, &again) && *one == key);
                    }
                });
            }
        });
        cache.shrink(100);
        cache.get(1000, || 0);
        assert!(cache.held() <= 16);
    }
}
