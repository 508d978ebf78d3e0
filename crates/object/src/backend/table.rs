//! The objects and directories that the core knows: ids, and places that keys are made of.
//!
//! # Boundary
//! A version of an object keeps its id while the core has references to it; a file that is written here keeps it through
//! all its versions. Asks no store.
//!
//! # Concurrency
//! An id names the shard of its node, a place the shard with its id. A thread locks one shard at a time. After a move or a
//! new version, node and place are in two shards, so a thread that finds an id by a place checks the node.
//!
//! # States of a file
//!
//! ```text
//!              create                   put                    cut
//!   (nothing) ────────▶ Local, no base ─────▶ Object, its tag ◀────────▶ Local, base: that tag
//!                         │                     │               put        │
//!                         └───────── unlink ────┴──── while it is open ────┘
//!                                      ▼
//!                         Orphan: no lookup finds it; its last close frees it
//! ```
//! The calls `create`, `cut` and `unlink` change the state on any thread; `put` on the one that uploads the file.
//!
//! # Why
//! A node has its name and its directory's node: a million whole keys would be the largest part of the table. A node holds
//! its ancestors, so the core may forget them in any order. Weakness: a directory that is forgotten and found again has another id.

use crate::lock_order::OBJECT_NODES;
use crate::store::Tag;
use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::Arc;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::padded::Padded;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_concurrent::shard::shrink_sparse;
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
    /// The number that users see, for as long as it is known here.
    pub(super) number: u64,
    /// Version of the content, as the seam has it: constant for a file written here, because only this mount changes an
    /// inode's content.
    pub(super) version: u64,
}

/// The state of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Directory,
    /// An object as the store has it.
    Object {
        tag: Tag,
        size: u64,
        modified: Timestamp,
    },
    /// Not as the store has it: made or cut here.
    Local(Local),
    /// A file whose name was removed while it was open, with its content since then if it was ever whole.
    Orphan {
        content: Option<Arc<[u8]>>,
        size: u64,
    },
}

/// A file that is not in the store as it is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Local {
    /// The version that it was, and how many of its bytes it begins with; zeros follow. Absent where it was made here.
    pub(super) base: Option<(Tag, u64)>,
    pub(super) size: u64,
    pub(super) modified: Timestamp,
}

impl What {
    /// The file's version in the store, or the version that it is based on.
    pub(super) fn tag(&self) -> Option<&Tag> {
        match self {
            What::Object { tag, .. } => Some(tag),
            What::Local(local) => local.base.as_ref().map(|(tag, _)| tag),
            What::Directory | What::Orphan { .. } => None,
        }
    }

    /// The file after a put of it made the version `tag`. That version has all bytes kept from the base, and all other
    /// bytes of the put are still in pages here.
    pub(super) fn based_on(&self, tag: Tag) -> Option<What> {
        let (keep, size, modified) = match self {
            What::Object { size, modified, .. } => (*size, *size, *modified),
            What::Local(Local { base, size, modified }) => {
                (base.as_ref().map_or(0, |(_, keep)| *keep), *size, *modified)
            }
            What::Directory | What::Orphan { .. } => return None,
        };
        Some(What::Local(Local { base: Some((tag, keep)), size, modified }))
    }

    /// Whether a lookup can find it, under its name and version in the store.
    fn has_place(&self) -> bool {
        matches!(self, What::Directory) || self.tag().is_some()
    }

    /// Whether the store's entry `listed` under the same name is this version.
    fn is_version_of(&self, listed: &What) -> bool {
        self.has_place() && self.tag() == listed.tag()
    }
}

impl Node {
    /// The node with another state.
    pub(super) fn become_what(&self, what: What) -> Self {
        let (id, parent, name) = (self.id, self.parent.clone(), self.name.clone());
        Self { id, parent, name, what, number: self.number, version: self.version }
    }

    /// The directory that it is in; absent for the root alone.
    pub(super) fn parent(&self) -> Option<&Arc<Node>> {
        self.parent.as_ref()
    }

    /// In its directory.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Key of `name` in `parent`.
    pub(super) fn key_below(parent: &Node, name: &str) -> String {
        let mut key = parent.key();
        key.push_str(name);
        key
    }

