//! External limits: mounts that work within them, and refusals that name the cause.

use crate::common::{Place, can_mount, finish, run, uvfs};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

/// The program in a shell that sets a limit first.
fn limited(limit: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limit}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_uvfs")]);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Bug: with 32 descriptors every sixth file could not be opened, without a warning.
#[test]
fn too_few_descriptors_are_refused() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let outcome = finish(&mut limited("ulimit -n 32", &["mount", place.src(), place.mnt()]));
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let expected =
        "uvfs: only 32 files may be open (`ulimit -Hn`), and serving takes 64; raise that limit\n";
    assert_eq!(outcome.stderr, expected);
}

/// Bug: 67 GB of address space were reserved for any budget: with less, the only message was "Cannot allocate memory".
#[test]
fn a_limited_address_space_is_enough_or_is_named() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    fs::write(place.source.join("file"), "text").unwrap();
    let mount = |size: &str| {
        let arguments = ["mount", place.src(), place.mnt(), "--daemon", "--cache-size", size];
        let more = ["--page-cache", "write-through", "--readers", "2"];
        finish(&mut limited("ulimit -v 2000000", &[&arguments[..], &more[..]].concat()))
    };
    let outcome = mount("64M");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(fs::read(place.mountpoint.join("file")).unwrap(), b"text");
    assert_eq!(run(&["unmount", place.mnt()]).code, Some(0));
    // All of the machine: more is refused for another reason.
    let outcome = mount("100%");
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    for part in ["source ", "the address space is limited to 1.9 GiB (`ulimit -v`)", "--cache-size"]
    {
        assert!(outcome.stderr.contains(part), "{part}: {outcome:?}");
    }
}

/// Bug: terminals obeyed escapes in a name of a mount, and a renamed source was shown at its old path.
#[test]
fn the_report_shows_what_became_of_the_source_and_obeys_nothing() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let odd = place.source.join("\u{1b}]0;title\u{7}");
    fs::create_dir(&odd).unwrap();
    let mut command = uvfs();
    let outcome = finish(command.args(["mount", "--daemon"]).arg(&odd).arg(place.mnt()));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for arguments in [&["stat"][..], &["stat", place.mnt()]] {
        let outcome = run(arguments);
        assert!(outcome.stdout.contains("\\x1b]0;title\\x07"), "{outcome:?}");
        assert!(!outcome.stdout.contains(['\u{1b}', '\u{7}']), "{outcome:?}");
    }
    let moved = place.source.join("moved");
    fs::rename(&odd, &moved).unwrap();
    symlink("moved", &odd).unwrap();
    let outcome = run(&["stat", place.mnt()]);
    let line = outcome.stdout.lines().find(|line| line.starts_with("  source now"));
    assert!(line.is_some_and(|line| line.ends_with(moved.to_str().unwrap())), "{outcome:?}");
    assert_eq!(run(&["unmount", place.mnt()]).code, Some(0));
}
