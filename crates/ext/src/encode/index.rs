//! Nodes of the index of a directory: the root in its first block, and the blocks below it.

use super::{half, put_half, put_word};
use crate::error::{Error, Result};
use crate::format::checksum::crc32c;
use crate::format::inode::Inode;
use crate::format::layout::word;
use crate::format::superblock::Superblock;

/// Where the entries begin in the root, behind `.`, `..` and its head.
const ROOT_AT: usize = 32;
/// Where they begin in any other node, behind an empty entry.
const NODE_AT: usize = 8;
const ENTRY: usize = 8;

/// A node: which block has the names from which hash on. The first entry's hash is 0: it has all that are less than the second's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// It is the root, with so many levels of nodes below it.
    pub root_levels: Option<u8>,
    /// (hash, block of the directory). The lowest bit of a hash says that names of the one before it run on.
    pub entries: Vec<(u32, u32)>,
}

/// The highest bits of a block's number mean nothing.
const BLOCK_BITS: u32 = 0x0FFF_FFFF;

/// Where a node leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Levels of nodes below it, of a root.
    pub levels: u8,
    /// Block of the directory.
    pub block: u32,
    /// The hash of the entry behind, if there is one.
    pub behind: Option<u32>,
}

/// Where the entries of a node begin, and how many there are.
fn shape(bytes: &[u8], is_root: bool, superblock: &Superblock) -> Result<(usize, usize)> {
    let fault = |what: &str| Err(Error::corrupt(format!("a node of an index {what}")));
    let at = entries_at(is_root);
    let (limit, count) = (usize::from(half(bytes, at)), usize::from(half(bytes, at + 2)));
    if limit != superblock.index_capacity(is_root) || count == 0 || count > limit {
        return fault("has a count that cannot be");
    }
    if is_root && (bytes[29] != 8 || word(bytes, 24) != Some(0)) {
        return fault("has a head that cannot be");
    }
    Ok((at, count))
}

fn entries_at(is_root: bool) -> usize {
    if is_root { ROOT_AT } else { NODE_AT }
}

impl Superblock {
    /// How many entries a node of an index has room for.
    pub fn index_capacity(&self, is_root: bool) -> usize {
        let tail = if self.features.metadata_checksum() { 8 } else { 0 };
        (self.block_size as usize - entries_at(is_root) - tail) / ENTRY
    }
}

impl Node {
    /// Reads a node whose checksum was verified.
    ///
    /// # Errors
    /// What cannot be.
    pub fn decode(bytes: &[u8], is_root: bool, superblock: &Superblock) -> Result<Self> {
        let (at, count) = shape(bytes, is_root, superblock)?;
        let entry = |number: usize| {
            let at = at + number * ENTRY;
            let hash = if number == 0 { 0 } else { word(bytes, at).unwrap_or(0) };
            (hash, word(bytes, at + 4).unwrap_or(0) & BLOCK_BITS)
        };
        let root_levels = is_root.then(|| bytes[30]);
        Ok(Self { root_levels, entries: (0..count).map(entry).collect() })
    }

    /// Where a node leads for `hash`, without reading all of it: (levels below it if it is a root, block of the directory, hash
    /// of the entry behind that one).
    ///
    /// # Errors
    /// As [`Node::decode`].
    pub fn step(bytes: &[u8], is_root: bool, superblock: &Superblock, hash: u32) -> Result<Step> {
        let (at, count) = shape(bytes, is_root, superblock)?;
        let key = |number: usize| word(bytes, at + number * ENTRY).unwrap_or(u32::MAX);
        // The first entry has no key.
        let (mut low, mut high) = (1, count);
        while low < high {
            let middle = low + (high - low) / 2;
            (low, high) = if key(middle) <= hash { (middle + 1, high) } else { (low, middle) };
        }
        let block = word(bytes, at + (low - 1) * ENTRY + 4).unwrap_or(0) & BLOCK_BITS;
        let levels = if is_root { bytes[30] } else { 0 };
        Ok(Step { levels, block, behind: (low < count).then(|| key(low)) })
    }

    /// Writes the entries over those in `bytes`. A root keeps the bytes before them; any other node is made new.
    ///
    /// # Panics
    /// With more entries than room.
    pub fn encode(&self, bytes: &mut [u8], directory: &Inode, superblock: &Superblock) {
        let is_root = self.root_levels.is_some();
        let limit = superblock.index_capacity(is_root);
        let count = self.entries.len();
        assert!((1..=limit).contains(&count), "{count} entries in a node for {limit}");
        let at = entries_at(is_root);
        match self.root_levels {
            Some(levels) => bytes[30] = levels,
            None => {
                bytes[..at].fill(0);
                let whole = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
                put_half(bytes, 4, whole);
            }
        }
        bytes[at..].fill(0);
        for (number, (hash, block)) in self.entries.iter().enumerate() {
            put_word(bytes, at + number * ENTRY, *hash);
            put_word(bytes, at + number * ENTRY + 4, *block);
        }
        put_half(bytes, at, limit as u16);
        put_half(bytes, at + 2, count as u16);
        if superblock.features.metadata_checksum() {
            let tail = at + limit * ENTRY;
            let sum = crc32c(directory.seed(), &bytes[..at + count * ENTRY]);
            put_word(bytes, tail + 4, crc32c(sum, &[0; 8]));
        }
    }

    /// Makes the first block of a directory a root whose one entry is block `leaf`; `.` and `..` stay.
    pub fn make_root(bytes: &mut [u8], hash_version: u8, leaf: u32) -> Self {
        // `..` takes the rest of the block.
        let whole = u16::try_from(bytes.len() - 12).unwrap_or(u16::MAX);
        put_half(bytes, 12 + 4, whole);
        bytes[24..].fill(0);
        bytes[28] = hash_version;
        bytes[29] = 8;
        Self { root_levels: Some(0), entries: vec![(0, leaf)] }
    }

    /// The number of the hash by which the directory is indexed, from its root.
    pub fn hash_version(root: &[u8]) -> u8 {
        root[28]
    }

    /// The entry under which names of `hash` are.
    pub fn find(&self, hash: u32) -> usize {
        self.entries[1..].partition_point(|entry| entry.0 <= hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_found_under_the_last_entry_that_is_not_above_it() {
        let node = Node { root_levels: None, entries: vec![(0, 1), (10, 2), (20, 3), (21, 4)] };
        let found = [0, 9, 10, 19, 20, 21, u32::MAX].map(|hash| node.find(hash));
        assert_eq!(found, [0, 0, 1, 1, 2, 3, 3]);
    }
}
