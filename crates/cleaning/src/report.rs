//! The output of `uvfs drop`: while it works, and when it is done.
//!
//! # Boundary
//! Layout. The numbers are the walk's.
//!
//! # Why
//! Rows of zeros are left out for people, and never in JSON.

use super::evict::Mode;
use super::meter::Meter;
use super::opener::Fill;
use super::tally::Outcome;
use super::walk::Progress;
use crate::shown::shown;
use crate::units::{counted, show_bytes, show_count};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::{Duration, Instant};
use uvfs_residency::page_bytes;
use uvfs_vfs::clean::request::Request;
use uvfs_vfs::{CleanProgress, CleanStage};

/// Time after which work counts as long.
const LONG: Duration = Duration::from_millis(400);
/// Width of a bar.
const BAR_WIDTH: usize = 24;
/// Width of the names on the left.
const LABEL_WIDTH: usize = 16;

/// The fields of the object that each request prints, for any file system.
const FIELDS: [&str; 29] = [
    "request",
    "dry_run",
    "sync",
    "measured_by",
    "before",
    "dirty_before",
    "after",
    "freed",
    "kept_dirty",
    "kept_busy",
    "files",
    "directories",
    "others",
    "mount_points",
    "denied",
    "failed",
    "vanished",
    "names_brought_in",
    "names_left_alone",
    "interrupted",
    "elapsed_seconds",
    "mount",
    "path_in_mount",
    "names",
    "inodes",
    "kernel",
    "not_written",
    "effect_seconds",
    "source_pages",
];

/// One line on standard error while a walk takes long, if that is a terminal.
#[derive(Debug)]
pub(super) struct Spinner {
    bar: ProgressBar,
    what: String,
    began: Instant,
}

impl Spinner {
    pub(super) fn new(what: &str) -> Self {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self { bar, what: shown(what).into_owned(), began: Instant::now() }
    }

    /// Shows how far the daemon is.
    pub(super) fn show_step(&self, step: CleanProgress) {
        if self.began.elapsed() < LONG || self.bar.is_hidden() {
            return;
        }
        self.bar.set_message(step_line(&self.what, step, self.began.elapsed()));
        self.bar.tick();
    }

    /// Shows how far the walk is.
    pub(super) fn show(&self, progress: &Progress) {
        if self.began.elapsed() < LONG || self.bar.is_hidden() {
            return;
        }
        let files = show_count(progress.files.total());
        let directories = show_count(progress.directories.total());
        let seconds = self.began.elapsed().as_secs();
        self.bar.set_message(format!(
            "{}: {files} files in {directories} directories, {seconds} s",
            self.what
        ));
        self.bar.tick();
    }

    /// Takes the line away.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// The daemon's progress with `what`.
fn step_line(what: &str, step: CleanProgress, elapsed: Duration) -> String {
    let phase = match step.stage {
        CleanStage::Waiting => "another cleaning is done first",
        CleanStage::Frontend => "the kernel evicts",
        CleanStage::Freeing => "memory is freed",
    };
    // A total that is not known yet fills no bar.
    let total = step.total.max(step.done);
    let filled = (step.done as f64 / total.max(1) as f64 * BAR_WIDTH as f64) as usize;
    let bar: String = (0..BAR_WIDTH).map(|at| if at < filled { '#' } else { '.' }).collect();
    let (done, total, seconds) = (show_count(step.done), show_count(total), elapsed.as_secs());
    format!("{what}: {phase} [{bar}] {done} of {total}, {seconds} s")
}

/// A request that was carried out.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) request: Request,
    pub(super) mode: Mode,
    pub(super) meter: Meter,
    pub(super) fill: Fill,
    pub(super) outcome: Outcome,
    pub(super) elapsed: Duration,
}

