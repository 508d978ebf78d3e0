//! Cleaning: emptying the caches of one directory.
//!
//! # Boundary
//! What can be asked for ([`request`]). Knows no command line and no control file, which both read
//! what they are given through it.

pub mod request;
