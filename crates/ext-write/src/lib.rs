#![forbid(unsafe_code)]
//! Writes ext2, ext3 and ext4 images, by many threads and safe against a crash at any moment.
//!
//! # Boundary
//! `uvfs-ext` is the format, in pure functions; here is what has state and locks. Knows no VFS and no FUSE. What there is
//! now is the bottom: devices that are written and flushed ([`device`]). Plan and order: decision 0023.
//!
//! # Concurrency
//! Every lock has a class of [`lock_order`]; no atomics but counts.

pub mod device;
pub mod lock_order;

pub use device::{WritableFile, WritableMemory, WriteDevice};
