//! How soon a cleaning takes effect, its disturbance of other lookups, and its effect on other directories.
//!
//! # Boundary
//! In process, over a computed store that never waits. `foo` is cleaned; `foobar`, whose name begins the same, and
//! `other` are beside it and stay.
//!
//! # Concurrency
//! While one thread frees, another one looks up names in other directories and times each lookup by itself.
//!
//! # Why
//! Effect is the time until [`Vfs::begin_clean`] returns: from then on a lookup below asks the store, which is checked
//! each time. The names outside are counted twice: by the caches' own count, and by looking up every single one and
//! counting those that reach the store. Weakness: the percentile includes the clock, tens of nanoseconds. With fewer
//! than two idle cores it mostly shows the scheduler.

use super::figures::Figures;
use super::store::{Branch, ComputedStore, FilePath, Probe};
use super::{Run, config, other};
use crate::report::Unit;
use hdrhistogram::Histogram;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use uvfs_concurrent::primitive::atomic::{AtomicBool, Ordering::Relaxed};
use uvfs_vfs::{Caller, Clean, Directory, Dirty, PageCaching, Vfs};

/// In process.
pub(super) const OURS: &str = "uvfs";
/// How the cases' names begin.
pub(super) const EFFECT: &str = "effect-";
pub(super) const IDLE: &str = "p99-idle";
pub(super) const REAPING: &str = "p99-reaping";
pub(super) const COLLATERAL: &str = "collateral-";

/// Directories from the root to the files.
const DEPTHS: [u64; 2] = [1, 8];
const CLEANED: &str = "foo";
const OUTSIDE: [&str; 2] = ["foobar", "other"];
/// Names that are looked up again and again while others are freed.
const WATCHED: u64 = 1000;
/// Room for each name: none is evicted.
const BYTES_A_NAME: u64 = 2048;
const LONGEST_NS: u64 = 60_000_000_000;

/// Caches, and the directories below them.
struct Course {
    vfs: Arc<Vfs>,
    probe: Arc<Probe>,
    top: Directory,
    /// The cleaned directory's, from the root.
    files_path: String,
    below: u64,
}

impl Course {
    fn new(below: u64, depth: u64, outside: u64) -> io::Result<Self> {
        let cleaned = Branch { depth, ..Branch::of(CLEANED, below) };
        let files_path = cleaned.path();
        let mut branches = vec![cleaned];
        branches.extend(OUTSIDE.map(|name| Branch::of(name, outside)));
        let store = ComputedStore::new(branches, PageCaching::Store);
        let probe = store.probe();
        let room = (below + 2 * outside + (16 << 10)) * BYTES_A_NAME;
        let vfs = Vfs::new(store, config(room)).map_err(other)?;
        let top = vfs.root_directory(Caller::root());
        Ok(Self { vfs, probe, top, files_path, below })
    }

    fn fill(&self) -> io::Result<()> {
        look_up_all(&self.top, &self.files_path, self.below)
    }
}

fn look_up_all(top: &Directory, directory: &str, files: u64) -> io::Result<()> {
    let mut path = FilePath::below(directory);
    for number in 0..files {
        top.stat(path.of(number)).map_err(other)?;
    }
    Ok(())
}

/// Measures all of it.
pub(super) fn measure(run: &Run, figures: &mut Figures) -> io::Result<()> {
    let sizes = &run.sizes;
    for below in sizes.below {
        for depth in DEPTHS {
            let ending = if depth == 1 { String::new() } else { format!("-d{depth}") };
            run.progress(&format!("{EFFECT}{below}{ending}"));
            let course = Course::new(below, depth, 0)?;
            for _ in 0..sizes.effects {
                let (effect, first) = effect(&course)?;
                let mut sample = |case: &str, time: Duration| {
                    let us = time.as_secs_f64() * 1e6;
                    figures.sample(&format!("{case}{below}{ending}"), OURS, Unit::Microseconds, us);
                };
                sample(EFFECT, effect);
                sample("first-lookup-", first);
            }
        }
        run.progress(&format!("{COLLATERAL}{below}"));
        for _ in 0..run.runs {
            let gone = collateral(below, sizes.outside)? as f64;
            figures.sample(&format!("{COLLATERAL}{below}"), OURS, Unit::Entries, gone);
        }
    }
    let below = sizes.below[1];
    run.progress(&format!("{REAPING}-{below}"));
    let course = Course::new(below, 1, WATCHED)?;
    look_up_all(&course.top, OUTSIDE[1], WATCHED)?;
    for _ in 0..sizes.watches {
        let (idle, reaping) = disturbance(&course, Duration::from_millis(sizes.watch_ms))?;
        for (case, histogram) in [(IDLE, idle), (REAPING, reaping)] {
            let ns = histogram.value_at_quantile(0.99) as f64;
            figures.sample(&format!("{case}-{below}"), OURS, Unit::Nanoseconds, ns);
        }
    }
    Ok(())
}

