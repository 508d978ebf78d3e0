//! `fusermount3`, the set-id program that mounts and unmounts for users without that right.
//!
//! # Boundary
//! Runs it and understands its answers. [`crate::mount`] decides when it is needed.

use crate::mount_error::in_a_line;
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::net::{SocketFlags, SocketType};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Name of the helper.
const HELPER: &str = "fusermount3";
/// Where it is installed.
const FOLDERS: [&str; 3] = ["/usr/bin", "/bin", "/usr/local/bin"];

/// Has it mount at `mountpoint` with `options`, and returns the device that it opened.
///
/// # Errors
/// Its output, or the error of running it.
pub(crate) fn mount(mountpoint: &Path, options: &str) -> io::Result<OwnedFd> {
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let (ours, its) = rustix::net::socketpair(family, SocketType::STREAM, flags, None)?;
    let mut command = command();
    command.arg("-o").arg(options).arg("--").arg(mountpoint);
    // It sends the device through the socket of this number: its standard input.
    command.env("_FUSE_COMMFD", "0").stdin(its).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn()?;
    // With it the only other end of the socket in this process goes.
    drop(command);
    let device = receive(&ours);
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    device.map_err(|error| match in_a_line(&said) {
        nothing if nothing.is_empty() => error,
        said if said.contains("'user_allow_other' is set") => {
            io::Error::new(io::ErrorKind::PermissionDenied, said)
        }
        said => io::Error::other(said),
    })
}

/// The descriptor that the other end sends with its one byte.
fn receive(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut slices = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::io::retry_on_intr(|| rustix::net::recvmsg(socket, &mut slices, &mut ancillary, flags))?;
    let mut messages = ancillary.drain();
    let rights = messages.find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    rights.ok_or_else(|| io::Error::other("fusermount3 sent no device"))
}

/// Has it unmount, which it does if the mount is this user's. `lazily`: also if the mount is in use.
///
/// # Errors
/// EBUSY; its output, or the error of running it.
pub(crate) fn unmount(mountpoint: &Path, lazily: bool) -> io::Result<()> {
    let mut command = command();
    command.arg("-u");
    if lazily {
        command.arg("-z");
    }
    let output = command.arg("--").arg(mountpoint).output().map_err(|error| {
        // Otherwise the cause would be read as one of the mount point's.
        match error.kind() {
            io::ErrorKind::NotFound => error,
            kind => io::Error::new(kind, format!("fusermount3: {error}")),
        }
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = in_a_line(&String::from_utf8_lossy(&output.stderr));
    match said.contains("busy") {
        true => Err(io::Error::from_raw_os_error(libc::EBUSY)),
        false => Err(io::Error::other(said)),
    }
}

/// The helper under its bare name, with which it begins its messages.
fn command() -> Command {
    under_its_name(&program())
}

fn under_its_name(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg0(HELPER);
    command
}

/// Path of the helper: in PATH, or where it is installed as a rule. A daemon of cron or of a unit may have a PATH
/// without it.
fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = FOLDERS.map(PathBuf::from);
    let mut candidates =
        std::env::split_paths(&path).chain(usual).map(|folder| folder.join(HELPER));
    let found = candidates.find(|program| program.is_absolute() && program.is_file());
    found.unwrap_or_else(|| HELPER.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: a user without the right to a mount point read that fusermount3 must be made set-user-id: what it said began
    /// with its path, and was taken for the system's refusal to run it. The first form of this test read the debug
    /// form of the command, which is another one where no helper is installed: it failed on a bare machine.
    #[test]
    fn the_helper_speaks_under_its_bare_name() {
        let mut command = under_its_name(Path::new("/bin/cat"));
        let output = command.arg("/proc/self/cmdline").output().unwrap();
        assert_eq!(output.stdout.split(|byte| *byte == 0).next(), Some(HELPER.as_bytes()));
    }
}
