//! The bench itself works: its smallest inputs run, print the agreed lines and leave nothing mounted.

use std::process::{Command, Output, Stdio};

/// Runs the bench to its end; returns its process id and its output.
fn bench(arguments: &[&str]) -> (u32, Output) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uvfs-bench"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    (child.id(), child.wait_with_output().expect("it ends"))
}

#[test]
fn the_smallest_run_prints_lines_and_leaves_nothing() {
    if !uvfs_skip::can_mount() {
        return;
    }
    let (pid, output) = bench(&["mount", "--tiny", "--json", "--case", "getattr-cpu"]);
    let (lines, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    let systems: Vec<String> = lines.lines().map(|line| field(line, "system")).collect();
    assert!(systems.contains(&"bare".to_owned()), "{lines}{said}");
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("one object per line");
        for number in ["value", "min", "max", "threads", "runs"] {
            assert!(line[number].as_f64().is_some_and(|value| value >= 0.0), "{number}: {line}");
        }
        assert!(line["higher_is_better"].is_boolean() && line["bench"] == "mount");
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    let work = format!("/uvfs-bench/{pid}/");
    assert!(!mounts.contains(&work), "left behind: {mounts}");
}

#[test]
fn walks_print_a_line_for_every_system_and_number_of_threads() {
    let arguments = ["walk", "--tiny", "--json", "--case", "d3-n300-*", "--threads", "1,2"];
    let (pid, output) = bench(&[&arguments[..], &["--rivals", "/nowhere/bench-compare"]].concat());
    let (lines, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(said.contains("cargo build --release --manifest-path bench-compare"), "{said}");
    let systems = if rustix::process::geteuid().is_root() { 3 } else { 2 };
    assert_eq!(lines.lines().count(), 2 * 2 * systems, "{lines}{said}");
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("one object per line");
        assert!(line["bench"] == "walk" && line["unit"] == "ns/walk", "{line}");
        assert!(line["value"].as_f64().is_some_and(|value| value > 0.0), "{line}");
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    assert!(!mounts.contains(&format!("/uvfs-bench/{pid}/")), "left behind: {mounts}");
}

#[test]
fn every_case_of_walk_runs_and_the_aims_are_judged() {
    let (_, output) = bench(&["walk", "--tiny", "--rivals", "/nowhere/bench-compare"]);
    let (tables, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    for case in ["d12-n600-uniform", "fx-MWRM", "listing-700-p99-ratio", "scan-then-hot-hits"] {
        assert!(tables.contains(&format!("\n{case} [")), "{case}: {tables}{said}");
    }
    let aims = tables.split("\naims").nth(1).expect("aims at the end");
    assert_eq!(aims.lines().filter(|line| line.starts_with("  ")).count(), 12, "{aims}");
    assert!(aims.contains("bytes-per-name"), "{aims}");
}

#[test]
fn policies_count_requests_for_names_and_pages() {
    let (_, output) = bench(&["policies", "--tiny", "--json"]);
    let (lines, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert_eq!(lines.lines().count(), 2 * 3 * 5, "{lines}");
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("one object per line");
        assert!(line["bench"] == "policies" && line["higher_is_better"] == false, "{line}");
        assert!(line["value"].as_f64().is_some_and(|value| (0.0..=100.0).contains(&value)));
    }
    let after = |system: &str| {
        let mut all = lines.lines().filter(|line| line.contains("names-256-after"));
        let line = all.find(|line| field(line, "system") == system).expect("it was measured");
        serde_json::from_str::<serde_json::Value>(line).expect("an object")["value"].as_f64()
    };
    let [unmarked, kept, once] = ["unmarked", "keep-set", "once-scan"].map(after);
    assert!(unmarked > Some(50.0) && kept < Some(25.0) && once < Some(25.0), "{lines}");
}

#[test]
fn users_take_their_turns_on_one_and_two_processors() {
    let (_, output) = bench(&["users", "--tiny", "--json", "--systems", "uvfs,computing"]);
    let (lines, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    let systems: Vec<String> = lines.lines().map(|line| field(line, "system")).collect();
    if said.contains("uvfs is left out: no mke2fs") {
        uvfs_skip::lacking("no mke2fs");
        return;
    }
    assert_eq!(systems, ["uvfs", "computing", "uvfs", "computing"], "{said}");
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("one object per line");
        assert!(line["bench"] == "users" && line["unit"] == "k/s", "{line}");
        assert!(line["value"].as_f64().is_some_and(|value| value > 0.0), "{line}");
    }
    let (_, output) = bench(&["users", "--tiny", "--systems", "computing"]);
    let tables = text(&output.stdout);
    assert!(tables.contains("not measured") && tables.contains("computing: times one"), "{tables}");
}

#[test]
fn the_disk_queue_prints_a_line_for_every_disk_and_policy() {
    let run = || bench(&["disk-queue", "--tiny", "--json", "--seed", "3"]).1;
    let (output, again) = (run(), run());
    let (lines, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert_eq!(lines.lines().count(), 3 * 7, "{lines}");
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("one object per line");
        assert!(line["bench"] == "disk-queue" && line["queue"].is_number(), "{line}");
        assert!(line["operations_per_s"].as_f64().is_some_and(|value| value > 0.0), "{line}");
    }
    assert_eq!(lines, text(&again.stdout), "nothing is measured");
    let folder = std::env::temp_dir().join(format!("uvfs-disk-queue-{}", std::process::id()));
    let (_, output) = bench(&["disk-queue", "--tiny", "--svg", folder.to_str().expect("a name")]);
    let tables = text(&output.stdout);
    assert!(
        tables.contains("\ndisk cached, 2 processors") && tables.contains("\npromotion-sorted")
    );
    let drawn = std::fs::read_to_string(folder.join("disk-queue-1992.svg")).expect("it was drawn");
    std::fs::remove_dir_all(&folder).expect("it was made");
    assert!(drawn.starts_with("<svg") && drawn.ends_with("</svg>\n"));
}

#[test]
fn walks_refuse_unknown_cases_with_the_known_ones() {
    let (_, output) = bench(&["walk", "--case", "nonsense"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no case nonsense; there are: d1-n10000-hot"));
}

#[test]
fn unknown_names_are_refused_before_anything_is_mounted() {
    for arguments in [["--case", "nonsense"], ["--systems", "nonsense"]] {
        let (_, output) = bench(&[&["mount"][..], &arguments].concat());
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("nonsense; there are: "), "{output:?}");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn field(line: &str, name: &str) -> String {
    let line: serde_json::Value = serde_json::from_str(line).expect("one object per line");
    line[name].as_str().unwrap_or_default().to_owned()
}
