//! The cache of an image's metadata: blocks and runs of blocks.
//!
//! # Boundary
//! Sits between [`uvfs_ext`] and the caches in rows of [`uvfs_containers::set_associative`]; knows no structure. File
//! data bypasses it: the device fills the pages above directly.
//!
//! # Concurrency
//! A look-up takes one row's lock, and no lock is held while the device reads. If several threads need one block, one
//! of them reads it.
//!
//! # Why
//! The image does not change, so no entry is ever out of date. Blocks smaller than a page are kept by the page, with
//! their neighbours. The memory shares the budget ([`Tenant`]). A block is read in place, under a pin. Weakness: a walk
//! down an index pins a block for each level meanwhile.

use crate::lock_order;
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::ops::{Deref, Range};
use std::sync::Arc;
use uvfs_containers::set_associative::buffers::{Buffer, BufferCache, BufferClasses, Filling};
use uvfs_containers::set_associative::translations::{self, TranslationCache};
use uvfs_ext::{Block, Blocks, Image, Inode, Place, Result, Run, Source};
use uvfs_vfs::Tenant;

/// The least that is kept of the device at a time.
const UNIT_BYTES_MIN: u32 = 4096;
/// Offsets that are mapped at once, at least: the range of one entry of the translations.
const WINDOW: u64 = 256;

/// The part of the memory for runs. It is allocated at the start, and never returned.
const RUNS_PART: usize = 64;

const CLASSES: BufferClasses = BufferClasses {
    rows: &lock_order::IMAGE_ROWS,
    free: &lock_order::IMAGE_FRAMES,
    waits: &lock_order::IMAGE_WAITS,
};

/// Both caches of one image.
#[derive(Debug)]
pub(super) struct Cache {
    buffers: BufferCache,
    runs: TranslationCache,
}

impl Cache {
    /// Caches for blocks of `block_size` in at most about `bytes` bytes.
    pub(super) fn new(block_size: u32, bytes: usize) -> Result<Self> {
        let unit = block_size.max(UNIT_BYTES_MIN) as usize;
        let for_runs = bytes / RUNS_PART;
        let buffers = BufferCache::new(CLASSES, bytes - for_runs, unit)?;
        Ok(Self { buffers, runs: TranslationCache::new(&lock_order::IMAGE_RUNS, for_runs) })
    }

    /// Where the blocks `wanted` of a file lie, as [`Image::map`].
    pub(super) fn map(&self, image: &Image, inode: &Inode, wanted: Range<u64>) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        let mut at = wanted.start;
        while at < wanted.end {
            let run = self.run(image, inode, at, wanted.end)?;
            let into = at - run.logical;
            let place = match run.place {
                Place::At(block) => Place::At(block + into),
                _ => Place::Hole,
            };
            let length = (run.length - into).min(wanted.end - at);
            runs.push(Run { logical: at, length, place });
            at += length;
        }
        Ok(runs)
    }

    /// The run that block `at` of a file is in.
    fn run(&self, image: &Image, inode: &Inode, at: u64, end: u64) -> Result<Run> {
        let known = u32::try_from(at).ok().and_then(|at| self.runs.get(inode.number, at));
        if let Some(known) = known {
            let place = known.at.map_or(Place::Hole, |at| Place::At(at.get()));
            return Ok(Run { logical: known.first.into(), length: known.length.into(), place });
        }
        let first = at / WINDOW * WINDOW;
        let runs = image.map(inode, first..end.max(first + WINDOW))?;
        let covers = |run: &Run| at.checked_sub(run.logical).is_some_and(|into| into < run.length);
        let run = runs.into_iter().find(covers);
        let run = run.ok_or_else(|| std::io::Error::other("a map of blocks has a gap"))?;
        let narrow = u32::try_from(run.logical).ok().zip(u32::try_from(run.length).ok());
        if let Some(((first, length), at)) = narrow.zip(u32::try_from(at).ok()) {
            let place = match run.place {
                Place::At(block) => NonZeroU64::new(block),
                _ => None,
            };
            self.runs.insert(inode.number, at, translations::Run { first, length, at: place });
        }
        Ok(run)
    }

    /// For `uvfs stat`.
    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        let (buffers, runs) = (self.buffers.counts(), self.runs.counts());
        vec![
            ("buffer_rows", buffers.rows),
            ("buffer_frames", buffers.frames),
            ("buffer_bytes", buffers.bytes),
            ("buffer_hits", buffers.hits),
            ("buffer_misses", buffers.misses),
            ("buffer_waits", buffers.waits),
            ("buffer_evictions", buffers.evictions),
            ("buffer_overflows", buffers.overflows),
            ("buffer_failures", buffers.failures),
            ("run_rows", runs.rows),
            ("run_bytes", runs.bytes),
            ("run_hits", runs.hits),
            ("run_misses", runs.misses),
            ("run_evictions", runs.evictions),
        ]
    }
}

