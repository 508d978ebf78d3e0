//! The amount that threads may add before they check the total: a share of a budget, divided among all threads.
//!
//! # Boundary
//! Decides when a thread must check. The caller defines the amounts and the limit.
//!
//! # Concurrency
//! A thread adds to its own cell and empties it when its part of the share is used up. No other thread stores there,
//! and no decision reads it.
//!
//! A1. The sum of all threads' additions since their last checks is less than the share: a thread that has added `share
//!     / threads` checks. `threads` is the number of blocks, that is, the most threads that ever lived at once (module
//!     `cells`). The next thread continues with an ended thread's cell.
//! A2. If the share is 0, every thread that adds checks.
//!
//! There is no protocol to model: threads share only the share and the number of threads. These may lag by the amount
//! that is added while they change.
//!
//! # Why
//! Like the batch of Linux `percpu_counter` and of the memory controller. Reading all sizes with each added name cost
//! 36 lines that all cores write. Weakness: while a thread sleeps, no other thread can use its part of the share.

#[cfg(not(loom))]
use crate::cells;
use crate::primitive::atomic::{AtomicU64, Ordering::Relaxed};

/// The share, and each thread's additions. The rules are in the module's documentation.
#[derive(Debug)]
pub struct Allowance {
    share: AtomicU64,
    #[cfg(not(loom))]
    added: cells::Slot,
}

impl Allowance {
    /// All threads together may add less than `share` without a check.
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

    /// The amount that all threads together may add without a check.
    #[inline]
    pub fn share(&self) -> u64 {
        // ORDERING: Relaxed; a limit, nothing is reached through it.
        self.share.load(Relaxed)
    }

    /// Adds `amount` for this thread. True if the thread must check now; it counts as having checked.
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

    /// Under the model checker, which has no cells, every thread that adds checks.
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
    fn without_a_share_every_adder_looks() {
        let allowance = Allowance::new(0);
        assert!(allowance.add(1) && allowance.add(0));
        allowance.set_share(1 << 40);
        // Empties the cell, in which an earlier metric may have left an amount.
        let _ = allowance.add(0);
        assert!(!allowance.add(1));
    }

    /// A1: the unchecked additions of all threads together are less than the share at every moment.
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
                    // All threads have their cells, without amounts of earlier metrics.
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
