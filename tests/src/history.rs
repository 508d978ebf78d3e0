//! Histories of operations on a few names, and whether one order explains them.
//!
//! # Boundary
//! Knows two directories with four names each as a sequential machine, and searches for an order of a concurrent
//! history that this machine could have run: each operation between its call and its return, after Wing and Gong
//! (1993), with the memory of visited states of Lowe (2017). Runs nothing.
//!
//! # Why
//! Rounds of some twenty operations are searched completely, so an answer is a proof and not a sample. Weakness: what
//! one round leaves undecided is dropped; a round ends with a look at every name.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

/// Names in all.
pub const SLOTS: usize = 8;

/// One of the names: directory `slot / 4`, name `slot % 4`.
pub type Slot = usize;

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Which object is there?
    Look(Slot),
    /// Make a file.
    Create(Slot),
    /// Make a directory.
    MakeDirectory(Slot),
    /// Remove an object that is no directory.
    Unlink(Slot),
    /// Remove a directory.
    RemoveDirectory(Slot),
    /// Move, and replace an existing object.
    Replace(Slot, Slot),
    /// Exchange the two.
    Exchange(Slot, Slot),
}

/// The result of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saw {
    /// This object, by number.
    Object(u64),
    /// It was done.
    Done,
    /// This errno.
    Failed(i32),
}

/// One operation, with the moments of its call and its return on one clock.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// When it was called.
    pub called: u64,
    /// When it had returned.
    pub returned: u64,
    /// The operation.
    pub act: Act,
    /// Result of the operation.
    pub saw: Saw,
}

/// The object at one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Object {
    number: u64,
    is_directory: bool,
}

/// The objects of all names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Names([Option<Object>; SLOTS]);

impl Names {
    /// The names after `act`, if it can have the result `saw`.
    pub fn after(mut self, act: Act, saw: Saw) -> Option<Self> {
        let slots = &mut self.0;
        let fits = match act {
            Act::Look(at) => match slots[at] {
                Some(object) => saw == Saw::Object(object.number),
                None => saw == Saw::Failed(libc::ENOENT),
            },
            Act::Create(at) | Act::MakeDirectory(at) => match (slots[at], saw) {
                (Some(_), saw) => saw == Saw::Failed(libc::EEXIST),
                (None, Saw::Object(number)) => {
                    let is_directory = act == Act::MakeDirectory(at);
                    slots[at] = Some(Object { number, is_directory });
                    true
                }
                (None, _) => false,
            },
            Act::Unlink(at) | Act::RemoveDirectory(at) => {
                let directory = act == Act::RemoveDirectory(at);
                match slots[at] {
                    None => saw == Saw::Failed(libc::ENOENT),
                    Some(object) if object.is_directory == directory => {
                        slots[at] = None;
                        saw == Saw::Done
                    }
                    Some(_) => saw == wrong_kind(directory),
                }
            }
            Act::Replace(from, to) => match (slots[from], slots[to]) {
                (None, _) => saw == Saw::Failed(libc::ENOENT),
                (Some(_), _) if from == to => saw == Saw::Done,
                (Some(moved), Some(there)) if moved.is_directory != there.is_directory => {
                    saw == wrong_kind(moved.is_directory)
                }
                (moved, _) => {
                    slots[from] = None;
                    slots[to] = moved;
                    saw == Saw::Done
                }
            },
            Act::Exchange(one, other) => match (slots[one], slots[other]) {
                (None, _) | (_, None) => saw == Saw::Failed(libc::ENOENT),
                _ => {
                    slots.swap(one, other);
                    saw == Saw::Done
                }
            },
        };
        fits.then_some(self)
    }

    /// The names, read one after the other without concurrent changes: `look` returns the object at a slot, and whether
    /// it is a directory.
    pub fn found(mut look: impl FnMut(Slot) -> Option<(u64, bool)>) -> Self {
        Self(std::array::from_fn(|at| {
            look(at).map(|(number, is_directory)| Object { number, is_directory })
        }))
    }
}

/// The errno of an operation that needs a directory, or none, and finds the other kind.
fn wrong_kind(wants_directory: bool) -> Saw {
    Saw::Failed(if wants_directory { libc::ENOTDIR } else { libc::EISDIR })
}

/// Concurrent operations of some threads.
#[derive(Clone, Default)]
pub struct History {
    /// The names before.
    pub before: Names,
    /// Events of each thread, in its order.
    pub threads: Vec<Vec<Event>>,
    /// The names afterwards.
    pub after: Names,
}

