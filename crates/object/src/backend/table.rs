//! The objects and directories that the core knows: ids, and places that keys are made of.
//!
//! # Boundary
//! Gives a version of an object the same id for as long as the core has references to it. Asks no store.
//!
//! # Concurrency
//! Shards by what is found: an id names its shard. One lock is held at a time.
//!
//! # Why
//! A node has its name and its directory's node, not its key: keys of one directory have the same beginning, a hundred bytes of
//! which for each of a million objects would be the largest part of the table. A node holds those above it, so that the core
//! may forget them in any order. Weakness: a directory that was forgotten and is found again has another id, and the
//! objects in it get other ones with it.

use crate::lock_order::OBJECT_NODES;
use crate::store::Tag;
use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::Arc;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::padded::Padded;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_vfs::{InodeId, Timestamp};

const SHARDS: u64 = 32;

/// An object or a directory.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: InodeId,
    /// Absent for the root alone.
    parent: Option<Arc<Node>>,
    /// In its directory; the root's is the prefix of everything.
    name: Box<str>,
    pub(super) what: What,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Directory,
    Object { tag: Tag, size: u64, modified: Timestamp },
}

impl Node {
    /// The key of an object, or the prefix of what is in a directory.
    pub(super) fn key(&self) -> String {
        let mut names = Vec::new();
        let mut at = Some(self);
        while let Some(node) = at {
            names.push(&node.name);
            at = node.parent.as_deref();
        }
        let mut key = String::new();
        for (depth, name) in names.iter().rev().enumerate() {
            key.push_str(name);
            let is_last = depth + 1 == names.len();
            if depth > 0 && (!is_last || self.what == What::Directory) {
                key.push('/');
            }
        }
        key
    }

    /// The number that users see: of the place and the version, and so the same after a restart.
    pub(super) fn number(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.key().hash(&mut hasher);
        if let What::Object { tag, .. } = &self.what {
            tag.hash(&mut hasher);
        }
        // 1 is the root's, and 0 is nobody's.
        (hasher.finish() >> 1).max(2)
    }

    /// The version of the content, as the seam has it.
    pub(super) fn version(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        match &self.what {
            What::Directory => 0,
            What::Object { tag, .. } => {
                tag.hash(&mut hasher);
                hasher.finish().max(1)
            }
        }
    }

    fn bytes(&self) -> u64 {
        let tag = match &self.what {
            What::Directory => 0,
            What::Object { tag, .. } => tag.0.len() + 16,
        };
        (NODE_BYTES + self.name.len() + tag) as u64
    }
}

/// A node without its texts: itself, what counts it, and its places in both maps with their slack.
const NODE_BYTES: usize = size_of::<Node>() + 16 + 2 * (size_of::<(InodeId, Slot)>() + 16) + 48;

#[derive(Debug)]
struct Slot {
    node: Arc<Node>,
    references: u64,
}

#[derive(Debug, Default)]
struct Shard {
    by_id: HashMap<InodeId, Slot>,
    /// By what [`Table::place`] makes of directory, name and version.
    by_place: HashMap<u64, InodeId>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Table {
    root: Arc<Node>,
    shards: Box<[Padded<Mutex<Shard>>]>,
    hasher: RandomState,
    next: AtomicU64,
    bytes: AtomicU64,
    count: AtomicU64,
}

impl Table {
    /// A table with a root, in which everything begins with `prefix`.
    pub(super) fn new(prefix: &str) -> Self {
        let name = prefix.into();
        let root = Node { id: InodeId::ROOT, parent: None, name, what: What::Directory };
        let shard = || Padded(Mutex::new(&OBJECT_NODES, Shard::default()));
        Self {
            root: Arc::new(root),
            shards: (0..SHARDS).map(|_| shard()).collect(),
            hasher: RandomState::new(),
            next: AtomicU64::new(1),
            bytes: AtomicU64::new(0),
            count: AtomicU64::new(0),
        }
    }

    /// The node of `id`, if the core has references to it.
    pub(super) fn get(&self, id: InodeId) -> Option<Arc<Node>> {
        if id == InodeId::ROOT {
            return Some(self.root.clone());
        }
        Some(self.shard(id.0).lock().by_id.get(&id)?.node.clone())
    }

