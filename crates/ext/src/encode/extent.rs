//! Nodes of extent trees.

use super::{half, halves, put_half, put_word};
use crate::error::{Error, Result};
use crate::format::checksum::crc32c;
use crate::format::inode::Inode;
use crate::format::layout::word;

const MAGIC: u16 = 0xF30A;
const HEAD: usize = 12;
const ENTRY: usize = 12;
/// What an extent's length is above if it was never written.
const UNWRITTEN: u16 = 32768;
/// The longest extent, written and never written.
const LENGTH_MAX: [u32; 2] = [32768, 32767];

/// An extent of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Its first block in the file.
    pub logical: u32,
    /// Its first block on the volume.
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

    /// Both as one, if `next` goes on where it ends, in the file and on the volume.
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
    /// Its key.
    pub logical: u32,
    /// Its block.
    pub block: u64,
}

/// What is in a node.
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

/// Reads a node: the root of an inode, or a block whose checksum was verified.
///
/// # Errors
/// What cannot be.
pub fn decode(bytes: &[u8]) -> Result<Entries> {
    let fault = |what: &str| Err(Error::corrupt(format!("a node of extents {what}")));
    if bytes.len() < HEAD || half(bytes, 0) != MAGIC {
        return fault("has no magic number");
    }
    let (count, depth) = (usize::from(half(bytes, 2)), half(bytes, 6));
    if count > capacity(bytes.len()) {
        return fault("has more entries than room");
    }
    let entries = bytes[HEAD..HEAD + count * ENTRY].chunks_exact(ENTRY);
    let at = |entry: &[u8], offset| word(entry, offset).unwrap_or(0);
    if depth > 0 {
        let child = |entry: &[u8]| Child {
            logical: at(entry, 0),
            block: u64::from(half(entry, 8)) << 32 | u64::from(at(entry, 4)),
        };
        return Ok(Entries::Inner(depth, entries.map(child).collect()));
    }
    let extent = |entry: &[u8]| {
        let stored = half(entry, 4);
        let unwritten = stored > UNWRITTEN;
        Extent {
            logical: at(entry, 0),
            start: u64::from(half(entry, 6)) << 32 | u64::from(at(entry, 8)),
            length: u32::from(stored - if unwritten { UNWRITTEN } else { 0 }),
            unwritten,
        }
    };
    Ok(Entries::Leaf(entries.map(extent).collect()))
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
    fn nodes_come_back_as_they_went() {
        let leaf = Entries::Leaf(vec![
            Extent { logical: 0, start: 7, length: 32768, unwritten: false },
            Extent { logical: 40_000, start: 0xFFFF_1234_5678, length: 32767, unwritten: true },
            Extent { logical: u32::MAX, start: 9, length: 1, unwritten: true },
        ]);
        let inner = Entries::Inner(3, vec![Child { logical: 5, block: 0xABCD_0000_0001 }; 4]);
        for entries in [leaf, inner, Entries::Leaf(Vec::new())] {
            let mut bytes = [0xEE; 60];
            encode(&entries, &mut bytes);
            assert_eq!(decode(&bytes).unwrap(), entries);
        }
        assert!(decode(&[0; 60]).is_err());
        let mut full = [0; 60];
        encode(&Entries::Leaf(Vec::new()), &mut full);
        full[2] = 5;
        assert!(decode(&full).is_err());
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
