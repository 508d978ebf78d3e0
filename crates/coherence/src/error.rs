//! Faults of the files that this crate reads.
//!
//! # Boundary
//! One type for the whole crate: a line for a person, naming the thing, the cause and the remedy.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! No caller decides by the kind of error; all of them print it. Weakness: a caller that wanted to
//! tell a missing file from a damaged one would have to look itself.

use std::fmt;

/// One line: the fault, its cause, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    line: String,
}

impl Error {
    /// From the line.
    pub fn new(line: impl Into<String>) -> Self {
        Self { line: line.into().replace('\n', " ").trim_end().to_string() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.line)
    }
}

impl std::error::Error for Error {}
