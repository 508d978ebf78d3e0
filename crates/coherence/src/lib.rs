//! A model of a machine with many cores and memory nodes, and the profile of a program's costs in it.
//!
//! # Boundary
//! Pure: no threads, no clocks, no unsafe code, no TOML, and nothing of the operating system but profiles that a caller
//! names: programs under analysis load it. [`machine`] has a machine's costs, measured or assumed; [`model`] charges one
//! access after the other by the state of its cache line; [`locks`] finds locks in the accesses;
//! [`profile`] is the file of a run, and the only input of later stages.
//!
//! # Concurrency
//! None. Virtual cores are indices; the caller decides their order, and the same order gives the same
//! result, to the cycle.
//!
//! # Why
//! The model is a crate of its own because three things use it: the runtime that a program carries, the
//! tests that know the answer beforehand, and the reports. Weakness: execution is sequentially
//! consistent and in order; no prefetch, no store buffer, no bandwidth limit but a line's own.

#![forbid(unsafe_code)]

mod capacity;
pub mod configuration;
mod costs;
pub mod error;
pub mod file;
pub mod histogram;
pub mod layout;
pub mod locks;
pub mod machine;
pub mod model;
pub mod pipeline;
pub mod profile;
pub mod scheduler;
mod sharing;

pub use error::Error;
pub use machine::Machine;
pub use model::{Access, Miss, Model, Outcome, TICKS_PER_CYCLE, Ticks};
pub use profile::Profile;
pub use scheduler::{Next, Scheduler};
