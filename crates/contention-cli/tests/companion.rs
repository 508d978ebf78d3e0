//! Floor: the two programs of one tool. `uvfs contention` is answered by `uvfs-contention`, which lies beside it.
//!
//! The mount tool neither compiles nor carries the analyser; that its users notice nothing of it is held here, with
//! both programs as they are built. Which program is started, and what is said where there is none, is tested with the
//! mount tool: `crates/cli/tests/command/companion.rs`.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use uvfs_tests::built;

fn run(program: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).env("PATH", "/nowhere");
    command.output().expect("it starts")
}

#[test]
fn the_analyser_answers_as_a_part_of_the_mount_tool() {
    let tool = built("uvfs", "uvfs");
    let analyser = built("uvfs-contention-cli", "uvfs-contention");
    for words in [
        &["machine", "--cores", "64", "--nodes", "2"][..],
        &["--cores", "64", "machine"],
        &["--help"],
        &["help", "sweep"],
        &["machine", "--cores", "0"],
        &["frobnicate"],
        &[],
    ] {
        let through = run(&tool, &[&["contention"][..], words].concat());
        let alone = run(&analyser, words);
        assert_eq!(through, alone, "{words:?}");
        assert!(through.status.code().is_some_and(|code| code <= 2), "{words:?}: {through:?}");
    }
    let machine = run(&tool, &["contention", "machine", "--cores", "64"]);
    let text = String::from_utf8_lossy(&machine.stdout);
    assert!(machine.status.success() && text.contains("cores = 64"), "{machine:?}");
    let usage = String::from_utf8_lossy(&run(&tool, &["contention", "--help"]).stdout).into_owned();
    assert!(usage.contains("Usage: uvfs contention [OPTIONS] <COMMAND>"), "{usage}");
}
