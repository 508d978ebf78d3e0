//! The name cache: finds the child `name` of a directory without asking the store.
//!
//! # Boundary
//! Owns (directory, name) pairs and what they mean: an inode id, or nothing (a negative entry).
//! Does not hold inodes: a name may outlive its inode in the cache, and is then looked up again.
//!
//! # Concurrency
//! One lock per shard of directories, never held across a backend call. Whether an answer may be
//! kept is the directory's own affair ([`crate::inode::Freshness`]): callers insert under the
//! directory's `inode-changes` lock.
//!
//! # Why
//! A map per directory inside sharded locks: plain, right, and the directory's names go with one
//! removal. Bad at: every hit takes a shard lock, and all names of one directory share a shard.
//! The lock-free table takes its place behind the same five functions.

use crate::backend::InodeId;
use crate::inode::Expiry;
use crate::lock_order;
use crate::name::Name;
use crate::statistics::Counters;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use uvfs_concurrent::primitive::atomic::{AtomicUsize, Ordering::Relaxed};
use uvfs_concurrent::shard::Shards;

const SHARDS: usize = 32;

/// What a cached name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// This inode.
    Inode(InodeId),
    /// No such name.
    Missing,
}

#[derive(Debug)]
struct Dentry {
    meaning: Meaning,
    expiry: Expiry,
    /// Used since the clock last passed.
    referenced: bool,
}

#[derive(Debug, Default)]
struct Shard {
    directories: HashMap<InodeId, HashMap<Arc<[u8]>, Dentry>>,
    clock: VecDeque<(InodeId, Arc<[u8]>)>,
}

#[derive(Debug)]
pub(crate) struct NameCache {
    shards: Shards<Shard>,
    count: AtomicUsize,
    limit: usize,
}

impl NameCache {
    pub(crate) fn new(limit: usize) -> Self {
        Self { shards: Shards::new(&lock_order::NAMES, SHARDS), count: AtomicUsize::new(0), limit }
    }

    /// What `name` means, and for how much longer that is believed.
    pub(crate) fn find(&self, directory: InodeId, name: Name<'_>) -> Option<(Meaning, Duration)> {
        let mut shard = self.shards.of(&directory).lock();
        let dentry = shard.directories.get_mut(&directory)?.get_mut(name.as_bytes())?;
        if !dentry.expiry.valid() {
            return None;
        }
        dentry.referenced = true;
        Some((dentry.meaning, dentry.expiry.remains()))
    }

    /// Remembers what `name` means. Entries used least recently make room.
    pub(crate) fn insert(
        &self,
        directory: InodeId,
        name: Name<'_>,
        meaning: Meaning,
        expiry: Expiry,
        counters: &Counters,
    ) {
        if expiry == Expiry::Expired {
            return self.remove(directory, name);
        }
        let mut shard = self.shards.of(&directory).lock();
        let shard = &mut *shard;
        let names = shard.directories.entry(directory).or_default();
        if let Some(dentry) = names.get_mut(name.as_bytes()) {
            dentry.meaning = meaning;
            dentry.expiry = expiry;
            return;
        }
        let key: Arc<[u8]> = name.as_bytes().into();
        names.insert(key.clone(), Dentry { meaning, expiry, referenced: false });
        shard.clock.push_back((directory, key));
        // ORDERING: Relaxed; a size, its users tolerate lag.
        self.count.fetch_add(1, Relaxed);
        self.make_room(shard, counters);
    }

    /// Forgets one name.
    pub(crate) fn remove(&self, directory: InodeId, name: Name<'_>) {
        let mut shard = self.shards.of(&directory).lock();
        let Some(names) = shard.directories.get_mut(&directory) else { return };
        let removed = names.remove(name.as_bytes()).is_some();
        if names.is_empty() {
            shard.directories.remove(&directory);
        }
        self.removed(usize::from(removed));
    }

