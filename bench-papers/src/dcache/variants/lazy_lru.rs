//! `lazy-lru-timer` and `lazy-lru-traversal`: lookups leave the LRU list alone.
//!
//! # Concurrency
//! C1. Chains, children and the LRU list change only under `dcache_lock`.
//! C2. A count leaves 0 only under the dentry's `d_lock`, and only while the dentry is hashed. It
//!     arrives at 0 only under `dcache_lock`.
//! C3. A dentry with count 0 is unhashed only under `dcache_lock` and its `d_lock`; after that its
//!     count stays 0 and the thread that unhashed it frees it.
//! C4. Whenever `dcache_lock` is free, every hashed dentry with count 0 is in the list. Others may
//!     be in it, too, until the list is brought up to date.
//!
//! # Why
//! Section 6, the paper's choice. A lookup takes no global lock at all. The routines are those that
//! Linux 2.5.62 took from this patch. A timer (6.1) or the thread that traverses the list (6.2)
//! removes used dentries from it.

use super::super::api::Dcache;
use super::super::lists::Lists;
use super::super::sites;
use super::super::slab::{Grace, Id, Slab, Wanted};
use std::time::Duration;
use uvfs_concurrent::epoch;
use uvfs_concurrent::lock::Mutex;

/// When used dentries leave the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Update {
    /// Every [`TICK`], and when a thread traverses the list.
    Timer,
    /// When a thread traverses the list.
    Traversal,
}

/// One jiffy at the 100 Hz of Linux 2.4 on x86.
const TICK: Duration = Duration::from_millis(10);

/// A dentry cache with a lazy LRU list.
#[derive(Debug)]
pub(in super::super) struct LazyLru {
    slab: Slab,
    root: Id,
    dcache_lock: Mutex<Lists>,
    entries_max: usize,
    update: Update,
}

impl LazyLru {
    /// A cache for about `entries_max` dentries below `root_inode`.
    pub(in super::super) fn new(entries_max: usize, root_inode: u64, update: Update) -> Self {
        let slab = Slab::new(entries_max, Grace::Epoch);
        let root = slab.root(root_inode);
        let dcache_lock = Mutex::new(&sites::DCACHE_LOCK, Lists::default());
        Self { slab, root, dcache_lock, entries_max, update }
    }

    /// Takes a reference to a dentry that was found without a lock (C2). `None` if it is no longer
    /// the wanted one.
    fn dget_found(&self, id: Id, wanted: &Wanted) -> Option<Id> {
        let dentry = self.slab.at(id);
        let _d_lock = sites::d_lookup(&dentry.d_lock);
        if !dentry.hashed.get() || !dentry.is(wanted) {
            return None;
        }
        dentry.hold();
        dentry.referenced.raise();
        Some(id)
    }

    fn d_lookup_locked(&self, wanted: &Wanted) -> Option<Id> {
        let _lists = sites::d_lookup(&self.dcache_lock);
        self.dget_found(self.slab.find(wanted)?, wanted)
    }

    fn unlink(&self, id: Id) {
        let _d_lock = sites::d_drop(&self.slab.at(id).d_lock);
        self.slab.unlink(id);
    }

    /// Takes an unused dentry out of everything. Under `dcache_lock`, after [`LazyLru::unhash`].
    fn kill(&self, lists: &mut Lists, id: Id) {
        lists.lru.remove(&self.slab, id);
        lists.tree.remove(&self.slab, id);
    }

    /// Unhashes a dentry that has been unused long enough (C3).
    fn unhash(&self, lists: &mut Lists, id: Id) -> bool {
        let dentry = self.slab.at(id);
        let _d_lock = sites::prune_one_dentry(&dentry.d_lock);
        // Lookups left it in the list: it is only taken off, its last user puts it back.
        if dentry.count() > 0 {
            return false;
        }
        if dentry.referenced.get() {
            dentry.referenced.set(false);
            lists.lru.push_first(&self.slab, id);
            return false;
        }
        self.slab.unlink(id);
        true
    }
}

impl Dcache for LazyLru {
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
        let _pin = epoch::pin();
        let Some(renames) = self.slab.renames() else { return self.d_lookup_locked(wanted) };
        let found = self.slab.find(wanted);
        // A dentry confirmed under its `d_lock` was there, whatever else moved.
        if let Some(id) = found.and_then(|id| self.dget_found(id, wanted)) {
            return Some(id);
        }
        match found.is_none() && self.slab.unmoved(renames) {
            true => None,
            false => self.d_lookup_locked(wanted),
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
            {
                let _d_lock = sites::dput(&dentry.d_lock);
                if dentry.count() > 0 {
                    return;
                }
                if dentry.hashed.get() {
                    if !dentry.on_lru.get() {
                        lists.lru.push_first(&self.slab, id);
                    }
                    return;
                }
            }
            next = dentry.parent();
            self.kill(&mut lists, id);
            drop(lists);
            self.slab.free(id);
        }
    }

    fn prune_dcache(&self, count: usize) -> usize {
        let mut dropped = 0;
        let mut lists = sites::prune_dcache(&self.dcache_lock);
        for _ in 0..count {
            let Some(id) = lists.lru.last() else { break };
            lists.lru.remove(&self.slab, id);
            if !self.unhash(&mut lists, id) {
                continue;
            }
            self.kill(&mut lists, id);
            drop(lists);
            let parent = self.slab.at(id).parent();
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
                    let _d_lock = sites::select_parent(&dentry.d_lock);
                    lists.lru.remove(&self.slab, id);
                    if dentry.count() == 0 && dentry.hashed.get() {
                        dentry.referenced.set(false);
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
            let _d_lock = sites::d_delete(&dentry.d_lock);
            if dentry.count() == 1 {
                dentry.set_inode(0);
                return;
            }
        }
        let _lists = sites::d_drop(&self.dcache_lock);
        self.unlink(id);
    }

    fn d_unhash(&self, id: Id) {
        let _lists = sites::d_unhash(&self.dcache_lock);
        self.unlink(id);
    }

    fn d_move(&self, id: Id, target: Id) {
        let mut lists = sites::d_move(&self.dcache_lock);
        self.slab.renaming(|| {
            // Each is unhashed under its `d_lock`: no lookup can confirm it while its name changes.
            self.unlink(id);
            self.unlink(target);
            lists.tree.remove(&self.slab, id);
            lists.tree.remove(&self.slab, target);
            self.slab.exchange_names(id, target);
            lists.tree.add(&self.slab, id);
            lists.tree.add(&self.slab, target);
            self.slab.link(id);
        });
    }

    fn lru_count(&self) -> usize {
        self.tick();
        sites::audit(&self.dcache_lock).lru.count()
    }

    fn period(&self) -> Option<Duration> {
        (self.update == Update::Timer).then_some(TICK)
    }

    fn tick(&self) {
        let mut lists = sites::timer(&self.dcache_lock);
        let all: Vec<Id> = lists.lru.all(&self.slab).collect();
        for id in all {
            let dentry = self.slab.at(id);
            let _d_lock = sites::timer(&dentry.d_lock);
            if dentry.count() > 0 {
                lists.lru.remove(&self.slab, id);
            }
        }
    }
}
