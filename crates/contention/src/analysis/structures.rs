//! The dearest cache lines by structure and by subsystem: figure 2 of Gough, Siddha and Chen 2007.
//!
//! # Boundary
//! Sums over lines. Which lines are the same is the ledger's.
//!
//! # Why
//! Twelve structures made up most of the paper's contention; a program's own list is as short. A
//! subsystem is the place of a type's definition: its module in Rust, its file in C; a user may give other
//! patterns ([`Grouping`]). Weakness: memory without a type is counted under the module of
//! the function that allocated it.

use super::Estimate;
use crate::Error;
use crate::ledger::{Ledger, Sum, Sums, mean, share, share_of, structure_of};
use regex::Regex;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use uvfs_coherence::profile::{Object, ObjectKind, Type};

/// How many lines, and how they are put together.
#[derive(Debug, Clone)]
pub struct Grouping {
    /// So many of the dearest lines.
    pub lines: usize,
    /// Patterns of types, objects, files or functions, with the subsystem they are of. The first that
    /// matches counts.
    patterns: Vec<(Regex, String)>,
}

impl Default for Grouping {
    /// 500 lines, as in the paper; no patterns.
    fn default() -> Self {
        Self { lines: 500, patterns: Vec::new() }
    }
}

impl Grouping {
    /// From `PATTERN=NAME` for each; a pattern is a regular expression that may match anywhere.
    ///
    /// # Errors
    /// If one of them is something else.
    pub fn parse<S: AsRef<str>>(rules: &[S]) -> Result<Self, Error> {
        let parse = |rule: &S| {
            let rule = rule.as_ref();
            let (pattern, name) = rule
                .rsplit_once('=')
                .filter(|(pattern, name)| !pattern.is_empty() && !name.is_empty())
                .ok_or_else(|| {
                    Error::new(format!(
                        "group `{rule}`: not a pattern and a name; say PATTERN=NAME"
                    ))
                })?;
            let regex = Regex::new(pattern).map_err(|error| {
                let cause = error.to_string();
                let cause = cause.lines().last().unwrap_or_default().trim();
                Error::new(format!("group `{rule}`: {cause}; the pattern is a regular expression"))
            })?;
            Ok((regex, name.to_owned()))
        };
        let patterns = rules.iter().map(parse).collect::<Result<_, Error>>()?;
        Ok(Self { patterns, ..Self::default() })
    }
}

/// The structures behind the dearest lines.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Structures {
    /// Lines that are counted here.
    pub lines: usize,
    /// Lines that had a transfer at all.
    pub lines_with_transfers: usize,
    /// Part of the latency of all misses that those counted here have.
    pub share: Estimate,
    /// By share.
    pub subsystems: Vec<Subsystem>,
}

impl Structures {
    /// All structures, by share.
    pub fn by_weight(&self) -> Vec<&Structure> {
        let mut all: Vec<_> = self.subsystems.iter().flat_map(|one| &one.structures).collect();
        all.sort_by(|one, other| other.share.mean.total_cmp(&one.share.mean));
        all
    }
}

/// Structures of one place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Subsystem {
    /// `uvfs_vfs::dentry`, `fs/dcache.c`, or the name that a pattern gives.
    pub name: String,
    /// Part of the latency of all misses.
    pub share: Estimate,
    /// By share.
    pub structures: Vec<Structure>,
}

/// One structure: objects of one name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Structure {
    /// `Dentry`.
    pub name: String,
    /// Objects of it in the lines counted.
    pub objects: u64,
    /// Lines counted.
    pub lines: u64,
    /// Transfers.
    pub samples: Estimate,
    /// Part of them from another node.
    pub remote_share: Estimate,
    /// Part of them that are false sharing.
    pub false_share: Estimate,
    /// Cycles of one.
    pub mean_latency: Estimate,
    /// Part of the latency of all misses.
    pub share: Estimate,
    /// The dearest field.
    pub field: String,
}

/// The 500 dearest lines by structure and subsystem.
pub fn structures(ledger: &Ledger<'_>) -> Structures {
    structures_by(ledger, &Grouping::default())
}

#[derive(Default)]
struct Gathered<'a> {
    tallies: Sums,
    /// (seed, line) and (seed, object).
    lines: BTreeSet<(usize, u64)>,
    objects: BTreeSet<(usize, u32)>,
    fields: BTreeMap<String, u64>,
    object: Option<&'a Object>,
}

