//! What waits to be written back, by when it is due, and when a thread looks next.
//!
//! # Boundary
//! Places and moments. What waits is the caller's, which keeps for each of them the place that it was given, and its
//! moments; the locks are its own too: one over a [`Places`], one over a [`Wake`].
//!
//! # Order
//! ```text
//!            a step came to it, but the store refused it a moment ago
//!  Ripening ─────────────────────────────────────────────────────────▶ Paused
//!  (by since when    ◀─────────────────────────────────────────────── (by when that ends)
//!   it is dirty)      its pause is over, or it became due
//! ```
//! Q1. Each is in [`Places`] at most once, at the place that its owner keeps for it.
//! Q2. Its place is no later than it is due. A step that finds a place too early moves it; a thread that makes something
//!     due sooner moves it at once.
//! Q4. A thread looks no later than the first of them is due. A step ends with a moment to look again for each that is in
//!     [`Places`] by then. A thread that makes something due, or puts it in, then says so to [`Wake`], which keeps the
//!     earlier of two moments, also while a step is under way: the step ends with [`Wake::ended`], which keeps the
//!     earlier one too.
//!
//! Why Q4 holds: a thread that makes something due changes its place first and speaks to [`Wake`] afterwards. Either a step
//! finds the new place, or it has looked for its next moment before; then the thread's word came after the step began,
//! and is still there when the step ends.
//!
//! Checked by `model_what_becomes_due_beside_a_step_is_looked_at`, `model_what_is_put_in_and_becomes_due_is_looked_at`.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// Why something waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitsFor {
    /// Its delay runs since a moment; none if it is due at once.
    Ripening,
    /// The store failed: it is left alone until a moment.
    Paused,
}

use WaitsFor::{Paused, Ripening};

/// Where something is in [`Places`]; numbers tell those of one moment apart, and begin at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place<M>(WaitsFor, Option<M>, u64);

/// See the module.
#[derive(Debug)]
pub struct Places<M, T> {
    places: BTreeMap<Place<M>, T>,
    /// The number given last.
    number: u64,
    /// Where the last step looked.
    hand: Place<M>,
    /// Where a thread looked last that needed any page written.
    any_hand: Place<M>,
}

/// One step's way round what is due.
#[derive(Debug)]
pub struct Round<M> {
    /// Behind the last that is due.
    limit: Place<M>,
    start: Place<M>,
    at: Place<M>,
    wrapped: bool,
}

/// What a step found for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next<M> {
    /// Something is due that the step met, or that came since.
    Now,
    /// The first that ripens does so since this moment, and the first pause ends at that one.
    Later {
        /// Add the delay to it.
        ripens_since: Option<M>,
        /// Of the first that is paused.
        pause_ends: Option<M>,
    },
}

impl<M: Copy + Ord, T: Clone> Places<M, T> {
    /// Before all places.
    const START: Place<M> = Place(Ripening, None, 0);
    /// Behind those that ripen.
    const PAUSED: Place<M> = Place(Paused, None, 0);

    /// Nothing waits.
    pub fn new() -> Self {
        let (hand, any_hand) = (Self::START, Self::START);
        Self { places: BTreeMap::new(), number: 0, hand, any_hand }
    }

    /// Puts `item` in, which is not there (Q1); its place.
    pub fn put(&mut self, (waits_for, moment): (WaitsFor, Option<M>), item: T) -> Place<M> {
        self.number += 1;
        let place = Place(waits_for, moment, self.number);
        self.places.insert(place, item);
        place
    }

    /// Moves what is at `old`; its place from now on.
    pub fn move_to(&mut self, old: Place<M>, to: (WaitsFor, Option<M>)) -> Place<M> {
        if (old.0, old.1) == to {
            return old;
        }
        match self.places.remove(&old) {
            Some(item) => self.put(to, item),
            None => old,
        }
    }

    /// Takes out what is at `place`.
    pub fn remove(&mut self, place: Place<M>) -> Option<T> {
        self.places.remove(&place)
    }

    /// What is at `place`.
    pub fn get(&self, place: Place<M>) -> Option<&T> {
        self.places.get(&place)
    }

    /// Where something is whose pause is over at `now`.
    pub fn rested(&self, now: M) -> Option<(Place<M>, T)> {
        let (place, item) = self.places.range(Self::PAUSED..).next()?;
        (place.1 <= Some(now)).then(|| (*place, item.clone()))
    }

