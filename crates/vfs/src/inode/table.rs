//! The inode table: from id to cached inode, bounded.
//!
//! # Concurrency
//! One shard lock for a find or an insert. An inode leaves in three steps: its last hold makes it
//! inactive and queues it; `trim` retires it (exactly one thread wins, see
//! [`uvfs_concurrent::hold`]); the winner takes it out of the table and, with no lock held, gives
//! its references back to the backend. A lookup that meets a retired inode puts a new one in its
//! place: the backend counts references, so the two may overlap without either losing the object.
//!
//! # Why
//! Inactive inodes are kept in one queue with a second chance. Bad at: a scan of more inodes than
//! the limit still pushes out others that were used only once.

use super::{Expiry, Inode, Node, Ticket};
use crate::backend::{Entry, InodeId};
use crate::lock_order;
use crate::vfs::Core;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Relaxed},
};
use uvfs_concurrent::shard::Shards;

const SHARDS: usize = 64;

#[derive(Debug, Default)]
struct Shard {
    inodes: HashMap<InodeId, Arc<Inode>>,
    /// The latest change of an inode that has left this shard: an answer about it that was asked for
    /// earlier may still be on its way.
    changed: Ticket,
}

#[derive(Debug)]
pub(crate) struct InodeTable {
    shards: Shards<Shard>,
    inactive: Mutex<VecDeque<Arc<Inode>>>,
    count: AtomicUsize,
    limit: usize,
}

