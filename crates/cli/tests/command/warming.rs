//! `uvfs warmup` and `uvfs refresh`: the cached entries, the repeated requests, and the refusals.

use crate::common::{Place, can_mount, run};
use serde_json::Value;
use std::fs;

fn json(arguments: &[&str]) -> Value {
    let outcome = run(arguments);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    serde_json::from_str(&outcome.stdout).expect("one object")
}

/// Calls of the source, by the daemon's count.
fn lookups(place: &Place) -> u64 {
    let stat = json(&["stat", place.mnt(), "--json"]);
    stat["core"]["names"]["misses"].as_u64().expect("a number")
}

fn filled() -> Place {
    let place = Place::new();
    for directory in ["a", "a/b", "c"] {
        fs::create_dir_all(place.source.join(directory)).expect("a fresh folder");
        for file in 0..10 {
            fs::write(place.source.join(directory).join(format!("f{file}")), "content").unwrap();
        }
    }
    place
}

#[test]
fn what_is_warm_is_not_asked_for_again() {
    if !can_mount() {
        return;
    }
    let place = filled();
    place.mount_daemon(place.src(), &["--entry-timeout", "1h", "--attr-timeout", "1h"]);
    let top = json(&["warmup", place.mnt(), "--json"]);
    assert_eq!((&top["directories"], &top["files"]), (&1.into(), &0.into()));
    let warm = json(&["warmup", "-r", place.mnt(), "--data", "--jobs", "3", "--json"]);
    assert_eq!((&warm["directories"], &warm["files"]), (&4.into(), &30.into()));
    assert_eq!((&warm["files_read"], &warm["bytes_read"]), (&30.into(), &210.into()));
    assert_eq!((&warm["failed"], &warm["interrupted"]), (&0.into(), &false.into()));
    assert!(warm["requests"].is_null(), "a host directory counts none");
    let before = lookups(&place);
    assert!(fs::metadata(place.mountpoint.join("a/b/f7")).is_ok());
    assert_eq!(lookups(&place), before);
    let text = run(&["warmup", "-r", place.mnt(), "--data"]).stdout;
    assert!(text.contains("30 files, 30 of them read, 210"), "{text}");
}

#[test]
fn a_refresh_shows_what_others_have_done() {
    if !can_mount() {
        return;
    }
    let place = filled();
    let hour = ["--entry-timeout", "1h", "--attr-timeout", "1h", "--negative-timeout", "1h"];
    place.mount_daemon(place.src(), &hour);
    let new = place.mountpoint.join("a/new");
    assert!(fs::metadata(&new).is_err(), "and that is remembered");
    fs::write(place.source.join("a/new"), "new").unwrap();
    fs::remove_file(place.source.join("a/f3")).unwrap();
    assert!(fs::metadata(&new).is_err(), "for an hour");
    let directory = format!("{}/a", place.mnt());
    let shown = json(&["refresh", &directory, "--json"]);
    assert_eq!((&shown["directories"], &shown["files"]), (&1.into(), &10.into()));
    assert_eq!(fs::read(&new).unwrap(), b"new");
    assert!(fs::metadata(place.mountpoint.join("a/f3")).is_err());
    let all = json(&["refresh", "-r", &directory, "--json"]);
    assert_eq!(all["directories"], 2);
}

/// Bug: a directory's name set the title of the terminal of a user that warmed it, or dropped it from a write-back
/// mount.
#[test]
fn names_are_shown_without_what_a_terminal_obeys() {
    if !can_mount() {
        return;
    }
    let place = filled();
    place.mount_daemon(place.src(), &["--page-cache", "write-back"]);
    let name = "a\u{1b}]0;pwned\u{7}b";
    fs::create_dir(place.mountpoint.join(name)).expect("a fresh folder");
    fs::write(place.mountpoint.join(name).join("file"), "text").expect("a fresh file");
    let (path, missing) = (format!("{}/{name}", place.mnt()), format!("{}/{name}-", place.mnt()));
    for words in
        [["warmup", &path], ["refresh", &path], ["warmup", &missing], ["refresh", &missing]]
    {
        let outcome = run(&words);
        let said = outcome.stdout + &outcome.stderr;
        assert!(said.contains("a\\x1b]0;pwned\\x07b") && !said.contains('\u{1b}'), "{said}");
    }
    let dropped = run(&["drop", &format!("3:{path}")]).stdout;
    assert!(dropped.contains("left: ") && !dropped.contains('\u{1b}'), "{dropped}");
}

#[test]
fn what_is_in_no_mount_is_refused_with_what_helps() {
    let place = Place::new();
    for verb in ["warmup", "refresh"] {
        let outcome = run(&[verb, place.src()]);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(outcome.stderr.contains("uvfs mounts"), "{outcome:?}");
        assert_eq!(run(&[verb, "/no/such/place"]).code, Some(1));
        assert_eq!(run(&[verb]).code, Some(2));
    }
    assert_eq!(run(&["warmup", place.src(), "--jobs", "0"]).code, Some(2));
}
