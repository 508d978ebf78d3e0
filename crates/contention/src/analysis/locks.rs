//! Locks in virtual time, in the lock meter's columns.
//!
//! # Boundary
//! Figures; the layout of the table is the report's. How a lock is recognised is the model's business.
//!
//! # Why
//! The columns are those of `uvfs stat` and of lockmeter, so that a simulated and a measured table can be
//! compared. In virtual time every hold is timed and nothing is disturbed by it. Weakness: the
//! use of a word is guessed from its changes; a lock that is never contended may be missing, and
//! abandoned attempts are not counted.

use super::Estimate;
use crate::ledger::{Ledger, ObjectKey, structure_of};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use uvfs_coherence::profile::{Lock, LockKind, Object};

/// One lock, or those of one type.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LockRow {
    /// Object and field: `Super.root.lock`.
    pub name: String,
    /// How it was recognised.
    pub kind: LockKind,
    /// Objects that have it: 1, unless it is a group.
    pub objects: u64,
    /// Times it was taken.
    pub acquisitions: Estimate,
    /// CON: part of the times that it was waited for.
    pub contended_share: Estimate,
    /// Part of the times by another core than the last time.
    pub bounce_share: Estimate,
    /// UTIL: part of the run in which it was held. Of a group, of each of its locks; of a lock that several hold at a time, by
    /// each of the threads.
    pub utilisation: Estimate,
    /// HOLD MEAN: cycles.
    pub hold_mean: Estimate,
    /// HOLD MAX: cycles, of all seeds.
    pub hold_max: u64,
    /// WAIT MEAN: cycles, of those that waited.
    pub wait_mean: Estimate,
    /// WAIT MAX: cycles, of all seeds.
    pub wait_max: u64,
    /// Cycles waited, all together.
    pub wait_total: Estimate,
    /// % CPU: part of all cores' time that went into waiting; of all threads' time where they are more and wait for longer
    /// than the cores have.
    pub wait_share: Estimate,
    /// The functions that waited, the most frequent first.
    pub waiters: Vec<Waiter>,
}

/// A function that waited for a lock.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Waiter {
    /// `@ dget`: without the lock's own function.
    pub function: String,
    /// Part of the waits with a known place.
    pub share: f64,
}

/// Locks, those that were waited for longest first.
pub fn locks(ledger: &Ledger<'_>) -> Vec<LockRow> {
    rows(ledger, false)
}

/// Locks as in [`locks`], with the locks of all objects of one type counted as one.
pub fn lock_groups(ledger: &Ledger<'_>) -> Vec<LockRow> {
    rows(ledger, true)
}

#[derive(Clone, Copy, Default)]
struct Sum {
    acquisitions: u64,
    contended: u64,
    bounces: u64,
    wait: u64,
    hold: u64,
}

#[derive(Default)]
struct Gathered {
    sums: Vec<Sum>,
    hold_max: u64,
    wait_max: u64,
    objects: BTreeSet<(usize, u32)>,
    waiters: BTreeMap<String, u64>,
}

/// Name, kind, and, of a lock that is not in a group, which object it is in and where.
type LockKey = (String, LockKind, Option<(ObjectKey, u64)>);

