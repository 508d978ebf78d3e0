//! Blocks reserved for data that waits in the caches of a caller (delayed allocation).
//!
//! # Boundary
//! A caller that keeps written data reserves its blocks first ([`Volume::reserve`]), writes it later
//! ([`Volume::write_back`]), or gives the blocks back ([`Volume::unreserve`]). [`super::groups`] counts reserved blocks as
//! taken for all others.
//!
//! ```text
//!   hole ──reserve──▶ reserved ──claim: one handle allocates, attaches──▶ mapped
//!    ▲                   │  ▲                    │
//!    └──unreserve, cut,──┘  └──the handle fails──┘
//!       punch, delete; an allocation that is not the reserved one
//! ```
//! R1. `reserved` of the totals is the sum of all inodes' blocks and nodes, and free blocks that wait for no commit are at
//!     least as many. So a claim finds its blocks. (A group that turns out to be damaged breaks this.)
//! R2. An inode's blocks are holes of its map. They are added under its lock, shared, and that of its shard; all other
//!     changes, and all changes of its map, are made under its lock alone.
//! R3. A handle that allocates reserved blocks takes them out of the totals in the same step, and an undo puts both back. The
//!     inode's list follows before its lock is released.
//! R4. An inode's nodes are enough to attach its blocks one by one, in any order ([`nodes_for`]), and stay reserved until the
//!     extent is attached. The number is made anew when blocks are added; when blocks are claimed it only falls.
//!
//! # Why
//! The writer of data hears that the volume is full, not the thread that writes back. Overwritten and preallocated blocks
//! reserve nothing: an overwrite works without a node. Weakness: most files need fewer nodes than are reserved.

use super::Volume;
use super::flags::may_change;
use super::tree::{DEPTH_MAX, ROOT_ENTRIES};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::ops::Range;
use uvfs_concurrent::primitive::atomic::Ordering::Relaxed;
use uvfs_ext::encode::extent::capacity;
use uvfs_ext::{Inode, Place, windows};

/// Bytes of a range in memory, with its part of the tree's nodes.
const RANGE_BYTES: u64 = 32;

/// The blocks that one inode has reserved.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    /// Blocks of the file, as ranges that do not touch: start and end.
    ranges: BTreeMap<u64, u64>,
    /// How many those are.
    blocks: u64,
    /// Blocks for nodes of its tree.
    nodes: u64,
}

impl Reserved {
    /// The ranges that touch `range`, in order.
    fn touching(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.ranges.range(..range.start).next_back();
        let from = before.filter(|(_, end)| **end > range.start).map_or(range.start, |(at, _)| *at);
        self.ranges.range(from..range.end.max(from)).map(|(start, end)| *start..*end)
    }

    /// Blocks of `range` that are not reserved.
    fn missing(&self, range: &Range<u64>) -> u64 {
        let here = |one: Range<u64>| one.end.min(range.end) - one.start.max(range.start);
        range.end - range.start - self.touching(range).map(here).sum::<u64>()
    }

    fn add(&mut self, range: Range<u64>) {
        self.blocks += self.missing(&range);
        // One block more on each side: neighbours become one range.
        let wide = range.start.saturating_sub(1)..range.end + 1;
        let near: Vec<_> = self.touching(&wide).collect();
        let start = near.first().map_or(range.start, |first| first.start.min(range.start));
        let end = near.last().map_or(range.end, |last| last.end.max(range.end));
        for one in near {
            self.ranges.remove(&one.start);
        }
        self.ranges.insert(start, end);
    }

    /// Removes `range`; returns how many blocks of it were reserved.
    fn remove(&mut self, range: &Range<u64>) -> u64 {
        let mut removed = 0;
        for one in self.touching(range).collect::<Vec<_>>() {
            self.ranges.remove(&one.start);
            if one.start < range.start {
                self.ranges.insert(one.start, range.start);
            }
            if one.end > range.end {
                self.ranges.insert(range.end, one.end);
            }
            removed += one.end.min(range.end) - one.start.max(range.start);
        }
        self.blocks -= removed;
        removed
    }

