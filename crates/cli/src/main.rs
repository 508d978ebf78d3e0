//! `uvfs`: mounts RAM, a host directory, a disk image or a bucket, reports on mounts, changes and ends them.
//!
//! # Boundary
//! Composition: command line → checks → backend, core and frontend → control socket. Knows no
//! algorithm of the layers that it combines. Commands on caches ([`uvfs_cleaning`]), on images
//! ([`uvfs_image_tools`]), live figures ([`uvfs_live`]) and metrics ([`uvfs_metrics`]) are crates of
//! their own.
//!
//! # Concurrency
//! The main thread waits only for signals and the session's end ([`serve`]). The control socket has
//! its own threads ([`uvfs_control::server`]). The frontend's serving threads are sandboxed
//! ([`sandbox`]); these are not, because they must be able to unmount.
//!
//! # Why
//! A refusal is one line on standard error that names the thing, the cause and the remedy, before
//! anything was changed ([`checks`]). Exit status: 0 done, 1 refused or failed, 2 the command line
//! itself is invalid. Weakness: texts are English only.

#![forbid(unsafe_code)]

mod bucket;
mod checks;
mod companion;
mod completion;
mod config;
mod daemon;
mod demo;
mod doctor;
mod fake_root;
mod flags;
mod fstab;
mod holders;
mod logger;
mod memory;
mod mount_helper;
mod mounts;
mod notify;
mod plan;
mod policies;
mod sandbox;
mod serve;
mod set;
mod source;
mod stat;
mod unmount;

use flags::{Arguments, Command};
use std::process::ExitCode;
use uvfs_cleaning as cleaning;
use uvfs_client::{liveness, mountinfo};
use uvfs_control::{locks as locks_report, units};
use uvfs_terminal::output::{print_line, print_text, with_output};
use uvfs_terminal::{Failure, cause, color, command_line, shown};

fn main() -> ExitCode {
    completion::answer();
    let words: Vec<_> = std::env::args_os().collect();
    if mount_helper::is_called(words.first()) {
        return mount_helper::run(&words[1..]);
    }
    // Where the options of a mount are from that its command line does not have.
    let (words, origins) = match config::completed(words) {
        Ok(completed) => completed,
        Err(failure) => return failed(&failure, &[]),
    };
    let arguments = command_line::read::<Arguments>(words, &flags::REMEDIES);
    color::choose(arguments.color);
    let done = match arguments.command {
        Command::Demo => demo::run(),
        Command::Mount(arguments) => serve::mount(&arguments),
        Command::Mounts(arguments) => mounts::run(&arguments),
        Command::Stat(arguments) => stat::run(&arguments),
        Command::Metrics(arguments) => uvfs_metrics::run(&arguments.mountpoints, arguments.text),
        Command::Top(arguments) => uvfs_live::top(&arguments),
        Command::Web(arguments) => uvfs_live::web(&arguments, sandbox::restrict_client),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Set(arguments) => set::run(&arguments),
        Command::Drop(arguments) => cleaning::drop(&arguments),
        Command::Warmup(arguments) => cleaning::warmup(&arguments),
        Command::Refresh(arguments) => cleaning::refresh(&arguments),
        Command::Cached(arguments) => cleaning::cached(&arguments),
        Command::Policy(arguments) => cleaning::policy(&arguments),
        Command::Image(arguments) => uvfs_image_tools::run(&arguments),
        Command::Unmount(arguments) => unmount::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Completions { shell } => completion::run(shell),
        Command::Contention { .. } => companion::run(companion::CONTENTION),
        Command::AskMount { mountpoint } => Ok(liveness::ask(&mountpoint)),
    };
    match done {
        Ok(status) => with_output(status),
        Err(failure) => failed(&failure, &origins),
    }
}

/// Prints why a command failed; and `more`, the words that its user did not write.
fn failed(failure: &Failure, more: &[String]) -> ExitCode {
    eprintln!("uvfs: {failure}");
    for line in more {
        eprintln!("uvfs: {}", shown::shown(line));
    }
    ExitCode::from(failure.status())
}
