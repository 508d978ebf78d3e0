//! `uvfs-bench-papers radix` works: its smallest run prints the paper's tables, lines and verdicts.

use std::process::{Command, Output};

const NO_RIVALS: [&str; 2] = ["--rivals", "/nowhere/bench-compare"];

fn radix(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uvfs-bench-papers"));
    command.args(["radix", "--tiny", "--runs", "1"]);
    command.args(NO_RIVALS).args(arguments).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_smallest_run_prints_the_papers_tables_and_judges_the_aims() {
    let output = radix(&[]);
    let (said, complaints) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{complaints}");
    assert!(complaints.contains("cargo build --release --manifest-path bench-compare"));
    for pattern in ["interleaved", "sequential"] {
        let title = format!("\n{pattern}, 4096 items, 2 threads [s;");
        assert_eq!(said.matches(&title).count(), 1, "{said}");
        assert!(said.contains(&format!("\n{pattern}, 1 thread [M/s")), "{said}");
    }
    assert!(said.contains("12.034") && said.contains("3.446"), "the paper's figures: {said}");
    let aims = said.split("\naims").nth(1).expect("aims at the end");
    assert_eq!(aims.lines().filter(|line| line.starts_with("  ")).count(), 9, "{aims}");
    assert_eq!(aims.matches("not measured").count(), 4, "those against rivals: {aims}");
}

#[test]
fn lines_have_the_agreed_fields() {
    let output = radix(&["--json", "--systems", "serial,optimistic", "--threads", "1,3"]);
    let lines = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // Six phases in three patterns, and one more in one, each on the clock and by processor time.
    assert_eq!(lines.lines().count(), 2 * 2 * 2 * (6 * 3 + 1) + 2, "{lines}");
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("one object per line");
        for number in ["value", "min", "max", "threads", "runs"] {
            assert!(line[number].as_f64().is_some_and(|value| value > 0.0), "{number}: {line}");
        }
        assert!(line["bench"] == "radix", "{line}");
        let is_rate = line["unit"] == "M/s";
        assert!(line["higher_is_better"] == is_rate && (is_rate || line["unit"] == "B/item"));
    }
    for case in ["insert-sequential", "untag-interleaved-cpu", "range-tag-sequential"] {
        assert!(lines.contains(&format!(r#""case":"{case}""#)), "{case}: {lines}");
    }
}

#[test]
fn unknown_systems_and_empty_rounds_are_refused() {
    let output = radix(&["--systems", "nonsense"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no system nonsense; there are: serial, optimistic"));
    for arguments in [["--items", "0"], ["--threads", "0"]] {
        assert_eq!(radix(&arguments).status.code(), Some(2));
    }
}
