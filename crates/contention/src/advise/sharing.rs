//! Rules about fields that lie together, and words that many write.
//!
//! # Boundary
//! Fields of lines; objects and locks are in [`super::memory`].
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Thresholds: half of a field's misses are false sharing before its neighbours are blamed; a fifth of a
//! line's latency before a path counts. Weakness: see [`super`].

use super::scene::{Field, Scene, on_own_line, total};
use super::{Advice, Fact, Rule};
use crate::ledger::{Spot, Sum, values};
use crate::statistics::number;
use std::collections::{BTreeMap, BTreeSet};

fn false_latency(costs: &[Sum]) -> Vec<f64> {
    values(costs, |cost| cost.false_latency)
}

fn add(sum: &mut Vec<f64>, part: &[f64]) {
    sum.resize(sum.len().max(part.len()), 0.0);
    sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
}

/// The cost of a field, and its use.
fn fact(spot: &Spot, field: &Field) -> Fact {
    let sum = field.sum();
    let use_ = if field.reads + field.writes + field.updates > 0 {
        format!(
            "; {} reads, {} writes, {} atomic updates",
            field.reads, field.writes, field.updates
        )
    } else {
        String::new()
    };
    let worst = field.functions.iter().max_by_key(|(_, (costs, _))| total(costs).latency());
    let most = worst.map_or(String::new(), |(function, _)| format!("; most in {function}"));
    Fact {
        what: spot.name(),
        found: format!(
            "{} misses of {} cycles, {:.0} % false sharing{use_}{most}",
            sum.count,
            number(sum.latency() as f64 / sum.count.max(1) as f64),
            field.false_share() * 100.0
        ),
    }
}

/// The fields of a line that cost or are used, by structure of the first.
fn fields_of<'s>(scene: &'s Scene<'_>, spots: &'s BTreeSet<Spot>) -> Vec<(&'s Spot, &'s Field)> {
    spots.iter().filter_map(|spot| Some((spot, scene.fields.get(spot)?))).collect()
}

/// 1. No thread writes it, and more than half of its misses are false sharing.
pub(super) fn separate_read_mostly(scene: &Scene<'_>, all: &mut Vec<Advice>) {
    for spots in scene.lines.values() {
        let fields = fields_of(scene, spots);
        let innocent = |(_, field): &&(&Spot, &Field)| {
            !field.is_written() && field.named && field.sum().count > 0 && field.false_share() > 0.5
        };
        let mut groups: BTreeMap<&String, Vec<&(&Spot, &Field)>> = BTreeMap::new();
        for one in fields.iter().filter(innocent) {
            groups.entry(&one.0.structure).or_default().push(one);
        }
        for (structure, victims) in groups {
            let mut avoidable = Vec::new();
            victims.iter().for_each(|(_, field)| add(&mut avoidable, &false_latency(&field.costs)));
            let mut evidence: Vec<Fact> =
                victims.iter().map(|(spot, field)| fact(spot, field)).collect();
            let writers = fields.iter().filter(|(_, field)| field.is_written());
            evidence.extend(writers.map(|(spot, field)| Fact {
                what: format!("{}, beside it", spot.name()),
                found: fact(spot, field).found,
            }));
            let names: Vec<&str> = victims
                .iter()
                .map(|(spot, _)| spot.field.as_str())
                .filter(|name| !name.is_empty())
                .collect();
            let about = victims.iter().map(|(spot, _)| spot.name()).collect::<Vec<_>>().join(", ");
            let what_if = victims[0].1.layout.as_ref().map(|layout| match names.as_slice() {
                [] => format!("{layout} -> align {}", scene.ledger.line_bytes),
                names => on_own_line(layout, names),
            });
            // A line may be here twice, as its structure's and as that of several.
            if all
                .iter()
                .any(|known| known.rule == Rule::SeparateReadMostly && known.about == about)
            {
                continue;
            }
            all.push(Advice {
                rule: Rule::SeparateReadMostly,
                remedy: format!(
                    "Move fields that are only read away from written fields: put {about} on a line of its own, or \
                     with other fields of {structure} that no thread writes."
                ),
                about,
                evidence,
                what_if,
                share: scene.share(&avoidable),
            });
        }
    }
}

