//! Our tree, alone and behind one lock: one round of every operation on a fresh tree, timed.
//!
//! # Boundary
//! The work of a phase, and a check of its result; a tree with wrong answers is not measured.
//!
//! # Why
//! Processor time beside wall time separates work from waiting for the machine's other users. A
//! waiter here spins before it yields, so most of its waiting counts as work. Weakness: the tree's
//! memory comes from a pool that an earlier round has filled; only the first round touches it
//! first.

use std::num::NonZeroU64;
use std::time::Duration;
use uvfs_bench_workload::keys::{Keys, Pattern, share};
use uvfs_bench_workload::team::{self, Stint, team};
use uvfs_concurrent::epoch;
use uvfs_concurrent::lock::{LockClass, Mutex, MutexGuard};
use uvfs_containers::radix::{Tag, Tree};

static LOCK: LockClass = LockClass::new(1, "bench-serial", "changes of the measured tree");
static CLASS: LockClass = LockClass::new(2, "bench-radix", "nodes of the measured tree");

/// Those of this process, the paper's names for them: with one lock around each change, and with the tree's own locks.
pub(super) const NAMES: [&str; 2] = ["serial", "optimistic"];

/// The operation on every item, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Insert,
    Lookup,
    Tag,
    Gang,
    Untag,
    RangeTag,
    Remove,
}

impl Phase {
    pub(super) const ALL: [Phase; 7] = [
        Phase::Insert,
        Phase::Lookup,
        Phase::Tag,
        Phase::Gang,
        Phase::Untag,
        Phase::RangeTag,
        Phase::Remove,
    ];

    /// Word in cases and answers.
    pub(super) fn name(self) -> &'static str {
        match self {
            Phase::Insert => "insert",
            Phase::Lookup => "lookup",
            Phase::Tag => "tag",
            Phase::Gang => "gang",
            Phase::Untag => "untag",
            Phase::RangeTag => "range-tag",
            Phase::Remove => "remove",
        }
    }
}

/// How long a phase took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Span {
    /// On the clock, in seconds.
    pub(super) wall: f64,
    /// Time of all threads' processors, in seconds.
    pub(super) cpu: f64,
}

/// The figures of a round.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Round {
    /// The phases that the system has.
    pub(super) spans: Vec<(Phase, Span)>,
    /// Bytes of the full structure for each item, if it reports them.
    pub(super) bytes_per_item: Option<f64>,
}

/// One round of our tree `name`.
pub(super) fn round(
    name: &str,
    pattern: Pattern,
    threads: usize,
    items: u64,
) -> Result<Round, String> {
    match name {
        "serial" => round_of(Some(&Mutex::new(&LOCK, ())), pattern, threads, items),
        "optimistic" => round_of(None, pattern, threads, items),
        other => Err(format!("no tree {other}")),
    }
}

fn value(index: u64) -> NonZeroU64 {
    NonZeroU64::MIN.saturating_add(index)
}

/// One round; each change is made under `lock`, if there is one.
fn round_of(
    lock: Option<&Mutex<()>>,
    pattern: Pattern,
    threads: usize,
    items: u64,
) -> Result<Round, String> {
    let tree = Tree::new(&CLASS);
    let results: Vec<Done> = team(threads, |member| {
        let worker = Worker { tree: &tree, lock, pattern, number: member.number, threads, items };
        let (mut stints, mut bytes) = (Vec::new(), 0);
        for phase in Phase::ALL {
            // All threads do the same for each pattern.
            if phase == Phase::RangeTag && pattern != Pattern::Sequential {
                continue;
            }
            let (stint, wrong) = member.phase(|| worker.phase(phase));
            stints.push((phase, stint, wrong));
            if phase == Phase::Lookup && member.number == 0 {
                bytes = tree.bytes_racy(&epoch::pin());
            }
        }
        (stints, bytes)
    })?;
    let mut spans = Vec::new();
    for nth in 0..results.first().map_or(0, |result| result.0.len()) {
        let of_threads = || results.iter().map(|result| result.0[nth]);
        let phase = results[0].0[nth].0;
        let wrong: u64 = of_threads().map(|stint| stint.2).sum();
        if wrong > 0 {
            return Err(format!("{} went wrong for {wrong} of {items} items", phase.name()));
        }
        spans.push((phase, team::Span::of(of_threads().map(|stint| stint.1)).into()));
    }
    if !tree.is_empty() {
        return Err("items are there after they were removed".to_owned());
    }
    // So that no round pays for freeing objects that the one before retired.
    epoch::synchronize();
    epoch::collect();
    let bytes: usize = results.iter().map(|result| result.1).sum();
    let bytes_per_item = Some(bytes as f64 / items as f64);
    Ok(Round { spans, bytes_per_item })
}

