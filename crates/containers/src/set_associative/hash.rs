//! The row of a key.
//!
//! # Boundary
//! A pure function of a number, a seed and the count of rows.
//!
//! # Why
//! A mask of the low bits is the trap of 1992: blocks of 4 KiB, numbered in sectors, are multiples of eight and
//! use one row in eight. Here the number is split. Its *far* part passes two 64x64 -> 128 multiplications, high half
//! xor low half of each, with seeds that are drawn once per process. So the row of a stretch's begin is random, and the
//! maker of a disk image cannot choose stretches that share a row. Its *near* part continues from there in steps of the
//! golden ratio, which leaves no gap for any number and distance of them (Knuth, TAOCP 6.4). So consecutive blocks, the
//! usual case, fill rows evenly. With random rows at nine tenths of the capacity, one row in four had more blocks than
//! ways. That cost 4.4 points of hits against one list; now it costs 0.2. A third multiplication chooses the row
//! (Lemire 2019, "Fast random integer generation in an interval"), so that the number of rows need not be a power of
//! two.
//!
//! Weakness: not a cryptographic hash; an observer of exact timings may find the seeds. In a cache with fewer rows than
//! a stretch has numbers, an observer without the seeds knows which numbers of one stretch share a row. They are its
//! fair share.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// Numbers of one stretch: 2 to the power of this.
const NEAR_BITS: u32 = 12;
/// 2^64 by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads keys over rows; copies of one agree.
#[derive(Debug, Clone, Copy)]
pub struct RowHash {
    seed: u64,
    factor: u64,
}

impl RowHash {
    /// The hash of this process: the same at every call, with a secret seed.
    pub fn process() -> Self {
        static HASH: OnceLock<RowHash> = OnceLock::new();
        *HASH.get_or_init(|| {
            let state = RandomState::new();
            let seed = |number: u64| {
                let mut hasher = state.build_hasher();
                hasher.write_u64(number);
                hasher.finish()
            };
            Self::with_seeds(seed(1), seed(2))
        })
    }

    /// A hash with given seeds, for runs that must repeat.
    pub const fn with_seeds(seed: u64, factor: u64) -> Self {
        // The low half of a product with an odd factor loses no information.
        Self { seed, factor: factor | 1 }
    }

    /// The row of the key with this number, of `rows` rows.
    #[inline]
    pub(super) fn row(self, number: u64, rows: usize) -> usize {
        let (far, near) = (number >> NEAR_BITS, number & ((1 << NEAR_BITS) - 1));
        let begin = fold(fold(far ^ self.seed, self.factor), self.factor ^ self.seed);
        let spread = begin.wrapping_add(near.wrapping_mul(GOLDEN));
        ((u128::from(spread) * rows as u128) >> 64) as usize
    }
}

fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ROWS: usize = 1024;

    /// The number of rows in use, and of keys in the fullest row, with 8 keys a row on average.
    fn spread(step: u64, row: impl Fn(u64) -> usize) -> (usize, usize) {
        let mut counts = [0; ROWS];
        (0..8 * ROWS as u64).for_each(|nth| counts[row(nth * step)] += 1);
        (counts.iter().filter(|count| **count > 0).count(), counts.into_iter().max().unwrap_or(0))
    }

    /// The trap of 1992: blocks of 4 KiB are multiples of eight in sectors, and rows were chosen by the low bits.
    #[test]
    fn multiples_of_a_power_of_two_use_all_rows_and_by_a_mask_one_in_as_many() {
        for shift in [0, 3, 6, 9, 12, 20, 32] {
            let step = 1 << shift;
            let masked = spread(step, |key| key as usize & (ROWS - 1));
            assert_eq!(masked.0, (ROWS >> shift).max(1), "a mask, steps of {step}");
            for seed in 0..20u64 {
                let factor = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(2 * seed + 1);
                let hash = RowHash::with_seeds(!seed << 40, factor);
                let (used, fullest) = spread(step, |key| hash.row(key, ROWS));
                assert!(used > ROWS * 9 / 10, "{used} rows are used, steps of {step}, seed {seed}");
                assert!(fullest <= 40, "{fullest} keys in one row, steps of {step}, seed {seed}");
            }
        }
    }

    /// Bug: in a cache nine tenths full with consecutive blocks, one block in sixteen had no way in its row.
    #[test]
    fn numbers_that_follow_one_another_fit_into_rows_that_are_nearly_full() {
        const WAYS: usize = 16;
        for rows in [61, 986, ROWS] {
            for seed in 0..20u64 {
                let factor = 0x2545_f491_4f6c_dd1d_u64.wrapping_mul(2 * seed + 1);
                let hash = RowHash::with_seeds(!seed << 40, factor);
                let (first, keys) = (seed * 77_777, rows * WAYS * 9 / 10);
                let mut counts = vec![0_usize; rows];
                (first..first + keys as u64).for_each(|key| counts[hash.row(key, rows)] += 1);
                let lost: usize = counts.iter().map(|count| count.saturating_sub(WAYS)).sum();
                assert!(lost * 100 < keys, "{lost} of {keys} have no way, seed {seed}");
            }
        }
    }

    #[test]
    fn rows_need_not_be_a_power_of_two_and_all_are_used() {
        let hash = RowHash::process();
        for rows in [1, 3, 12, 1000] {
            let mut used = vec![false; rows];
            (0..100 * rows as u64).for_each(|key| used[hash.row(key, rows)] = true);
            assert!(used.iter().all(|used| *used), "{rows}");
        }
    }
}
