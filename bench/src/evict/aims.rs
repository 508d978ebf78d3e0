//! Aims of the replacement policy.
//!
//! # Boundary
//! Differences of percentages; the kit judges them.

use super::policies::OPTIMUM;
use crate::aims::{Aim, Wish};
use crate::report::Report;

const UVFS: &str = "uvfs";
/// Those that a page cache might have used instead.
pub(super) const RIVALS: [&str; 3] = ["quick_cache", "moka", "s3-fifo"];

pub(super) fn judge(figures: &Report) -> Vec<Aim> {
    let rows = figures.rows();
    let find = |case: &str, system: &str| figures.median(case, system, 1);
    // Points of ours above the best of `others` that took part.
    let above = |case: &str, others: &[&str]| {
        let best = others
            .iter()
            .filter_map(|system| Some((*system, find(case, system)?)))
            .max_by(|one, other| one.1.total_cmp(&other.1));
        let (system, best) = best?;
        Some((format!("{case} against {system}"), find(case, UVFS)? - best))
    };
    let rivals = |cases: &[&str]| -> Vec<(String, f64)> {
        cases.iter().filter_map(|case| above(case, &RIVALS)).collect()
    };
    // Without the other crates the comparison is incomplete.
    let all_took_part = RIVALS.iter().all(|rival| rows.iter().any(|row| row.key.system == *rival));
    let compared = |cases: &[&str]| if all_took_part { rivals(cases) } else { Vec::new() };
    let mut cases: Vec<&str> = rows.iter().map(|row| row.key.case.as_str()).collect();
    cases.dedup();
    let kept = find("scan-10x", UVFS).map(|percent| ("scan-10x".to_owned(), percent));
    let optimum: Vec<_> = cases.iter().filter_map(|case| above(case, &[OPTIMUM])).collect();
    vec![
        Aim::new(
            "on fixed skew, at most 1 point below the best of rivals",
            Wish::AtLeast(-1.0),
            compared(&["zipf-0.99", "zipf-0.8"]),
        ),
        Aim::new(
            "beside scans in pieces of a page, at least 5 points above them",
            Wish::AtLeast(5.0),
            compared(&["scan-sub-page"]),
        ),
        Aim::new(
            "a scan of ten times the cache leaves 95 % of the hot set",
            Wish::AtLeast(95.0),
            kept,
        ),
        Aim::new("anywhere, points above the best of rivals", Wish::Shown, compared(&cases)),
        Aim::new(
            "anywhere, points above the optimum, which knows the future",
            Wish::Shown,
            optimum,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Unit;

    fn rows(rows: &[(&str, &str, f64)]) -> Report {
        let mut report = Report::new("evict");
        for (case, system, percent) in rows {
            report.sample(case, system, 1, Unit::Percent, *percent);
        }
        report
    }

    fn verdicts(figures: &[(&str, &str, f64)]) -> Vec<&'static str> {
        judge(&rows(figures)).iter().map(Aim::verdict).collect()
    }

    #[test]
    fn without_figures_nothing_is_met() {
        assert_eq!(verdicts(&[]), ["not measured"; 5]);
        let without_crates = [("zipf-0.99", UVFS, 70.0), ("zipf-0.99", "s3-fifo", 60.0)];
        assert_eq!(verdicts(&without_crates)[0], "not measured");
    }

    #[test]
    fn the_worst_trace_decides_and_is_named() {
        let mut figures = vec![
            ("zipf-0.99", UVFS, 77.0),
            ("zipf-0.99", "moka", 77.9),
            ("zipf-0.8", UVFS, 50.0),
            ("zipf-0.8", "quick_cache", 51.1),
            ("zipf-0.8", "s3-fifo", 40.0),
            ("zipf-0.8", OPTIMUM, 60.0),
            ("scan-sub-page", UVFS, 75.0),
            ("scan-sub-page", "quick_cache", 70.0),
            ("scan-10x", UVFS, 94.9),
        ];
        assert_eq!(verdicts(&figures), ["missed", "met", "missed", "no aim", "no aim"]);
        let lines: Vec<String> = judge(&rows(&figures)).iter().map(Aim::line).collect();
        assert!(lines[0].ends_with("-1.100 in zipf-0.8 against quick_cache"), "{lines:?}");
        assert!(lines[4].ends_with("-10.0 in zipf-0.8 against optimum"), "{lines:?}");
        figures[3].2 = 50.9;
        figures[8].2 = 95.0;
        assert_eq!(verdicts(&figures)[..3], ["met", "met", "met"]);
    }
}
