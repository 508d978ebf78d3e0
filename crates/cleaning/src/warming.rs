//! `uvfs warmup` and `uvfs refresh`: read a directory into the caches, or ask the source for it again.
//!
//! # Boundary
//! Walks the mount like any program, so it caches what any program would: listings, names, attributes, and with
//! `--data` the bytes. [`warmed`] drops names first; the daemon counts requests.
//!
//! # Concurrency
//! One thread walks, so that a store that lists siblings together is asked in order. `--jobs` threads read files, each
//! the next one. Ctrl-C is checked between entries and between pieces of a file.
//!
//! # Why
//! The daemon needs no code for it, and a mount of another program is warmed in the same way. Weakness: the read data
//! also fills the kernel's page cache.

use super::flags::{RefreshArguments, WarmupArguments};
use crate::Failure;
use crate::shown::shown_name;
use crate::warmed::{self, Place};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use uvfs_concurrent::counter::Counter;
use uvfs_concurrent::primitive::atomic::{AtomicUsize, Ordering::Relaxed};
use uvfs_control::units::{counted, show_bytes, show_count};
use uvfs_terminal::interrupt::Interrupt;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 1 << 20;
/// Time between two lines of progress.
const NEWS_TIME: Duration = Duration::from_millis(200);

/// Runs `uvfs warmup`.
///
/// # Errors
/// A path that is no directory of a mount, files that could not be read, and an interruption.
pub fn warmup(arguments: &WarmupArguments) -> Result<ExitCode, Failure> {
    let place = warmed::find(&arguments.directory)?;
    let interrupt = Interrupt::by_signals().map_err(Failure::refused)?;
    let mut work = Work::new("warmup", place, arguments.recursive, &interrupt);
    work.walk();
    if arguments.data {
        work.read_all(usize::from(arguments.jobs));
    }
    work.end(arguments.json)
}

/// Runs `uvfs refresh`.
///
/// # Errors
/// As [`warmup`].
pub fn refresh(arguments: &RefreshArguments) -> Result<ExitCode, Failure> {
    let place = warmed::find(&arguments.directory)?;
    let interrupt = Interrupt::by_signals().map_err(Failure::refused)?;
    let mut work = Work::new("refresh", place, arguments.recursive, &interrupt);
    warmed::drop_names(&work.place, &interrupt)?;
    work.walk();
    work.end(arguments.json)
}

/// The work, and its progress.
struct Work<'a> {
    verb: &'static str,
    place: Place,
    recursive: bool,
    interrupt: &'a Interrupt,
    /// The store's requests before.
    before: Option<Requests>,
    began: Instant,
    bar: ProgressBar,
    directories: u64,
    /// Regular files, with their sizes.
    files: Vec<(PathBuf, u64)>,
    bytes: Counter,
    read: Counter,
    /// Files that could not be read; the first error in words.
    failed: u64,
    first_failure: Option<String>,
}

/// The daemon's requests to its store, if the store counts them.
#[derive(Debug, Clone, Copy, Default)]
struct Requests {
    all: u64,
    retries: u64,
}

fn requests(place: &Place) -> Option<Requests> {
    let report = warmed::report(place).ok()?;
    let counters = report.get("core")?.get("backend")?.as_object()?;
    let of = |wanted: &dyn Fn(&str) -> bool| {
        let values = counters.iter().filter(|(name, _)| wanted(name));
        values.filter_map(|(_, value)| value.as_u64()).sum()
    };
    let is_request = |name: &str| name.ends_with("_requests") && name != "failed_requests";
    counters
        .keys()
        .any(|name| is_request(name))
        .then(|| Requests { all: of(&is_request), retries: of(&|name| name == "retries") })
}

impl<'a> Work<'a> {
    fn new(verb: &'static str, place: Place, recursive: bool, interrupt: &'a Interrupt) -> Self {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        let before = requests(&place);
        Self {
            verb,
            place,
            recursive,
            interrupt,
            before,
            began: Instant::now(),
            bar,
            directories: 0,
            files: Vec::new(),
            bytes: Counter::new(),
            read: Counter::new(),
            failed: 0,
            first_failure: None,
        }
    }

    /// Lists the directory, and with `recursive` those below, in the order of the listings; other mounts are left out.
    fn walk(&mut self) {
        let start = self.place.path().to_path_buf();
        let device = fs::metadata(&start).map(|start| start.dev()).ok();
        let mut left = vec![start];
        while let Some(directory) = left.pop() {
            let below = match self.list(&directory, device) {
                Ok(below) => below,
                Err(error) => {
                    self.fail(&directory, &error);
                    continue;
                }
            };
            self.directories += 1;
            if self.recursive {
                // The first one is next.
                left.extend(below.into_iter().rev());
            }
            if self.interrupt.is_set() {
                return;
            }
        }
    }