    /// The node of `what` that is called `name` in `parent`, with one reference more.
    pub(super) fn refer(&self, parent: &Arc<Node>, name: &str, what: What) -> Arc<Node> {
        let place = self.place(parent.id, name, &what);
        let mut shard = self.shard(place).lock();
        let known = shard.by_place.get(&place).copied();
        if let Some(slot) = known.and_then(|id| shard.by_id.get_mut(&id)) {
            let node = &slot.node;
            let same_parent = node.parent.as_ref().is_some_and(|known| known.id == parent.id);
            if same_parent && *node.name == *name && node.what == what {
                slot.references += 1;
                return slot.node.clone();
            }
        }
        // ORDERING: Relaxed; only the value must be unique.
        let id = InodeId(self.next.fetch_add(1, Relaxed) * SHARDS + place % SHARDS);
        let node = Arc::new(Node { id, parent: Some(parent.clone()), name: name.into(), what });
        shard.by_id.insert(id, Slot { node: node.clone(), references: 1 });
        shard.by_place.insert(place, id);
        drop(shard);
        // ORDERING: Relaxed, both; sizes.
        self.bytes.fetch_add(node.bytes(), Relaxed);
        self.count.fetch_add(1, Relaxed);
        node
    }

    /// Gives back `references` references to `id`.
    pub(super) fn forget(&self, id: InodeId, references: u64) {
        if id == InodeId::ROOT {
            return;
        }
        let mut shard = self.shard(id.0).lock();
        let Some(slot) = shard.by_id.get_mut(&id) else {
            log::error!("{references} references to {id:?} given back, which has none");
            return;
        };
        slot.references = slot.references.saturating_sub(references);
        if slot.references > 0 {
            return;
        }
        let gone = shard.by_id.remove(&id);
        if let Some(Slot { node, .. }) = &gone
            && let Some(parent) = &node.parent
        {
            let place = self.place(parent.id, &node.name, &node.what);
            if shard.by_place.get(&place) == Some(&id) {
                shard.by_place.remove(&place);
            }
            // ORDERING: Relaxed, both; sizes.
            self.bytes.fetch_sub(node.bytes(), Relaxed);
            self.count.fetch_sub(1, Relaxed);
        }
        drop(shard);
        // Those above it may end with it.
        drop(gone);
    }

    /// How many nodes there are; a snapshot.
    pub(super) fn len(&self) -> usize {
        // ORDERING: Relaxed; a size.
        self.count.load(Relaxed) as usize
    }

    /// Bytes of all nodes.
    pub(super) fn bytes(&self) -> u64 {
        // ORDERING: Relaxed; a size.
        self.bytes.load(Relaxed)
    }

    /// Where a node is found. Two nodes at one place are found by their ids, and the later one by its place.
    fn place(&self, parent: InodeId, name: &str, what: &What) -> u64 {
        let tag = match what {
            What::Directory => None,
            What::Object { tag, .. } => Some(tag),
        };
        self.hasher.hash_one((parent, name, tag))
    }

    /// The shard of a place, or of the id that was made for it.
    fn shard(&self, place: u64) -> &Mutex<Shard> {
        &self.shards[(place % SHARDS) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(tag: &str, size: u64) -> What {
        What::Object { tag: Tag(tag.into()), size, modified: Timestamp::default() }
    }

    #[test]
    fn a_version_has_one_id_while_it_is_referred_to() {
        let table = Table::new("p/");
        let root = table.get(InodeId::ROOT).unwrap();
        let directory = table.refer(&root, "d", What::Directory);
        let first = table.refer(&directory, "x", object("1", 5));
        let again = table.refer(&directory, "x", object("1", 5));
        let other = table.refer(&directory, "x", object("2", 5));
        let here = table.refer(&root, "x", object("1", 5));
        assert_eq!(first.id, again.id);
        let ids = [root.id, directory.id, first.id, other.id, here.id];
        assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), ids.len());
        let keys = [&root, &directory, &first, &here].map(|node| node.key());
        assert_eq!(keys, ["p/", "p/d/", "p/d/x", "p/x"]);
        assert_ne!(first.number(), other.number(), "another version is another file");
        assert_ne!(first.version(), other.version());
        // A directory may be forgotten before what is in it.
        table.forget(directory.id, 1);
        table.forget(first.id, 1);
        assert_eq!(table.get(first.id).unwrap().key(), "p/d/x");
        table.forget(first.id, 1);
        assert!(table.get(first.id).is_none());
        let new = table.refer(&directory, "x", object("1", 5));
        assert_ne!(new.id, first.id, "an id is never used twice");
        for id in [new.id, other.id, here.id] {
            table.forget(id, 1);
        }
        assert_eq!((table.len(), table.bytes()), (0, 0));
    }

    #[test]
    fn threads_that_refer_to_one_version_get_one_id() {
        let table = Table::new("");
        let root = table.get(InodeId::ROOT).unwrap();
        for round in 0..200 {
            let name = format!("{}", round % 3);
            let ids: Vec<InodeId> = std::thread::scope(|scope| {
                let refer = || table.refer(&root, &name, object("1", 1)).id;
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(refer)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
            std::thread::scope(|scope| {
                for id in &ids {
                    scope.spawn(|| table.forget(*id, 1));
                }
            });
            assert!(table.get(ids[0]).is_none());
        }
        assert_eq!((table.len(), table.bytes()), (0, 0));
    }
}
