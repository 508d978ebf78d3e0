//! `separate-lru`: lock-free hash lookup, and a separate lock for the LRU list.
//!
//! # Concurrency
//! C1. Chains and children change only under `dcache_lock`, the LRU list only under `d_lru_lock`. A
//!     thread that needs both takes them in that order.
//! C2. A count leaves 0 and arrives at 0 only under `d_lru_lock`; so whenever that lock is free,
//!     the hashed dentries in the list are exactly those with count 0.
//! C3. An unused dentry is unhashed only under both locks. A lookup that holds `d_lru_lock` and
//!     finds its dentry hashed may therefore take it; one that finds it unhashed looks again.
//!
//! # Why
//! Section 5. In the paper most of the load moved to the new lock.

use super::super::api::Dcache;
use super::super::lists::{Lru, Tree};
use super::super::sites;
use super::super::slab::{Grace, Id, Slab, Wanted};
use uvfs_concurrent::epoch;
use uvfs_concurrent::lock::Mutex;

/// A dentry cache with two locks.
#[derive(Debug)]
pub(in super::super) struct SeparateLru {
    slab: Slab,
    root: Id,
    dcache_lock: Mutex<Tree>,
    d_lru_lock: Mutex<Lru>,
    entries_max: usize,
}

impl SeparateLru {
    /// A cache for about `entries_max` dentries below `root_inode`.
    pub(in super::super) fn new(entries_max: usize, root_inode: u64) -> Self {
        let slab = Slab::new(entries_max, Grace::Epoch);
        let root = slab.root(root_inode);
        Self {
            slab,
            root,
            dcache_lock: Mutex::new(&sites::DCACHE_LOCK, Tree::default()),
            d_lru_lock: Mutex::new(&sites::D_LRU_LOCK, Lru::default()),
            entries_max,
        }
    }

    /// Takes a reference to a dentry that was found without a lock. `None` if it was unhashed.
    fn dget_found(&self, id: Id) -> Option<Id> {
        let dentry = self.slab.at(id);
        if !dentry.hold_if_held() {
            let mut lru = sites::d_lookup(&self.d_lru_lock);
            if !dentry.hashed.get() {
                return None;
            }
            if dentry.hold() == 0 {
                lru.remove(&self.slab, id);
            }
        }
        dentry.referenced.raise();
        Some(id)
    }

    /// For a lookup that saw a rename: while the `dcache_lock` is held there is none, and the found
    /// dentry stays hashed.
    fn d_lookup_locked(&self, wanted: &Wanted) -> Option<Id> {
        let _tree = sites::d_lookup(&self.dcache_lock);
        self.dget_found(self.slab.find(wanted)?)
    }
}

impl Dcache for SeparateLru {
    type Lists = Tree;

    fn slab(&self) -> &Slab {
        &self.slab
    }

    fn root(&self) -> Id {
        self.root
    }

    fn dcache_lock(&self) -> &Mutex<Tree> {
        &self.dcache_lock
    }

    fn entries_max(&self) -> usize {
        self.entries_max
    }

    fn d_lookup(&self, wanted: &Wanted) -> Option<Id> {
        let _pin = epoch::pin();
        let Some(renames) = self.slab.renames() else { return self.d_lookup_locked(wanted) };
        let found = self.slab.find(wanted);
        let held = found.and_then(|id| self.dget_found(id));
        if self.slab.unmoved(renames) && found.is_some() == held.is_some() {
            return held;
        }
        held.into_iter().for_each(|id| self.dput(id));
        self.d_lookup_locked(wanted)
    }

    fn dput(&self, id: Id) {
        let mut next = Some(id);
        while let Some(id) = next {
            let dentry = self.slab.at(id);
            if dentry.release_if_not_last() {
                return;
            }
            {
                let mut lru = sites::dput(&self.d_lru_lock);
                if dentry.release() != 1 {
                    return;
                }
                if dentry.hashed.get() {
                    lru.push_first(&self.slab, id);
                    return;
                }
            }
            // Unhashed and unused: no thread can find it any more (C3).
            next = dentry.parent();
            sites::dput_kill(&self.dcache_lock).remove(&self.slab, id);
            self.slab.free(id);
        }
    }

    fn prune_dcache(&self, count: usize) -> usize {
        let mut dropped = 0;
        for _ in 0..count {
            let mut tree = sites::prune_dcache(&self.dcache_lock);
            let mut lru = sites::prune_dcache(&self.d_lru_lock);
            let Some(id) = lru.last() else { break };
            lru.remove(&self.slab, id);
            let dentry = self.slab.at(id);
            if dentry.referenced.get() {
                dentry.referenced.set(false);
                lru.push_first(&self.slab, id);
                continue;
            }
            self.slab.unlink(id);
            drop(lru);
            tree.remove(&self.slab, id);
            drop(tree);
            let parent = dentry.parent();
            self.slab.free(id);
            parent.into_iter().for_each(|parent| self.dput(parent));
            dropped += 1;
        }
        dropped
    }

    fn shrink_dcache_parent(&self, parent: Id) {
        loop {
            let mut found = 0;
            {
                let tree = sites::select_parent(&self.dcache_lock);
                let mut lru = sites::select_parent(&self.d_lru_lock);
                for id in tree.below(&self.slab, parent) {
                    let dentry = self.slab.at(id);
                    if dentry.count() == 0 && dentry.hashed.get() {
                        dentry.referenced.set(false);
                        lru.remove(&self.slab, id);
                        lru.push_last(&self.slab, id);
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
            let _tree = sites::d_delete(&self.dcache_lock);
            if dentry.count() == 1 {
                dentry.set_inode(0);
                return;
            }
        }
        let _tree = sites::d_drop(&self.dcache_lock);
        self.slab.unlink(id);
    }

    fn d_move(&self, id: Id, target: Id) {
        let mut tree = sites::d_move(&self.dcache_lock);
        self.slab.renaming(|| {
            self.slab.unlink(id);
            self.slab.unlink(target);
            tree.remove(&self.slab, id);
            tree.remove(&self.slab, target);
            self.slab.exchange_names(id, target);
            tree.add(&self.slab, id);
            tree.add(&self.slab, target);
            self.slab.link(id);
        });
    }

    fn lru_count(&self) -> usize {
        sites::audit(&self.d_lru_lock).count()
    }
}