/// The dearest lines by structure and subsystem, as `grouping` says.
pub fn structures_by(ledger: &Ledger<'_>, grouping: &Grouping) -> Structures {
    let resolve = |seed: u64, object: u32, offset: u64| {
        let object = ledger.object(seed, object)?;
        let (seed, line) = (ledger.seed(seed)?, ledger.line(object, offset));
        Some((seed, object, line, ledger.line_key(seed, line)?))
    };
    let mut weights: BTreeMap<_, u64> = BTreeMap::new();
    for sample in ledger.transfers() {
        if let Some((.., key)) = resolve(sample.seed, sample.object, sample.offset) {
            let mut tally = Sum::default();
            tally.add(sample);
            let all = weights.entry(key).or_default();
            *all = all.saturating_add(tally.weight(ledger.basis));
        }
    }
    let mut ranked: Vec<_> = weights.iter().collect();
    ranked.sort_by_key(|(_, weight)| std::cmp::Reverse(**weight));
    let counted: BTreeSet<_> = ranked.iter().take(grouping.lines).map(|(key, _)| **key).collect();

    let mut gathered: BTreeMap<String, Gathered<'_>> = BTreeMap::new();
    let mut all = ledger.none();
    for sample in ledger.transfers() {
        let Some((seed, object, line, key)) = resolve(sample.seed, sample.object, sample.offset)
        else {
            continue;
        };
        if !counted.contains(key) {
            continue;
        }
        all[seed].add(sample);
        let one = gathered.entry(structure_of(object)).or_default();
        one.tallies.resize(ledger.seeds.len(), Sum::default());
        one.tallies[seed].add(sample);
        one.lines.insert((seed, line));
        one.objects.insert((seed, sample.object));
        one.object.get_or_insert(object);
        let field = ledger.field(object, sample.offset, true).path;
        let weight = one.fields.entry(field).or_default();
        *weight =
            weight.saturating_add(sample.service.saturating_add(sample.queue).max(sample.count));
    }

    let mut subsystems: BTreeMap<String, (Sums, Vec<Structure>)> = BTreeMap::new();
    for (name, one) in gathered {
        let place = one.object.map_or_else(
            || "unknown".to_owned(),
            |object| subsystem(object, ledger.type_of(object), grouping),
        );
        let none = || (ledger.none(), Vec::new());
        let (sums, structures) = subsystems.entry(place).or_insert_with(none);
        sums.iter_mut().zip(&one.tallies).for_each(|(sum, tally)| sum.merge(tally));
        structures.push(finish(ledger, name, &one));
    }
    let by_share = |one: &Estimate, other: &Estimate| other.mean.total_cmp(&one.mean);
    let mut subsystems: Vec<Subsystem> = subsystems
        .into_iter()
        .map(|(name, (tallies, mut structures))| {
            structures.sort_by(|one, other| by_share(&one.share, &other.share));
            Subsystem { name, share: share_of(&tallies, &ledger.totals, ledger.basis), structures }
        })
        .collect();
    subsystems.sort_by(|one, other| by_share(&one.share, &other.share));
    Structures {
        lines: counted.len(),
        lines_with_transfers: weights.len(),
        share: share_of(&all, &ledger.totals, ledger.basis),
        subsystems,
    }
}

fn finish(ledger: &Ledger<'_>, name: String, one: &Gathered<'_>) -> Structure {
    // The most that any seed has: a mean would be no whole number.
    let most = |of: &mut dyn Iterator<Item = usize>| {
        let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
        of.for_each(|seed| *counts.entry(seed).or_default() += 1);
        counts.into_values().max().unwrap_or(0)
    };
    let field = one.fields.iter().rev().max_by_key(|(_, weight)| **weight);
    Structure {
        name,
        objects: most(&mut one.objects.iter().map(|(seed, _)| *seed)),
        lines: most(&mut one.lines.iter().map(|(seed, _)| *seed)),
        samples: mean(&one.tallies, |tally| tally.count),
        remote_share: share(&one.tallies, |tally| tally.remote, |tally| tally.count),
        false_share: share(&one.tallies, |tally| tally.false_shared, |tally| tally.count),
        mean_latency: share(&one.tallies, Sum::latency, |tally| tally.count),
        share: share_of(&one.tallies, &ledger.totals, ledger.basis),
        field: field.map_or_else(String::new, |(field, _)| field.clone()),
    }
}

/// Where an object belongs to.
fn subsystem(object: &Object, kind: Option<&Type>, grouping: &Grouping) -> String {
    let (name, declared) = kind.map_or(("", ""), |one| (one.name.as_str(), one.declared.as_str()));
    let texts = [name, declared, object.name.as_str(), object.allocated_in.as_str()];
    for (pattern, subsystem) in &grouping.patterns {
        if texts.iter().any(|text| pattern.is_match(text)) {
            return subsystem.clone();
        }
    }
    module_of(name)
        .or_else(|| module_of(&object.name))
        .or_else(|| file_of(declared))
        .or_else(|| module_of(&object.allocated_in))
        .unwrap_or_else(|| match object.kind {
            ObjectKind::Stack => "stacks".to_owned(),
            ObjectKind::Global => "globals".to_owned(),
            ObjectKind::ThreadLocal => "thread-locals".to_owned(),
            ObjectKind::Heap | ObjectKind::Other => "untyped memory".to_owned(),
        })
}

