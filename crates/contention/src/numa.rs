//! One program on one memory node and on several, with the same cores: which paths and structures pay.
//!
//! # Boundary
//! Takes two profiles, runs nothing.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Gough, Siddha and Chen (2007, section 3) ran one load on one node and on two with the same processors,
//! and ranked the increases; the same cores and seeds here leave distance as the only difference.
//! Weakness: the model scales latencies with distance and nothing else; memory bandwidth is not in it.

use crate::analysis::Estimate;
use crate::compare::{self, Change};
use crate::error::Error;
use crate::ledger::{Ledger, Sum, Sums, values};
use crate::statistics::Difference;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A path or structure on one of the two machines.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Side {
    /// Misses that another core's cache answered.
    pub transfers: Estimate,
    /// Misses that another node answered, of all its misses.
    pub remote_share: Estimate,
    /// Cycles of all its misses, waits included.
    pub latency: Estimate,
    /// The part of the latency spent on transfers; the rest is memory.
    pub transfer_share: Estimate,
    /// Cycles of one miss.
    pub cost_per_miss: Estimate,
    /// Cycles of one access, hits included; known for structures in contended lines.
    pub cost_per_access: Option<Estimate>,
}

/// A path or structure on both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The function, or the structure.
    pub name: String,
    /// On one node.
    pub one: Side,
    /// On several.
    pub several: Side,
    /// Latency on several minus on one.
    pub increase: Difference,
    /// This row's part of the whole increase.
    pub share_of_increase: f64,
}

/// The whole comparison; rows by increase, the greatest first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Numa {
    /// Cores of both.
    pub cores: usize,
    /// Nodes of the second.
    pub nodes: usize,
    /// Cycles of the part with threads.
    pub cycles: Change,
    /// Cycles of all misses.
    pub latency: Change,
    /// Cycles of one miss.
    pub cost_per_miss: Change,
    /// Cycles of a core for each access, as the paper has cycles an instruction.
    pub cycles_per_access: Change,
    /// Which paths pay.
    pub functions: Vec<Row>,
    /// Which structures pay.
    pub structures: Vec<Row>,
}

/// Compares one node with several.
///
/// # Errors
/// Profiles that differ in more than their nodes and distances, or have them the wrong way round.
pub fn numa(near: &Ledger<'_>, far: &Ledger<'_>) -> Result<Numa, Error> {
    let (one, several) = (near.profile, far.profile);
    for profile in [one, several] {
        if profile.runs.is_empty() {
            return Err(Error::new("one of the two profiles has no runs: run it again"));
        }
    }
    let nodes = (one.meta.machine.nodes, several.meta.machine.nodes);
    if nodes.0 != 1 || nodes.1 < 2 {
        return Err(Error::new(format!(
            "the first profile has {} node{} and the second {}: make one with --nodes 1 and one with \
             --nodes 2",
            nodes.0,
            if nodes.0 == 1 { "" } else { "s" },
            nodes.1
        )));
    }
    let differing: Vec<String> = compare::differences(one, several)
        .into_iter()
        .filter(|line| !line.starts_with("nodes:") && !line.starts_with("distances:"))
        .collect();
    if !differing.is_empty() {
        return Err(Error::new(format!(
            "the two profiles differ in more than their nodes: {}; give both the same --cores and --machine",
            differing.join(", ")
        )));
    }
    if one.meta.command != several.meta.command {
        return Err(Error::new(format!(
            "the two profiles are of different commands, `{}` and `{}`",
            one.meta.command.join(" "),
            several.meta.command.join(" ")
        )));
    }
    let metric = |name: &str| -> Result<Change, Error> {
        let value = |ledger| {
            compare::metric(ledger, name).ok_or_else(|| Error::new(format!("no metric `{name}`")))
        };
        Ok(Change::between(&value(near)?, &value(far)?))
    };
    let per_miss = |ledger: &Ledger<'_>| -> Vec<f64> {
        ledger.totals.iter().map(|cost| per(cost.latency() as f64, cost.count as f64)).collect()
    };
    let per_access = |ledger: &Ledger<'_>| -> Vec<f64> {
        let times = ledger.time();
        let runs = ledger.profile.runs.iter();
        runs.zip(times).map(|(run, time)| per(time, run.accesses as f64)).collect()
    };
    let function = |ledger: &Ledger<'_>, sample: &uvfs_coherence::profile::Sample| {
        ledger.function_of(sample.seed, sample.site)
    };
    let structure = |ledger: &Ledger<'_>, sample: &uvfs_coherence::profile::Sample| {
        Some(ledger.sampled(sample)?.structure)
    };
    let nothing = BTreeMap::new();
    Ok(Numa {
        cores: one.meta.machine.cores,
        nodes: nodes.1,
        cycles: metric("parallel_cycles")?,
        latency: metric("latency")?,
        cost_per_miss: Change::between(&per_miss(near), &per_miss(far)),
        cycles_per_access: Change::between(&per_access(near), &per_access(far)),
        functions: rows(
            (&near.sums(function), &nothing),
            (&far.sums(function), &nothing),
            near,
            far,
        ),
        structures: rows(
            (&near.sums(structure), &accesses(near)),
            (&far.sums(structure), &accesses(far)),
            near,
            far,
        ),
    })
}

