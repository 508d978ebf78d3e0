//! The bench of cache hits works: its smallest inputs run, print the agreed lines and leave nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const MISSING: &str = "/nowhere/bench-compare";

/// Runs the bench to its end; returns its process id and its output.
fn bench(arguments: &[&str]) -> (u32, Output) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uvfs-bench"));
    command.arg("hit").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    (child.id(), child.wait_with_output().expect("it ends"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_case_runs_and_the_aims_are_judged() {
    if !rustix::process::geteuid().is_root() {
        uvfs_skip::skip("serving a directory as others needs root");
        return;
    }
    let (pid, output) = bench(&["--tiny", "--rivals", MISSING]);
    let (tables, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(said.contains("cargo build --release --manifest-path bench-compare"), "{said}");
    let cases = [
        "read4k-hot-64k",
        "read4k-uniform-2m",
        "read4k-zipf-2m",
        "read64-zipf-2m",
        "read1m-sequential-2m",
        "lookup-uniform-1024",
        "lookup-zipf-1024",
        "scan-10x-8m-before",
        "scan-10x-8m-during",
        "scan-10x-8m-after",
        "write-back-random-8m",
    ];
    for case in cases {
        assert!(tables.contains(&format!("\n{case} [")), "{case}: {tables}{said}");
    }
    let aims = tables.split("\naims").nth(1).expect("aims at the end");
    assert_eq!(aims.lines().filter(|line| line.starts_with("  ")).count(), 13, "{aims}");
    let work = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/uvfs-bench");
    let left: PathBuf = work.join(pid.to_string());
    assert!(!left.exists(), "left behind: {}", left.display());
}

#[test]
fn lines_are_printed_for_every_system_and_number_of_threads() {
    let arguments = ["--tiny", "--json", "--case", "read*", "--case", "lookup-*", "--cpu"];
    let (_, output) = bench(&[&arguments[..], &["--rivals", MISSING]].concat());
    let (lines, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert_eq!(lines.lines().count(), (5 * 2 + 2 * 4) * 2, "one and two threads: {lines}");
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("one object per line");
        assert!(line["bench"] == "hit" && line["higher_is_better"] == true, "{line}");
        assert!(line["value"].as_f64().is_some_and(|value| value > 0.0), "{line}");
        assert!(line["runs"] == 2, "{line}");
    }
}

#[test]
fn rivals_that_fail_fail_the_run_and_are_named() {
    // It greets, accepts its entries, and cannot read them.
    let script = std::env::temp_dir().join(format!("uvfs-bench-hit-bad-{}", std::process::id()));
    let said = "#!/bin/sh\necho bench-compare hit 1 quick_cache\nwhile read -r word rest; do\n\
                case $word in build*) echo built 1;; *) echo failed on purpose;; esac\ndone\n";
    std::fs::write(&script, said).expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("it may be run");
    let path = script.to_str().expect("a plain path");
    let (_, output) = bench(&["--tiny", "--case", "lookup-zipf", "--rivals", path]);
    std::fs::remove_file(&script).expect("it was ours");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("quick_cache in lookup-zipf-1024: on purpose"), "{said}");
    assert!(text(&output.stdout).contains("uvfs-reference"), "the others are measured");
}

#[test]
fn unknown_cases_are_refused_with_the_known_ones() {
    let (_, output) = bench(&["--case", "nonsense"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no case nonsense; there are: read4k-hot-1m"));
}
