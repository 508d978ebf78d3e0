//! Generation numbers by stripe: whether anything of a group has changed since somebody looked.
//!
//! # Boundary
//! Counts. What a change is, and what is kept by whom until the next, is the callers' business.
//!
//! # Protocol
//! G1. Who makes something untrue first takes away the evidence that others could still derive it from,
//!     then advances the generation, then acts.
//! G2. Who derives something reads the generation first, then the evidence, and keeps the number with
//!     what was derived.
//! G3. What was derived is believed as long as the generation is the same.
//! G4. Who takes in what a generation brought says that it knows ([`UpTo`]) after it has: never before.
//!
//! Why that holds: what was derived from evidence that is gone was derived after a generation read
//! before the evidence went, so before the advance; and the advance ends it.
//!
//! O1. the removal of the evidence and `advance` (Release) → `of` (Acquire) and the look at the
//!     evidence: who reads the new generation does not find the old evidence.
//! O2. `advance` (Release), then the act → `of` (Acquire): who learns of the act sees the advance.
//! O3. what is taken in, then `learn` (Release) → `knows` (Acquire): who is told that it is known finds it.
//!
//! Progress: wait-free.
//! Checked by `model_nothing_outlives_an_advance`, `model_what_is_known_was_taken_in`, and with `complete`
//! by its models.
//! Weakness: groups share stripes, so one that changes often makes others do work for nothing.

use crate::primitive::atomic::{AtomicU64, Ordering};

/// Stripes.
const STRIPES: usize = if cfg!(loom) { 1 } else { 1024 };
/// Those of one cache line.
const IN_A_LINE: usize = if cfg!(loom) { 1 } else { 64 / size_of::<Generation>() };

/// One generation number.
#[derive(Debug, Default)]
pub struct Generation(AtomicU64);

impl Generation {
    /// Something is about to become untrue (G1).
    pub fn advance(&self) {
        // ORDERING: Release, partner `now` (O1, O2). Advances are in order without more: each adds to the one
        // before, so who reads the last one sees what came before all of them.
        self.0.fetch_add(1, Ordering::Release);
    }

    /// The generation now.
    #[inline]
    pub fn now(&self) -> u64 {
        // ORDERING: Acquire, partner `advance` (O1, O2).
        self.0.load(Ordering::Acquire)
    }
}

/// Up to which generation somebody knows what came with it. Only rises.
#[derive(Debug, Default)]
pub struct UpTo(AtomicU64);

impl UpTo {
    /// Whether what came up to `generation` is known, and can be read.
    #[inline]
    pub fn knows(&self, generation: u64) -> bool {
        // ORDERING: Acquire, partner `learn` (O3).
        self.0.load(Ordering::Acquire) >= generation
    }

    /// Does `take_in`, then says that all up to `generation` is known (G4).
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

/// Where stripe `number` lies. Groups are numbered one after the other as a rule, and those that were made together are
/// changed together, by different threads: neighbours do not lie in one line.
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

    /// The generation of `group` now.
    #[inline]
    pub fn of(&self, group: u64) -> u64 {
        self.stripe(group).now()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Bug: eight directories that eight threads had made at one time wrote one line with each name.
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

    /// G4, O3: who is told that a generation is known finds what it brought, whoever learned it. Fails if `learn`
    /// says so before it takes in, and with a Relaxed `learn` or `knows`.
    #[test]
    fn model_what_is_known_was_taken_in() {
        Model::new(3, &["known", "not known"]).check(|| {
            let known = Arc::new((UpTo::default(), AtomicBool::new(false)));
            let other = known.clone();
            let learner = thread::spawn(move || {
                // ORDERING: Relaxed, here and below; what `learn` and `knows` order.
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

    /// G3: a memo made from evidence is not believed after the act. Fails if the generation advances
    /// before the evidence goes, or with a Relaxed `advance` and `of`.
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
