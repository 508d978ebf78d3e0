//! A profile with its references resolved: what is the same thing in two of its runs, what it is called, and what it cost,
//! seed by seed.
//!
//! # Boundary
//! Look-ups, identities, names and sums. Tables, rules, comparisons, advice and pages are made of these, and of one
//! ledger each: a function is called the same by a report, a rule and a comparison.
//!
//! # Concurrency
//! Belongs to one thread.
//!
//! # Why
//! A program may allocate in another order under another seed, so a line is known by the object in it
//! (its name, where it was allocated, how many were before it, which of its lines), not by its address.
//! Where several objects lie in one line, the dearest of them gives the line its identity. Rules and comparisons speak of
//! `Super.lock`, whether the program holds it as a variable, in a row (`[Super]`) or behind an `Arc` (`ArcInner<Super>`,
//! field `data.lock`): a `Spot`. Weakness: if threads race to allocate, the third object of a site in one run may be the
//! fourth in another; their tables are then mixed, their groups are not.

use crate::analysis::Estimate;
use crate::analysis::fields::{self, Named};
use crate::names;
use crate::patterns::counted;
use serde::{Deserialize, Serialize};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use uvfs_coherence::Profile;
use uvfs_coherence::profile::{
    Frame, Lock, Object, ObjectKind, Operation, Ordering, Place, Run, Sample, Site, Type,
};

/// The meaning of the weights of a profile's samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Cycles, as they should be.
    Latency,
    /// Numbers of misses, since the profile has no latencies.
    Count,
}

/// Identifies an object in every run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    kind: ObjectKind,
    name: String,
    frames: Vec<Place>,
    ordinal: u64,
    /// Address of an object that nothing else tells apart.
    address: u64,
}

impl ObjectKey {
    pub(crate) fn of(object: &Object) -> Self {
        let anonymous = object.name.is_empty() && object.frames.is_empty();
        Self {
            kind: object.kind,
            name: object.name.clone(),
            frames: object.frames.clone(),
            ordinal: object.ordinal,
            address: if anonymous { object.address } else { 0 },
        }
    }
}

/// Identifies an instruction in every run, as far as the tables distinguish instructions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SiteKey {
    pub(crate) place: Place,
    pub(crate) operation: Operation,
    pub(crate) bytes: u32,
    pub(crate) ordering: Ordering,
    pub(crate) function: String,
}

/// The cost of one subject under one seed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sum {
    pub(crate) count: u64,
    pub(crate) transfers: u64,
    pub(crate) remote: u64,
    pub(crate) false_shared: u64,
    pub(crate) service: u64,
    pub(crate) queue: u64,
    /// Latency of the transfers.
    pub(crate) transfer_latency: u64,
    /// Latency of the misses that were false sharing, by their share of the count.
    pub(crate) false_latency: f64,
}

impl Sum {
    pub(crate) fn of(sample: &Sample) -> Self {
        let latency = sample.service.saturating_add(sample.queue);
        let transfer = sample.class.is_transfer();
        let falsely = sample.false_shared as f64 / sample.count as f64;
        Self {
            count: sample.count,
            transfers: if transfer { sample.count } else { 0 },
            remote: if sample.class.is_remote() { sample.count } else { 0 },
            false_shared: sample.false_shared,
            service: sample.service,
            queue: sample.queue,
            transfer_latency: if transfer { latency } else { 0 },
            false_latency: if sample.count > 0 { latency as f64 * falsely } else { 0.0 },
        }
    }

    pub(crate) fn add(&mut self, sample: &Sample) {
        self.merge(&Self::of(sample));
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.count, other.count),
            (&mut self.transfers, other.transfers),
            (&mut self.remote, other.remote),
            (&mut self.false_shared, other.false_shared),
            (&mut self.service, other.service),
            (&mut self.queue, other.queue),
            (&mut self.transfer_latency, other.transfer_latency),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.false_latency += other.false_latency;
    }

    /// Service and queue.
    pub(crate) fn latency(&self) -> u64 {
        self.service.saturating_add(self.queue)
    }

    pub(crate) fn weight(&self, basis: Basis) -> u64 {
        match basis {
            Basis::Latency => self.latency(),
            Basis::Count => self.count,
        }
    }
}

/// One sum a seed, in the order of [`Ledger::seeds`].
pub(crate) type Sums = Vec<Sum>;

