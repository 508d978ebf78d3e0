//! The timed loop, and the threads that run it.
//!
//! # Boundary
//! Takes a walk as a closure from a path to a size. Checks every sum: a system that finds too
//! little, or whose work the compiler removed, fails instead of winning.
//!
//! # Concurrency
//! Each thread is pinned to a core of its own, as far as there are enough, walks for a while before
//! the clock starts, and waits for the others at a barrier. The time is from the first begin to the
//! last end, so a delayed thread counts against its system.
//!
//! # Why
//! Rounds are as long in time for a slow system as for a fast one, so a disturbance affects each
//! alike. A round continues where the one before stopped: a large tree is not measured by its first
//! thousand files.

use super::paths::Track;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ffi::CStr;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// The result of a walk that did not find its file: no sum with it can be right.
pub const MISSING: u64 = 1 << 40;

/// How far a system has come with one track and number of threads.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pace {
    /// Walks of a thread in a round; 0 before the first.
    walks: usize,
    /// Where the next round begins.
    begin: usize,
}

/// Walks `track` for about `target`; nanoseconds a walk, as one thread sees them. The first round of
/// a pace walks the whole track once, untimed.
///
/// # Errors
/// Says so if the walks did not find the sizes that are there.
pub fn round(
    track: &Track<'_>,
    pace: &mut Pace,
    threads: usize,
    target: Duration,
    walk: impl Fn(&CStr) -> u64 + Sync,
) -> Result<f64, String> {
    let length = track.paths.len();
    if pace.walks == 0 {
        let begin = Instant::now();
        check(track, 0, length, run(track, 0, length, &walk))?;
        pace.walks = walks_in(target, begin.elapsed().as_secs_f64() * 1e9 / length as f64);
    }
    let (walks, first) = (pace.walks, pace.begin);
    let begin_of = |thread: usize| (first + thread * length / threads) % length;
    let warm = |thread: usize| {
        let ahead = (walks / 4).max(1).min(length);
        black_box(run(track, (begin_of(thread) + length - ahead) % length, ahead, &walk));
    };
    let wall = team(threads, warm, |thread| {
        let sum = run(track, begin_of(thread), walks, &walk);
        move || check(track, begin_of(thread), walks, sum)
    })?;
    let ns = wall.as_secs_f64() * 1e9 / walks as f64;
    *pace = Pace { walks: walks_in(target, ns), begin: (first + walks) % length };
    Ok(ns)
}

/// Runs `timed(0)` to `timed(threads - 1)` at the same time, each after its `warm`; returns the
/// time from the first begin to the last end. The closure that `timed` returns is called when the
/// clock has stopped.
///
/// # Errors
/// The first error of any thread.
pub fn team<After: FnOnce() -> Result<(), String>>(
    threads: usize,
    warm: impl Fn(usize) + Sync,
    timed: impl Fn(usize) -> After + Sync,
) -> Result<Duration, String> {
    let (warm, timed, barrier) = (&warm, &timed, &Barrier::new(threads));
    let one = move |thread: usize| {
        pin(thread);
        warm(thread);
        barrier.wait();
        let begin = Instant::now();
        let after = timed(thread);
        let end = Instant::now();
        after().map(|()| (begin, end))
    };
    let times = thread::scope(|scope| {
        let members: Vec<_> = (0..threads).map(|nth| scope.spawn(move || one(nth))).collect();
        let panicked = |_| Err("a thread panicked".to_owned());
        let ends = members.into_iter().map(|member| member.join().unwrap_or_else(panicked));
        ends.collect::<Result<Vec<_>, String>>()
    })?;
    let begin = times.iter().map(|time| time.0).min();
    let end = times.iter().map(|time| time.1).max();
    Ok(begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end - begin))
}

/// Keeps the calling thread on the core of its number, counted among those it may use. Without the
/// right to choose, it runs where it is.
pub fn pin(thread: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
    if let Some(&core) = cores.get(thread % cores.len().max(1)) {
        let mut set = CpuSet::new();
        set.set(core);
        // Unpinned threads make noisier figures, not wrong ones.
        let _ = sched_setaffinity(None, &set);
    }
}

/// Walks `walks` paths from `begin` on, round and round; the sum of the sizes.
fn run(track: &Track<'_>, begin: usize, walks: usize, walk: impl Fn(&CStr) -> u64) -> u64 {
    let (mut at, mut left, mut sum) = (begin, walks, 0_u64);
    while left > 0 {
        let until = track.paths.len().min(at + left);
        for path in &track.paths[at..until] {
            sum = sum.wrapping_add(walk(path));
        }
        left -= until - at;
        at = 0;
    }
    sum
}

fn check(track: &Track<'_>, begin: usize, walks: usize, sum: u64) -> Result<(), String> {
    let all: u64 = track.sizes.iter().sum();
    let length = track.sizes.len();
    let rest = walks % length;
    let part: u64 = (0..rest).map(|nth| track.sizes[(begin + nth) % length]).sum();
    let expected = all.wrapping_mul((walks / length) as u64).wrapping_add(part);
    if sum == expected {
        return Ok(());
    }
    Err(format!("{walks} walks gave sizes of {sum}, not {expected}: a name was not found"))
}

fn walks_in(target: Duration, ns: f64) -> usize {
    ((target.as_secs_f64() * 1e9 / ns.max(0.1)) as usize).clamp(64, 1 << 30)
}

#[cfg(test)]
mod tests {
    use super::super::paths::{Paths, Pattern};
    use super::super::tree::Tree;
    use super::*;

    const SHORT: Duration = Duration::from_micros(200);

    fn paths() -> Paths {
        Paths::new(&Tree::new(2, 300), Pattern::Uniform)
    }

    /// The size that belongs to `path`, looked up slowly.
    fn honest(track: &Track<'_>, path: &CStr) -> u64 {
        let at = track.paths.iter().position(|one| one.as_ptr() == path.as_ptr());
        at.map_or(MISSING, |at| track.sizes[at])
    }

    #[test]
    fn honest_walks_pass_in_every_round_and_number_of_threads() {
        let paths = paths();
        let track = paths.track();
        for threads in [1, 2, 3] {
            let mut pace = Pace::default();
            for _ in 0..3 {
                let ns = round(&track, &mut pace, threads, SHORT, |path| honest(&track, path));
                assert!(ns.unwrap() > 0.0);
                assert!(pace.walks > 0 && pace.begin < track.paths.len());
            }
        }
    }

    #[test]
    fn a_walk_that_misses_one_name_fails() {
        let paths = paths();
        let track = paths.track();
        let missing = |path: &CStr| {
            let size = honest(&track, path);
            if path == track.paths[7] { MISSING } else { size }
        };
        let refusal = round(&track, &mut Pace::default(), 1, SHORT, missing).unwrap_err();
        assert!(refusal.contains("not found"), "{refusal}");
    }

    #[test]
    fn sums_are_right_wherever_a_round_begins() {
        let paths = paths();
        let track = paths.track();
        let length = track.paths.len();
        for (begin, walks) in [(0, 1), (length - 1, 5), (3, length), (7, 3 * length + 11)] {
            let sum = run(&track, begin, walks, |path| honest(&track, path));
            assert!(check(&track, begin, walks, sum).is_ok(), "{begin} {walks}");
            assert!(check(&track, begin, walks, sum + 1).is_err(), "{begin} {walks}");
        }
    }

    #[test]
    fn errors_of_any_thread_come_out() {
        let timed = |thread| move || if thread == 1 { Err("no".to_owned()) } else { Ok(()) };
        assert_eq!(team(2, |_| {}, timed).unwrap_err(), "no");
    }
}
