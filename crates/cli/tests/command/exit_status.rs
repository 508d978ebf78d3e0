//! Exit statuses are a promise: `docs/exit-status.md` has them, and here they are tried.

use crate::common::{finish, run, uvfs};
use std::collections::HashMap;
use std::os::unix::process::CommandExt;

/// The statuses that the document has, by command.
fn documented() -> HashMap<String, Vec<i32>> {
    let document = include_str!("../../../../docs/exit-status.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let (command, rest) = row.split_once("` |").expect("a command");
        let statuses = rest.split('|').next().expect("statuses").split(',');
        (command.to_owned(), statuses.map(|one| one.trim().parse().expect("a number")).collect())
    })
    .collect()
}

#[test]
fn commands_end_as_the_document_says() {
    let documented = documented();
    let gone = "/no/such/place";
    let cases: &[(&[&str], i32)] = &[
        (&["mount", "memory:", gone], 1),
        (&["mount", "memory:"], 2),
        (&["demo"], 0),
        (&["demo", "bogus"], 2),
        (&["mounts"], 0),
        (&["mounts", gone], 2),
        (&["stat"], 0),
        (&["stat", gone], 1),
        (&["stat", "--all"], 2),
        (&["top", gone], 1),
        (&["top", "--once", "--interval", "100ms"], 0),
        (&["top", "--interval", "0"], 2),
        (&["web", gone], 1),
        (&["web", "--listen", "0.0.0.0:1"], 2),
        (&["metrics"], 0),
        (&["metrics", gone], 1),
        (&["metrics", "--bogus"], 2),
        (&["set", gone, "cache-size=1G"], 1),
        (&["set", gone], 2),
        (&["drop", "1:/no/such/place"], 1),
        (&["drop", "9:/"], 2),
        (&["warmup", gone], 1),
        (&["warmup", gone, "--jobs", "0"], 2),
        (&["refresh", gone], 1),
        (&["refresh"], 2),
        (&["cached", gone], 1),
        (&["cached", "/", "--interval", "0"], 2),
        (&["policy", "keep", gone], 1),
        (&["policy", "keep"], 2),
        (&["image", "info", gone], 1),
        (&["image", "frobnicate"], 2),
        (&["doctor", gone], 1),
        (&["doctor", "--bogus"], 2),
        (&["unmount", gone], 1),
        (&["unmount"], 2),
        (&["config", "show"], 0),
        (&["config", "hide"], 2),
        (&["completions", "bash"], 0),
        (&["completions", "tcsh"], 2),
        (&["contention", "--bogus-for-the-analyser"], -1),
        (&["--help"], 0),
        (&["--version"], 0),
        (&["stat", "--color", "never"], 0),
        (&["stat", "--color", "pink"], 2),
        (&["bogus"], 2),
    ];
    for (line, expected) in cases {
        let outcome = run(line);
        let code = outcome.code.expect("a status");
        // The analyser is there or not.
        assert!(*expected == -1 || code == *expected, "{line:?}: {outcome:?}");
        if let Some(statuses) = documented.get(line[0]) {
            assert!(statuses.contains(&code), "{line:?}: {code} is not in the document");
        }
        if code != 0 && *expected != -1 {
            let first = outcome.stderr.lines().next().unwrap_or_default();
            let has_form = first.starts_with("uvfs: ")
                && (first.contains("; ") || first.contains("write ") || code == 1);
            assert!(has_form, "{line:?}: {outcome:?}");
        }
    }
    let tried = |command: &String| cases.iter().any(|(line, _)| line[0] == *command);
    let left: Vec<_> = documented.keys().filter(|one| !tried(one)).collect();
    assert_eq!(left, ["mount.fuse.uvfs"], "a command that is not tried");
}

/// The page promises a line that begins with `uvfs: ` and has a remedy. Each line of the parser began with `error:`, and
/// `mount -o ro` and a missing argument were answered without a remedy.
#[test]
fn a_refused_command_line_is_one_line_with_a_remedy() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["mount", "a", "b", "-o", "ro"], &["'-o'", "; ", "use --read-only"]),
        (&["mount", "a", "b", "-t", "ext4"], &["'-t'", "; ", "leave -t out"]),
        (&["mount", "a", "b", "-r"], &["'-r'", "; ", "use --read-only"]),
        (&["mount"], &["<SOURCE> <MOUNTPOINT>", "; write `uvfs mount <SOURCE> <MOUNTPOINT>`"]),
        (&["mount", "a"], &["<MOUNTPOINT>", "; write `uvfs mount <SOURCE> <MOUNTPOINT>`"]),
        (&["mount", "a", "b", "c"], &["'c'", "; see `uvfs mount --help`"]),
        (
            &["mount", "a", "b", "--page-cache", "x"],
            &["'x'", "write-back", "; see `uvfs mount --help`"],
        ),
        (
            &["mount", "a", "b", "--cache-size"],
            &["a value is required", "; see `uvfs mount --help`"],
        ),
        (&["mount", "a", "b", "--daemon=3"], &["'3'", "; see `uvfs mount --help`"]),
        (&["stat", "--interval", "30", "m"], &["--locks", "; ", "`uvfs top --interval`"]),
        (&["stat", "--watch", "m"], &["'--watch'", "; ", "`uvfs top MOUNTPOINT`"]),
        (&["stat", "--all"], &["<MOUNTPOINT>", "; write `uvfs stat --all <MOUNTPOINT>`"]),
        (&["unmuont"], &["'unmuont'", "'unmount'", "; see `uvfs --help`"]),
        (&["image", "frob"], &["'frob'", "; see `uvfs image --help`"]),
        (&["completions", "tcsh"], &["'tcsh'", "bash", "; see `uvfs completions --help`"]),
    ];
    for (line, parts) in cases {
        let outcome = run(line);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(2), ""), "{outcome:?}");
        let mut rest = outcome.stderr.strip_prefix("uvfs: ").expect("the form");
        assert_eq!(rest.lines().count(), 1, "{outcome:?}");
        for part in *parts {
            let at = rest.find(part).unwrap_or_else(|| panic!("no {part:?} in {outcome:?}"));
            rest = &rest[at + part.len()..];
        }
    }
    for group in [&[][..], &["image"], &["config"]] {
        let outcome = run(group);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.stderr.starts_with("uvfs: ") && outcome.stderr.contains("Usage: uvfs"));
    }
}

#[test]
fn settings_that_cannot_be_read_are_a_failure() {
    let outcome = finish(uvfs().args(["config", "show"]).env("UVFS_CONFIG", "/no/such/file"));
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
}

#[test]
fn the_helper_of_mount_has_the_statuses_of_mount() {
    let documented = &documented()["mount.fuse.uvfs"];
    let helper = |arguments: &[&str]| {
        let outcome = finish(uvfs().arg0("mount.fuse.uvfs").args(arguments));
        outcome.code.expect("a status")
    };
    let (usage, failed) = (helper(&[]), helper(&["memory:", "/no/such/place"]));
    assert_eq!((usage, failed), (1, 32));
    assert!(documented.contains(&usage) && documented.contains(&failed) && documented.contains(&2));
}
