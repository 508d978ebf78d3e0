//! The superblock: its fields, parsed and checked.
//!
//! # Boundary
//! Checks every number that anything else computes with. After it, sizes are powers of two within their limits,
//! and products of them do not overflow.
//!
//! # Why
//! The checksum comes before the flags: the flags of a damaged superblock name nothing. Weakness: the copies of
//! the superblock in other groups are not tried.

use super::checksum::crc32c;
use super::features::Features;
use super::layout::Super;
use crate::error::{Error, Result};
use zerocopy::{FromBytes, IntoBytes};

/// Where the superblock begins, and how long it is.
pub(crate) const OFFSET: u64 = 1024;
pub(crate) const LENGTH: usize = 1024;
const MAGIC: u16 = 0xEF53;
/// The numbers below it are the format's own.
const FIRST_INODE: u32 = 11;

/// A superblock whose numbers can be computed with.
#[derive(Debug, Clone)]
pub struct Superblock {
    pub(crate) raw: Box<Super>,
    /// The flags.
    pub features: Features,
    /// Bytes in a block, 1 KiB to 64 KiB.
    pub block_size: u32,
    /// Blocks in a cluster: 1 without `bigalloc`.
    pub cluster_blocks: u32,
    /// Blocks of the volume.
    pub blocks: u64,
    /// The first block that belongs to a group.
    pub first_data_block: u64,
    /// Block groups.
    pub groups: u32,
    /// Blocks in a group.
    pub blocks_per_group: u32,
    /// Inodes of the volume.
    pub inodes: u32,
    /// Inodes in a group.
    pub inodes_per_group: u32,
    /// Bytes of an inode.
    pub inode_size: u16,
    /// Bytes of a group descriptor.
    pub descriptor_size: u16,
    /// Groups whose metadata lie together.
    pub groups_per_flex: u32,
    /// The seed of checksums of metadata.
    pub checksum_seed: u32,
}

impl Superblock {
    /// Reads the 1024 bytes of a superblock on a device of `device_bytes`.
    ///
    /// # Errors
    /// [`Error::NotExt`], [`Error::Unsupported`], [`Error::Truncated`], or which field cannot be.
    pub fn parse(bytes: &[u8], device_bytes: u64) -> Result<Self> {
        let raw = Super::read_from_bytes(bytes.get(..LENGTH).ok_or(Error::NotExt)?);
        let raw = Box::new(raw.map_err(|_| Error::NotExt)?);
        if raw.magic.get() != MAGIC {
            return Err(Error::NotExt);
        }
        if raw.revision.get() > 1 {
            return Err(Error::Unsupported(format!("revision {} of the format", raw.revision)));
        }
        let mut features = Features { compat: 0, incompat: 0, ro_compat: 0 };
        if raw.revision.get() == 1 {
            features = Features {
                compat: raw.compat.get(),
                incompat: raw.incompat.get(),
                ro_compat: raw.ro_compat.get(),
            };
        }
        if features.metadata_checksum() {
            ensure(raw.checksum_type == 1, "its type of checksum is unknown")?;
            let found = crc32c(!0, &bytes[..LENGTH - 4]);
            ensure(found == raw.checksum.get(), "its checksum is wrong")?;
        }
        let refused = features.refused();
        if !refused.is_empty() {
            return Err(Error::Unsupported(format!("the feature {}", refused.join(", "))));
        }
        Self::sized(raw, features, device_bytes)
    }