/// Words that are updated atomically or are locks, and cost transfers.
fn hot_words<'s>(fields: &[(&'s Spot, &'s Field)]) -> Vec<(&'s Spot, &'s Field)> {
    let mut hot: Vec<_> = fields
        .iter()
        .filter(|(_, field)| (field.updates > 0 || field.is_lock) && field.sum().transfers > 0)
        .copied()
        .collect();
    hot.sort_by_key(|(_, field)| std::cmp::Reverse(field.sum().latency()));
    hot
}

/// 2. Two or more atomic words of one line, with false sharing between them.
///
/// Words of one structure are one proposal, whatever lines they are on: parting the words of one line alone leaves its
/// neighbours as they are.
pub(super) fn isolate_hot_words(scene: &Scene<'_>, all: &mut Vec<Advice>) {
    type Words<'s> = BTreeMap<&'s Spot, &'s Field>;
    let mut structures: BTreeMap<(&str, Option<&str>), Words<'_>> = BTreeMap::new();
    for spots in scene.lines.values() {
        let hot = hot_words(&fields_of(scene, spots));
        if hot.len() < 2 || hot.iter().all(|(_, field)| field.sum().false_latency == 0.0) {
            continue;
        }
        // Words of several structures on one line are parted by aligning the first.
        let (first, field) = hot[0];
        let one = hot.iter().all(|(spot, _)| spot.structure == first.structure);
        let key = (first.structure.as_str(), field.layout.as_deref().filter(|_| one));
        structures.entry(key).or_default().extend(hot);
    }
    for ((_, layout), words) in structures {
        let mut hot: Vec<_> = words.into_iter().collect();
        hot.sort_by_key(|(_, field)| std::cmp::Reverse(field.sum().latency()));
        let mut avoidable = Vec::new();
        hot.iter().for_each(|(_, field)| add(&mut avoidable, &false_latency(&field.costs)));
        let mut names: Vec<String> = hot.iter().map(|(spot, _)| spot.name()).collect();
        names.sort();
        let about = shortened(&names);
        let what_if = layout.and_then(|layout| {
            let fields: Vec<&str> =
                hot.iter().filter(|(_, field)| field.named).map(|(spot, _)| &*spot.field).collect();
            match arrays(&fields).as_slice() {
                [] => None,
                [""] | ["", ..] => Some(format!("{layout} -> align {}", scene.ledger.line_bytes)),
                [one] => Some(format!("{layout}.{one} -> own lines")),
                several => Some(format!("{layout}.{{{}}} -> own lines", several.join(", "))),
            }
        });
        all.push(Advice {
            rule: Rule::IsolateHotWords,
            remedy: format!(
                "Give each of {about} a line of its own: every update of one takes the others away."
            ),
            about,
            evidence: hot.iter().map(|(spot, field)| fact(spot, field)).collect(),
            what_if,
            share: scene.share(&avoidable),
        });
    }
}

/// Names between commas; of many, the first and the last.
fn shortened(names: &[String]) -> String {
    match names {
        [first, .., last] if names.len() > 8 => format!("{first} to {last}"),
        names => names.join(", "),
    }
}

/// Fields of a structure, with the elements of an array as the array. Sorted.
fn arrays<'f>(fields: &[&'f str]) -> Vec<&'f str> {
    let array = |field: &'f str| field.rsplit_once('[').map(|(array, _)| array);
    let several = |name: &str| {
        fields.iter().filter(|field| array(field).is_some_and(|found| found == name)).count() > 1
    };
    let whole = |field: &&'f str| match array(field) {
        Some(name) if several(name) => name,
        _ => *field,
    };
    fields.iter().map(whole).collect::<BTreeSet<_>>().into_iter().collect()
}