impl Tenant for Cache {
    fn held_bytes(&self) -> u64 {
        self.buffers.held_bytes() + self.runs.bytes()
    }

    fn shrink(&self, bytes: u64) {
        self.buffers.shrink(bytes);
    }
}

/// Blocks of a source, through a cache.
#[derive(Debug)]
pub(super) struct CachedBlocks {
    pub(super) cache: Arc<Cache>,
    pub(super) source: Arc<Source>,
}

/// Units that are read at once, at most.
const AHEAD_UNITS: usize = 64;

/// A block, in the buffer that it is a part of.
struct Pinned<'a> {
    buffer: Buffer<'a>,
    part: Range<usize>,
}

impl Deref for Pinned<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.part.clone()]
    }
}

impl CachedBlocks {
    /// Reads the claimed units, from `first` on, all at once. An unreadable unit is unclaimed afterwards.
    fn fill(&self, first: u64, mut claimed: Vec<Filling<'_>>) {
        let unit = self.cache.buffers.block_bytes() as u64;
        let mut into: Vec<_> =
            claimed.iter_mut().map(|filling| IoSliceMut::new(filling.bytes())).collect();
        if self.source.read_vectored(first * unit, &mut into).is_ok() {
            drop(into);
            claimed.into_iter().for_each(|filling| drop(filling.filled()));
        }
    }
}

