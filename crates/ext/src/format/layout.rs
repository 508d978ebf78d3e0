//! The bytes on the disk as types: one struct for each structure, its sizes checked when it is compiled.
//!
//! # Boundary
//! Fields and nothing else; their users interpret and check them.

use zerocopy::byteorder::{big_endian as be, little_endian as le};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The superblock, 1024 bytes at offset 1024.
#[derive(Debug, Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Super {
    pub(crate) inodes_count: le::U32,
    pub(crate) blocks_count_lo: le::U32,
    pub(crate) reserved_blocks_lo: le::U32,
    pub(crate) free_blocks_lo: le::U32,
    pub(crate) free_inodes: le::U32,
    pub(crate) first_data_block: le::U32,
    pub(crate) log_block_size: le::U32,
    pub(crate) log_cluster_size: le::U32,
    pub(crate) blocks_per_group: le::U32,
    pub(crate) clusters_per_group: le::U32,
    pub(crate) inodes_per_group: le::U32,
    pub(crate) mount_time: le::U32,
    pub(crate) write_time: le::U32,
    pub(crate) mount_count: le::U16,
    pub(crate) mount_count_max: le::U16,
    pub(crate) magic: le::U16,
    pub(crate) state: le::U16,
    pub(crate) errors: le::U16,
    pub(crate) minor_revision: le::U16,
    pub(crate) last_check: le::U32,
    pub(crate) check_interval: le::U32,
    pub(crate) creator: le::U32,
    pub(crate) revision: le::U32,
    pub(crate) reserved_uid: le::U16,
    pub(crate) reserved_gid: le::U16,
    pub(crate) first_inode: le::U32,
    pub(crate) inode_size: le::U16,
    pub(crate) own_group: le::U16,
    pub(crate) compat: le::U32,
    pub(crate) incompat: le::U32,
    pub(crate) ro_compat: le::U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) label: [u8; 16],
    pub(crate) last_mounted: [u8; 64],
    pub(crate) compression: le::U32,
    pub(crate) preallocation: [u8; 2],
    pub(crate) reserved_gdt_blocks: le::U16,
    pub(crate) journal_uuid: [u8; 16],
    pub(crate) journal_inode: le::U32,
    pub(crate) journal_device: le::U32,
    pub(crate) last_orphan: le::U32,
    pub(crate) hash_seed: [le::U32; 4],
    pub(crate) hash_version: u8,
    pub(crate) journal_backup: u8,
    pub(crate) descriptor_size: le::U16,
    pub(crate) mount_options: le::U32,
    pub(crate) first_meta_bg: le::U32,
    pub(crate) made_time: le::U32,
    pub(crate) journal_blocks: [le::U32; 17],
    pub(crate) blocks_count_hi: le::U32,
    pub(crate) reserved_blocks_hi: le::U32,
    pub(crate) free_blocks_hi: le::U32,
    pub(crate) extra_isize: [le::U16; 2],
    pub(crate) flags: le::U32,
    pub(crate) raid_stride: le::U16,
    pub(crate) mmp_interval: le::U16,
    pub(crate) mmp_block: le::U64,
    pub(crate) raid_stripe: le::U32,
    pub(crate) log_groups_per_flex: u8,
    pub(crate) checksum_type: u8,
    pub(crate) encryption: [u8; 2],
    pub(crate) kilobytes_written: le::U64,
    pub(crate) snapshot: [u8; 20],
    pub(crate) error_count: le::U32,
    pub(crate) error_records: [u8; 104],
    pub(crate) mount_options_text: [u8; 64],
    pub(crate) quota_inodes: [le::U32; 2],
    pub(crate) overhead_blocks: le::U32,
    pub(crate) backup_groups: [le::U32; 2],
    pub(crate) encryption_details: [u8; 20],
    pub(crate) lost_and_found: le::U32,
    pub(crate) project_quota_inode: le::U32,
    pub(crate) checksum_seed: le::U32,
    pub(crate) times_hi: [u8; 8],
    pub(crate) encoding: [le::U16; 2],
    pub(crate) orphan_inode: le::U32,
    pub(crate) reserved: [le::U32; 94],
    pub(crate) checksum: le::U32,
}
const _: () = assert!(size_of::<Super>() == 1024);
const _: () = assert!(std::mem::offset_of!(Super, descriptor_size) == 0xFE);
const _: () = assert!(std::mem::offset_of!(Super, flags) == 0x160);
const _: () = assert!(std::mem::offset_of!(Super, checksum_seed) == 0x270);

