//! `uvfs cached` in live uvfs mounts: the caches of uvfs itself, by directory.

use crate::cleaning::{as_other_user, check_line, check_refused};
use crate::common::{LIMIT, Place, can_mount, eventually, finish, on_terminal, run, uvfs, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::time::Instant;

/// Runs `uvfs cached` with `arguments`; returns its output.
fn shown(arguments: &[&str]) -> String {
    let outcome = run(&[&["cached"], arguments].concat());
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    outcome.stdout
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&shown(&[arguments, &["--json"]].concat())).expect("one object")
}

/// The directory `path` in a tree.
fn at<'a>(tree: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(tree, |tree, name| {
        let below = tree["directories"].as_array().expect("a list");
        below.iter().find(|one| one["name"] == *name).unwrap_or(&Value::Null)
    })
}

/// A mount with uvfs's own page cache: `a` has 2 pages, `a/deep` 3, `ab` 4.
fn filled() -> Place {
    let place = Place::new();
    let timeouts = ["--attr-timeout", "1h", "--entry-timeout", "1h"];
    place.mount_daemon(place.src(), &[&timeouts[..], &["--page-cache", "write-through"]].concat());
    for (path, pages) in [("a/x", 2), ("a/deep/y", 3), ("ab/z", 4)] {
        let path = place.mountpoint.join(path);
        fs::create_dir_all(path.parent().expect("below the mount")).expect("a fresh folder");
        fs::write(&path, vec![1; pages * 4096]).expect("room");
        fs::read(&path).expect("our own");
    }
    place
}

#[test]
fn a_mount_shows_what_uvfs_has_cached_and_counting_caches_nothing() {
    if !can_mount() {
        return;
    }
    let place = filled();
    // Of the source, and never asked for through the mount.
    fs::create_dir(place.source.join("cold")).unwrap();
    fs::write(place.source.join("cold/file"), "x").unwrap();
    let whole = json(&[place.mnt()]);
    assert_eq!((&whole["measured_by"], &whole["path_in_mount"]), (&"uvfs".into(), &"/".into()));
    let tree = &whole["tree"];
    for (path, pages) in [(&[][..], 9), (&["a"], 5), (&["a", "deep"], 3), (&["ab"], 4)] {
        assert_eq!(at(tree, path)["pages"]["pages"], pages, "{path:?}: {whole}");
    }
    assert!(at(tree, &["a"])["names"]["entries"].as_u64() >= Some(3), "x, deep and y: {whole}");
    assert_eq!(at(tree, &["cold"]), &Value::Null, "it was walked");
    let again = json(&[place.mnt()]);
    assert_eq!(&again["tree"], tree, "counting changes nothing");

    let a = format!("{}/a", place.mnt());
    let text = shown(&[&a, "--sort", "name"]);
    assert!(text.contains("20.0 KiB") && text.contains("####"), "{text}");
    assert!(text.contains(&format!("  {a}/\n")) && text.contains("    deep/\n"), "{text}");
    assert!(text.lines().last().unwrap().starts_with("5 pages, "), "{text}");
    let flat = json(&[&a, "--depth", "0"]);
    assert_eq!(flat["tree"]["pages"]["pages"], 5);
    assert_eq!(flat["tree"]["directories"], serde_json::json!([]));

    symlink("mnt/a", place.source.parent().unwrap().join("link")).unwrap();
    let link = place.source.parent().unwrap().join("link");
    let linked = json(&[link.to_str().unwrap()]);
    assert_eq!(linked["path_in_mount"], "/a", "a link is followed, as on other file systems");
    let kernel = json(&[&a, "--kernel"]);
    assert_ne!(kernel["measured_by"], "uvfs");
    assert_eq!(kernel["files"], 2, "{kernel}");
}

#[test]
fn where_the_kernel_caches_file_data_the_source_is_named() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    fs::create_dir(place.source.join("a")).unwrap();
    place.mount_daemon(place.src(), &[]);
    let a = format!("{}/a", place.mnt());
    let text = shown(&[&a]);
    assert!(text.contains(&format!("uvfs cached {}/a\n", place.src())), "{text}");
    assert_eq!(json(&[&a])["source_caches_pages"], format!("{}/a", place.src()));
    assert_eq!(run(&["unmount", place.mnt()]).code, Some(0));
    place.mount_daemon("memory:", &[]);
    assert_eq!(json(&[place.mnt()])["source_caches_pages"], Value::Null);
}

