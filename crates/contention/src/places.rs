//! What the places of a profile are called, and what each of them cost, seed by seed.
//!
//! # Boundary
//! Names and sums for comparisons, gates and advice. Tables for people are [`crate::analysis`]'s.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! A rule, a comparison and an advice speak of `Super.lock`, whether the program holds it as a variable,
//! in a row (`[Super]`) or behind an `Arc` (`ArcInner<Super>`, field `data.lock`). One function makes
//! that name. Weakness: two types of the same short name are one here.

use crate::analysis::references::References;
use crate::analysis::{Estimate, fields, index};
use std::collections::BTreeMap;
use std::ops::Deref;
use uvfs_coherence::Profile;
use uvfs_coherence::profile::{Lock, Object, Run, Sample};

/// What one place cost under one seed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Cost {
    pub(crate) count: u64,
    pub(crate) transfers: u64,
    pub(crate) remote: u64,
    pub(crate) false_shared: u64,
    /// Service and queue.
    pub(crate) latency: u64,
    /// Of the transfers.
    pub(crate) transfer_latency: u64,
    /// Of the misses that were false sharing, by their share of the count.
    pub(crate) false_latency: f64,
}

impl Cost {
    pub(crate) fn add(&mut self, sample: &Sample) {
        let latency = latency(sample);
        self.count = self.count.saturating_add(sample.count);
        if sample.class.is_transfer() {
            self.transfers = self.transfers.saturating_add(sample.count);
            self.transfer_latency = self.transfer_latency.saturating_add(latency);
        }
        if sample.class.is_remote() {
            self.remote = self.remote.saturating_add(sample.count);
        }
        self.false_shared = self.false_shared.saturating_add(sample.false_shared);
        self.latency = self.latency.saturating_add(latency);
        if sample.count > 0 {
            self.false_latency += latency as f64 * sample.false_shared as f64 / sample.count as f64;
        }
    }
}

/// Cycles of a sample, wait included.
pub(crate) fn latency(sample: &Sample) -> u64 {
    sample.service.saturating_add(sample.queue)
}

/// One cost a seed, in the order of the profile's runs.
pub(crate) type Costs = Vec<Cost>;

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

/// A profile with its references resolved.
pub(crate) struct Places<'p> {
    pub(crate) profile: &'p Profile,
    references: References<'p>,
    seeds: BTreeMap<u64, usize>,
}

/// Places are the references with their names.
impl<'p> Deref for Places<'p> {
    type Target = References<'p>;

    fn deref(&self) -> &Self::Target {
        &self.references
    }
}

impl<'p> Places<'p> {
    pub(crate) fn new(profile: &'p Profile) -> Self {
        let seeds = profile.runs.iter().enumerate();
        Self {
            profile,
            references: References::new(profile),
            seeds: seeds.map(|(index, run)| (run.seed, index)).collect(),
        }
    }

    /// How many seeds.
    pub(crate) fn seeds(&self) -> usize {
        self.profile.runs.len()
    }

    /// Which run has this seed.
    pub(crate) fn seed(&self, seed: u64) -> Option<usize> {
        self.seeds.get(&seed).copied()
    }

    /// What lies at `offset` of `object`; of a row, the field of its element.
    pub(crate) fn spot(&self, object: &Object, offset: u64) -> Spot {
        let structure = index::structure(object);
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
                let line = self.line(object, offset) - object.address / self.line_bytes;
                format!("{structure} line {line}")
            }
        }
    }

    /// The function of a site, as tables print it.
    pub(crate) fn function(&self, seed: u64, id: u32) -> Option<String> {
        Some(self.references.function(self.site(seed, id)?))
    }

    /// All names under which rules may ask for a site: its printed one and those of its frames.
    pub(crate) fn functions(&self, seed: u64, id: u32) -> Vec<String> {
        let Some(site) = self.site(seed, id) else { return Vec::new() };
        let frames = site.frames.iter().map(|frame| frame.function.clone());
        self.function(seed, id).into_iter().chain(frames).collect()
    }

    /// Sums of the samples by a key; samples without one are left out.
    pub(crate) fn costs<K: Ord>(
        &self,
        key: impl Fn(&Self, &Sample) -> Option<K>,
    ) -> BTreeMap<K, Costs> {
        let mut costs: BTreeMap<K, Costs> = BTreeMap::new();
        for sample in &self.profile.samples {
            let Some(seed) = self.seed(sample.seed) else { continue };
            let Some(key) = key(self, sample) else { continue };
            let seeds = || vec![Cost::default(); self.seeds()];
            costs.entry(key).or_insert_with(seeds)[seed].add(sample);
        }
        costs
    }

    /// All samples together.
    pub(crate) fn total(&self) -> Costs {
        let none = || vec![Cost::default(); self.seeds()];
        self.costs(|_, _| Some(())).remove(&()).unwrap_or_else(none)
    }

    /// What all threads together had to spend while there was more than one, seed by seed.
    pub(crate) fn time(&self) -> Vec<f64> {
        self.profile.runs.iter().map(|run| thread_time(self.profile, run)).collect()
    }
}

