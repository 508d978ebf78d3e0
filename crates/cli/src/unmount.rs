//! `uvfs unmount`: ends a mount, whether its daemon lives or not.
//!
//! # Boundary
//! Asks a living daemon, which unmounts itself. Detaches the mount of a dead one, also if it dies meanwhile. Asks the kernel to unmount the mount of
//! a program without a control socket, unless it is in use. Returns when the mount is gone and a living daemon has
//! ended, so everything is written by then; otherwise lists the unwritten files and fails.
//!
//! # Why
//! Only the daemon knows whether its last write has succeeded, so it is asked first. A dead daemon's mount loses nothing
//! by being detached: every operation on it fails already. Weakness: while a mount is detached but in use, its daemon
//! lives on and nothing in the mount table shows it.

use crate::Failure;
use crate::flags::UnmountArguments;
use crate::holders;
use crate::liveness::{self, Life};
use crate::mountinfo::{self, MountEntry};
use crate::shown::{shown, shown_name};
use crate::units::show_bytes;
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::OnceCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use uvfs_client::{self as client, Connection, End, Unreachable};
use uvfs_control::ended::{Lost, Verdict, Waits};
use uvfs_control::place;
use uvfs_control::protocol::Request;
use uvfs_control::serve;
use uvfs_fuse::Unmount;
use uvfs_terminal::interrupt::Interrupt;

