//! Node ids: the nodes that the kernel holds.
//!
//! # Boundary
//! Maps the kernel's node ids to held [`Node`]s and counts its lookups. The counts are exact: one more for every entry
//! sent, and fewer by each forget. At zero the hold is released, and the object's place stays for a while ([`Past`]): a
//! user may have a handle of it.
//!
//! # Concurrency
//! One lock per shard of ids. A lookup and a forget of one id take the same shard's lock, so a forget cannot drop an id
//! that a reply in progress is counting. The lock of the record of missing names ([`Missing`]) is taken within it.
//! Forgets are counted only while a cleaning waits for them; see [`ForgetWatch`].
//!
//! # Why
//! A node id is the object's own number (`st_ino`) wherever that is free: the FUSE crate shows users the node id as the
//! inode number, and tools compare inode numbers across mounts. Of two objects with one number, the second gets an id
//! from the end of the range. Weakness: from the first such case on, every lookup and forget of the mount takes the
//! lock over those ids.

use super::control::is_reserved;
use super::kernel_end::KernelEnd;
use super::missing::Missing;
use super::places::{Past, Place, Places};
use crate::lock_order;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_concurrent::primitive::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use uvfs_concurrent::shard::Shards;
use uvfs_vfs::{InodeId, Node, Vfs};

/// The kernel's id of the root.
pub(crate) const ROOT: u64 = 1;
/// Where ids for objects whose number is taken are looked for.
const ALIASES: u64 = 0xffff_0000_0000_0000;
const SHARDS: usize = 32;
/// Places in a shard's order that need not be in use.
const ORDER_SLACK: usize = 64;
/// Share of the room of all caches that records of forgotten nodes may use here.
const PAST_SHARE: u64 = 16;

struct HeldNode {
    node: Node,
    lookups: u64,
    end: KernelEnd,
    /// Places recorded for the node; none if it cannot be found again.
    places: Places,
    generation: u32,
    /// Used since the hand last passed.
    recent: bool,
}

/// A node that the kernel has forgotten, still held. Pass it to [`NodeTable::release`].
#[derive(Debug)]
#[must_use = "a thread that waits for forgets waits for it"]
pub(crate) struct Gone(Node);

impl Gone {
    /// Whether its release may ask the store: for a removed object, whether it has other names, and to free it.
    pub(crate) fn may_wait(&self) -> bool {
        self.0.is_unlinked()
    }
}

/// The place of an entry in a reply, and the facts about its object that are recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryPlace<'a> {
    pub(crate) generation: u32,
    /// Where; `None` if it was asked for by a handle.
    pub(crate) place: Option<Place<'a>>,
    /// The object has other names, too.
    pub(crate) others: bool,
}

/// Node ids, and the order in which the hand visits them.
#[derive(Default)]
struct Shard {
    held: HashMap<u64, HeldNode>,
    /// The sum of the lookups of all held ids, so that a reader of the sum need not visit them.
    lookups: u64,
    /// Oldest first. Some may be forgotten since, or be in it twice: those are passed over.
    order: VecDeque<u64>,
    /// Bytes of the places of those held.
    places_bytes: u64,
    past: Past,
}

/// Bytes of one id: its place in the table with the table's slack, and in the order.
const ID_BYTES: usize = 2 * (size_of::<(u64, HeldNode)>() + 1) + 2 * size_of::<u64>();

/// See the module.
pub(crate) struct NodeTable {
    vfs: Arc<Vfs>,
    shards: Shards<Shard>,
    /// Ids held.
    count: AtomicU64,
    /// Ids that were held and are not any more.
    forgotten: AtomicU64,
    /// The next shard for the hand.
    hand: AtomicU64,
    /// Bytes of all places, and of the records of forgotten nodes.
    names_bytes: AtomicU64,
    aliases: Mutex<HashMap<InodeId, u64>>,
    aliases_made: AtomicU64,
    forgets: Forgets,
    /// Names that the kernel has cached as missing.
    pub(crate) missing: Missing,
}

/// Forgotten ids, counted for the thread that waits.
struct Forgets {
    watched: AtomicBool,
    count: Mutex<ForgetCount>,
    enough: Condvar,
}

#[derive(Default)]
struct ForgetCount {
    gone: u64,
    wanted: u64,
}

/// While it lives, forgets are counted. One at a time per table.
pub(crate) struct ForgetWatch<'a>(&'a Forgets);

