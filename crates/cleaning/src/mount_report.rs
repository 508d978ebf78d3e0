//! The output of `uvfs drop` for a directory of a uvfs mount.
//!
//! # Boundary
//! Layout. The numbers are the daemon's, and those of the walk over the source.
//!
//! # Why
//! Every request prints an object of the same fields, for any file system; unknown values are `null`. Weakness: a
//! program has to read `mount` to know the meaning of a `null`.

use super::evict::Mode;
use super::report::{Report, files};
use crate::mountinfo::MountEntry;
use crate::shown::{shown, shown_name};
use crate::units::{counted, show_bytes, show_count};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;
use uvfs_control::cleaned::Cleaned;
use uvfs_vfs::clean::request::Request;
use uvfs_vfs::{Amount, CleanReport, Tally};

/// Width of the names on the left, the same one that [`Report`] uses.
const LABEL_WIDTH: usize = 16;
/// Width of a column of amounts.
const AMOUNT_WIDTH: usize = 22;

/// The result for the pages of the host directory that a mount shows.
#[derive(Debug)]
pub(super) enum SourcePages {
    /// It shows none, or none of its pages were meant.
    None,
    /// They were not touched.
    Left {
        /// The directory.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The directory was walked.
    Walked(Box<Report>),
}

/// A request that was carried out by a daemon.
#[derive(Debug)]
pub(super) struct MountReport {
    pub(super) request: Request,
    pub(super) mode: Mode,
    pub(super) mount: MountEntry,
    /// The directory, from the root of the file system.
    pub(super) inside: PathBuf,
    pub(super) cleaned: Cleaned,
    pub(super) source: SourcePages,
    pub(super) elapsed: Duration,
}

impl MountReport {
    /// For people.
    pub(super) fn text(&self) -> String {
        let CleanReport { names, inodes, pages, .. } = &self.cleaned.caches;
        let request = match self.request.directory {
            Some(_) => self.request.to_string(),
            None => format!("{}:{}", self.request, self.mount.mountpoint.display()),
        };
        let mut text = format!("{}\n", shown(&request));
        let mut row = |label: &str, value: &str| {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "  {label:<LABEL_WIDTH$}  {}", value.trim_end());
        };
        let counts = self.mode == Mode::Count;
        let what = self.request.what;
        let sorts = [("names", names), ("inodes", inodes), ("pages", pages)];
        // A count shows all of it.
        let meant = |name: &str| counts || if name == "pages" { true } else { what.has_names() };
        let heads = if counts { &["cached"][..] } else { &["before", "freed", "after"] };
        row("", &heads.iter().map(|head| format!("{head:<AMOUNT_WIDTH$}")).collect::<String>());
        for (name, sort) in sorts.iter().filter(|(name, _)| meant(name)) {
            let shown = [sort.found, sort.freed, sort.remaining()];
            let shown = shown[..heads.len()].iter().map(|number| amount(*number));
            row(name, &shown.map(|text| format!("{text:<AMOUNT_WIDTH$}")).collect::<String>());
        }
        let kept = |of: fn(&Tally) -> Amount| {
            let some = sorts.iter().filter(|(_, sort)| of(sort).entries > 0);
            let parts = some.map(|(name, sort)| {
                let Amount { entries, bytes } = of(sort);
                let one = name.trim_end_matches('s');
                format!("{} ({})", counted(entries, one, name), show_bytes(bytes))
            });
            parts.collect::<Vec<_>>().join(", ")
        };
        let (dirty, busy) = (kept(|sort| sort.dirty), kept(|sort| sort.busy));
        if !dirty.is_empty() {
            let label = if counts { "of it dirty" } else { "kept, dirty" };
            let hint = if self.mode == Mode::Drop { "; --sync writes them first" } else { "" };
            row(label, &(dirty + hint));
        }
        if !busy.is_empty() {
            row("kept, in use", &busy);
        }
        if self.cleaned.caches.not_written > 0 {
            row("not written", &files(self.cleaned.caches.not_written));
        }
        if let Some(kernel) = &self.cleaned.kernel {
            let noun = if kernel.held == 1 { "inode" } else { "inodes" };
            let [held, let_go, kept] = [kernel.held, kernel.let_go, kernel.kept].map(show_count);
            let done = match what.has_names() {
                true => format!("evicted {let_go} of {held} {noun}, kept {kept}"),
                false => format!("dropped its pages of {}", files(kernel.files)),
            };
            let refused = kernel.refused.iter().map(|cause| format!("; it refused: {cause}"));
            row("the kernel", &(done + &refused.collect::<String>()));
        }
        match &self.source {
            SourcePages::None => {}
            SourcePages::Left { path, why } => {
                let path = shown_name(path);
                row("source pages", &format!("{path}: left: {}", shown(why)));
            }
            SourcePages::Walked(report) => {
                row("source pages", &path_of(report));
                for (label, value) in report.rows() {
                    row(&format!("  {label}"), &value);
                }
            }
        }
        if self.cleaned.interrupted {
            row("not looked at", "the rest: interrupted");
        }
        if !counts {
            row("in effect", &format!("{:.6} s", self.cleaned.caches.effect.as_secs_f64()));
        }
        row("time", &format!("{:.3} s", self.elapsed.as_secs_f64()));
        text
    }

