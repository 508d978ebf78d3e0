//! The dentries of one cache: slots in a slab, chained by hash.
//!
//! # Boundary
//! Slots, names, hash chains, reference counts and the links of the other lists. Takes only the
//! lock of its free slots: the variant decides which lock protects which field.
//!
//! # Concurrency
//! S1. A chain changes only under its variant's chain lock; readers may follow it at any time.
//! S2. A slot is linked into a chain only after its name, parent and hash are written; `next` of a
//!     removed slot keeps its value, so a reader at that slot finds the rest of the chain.
//! S3. With [`Grace::Epoch`] a removed slot is reused only when every guard pinned at its removal
//!     is dropped, so reuse never moves a pinned reader to another chain.
//! S4. A rename changes a linked slot's name and chain between two steps of `renames`. A reader
//!     that saw a step discards its result and looks again under the lock (like Linux
//!     `rename_lock`, which is newer than the paper).
//! S5. A count leaves 0, and arrives at 0, only under a lock that the variant names.
//!
//! # Why
//! Safe Rust without a count besides `d_count`: a slot is a number, so a stale number is a stale
//! slot and never a stray pointer, and a lookup stores to no shared line. All variants share this
//! file, so they differ only in locking. The fields are together like those of the Linux 2.4
//! dentry, where readers share lines with the count: the paper measured that, too. Weakness: the
//! slab has a fixed size, and names are at most [`NAME_MAX`] bytes.

use super::sites;
use std::sync::Arc;
use uvfs_concurrent::epoch;
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_concurrent::padded::Padded;
use uvfs_concurrent::primitive::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

const NAME_WORDS: usize = 5;
/// Longest name of a dentry in bytes.
pub(super) const NAME_MAX: usize = NAME_WORDS * 8;
const SHARDS: usize = 16;
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const SEED: u64 = 0xa076_1d64_78bd_642f;

static SLOTS: LockClass = LockClass::new(440, "slots", "free slots of a dentry slab");
static D_LOCK: LockClass = LockClass::new(430, "d_lock", "count and flags of one dentry");

/// A place where another thread may run. In tests it sometimes does: on few cores a race of a few
/// instructions would otherwise never occur.
#[inline(always)]
fn schedule_point() {
    #[cfg(test)]
    {
        thread_local! {
            static STEPS: std::cell::Cell<u64> = std::cell::Cell::new(thread_number() as u64);
        }
        let steps = STEPS.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        STEPS.set(steps);
        if steps >> 60 == 0 {
            std::thread::yield_now();
        }
    }
}

/// A dentry: the number of its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Id(u32);

impl Id {
    const NONE: u32 = u32::MAX;

    /// The shard that a lock array of `count` locks keeps for this dentry.
    pub(super) fn shard(self, count: usize) -> usize {
        self.0 as usize % count
    }
}

/// A field that one lock protects: the lock orders its reads and writes.
#[derive(Debug)]
pub(super) struct Field(AtomicU32);

impl Field {
    fn new() -> Self {
        Self(AtomicU32::new(Id::NONE))
    }

    pub(super) fn get(&self) -> Option<Id> {
        // ORDERING: Relaxed; the field's lock orders it.
        let id = self.0.load(Ordering::Relaxed);
        (id != Id::NONE).then_some(Id(id))
    }

    pub(super) fn set(&self, id: Option<Id>) {
        // ORDERING: Relaxed; the field's lock orders it.
        self.0.store(id.map_or(Id::NONE, |id| id.0), Ordering::Relaxed);
    }
}

/// A link of a hash chain, which readers follow without a lock.
#[derive(Debug)]
struct Link(AtomicU32);

impl Link {
    fn get(&self) -> Option<Id> {
        schedule_point();
        // ORDERING: Acquire, partner `set`: a reader that sees the slot sees its name (S2).
        let id = self.0.load(Ordering::Acquire);
        (id != Id::NONE).then_some(Id(id))
    }

    fn set(&self, id: Option<Id>) {
        schedule_point();
        // ORDERING: Release, partner `get` (S2).
        self.0.store(id.map_or(Id::NONE, |id| id.0), Ordering::Release);
    }
}

