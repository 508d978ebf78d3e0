//! A file or a block device that is written past the host's page cache (`O_DIRECT`).
//!
//! # Boundary
//! [`WritableFile`] has the lock, the claim, the refusals and the flush. This module turns any range into requests that the kernel
//! takes: whole sectors, in aligned memory.
//!
//! # Concurrency
//! D1. A write of a part of a sector reads the sector, changes it and writes it under the lock of the sector. So two writers of
//!     different bytes of a sector keep each other's bytes. Writes of whole sectors take no lock.
//! D2. A thread takes a buffer ([`pool`](super::pool)), then at most one lock of a sector. A thread with a lock waits for the device only.
//! D3. A sector that a crash tears loses no byte outside the written range: the other bytes are written as they were.
//! D4. If the file ends within a sector, its last page is written through the host's cache, because a direct write would lengthen the
//!     file. The kernel writes such a page before it reads or changes the same bytes directly.
//!
//! # Why
//! The host's pages of an image are a second copy that no budget bounds. Slices that are aligned go to the device from their place; others are
//! copied, several into one request. Weakness: a block that is smaller than a sector costs a read with each write.

use super::file::put_slices;
use super::pool::Pool;
use super::{DeviceCounts, WritableFile, WriteDevice, beyond, total};
use crate::lock_order::EXT_MEMORY;
use rustix::fs::{Advice, AtFlags, OFlags, StatxFlags};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_ext::Device;
use uvfs_ext::device::direct::{self, AlignedBuffer, PAGE};

/// Bytes of one request, at most.
const PIECE_MAX: usize = 1 << 20;
/// Aligned slices of so many bytes are worth a request of their own between slices that are copied.
const OWN_REQUEST: usize = 64 << 10;
/// Locks of sectors.
const SECTOR_LOCKS: usize = 64;
/// The share of the caches' memory that buffers may have, and its bounds.
const BUFFERS_SHARE: u64 = 16;
const BUFFERS_MIN: u64 = 256 << 10;
const BUFFERS_MAX: u64 = 8 << 20;
/// The largest sector: a buffer of the smallest pool holds one.
const SECTOR_MAX: usize = 64 << 10;
/// File systems whose files are pages of the host's cache and nothing else (`statfs`).
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58F6;

/// See the module.
#[derive(Debug)]
pub struct DirectFile {
    file: WritableFile,
    direct: File,
    /// Unit of places and lengths.
    sector: usize,
    /// Unit of addresses in memory.
    address: usize,
    /// The end of the bytes that are written directly (D4).
    end: u64,
    pool: Pool,
    sectors: Vec<Mutex<()>>,
    partial_writes: AtomicU64,
}

/// A file that stays with the host's page cache.
#[derive(Debug)]
pub struct NotDirect {
    /// The file.
    pub file: WritableFile,
    /// The reason.
    pub why: String,
}

/// How direct requests to `file` have to lie: units of places and of addresses.
fn units(file: &File) -> Result<(usize, usize), String> {
    let lacks = || "its file system has no direct access".to_owned();
    let about = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let found = match about {
        Ok(about) if about.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
            (about.stx_dio_offset_align as usize, about.stx_dio_mem_align as usize)
        }
        // An older kernel. A disk with larger sectors refuses the smaller request.
        _ => match probe(file, 512) {
            Ok(()) => (512, 512),
            Err(_) => (PAGE, PAGE),
        },
    };
    let (sector, address) = found;
    if !sector.is_power_of_two() || !address.is_power_of_two() {
        return Err(lacks());
    }
    if sector > SECTOR_MAX || address > PAGE {
        return Err(format!("its disk has sectors of {sector} bytes"));
    }
    // Some file systems let a file be opened and refuse its first read.
    match probe(file, sector) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(lacks()),
        Err(error) => Err(error.to_string()),
        Ok(()) => Ok(found),
    }
}

/// Reads the first bytes.
fn probe(file: &File, bytes: usize) -> io::Result<()> {
    direct::read_sectors(file, bytes, 0, &mut AlignedBuffer::new(bytes).bytes_mut()[..bytes])?;
    Ok(())
}

impl DirectFile {
    /// Writes `file`, which was opened at `path`, directly. Its buffers are a part of caches of `caches_bytes`.
    ///
    /// # Errors
    /// The file, unchanged, where the host has no direct access to it.
    pub fn new(
        file: WritableFile,
        path: impl AsRef<Path>,
        caches_bytes: u64,
    ) -> Result<Self, NotDirect> {
        match Self::open(&file, path.as_ref()) {
            Ok((direct, units)) => Ok(Self::with_units(file, direct, units, caches_bytes)),
            Err(why) => Err(NotDirect { file, why }),
        }
    }

