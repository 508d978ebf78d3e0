//! All objects by id, and who keeps them alive.
//!
//! # Boundary
//! Counts references (given out with every entry, taken back by `forget`) and remembers whether an
//! object has a name. Does not look into nodes.
//!
//! T1. An object is in the table while it has a name or a reference, and leaves in the very step in
//!     which it loses the last of both.
//! T2. Ids come from a counter and never mean another object.
//!
//! # Concurrency
//! Sharded; a thread holds one shard lock at a time and takes no other lock under it. What a step
//! frees is returned, and dropped by the caller without any lock: a large file takes long.
//!
//! # Why
//! References live here and not in the node, so that counting one does not wait for a write to the
//! file. Weakness: every lookup of one hot object takes the lock of its shard.

use super::node::Node;
use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::sync::Arc;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_concurrent::shard::Shards;
use uvfs_vfs::{Error, InodeId, Result, lock_order};

const SHARDS: usize = 64;

/// An object that nobody can reach any more, to be dropped after all locks.
pub(super) type Freed = Option<Arc<Node>>;

#[derive(Debug)]
struct Slot {
    node: Arc<Node>,
    references: u64,
    named: bool,
}

/// The table. See the module.
#[derive(Debug)]
pub(super) struct Table {
    slots: Shards<HashMap<InodeId, Slot>>,
    last_id: AtomicU64,
}

impl Table {
    /// An empty table; the root takes [`InodeId::ROOT`] as the first id.
    pub(super) fn new() -> Self {
        Self {
            slots: Shards::new(&lock_order::MEMORY_NODES, SHARDS),
            last_id: AtomicU64::new(InodeId::ROOT.0 - 1),
        }
    }

    /// An id that was never used.
    pub(super) fn new_id(&self) -> InodeId {
        // ORDERING: Relaxed; a number that differs from all others is all that is wanted.
        InodeId(self.last_id.fetch_add(1, Relaxed) + 1)
    }

    /// Adds a new object with one reference.
    pub(super) fn insert(&self, node: Arc<Node>, named: bool) {
        let inode = node.inode;
        self.slots.of(&inode).lock().insert(inode, Slot { node, references: 1, named });
    }

    /// The object.
    ///
    /// # Errors
    /// [`Error::Stale`] if it is gone.
    pub(super) fn get(&self, inode: InodeId) -> Result<Arc<Node>> {
        pause();
        let shard = self.slots.of(&inode).lock();
        shard.get(&inode).map(|slot| slot.node.clone()).ok_or(Error::Stale)
    }

    /// The object with one more reference; `None` if it is gone.
    pub(super) fn refer(&self, inode: InodeId) -> Option<Arc<Node>> {
        pause();
        let mut shard = self.slots.of(&inode).lock();
        let slot = shard.get_mut(&inode)?;
        slot.references += 1;
        Some(slot.node.clone())
    }

    /// Takes references back.
    pub(super) fn forget(&self, inode: InodeId, references: u64) -> Freed {
        self.change(inode, |slot| {
            if slot.references < references {
                log::error!(
                    "{references} of {} references to {inode:?} given back",
                    slot.references
                );
            }
            slot.references = slot.references.saturating_sub(references);
        })
    }

    /// Notes that the object got its first, or lost its last, name.
    pub(super) fn set_named(&self, inode: InodeId, named: bool) -> Freed {
        self.change(inode, |slot| slot.named = named)
    }

    /// Objects in the table; a report, stale when read.
    #[cfg(test)]
    pub(super) fn racy_count(&self) -> usize {
        self.slots.iter().map(|shard| shard.lock().len()).sum()
    }

    fn change(&self, inode: InodeId, change: impl FnOnce(&mut Slot)) -> Freed {
        pause();
        let mut shard = self.slots.of(&inode).lock();
        let Place::Occupied(mut place) = shard.entry(inode) else { return None };
        change(place.get_mut());
        let slot = place.get();
        if slot.named || slot.references > 0 {
            return None;
        }
        let node = place.remove().node;
        // A table that is mostly empty is memory that nobody is charged for.
        if shard.capacity() > 64 && shard.len() < shard.capacity() / 8 {
            let wanted = shard.len() * 2;
            shard.shrink_to(wanted);
        }
        Some(node)
    }
}

/// Every operation of several steps comes by here between two of them: tests let other threads in.
fn pause() {
    #[cfg(test)]
    super::tests::let_others_in();
}

#[cfg(test)]
mod tests {
    use super::super::budget::Budget;
    use super::*;
    use uvfs_vfs::NewKind;
    use uvfs_vfs::creation::Resolved;

    fn node(table: &Table) -> Arc<Node> {
        let charge = Budget::new(1 << 20, 1).take_inode().unwrap();
        let resolved = Resolved { mode: 0, uid: 0, gid: 0, access: None, default: None };
        let node =
            Node::new(table.new_id(), &NewKind::Fifo, InodeId::ROOT, resolved, charge).unwrap();
        Arc::new(node)
    }

    #[test]
    fn an_object_lives_while_it_has_a_name_or_a_reference() {
        let table = Table::new();
        let inode = node(&table).inode;
        assert_eq!(inode, InodeId::ROOT);
        let file = node(&table);
        let inode = file.inode;
        table.insert(file, true);
        assert!(table.refer(inode).is_some());
        assert!(table.forget(inode, 2).is_none(), "it has a name");
        assert!(table.refer(inode).is_some());
        assert!(table.set_named(inode, false).is_none(), "it has a reference");
        assert!(table.get(inode).is_ok());
        assert!(table.forget(inode, 1).is_some());
        assert!(matches!(table.get(inode), Err(Error::Stale)));
        assert!(table.refer(inode).is_none() && table.forget(inode, 1).is_none());
        assert_eq!(table.racy_count(), 0);
    }

    #[test]
    fn too_many_references_given_back_do_not_free_a_named_object() {
        let table = Table::new();
        let file = node(&table);
        let inode = file.inode;
        table.insert(file, true);
        assert!(table.forget(inode, u64::MAX).is_none());
        assert!(table.get(inode).is_ok());
    }
}
