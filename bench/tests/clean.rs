//! `uvfs-bench clean` works: its smallest run prints every family, counts nothing lost, and leaves nothing.

use std::fs;
use std::process::{Command, Output, Stdio};

/// Runs the bench to its end; returns its process id and its output.
fn clean(arguments: &[&str]) -> (u32, Output) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uvfs-bench"));
    command.arg("clean").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    (child.id(), child.wait_with_output().expect("it ends"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn counts_of_the_smallest_run_are_those_that_are_wanted() {
    let arguments = ["--tiny", "--json", "--case", "names", "--case", "bytes", "--case", "effect"];
    let (_, output) = clean(&arguments);
    let (lines, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("an object per line")).collect();
    let value = |case: &str, system: &str| {
        let is_it = |line: &&serde_json::Value| line["case"] == case && line["system"] == system;
        let line = lines.iter().find(is_it).unwrap_or_else(|| panic!("{case} {system}: {said}"));
        assert!(line["bench"] == "clean" && line["threads"] == 1, "{line}");
        line["value"].as_f64().expect("a number")
    };
    for system in ["uvfs-simulated", "uvfs-dir"] {
        for files in ["900", "1000", "1100", "1200", "1300"] {
            let [plain, cleaned] = ["plain", "cleaned"].map(|way| {
                assert!(value(&format!("reaccess-{files}-{way}"), system) > 0.0);
                value(&format!("reaccess-{files}-{way}-misses"), system)
            });
            assert!(cleaned <= plain, "{files} of {system}: {cleaned} {plain}");
        }
        assert_eq!(value("reaccess-900-plain-misses", system), 0.0, "all three fit");
        assert!(value("reaccess-1300-plain-misses", system) > 0.0, "only two of them fit");
    }
    assert_eq!(value("reaccess-1300-plain-misses", "lru-model"), 1300.0);
    assert!(value("reaccess-1152KiB-plain", "uvfs-simulated") > 0.0);
    let [plain, cleaned] = ["plain", "cleaned"]
        .map(|way| value(&format!("reaccess-1664KiB-{way}-misses"), "uvfs-simulated"));
    assert!(cleaned < plain, "pages: {cleaned} {plain}");
    for below in ["10", "1000"] {
        assert!(value(&format!("effect-{below}-d8"), "uvfs") > 0.0);
        assert_eq!(value(&format!("collateral-{below}"), "uvfs"), 0.0);
    }
    assert!(value("p99-idle-1000", "uvfs") > 0.0 && value("p99-reaping-1000", "uvfs") > 0.0);
}

#[test]
fn tables_have_the_patchs_beside_them_and_end_with_the_aims() {
    let folder = std::env::temp_dir().join(format!("uvfs-bench-charts-{}", std::process::id()));
    let charts = folder.to_str().expect("a path in UTF-8");
    let (_, output) = clean(&["--tiny", "--case", "names", "--svg", charts]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(said.contains("patch of 2013, its machine, 200 times as many files"), "{said}");
    assert!(said.contains("4.29"), "{said}");
    let aims = said.split("\naims").nth(1).expect("aims at the end");
    assert_eq!(aims.lines().filter(|line| line.starts_with("  ")).count(), 6, "{aims}");
    assert!(aims.contains("not measured"), "{aims}");
    let chart = fs::read_to_string(folder.join("reaccess-names.svg")).expect("it was written");
    assert!(chart.starts_with("<svg") && chart.ends_with("</svg>\n"), "{chart}");
    fs::remove_dir_all(folder).expect("only charts are in it");
}

#[test]
fn what_needs_the_kernel_runs_or_says_why_not_and_leaves_nothing() {
    let arguments = ["--tiny", "--case", "mount", "--case", "host", "--case", "rivals"];
    let (pid, output) = clean(&arguments);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("reaccess-") || said.contains("second pass") || said.contains("skipped"));
    assert!(
        said.contains("kernel-switch: skipped: it empties caches of the whole machine"),
        "{said}"
    );
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    assert!(!mounts.contains(&format!("/uvfs-bench/{pid}/")), "left behind: {mounts}");
    for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"] {
        let groups = fs::read_dir(root).into_iter().flatten().flatten();
        let own = format!("uvfs-bench-{pid}-");
        let left: Vec<_> =
            groups.filter(|group| group.file_name().to_string_lossy().starts_with(&own)).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn unknown_families_are_refused() {
    let (_, output) = clean(&["--case", "nonsense"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("names"), "{output:?}");
}