    /// For programs: the fields of [`Report::json`].
    pub(super) fn json(&self) -> Value {
        let CleanReport { names, inodes, pages, .. } = &self.cleaned.caches;
        let counts = self.mode == Mode::Count;
        let in_pages = |number: Amount| json!({ "pages": number.entries, "bytes": number.bytes });
        let sort = |sort: &Tally| {
            json!({
                "before": sort.found, "freed": sort.freed, "after": sort.remaining(),
                "kept_dirty": sort.dirty, "kept_busy": sort.busy,
            })
        };
        let dirty = in_pages(pages.dirty);
        let mut report = Report::unknown();
        let known = json!({
            "request": self.request.to_string(),
            "dry_run": counts,
            "sync": self.mode == Mode::SyncAndDrop,
            "measured_by": "uvfs",
            "before": in_pages(pages.found),
            "dirty_before": if counts { dirty.clone() } else { Value::Null },
            "after": in_pages(pages.remaining()),
            "freed": in_pages(pages.freed),
            "kept_dirty": dirty,
            "kept_busy": in_pages(pages.busy),
            "interrupted": self.interrupted(),
            "elapsed_seconds": self.elapsed.as_secs_f64(),
            "mount": self.mount.mountpoint.to_string_lossy(),
            "path_in_mount": self.inside.to_string_lossy(),
            "names": sort(names),
            "inodes": sort(inodes),
            "kernel": self.cleaned.kernel,
            "not_written": self.cleaned.caches.not_written,
            "effect_seconds": if counts { Value::Null } else { json!(self.cleaned.caches.effect.as_secs_f64()) },
            "source_pages": match &self.source {
                SourcePages::None => Value::Null,
                SourcePages::Left { path, why } => {
                    json!({ "directory": path.to_string_lossy(), "left": why })
                }
                SourcePages::Walked(report) => report.json(),
            },
        });
        if let (Value::Object(all), Value::Object(known)) = (&mut report, known) {
            all.extend(known);
        }
        report
    }

    /// The parts that were not done, as one line.
    pub(super) fn failure(&self) -> Option<String> {
        let mut lines = Vec::new();
        if self.cleaned.caches.not_written > 0 {
            let files = files(self.cleaned.caches.not_written);
            lines.push(format!(
                "{}: the source did not take the dirty pages of {files}; see the daemon's log",
                self.request
            ));
        }
        if let SourcePages::Walked(report) = &self.source {
            lines.extend(report.failure());
        }
        (!lines.is_empty()).then(|| lines.join("; "))
    }

    fn interrupted(&self) -> bool {
        let walk = match &self.source {
            SourcePages::Walked(report) => report.outcome.interrupted,
            _ => false,
        };
        self.cleaned.interrupted || walk
    }
}

/// The directory that was walked.
fn path_of(report: &Report) -> String {
    let directory = report.request.directory.as_deref();
    directory.map_or_else(String::new, shown_name)
}

