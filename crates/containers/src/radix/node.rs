//! One node: a header line and its slots.
//!
//! # Boundary
//! Layout, the lock word, and single accesses with their orderings. The rules in [`super`] define the lock that an
//! access needs, and the steps that must follow it.
//!
//! # Why
//! With 64 slots a tag is one word and a node is nine lines, of which a lookup touches one. The root's pointer carries
//! the height, so only threads that change the node or search for tags read the header. Weakness: some bytes of the
//! header are unused, and a node with one value costs as much as a full one.

#[cfg(all(test, not(loom)))]
use super::tests::stir::stir;
use super::wait::{Patience, wait};
use crate::pool;
use std::alloc::Layout;
use std::num::NonZeroU64;
use std::ptr::{self, NonNull};
use uvfs_concurrent::lock::LockClass;
use uvfs_concurrent::primitive::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use uvfs_concurrent::primitive::record;

/// Bits of an index that one level consumes. Under the model checker two slots make a node, so that several levels take
/// few steps.
pub(super) const BITS: u32 = if cfg!(loom) { 1 } else { 6 };
/// Slots of a node.
pub(super) const SLOTS: usize = 1 << BITS;
/// Tags of a node.
pub(super) const TAGS: usize = 3;
/// All slots of a node, as bits.
pub(super) const ALL: u64 = u64::MAX >> (64 - SLOTS);

const FREE: u32 = 0;
const LOCKED: u32 = 1;
const DEAD: u32 = 2;

/// The fields that modifiers and tag searches read.
#[derive(Debug)]
#[repr(C, align(64))]
struct Header {
    word: Word,
    /// The slots that are not empty.
    occupied: AtomicU64,
    parent: AtomicPtr<Node>,
    tags: [AtomicU64; TAGS],
    /// Bits of an index below this node's; a multiple of `BITS`, 0 in a leaf. Never changes.
    shift: u32,
    /// The parent's slot that leads to this node. Never changes: a root's is 0, and stays so when the tree grows.
    offset: u32,
}

/// A header line and eight lines of slots.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Node {
    header: Header,
    /// Values in a leaf, addresses of children elsewhere; 0 is empty.
    slots: [AtomicU64; SLOTS],
    /// Read by every visitor and written by the free, so that the checker sees a race between them.
    #[cfg(loom)]
    life: loom::cell::UnsafeCell<bool>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Node>() == 9 * 64 && align_of::<Node>() == 64);

/// Bytes of a node, as reported.
pub(super) const NODE_BYTES: usize = size_of::<Node>();

impl Node {
    /// A node that no other thread knows: unlocked, empty, untagged.
    pub(super) fn allocate(shift: u32, offset: u32, parent: *mut Node) -> NonNull<Node> {
        let node = pool::shared().allocate(Layout::new::<Node>()).cast::<Node>();
        // SAFETY: fresh memory of a node's layout that only this thread has. All fields are integers or pointers, for
        // which zeros are valid; the models' own types are written whole.
        unsafe {
            #[cfg(loom)]
            node.write(Node {
                header: Header {
                    word: Word::default(),
                    occupied: AtomicU64::new(0),
                    parent: AtomicPtr::new(parent),
                    tags: std::array::from_fn(|_| AtomicU64::new(0)),
                    shift,
                    offset,
                },
                slots: std::array::from_fn(|_| AtomicU64::new(0)),
                life: loom::cell::UnsafeCell::new(false),
            });
            // Written now: loom dates a cell's creation at the thread's last atomic step.
            #[cfg(loom)]
            node.as_ref().life.with_mut(|life| *life = true);
            #[cfg(not(loom))]
            {
                node.write_bytes(0, 1);
                let header = &raw mut (*node.as_ptr()).header;
                (*header).parent = AtomicPtr::new(parent);
                (*header).shift = shift;
                (*header).offset = offset;
            }
        }
        node
    }

    /// Frees a node's memory.
    ///
    /// # Safety
    /// `node` came from [`Node::allocate`], and no thread uses it any more.
    pub(super) unsafe fn free(node: *mut ()) {
        let node = node.cast::<Node>();
        // SAFETY: the caller's promise.
        unsafe {
            #[cfg(loom)]
            {
                (*node).life.with_mut(|life| *life = false);
                ptr::drop_in_place(node);
            }
            pool::shared().free(NonNull::new_unchecked(node).cast(), Layout::new::<Node>());
        }
    }

