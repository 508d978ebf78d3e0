//! The memory into which blocks are read: one reserved range of frames, and single blocks on the heap.
//!
//! # Boundary
//! Returns references to bytes. The callers argue their right to a reference ([`super`], B3).
//!
//! # Why
//! A caller reads structures in place, so a hit returns a reference and copies nothing. Under the model checker a block
//! is one of its cells, which reports every use that is not ordered against a change.

#[cfg(not(loom))]
pub(super) use mapped::{Frames, OnHeap};
#[cfg(loom)]
pub(super) use modelled::{Frames, OnHeap};

#[cfg(not(loom))]
mod mapped {
    use crate::frame::Reserved;
    use std::cell::UnsafeCell;
    use std::{io, slice};

    /// All frames.
    #[derive(Debug)]
    pub(in crate::set_associative::buffers) struct Frames {
        memory: Reserved,
        block_bytes: usize,
    }

    impl Frames {
        pub(in crate::set_associative::buffers) fn new(
            frames: usize,
            block_bytes: usize,
        ) -> io::Result<Self> {
            let bytes = frames
                .checked_mul(block_bytes)
                .filter(|&bytes| isize::try_from(bytes).is_ok())
                .ok_or(io::ErrorKind::OutOfMemory)?;
            Ok(Self { memory: Reserved::new(bytes)?, block_bytes })
        }

        /// # Safety
        /// `frame` is one of these frames, and as long as the reference lives there is no mutable one to it.
        pub(in crate::set_associative::buffers) unsafe fn get(&self, frame: u32) -> &[u8] {
            // SAFETY: inside the range, which lives as long as `self`; no writer (the caller's promise).
            unsafe {
                let at = self.memory.start().as_ptr().add(frame as usize * self.block_bytes);
                slice::from_raw_parts(at, self.block_bytes)
            }
        }

        /// # Safety
        /// `frame` is one of these frames, and as long as the reference lives there is no other to it.
        #[allow(clippy::mut_from_ref)]
        pub(in crate::set_associative::buffers) unsafe fn get_mut(&self, frame: u32) -> &mut [u8] {
            // SAFETY: inside the range, which lives as long as `self`; no other user (the caller's promise).
            unsafe {
                let at = self.memory.start().as_ptr().add(frame as usize * self.block_bytes);
                slice::from_raw_parts_mut(at, self.block_bytes)
            }
        }

        /// Returns the memory of `frame` to the system; a later access allocates it again.
        ///
        /// # Safety
        /// There is no reference to it.
        pub(in crate::set_associative::buffers) unsafe fn give_back(&self, frame: u32) {
            // If the system refuses, the memory stays: then less is returned than was requested.
            // SAFETY: no reference to it exists (the caller's promise).
            unsafe { self.memory.give_back(frame as usize * self.block_bytes, self.block_bytes) };
        }
    }

    /// One block on the heap.
    #[derive(Debug)]
    pub(in crate::set_associative::buffers) struct OnHeap(UnsafeCell<Box<[u8]>>);

    // SAFETY: plain bytes; the callers argue their right to each reference.
    unsafe impl Sync for OnHeap {}

    impl OnHeap {
        pub(in crate::set_associative::buffers) fn new(block_bytes: usize) -> Self {
            Self(UnsafeCell::new(vec![0; block_bytes].into_boxed_slice()))
        }

        /// # Safety
        /// As long as the reference lives there is no mutable one.
        pub(in crate::set_associative::buffers) unsafe fn get(&self) -> &[u8] {
            // SAFETY: the caller's promise.
            unsafe { &*self.0.get() }
        }

        /// # Safety
        /// As long as the reference lives there is no other.
        #[allow(clippy::mut_from_ref)]
        pub(in crate::set_associative::buffers) unsafe fn get_mut(&self) -> &mut [u8] {
            // SAFETY: the caller's promise.
            unsafe { &mut *self.0.get() }
        }
    }
}

#[cfg(loom)]
mod modelled {
    use loom::cell::UnsafeCell;
    use std::io;

    const BLOCK_BYTES: usize = 1;

    #[derive(Debug)]
    pub(in crate::set_associative::buffers) struct OnHeap(UnsafeCell<[u8; BLOCK_BYTES]>);

    // SAFETY: loom's cell checks the claim.
    unsafe impl Sync for OnHeap {}
    // SAFETY: loom's cell checks the claim.
    unsafe impl Send for OnHeap {}

    impl OnHeap {
        pub(in crate::set_associative::buffers) fn new(_block_bytes: usize) -> Self {
            Self(UnsafeCell::new([0; BLOCK_BYTES]))
        }

        /// # Safety
        /// The same as for the mapped type.
        pub(in crate::set_associative::buffers) unsafe fn get(&self) -> &[u8] {
            // SAFETY: loom checks the access here, and its order.
            self.0.with(|bytes| unsafe { &*bytes })
        }

        /// # Safety
        /// The same as for the mapped type.
        #[allow(clippy::mut_from_ref)]
        pub(in crate::set_associative::buffers) unsafe fn get_mut(&self) -> &mut [u8] {
            // SAFETY: loom checks the access here, and its order.
            self.0.with_mut(|bytes| unsafe { &mut *bytes })
        }
    }

    #[derive(Debug)]
    pub(in crate::set_associative::buffers) struct Frames(Vec<OnHeap>);

    impl Frames {
        pub(in crate::set_associative::buffers) fn new(
            frames: usize,
            block_bytes: usize,
        ) -> io::Result<Self> {
            Ok(Self((0..frames).map(|_| OnHeap::new(block_bytes)).collect()))
        }

        /// # Safety
        /// The same as for the mapped type.
        pub(in crate::set_associative::buffers) unsafe fn get(&self, frame: u32) -> &[u8] {
            // SAFETY: the caller's promise.
            unsafe { self.0[frame as usize].get() }
        }

        /// # Safety
        /// The same as for the mapped type.
        #[allow(clippy::mut_from_ref)]
        pub(in crate::set_associative::buffers) unsafe fn get_mut(&self, frame: u32) -> &mut [u8] {
            // SAFETY: the caller's promise.
            unsafe { self.0[frame as usize].get_mut() }
        }

        /// # Safety
        /// The same as for the mapped type.
        pub(in crate::set_associative::buffers) unsafe fn give_back(&self, frame: u32) {
            // SAFETY: the caller's promise.
            unsafe { self.get_mut(frame) }.fill(0);
        }
    }
}
