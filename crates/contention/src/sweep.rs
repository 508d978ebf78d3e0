//! One program on more and more cores: throughput, the shape of its curve, and the lines and locks that bend it.
//!
//! # Boundary
//! Takes the profile of every core count, runs nothing. Text and pictures are [`crate::report`]'s.
//!
//! # The shape
//! With the throughput `X(n)`, `b` the core count of the highest mean, `m` the most cores:
//! * **collapse**: `X(m) < X(b) / 2`: more cores halve what fewer reached;
//! * **dip**: not that, and between them some `X(k) < X(j) / 2` with `j < k < m`, while `X(m) > 0.9 X(j)`: the curve recovers;
//! * **linear**: neither, and `X(m) / m >= X(first) / first / 2`: a core is still worth half of the first;
//! * **plateau**: none of these;
//! * **unclear**: fewer than three core counts, or `m` below four times the first, or a single seed, or
//!   the 95 % interval of a quotient that decides holds one half.
//!
//! A sweep has no class, and no law, where its curve says nothing of the program: computing was charged a flat
//! cost ([`uvfs_coherence::profile::Meta::computing`]), or the program makes fewer threads than there are cores.
//!
//! [`Sweep::by_seed`] has the shape of each seed alone: it shows a program that falls into one of two states.
//!
//! # Why
//! Curves of locks differ by orders of magnitude at high core counts, so one half is far from all of the
//! textbook's: a ticket lock keeps a twentieth of its peak, a queueing lock three quarters. The universal
//! scalability law (Gunther 2007) is fitted because its three numbers compare programs; its published
//! form `N / X` is linear in them, so the exact solution is among eight small systems. Weakness: the law
//! says nothing beyond the greatest core count that ran, and no curve with two bends fits it.

mod law;

pub use law::{Law, fit};

use crate::analysis::Estimate;
use crate::error::Error;
use crate::ledger::{Ledger, parallel};
use crate::statistics::{is_above, ratio};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use uvfs_coherence::Profile;
use uvfs_coherence::profile::Run;

/// How the work of a run is counted.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// Fixed or per core, whichever the two least core counts are nearer to: by the time that their threads
    /// compute, or by their accesses where computing is not charged.
    Auto,
    /// The program does the same on any number of cores: throughput is runs a second.
    Fixed,
    /// Every core does the same: throughput is cores a second of a run.
    PerCore,
    /// The program counts with `uvfs_contention_work`: throughput is that a second.
    Counted,
    /// The program prints its throughput; one value a run.
    Metric(Vec<f64>),
}

impl Work {
    /// The unit of throughput.
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Auto => "as found",
            Self::Fixed => "runs/s",
            Self::PerCore => "shares/s",
            Self::Counted => "work/s",
            Self::Metric(_) => "as printed",
        }
    }

    /// The word for this way of counting, as `--work` takes it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Fixed => "fixed",
            Self::PerCore => "per-core",
            Self::Counted => "counted",
            Self::Metric(_) => "stdout",
        }
    }

    /// Throughput of each run.
    fn throughput(&self, profile: &Profile) -> Result<Vec<f64>, Error> {
        let machine = &profile.meta.machine;
        let cores = machine.cores;
        let seconds = |run| (parallel(run).max(1)) as f64 / (machine.megahertz.value * 1e6);
        let runs = profile.runs.iter();
        match self {
            // One profile alone cannot tell.
            Self::Auto | Self::Fixed => Ok(runs.map(|run| 1.0 / seconds(run)).collect()),
            Self::PerCore => Ok(runs.map(|run| cores as f64 / seconds(run)).collect()),
            Self::Counted => runs
                .map(|run| match run.work {
                    0 => Err(Error::new(format!(
                        "the run on {cores} cores counted no work: call uvfs_contention_work(n) where \
                         n pieces are done, or take --work fixed or per-core"
                    ))),
                    work => Ok(work as f64 / seconds(run)),
                })
                .collect(),
            Self::Metric(values) if values.len() == profile.runs.len() => Ok(values.clone()),
            Self::Metric(values) => Err(Error::new(format!(
                "the run on {cores} cores has {} seeds but printed {} throughputs: the pattern must fit \
                 once in each run's output",
                profile.runs.len(),
                values.len()
            ))),
        }
    }
}

