//! Name table: finds the value of a name in a directory, without a lock.
//!
//! ```text
//!  current ──▶ array (2^n buckets) ── next ──▶ array (2^(n+1)), while growing
//!               │ bucket: 7 slots + control │ ── link ──▶ overflow bucket, rarely
//!               │   slot: tag | address ────┼──▶ entry: parent, hash, name, value
//! ```
//!
//! # Boundary
//! Owns entries, buckets and growth. The key is (parent, name). The caller knows the meaning and the expiry of a value,
//! and which entries to keep. Grace periods are [`uvfs_concurrent::epoch`]'s.
//!
//! # Concurrency
//! `docs/protocols/name-table.md` has the invariants and the orderings: the lock of a head bucket (B1); one entry for a
//! key (B2); moved buckets (B3); the control word first (B4); a replacement is one store (B5); at most two arrays (B6);
//! what is retired keeps its links (B7); O1 to O7.
//!
//! Progress: lookups and visits never wait or retry. They continue in a next array at most as often as the table
//! doubled meanwhile, and are otherwise wait-free. Writers lock a bucket. Checked by the models in `models` (named
//! there), `random_operations_agree_with_a_map` and `readers_see_rising_versions_while_the_table_grows`.

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
use array::Array;
use bucket::{Bucket, Locked, slot_word};
use counts::Counts;
use entry::Draft;
#[cfg(loom)]
use stand_in::Guard;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
#[cfg(not(loom))]
use uvfs_concurrent::epoch::Guard;
use uvfs_concurrent::lock::LockClass;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering};
use uvfs_concurrent::primitive::record;

/// Entries per bucket, on average, at which a table grows.
const LOAD: usize = if cfg!(loom) { 1 } else { 5 };
/// Insertions by one thread between two checks whether the table should grow.
const INSERTIONS_PER_LOOK: isize = if cfg!(loom) { 1 } else { 32 };

/// Names of directories. The protocol is in the module's documentation.
///
/// A hit costs the line of a bucket and the line of the entry. Linux and FreeBSD chain entries, with a cache miss for
/// each. A map per directory adds its own header line. A rename of a directory costs nothing in any of them. The lock
/// is a bit of the bucket's word, as in Linux `hlist_bl`. With the tags of all slots in the control word, a search
/// would need fewer instructions. But publishing would take two stores, and a reader would have to look twice.
/// Weakness: the table never shrinks; a full scan of one directory is not possible; a value can only be replaced, or
/// changed through its own interior.
pub struct NameTable<V> {
    /// Read by every lookup; changes when a growth ends.
    current: AtomicU64,
    hasher: NameHasher,
    class: &'static LockClass,
    counts: Counts,
    values: PhantomData<V>,
}

/// The result of [`NameTable::insert_with`].
#[derive(Debug)]
pub struct Inserted<'g, V> {
    /// The new entry.
    pub entry: &'g Entry<V>,
    /// The entry that it replaced.
    pub replaced: Option<&'g Entry<V>>,
}