/// One value a seed.
pub(crate) fn values(sums: &[Sum], value: impl Fn(&Sum) -> f64) -> Vec<f64> {
    sums.iter().map(value).collect()
}

/// The mean of `value` over the seeds.
pub(crate) fn mean(sums: &[Sum], value: impl Fn(&Sum) -> u64) -> Estimate {
    Estimate::of_counts(sums.iter().map(value))
}

/// `part` as a share of `whole`, over the seeds.
pub(crate) fn share(
    sums: &[Sum],
    part: impl Fn(&Sum) -> u64,
    whole: impl Fn(&Sum) -> u64,
) -> Estimate {
    let pairs: Vec<_> = sums.iter().map(|one| (part(one) as f64, whole(one) as f64)).collect();
    Estimate::ratio(&pairs)
}

/// `parts` as a share of `wholes`, by seed.
pub(crate) fn share_of(parts: &[Sum], wholes: &[Sum], basis: Basis) -> Estimate {
    let pairs = parts.iter().zip(wholes);
    let pairs: Vec<_> = pairs
        .map(|(part, whole)| (part.weight(basis) as f64, whole.weight(basis) as f64))
        .collect();
    Estimate::ratio(&pairs)
}

/// Where a byte is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    /// `Super`.
    pub(crate) structure: String,
    /// `root.lock`; empty if the whole is one value.
    pub(crate) field: String,
}

