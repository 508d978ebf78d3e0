//! Name table: finds what a name of a directory stands for, without a lock.
//!
//! ```text
//!  current ──▶ array (2^n buckets) ── next ──▶ array (2^(n+1)), while growing
//!               │ bucket: 7 slots + control │ ── link ──▶ overflow bucket, rarely
//!               │   slot: tag | address ────┼──▶ entry: parent, hash, name, value
//! ```
//!
//! # Boundary
//! Owns entries, buckets and growth. The key is (parent, name); what a value means, when it
//! expires, and which entry is worth its memory is the caller's. Grace periods are
//! [`crate::epoch`]'s.
//!
//! # Concurrency
//! B1. Only the holder of a head bucket's lock stores to it and to the overflow buckets behind it.
//! B2. An entry stays in its slot until it is removed. There is at most one entry for a key.
//! B3. A growth fills the two buckets that a bucket's entries go to, which nobody can reach, and
//!     then marks it `moved`, for ever: whoever sees the mark goes on in the next array. A moved
//!     bucket and its overflow buckets never change again.
//! B4. Readers load a bucket's control word first, and then its slots.
//! B5. A replacement is one store to the slot: the key is never absent, and no reader that found
//!     the new entry finds the old one later.
//! B6. An array grows once, and only while it is `current`; `current` changes when its last bucket
//!     has moved. So at most two arrays are in use, and nothing moves into an array that is moving.
//! B7. Entries, overflow buckets and arrays are unlinked, then retired; overflow buckets and arrays
//!     keep their way on, so a reader that is in one gets to all that it could have found.
//!
//! Why a lookup is right. *A miss*: let the key be there from beginning to end. If the reader sees
//! no mark, the entry was in this bucket at that instant (B3), in a slot where it stays (B2), also
//! if the bucket moves meanwhile; so the reader finds it there, or behind links that were there
//! before (B7). If it sees the mark, the same holds for the next array (O2). A lookup that misses
//! thus saw an instant of absence. *A hit*: the slot held the entry at the instant of the mark's
//! absence, or was given it later, before the mark; at that instant the entry was current. *Old
//! after new*: who found the replacement, or the absence, in the next array had seen the mark, and
//! cannot unsee it.
//!
//! O1. `Locked::put`, `Locked::replace` (Release) → `Bucket::find` (Acquire): who finds an entry
//!     sees what is in it.
//! O2. `Locked::drop` (Release) → `Bucket::control` (Acquire): who sees `moved` sees the entries in
//!     the next array.
//! O3. `Locked::set_link`, `Locked::drop` (Release) → `Bucket::control` (Acquire): who sees a link
//!     sees the overflow bucket.
//! O4. `Locked::drop` (Release) → `Bucket::lock` (Acquire): writers of a bucket see one another.
//! O5. `set_next`, `migrate` (Release) → `next`, `current` (Acquire): who sees an array sees its
//!     buckets.
//! O6. `Locked::take` (Release) → `Bucket::find` (Acquire): who misses a removed key sees what the
//!     remover did before.
//! O7. `count_migrated` (AcqRel): `current` is published by a thread that saw every move.
//!
//! Progress: lookups and visits are wait-free but for growths: they never wait and never try again,
//! and go on to a next array at most as often as the table doubled meanwhile. Writers lock a
//! bucket. Checked by the models in `models` (named there), `random_operations_agree_with_a_map`
//! and `readers_see_rising_versions_while_the_table_grows`.
//!
//! # Why
//! A hit costs the line of a bucket and the line of the entry. Linux and FreeBSD chain entries, a
//! miss of the cache for each; a map per directory adds its own header line, and a rename of a
//! directory costs nothing in either. The lock is a bit of the bucket's word, as Linux `hlist_bl`.
//! The alternative with the tags of all slots in the control word searches in fewer instructions,
//! but publishing takes two stores, so a reader has to look twice. Weakness: the table never
//! shrinks; a full scan of one directory is not possible; values cannot be changed, only replaced,
//! but by what they contain.

