//! The meter's counts, summed over threads: by class, and by call site within it.
//!
//! # Boundary
//! Numbers and names; [`super::layout`] prints them. Plain data, so that a report can also come from another process.
//!
//! # Why
//! All acquisitions are counted. Of the holds a sample is timed: every one after a wait, and one in N of the
//! others. The two kinds are kept apart, because a contended lock is often held long. A mean over both samples would
//! give the rare kind too much weight. Means and utilisation weigh each kind by its frequency. Weakness: a maximum is
//! the largest timed one; the longest hold of all may not have been timed.

use std::collections::BTreeMap;
use std::time::Duration;

/// Number of buckets of a histogram; the last also holds everything beyond (half an hour).
pub const BUCKETS: usize = 41;

/// The bucket of a duration: `n` for 2^n to 2^(n+1) - 1 nanoseconds; 0 also for a duration of 0.
pub(super) fn bucket(ns: u64) -> usize {
    (ns.checked_ilog2().unwrap_or(0) as usize).min(BUCKETS - 1)
}

/// The longest duration of a bucket.
fn bucket_end_ns(bucket: usize) -> u64 {
    if bucket + 1 < BUCKETS { (2 << bucket) - 1 } else { u64::MAX }
}

/// The way a lock was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Mode {
    /// A mutex.
    Mutex,
    /// A reader-writer lock, shared.
    Read,
    /// A reader-writer lock, exclusive.
    Write,
    /// A bit lock, whose waiters spin.
    Spin,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 4] = [Mode::Mutex, Mode::Read, Mode::Write, Mode::Spin];

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Mutex => "mutex",
            Mode::Read => "read",
            Mode::Write => "write",
            Mode::Spin => "spin",
        }
    }
}

/// Counts and times. All sums are over all locks of the class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Times taken, all of them.
    pub acquisitions: u64,
    /// Acquisitions that had to wait.
    pub contended: u64,
    /// Attempts that did not wait although the lock was held; not in `acquisitions`.
    pub rejected: u64,
    /// Failed tries while spinning.
    pub spins: u64,
    /// Timed holds without a wait.
    pub free_samples: u64,
    /// The total length of these holds.
    pub free_hold_ns: u64,
    /// Timed holds after a wait.
    pub contended_samples: u64,
    /// The total length of these holds.
    pub contended_hold_ns: u64,
    /// The longest hold timed.
    pub hold_max_ns: u64,
    /// Time spent waiting, by all `contended`.
    pub wait_ns: u64,
    /// The longest wait.
    pub wait_max_ns: u64,
    /// Timed holds, by power of two of their nanoseconds.
    pub hold_histogram: [u64; BUCKETS],
    /// Waits, likewise.
    pub wait_histogram: [u64; BUCKETS],
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            acquisitions: 0,
            contended: 0,
            rejected: 0,
            spins: 0,
            free_samples: 0,
            free_hold_ns: 0,
            contended_samples: 0,
            contended_hold_ns: 0,
            hold_max_ns: 0,
            wait_ns: 0,
            wait_max_ns: 0,
            hold_histogram: [0; BUCKETS],
            wait_histogram: [0; BUCKETS],
        }
    }
}