    /// The directory that it is in, and its name there; `None` for the root.
    pub(super) fn place(&self) -> Option<(&Node, &str)> {
        Some((self.parent.as_deref()?, &self.name))
    }

    /// The key of an object, or the prefix of all keys in a directory.
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

    fn bytes(&self) -> u64 {
        let tag = self.what.tag().map_or(0, |tag| tag.0.len() + 16);
        let content = match &self.what {
            What::Orphan { content: Some(content), .. } => content.len(),
            _ => 0,
        };
        (NODE_BYTES + self.name.len() + tag + content) as u64
    }
}

/// Number and version of the object in a place of the store: the same after a restart.
fn numbered(key: &str, what: &What) -> (u64, u64) {
    let mut hasher = DefaultHasher::new();
    let version = what.tag().map_or(0, |tag| {
        tag.hash(&mut hasher);
        hasher.finish().max(1)
    });
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    if let Some(tag) = what.tag() {
        tag.hash(&mut hasher);
    }
    // 1 is the root's, and 0 is not used.
    ((hasher.finish() >> 1).max(2), version)
}

/// Bytes of a node without its texts: itself, its reference counts, and its places in both maps with their slack.
const NODE_BYTES: usize = size_of::<Node>() + 16 + 2 * (size_of::<(InodeId, Slot)>() + 16) + 48;

#[derive(Debug)]
struct Slot {
    node: Arc<Node>,
    references: u64,
    /// Open files of it, and those of them that write.
    opens: Opens,
    /// A directory of which an object says that it exists.
    marked: bool,
    /// A put of it has failed, but may have taken effect.
    doubtful: bool,
    /// The content must not be put under its own key ([`super::conflict`]).
    refused: bool,
    /// The time of its last change that a caller has set, and that the store does not have yet.
    stated: Option<Timestamp>,
    /// A caller has set the time of its last change, and the object bears it; a listing has another one.
    keeps_time: bool,
}

/// How often something is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Opens {
    pub(super) all: u32,
    pub(super) writers: u32,
}

impl Slot {
    fn new(node: Arc<Node>) -> Self {
        Self {
            node,
            references: 1,
            opens: Opens::default(),
            marked: false,
            doubtful: false,
            refused: false,
            stated: None,
            keeps_time: false,
        }
    }
}

#[derive(Debug, Default)]
struct Shard {
    by_id: HashMap<InodeId, Slot>,
    /// By [`Table::place`] of directory and name.
    by_place: HashMap<u64, InodeId>,
}

impl Node {
    /// Whether it is the store's `what` under `name` in `parent`.
    fn is_known_as(&self, parent: &Node, name: &str, what: &What) -> bool {
        let same_parent = self.parent.as_ref().is_some_and(|known| known.id == parent.id);
        same_parent && *self.name == *name && self.what.is_version_of(what)
    }
}

impl Shard {
    /// Adds a reference to `id`, if it is the store's `what` there.
    fn refer(&mut self, id: InodeId, parent: &Node, name: &str, what: &What) -> Option<Arc<Node>> {
        let slot = self.by_id.get_mut(&id)?;
        if !slot.node.is_known_as(parent, name, what) {
            return None;
        }
        slot.references += 1;
        let is_object = matches!(slot.node.what, What::Object { .. });
        if is_object && !slot.keeps_time && slot.node.what != *what {
            // The same bytes, put again; or put by this mount, and now the store's time is known.
            slot.node = Arc::new(slot.node.become_what(what.clone()));
        }
        Some(slot.node.clone())
    }
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
        let what = What::Directory;
        let root = Node { id: InodeId::ROOT, parent: None, name, what, number: 1, version: 0 };
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

    /// The node of `what` that is called `name` in `parent`, with an added reference.
    pub(super) fn refer(&self, parent: &Arc<Node>, name: &str, what: What) -> Arc<Node> {
        let place = self.place(parent.id, name);
        loop {
            let mut shard = self.shard(place).lock();
            let known = shard.by_place.get(&place).copied();
            match known {
                Some(id) if id.0 % SHARDS != place % SHARDS => {
                    drop(shard);
                    let mut elsewhere = self.shard(id.0).lock();
                    if let Some(node) = elsewhere.refer(id, parent, name, &what) {
                        return node;
                    }
                    drop(elsewhere);
                    let mut shard = self.shard(place).lock();
                    if shard.by_place.get(&place) == Some(&id) {
                        shard.by_place.remove(&place);
                    }
                    continue;
                }
                Some(id) => {
                    if let Some(node) = shard.refer(id, parent, name, &what) {
                        return node;
                    }
                }
                None => {}
            }
            let key = Node::key_below(parent, name);
            let (number, version) = numbered(&key, &what);
            let node = self.node(place, (parent, name), (what, number, version));
            shard.by_place.insert(place, node.id);
            shard.by_id.insert(node.id, Slot::new(node.clone()));
            drop(shard);
            self.count(&node);
            return node;
        }
    }