    fn bytes(&self) -> u64 {
        size_of::<Self>() as u64 + self.ranges.len() as u64 * RANGE_BYTES
    }
}

/// Nodes that a tree may need for `new` more extents, attached one by one at any places. Its root has `entries`, at `depth`; a
/// node has at most `capacity`.
///
/// A node is split when it is full. The halves have half of that at least, and only the last node of a level has less
/// ([`super::tree`]). So `w` nodes and `n` new entries make at most `w + n/half + 2` new nodes, and never more than `n`.
fn nodes_for((depth, entries): (u16, u64), new: u64, capacity: u64) -> u64 {
    let half = capacity.div_ceil(2);
    let (mut depth, mut entries, mut new, mut total) = (depth, entries, new, 0);
    for level in 0..=DEPTH_MAX {
        new = if level < depth {
            // Nodes of this level, at most.
            let width = entries.saturating_mul(capacity.saturating_pow((depth - 1 - level).into()));
            new.min(width.saturating_add(new / half + 2))
        } else {
            let all = entries + new;
            if all <= ROOT_ENTRIES as u64 {
                break;
            }
            // The root moves into nodes of this level, and begins anew above them.
            (depth, entries) = (level + 1, 0);
            if all <= capacity { 1 } else { all / half + 2 }
        };
        total += new;
    }
    total
}

/// The depth of an inode's tree and the entries of its root.
fn root_of(inode: &Inode) -> (u16, u64) {
    let bytes = inode.block_bytes();
    let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    (number(6), number(2).into())
}

impl Volume {
    /// Reserves blocks for the holes in `range` of a file, all or none: [`Volume::write_back`] of these bytes does not fail
    /// for lack of space. Blocks that are reserved already are not counted twice. A commit is made if it can bring the blocks.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; refusals of [`Volume::write`] that need no device; [`Error::Ended`].
    pub fn reserve(&self, number: u32, range: Range<u64>) -> Result<()> {
        if let Some(ended) = self.store.failure() {
            return Err(Error::Ended(ended.why));
        }
        let size = u64::from(self.image.superblock().block_size);
        let blocks = range.start / size..range.end.div_ceil(size);
        if blocks.end > super::data::END {
            return Err(Error::TooLarge);
        }
        if self.with_reserved(number, |of| of.as_ref().is_some_and(|of| of.missing(&blocks) == 0)) {
            return Ok(());
        }
        let node = self.node(number);
        let _state = node.state.read();
        let inode = self.file(number)?;
        if range.start < inode.size() {
            may_change(&inode)?;
        }
        let mut holes = Vec::new();
        for window in windows(blocks) {
            let runs = self.image.map(&inode, window)?.into_iter();
            let runs = runs.filter(|run| run.place == Place::Hole);
            holes.extend(runs.map(|run| run.logical..run.logical + run.length));
        }
        if holes.is_empty() || self.add_reserved(&inode, &holes) {
            return Ok(());
        }
        if self.groups.space.has_waiting() {
            self.sync()?;
            if self.add_reserved(&inode, &holes) {
                return Ok(());
            }
        }
        Err(Error::NoSpace)
    }

    /// Bytes of `range` will not be written: their blocks are not reserved any more.
    pub fn unreserve(&self, number: u32, range: Range<u64>) {
        if self.with_reserved(number, |of| of.is_none()) {
            return;
        }
        let size = u64::from(self.image.superblock().block_size);
        let node = self.node(number);
        let _state = node.state.write();
        self.drop_reserved(number, range.start.div_ceil(size)..range.end / size);
    }

