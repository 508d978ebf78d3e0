//! `uvfs-bench evict` works: its smallest run prints every trace and policy, and a file is
//! replayed.

use std::fs;
use std::process::{Command, Output};

fn evict(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uvfs-bench"));
    command.args(["evict", "--rivals", "/nowhere/bench-compare"]).args(arguments);
    command.output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Case, system and value of each line.
fn lines(output: &Output) -> Vec<(String, String, f64)> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let line = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).expect("one object per line");
        assert!(line["bench"] == "evict" && line["unit"] == "percent", "{line}");
        assert!(line["higher_is_better"] == true && line["threads"] == 1, "{line}");
        let word = |name: &str| line[name].as_str().expect("a word").to_owned();
        (word("case"), word("system"), line["value"].as_f64().expect("a number"))
    };
    text(&output.stdout).lines().map(line).collect()
}

#[test]
fn the_smallest_run_prints_a_line_for_every_trace_and_policy() {
    let [once, again] = [(); 2].map(|()| evict(&["--tiny", "--json"]));
    let rows = lines(&once);
    assert_eq!(rows, lines(&again), "the same in every run");
    assert_eq!(rows.len(), 10 * 7);
    assert!(rows.iter().all(|row| (0.0..=100.0).contains(&row.2)), "{rows:?}");
    let said = text(&once.stderr);
    assert!(said.contains("cargo build --release --manifest-path bench-compare"), "{said}");
    let find = |case: &str, system: &str| {
        rows.iter().find(|row| row.0 == case && row.1 == system).expect("it was replayed").2
    };
    // Nothing below depends on the machine.
    assert!(find("scan-10x", "uvfs") >= 95.0 && find("scan-10x", "lru") == 0.0);
    assert!(find("scan-sub-page", "uvfs") > find("scan-sub-page", "s3-fifo"));
    assert!(find("zipf-0.99", "uvfs") > find("zipf-0.99", "lru"));
    // If the cache is nearly full of evenly used keys (`recency`), rows lose more: some rows get more keys than they
    // have ways.
    for case in ["zipf-0.99", "zipf-0.8"] {
        let [list, rows] = ["lru", "uvfs-rows"].map(|system| find(case, system));
        assert!((list - rows).abs() < 3.0, "{case}: {list} and {rows}, in a tiny cache");
    }
}

#[test]
fn tables_end_with_the_aims() {
    let output = evict(&["--tiny", "--case", "zipf-0.8", "--case", "scan-10x"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(said.contains("\nzipf-0.8 [percent, higher is better]"), "{said}");
    assert!(!said.contains("\nrecency ["), "{said}");
    let aims = said.split("\naims").nth(1).expect("aims at the end");
    assert_eq!(aims.lines().filter(|line| line.starts_with("  ")).count(), 5, "{aims}");
    assert!(aims.contains("  met") && aims.contains("not measured"), "{aims}");
}

#[test]
fn a_file_of_accesses_is_replayed_and_a_bad_one_refused() {
    let path = std::env::temp_dir().join(format!("uvfs-bench-evict-{}.txt", std::process::id()));
    let name = path.to_str().expect("a path in UTF-8");
    fs::write(&path, "1\n0x2\n1\n2\n").expect("it is written");
    let rows = lines(&evict(&["--json", "--trace", name, "--capacity", "2"]));
    assert_eq!(rows.len(), 7);
    assert!(rows.iter().all(|row| row.2 == 50.0), "{rows:?}");
    fs::write(&path, "1\nnonsense\n").expect("it is written");
    let refused = evict(&["--trace", name]);
    fs::remove_file(&path).expect("it is there");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("line 2"), "{refused:?}");
    for arguments in [&["--case", "nonsense"][..], &["--capacity", "5"]] {
        assert_eq!(evict(arguments).status.code(), Some(2), "{arguments:?}");
    }
}
