//! Floor: crash. The daemon of a mounted directory is killed while two threads write through it.
//!
//! The promise: fsynced data is in the source, and a rename as soon as its directories were synced.
//! The mount returns ENOTCONN instead of hanging; `uvfs unmount` clears it, and the next daemon
//! serves the state that the last one left. Tested with the kernel passing data through and
//! without.
//!
//! Drives the built `uvfs`: `UVFS_BINARY` names it, else it is beside this test's own target
//! directory, else it is built. Needs root and `/dev/fuse`; is skipped where they lack.
//!
//! Weakness: the host does not crash, so the store's own promises to a disk are not tested.

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};
use uvfs_tests::{Numbers, Watchdog, seed};

const WRITERS: usize = 2;
/// Facts that each writer establishes at least before the daemon is killed.
const FACTS_MIN: usize = 300;
const RECORD_BYTES: usize = 512;
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn what_was_fsynced_survives_the_daemon() {
    survives(&[]);
}

#[test]
fn what_was_fsynced_survives_the_daemon_without_passthrough() {
    survives(&["--no-passthrough"]);
}

fn survives(options: &[&str]) {
    let Some(place) = Place::new() else { return };
    let pid = place.mount(options);
    let mut numbers = Numbers(seed());
    let (tell, facts) = mpsc::channel();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer_number| {
            let folder = place.mountpoint.join(folder_name(writer_number));
            fs::create_dir(&folder).unwrap();
            let mut writer =
                Writer::new(writer_number, folder, numbers.below(1 << 40), tell.clone());
            thread::spawn(move || (writer.run(), writer.files))
        })
        .collect();
    drop(tell);
    let mut counts = [0; WRITERS];
    while counts.iter().any(|&count| count < FACTS_MIN) {
        counts[facts.recv_timeout(LIMIT).expect("the writers work")] += 1;
    }
    thread::sleep(Duration::from_micros(numbers.below(50_000)));
    kill(pid);
    let written: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let files: Vec<_> = written
        .into_iter()
        .map(|(end, files)| {
            assert!(is_of_a_dead_daemon(&end), "a writer ended with {end}");
            files
        })
        .collect();
    report(options, &files);

    place.assert_dead();
    place.unmount();
    check(&place.source, &files);

    place.mount(options);
    check(&place.mountpoint, &files);
    fs::write(place.mountpoint.join("after"), "the next daemon writes").unwrap();
    place.unmount();
    assert_eq!(fs::read(place.source.join("after")).unwrap(), b"the next daemon writes");
}

fn report(options: &[&str], files: &[Files]) {
    let all = || files.iter().flat_map(BTreeMap::values);
    let records: u64 = all().map(|state| state.synced_records).sum();
    let renamed: usize = all().map(|state| state.renames).sum();
    let count = all().count();
    println!("{options:?}: {count} files, {records} records and {renamed} renames fsynced");
}

/// The known states of one writer's files, by their numbers.
type Files = BTreeMap<u64, State>;

/// One file.
#[derive(Debug, Default)]
struct State {
    /// Records that were there when an fsync returned.
    synced_records: u64,
    /// Records passed to write(2); the last of these calls may have failed.
    tried_records: u64,
    /// Path below the writer's folder, when an fsync of the directories returned.
    synced_path: Option<String>,
    /// The path it is about to get.
    tried_path: String,
    /// Renames that were fsynced.
    renames: usize,
}

/// Creates, appends, renames and fsyncs its own files until the mount is dead.
struct Writer {
    writer_number: usize,
    folder: PathBuf,
    numbers: Numbers,
    files: Files,
    next: u64,
    tell: Sender<usize>,
}

impl Writer {
    fn new(writer_number: usize, folder: PathBuf, seed: u64, tell: Sender<usize>) -> Self {
        Self { writer_number, folder, numbers: Numbers(seed), files: Files::new(), next: 0, tell }
    }

    /// Returns the error that ended it.
    fn run(&mut self) -> io::Error {
        if let Err(error) = fs::create_dir(self.folder.join("other")) {
            return error;
        }
        loop {
            let step = match self.numbers.below(10) {
                0..=2 => self.create(),
                3..=6 => self.append(),
                _ => self.rename(),
            };
            if let Err(error) = step {
                return error;
            }
        }
    }

    fn create(&mut self) -> io::Result<()> {
        let id = self.next;
        self.next += 1;
        let path = format!("{id}.0");
        self.files.insert(id, State { tried_path: path.clone(), ..State::default() });
        let file = File::create_new(self.folder.join(&path))?;
        self.write(id, &file)?;
        sync_directory(&self.folder)?;
        self.state(id).synced_path = Some(path);
        self.fact();
        Ok(())
    }

