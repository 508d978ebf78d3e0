//! Extended attributes: in the inode, in a block of their own, in inodes of their own.
//!
//! # Boundary
//! Names as users know them, and values; lists of access are turned into the form that xattr(7) has. The attribute in which an
//! inode keeps data is not shown.

use super::acl::acl_to_xattr;
use super::blocks::Block;
use super::checksum::crc32c;
use super::inode::{Inode, Kind};
use super::layout::{XattrEntry, XattrHeader, view, word};
use crate::error::{Error, Result};
use crate::image::Image;

/// One extended attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xattr {
    /// With its prefix: `user.x`.
    pub name: Vec<u8>,
    /// Value of the attribute.
    pub value: Vec<u8>,
}

const MAGIC: u32 = 0xEA02_0000;
/// The largest value that a system call can set. The format has larger ones, and many names may lead to one.
const VALUE_MAX: u32 = 1 << 16;
const SYSTEM: u8 = 7;

/// An attribute whose value is not read yet.
struct Found {
    index: u8,
    name: Vec<u8>,
    value: Value,
}

enum Value {
    Bytes(Vec<u8>),
    Inode { number: u32, size: u32 },
}

impl Image {
    /// The names of the extended attributes of `inode`.
    ///
    /// # Errors
    /// Where they contradict the format.
    pub fn xattr_names(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        let found = self.found(inode).map_err(|error| error.in_inode(inode.number))?;
        Ok(found.iter().filter_map(Found::full_name).collect())
    }

    /// The value of the attribute `name` of `inode`.
    ///
    /// # Errors
    /// As [`Image::xattr_names`].
    pub fn xattr(&self, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let read = || {
            let found = self.found(inode)?;
            let one = found.into_iter().find(|one| one.full_name().as_deref() == Some(name));
            one.map(|one| self.value(one)).transpose()
        };
        read().map_err(|error| error.in_inode(inode.number))
    }

    /// All extended attributes of `inode`.
    ///
    /// # Errors
    /// As [`Image::xattr_names`].
    pub fn xattrs(&self, inode: &Inode) -> Result<Vec<Xattr>> {
        let read = || {
            let found = self.found(inode)?.into_iter();
            let named = found.filter_map(|one| Some((one.full_name()?, one)));
            named.map(|(name, one)| Ok(Xattr { name, value: self.value(one)? })).collect()
        };
        let read: Result<_> = read();
        read.map_err(|error| error.in_inode(inode.number))
    }

    /// The data of an inode that is kept in an attribute.
    pub(crate) fn inline_tail(&self, inode: &Inode) -> Result<Vec<u8>> {
        let found = self.found(inode)?;
        let data = found.into_iter().find(|one| one.index == SYSTEM && one.name == b"data");
        data.map_or_else(|| Ok(Vec::new()), |one| self.value(one))
    }

    fn found(&self, inode: &Inode) -> Result<Vec<Found>> {
        let mut found = Vec::new();
        let space = inode.xattr_space();
        if word(space, 0) == Some(MAGIC) {
            // Offsets count from the first entry.
            entries(&space[4..], 0, &mut found)?;
        }
        let place = inode.xattr_block();
        if place != 0 {
            let block = self.xattr_block(place)?;
            let listed = entries(&block, size_of::<XattrHeader>(), &mut found);
            listed.map_err(|error| error.at_block(place))?;
        }
        Ok(found)
    }

