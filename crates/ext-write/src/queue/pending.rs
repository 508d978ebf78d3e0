//! Writes that wait for the device or are under way, by block.
//!
//! # Boundary
//! Which blocks a request takes. [`super::Policy`] says how many; the caller writes them.
//!
//! # Concurrency
//! None of its own: a queue has it under its lock, an experiment in its events.
//! Q1. A block waits once at most: a second write of it replaces the first.
//! Q2. A block is in one request under way at most. So two writes of a block reach the device in their order.
//!
//! # Why
//! A driver's queue takes requests for good. This one keeps blocks until the moment of the request: until then they are replaced,
//! merged with neighbours, or removed.

use std::collections::BTreeMap;
use std::ops::Range;

/// Neighbouring blocks that are written by one request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Run<T> {
    /// The first block.
    pub first: u64,
    /// Contents of the blocks.
    pub contents: Vec<T>,
}

impl<T> Run<T> {
    /// Blocks of the run.
    pub fn blocks(&self) -> Range<u64> {
        self.first..self.first + self.contents.len() as u64
    }
}

/// Blocks with contents of kind `T`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pending<T> {
    waiting: BTreeMap<u64, T>,
    under_way: Vec<Range<u64>>,
    /// Requests go upwards from here, and begin again at the lowest block.
    next: u64,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), under_way: Vec::new(), next: 0 }
    }
}

impl<T> Pending<T> {
    /// Blocks that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits, and no request is under way.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }

    /// Requests under way.
    pub fn requests(&self) -> usize {
        self.under_way.len()
    }

    /// `block` waits with these contents; returns those that it had.
    pub fn put(&mut self, block: u64, contents: T) -> Option<T> {
        self.waiting.insert(block, contents)
    }

    /// `block` waits no more; returns its contents. A request under way goes on.
    pub fn remove(&mut self, block: u64) -> Option<T> {
        self.waiting.remove(&block)
    }

    /// Nothing waits any more.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Whether a request with `block` is under way.
    pub fn is_under_way(&self, block: u64) -> bool {
        self.under_way.iter().any(|run| run.contains(&block))
    }

    /// Begins a request of at most `most` neighbours; [`Pending::ended`] ends it. `None` if every block that waits is also under
    /// way.
    pub fn take(&mut self, most: usize) -> Option<Run<T>> {
        let upwards = self.waiting.range(self.next..).chain(self.waiting.range(..self.next));
        let first = upwards.map(|(block, _)| *block).find(|block| !self.is_under_way(*block))?;
        Some(self.take_at(first, most))
    }

    /// Takes a run for a request that has `block`, if that waits and is not under way.
    pub fn take_back(&mut self, block: u64, most: usize) -> Option<Run<T>> {
        let is_free = self.waiting.contains_key(&block) && !self.is_under_way(block);
        is_free.then(|| self.take_at(block, most))
    }

    fn take_at(&mut self, first: u64, most: usize) -> Run<T> {
        let mut contents = Vec::new();
        let mut block = first;
        while contents.len() < most.max(1) && !self.is_under_way(block) {
            let Some(of_it) = self.waiting.remove(&block) else { break };
            contents.push(of_it);
            block += 1;
        }
        self.next = block;
        let run = Run { first, contents };
        self.under_way.push(run.blocks());
        run
    }

    /// The request that began with block `first` has ended.
    pub fn ended(&mut self, first: u64) {
        self.under_way.retain(|run| run.start != first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_one_request_upwards_from_the_last_one() {
        let mut pending = Pending::default();
        for block in [9, 3, 4, 5, 1] {
            assert_eq!(pending.put(block, 'a'), None);
        }
        assert_eq!(pending.put(4, 'b'), Some('a'), "a newer write replaces it");
        assert_eq!(pending.take(1).unwrap().blocks(), 1..2);
        let run = pending.take(2).unwrap();
        assert_eq!((run.first, run.contents), (3, vec!['a', 'b']));
        assert_eq!(pending.take(8).unwrap().blocks(), 5..6);
        pending.put(2, 'c');
        assert_eq!(pending.take(8).unwrap().blocks(), 9..10);
        assert_eq!(pending.remove(2), Some('c'));
        assert_eq!((pending.take(8), pending.requests()), (None, 4));
        for first in [1, 3, 5, 9] {
            assert!(!pending.is_empty());
            pending.ended(first);
        }
        assert!(pending.is_empty());
    }

    /// The medium may keep either of two requests with one block: the older contents came back over the newer ones.
    #[test]
    fn a_block_under_way_waits_for_the_end_of_its_request() {
        let mut pending = Pending::default();
        pending.put(4, 1);
        assert_eq!(pending.take(8).unwrap().blocks(), 4..5);
        for block in 3..6 {
            pending.put(block, 2);
        }
        assert_eq!(pending.take(8).unwrap().blocks(), 5..6);
        assert_eq!(pending.take(8).unwrap().blocks(), 3..4, "not through block 4");
        assert_eq!((pending.take(8), pending.take_back(4, 8)), (None, None));
        pending.ended(4);
        assert_eq!(pending.take_back(4, 8), Some(Run { first: 4, contents: vec![2] }));
    }
}
