//! Nodes of extent trees. They are read by `crate::format::map`.

use super::{halves, put_half, put_word};
use crate::format::checksum::crc32c;
use crate::format::inode::Inode;

const MAGIC: u16 = 0xF30A;
const HEAD: usize = 12;
const ENTRY: usize = 12;
/// The stored length of an extent that was never written is above this.
const UNWRITTEN: u16 = 32768;
/// The longest extent, written and never written.
const LENGTH_MAX: [u32; 2] = [32768, 32767];

/// An extent of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First block in the file.
    pub logical: u32,
    /// First block on the volume.
    pub start: u64,
    /// How many blocks.
    pub length: u32,
    /// Allocated, and never written.
    pub unwritten: bool,
}

impl Extent {
    /// The most blocks that an extent can have.
    pub fn length_max(unwritten: bool) -> u32 {
        LENGTH_MAX[usize::from(unwritten)]
    }

    /// One more than its last block in the file.
    pub fn end(&self) -> u64 {
        u64::from(self.logical) + u64::from(self.length)
    }

    /// Both as one, if `next` begins where this extent ends, in the file and on the volume.
    pub fn joined(&self, next: &Extent) -> Option<Extent> {
        let follows = self.end() == u64::from(next.logical)
            && self.start + u64::from(self.length) == next.start
            && self.unwritten == next.unwritten;
        let length = self.length + next.length;
        (follows && length <= Self::length_max(self.unwritten))
            .then_some(Extent { length, ..*self })
    }
}

/// A child of an inner node: its first block in the file, and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Child {
    /// First block of the file that the child maps.
    pub logical: u32,
    /// Block of the child.
    pub block: u64,
}

/// The entries of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entries {
    /// A leaf.
    Leaf(Vec<Extent>),
    /// A node so many levels above the leaves.
    Inner(u16, Vec<Child>),
}

/// How many entries a node of `bytes` bytes has room for.
pub fn capacity(bytes: usize) -> usize {
    (bytes - HEAD) / ENTRY
}

/// Writes a node over `bytes`: the sixty of an inode, or a block, which [`seal`] completes.
///
/// # Panics
/// With more entries than [`capacity`], or extents longer than [`Extent::length_max`].
pub fn encode(entries: &Entries, bytes: &mut [u8]) {
    let (count, depth) = match entries {
        Entries::Leaf(extents) => (extents.len(), 0),
        Entries::Inner(depth, children) => (children.len(), *depth),
    };
    let max = capacity(bytes.len());
    assert!(count <= max, "{count} entries in a node for {max}");
    bytes.fill(0);
    put_half(bytes, 0, MAGIC);
    put_half(bytes, 2, count as u16);
    put_half(bytes, 4, max as u16);
    put_half(bytes, 6, depth);
    let slots = bytes[HEAD..].chunks_exact_mut(ENTRY);
    match entries {
        Entries::Leaf(extents) => {
            for (slot, extent) in slots.zip(extents) {
                let most = Extent::length_max(extent.unwritten);
                assert!((1..=most).contains(&extent.length), "{extent:?}");
                let (low, high) = halves(extent.start);
                put_word(slot, 0, extent.logical);
                let above = if extent.unwritten { UNWRITTEN } else { 0 };
                put_half(slot, 4, extent.length as u16 + above);
                put_half(slot, 6, high as u16);
                put_word(slot, 8, low);
            }
        }
        Entries::Inner(_, children) => {
            for (slot, child) in slots.zip(children) {
                let (low, high) = halves(child.block);
                put_word(slot, 0, child.logical);
                put_word(slot, 4, low);
                put_half(slot, 8, high as u16);
            }
        }
    }
}

/// Brings the checksum into a block that is a node of the tree of `inode`.
pub fn seal(inode: &Inode, bytes: &mut [u8]) {
    let end = HEAD + ENTRY * capacity(bytes.len());
    let sum = crc32c(inode.seed(), &bytes[..end]);
    put_word(bytes, end, sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_room_for_what_its_bytes_hold() {
        assert_eq!([60, 1024, 2048, 4096, 65536].map(capacity), [4, 84, 169, 340, 5460]);
    }

    #[test]
    fn extents_join_where_both_sides_go_on() {
        let one = Extent { logical: 10, start: 100, length: 5, unwritten: false };
        let next = Extent { logical: 15, start: 105, length: 2, unwritten: false };
        assert_eq!(one.joined(&next), Some(Extent { length: 7, ..one }));
        for other in [
            Extent { logical: 16, ..next },
            Extent { start: 106, ..next },
            Extent { unwritten: true, ..next },
            Extent { length: 32764, ..next },
        ] {
            assert_eq!(one.joined(&other), None, "{other:?}");
        }
    }
}
