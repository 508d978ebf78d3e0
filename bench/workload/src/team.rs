//! Threads that work together, and their times.
//!
//! # Boundary
//! Pins and times them, with a barrier before each phase. The caller supplies the work.
//!
//! # Concurrency
//! Each thread is pinned to a core of its own, as far as there are enough, and waits for the others
//! at a barrier before each phase. The wall time of a phase is from the first begin to the last
//! end, so a delayed thread counts against its system.
//!
//! # Why
//! Processor time beside wall time separates waiting from working when the machine is shared.
//! Weakness: a thread that sleeps while it waits for a lock looks cheap in it.

use super::timed::pin;
use rustix::time::{ClockId, clock_gettime};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Most threads of a team.
pub const THREADS_MAX: usize = 1024;

/// The time of one thread in a phase.
#[derive(Debug, Clone, Copy)]
pub struct Stint {
    begin: Instant,
    end: Instant,
    cpu: Duration,
}

/// The time of all threads in a phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// From the first begin to the last end.
    pub wall: Duration,
    /// CPU time of all threads.
    pub cpu: Duration,
}

impl Span {
    /// The span of a phase of which each thread did a stint.
    pub fn of(stints: impl Iterator<Item = Stint> + Clone) -> Self {
        let begin = stints.clone().map(|stint| stint.begin).min();
        let end = stints.clone().map(|stint| stint.end).max();
        let wall = begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end - begin);
        Self { wall, cpu: stints.map(|stint| stint.cpu).sum() }
    }
}

/// One thread of a team.
#[derive(Debug)]
pub struct Member<'t> {
    /// From 0 to the number of threads.
    pub number: usize,
    barrier: &'t Barrier,
}

impl Member<'_> {
    /// Waits for the others, then does `work` against the clock.
    pub fn phase<R>(&self, work: impl FnOnce() -> R) -> (Stint, R) {
        self.barrier.wait();
        let (begin, before) = (Instant::now(), thread_cpu());
        let result = work();
        let (after, end) = (thread_cpu(), Instant::now());
        (Stint { begin, end, cpu: after.saturating_sub(before) }, result)
    }
}

/// The results of each of `threads` threads. All must run the same number of phases.
///
/// # Errors
/// If a thread panics. If it does so before its last phase, the others wait for ever.
pub fn team<R: Send>(
    threads: usize,
    work: impl Fn(&Member<'_>) -> R + Sync,
) -> Result<Vec<R>, String> {
    let (work, barrier) = (&work, &Barrier::new(threads));
    thread::scope(|scope| {
        let one = |number| {
            scope.spawn(move || {
                pin(number);
                work(&Member { number, barrier })
            })
        };
        let members: Vec<_> = (0..threads).map(one).collect();
        let results = members.into_iter().map(thread::ScopedJoinHandle::join);
        results.collect::<Result<_, _>>().map_err(|_| "a thread panicked".to_owned())
    })
}

/// Processor time of the calling thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn a_phase_begins_when_all_have_ended_the_one_before() {
        let done = AtomicUsize::new(0);
        let seen = team(4, |member| {
            member.phase(|| done.fetch_add(1, SeqCst));
            member.phase(|| done.load(SeqCst)).1
        });
        assert_eq!(seen.unwrap(), [4; 4]);
    }

    #[test]
    fn a_span_reaches_from_the_first_begin_to_the_last_end() {
        let origin = Instant::now();
        let at = |ms| origin + Duration::from_millis(ms);
        let stint = |begin, end, cpu| Stint {
            begin: at(begin),
            end: at(end),
            cpu: Duration::from_millis(cpu),
        };
        let span = Span::of([stint(5, 9, 2), stint(3, 7, 4)].into_iter());
        let expected = Span { wall: Duration::from_millis(6), cpu: Duration::from_millis(6) };
        assert_eq!(span, expected);
    }

    #[test]
    fn work_takes_time_of_its_own_processor() {
        let spin = || (0..2_000_000_u64).fold(1, |sum: u64, n| std::hint::black_box(sum ^ n));
        let stints = team(2, |member| member.phase(spin).0).unwrap();
        assert!(stints.iter().all(|stint| stint.cpu > Duration::ZERO));
        assert!(Span::of(stints.into_iter()).wall > Duration::ZERO);
    }

    #[test]
    fn a_panic_is_an_error() {
        let result = team(1, |_| panic!("on purpose"));
        assert_eq!(result, Err::<Vec<()>, _>("a thread panicked".to_owned()));
    }
}
