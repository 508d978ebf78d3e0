//! Where an image lies: a file, a block device, memory, or a part of one of them.
//!
//! # Boundary
//! Bytes at offsets; knows no format but partition tables ([`partition`]).
//!
//! # Concurrency
//! Reads come from many threads at once.
//!
//! # Why
//! Read, never mapped: an image that is cut while it is used is an error and no SIGBUS, and bytes do not change
//! after they were checked.

pub mod partition;
pub mod testing;

use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Something that is read at offsets.
pub trait Device: Send + Sync + fmt::Debug {
    /// How many bytes there are.
    fn length(&self) -> u64;

    /// Fills `into` from `offset` on, wholly or with an error
    /// ([`io::ErrorKind::UnexpectedEof`] where the device ends).
    ///
    /// # Errors
    /// Those of the medium.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
}

/// A regular file or a block device.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    length: u64,
}

impl FileDevice {
    /// Opens `path` for reading and takes a shared lock (`flock`), so that a program which writes to
    /// the image under an exclusive one is kept out, and keeps us out.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if it is locked exclusively.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::new(File::open(path)?)
    }

    /// The same for a file that is open already.
    ///
    /// # Errors
    /// As [`FileDevice::open`].
    pub fn new(mut file: File) -> io::Result<Self> {
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            // Some file systems have no locks; there nobody else can hold one.
            Err(TryLockError::Error(_)) => {}
        }
        // The size of a block device is where its end is; its metadata says 0.
        let length = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        Ok(Self { file, length })
    }
}

impl Device for FileDevice {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }
}

/// An image in memory.
#[derive(Clone)]
pub struct MemoryDevice(Arc<[u8]>);

impl MemoryDevice {
    /// A device of these bytes.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "MemoryDevice({} bytes)", self.0.len())
    }
}

impl Device for MemoryDevice {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(into.len());
        let bytes = self.0.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(bytes);
        Ok(())
    }
}

/// A part of another device: a partition, or what lies behind an offset.
#[derive(Debug, Clone)]
pub struct Window {
    device: Arc<dyn Device>,
    start: u64,
    length: u64,
}

impl Window {
    /// `length` bytes of `device` from `start` on, or as many as there are.
    pub fn new(device: Arc<dyn Device>, start: u64, length: u64) -> Self {
        let length = length.min(device.length().saturating_sub(start));
        Self { device, start, length }
    }
}

impl Device for Window {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match offset.checked_add(into.len() as u64) {
            Some(end) if end <= self.length => self.device.read_at(self.start + offset, into),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
