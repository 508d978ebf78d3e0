//! `uvfs-bench-papers set-associative` works: its smallest run measures every cache in every way of locking on this
//! machine's cores. Only figures that no machine changes are checked.

use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uvfs-bench-papers"));
    command.args(["set-associative", "--tiny", "--rivals", "/nowhere/bench-compare"]);
    command.args(arguments).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lines(output: &Output) -> Vec<serde_json::Value> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let line = |line: &str| serde_json::from_str(line).expect("one object per line");
    text(&output.stdout).lines().map(line).collect()
}

#[test]
fn every_cache_is_measured_in_every_way_and_the_aim_closes_the_tables() {
    let rows = lines(&bench(&["--json"]));
    let of_one_core = rows.iter().filter(|line| line["threads"] == 1);
    assert_eq!(of_one_core.clone().count(), 3 * 3 * 2, "three caches, three ways, two figures");
    for line in of_one_core.filter(|line| line["unit"] == "percent-contended") {
        assert!(line["value"] == 0.0 && line["higher_is_better"] == false, "alone: {line}");
    }
    let output = bench(&[]);
    let said = text(&output.stdout);
    let why = text(&output.stderr);
    assert!(why.contains("cargo build --release --manifest-path bench-compare"), "{why}");
    let aims = said.split("\naims").nth(1).expect("aims at the end");
    assert!(aims.contains("contended acquisitions"), "{aims}");
}
