//! Where the data of a file lies: extents of any depth, and tables of blocks.
//!
//! # Boundary
//! `map(inode, blocks of the file) → runs`, and the nodes of a tree for those that change it, checked by the same rules. No
//! state, and the same answer for the same bytes.
//!
//! # Why
//! Every step is bounded by the bytes that it reads. A node's depth is one less than its parent's, its first key is the key
//! in its parent, and keys increase, so no node is read under two keys. Each run is checked against the system zone. A
//! table of blocks may be in one place of a file only: a table that names itself would be read n³ times, for n pointers.
//! Tables may name one block of data many times; no answer has more blocks than the volume. Weakness: because of that
//! bound, the map of a small file may cost as much as that of a large one.

use super::blocks::Block;
use super::checksum::crc32c;
use super::inode::Inode;
use super::layout::{Extent as RawExtent, ExtentHeader, ExtentIndex, view, views, word};
use crate::encode::extent::{Child, Entries, Extent};
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
    /// First block in the file.
    pub logical: u64,
    /// How many blocks.
    pub length: u64,
    /// Where they are.
    pub place: Place,
}

const MAGIC: u16 = 0xF30A;
const DEPTH_MAX: u16 = 5;
/// The stored length of an extent that was never written is above this.
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

/// The entries of a node, in which its head is right.
enum Checked<'a> {
    Leaf(&'a [RawExtent]),
    Inner(&'a [ExtentIndex]),
}

fn place_of(entry: &ExtentIndex) -> u64 {
    u64::from(entry.leaf_hi.get()) << 32 | u64::from(entry.leaf_lo.get())
}

fn root_depth(root: &Node<'_>) -> Result<u16> {
    match header(root)?.depth.get() {
        depth @ 0..=DEPTH_MAX => Ok(depth),
        _ => Err(root.fault("its tree of extents is too deep")),
    }
}

impl<'a> Node<'a> {
    /// The entries of a node `depth` levels above the leaves, whose parent says that it has the blocks `keys`.
    fn checked(&self, depth: u16, keys: &Range<u64>) -> Result<Checked<'a>> {
        let header = header(self)?;
        if header.depth.get() != depth {
            return Err(self.fault("a node of extents has the wrong depth"));
        }
        let count = usize::from(header.entries.get());
        let short = || self.fault("a node of extents is short");
        let (first, checked) = if depth == 0 {
            let extents: &[RawExtent] = views(self.bytes, 12, count).ok_or_else(short)?;
            (extents.first().map(|first| first.logical.get()), Checked::Leaf(extents))
        } else {
            let entries: &[ExtentIndex] = views(self.bytes, 12, count).ok_or_else(short)?;
            (entries.first().map(|first| first.logical.get()), Checked::Inner(entries))
        };
        let begins = match (self.block, first) {
            (None, None) => depth == 0,
            (None, Some(_)) => true,
            (Some(_), first) => first.map(u64::from) == Some(keys.start),
        };
        if !begins {
            return Err(self.fault("a node of extents does not begin where its parent says"));
        }
        Ok(checked)
    }

    /// The blocks of the file that entry `at` of an inner node leads to.
    fn child(&self, entries: &[ExtentIndex], at: usize, keys: &Range<u64>) -> Result<Range<u64>> {
        let key = |at: usize| entries.get(at).map(|entry| u64::from(entry.logical.get()));
        let start = key(at).unwrap_or(keys.end);
        let end = key(at + 1).unwrap_or(keys.end);
        if start >= end || end > keys.end {
            return Err(self.fault("the keys of a node of extents do not increase"));
        }
        Ok(start..end)
    }

    /// An extent of a leaf, which begins at or behind block `behind` of the file.
    fn extent(&self, raw: &RawExtent, behind: u64, keys: &Range<u64>) -> Result<Extent> {
        let stored = raw.length.get();
        let unwritten = stored > UNWRITTEN;
        let extent = Extent {
            logical: raw.logical.get(),
            start: u64::from(raw.start_hi.get()) << 32 | u64::from(raw.start_lo.get()),
            length: u32::from(stored - if unwritten { UNWRITTEN } else { 0 }),
            unwritten,
        };
        if extent.length == 0 || u64::from(extent.logical) < behind || extent.end() > keys.end {
            return Err(self.fault("extents overlap or are empty"));
        }
        Ok(extent)
    }

    /// All entries, checked.
    fn entries(&self, depth: u16, keys: &Range<u64>) -> Result<Entries> {
        match self.checked(depth, keys)? {
            Checked::Leaf(raw) => {
                let mut extents: Vec<Extent> = Vec::with_capacity(raw.len());
                for raw in raw {
                    let behind = extents.last().map_or(keys.start, Extent::end);
                    extents.push(self.extent(raw, behind, keys)?);
                }
                Ok(Entries::Leaf(extents))
            }
            Checked::Inner(raw) => {
                let child = |at| {
                    let start = self.child(raw, at, keys)?.start;
                    Ok(Child { logical: start as u32, block: place_of(&raw[at]) })
                };
                let children: Result<Vec<_>> = (0..raw.len()).map(child).collect();
                Ok(Entries::Inner(depth, children?))
            }
        }
    }

    fn fault(&self, what: &str) -> Error {
        let error = Error::corrupt(what);
        match self.block {
            Some(block) => error.at_block(block),
            None => error,
        }
    }
}

