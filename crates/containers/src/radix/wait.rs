//! Waiting for a node that another thread holds.
//!
//! # Boundary
//! Waits and reports to the meter; the word and its orderings are in [`super::node`].
//!
//! # Why
//! A holder keeps a leaf for some ten nanoseconds, and mostly comes back for the leaf's next slot. Two threads
//! that work through one leaf in turns therefore collide at every step, and the line moves between their cores.
//! Together they reach a third of one thread's rate. Zijlstra 2007 saw such threads drift apart after a while, and not
//! collide from then on. Stepping back achieves that at once: a thread that finds a node held leaves it to the other
//! for a moment. The moment is short if the last one is long ago, and grows if they follow one another closely.
//! Interleaved insertion by two threads rose from 0.3 to 1.4 times the rate of one. Weakness: a thread may wait ten
//! microseconds for a node that is free after ten nanoseconds. The two ways of locking for comparison spin, as their
//! originals do. A tree with one lock keeps one thread's rate with two threads that step back; with spinning threads it
//! falls to a ninth.

#[cfg(not(loom))]
use std::cell::Cell;
#[cfg(not(loom))]
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::LockClass;

/// The way to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Retry without a pause.
    Spin,
    /// First leave the node to the other thread for a moment.
    StepBack,
}

/// Calls `attempt` until it succeeds, after it failed once. The meter counts the wait for the caller's caller.
#[cold]
#[track_caller]
pub(super) fn wait(class: &'static LockClass, patience: Patience, attempt: impl FnMut() -> bool) {
    let mut attempt = attempt;
    let mut stepped = patience == Patience::Spin;
    uvfs_concurrent::lock::bit::wait(class, || {
        if !stepped {
            stepped = true;
            step_back();
        }
        attempt()
    });
}

/// The checker runs other threads at every opportunity.
#[cfg(loom)]
fn step_back() {}

#[cfg(not(loom))]
const SHORTEST: Duration = Duration::from_nanos(200);
/// About the cost of sleeping in the kernel and being woken.
#[cfg(not(loom))]
const LONGEST: Duration = Duration::from_micros(10);
/// If less time than this multiple of the last moment has passed since, the next moment is longer, otherwise shorter.
#[cfg(not(loom))]
const SOON: u32 = 8;

/// Waits for one moment.
#[cfg(not(loom))]
fn step_back() {
    thread_local! {
        /// The end of the last moment, and its planned length.
        static LAST: Cell<(Option<Instant>, Duration)> = const { Cell::new((None, SHORTEST)) };
    }
    let begin = Instant::now();
    let (ended, last) = LAST.get();
    let moment = next_moment(ended.map(|ended| begin.saturating_duration_since(ended)), last);
    let mut now = begin;
    while now.saturating_duration_since(begin) < moment {
        std::hint::spin_loop();
        now = Instant::now();
    }
    LAST.set((Some(now), moment));
}

/// The length of the next moment, if the last one was `last` and ended `ago`.
#[cfg(not(loom))]
fn next_moment(ago: Option<Duration>, last: Duration) -> Duration {
    match ago {
        Some(ago) if ago < SOON * last => (2 * last).min(LONGEST),
        _ => (last / 2).max(SHORTEST),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn moments_grow_while_they_follow_closely_and_shrink_again() {
        let close = |last| next_moment(Some(SOON * last - Duration::from_nanos(1)), last);
        let far = |last| next_moment(Some(SOON * last), last);
        assert_eq!(next_moment(None, SHORTEST), SHORTEST);
        assert_eq!(close(SHORTEST), 2 * SHORTEST);
        assert_eq!(close(LONGEST), LONGEST);
        assert_eq!(far(LONGEST), LONGEST / 2);
        assert_eq!(far(SHORTEST), SHORTEST);
    }
}