    fn sized(raw: Box<Super>, features: Features, device_bytes: u64) -> Result<Self> {
        let log_block = raw.log_block_size.get();
        ensure(log_block <= 6, "its block size is beyond 64 KiB")?;
        let block_size = 1024 << log_block;
        let bits = 8 * block_size;
        let (cluster_blocks, per_group) = clusters(&raw, features, log_block)?;
        // The bits of a group's bitmap are whole bytes.
        let per_bitmap = per_group / cluster_blocks;
        let fits = per_bitmap > 0 && per_bitmap <= bits && per_bitmap.is_multiple_of(8);
        ensure(fits, "blocks per group cannot be")?;
        let inode_size = if raw.revision.get() == 0 { 128 } else { raw.inode_size.get() };
        let fits = inode_size >= 128 && u32::from(inode_size) <= block_size;
        ensure(fits && inode_size.is_power_of_two(), "its inode size cannot be")?;
        let descriptor_size = if features.wide() { raw.descriptor_size.get() } else { 32 };
        let fits = (32..=1024).contains(&descriptor_size) && descriptor_size.is_power_of_two();
        ensure(
            fits && (!features.wide() || descriptor_size >= 64),
            "its descriptor size cannot be",
        )?;
        let inodes_per_group = raw.inodes_per_group.get();
        let per_block = block_size / u32::from(inode_size);
        let fits = (per_block..=bits).contains(&inodes_per_group);
        ensure(fits && inodes_per_group.is_multiple_of(8), "inodes per group cannot be")?;
        ensure(inodes_per_group.div_ceil(per_block) <= per_group, "inodes per group cannot be")?;
        let first = u64::from(raw.first_data_block.get());
        let expected = block_size == 1024 && cluster_blocks == 1;
        ensure(first == u64::from(expected), "its first data block cannot be")?;
        let high = if features.wide() { raw.blocks_count_hi.get() } else { 0 };
        let blocks = u64::from(high) << 32 | u64::from(raw.blocks_count_lo.get());
        ensure(blocks > first && blocks < 1 << 48, "its number of blocks cannot be")?;
        let needed_bytes = blocks * u64::from(block_size);
        if needed_bytes > device_bytes {
            return Err(Error::Truncated { needed_bytes, device_bytes });
        }
        let groups = (blocks - first).div_ceil(u64::from(per_group));
        let inodes = groups * u64::from(inodes_per_group);
        let matches = inodes == u64::from(raw.inodes_count.get());
        ensure(matches, "its number of inodes is not that of its groups")?;
        let first_inode = if raw.revision.get() == 0 { FIRST_INODE } else { raw.first_inode.get() };
        let fits = (u64::from(FIRST_INODE)..=inodes).contains(&u64::from(first_inode));
        ensure(fits, "its first inode cannot be")?;
        let (Ok(groups), Ok(inodes)) = (u32::try_from(groups), u32::try_from(inodes)) else {
            return Err(fault("its number of groups cannot be"));
        };
        ensure(
            u32::from(raw.reserved_gdt_blocks.get()) <= block_size / 4,
            "too many blocks are reserved for descriptors",
        )?;
        ensure(raw.log_groups_per_flex <= 31, "its flexible groups cannot be")?;
        let descriptors = u64::from(groups) * u64::from(descriptor_size);
        let descriptors = descriptors.div_ceil(u64::from(block_size));
        let fits = first + 1 + descriptors <= blocks;
        ensure(features.meta_bg() || fits, "its descriptors do not fit")?;
        ensure(
            u64::from(raw.first_meta_bg.get()) <= descriptors || !features.meta_bg(),
            "its first meta group cannot be",
        )?;
        let seed = crc32c(!0, &raw.uuid);
        let checksum_seed = if features.checksum_seed() { raw.checksum_seed.get() } else { seed };
        let groups_per_flex = if features.flex_bg() { 1 << raw.log_groups_per_flex } else { 1 };
        Ok(Self {
            features,
            block_size,
            cluster_blocks,
            blocks,
            first_data_block: first,
            groups,
            blocks_per_group: per_group,
            inodes,
            inodes_per_group,
            inode_size,
            descriptor_size,
            groups_per_flex,
            checksum_seed,
            raw,
        })
    }

    /// The volume's name, as far as it is one.
    pub fn label(&self) -> String {
        text(&self.raw.label)
    }

