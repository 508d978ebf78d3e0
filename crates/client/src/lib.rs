//! How a command reaches the mounts of uvfs: `uvfs stat`, `set`, `drop`, `cached`, `policy`, `unmount` and others.
//!
//! * [`mountinfo`]: finds a mount without touching it
//! * [`Connection`]: asks the daemon of a mount
//! * [`state`]: the state of a mount, in a word
//! * [`liveness`]: asks the kernel about a mount whose daemon does not answer
//!
//! # Boundary
//! [`uvfs_control`] has the messages, the place of the socket and the server. Here the connection asks, `timed` limits
//! its waits, and `young` finds mounts whose socket may still appear. A failure is a line for users.
//!
//! # Concurrency
//! A connection belongs to one thread. [`liveness`] starts processes, since a thread that asks a mount may hang.
//!
//! # Why
//! Every command names the same cause and the same remedy when a daemon cannot be asked. Weakness: texts are English
//! only.

#![forbid(unsafe_code)]

mod connection;
pub mod liveness;
pub mod mountinfo;
pub mod state;
mod timed;
mod young;

pub use connection::{
    Connection, End, REPLY_TIME, Unreachable, connect, connect_within, is_served, not_permitted,
    reach, source_hangs,
};
use uvfs_terminal::{Failure, cause};
