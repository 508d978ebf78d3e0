//! From samples to medians with spread, as tables or as one JSON object per line.
//!
//! # Boundary
//! Knows numbers and names, not how they were measured. The JSON fields are the format that all
//! benches of this project share; programs read it, so fields are added and never renamed.
//!
//! # Why
//! Medians, because one run disturbed by a neighbour should not move the figure; minimum and
//! maximum beside it, because the spread says how far to trust it. The table's last column divides
//! by the case's reference, which is what this machine's noise leaves meaningful.

use serde::Serialize;
use std::io::{self, Write};

/// What a sample counts, and which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// CPU microseconds for one operation.
    CpuMicroseconds,
    /// CPU microseconds for one mebibyte.
    CpuMicrosecondsPerMebibyte,
    /// CPU seconds.
    CpuSeconds,
    /// Thousands of operations a second.
    ThousandsPerSecond,
    /// Millions of operations a second.
    MillionsPerSecond,
    /// Mebibytes a second.
    MebibytesPerSecond,
    /// Seconds on the clock.
    Seconds,
    /// Microseconds on the clock.
    Microseconds,
    /// Nanoseconds on the clock.
    Nanoseconds,
    /// Nanoseconds on the clock for one path.
    NanosecondsPerWalk,
    /// Acquisitions of locks for one operation; fewer are better.
    LocksPerOperation,
    /// Hundredths of acquisitions that waited, or of the time that a lock was held.
    PercentOfLock,
    /// Bytes of memory for one name.
    BytesPerName,
    /// Bytes of memory for one item.
    BytesPerItem,
    /// A part of a whole that one wishes to be large, such as hits.
    Share,
    /// The same in hundredths.
    Percent,
    /// Mebibytes of memory.
    Mebibytes,
    /// Memory in hundredths of what was allowed; less is better.
    PercentOfSize,
    /// Entries of a cache; fewer are better.
    Entries,
    /// How many times as long something takes beside something else.
    Slowdown,
}

impl Unit {
    /// As in the lines and tables.
    pub fn name(self) -> &'static str {
        match self {
            Unit::CpuMicroseconds => "cpu-us/op",
            Unit::CpuMicrosecondsPerMebibyte => "cpu-us/MiB",
            Unit::CpuSeconds => "cpu-s",
            Unit::ThousandsPerSecond => "k/s",
            Unit::MillionsPerSecond => "M/s",
            Unit::MebibytesPerSecond => "MiB/s",
            Unit::Seconds => "s",
            Unit::Microseconds => "us",
            Unit::Nanoseconds => "ns",
            Unit::NanosecondsPerWalk => "ns/walk",
            Unit::LocksPerOperation => "locks/op",
            Unit::PercentOfLock => "%",
            Unit::BytesPerName => "B/name",
            Unit::BytesPerItem => "B/item",
            Unit::Mebibytes => "MiB",
            Unit::PercentOfSize => "percent-of-size",
            Unit::Entries => "entries",
            Unit::Percent => "percent",
            Unit::Share | Unit::Slowdown => "ratio",
        }
    }

    /// Which way is better.
    pub fn higher_is_better(self) -> bool {
        use Unit::{MebibytesPerSecond, MillionsPerSecond, Percent, Share, ThousandsPerSecond};
        let rates = matches!(self, ThousandsPerSecond | MillionsPerSecond | MebibytesPerSecond);
        rates || matches!(self, Share | Percent)
    }
}

/// What is measured: the first three fields of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The case, named by its true size.
    pub case: String,
    /// The system measured.
    pub system: String,
    /// Client threads.
    pub threads: usize,
}

/// One line of output.
#[derive(Debug, Serialize)]
struct Line<'a> {
    bench: &'a str,
    case: &'a str,
    system: &'a str,
    threads: usize,
    value: f64,
    min: f64,
    max: f64,
    runs: usize,
    unit: &'a str,
    higher_is_better: bool,
}

/// The samples of one bench.
#[derive(Debug)]
pub struct Report {
    bench: &'static str,
    rows: Vec<(Key, Unit, Vec<f64>)>,
}

impl Report {
    /// An empty report of `bench`.
    pub fn new(bench: &'static str) -> Self {
        Self { bench, rows: Vec::new() }
    }

    /// Adds one sample.
    pub fn sample(&mut self, case: &str, system: &str, threads: usize, unit: Unit, value: f64) {
        let key = Key { case: case.into(), system: system.into(), threads };
        match self.rows.iter_mut().find(|row| row.0 == key) {
            Some(row) => row.2.push(value),
            None => self.rows.push((key, unit, vec![value])),
        }
    }

    /// Writes one JSON object per row, and forgets the rows.
    pub fn write_json(&mut self, out: &mut impl Write) -> io::Result<()> {
        for (key, unit, samples) in self.rows.drain(..) {
            let Some(summary) = Summary::of(&samples) else { continue };
            let line = Line {
                bench: self.bench,
                case: &key.case,
                system: &key.system,
                threads: key.threads,
                value: rounded(summary.median),
                min: rounded(summary.min),
                max: rounded(summary.max),
                runs: samples.len(),
                unit: unit.name(),
                higher_is_better: unit.higher_is_better(),
            };
            writeln!(out, "{}", serde_json::to_string(&line)?)?;
        }
        out.flush()
    }

