//! Memory in whole cache lines, reused while it is still cached.
//!
//! ```text
//!   thread ──▶ shard: active magazine ⇄ spare magazine ──▶ depot: full magazines ──▶ chunk
//!              (one bit lock each)                         (one bit lock per size)
//! ```
//!
//! # Boundary
//! Hands out raw memory in sizes of 64 to 320 bytes, and of 576 for the radix tree's nodes, aligned to 64. Other sizes
//! and stricter alignments are passed to the global allocator. Does not know the content, and does not wait for
//! readers: a caller frees memory only when no thread uses it any more ([`uvfs_concurrent::epoch`]).
//!
//! # Concurrency
//! P1. A slot is in exactly one place: with its user, in one magazine, or not yet carved.
//! P2. A magazine is touched only under the bit lock of its shard or depot.
//! P3. Lock order: a shard, then the depot of its size. Both are innermost and held for a few instructions, or one
//!     chunk allocation; no other code runs under them. They have no class.
//! P4. A chunk is freed only by a thread that has taken all its slots out of the magazines: no other thread can have
//!     one (P1). The newest chunk is freed only if no slot was carved from it meanwhile.
//! P5. Between a thread's listing of the chunks and its taking of their slots, another thread may free a chunk. A new
//!     chunk of another layout may get its address. So a chunk is freed only if it is still listed with its layout.
//!
//! O1. `unlock` (Release) → `lock` (Acquire): the next holder sees the links of the magazines.
//! Progress: a thread whose shard is held by another spins briefly, then yields.
//! Checked by `model_two_threads_in_one_lock` and the tests below.

#[cfg(not(loom))]
use crate::huge;
use std::alloc::{Layout, handle_alloc_error};
#[cfg(not(loom))]
use std::cell::UnsafeCell;
#[cfg(not(loom))]
use std::ptr;
use std::ptr::NonNull;
#[cfg(any(test, not(loom)))]
use uvfs_concurrent::primitive::atomic::{AtomicBool, Ordering};

/// Every slot is a multiple of this, and aligned to it.
pub const LINE: usize = 64;
#[cfg(not(loom))]
const CLASSES: usize = 6;
/// The number of lines in a slot of each class.
#[cfg(not(loom))]
const LINES: [usize; CLASSES] = [1, 2, 3, 4, 5, 9];
#[cfg(not(loom))]
const SHARDS: usize = 8;
/// Slots in a full magazine.
#[cfg(not(loom))]
const MAGAZINE: usize = 32;
/// Memory taken from the global allocator at once. The system backs it page by page on first use.
#[cfg(not(loom))]
const CHUNK_BYTES: usize = 256 << 10;
/// A size that has this many bytes takes further ones in whole huge pages.
#[cfg(not(loom))]
const HUGE_FROM_BYTES: usize = 4 << 20;

/// A lock in one bit, for a few instructions.
#[cfg(any(test, not(loom)))]
#[derive(Debug)]
struct BitLock(AtomicBool);

#[cfg(any(test, not(loom)))]
impl BitLock {
    fn lock(&self) {
        let mut tries = 0u32;
        // ORDERING: Acquire, partner `unlock` (O1).
        while self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            pause(&mut tries);
        }
    }

    fn unlock(&self) {
        // ORDERING: Release, partner `lock` (O1). Relaxed would free the lock before the links.
        self.0.store(false, Ordering::Release);
    }
}

/// Waits for the holder of a bit lock: spins a few rounds, then yields to other threads.
#[cfg(any(test, not(loom)))]
fn pause(tries: &mut u32) {
    *tries += 1;
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    if *tries < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// A small number that differs between threads, as long as there are few; chooses a shard.
#[cfg(not(loom))]
#[inline]
pub(crate) fn lane() -> usize {
    use std::cell::Cell;
    use uvfs_concurrent::primitive::atomic::AtomicUsize;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static LANE: Cell<usize> = const { Cell::new(usize::MAX) });
    let lane = LANE.get();
    if lane != usize::MAX {
        return lane;
    }
    // ORDERING: Relaxed; a number, nothing is reached through it.
    let lane = NEXT.fetch_add(1, Ordering::Relaxed) & 0xffff;
    LANE.set(lane);
    lane
}

