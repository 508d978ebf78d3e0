#![forbid(unsafe_code)]
//! The FUSE frontend: a [`uvfs_vfs::Vfs`] behind a kernel mount.
//!
//! # Boundary
//! Translates: kernel requests into operations, nodes into node ids, errors into errno values. Its
//! only policies are timeouts and the thread of a request. Knows no backend.
//!
//! # Rooms
//! * `mount`: starting and ending a session.
//! * `server`: requests, in no transport's terms: node ids, open files, replies as plain values.
//! * `dispatch`: the work of each request, its thread, and the time of its answer.
//! * `transport`: messages of the kernel to values of the server and back, by `/dev/fuse` or rings.
//! * `helper`: the program that mounts for users without that right.
//! * `work`: the thread that read a request answers hits; misses may wait on another thread.
//! * `clean`: empties our caches and the kernel's of one directory, ours first.
//! * `control_socket`: answers the `uvfs` command for a mount that a program serves.
//! * `direct`: drops the kernel's pages that direct writes made wrong.
//! * `notify`: news for the kernel's caches, sent by a thread that holds no lock and serves
//!   nothing.

mod buffers;
mod clean;
mod control_socket;
mod direct;
mod dispatch;
mod helper;
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
pub use transport::Transport;
pub use uvfs_control::cleaned::{Cleaned, Kernel, KernelHow};
pub use uvfs_control::level::AskedOf;
