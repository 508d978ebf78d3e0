//! `uvfs drop`, `cached`, `policy`, `warmup` and `refresh`: empty, show, mark and fill one directory's caches.
//!
//! # Boundary
//! [`drop()`], [`cached()`], [`policy()`], [`warmup`] and [`refresh`] are the commands, with their [`flags`]. The first two
//! walk a directory (`walk`, `opener`) and measure its files (`meter`); `evict` empties one, `tree` adds up by directory.
//! `system` is the kernel's own switch for the whole machine, `mounted` reaches the daemon of a uvfs mount, whose
//! results `mount_report` and `resident` print. [`uvfs_vfs::clean::request`] defines the form of a request.
//!
//! # Concurrency
//! A walk has its own threads, which end before it returns. They share a queue of work, and locks that are never held
//! together (`QUEUE`, `LINKS`, `NODES`).
//!
//! # Why
//! The kernel lets any user ask, file by file, that a file's clean pages be dropped (posix_fadvise(2),
//! POSIX_FADV_DONTNEED). It has no such call for names and inodes, and none for directories. So pages of a directory
//! are dropped by visiting its files, and requests for names and inodes of a foreign file system are refused. Weakness:
//! a file must be opened to be visited, which inserts its name into the kernel's cache (`opener`).

#![forbid(unsafe_code)]

mod cached;
mod drop;
mod evict;
pub mod flags;
mod instead;
mod meter;
mod mount_report;
mod mounted;
mod opener;
mod place;
mod policy;
mod report;
mod resident;
mod system;
mod table;
mod tally;
#[cfg(test)]
mod testing;
mod tree;
mod walk;
mod warmed;
mod warming;

pub use cached::run as cached;
pub use drop::run as drop;
pub use policy::run as policy;
pub use warming::{refresh, warmup};

use uvfs_client::mountinfo;
use uvfs_concurrent::lock::LockClass;
use uvfs_control::units;
use uvfs_terminal::output::print_line;
use uvfs_terminal::{Failure, cause, shown};

/// Work that is not yet taken.
static QUEUE: LockClass = LockClass::new(1, "walk-queue", "directories and files to visit");
/// Files with several names.
static LINKS: LockClass = LockClass::new(2, "walk-links", "files of several names that were seen");
/// Sums by directory.
static NODES: LockClass = LockClass::new(3, "walk-nodes", "cached objects, by directory");