impl Spot {
    /// `Super.root.lock`.
    pub(crate) fn name(&self) -> String {
        match self.field.as_str() {
            "" => self.structure.clone(),
            field if field.starts_with('+') => format!("{}{field}", self.structure),
            field => format!("{}.{field}", self.structure),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Ledger<'p> {
    pub(crate) profile: &'p Profile,
    pub(crate) line_bytes: u64,
    /// Those of the runs, in order of the file.
    pub(crate) seeds: Vec<u64>,
    pub(crate) basis: Basis,
    /// All misses of each seed.
    pub(crate) totals: Sums,
    pub(crate) types: BTreeMap<u32, &'p Type>,
    objects: BTreeMap<(u64, u32), &'p Object>,
    sites: BTreeMap<(u64, u32), &'p Site>,
    modules: BTreeMap<u32, &'p str>,
    positions: BTreeMap<u64, usize>,
    /// Only tables ask for them.
    ranks: OnceCell<Ranks>,
}

/// Answers that depend on the dearest of several candidates.
#[derive(Debug, Default)]
struct Ranks {
    /// The identity of each (seed, line).
    lines: BTreeMap<(usize, u64), LineKey>,
    /// For a (seed, site, line), the object and offset that the site misses most.
    aims: BTreeMap<(usize, u32, u64), (u64, u32, u64)>,
}

/// Identifies a line in every run: the dearest object in it, and which of its lines it is.
pub(crate) type LineKey = (ObjectKey, u64);

impl<'p> Ledger<'p> {
    /// Makes the ledger of a profile; cheap beside reading the profile.
    pub fn new(profile: &'p Profile) -> Self {
        let mut seeds: Vec<u64> = Vec::new();
        let mut positions = BTreeMap::new();
        let run_seeds = profile.runs.iter().map(|run| run.seed);
        for seed in run_seeds.chain(profile.samples.iter().map(|sample| sample.seed)) {
            positions.entry(seed).or_insert_with(|| {
                seeds.push(seed);
                seeds.len() - 1
            });
        }
        let latency = profile.samples.iter().any(|sample| sample.service != 0 || sample.queue != 0);
        let mut totals = vec![Sum::default(); seeds.len()];
        for sample in &profile.samples {
            totals[positions[&sample.seed]].add(sample);
        }
        Self {
            profile,
            line_bytes: profile.meta.machine.line_bytes.max(1),
            basis: if latency { Basis::Latency } else { Basis::Count },
            totals,
            types: profile.types.iter().map(|one| (one.id, one)).collect(),
            objects: profile.objects.iter().map(|one| ((one.seed, one.id), one)).collect(),
            sites: profile.sites.iter().map(|one| ((one.seed, one.id), one)).collect(),
            modules: profile.modules.iter().map(|one| (one.id, one.path.as_str())).collect(),
            ranks: OnceCell::new(),
            seeds,
            positions,
        }
    }

    fn ranks(&self) -> &Ranks {
        self.ranks.get_or_init(|| self.rank())
    }

    /// Line identities and aims, from the samples.
    fn rank(&self) -> Ranks {
        let mut aims: BTreeMap<(usize, u32, u64), (u64, u32, u64)> = BTreeMap::new();
        // By object line: weight over all seeds; by real line: the object lines in it.
        let mut weights: BTreeMap<LineKey, (u64, u64)> = BTreeMap::new();
        let mut inside: BTreeMap<(usize, u64), Vec<LineKey>> = BTreeMap::new();
        for sample in &self.profile.samples {
            let Some(seed) = self.seed(sample.seed) else { continue };
            let Some(object) = self.object(sample.seed, sample.object) else { continue };
            let line = self.line(object, sample.offset);
            let key = self.object_line(object, line);
            // Transfers rank before all else; of lines without any, the number of misses decides.
            let sum = Sum::of(sample);
            let moved = if sample.class.is_transfer() { sum.weight(self.basis) } else { 0 };
            let all = weights.entry(key.clone()).or_default();
            *all = (all.0.saturating_add(moved), all.1.saturating_add(sum.count));
            let keys = inside.entry((seed, line)).or_default();
            if !keys.contains(&key) {
                keys.push(key);
            }
            let aim = aims.entry((seed, sample.site, line)).or_default();
            if sample.count > aim.0 {
                *aim = (sample.count, sample.object, sample.offset);
            }
        }
        let dearest = |keys: Vec<LineKey>| {
            let rank = |key: &LineKey| (weights.get(key).copied(), std::cmp::Reverse(key.clone()));
            keys.into_iter().max_by_key(rank)
        };
        let lines = inside.into_iter();
        Ranks {
            lines: lines.filter_map(|(line, keys)| Some((line, dearest(keys)?))).collect(),
            aims,
        }
    }

    /// Which of the seeds.
    pub(crate) fn seed(&self, seed: u64) -> Option<usize> {
        self.positions.get(&seed).copied()
    }

    /// One empty sum a seed.
    pub(crate) fn none(&self) -> Sums {
        vec![Sum::default(); self.seeds.len()]
    }

    /// The origin of a miss: the seed's position, the object, and the function.
    pub(crate) fn resolve(&self, sample: &Sample) -> Option<(usize, &'p Object, &'p Site)> {
        let object = self.object(sample.seed, sample.object)?;
        Some((self.seed(sample.seed)?, object, self.site(sample.seed, sample.site)?))
    }

    /// The samples that another core's cache answered.
    pub(crate) fn transfers(&self) -> impl Iterator<Item = &'p Sample> + use<'p> {
        self.profile.samples.iter().filter(|sample| sample.class.is_transfer())
    }

    fn object_line(&self, object: &Object, line: u64) -> LineKey {
        let first = object.address / self.line_bytes;
        (ObjectKey::of(object), line.wrapping_sub(first))
    }

    /// The identity of a real line of one seed.
    pub(crate) fn line_key(&self, seed: usize, line: u64) -> Option<&LineKey> {
        self.ranks().lines.get(&(seed, line))
    }

    /// Where in `line` `site` misses most: an object and an offset in it.
    pub(crate) fn aim(&self, seed: usize, site: u32, line: u64) -> Option<(&'p Object, u64)> {
        let (_, object, offset) = self.ranks().aims.get(&(seed, site, line))?;
        Some((self.object(*self.seeds.get(seed)?, *object)?, *offset))
    }

    /// The field at `offset` of `object`; see [`fields::name`].
    pub(crate) fn field(&self, object: &Object, offset: u64, fold: bool) -> Named {
        let mut named = fields::name(&self.types, object, offset, fold);
        if object.array && object.name.starts_with("hashbrown table") {
            // Behind its buckets, a table has control bytes.
            let path = names::object_field(self.profile, object, offset);
            if !path.starts_with('[') {
                named = Named { path, type_name: None, offset, element: None };
            }
        }
        named
    }

    pub(crate) fn site_key(&self, site: &Site) -> SiteKey {
        SiteKey {
            place: site.place,
            operation: site.operation,
            bytes: site.bytes,
            ordering: site.ordering,
            function: self.function(site),
        }
    }

    pub(crate) fn object(&self, seed: u64, id: u32) -> Option<&'p Object> {
        self.objects.get(&(seed, id)).copied()
    }

    pub(crate) fn site(&self, seed: u64, id: u32) -> Option<&'p Site> {
        self.sites.get(&(seed, id)).copied()
    }

