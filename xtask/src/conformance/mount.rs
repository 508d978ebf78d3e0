//! One real mount that is taken down in every case.
//!
//! # Boundary
//! Starts `uvfs mount --daemon`, finds the FUSE connection, ends it. Makes no call on the mount
//! that could hang: the device number is read from /proc/self/mountinfo.
//!
//! # Concurrency
//! [`Watch`] holds the flag that signal handlers set; every waiting thread polls it.
//!
//! # Why
//! A hanging daemon leaves every process that touched the mount in an uninterruptible sleep. Only
//! an abort of the connection frees them, so a watchdog does that first.

use super::shown;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CONNECTIONS: &str = "/sys/fs/fuse/connections";
const MOUNT_LIMIT: Duration = Duration::from_secs(30);
const DAEMON_LIMIT: Duration = Duration::from_secs(5);
const UNMOUNT_LIMIT: Duration = Duration::from_secs(60);

/// Why this machine cannot mount, if it cannot.
pub(crate) fn impossible() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root: the suites act as several users".into());
    }
    match File::options().read(true).write(true).open("/dev/fuse") {
        Ok(_) => None,
        Err(error) => Some(format!("/dev/fuse: {error}")),
    }
}

/// Whether the user asked to stop.
pub(super) struct Watch(Arc<AtomicBool>);

impl Watch {
    /// Takes over SIGINT, SIGTERM and SIGHUP.
    pub(super) fn install() -> Result<Self, String> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .map_err(|error| format!("cannot watch for signal {signal}: {error}"))?;
        }
        Ok(Self(flag))
    }

    /// Whether one of them came.
    pub(super) fn interrupted(&self) -> bool {
        // ORDERING: Relaxed; a flag polled in a loop, nothing is reached through it.
        self.0.load(Ordering::Relaxed)
    }
}

/// A live mount. Dropping it takes it down by force; [`Mount::end`] does it as a user would.
#[derive(Debug)]
pub(super) struct Mount {
    binary: PathBuf,
    point: PathBuf,
    connection: Option<u32>,
    ended: bool,
}

impl Mount {
    /// Mounts `source` on the empty directory `point`.
    pub(super) fn new(
        binary: &Path,
        source: &str,
        point: &Path,
        options: &[String],
        log: &Path,
    ) -> Result<Self, String> {
        let point = fs::canonicalize(point).map_err(|error| shown(point, &error))?;
        let output = File::create(log).map_err(|error| shown(log, &error))?;
        let errors = output.try_clone().map_err(|error| shown(log, &error))?;
        let mut command = Command::new(binary);
        command.args(["mount", "--daemon", "--allow-other"]).args(options).arg(source).arg(&point);
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = command.spawn().map_err(|error| shown(binary, &error))?;
        let mut mount = Self { binary: binary.to_owned(), point, connection: None, ended: false };
        let status = wait(child, MOUNT_LIMIT);
        mount.connection = connection(&mount.point);
        match status {
            Some(status) if status.success() && mount.connection.is_some() => Ok(mount),
            Some(status) => Err(format!("uvfs mount {source} failed ({status}): {}", said(log))),
            None => Err(format!("uvfs mount {source} was not ready in time: {}", said(log))),
        }
    }

    /// Cuts the connection: every request on the mount, waiting or new, fails from here on.
    pub(super) fn abort(&self) {
        let Some(connection) = self.connection else { return };
        let control = Path::new(CONNECTIONS).join(connection.to_string()).join("abort");
        if fs::write(&control, "1").is_ok() {
            return;
        }
        // Without systemd the control file system may not be mounted yet.
        quietly(Command::new("mount").args(["-t", "fusectl", "fusectl", CONNECTIONS]));
        if fs::write(&control, "1").is_err() {
            // Already gone, or a container without the right to abort: only the name can be
            // removed.
            quietly(Command::new("umount").arg("-l").arg(&self.point));
        }
    }

