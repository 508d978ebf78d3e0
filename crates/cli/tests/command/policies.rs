//! `uvfs policy` and `uvfs mount --policy`: marks, their output, and refusals.

use crate::cleaning::{as_other_user, check_line, check_refused};
use crate::common::{Place, can_mount, finish, run};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

/// A source with directories and a file.
fn filled() -> Place {
    let place = Place::new();
    for path in ["photos", "photos/2019", "backup", "with blank"] {
        fs::create_dir_all(place.source.join(path)).expect("a fresh folder");
        fs::write(place.source.join(path).join("file"), "x").expect("room");
    }
    place
}

/// The marks, in the output of `uvfs policy MOUNTPOINT`.
fn marks(place: &Place) -> Vec<String> {
    let outcome = run(&["policy", place.mnt()]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    outcome.stdout.lines().map(str::to_string).collect()
}

fn done(arguments: &[&str]) {
    let outcome = run(arguments);
    let all = (outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str());
    assert_eq!(all, (Some(0), "", ""), "{arguments:?}");
}

#[test]
fn directories_are_marked_shown_and_unmarked() {
    if !can_mount() {
        return;
    }
    let place = filled();
    place.mount_daemon(place.src(), &["--entry-timeout", "1h"]);
    let none = run(&["policy", place.mnt()]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""));
    check_line(&none, &[place.mnt(), "no directory is marked"]);
    let below = |path: &str| format!("{}/{path}", place.mnt());
    done(&["policy", "keep", &below("photos"), &below("with blank")]);
    done(&["policy", "once", &below("backup/")]);
    done(&["policy", "normal", &below("photos/2019")]);
    let expected =
        ["once    /backup", "keep    /photos", "normal  /photos/2019", "keep    /with blank"];
    assert_eq!(marks(&place), expected);

    let stat = run(&["stat", place.mnt()]).stdout;
    assert!(stat.contains("\npolicies\n") && stat.contains(" /with blank\n"), "{stat}");
    let stat = run(&["stat", place.mnt(), "--json"]).stdout;
    let stat: Value = serde_json::from_str(&stat).expect("one object");
    let inode = fs::metadata(place.mountpoint.join("backup"))
        .map(|backup| std::os::unix::fs::MetadataExt::ino(&backup));
    let backup =
        json!({"policy": "once", "path": "/backup", "moved": false, "inode": inode.unwrap()});
    assert_eq!(stat["policies"][0], backup);

    for path in ["photos/file", "photos/2019/file", "backup/file"] {
        fs::read(place.mountpoint.join(path)).expect("our own");
    }
    let text = run(&["cached", place.mnt()]).stdout;
    for line in ["photos/  keep\n", "2019/  normal\n", "backup/  once\n"] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
    let top = run(&["cached", &below("backup")]).stdout;
    assert!(top.contains("/backup/  once\n"), "{top}");

    done(&["policy", "none", &below("photos"), &below("photos/2019"), &below("with blank")]);
    assert_eq!(marks(&place), ["once    /backup"]);
    assert!(!run(&["cached", place.mnt()]).stdout.contains("keep"));
}

#[test]
fn a_mark_goes_with_its_directory_and_says_so() {
    if !can_mount() {
        return;
    }
    let place = filled();
    place.mount_daemon(place.src(), &[]);
    let photos = place.mountpoint.join("photos");
    done(&["policy", "keep", photos.to_str().unwrap()]);
    fs::rename(&photos, place.mountpoint.join("pictures")).unwrap();
    fs::read(place.mountpoint.join("pictures/file")).unwrap();
    let lines = marks(&place);
    assert!(lines.len() == 1 && lines[0].starts_with("keep    /photos (renamed since; inode "));
    let text = run(&["cached", place.mnt()]).stdout;
    assert!(text.contains("pictures/  keep\n"), "{text}");
    fs::remove_dir_all(place.mountpoint.join("pictures")).unwrap();
    assert_eq!(marks(&place), [""; 0], "it ends with the directory");
}

