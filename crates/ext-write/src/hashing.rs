//! How numbers of blocks and inodes find their places in tables.
//!
//! # Why
//! Numbers come from untrusted images, so the hash has a secret seed. The standard library's hash, which is made for text, took a
//! tenth of the time of an operation. This one is a multiplication to twice the width, both halves folded together.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seeded(u64);

impl Default for Seeded {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0))
    }
}

impl BuildHasher for Seeded {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded(self.0)
    }
}

/// The state of the hash so far.
#[derive(Debug)]
pub(crate) struct Folded(u64);

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        // Odd, and about half of its bits are set.
        const BY: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
        let wide = u128::from(self.0 ^ number).wrapping_mul(BY);
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Tables take places from the lowest bits and tell neighbours apart by the highest seven.
    #[test]
    fn numbers_in_a_row_or_a_group_apart_are_spread() {
        let seeded = Seeded::default();
        for step in [1_u64, 8, 4096, 32_768, 1 << 32] {
            let hashes: Vec<u64> = (0..4096).map(|at| seeded.hash_one(at * step)).collect();
            let low: HashSet<u64> = hashes.iter().map(|hash| hash % 4096).collect();
            let high: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            // Balls thrown at random leave a third of as many urns empty.
            assert!(low.len() > 2000 && high.len() > 100, "{step}: {} {}", low.len(), high.len());
        }
    }
}
