//! Systems take turns, and the loop that is timed.
//!
//! # Boundary
//! Reads by the caller's closure. Checks every sum: a system that reads wrong data, or whose work the compiler removed,
//! fails instead of winning.
//!
//! # Concurrency
//! See [`uvfs_bench_workload::team`]: each thread pinned, all begin together, from the first begin to the last end.
//!
//! # Why
//! The loop is that of `bench-compare/src/hit.rs`, warm-up included, so that no side has the better one. All systems
//! read equally often in a round: then all find the processor's caches in the same state. Weakness: a slow system's
//! round lasts longer, and more disturbance of other programs falls into it.

use super::Run;
use super::rivals::Rival;
use crate::report::Report;
use crate::report::Unit;
use uvfs_bench_workload::team::{Span, team};
use uvfs_bench_workload::traces::{Pattern, Traces};

/// The target of a thread's copies.
pub(super) type Page = [u8; 4096];

/// A system that takes turns.
pub(super) struct Contestant<'a> {
    pub(super) name: String,
    /// One round; thousands of operations, or MiB, a second.
    pub(super) round: Box<dyn FnMut() -> Result<f64, String> + 'a>,
}

impl<'a> Contestant<'a> {
    pub(super) fn new(
        name: impl Into<String>,
        round: impl FnMut() -> Result<f64, String> + 'a,
    ) -> Self {
        Self { name: name.into(), round: Box::new(round) }
    }

    /// A rival that reads by `pattern`, `operations` times a thread.
    pub(super) fn rival(
        run: &'a Run,
        name: &str,
        rival: &'a mut Rival,
        pattern: Pattern,
        (threads, operations): (usize, u64),
    ) -> Self {
        let by_cpu = run.by_cpu;
        Self::new(name, move || {
            let (wall, cpu) = rival.run(threads, pattern, operations)?;
            Ok(thousands(operations, threads, if by_cpu { cpu / threads as f64 } else { wall }))
        })
    }
}

/// Thousands of operations a second, of all threads.
fn thousands(operations: u64, threads: usize, seconds: f64) -> f64 {
    operations as f64 * threads as f64 / seconds.max(1e-9) / 1e3
}

/// Each system reads once in each round; a system that fails drops out.
pub(super) fn take_turns(
    run: &Run,
    case: &str,
    unit: Unit,
    threads: usize,
    contestants: &mut Vec<Contestant<'_>>,
    figures: &mut Report,
) {
    run.progress(&format!("{case}, threads: {threads}"));
    for round in 0..=run.rounds {
        contestants.retain_mut(|one| match (one.round)() {
            // The first round only finds memory and branches as they will be.
            Ok(_) if round == 0 => true,
            Ok(rate) => {
                figures.sample(case, &one.name, threads, unit, rate);
                true
            }
            Err(why) => {
                run.failed(&one.name, case, &why);
                false
            }
        });
        if !contestants.is_empty() {
            contestants.rotate_left(1);
        }
    }
}

/// Seconds of a phase, by the clock of this run.
pub(super) fn seconds(run: &Run, span: Span, threads: usize) -> f64 {
    match run.by_cpu {
        true => span.cpu.as_secs_f64() / threads as f64,
        false => span.wall.as_secs_f64(),
    }
}

/// Each thread reads `operations` of its keys by `read`, which gets the number of the operation, the key and a buffer,
/// and returns the key found in the data.
///
/// # Errors
/// If that is another key.
pub(super) fn by_keys(
    run: &Run,
    traces: &Traces,
    operations: u64,
    read: impl Fn(u64, u32, &mut Page) -> u64 + Sync,
) -> Result<f64, String> {
    let threads = traces.threads();
    let stints = team(threads, |member| {
        let keys = traces.list(member.number);
        let mut buffer = Box::new([0; 4096]);
        each(keys, (operations / 4).min(keys.len() as u64), &mut buffer, &read);
        member.phase(|| each(keys, operations, &mut buffer, &read))
    })?;
    let sum = stints.iter().fold(0, |sum: u64, (_, one)| sum.wrapping_add(*one));
    if sum != traces.sum(operations) {
        return Err(format!("the data read sums up to {sum:x}, not {:x}", traces.sum(operations)));
    }
    let span = Span::of(stints.iter().map(|(stint, _)| *stint));
    Ok(thousands(operations, threads, seconds(run, span, threads)))
}

fn each(
    keys: &[u32],
    operations: u64,
    buffer: &mut Page,
    read: &impl Fn(u64, u32, &mut Page) -> u64,
) -> u64 {
    let (mut sum, mut done) = (0_u64, 0);
    while done < operations && !keys.is_empty() {
        let now = (operations - done).min(keys.len() as u64);
        for (&key, nth) in keys[..now as usize].iter().zip(done..) {
            sum = sum.wrapping_add(read(nth, key, buffer));
        }
        done += now;
    }
    sum
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::cases::TINY;
    use super::*;
    use std::cell::RefCell;
    use std::path::PathBuf;
    use std::time::Instant;

    /// A run without other systems.
    pub(in super::super) fn alone() -> Run {
        Run {
            sizes: TINY,
            rounds: 2,
            threads: vec![1, 2],
            rivals: PathBuf::from("/nowhere/bench-compare"),
            by_cpu: false,
            begin: Instant::now(),
            left_out: RefCell::default(),
            failures: RefCell::default(),
        }
    }

    #[test]
    fn honest_readers_pass_and_others_fail() {
        let traces = Traces::new(Pattern::Zipf, 100, 2, 500);
        let rate = |read: fn(u64, u32, &mut Page) -> u64| by_keys(&alone(), &traces, 1250, read);
        assert!(rate(|_, key, _| u64::from(key)).unwrap() > 0.0);
        let refusal = rate(|_, key, _| u64::from(key.max(1))).unwrap_err();
        assert!(refusal.starts_with("the data read sums up to"), "{refusal}");
        let refusal = rate(|nth, key, _| if nth == 1249 { 0 } else { u64::from(key) });
        assert!(refusal.is_err() || traces.list(0)[249] == 0, "each is read so often");
    }

    #[test]
    fn a_system_that_fails_drops_out_and_the_first_round_does_not_count() {
        let (run, mut figures) = (alone(), Report::new("hit"));
        let mut calls = 0;
        let honest = Contestant::new("a", || {
            calls += 1;
            Ok(f64::from(calls))
        });
        let liar = Contestant::new("b", || Err("no".to_owned()));
        take_turns(&run, "c", Unit::ThousandsPerSecond, 1, &mut vec![liar, honest], &mut figures);
        assert_eq!(figures.median("c", "a", 1), Some(2.5));
        assert_eq!(figures.median("c", "b", 1), None);
        assert_eq!(run.failures.into_inner(), ["b in c: no"]);
    }

    #[test]
    fn rates_are_of_all_threads() {
        assert!((thousands(1000, 2, 0.5) - 4.0).abs() < 1e-9);
    }
}