    pub(super) fn with_units(
        file: WritableFile,
        direct: File,
        (sector, address): (usize, usize),
        caches_bytes: u64,
    ) -> Self {
        let length = file.length();
        let buffers_bytes = (caches_bytes / BUFFERS_SHARE).clamp(BUFFERS_MIN, BUFFERS_MAX);
        let sector_lock = || Mutex::new(&EXT_MEMORY, ());
        Self {
            direct,
            sector,
            address,
            end: match length.is_multiple_of(sector as u64) {
                true => length,
                false => length - length % sector.max(PAGE) as u64,
            },
            pool: Pool::new(buffers_bytes, PIECE_MAX),
            sectors: std::iter::repeat_with(sector_lock).take(SECTOR_LOCKS).collect(),
            partial_writes: AtomicU64::new(0),
            file,
        }
    }

    /// A second descriptor, for direct requests, and their units.
    pub(super) fn open(file: &WritableFile, path: &Path) -> Result<(File, (usize, usize)), String> {
        let words = |error: io::Error| error.to_string();
        let about = |file: &File| file.metadata().map_err(words);
        let ours = about(file.host())?;
        let system = rustix::fs::fstatfs(file.host()).map_err(|error| words(error.into()))?;
        // The node of a block device lies in /dev, which is in memory.
        if ours.is_file() && matches!(system.f_type as i64, TMPFS | RAMFS) {
            return Err("its file system is in memory".into());
        }
        let direct = direct::open(path, OFlags::RDWR).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => "its file system has no direct access".into(),
            _ => words(error),
        })?;
        let theirs = about(&direct)?;
        let identity = |of: &std::fs::Metadata| (of.dev(), of.ino(), of.rdev());
        if identity(&ours) != identity(&theirs) {
            return Err("another file took its place".into());
        }
        let units = units(&direct)?;
        // The pages of earlier users. They would stay until other programs need the memory.
        file.flush().map_err(words)?;
        let _ = rustix::fs::fadvise(file.host(), 0, None, Advice::DontNeed);
        // The host must not read ahead for the page of D4.
        let _ = rustix::fs::fadvise(file.host(), 0, None, Advice::Random);
        Ok((direct, units))
    }

    /// Writes the next bytes of `source` at `at`, up to `end` at most. Returns how many.
    fn write_piece(&self, at: u64, end: u64, source: &mut Source<'_>) -> io::Result<usize> {
        let sector = self.sector as u64;
        let body = ((end - at) / sector * sector).min(PIECE_MAX as u64) as usize;
        if !at.is_multiple_of(sector) || body == 0 {
            return self.write_part(at, end, source);
        }
        let aligned = source.aligned(body, self.sector, self.address);
        let bytes = total(&aligned) as usize;
        if bytes == body || bytes >= OWN_REQUEST {
            put_slices(&self.direct, at, &aligned, sector)?;
            source.skip(bytes);
            return Ok(bytes);
        }
        let bytes = source.until_aligned(body, self.sector, self.address);
        let mut buffer = self.pool.take(bytes);
        let bytes = bytes.min(buffer.len());
        source.fill(&mut buffer[..bytes]);
        put_slices(&self.direct, at, &[IoSlice::new(&buffer[..bytes])], sector)?;
        Ok(bytes)
    }

    /// Writes a part of one sector.
    fn write_part(&self, at: u64, end: u64, source: &mut Source<'_>) -> io::Result<usize> {
        let skipped = (at % self.sector as u64) as usize;
        let bytes = (end - at).min((self.sector - skipped) as u64) as usize;
        let start = at - skipped as u64;
        let mut buffer = self.pool.take(self.sector);
        let whole = &mut buffer[..self.sector];
        let lock = &self.sectors[(start / self.sector as u64) as usize % SECTOR_LOCKS];
        let _writing = lock.lock();
        if direct::read_sectors(&self.direct, self.sector, start, whole)? < whole.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        source.fill(&mut whole[skipped..skipped + bytes]);
        put_slices(&self.direct, start, &[IoSlice::new(whole)], self.sector as u64)?;
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        self.partial_writes.fetch_add(1, Relaxed);
        Ok(bytes)
    }

    /// Fills `into`, which is not aligned, from `at` on.
    fn read_copied(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            let (at, rest) = (at + done as u64, &mut into[done..]);
            let skipped = (at % self.sector as u64) as usize;
            let sectors = (skipped + rest.len()).next_multiple_of(self.sector);
            let mut buffer = self.pool.take(sectors);
            done += direct::read_through(&self.direct, self.sector, at, rest, &mut buffer)?;
        }
        Ok(())
    }
}

