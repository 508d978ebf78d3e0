//! All objects by id, and the references that keep them alive.
//!
//! # Boundary
//! Counts references (passed out with every entry, returned by `forget`) and records whether an object has a name. Does
//! not look into nodes.
//!
//! T1. An object is in the table while it has a name or a reference, and leaves in the very step in which it loses the
//!     last of both.
//! T2. Ids come from a counter for each stripe of threads and never name another object: stripe `s` of `n` uses those
//!     with the remainder `s`, counted from the first after the root's.
//!
//! # Concurrency
//! Sharded; a thread holds one shard lock at a time and takes no other lock under it. A step returns the freed object,
//! and the caller drops it without any lock: a large file takes long.
//!
//! # Why
//! References are here and not in the node, so that to count one does not wait for a write to the file. The shard is in
//! the id: successive objects of one thread are in successive shards, so objects of one time are spread evenly, better
//! than by chance. Weakness: every lookup of one hot object takes the lock of its shard, and the lines of the shards
//! move between threads.

use super::node::Node;
use super::stripe::{self, STRIPES};
use crate::lock_order;
use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::sync::Arc;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::padded::Padded;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_concurrent::shard::shrink_sparse;
use uvfs_vfs::{Error, InodeId, Result};

/// A multiple of [`STRIPES`], so that stripes begin apart.
const SHARDS: usize = 4 * STRIPES;

type Shard = Mutex<HashMap<InodeId, Slot>>;

/// An object that is unreachable now, to be dropped after all locks.
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
    shards: Box<[Padded<Shard>]>,
    /// How many ids each stripe has given out.
    ids: Box<[Padded<AtomicU64>]>,
}

impl Table {
    /// An empty table.
    pub(super) fn new() -> Self {
        let shard = || Padded(Mutex::new(&lock_order::MEMORY_NODES, HashMap::new()));
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            ids: (0..STRIPES).map(|_| Padded(AtomicU64::new(0))).collect(),
        }
    }

    /// An id that was never used, and is not the root's.
    pub(super) fn new_id(&self) -> InodeId {
        let stripe = stripe::mine();
        // ORDERING: Relaxed; a number that differs from all others is all that is wanted.
        let turn = self.ids[stripe].fetch_add(1, Relaxed);
        InodeId(InodeId::ROOT.0 + 1 + stripe as u64 + turn * STRIPES as u64)
    }

    fn shard(&self, inode: InodeId) -> &Shard {
        let (turn, stripe) = (inode.0 / STRIPES as u64, inode.0 % STRIPES as u64);
        let at = turn.wrapping_add(stripe * (SHARDS / STRIPES) as u64);
        &self.shards[at as usize % SHARDS]
    }

    /// Adds a new object with one reference.
    pub(super) fn insert(&self, node: Arc<Node>, named: bool) {
        let inode = node.inode;
        self.shard(inode).lock().insert(inode, Slot { node, references: 1, named });
    }

    /// The object.
    ///
    /// # Errors
    /// [`Error::Stale`] if it was freed.
    pub(super) fn get(&self, inode: InodeId) -> Result<Arc<Node>> {
        pause();
        let shard = self.shard(inode).lock();
        shard.get(&inode).map(|slot| slot.node.clone()).ok_or(Error::Stale)
    }

    /// The object with one more reference; `None` if it was freed.
    pub(super) fn refer(&self, inode: InodeId) -> Option<Arc<Node>> {
        pause();
        let mut shard = self.shard(inode).lock();
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
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    fn change(&self, inode: InodeId, change: impl FnOnce(&mut Slot)) -> Freed {
        pause();
        let mut shard = self.shard(inode).lock();
        let Place::Occupied(mut place) = shard.entry(inode) else { return None };
        change(place.get_mut());
        let slot = place.get();
        if slot.named || slot.references > 0 {
            return None;
        }
        let node = place.remove().node;
        shrink_sparse(&mut shard);
        Some(node)
    }
}

/// Every operation of several steps calls this between two of them: tests run other threads here.
pub(super) fn pause() {
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
    fn ids_of_all_threads_differ_and_spread_over_the_shards() {
        let table = Table::new();
        let ids: Vec<InodeId> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2 * STRIPES)
                .map(|_| scope.spawn(|| (0..10).map(|_| table.new_id()).collect::<Vec<_>>()))
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let distinct: std::collections::HashSet<_> = ids.iter().copied().collect();
        assert_eq!(distinct.len(), 20 * STRIPES);
        assert!(!distinct.contains(&InodeId::ROOT));
        let shards: std::collections::HashSet<_> =
            (0..SHARDS).map(|_| std::ptr::from_ref(table.shard(table.new_id()))).collect();
        assert_eq!(shards.len(), SHARDS, "what one thread makes in turn lies in all shards");
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
