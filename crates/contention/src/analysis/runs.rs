//! The cost of the runs altogether, their machine, and figures of each thread.
//!
//! # Boundary
//! Sums that the profile already has, as means over the seeds.
//!
//! # Why
//! A figure of a model is as good as its parameters: the machine's hash and the list of assumed numbers
//! stand beside the figures. Weakness: the hash says that two machines are equal, not how they
//! differ.

use super::Estimate;
use crate::ledger::{Basis, Ledger, Sum, share_of, structure_of};
use serde::Serialize;
use std::collections::BTreeMap;
use uvfs_coherence::machine::Machine;
use uvfs_coherence::profile::{Mode, Object, Run, Thread};

/// The program, the machine, and the cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunsSummary {
    /// `uvfs` and its version.
    pub tool: String,
    /// Where the figures are from.
    pub mode: Mode,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Layout changes that were tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub what_if: Vec<String>,
    /// Seeds of the runs, in the order of the runs.
    pub seeds: Vec<u64>,
    /// The machine's name.
    pub machine: String,
    /// [`machine_hash`].
    pub machine_hash: String,
    /// Whether computing between accesses was charged.
    pub computing: bool,
    /// Cores of the machine.
    pub cores: usize,
    /// Memory nodes of the machine.
    pub nodes: usize,
    /// Cycles a microsecond.
    pub megahertz: f64,
    /// Parameters of the machine that were not measured: `latency.local_transfer`.
    pub assumed: Vec<String>,
    /// Whether shares are of latency, or of numbers of misses.
    pub basis: Basis,
    /// Cycles from the first to the last instruction.
    pub cycles: Estimate,
    /// Cycles while there were threads.
    pub parallel_cycles: Estimate,
    /// Memory accesses.
    pub accesses: Estimate,
    /// Those that left the core's own cache.
    pub misses: Estimate,
    /// Misses that another core's cache answered.
    pub transfers: Estimate,
    /// Part of them from another node.
    pub remote_share: Estimate,
    /// The program's own count of work.
    pub work: Estimate,
    /// Work by second of virtual time in which threads ran.
    pub work_per_second: Estimate,
    /// Threads.
    pub threads: Estimate,
    /// Part of all threads' time that they stood still for misses.
    pub stalled_share: Estimate,
    /// Part of all threads' time that they slept.
    pub blocked_share: Estimate,
    /// Part of the latency of all misses that transfers have.
    pub transfer_share: Estimate,
    /// Part of the latency of all misses in objects without a type, and how many names these have.
    pub untyped_share: Estimate,
    /// The names, the dearest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub untyped: Vec<String>,
    /// Runs that did not end with status 0: seed and status.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<(u64, Option<i32>)>,
}

/// One thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadRow {
    /// In order of creation; zero is the first.
    pub id: u32,
    /// Virtual core it began on, in the first run that has it.
    pub core: u32,
    /// Memory accesses.
    pub accesses: Estimate,
    /// Misses.
    pub misses: Estimate,
    /// Part of its time that it stood still for misses.
    pub stalled_share: Estimate,
    /// Part of its time that it slept.
    pub blocked_share: Estimate,
    /// The thread's clock at its end.
    pub cycles: Estimate,
}

/// The cost of the runs altogether.
pub fn runs(ledger: &Ledger<'_>) -> RunsSummary {
    let profile = ledger.profile;
    let machine = &profile.meta.machine;
    let mean = |value: &dyn Fn(&Run) -> u64| Estimate::of_counts(profile.runs.iter().map(value));
    let ratio = |part: &dyn Fn(&Run) -> f64, whole: &dyn Fn(&Run) -> f64| {
        Estimate::ratio(&profile.runs.iter().map(|run| (part(run), whole(run))).collect::<Vec<_>>())
    };
    let of_threads = |part: &dyn Fn(&Thread) -> u64| {
        let mut pairs = vec![(0.0, 0.0); ledger.seeds.len()];
        for thread in &profile.threads {
            if let Some(seed) = ledger.seed(thread.seed) {
                pairs[seed].0 += part(thread) as f64;
                pairs[seed].1 += thread.cycles as f64;
            }
        }
        Estimate::ratio(&pairs)
    };
    let megahertz = machine.megahertz.value;
    let seconds = |run: &Run| run.parallel_cycles as f64 / (megahertz * 1e6);
    let (untyped_share, untyped) = untyped(ledger);
    let failed = profile.runs.iter().filter(|run| run.status != Some(0));
    RunsSummary {
        tool: profile.meta.tool.clone(),
        mode: profile.meta.mode,
        command: profile.meta.command.clone(),
        what_if: profile.meta.what_if.clone(),
        seeds: ledger.seeds.clone(),
        machine: machine.name.clone(),
        computing: ledger.profile.meta.computing,
        machine_hash: machine_hash(machine),
        cores: machine.cores,
        nodes: machine.nodes,
        megahertz,
        assumed: machine.assumed(),
        basis: ledger.basis,
        cycles: mean(&|run| run.cycles),
        parallel_cycles: mean(&|run| run.parallel_cycles),
        accesses: mean(&|run| run.accesses),
        misses: mean(&|run| run.misses),
        transfers: mean(&|run| run.transfers),
        remote_share: ratio(&|run| run.remote_transfers as f64, &|run| run.transfers as f64),
        work: mean(&|run| run.work),
        work_per_second: ratio(&|run| run.work as f64, &seconds),
        threads: mean(&|run| run.threads),
        stalled_share: of_threads(&|thread| thread.stalled),
        blocked_share: of_threads(&|thread| thread.blocked),
        transfer_share: super::histogram(ledger).transfer_latency,
        untyped_share,
        untyped,
        failed: failed.map(|run| (run.seed, run.status)).collect(),
    }
}