impl Device for DirectFile {
    fn length(&self) -> u64 {
        self.file.length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(into.len() as u64).is_none_or(|end| end > self.length()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let head = (offset.next_multiple_of(self.sector as u64) - offset) as usize;
        let body = into.len().saturating_sub(head) / self.sector * self.sector;
        let is_aligned = (into.as_ptr() as usize).wrapping_add(head).is_multiple_of(self.address);
        if body == 0 || !is_aligned {
            return self.read_copied(offset, into);
        }
        let (first, rest) = into.split_at_mut(head);
        let (whole, last) = rest.split_at_mut(body);
        self.read_copied(offset, first)?;
        let mut at = offset + head as u64;
        for piece in whole.chunks_mut(PIECE_MAX) {
            if direct::read_sectors(&self.direct, self.sector, at, piece)? < piece.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            at += piece.len() as u64;
        }
        self.read_copied(at, last)
    }
}

impl WriteDevice for DirectFile {
    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> io::Result<()> {
        let end = offset.checked_add(total(from)).filter(|end| *end <= self.length());
        let end = end.ok_or_else(beyond)?;
        self.check()?;
        let mut source = Source { slices: from, skipped: 0 };
        let mut at = offset;
        while at < end.min(self.end) {
            at += self.write_piece(at, end.min(self.end), &mut source)? as u64;
        }
        if at < end {
            put_slices(self.file.host(), at, &source.rest(), 1)?;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.file.flush()
    }

    fn check(&self) -> io::Result<()> {
        self.file.check()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.file.discard(offset, length)
    }

    fn counts(&self) -> DeviceCounts {
        let (buffer_bytes, buffer_waits) = self.pool.counts();
        // ORDERING: Relaxed; as in `write_part`.
        let partial_writes = self.partial_writes.load(Relaxed);
        DeviceCounts { is_direct: true, buffer_bytes, buffer_waits, partial_writes }
    }
}

/// The bytes of some slices that are not written yet.
struct Source<'s> {
    slices: &'s [IoSlice<'s>],
    /// Bytes of the first slice that are.
    skipped: usize,
}

impl<'s> Source<'s> {
    /// The slices from here on.
    fn each(&self) -> impl Iterator<Item = &'s [u8]> + use<'s> {
        let (slices, skipped) = (self.slices, self.skipped);
        let first = slices.first().map(|first| &first[skipped..]);
        let others = slices.get(1..).unwrap_or_default().iter().map(|slice| &**slice);
        first.into_iter().chain(others).filter(|slice| !slice.is_empty())
    }

    /// All of them.
    fn rest(&self) -> Vec<IoSlice<'s>> {
        self.each().map(IoSlice::new).collect()
    }

    /// The first slices that a direct request takes as they are, with `bytes_max` bytes at most.
    fn aligned(&self, bytes_max: usize, sector: usize, address: usize) -> Vec<IoSlice<'s>> {
        let (mut found, mut left) = (Vec::new(), bytes_max);
        for slice in self.each() {
            let bytes = slice.len().min(left) / sector * sector;
            if bytes == 0 || !(slice.as_ptr() as usize).is_multiple_of(address) {
                break;
            }
            found.push(IoSlice::new(&slice[..bytes]));
            left -= bytes;
            if bytes < slice.len() {
                break;
            }
        }
        found
    }

    /// How many bytes to copy: up to `bytes_max`, or to a slice that is worth a request of its own.
    fn until_aligned(&self, bytes_max: usize, sector: usize, address: usize) -> usize {
        let mut bytes = 0_usize;
        for slice in self.each() {
            let is_aligned = (slice.as_ptr() as usize).is_multiple_of(address);
            let is_worth = slice.len() >= OWN_REQUEST && bytes > 0;
            if is_worth && is_aligned && bytes.is_multiple_of(sector) {
                break;
            }
            bytes += slice.len();
        }
        bytes.min(bytes_max)
    }

    /// Fills `into` with the next bytes.
    fn fill(&mut self, into: &mut [u8]) {
        let mut done = 0;
        for slice in self.each() {
            let bytes = slice.len().min(into.len() - done);
            into[done..done + bytes].copy_from_slice(&slice[..bytes]);
            done += bytes;
        }
        self.skip(done);
    }

    fn skip(&mut self, bytes: usize) {
        self.skipped += bytes;
        while let Some(first) = self.slices.first()
            && self.skipped >= first.len()
        {
            self.skipped -= first.len();
            self.slices = &self.slices[1..];
        }
    }
}