/// The runs of one core count.
#[derive(Debug, Clone)]
pub struct Measurement<'p> {
    /// All its seeds; the core count is its machine's.
    pub profile: &'p Profile,
    /// The work of the runs, counted in the same way in all measurements.
    pub work: Work,
}

/// One core count.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Virtual cores.
    pub cores: usize,
    /// In the sweep's unit.
    pub throughput: Estimate,
    /// Throughput of each seed.
    pub by_seed: Vec<f64>,
    /// Against the fewest cores, times their number.
    pub speed_up: Estimate,
    /// Efficiency of one core against one core of the point with the fewest.
    pub efficiency: Estimate,
    /// Transfers of lines, an access.
    pub transfers_per_access: Estimate,
    /// The throughput of the fitted law; `None` without one.
    pub fitted: Option<f64>,
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // The module's head defines them.
pub enum Shape {
    Linear,
    Plateau,
    Dip,
    Collapse,
    Unclear,
}

impl std::fmt::Display for Shape {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Linear => "linear",
            Self::Plateau => "plateau",
            Self::Dip => "dip",
            Self::Collapse => "collapse",
            Self::Unclear => "unclear",
        })
    }
}

/// The kind of a bend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BendKind {
    /// A cache line, by the latency of its misses.
    Line,
    /// A lock, by the waits for it. Spinning costs its line's latency too.
    Lock,
}

/// A line or lock whose part of all threads' time grows with the cores.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bend {
    /// Which of the two.
    pub kind: BendKind,
    /// `Super line 0 (lock, hash)`, `Super.lock`.
    pub name: String,
    /// Cores and the share of all threads' time, for every core count.
    pub shares: Vec<(usize, Estimate)>,
    /// The fewest cores at which it takes more than [`Bend::LIMIT`].
    pub over_at: Option<usize>,
}

impl Bend {
    /// The share of all threads' time from which a line or lock counts as a bottleneck.
    pub const LIMIT: f64 = 0.1;
    /// Bends that never take this much are not listed.
    const LISTED: f64 = 0.01;

    fn last(&self) -> f64 {
        self.shares.last().map_or(0.0, |(_, share)| share.mean)
    }
}

/// How a sweep counted work, and why so.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Counting {
    /// `fixed`, `per-core`, `counted` or `stdout`.
    pub taken: &'static str,
    /// A sentence with the numbers and the remedy, where it was found; `None` where it was asked for.
    pub found: Option<String>,
}

/// A whole sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sweep {
    /// The definition of throughput.
    pub work: Counting,
    /// The unit of the throughput.
    pub unit: &'static str,
    /// By core count.
    pub points: Vec<Point>,
    /// Shape of the mean over the seeds; `None` where the curve says nothing of the program.
    pub shape: Option<Shape>,
    /// Why it is that, or why there is none, in a sentence with the numbers.
    pub reason: String,
    /// Shape of each seed alone; the shortest list of seeds counts. Empty without a shape.
    pub by_seed: Vec<Shape>,
    /// The fitted law; `None` with fewer than four core counts, or without a shape.
    pub law: Option<Law>,
    /// The growing lines and locks, the greatest share on the most cores first; at most twenty.
    pub bends: Vec<Bend>,
}