    /// The type of an object, or of its elements.
    pub(crate) fn type_of(&self, object: &Object) -> Option<&'p Type> {
        self.types.get(&object.type_id?).copied()
    }

    /// The last part of a module's path.
    pub(crate) fn module(&self, id: u32) -> &'p str {
        let path = self.modules.get(&id).copied().unwrap_or("?");
        path.rsplit('/').next().unwrap_or(path)
    }

    /// The function of a site, as the tables print it.
    pub(crate) fn function(&self, site: &Site) -> String {
        if !site.function.is_empty() {
            return site.function.clone();
        }
        match site.frames.first() {
            Some(Frame { function, .. }) if !function.is_empty() => function.clone(),
            _ => format!("{}+{:#x}", self.module(site.place.module), site.place.offset),
        }
    }

    /// The number of the real line that holds `offset` of `object`, in its run's address space.
    pub(crate) fn line(&self, object: &Object, offset: u64) -> u64 {
        object.address.wrapping_add(offset) / self.line_bytes
    }

    /// The field at `offset` of `object`; of a row, the field of its element.
    pub(crate) fn spot(&self, object: &Object, offset: u64) -> Spot {
        let structure = structure_of(object);
        let structure = match structure.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(element) if object.array => element.to_owned(),
            _ => structure,
        };
        let named = fields::name(&self.types, object, offset, true).path;
        let field = match named.strip_prefix("[*]") {
            Some(rest) if object.array => rest.strip_prefix('.').unwrap_or(rest).to_owned(),
            _ => named,
        };
        let within = ["data", "value"].iter().find_map(|path| field.strip_prefix(path));
        match (counted(&structure), within) {
            (Some(inner), Some(rest)) if rest.is_empty() || rest.starts_with(['.', '[', '+']) => {
                let rest = rest.strip_prefix('.').unwrap_or(rest);
                Spot { structure: inner.to_owned(), field: rest.to_owned() }
            }
            _ => Spot { structure, field },
        }
    }

    /// The place that a sample missed.
    pub(crate) fn sampled(&self, sample: &Sample) -> Option<Spot> {
        Some(self.spot(self.object(sample.seed, sample.object)?, sample.offset))
    }

    /// Where a lock's word is.
    pub(crate) fn locked(&self, lock: &Lock) -> Option<Spot> {
        Some(self.spot(self.object(lock.seed, lock.object)?, lock.offset))
    }

    /// What a line is called in every run: the structure in it and which of its lines. The lines of a row
    /// of elements smaller than a line are one.
    pub(crate) fn line_name(&self, object: &Object, offset: u64) -> String {
        let structure = self.spot(object, offset).structure;
        match self.type_of(object) {
            Some(kind) if object.array && kind.size > 0 && kind.size < self.line_bytes => {
                format!("{structure} row")
            }
            Some(kind) if object.array && kind.size > 0 => {
                format!("{structure} line {}", offset % kind.size / self.line_bytes)
            }
            _ => {
                // A damaged file may have an offset that leads around the end of memory.
                let first = object.address / self.line_bytes;
                let line = self.line(object, offset).wrapping_sub(first);
                format!("{structure} line {line}")
            }
        }
    }

    /// The function of a site by its number.
    pub(crate) fn function_of(&self, seed: u64, id: u32) -> Option<String> {
        Some(self.function(self.site(seed, id)?))
    }

    /// All names under which rules may ask for a site: its printed one and those of its frames.
    pub(crate) fn functions(&self, seed: u64, id: u32) -> Vec<String> {
        let Some(site) = self.site(seed, id) else { return Vec::new() };
        let frames = site.frames.iter().map(|frame| frame.function.clone());
        std::iter::once(self.function(site)).chain(frames).collect()
    }

    /// Sums of the samples by a key; samples without one are left out.
    pub(crate) fn sums<K: Ord>(
        &self,
        key: impl Fn(&Self, &Sample) -> Option<K>,
    ) -> BTreeMap<K, Sums> {
        let mut sums: BTreeMap<K, Sums> = BTreeMap::new();
        for sample in &self.profile.samples {
            let Some(seed) = self.seed(sample.seed) else { continue };
            let Some(key) = key(self, sample) else { continue };
            sums.entry(key).or_insert_with(|| self.none())[seed].add(sample);
        }
        sums
    }

    /// The time of all threads together while there was more than one, seed by seed.
    pub(crate) fn time(&self) -> Vec<f64> {
        self.profile.runs.iter().map(|run| thread_time(self.profile, run)).collect()
    }
}

