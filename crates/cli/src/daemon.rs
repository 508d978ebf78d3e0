//! `--daemon`: a separate process serves the mount, and the command returns when it is ready.
//!
//! # Boundary
//! Starts this program again with a hidden flag, and receives one line by a pipe: the child's standard output.
//! [`crate::serve`] is the child's work in between.
//!
//! # Concurrency
//! The parent reads the pipe to its end. The child closes it by pointing its standard streams at `/dev/null` when it is
//! ready, and the kernel closes it when the child dies: the parent never hangs. Until it is ready the kernel ends the
//! child when the parent ends, so Ctrl-C ends both.
//!
//! # Why
//! Not `fork`: a fork of a process with threads leaves locks held for ever, and a new start is safe code. Until it is
//! ready the child keeps the parent's standard error, so that its refusals, and a panic's words, reach the user
//! unchanged; then [`crate::logger`] has another place for them. Weakness: a second start costs some milliseconds.

use crate::Failure;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

/// The hidden flag of the started process; declared in [`crate::flags`].
pub(crate) const FLAG: &str = "--in-background";
/// Reads as empty and keeps nothing.
const NULL_DEVICE: &str = "/dev/null";

/// Starts the daemon with this process's arguments and waits until it is ready or has failed.
///
/// # Errors
/// If the daemon cannot be started or dies without a word. A daemon that refuses has written why;
/// its exit status is passed on.
pub(crate) fn start() -> Result<ExitCode, Failure> {
    let failed = |what: &str, error: io::Error| {
        Failure::refused(format!("{what}: {}; serve in the foreground", crate::cause(&error)))
    };
    let null = null_device()?;
    let program = std::env::current_exe().map_err(|error| failed("this program", error))?;
    let mut child = Command::new(program)
        // The first argument is the subcommand, which takes the flag.
        .args(std::env::args_os().skip(1).take(1))
        .arg(FLAG)
        .args(std::env::args_os().skip(2))
        .stdin(null)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed("the daemon", error))?;
    match read_line(&mut child) {
        Some(line) => {
            crate::print_line(&line);
            Ok(ExitCode::SUCCESS)
        }
        None => child.wait().map_err(|error| failed("the daemon", error)).and_then(unready),
    }
}

/// The target of a daemon's streams. A failed start would only report "No such file or directory", without the name.
fn null_device() -> Result<File, Failure> {
    let device = OpenOptions::new().read(true).write(true).open(NULL_DEVICE);
    device.map_err(|error| {
        Failure::refused(format!(
            "{NULL_DEVICE}: {}; a daemon needs it: `mknod -m 666 {NULL_DEVICE} c 1 3` makes it, or \
             serve in the foreground",
            crate::cause(&error)
        ))
    })
}

/// The daemon's output before it closed the pipe: its line, or nothing.
fn read_line(child: &mut Child) -> Option<String> {
    let mut text = String::new();
    child.stdout.take()?.read_to_string(&mut text).ok()?;
    text.strip_suffix('\n').map(str::to_string)
}

/// The outcome of a daemon that ended before it was ready.
fn unready(status: ExitStatus) -> Result<ExitCode, Failure> {
    match status.code() {
        Some(code) if code != 0 => Ok(ExitCode::from(code.clamp(1, 255) as u8)),
        Some(_) => {
            Err(Failure::refused("the daemon ended before the mount was ready; mount again"))
        }
        None => {
            let signal = status.signal().unwrap_or(0);
            Err(Failure::refused(format!(
                "the daemon died by signal {signal} before the mount was ready; serve in the \
                 foreground to see why"
            )))
        }
    }
}

/// In the daemon: ends with the command that started it, until [`report_ready`].
///
/// # Errors
/// If the kernel refuses, or the command has ended already.
pub(crate) fn end_with_parent() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    // A parent that ended before this sends no signal, and has closed its end of the pipe.
    let stdout = rustix::stdio::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::OUT)];
    rustix::event::poll(&mut polled, Some(&Timespec::default()))?;
    match polled[0].revents().contains(PollFlags::ERR) {
        true => Err(io::ErrorKind::BrokenPipe.into()),
        false => Ok(()),
    }
}

/// In the daemon: leaves the terminal's session, so that its Ctrl-C and its end do not reach us.
///
/// # Errors
/// Any error of the kernel but one: a process that leads a session already is where it should be. It does if it has
/// done this before and has started itself again since.
pub(crate) fn leave_session() -> io::Result<()> {
    match rustix::process::setsid() {
        Ok(_) | Err(rustix::io::Errno::PERM) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// In the daemon: reports to the parent that the mount is ready, and releases the parent's streams and working
/// directory.
///
/// # Errors
/// If the parent has ended: no user knows of this mount then.
pub(crate) fn report_ready(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    std::env::set_current_dir("/")?;
    // The parent opened the null device for our standard input, before anything was mounted.
    let null = io::stdin();
    rustix::process::set_parent_process_death_signal(None)?;
    rustix::stdio::dup2_stderr(&null)?;
    // Last: this closes the pipe, and the parent takes its end as the sign that all is done.
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(script: &str) -> Child {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn a_ready_daemon_is_not_waited_for() {
        let mut ready = child("echo mounted; exec >/dev/null; sleep 30");
        assert_eq!(read_line(&mut ready).as_deref(), Some("mounted"));
        ready.kill().unwrap();
        ready.wait().unwrap();
    }

    #[test]
    fn a_daemon_that_fails_passes_its_status_on() {
        let mut failed = child("exit 2");
        assert_eq!(read_line(&mut failed), None);
        let code = unready(failed.wait().unwrap()).unwrap();
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(2)));
    }

    #[test]
    fn a_daemon_that_dies_in_the_middle_of_its_line_is_reported() {
        let mut killed = child("printf half; kill -9 $$");
        assert_eq!(read_line(&mut killed), None);
        let refusal = unready(killed.wait().unwrap()).unwrap_err().to_string();
        assert!(refusal.contains("died by signal 9"), "{refusal}");
        let mut silent = child("exit 0");
        assert_eq!(read_line(&mut silent), None);
        assert!(unready(silent.wait().unwrap()).is_err());
    }
}