    /// The node of `id`, with an added reference, if there were any.
    pub(super) fn refer_to(&self, id: InodeId) -> Option<Arc<Node>> {
        let mut shard = self.shard(id.0).lock();
        let slot = shard.by_id.get_mut(&id)?;
        slot.references += 1;
        Some(slot.node.clone())
    }

    /// A file that is made here, with one reference. No lookup finds it by its place.
    pub(super) fn make(&self, parent: &Arc<Node>, name: &str, modified: Timestamp) -> Arc<Node> {
        let what = What::Local(Local { base: None, size: 0, modified });
        // ORDERING: Relaxed; only the value must be unique.
        let seed = self.hasher.hash_one((name, self.next.load(Relaxed)));
        let numbers = ((seed >> 1).max(2), seed | 1);
        let node = self.node(seed, (parent, name), (what, numbers.0, numbers.1));
        self.shard(node.id.0).lock().by_id.insert(node.id, Slot::new(node.clone()));
        self.count(&node);
        node
    }

    fn node(
        &self,
        place: u64,
        (parent, name): (&Arc<Node>, &str),
        (what, number, version): (What, u64, u64),
    ) -> Arc<Node> {
        // ORDERING: Relaxed; only the value must be unique.
        let id = InodeId(self.next.fetch_add(1, Relaxed) * SHARDS + place % SHARDS);
        let parent = Some(parent.clone());
        Arc::new(Node { id, parent, name: name.into(), what, number, version })
    }

    fn count(&self, node: &Node) {
        // ORDERING: Relaxed, both; sizes.
        self.bytes.fetch_add(node.bytes(), Relaxed);
        self.count.fetch_add(1, Relaxed);
    }

    /// Replaces the state of `id` by the result of `change`, if there is one; returns the node. `None` if there is no
    /// reference to it.
    pub(super) fn change(
        &self,
        id: InodeId,
        change: impl FnOnce(&Node) -> Option<Node>,
    ) -> Option<Arc<Node>> {
        let mut shard = self.shard(id.0).lock();
        let slot = shard.by_id.get_mut(&id)?;
        let before = slot.node.clone();
        let Some(after) = change(&before) else { return Some(before) };
        let after = Arc::new(after);
        slot.node = after.clone();
        drop(shard);
        // ORDERING: Relaxed, both; sizes.
        self.bytes.fetch_add(after.bytes(), Relaxed);
        self.bytes.fetch_sub(before.bytes(), Relaxed);
        let places = [&before, &after].map(|node| self.place_of(node));
        if places[0] != places[1] {
            self.leave_place(places[0], id);
        }
        // With a new version, the name leads to this node.
        if let Some(place) = places[1]
            && (places[0] != places[1] || before.what.tag() != after.what.tag())
        {
            self.shard(place).lock().by_place.insert(place, id);
        }
        Some(after)
    }

    /// Gives `id` another directory, name and state.
    pub(super) fn move_to(
        &self,
        id: InodeId,
        (parent, name): (&Arc<Node>, &str),
        what: What,
    ) -> Option<Arc<Node>> {
        self.change(id, |node| {
            let moved = node.become_what(what);
            Some(Node { parent: Some(parent.clone()), name: name.into(), ..moved })
        })
    }

    /// The node of `what` called `name` in `parent`, if there is a reference to it.
    pub(super) fn known(&self, parent: &Node, name: &str, what: &What) -> Option<Arc<Node>> {
        let place = self.place(parent.id, name);
        let id = self.shard(place).lock().by_place.get(&place).copied()?;
        let shard = self.shard(id.0).lock();
        let node = &shard.by_id.get(&id)?.node;
        node.is_known_as(parent, name, what).then(|| node.clone())
    }