/// The part of the latency in objects without a type, and their names.
fn untyped(ledger: &Ledger<'_>) -> (Estimate, Vec<String>) {
    let mut tallies = ledger.none();
    let mut names: BTreeMap<String, u64> = BTreeMap::new();
    let has_no_type = |object: &&Object| ledger.type_of(object).is_none();
    for sample in &ledger.profile.samples {
        let Some(seed) = ledger.seed(sample.seed) else { continue };
        if let Some(object) = ledger.object(sample.seed, sample.object).filter(has_no_type) {
            let mut tally = Sum::default();
            tally.add(sample);
            tallies[seed].merge(&tally);
            let all = names.entry(structure_of(object)).or_default();
            *all = all.saturating_add(tally.weight(ledger.basis));
        }
    }
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    let share = share_of(&tallies, &ledger.totals, ledger.basis);
    (share, names.into_iter().map(|(name, _)| name).collect())
}

/// Threads by number.
pub fn threads(ledger: &Ledger<'_>) -> Vec<ThreadRow> {
    let mut by_id: BTreeMap<u32, Vec<&Thread>> = BTreeMap::new();
    for thread in &ledger.profile.threads {
        by_id.entry(thread.id).or_default().push(thread);
    }
    let rows = by_id.into_iter().map(|(id, threads)| {
        // A thread that a run does not have did nothing in it.
        let by_seed = |value: &dyn Fn(&Thread) -> u64| -> Vec<f64> {
            let of = |seed: &u64| {
                let own = threads.iter().filter(|thread| thread.seed == *seed);
                own.map(|thread| value(thread) as f64).sum()
            };
            ledger.seeds.iter().map(of).collect()
        };
        let cycles = by_seed(&|thread| thread.cycles);
        let share = |part: &dyn Fn(&Thread) -> u64| {
            Estimate::ratio(&by_seed(part).into_iter().zip(cycles.clone()).collect::<Vec<_>>())
        };
        ThreadRow {
            id,
            core: threads.first().map_or(0, |thread| thread.core),
            accesses: Estimate::of(&by_seed(&|thread| thread.accesses)),
            misses: Estimate::of(&by_seed(&|thread| thread.misses)),
            stalled_share: share(&|thread| thread.stalled),
            blocked_share: share(&|thread| thread.blocked),
            cycles: Estimate::of(&cycles),
        }
    });
    rows.collect()
}

/// Sixteen hexadecimal digits that are the same for the same machine.
pub fn machine_hash(machine: &Machine) -> String {
    format!("{:016x}", machine.hash())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::fixture::{anonymous, empty, profile};
    use uvfs_coherence::machine::Parameter;

    #[test]
    fn a_run_is_summed_over_its_seeds() {
        let summary = runs(&Ledger::new(&profile()));
        assert_eq!((summary.seeds.as_slice(), summary.cores, summary.nodes), (&[1, 2][..], 4, 2));
        assert_eq!(summary.cycles.mean, 286_000.0);
        assert!(summary.cycles.plus_minus.is_some());
        assert_eq!((summary.transfers.mean, summary.remote_share.mean), (190.0, 90.0 / 190.0));
        // 1,000 in 100 microseconds.
        assert!((summary.work_per_second.mean - 1e7).abs() < 1.0);
        assert_eq!((summary.stalled_share.mean, summary.blocked_share.mean), (0.2, 0.1));
        assert_eq!((summary.transfer_share.mean, summary.untyped_share.mean), (0.9, 0.0));
        assert!(summary.failed.is_empty() && summary.untyped.is_empty());
    }

    #[test]
    fn assumed_parameters_are_listed() {
        let assumed = runs(&Ledger::new(&profile())).assumed;
        assert!(assumed.iter().any(|one| one == "latency.local_transfer"), "{assumed:?}");
        assert!(!assumed.iter().any(|one| one == "megahertz"), "it was measured");
    }

    #[test]
    fn the_hash_changes_with_any_parameter() {
        let machine = Machine::default();
        let mut other = machine.clone();
        other.cost.pause = Parameter::assumed(41.0);
        assert_eq!(machine_hash(&machine), machine_hash(&machine.clone()));
        assert_ne!(machine_hash(&machine), machine_hash(&other));
        assert_eq!(machine_hash(&machine).len(), 16);
    }

    #[test]
    fn threads_have_their_parts() {
        let rows = threads(&Ledger::new(&profile()));
        assert_eq!(rows.len(), 4);
        assert_eq!((rows[3].id, rows[3].core, rows[3].cycles.mean), (3, 3, 50_000.0));
        assert_eq!((rows[0].stalled_share.mean, rows[0].misses.mean), (0.2, 50.0));
        let mut fewer = profile();
        fewer.threads.retain(|thread| thread.seed == 1 || thread.id < 3);
        assert_eq!(threads(&Ledger::new(&fewer))[3].cycles.mean, 25_000.0);
    }

    #[test]
    fn untyped_objects_and_failures_are_said() {
        let summary = runs(&Ledger::new(&anonymous()));
        assert_eq!((summary.untyped_share.mean, summary.untyped), (1.0, vec!["heap(48)".into()]));
        let mut failed = profile();
        failed.runs[1].status = Some(3);
        assert_eq!(runs(&Ledger::new(&failed)).failed, [(2, Some(3))]);
        assert!(
            runs(&Ledger::new(&empty())).seeds.is_empty()
                && threads(&Ledger::new(&empty())).is_empty()
        );
    }
}
