//! All objects of the host that the core knows: ids, references, and the links between directories.
//!
//! # Boundary
//! Maps ids to objects and objects to ids, and records names. Makes no system call.
//!
//! # Identity
//! The host reuses inode numbers. A reused number with another birth or kind gets a new id, and the old object can no
//! longer be found by number. Ids are a counter and are never used twice.
//!
//! # Lifetime
//! The table holds a node while the core has references to it. A known name holds the node of its directory, so the
//! path to the root stays walkable if the core forgot a directory before its entries. A node without either is freed
//! with its descriptor.
//!
//! # Concurrency
//! Nodes are spread over shards by host key, and an id names its shard. Links between directories change one at a time
//! under `HOST_TREE`, which refuses a link that would close a cycle: on the host that cannot exist, but observations of
//! different times can look like one. No lock is held across a system call, and no node is dropped with a shard locked.
//!
//! # Why
//! One lock per shard for both maps, so that a number and its id never disagree. Weakness: on hosts without a time of
//! birth, a reused number of the same kind is taken for the old object.

use super::convert::{HostKey, HostStat};
use super::descriptor::DescriptorSlot;
use super::node::{HostNode, KnownName};
use crate::lock_order::{HOST_NODES, HOST_TREE};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::padded::Padded;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_concurrent::shard::shrink_sparse;
use uvfs_vfs::{FileKind, InodeId};

const SHARDS: u64 = 64;

/// The core's part of one node.
#[derive(Debug)]
struct Slot {
    node: Weak<HostNode>,
    held: Option<Arc<HostNode>>,
    references: u64,
}

#[derive(Debug, Default)]
struct Shard {
    by_id: HashMap<InodeId, Slot>,
    by_key: HashMap<HostKey, InodeId>,
}

/// All nodes, by id and by host key.
#[derive(Debug)]
pub(super) struct NodeTable {
    shards: Box<[Padded<Mutex<Shard>>]>,
    hasher: RandomState,
    next: AtomicU64,
    root_shard: usize,
    births: bool,
    tree: Mutex<()>,
    /// Nodes that there are.
    count: AtomicU64,
}

/// Bytes of a node with one name: its value, its slot, both counts, its name, and its places in both maps with their
/// slack.
const NODE_BYTES: usize = size_of::<HostNode>()
    + size_of::<DescriptorSlot>()
    + size_of::<KnownName>()
    + 2 * (size_of::<(InodeId, Slot)>() + size_of::<(HostKey, InodeId)>())
    + 128;

/// The state of a node after its references were returned.
#[derive(Debug)]
pub(super) enum Forgotten {
    /// The core still has references to it.
    Referenced,
    /// The core knows it no more.
    Unknown(Option<Arc<HostNode>>),
}

impl NodeTable {
    /// A table that holds the root, which stays for the table's life, and the root's node. `births` says whether the
    /// host's times of birth identify objects.
    pub(super) fn new(root: &HostStat, births: bool) -> (Arc<Self>, Arc<HostNode>) {
        let shards = (0..SHARDS).map(|_| Padded(Mutex::new(&HOST_NODES, Shard::default())));
        let mut table = Self {
            shards: shards.collect(),
            hasher: RandomState::new(),
            next: AtomicU64::new(1),
            root_shard: 0,
            births,
            tree: Mutex::new(&HOST_TREE, ()),
            count: AtomicU64::new(0),
        };
        table.root_shard = table.shard_of_key(&root.key);
        let table = Arc::new(table);
        let node = table.new_node(InodeId::ROOT, root, Vec::new());
        let slot = Slot { node: Arc::downgrade(&node), held: Some(node.clone()), references: 1 };
        let mut shard = table.shards[table.root_shard].lock();
        shard.by_key.insert(root.key, node.id);
        shard.by_id.insert(node.id, slot);
        drop(shard);
        (table, node)
    }

    /// The node of `id`.
    pub(super) fn get(&self, id: InodeId) -> Option<Arc<HostNode>> {
        self.shard_of_id(id).lock().by_id.get(&id)?.node.upgrade()
    }

    /// The node of the object that `stat` shows, if it is known.
    pub(super) fn find(&self, stat: &HostStat) -> Option<Arc<HostNode>> {
        let node = {
            let shard = self.shards[self.shard_of_key(&stat.key)].lock();
            let id = shard.by_key.get(&stat.key)?;
            shard.by_id.get(id)?.node.upgrade()?
        };
        node.is(stat).then_some(node)
    }

