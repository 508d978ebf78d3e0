//! The control socket: how `uvfs stat`, `set`, `drop`, `cached`, `policy` and `unmount` reach the daemon of a mount.
//!
//! # Boundary
//! What is said, where the socket is and who answers is [`uvfs_control`]'s. Here [`client`] asks, [`timed`] says
//! how long it waits, and [`young`] for which mounts it waits at all. What a report contains, and how a mount ends, is the daemon's ([`crate::serve`]).

pub(crate) mod client;
mod timed;
mod young;

pub(crate) use uvfs_control::{cleaned, ended, level, place, policies, protocol, resident, server};
