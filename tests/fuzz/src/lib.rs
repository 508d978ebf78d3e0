#![forbid(unsafe_code)]
//! The work of the fuzz targets: a function for each, which panics if a promise is broken.
//!
//! # Boundary
//! Knows no fuzzer. `fuzz/` passes these functions to libFuzzer, which needs nightly; `tests/seeds.rs` runs them on any
//! machine, over the committed seeds and inputs derived from them.
//!
//! # Why
//! A package of the workspace, so that the gate compiles, lints and runs the very function that is fuzzed: one of them
//! did not compile for a time, unnoticed. Weakness: without coverage the derived inputs find only faults near the
//! seeds.

pub mod acl;
pub mod clean_request;
pub mod control;
pub mod fuse_reply;
pub mod fuse_request;
pub mod handle;
pub mod image;
pub mod image_write;
pub mod memory_data;
pub mod walk;

/// A target: one input.
pub type Target = fn(&[u8]);

/// Every target by the name of its folder of seeds.
pub const TARGETS: &[(&str, Target)] = &[
    ("acl", acl::run),
    ("clean_request", clean_request::run),
    ("control", control::run),
    ("fuse_reply", fuse_reply::run),
    ("fuse_request", fuse_request::run),
    ("handle", handle::run),
    ("image", image::run),
    ("image_write", image_write::run),
    ("memory_data", memory_data::run),
    ("walk", walk::run),
];
