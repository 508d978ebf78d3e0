//! Finding a name through a directory's index: two levels of it, three with `large_dir`.
//!
//! # Boundary
//! From the hash of a name to the blocks that may hold it. Entries are read by [`super::directory`].
//!
//! # Why
//! A lookup in a directory of 10,000 names reads three blocks instead of two hundred. Names of one hash may continue in the
//! next block; the lowest bit of that block's hash says so. Every step moves forward in the index, so a search ends.

use super::directory::{index_offset, limit_and_count};
use super::hash::{HashVersion, hash};
use super::inode::Inode;
use super::layout::{IndexEntry, IndexRoot, view, views};
use crate::error::{Error, Result};
use crate::image::Image;

/// Blocks that names of one hash may run on into: tens of thousands of names. An index that names itself has as many as it
/// has entries, to the third power.
const LEAVES_MAX: usize = 1024;

/// The highest bits of a block's number were meant for something else, and mean nothing.
const BLOCK_BITS: u32 = 0x0FFF_FFFF;

/// One node on the way down.
struct Frame {
    entries: Vec<IndexEntry>,
    at: usize,
}

impl Frame {
    fn block(&self) -> u64 {
        u64::from(self.entries[self.at].block.get() & BLOCK_BITS)
    }
}

impl Image {
    /// The inode that `name` means in an indexed directory; the outer `None` where this index cannot be searched.
    pub(crate) fn lookup_indexed(
        &self,
        directory: &Inode,
        name: &[u8],
    ) -> Result<Option<Option<u32>>> {
        let place = self.directory_place(directory, 0)?;
        let root = self.directory_block(directory, place, 0)?;
        let fault = |what: &str| Error::corrupt(what).at_block(place);
        let head: &IndexRoot =
            view(&root, 24).ok_or_else(|| fault("the root of an index is short"))?;
        let unsigned = self.superblock().raw.flags.get() & 2 != 0;
        let Some((version, unsigned)) = HashVersion::from_disk(head.hash_version, unsigned) else {
            return Ok(None);
        };
        let levels_max = if self.superblock().features.large_dir() { 2 } else { 1 };
        if head.levels > levels_max || head.length != 8 || head.reserved.get() != 0 {
            return Err(fault("the root of an index has a head that cannot be"));
        }
        let seed = self.superblock().raw.hash_seed.map(|word| word.get());
        let hash = hash(version, unsigned, seed, name);
        // One leaf is nearly always enough, so the path to it is not recorded.
        let (leaf, runs_on) = self.first_leaf(directory, &root, (place, head.levels), hash)?;
        let found = self.find_in_leaf(directory, leaf, name)?;
        if found.is_some() || !runs_on {
            return Ok(Some(found));
        }
        let mut frames = vec![self.frame(directory, 0, Some(hash))?];
        while frames.len() <= usize::from(head.levels) {
            let logical = frames[frames.len() - 1].block();
            frames.push(self.frame(directory, logical, Some(hash))?);
        }
        for _ in 0..LEAVES_MAX {
            let logical = frames[frames.len() - 1].block();
            if let Some(found) = self.find_in_leaf(directory, logical, name)? {
                return Ok(Some(Some(found)));
            }
            if !self.next_leaf(directory, &mut frames, hash)? {
                return Ok(Some(None));
            }
        }
        Err(fault("an index has more blocks for one hash than there can be"))
    }

    /// The leaf that has names of `hash` first, and whether they run on behind it, from the root of the index at `place` with
    /// so many levels below it.
    fn first_leaf(
        &self,
        directory: &Inode,
        root: &[u8],
        (place, levels): (u64, u8),
        hash: u32,
    ) -> Result<(u64, bool)> {
        let (mut leaf, mut behind) = self.step(directory, root, (place, 0), hash)?;
        for _ in 0..levels {
            let place = self.directory_place(directory, leaf)?;
            let node = self.directory_block(directory, place, leaf)?;
            let (below, next) = self.step(directory, &node, (place, leaf), hash)?;
            (leaf, behind) = (below, next.or(behind));
        }
        Ok((leaf, behind == Some(hash | 1)))
    }

    /// Where the node at (place, block of the directory) leads for `hash`, and the hash of the entry behind that one.
    fn step(
        &self,
        directory: &Inode,
        node: &[u8],
        (place, logical): (u64, u64),
        hash: u32,
    ) -> Result<(u64, Option<u32>)> {
        let entries = self.index_entries(directory, node, (place, logical))?;
        let at = entries[1..].partition_point(|entry| entry.hash.get() <= hash);
        let below = u64::from(entries[at].block.get() & BLOCK_BITS);
        Ok((below, entries.get(at + 1).map(|entry| entry.hash.get())))
    }

    /// Moves to the next leaf, if names of `hash` run on into it.
    fn next_leaf(&self, directory: &Inode, frames: &mut Vec<Frame>, hash: u32) -> Result<bool> {
        let levels = frames.len();
        let Some(level) = frames.iter().rposition(|frame| frame.at + 1 < frame.entries.len())
        else {
            return Ok(false);
        };
        let frame = &mut frames[level];
        frame.at += 1;
        if frame.entries[frame.at].hash.get() != hash | 1 {
            return Ok(false);
        }
        frames.truncate(level + 1);
        while frames.len() < levels {
            let logical = frames[frames.len() - 1].block();
            frames.push(self.frame(directory, logical, None)?);
        }
        Ok(true)
    }

    /// The node at block `logical`, at the entry for `hash`, or at its first.
    fn frame(&self, directory: &Inode, logical: u64, hash: Option<u32>) -> Result<Frame> {
        let place = self.directory_place(directory, logical)?;
        let block = self.directory_block(directory, place, logical)?;
        let entries = self.index_entries(directory, &block, (place, logical))?;
        let at = match hash {
            Some(hash) => entries[1..].partition_point(|entry| entry.hash.get() <= hash),
            None => 0,
        };
        Ok(Frame { entries: entries.to_vec(), at })
    }

    /// The entries of the node at (place, block of the directory), at least one.
    fn index_entries<'b>(
        &self,
        directory: &Inode,
        block: &'b [u8],
        (place, logical): (u64, u64),
    ) -> Result<&'b [IndexEntry]> {
        let fault = |what: &str| Error::corrupt(what).at_block(place);
        let offset = index_offset(self, directory, block, logical);
        let offset = offset.ok_or_else(|| fault("an index leads to a block that is none of it"))?;
        let (limit, count) =
            limit_and_count(block, offset).ok_or_else(|| fault("a node of an index is short"))?;
        let tail = if self.superblock().features.metadata_checksum() { 8 } else { 0 };
        if limit != (block.len() - offset - tail) / 8 || count == 0 || count > limit {
            return Err(fault("a node of an index has a count that cannot be"));
        }
        views(block, offset, count).ok_or_else(|| fault("a node of an index is short"))
    }

    fn find_in_leaf(&self, directory: &Inode, logical: u64, name: &[u8]) -> Result<Option<u32>> {
        let place = self.directory_place(directory, logical)?;
        let block = self.directory_block(directory, place, logical)?;
        // Without checksums, a leaf whose names are all gone is one free entry and looks like a node.
        let sums = self.superblock().features.metadata_checksum();
        let node = sums && index_offset(self, directory, &block, logical).is_some();
        if logical == 0 || node {
            return Err(Error::corrupt("an index leads to its own node").at_block(place));
        }
        self.find_entry(&block, name).map_err(|error| error.at_block(place))
    }
}
