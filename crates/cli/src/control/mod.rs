//! The control socket: how `uvfs stat`, `set`, `drop`, `cached`, `policy` and `unmount` reach the daemon of a mount.
//!
//! # Boundary
//! [`uvfs_control`] has the messages, the place of the socket and the server. Here [`client`] asks, [`timed`] limits
//! its waits, and [`young`] finds mounts whose socket may still appear. The daemon ([`crate::serve`]) makes reports and
//! ends mounts.

pub(crate) mod client;
mod timed;
mod young;

pub(crate) use uvfs_control::{cleaned, ended, level, place, policies, protocol, resident, server};
