#![forbid(unsafe_code)]
//! The stores that uvfs can stand on, each behind a feature of its name.
//!
//! # Boundary
//! Each module implements [`uvfs_vfs::Backend`] and knows neither a frontend nor another backend.

#[cfg(feature = "directory")]
pub mod directory;
#[cfg(feature = "hostile")]
pub mod hostile;
#[cfg(feature = "image")]
pub mod image;
pub mod lock_order;
#[cfg(feature = "memory")]
pub mod memory;