    /// The node at an address that [`Node::address`] returned.
    ///
    /// # Safety
    /// The node is not freed while `'a` lasts.
    #[inline(always)]
    pub(super) unsafe fn at<'a>(address: u64) -> &'a Node {
        let node = ptr::with_exposed_provenance::<Node>(address as usize);
        // SAFETY: the caller's promise.
        let node = unsafe { &*node };
        #[cfg(loom)]
        node.life.with(|life| {
            // SAFETY: read only here, and written only by the free; loom's cell checks that claim.
            assert!(unsafe { *life })
        });
        node
    }

    /// The node's address, as stored in slots.
    #[inline(always)]
    pub(super) fn address(&self) -> u64 {
        ptr::from_ref(self).expose_provenance() as u64
    }

    /// Bits of an index below this node's.
    #[inline(always)]
    pub(super) fn shift(&self) -> u32 {
        self.header.shift
    }

    /// This node's bit in its parent's tag words.
    #[inline(always)]
    pub(super) fn bit_above(&self) -> u64 {
        1 << self.header.offset
    }

    /// The parent's slot that leads to this node.
    #[inline(always)]
    pub(super) fn offset(&self) -> usize {
        self.header.offset as usize
    }

    /// Takes the lock; false if the node is dead.
    #[inline(always)]
    #[track_caller]
    pub(super) fn lock(&self, class: &'static LockClass, patience: Patience) -> bool {
        self.header.word.lock(class, patience)
    }

    /// Releases the lock.
    #[inline(always)]
    pub(super) fn unlock(&self) {
        self.header.word.unlock();
    }

    /// Releases the lock for ever: no thread gets it again.
    pub(super) fn unlock_dead(&self) {
        // ORDERING: Release, partner `Word::lock` (O2). A thread that sees DEAD starts again from the root, and finds
        // the present node there.
        self.header.word.0.store(DEAD, Ordering::Release);
        stir();
    }

    /// Whether the lock is free, for tests.
    #[cfg(all(test, not(loom)))]
    pub(super) fn is_free(&self) -> bool {
        self.header.word.0.load(Ordering::SeqCst) == FREE
    }

    /// The parent, null in a root. For a holder of this node's lock.
    #[inline(always)]
    pub(super) fn parent(&self) -> *mut Node {
        // ORDERING: Relaxed; changes under this node's lock, which the caller holds.
        self.header.parent.load(Ordering::Relaxed)
    }

    /// Sets the parent. For a holder of this node's lock.
    pub(super) fn set_parent(&self, parent: *mut Node) {
        // ORDERING: Relaxed; read under this node's lock only (O2).
        self.header.parent.store(parent, Ordering::Relaxed);
    }

    /// The slots that are not empty. Exact for a holder of the lock; for others R5 applies.
    #[inline(always)]
    pub(super) fn occupied(&self) -> u64 {
        // ORDERING: Acquire, partner `occupy` (O4): a thread that misses a slot here sees it empty.
        self.header.occupied.load(Ordering::Acquire)
    }

    /// Stores which slots are not empty: before one is filled, and after one was emptied (R5). For a holder of the
    /// lock.
    #[inline(always)]
    pub(super) fn occupy(&self, slots: u64) {
        // ORDERING: Release, partner `occupied` (O4).
        self.header.occupied.store(slots, Ordering::Release);
        stir();
    }

    /// The slots that have a tag. Exact for a holder of the lock; for others R5 applies.
    #[inline(always)]
    pub(super) fn tags(&self, tag: usize) -> u64 {
        // ORDERING: Acquire, partner `set_tags` (O3): a thread that sees a bit here and then reads the words above sees
        // them set.
        self.header.tags[tag].load(Ordering::Acquire)
    }

    /// Stores the slots that have a tag. For a holder of the lock.
    #[inline(always)]
    pub(super) fn set_tags(&self, tag: usize, slots: u64) {
        // ORDERING: Release, partner `tags` (O3). The words above were set before (R5).
        self.header.tags[tag].store(slots, Ordering::Release);
        stir();
    }

    /// Removes `slots` from every tag word; returns, as bits, the tags whose words became 0. For a holder of the lock.
    #[inline(always)]
    pub(super) fn untag_all(&self, slots: u64) -> u32 {
        let mut emptied = 0;
        for tag in 0..TAGS {
            emptied |= u32::from(self.untag(tag, slots)) << tag;
        }
        emptied
    }

    /// Removes `slots` from one tag word; returns whether it became 0. For a holder of the lock.
    #[inline(always)]
    pub(super) fn untag(&self, tag: usize, slots: u64) -> bool {
        let before = self.tags(tag);
        if before & slots == 0 {
            return false;
        }
        self.set_tags(tag, before & !slots);
        before & !slots == 0
    }