    /// Reserves `holes` of a locked inode; false if there are too few blocks (R2).
    fn add_reserved(&self, inode: &Inode, holes: &[Range<u64>]) -> bool {
        let block_size = self.image.superblock().block_size as usize;
        self.with_reserved(inode.number, |of| {
            let known = of.get_or_insert_default();
            let new = holes.iter().map(|hole| known.missing(hole)).sum::<u64>();
            let blocks = known.blocks + new;
            let nodes = nodes_for(root_of(inode), blocks, capacity(block_size) as u64);
            let before = known.blocks + known.nodes;
            let fits = if blocks + nodes > before {
                self.groups.space.reserve(blocks + nodes - before)
            } else {
                self.groups.space.unreserve(before - blocks - nodes);
                true
            };
            if fits {
                known.nodes = nodes;
                holes.iter().for_each(|hole| known.add(hole.clone()));
            }
            fits
        })
    }

    /// The beginning of `range`, which is a hole of a locked inode, that is reserved, or that is not; and which of both.
    pub(super) fn reserved_part(&self, number: u32, range: Range<u64>) -> (bool, Range<u64>) {
        let first = self.with_reserved(number, |of| of.as_ref()?.touching(&range).next());
        match first {
            Some(first) if first.start <= range.start => {
                (true, range.start..first.end.min(range.end))
            }
            Some(first) => (false, range.start..first.start.min(range.end)),
            None => (false, range),
        }
    }

    /// Blocks that a locked inode has reserved for nodes.
    pub(super) fn reserved_nodes(&self, number: u32) -> u64 {
        self.with_reserved(number, |of| of.as_ref().map_or(0, |of| of.nodes))
    }

    /// A handle has allocated `blocks`, which `inode` had reserved, and attached them. Of the reserved nodes it left `nodes`
    /// (R3, R4).
    pub(super) fn claimed(&self, inode: &Inode, blocks: Range<u64>, nodes: u64) {
        let block_size = self.image.superblock().block_size as usize;
        self.with_reserved(inode.number, |of| {
            let Some(known) = of else { return };
            known.remove(&blocks);
            let most = nodes_for(root_of(inode), known.blocks, capacity(block_size) as u64);
            known.nodes = nodes.min(most);
            self.groups.space.unreserve(nodes - known.nodes);
        });
    }

    /// Other extents of a locked inode were added: its reserved blocks may need more nodes. If there are none, the kept ones
    /// serve.
    pub(super) fn renew_nodes(&self, inode: &Inode) {
        let block_size = self.image.superblock().block_size as usize;
        self.with_reserved(inode.number, |of| {
            let Some(known) = of else { return };
            let nodes = nodes_for(root_of(inode), known.blocks, capacity(block_size) as u64);
            if nodes > known.nodes && self.groups.space.reserve(nodes - known.nodes) {
                known.nodes = nodes;
            }
        });
    }

    /// Blocks of a locked inode are not reserved any more.
    pub(super) fn drop_reserved(&self, number: u32, blocks: Range<u64>) {
        if blocks.is_empty() {
            return;
        }
        self.with_reserved(number, |of| {
            let Some(known) = of else { return };
            let removed = known.remove(&blocks);
            let nodes = if known.blocks == 0 { std::mem::take(&mut known.nodes) } else { 0 };
            self.groups.space.unreserve(removed + nodes);
        });
    }

