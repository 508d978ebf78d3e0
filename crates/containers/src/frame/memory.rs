//! The memory of an arena: address space first, memory when it is touched.
//!
//! # Boundary
//! Maps, advises and returns memory. Does not know the pages in the frames.
//!
//! # Why
//! Frames are found by number, so they lie in one range that never moves. Reserving the range costs nothing
//! (MAP_NORESERVE in mmap(2)), and memory of free frames is returned page by page (MADV_DONTNEED). Frames are touched in
//! small pages, so that exactly the touched memory is in use. A large arena can gather blocks whose frames are all used
//! into huge pages: pages of a file are read at random, and a TLB miss costs more than copying a short range. Weakness:
//! the system may refill holes that were returned later.

#[cfg(not(loom))]
pub(super) use mapped::Memory;
#[cfg(not(loom))]
pub(crate) use mapped::Reserved;
#[cfg(loom)]
pub(super) use modelled::Memory;

/// Bytes of a page, and of its frame.
pub const PAGE_BYTES: usize = if cfg!(loom) { 2 } else { 4096 };

#[cfg(not(loom))]
mod mapped {
    use super::PAGE_BYTES;
    use crate::frame::copy;
    use crate::huge;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use std::io;
    use std::ops::Range;
    use std::ptr::{self, NonNull};

    /// Arenas of at least this size gather their frames in huge pages: a hole that is refilled is then less than a
    /// hundredth.
    const HUGE_FROM_BYTES: usize = 256 << 20;

    /// A private range of zeroes; the system supplies memory when a page is touched.
    #[derive(Debug)]
    pub(crate) struct Reserved {
        start: NonNull<u8>,
        bytes: usize,
    }

    // SAFETY: plain memory; each access argues its own right to touch it.
    unsafe impl Send for Reserved {}
    // SAFETY: plain memory; each access argues its own right to touch it.
    unsafe impl Sync for Reserved {}

    impl Reserved {
        pub(crate) fn new(bytes: usize) -> io::Result<Self> {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            let bytes = bytes.max(1);
            // SAFETY: a new mapping at an address of the kernel's choice overlaps no other memory.
            let start = unsafe {
                mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)
            }?;
            let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
            // SAFETY: this object's own range; the kernel's refusal is harmless where there are no huge pages.
            let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxNoHugepage) };
            Ok(Self { start, bytes })
        }

        /// Asks for huge pages for the first `bytes` bytes, which will be used.
        pub(in crate::frame) fn expect(&self, bytes: usize) {
            // SAFETY: this object's own range.
            unsafe { huge::advise(self.start.as_ptr(), bytes.min(self.bytes)) };
        }

        pub(crate) fn start(&self) -> NonNull<u8> {
            self.start
        }

        /// Returns the memory of `bytes` bytes from `at` on to the system; they read as zeroes afterwards. False if the
        /// system refuses.
        ///
        /// # Safety
        /// No reference into the range exists, and bytes that are copied out of it meanwhile are discarded.
        ///
        /// # Panics
        /// If the range is not inside this one.
        pub(crate) unsafe fn give_back(&self, at: usize, bytes: usize) -> bool {
            assert!(at <= self.bytes && bytes <= self.bytes - at, "no such range");
            // SAFETY: inside this object's mapping, which is private and anonymous, so it becomes zeroes. The caller
            // promises that the old bytes are not needed.
            unsafe {
                let from = self.start.as_ptr().add(at).cast();
                madvise(from, bytes, Advice::LinuxDontNeed).is_ok()
            }
        }
    }

    impl Drop for Reserved {
        fn drop(&mut self) {
            // SAFETY: mapped by `new`, and every user of the range borrows from `self`.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        }
    }

    /// The bytes of all frames.
    #[derive(Debug)]
    pub(in crate::frame) struct Memory(Reserved);

    impl Memory {
        pub(in crate::frame) fn new(frames: u32) -> io::Result<Self> {
            let bytes = (frames as usize)
                .checked_mul(PAGE_BYTES)
                .filter(|&bytes| isize::try_from(bytes).is_ok())
                .ok_or(io::ErrorKind::OutOfMemory)?;
            Ok(Self(Reserved::new(bytes)?))
        }

        /// Whether so many frames are worth huge pages.
        pub(in crate::frame) fn are_many(frames: usize) -> bool {
            frames.saturating_mul(PAGE_BYTES) >= HUGE_FROM_BYTES
        }

        /// The frames that can share huge page number `block`, if there are so many.
        pub(in crate::frame) fn block(&self, block: u32) -> Option<Range<u32>> {
            let lead = self.0.start.as_ptr().align_offset(huge::HUGE_BYTES);
            let from = lead.checked_add((block as usize).checked_mul(huge::HUGE_BYTES)?)?;
            let to = from.checked_add(huge::HUGE_BYTES).filter(|&to| to <= self.0.bytes)?;
            Some((from / PAGE_BYTES) as u32..(to / PAGE_BYTES) as u32)
        }

        /// Moves the frames of huge page number `block`, which may be in use, into it. False if the system does not do that.
        pub(in crate::frame) fn gather(&self, block: u32) -> bool {
            self.block(block).is_none_or(|frames| {
                let at = frames.start as usize * PAGE_BYTES;
                // SAFETY: inside the mapping, by `block`; the contents stay.
                unsafe { huge::gather(self.0.start.as_ptr().add(at)) }
            })
        }

        /// The address of `bytes` bytes of `frame` from `offset` on.
        ///
        /// # Panics
        /// If the range is not inside the frame, or the frame not inside the arena.
        #[inline]
        fn range(&self, frame: u32, offset: usize, bytes: usize) -> *mut u8 {
            let inside = offset <= PAGE_BYTES && bytes <= PAGE_BYTES - offset;
            assert!(inside, "{bytes} bytes from {offset} on are not in a page");
            let at = frame as usize * PAGE_BYTES + offset;
            assert!(at + bytes <= self.0.bytes, "no such frame");
            // SAFETY: inside the mapping, by the assertion above.
            unsafe { self.0.start.as_ptr().add(at) }
        }

        /// Copies out of `frame`, to which other threads may be writing.
        #[inline]
        pub(in crate::frame) fn load(&self, frame: u32, offset: usize, to: &mut [u8]) {
            let from = self.range(frame, offset, to.len());
            // SAFETY: checked by `range`; mapped as long as `self` lives. `to` is outside the mapping, into which no
            // reference exists. All other accesses come through this file.
            unsafe { copy::load(from, to) };
        }

        /// Copies into `frame`, from which other threads may be reading. One writer at a time (F5).
        #[inline]
        pub(in crate::frame) fn store(&self, frame: u32, offset: usize, from: &[u8]) {
            let to = self.range(frame, offset, from.len());
            // SAFETY: checked by `range`, and `from` is outside the mapping; as argued in `load`.
            unsafe { copy::store(from, to) };
        }

        /// Zeroes a part of `frame`. One writer at a time (F5).
        pub(in crate::frame) fn zero(&self, frame: u32, offset: usize, bytes: usize) {
            let to = self.range(frame, offset, bytes);
            // SAFETY: checked by `range`; as argued in `load`.
            unsafe { copy::zero(to, bytes) };
        }

        /// Returns the memory of `count` frames from `first` on to the system; they read as zeroes afterwards. Only the
        /// caller has the frames (F6). False if the system refuses.
        pub(in crate::frame) fn give_back(&self, first: u32, count: u32) -> bool {
            let [at, bytes] = [first, count].map(|frames| frames as usize * PAGE_BYTES);
            // SAFETY: only the caller has the frames. A late reader by version may still copy from them; it discards
            // the copy (F4).
            unsafe { self.0.give_back(at, bytes) }
        }
    }
}

