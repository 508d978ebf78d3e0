//! Where the data of a file lies: extents of any depth, and tables of blocks.
//!
//! # Boundary
//! `map(inode, blocks of the file) → runs` and nothing else: no state, and the same answer for the same bytes.
//!
//! # Why
//! Every step is bounded by the bytes that it reads: a node's depth is one less than its parent's, its first key is the
//! one that its parent names, keys increase, so that no node is met twice by two keys. Each run is looked up in the system
//! zone before it is believed. A table of blocks is in one place of a file: one that named itself was as many as it has pointers, to the third
//! power. Tables may name one block of data many times; no answer has more blocks than the volume.
//! Weakness: that bound is the volume's, so a small file's map may cost as much as a large one's.

use super::blocks::Block;
use super::checksum::crc32c;
use super::inode::Inode;
use super::layout::{Extent, ExtentHeader, ExtentIndex, view, views, word};
use crate::error::{Error, Result};
use crate::image::Image;
use std::collections::HashMap;
use std::ops::Range;

/// Where a run of a file's blocks is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On the volume, from this block on.
    At(u64),
    /// Allocated, and never written: zeros.
    Unwritten(u64),
    /// Nowhere: zeros.
    Hole,
}

/// A run of blocks of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Its first block in the file.
    pub logical: u64,
    /// How many blocks.
    pub length: u64,
    /// Where they are.
    pub place: Place,
}

const MAGIC: u16 = 0xF30A;
const DEPTH_MAX: u16 = 5;
/// What an extent's length is above if it was never written.
const UNWRITTEN: u16 = 32768;
/// One more than the last block that a file can have.
pub(crate) const END: u64 = 1 << 32;
/// Where files share blocks, how many times the volume one may have.
const SHARED_TIMES: u64 = 16;

/// A node of a tree, with where it lies, for messages.
struct Node<'a> {
    bytes: &'a [u8],
    block: Option<u64>,
}

impl Node<'_> {
    fn fault(&self, what: &str) -> Error {
        let error = Error::corrupt(what);
        match self.block {
            Some(block) => error.at_block(block),
            None => error,
        }
    }
}

/// Collects runs in order and fills what is between them with holes.
struct Runs {
    wanted: Range<u64>,
    at: u64,
    /// Blocks that may still be met: no file has more than the volume.
    budget: u64,
    runs: Vec<Run>,
}

/// What was met of one file by those who pass over it window by window.
#[derive(Debug, Default)]
pub struct Passed {
    /// Where in the file each of its tables of blocks begins.
    tables: HashMap<u64, u64>,
}

impl Runs {
    fn new(wanted: Range<u64>, image: &Image) -> Self {
        let superblock = image.superblock();
        let times = if superblock.features.shared_blocks() { SHARED_TIMES } else { 1 };
        Self { at: wanted.start, wanted, budget: superblock.blocks * times, runs: Vec::new() }
    }

    /// Takes `blocks` from the budget.
    fn spend(&mut self, blocks: u64) -> Result<()> {
        let rest = self.budget.checked_sub(blocks);
        self.budget = rest.ok_or_else(|| Error::corrupt("it has more blocks than the volume"))?;
        Ok(())
    }

    fn push(&mut self, logical: u64, length: u64, place: Place) -> Result<()> {
        let start = logical.max(self.wanted.start);
        let end = (logical + length).min(self.wanted.end);
        if start >= end {
            return Ok(());
        }
        self.spend(end - start)?;
        self.hole_up_to(start);
        let skipped = start - logical;
        let place = match place {
            Place::At(block) => Place::At(block + skipped),
            Place::Unwritten(block) => Place::Unwritten(block + skipped),
            Place::Hole => Place::Hole,
        };
        self.add(Run { logical: start, length: end - start, place });
        self.at = end;
        Ok(())
    }

    fn hole_up_to(&mut self, end: u64) {
        if self.at < end {
            self.add(Run { logical: self.at, length: end - self.at, place: Place::Hole });
            self.at = end;
        }
    }

    fn add(&mut self, run: Run) {
        if let Some(last) = self.runs.last_mut() {
            let follows = match (last.place, run.place) {
                (Place::At(before), Place::At(block))
                | (Place::Unwritten(before), Place::Unwritten(block)) => {
                    before + last.length == block
                }
                (Place::Hole, Place::Hole) => true,
                _ => false,
            };
            if follows {
                last.length += run.length;
                return;
            }
        }
        self.runs.push(run);
    }
}

/// Ranges that pass over `blocks` of a file one after the other: small ones first, because what is sought is mostly near,
/// then larger ones, so that a file that claims all blocks it can is passed in some thousands of steps.
pub fn windows(blocks: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    const FIRST: u64 = 1 << 10;
    const MOST: u64 = 1 << 20;
    let (mut at, mut length) = (blocks.start, FIRST);
    std::iter::from_fn(move || {
        let window = at..blocks.end.min(at.saturating_add(length));
        (at, length) = (window.end, MOST.min(length * 4));
        (!window.is_empty()).then_some(window)
    })
}

