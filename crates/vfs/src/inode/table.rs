//! The inode table: from id to cached inode.
//!
//! # Boundary
//! Finds, inserts, and tears down. [`crate::reclaim`] decides when there are too many inodes, and which are evicted
//! first.
//!
//! # Concurrency
//! One shard lock for a find or an insert. An inode leaves in three steps. Its last hold makes it inactive.
//! [`InodeTable::retire`] kills it (exactly one thread wins, see [`uvfs_concurrent::hold`]). The winner takes it out of
//! the table and, with no lock held, returns its references to the backend. A lookup that finds a dead inode inserts a
//! new one in its place. The backend counts references, so the two may overlap without either losing the object. Before
//! the new one can be found, the old one is marked dead for threads that reach it by a name.
//!
//! An inactive inode waits to be used again. If a name leads to it, it is evicted when the clock hand passes that name.
//! Otherwise it waits in the *orphan queue*, oldest first. The thread that makes an inode inactive queues it, as does
//! the thread that removes its last name. The queue itself drops inodes that have a name.

use super::{CleanTicks, Clock, DirState, Expiry, Inode, InodeExtra, Node, Ticket, flag};
use crate::backend::{Entry, InodeId};
use crate::lock_order;
use crate::vfs::Core;
use std::borrow::Borrow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::time::Instant;
use uvfs_concurrent::counter::Counter;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_concurrent::shard::{Shards, shrink_sparse_set};
use uvfs_containers::object::{Hold, Ref};

const SHARDS: usize = 64;
/// Retired directories remembered per shard: together some 200 KiB.
const RETIRED_MAX: usize = 64;
/// Retired inodes of one shard with an own record of their last stamp: together 16 KiB.
const GONE_MAX: usize = 16;
/// Up to this number of inodes, each request counts those in use.
const COUNTED_EACH_TIME: u64 = 1 << 16;
/// Beyond it, one count is valid for 1 ms per this number: a count of a million takes 16 ms, and is valid for 20 s.
const INODES_PER_MS: u64 = 50;
/// Queued inodes examined for one orphan.
const ORPHANS_AT_ONCE: usize = 64;

/// Bytes of one inode: its three lines, and its place in the table with the table's slack.
pub(crate) const INODE_BYTES: usize = size_of::<Inode>() + 2 * (size_of::<ById>() + 1);

/// Bytes of an inode's further state, as far as it is counted.
pub(crate) const REST_BYTES: usize = size_of::<InodeExtra>();
/// And of a directory's.
const DIRECTORY_BYTES: usize = size_of::<DirState>();

/// An inode in the table: found by its id, which it holds itself.
#[derive(Debug)]
struct ById(Ref<Inode>);

impl Borrow<InodeId> for ById {
    fn borrow(&self) -> &InodeId {
        &self.0.id
    }
}

impl Hash for ById {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}

impl PartialEq for ById {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for ById {}

#[derive(Debug, Default)]
struct Shard {
    inodes: HashSet<ById>,
    /// The latest change of an inode that has left this shard, or a later stamp. An answer to an earlier question about
    /// it may still be on its way. Not above the ticket of any later question ([`Clock::pass`]).
    changed: Ticket,
    /// Those with a last stamp that no ticket exceeds yet, recorded apart. A file created while others are removed is
    /// not among them, and its creation does not move the clock.
    gone: Gone,
    /// State of retired directories about names and pages that may still be cached. A new inode for such a directory
    /// takes it over.
    retired: HashMap<InodeId, EntriesState>,
    /// The maximum of those that had no room. It applies to all directories.
    known: EntriesState,
    /// Inodes whose ids came back as objects of other kinds, and that were replaced. Kept until they are torn down, so
    /// that their backend references are returned.
    displaced: Vec<Ref<Inode>>,
}

/// The last stamps of inodes that left a shard, the oldest replaced by the next.
#[derive(Debug)]
struct Gone {
    inodes: [(InodeId, Ticket); GONE_MAX],
    next: usize,
}

impl Default for Gone {
    fn default() -> Self {
        // An inode that has never changed.
        Self { inodes: [(InodeId::ROOT, Ticket::default()); GONE_MAX], next: 0 }
    }
}

/// A directory's state about its cached entries.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EntriesState {
    /// Names from before this moment are not valid.
    pub(super) names_after: u64,
    pub(super) cleaned: CleanTicks,
}

