//! Hash of a name, folded while the path is scanned for `/`.
//!
//! # Boundary
//! Hashes names and finds the end of a path component. Does not know the bytes that a name may
//! contain, nor the meaning of `.` and `..`: the walk does.
//!
//! # Concurrency
//! Pure functions over seeds that are drawn once per process.
//!
//! # Why
//! FreeBSD found hashing to be the single-threaded bottleneck of long paths, and Linux folds its
//! hash into the scan for the slash. Here both work on 8 bytes at once. A test for `/` needs no
//! branch per byte (Lamport 1975, "Multiple byte processing with full-word instructions"). Each
//! word costs one 64x64 -> 128 multiplication, high half xor low half, as in Yi's wyhash.
//!
//! # Notation
//! `w1 .. wk, t` are the words of a name, little-endian; `t` is the last one, of 1 to 8 bytes,
//! filled up with zeros. Then `h0 = seed`, `hi = fold(h(i-1) ^ wi, s1)`, and the hash is `fold(hk ^
//! t, s2 ^ length)`. The length distinguishes "a" from "a\0".
//!
//! The seeds are secret (`RandomState`), so a program that chooses names cannot choose buckets.
//! This is not a cryptographic hash: a program that can observe bucket collisions precisely may
//! recover the seeds.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;
use uvfs_concurrent::primitive::record;

/// Every byte 1.
const ONES: u64 = u64::MAX / 255;
/// The top bit of every byte.
const TOPS: u64 = ONES << 7;
/// Every byte `/`.
const SLASHES: u64 = ONES * b'/' as u64;

/// Hashes names with secret seeds. Copies of one hasher agree.
#[derive(Debug, Clone, Copy)]
pub struct NameHasher {
    start: u64,
    step: u64,
    finish: u64,
    parent: u64,
}

impl NameHasher {
    /// The hasher of this process: the same one at every call.
    pub fn process() -> Self {
        static HASHER: OnceLock<NameHasher> = OnceLock::new();
        *HASHER.get_or_init(|| {
            let state = RandomState::new();
            let seed = |number: u64| {
                let mut hasher = state.build_hasher();
                hasher.write_u64(number);
                hasher.finish()
            };
            Self::with_seeds([seed(1), seed(2), seed(3), seed(4)])
        })
    }

    /// A hasher with given seeds, for tests that must repeat.
    pub const fn with_seeds(seeds: [u64; 4]) -> Self {
        // The low half of a product with an odd multiplier loses no information.
        Self { start: seeds[0], step: seeds[1] | 1, finish: seeds[2], parent: seeds[3] | 1 }
    }

    /// The hash of a whole name.
    #[inline]
    pub fn hash_name(&self, name: &[u8]) -> u64 {
        record::hash();
        let mut hash = self.start;
        let mut rest = name;
        while rest.len() > 8 {
            let (word, behind) = rest.split_at(8);
            hash = fold(hash ^ full_word(word), self.step);
            rest = behind;
        }
        self.last(hash, last_word(name), name.len())
    }

    /// The length of the first component of `path` (up to, not including, the first `/`, or all of
    /// it), and its hash: the same as [`NameHasher::hash_name`] of those bytes. One pass.
    #[inline(always)]
    pub fn scan_component(&self, path: &[u8]) -> (usize, u64) {
        record::hash();
        let mut hash = self.start;
        let mut rest = path;
        while rest.len() >= 8 {
            let before = path.len() - rest.len();
            let word = full_word(&rest[..8]);
            let slashes = zero_bytes(word ^ SLASHES);
            if slashes != 0 {
                let more = slashes.trailing_zeros() as usize / 8;
                if more == 0 {
                    // Possible only at the very beginning: a slash behind a full word was found
                    // with that word.
                    return (0, self.last(hash, 0, 0));
                }
                return (before + more, self.last(hash, first_bytes(word, more), before + more));
            }
            if rest.get(8).is_none_or(|next| *next == b'/') {
                return (before + 8, self.last(hash, word, before + 8));
            }
            hash = fold(hash ^ word, self.step);
            rest = &rest[8..];
        }
        // 1 to 7 bytes, or an empty path. The zeros that fill the word up are not slashes.
        let before = path.len() - rest.len();
        let word = last_word(path);
        let slashes = zero_bytes(word ^ SLASHES);
        let more = rest.len().min(slashes.trailing_zeros() as usize / 8);
        (before + more, self.last(hash, first_bytes(word, more), before + more))
    }

    /// The hash of a table key: a name's hash combined with its directory.
    #[inline]
    pub fn key_hash(&self, parent: u64, name_hash: u64) -> u64 {
        fold(name_hash ^ parent, self.parent)
    }

    #[inline]
    fn last(&self, hash: u64, tail: u64, length: usize) -> u64 {
        fold(hash ^ tail, self.finish ^ length as u64)
    }
}

/// The high half of the product xor its low half.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// The top bit of every byte of `word` that is zero. Bytes above the first such byte may be marked
/// wrongly (a borrow), so only the lowest mark counts.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & TOPS
}