/// Evaluates a sweep. Measurements may be in any order.
///
/// # Errors
/// None at all, two of one core count, runs that cannot be compared, or no count of work.
pub fn sweep(measurements: &[Measurement<'_>]) -> Result<Sweep, Error> {
    let mut ordered: Vec<&Measurement<'_>> = measurements.iter().collect();
    ordered.sort_by_key(|one| one.profile.meta.machine.cores);
    let Some(first) = ordered.first() else {
        return Err(Error::new("the sweep has no core counts: give at least one with --cores"));
    };
    if ordered.iter().any(|one| one.work.unit() != first.work.unit()) {
        return Err(Error::new("the sweep counts work in two ways: use one for all core counts"));
    }
    let (work, found) = match &first.work {
        Work::Auto => {
            let measure = Measure::of(&ordered);
            let amount = |one: &&Measurement<'_>| {
                (one.profile.meta.machine.cores, measure.amount(one.profile))
            };
            let amounts: Vec<_> = ordered.iter().map(amount).collect();
            let (work, reason) = kind_of_work(&amounts, measure);
            (Some(work), Some(reason))
        }
        _ => (None, None),
    };
    let unit = work.as_ref().unwrap_or(&first.work).unit();
    let mut throughputs = Vec::new();
    for one in &ordered {
        let cores = one.profile.meta.machine.cores;
        if one.profile.runs.is_empty() {
            return Err(Error::new(format!("the sweep has no run on {cores} cores: run it again")));
        }
        if throughputs.iter().any(|(known, _)| *known == cores) {
            return Err(Error::new(format!("the sweep has {cores} cores twice: list each once")));
        }
        throughputs.push((cores, work.as_ref().unwrap_or(&one.work).throughput(one.profile)?));
    }
    let profiles: Vec<&Profile> = ordered.iter().map(|one| one.profile).collect();
    let (shape, reason, by_seed, law) = match says_nothing(&profiles) {
        Some(why) => (None, why, Vec::new(), None),
        None => {
            let mean = |point: &(usize, Vec<f64>)| (point.0 as f64, Estimate::of(&point.1).mean);
            let means: Vec<(f64, f64)> = throughputs.iter().map(mean).collect();
            let (shape, reason) = classify(&throughputs);
            (Some(shape), reason, by_seed(&throughputs), fit(&means))
        }
    };
    let points = ordered
        .iter()
        .zip(&throughputs)
        .map(|(one, (cores, values))| point(one.profile, *cores, values, &throughputs[0], law))
        .collect();
    let work = Counting { taken: work.as_ref().unwrap_or(&first.work).word(), found };
    Ok(Sweep { work, unit, points, shape, reason, by_seed, law, bends: bends(&profiles) })
}

/// Why the curve says nothing of the program, whatever it looks like.
fn says_nothing(profiles: &[&Profile]) -> Option<String> {
    if profiles.iter().any(|profile| !profile.meta.computing) {
        return Some(
            "computing between accesses is charged a flat cost, so these times are not the program's; add \
             --compute, and build the program with this version of uvfs"
                .to_owned(),
        );
    }
    let threads = |profile: &Profile| {
        let counts: Vec<_> = profile.runs.iter().map(|run| run.threads as f64).collect();
        Estimate::of(&counts).mean
    };
    let idle = profiles.windows(2).find_map(|two| {
        let (fewer, more) = (&two[0].meta.machine, &two[1].meta.machine);
        let (before, after) = (threads(two[0]), threads(two[1]));
        (after <= before && after < more.cores as f64).then_some((fewer.cores, more.cores, after))
    });
    idle.map(|(fewer, more, threads)| {
        let plural = if threads == 1.0 { "" } else { "s" };
        format!(
            "the program has no more threads on {more} cores than on {fewer} ({threads:.0} thread{plural}, the first \
             included), so cores stand idle; write {{cores}} where its arguments name the number of threads"
        )
    })
}

/// The measure by which a sweep tells work for all cores from work for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    /// The cycles in which threads neither wait for a line nor sleep. A loop over registers makes no accesses.
    Computing,
    /// Accesses, where computing is not charged.
    Accesses,
}

impl Measure {
    fn of(measurements: &[&Measurement<'_>]) -> Self {
        let computes = |one: &&Measurement<'_>| {
            one.profile.meta.computing && Self::Computing.amount(one.profile) > 0.0
        };
        if measurements.iter().all(computes) { Self::Computing } else { Self::Accesses }
    }

    /// The mean of a run.
    fn amount(self, profile: &Profile) -> f64 {
        let of_run = |run: &Run| match self {
            Self::Accesses => run.accesses as f64,
            Self::Computing => {
                let threads = profile.threads.iter().filter(|thread| thread.seed == run.seed);
                let busy = threads.map(|thread| {
                    let lived = thread.cycles.saturating_sub(thread.began);
                    lived.saturating_sub(thread.stalled + thread.blocked)
                });
                busy.sum::<u64>() as f64
            }
        };
        let all: Vec<f64> = profile.runs.iter().map(of_run).collect();
        Estimate::of(&all).mean
    }
}