/// All model threads share a lane.
#[cfg(loom)]
pub(crate) fn lane() -> usize {
    0
}

/// The pool of this process.
pub fn shared() -> &'static Pool {
    static POOL: Pool = Pool::new();
    &POOL
}

/// The content of a free slot.
#[cfg(not(loom))]
struct Free {
    /// Next slot of this magazine.
    next: *mut Free,
    /// In the first slot of a magazine in the depot: the first slot of the next magazine.
    below: *mut Free,
    /// In the first slot of a magazine in the depot: slots in this one.
    count: usize,
}

/// A stack of free slots.
#[cfg(not(loom))]
#[derive(Debug, Clone, Copy)]
struct Magazine {
    top: *mut Free,
    count: usize,
}

#[cfg(not(loom))]
impl Magazine {
    const EMPTY: Self = Self { top: ptr::null_mut(), count: 0 };

    fn pop(&mut self) -> Option<NonNull<u8>> {
        let slot = NonNull::new(self.top)?;
        // SAFETY: a slot in a magazine is free, and the holder of the lock may read it (P1, P2).
        self.top = unsafe { slot.as_ref().next };
        self.count -= 1;
        Some(slot.cast())
    }

    /// # Safety
    /// `slot` is free memory of this size, aligned to 64, and in no other place (P1).
    unsafe fn push(&mut self, slot: NonNull<u8>) {
        let slot = slot.cast::<Free>();
        // SAFETY: the caller's promise; `Free` fits into the smallest slot.
        unsafe { slot.write(Free { next: self.top, below: ptr::null_mut(), count: 0 }) };
        self.top = slot.as_ptr();
        self.count += 1;
    }
}

/// The magazines from which some threads take first.
#[cfg(not(loom))]
#[derive(Debug)]
struct Shard {
    lock: BitLock,
    /// Active and spare; the spare is full or empty.
    magazines: UnsafeCell<[Magazine; 2]>,
}

/// Full magazines, and the memory that is not carved yet.
#[cfg(not(loom))]
#[derive(Debug)]
struct Depot {
    lock: BitLock,
    store: UnsafeCell<Store>,
}

#[cfg(not(loom))]
#[derive(Debug)]
struct Store {
    magazines: *mut Free,
    uncarved: *mut u8,
    left_bytes: usize,
    /// The newest chunk; each chunk begins with a pointer to the one before it.
    chunks: *mut ChunkHeader,
    chunk_bytes: usize,
}

#[cfg(not(loom))]
impl Store {
    fn take(&mut self, size: usize) -> Magazine {
        if let Some(top) = NonNull::new(self.magazines) {
            // SAFETY: the first slot of a magazine in the depot was written by `give` (P1, P2).
            let first = unsafe { top.as_ref() };
            self.magazines = first.below;
            return Magazine { top: top.as_ptr(), count: first.count };
        }
        if self.left_bytes < size {
            self.add_chunk();
        }
        let mut magazine = Magazine::EMPTY;
        let count = MAGAZINE.min(self.left_bytes / size);
        // From the end, so that slots are handed out in rising order. Objects made one after the other are mostly read
        // in that order, and the processor prefetches.
        for nth in (0..count).rev() {
            // SAFETY: `uncarved` has `left_bytes` left, never handed out before (P1), and both it and `size` are
            // multiples of a line.
            unsafe { magazine.push(NonNull::new_unchecked(self.uncarved.add(nth * size))) };
        }
        // SAFETY: `count` slots fit into the remaining bytes.
        self.uncarved = unsafe { self.uncarved.add(count * size) };
        self.left_bytes -= count * size;
        magazine
    }

