//! One object of the host that the core knows: its identity, and the names under which it was seen.
//!
//! # Boundary
//! The state of one node. [`super::table`] has all nodes, and [`super::reach`] opens them. Makes no
//! system call.
//!
//! # Identity
//! A node is one host object: device, inode number, kind and time of birth; for a directory also
//! the mount through which it is seen, so that a bind mount cannot make the tree a loop.
//!
//! # Concurrency
//! The list of names has a lock, of the class of the table's shards, with which it is never held. A
//! value that holds another node is never dropped under it: the end of a node takes its shard's
//! lock. The recorded entries of a watched directory have a lock, too, the innermost. [`super::watch`] has the protocol
//! of the records that decide whether an event is reported: `settled`, `heard`, and [`Child`].
//!
//! # Why
//! Names rather than a descriptor per inode (hard limits of 20,000 descriptors exist) or file
//! handles (which need CAP_DAC_READ_SEARCH, and a host that has them). Weakness: an object with
//! more names than [`NAMES_MAX`] is stale until looked up again if others remove all its recorded
//! names.

use super::convert::{HostKey, HostStat, mix};
use super::descriptor::DescriptorSlot;
use super::table::NodeTable;
use crate::lock_order::{HOST_NODES, HOST_WATCHES};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU32, AtomicU64};
use uvfs_vfs::{FileKind, InodeId, Timestamp};

/// Names remembered of one object that is not a directory.
pub(super) const NAMES_MAX: usize = 8;

/// One object of the host.
#[derive(Debug)]
pub(super) struct HostNode {
    pub(super) id: InodeId,
    pub(super) key: HostKey,
    pub(super) kind: FileKind,
    born: Option<Timestamp>,
    /// Descriptor of the object, if one is open.
    pub(super) slot: Arc<DescriptorSlot>,
    names: Mutex<Names>,
    mode: AtomicU32,
    /// The fingerprint of the attributes that every cached answer has; 0 if answers may differ.
    settled: AtomicU64,
    /// Events about this object, or in this directory, that were examined.
    heard: AtomicU64,
    /// Changes of our own: those begun ever in the upper half, those under way in the lower.
    changes: AtomicU64,
    watched: AtomicBool,
    /// All changes of its names are reported.
    reports: AtomicBool,
    /// Open files are the only way to it.
    keeps_descriptors: AtomicBool,
    children: OnceLock<Mutex<Children>>,
    table: Weak<NodeTable>,
}

/// Entries of a watched directory: those that the core may have cached.
#[derive(Debug, Default)]
struct Children {
    by_name: HashMap<Arc<[u8]>, Recorded>,
    /// Listings of the directory that began. Each ends what was settled before.
    listings: u64,
}

#[derive(Debug)]
struct Recorded {
    inode: InodeId,
    /// The value of `listings` when our own change settled it.
    settled_in: Option<u64>,
}

/// A recorded entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) inode: InodeId,
    /// Our own change gave it this name, and every cached answer says so.
    pub(super) is_settled: bool,
}

/// Where an object was seen.
#[derive(Debug, Clone)]
pub(super) struct KnownName {
    pub(super) parent: Arc<HostNode>,
    pub(super) name: Arc<[u8]>,
}

#[derive(Debug, Default)]
struct Names {
    version: u64,
    list: Vec<KnownName>,
}

