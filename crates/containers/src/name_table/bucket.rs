//! One bucket: seven slots and a control word in one cache line.
//!
//! ```text
//!   slot 0 .. 6   tag:16 | address:48       0: vacant
//!   control       link:58 | .. | moved:1 | lock:1
//! ```
//!
//! # Boundary
//! Loads, locks and changes one bucket and the overflow buckets behind its link. [`super`] chooses
//! the bucket, handles removed entries, and defines the invariants cited here.
//!
//! # Why
//! Tag and address are one word, so one store publishes an entry and one removes it. A key
//! has a home slot, which holds three of four keys at the usual load: one load, and a branch that
//! is predicted for names in frequent use. Otherwise a reader takes the smallest of `slot ^ tag`.
//! Where the tags are equal that is the bare address, and smaller than any other, so seven slots
//! are searched without a branch. Weakness: two equal tags in a bucket (about 1 in 3000 buckets)
//! make the reader search the slots one by one. The 16 bits need addresses of 48 bits.

use super::entry::Entry;
use crate::pool;
use std::alloc::Layout;
use std::ptr::{self, NonNull};
use uvfs_concurrent::lock::{LockClass, bit};
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering};

/// Slots of a bucket.
pub(super) const SLOTS: usize = if cfg!(loom) { 2 } else { 7 };

const LOCK: u64 = 1;
const MOVED: u64 = 2;
const LINK: u64 = !63;
const ADDRESS: u64 = (1 << 48) - 1;

/// The tag of a hash, in its bits of the word. Never 0 (one of its bits is always set), so it
/// differs from a vacant slot's.
#[inline]
pub(super) fn tag_of(hash: u64) -> u64 {
    (hash | 1 << 48) & !ADDRESS
}

/// The slot that is searched first for a key, and filled first if it is vacant.
#[inline]
fn home_of(hash_or_word: u64) -> usize {
    // The tag's top bits, so that a growth knows them too. The last slot has a double share.
    ((hash_or_word >> 61) as usize).min(SLOTS - 1)
}

/// Seven slots and a control word. The layout is in the module's documentation.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Bucket {
    slots: [AtomicU64; SLOTS],
    control: AtomicU64,
}

/// A control word that was loaded before the slots (B4).
#[derive(Debug, Clone, Copy)]
pub(super) struct Control(u64);

impl Control {
    /// Whether the bucket's entries are in the next array.
    #[inline]
    pub(super) fn is_moved(self) -> bool {
        self.0 & MOVED != 0
    }

    /// The overflow bucket behind this one.
    ///
    /// # Safety
    /// The word is a bucket's, loaded under a guard that lives for `'g`.
    #[inline]
    pub(super) unsafe fn overflow<'g>(self) -> Option<&'g Bucket> {
        let link = ptr::with_exposed_provenance::<Bucket>((self.0 & LINK) as usize);
        // SAFETY: a link is null or leads to a bucket that was initialized before the link was
        // stored (O3), and that is freed only after a grace period (B7).
        unsafe { link.as_ref() }
    }
}

/// The entry of a slot's word.
///
/// # Safety
/// `word` was loaded with Acquire, or under the lock, from a slot of a table of `V`, under a guard
/// that lives for `'g`.
#[inline]
unsafe fn entry_of<'g, V>(word: u64) -> Option<&'g Entry<V>> {
    let entry = ptr::with_exposed_provenance::<Entry<V>>((word & ADDRESS) as usize);
    // SAFETY: null or an entry, initialized before it was stored (O1) and freed only after a grace
    // period (B7).
    unsafe { entry.as_ref() }
}

/// The word of a slot that holds `entry`.
pub(super) fn slot_word<V>(hash: u64, entry: NonNull<Entry<V>>) -> u64 {
    let address = entry.as_ptr().expose_provenance() as u64;
    assert!(address & !ADDRESS == 0, "an address beyond 48 bits");
    tag_of(hash) | address
}

impl Bucket {
    /// A vacant bucket. All of its bytes are zero (but for the model checker).
    pub(super) fn new() -> Self {
        Self { slots: std::array::from_fn(|_| AtomicU64::new(0)), control: AtomicU64::new(0) }
    }