impl EntriesState {
    fn of(directory: &Inode) -> Self {
        Self { names_after: directory.names_after(), cleaned: directory.cleaned() }
    }

    fn is_nothing(self) -> bool {
        self.names_after == 0 && self.cleaned == CleanTicks::default()
    }

    fn max(self, other: Self) -> Self {
        Self {
            names_after: self.names_after.max(other.names_after),
            cleaned: self.cleaned.max(other.cleaned),
        }
    }
}

impl Shard {
    /// An inode leaves. `changed` is its last change.
    fn note_gone(&mut self, clock: &Clock, inode: InodeId, changed: Ticket) {
        let mut older = changed;
        if clock.is_beyond(changed) {
            let place = self.gone.next % GONE_MAX;
            self.gone.next = place + 1;
            (_, older) = std::mem::replace(&mut self.gone.inodes[place], (inode, changed));
        }
        if older > self.changed {
            self.changed = older;
            clock.pass(older);
        }
    }

    /// The latest change of inode `id` that has left this shard, or a later stamp.
    fn changed_of(&self, id: InodeId) -> Ticket {
        let gone = self.gone.inodes.iter().filter(|gone| gone.0 == id);
        gone.map(|gone| gone.1).fold(self.changed, Ticket::max)
    }

    /// `directory` leaves.
    fn note_retired(&mut self, directory: &Inode) {
        let known = EntriesState::of(directory);
        if known.is_nothing() {
            return;
        }
        if self.retired.len() >= RETIRED_MAX {
            let all = self.retired.drain().fold(self.known, |all, (_, one)| all.max(one));
            self.known = all;
        }
        self.retired.insert(directory.id, known);
    }

    /// The state for a directory that is inserted (again).
    fn known_of(&mut self, directory: InodeId) -> EntriesState {
        self.retired.remove(&directory).unwrap_or_default().max(self.known)
    }
}

#[derive(Debug)]
pub(crate) struct InodeTable {
    shards: Shards<Shard>,
    orphans: Mutex<Orphans>,
    /// Sizes, counted by thread: inserts and removals on many cores share no line. They are added up rarely.
    count: Counter,
    /// Inodes that have a [`InodeExtra`].
    rests: Counter,
    /// Those that have an [`DirState`].
    directories: Counter,
    /// Inodes without a name in the store that are still held.
    leaving: Counter,
    active: Active,
}

/// The number of inodes in use at the last count. A count visits each of them, and each watcher asks every second.
#[derive(Debug)]
struct Active {
    born: Instant,
    /// The time of the count, in milliseconds since `born`; 0 if never.
    counted_ms: AtomicU64,
    count: AtomicU64,
}

impl Active {
    fn new() -> Self {
        let (counted_ms, count) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { born: Instant::now(), counted_ms, count }
    }

    /// The last count if it is still valid for this number of `inodes`; otherwise a new one.
    fn get(&self, inodes: u64, count: impl FnOnce() -> u64) -> u64 {
        let now_ms = self.born.elapsed().as_millis() as u64 + 1;
        // ORDERING: Relaxed, all of these; a statistic, nothing is reached through it.
        let counted_ms = self.counted_ms.load(Relaxed);
        let is_young = now_ms.saturating_sub(counted_ms) < inodes / INODES_PER_MS;
        if inodes > COUNTED_EACH_TIME && counted_ms > 0 && is_young {
            return self.count.load(Relaxed);
        }
        let counted = count();
        // ORDERING: Relaxed, both; a statistic, nothing is reached through it.
        self.count.store(counted, Relaxed);
        self.counted_ms.store(now_ms, Relaxed);
        counted
    }
}

/// Inodes that have no hold and no name.
#[derive(Debug, Default)]
struct Orphans {
    queue: VecDeque<Ref<Inode>>,
    /// The length from which on the queue is checked for entries that were used or torn down since.
    look_at: usize,
}

impl Orphans {
    /// The oldest one.
    fn pop(&mut self) -> Option<Ref<Inode>> {
        self.look_at = self.look_at.min(self.queue.len());
        self.queue.pop_front()
    }
}

