#![forbid(unsafe_code)]
//! The kernel's FUSE protocol, up to 7.45, whole and in both directions.
//!
//! # Boundary
//! From bytes to [`Request`]s, [`Reply`]s and [`Notice`]s, and back. Opens no device, starts no thread, keeps no state: the
//! caller reads and writes messages, by `/dev/fuse` ([`Request::parse`]) or io_uring ([`Request::from_parts`]).
//! Knows kernels from 7.12 (Linux 2.6.31) on; older ones send shorter structures, which are refused.
//!
//! # In place
//! Structures ([`abi`]) are viewed where they lie, names and data are borrowed, nothing is allocated for a request. A
//! message must begin at a multiple of 8; [`Aligned`] is such a buffer. Every length and every terminating zero is
//! checked, and a message has no byte beyond its parts: [`Malformed`] names the broken rule and the request to answer.
//!
//! # Why
//! Crates for FUSE have the parts that their servers use, and their codecs are private. A transport of our own needs
//! all operations, a test of it needs the kernel's side, too. Weakness: a kernel that makes a structure longer without
//! being asked is refused; so far none did.
//!
#![doc = include_str!("../README.md")]

pub mod abi;
mod bytes;
mod extensions;
mod flags;
mod malformed;
pub mod notice;
mod opcode;
pub mod reply;
mod request;

pub use bytes::{Aligned, Packed};
pub use extensions::{Extension, Extensions, SecurityContext};
pub use flags::*;
pub use malformed::{Cause, Malformed};
pub use notice::Notice;
pub use opcode::Opcode;
pub use reply::{Answer, Listing, Reply};
pub use request::{Dialect, Operation, Request};
