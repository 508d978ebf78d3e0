//! The figures of a run: kept for the aims, written as lines, as tables beside the patch's, and as charts.
//!
//! # Boundary
//! [`Report`] writes the lines and the plain tables. A sweep of second passes has a table of its own.

use super::sizes::{Way, misses};
use crate::chart::{Chart, Series};
use crate::report::{Layout, Report, Row, Summary, Unit};
use crate::{context, report};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// The patch's table: files in each directory, seconds without and with cleaning.
const PATCH: [(u64, f64, f64); 5] = [
    (180_000, 2.165, 1.949),
    (200_000, 6.977, 1.906),
    (220_000, 10.032, 2.336),
    (240_000, 11.571, 2.918),
    (260_000, 13.443, 3.651),
];
const PREFIX: &str = "reaccess-";
/// Unit of sizes in bytes.
const KIB: &str = "KiB";
const WIDTH: usize = 18;

/// Samples by case and system. Everything here has one thread.
#[derive(Debug)]
pub(super) struct Figures {
    report: Report,
    /// Those that are not written.
    notes: Vec<String>,
}

impl Default for Figures {
    fn default() -> Self {
        Self { report: Report::new("clean"), notes: Vec::new() }
    }
}

/// The variable of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sweep {
    Files,
    Bytes,
}

impl Sweep {
    /// The size in the name of a case of this sweep.
    fn size(self, case: &str) -> Option<u64> {
        let size = case.strip_prefix(PREFIX)?.split('-').next()?;
        match (self, size.strip_suffix(KIB)) {
            (Sweep::Files, None) => size.parse().ok(),
            (Sweep::Bytes, Some(size)) => size.parse().ok(),
            _ => None,
        }
    }

    fn case(self, size: u64, way: Way) -> String {
        let unit = if self == Sweep::Bytes { KIB } else { "" };
        format!("{PREFIX}{size}{unit}-{}", way.name())
    }

    /// Systems of `rows` that take part.
    fn systems(self, rows: &[Row]) -> Vec<String> {
        let mut systems: Vec<String> = Vec::new();
        for Row { key, .. } in rows {
            if self.size(&key.case).is_some() && !systems.contains(&key.system) {
                systems.push(key.system.clone());
            }
        }
        systems
    }

    fn sizes(self, rows: &[Row]) -> Vec<u64> {
        let mut sizes: Vec<u64> = rows.iter().filter_map(|row| self.size(&row.key.case)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn of(self) -> &'static str {
        match self {
            Sweep::Files => "files in each directory",
            Sweep::Bytes => "KiB in each directory",
        }
    }
}

impl Figures {
    /// Adds one sample.
    pub(super) fn sample(&mut self, case: &str, system: &str, unit: Unit, value: f64) {
        self.report.sample(case, system, 1, unit, value);
    }

    /// Adds a line that a reader of the tables needs.
    pub(super) fn note(&mut self, line: String) {
        self.notes.push(line);
    }

    /// Median and spread of a row.
    pub(super) fn summary(&self, case: &str, system: &str) -> Option<Summary> {
        self.report.summary(case, system, 1)
    }

    /// Every row whose case begins so.
    pub(super) fn beginning<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str, Summary)> {
        let rows = self.report.rows().iter();
        let rows = rows.filter(move |row| row.key.case.starts_with(prefix));
        rows.filter_map(|row| Some((&*row.key.case, &*row.key.system, row.summary()?)))
    }

    /// Systems and sizes of all pairs of second passes: plain, and cleaned.
    pub(super) fn pairs(&self) -> Vec<(String, [Summary; 2])> {
        let mut pairs = Vec::new();
        for sweep in [Sweep::Files, Sweep::Bytes] {
            for system in sweep.systems(self.report.rows()) {
                for size in sweep.sizes(self.report.rows()) {
                    let [plain, cleaned] =
                        Way::ALL.map(|way| self.summary(&sweep.case(size, way), &system));
                    if let (Some(plain), Some(cleaned)) = (plain, cleaned) {
                        let case = sweep.case(size, Way::Cleaned);
                        pairs.push((format!("{case} of {system}"), [plain, cleaned]));
                    }
                }
            }
        }
        pairs
    }

    /// Pairs of plain and cleaned figures for the accesses that reached the store.
    pub(super) fn missed(&self) -> Vec<(String, [f64; 2])> {
        let mut pairs = Vec::new();
        for sweep in [Sweep::Files, Sweep::Bytes] {
            for system in sweep.systems(self.report.rows()) {
                for size in sweep.sizes(self.report.rows()) {
                    let of = |way| self.summary(&misses(&sweep.case(size, way)), &system);
                    if let [Some(plain), Some(cleaned)] = Way::ALL.map(of) {
                        let case = misses(&sweep.case(size, Way::Cleaned));
                        pairs.push((format!("{case} of {system}"), [plain.max, cleaned.max]));
                    }
                }
            }
        }
        pairs
    }

