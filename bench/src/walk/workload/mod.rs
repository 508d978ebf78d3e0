//! The workload of `walk`: the tree, the paths through it, and the loop that is timed.
//!
//! # Boundary
//! Knows no system. Compiled twice, into this bench and (by `#[path]`) into `bench-compare`, so that
//! rivals walk the same strings in the same order under the same clock. Hence it names nothing of
//! the crate around it, and of other crates only `rustix`.
//!
//! # Why
//! A library crate for three files would have made the rivals' package build the bench's FUSE and
//! command-line dependencies. Weakness: nothing but the digest in the protocol notices a rival that
//! was built from older files.

pub(crate) mod paths;
pub(crate) mod timed;
pub(crate) mod tree;