/// Whether each core has its own work or all share one, by the amounts at the two least core counts: with `n`
/// times the cores, `n` times as much or as much; halfway decides. Core counts ascend.
fn kind_of_work(amounts: &[(usize, f64)], measure: Measure) -> (Work, String) {
    let [(few, before), (more, after), ..] = amounts else {
        let why = "Work is taken as fixed, since one core count cannot tell; --work per-core if each core has its own.";
        return (Work::Fixed, why.to_owned());
    };
    let times = *more as f64 / *few as f64;
    let ratio = after / before.max(1.0);
    let (work, means, other) = if ratio > 1.0 + (times - 1.0) / 2.0 {
        (Work::PerCore, "each core has its own", "fixed if all cores share one amount of work")
    } else {
        (Work::Fixed, "all cores share one amount", "per-core if each core has its own")
    };
    let cores = if *few == 1 { "core" } else { "cores" };
    let found = match measure {
        Measure::Computing => format!("compute {ratio:.2} times as long as {few} {cores}"),
        Measure::Accesses => format!("make {ratio:.2} times the accesses of {few} {cores}"),
    };
    let why =
        format!("Work is taken as {}, {means}: {more} cores {found}; --work {other}.", work.word());
    (work, why)
}

fn point(
    profile: &Profile,
    cores: usize,
    values: &[f64],
    first: &(usize, Vec<f64>),
    law: Option<Law>,
) -> Point {
    let against = if cores == first.0 {
        // A thing is itself, without a spread.
        Estimate { mean: 1.0, plus_minus: (values.len() > 1).then_some(0.0) }
    } else {
        ratio(&first.1, values).unwrap_or_default()
    };
    let times = |factor: f64| Estimate {
        mean: against.mean * factor,
        plus_minus: against.plus_minus.map(|half| half * factor),
    };
    let transfers: Vec<_> =
        profile.runs.iter().map(|run| (run.transfers as f64, run.accesses as f64)).collect();
    Point {
        cores,
        throughput: Estimate::of(values),
        by_seed: values.to_vec(),
        speed_up: times(first.0 as f64),
        efficiency: times(first.0 as f64 / cores as f64),
        transfers_per_access: Estimate::ratio(&transfers),
        fitted: law.map(|law| law.throughput(cores as f64)),
    }
}

/// The shape of a curve and the reason; core counts ascend, each with its throughput by seed.
pub fn classify(throughputs: &[(usize, Vec<f64>)]) -> (Shape, String) {
    let (Some(first), Some(last)) = (throughputs.first(), throughputs.last()) else {
        return (Shape::Unclear, "there is no run".to_owned());
    };
    if throughputs.len() < 3 || last.0 < 4 * first.0 {
        let reason = "it takes three core counts, the greatest at least four times the fewest";
        return (Shape::Unclear, reason.to_owned());
    }
    if throughputs.iter().any(|(_, values)| values.len() < 2) {
        return (Shape::Unclear, "a single seed has no spread to judge by".to_owned());
    }
    let best = best(throughputs);
    let of_best = against(best, last);
    let worth = against(first, last);
    let worth = worth.map(|share| {
        let factor = first.0 as f64 / last.0 as f64;
        Estimate {
            mean: share.mean * factor,
            plus_minus: share.plus_minus.map(|half| half * factor),
        }
    });
    let (Some(of_best), Some(worth)) = (of_best, worth) else {
        return (Shape::Unclear, "a throughput is not above zero".to_owned());
    };
    let of_best_words = format!(
        "{} cores reach {} of the throughput of {}",
        last.0,
        crate::statistics::percent(&of_best),
        best.0
    );
    let worth_words = format!(
        "a core of {} is worth {} of one of {}",
        last.0,
        crate::statistics::percent(&worth),
        first.0
    );
    let kept = is_above(&of_best, 0.5);
    if kept == Some(true)
        && let Some(words) = dip(throughputs)
    {
        return (Shape::Dip, words);
    }
    match (kept, is_above(&worth, 0.5)) {
        (Some(false), _) => (Shape::Collapse, of_best_words),
        (None, _) => (Shape::Unclear, format!("{of_best_words}: on either side of one half")),
        (Some(true), Some(true)) => (Shape::Linear, worth_words),
        (Some(true), Some(false)) => (Shape::Plateau, format!("{worth_words}; {of_best_words}")),
        (Some(true), None) => {
            (Shape::Unclear, format!("{worth_words}: on either side of one half"))
        }
    }
}

