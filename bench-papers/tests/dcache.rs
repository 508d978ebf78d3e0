//! `uvfs-bench-papers dcache` works: its smallest run prints tables, figures, lines and charts.

use std::fs;
use std::process::{Command, Output};

fn dcache(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uvfs-bench-papers"));
    command.args(["dcache", "--quick", "--threads", "1", "--operations", "1000", "--runs", "1"]);
    command.args(arguments).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_smallest_run_prints_every_table_and_figure() {
    let folder = std::env::temp_dir().join(format!("uvfs-bench-dcache-{}", std::process::id()));
    let output = dcache(&["--svg", folder.to_str().expect("a path in UTF-8")]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for number in 1..=7 {
        assert!(said.contains(&format!("\nTable {number}: ")), "{said}");
    }
    for number in 1..=6 {
        assert!(said.contains(&format!("\nFigure {number}: ")), "{said}");
        let chart = fs::read_to_string(folder.join(format!("figure-{number}.svg")));
        let chart = chart.expect("the chart was written");
        assert!(chart.starts_with("<svg") && chart.ends_with("</svg>\n"), "{chart}");
    }
    fs::remove_dir_all(folder).expect("only charts are in it");
}

#[test]
fn lines_have_the_agreed_fields() {
    let output = dcache(&["--json", "--variant", "global-lock", "--variant", "uvfs"]);
    let lines = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut locks = Vec::new();
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("one object per line");
        for number in ["value", "min", "max", "threads", "runs"] {
            assert!(line[number].as_f64().is_some_and(|value| value >= 0.0), "{number}: {line}");
        }
        assert!(line["higher_is_better"].is_boolean() && line["bench"] == "dcache");
        if line["case"] == "httperf-global-locks" {
            locks.push((line["system"].clone(), line["value"].as_f64().expect("a number")));
        }
    }
    // 15 names and 4 `..`, each of which takes the baseline's one lock; the product has none.
    assert_eq!(locks.len(), 2, "{lines}");
    assert!(locks[0].0 == "global-lock" && locks[0].1 > 19.0, "{locks:?}");
    assert!(locks[1].0 == "uvfs" && locks[1].1 == 0.0, "{locks:?}");
}

#[test]
fn unknown_variants_and_empty_lists_are_refused() {
    for arguments in [["--variant", "nonsense"], ["--threads", "0"], ["--operations", "1"]] {
        let output = dcache(&arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stdout.is_empty());
    }
}
