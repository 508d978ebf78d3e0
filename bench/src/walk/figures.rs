//! The figures of a run: kept for the summary, written as lines or as tables.
//!
//! # Boundary
//! [`Report`] writes the lines; the tables here have columns of their own: how many times as good as
//! the kernel, as the best map that is a name cache, and as the best that cuts names, each at the same
//! number of threads.

use super::cases::{CURVE_DEPTH, Shape};
use super::workload::paths::Pattern;
use super::{BOUNDS, KERNEL, RIVALS, UVFS, UVFS_WHOLE};
use crate::report::{Key, Report, Summary, Unit};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Samples by case, system and threads, in the order of their first.
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

    /// The best of `maps` in a case, by its median.
    pub(super) fn best(
        &self,
        maps: &[&'static str],
        case: &str,
        threads: usize,
    ) -> Option<(&'static str, f64)> {
        let (_, unit, _) = self.rows.iter().find(|row| row.0.case == case)?;
        let of = |name: &&'static str| Some((*name, self.median(case, name, threads)?));
        let medians = maps.iter().filter_map(of);
        match unit.higher_is_better() {
            true => medians.max_by(|one, other| one.1.total_cmp(&other.1)),
            false => medians.min_by(|one, other| one.1.total_cmp(&other.1)),
        }
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
        let mut report = Report::new("walk");
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
        let mut cases: Vec<&str> =
            self.rows[self.written..].iter().map(|row| &*row.0.case).collect();
        let mut seen = BTreeSet::new();
        cases.retain(|case| seen.insert(*case));
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
        let rank = |system: &str| match system {
            UVFS => 0,
            UVFS_WHOLE => 1,
            KERNEL => 3,
            map if RIVALS.contains(&map) => 4,
            map if BOUNDS.contains(&map) => 5,
            _ => 2,
        };
        rows.sort_by_key(|row| (row.0.threads, rank(&row.0.system), row.0.system.clone()));
        let better = if unit.higher_is_better() { "higher is better" } else { "lower is better" };
        writeln!(out, "\n{case} [{}, {better}]", unit.name())?;
        writeln!(
            out,
            "  {:<16} {:>7} {:>10} {:>10} {:>10} {:>5} {:>9} {:>10} {:>9}",
            "system",
            "threads",
            "median",
            "min",
            "max",
            "runs",
            "x kernel",
            "x best map",
            "x inline"
        )?;
        for (key, unit, samples) in rows {
            let Some(Summary { median, min, max }) = Summary::of(samples) else { continue };
            let times = |reference: Option<f64>| match reference {
                Some(reference) if median > 0.0 && reference > 0.0 => match unit.higher_is_better()
                {
                    true => format!("{:.2}", median / reference),
                    false => format!("{:.2}", reference / median),
                },
                _ => String::new(),
            };
            let kernel = times(self.median(case, KERNEL, key.threads));
            let best = times(self.best(&RIVALS, case, key.threads).map(|best| best.1));
            let bound = times(self.best(&BOUNDS, case, key.threads).map(|best| best.1));
            let is_bound = BOUNDS.contains(&&*key.system);
            let note = if is_bound {
                "  names cut at 23 bytes: not a name cache; shown as a bound"
            } else {
                ""
            };
            let [median, min, max] = [median, min, max].map(figure);
            writeln!(
                out,
                "  {:<16} {:>7} {median:>10} {min:>10} {max:>10} {:>5} {kernel:>9} {best:>10} \
                 {bound:>9}{note}",
                key.system,
                key.threads,
                samples.len()
            )?;
        }
        Ok(())
    }

    /// Writes what a component costs as the tree grows, one thread.
    pub(super) fn write_curve(&self, sizes: &[u64], out: &mut impl Write) -> io::Result<()> {
        for pattern in Pattern::ALL {
            let case_of = |names| Shape { depth: CURVE_DEPTH, names }.case(pattern);
            let columns: Vec<u64> = sizes
                .iter()
                .copied()
                .filter(|&names| self.median(&case_of(names), UVFS, 1).is_some())
                .collect();
            if columns.len() < 2 {
                continue;
            }
            let name = pattern.name();
            writeln!(
                out,
                "\nwhat a component costs, depth {CURVE_DEPTH}, {name}, one thread [ns]"
            )?;
            write!(out, "  {:<16}", "names")?;
            columns.iter().try_for_each(|names| write!(out, " {names:>10}"))?;
            writeln!(out)?;
            for system in [UVFS, UVFS_WHOLE, KERNEL].iter().chain(&RIVALS).chain(&BOUNDS) {
                let medians: Vec<Option<f64>> =
                    columns.iter().map(|&names| self.median(&case_of(names), system, 1)).collect();
                if medians.iter().all(Option::is_none) {
                    continue;
                }
                write!(out, "  {system:<16}")?;
                for median in medians {
                    let cost = median.map(|ns| figure(ns / CURVE_DEPTH as f64));
                    write!(out, " {:>10}", cost.unwrap_or_default())?;
                }
                writeln!(out)?;
            }
        }
        writeln!(
            out,
            "  (a step up is a level of the caches left behind: each line that a component touches\n   \
             then comes from further away; hot trees should show none)"
        )
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

    /// Figures of one sample a row, in nanoseconds a walk.
    pub(crate) fn of(rows: &[(&str, &str, usize, f64)]) -> Figures {
        let mut figures = Figures::default();
        for (case, system, threads, value) in rows {
            figures.sample(case, system, *threads, Unit::NanosecondsPerWalk, *value);
        }
        figures
    }

    fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn tables_divide_by_the_kernel_and_by_the_best_rival_of_the_same_threads() {
        let mut figures = of(&[
            ("c", "papaya", 1, 150.0),
            ("c", "scc", 1, 120.0),
            ("c", KERNEL, 1, 480.0),
            ("c", BOUNDS[0], 1, 90.0),
            ("c", UVFS_WHOLE, 1, 40.0),
            ("c", UVFS, 1, 60.0),
            ("c", UVFS, 2, 61.0),
        ]);
        assert_eq!(figures.best(&RIVALS, "c", 1), Some(("scc", 120.0)), "a bound is no rival");
        assert_eq!(figures.best(&RIVALS, "c", 2), None);
        let table = written(|out| figures.write_tables(out));
        let rows: Vec<Vec<&str>> =
            table.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["uvfs", "1", "60.0", "60.0", "60.0", "1", "8.00", "2.00", "1.50"]);
        let order: Vec<&str> = rows.iter().map(|row| row[0]).collect();
        assert_eq!(order, [UVFS, UVFS_WHOLE, KERNEL, "papaya", "scc", BOUNDS[0], UVFS]);
        assert!(rows[5].join(" ").ends_with("not a name cache; shown as a bound"), "{table}");
        assert_eq!(rows[6].len(), 6, "nothing to compare with");
        assert!(written(|out| figures.write_tables(out)).is_empty(), "written once");
    }

    #[test]
    fn lines_are_those_of_all_benches() {
        let mut figures = of(&[("d6-n10000-hot", UVFS, 1, 60.0)]);
        assert_eq!(
            written(|out| figures.write_json(out)),
            "{\"bench\":\"walk\",\"case\":\"d6-n10000-hot\",\"system\":\"uvfs\",\"threads\":1,\
             \"value\":60.0,\"min\":60.0,\"max\":60.0,\"runs\":1,\"unit\":\"ns/walk\",\
             \"higher_is_better\":false}\n"
        );
        assert!(written(|out| figures.write_json(out)).is_empty(), "written once");
    }

    #[test]
    fn the_curve_shows_the_cost_of_a_component_by_size() {
        let figures = of(&[
            ("d6-n10000-hot", UVFS, 1, 60.0),
            ("d6-n100000-hot", UVFS, 1, 120.0),
            ("d6-n10000-uniform", UVFS, 1, 60.0),
        ]);
        let curve = written(|out| figures.write_curve(&[10_000, 100_000, 1_000_000], out));
        let row = curve.lines().find(|line| line.contains("uvfs")).unwrap();
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["uvfs", "10.0", "20.0"]);
        assert!(!curve.contains("uniform"), "one size is no curve: {curve}");
    }
}
