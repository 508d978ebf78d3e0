//! Generation numbers by stripe: show whether anything of a group has changed since an earlier look.
//!
//! # Boundary
//! Counts. The caller defines the changes and keeps the results that a change ends.
//!
//! # Protocol
//! G1. To make something untrue, a thread first removes the evidence from which others could still derive it. Then it
//!     advances the generation, then it acts.
//! G2. To derive a result, a thread reads the generation first, then the evidence, and stores the number with the
//!     result.
//! G3. A result is valid as long as the generation is the same.
//! G4. A thread that takes in the news of a generation declares it known ([`UpTo`]) afterwards, never before.
//!
//! Why G3 holds: if the evidence of a result is gone, the thread read the generation before the evidence was removed.
//! That was before the advance, and the advance ends the result.
//!
//! O1. the removal of the evidence and `advance` (Release) → `of` (Acquire) and the look at the evidence: a thread that
//!     reads the new generation does not find the old evidence.
//! O2. `advance` (Release), then the act → `of` (Acquire): a thread that learns of the act sees the advance.
//! O3. taking in the news, then `learn` (Release) → `knows` (Acquire): a thread to which `knows` returns true finds the
//!     news.
//!
//! Progress: wait-free.
//! Checked by `model_nothing_outlives_an_advance`, `model_what_is_known_was_taken_in`, and by the models of `complete`.
//! Weakness: groups share stripes, so a group that changes often makes others do needless work.

use crate::primitive::atomic::{AtomicU64, Ordering};

/// The number of stripes.
const STRIPES: usize = if cfg!(loom) { 1 } else { 1024 };
/// Stripes in one cache line.
const IN_A_LINE: usize = if cfg!(loom) { 1 } else { 64 / size_of::<Generation>() };

/// One generation number.
#[derive(Debug, Default)]
pub struct Generation(AtomicU64);

impl Generation {
    /// Something is about to become untrue (G1).
    pub fn advance(&self) {
        // ORDERING: Release, partner `now` (O1, O2). Advances need no more order among themselves: each adds to the one
        // before. A thread that reads the last one sees all that preceded any of them.
        self.0.fetch_add(1, Ordering::Release);
    }

    /// The present generation.
    #[inline]
    pub fn now(&self) -> u64 {
        // ORDERING: Acquire, partner `advance` (O1, O2).
        self.0.load(Ordering::Acquire)
    }
}

/// The generation up to which the news is known. Only rises.
#[derive(Debug, Default)]
pub struct UpTo(AtomicU64);

impl UpTo {
    /// Whether the news up to `generation` is known and can be read.
    #[inline]
    pub fn knows(&self, generation: u64) -> bool {
        // ORDERING: Acquire, partner `learn` (O3).
        self.0.load(Ordering::Acquire) >= generation
    }

    /// Runs `take_in`, then declares all up to `generation` known (G4).
    pub fn learn<R>(&self, generation: u64, take_in: impl FnOnce() -> R) -> R {
        let taken = take_in();
        // ORDERING: Release, partner `knows` (O3).
        self.0.fetch_max(generation, Ordering::Release);
        taken
    }
}

/// Generation numbers of any number of groups, which share them by stripe.
#[derive(Debug)]
pub struct Generations(Box<[Generation]>);

impl Default for Generations {
    fn default() -> Self {
        Self((0..STRIPES).map(|_| Generation::default()).collect())
    }
}

/// The index of stripe `number`. Consecutive numbers do not share a cache line: groups are numbered in sequence, and
/// groups that were made together are changed together by different threads.
#[inline]
fn place(number: usize) -> usize {
    const LINES: usize = STRIPES / IN_A_LINE;
    match STRIPES {
        1 => number,
        _ => number % LINES * IN_A_LINE + number / LINES,
    }
}

impl Generations {
    #[inline]
    fn stripe(&self, group: u64) -> &Generation {
        &self.0[place((group ^ (group >> 20)) as usize % self.0.len())]
    }

    /// Something of `group` is about to become untrue (G1).
    pub fn advance(&self, group: u64) {
        self.stripe(group).advance();
    }

    /// The present generation of `group`.
    #[inline]
    pub fn of(&self, group: u64) -> u64 {
        self.stripe(group).now()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Bug: eight threads made eight directories at one time, then wrote the same cache line with each new name.
    #[test]
    fn neighbours_lie_in_lines_of_their_own() {
        let mut places: Vec<_> = (0..STRIPES).map(place).collect();
        for pair in places.windows(2) {
            assert_ne!(pair[0] / IN_A_LINE, pair[1] / IN_A_LINE);
        }
        places.sort_unstable();
        assert!(places.into_iter().eq(0..STRIPES), "each stripe has a place");
    }

    #[test]
    fn neighbours_advance_apart() {
        let generations = Generations::default();
        let before = (generations.of(7), generations.of(8));
        generations.advance(7);
        assert_eq!((generations.of(7), generations.of(8)), (before.0 + 1, before.1));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitive::atomic::AtomicBool;
    use crate::primitive::model::{Model, reached};
    use loom::sync::Arc;
    use loom::thread;

    /// G4, O3: a thread to which `knows` returns true finds the news, whichever thread learned it. Fails if `learn`
    /// declares it known before it takes it in, and with a Relaxed `learn` or `knows`.
    #[test]
    fn model_what_is_known_was_taken_in() {
        Model::new(3, &["known", "not known"]).check(|| {
            let known = Arc::new((UpTo::default(), AtomicBool::new(false)));
            let other = known.clone();
            let learner = thread::spawn(move || {
                // ORDERING: Relaxed, here and below; `learn` and `knows` order it.
                other.0.learn(5, || other.1.store(true, Ordering::Relaxed));
            });
            if known.0.knows(5) {
                reached("known");
                assert!(known.1.load(Ordering::Relaxed), "known before it was taken in");
            } else {
                reached("not known");
            }
            learner.join().unwrap();
            assert!(known.0.knows(4) && !known.0.knows(6));
        });
    }

    /// G3: a memo made from evidence is not valid after the act. Fails if the generation advances before the evidence
    /// is removed, or with a Relaxed `advance` and `of`.
    #[test]
    fn model_nothing_outlives_an_advance() {
        Model::new(28, &["a memo after the act", "no memo"]).check(|| {
            let generations = Arc::new(Generations::default());
            let (evidence, acted) =
                (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
            let changer = {
                let (generations, evidence, acted) =
                    (generations.clone(), evidence.clone(), acted.clone());
                thread::spawn(move || {
                    evidence.store(false, Ordering::Release);
                    generations.advance(0);
                    acted.store(true, Ordering::Release);
                })
            };
            let generation = generations.of(0);
            let memo = evidence.load(Ordering::Acquire).then_some(generation);
            if memo.is_none() {
                reached("no memo");
            }
            if acted.load(Ordering::Acquire) {
                let believed = memo == Some(generations.of(0));
                if memo.is_some() {
                    reached("a memo after the act");
                }
                assert!(!believed, "a memo outlived the change");
            }
            changer.join().unwrap();
            assert_ne!(memo, Some(generations.of(0)), "and does not come back");
        });
    }
}
