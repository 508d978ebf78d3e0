//! From paths to dentries: a file system's use of its dentry cache.
//!
//! # Boundary
//! The loads drive [`System`]. [`Cached`] implements it over any [`Dcache`] like Linux 2.4
//! (`fs/namei.c`), with [`Store`] in the place of the disk: names and inode numbers, nothing else.
//! The product implements it by itself in [`super::product`].
//!
//! # Concurrency
//! First lookups and changes hold the directory's `i_sem`. Then the routines of the dcache take
//! their locks, then the store its own.

use super::api::{Dcache, Start, Walked, next_component};
use super::audit::audit;
use super::sites;
use super::slab::{Id, Wanted};
use std::collections::HashMap;
use std::time::Duration;
use uvfs_concurrent::lock::{LockClass, Mutex, MutexGuard, RwLock};
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering};

/// The root's inode number.
pub(super) const ROOT: u64 = 1;
const SHARDS: usize = 64;
/// Pushed over the inode number, in place of a mode.
const DIRECTORY: u64 = 1 << 63;

static STORE: LockClass = LockClass::new(450, "store", "one shard of the names behind the dcache");

/// A file system as the loads see it. Paths are relative to its root.
pub(super) trait System: Send + Sync {
    /// An open file; closed by [`System::close`].
    fn open(&self, path: &[u8]) -> Option<Open>;
    /// Ends an open.
    fn close(&self, open: Open);
    /// Whether there is something at `path`.
    fn stat(&self, path: &[u8]) -> bool;
    /// Creates and opens a file; false, and nothing open, if it existed.
    fn create(&self, path: &[u8]) -> Option<Open>;
    /// Makes a directory.
    fn create_directory(&self, path: &[u8]) -> bool;
    /// Removes a file.
    fn remove(&self, path: &[u8]) -> bool;
    /// Removes an empty directory.
    fn remove_directory(&self, path: &[u8]) -> bool;
    /// Renames a file within its directory, perhaps over another one.
    fn rename(&self, from: &[u8], to: &[u8]) -> bool;
    /// How many names a directory holds.
    fn list(&self, path: &[u8]) -> Option<usize>;
    /// Drops all unused entries of the cache.
    fn forget(&self);
    /// Whether the cache is consistent, with nothing open.
    ///
    /// # Errors
    /// Describes the inconsistency.
    fn audit(&self) -> Result<(), String>;
    /// The interval for calls of [`System::tick`].
    fn period(&self) -> Option<Duration> {
        None
    }
    /// Periodic work.
    fn tick(&self) {}
}

/// An open file of some [`System`].
#[derive(Debug)]
pub(super) enum Open {
    /// A reference to a dentry of a variant.
    Dentry(Id),
    /// A file of the product.
    File(#[allow(dead_code, reason = "held until closed")] uvfs_vfs::File),
}

/// Names of a directory.
type Names = HashMap<Box<[u8]>, u64>;

/// All names, by directory. A miss asks it.
#[derive(Debug)]
struct Store {
    shards: [RwLock<HashMap<u64, Names>>; SHARDS],
    next: AtomicU64,
}

impl Store {
    fn new() -> Self {
        let shards = std::array::from_fn(|_| RwLock::new(&STORE, HashMap::new()));
        let store = Self { shards, next: AtomicU64::new(ROOT + 1) };
        store.shard(ROOT | DIRECTORY).write().insert(ROOT | DIRECTORY, Names::new());
        store
    }

    fn shard(&self, directory: u64) -> &RwLock<HashMap<u64, Names>> {
        &self.shards[directory as usize % SHARDS]
    }

    /// The inode of a name, 0 if there is none.
    fn find(&self, directory: u64, name: &[u8]) -> u64 {
        let shard = self.shard(directory).read();
        shard.get(&directory).and_then(|names| names.get(name)).copied().unwrap_or(0)
    }

    fn count(&self, directory: u64) -> Option<usize> {
        Some(self.shard(directory).read().get(&directory)?.len())
    }

    fn add(&self, directory: u64, name: &[u8], kind: u64) -> u64 {
        // ORDERING: Relaxed; only that numbers differ matters.
        let inode = self.next.fetch_add(1, Ordering::Relaxed) | kind;
        if kind == DIRECTORY {
            self.shard(inode).write().insert(inode, Names::new());
        }
        self.put(directory, name, inode);
        inode
    }

    fn put(&self, directory: u64, name: &[u8], inode: u64) {
        if let Some(names) = self.shard(directory).write().get_mut(&directory) {
            names.insert(name.into(), inode);
        }
    }

    fn remove(&self, directory: u64, name: &[u8]) -> u64 {
        let mut shard = self.shard(directory).write();
        shard.get_mut(&directory).and_then(|names| names.remove(name)).unwrap_or(0)
    }

    fn remove_directory(&self, inode: u64) {
        self.shard(inode).write().remove(&inode);
    }
}

/// The root as a dentry cache sees it.
pub(super) const ROOT_INODE: u64 = ROOT | DIRECTORY;

/// A file system over a dentry cache.
#[derive(Debug)]
pub(super) struct Cached<D> {
    pub(super) dcache: D,
    i_sem: [Mutex<()>; SHARDS],
    store: Store,
}

impl<D: Dcache> Cached<D> {
    /// An empty file system.
    pub(super) fn new(dcache: D) -> Self {
        let i_sem = std::array::from_fn(|_| Mutex::new(&sites::I_SEM, ()));
        Self { dcache, i_sem, store: Store::new() }
    }

    fn inode(&self, id: Id) -> u64 {
        self.dcache.slab().at(id).inode()
    }