impl InodeTable {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            shards: Shards::new(&lock_order::INODES, SHARDS),
            inactive: Mutex::new(&lock_order::INACTIVE, VecDeque::new()),
            count: AtomicUsize::new(0),
            limit,
        }
    }

    /// The inode of `entry`, which carries one backend reference, with a hold for the caller.
    /// `ticket` was taken before the backend was asked.
    pub(crate) fn adopt(
        &self,
        core: &Arc<Core>,
        entry: &Entry,
        ticket: Ticket,
        expiry: Expiry,
    ) -> Node {
        let mut shard = self.shards.of(&entry.inode).lock();
        if let Some(inode) = shard.inodes.get(&entry.inode)
            && inode.kind == entry.attributes.kind
            && let Some(node) = Node::try_hold(inode)
        {
            // ORDERING: Relaxed; the shard lock and our hold order it against the teardown.
            node.inode.references.fetch_add(1, Relaxed);
            drop(shard);
            node.inode.keep_attributes(&core.clock, ticket, entry.attributes, expiry);
            return node;
        }
        let retired = shard.inodes.get(&entry.inode).map_or(Ticket::default(), |old| old.changed());
        let overtaken = ticket < shard.changed.max(retired);
        let expiry = if overtaken { Expiry::Expired } else { expiry };
        let inode = Inode::new(&Arc::downgrade(core), entry.inode, entry.attributes, expiry);
        if shard.inodes.insert(entry.inode, inode.clone()).is_none() {
            // ORDERING: Relaxed; a size, checked again by `trim`.
            self.count.fetch_add(1, Relaxed);
        }
        Node { inode }
    }

    /// The cached inode `id`, with a hold for the caller.
    pub(crate) fn find(&self, id: InodeId) -> Option<Node> {
        let shard = self.shards.of(&id).lock();
        let inode = shard.inodes.get(&id)?;
        let revived = inode.hold.racy_inactive();
        let node = Node::try_hold(inode)?;
        if revived {
            // ORDERING: Relaxed; a hint for the eviction order.
            node.inode.touched.store(true, Relaxed);
        }
        Some(node)
    }

    /// Takes in an inode whose last hold is gone. Returns the parent whose hold is to be released,
    /// if the inode was forgotten at once.
    pub(super) fn inactive(&self, core: &Core, inode: Arc<Inode>) -> Option<Arc<Inode>> {
        // ORDERING: Relaxed; hints, see `set_unlinked` and `trim`.
        if inode.unlinked.load(Relaxed) {
            return self.retire(core, &inode);
        }
        // ORDERING: AcqRel, partner `dequeued`.
        if !inode.queued.swap(true, AcqRel) {
            self.inactive.lock().push_back(inode);
        }
        None
    }

    /// Forgets inactive inodes until the table is within its limit, oldest first.
    pub(crate) fn trim(&self, core: &Core) {
        // A round per queued inode at most: those touched since go to the back once.
        let mut rounds = self.limit + 64;
        while let Some(inode) = self.victim(&mut rounds) {
            if let Some(parent) = self.retire(core, &inode) {
                super::release(parent);
            }
        }
    }

    /// Forgets one inactive inode if the table is beyond its limit: an inode became inactive. Returns
    /// the parent whose hold is to be released.
    pub(super) fn make_room(&self, core: &Core) -> Option<Arc<Inode>> {
        let inode = self.victim(&mut 16)?;
        self.retire(core, &inode)
    }

    /// While the table is beyond its limit, the inode that was inactive longest.
    fn victim(&self, rounds: &mut usize) -> Option<Arc<Inode>> {
        // ORDERING: Relaxed; a size that may lag, the loop ends with the queue.
        while self.count.load(Relaxed) > self.limit && *rounds > 0 {
            *rounds -= 1;
            let inode = self.inactive.lock().pop_front()?;
            dequeued(&inode);
            if !inode.hold.racy_inactive() {
                continue;
            }
            // ORDERING: Relaxed; a hint for the eviction order, `retire` decides. AcqRel: as above.
            if inode.touched.swap(false, Relaxed) && !inode.queued.swap(true, AcqRel) {
                self.inactive.lock().push_back(inode);
                continue;
            }
            return Some(inode);
        }
        None
    }

    /// Forgets every inactive inode; for shutdown and tests of exactness.
    pub(crate) fn clear_inactive(&self, core: &Core) {
        loop {
            let Some(inode) = self.inactive.lock().pop_front() else { break };
            dequeued(&inode);
            if let Some(parent) = self.retire(core, &inode) {
                super::release(parent);
            }
        }
    }

    /// Inodes held or kept.
    pub(crate) fn count(&self) -> usize {
        // ORDERING: Relaxed; a statistic.
        self.count.load(Relaxed)
    }

    /// Inodes that somebody holds now.
    pub(crate) fn racy_active(&self) -> u64 {
        let active = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            shard.inodes.values().filter(|inode| inode.hold.racy_holds() > 0).count() as u64
        };
        self.shards.iter().map(active).sum()
    }

    /// Applies `action` to every cached inode, shard by shard.
    pub(crate) fn for_each(&self, mut action: impl FnMut(&Inode)) {
        for shard in self.shards.iter() {
            let inodes: Vec<_> = shard.lock().inodes.values().cloned().collect();
            inodes.iter().for_each(|inode| action(inode));
        }
    }

    /// Tears the inode down if it is inactive; returns its parent, whose hold is then ours.
    fn retire(&self, core: &Core, inode: &Arc<Inode>) -> Option<Arc<Inode>> {
        if !inode.hold.retire() {
            return None;
        }
        {
            let mut shard = self.shards.of(&inode.id).lock();
            shard.changed = shard.changed.max(inode.changed());
            if shard.inodes.get(&inode.id).is_some_and(|current| Arc::ptr_eq(current, inode)) {
                shard.inodes.remove(&inode.id);
                // ORDERING: Relaxed; a size.
                self.count.fetch_sub(1, Relaxed);
            }
        }
        core.counters.inodes_evicted.hit();
        if let Some(pages) = inode.pages.get() {
            pages.clear();
        }
        // ORDERING: Relaxed; `retire` acquired all that holders did before (O1 of `hold`).
        let references = inode.references.load(Relaxed);
        if references > 0 {
            core.backend.forget(inode.id, references);
        }
        inode.parent.lock().take().map(|parent| parent.inode)
    }
}

/// The inode was taken out of the queue of inactive inodes.
fn dequeued(inode: &Inode) {
    // ORDERING: AcqRel, partner the swap in `inactive`: a release that found the inode queued, and
    // so did not queue it, is seen by the look at its hold word that follows. A plain store could
    // pass that look, and the inode would be in no queue and stay for ever.
    inode.queued.swap(false, AcqRel);
}
