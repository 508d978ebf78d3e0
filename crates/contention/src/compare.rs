//! Two profiles of one program, before and after a change: figures that rose, fell, appeared or vanished.
//!
//! # Boundary
//! Profiles in, a table out. Whether a difference is allowed is [`crate::gate`]'s.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! A change is told from the spread between seeds by Welch's interval of the difference, and nothing
//! else is called a change. Two profiles of different machines differ for that reason alone, so they are
//! refused by the names of the parameters, unless the caller insists. Weakness: things are the same if
//! they are called the same; a renamed field is gone and new.

use crate::analysis::Estimate;
use crate::error::Error;
use crate::ledger::{Ledger, Sum, parallel, values};
use crate::statistics::{Difference, ratio};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use uvfs_coherence::Profile;
use uvfs_coherence::profile::{Lock, Run};

/// The change of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It is zero in the new profile.
    Gone,
    /// It was zero in the old one.
    New,
    /// The interval of the difference is above zero.
    More,
    /// The interval of the difference is below zero.
    Less,
    /// The interval of the difference holds zero.
    Same,
    /// One side has a single seed, so the spread is unknown.
    Unclear,
}

/// One figure, old and new.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Before.
    pub old: Estimate,
    /// After.
    pub new: Estimate,
    /// New minus old.
    pub difference: Difference,
    /// New over old; `None` where either is zero.
    pub ratio: Option<Estimate>,
    /// How the figure changed.
    pub status: Status,
}

impl Change {
    /// Compares values of two sides, one value a seed on each side.
    pub fn between(old: &[f64], new: &[f64]) -> Self {
        let difference = Difference::between(old, new);
        let (before, after) = (Estimate::of(old), Estimate::of(new));
        let status = match difference.is_significant() {
            _ if before.mean != 0.0 && after.mean == 0.0 => Status::Gone,
            _ if before.mean == 0.0 && after.mean != 0.0 => Status::New,
            _ if before.mean == after.mean => Status::Same,
            None => Status::Unclear,
            Some(false) => Status::Same,
            Some(true) if difference.mean > 0.0 => Status::More,
            Some(true) => Status::Less,
        };
        Self { old: before, new: after, difference, ratio: ratio(old, new), status }
    }
}

/// One figure of the whole run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Total {
    /// `cycles`, `transfers_per_access`, ...; see [`metric`].
    pub name: String,
    /// Old and new.
    #[serde(flatten)]
    pub change: Change,
}

/// A line, a field or a function.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// `Super line 0`, `Super.lock`, `lookup`.
    pub name: String,
    /// Cycles of its misses.
    pub latency: Change,
    /// Misses that another core's cache answered.
    pub transfers: Change,
}

/// A lock.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LockRow {
    /// `Super.lock`.
    pub name: String,
    /// Cycles that threads waited for it.
    pub wait: Change,
    /// Cycles that threads held it.
    pub hold: Change,
    /// Times that it was taken.
    pub acquisitions: Change,
    /// Times that it was waited for.
    pub contended: Change,
}

/// The whole comparison. Each list has the greatest difference first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Reasons to doubt the comparison: forced over a difference of machines or modes, few seeds.
    pub warnings: Vec<String>,
    /// Figures of the whole run.
    pub totals: Vec<Total>,
    /// Cache lines.
    pub lines: Vec<Row>,
    /// Fields.
    pub fields: Vec<Row>,
    /// Functions, with the callers of locks.
    pub functions: Vec<Row>,
    /// Locks.
    pub locks: Vec<LockRow>,
}

/// Metrics of a whole run that [`metric`] knows.
pub const METRICS: [&str; 14] = [
    "cycles",
    "parallel_cycles",
    "accesses",
    "misses",
    "transfers",
    "remote_transfers",
    "latency",
    "transfers_per_access",
    "misses_per_access",
    "latency_per_access",
    "false_sharing",
    "remote_share",
    "lock_wait",
    "work_per_cycle",
];