impl Image {
    /// Where the blocks `wanted` of a file lie: runs in order that cover exactly these, holes included.
    ///
    /// # Errors
    /// Where the map contradicts itself, leaves the volume, or leads into metadata.
    pub fn map(&self, inode: &Inode, wanted: Range<u64>) -> Result<Vec<Run>> {
        self.map_on(inode, wanted, &mut Passed::default())
    }

    /// As [`Image::map`], for one of several windows of a file.
    ///
    /// # Errors
    /// As [`Image::map`]; where tables are in two places, also of two windows.
    pub fn map_on(
        &self,
        inode: &Inode,
        wanted: Range<u64>,
        passed: &mut Passed,
    ) -> Result<Vec<Run>> {
        let mut runs = Runs::new(wanted, self);
        self.map_into(inode, &mut runs, passed, &mut |_| {})
            .map_err(|error| error.in_inode(inode.number))?;
        runs.hole_up_to(runs.wanted.end);
        Ok(runs.runs)
    }

    /// As [`Image::map`] over the whole file; tells `node` each block that the map itself takes.
    pub(crate) fn map_whole(&self, inode: &Inode, node: &mut dyn FnMut(u64)) -> Result<Vec<Run>> {
        let mut runs = Runs::new(0..u64::MAX >> 1, self);
        self.map_into(inode, &mut runs, &mut Passed::default(), node)
            .map_err(|error| error.in_inode(inode.number))?;
        Ok(runs.runs)
    }

    fn map_into(
        &self,
        inode: &Inode,
        runs: &mut Runs,
        passed: &mut Passed,
        seen: &mut dyn FnMut(u64),
    ) -> Result<()> {
        if inode.is_inline() {
            return Ok(());
        }
        if inode.has_extents() {
            let root = Node { bytes: inode.block(), block: None };
            let depth = header(&root)?.depth.get();
            if depth > DEPTH_MAX {
                return Err(root.fault("its tree of extents is too deep"));
            }
            return self.extents(inode, &root, depth, 0..END, runs, seen);
        }
        self.table(inode, (runs, passed), seen)
    }

    fn extents(
        &self,
        inode: &Inode,
        node: &Node<'_>,
        depth: u16,
        keys: Range<u64>,
        runs: &mut Runs,
        seen: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let header = header(node)?;
        if header.depth.get() != depth {
            return Err(node.fault("a node of extents has the wrong depth"));
        }
        let count = usize::from(header.entries.get());
        let short = || node.fault("a node of extents is short");
        let is_root = node.block.is_none();
        if depth == 0 {
            let extents: &[Extent] = views(node.bytes, 12, count).ok_or_else(short)?;
            if !is_root
                && extents.first().is_none_or(|first| u64::from(first.logical.get()) != keys.start)
            {
                return Err(node.fault("a node of extents does not begin where its parent says"));
            }
            return self.leaf(node, extents, keys, runs);
        }
        let entries: &[ExtentIndex] = views(node.bytes, 12, count).ok_or_else(short)?;
        let key = |at: usize| entries.get(at).map(|entry| u64::from(entry.logical.get()));
        if count == 0 || (!is_root && key(0) != Some(keys.start)) {
            return Err(node.fault("a node of extents does not begin where its parent says"));
        }
        for (at, entry) in entries.iter().enumerate() {
            let start = u64::from(entry.logical.get());
            let end = key(at + 1).unwrap_or(keys.end);
            if start >= end || end > keys.end {
                return Err(node.fault("the keys of a node of extents do not increase"));
            }
            if end <= runs.wanted.start {
                continue;
            }
            if start >= runs.wanted.end {
                break;
            }
            let place = u64::from(entry.leaf_hi.get()) << 32 | u64::from(entry.leaf_lo.get());
            self.usable(place..place + 1).map_err(|what| node.fault(&what))?;
            let block = self.extent_node(inode, place)?;
            seen(place);
            runs.spend(1)?;
            let child = Node { bytes: &block, block: Some(place) };
            self.extents(inode, &child, depth - 1, start..end, runs, seen)?;
        }
        Ok(())
    }

    fn leaf(
        &self,
        node: &Node<'_>,
        extents: &[Extent],
        keys: Range<u64>,
        runs: &mut Runs,
    ) -> Result<()> {
        let mut behind = keys.start;
        for extent in extents {
            let logical = u64::from(extent.logical.get());
            let written = extent.length.get() <= UNWRITTEN;
            let length = extent.length.get() - if written { 0 } else { UNWRITTEN };
            let start = u64::from(extent.start_hi.get()) << 32 | u64::from(extent.start_lo.get());
            if length == 0 || logical < behind || logical + u64::from(length) > keys.end {
                return Err(node.fault("extents overlap or are empty"));
            }
            behind = logical + u64::from(length);
            if behind <= runs.wanted.start {
                continue;
            }
            if logical >= runs.wanted.end {
                break;
            }
            self.usable(start..start + u64::from(length)).map_err(|what| node.fault(&what))?;
            let place = if written { Place::At(start) } else { Place::Unwritten(start) };
            runs.push(logical, u64::from(length), place)?;
        }
        Ok(())
    }