/// A flag beside the count.
#[derive(Debug, Default)]
pub(super) struct Flag(AtomicBool);

impl Flag {
    pub(super) fn get(&self) -> bool {
        schedule_point();
        // ORDERING: Acquire, partner `set`; most callers have it from their lock already.
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn set(&self, on: bool) {
        // ORDERING: Release, partner `get`.
        self.0.store(on, Ordering::Release);
    }

    /// Sets it, with a store only if it was not set.
    pub(super) fn raise(&self) {
        if !self.get() {
            self.set(true);
        }
    }
}

/// One slot. Links of lists are in [`super::lists`]' care.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Dentry {
    count: AtomicU32,
    pub(super) referenced: Flag,
    pub(super) hashed: Flag,
    next: Link,
    parent: AtomicU32,
    hash: AtomicU64,
    name: [AtomicU64; NAME_WORDS],
    inode: AtomicU64,
    pub(super) on_lru: Flag,
    pub(super) lru_next: Field,
    pub(super) lru_previous: Field,
    pub(super) first_child: Field,
    pub(super) next_sibling: Field,
    pub(super) previous_sibling: Field,
    pub(super) d_lock: Mutex<()>,
}

impl Dentry {
    fn empty() -> Self {
        Self {
            count: AtomicU32::new(0),
            referenced: Flag::default(),
            hashed: Flag::default(),
            next: Link(AtomicU32::new(Id::NONE)),
            parent: AtomicU32::new(Id::NONE),
            hash: AtomicU64::new(0),
            name: Default::default(),
            inode: AtomicU64::new(0),
            on_lru: Flag::default(),
            lru_next: Field::new(),
            lru_previous: Field::new(),
            first_child: Field::new(),
            next_sibling: Field::new(),
            previous_sibling: Field::new(),
            d_lock: Mutex::new(&D_LOCK, ()),
        }
    }

    /// The inode's number; 0 for a negative dentry.
    pub(super) fn inode(&self) -> u64 {
        // ORDERING: Relaxed; a number, nothing is reached through it.
        self.inode.load(Ordering::Relaxed)
    }

    pub(super) fn set_inode(&self, inode: u64) {
        // ORDERING: Relaxed; a number, nothing is reached through it.
        self.inode.store(inode, Ordering::Relaxed);
    }

    /// Holders at this moment.
    pub(super) fn count(&self) -> u32 {
        // ORDERING: Acquire, partner `release`: a thread that reads 0 sees the former holders'
        // writes.
        self.count.load(Ordering::Acquire)
    }

    /// Adds a holder; how many there were.
    pub(super) fn hold(&self) -> u32 {
        schedule_point();
        // ORDERING: Acquire, partner `release`: the new holder sees the former holders' writes.
        self.count.fetch_add(1, Ordering::Acquire)
    }

    /// Takes a holder away; how many there were.
    pub(super) fn release(&self) -> u32 {
        schedule_point();
        // ORDERING: AcqRel, partners `hold`, `count` and itself: the last one sees all.
        self.count.fetch_sub(1, Ordering::AcqRel)
    }

    /// Adds a holder if there is one. Needs no lock (S5).
    pub(super) fn hold_if_held(&self) -> bool {
        self.step(|count| (count > 0).then(|| count + 1))
    }

    /// Takes a holder away if it is not the last. Needs no lock (S5); the fast half of Linux
    /// `atomic_dec_and_lock`.
    pub(super) fn release_if_not_last(&self) -> bool {
        self.step(|count| (count > 1).then(|| count - 1))
    }

