//! The budget of the caches, in process. Garbage of a process counts, so tests that make much of it are in other
//! programs.

mod limits;
mod memory;
mod policy;
