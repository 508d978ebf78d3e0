//! From samples to medians with spread, as tables or as one JSON object per line.
//!
//! # Boundary
//! Knows numbers and names, not how they were measured. The JSON fields are the format that all
//! benches of this project share; programs read it, so fields are added and never renamed.
//!
//! # Why
//! Medians, because one run disturbed by another program should not move the figure; minimum and
//! maximum beside it, because the spread shows how far to trust it. A table's last columns compare
//! with rivals of the same run: only ratios survive this machine's noise.

use serde::Serialize;
use std::io::{self, Write};

/// The quantity of a sample, and whether more or less is better.
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
    /// A share in hundredths.
    Percent,
    /// Mebibytes of memory.
    Mebibytes,
    /// Memory in hundredths of the limit; less is better.
    PercentOfSize,
    /// CPU time in hundredths of one core; less is better.
    PercentOfCore,
    /// Accesses that asked the store, in hundredths; fewer are better.
    PercentOfAccesses,
    /// Entries of a cache; fewer are better.
    Entries,
    /// Acquisitions that found the lock held, in hundredths; fewer are better.
    PercentContended,
    /// How many times as long something takes beside something else.
    Slowdown,
}

impl Unit {
    /// Name in the lines and tables.
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
            Unit::PercentOfCore => "percent-of-core",
            Unit::PercentContended => "percent-contended",
            Unit::PercentOfAccesses => "percent-of-accesses",
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

    /// How many times as good as `other` `own` is.
    pub fn times(self, own: f64, other: f64) -> Option<f64> {
        let (above, below) = if self.higher_is_better() { (own, other) } else { (other, own) };
        (below > 0.0).then(|| above / below)
    }
}

/// The subject of a figure: the first three fields of a line.
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

/// One figure: its subject, its unit, and every sample.
#[derive(Debug, Clone)]
pub struct Row {
    /// The subject.
    pub key: Key,
    /// Unit of the samples.
    pub unit: Unit,
    /// In the order in which they were taken.
    pub samples: Vec<f64>,
}

impl Row {
    /// Median and spread.
    pub fn summary(&self) -> Option<Summary> {
        Summary::of(&self.samples)
    }
}

/// The figures of one bench: kept for its aims, and written once, as lines or as tables.
#[derive(Debug)]
pub struct Report {
    bench: &'static str,
    rows: Vec<Row>,
    /// Rows before this one are written.
    written: usize,
}

impl Report {
    /// An empty report of `bench`.
    pub fn new(bench: &'static str) -> Self {
        Self { bench, rows: Vec::new(), written: 0 }
    }

    /// Adds one sample.
    pub fn sample(&mut self, case: &str, system: &str, threads: usize, unit: Unit, value: f64) {
        let key = Key { case: case.into(), system: system.into(), threads };
        match self.rows[self.written..].iter_mut().find(|row| row.key == key) {
            Some(row) => row.samples.push(value),
            None => self.rows.push(Row { key, unit, samples: vec![value] }),
        }
    }

    /// All rows, in the order of their first samples.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Those that are not written.
    pub fn fresh(&self) -> &[Row] {
        &self.rows[self.written..]
    }

    /// Median and spread of one row.
    pub fn summary(&self, case: &str, system: &str, threads: usize) -> Option<Summary> {
        let is_it = |key: &Key| key.case == case && key.system == system && key.threads == threads;
        self.rows.iter().find(|row| is_it(&row.key))?.summary()
    }

    /// The median of one row.
    pub fn median(&self, case: &str, system: &str, threads: usize) -> Option<f64> {
        Some(self.summary(case, system, threads)?.median)
    }

    /// The best of `systems` in a case, by its median.
    pub fn best<'s>(
        &self,
        systems: &[&'s str],
        case: &str,
        threads: usize,
    ) -> Option<(&'s str, f64)> {
        let unit = self.unit(case)?;
        let of = |name: &&'s str| Some((*name, self.median(case, name, threads)?));
        let medians = systems.iter().filter_map(of);
        match unit.higher_is_better() {
            true => medians.max_by(|one, other| one.1.total_cmp(&other.1)),
            false => medians.min_by(|one, other| one.1.total_cmp(&other.1)),
        }
    }

