#![forbid(unsafe_code)]
//! The ext2, ext3 and ext4 disk format: reads images from untrusted sources.
//!
//! # Boundary
//! From a [`Device`] to names, attributes, runs of blocks and bytes; [`encode`] goes the other way, in memory. Knows no VFS,
//! caches nothing but group descriptors, and never writes: a journal that needs recovery is replayed into a map in memory.
//!
//! # Concurrency
//! An [`Image`] is shared by reference and takes no lock. It reads every block of metadata through [`Blocks`],
//! behind which the caller may put a cache ([`Image::open_with`]).
//!
//! # Why
//! An attacker may have written any number on the disk. Each is checked where it is read: against the volume, against
//! the blocks that hold metadata, against a bound on depth and on steps. A failed check names block and inode
//! ([`Fault`]); the object cannot be read, the rest of the image can. Weakness: names are compared by their exact
//! bytes, even where a directory folds case.
//!
//! ```no_run
//! use uvfs_ext::{FileDevice, Image, ROOT};
//! let image = Image::open(std::sync::Arc::new(FileDevice::open("disk.img")?))?;
//! let root = image.inode(ROOT)?;
//! let motd = image.lookup(&root, b"motd")?.expect("it is there");
//! let mut text = vec![0; 100];
//! let length = image.read(&image.inode(motd)?, 0, &mut text)?;
//! # Ok::<(), uvfs_ext::Error>(())
//! ```

pub mod check;
pub mod device;
pub mod encode;
mod error;
mod format;
mod image;
mod journal;

pub use device::{Device, FileDevice, MemoryDevice, Window};
pub use error::{Error, Fault, Result};
pub use format::acl::acl_to_xattr;
pub use format::blocks::{Block, Blocks, Source};
pub use format::directory::DirectoryEntry;
pub use format::features::{Class, Feature, Features, Service};
pub use format::group::Group;
pub use format::hash::{HashVersion, hash as directory_hash};
pub use format::inode::{Inode, Kind, Timestamp};
pub use format::map::{Passed, Place, Run, windows};
pub use format::superblock::Superblock;
pub use format::xattr::Xattr;
pub use image::{Image, Recovery};

/// Number of the root directory's inode.
pub const ROOT: u32 = 2;
