//! `global-lock`: the dentry cache of Linux 2.4.16, one lock for everything.
//!
//! # Concurrency
//! C1. Chains, children and the LRU list change only under `dcache_lock`.
//! C2. A count leaves 0 and arrives at 0 only under `dcache_lock`; so whenever that lock is free,
//!     the dentries in the LRU list are exactly those with count 0.
//!
//! # Why
//! `rcu-hash` and `fast-walk` each replace one routine of this cache, as the patches did; their
//! files hold that routine.

use super::super::api::{Dcache, Start, Walked, walk_by_references};
use super::super::lists::Lists;
use super::super::sites;
use super::super::slab::{Grace, Id, Slab, Wanted};
use uvfs_concurrent::lock::Mutex;

/// How `d_lookup` finds a dentry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Lookup {
    /// Under the `dcache_lock`.
    Locked,
    /// Without it: [`super::rcu_hash`].
    LockFree,
}

/// How a path is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Walk {
    /// With a reference to each dentry.
    References,
    /// Under one hold of the lock: [`super::fast_walk`].
    UnderLock,
}

/// A dentry cache under one lock.
#[derive(Debug)]
pub(in super::super) struct GlobalLock {
    pub(super) slab: Slab,
    pub(super) root: Id,
    pub(super) dcache_lock: Mutex<Lists>,
    entries_max: usize,
    lookup: Lookup,
    walk: Walk,
}

impl GlobalLock {
    /// A cache for about `entries_max` dentries below `root_inode`.
    pub(in super::super) fn new(
        entries_max: usize,
        root_inode: u64,
        lookup: Lookup,
        walk: Walk,
    ) -> Self {
        let grace = match lookup {
            Lookup::Locked => Grace::None,
            Lookup::LockFree => Grace::Epoch,
        };
        let slab = Slab::new(entries_max, grace);
        let root = slab.root(root_inode);
        let dcache_lock = Mutex::new(&sites::DCACHE_LOCK, Lists::default());
        Self { slab, root, dcache_lock, entries_max, lookup, walk }
    }

    /// Takes a reference under the lock (C2). Linux `__dget_locked`.
    pub(super) fn dget_locked(&self, lists: &mut Lists, id: Id) {
        let dentry = self.slab.at(id);
        if dentry.hold() == 0 {
            lists.lru.remove(&self.slab, id);
        }
        dentry.referenced.raise();
    }

    pub(super) fn d_lookup_locked(&self, wanted: &Wanted) -> Option<Id> {
        let mut lists = sites::d_lookup(&self.dcache_lock);
        let id = self.slab.find(wanted)?;
        self.dget_locked(&mut lists, id);
        Some(id)
    }
}

impl Dcache for GlobalLock {
    type Lists = Lists;

    fn slab(&self) -> &Slab {
        &self.slab
    }

    fn root(&self) -> Id {
        self.root
    }

    fn dcache_lock(&self) -> &Mutex<Lists> {
        &self.dcache_lock
    }

    fn entries_max(&self) -> usize {
        self.entries_max
    }

    fn d_lookup(&self, wanted: &Wanted) -> Option<Id> {
        match self.lookup {
            Lookup::Locked => self.d_lookup_locked(wanted),
            Lookup::LockFree => self.d_lookup_lock_free(wanted),
        }
    }

    fn walk<'p>(&self, start: Start, path: &'p [u8]) -> Walked<'p> {
        match (self.walk, start) {
            (Walk::UnderLock, Start::Root) => self.walk_under_lock(path),
            _ => walk_by_references(self, start, path),
        }
    }

    fn dput(&self, id: Id) {
        let mut next = Some(id);
        while let Some(id) = next {
            let dentry = self.slab.at(id);
            if dentry.release_if_not_last() {
                return;
            }
            let mut lists = sites::dput(&self.dcache_lock);
            if dentry.release() != 1 {
                return;
            }
            if dentry.hashed.get() {
                lists.lru.push_first(&self.slab, id);
                return;
            }
            next = dentry.parent();
            lists.tree.remove(&self.slab, id);
            drop(lists);
            self.slab.free(id);
        }
    }

    fn prune_dcache(&self, count: usize) -> usize {
        let mut dropped = 0;
        let mut lists = sites::prune_dcache(&self.dcache_lock);
        // Like Linux, a recently referenced dentry gets a second round, and that counts as one.
        for _ in 0..count {
            let Some(id) = lists.lru.last() else { break };
            lists.lru.remove(&self.slab, id);
            let dentry = self.slab.at(id);
            if dentry.referenced.get() {
                dentry.referenced.set(false);
                lists.lru.push_first(&self.slab, id);
                continue;
            }
            self.slab.unlink(id);
            lists.tree.remove(&self.slab, id);
            drop(lists);
            let parent = dentry.parent();
            self.slab.free(id);
            parent.into_iter().for_each(|parent| self.dput(parent));
            dropped += 1;
            lists = sites::prune_one_dentry(&self.dcache_lock);
        }
        dropped
    }

    fn shrink_dcache_parent(&self, parent: Id) {
        loop {
            let mut found = 0;
            {
                let mut lists = sites::select_parent(&self.dcache_lock);
                for id in lists.tree.below(&self.slab, parent) {
                    let dentry = self.slab.at(id);
                    if dentry.count() == 0 {
                        dentry.referenced.set(false);
                        lists.lru.remove(&self.slab, id);
                        lists.lru.push_last(&self.slab, id);
                        found += 1;
                    }
                }
            }
            if found == 0 || self.prune_dcache(found) == 0 {
                return;
            }
        }
    }

    fn d_delete(&self, id: Id) {
        let dentry = self.slab.at(id);
        {
            let _lists = sites::d_delete(&self.dcache_lock);
            if dentry.count() == 1 {
                dentry.set_inode(0);
                return;
            }
        }
        let _lists = sites::d_drop(&self.dcache_lock);
        self.slab.unlink(id);
    }

    fn d_move(&self, id: Id, target: Id) {
        let mut lists = sites::d_move(&self.dcache_lock);
        self.slab.renaming(|| {
            self.slab.unlink(id);
            self.slab.unlink(target);
            lists.tree.remove(&self.slab, id);
            lists.tree.remove(&self.slab, target);
            self.slab.exchange_names(id, target);
            lists.tree.add(&self.slab, id);
            lists.tree.add(&self.slab, target);
            self.slab.link(id);
        });
    }

    fn lru_count(&self) -> usize {
        sites::audit(&self.dcache_lock).lru.count()
    }
}
