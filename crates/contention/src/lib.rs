//! Names the lock and the field that threads fight over, on a simulated machine.
//!
//! # Boundary
//! Builds a program with the compiler's thread-sanitizer pass, runs it with the runtime of
//! `contention-runtime` in the sanitizer's place, and makes reports of the profiles. What an access
//! costs is decided in [`uvfs_coherence`]; the command line is the mount tool's.
//!
//! # Concurrency
//! Seeds run as processes, several at once; no state is shared.
//!
//! # Why
//! Hardware counters are missing where most programs are tested, and never show more cores than there
//! are. Weakness: everything is as good as the model; see the machine's assumed parameters.

#![forbid(unsafe_code)]

pub mod advise;
pub mod analysis;
pub mod build;
pub mod calibrate;
pub mod compare;
pub mod embed;
pub mod error;
pub mod gate;
pub mod import;
pub mod ledger;
pub mod machine_file;
pub mod names;
pub mod numa;
pub mod report;
pub mod run;
pub mod statistics;
pub mod sweep;
pub mod whatif;

#[cfg(test)]
mod fixture;
mod patterns;

pub use error::Error;
pub use ledger::Ledger;