/// Time for the kernel to write everything; and for the daemon, beyond the last time that it got further.
const END_TIME: Duration = Duration::from_secs(60);
/// Time between two lines that report the wait. The first comes with the daemon's first answer.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// Runs the subcommand.
pub(crate) fn run(arguments: &UnmountArguments) -> Result<ExitCode, Failure> {
    let mount = mountinfo::find(&arguments.mountpoint)?;
    match client::connect(&mount) {
        Ok(daemon) => return ask(&mount, daemon, arguments.lazy),
        Err(Unreachable::NotServed) => end_unasked(&mount, arguments.lazy)?,
        Err(Unreachable::NotPermitted) => return Err(client::not_permitted(&mount)),
        Err(Unreachable::Failed(error)) => {
            return Err(refused(&mount, &crate::cause(&error), "try `fusermount3 -u`"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Progress of the last writes: a bar on a terminal, else a line now and then.
struct Progress {
    bar: ProgressBar,
    place: String,
    most: u64,
    left: u64,
    reported: Option<Instant>,
}

impl Progress {
    fn new(mountpoint: &Path) -> Self {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{msg} [{wide_bar}] {percent} % of {total_bytes}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        let place = shown_name(mountpoint);
        Self { bar, place, most: 0, left: 0, reported: None }
    }

    fn show(&mut self, dirty_bytes: u64) {
        self.most = self.most.max(dirty_bytes);
        self.left = dirty_bytes;
        if self.most == 0 {
            return;
        }
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("{}: unmounted, writing", self.place));
            self.bar.set_length(self.most);
            self.bar.set_position(self.most - dirty_bytes);
            self.bar.tick();
        } else if dirty_bytes > 0
            && self.reported.is_none_or(|reported| reported.elapsed() >= REPORT_EVERY)
        {
            self.reported = Some(Instant::now());
            let (place, left) = (&self.place, show_bytes(dirty_bytes));
            eprintln!("uvfs: {place}: unmounted; waiting for its daemon to write {left}");
        }
    }

    /// Takes the bar away; how much was brought meanwhile.
    fn end(self) -> u64 {
        self.bar.finish_and_clear();
        self.most - self.left
    }
}

/// The line for a mount in use.
pub(crate) fn busy(mountpoint: &Path) -> String {
    let holders = holders::describe(mountpoint, &mountinfo::read().unwrap_or_default());
    format!("{}: busy, {holders}", mountpoint.display())
}

fn refused(mount: &MountEntry, cause: &str, remedy: &str) -> Failure {
    Failure::refused(format!("{}: {cause}; {remedy}", mount.mountpoint.display()))
}

/// Has the living daemon end its mount; reports lost writes.
fn ask(mount: &MountEntry, mut daemon: Connection, lazy: bool) -> Result<ExitCode, Failure> {
    let reply = match daemon.ask(Request::Unmount { lazy }, END_TIME) {
        Err(_) if daemon.is_gone() => return end_died(mount, lazy),
        reply => reply?,
    };
    if reply.busy {
        return Err(Failure::refused(format!(
            "{}; end them, or detach with --lazy",
            busy(&mount.mountpoint)
        )));
    }
    if !reply.ok {
        let cause = reply.error.unwrap_or_else(|| "the daemon gave no reason".into());
        return Err(refused(mount, &cause, "see the daemon's log"));
    }
    wait_until_gone(mount)?;
    // A lazily detached mount may be in use for hours; it is out of sight, which was asked for.
    let patience = if lazy { Duration::from_millis(200) } else { END_TIME };
    let interrupt = Interrupt::by_signals().map_err(Failure::refused)?;
    let mut progress = Progress::new(&mount.mountpoint);
    // The daemon runs until the last of its mounts has gone. Look for that mount only while the daemon says that it still
    // works: the kernel may reuse the device number of a mount that has gone.
    let elsewhere = OnceCell::new();
    let mut show = |waits: &Waits| {
        progress.show(waits.dirty_bytes);
        if !lazy
            && elsewhere.get().is_none()
            && let Some(place) = holders::elsewhere(mount)
        {
            // A process that has a copy of the mount table may end in a moment, and the mount with it.
            let name = shown_name(&mount.mountpoint);
            eprintln!("uvfs: {name}: unmounted, but {place}; waiting for that to end");
            let _ = elsewhere.set(place);
        }
    };
    let is_enough = || interrupt.is_set();
    let ended = daemon.see_end(patience, &mut show, &is_enough);
    let brought = progress.end();
    match ended {
        End::StillWorking(_) if elsewhere.get().is_some() && !interrupt.is_set() => Err(refused(
            mount,
            &format!(
                "unmounted, but {}, so its daemon continues",
                elsewhere.get().map_or("", String::as_str)
            ),
            "unmount it there too, or end that process",
        )),
        End::StillWorking(waits) if interrupt.is_set() => Err(Failure::refused(format!(
            "{}: interrupted; unmounted, {} written to the source during the wait, {} left: its daemon writes them; wait for its \
             end before you use the source elsewhere",
            mount.mountpoint.display(),
            show_bytes(brought),
            show_bytes(waits.dirty_bytes),
        ))),
        End::StillWorking(_) if lazy => Ok(ExitCode::SUCCESS),
        End::StillWorking(waits) => Err(still_working(mount, &waits)),
        End::Silent => Err(silent(mount)),
        End::Verdict(verdict) if !verdict.served_on && !daemon.wait_for_process(END_TIME) => {
            Err(still_working(mount, &Waits::default()))
        }
        End::Verdict(verdict) if verdict.files == 0 => Ok(ExitCode::SUCCESS),
        End::Verdict(verdict) => {
            for line in lost(&mount.mountpoint, &verdict) {
                eprintln!("uvfs: {line}");
            }
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Ends a mount whose daemon died after it got the request and before it answered.
fn end_died(mount: &MountEntry, lazy: bool) -> Result<ExitCode, Failure> {
    if mountinfo::read()?.iter().any(|other| other.is_same(mount)) {
        return end_unasked(mount, lazy).map(|()| ExitCode::SUCCESS);
    }
    // It may have died in the middle of its last writes.
    Err(silent(mount))
}

fn silent(mount: &MountEntry) -> Failure {
    refused(
        mount,
        "unmounted, but its daemon ended without saying that everything was written",
        "look at the source, and at the daemon's log",
    )
}

fn still_working(mount: &MountEntry, waits: &Waits) -> Failure {
    let cause = match waits.dirty_bytes {
        0 => format!("unmounted, but its daemon still works after {} s", END_TIME.as_secs()),
        bytes => format!(
            "unmounted, but its daemon has not brought the last {} to the source, and got no further for {} s",
            show_bytes(bytes),
            END_TIME.as_secs()
        ),
    };
    refused(mount, &cause, "wait for it before using the source elsewhere, and see its log")
}

/// The losses at the end of the mount at `mountpoint`: a line for each file, and one for all.
pub(crate) fn lost(mountpoint: &Path, verdict: &Verdict) -> Vec<String> {
    let mut lines: Vec<_> = verdict
        .lost
        .iter()
        .map(|file| {
            let cause = if file.cause.is_empty() { "not written" } else { &file.cause };
            let (place, bytes) = (place_of(mountpoint, file), show_bytes(file.bytes));
            match verdict.served_on {
                _ if file.bytes == 0 => format!("{place}: may not be stable: {}", shown(cause)),
                true => format!("{place}: {bytes} not written: {}", shown(cause)),
                false => format!("{place}: lost {bytes}: {}", shown(cause)),
            }
        })
        .collect();
    let root = verdict.lost.iter().find(|file| file.is_root());
    // The root without bytes is no file: some change may be lost that has no file to be named by.
    let files = verdict.files - u64::from(root.is_some_and(|root| root.bytes == 0));
    let is_all = root.is_some_and(|root| root.bytes > 0);
    let bytes = show_bytes(verdict.bytes);
    let of = match files {
        _ if is_all => " of all files".into(),
        0 => String::new(),
        1 => " of 1 file".into(),
        _ => format!(" of {files} files"),
    };
    let (place, source) = (shown_name(mountpoint), &verdict.source);
    if verdict.served_on {
        let source = shown(source);
        lines.push(format!(
            "{place}: unmounted, but {bytes}{of} have not reached {source}; the program that served it has them still"
        ));
        return lines;
    }
    let source = shown(source);
    lines.push(match verdict.bytes {
        0 => format!("{place}: ended, but the last changes{of} may not be in {source}"),
        _ if is_all => format!("{place}: ended, and {bytes}{of} are lost with {source}"),
        _ => format!("{place}: ended, but {bytes}{of} did not reach {source} and are lost"),
    });
    lines
}

/// Where a file of a verdict was.
pub(crate) fn place_of(mountpoint: &Path, file: &Lost) -> String {
    match &file.path {
        Some(path) => shown_name(mountpoint.join(OsStr::from_bytes(&path.0))),
        None => format!("{}: inode {}", shown_name(mountpoint), file.inode),
    }
}

/// Ends a mount without a control socket that answers: detaches a dead one, unmounts others only if they are idle.
fn end_unasked(mount: &MountEntry, lazy: bool) -> Result<(), Failure> {
    let how = match liveness::of(mount) {
        Life::Dead => Unmount::Lazy,
        _ if lazy => Unmount::Lazy,
        Life::Silent => {
            return Err(refused(
                mount,
                "the process that serves it does not answer",
                "end that program, or detach with --lazy",
            ));
        }
        Life::Served | Life::Unknown => Unmount::Idle,
    };
    take_away(mount, how)?;
    wait_until_gone(mount)?;
    remove_socket(mount)
}

fn take_away(mount: &MountEntry, how: Unmount) -> Result<(), Failure> {
    let unmounted = serve::end_when_idle(|| uvfs_fuse::unmount(&mount.mountpoint, how));
    unmounted.map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => Failure::refused(format!(
            "{}; end them, or detach with --lazy",
            busy(&mount.mountpoint)
        )),
        io::ErrorKind::NotFound => refused(
            mount,
            "only root unmounts without fusermount3",
            "install the package fuse3, or run as root",
        ),
        _ => refused(mount, &crate::cause(&error), "run as root or as the user who mounted it"),
    })
}

/// Removes the control socket of a dead daemon.
fn remove_socket(mount: &MountEntry) -> Result<(), Failure> {
    // A newer mount with its device number has replaced the socket, or will.
    if !mountinfo::read()?.iter().any(|other| other.device == mount.device) {
        for socket in place::candidates(mount) {
            let _ = std::fs::remove_file(socket);
        }
    }
    Ok(())
}

/// Waits until the table no longer has `mount`: not merely another mount in its place.
fn wait_until_gone(mount: &MountEntry) -> Result<(), Failure> {
    let deadline = Instant::now() + END_TIME;
    loop {
        if !mountinfo::read()?.iter().any(|other| other.is_same(mount)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(refused(mount, "still mounted", "see the daemon's log"));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvfs_control::cleaned::Raw;

    fn verdict(files: &[(&str, u64)]) -> Verdict {
        let lost = files.iter().map(|(path, bytes)| Lost {
            path: Some(Raw(path.as_bytes().to_vec())),
            bytes: *bytes,
            ..Lost::default()
        });
        let bytes = files.iter().map(|(_, bytes)| bytes).sum();
        let (files, source) = (files.len() as u64, "image:i".into());
        Verdict { files, bytes, source, served_on: false, lost: lost.collect() }
    }

    /// A device refused one file, and then the last commit of an image that was whole. The last line said that 58.6 KiB
    /// of all files were lost with the image.
    #[test]
    fn all_files_are_lost_only_if_the_source_is() {
        let last = |files: &[(&str, u64)]| lost(Path::new("/m"), &verdict(files)).pop().unwrap();
        let one = "/m: ended, but 58.6 KiB of 1 file did not reach image:i and are lost";
        assert_eq!(last(&[("", 0), ("keep", 60_000)]), one);
        assert_eq!(last(&[("keep", 60_000)]), one);
        let all = "/m: ended, and 58.6 KiB of all files are lost with image:i";
        assert_eq!(last(&[("", 60_000)]), all);
        let some = "/m: ended, but the last changes of 2 files may not be in image:i";
        assert_eq!(last(&[("", 0), ("a", 0), ("b", 0)]), some);
        let any = "/m: ended, but the last changes may not be in image:i";
        assert_eq!(last(&[("", 0)]), any);
    }
}
