//! `uvfs unmount`: ends a mount, whether its daemon lives or not.
//!
//! # Boundary
//! Asks a living daemon, which unmounts itself; detaches the mount of a dead one. Never looks at the
//! mountpoint. Returns only when the mount is gone and a living daemon has ended, so that everything
//! is written when the prompt comes back.
//!
//! # Why
//! Asking first, because only the daemon knows when its last write is done. A dead daemon's mount
//! loses nothing by being detached: every operation on it fails already. Weakness: while a mount is
//! detached but in use, its daemon lives on and nothing in the mount table shows it.

use crate::Failure;
use crate::control::client::{self, Connection, Unreachable};
use crate::control::place;
use crate::control::protocol::Request;
use crate::flags::UnmountArguments;
use crate::holders;
use crate::mountinfo::{self, MountEntry};
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use uvfs_fuse::Unmount;

/// Time for the kernel and the daemon to write everything.
const END_TIME: Duration = Duration::from_secs(60);

/// Runs the subcommand.
pub(crate) fn run(arguments: &UnmountArguments) -> Result<ExitCode, Failure> {
    let mount = mountinfo::find(&arguments.mountpoint)?;
    match client::connect(&mount) {
        Ok(daemon) => ask(&mount, daemon, arguments.lazy)?,
        Err(Unreachable::Nobody) => clear(&mount)?,
        Err(Unreachable::NotPermitted) => return Err(not_permitted(&mount)),
        Err(Unreachable::Failed(error)) => {
            return Err(refused(&mount, &crate::cause(&error), "try `fusermount3 -u`"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The refusal for a mount of another user.
pub(crate) fn not_permitted(mount: &MountEntry) -> Failure {
    let owner = mount.owner_uid;
    refused(mount, "not permitted", &format!("run as root or as the user who mounted it ({owner})"))
}

/// The line for a mount in use.
pub(crate) fn busy(mountpoint: &Path) -> String {
    let holders = holders::describe(mountpoint, &mountinfo::read().unwrap_or_default());
    format!("{}: busy, {holders}", mountpoint.display())
}

fn refused(mount: &MountEntry, cause: &str, remedy: &str) -> Failure {
    Failure::refused(format!("{}: {cause}; {remedy}", mount.mountpoint.display()))
}

/// Has the living daemon end its mount.
fn ask(mount: &MountEntry, mut daemon: Connection, lazy: bool) -> Result<(), Failure> {
    let reply = daemon.ask(Request::Unmount { lazy }, END_TIME)?;
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
    let limit = if lazy { Duration::from_millis(200) } else { END_TIME };
    if !daemon.wait_for_end(limit) && !lazy {
        let cause = format!("unmounted, but its daemon still works after {} s", END_TIME.as_secs());
        return Err(refused(mount, &cause, "wait for it before using the source elsewhere"));
    }
    Ok(())
}

/// Detaches the mount of a dead daemon, and removes its socket.
fn clear(mount: &MountEntry) -> Result<(), Failure> {
    uvfs_fuse::unmount(&mount.mountpoint, Unmount::Lazy).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => refused(
            mount,
            "only root unmounts without fusermount3",
            "install the package fuse3, or run as root",
        ),
        _ => refused(mount, &crate::cause(&error), "run as root or as the user who mounted it"),
    })?;
    wait_until_gone(mount)?;
    // Whoever has got its device number meanwhile has replaced the socket, or will.
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
        let same = |other: &MountEntry| other.id == mount.id && other.device == mount.device;
        if !mountinfo::read()?.iter().any(same) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(refused(mount, "still mounted", "see the daemon's log"));
        }
        thread::sleep(Duration::from_millis(5));
    }
}
