//! Several words that are read together without a lock: a sequence lock over atomics.
//!
//! # Boundary
//! Words only; the caller defines their meaning. The caller also excludes writers from each other (by its own lock):
//! there is one at a time.
//!
//! # Protocol
//! `sequence` is even while the words are whole, odd while a writer changes them.
//!
//! S1. Only the one writer changes `sequence`: to odd before its first word, to even after its last.
//! S2. A reader that finds the same even number before and after has read words of one `write`.
//!
//! O1. `write`'s fence (Release) → the reader's fence (Acquire): a reader that reads a new word and then the sequence
//!     sees it odd, or at a later number.
//! O2. The last store of `sequence` (Release) → the first load (Acquire): a reader that starts from an even number sees
//!     all words of the write that left it.
//!
//! Progress: the writer never waits; a reader retries only when a write overlapped.
//! Checked by `model_snapshot_is_whole`.
//!
//! # Why
//! Reading takes no lock and stores nothing, so any number of threads may copy one hot object's words (Linux
//! seqcount_t). Unlike in C, plain memory may not be read like that in Rust: every word is an atomic. Weakness: a
//! writer that never rests could keep a reader retrying for ever, so the reader stops after a few attempts.

use crate::primitive::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Attempts of a reader.
const ROUNDS: usize = if cfg!(loom) { 2 } else { 16 };

/// `N` words under one sequence, and 32 bits beside them that change independently.
#[derive(Debug)]
pub struct SequencedWords<const N: usize> {
    sequence: AtomicU32,
    /// Not under the sequence. Here because there is room, on the same cache line as the first words.
    pub beside: AtomicU32,
    words: [AtomicU64; N],
}

/// The words inside a [`SequencedWords::read`]. They may be of two writes; then the read is repeated and the result of
/// the first attempt is discarded.
#[derive(Debug)]
pub struct RacyWords<'a>(&'a [AtomicU64]);

impl RacyWords<'_> {
    /// Word `index`.
    #[inline]
    pub fn get(&self, index: usize) -> u64 {
        // ORDERING: Relaxed; the fence in `read` orders it (O1).
        self.0[index].load(Ordering::Relaxed)
    }
}

impl<const N: usize> SequencedWords<N> {
    /// A new sequence of these words.
    pub fn new(words: [u64; N]) -> Self {
        Self {
            sequence: AtomicU32::new(0),
            beside: AtomicU32::new(0),
            words: words.map(AtomicU64::new),
        }
    }

    /// The result of `look` on the words as one `write` left them. `None` if every attempt overlapped a write.
    #[inline]
    pub fn read<R>(&self, look: impl Fn(RacyWords<'_>) -> R) -> Option<R> {
        for _ in 0..ROUNDS {
            // ORDERING: Acquire, partner the end of `write` (O2).
            let before = self.sequence.load(Ordering::Acquire);
            if before & 1 == 0 {
                let seen = look(RacyWords(&self.words));
                // ORDERING: Acquire, partner the fence of `write` (O1).
                fence(Ordering::Acquire);
                // ORDERING: Relaxed; after the fence.
                if self.sequence.load(Ordering::Relaxed) == before {
                    return Some(seen);
                }
            }
            std::hint::spin_loop();
        }
        None
    }

    /// All words as one `write` left them. `None` if every attempt overlapped a write.
    #[inline]
    pub fn read_all(&self) -> Option<[u64; N]> {
        self.read(|words| std::array::from_fn(|at| words.get(at)))
    }

    /// Replaces all words. The caller ensures that there is one writer at a time.
    pub fn write(&self, words: &[u64; N]) {
        // ORDERING: Relaxed; only the one writer changes it (S1).
        let even = self.sequence.load(Ordering::Relaxed);
        debug_assert!(even & 1 == 0, "two writers");
        // ORDERING: Relaxed; ordered before the words by the fence.
        self.sequence.store(even.wrapping_add(1), Ordering::Relaxed);
        // ORDERING: Release, partner the fence of `read` (O1).
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(words) {
            // ORDERING: Relaxed; between the fence and the last store.
            word.store(*value, Ordering::Relaxed);
        }
        // ORDERING: Release, partner the first load of `read` (O2).
        self.sequence.store(even.wrapping_add(2), Ordering::Release);
    }

    /// Replaces word `index` only, which need not be consistent with the others; for the one writer.
    pub fn write_one(&self, index: usize, value: u64) {
        // ORDERING: Relaxed; the caller's lock orders it.
        self.words[index].store(value, Ordering::Relaxed);
    }

    /// All words, for the one writer, which no other thread disturbs.
    pub fn as_writer(&self) -> [u64; N] {
        // ORDERING: Relaxed; no other thread writes (S1).
        std::array::from_fn(|at| self.words[at].load(Ordering::Relaxed))
    }

    /// Word `index` only, at this moment.
    #[inline]
    pub fn racy_one(&self, index: usize) -> u64 {
        // ORDERING: Relaxed; one word, of no particular moment.
        self.words[index].load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn readers_see_one_write_whole() {
        let words = SequencedWords::new([0; 4]);
        std::thread::scope(|scope| {
            scope.spawn(|| (1..20_000u64).for_each(|value| words.write(&[value; 4])));
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while last < 19_999 {
                        let all = |words: RacyWords<'_>| std::array::from_fn(|at| words.get(at));
                        let Some(seen): Option<[u64; 4]> = words.read(all) else { continue };
                        assert!(seen.iter().all(|&word| word == seen[0]), "{seen:?}");
                        assert!(seen[0] >= last, "time runs forwards");
                        last = seen[0];
                    }
                });
            }
        });
        assert_eq!(words.as_writer(), [19_999; 4]);
    }

    #[test]
    fn a_read_during_a_write_gives_up() {
        let words = SequencedWords::new([1, 2]);
        words.sequence.store(1, Ordering::Relaxed);
        assert_eq!(words.read(|words| words.get(0)), None);
        assert_eq!(words.racy_one(1), 2);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitive::model::{Model, reached};
    use loom::sync::Arc;
    use loom::thread;

    /// S2. Fails without the writer's fence, without the reader's, and with a Relaxed last store.
    #[test]
    fn model_snapshot_is_whole() {
        Model::new(500, &["before", "between", "after", "refused"]).preemptions(2).check(|| {
            let words = Arc::new(SequencedWords::new([0, 0]));
            let writer = words.clone();
            let writing = thread::spawn(move || {
                writer.write(&[1, 1]);
                writer.write(&[2, 2]);
            });
            if let Some((one, other)) = words.read(|words| (words.get(0), words.get(1))) {
                assert_eq!(one, other);
                reached(["before", "between", "after"][one as usize]);
            } else {
                reached("refused");
            }
            writing.join().unwrap();
            assert_eq!(words.read(|words| words.get(1)), Some(2));
        });
    }
}