/// 12. A lock, and on its line data that is no lock and is missed for the lock's sake.
pub(super) fn isolate_lock(scene: &Scene<'_>, all: &mut Vec<Advice>) {
    for spots in scene.lines.values() {
        let fields = fields_of(scene, spots);
        let locks: Vec<_> =
            fields.iter().filter(|(_, field)| field.is_lock && field.named).collect();
        let [(lock, word)] = locks.as_slice() else { continue };
        // Fields without writers belong to the first rule; those of other structures are out of reach.
        let data: Vec<_> = fields
            .iter()
            .filter(|(spot, field)| {
                !field.is_lock
                    && field.named
                    && field.is_written()
                    && spot.structure == lock.structure
                    && field.false_share() > 0.5
            })
            .collect();
        if data.is_empty() {
            continue;
        }
        let mut avoidable = Vec::new();
        data.iter().for_each(|(_, field)| add(&mut avoidable, &false_latency(&field.costs)));
        let names: Vec<&str> = data.iter().map(|(spot, _)| spot.field.as_str()).collect();
        let others = match names.as_slice() {
            [one] => (*one).to_owned(),
            several => format!("{{{}}}", several.join(", ")),
        };
        let mut evidence = vec![fact(lock, word)];
        evidence.extend(data.iter().map(|(spot, field)| fact(spot, field)));
        all.push(Advice {
            rule: Rule::IsolateLock,
            about: lock.name(),
            remedy: format!(
                "Move {} away from the data it protects: a thread that waits for the lock takes the line from its holder.",
                lock.name()
            ),
            evidence,
            what_if: word
                .layout
                .as_ref()
                .map(|layout| format!("{layout}.{} -> away from {layout}.{others}", lock.field)),
            share: scene.share(&avoidable),
        });
    }
}

/// 5. Functions and fields of a line fall into parts that have nothing in common.
pub(super) fn split_by_path(scene: &Scene<'_>, all: &mut Vec<Advice>) {
    for spots in scene.lines.values() {
        let fields: Vec<_> = fields_of(scene, spots)
            .into_iter()
            .filter(|(_, field)| field.named && field.sum().count > 0)
            .collect();
        let structures: BTreeSet<&String> =
            fields.iter().map(|(spot, _)| &spot.structure).collect();
        if fields.len() < 3 || structures.len() != 1 {
            continue;
        }
        let parts = parts(&fields);
        let line: u64 = fields.iter().map(|(_, field)| field.sum().latency()).sum();
        let weight =
            |part: &[usize]| part.iter().map(|index| fields[*index].1.sum().latency()).sum::<u64>();
        // Paths that matter, each of which writes something the other misses for.
        let mut paths: Vec<&Vec<usize>> = parts
            .iter()
            .filter(|part| weight(part) * 5 >= line)
            .filter(|part| part.iter().any(|index| fields[*index].1.is_written()))
            .collect();
        if paths.len() < 2 {
            continue;
        }
        paths.sort_by_key(|part| std::cmp::Reverse(weight(part)));
        let mut avoidable = Vec::new();
        fields.iter().for_each(|(_, field)| add(&mut avoidable, &false_latency(&field.costs)));
        if avoidable.iter().sum::<f64>() * 2.0 < line as f64 {
            continue;
        }
        let names = |part: &[usize]| -> Vec<&str> {
            part.iter().map(|index| fields[*index].0.field.as_str()).collect()
        };
        let evidence = paths
            .iter()
            .map(|part| {
                let functions: BTreeSet<&str> = part
                    .iter()
                    .flat_map(|index| fields[*index].1.functions.keys().map(String::as_str))
                    .collect();
                Fact {
                    what: names(part).join(", "),
                    found: format!(
                        "{:.0} % of the line's latency, in {}",
                        weight(part) as f64 / line.max(1) as f64 * 100.0,
                        functions.into_iter().collect::<Vec<_>>().join(", ")
                    ),
                }
            })
            .collect();
        let layout = fields[0].1.layout.as_ref();
        let structure = &fields[0].0.structure;
        all.push(Advice {
            rule: Rule::SplitByPath,
            about: structure.clone(),
            remedy: format!(
                "Order the fields of {structure} by the path that uses them: {} on one line, {} on another.",
                names(paths[0]).join(", "),
                names(paths[1]).join(", ")
            ),
            evidence,
            what_if: layout.map(|layout| on_own_line(layout, &names(paths[1]))),
            share: scene.share(&avoidable),
        });
    }
}

