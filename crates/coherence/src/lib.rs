//! A model of a machine with many cores and memory nodes, and the profile of what a program paid in it.
//!
//! # Boundary
//! Pure: no threads, no clocks, no unsafe code, nothing of the operating system but profiles that a caller
//! names, and no TOML: it is loaded into programs under analysis. [`machine`] says what a machine costs, and which of it was measured; [`model`] charges one
//! access after the other by the state of its cache line; [`locks`] finds locks in the accesses;
//! [`profile`] is the file in which a run is kept, and the only thing that later stages read.
//!
//! # Concurrency
//! None. Virtual cores are indices; who calls decides their order, and the same order gives the same
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
