//! Inodes: new ones, changes of fields, and the bytes in the table.
//!
//! # Why
//! An [`Inode`] is a value: the thread that holds its lock reads it from the table, changes it and writes it back. The time
//! of deletion is the exception: in the list of orphans it names the next inode, and the lock of that list protects it.
//! So [`Inode::encode`] keeps the time that is in the table.

use super::{halves, put_half, put_word};
use crate::error::{Error, Result};
use crate::format::inode::{EXTENTS, HUGE, INDEXED, Inode, Kind, Timestamp, checksum};
use crate::format::layout::word;
use crate::format::superblock::Superblock;
use zerocopy::IntoBytes;

const DELETED_AT: usize = 0x14;
const GENERATION_AT: usize = 0x64;

/// A time of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// Last access.
    Accessed,
    /// Last change of data.
    Modified,
    /// Last change of attributes.
    Changed,
    /// Creation.
    Born,
}

impl Kind {
    /// The highest four bits of its mode.
    pub fn mode(self) -> u16 {
        let nibble = match self {
            Kind::Fifo => 0x1,
            Kind::CharDevice => 0x2,
            Kind::Directory => 0x4,
            Kind::BlockDevice => 0x6,
            Kind::Regular => 0x8,
            Kind::Symlink => 0xA,
            Kind::Socket => 0xC,
        };
        nibble << 12
    }

    /// The number in a directory entry.
    pub fn entry(self) -> u8 {
        match self {
            Kind::Regular => 1,
            Kind::Directory => 2,
            Kind::CharDevice => 3,
            Kind::BlockDevice => 4,
            Kind::Fifo => 5,
            Kind::Socket => 6,
            Kind::Symlink => 7,
        }
    }
}

impl Inode {
    /// An inode with nothing in it but its number, mode and generation.
    ///
    /// # Errors
    /// None for a number of the volume.
    pub fn fresh(number: u32, mode: u16, generation: u32, superblock: &Superblock) -> Result<Self> {
        let mut bytes = vec![0; usize::from(superblock.inode_size)];
        put_half(&mut bytes, 0, mode);
        put_word(&mut bytes, GENERATION_AT, generation);
        if superblock.inode_size > 128 {
            put_half(&mut bytes, 128, superblock.new_extra_size());
        }
        seal(&mut bytes, number, generation, superblock);
        Self::parse(number, &bytes, superblock)
    }

    /// Reads inode `number` from its bytes in the table.
    ///
    /// # Errors
    /// A wrong checksum, sizes beyond the format.
    pub fn decode(number: u32, bytes: &[u8], superblock: &Superblock) -> Result<Self> {
        Self::parse(number, bytes, superblock)
    }

    /// Writes it over its bytes in the table; keeps only the time of deletion that is there.
    ///
    /// # Panics
    /// If `bytes` are not those of one inode of the volume.
    pub fn encode(&self, bytes: &mut [u8], superblock: &Superblock) {
        assert_eq!(bytes.len(), usize::from(superblock.inode_size), "the bytes of one inode");
        let mut deleted = [0; 4];
        deleted.copy_from_slice(&bytes[DELETED_AT..DELETED_AT + 4]);
        let raw = self.raw.as_bytes();
        bytes[..128].copy_from_slice(&raw[..128]);
        bytes[DELETED_AT..DELETED_AT + 4].copy_from_slice(&deleted);
        if bytes.len() > 128 {
            bytes[128..].copy_from_slice(&self.tail);
            let end = raw.len().min(128 + usize::from(self.raw.extra_size.get()));
            // In an inode without extra fields, these bytes belong to an attribute.
            bytes[128..end.max(130)].copy_from_slice(&raw[128..end.max(130)]);
        }
        seal(bytes, self.number, self.generation(), superblock);
    }

    /// Writes `deleted` into the bytes of inode `number` in the table: a time, or the next one in the list of orphans.
    pub fn set_deleted(number: u32, bytes: &mut [u8], deleted: u32, superblock: &Superblock) {
        put_word(bytes, DELETED_AT, deleted);
        let mut generation = [0; 4];
        generation.copy_from_slice(&bytes[GENERATION_AT..GENERATION_AT + 4]);
        seal(bytes, number, u32::from_le_bytes(generation), superblock);
    }

    /// Restores the bytes of inode `number` in the table to `before`; keeps only the time of deletion that is there.
    ///
    /// # Panics
    /// If the two have different lengths.
    pub fn restore(number: u32, bytes: &mut [u8], before: &[u8], superblock: &Superblock) {
        let deleted = word(bytes, DELETED_AT).unwrap_or(0);
        bytes.copy_from_slice(before);
        if word(before, DELETED_AT) != Some(deleted) {
            Self::set_deleted(number, bytes, deleted, superblock);
        }
    }

    /// Sets the permission bits; the kind stays.
    pub fn set_permissions(&mut self, mode: u16) {
        self.raw.mode = (self.mode() & 0xF000 | mode & 0xFFF).into();
    }

    /// Clears the kind: an inode that is in use no more.
    pub fn set_unused(&mut self) {
        self.raw.mode = 0.into();
    }

    /// Sets owner and group.
    pub fn set_owner(&mut self, uid: u32, gid: u32) {
        self.raw.uid_lo = (uid as u16).into();
        self.raw.uid_hi = ((uid >> 16) as u16).into();
        self.raw.gid_lo = (gid as u16).into();
        self.raw.gid_hi = ((gid >> 16) as u16).into();
    }

    /// Sets the number of names.
    pub fn set_links(&mut self, links: u16) {
        self.raw.links = links.into();
    }