mod array;
mod bucket;
mod counts;
mod entry;
mod grow;
mod hash;
#[cfg(loom)]
mod stand_in;
mod sweep;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

pub use entry::{Entry, NAME_BYTES_MAX};
pub use hash::NameHasher;
pub use sweep::{Hand, Swept, Verdict};

use crate::class::Class;
#[cfg(not(loom))]
use crate::epoch::Guard;
use crate::lock::LockClass;
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::primitive::record;
use array::Array;
use bucket::{Bucket, Locked, slot_word};
use counts::Counts;
use entry::Draft;
#[cfg(loom)]
use stand_in::Guard;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

/// Entries per bucket, on average, at which a table grows.
const LOAD: usize = if cfg!(loom) { 1 } else { 5 };
/// Insertions of one thread after which it looks whether the table should grow.
const INSERTIONS_PER_LOOK: isize = if cfg!(loom) { 1 } else { 32 };

/// Names of directories. See the module.
pub struct NameTable<V> {
    /// Read by every lookup; changes when a growth ends.
    current: AtomicU64,
    hasher: NameHasher,
    class: &'static LockClass,
    counts: Counts,
    values: PhantomData<V>,
}

/// What [`NameTable::insert_with`] did.
#[derive(Debug)]
pub struct Inserted<'g, V> {
    /// The new entry.
    pub entry: &'g Entry<V>,
    /// The one whose place it took.
    pub replaced: Option<&'g Entry<V>>,
}

/// The shape of a table; see [`NameTable::statistics`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableStatistics {
    /// Entries found.
    pub entries: usize,
    /// Buckets of the current array.
    pub buckets: usize,
    /// Buckets behind those.
    pub overflow_buckets: usize,
    /// Most buckets that a lookup of one key reads in one array.
    pub chain_max: usize,
    /// Buckets that have moved to the next array; 0 when the table is not growing.
    pub moved: usize,
}