fn rows(ledger: &Ledger<'_>, group: bool) -> Vec<LockRow> {
    let mut gathered: BTreeMap<LockKey, Gathered> = BTreeMap::new();
    for lock in &ledger.profile.locks {
        let Some(seed) = ledger.seed(lock.seed) else { continue };
        let object = ledger.object(lock.seed, lock.object);
        let name = object.map_or_else(
            || format!("object {}+{}", lock.object, lock.offset),
            |object| name(ledger, object, lock.offset, group),
        );
        let own = object.filter(|_| !group).map(|object| (ObjectKey::of(object), lock.offset));
        let one = gathered.entry((name, lock.kind, own)).or_default();
        one.sums.resize(ledger.seeds.len(), Sum::default());
        add(&mut one.sums[seed], lock);
        one.hold_max = one.hold_max.max(lock.hold_max);
        one.wait_max = one.wait_max.max(lock.wait_max);
        one.objects.insert((seed, lock.object));
        for (site, count) in &lock.waiters {
            let Some(site) = ledger.site(lock.seed, *site) else { continue };
            let function = ledger.function(site);
            let caller =
                function.split_once("] @ ").map_or(function.as_str(), |(_, caller)| caller);
            let all = one.waiters.entry(format!("@ {caller}")).or_default();
            *all = all.saturating_add(*count);
        }
    }
    let rows = gathered.into_iter();
    let mut rows: Vec<_> =
        rows.map(|((name, kind, _), one)| finish(ledger, name, kind, one)).collect();
    let order = |row: &LockRow| (row.wait_total.mean, row.acquisitions.mean);
    rows.sort_by(|one, other| {
        let (one, other) = (order(one), order(other));
        other.0.total_cmp(&one.0).then(other.1.total_cmp(&one.1))
    });
    rows
}

/// Object and field; a lock that is an object of its own has its name only.
fn name(ledger: &Ledger<'_>, object: &Object, offset: u64, group: bool) -> String {
    let field = ledger.field(object, offset, group).path;
    let structure = structure_of(object);
    match field.chars().next() {
        None => structure,
        Some('[' | '+') => format!("{structure}{field}"),
        Some(_) => format!("{structure}.{field}"),
    }
}

fn add(sum: &mut Sum, lock: &Lock) {
    let fields = [
        (&mut sum.acquisitions, lock.acquisitions),
        (&mut sum.contended, lock.contended),
        (&mut sum.bounces, lock.bounces),
        (&mut sum.wait, lock.wait_total),
        (&mut sum.hold, lock.hold_total),
    ];
    for (sum, more) in fields {
        *sum = sum.saturating_add(more);
    }
}

