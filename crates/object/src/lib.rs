#![forbid(unsafe_code)]
//! An object store as a file system: a bucket, or a part of one, as a directory.
//!
//! # Boundary
//! [`Store`] has the calls of a store, and knows no file system; [`s3`] implements it by signed HTTP. [`ObjectBackend`]
//! turns it into names, objects and bytes for the seam of [`uvfs_vfs`]. Caches nothing that the core caches.
//!
//! # Concurrency
//! A request blocks its thread. The backend has threads of its own for runs of pages, as many as it has requests under way
//! at once; no lock is held while a request is under way.
//!
//! # Why
//! *An inode is one version of one object* ([`ObjectBackend`]): an open file reads that version, or gets the error that it
//! is gone, and never a mix. Requests are blocking calls on threads and not futures, because the core is made of
//! threads, and 16 of them keep 16 requests under way (decision 0024). Weakness: a thousand requests at once would need
//! futures.

mod backend;
#[cfg(test)]
mod bucket;
pub mod lock_order;
pub mod path;
mod retry;
pub mod s3;
mod store;

pub use backend::{ObjectBackend, ObjectConfig};
pub use retry::{Patience, Patient};
pub use store::{
    Condition, Delimiter, Head, Kind, ListRequest, Listed, Metadata, PART_BYTES_MIN, PARTS_MAX,
    Page, Put, REQUEST_BYTES_MAX, Result, Span, Store, StoreError, Tag, Temporary, Upload,
};