/// A figure of each run, by name; `None` for a name that is not in [`METRICS`]. `false_sharing` is the
/// share of all miss latency that is false sharing, `remote_share` that of transfers from another node,
/// `lock_wait` the waits as a share of all threads' time.
pub fn metric(ledger: &Ledger<'_>, name: &str) -> Option<Vec<f64>> {
    let profile = ledger.profile;
    let of_runs = |value: fn(&Run) -> f64| Some(profile.runs.iter().map(value).collect::<Vec<_>>());
    let of_costs = |value: &dyn Fn(&Sum, &Run) -> f64| {
        Some(ledger.totals.iter().zip(&profile.runs).map(|(cost, run)| value(cost, run)).collect())
    };
    match name {
        "cycles" => of_runs(|run| run.cycles as f64),
        "parallel_cycles" => of_runs(|run| parallel(run) as f64),
        "accesses" => of_runs(|run| run.accesses as f64),
        "misses" => of_runs(|run| run.misses as f64),
        "transfers" => of_runs(|run| run.transfers as f64),
        "remote_transfers" => of_runs(|run| run.remote_transfers as f64),
        "transfers_per_access" => of_runs(|run| per(run.transfers as f64, run.accesses as f64)),
        "misses_per_access" => of_runs(|run| per(run.misses as f64, run.accesses as f64)),
        "remote_share" => of_runs(|run| per(run.remote_transfers as f64, run.transfers as f64)),
        "work_per_cycle" => of_runs(|run| per(run.work as f64, parallel(run) as f64)),
        "latency" => of_costs(&|cost, _| cost.latency() as f64),
        "latency_per_access" => {
            of_costs(&|cost, run| per(cost.latency() as f64, run.accesses as f64))
        }
        "false_sharing" => of_costs(&|cost, _| per(cost.false_latency, cost.latency() as f64)),
        "lock_wait" => {
            let waits = waits(ledger);
            Some(waits.iter().zip(ledger.time()).map(|(wait, time)| per(*wait, time)).collect())
        }
        _ => None,
    }
}