/// The deepest fall below half of a rate with fewer cores, if the most cores reach nine tenths of that rate again. One core
/// that takes a lock without competition is ahead of any number that fight for it: that alone is a plateau.
fn dip(throughputs: &[(usize, Vec<f64>)]) -> Option<String> {
    let last = throughputs.last()?;
    let falls = (1..throughputs.len() - 1).filter_map(|at| {
        let (top, low) = (best(&throughputs[..at]), &throughputs[at]);
        let left = against(top, low)?;
        let rises = is_above(&against(top, last)?, 0.9) == Some(true);
        (rises && is_above(&left, 0.5) == Some(false)).then_some((top.0, low.0, left))
    });
    let (top, low, left) = falls.min_by(|a, b| a.2.mean.total_cmp(&b.2.mean))?;
    Some(format!(
        "{low} cores reach {} of the throughput of {top}, and {} cores as much again",
        crate::statistics::percent(&left),
        last.0
    ))
}

fn best(throughputs: &[(usize, Vec<f64>)]) -> &(usize, Vec<f64>) {
    let mean = |point: &&(usize, Vec<f64>)| Estimate::of(&point.1).mean;
    let best = throughputs.iter().max_by(|a, b| mean(a).total_cmp(&mean(b)));
    best.unwrap_or(&throughputs[0])
}

fn against(base: &(usize, Vec<f64>), point: &(usize, Vec<f64>)) -> Option<Estimate> {
    if base.0 == point.0 {
        return Some(Estimate { mean: 1.0, plus_minus: Some(0.0) });
    }
    ratio(&base.1, &point.1)
}

/// The shape of each seed's own curve, by its mean alone.
fn by_seed(throughputs: &[(usize, Vec<f64>)]) -> Vec<Shape> {
    let seeds = throughputs.iter().map(|(_, values)| values.len()).min().unwrap_or(0);
    let shape = |seed: usize| {
        // Two equal values are one without a spread.
        let alone: Vec<_> =
            throughputs.iter().map(|(cores, values)| (*cores, vec![values[seed]; 2])).collect();
        classify(&alone).0
    };
    (0..seeds).map(shape).collect()
}

/// Shares of all threads' time of every line and lock, for every profile.
fn bends(profiles: &[&Profile]) -> Vec<Bend> {
    let mut names: BTreeSet<(BendKind, String)> = BTreeSet::new();
    let mut columns: Vec<BTreeMap<(BendKind, String), Estimate>> = Vec::new();
    let mut fields: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for profile in profiles {
        let ledger = Ledger::new(profile);
        let time = ledger.time();
        let mut column = BTreeMap::new();
        let lines = ledger.sums(|ledger, sample| {
            let object = ledger.object(sample.seed, sample.object)?;
            Some((
                ledger.line_name(object, sample.offset),
                ledger.spot(object, sample.offset).field,
            ))
        });
        let mut totals: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for ((line, field), costs) in &lines {
            let total = totals.entry(line.clone()).or_insert_with(|| vec![0.0; ledger.seeds.len()]);
            for (total, cost) in total.iter_mut().zip(costs) {
                *total += cost.latency() as f64;
            }
            let latency: u64 = costs.iter().map(|cost| cost.latency()).sum();
            *fields.entry(line.clone()).or_default().entry(field.clone()).or_default() += latency;
        }
        for (line, total) in totals {
            column.insert((BendKind::Line, line), Estimate::share(&total, &time));
        }
        for (lock, waits) in crate::compare::locks(&ledger, |lock| lock.wait_total) {
            column.insert((BendKind::Lock, lock), Estimate::share(&waits, &time));
        }
        names.extend(column.keys().cloned());
        columns.push(column);
    }
    let bend = |(kind, name): (BendKind, String)| {
        let key = (kind, name);
        let shares: Vec<(usize, Estimate)> = profiles
            .iter()
            .zip(&columns)
            .map(|(profile, column)| {
                let nothing = Estimate::of(&vec![0.0; profile.runs.len()]);
                (profile.meta.machine.cores, column.get(&key).copied().unwrap_or(nothing))
            })
            .collect();
        let over_at = shares.iter().find(|(_, share)| share.mean > Bend::LIMIT);
        let over_at = over_at.map(|(cores, _)| *cores);
        let (kind, line) = key;
        let name = match (kind, fields.get(&line)) {
            (BendKind::Line, Some(fields)) if fields.keys().any(|field| !field.is_empty()) => {
                format!("{line} ({})", hottest(fields))
            }
            _ => line,
        };
        Bend { kind, name, shares, over_at }
    };
    let mut bends: Vec<Bend> = names.into_iter().map(bend).collect();
    bends.retain(|bend| {
        let first = bend.shares.first().map_or(0.0, |(_, share)| share.mean);
        let most = bend.shares.iter().map(|(_, share)| share.mean).fold(0.0, f64::max);
        most >= Bend::LISTED && (most > first || profiles.len() == 1)
    });
    bends.sort_by(|a, b| b.last().total_cmp(&a.last()).then_with(|| a.name.cmp(&b.name)));
    bends.truncate(20);
    bends
}

