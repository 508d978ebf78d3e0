//! What is wanted of the replacement policy, and whether this run's figures meet it.
//!
//! # Boundary
//! Differences of percentages. An aim without figures is "not measured", never "met".

use super::Row;
use super::policies::OPTIMUM;
use std::io::{self, Write};

const UVFS: &str = "uvfs";
/// Those that a page cache might have used instead.
const RIVALS: [&str; 3] = ["quick_cache", "moka", "s3-fifo"];

/// An aim: at least so many points, and the worst row.
#[derive(Debug, PartialEq)]
struct Aim {
    what: &'static str,
    at_least: Option<f64>,
    worst: Option<(String, f64)>,
}

impl Aim {
    fn new(
        what: &'static str,
        at_least: Option<f64>,
        rows: impl IntoIterator<Item = (String, f64)>,
    ) -> Self {
        let worst = rows.into_iter().min_by(|one, other| one.1.total_cmp(&other.1));
        Self { what, at_least, worst }
    }

    fn verdict(&self) -> &'static str {
        match (&self.worst, self.at_least) {
            (None, _) => "not measured",
            (Some(_), None) => "no aim",
            (Some((_, value)), Some(wanted)) if *value >= wanted => "met",
            _ => "missed",
        }
    }

    fn line(&self) -> String {
        let worst = self.worst.as_ref().map(|(row, value)| format!("{value:.1} in {row}"));
        let worst = worst.unwrap_or_default();
        format!("  {:<13} {:<64} {worst}", self.verdict(), self.what).trim_end().to_owned()
    }
}

fn judge(rows: &[Row]) -> Vec<Aim> {
    let find = |case: &str, system: &str| {
        rows.iter().find(|row| row.0 == case && row.1 == system).map(|row| row.2)
    };
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
    // Without the other crates the comparison says little.
    let all_took_part = RIVALS.iter().all(|rival| rows.iter().any(|row| row.1 == *rival));
    let compared = |cases: &[&str]| if all_took_part { rivals(cases) } else { Vec::new() };
    let mut cases: Vec<&str> = rows.iter().map(|row| row.0.as_str()).collect();
    cases.dedup();
    let kept = find("scan-10x", UVFS).map(|percent| ("scan-10x".to_owned(), percent));
    let optimum: Vec<_> = cases.iter().filter_map(|case| above(case, &[OPTIMUM])).collect();
    vec![
        Aim::new(
            "on fixed skew, at most 1 point below the best of rivals",
            Some(-1.0),
            compared(&["zipf-0.99", "zipf-0.8"]),
        ),
        Aim::new(
            "beside scans in pieces of a page, at least 5 points above them",
            Some(5.0),
            compared(&["scan-sub-page"]),
        ),
        Aim::new("a scan of ten times the cache leaves 95 % of the hot set", Some(95.0), kept),
        Aim::new("anywhere, points above the best of rivals", None, compared(&cases)),
        Aim::new("anywhere, points above who knows the future", None, optimum),
    ]
}

/// Writes the verdicts.
pub(super) fn write(rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\naims (rivals: {}; the worst trace decides and is named)", RIVALS.join(", "))?;
    for aim in judge(rows) {
        writeln!(out, "{}", aim.line())?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[(&str, &str, f64)]) -> Vec<Row> {
        rows.iter().map(|row| (row.0.to_owned(), row.1.to_owned(), row.2)).collect()
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
        assert!(lines[0].ends_with("-1.1 in zipf-0.8 against quick_cache"), "{lines:?}");
        assert!(lines[4].ends_with("-10.0 in zipf-0.8 against optimum"), "{lines:?}");
        figures[3].2 = 50.9;
        figures[8].2 = 95.0;
        assert_eq!(verdicts(&figures)[..3], ["met", "met", "met"]);
    }
}