/// One less, in a [`Counter`].
const ONE_LESS: u64 = u64::MAX;

/// The value of a [`Counter`] that also falls: a snapshot, so never below 0.
fn size(counter: &Counter) -> usize {
    usize::try_from(counter.total().cast_signed()).unwrap_or(0)
}

impl InodeTable {
    pub(crate) fn new() -> Self {
        Self {
            shards: Shards::new(&lock_order::INODES, SHARDS),
            orphans: Mutex::new(&lock_order::INACTIVE, Orphans::default()),
            count: Counter::new(),
            rests: Counter::new(),
            directories: Counter::new(),
            leaving: Counter::new(),
            active: Active::new(),
        }
    }

    /// The inode of `entry`, which carries one backend reference, with a hold for the caller.
    /// `ticket` was taken before the backend was asked.
    pub(crate) fn adopt(&self, core: &Core, entry: &Entry, ticket: Ticket, expiry: Expiry) -> Node {
        let mut shard = self.shards.of(&entry.inode).lock();
        let (mut retired, mut known) = (Ticket::default(), EntriesState::default());
        if let Some(ById(inode)) = shard.inodes.get(&entry.inode) {
            if inode.kind() == entry.attributes.kind
                && let Some(node) = Node::try_hold(inode)
            {
                // ORDERING: Relaxed; the shard lock and our hold order it against the teardown.
                node.inode.references.fetch_add(1, Relaxed);
                drop(shard);
                node.inode.keep_attributes(ticket, &entry.attributes, expiry);
                return node;
            }
            // The thread that retired it may not have marked it yet. Names that lead to it must be invalid from the
            // moment that there is another one.
            inode.set_flag(flag::DEAD, true);
            retired = inode.changed();
            // Nor may that thread have recorded this yet.
            if inode.is_directory() {
                known = EntriesState::of(inode);
            }
        }
        let gone = shard.changed_of(entry.inode).max(retired);
        let overtaken = ticket < gone;
        let expiry = if overtaken { Expiry::EXPIRED } else { expiry };
        // Other threads may have answers that are as old or older. So the changes that overtook this answer count as
        // recorded here.
        let changed = gone.max(ticket);
        let about = (entry.inode, &entry.attributes);
        let inode = Inode::new(core.weak_self, about, expiry, changed);
        if inode.is_directory() {
            inode.start_knowing(shard.known_of(entry.inode).max(known));
        }
        let reference = inode.try_ref().expect("a new inode has no references yet");
        let displaced = match shard.inodes.replace(ById(reference)) {
            Some(ById(old)) => {
                let kept = old.try_clone();
                shard.displaced.extend(kept);
                Some(old)
            }
            None => {
                self.count.hit();
                None
            }
        };
        drop(shard);
        // Marked under a hold: the thread that drops the last hold, here or elsewhere, tears it down. If no hold can be
        // had, another thread is doing so.
        if let Some(old) = displaced.as_ref().and_then(Node::try_hold) {
            old.inode.set_flag(flag::DISPLACED, true);
        }
        drop(displaced);
        if overtaken && inode.is_directory() {
            // News of its entries may have found no inode.
            inode.dir_state().entries.lock().note(&core.clock);
        }
        Node { inode }
    }

    /// The cached inode `id`, whose object has changed. If there is none, an answer about it that is on its way will
    /// not be cached.
    pub(crate) fn find_changed(&self, clock: &Clock, id: InodeId) -> Option<Node> {
        let mut shard = self.shards.of(&id).lock();
        let node = shard.inodes.get(&id).and_then(|inode| Node::try_hold(&inode.0));
        if node.is_none() {
            shard.changed = clock.tick();
        }
        node
    }

    /// Like [`InodeTable::find_changed`] for every object that is not cached.
    pub(crate) fn note_all(&self, clock: &Clock) {
        self.shards.iter().for_each(|shard| shard.lock().changed = clock.tick());
    }

    /// The cached inode `id`, with a hold for the caller.
    pub(crate) fn find(&self, id: InodeId) -> Option<Node> {
        let node = Node::try_hold(&self.shards.of(&id).lock().inodes.get(&id)?.0)?;
        node.inode.touch();
        Some(node)
    }

