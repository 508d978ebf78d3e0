//! Every interleaving of commits, a step of the background, and data in freed blocks, cut by a crash in every state.
//!
//! [`Newer`] and [`Pending`] are the product's; the model does by turns what [`super::checkpoint`] does under locks, and has the log
//! and the medium. Each rule of that module is weakened once, and the crash that it prevents is found.

use super::log::Mark;
use super::newer::{End, Newer};
use crate::queue::{Pending, Run};
use std::collections::{BTreeSet, HashSet};

const BLOCKS: usize = 2;
/// Transactions that are committed at most.
const COMMITS: u32 = 4;
/// Data is this plus the number of its block.
const DATA: u8 = 100;

/// The rule that does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weak {
    Nothing,
    /// A commit takes blocks out of the queue behind the lock under which they came into `newer`.
    DropsLate,
    /// It does so before its record is stable.
    DropsEarly,
    /// It leaves freed blocks in the queue.
    KeepsFreed,
    /// It does not wait for a request with a freed block.
    WaitsNot,
    /// The log's beginning moves behind the last transaction.
    BeginsBehindAll,
    /// All blocks leave `newer` at the end of a step.
    LeavesAll,
    /// No flush before the beginning moves, or behind it.
    FlushesNotBefore,
    FlushesNotBehind,
    /// A step's blocks come into the queue behind the lock under which they were chosen.
    PutsLate,
}

const ALL_WEAK: [Weak; 9] = [
    Weak::DropsLate,
    Weak::DropsEarly,
    Weak::KeepsFreed,
    Weak::WaitsNot,
    Weak::BeginsBehindAll,
    Weak::LeavesAll,
    Weak::FlushesNotBefore,
    Weak::FlushesNotBehind,
    Weak::PutsLate,
];

/// One change of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Change {
    Brings(u64),
    Frees(u64),
}

/// The next part of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Commit {
    Log,
    Newer,
    Drop,
    Wait,
}

/// The next part of a step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Step {
    None,
    /// Blocks that are not in the queue yet.
    Put(Vec<(u64, u8)>),
    Write,
    Begin,
    Flush,
    End,
}

/// What a block must hold after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Holds {
    Metadata(u8),
    /// Freed by a transaction that is stable; whether the owner knows it.
    Free(bool),
    /// Data that is stable, or not yet.
    Data(bool),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    newer: Newer<u8>,
    pending: Pending<u8>,
    requests: Vec<Run<u8>>,
    /// Committed transactions whose room was not used again.
    log: Vec<(u32, Change)>,
    /// The first transaction that a replay takes; a newer one that is not flushed.
    beginning: u32,
    beginning_next: Option<u32>,
    /// The medium, and writes since the last flush.
    stable: [u8; BLOCKS],
    since: Vec<(u64, u8)>,
    holds: [Holds; BLOCKS],
    committed: u32,
    commit: Option<(Commit, Change)>,
    step: Step,
}

impl World {
    fn new() -> Self {
        let start = End { transaction: 0, mark: Mark::default() };
        Self {
            newer: Newer::new(start),
            pending: Pending::default(),
            requests: Vec::new(),
            log: Vec::new(),
            beginning: 1,
            beginning_next: None,
            stable: [0; BLOCKS],
            since: Vec::new(),
            holds: [Holds::Metadata(0); BLOCKS],
            committed: 0,
            commit: None,
            step: Step::None,
        }
    }

    fn flush(&mut self) {
        for (block, contents) in self.since.drain(..) {
            self.stable[block as usize] = contents;
        }
        self.beginning = self.beginning_next.take().unwrap_or(self.beginning);
        for holds in &mut self.holds {
            if *holds == Holds::Data(false) {
                *holds = Holds::Data(true);
            }
        }
    }