impl HostNode {
    /// A node of `table` for the object in `stat`, with `names`. Without `births`, the time of
    /// birth is no part of its identity.
    pub(super) fn new(
        id: InodeId,
        stat: &HostStat,
        births: bool,
        names: Vec<KnownName>,
        table: Weak<NodeTable>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            key: stat.key,
            kind: stat.attributes.kind,
            born: stat.attributes.btime.filter(|_| births),
            slot: Arc::default(),
            names: Mutex::new(&HOST_NODES, Names { version: 0, list: names }),
            mode: AtomicU32::new(stat.attributes.mode),
            settled: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            watched: AtomicBool::new(false),
            reports: AtomicBool::new(false),
            keeps_descriptors: AtomicBool::new(false),
            children: OnceLock::new(),
            table,
        })
    }

    /// Whether `stat` shows this object.
    pub(super) fn is(&self, stat: &HostStat) -> bool {
        let same_birth = match (self.born, stat.attributes.btime) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => true,
        };
        self.key == stat.key && self.kind == stat.attributes.kind && same_birth
    }

    /// The names known now, oldest first, and the version of that list.
    pub(super) fn names(&self) -> (u64, Vec<KnownName>) {
        let names = self.names.lock();
        (names.version, names.list.clone())
    }

    /// Whether `name` of `parent` is a known name of this object.
    pub(super) fn is_known_as(&self, parent: &HostNode, name: &[u8]) -> bool {
        self.names.lock().position(parent, name).is_some()
    }

    /// Whether this object is known by a name other than `name` of `parent`.
    pub(super) fn is_known_otherwise(&self, parent: &HostNode, name: &[u8]) -> bool {
        let names = self.names.lock();
        names.list.len() > usize::from(names.position(parent, name).is_some())
    }

    /// At which level below the root an entry of this directory is; 0 if that is not known.
    pub(super) fn levels_below(&self) -> usize {
        match (self.id, self.slot.levels()) {
            (InodeId::ROOT, _) => 1,
            (_, 0) => 0,
            (_, levels) => levels + 1,
        }
    }

    /// The permission bits when last seen.
    pub(super) fn mode_hint(&self) -> u32 {
        // ORDERING: Relaxed; a hint, it publishes nothing else.
        self.mode.load(Relaxed)
    }

    /// Every cached answer about the attributes will be `stat`: after our own change, or before a report.
    pub(super) fn settle(&self, stat: &HostStat) {
        // ORDERING: Relaxed; a hint.
        self.mode.store(stat.attributes.mode, Relaxed);
        // ORDERING: SeqCst, partner `unsettle_unless`.
        self.settled.store(fingerprint(stat), SeqCst);
    }

    /// A question is about to be answered with `stat`.
    pub(super) fn unsettle_unless(&self, stat: &HostStat) {
        // ORDERING: Relaxed; a hint.
        self.mode.store(stat.attributes.mode, Relaxed);
        // ORDERING: SeqCst, partners `is_settled` and `hear`: either the thread that examines an event sees that answers differ, or the
        // question sees the event.
        let settled = self.settled.load(SeqCst);
        if settled != 0 && settled != fingerprint(stat) {
            let _ = self.settled.compare_exchange(settled, 0, SeqCst, SeqCst);
        }
    }

    /// Whether every cached answer about the attributes is `stat`.
    pub(super) fn is_settled(&self, stat: &HostStat) -> bool {
        // ORDERING: SeqCst, partner `unsettle_unless`.
        self.settled.load(SeqCst) == fingerprint(stat)
    }

    /// Whether a change by others may have come between two looks, of which the second may find no such object. A change of our own that is under way keeps answers
    /// out of the caches by itself, and the attributes of a directory are valid shortly.
    pub(super) fn was_changed(&self, (first, second): (&HostStat, Option<&HostStat>)) -> bool {
        let is_changing = self.own_changes().0 as u32 != 0;
        self.kind != FileKind::Directory
            && !is_changing
            && second.is_none_or(|second| fingerprint(first) != fingerprint(second))
    }

    /// Events examined so far.
    pub(super) fn heard(&self) -> u64 {
        // ORDERING: SeqCst, partner `hear`: an event is counted before its record is read, and a question changes the
        // record before it reads this again.
        self.heard.load(SeqCst)
    }

    /// An event is about to be examined.
    pub(super) fn hear(&self) {
        // ORDERING: SeqCst, partner `heard`.
        self.heard.fetch_add(1, SeqCst);
    }

    /// Claims the right to watch this directory; false if that was tried already.
    pub(super) fn claim_watch(&self) -> bool {
        // ORDERING: Relaxed both; the winner does the work, nothing is published by it. The load is
        // first, so that the common case stores nothing.
        !self.watched.load(Relaxed) && !self.watched.swap(true, Relaxed)
    }

    /// The watch is there, and sees all changes.
    pub(super) fn set_reports(&self) {
        // ORDERING: Release, partner `reports`: the watch was added before.
        self.reports.store(true, Release);
    }

    /// Whether all changes of names in this directory are reported.
    pub(super) fn reports(&self) -> bool {
        // ORDERING: Acquire, partner `set_reports`.
        self.reports.load(Acquire)
    }

    /// Gives that right up; false if no thread had it.
    pub(super) fn release_watch(&self) -> bool {
        // ORDERING: Relaxed; the lock of a shard of the table orders it, see `Watches::remove`.
        self.reports.store(false, Relaxed);
        // ORDERING: Relaxed; see `claim_watch`.
        self.watched.swap(false, Relaxed)
    }

    /// From now on its open files do not give up their descriptors.
    pub(super) fn keep_descriptors(&self) {
        // ORDERING: Relaxed; the lock of each open file's state orders it, see `given_up`.
        self.keeps_descriptors.store(true, Relaxed);
    }

    /// Whether they are not to.
    pub(super) fn keeps_descriptors(&self) -> bool {
        // ORDERING: Relaxed; see `keep_descriptors`.
        self.keeps_descriptors.load(Relaxed)
    }

    /// Changes of our own to this object so far, to be compared later.
    pub(super) fn own_changes(&self) -> OwnChanges {
        // ORDERING: Relaxed; only decides whether a report waits a moment.
        OwnChanges(self.changes.load(Relaxed))
    }

    /// Whether a change of our own is under way, or began since `before`.
    pub(super) fn changed_since(&self, before: OwnChanges) -> bool {
        before.0 as u32 != 0 || self.own_changes() != before
    }

    /// Begins to record the entries of this directory.
    pub(super) fn record_children(&self) {
        self.children.get_or_init(|| Mutex::new(&HOST_WATCHES, Children::default()));
    }

    /// The record of `name`, if this is a watched directory.
    pub(super) fn child(&self, name: &[u8]) -> Option<Child> {
        let children = self.children.get()?.lock();
        let &Recorded { inode, settled_in } = children.by_name.get(name)?;
        Some(Child { inode, is_settled: settled_in == Some(children.listings) })
    }

    /// The objects recorded here.
    pub(super) fn recorded_children(&self) -> Vec<InodeId> {
        let all = |known: &Mutex<Children>| {
            known.lock().by_name.values().map(|recorded| recorded.inode).collect()
        };
        self.children.get().map_or(Vec::new(), all)
    }

    /// Drops the record of `name`; returns its object.
    pub(super) fn forget_child(&self, name: &[u8]) -> Option<InodeId> {
        Some(self.children.get()?.lock().by_name.remove(name)?.inode)
    }

    /// Records that `child` is called `name` here. Returns the other object that was recorded.
    pub(super) fn record_child(&self, name: &Arc<[u8]>, child: InodeId) -> Option<InodeId> {
        let mut children = self.children.get()?.lock();
        if children.by_name.get(name).is_some_and(|recorded| recorded.inode == child) {
            return None;
        }
        let new = Recorded { inode: child, settled_in: None };
        children.by_name.insert(name.clone(), new).map(|old| old.inode)
    }

    /// Our own change gave `child` this name.
    pub(super) fn settle_child(&self, name: &[u8], child: InodeId) {
        let Some(children) = self.children.get() else { return };
        let mut children = children.lock();
        let listings = children.listings;
        if let Some(recorded) = children.by_name.get_mut(name).filter(|at| at.inode == child) {
            recorded.settled_in = Some(listings);
        }
    }

    /// A listing begins: it answers that each name that it lacks is missing.
    pub(super) fn unsettle_children(&self) {
        if let Some(children) = self.children.get() {
            children.lock().listings += 1;
        }
    }

    /// Drops the record of `name` if it is `child`.
    pub(super) fn forget_child_if(&self, name: &[u8], child: InodeId) {
        if let Some(children) = self.children.get() {
            let by_name = &mut children.lock().by_name;
            if by_name.get(name).is_some_and(|recorded| recorded.inode == child) {
                by_name.remove(name);
            }
        }
    }

    /// Adds a name; returns the name, old or new, that is not kept.
    pub(super) fn add_name(&self, known: KnownName) -> Option<KnownName> {
        self.names.lock().add(known)
    }

    /// Removes a name; returns it if it was known.
    pub(super) fn remove_name(&self, parent: &HostNode, name: &[u8]) -> Option<KnownName> {
        self.names.lock().remove(parent, name)
    }

    /// Makes `known` the only name; returns the others.
    pub(super) fn replace_names(&self, known: KnownName) -> Vec<KnownName> {
        let mut names = self.names.lock();
        names.version += 1;
        std::mem::replace(&mut names.list, vec![known])
    }

    fn take_names(&self) -> Vec<KnownName> {
        let mut names = self.names.lock();
        names.version += 1;
        std::mem::take(&mut names.list)
    }
}

