//! The parts that the gate skipped, compared with the list of allowed ones.
//!
//! # Boundary
//! Keeps the skip lines of steps, tests and suites. `.ci/expected-skips` has the allowed ones, each below its reason. A
//! step or a test itself finds its missing requirement.
//!
//! # Why
//! Seventy places could skip a test on any machine, and the gate stayed green. Now a skip that is not in the list fails
//! the gate where the tests can run (root and `/dev/fuse`). Weakness: an entry that never matches any more stays in the
//! list; the gate only reports it.

use crate::tree;
use std::sync::PoisonError;

const LIST: &str = ".ci/expected-skips";

#[expect(clippy::disallowed_types, reason = "it protects lines of a tool, outside the lock order")]
static SEEN: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());

/// Says that a step of the gate is left out.
pub(crate) fn step(what: impl std::fmt::Display) {
    println!("skipped: gate: {what}");
    add(format!("gate: {what}"));
}

/// Keeps the line of a test or a suite.
pub(crate) fn add(line: String) {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).push(line);
}

/// Fails when something was skipped that the list does not have.
pub(crate) fn judge() -> Result<(), String> {
    let list = std::fs::read_to_string(tree::root().join(LIST))
        .map_err(|error| format!("{LIST}: {error}"))?;
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    judged(&list, &seen)
}

fn judged(list: &str, seen: &[String]) -> Result<(), String> {
    let allowed: Vec<&str> =
        list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    for entry in allowed.iter().filter(|entry| !seen.iter().any(|line| matches(entry, line))) {
        println!("note: {LIST}: was not skipped: {entry}");
    }
    let new: Vec<&str> = seen
        .iter()
        .filter(|line| !allowed.iter().any(|entry| matches(entry, line)))
        .map(String::as_str)
        .collect();
    if new.is_empty() {
        return Ok(());
    }
    Err(format!("skipped, and not in {LIST}:\n  {}", new.join("\n  ")))
}

/// Whether `line` is `entry`, in which `*` stands for any text.
fn matches(entry: &str, line: &str) -> bool {
    let mut parts = entry.split('*');
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    rest.is_empty() || last == Some("")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: the gate was green without a compiler, since every test that needs one reported that it was missing.
    #[test]
    fn a_skip_that_is_not_listed_fails() {
        let list = "# no root\na::b: root\nc: no * here\n";
        let seen = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        assert_eq!(judged(list, &seen(&["a::b: root", "c: no file here"])), Ok(()));
        let message = judged(list, &seen(&["a::b: root", "d: no gcc"])).unwrap_err();
        assert!(message.contains("d: no gcc") && !message.contains("a::b"), "{message}");
    }

    #[test]
    fn a_star_stands_for_any_text() {
        assert!(matches("a: *", "a: b") && matches("a", "a") && matches("a * c", "a b c"));
        assert!(!matches("a", "ab") && !matches("a * c", "a b d") && !matches("b*", "ab"));
    }
}
