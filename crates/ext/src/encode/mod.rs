//! The format written: values to bytes, one file for each structure that `crate::format` reads.
//!
//! # Boundary
//! Pure functions on the bytes of one structure, its checksum included. `uvfs-ext-write` decides where a structure lies,
//! in which order it reaches a disk, and which thread may change it.
//!
//! # Why
//! The encoders stand beside the decoders, so that each pair is tested against the other, and both against e2fsprogs.
//! A structure is changed in place and keeps the bytes that we give no meaning to: newer systems may use them.

pub mod directory;
pub mod extent;
pub mod group;
pub mod index;
pub mod inode;
pub mod journal;
mod superblock;
pub mod xattr;

/// Puts a little-endian word at `offset`, which is inside.
pub(crate) fn put_word(bytes: &mut [u8], offset: usize, word: u32) {
    bytes[offset..offset + 4].copy_from_slice(&word.to_le_bytes());
}

/// Puts sixteen bits at `offset`, little-endian.
pub(crate) fn put_half(bytes: &mut [u8], offset: usize, half: u16) {
    bytes[offset..offset + 2].copy_from_slice(&half.to_le_bytes());
}

/// Sixteen little-endian bits at `offset`, which is inside.
pub(crate) fn half(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}

/// The low and the high 32 bits.
pub(crate) fn halves(wide: u64) -> (u32, u32) {
    (wide as u32, (wide >> 32) as u32)
}