/// One value a seed.
pub(crate) fn values(costs: &[Cost], value: impl Fn(&Cost) -> f64) -> Vec<f64> {
    costs.iter().map(value).collect()
}

/// A value as a share of one whole a seed.
pub(crate) fn share(parts: &[f64], wholes: &[f64]) -> Estimate {
    let pairs: Vec<_> = parts.iter().copied().zip(wholes.iter().copied()).collect();
    Estimate::ratio(&pairs)
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

/// What an `Arc` or `Rc` with this name of its counted block holds.
pub(crate) fn counted(name: &str) -> Option<&str> {
    let last = name.split('<').next()?.rsplit("::").next()?;
    if !matches!(last, "ArcInner" | "RcInner" | "RcBox") {
        return None;
    }
    let inner = &name[name.find('<')? + 1..name.strip_suffix('>')?.len()];
    // The allocator's parameter, where it is there.
    let mut depth = 0_i32;
    let end = inner.char_indices().find(|(_, letter)| {
        match letter {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth -= 1,
            _ => {}
        }
        depth == 0 && *letter == ','
    });
    Some(end.map_or(inner, |(at, _)| &inner[..at]))
}

/// Whether `name` is what `pattern` asks for: `*` stands for any letters, and a pattern without a path
/// fits a name with any.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    if glob(pattern.as_bytes(), name.as_bytes()) {
        return true;
    }
    // `Foo.bar` fits `a::b::Foo.bar`; only separators outside of angle brackets begin a name.
    let mut depth = 0_i32;
    let bytes = name.as_bytes();
    (0..bytes.len()).any(|at| {
        match bytes[at] {
            b'<' => depth += 1,
            b'>' => depth -= 1,
            _ => {}
        }
        let starts = depth == 0 && at >= 2 && &bytes[at - 2..at] == b"::";
        starts && glob(pattern.as_bytes(), &bytes[at..])
    })
}

/// Whether the type called `name` is the one that `pattern` asks for: as [`fits`], and paths may be left out
/// of its parameters as well, or all of these: `RwLock` and `RwLock<Table>` are `a::RwLock<b::Table>`.
pub(crate) fn means(pattern: &str, name: &str) -> bool {
    let short = without_paths(name);
    let bare = short.find('<').filter(|at| *at > 0).map_or("", |at| &short[..at]);
    fits(pattern, name) || fits(pattern, &short) || !bare.is_empty() && fits(pattern, bare)
}

/// `a::Foo<b::Bar>` is `Foo<Bar>`.
fn without_paths(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("::") {
        short.push_str(&rest[..at]);
        let is_of_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        short.truncate(short.trim_end_matches(is_of_name).len());
        rest = &rest[at + 2..];
    }
    short + rest
}

fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p, n));
            p += 1;
        } else if p < pattern.len() && pattern[p] == name[n] {
            p += 1;
            n += 1;
        } else if let Some((at, matched)) = star {
            star = Some((at, matched + 1));
            p = at + 1;
            n = matched + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|letter| *letter == b'*')
}

/// The nearest of `names` to what someone wrote, if it is near enough to be meant.
pub(crate) fn nearest<'n>(
    wanted: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    let wanted = wanted.to_lowercase();
    let far = |name: &str| edits(&wanted, &name.to_lowercase());
    let best = names.into_iter().map(|name| (far(name), name)).min()?;
    (best.0 <= (wanted.chars().count() / 3).max(2)).then_some(best.1)
}

