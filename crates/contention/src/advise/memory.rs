//! Rules about objects as wholes, and about locks.
//!
//! # Boundary
//! Where objects lie and die, how locks are taken; fields are in [`super::sharing`].
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Thresholds: a lock is hot from a tenth of its acquisitions waiting, and changes cores if half do; a
//! hold is short below ten transfers of a line, long above. Weakness: a profile has no frees, so where
//! objects die is told by the functions that touch them last, which are known by their names.

use super::scene::{Scene, cores, short, total};
use super::{Advice, Fact, Rule};
use crate::analysis::Estimate;
use crate::ledger::{Ledger, Sum, structure_of, values};
use crate::patterns::counted;
use crate::statistics::number;
use std::collections::{BTreeMap, BTreeSet};
use uvfs_coherence::profile::{LockKind, Object, ObjectKind, Sample};

/// The name of an object's type in a what-if.
fn layout(ledger: &Ledger<'_>, object: &Object) -> Option<String> {
    if object.kind == ObjectKind::Global {
        return Some(object.name.clone());
    }
    let name = &ledger.type_of(object)?.name;
    (!object.frames.is_empty()).then(|| short(counted(name).unwrap_or(name)).to_owned())
}

/// 3. Elements or objects smaller than a line, several of them on one, missed falsely by several cores.
pub(super) fn pad_elements(scene: &Scene<'_>, all: &mut Vec<Advice>) {
    let ledger = scene.ledger;
    // The elements on each real line, and their costs.
    type Line = (BTreeSet<(u32, u64)>, BTreeSet<u32>);
    let mut lines: BTreeMap<(String, u64, u64), Line> = BTreeMap::new();
    let whole = |sample: &Sample| -> Option<(String, u64, u64, u64)> {
        let object = ledger.object(sample.seed, sample.object)?;
        let size = match ledger.type_of(object) {
            Some(kind) if object.array => kind.size,
            _ => object.size,
        };
        if size == 0 || size >= ledger.line_bytes {
            return None;
        }
        let name = ledger.spot(object, sample.offset).structure;
        let element = if object.array { sample.offset / size } else { 0 };
        Some((name, element, ledger.line(object, sample.offset), size))
    };
    let mut sizes: BTreeMap<String, (u64, Option<String>)> = BTreeMap::new();
    for sample in &ledger.profile.samples {
        let Some((name, element, line, size)) = whole(sample) else { continue };
        let object = ledger.object(sample.seed, sample.object);
        let layout = object.and_then(|object| layout(ledger, object));
        sizes.entry(name.clone()).or_insert((size, layout));
        let (elements, used_by) = lines.entry((name, sample.seed, line)).or_default();
        elements.insert((sample.object, element));
        used_by.extend(cores(&sample.cores));
    }
    let crowded: BTreeSet<&(String, u64, u64)> = lines
        .iter()
        .filter(|(_, (elements, cores))| elements.len() > 1 && cores.len() > 1)
        .map(|(key, _)| key)
        .collect();
    let costs = ledger.sums(|_, sample| {
        let (name, _, line, _) = whole(sample)?;
        let key = (name, sample.seed, line);
        crowded.contains(&key).then_some(key.0)
    });
    for (name, costs) in costs {
        let sum = total(&costs);
        if sum.false_shared * 2 <= sum.count {
            continue;
        }
        let on = crowded.iter().filter(|key| key.0 == name);
        let most = on.map(|key| lines[*key].0.len()).max().unwrap_or(0);
        let (size, layout) = &sizes[&name];
        all.push(Advice {
            rule: Rule::PadElements,
            about: name.clone(),
            remedy: format!(
                "Give each {name} a line of its own: align or pad it to {} bytes.",
                ledger.line_bytes
            ),
            evidence: vec![Fact {
                what: name.clone(),
                found: format!(
                    "{size} bytes each, up to {most} on one line; {} misses, {:.0} % false sharing",
                    sum.count,
                    sum.false_shared as f64 / sum.count.max(1) as f64 * 100.0
                ),
            }],
            what_if: layout
                .as_ref()
                .map(|layout| format!("{layout} -> align {}", ledger.line_bytes)),
            share: scene.share(&values(&costs, |cost| cost.false_latency)),
        });
    }
}