    /// Like [`InodeTable::find`], without marking it as used.
    pub(crate) fn peek(&self, id: InodeId) -> Option<Node> {
        Node::try_hold(&self.shards.of(&id).lock().inodes.get(&id)?.0)
    }

    /// Takes the oldest orphan out of the queue, used or not. It stays marked as queued: a caller that does not tear it
    /// down queues it again. `None` if it was no orphan any more.
    pub(crate) fn oldest_orphan(&self) -> Option<Ref<Inode>> {
        let oldest = self.orphans.lock().pop()?;
        dequeued(&oldest).then_some(oldest)
    }

    /// Handles an inode whose last hold is gone. An unlinked one is torn down.
    pub(crate) fn inactive(&self, core: &Core, inode: Ref<Inode>) -> Option<Retired> {
        if inode.flags() & (flag::UNLINKED | flag::DISPLACED) != 0 {
            return self.retire(core, &inode);
        }
        if let Some(orphan) = self.orphaned(inode) {
            self.enqueue(orphan);
        }
        None
    }

    /// Returns an inode whose last hold is gone, marked as queued, if it has no name and is not queued yet. The caller
    /// queues it or tears it down.
    pub(crate) fn orphaned(&self, inode: Ref<Inode>) -> Option<Ref<Inode>> {
        inode.orphan.released().then_some(inode)
    }

    /// Queues an inode that is marked as queued.
    pub(crate) fn enqueue(&self, inode: Ref<Inode>) {
        let stale = {
            let mut orphans = self.orphans.lock();
            orphans.queue.push_back(inode);
            // Entries that were used or torn down are taken out when they are as many as there can be orphans. That is
            // a constant share of the work per queued inode.
            let length = orphans.queue.len();
            let due = length > orphans.look_at;
            let crowded = due && length > 2 * self.count() + 64;
            if due {
                orphans.look_at = length + length / 8;
            }
            match crowded {
                true => std::mem::take(&mut *orphans).queue,
                false => VecDeque::new(),
            }
        };
        if !stale.is_empty() {
            let orphans: Vec<_> = stale.into_iter().filter(|inode| dequeued(inode)).collect();
            self.orphans.lock().queue.extend(orphans);
        }
    }

    /// Takes the oldest orphan that was not used meanwhile. It stays marked as queued: a caller that does not tear it
    /// down queues it again. Gives up after [`ORPHANS_AT_ONCE`] entries.
    pub(crate) fn next_orphan(&self) -> Option<Ref<Inode>> {
        for _ in 0..ORPHANS_AT_ONCE {
            let inode = self.orphans.lock().pop()?;
            if !dequeued(&inode) {
                continue;
            }
            if inode.untouch() {
                self.orphans.lock().queue.push_back(inode);
                continue;
            }
            return Some(inode);
        }
        None
    }

    /// Forgets every inactive inode. For shutdown and tests of exactness.
    pub(crate) fn clear_inactive(&self, core: &Core) {
        loop {
            let mut idle = Vec::new();
            for shard in self.shards.iter() {
                let shard = shard.lock();
                let inactive = shard.inodes.iter().filter(|inode| inode.0.racy_inactive());
                idle.extend(inactive.filter_map(|inode| inode.0.try_clone()));
            }
            // A parent that becomes inactive by this is retired in the next round.
            let retired = idle.iter().filter(|inode| self.retire(core, inode).is_some()).count();
            if retired == 0 {
                return;
            }
        }
    }

    /// Inodes in the orphan queue, those included that have been used again or torn down since.
    pub(crate) fn orphans(&self) -> u64 {
        self.orphans.lock().queue.len() as u64
    }

    /// Inodes whose last name is gone. Their space is freed with their last hold.
    pub(crate) fn unlinked_in_use(&self) -> usize {
        size(&self.leaving)
    }

    /// An inode lost its last name, or has one again.
    pub(super) fn count_unlinked(&self, unlinked: bool) {
        self.leaving.add(if unlinked { 1 } else { ONE_LESS });
    }

    /// Inodes in the table.
    pub(crate) fn count(&self) -> usize {
        size(&self.count)
    }