    fn i_sem(&self, directory: Id) -> MutexGuard<'_, ()> {
        sites::i_sem(&self.i_sem[directory.shard(SHARDS)])
    }

    /// Follows `path`; a reference, perhaps to a negative dentry.
    fn walk(&self, path: &[u8]) -> Option<Id> {
        let (mut start, mut path) = (Start::Root, path);
        loop {
            match self.dcache.walk(start, path) {
                Walked::At(id) => return Some(id),
                Walked::NoEntry => return None,
                Walked::Missing { directory, name, rest } => {
                    let found = {
                        let _i_sem = self.i_sem(directory);
                        self.lookup_hash(directory, name)
                    };
                    self.dcache.dput(directory);
                    if self.inode(found) == 0 && next_component(rest).is_some() {
                        self.dcache.dput(found);
                        return None;
                    }
                    (start, path) = (Start::Held(found), rest);
                }
            }
        }
    }

    /// Looks a name up in the cache, then in the store. The caller holds the `i_sem`. As Linux
    /// `lookup_hash` and the second half of `real_lookup`.
    fn lookup_hash(&self, directory: Id, name: &[u8]) -> Id {
        let wanted = Wanted::new(directory, name);
        if let Some(id) = self.dcache.d_lookup(&wanted) {
            return id;
        }
        let id = self.dcache.d_alloc(&wanted);
        self.dcache.d_add(id, self.store.find(self.inode(directory), name));
        id
    }

    /// Runs `change` with the directory of `path` and its last name, under the `i_sem`.
    fn in_directory<R>(&self, path: &[u8], change: impl FnOnce(Id, u64, &[u8]) -> R) -> Option<R> {
        let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let (above, name) = path.split_at(slash);
        let name = name.strip_prefix(b"/").unwrap_or(name);
        let directory = self.walk(above)?;
        let inode = self.inode(directory);
        let result = (inode & DIRECTORY != 0).then(|| {
            let _i_sem = self.i_sem(directory);
            change(directory, inode, name)
        });
        self.dcache.dput(directory);
        result
    }

    fn make(&self, path: &[u8], kind: u64) -> Option<Id> {
        self.in_directory(path, |directory, inode, name| {
            let id = self.lookup_hash(directory, name);
            if self.inode(id) != 0 {
                self.dcache.dput(id);
                return None;
            }
            self.dcache.d_instantiate(id, self.store.add(inode, name, kind));
            Some(id)
        })?
    }
}

impl<D: Dcache> System for Cached<D> {
    fn open(&self, path: &[u8]) -> Option<Open> {
        let id = self.walk(path)?;
        if self.inode(id) == 0 {
            self.dcache.dput(id);
            return None;
        }
        Some(Open::Dentry(id))
    }

    fn close(&self, open: Open) {
        if let Open::Dentry(id) = open {
            self.dcache.dput(id);
        }
    }

    fn stat(&self, path: &[u8]) -> bool {
        self.walk(path).is_some_and(|id| {
            let there = self.inode(id) != 0;
            self.dcache.dput(id);
            there
        })
    }

    fn create(&self, path: &[u8]) -> Option<Open> {
        self.make(path, 0).map(Open::Dentry)
    }

    fn create_directory(&self, path: &[u8]) -> bool {
        self.make(path, DIRECTORY).is_some_and(|id| {
            self.dcache.dput(id);
            true
        })
    }

    fn remove(&self, path: &[u8]) -> bool {
        let removed = self.in_directory(path, |directory, inode, name| {
            let id = self.lookup_hash(directory, name);
            let there = self.inode(id) != 0 && self.inode(id) & DIRECTORY == 0;
            if there {
                self.store.remove(inode, name);
                self.dcache.d_delete(id);
            }
            self.dcache.dput(id);
            there
        });
        removed == Some(true)
    }

    fn remove_directory(&self, path: &[u8]) -> bool {
        let removed = self.in_directory(path, |directory, inode, name| {
            let id = self.lookup_hash(directory, name);
            let empty = self.store.count(self.inode(id)) == Some(0);
            if empty {
                self.dcache.shrink_dcache_parent(id);
                self.dcache.d_unhash(id);
                self.store.remove(inode, name);
                self.store.remove_directory(self.inode(id));
                self.dcache.d_delete(id);
            }
            self.dcache.dput(id);
            empty
        });
        removed == Some(true)
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> bool {
        let slash = to.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (above, to_name) = to.split_at(slash);
        assert!(from.starts_with(above) && !from[slash..].contains(&b'/'), "one directory");
        let renamed = self.in_directory(from, |directory, inode, name| {
            let id = self.lookup_hash(directory, name);
            let file = self.inode(id) != 0 && self.inode(id) & DIRECTORY == 0;
            if file && name != to_name {
                let target = self.lookup_hash(directory, to_name);
                self.store.put(inode, to_name, self.store.remove(inode, name));
                self.dcache.d_move(id, target);
                self.dcache.dput(target);
            }
            self.dcache.dput(id);
            file
        });
        renamed == Some(true)
    }

    fn list(&self, path: &[u8]) -> Option<usize> {
        let id = self.walk(path)?;
        let count = self.store.count(self.inode(id));
        self.dcache.dput(id);
        count
    }

    fn forget(&self) {
        self.dcache.shrink_dcache_parent(self.dcache.root());
    }

    fn audit(&self) -> Result<(), String> {
        audit(&self.dcache)
    }

    fn period(&self) -> Option<Duration> {
        self.dcache.period()
    }

    fn tick(&self) {
        self.dcache.tick();
    }
}
