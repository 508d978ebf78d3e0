//! Daemons that die or stop while a command asks them, and commands that end with what they started.

use crate::cleaning::as_other_user;
use crate::common::{Place, can_mount, eventually, finish, is_alive, is_mounted, run, uvfs, wait};
use crate::hanging::Stopped;
use rustix::process::{Pid, Signal};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Child;

fn send(signal: Signal, to: &Child) {
    rustix::process::kill_process(Pid::from_child(to), signal).expect("our own child");
}

/// Whether `child` has a socket open, and so has begun to ask.
fn asks(child: &Child) -> bool {
    let open = fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten();
    let mut links = open.filter_map(|one| fs::read_link(one.ok()?.path()).ok());
    links.any(|link| link.to_string_lossy().starts_with("socket:"))
}

/// `words` while the daemon of `place` is killed: it gets the request and never answers.
fn beside_a_kill(place: &Place, words: &[&str]) -> (Option<i32>, String) {
    let daemon = place.mount_daemon(place.src(), &[]);
    let stopped = Stopped::new(daemon);
    let mut child = uvfs().args(words).spawn().expect("the program starts");
    eventually("the command asks", || asks(&child));
    rustix::process::kill_process(daemon, Signal::KILL).expect("our own daemon");
    std::mem::forget(stopped);
    let stderr = child.stderr.take().expect("piped");
    let status = wait(&mut child);
    (status.code(), std::io::read_to_string(stderr).expect("text"))
}

/// Bug: `uvfs unmount` that met a daemon on its way to the end failed with "Connection reset by peer", and left the dead
/// mount. A second try cleared it.
#[test]
fn a_daemon_that_dies_under_unmount_is_cleared() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    for _ in 0..5 {
        let (code, stderr) = beside_a_kill(&place, &["unmount", place.mnt()]);
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        assert!(!is_mounted(&place.mountpoint));
    }
}

/// Bug: other commands said "Connection reset by peer; if it hangs, kill it", of a daemon that was dead.
#[test]
fn a_daemon_that_dies_under_a_command_is_said_to_be_gone() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mnt = place.mnt();
    let commands: [&[&str]; 5] = [
        &["stat", mnt],
        &["set", mnt, "cache-size=64M"],
        &["drop", "3", "--mount", mnt],
        &["cached", mnt],
        &["top", "--once", mnt],
    ];
    for words in commands {
        let (code, stderr) = beside_a_kill(&place, words);
        assert_eq!(code, Some(1), "{words:?}: {stderr}");
        let remedy = format!("its daemon is gone; run `uvfs unmount {mnt}`");
        assert!(stderr.contains(&remedy), "{words:?}: {stderr}");
        let cleared = run(&["unmount", mnt]);
        assert_eq!((cleared.code, cleared.stderr.as_str()), (Some(0), ""), "{cleared:?}");
    }
}

/// Bug: `uvfs stat` said "served" of a stopped daemon, and `uvfs drop` waited for it without an end.
#[test]
fn a_daemon_that_is_stopped_is_not_waited_for_without_end() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let stopped = Stopped::new(place.mount_daemon(place.src(), &[]));
    let listed = run(&["stat"]).stdout;
    let line = listed.lines().find(|line| line.starts_with(&format!("{}  ", place.mnt())));
    assert!(line.is_some_and(|line| line.ends_with("  not answering")), "{listed}");
    let top = run(&["top", "--once", place.mnt()]);
    assert_eq!(top.code, Some(1), "{top:?}");
    let dropped = run(&["drop", "3", "--mount", place.mnt()]);
    assert_eq!(dropped.code, Some(1), "{dropped:?}");
    assert!(dropped.stderr.contains("no answer within"), "{dropped:?}");
    drop(stopped);
    assert_eq!(run(&["unmount", place.mnt()]).code, Some(0));
}

/// The process that was started in the background to mount at `mountpoint`.
fn background(mountpoint: &str) -> Option<Pid> {
    let processes = fs::read_dir("/proc").expect("proc is there");
    let mut numbers = processes.filter_map(|one| one.ok()?.file_name().to_str()?.parse().ok());
    numbers.find_map(|number: i32| {
        let words = fs::read(format!("/proc/{number}/cmdline")).ok()?;
        let has = |word: &str| words.split(|byte| *byte == 0).any(|one| one == word.as_bytes());
        (has("--in-background") && has(mountpoint)).then(|| Pid::from_raw(number)).flatten()
    })
}