/// Collects runs in order and fills the gaps between them with holes.
struct Runs {
    wanted: Range<u64>,
    at: u64,
    /// Blocks that may still follow: no file has more than the volume.
    budget: u64,
    runs: Vec<Run>,
}

/// State of a caller that passes over a file window by window.
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

/// Ranges that cover `blocks` of a file in order. The first are small, because the wanted block is mostly near. Later
/// ones are larger, so that the longest possible file takes some thousands of steps.
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

    /// Maps one of several windows of a file, as [`Image::map`] maps a range.
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

    /// Maps the whole file, as [`Image::map`] a range; calls `node` with each block that the map itself takes.
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
            return self.extents(inode, &root, root_depth(&root)?, 0..END, runs, seen);
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
        match node.checked(depth, &keys)? {
            Checked::Leaf(extents) => self.leaf(node, extents, keys, runs),
            Checked::Inner(entries) => {
                for at in 0..entries.len() {
                    let child = node.child(entries, at, &keys)?;
                    if child.end <= runs.wanted.start {
                        continue;
                    }
                    if child.start >= runs.wanted.end {
                        break;
                    }
                    let place = place_of(&entries[at]);
                    let block = self.extent_node(inode, node, place)?;
                    seen(place);
                    runs.spend(1)?;
                    let below = Node { bytes: &block, block: Some(place) };
                    self.extents(inode, &below, depth - 1, child, runs, seen)?;
                }
                Ok(())
            }
        }
    }

    fn leaf(
        &self,
        node: &Node<'_>,
        extents: &[RawExtent],
        keys: Range<u64>,
        runs: &mut Runs,
    ) -> Result<()> {
        let mut behind = keys.start;
        for raw in extents {
            let extent = node.extent(raw, behind, &keys)?;
            let (logical, length) = (u64::from(extent.logical), u64::from(extent.length));
            behind = extent.end();
            if behind <= runs.wanted.start {
                continue;
            }
            if logical >= runs.wanted.end {
                break;
            }
            let (start, end) = (extent.start, extent.start + length);
            self.usable(start..end).map_err(|what| node.fault(&what))?;
            let place = if extent.unwritten { Place::Unwritten(start) } else { Place::At(start) };
            runs.push(logical, length, place)?;
        }
        Ok(())
    }

    /// The root of the tree of extents of `inode`, for those that change it.
    ///
    /// # Errors
    /// A root that cannot be.
    pub fn extent_root(&self, inode: &Inode) -> Result<Entries> {
        let root = Node { bytes: inode.block(), block: None };
        let entries = root_depth(&root).and_then(|depth| root.entries(depth, &(0..END)));
        entries.map_err(|error| error.in_inode(inode.number))
    }

    /// The node of the tree of extents of `inode` at block `place`, `depth` levels above the leaves, whose parent says that it
    /// has the blocks `keys` of the file.
    ///
    /// # Errors
    /// Those of [`Image::map`]: another depth, keys out of order or out of their range, an empty node, a place outside the
    /// volume or in its own structures, a wrong checksum.
    pub fn extent_entries(
        &self,
        inode: &Inode,
        place: u64,
        depth: u16,
        keys: &Range<u64>,
    ) -> Result<Entries> {
        let read = || {
            let parent = Node { bytes: &[], block: None };
            let block = self.extent_node(inode, &parent, place)?;
            Node { bytes: &block, block: Some(place) }.entries(depth, keys)
        };
        read().map_err(|error| error.in_inode(inode.number))
    }

    /// Whether data may lie in `run`, which is not empty; otherwise why not.
    ///
    /// # Errors
    /// Blocks outside the volume, or of the file system itself.
    pub fn usable(&self, run: Range<u64>) -> std::result::Result<(), String> {
        let superblock = self.superblock();
        if !superblock.has(run.start) || run.end > superblock.blocks {
            return Err(format!("blocks {} to {} are outside the volume", run.start, run.end - 1));
        }
        if self.own().iter().any(|own| own.start < run.end && run.start < own.end) {
            return Err(format!("block {} belongs to the journal", run.start));
        }
        match self.groups().metadata_in(run, superblock, self.blocks()) {
            Some(block) => Err(format!("block {block} belongs to the file system itself")),
            None => Ok(()),
        }
    }

    /// A node of extents that `parent` leads to, once its place and checksum were checked.
    fn extent_node(&self, inode: &Inode, parent: &Node<'_>, place: u64) -> Result<Block<'_>> {
        self.usable(place..place + 1).map_err(|what| parent.fault(&what))?;
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

    /// Follows `pointer` of `node`: to a block of data, or to `levels` tables above it.
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

    #[test]
    fn nodes_come_back_as_they_went_and_no_others() {
        let extent =
            |logical, start, length, unwritten| Extent { logical, start, length, unwritten };
        let leaf = vec![
            extent(0, 7, 32768, false),
            extent(40_000, 0xFFFF_1234_5678, 32767, true),
            extent(u32::MAX, 9, 1, true),
        ];
        let children: Vec<_> =
            (0..4).map(|at| Child { logical: 5 + at, block: 0xABCD_0000_0001 }).collect();
        let read = |entries: &Entries, depth, keys: Range<u64>, block| {
            let mut bytes = [0xEE; 60];
            crate::encode::extent::encode(entries, &mut bytes);
            Node { bytes: &bytes, block }.entries(depth, &keys)
        };
        let (leaf, inner) = (Entries::Leaf(leaf), Entries::Inner(3, children.clone()));
        for (entries, depth) in [(&leaf, 0), (&inner, 3), (&Entries::Leaf(Vec::new()), 0)] {
            assert_eq!(read(entries, depth, 0..END, None).unwrap(), *entries);
        }
        assert_eq!(read(&inner, 3, 5..9, Some(1)).unwrap(), inner);
        // Another depth, another beginning, an end that is too early, nothing in a node that is no root.
        assert!(read(&inner, 2, 5..9, Some(1)).is_err());
        assert!(read(&inner, 3, 4..9, Some(1)).is_err());
        assert!(read(&inner, 3, 5..8, Some(1)).is_err());
        assert!(read(&leaf, 0, 0..END - 1, Some(1)).is_err());
        assert!(read(&Entries::Leaf(Vec::new()), 0, 0..9, Some(1)).is_err());
        assert!(read(&Entries::Inner(1, Vec::new()), 1, 0..END, None).is_err());
        // Out of order, or one behind the other.
        let reversed: Vec<_> = children.into_iter().rev().collect();
        assert!(read(&Entries::Inner(1, reversed), 1, 0..END, None).is_err());
        let over = Entries::Leaf(vec![extent(3, 7, 5, false), extent(7, 20, 2, false)]);
        assert!(read(&over, 0, 0..END, None).is_err());
    }

    /// A file claimed 2^63 bytes. The search for its data took 2^37 steps, in a thread that other threads wait for.
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