/// The shape of a table; see [`NameTable::statistics`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableStatistics {
    /// Entries found.
    pub entries: usize,
    /// Buckets of the current array.
    pub buckets: usize,
    /// Overflow buckets of the current array.
    pub overflow_buckets: usize,
    /// The most buckets that a lookup of one key reads in one array.
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

    /// The hasher of this table's keys, for callers that hash a name while they scan for its end.
    /// `hasher.key_hash(parent, name_hash)` is the `hash` that the other methods expect.
    #[inline]
    pub fn hasher(&self) -> &NameHasher {
        &self.hasher
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, parent: u64, name: &[u8]) -> u64 {
        self.hasher.key_hash(parent, self.hasher.hash_name(name))
    }

    /// Finds a name. `hash` must be the key's ([`NameTable::hash`]); with another hash no entry is found.
    ///
    /// Touches the line of a bucket and that of the entry. Stores nothing and never waits.
    ///
    /// Why a lookup is right. *A miss*: let the key be present from beginning to end. If the reader sees no mark, the
    /// entry was in this bucket at that instant (B3), in a slot where it stays (B2), even if the bucket moves
    /// meanwhile. So the reader finds it there, or behind links that existed before (B7). If the reader sees the mark,
    /// the same holds for the next array (O2). A lookup that misses therefore saw an instant of absence. *A hit*: the
    /// slot held the entry when the reader saw no mark, or received it later, before the mark; at that instant the
    /// entry was current. *Old after new*: a reader that found the replacement, or the absence, in the next array had
    /// seen the mark. It never goes back to the old array.
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
                // SAFETY: a bucket of this table; `'g` is the lifetime of a guard.
                bucket = unsafe { control.overflow() }?;
                control = bucket.control();
            }
        }
    }

    /// Inserts `value` under a name; returns the entry that it replaced. A name being replaced is never absent.
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

    /// Inserts as [`NameTable::insert`] does, with a weight, class and value from `make`, which receives the present
    /// entry. `make` runs under the bucket's lock: no other thread changes this name meanwhile. It must not use a table
    /// of this class.
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
        let inserted = self.insert_if(guard, hash, parent, name, |known| Some(make(known)));
        inserted.expect("something was made")
    }

    /// Inserts as [`NameTable::insert_with`] does. If `make` returns `None`, nothing changes.
    ///
    /// # Panics
    /// With a name longer than [`NAME_BYTES_MAX`].
    pub fn insert_if<'g>(
        &'g self,
        guard: &'g Guard,
        hash: u64,
        parent: u64,
        name: &[u8],
        make: impl FnOnce(Option<&'g Entry<V>>) -> Option<((u8, Class), V)>,
    ) -> Option<Inserted<'g, V>> {
        record::probe();
        let draft = Draft::new(hash, parent, name);
        let mut locked = self.lock(guard, hash);
        // SAFETY: a bucket of this table.
        let place = unsafe { locked.find(|entry: &Entry<V>| entry.has_key(hash, parent, name)) };
        let (worth, value) = make(place.map(|place| place.entry))?;
        let fresh = draft.finish(worth, value);
        // SAFETY: initialized, and from now on retired before it is freed (B7); `'g` is a guard's lifetime.
        let entry = unsafe { fresh.as_ref() };
        let word = slot_word(hash, fresh);
        if let Some(place) = place {
            locked.replace(place, word);
            drop(locked);
            // SAFETY: its slot holds another entry now (B5).
            unsafe { self.retire(guard, place.entry) };
            return Some(Inserted { entry, replaced: Some(place.entry) });
        }
        let overflowed = locked.put(word);
        drop(locked);
        let overflow_bytes = if overflowed { size_of::<Bucket>() } else { 0 };
        let inserted = self.counts.add(1, (entry.bytes() + overflow_bytes) as isize);
        if overflowed || inserted.rem_euclid(INSERTIONS_PER_LOOK) == 0 {
            self.grow_if_full(guard);
        }
        Some(Inserted { entry, replaced: None })
    }

    /// Removes a name; returns the entry, which readers may still use.
    pub fn remove<'g>(
        &'g self,
        guard: &'g Guard,
        hash: u64,
        parent: u64,
        name: &[u8],
    ) -> Option<&'g Entry<V>> {
        // Absent names need no lock.
        self.get(guard, hash, parent, name)?;
        self.remove_where(guard, hash, |entry| entry.has_key(hash, parent, name))
    }

    /// Puts this entry into a class; returns its old class. `None` if it was already removed or replaced.
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

    /// The first entry of `parent` that `matches`, among those whose key has this hash or a hash with the same low
    /// half. Not for hot paths.
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

    /// Removes the first entry of `parent` that `matches`, among those whose key has this hash or a hash with the same
    /// low half.
    pub fn remove_if<'g>(
        &'g self,
        guard: &'g Guard,
        hash: u64,
        parent: u64,
        matches: impl FnMut(&'g Entry<V>) -> bool,
    ) -> Option<&'g Entry<V>> {
        self.remove_where(guard, hash, about(hash, parent, matches))
    }

    /// Removes exactly this entry; false if it was already removed or replaced.
    pub fn remove_entry<'g>(&'g self, guard: &'g Guard, entry: &'g Entry<V>) -> bool {
        // The guard keeps the entry allocated, so no other entry has its address meanwhile.
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

    /// The number of entries: exact when no thread changes the table, otherwise off by at most the changes in progress.
    pub fn len(&self) -> usize {
        self.counts.entries()
    }

    /// Whether [`NameTable::len`] is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory of entries and buckets, as exact as [`NameTable::len`], without memory that values own elsewhere and
    /// without retired memory ([`uvfs_concurrent::epoch::garbage_bytes`]).
    pub fn bytes(&self) -> usize {
        self.counts.bytes()
    }

    /// The number of buckets of the current array.
    pub fn buckets(&self) -> usize {
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        let word = self.current.load(Ordering::Relaxed);
        // SAFETY: only the word is used, not the memory behind it.
        unsafe { Array::of(word) }.buckets()
    }

    /// The number of entries at which the table grows.
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

    /// The array in which lookups begin; not freed while the guard lives.
    #[inline]
    fn current<'g>(&'g self, _guard: &'g Guard) -> Array<'g> {
        // ORDERING: Acquire, partner `migrate` (O5): a thread that sees the array sees the entries moved into it.
        let word = self.current.load(Ordering::Acquire);
        // SAFETY: an array's word; arrays are retired after `current` leads elsewhere (B7).
        unsafe { Array::of(word) }
    }

    /// Locks the bucket of a key, in the newest array that has it. Moves the bucket first if its array is growing.
    fn lock<'g>(&'g self, guard: &'g Guard, hash: u64) -> Locked<'g> {
        let mut array = self.current(guard);
        loop {
            let bucket = array.bucket(hash);
            if !bucket.control().is_moved() {
                let locked = bucket.lock(self.class);
                if !locked.is_moved() {
                    // A growth that begins after this moves the bucket only after this lock is released (B1).
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
                    // SAFETY: exclusive; entries of moved buckets are freed in the next array.
                    unsafe { free_chain::<V>(bucket) };
                }
            });
            // SAFETY: allocated by `Array::allocate`, freed here only: retired arrays are not reached from `current`.
            unsafe { Array::free(ptr::without_provenance_mut(array.word() as usize)) };
        }
    }
}

/// The entries of `parent` that match, among those whose hash has the same low half.
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
/// The bucket is of a table of `V` that no thread can use any more.
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
