//! The paper's figures 1 to 6 anew, as bars of text and as SVG.
//!
//! # Boundary
//! Turns numbers by system and threads into charts. [`uvfs_bench_kit::chart`] draws them.

use super::loads::Kind;
use super::measure::Variant;
use super::results::{Measure, Results};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use uvfs_bench_kit::chart::{Chart, Series};

/// Writes the charts to `out`, and as files into `folder` if there is one.
pub(super) fn write(
    results: &Results,
    variants: &[Variant],
    threads: &[usize],
    folder: Option<&Path>,
    out: &mut impl Write,
) -> io::Result<()> {
    for (chart, number) in charts(results, variants, threads).iter().zip(1..) {
        write!(out, "{}", chart.text())?;
        if let Some(folder) = folder {
            fs::write(folder.join(format!("figure-{number}.svg")), chart.svg())?;
        }
    }
    out.flush()
}

fn charts(results: &Results, variants: &[Variant], threads: &[usize]) -> Vec<Chart> {
    let one = |variant: Variant, name: &str, kind, measure| {
        let value = |threads: &usize| {
            Some((*threads, results.summary(kind, *threads, variant, measure)?.median))
        };
        let points: Vec<_> = threads.iter().filter_map(value).collect();
        (!points.is_empty()).then(|| Series { name: name.to_owned(), points })
    };
    let all = |kind, measure| -> Vec<Series> {
        variants.iter().filter_map(|variant| one(*variant, variant.name(), kind, measure)).collect()
    };
    let chart = |number, title: &str, measure: Measure, series| Chart {
        title: format!("Figure {number}: {title}"),
        unit: measure.unit().name(),
        over: "threads",
        series,
    };
    let (dbench, httperf) = (Kind::Dbench, Kind::Httperf);
    let baseline = [("contention", Measure::Contention), ("utilisation", Measure::Utilisation)];
    let baseline = baseline
        .into_iter()
        .filter_map(|(name, measure)| one(Variant::GlobalLock, name, dbench, measure));
    let (contention, utilisation) = (Measure::Contention, Measure::Utilisation);
    let title = |what: &str, kind: Kind| format!("dcache_lock {what}, {}", kind.name());
    vec![
        chart(1, "Baseline contention with dbench", contention, baseline.collect()),
        chart(2, &title("contention", dbench), contention, all(dbench, contention)),
        chart(3, &title("utilisation", dbench), utilisation, all(dbench, utilisation)),
        chart(4, &title("contention", httperf), contention, all(httperf, contention)),
        chart(5, &title("utilisation", httperf), utilisation, all(httperf, utilisation)),
        chart(6, "dbench throughput", Measure::Throughput, all(dbench, Measure::Throughput)),
    ]
}