impl Totals {
    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.acquisitions == 0 && self.rejected == 0
    }

    /// The part of the acquisitions that had to wait, 0 to 1.
    pub fn contended_share(&self) -> f64 {
        ratio(self.contended as f64, self.acquisitions as f64)
    }

    /// All holds together, in nanoseconds: each kind's mean times its frequency. If none of a kind was timed yet, the
    /// other kind's mean is used.
    pub fn hold_total_ns(&self) -> f64 {
        let free = mean(self.free_hold_ns, self.free_samples);
        let contended = mean(self.contended_hold_ns, self.contended_samples);
        let either = free.or(contended).unwrap_or(0.0);
        let free_count = self.acquisitions.saturating_sub(self.contended) as f64;
        free.unwrap_or(either) * free_count + contended.unwrap_or(either) * self.contended as f64
    }

    /// Mean hold in nanoseconds.
    pub fn hold_mean_ns(&self) -> f64 {
        ratio(self.hold_total_ns(), self.acquisitions as f64)
    }

    /// The mean wait of the acquisitions that waited, in nanoseconds.
    pub fn wait_mean_ns(&self) -> f64 {
        mean(self.wait_ns, self.contended).unwrap_or(0.0)
    }

    /// The part of `wall` in which a lock of the class was held. Above 1 when several were at once.
    pub fn utilisation(&self, wall: Duration) -> f64 {
        ratio(self.hold_total_ns(), wall.as_nanos() as f64)
    }

    /// The part of all processors' time that was spent waiting.
    pub fn wait_share(&self, wall: Duration, processors: usize) -> f64 {
        ratio(self.wait_ns as f64, wall.as_nanos() as f64 * processors as f64)
    }

    /// The counts since `earlier` was taken.
    ///
    /// A longest duration that was reached before `earlier` does not apply to the time since. It is replaced by the end
    /// of the highest bucket that grew, so it is never too small, and less than twice too large.
    #[must_use]
    pub fn since(&self, earlier: &Totals) -> Totals {
        let less = |later: u64, earlier: u64| later.saturating_sub(earlier);
        let histogram = |later: &[u64; BUCKETS], earlier: &[u64; BUCKETS]| {
            std::array::from_fn(|at| less(later[at], earlier[at]))
        };
        let hold_histogram = histogram(&self.hold_histogram, &earlier.hold_histogram);
        let wait_histogram = histogram(&self.wait_histogram, &earlier.wait_histogram);
        Totals {
            acquisitions: less(self.acquisitions, earlier.acquisitions),
            contended: less(self.contended, earlier.contended),
            rejected: less(self.rejected, earlier.rejected),
            spins: less(self.spins, earlier.spins),
            free_samples: less(self.free_samples, earlier.free_samples),
            free_hold_ns: less(self.free_hold_ns, earlier.free_hold_ns),
            contended_samples: less(self.contended_samples, earlier.contended_samples),
            contended_hold_ns: less(self.contended_hold_ns, earlier.contended_hold_ns),
            hold_max_ns: max_since(self.hold_max_ns, earlier.hold_max_ns, &hold_histogram),
            wait_ns: less(self.wait_ns, earlier.wait_ns),
            wait_max_ns: max_since(self.wait_max_ns, earlier.wait_max_ns, &wait_histogram),
            hold_histogram,
            wait_histogram,
        }
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Totals) {
        self.acquisitions += other.acquisitions;
        self.contended += other.contended;
        self.rejected += other.rejected;
        self.spins += other.spins;
        self.free_samples += other.free_samples;
        self.free_hold_ns += other.free_hold_ns;
        self.contended_samples += other.contended_samples;
        self.contended_hold_ns += other.contended_hold_ns;
        self.hold_max_ns = self.hold_max_ns.max(other.hold_max_ns);
        self.wait_ns += other.wait_ns;
        self.wait_max_ns = self.wait_max_ns.max(other.wait_max_ns);
        let both = [
            (&mut self.hold_histogram, &other.hold_histogram),
            (&mut self.wait_histogram, &other.wait_histogram),
        ];
        for (mine, others) in both {
            mine.iter_mut().zip(others).for_each(|(mine, other)| *mine += other);
        }
    }
}

fn mean(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn max_since(later: u64, earlier: u64, grown: &[u64; BUCKETS]) -> u64 {
    if later > earlier {
        return later;
    }
    grown.iter().rposition(|count| *count > 0).map_or(0, |at| bucket_end_ns(at).min(later))
}

/// One class of locks, in one mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassReport {
    /// The class's name.
    pub class: String,
    /// Rank of the class in the lock order.
    pub rank: u16,
    /// How it was taken; a reader-writer lock has a report for each of its two modes.
    pub mode: Mode,
    /// All call sites together.
    pub totals: Totals,
    /// By call site, in the order of their names.
    pub sites: Vec<SiteReport>,
}

/// One call site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteReport {
    /// `file:line`, or "(other sites)" for those without room in a thread's table.
    pub site: String,
    /// The counts of this site.
    pub totals: Totals,
}

impl ClassReport {
    /// The class's name, with the mode if a class has two: `names (read)`.
    pub fn name(&self) -> String {
        match self.mode {
            Mode::Mutex | Mode::Spin => self.class.clone(),
            Mode::Read | Mode::Write => format!("{} ({})", self.class, self.mode.name()),
        }
    }

    /// The counts since `earlier`, a report of the same class and mode, was taken.
    #[must_use]
    pub fn since(&self, earlier: &ClassReport) -> ClassReport {
        let before: BTreeMap<&str, &Totals> =
            earlier.sites.iter().map(|one| (one.site.as_str(), &one.totals)).collect();
        let sites = self.sites.iter().map(|one| {
            let totals = match before.get(one.site.as_str()) {
                Some(before) => one.totals.since(before),
                None => one.totals,
            };
            SiteReport { site: one.site.clone(), totals }
        });
        ClassReport {
            class: self.class.clone(),
            rank: self.rank,
            mode: self.mode,
            totals: self.totals.since(&earlier.totals),
            sites: sites.filter(|one| !one.totals.is_empty()).collect(),
        }
    }
}

