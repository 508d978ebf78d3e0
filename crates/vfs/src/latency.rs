//! Durations, in reports.
//!
//! # Boundary
//! A histogram's numbers as a value: written as JSON, read back, subtracted, and evaluated as percentiles.
//! [`uvfs_concurrent::histogram`] counts.
//!
//! # Why
//! Buckets are kept, not percentiles, because percentiles of two times cannot be subtracted: a watching program takes
//! the difference of two reports. The two percentiles in a report are for single reports. Weakness: a percentile is
//! exact to the width of its bucket, a fifth of the value at most.

use serde::{Deserialize, Serialize};
use uvfs_concurrent::histogram::{Bucket, Histogram};

/// Durations of one kind of event.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Events timed.
    pub count: u64,
    /// The sum of their durations.
    pub sum_ns: u64,
    /// Half of the events took less.
    pub p50_ns: u64,
    /// 99 of a hundred events took less.
    pub p99_ns: u64,
    /// The buckets that are not empty, the shortest durations first.
    pub buckets: Vec<LatencyBucket>,
}

/// Durations that differ by a quarter at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyBucket {
    /// All of them are shorter; null if there is no bound.
    pub below_ns: Option<u64>,
    /// Events in it.
    pub count: u64,
}

impl From<&Histogram> for Latency {
    fn from(histogram: &Histogram) -> Self {
        let bucket = |one: Bucket| LatencyBucket { below_ns: one.below_ns, count: one.count };
        let buckets = histogram.buckets().into_iter().map(bucket).collect();
        Self::new(histogram.sum_ns(), buckets)
    }
}

impl Latency {
    fn new(sum_ns: u64, buckets: Vec<LatencyBucket>) -> Self {
        // The daemon's numbers may be wrong: a wrong sum is better than a panic.
        let count = buckets.iter().fold(0, |sum: u64, one| sum.saturating_add(one.count));
        let mut latency = Self { count, sum_ns, p50_ns: 0, p99_ns: 0, buckets };
        latency.p50_ns = latency.quantile_ns(0.5);
        latency.p99_ns = latency.quantile_ns(0.99);
        latency
    }

    /// Events counted after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |bucket: &LatencyBucket| {
            let same = earlier.buckets.iter().find(|one| one.below_ns == bucket.below_ns);
            same.map_or(0, |one| one.count)
        };
        let buckets = self
            .buckets
            .iter()
            .map(|one| LatencyBucket { count: one.count.saturating_sub(before(one)), ..*one });
        let buckets = buckets.filter(|one| one.count > 0).collect();
        Self::new(self.sum_ns.saturating_sub(earlier.sum_ns), buckets)
    }

    /// Both together, as one kind.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let mut buckets = self.buckets.clone();
        for one in &other.buckets {
            match buckets.iter_mut().find(|mine| mine.below_ns == one.below_ns) {
                Some(mine) => mine.count = mine.count.saturating_add(one.count),
                None => buckets.push(*one),
            }
        }
        buckets.sort_by_key(|one| one.below_ns.unwrap_or(u64::MAX));
        Self::new(self.sum_ns.saturating_add(other.sum_ns), buckets)
    }

    /// Events shorter than `ns`, which is the end of a bucket. For other values, up to the next lower end.
    pub fn below(&self, ns: u64) -> u64 {
        let short = self.buckets.iter().filter(|one| one.below_ns.is_some_and(|end| end <= ns));
        short.fold(0, |sum, one| sum.saturating_add(one.count))
    }

    /// The duration that a `share` of all events did not exceed; 0 if there are none.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let wanted = share * self.count as f64;
        let (mut passed, mut last) = (0.0, 0);
        for bucket in &self.buckets {
            let count = bucket.count as f64;
            let Some(end) = bucket.below_ns else { return last.max(1 << 36) };
            if passed + count >= wanted {
                // Assumes an even distribution in the bucket. Its begin: a bucket is a quarter of that wide at most.
                let begin = last.max(end - end / 5).min(end);
                let part = ((wanted - passed) / count.max(1.0)).clamp(0.0, 1.0);
                return begin + ((end - begin) as f64 * part) as u64;
            }
            passed += count;
            last = end;
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn of(times_us: impl IntoIterator<Item = u64>) -> Latency {
        let histogram = Histogram::new();
        times_us.into_iter().for_each(|us| histogram.add(Duration::from_micros(us)));
        Latency::from(&histogram)
    }

    #[test]
    fn percentiles_are_right_to_a_quarter() {
        let latency = of(1..=1000);
        assert_eq!((latency.count, latency.sum_ns), (1000, 500_500_000));
        for (share, us) in [(0.5, 500.0), (0.99, 990.0), (0.1, 100.0), (1.0, 1000.0)] {
            let ns = latency.quantile_ns(share) as f64;
            assert!((ns / 1000.0 / us - 1.0).abs() < 0.25, "{share}: {ns}");
        }
        assert_eq!(latency.p50_ns, latency.quantile_ns(0.5));
        assert_eq!(Latency::default().quantile_ns(0.99), 0);
        // Longer than any bound: at least the longest bound.
        assert_eq!(of([1, 200_000_000]).p99_ns, 1 << 36);
    }

    #[test]
    fn differences_and_sums_are_of_buckets() {
        let (early, late) = (of([1, 1, 50]), of([1, 1, 50, 1, 900, 900]));
        let between = late.since(&early);
        assert_eq!(between, of([1, 900, 900]));
        assert_eq!(early.with(&between), late);
        assert_eq!(early.since(&late).count, 0, "a daemon that was started anew");
        assert_eq!((late.below(1 << 11), late.below(u64::MAX - 1)), (3, 6));
    }

    #[test]
    fn it_is_read_as_it_was_written_and_lies_do_no_harm() {
        let latency = of([3, 4, 5_000_000, 100_000_000]);
        let text = serde_json::to_string(&latency).unwrap();
        assert!(text.ends_with(r#"{"below_ns":null,"count":1}]}"#), "{text}");
        assert_eq!(serde_json::from_str::<Latency>(&text).unwrap(), latency);
        let huge = LatencyBucket { below_ns: Some(u64::MAX), count: u64::MAX };
        let none = LatencyBucket { below_ns: Some(0), count: 1 };
        let lies = Latency::new(u64::MAX, vec![huge, none, huge]);
        assert_eq!(lies.with(&lies).count, u64::MAX);
        assert!(lies.quantile_ns(0.5) > 0);
    }
}