/// The module, at most two deep, of the first path in `name` that is not the standard library's:
/// `vfs::dentry` of `alloc::sync::ArcInner<vfs::dentry::slot::Dentry>`.
fn module_of(name: &str) -> Option<String> {
    const LIBRARIES: [&str; 5] = ["alloc", "core", "std", "hashbrown", "proc_macro"];
    let word = |character: char| character.is_alphanumeric() || character == '_';
    let paths = name.split(|character: char| !word(character) && character != ':');
    for path in paths {
        let mut parts: Vec<_> = path.split("::").filter(|part| !part.is_empty()).collect();
        parts.pop();
        match parts.first() {
            Some(first) if !LIBRARIES.contains(first) => {
                return Some(parts[..parts.len().min(2)].join("::"));
            }
            _ => {}
        }
    }
    None
}

/// Directory and file of `file:line`: `fs/dcache.c` of `/src/linux/fs/dcache.c:42`.
fn file_of(declared: &str) -> Option<String> {
    let file = match declared.rsplit_once(':') {
        Some((file, line)) if line.parse::<u64>().is_ok() => file,
        _ => declared,
    };
    let parts: Vec<_> = file.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    (!parts.is_empty()).then(|| parts[parts.len().saturating_sub(2)..].join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::fixture::{anonymous, empty, profile};

    fn names(structures: &Structures) -> Vec<(&str, Vec<&str>)> {
        structures
            .subsystems
            .iter()
            .map(|one| {
                let names = one.structures.iter().map(|one| one.name.as_str()).collect();
                (one.name.as_str(), names)
            })
            .collect()
    }

    #[test]
    fn structures_are_grouped_by_where_they_are_defined() {
        let structures = structures(&Ledger::new(&profile()));
        assert_eq!(
            names(&structures),
            [
                ("vfs::super_block", vec!["Super"]),
                ("globals", vec!["counters"]),
                ("fs/dcache.c", vec!["Dentry"]),
            ]
        );
        assert_eq!((structures.lines, structures.lines_with_transfers), (4, 4));
        assert!((structures.share.mean - 0.9).abs() < 1e-12);
        let dentry = &structures.subsystems[2].structures[0];
        assert_eq!((dentry.objects, dentry.lines, dentry.field.as_str()), (2, 2, "count"));
        assert_eq!((dentry.samples.mean, dentry.share.mean), (20.0, 0.1));
        let top = &structures.subsystems[0].structures[0];
        assert_eq!((top.share.mean, top.field.as_str()), (0.6, "root.lock"));
    }

    #[test]
    fn only_so_many_lines_are_counted() {
        let grouping = Grouping { lines: 2, ..Grouping::default() };
        let structures = structures_by(&Ledger::new(&profile()), &grouping);
        assert_eq!((structures.lines, structures.lines_with_transfers), (2, 4));
        assert_eq!(structures.share.mean, 0.8);
        let sum: f64 = structures.subsystems.iter().map(|one| one.share.mean).sum();
        assert!((sum - 0.8).abs() < 1e-12);
    }

    #[test]
    fn patterns_put_structures_together() {
        let grouping = Grouping::parse(&["Super|dcache=names", "^counters$=statistics"]).unwrap();
        let structures = structures_by(&Ledger::new(&profile()), &grouping);
        assert_eq!(
            names(&structures),
            [("names", vec!["Super", "Dentry"]), ("statistics", vec!["counters"]),]
        );
        for (rule, cause) in
            [("nothing", "PATTERN=NAME"), ("=x", "PATTERN=NAME"), ("(=x", "unclosed")]
        {
            let error = Grouping::parse(&[rule]).unwrap_err().to_string();
            assert!(error.contains(cause) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn modules_and_files_are_found_in_names() {
        let module = |name: &str| module_of(name).unwrap_or_default();
        assert_eq!(module("uvfs_vfs::inode::table::Inode"), "uvfs_vfs::inode");
        assert_eq!(module("alloc::sync::ArcInner<vfs::dentry::Dentry>"), "vfs::dentry");
        assert_eq!(module("[mini::Counter]"), "mini");
        assert_eq!(module("std::sync::Mutex<u64>"), "");
        assert_eq!((module("Dentry"), module(""), module("::")), Default::default());
        let file = |file: &str| file_of(file).unwrap_or_default();
        assert_eq!(file("/src/linux/fs/dcache.c:42"), "fs/dcache.c");
        assert_eq!((file("main.c:1"), file("./a/b/c.c")), ("main.c".into(), "b/c.c".into()));
        assert_eq!(file(""), "");
    }

    #[test]
    fn without_types_there_is_still_an_answer() {
        let structures = structures(&Ledger::new(&anonymous()));
        assert_eq!(names(&structures), [("untyped memory", vec!["heap(48)"])]);
        assert!(super::structures(&Ledger::new(&empty())).subsystems.is_empty());
    }
}
