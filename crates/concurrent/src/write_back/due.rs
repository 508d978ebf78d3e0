//! Files that wait to be written back, by their due moments, and the moment when a thread looks next.
//!
//! # Boundary
//! Places and moments. The caller owns the items, and stores for each the place that it was given, and its moments. The
//! caller also owns the locks: one over a [`Places`], one over a [`Wake`].
//!
//! # Order
//! ```text
//!            a step reached it, but the store refused it a moment ago
//!  Ripening ─────────────────────────────────────────────────────────▶ Paused
//!  (by the moment since◀────────────────────────────────────────────── (by the end of
//!   which it is dirty)  its pause is over, or it became due             the pause)
//! ```
//! Q1. Each item is in [`Places`] at most once, at the place that its owner stores for it.
//! Q2. An item's place is no later than its due moment. A step that finds a place too early moves it; a thread that
//!     makes an item due sooner moves it at once.
//! Q4. A thread looks no later than the first item is due. A step ends with a moment to look again for each item that
//!     is then in [`Places`]. A thread that inserts an item or makes one due afterwards reports that to [`Wake`],
//!     which keeps the earlier of two moments, also during a step. The step ends with [`Wake::ended`], which also keeps
//!     the earlier one.
//!
//! Checked by `model_what_becomes_due_beside_a_step_is_looked_at`, `model_what_is_put_in_and_becomes_due_is_looked_at`.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// The reason why an item waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitsFor {
    /// The item's delay runs since a moment; without a moment the item is due at once.
    Ripening,
    /// The store failed: the item is not tried again before a moment.
    Paused,
}

use WaitsFor::{Paused, Ripening};

/// The place of an item in [`Places`]; numbers distinguish places of one moment, and begin at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place<M>(WaitsFor, Option<M>, u64);

/// The waiting items, by their places.
#[derive(Debug)]
pub struct Places<M, T> {
    places: BTreeMap<Place<M>, T>,
    /// The last number used.
    number: u64,
    /// The place where the last step looked.
    hand: Place<M>,
    /// The place where a thread that needed any page written looked last.
    any_hand: Place<M>,
}

/// One step's pass over the due items.
#[derive(Debug)]
pub struct Round<M> {
    /// Behind the last due item.
    limit: Place<M>,
    start: Place<M>,
    at: Place<M>,
    wrapped: bool,
}

/// The outcome of a step for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next<M> {
    /// An item is due that the step reached, or that was inserted since.
    Now,
    /// The first item that ripens does so since `ripens_since`, and the first pause ends at `pause_ends`.
    Later {
        /// The caller adds the delay to it.
        ripens_since: Option<M>,
        /// The end of the first pause.
        pause_ends: Option<M>,
    },
}

impl<M: Copy + Ord, T: Clone> Places<M, T> {
    /// Before all places.
    const START: Place<M> = Place(Ripening, None, 0);
    /// Behind those that ripen.
    const PAUSED: Place<M> = Place(Paused, None, 0);

    /// Without items.
    pub fn new() -> Self {
        let (hand, any_hand) = (Self::START, Self::START);
        Self { places: BTreeMap::new(), number: 0, hand, any_hand }
    }

    /// Inserts `item`, which is not present (Q1); returns its place.
    pub fn put(&mut self, (waits_for, moment): (WaitsFor, Option<M>), item: T) -> Place<M> {
        self.number += 1;
        let place = Place(waits_for, moment, self.number);
        self.places.insert(place, item);
        place
    }

    /// Moves the item at `old`; returns its new place.
    pub fn move_to(&mut self, old: Place<M>, to: (WaitsFor, Option<M>)) -> Place<M> {
        if (old.0, old.1) == to {
            return old;
        }
        match self.places.remove(&old) {
            Some(item) => self.put(to, item),
            None => old,
        }
    }

    /// Removes the item at `place`.
    pub fn remove(&mut self, place: Place<M>) -> Option<T> {
        self.places.remove(&place)
    }

    /// The item at `place`.
    pub fn get(&self, place: Place<M>) -> Option<&T> {
        self.places.get(&place)
    }

    /// The place of an item whose pause is over at `now`.
    pub fn rested(&self, now: M) -> Option<(Place<M>, T)> {
        let (place, item) = self.places.range(Self::PAUSED..).next()?;
        (place.1 <= Some(now)).then(|| (*place, item.clone()))
    }

    /// Begins a step over the items that are dirty since `ripe` or earlier; in a `hurry`, over all that are not paused.
    /// `ripe` of `None`: no item ripens so early.
    pub fn begin(&self, ripe: Option<M>, hurry: bool) -> Round<M> {
        let limit = match hurry {
            true => Self::PAUSED,
            false => Place(Ripening, ripe, u64::MAX),
        };
        Round { limit, start: self.hand, at: self.hand, wrapped: false }
    }

    /// The next due item; `None` when the step has reached all of them.
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

    /// The moment to look again after `round`, which ends at `now` (Q4).
    pub fn next_due(&self, round: &Round<M>, now: M) -> Next<M> {
        // In a hurry, a postponed item lies after `now` and does not count as due.
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

    /// Up to `count` items, round robin over calls.
    pub fn some(&mut self, count: usize) -> Vec<T> {
        let hand = self.any_hand;
        let behind = self.places.range((Excluded(hand), Unbounded));
        let some: Vec<_> = behind.chain(self.places.range(..=hand)).take(count).collect();
        let last = some.last().map_or(hand, |(place, _)| **place);
        let some = some.into_iter().map(|(_, item)| item.clone()).collect();
        self.any_hand = last;
        some
    }

    /// All items.
    pub fn all(&self) -> Vec<T> {
        self.places.values().cloned().collect()
    }

    /// Removes all items.
    pub fn take(&mut self) -> Vec<T> {
        std::mem::take(&mut self.places).into_values().collect()
    }
}

impl<M: Copy + Ord, T: Clone> Default for Places<M, T> {
    fn default() -> Self {
        Self::new()
    }
}

/// The moment when a thread looks next, and the number of threads that look now.
///
/// Why Q4 holds: a thread that makes an item due changes its place first and reports here afterwards. Either a step
/// finds the new place, or the step computed its next moment before. Then the report came after the step began, and is
/// still there when the step ends.
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
    /// Requests that a thread looks at `when`; false if one looks by then anyway. Also allowed beside a step, which may
    /// have passed the item (Q4).
    pub fn look_at(&mut self, when: M) -> bool {
        let sooner = self.at.is_none_or(|at| when < at);
        if sooner {
            self.at = Some(when);
        }
        sooner
    }

    /// The moment when a thread looks next; `None`: not before a request, or before the last step ends.
    pub fn next(&self) -> Option<M> {
        self.at
    }

    /// The moment of [`Wake::next`], if a further step may begin, of which at most `most` may run.
    pub fn next_if_fewer(&self, most: usize) -> Option<M> {
        self.at.filter(|_| self.looking < most)
    }

    /// Begins a step, if one is requested by `now` and fewer than `most` run.
    pub fn begin(&mut self, now: M, most: usize) -> Option<M> {
        let due = self.next_if_fewer(most).filter(|due| *due <= now)?;
        self.at = None;
        self.looking += 1;
        Some(due)
    }

    /// Ends a step, and requests the next one at `next` at the latest. Returns whether one follows.
    pub fn ended(&mut self, next: Option<M>) -> bool {
        self.looking -= 1;
        next.is_some_and(|next| {
            self.look_at(next);
            true
        })
    }

    /// Withdraws the request of [`Wake::look_at`]: no thread can be started.
    pub fn forget(&mut self) -> Option<M> {
        self.at.take()
    }
}
