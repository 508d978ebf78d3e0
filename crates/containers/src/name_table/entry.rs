//! One entry: key, value and clock weight in one block of memory, mostly one cache line.
//!
//! ```text
//!   0        8      12    14      15   16          16 + V              up to a multiple of 64
//!   │ parent │ hash │ len │ weight│class│ value: V  │ name, zeros up to 8 │ unused │
//! ```
//!
//! # Boundary
//! Owns the layout, the comparison of keys and the memory. The table decides whether an entry is in it, and since when
//! not.
//!
//! # Concurrency
//! Only `weight` and `class` change after the entry is published (O1 of [`super`]). `weight` is a hint for the clock:
//! racing updates may overwrite one another. `class` is stored under the lock of the entry's bucket while the entry is
//! in it. A removed entry's class is therefore constant, and sums by class are exact.
//!
//! # Why
//! The name lies behind the value, not behind a pointer, so a hit reads one line for names up to 24 bytes and values of
//! 24 bytes. Weakness: the name's offset depends on the size of `V`, so larger values push it to the next line.

use super::hash::{NameHasher, full_word, last_word};
use crate::class::Class;
use crate::pool;
use std::alloc::Layout;
use std::fmt;
use std::mem::{ManuallyDrop, offset_of};
use std::ops::Deref;
use std::ptr::{self, NonNull};
use uvfs_concurrent::primitive::atomic::{AtomicU8, Ordering};

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 4096;

/// A name of a directory, and its value. Found in a [`super::NameTable`].
#[repr(C)]
pub struct Entry<V> {
    parent: u64,
    /// The low half of the key's hash: the index bits of every table size.
    hash: u32,
    length: u16,
    weight: AtomicU8,
    class: AtomicU8,
    value: V,
    // The name follows, at `NAME_AT`.
}

impl<V> Entry<V> {
    /// The offset of the name; a multiple of 8, so that it can be read in words.
    const NAME_AT: usize = (offset_of!(Self, value) + size_of::<V>()).next_multiple_of(8);

    /// The bytes of a name's words: at least one word.
    const fn padded(length: usize) -> usize {
        if length == 0 { 8 } else { length.next_multiple_of(8) }
    }

    /// The memory of an entry with a name of `length` bytes.
    fn layout(length: usize) -> Layout {
        const { assert!(align_of::<Self>() <= pool::LINE, "entries are aligned to lines") };
        let bytes = Self::NAME_AT + Self::padded(length);
        Layout::from_size_align(bytes.next_multiple_of(pool::LINE), pool::LINE)
            .expect("names are short")
    }

    /// The directory that has this name.
    #[inline]
    pub fn parent(&self) -> u64 {
        self.parent
    }

    /// The name.
    #[inline]
    pub fn name(&self) -> &[u8] {
        // SAFETY: `Draft::new` wrote `length` bytes there, in the same allocation, and no thread writes them again. A
        // reference's provenance ends with the struct, so this takes that of the whole block, which `Draft::finish`
        // exposed.
        unsafe { std::slice::from_raw_parts(self.name_start(), usize::from(self.length)) }
    }

    #[inline]
    fn name_start(&self) -> *const u8 {
        ptr::with_exposed_provenance(ptr::from_ref(self).addr() + Self::NAME_AT)
    }

    /// The hash of the key, computed again from the name: not for hot paths.
    pub fn hash(&self) -> u64 {
        let hasher = NameHasher::process();
        hasher.key_hash(self.parent, hasher.hash_name(self.name()))
    }

