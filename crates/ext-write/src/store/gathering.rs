//! Whether a commit waits for threads that will soon ask for one, too.
//!
//! # Boundary
//! Decides how many threads are worth a wait, and how long. [`super::Store`] counts them and waits.
//!
//! # Why
//! Threads that append and want that stable, again and again, fall into two halves: while the commit of one half is under way the other
//! half appends, so each half pays for all flushes. A commit waits for as many threads as the last one served and as asked meanwhile:
//! they have just shown how soon they come again. jbd2 waits for the mean time of a commit where two threads want one in turn; here the
//! wait ends with the last thread that is expected. Weakness: when a thread has ended or does something else, the next commit waits for
//! nothing; so behind each useless wait twice as many commits as before do not wait.
//!
//! G1. A thread that is alone never waits: it is the only one that the last commit served.

use std::time::Duration;

/// Commits that do not wait behind a useless wait, at most.
const REST_MOST: u32 = 256;
/// The longest wait.
const LIMIT: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// Threads that the last commit served, and that asked for the next one meanwhile.
    expected: u32,
    /// Commits that will not wait.
    resting: u32,
    /// How many those were behind the last useless wait.
    rest: u32,
    /// The mean time of a commit.
    mean: Duration,
}

impl Gathering {
    /// A commit begins, for which `asking` threads ask. How many it waits for, and how long at most; `None` if it does not wait.
    pub(super) fn begin(&mut self, asking: u32) -> Option<(u32, Duration)> {
        if asking >= self.expected || self.mean.is_zero() {
            return None;
        }
        if self.resting > 0 {
            self.resting -= 1;
            return None;
        }
        Some((self.expected, self.mean.min(LIMIT)))
    }

    /// The wait has ended; whether all came.
    pub(super) fn waited(&mut self, all: bool) {
        self.rest = if all { 0 } else { (2 * self.rest).clamp(1, REST_MOST) };
        self.resting = self.rest;
    }

    /// A commit has ended that `served` threads asked for; `asking` ask for the next one already.
    pub(super) fn end(&mut self, served: u32, asking: u32, took: Duration) {
        self.expected = served + asking;
        self.mean = match self.mean {
            Duration::ZERO => took,
            mean => (3 * mean + took) / 4,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = Duration::from_millis(1);

    /// Eight writers fell into two halves, and each append waited for two commits.
    #[test]
    fn two_halves_become_one() {
        let mut gathering = Gathering::default();
        gathering.end(4, 4, TOOK);
        assert_eq!(gathering.begin(4), Some((8, TOOK)));
        gathering.waited(true);
        gathering.end(8, 0, TOOK);
        assert_eq!(gathering.begin(1), Some((8, TOOK)));
        gathering.waited(true);
        gathering.end(8, 0, TOOK);
        assert_eq!(gathering.begin(8), None, "all are there");
    }

    /// G1.
    #[test]
    fn a_thread_that_is_alone_never_waits() {
        let mut gathering = Gathering::default();
        assert_eq!(gathering.begin(1), None, "nothing is known yet");
        for _ in 0..100 {
            gathering.end(1, 0, TOOK);
            assert_eq!(gathering.begin(1), None);
        }
    }

    #[test]
    fn useless_waits_become_rare_until_one_is_useful() {
        let mut gathering = Gathering::default();
        let mut waits = 0;
        // A second thread asks during each commit, and never in time.
        for _ in 0..4096 {
            gathering.end(1, 1, TOOK);
            if gathering.begin(1).is_some() {
                gathering.waited(false);
                waits += 1;
            }
        }
        assert!((8..30).contains(&waits), "{waits}");
        while gathering.begin(1).is_none() {}
        gathering.waited(true);
        assert!(gathering.begin(1).is_some());
    }

    #[test]
    fn a_wait_is_as_long_as_a_commit_and_bounded() {
        let mut gathering = Gathering::default();
        gathering.end(1, 1, Duration::from_secs(9));
        assert_eq!(gathering.begin(1), Some((2, LIMIT)));
        for _ in 0..60 {
            gathering.end(1, 1, TOOK);
        }
        let (_, wait) = gathering.begin(1).unwrap();
        assert!(wait < 2 * TOOK, "{wait:?}");
    }
}