    /// The control word, to be loaded before the slots are searched (B4).
    #[inline]
    pub(super) fn control(&self) -> Control {
        // ORDERING: Acquire, partners `Locked::drop` (O2: a reader that sees `moved` sees the
        // entries in the next array) and `Locked::set_link` (O3: a reader that sees a link sees the
        // bucket behind it).
        Control(self.control.load(Ordering::Acquire))
    }

    /// The entry with this key, in this bucket without its overflow buckets.
    ///
    /// # Safety
    /// The bucket belongs to a table of `V`; the caller is pinned for `'g`.
    #[inline]
    pub(super) unsafe fn find<'g, V>(
        &self,
        hash: u64,
        parent: u64,
        name: &[u8],
    ) -> Option<&'g Entry<V>> {
        let tag = tag_of(hash);
        // ORDERING: Acquire, partner `Locked::put` (O1): a reader that sees the address sees the
        // entry.
        let home = self.slots[home_of(hash)].load(Ordering::Acquire) ^ tag;
        if home & !ADDRESS == 0 {
            // SAFETY: loaded with Acquire, without its tag; pinned (the caller's promise).
            let entry = unsafe { entry_of::<V>(home) }?;
            if entry.has_key(hash, parent, name) {
                return Some(entry);
            }
        }
        let mut pairs = [u64::MAX; SLOTS.div_ceil(2)];
        for (at, slot) in self.slots.iter().enumerate() {
            // ORDERING: Acquire, partner `Locked::put` (O1), as for the home slot.
            pairs[at / 2] = pairs[at / 2].min(slot.load(Ordering::Acquire) ^ tag);
        }
        let least = pairs.into_iter().fold(u64::MAX, u64::min);
        if least & !ADDRESS != 0 {
            return None;
        }
        // SAFETY: loaded with Acquire, without its tag; pinned (the caller's promise).
        let entry = unsafe { entry_of::<V>(least) }?;
        if entry.has_key(hash, parent, name) {
            return Some(entry);
        }
        // SAFETY: the caller's promise.
        unsafe { self.find_among_equal_tags(hash, parent, name) }
    }

    /// Finds as `find` does, slot by slot: another key has the same tag.
    ///
    /// # Safety
    /// The same as for `find`.
    #[cold]
    #[inline(never)]
    unsafe fn find_among_equal_tags<'g, V>(
        &self,
        hash: u64,
        parent: u64,
        name: &[u8],
    ) -> Option<&'g Entry<V>> {
        // SAFETY: the caller's promise.
        unsafe { self.entries::<V>() }.find(|entry| entry.has_key(hash, parent, name))
    }

    /// The entries of this bucket without its overflow buckets; each slot is loaded when the
    /// iterator reaches it.
    ///
    /// # Safety
    /// The same as for `find`.
    pub(super) unsafe fn entries<'g, V: 'g>(&self) -> impl Iterator<Item = &'g Entry<V>> {
        // SAFETY: the caller's promise.
        unsafe { self.words::<V>() }.map(|(_, entry)| entry)
    }

    /// The entries, each with its slot's word.
    ///
    /// # Safety
    /// The same as for `find`.
    unsafe fn words<'g, V: 'g>(&self) -> impl Iterator<Item = (u64, &'g Entry<V>)> {
        self.slots.iter().filter_map(|slot| {
            // ORDERING: Acquire, partner `Locked::put` (O1).
            let word = slot.load(Ordering::Acquire);
            // SAFETY: loaded with Acquire; pinned (the caller's promise).
            unsafe { entry_of::<V>(word) }.map(|entry| (word, entry))
        })
    }

    /// Locks the bucket and its overflow buckets (B1).
    pub(super) fn lock<'g>(&'g self, class: &'static LockClass) -> Locked<'g> {
        let mut control = 0;
        let held = bit::lock(class, || {
            // ORDERING: Relaxed; a guess, checked by the compare-exchange.
            control = self.control.load(Ordering::Relaxed);
            control & LOCK == 0
                && self
                    .control
                    // ORDERING: Acquire, partner `Locked::drop` (O4): sees the last holder's
                    // changes.
                    .compare_exchange(control, control | LOCK, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        });
        Locked { head: self, control: Control(control), held: Some(held) }
    }

    /// A bucket from the pool, vacant.
    fn allocate() -> NonNull<Self> {
        let bucket = pool::shared().allocate(Layout::new::<Self>()).cast();
        // SAFETY: fresh memory of this layout.
        unsafe { bucket.write(Self::new()) };
        bucket.as_ptr().expose_provenance();
        bucket
    }

    /// Frees an overflow bucket, in the form that [`uvfs_concurrent::epoch::Guard::retire`] takes.
    ///
    /// # Safety
    /// `bucket` was an overflow bucket, and no thread can reach it any more. Called once.
    pub(super) unsafe fn free(bucket: *mut ()) {
        // SAFETY: from `allocate`; a bucket needs no destructor.
        unsafe {
            pool::shared().free(NonNull::new_unchecked(bucket.cast()), Layout::new::<Self>());
        }
    }

    /// A vacant slot, `home` if possible.
    fn vacant(&self, home: usize) -> Option<&AtomicU64> {
        // ORDERING: Relaxed; the caller holds the bucket's lock or alone knows the bucket.
        let is_vacant = |slot: &&AtomicU64| slot.load(Ordering::Relaxed) == 0;
        Some(&self.slots[home]).filter(is_vacant).or_else(|| self.slots.iter().find(is_vacant))
    }
}