    /// Bytes of all of them, with their further state but without their pages.
    pub(crate) fn bytes(&self) -> usize {
        let (rests, directories) = (size(&self.rests), size(&self.directories));
        self.count() * INODE_BYTES + rests * REST_BYTES + directories * DIRECTORY_BYTES
    }

    /// An inode got its [`InodeExtra`].
    pub(super) fn made_rest(&self) {
        self.rests.hit();
    }

    /// A directory got its [`DirState`].
    pub(super) fn made_directory(&self) {
        self.directories.hit();
    }

    /// Inodes that are held now. If there are very many, a count from some seconds ago.
    pub(crate) fn racy_active(&self) -> u64 {
        let active = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            shard.inodes.iter().filter(|inode| inode.0.hold.racy_holds() > 0).count() as u64
        };
        self.active.get(self.count() as u64, || self.shards.iter().map(active).sum())
    }

    /// Applies `action` to every cached inode, shard by shard.
    pub(crate) fn for_each(&self, mut action: impl FnMut(&Inode)) {
        for shard in self.shards.iter() {
            let held = |inode: &ById| Node::try_hold(&inode.0);
            let nodes: Vec<_> = shard.lock().inodes.iter().filter_map(held).collect();
            nodes.iter().for_each(|node| action(&node.inode));
        }
    }

    /// Tears the inode down if it is inactive; `None` if it is not. Calls the backend.
    pub(crate) fn retire(&self, core: &Core, inode: &Ref<Inode>) -> Option<Retired> {
        inode.hold.retire().then(|| self.tear_down(core, inode))
    }

    /// The rest of [`InodeTable::retire`], for the one thread that killed the inode.
    pub(super) fn tear_down(&self, core: &Core, inode: &Ref<Inode>) -> Retired {
        inode.set_flag(flag::DEAD, true);
        if inode.is_directory() {
            // While it still has its parent: an inode that replaces it must not accept older names.
            core.learn_cleans(inode);
        }
        let left = {
            let mut shard = self.shards.of(&inode.id).lock();
            shard.note_gone(&core.clock, inode.id, inode.changed());
            // A removed directory's id does not come back.
            if inode.is_directory() && inode.flags() & flag::UNLINKED == 0 {
                shard.note_retired(inode);
            }
            match shard.inodes.get(&inode.id) {
                Some(current) if current.0.same(inode) => {
                    self.count.add(ONE_LESS);
                    let left = shard.inodes.take(&inode.id).map(|left| left.0);
                    shrink_sparse_set(&mut shard.inodes);
                    left
                }
                _ => {
                    let at = shard.displaced.iter().position(|one| one.same(inode));
                    at.map(|at| shard.displaced.swap_remove(at))
                }
            }
        };
        drop(left);
        core.counters.inodes_evicted.hit();
        if inode.known_rest().is_some() {
            self.rests.add(ONE_LESS);
        }
        if inode.known_directory().is_some() {
            self.directories.add(ONE_LESS);
        }
        if let Some(pages) = inode.known_pages() {
            pages.leave();
        }
        // ORDERING: Relaxed; `retire` acquired all stores of earlier holders (O1 of `hold`).
        let references = inode.references.load(Relaxed);
        if references > 0 {
            core.backend().inodes().forget(inode.id, references);
        }
        // No thread holds it any more, so none changes the flag.
        if inode.is_unlinked() {
            // Before it leaves the count of inodes that may free some.
            core.space_came();
            self.count_unlinked(false);
        }
        Retired { parent: inode.take_parent() }
    }
}

/// An inode was torn down.
#[derive(Debug)]
pub(crate) struct Retired {
    /// The hold that it had on its parent.
    parent: Option<Hold<Inode>>,
}

impl Retired {
    /// Drops the hold on the parent. Returns the parent if it became inactive.
    pub(crate) fn release_parent(self) -> Option<Ref<Inode>> {
        self.parent.and_then(Hold::release)
    }
}

impl Drop for InodeTable {
    /// Children hold their parents. They drop these holds while the table still has every inode, so no chain of them is
    /// freed by recursion.
    fn drop(&mut self) {
        for shard in self.shards.iter() {
            let inodes: Vec<_> =
                shard.lock().inodes.iter().filter_map(|inode| inode.0.try_clone()).collect();
            inodes.iter().for_each(|inode| drop(inode.take_parent()));
        }
    }
}

