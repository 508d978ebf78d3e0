#![forbid(unsafe_code)]
//! How a test reports that it did not run, and when that is a failure.
//!
//! # Boundary
//! Prints, and decides whether the test fails. Each test itself finds its missing requirement. `cargo xtask tidy`
//! refuses tests that print `skipped:` themselves.
//!
//! # Why
//! The test harness hides the output of a passing test, so the gate was once green on a machine where nothing could be
//! mounted. These lines bypass the harness, to standard error. `cargo xtask ci` sets [`MUST_RUN`] where it is root and
//! may open `/dev/fuse`: a test that calls [`skip`] then fails. A requirement that no rights can satisfy (a newer
//! kernel, another file system below the temporary folder, a compiler) is [`lacking`] and never fails. Weakness: a test
//! itself chooses between the two.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::thread;

/// If this variable is set and not empty, a test that calls [`skip`] fails.
pub const MUST_RUN: &str = "UVFS_MUST_RUN";

/// Reports that this test does not run, because it lacks rights; fails it where they are promised.
///
/// # Panics
/// Where [`MUST_RUN`] is set.
#[track_caller]
pub fn skip(why: impl Display) {
    let must = std::env::var_os(MUST_RUN).is_some_and(|value| !value.is_empty());
    assert!(!must, "skipped, and {MUST_RUN} is set: {why}");
    say(&why);
}

/// Reports that this test, or a part of it, does not run, because the machine lacks `what`; never a failure.
pub fn lacking(what: impl Display) {
    say(&what);
}

/// Whether the test may mount; [`skip`]s where it may not.
#[track_caller]
pub fn can_mount() -> bool {
    if !rustix::process::geteuid().is_root() {
        skip("mounting needs root");
        return false;
    }
    match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => true,
        Err(error) => {
            skip(format_args!("/dev/fuse: {error}"));
            false
        }
    }
}

/// Not by `println!`, which the harness keeps to itself.
fn say(why: &dyn Display) {
    let test = thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(io::stderr(), "skipped: {test}: {why}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Output};

    const INNER: &str = "UVFS_TEST_SAYS_SKIPPED";

    /// This test alone, as a test program that lacks rights or a tool, with or without the promise.
    fn run(inner: &str, must_run: &str) -> Output {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "tests::a_skip_is_seen_and_fails_where_all_must_run"]);
        command.env(INNER, inner).env(MUST_RUN, must_run).output().unwrap()
    }

    /// Bug: the gate was green on a machine where nothing could be mounted, without a visible note.
    #[test]
    fn a_skip_is_seen_and_fails_where_all_must_run() {
        match std::env::var(INNER).as_deref() {
            Ok("rights") => return skip("no rights"),
            Ok(_) => return lacking("no tool"),
            Err(_) => {}
        }
        let name = "tests::a_skip_is_seen_and_fails_where_all_must_run";
        for (inner, must_run, passes, why) in [
            ("rights", "", true, "no rights"),
            ("rights", "1", false, "no rights"),
            ("tool", "", true, "no tool"),
            ("tool", "1", true, "no tool"),
        ] {
            let output = run(inner, must_run);
            assert_eq!(output.status.success(), passes, "{inner} {must_run}: {output:?}");
            let seen = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(seen.contains(&format!("skipped: {name}: {why}")), passes, "{seen}");
        }
    }
}
