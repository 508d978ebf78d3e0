//! Where an image lies: a file, a block device, memory, or a part of one of them.
//!
//! # Boundary
//! Bytes at offsets; knows no format but partition tables ([`partition`]).
//!
//! # Concurrency
//! Many threads may read at once.
//!
//! # Why
//! Devices are read, never mapped. An image that is truncated during use returns an error instead of SIGBUS, and bytes do
//! not change after they were checked.

pub mod direct;
pub mod partition;
pub mod testing;

use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, IoSliceMut};
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

    /// Fills all of `into`, one behind the other, from `offset` on: as [`Device::read_at`], in one access where the
    /// medium can.
    ///
    /// # Errors
    /// As [`Device::read_at`].
    fn read_vectored_at(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        into.iter_mut().try_fold(offset, |at, part| {
            self.read_at(at, part)?;
            Ok::<_, io::Error>(at + part.len() as u64)
        })?;
        Ok(())
    }
}

/// A regular file or a block device.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    length: u64,
}

impl FileDevice {
    /// Opens `path` for reading and takes a shared lock (`flock`). It excludes programs that write to the image under an
    /// exclusive lock.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if it is locked exclusively.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::new(File::open(path)?)
    }

    /// A device over a file that is open already.
    ///
    /// # Errors
    /// As [`FileDevice::open`].
    pub fn new(mut file: File) -> io::Result<Self> {
        lock_to_read(&file)?;
        // The size of a block device is where its end is; its metadata says 0.
        let length = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        Ok(Self { file, length })
    }
}

/// Takes the shared lock that excludes writers with an exclusive one.
fn lock_to_read(file: &File) -> io::Result<()> {
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        // Some file systems have no locks, so no program can hold one.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

impl Device for FileDevice {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }

    fn read_vectored_at(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let length: usize = into.iter().map(|part| part.len()).sum();
        let read = loop {
            match rustix::io::preadv(&self.file, into, offset) {
                Err(rustix::io::Errno::INTR) => {}
                read => break read?,
            }
        };
        // A short read happens at the end, and rarely elsewhere. Read the rest part by part.
        let mut at = 0;
        for part in into.iter_mut().filter(|_| read < length) {
            let (start, end) = (at, at + part.len());
            at = end;
            if end > read {
                let there = read.saturating_sub(start);
                self.file.read_exact_at(&mut part[there..], offset + (start + there) as u64)?;
            }
        }
        Ok(())
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

/// A part of another device: a partition, or all bytes from an offset on.
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

    fn read_vectored_at(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let length: u64 = into.iter().map(|part| part.len() as u64).sum();
        match offset.checked_add(length) {
            Some(end) if end <= self.length => {
                self.device.read_vectored_at(self.start + offset, into)
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read into several parts is the same bytes as one into each, and none where the end is in its way.
    #[test]
    fn parts_are_filled_one_behind_the_other_or_not_at_all() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|at| (at ^ at >> 8) as u8).collect();
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("device");
        std::fs::write(&path, &bytes).unwrap();
        let file: Arc<dyn Device> = Arc::new(FileDevice::open(&path).unwrap());
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes.clone()));
        let window =
            Window::new(Arc::new(MemoryDevice::new([&[0; 7], &*bytes].concat())), 7, 10_000);
        for device in [file, memory, Arc::new(window)] {
            for offset in [0, 4096, 6001, 9_999] {
                let (mut one, mut two) = (vec![0; 1000], vec![0; 2999]);
                let mut into = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
                let read = device.read_vectored_at(offset, &mut into);
                let at = offset as usize;
                match bytes.get(at..at + 3999) {
                    Some(expected) => assert!([one, two].concat() == expected, "{device:?}"),
                    None => {
                        let error = read.expect_err("behind the end");
                        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{device:?}");
                    }
                }
            }
        }
    }
}