    /// A block of attributes, which may lie at `place` and whose checksum is right.
    ///
    /// # Errors
    /// Where it contradicts the format; those of the device.
    pub fn xattr_block(&self, place: u64) -> Result<Block<'_>> {
        let fault = |what: &str| Error::corrupt(what).at_block(place);
        self.usable(place..place + 1).map_err(|what| fault(&what))?;
        let block = self.blocks().block(place)?;
        let head: &XattrHeader =
            view(&block, 0).ok_or_else(|| fault("a block of attributes is short"))?;
        if head.magic.get() != MAGIC || head.blocks.get() != 1 {
            return Err(fault("a block of attributes has no magic number"));
        }
        if self.superblock().features.metadata_checksum() {
            let sum = crc32c(self.superblock().checksum_seed, &place.to_le_bytes());
            let sum = crc32c(crc32c(sum, &block[..16]), &[0; 4]);
            if crc32c(sum, &block[20..]) != head.checksum.get() {
                return Err(fault("the checksum of a block of attributes is wrong"));
            }
        }
        Ok(block)
    }

    fn value(&self, found: Found) -> Result<Vec<u8>> {
        let value = match found.value {
            Value::Bytes(bytes) => bytes,
            Value::Inode { number, size } => self.value_of_inode(number, size)?,
        };
        match found.index {
            2 | 3 => acl_to_xattr(&value),
            _ => Ok(value),
        }
    }

    fn value_of_inode(&self, number: u32, size: u32) -> Result<Vec<u8>> {
        let fault = |what: &str| Error::corrupt(format!("inode {number}, its attribute: {what}"));
        if !self.superblock().features.ea_inode() || size > VALUE_MAX {
            return Err(fault("there can be no such value"));
        }
        let inode = self.inode(number)?;
        let is_value = inode.is_xattr_value() && inode.kind() == Some(Kind::Regular);
        if !is_value || inode.size() != u64::from(size) || inode.is_inline() {
            return Err(fault("is no value, or not one of that size"));
        }
        let mut value = vec![0; size as usize];
        if self.read(&inode, 0, &mut value)? != value.len() {
            return Err(fault("is short"));
        }
        if crc32c(self.superblock().checksum_seed, &value) != inode.value_hash() {
            return Err(fault("the hash of its value is wrong"));
        }
        Ok(value)
    }
}

impl Found {
    /// The name with its prefix; `None` for an attribute that is not shown.
    fn full_name(&self) -> Option<Vec<u8>> {
        let prefix: &[u8] = match self.index {
            1 => b"user.",
            2 => b"system.posix_acl_access",
            3 => b"system.posix_acl_default",
            4 => b"trusted.",
            6 => b"security.",
            8 => b"system.richacl",
            _ => return None,
        };
        Some([prefix, &self.name].concat())
    }
}

/// The entries that begin at `first` in `bytes`, from whose beginning their values' offsets count.
fn entries(bytes: &[u8], first: usize, found: &mut Vec<Found>) -> Result<()> {
    let fault = |what: &str| Error::corrupt(format!("an extended attribute {what}"));
    let mut at = first;
    // Each value lies in bytes of its own: together they are no more than there are.
    let mut room = bytes.len();
    // Four zeros end the list, and nothing has to follow them.
    while word(bytes, at).ok_or_else(|| fault("runs out of its place"))? != 0 {
        let entry: &XattrEntry = view(bytes, at).ok_or_else(|| fault("runs out of its place"))?;
        let name_at = at + size_of::<XattrEntry>();
        let name = bytes.get(name_at..name_at + usize::from(entry.name_length));
        let name = name.ok_or_else(|| fault("has a name that runs out of its place"))?;
        let bad_byte = name.contains(&0);
        if bad_byte {
            return Err(fault("has a NUL in its name"));
        }
        let size = entry.value_size.get();
        let value = match entry.value_inode.get() {
            0 => {
                room = room.checked_sub(size as usize).ok_or_else(|| fault("shares its value"))?;
                let start = usize::from(entry.value_offset.get());
                let value = bytes.get(start..).and_then(|rest| rest.get(..size as usize));
                let value = if size == 0 { Some(&[][..]) } else { value };
                Value::Bytes(value.ok_or_else(|| fault("has a value outside its place"))?.to_vec())
            }
            number => Value::Inode { number, size },
        };
        found.push(Found { index: entry.name_index, name: name.to_vec(), value });
        at = name_at + usize::from(entry.name_length).next_multiple_of(4);
    }
    Ok(())
}
