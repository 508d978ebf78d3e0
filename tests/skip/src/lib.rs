#![forbid(unsafe_code)]
//! How a test says that it did not run, and when that is a failure.
//!
//! # Boundary
//! Prints, and decides whether the test fails. Each test finds out itself what it lacks. `cargo xtask tidy` refuses
//! tests that print `skipped:` themselves.
//!
//! # Why
//! The test harness shows nothing of what a passing test prints, so the gate was once green on a machine where
//! nothing could be mounted. These lines go around the harness, to standard error. `cargo xtask ci` sets
//! [`MUST_RUN`] where it is root and may open `/dev/fuse`: a test that says [`skip`] then fails. What no rights
//! give (a newer kernel, another file system below the temporary folder, a compiler) is [`lacking`] and never
//! fails. Weakness: a test says itself which of the two it is.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::thread;

/// With this variable set, to anything but nothing, a test that says [`skip`] fails.
pub const MUST_RUN: &str = "UVFS_MUST_RUN";

/// Says that this test does not run, for want of rights; fails it where they are promised.
///
/// # Panics
/// Where [`MUST_RUN`] is set.
#[track_caller]
pub fn skip(why: impl Display) {
    let must = std::env::var_os(MUST_RUN).is_some_and(|value| !value.is_empty());
    assert!(!must, "skipped, and {MUST_RUN} is set: {why}");
    say(&why);
}

/// Says that this test, or a part of it, does not run, because the machine lacks `what`; never a failure.
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

    /// The gate was green on a machine where nothing could be mounted, and said so to nobody.
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
