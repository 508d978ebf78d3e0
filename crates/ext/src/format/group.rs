//! Group descriptors, read when their group is first needed, and the blocks that they say hold metadata.
//!
//! # Boundary
//! Descriptors with their checksums, and the *system zone*: superblocks, descriptors, bitmaps, inode tables. A file
//! whose extent lies there would read (and its owner serve) the file system's own structures.
//!
//! # Concurrency
//! The first reader fills an entry. Two readers at once compute the same value, and one of them is kept.
//!
//! # Why
//! An attacker may choose the number of groups: in a table of two levels, groups without a reader cost nothing. The zone is
//! kept by *cluster*, the groups of one flexible group, whose metadata lie together. Weakness: metadata that a descriptor
//! claims outside its own cluster is not in the zone of the place where it lies.

use super::blocks::Blocks;
use super::checksum::{crc16, crc32c};
use super::layout::{Descriptor, view};
use super::superblock::Superblock;
use crate::error::{Error, Result};
use std::ops::Range;
use std::sync::OnceLock;

/// Clusters in one part of the table.
const PART: usize = 1024;
/// Groups in a cluster: most flexible groups have 16.
const CLUSTER_MIN: u32 = 16;
const CLUSTER_MAX: u32 = 256;

/// A parsed descriptor.
#[derive(Debug, Clone)]
pub struct Group {
    /// Block of its block bitmap.
    pub block_bitmap: u64,
    /// Block of its inode bitmap.
    pub inode_bitmap: u64,
    /// First block of its inode table.
    pub inode_table: u64,
    /// Free blocks.
    pub free_blocks: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Directories among its inodes.
    pub directories: u32,
    /// Inodes at the end of the table that were never used.
    pub unused_inodes: u32,
    /// Checksum of its block bitmap.
    pub block_bitmap_checksum: u32,
    /// Checksum of its inode bitmap.
    pub inode_bitmap_checksum: u32,
    /// The inode table was never written, and holds nothing.
    pub no_inodes: bool,
    /// The block bitmap was never written.
    pub no_block_bitmap: bool,
}

#[derive(Debug)]
struct Cluster {
    groups: Box<[OnceLock<Group>]>,
    zone: OnceLock<Vec<Range<u64>>>,
}

/// Clusters that come into being together.
type Part = Box<[OnceLock<Cluster>]>;

/// The groups of an image.
#[derive(Debug)]
pub(crate) struct Groups {
    per_cluster: u32,
    parts: Box<[OnceLock<Part>]>,
}

impl Groups {
    pub(crate) fn new(superblock: &Superblock) -> Self {
        let per_cluster = superblock.groups_per_flex.clamp(CLUSTER_MIN, CLUSTER_MAX);
        let clusters = superblock.groups.div_ceil(per_cluster) as usize;
        Self { per_cluster, parts: empty(clusters.div_ceil(PART)) }
    }

    fn cluster(&self, group: u32) -> &Cluster {
        let at = (group / self.per_cluster) as usize;
        let part = self.parts[at / PART].get_or_init(|| empty(PART));
        part[at % PART].get_or_init(|| Cluster {
            groups: empty(self.per_cluster as usize),
            zone: OnceLock::new(),
        })
    }

    /// The descriptor of `group`, which is one of the volume.
    pub(crate) fn get(
        &self,
        group: u32,
        superblock: &Superblock,
        blocks: &dyn Blocks,
    ) -> Result<&Group> {
        let slot = &self.cluster(group).groups[(group % self.per_cluster) as usize];
        if let Some(known) = slot.get() {
            return Ok(known);
        }
        let read = read(group, superblock, blocks)?;
        Ok(slot.get_or_init(|| read))
    }

    /// Whether any of `blocks` holds metadata, and which.
    pub(crate) fn metadata_in(
        &self,
        run: Range<u64>,
        superblock: &Superblock,
        blocks: &dyn Blocks,
    ) -> Option<u64> {
        let per_group = u64::from(superblock.blocks_per_group);
        let group_of = |block: u64| ((block - superblock.first_data_block) / per_group) as u32;
        let clusters =
            group_of(run.start) / self.per_cluster..=group_of(run.end - 1) / self.per_cluster;
        clusters.into_iter().find_map(|cluster| {
            let first = cluster * self.per_cluster;
            let zone =
                self.cluster(first).zone.get_or_init(|| self.zone(first, superblock, blocks));
            let behind = zone.partition_point(|range| range.end <= run.start);
            let range = zone.get(behind)?;
            (range.start < run.end).then_some(range.start.max(run.start))
        })
    }