    /// Writes each new row as one JSON object.
    pub(super) fn write_json(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.notes.clear();
        self.report.write_json(out)
    }

    /// Writes the new rows as tables.
    pub(super) fn write_tables(&mut self, out: &mut impl Write) -> io::Result<()> {
        for note in self.notes.drain(..) {
            writeln!(out, "{note}")?;
        }
        for sweep in [Sweep::Files, Sweep::Bytes] {
            self.write_sweep(sweep, out)?;
        }
        self.report.write_tables(&Layout::default(), |case| !case.starts_with(PREFIX), out)
    }

    /// Writes two charts for each sweep that was measured into `folder`: times, and misses.
    pub(super) fn write_charts(&self, folder: &Path) -> io::Result<()> {
        for (sweep, name) in [(Sweep::Files, "reaccess-names"), (Sweep::Bytes, "reaccess-bytes")] {
            if sweep.systems(self.report.rows()).is_empty() {
                continue;
            }
            let charts = [(false, "", "s"), (true, "-misses", "misses")];
            for (is_missed, ending, unit) in charts {
                let series = self.series(sweep, is_missed);
                let title = match is_missed {
                    false => "Second pass over 1, after 1, 2, 3".to_owned(),
                    true => "What of the second pass reached the store".to_owned(),
                };
                let path = folder.join(format!("{name}{ending}.svg"));
                let chart = Chart { title, unit, over: sweep.of(), series };
                fs::write(&path, chart.svg()).map_err(context(path.display()))?;
            }
        }
        Ok(())
    }

    fn series(&self, sweep: Sweep, is_missed: bool) -> Vec<Series> {
        let sizes = sweep.sizes(self.report.rows());
        let mut series = Vec::new();
        if let (Sweep::Files, false) = (sweep, is_missed) {
            // In the rows of ours, whatever part of the patch's number of files we used.
            for way in Way::ALL {
                let value = |row: &(u64, f64, f64)| if way == Way::Plain { row.1 } else { row.2 };
                let points =
                    sizes.iter().zip(&PATCH).map(|(size, row)| (*size as usize, value(row)));
                series.push(Series {
                    name: format!("patch 2013 {}", way.name()),
                    points: points.collect(),
                });
            }
        }
        for system in sweep.systems(self.report.rows()) {
            for way in Way::ALL {
                let value = |size: &u64| {
                    let case = sweep.case(*size, way);
                    let case = if is_missed { misses(&case) } else { case };
                    Some((*size as usize, self.summary(&case, &system)?.median))
                };
                let points: Vec<_> = sizes.iter().filter_map(value).collect();
                if !points.is_empty() {
                    series.push(Series { name: format!("{system} {}", way.name()), points });
                }
            }
        }
        series
    }

    fn write_sweep(&self, sweep: Sweep, out: &mut impl Write) -> io::Result<()> {
        let sizes = sweep.sizes(self.report.fresh());
        if sizes.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nsecond pass over 1, after 1, 2, 3 [s; median, least to most]")?;
        row(out, sweep.of(), sizes.iter().map(u64::to_string))?;
        if sweep == Sweep::Files {
            write_patch(&sizes, out)?;
        }
        for system in sweep.systems(self.report.fresh()) {
            writeln!(out, "  {system}")?;
            let of = |way: Way, missed: bool| {
                let system = system.clone();
                sizes.iter().map(move |size| {
                    let case = sweep.case(*size, way);
                    self.summary(&if missed { misses(&case) } else { case }, &system)
                })
            };
            let times = of(Way::Plain, false).zip(of(Way::Cleaned, false)).map(|pair| match pair {
                (Some(plain), Some(cleaned)) if cleaned.median > 0.0 => {
                    format!("{:.2}", plain.median / cleaned.median)
                }
                _ => String::new(),
            });
            let times: Vec<String> = times.collect();
            if times.iter().any(|time| !time.is_empty()) {
                row(out, "  plain", of(Way::Plain, false).map(median))?;
                row(out, "", of(Way::Plain, false).map(spread))?;
                row(out, "  2 cleaned", of(Way::Cleaned, false).map(median))?;
                row(out, "", of(Way::Cleaned, false).map(spread))?;
                row(out, "  times as fast", times.into_iter())?;
            }
            row(out, "  misses, plain", of(Way::Plain, true).map(count))?;
            row(out, "  misses, 2 cleaned", of(Way::Cleaned, true).map(count))?;
        }
        Ok(())
    }
}

