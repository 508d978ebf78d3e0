//! A regular file or a block device, written under an exclusive lock.

use super::{WriteDevice, beyond, total};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use uvfs_ext::Device;

/// Slices that one system call takes (`UIO_MAXIOV`).
const SLICES_MAX: usize = 1024;

/// A regular file or a block device.
#[derive(Debug)]
pub struct WritableFile {
    file: File,
    length: u64,
}

impl WritableFile {
    /// Opens `path` for reading and writing and locks it exclusively (`flock`): no other writer that locks, and no reader of
    /// ours, uses it meanwhile.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if somebody else has it locked; those of opening.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::new(OpenOptions::new().read(true).write(true).open(path)?)
    }

    /// The same for a file that is open for both already.
    ///
    /// # Errors
    /// As [`WritableFile::open`]. Where the file system has no locks, that is an error too: two writers destroy an image.
    pub fn new(mut file: File) -> io::Result<Self> {
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The size of a block device is where its end is; its metadata says 0.
        let length = file.seek(SeekFrom::End(0))?;
        Ok(Self { file, length })
    }
}

impl Device for WritableFile {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }
}

impl WriteDevice for WritableFile {
    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> io::Result<()> {
        if offset.checked_add(total(from)).is_none_or(|end| end > self.length) {
            return Err(beyond());
        }
        let mut offset = offset;
        for some in from.chunks(SLICES_MAX) {
            let mut slices = some.to_vec();
            let mut rest = slices.as_mut_slice();
            // Empty slices at the head would look like a write of nothing.
            IoSlice::advance_slices(&mut rest, 0);
            while !rest.is_empty() {
                match rustix::io::pwritev(&self.file, rest, offset) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => {
                        offset += written as u64;
                        IoSlice::advance_slices(&mut rest, written);
                    }
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<bool> {
        if offset.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(beyond());
        }
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, how, offset, length) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