    fn step(&self, next: impl Fn(u32) -> Option<u32>) -> bool {
        schedule_point();
        // ORDERING: AcqRel, partners `hold` and `release`; Relaxed on failure, only a retry.
        self.count.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next).is_ok()
    }

    /// The dentry above; the root has none.
    pub(super) fn parent(&self) -> Option<Id> {
        // ORDERING: Relaxed; S2 and S4 define when it is valid.
        let id = self.parent.load(Ordering::Relaxed);
        (id != Id::NONE).then_some(Id(id))
    }

    /// The hash of its name; S4.
    pub(super) fn hash(&self) -> u64 {
        // ORDERING: Relaxed; S2 and S4 define when it is valid.
        self.hash.load(Ordering::Relaxed)
    }

    /// Whether it is the dentry that `wanted` names; S4.
    pub(super) fn is(&self, wanted: &Wanted) -> bool {
        // ORDERING: Relaxed; S2 and S4 define when it is valid.
        let same = |(have, want): (&AtomicU64, &u64)| have.load(Ordering::Relaxed) == *want;
        self.hash() == wanted.hash
            && self.parent() == Some(wanted.parent)
            && self.name.iter().zip(&wanted.words).all(same)
    }

    /// Name and parent of the dentry, under a lock that keeps them.
    pub(super) fn name(&self) -> Wanted {
        // ORDERING: Relaxed; the caller's lock orders it.
        let words = std::array::from_fn(|at| self.name[at].load(Ordering::Relaxed));
        Wanted { parent: self.parent().unwrap_or(Id(Id::NONE)), hash: self.hash(), words }
    }

    /// Gives it a name and a parent, while it is in no chain.
    pub(super) fn set_name(&self, wanted: &Wanted) {
        for (word, new) in self.name.iter().zip(&wanted.words) {
            schedule_point();
            // ORDERING: Relaxed; published by the chain's link (S2) or by `renames` (S4).
            word.store(*new, Ordering::Relaxed);
        }
        // ORDERING: Relaxed; as the name.
        self.parent.store(wanted.parent.0, Ordering::Relaxed);
        // ORDERING: Relaxed; as the name.
        self.hash.store(wanted.hash, Ordering::Relaxed);
    }
}

/// The key of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The directory.
    pub(super) parent: Id,
    /// Hash of both parts.
    pub(super) hash: u64,
    words: [u64; NAME_WORDS],
}

impl Wanted {
    /// The child `name` of `parent`. Names hold no NUL.
    ///
    /// # Panics
    /// If the name is longer than [`NAME_MAX`].
    pub(super) fn new(parent: Id, name: &[u8]) -> Self {
        let mut words = [0; NAME_WORDS];
        let mut hash = u64::from(parent.0);
        for (word, part) in words.iter_mut().zip(name.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..part.len()].copy_from_slice(part);
            *word = u64::from_le_bytes(bytes);
            // Both halves of the product, so that every byte of a name reaches every bit.
            let product = u128::from(hash ^ *word ^ SEED) * u128::from(MULTIPLIER);
            hash = product as u64 ^ (product >> 64) as u64;
        }
        assert!(name.len() <= NAME_MAX, "a name of {} bytes", name.len());
        Self { parent, hash, words }
    }
}

/// When a removed slot may be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grace {
    /// At once: no thread reads without the lock.
    None,
    /// After the readers of now (S3).
    Epoch,
}

/// A version that readers without a lock compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Renames(u64);

/// Unused slots.
#[derive(Debug)]
struct Free {
    shards: [Padded<Mutex<Vec<u32>>>; SHARDS],
    /// Slots from here on were never used.
    fresh: AtomicU32,
}

impl Free {
    fn own(&self) -> &Mutex<Vec<u32>> {
        &self.shards[thread_number() % SHARDS]
    }

    fn put(&self, slot: u32) {
        sites::slab(self.own()).push(slot);
    }

    fn take(&self, slots: u32) -> Option<u32> {
        if let Some(slot) = sites::slab(self.own()).pop() {
            return Some(slot);
        }
        let fresh = |next: u32| (next < slots).then(|| next + 1);
        // ORDERING: Relaxed; only the number matters, the slot is untouched.
        let taken = self.fresh.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fresh);
        taken.ok().or_else(|| self.shards.iter().find_map(|shard| sites::slab(shard).pop()))
    }
}

