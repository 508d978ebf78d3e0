//! Statistics that threads do not fight over.
//!
//! # Boundary
//! Counts events. Not for reference counts or limits: a sum is a snapshot that never existed at
//! one instant, which is fine for a report and wrong for a decision.
//!
//! # Concurrency
//! A thread adds to one of [`STRIPES`] padded cells, chosen once per thread; readers add them up.
//! With more threads than stripes some share a cell, and are slower, never wrong.

use crate::padded::Padded;
use crate::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering as StdOrdering};

/// Cells of one [`Counter`]; a power of two.
pub const STRIPES: usize = 16;

/// A monotonic event counter, striped by thread.
#[derive(Debug)]
pub struct Counter {
    cells: [Padded<AtomicU64>; STRIPES],
}

impl Default for Counter {
    fn default() -> Self {
        Self { cells: std::array::from_fn(|_| Padded(AtomicU64::new(0))) }
    }
}

impl Counter {
    /// Adds `amount`. Never blocks; stores only to this thread's stripe.
    pub fn add(&self, amount: u64) {
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        self.cells[stripe()].fetch_add(amount, Relaxed);
    }

    /// Adds one.
    pub fn hit(&self) {
        self.add(1);
    }

    /// The sum over all threads; a snapshot, exact once the counted threads are quiet.
    pub fn total(&self) -> u64 {
        // ORDERING: Relaxed; the sum claims no order among the cells.
        self.cells.iter().map(|cell| cell.load(Relaxed)).fold(0, u64::wrapping_add)
    }
}

/// This thread's cell index, assigned round robin at first use.
fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: Cell<usize> = const { Cell::new(usize::MAX) });
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            // ORDERING: Relaxed; only spreads threads over the stripes.
            mine.set(NEXT.fetch_add(1, StdOrdering::Relaxed) % STRIPES);
        }
        mine.get()
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn counts_every_event_of_every_thread() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..STRIPES + 3 {
                scope.spawn(|| (0..1000).for_each(|_| counter.hit()));
            }
        });
        counter.add(7);
        assert_eq!(counter.total(), 1000 * (STRIPES as u64 + 3) + 7);
    }
}
