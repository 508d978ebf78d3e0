//! Installs the tools of the suites before any mount, and classifies missing ones by their cause.
//!
//! # Boundary
//! Runs `tests/conformance/install.sh`, which knows the tools and their sources, and counts its messages.
//!
//! # Why
//! An installation within a suite once took the suite's time: on a network without answers the suite timed out, which
//! looks like a file system that hangs. Weakness: the network as a cause is guessed from the tools' messages; in doubt
//! it is assumed.

use super::suite::Score;
use crate::steps;
use crate::tree;
use std::process::{Command, Stdio};

/// Installs the tools; a failure for each one that the registry has and that could not be installed.
pub(crate) fn missing(host: bool) -> Score {
    let mut install = Command::new("bash");
    install.arg(tree::root().join("tests/conformance/install.sh"));
    install.env("UVFS_TOOLS", steps::target().join("tools")).stdin(Stdio::null());
    match install.output() {
        Ok(output) => judged(&String::from_utf8_lossy(&output.stdout), host),
        Err(error) => Score::default().and_failed("install", &format!("bash: {error}")),
    }
}

/// Reports missing tools; on a plain directory (`host`) none of them is a failure.
fn judged(said: &str, host: bool) -> Score {
    let mut score = Score::default();
    for line in said.lines() {
        match line.strip_prefix("broken ") {
            Some(what) if !host => score = score.and_failed("install", what),
            _ => println!("note: {line}; suites that need it are skipped"),
        }
    }
    score
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_could_have_been_installed_is_a_failure() {
        let said = "absent dbench: no network\nbroken fsx: 0.3.2 does not compile\n";
        assert_eq!(judged(said, false), Score { passed: 0, failed: 1 });
        assert_eq!(judged(said, true), Score::default());
        assert_eq!(judged("", false), Score::default());
    }

    /// A tool added to a suite must be named there, where it is installed.
    #[test]
    fn what_a_suite_asks_for_is_installed_before() {
        let install = tree::root().join("tests/conformance/install.sh");
        let install = std::fs::read_to_string(install).unwrap().replace('"', "\n");
        let mut asked = 0;
        for script in std::fs::read_dir(super::super::scripts()).unwrap() {
            let text = std::fs::read_to_string(script.unwrap().path()).unwrap();
            for line in text.lines().filter(|line| !line.trim().starts_with('#')) {
                let words: Vec<_> = line.split_whitespace().collect();
                let asks = |word: &&str| matches!(*word, "debian" | "crate" | "want");
                let Some(at) = words.iter().position(asks) else { continue };
                let name = words[at + 1].replace("\"$python\"", "python3");
                let listed = |entry: &str| entry.split(' ').next() == Some(&name);
                assert!(install.lines().any(listed), "install.sh does not know `{name}`");
                asked += 1;
            }
        }
        assert!(asked >= 10, "{asked}");
    }
}