    /// The version of `name` in `parent` that an answer or a change made here has brought last, if the core has references to it.
    pub(super) fn shown(&self, parent: &Node, name: &str) -> Option<Tag> {
        let place = self.place(parent.id, name);
        let id = self.shard(place).lock().by_place.get(&place).copied()?;
        let shard = self.shard(id.0).lock();
        let node = &shard.by_id.get(&id)?.node;
        let is_there = node.parent.as_ref().is_some_and(|known| known.id == parent.id);
        node.what.tag().filter(|_| is_there && *node.name == *name).cloned()
    }

    /// Counts an open file of `id`; returns the new counts.
    pub(super) fn opened(&self, id: InodeId, writes: bool) -> Option<Opens> {
        self.count_opens(id, |opens| {
            opens.all += 1;
            opens.writers += u32::from(writes);
        })
    }

    /// Counts a close of `id`; returns the new counts.
    pub(super) fn closed(&self, id: InodeId, wrote: bool) -> Option<Opens> {
        self.count_opens(id, |opens| {
            opens.all = opens.all.saturating_sub(1);
            opens.writers = opens.writers.saturating_sub(u32::from(wrote));
        })
    }

    fn count_opens(&self, id: InodeId, change: impl FnOnce(&mut Opens)) -> Option<Opens> {
        let mut shard = self.shard(id.0).lock();
        let opens = &mut shard.by_id.get_mut(&id)?.opens;
        change(opens);
        Some(*opens)
    }

    /// How often `id` is open.
    pub(super) fn opens(&self, id: InodeId) -> Opens {
        self.count_opens(id, |_| {}).unwrap_or_default()
    }

    /// Notes whether a put of `id` has failed, but may have taken effect.
    pub(super) fn doubt(&self, id: InodeId, doubtful: bool) {
        if let Some(slot) = self.shard(id.0).lock().by_id.get_mut(&id) {
            slot.doubtful = doubtful;
        }
    }

    /// The value that [`Table::doubt`] noted.
    pub(super) fn is_doubtful(&self, id: InodeId) -> bool {
        self.shard(id.0).lock().by_id.get(&id).is_some_and(|slot| slot.doubtful)
    }

    /// The content of `id` must not be put under its own key.
    pub(super) fn refuse(&self, id: InodeId) {
        self.set_refused(id, true);
    }

    /// It may be put again: it has another key.
    pub(super) fn accept(&self, id: InodeId) {
        self.set_refused(id, false);
    }

    fn set_refused(&self, id: InodeId, refused: bool) {
        if let Some(slot) = self.shard(id.0).lock().by_id.get_mut(&id) {
            slot.refused = refused;
        }
    }

    /// Whether [`Table::refuse`] was called.
    pub(super) fn is_refused(&self, id: InodeId) -> bool {
        self.shard(id.0).lock().by_id.get(&id).is_some_and(|slot| slot.refused)
    }

    /// Sets the time of the last change of `id`.
    pub(super) fn state_time(&self, id: InodeId, modified: Timestamp) {
        self.change(id, |node| {
            let what = match node.what.clone() {
                What::Object { tag, size, .. } => What::Object { tag, size, modified },
                What::Local(local) => What::Local(Local { modified, ..local }),
                What::Directory | What::Orphan { .. } => return None,
            };
            Some(node.become_what(what))
        });
        if let Some(slot) = self.shard(id.0).lock().by_id.get_mut(&id) {
            slot.stated = Some(modified);
        }
    }

    /// The time that [`Table::state_time`] set.
    pub(super) fn stated(&self, id: InodeId) -> Option<Timestamp> {
        self.shard(id.0).lock().by_id.get(&id)?.stated
    }

    /// Forgets the time that a caller has set: the file has changed since.
    pub(super) fn forget_time(&self, id: InodeId) {
        if let Some(slot) = self.shard(id.0).lock().by_id.get_mut(&id) {
            slot.stated = None;
        }
    }

    /// The version that the store has now bears the time that a caller has set, if one has.
    pub(super) fn time_is_stored(&self, id: InodeId) {
        if let Some(slot) = self.shard(id.0).lock().by_id.get_mut(&id) {
            slot.keeps_time = slot.stated.take().is_some();
        }
    }