/// The three fields of the most latency.
fn hottest(fields: &BTreeMap<String, u64>) -> String {
    let mut fields: Vec<_> = fields.iter().filter(|(name, _)| !name.is_empty()).collect();
    fields.sort_by(|a, b| b.1.cmp(a.1));
    let more = if fields.len() > 3 { ", ..." } else { "" };
    let names: Vec<&str> = fields.iter().take(3).map(|(name, _)| name.as_str()).collect();
    format!("{}{more}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Builder;
    use uvfs_coherence::profile::{LockKind, Operation};

    /// A curve with a spread of one in a hundred.
    fn curve(points: &[(usize, f64)]) -> Vec<(usize, Vec<f64>)> {
        let seeds = |value: f64| [0.99, 1.0, 1.01, 1.0].iter().map(|by| value * by).collect();
        points.iter().map(|(cores, value)| (*cores, seeds(*value))).collect()
    }

    #[test]
    fn textbook_curves_get_their_shape() {
        let cores = [1, 2, 4, 8, 16, 32, 64, 128];
        let check = |values: [f64; 8], wanted| {
            let points: Vec<_> = cores.into_iter().zip(values).collect();
            let (shape, reason) = classify(&curve(&points));
            assert_eq!(shape, wanted, "{reason}");
        };
        check([5.9, 7.6, 2.9, 1.2, 0.64, 0.47, 0.32, 0.20], Shape::Collapse); // TTAS
        check([5.9, 7.6, 4.7, 1.4, 1.1, 0.97, 0.64, 0.38], Shape::Collapse); // ticket
        check([5.6, 7.4, 5.0, 4.6, 4.5, 4.6, 4.5, 4.4], Shape::Plateau); // MCS
        check([5.5, 4.4, 4.4, 4.2, 4.3, 4.3, 4.3, 4.3], Shape::Plateau); // a sleeping mutex
        check([6.0, 9.4, 18.7, 12.0, 16.0, 18.0, 19.0, 20.0], Shape::Plateau); // one counter
        check([6.0, 11.8, 23.6, 46.8, 92.8, 184.0, 360.0, 700.0], Shape::Linear); // shards
        // One lock for all threads up to eight cores, many locks beyond: its last core is worth half of its first, and
        // it was called linear.
        check([1.0, 0.81, 0.45, 0.42, 8.6, 16.8, 33.0, 66.0], Shape::Dip);
    }

    #[test]
    fn a_fall_that_stays_or_a_small_one_is_no_dip() {
        let dips = |values: &[f64]| {
            let cores = [1, 2, 4, 8];
            let points: Vec<_> = cores.into_iter().zip(values.iter().copied()).collect();
            classify(&curve(&points)).0 == Shape::Dip
        };
        assert!(dips(&[2.0, 0.5, 1.0, 2.0]));
        assert!(!dips(&[2.0, 1.5, 1.6, 2.0]));
        assert!(!dips(&[2.0, 0.9, 1.1, 1.4]), "a mutex that is contended from two cores on");
        assert!(!dips(&[2.0, 0.5, 0.5, 0.5]));
        assert!(!dips(&[2.0, 1.8, 1.5, 1.2]));
    }

    #[test]
    fn a_sweep_that_says_nothing_has_no_class_and_no_law() {
        // A loop over registers scaled perfectly and was called a collapse, because its computing was not charged. A
        // program of eight threads got a law that promised its highest throughput at 216 cores.
        let swept = |computing: bool, threads: fn(usize) -> u64| {
            let profiles = [1, 2, 4, 8, 16].map(|cores| {
                let mut builder = Builder::new(cores, 1, 2);
                builder.meta(|meta| meta.computing = computing);
                builder.runs(|run| run.threads = threads(cores));
                builder.done()
            });
            let measure = |profile| Measurement { profile, work: Work::PerCore };
            sweep(&profiles.iter().map(measure).collect::<Vec<_>>()).unwrap()
        };
        let flat = swept(false, |cores| cores as u64 + 1);
        assert_eq!((flat.shape, flat.law, flat.by_seed.len()), (None, None, 0));
        assert!(flat.reason.contains("--compute"), "{}", flat.reason);
        let fixed = swept(true, |_| 9);
        assert_eq!((fixed.shape, fixed.law), (None, None));
        assert!(fixed.reason.contains("on 16 cores than on 8 (9 threads"), "{}", fixed.reason);
        assert!(fixed.reason.contains("{cores}"), "{}", fixed.reason);
        // As many threads on all core counts are no fault while the cores are fewer.
        assert_eq!(swept(true, |_| 17).shape, Some(Shape::Linear));
        assert!(swept(true, |cores| cores.min(5) as u64).reason.contains("on 16 cores than on 8"));
    }

    #[test]
    fn a_loop_over_registers_has_its_own_work_on_each_core() {
        // Its accesses do not grow with the cores, so its work was taken as one amount for all.
        let profiles = [1, 2, 4].map(|cores| {
            let mut builder = Builder::new(cores, 1, 2);
            for core in 0..cores as u32 {
                builder.thread(core, core);
            }
            builder.done()
        });
        let measure = |profile| Measurement { profile, work: Work::Auto };
        let found = sweep(&profiles.iter().map(measure).collect::<Vec<_>>()).unwrap();
        assert_eq!((found.shape, found.work.taken), (Some(Shape::Linear), "per-core"));
        assert!(found.work.found.unwrap().contains("compute 2.00 times as long"));
    }

    #[test]
    fn too_little_is_unclear() {
        assert_eq!(classify(&[]).0, Shape::Unclear);
        assert_eq!(classify(&curve(&[(1, 1.0), (128, 100.0)])).0, Shape::Unclear);
        assert_eq!(classify(&curve(&[(1, 1.0), (2, 2.0), (3, 3.0)])).0, Shape::Unclear);
        let one_seed = [(1, vec![1.0]), (2, vec![2.0]), (4, vec![4.0])];
        assert_eq!(classify(&one_seed).0, Shape::Unclear);
    }

    #[test]
    fn a_program_of_two_states_is_unclear_as_a_mean_and_plain_by_seed() {
        let points = [
            (1, vec![1.0, 1.0, 1.0, 1.0]),
            (2, vec![2.0, 2.0, 2.0, 2.0]),
            (4, vec![3.0, 3.0, 3.0, 3.0]),
            (8, vec![3.0, 0.2, 3.0, 0.2]),
        ];
        assert_eq!(classify(&points).0, Shape::Unclear);
        let (plateau, collapse) = (Shape::Plateau, Shape::Collapse);
        assert_eq!(by_seed(&points), [plateau, collapse, plateau, collapse]);
    }

    /// A profile of `cores` in which `Super.lock` costs this share of all threads' time.
    fn profile(cores: usize, share: f64) -> Profile {
        let mut builder = Builder::new(cores, 1, 2);
        let kind = builder.kind("Super", 64, &[("lock", 0, 4), ("hash", 8, 8)]);
        let object = builder.object("Super", 0x1000, 64, Some(kind), false);
        let site = builder.site("f", Operation::CompareExchange, 4);
        let misses = (share * 1e6 * cores as f64 / 100.0) as u64;
        builder.miss(object, 0, site).counts(&[misses]);
        builder.lock(object, 0, LockKind::Word, |lock| lock.wait_total = misses * 50);
        builder.runs(|run| run.work = 1000 * run.threads);
        builder.done()
    }

    #[test]
    fn the_bend_is_named_with_the_cores_where_it_begins() {
        let profiles = [profile(4, 0.2), profile(1, 0.0), profile(2, 0.05)];
        let measurements: Vec<_> =
            profiles.iter().map(|profile| Measurement { profile, work: Work::Counted }).collect();
        let sweep = sweep(&measurements).unwrap();
        let cores: Vec<_> = sweep.points.iter().map(|point| point.cores).collect();
        assert_eq!(cores, [1, 2, 4]);
        assert_eq!(sweep.bends[0].name, "Super line 0 (lock)");
        assert_eq!(sweep.bends[0].over_at, Some(4));
        assert!((sweep.bends[0].shares[1].1.mean - 0.05).abs() < 1e-9);
        let lock = sweep.bends.iter().find(|bend| bend.kind == BendKind::Lock).unwrap();
        assert_eq!((lock.name.as_str(), lock.over_at), ("Super.lock", None));
        // A million cycles at 2600 MHz, a thousand pieces a core.
        assert!((sweep.points[0].throughput.mean - 2.6e6).abs() < 1.0);
        assert!((sweep.points[2].efficiency.mean - 1.0).abs() < 1e-9);
        assert!((sweep.points[2].speed_up.mean - 4.0).abs() < 1e-9);
        assert_eq!(sweep.shape, Some(Shape::Linear));
        assert!(serde_json::to_string(&sweep).unwrap().contains("\"shape\":\"linear\""));
    }

    #[test]
    fn work_is_counted_as_asked() {
        let profile = profile(4, 0.0);
        let throughput = |work: Work| work.throughput(&profile).map(|values| values[0]);
        assert_eq!(throughput(Work::Fixed).unwrap(), 2600.0);
        assert_eq!(throughput(Work::PerCore).unwrap(), 10_400.0);
        assert_eq!(throughput(Work::Metric(vec![7.0, 8.0])).unwrap(), 7.0);
        assert!(throughput(Work::Metric(vec![7.0])).is_err());
        let uncounted = Builder::new(2, 1, 1).done();
        let refused = Work::Counted.throughput(&uncounted).unwrap_err().to_string();
        assert!(refused.contains("uvfs_contention_work"), "{refused}");
    }

    #[test]
    fn a_thread_a_core_with_its_own_operations_is_no_collapse() {
        // A program made one thread a core, a fixed number of operations each, and shared nothing. Work was
        // taken as fixed: throughput fell as the cores grew, and a perfect program was called a collapse.
        let profiles = [1, 2, 4, 8].map(|cores| {
            let mut builder = Builder::new(cores, 1, 2);
            builder.runs(|run| run.accesses = 1_000 * cores as u64);
            builder.done()
        });
        let of = |work: Work| {
            let measurements: Vec<_> = profiles
                .iter()
                .map(|profile| Measurement { profile, work: work.clone() })
                .collect();
            sweep(&measurements).unwrap()
        };
        let found = of(Work::Auto);
        assert_eq!((found.shape, found.work.taken), (Some(Shape::Linear), "per-core"));
        let why = found.work.found.unwrap();
        assert!(why.contains("2.00 times") && why.contains("--work fixed"), "{why}");
        assert_ne!(of(Work::Fixed).shape, Some(Shape::Linear));
        assert_eq!(of(Work::PerCore).work, Counting { taken: "per-core", found: None });
    }

    #[test]
    fn work_is_derived_from_the_two_least_core_counts() {
        let taken = |accesses: &[(usize, f64)]| kind_of_work(accesses, Measure::Accesses).0;
        assert_eq!(taken(&[(1, 100.0), (2, 151.0)]), Work::PerCore);
        assert_eq!(taken(&[(1, 100.0), (2, 149.0)]), Work::Fixed);
        // A spinning core makes more accesses later, which are not looked at.
        assert_eq!(taken(&[(1, 100.0), (2, 120.0), (128, 9e9)]), Work::Fixed);
        assert_eq!(taken(&[(1, 100.0), (8, 440.0)]), Work::Fixed);
        assert_eq!(taken(&[(4, 100.0), (8, 160.0)]), Work::PerCore);
        assert_eq!(taken(&[(4, 100.0)]), Work::Fixed);
        assert_eq!(taken(&[(1, 0.0), (2, 0.0)]), Work::Fixed);
    }

    #[test]
    fn bad_sweeps_are_refused() {
        assert!(sweep(&[]).is_err());
        let (one, none) = (profile(2, 0.0), Builder::new(3, 1, 0).done());
        let fixed = |profile| Measurement { profile, work: Work::Fixed };
        assert!(sweep(&[fixed(&one), fixed(&one)]).is_err());
        assert!(sweep(&[fixed(&one), fixed(&none)]).is_err());
        let other = profile(4, 0.0);
        assert!(
            sweep(&[fixed(&one), Measurement { profile: &other, work: Work::PerCore }]).is_err()
        );
    }
}