/// The patch's rows, one for each of `sizes` in turn.
fn write_patch(sizes: &[u64], out: &mut impl Write) -> io::Result<()> {
    let is_whole = sizes.iter().all(|size| PATCH.iter().any(|row| row.0 == *size));
    // A part of the files: the patch's columns are those in the same place of the sweep.
    let place = |size: &u64| match is_whole {
        true => PATCH.iter().find(|row| row.0 == *size),
        false if sizes.len() == PATCH.len() => {
            PATCH.get(sizes.iter().position(|other| other == size)?)
        }
        false => PATCH.iter().find(|row| row.0 == size * 10),
    };
    let rows: Vec<_> = sizes.iter().filter_map(place).collect();
    if rows.len() != sizes.len() {
        return Ok(());
    }
    let factor = rows[0].0 / sizes[0].max(1);
    match factor {
        1 => writeln!(out, "  patch of 2013, its machine")?,
        _ => writeln!(out, "  patch of 2013, its machine, {factor} times as many files")?,
    }
    row(out, "  plain", rows.iter().map(|row| format!("{:.3}", row.1)))?;
    row(out, "  2 cleaned", rows.iter().map(|row| format!("{:.3}", row.2)))?;
    row(out, "  times as fast", rows.iter().map(|row| format!("{:.2}", row.1 / row.2)))
}

fn row(out: &mut impl Write, label: &str, cells: impl Iterator<Item = String>) -> io::Result<()> {
    let cells: String = cells.map(|cell| format!(" {cell:>WIDTH$}")).collect();
    writeln!(out, "  {}", format!("{label:<24}{cells}").trim_end())
}

fn median(of: Option<Summary>) -> String {
    of.map_or_else(String::new, |of| report::figure(of.median))
}

fn spread(of: Option<Summary>) -> String {
    of.map_or_else(String::new, |of| {
        format!("{} to {}", report::figure(of.min), report::figure(of.max))
    })
}

/// A value that is the same in every run is one number.
fn count(of: Option<Summary>) -> String {
    match of {
        None => String::new(),
        Some(of) if of.min == of.max => format!("{:.0}", of.median),
        Some(of) => format!("{:.0} to {:.0}", of.min, of.max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn sweep(scale: u64) -> Figures {
        let mut figures = Figures::default();
        for (files, plain, cleaned) in PATCH {
            let cells = [(Way::Plain, plain), (Way::Cleaned, cleaned)];
            for (way, seconds) in cells {
                let case = Sweep::Files.case(files / scale, way);
                figures.sample(&case, "uvfs", Unit::Seconds, seconds * 2.0);
                figures.sample(&misses(&case), "uvfs", Unit::Entries, 7.0);
            }
        }
        figures
    }

    #[test]
    fn the_patchs_own_figures_come_out_with_its_own_gains() {
        let table = written(|out| sweep(1).write_tables(out));
        let lines: Vec<&str> =
            table.lines().filter(|line| line.contains("times as fast")).collect();
        assert_eq!(lines.len(), 2, "{table}");
        for line in lines {
            let gains: Vec<&str> = line.split_whitespace().skip(3).collect();
            assert_eq!(gains, ["1.11", "3.66", "4.29", "3.97", "3.68"], "{table}");
        }
        let tenth = written(|out| sweep(10).write_tables(out));
        assert!(tenth.contains("its machine, 10 times as many files"), "{tenth}");
    }

    #[test]
    fn pairs_and_misses_are_found_and_rows_are_written_once() {
        let mut figures = sweep(1);
        assert_eq!(figures.pairs().len(), 5);
        assert_eq!(figures.missed()[0].1, [7.0, 7.0]);
        figures.sample("effect-100", "uvfs", Unit::Microseconds, 3.0);
        assert_eq!(figures.pairs().len(), 5);
        let lines = written(|out| figures.write_json(out));
        assert_eq!(lines.lines().count(), 21);
        assert!(lines.starts_with("{\"bench\":\"clean\",\"case\":\"reaccess-180000-plain\""));
        assert!(written(|out| figures.write_json(out)).is_empty());
    }

    #[test]
    fn sizes_are_read_from_names() {
        assert_eq!(Sweep::Files.size("reaccess-180000-plain"), Some(180_000));
        assert_eq!(Sweep::Bytes.size("reaccess-180000-plain"), None);
        assert_eq!(Sweep::Bytes.size("reaccess-64KiB-cleaned-misses"), Some(64));
        assert_eq!(Sweep::Files.size("effect-100"), None);
    }

    #[test]
    fn charts_have_the_patch_beside_us() {
        let folder = std::env::temp_dir().join(format!("uvfs-bench-clean-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        sweep(1).write_charts(&folder).unwrap();
        let chart = fs::read_to_string(folder.join("reaccess-names.svg")).unwrap();
        assert!(chart.contains("patch 2013 cleaned") && chart.contains("uvfs plain"), "{chart}");
        assert_eq!(chart.matches("<polyline").count(), 4);
        fs::remove_dir_all(&folder).unwrap();
    }
}