/// Memory that is read and written byte by byte, for the model checker.
#[cfg(loom)]
mod modelled {
    use super::PAGE_BYTES;
    use std::io;
    use uvfs_concurrent::primitive::atomic::{AtomicU8, Ordering};

    #[derive(Debug)]
    pub(in crate::frame) struct Memory(Vec<AtomicU8>);

    impl Memory {
        pub(in crate::frame) fn new(frames: u32) -> io::Result<Self> {
            Ok(Self((0..frames as usize * PAGE_BYTES).map(|_| AtomicU8::new(0)).collect()))
        }

        fn range(&self, frame: u32, offset: usize, bytes: usize) -> &[AtomicU8] {
            &self.0[frame as usize * PAGE_BYTES + offset..][..bytes]
        }

        pub(in crate::frame) fn load(&self, frame: u32, offset: usize, to: &mut [u8]) {
            for (byte, to) in self.range(frame, offset, to.len()).iter().zip(to) {
                // ORDERING: Relaxed; like the machine's plain loads, ordered by the fences around the copy.
                *to = byte.load(Ordering::Relaxed);
            }
        }

        pub(in crate::frame) fn store(&self, frame: u32, offset: usize, from: &[u8]) {
            for (byte, from) in self.range(frame, offset, from.len()).iter().zip(from) {
                // ORDERING: Relaxed; ordered by the fences around the copy.
                byte.store(*from, Ordering::Relaxed);
            }
        }

        pub(in crate::frame) fn zero(&self, frame: u32, offset: usize, bytes: usize) {
            for byte in self.range(frame, offset, bytes) {
                // ORDERING: Relaxed; ordered by the fences around the copy.
                byte.store(0, Ordering::Relaxed);
            }
        }

        pub(in crate::frame) fn give_back(&self, first: u32, count: u32) -> bool {
            (first..first + count).for_each(|frame| self.zero(frame, 0, PAGE_BYTES));
            true
        }
    }
}