/// `1,234 (5.6 MiB)`.
fn amount(Amount { entries, bytes }: Amount) -> String {
    match entries {
        0 => "-".into(),
        _ => format!("{} ({})", show_count(entries), show_bytes(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::mounted::example;
    use super::super::report::tests::report;
    use super::super::tally::Tally as Walked;
    use super::*;
    use uvfs_control::cleaned::Kernel;

    fn number(entries: u64) -> Amount {
        Amount { entries, bytes: entries * 1024 }
    }

    fn mount_report(mode: Mode) -> MountReport {
        let sort = |found, freed, busy, dirty| {
            let [found, freed, busy, dirty] = [found, freed, busy, dirty].map(number);
            Tally { found, freed, busy, dirty }
        };
        let caches = CleanReport {
            names: sort(5, 5, 0, 0),
            inodes: sort(5, 4, 1, 0),
            pages: sort(2000, 1990, 3, 7),
            effect: Duration::from_micros(12),
            ..CleanReport::default()
        };
        let kernel = Some(Kernel { held: 5, let_go: 4, kept: 1, ..Kernel::default() });
        let cleaned = Cleaned { caches, kernel, ..Cleaned::default() };
        MountReport {
            request: Request::parse(b"3:/mnt/data/a").unwrap(),
            mode,
            mount: example("/", "/mnt/data"),
            inside: "/a".into(),
            cleaned,
            source: SourcePages::Left { path: "/srv/data/a".into(), why: "why".into() },
            elapsed: Duration::from_millis(1234),
        }
    }

    #[test]
    fn a_report_is_a_table_and_what_stayed() {
        let text = mount_report(Mode::Drop).text();
        let expected = "\
3:/mnt/data/a
                    before                freed                 after
  names             5 (5.0 KiB)           5 (5.0 KiB)           -
  inodes            5 (5.0 KiB)           4 (4.0 KiB)           1 (1.0 KiB)
  pages             2,000 (2.0 MiB)       1,990 (1.9 MiB)       10 (10.0 KiB)
  kept, dirty       7 pages (7.0 KiB); --sync writes them first
  kept, in use      1 inode (1.0 KiB), 3 pages (3.0 KiB)
  the kernel        evicted 4 of 5 inodes, kept 1
  source pages      /srv/data/a: left: why
  in effect         0.000012 s
  time              1.234 s
";
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn the_sources_pages_stand_below_its_path() {
        let mut ours = mount_report(Mode::Drop);
        let tally =
            Walked { pages_before: 1, files_before: 1, files_emptied: 1, ..Walked::default() };
        ours.source = SourcePages::Walked(Box::new(report(Mode::Drop, tally)));
        let text = ours.text();
        for line in ["\n  source pages      /srv\n    cached before   ", "\n    freed           "] {
            assert!(text.contains(line), "no {line:?} in {text}");
        }
    }

    #[test]
    fn what_was_only_counted_is_one_column() {
        let mut report = mount_report(Mode::Count);
        report.cleaned.kernel = None;
        let text = report.text();
        assert!(text.contains("cached\n") && !text.contains("freed"), "{text}");
        assert!(text.contains("of it dirty       7 pages"), "{text}");
        assert_eq!(report.json()["dirty_before"]["pages"], 7);
        assert_eq!(report.json()["kernel"], Value::Null);
    }

    #[test]
    fn all_requests_print_the_same_fields() {
        let fields = |json: Value| match json {
            Value::Object(fields) => fields.into_iter().map(|(name, _)| name).collect::<Vec<_>>(),
            other => panic!("no object: {other}"),
        };
        let mut ours = mount_report(Mode::Drop);
        let host = report(Mode::Drop, Walked::default());
        assert_eq!(fields(ours.json()), fields(host.json()));
        ours.source = SourcePages::Walked(Box::new(report(Mode::Drop, Walked::default())));
        assert_eq!(fields(ours.json()["source_pages"].clone()), fields(host.json()));
        assert_eq!(ours.json()["path_in_mount"], "/a");
        assert_eq!(host.json()["mount"], Value::Null);
    }

    #[test]
    fn what_the_source_did_not_take_is_a_failure() {
        let mut report = mount_report(Mode::SyncAndDrop);
        assert_eq!(report.failure(), None);
        report.cleaned.caches.not_written = 2;
        let line = report.failure().unwrap();
        assert!(line.starts_with("3:/mnt/data/a: ") && line.contains("2 files"), "{line}");
    }
}
