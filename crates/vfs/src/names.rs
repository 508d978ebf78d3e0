//! The name cache: finds the child `name` of a directory without asking the store.
//!
//! # Boundary
//! Owns dentries: (directory, name) pairs and their meaning, an inode or nothing (a *negative* dentry). Does not decide
//! what may be cached ([`crate::inode::Freshness`]) nor the time of eviction ([`crate::reclaim`]).
//!
//! # Concurrency
//! The table is [`NameTable`]: readers hold an epoch guard, take no lock and store to no shared line; writers lock one
//! bucket. Callers insert under the directory's `entries` lock, which orders a change of the directory and an older
//! answer.
//!
//! A dentry is valid unless it has expired, its directory has invalidated its names since ([`Inode::names_valid_at`]), or its
//! inode was torn down.
//!
//! # Why
//! One table keyed by (directory id, name). Ids are never reused and a dentry never changes its key. So renaming a
//! directory moves none of its children, and no reader is carried to another chain. Invalidating all names of a
//! directory is one store; the clock hand frees them later. Bad at: listing a directory, which the table cannot.
//!
//! Names with the class [`Class::Once`] wait in a queue beside the table: the hand would pass and age all others on its
//! way to each of them. The hand skips names with the class [`Class::Keep`]. [`crate::reclaim`] limits that by the
//! bytes counted here.

use crate::backend::InodeId;
use crate::inode::{Expiry, INODE_BYTES, Inode, Moment, Node, Ticket};
use crate::lock_order;
use crate::name::Name;
use crate::statistics::Counters;
use std::collections::{HashSet, VecDeque};
use uvfs_concurrent::counter::Counter;
use uvfs_concurrent::epoch::{self, Guard};
use uvfs_concurrent::generations::Generations;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{AtomicUsize, Ordering::Relaxed};
use uvfs_containers::class::Class;
use uvfs_containers::name_table::{Entry, Hand, NameTable, Verdict};
use uvfs_containers::object::Ref;

/// A name of a directory, with its hash. An operation makes it once, and passes it on from the first look into the
/// cache to the last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) directory: InodeId,
    pub(crate) name: Name<'a>,
    hash: u64,
}

impl<'a> Key<'a> {
    /// The key of `name`, whose `hash` a walk got from [`NameCache::key_hash`] for `directory`.
    pub(crate) fn hashed(directory: InodeId, name: Name<'a>, hash: u64) -> Self {
        Self { directory, name, hash }
    }

    pub(crate) fn hash(self) -> u64 {
        self.hash
    }

    fn bytes(self) -> &'a [u8] {
        self.name.as_bytes()
    }
}

/// The meaning of a cached name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// This inode.
    Inode(InodeId),
    /// No such name.
    Missing,
}

/// The new meaning of a name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    /// This object.
    Node(&'a Node),
    /// No such name.
    Missing,
}

/// The name leads to another object than the one to insert.
#[derive(Debug)]
pub(crate) struct OtherObject;

/// How a name was inserted: decides how soon it is evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A caller asked for it.
    Asked,
    /// From a listing: on probation until a caller asks for it.
    Listed,
}

/// Weights of the clock: rounds of the hand that a name survives unused.
mod weight {
    /// Names of a listing, and negative ones.
    pub(super) const PROBATION: u8 = 0;
    /// Names that a caller asked for.
    pub(super) const ASKED: u8 = 1;
    /// Most for other objects than directories.
    pub(crate) const MOST: u8 = 2;
    /// Most for a directory: many paths lead through it.
    pub(crate) const DIRECTORY: u8 = 3;
    /// Most for the class `Once`: a directory is spared once, since paths to its entries lead through it.
    pub(super) const fn most_once(directory: bool) -> u8 {
        if directory { ASKED } else { PROBATION }
    }
}

/// The names that the clock hand may evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// All but those with the class `Keep`.
    Others,
    /// Those with the class `Keep`, which are too many.
    Kept,
    /// Any.
    Any,
}

/// One cached name. Its key is in the table's entry.
#[derive(Debug)]
pub(crate) struct Dentry {
    /// `None`: there is no such name.
    inode: Option<Ref<Inode>>,
    /// The inode's id again: a walk continues at the next bucket without waiting for the inode.
    id: InodeId,
    stamp: Ticket,
    expiry: Expiry,
}

