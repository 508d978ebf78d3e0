//! Which keys a thread works on, in which order.
//!
//! # Why
//! A step and a wrap make all three patterns, so that the loop is the same for each and costs next to
//! nothing beside the work. `xarray/variant.c` has the same. Weakness: the random order is the same
//! in every round and phase, and visits each leaf in turn rather than by lot.

/// A prime near 2^32 / 1.618: its multiples, modulo any smaller number, visit every key once, far apart.
const PRIME: u64 = 2_654_435_761;
/// Most keys of a structure.
pub(super) const ITEMS_MAX: u64 = 1 << 31;

/// How the keys from 0 to the number of items are shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    /// Contiguous shares, upwards.
    Sequential,
    /// Every so-manieth key, upwards.
    Interleaved,
    /// Contiguous shares of a shuffle.
    Random,
}

impl Pattern {
    /// By its name.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "sequential" => Some(Self::Sequential),
            "interleaved" => Some(Self::Interleaved),
            "random" => Some(Self::Random),
            _ => None,
        }
    }
}

/// The keys of one thread.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    at: u64,
    step: u64,
    items: u64,
    left: u64,
}

impl Keys {
    /// Of the thread `number` of `threads`.
    pub(super) fn new(pattern: Pattern, number: usize, threads: usize, items: u64) -> Self {
        let (number, threads) = (number as u64, threads as u64);
        let (first, end) = (items * number / threads, items * (number + 1) / threads);
        let (at, step, left) = match pattern {
            Pattern::Sequential => (first, 1, end - first),
            Pattern::Interleaved => (number, threads, (items + threads - 1 - number) / threads),
            Pattern::Random => (first * PRIME % items, PRIME % items, end - first),
        };
        Self { at, step, items, left }
    }
}

impl Iterator for Keys {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let key = self.at;
        self.at += self.step;
        if self.at >= self.items {
            self.at -= self.items;
        }
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Pattern::{Interleaved, Random, Sequential};

    #[test]
    fn every_key_is_visited_once_whatever_the_pattern_and_number_of_threads() {
        for pattern in [Sequential, Interleaved, Random] {
            for (threads, items) in [(1, 1), (1, 4096), (2, 4097), (3, 1000), (7, 5)] {
                let all = (0..threads).flat_map(|nth| Keys::new(pattern, nth, threads, items));
                let mut all: Vec<u64> = all.collect();
                all.sort_unstable();
                assert!(all.iter().copied().eq(0..items), "{pattern:?} {threads} {items}");
            }
        }
    }

    #[test]
    fn patterns_differ() {
        let keys = |pattern| Keys::new(pattern, 1, 2, 1024).take(3).collect::<Vec<_>>();
        assert_eq!(keys(Sequential), [512, 513, 514]);
        assert_eq!(keys(Interleaved), [1, 3, 5]);
        let random = keys(Random);
        assert!(random.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 64), "{random:?}");
        assert_eq!(Pattern::named("random"), Some(Random));
        assert_eq!(Pattern::named("zipf"), None);
    }
}