    /// Begins a step: what is dirty since `ripe`, or in a `hurry` all that is not left alone. `None`: nothing ripens
    /// so early.
    pub fn begin(&self, ripe: Option<M>, hurry: bool) -> Round<M> {
        let limit = match hurry {
            true => Self::PAUSED,
            false => Place(Ripening, ripe, u64::MAX),
        };
        Round { limit, start: self.hand, at: self.hand, wrapped: false }
    }

    /// The next that is due; `None` when the step has been at all of them.
    pub fn next(&mut self, round: &mut Round<M>) -> Option<T> {
        let mut found = None;
        if !round.wrapped {
            if round.at < round.limit {
                found = self.places.range((Excluded(round.at), Excluded(round.limit))).next();
            }
            if found.is_none() {
                round.wrapped = true;
                round.at = Self::START;
            }
        }
        if round.wrapped && found.is_none() {
            let end = match round.start < round.limit {
                true => Included(round.start),
                false => Excluded(round.limit),
            };
            let is_empty = round.at >= round.start.min(round.limit);
            found =
                if is_empty { None } else { self.places.range((Excluded(round.at), end)).next() };
        }
        let (place, item) = found.map(|(place, item)| (*place, item.clone()))?;
        round.at = place;
        self.hand = place;
        Some(item)
    }

    /// When to look again after `round`, which ends at `now` (Q4).
    pub fn next_due(&self, round: &Round<M>, now: M) -> Next<M> {
        // What a hurry puts off is at a moment to come.
        let due = round.limit.min(Place(Ripening, Some(now), u64::MAX));
        if self.places.range(..due).next().is_some() {
            return Next::Now;
        }
        let moment = |(place, _): (&Place<M>, _)| place.1;
        let ripens_since = match round.limit < Self::PAUSED {
            true => self.places.range(round.limit..Self::PAUSED).next().and_then(moment),
            false => None,
        };
        let pause_ends = self.places.range(Self::PAUSED..).next().and_then(moment);
        Next::Later { ripens_since, pause_ends }
    }

    /// Some of them, at most `count`, others each time.
    pub fn some(&mut self, count: usize) -> Vec<T> {
        let hand = self.any_hand;
        let behind = self.places.range((Excluded(hand), Unbounded));
        let some: Vec<_> = behind.chain(self.places.range(..=hand)).take(count).collect();
        let last = some.last().map_or(hand, |(place, _)| **place);
        let some = some.into_iter().map(|(_, item)| item.clone()).collect();
        self.any_hand = last;
        some
    }

    /// All of them.
    pub fn all(&self) -> Vec<T> {
        self.places.values().cloned().collect()
    }

    /// Takes all of them out.
    pub fn take(&mut self) -> Vec<T> {
        std::mem::take(&mut self.places).into_values().collect()
    }
}

impl<M: Copy + Ord, T: Clone> Default for Places<M, T> {
    fn default() -> Self {
        Self::new()
    }
}

/// When a thread looks next, and how many do now.
#[derive(Debug)]
pub struct Wake<M> {
    at: Option<M>,
    looking: usize,
}

impl<M> Default for Wake<M> {
    fn default() -> Self {
        Self { at: None, looking: 0 }
    }
}

impl<M: Copy + Ord> Wake<M> {
    /// A thread is to look at `when`; false if one does by then anyway. Also beside a step: it may have passed (Q4).
    pub fn look_at(&mut self, when: M) -> bool {
        let sooner = self.at.is_none_or(|at| when < at);
        if sooner {
            self.at = Some(when);
        }
        sooner
    }

    /// When a thread looks next; `None`: not before it is told, or the last step ends.
    pub fn next(&self) -> Option<M> {
        self.at
    }

    /// As [`Wake::next`], if a further step may begin where at most `most` are under way.
    pub fn next_if_fewer(&self, most: usize) -> Option<M> {
        self.at.filter(|_| self.looking < most)
    }

    /// Begins a step, if one is to begin by `now` and fewer than `most` are under way.
    pub fn begin(&mut self, now: M, most: usize) -> Option<M> {
        let due = self.next_if_fewer(most).filter(|due| *due <= now)?;
        self.at = None;
        self.looking += 1;
        Some(due)
    }

    /// A step ended, and is to be followed by one at `next` at the latest. Whether one follows.
    pub fn ended(&mut self, next: Option<M>) -> bool {
        self.looking -= 1;
        next.is_some_and(|next| {
            self.look_at(next);
            true
        })
    }

    /// Takes back what [`Wake::look_at`] asked for: no thread can be had.
    pub fn forget(&mut self) -> Option<M> {
        self.at.take()
    }
}