    /// Does the next part of the commit under way.
    fn go_on_committing(&self, weak: Weak) -> Option<World> {
        let mut next = self.clone();
        let (part, change) = self.commit?;
        let (Change::Brings(block) | Change::Frees(block)) = change;
        let number = self.committed + u32::from(part == Commit::Log);
        let is_freed = change == Change::Frees(block);
        let is_kept = weak == Weak::KeepsFreed && is_freed;
        let then = match part {
            Commit::Log => {
                if weak == Weak::DropsEarly {
                    next.pending.remove(block);
                    next.commit = Some((Commit::Drop, change));
                    return Some(next);
                }
                next.log_it(number, change);
                Some(Commit::Newer)
            }
            Commit::Newer => {
                let end =
                    End { transaction: number, mark: Mark { next: 0, written: number.into() } };
                let freed: BTreeSet<u64> = is_freed.then_some(block).into_iter().collect();
                let brought = (!is_freed).then_some((block, number as u8));
                next.newer.commit(end, &freed, brought.into_iter());
                if weak == Weak::DropsLate {
                    Some(Commit::Drop)
                } else {
                    if !is_kept {
                        next.pending.remove(block);
                    }
                    Some(Commit::Wait)
                }
            }
            Commit::Drop if weak == Weak::DropsEarly => {
                next.log_it(number + 1, change);
                Some(Commit::Newer)
            }
            Commit::Drop => {
                next.pending.remove(block);
                Some(Commit::Wait)
            }
            Commit::Wait => {
                if is_freed && weak != Weak::WaitsNot && self.pending.is_under_way(block) {
                    return None;
                }
                if is_freed {
                    next.holds[block as usize] = Holds::Free(true);
                }
                None
            }
        };
        next.commit = then.map(|part| (part, change));
        Some(next)
    }

    /// A transaction becomes stable, and all that was written before.
    fn log_it(&mut self, number: u32, change: Change) {
        self.flush();
        self.log.push((number, change));
        self.committed = number;
        match change {
            Change::Brings(block) => self.holds[block as usize] = Holds::Metadata(number as u8),
            Change::Frees(block) => self.holds[block as usize] = Holds::Free(false),
        }
    }

    /// Worlds in which a new commit begins.
    fn commits(&self) -> Vec<World> {
        if self.commit.is_some() || self.committed == COMMITS {
            return Vec::new();
        }
        let change = |block: u64| match self.holds[block as usize] {
            Holds::Metadata(_) => vec![Change::Brings(block), Change::Frees(block)],
            Holds::Free(true) => vec![Change::Brings(block)],
            Holds::Free(false) | Holds::Data(_) => Vec::new(),
        };
        let changes = (0..BLOCKS as u64).flat_map(change);
        changes
            .map(|change| World { commit: Some((Commit::Log, change)), ..self.clone() })
            .collect()
    }

    /// Does the next part of the step, or begins one.
    fn go_on_stepping(&self, weak: Weak) -> Option<World> {
        let mut next = self.clone();
        next.step = match &self.step {
            Step::None => {
                let mut blocks = Vec::new();
                let begun = next.newer.begin(|all| {
                    blocks.extend(all);
                    !blocks.is_empty()
                });
                match begun {
                    false => return None,
                    true if weak == Weak::PutsLate => Step::Put(blocks),
                    true => next.put(blocks),
                }
            }
            Step::Put(blocks) => next.put(blocks.clone()),
            Step::Write => {
                if !self.pending.is_empty() {
                    return None;
                }
                if weak != Weak::FlushesNotBefore {
                    next.flush();
                }
                Step::Begin
            }
            Step::Begin => {
                let last = self.newer.step().unwrap().transaction;
                let all = weak == Weak::BeginsBehindAll;
                next.beginning_next = Some(1 + if all { self.committed } else { last });
                Step::Flush
            }
            Step::Flush => {
                if weak != Weak::FlushesNotBehind {
                    next.flush();
                }
                Step::End
            }
            Step::End => {
                let step = self.newer.step().unwrap();
                next.log.retain(|(number, _)| *number > step.transaction);
                next.newer.end();
                if weak == Weak::LeavesAll {
                    let last = End { transaction: self.committed, ..step };
                    next.newer.commit(last, &(0..BLOCKS as u64).collect(), std::iter::empty());
                }
                Step::None
            }
        };
        Some(next)
    }

    fn put(&mut self, blocks: Vec<(u64, u8)>) -> Step {
        for (block, contents) in blocks {
            self.pending.put(block, contents);
        }
        Step::Write
    }

