//! Statistics for which threads do not contend.
//!
//! # Boundary
//! Counts events. Not for reference counts or limits. A sum is a snapshot that never
//! existed at one instant, which is fine for a report and wrong for a decision.
//!
//! # Concurrency
//! A thread adds to its own cell with a plain load and store; readers add the cells
//! up. The counts of ended threads stay (module `cells`). Under the model checker a counter is one
//! word of `std`'s that the checker does not see. It carries no order, so there is nothing to
//! explore.

#[cfg(not(loom))]
use crate::cells::Slot;
#[cfg(loom)]
use crate::primitive::unseen;

/// A monotonic event counter with a cell in every thread.
#[derive(Debug)]
pub struct Counter(Slot);

impl Counter {
    /// A counter that stands at 0.
    pub fn new() -> Self {
        Self(Slot::new())
    }

    /// Adds `amount`. Stores only to this thread's cell; never waits, except for the very first add
    /// of a thread.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.add(amount);
    }

    /// Adds one.
    #[inline]
    pub fn hit(&self) {
        self.add(1);
    }

    /// The sum over all threads; a snapshot, exact once no thread counts.
    pub fn total(&self) -> u64 {
        self.0.total()
    }
}

impl Default for Counter {
    fn default() -> Self {
        Self::new()
    }
}

/// Replaces the cells under the model checker.
#[cfg(loom)]
#[derive(Debug)]
struct Slot(unseen::AtomicU64);

#[cfg(loom)]
impl Slot {
    fn new() -> Self {
        Self(unseen::AtomicU64::new(0))
    }
    fn add(&self, amount: u64) {
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        self.0.fetch_add(amount, unseen::Ordering::Relaxed);
    }
    fn total(&self) -> u64 {
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        self.0.load(unseen::Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn counts_every_event_of_every_thread() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..19 {
                scope.spawn(|| (0..1000).for_each(|_| counter.hit()));
            }
        });
        counter.add(7);
        assert_eq!(counter.total(), 1000 * 19 + 7);
    }

    #[test]
    fn counting_touches_nothing_shared() {
        let counter = Counter::new();
        counter.hit();
        #[cfg(debug_assertions)]
        {
            let ((), tally) = crate::primitive::record::tally(|| counter.hit());
            assert_eq!(tally, crate::primitive::record::Tally::default());
        }
        assert!(counter.total() > 0);
    }
}
