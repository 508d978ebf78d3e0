//! Waiting for a node that somebody else holds.
//!
//! # Boundary
//! Passes time and tells the meter; the word and its orderings are in [`super::node`].
//!
//! # Why
//! Who holds a leaf holds it for some ten nanoseconds, and mostly comes back for the leaf's next slot.
//! Two threads that work through one leaf in turns therefore meet at every step, and the line goes to and
//! fro: together they do a third of what one does alone. Zijlstra 2007 saw such threads
//! drift apart after a while, and run freely from then on. Stepping back brings that about at once: the
//! one that finds a node held leaves it to the other for a moment. The moment is short if the last one
//! is long ago, and longer each time if they follow one another closely. Interleaved insertion by two
//! threads rose from 0.3 to 1.4 times the rate of one by this. Weakness: a thread may wait ten
//! microseconds for what is free after ten nanoseconds. The ways of locking that are here for comparison
//! spin, as their originals do; one lock for the tree that steps back keeps one thread's rate with two
//! threads, where the spinning one falls to a ninth of it.

use crate::lock::LockClass;
#[cfg(not(loom))]
use std::cell::Cell;
#[cfg(not(loom))]
use std::time::{Duration, Instant};

/// How to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Try again and again.
    Spin,
    /// Leave the node to the other for a moment first.
    StepBack,
}

/// Calls `attempt` until it succeeds, after it failed once. The meter counts it for the caller's
/// caller.
#[cold]
#[track_caller]
pub(super) fn wait(class: &'static LockClass, patience: Patience, attempt: impl FnMut() -> bool) {
    let mut attempt = attempt;
    let mut stepped = patience == Patience::Spin;
    crate::lock::bit::wait(class, || {
        if !stepped {
            stepped = true;
            step_back();
        }
        attempt()
    });
}

/// The checker lets others run whenever they can.
#[cfg(loom)]
fn step_back() {}

#[cfg(not(loom))]
const SHORTEST: Duration = Duration::from_nanos(200);
/// About what sleeping in the kernel and being woken costs.
#[cfg(not(loom))]
const LONGEST: Duration = Duration::from_micros(10);
/// A moment that follows within so many times the last one's length is longer, else shorter.
#[cfg(not(loom))]
const SOON: u32 = 8;

/// Passes a moment.
#[cfg(not(loom))]
fn step_back() {
    thread_local! {
        /// When the last moment ended, and how long it was to be.
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

/// How long to step back when the last time was `last`, and so long ago.
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