/// The work of a thread: its phases, each with the number of wrong items, and the bytes of the full
/// tree if it read them.
type Done = (Vec<(Phase, Stint, u64)>, usize);

impl From<team::Span> for Span {
    fn from(span: team::Span) -> Self {
        // A phase too short for the clock took its smallest step.
        let seconds = |time: Duration| time.max(Duration::from_nanos(1)).as_secs_f64();
        Self { wall: seconds(span.wall), cpu: seconds(span.cpu) }
    }
}

struct Worker<'a> {
    tree: &'a Tree,
    lock: Option<&'a Mutex<()>>,
    pattern: Pattern,
    number: usize,
    threads: usize,
    items: u64,
}

impl Worker<'_> {
    /// Takes the lock of changes, if there is one.
    #[inline]
    fn held(&self) -> Option<MutexGuard<'_, ()>> {
        self.lock.map(Mutex::lock)
    }

    /// Runs a phase; returns the number of wrong items.
    fn phase(&self, phase: Phase) -> u64 {
        match phase {
            Phase::Insert => self.each(|at| {
                let _held = self.held();
                self.tree.insert(at, value(at), &epoch::pin()).is_err()
            }),
            Phase::Lookup => self.each(|at| self.tree.get(at, &epoch::pin()) != Some(value(at))),
            Phase::Tag => self.each(|at| {
                let _held = self.held();
                !self.tree.set_tag(at, Tag::Dirty, &epoch::pin())
            }),
            Phase::Gang => self.gang(),
            Phase::Untag => self.each(|at| {
                let _held = self.held();
                !self.tree.clear_tag(at, Tag::Dirty, &epoch::pin())
            }),
            Phase::RangeTag => {
                let (first, end) = share(self.number, self.threads, self.items);
                let _held = self.held();
                let tagged = self.tree.set_tags(first..end, Tag::Dirty, &epoch::pin());
                (end - first).abs_diff(tagged as u64)
            }
            Phase::Remove => self.each(|at| {
                let _held = self.held();
                self.tree.remove(at, &epoch::pin()).is_none()
            }),
        }
    }

    /// Does `wrong` to each of this thread's items, a pin for each; how often it was.
    #[inline]
    fn each(&self, wrong: impl Fn(u64) -> bool) -> u64 {
        let keys = Keys::new(self.pattern, self.number, self.threads, self.items);
        keys.fold(0, |sum, at| sum + u64::from(wrong(at)))
    }

    /// Looks for tagged items in this thread's contiguous share, 64 at a time.
    fn gang(&self) -> u64 {
        let (first, end) = share(self.number, self.threads, self.items);
        let (mut found, mut at) = ([(0, NonZeroU64::MIN); 64], first);
        let mut sum = 0;
        loop {
            let count = self.tree.gang_tagged(at..end, Tag::Dirty, &mut found, &epoch::pin());
            sum += count as u64;
            match found[..count].last() {
                Some(last) => at = last.0 + 1,
                None => return (end - first).abs_diff(sum),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tree_does_every_phase_and_is_empty_again() {
        for name in NAMES {
            for (pattern, phases) in
                [(Pattern::Sequential, 7), (Pattern::Interleaved, 6), (Pattern::Random, 6)]
            {
                for threads in [1, 2, 3] {
                    let round = round(name, pattern, threads, 3000).unwrap();
                    assert_eq!(round.spans.len(), phases);
                    assert!(round.spans.iter().all(|(_, span)| span.wall > 0.0 && span.cpu > 0.0));
                    assert!(round.bytes_per_item.is_some_and(|bytes| (9.0..12.0).contains(&bytes)));
                }
            }
        }
        assert!(round("nonsense", Pattern::Random, 1, 10).is_err());
    }
}