impl History {
    /// Whether some order of the operations explains all that was seen.
    pub fn is_linearizable(&self) -> bool {
        let mut seen = HashSet::new();
        let mut to_do = vec![(vec![0; self.threads.len()], self.before)];
        while let Some((done, names)) = to_do.pop() {
            let next = |thread: usize| self.threads[thread].get(done[thread]);
            let returned = (0..done.len()).filter_map(next).map(|event| event.returned).min();
            let Some(first_return) = returned else {
                if names == self.after {
                    return true;
                }
                continue;
            };
            for thread in 0..done.len() {
                // An operation called after another one's return comes after it.
                let Some(event) = next(thread).filter(|event| event.called < first_return) else {
                    continue;
                };
                let Some(names) = names.after(event.act, event.saw) else { continue };
                let mut done = done.clone();
                done[thread] += 1;
                if seen.insert((done.clone(), names)) {
                    to_do.push((done, names));
                }
            }
        }
        false
    }
}

impl fmt::Display for History {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.threads.iter().enumerate();
        let all = all.flat_map(|(at, events)| events.iter().map(move |event| (at, event)));
        let in_order: BTreeMap<_, _> = all.map(|(at, event)| (event.called, (at, event))).collect();
        writeln!(out, "before: {:?}", self.before)?;
        for (at, event) in in_order.values() {
            let Event { called, returned, act, saw } = event;
            writeln!(out, "{called:>6}..{returned:<6} thread {at}: {act:?} -> {saw:?}")?;
        }
        writeln!(out, "after: {:?}", self.after)
    }
}

impl fmt::Debug for History {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(called: u64, returned: u64, act: Act, saw: Saw) -> Event {
        Event { called, returned, act, saw }
    }

    fn history(threads: Vec<Vec<Event>>, there: &[(Slot, u64)]) -> History {
        let number = |at| there.iter().find(|(slot, _)| *slot == at).map(|found| (found.1, false));
        History { before: Names::default(), threads, after: Names::found(number) }
    }

    #[test]
    fn an_order_is_found_where_there_is_one() {
        let create = event(1, 10, Act::Create(0), Saw::Object(7));
        let missed = event(2, 3, Act::Look(0), Saw::Failed(libc::ENOENT));
        let found = event(4, 5, Act::Look(0), Saw::Object(7));
        let good = history(vec![vec![create], vec![missed, found]], &[(0, 7)]);
        assert!(good.is_linearizable(), "{good}");
        let moved = event(11, 20, Act::Replace(0, 4), Saw::Done);
        let good = history(vec![vec![create, moved], vec![missed, found]], &[(4, 7)]);
        assert!(good.is_linearizable(), "{good}");
    }

    #[test]
    fn new_then_old_is_refused() {
        let create = event(1, 10, Act::Create(0), Saw::Object(7));
        let found = event(2, 3, Act::Look(0), Saw::Object(7));
        let missed = event(4, 5, Act::Look(0), Saw::Failed(libc::ENOENT));
        let bad = history(vec![vec![create], vec![found, missed]], &[(0, 7)]);
        assert!(!bad.is_linearizable());
        // The same two looks by threads that overlap are fine.
        let early = event(2, 5, Act::Look(0), Saw::Failed(libc::ENOENT));
        let fine = history(vec![vec![create], vec![found], vec![early]], &[(0, 7)]);
        assert!(fine.is_linearizable());
    }

    #[test]
    fn a_name_in_both_places_or_in_none_is_refused() {
        let create = event(1, 2, Act::Create(0), Saw::Object(7));
        let moved = event(3, 10, Act::Replace(0, 4), Saw::Done);
        let at = |called, slot, saw| event(called, called + 1, Act::Look(slot), saw);
        let gone = Saw::Failed(libc::ENOENT);
        for [one, other] in
            [[at(4, 4, Saw::Object(7)), at(6, 0, Saw::Object(7))], [at(4, 0, gone), at(6, 4, gone)]]
        {
            let bad = history(vec![vec![create, moved], vec![one, other]], &[(4, 7)]);
            assert!(!bad.is_linearizable(), "{bad}");
        }
        let lost = history(vec![vec![create, moved]], &[]);
        assert!(!lost.is_linearizable());
    }

    #[test]
    fn kinds_decide_the_errors() {
        let names = Names::default().after(Act::MakeDirectory(1), Saw::Object(2)).unwrap();
        assert!(names.after(Act::Unlink(1), Saw::Failed(libc::EISDIR)).is_some());
        assert!(names.after(Act::Unlink(1), Saw::Done).is_none());
        let names = names.after(Act::Create(2), Saw::Object(3)).unwrap();
        assert!(names.after(Act::Replace(1, 2), Saw::Failed(libc::ENOTDIR)).is_some());
        assert!(names.after(Act::Replace(2, 1), Saw::Failed(libc::EISDIR)).is_some());
        assert!(names.after(Act::Exchange(1, 2), Saw::Done).is_some());
        assert!(names.after(Act::Exchange(1, 3), Saw::Done).is_none());
    }
}
