//! `uvfs-bench-papers contention` works: its smallest runs build their programs, run them on one virtual core and on
//! four, and print every table. `crates/contention/tests/known.rs` tests the figures.
//!
//! Skipped without gcc, and on a machine that the analyser does not support.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn contention(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uvfs-bench-papers"));
    command.args(["contention", "--tiny"]).args(arguments).output().expect("it starts")
}

fn can_run() -> bool {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        uvfs_skip::lacking("the analyser runs programs on x86-64 Linux with glibc");
        return false;
    }
    let mut gcc = Command::new("gcc");
    let found = gcc.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let works = found.is_ok_and(|status| status.success());
    if !works {
        uvfs_skip::lacking("there is no gcc");
    }
    works
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder of this process, removed when dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn known_answers_print_a_line_for_every_program_and_number_of_cores() {
    if !can_run() {
        return;
    }
    let name = format!("uvfs-bench-contention-{}", std::process::id());
    let charts = Folder(std::env::temp_dir().join(name));
    let folder = charts.0.to_str().expect("a path in UTF-8");
    let output = contention(&["--case", "known", "--json", "--svg", folder]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let mut rates: BTreeMap<String, Vec<(u64, f64)>> = BTreeMap::new();
    for line in text(&output.stdout).lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("one object per line");
        assert!(line["bench"] == "contention" && line["case"] == "known", "{line}");
        assert!(line["unit"] == "M/s" && line["higher_is_better"] == true, "{line}");
        assert_eq!(line["runs"], 2, "two seeds: {line}");
        let system = line["system"].as_str().expect("a name").to_owned();
        let rate = line["value"].as_f64().expect("a number");
        assert!(rate > 0.0 && rate.is_finite(), "{line}");
        rates.entry(system).or_default().push((line["threads"].as_u64().expect("cores"), rate));
    }
    assert_eq!(rates.len(), 17, "{rates:?}");
    for (system, points) in &rates {
        assert_eq!(points.iter().map(|point| point.0).collect::<Vec<_>>(), [1, 4], "{system}");
    }
    // Virtual time depends on no machine: a lock's rate falls with cores, that of padded slots grows.
    let ratio = |system: &str| rates[system][1].1 / rates[system][0].1;
    assert!(ratio("TTAS lock") < 1.0 && ratio("padded slots") > 3.0, "{rates:?}");
    for chart in ["known-1.svg", "known-2.svg"] {
        let drawn = std::fs::read_to_string(charts.0.join(chart)).expect("a chart");
        assert!(drawn.starts_with("<svg") && drawn.contains("virtual cores"), "{chart}: {drawn}");
    }
}

/// A chain of four cycles a turn, and one of two with a load: no clock of this machine is asked about, only that both sides
/// are there.
#[test]
fn one_thread_is_set_beside_this_machine() {
    if !can_run() {
        return;
    }
    let output = contention(&["--case", "single"]);
    let (table, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    for part in ["| multiply-chain: one chain of multiplications | ", "| sum: ", " of 2; missed: "]
    {
        assert!(table.contains(part), "{part}: {table}");
    }
}

#[test]
fn the_server_has_its_tables() {
    if !can_run() {
        return;
    }
    let output = contention(&["--case", "oltp"]);
    let (tables, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(tables.contains("parameters of it assumed; 2 seeds"), "{tables}");
    for part in [
        "\n## A small database server\n",
        "\n| server [k/s] | 1 | 4 | class | efficiency | law: σ, κ |\n|---|",
        "\n| transactions | ",
        "\nLocks on 4 cores, times in cycles:\n",
        "| lock | taken | CON | bounces | UTIL |",
    ] {
        assert!(tables.contains(part), "{part}: {tables}");
    }
    // The column of classes said `none` in every row. Two core counts are too few for a class, and `unclear` says so.
    assert!(tables.contains("| unclear | "), "{tables}");
}

#[test]
fn a_case_that_is_not_there_is_refused_with_those_that_are() {
    let output = contention(&["--case", "nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("single, known, bugs, oltp, paper, uvfs"), "{said}");
}
