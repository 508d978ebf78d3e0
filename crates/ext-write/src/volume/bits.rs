//! Bits of bitmaps: changed, counted and searched a word at a time.
//!
//! # Boundary
//! Knows no groups and no disk; [`super::groups`] decides what a bit means.

use std::ops::Range;

/// A set of blocks of a group.
#[derive(Debug, Clone, Default)]
pub(super) struct Marked {
    pub(super) blocks: u32,
    /// A bit for each block of the group; nothing while the set is empty.
    words: Box<[u64]>,
}

pub(super) fn bit(bytes: &[u8], at: u32) -> bool {
    bytes[at as usize / 8] >> (at % 8) & 1 == 1
}

pub(super) fn set_bits(bytes: &mut [u8], bits: Range<u32>, value: bool) {
    let mut at = bits.start;
    while at < bits.end {
        let byte = &mut bytes[at as usize / 8];
        if at.is_multiple_of(8) && bits.end - at >= 8 {
            *byte = if value { 0xFF } else { 0 };
            at += 8;
        } else {
            let mask = 1 << (at % 8);
            *byte = if value { *byte | mask } else { *byte & !mask };
            at += 1;
        }
    }
}

/// How many of `bits` are not set.
pub(super) fn free_bits(bytes: &[u8], bits: Range<u32>) -> u32 {
    let mut free = 0;
    each_word(bits, |at, mask| free += (!word_of(bytes, at) & mask).count_ones());
    free
}

/// Word `at` of a bitmap of whole words.
pub(super) fn word_of(bytes: &[u8], at: usize) -> u64 {
    bytes[at * 8..].first_chunk().map_or(u64::MAX, |word| u64::from_le_bytes(*word))
}

/// The first of `bits` that is set in the words that `word` gives; their end if none is.
pub(super) fn first_set(bits: Range<u32>, word: impl Fn(usize) -> u64) -> u32 {
    let mut at = bits.start;
    while at < bits.end {
        let rest = word(at as usize / 64) >> (at % 64);
        if rest != 0 {
            return (at + rest.trailing_zeros()).min(bits.end);
        }
        at = (at / 64 + 1) * 64;
    }
    bits.end
}

/// The first run of free bits in `bits`, of at most `want`; a shorter one only if there is none so long. A bit is in use if it
/// is set in its word, which `used` gives.
pub(super) fn free_run(
    bits: Range<u32>,
    want: u32,
    used: impl Fn(usize) -> u64,
) -> Option<Range<u32>> {
    let mut best: Option<Range<u32>> = None;
    let mut at = bits.start;
    loop {
        let start = first_set(at..bits.end, |word| !used(word));
        if start == bits.end {
            return best;
        }
        let end = first_set(start..bits.end.min(start.saturating_add(want)), &used);
        if end - start == want {
            return Some(start..end);
        }
        if best.as_ref().is_none_or(|best| best.end - best.start < end - start) {
            best = Some(start..end);
        }
        at = end;
    }
}

impl Marked {
    /// Adds `bits`, none of which is in the set, in a group of `most` blocks.
    pub(super) fn add(&mut self, bits: Range<u32>, most: u32) {
        if self.words.is_empty() {
            self.words = vec![0; most.div_ceil(64) as usize].into();
        }
        self.blocks += bits.end - bits.start;
        each_word(bits, |at, mask| self.words[at] |= mask);
    }

    /// Removes `bits`, all of which are in the set.
    pub(super) fn remove(&mut self, bits: Range<u32>) {
        self.blocks -= bits.end - bits.start;
        each_word(bits, |at, mask| self.words[at] &= !mask);
        if self.blocks == 0 {
            self.words = Box::default();
        }
    }

    pub(super) fn word(&self, at: usize) -> u64 {
        self.words.get(at).copied().unwrap_or(0)
    }
}

/// Calls `change` for each word that has some of `bits`, with a mask of these.
fn each_word(bits: Range<u32>, mut change: impl FnMut(usize, u64)) {
    let mut at = bits.start;
    while at < bits.end {
        let end = bits.end.min((at / 64 + 1) * 64);
        change(at as usize / 64, u64::MAX >> (64 - (end - at)) << (at % 64));
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bitmap of `words` words in which only `free` is free.
    fn bitmap(words: usize, free: &[Range<u32>]) -> Vec<u8> {
        let mut bytes = vec![0xFF; words * 8];
        for run in free {
            set_bits(&mut bytes, run.clone(), false);
        }
        bytes
    }

    #[test]
    fn the_longest_run_is_found_where_none_is_long_enough() {
        let bytes = bitmap(2, &[3..5, 20..24, 28..34, 60..70]);
        let mut waiting = Marked::default();
        waiting.add(30..31, 128);
        waiting.add(62..66, 128);
        let used = |at| word_of(&bytes, at) | waiting.word(at);
        let find = |from, want| free_run(from..128, want, used);
        assert_eq!(find(0, 1), Some(3..4));
        assert_eq!(find(0, 4), Some(20..24));
        assert_eq!(find(0, 9), Some(20..24), "a block that waits ends a run");
        assert_eq!(find(24, 9), Some(66..70), "it does at the edge of a word, too");
        assert_eq!(find(29, 3), Some(31..34));
        assert_eq!(find(70, 9), None);
        let free = |from, want| free_run(from..128, want, |at| word_of(&bytes, at));
        assert_eq!(free(0, 9), Some(60..69), "a run goes on in the next word");
        assert_eq!(free_run(0..62, 9, |at| word_of(&bytes, at)), Some(28..34), "up to the end");
    }

    #[test]
    fn blocks_wait_by_bits_and_the_last_one_frees_the_words() {
        let mut waiting = Marked::default();
        for bits in [0..1, 5..64, 64..128, 130..300] {
            waiting.add(bits, 320);
        }
        let all = |waiting: &Marked| -> Vec<u32> {
            (0..320).filter(|at| waiting.word(*at as usize / 64) >> (at % 64) & 1 == 1).collect()
        };
        assert_eq!(all(&waiting), (0..1).chain(5..128).chain(130..300).collect::<Vec<_>>());
        for bits in [5..64, 64..128, 130..290] {
            waiting.remove(bits);
        }
        assert_eq!(all(&waiting), (0..1).chain(290..300).collect::<Vec<_>>());
        assert_eq!(waiting.blocks, 11);
        waiting.remove(0..1);
        waiting.remove(290..300);
        assert!(waiting.words.is_empty());
    }

    /// Each allocation compared each free block with every run that was freed since the last commit: after thousands of
    /// removals a create took milliseconds. Now it looks at each word of the group once at most, however many blocks wait.
    #[test]
    fn a_search_looks_at_each_word_once_however_many_blocks_wait() {
        const BITS: u32 = 32768;
        let mut bytes = bitmap(BITS as usize / 64, &[]);
        let mut waiting = Marked::default();
        for at in (0..BITS - 64).step_by(2) {
            set_bits(&mut bytes, at..at + 1, false);
            waiting.add(at..at + 1, BITS);
        }
        set_bits(&mut bytes, BITS - 1..BITS, false);
        let looked = std::cell::Cell::new(0);
        let found = free_run(0..BITS, 8, |at| {
            looked.set(looked.get() + 1);
            word_of(&bytes, at) | waiting.word(at)
        });
        assert_eq!(found, Some(BITS - 1..BITS));
        assert!(looked.get() <= BITS / 64 + 2, "{} words", looked.get());
    }
}