    /// The node of the object that `stat` shows, with one reference more. `seen` is where it was
    /// seen, unless it has no name.
    pub(super) fn remember(
        self: &Arc<Self>,
        stat: &HostStat,
        seen: Option<(&Arc<HostNode>, &[u8])>,
    ) -> Arc<HostNode> {
        self.remember_anew(stat, seen).0
    }

    /// Like [`NodeTable::remember`]. Also returns the other object that was recorded there.
    pub(super) fn remember_anew(
        self: &Arc<Self>,
        stat: &HostStat,
        seen: Option<(&Arc<HostNode>, &[u8])>,
    ) -> (Arc<HostNode>, Option<InodeId>) {
        let known =
            seen.map(|(parent, name)| KnownName { parent: parent.clone(), name: name.into() });
        let index = self.shard_of_key(&stat.key);
        let mut shard = self.shards[index].lock();
        let found = shard.by_key.get(&stat.key).copied();
        let found = found.and_then(|id| shard.by_id.get_mut(&id));
        let old = found.as_ref().and_then(|slot| slot.node.upgrade());
        if let (Some(slot), Some(node)) = (found, &old)
            && node.is(stat)
        {
            slot.references += 1;
            slot.held = Some(node.clone());
            drop(shard);
            let node = node.clone();
            let other = known.and_then(|known| self.learn(&node, known));
            return (node, other);
        }
        // ORDERING: Relaxed; only the value must be unique.
        let id = InodeId(self.next.fetch_add(1, Relaxed) * SHARDS + index as u64);
        // The first name is set before any thread can find the node: [`NodeTable::learn`] has the reason.
        let node = self.new_node(id, stat, known.iter().cloned().collect());
        let slot = Slot { node: Arc::downgrade(&node), held: Some(node.clone()), references: 1 };
        shard.by_key.insert(stat.key, id);
        shard.by_id.insert(id, slot);
        drop(shard);
        drop(old);
        let other = known.and_then(|known| known.parent.record_child(&known.name, id));
        (node, other)
    }

    /// Gives back `references` references to `id`.
    pub(super) fn forget(&self, id: InodeId, references: u64) -> Forgotten {
        let mut shard = self.shard_of_id(id).lock();
        let Some(slot) = shard.by_id.get_mut(&id) else {
            return Forgotten::Unknown(None);
        };
        if slot.references < references {
            log::error!("{references} references to {id:?} given back, {} given", slot.references);
        }
        slot.references = slot.references.saturating_sub(references);
        if slot.references > 0 {
            return Forgotten::Referenced;
        }
        let held = slot.held.take();
        drop(shard);
        Forgotten::Unknown(held)
    }

    /// Whether the core has references to `node`.
    pub(super) fn is_referenced(&self, node: &HostNode) -> bool {
        let shard = self.shard_of_id(node.id).lock();
        shard.by_id.get(&node.id).is_some_and(|slot| slot.references > 0)
    }

    /// Marks `node` as gone from the host: if its number is reused, it is another object's.
    pub(super) fn detach(&self, node: &HostNode) {
        let mut shard = self.shards[self.shard_of_key(&node.key)].lock();
        if shard.by_key.get(&node.key) == Some(&node.id) {
            shard.by_key.remove(&node.key);
        }
    }

    /// How many nodes there are; a snapshot.
    pub(super) fn len(&self) -> usize {
        // ORDERING: Relaxed; a size.
        self.count.load(Relaxed) as usize
    }

    /// Bytes of all nodes.
    pub(super) fn bytes(&self) -> u64 {
        (self.len() * NODE_BYTES) as u64
    }

    /// Records that `node` has the name `known`. A directory has one name, and loses its old one. Returns the other
    /// object that was recorded there.
    ///
    /// A link that would close a cycle of directories removes the older link that it contradicts. A new node cannot
    /// close one, since nothing is below it: its first name is set at its creation.
    pub(super) fn learn(&self, node: &Arc<HostNode>, known: KnownName) -> Option<InodeId> {
        if node.id == InodeId::ROOT || node.id == known.parent.id {
            return None;
        }
        let other = known.parent.record_child(&known.name, node.id);
        if node.kind != FileKind::Directory {
            let _not_kept = node.add_name(known);
            return other;
        }
        let same = node.is_known_as(&known.parent, &known.name)
            && !node.is_known_otherwise(&known.parent, &known.name);
        if !same {
            let _tree = self.tree.lock();
            let _contradicted = cut_ways_to(node, &known.parent);
            let _replaced = node.replace_names(known);
        }
        other
    }

