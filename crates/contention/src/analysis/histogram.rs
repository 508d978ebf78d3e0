//! Latencies of misses by where they were answered: figure 1 of Gough, Siddha and Chen 2007.
//!
//! # Boundary
//! Numbers; the picture is the report's.
//!
//! # Why
//! Two series a class: the time to be served alone, whose peaks are the machine's, and with the wait for
//! the line, whose tail is the program's contention. Weakness: under heavy contention the second has no
//! peaks.

use super::Estimate;
use crate::ledger::{Basis, Ledger, Sum, Sums, mean, share, share_of};
use serde::Serialize;
use std::collections::BTreeMap;
use uvfs_coherence::profile::Class;

/// All latencies of a profile.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Histogram {
    /// From near to far; classes without misses are absent.
    pub classes: Vec<ClassRow>,
    /// Part of all misses that the own node answered.
    pub local_misses: Estimate,
    /// Part of all latency that these took.
    pub local_latency: Estimate,
    /// Part of all misses that caches of other cores answered.
    pub transfer_misses: Estimate,
    /// Part of all latency that these took.
    pub transfer_latency: Estimate,
    /// Service and total, class by class.
    pub series: Vec<Series>,
}

/// One class in figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassRow {
    /// Which.
    pub class: Class,
    /// Misses.
    pub misses: Estimate,
    /// Part of all misses.
    pub miss_share: Estimate,
    /// Part of all latency.
    pub latency_share: Estimate,
    /// Cycles of one, with the wait.
    pub mean_latency: Estimate,
    /// Cycles of one, without.
    pub mean_service: Estimate,
    /// Where most lie, without the wait: the lower end of the bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<u64>,
}

/// A line of the picture.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// Which class.
    pub class: Class,
    /// Whether the wait for the line is in it.
    pub with_queue: bool,
    /// Cycles a bucket.
    pub width: u64,
    /// Cycles at a bucket's lower end, with the mean of misses in it.
    pub buckets: Vec<(u64, f64)>,
}

/// Latencies by class.
pub fn histogram(ledger: &Ledger<'_>) -> Histogram {
    let by_class = ledger.sums(|_, sample| Some(sample.class));
    let series = series(ledger);
    let sums = |of: &dyn Fn(Class) -> bool| {
        let mut sums = ledger.none();
        for (_, tallies) in by_class.iter().filter(|(class, _)| of(**class)) {
            for (sum, one) in sums.iter_mut().zip(tallies) {
                sum.merge(one);
            }
        }
        sums
    };
    let shares = |parts: &Sums| {
        let of = |basis| share_of(parts, &ledger.totals, basis);
        (of(Basis::Count), of(ledger.basis))
    };
    let (local_misses, local_latency) = shares(&sums(&|class| !class.is_remote()));
    let (transfer_misses, transfer_latency) = shares(&sums(&|class| class.is_transfer()));
    let rows = by_class.iter().filter(|(_, tallies)| tallies.iter().any(|one| one.count != 0));
    let rows = rows.map(|(class, tallies)| {
        let (miss_share, latency_share) = shares(tallies);
        let service = series.iter().find(|one| one.class == *class && !one.with_queue);
        let peak = service.and_then(|one| {
            let higher = |one: &&(u64, f64), other: &&(u64, f64)| one.1.total_cmp(&other.1);
            one.buckets.iter().rev().max_by(higher).map(|bucket| bucket.0)
        });
        ClassRow {
            class: *class,
            misses: mean(tallies, |one| one.count),
            miss_share,
            latency_share,
            mean_latency: share(tallies, Sum::latency, |one| one.count),
            mean_service: share(tallies, |one| one.service, |one| one.count),
            peak,
        }
    });
    let classes = rows.collect();
    Histogram { classes, local_misses, local_latency, transfer_misses, transfer_latency, series }
}

fn series(ledger: &Ledger<'_>) -> Vec<Series> {
    // Buckets of one picture are as wide as the widest.
    let width = ledger.profile.histograms.iter().map(|one| one.width).max().unwrap_or(1).max(1);
    let mut sums: BTreeMap<(Class, bool), BTreeMap<u64, u64>> = BTreeMap::new();
    for one in &ledger.profile.histograms {
        let buckets = sums.entry((one.class, one.with_queue)).or_default();
        for (bucket, count) in &one.buckets {
            let start = bucket.saturating_mul(one.width) / width * width;
            let all = buckets.entry(start).or_default();
            *all = all.saturating_add(*count);
        }
    }
    let seeds = ledger.seeds.len().max(1) as f64;
    let mean = |(start, count): (u64, u64)| (start, count as f64 / seeds);
    let series = sums.into_iter().map(|((class, with_queue), buckets)| Series {
        class,
        with_queue,
        width,
        buckets: buckets.into_iter().map(mean).collect(),
    });
    series.filter(|one| !one.buckets.is_empty()).collect()
}

/// The name of a class.
pub fn class_name(class: Class) -> &'static str {
    match class {
        Class::LocalTransfer => "local transfer",
        Class::LastLevel => "last level",
        Class::LocalMemory => "local memory",
        Class::RemoteMemory => "remote memory",
        Class::RemoteTransfer => "remote transfer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::fixture::{empty, profile};

    #[test]
    fn local_misses_are_many_and_cheap() {
        let histogram = histogram(&Ledger::new(&profile()));
        assert_eq!(histogram.local_misses.mean, 230.0 / 420.0);
        assert_eq!(histogram.local_latency.mean, 38_000.0 / 100_000.0);
        assert_eq!(histogram.transfer_misses.mean, 380.0 / 420.0);
        assert_eq!(histogram.transfer_latency.mean, 0.9);
    }

    #[test]
    fn classes_add_up_and_have_their_peaks() {
        let histogram = histogram(&Ledger::new(&profile()));
        let classes: Vec<_> = histogram.classes.iter().map(|row| (row.class, row.peak)).collect();
        assert_eq!(
            classes,
            [
                (Class::LocalTransfer, Some(120)),
                (Class::LocalMemory, Some(200)),
                (Class::RemoteMemory, Some(400)),
                (Class::RemoteTransfer, Some(490)),
            ]
        );
        let sum = |share: fn(&ClassRow) -> f64| histogram.classes.iter().map(share).sum::<f64>();
        assert!((sum(|row| row.miss_share.mean) - 1.0).abs() < 1e-12);
        assert!((sum(|row| row.latency_share.mean) - 1.0).abs() < 1e-12);
        let remote = &histogram.classes[3];
        assert_eq!((remote.misses.mean, remote.mean_service.mean), (90.0, 48_000.0 / 180.0));
    }

    #[test]
    fn series_are_means_over_seeds_in_buckets_of_one_width() {
        let mut profile = profile();
        let histogram = histogram(&Ledger::new(&profile));
        assert_eq!(histogram.series.len(), 6);
        assert_eq!(histogram.series[1].buckets, [(120, 60.0), (300, 40.0)]);
        profile.histograms[0].width = 20;
        let wide = super::histogram(&Ledger::new(&profile));
        assert_eq!(wide.series[0].width, 20);
        // 12 of 20 cycles in the first seed, 12 of 10 in the second.
        assert_eq!(wide.series[0].buckets, [(120, 50.0), (240, 50.0)]);
    }

    #[test]
    fn an_empty_profile_has_no_classes() {
        let histogram = histogram(&Ledger::new(&empty()));
        assert!(histogram.classes.is_empty() && histogram.series.is_empty());
        assert_eq!(histogram.local_misses.mean, 0.0);
    }
}