/// Bug: Ctrl-C ended `uvfs mount --daemon` that waited for a store, and its daemon waited on. Its refusal came twenty
/// seconds later, on the user's prompt.
#[test]
fn a_daemon_that_is_not_ready_ends_with_its_command() {
    let place = Place::new();
    let store = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = store.local_addr().expect("bound").port();
    let source = format!("s3://bucket?endpoint=http://127.0.0.1:{port}&region=x");
    let mut command = uvfs();
    command.args(["mount", &source, place.mnt(), "--daemon"]);
    command.env("AWS_ACCESS_KEY_ID", "x").env("AWS_SECRET_ACCESS_KEY", "y");
    let mut child = command.spawn().expect("the program starts");
    // The store takes the request, and never answers.
    let asked = store.accept().expect("the daemon asks the store");
    let daemon = background(place.mnt()).expect("it has asked");
    send(Signal::INT, &child);
    wait(&mut child);
    eventually("the daemon has ended", || !is_alive(daemon));
    drop(asked);
}

/// Bug: `uvfs image create` that a signal ended left mke2fs at work, and the file.
#[test]
fn an_image_that_is_being_made_goes_with_its_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fake, noted) = (folder.path().join("mke2fs"), folder.path().join("pid"));
    let script = format!(
        "#!/bin/sh\necho $$ > '{0}.new'; mv '{0}.new' '{0}'; exec sleep 1000\n",
        noted.display()
    );
    fs::write(&fake, script).expect("a fresh file");
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).expect("ours");
    let path = std::env::var("PATH").unwrap_or_default();
    let image = folder.path().join("image");
    let mut command = uvfs();
    command.args(["image", "create"]).arg(&image).args(["--size", "16M"]);
    command.env("PATH", format!("{}:{path}", folder.path().display()));
    let mut child = command.spawn().expect("the program starts");
    eventually("mke2fs works", || noted.exists());
    let maker = fs::read_to_string(&noted).expect("written").trim().parse().expect("a number");
    let maker = Pid::from_raw(maker).expect("a process");
    send(Signal::TERM, &child);
    assert_eq!(wait(&mut child).code(), Some(1));
    assert!(!is_alive(maker) && !image.exists());
}

/// Bug: `uvfs mount` refused, if HOME was another user's, as after `su -m`: its file of settings could not be read.
#[test]
fn settings_that_may_not_be_read_are_left_out() {
    let Some(mut command) = as_other_user() else { return };
    let home = tempfile::tempdir().expect("a folder");
    assert!(home.path().starts_with("/"));
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).expect("ours");
    command.env_remove("UVFS_CONFIG").env_remove("XDG_CONFIG_HOME").env("HOME", home.path());
    let outcome = finish(command.args(["config", "show", "--effective"]));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let warning = "uvfs/config.toml: Permission denied; goes on without it";
    assert!(outcome.stderr.contains(warning) && outcome.stderr.lines().count() == 1, "{outcome:?}");
    // A file that the user names must be readable.
    let named = home.path().join("named");
    fs::write(&named, "").expect("a fresh file");
    let Some(mut command) = as_other_user() else { return };
    let outcome = finish(command.args(["config", "show"]).env("UVFS_CONFIG", &named));
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
}

/// Bug: `mount -o noatime disk.img m` was refused, although reading an image moves no access times.
#[test]
fn noatime_is_taken_where_it_is_true() {
    if !can_mount()
        || !Path::new("/usr/sbin/mke2fs").exists() && !Path::new("/sbin/mke2fs").exists()
    {
        return;
    }
    let place = Place::new();
    let image = place.source.join("image");
    let image = image.to_str().expect("a plain path");
    assert_eq!(run(&["image", "create", image, "--size", "16M"]).code, Some(0));
    for option in ["noatime", "nodiratime"] {
        place.mount_daemon(image, &["--atime", option]);
        assert_eq!(run(&["unmount", place.mnt()]).code, Some(0));
    }
    let refused = run(&["mount", image, place.mnt(), "--atime", "relatime"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("moves no access times"), "{refused:?}");
}
