//! Histograms of durations, for which threads do not contend.
//!
//! ```text
//!  ns   0   128   256   384   512   640   768   896   1024  1280 …  2^36
//!  at     0     1     2     3     4     5     6     7     8    …      112: all beyond
//! ```
//!
//! # Boundary
//! Counts durations in [`BUCKETS`] buckets: of one width up to 512 ns, from there on four to each doubling.
//! So a bucket's ends are a quarter apart at most. The caller defines the durations and the percentiles.
//!
//! # Concurrency
//! A bucket is a [`Counter`]: a thread adds to its own cell, and no two share a line. Buckets are made at the first
//! count ([`LazyBox`]), because most histograms stay empty.
//!
//! # Why
//! It uses the existing counters, and not the crate `hdrhistogram`. That crate's recorder for several threads is
//! a histogram for each, a channel and a phase in which writers wait for a reader. Its atomic variant has one word for
//! all threads. Weakness: a histogram with a single count takes a kilobyte in each thread that counted.

use crate::counter::Counter;
use crate::lazy::LazyBox;
use std::time::Duration;

/// Bits of the width of the first buckets.
const UNIT_BITS: u32 = 7;
/// Bits of the number of buckets in a doubling.
const SUB_BITS: u32 = 2;
const SUBS: usize = 1 << SUB_BITS;
/// Bits of the nanoseconds from which the last bucket begins: 68 s.
const END_BITS: u32 = 36;

/// The number of buckets; the last one has no end.
pub const BUCKETS: usize = SUBS * (END_BITS - UNIT_BITS - SUB_BITS + 1) as usize + 1;

/// The counts of durations. The buckets are described in the module's documentation.
#[derive(Debug, Default)]
pub struct Histogram {
    cells: LazyBox<Cells>,
}

#[derive(Debug)]
struct Cells {
    buckets: Vec<Counter>,
    sum_ns: Counter,
}

/// The content of one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// All its durations are below this; `None`: no bound.
    pub below_ns: Option<u64>,
    /// The number of durations.
    pub count: u64,
}

impl Histogram {
    /// An empty histogram.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a duration. Stores only to this thread's cells; never waits, except for the very first count.
    #[inline]
    pub fn add(&self, time: Duration) {
        // A duration of 584 years and more is counted in the last bucket.
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let cells = match self.cells.get() {
            Some(cells) => cells,
            None => self.cells.get_or_make(Cells::new).0,
        };
        cells.buckets[bucket(ns)].hit();
        cells.sum_ns.add(ns);
    }

    /// The buckets with counts, the shortest durations first; a snapshot like [`Counter::total`].
    pub fn buckets(&self) -> Vec<Bucket> {
        let counters = self.cells.get().map_or(&[][..], |cells| &cells.buckets);
        let counted = counters.iter().enumerate().map(|(at, counter)| (at, counter.total()));
        let counted = counted.filter(|&(_, count)| count > 0);
        counted.map(|(at, count)| Bucket { below_ns: below_ns(at), count }).collect()
    }

    /// The sum of all durations.
    pub fn sum_ns(&self) -> u64 {
        self.cells.get().map_or(0, |cells| cells.sum_ns.total())
    }
}

impl Cells {
    fn new() -> Self {
        let buckets = (0..BUCKETS).map(|_| Counter::new()).collect();
        Self { buckets, sum_ns: Counter::new() }
    }
}

/// The bucket of `ns`.
#[inline]
fn bucket(ns: u64) -> usize {
    let units = ns >> UNIT_BITS;
    if units < SUBS as u64 {
        return units as usize;
    }
    let doubling = units.ilog2() - SUB_BITS;
    let sub = (units >> doubling) as usize & (SUBS - 1);
    (SUBS * (doubling as usize + 1) + sub).min(BUCKETS - 1)
}

/// The end of a bucket: the first duration beyond it.
fn below_ns(at: usize) -> Option<u64> {
    let (doubling, sub) = (at / SUBS, at % SUBS);
    match doubling {
        _ if at == BUCKETS - 1 => None,
        0 => Some((sub as u64 + 1) << UNIT_BITS),
        _ => Some(((SUBS + sub + 1) as u64) << (doubling as u32 - 1 + UNIT_BITS)),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn buckets_meet_and_none_is_wider_than_a_quarter() {
        let mut begin = 0;
        for at in 0..BUCKETS - 1 {
            let end = below_ns(at).expect("an end");
            assert_eq!((bucket(begin), bucket(end - 1)), (at, at), "{begin}..{end}");
            let widest = (begin / 4).max(1 << UNIT_BITS);
            assert!(end - begin <= widest, "{begin}..{end}");
            begin = end;
        }
        assert_eq!(begin, 1 << END_BITS);
        assert_eq!((bucket(begin), bucket(u64::MAX)), (BUCKETS - 1, BUCKETS - 1));
        assert_eq!(below_ns(BUCKETS - 1), None);
    }

    #[test]
    fn what_threads_count_is_all_there() {
        let histogram = Histogram::new();
        assert_eq!((histogram.buckets(), histogram.sum_ns()), (Vec::new(), 0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        histogram.add(Duration::from_nanos(200));
                        histogram.add(Duration::from_nanos(1000));
                    }
                    histogram.add(Duration::MAX);
                });
            }
        });
        let of = |below_ns, count| Bucket { below_ns, count };
        let expected = [of(Some(256), 400), of(Some(1024), 400), of(None, 4)];
        assert_eq!(histogram.buckets(), expected);
        assert_eq!(histogram.sum_ns(), 480_000u64.wrapping_add(u64::MAX.wrapping_mul(4)));
    }

    #[test]
    fn counting_touches_nothing_shared() {
        let histogram = Histogram::new();
        histogram.add(Duration::from_micros(3));
        #[cfg(debug_assertions)]
        {
            use crate::primitive::record::{Tally, tally};
            let ((), touched) = tally(|| histogram.add(Duration::from_micros(3)));
            // The one load is that of the pointer to the buckets.
            assert_eq!(touched, Tally { loads: 1, ..Tally::default() });
        }
        assert_eq!(histogram.buckets().len(), 1);
    }
}
