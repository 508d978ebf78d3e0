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

/// Alignment of direct reads: at least the block size of any disk.
const PAGE: usize = 4096;
/// Pages that are read at once, at most: 256 KiB.
const PAGES_MAX: usize = 64;

/// One aligned page.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

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
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(path.as_ref(), flags, Mode::empty())?);
        lock_to_read(&file)?;
        let length = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        let device = Self { file, length };
        // Some file systems let it be opened and refuse the first read.
        device.read_at(0, &mut [0; 1][..usize::from(length > 0)])?;
        Ok(device)
    }

    /// Fills `into` with pages from `start` on, which is a multiple of a page; how many bytes there were.
    fn pages_at(&self, start: u64, into: &mut [Page]) -> io::Result<usize> {
        let (bytes, mut read) = (into.as_mut_bytes(), 0);
        while read < bytes.len() {
            match rustix::io::pread(&self.file, &mut bytes[read..], start + read as u64) {
                Err(rustix::io::Errno::INTR) => {}
                // A read that ends within a page is at the end of the file; the next one would not be aligned.
                Ok(more) => {
                    read += more;
                    if more == 0 || !read.is_multiple_of(PAGE) {
                        break;
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(read)
    }
}

impl Device for DirectDevice {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        thread_local!(static PAGES: RefCell<Vec<Page>> = const { RefCell::new(Vec::new()) });
        PAGES.with_borrow_mut(|pages| {
            let (mut at, mut rest) = (offset, into);
            while !rest.is_empty() {
                let skipped = (at % PAGE as u64) as usize;
                let wanted = (skipped + rest.len()).div_ceil(PAGE).min(PAGES_MAX);
                if pages.len() < wanted {
                    pages.resize_with(wanted, Page::new_zeroed);
                }
                let read = self.pages_at(at - skipped as u64, &mut pages[..wanted])?;
                let now = rest.len().min(wanted * PAGE - skipped);
                let found = pages.as_bytes()[..read].get(skipped..skipped + now);
                let (part, behind) = rest.split_at_mut(now);
                part.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
                (at, rest) = (at + now as u64, behind);
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