/// A locked bucket. Unlocks when dropped; one store also publishes `moved` and the head's link.
#[derive(Debug)]
pub(super) struct Locked<'g> {
    head: &'g Bucket,
    /// The word that `drop` will store.
    control: Control,
    /// `None` only inside `drop`.
    held: Option<bit::BitHeld>,
}

/// The place of an entry that was found under the lock.
pub(super) struct Place<'g, V> {
    bucket: &'g Bucket,
    slot: &'g AtomicU64,
    pub(super) entry: &'g Entry<V>,
}

impl<V> Clone for Place<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Place<'_, V> {}

impl<'g> Locked<'g> {
    pub(super) fn is_moved(&self) -> bool {
        self.control.is_moved()
    }

    /// The buckets under this lock, the head first.
    fn chain(&self) -> impl Iterator<Item = &'g Bucket> + use<'g> {
        let mut next = Some((self.head, self.control));
        std::iter::from_fn(move || {
            let (bucket, control) = next?;
            // SAFETY: the lock's holder is pinned for `'g` (`super::NameTable::lock`).
            next = unsafe { control.overflow() }.map(|behind| (behind, behind.control()));
            Some(bucket)
        })
    }

    /// The first entry that `matches`.
    ///
    /// # Safety
    /// The bucket belongs to a table of `V`.
    pub(super) unsafe fn find<V>(
        &self,
        mut matches: impl FnMut(&'g Entry<V>) -> bool,
    ) -> Option<Place<'g, V>> {
        for bucket in self.chain() {
            for slot in &bucket.slots {
                // ORDERING: Relaxed; the lock (O4) ordered it, or `moved` (O2) or `current` (O5,
                // O7) if a growth moved it here.
                let word = slot.load(Ordering::Relaxed);
                // SAFETY: a slot of a table of `V` (the caller's promise), pinned for `'g`; the
                // lock replaces the Acquire.
                let Some(entry) = (unsafe { entry_of::<V>(word) }) else { continue };
                if matches(entry) {
                    return Some(Place { bucket, slot, entry });
                }
            }
        }
        None
    }

    /// Replaces the word of the same key: the key is never absent (B5).
    pub(super) fn replace<V>(&mut self, place: Place<'g, V>, word: u64) {
        // ORDERING: Release, partner `Bucket::find` (O1). Relaxed would publish the entry before
        // its content.
        place.slot.store(word, Ordering::Release);
    }

    /// Puts a word into the first vacant slot, or into a new overflow bucket; true in the second
    /// case.
    pub(super) fn put(&mut self, word: u64) -> bool {
        let mut last = self.head;
        for bucket in self.chain() {
            if let Some(slot) = bucket.vacant(home_of(word)) {
                // ORDERING: Release, partner `Bucket::find` (O1). Relaxed would publish the entry
                // before its content.
                slot.store(word, Ordering::Release);
                return false;
            }
            last = bucket;
        }
        self.append(last, word);
        true
    }

