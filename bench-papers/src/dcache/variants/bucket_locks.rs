//! `bucket-locks`: a lock per hash chain, which also protects a list of the unused dentries in it.
//!
//! # Concurrency
//! C1. A chain and its LRU list change only under the bucket's lock, children only under
//!     `dcache_lock`. A thread that needs both takes them in that order; no thread holds two
//!     buckets.
//! C2. A count leaves 0 and arrives at 0 only under the lock of its dentry's bucket; so whenever
//!     that lock is free, the hashed dentries with count 0 in the chain are exactly those in its
//!     list.
//! C3. A rename moves a dentry that it holds from one bucket to another, one lock after the other.
//!     A dentry's hash changes only under the bucket that it leaves: a thread that locked the
//!     bucket of an old hash locks again. A lookup that saw a rename and found nothing looks again
//!     under `dcache_lock`.
//!
//! # Why
//! Section 4, which the paper abandoned ([`super`] has the reason why it works here). Weakness:
//! pruning visits the buckets in turn, so "least recently used" holds only within each.

use super::super::api::Dcache;
use super::super::lists::{Lru, Tree};
use super::super::sites;
use super::super::slab::{Grace, Id, Slab, Wanted};
use uvfs_concurrent::lock::{Mutex, MutexGuard};
use uvfs_concurrent::primitive::atomic::{AtomicUsize, Ordering};

/// A dentry cache with a lock per chain.
#[derive(Debug)]
pub(in super::super) struct BucketLocks {
    slab: Slab,
    root: Id,
    dcache_lock: Mutex<Tree>,
    buckets: Box<[Mutex<Lru>]>,
    /// The bucket that is pruned next.
    hand: AtomicUsize,
    entries_max: usize,
}

/// The result for one bucket's least recently used dentry.
enum Pruned {
    Nothing,
    SecondRound,
    Dropped,
}

impl BucketLocks {
    /// A cache for about `entries_max` dentries below `root_inode`.
    pub(in super::super) fn new(entries_max: usize, root_inode: u64) -> Self {
        let slab = Slab::new(entries_max, Grace::None);
        let root = slab.root(root_inode);
        let bucket = |_| Mutex::new(&sites::BUCKET, Lru::default());
        Self {
            buckets: (0..slab.chains()).map(bucket).collect(),
            slab,
            root,
            dcache_lock: Mutex::new(&sites::DCACHE_LOCK, Tree::default()),
            hand: AtomicUsize::new(0),
            entries_max,
        }
    }

    fn bucket(&self, hash: u64) -> &Mutex<Lru> {
        &self.buckets[self.slab.chain(hash)]
    }

    /// Locks the bucket that `id` belongs to (C3).
    fn lock_bucket<'a>(
        &'a self,
        id: Id,
        site: impl Fn(&'a Mutex<Lru>) -> MutexGuard<'a, Lru>,
    ) -> MutexGuard<'a, Lru> {
        loop {
            let hash = self.slab.at(id).hash();
            let bucket = site(self.bucket(hash));
            if self.slab.at(id).hash() == hash {
                return bucket;
            }
        }
    }

    fn d_lookup_in_bucket(&self, wanted: &Wanted) -> Option<Id> {
        let mut lru = sites::d_lookup(self.bucket(wanted.hash));
        let id = self.slab.find(wanted)?;
        let dentry = self.slab.at(id);
        if dentry.hold() == 0 {
            lru.remove(&self.slab, id);
        }
        dentry.referenced.raise();
        Some(id)
    }

    fn prune_bucket(&self, bucket: &Mutex<Lru>) -> Pruned {
        // A look first, so that an empty bucket does not cost the global lock.
        if sites::prune_dcache(bucket).last().is_none() {
            return Pruned::Nothing;
        }
        let mut tree = sites::prune_one_dentry(&self.dcache_lock);
        let mut lru = sites::prune_one_dentry(bucket);
        let Some(id) = lru.last() else { return Pruned::Nothing };
        lru.remove(&self.slab, id);
        let dentry = self.slab.at(id);
        if dentry.referenced.get() {
            dentry.referenced.set(false);
            lru.push_first(&self.slab, id);
            return Pruned::SecondRound;
        }
        self.slab.unlink(id);
        tree.remove(&self.slab, id);
        drop((lru, tree));
        let parent = dentry.parent();
        self.slab.free(id);
        parent.into_iter().for_each(|parent| self.dput(parent));
        Pruned::Dropped
    }

    fn unlink(&self, id: Id) {
        let _lru = self.lock_bucket(id, sites::d_drop);
        self.slab.unlink(id);
    }
}

