//! A profile with its references resolved, and what is the same thing in two of its runs.
//!
//! # Boundary
//! Look-ups and identities; no sums but those by which things are ranked.
//!
//! # Why
//! A program may allocate in another order under another seed, so a line is known by the object in it
//! (its name, where it was allocated, how many were before it, which of its lines), not by its address.
//! Where several objects lie in one line, the dearest of them gives the line its identity. Weakness: if
//! threads race to allocate, the third object of a site in one run may be the fourth in another; their
//! tables are then mixed, their groups are not.

use super::Estimate;
use super::fields::{self, Named};
use super::references::References;
use crate::names;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use uvfs_coherence::Profile;
use uvfs_coherence::profile::{Object, ObjectKind, Operation, Ordering, Place, Run, Sample, Site};

/// What the weights of a profile's samples are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Cycles, as they should be.
    Latency,
    /// Their number, since the profile has no latencies.
    Count,
}

/// The same object in every run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    kind: ObjectKind,
    name: String,
    frames: Vec<Place>,
    ordinal: u64,
    /// Of one that nothing else tells apart.
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

/// The same instruction, as far as the tables tell, in every run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SiteKey {
    pub(crate) place: Place,
    pub(crate) operation: Operation,
    pub(crate) bytes: u32,
    pub(crate) ordering: Ordering,
    pub(crate) function: String,
}

/// Sums of one seed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) count: u64,
    pub(crate) remote: u64,
    pub(crate) false_shared: u64,
    pub(crate) service: u64,
    pub(crate) queue: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, sample: &Sample) {
        self.count = self.count.saturating_add(sample.count);
        if sample.class.is_remote() {
            self.remote = self.remote.saturating_add(sample.count);
        }
        self.false_shared = self.false_shared.saturating_add(sample.false_shared);
        self.service = self.service.saturating_add(sample.service);
        self.queue = self.queue.saturating_add(sample.queue);
    }

    pub(crate) fn merge(&mut self, other: &Tally) {
        self.count = self.count.saturating_add(other.count);
        self.remote = self.remote.saturating_add(other.remote);
        self.false_shared = self.false_shared.saturating_add(other.false_shared);
        self.service = self.service.saturating_add(other.service);
        self.queue = self.queue.saturating_add(other.queue);
    }

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

/// Sums, one a seed.
pub(crate) type Tallies = Vec<Tally>;

/// The mean of `value` over the seeds.
pub(crate) fn mean(tallies: &[Tally], value: impl Fn(&Tally) -> u64) -> Estimate {
    Estimate::of_counts(tallies.iter().map(value))
}

/// `part` as a share of `whole`, over the seeds.
pub(crate) fn share(
    tallies: &[Tally],
    part: impl Fn(&Tally) -> u64,
    whole: impl Fn(&Tally) -> u64,
) -> Estimate {
    let pairs: Vec<_> = tallies.iter().map(|one| (part(one) as f64, whole(one) as f64)).collect();
    Estimate::ratio(&pairs)
}

/// `parts` as a share of `wholes`, by seed.
pub(crate) fn share_of(parts: &[Tally], wholes: &[Tally], basis: Basis) -> Estimate {
    let pairs = parts.iter().zip(wholes);
    let pairs: Vec<_> = pairs
        .map(|(part, whole)| (part.weight(basis) as f64, whole.weight(basis) as f64))
        .collect();
    Estimate::ratio(&pairs)
}

/// See the module.
pub(crate) struct Index<'a> {
    pub(crate) profile: &'a Profile,
    /// In order of the file.
    pub(crate) seeds: Vec<u64>,
    references: References<'a>,
    pub(crate) basis: Basis,
    /// All misses of each seed.
    pub(crate) totals: Tallies,
    runs: BTreeMap<u64, &'a Run>,
    /// The identity of each (seed, line).
    lines: BTreeMap<(usize, u64), LineKey>,
    /// For a (seed, site, line), the object and offset that the site misses most.
    aims: BTreeMap<(usize, u32, u64), (u64, u32, u64)>,
}

/// The same line in every run: the dearest object in it, and which of its lines it is.
pub(crate) type LineKey = (ObjectKey, u64);