    #[cold]
    fn append(&mut self, last: &'g Bucket, word: u64) {
        let fresh = Bucket::allocate();
        // SAFETY: just allocated and whole.
        let bucket = unsafe { fresh.as_ref() };
        // ORDERING: Relaxed; no other thread knows the bucket before its link is stored.
        bucket.slots[0].store(word, Ordering::Relaxed);
        self.set_link(last, fresh.as_ptr());
    }

    /// Makes `bucket`, of this chain, lead to `next`.
    fn set_link(&mut self, bucket: &'g Bucket, next: *mut Bucket) {
        let link = next.expose_provenance() as u64;
        if ptr::eq(bucket, self.head) {
            self.control = Control(self.control.0 & !LINK | link);
        } else {
            // ORDERING: Release, partner `Bucket::control` (O3). Relaxed would publish the overflow
            // bucket before its slots.
            bucket.control.store(link, Ordering::Release);
        }
    }

    /// Removes an entry. If that leaves an overflow bucket vacant, unlinks the bucket too and
    /// returns it; the caller retires it after releasing the lock.
    pub(super) fn take<V>(&mut self, place: Place<'g, V>) -> Option<NonNull<Bucket>> {
        // ORDERING: Release, partner `Bucket::find`: a reader that misses a removed key sees the
        // remover's earlier stores (O6).
        place.slot.store(0, Ordering::Release);
        if ptr::eq(place.bucket, self.head) {
            return None;
        }
        // ORDERING: Relaxed; only the holder of this lock stores to these slots.
        if place.bucket.slots.iter().any(|slot| slot.load(Ordering::Relaxed) != 0) {
            return None;
        }
        let before = self.chain().take_while(|bucket| !ptr::eq(*bucket, place.bucket)).last();
        let behind = place.bucket.control().0 & LINK;
        self.set_link(before?, ptr::with_exposed_provenance_mut(behind as usize));
        Some(NonNull::from(place.bucket))
    }

    /// Copies all entries into two buckets of the next array, which no other thread can reach yet
    /// (B3), and marks this one as moved. Returns the head of the overflow buckets and the number
    /// of new overflow buckets. The caller retires the chain after releasing the lock.
    ///
    /// # Safety
    /// The bucket belongs to a table of `V`; `low` and `high` are its buckets in the next array,
    /// and `split` is the index bit that distinguishes them.
    pub(super) unsafe fn move_to<V>(
        &mut self,
        split: u64,
        low: &'g Bucket,
        high: &'g Bucket,
    ) -> (Control, usize) {
        let mut made = 0;
        for bucket in self.chain() {
            // SAFETY: the caller's promise; pinned for `'g`.
            for (word, entry) in unsafe { bucket.words::<V>() } {
                let to = if entry.index_bits() & split == 0 { low } else { high };
                made += to.fill(word);
            }
        }
        let overflow = Control(self.control.0 & LINK);
        self.control = Control(MOVED);
        (overflow, made)
    }
}

impl Bucket {
    /// Puts a word into this chain, which no other thread knows. Returns the number of overflow
    /// buckets made.
    fn fill(&self, word: u64) -> usize {
        let mut last = self;
        loop {
            if let Some(slot) = last.vacant(home_of(word)) {
                // ORDERING: Relaxed; `moved` publishes it (O2).
                slot.store(word, Ordering::Relaxed);
                return 0;
            }
            // SAFETY: no other thread knows this chain, so it stays during the walk.
            match unsafe { last.control().overflow() } {
                Some(behind) => last = behind,
                None => break,
            }
        }
        let fresh = Bucket::allocate();
        // SAFETY: just allocated and whole.
        let bucket = unsafe { fresh.as_ref() };
        // ORDERING: Relaxed; `moved` publishes both (O2).
        bucket.slots[0].store(word, Ordering::Relaxed);
        // ORDERING: Relaxed; `moved` publishes both (O2).
        last.control.store(fresh.as_ptr().expose_provenance() as u64, Ordering::Relaxed);
        1
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let (head, control) = (self.head, self.control.0);
        bit::unlock(held, || {
            // ORDERING: Release, partners `Bucket::lock` (O4) and `Bucket::control` (O2, O3).
            head.control.store(control, Ordering::Release);
        });
    }
}