/// A small number of this thread's own.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // ORDERING: Relaxed; only that numbers differ matters.
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// All dentries of a cache, and its hash table.
#[derive(Debug)]
pub(super) struct Slab {
    dentries: Box<[Dentry]>,
    heads: Box<[Link]>,
    renames: Padded<AtomicU64>,
    free: Arc<Free>,
    grace: Grace,
}

impl Slab {
    /// Room for `entries` dentries in use at once.
    pub(super) fn new(entries: usize, grace: Grace) -> Self {
        // Slots that wait for readers, and those in other threads' shards, come on top.
        let slots = entries * 2 + 4096;
        let heads = entries.next_power_of_two();
        let shards = std::array::from_fn(|_| Padded(Mutex::new(&SLOTS, Vec::new())));
        Self {
            dentries: (0..slots).map(|_| Dentry::empty()).collect(),
            heads: (0..heads).map(|_| Link(AtomicU32::new(Id::NONE))).collect(),
            renames: Padded(AtomicU64::new(0)),
            free: Arc::new(Free { shards, fresh: AtomicU32::new(0) }),
            grace,
        }
    }

    /// Chains of the hash table; a power of two.
    pub(super) fn chains(&self) -> usize {
        self.heads.len()
    }

    /// The chain that a hash belongs to.
    pub(super) fn chain(&self, hash: u64) -> usize {
        hash as usize & (self.heads.len() - 1)
    }

    /// The dentry in slot `id`.
    pub(super) fn at(&self, id: Id) -> &Dentry {
        &self.dentries[id.0 as usize]
    }

    /// A slot for the root: held once, above everything, in no chain.
    pub(super) fn root(&self, inode: u64) -> Id {
        let id = self.alloc(&Wanted::new(Id(Id::NONE), b""));
        self.at(id).set_inode(inode);
        id
    }

    /// A negative dentry with one holder, in no list yet.
    ///
    /// # Panics
    /// When the slab is full and readers delay all reuse.
    pub(super) fn alloc(&self, wanted: &Wanted) -> Id {
        let mut tries = 0;
        let slot = loop {
            if let Some(slot) = self.free.take(self.dentries.len() as u32) {
                break slot;
            }
            tries += 1;
            assert!(tries < 100_000, "all {} slots are in use", self.dentries.len());
            epoch::collect();
            std::thread::yield_now();
        };
        let dentry = &self.dentries[slot as usize];
        dentry.set_name(wanted);
        dentry.set_inode(0);
        dentry.referenced.set(false);
        let before = dentry.hold();
        debug_assert_eq!(before, 0, "a free slot has no holder");
        Id(slot)
    }

    /// Gives a slot back that is in no list and has no holder.
    pub(super) fn free(&self, id: Id) {
        debug_assert_eq!(self.at(id).count(), 0);
        debug_assert!(!self.at(id).hashed.get() && !self.at(id).on_lru.get());
        match self.grace {
            Grace::None => self.free.put(id.0),
            Grace::Epoch => {
                let free = self.free.clone();
                epoch::pin().defer(size_of::<Dentry>(), move || free.put(id.0));
            }
        }
    }

    /// Finds by following the chain. Under the chain's lock the answer is final; without it, only
    /// together with [`Slab::unmoved`].
    pub(super) fn find(&self, wanted: &Wanted) -> Option<Id> {
        let mut at = self.heads[self.chain(wanted.hash)].get();
        while let Some(id) = at {
            let dentry = self.at(id);
            if dentry.is(wanted) {
                return Some(id);
            }
            at = dentry.next.get();
        }
        None
    }

    /// Links a dentry into its chain, under that chain's lock (S1).
    pub(super) fn link(&self, id: Id) {
        let (dentry, head) = self.place(id);
        debug_assert!(!dentry.hashed.get());
        dentry.next.set(head.get());
        dentry.hashed.set(true);
        head.set(Some(id));
    }

    /// Takes a dentry out of its chain, if it is in it, under that chain's lock (S1).
    pub(super) fn unlink(&self, id: Id) {
        let (dentry, head) = self.place(id);
        if !dentry.hashed.get() {
            return;
        }
        dentry.hashed.set(false);
        let mut link = head;
        while let Some(other) = link.get() {
            if other == id {
                link.set(dentry.next.get());
                return;
            }
            link = &self.at(other).next;
        }
        unreachable!("a hashed dentry is in its chain");
    }

