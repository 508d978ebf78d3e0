//! Memory of the runtime itself: an arena of its own, never the program's heap.
//!
//! # Boundary
//! The crate's global allocator. Asks the kernel for memory in large pieces and gives nothing back but
//! large blocks.
//!
//! # Concurrency
//! One spin lock; in a simulated run only one thread ever takes it, in a recorded run many do.
//!
//! # Why
//! Were the runtime to allocate from the program's heap, the addresses of the program's own objects, and
//! with them which of them share a line, would depend on the runtime's mode. Weakness: rounding to
//! powers of two wastes up to half of a block; the runtime's tables are large and few.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that the kernel is asked for at once.
const CHUNK: usize = 4 << 20;
/// The largest class, as a power of two; larger blocks are mapped one by one.
const LARGEST: u32 = 19;
/// The smallest class, as a power of two.
const SMALLEST: u32 = 4;
const PAGE: usize = 4096;

struct Free {
    /// Heads of the lists of free blocks, by class. A free block's first word is the next one.
    lists: [usize; (LARGEST - SMALLEST + 1) as usize],
    next: usize,
    end: usize,
}

/// The arena. M1: `free` is touched only between [`Arena::lock`] and [`Arena::unlock`].
pub(crate) struct Arena {
    locked: AtomicBool,
    free: UnsafeCell<Free>,
}

// SAFETY: `free` is guarded by `locked` (M1).
unsafe impl Sync for Arena {}

impl Arena {
    pub(crate) const fn new() -> Self {
        Self {
            locked: AtomicBool::new(false),
            free: UnsafeCell::new(Free {
                lists: [0; (LARGEST - SMALLEST + 1) as usize],
                next: 0,
                end: 0,
            }),
        }
    }

    fn lock(&self) {
        // ORDERING: Acquire, partner `unlock`: a thread with the lock sees the lists of the thread before.
        while self.locked.swap(true, Ordering::Acquire) {
            std::hint::spin_loop();
        }
    }

    fn unlock(&self) {
        // ORDERING: Release, partner `lock`.
        self.locked.store(false, Ordering::Release);
    }
}

/// Asks the kernel for zeroed memory; null when there is none.
pub(crate) fn map(bytes: usize) -> *mut u8 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new anonymous mapping touches no memory that exists.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED { std::ptr::null_mut() } else { start.cast() }
}

/// Unmaps memory that [`map`] returned.
///
/// # Safety
/// `start` and `bytes` are those of a call of `map`, and no code uses the memory any more.
pub(crate) unsafe fn unmap(start: *mut u8, bytes: usize) {
    // SAFETY: by this function's own contract.
    unsafe { libc::munmap(start.cast(), bytes) };
}

fn class(layout: Layout) -> Option<u32> {
    let bytes = layout.size().max(layout.align()).max(1 << SMALLEST).next_power_of_two();
    let power = bytes.trailing_zeros();
    (power <= LARGEST && layout.align() <= PAGE).then_some(power)
}

fn whole_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE)
}

// SAFETY: a block of a class is aligned to the class's size or to a page, whichever is less, and a mapped one
// to a page: at least its layout's alignment, since more than a page's is refused. It is on no list while it
// is given out, and lists are touched with the lock held (M1).
unsafe impl GlobalAlloc for Arena {
    // SAFETY: the trait's contract is ours: the layout has a size.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(power) = class(layout) else {
            if layout.align() > PAGE {
                return std::ptr::null_mut();
            }
            return map(whole_pages(layout.size()));
        };
        let index = (power - SMALLEST) as usize;
        let bytes = 1_usize << power;
        self.lock();
        // SAFETY: we hold the lock (M1).
        let free = unsafe { &mut *self.free.get() };
        let head = free.lists[index];
        let block = if head != 0 {
            // SAFETY: a free block's first word is the next free block (the type's own rule).
            free.lists[index] = unsafe { *(head as *const usize) };
            head
        } else {
            let mut start = free.next.next_multiple_of(bytes.min(PAGE));
            if start + bytes > free.end {
                start = map(CHUNK) as usize;
                free.end = if start == 0 { 0 } else { start + CHUNK };
            }
            free.next = if start == 0 { 0 } else { start + bytes };
            start
        };
        self.unlock();
        block as *mut u8
    }

    // SAFETY: as `alloc`.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the same contract as ours.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() && class(layout).is_some() {
            // SAFETY: the block has at least that many bytes. A mapped one is zero already.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    // SAFETY: the trait's contract is ours: `block` is ours, of this layout, and no code uses it any more.
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(power) = class(layout) else {
            // SAFETY: it was mapped with this size, and the caller is done with it.
            unsafe { unmap(block, whole_pages(layout.size())) };
            return;
        };
        let index = (power - SMALLEST) as usize;
        self.lock();
        // SAFETY: we hold the lock (M1); the block is at least a word long and no longer in use.
        unsafe {
            let free = &mut *self.free.get();
            *block.cast::<usize>() = free.lists[index];
            free.lists[index] = block as usize;
        }
        self.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_apart_and_used_again() {
        let arena = Arena::new();
        let mut seen = Vec::new();
        for power in 0..22 {
            for align in [1_usize, 8, 64, 4096] {
                let layout = Layout::from_size_align(1 << power, align).unwrap();
                // SAFETY: the layout has a size; the block is written within it.
                let block = unsafe { arena.alloc(layout) };
                assert_eq!(block as usize % align, 0, "size {} align {align}", 1 << power);
                // SAFETY: the block is ours and has this size.
                unsafe { block.write_bytes(power as u8, layout.size()) };
                seen.push((block, layout, power as u8));
            }
        }
        for (block, layout, byte) in &seen {
            // SAFETY: it is ours until it is given back below, and was written in full.
            let bytes = unsafe { std::slice::from_raw_parts(*block, layout.size()) };
            assert!(bytes.iter().all(|found| found == byte));
        }
        let small = Layout::from_size_align(48, 8).unwrap();
        // SAFETY: given back with the layout it was asked with, then not used.
        unsafe {
            let first = arena.alloc(small);
            arena.dealloc(first, small);
            let zeroed = arena.alloc_zeroed(small);
            assert_eq!(first, zeroed);
            assert!((0..48).all(|offset| *zeroed.add(offset) == 0));
        }
    }
}
