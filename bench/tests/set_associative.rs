//! `uvfs-bench set-associative` works: its smallest runs replay every trace, and measure every cache in every way of
//! locking on this machine's cores. Only figures that no machine changes are checked.

use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uvfs-bench"));
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
fn rows_keep_what_a_list_keeps_but_for_little() {
    let [once, again] = [(); 2].map(|()| lines(&bench(&["--case", "hits", "--json"])));
    assert_eq!(once.len(), 10 * 4, "a list, and three kinds of rows");
    let hits = |lines: &[serde_json::Value], case: &str, system: &str| {
        let of = |line: &&serde_json::Value| line["case"] == case && line["system"] == system;
        lines.iter().find(of).and_then(|line| line["value"].as_f64()).expect("it was replayed")
    };
    // If the cache is nearly full of evenly used keys (`recency`), rows lose more: some rows get more keys than they
    // have ways.
    for case in ["zipf-0.99", "zipf-0.8"] {
        let [list, sixteen] = ["lru", "rows of 16"].map(|system| hits(&once, case, system));
        assert!((list - sixteen).abs() < 3.0, "{case}: {list} and {sixteen}, in a tiny cache");
        assert_eq!(sixteen.to_bits(), hits(&again, case, "rows of 16").to_bits(), "as before");
    }
}

#[test]
fn every_cache_is_measured_in_every_way_and_the_aims_close_the_tables() {
    let rows = lines(&bench(&["--case", "contended", "--json"]));
    let of_one_core = rows.iter().filter(|line| line["threads"] == 1);
    assert_eq!(of_one_core.clone().count(), 3 * 3 * 2, "three caches, three ways, two figures");
    for line in of_one_core.filter(|line| line["unit"] == "percent-contended") {
        assert!(line["value"] == 0.0 && line["higher_is_better"] == false, "alone: {line}");
    }
    let said = text(&bench(&["--case", "contended"]).stdout);
    let aims = said.split("\naims").nth(1).expect("aims at the end");
    assert!(aims.contains("contended") && aims.contains("not measured"), "{aims}");
}