/// The name of an object, or its kind and size.
pub(crate) fn structure_of(object: &Object) -> String {
    if !object.name.is_empty() {
        return object.name.clone();
    }
    match object.kind {
        ObjectKind::Heap => format!("heap({})", object.size),
        ObjectKind::Global => format!("global({})", object.size),
        ObjectKind::Stack => "stack".to_owned(),
        ObjectKind::ThreadLocal => "thread-local".to_owned(),
        ObjectKind::Other => "other memory".to_owned(),
    }
}

/// The names of objects of the type `name` in tables, and that name: variables have names of their own.
pub(crate) fn called(profile: &Profile, name: &str) -> BTreeSet<String> {
    let types = profile.types.iter().filter(|kind| kind.name == name);
    let types: BTreeSet<u32> = types.map(|kind| kind.id).collect();
    let objects = profile.objects.iter();
    let objects = objects.filter(|object| object.type_id.is_some_and(|id| types.contains(&id)));
    objects.map(structure_of).chain([name.to_owned()]).collect()
}

/// Cycles of the part of a run with threads.
pub(crate) fn parallel(run: &Run) -> u64 {
    if run.parallel_cycles > 0 { run.parallel_cycles } else { run.cycles }
}

/// [`parallel`] times the cores that threads ran on.
pub(crate) fn thread_time(profile: &Profile, run: &Run) -> f64 {
    let cores = (profile.meta.machine.cores as u64).min(run.threads).max(1);
    parallel(run) as f64 * cores as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Builder;

    #[test]
    fn a_field_has_one_name_wherever_its_structure_lies() {
        let mut builder = Builder::new(2, 1, 1);
        let plain = builder.kind("Super", 16, &[("lock", 0, 4), ("hash", 8, 8)]);
        let shared = builder.kind(
            "ArcInner<Super>",
            32,
            &[("strong", 0, 8), ("weak", 8, 8), ("data.lock", 16, 4), ("data.hash", 24, 8)],
        );
        let single = builder.object("Super", 0x1000, 16, Some(plain), false);
        let row = builder.object("[Super]", 0x2000, 64, Some(plain), true);
        let arc = builder.object("ArcInner<Super>", 0x3000, 32, Some(shared), false);
        let profile = builder.done();
        let ledger = Ledger::new(&profile);
        let name = |id, offset| ledger.spot(ledger.object(0, id).unwrap(), offset).name();
        assert_eq!(name(single, 8), "Super.hash");
        assert_eq!(name(row, 24), "Super.hash");
        assert_eq!(name(arc, 24), "Super.hash");
        assert_eq!(name(arc, 0), "ArcInner<Super>.strong");
        assert_eq!(name(single, 20), "Super+20");
        let line = |id, offset| ledger.line_name(ledger.object(0, id).unwrap(), offset);
        assert_eq!(line(single, 8), "Super line 0");
        assert_eq!(line(row, 40), "Super row");
        // This subtraction once ended the program, with a file that had been changed by hand.
        assert!(line(single, u64::MAX - 0xfff).starts_with("Super line "));
    }

    #[test]
    fn costs_are_kept_apart_by_seed() {
        let mut builder = Builder::new(4, 2, 2);
        let kind = builder.kind("Super", 16, &[("lock", 0, 4), ("hash", 8, 8)]);
        let object = builder.object("Super", 0x1000, 16, Some(kind), false);
        let site = builder.site("f", uvfs_coherence::profile::Operation::Load, 8);
        builder.miss(object, 8, site).counts(&[10, 20]).falsely(1.0).costs(100);
        let profile = builder.done();
        let ledger = Ledger::new(&profile);
        let costs = ledger.sums(|ledger, sample| Some(ledger.sampled(sample)?.name()));
        let hash = &costs["Super.hash"];
        assert_eq!((hash[0].count, hash[1].count), (10, 20));
        assert_eq!((hash[1].latency(), hash[1].false_latency), (2000, 2000.0));
        assert_eq!(ledger.totals[0].transfers, 10);
    }
}