impl Blocks for CachedBlocks {
    fn block(&self, number: u64) -> Result<Block<'_>> {
        let size = u64::from(self.source.block_size());
        let Some(offset) = number.checked_mul(size).filter(|at| *at < self.source.length()) else {
            return self.source.block(number);
        };
        let unit = self.cache.buffers.block_bytes() as u64;
        let start = offset / unit * unit;
        let read = |bytes: &mut [u8]| {
            // The last one may be cut off.
            let length = (self.source.length() - start).min(unit) as usize;
            let (inside, behind) = bytes.split_at_mut(length);
            behind.fill(0);
            self.source.read(start, inside)
        };
        match self.cache.buffers.get(offset / unit, read) {
            Ok(buffer) => {
                let at = (offset - start) as usize;
                Ok(Block::pinned(Pinned { buffer, part: at..at + size as usize }))
            }
            // The fault may be a neighbour's.
            Err(_) => self.source.block(number),
        }
    }

    fn read_ahead(&self, wanted: Range<u64>) {
        let (size, unit) = (self.source.block_size(), self.cache.buffers.block_bytes() as u64);
        let bytes = |block: u64| block.saturating_mul(size.into());
        // The last unit may be cut off; its readers bypass the cache.
        let end = bytes(wanted.end).div_ceil(unit).min(self.source.length() / unit);
        let mut claimed = Vec::new();
        for at in bytes(wanted.start) / unit..end {
            let filling = self.cache.buffers.try_claim(at);
            let (got, full) = (filling.is_some(), claimed.len() == AHEAD_UNITS);
            // Nothing is claimed for longer than it takes to read it.
            if (!got || full) && !claimed.is_empty() {
                let taken = std::mem::take(&mut claimed);
                self.fill(at - taken.len() as u64, taken);
            }
            claimed.extend(filling);
        }
        if !claimed.is_empty() {
            self.fill(end - claimed.len() as u64, claimed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ImageBackend, ImageConfig};
    use super::*;
    use std::path::Path;

    /// `None`, with a printed note, if images cannot be made here.
    fn made(place: &Path, options: &[&str]) -> Option<Arc<dyn uvfs_ext::Device>> {
        let path = place.join("disk.img");
        let mut make = std::process::Command::new("mke2fs");
        match make.args(["-q", "-F", "-t", "ext2"]).args(options).arg(&path).arg("8M").output() {
            Ok(made) => assert!(made.status.success(), "{made:?}"),
            Err(error) => {
                uvfs_skip::lacking(format_args!("mke2fs: {error}"));
                return None;
            }
        }
        Some(Arc::new(uvfs_ext::FileDevice::open(&path).unwrap()))
    }

    /// The caches had 16 MiB, also in a mount with `--cache-size 16M`, whose caches have less than that altogether.
    #[test]
    fn a_small_budget_has_small_caches_and_all_is_read_through_them() {
        let bytes = |budget| ImageConfig::within(budget).cache_bytes;
        assert_eq!([16 << 20, 512 << 20, u64::MAX].map(bytes), [2 << 20, 64 << 20, 64 << 20]);
        assert_eq!(ImageConfig::default(), ImageConfig::within(512 << 20));
        let place = tempfile::tempdir().unwrap();
        let Some(device) = made(place.path(), &["-b", "4096", "-I", "256", "-N", "8192"]) else {
            return;
        };
        let plain = Image::open(device.clone()).unwrap();
        let config = ImageConfig::within(4 << 20);
        let backend = ImageBackend::open(device, config.clone()).unwrap();
        let cache = backend.cache.as_ref().unwrap();
        for _ in 0..2 {
            for number in (1..=plain.superblock().inodes).step_by(16) {
                let about = |image: &Image| {
                    let inode = image.inode(number);
                    inode.map(|inode| (inode.mode(), inode.size(), inode.links())).ok()
                };
                assert_eq!(about(&backend.image), about(&plain), "inode {number}");
                assert!(cache.held_bytes() <= config.cache_bytes as u64);
            }
        }
        let counts = cache.buffers.counts();
        assert!(counts.frames * 4096 <= config.cache_bytes as u64, "{counts:?}");
        assert!(counts.evictions > 0 && counts.overflows == 0, "{counts:?}");
    }

    #[test]
    fn the_memory_is_within_what_was_allowed_and_is_counted() {
        for block_size in [1024, 4096, 65_536] {
            let cache = Cache::new(block_size, 8 << 20).unwrap();
            let named: std::collections::BTreeMap<_, _> = cache.counters().into_iter().collect();
            let unit = u64::from(block_size.max(4096));
            let most = cache.held_bytes() + named["buffer_frames"] * unit;
            assert!((6 << 20..=8 << 20).contains(&most), "{most} bytes, blocks of {block_size}");
            assert_eq!(cache.held_bytes(), named["buffer_bytes"] + named["run_bytes"]);
        }
    }

    /// Through the caches a file, its holes and its tables of blocks read the same as without them. The second time
    /// only data is read, also after most of the memory was returned in between.
    #[test]
    fn files_read_as_without_the_caches_and_what_was_read_is_not_read_again() {
        let place = tempfile::tempdir().unwrap();
        let tree = place.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        let large: Vec<u8> = (0..900_000_u32).map(|at| (at ^ at >> 9) as u8).collect();
        std::fs::write(tree.join("large"), &large).unwrap();
        let sparse = std::fs::File::create(tree.join("sparse")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"island", 1_500_000).unwrap();
        sparse.set_len(3_000_000).unwrap();
        let from = tree.to_str().expect("a plain path");
        let Some(device) = made(place.path(), &["-b", "1024", "-d", from]) else { return };
        let plain = Image::open(device.clone()).unwrap();
        let backend = ImageBackend::open(device, ImageConfig::default()).unwrap();
        let cache = backend.cache.clone().unwrap();
        let root = plain.inode(uvfs_ext::ROOT).unwrap();
        let read_all = || {
            for name in ["large", "sparse"] {
                let number = plain.lookup(&root, name.as_bytes()).unwrap().unwrap();
                assert_eq!(backend.image.lookup(&root, name.as_bytes()).unwrap(), Some(number));
                let inode = backend.image.inode(number).unwrap();
                for (offset, length) in [(0, 4096), (700_000, 300_000), (1_499_999, 8), (11_111, 1)]
                {
                    let [mut one, mut other] = [vec![1; length], vec![2; length]];
                    let without = plain.read(&inode, offset, &mut one).unwrap();
                    let map = |wanted| cache.map(&backend.image, &inode, wanted);
                    let with = backend.image.read_mapped(&inode, offset, &mut other, map).unwrap();
                    assert_eq!(without, with, "{name} from {offset}");
                    assert!(one[..with] == other[..with], "{name} from {offset}");
                }
            }
            (cache.buffers.counts(), cache.runs.counts())
        };
        let (blocks, runs) = read_all();
        assert!(blocks.misses > 0 && runs.misses > 0);
        let (blocks_again, runs_again) = read_all();
        assert_eq!((blocks_again.misses, runs_again.misses), (blocks.misses, runs.misses));
        assert!(blocks_again.hits > blocks.hits && runs_again.hits > runs.hits);
        let held = cache.held_bytes();
        cache.shrink(u64::MAX);
        assert!(cache.held_bytes() < held && cache.buffers.counts().overflows == 0);
        read_all();
    }

    /// Takes every entry, and requests attributes.
    #[derive(Default)]
    struct Taken(Vec<uvfs_vfs::Attributes>);

    impl uvfs_vfs::Listing for Taken {
        fn add_name(
            &mut self,
            name: uvfs_vfs::Name<'_>,
            _: uvfs_vfs::Cookie,
            _: u64,
            _: uvfs_vfs::FileKind,
        ) -> bool {
            panic!("{name:?} has no attributes");
        }

        fn add_entry(
            &mut self,
            _: uvfs_vfs::Name<'_>,
            _: uvfs_vfs::Cookie,
            entry: uvfs_vfs::Entry,
        ) -> bool {
            self.0.push(entry.attributes);
            true
        }
    }

    /// A listing with attributes read the inode tables block by block. Of a faulty place, too, the rest is read.
    #[test]
    fn the_inodes_of_a_directory_come_in_a_few_reads() {
        use uvfs_ext::device::testing::{Plan, Probe};
        use uvfs_vfs::{Backend, Cookie, FileRef, InodeId};
        let place = tempfile::tempdir().unwrap();
        let tree = place.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        for number in 0..600 {
            std::fs::write(tree.join(format!("file {number}")), [7]).unwrap();
        }
        let from = tree.to_str().expect("a plain path");
        for (block_size, inode_size) in [("1024", "128"), ("4096", "256")] {
            let options = ["-b", block_size, "-I", inode_size, "-N", "2000", "-d", from];
            if made(place.path(), &options).is_none() {
                return;
            }
            let path = place.path().join("disk.img");
            let device = uvfs_ext::MemoryDevice::new(std::fs::read(&path).unwrap());
            let (recorder, reads) = std::sync::mpsc::channel();
            let plan = Plan { recorder: Some(recorder), ..Plan::default() };
            let device = Arc::new(Probe::new(device, plan));
            let backend = ImageBackend::open(device, ImageConfig::default()).unwrap();
            let mut taken = Taken::default();
            let root = FileRef::unopened(InodeId::ROOT);
            backend.names().list(root, Cookie(0), &mut taken).unwrap();
            assert_eq!(taken.0.len(), 601, "with lost+found");
            let ranges: Vec<_> = reads.try_iter().collect();
            // Of 19 or 38 pages with inodes and of 6 with names, several come at once.
            assert!(ranges.len() <= 24, "{} reads: {ranges:?}", ranges.len());
            std::fs::remove_file(path).unwrap();
        }
    }

    /// The number of an object that a writer of the image has replaced since finds no object.
    #[test]
    fn an_id_of_another_generation_is_stale() {
        use uvfs_vfs::{Backend, Caller, Error, FileRef, InodeId, Name};
        let place = tempfile::tempdir().unwrap();
        if made(place.path(), &["-b", "4096"]).is_none() {
            return;
        }
        let device =
            uvfs_ext::MemoryDevice::new(std::fs::read(place.path().join("disk.img")).unwrap());
        let backend = ImageBackend::open(Arc::new(device), ImageConfig::default()).unwrap();
        let name = Name::new(b"lost+found").unwrap();
        let found = backend.names().lookup(&Caller::root(), InodeId::ROOT, name).unwrap();
        let (number, generation) = found.inode.parts();
        let ask =
            |id| backend.inodes().attributes(FileRef::unopened(id)).map(|answer| answer.number);
        assert_eq!(ask(found.inode).unwrap(), u64::from(number));
        let another = InodeId::of(number, generation.wrapping_add(1));
        assert!(matches!(ask(another), Err(Error::Stale)));
        assert!(ask(InodeId::ROOT).is_ok());
    }
}