/// Fields that are joined by a function that uses both; indices into `fields`.
fn parts(fields: &[(&Spot, &Field)]) -> Vec<Vec<usize>> {
    let mut part: Vec<usize> = (0..fields.len()).collect();
    let mut first_of: BTreeMap<&String, usize> = BTreeMap::new();
    for (index, (_, field)) in fields.iter().enumerate() {
        for function in field.functions.keys() {
            let first = *first_of.entry(function).or_insert(index);
            let (from, to) = (part[index], part[first]);
            part.iter_mut().filter(|one| **one == from).for_each(|one| *one = to);
        }
    }
    let mut parts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, part) in part.iter().enumerate() {
        parts.entry(*part).or_default().push(index);
    }
    parts.into_values().collect()
}

/// 6. Most accesses are atomic updates, by at least four cores and half of them; it is no lock.
pub(super) fn shard_counter(scene: &Scene<'_>, all: &mut Vec<Advice>) {
    let cores = scene.ledger.profile.meta.machine.cores;
    for (spot, field) in &scene.fields {
        let accesses = field.reads + field.writes + field.updates;
        let many = field.cores.len() >= 4.max(cores / 2);
        if field.is_lock || !many || field.updates * 2 <= accesses || field.false_share() > 0.5 {
            continue;
        }
        let true_latency = values(&field.costs, |cost| cost.latency() as f64 - cost.false_latency);
        let mut evidence = vec![fact(spot, field)];
        evidence.push(Fact {
            what: spot.name(),
            found: format!("{} cores update it", field.cores.len()),
        });
        all.push(Advice {
            rule: Rule::ShardCounter,
            about: spot.name(),
            remedy: format!(
                "Split {} into one for each core, each on its own line, and add them up where the value is \
                 read.",
                spot.name()
            ),
            evidence,
            what_if: None,
            share: scene.share(&true_latency),
        });
    }
}

/// 8. A function that only reads misses two or more fields of a line that others write.
pub(super) fn skip_remote_reads(scene: &Scene<'_>, all: &mut Vec<Advice>) {
    for spots in scene.lines.values() {
        let fields = fields_of(scene, spots);
        let structures: BTreeSet<&String> =
            fields.iter().map(|(spot, _)| &spot.structure).collect();
        if structures.len() != 1 || !fields.iter().any(|(_, field)| field.is_written()) {
            continue;
        }
        let functions: BTreeSet<&String> =
            fields.iter().flat_map(|(_, field)| field.functions.keys()).collect();
        for function in functions {
            let used: Vec<_> = fields
                .iter()
                .filter_map(|(spot, field)| Some((spot, field, field.functions.get(function)?)))
                .collect();
            if used.len() < 2 || used.iter().any(|(_, field, (_, writes))| *writes || field.is_lock)
            {
                continue;
            }
            // Truly shared, and by transfers: neither layout nor memory explains them.
            let cost = |index: usize| total(&used[index].2.0);
            let counts: Vec<Sum> = (0..used.len()).map(cost).collect();
            let most = counts.iter().map(|cost| cost.transfers).max().unwrap_or(0);
            let all_missed = counts.iter().filter(|cost| cost.transfers * 4 >= most.max(1)).count();
            let misses: u64 = counts.iter().map(|cost| cost.count).sum();
            let falsely: u64 = counts.iter().map(|cost| cost.false_shared).sum();
            if all_missed < 2 || falsely * 2 > misses {
                continue;
            }
            let mut avoidable = Vec::new();
            for (_, _, (costs, _)) in &used {
                let latency = values(costs, |cost| {
                    cost.transfer_latency as f64
                        - cost.false_latency.min(cost.transfer_latency as f64)
                });
                add(&mut avoidable, &latency);
            }
            let names: Vec<String> = used.iter().map(|(spot, ..)| spot.name()).collect();
            all.push(Advice {
                rule: Rule::SkipRemoteReads,
                about: function.clone(),
                remedy: format!(
                    "{function} reads {} again and again while others write them: decide by local data \
                     first, read them together once, or keep a copy that is seldom refreshed.",
                    names.join(", ")
                ),
                evidence: used
                    .iter()
                    .zip(&counts)
                    .map(|((spot, ..), cost)| Fact {
                        what: spot.name(),
                        found: format!(
                            "{} misses in {function}, {} from other caches, {} of other nodes",
                            cost.count, cost.transfers, cost.remote
                        ),
                    })
                    .collect(),
                what_if: None,
                share: scene.share(&avoidable),
            });
        }
    }
}
