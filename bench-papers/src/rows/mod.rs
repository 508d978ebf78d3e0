//! The caches of Peacock (1992, "File System Multithreading in System V Release 4 MP") in three ways of locking, and
//! the work of threads with them.
//!
//! # Boundary
//! The caches are in [`caches`], a thread's turn in [`load`]. Runs nothing and prints nothing.
//!
//! # Why
//! `uvfs-bench-papers set-associative` runs them on the real cores, and `contention --case rows` on simulated ones; both
//! must compare the same code.

pub mod caches;
pub mod load;
