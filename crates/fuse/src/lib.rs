#![forbid(unsafe_code)]
//! The FUSE frontend: a [`uvfs_vfs::Vfs`] behind a kernel mount.
//!
//! # Boundary
//! Translates: kernel requests into operations, nodes into node ids, errors into errno values. Holds
//! no policy of its own beyond timeouts and which thread runs what. Knows no backend.
//!
//! # Rooms
//! * `mount`: starting and ending a session.
//! * `server`: requests, in no transport's terms: node ids, open files, replies as plain values.
//! * `dispatch`: what each request does, on which thread, and when its answer goes out.
//! * `transport`: the one place that names the FUSE crate; another transport replaces it alone.
//! * `work`: hits are answered by the thread that read the request, misses may wait elsewhere.
//! * `clean`: empties our caches and the kernel's of one directory, ours first.
//! * `control_socket`: answers the `uvfs` command for a mount that a program serves.
//! * `direct`: what direct writes leave of the kernel's pages.
//! * `notify`: news for the kernel's caches, sent by a thread that holds no lock and serves nothing.

mod buffers;
mod clean;
mod control_socket;
mod direct;
mod dispatch;
pub mod lock_order;
mod mount;
mod mount_error;
mod notify;
mod server;
mod statistics;
mod task;
mod transport;
mod work;

pub use clean::Cleaner;
pub use mount::{Mount, MountOptions, Passthrough, Prepare, Unmount, unmount};
pub use mount_error::MountError;
pub use statistics::{MountStatistics, RequestCount};
pub use uvfs_control::cleaned::{Cleaned, Kernel, KernelHow};
pub use uvfs_control::level::AskedOf;
