//! Whether anybody serves a mount, by the kernel's word.
//!
//! # Boundary
//! Asked when no control socket answers: that alone says nothing, since a program may serve a mount through the
//! library without one. What is done about a dead mount is [`crate::unmount`]'s.
//!
//! # Concurrency
//! A mount is asked by a process of its own, for at most [`ANSWER_TIME`]; the mounts of a list all at once, for
//! [`LIST_TIME`]. The kernel lets nobody go, not even a killed
//! process, whose request a daemon has read and does not answer; so that process may have to be left behind.
//!
//! # Why
//! A connection that is gone fails every request with ENOTCONN, which nothing else does. The totals are asked for: attributes
//! may come from the kernel's cache. Users who may not enter a mount are answered without asking (all totals are zero),
//! so root asks as the mount's owner. Weakness: a daemon that is merely slow is taken for one that does not answer.

use crate::mountinfo::MountEntry;
use rustix::io::Errno;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The hidden subcommand of the process that asks; declared in [`crate::flags`].
const COMMAND: &str = "ask-mount";
/// How long a mount may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How long all mounts of a list may take, if they are no more than [`ASKED_AT_ONCE`].
const LIST_TIME: Duration = Duration::from_secs(1);
/// Mounts of a list that are asked at once: each by a process.
const ASKED_AT_ONCE: usize = 64;
/// Time between two looks at whether it has.
const LOOK: Duration = Duration::from_millis(5);

/// What a mount is found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// Somebody answers for it.
    Served,
    /// Its daemon is gone: every request fails.
    Dead,
    /// Nobody has answered in time.
    Silent,
    /// It cannot be found out from here.
    Unknown,
}

/// What is told by the exit status of the process that asks.
mod status {
    pub(super) const SERVED: u8 = 0;
    pub(super) const DEAD: u8 = 3;
    pub(super) const UNKNOWN: u8 = 4;
}

/// Asks `mount`.
pub(crate) fn of(mount: &MountEntry) -> Life {
    start(mount).map_or(Life::Unknown, |child| answer(child, Instant::now() + ANSWER_TIME))
}

/// Asks all `mounts` at once, and none of them for long: one that hangs does not hold up what is said of the others.
pub(crate) fn of_all(mounts: &[&MountEntry]) -> Vec<Life> {
    let mut lives = Vec::with_capacity(mounts.len());
    for mounts in mounts.chunks(ASKED_AT_ONCE) {
        let children: Vec<_> = mounts.iter().map(|mount| start(mount)).collect();
        let deadline = Instant::now() + LIST_TIME;
        let life =
            |child: Option<Child>| child.map_or(Life::Unknown, |child| answer(child, deadline));
        lives.extend(children.into_iter().map(life));
    }
    lives
}

/// Starts the process that asks `mount`.
fn start(mount: &MountEntry) -> Option<Child> {
    // The file as it was started, also where another one has its path by now.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("uvfs").arg(COMMAND).arg("--").arg(&mount.mountpoint).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if rustix::process::geteuid().is_root() && mount.owner_uid != 0 {
        command.uid(mount.owner_uid).gid(mount.owner_gid);
    }
    match command.spawn() {
        Ok(child) => Some(child),
        Err(error) => {
            log::debug!("{}: cannot be asked: {error}", mount.mountpoint.display());
            None
        }
    }
}

/// What `child` finds out until `deadline`.
fn answer(mut child: Child, deadline: Instant) -> Life {
    loop {
        match child.try_wait() {
            Ok(Some(ended)) => {
                return match ended.code().and_then(|code| u8::try_from(code).ok()) {
                    Some(status::SERVED) => Life::Served,
                    Some(status::DEAD) => Life::Dead,
                    _ => Life::Unknown,
                };
            }
            Ok(None) if Instant::now() < deadline => thread::sleep(LOOK),
            // It ends when the daemon does; nobody waits for it.
            _ => {
                let _ = child.kill();
                return Life::Silent;
            }
        }
    }
}

/// In the process that asks.
pub(crate) fn ask(mountpoint: &Path) -> ExitCode {
    let status = match rustix::fs::statfs(mountpoint) {
        Err(Errno::NOTCONN) => status::DEAD,
        // What the kernel says to those who may not enter.
        Ok(totals) if totals.f_bsize == 0 => status::UNKNOWN,
        Err(Errno::ACCESS | Errno::NOENT) => status::UNKNOWN,
        // Any other answer is one, an error too.
        _ => status::SERVED,
    };
    ExitCode::from(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(script: &str) -> Child {
        Command::new("/bin/sh").args(["-c", script]).spawn().expect("a shell")
    }

    #[test]
    fn the_exit_status_says_what_was_found() {
        for (script, life) in [
            ("exit 0", Life::Served),
            ("exit 3", Life::Dead),
            ("exit 4", Life::Unknown),
            ("exit 1", Life::Unknown),
            ("kill -9 $$", Life::Unknown),
        ] {
            assert_eq!(
                answer(child(script), Instant::now() + Duration::from_secs(60)),
                life,
                "{script}"
            );
        }
        assert_eq!(
            answer(child("exec sleep 60"), Instant::now() + Duration::from_millis(20)),
            Life::Silent
        );
    }

    #[test]
    fn a_file_system_that_is_no_mount_of_ours_answers_too() {
        assert_eq!(format!("{:?}", ask(Path::new("/"))), format!("{:?}", ExitCode::SUCCESS));
        let none = format!("{:?}", ask(Path::new("/no/such/place")));
        assert_eq!(none, format!("{:?}", ExitCode::from(status::UNKNOWN)));
    }
}
