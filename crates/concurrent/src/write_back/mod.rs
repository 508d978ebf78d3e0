//! The order of steps of writing back: no error is missed, and nothing that is due is left without a thread.
//!
//! # Boundary
//! Two protocols, without the pages and the store that they are about: [`marked`] is what an `fsync` and a run that fails
//! do beside each other; [`due`] is which file is due, and when a thread looks next. Their callers own the locks.
//!
//! # Why
//! Both had a hole of a few instructions that no test of a whole file system could hit. Here the models run the code of
//! the product.

pub mod due;
pub mod marked;
#[cfg(all(test, loom))]
mod models;
