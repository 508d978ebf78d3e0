//! The long forms of tests without a natural end.
//!
//! # Boundary
//! Sets the time, and runs the tests; the assertions are in `tests/tests/storm/linearizability.rs`,
//! `tests/tests/storm/churn.rs`, `tests/tests/mount/killed.rs`, `tests/tests/image/cuts.rs` and `crates/ext/tests/e2fsprogs/mutations.rs`, whose short
//! forms every `cargo test` runs.
//!
//! # Why
//! With the profile of the tests and not of a release: only the assertions find a lock taken in the wrong order, or a
//! count below zero. The tests themselves report their number. Weakness: a test in these files that ends by itself
//! leaves its share of the time unused. Optimised code is reordered more, but the models check orderings (`cargo xtask
//! model`).

use crate::steps::{cargo, step};
use std::process::Command;

/// `cargo xtask stress`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long, about. Churning a day's worth of changes may take longer.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=7 * 24 * 60))]
    minutes: u64,
}

/// Runs them, one after the other, so that each has the machine to itself.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let listing = tests(&["--list"]).output().map_err(|error| format!("cargo test: {error}"))?;
    if !listing.status.success() {
        return Err(format!("cargo test: {}", String::from_utf8_lossy(&listing.stderr)));
    }
    let seconds = share(options.minutes, &String::from_utf8_lossy(&listing.stdout))?;
    let mut tests = tests(&["--nocapture", "--test-threads=1"]);
    step(tests.env("UVFS_STRESS_SECONDS", seconds.to_string()))
}

/// `cargo xtask cuts`.
#[derive(Debug, clap::Args)]
pub(crate) struct CutOptions {
    /// How many; a second or so each.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    cuts: u32,
}

/// Cuts the power under the kernel so many times.
pub(crate) fn cuts(options: &CutOptions) -> Result<(), String> {
    let mut test = cargo();
    test.args(["test", "-p", "uvfs-tests", "--test", "image", "cuts::", "--", "--nocapture"]);
    step(test.env("UVFS_CUTS", options.cuts.to_string()))
}

/// `cargo xtask mutations`.
#[derive(Debug, clap::Args)]
pub(crate) struct MutationOptions {
    /// How many.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    images: u32,
}

/// Changes bits of so many images.
pub(crate) fn mutations(options: &MutationOptions) -> Result<(), String> {
    let mut test = cargo();
    test.args(["test", "-p", "uvfs-ext", "--test", "e2fsprogs", "--", "--nocapture", "mutations"]);
    step(test.env("UVFS_MUTATIONS", options.images.to_string()))
}

fn tests(arguments: &[&str]) -> Command {
    let mut tests = cargo();
    tests.args(["test", "-p", "uvfs-tests", "--test", "storm", "--test", "mount", "--"]);
    tests.args(["linearizability::", "churn::", "killed::signals_amid"]).args(arguments);
    tests
}

/// The seconds that each test of `listing` gets, as `--list` prints it: `NAME: test`.
fn share(minutes: u64, listing: &str) -> Result<u64, String> {
    let count = listing.lines().filter(|line| line.ends_with(": test")).count() as u64;
    let seconds = (minutes * 60).checked_div(count);
    seconds.map(|seconds| seconds.max(1)).ok_or_else(|| "no test is listed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::share;

    /// Bug: a constant had the number of tests, and a test added to churn.rs broke this package.
    #[test]
    fn the_time_is_shared_among_the_tests_that_there_are() {
        let listing = "a: test\nb: test\n\n2 tests, 0 benchmarks\n";
        assert_eq!(share(20, listing), Ok(600));
        let more = format!("{listing}\nmodels::c: test\nd: test\n");
        assert_eq!(share(20, &more), Ok(300));
        assert!(share(20, "0 tests, 0 benchmarks\n").is_err());
    }
}
