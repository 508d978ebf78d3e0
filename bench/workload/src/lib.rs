//! The measured work, the same for uvfs and for its rivals.
//!
//! # Boundary
//! Knows no system. [`tree`], [`paths`] and [`timed`] are walks; [`keys`] are indexes of a tree's slots, [`traces`]
//! keys of a cache; [`rows`] is a thread's use of a cache, [`users`] a mix of programs over files; [`team`] runs threads together and times their phases;
//! [`child`] is a process that answers lines.
//!
//! # Why
//! `bench` and `bench-compare` are built apart, with other dependencies and allocators, and must do the same work in
//! the same order under the same clock. So this crate is small and depends only on `rustix`, and with the feature `vfs`,
//! which no rival has, on uvfs. Weakness: only the digest in the walk's protocol detects a rival that was built from older files.

#![forbid(unsafe_code)]

pub mod child;
pub mod keys;
pub mod paths;
pub mod rows;
pub mod team;
pub mod timed;
pub mod traces;
pub mod tree;
pub mod users;
