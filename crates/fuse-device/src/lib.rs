//! The kernel's end of a FUSE mount: `/dev/fuse`, host files that the kernel takes over, and its io_uring queues.
//!
//! # Boundary
//! Moves whole messages and reads none of them. `uvfs-fuse-protocol` knows their contents, and `uvfs-fuse` answers
//! them. This is the only crate of the transport with `unsafe` code: two requests of ioctl(2) here, and the memory that
//! the kernel fills in [`ring`].
//!
//! # Concurrency
//! Any number of threads read and write one [`Device`]; the kernel gives each request to one of them.
//!
//! # Invariants
//! V1. An ioctl gets a pointer to a value of this stack frame, of the size that its number names; the kernel keeps no
//!     pointer.
//!
//! # Why
//! A crate of its own, so that the server forbids `unsafe`. Weakness: the number of an ioctl is checked by no compiler.

pub mod ring;

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, opcode};
use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Path of the device.
pub const PATH: &str = "/dev/fuse";

/// `struct fuse_backing_map` of the kernel.
#[repr(C)]
struct BackingMap {
    descriptor: i32,
    flags: u32,
    padding: u64,
}

/// FUSE_DEV_IOC_BACKING_OPEN and _CLOSE.
const BACKING_OPEN: Opcode = opcode::write::<BackingMap>(229, 1);
const BACKING_CLOSE: Opcode = opcode::write::<u32>(229, 2);

/// An open `/dev/fuse`: one connection, once it is mounted.
#[derive(Debug)]
pub struct Device(OwnedFd);

impl Device {
    /// Opens the device. It is connected by mount(2).
    ///
    /// # Errors
    /// Those of open(2): ENOENT without the module, EACCES without the right.
    pub fn open() -> io::Result<Self> {
        Ok(Self(OpenOptions::new().read(true).write(true).open(PATH)?.into()))
    }

    /// Another descriptor of the same connection.
    ///
    /// # Errors
    /// EMFILE.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Waits for a request and reads it into `buffer`, which must have room for the largest write and 4 KiB. `None`:
    /// the mount has ended.
    ///
    /// # Errors
    /// EINVAL for a buffer that is too small; ECONNABORTED and others if the connection was cut.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(length) => return Ok(Some(length)),
                // A signal, or a request that was withdrawn while it was read.
                Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => {}
                Err(Errno::NODEV) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends one message, an answer or a notice.
    ///
    /// # Errors
    /// EINVAL for a message that the kernel does not take; ENOENT for an answer to a request that it has withdrawn, and
    /// for a notice about an object that it does not have.
    pub fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        rustix::io::writev(&self.0, parts)?;
        Ok(())
    }

    /// Has the kernel take `file`, to read and write it by itself. The number is valid until
    /// [`Device::release_backing`].
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN; ENOTTY before Linux 6.9; ELOOP for a file of a stacked file system beyond the depth
    /// that was agreed.
    pub fn register_backing(&self, file: &impl AsFd) -> io::Result<u32> {
        let descriptor = file.as_fd().as_raw_fd();
        let map = BackingMap { descriptor, flags: 0, padding: 0 };
        // SAFETY: V1: `map` is the structure of BACKING_OPEN and outlives the call.
        let number = unsafe { rustix::ioctl::ioctl(&self.0, BackingOpen(map)) }?;
        Ok(number.unsigned_abs())
    }

    /// Ends a [`Device::register_backing`]. Open files keep theirs.
    ///
    /// # Errors
    /// ENOENT for an unknown number.
    pub fn release_backing(&self, number: u32) -> io::Result<()> {
        // SAFETY: V1: BACKING_CLOSE takes one u32.
        unsafe { rustix::ioctl::ioctl(&self.0, Setter::<BACKING_CLOSE, u32>::new(number)) }?;
        Ok(())
    }
}

impl From<OwnedFd> for Device {
    /// A descriptor that another program has opened, such as `fusermount3`.
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// BACKING_OPEN, which answers with its result and writes nothing.
struct BackingOpen(BackingMap);

// SAFETY: V1: the number names a write of `BackingMap`, which `as_ptr` points to; the kernel writes nothing there.
unsafe impl Ioctl for BackingOpen {
    type Output = i32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        BACKING_OPEN
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        (&raw mut self.0).cast()
    }

    // SAFETY: needs nothing: it reads no memory.
    unsafe fn output_from_ptr(
        out: IoctlOutput,
        _: *mut std::ffi::c_void,
    ) -> rustix::io::Result<i32> {
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_header() {
        // _IOW(229, 1, struct fuse_backing_map) and _IOW(229, 2, __u32) of <linux/fuse.h>.
        assert_eq!((BACKING_OPEN, BACKING_CLOSE), (0x4010_e501, 0x4004_e502));
        assert_eq!(size_of::<BackingMap>(), 16);
    }
}