/// A group descriptor; the second half only where descriptors are that long.
#[derive(Debug, Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Descriptor {
    pub(crate) block_bitmap_lo: le::U32,
    pub(crate) inode_bitmap_lo: le::U32,
    pub(crate) inode_table_lo: le::U32,
    pub(crate) free_blocks_lo: le::U16,
    pub(crate) free_inodes_lo: le::U16,
    pub(crate) directories_lo: le::U16,
    pub(crate) flags: le::U16,
    pub(crate) exclude_lo: le::U32,
    pub(crate) block_bitmap_checksum_lo: le::U16,
    pub(crate) inode_bitmap_checksum_lo: le::U16,
    pub(crate) unused_inodes_lo: le::U16,
    pub(crate) checksum: le::U16,
    pub(crate) block_bitmap_hi: le::U32,
    pub(crate) inode_bitmap_hi: le::U32,
    pub(crate) inode_table_hi: le::U32,
    pub(crate) free_blocks_hi: le::U16,
    pub(crate) free_inodes_hi: le::U16,
    pub(crate) directories_hi: le::U16,
    pub(crate) unused_inodes_hi: le::U16,
    pub(crate) exclude_hi: le::U32,
    pub(crate) block_bitmap_checksum_hi: le::U16,
    pub(crate) inode_bitmap_checksum_hi: le::U16,
    pub(crate) reserved: le::U32,
}
const _: () = assert!(size_of::<Descriptor>() == 64);

/// An inode; from `extra_size` on only in inodes of more than 128 bytes, as far as `extra_size` says.
#[derive(Debug, Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawInode {
    pub(crate) mode: le::U16,
    pub(crate) uid_lo: le::U16,
    pub(crate) size_lo: le::U32,
    pub(crate) access_time: le::U32,
    pub(crate) change_time: le::U32,
    pub(crate) modify_time: le::U32,
    pub(crate) delete_time: le::U32,
    pub(crate) gid_lo: le::U16,
    pub(crate) links: le::U16,
    pub(crate) sectors_lo: le::U32,
    pub(crate) flags: le::U32,
    pub(crate) version_lo: le::U32,
    pub(crate) block: [u8; 60],
    pub(crate) generation: le::U32,
    pub(crate) xattr_block_lo: le::U32,
    pub(crate) size_hi: le::U32,
    pub(crate) fragment: le::U32,
    pub(crate) sectors_hi: le::U16,
    pub(crate) xattr_block_hi: le::U16,
    pub(crate) uid_hi: le::U16,
    pub(crate) gid_hi: le::U16,
    pub(crate) checksum_lo: le::U16,
    pub(crate) unused: le::U16,
    pub(crate) extra_size: le::U16,
    pub(crate) checksum_hi: le::U16,
    pub(crate) change_extra: le::U32,
    pub(crate) modify_extra: le::U32,
    pub(crate) access_extra: le::U32,
    pub(crate) birth_time: le::U32,
    pub(crate) birth_extra: le::U32,
    pub(crate) version_hi: le::U32,
    pub(crate) project: le::U32,
}
const _: () = assert!(size_of::<RawInode>() == 160);

/// Head of a node of an extent tree.
#[derive(Debug, Clone, Copy, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct ExtentHeader {
    pub(crate) magic: le::U16,
    pub(crate) entries: le::U16,
    pub(crate) entries_max: le::U16,
    pub(crate) depth: le::U16,
    pub(crate) generation: le::U32,
}

/// An entry of a leaf of an extent tree.
#[derive(Debug, Clone, Copy, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Extent {
    pub(crate) logical: le::U32,
    pub(crate) length: le::U16,
    pub(crate) start_hi: le::U16,
    pub(crate) start_lo: le::U32,
}