    fn give(&mut self, magazine: Magazine) {
        // SAFETY: a full magazine has a first slot, which is free and only this thread has (P1, P2).
        unsafe {
            (*magazine.top).below = self.magazines;
            (*magazine.top).count = magazine.count;
        }
        self.magazines = magazine.top;
    }

    #[cold]
    fn add_chunk(&mut self) {
        let layout = if self.chunk_bytes < HUGE_FROM_BYTES { CHUNK } else { HUGE_CHUNK };
        let chunk = allocate_global(layout).as_ptr();
        // SAFETY: a fresh chunk, aligned to a line and longer than one; its first line is the
        // header.
        unsafe {
            huge::advise(chunk, layout.size());
            chunk.cast::<ChunkHeader>().write(ChunkHeader { before: self.chunks, layout });
            self.uncarved = chunk.add(LINE);
        }
        self.chunks = chunk.cast();
        self.left_bytes = layout.size() - LINE;
        self.chunk_bytes += layout.size();
    }
}

/// The first line of a chunk.
#[cfg(not(loom))]
struct ChunkHeader {
    before: *mut ChunkHeader,
    layout: Layout,
}

#[cfg(not(loom))]
const CHUNK: Layout = match Layout::from_size_align(CHUNK_BYTES, LINE) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};
#[cfg(not(loom))]
const HUGE_CHUNK: Layout = match Layout::from_size_align(huge::HUGE_BYTES, huge::HUGE_BYTES) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

#[cfg(not(loom))]
#[derive(Debug)]
struct SizeClass {
    shards: [Padded<Shard>; SHARDS],
    depot: Padded<Depot>,
}

#[cfg(not(loom))]
use uvfs_concurrent::padded::Padded;
#[cfg(not(loom))]
use uvfs_concurrent::primitive::atomic::AtomicUsize;

/// Memory in slots of 64, 128, 192, 256, 320 and 576 bytes. The protocol is in the module's documentation.
///
/// The thread that ends an epoch frees objects; mostly it is not the one that allocates next. Magazines (Bonwick and
/// Adams 2001) pass through the depot. At most two of them stay in a shard, so no shard hoards slots that another
/// needs. Linux lost 10 to 20 % of create and unlink when deferred frees no longer returned memory that was still
/// cached. The line alignment lets a lookup touch one line of an object. A burst of one size stays until a caller
/// returns it ([`Pool::give_back`]). Weakness: whole chunks are returned, so one slot in use keeps a quarter of a
/// megabyte.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct Pool {
    classes: [SizeClass; CLASSES],
    large_bytes: AtomicUsize,
}

// SAFETY: the raw pointers lead to free memory, which is touched only under the bit locks (P2).
#[cfg(not(loom))]
unsafe impl Send for Pool {}
// SAFETY: the raw pointers lead to free memory, which is touched only under the bit locks (P2).
#[cfg(not(loom))]
unsafe impl Sync for Pool {}

#[cfg(not(loom))]
impl Pool {
    /// An empty pool; takes its first chunk of a size at the first allocation of that size.
    pub const fn new() -> Self {
        Self {
            classes: [const {
                SizeClass {
                    shards: [const {
                        Padded(Shard {
                            lock: BitLock(AtomicBool::new(false)),
                            magazines: UnsafeCell::new([Magazine::EMPTY; 2]),
                        })
                    }; SHARDS],
                    depot: Padded(Depot {
                        lock: BitLock(AtomicBool::new(false)),
                        store: UnsafeCell::new(Store {
                            magazines: ptr::null_mut(),
                            uncarved: ptr::null_mut(),
                            left_bytes: 0,
                            chunks: ptr::null_mut(),
                            chunk_bytes: 0,
                        }),
                    }),
                }
            }; CLASSES],
            large_bytes: AtomicUsize::new(0),
        }
    }