    /// Adds a name that `node` is about to get by a rename, behind its other names: a walk during the rename finds it
    /// by one or the other. Returns whether it was added.
    pub(super) fn announce(
        &self,
        node: &Arc<HostNode>,
        parent: &Arc<HostNode>,
        name: &[u8],
    ) -> bool {
        if node.id == InodeId::ROOT || node.is_known_as(parent, name) {
            return false;
        }
        let known = KnownName { parent: parent.clone(), name: name.into() };
        let _tree = self.tree.lock();
        if node.kind == FileKind::Directory && leads_to(parent, node) {
            return false;
        }
        let _not_kept = node.add_name(known);
        true
    }

    /// Forgets that `node` is called `name` in `parent`.
    pub(super) fn unlearn(&self, node: &HostNode, parent: &HostNode, name: &[u8]) {
        let _removed = node.remove_name(parent, name);
        parent.forget_child_if(name, node.id);
    }

    fn new_node(
        self: &Arc<Self>,
        id: InodeId,
        stat: &HostStat,
        names: Vec<KnownName>,
    ) -> Arc<HostNode> {
        // ORDERING: Relaxed; a size.
        self.count.fetch_add(1, Relaxed);
        HostNode::new(id, stat, self.births, names, Arc::downgrade(self))
    }

    /// The end of a node: called once, when nothing refers to it.
    pub(super) fn remove(&self, id: InodeId, key: HostKey) {
        let mut shard = self.shards[self.shard_of_key(&key)].lock();
        let _slot = shard.by_id.remove(&id);
        shrink_sparse(&mut shard.by_id);
        // ORDERING: Relaxed; a size.
        self.count.fetch_sub(1, Relaxed);
        if shard.by_key.get(&key) == Some(&id) {
            shard.by_key.remove(&key);
            shrink_sparse(&mut shard.by_key);
        }
    }

    fn shard_of_key(&self, key: &HostKey) -> usize {
        (self.hasher.hash_one(key) % SHARDS) as usize
    }

    fn shard_of_id(&self, id: InodeId) -> &Mutex<Shard> {
        match id {
            InodeId::ROOT => &self.shards[self.root_shard],
            InodeId(id) => &self.shards[(id % SHARDS) as usize],
        }
    }
}

/// Whether the way up from `from` passes `target`.
fn leads_to(from: &Arc<HostNode>, target: &HostNode) -> bool {
    let mut found = false;
    climb(from, |node, _| {
        found |= node.id == target.id;
        !found
    });
    found
}

/// Removes, on the way up from `from`, every link that leads to `target`; returns them.
fn cut_ways_to(target: &HostNode, from: &Arc<HostNode>) -> Vec<KnownName> {
    let mut cut = Vec::new();
    climb(from, |node, names| {
        for known in names.iter().filter(|known| known.parent.id == target.id) {
            cut.extend(node.remove_name(&known.parent, &known.name));
        }
        node.id != target.id
    });
    cut
}

