//! A mount whose source does not answer: its control socket does.

use crate::common::{Place, can_mount, eventually, run};
use rustix::process::{Pid, Signal};
use std::fs;
use std::process::{Child, Command, Stdio};

/// The daemon of the source, stopped; it continues when dropped.
pub(crate) struct Stopped(Pid);

impl Stopped {
    pub(crate) fn new(daemon: Pid) -> Self {
        rustix::process::kill_process(daemon, Signal::STOP).expect("our own daemon");
        let stopped = Self(daemon);
        let tasks = format!("/proc/{}/task", daemon.as_raw_nonzero());
        eventually("every thread has stopped", || {
            fs::read_dir(&tasks).expect("it lives").all(|task| {
                let stat = fs::read_to_string(task.expect("a thread").path().join("stat"));
                stat.is_ok_and(|stat| {
                    stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"))
                })
            })
        });
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.0, Signal::CONT);
    }
}

/// A process that uses a mount; killed when dropped.
struct User(Child);

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Each `stat`, `drop` or `cached` of a mount over a stopped file system waited in it on a thread of the daemon. Eight of them
/// took all places, and the mount could be ended by signals alone.
#[test]
fn a_source_that_hangs_never_takes_the_control_socket() {
    if !can_mount() {
        return;
    }
    let (below, place) = (Place::new(), Place::new());
    let source =
        below.mount_daemon(below.src(), &["--attr-timeout", "0s", "--entry-timeout", "0s"]);
    fs::create_dir(below.mountpoint.join("hot")).expect("a fresh folder");
    fs::write(below.mountpoint.join("used"), "text").expect("a fresh file");
    place.mount_daemon(below.mnt(), &["--attr-timeout", "0s", "--entry-timeout", "0s"]);
    // In use by another process, so that this one need not touch the mount.
    let user = Command::new("sleep")
        .arg("1000")
        .stdin(fs::File::open(place.mountpoint.join("used")).expect("it is there"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let user = User(user.expect("sleep starts"));
    let stopped = Stopped::new(source);

    let hot = format!("{}/hot", place.mnt());
    let drop_hot = format!("3:{hot}");
    let silent: [&[&str]; 3] = [&["cached", &hot], &["policy", "keep", &hot], &["drop", &drop_hot]];
    for words in silent {
        let outcome = run(words);
        assert_eq!(outcome.code, Some(1), "{words:?}: {outcome:?}");
        assert!(outcome.stderr.contains("the source does not answer"), "{words:?}: {outcome:?}");
    }
    let stat = run(&["stat", place.mnt()]);
    assert_eq!(stat.code, Some(0), "{stat:?}");
    assert!(stat.stdout.contains("has not answered for "), "{stat:?}");
    let metrics = run(&["metrics", place.mnt()]);
    assert!(metrics.stdout.contains("uvfs_up{") && metrics.code == Some(0), "{metrics:?}");
    let busy = run(&["unmount", place.mnt()]);
    assert_eq!(busy.code, Some(1), "{busy:?}");
    assert!(busy.stderr.contains("busy") && busy.stderr.contains("(sleep)"), "{busy:?}");
    let lazy = run(&["unmount", "--lazy", place.mnt()]);
    assert_eq!((lazy.code, &*lazy.stderr), (Some(0), ""), "{lazy:?}");

    drop(stopped);
    drop(user);
    assert_eq!(run(&["unmount", below.mnt()]).code, Some(0));
}
