#![forbid(unsafe_code)]
//! `cargo xtask VERB`: the chores of this repository that need more than one command.
//!
//! # Boundary
//! Owns facts about the *repository*: layout, notes, links, the printed lock order, and the way to run the suites
//! against a mount. Tests of behaviour are beside the code and in `tests/`.
//!
//! # Why
//! Rust and not shell, so that the checks have tests of their own and the conformance run always unmounts. `just` has
//! shorter names for the same verbs.

mod browser;
mod conformance;
mod dist;
mod failures;
mod lines;
mod locks;
mod night;
mod nightly;
mod numbers;
mod pictures;
mod programs;
mod skips;
mod steps;
mod stress;
mod supply;
mod tidy;
mod timing;
mod tree;
mod weaken;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Checks, models, documents and conformance runs of uvfs.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Formatting, lints, documentation, the lock document, tidy, licences (the oldest compiler and aarch64, where installed).
    Check,
    /// The repository's own rules: headers, notes, arrows between crates, links, decisions.
    Tidy,
    /// The loom models of `uvfs-concurrent` and `uvfs-containers`, with at most three preemptions.
    Model,
    /// `cargo test --workspace` with several programs at a time, and the lock edges that it sees judged by docs/locking.md.
    Test,
    /// Prints the lock classes, and the edges that tests saw, into docs/locking.md.
    Locks {
        /// Change nothing; fail when the document is out of date.
        #[arg(long)]
        check: bool,
    },
    /// Prints README's table of numbers from bench/results.
    Numbers {
        /// Change nothing; fail when the table is out of date.
        #[arg(long)]
        check: bool,
    },
    /// Mounts each backend for real and runs the suites of tests/conformance on it.
    Conformance(conformance::Options),
    /// Lines of code by package, and how many of them `cargo build` compiles.
    Lines,
    /// The licences and sources of the dependencies, by deny.toml, without the network.
    Supply,
    /// Lints of the packages outside the workspace (bench-compare, bench-papers, fuzz), and tests of the papers. Downloads what
    /// they need.
    Outside,
    /// The fuzz targets of fuzz/, on nightly with cargo-fuzz.
    Fuzz(nightly::FuzzOptions),
    /// The unit tests under the address and the thread sanitizer, on nightly.
    Safety,
    /// Histories and churn for a given time, instead of seconds.
    Stress(stress::Options),
    /// Cuts the power under the kernel's ext4 and compares the contents of each image as uvfs and the kernel show it. Needs root.
    Cuts(stress::CutOptions),
    /// Changes bits of images and compares the faults that a check and e2fsck find.
    Mutations(stress::MutationOptions),
    /// Weakens orderings of `uvfs-concurrent` and `uvfs-containers` one at a time, in a copy, and lists those that no model notices.
    Weaken(weaken::Options),
    /// A Debian package, an archive, checksums and the list of contents, in target/dist; tried in a clean Debian.
    Dist(dist::Options),
    /// The pictures of the documents: the page of `uvfs web`, and `uvfs top`. Needs root and a Chromium.
    Pictures(pictures::Options),
    /// What is too long for the gate or needs downloads, before a release: a bare machine, real servers, long crash batches.
    Night(night::Options),
    /// All steps of the gate: check beside model, then test beside conformance --quick.
    Ci,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().verb {
        Verb::Check => steps::check(),
        Verb::Tidy => steps::tidy(),
        Verb::Model => steps::model(),
        Verb::Test => steps::test(),
        Verb::Locks { check: true } => locks::compare(),
        Verb::Locks { check: false } => locks::rewrite(),
        Verb::Numbers { check: true } => numbers::compare(),
        Verb::Numbers { check: false } => numbers::rewrite(),
        Verb::Conformance(options) => conformance::run(&options),
        Verb::Lines => lines::print(),
        Verb::Supply => supply::check(),
        Verb::Outside => steps::outside(),
        Verb::Fuzz(options) => nightly::fuzz(&options),
        Verb::Safety => nightly::safety(),
        Verb::Stress(options) => stress::run(&options),
        Verb::Cuts(options) => stress::cuts(&options),
        Verb::Mutations(options) => stress::mutations(&options),
        Verb::Weaken(options) => weaken::run(&options),
        Verb::Dist(options) => dist::run(&options),
        Verb::Pictures(options) => pictures::run(&options),
        Verb::Night(options) => night::run(&options),
        Verb::Ci => steps::ci(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