    /// The content of a slot.
    #[inline(always)]
    pub(super) fn load(&self, slot: usize) -> u64 {
        // ORDERING: Acquire, partner `store` (O1): a thread that finds a child or a value sees its content.
        self.slots[slot].load(Ordering::Acquire)
    }

    /// Changes the content of an occupied slot. For a holder of the lock.
    #[inline(always)]
    pub(super) fn store(&self, slot: usize, content: u64) {
        // ORDERING: Release, partner `load` (O1).
        self.slots[slot].store(content, Ordering::Release);
        stir();
    }

    /// Fills an empty slot. For a holder of the lock.
    #[inline(always)]
    pub(super) fn fill(&self, slot: usize, content: u64) {
        debug_assert!(content != 0 && self.load(slot) == 0);
        self.occupy(self.occupied() | 1 << slot);
        self.store(slot, content);
    }

    /// Empties a slot. For a holder of the lock.
    #[inline(always)]
    pub(super) fn empty(&self, slot: usize) {
        self.store(slot, 0);
        self.occupy(self.occupied() & !(1 << slot));
    }

    /// The value in a slot of a leaf.
    #[inline(always)]
    pub(super) fn value(&self, slot: usize) -> Option<NonZeroU64> {
        NonZeroU64::new(self.load(slot))
    }

    /// Prefetches lines of the child in a slot, if there is one.
    #[inline(always)]
    pub(super) fn prefetch(&self, slot: usize, lines: Lines) {
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let child = ptr::with_exposed_provenance::<i8>(self.load(slot) as usize);
            let count = if lines == Lines::Header { 1 } else { NODE_BYTES / pool::LINE };
            for line in 0..count {
                // SAFETY: a hint; it reads nothing and may be given any address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(child.wrapping_add(line * pool::LINE)) };
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(loom))))]
        let _ = (slot, lines);
    }

    /// The child in a slot of an inner node.
    ///
    /// # Safety
    /// This node is not a leaf, and children found are not freed while `'a` lasts (R6).
    #[inline(always)]
    pub(super) unsafe fn child<'a>(&self, slot: usize) -> Option<&'a Node> {
        let address = self.load(slot);
        // SAFETY: an inner node's slot holds addresses of nodes; the caller's promise.
        (address != 0).then(|| unsafe { Node::at(address) })
    }
}

/// The lines of a node to prefetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lines {
    /// For a thread that locks the node: the code after a lock waits for it, so the processor cannot run ahead.
    Header,
    /// For a thread that reads the slots.
    All,
}

/// The point at which tests delay threads between steps.
#[cfg(not(all(test, not(loom))))]
#[inline(always)]
fn stir() {}

/// A lock in one word: `FREE`, `LOCKED`, or, in a node that was unlinked, `DEAD` for ever.
#[derive(Debug)]
pub(super) struct Word(AtomicU32);

impl Default for Word {
    fn default() -> Self {
        Self(AtomicU32::new(FREE))
    }
}

impl Word {
    /// Takes the lock, waiting if necessary; false if it is dead.
    #[inline(always)]
    #[track_caller]
    pub(super) fn lock(&self, class: &'static LockClass, patience: Patience) -> bool {
        record::lock();
        stir();
        // ORDERING: Acquire, partners `unlock` and `unlock_dead` (O2).
        match self.0.compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => true,
            Err(DEAD) => false,
            Err(_) => self.lock_after_wait(class, patience),
        }
    }

    /// Releases the lock.
    #[inline(always)]
    pub(super) fn unlock(&self) {
        // ORDERING: Release, partner `lock` (O2).
        self.0.store(FREE, Ordering::Release);
        stir();
    }

    /// Continues `lock`, after the lock was found held.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn lock_after_wait(&self, class: &'static LockClass, patience: Patience) -> bool {
        let mut dead = false;
        wait(class, patience, || {
            // ORDERING: Relaxed; a waiter reads without taking the line exclusively.
            if self.0.load(Ordering::Relaxed) == LOCKED {
                return false;
            }
            // ORDERING: Acquire, partners `unlock` and `unlock_dead` (O2).
            match self.0.compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => true,
                Err(found) => {
                    dead = found == DEAD;
                    dead
                }
            }
        });
        !dead
    }
}

/// The positions of the bits of `word`, from the lowest.
#[inline(always)]
pub(super) fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(lowest)
    })
}

/// The slot of `index` in a node with `shift`.
#[inline(always)]
pub(super) fn slot_of(index: u64, shift: u32) -> usize {
    (index >> shift) as usize & (SLOTS - 1)
}