impl Report {
    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n", shown(&self.request.to_string()));
        for (label, value) in self.rows() {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "  {label:<LABEL_WIDTH$}  {value}");
        }
        text
    }

    /// Labels and their values.
    pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
        let tally = &self.outcome.tally;
        let mut rows = Vec::new();
        let mut row = |label, value: &str| rows.push((label, value.to_string()));
        row("cached before", &amount(tally.pages_before, Some(tally.files_before)));
        if self.mode == Mode::Count {
            if self.meter == Meter::Cachestat {
                row("of it dirty", &amount(tally.pages_dirty_before, None));
            }
        } else {
            row("freed", &amount(self.freed(), Some(tally.files_emptied)));
            row("cached after", &amount(tally.pages_after, None));
            if tally.pages_dirty > 0 {
                let kept = amount(tally.pages_dirty, Some(tally.files_dirty));
                let hint = if self.mode == Mode::Drop { "; --sync writes them first" } else { "" };
                row("kept, dirty", &(kept + hint));
            }
            if tally.pages_busy > 0 {
                row("kept, in use", &amount(tally.pages_busy, Some(tally.files_busy)));
            }
        }
        row("looked at", &self.looked_at());
        let left = self.left_alone();
        if !left.is_empty() {
            row("not looked at", &left);
        }
        if tally.files_unknown > 0 {
            let files = files(tally.files_unknown);
            let done = if self.mode == Mode::Count { "" } else { ", dropped without counting" };
            row(
                "not countable",
                &format!("{files} of other users, which are not yours to write{done}"),
            );
        }
        if self.fill == Fill::Allowed && tally.names_filled > 0 {
            row("names brought in", &show_count(tally.names_filled));
        }
        row("time", &format!("{:.3} s", self.elapsed.as_secs_f64()));
        rows
    }

    /// Every field of the object of a request, none known.
    pub(super) fn unknown() -> Value {
        let fields = FIELDS.iter().map(|name| ((*name).to_string(), Value::Null));
        Value::Object(fields.collect())
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let tally = &self.outcome.tally;
        let pages = |pages: u64| json!({ "pages": pages, "bytes": pages * page_bytes() });
        let mut report = Self::unknown();
        let known = json!({
            "request": self.request.to_string(),
            "dry_run": self.mode == Mode::Count,
            "sync": self.mode == Mode::SyncAndDrop,
            "measured_by": self.meter.name(),
            "before": pages(tally.pages_before),
            "dirty_before": pages(tally.pages_dirty_before),
            "after": pages(tally.pages_after),
            "freed": pages(self.freed()),
            "kept_dirty": pages(tally.pages_dirty),
            "kept_busy": pages(tally.pages_busy),
            "files": {
                "opened": tally.files, "with_pages": tally.files_before,
                "emptied": tally.files_emptied, "dirty": tally.files_dirty,
                "busy": tally.files_busy, "not_countable": tally.files_unknown,
                "further_links": tally.links,
            },
            "directories": tally.directories,
            "others": tally.others,
            "mount_points": tally.mounts,
            "denied": tally.denied,
            "failed": tally.failed,
            "vanished": tally.vanished,
            "names_brought_in": tally.names_filled,
            "names_left_alone": tally.names_cold,
            "interrupted": self.outcome.interrupted,
            "elapsed_seconds": self.elapsed.as_secs_f64(),
        });
        if let (Value::Object(all), Value::Object(known)) = (&mut report, known) {
            all.extend(known);
        }
        if self.meter == Meter::Mincore {
            // Not zero: not known.
            report["dirty_before"] = Value::Null;
            report["kept_dirty"] = Value::Null;
        }
        report
    }

    /// The files that could not be reached, as one line.
    pub(super) fn failure(&self) -> Option<String> {
        failure(&self.request.to_string(), &self.outcome)
    }

    fn freed(&self) -> u64 {
        match self.mode {
            Mode::Count => 0,
            _ => self.outcome.tally.pages_before.saturating_sub(self.outcome.tally.pages_after),
        }
    }

    fn looked_at(&self) -> String {
        let tally = &self.outcome.tally;
        let names = format!("{} in {}", files(tally.files), directories(tally.directories));
        match tally.links {
            0 => names,
            links => {
                let links = counted(links, "further name", "further names");
                format!("{names}; {links} of files counted already")
            }
        }
    }

    fn left_alone(&self) -> String {
        left_alone(&self.outcome)
    }
}

/// The files that a walk skipped.
pub(super) fn left_alone(outcome: &Outcome) -> String {
    let tally = &outcome.tally;
    let causes = [
        (tally.denied, "not permitted"),
        (tally.failed, "failed"),
        (tally.mounts, "mount points (not crossed)"),
        (tally.names_cold, "names that the kernel has not cached"),
        (tally.vanished, "gone meanwhile"),
    ];
    let shown = causes.iter().filter(|(count, _)| *count > 0);
    let mut parts: Vec<_> =
        shown.map(|(count, cause)| format!("{} {cause}", show_count(*count))).collect();
    if outcome.interrupted {
        parts.push("the rest: interrupted".into());
    }
    parts.join(", ")
}