    /// Memory for `layout`, aligned at least to 64 if it has a slot's size. Not initialised. Aborts, as `Box` does,
    /// when there is none.
    pub fn allocate(&self, layout: Layout) -> NonNull<u8> {
        let Some(class) = class_of(layout) else {
            // ORDERING: Relaxed; a statistic, nothing is reached through it.
            self.large_bytes.fetch_add(layout.size(), Ordering::Relaxed);
            return allocate_global(layout);
        };
        let (sizes, size) = (&self.classes[class], LINES[class] * LINE);
        let shard = &sizes.shards[lane() % SHARDS];
        shard.lock.lock();
        // SAFETY: under the shard's lock (P2).
        let [active, spare] = unsafe { &mut *shard.magazines.get() };
        let slot = match active.pop() {
            Some(slot) => slot,
            None => {
                std::mem::swap(active, spare);
                if active.count == 0 {
                    sizes.depot.lock.lock();
                    // SAFETY: under the depot's lock (P2).
                    *active = unsafe { (*sizes.depot.store.get()).take(size) };
                    sizes.depot.lock.unlock();
                }
                active.pop().expect("a magazine from the depot is not empty")
            }
        };
        shard.lock.unlock();
        slot
    }

    /// Frees memory.
    ///
    /// # Safety
    /// `slot` came from `allocate` of this pool with the same `layout`, and no thread uses it any more.
    pub unsafe fn free(&self, slot: NonNull<u8>, layout: Layout) {
        let Some(class) = class_of(layout) else {
            // ORDERING: Relaxed; a statistic, nothing is reached through it.
            self.large_bytes.fetch_sub(layout.size(), Ordering::Relaxed);
            // SAFETY: the caller's promise; such a layout came from the global allocator.
            unsafe { std::alloc::dealloc(slot.as_ptr(), layout) };
            return;
        };
        let sizes = &self.classes[class];
        let shard = &sizes.shards[lane() % SHARDS];
        shard.lock.lock();
        // SAFETY: under the shard's lock (P2).
        let [active, spare] = unsafe { &mut *shard.magazines.get() };
        if active.count == MAGAZINE {
            if spare.count > 0 {
                sizes.depot.lock.lock();
                // SAFETY: under the depot's lock (P2); the spare is full.
                unsafe { (*sizes.depot.store.get()).give(*spare) };
                sizes.depot.lock.unlock();
            }
            *spare = std::mem::replace(active, Magazine::EMPTY);
        }
        // SAFETY: the caller's promise, so the slot is of this size and in no other place.
        unsafe { active.push(slot) };
        shard.lock.unlock();
    }

    /// Returns the chunks without a slot in use to the allocator. Returns their bytes. Takes time in proportion to the
    /// free slots; threads that allocate meanwhile may take new chunks.
    pub fn give_back(&self) -> usize {
        self.classes.iter().zip(LINES).map(|(class, lines)| class.give_back(lines * LINE)).sum()
    }

    /// The bytes that the pool has taken from the global allocator and not returned: whole chunks, in use or not, and
    /// large layouts.
    pub fn held_bytes(&self) -> usize {
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        let mut bytes = self.large_bytes.load(Ordering::Relaxed);
        for class in &self.classes {
            class.depot.lock.lock();
            // SAFETY: under the depot's lock (P2).
            bytes += unsafe { (*class.depot.store.get()).chunk_bytes };
            class.depot.lock.unlock();
        }
        bytes
    }
}

/// A chunk at the moment when the chunks were listed.
#[cfg(not(loom))]
#[derive(Clone, Copy)]
struct Chunk {
    header: *mut ChunkHeader,
    layout: Layout,
    /// The bytes that were not carved yet, in the newest chunk.
    newest: Option<usize>,
}

