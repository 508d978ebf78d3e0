//! The caches of Peacock (1992, "File System Multithreading in System V Release 4 MP") in three ways of
//! locking.
//!
//! # Boundary
//! The caches are in [`caches`], the counts of their locks in [`load`], a
//! thread's turn in [`uvfs_bench_workload::rows`]. Runs nothing and prints nothing.
//!
//! # Why
//! `uvfs-bench-papers set-associative` runs them on the real cores, and `contention --case rows` on simulated ones; both
//! must compare the same code.

pub mod caches;
pub mod load;
