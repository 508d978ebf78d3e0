//! `uvfs-contention`: which locks and fields threads fight over, on a simulated machine.
//!
//! # Boundary
//! From the command line to `uvfs_contention` and back to text: [`build`] for cargo and compilers, [`running`]
//! for programs, [`reading`] for profiles, [`trying`] for experiments of several runs, [`machine`] for the simulated
//! machine. Decides nothing about caches or profiles.
//!
//! # Concurrency
//! One thread. Ctrl-C sets a flag that is looked at between looks at the running programs.
//!
//! # Why
//! The analyser knows nothing of mounts and needs none, and a mount needs no analyser. It is therefore a separate program,
//! which `uvfs contention` starts ([decision 0018](../../../docs/decisions/0018-analyser-program.md)). It calls itself
//! `uvfs contention`, as its users do. Weakness: the runtime makes the program larger by its size.

#![forbid(unsafe_code)]

mod build;
mod flags;
mod machine;
mod reading;
mod running;
mod trying;

use flags::{ContentionArguments, ContentionCommand};
use std::fmt;
use std::process::ExitCode;
use uvfs_terminal::output::{print_line, with_output};
use uvfs_terminal::{cause, color, command_line, shown};

/// Why a command failed: one line, and the exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    line: String,
    status: u8,
}

impl Failure {
    /// The command was understood and cannot be done: status 1.
    pub(crate) fn refused(line: impl Into<String>) -> Self {
        Self { line: line.into(), status: 1 }
    }

    /// The command line is not valid: status 2.
    pub(crate) fn usage(line: impl Into<String>) -> Self {
        Self { line: line.into(), status: 2 }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&shown::shown(&self.line))
    }
}

fn main() -> ExitCode {
    let words = flags::behind_the_word(std::env::args_os().collect());
    match run(&command_line::read(words, &[])) {
        Ok(status) => with_output(status),
        Err(failure) => {
            eprintln!("uvfs: {failure}");
            ExitCode::from(failure.status)
        }
    }
}

fn run(arguments: &ContentionArguments) -> Result<ExitCode, Failure> {
    color::choose(arguments.color);
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
