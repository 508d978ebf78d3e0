//! Extended attributes: in an inode, and in a block of their own.

use super::{half, put_half, put_word};
use crate::error::{Error, Result};
use crate::format::checksum::crc32c;
use crate::format::layout::word;
use crate::format::superblock::Superblock;

const MAGIC: u32 = 0xEA02_0000;
const BLOCK_HEAD: usize = 32;
const ENTRY: usize = 16;
const REFERENCES_AT: usize = 4;
const PREFIXES: [(u8, &[u8]); 6] = [
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (1, b"user."),
    (4, b"trusted."),
    (6, b"security."),
    (8, b"system.richacl"),
];

/// An attribute as the disk has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The number of its name's prefix.
    pub index: u8,
    /// The rest of its name.
    pub name: Vec<u8>,
    /// Value of the attribute; access control lists in the disk's form.
    pub value: Vec<u8>,
}

impl Stored {
    /// The number and the rest of a name with its prefix; `None` for one that the format has no place for.
    pub fn split_name(name: &[u8]) -> Option<(u8, &[u8])> {
        PREFIXES.iter().find_map(|(index, prefix)| {
            let rest = name.strip_prefix(*prefix)?;
            let whole = matches!(index, 2 | 3 | 8);
            (rest.is_empty() == whole && rest.len() <= 255).then_some((*index, rest))
        })
    }

    fn bytes(&self) -> usize {
        entry_bytes(self.name.len()) + self.value.len().next_multiple_of(4)
    }

    /// The hash of name and value.
    fn hash(&self) -> u32 {
        let name =
            self.name.iter().fold(0_u32, |hash, byte| hash << 5 ^ hash >> 27 ^ u32::from(*byte));
        self.value.chunks(4).fold(name, |hash, chunk| {
            let mut padded = [0; 4];
            padded[..chunk.len()].copy_from_slice(chunk);
            hash << 16 ^ hash >> 16 ^ u32::from_le_bytes(padded)
        })
    }
}

fn entry_bytes(name: usize) -> usize {
    ENTRY + name.next_multiple_of(4)
}

/// The bytes that `stored` take, with the zeros that end them.
pub fn needed(stored: &[Stored]) -> usize {
    stored.iter().map(Stored::bytes).sum::<usize>() + 4
}

/// How many bytes there are for attributes in a block.
pub fn block_room(block_size: usize) -> usize {
    block_size - BLOCK_HEAD
}

/// How many bytes there are for attributes in the room of an inode.
pub fn inode_room(room: usize) -> usize {
    room.saturating_sub(4)
}

/// The attributes in the room of an inode.
///
/// # Errors
/// Values in inodes of their own, which are not written; what cannot be.
pub fn decode_in_inode(space: &[u8]) -> Result<Vec<Stored>> {
    if word(space, 0) != Some(MAGIC) {
        return Ok(Vec::new());
    }
    decode(&space[4..], 0)
}

/// The attributes in a block.
///
/// # Errors
/// As [`decode_in_inode`].
pub fn decode_block(block: &[u8]) -> Result<Vec<Stored>> {
    if word(block, 0) != Some(MAGIC) {
        return Err(Error::corrupt("a block of attributes has no magic number"));
    }
    decode(block, BLOCK_HEAD)
}

fn decode(bytes: &[u8], first: usize) -> Result<Vec<Stored>> {
    let fault = || Error::corrupt("an extended attribute runs out of its place");
    let mut stored = Vec::new();
    let mut at = first;
    while word(bytes, at).ok_or_else(fault)? != 0 {
        let head = bytes.get(at..at + ENTRY).ok_or_else(fault)?;
        let name_length = usize::from(head[0]);
        let name = bytes.get(at + ENTRY..at + ENTRY + name_length).ok_or_else(fault)?;
        if word(head, 4) != Some(0) {
            return Err(Error::Unsupported(
                "changing attributes that lie in inodes of their own".into(),
            ));
        }
        let (start, size) = (usize::from(half(head, 2)), word(head, 8).unwrap_or(0) as usize);
        let value = bytes.get(start..start.saturating_add(size));
        let value = if size == 0 { Some(&[][..]) } else { value };
        let value = value.ok_or_else(fault)?.to_vec();
        stored.push(Stored { index: head[1], name: name.to_vec(), value });
        at += entry_bytes(name_length);
    }
    Ok(stored)
}

/// The room of an inode with these attributes; `None` if they do not fit.
pub fn encode_in_inode(stored: &[Stored], room: usize) -> Option<Vec<u8>> {
    let mut space = vec![0; room];
    if stored.is_empty() {
        return Some(space);
    }
    if needed(stored) > inode_room(room) {
        return None;
    }
    put_word(&mut space, 0, MAGIC);
    encode(stored, &mut space[4..], 0);
    Some(space)
}