impl Dcache for BucketLocks {
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
        let renames = self.slab.renames();
        if let Some(id) = self.d_lookup_in_bucket(wanted) {
            return Some(id);
        }
        if renames.is_some_and(|renames| self.slab.unmoved(renames)) {
            return None;
        }
        let _tree = sites::d_lookup(&self.dcache_lock);
        self.d_lookup_in_bucket(wanted)
    }

    fn dput(&self, id: Id) {
        let mut next = Some(id);
        while let Some(id) = next {
            let dentry = self.slab.at(id);
            if dentry.release_if_not_last() {
                return;
            }
            {
                let mut lru = self.lock_bucket(id, sites::dput);
                if dentry.release() != 1 {
                    return;
                }
                if dentry.hashed.get() {
                    lru.push_first(&self.slab, id);
                    return;
                }
            }
            next = dentry.parent();
            sites::dput_kill(&self.dcache_lock).remove(&self.slab, id);
            self.slab.free(id);
        }
    }

    fn prune_dcache(&self, count: usize) -> usize {
        let (mut dropped, mut seen, mut idle) = (0, 0, 0);
        while seen < count && idle < self.buckets.len() {
            // ORDERING: Relaxed; no other data depends on the next bucket.
            let at = self.hand.fetch_add(1, Ordering::Relaxed) % self.buckets.len();
            match self.prune_bucket(&self.buckets[at]) {
                Pruned::Nothing => idle += 1,
                Pruned::SecondRound => seen += 1,
                Pruned::Dropped => {
                    seen += 1;
                    dropped += 1;
                }
            }
        }
        dropped
    }

    fn shrink_dcache_parent(&self, parent: Id) {
        loop {
            let unused: Vec<Id> = {
                let tree = sites::select_parent(&self.dcache_lock);
                let mut all = tree.below(&self.slab, parent);
                all.retain(|id| {
                    let dentry = self.slab.at(*id);
                    let mut lru = self.lock_bucket(*id, sites::select_parent);
                    let unused = dentry.count() == 0 && dentry.on_lru.get();
                    if unused {
                        dentry.referenced.set(false);
                        lru.remove(&self.slab, *id);
                        lru.push_last(&self.slab, *id);
                    }
                    unused
                });
                all
            };
            let mut dropped = false;
            for id in unused {
                let bucket = self.bucket(self.slab.at(id).hash());
                dropped |= matches!(self.prune_bucket(bucket), Pruned::Dropped);
            }
            if !dropped {
                return;
            }
        }
    }

    fn d_rehash(&self, id: Id) {
        let _lru = self.lock_bucket(id, sites::d_rehash);
        self.slab.link(id);
    }

    fn d_unhash(&self, id: Id) {
        let _lru = self.lock_bucket(id, sites::d_unhash);
        self.slab.unlink(id);
    }

    fn d_delete(&self, id: Id) {
        let dentry = self.slab.at(id);
        {
            let _lru = self.lock_bucket(id, sites::d_delete);
            if dentry.count() == 1 {
                dentry.set_inode(0);
                return;
            }
        }
        self.unlink(id);
    }

    fn d_move(&self, id: Id, target: Id) {
        let mut tree = sites::d_move(&self.dcache_lock);
        tree.remove(&self.slab, id);
        tree.remove(&self.slab, target);
        let (old, new) = (self.slab.at(id).name(), self.slab.at(target).name());
        // The hash of a dentry changes only under the bucket that it leaves (C3).
        self.slab.renaming(|| {
            {
                let _lru = sites::d_move(self.bucket(old.hash));
                self.slab.unlink(id);
                self.slab.at(id).set_name(&new);
            }
            let _lru = sites::d_move(self.bucket(new.hash));
            self.slab.unlink(target);
            self.slab.at(target).set_name(&old);
            self.slab.link(id);
        });
        tree.add(&self.slab, id);
        tree.add(&self.slab, target);
    }

    fn lru_count(&self) -> usize {
        self.buckets.iter().map(|bucket| sites::audit(bucket).count()).sum()
    }
}