#[test]
fn the_attribute_is_the_mark() {
    if !can_mount() {
        return;
    }
    let place = filled();
    place.mount_daemon(place.src(), &[]);
    let backup = place.mountpoint.join("backup");
    done(&["policy", "once", backup.to_str().unwrap()]);
    let mut value = [0; 16];
    let length = rustix::fs::getxattr(&backup, "user.uvfs.cache", &mut value).expect("shown");
    assert_eq!(&value[..length], b"once");
    let flags = rustix::fs::XattrFlags::empty();
    let photos = place.mountpoint.join("photos");
    rustix::fs::setxattr(&photos, "user.uvfs.cache", b"keep", flags).expect("set");
    let lines = marks(&place);
    assert_eq!((lines.len(), lines[0].as_str()), (2, "once    /backup"));
    assert!(lines[1].starts_with("keep    inode ") && lines[1].contains("attribute"), "{lines:?}");
}

/// A file of policies in the place's folder.
fn file(place: &Place, text: &str) -> PathBuf {
    let path = place.source.with_file_name("policies");
    fs::write(&path, text).expect("room");
    path
}

#[test]
fn a_file_marks_from_the_start() {
    if !can_mount() {
        return;
    }
    let place = filled();
    let path = file(&place, "# what stays\nkeep /photos\n\nonce\t/with blank\n");
    place.mount_daemon(place.src(), &["--policy", path.to_str().unwrap()]);
    assert_eq!(marks(&place), ["keep    /photos", "once    /with blank"]);
    assert_eq!(run(&["unmount", place.mnt()]).code, Some(0));
}

#[test]
fn a_file_that_makes_no_sense_is_refused_by_line_and_nothing_is_mounted() {
    if !can_mount() {
        return;
    }
    let place = filled();
    let check = |text: &str, parts: &[&str]| {
        let path = file(&place, text);
        let path = path.to_str().unwrap();
        for more in [&[][..], &["--daemon"]] {
            let mount = ["mount", place.src(), place.mnt(), "--policy", path];
            let line = [&mount[..], more].concat();
            check_refused(&line, 1, &[&[path][..], parts].concat());
            assert!(!crate::common::is_mounted(&place.mountpoint));
        }
    };
    check("keep /photos\nhold /a", &[":2: `hold` is no policy", "write keep, once or normal"]);
    check("\nkeep photos", &[":2: photos: a relative path", "/photos"]);
    check("keep /none", &[":1: keep /none: no such directory", "name a directory"]);
    check("keep /photos/file", &[":1: keep /photos/file: not a directory"]);
    check("keep /photos\nonce //photos/", &[":2: /photos: in line 1 already"]);
    let none = place.source.join("no such file");
    let none = none.to_str().unwrap();
    let line = ["mount", place.src(), place.mnt(), "--policy", none];
    check_refused(&line, 1, &[none, "No such file", "name a file"]);
}

#[test]
fn what_cannot_be_marked_is_refused_before_anything_is() {
    check_refused(&["policy", "keep"], 2, &["which directory?"]);
    check_refused(
        &["policy", "hold", "/a"],
        2,
        &["`hold` is no policy", "keep, once, normal, none"],
    );
    check_refused(&["policy", "keep", "/no/such"], 1, &["/no/such", "No such file"]);
    check_refused(
        &["policy", "keep", "/proc"],
        1,
        &["/proc: not in a uvfs mount", "`uvfs mounts`"],
    );
    if !can_mount() {
        return;
    }
    let place = filled();
    place.mount_daemon(place.src(), &["--allow-other"]);
    let photos = format!("{}/photos", place.mnt());
    check_refused(
        &["policy", "keep", &photos, place.src()],
        1,
        &[place.src(), "not in a uvfs mount"],
    );
    let in_file = format!("{photos}/file");
    check_refused(&["policy", "keep", &photos, &in_file], 1, &[&in_file, "Not a directory"]);
    check_refused(&["policy", place.src()], 1, &[place.src()]);
    if let Some(mut command) = as_other_user() {
        let outcome = finish(command.args(["policy", "keep", &photos]));
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        check_line(&outcome, &[place.mnt(), "not permitted", "run as root or as the user who"]);
    }
    assert_eq!(marks(&place), [""; 0]);
}
