//! The results of a profile: per cache line, per structure, per lock, per path.
//!
//! # Boundary
//! Pure: a [`Ledger`] in, structures out that serialise as they are; the JSON report is these. Words and
//! pictures are [`crate::report`]'s.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Every figure is an [`Estimate`]: a mean over the seeds with its 95 % interval, because one run of a
//! contended program proves nothing. The ledger alone decides which lines of two runs are
//! the same. Weakness: everything is recomputed from the samples each time; a profile of a hundred
//! thousand samples takes a noticeable part of a second.

pub mod estimate;
pub mod fields;
pub mod flow;
pub mod histogram;
pub mod layout;
pub mod lines;
pub mod locks;
pub mod notation;
pub mod runs;
pub mod structures;

#[cfg(test)]
pub(crate) mod fixture;

pub use estimate::Estimate;
pub use flow::{Flow, flow};
pub use histogram::{Histogram, histogram};
pub use layout::{LayoutHeat, layout_heat, layouts};
pub use lines::{LineTable, Row, Verdict, groups, lines};
pub use locks::{LockRow, lock_groups, locks};
pub use runs::{RunsSummary, ThreadRow, runs, threads};
pub use structures::{Grouping, Structures, structures, structures_by};

use crate::ledger::Ledger;
use serde::Serialize;

/// All analyses of one profile, as the JSON report has them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Analyses {
    /// The program, the machine, and the cost altogether.
    pub runs: RunsSummary,
    /// Cache lines, the dearest first.
    pub lines: Vec<LineTable>,
    /// Cache lines with the objects of one type put together.
    pub groups: Vec<LineTable>,
    /// Latencies by class.
    pub histogram: Histogram,
    /// The structures behind the dearest lines.
    pub structures: Structures,
    /// Types with the heat of their fields, the dearest first.
    pub layouts: Vec<LayoutHeat>,
    /// Locks, those that were waited for longest first.
    pub locks: Vec<LockRow>,
    /// Locks with those of one type put together.
    pub lock_groups: Vec<LockRow>,
    /// Threads, by number.
    pub threads: Vec<ThreadRow>,
    /// The functions that hand lines to each other, for the dearest structures.
    pub flows: Vec<Flow>,
}

impl Analyses {
    /// Types and flows that are worked out; the others are complete.
    const STRUCTURES: usize = 16;

    /// Everything, at most `top` lines and groups.
    pub fn new(ledger: &Ledger<'_>, grouping: &Grouping, top: usize) -> Self {
        let (mut lines, mut groups) = (lines(ledger), groups(ledger));
        lines.truncate(top);
        groups.truncate(top);
        let structures = structures_by(ledger, grouping);
        let flows = structures.by_weight().into_iter().take(Self::STRUCTURES);
        let flows = flows.filter_map(|one| flow(ledger, &one.name)).collect();
        Self {
            runs: runs(ledger),
            lines,
            groups,
            histogram: histogram(ledger),
            layouts: layouts(ledger, Self::STRUCTURES),
            locks: locks(ledger),
            lock_groups: lock_groups(ledger),
            threads: threads(ledger),
            flows,
            structures,
        }
    }
}
