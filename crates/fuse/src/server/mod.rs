//! Requests, in no transport's terms.
//!
//! # Boundary
//! Methods take a request as plain values and return plain values; a transport turns them into
//! bytes. Those named `try_…` answer from the caches or not at all, and never wait.
//!
//! # Concurrency
//! Any number of threads may call this at once. Every entry sent to the kernel counts one lookup on
//! its node id *before* the reply is sent; the matching forgets arrive later.

mod again;
pub(crate) mod control;
#[cfg(test)]
mod fake_root_tests;
pub(crate) mod files;
pub(crate) mod heat;
mod kernel_end;
pub(crate) mod missing;
pub(crate) mod nodes;
pub(crate) mod overtaken;
pub(crate) mod places;
mod request;
mod requests;

pub(crate) use request::{
    Answer, Bytes, Doubts, Listed, Opened, Reply, Request, Sender, Through, WriteFrom, WriteHow,
};
pub(crate) use requests::{Attrs, EntryOut, FakeRoot, Server, Settings, special_kind};
