//! Latencies of misses by class, with and without the wait for the line.
//!
//! # Boundary
//! Counts; [`Latencies::into_records`] gives them the profile's shape.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! The service time alone has a peak for each class, as the machine does; the wait smears it, and its
//! tail shows the contended lines. Both are kept. Weakness: beyond the last bucket all latencies look
//! alike.

use crate::model::{Miss, TICKS_PER_CYCLE, Ticks};
use crate::profile::{Class, Histogram};

/// Cycles a bucket.
pub const BUCKET_CYCLES: u64 = 10;

/// The last bucket takes all that is longer.
const BUCKETS: usize = 10_000;

/// See the module.
#[derive(Debug)]
pub struct Latencies {
    service: Vec<Vec<u64>>,
    total: Vec<Vec<u64>>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    /// Nothing counted.
    pub fn new() -> Self {
        let empty = || vec![Vec::new(); Class::ALL.len()];
        Self { service: empty(), total: empty() }
    }

    /// One miss.
    pub fn record(&mut self, miss: &Miss) {
        count(&mut self.service[miss.class as usize], miss.service);
        count(&mut self.total[miss.class as usize], miss.queue + miss.service);
    }

    /// Records of the classes that were seen.
    pub fn into_records(self, seed: u64) -> Vec<Histogram> {
        let mut records = Vec::new();
        for class in Class::ALL {
            for (with_queue, counts) in [(false, &self.service), (true, &self.total)] {
                let counts = &counts[class as usize];
                if counts.is_empty() {
                    continue;
                }
                let buckets =
                    (0..).zip(counts.iter().copied()).filter(|(_, count)| *count > 0).collect();
                records.push(Histogram { seed, class, with_queue, width: BUCKET_CYCLES, buckets });
            }
        }
        records
    }
}

fn count(buckets: &mut Vec<u64>, latency: Ticks) {
    let bucket = ((latency / TICKS_PER_CYCLE / BUCKET_CYCLES) as usize).min(BUCKETS - 1);
    if buckets.len() <= bucket {
        buckets.resize(bucket + 1, 0);
    }
    buckets[bucket] += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_and_total_are_two_series() {
        let mut latencies = Latencies::new();
        for (queue, service) in [(0, 125), (1000, 125), (10_000_000, 133)] {
            let (queue, service) = (queue * TICKS_PER_CYCLE, service * TICKS_PER_CYCLE);
            let class = Class::LocalTransfer;
            latencies.record(&Miss { class, queue, service, false_shared: false, writer: None });
        }
        let records = latencies.into_records(7);
        assert_eq!(records.len(), 2);
        assert!(
            records.iter().all(|record| record.seed == 7 && record.class == Class::LocalTransfer)
        );
        assert!(!records[0].with_queue && records[1].with_queue);
        assert_eq!(records[0].buckets, [(12, 2), (13, 1)].into());
        assert_eq!(records[1].buckets, [(12, 1), (112, 1), (9999, 1)].into());
    }
}
