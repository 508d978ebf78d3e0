//! The paper's figures 1 and 2 as SVG, and the first one as text.
//!
//! # Boundary
//! Pictures from figures; written by hand, as all charts here.

use std::fmt::Write as _;
use uvfs_contention::analysis::histogram::class_name;
use uvfs_contention::analysis::{Histogram, Structures};

const COLOURS: [&str; 5] = ["#0072b2", "#009e73", "#56b4e9", "#e69f00", "#d55e00"];
/// Columns of the histogram.
const COLUMNS: usize = 64;
/// Rows of the text.
const BARS: usize = 24;

/// Misses by latency in equal columns: of each class its colour and its columns; and cycles of a column.
fn columns(found: &Histogram, with_queue: bool, count: usize) -> (Vec<(usize, Vec<f64>)>, u64) {
    let series = || found.series.iter().filter(|one| one.with_queue == with_queue);
    // Values beyond the last thousandth are put into the last column.
    let mut all: Vec<(u64, f64)> = series().flat_map(|one| one.buckets.iter().copied()).collect();
    all.sort_by_key(|(at, _)| *at);
    let total: f64 = all.iter().map(|(_, misses)| misses).sum();
    let mut sum = 0.0;
    let end = all.iter().find(|(_, misses)| {
        sum += misses;
        sum >= 0.999 * total
    });
    let width = end.map_or(1, |(at, _)| at / count as u64 + 1);
    let spread = |buckets: &[(u64, f64)]| {
        let mut columns = vec![0.0; count];
        for (at, misses) in buckets {
            let column = usize::try_from(at / width).unwrap_or(usize::MAX).min(count - 1);
            columns[column] += misses;
        }
        columns
    };
    (series().map(|one| (one.class as usize, spread(&one.buckets))).collect(), width)
}

/// Figure 1 in characters: latencies with the wait for the line.
pub(super) fn histogram_text(found: &Histogram) -> String {
    let mut text = String::from("\n```text\ncycles     misses\n");
    let (classes, width) = columns(found, true, BARS);
    let sums: Vec<f64> =
        (0..BARS).map(|at| classes.iter().map(|(_, columns)| columns[at]).sum()).collect();
    let most = sums.iter().copied().fold(1.0, f64::max);
    for (at, sum) in sums.iter().enumerate() {
        let length = (sum / most * 50.0).round() as usize;
        let _ = writeln!(text, "{:>7}  {:>9.0} {}", at as u64 * width, sum, "#".repeat(length));
    }
    text + "```\n"
}

/// Figure 1: above without the wait for the line, where the classes are peaks; below with it.
pub(super) fn histogram_svg(found: &Histogram) -> String {
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 600\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"760\" height=\"600\" fill=\"white\"/>\n",
    );
    for (with_queue, top, title) in [
        (false, 30.0, "Misses by cycles of service"),
        (true, 320.0, "Misses by cycles, with the wait for the line"),
    ] {
        let (classes, width) = columns(found, with_queue, COLUMNS);
        let height = |at: usize| -> f64 { classes.iter().map(|(_, columns)| columns[at]).sum() };
        let most = (0..COLUMNS).map(height).fold(1.0, f64::max);
        let _ = writeln!(svg, "<text x=\"60\" y=\"{}\" font-size=\"16\">{title}</text>", top + 6.0);
        let bottom = top + 220.0;
        for at in 0..COLUMNS {
            let x = 60.0 + 10.0 * at as f64;
            let mut y = bottom;
            for (class, columns) in &classes {
                let tall = columns[at] / most * 190.0;
                if tall <= 0.0 {
                    continue;
                }
                y -= tall;
                let _ = writeln!(
                    svg,
                    "<rect x=\"{x:.1}\" y=\"{y:.2}\" width=\"9\" height=\"{tall:.2}\" fill=\"{}\"/>",
                    COLOURS[class % COLOURS.len()]
                );
            }
            if at % 8 == 0 {
                let _ = writeln!(
                    svg,
                    "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                    bottom + 18.0,
                    at as u64 * width
                );
            }
        }
        let _ = writeln!(
            svg,
            "<line x1=\"60\" x2=\"700\" y1=\"{bottom}\" y2=\"{bottom}\" stroke=\"#222222\"/>\
             <text x=\"54\" y=\"{:.1}\" text-anchor=\"end\">{most:.0}</text>",
            bottom - 190.0
        );
    }
    for (at, class) in found.classes.iter().enumerate() {
        let y = 60.0 + 20.0 * at as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"590\" y=\"{y}\" width=\"13\" height=\"13\" fill=\"{}\"/><text x=\"610\" y=\"{}\">{}</text>",
            COLOURS[class.class as usize % COLOURS.len()],
            y + 11.0,
            class_name(class.class)
        );
    }
    svg + "</svg>\n"
}

/// Figure 2: a bar for each structure, in its subsystem's colour.
pub(super) fn structures_svg(found: &Structures) -> String {
    let rows: usize = found.subsystems.iter().map(|one| one.structures.len().min(8)).sum();
    let height = 60 + 20 * rows;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 {height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"760\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"20\" y=\"26\" font-size=\"16\">Dearest structures, by share of all latency</text>\n"
    );
    let most = found.by_weight().first().map_or(1.0, |one| one.share.mean.max(1e-9));
    let mut y = 44;
    for (nth, subsystem) in found.subsystems.iter().enumerate() {
        for one in subsystem.structures.iter().take(8) {
            let long = one.share.mean / most * 320.0;
            let name = format!("{}: {}", subsystem.name, one.name);
            let _ = writeln!(
                svg,
                "<text x=\"330\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"340\" y=\"{y}\" \
                 width=\"{long:.1}\" height=\"15\" fill=\"{}\"/><text x=\"{:.1}\" y=\"{}\">{:.1} %</text>",
                y + 12,
                name.replace('&', "&amp;").replace('<', "&lt;"),
                COLOURS[nth % COLOURS.len()],
                346.0 + long,
                y + 12,
                one.share.mean * 100.0
            );
            y += 20;
        }
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvfs_coherence::profile::Class;
    use uvfs_contention::analysis::Estimate;
    use uvfs_contention::analysis::histogram::Series;

    #[test]
    fn every_miss_is_in_a_column() {
        let none = Estimate::of(&[0.0]);
        let buckets = vec![(0, 5.0), (100, 3.0), (100_000, 0.001)];
        let found = Histogram {
            classes: Vec::new(),
            local_misses: none,
            local_latency: none,
            transfer_misses: none,
            transfer_latency: none,
            series: vec![Series {
                class: Class::LocalTransfer,
                with_queue: true,
                width: 10,
                buckets,
            }],
        };
        let (classes, width) = columns(&found, true, 10);
        assert_eq!(width, 11);
        assert_eq!(classes[0].1.iter().sum::<f64>(), 8.001);
        assert!(histogram_text(&found).contains("5 #"));
    }
}
