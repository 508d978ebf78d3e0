//! The structures on the disk, each in a file: typed views, checks, checksums.
//!
//! # Boundary
//! Parses bytes that a caller has; what must read further blocks to go on takes an
//! [`Image`](crate::Image).

pub(crate) mod acl;
pub(crate) mod blocks;
pub(crate) mod checksum;
pub(crate) mod directory;
pub(crate) mod features;
pub(crate) mod group;
pub(crate) mod hash;
pub(crate) mod htree;
pub(crate) mod inode;
pub(crate) mod layout;
pub(crate) mod map;
pub(crate) mod superblock;
pub(crate) mod xattr;
