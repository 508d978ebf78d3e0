//! A profile as the rules of advice see it: fields, their users, and their lines.
//!
//! # Boundary
//! Sums; decides nothing.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Most rules ask the same questions: the cost of this field, its writers, and its neighbours.
//! One pass answers that. Weakness: reads and writes are known only of lines that were contended.

use crate::analysis::Estimate;
use crate::ledger::{Ledger, Spot, Sum, Sums, values};
use crate::patterns::counted;
use std::collections::{BTreeMap, BTreeSet};
use uvfs_coherence::profile::{Object, ObjectKind, Operation};

/// A field of a structure, over all its objects and seeds.
#[derive(Debug, Clone, Default)]
pub(super) struct Field {
    pub(super) costs: Sums,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) updates: u64,
    pub(super) cores: BTreeSet<u32>,
    /// By function: its cost, and whether it writes.
    pub(super) functions: BTreeMap<String, (Sums, bool)>,
    /// The name of the structure in a what-if, where it has one.
    pub(super) layout: Option<String>,
    /// Whether the profile knows its layout, so that its name is a field's.
    pub(super) named: bool,
    pub(super) is_lock: bool,
}

impl Field {
    pub(super) fn sum(&self) -> Sum {
        total(&self.costs)
    }

    /// Whether someone stored to it, as far as is known.
    pub(super) fn is_written(&self) -> bool {
        self.writes + self.updates > 0 || self.functions.values().any(|(_, writes)| *writes)
    }

    /// Part of its misses that are false sharing.
    pub(super) fn false_share(&self) -> f64 {
        let sum = self.sum();
        if sum.count == 0 { 0.0 } else { sum.false_shared as f64 / sum.count as f64 }
    }
}

/// All seeds together.
pub(super) fn total(costs: &[Sum]) -> Sum {
    costs.iter().fold(Sum::default(), |mut sum, cost| {
        sum.merge(cost);
        sum
    })
}

/// See the module.
pub(super) struct Scene<'p> {
    pub(super) ledger: &'p Ledger<'p>,
    pub(super) fields: BTreeMap<Spot, Field>,
    /// Fields that share a line, by the line's name.
    pub(super) lines: BTreeMap<String, BTreeSet<Spot>>,
    /// Latency of all misses, seed by seed.
    pub(super) whole: Vec<f64>,
}

impl<'p> Scene<'p> {
    pub(super) fn new(ledger: &'p Ledger<'p>) -> Self {
        let profile = ledger.profile;
        let whole = values(&ledger.totals, |cost| cost.latency() as f64);
        let mut scene = Self { ledger, fields: BTreeMap::new(), lines: BTreeMap::new(), whole };
        // Which fields lie on the same real line, in any seed.
        let mut real: BTreeMap<(u64, u64), BTreeSet<Spot>> = BTreeMap::new();
        for sample in &profile.samples {
            let object = scene.ledger.object(sample.seed, sample.object);
            let (Some(seed), Some(object)) = (scene.ledger.seed(sample.seed), object) else {
                continue;
            };
            let spot = scene.ledger.spot(object, sample.offset);
            let line = scene.ledger.line(object, sample.offset);
            real.entry((sample.seed, line)).or_default().insert(spot.clone());
            let name = scene.ledger.line_name(object, sample.offset);
            scene.lines.entry(name).or_default().insert(spot.clone());
            let function = scene.ledger.function_of(sample.seed, sample.site);
            let writes = scene
                .ledger
                .site(sample.seed, sample.site)
                .is_some_and(|site| is_write(site.operation));
            let seeds = scene.ledger.seeds.len();
            let field = scene.field(&spot, object);
            field.costs[seed].add(sample);
            field.cores.extend(cores(&sample.cores));
            if let Some(function) = function {
                let entry = field.functions.entry(function);
                let entry = entry.or_insert_with(|| (vec![Sum::default(); seeds], false));
                entry.0[seed].add(sample);
                entry.1 |= writes;
            }
        }
        for heat in &profile.heat {
            let Some(object) = scene.ledger.object(heat.seed, heat.object) else { continue };
            let spot = scene.ledger.spot(object, heat.offset);
            let name = scene.ledger.line_name(object, heat.offset);
            scene.lines.entry(name).or_default().insert(spot.clone());
            let field = scene.field(&spot, object);
            field.reads += heat.reads;
            field.writes += heat.writes;
            field.updates += heat.updates;
            field.cores.extend(cores(&heat.cores));
        }
        for lock in &profile.locks {
            if let Some(field) =
                scene.ledger.locked(lock).and_then(|spot| scene.fields.get_mut(&spot))
            {
                field.is_lock = true;
            }
        }
        // Neighbours of other structures on a real line are neighbours, too.
        for spots in real.values().filter(|spots| spots.len() > 1) {
            let first = spots.iter().next().map(Spot::name).unwrap_or_default();
            let structures: BTreeSet<&String> = spots.iter().map(|spot| &spot.structure).collect();
            if structures.len() > 1 {
                scene.lines.entry(format!("line of {first}")).or_default().extend(spots.clone());
            }
        }
        scene
    }

    fn field(&mut self, spot: &Spot, object: &Object) -> &mut Field {
        let seeds = self.ledger.seeds.len();
        let layout = layout_name(self.ledger, spot, object);
        let named = self.ledger.type_of(object).is_some()
            && !spot.field.starts_with(['+', '('])
            && !spot.field.starts_with("padding");
        let field = self
            .fields
            .entry(spot.clone())
            .or_insert_with(|| Field { costs: vec![Sum::default(); seeds], ..Field::default() });
        field.layout = field.layout.take().or(layout);
        field.named |= named;
        field
    }

    /// A part of the latency of all misses.
    pub(super) fn share(&self, part: &[f64]) -> Estimate {
        Estimate::share(part, &self.whole)
    }
}

/// The name by which a what-if finds the objects: a variable's own, otherwise the type's.
fn layout_name(ledger: &Ledger<'_>, spot: &Spot, object: &Object) -> Option<String> {
    match object.kind {
        ObjectKind::Global => Some(spot.structure.clone()),
        ObjectKind::Heap if !object.frames.is_empty() => {
            let name = &ledger.type_of(object)?.name;
            // A field of the counts of an `Arc` is the counted block's own.
            let name = match counted(name) {
                Some(inner) if counted(&spot.structure).is_none() => inner,
                _ => name,
            };
            Some(short(name).to_owned())
        }
        _ => None,
    }
}

/// A type's name without its path.
pub(super) fn short(name: &str) -> &str {
    let end = name.find('<').unwrap_or(name.len());
    name[..end].rfind("::").map_or(name, |at| &name[at + 2..])
}

pub(super) fn is_write(operation: Operation) -> bool {
    !matches!(operation, Operation::Load | Operation::AtomicLoad)
}

/// The cores of a bit map.
pub(super) fn cores(words: &[u64]) -> impl Iterator<Item = u32> + '_ {
    words.iter().enumerate().flat_map(|(index, word)| {
        (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index as u32 * 64 + bit)
    })
}

/// `Super.hash -> own line`, for one or more fields of one structure.
pub(super) fn on_own_line(layout: &str, fields: &[&str]) -> String {
    match fields {
        [one] => format!("{layout}.{one} -> own line"),
        several => format!("{layout}.{{{}}} -> own line", several.join(", ")),
    }
}
