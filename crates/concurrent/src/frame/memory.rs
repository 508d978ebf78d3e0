//! The memory of an arena: address space first, memory when it is touched.
//!
//! # Boundary
//! Maps, advises and gives back. Which frame is whose is not known here.
//!
//! # Why
//! Frames are found by number, so they lie in one range that never moves; reserving it costs
//! nothing (MAP_NORESERVE in mmap(2)), and memory of free frames goes back page by page
//! (MADV_DONTNEED). Large arenas ask for huge pages, because pages of a file are read at random and
//! a translation that is missing costs more than copying a short range; small ones refuse them, so
//! that memory in use is exactly what was touched. Weakness: with huge pages the system may hold up
//! to 2 MiB around each frame in use, and may fill holes again that were given back.

#[cfg(not(loom))]
pub(super) use mapped::Memory;
#[cfg(not(loom))]
pub(crate) use mapped::Reserved;
#[cfg(loom)]
pub(super) use modelled::Memory;

/// Bytes of a page, and of the frame it lies in.
pub const PAGE_BYTES: usize = if cfg!(loom) { 2 } else { 4096 };

#[cfg(not(loom))]
mod mapped {
    use super::PAGE_BYTES;
    use crate::frame::copy;
    use crate::huge;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use std::io;
    use std::ptr::{self, NonNull};

    /// So many bytes that will be used ask for huge pages: what is left of the last one is then less
    /// than a hundredth.
    const HUGE_FROM_BYTES: usize = 256 << 20;

    /// A private range of zeroes that is backed as it is touched.
    #[derive(Debug)]
    pub(crate) struct Reserved {
        start: NonNull<u8>,
        bytes: usize,
    }

    // SAFETY: plain memory; who may touch which part of it is argued where it is touched.
    unsafe impl Send for Reserved {}
    // SAFETY: as for `Send`.
    unsafe impl Sync for Reserved {}

    impl Reserved {
        pub(crate) fn new(bytes: usize) -> io::Result<Self> {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            let bytes = bytes.max(1);
            // SAFETY: a new mapping at an address of the kernel's choice touches nobody's memory.
            let start = unsafe {
                mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)
            }?;
            let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
            // SAFETY: our own range; refused (which is harmless) where there are no huge pages.
            let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxNoHugepage) };
            Ok(Self { start, bytes })
        }

        /// Asks for huge pages behind the first `bytes` bytes, which will be used.
        pub(in crate::frame) fn expect(&self, bytes: usize) {
            // SAFETY: our own range.
            unsafe { huge::advise(self.start.as_ptr(), bytes.min(self.bytes)) };
        }

        pub(crate) fn start(&self) -> NonNull<u8> {
            self.start
        }

        /// Gives the memory of `bytes` bytes from `at` on back to the system; they read as zeroes. False if the
        /// system refuses.
        ///
        /// # Safety
        /// Nobody has a reference into the range, and what is copied out of it meanwhile is thrown away.
        ///
        /// # Panics
        /// If the range is not of ours.
        pub(crate) unsafe fn give_back(&self, at: usize, bytes: usize) -> bool {
            assert!(at <= self.bytes && bytes <= self.bytes - at, "no such range");
            // SAFETY: inside our own mapping, and private and anonymous, so it becomes zeroes; nobody relies on
            // what was there, as the caller says.
            unsafe {
                let from = self.start.as_ptr().add(at).cast();
                madvise(from, bytes, Advice::LinuxDontNeed).is_ok()
            }
        }
    }

    impl Drop for Reserved {
        fn drop(&mut self) {
            // SAFETY: mapped by `new`, and whoever could look into it borrows from us.
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

        /// Asks for huge pages behind the first `frames` frames, if they are many. Whether it did.
        pub(in crate::frame) fn expect(&self, frames: usize) -> bool {
            let bytes = frames.saturating_mul(PAGE_BYTES);
            if bytes >= HUGE_FROM_BYTES {
                self.0.expect(bytes);
            }
            bytes >= HUGE_FROM_BYTES
        }

        /// `bytes` of `frame` from `offset` on.
        ///
        /// # Panics
        /// If the range leaves the frame or the frame the arena.
        #[inline]
        fn range(&self, frame: u32, offset: usize, bytes: usize) -> *mut u8 {
            let inside = offset <= PAGE_BYTES && bytes <= PAGE_BYTES - offset;
            assert!(inside, "{bytes} bytes from {offset} on are not in a page");
            let at = frame as usize * PAGE_BYTES + offset;
            assert!(at + bytes <= self.0.bytes, "no such frame");
            // SAFETY: inside the mapping, by the line above.
            unsafe { self.0.start.as_ptr().add(at) }
        }

        /// Copies out of `frame`, which others may be writing to.
        #[inline]
        pub(in crate::frame) fn load(&self, frame: u32, offset: usize, to: &mut [u8]) {
            let from = self.range(frame, offset, to.len());
            // SAFETY: `range` checked it; mapped as long as we live; `to` is no part of the
            // mapping, of which no reference exists. All others who touch it come through this
            // file.
            unsafe { copy::load(from, to) };
        }

        /// Copies into `frame`, which others may be reading. One thread at a time (F5).
        #[inline]
        pub(in crate::frame) fn store(&self, frame: u32, offset: usize, from: &[u8]) {
            let to = self.range(frame, offset, from.len());
            // SAFETY: as in `load`.
            unsafe { copy::store(from, to) };
        }

        /// Zeroes a part of `frame`, as `store`.
        pub(in crate::frame) fn zero(&self, frame: u32, offset: usize, bytes: usize) {
            let to = self.range(frame, offset, bytes);
            // SAFETY: as in `load`.
            unsafe { copy::zero(to, bytes) };
        }

        /// Gives the memory of `count` frames from `first` on back to the system; they read as
        /// zeroes. The frames are the caller's alone (F6). False if the system refuses.
        pub(in crate::frame) fn give_back(&self, first: u32, count: u32) -> bool {
            let [at, bytes] = [first, count].map(|frames| frames as usize * PAGE_BYTES);
            // SAFETY: the frames are the caller's. A late reader by version may be at them; what it copied is
            // thrown away (F4).
            unsafe { self.0.give_back(at, bytes) }
        }
    }
}

/// The same, byte by byte, for the model checker.
#[cfg(loom)]
mod modelled {
    use super::PAGE_BYTES;
    use crate::primitive::atomic::{AtomicU8, Ordering};
    use std::io;

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
                // ORDERING: Relaxed; as the machine's plain loads, the fences around it order it.
                *to = byte.load(Ordering::Relaxed);
            }
        }

        pub(in crate::frame) fn store(&self, frame: u32, offset: usize, from: &[u8]) {
            for (byte, from) in self.range(frame, offset, from.len()).iter().zip(from) {
                // ORDERING: Relaxed; as in `load`.
                byte.store(*from, Ordering::Relaxed);
            }
        }

        pub(in crate::frame) fn zero(&self, frame: u32, offset: usize, bytes: usize) {
            for byte in self.range(frame, offset, bytes) {
                // ORDERING: Relaxed; as in `load`.
                byte.store(0, Ordering::Relaxed);
            }
        }

        pub(in crate::frame) fn give_back(&self, first: u32, count: u32) -> bool {
            (first..first + count).for_each(|frame| self.zero(frame, 0, PAGE_BYTES));
            true
        }
    }
}
