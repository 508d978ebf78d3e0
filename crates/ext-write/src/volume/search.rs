//! The order in which a thread that needs room goes through the groups, and when it may say that there is none.
//!
//! # Boundary
//! Numbers of groups and of passes; [`super::groups`] locks a group and looks.
//!
//! # Concurrency
//! Group by group, so others free and take behind the thread and before it. Each group counts, under its lock, what was returned there.
//! The last pass, which skips no group, is repeated until two looks in a row found nothing and the same counts. So between the two
//! nothing was returned anywhere, and when the second began no group had room.
//!
//! # Why
//! A single look fails beside a thread that frees in a group behind it and takes in one before it, also if there was room at every
//! moment. A number of looks only makes that less frequent. Weakness: a thread looks for as long as others return room and take it
//! again; each repetition is another thread's progress.

/// The state of one search.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Search {
    groups: u32,
    first: u32,
    /// Groups of this look that were visited.
    visited: u32,
    pass: usize,
    last_pass: usize,
    /// What was returned to the groups that this look visited, and to all as of the look before.
    returned: u64,
    returned_before: Option<u64>,
}

/// One group to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Visit {
    pub(super) number: u32,
    pub(super) pass: usize,
    /// The look begins with it.
    pub(super) is_first: bool,
}

impl Search {
    /// From group `first` on, in so many passes, of which the last one skips no group.
    pub(super) fn new(groups: u32, first: u32, passes: usize) -> Self {
        let last_pass = passes - 1;
        Self { groups, first, visited: 0, pass: 0, last_pass, returned: 0, returned_before: None }
    }

    /// The next group; `None`: there is no room.
    pub(super) fn next(&mut self) -> Option<Visit> {
        if self.visited == self.groups {
            if self.pass < self.last_pass {
                self.pass += 1;
            } else if self.returned_before == Some(self.returned) {
                return None;
            } else {
                self.returned_before = Some(self.returned);
            }
            (self.visited, self.returned) = (0, 0);
        }
        let number = (self.first + self.visited) % self.groups;
        let visit = Visit { number, pass: self.pass, is_first: self.visited == 0 };
        self.visited += 1;
        Some(visit)
    }

    /// The visited group has no room, and so much was ever returned there.
    pub(super) fn found_none(&mut self, returned: u64) {
        self.returned += returned;
    }
}

#[cfg(test)]
mod model {
    use super::*;
    use std::collections::HashSet;

    const GROUPS: usize = 3;
    /// Looks of the last pass that are told apart.
    const LOOKS_MAX: u8 = 4;
    /// Steps of the other threads.
    const STEPS: u8 = 9;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Weak {
        Nothing,
        /// The last pass is one look.
        OneLook,
        /// It is three looks, whatever they find.
        ThreeLooks,
        /// A group does not count what is returned.
        CountsNothing,
        /// It counts when another thread may have it already.
        CountsLate,
        /// The last pass skips groups that others hold.
        Skips,
    }

    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    struct World {
        search: Search,
        /// Looks of the last pass that were begun, or the most that count.
        looks: u8,
        /// Whether a group has its one inode free, what was returned there, and what is not counted yet.
        free: [bool; GROUPS],
        returned: [u8; GROUPS],
        uncounted: [u8; GROUPS],
        steps: u8,
        /// There was a moment without any.
        was_full: bool,
    }

    impl World {
        fn changed(mut self) -> Self {
            self.was_full |= !self.free.contains(&true);
            self
        }

        /// The next visit, in each way that it can go; an error if the search ends wrongly.
        fn visits(&self, weak: Weak) -> Result<Vec<World>, String> {
            let mut next = self.clone();
            let visit = next.search.next();
            let is_last = visit.is_none_or(|visit| visit.pass == 1);
            let begins = visit.is_some_and(|visit| is_last && visit.is_first);
            next.looks = LOOKS_MAX.min(next.looks + u8::from(begins));
            let looks = match weak {
                Weak::OneLook => 1,
                Weak::ThreeLooks => 3,
                _ => LOOKS_MAX,
            };
            let Some(visit) = visit.filter(|_| next.looks <= looks) else {
                return match self.was_full {
                    true => Ok(Vec::new()),
                    false => Err(format!("there was room at every moment: {self:?}")),
                };
            };
            let mut worlds = Vec::new();
            if !is_last || weak == Weak::Skips {
                worlds.push(next.clone());
            }
            let at = visit.number as usize;
            if !next.free[at] {
                next.search.found_none(next.returned[at].into());
                worlds.push(next);
            }
            Ok(worlds)
        }

        /// Another thread frees, takes or counts.
        fn others(&self, weak: Weak) -> Vec<World> {
            let mut worlds = Vec::new();
            for at in 0..GROUPS {
                let mut next = self.clone();
                if self.uncounted[at] > 0 {
                    next.uncounted[at] -= 1;
                    next.returned[at] += 1;
                    worlds.push(next.clone());
                }
                if self.steps == STEPS {
                    continue;
                }
                next = World { steps: self.steps + 1, ..self.clone() };
                next.free[at] = !self.free[at];
                match weak {
                    Weak::CountsNothing => {}
                    Weak::CountsLate => next.uncounted[at] += u8::from(next.free[at]),
                    _ => next.returned[at] += u8::from(next.free[at]),
                }
                worlds.push(next.changed());
            }
            worlds
        }
    }

    /// All worlds; their number, or the first one that is wrong.
    fn explore(weak: Weak) -> Result<usize, String> {
        let world = World {
            search: Search::new(GROUPS as u32, 1, 2),
            looks: 0,
            free: [false, false, true],
            returned: [0; GROUPS],
            uncounted: [0; GROUPS],
            steps: 0,
            was_full: false,
        };
        let (mut seen, mut worlds) = (HashSet::new(), vec![world]);
        while let Some(world) = worlds.pop() {
            if !seen.insert(world.clone()) {
                continue;
            }
            worlds.extend(world.visits(weak)?);
            worlds.extend(world.others(weak));
        }
        Ok(seen.len())
    }

    /// A create said that no inode was free, although one was at every moment: beside it, a thread removed a file of a group that the
    /// search had left behind, and took the last inode of a group before it. For reserved blocks four looks made that rare.
    #[test]
    fn a_search_ends_only_if_there_was_a_moment_without_room() {
        let worlds = explore(Weak::Nothing).unwrap_or_else(|what| panic!("{what}"));
        assert!(worlds > 5_000, "{worlds}");
        let all =
            [Weak::OneLook, Weak::ThreeLooks, Weak::CountsNothing, Weak::CountsLate, Weak::Skips];
        for weak in all {
            let found = explore(weak);
            assert!(found.is_err(), "{weak:?} is not noticed in {found:?} worlds");
        }
    }
}