/// A block with these attributes and `references`, at `place`; `None` if they do not fit.
pub fn encode_block(
    stored: &[Stored],
    references: u32,
    place: u64,
    superblock: &Superblock,
) -> Option<Vec<u8>> {
    let size = superblock.block_size as usize;
    if needed(stored) > block_room(size) {
        return None;
    }
    let mut sorted = stored.to_vec();
    sorted.sort_by(|one, other| {
        let key = |stored: &Stored| (stored.index, stored.name.len(), stored.name.clone());
        key(one).cmp(&key(other))
    });
    let mut block = vec![0; size];
    put_word(&mut block, 0, MAGIC);
    put_word(&mut block, 8, 1);
    encode(&sorted, &mut block, BLOCK_HEAD);
    let hash = sorted.iter().fold(0_u32, |hash, one| hash << 16 ^ hash >> 16 ^ one.hash());
    put_word(&mut block, 12, hash);
    set_references(&mut block, references, place, superblock);
    Some(block)
}

/// How many inodes have a block of attributes.
pub fn references(block: &[u8]) -> u32 {
    word(block, REFERENCES_AT).unwrap_or(0)
}

/// Sets how many inodes have the block of attributes at `place`.
pub fn set_references(block: &mut [u8], references: u32, place: u64, superblock: &Superblock) {
    put_word(block, REFERENCES_AT, references);
    if superblock.features.metadata_checksum() {
        put_word(block, 16, 0);
        let sum = crc32c(superblock.checksum_seed, &place.to_le_bytes());
        let sum = crc32c(sum, block);
        put_word(block, 16, sum);
    }
}

/// Entries from `first` on, values from the end.
fn encode(stored: &[Stored], bytes: &mut [u8], first: usize) {
    let (mut at, mut end) = (first, bytes.len() / 4 * 4);
    for one in stored {
        bytes[at] = one.name.len() as u8;
        bytes[at + 1] = one.index;
        if !one.value.is_empty() {
            end -= one.value.len().next_multiple_of(4);
            put_half(bytes, at + 2, end as u16);
            bytes[end..end + one.value.len()].copy_from_slice(&one.value);
        }
        put_word(bytes, at + 8, one.value.len() as u32);
        put_word(bytes, at + 12, one.hash());
        bytes[at + ENTRY..at + ENTRY + one.name.len()].copy_from_slice(&one.name);
        at += entry_bytes(one.name.len());
    }
}

/// An access control list in the disk's form, from the one that xattr(7) has.
///
/// # Errors
/// If it is none.
pub fn acl_from_xattr(xattr: &[u8]) -> Result<Vec<u8>> {
    let fault = || Error::corrupt("an access control list cannot be");
    let (version, rest) = xattr.split_at_checked(4).ok_or_else(fault)?;
    if version != [2, 0, 0, 0] || !rest.len().is_multiple_of(8) {
        return Err(fault());
    }
    let mut disk = vec![1, 0, 0, 0];
    for entry in rest.chunks_exact(8) {
        let with_id = match half(entry, 0) {
            2 | 8 => true,
            1 | 4 | 0x10 | 0x20 => false,
            _ => return Err(fault()),
        };
        disk.extend_from_slice(&entry[..if with_id { 8 } else { 4 }]);
    }
    Ok(disk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_as_the_disk_has_them() {
        assert_eq!(Stored::split_name(b"user.a"), Some((1, &b"a"[..])));
        assert_eq!(Stored::split_name(b"system.posix_acl_access"), Some((2, &b""[..])));
        for none in [&b"user."[..], b"system.posix_acl_accessx", b"btrfs.x", b"user", b""] {
            assert_eq!(Stored::split_name(none), None);
        }
        assert_eq!(Stored::split_name(&[&b"user."[..], &[b'a'; 256]].concat()), None);
    }

    #[test]
    fn attributes_of_an_inode_come_back_and_fill_it_to_the_last_byte() {
        let stored = |name: &str, length: usize| Stored {
            index: 1,
            name: name.into(),
            value: (0..length).map(|at| at as u8).collect(),
        };
        for count in 0..6 {
            let all: Vec<_> = (0..count).map(|at| stored(&"n".repeat(at + 1), 3 * at)).collect();
            let room = 4 + needed(&all);
            let space = encode_in_inode(&all, room).unwrap();
            assert_eq!(decode_in_inode(&space).unwrap(), all);
            if count > 0 {
                assert_eq!(encode_in_inode(&all, room - 1), None);
            }
        }
        assert!(decode_in_inode(&[0, 0, 2, 0xEA, 9, 1, 0, 0]).is_err());
    }

    #[test]
    fn lists_of_access_come_back() {
        let disk = [1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 4, 0, 9, 0, 0, 0, 0x20, 0, 4, 0];
        let xattr = crate::acl_to_xattr(&disk).unwrap();
        assert_eq!(acl_from_xattr(&xattr).unwrap(), disk);
        assert!(acl_from_xattr(&xattr[..9]).is_err() && acl_from_xattr(&[1, 0, 0, 0]).is_err());
    }
}