/// The inode was taken out of the queue. True if it is still an orphan: inactive and without a name. Then it counts as
/// queued again, and the caller has it.
fn dequeued(inode: &Inode) -> bool {
    inode.orphan.dequeued(&inode.hold)
}

#[cfg(test)]
mod tests {
    use super::{Active, COUNTED_EACH_TIME};
    use crate::{
        Attributes, Authority, Backend, Caller, Capabilities, Cookie, Data, Entry, FileKind,
        FileRef, InodeId, Inodes, Listing, Name, Names, Result, Vfs, VfsConfig,
    };
    use std::sync::Arc;
    use std::time::Duration;
    use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering};

    /// Each report of a mount visited all inodes to count those in use. That took 16 ms with a million of them, every
    /// second for each watcher, with the locks of the inode table held.
    #[test]
    fn inodes_in_use_are_counted_each_time_only_where_they_are_few() {
        let active = Active::new();
        let counted = |inodes, now| active.get(inodes, || now);
        assert_eq!([counted(10, 1), counted(10, 2)], [1, 2]);
        // An hour, not a moment that a slow machine may take.
        let many = 3_600_000 * super::INODES_PER_MS;
        assert_eq!([counted(many, 3), counted(COUNTED_EACH_TIME, 4), counted(many, 5)], [2, 4, 4]);
        assert_eq!(Active::new().get(many, || 6), 6, "never counted before");
    }

    /// One file, which has another kind at each lookup.
    #[derive(Default)]
    struct Turncoat {
        given: AtomicU64,
        forgotten: AtomicU64,
    }

    const FILE: InodeId = InodeId(7);

    impl Backend for Arc<Turncoat> {
        fn capabilities(&self) -> Capabilities {
            Capabilities { authority: Authority::Shared, ..Capabilities::read_only("turncoat") }
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

    impl Names for Arc<Turncoat> {
        fn lookup(&self, _: &Caller, _: InodeId, _: Name<'_>) -> Result<Entry> {
            // ORDERING: Relaxed; one thread.
            let kind = match self.given.fetch_add(1, Ordering::Relaxed) % 3 {
                0 => FileKind::Regular,
                1 => FileKind::Directory,
                _ => FileKind::Symlink,
            };
            Ok(Entry { inode: FILE, attributes: Attributes::new(7, kind, 0o644) })
        }
        fn list(&self, _: FileRef, _: Cookie, _: &mut dyn Listing) -> Result<()> {
            Ok(())
        }
    }

    impl Inodes for Arc<Turncoat> {
        fn attributes(&self, file: FileRef) -> Result<Attributes> {
            Ok(Attributes::new(file.inode.0, FileKind::Directory, 0o755))
        }
        fn forget(&self, inode: InodeId, references: u64) {
            if inode == FILE {
                self.forgotten.fetch_add(references, Ordering::Relaxed);
            }
        }
    }

    impl Data for Arc<Turncoat> {
        fn read(&self, _: FileRef, _: u64, _: &mut [u8]) -> Result<usize> {
            Ok(0)
        }
    }

    /// Bug: the id of an inode came back as an object of another kind. The inode was freed without its teardown, so
    /// references of a damaged image were never returned.
    #[test]
    fn an_id_that_changes_its_kind_owes_no_references() {
        for held in [false, true] {
            let store = Arc::new(Turncoat::default());
            let config = VfsConfig { entry_timeout: Duration::ZERO, ..VfsConfig::default() };
            let vfs = Vfs::new(store.clone(), config).unwrap();
            let mut nodes = Vec::new();
            for _ in 0..9 {
                let name = Name::new(b"f").unwrap();
                let found = vfs.lookup(&Caller::root(), vfs.root(), name).unwrap().found().unwrap();
                nodes.extend(held.then_some(found.node));
            }
            drop(nodes);
            vfs.forget_unused();
            let (given, forgotten) =
                (store.given.load(Ordering::Relaxed), store.forgotten.load(Ordering::Relaxed));
            assert_eq!((given, forgotten), (9, 9), "held: {held}");
            assert_eq!(vfs.unlinked_in_use(), 0, "held: {held}");
        }
    }
}