impl<V: Send + Sync + 'static> NameTable<V> {
    /// A table that holds `expected` entries before it grows. Its buckets are locked under `class`,
    /// one at a time.
    ///
    /// # Panics
    /// When there is no memory for it.
    pub fn new(class: &'static LockClass, expected: usize) -> Self {
        let buckets = expected.div_ceil(LOAD).max(1).next_power_of_two();
        let log2 = buckets.ilog2().min(array::LOG2_MAX);
        let word = Array::allocate(log2).expect("memory for the buckets of a name table");
        let counts = Counts::new();
        counts.add_array(array::bytes(log2) as isize);
        let (current, hasher) = (AtomicU64::new(word), NameHasher::process());
        Self { current, hasher, class, counts, values: PhantomData }
    }

    /// The hasher of this table's keys, for callers that hash a name while they scan for its end:
    /// `hasher.key_hash(parent, name_hash)` is the `hash` that the other methods want.
    #[inline]
    pub fn hasher(&self) -> &NameHasher {
        &self.hasher
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, parent: u64, name: &[u8]) -> u64 {
        self.hasher.key_hash(parent, self.hasher.hash_name(name))
    }

    /// Finds a name. `hash` is the key's ([`NameTable::hash`]); with another one nothing is found.
    ///
    /// Touches the line of a bucket and that of the entry. Stores nothing, waits for nobody.
    #[inline(always)]
    pub fn get<'g>(
        &'g self,
        guard: &'g Guard,
        hash: u64,
        parent: u64,
        name: &[u8],
    ) -> Option<&'g Entry<V>> {
        record::probe();
        let mut array = self.current(guard);
        loop {
            let mut bucket = array.bucket(hash);
            let mut control = bucket.control();
            if control.is_moved() {
                array = array.next().expect("a bucket moves into the next array");
                continue;
            }
            loop {
                // SAFETY: a bucket of this table; `'g` is the lifetime of a guard.
                let found = unsafe { bucket.find(hash, parent, name) };
                if found.is_some() {
                    return found;
                }
                // SAFETY: as above.
                bucket = unsafe { control.overflow() }?;
                control = bucket.control();
            }
        }
    }

    /// Puts `value` under a name; returns the entry that had it. A name being replaced is never
    /// absent.
    ///
    /// # Panics
    /// With a name longer than [`NAME_BYTES_MAX`].
    pub fn insert<'g>(
        &'g self,
        guard: &'g Guard,
        hash: u64,
        parent: u64,
        name: &[u8],
        weight: u8,
        value: V,
    ) -> Option<&'g Entry<V>> {
        let value = |_: Option<&Entry<V>>| ((weight, Class::Normal), value);
        self.insert_with(guard, hash, parent, name, value).replaced
    }

    /// As [`NameTable::insert`], with what `make`, told what is there now, says: weight, class and value. It
    /// runs under the bucket's lock: nobody changes this name meanwhile. It must not use a table of this class.
    ///
    /// # Panics
    /// With a name longer than [`NAME_BYTES_MAX`].
    pub fn insert_with<'g>(
        &'g self,
        guard: &'g Guard,
        hash: u64,
        parent: u64,
        name: &[u8],
        make: impl FnOnce(Option<&'g Entry<V>>) -> ((u8, Class), V),
    ) -> Inserted<'g, V> {
        record::probe();
        let draft = Draft::new(hash, parent, name);
        let mut locked = self.lock(guard, hash);
        // SAFETY: a bucket of this table.
        let place = unsafe { locked.find(|entry: &Entry<V>| entry.has_key(hash, parent, name)) };
        let (worth, value) = make(place.map(|place| place.entry));
        let fresh = draft.finish(worth, value);
        // SAFETY: whole, and from now on retired before it is freed (B7); `'g` is a guard's
        // lifetime.
        let entry = unsafe { fresh.as_ref() };
        let word = slot_word(hash, fresh);
        if let Some(place) = place {
            locked.replace(place, word);
            drop(locked);
            // SAFETY: its slot holds another entry now (B5).
            unsafe { self.retire(guard, place.entry) };
            return Inserted { entry, replaced: Some(place.entry) };
        }
        let overflowed = locked.put(word);
        drop(locked);
        let overflow_bytes = if overflowed { size_of::<Bucket>() } else { 0 };
        let inserted = self.counts.add(1, (entry.bytes() + overflow_bytes) as isize);
        if overflowed || inserted.rem_euclid(INSERTIONS_PER_LOOK) == 0 {
            self.grow_if_full(guard);
        }
        Inserted { entry, replaced: None }
    }

    /// Removes a name; returns the entry, which readers may still be using.
    pub fn remove<'g>(
        &'g self,
        guard: &'g Guard,
        hash: u64,
        parent: u64,
        name: &[u8],
    ) -> Option<&'g Entry<V>> {
        // Names that are not there need no lock.
        self.get(guard, hash, parent, name)?;
        self.remove_where(guard, hash, |entry| entry.has_key(hash, parent, name))
    }

    /// Puts this entry into a class; returns the one that it was in. `None` if it was removed or replaced
    /// already.
    pub fn set_class<'g>(
        &'g self,
        guard: &'g Guard,
        entry: &'g Entry<V>,
        class: Class,
    ) -> Option<Class> {
        let locked = self.lock(guard, entry.index_bits());
        // SAFETY: a bucket of this table.
        let place = unsafe { locked.find(|found: &Entry<V>| ptr::eq(found, entry)) }?;
        let old = place.entry.set_class(class);
        drop(locked);
        Some(old)
    }

    /// The first entry of `parent` that `matches` among those whose key has the hash, or one whose low half
    /// is the same. Not for hot paths.
    pub fn find_if<'g>(
        &'g self,
        guard: &'g Guard,
        hash: u64,
        parent: u64,
        matches: impl FnMut(&'g Entry<V>) -> bool,
    ) -> Option<&'g Entry<V>> {
        let locked = self.lock(guard, hash);
        // SAFETY: a bucket of this table.
        let place = unsafe { locked.find(about(hash, parent, matches)) };
        place.map(|place| place.entry)
    }

    /// Removes the first entry of `parent` that `matches` among those whose key has the hash, or one whose
    /// low half is the same.
    pub fn remove_if<'g>(
        &'g self,
        guard: &'g Guard,
        hash: u64,
        parent: u64,
        matches: impl FnMut(&'g Entry<V>) -> bool,
    ) -> Option<&'g Entry<V>> {
        self.remove_where(guard, hash, about(hash, parent, matches))
    }

    /// Removes exactly this entry: false if it was removed or replaced already.
    pub fn remove_entry<'g>(&'g self, guard: &'g Guard, entry: &'g Entry<V>) -> bool {
        // The guard keeps the entry, so no other one has its address meanwhile.
        self.remove_where(guard, entry.index_bits(), |found| ptr::eq(found, entry)).is_some()
    }

    fn remove_where<'g>(
        &'g self,
        guard: &'g Guard,
        hash: u64,
        matches: impl FnMut(&'g Entry<V>) -> bool,
    ) -> Option<&'g Entry<V>> {
        let mut locked = self.lock(guard, hash);
        // SAFETY: a bucket of this table.
        let place = unsafe { locked.find(matches) }?;
        let vacant = locked.take(place);
        drop(locked);
        self.counts.add(-1, -(place.entry.bytes() as isize));
        // SAFETY: `take` cleared the slot, and unlinked the overflow bucket.
        unsafe {
            self.retire(guard, place.entry);
            if let Some(bucket) = vacant {
                self.retire_bucket(guard, bucket);
            }
        }
        Some(place.entry)
    }

    /// How many entries there are: exact when nobody changes the table, else off by at most the
    /// changes under way.
    pub fn len(&self) -> usize {
        self.counts.entries()
    }

    /// Whether [`NameTable::len`] is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory of entries and buckets, as exact as [`NameTable::len`]. Not what values own
    /// elsewhere, nor what is retired ([`crate::epoch::garbage_bytes`]).
    pub fn bytes(&self) -> usize {
        self.counts.bytes()
    }

    /// How many buckets the current array has.
    pub fn buckets(&self) -> usize {
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        let word = self.current.load(Ordering::Relaxed);
        // SAFETY: only the word is looked at, not the memory it leads to.
        unsafe { Array::of(word) }.buckets()
    }

    /// How many entries the current array takes before the table grows.
    pub fn capacity(&self) -> usize {
        self.buckets() * LOAD
    }

    /// The shape of the table. Reads all of it; for reports.
    pub fn statistics(&self, guard: &Guard) -> TableStatistics {
        let array = self.current(guard);
        let mut found = TableStatistics { buckets: array.buckets(), ..Default::default() };
        self.for_each(guard, |_| found.entries += 1);
        for index in 0..array.buckets() as u64 {
            let mut control = array.bucket(index).control();
            found.moved += usize::from(control.is_moved());
            let mut chain = 1;
            // SAFETY: a bucket of this table, read under the guard.
            while let Some(behind) = unsafe { control.overflow() } {
                chain += 1;
                control = behind.control();
            }
            found.overflow_buckets += chain - 1;
            found.chain_max = found.chain_max.max(chain);
        }
        found
    }

    /// The array that lookups begin in; not freed while the guard lives.
    #[inline]
    fn current<'g>(&'g self, _guard: &'g Guard) -> Array<'g> {
        // ORDERING: Acquire, partner `migrate` (O5): who sees the array sees what was moved into
        // it.
        let word = self.current.load(Ordering::Acquire);
        // SAFETY: an array's word; arrays are retired after `current` leads elsewhere (B7).
        unsafe { Array::of(word) }
    }

    /// Locks the bucket that a key belongs to, in the newest array for it. Moves what is in the
    /// way.
    fn lock<'g>(&'g self, guard: &'g Guard, hash: u64) -> Locked<'g> {
        let mut array = self.current(guard);
        loop {
            let bucket = array.bucket(hash);
            if !bucket.control().is_moved() {
                let locked = bucket.lock(self.class);
                if !locked.is_moved() {
                    // A growth that begins after this moves the bucket only when we are done (B1).
                    let Some(next) = array.next() else { return locked };
                    self.migrate(guard, array, next, hash, locked);
                }
            }
            self.help(guard, array, grow::HELP);
            array = array.next().expect("a bucket moves into the next array");
        }
    }

    /// # Safety
    /// The entry is unlinked: no reader that pins from now on can reach it.
    unsafe fn retire(&self, guard: &Guard, entry: &Entry<V>) {
        let pointer = ptr::with_exposed_provenance_mut(ptr::from_ref(entry).addr());
        // SAFETY: the caller's promise. `V: Send`, so it may be dropped on any thread.
        unsafe { guard.retire(entry.bytes(), pointer, Entry::<V>::free) };
    }
}