    /// Whether data may lie in `run`; otherwise why not.
    pub(crate) fn usable(&self, run: Range<u64>) -> std::result::Result<(), String> {
        let superblock = self.superblock();
        if !superblock.has(run.start) || run.end > superblock.blocks {
            return Err(format!("blocks {} to {} are outside the volume", run.start, run.end - 1));
        }
        match self.groups().metadata_in(run, superblock, self.blocks()) {
            Some(block) => Err(format!("block {block} belongs to the file system itself")),
            None => Ok(()),
        }
    }

    /// A node of extents whose checksum is right.
    fn extent_node(&self, inode: &Inode, place: u64) -> Result<Block<'_>> {
        if !self.superblock().features.metadata_checksum() {
            return self.blocks().block(place);
        }
        self.blocks().checked(place, &|block| {
            let header: &ExtentHeader = view(block, 0)
                .ok_or_else(|| Error::corrupt("a node of extents is short").at_block(place))?;
            let end = 12 + 12 * usize::from(header.entries_max.get());
            let stored = word(block, end);
            let sum = block.get(..end).map(|bytes| crc32c(inode.seed(), bytes));
            let what = "the checksum of a node of extents is wrong";
            match stored.is_some() && stored == sum {
                true => Ok(()),
                false => Err(Error::corrupt(what).at_block(place)),
            }
        })
    }

    /// Twelve blocks, and three tables of one to three levels.
    fn table(
        &self,
        inode: &Inode,
        (runs, passed): (&mut Runs, &mut Passed),
        seen: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let root = Node { bytes: inode.block(), block: None };
        let per_block = u64::from(self.superblock().block_size / 4);
        let mut logical = 0;
        for slot in 0..15 {
            let levels = match slot {
                0..12 => 0,
                slot => slot as u32 - 11,
            };
            let covered = per_block.pow(levels);
            if logical >= runs.wanted.end {
                break;
            }
            if logical + covered > runs.wanted.start {
                let pointer = u64::from(word(root.bytes, 4 * slot).unwrap_or(0));
                self.pointer(&root, pointer, (levels, logical), (runs, passed), seen)?;
            }
            logical += covered;
        }
        Ok(())
    }

    /// What `pointer` of `node` leads to: a block of data, or `levels` tables above it.
    fn pointer(
        &self,
        node: &Node<'_>,
        pointer: u64,
        (levels, logical): (u32, u64),
        (runs, passed): (&mut Runs, &mut Passed),
        seen: &mut dyn FnMut(u64),
    ) -> Result<()> {
        if pointer == 0 {
            return Ok(());
        }
        self.usable(pointer..pointer + 1).map_err(|what| node.fault(&what))?;
        if levels == 0 {
            return runs.push(logical, 1, Place::At(pointer));
        }
        if passed.tables.insert(pointer, logical).is_some_and(|before| before != logical) {
            return Err(node.fault("a table of its blocks is in two places"));
        }
        let block = self.blocks().block(pointer)?;
        seen(pointer);
        runs.spend(1)?;
        let table = Node { bytes: &block, block: Some(pointer) };
        let covered = u64::from(self.superblock().block_size / 4).pow(levels - 1);
        for (at, start) in (0..block.len() / 4).zip((logical..).step_by(covered as usize)) {
            if start >= runs.wanted.end {
                break;
            }
            if start + covered > runs.wanted.start {
                let pointer = u64::from(word(&block, 4 * at).unwrap_or(0));
                self.pointer(&table, pointer, (levels - 1, start), (runs, passed), seen)?;
            }
        }
        Ok(())
    }
}

fn header<'a>(node: &Node<'a>) -> Result<&'a ExtentHeader> {
    let header: Option<&ExtentHeader> = view(node.bytes, 0);
    let header = header.ok_or_else(|| node.fault("a node of extents is short"))?;
    let room = (node.bytes.len() - 12) / 12;
    if header.magic.get() != MAGIC {
        return Err(node.fault("a node of extents has no magic number"));
    }
    let max = usize::from(header.entries_max.get());
    if usize::from(header.entries.get()) > max || max > room {
        return Err(node.fault("a node of extents has more entries than room"));
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file said that it has 2^63 bytes, and looking for its data took 2^37 steps, in a thread that others wait for.
    #[test]
    fn the_longest_file_is_passed_in_some_thousands_of_steps() {
        let mut at = 7;
        let mut steps = 0;
        for window in windows(7..END) {
            assert_eq!(window.start, at);
            (at, steps) = (window.end, steps + 1);
        }
        assert!(at == END && steps < 5000, "{steps} steps to {at}");
        assert_eq!(windows(5..5).count(), 0);
        assert_eq!(windows(0..1).next(), Some(0..1));
    }
}
