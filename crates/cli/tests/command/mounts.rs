//! `uvfs mounts` of living, stopped and dead mounts.

use crate::common::{Place, can_mount, eventually, run};
use rustix::process::Signal;
use serde_json::Value;

/// The object of `place` in the list, if it is there.
fn listed(place: &Place) -> Option<Value> {
    let outcome = run(&["mounts", "--json"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    let objects = outcome.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    objects.into_iter().find(|one: &Value| one["mountpoint"] == place.mnt())
}

fn state(place: &Place) -> String {
    listed(place).map(|one| one["state"].as_str().unwrap_or("").to_owned()).unwrap_or_default()
}

#[test]
fn a_mount_is_listed_with_its_memory_and_a_dead_one_with_what_helps() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let pid = place.mount_daemon(place.src(), &["--cache-size", "1G"]);
    eventually("its daemon answers in time", || state(&place) == "served");
    let one = listed(&place).expect("it is mounted");
    assert_eq!(one["pid"].as_u64(), Some(pid.as_raw_nonzero().get() as u64), "{one}");
    assert_eq!(one["memory_limit_bytes"].as_u64(), Some(1 << 30), "{one}");
    assert!((1..1 << 30).contains(&one["memory_bytes"].as_u64().expect("a number")), "{one}");
    assert!(one["age_seconds"].as_u64().is_some_and(|age| age < 3_600), "{one}");
    assert_eq!((&one["remedy"], &one["source"]), (&Value::Null, &place.src().into()), "{one}");

    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    eventually("the kernel says that it is dead", || state(&place) == "dead");
    let remedy = format!("its daemon is gone; `uvfs unmount {}` clears it", place.mnt());
    let table = run(&["mounts"]).stdout;
    assert!(table.starts_with("MOUNTPOINT"), "{table}");
    eventually("the table says what helps", || run(&["mounts"]).stdout.contains(&remedy));
    assert_eq!(run(&["unmount", place.mnt()]).code, Some(0));
    assert_eq!(listed(&place), None);
}

/// A list must not hang on one hanging mount.
#[test]
fn a_daemon_that_is_stopped_does_not_hold_up_the_list() {
    if !can_mount() {
        return;
    }
    let (stopped, other) = (Place::new(), Place::new());
    let pid = stopped.mount_daemon(stopped.src(), &[]);
    other.mount_daemon("memory:", &["--size", "16M"]);
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    // A process takes the signal in its own time.
    eventually("it is said not to answer", || state(&stopped) == "not answering");
    eventually("the other is listed as ever", || state(&other) == "served");
    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    eventually("it answers again", || state(&stopped) == "served");
}