fn per(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Waits for all locks, seed by seed; not those for work, which an idle pool has without end.
fn waits(ledger: &Ledger<'_>) -> Vec<f64> {
    let mut waits = vec![0.0; ledger.seeds.len()];
    for lock in ledger.profile.locks.iter().filter(|lock| !lock.kind.is_for_work()) {
        if let Some(seed) = ledger.seed(lock.seed) {
            waits[seed] += lock.wait_total as f64;
        }
    }
    waits
}

/// Sums of one value of all locks of the same name, seed by seed, without waits for work.
pub(crate) fn locks(
    ledger: &Ledger<'_>,
    value: impl Fn(&Lock) -> u64,
) -> BTreeMap<String, Vec<f64>> {
    let mut locks: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for lock in ledger.profile.locks.iter().filter(|lock| !lock.kind.is_for_work()) {
        let (Some(seed), Some(spot)) = (ledger.seed(lock.seed), ledger.locked(lock)) else {
            continue;
        };
        let values = locks.entry(spot.name()).or_insert_with(|| vec![0.0; ledger.seeds.len()]);
        values[seed] += value(lock) as f64;
    }
    locks
}

/// Compares. With `force`, other machines and modes become a warning.
///
/// # Errors
/// A profile without runs; different machines or modes without `force`, with the parameters that differ.
pub fn compare(old: &Ledger<'_>, new: &Ledger<'_>, force: bool) -> Result<Comparison, Error> {
    let mut warnings = Vec::new();
    for (ledger, which) in [(old, "old"), (new, "new")] {
        match ledger.profile.runs.len() {
            0 => return Err(Error::new(format!("the {which} profile has no runs: run it again"))),
            few if few < 8 => warnings.push(format!(
                "the {which} profile has {few} seed{}: differences below its spread cannot be told; \
                 --seeds 8 or more",
                if few == 1 { "" } else { "s" }
            )),
            _ => {}
        }
    }
    let differing = differences(old.profile, new.profile);
    if !differing.is_empty() {
        let list = differing.join(", ");
        if !force {
            return Err(Error::new(format!(
                "the profiles are not of the same machine and mode: {list}; make both with the same \
                 --machine, --cores and --nodes, or pass --any-machine"
            )));
        }
        warnings.push(format!("compared by force although these differ: {list}"));
    }
    Ok(Comparison {
        warnings,
        totals: totals(old, new),
        lines: rows(old, new, |ledger, sample| {
            let object = ledger.object(sample.seed, sample.object)?;
            Some(ledger.line_name(object, sample.offset))
        }),
        fields: rows(old, new, |ledger, sample| Some(ledger.sampled(sample)?.name())),
        functions: rows(old, new, |ledger, sample| ledger.function_of(sample.seed, sample.site)),
        locks: lock_rows(old, new),
    })
}

/// The differences between the machines and modes, such as `cores: 8 against 16`.
pub(crate) fn differences(old: &Profile, new: &Profile) -> Vec<String> {
    let mut differing = Vec::new();
    if old.meta.mode != new.meta.mode {
        differing.push(format!("mode: {:?} against {:?}", old.meta.mode, new.meta.mode));
    }
    let tree = |profile: &Profile| {
        serde_json::to_value(&profile.meta.machine).unwrap_or(serde_json::Value::Null)
    };
    differ("", &tree(old), &tree(new), &mut differing);
    differing
}

/// Paths of the leaves that differ. A machine's name and where a number is from change no result.
fn differ(
    path: &str,
    old: &serde_json::Value,
    new: &serde_json::Value,
    differing: &mut Vec<String>,
) {
    use serde_json::Value::Object;
    match (old, new) {
        (Object(old), Object(new)) => {
            let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for key in keys.into_iter().filter(|key| *key != "source" && *key != "name") {
                let path = match (path, key.as_str()) {
                    ("", key) => key.to_owned(),
                    (path, "value") => path.to_owned(),
                    (path, key) => format!("{path}.{key}"),
                };
                let none = serde_json::Value::Null;
                let side = |side: &serde_json::Map<_, _>| side.get(key).cloned();
                let (old, new) = (side(old).unwrap_or(none.clone()), side(new).unwrap_or(none));
                differ(&path, &old, &new, differing);
            }
        }
        (old, new) if old != new => differing.push(format!("{path}: {old} against {new}")),
        _ => {}
    }
}

fn totals(old: &Ledger<'_>, new: &Ledger<'_>) -> Vec<Total> {
    let total = |name: &&str| {
        let (old, new) = (metric(old, name)?, metric(new, name)?);
        let nothing = old.iter().chain(&new).all(|value| *value == 0.0);
        let change = Change::between(&old, &new);
        (!nothing).then(|| Total { name: (*name).to_owned(), change })
    };
    METRICS.iter().filter_map(total).collect()
}

fn rows(
    old: &Ledger<'_>,
    new: &Ledger<'_>,
    key: impl Fn(&Ledger<'_>, &uvfs_coherence::profile::Sample) -> Option<String>,
) -> Vec<Row> {
    let (before, after) = (old.sums(&key), new.sums(&key));
    let (no_old, no_new) = (old.none(), new.none());
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let row = |name: &String| {
        let (old, new) = (before.get(name).unwrap_or(&no_old), after.get(name).unwrap_or(&no_new));
        let change = |value: fn(&Sum) -> u64| {
            let value = |cost: &Sum| value(cost) as f64;
            Change::between(&values(old, value), &values(new, value))
        };
        Row {
            name: name.clone(),
            latency: change(|cost| cost.latency()),
            transfers: change(|cost| cost.transfers),
        }
    };
    let mut rows: Vec<Row> = names.into_iter().map(row).collect();
    let size = |row: &Row| row.latency.difference.mean.abs();
    rows.sort_by(|a, b| size(b).total_cmp(&size(a)));
    rows
}

fn lock_rows(old: &Ledger<'_>, new: &Ledger<'_>) -> Vec<LockRow> {
    let figures: [fn(&Lock) -> u64; 4] = [
        |lock| lock.wait_total,
        |lock| lock.hold_total,
        |lock| lock.acquisitions,
        |lock| lock.contended,
    ];
    let before = figures.map(|figure| locks(old, figure));
    let after = figures.map(|figure| locks(new, figure));
    let names: BTreeSet<&String> = before[0].keys().chain(after[0].keys()).collect();
    let row = |name: &String| {
        let change = |figure: usize| {
            let nothing = |ledger: &Ledger<'_>| vec![0.0; ledger.seeds.len()];
            let old = before[figure].get(name).cloned().unwrap_or_else(|| nothing(old));
            let new = after[figure].get(name).cloned().unwrap_or_else(|| nothing(new));
            Change::between(&old, &new)
        };
        LockRow {
            name: name.clone(),
            wait: change(0),
            hold: change(1),
            acquisitions: change(2),
            contended: change(3),
        }
    };
    let mut rows: Vec<LockRow> = names.into_iter().map(row).collect();
    let size = |row: &LockRow| row.wait.difference.mean.abs();
    rows.sort_by(|a, b| size(b).total_cmp(&size(a)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Builder;
    use uvfs_coherence::machine::Parameter;
    use uvfs_coherence::profile::{LockKind, Operation};

    /// Misses of a hundred cycles on `Super.lock` and `Super.hash`, by seed.
    fn profile(lock: &[u64], hash: &[u64]) -> Builder {
        let mut builder = Builder::new(4, 1, 4);
        let kind = builder.kind("Super", 16, &[("lock", 0, 4), ("hash", 8, 8)]);
        let object = builder.object("Super", 0x1000, 16, Some(kind), false);
        let dget = builder.site("[spinlock] @ dget", Operation::CompareExchange, 4);
        let lookup = builder.site("lookup", Operation::Load, 8);
        builder.miss(object, 0, dget).counts(lock);
        if !hash.is_empty() {
            builder.miss(object, 8, lookup).counts(hash);
        }
        builder.lock(object, 0, LockKind::Word, |taken| taken.wait_total = lock[0] * 10);
        builder
    }

    fn row<'c>(rows: &'c [Row], name: &str) -> &'c Row {
        rows.iter().find(|row| row.name == name).unwrap()
    }

    #[test]
    fn a_real_change_is_distinguished_from_the_spread() {
        let old = profile(&[1000, 1010, 990, 1000], &[500, 520, 480, 500]).done();
        let new = profile(&[1001, 1009, 995, 1002], &[50, 52, 48, 50]).done();
        let comparison = compare(&Ledger::new(&old), &Ledger::new(&new), false).unwrap();
        let hash = row(&comparison.fields, "Super.hash");
        assert_eq!(hash.latency.status, Status::Less);
        assert_eq!(hash.latency.difference.mean, -45_000.0);
        assert_eq!(row(&comparison.fields, "Super.lock").latency.status, Status::Same);
        assert_eq!(row(&comparison.functions, "lookup").transfers.status, Status::Less);
        assert_eq!(row(&comparison.lines, "Super line 0").latency.status, Status::Less);
        assert_eq!(comparison.fields[0].name, "Super.hash", "the greatest difference first");
        assert_eq!(comparison.locks[0].name, "Super.lock");
        assert_eq!(comparison.locks[0].wait.status, Status::More);
        assert_eq!(comparison.warnings.len(), 2, "{:?}", comparison.warnings);
    }

    #[test]
    fn what_is_gone_is_gone_and_what_is_new_is_new() {
        let with = profile(&[1000], &[500]).done();
        let without = profile(&[1000], &[]).done();
        let there = |old: &Profile, new: &Profile| {
            let comparison = compare(&Ledger::new(old), &Ledger::new(new), false).unwrap();
            row(&comparison.fields, "Super.hash").latency.status
        };
        assert_eq!(there(&with, &without), Status::Gone);
        assert_eq!(there(&without, &with), Status::New);
        assert_eq!(there(&with, &with), Status::Same);
    }

    #[test]
    fn one_seed_proves_nothing() {
        assert_eq!(Change::between(&[100.0], &[200.0, 200.0]).status, Status::Unclear);
        assert_eq!(Change::between(&[100.0], &[100.0]).status, Status::Same);
    }

    #[test]
    fn other_machines_are_refused_by_the_parameter() {
        let old = profile(&[1000], &[]).done();
        let mut builder = profile(&[1000], &[]);
        builder.meta(|meta| meta.machine.latency.local_transfer = Parameter::measured(77.0));
        let new = builder.done();
        let refused =
            compare(&Ledger::new(&old), &Ledger::new(&new), false).unwrap_err().to_string();
        assert!(refused.contains("latency.local_transfer: 120.0 against 77.0"), "{refused}");
        assert!(refused.contains("--any-machine"), "{refused}");
        let forced = compare(&Ledger::new(&old), &Ledger::new(&new), true).unwrap();
        assert!(forced.warnings.iter().any(|line| line.contains("by force")));
        // The source of a number does not change a result.
        let mut same = profile(&[1000], &[]);
        same.meta(|meta| {
            meta.machine.latency.local_transfer = Parameter::measured(120.0);
            meta.machine.name = "another".to_owned();
        });
        assert!(compare(&Ledger::new(&old), &Ledger::new(&same.done()), false).is_ok());
    }

    #[test]
    fn other_modes_and_empty_profiles_are_refused() {
        let old = profile(&[1000], &[]).done();
        let mut builder = profile(&[1000], &[]);
        builder.meta(|meta| meta.mode = uvfs_coherence::profile::Mode::Recorded);
        let refused = compare(&Ledger::new(&old), &Ledger::new(&builder.done()), false)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("mode: Simulated against Recorded"), "{refused}");
        assert!(
            compare(&Ledger::new(&old), &Ledger::new(&Builder::new(4, 1, 0).done()), true).is_err()
        );
    }

    #[test]
    fn every_metric_has_a_value_for_each_run() {
        let profile = profile(&[1000], &[500]).done();
        for name in METRICS {
            assert_eq!(metric(&Ledger::new(&profile), name).unwrap().len(), 4, "{name}");
        }
        assert_eq!(metric(&Ledger::new(&profile), "transfers").unwrap()[0], 1500.0);
        assert_eq!(metric(&Ledger::new(&profile), "latency").unwrap()[0], 150_000.0);
        assert_eq!(metric(&Ledger::new(&profile), "lock_wait").unwrap()[0], 10_000.0 / 4e6);
        assert_eq!(metric(&Ledger::new(&profile), "speed"), None);
    }
}