    /// Sets the size in bytes.
    pub fn set_size(&mut self, size: u64) {
        let (low, high) = halves(size);
        self.raw.size_lo = low.into();
        self.raw.size_hi = high.into();
    }

    /// Sets the space that it takes, in units of 512 bytes.
    ///
    /// # Errors
    /// More than the volume's format can say.
    pub fn set_sectors(&mut self, sectors: u64) -> Result<()> {
        let beyond = || Err(Error::Unsupported("a file of more than 2 TiB on this volume".into()));
        let mut flags = self.flags() & !HUGE;
        let count = match sectors {
            0..0x1_0000_0000 => sectors,
            _ if !self.huge => return beyond(),
            0x1_0000_0000..0x1_0000_0000_0000 => sectors,
            _ => {
                flags |= HUGE;
                sectors / u64::from(self.sectors_per_block)
            }
        };
        let (low, high) = halves(count);
        self.raw.sectors_lo = low.into();
        if self.huge {
            self.raw.sectors_hi = (high as u16).into();
        }
        self.raw.flags = flags.into();
        Ok(())
    }

    /// Sets `time`, if there is room for it; to the second where there is none for more.
    pub fn set_time(&mut self, which: Time, time: Timestamp) {
        let room = self.raw.extra_size.get();
        let (has_extra, has_birth) = (room >= 16, room >= 24);
        // Two bits more than 32 with a sign, where there is room for them.
        let last = if has_extra { (3 << 32) + i64::from(i32::MAX) } else { i32::MAX.into() };
        let seconds = time.seconds.clamp(i32::MIN.into(), last);
        let low = seconds as u32;
        let epoch = (seconds - i64::from(low as i32)) >> 32;
        let extra = (epoch as u32 & 3) | time.nanoseconds.min(999_999_999) << 2;
        let raw = &mut self.raw;
        match which {
            Time::Accessed => raw.access_time = low.into(),
            Time::Modified => raw.modify_time = low.into(),
            Time::Changed => raw.change_time = low.into(),
            Time::Born if has_birth => {
                raw.birth_time = low.into();
                raw.birth_extra = extra.into();
            }
            Time::Born => {}
        }
        if has_extra {
            match which {
                Time::Accessed => raw.access_extra = extra.into(),
                Time::Modified => raw.modify_extra = extra.into(),
                Time::Changed => raw.change_extra = extra.into(),
                Time::Born => {}
            }
        }
    }

    /// Sets the sixty bytes that are a tree, a table of blocks, or text.
    pub fn set_block(&mut self, block: [u8; 60]) {
        self.raw.block = block;
    }

    /// The sixty bytes that are a tree, a table of blocks, or text.
    pub fn block_bytes(&self) -> &[u8; 60] {
        &self.raw.block
    }

    /// Makes it a device node of these numbers.
    pub fn set_device(&mut self, major: u32, minor: u32) {
        self.raw.block = [0; 60];
        if major < 256 && minor < 256 {
            put_word(&mut self.raw.block, 0, major << 8 | minor);
        } else {
            put_word(&mut self.raw.block, 4, minor & 0xFF | major << 8 | (minor & !0xFF) << 12);
        }
    }

    /// Says whether the sixty bytes are a tree of extents.
    pub fn set_has_extents(&mut self, has: bool) {
        self.set_flag(EXTENTS, has);
    }

    /// Whether the sixty bytes are a tree of extents.
    pub fn is_by_extents(&self) -> bool {
        self.has_extents()
    }

    /// Says whether it is a directory with an index.
    pub fn set_indexed(&mut self, indexed: bool) {
        self.set_flag(INDEXED, indexed);
    }

    /// Sets the flags that users see (`chattr`), those of `mask`.
    pub fn set_user_flags(&mut self, mask: u32, flags: u32) {
        self.raw.flags = (self.flags() & !mask | flags & mask).into();
    }

    /// Sets the block of its attributes, 0 for none.
    pub fn set_xattr_block(&mut self, block: u64) {
        let (low, high) = halves(block);
        self.raw.xattr_block_lo = low.into();
        if self.wide {
            self.raw.xattr_block_hi = (high as u16).into();
        }
    }

    /// The inode's own attributes, as [`super::xattr::decode_in_inode`] reads them.
    pub fn xattr_bytes(&self) -> &[u8] {
        self.xattr_space()
    }

    /// How many bytes of attributes fit into the inode.
    pub fn xattr_room(&self) -> usize {
        self.xattr_space().len()
    }

    /// Sets the inode's own attributes, as [`super::xattr::encode_in_inode`] makes them.
    ///
    /// # Panics
    /// If they are not [`Inode::xattr_room`] bytes.
    pub fn set_xattr_space(&mut self, space: &[u8]) {
        let start = usize::from(self.raw.extra_size.get());
        self.tail[start..].copy_from_slice(space);
    }

    fn set_flag(&mut self, flag: u32, set: bool) {
        let flags = self.flags();
        self.raw.flags = (if set { flags | flag } else { flags & !flag }).into();
    }
}

/// Brings the checksum into the bytes of an inode.
fn seal(bytes: &mut [u8], number: u32, generation: u32, superblock: &Superblock) {
    use crate::format::checksum::crc32c;
    if !superblock.features.metadata_checksum() {
        return;
    }
    let extra = if bytes.len() > 128 { super::half(bytes, 128) } else { 0 };
    let seed = crc32c(superblock.checksum_seed, &number.to_le_bytes());
    let seed = crc32c(seed, &generation.to_le_bytes());
    let sum = checksum(seed, bytes, extra >= 4);
    put_half(bytes, 0x7C, sum as u16);
    if extra >= 4 {
        put_half(bytes, 0x82, (sum >> 16) as u16);
    }
}
