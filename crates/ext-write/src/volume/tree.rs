//! Trees of extents, changed at any depth.
//!
//! # Why
//! Every change uses one method: a leaf's extents are changed as a list, and the resulting nodes, none, one or more, replace the
//! leaf in its parent, and so on up to the root. A key equals the key of the first entry below it; e2fsck requires that.

use super::groups::From;
use super::undo::Op;
use crate::error::{Error, Result};
use crate::store::Role;
use std::ops::Range;
use uvfs_ext::Inode;
use uvfs_ext::encode::extent::{Child, Entries, Extent, capacity, encode, seal};

/// Entries of the root, which lies in the inode.
pub(super) const ROOT_ENTRIES: usize = 4;
pub(super) const DEPTH_MAX: u16 = 5;
/// The blocks that a file can have.
pub(super) const ALL: Range<u64> = 0..1 << 32;

/// The extents of an inode that has none.
pub(super) fn empty_root() -> [u8; 60] {
    let mut root = [0; 60];
    encode(&Entries::Leaf(Vec::new()), &mut root);
    root
}

/// Where a list that is too long is cut: behind `most` entries if it grew at the end of the file.
fn cut_at(length: usize, most: usize, at_end: bool) -> usize {
    if at_end { most } else { length / 2 }
}

fn pieces<T: Clone>(list: Vec<T>, most: usize, at_end: bool) -> Vec<Vec<T>> {
    if list.len() <= most {
        return if list.is_empty() { Vec::new() } else { vec![list] };
    }
    let (left, right) = list.split_at(cut_at(list.len(), most, at_end));
    vec![left.to_vec(), right.to_vec()]
}

fn key(entries: &Entries) -> u32 {
    match entries {
        Entries::Leaf(extents) => extents.first().map_or(0, |extent| extent.logical),
        Entries::Inner(_, children) => children.first().map_or(0, |child| child.logical),
    }
}

/// Which of the children, which increase and of which there is one at least, has block `logical` of the file.
fn child_for(children: &[Child], logical: u64) -> usize {
    children[1..].partition_point(|child| u64::from(child.logical) <= logical)
}

/// The blocks of the file that child `at` of a node has which has `keys`.
fn keys_of(children: &[Child], at: usize, keys: &Range<u64>) -> Range<u64> {
    let end = children.get(at + 1).map_or(keys.end, |next| next.logical.into());
    children[at].logical.into()..end
}

/// Puts `new` into a sorted list, joined with its neighbours where they go on.
fn insert(extents: &mut Vec<Extent>, new: Extent) {
    let at = extents.partition_point(|extent| extent.logical < new.logical);
    extents.insert(at, new);
    for left in [at, at.wrapping_sub(1)] {
        if let (Some(one), Some(next)) = (extents.get(left), extents.get(left.wrapping_add(1)))
            && let Some(joined) = one.joined(next)
        {
            extents[left] = joined;
            extents.remove(left + 1);
        }
    }
}

/// The part of an extent that lies in `range` of the file, and the parts before and behind it.
fn split(extent: &Extent, range: &Range<u64>) -> (Option<Extent>, Option<Extent>, Option<Extent>) {
    let part = |from: u64, to: u64| {
        (from < to).then(|| Extent {
            logical: from as u32,
            start: extent.start + (from - u64::from(extent.logical)),
            length: (to - from) as u32,
            unwritten: extent.unwritten,
        })
    };
    let (start, end) = (u64::from(extent.logical), extent.end());
    let (from, to) = (range.start.clamp(start, end), range.end.clamp(start, end));
    (part(start, from), part(from, to), part(to, end))
}

