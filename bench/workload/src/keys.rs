//! Which indexes a thread works on, in which order.
//!
//! # Why
//! One step and one wrap make all three patterns, so the loop costs the same in each. `xarray/variant.c`
//! of `bench-compare` has the same orders. Weakness: the random order is the same in every round and phase,
//! and visits each leaf in turn rather than by lot.

/// A prime near 2^32 / 1.618: its multiples, modulo any smaller number, visit every index once.
const PRIME: u64 = 2_654_435_761;

/// Most items of a structure.
pub const ITEMS_MAX: u64 = 1 << 31;

/// How the indexes from 0 to the number of items are shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// Contiguous shares, upwards: threads share as few cache lines as possible.
    Sequential,
    /// Every so-manieth index, upwards: threads share every line.
    Interleaved,
    /// Contiguous shares of a shuffle.
    Random,
}

impl Pattern {
    /// All of them.
    pub const ALL: [Pattern; 3] = [Pattern::Sequential, Pattern::Interleaved, Pattern::Random];

    /// By its name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pattern| pattern.name() == name)
    }

    /// Word in cases and requests.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Sequential => "sequential",
            Pattern::Interleaved => "interleaved",
            Pattern::Random => "random",
        }
    }
}

/// The indexes of one thread.
#[derive(Debug, Clone)]
pub struct Keys {
    at: u64,
    step: u64,
    items: u64,
    left: u64,
}

impl Keys {
    /// The keys of the thread `number` of `threads`.
    pub fn new(pattern: Pattern, number: usize, threads: usize, items: u64) -> Self {
        let (first, end) = share(number, threads, items);
        let (number, threads) = (number as u64, threads as u64);
        let (at, step, left) = match pattern {
            Pattern::Sequential => (first, 1, end - first),
            Pattern::Interleaved => (number, threads, (items + threads - 1 - number) / threads),
            Pattern::Random => (first * PRIME % items, PRIME % items, end - first),
        };
        Self { at, step, items, left }
    }
}

/// The contiguous share of a thread.
pub fn share(number: usize, threads: usize, items: u64) -> (u64, u64) {
    let (number, threads) = (number as u64, threads as u64);
    (items * number / threads, items * (number + 1) / threads)
}

impl Iterator for Keys {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let index = self.at;
        self.at += self.step;
        if self.at >= self.items {
            self.at -= self.items;
        }
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_is_visited_once_in_each_pattern() {
        for pattern in Pattern::ALL {
            for (threads, items) in [(1, 1), (1, 4096), (2, 4097), (3, 1000), (7, 5)] {
                let all = (0..threads).flat_map(|nth| Keys::new(pattern, nth, threads, items));
                let mut all: Vec<u64> = all.collect();
                all.sort_unstable();
                assert!(all.iter().copied().eq(0..items), "{pattern:?} {threads} {items}");
            }
        }
    }

    #[test]
    fn patterns_differ_in_their_order() {
        let first = |pattern| Keys::new(pattern, 1, 2, 100).take(3).collect::<Vec<_>>();
        assert_eq!(first(Pattern::Sequential), [50, 51, 52]);
        assert_eq!(first(Pattern::Interleaved), [1, 3, 5]);
        let random = first(Pattern::Random);
        assert!(random[0].abs_diff(random[1]) > 1, "{random:?}");
        assert_eq!(Pattern::named("random"), Some(Pattern::Random));
        assert_eq!(Pattern::named("zipf"), None);
    }
}
