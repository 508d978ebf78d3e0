//! Concurrent maps from a page's index to its frame.
//!
//! # Boundary
//! The fitting map of each crate: keys and values of eight bytes, nothing allocated before the first
//! insert, one guard for each call, because callers have other work between calls.
//!
//! # Why
//! Hash maps have no order and none of these has tags: they are rivals in three of six phases.
//! congee reads nodes without atomics while other threads write them, which is undefined in Rust's
//! memory model; it is listed because it is the fastest of the ordered ones.

use congee::Congee;
use crossbeam_skiplist::SkipMap;
use dashmap::DashMap;
use scc::{HashIndex, TreeIndex};
use std::collections::BTreeMap;
// The map behind it is only ever held for a call, and no class order applies here.
#[allow(clippy::disallowed_types)]
use std::sync::Mutex;

/// One for all maps: a folded multiplication.
type Folded = foldhash::fast::FixedState;

/// Shards of a [`DashMap`], whatever the number of cores.
const SHARDS: usize = 64;

/// A map as an index.
pub(super) trait Index: Default + Sync {
    /// Adds `key`; whether it was not there.
    fn insert(&self, key: u64, value: u64) -> bool;

    /// The value of `key`.
    fn get(&self, key: u64) -> Option<u64>;

    /// Removes `key`; whether it was there with `value`.
    fn remove(&self, key: u64, value: u64) -> bool;
}

/// `BTreeMap` behind one lock.
#[derive(Default)]
#[allow(clippy::disallowed_types)]
pub(super) struct Tree(Mutex<BTreeMap<u64, u64>>);

impl Index for Tree {
    fn insert(&self, key: u64, value: u64) -> bool {
        self.0.lock().is_ok_and(|mut map| map.insert(key, value).is_none())
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.lock().ok()?.get(&key).copied()
    }

    fn remove(&self, key: u64, value: u64) -> bool {
        self.0.lock().is_ok_and(|mut map| map.remove(&key) == Some(value))
    }
}

/// `congee::Congee`: an adaptive radix tree with optimistic locks.
#[derive(Default)]
pub(super) struct Art(Congee<usize, usize>);

impl Index for Art {
    fn insert(&self, key: u64, value: u64) -> bool {
        let guard = self.0.pin();
        matches!(self.0.insert(key as usize, value as usize, &guard), Ok(None))
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&(key as usize), &self.0.pin()).map(|value| value as u64)
    }

    fn remove(&self, key: u64, value: u64) -> bool {
        self.0.remove(&(key as usize), &self.0.pin()) == Some(value as usize)
    }
}

/// `scc::TreeIndex`: a B+ tree that is read without locks.
#[derive(Default)]
pub(super) struct SccTree(TreeIndex<u64, u64>);

impl Index for SccTree {
    fn insert(&self, key: u64, value: u64) -> bool {
        self.0.insert_sync(key, value).is_ok()
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.peek_with(&key, |_, value| *value)
    }

    fn remove(&self, key: u64, value: u64) -> bool {
        self.0.remove_if_sync(&key, |there| *there == value)
    }
}

/// `scc::HashIndex`: a hash table that is read without locks.
#[derive(Default)]
pub(super) struct SccHash(HashIndex<u64, u64, Folded>);

impl Index for SccHash {
    fn insert(&self, key: u64, value: u64) -> bool {
        self.0.insert_sync(key, value).is_ok()
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.peek_with(&key, |_, value| *value)
    }

    fn remove(&self, key: u64, value: u64) -> bool {
        self.0.remove_if_sync(&key, |there| *there == value)
    }
}

/// `crossbeam_skiplist::SkipMap`.
pub(super) struct Skip(SkipMap<u64, u64>);

impl Default for Skip {
    fn default() -> Self {
        Self(SkipMap::new())
    }
}

impl Index for Skip {
    fn insert(&self, key: u64, value: u64) -> bool {
        // It returns the entry that is in the map afterwards.
        *self.0.insert(key, value).value() == value
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).map(|entry| *entry.value())
    }

    fn remove(&self, key: u64, value: u64) -> bool {
        self.0.remove(&key).is_some_and(|entry| *entry.value() == value)
    }
}

/// `dashmap::DashMap`: shards of a table, each behind a reader-writer lock.
pub(super) struct Dash(DashMap<u64, u64, Folded>);

impl Default for Dash {
    fn default() -> Self {
        Self(DashMap::with_hasher_and_shard_amount(Folded::default(), SHARDS))
    }
}

impl Index for Dash {
    fn insert(&self, key: u64, value: u64) -> bool {
        self.0.insert(key, value).is_none()
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).map(|value| *value)
    }

    fn remove(&self, key: u64, value: u64) -> bool {
        self.0.remove(&key) == Some((key, value))
    }
}

/// `papaya::HashMap`: lock-free.
#[derive(Default)]
pub(super) struct Papaya(papaya::HashMap<u64, u64, Folded>);

impl Index for Papaya {
    fn insert(&self, key: u64, value: u64) -> bool {
        self.0.pin().insert(key, value).is_none()
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.pin().get(&key).copied()
    }

    fn remove(&self, key: u64, value: u64) -> bool {
        self.0.pin().remove(&key) == Some(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<I: Index>() {
        let index = I::default();
        for key in 0..300 {
            assert_eq!(index.get(key), None);
            assert!(index.insert(key, key + 1));
        }
        for key in 0..300 {
            assert_eq!(index.get(key), Some(key + 1));
            assert!(index.remove(key, key + 1), "{key}");
            assert!(!index.remove(key, key + 1), "{key}");
            assert_eq!(index.get(key), None);
        }
    }

    #[test]
    fn every_index_keeps_what_it_is_given_and_gives_it_back_once() {
        check::<Tree>();
        check::<Art>();
        check::<SccTree>();
        check::<SccHash>();
        check::<Skip>();
        check::<Dash>();
        check::<Papaya>();
    }
}
