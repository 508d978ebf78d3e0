//! The pages of a file in the kernel's page cache: the system calls that have no safe binding.
//!
//! # Boundary
//! Three calls: cachestat(2), mincore(2) and sync_file_range(2). Each takes a descriptor and numbers
//! and returns numbers. The caller decides which files to ask about and what follows from the answer.
//!
//! # Why
//! `rustix` has none of them, and the tools that need them forbid `unsafe`. Threads share nothing through them, so they
//! are not in `uvfs-concurrent`, and a library of file systems does not carry them. cachestat(2) (Linux 6.5) counts
//! without mapping anything and knows dirty pages. Older kernels have mincore(2) only: it maps the file, a
//! window at a time, and knows only whether a page is resident. Weakness: both answer only a caller that may
//! write the file or owns it. The kernel refuses cachestat(2) to other callers. To mincore(2) it answers them that all
//! pages are resident, so the caller has to ask about rights first.
//!
//! # Invariants
//! R1. A pointer that a call gets points to a value of this stack frame, or into a vector of it, of the
//!     size that the call writes.
//! R2. A mapping is made without access (PROT_NONE), never turned into a reference, and unmapped with
//!     the address and length with which it was made, once.

use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes mapped at once to ask mincore(2).
const WINDOW_BYTES: u64 = 1 << 30;
/// The number of cachestat(2): from 5.17 on, a new call has one number on every architecture but Alpha.
const SYS_CACHESTAT: libc::c_long = 451;

/// Pages of a range in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Residency {
    /// Pages that are there.
    pub cached: u64,
    /// Cached pages that are newer than the bytes on the store.
    pub dirty: u64,
    /// Cached pages that are being written.
    pub writeback: u64,
    /// Pages that were evicted and left a note of it.
    pub evicted: u64,
    /// Evicted pages that left so recently that memory must be short.
    pub recently_evicted: u64,
}

/// `struct cachestat_range` of the kernel.
#[repr(C)]
struct Range {
    offset: u64,
    bytes: u64,
}

/// Bytes of a page.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Counts the pages of `file` in the page cache, in `bytes` from `offset` on; zero `bytes` means to the end.
///
/// # Errors
/// `ENOSYS` before Linux 6.5, `EPERM` for a caller that may not write the file and does not own it
/// (or where a filter refuses unknown calls), `EOPNOTSUPP` for huge-page files, `EBADF`.
pub fn cachestat(file: impl AsFd, offset: u64, bytes: u64) -> io::Result<Residency> {
    let range = Range { offset, bytes };
    let mut residency = Residency::default();
    let no_flags: libc::c_uint = 0;
    // SAFETY: both pointers are to live values of the kernel's layout (R1); the descriptor is borrowed.
    let status = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_fd().as_raw_fd(),
            &raw const range,
            &raw mut residency,
            no_flags,
        )
    };
    if status == 0 { Ok(residency) } else { Err(io::Error::last_os_error()) }
}

/// How many pages of `file`, which has `bytes`, are in the page cache, from mincore(2).
///
/// The file must be open for reading, and the caller must be allowed to write it or own it: to other callers
/// the kernel answers that all pages are resident.
///
/// # Errors
/// `ENODEV` for files that cannot be mapped, `EACCES`, `ENOMEM`.
pub fn mincore(file: impl AsFd, bytes: u64) -> io::Result<u64> {
    let mut pages = 0;
    let mut offset = 0;
    while offset < bytes {
        let window = WINDOW_BYTES.min(bytes - offset);
        pages += mincore_window(&file, offset, window)?;
        offset += window;
    }
    Ok(pages)
}