    /// The bits of the hash that choose a bucket.
    #[inline]
    pub(super) fn index_bits(&self) -> u64 {
        u64::from(self.hash)
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &V {
        &self.value
    }

    /// The clock weight.
    #[inline]
    pub fn weight(&self) -> u8 {
        // ORDERING: Relaxed; a hint, nothing is reached through it.
        self.weight.load(Ordering::Relaxed)
    }

    /// The class.
    #[inline]
    pub fn class(&self) -> Class {
        // ORDERING: Relaxed; a hint while the entry is in the table, and constant after: the thread that removed it had
        // the bucket's lock after the last store (O4 of the table).
        Class::from_byte(self.class.load(Ordering::Relaxed))
    }

    /// Stores the class; returns the old one. The caller has the lock of the entry's bucket.
    pub(super) fn set_class(&self, class: Class) -> Class {
        let old = self.class();
        // ORDERING: Relaxed; ordered by the bucket's lock.
        self.class.store(class as u8, Ordering::Relaxed);
        old
    }

    /// Adds one to the entry's weight, up to `most`. Stores only below `most`, so a hot entry's line stays shared among
    /// the readers.
    #[inline]
    pub fn touch(&self, most: u8) {
        let weight = self.weight();
        if weight < most {
            // ORDERING: Relaxed; a hint. A lost update costs one revolution of the clock.
            self.weight.store(weight + 1, Ordering::Relaxed);
        }
    }

    /// Subtracts one from the weight, if it is not 0, when the clock's hand passes; returns the old weight. 0 means
    /// that the entry was not used since the last pass.
    #[inline]
    pub fn age(&self) -> u8 {
        let weight = self.weight();
        if weight > 0 {
            // ORDERING: Relaxed; a hint.
            self.weight.store(weight - 1, Ordering::Relaxed);
        }
        weight
    }

    /// Sets the weight to 0: the clock's next pass finds the entry unused, unless it is used until then.
    pub fn wear_out(&self) {
        // ORDERING: Relaxed; a hint.
        self.weight.store(0, Ordering::Relaxed);
    }

    /// The memory of this entry, without memory that `value` owns elsewhere.
    pub fn bytes(&self) -> usize {
        Self::layout(usize::from(self.length)).size()
    }

    /// Whether the entry has this key. Compares the header first, then the name word by word.
    #[inline]
    pub(super) fn has_key(&self, hash: u64, parent: u64, name: &[u8]) -> bool {
        let differs = (self.parent ^ parent)
            | u64::from(self.hash ^ hash as u32)
            | (usize::from(self.length) ^ name.len()) as u64;
        if differs != 0 {
            return false;
        }
        let mut stored = self.name_start().cast::<u64>();
        let mut rest = name;
        while rest.len() > 8 {
            let (word, behind) = rest.split_at(8);
            // SAFETY: both names have this many words; `NAME_AT` keeps them aligned.
            if full_word(word) != unsafe { stored.read() }.to_le() {
                return false;
            }
            rest = behind;
            // SAFETY: the name has a further word.
            stored = unsafe { stored.add(1) };
        }
        // SAFETY: a name has a last word, filled up with zeros; so has the empty name.
        last_word(name) == unsafe { stored.read() }.to_le()
    }

    /// Frees an entry, in the form that [`uvfs_concurrent::epoch::Guard::retire`] takes.
    ///
    /// # Safety
    /// `entry` came from [`Draft::finish`], and no thread can reach it any more. Called once.
    pub(super) unsafe fn free(entry: *mut ()) {
        let entry = entry.cast::<Self>();
        // SAFETY: the caller's promise: the entry is initialized and only this thread has it.
        unsafe {
            let layout = Self::layout(usize::from((*entry).length));
            // The memory is freed even if the value's destructor panics.
            let _memory = Memory { start: NonNull::new_unchecked(entry.cast()), layout };
            ptr::drop_in_place(entry);
        }
    }
}

impl<V> Deref for Entry<V> {
    type Target = V;
    #[inline]
    fn deref(&self) -> &V {
        &self.value
    }
}

impl<V: fmt::Debug> fmt::Debug for Entry<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("parent", &self.parent)
            .field("name", &self.name().escape_ascii().to_string())
            .field("weight", &self.weight())
            .field("value", &self.value)
            .finish()
    }
}

/// Pool memory, freed when dropped.
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: both came together from the shared pool; the owner does not use the memory any more.
        unsafe { pool::shared().free(self.start, self.layout) };
    }
}

/// An entry without its value, allocated before a bucket is locked.
pub(super) struct Draft<V> {
    memory: Memory,
    hash: u32,
    parent: u64,
    length: u16,
    value: std::marker::PhantomData<V>,
}

impl<V> Draft<V> {
    /// # Panics
    /// With a name longer than [`NAME_BYTES_MAX`].
    pub(super) fn new(hash: u64, parent: u64, name: &[u8]) -> Self {
        assert!(name.len() <= NAME_BYTES_MAX, "a name of {} bytes", name.len());
        let layout = Entry::<V>::layout(name.len());
        let start = pool::shared().allocate(layout);
        // SAFETY: fresh memory, with room for the name up to a multiple of 8 from `NAME_AT` on.
        unsafe {
            let to = start.as_ptr().add(Entry::<V>::NAME_AT);
            to.add(name.len()).write_bytes(0, Entry::<V>::padded(name.len()) - name.len());
            to.copy_from_nonoverlapping(name.as_ptr(), name.len());
        }
        let memory = Memory { start, layout };
        let value = std::marker::PhantomData;
        Self { memory, hash: hash as u32, parent, length: name.len() as u16, value }
    }

