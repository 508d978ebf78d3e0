//! Group descriptors and the checksums of bitmaps.

use super::{half, put_half};
use crate::format::checksum::crc32c;
use crate::format::group::{Group, checksum};
use crate::format::superblock::Superblock;

const FLAGS_AT: usize = 0x12;
const CHECKSUM_AT: usize = 0x1E;
const NO_INODES: u16 = 1;
const NO_BLOCK_BITMAP: u16 = 2;
const TABLE_ZEROED: u16 = 4;

impl Group {
    /// Brings counts, flags and checksums of group `number` into its descriptor `bytes`, which keeps the rest.
    pub fn encode(&self, number: u32, bytes: &mut [u8], superblock: &Superblock) {
        let long = bytes.len() >= 64;
        let counts = [
            (0x0C, 0x2C, self.free_blocks),
            (0x0E, 0x2E, self.free_inodes),
            (0x10, 0x30, self.directories),
        ];
        for (low, high, count) in counts {
            put_half(bytes, low, count as u16);
            if long {
                put_half(bytes, high, (count >> 16) as u16);
            }
        }
        let features = &superblock.features;
        if features.metadata_checksum() || features.gdt_checksum() {
            put_half(bytes, 0x1C, self.unused_inodes as u16);
            if long {
                put_half(bytes, 0x32, (self.unused_inodes >> 16) as u16);
            }
            let mut flags = half(bytes, FLAGS_AT) & !(NO_INODES | NO_BLOCK_BITMAP);
            flags |= if self.no_inodes { NO_INODES } else { 0 };
            flags |= if self.no_block_bitmap { NO_BLOCK_BITMAP } else { 0 };
            put_half(bytes, FLAGS_AT, flags);
        }
        if features.metadata_checksum() {
            for (low, high, sum) in
                [(0x18, 0x38, self.block_bitmap_checksum), (0x1A, 0x3A, self.inode_bitmap_checksum)]
            {
                put_half(bytes, low, sum as u16);
                if long {
                    put_half(bytes, high, (sum >> 16) as u16);
                }
            }
        }
        if let Some(sum) = checksum(number, bytes, superblock) {
            put_half(bytes, CHECKSUM_AT, sum);
        }
    }

    /// Whether the descriptor `bytes` says that the whole inode table was written with zeros once.
    pub fn table_is_zeroed(bytes: &[u8]) -> bool {
        half(bytes, FLAGS_AT) & TABLE_ZEROED != 0
    }
}

impl Superblock {
    /// The checksum of a block bitmap, as a descriptor has it.
    pub fn block_bitmap_checksum(&self, bitmap: &[u8]) -> u32 {
        self.bitmap_checksum(bitmap, self.blocks_per_group / self.cluster_blocks)
    }

    /// The checksum of an inode bitmap.
    pub fn inode_bitmap_checksum(&self, bitmap: &[u8]) -> u32 {
        self.bitmap_checksum(bitmap, self.inodes_per_group)
    }

    fn bitmap_checksum(&self, bitmap: &[u8], bits: u32) -> u32 {
        let sum = crc32c(self.checksum_seed, &bitmap[..bits as usize / 8]);
        if self.descriptor_size >= 64 { sum } else { sum & 0xFFFF }
    }
}