impl<'a> Index<'a> {
    pub(crate) fn new(profile: &'a Profile) -> Self {
        let mut seeds: Vec<u64> = Vec::new();
        let run_seeds = profile.runs.iter().map(|run| run.seed);
        for seed in run_seeds.chain(profile.samples.iter().map(|sample| sample.seed)) {
            if seeds.last() != Some(&seed) && !seeds.contains(&seed) {
                seeds.push(seed);
            }
        }
        let latency = profile.samples.iter().any(|sample| sample.service != 0 || sample.queue != 0);
        let mut index = Self {
            profile,
            references: References::new(profile),
            basis: if latency { Basis::Latency } else { Basis::Count },
            totals: vec![Tally::default(); seeds.len()],
            runs: profile.runs.iter().map(|one| (one.seed, one)).collect(),
            lines: BTreeMap::new(),
            aims: BTreeMap::new(),
            seeds,
        };
        index.rank();
        index
    }

    /// Totals, line identities and aims, from the samples.
    fn rank(&mut self) {
        // By object line: weight over all seeds; by real line: the object lines in it.
        let mut weights: BTreeMap<LineKey, (u64, u64)> = BTreeMap::new();
        let mut inside: BTreeMap<(usize, u64), Vec<LineKey>> = BTreeMap::new();
        for sample in &self.profile.samples {
            let Some(seed) = self.seed(sample.seed) else { continue };
            self.totals[seed].add(sample);
            let Some(object) = self.object(sample.seed, sample.object) else { continue };
            let line = self.line(object, sample.offset);
            let key = self.object_line(object, line);
            // Transfers rank before all else; of lines without any, the number of misses decides.
            let mut tally = Tally::default();
            tally.add(sample);
            let moved = if sample.class.is_transfer() { tally.weight(self.basis) } else { 0 };
            let all = weights.entry(key.clone()).or_default();
            *all = (all.0.saturating_add(moved), all.1.saturating_add(tally.count));
            let keys = inside.entry((seed, line)).or_default();
            if !keys.contains(&key) {
                keys.push(key);
            }
            let aim = self.aims.entry((seed, sample.site, line)).or_default();
            if sample.count > aim.0 {
                *aim = (sample.count, sample.object, sample.offset);
            }
        }
        let dearest = |keys: Vec<LineKey>| {
            let rank = |key: &LineKey| (weights.get(key).copied(), std::cmp::Reverse(key.clone()));
            keys.into_iter().max_by_key(rank)
        };
        let lines = inside.into_iter();
        self.lines = lines.filter_map(|(line, keys)| Some((line, dearest(keys)?))).collect();
    }

    /// Which of the seeds.
    pub(crate) fn seed(&self, seed: u64) -> Option<usize> {
        self.seeds.iter().position(|one| *one == seed)
    }

    pub(crate) fn run(&self, seed: u64) -> Option<&'a Run> {
        self.runs.get(&seed).copied()
    }

    fn object_line(&self, object: &Object, line: u64) -> LineKey {
        let first = object.address / self.line_bytes;
        (ObjectKey::of(object), line.wrapping_sub(first))
    }

    /// The identity of a real line of one seed.
    pub(crate) fn line_key(&self, seed: usize, line: u64) -> Option<&LineKey> {
        self.lines.get(&(seed, line))
    }

    /// Where in `line` `site` misses most: an object and an offset in it.
    pub(crate) fn aim(&self, seed: usize, site: u32, line: u64) -> Option<(&'a Object, u64)> {
        let (_, object, offset) = self.aims.get(&(seed, site, line))?;
        Some((self.object(*self.seeds.get(seed)?, *object)?, *offset))
    }

    /// What is at `offset` of `object`; see [`fields::name`].
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
}

/// An index is the references and what is ranked by them.
impl<'a> Deref for Index<'a> {
    type Target = References<'a>;

    fn deref(&self) -> &Self::Target {
        &self.references
    }
}

