//! Our three trees: one round of every operation on a fresh tree, timed.
//!
//! # Boundary
//! What a phase does, and that it did it; nothing is measured of a tree that answers wrongly.
//!
//! # Concurrency
//! Each thread is pinned to a core of its own, as far as there are enough, and meets the others at a
//! barrier before each phase. A phase's wall time is from the first begin to the last end.
//!
//! # Why
//! Processor time beside wall time tells work from waiting for the machine's other users. A
//! waiter here spins before it yields, so most of its waiting counts as work. Weakness: the tree's
//! memory comes from a pool that an earlier round has filled; only the first round touches it fresh.

use super::keys::{Keys, Pattern, share};
use std::num::NonZeroU64;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use uvfs_bench_kit::cpu;
use uvfs_concurrent::epoch;
use uvfs_concurrent::lock::LockClass;
use uvfs_concurrent::radix::{LadderPath, Locking, Optimistic, Serial, Tag, Tree};

static CLASS: LockClass = LockClass::new(1, "bench-radix", "nodes of the measured tree");

/// Those of this process, the paper's names for them.
pub(super) const NAMES: [&str; 3] = ["serial", "ladder-path", "optimistic"];

/// What is done to every item, in this order.
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

    /// As in cases and answers.
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
    /// Of all threads' processors, in seconds.
    pub(super) cpu: f64,
}

/// What a round measured.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Round {
    /// The phases that the system has.
    pub(super) spans: Vec<(Phase, Span)>,
    /// Bytes of the full structure for each item, if it says so.
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
        "serial" => round_of::<Serial>(pattern, threads, items),
        "ladder-path" => round_of::<LadderPath>(pattern, threads, items),
        "optimistic" => round_of::<Optimistic>(pattern, threads, items),
        other => Err(format!("no tree {other}")),
    }
}

fn value(index: u64) -> NonZeroU64 {
    NonZeroU64::MIN.saturating_add(index)
}

fn round_of<L: Locking>(pattern: Pattern, threads: usize, items: u64) -> Result<Round, String> {
    let tree = Tree::<L>::new(&CLASS);
    let (tree, barrier) = (&tree, &Barrier::new(threads));
    let results: Vec<Done> = std::thread::scope(|scope| {
        let one = |number| {
            scope.spawn(move || {
                pin_to_core(number);
                let worker = Worker { tree, pattern, number, threads, items, barrier };
                let (mut stints, mut bytes) = (Vec::new(), 0);
                for phase in Phase::ALL {
                    // All threads do the same, whatever the pattern.
                    if phase == Phase::RangeTag && pattern != Pattern::Sequential {
                        continue;
                    }
                    stints.push(worker.phase(phase));
                    if phase == Phase::Lookup && number == 0 {
                        bytes = tree.bytes_racy(&epoch::pin());
                    }
                }
                (stints, bytes)
            })
        };
        let workers: Vec<_> = (0..threads).map(one).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_default()).collect()
    });
    let mut spans = Vec::new();
    for nth in 0..results.iter().map(|result| result.0.len()).max().unwrap_or(0) {
        let of_threads: Option<Vec<_>> = results.iter().map(|result| result.0.get(nth)).collect();
        let of_threads = of_threads.ok_or("a thread panicked")?;
        let phase = of_threads[0].0;
        let wrong: u64 = of_threads.iter().map(|stint| stint.2).sum();
        if wrong > 0 {
            return Err(format!("{} went wrong for {wrong} of {items} items", phase.name()));
        }
        spans.push((phase, span(of_threads.iter().map(|stint| stint.1))));
    }
    if !tree.is_empty() {
        return Err("items are there after they were removed".to_owned());
    }
    // So that no round pays for freeing what the one before retired.
    epoch::synchronize();
    epoch::collect();
    let bytes: usize = results.iter().map(|result| result.1).sum();
    let bytes_per_item = Some(bytes as f64 / items as f64);
    Ok(Round { spans, bytes_per_item })
}

/// What a thread did: its phases, each with how many items went wrong, and the bytes of the full
/// tree if it looked.
type Done = (Vec<(Phase, Stint, u64)>, usize);

/// A phase of one thread.
#[derive(Debug, Clone, Copy)]
struct Stint {
    begin: Instant,
    end: Instant,
    cpu: Duration,
}

fn span(stints: impl Iterator<Item = Stint> + Clone) -> Span {
    let begin = stints.clone().map(|stint| stint.begin).min();
    let end = stints.clone().map(|stint| stint.end).max();
    let wall = begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end - begin);
    let cpu: Duration = stints.map(|stint| stint.cpu).sum();
    // A phase too short for the clock took its smallest step.
    let seconds = |time: Duration| time.max(Duration::from_nanos(1)).as_secs_f64();
    Span { wall: seconds(wall), cpu: seconds(cpu) }
}

/// Keeps the calling thread on the core of its number, as far as there are enough. Unpinned threads
/// make noisier figures, not wrong ones.
fn pin_to_core(number: usize) {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let _ = cpu::confine_this_thread(number % cores);
}

struct Worker<'a, L: Locking> {
    tree: &'a Tree<L>,
    pattern: Pattern,
    number: usize,
    threads: usize,
    items: u64,
    barrier: &'a Barrier,
}

impl<L: Locking> Worker<'_, L> {
    /// Waits for the others, then does a phase against the clock; how many items went wrong.
    fn phase(&self, phase: Phase) -> (Phase, Stint, u64) {
        self.barrier.wait();
        let (begin, before) = (Instant::now(), cpu::of_this_thread());
        let wrong = match phase {
            Phase::Insert => {
                self.each(|at| self.tree.insert(at, value(at), &epoch::pin()).is_err())
            }
            Phase::Lookup => self.each(|at| self.tree.get(at, &epoch::pin()) != Some(value(at))),
            Phase::Tag => self.each(|at| !self.tree.set_tag(at, Tag::Dirty, &epoch::pin())),
            Phase::Gang => self.gang(),
            Phase::Untag => self.each(|at| !self.tree.clear_tag(at, Tag::Dirty, &epoch::pin())),
            Phase::RangeTag => {
                let (first, end) = share(self.number, self.threads, self.items);
                let tagged = self.tree.set_tags(first..end, Tag::Dirty, &epoch::pin());
                (end - first).abs_diff(tagged as u64)
            }
            Phase::Remove => self.each(|at| self.tree.remove(at, &epoch::pin()).is_none()),
        };
        let (after, end) = (cpu::of_this_thread(), Instant::now());
        (phase, Stint { begin, end, cpu: after.saturating_sub(before) }, wrong)
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

    #[test]
    fn a_span_reaches_from_the_first_begin_to_the_last_end() {
        let origin = Instant::now();
        let at = |ms| origin + Duration::from_millis(ms);
        let stint = |begin, end, ms| Stint {
            begin: at(begin),
            end: at(end),
            cpu: Duration::from_millis(ms),
        };
        let span = span([stint(5, 9, 2), stint(3, 7, 4)].into_iter());
        assert_eq!(span, Span { wall: 0.006, cpu: 0.006 });
    }
}
