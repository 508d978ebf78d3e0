//! `uvfs-bench-papers`: published experiments run again, with uvfs beside the authors' systems.
//!
//! # Boundary
//! Composition: command line → experiment → report. [`dcache`] is a paper of 2002, `radix` one of 2007,
//! `contention` another of 2007, and `set_associative` one of 1992, whose caches are in [`rows`]. [`contended`] is for the
//! programs in `examples/`, which `contention` builds and runs. `uvfs_bench_kit` turns numbers into medians and lines.
//!
//! # Why
//! A workspace of its own, which the gate does not build: a paper is run again for a publication, not for each change of
//! the file system. `cargo xtask outside` lints and tests it. `uvfs-bench` has the benches that compare uvfs with its rivals.

#![forbid(unsafe_code)]

pub mod contended;
mod contention;
pub mod dcache;
mod radix;
pub mod rows;
mod set_associative;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use uvfs_bench_kit::cleanup;

/// Runs published experiments again. Medians with spread; asserts nothing.
#[derive(Debug, Parser)]
#[command(name = "uvfs-bench-papers", max_term_width = 100, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Debug, Subcommand)]
enum Paper {
    /// The directory-entry cache of Linder, Sarma and Soni (2002), step by step, and uvfs beside it
    Dcache(dcache::DcacheArguments),
    /// The tagged radix tree: the experiment of Zijlstra (2007), step by step, and rivals
    Radix(radix::RadixArguments),
    /// Caches under one lock, under locks of queues, and in rows: the experiment of Peacock (1992)
    SetAssociative(set_associative::SetAssociativeArguments),
    /// The contention analyser: known answers, known bugs, the figures of Gough, Siddha and Chen (2007)
    Contention(contention::ContentionArguments),
}

/// Runs the command line.
pub fn main() -> ExitCode {
    let done = match Arguments::parse().paper {
        Paper::Dcache(arguments) => dcache::run(&arguments),
        Paper::Radix(arguments) => radix::run(&arguments),
        Paper::SetAssociative(arguments) => set_associative::run(&arguments),
        Paper::Contention(arguments) => contention::run(&arguments),
    };
    cleanup::everything();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("uvfs-bench-papers: {error}");
            ExitCode::FAILURE
        }
    }
}