    /// Calls `work` with the blocks that an inode has reserved. None are left: none are kept.
    fn with_reserved<R>(
        &self,
        number: u32,
        work: impl FnOnce(&mut Option<Box<Reserved>>) -> R,
    ) -> R {
        let mut shard = self.inodes.of_hash(super::spread(number)).lock();
        let Some(known) = shard.known.get_mut(&number) else { return work(&mut None) };
        let bytes = |of: &Option<Box<Reserved>>| of.as_ref().map_or(0, |of| of.bytes());
        let before = bytes(&known.reserved);
        let done = work(&mut known.reserved);
        known.reserved.take_if(|of| of.blocks + of.nodes == 0);
        let now = bytes(&known.reserved);
        if now != before {
            // ORDERING: Relaxed, both; a size for budgets.
            self.reserved_bytes.fetch_add(now, Relaxed);
            self.reserved_bytes.fetch_sub(before, Relaxed);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(of: &Reserved) -> Vec<(u64, u64)> {
        of.ranges.iter().map(|(start, end)| (*start, *end)).collect()
    }

    #[test]
    fn ranges_join_and_are_cut() {
        let mut of = Reserved::default();
        for range in [10..20, 30..40, 20..25, 5..6, 26..28] {
            of.add(range);
        }
        assert_eq!((ranges(&of), of.blocks), (vec![(5, 6), (10, 25), (26, 28), (30, 40)], 28));
        assert_eq!(of.missing(&(0..100)), 72);
        of.add(24..31);
        assert_eq!((ranges(&of), of.blocks), (vec![(5, 6), (10, 40)], 31));
        assert_eq!((of.missing(&(12..13)), of.missing(&(8..12)), of.missing(&(40..42))), (0, 2, 2));
        assert_eq!((of.remove(&(15..18)), of.remove(&(15..19)), of.remove(&(0..6))), (3, 1, 1));
        assert_eq!((ranges(&of), of.blocks), (vec![(10, 15), (19, 40)], 26));
        assert_eq!(of.remove(&(0..u64::MAX)), 26);
        assert!(of.ranges.is_empty());
    }

    /// What a tree of this shape may need, by trying: entries are inserted where they hurt most.
    #[test]
    fn a_bound_holds_for_trees_that_are_filled_in_bad_orders() {
        assert_eq!(nodes_for((0, 0), 4, 84), 0);
        assert_eq!(nodes_for((0, 4), 1, 84), 1, "the root's own extents count");
        assert_eq!(nodes_for((0, 0), 85, 84), 4);
        for (capacity, count) in [(4, 300), (7, 1000), (84, 3000)] {
            for order in 0..4 {
                let mut keys: Vec<u64> = (0..count).collect();
                match order {
                    0 => {}
                    1 => keys.reverse(),
                    2 => keys.sort_by_key(|key| key.reverse_bits()),
                    _ => keys.sort_by_key(|key| key.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
                }
                let mut tree = Model { levels: vec![vec![Vec::new()]], capacity };
                let mut bounds = Vec::new();
                for (at, key) in keys.iter().enumerate() {
                    let left = count - at as u64;
                    bounds.push(tree.nodes() + nodes_for(tree.root(), left, capacity));
                    tree.insert(*key);
                }
                let used = tree.nodes();
                let low = bounds.iter().min();
                assert!(low.is_some_and(|low| *low >= used), "{capacity} {order}: {low:?} {used}");
            }
        }
    }

    /// A tree of keys alone: `levels[0]` are its leaves, the last level is the root.
    struct Model {
        levels: Vec<Vec<Vec<u64>>>,
        capacity: u64,
    }

    impl Model {
        fn root(&self) -> (u16, u64) {
            let root = self.levels.last().expect("there is a root");
            (self.levels.len() as u16 - 1, root[0].len() as u64)
        }

        fn nodes(&self) -> u64 {
            self.levels[..self.levels.len() - 1].iter().map(|level| level.len() as u64).sum()
        }

        fn insert(&mut self, key: u64) {
            let mut new = key;
            for level in 0..self.levels.len() {
                let is_root = level + 1 == self.levels.len();
                let nodes = &mut self.levels[level];
                let at = nodes.partition_point(|node| node.first().is_some_and(|one| *one <= key));
                let at = at.saturating_sub(1);
                let node = &mut nodes[at];
                let place = node.partition_point(|one| *one < new);
                node.insert(place, new);
                let at_end = place + 1 == node.len();
                if is_root {
                    if node.len() > ROOT_ENTRIES {
                        let first = node[0];
                        self.levels.push(vec![vec![first]]);
                    }
                    return;
                }
                if node.len() as u64 <= self.capacity {
                    return;
                }
                let is_last = at + 1 == self.levels[level].len();
                let node = &mut self.levels[level][at];
                let cut = if is_last && at_end { self.capacity as usize } else { node.len() / 2 };
                let right = node.split_off(cut);
                new = right[0];
                self.levels[level].insert(at + 1, right);
            }
        }
    }
}