/// An entry of an inner node of an extent tree.
#[derive(Debug, Clone, Copy, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct ExtentIndex {
    pub(crate) logical: le::U32,
    pub(crate) leaf_lo: le::U32,
    pub(crate) leaf_hi: le::U16,
    pub(crate) unused: le::U16,
}

/// Head of a directory entry.
#[derive(Debug, Clone, Copy, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct EntryHead {
    pub(crate) inode: le::U32,
    pub(crate) length: le::U16,
    pub(crate) name_length: u8,
    pub(crate) kind: u8,
}

/// The head behind the two first entries of the root of a directory's index.
#[derive(Debug, Clone, Copy, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct IndexRoot {
    pub(crate) reserved: le::U32,
    pub(crate) hash_version: u8,
    pub(crate) length: u8,
    pub(crate) levels: u8,
    pub(crate) flags: u8,
}

/// An entry of a directory's index; the first of a node has its limit and count in place of the hash.
#[derive(Debug, Clone, Copy, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct IndexEntry {
    pub(crate) hash: le::U32,
    pub(crate) block: le::U32,
}

/// Head of a block of extended attributes.
#[derive(Debug, Clone, Copy, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct XattrHeader {
    pub(crate) magic: le::U32,
    pub(crate) references: le::U32,
    pub(crate) blocks: le::U32,
    pub(crate) hash: le::U32,
    pub(crate) checksum: le::U32,
    pub(crate) reserved: [le::U32; 3],
}

/// An extended attribute; its name follows.
#[derive(Debug, Clone, Copy, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct XattrEntry {
    pub(crate) name_length: u8,
    pub(crate) name_index: u8,
    pub(crate) value_offset: le::U16,
    pub(crate) value_inode: le::U32,
    pub(crate) value_size: le::U32,
    pub(crate) hash: le::U32,
}

/// Head of every block of a journal but the data.
#[derive(Debug, Clone, Copy, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct JournalHeader {
    pub(crate) magic: be::U32,
    pub(crate) kind: be::U32,
    pub(crate) sequence: be::U32,
}

/// The journal's own superblock.
#[derive(Debug, Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct JournalSuper {
    pub(crate) magic: be::U32,
    pub(crate) kind: be::U32,
    pub(crate) header_sequence: be::U32,
    pub(crate) block_size: be::U32,
    pub(crate) blocks: be::U32,
    pub(crate) first: be::U32,
    pub(crate) sequence: be::U32,
    pub(crate) start: be::U32,
    pub(crate) error: be::U32,
    pub(crate) compat: be::U32,
    pub(crate) incompat: be::U32,
    pub(crate) ro_compat: be::U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) users: be::U32,
    pub(crate) copy: be::U32,
    pub(crate) limits: [be::U32; 2],
    pub(crate) checksum_type: u8,
    pub(crate) padding: [u8; 3],
    pub(crate) fast_commit_blocks: be::U32,
    pub(crate) head: be::U32,
    pub(crate) reserved: [be::U32; 40],
    pub(crate) checksum: be::U32,
    pub(crate) user_uuids: [u8; 768],
}
const _: () = assert!(size_of::<JournalSuper>() == 1024);
const _: () = assert!(std::mem::offset_of!(JournalSuper, checksum) == 0xFC);

/// The view of the structure at `offset`, if the bytes reach so far.
pub(crate) fn view<T: FromBytes + KnownLayout + Immutable + Unaligned>(
    bytes: &[u8],
    offset: usize,
) -> Option<&T> {
    T::ref_from_prefix(bytes.get(offset..)?).ok().map(|(view, _)| view)
}

/// The view of `count` structures at `offset`.
pub(crate) fn views<T: FromBytes + Immutable + Unaligned>(
    bytes: &[u8],
    offset: usize,
    count: usize,
) -> Option<&[T]>
where
    [T]: KnownLayout<PointerMetadata = usize>,
{
    <[T]>::ref_from_prefix_with_elems(bytes.get(offset..)?, count).ok().map(|(views, _)| views)
}

/// A little-endian word at `offset`.
pub(crate) fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    view::<le::U32>(bytes, offset).map(|word| word.get())
}