fn finish(ledger: &Ledger<'_>, name: String, kind: LockKind, one: Gathered) -> LockRow {
    let cores = ledger.profile.meta.machine.cores.max(1) as f64;
    let pairs = |part: &dyn Fn(&Sum) -> u64, whole: &dyn Fn(&Sum) -> u64| {
        let pairs = one.sums.iter().map(|sum| (part(sum) as f64, whole(sum) as f64));
        Estimate::ratio(&pairs.collect::<Vec<_>>())
    };
    let of_time = |part: &dyn Fn(&Sum) -> u64, cores: f64| {
        // A seed without a run took no time.
        let times = ledger.profile.runs.iter().map(|run| run.cycles).chain(std::iter::repeat(0));
        let pairs = one
            .sums
            .iter()
            .zip(times)
            .map(|(sum, cycles)| (part(sum) as f64, cycles as f64 * cores));
        Estimate::ratio(&pairs.collect::<Vec<_>>())
    };
    let threads = ledger.profile.runs.iter().map(|run| run.threads).max().unwrap_or(0);
    let most = cores.max(threads as f64);
    // No hold and no wait is longer than the run.
    let within = |part: &dyn Fn(&Sum) -> u64, by: f64, by_more: f64| match of_time(part, by) {
        share if share.mean > 1.0 => of_time(part, by_more),
        share => share,
    };
    let waits: u64 = one.waiters.values().fold(0, |sum, count| sum.saturating_add(*count));
    let mut waiters: Vec<_> = one.waiters.iter().filter(|(_, count)| **count != 0).collect();
    waiters.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let waiter = |(function, count): (&String, &u64)| Waiter {
        function: function.clone(),
        share: *count as f64 / waits as f64,
    };
    let mut objects: BTreeMap<usize, u64> = BTreeMap::new();
    one.objects.iter().for_each(|(seed, _)| *objects.entry(*seed).or_default() += 1);
    let objects = objects.into_values().max().unwrap_or(0);
    let many = objects.max(1) as f64;
    LockRow {
        name,
        kind,
        objects,
        acquisitions: Estimate::of_counts(one.sums.iter().map(|sum| sum.acquisitions)),
        contended_share: pairs(&|sum| sum.contended, &|sum| sum.acquisitions),
        bounce_share: pairs(&|sum| sum.bounces, &|sum| sum.acquisitions),
        utilisation: within(&|sum| sum.hold, many, many * most),
        hold_mean: pairs(&|sum| sum.hold, &|sum| sum.acquisitions),
        hold_max: one.hold_max,
        wait_mean: pairs(&|sum| sum.wait, &|sum| sum.contended),
        wait_max: one.wait_max,
        wait_total: Estimate::of_counts(one.sums.iter().map(|sum| sum.wait)),
        wait_share: within(&|sum| sum.wait, cores, most),
        waiters: waiters.into_iter().map(waiter).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::fixture::{empty, profile};

    #[test]
    fn columns_are_in_virtual_time() {
        let rows = locks(&Ledger::new(&profile()));
        assert_eq!(rows.len(), 1);
        let row = &rows[0];
        assert_eq!(
            (row.name.as_str(), row.kind, row.objects),
            ("Super.root.lock", LockKind::Word, 1)
        );
        assert_eq!((row.acquisitions.mean, row.contended_share.mean), (1000.0, 0.15));
        assert_eq!((row.bounce_share.mean, row.hold_mean.mean, row.hold_max), (0.6, 26.0, 2600));
        // 156,000 cycles by 300 that waited.
        assert_eq!((row.wait_mean.mean, row.wait_max), (520.0, 10_400));
        // 52,000 held of 260,000 + 312,000; 156,000 waited of four times as much.
        assert_eq!(row.utilisation.mean, 52_000.0 / 572_000.0);
        assert_eq!(row.wait_share.mean, 156_000.0 / (4.0 * 572_000.0));
        assert_eq!(row.waiters, [Waiter { function: "@ dget".to_owned(), share: 1.0 }]);
    }

    #[test]
    fn locks_of_one_type_are_one_group() {
        let mut profile = profile();
        for seed in [1, 2] {
            for object in [2, 3] {
                let lock = profile.locks[0].clone();
                profile.locks.push(Lock { seed, object, offset: 64, ..lock });
            }
        }
        let name = |row: &LockRow| (row.name.clone(), row.objects);
        let (single, grouped) =
            (locks(&Ledger::new(&profile)), lock_groups(&Ledger::new(&profile)));
        assert_eq!(single.iter().filter(|row| row.name == "Dentry.count").count(), 2);
        let names: Vec<_> = grouped.iter().map(name).collect();
        assert_eq!(names, [("Dentry.count".to_owned(), 2), ("Super.root.lock".to_owned(), 1)]);
        assert_eq!(grouped[0].acquisitions.mean, 2000.0);
    }

    /// Readers that hold a lock at the same time, a lock of each of many objects, and more waiting threads than cores gave
    /// 400 % of the time and more.
    #[test]
    fn no_share_is_above_the_whole() {
        let mut profile = profile();
        profile.runs.iter_mut().for_each(|run| run.threads = 40);
        let cycles = profile.runs.iter().map(|run| run.cycles).max().unwrap();
        for lock in &mut profile.locks {
            (lock.hold_total, lock.wait_total) = (cycles * 7, cycles * 30);
        }
        let rows = locks(&Ledger::new(&profile));
        for share in [rows[0].utilisation.mean, rows[0].wait_share.mean] {
            assert!((0.1..=1.0).contains(&share), "{:?}", rows[0]);
        }
    }

    #[test]
    fn what_is_missing_is_no_panic() {
        assert!(locks(&Ledger::new(&empty())).is_empty());
        let mut damaged = profile();
        damaged.objects.clear();
        damaged.sites.clear();
        damaged.runs.clear();
        let rows = locks(&Ledger::new(&damaged));
        assert_eq!((rows[0].name.as_str(), rows[0].utilisation.mean), ("object 0+8", 0.0));
        assert!(rows[0].waiters.is_empty());
    }
}