impl<V> Drop for NameTable<V> {
    fn drop(&mut self) {
        // ORDERING: Relaxed; exclusive.
        let word = self.current.load(Ordering::Relaxed);
        // SAFETY: exclusive: lookups borrow the table for as long as they use an entry.
        let mut next = Some(unsafe { Array::of(word) });
        while let Some(array) = next {
            next = array.next();
            (0..array.buckets() as u64).for_each(|index| {
                let bucket = array.bucket(index);
                if !bucket.control().is_moved() {
                    // SAFETY: as above; entries of moved buckets are freed in the next array.
                    unsafe { free_chain::<V>(bucket) };
                }
            });
            // SAFETY: allocated by `Array::allocate`, freed here only: retired arrays are not
            // reached from `current`.
            unsafe { Array::free(ptr::without_provenance_mut(array.word() as usize)) };
        }
    }
}

/// Of entries of `parent` whose hash has the same low half, those that match.
fn about<'g, V: 'g>(
    hash: u64,
    parent: u64,
    mut matches: impl FnMut(&'g Entry<V>) -> bool,
) -> impl FnMut(&'g Entry<V>) -> bool {
    move |entry| {
        entry.index_bits() == u64::from(hash as u32) && entry.parent() == parent && matches(entry)
    }
}

/// Frees the entries of a bucket, and the overflow buckets with theirs.
///
/// # Safety
/// The bucket is of a table of `V` that nobody can use any more.
unsafe fn free_chain<V>(head: &Bucket) {
    let mut bucket = head;
    loop {
        let control = bucket.control();
        // SAFETY: the caller's promise; each entry is in one slot of one bucket that has not moved.
        unsafe {
            bucket.entries::<V>().for_each(|entry| {
                let entry: *mut Entry<V> =
                    ptr::with_exposed_provenance_mut(ptr::from_ref(entry).addr());
                Entry::<V>::free(entry.cast());
            });
            let behind = control.overflow();
            if !ptr::eq(bucket, head) {
                let done: *mut Bucket =
                    ptr::with_exposed_provenance_mut(ptr::from_ref(bucket).addr());
                Bucket::free(NonNull::new_unchecked(done).as_ptr().cast());
            }
            match behind {
                Some(behind) => bucket = behind,
                None => return,
            }
        }
    }
}

impl<V> std::fmt::Debug for NameTable<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NameTable")
            .field("class", &self.class.name())
            .field("entries", &self.counts.entries())
            .field("bytes", &self.counts.bytes())
            .finish_non_exhaustive()
    }
}
