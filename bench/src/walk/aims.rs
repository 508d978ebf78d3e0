//! The aims of the walk, and whether this run's figures meet them.
//!
//! # Boundary
//! Arithmetic on medians. An aim without figures is "not measured", never "met".
//!
//! # Why
//! Aims that hold for many rows are judged by the worst row, which is named: an average would hide
//! where we lose.

use super::cases::{Sizes, Wanted};
use super::figures::{Figures, figure};
use super::workload::paths::Pattern;
use super::{KERNEL, UVFS};
use std::io::{self, Write};

/// An aim, and the worst that was measured for it.
#[derive(Debug, PartialEq)]
pub(super) struct Aim {
    what: String,
    wanted: f64,
    /// Whether at least or at most.
    more_is_better: bool,
    /// The worst row and its value.
    worst: Option<(String, f64)>,
}

impl Aim {
    fn new(what: &str, wanted: f64, rows: impl IntoIterator<Item = (String, f64)>) -> Self {
        let worst = rows.into_iter().min_by(|one, other| one.1.total_cmp(&other.1));
        Self { what: what.to_owned(), wanted, more_is_better: true, worst }
    }

    /// Whether it is met, if it was measured.
    pub(super) fn is_met(&self) -> Option<bool> {
        let (_, value) = self.worst.as_ref()?;
        Some(if self.more_is_better { *value >= self.wanted } else { *value <= self.wanted })
    }

    fn line(&self) -> String {
        let verdict = match self.is_met() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        };
        let worst = self
            .worst
            .as_ref()
            .map_or_else(String::new, |(row, value)| format!("{} in {row}", figure(*value)));
        format!("  {verdict:<13} {:<58} {worst}", self.what)
    }
}

/// The aims, judged by `figures`.
pub(super) fn judge(figures: &Figures, sizes: Sizes) -> Vec<Aim> {
    let all = Wanted::new(&["d*".to_owned()], sizes).map_or_else(|_| Vec::new(), |all| all.trees());
    let rows = |wanted: Pattern| -> Vec<String> {
        let trees = all.iter().map(|(shape, _)| *shape);
        trees.map(|shape| shape.case(wanted)).collect()
    };
    let both = || Pattern::ALL.into_iter().flat_map(rows);
    let against_maps = |cases: Vec<String>| {
        let ratios = cases.into_iter().flat_map(|case| {
            let threads = figures.threads_of(&case);
            let of = |threads: usize| {
                let (rival, ns) = figures.best_rival(&case, threads)?;
                let ratio = ns / figures.median(&case, UVFS, threads)?;
                Some((format!("{case} on {} against {rival}", counted(threads)), ratio))
            };
            threads.into_iter().filter_map(of).collect::<Vec<_>>()
        });
        ratios.collect::<Vec<_>>()
    };
    let against_kernel = both().filter_map(|case| {
        let ratio = figures.median(&case, KERNEL, 1)? / figures.median(&case, UVFS, 1)?;
        Some((case, ratio))
    });
    let scaling = both().filter_map(|case| {
        let ratio = 2.0 * figures.median(&case, UVFS, 1)? / figures.median(&case, UVFS, 2)?;
        Some((case, ratio))
    });
    let one_file = "fx-MRPH".to_owned();
    let one_file = figures
        .median(&one_file, UVFS, 2)
        .and_then(|two| Some((one_file.clone(), two / figures.median(&one_file, UVFS, 1)?)));
    let bytes = figures.median("bytes-per-name", UVFS, 1);
    vec![
        Aim::new("by components, at least 3 times as fast as the kernel", 3.0, against_kernel),
        Aim::new(
            "hot, at least 1.5 times as fast as the best map",
            1.5,
            against_maps(rows(Pattern::Hot)),
        ),
        Aim::new(
            "uniform, at least 1.2 times as fast as the best map",
            1.2,
            against_maps(rows(Pattern::Uniform)),
        ),
        Aim::new("two threads do at least 1.9 times the walks of one", 1.9, scaling),
        Aim::new("the same with all threads on one file", 1.9, one_file),
        Aim {
            more_is_better: false,
            ..Aim::new(
                "a name with its inode takes at most 320 bytes",
                320.0,
                bytes.map(|bytes| ("bytes-per-name".to_owned(), bytes)),
            )
        },
    ]
}

fn counted(threads: usize) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

/// Writes the verdicts.
pub(super) fn write(figures: &Figures, sizes: Sizes, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\naims (medians of this run; the worst row decides and is named)")?;
    for aim in judge(figures, sizes) {
        writeln!(out, "{}", aim.line().trim_end())?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::super::cases::FULL;
    use super::super::figures::tests::of;
    use super::*;

    fn verdicts(rows: &[(&str, &str, usize, f64)]) -> Vec<Option<bool>> {
        judge(&of(rows), FULL).iter().map(Aim::is_met).collect()
    }

    #[test]
    fn without_figures_nothing_is_met() {
        assert_eq!(verdicts(&[]), [None; 6]);
        let mut text = Vec::new();
        write(&of(&[]), FULL, &mut text).unwrap();
        assert_eq!(String::from_utf8(text).unwrap().matches("not measured").count(), 6);
    }

    #[test]
    fn the_worst_row_decides_and_is_named() {
        let rows = [
            ("d6-n10000-hot", UVFS, 1, 100.0),
            ("d6-n10000-hot", KERNEL, 1, 400.0),
            ("d6-n100000-hot", UVFS, 1, 100.0),
            ("d6-n100000-hot", KERNEL, 1, 299.0),
            ("d6-n100000-hot", "scc", 1, 151.0),
            ("d6-n100000-hot", "papaya", 1, 180.0),
        ];
        assert_eq!(verdicts(&rows)[..2], [Some(false), Some(true)]);
        let line = judge(&of(&rows), FULL)[0].line();
        assert!(line.contains("missed") && line.ends_with("2.990 in d6-n100000-hot"), "{line}");
        let line = judge(&of(&rows), FULL)[1].line();
        assert!(line.ends_with("1.510 in d6-n100000-hot on 1 thread against scc"), "{line}");
    }

    #[test]
    fn scaling_counts_the_walks_of_all_threads() {
        let uniform = |two| {
            verdicts(&[("d1-n100000-uniform", UVFS, 1, 95.0), ("d1-n100000-uniform", UVFS, 2, two)])
                [3]
        };
        assert_eq!((uniform(100.0), uniform(101.0)), (Some(true), Some(false)));
        let file = |two| verdicts(&[("fx-MRPH", UVFS, 1, 1000.0), ("fx-MRPH", UVFS, 2, two)])[4];
        assert_eq!((file(1900.0), file(1899.0)), (Some(true), Some(false)));
    }

    #[test]
    fn fewer_bytes_are_better() {
        let bytes = |value| verdicts(&[("bytes-per-name", UVFS, 1, value)])[5];
        assert_eq!((bytes(320.0), bytes(321.0)), (Some(true), Some(false)));
    }
}