fn per(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Accesses to the contended lines of each structure, seed by seed.
fn accesses(ledger: &Ledger<'_>) -> BTreeMap<String, Vec<f64>> {
    let mut accesses: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for heat in &ledger.profile.heat {
        let object = ledger.object(heat.seed, heat.object);
        let (Some(seed), Some(object)) = (ledger.seed(heat.seed), object) else { continue };
        let name = ledger.spot(object, heat.offset).structure;
        let values = accesses.entry(name).or_insert_with(|| vec![0.0; ledger.seeds.len()]);
        values[seed] += heat.reads as f64 + heat.writes as f64 + heat.updates as f64;
    }
    accesses
}

type Column<'c> = (&'c BTreeMap<String, Sums>, &'c BTreeMap<String, Vec<f64>>);

fn rows(one: Column<'_>, several: Column<'_>, near: &Ledger<'_>, far: &Ledger<'_>) -> Vec<Row> {
    let names: BTreeSet<&String> = one.0.keys().chain(several.0.keys()).collect();
    let (no_one, no_several) = (near.none(), far.none());
    let latency = |costs: &Sums| values(costs, |cost| cost.latency() as f64);
    let mut rows: Vec<Row> = names
        .into_iter()
        .map(|name| {
            let (a, b) =
                (one.0.get(name).unwrap_or(&no_one), several.0.get(name).unwrap_or(&no_several));
            Row {
                name: name.clone(),
                one: side(a, one.1.get(name)),
                several: side(b, several.1.get(name)),
                increase: Difference::between(&latency(a), &latency(b)),
                share_of_increase: 0.0,
            }
        })
        .collect();
    let all: f64 = rows.iter().map(|row| row.increase.mean).sum();
    for row in &mut rows {
        row.share_of_increase = if all > 0.0 { row.increase.mean / all } else { 0.0 };
    }
    rows.sort_by(|a, b| b.increase.mean.total_cmp(&a.increase.mean));
    rows
}

fn side(costs: &Sums, accesses: Option<&Vec<f64>>) -> Side {
    let ratio = |part: fn(&Sum) -> u64, whole: fn(&Sum) -> u64| {
        let pairs: Vec<_> =
            costs.iter().map(|cost| (part(cost) as f64, whole(cost) as f64)).collect();
        Estimate::ratio(&pairs)
    };
    let latency = values(costs, |cost| cost.latency() as f64);
    Side {
        transfers: Estimate::of(&values(costs, |cost| cost.transfers as f64)),
        remote_share: ratio(|cost| cost.remote, |cost| cost.count),
        latency: Estimate::of(&latency),
        transfer_share: ratio(|cost| cost.transfer_latency, |cost| cost.latency()),
        cost_per_miss: ratio(|cost| cost.latency(), |cost| cost.count),
        cost_per_access: accesses.map(|accesses| Estimate::share(&latency, accesses)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Status;
    use crate::fixture::Builder;
    use uvfs_coherence::Profile;
    use uvfs_coherence::profile::{Class, Operation};

    fn profile(nodes: usize) -> Builder {
        let mut builder = Builder::new(8, nodes, 2);
        let far = nodes > 1;
        let kind = builder.kind("Queue", 64, &[("lock", 0, 4), ("head", 8, 8)]);
        let queue = builder.object("Queue", 0x1000, 64, Some(kind), false);
        let table = builder.object("Table", 0x2000, 64, None, false);
        let push = builder.site("push", Operation::CompareExchange, 4);
        let find = builder.site("find", Operation::Load, 8);
        let class = if far { Class::RemoteTransfer } else { Class::LocalTransfer };
        builder
            .miss(queue, 0, push)
            .counts(&[1000])
            .costs(if far { 500 } else { 100 })
            .class(class);
        builder.miss(table, 0, find).counts(&[1000]).costs(200).class(Class::LocalMemory);
        builder.heat(queue, 0, (1000, 0, 1000), 0xff);
        builder.runs(|run| run.parallel_cycles = if far { 2_000_000 } else { 1_000_000 });
        builder
    }

    #[test]
    fn the_path_and_the_structure_that_pay_come_first() {
        let numa =
            numa(&Ledger::new(&profile(1).done()), &Ledger::new(&profile(2).done())).unwrap();
        assert_eq!((numa.cores, numa.nodes), (8, 2));
        assert_eq!(numa.cycles.ratio.unwrap().mean, 2.0);
        assert_eq!(numa.cycles.status, Status::More);
        assert_eq!(numa.cost_per_miss.old.mean, 150.0);
        assert_eq!(numa.cycles_per_access.new.mean, 16.0);
        let names = |rows: &[Row]| rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&numa.functions), ["push", "find"]);
        assert_eq!(names(&numa.structures), ["Queue", "Table"]);
        let queue = &numa.structures[0];
        assert_eq!((queue.one.remote_share.mean, queue.several.remote_share.mean), (0.0, 1.0));
        assert_eq!(queue.increase.mean, 400_000.0);
        assert_eq!(queue.share_of_increase, 1.0);
        assert_eq!(queue.several.cost_per_access.unwrap().mean, 250.0);
        assert_eq!(queue.several.cost_per_miss.mean, 500.0);
        let table = &numa.structures[1];
        assert_eq!((table.increase.mean, table.one.transfer_share.mean), (0.0, 0.0));
        assert_eq!(table.one.cost_per_access, None);
    }

    #[test]
    fn only_the_nodes_may_differ() {
        let refused = |one: Profile, several: Profile, part: &str| {
            let line = numa(&Ledger::new(&one), &Ledger::new(&several)).unwrap_err().to_string();
            assert!(line.contains(part), "{line}");
        };
        refused(profile(2).done(), profile(1).done(), "--nodes 1 and one with");
        refused(profile(1).done(), profile(1).done(), "--nodes 2");
        let mut cores = profile(2);
        cores.meta(|meta| meta.machine.cores = 16);
        refused(profile(1).done(), cores.done(), "cores: 8 against 16");
        let mut command = profile(2);
        command.meta(|meta| meta.command = vec!["other".to_owned()]);
        refused(profile(1).done(), command.done(), "different commands");
        refused(profile(1).done(), Builder::new(8, 2, 0).done(), "no runs");
    }
}
