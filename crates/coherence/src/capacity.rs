//! The lines that a cache holds: sets of ways, filled on a miss, evicted at random.
//!
//! # Boundary
//! Which line must go when one comes. Whether a line is still valid is the directory's knowledge
//! ([`crate::model`]): a line that another core took away stays here until its way is reused.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Replacement by chance needs nothing on a hit, and a hit must cost next to nothing on the host.
//! Sets are dealt out in the order in which lines were first touched, not by address, so that a
//! result does not depend on where a program was loaded. Weakness: no conflict misses by strides of
//! a power of two, and ways of lines that were taken away count as used until chance finds them.

use crate::costs::Random;

const EMPTY: u32 = u32::MAX;

/// The caches of one kind: all private ones, or all last-level ones.
#[derive(Debug)]
pub(crate) struct Caches {
    sets: u32,
    ways: usize,
    /// Per cache; empty until its first line.
    tags: Vec<Vec<u32>>,
    random: Random,
}

impl Caches {
    /// `None`: no limit.
    pub(crate) fn new(
        count: usize,
        bytes: u64,
        line_bytes: u64,
        ways: f64,
        seed: u64,
    ) -> Option<Self> {
        let ways = (ways.round() as u64).max(1);
        let lines = bytes / line_bytes;
        if lines == 0 {
            return None;
        }
        let sets = (lines / ways).max(1).min(u64::from(u32::MAX)) as u32;
        Some(Self {
            sets,
            ways: ways as usize,
            tags: vec![Vec::new(); count],
            random: Random::new(seed),
        })
    }

    /// Puts a line in; the line that had to go for it, if one had. `order` is the line's place in the
    /// order of first touch.
    pub(crate) fn insert(&mut self, cache: usize, line: u32, order: u32) -> Option<u32> {
        let tags = &mut self.tags[cache];
        if tags.is_empty() {
            tags.resize(self.sets as usize * self.ways, EMPTY);
        }
        let start = (order % self.sets) as usize * self.ways;
        let set = &mut tags[start..start + self.ways];
        let mut free = None;
        for (way, tag) in set.iter().enumerate() {
            if *tag == line {
                return None;
            }
            if *tag == EMPTY && free.is_none() {
                free = Some(way);
            }
        }
        if let Some(way) = free {
            set[way] = line;
            return None;
        }
        let way = (((self.random.draw() >> 32) * self.ways as u64) >> 32) as usize;
        Some(std::mem::replace(&mut set[way], line))
    }
}