    fn place(&self, id: Id) -> (&Dentry, &Link) {
        let dentry = self.at(id);
        (dentry, &self.heads[self.chain(dentry.hash())])
    }

    /// A reader without a lock reads this first; `None` while a rename is in progress.
    pub(super) fn renames(&self) -> Option<Renames> {
        // ORDERING: Acquire, partner the end of `renaming` (S4).
        let renames = self.renames.load(Ordering::Acquire);
        renames.is_multiple_of(2).then_some(Renames(renames))
    }

    /// Whether no rename began since `noted`, so that values read in between are valid.
    pub(super) fn unmoved(&self, noted: Renames) -> bool {
        // ORDERING: Acquire, partner the fence in `renaming`: reads before it stay before it (S4).
        fence(Ordering::Acquire);
        // ORDERING: Relaxed; the fence orders it.
        self.renames.load(Ordering::Relaxed) == noted.0
    }

    /// Runs `change` as one rename. One at a time: the caller holds the `dcache_lock`.
    pub(super) fn renaming(&self, change: impl FnOnce()) {
        // ORDERING: Relaxed; only renames write it, and the caller's lock orders them.
        let before = self.renames.load(Ordering::Relaxed);
        // ORDERING: Relaxed; the fence keeps it before the changes (S4).
        self.renames.store(before + 1, Ordering::Relaxed);
        // ORDERING: Release, partner the fence in `unmoved`.
        fence(Ordering::Release);
        change();
        // ORDERING: Release, partner `renames`.
        self.renames.store(before + 2, Ordering::Release);
    }

    /// Exchanges names and parents of two dentries that are in no chain. Under the `dcache_lock`.
    pub(super) fn exchange_names(&self, one: Id, other: Id) {
        let (one, other) = (self.at(one), self.at(other));
        let name = one.name();
        one.set_name(&other.name());
        other.set_name(&name);
    }

    /// Every dentry that is in a chain. For audits without concurrent changes.
    pub(super) fn hashed(&self) -> Vec<Id> {
        let mut all = Vec::new();
        for head in &self.heads {
            let mut at = head.get();
            while let Some(id) = at {
                all.push(id);
                at = self.at(id).next.get();
            }
        }
        all
    }

    /// Slots in use. For audits without concurrent changes: frees all waiting slots first.
    pub(super) fn in_use(&self) -> usize {
        if self.grace == Grace::Epoch {
            epoch::synchronize();
        }
        // ORDERING: Relaxed; there are no concurrent changes.
        let fresh = self.free.fresh.load(Ordering::Relaxed) as usize;
        fresh - self.free.shards.iter().map(|shard| sites::slab(shard).len()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_anywhere_spread_over_the_chains() {
        let slab = Slab::new(1024, Grace::None);
        for (before, after) in [("", ""), ("FILE", ".DOC"), ("page00", ".html"), ("long-name-", "")]
        {
            let mut chains = vec![0; slab.chains()];
            for number in 0..1024 {
                let name = format!("{before}{number:04}{after}");
                chains[slab.chain(Wanted::new(Id(3), name.as_bytes()).hash)] += 1;
            }
            // Random names come to 6 or 7.
            let longest = chains.iter().max().unwrap();
            assert!(*longest <= 10, "{before}{after}: {longest} names in one chain");
        }
    }

    #[test]
    fn a_slot_waits_for_readers_from_before() {
        let slab = Slab::new(16, Grace::Epoch);
        let root = slab.root(1);
        let id = slab.alloc(&Wanted::new(root, b"name"));
        let pin = epoch::pin();
        slab.at(id).release();
        slab.free(id);
        for _ in 0..100 {
            let other = slab.alloc(&Wanted::new(root, b"other"));
            assert_ne!(other, id, "used again under a reader");
            slab.at(other).release();
            slab.free(other);
            epoch::collect();
        }
        drop(pin);
        assert_eq!(slab.in_use(), 1);
    }
}