/// The counts between two snapshots; classes that were not taken meanwhile are left out.
pub fn difference(later: &[ClassReport], earlier: &[ClassReport]) -> Vec<ClassReport> {
    let same = |one: &ClassReport, other: &ClassReport| {
        (one.mode, one.rank, &one.class) == (other.mode, other.rank, &other.class)
    };
    let changes = later.iter().map(|one| match earlier.iter().find(|other| same(one, other)) {
        Some(before) => one.since(before),
        None => one.clone(),
    });
    changes.filter(|one| !one.totals.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(change: impl FnOnce(&mut Totals)) -> Totals {
        let mut totals = Totals::default();
        change(&mut totals);
        totals
    }

    #[test]
    fn buckets_are_powers_of_two() {
        let check = |ns, expected| assert_eq!(bucket(ns), expected, "{ns}");
        [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (1023, 9), (1024, 10)]
            .into_iter()
            .for_each(|(ns, expected)| check(ns, expected));
        check(u64::MAX, BUCKETS - 1);
        (0..BUCKETS - 1).for_each(|at| check(bucket_end_ns(at), at));
    }

    /// 990 short holds of which 10 were timed, 10 long ones all timed: the mean is that of all 1000.
    #[test]
    fn means_weigh_the_kinds_by_how_often_they_happened() {
        let seen = totals(|all| {
            (all.acquisitions, all.contended) = (1000, 10);
            (all.free_samples, all.free_hold_ns) = (10, 1000);
            (all.contended_samples, all.contended_hold_ns) = (10, 100_000);
        });
        assert_eq!(seen.hold_total_ns(), 990.0 * 100.0 + 10.0 * 10_000.0);
        assert_eq!(seen.hold_mean_ns(), 199.0);
        assert_eq!(seen.utilisation(Duration::from_nanos(1_990_000)), 0.1);
        assert_eq!(Totals::default().hold_mean_ns(), 0.0);
        assert_eq!(Totals::default().utilisation(Duration::ZERO), 0.0);
        let only_contended = totals(|all| {
            (all.acquisitions, all.contended) = (4, 2);
            (all.contended_samples, all.contended_hold_ns) = (2, 20);
        });
        assert_eq!(only_contended.hold_mean_ns(), 10.0);
    }

    #[test]
    fn an_old_maximum_is_not_an_intervals() {
        let earlier = totals(|all| {
            (all.wait_max_ns, all.hold_max_ns) = (5000, 70);
            all.wait_histogram[bucket(5000)] = 1;
        });
        let mut later = earlier;
        later.wait_histogram[bucket(900)] += 2;
        later.hold_max_ns = 80;
        let since = later.since(&earlier);
        assert_eq!((since.wait_max_ns, since.hold_max_ns), (1023, 80));
        assert_eq!(later.since(&later).wait_max_ns, 0);
        assert_eq!(later.since(&Totals::default()).wait_max_ns, 5000);
        let mut again = later;
        again.wait_histogram[bucket(5000)] += 1;
        assert_eq!(again.since(&later).wait_max_ns, 5000, "never above the largest ever");
    }

    #[test]
    fn a_difference_leaves_out_what_did_not_happen() {
        let report = |class: &str, mode, count, sites: &[(&str, u64)]| ClassReport {
            class: class.into(),
            rank: 1,
            mode,
            totals: totals(|all| all.acquisitions = count),
            sites: sites
                .iter()
                .map(|(site, count)| SiteReport {
                    site: (*site).into(),
                    totals: totals(|all| all.acquisitions = *count),
                })
                .collect(),
        };
        let earlier = [
            report("a", Mode::Read, 5, &[("x.rs:1", 3), ("y.rs:1", 2)]),
            report("a", Mode::Write, 1, &[]),
        ];
        let later = [
            report("a", Mode::Read, 9, &[("x.rs:1", 3), ("y.rs:1", 4), ("z.rs:1", 2)]),
            report("a", Mode::Write, 1, &[]),
            report("b", Mode::Mutex, 2, &[]),
        ];
        let expected = [
            report("a", Mode::Read, 4, &[("y.rs:1", 2), ("z.rs:1", 2)]),
            report("b", Mode::Mutex, 2, &[]),
        ];
        assert_eq!(difference(&later, &earlier), expected);
    }

    #[test]
    fn sums_add_everything_but_maxima() {
        let one = totals(|all| {
            (all.acquisitions, all.hold_max_ns, all.wait_ns) = (1, 10, 5);
            all.hold_histogram[3] = 1;
        });
        let mut both = totals(|all| (all.acquisitions, all.hold_max_ns) = (2, 7));
        both.add(&one);
        assert_eq!((both.acquisitions, both.hold_max_ns, both.wait_ns), (3, 10, 5));
        assert_eq!(both.hold_histogram[3], 1);
    }
}