    /// Unmounts like a user, and returns the error of that.
    pub(super) fn end(mut self) -> Result<(), String> {
        let alive =
            fs::symlink_metadata(&self.point).map_err(|error| format!("mount died: {error}"));
        let unmounted = self.unmount();
        self.ended = unmounted.is_ok();
        alive.and(unmounted)
    }

    fn unmount(&self) -> Result<(), String> {
        let mut command = Command::new(&self.binary);
        command.arg("unmount").arg(&self.point).stdin(Stdio::null());
        let child = command.spawn().map_err(|error| shown(&self.binary, &error))?;
        match wait(child, UNMOUNT_LIMIT) {
            None => Err("uvfs unmount hung".into()),
            Some(status) if !status.success() => Err(format!("uvfs unmount failed ({status})")),
            Some(_) if connection(&self.point).is_some() => {
                Err("uvfs unmount left the mount".into())
            }
            Some(_) => Ok(()),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.abort();
        if connection(&self.point).is_some() {
            quietly(Command::new("umount").arg("-l").arg(&self.point));
        }
        end_daemons(&self.point);
    }
}

/// Runs a rescue whose failure changes nothing.
fn quietly(command: &mut Command) {
    let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// Gives the daemon of `point` a moment to see the end of its mount, then kills it. Only this run
/// uses the mount point, so a process that names it in its command line is ours, too.
fn end_daemons(point: &Path) {
    let start = Instant::now();
    let mut left = daemons(point);
    while !left.is_empty() && start.elapsed() < DAEMON_LIMIT {
        thread::sleep(Duration::from_millis(50));
        left = daemons(point);
    }
    for process in left {
        eprintln!("note: the daemon of {} (process {process:?}) hung; killing it", point.display());
        let _ = kill_process(process, Signal::KILL);
    }
}

fn daemons(point: &Path) -> Vec<Pid> {
    let names_point = |process: &Pid| {
        let line =
            fs::read(format!("/proc/{}/cmdline", process.as_raw_nonzero())).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == point.as_os_str().as_bytes())
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(number).filter_map(Pid::from_raw).filter(names_point).collect()
}

/// Waits for `child` at most `limit`, then kills it (that one process).
fn wait(mut child: Child, limit: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    None
}

/// The FUSE connection mounted on `point`: the minor number of its device.
fn connection(point: &Path) -> Option<u32> {
    connection_in(&fs::read_to_string("/proc/self/mountinfo").ok()?, point.to_str()?)
}

fn connection_in(mounts: &str, point: &str) -> Option<u32> {
    // 36 35 0:57 / /mnt rw,nosuid - fuse.uvfs source rw: device third, mount point fifth, spaces octal.
    let point = point.replace('\\', "\\134").replace(' ', "\\040");
    let on_point = |line: &&str| line.split(' ').nth(4) == Some(&point);
    let is_fuse =
        |line: &str| line.split(" - ").nth(1).is_some_and(|rest| rest.starts_with("fuse"));
    let line = mounts.lines().rev().find(on_point).filter(|line| is_fuse(line))?;
    line.split(' ').nth(2)?.split_once(':')?.1.parse().ok()
}

/// The end of a command's output, in one line.
fn said(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_is_read_from_the_mount_table() {
        let table = "22 1 8:1 / / rw - ext4 /dev/vda rw\n\
                     60 22 0:51 / /a\\040b rw,nosuid shared:9 - fuse.uvfs uvfs rw,user_id=0\n\
                     61 22 0:52 / /c rw - tmpfs t rw\n";
        assert_eq!(connection_in(table, "/a b"), Some(51));
        assert_eq!(connection_in(table, "/c"), None, "not a FUSE mount");
        assert_eq!(connection_in(table, "/d"), None);
    }

    #[test]
    fn a_command_that_does_not_end_is_cut_off() {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let start = Instant::now();
        assert!(wait(child, Duration::from_millis(100)).is_none());
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