/// The lowest `count` bytes of `word`; `count` is at most 7.
#[inline]
fn first_bytes(word: u64, count: usize) -> u64 {
    word & ((1 << (count * 8)) - 1)
}

/// Eight bytes as a word.
#[inline]
pub(super) fn full_word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// The last 1 to 8 bytes, as many as the last of the words into which `bytes` is divided, as a word
/// filled up with zeros. No loop, no byte beyond the ends.
#[inline]
pub(super) fn last_word(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    // Two loads that overlap in equal bytes; or one load that overlaps the word before, which is
    // then shifted out.
    match length {
        8.. => full_word(&bytes[length - 8..]) >> ((8 - (length - 1) % 8 - 1) * 8),
        4.. => {
            let low = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
            let high = u32::from_le_bytes(bytes[length - 4..].try_into().expect("four bytes"));
            u64::from(low) | u64::from(high) << ((length - 4) * 8)
        }
        2.. => {
            let low = u16::from_le_bytes(bytes[..2].try_into().expect("two bytes"));
            u64::from(low) | u64::from(bytes[length - 1]) << ((length - 1) * 8)
        }
        1 => u64::from(bytes[0]),
        _ => 0,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn hasher() -> NameHasher {
        NameHasher::with_seeds([
            0x9e37_79b9_7f4a_7c15,
            0xa076_1d64_78bd_642f,
            0x8ebc_6af0_9c88_c6e3,
            0xe703_7ed1_a0b4_28db,
        ])
    }

    /// Bytes among which slashes and their neighbours (`.`, `0`, high bytes) are common.
    fn path() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            8 => any::<u8>(),
            1 => Just(b'/'),
            1 => prop_oneof![Just(b'.'), Just(b'0'), Just(0), Just(b'/' | 0x80)],
        ];
        proptest::collection::vec(byte, 0..60)
    }

    proptest! {
        #[test]
        fn a_scan_agrees_with_the_hash_of_the_component(path in path()) {
            let hasher = NameHasher::process();
            let (length, hash) = hasher.scan_component(&path);
            let expected = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
            prop_assert_eq!(length, expected);
            prop_assert_eq!(hash, hasher.hash_name(&path[..expected]));
        }

        #[test]
        fn the_last_word_is_the_tail_filled_up_with_zeros(bytes in path()) {
            let mut tail = bytes.chunks(8).last().unwrap_or(&[]).to_vec();
            tail.resize(8, 0);
            prop_assert_eq!(last_word(&bytes), full_word(&tail));
        }
    }

    #[test]
    fn every_length_and_every_place_of_the_slash() {
        let hasher = hasher();
        for length in 0..40 {
            for rest in 0..20 {
                let mut path = vec![b'x'; length];
                if rest > 0 {
                    path.push(b'/');
                    path.resize(length + rest, b'/');
                }
                let name = vec![b'x'; length];
                assert_eq!(hasher.scan_component(&path), (length, hasher.hash_name(&name)));
            }
        }
    }

    #[test]
    fn names_that_differ_only_in_zeros_at_the_end_differ() {
        let hasher = hasher();
        let hashes: HashSet<_> = (0..64).map(|length| hasher.hash_name(&vec![0; length])).collect();
        assert_eq!(hashes.len(), 64);
    }

    /// The fullest bucket and the fullest tag have less than twice the mean, for names like those
    /// that programs make. The bound holds for these fixed seeds; random hashes reach about 1.5 and
    /// 1.6 times the mean.
    #[test]
    fn similar_names_spread_over_buckets_and_tags() {
        let hasher = hasher();
        let numbered: Vec<_> = (0..65536u64).map(|n| (1, format!("file{n:06}.txt"))).collect();
        let parents: Vec<_> = (0..65536u64).map(|n| (n, "Makefile".to_string())).collect();
        let short: Vec<_> = (0..65536u64).map(|n| (n >> 8, format!("{:02x}", n & 255))).collect();
        for keys in [numbered, parents, short] {
            let (mut buckets, mut tags) = (vec![0u32; 1024], vec![0u32; 1024]);
            for (parent, name) in keys {
                let hash = hasher.key_hash(parent, hasher.hash_name(name.as_bytes()));
                buckets[(hash & 1023) as usize] += 1;
                tags[(hash >> 54) as usize] += 1;
            }
            assert!(*buckets.iter().max().unwrap() < 64 * 2, "buckets");
            assert!(*tags.iter().max().unwrap() < 64 * 2, "tags");
        }
    }

    #[test]
    fn other_seeds_give_other_hashes() {
        let other = NameHasher::with_seeds([1, 2, 3, 4]);
        assert_ne!(hasher().hash_name(b"passwd"), other.hash_name(b"passwd"));
        let (one, two) = (NameHasher::process(), NameHasher::process());
        assert_eq!(one.hash_name(b"passwd"), two.hash_name(b"passwd"));
    }
}