/// Looks within a pause.
const SLICES: u32 = 5;

impl Forgets {
    /// Counts an id as forgotten.
    fn tell(&self) {
        // ORDERING: Relaxed; a thread that misses the watch costs the watcher a pause: it then reads the table itself.
        if !self.watched.load(Relaxed) {
            return;
        }
        let mut count = self.count.lock();
        count.gone += 1;
        let enough = count.gone == count.wanted;
        drop(count);
        if enough {
            self.enough.notify_all();
        }
    }
}

impl ForgetWatch<'_> {
    /// Waits until `wanted` ids were forgotten since the last call (or since the watch began), or none for `quiet`, for
    /// at most `limit`. Ids forgotten for other reasons count, too: it may return too early, or, after a pause, with
    /// some missing.
    pub(crate) fn wait(&self, wanted: u64, quiet: Duration, limit: Duration) {
        let (end, slice) = (Instant::now() + limit, quiet / SLICES);
        let mut count = self.0.count.lock();
        count.wanted = wanted;
        let mut quiet_slices = 0;
        while count.gone < wanted && quiet_slices < SLICES {
            let before = count.gone;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.0.enough.wait_for(&mut count, slice.min(left));
            quiet_slices = if count.gone == before { quiet_slices + 1 } else { 0 };
        }
        *count = ForgetCount::default();
    }
}

impl Drop for ForgetWatch<'_> {
    fn drop(&mut self) {
        // ORDERING: Relaxed; the hint of `tell`.
        self.0.watched.store(false, Relaxed);
    }
}

impl Shard {
    fn names_bytes(&self) -> u64 {
        self.places_bytes + self.past.bytes()
    }

    /// Adds `id`, which was not held, for a reply to the kernel.
    fn add(&mut self, (id, size): (u64, u64), node: &Node, seen: Option<EntryPlace<'_>>) {
        let (generation, was) = (seen.map_or(0, |seen| seen.generation), self.past.take(id));
        let known = was.filter(|was| seen.is_some() && was.generation == generation);
        let places = known.map_or_else(Places::default, |was| was.places);
        self.places_bytes += places.bytes();
        self.lookups += 1;
        let (node, end) = (node.clone(), KernelEnd::at(size));
        self.insert(id, HeldNode { node, lookups: 1, end, places, generation, recent: false });
        self.see(id, seen);
    }

    fn see(&mut self, id: u64, seen: Option<EntryPlace<'_>>) {
        let Some((seen, held)) = seen.zip(self.held.get_mut(&id)) else { return };
        self.places_bytes -= held.places.bytes();
        seen.place.into_iter().for_each(|place| held.places.see(place, seen.others));
        self.places_bytes += held.places.bytes();
    }

    fn lose(&mut self, id: u64, place: Place<'_>) {
        let Some(held) = self.held.get_mut(&id) else { return };
        self.places_bytes -= held.places.bytes();
        held.places.lose(place);
        self.places_bytes += held.places.bytes();
    }

    /// The kernel has forgotten `id`.
    fn remove(&mut self, id: u64, room: u64) -> Option<HeldNode> {
        let mut held = self.held.remove(&id)?;
        self.places_bytes -= held.places.bytes();
        let places = std::mem::take(&mut held.places);
        if !places.is_empty() && !held.node.is_unlinked() {
            self.past.add(id, places, held.generation, room);
        }
        if self.held.capacity() > 4 * self.held.len() + ORDER_SLACK {
            self.held.shrink_to(2 * self.held.len());
            let held = &self.held;
            let mut seen = HashSet::with_capacity(held.len());
            self.order.retain(|id| held.contains_key(id) && seen.insert(*id));
            self.order.shrink_to(2 * self.order.len());
        }
        Some(held)
    }

    fn insert(&mut self, id: u64, held: HeldNode) {
        self.held.insert(id, held);
        self.order.push_back(id);
        if self.order.len() > 2 * self.held.len() + ORDER_SLACK {
            let mut seen = HashSet::with_capacity(self.held.len());
            // Forgotten ids leave; of an id that is in it twice, the earlier place stays.
            self.order.retain(|id| self.held.contains_key(id) && seen.insert(*id));
        }
    }

