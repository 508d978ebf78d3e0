//! `uvfs demo`: with a mount, and in process where there can be none. It leaves no file and no mount.

use crate::cleaning::as_other_user;
use crate::common::{Outcome, can_mount, finish, uvfs, wait};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The program as a demonstration that makes its folder in `folder`.
fn demo(folder: &Path) -> Command {
    let mut command = uvfs();
    command.arg("demo").env("TMPDIR", folder);
    command
}

/// The lines that show a step: a command or a call.
fn steps(outcome: &Outcome) -> Vec<&str> {
    let is_step = |line: &&str| line.starts_with("$ ") || line.starts_with("> ");
    outcome.stdout.lines().filter(is_step).collect()
}

/// The demonstration in a mount namespace of its own, after `script` has changed what is mounted there; `None`, with a note,
/// if that is impossible. Files and mounts that are left are on its standard error.
fn elsewhere(folder: &Path, script: &str) -> Option<Outcome> {
    elsewhere_as("", folder, script)
}

/// Runs `script` as the user that the words of `user` become.
fn elsewhere_as(user: &str, folder: &Path, script: &str) -> Option<Outcome> {
    if !rustix::process::geteuid().is_root() {
        uvfs_skip::skip("a mount namespace needs root");
        return None;
    }
    let left = "ls -A \"$TMPDIR\" >&2; grep \"$TMPDIR/\" /proc/self/mountinfo >&2";
    let line =
        format!("{{ {script}; }} || exit 99; {user} \"$0\" demo; status=$?; {left}; exit $status");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &line, env!("CARGO_BIN_EXE_uvfs")]);
    command.env("TMPDIR", folder).env("UVFS_CONFIG", "/dev/null");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let outcome = finish(&mut command);
    if outcome.stdout.is_empty() {
        uvfs_skip::lacking(format_args!("no such namespace can be made here: {outcome:?}"));
        return None;
    }
    Some(outcome)
}

fn check_empty(folder: &Path) {
    let left: Vec<_> = fs::read_dir(folder).unwrap().map(|one| one.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at = folder.canonicalize().unwrap();
    assert!(!table.contains(at.to_str().unwrap()), "a mount is left");
}

/// Nothing could be tried without an image, a mountpoint and the manual: `cargo run` printed help and failed.
#[test]
fn it_shows_a_mount_at_work_and_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // A setting of the user has no effect: --watch is refused for an image.
    let outcome = finish(demo(folder.path()).env("UVFS_WATCH", "true"));
    assert_eq!((outcome.code, &*outcome.stderr), (Some(0), ""), "{}", outcome.stdout);
    let mut expected = vec![
        "$ uvfs image create disk.img --size 64M",
        "$ mkdir disk",
        "$ uvfs mount disk.img disk --daemon",
        "$ cp -r tree/. disk",
        "$ sync disk",
        "$ uvfs cached disk",
        "$ uvfs drop 3:disk/photos",
        "$ uvfs cached disk",
        "$ cat disk/photos/* | wc -c",
        "$ uvfs cached disk",
        "$ uvfs unmount disk",
        "$ uvfs image check disk.img",
    ];
    if outcome.stdout.contains("that is a part of this program") {
        expected.remove(0);
    }
    assert_eq!(steps(&outcome), expected);
    let views: Vec<&str> = outcome.stdout.split("$ uvfs cached disk\n").collect();
    let shows = |view: &str| view.split('$').next().unwrap().contains("  photos/\n");
    assert_eq!([1, 2, 3].map(|at| shows(views[at])), [true, false, true], "{}", outcome.stdout);
    assert!(outcome.stdout.contains("\n2097152\n") && outcome.stdout.contains("\n0 faults; "));
    check_empty(folder.path());
}