/// 4. Contended objects that lie on more lines than their size needs, each with misses on all of them.
pub(super) fn align_structure(scene: &Scene<'_>, all: &mut Vec<Advice>) {
    let ledger = scene.ledger;
    let line = ledger.line_bytes;
    /// By object, the transfers of each of its lines.
    type Touched = BTreeMap<(u64, u32), BTreeMap<u64, u64>>;
    let mut touched: Touched = BTreeMap::new();
    for sample in ledger.profile.samples.iter().filter(|sample| sample.class.is_transfer()) {
        let Some(object) = ledger.object(sample.seed, sample.object) else { continue };
        let lines = touched.entry((sample.seed, sample.object)).or_default();
        *lines.entry(ledger.line(object, sample.offset)).or_default() += sample.count;
    }
    // By structure: objects across too many lines, all that were seen, an example.
    let mut structures: BTreeMap<String, (u64, u64, &Object)> = BTreeMap::new();
    let mut across: BTreeSet<(u64, u32)> = BTreeSet::new();
    for ((seed, id), lines) in &touched {
        let Some(object) = ledger.object(*seed, *id) else { continue };
        if object.array || object.size == 0 || object.size > line * 64 {
            continue;
        }
        let needed = object.size.div_ceil(line);
        let spans = ledger.line(object, object.size - 1) - object.address / line + 1;
        let entry = structures.entry(structure_of(object)).or_insert((0, 0, object));
        entry.1 += 1;
        // All its lines cost, so one less is one transfer less.
        if spans > needed && lines.len() as u64 == spans {
            entry.0 += 1;
            across.insert((*seed, *id));
        }
    }
    for (name, (wide, seen, object)) in structures {
        if wide * 2 <= seen {
            continue;
        }
        let needed = object.size.div_ceil(line);
        // An aligned object would not pay for the line of the fewest transfers.
        let least = |seed: u64, id: u32| {
            let lines = touched.get(&(seed, id))?;
            lines.iter().min_by_key(|(_, count)| **count).map(|(line, _)| *line)
        };
        let costs = ledger.sums(|ledger, sample| {
            let one = ledger.object(sample.seed, sample.object)?;
            let here = across.contains(&(sample.seed, sample.object))
                && structure_of(one) == name
                && least(sample.seed, sample.object) == Some(ledger.line(one, sample.offset));
            here.then_some(())
        });
        let Some(costs) = costs.get(&()) else { continue };
        all.push(Advice {
            rule: Rule::AlignStructure,
            about: name.clone(),
            remedy: format!(
                "Align {name} to {line} bytes: it would lie on {needed} line{} instead of {}.",
                if needed == 1 { "" } else { "s" },
                needed + 1
            ),
            evidence: vec![Fact {
                what: name.clone(),
                found: format!(
                    "{} bytes, at {} past a line; {wide} of {seen} contended ones lie on {} lines",
                    object.size,
                    object.address % line,
                    needed + 1
                ),
            }],
            what_if: layout(ledger, object).map(|layout| format!("{layout} -> align {line}")),
            share: scene.share(&values(costs, |cost| cost.transfer_latency as f64)),
        });
    }
}

/// Whether a function's name says that it ends an object's life.
fn ends_life(function: &str) -> bool {
    let last = function.rsplit("::").next().unwrap_or(function).to_lowercase();
    let words = ["drop", "free", "dealloc", "destroy", "release", "reclaim", "put"];
    last.split(|letter: char| !letter.is_ascii_alphabetic())
        .any(|part| words.iter().any(|word| part.starts_with(word)))
}