    /// The volume's UUID, as it is usually written.
    pub fn uuid(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let uuid = &self.raw.uuid;
        [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]].map(hex).join("-")
    }

    /// Free blocks, by the superblock's count.
    pub fn free_blocks(&self) -> u64 {
        let high = if self.features.wide() { self.raw.free_blocks_hi.get() } else { 0 };
        u64::from(high) << 32 | u64::from(self.raw.free_blocks_lo.get())
    }

    /// Free blocks that are kept for the superuser.
    pub fn reserved_blocks(&self) -> u64 {
        let high = if self.features.wide() { self.raw.reserved_blocks_hi.get() } else { 0 };
        u64::from(high) << 32 | u64::from(self.raw.reserved_blocks_lo.get())
    }

    /// Blocks that the file system's own structures take; 0 if the superblock does not say.
    pub fn overhead_blocks(&self) -> u64 {
        u64::from(self.raw.overhead_blocks.get()) * u64::from(self.cluster_blocks)
    }

    /// Free inodes, by the superblock's count.
    pub fn free_inodes(&self) -> u32 {
        self.raw.free_inodes.get()
    }

    /// The first inode that is not the format's own.
    pub fn first_inode(&self) -> u32 {
        if self.raw.revision.get() == 0 { FIRST_INODE } else { self.raw.first_inode.get() }
    }

    /// `ext2`, `ext3` or `ext4`, as `blkid` tells them apart.
    pub fn kind(&self) -> &'static str {
        // The features that the kernel's ext2 and ext3 know.
        const INCOMPAT: u32 = 0x2 | 0x4 | 0x10;
        const RO_COMPAT: u32 = 0x1 | 0x2 | 0x4;
        let features = &self.features;
        if features.incompat & !INCOMPAT != 0 || features.ro_compat & !RO_COMPAT != 0 {
            "ext4"
        } else if features.has_journal() {
            "ext3"
        } else {
            "ext2"
        }
    }

    /// Whether it was unmounted as it should be.
    pub fn is_clean(&self) -> bool {
        self.raw.state.get() & 1 != 0 && !self.features.needs_recovery()
    }

    /// Whether an error was noted in it.
    pub fn has_errors(&self) -> bool {
        self.raw.state.get() & 2 != 0
    }

    /// When it was made, last mounted, last written to: seconds since 1970, 0 for never.
    pub fn times(&self) -> [u64; 3] {
        let raw = &self.raw;
        let with = |low: u32, high: u8| u64::from(high) << 32 | u64::from(low);
        [
            with(raw.made_time.get(), raw.times_hi[2]),
            with(raw.mount_time.get(), raw.times_hi[1]),
            with(raw.write_time.get(), raw.times_hi[0]),
        ]
    }

    /// The block that holds the superblock.
    pub(crate) fn own_block(&self) -> u64 {
        u64::from(self.block_size == 1024)
    }

    /// Descriptors in a block of them.
    pub fn descriptors_per_block(&self) -> u32 {
        self.block_size / u32::from(self.descriptor_size)
    }

    /// The first block of `group`.
    pub fn first_block_of(&self, group: u32) -> u64 {
        self.first_data_block + u64::from(group) * u64::from(self.blocks_per_group)
    }

    /// Blocks of `group`; the last one may have fewer.
    pub fn blocks_of(&self, group: u32) -> u32 {
        let rest = self.blocks - self.first_block_of(group);
        rest.min(u64::from(self.blocks_per_group)) as u32
    }

    /// Whether `block` is a block of the volume that a pointer may name.
    pub(crate) fn has(&self, block: u64) -> bool {
        self.has_block(block)
    }

    /// Whether `block` is a block of the volume that a pointer may name.
    pub fn has_block(&self, block: u64) -> bool {
        block > 0 && block >= self.first_data_block && block < self.blocks
    }

    /// Whether `group` begins with a copy of the superblock.
    pub(crate) fn has_copy(&self, group: u32) -> bool {
        if group == 0 {
            return true;
        }
        if self.features.sparse_super2() {
            return self.raw.backup_groups.iter().any(|copy| copy.get() == group);
        }
        if group == 1 || !self.features.sparse_super() {
            return true;
        }
        [3, 5, 7].into_iter().any(|base: u32| {
            let mut power = base;
            while power < group {
                power = power.saturating_mul(base);
            }
            power == group
        })
    }

    /// The block with the descriptor of `group`.
    pub fn descriptor_block(&self, group: u32) -> u64 {
        let index = group / self.descriptors_per_block();
        if !self.features.meta_bg() || index < self.raw.first_meta_bg.get() {
            return self.own_block() + 1 + u64::from(index);
        }
        let first = index * self.descriptors_per_block();
        // With blocks of 1 KiB and clusters, group 0 begins a block before its superblock.
        let extra = u64::from(first == 0 && self.block_size == 1024 && self.first_data_block == 0);
        self.first_block_of(first) + u64::from(self.has_copy(first)) + extra
    }

    /// How many blocks `group` begins with that hold the superblock and descriptors.
    pub(crate) fn head_blocks(&self, group: u32) -> u64 {
        let per_block = self.descriptors_per_block();
        let copy = self.has_copy(group);
        let skipped = u64::from(group == 0 && self.own_block() > self.first_data_block);
        let descriptors = if self.features.meta_bg()
            && group / per_block >= self.raw.first_meta_bg.get()
        {
            let place = group % per_block;
            u64::from(place == 0 || place == 1 || place == per_block - 1)
        } else if copy {
            let all = self.groups.div_ceil(per_block);
            let table = if self.features.meta_bg() { self.raw.first_meta_bg.get() } else { all };
            u64::from(table) + u64::from(self.raw.reserved_gdt_blocks.get())
        } else {
            0
        };
        skipped + u64::from(copy) + descriptors
    }

    /// The bytes of the superblock, as they are on the disk.
    pub fn as_bytes(&self) -> &[u8] {
        self.raw.as_bytes()
    }
}

/// Blocks in a cluster, and blocks in a group.
fn clusters(raw: &Super, features: Features, log_block: u32) -> Result<(u32, u32)> {
    let per_group = raw.blocks_per_group.get();
    if !features.bigalloc() {
        return Ok((1, per_group));
    }
    let log = raw.log_cluster_size.get();
    ensure((log_block..=log_block + 16).contains(&log), "its cluster size cannot be")?;
    let ratio = 1 << (log - log_block);
    let matches = raw.clusters_per_group.get().checked_mul(ratio) == Some(per_group);
    ensure(matches, "clusters per group are not blocks per group")?;
    Ok((ratio, per_group))
}

/// Bytes up to the first NUL, whatever they are.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn ensure(holds: bool, what: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(fault(what)) }
}

fn fault(what: &str) -> Error {
    Error::corrupt(format!("superblock: {what}"))
}