fn mincore_window(file: impl AsFd, offset: u64, bytes: u64) -> io::Result<u64> {
    let too_far = |_| io::Error::from(Errno::OVERFLOW);
    let length = usize::try_from(bytes).map_err(too_far)?;
    let offset = libc::off_t::try_from(offset).map_err(too_far)?;
    let descriptor = file.as_fd().as_raw_fd();
    // SAFETY: a new mapping at a place that the kernel chooses touches no memory of ours (R2).
    let start = unsafe {
        let anywhere = std::ptr::null_mut();
        libc::mmap(anywhere, length, libc::PROT_NONE, libc::MAP_SHARED, descriptor, offset)
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mut there = vec![0u8; length.div_ceil(rustix::param::page_size())];
    // SAFETY: the mapping has `length` bytes (R2), the vector one byte for each of its pages (R1).
    let asked = match unsafe { libc::mincore(start, length, there.as_mut_ptr()) } {
        0 => Ok(there.iter().map(|page| u64::from(page & 1)).sum()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: our mapping, as it was made; nothing points into it (R2).
    let unmapped = unsafe { libc::munmap(start, length) };
    debug_assert_eq!(unmapped, 0, "a mapping of our own");
    asked
}

/// Writes the dirty pages of `file` out and waits for it. This does not promise that they survive a crash:
/// it flushes neither the file's metadata nor the disk's own cache; fdatasync(2) does.
///
/// # Errors
/// Those of writing; `EINVAL`, `ESPIPE`, `ENOSYS` where it cannot be done.
pub fn write_out(file: impl AsFd) -> io::Result<()> {
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: numbers only; the descriptor is borrowed.
    match unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), 0, 0, all) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::io::Write;

    /// A file of `pages` dirty pages, and whether cachestat is there.
    fn dirty_file(pages: u64) -> (tempfile::NamedTempFile, bool) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![7; (pages * page_bytes()) as usize]).unwrap();
        let offered = match cachestat(&file, 0, 0) {
            Ok(_) => true,
            Err(error) => {
                uvfs_skip::lacking(format_args!("cachestat: {error}"));
                false
            }
        };
        (file, offered)
    }

    #[test]
    fn written_pages_are_cached_and_stay_so_when_they_are_clean() {
        let (file, offered) = dirty_file(5);
        assert_eq!(mincore(&file, 5 * page_bytes()).unwrap(), 5);
        assert_eq!(mincore(&file, 4 * page_bytes() + 1).unwrap(), 5, "the last one in part");
        assert_eq!(mincore(&file, 0).unwrap(), 0);
        if offered {
            assert_eq!(cachestat(&file, 0, 0).unwrap().cached, 5);
            assert_eq!(cachestat(&file, page_bytes(), 2 * page_bytes()).unwrap().cached, 2);
            write_out(&file).unwrap();
            let clean = cachestat(&file, 0, 0).unwrap();
            assert_eq!((clean.dirty, clean.writeback), (0, 0), "{clean:?}");
            assert_eq!(clean.cached, 5);
        }
    }

    #[test]
    fn a_sparse_file_past_one_window_is_asked_in_windows() {
        let (file, _) = dirty_file(1);
        file.as_file().set_len(2 * WINDOW_BYTES + 1).unwrap();
        assert_eq!(mincore(&file, 2 * WINDOW_BYTES + 1).unwrap(), 1);
    }

    #[test]
    fn what_is_no_file_is_an_error() {
        let (reader, _writer) = io::pipe().unwrap();
        assert!(mincore(&reader, 1).is_err());
        assert!(write_out(&reader).is_err());
        let folder = tempfile::tempdir().unwrap();
        let by_path =
            rustix::fs::open(folder.path(), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty());
        assert!(cachestat(by_path.unwrap(), 0, 0).is_err(), "a descriptor without a file");
    }

    #[test]
    fn an_empty_file_has_nothing() {
        let (file, offered) = dirty_file(0);
        let again = File::open(file.path()).unwrap();
        assert_eq!(fs::metadata(file.path()).unwrap().len(), 0);
        assert!(!offered || cachestat(again, 0, 0).unwrap() == Residency::default());
    }
}