#[test]
fn watching_a_mount_shows_changes_until_ctrl_c() {
    if !can_mount() {
        return;
    }
    let place = filled();
    let a = format!("{}/a", place.mnt());
    let arguments = ["cached", &a, "--watch", "--json", "--interval", "10ms"];
    let mut child = uvfs().args(arguments).spawn().expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut wait_for = |pages: u64| {
        let deadline = Instant::now() + LIMIT;
        loop {
            let line = lines.next().expect("a view").expect("text");
            let json: Value = serde_json::from_str(&line).expect("JSON");
            if json["tree"]["pages"]["pages"] == pages {
                return;
            }
            assert!(Instant::now() < deadline, "never {pages} pages: {json}");
        }
    };
    wait_for(5);
    assert_eq!(run(&["drop", &format!("1:{a}/deep")]).code, Some(0));
    wait_for(2);
    kill_process(Pid::from_child(&child), Signal::INT).expect("our own child");
    drop(lines);
    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn many_directories_are_one_answer() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.mount_daemon("memory:", &["--entry-timeout", "1h"]);
    for at in 0..300 {
        let name = format!("{at}-{}", "long".repeat(50));
        fs::create_dir_all(place.mountpoint.join(name).join("below")).expect("room");
    }
    let all = json(&[place.mnt()]);
    assert_eq!(all["tree"]["directories"].as_array().expect("a list").len(), 300);
    assert_eq!(all["folded_directories"], 0);
    assert!(all["tree"]["names"]["entries"].as_u64() >= Some(600), "{all}");
}

#[test]
fn a_mount_that_does_not_answer_is_refused_with_the_way_out() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let daemon = place.mount_daemon("memory:", &[]);
    fs::write(place.mountpoint.join("file"), "x").unwrap();
    let below = |name: &str| format!("{}/{name}", place.mnt());
    check_refused(&["cached", &below("none")], 1, &["No such file", "existing directory"]);
    check_refused(&["cached", &below("file")], 1, &["Not a directory", "that it is in"]);
    if let Some(mut command) = as_other_user() {
        let outcome = finish(command.args(["cached", place.mnt()]));
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        check_line(&outcome, &[place.mnt(), "not permitted", "run as root or as the user who"]);
    }
    kill_process(daemon, Signal::KILL).expect("our own");
    eventually("the daemon is gone", || fs::metadata(&place.mountpoint).is_err());
    check_refused(&["cached", place.mnt()], 1, &[place.mnt(), "its daemon is gone"]);
}

/// A terminal broke the lines of `uvfs stat` inside words ("n/egative-timeout"), and the rows of `uvfs cached` at the bar.
#[test]
fn reports_of_a_mount_fit_the_terminal() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    fs::create_dir(place.source.join("photos")).unwrap();
    fs::write(place.source.join("photos/a"), "x").unwrap();
    place.mount_daemon(place.src(), &["--page-cache", "write-through"]);
    fs::read(place.mountpoint.join("photos/a")).unwrap();
    for width in [40, 80] {
        let mut command = uvfs();
        command.args(["stat", place.mnt()]);
        let lines = on_terminal(command, width);
        let options = lines.iter().position(|line| line.starts_with("  options")).unwrap();
        let next = &lines[options + 1];
        assert!(next.starts_with(&" ".repeat(23)), "a long value goes on: {lines:#?}");
        for line in &lines {
            // A word alone may be longer than its line: paths have no spaces.
            let words = line.trim_start().split(' ').filter(|word| !word.is_empty()).count();
            let fits = line.chars().count() <= usize::from(width);
            assert!(fits || words <= 2, "{width}: {line:?}");
        }
        let mut command = uvfs();
        command.args(["cached", "."]).current_dir(&place.mountpoint);
        let lines = on_terminal(command, width);
        let rows: Vec<_> = lines.iter().filter(|line| line.ends_with('/')).collect();
        assert_eq!(rows.len(), 2, "{lines:#?}");
        assert!(rows.iter().all(|row| row.len() <= usize::from(width)), "{lines:#?}");
    }
    assert_eq!(run(&["unmount", place.mnt()]).code, Some(0));
}
