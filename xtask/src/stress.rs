//! The long forms of the tests that could go on for ever.
//!
//! # Boundary
//! Says how long, and runs the tests; what they assert is in `tests/tests/linearizability.rs` and
//! `tests/tests/churn.rs`, whose short forms every `cargo test` runs.
//!
//! # Why
//! With the profile of the tests and not of a release: a lock taken in the wrong order, or a count that
//! goes below zero, is only found with the assertions on. Weakness: that is slower, and optimised code is
//! reordered more; the orderings themselves are the models' business (`cargo xtask model`).

use crate::steps::{cargo, step};

/// Tests of `linearizability` that last as long as they are told, and the one of `churn`.
const TESTS: u64 = 8;

/// `cargo xtask stress`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long, about. Churning a day's worth of changes may take longer.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=7 * 24 * 60))]
    minutes: u64,
}

/// Runs them, one after the other, so that each has the machine to itself.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let seconds = options.minutes * 60 / TESTS;
    let mut tests = cargo();
    tests.args(["test", "-p", "uvfs-tests", "--test", "linearizability", "--test", "churn"]);
    tests.args(["--", "--nocapture", "--test-threads=1"]);
    step(tests.env("UVFS_STRESS_SECONDS", seconds.to_string()))
}

#[cfg(test)]
mod tests {
    use crate::tree;

    #[test]
    fn the_time_is_shared_among_all_tests() {
        let count = |file: &str| {
            let path = tree::root().join("tests/tests").join(file);
            std::fs::read_to_string(path).unwrap().matches("#[test]").count() as u64
        };
        assert_eq!(count("linearizability.rs") + count("churn.rs"), super::TESTS);
    }
}