    /// Forgets every name of a directory.
    pub(crate) fn remove_directory(&self, directory: InodeId) {
        let mut shard = self.shards.of(&directory).lock();
        let removed = shard.directories.remove(&directory).map_or(0, |names| names.len());
        self.removed(removed);
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        for shard in self.shards.iter() {
            let mut shard = shard.lock();
            let removed = shard.directories.values().map(HashMap::len).sum();
            *shard = Shard::default();
            self.removed(removed);
        }
    }

    /// Names kept now, negative ones included.
    pub(crate) fn count(&self) -> usize {
        // ORDERING: Relaxed; a statistic.
        self.count.load(Relaxed)
    }

    /// Names that may be kept.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    fn removed(&self, names: usize) {
        // ORDERING: Relaxed; a size.
        self.count.fetch_sub(names, Relaxed);
    }

    /// Moves this shard's clock on while there are too many names. Keys whose dentry has gone stay
    /// in the clock until it reaches them; the bound below keeps them fewer than the names.
    fn make_room(&self, shard: &mut Shard, counters: &Counters) {
        let mut steps = 64;
        while steps > 0 && (self.count() > self.limit || shard.clock.len() > 2 * self.limit) {
            steps -= 1;
            let Some((directory, key)) = shard.clock.pop_front() else { return };
            let Some(names) = shard.directories.get_mut(&directory) else { continue };
            match names.get_mut(&key) {
                Some(dentry) if dentry.referenced && dentry.expiry.valid() => {
                    dentry.referenced = false;
                    shard.clock.push_back((directory, key));
                }
                Some(_) => {
                    names.remove(&key);
                    if names.is_empty() {
                        shard.directories.remove(&directory);
                    }
                    self.removed(1);
                    counters.names_evicted.hit();
                }
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name<'_> {
        Name::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn names_are_found_until_they_expire_or_are_removed() {
        let (cache, counters) = (NameCache::new(100), Counters::default());
        let (dir, file) = (InodeId(1), Meaning::Inode(InodeId(7)));
        cache.insert(dir, name("a"), file, Expiry::Never, &counters);
        cache.insert(dir, name("b"), Meaning::Missing, Expiry::Never, &counters);
        cache.insert(dir, name("c"), file, Expiry::Expired, &counters);
        assert_eq!(cache.find(dir, name("a")).unwrap().0, file);
        assert_eq!(cache.find(dir, name("b")).unwrap().0, Meaning::Missing);
        assert!(cache.find(dir, name("c")).is_none());
        assert!(cache.find(InodeId(2), name("a")).is_none());
        cache.remove(dir, name("a"));
        assert!(cache.find(dir, name("a")).is_none());
        cache.remove_directory(dir);
        assert_eq!(cache.count(), 0);
    }

    #[test]
    fn the_limit_holds_and_used_names_stay_longer() {
        let (cache, counters) = (NameCache::new(100), Counters::default());
        let (dir, file) = (InodeId(1), Meaning::Inode(InodeId(7)));
        cache.insert(dir, name("hot"), file, Expiry::Never, &counters);
        for at in 0..10_000 {
            cache.insert(dir, name(&format!("n{at}")), file, Expiry::Never, &counters);
            assert!(cache.find(dir, name("hot")).is_some(), "evicted after {at}");
        }
        assert!(cache.count() <= 101, "{} names", cache.count());
        assert!(counters.names_evicted.total() >= 9_800);
    }

    #[test]
    fn names_that_come_and_go_leave_no_garbage_behind() {
        let (cache, counters) = (NameCache::new(100), Counters::default());
        for at in 0..10_000u64 {
            let text = format!("n{at}");
            cache.insert(InodeId(1), name(&text), Meaning::Missing, Expiry::Never, &counters);
            cache.remove(InodeId(1), name(&text));
        }
        let garbage: usize = cache.shards.iter().map(|shard| shard.lock().clock.len()).sum();
        assert!(cache.count() == 0 && garbage <= 201, "{garbage} dead keys");
    }
}