    /// How many times as good as `other` `system` is.
    pub fn times(&self, case: &str, system: &str, other: &str, threads: usize) -> Option<f64> {
        let [own, other] = [system, other].map(|name| self.median(case, name, threads));
        self.unit(case)?.times(own?, other?)
    }

    /// All numbers of threads that a case was measured with.
    pub fn threads_of(&self, case: &str) -> Vec<usize> {
        let rows = self.rows.iter().filter(|row| row.key.case == case);
        let mut threads: Vec<usize> = rows.map(|row| row.key.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        threads
    }

    fn unit(&self, case: &str) -> Option<Unit> {
        Some(self.rows.iter().find(|row| row.key.case == case)?.unit)
    }

    /// Writes each new row as one JSON object.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_json(&mut self, out: &mut impl Write) -> io::Result<()> {
        for Row { key, unit, samples } in self.fresh() {
            let Some(summary) = Summary::of(samples) else { continue };
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
        self.written = self.rows.len();
        out.flush()
    }

    /// Writes the new rows as a table for each case that `is_wanted`.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_tables(
        &mut self,
        layout: &Layout<'_>,
        is_wanted: impl Fn(&str) -> bool,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let mut cases: Vec<&str> = Vec::new();
        for row in self.fresh() {
            if !cases.contains(&&*row.key.case) && is_wanted(&row.key.case) {
                cases.push(&row.key.case);
            }
        }
        for case in cases {
            self.write_table(case, layout, out)?;
        }
        self.written = self.rows.len();
        out.flush()
    }

    fn write_table(&self, case: &str, layout: &Layout<'_>, out: &mut impl Write) -> io::Result<()> {
        let mut rows: Vec<&Row> = self.fresh().iter().filter(|row| row.key.case == case).collect();
        let Some(unit) = rows.first().map(|row| row.unit) else { return Ok(()) };
        // Systems take turns at being first; a table has them in one order.
        let rank = |system: &str| layout.order.iter().position(|one| *one == system);
        rows.sort_by_key(|row| (row.key.threads, rank(&row.key.system).unwrap_or(usize::MAX)));
        let better = if unit.higher_is_better() { "higher is better" } else { "lower is better" };
        writeln!(out, "\n{case} [{}, {better}]", unit.name())?;
        let titles: String =
            layout.columns.iter().map(|one| format!(" {:>15}", one.title(&rows))).collect();
        let heads = format!(
            "  {:<26} {:>7} {:>10} {:>10} {:>10} {:>5}{titles}",
            "system", "threads", "median", "min", "max", "runs"
        );
        writeln!(out, "{}", heads.trim_end())?;
        for row in &rows {
            let Some(summary) = row.summary() else { continue };
            let [median, min, max] = [summary.median, summary.min, summary.max].map(figure);
            let cells = layout.columns.iter().map(|one| one.cell(self, &rows, row, summary.median));
            let cells: String = cells.map(|cell| format!(" {cell:>15}")).collect();
            let (system, threads, runs) = (&row.key.system, row.key.threads, row.samples.len());
            let note = layout.notes.iter().find(|note| note.0 == system);
            let line = format!(
                "  {system:<26} {threads:>7} {median:>10} {min:>10} {max:>10} {runs:>5}{cells}  {}",
                note.map_or("", |note| note.1)
            );
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// How tables look.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layout<'a> {
    /// Systems, the first one first; others follow.
    pub order: &'a [&'a str],
    /// Behind median and spread.
    pub columns: &'a [Column<'a>],
    /// Systems, and the notes behind their rows.
    pub notes: &'a [(&'a str, &'a str)],
}