impl Drop for HostNode {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            table.remove(self.id, self.key);
        }
        // One directory after the other: a chain of thousands must not become as many stack frames.
        let mut pending: Vec<_> =
            self.take_names().into_iter().map(|known| (self.id, known)).collect();
        while let Some((child, known)) = pending.pop() {
            known.parent.forget_child_if(&known.name, child);
            if let Some(parent) = Arc::into_inner(known.parent) {
                let names = parent.take_names();
                pending.extend(names.into_iter().map(|known| (parent.id, known)));
            }
        }
    }
}

impl Names {
    fn position(&self, parent: &HostNode, name: &[u8]) -> Option<usize> {
        self.list.iter().position(|known| known.parent.id == parent.id && *known.name == *name)
    }

    /// Adds a name unless it is known; returns the name that is not kept, to be dropped after the
    /// lock.
    fn add(&mut self, known: KnownName) -> Option<KnownName> {
        if self.position(&known.parent, &known.name).is_some() {
            return Some(known);
        }
        self.version += 1;
        let oldest = (self.list.len() >= NAMES_MAX).then(|| self.list.remove(0));
        self.list.push(known);
        oldest
    }

    fn remove(&mut self, parent: &HostNode, name: &[u8]) -> Option<KnownName> {
        let at = self.position(parent, name)?;
        self.version += 1;
        Some(self.list.remove(at))
    }
}