    /// Worlds in which a request begins or ends.
    fn write(&self) -> Vec<World> {
        let mut worlds = Vec::new();
        for most in [1, 2] {
            let mut next = self.clone();
            if let Some(run) = next.pending.take(most) {
                next.requests.push(run);
                worlds.push(next);
            }
        }
        for at in 0..self.requests.len() {
            let mut next = self.clone();
            let run = next.requests.remove(at);
            next.pending.ended(run.first);
            next.since.extend(run.blocks().zip(run.contents));
            worlds.push(next);
        }
        worlds
    }

    /// Worlds in which data is written to a free block, or is made stable.
    fn data(&self) -> Vec<World> {
        let mut worlds = Vec::new();
        for (block, holds) in self.holds.iter().enumerate() {
            let mut next = self.clone();
            match holds {
                Holds::Free(true) => {
                    next.since.push((block as u64, DATA + block as u8));
                    next.holds[block] = Holds::Data(false);
                }
                Holds::Data(false) => next.flush(),
                _ => continue,
            }
            worlds.push(next);
        }
        worlds
    }

    /// What readers find, and what a crash would leave now.
    fn check(&self) -> Result<(), String> {
        let is_known = !matches!(self.commit, Some((Commit::Newer, _)));
        for (block, holds) in (0..).zip(self.holds) {
            let last = self.since.iter().rev().find(|(of, _)| *of == block);
            let place = last.map_or(self.stable[block as usize], |(_, contents)| *contents);
            let read = self.newer.get(block).copied().unwrap_or(place);
            if matches!(holds, Holds::Metadata(contents) if is_known && read != contents) {
                return Err(format!("block {block} is read as {read}, {holds:?}"));
            }
            let beginnings = [Some(self.beginning), self.beginning_next];
            for beginning in beginnings.into_iter().flatten() {
                let all = (beginning..=self.committed)
                    .all(|number| self.log.iter().any(|(of, _)| *of == number));
                if !all {
                    return Err(format!("the log from {beginning} on is used again"));
                }
                let places = self.since.iter().filter(|(of, _)| *of == block);
                for place in
                    places.map(|(_, contents)| *contents).chain([self.stable[block as usize]])
                {
                    self.check_block(block, holds, beginning, place)?;
                }
            }
        }
        Ok(())
    }

    fn check_block(
        &self,
        block: u64,
        holds: Holds,
        beginning: u32,
        place: u8,
    ) -> Result<(), String> {
        let mut found = place;
        for (number, change) in &self.log {
            let is_freed =
                self.log.iter().any(|(of, later)| of > number && *later == Change::Frees(block));
            if *number >= beginning && *change == Change::Brings(block) && !is_freed {
                found = *number as u8;
            }
        }
        let right = match holds {
            Holds::Metadata(contents) => found == contents,
            Holds::Data(true) => found == DATA + block as u8,
            Holds::Data(false) | Holds::Free(_) => true,
        };
        if right {
            Ok(())
        } else {
            Err(format!("block {block} has {found} after a crash: {holds:?}"))
        }
    }
}

/// Runs everything; the number of worlds, or the first one that is wrong.
fn explore(weak: Weak) -> Result<usize, String> {
    let (mut seen, mut worlds) = (HashSet::new(), vec![World::new()]);
    while let Some(world) = worlds.pop() {
        if seen.contains(&world) {
            continue;
        }
        world.check()?;
        worlds.extend(world.go_on_committing(weak));
        worlds.extend(world.commits());
        worlds.extend(world.go_on_stepping(weak));
        worlds.extend(world.write());
        worlds.extend(world.data());
        seen.insert(world);
    }
    Ok(seen.len())
}

/// A commit took its blocks out of the queue behind the lock under which they came into `newer`: a step that had begun between
/// the two lost them, and moved the log's beginning over the only copy.
#[test]
fn a_crash_at_any_moment_finds_what_is_stable_and_each_rule_is_needed() {
    let worlds = explore(Weak::Nothing).unwrap_or_else(|what| panic!("{what}"));
    assert!(worlds > 10_000, "{worlds}");
    for weak in ALL_WEAK {
        let found = explore(weak);
        assert!(found.is_err(), "{weak:?} is not noticed in {found:?} worlds");
    }
}
