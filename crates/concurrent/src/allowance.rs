//! What threads may add before they look at the whole: a share of a budget, divided among all threads.
//!
//! # Boundary
//! Says when a thread is to look. What is added, and what there is too much of, is the caller's.
//!
//! # Concurrency
//! A thread adds to its own cell and empties it when its part of the share is used up; nobody else stores there, and
//! nobody reads it but to tell.
//!
//! A1. What all threads together have added since each of them looked is less than the share: a thread that has added
//!     `share / threads` looks, where `threads` counts the blocks of all threads that live or ever lived at once
//!     (module `cells`). A cell of an ended thread goes on with the next one.
//! A2. Where the share is 0, whoever adds looks.
//!
//! There is no protocol to model: no thread acts on another one's word but for the share and the number of threads, which
//! may lag by what is added in the moment that they change.
//!
//! # Why
//! As the batch of Linux `percpu_counter` and of the memory controller. To look at the sizes of everything with each name
//! that came cost 36 lines that all cores write. Weakness: while a thread sleeps, its part of the share is nobody's.

#[cfg(not(loom))]
use crate::cells;
use crate::primitive::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module.
#[derive(Debug)]
pub struct Allowance {
    share: AtomicU64,
    #[cfg(not(loom))]
    added: cells::Slot,
}

impl Allowance {
    /// All threads together may add less than `share` without a look.
    pub fn new(share: u64) -> Self {
        Self {
            share: AtomicU64::new(share),
            #[cfg(not(loom))]
            added: cells::Slot::new(),
        }
    }

    /// Changes the share.
    pub fn set_share(&self, share: u64) {
        // ORDERING: Relaxed; a limit, nothing is reached through it.
        if self.share.load(Relaxed) != share {
            self.share.store(share, Relaxed);
        }
    }

    /// What all threads together may have added without a look.
    #[inline]
    pub fn share(&self) -> u64 {
        // ORDERING: Relaxed; as in `set_share`.
        self.share.load(Relaxed)
    }

    /// This thread adds `amount`. True if it is to look now; it is taken to have done so.
    #[inline]
    #[must_use]
    #[cfg(not(loom))]
    pub fn add(&self, amount: u64) -> bool {
        let share = self.share();
        // A2.
        share == 0 || {
            let mut due = false;
            let kept = self.added.replace(|before| {
                let added = before.saturating_add(amount);
                due = added.saturating_mul(cells::threads()) >= share;
                if due { 0 } else { added }
            });
            due || !kept
        }
    }

    /// Under the model checker, which has no cells, whoever adds looks.
    #[must_use]
    #[cfg(loom)]
    pub fn add(&self, _amount: u64) -> bool {
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicU64 as Sum;

    #[test]
    fn without_a_share_whoever_adds_looks() {
        let allowance = Allowance::new(0);
        assert!(allowance.add(1) && allowance.add(0));
        allowance.set_share(1 << 40);
        // What an earlier metric left in the cell.
        let _ = allowance.add(0);
        assert!(!allowance.add(1));
    }

    /// A1: what was added and not looked at, summed over all threads, is less than the share at every moment.
    #[test]
    fn all_together_stay_below_the_share() {
        const THREADS: usize = 8;
        const SHARE: u64 = 64_000;
        let (allowance, together) = (Allowance::new(SHARE), Sum::new(0));
        let (begin, most) = (Barrier::new(THREADS), Sum::new(0));
        std::thread::scope(|scope| {
            for thread in 0..THREADS as u64 {
                let (allowance, together, begin, most) = (&allowance, &together, &begin, &most);
                scope.spawn(move || {
                    // All have their cells, emptied of what earlier metrics left.
                    let _ = allowance.add(SHARE);
                    begin.wait();
                    let mut mine = 0;
                    for turn in 0..5000 {
                        let amount = (turn * 7 + thread) % 100;
                        if allowance.add(amount) {
                            together.fetch_sub(mine, Relaxed);
                            mine = 0;
                        } else {
                            mine += amount;
                            let now = together.fetch_add(amount, Relaxed) + amount;
                            most.fetch_max(now, Relaxed);
                        }
                    }
                    together.fetch_sub(mine, Relaxed);
                });
            }
        });
        let most = most.into_inner();
        assert!(most < SHARE, "{most}");
        assert!(most > 1000, "looks are rare: {most}");
    }
}
