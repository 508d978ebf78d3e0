//! A file or a block device that is read past the host's page cache (`O_DIRECT`).
//!
//! # Boundary
//! As [`super::FileDevice`], with the same lock.
//!
//! # Concurrency
//! Many threads may read at once, each with a buffer of its own. Reads complete in any order.
//!
//! # Why
//! The kernel caches the files of a mount and our caches hold its metadata, so the host's pages are a second copy. Pages of
//! an image larger than memory would evict other programs' pages. The kernel takes only whole aligned pages, so each read
//! is copied from an aligned buffer. Weakness: nothing is read ahead, and two mounts of one image read each block twice.

use super::{Device, lock_to_read};
use rustix::fs::{Mode, OFlags};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::path::Path;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Alignment of [`AlignedBuffer`]: at least the block size of any disk.
pub const PAGE: usize = 4096;
/// Bytes that are read at once, at most.
const BYTES_MAX: usize = 256 << 10;

/// One aligned page.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// Memory for direct requests: whole pages, aligned to [`PAGE`].
#[derive(Clone, Default)]
pub struct AlignedBuffer(Vec<Page>);

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "AlignedBuffer({} bytes)", self.bytes().len())
    }
}

impl AlignedBuffer {
    /// At least `bytes` bytes, of zeros.
    pub fn new(bytes: usize) -> Self {
        let mut buffer = Self::default();
        buffer.grow(bytes);
        buffer
    }

    /// Makes it at least so long.
    fn grow(&mut self, bytes: usize) {
        if self.bytes().len() < bytes {
            self.0.resize_with(bytes.div_ceil(PAGE), Page::new_zeroed);
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }
}

/// Opens a file past the host's page cache.
///
/// # Errors
/// Those of opening: [`io::ErrorKind::InvalidInput`] where the file system has no direct access.
pub fn open(path: &Path, access: OFlags) -> io::Result<File> {
    let flags = access | OFlags::DIRECT | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Fills `into` from `start` on by direct requests. The place, the memory and the length are whole `sector`s. Returns how many
/// bytes there were.
///
/// # Errors
/// Those of the medium.
pub fn read_sectors(file: &File, sector: usize, start: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < into.len() {
        match rustix::io::pread(file, &mut into[read..], start + read as u64) {
            Err(rustix::io::Errno::INTR) => {}
            // A read that ends within a sector is at the end of the file; the next one would not be aligned.
            Ok(more) => {
                read += more;
                if more == 0 || !read.is_multiple_of(sector) {
                    break;
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(read)
}

/// Fills the beginning of `into` from `offset` on, through a buffer of whole `sector`s. Returns how many bytes it filled: all, or
/// as many as the buffer has room for.
///
/// # Errors
/// Those of the medium; [`io::ErrorKind::UnexpectedEof`] where the file ends.
pub fn read_through(
    file: &File,
    sector: usize,
    offset: u64,
    into: &mut [u8],
    buffer: &mut [u8],
) -> io::Result<usize> {
    let skipped = (offset % sector as u64) as usize;
    let wanted = (skipped + into.len()).next_multiple_of(sector).min(buffer.len());
    let read = read_sectors(file, sector, offset - skipped as u64, &mut buffer[..wanted])?;
    let now = into.len().min(wanted - skipped);
    let found = buffer[..read].get(skipped..skipped + now).ok_or(io::ErrorKind::UnexpectedEof)?;
    into[..now].copy_from_slice(found);
    Ok(now)
}

/// See the module.
#[derive(Debug)]
pub struct DirectDevice {
    file: File,
    length: u64,
}

impl DirectDevice {
    /// Opens `path` for reading, as [`super::FileDevice::open`].
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if it is locked exclusively; [`io::ErrorKind::InvalidInput`] where the file system has no
    /// direct reads.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut file = open(path.as_ref(), OFlags::RDONLY)?;
        lock_to_read(&file)?;
        let length = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        let device = Self { file, length };
        // Some file systems let it be opened and refuse the first read.
        device.read_at(0, &mut [0; 1][..usize::from(length > 0)])?;
        Ok(device)
    }
}

impl Device for DirectDevice {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        thread_local!(static BUFFER: RefCell<AlignedBuffer> = RefCell::default());
        BUFFER.with_borrow_mut(|buffer| {
            buffer.grow((into.len() + PAGE).min(BYTES_MAX));
            let mut done = 0;
            while done < into.len() {
                let (at, rest) = (offset + done as u64, &mut into[done..]);
                done += read_through(&self.file, PAGE, at, rest, buffer.bytes_mut())?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wherever a read begins and ends, also in a file that ends within a page, it is the file's bytes or none.
    #[test]
    fn any_range_is_read_and_none_behind_the_end() {
        let place = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = place.path().join("device");
        let bytes: Vec<u8> = (0..700_001_u32).map(|at| (at ^ at >> 9) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let device = match DirectDevice::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return uvfs_skip::lacking("the file system of the checkout has no direct reads");
            }
            device => device.unwrap(),
        };
        assert_eq!(device.length(), bytes.len() as u64);
        for (offset, length) in
            [(0, 4096), (1, 1), (4095, 2), (100, 600_000), (0, 700_001), (699_999, 2), (700_001, 0)]
        {
            let mut read = vec![1; length];
            device.read_at(offset as u64, &mut read).unwrap();
            assert!(read == bytes[offset..offset + length], "{length} bytes from {offset}");
        }
        for (offset, length) in [(700_000, 2), (700_001, 1), (1 << 40, 1), (0, 700_002)] {
            let error = device.read_at(offset, &mut vec![0; length]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{length} bytes from {offset}");
        }
        let writer = File::open(&path).unwrap();
        drop(device);
        writer.lock().unwrap();
        let refused = DirectDevice::open(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    }
}