#[cfg(not(loom))]
impl SizeClass {
    /// Frees the chunks without a slot of `size` bytes in use. Returns their bytes.
    fn give_back(&self, size: usize) -> usize {
        let chunks = self.chunks();
        if chunks.is_empty() {
            return 0;
        }
        let mut free = self.take_free();
        free.sort_unstable();
        let (mut kept, mut at, mut freed) = (Vec::with_capacity(free.len()), 0, 0);
        for chunk in chunks {
            let (start, bytes) = (chunk.header.addr(), chunk.layout.size());
            let below = at + free[at..].partition_point(|slot| slot.addr() < start);
            let end = below + free[below..].partition_point(|slot| slot.addr() < start + bytes);
            kept.extend_from_slice(&free[at..below]);
            at = end;
            let carved = (bytes - LINE - chunk.newest.unwrap_or(0)) / size;
            if end - below < carved || !self.forget_chunk(chunk) {
                kept.extend_from_slice(&free[below..end]);
                continue;
            }
            // SAFETY: all its slots were in `free` and are in no other place (P4), and no list leads to it.
            unsafe { std::alloc::dealloc(chunk.header.cast(), chunk.layout) };
            freed += bytes;
        }
        kept.extend_from_slice(&free[at..]);
        self.put_free(&kept);
        freed
    }

    /// All chunks, by their addresses.
    fn chunks(&self) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        self.depot.lock.lock();
        // SAFETY: under the depot's lock (P2); each chunk begins with its header.
        unsafe {
            let store = &*self.depot.store.get();
            let (mut header, mut newest) = (store.chunks, Some(store.left_bytes));
            while !header.is_null() {
                // The remainder of an older one is less than a slot.
                chunks.push(Chunk { header, layout: (*header).layout, newest: newest.take() });
                header = (*header).before;
            }
        }
        self.depot.lock.unlock();
        chunks.sort_unstable_by_key(|chunk| chunk.header.addr());
        chunks
    }

    /// Takes every free slot out of the magazines.
    fn take_free(&self) -> Vec<*mut Free> {
        let mut magazines = Vec::with_capacity(2 * SHARDS);
        for shard in &self.shards {
            shard.lock.lock();
            // SAFETY: under the shard's lock (P2).
            let taken =
                std::mem::replace(unsafe { &mut *shard.magazines.get() }, [Magazine::EMPTY; 2]);
            shard.lock.unlock();
            magazines.extend(taken);
        }
        self.depot.lock.lock();
        // SAFETY: under the depot's lock (P2).
        let mut full =
            unsafe { std::mem::replace(&mut (*self.depot.store.get()).magazines, ptr::null_mut()) };
        self.depot.lock.unlock();
        let mut free = Vec::new();
        while !full.is_null() {
            // SAFETY: the first slot of a magazine that was in the depot, which only this thread has now (P1).
            let first = unsafe { &*full };
            magazines.push(Magazine { top: full, count: first.count });
            full = first.below;
        }
        for magazine in &mut magazines {
            free.extend(std::iter::from_fn(|| magazine.pop()).map(|slot| slot.cast().as_ptr()));
        }
        free
    }

    /// Puts free slots, in rising order, into the depot.
    fn put_free(&self, free: &[*mut Free]) {
        for slots in free.chunks(MAGAZINE).rev() {
            let mut magazine = Magazine::EMPTY;
            for slot in slots.iter().rev() {
                // SAFETY: taken out by `take_free`, so in no other place (P1), and never null.
                unsafe { magazine.push(NonNull::new_unchecked(slot.cast())) };
            }
            self.depot.lock.lock();
            // SAFETY: under the depot's lock (P2); the magazine has at least one slot.
            unsafe { (*self.depot.store.get()).give(magazine) };
            self.depot.lock.unlock();
        }
    }

    /// Removes `gone` from the list of chunks. False if it is another chunk now, or if slots were carved from it since
    /// it was listed (P5).
    fn forget_chunk(&self, gone: Chunk) -> bool {
        self.depot.lock.lock();
        // SAFETY: under the depot's lock (P2). Each chunk of the list begins with its header; `gone` is read only
        // if the list leads to it.
        let forgotten = unsafe {
            let store = &mut *self.depot.store.get();
            let newest = (store.chunks == gone.header).then_some(store.left_bytes);
            let mut link = &raw mut store.chunks;
            while !(*link).is_null() && *link != gone.header {
                link = &raw mut (**link).before;
            }
            let is_another = (*link).is_null() || (**link).layout != gone.layout;
            if is_another || (gone.newest.is_some() && newest != gone.newest) {
                false
            } else {
                *link = (*gone.header).before;
                store.chunk_bytes -= gone.layout.size();
                if newest.is_some() {
                    (store.uncarved, store.left_bytes) = (ptr::null_mut(), 0);
                }
                true
            }
        };
        self.depot.lock.unlock();
        forgotten
    }
}