/// 9. At least eight heap objects of a type whose last functions run on other cores than allocated them.
pub(super) fn free_where_allocated(scene: &Scene<'_>, all: &mut Vec<Advice>) {
    let ledger = scene.ledger;
    let homes: BTreeMap<(u64, u32), u32> = ledger
        .profile
        .threads
        .iter()
        .map(|thread| ((thread.seed, thread.id), thread.core))
        .collect();
    let dying = |ledger: &Ledger<'_>, sample: &Sample| -> Option<(String, bool)> {
        let object = ledger.object(sample.seed, sample.object)?;
        let home = *homes.get(&(object.seed, object.thread))?;
        if object.kind != ObjectKind::Heap || !sample.class.is_transfer() {
            return None;
        }
        let function = ledger.function_of(sample.seed, sample.site)?;
        let here = cores(&sample.cores).any(|core| core == home);
        ends_life(&function).then(|| (ledger.spot(object, sample.offset).structure, here))
    };
    let mut objects: BTreeMap<String, BTreeSet<(u64, u32)>> = BTreeMap::new();
    let mut functions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for sample in &ledger.profile.samples {
        if let Some((name, false)) = dying(ledger, sample) {
            objects.entry(name.clone()).or_default().insert((sample.seed, sample.object));
            functions.entry(name).or_default().extend(ledger.function_of(sample.seed, sample.site));
        }
    }
    let costs = ledger.sums(dying);
    for (name, ids) in objects {
        let seeds = ledger.seeds.len().max(1);
        let away = &costs[&(name.clone(), false)];
        let at_home = costs.get(&(name.clone(), true)).map_or(0, |costs| total(costs).count);
        let sum = total(away);
        if ids.len() / seeds < 8 || sum.count <= at_home {
            continue;
        }
        let functions = functions.remove(&name).unwrap_or_default();
        all.push(Advice {
            rule: Rule::FreeWhereAllocated,
            remedy: format!(
                "Let each {name} end on the core that made it: hand finished ones back in batches, or make \
                 them where they are used."
            ),
            evidence: vec![Fact {
                what: name.clone(),
                found: format!(
                    "{} objects a run, {} transfers in {} by cores that did not allocate them, {at_home} by \
                     those that did",
                    ids.len() / seeds,
                    sum.transfers,
                    functions.into_iter().collect::<Vec<_>>().join(", ")
                ),
            }],
            about: name,
            what_if: None,
            share: scene.share(&values(away, |cost| cost.latency() as f64)),
        });
    }
}

/// A lock over all its objects and seeds.
#[derive(Default, Clone)]
struct Taken {
    acquisitions: u64,
    contended: u64,
    bounces: u64,
    hold: u64,
    hold_max: u64,
    /// Seed by seed.
    waits: Vec<f64>,
    shared: u64,
}

impl Taken {
    fn mean_hold(&self) -> f64 {
        self.hold as f64 / self.acquisitions.max(1) as f64
    }

    fn fact(&self, name: &str) -> Fact {
        let part = |part: u64| part as f64 / self.acquisitions.max(1) as f64 * 100.0;
        let all: f64 = self.waits.iter().sum();
        Fact {
            what: name.to_owned(),
            found: format!(
                "{} acquisitions, {:.0} % waited, {:.0} % from another core; held {} cycles on average, {} at \
                 most; {} cycles waited in all",
                self.acquisitions,
                part(self.contended),
                part(self.bounces),
                number(self.mean_hold()),
                self.hold_max,
                number(all)
            ),
        }
    }
}

fn locks(scene: &Scene<'_>) -> BTreeMap<String, Taken> {
    let ledger = scene.ledger;
    let mut locks: BTreeMap<String, Taken> = BTreeMap::new();
    for lock in ledger.profile.locks.iter().filter(|lock| lock.kind.is_held()) {
        let (Some(seed), Some(spot)) = (ledger.seed(lock.seed), ledger.locked(lock)) else {
            continue;
        };
        let taken = locks.entry(spot.name()).or_default();
        taken.waits.resize(ledger.seeds.len(), 0.0);
        taken.waits[seed] += lock.wait_total as f64;
        taken.acquisitions += lock.acquisitions;
        taken.contended += lock.contended;
        taken.bounces += lock.bounces;
        taken.hold += lock.hold_total;
        taken.hold_max = taken.hold_max.max(lock.hold_max);
        if lock.kind == LockKind::Shared {
            taken.shared += lock.acquisitions;
        }
    }
    locks
}

/// The part of all threads' time that waits for a lock must take before it is reported.
const AWAITED: f64 = 0.05;