    /// The metadata of the cluster that begins with group `first`, sorted and joined.
    fn zone(&self, first: u32, superblock: &Superblock, blocks: &dyn Blocks) -> Vec<Range<u64>> {
        let table = inode_table_blocks(superblock);
        let mut zone = Vec::new();
        for group in first..superblock.groups.min(first.saturating_add(self.per_cluster)) {
            let start = superblock.first_block_of(group);
            zone.push(
                start
                    ..start + superblock.head_blocks(group).min(superblock.blocks_of(group).into()),
            );
            // A faulty descriptor adds nothing; a caller that needs its group gets the error.
            if let Ok(group) = self.get(group, superblock, blocks) {
                zone.push(group.block_bitmap..group.block_bitmap + 1);
                zone.push(group.inode_bitmap..group.inode_bitmap + 1);
                zone.push(group.inode_table..group.inode_table + table);
            }
        }
        zone.retain(|range| !range.is_empty());
        zone.sort_by_key(|range| range.start);
        zone.dedup_by(|next, before| {
            let joined = next.start <= before.end;
            if joined {
                before.end = before.end.max(next.end);
            }
            joined
        });
        zone
    }
}

fn empty<T>(count: usize) -> Box<[OnceLock<T>]> {
    std::iter::repeat_with(OnceLock::new).take(count).collect()
}

/// Blocks of the inode table of each group.
pub(crate) fn inode_table_blocks(superblock: &Superblock) -> u64 {
    let per_block = superblock.block_size / u32::from(superblock.inode_size);
    u64::from(superblock.inodes_per_group.div_ceil(per_block))
}

fn read(number: u32, superblock: &Superblock, blocks: &dyn Blocks) -> Result<Group> {
    let place = superblock.descriptor_block(number);
    if place >= superblock.blocks {
        return Err(Error::corrupt(format!("the descriptor of group {number} is beyond the end")));
    }
    let size = usize::from(superblock.descriptor_size);
    let offset = (number % superblock.descriptors_per_block()) as usize * size;
    let block = blocks.block(place)?;
    let fault = |what: &str| Error::corrupt(format!("group {number}: {what}")).at_block(place);
    let bytes = block.get(offset..offset + size).ok_or_else(|| fault("its block is short"))?;
    let mut copy = [0; 64];
    copy[..size.min(64)].copy_from_slice(&bytes[..size.min(64)]);
    let raw: &Descriptor = view(&copy, 0).ok_or_else(|| fault("its descriptor is short"))?;
    let checked = match checksum(number, bytes, superblock) {
        Some(sum) => sum == raw.checksum.get(),
        None => true,
    };
    if !checked {
        return Err(fault("the checksum of its descriptor is wrong"));
    }
    let wide = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    let count = |low: u16, high: u16| u32::from(high) << 16 | u32::from(low);
    let has_sums = superblock.features.metadata_checksum() || superblock.features.gdt_checksum();
    let flagged = |bit: u16| has_sums && raw.flags.get() & bit != 0;
    let unused = count(raw.unused_inodes_lo.get(), raw.unused_inodes_hi.get());
    let group = Group {
        block_bitmap: wide(raw.block_bitmap_lo.get(), raw.block_bitmap_hi.get()),
        inode_bitmap: wide(raw.inode_bitmap_lo.get(), raw.inode_bitmap_hi.get()),
        inode_table: wide(raw.inode_table_lo.get(), raw.inode_table_hi.get()),
        free_blocks: count(raw.free_blocks_lo.get(), raw.free_blocks_hi.get()),
        free_inodes: count(raw.free_inodes_lo.get(), raw.free_inodes_hi.get()),
        directories: count(raw.directories_lo.get(), raw.directories_hi.get()),
        unused_inodes: if has_sums { unused } else { 0 },
        block_bitmap_checksum: count(
            raw.block_bitmap_checksum_lo.get(),
            raw.block_bitmap_checksum_hi.get(),
        ),
        inode_bitmap_checksum: count(
            raw.inode_bitmap_checksum_lo.get(),
            raw.inode_bitmap_checksum_hi.get(),
        ),
        no_inodes: flagged(1),
        no_block_bitmap: flagged(2),
    };
    let places = [
        (group.block_bitmap, 1, "its block bitmap is outside the volume"),
        (group.inode_bitmap, 1, "its inode bitmap is outside the volume"),
        (
            group.inode_table,
            inode_table_blocks(superblock),
            "its inode table is outside the volume",
        ),
    ];
    for (start, length, what) in places {
        let inside = superblock.has(start)
            && start.checked_add(length).is_some_and(|end| end <= superblock.blocks);
        if !inside {
            return Err(fault(what));
        }
    }
    if group.unused_inodes > superblock.inodes_per_group {
        return Err(fault("it has more unused inodes than inodes"));
    }
    Ok(group)
}

/// The checksum that the descriptor `bytes` should have, if it has any.
pub(crate) fn checksum(number: u32, bytes: &[u8], superblock: &Superblock) -> Option<u16> {
    const AT: usize = 30;
    let number = number.to_le_bytes();
    if superblock.features.metadata_checksum() {
        let sum = crc32c(superblock.checksum_seed, &number);
        let sum = crc32c(crc32c(sum, &bytes[..AT]), &[0; 2]);
        Some(crc32c(sum, &bytes[AT + 2..]) as u16)
    } else if superblock.features.gdt_checksum() {
        let sum = crc16(crc16(!0, &superblock.raw.uuid), &number);
        let sum = crc16(sum, &bytes[..AT]);
        Some(crc16(sum, &bytes[AT + 2..]))
    } else {
        None
    }
}