/// Letters to insert, delete or change.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, letter) in from.chars().enumerate() {
        let mut corner = row[0];
        row[0] = line + 1;
        for (column, other) in to.iter().enumerate() {
            let change = corner + usize::from(letter != *other);
            corner = row[column + 1];
            row[column + 1] = change.min(corner + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Builder;

    /// "no type `RwLock`; did you mean `RwLock`?"
    #[test]
    fn a_generic_type_is_called_as_people_call_it() {
        let name = "std::sync::poison::rwlock::RwLock<tables::Table, std::Global>";
        for pattern in ["RwLock", "RwLock<Table, Global>", "RwLock<Table*", name] {
            assert!(means(pattern, name), "{pattern}");
        }
        for pattern in ["Table", "Lock", "RwLock<Other>", "poison", "rwlock"] {
            assert!(!means(pattern, name), "{pattern}");
        }
        assert!(means("ArcInner<Atomic<u64>>", "alloc::sync::ArcInner<epoch::Atomic<u64>>"));
        assert!(means("Foo", "a::Foo") && !means("", "<a::Foo as b::Bar>::Baz"));
    }

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
        let places = Places::new(&profile);
        let name = |id, offset| places.spot(places.object(0, id).unwrap(), offset).name();
        assert_eq!(name(single, 8), "Super.hash");
        assert_eq!(name(row, 24), "Super.hash");
        assert_eq!(name(arc, 24), "Super.hash");
        assert_eq!(name(arc, 0), "ArcInner<Super>.strong");
        assert_eq!(name(single, 20), "Super+20");
        let line = |id, offset| places.line_name(places.object(0, id).unwrap(), offset);
        assert_eq!(line(single, 8), "Super line 0");
        assert_eq!(line(row, 40), "Super row");
    }

    #[test]
    fn patterns_fit_names_with_and_without_paths() {
        assert!(fits("Foo.bar", "Foo.bar"));
        assert!(fits("Foo.bar", "a::b::Foo.bar"));
        assert!(fits("walk::*", "uvfs::walk::fast"));
        assert!(fits("Foo.*", "Foo.a.b"));
        assert!(fits("*", ""));
        assert!(!fits("Foo.bar", "XFoo.bar"));
        assert!(!fits("Foo.bar", "Foo.bar2"));
        assert!(!fits("Foo", "Arc<a::Foo"));
        assert!(fits("a*b*c", "aXXbYYc"));
        assert!(!fits("a*b*c", "aXXcYYb"));
    }

    #[test]
    fn counted_blocks_are_seen_through() {
        assert_eq!(counted("ArcInner<Super>"), Some("Super"));
        assert_eq!(counted("alloc::sync::ArcInner<a::B<C, D>, Global>"), Some("a::B<C, D>"));
        assert_eq!(counted("ArcInner"), None);
        assert_eq!(counted("Vec<Super>"), None);
    }

    #[test]
    fn near_names_are_found_and_far_ones_not() {
        assert_eq!(nearest("Dentri", ["Inode", "Dentry"]), Some("Dentry"));
        assert_eq!(nearest("completely", ["Inode", "Dentry"]), None);
        assert_eq!(edits("kitten", "sitting"), 3);
    }

    #[test]
    fn costs_are_kept_apart_by_seed() {
        let mut builder = Builder::new(4, 2, 2);
        let kind = builder.kind("Super", 16, &[("lock", 0, 4), ("hash", 8, 8)]);
        let object = builder.object("Super", 0x1000, 16, Some(kind), false);
        let site = builder.site("f", uvfs_coherence::profile::Operation::Load, 8);
        builder.miss(object, 8, site).counts(&[10, 20]).falsely(1.0).costs(100);
        let profile = builder.done();
        let places = Places::new(&profile);
        let costs = places.costs(|places, sample| Some(places.sampled(sample)?.name()));
        let hash = &costs["Super.hash"];
        assert_eq!((hash[0].count, hash[1].count), (10, 20));
        assert_eq!((hash[1].latency, hash[1].false_latency), (2000, 2000.0));
        assert_eq!(places.total()[0].transfers, 10);
    }
}
