//! One observed walker, alone or beside a thread that disturbs it.
//!
//! # Concurrency
//! The walker has core 0 and the other thread core 1. The walker starts when the other has done its
//! first piece of work, and stops it afterwards.
//!
//! # Why
//! Only one walk in [`SAMPLED`] is timed by itself, so the clock (tens of nanoseconds, within every
//! sample) does not set the pace. Percentiles come from a histogram of two significant digits.

use hdrhistogram::Histogram;
use std::ffi::CStr;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};
use uvfs_bench_workload::paths::Track;
use uvfs_bench_workload::timed::{MISSING, pin};
use uvfs_concurrent::primitive::atomic::{AtomicBool, Ordering::Relaxed};

/// One walk in so many is timed by itself.
const SAMPLED: usize = 8;
/// A walk that takes longer is counted as this long: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// The observations of a walker.
#[derive(Debug)]
pub(super) struct Seen {
    walks: u64,
    time: Duration,
    histogram: Histogram<u64>,
}

impl Seen {
    /// Nanoseconds a walk, on average.
    pub(super) fn mean_ns(&self) -> f64 {
        self.time.as_secs_f64() * 1e9 / self.walks.max(1) as f64
    }

    /// Nanoseconds that this percentage of walks took at most.
    pub(super) fn percentile_ns(&self, percent: f64) -> f64 {
        self.histogram.value_at_percentile(percent) as f64
    }
}

/// Walks `track` in turn for `duration`, from `begin` on; returns the observations, and sets where
/// it stopped.
///
/// # Errors
/// Names the first path that was not found.
pub(super) fn watch(
    track: &Track<'_>,
    begin: &mut usize,
    duration: Duration,
    walk: impl Fn(&CStr) -> u64,
) -> Result<Seen, String> {
    let mut histogram =
        Histogram::new_with_bounds(1, LONGEST_NS, 2).map_err(|error| error.to_string())?;
    let (started, length) = (Instant::now(), track.paths.len());
    let (mut at, mut walks) = (*begin % length, 0);
    let mut next = || {
        let path = track.paths[at];
        at = if at + 1 == length { 0 } else { at + 1 };
        path
    };
    loop {
        for _ in 1..SAMPLED {
            let path = next();
            if walk(path) == MISSING {
                return Err(format!("{} was not found", path.to_string_lossy()));
            }
        }
        let path = next();
        let before = Instant::now();
        let size = black_box(walk(path));
        let after = Instant::now();
        if size == MISSING {
            return Err(format!("{} was not found", path.to_string_lossy()));
        }
        histogram.saturating_record((after - before).as_nanos() as u64);
        walks += SAMPLED as u64;
        if after - started >= duration {
            *begin = at;
            return Ok(Seen { walks, time: after - started, histogram });
        }
    }
}

/// Runs `watched` while another thread repeats `work`, which gets the number of the repetition;
/// returns the result of `watched`, and the repetitions a second.
///
/// # Errors
/// The first error of either.
/// The first error of either.
pub(super) fn beside<T: Send>(
    work: impl Fn(u64) -> Result<(), String> + Sync,
    watched: impl FnOnce() -> Result<T, String> + Send,
) -> Result<(T, f64), String> {
    let (stop, started, work) = (&AtomicBool::new(false), &Barrier::new(2), &work);
    let panicked = |_| Err("a thread panicked".to_owned());
    thread::scope(|scope| {
        let other = scope.spawn(move || {
            pin(1);
            let first = work(0);
            started.wait();
            let (begin, mut count) = (Instant::now(), 0);
            first?;
            // ORDERING: Relaxed; only ends the loop, nothing is reached through it.
            while !stop.load(Relaxed) {
                count += 1;
                work(count)?;
            }
            Ok(count as f64 / begin.elapsed().as_secs_f64())
        });
        let walker = scope.spawn(move || {
            pin(0);
            started.wait();
            watched()
        });
        let seen = walker.join().unwrap_or_else(|_| Err("the walker panicked".to_owned()));
        // ORDERING: Relaxed; the partner only ends its loop.
        stop.store(true, Relaxed);
        let rate = other.join().unwrap_or_else(panicked)?;
        Ok((seen?, rate))
    })
}

/// Runs `watched` on the walker's core, alone.
///
/// # Errors
/// Those of `watched`.
pub(super) fn alone<T: Send>(
    watched: impl FnOnce() -> Result<T, String> + Send,
) -> Result<T, String> {
    thread::scope(|scope| {
        let walker = scope.spawn(move || {
            pin(0);
            watched()
        });
        walker.join().unwrap_or_else(|_| Err("the walker panicked".to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvfs_bench_workload::paths::{Paths, Pattern};
    use uvfs_bench_workload::tree::Tree;

    #[test]
    fn percentiles_are_of_the_sampled_walks() {
        let mut histogram = Histogram::new(2).unwrap();
        for ns in 1..=100 {
            histogram.record(ns).unwrap();
        }
        let seen = Seen { walks: 400, time: Duration::from_micros(2), histogram };
        assert_eq!((seen.percentile_ns(50.0), seen.percentile_ns(99.0)), (50.0, 99.0));
        assert!((seen.mean_ns() - 5.0).abs() < 1e-9);
    }

    #[test]
    fn a_watched_walker_goes_round_and_notices_what_is_missing() {
        let paths = Paths::new(&Tree::new(2, 40), Pattern::Uniform);
        let (track, mut at) = (paths.track(), 0);
        let seen = watch(&track, &mut at, Duration::ZERO, |_| 1).unwrap();
        assert_eq!((seen.walks, at), (SAMPLED as u64, SAMPLED));
        let long = Duration::from_micros(3);
        let slow = |_: &CStr| {
            let begin = Instant::now();
            while begin.elapsed() < long {}
            1
        };
        let seen = watch(&track, &mut 0, Duration::ZERO, slow).unwrap();
        // Two significant digits: a little below is the same.
        assert!(seen.percentile_ns(50.0) >= 2_950.0, "{seen:?}");
        assert!(seen.mean_ns() >= 3_000.0, "{seen:?}");
        let hole = track.paths[9];
        let walk = |path: &CStr| if path == hole { MISSING } else { 1 };
        let why = watch(&track, &mut 0, Duration::from_secs(60), walk).unwrap_err();
        assert!(why.contains(&*hole.to_string_lossy()), "{why}");
    }

    #[test]
    fn the_other_thread_works_before_and_until_the_walker_ends() {
        let pieces = uvfs_concurrent::counter::Counter::default();
        let work = |_| {
            pieces.hit();
            Ok(())
        };
        let (seen, _) = beside(work, || Ok(pieces.total())).unwrap();
        assert!(seen >= 1, "it worked before the walker began");
        let tried = uvfs_concurrent::counter::Counter::default();
        let failing = |nth| {
            tried.hit();
            if nth == 3 { Err("no".to_owned()) } else { Ok(()) }
        };
        let patient = || {
            while tried.total() < 4 {
                thread::yield_now();
            }
            Ok(())
        };
        assert_eq!(beside(failing, patient).unwrap_err(), "no");
        assert!(beside(|_| Err("at once".to_owned()), || Ok(())).is_err());
    }
}
