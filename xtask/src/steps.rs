//! The verbs that are lists of commands: check, tidy, model, ci.
//!
//! # Boundary
//! Runs cargo and reports the first step that failed. What the steps demand is written elsewhere:
//! lints in Cargo.toml and clippy.toml, our own rules in [`crate::tidy`].
//!
//! # Why
//! One list in one place, so that the gate and a developer run the same words. Weakness: the steps
//! run one after another and stop at the first failure, so a run shows one kind of fault at a time.

use crate::tree::{self, Tree};
use crate::{conformance, locks, tidy};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// Formatting, lints, documentation, the lock document, tidy; licences where cargo-deny is there.
pub(crate) fn check() -> Result<(), String> {
    step(cargo().args(["fmt", "--all", "--check"]))?;
    step(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    let mut documentation = cargo();
    step(
        documentation.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    locks::compare()?;
    tidy()?;
    if Command::new("cargo-deny").arg("--version").output().is_err() {
        println!("skipped: cargo deny: cargo-deny is not installed");
        return Ok(());
    }
    step(cargo().args(["deny", "check"]))
}

/// Our own rules over the repository's files.
pub(crate) fn tidy() -> Result<(), String> {
    let faults = tidy::faults(&Tree::of_repository()?);
    for fault in &faults {
        println!("{fault}");
    }
    if faults.is_empty() {
        println!("tidy: nothing to say");
        return Ok(());
    }
    Err(format!("tidy: {} faults", faults.len()))
}

/// The loom models, in a target directory of their own: `--cfg loom` would rebuild everything else.
pub(crate) fn model() -> Result<(), String> {
    let mut models = cargo();
    models.args(["test", "-p", "uvfs-concurrent", "--lib", "--profile", "model", "models"]);
    models.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target().join("loom"));
    models.env("LOOM_MAX_PREEMPTIONS", "3");
    step(&mut models)
}

/// What the gate asks. The tests and the suites come last, so that their counts close the log.
pub(crate) fn ci() -> Result<(), String> {
    check()?;
    model()?;
    step(cargo().args(["test", "--workspace"]))?;
    conformance::run(&conformance::Options::quick())
}

/// The cargo that runs us, started at the repository's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or(OsString::from("cargo")));
    command.current_dir(tree::root());
    command
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => tree::root().join(directory),
        None => tree::root().join("target"),
    }
}

/// Says the command, runs it, and turns its failure into a message.
pub(crate) fn step(command: &mut Command) -> Result<(), String> {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    let words = format!("cargo {}", words.join(" "));
    println!("== {words}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{words}` failed ({status})")),
        Err(error) => Err(format!("`{words}` did not start: {error}")),
    }
}