/// A column that compares.
#[derive(Debug, Clone, Copy)]
pub enum Column<'a> {
    /// The median, divided by that of the first of these that was measured in the case.
    Against(&'a [&'a str]),
    /// How many times as good as the first of these that was measured in the case, with as many threads.
    Times(&'a [&'a str]),
    /// The ratio to the best of these, with as many threads; the title comes first.
    TimesBest(&'a str, &'a [&'a str]),
}

impl Column<'_> {
    fn title(&self, rows: &[&Row]) -> String {
        let named = |word: &str, among| {
            first_of(among, rows)
                .map_or_else(String::new, |row| format!("{word} {}", row.key.system))
        };
        match self {
            Column::Against(among) => named("against", among),
            Column::Times(among) => named("x", among),
            Column::TimesBest(title, _) => (*title).to_owned(),
        }
    }

    fn cell(&self, report: &Report, rows: &[&Row], row: &Row, median: f64) -> String {
        let (case, threads) = (&*row.key.case, row.key.threads);
        let value = match self {
            Column::Against(among) => first_of(among, rows)
                .and_then(Row::summary)
                .filter(|reference| reference.median > 0.0)
                .map(|reference| median / reference.median),
            Column::Times(among) => first_of(among, rows)
                .and_then(|other| report.times(case, &row.key.system, &other.key.system, threads)),
            Column::TimesBest(_, among) => {
                report.best(among, case, threads).and_then(|best| row.unit.times(median, best.1))
            }
        };
        value.map_or_else(String::new, |value| format!("{value:.2}"))
    }
}

fn first_of<'r>(among: &[&str], rows: &[&'r Row]) -> Option<&'r Row> {
    among.iter().find_map(|name| rows.iter().find(|row| row.key.system == *name).copied())
}

/// Median, minimum and maximum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The median; of an even number of samples, the mean of the middle two.
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
        let tables = text(|out| {
            let columns = [Column::Against(&["bindfs", "host"])];
            two_systems().write_tables(
                &Layout { columns: &columns, ..Layout::default() },
                |_| true,
                out,
            )
        });
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
    fn columns_compare_at_the_same_number_of_threads() {
        let mut report = Report::new("hit");
        for (system, threads, value) in
            [("moka", 1, 10.0), ("lru", 1, 15.0), ("uvfs", 2, 60.0), ("uvfs", 1, 30.0)]
        {
            report.sample("c", system, threads, Unit::ThousandsPerSecond, value);
        }
        let among: &[&str] = &["scc", "moka", "lru"];
        let layout = Layout {
            order: &["uvfs"],
            columns: &[Column::Times(among), Column::TimesBest("x best", among)],
            notes: &[("lru", "a bound")],
        };
        assert_eq!(report.best(among, "c", 1), Some(("lru", 15.0)));
        assert_eq!(report.best(among, "c", 2), None);
        let table = text(|out| report.write_tables(&layout, |_| true, out));
        let rows: Vec<Vec<&str>> =
            table.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["uvfs", "1", "30.0", "30.0", "30.0", "1", "3.00", "2.00"]);
        assert_eq!(rows[1][..2], ["moka", "1"]);
        assert!(rows[2].join(" ").ends_with("a bound"), "{table}");
        assert_eq!(rows[3].len(), 6, "nothing to compare with: {table}");
        assert!(table.contains("x moka") && table.contains("x best"), "{table}");
        assert!(text(|out| report.write_tables(&layout, |_| true, out)).is_empty(), "written once");
    }

    #[test]
    fn less_is_better_where_it_is() {
        assert_eq!(Unit::Seconds.times(2.0, 3.0), Some(1.5));
        assert_eq!(Unit::ThousandsPerSecond.times(3.0, 2.0), Some(1.5));
        assert_eq!(Unit::Seconds.times(0.0, 1.0), None);
    }

    #[test]
    fn figures_keep_the_digits_that_matter() {
        assert_eq!([12_345.6, 12.34, 1.2345].map(figure), ["12346", "12.3", "1.234"]);
        assert_eq!(rounded(2.634_567_89), 2.634_57);
    }
}
