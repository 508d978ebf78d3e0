//! Inodes: attributes, checksums, and the meaning of their sixty bytes.
//!
//! # Boundary
//! One inode's own bytes. Where its data lies is in [`super::map`], its attributes in [`super::xattr`].

use super::checksum::crc32c;
use super::layout::{RawInode, word};
use super::map::END;
use super::superblock::Superblock;
use crate::error::{Error, Result};
use zerocopy::{FromBytes, IntoBytes};

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A local socket's name.
    Socket,
    /// A character device node.
    CharDevice,
    /// A block device node.
    BlockDevice,
}

impl Kind {
    /// By the highest four bits of a mode.
    pub fn of_mode(mode: u16) -> Option<Self> {
        Some(match mode >> 12 {
            0x1 => Kind::Fifo,
            0x2 => Kind::CharDevice,
            0x4 => Kind::Directory,
            0x6 => Kind::BlockDevice,
            0x8 => Kind::Regular,
            0xA => Kind::Symlink,
            0xC => Kind::Socket,
            _ => return None,
        })
    }

    /// The kind that an entry of a directory says; `None` where it says none.
    pub fn of_entry(number: u8) -> Option<Self> {
        Some(match number {
            1 => Kind::Regular,
            2 => Kind::Directory,
            3 => Kind::CharDevice,
            4 => Kind::BlockDevice,
            5 => Kind::Fifo,
            6 => Kind::Socket,
            7 => Kind::Symlink,
            _ => return None,
        })
    }
}

/// A time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Since 1970.
    pub seconds: i64,
    /// Below a second.
    pub nanoseconds: u32,
}

pub(crate) const EXTENTS: u32 = 0x8_0000;
const INLINE: u32 = 0x1000_0000;
pub(crate) const INDEXED: u32 = 0x1000;
pub(crate) const HUGE: u32 = 0x4_0000;
const IMMUTABLE: u32 = 0x10;
const APPEND_ONLY: u32 = 0x20;
const ENCRYPTED: u32 = 0x800;
const CASEFOLD: u32 = 0x4000_0000;
const XATTR_VALUE: u32 = 0x20_0000;
const VERITY: u32 = 0x10_0000;

/// One inode whose checksum is right.
#[derive(Debug, Clone)]
pub struct Inode {
    /// Number of the inode.
    pub number: u32,
    pub(crate) raw: Box<RawInode>,
    /// The bytes behind the first 128.
    pub(crate) tail: Box<[u8]>,
    /// The seed of its checksums.
    seed: u32,
    pub(crate) wide: bool,
    wide_size: bool,
    pub(crate) huge: bool,
    pub(crate) sectors_per_block: u32,
}

impl Inode {
    /// Reads inode `number` from its `bytes` in the table at `block`.
    pub(crate) fn parse(number: u32, bytes: &[u8], superblock: &Superblock) -> Result<Self> {
        let mut whole = [0; size_of::<RawInode>()];
        let copied = bytes.len().min(whole.len());
        whole[..copied].copy_from_slice(&bytes[..copied]);
        let extra = if bytes.len() > 128 { word(bytes, 128).unwrap_or(0) as u16 } else { 0 };
        let fault = |what: &str| Error::corrupt(what).in_inode(number);
        if usize::from(extra) + 128 > bytes.len() || !extra.is_multiple_of(4) {
            return Err(fault("its extra size cannot be"));
        }
        // Fields behind the extra size belong to attributes.
        whole[(128 + usize::from(extra)).min(copied)..].fill(0);
        if bytes.len() > 128 {
            whole[128..130].copy_from_slice(&extra.to_le_bytes());
        }
        let raw = RawInode::read_from_bytes(&whole).map_err(|_| fault("it is short"))?;
        let seed = crc32c(superblock.checksum_seed, &number.to_le_bytes());
        let seed = crc32c(seed, raw.generation.as_bytes());
        if superblock.features.metadata_checksum() {
            let has_high = extra >= 4;
            let mut sum = checksum(seed, bytes, has_high);
            let mut stored = u32::from(raw.checksum_lo.get());
            if has_high {
                stored |= u32::from(raw.checksum_hi.get()) << 16;
            } else {
                sum &= 0xFFFF;
            }
            // A slot that was never written has no checksum.
            let blank = bytes.iter().all(|byte| *byte == 0);
            if sum != stored && !blank {
                return Err(fault("its checksum is wrong"));
            }
        }
        let inode = Self {
            number,
            raw: Box::new(raw),
            tail: bytes.get(128..).unwrap_or(&[]).into(),
            seed,
            wide: superblock.features.wide(),
            wide_size: superblock.features.large_dir(),
            huge: superblock.features.huge_file(),
            sectors_per_block: superblock.block_size / 512,
        };
        inode.check(superblock)?;
        Ok(inode)
    }