    /// Writes a table per case, and forgets the rows. A case's `references` are tried in turn for
    /// the last column.
    pub fn write_tables(&mut self, references: &[&str], out: &mut impl Write) -> io::Result<()> {
        while let Some((first, unit, _)) = self.rows.first() {
            let (case, unit) = (first.case.clone(), *unit);
            let (rows, rest) = self.rows.drain(..).partition(|row| row.0.case == case);
            self.rows = rest;
            write_table(&case, unit, &rows, references, out)?;
        }
        out.flush()
    }
}

/// Median, minimum and maximum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Of an even number of samples, the mean of the middle two.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Summary {
    /// `None` without samples.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        };
        Some(Self { median, min, max })
    }
}

fn write_table(
    case: &str,
    unit: Unit,
    rows: &[(Key, Unit, Vec<f64>)],
    references: &[&str],
    out: &mut impl Write,
) -> io::Result<()> {
    let summaries: Vec<(&Key, Summary, usize)> = rows
        .iter()
        .filter_map(|(key, _, samples)| Some((key, Summary::of(samples)?, samples.len())))
        .collect();
    let reference = references
        .iter()
        .find_map(|name| summaries.iter().find(|(key, ..)| key.system == **name))
        .map(|(key, summary, _)| (key.system.clone(), summary.median));
    let better = if unit.higher_is_better() { "higher is better" } else { "lower is better" };
    let against =
        reference.as_ref().map_or_else(String::new, |(system, _)| format!("against {system}"));
    writeln!(out, "\n{case} [{}, {better}]", unit.name())?;
    writeln!(
        out,
        "  {:<26} {:>7} {:>10} {:>10} {:>10} {:>5}  {against}",
        "system", "threads", "median", "min", "max", "runs"
    )?;
    for (key, summary, runs) in &summaries {
        let ratio = reference
            .as_ref()
            .filter(|(_, value)| *value > 0.0)
            .map_or_else(String::new, |(_, value)| format!("{:.2}", summary.median / value));
        let figures = [summary.median, summary.min, summary.max].map(figure);
        let [median, min, max] = figures;
        let (system, threads) = (&key.system, key.threads);
        writeln!(
            out,
            "  {system:<26} {threads:>7} {median:>10} {min:>10} {max:>10} {runs:>5}  {ratio}"
        )?;
    }
    Ok(())
}

/// Three or four digits that mean something.
pub fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Six significant digits: more is noise, and lines stay readable.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn two_systems() -> Report {
        let mut report = Report::new("mount");
        for value in [30.0, 10.0, 20.0] {
            report.sample("read-1m", "host", 1, Unit::MebibytesPerSecond, value * 2.0);
            report.sample("read-1m", "uvfs", 1, Unit::MebibytesPerSecond, value);
        }
        report
    }

    #[test]
    fn the_median_is_the_middle_or_between_the_middle_two() {
        let check = |samples: &[f64], median, min, max| {
            assert_eq!(Summary::of(samples), Some(Summary { median, min, max }), "{samples:?}");
        };
        check(&[3.0, 1.0, 2.0], 2.0, 1.0, 3.0);
        check(&[4.0, 1.0, 2.0, 3.0], 2.5, 1.0, 4.0);
        check(&[7.0], 7.0, 7.0, 7.0);
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn a_line_has_the_agreed_fields() {
        let lines = text(|out| two_systems().write_json(out));
        assert_eq!(
            lines.lines().nth(1).unwrap(),
            r#"{"bench":"mount","case":"read-1m","system":"uvfs","threads":1,"value":20.0,"#
                .to_owned()
                + r#""min":10.0,"max":30.0,"runs":3,"unit":"MiB/s","higher_is_better":true}"#
        );
    }

    #[test]
    fn tables_divide_by_the_first_reference_that_was_measured() {
        let tables = text(|out| two_systems().write_tables(&["bindfs", "host"], out));
        assert!(tables.contains("read-1m [MiB/s, higher is better]"), "{tables}");
        assert!(tables.contains("against host"), "{tables}");
        assert!(tables.lines().any(|line| line.contains("uvfs") && line.ends_with("0.50")));
    }

    #[test]
    fn rows_are_written_once() {
        let mut report = two_systems();
        assert!(!text(|out| report.write_json(out)).is_empty());
        assert!(text(|out| report.write_json(out)).is_empty());
    }

    #[test]
    fn figures_keep_the_digits_that_matter() {
        assert_eq!([12_345.6, 12.34, 1.2345].map(figure), ["12346", "12.3", "1.234"]);
        assert_eq!(rounded(2.634_567_89), 2.634_57);
    }
}
