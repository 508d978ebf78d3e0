//! Failed tests: the last lines of each, and whether it passes alone.
//!
//! # Boundary
//! Reads the output of a test program, and runs single tests of it again. [`crate::programs`] runs the programs.
//!
//! # Why
//! A log has ten thousand lines and the failure is somewhere in the middle, so the gate prints each failed test at its
//! end. A test that fails beside others and passes three times alone is *flaky*: the gate names it in its last lines
//! and goes on, since one such test once held up twelve hours of changes. `tests/flaky.md` lists it until it is mended.
//! Weakness: a race in the product that shows only under load looks the same; a listed test needs a search for its cause.

use crate::tree;
use std::path::Path;
use std::process::{Command, Stdio};

/// Tests that are known to be flaky, each with the date, what was seen, and what was tried.
const LIST: &str = "tests/flaky.md";
/// The lines of a failed test that are printed again.
const LAST_LINES: usize = 12;
/// A flaky test passes alone so many times.
const AGAIN: usize = 3;

/// A test that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) name: String,
    /// The end of its output.
    pub(crate) last: Vec<String>,
}

/// The failed tests in the output of a test program, as libtest prints it: `---- NAME stdout ----`, then their output.
pub(crate) fn in_output<'a>(lines: impl Iterator<Item = &'a str> + Clone) -> Vec<Failed> {
    let failed = lines.clone().filter_map(|line| {
        let (name, _) = line.trim().strip_prefix("test ")?.split_once(" ... FAILED")?;
        Some(name.trim_end_matches(" - should panic").to_owned())
    });
    let output = |name: &str| {
        let head = format!("---- {name} stdout ----");
        let behind = lines.clone().skip_while(|line| line.trim() != head).skip(1);
        let ends = |line: &&str| {
            line.starts_with("---- ") || ["failures:", "stack backtrace:"].contains(line)
        };
        let own = behind.take_while(|line| !ends(line));
        let own: Vec<_> =
            own.filter(|line| !line.trim().is_empty()).map(ToOwned::to_owned).collect();
        own[own.len().saturating_sub(LAST_LINES)..].to_vec()
    };
    failed.map(|name| Failed { last: output(&name), name }).collect()
}

/// Runs the test `name` of `program` alone, up to three times, in the folder of its package. Returns whether it always
/// passed.
pub(crate) fn passes_alone(program: &Path, package: &Path, name: &str) -> bool {
    (0..AGAIN).all(|_| {
        let mut test = Command::new(program);
        test.current_dir(package).env("CARGO_MANIFEST_DIR", package);
        test.args(["--exact", name, "--test-threads=1"]).stdin(Stdio::null());
        test.stdout(Stdio::null()).stderr(Stdio::null());
        test.status().is_ok_and(|status| status.success())
    })
}

/// The lines that close the gate, one for each flaky test.
pub(crate) fn flaky_lines(flaky: &[String]) -> Vec<String> {
    let list = std::fs::read_to_string(tree::root().join(LIST)).unwrap_or_default();
    let line = |name: &String| match is_listed(&list, name) {
        true => format!("FLAKY: {name} failed, then passed {AGAIN} times alone; {LIST} lists it"),
        false => format!("FLAKY: {name} failed, then passed {AGAIN} times alone; add it to {LIST}"),
    };
    flaky.iter().map(line).collect()
}

fn is_listed(list: &str, name: &str) -> bool {
    list.lines().any(|line| line.starts_with(&format!("| `{name}` |")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const OUTPUT: &str = "\
running 3 tests
test a::one ... ok
test a::two ... FAILED
test a::three - should panic ... FAILED

failures:

---- a::two stdout ----

thread 'a::two' (77) panicked at src/lib.rs:3:5:
left: 1
right: 2
stack backtrace:
   0: rust_begin_unwind

---- a::three stdout ----
it did not panic

failures:
    a::three
    a::two
";

    /// A failure was lines 4,000 to 4,010 of a log, and its reader saw only the name of a program.
    #[test]
    fn a_failed_test_is_found_with_its_last_lines() {
        let failed = in_output(OUTPUT.lines());
        let names: Vec<_> = failed.iter().map(|failed| failed.name.as_str()).collect();
        assert_eq!(names, ["a::two", "a::three"]);
        assert_eq!(failed[0].last.last().map(String::as_str), Some("right: 2"));
        assert_eq!(failed[0].last.len(), 3);
        assert_eq!(failed[1].last, ["it did not panic"]);
        assert_eq!(in_output("test a ... ok\n".lines()), []);
    }

    /// The program passes only from its second run on, and counts its runs in a file.
    #[test]
    fn a_test_is_flaky_only_if_it_passes_alone_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        let script = "#!/bin/sh\n[ \"$1 $2\" = '--exact name' ] || exit 9\necho >> runs\n[ $(wc -l < runs) -gt 1 ]\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let runs = || std::fs::read_to_string(folder.path().join("runs")).unwrap().lines().count();
        assert!(!passes_alone(&program, folder.path(), "name"));
        assert_eq!(runs(), 1, "a second run cannot make it pass");
        assert!(passes_alone(&program, folder.path(), "name"));
        assert_eq!(runs(), 1 + AGAIN);
        assert!(!passes_alone(&program, folder.path(), "other"));
    }

    #[test]
    fn a_flaky_test_is_listed_by_its_whole_name() {
        let list = "| test | since |\n|---|---|\n| `a::two` | 2026-11-28 |\n";
        assert!(is_listed(list, "a::two") && !is_listed(list, "a::tw") && !is_listed(list, "two"));
    }
}