    fn check(&self, superblock: &Superblock) -> Result<()> {
        let fault = |what: &str| Err(Error::corrupt(what).in_inode(self.number));
        let size = self.size();
        let block = u64::from(superblock.block_size);
        // Directories and links have no holes: the volume must have room for their size.
        let solid = matches!(self.kind(), Some(Kind::Directory | Kind::Symlink));
        if solid && size > superblock.blocks.saturating_mul(block) {
            return fault("its size is beyond the volume");
        }
        if self.kind() == Some(Kind::Symlink) && size > block.max(4096) {
            return fault("a link is longer than a block");
        }
        // Blocks of a file have numbers of 32 bits, and tables do not reach as far.
        let per_table = block / 4;
        let reach = 12 + per_table + per_table.pow(2) + per_table.pow(3);
        let blocks = if self.has_extents() || self.is_inline() { END } else { reach.min(END) };
        if size > blocks * block {
            return fault("its size is beyond the format");
        }
        Ok(())
    }

    /// Kind of the inode; `None` for a mode without a known kind.
    pub fn kind(&self) -> Option<Kind> {
        Kind::of_mode(self.raw.mode.get())
    }

    /// Kind and permission bits.
    pub fn mode(&self) -> u16 {
        self.raw.mode.get()
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        u32::from(self.raw.uid_hi.get()) << 16 | u32::from(self.raw.uid_lo.get())
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        u32::from(self.raw.gid_hi.get()) << 16 | u32::from(self.raw.gid_lo.get())
    }

    /// Names that it has. A directory with too many to count has 1.
    pub fn links(&self) -> u16 {
        self.raw.links.get()
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        let high = match self.kind() {
            Some(Kind::Regular) => self.raw.size_hi.get(),
            Some(Kind::Directory) if self.wide_size => self.raw.size_hi.get(),
            _ => 0,
        };
        u64::from(high) << 32 | u64::from(self.raw.size_lo.get())
    }

    /// The space that it takes, in units of 512 bytes.
    pub fn sectors(&self) -> u64 {
        let low = u64::from(self.raw.sectors_lo.get());
        if !self.huge {
            return low;
        }
        let count = u64::from(self.raw.sectors_hi.get()) << 32 | low;
        let unit = if self.flags() & HUGE != 0 { u64::from(self.sectors_per_block) } else { 1 };
        count * unit
    }

    /// The flags on the disk (`lsattr`).
    pub fn flags(&self) -> u32 {
        self.raw.flags.get()
    }

    /// Distinguishes it from earlier inodes of its number.
    pub fn generation(&self) -> u32 {
        self.raw.generation.get()
    }

    /// When it was deleted, or a link in the list of orphans; 0 for one in use.
    pub fn deleted(&self) -> u32 {
        self.raw.delete_time.get()
    }

    /// Last access.
    pub fn accessed(&self) -> Timestamp {
        time(self.raw.access_time.get(), self.raw.access_extra.get())
    }

    /// Last change of data.
    pub fn modified(&self) -> Timestamp {
        time(self.raw.modify_time.get(), self.raw.modify_extra.get())
    }

    /// Last change of attributes.
    pub fn changed(&self) -> Timestamp {
        time(self.raw.change_time.get(), self.raw.change_extra.get())
    }

    /// Creation, if there is room for it.
    pub fn born(&self) -> Option<Timestamp> {
        (self.raw.extra_size.get() >= 24)
            .then(|| time(self.raw.birth_time.get(), self.raw.birth_extra.get()))
    }