    fn append(&mut self) -> io::Result<()> {
        let Some(id) = self.any_file() else { return Ok(()) };
        let path = self.state(id).tried_path.clone();
        let path = self.folder.join(path);
        let file = OpenOptions::new().append(true).open(path)?;
        self.write(id, &file)
    }

    /// Within the folder, or into the other one and back.
    fn rename(&mut self) -> io::Result<()> {
        let Some(id) = self.any_file() else { return Ok(()) };
        let across = self.numbers.below(2) == 0;
        let generation = self.numbers.below(1 << 30) + 1;
        let state = self.state(id);
        let from = state.tried_path.clone();
        let folder = if from.starts_with("other/") != across { "other/" } else { "" };
        let to = format!("{folder}{id}.{generation}");
        state.tried_path.clone_from(&to);
        let (from, to_path) = (self.folder.join(from), self.folder.join(&to));
        // A rename that fails has not happened, or has without an answer: either path is right.
        fs::rename(&from, &to_path)?;
        for path in [&from, &to_path] {
            sync_directory(path.parent().expect("in the writer's folder"))?;
        }
        let state = self.state(id);
        state.synced_path = Some(to);
        state.renames += 1;
        self.fact();
        Ok(())
    }

    /// Appends a few records, one write(2) each, and has them made stable.
    fn write(&mut self, id: u64, mut file: &File) -> io::Result<()> {
        for _ in 0..=self.numbers.below(4) {
            let writer_number = self.writer_number;
            let state = self.state(id);
            let at = state.tried_records;
            state.tried_records += 1;
            file.write_all(&record(writer_number, id, at))?;
        }
        file.sync_all()?;
        let state = self.state(id);
        state.synced_records = state.tried_records;
        self.fact();
        Ok(())
    }

    fn any_file(&mut self) -> Option<u64> {
        (self.next > 0).then(|| self.numbers.below(self.next))
    }

    fn state(&mut self, id: u64) -> &mut State {
        self.files.get_mut(&id).expect("every number below `next` has a state")
    }

    fn fact(&self) {
        // The main thread stops listening once it has heard enough.
        let _ = self.tell.send(self.writer_number);
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// A record contains its writer and its place, and its other bytes follow from these.
fn record(writer_number: usize, id: u64, at: u64) -> Vec<u8> {
    let mut bytes = format!("writer {writer_number} file {id} record {at}\n").into_bytes();
    let mut filling = Numbers((writer_number as u64) << 56 ^ id << 24 ^ at);
    bytes.resize_with(RECORD_BYTES, || b'a' + filling.below(26) as u8);
    bytes
}

fn folder_name(writer_number: usize) -> String {
    format!("writer-{writer_number}")
}

/// Compares `top` with the fsynced states: all of them, and nothing that no writer wrote.
fn check(top: &Path, writers: &[Files]) {
    for (writer_number, files) in writers.iter().enumerate() {
        let folder = top.join(folder_name(writer_number));
        let mut there = names(&folder);
        assert!(there.remove("other").is_some(), "the folder is there");
        for (name, path) in names(&folder.join("other")) {
            assert!(there.insert(format!("other/{name}"), path).is_none());
        }
        for (&id, state) in files {
            let mine: Vec<_> =
                there.keys().filter(|path| file_number(path) == id).cloned().collect();
            let path = match &mine[..] {
                [path] => path,
                [] => {
                    assert_eq!(
                        state.synced_path, None,
                        "{id} of {writer_number} is lost: {state:?}"
                    );
                    assert_eq!(
                        state.synced_records, 0,
                        "{id} of {writer_number} is lost: {state:?}"
                    );
                    continue;
                }
                several => panic!("{id} of {writer_number} is there as {several:?}: {state:?}"),
            };
            assert!(
                *path == state.tried_path || state.synced_path.as_ref() == Some(path),
                "{id} of {writer_number} is at {path}: {state:?}"
            );
            check_content(&there[path], writer_number, id, state);
            there.remove(path);
        }
        assert!(there.is_empty(), "not made by a test: {:?}", there.keys());
    }
}

fn check_content(path: &Path, writer_number: usize, id: u64, state: &State) {
    let content = fs::read(path).unwrap();
    let size = fs::metadata(path).unwrap().size();
    assert_eq!(content.len() as u64, size, "{}", path.display());
    let synced = state.synced_records * RECORD_BYTES as u64;
    assert!(size >= synced, "{}: {size} bytes of {synced} that were fsynced", path.display());
    let expected: Vec<u8> = (0..state.tried_records)
        .flat_map(|at| record(writer_number, id, at))
        .take(content.len())
        .collect();
    let differs = content.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert_eq!(differs, None, "{}: not what was written there", path.display());
    assert_eq!(content.len(), expected.len(), "{}: longer than what was written", path.display());
}

/// Names in a folder, with their paths.
fn names(folder: &Path) -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let entries = entries.map(Result::unwrap);
    entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path())).collect()
}

