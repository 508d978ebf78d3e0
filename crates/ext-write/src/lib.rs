#![forbid(unsafe_code)]
//! Writes ext4 images with a journal, by many threads and safe against a crash at any moment.
//!
//! # Boundary
//! `uvfs-ext` has the format, in pure functions; this crate has state and locks. Knows no VFS and no FUSE. From the
//! bottom: devices that are written and flushed ([`device`]), blocks that are changed in transactions and committed through a
//! journal ([`store`]), the queue before the device ([`queue`]), bringing a journal to the image after a crash ([`recover`]), operations ([`Volume`]). Plan and order:
//! decision 0023.
//!
//! ```no_run
//! use uvfs_ext::{Kind, ROOT};
//! use uvfs_ext_write::{New, Volume, WritableFile};
//! let volume = Volume::open(std::sync::Arc::new(WritableFile::open("disk.img")?))?;
//! let new = New { kind: Kind::Regular, permissions: 0o644, uid: 0, gid: 0, device: (0, 0), target: b"", xattrs: &[] };
//! let file = volume.create(ROOT, b"hello", &new)?;
//! volume.write(file, 0, b"world")?;
//! volume.fsync(file)?;
//! volume.close()?;
//! # Ok::<(), uvfs_ext_write::Error>(())
//! ```
//!
//! # Concurrency
//! Every lock has a class of [`lock_order`]; no atomics but counts.

pub mod device;
mod error;
mod hashing;
pub mod lock_order;
pub mod queue;
mod recovery;
pub mod store;
mod volume;

pub use device::{
    DeviceCounts, DirectFile, NotDirect, WithoutBarriers, WritableFile, WritableMemory,
    WritableWindow, WriteDevice,
};
pub use error::{Error, Result};
pub use recovery::{log_place, recover};
pub use store::{Counts, Ended, Now};
pub use volume::{
    Change, DataMode, Grow, Held, Listed, Look, Losses, Lost, New, Privileges, Rename, Room,
    SetAttributes, Volume, WriteAt, writable,
};