/// Visits `from` and each of its ancestors once, as long as `visit` continues above a node.
fn climb(from: &Arc<HostNode>, mut visit: impl FnMut(&HostNode, &[KnownName]) -> bool) {
    let mut visited = HashSet::new();
    let mut pending = vec![from.clone()];
    while let Some(node) = pending.pop() {
        if !visited.insert(node.id) {
            continue;
        }
        let (_, names) = node.names();
        if visit(&node, &names) {
            pending.extend(names.into_iter().map(|known| known.parent));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::NAMES_MAX;
    use super::*;
    use uvfs_vfs::{Attributes, Timestamp};

    fn stat(number: u64, kind: FileKind, born: i64) -> HostStat {
        let mut attributes = Attributes::new(number, kind, 0o755);
        attributes.btime = Some(Timestamp { seconds: born, nanoseconds: 0 });
        HostStat { key: HostKey { device: 1, number, mount: 0 }, attributes }
    }

    fn directory(number: u64) -> HostStat {
        stat(number, FileKind::Directory, 1)
    }

    fn table() -> (Arc<NodeTable>, Arc<HostNode>) {
        NodeTable::new(&directory(2), true)
    }

    #[test]
    fn an_object_keeps_its_id_until_the_last_reference_is_given_back() {
        let (table, root) = table();
        let file = stat(10, FileKind::Regular, 1);
        let id = table.remember(&file, Some((&root, b"f"))).id;
        assert_eq!(table.remember(&file, Some((&root, b"f"))).id, id);
        assert!(matches!(table.forget(id, 1), Forgotten::Referenced));
        assert!(table.get(id).is_some());
        assert!(matches!(table.forget(id, 1), Forgotten::Unknown(Some(_))));
        assert!(table.get(id).is_none());
        assert_ne!(table.remember(&file, Some((&root, b"f"))).id, id);
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn a_reused_number_gets_a_new_id_and_the_old_one_lives_on() {
        let (table, root) = table();
        let old = table.remember(&stat(10, FileKind::Regular, 1), Some((&root, b"f")));
        let new = table.remember(&stat(10, FileKind::Regular, 2), Some((&root, b"f")));
        let other = table.remember(&stat(10, FileKind::Symlink, 2), Some((&root, b"f")));
        assert!(old.id != new.id && new.id != other.id);
        assert_eq!(table.get(old.id).unwrap().id, old.id);
        assert!(table.find(&stat(10, FileKind::Regular, 1)).is_none());
        assert_eq!(table.find(&stat(10, FileKind::Symlink, 2)).unwrap().id, other.id);
    }

    #[test]
    fn a_forgotten_directory_lives_while_something_below_it_does() {
        let (table, root) = table();
        let folder = table.remember(&directory(10), Some((&root, b"d"))).id;
        let file = {
            let folder = table.get(folder).unwrap();
            table.remember(&stat(11, FileKind::Regular, 1), Some((&folder, b"f"))).id
        };
        table.forget(folder, 1);
        assert_eq!(table.remember(&directory(10), Some((&root, b"d"))).id, folder);
        table.forget(folder, 1);
        table.forget(file, 1);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_chain_of_a_hundred_thousand_directories_ends_without_a_deep_stack() {
        let (table, root) = table();
        let mut above = root;
        let mut ids = Vec::new();
        for number in 10..100_010 {
            above = table.remember(&directory(number), Some((&above, b"d")));
            ids.push(above.id);
        }
        drop(above);
        ids.into_iter().for_each(|id| drop(table.forget(id, 1)));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn links_seen_at_different_times_never_become_a_cycle() {
        let (table, root) = table();
        let a = table.remember(&directory(10), Some((&root, b"a")));
        let b = table.remember(&directory(11), Some((&a, b"b")));
        // Behind our back: `a/b` moved to `b`, then `a` to `b/a`; seen in an unlucky order.
        table.remember(&directory(10), Some((&b, b"a")));
        assert!(a.is_known_as(&b, b"a"));
        assert!(b.names().1.is_empty(), "the link that contradicts the newer one is gone");
        table.remember(&directory(11), Some((&root, b"b")));
        assert!(leads_to(&a, &root) && leads_to(&b, &root));
        for (node, references) in [(a, 2), (b, 2)] {
            let id = node.id;
            drop(node);
            table.forget(id, references);
        }
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn an_announced_name_joins_the_old_one_but_never_below_the_directory_itself() {
        let (table, root) = table();
        let a = table.remember(&directory(10), Some((&root, b"a")));
        let b = table.remember(&directory(11), Some((&a, b"b")));
        assert!(!table.announce(&a, &b, b"x"));
        assert!(table.announce(&b, &root, b"b"));
        assert_eq!(b.names().1.len(), 2);
        table.unlearn(&b, &a, b"b");
        assert!(b.is_known_as(&root, b"b") && !b.is_known_otherwise(&root, b"b"));
    }

    #[test]
    fn a_file_keeps_a_bounded_number_of_names() {
        let (table, root) = table();
        let file = stat(10, FileKind::Regular, 1);
        let node = table.remember(&file, Some((&root, b"0")));
        for name in 1..20u8 {
            table.remember(&file, Some((&root, &[name])));
        }
        assert_eq!(node.names().1.len(), NAMES_MAX);
        assert!(node.is_known_as(&root, &[19]) && !node.is_known_as(&root, b"0"));
    }
}