/// The number in `other/7.12`.
fn file_number(path: &str) -> u64 {
    let name = path.rsplit('/').next().and_then(|name| name.split('.').next());
    name.and_then(|name| name.parse().ok()).unwrap_or_else(|| panic!("a name of no test: {path}"))
}

/// The error of a call on the mount when the daemon is dead, or dies while the call waits.
fn is_of_a_dead_daemon(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTCONN | Errno::CONNABORTED))
}

fn kill(pid: Pid) {
    rustix::process::kill_process(pid, Signal::KILL).expect("the daemon lives");
    eventually("the daemon is dead", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        // A zombie waits for its parent; nothing of it serves any more.
        stat.map_or(true, |stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
    });
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "it did not happen in time: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A source and a mountpoint. Leaves nothing mounted, and no daemon, after any result of the test.
struct Place {
    binary: PathBuf,
    _folder: tempfile::TempDir,
    source: PathBuf,
    mountpoint: PathBuf,
    _watchdog: Watchdog,
}

impl Place {
    /// `None`, with a note, where nothing can be mounted.
    fn new() -> Option<Self> {
        if !uvfs_skip::can_mount() {
            return None;
        }
        // Built before the watchdog wakes: a build may take its time.
        let binary = binary();
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let [source, mountpoint] = ["source", "mnt"].map(|name| base.join(name));
        fs::create_dir(&source).unwrap();
        fs::create_dir(&mountpoint).unwrap();
        let rescued = mountpoint.clone();
        let watchdog = Watchdog::with_rescue(3 * LIMIT, move || clear(&rescued));
        Some(Self { binary, _folder: folder, source, mountpoint, _watchdog: watchdog })
    }

    /// Mounts the source; the daemon's pid.
    fn mount(&self, options: &[&str]) -> Pid {
        let mut mount = Command::new(&self.binary);
        mount.arg("mount").arg(&self.source).arg(&self.mountpoint).arg("--daemon").args(options);
        succeed(&mut mount);
        let stat = self.uvfs("stat", &["--json"]);
        let number = stat.split("\"pid\":").nth(1).map(|rest| rest.trim_start());
        let number = number.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        let pid = number.and_then(|number| number.parse().ok()).and_then(Pid::from_raw);
        pid.unwrap_or_else(|| panic!("no pid in {stat}"))
    }

    fn unmount(&self) {
        self.uvfs("unmount", &[]);
        assert!(!is_mounted(&self.mountpoint), "it is unmounted");
    }

    /// Runs `uvfs VERB MOUNTPOINT`; returns its output.
    fn uvfs(&self, verb: &str, options: &[&str]) -> String {
        succeed(Command::new(&self.binary).arg(verb).arg(&self.mountpoint).args(options))
    }

    /// Every access returns ENOTCONN, at once.
    fn assert_dead(&self) {
        assert!(is_mounted(&self.mountpoint), "it stays mounted until it is cleared");
        let file = self.mountpoint.join(folder_name(0));
        for error in [
            fs::metadata(&self.mountpoint).unwrap_err(),
            fs::read_dir(&self.mountpoint).unwrap_err(),
            fs::metadata(&file).unwrap_err(),
            File::create(self.mountpoint.join("new")).unwrap_err(),
        ] {
            assert_eq!(Errno::from_io_error(&error), Some(Errno::NOTCONN), "{error}");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        clear(&self.mountpoint);
    }
}

/// Detaches the mount; its daemon, if it lives, then ends by itself.
fn clear(mountpoint: &Path) {
    while is_mounted(mountpoint) {
        if rustix::mount::unmount(mountpoint, UnmountFlags::DETACH | UnmountFlags::FORCE).is_err() {
            return;
        }
    }
}

/// Asks the mount table, not the daemon.
fn is_mounted(mountpoint: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    let wanted = mountpoint.to_str().expect("a plain path");
    table.lines().any(|line| line.split(' ').nth(4) == Some(wanted))
}

/// Runs a command that has to succeed; returns its output.
fn succeed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The tool, built if it is not there.
fn binary() -> PathBuf {
    let named = std::env::var_os("UVFS_BINARY").map(PathBuf::from);
    named.unwrap_or_else(|| uvfs_tests::built("uvfs", "uvfs"))
}
