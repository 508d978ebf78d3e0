//! `uvfs contention` starts another program: its path, its arguments, and the error if there is none.
//!
//! `crates/contention-cli/tests/companion.rs` tests the real one, where both are built.

use crate::common::{Outcome, finish, run};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A folder on the file system of the program, with the program in it.
fn installed() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let program = folder.path().join("uvfs");
    fs::hard_link(env!("CARGO_BIN_EXE_uvfs"), &program).expect("beside each other");
    (folder, program)
}

/// `uvfs-contention` in `folder`: prints its name and its arguments, and ends with 7.
fn put(folder: &Path, name: &str, mode: u32) {
    let script = format!("#!/bin/sh\nprintf '{name}'; printf ' <%s>' \"$@\"; exit 7\n");
    let text = folder.join("text");
    fs::write(&text, script).expect("a fresh folder");
    fs::set_permissions(&text, fs::Permissions::from_mode(mode)).expect("ours");
    // Not written by this process: a child that another test starts meanwhile would have it open, and it could not be
    // run then.
    let copied =
        Command::new("cp").arg("-p").arg(&text).arg(folder.join("uvfs-contention")).status();
    assert!(copied.is_ok_and(|status| status.success()));
}

fn contention(program: &Path, path: &Path, words: &[&str]) -> Outcome {
    let mut command = Command::new(program);
    command.arg("contention").args(words).env("PATH", path);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(&mut command)
}

/// The mount tool was 60 MB with an analyser that most of its users never start.
#[test]
fn the_analyser_beside_the_program_is_started_with_all_words_as_they_are() {
    let (folder, program) = installed();
    let elsewhere = tempfile::tempdir().expect("a folder");
    put(folder.path(), "beside", 0o755);
    put(elsewhere.path(), "path", 0o755);
    for (words, said) in [
        (&["--help"][..], "beside <--help>"),
        (&["--version"], "beside <--version>"),
        (&["--", "a"], "beside <--> <a>"),
        (
            &["run", "--cores", "4", "--", "./prog", "--", "-x", ""],
            "beside <run> <--cores> <4> <--> <./prog> <--> <-x> <>",
        ),
    ] {
        let outcome = contention(&program, elsewhere.path(), words);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(7), said), "{outcome:?}");
        assert_eq!(outcome.stderr, "");
    }
}

#[test]
fn the_analyser_in_the_path_is_started_where_none_is_beside() {
    let (_folder, program) = installed();
    let elsewhere = tempfile::tempdir().expect("a folder");
    put(elsewhere.path(), "path", 0o755);
    let outcome = contention(&program, elsewhere.path(), &["machine"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(7), "path <machine>"), "{outcome:?}");
}

#[test]
fn an_analyser_that_is_not_there_or_cannot_be_started_is_named() {
    let (folder, program) = installed();
    let elsewhere = tempfile::tempdir().expect("a folder");
    let outcome = contention(&program, elsewhere.path(), &["run", "--", "./prog"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(127), ""), "{outcome:?}");
    let expected = "uvfs: contention: uvfs-contention is neither beside this program nor in PATH; \
        `cargo install --locked --path crates/contention-cli` in uvfs's sources installs it\n";
    assert_eq!(outcome.stderr, expected);

    // The search for it then ends with EACCES, as beside a folder of PATH that may not be read.
    fs::create_dir(elsewhere.path().join("uvfs-contention")).expect("a fresh folder");
    let outcome = contention(&program, elsewhere.path(), &["machine"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(127), expected), "{outcome:?}");

    put(folder.path(), "beside", 0o644);
    let outcome = contention(&program, elsewhere.path(), &[]);
    assert_eq!(outcome.code, Some(126), "{outcome:?}");
    let named = folder.path().join("uvfs-contention");
    assert!(outcome.stderr.starts_with(&format!("uvfs: {}: Permission denied; ", named.display())));
}

#[test]
fn help_says_that_it_is_a_program_of_its_own() {
    assert!(run(&["--help"]).stdout.contains("contention"));
    let help = run(&["help", "contention"]);
    assert_eq!(help.code, Some(0), "{help:?}");
    assert!(
        help.stdout.contains("cargo install --locked --path crates/contention-cli"),
        "{help:?}"
    );
}