impl Op<'_> {
    /// Adds an extent where there is none.
    pub(super) fn insert_extent(&mut self, inode: &mut Inode, extent: Extent) -> Result<()> {
        self.edit_leaf(inode, extent.logical, &mut |extents| insert(extents, extent))
    }

    /// Marks `range` as written; all of it lies in one extent that was not.
    pub(super) fn mark_written(&mut self, inode: &mut Inode, range: Range<u64>) -> Result<()> {
        self.edit_leaf(inode, range.start as u32, &mut |extents| {
            let found = extents.iter().position(|extent| extent.end() > range.start);
            let Some(at) = found else { return };
            let extent = extents.remove(at);
            let (before, within, behind) = split(&extent, &range);
            for part in [before, behind].into_iter().flatten() {
                insert(extents, part);
            }
            if let Some(within) = within {
                insert(extents, Extent { unwritten: false, ..within });
            }
        })
    }

    /// Removes `range` from the tree, at most the last `most` extents of one leaf; returns them. Nothing if there
    /// is nothing.
    pub(super) fn remove_extents(
        &mut self,
        inode: &mut Inode,
        range: Range<u64>,
        most: usize,
    ) -> Result<Vec<Extent>> {
        let Some(last) = self.last_extent_before(inode, range.end)? else { return Ok(Vec::new()) };
        if last.end() <= range.start {
            return Ok(Vec::new());
        }
        let mut removed = Vec::new();
        self.edit_leaf(inode, last.logical, &mut |extents| {
            let mut kept = Vec::new();
            for extent in extents.iter().rev() {
                let (before, within, behind) = split(extent, &range);
                match within {
                    Some(within) if removed.len() < most => {
                        removed.push(within);
                        kept.extend(behind);
                        kept.extend(before);
                    }
                    _ => kept.push(*extent),
                }
            }
            kept.reverse();
            *extents = kept;
        })?;
        Ok(removed)
    }

    /// The last extent that begins before block `end` of the file.
    pub(super) fn last_extent_before(&self, inode: &Inode, end: u64) -> Result<Option<Extent>> {
        let Some(last) = end.checked_sub(1) else { return Ok(None) };
        let (mut entries, mut keys) = (self.volume.image.extent_root(inode)?, ALL);
        loop {
            match entries {
                Entries::Leaf(extents) => {
                    let before = extents.partition_point(|one| u64::from(one.logical) < end);
                    return Ok(extents[..before].last().copied());
                }
                Entries::Inner(depth, children) => {
                    if u64::from(children[0].logical) > last {
                        return Ok(None);
                    }
                    let at = child_for(&children, last);
                    keys = keys_of(&children, at, &keys);
                    entries = self.node(inode, children[at].block, depth - 1, &keys)?;
                }
            }
        }
    }

    /// A node below an inner one, checked by the rules of reading: a tree that breaks them costs its inode.
    fn node(&self, inode: &Inode, place: u64, depth: u16, keys: &Range<u64>) -> Result<Entries> {
        Ok(self.volume.image.extent_entries(inode, place, depth, keys)?)
    }

    fn edit_leaf(
        &mut self,
        inode: &mut Inode,
        logical: u32,
        change: &mut dyn FnMut(&mut Vec<Extent>),
    ) -> Result<()> {
        let root = self.volume.image.extent_root(inode)?;
        let depth = match &root {
            Entries::Leaf(_) => 0,
            Entries::Inner(depth, _) => *depth,
        };
        let mut parts = self.edit(inode, (root, ALL, true), usize::MAX, logical, change)?;
        let mut root = parts.pop().unwrap_or(Entries::Leaf(Vec::new()));
        let count = match &root {
            Entries::Leaf(extents) => extents.len(),
            Entries::Inner(_, children) => children.len(),
        };
        if count > ROOT_ENTRIES {
            if depth == DEPTH_MAX {
                return Err(Error::NoSpace);
            }
            let block = self.new_node(inode, &root)?;
            root = Entries::Inner(depth + 1, vec![Child { logical: key(&root), block }]);
        } else if let Entries::Inner(depth, children) = &root
            && let [only] = children[..]
        {
            let below = self.node(inode, only.block, depth - 1, &keys_of(children, 0, &ALL))?;
            let few = match &below {
                Entries::Leaf(extents) => extents.len() <= ROOT_ENTRIES,
                Entries::Inner(_, children) => children.len() <= ROOT_ENTRIES,
            };
            if few {
                self.free_node(inode, only.block)?;
                root = below;
            }
        }
        let mut bytes = [0; 60];
        encode(&root, &mut bytes);
        inode.set_block(bytes);
        Ok(())
    }

    /// The nodes that replace `entries` when the leaf for `logical` below them is changed: nodes of at most `most` entries.
    /// `is_last`: no node of the level is behind them. Only there a full node stays full when it is split, because a file
    /// grows at its end. Elsewhere both halves get as much: [`super::reserve`] counts on it.
    fn edit(
        &mut self,
        inode: &mut Inode,
        (entries, keys, is_last): (Entries, Range<u64>, bool),
        most: usize,
        logical: u32,
        change: &mut dyn FnMut(&mut Vec<Extent>),
    ) -> Result<Vec<Entries>> {
        match entries {
            Entries::Leaf(mut extents) => {
                change(&mut extents);
                let at_end = is_last && extents.last().is_some_and(|last| logical >= last.logical);
                let parts = pieces(extents, most, at_end);
                Ok(parts.into_iter().map(Entries::Leaf).collect())
            }
            Entries::Inner(depth, mut children) => {
                let at = child_for(&children, logical.into());
                let at_end = is_last && at + 1 == children.len();
                let (place, keys) = (children[at].block, keys_of(&children, at, &keys));
                let below = self.node(inode, place, depth - 1, &keys)?;
                let size = self.volume.image.superblock().block_size as usize;
                let parts =
                    self.edit(inode, (below, keys, at_end), capacity(size), logical, change)?;
                let mut places = vec![place];
                for part in parts.iter().skip(1) {
                    places.push(self.new_node(inode, part)?);
                }
                match parts.first() {
                    Some(first) => self.put_node(inode, place, first)?,
                    None => self.free_node(inode, place)?,
                }
                let new = parts.iter().zip(places);
                let new = new.map(|(part, block)| Child { logical: key(part), block });
                children.splice(at..=at, new);
                let parts = pieces(children, most, at_end);
                Ok(parts.into_iter().map(|children| Entries::Inner(depth, children)).collect())
            }
        }
    }

    fn node_bytes(&self, inode: &Inode, entries: &Entries) -> Vec<u8> {
        let superblock = self.volume.image.superblock();
        let mut bytes = vec![0; superblock.block_size as usize];
        encode(entries, &mut bytes);
        if superblock.features.metadata_checksum() {
            seal(inode, &mut bytes);
        }
        bytes
    }

    fn put_node(&mut self, inode: &Inode, place: u64, entries: &Entries) -> Result<()> {
        let new = self.node_bytes(inode, entries);
        self.modify(place, Role::Inodes, |bytes| bytes.copy_from_slice(&new))
    }

    fn new_node(&mut self, inode: &mut Inode, entries: &Entries) -> Result<u64> {
        let goal = self.volume.home_of(inode.number);
        let from = if self.nodes > 0 { From::Reserved } else { From::Kept };
        let place = self.allocate(goal, 1, from)?.start;
        self.nodes = self.nodes.saturating_sub(1);
        let bytes = self.node_bytes(inode, entries);
        self.make(place, Role::Inodes, bytes);
        self.add_blocks(inode, 1)?;
        Ok(place)
    }

    fn free_node(&mut self, inode: &mut Inode, place: u64) -> Result<()> {
        self.free_metadata(place..place + 1)?;
        self.add_blocks(inode, -1)
    }

    /// Counts blocks that an inode takes.
    pub(super) fn add_blocks(&mut self, inode: &mut Inode, blocks: i64) -> Result<()> {
        let per_block = i64::from(self.volume.image.superblock().block_size / 512);
        let sectors = inode.sectors().saturating_add_signed(blocks * per_block);
        Ok(inode.set_sectors(sectors)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(logical: u32, start: u64, length: u32) -> Extent {
        Extent { logical, start, length, unwritten: false }
    }

    #[test]
    fn extents_join_on_both_sides() {
        let mut list = vec![extent(0, 100, 5), extent(6, 106, 4)];
        insert(&mut list, extent(5, 105, 1));
        assert_eq!(list, [extent(0, 100, 10)]);
        insert(&mut list, extent(20, 500, 1));
        insert(&mut list, extent(19, 300, 1));
        assert_eq!(list, [extent(0, 100, 10), extent(19, 300, 1), extent(20, 500, 1)]);
    }

    #[test]
    fn an_extent_is_split_by_a_range() {
        let one = extent(10, 100, 10);
        assert_eq!(
            split(&one, &(12..15)),
            (Some(extent(10, 100, 2)), Some(extent(12, 102, 3)), Some(extent(15, 105, 5)))
        );
        assert_eq!(split(&one, &(0..99)), (None, Some(one), None));
        assert_eq!(split(&one, &(20..30)), (Some(one), None, None));
    }
}