/// What an object is called: its name, or what is known of it.
pub(crate) fn structure(object: &Object) -> String {
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

/// What tables call the objects of the type `name`, besides that: variables go by their own names.
pub(crate) fn called(profile: &Profile, name: &str) -> BTreeSet<String> {
    let types = profile.types.iter().filter(|kind| kind.name == name);
    let types: BTreeSet<u32> = types.map(|kind| kind.id).collect();
    let objects = profile.objects.iter();
    let objects = objects.filter(|object| object.type_id.is_some_and(|id| types.contains(&id)));
    objects.map(structure).chain([name.to_owned()]).collect()
}

/// An instruction as the published tables write it: `ld8`, `ld4.acq`, `cmpxchg4.acq`, `fetchadd8.rlx`.
/// All atomic bit operations are `fetchor`.
pub fn instruction(operation: Operation, bytes: u32, ordering: Ordering) -> String {
    let name = match operation {
        Operation::Load | Operation::AtomicLoad => "ld",
        Operation::Store | Operation::AtomicStore => "st",
        Operation::FetchAdd => "fetchadd",
        Operation::FetchBits => "fetchor",
        Operation::Exchange => "xchg",
        Operation::CompareExchange => "cmpxchg",
    };
    let ordering = match ordering {
        Ordering::Plain => "",
        Ordering::Relaxed => ".rlx",
        Ordering::Acquire => ".acq",
        Ordering::Release => ".rel",
        Ordering::AcquireRelease => ".acqrel",
        Ordering::SequentiallyConsistent => ".sc",
    };
    match bytes {
        // Hardware samples do not say how many.
        0 => format!("{name}{ordering}"),
        _ => format!("{name}{bytes}{ordering}"),
    }
}

/// Adds the cores of `more` to `cores`.
pub(crate) fn unite(cores: &mut Vec<u64>, more: &[u64]) {
    if cores.len() < more.len() {
        cores.resize(more.len(), 0);
    }
    for (word, more) in cores.iter_mut().zip(more) {
        *word |= more;
    }
}

/// How many cores are in `cores`.
pub(crate) fn count_cores(cores: &[u64]) -> u32 {
    cores.iter().map(|word| word.count_ones()).sum()
}

/// Cores as ranges: `0-3,8`.
pub fn core_ranges(cores: &[u64]) -> String {
    let is_set =
        |core: usize| cores.get(core / 64).is_some_and(|word| word >> (core % 64) & 1 == 1);
    let mut ranges: Vec<String> = Vec::new();
    let mut core = 0;
    while core < cores.len() * 64 {
        if is_set(core) {
            let first = core;
            while is_set(core + 1) {
                core += 1;
            }
            ranges.push(match core - first {
                0 => first.to_string(),
                _ => format!("{first}-{core}"),
            });
        }
        core += 1;
    }
    ranges.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_written_as_in_the_paper() {
        use Operation as O;
        let shown = [
            instruction(O::Load, 8, Ordering::Plain),
            instruction(O::AtomicLoad, 4, Ordering::Acquire),
            instruction(O::Store, 4, Ordering::Plain),
            instruction(O::AtomicStore, 8, Ordering::Release),
            instruction(O::CompareExchange, 4, Ordering::Acquire),
            instruction(O::FetchAdd, 4, Ordering::Release),
            instruction(O::Exchange, 8, Ordering::SequentiallyConsistent),
            instruction(O::FetchBits, 8, Ordering::Acquire),
            instruction(O::FetchAdd, 8, Ordering::AcquireRelease),
            instruction(O::AtomicLoad, 1, Ordering::Relaxed),
        ];
        let expected = [
            "ld8",
            "ld4.acq",
            "st4",
            "st8.rel",
            "cmpxchg4.acq",
            "fetchadd4.rel",
            "xchg8.sc",
            "fetchor8.acq",
            "fetchadd8.acqrel",
            "ld1.rlx",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn cores_are_ranges() {
        assert_eq!(core_ranges(&[]), "");
        assert_eq!(core_ranges(&[0b1_0000_1111]), "0-3,8");
        assert_eq!(core_ranges(&[1 << 63, 0b11]), "63-65");
        let mut cores = vec![1];
        unite(&mut cores, &[2, 1]);
        assert_eq!((core_ranges(&cores), count_cores(&cores)), ("0-1,64".to_owned(), 3));
    }
}
