//! The shared parts of all benches: samples become figures, figures are compared with aims, rivals answer requests.
//!
//! # Boundary
//! Knows no bench and no case. [`report`] turns samples into medians, lines and tables, [`chart`] into pictures;
//! [`aims`] judges figures; [`rivals`] sends requests to the rivals' process; [`cpu`] reads the clocks of threads and
//! processes; [`machine`] describes the machine of a run; [`cleanup`] removes everything that a run made.
//!
//! # Why
//! One format of lines and one word for "missed" in all benches, so that a figure means the same everywhere and a
//! program can read any of them. Weakness: a column of one bench alone is an argument here.

#![forbid(unsafe_code)]

pub mod aims;
pub mod chart;
pub mod cleanup;
pub mod cpu;
pub mod machine;
pub mod report;
pub mod rivals;

use std::io;
use std::path::{Path, PathBuf};

/// The root of this repository, as it was when the bench was built.
pub fn repository() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap_or(root)
}

/// `error`, with the attempted step.
pub fn context(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}
