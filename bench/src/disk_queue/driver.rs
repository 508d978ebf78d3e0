//! The driver's queue: requests that it will not give back, in an order.
//!
//! # Boundary
//! Chooses the next request for the disk. What a request is for is in [`super::simulation`].
//!
//! # Why
//! As `disksort` of the paper's time: one sweep upwards, then again from the lowest block. Requests "near the front" have a sweep of their
//! own before it, or go in the order of their arrival, as at the front of a list. The difference decides what promotion costs.

use super::disk::Kind;
use std::collections::{BTreeSet, VecDeque};

/// Whether some requests pass others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Front {
    /// Requests that a process waits for when they are made.
    pub(super) synchronous: bool,
    /// Queued writes that a process waits for later.
    pub(super) awaited: bool,
    /// In a sweep, not in the order of their arrival.
    pub(super) sorted: bool,
}

/// A request: its first block, and its number.
type Place = (u64, u64);

#[derive(Debug)]
pub(super) struct Driver {
    front: Front,
    sweep: BTreeSet<Place>,
    /// The sweep before that one.
    front_sweep: BTreeSet<Place>,
    /// In the order of arrival, and before both.
    ahead: VecDeque<Place>,
    /// The sweeps have come to this block.
    at: u64,
}

impl Driver {
    pub(super) fn new(front: Front) -> Self {
        let (sweep, front_sweep) = (BTreeSet::new(), BTreeSet::new());
        Self { front, sweep, front_sweep, ahead: VecDeque::new(), at: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.sweep.len() + self.front_sweep.len() + self.ahead.len()
    }

    pub(super) fn put(&mut self, number: u64, kind: Kind, first: u64, is_synchronous: bool) {
        if kind == Kind::Flush {
            self.ahead.push_back((first, number));
        } else if is_synchronous && self.front.synchronous {
            self.put_near_front((first, number));
        } else {
            self.sweep.insert((first, number));
        }
    }

    /// A process waits for a request from now on.
    pub(super) fn awaited(&mut self, number: u64, first: u64) {
        if self.front.awaited && self.sweep.remove(&(first, number)) {
            self.put_near_front((first, number));
        }
    }

    fn put_near_front(&mut self, place: Place) {
        match self.front.sorted {
            true => {
                self.front_sweep.insert(place);
            }
            false => self.ahead.push_back(place),
        }
    }

    /// The number of the next request.
    pub(super) fn take(&mut self) -> Option<u64> {
        if let Some((_, number)) = self.ahead.pop_front() {
            return Some(number);
        }
        let is_front = !self.front_sweep.is_empty();
        let sweep = if is_front { &mut self.front_sweep } else { &mut self.sweep };
        let upwards = sweep.range((self.at, 0)..).next().or_else(|| sweep.first());
        let (first, number) = *upwards?;
        sweep.remove(&(first, number));
        self.at = first;
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(synchronous: bool, awaited: bool, sorted: bool) -> Vec<u64> {
        let mut driver = Driver::new(Front { synchronous, awaited, sorted });
        for (number, first) in [(1, 500), (2, 100), (3, 300), (4, 200)] {
            driver.put(number, Kind::Write, first, false);
        }
        assert_eq!(driver.take(), Some(2), "the lowest block");
        driver.put(5, Kind::Read, 600, true);
        driver.awaited(1, 500);
        driver.put(6, Kind::Flush, 0, true);
        assert_eq!(driver.len(), 5);
        std::iter::from_fn(|| driver.take()).collect()
    }

    #[test]
    fn a_sweep_goes_upwards_and_the_front_passes_it() {
        assert_eq!(order(false, false, false), [6, 4, 3, 1, 5]);
        assert_eq!(order(true, false, true), [6, 5, 4, 3, 1]);
        assert_eq!(order(true, true, false), [5, 1, 6, 4, 3]);
        assert_eq!(order(true, true, true), [6, 1, 5, 4, 3]);
    }
}