    /// The complete entry. The caller owns it, and finally passes it to [`Entry::free`].
    pub(super) fn finish(self, (weight, class): (u8, Class), value: V) -> NonNull<Entry<V>> {
        let this = ManuallyDrop::new(self);
        let start = this.memory.start.cast::<Entry<V>>();
        let (weight, class) = (AtomicU8::new(weight), AtomicU8::new(class as u8));
        let (parent, hash, length) = (this.parent, this.hash, this.length);
        // SAFETY: fresh memory of the right size and alignment; no other thread knows it. The struct has no padding
        // behind `value` that reaches into the name: the assertion checks it.
        unsafe {
            const { assert!(offset_of!(Entry<V>, value) + size_of::<V>() <= Entry::<V>::NAME_AT) };
            let entry = start.as_ptr();
            (&raw mut (*entry).parent).write(parent);
            (&raw mut (*entry).hash).write(hash);
            (&raw mut (*entry).length).write(length);
            (&raw mut (*entry).weight).write(weight);
            (&raw mut (*entry).class).write(class);
            (&raw mut (*entry).value).write(value);
        }
        // Slots keep addresses, and `name` reads beyond the struct.
        start.as_ptr().expose_provenance();
        start
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn check<V>(value: V, name: &[u8], bytes: usize) {
        let hasher = NameHasher::process();
        let hash = hasher.key_hash(7, hasher.hash_name(name));
        let made = Draft::new(hash, 7, name).finish((3, Class::Keep), value);
        // SAFETY: just made, freed below.
        let entry = unsafe { made.as_ref() };
        assert_eq!((entry.parent(), entry.name(), entry.hash()), (7, name, hash));
        assert_eq!(entry.bytes(), bytes, "{} bytes", name.len());
        assert!(entry.has_key(hash, 7, name));
        assert!(!entry.has_key(hash, 8, name) && !entry.has_key(hash ^ 1, 7, name));
        for at in 0..name.len() {
            let mut other = name.to_vec();
            other[at] ^= 1;
            assert!(!entry.has_key(hash, 7, &other), "byte {at} of {}", name.len());
        }
        let longer = [name, b"\0"].concat();
        assert!(!entry.has_key(hash, 7, &longer) && !entry.has_key(hash, 7, &longer[1..][..0]));
        // SAFETY: made above, freed once.
        unsafe { Entry::<V>::free(made.as_ptr().cast()) };
    }

    #[test]
    fn a_name_of_24_bytes_and_a_value_of_24_share_a_line() {
        check([1u64; 3], &[b'n'; 24], 64);
        check([1u64; 3], &[b'n'; 25], 128);
        check([1u64; 3], &[b'n'; 88], 128);
        check([1u64; 3], &[b'n'; 89], 192);
    }

    #[test]
    fn every_length_and_value_size() {
        for length in 1..70usize {
            let name: Vec<u8> = (0..length as u8).map(|n| n.wrapping_mul(37) | 1).collect();
            check((), &name, (16 + length.next_multiple_of(8)).next_multiple_of(64));
            check(1u8, &name, (24 + length.next_multiple_of(8)).next_multiple_of(64));
            check([1u32; 3], &name, (32 + length.next_multiple_of(8)).next_multiple_of(64));
            check([1u64; 8], &name, (80 + length.next_multiple_of(8)).next_multiple_of(64));
        }
        check(1u64, &[b'x'; NAME_BYTES_MAX], 4160);
    }

    #[test]
    #[should_panic(expected = "a name of 4097 bytes")]
    fn a_name_too_long_is_refused() {
        Draft::<u8>::new(0, 0, &[b'x'; NAME_BYTES_MAX + 1]);
    }

    #[test]
    fn the_weight_rises_to_a_limit_and_falls_to_zero() {
        let made = Draft::new(0, 0, b"x").finish((1, Class::Normal), ());
        // SAFETY: just made, freed below.
        let entry = unsafe { made.as_ref() };
        (0..5).for_each(|_| entry.touch(3));
        assert_eq!(entry.weight(), 3);
        assert_eq!([entry.age(), entry.age(), entry.age(), entry.age()], [3, 2, 1, 0]);
        #[cfg(debug_assertions)]
        {
            entry.touch(1);
            let ((), tally) = uvfs_concurrent::primitive::record::tally(|| entry.touch(1));
            assert_eq!(tally.stores + tally.rmws, 0, "a touch at the limit stores");
        }
        // SAFETY: made above, freed once.
        unsafe { Entry::<()>::free(made.as_ptr().cast()) };
    }
}
