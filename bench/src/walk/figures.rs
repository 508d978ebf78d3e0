//! Layout of the figures of walks: the columns of a table, and the cost of a component.
//!
//! # Boundary
//! [`Report`] keeps and writes figures. This module chooses the comparisons: the kernel, the best map that is a name
//! cache, and the best that cuts names, each at the same number of threads.

use super::cases::{CURVE_DEPTH, Shape};
use super::{BOUNDS, KERNEL, RIVALS, UVFS, UVFS_WHOLE};
use crate::report::{Column, Layout, Report, figure};
use std::io::{self, Write};
use uvfs_bench_workload::paths::Pattern;

const IS_A_BOUND: &str = "names cut at 23 bytes: not a name cache; shown as a bound";

/// Layout of the tables.
pub(super) const LAYOUT: Layout<'static> = Layout {
    order: &[
        UVFS, UVFS_WHOLE, KERNEL, RIVALS[0], RIVALS[1], RIVALS[2], RIVALS[3], BOUNDS[0], BOUNDS[1],
    ],
    columns: &[
        Column::TimesBest("x kernel", &[KERNEL]),
        Column::TimesBest("x best map", &RIVALS),
        Column::TimesBest("x inline", &BOUNDS),
    ],
    notes: &[(BOUNDS[0], IS_A_BOUND), (BOUNDS[1], IS_A_BOUND)],
};

/// Writes the cost of a component as the tree grows, one thread.
pub(super) fn write_curve(figures: &Report, sizes: &[u64], out: &mut impl Write) -> io::Result<()> {
    for pattern in Pattern::ALL {
        let case_of = |names| Shape { depth: CURVE_DEPTH, names }.case(pattern);
        let columns: Vec<u64> = sizes
            .iter()
            .copied()
            .filter(|&names| figures.median(&case_of(names), UVFS, 1).is_some())
            .collect();
        if columns.len() < 2 {
            continue;
        }
        let name = pattern.name();
        writeln!(out, "\nwhat a component costs, depth {CURVE_DEPTH}, {name}, one thread [ns]")?;
        write!(out, "  {:<16}", "names")?;
        columns.iter().try_for_each(|names| write!(out, " {names:>10}"))?;
        writeln!(out)?;
        for system in [UVFS, UVFS_WHOLE, KERNEL].iter().chain(&RIVALS).chain(&BOUNDS) {
            let medians: Vec<Option<f64>> =
                columns.iter().map(|&names| figures.median(&case_of(names), system, 1)).collect();
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::report::Unit;

    /// Figures of one sample a row, in nanoseconds a walk.
    pub(crate) fn of(rows: &[(&str, &str, usize, f64)]) -> Report {
        let mut figures = Report::new("walk");
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
        let table = written(|out| figures.write_tables(&LAYOUT, |_| true, out));
        let rows: Vec<Vec<&str>> =
            table.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["uvfs", "1", "60.0", "60.0", "60.0", "1", "8.00", "2.00", "1.50"]);
        let order: Vec<&str> = rows.iter().map(|row| row[0]).collect();
        assert_eq!(order, [UVFS, UVFS_WHOLE, KERNEL, "papaya", "scc", BOUNDS[0], UVFS]);
        assert!(rows[5].join(" ").ends_with("not a name cache; shown as a bound"), "{table}");
        assert_eq!(rows[6].len(), 6, "nothing to compare with");
        assert!(
            written(|out| figures.write_tables(&LAYOUT, |_| true, out)).is_empty(),
            "written once"
        );
    }

    #[test]
    fn the_curve_shows_the_cost_of_a_component_by_size() {
        let figures = of(&[
            ("d6-n10000-hot", UVFS, 1, 60.0),
            ("d6-n100000-hot", UVFS, 1, 120.0),
            ("d6-n10000-uniform", UVFS, 1, 60.0),
        ]);
        let curve = written(|out| write_curve(&figures, &[10_000, 100_000, 1_000_000], out));
        let row = curve.lines().find(|line| line.contains("uvfs")).unwrap();
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["uvfs", "10.0", "20.0"]);
        assert!(!curve.contains("uniform"), "one size is no curve: {curve}");
    }
}
