//! `uvfs stat --locks` on a real mount: the daemon's locks, all of them and those of an interval.

use crate::common::{Place, can_mount, run};
use std::fs;

fn locks(place: &Place, options: &[&str]) -> serde_json::Value {
    let outcome = run(&[&["stat", place.mnt(), "--json"], options].concat());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("an object");
    assert_eq!(report["mountpoint"], place.mnt(), "the caches' report is there too");
    report["locks"].clone()
}

/// Acquisitions of all classes together.
fn acquisitions(locks: &serde_json::Value) -> u64 {
    let classes = locks["classes"].as_array().expect("classes");
    classes.iter().map(|class| class["acquisitions"].as_u64().expect("a count")).sum()
}

#[test]
fn the_daemons_locks_are_shown() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.mount_daemon("memory:", &[]);
    let before = locks(&place, &["--locks"]);
    for at in 0..50 {
        fs::write(place.mountpoint.join(format!("file{at}")), "content").unwrap();
    }
    let after = locks(&place, &["--lockmeter"]);
    assert!(acquisitions(&after) > acquisitions(&before) + 50, "{after}");
    assert!(after["wall_ns"].as_u64() > before["wall_ns"].as_u64());
    let nodes = after["classes"].as_array().unwrap();
    let nodes = nodes.iter().find(|class| class["lock"] == "fuse-nodes").expect("always taken");
    let sites = nodes["sites"].as_array().unwrap();
    let site = sites[0]["site"].as_str().unwrap();
    assert!(site.contains("fuse/src/server/nodes.rs:"), "{site}");

    let table = run(&["stat", place.mnt(), "--locks"]).stdout;
    assert!(table.starts_with("locks over ") && table.contains("\n  fuse-nodes "), "{table}");
    let lockmeter = run(&["stat", place.mnt(), "--lockmeter"]).stdout;
    for part in ["SPINLOCKS", "*TOTAL*", "  fuse-nodes\n", "fuse/src/server/nodes.rs:"] {
        assert!(lockmeter.contains(part), "no {part:?} in\n{lockmeter}");
    }
}

#[test]
fn an_interval_leaves_out_what_came_before() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.mount_daemon("memory:", &[]);
    for at in 0..200 {
        fs::write(place.mountpoint.join(format!("file{at}")), "content").unwrap();
    }
    let all = locks(&place, &["--locks"]);
    let quiet = locks(&place, &["--locks", "--interval", "300ms"]);
    assert!(acquisitions(&quiet) < acquisitions(&all) / 2, "{quiet}");
    assert!(quiet["wall_ns"].as_u64().unwrap() >= 299_000_000, "{quiet}");
    for bad in ["0", "-2", "soon"] {
        let refused = run(&["stat", place.mnt(), "--locks", "--interval", bad]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.starts_with(&format!("uvfs: --interval {bad}: ")), "{refused:?}");
    }
}