impl Dentry {
    /// The inode it leads to; `None` if there is none.
    #[inline]
    pub(crate) fn inode(&self) -> Option<&Ref<Inode>> {
        self.inode.as_ref()
    }

    /// The id of that inode.
    #[inline]
    pub(crate) fn id(&self) -> InodeId {
        self.id
    }

    /// The ticket of the question that returned it.
    pub(crate) fn stamp(&self) -> Ticket {
        self.stamp
    }

    pub(crate) fn expiry(&self) -> Expiry {
        self.expiry
    }

    pub(crate) fn meaning(&self) -> Meaning {
        self.inode.as_ref().map_or(Meaning::Missing, |_| Meaning::Inode(self.id))
    }

    /// Whether it is valid, as a name of `directory`.
    #[inline]
    pub(crate) fn is_valid(&self, directory: &Inode, now: &mut Option<Moment>) -> bool {
        directory.names_valid_at(self.stamp) && self.is_valid_alone(now)
    }

    /// Like [`Dentry::is_valid`], without the directory's part.
    #[inline]
    fn is_valid_alone(&self, now: &mut Option<Moment>) -> bool {
        self.expiry.valid_at(now) && self.inode.as_ref().is_none_or(|inode| inode.can_be_found())
    }
}

/// A name that was removed by [`NameCache::reap`].
#[derive(Debug)]
pub(crate) struct Reaped {
    pub(crate) bytes: usize,
    /// The inode that the name led to.
    pub(crate) inode: Option<Ref<Inode>>,
    /// It was the inode's last name, the inode has no hold, and it is marked as queued.
    pub(crate) is_orphan: bool,
}

/// A dentry in the table.
pub(crate) type CachedName = Entry<Dentry>;

/// Marks a name as used, without a store if its weight is the highest: then it is used often, and this returns true.
#[inline]
pub(crate) fn touch(name: &CachedName, directory: bool) -> bool {
    let most = if directory { weight::DIRECTORY } else { weight::MOST };
    let warm = name.weight() >= most;
    if !warm {
        let once = name.class() == Class::Once;
        name.touch(if once { weight::most_once(directory) } else { most });
    }
    warm
}

/// Finds a name with the class `Once`, or one that took its place.
#[derive(Debug, Clone, Copy)]
struct Reminder {
    directory: u64,
    hash: u32,
}

/// Reminders of removed names, beyond the number of names.
const REMINDERS_SPARE: usize = 64;
/// Reminders examined for one name.
const ONCE_LOOKS: usize = 16;

/// The class of a name where `class` is valid. The way to a directory with the mark `Keep` has the class `Keep`, too.
fn class_of(class: Class, inode: Option<&Ref<Inode>>) -> Class {
    let mark = inode.filter(|inode| inode.is_directory()).and_then(|inode| inode.own_mark());
    if mark == Some(Class::Keep) { Class::Keep } else { class }
}

/// Bytes of a name with its inode.
fn charge(name: &CachedName) -> usize {
    name.bytes() + if name.value().inode().is_some() { INODE_BYTES } else { 0 }
}

/// Bytes of a bucket of a name table: one line.
pub(crate) const BUCKET_BYTES: usize = 64;

#[derive(Debug)]
pub(crate) struct NameCache {
    table: NameTable<Dentry>,
    hand: Hand,
    negative_hand: Hand,
    negatives: AtomicUsize,
    /// Bytes of names with the class `Keep`, with their inodes.
    kept_bytes: AtomicUsize,
    /// Names with the class `Once`, oldest first, with some that were removed.
    once: Mutex<VecDeque<Reminder>>,
    /// The capacity of that queue, readable without its lock.
    once_room: AtomicUsize,
    /// Names with the class `Once`.
    once_count: AtomicUsize,
    /// Names removed although they may still exist: no directory of their stripe is complete.
    losses: Generations,
    /// Names inserted, and names removed.
    changes: Counter,
}

impl NameCache {
    /// Room for `expected` names at first; the table grows by itself.
    pub(crate) fn new(expected: usize) -> Self {
        Self {
            table: NameTable::new(&lock_order::NAMES, expected),
            hand: Hand::default(),
            negative_hand: Hand::default(),
            negatives: AtomicUsize::new(0),
            kept_bytes: AtomicUsize::new(0),
            once: Mutex::new(&lock_order::NAMES_ONCE, VecDeque::new()),
            once_room: AtomicUsize::new(0),
            once_count: AtomicUsize::new(0),
            losses: Generations::default(),
            changes: Counter::new(),
        }
    }