    /// The hand visits up to all ids: those used since its last visit move to the end, and get another turn.
    fn pass(&mut self, most: usize, idle: &mut Vec<u64>) {
        let enough = idle.len() + most;
        for _ in 0..self.order.len() {
            if idle.len() >= enough {
                return;
            }
            let Some(id) = self.order.pop_front() else { return };
            let Some(held) = self.held.get_mut(&id) else { continue };
            if !std::mem::take(&mut held.recent) {
                idle.push(id);
            }
            self.order.push_back(id);
        }
    }
}

impl NodeTable {
    pub(crate) fn new(vfs: Arc<Vfs>) -> Self {
        Self {
            vfs,
            shards: Shards::new(&lock_order::FUSE_NODES, SHARDS),
            count: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
            hand: AtomicU64::new(0),
            names_bytes: AtomicU64::new(0),
            aliases: Mutex::new(&lock_order::FUSE_ALIASES, HashMap::new()),
            aliases_made: AtomicU64::new(0),
            forgets: Forgets {
                watched: AtomicBool::new(false),
                count: Mutex::new(&lock_order::FUSE_FORGETS, ForgetCount::default()),
                enough: Condvar::default(),
            },
            missing: Missing::new(),
        }
    }

    /// Counts forgets from now on.
    pub(crate) fn watch_forgets(&self) -> ForgetWatch<'_> {
        *self.forgets.count.lock() = ForgetCount::default();
        // ORDERING: Relaxed; the hint of `tell`.
        self.forgets.watched.store(true, Relaxed);
        ForgetWatch(&self.forgets)
    }

    /// Whether the kernel holds `id`.
    pub(crate) fn is_held(&self, id: u64) -> bool {
        id == ROOT || self.shards.of(&id).lock().held.contains_key(&id)
    }

    /// The node that the kernel means by `id`.
    pub(crate) fn get(&self, id: u64) -> Option<Node> {
        if id == ROOT {
            return Some(self.vfs.root().clone());
        }
        let mut shard = self.shards.of(&id).lock();
        let held = shard.held.get_mut(&id)?;
        held.recent = true;
        Some(held.node.clone())
    }

    /// Gets a node as [`NodeTable::get`] does, with where the kernel takes a file to end.
    pub(crate) fn get_with_end(&self, id: u64) -> Option<(Node, KernelEnd)> {
        if id == ROOT {
            return Some((self.vfs.root().clone(), KernelEnd::at(0)));
        }
        let mut shard = self.shards.of(&id).lock();
        let held = shard.held.get_mut(&id)?;
        held.recent = true;
        Some((held.node.clone(), held.end))
    }

    /// Changes where the kernel takes `id` to end.
    pub(crate) fn ends(&self, id: u64, change: impl FnOnce(&mut KernelEnd)) {
        if let Some(held) = self.shards.of(&id).lock().held.get_mut(&id) {
            change(&mut held.end);
        }
    }

    /// The kernel may not know the last change of the end of `id`.
    pub(crate) fn doubt_end(&self, id: u64) {
        self.ends(id, KernelEnd::doubt);
    }

    /// Gets a node as [`NodeTable::get`] does, without marking it as used.
    pub(crate) fn peek(&self, id: u64) -> Option<Node> {
        if id == ROOT {
            return Some(self.vfs.root().clone());
        }
        self.shards.of(&id).lock().held.get(&id).map(|held| held.node.clone())
    }

    /// The directory in which the object `id` was seen last, or that it is itself.
    pub(crate) fn directory_of(&self, id: u64) -> Option<InodeId> {
        if id == ROOT {
            return Some(self.vfs.root().id());
        }
        let parent = {
            let shard = self.shards.of(&id).lock();
            let held = shard.held.get(&id)?;
            if held.node.is_directory() {
                return Some(held.node.id());
            }
            held.places.newest_first().first()?.0
        };
        // Another shard, perhaps: one lock after the other.
        self.peek(parent).map(|parent| parent.id())
    }

    /// How many ids are held.
    pub(crate) fn held(&self) -> u64 {
        // ORDERING: Relaxed; a size.
        self.count.load(Relaxed)
    }

    /// Ids ever forgotten. [`NodeTable::held`] does not show how many nodes the kernel evicted on request, since other
    /// threads add ids meanwhile.
    pub(crate) fn forgotten(&self) -> u64 {
        // ORDERING: Relaxed; a count, nothing is reached through it.
        self.forgotten.load(Relaxed)
    }

    /// Bytes of the table.
    pub(crate) fn bytes(&self) -> u64 {
        // ORDERING: Relaxed; a size that may lag.
        self.held() * ID_BYTES as u64 + self.names_bytes.load(Relaxed)
    }

    /// Applies `change` to the shard of `id`, and counts the difference in bytes of names.
    fn with<T>(&self, id: u64, change: impl FnOnce(&mut Shard) -> T) -> T {
        self.counting(&mut self.shards.of(&id).lock(), change)
    }

    fn counting<T>(&self, shard: &mut Shard, change: impl FnOnce(&mut Shard) -> T) -> T {
        let before = shard.names_bytes();
        let changed = change(shard);
        // ORDERING: Relaxed; a size. Sums wrap, and come out right.
        self.names_bytes.fetch_add(shard.names_bytes().wrapping_sub(before), Relaxed);
        changed
    }

    /// Room of one shard for records of forgotten nodes.
    fn past_room(&self) -> u64 {
        self.vfs.room_bytes() / PAST_SHARE / SHARDS as u64
    }

    /// Keeps the records of forgotten nodes within their share of the current room.
    pub(crate) fn trim_past(&self) {
        let room = self.past_room();
        for shard in self.shards.iter() {
            self.counting(&mut shard.lock(), |shard| shard.past.keep_within(room));
        }
    }

    /// The recorded places of the forgotten id `id`, and its generation.
    pub(crate) fn past(&self, id: u64) -> Option<(Places, u32)> {
        let shard = self.shards.of(&id).lock();
        shard.past.get(id).map(|was| (was.places.clone(), was.generation))
    }

    /// `node` is not at `lost` any more, but at `found`.
    pub(crate) fn moved(&self, node: &Node, lost: Option<Place<'_>>, found: Option<Place<'_>>) {
        let id = node.number();
        self.with(id, |shard| {
            let Some(held) = shard.held.get(&id).filter(|held| held.node == *node) else { return };
            // A node that never had a place has no other record.
            if held.places.is_empty() {
                return;
            }
            let generation = held.generation;
            lost.into_iter().for_each(|place| shard.lose(id, place));
            shard.see(id, Some(EntryPlace { generation, place: found, others: true }));
        });
    }

    /// Up to `wanted` ids that were not used since this was last asked, the longest held first; none if all
    /// were. Each call looks on where the last one ended.
    pub(crate) fn idle(&self, wanted: usize) -> Vec<u64> {
        let mut idle = Vec::new();
        for _ in 0..SHARDS {
            // ORDERING: Relaxed; only spreads the calls.
            let at = self.hand.fetch_add(1, Relaxed) as usize % SHARDS;
            let Some(shard) = self.shards.iter().nth(at) else { break };
            let mut shard = shard.lock();
            // So many of each shard that a call with few wanted visits all shards.
            let most = (wanted / 4).max(1).min(wanted - idle.len());
            shard.pass(most, &mut idle);
            if idle.len() >= wanted {
                break;
            }
        }
        idle
    }

    /// Counts a lookup of `node`, of which the kernel is shown `number` and `size`, and returns its id. It was `seen`
    /// there, if it can be found again.
    pub(crate) fn publish(
        &self,
        node: &Node,
        (number, size): (u64, u64),
        seen: Option<EntryPlace<'_>>,
    ) -> u64 {
        if node.id() == InodeId::ROOT {
            return ROOT;
        }
        let number = if is_reserved(number) { 0 } else { number };
        // ORDERING: SeqCst both here and in `publish_alias`: of two threads that publish one node at
        // once, one by its number and one by an alias, at least one sees the other.
        let made = self.aliases_made.load(SeqCst);
        if made == 0 && number > ROOT && self.count((number, size), node, seen) {
            if self.aliases_made.load(SeqCst) == made {
                return number;
            }
            self.uncount(number, 1);
        }
        self.publish_alias(node, (number, size), seen)
    }

    /// The careful way: the lock over the aliases keeps a node from getting two ids.
    fn publish_alias(
        &self,
        node: &Node,
        (number, size): (u64, u64),
        seen: Option<EntryPlace<'_>>,
    ) -> u64 {
        let mut aliases = self.aliases.lock();
        if let Some(&alias) = aliases.get(&node.id()) {
            self.count((alias, size), node, None);
            return alias;
        }
        if number > ROOT && self.count((number, size), node, seen) {
            return number;
        }
        loop {
            // ORDERING: SeqCst, partner `publish`.
            let alias = ALIASES + self.aliases_made.fetch_add(1, SeqCst);
            // Free by now, or published by a thread that could not see the coming alias.
            if number > ROOT && self.count((number, size), node, seen) {
                return number;
            }
            if self.count((alias, size), node, None) {
                aliases.insert(node.id(), alias);
                return alias;
            }
        }
    }

    /// The kernel returns `lookups` of `id`. False if it had fewer. May ask the store.
    pub(crate) fn forget(&self, id: u64, lookups: u64) -> bool {
        let (exact, gone) = self.give_back(id, lookups);
        gone.into_iter().for_each(|gone| self.release(gone));
        exact
    }

    /// [`NodeTable::forget`] without asking the store: returns the hold to be released, if the count is now zero.
    pub(crate) fn give_back(&self, id: u64, lookups: u64) -> (bool, Option<Gone>) {
        if id == ROOT {
            return (true, None);
        }
        // ORDERING: SeqCst, partner `publish_alias`: an alias was made before the kernel could have it.
        let aliases = (self.aliases_made.load(SeqCst) > 0).then(|| self.aliases.lock());
        let (exact, gone) = self.uncount(id, lookups);
        if let (Some(mut aliases), Some(held)) = (aliases, &gone)
            && aliases.get(&held.node.id()) == Some(&id)
        {
            aliases.remove(&held.node.id());
        }
        (exact, gone.map(|held| Gone(held.node)))
    }

    /// Releases the hold on a forgotten node. It may be the last one: call this with no lock held.
    pub(crate) fn release(&self, gone: Gone) {
        self.vfs.release(gone.0);
        self.forgets.tell();
    }

    /// The id by which the kernel holds `inode`, if it does.
    pub(crate) fn id_of(&self, inode: InodeId) -> Option<u64> {
        if inode == InodeId::ROOT {
            return Some(ROOT);
        }
        if let Some(alias) = self.alias_of(inode) {
            return Some(alias);
        }
        let number = self.vfs.cached(inode)?.number();
        let shard = self.shards.of(&number).lock();
        shard.held.get(&number).filter(|held| held.node.id() == inode).map(|_| number)
    }

    /// Ids held, and lookups counted on them. Takes one shard's lock after the other, and visits no id.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let mut totals = (0, 0);
        for shard in self.shards.iter() {
            let shard = shard.lock();
            totals.0 += shard.held.len() as u64;
            totals.1 += shard.lookups;
        }
        totals
    }

    /// All ids held, the root's included.
    pub(crate) fn ids(&self) -> Vec<u64> {
        let mut ids = vec![ROOT];
        for shard in self.shards.iter() {
            ids.extend(shard.lock().held.keys());
        }
        ids
    }

    /// The recorded places of `id`.
    pub(crate) fn places(&self, id: u64) -> Vec<(u64, Box<[u8]>)> {
        let shard = self.shards.of(&id).lock();
        shard.held.get(&id).map_or_else(Vec::new, |held| held.places.newest_first())
    }

    /// Drops all nodes: the kernel's session has ended.
    pub(crate) fn clear(&self) {
        for shard in self.shards.iter() {
            let all = self.counting(&mut shard.lock(), std::mem::take);
            // ORDERING: Relaxed; a size.
            self.count.fetch_sub(all.held.len() as u64, Relaxed);
            drop(all);
        }
        self.aliases.lock().clear();
        self.missing.clear();
    }

    /// Counts a lookup on `id` if it is free or is `node`'s already; the kernel is shown `size`.
    fn count(&self, (id, size): (u64, u64), node: &Node, seen: Option<EntryPlace<'_>>) -> bool {
        self.with(id, |shard| {
            match shard.held.get_mut(&id) {
                Some(held) if held.node == *node => {
                    held.lookups += 1;
                    held.end.shown(size);
                    shard.lookups += 1;
                    shard.see(id, seen);
                }
                Some(_) => return false,
                None => {
                    shard.add((id, size), node, seen);
                    // ORDERING: Relaxed; a size.
                    self.count.fetch_add(1, Relaxed);
                }
            }
            true
        })
    }

    /// Takes `lookups` off `id`. Returns whether it had so many, and its hold if none is left.
    fn uncount(&self, id: u64, lookups: u64) -> (bool, Option<HeldNode>) {
        let room = self.past_room();
        self.with(id, |shard| {
            let Some(held) = shard.held.get_mut(&id) else { return (false, None) };
            let exact = held.lookups >= lookups;
            let taken = lookups.min(held.lookups);
            held.lookups -= taken;
            shard.lookups -= taken;
            let gone = if held.lookups == 0 { shard.remove(id, room) } else { None };
            if gone.is_some() {
                // ORDERING: Relaxed, both; a size and a count.
                self.count.fetch_sub(1, Relaxed);
                self.forgotten.fetch_add(1, Relaxed);
            }
            if gone.as_ref().is_some_and(|held| held.node.is_directory()) {
                // Under this lock: negative answers about names there that follow a new lookup of it stay.
                self.missing.forget(id);
            }
            (exact, gone)
        })
    }

    fn alias_of(&self, inode: InodeId) -> Option<u64> {
        // ORDERING: SeqCst, as `forget`.
        if self.aliases_made.load(SeqCst) == 0 {
            return None;
        }
        self.aliases.lock().get(&inode).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvfs_vfs::{
        Attributes, Backend, Caller, Capabilities, Cookie, Data, Entry, FileKind, FileRef, Inodes,
        Listing, Name, Names, Result, VfsConfig,
    };

    /// A root with any number of files, all of number 7.
    struct Sevens;

    impl Backend for Sevens {
        fn capabilities(&self) -> Capabilities {
            Capabilities::read_only("sevens")
        }
        fn root(&self) -> Result<Entry> {
            let attributes = Attributes::new(1, FileKind::Directory, 0o755);
            Ok(Entry { inode: InodeId::ROOT, attributes })
        }
        fn names(&self) -> &dyn Names {
            self
        }
        fn inodes(&self) -> &dyn Inodes {
            self
        }
        fn data(&self) -> &dyn Data {
            self
        }
    }

    impl Names for Sevens {
        fn lookup(&self, _: &Caller, _: InodeId, name: Name<'_>) -> Result<Entry> {
            let attributes = Attributes::new(7, FileKind::Regular, 0o644);
            Ok(Entry { inode: InodeId(u64::from(name.as_bytes()[0])), attributes })
        }
        fn list(&self, _: FileRef, _: Cookie, _: &mut dyn Listing) -> Result<()> {
            Ok(())
        }
    }

    impl Inodes for Sevens {
        fn attributes(&self, _: FileRef) -> Result<Attributes> {
            Ok(Attributes::new(7, FileKind::Regular, 0o644))
        }
    }

    impl Data for Sevens {
        fn read(&self, _: FileRef, _: u64, _: &mut [u8]) -> Result<usize> {
            Ok(0)
        }
    }

    fn sevens() -> (NodeTable, [Node; 2]) {
        let vfs = Vfs::new(Sevens, VfsConfig::default()).unwrap();
        let node = |name: &[u8]| {
            let found = vfs.lookup(&Caller::root(), vfs.root(), Name::new(name).unwrap());
            found.unwrap().found().unwrap().node
        };
        let nodes = [node(b"a"), node(b"b")];
        (NodeTable::new(vfs), nodes)
    }

    /// The hand: an id used since the last pass gets another turn; the others are offered once a turn.
    #[test]
    fn what_is_used_gets_another_turn() {
        let (table, [a, _]) = sevens();
        for id in 100..200 {
            assert!(table.count((id, 0), &a, None));
        }
        assert_eq!(table.bytes(), 100 * ID_BYTES as u64);
        let turn = |table: &NodeTable| {
            let mut ids: Vec<_> = (0..40).flat_map(|_| table.idle(32)).collect();
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        assert_eq!(turn(&table), (100..200).collect::<Vec<_>>());
        // Between two visits of the hand to a shard: one call visits all of them.
        assert!(table.get(150).is_some() && table.peek(151).is_some());
        let one = table.idle(1000);
        assert!(!one.contains(&150) && one.contains(&151), "{one:?}");
        assert!(table.idle(1000).contains(&150), "and then no more");
        for id in 100..200 {
            assert!(table.forget(id, 1));
        }
        assert_eq!((table.bytes(), table.idle(1000)), (0, Vec::new()));
        // Ids that are added and forgotten leave nothing in the order.
        for id in 0..100_000 {
            assert!(table.count((1000 + id % 7, 0), &a, None) && table.forget(1000 + id % 7, 1));
        }
        let order: usize = table.shards.iter().map(|shard| shard.lock().order.len()).sum();
        assert!(order <= SHARDS * (ORDER_SLACK + 1), "{order}");
    }

    /// Bug: a report added up the kernel's lookups id by id, each time, under the locks that lookups take. With a
    /// million names held, one report a second took a share of a core.
    #[test]
    fn sums_of_lookups_are_those_of_the_ids() {
        let (table, [a, _]) = sevens();
        let added_up = |table: &NodeTable| {
            table.shards.iter().fold((0, 0), |(ids, lookups), shard| {
                let shard = shard.lock();
                let here: u64 = shard.held.values().map(|held| held.lookups).sum();
                assert_eq!(shard.lookups, here);
                (ids + shard.held.len() as u64, lookups + here)
            })
        };
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut model = HashMap::<u64, u64>::new();
        for round in 0..20_000 {
            let (id, lookups) = (100 + next(300), next(6));
            if next(2) == 0 {
                assert!(table.count((id, 0), &a, None));
                *model.entry(id).or_default() += 1;
            } else {
                // Also of ids that are not held, and of more lookups than there were.
                let had = model.get(&id).copied();
                assert_eq!(table.forget(id, lookups), had.is_some_and(|had| had >= lookups));
                if let Some(left) = had.map(|had| had.saturating_sub(lookups)) {
                    model.insert(id, left);
                    model.retain(|_, left| *left > 0);
                }
            }
            if round % 100 == 0 {
                let expected = (model.len() as u64, model.values().sum());
                assert_eq!((table.totals(), added_up(&table)), (expected, expected));
            }
        }
        assert!(table.totals().1 > 0);
        table.clear();
        assert_eq!((table.totals(), added_up(&table)), ((0, 0), (0, 0)));
    }

    #[test]
    fn two_objects_of_one_number_get_two_ids_and_keep_them() {
        let (table, [a, b]) = sevens();
        assert_eq!((table.publish(&a, (7, 0), None), table.publish(&a, (7, 0), None)), (7, 7));
        let alias = table.publish(&b, (7, 0), None);
        assert!(alias >= ALIASES && table.publish(&b, (7, 0), None) == alias);
        assert_eq!((table.id_of(a.id()), table.id_of(b.id())), (Some(7), Some(alias)));
        assert!(table.forget(7, 2) && table.forget(alias, 1));
        assert_eq!(table.publish(&b, (7, 0), None), alias, "the alias stays while it is held");
        assert!(table.forget(alias, 2) && !table.forget(alias, 1));
        assert_eq!(
            table.publish(&b, (7, 0), None),
            7,
            "and the number is taken when both are free"
        );
        assert_eq!(table.totals(), (1, 1));
    }

    #[test]
    fn forgets_are_awaited_until_enough_came_or_none_comes_any_more() {
        let (table, [a, b]) = sevens();
        let ids = [table.publish(&a, (7, 0), None), table.publish(&b, (7, 0), None)];
        assert!(table.forget(ids[0], 1), "before the watch: not counted");
        assert_eq!(table.publish(&a, (7, 0), None), 7);
        let watch = table.watch_forgets();
        std::thread::scope(|scope| {
            scope.spawn(|| ids.map(|id| assert!(table.forget(id, 1))));
            // Far longer than a test may take: it has to be woken.
            watch.wait(2, Duration::from_secs(3600), Duration::from_secs(3600));
            assert_eq!(table.totals(), (0, 0));
        });
        // No more forgets arrive: pauses end the wait, or the limit.
        watch.wait(1, Duration::from_millis(5), Duration::from_secs(3600));
        watch.wait(1, Duration::from_secs(3600), Duration::from_millis(5));
        drop(watch);
        assert_eq!(table.publish(&a, (7, 0), None), 7);
        assert!(table.forget(7, 1));
        assert_eq!(table.forgets.count.lock().gone, 0, "no thread watches");
    }

    /// Bug: a forget that took an alias's last count, and a lookup that had just found the alias,
    /// left the object with that alias and without the mapping to it: the next lookup made another.
    #[test]
    fn one_object_never_has_two_ids_at_once() {
        let (table, nodes) = sevens();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (table, node) = (&table, &nodes[thread % 2]);
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let (one, other) =
                            (table.publish(node, (7, 0), None), table.publish(node, (7, 0), None));
                        assert_eq!(one, other);
                        assert_eq!(table.id_of(node.id()), Some(one));
                        assert!(table.forget(one, 1) && table.forget(other, 1));
                    }
                });
            }
        });
        assert_eq!(table.totals(), (0, 0));
    }
}
