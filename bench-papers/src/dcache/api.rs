//! A directory-entry cache, in the routines of Linux 2.4.
//!
//! # Boundary
//! The trait that every variant implements, and the walk by references that most of them share.
//! Routines with the same locking in all variants are written here once, as default methods. Knows
//! no file system: [`super::paths`] resolves misses.
//!
//! # Concurrency
//! A reference (`d_count`) keeps its dentry and all dentries above it. A caller of `d_alloc`,
//! `d_add`, `d_instantiate`, `d_delete` or `d_move` holds the `i_sem` of the directory.
//!
//! # Why
//! The steps of the paper are patches to these routines; with their names a reader can compare the
//! paper, its patches and this file.

use super::lists::HasTree;
use super::sites;
use super::slab::{Id, Slab, Wanted};
use std::time::Duration;
use uvfs_concurrent::lock::Mutex;

/// Dentries that one shortage of room prunes.
const PRUNE_BATCH: usize = 32;

/// Where a walk begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// At the root, which is always held; the walk takes references of its own.
    Root,
    /// At a dentry that the caller holds; the walk takes that reference over.
    Held(Id),
}

/// How far a walk came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Walked<'p> {
    /// To the end. The caller gets a reference; the dentry may be negative.
    At(Id),
    /// To a name that is not cached, with a reference to the directory.
    Missing { directory: Id, name: &'p [u8], rest: &'p [u8] },
    /// Through a negative dentry: the path leads nowhere.
    NoEntry,
}

/// A directory-entry cache.
pub(super) trait Dcache: Send + Sync {
    /// The lists that the `dcache_lock` protects here.
    type Lists: HasTree;

    /// The dentries.
    fn slab(&self) -> &Slab;

    /// The root, held for ever.
    fn root(&self) -> Id;

    /// The global lock.
    fn dcache_lock(&self) -> &Mutex<Self::Lists>;

    /// Most dentries before some are pruned.
    fn entries_max(&self) -> usize;

    /// Finds a child and takes a reference to it.
    fn d_lookup(&self, wanted: &Wanted) -> Option<Id>;

    /// Gives a reference back.
    fn dput(&self, id: Id);

    /// Drops up to `count` unused dentries, the least recently used first; how many it dropped.
    fn prune_dcache(&self, count: usize) -> usize;

    /// Drops the unused dentries below `parent`.
    fn shrink_dcache_parent(&self, parent: Id);

    /// Unlinks a name that was removed: the dentry becomes negative, or is unhashed if others use it.
    fn d_delete(&self, id: Id);

    /// Moves `id` to the name of `target`, which is unhashed.
    fn d_move(&self, id: Id, target: Id);

    /// Dentries in the list of unused ones. For audits without concurrent changes.
    fn lru_count(&self) -> usize;

    /// Links a dentry into its chain.
    fn d_rehash(&self, id: Id) {
        let _lists = sites::d_rehash(self.dcache_lock());
        self.slab().link(id);
    }

    /// Takes a directory's dentry out of its chain before the directory is removed.
    fn d_unhash(&self, id: Id) {
        let _lists = sites::d_unhash(self.dcache_lock());
        self.slab().unlink(id);
    }

    /// A further reference to a dentry that the caller holds.
    fn dget(&self, id: Id) {
        let before = self.slab().at(id).hold();
        debug_assert!(before > 0);
    }

    /// A new negative dentry, unhashed, with a reference for the caller.
    fn d_alloc(&self, wanted: &Wanted) -> Id {
        let id = self.slab().alloc(wanted);
        self.dget(wanted.parent);
        let count = {
            let mut lists = sites::d_alloc(self.dcache_lock());
            lists.tree().add(self.slab(), id);
            lists.tree().count()
        };
        if count > self.entries_max() {
            self.prune_dcache(PRUNE_BATCH);
        }
        id
    }

    /// Makes a dentry that of `inode`; 0 for negative.
    fn d_instantiate(&self, id: Id, inode: u64) {
        let _lists = sites::d_instantiate(self.dcache_lock());
        self.slab().at(id).set_inode(inode);
    }

    /// Both for a dentry from `d_alloc`.
    fn d_add(&self, id: Id, inode: u64) {
        self.d_instantiate(id, inode);
        self.d_rehash(id);
    }

    /// Follows `path` through the cache.
    fn walk<'p>(&self, start: Start, path: &'p [u8]) -> Walked<'p> {
        walk_by_references(self, start, path)
    }

    /// The interval for calls of [`Dcache::tick`].
    fn period(&self) -> Option<Duration> {
        None
    }

    /// Periodic work.
    fn tick(&self) {}
}

/// Takes the first component of `path` off.
pub(super) fn next_component(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = path.iter().position(|byte| *byte != b'/')?;
    let path = &path[start..];
    let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
    Some((&path[..end], &path[end..]))
}

/// The walk of Linux 2.4 `link_path_walk`: a reference to every dentry on the way, one at a time.
pub(super) fn walk_by_references<'p, D: Dcache + ?Sized>(
    cache: &D,
    start: Start,
    path: &'p [u8],
) -> Walked<'p> {
    let mut at = match start {
        Start::Held(id) => id,
        Start::Root => {
            cache.dget(cache.root());
            cache.root()
        }
    };
    let mut rest = path;
    while let Some((name, after)) = next_component(rest) {
        let next = match name {
            b"." => {
                rest = after;
                continue;
            }
            b".." => follow_dotdot(cache, at),
            _ => match cache.d_lookup(&Wanted::new(at, name)) {
                Some(next) => next,
                None => return Walked::Missing { directory: at, name, rest: after },
            },
        };
        cache.dput(at);
        if cache.slab().at(next).inode() == 0 && next_component(after).is_some() {
            cache.dput(next);
            return Walked::NoEntry;
        }
        (at, rest) = (next, after);
    }
    Walked::At(at)
}

/// A reference to the directory above, or to the root itself.
fn follow_dotdot<D: Dcache + ?Sized>(cache: &D, at: Id) -> Id {
    let _lists = sites::link_path_walk(cache.dcache_lock());
    let above = cache.slab().at(at).parent().filter(|_| at != cache.root()).unwrap_or(at);
    cache.dget(above);
    above
}