    /// Major and minor number of a device node.
    pub fn device(&self) -> (u32, u32) {
        let old = word(&self.raw.block, 0).unwrap_or(0);
        if old != 0 {
            return (old >> 8 & 0xFF, old & 0xFF);
        }
        let new = word(&self.raw.block, 4).unwrap_or(0);
        ((new & 0xF_FF00) >> 8, new & 0xFF | new >> 12 & 0xF_FF00)
    }

    /// The block of its attributes, 0 for none.
    pub fn xattr_block(&self) -> u64 {
        let high = if self.wide { self.raw.xattr_block_hi.get() } else { 0 };
        u64::from(high) << 32 | u64::from(self.raw.xattr_block_lo.get())
    }

    /// The inode's own attributes: the bytes behind its fields.
    pub(crate) fn xattr_space(&self) -> &[u8] {
        self.tail.get(usize::from(self.raw.extra_size.get())..).unwrap_or(&[])
    }

    /// The sixty bytes that are a tree, a table of blocks, or data.
    pub(crate) fn block(&self) -> &[u8; 60] {
        &self.raw.block
    }

    /// The seed of the checksums of its blocks.
    pub(crate) fn seed(&self) -> u32 {
        self.seed
    }

    /// The hash of an attribute's value, in its inode, in the place of a time.
    pub(crate) fn value_hash(&self) -> u32 {
        self.raw.access_time.get()
    }

    pub(crate) fn has_extents(&self) -> bool {
        self.flags() & EXTENTS != 0
    }

    /// Whether its data lies in the inode itself.
    pub fn is_inline(&self) -> bool {
        self.flags() & INLINE != 0
    }

    /// Whether it is a directory with an index.
    pub fn is_indexed(&self) -> bool {
        self.flags() & INDEXED != 0
    }

    /// Whether nothing of it may change (`chattr +i`).
    pub fn is_immutable(&self) -> bool {
        self.flags() & IMMUTABLE != 0
    }

    /// Whether it may only grow: a file by bytes at its end, a directory by names (`chattr +a`).
    pub fn is_append_only(&self) -> bool {
        self.flags() & APPEND_ONLY != 0
    }

    /// Whether its names and data are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.flags() & ENCRYPTED != 0
    }

    /// Whether its names fold case.
    pub fn folds_case(&self) -> bool {
        self.flags() & CASEFOLD != 0
    }

    /// Whether its data is hashed, and a tree of hashes follows it.
    pub fn has_verity(&self) -> bool {
        self.flags() & VERITY != 0
    }

    /// Whether it holds the value of an attribute.
    pub fn is_xattr_value(&self) -> bool {
        self.flags() & XATTR_VALUE != 0
    }

    /// The text of a link that lies in the inode, if it does.
    pub(crate) fn short_link(&self) -> Option<&[u8]> {
        let size = usize::try_from(self.size()).ok()?;
        let short = !self.is_inline() && !self.has_extents() && size < self.raw.block.len();
        short.then(|| &self.raw.block[..size])
    }
}

fn time(seconds: u32, extra: u32) -> Timestamp {
    let epoch = i64::from(extra & 3) << 32;
    let nanoseconds = (extra >> 2).min(999_999_999);
    Timestamp { seconds: i64::from(seconds as i32) + epoch, nanoseconds }
}

/// The checksum that the inode of these bytes should have.
pub(crate) fn checksum(seed: u32, bytes: &[u8], has_high: bool) -> u32 {
    // An inode of the usual size is summed in one call: each call costs as much as some words.
    if let Some(copy) = [0; 256].get_mut(..bytes.len()) {
        copy.copy_from_slice(bytes);
        copy[0x7C..0x7E].fill(0);
        if has_high && copy.len() > 128 {
            copy[0x82..0x84].fill(0);
        }
        return crc32c(seed, copy);
    }
    let sum = crc32c(crc32c(seed, &bytes[..0x7C]), &[0; 2]);
    let sum = crc32c(sum, &bytes[0x7E..128]);
    let sum = crc32c(sum, &bytes[128..0x82]);
    if has_high {
        crc32c(crc32c(sum, &[0; 2]), &bytes[0x84..])
    } else {
        crc32c(sum, &bytes[0x82..])
    }
}
