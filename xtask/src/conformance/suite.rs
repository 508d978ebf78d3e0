//! One suite: a script in a session of its own, watched, and scored by its last line.
//!
//! # Boundary
//! Starts the script, waits, reads its log. Prints only failed and skipped tests; the log keeps the
//! rest.
//!
//! # Concurrency
//! The script writes to a file, not to a pipe, so a process stuck in the mount cannot block us.
//!
//! # Why
//! A session and not a process group: `timeout` and shells make groups of their own, but no process
//! of the suites leaves its session. Only processes of that session are ever killed.

use super::mount::{Mount, Watch};
use super::{scripts, shown};
use crate::steps;
use rustix::process::{Pid, Signal, kill_process};
use std::fmt;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Cases that passed and failed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Score {
    pub(super) passed: u64,
    pub(super) failed: u64,
}

impl Score {
    pub(super) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// One more failure, printed.
    pub(super) fn and_failed(mut self, title: &str, message: &str) -> Self {
        println!("FAILED {title}: {message}");
        self.failed += 1;
        self
    }

    /// Reads `N passed, M failed`.
    fn parse(line: &str) -> Option<Self> {
        let (passed, failed) = line.trim().strip_suffix(" failed")?.split_once(" passed, ")?;
        Some(Self { passed: passed.parse().ok()?, failed: failed.parse().ok()? })
    }
}

impl fmt::Display for Score {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// How a suite ended.
pub(super) struct Outcome {
    pub(super) score: Score,
    /// It did not end by itself; its connection was aborted.
    pub(super) cut: bool,
}

/// The script, its place, and its time limit.
pub(super) struct Job<'a> {
    pub(super) name: &'a str,
    /// Only cases that contain this.
    pub(super) cases: &'a str,
    pub(super) directory: &'a Path,
    pub(super) logs: &'a Path,
    pub(super) title: &'a str,
    pub(super) limit: Duration,
}

/// Runs one suite to its end, its time limit, or Ctrl-C.
pub(super) fn run(job: &Job<'_>, quick: bool, mount: Option<&Mount>, watch: &Watch) -> Outcome {
    let log = job.logs.join(format!("{}.log", job.title.replace(' ', "-")));
    let ended = start(job, quick, mount.is_some(), &log)
        .map(|child| watched(child, job.limit, mount, watch));
    let text = fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let text = text.unwrap_or_default();
    for line in
        text.lines().filter(|line| line.starts_with("FAILED") || line.starts_with("skipped"))
    {
        println!("  {line}");
    }
    let score = match &ended {
        Err(message) => Score::default().and_failed(job.title, message),
        Ok(Some(why)) => partial(&text).and_failed(job.title, why),
        Ok(None) => text
            .lines()
            .next_back()
            .and_then(Score::parse)
            .unwrap_or_else(|| partial(&text).and_failed(job.title, "ended without a score")),
    };
    Outcome { score, cut: matches!(ended, Ok(Some(_))) }
}

/// Starts the script as the leader of a new session.
fn start(job: &Job<'_>, quick: bool, mounted: bool, log: &Path) -> Result<Child, String> {
    let output = File::create(log).map_err(|error| shown(log, &error))?;
    let errors = output.try_clone().map_err(|error| shown(log, &error))?;
    let mut command = Command::new("setsid");
    command.arg("bash").arg(scripts().join(format!("{}.sh", job.name))).arg(job.directory);
    if !job.cases.is_empty() {
        command.env("CASES", job.cases);
    }
    command.env("QUICK", if quick { "1" } else { "" });
    command.env("UVFS_TOOLS", steps::target().join("tools"));
    // A tool missing now could not be installed: no suite spends its time on that again.
    command.env("UVFS_INSTALLED", "1");
    command.env("UVFS_MUST_RUN", if mounted { "1" } else { "" });
    command.env("SUITE_LOG", log.with_extension("detail.log"));
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    command.spawn().map_err(|error| format!("setsid bash: {error}"))
}

/// Waits for the script; `Some(why)` when it had to be cut off.
fn watched(
    mut child: Child,
    limit: Duration,
    mount: Option<&Mount>,
    watch: &Watch,
) -> Option<&'static str> {
    let start = Instant::now();
    let why = loop {
        if let Ok(Some(_)) = child.try_wait() {
            return None;
        }
        if watch.interrupted() {
            break "interrupted";
        }
        if start.elapsed() > limit {
            break "ran out of time; the connection was aborted";
        }
        thread::sleep(Duration::from_millis(50));
    };
    let session = child.id();
    signal_session(session, Signal::TERM);
    thread::sleep(Duration::from_millis(500));
    // Processes that wait for an answer of the mount hear no signal before the connection is cut.
    if let Some(mount) = mount {
        mount.abort();
    }
    thread::sleep(Duration::from_millis(500));
    signal_session(session, Signal::KILL);
    let _ = child.wait();
    Some(why)
}

/// Signals every process of `session`; the leader last, so that none is orphaned unseen.
fn signal_session(session: u32, signal: Signal) {
    let Ok(processes) = fs::read_dir("/proc") else { return };
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut members: Vec<u32> =
        numbers.filter(|process| session_of(*process) == Some(session)).collect();
    members.sort_by_key(|process| *process == session);
    for pid in members.into_iter().filter_map(|process| Pid::from_raw(process as i32)) {
        let _ = kill_process(pid, signal);
    }
}

fn session_of(process: u32) -> Option<u32> {
    session_in(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// The sixth field of a stat line; the second, in parentheses, may hold anything.
fn session_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(") ")?.1.split(' ').nth(3)?.parse().ok()
}

/// The count of a suite that did not reach its end: its `ok` and `FAILED` lines.
fn partial(text: &str) -> Score {
    let count = |word: &str| text.lines().filter(|line| line.starts_with(word)).count() as u64;
    Score { passed: count("ok "), failed: count("FAILED ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_score() {
        let score = Score { passed: 12, failed: 3 };
        assert_eq!(Score::parse("12 passed, 3 failed"), Some(score));
        assert_eq!(Score::parse(&score.to_string()), Some(score));
        assert_eq!(Score::parse("all passed"), None);
    }

    #[test]
    fn a_suite_cut_off_keeps_what_it_counted() {
        let text = "ok a\nFAILED b (rc 1)\nok c\nskipped d: why\n";
        assert_eq!(partial(text), Score { passed: 2, failed: 1 });
    }

    #[test]
    fn the_session_is_read_past_any_command_name() {
        assert_eq!(session_in("42 (a) b (c)) S 1 40 39 0 -1"), Some(39));
        // Bug: the gate failed in a process namespace of its own: a session whose leader is outside
        // reads as 0. Only the leader's own number is ever looked for, so 0 is no match.
        assert_eq!(session_in("42 (a) S 1 40 0 0 -1"), Some(0));
        assert!(session_of(std::process::id()).is_some());
    }
}
