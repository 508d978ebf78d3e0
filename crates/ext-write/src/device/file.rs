//! A regular file or a block device, written under an exclusive lock.
//!
//! # Why
//! The kernel takes no such lock for devices that it uses itself. So a block device is also claimed as a mount claims it
//! (`O_EXCL`); the kernel refuses that for a device that it has mounted, swaps to, or has made a part of another one. Other
//! programs may remove, replace or truncate a file at any time, so each write first checks its attributes. Weakness: between the
//! check and the write the file may still be truncated, and a hole that another program punches is not seen.

use super::{WriteDevice, beyond, total};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use uvfs_ext::Device;

/// Slices that one system call takes (`UIO_MAXIOV`).
const SLICES_MAX: usize = 1024;

/// Opens a block device only if the kernel does not use it.
const EXCLUSIVE: i32 = OFlags::EXCL.bits() as i32;

/// A regular file or a block device.
#[derive(Debug)]
pub struct WritableFile {
    file: File,
    length: u64,
    /// A block device, claimed: as long as this is open, the kernel mounts nothing from it.
    claim: Option<File>,
}

impl WritableFile {
    /// Opens `path` for reading and writing and locks it exclusively (`flock`): no other writer that locks, and no reader of
    /// ours, uses it meanwhile. A block device is claimed too.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if another program has it locked; [`io::ErrorKind::ResourceBusy`] for a block device that
    /// the kernel uses; those of opening. Where the file system has no locks, that is an error too: two writers destroy an image.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let mut file = options.open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let about = file.metadata()?;
        let claim = match about.file_type().is_block_device() {
            true => Some(options.custom_flags(EXCLUSIVE).open(path)?),
            false => None,
        };
        if let Some(claim) = &claim
            && claim.metadata()?.rdev() != about.rdev()
        {
            return Err(io::Error::other("another device took its place"));
        }
        // The size of a block device is where its end is; its metadata says 0.
        let length = file.seek(SeekFrom::End(0))?;
        Ok(Self { file, length, claim })
    }

    /// The host's file.
    pub(super) fn host(&self) -> &File {
        &self.file
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
        self.check()?;
        put_slices(&self.file, offset, from, 1)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn check(&self) -> io::Result<()> {
        if self.claim.is_some() {
            return Ok(());
        }
        let now = self.file.metadata()?;
        if now.nlink() == 0 {
            let gone = "the image file was removed or replaced: the contents of the mount are lost when the mount ends";
            return Err(io::Error::new(io::ErrorKind::NotFound, gone));
        }
        if now.len() < self.length {
            let end = now.len();
            let cut = format!("the image file was cut to {end} bytes: the data after that is lost");
            return Err(io::Error::other(cut));
        }
        Ok(())
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

/// Writes all bytes of `from`. The system may write a part only; the next call then begins at a multiple of `unit`.
pub(super) fn put_slices(
    file: &File,
    offset: u64,
    from: &[IoSlice<'_>],
    unit: u64,
) -> io::Result<()> {
    let mut offset = offset;
    for some in from.chunks(SLICES_MAX) {
        let mut slices = some.to_vec();
        let mut rest = slices.as_mut_slice();
        // Empty slices at the head would look like a write of nothing.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match rustix::io::pwritev(file, rest, offset) {
                Ok(written) => {
                    let written = written as u64 / unit * unit;
                    if written == 0 {
                        return Err(io::ErrorKind::WriteZero.into());
                    }
                    offset += written;
                    IoSlice::advance_slices(&mut rest, written as usize);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}
