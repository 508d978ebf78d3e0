//! `uvfs contention`: which locks and fields threads fight over, on a simulated machine.
//!
//! # Boundary
//! From the command line to `uvfs_contention` and back to text: [`build`] for cargo and compilers, [`running`]
//! for programs, [`reading`] for profiles, [`trying`] for experiments of several runs, [`machine`] for what is
//! simulated. Decides nothing about caches or profiles.
//!
//! # Concurrency
//! One thread. Ctrl-C sets a flag that is looked at between looks at the running programs.
//!
//! # Why
//! The analyser knows nothing of mounts and needs none; it is a command of the same program because whoever
//! installs one has the other. Weakness: the runtime makes the program larger by its size.

mod build;
pub(crate) mod flags;
mod machine;
mod reading;
mod running;
mod trying;

use crate::Failure;
use flags::{ContentionArguments, ContentionCommand};
use std::process::ExitCode;

/// Runs the subcommand.
///
/// # Errors
/// What makes no sense, what is refused and what fails.
pub(crate) fn run(arguments: &ContentionArguments) -> Result<ExitCode, Failure> {
    match &arguments.command {
        ContentionCommand::Cargo(arguments) => build::cargo(arguments),
        ContentionCommand::Cc(arguments) => build::cc(arguments),
        ContentionCommand::Cxx(arguments) => build::cxx(arguments),
        ContentionCommand::Run(arguments) => running::run(arguments),
        ContentionCommand::Record(arguments) => running::record(arguments),
        ContentionCommand::Exec(arguments) => build::exec(arguments),
        ContentionCommand::Report(arguments) => reading::report(arguments),
        ContentionCommand::Layout(arguments) => reading::layout(arguments),
        ContentionCommand::Compare(arguments) => reading::compare(arguments),
        ContentionCommand::Gate(arguments) => reading::gate(arguments),
        ContentionCommand::Import(arguments) => reading::import(arguments),
        ContentionCommand::Numa(arguments) => trying::numa(arguments),
        ContentionCommand::Sweep(arguments) => trying::sweep(arguments),
        ContentionCommand::WhatIf(arguments) => trying::what_if(arguments),
        ContentionCommand::Align(arguments) => trying::align(arguments),
        ContentionCommand::Reorder(arguments) => trying::reorder(arguments),
        ContentionCommand::Advise(arguments) => trying::advise(arguments),
        ContentionCommand::Machine(arguments) => machine::show(arguments),
        ContentionCommand::Calibrate(arguments) => machine::calibrate(arguments),
    }
}

impl From<uvfs_contention::Error> for Failure {
    fn from(error: uvfs_contention::Error) -> Self {
        Self::refused(error.to_string())
    }
}

impl From<uvfs_coherence::Error> for Failure {
    fn from(error: uvfs_coherence::Error) -> Self {
        Self::refused(error.to_string())
    }
}
