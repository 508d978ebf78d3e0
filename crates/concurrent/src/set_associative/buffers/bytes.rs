//! The memory that blocks are read into: one reserved range of frames, and single blocks on the heap.
//!
//! # Boundary
//! Hands out references to bytes. Who may have which is argued where they are asked for ([`super`], B3).
//!
//! # Why
//! A caller reads structures in place, so a hit gives a reference and copies nothing. Under the model checker a
//! block is one of its cells, which complains of every use that is not ordered against a change.

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
        /// `frame` is one of ours, and as long as the reference lives nobody has a mutable one to it.
        pub(in crate::set_associative::buffers) unsafe fn get(&self, frame: u32) -> &[u8] {
            // SAFETY: inside the range, which lives as long as we do; no writer, as the caller says.
            unsafe {
                let at = self.memory.start().as_ptr().add(frame as usize * self.block_bytes);
                slice::from_raw_parts(at, self.block_bytes)
            }
        }

        /// # Safety
        /// `frame` is one of ours, and as long as the reference lives there is no other to it.
        #[allow(clippy::mut_from_ref)]
        pub(in crate::set_associative::buffers) unsafe fn get_mut(&self, frame: u32) -> &mut [u8] {
            // SAFETY: inside the range, which lives as long as we do; nobody else, as the caller says.
            unsafe {
                let at = self.memory.start().as_ptr().add(frame as usize * self.block_bytes);
                slice::from_raw_parts_mut(at, self.block_bytes)
            }
        }

        /// Gives the memory of `frame` back to the system; it is taken again when it is touched.
        ///
        /// # Safety
        /// There is no reference to it.
        pub(in crate::set_associative::buffers) unsafe fn give_back(&self, frame: u32) {
            // A refusal leaves the memory where it is: then less is given back than was asked for.
            // SAFETY: as the caller says.
            unsafe { self.memory.give_back(frame as usize * self.block_bytes, self.block_bytes) };
        }
    }

    /// One block on the heap.
    #[derive(Debug)]
    pub(in crate::set_associative::buffers) struct OnHeap(UnsafeCell<Box<[u8]>>);

    // SAFETY: plain bytes; who may have which reference is argued where they are asked for.
    unsafe impl Sync for OnHeap {}

    impl OnHeap {
        pub(in crate::set_associative::buffers) fn new(block_bytes: usize) -> Self {
            Self(UnsafeCell::new(vec![0; block_bytes].into_boxed_slice()))
        }

        /// # Safety
        /// As long as the reference lives nobody has a mutable one.
        pub(in crate::set_associative::buffers) unsafe fn get(&self) -> &[u8] {
            // SAFETY: as the caller says.
            unsafe { &*self.0.get() }
        }

        /// # Safety
        /// As long as the reference lives there is no other.
        #[allow(clippy::mut_from_ref)]
        pub(in crate::set_associative::buffers) unsafe fn get_mut(&self) -> &mut [u8] {
            // SAFETY: as the caller says.
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
    // SAFETY: as for `Sync`.
    unsafe impl Send for OnHeap {}

    impl OnHeap {
        pub(in crate::set_associative::buffers) fn new(_block_bytes: usize) -> Self {
            Self(UnsafeCell::new([0; BLOCK_BYTES]))
        }

        /// # Safety
        /// As of what it stands for.
        pub(in crate::set_associative::buffers) unsafe fn get(&self) -> &[u8] {
            // SAFETY: loom looks at the access here, and at what it is ordered by.
            self.0.with(|bytes| unsafe { &*bytes })
        }

        /// # Safety
        /// As of what it stands for.
        #[allow(clippy::mut_from_ref)]
        pub(in crate::set_associative::buffers) unsafe fn get_mut(&self) -> &mut [u8] {
            // SAFETY: as in `get`.
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
        /// As of what it stands for.
        pub(in crate::set_associative::buffers) unsafe fn get(&self, frame: u32) -> &[u8] {
            // SAFETY: as the caller says.
            unsafe { self.0[frame as usize].get() }
        }

        /// # Safety
        /// As of what it stands for.
        #[allow(clippy::mut_from_ref)]
        pub(in crate::set_associative::buffers) unsafe fn get_mut(&self, frame: u32) -> &mut [u8] {
            // SAFETY: as the caller says.
            unsafe { self.0[frame as usize].get_mut() }
        }

        /// # Safety
        /// As of what it stands for.
        pub(in crate::set_associative::buffers) unsafe fn give_back(&self, frame: u32) {
            // SAFETY: as the caller says.
            unsafe { self.get_mut(frame) }.fill(0);
        }
    }
}
