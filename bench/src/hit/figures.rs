//! The figures of a run: kept for the aims, written as lines or as tables.
//!
//! # Boundary
//! [`Report`] writes the lines; the tables here have a column of their own: how many times as good as
//! the first of a case's references that was measured, at the same number of threads.

use super::{FOUND, HASH, HELD, KERNEL, KERNEL_DISK, OURS, REFERENCED, VALIDATED};
use crate::report::{Key, Report, Summary, Unit};
use std::io::{self, Write};

/// Whom one compares with.
const REFERENCES: [&str; 3] = [KERNEL, HASH, KERNEL_DISK];

/// Samples by case, system and threads.
#[derive(Debug, Default)]
pub(super) struct Figures {
    rows: Vec<(Key, Unit, Vec<f64>)>,
    /// Rows before this one are written.
    written: usize,
}

impl Figures {
    /// Adds one sample.
    pub(super) fn sample(
        &mut self,
        case: &str,
        system: &str,
        threads: usize,
        unit: Unit,
        value: f64,
    ) {
        let key = Key { case: case.into(), system: system.into(), threads };
        match self.rows.iter_mut().find(|row| row.0 == key) {
            Some(row) => row.2.push(value),
            None => self.rows.push((key, unit, vec![value])),
        }
    }

    /// The median of a row.
    pub(super) fn median(&self, case: &str, system: &str, threads: usize) -> Option<f64> {
        let is_it = |key: &Key| key.case == case && key.system == system && key.threads == threads;
        let (.., samples) = self.rows.iter().find(|row| is_it(&row.0))?;
        Some(Summary::of(samples)?.median)
    }

    /// How many times as good as `other` `system` is.
    pub(super) fn times(
        &self,
        case: &str,
        system: &str,
        other: &str,
        threads: usize,
    ) -> Option<f64> {
        let (_, unit, _) = self.rows.iter().find(|row| row.0.case == case)?;
        let [own, other] = [system, other].map(|name| self.median(case, name, threads));
        let (own, other) = (own?, other?);
        let (above, below) = if unit.higher_is_better() { (own, other) } else { (other, own) };
        (below > 0.0).then_some(above / below)
    }

    /// All numbers of threads that a case was measured with.
    pub(super) fn threads_of(&self, case: &str) -> Vec<usize> {
        let mut threads: Vec<usize> =
            self.rows.iter().filter(|row| row.0.case == case).map(|row| row.0.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        threads
    }

    /// Writes what is new as one JSON object a row.
    pub(super) fn write_json(&mut self, out: &mut impl Write) -> io::Result<()> {
        let mut report = Report::new("hit");
        for (key, unit, samples) in &self.rows[self.written..] {
            for &value in samples {
                report.sample(&key.case, &key.system, key.threads, *unit, value);
            }
        }
        self.written = self.rows.len();
        report.write_json(out)
    }

    /// Writes what is new as a table a case.
    pub(super) fn write_tables(&mut self, out: &mut impl Write) -> io::Result<()> {
        let mut cases: Vec<&str> = Vec::new();
        for (key, ..) in &self.rows[self.written..] {
            if !cases.contains(&&*key.case) {
                cases.push(&key.case);
            }
        }
        for case in cases {
            self.write_table(case, out)?;
        }
        self.written = self.rows.len();
        out.flush()
    }

    fn write_table(&self, case: &str, out: &mut impl Write) -> io::Result<()> {
        let mut rows: Vec<_> = self.rows.iter().filter(|row| row.0.case == case).collect();
        let Some((_, unit, _)) = rows.first() else { return Ok(()) };
        // Systems take turns at being first; a table has them in one order.
        let first = [OURS, FOUND, HELD, VALIDATED, REFERENCED, KERNEL];
        let rank = |system: &str| first.iter().position(|one| *one == system).unwrap_or(9);
        rows.sort_by_key(|row| (row.0.threads, rank(&row.0.system)));
        let reference =
            REFERENCES.into_iter().find(|one| rows.iter().any(|row| row.0.system == *one));
        let times = reference.map_or_else(String::new, |one| format!("x {one}"));
        let better = if unit.higher_is_better() { "higher is better" } else { "lower is better" };
        writeln!(out, "\n{case} [{}, {better}]", unit.name())?;
        let heads = ["median", "min", "max"];
        let [median, min, max] = heads;
        writeln!(
            out,
            "  {:<16} {:>7} {median:>10} {min:>10} {max:>10} {:>5} {times:>15}",
            "system", "threads", "runs"
        )?;
        for (key, _, samples) in rows {
            let Some(Summary { median, min, max }) = Summary::of(samples) else { continue };
            let times = reference.and_then(|one| self.times(case, &key.system, one, key.threads));
            let times = times.map_or_else(String::new, |times| format!("{times:.2}"));
            let [median, min, max] = [median, min, max].map(figure);
            writeln!(
                out,
                "  {:<16} {:>7} {median:>10} {min:>10} {max:>10} {:>5} {times:>15}",
                key.system,
                key.threads,
                samples.len()
            )?;
        }
        Ok(())
    }
}

/// Three or four digits that mean something.
pub(super) fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Figures of one sample a row.
    pub(crate) fn of(unit: Unit, rows: &[(&str, &str, usize, f64)]) -> Figures {
        let mut figures = Figures::default();
        for (case, system, threads, value) in rows {
            figures.sample(case, system, *threads, unit, *value);
        }
        figures
    }

    fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn tables_compare_at_the_same_number_of_threads() {
        let rows = [("c", HASH, 1, 10.0), ("c", OURS, 2, 60.0), ("c", OURS, 1, 30.0)];
        let mut figures = of(Unit::ThousandsPerSecond, &rows);
        let table = written(|out| figures.write_tables(out));
        let rows: Vec<Vec<&str>> =
            table.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], [OURS, "1", "30.0", "30.0", "30.0", "1", "3.00"]);
        assert_eq!(rows[1][..2], [HASH, "1"]);
        assert_eq!(rows[2].len(), 6, "nothing to compare with");
        assert!(table.contains("x quick_cache"), "{table}");
        assert!(written(|out| figures.write_tables(out)).is_empty(), "written once");
    }

    #[test]
    fn less_is_better_where_it_is() {
        let rows = [("c", KERNEL, 1, 3.0), ("c", OURS, 1, 2.0)];
        assert_eq!(of(Unit::Seconds, &rows).times("c", OURS, KERNEL, 1), Some(1.5));
        assert_eq!(of(Unit::ThousandsPerSecond, &rows).times("c", KERNEL, OURS, 1), Some(1.5));
        assert_eq!(of(Unit::Seconds, &rows).times("c", OURS, KERNEL, 2), None);
    }

    #[test]
    fn lines_are_those_of_all_benches() {
        let mut figures = of(Unit::ThousandsPerSecond, &[("lookup-zipf-1024", OURS, 1, 60.0)]);
        let line = written(|out| figures.write_json(out));
        assert!(line.starts_with("{\"bench\":\"hit\",\"case\":\"lookup-zipf-1024\""), "{line}");
        assert!(written(|out| figures.write_json(out)).is_empty(), "written once");
    }
}
