//! Counts the entries and bytes of a table, without a line to which every writer stores.
//!
//! # Boundary
//! Two sums over stripes; a thread adds to its own. The sum is exact when no thread changes the
//! table. Otherwise it is off by at most the changes in progress, so it may serve a limit. The
//! bytes of bucket arrays are one word: arrays are rare.
//!
//! # Concurrency
//! Plain read-modify-writes; nothing is reached through them. Under the model checker the words are
//! `std`'s, which the checker does not explore.
//!
//! # Why
//! [`uvfs_concurrent::counter`] costs a store instead of a read-modify-write, but its sum locks and visits
//! every thread, and a table reads its size when it decides to grow. Weakness: 2 KiB for each
//! table.

use crate::pool;
use std::array;
use uvfs_concurrent::padded::Padded;

#[cfg(not(loom))]
use uvfs_concurrent::primitive::atomic::{AtomicUsize, Ordering};
#[cfg(loom)]
use uvfs_concurrent::primitive::unseen::{AtomicUsize, Ordering};

const STRIPES: usize = 16;

#[derive(Debug, Default)]
struct Stripe {
    entries: AtomicUsize,
    bytes: AtomicUsize,
}

/// The counts of one table.
#[derive(Debug)]
pub(super) struct Counts {
    stripes: [Padded<Stripe>; STRIPES],
    array_bytes: AtomicUsize,
}

impl Counts {
    pub(super) fn new() -> Self {
        let stripes = array::from_fn(|_| Padded(Stripe::default()));
        Self { stripes, array_bytes: AtomicUsize::new(0) }
    }

    /// Adds (or subtracts, if negative). Returns the sum of entries in this thread's stripe, which
    /// may be below zero.
    pub(super) fn add(&self, entries: isize, bytes: isize) -> isize {
        let stripe = &self.stripes[pool::lane() % STRIPES];
        // ORDERING: Relaxed; a statistic, nothing is reached through it. Sums wrap, so the total is
        // right even if removals by other threads made a stripe negative.
        stripe.bytes.fetch_add(bytes as usize, Ordering::Relaxed);
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        (stripe.entries.fetch_add(entries as usize, Ordering::Relaxed) as isize) + entries
    }

    pub(super) fn add_array(&self, bytes: isize) {
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        self.array_bytes.fetch_add(bytes as usize, Ordering::Relaxed);
    }

    pub(super) fn entries(&self) -> usize {
        self.sum(|stripe| &stripe.entries)
    }

    pub(super) fn bytes(&self) -> usize {
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        self.sum(|stripe| &stripe.bytes) + self.array_bytes.load(Ordering::Relaxed)
    }

    fn sum(&self, word: impl Fn(&Stripe) -> &AtomicUsize) -> usize {
        let add = |sum: usize, stripe: &Padded<Stripe>| {
            // ORDERING: Relaxed; a statistic, nothing is reached through it.
            sum.wrapping_add(word(stripe).load(Ordering::Relaxed))
        };
        // A removal may be seen before its insertion.
        usize::try_from(self.stripes.iter().fold(0, add) as isize).unwrap_or(0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_one_thread_adds_and_another_takes_cancels_out() {
        let counts = Counts::new();
        assert_eq!(counts.add(1000, 64_000), 1000);
        counts.add_array(500);
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..40).for_each(|_| _ = counts.add(-1, -64)));
            }
        });
        assert_eq!((counts.entries(), counts.bytes()), (200, 200 * 64 + 500));
        counts.add(-300, 0);
        assert_eq!(counts.entries(), 0, "never below zero");
    }
}