    /// Names of directories that were evicted, or removed because they are uncertain.
    pub(crate) fn losses(&self) -> &Generations {
        &self.losses
    }

    /// The key of `name` in `directory`.
    pub(crate) fn key<'a>(&self, directory: InodeId, name: Name<'a>) -> Key<'a> {
        Key { directory, name, hash: self.table.hash(directory.0, name.as_bytes()) }
    }

    /// Whether `name` is not in the table at all, valid or not.
    #[inline]
    pub(crate) fn is_absent(
        &self,
        guard: &Guard,
        directory: &Inode,
        hash: u64,
        name: &[u8],
    ) -> bool {
        self.table.get(guard, hash, directory.id.0, name).is_none()
    }

    /// The dentry of the name, if it is cached and valid.
    pub(crate) fn find<'g>(
        &'g self,
        guard: &'g Guard,
        directory: &Inode,
        key: Key<'_>,
        now: &mut Option<Moment>,
    ) -> Option<&'g CachedName> {
        self.probe(guard, (directory, key.directory), key.hash, key.bytes(), now)
    }

    /// Like [`NameCache::find`], with the hash of [`NameCache::key_hash`] and the directory's id.
    #[inline(always)]
    pub(crate) fn probe<'g>(
        &'g self,
        guard: &'g Guard,
        (directory, id): (&Inode, InodeId),
        hash: u64,
        name: &[u8],
        now: &mut Option<Moment>,
    ) -> Option<&'g CachedName> {
        let entry = self.table.get(guard, hash, id.0, name)?;
        entry.value().is_valid(directory, now).then_some(entry)
    }

    /// The dentry of the name, however long ago it expired. The flag says whether it is valid otherwise: its directory
    /// has not invalidated it since, and its inode can be found.
    pub(crate) fn last_known<'g>(
        &'g self,
        guard: &'g Guard,
        directory: &Inode,
        key: Key<'_>,
    ) -> Option<(&'g Dentry, bool)> {
        let dentry = self.get(guard, key)?.value();
        let stands = dentry.inode().is_none_or(|inode| inode.can_be_found());
        Some((dentry, directory.names_valid_at(dentry.stamp) && stands))
    }

    /// Whether the cached state of the name is from a question before `ticket`.
    pub(crate) fn is_older(&self, key: Key<'_>, ticket: Ticket) -> bool {
        self.get(&epoch::pin(), key).is_some_and(|entry| entry.value().stamp < ticket)
    }

    /// The cached meaning of the name.
    pub(crate) fn meaning(&self, directory: &Inode, key: Key<'_>) -> Option<Meaning> {
        let guard = epoch::pin();
        self.find(&guard, directory, key, &mut None).map(|entry| entry.value().meaning())
    }

    /// Whether the object of the cached name, valid or not, is a directory. `None`: the name leads to no object.
    pub(crate) fn is_directory(&self, key: Key<'_>) -> Option<bool> {
        let guard = epoch::pin();
        Some(self.get(&guard, key)?.value().inode()?.is_directory())
    }

    /// The dentry of the name, valid or not.
    fn get<'g>(&'g self, guard: &'g Guard, key: Key<'_>) -> Option<&'g CachedName> {
        self.table.get(guard, key.hash, key.directory.0, key.bytes())
    }

    /// Caches the meaning of the name. Returns an inode that lost its last name by it, marked as queued.
    ///
    /// # Errors
    /// The name leads to another object. Nothing has changed.
    pub(crate) fn insert(
        &self,
        directory: &Inode,
        key: Key<'_>,
        target: Target<'_>,
        (stamp, expiry): (Ticket, Expiry),
        arrival: Arrival,
    ) -> Result<Option<Ref<Inode>>, OtherObject> {
        let inode = match target {
            Target::Missing => None,
            Target::Node(node) => match node.inode.try_ref() {
                Some(inode) => Some(inode),
                // The object has millions of cached names: this one is asked for each time.
                None => return Ok(self.lose(key)),
            },
        };
        let weight = match (&inode, arrival) {
            (Some(_), Arrival::Asked) => weight::ASKED,
            _ => weight::PROBATION,
        };
        let guard = epoch::pin();
        let id = inode.as_ref().map_or(InodeId(0), |inode| inode.id);
        let class = class_of(directory.class(), inode.as_ref());
        let mut new = Some(Dentry { inode, id, stamp, expiry });
        let parent = key.directory.0;
        let inserted = self.table.insert_if(&guard, key.hash, parent, key.bytes(), |known| {
            let known_object = known.filter(|known| known.value().inode.is_some());
            let dentry =
                new.take_if(|_| known_object.is_none_or(|known| known.value().id == id))?;
            match &dentry.inode {
                Some(inode) => inode.gained_name(),
                None => {
                    // ORDERING: Relaxed; a size.
                    self.negatives.fetch_add(1, Relaxed);
                }
            }
            // A name inserted again, by a listing for example, keeps its use.
            let known = known.filter(|known| known.value().meaning() == dentry.meaning());
            let weight = match class {
                Class::Once => weight::PROBATION,
                _ => known.map_or(weight, |known| weight.max(known.weight())),
            };
            Some(((weight, class), dentry))
        });
        let inserted = inserted.ok_or(OtherObject)?;
        // Count the class we inserted, not the current one: a thread that reclassified it has counted that.
        self.joined_class(class, inserted.entry);
        self.changes.hit();
        Ok(inserted.replaced.and_then(|replaced| self.removed(replaced)))
    }

    /// The object of a cached name, valid or not.
    pub(crate) fn target(&self, key: Key<'_>) -> Option<Node> {
        Node::try_hold(self.get(&epoch::pin(), key)?.value().inode()?)
    }

    /// Removes one name that may exist.
    pub(crate) fn lose(&self, key: Key<'_>) -> Option<Ref<Inode>> {
        self.losses.advance(key.directory.0);
        self.remove(key)
    }

    /// Removes one name, which is changing. Returns an inode that lost its last name by it, marked as queued.
    pub(crate) fn remove(&self, key: Key<'_>) -> Option<Ref<Inode>> {
        let guard = epoch::pin();
        let old = self.table.remove(&guard, key.hash, key.directory.0, key.bytes())?;
        self.removed(old)
    }

    /// Removes everything.
    pub(crate) fn clear(&self) -> Vec<Ref<Inode>> {
        let mut orphans = Vec::new();
        // Twice: a single pass may skip parts of a table that grows meanwhile.
        for _ in 0..2 {
            let all = self.table.buckets();
            orphans.extend(self.sweep_with(&Hand::default(), all, |_| Verdict::Remove, |_| {}));
        }
        orphans
    }

    /// Moves the clock hand over `buckets` buckets. Names used since its last visit get another round, and unused ones
    /// are evicted. Skips names that are not among the `taken`. Passes each removed name to `removed`. Returns the inodes
    /// that have no name and no hold any more, marked as queued.
    pub(crate) fn sweep(
        &self,
        buckets: usize,
        taken: Taken,
        counters: &Counters,
        removed: impl FnMut(&CachedName),
    ) -> Vec<Ref<Inode>> {
        let mut now = None;
        let verdict = |entry: &CachedName| {
            if !entry.value().is_valid_alone(&mut now) {
                return Verdict::Remove;
            }
            let passed_over = match taken {
                Taken::Others => entry.class() == Class::Keep,
                Taken::Kept => entry.class() != Class::Keep,
                Taken::Any => false,
            };
            if passed_over {
                return Verdict::Keep;
            }
            let used = entry.value().inode().is_some_and(|inode| inode.untouch());
            if used | (entry.age() > 0) {
                return Verdict::Keep;
            }
            counters.names_evicted.hit();
            Verdict::Remove
        };
        self.sweep_with(&self.hand, buckets, verdict, removed)
    }

    /// Sweeps negative names only.
    pub(crate) fn sweep_negatives(&self, buckets: usize, counters: &Counters) {
        let verdict = |entry: &CachedName| {
            if entry.value().inode().is_some() || entry.age() > 0 {
                return Verdict::Keep;
            }
            counters.names_evicted.hit();
            Verdict::Remove
        };
        self.sweep_with(&self.negative_hand, buckets, verdict, |_| {});
    }

    fn sweep_with(
        &self,
        hand: &Hand,
        buckets: usize,
        mut verdict: impl FnMut(&CachedName) -> Verdict,
        mut removed: impl FnMut(&CachedName),
    ) -> Vec<Ref<Inode>> {
        let guard = epoch::pin();
        let mut gone = Vec::new();
        self.table.sweep(&guard, hand, buckets, |entry| {
            if verdict(entry) == Verdict::Remove {
                if entry.value().inode().is_some() {
                    self.losses.advance(entry.parent());
                }
                if self.table.remove_entry(&guard, entry) {
                    removed(entry);
                    gone.push(entry);
                }
            }
            Verdict::Keep
        });
        gone.into_iter().filter_map(|entry| self.removed(entry)).collect()
    }

    /// A name now has this class.
    fn joined_class(&self, class: Class, name: &CachedName) {
        match class {
            Class::Normal => {}
            // ORDERING: Relaxed, both; sizes, which wrap where a name is removed before it was counted.
            Class::Keep => _ = self.kept_bytes.fetch_add(charge(name), Relaxed),
            Class::Once => {
                self.once_count.fetch_add(1, Relaxed);
                self.remind(Reminder { directory: name.parent(), hash: name.hash() as u32 });
            }
        }
    }

    /// A name does not have this class any more.
    fn left_class(&self, class: Class, name: &CachedName) {
        match class {
            Class::Normal => {}
            // ORDERING: Relaxed, both; sizes, see `joined_class`.
            Class::Keep => _ = self.kept_bytes.fetch_sub(charge(name), Relaxed),
            Class::Once => _ = self.once_count.fetch_sub(1, Relaxed),
        }
    }

    /// Bytes of names with the class `Keep`, with their inodes. An inode with several such names counts with each.
    pub(crate) fn kept_bytes(&self) -> usize {
        // ORDERING: Relaxed; a size. It may be below zero for a moment.
        (self.kept_bytes.load(Relaxed) as isize).max(0) as usize
    }

    /// Names with the class `Once`.
    pub(crate) fn once_count(&self) -> usize {
        // ORDERING: Relaxed; a size. It may be below zero for a moment.
        (self.once_count.load(Relaxed) as isize).max(0) as usize
    }

    /// Bytes of the reminders of names with the class `Once`.
    pub(crate) fn once_bytes(&self) -> usize {
        // ORDERING: Relaxed; a size.
        self.once_room.load(Relaxed) * size_of::<Reminder>()
    }

    /// The oldest reminder. Shrinks the queue if it is mostly empty.
    fn next_once(&self) -> Option<Reminder> {
        let mut once = self.once.lock();
        let name = once.pop_front();
        if once.capacity() > 4 * once.len() + REMINDERS_SPARE {
            let room = 2 * once.len();
            once.shrink_to(room);
            // ORDERING: Relaxed; a size, stored under the lock.
            self.once_room.store(once.capacity(), Relaxed);
        }
        name
    }

    fn remind(&self, name: Reminder) {
        let most = 2 * self.once_count() + REMINDERS_SPARE;
        let crowded = {
            let mut once = self.once.lock();
            once.push_back(name);
            // ORDERING: Relaxed; a size, stored under the lock.
            self.once_room.store(once.capacity(), Relaxed);
            if once.len() > most { std::mem::take(&mut *once) } else { VecDeque::new() }
        };
        if crowded.is_empty() {
            return;
        }
        // Drops reminders of names removed otherwise: a constant share of the work per name.
        let (guard, mut seen) = (epoch::pin(), HashSet::new());
        let is_once = |entry: &CachedName| entry.class() == Class::Once;
        let mut stands: VecDeque<_> = crowded
            .into_iter()
            .filter(|name| seen.insert((name.directory, name.hash)))
            .filter(|name| {
                self.table.find_if(&guard, name.hash.into(), name.directory, is_once).is_some()
            })
            .collect();
        let mut once = self.once.lock();
        stands.append(&mut once);
        // ORDERING: Relaxed; a size, stored under the lock.
        self.once_room.store(stands.capacity(), Relaxed);
        *once = stands;
    }

    /// Evicts the oldest name with the class `Once`. `None` if there is none; else the inode that lost its last name by
    /// it, like [`NameCache::sweep`].
    pub(crate) fn forget_once(
        &self,
        counters: &Counters,
        removed: impl FnOnce(&CachedName),
    ) -> Option<Vec<Ref<Inode>>> {
        for _ in 0..ONCE_LOOKS {
            let name = self.next_once()?;
            let (guard, mut spared) = (epoch::pin(), false);
            self.losses.advance(name.directory);
            let gone = self.table.remove_if(&guard, name.hash.into(), name.directory, |entry| {
                let is_once = entry.class() == Class::Once;
                // Only directories have a higher weight: see `touch`.
                spared = is_once && entry.age() > 0;
                is_once && !spared
            });
            if spared {
                self.once.lock().push_back(name);
            }
            if let Some(entry) = gone {
                counters.names_evicted.hit();
                removed(entry);
                return Some(self.removed(entry).into_iter().collect());
            }
        }
        None
    }

    /// Changes the class of names in some buckets to the result of `policy`, the class valid in their directory.
    pub(crate) fn classify(
        &self,
        (first, buckets): (usize, usize),
        mut policy: impl FnMut(&CachedName) -> Option<Class>,
    ) {
        let guard = epoch::pin();
        self.table.sweep(&guard, &Hand::at(first), buckets, |entry| {
            let class = policy(entry).map(|class| class_of(class, entry.value().inode()));
            if let Some(class) = class
                && class != entry.class()
                && let Some(old) = self.table.set_class(&guard, entry, class)
            {
                if class == Class::Once {
                    entry.wear_out();
                }
                self.joined_class(class, entry);
                self.left_class(old, entry);
            }
            Verdict::Keep
        });
    }

    /// Removes names from bucket `first` on, as `verdict` says. They must be invalid in their directories, so that
    /// nothing is lost by it ([`NameCache::losses`]).
    pub(crate) fn reap(
        &self,
        (first, buckets): (usize, usize),
        mut verdict: impl FnMut(&CachedName) -> Verdict,
    ) -> Vec<Reaped> {
        let guard = epoch::pin();
        let mut reaped = Vec::new();
        self.table.sweep(&guard, &Hand::at(first), buckets, |entry| {
            if verdict(entry) == Verdict::Remove && self.table.remove_entry(&guard, entry) {
                let orphan = self.removed(entry);
                let is_orphan = orphan.is_some();
                let inode = orphan.or_else(|| entry.value().inode()?.try_clone());
                reaped.push(Reaped { bytes: entry.bytes(), inode, is_orphan });
            }
            Verdict::Keep
        });
        reaped
    }

    /// Visits every name that stays in the table during the visit, some buckets at a time.
    pub(crate) fn visit(
        &self,
        (first, buckets): (usize, usize),
        mut visit: impl FnMut(&CachedName),
    ) {
        let guard = epoch::pin();
        self.table.sweep(&guard, &Hand::at(first), buckets, |entry| {
            visit(entry);
            Verdict::Keep
        });
    }

    /// Accounts for a removed name.
    fn removed(&self, entry: &CachedName) -> Option<Ref<Inode>> {
        self.left_class(entry.class(), entry);
        self.changes.hit();
        match entry.value().inode() {
            Some(inode) => inode.lost_name().then(|| inode.try_clone()).flatten(),
            None => {
                // ORDERING: Relaxed; a size.
                self.negatives.fetch_sub(1, Relaxed);
                None
            }
        }
    }

    /// Names ever inserted and removed. An equal number means no change in between.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.total()
    }

    /// Names in the table, negative ones included.
    pub(crate) fn count(&self) -> usize {
        self.table.len()
    }

    /// Negative names in the table.
    pub(crate) fn negatives(&self) -> usize {
        // ORDERING: Relaxed; a size.
        self.negatives.load(Relaxed)
    }

    /// Buckets of the table.
    pub(crate) fn buckets(&self) -> usize {
        self.table.buckets()
    }

    /// Bytes of the table alone, which does not shrink.
    pub(crate) fn table_bytes(&self) -> usize {
        self.table.buckets() * BUCKET_BYTES
    }

    /// Bytes of names and table.
    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes() + self.once_bytes()
    }

    /// The length of the first component of `path`, which does not start with a slash, and its hash.
    #[inline]
    pub(crate) fn scan_component(&self, path: &[u8]) -> (usize, u64) {
        self.table.hasher().scan_component(path)
    }

    /// The hash of a name of `directory` from that of [`NameCache::scan_component`].
    #[inline]
    pub(crate) fn key_hash(&self, directory: InodeId, name_hash: u64) -> u64 {
        self.table.hasher().key_hash(directory.0, name_hash)
    }
}