/// Where the kernel's FUSE is missing, the library does the same in process, and what is missing is named.
#[test]
fn without_fuse_the_library_does_the_same_in_process() {
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs dev /dev && mknod -m 666 /dev/null c 1 3";
    let Some(outcome) = elsewhere(folder.path(), script) else { return };
    assert_eq!((outcome.code, &*outcome.stderr), (Some(0), ""), "{}", outcome.stdout);
    let missing =
        "# /dev/fuse: missing, the kernel's FUSE is not loaded; run `modprobe fuse` as root";
    assert!(outcome.stdout.contains(missing), "{}", outcome.stdout);
    let expected = [
        "> vfs.sync_fs()?;",
        "> vfs.resident_by_directory(vfs.root())",
        "> vfs.clean(photos, Clean::Both, Dirty::Skip)?",
        "> vfs.resident_by_directory(vfs.root())",
        "> for name in photos { bytes += root.read_file(name)?.len(); }",
        "> vfs.resident_by_directory(vfs.root())",
        "> vfs.end()",
        "$ uvfs image check disk.img",
    ];
    assert!(steps(&outcome).ends_with(&expected), "{}", outcome.stdout);
    let views: Vec<&str> = outcome.stdout.split("> vfs.resident_by_directory").collect();
    let shows = |view: &str| view.split("\n> ").next().unwrap().contains("  /photos");
    assert_eq!([1, 2, 3].map(|at| shows(views[at])), [true, false, true], "{}", outcome.stdout);
    assert!(outcome.stdout.contains("\n2097152\n") && outcome.stdout.contains("\n0 faults; "));
}

/// An ordinary user without `fusermount3` reads which package is missing. (A helper that cannot be read is not found.)
#[test]
fn without_the_helper_an_ordinary_user_reads_which_package_is_missing() {
    if !can_mount() || as_other_user().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let hidden = tempfile::NamedTempFile::new().unwrap();
    let hidden = hidden.path().display();
    let script = format!(
        "chmod 0 '{hidden}' && for at in $(which -a fusermount3) /usr/bin/fusermount3 /bin/fusermount3; \
         do test ! -e $at || mount --bind '{hidden}' $at || exit 99; done"
    );
    let user = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let Some(outcome) = elsewhere_as(user, folder.path(), &script) else { return };
    assert_eq!((outcome.code, &*outcome.stderr), (Some(0), ""), "{}", outcome.stdout);
    let missing =
        "# fusermount3: not installed, and only root mounts without it; install the package fuse3";
    assert!(outcome.stdout.contains(missing), "{}", outcome.stdout);
    assert!(steps(&outcome).ends_with(&["> vfs.end()", "$ uvfs image check disk.img"]));
    assert!(outcome.stdout.contains("\n0 faults; "), "{}", outcome.stdout);
}

/// The mount itself may be refused, and mke2fs may be missing: a mount namespace in which neither works.
#[test]
fn without_mke2fs_and_with_a_mount_that_is_refused_it_works_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    // A device that can be opened, and is none of FUSE.
    let script = "mount --bind /dev/zero /dev/fuse && \
                  for at in /sbin/mke2fs /usr/sbin/mke2fs; do test ! -e $at || mount --bind /dev/null $at; done";
    let Some(outcome) = elsewhere(folder.path(), script) else { return };
    assert_eq!((outcome.code, &*outcome.stderr), (Some(0), ""), "{}", outcome.stdout);
    for line in ["that is a part of this program", "# mountpoint ", "the library serves the image"]
    {
        assert!(outcome.stdout.contains(line), "{line}: {}", outcome.stdout);
    }
    assert!(outcome.stdout.contains("\n0 faults; "), "{}", outcome.stdout);
}

/// Ctrl-C while the image is mounted, and a second one.
#[test]
fn a_signal_ends_it_in_order() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(folder.path()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("mounted on") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended before it mounted");
    }
    let pid = Pid::from_child(&child);
    for _ in 0..2 {
        // It may have ended already at the second one.
        let _ = kill_process(pid, Signal::INT);
    }
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    let status = wait(&mut child);
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    let expected = "uvfs: demo: ended by a signal; nothing is left of it\n";
    assert_eq!((status.code(), &*errors), (Some(1), expected), "{rest}");
    check_empty(folder.path());
}

/// A step that fails half way: the folder has no room for what is copied into the image.
#[test]
fn a_failure_half_way_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(outcome) = elsewhere(folder.path(), "mount -t tmpfs -o size=4M small \"$TMPDIR\"")
    else {
        return;
    };
    assert!(outcome.stdout.contains("\n$ cp -r tree/. disk\n"), "it was mounted: {outcome:?}");
    let refused: Vec<&str> = outcome.stderr.lines().collect();
    assert_eq!((outcome.code, refused.len()), (Some(1), 1), "{outcome:?}");
    assert!(refused[0].starts_with("uvfs: demo: `"), "{outcome:?}");
}
