//! Whether a process serves a mount, by the kernel's word.
//!
//! # Boundary
//! Used when no control socket answers: that alone proves nothing, since a program may serve a mount through the
//! library without one. `uvfs unmount` handles a dead mount.
//!
//! # Concurrency
//! A separate process asks a mount, for at most `ANSWER_TIME`; the mounts of a list all at once, for `LIST_TIME`.
//! The kernel releases no process, not even a killed one, whose request a daemon has read and does not answer; so that
//! process may have to be abandoned.
//!
//! # Why
//! A dead connection fails every request with ENOTCONN, and nothing else does. The request is for the totals:
//! attributes may come from the kernel's cache. Users without access to a mount get an answer without a request (all
//! totals are zero), so root asks as the mount's owner. Weakness: a slow daemon counts as one that does not answer.

use crate::mountinfo::MountEntry;
use rustix::io::Errno;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The hidden subcommand of the process that asks.
const COMMAND: &str = "ask-mount";
/// How long a mount may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How long all mounts of a list may take, if they are no more than [`ASKED_AT_ONCE`].
const LIST_TIME: Duration = Duration::from_secs(1);
/// Mounts of a list that are asked at once: each by a process.
const ASKED_AT_ONCE: usize = 64;
/// Time between two checks for the answer.
const LOOK: Duration = Duration::from_millis(5);

/// The state of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// A process answers for it.
    Served,
    /// The daemon has ended: every request fails.
    Dead,
    /// There was no answer in time.
    Silent,
    /// It cannot be found out from here.
    Unknown,
}

/// Exit statuses of the asking process.
mod status {
    pub(super) const SERVED: u8 = 0;
    pub(super) const DEAD: u8 = 3;
    pub(super) const UNKNOWN: u8 = 4;
}

/// Asks `mount`.
pub fn of(mount: &MountEntry) -> Life {
    start(mount).map_or(Life::Unknown, |child| answer(child, Instant::now() + ANSWER_TIME))
}

/// Asks all `mounts` at once, each for a short time: one that hangs does not delay the report of the others.
pub fn of_all(mounts: &[&MountEntry]) -> Vec<Life> {
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
    // The file that was started, even if another one has its path by now.
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

/// The result of `child` until `deadline`.
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
            // It ends when the daemon does; no thread waits for it.
            _ => {
                let _ = child.kill();
                return Life::Silent;
            }
        }
    }
}

/// In the process that asks.
pub fn ask(mountpoint: &Path) -> ExitCode {
    let status = match rustix::fs::statfs(mountpoint) {
        Err(Errno::NOTCONN) => status::DEAD,
        // The kernel's answer to users without access.
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
