//! The objects and directories that the core knows: ids, and places that keys are made of.
//!
//! # Boundary
//! Gives a version of an object the same id for as long as the core has references to it, and a file that is written
//! here its id through all versions that come of it. Asks no store.
//!
//! # Concurrency
//! Shards by what is found: an id names its shard, in which its node is, and a place names the shard that knows which id is there.
//! One of its locks is held at a time. Where an object has got another version, name or directory, its place is in another
//! shard than its node, so a thread that follows it looks whether the node is still the one that it wants.
//!
//! # States of a file
//!
//! ```text
//!              create                   put                    cut
//!   (nothing) ────────▶ Local, no base ─────▶ Object, its tag ◀────────▶ Local, base: that tag
//!                         │                     │               put        │
//!                         └───────── unlink ────┴──── while it is open ────┘
//!                                      ▼
//!                         Orphan: nobody finds it, and it goes with its last open
//! ```
//!
//! The calls `create`, `cut` and `unlink` move it on any thread; `put` on the one thread that uploads that file
//! ([`super::writing`]).
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
    /// Of the content, as the seam has it: one for all that is written here, since nobody else changes an inode's content.
    pub(super) version: u64,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Directory,
    /// As the store has it.
    Object {
        tag: Tag,
        size: u64,
        modified: Timestamp,
    },
    /// Not as the store has it: made or cut here.
    Local(Local),
    /// Its name was removed while it was open; what was written since, if it was ever whole.
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
    /// The version in the store that it is, or comes from.
    pub(super) fn tag(&self) -> Option<&Tag> {
        match self {
            What::Object { tag, .. } => Some(tag),
            What::Local(local) => local.base.as_ref().map(|(tag, _)| tag),
            What::Directory | What::Orphan { .. } => None,
        }
    }

    /// The same file, of which the store has the version `tag` that a put of it has made: what is kept of its base is in that, too,
    /// since every byte that the put had from elsewhere is still here in a page.
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

    /// Whether others find it: under the name and version that the store has.
    fn has_place(&self) -> bool {
        matches!(self, What::Directory) || self.tag().is_some()
    }

    /// Whether what the store lists under one name is what this is known as.
    fn is_version_of(&self, listed: &What) -> bool {
        self.has_place() && self.tag() == listed.tag()
    }
}

impl Node {
    /// As it will be from now on, as something else.
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

    /// Where it would be as `name` in `parent`.
    pub(super) fn key_below(parent: &Node, name: &str) -> String {
        let mut key = parent.key();
        key.push_str(name);
        key
    }

    /// The directory that it is in, and its name there; `None` for the root.
    pub(super) fn place(&self) -> Option<(&Node, &str)> {
        Some((self.parent.as_deref()?, &self.name))
    }

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

    fn bytes(&self) -> u64 {
        let tag = self.what.tag().map_or(0, |tag| tag.0.len() + 16);
        let content = match &self.what {
            What::Orphan { content: Some(content), .. } => content.len(),
            _ => 0,
        };
        (NODE_BYTES + self.name.len() + tag + content) as u64
    }
}

/// Number and version of what the store has in a place: the same after a restart.
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
    // 1 is the root's, and 0 is nobody's.
    ((hasher.finish() >> 1).max(2), version)
}

/// A node without its texts: itself, what counts it, and its places in both maps with their slack.
const NODE_BYTES: usize = size_of::<Node>() + 16 + 2 * (size_of::<(InodeId, Slot)>() + 16) + 48;

#[derive(Debug)]
struct Slot {
    node: Arc<Node>,
    references: u64,
    /// Open files of it, and those of them that write.
    opens: Opens,
    /// A directory of which an object says that it exists.
    marked: bool,
    /// A put of it has failed, and may have been done all the same.
    doubtful: bool,
    /// Its content must not be put under its own key ([`super::conflict`]).
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
    /// By what [`Table::place`] makes of directory and name.
    by_place: HashMap<u64, InodeId>,
}

impl Node {
    /// Whether it is what the store has as `what` under `name` in `parent`.
    fn is_known_as(&self, parent: &Node, name: &str, what: &What) -> bool {
        let same_parent = self.parent.as_ref().is_some_and(|known| known.id == parent.id);
        same_parent && *self.name == *name && self.what.is_version_of(what)
    }
}

impl Shard {
    /// One reference more to `id`, if it is what the store lists as `what` there.
    fn refer(&mut self, id: InodeId, parent: &Node, name: &str, what: &What) -> Option<Arc<Node>> {
        let slot = self.by_id.get_mut(&id)?;
        if !slot.node.is_known_as(parent, name, what) {
            return None;
        }
        slot.references += 1;
        let is_object = matches!(slot.node.what, What::Object { .. });
        if is_object && !slot.keeps_time && slot.node.what != *what {
            // The same bytes, put once more; or put by us, and now the store's time of that is known.
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

    /// The node of `what` that is called `name` in `parent`, with one reference more.
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

    /// The node of `id`, with one reference more, if there were any.
    pub(super) fn refer_to(&self, id: InodeId) -> Option<Arc<Node>> {
        let mut shard = self.shard(id.0).lock();
        let slot = shard.by_id.get_mut(&id)?;
        slot.references += 1;
        Some(slot.node.clone())
    }

    /// A file that is made here, with one reference. Nobody finds it by its place.
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

    /// What `id` is becomes what `change` makes of it, if it makes anything; the node as it is then. `None` if nobody
    /// refers to it.
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
        // By a new version it is the one that the name leads to.
        if let Some(place) = places[1]
            && (places[0] != places[1] || before.what.tag() != after.what.tag())
        {
            self.shard(place).lock().by_place.insert(place, id);
        }
        Some(after)
    }

    /// Gives `id` another directory and name, and says what it is there.
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

    /// The node of the version `tag` called `name` in `parent`, if anybody refers to it.
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

    /// One open file more of `id`; how many there are then.
    pub(super) fn opened(&self, id: InodeId, writes: bool) -> Option<Opens> {
        self.count_opens(id, |opens| {
            opens.all += 1;
            opens.writers += u32::from(writes);
        })
    }

    /// One open file less of `id`; how many are left.
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

    /// Notes whether a put of `id` has failed that may have been done all the same.
    pub(super) fn doubt(&self, id: InodeId, doubtful: bool) {
        if let Some(slot) = self.shard(id.0).lock().by_id.get_mut(&id) {
            slot.doubtful = doubtful;
        }
    }

    /// What [`Table::doubt`] has noted.
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

    /// What [`Table::refuse`] has noted.
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

    /// What [`Table::state_time`] was told.
    pub(super) fn stated(&self, id: InodeId) -> Option<Timestamp> {
        self.shard(id.0).lock().by_id.get(&id)?.stated
    }

    /// The time of the last change that a caller has set is not that any more.
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
        shrink_sparse(&mut shard.by_id);
        drop(shard);
        if let Some(Slot { node, .. }) = &gone {
            self.leave_place(self.place_of(node), id);
            // ORDERING: Relaxed, both; sizes.
            self.bytes.fetch_sub(node.bytes(), Relaxed);
            self.count.fetch_sub(1, Relaxed);
        }
        // Those above it may end with it.
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