#[cfg(not(loom))]
impl Drop for Pool {
    fn drop(&mut self) {
        for class in &mut self.classes {
            let mut chunk = class.depot.0.store.get_mut().chunks;
            while !chunk.is_null() {
                // SAFETY: each chunk begins with a pointer to the one before it, and the pool's users have freed or
                // forgotten their slots.
                unsafe {
                    let ChunkHeader { before, layout } = chunk.read();
                    std::alloc::dealloc(chunk.cast(), layout);
                    chunk = before;
                }
            }
        }
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

/// The size class of `layout`; `None` if the global allocator serves it.
#[cfg(not(loom))]
#[inline]
fn class_of(layout: Layout) -> Option<usize> {
    let class = match layout.size().max(1).div_ceil(LINE) {
        lines @ 1..=5 => lines - 1,
        9 => 5,
        _ => return None,
    };
    (layout.align() <= LINE).then_some(class)
}

/// Memory from the global allocator; aborts when there is none.
fn allocate_global(layout: Layout) -> NonNull<u8> {
    // SAFETY: no caller requests an empty layout: small ones are slots, and models request objects.
    NonNull::new(unsafe { std::alloc::alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Under the model checker every slot is an allocation of its own.
#[cfg(loom)]
#[derive(Debug)]
pub struct Pool(());

#[cfg(loom)]
impl Pool {
    /// The pool.
    pub const fn new() -> Self {
        Self(())
    }
    /// Memory for `layout`.
    pub fn allocate(&self, layout: Layout) -> NonNull<u8> {
        allocate_global(layout)
    }
    /// Has no chunks to return.
    pub fn give_back(&self) -> usize {
        0
    }
    /// Frees memory.
    ///
    /// # Safety
    /// `slot` came from `allocate` with the same `layout`, and no thread uses it any more.
    pub unsafe fn free(&self, slot: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { std::alloc::dealloc(slot.as_ptr(), layout) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).unwrap()
    }

    #[test]
    fn slots_are_aligned_and_do_not_overlap() {
        let pool = Pool::new();
        for size in [1, 64, 65, 128, 192, 250, 320, 513, 576] {
            let slots: Vec<_> = (0..3000).map(|_| pool.allocate(layout(size))).collect();
            let mut starts: Vec<_> = slots.iter().map(|slot| slot.as_ptr().addr()).collect();
            starts.sort_unstable();
            assert!(starts.iter().all(|start| start % LINE == 0));
            assert!(starts.windows(2).all(|two| two[1] - two[0] >= size), "{size}");
            for slot in slots {
                // SAFETY: allocated above with this layout, freed once; only this test writes to it.
                unsafe {
                    slot.write_bytes(0xee, size);
                    pool.free(slot, layout(size));
                }
            }
        }
    }

    #[test]
    fn freed_slots_are_used_again_and_held_bytes_stay() {
        let pool = Pool::new();
        assert_eq!(pool.held_bytes(), 0);
        let fill = || -> Vec<_> { (0..10_000).map(|_| pool.allocate(layout(192))).collect() };
        let first = fill();
        let held = pool.held_bytes();
        let needed = 10_000 * 192;
        assert!((needed..needed + 2 * CHUNK_BYTES).contains(&held), "{held}");
        let before: HashSet<_> = first.iter().copied().collect();
        // SAFETY: allocated above with this layout, each freed once.
        first.into_iter().for_each(|slot| unsafe { pool.free(slot, layout(192)) });
        let second = fill();
        assert!(second.iter().all(|slot| before.contains(slot)), "fresh memory despite free slots");
        assert_eq!(pool.held_bytes(), held);
        // SAFETY: allocated by `fill` with this layout, each freed once.
        second.into_iter().for_each(|slot| unsafe { pool.free(slot, layout(192)) });
    }

    /// Bug: after a cache was emptied its chunks stayed with the process until its end: 228 MB of a budget of 16.
    #[test]
    fn chunks_without_a_slot_in_use_go_back() {
        let pool = Pool::new();
        let fill = |size| -> Vec<_> { (0..20_000).map(|_| pool.allocate(layout(size))).collect() };
        for size in [64, 192, 576] {
            let mut slots = fill(size);
            let (full, keep) = (pool.held_bytes(), slots.swap_remove(10_000));
            assert_eq!(pool.give_back(), 0, "all are in use");
            // SAFETY: allocated above with this layout, each freed once.
            slots.into_iter().for_each(|slot| unsafe { pool.free(slot, layout(size)) });
            let freed = pool.give_back();
            assert_eq!(pool.held_bytes(), full - freed);
            let chunk = [CHUNK_BYTES, huge::HUGE_BYTES];
            assert!(
                chunk.contains(&(full - freed)),
                "the one with the slot in use: {full} {freed}"
            );
            assert_eq!(pool.give_back(), 0);
            // SAFETY: only this test has the slot since it was allocated.
            unsafe { keep.write_bytes(0xee, size) };
            let again = fill(size);
            assert!(!again.contains(&keep));
            // SAFETY: allocated with this layout, each freed once.
            again
                .into_iter()
                .chain([keep])
                .for_each(|slot| unsafe { pool.free(slot, layout(size)) });
            pool.give_back();
            assert_eq!(pool.held_bytes(), 0);
        }
    }

    /// Bug: a chunk was listed; another thread freed it, and a larger one got its address. It was freed with the size
    /// of the first, although slots behind that size were in use.
    #[test]
    fn a_chunk_that_became_another_one_stays() {
        let pool = Pool::new();
        let slot = pool.allocate(layout(64));
        let class = &pool.classes[0];
        let chunk = class.chunks()[0];
        let nowhere = ptr::without_provenance_mut(LINE);
        for stale in [
            Chunk { layout: HUGE_CHUNK, newest: None, ..chunk },
            Chunk { header: nowhere, newest: None, ..chunk },
            Chunk { newest: Some(0), ..chunk },
        ] {
            assert!(!class.forget_chunk(stale), "{:?}", stale.layout);
            assert_eq!(pool.held_bytes(), CHUNK_BYTES);
        }
        // SAFETY: allocated above with this layout, freed once.
        unsafe { pool.free(slot, layout(64)) };
        assert_eq!(pool.give_back(), CHUNK_BYTES);
    }

    /// Threads allocate and free while chunks are freed: slots in use do not change.
    #[test]
    fn what_is_in_use_stays_while_chunks_go() {
        let pool = Pool::new();
        let fill = |pool: &Pool, mark: u64| -> Vec<NonNull<u64>> {
            let slots = (0..9_000).map(|_| pool.allocate(layout(64)).cast::<u64>());
            // SAFETY: only this thread has each slot until it is freed.
            slots.inspect(|slot| unsafe { slot.write(mark) }).collect()
        };
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (pool, fill) = (&pool, &fill);
                scope.spawn(move || {
                    for round in 0..40 {
                        let mark = thread << 32 | round;
                        for slot in fill(pool, mark) {
                            // SAFETY: only this thread has the slot since it was allocated; freed once.
                            unsafe {
                                assert_eq!(slot.read(), mark, "another thread wrote here");
                                pool.free(slot.cast(), layout(64));
                            }
                        }
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| (0..60).for_each(|_| _ = pool.give_back()));
            }
        });
        pool.give_back();
        assert!(
            pool.held_bytes() <= CHUNK_BYTES,
            "all but the newest chunk: {}",
            pool.held_bytes()
        );
    }

    #[test]
    fn large_and_strict_layouts_come_from_the_allocator_and_are_counted() {
        let pool = Pool::new();
        let strict = Layout::from_size_align(64, 4096).unwrap();
        let (large, aligned) = (pool.allocate(layout(321)), pool.allocate(strict));
        let larger = pool.allocate(layout(577));
        assert_eq!(aligned.as_ptr().addr() % 4096, 0);
        assert_eq!(pool.held_bytes(), 321 + 64 + 577);
        // SAFETY: allocated above with these layouts, each freed once.
        unsafe {
            pool.free(large, layout(321));
            pool.free(larger, layout(577));
            pool.free(aligned, strict);
        }
        assert_eq!(pool.held_bytes(), 0);
    }

    /// One thread only allocates, others only free: the freed slots must return to the first, or the pool grows with
    /// every round.
    #[test]
    fn what_other_threads_free_comes_back() {
        let pool = Pool::new();
        const ROUND: usize = 2000;
        let mut held = 0;
        for round in 0..50 {
            let slots: Vec<_> = (0..ROUND)
                .map(|_| pool.allocate(layout(64)).as_ptr().expose_provenance())
                .collect();
            std::thread::scope(|scope| {
                for part in slots.chunks(ROUND / 4) {
                    let pool = &pool;
                    scope.spawn(move || {
                        for slot in part {
                            let slot = ptr::with_exposed_provenance_mut(*slot);
                            // SAFETY: allocated above with this layout, freed by this thread only.
                            unsafe { pool.free(NonNull::new_unchecked(slot), layout(64)) };
                        }
                    });
                }
            });
            if round == 0 {
                held = pool.held_bytes();
            }
        }
        // Each shard may keep two magazines.
        assert!(pool.held_bytes() <= held + CHUNK_BYTES, "{held} -> {}", pool.held_bytes());
    }

    #[test]
    fn threads_never_hold_the_same_slot() {
        let pool = Pool::new();
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let pool = &pool;
                scope.spawn(move || {
                    let mut held = Vec::new();
                    for round in 0..20_000u64 {
                        let slot = pool.allocate(layout(64)).cast::<u64>();
                        // SAFETY: only this thread has the slot until it is freed.
                        unsafe { slot.write(thread << 32 | round) };
                        held.push((slot, thread << 32 | round));
                        if held.len() > 100 || round % 3 == 0 {
                            let (slot, mark) = held.swap_remove(round as usize % held.len());
                            // SAFETY: only this thread has the slot since it was allocated above; freed once.
                            unsafe {
                                assert_eq!(slot.read(), mark, "another thread wrote here");
                                pool.free(slot.cast(), layout(64));
                            }
                        }
                    }
                });
            }
        });
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use uvfs_concurrent::primitive::model::{Model, reached};

    /// A lock and the content that it protects, like a shard.
    struct Protected {
        lock: BitLock,
        content: UnsafeCell<u32>,
    }

    // SAFETY: `content` is reached only under `lock`; loom's cell checks that claim.
    unsafe impl Sync for Protected {}

    /// O1: two threads push and pop under one bit lock. Fails with a Relaxed `unlock` or `lock`.
    #[test]
    fn model_two_threads_in_one_lock() {
        Model::new(4, &["second"]).check(|| {
            let lock = BitLock(AtomicBool::new(false));
            let shared = Arc::new(Protected { lock, content: UnsafeCell::new(0) });
            let other = shared.clone();
            let add = |shared: &Protected| {
                shared.lock.lock();
                shared.content.with_mut(|content| {
                    // SAFETY: under the lock.
                    unsafe {
                        if *content == 1 {
                            reached("second");
                        }
                        *content += 1
                    }
                });
                shared.lock.unlock();
            };
            let thread = loom::thread::spawn(move || add(&other));
            add(&shared);
            thread.join().unwrap();
            shared.content.with(|content| {
                // SAFETY: the other thread has ended.
                assert_eq!(unsafe { *content }, 2);
            });
        });
    }
}
