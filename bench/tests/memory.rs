//! The bench of the daemon's memory works: its smallest inputs run, print a line for every phase and leave nothing.

use std::process::Command;

const PHASES: [&str; 12] = [
    "names",
    "find-size",
    "find-size-again",
    "ls-lR",
    "open",
    "data",
    "missing",
    "together",
    "make-remove",
    "drop",
    "set",
    "find-size-after",
];

fn bench(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_uvfs-bench")).args(arguments).output();
    let output = output.expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn every_phase_is_measured_in_and_out_of_a_control_group() {
    if !uvfs_skip::can_mount() {
        return;
    }
    let (code, lines, said) = bench(&["memory", "--tiny", "--json", "--cache-size", "64M"]);
    if said.contains("skipped: no mount tool") {
        uvfs_skip::lacking("the mount tool is not built");
        return;
    }
    // A program without optimisation hardly fits into the group; it then prints that, which is no fault of the bench.
    let outgrown = said.contains("group-32M") && !said.contains("64M in ");
    assert!(code == Some(0) || outgrown, "{said}");
    let lines: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("one object per line"))
        .collect();
    let value = |case: &str| {
        let line = lines.iter().find(|line| line["case"] == case);
        let line = line.unwrap_or_else(|| panic!("no {case}: {said}"));
        assert!(line["bench"] == "memory" && line["system"] == "uvfs", "{line}");
        line["value"].as_f64().expect("a number")
    };
    assert!(value("64M-fixed") > 1.0 && value("64M-survived") == 1.0);
    for phase in PHASES {
        assert!(value(&format!("64M-{phase}")) >= 0.0);
        let [peak, anonymous, left] =
            ["peak", "anonymous", "left"].map(|what| value(&format!("64M-{phase}-{what}")));
        assert!(peak > 1.0 && peak >= left && peak >= anonymous && anonymous > 0.0, "{phase}");
    }
    if said.contains("group-32M: skipped: ") {
        uvfs_skip::lacking("no control group here");
    } else {
        value("group-32M-survived");
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    assert!(!mounts.contains("memory-64M-0"), "left behind: {mounts}");
}

#[test]
fn unknown_phases_are_refused_with_the_known_ones() {
    let (code, _, said) = bench(&["memory", "--phases", "nonsense"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("no phase nonsense; there are: names, find-size"), "{said}");
}