/// Until a cleaning has begun, and then one lookup below.
fn effect(course: &Course) -> io::Result<(Duration, Duration)> {
    course.fill()?;
    let directory = course.top.open_directory(CLEANED).map_err(other)?;
    let mut path = FilePath::below(&course.files_path);
    let path = path.of(course.below / 2);
    let before = course.probe.lookups();
    let begin = Instant::now();
    let cleaning = course.vfs.begin_clean(directory.node(), Clean::Names).map_err(other)?;
    let effect = begin.elapsed();
    let begin = Instant::now();
    course.top.stat(path).map_err(other)?;
    let first = begin.elapsed();
    if course.probe.lookups() == before {
        return Err(io::Error::other(format!("{path} was still cached after its cleaning began")));
    }
    let _ = cleaning.reap(Dirty::Skip, &mut |_| ControlFlow::Continue(()));
    Ok((effect, first))
}

/// Names outside of the cleaned directory that were evicted with it.
fn collateral(below: u64, outside: u64) -> io::Result<u64> {
    let course = Course::new(below, 1, outside)?;
    course.fill()?;
    for directory in OUTSIDE {
        look_up_all(&course.top, directory, outside)?;
    }
    let held = course.vfs.statistics().names.held;
    let directory = course.top.open_directory(CLEANED).map_err(other)?;
    let report = course.vfs.clean(directory.node(), Clean::Both, Dirty::Skip).map_err(other)?;
    if report.names.freed.entries != below {
        let why = format!("of {below} names {} were freed", report.names.freed.entries);
        return Err(io::Error::other(why));
    }
    let by_count = (held - below).saturating_sub(course.vfs.statistics().names.held);
    let before = course.probe.lookups();
    for directory in OUTSIDE {
        look_up_all(&course.top, directory, outside)?;
    }
    Ok(by_count.max(course.probe.lookups() - before))
}

/// Lookups outside, first without a cleaning, and then while the cleaned directory is freed.
fn disturbance(course: &Course, idle: Duration) -> io::Result<(Histogram<u64>, Histogram<u64>)> {
    course.fill()?;
    let end = Instant::now() + idle;
    let alone = watch(&course.top, || Instant::now() > end)?;
    let directory = course.top.open_directory(CLEANED).map_err(other)?;
    let cleaning = course.vfs.begin_clean(directory.node(), Clean::Names).map_err(other)?;
    let is_done = &AtomicBool::new(false);
    let beside = thread::scope(|scope| {
        scope.spawn(move || {
            let _ = cleaning.reap(Dirty::Skip, &mut |_| ControlFlow::Continue(()));
            // ORDERING: Relaxed; only ends the loop below, nothing is reached through it.
            is_done.store(true, Relaxed);
        });
        // ORDERING: Relaxed; only ends the loop.
        watch(&course.top, || is_done.load(Relaxed))
    })?;
    Ok((alone, beside))
}

/// Times each lookup until `is_over`, which is asked after each round over all names.
fn watch(top: &Directory, is_over: impl Fn() -> bool) -> io::Result<Histogram<u64>> {
    let mut histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3).map_err(io::Error::other)?;
    let mut path = FilePath::below(OUTSIDE[1]);
    loop {
        for number in 0..WATCHED {
            let path = path.of(number);
            let begin = Instant::now();
            let found = top.stat(path);
            let took = begin.elapsed();
            found.map_err(other)?;
            histogram.saturating_record(took.as_nanos() as u64);
        }
        if is_over() {
            return Ok(histogram);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cleaning_takes_effect_at_any_depth_and_leaves_its_neighbours() {
        for depth in DEPTHS {
            effect(&Course::new(300, depth, 0).unwrap()).unwrap();
        }
        assert_eq!(collateral(300, 200).unwrap(), 0);
    }

    #[test]
    fn lookups_elsewhere_are_timed_in_both_states() {
        let course = Course::new(3000, 1, WATCHED).unwrap();
        let (idle, reaping) = disturbance(&course, Duration::from_millis(1)).unwrap();
        assert!(idle.len() >= WATCHED && reaping.len() >= WATCHED);
    }
}
