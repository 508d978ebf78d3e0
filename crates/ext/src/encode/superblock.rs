//! The superblock: counts, state, the head of the list of orphans.

use super::halves;
use crate::format::checksum::crc32c;
use crate::format::superblock::{LENGTH, Superblock};
use zerocopy::IntoBytes;

/// Value of `state` when the image was unmounted as it should be.
const CLEAN: u16 = 1;
const NEEDS_RECOVERY: u32 = 4;

impl Superblock {
    /// The bytes of the superblock with its checksum.
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut raw = self.raw.clone();
        if self.features.metadata_checksum() {
            let sum = crc32c(!0, &raw.as_bytes()[..LENGTH - 4]);
            raw.checksum = sum.into();
        }
        let mut bytes = [0; LENGTH];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// Where in the volume the superblock lies: its block, and where in it.
    pub fn place(&self) -> (u64, usize) {
        if self.block_size == 1024 { (1, 0) } else { (0, 1024) }
    }

    /// Sets the number of free blocks.
    pub fn set_free_blocks(&mut self, blocks: u64) {
        let (low, high) = halves(blocks);
        self.raw.free_blocks_lo = low.into();
        if self.features.wide() {
            self.raw.free_blocks_hi = high.into();
        }
    }

    /// Sets the number of free inodes.
    pub fn set_free_inodes(&mut self, inodes: u32) {
        self.raw.free_inodes = inodes.into();
    }

    /// Says whether a reader must replay the journal first.
    pub fn set_needs_recovery(&mut self, needed: bool) {
        let incompat = self.features.incompat & !NEEDS_RECOVERY;
        self.features.incompat = if needed { incompat | NEEDS_RECOVERY } else { incompat };
        self.raw.incompat = self.features.incompat.into();
    }

    /// Says whether it was unmounted as it should be.
    pub fn set_clean(&mut self, clean: bool) {
        let state = self.raw.state.get() & !CLEAN;
        self.raw.state = (if clean { state | CLEAN } else { state }).into();
    }

    /// Notes a mount at `seconds` since 1970.
    pub fn note_mount(&mut self, seconds: u64) {
        let (low, high) = halves(seconds);
        self.raw.mount_time = low.into();
        self.raw.times_hi[1] = high as u8;
        self.raw.mount_count = self.raw.mount_count.get().wrapping_add(1).into();
        self.note_write(seconds);
    }

    /// Notes a write at `seconds` since 1970.
    pub fn note_write(&mut self, seconds: u64) {
        let (low, high) = halves(seconds);
        self.raw.write_time = low.into();
        self.raw.times_hi[0] = high as u8;
    }

    /// The first inode of the list of orphans, 0 for none.
    pub fn last_orphan(&self) -> u32 {
        self.raw.last_orphan.get()
    }

    /// Makes `inode` the first of the list of orphans.
    pub fn set_last_orphan(&mut self, inode: u32) {
        self.raw.last_orphan = inode.into();
    }

    /// The inode of the journal, 0 for none or one on another device.
    pub fn journal_inode(&self) -> u32 {
        self.raw.journal_inode.get()
    }

    /// The hash by which new directories are indexed, whether its characters are unsigned, and its seed.
    pub fn directory_hash(&self) -> (u8, bool, [u32; 4]) {
        let unsigned = self.raw.flags.get() & 2 != 0;
        (self.raw.hash_version, unsigned, self.raw.hash_seed.map(|word| word.get()))
    }

    /// Bytes behind the first 128 that a new inode has for fields.
    pub fn new_extra_size(&self) -> u16 {
        // All fields of today's inodes, where they fit.
        const WANTED: u16 = 32;
        WANTED.min(self.inode_size.saturating_sub(128))
    }
}