/// The limit between short and long holds: ten transfers of a line.
fn short_hold(scene: &Scene<'_>) -> f64 {
    scene.ledger.profile.meta.machine.latency.local_transfer.value * 10.0
}

/// 7. Short holds, half of them on another core than the last, a tenth waited for.
pub(super) fn batch_under_lock(scene: &Scene<'_>, all: &mut Vec<Advice>) {
    let time = scene.ledger.time();
    for (name, taken) in locks(scene) {
        let hot = taken.contended * 10 >= taken.acquisitions && taken.acquisitions >= 100;
        if !hot || taken.bounces * 2 < taken.acquisitions || taken.mean_hold() > short_hold(scene) {
            continue;
        }
        all.push(Advice {
            rule: Rule::BatchUnderLock,
            remedy: format!(
                "Do more for each time that {name} is taken: gather the work on its core and hand it over in \
                 batches."
            ),
            evidence: vec![taken.fact(&name)],
            about: name,
            what_if: None,
            share: Estimate::share(&taken.waits, &time),
        });
    }
}

/// 11. Long holds, a tenth waited for; or waits that are a twentieth of all time, whatever part of the acquisitions
///     waits and however short the holds are: a lock that is handed over is seldom found taken, and all wait for it.
pub(super) fn shorten_hold(scene: &Scene<'_>, all: &mut Vec<Advice>) {
    let time = scene.ledger.time();
    for (name, taken) in locks(scene) {
        let share = Estimate::share(&taken.waits, &time);
        let long = taken.mean_hold() > short_hold(scene);
        let hot = taken.contended * 10 >= taken.acquisitions && taken.contended > 0 && long;
        let batched = taken.contended * 10 >= taken.acquisitions && !long;
        let awaited = share.mean >= AWAITED && !batched;
        if !hot && !awaited {
            continue;
        }
        all.push(Advice {
            rule: Rule::ShortenHold,
            remedy: format!(
                "Hold {name} for less: prepare before it, finish after it, or give each part its own lock."
            ),
            evidence: vec![taken.fact(&name)],
            about: name,
            what_if: None,
            share,
        });
    }
}

/// Whether a function's name says that it takes a lock for reading.
fn reads_lock(function: &str) -> bool {
    let name = function.to_lowercase();
    ["rwlock::read", "rwlock::try_read", "read_lock", "rdlock", "lock_shared", "down_read"]
        .iter()
        .any(|word| name.contains(word))
}

/// 10. A word that readers update to share a lock; at most a tenth of the acquisitions are a writer's.
pub(super) fn read_without_lock(scene: &Scene<'_>, all: &mut Vec<Advice>) {
    let locks = locks(scene);
    for (spot, field) in &scene.fields {
        let taken = locks.get(&spot.name());
        let by_kind = taken.is_some_and(|taken| {
            taken.shared > 0 && (taken.acquisitions - taken.shared) * 10 <= taken.shared
        });
        let readers: Vec<&Vec<Sum>> = field
            .functions
            .iter()
            .filter(|(function, (_, writes))| *writes && reads_lock(function))
            .map(|(_, (costs, _))| costs)
            .collect();
        let of_readers: u64 = readers.iter().map(|costs| total(costs).latency()).sum();
        let by_name = of_readers * 10 >= field.sum().latency() * 9 && of_readers > 0;
        if !by_kind && !by_name {
            continue;
        }
        let mut evidence = vec![Fact {
            what: spot.name(),
            found: format!(
                "{} misses of {} cycles on the word itself, by {} cores",
                field.sum().count,
                number(field.sum().latency() as f64 / field.sum().count.max(1) as f64),
                field.cores.len()
            ),
        }];
        if let Some(taken) = taken {
            evidence.push(Fact {
                what: spot.name(),
                found: format!("{} of {} acquisitions only read", taken.shared, taken.acquisitions),
            });
        }
        all.push(Advice {
            rule: Rule::ReadWithoutLock,
            about: spot.name(),
            remedy: format!(
                "Readers write to {} to share it: let them read without a lock, by a sequence count or RCU.",
                spot.name()
            ),
            evidence,
            what_if: None,
            share: scene.share(&values(&field.costs, |cost| cost.transfer_latency as f64)),
        });
    }
}