    /// Notes whether an object says that the directory `id` exists.
    pub(super) fn mark(&self, id: InodeId, marked: bool) {
        if let Some(slot) = self.shard(id.0).lock().by_id.get_mut(&id) {
            slot.marked = marked;
        }
    }

    /// Whether an object is known to say that the directory `id` exists. The root always does.
    pub(super) fn is_marked(&self, id: InodeId) -> bool {
        let shard = self.shard(id.0).lock();
        id == InodeId::ROOT || shard.by_id.get(&id).is_some_and(|slot| slot.marked)
    }

    /// Drops `references` references to `id`.
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
        shrink_sparse(&mut shard.by_id);
        drop(shard);
        if let Some(Slot { node, .. }) = &gone {
            self.leave_place(self.place_of(node), id);
            // ORDERING: Relaxed, both; sizes.
            self.bytes.fetch_sub(node.bytes(), Relaxed);
            self.count.fetch_sub(1, Relaxed);
        }
        // This may free its ancestors.
        drop(gone);
    }

    /// `id` is found at `place` no more.
    fn leave_place(&self, place: Option<u64>, id: InodeId) {
        let Some(place) = place else { return };
        let mut shard = self.shard(place).lock();
        if shard.by_place.get(&place) == Some(&id) {
            shard.by_place.remove(&place);
            shrink_sparse(&mut shard.by_place);
        }
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

    /// Where a node is found. Of several versions of one name the last one is found by its place, the others by their ids.
    fn place(&self, parent: InodeId, name: &str) -> u64 {
        self.hasher.hash_one((parent, name))
    }

    fn place_of(&self, node: &Node) -> Option<u64> {
        let parent = node.parent.as_ref().filter(|_| node.what.has_place())?;
        Some(self.place(parent.id, &node.name))
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

    /// The table kept its room for all files that it ever had: 8 MiB after 30,000, beside a cache of 16.
    #[test]
    fn a_table_that_was_emptied_is_small() {
        let table = Table::new("");
        let root = table.get(InodeId::ROOT).unwrap();
        let file = |at: u64| table.refer(&root, &at.to_string(), object("1", 5)).id;
        let files: Vec<_> = (0..20_000).map(file).collect();
        files.into_iter().for_each(|id| table.forget(id, 1));
        let room = table.shards.iter().map(|shard| {
            let shard = shard.lock();
            shard.by_id.capacity() + shard.by_place.capacity()
        });
        let room = room.sum::<usize>();
        assert!(room < 20_000 / 2, "room for {room}");
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
        assert_ne!(first.number, other.number, "another version is another file");
        assert_ne!(first.version, other.version);
        // A directory may be forgotten before its entries.
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

    /// A file that is written here keeps its id and its number through all versions that come of it.
    #[test]
    fn a_file_that_is_written_keeps_its_id() {
        let table = Table::new("");
        let root = table.get(InodeId::ROOT).unwrap();
        let made = table.make(&root, "x", Timestamp::default());
        for round in 0..100 {
            let what = object(&round.to_string(), round);
            let put = table.change(made.id, |node| Some(node.become_what(what.clone()))).unwrap();
            assert_eq!((put.number, put.version), (made.number, made.version));
            let found = table.refer(&root, "x", what.clone());
            assert_eq!(found.id, made.id, "in whichever shard its place is");
            let later = What::Object {
                tag: what.tag().unwrap().clone(),
                size: round,
                modified: Timestamp { seconds: 7, nanoseconds: 0 },
            };
            assert_eq!(table.refer(&root, "x", later.clone()).what, later, "put once more");
            table.forget(made.id, 2);
        }
        let last = object("99", 99);
        let moved = table.move_to(made.id, (&root, "y"), last.clone()).unwrap();
        assert_eq!(moved.key(), "y");
        assert!(table.known(&root, "x", &last).is_none());
        assert_eq!(table.known(&root, "y", &last).unwrap().id, made.id);
        let orphan = What::Orphan { content: Some(vec![0; 5].into()), size: 5 };
        table.change(made.id, |node| Some(node.become_what(orphan))).unwrap();
        assert!(table.known(&root, "y", &last).is_none());
        let other = table.refer(&root, "y", last);
        assert_ne!(other.id, made.id);
        table.forget(other.id, 1);
        table.forget(made.id, 1);
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