/// The files that a walk could not reach, as one line; `None` if it reached all.
pub(super) fn failure(what: &str, outcome: &Outcome) -> Option<String> {
    let (denied, failed) = (outcome.tally.denied, outcome.tally.failed);
    let (path, error) = outcome.faults.first()?;
    let first = format!("{}: {}", path.display(), crate::cause(error));
    let count = match (denied + failed, denied) {
        (1, _) => String::new(),
        (all, _) => format!(" and {} more", show_count(all - 1)),
    };
    let remedy = if denied > 0 { "; run as root or as their owner" } else { "" };
    Some(format!("{what}: not reached: {first}{count}{remedy}"))
}

/// `12 pages, 48.0 KiB, in 3 files`.
fn amount(pages: u64, of: Option<u64>) -> String {
    let sizes =
        format!("{}, {}", show_bytes(pages * page_bytes()), counted(pages, "page", "pages"));
    match of {
        None => sizes,
        Some(count) => format!("{sizes} in {}", files(count)),
    }
}

/// `1 file`, `2 files`.
pub(super) fn files(count: u64) -> String {
    counted(count, "file", "files")
}

fn directories(count: u64) -> String {
    counted(count, "directory", "directories")
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tally::Tally;
    use super::*;

    pub(crate) fn report(mode: Mode, tally: Tally) -> Report {
        let outcome = Outcome { tally, ..Outcome::default() };
        let request = Request::parse(b"1:/srv").unwrap();
        let elapsed = Duration::from_millis(1234);
        Report { request, mode, meter: Meter::Cachestat, fill: Fill::Allowed, outcome, elapsed }
    }

    #[test]
    fn a_report_has_the_rows_that_say_something() {
        let tally = Tally {
            files: 10,
            directories: 1,
            files_before: 3,
            files_emptied: 1,
            files_dirty: 1,
            files_busy: 1,
            pages_before: 1000,
            pages_after: 24,
            pages_dirty: 8,
            pages_busy: 16,
            mounts: 1,
            ..Tally::default()
        };
        let text = report(Mode::Drop, tally).text();
        if page_bytes() != 4096 {
            return uvfs_skip::lacking("the text below is for pages of 4 KiB");
        }
        let expected = "\
1:/srv
  cached before     3.9 MiB, 1,000 pages in 3 files
  freed             3.8 MiB, 976 pages in 1 file
  cached after      96.0 KiB, 24 pages
  kept, dirty       32.0 KiB, 8 pages in 1 file; --sync writes them first
  kept, in use      64.0 KiB, 16 pages in 1 file
  looked at         10 files in 1 directory
  not looked at     1 mount points (not crossed)
  time              1.234 s
";
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn a_bar_fills_as_the_daemon_goes_on() {
        let line = |done, total| {
            let step = CleanProgress { stage: CleanStage::Frontend, done, total, freed: 0 };
            step_line("3:/a", step, Duration::from_millis(2500))
        };
        assert_eq!(
            line(1000, 2000),
            "3:/a: the kernel evicts [############............] 1,000 of 2,000, 2 s"
        );
        assert!(line(0, 0).contains(&format!("[{}] 0 of 0", ".".repeat(24))));
        assert!(
            line(9, 0).contains(&format!("[{}] 9 of 9", "#".repeat(24))),
            "more than was known"
        );
    }

    #[test]
    fn json_says_what_is_not_known() {
        let tally = Tally { pages_before: 5, pages_after: 2, ..Tally::default() };
        let mut report = report(Mode::Drop, tally);
        let json = report.json();
        assert_eq!((&json["before"]["pages"], &json["freed"]["pages"]), (&json!(5), &json!(3)));
        assert_eq!(json["kept_dirty"]["bytes"], 0);
        report.meter = Meter::Mincore;
        assert_eq!(report.json()["kept_dirty"], Value::Null);
        report.mode = Mode::Count;
        assert_eq!(report.json()["freed"]["pages"], 0);
    }

    #[test]
    fn what_was_not_reached_is_one_line_with_the_first() {
        let mut outcome = Outcome::default();
        assert_eq!(failure("1:/a", &outcome), None);
        outcome.tally.denied = 3;
        outcome.fault(|| "/a/b".into(), rustix::io::Errno::ACCESS.into());
        assert_eq!(
            failure("1:/a", &outcome).unwrap(),
            "1:/a: not reached: /a/b: Permission denied and 2 more; run as root or as their owner"
        );
    }
}
