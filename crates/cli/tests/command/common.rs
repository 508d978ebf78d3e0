//! Runs the built program, with a watchdog, and unmounts the mounts of a failed test.

use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time after which a command counts as hung.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Exit status; `None` when it was killed by a signal.
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

/// The program, not yet started.
pub(crate) fn uvfs() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uvfs"));
    // Independent of the settings of the test's machine.
    command.env("UVFS_CONFIG", "/dev/null");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program to its end.
pub(crate) fn run<A: AsRef<std::ffi::OsStr>>(arguments: &[A]) -> Outcome {
    finish(uvfs().args(arguments))
}

/// Runs `command` to its end; panics when that takes longer than [`LIMIT`].
pub(crate) fn finish(command: &mut Command) -> Outcome {
    let mut child = command.spawn().expect("the program starts");
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let status = wait(&mut child);
    Outcome {
        code: status.code(),
        stdout: stdout.join().expect("the reader of stdout"),
        stderr: stderr.join().expect("the reader of stderr"),
    }
}

/// Waits for `child`; kills it and panics after [`LIMIT`].
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait().expect("our own child") {
            return status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("a command hung for {} s", LIMIT.as_secs());
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Runs `command` with its output on a terminal of `width` columns; the lines that it printed there.
pub(crate) fn on_terminal(mut command: Command, width: u16) -> Vec<String> {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{Winsize, tcsetwinsize};
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("a terminal");
    let name = ptsname(&terminal, Vec::new()).expect("its name");
    let side = fs::File::options().read(true).write(true).open(name.to_str().expect("text"));
    let side = side.expect("the program's side");
    let size = Winsize { ws_row: 24, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&side, size).expect("a size");
    let mut child = command.stdout(side).spawn().expect("the program starts");
    // Closes this process's copy of the program's side: the last close ends the reading with an error.
    drop(command);
    let reader = thread::spawn(move || {
        let (mut terminal, mut text) = (fs::File::from(terminal), Vec::new());
        let _ = terminal.read_to_end(&mut text);
        String::from_utf8(text).expect("text")
    });
    let status = wait(&mut child);
    let text = reader.join().expect("the reader");
    assert!(status.success(), "{status}: {text}");
    text.lines().map(str::to_string).collect()
}

fn collect(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_string(&mut text);
        }
        text
    })
}

/// Waits until `holds`; panics with `what` after [`LIMIT`].
pub(crate) fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "it did not happen in time: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) use uvfs_skip::can_mount;

/// Whether the mount table has something at `mountpoint`; asks no daemon.
pub(crate) fn is_mounted(mountpoint: &Path) -> bool {
    mount_line(mountpoint).is_some()
}

/// The line of the mount table for `mountpoint`, whose path must need no escapes.
pub(crate) fn mount_line(mountpoint: &Path) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    let wanted = mountpoint.to_str().expect("a plain path");
    let mut lines = table.lines().rev();
    lines.find(|line| line.split(' ').nth(4) == Some(wanted)).map(str::to_string)
}

/// Directories of one test: a source and a mountpoint. Detaches a remaining mount.
pub(crate) struct Place {
    _folder: tempfile::TempDir,
    /// A host directory.
    pub(crate) source: PathBuf,
    /// An empty directory, beside it.
    pub(crate) mountpoint: PathBuf,
}

impl Place {
    /// Fresh directories.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let base = folder.path().canonicalize().expect("it exists");
        let (source, mountpoint) = (base.join("source"), base.join("mnt"));
        fs::create_dir(&source).expect("a fresh folder");
        fs::create_dir(&mountpoint).expect("a fresh folder");
        Self { _folder: folder, source, mountpoint }
    }

    /// The mountpoint as an argument.
    pub(crate) fn mnt(&self) -> &str {
        self.mountpoint.to_str().expect("a plain path")
    }

    /// The source as an argument.
    pub(crate) fn src(&self) -> &str {
        self.source.to_str().expect("a plain path")
    }

    /// Mounts in the background; the daemon's pid.
    pub(crate) fn mount_daemon(&self, source: &str, options: &[&str]) -> Pid {
        let outcome = run(&[&["mount", source, self.mnt(), "--daemon"], options].concat());
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        pid_in(&outcome.stdout)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        while is_mounted(&self.mountpoint) {
            if rustix::mount::unmount(&self.mountpoint, UnmountFlags::DETACH).is_err() {
                return;
            }
        }
    }
}

/// The pid in a line that says that a mount is ready.
pub(crate) fn pid_in(line: &str) -> Pid {
    let number = line.split("(pid ").nth(1).and_then(|rest| rest.split(')').next());
    let number = number.and_then(|number| number.parse().ok());
    number.and_then(Pid::from_raw).unwrap_or_else(|| panic!("no pid in {line:?}"))
}

/// Whether a process exists; a zombie of another parent counts as ended.
pub(crate) fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
}

/// A mount served in the foreground. Killed when dropped.
pub(crate) struct Foreground {
    child: Child,
    /// The line it printed when ready.
    pub(crate) ready: String,
    _stdout: BufReader<ChildStdout>,
}

impl Foreground {
    /// Starts it and waits until it is ready.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = uvfs().arg("mount").args(arguments).spawn().expect("the program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut ready = String::new();
        stdout.read_line(&mut ready).expect("text");
        if ready.is_empty() {
            let stderr = collect(child.stderr.take()).join().expect("the reader");
            panic!("not mounted: {stderr}");
        }
        Self { child, ready, _stdout: stdout }
    }

    /// Sends `signal`.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("our own child");
    }

    /// Waits for the end: exit status, and the text on standard error.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let stderr = collect(self.child.stderr.take());
        let status = wait(&mut self.child);
        (status.code(), stderr.join().expect("the reader of stderr"))
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
