//! The control socket: how `uvfs stat`, `set`, `drop`, `cached`, `policy` and `unmount` reach the daemon of a mount.
//!
//! # Boundary
//! [`protocol`] says what is said, [`cleaned`] how a cleaning is told, [`resident`] what is cached, [`policies`] what
//! is marked, [`ended`] what was lost at the end, [`place`] where the socket is, [`server`] answers in the daemon, [`client`] asks, [`timed`] how long it
//! waits. What a report contains, how a directory is cleaned and
//! how a mount ends is the daemon's ([`crate::serve`]).
//!
//! # Why
//! A socket in a folder that only its owner may enter, and the peer's user id checked by the kernel's
//! word as well: file modes alone fail open when somebody loosens them. Never a TCP port.

pub(crate) mod cleaned;
pub(crate) mod client;
pub(crate) mod ended;
pub(crate) mod place;
pub(crate) mod policies;
pub(crate) mod protocol;
pub(crate) mod resident;
pub(crate) mod server;
mod timed;
