#![forbid(unsafe_code)]
//! Writes ext2, ext3 and ext4 images, by many threads and safe against a crash at any moment.
//!
//! # Boundary
//! `uvfs-ext` is the format, in pure functions; here is what has state and locks. Knows no VFS and no FUSE. What there is
//! now is the bottom: devices that are written and flushed ([`device`]), blocks that are changed in transactions and committed
//! through a journal ([`store`]), and bringing a journal to the image after a crash ([`recover`]). Plan and order: decision 0023.
//!
//! # Concurrency
//! Every lock has a class of [`lock_order`]; no atomics but counts.

pub mod device;
mod error;
pub mod lock_order;
mod recovery;
pub mod store;

pub use device::{WritableFile, WritableMemory, WritableWindow, WriteDevice};
pub use error::{Error, Result};
pub use recovery::{log_place, recover};