    fn list(&mut self, directory: &Path, device: Option<u64>) -> io::Result<Vec<PathBuf>> {
        let mut below = Vec::new();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            match fs::symlink_metadata(&path) {
                Ok(found) if found.is_dir() && Some(found.dev()) == device => below.push(path),
                Ok(found) if found.is_file() => self.files.push((path, found.size())),
                Ok(_) => {}
                // Removed since.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.fail(&path, &error),
            }
            if self.interrupt.is_set() {
                break;
            }
            self.show(0);
        }
        Ok(below)
    }

    /// Reads every file that was found, `jobs` at once.
    fn read_all(&mut self, jobs: usize) {
        let files = std::mem::take(&mut self.files);
        let all: u64 = files.iter().map(|(_, size)| size).sum();
        let next = AtomicUsize::new(0);
        let (read, bytes, interrupt) = (&self.read, &self.bytes, self.interrupt);
        let job = || {
            let mut failures = Vec::new();
            let mut piece = vec![0; PIECE_BYTES];
            // ORDERING: Relaxed; each number is taken once.
            while let Some((path, _)) = files.get(next.fetch_add(1, Relaxed)) {
                match read_file(path, &mut piece, bytes, interrupt) {
                    Ok(()) => read.hit(),
                    Err(error) => failures.push((path.clone(), error)),
                }
                if interrupt.is_set() {
                    break;
                }
            }
            failures
        };
        let failures = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(job)).collect();
            while threads.iter().any(|thread| !thread.is_finished()) {
                self.show(all);
                std::thread::sleep(Duration::from_millis(5));
            }
            let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_default());
            joined.flatten().collect::<Vec<_>>()
        });
        self.files = files;
        failures.iter().for_each(|(path, error)| self.fail(path, error));
    }

    fn fail(&mut self, path: &Path, error: &io::Error) {
        self.failed += 1;
        let line = || format!("{}: {}", shown_name(path), crate::cause(error));
        self.first_failure.get_or_insert_with(line);
    }
}

fn read_file(
    path: &Path,
    piece: &mut [u8],
    bytes: &Counter,
    interrupt: &Interrupt,
) -> io::Result<()> {
    let mut file = File::open(path)?;
    while !interrupt.is_set() {
        match file.read(piece)? {
            0 => break,
            count => bytes.add(count as u64),
        }
    }
    Ok(())
}

/// Output.
impl Work<'_> {
    /// Prints progress, on a terminal and not too often; `all` bytes are to be read, if that is known.
    fn show(&self, all: u64) {
        if self.bar.is_hidden() || self.bar.elapsed() < NEWS_TIME {
            return;
        }
        self.bar.reset_elapsed();
        let mut line = format!(
            "{} {}: {}, {}",
            self.verb,
            shown_name(self.place.path()),
            counted(self.directories, "directory", "directories"),
            counted(self.files.len() as u64 + self.read.total(), "file", "files")
        );
        if all > 0 {
            let done = self.bytes.total();
            line += &format!(", {} of {}", show_bytes(done), show_bytes(all));
            if done > 0 {
                let passed = self.began.elapsed().as_secs_f64();
                let left = passed * all.saturating_sub(done) as f64 / done as f64;
                line += &format!(", {left:.0} s left");
            }
        }
        if let Some(asked) = self.asked() {
            line += &format!(", {}", counted(asked.all, "request", "requests"));
        }
        self.bar.set_message(line);
        self.bar.tick();
    }

    /// The store's requests since this began, for all users.
    fn asked(&self) -> Option<Requests> {
        let (before, now) = (self.before?, requests(&self.place)?);
        let all = now.all.saturating_sub(before.all);
        Some(Requests { all, retries: now.retries.saturating_sub(before.retries) })
    }

    fn end(self, as_json: bool) -> Result<ExitCode, Failure> {
        self.bar.finish_and_clear();
        let (asked, seconds) = (self.asked(), self.began.elapsed().as_secs_f64());
        let path = self.place.path().display();
        let (files, read, bytes) = (self.files.len() as u64, self.read.total(), self.bytes.total());
        if as_json {
            let report = json!({
                "path": path.to_string(),
                "directories": self.directories,
                "files": files,
                "files_read": read,
                "bytes_read": bytes,
                "failed": self.failed,
                "requests": asked.map_or(Value::Null, |asked| asked.all.into()),
                "retries": asked.map_or(Value::Null, |asked| asked.retries.into()),
                "seconds": seconds,
                "interrupted": self.interrupt.is_set(),
            });
            crate::print_line(&report.to_string());
        } else {
            let mut line = format!(
                "{} {}: {}, {}",
                self.verb,
                shown_name(self.place.path()),
                counted(self.directories, "directory", "directories"),
                counted(files, "file", "files")
            );
            if !self.recursive {
                line += " (its own entries; -r goes into the directories below)";
            }
            if read > 0 {
                line += &format!(", {} of them read, {}", show_count(read), show_bytes(bytes));
            }
            if let Some(Requests { all, retries }) = asked {
                let asked = counted(all, "request", "requests");
                line += &format!("; {asked}, {retries} of them retries");
            }
            crate::print_line(&format!("{line}; {seconds:.1} s"));
        }
        let mut failures = Vec::new();
        if let Some(first) = self.first_failure {
            let others = self.failed - 1;
            let more = if others > 0 { format!(", and {others} more") } else { String::new() };
            failures.push(format!("{first}{more}; objects reached so far are cached"));
        }
        if self.interrupt.is_set() {
            failures.push("interrupted; objects reached so far are cached".into());
        }
        match failures.is_empty() {
            true => Ok(ExitCode::SUCCESS),
            false => Err(Failure::refused(failures.join("; "))),
        }
    }
}
