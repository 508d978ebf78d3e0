//! The journal of the simulation: transactions, the log, and checkpoints, as in `uvfs_ext_write::store`.
//!
//! # Boundary
//! Which blocks, and in which order. Requests and time are those of [`Simulation`].
//!
//! # Why
//! A commit is the log, a flush, the commit record, a flush; a checkpoint step is its blocks, a flush, the log's beginning, a flush. A step
//! begins when a third of the log is used. A commit that lacks room waits for a whole step (C1 to C5 of the store).

use super::disk::Kind;
use super::simulation::{PIECE_BLOCKS, Simulation, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

#[derive(Debug, Default)]
pub(super) struct Journal {
    /// The running transaction, and the one that is committed now.
    running: BTreeSet<u64>,
    committing: BTreeSet<u64>,
    is_committing: bool,
    /// Processes that wait for the present commit, and for the next.
    waiters: Vec<usize>,
    waiters_next: Vec<usize>,
    commits: u64,
    /// Committed, not in place: by which commit.
    newer: BTreeMap<u64, u64>,
    log_used: u64,
    log_at: u64,
    lacks_room: bool,
    step: Option<CheckpointStep>,
}

#[derive(Debug)]
struct CheckpointStep {
    commit: u64,
    log_used: u64,
    left: BTreeSet<u64>,
    is_ending: bool,
}

impl Journal {
    /// These blocks are written.
    pub(super) fn in_place(&mut self, blocks: Range<u64>) {
        if let Some(step) = &mut self.step {
            step.left.retain(|block| !blocks.contains(block));
        }
    }
}

impl Simulation<'_> {
    pub(super) fn journal_step(&mut self, at: usize, step: Step) {
        match step {
            Step::Update(block) => {
                self.journal.running.insert(block);
            }
            Step::Commit if self.journal.is_committing => {
                self.journal.waiters_next.push(at);
                self.waits(at);
            }
            Step::Commit => {
                self.journal.waiters.push(at);
                self.waits(at);
                self.begin_commit();
            }
            Step::Log => {
                let blocks = self.journal.committing.len() as u64 + 1;
                if self.journal.log_used + blocks + 1 > self.log_blocks() {
                    self.begin_checkpoint();
                    return self.wait_for_room(at, step);
                }
                self.write_log(at, blocks);
            }
            Step::Record => self.write_log(at, 1),
            Step::Committed => self.committed(),
            // In the superblock of the journal.
            Step::Beginning => self.submit(Kind::Write, self.log_first() - 1, 1, Some(at)),
            Step::Checkpointed => self.checkpointed(),
            step => unreachable!("{step:?} is no step of the journal"),
        }
    }

    fn write_log(&mut self, at: usize, blocks: u64) {
        if self.journal.log_at + blocks > self.log_blocks() {
            self.journal.log_at = 0;
        }
        let first = self.log_first() + self.journal.log_at;
        self.journal.log_at += blocks;
        self.journal.log_used += blocks;
        // A device spreads a large request over its ways.
        for piece in (first..first + blocks).step_by(PIECE_BLOCKS) {
            let blocks = (first + blocks - piece).min(PIECE_BLOCKS as u64);
            self.submit(Kind::Write, piece, blocks, Some(at));
        }
    }

    /// A commit that lacks room writes blocks of the checkpoint step itself, then waits for its end.
    fn wait_for_room(&mut self, at: usize, then: Step) {
        let left: Vec<u64> =
            self.journal.step.iter().flat_map(|step| &step.left).copied().collect();
        let taken = left.into_iter().any(|block| self.take_back(at, block));
        if taken {
            self.again(at, then);
        } else {
            self.journal.lacks_room = true;
            self.again_when_woken(at, then);
        }
    }

    /// Commits the running transaction, unless a commit is under way or nothing wants one.
    pub(super) fn begin_commit(&mut self) {
        let journal = &mut self.journal;
        if journal.is_committing || (journal.running.is_empty() && journal.waiters.is_empty()) {
            return;
        }
        journal.is_committing = true;
        journal.committing = std::mem::take(&mut journal.running);
        // Data alone: its blocks are in place, a flush makes them stable.
        let steps: &[Step] = match journal.committing.is_empty() {
            true => &[Step::Flush, Step::Committed],
            false => &[Step::Log, Step::Flush, Step::Record, Step::Flush, Step::Committed],
        };
        self.begin_steps(self.committer(), steps);
    }

    fn committed(&mut self) {
        let journal = &mut self.journal;
        journal.commits += 1;
        journal.is_committing = false;
        let blocks = std::mem::take(&mut journal.committing);
        journal.newer.extend(blocks.iter().map(|block| (*block, journal.commits)));
        if let Some(step) = &mut journal.step {
            step.left.retain(|block| !blocks.contains(block));
        }
        let waiters = std::mem::take(&mut journal.waiters);
        journal.waiters = std::mem::take(&mut journal.waiters_next);
        let again = !journal.waiters.is_empty();
        self.drop_blocks(&blocks);
        self.end_checkpoint();
        if self.journal.log_used * 3 > self.log_blocks() {
            self.begin_checkpoint();
        }
        for waiter in waiters {
            self.woken(waiter);
        }
        if again {
            self.begin_commit();
        }
    }

    fn begin_checkpoint(&mut self) {
        let journal = &mut self.journal;
        if journal.step.is_some() {
            return;
        }
        let left: BTreeSet<u64> = journal.newer.keys().copied().collect();
        journal.step = Some(CheckpointStep {
            commit: journal.commits,
            log_used: journal.log_used,
            left: left.clone(),
            is_ending: false,
        });
        self.put_checkpoint(&left);
        self.end_checkpoint();
    }

    /// Ends the step if all its blocks are in place.
    pub(super) fn end_checkpoint(&mut self) {
        let Some(step) = &mut self.journal.step else { return };
        if step.left.is_empty() && !step.is_ending {
            step.is_ending = true;
            let steps = [Step::Flush, Step::Beginning, Step::Flush, Step::Checkpointed];
            self.begin_steps(self.checkpointer(), &steps);
        }
    }

    fn checkpointed(&mut self) {
        let journal = &mut self.journal;
        let step = journal.step.take().expect("a step ends");
        journal.log_used -= step.log_used;
        journal.newer.retain(|_, commit| *commit > step.commit);
        if std::mem::take(&mut journal.lacks_room) {
            self.woken(self.committer());
        }
    }
}