/// A moment in the history of our own changes to one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OwnChanges(u64);

/// A stretch of time in which we change objects ourselves: news of them waits until it is over.
#[derive(Debug)]
pub(super) struct OwnChange<'a>([Option<&'a HostNode>; 4]);

impl<'a> OwnChange<'a> {
    pub(super) fn of(nodes: [Option<&'a HostNode>; 4]) -> Self {
        for node in nodes.iter().flatten() {
            // ORDERING: Relaxed; see `HostNode::own_changes`.
            node.changes.fetch_add((1 << 32) + 1, Relaxed);
        }
        Self(nodes)
    }
}

impl Drop for OwnChange<'_> {
    fn drop(&mut self) {
        for node in self.0.iter().flatten() {
            // ORDERING: Relaxed; see `HostNode::own_changes`.
            node.changes.fetch_sub(1, Relaxed);
        }
    }
}

/// Everything about an object that a change leaves a trace in, as one number that is not 0.
fn fingerprint(stat: &HostStat) -> u64 {
    let of = &stat.attributes;
    let words = [
        of.ctime.seconds as u64,
        u64::from(of.ctime.nanoseconds),
        of.mtime.seconds as u64,
        u64::from(of.mtime.nanoseconds),
        of.size,
        (u64::from(of.mode) << 32) | u64::from(of.links),
    ];
    words.into_iter().fold(0, |hash, word| mix(hash ^ word)) | 1
}
