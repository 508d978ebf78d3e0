//! The order of the steps of write-back: no error is missed, and no due file is left without a thread.
//!
//! # Boundary
//! Two protocols, without their pages and store. [`marked`] orders an `fsync` and a failing run beside each other;
//! [`due`] orders the due files and the moment when a thread looks next. Their callers own the locks.
//!
//! # Why
//! Both had a hole of a few instructions that no test of a whole file system could hit. Here the models run the code of
//! the product.

pub mod due;
pub mod marked;
#[cfg(all(test, loom))]
mod models;
