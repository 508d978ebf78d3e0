//! The layout of a type with the costs of its fields: holes and line boundaries as `pahole` shows them, and
//! heat.
//!
//! # Boundary
//! All objects of the type together; elements of rows too.
//!
//! # Why
//! A layout is changed field by field, so the figures stand beside the fields. Weakness: the profile counts
//! accesses only from the moment a line is contended, so a field of a quiet line has none although it is
//! used.

use super::Estimate;
use super::fields;
use super::notation::{count_cores, unite};
use crate::ledger::{Ledger, Sum, Sums, mean, share, share_of};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use uvfs_coherence::profile::{HEAT_PLACES_MAX, Object, Type};

/// One type.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayoutHeat {
    /// With its path.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Bytes, where known.
    pub align: u64,
    /// File and line, where known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub declared: String,
    /// Bytes of a cache line.
    pub line_bytes: u64,
    /// Objects of it that the profile has, of the seed that has most.
    pub objects: u64,
    /// Where in a cache line objects begin, with how many do; elements of rows by the row's first.
    pub starts: Vec<(u64, u64)>,
    /// The commonest of them: line boundaries are drawn for it.
    pub start: u64,
    /// Whether objects lie differently in their lines, or begin inside one: neighbours then share lines,
    /// and the object may need one line more than it has to.
    pub straddles: bool,
    /// Objects of all seeds with as many places as a profile keeps, [`HEAT_PLACES_MAX`]: accesses to others of
    /// their places may be missing. Transfers are all there.
    pub heat_cut: u64,
    /// Part of the latency of all misses, transfers only.
    pub share: Estimate,
    /// Fields and holes by offset.
    pub fields: Vec<FieldHeat>,
}

/// One field, or a hole.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FieldHeat {
    /// `root.lock`; of a hole `padding`.
    pub path: String,
    /// The field's type; empty for a hole.
    pub type_name: String,
    /// Bytes from the start.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Which line it begins in.
    pub line: u64,
    /// Whether it also lies in the next one.
    pub crosses: bool,
    /// No field, only padding.
    pub hole: bool,
    /// Loads.
    pub reads: Estimate,
    /// Stores.
    pub writes: Estimate,
    /// Atomic read-modify-writes.
    pub updates: Estimate,
    /// Cores that accessed or missed it.
    pub cores: Vec<u64>,
    /// Transfers.
    pub transfers: Estimate,
    /// Part of them from another node.
    pub remote_share: Estimate,
    /// Part of them that are false sharing.
    pub false_share: Estimate,
    /// Cycles of one transfer.
    pub mean_latency: Estimate,
    /// Part of the latency of all misses.
    pub share: Estimate,
}

impl FieldHeat {
    /// Cores that accessed or missed it.
    pub fn core_count(&self) -> u32 {
        count_cores(&self.cores)
    }

    /// Whether anything happened to it.
    pub fn is_touched(&self) -> bool {
        let accesses = self.reads.mean + self.writes.mean + self.updates.mean;
        accesses > 0.0 || self.transfers.mean > 0.0
    }

    /// Whether it was written.
    pub fn is_written(&self) -> bool {
        self.writes.mean + self.updates.mean > 0.0
    }
}

/// The layout of a type by its whole name, its last part, or the name of its objects. `None` if the profile
/// has no such type.
pub fn layout_heat(ledger: &Ledger<'_>, type_name: &str) -> Option<LayoutHeat> {
    find(ledger, type_name).map(|id| layout(ledger, id))
}

/// The layouts of the types with most latency, at most `top`.
pub fn layouts(ledger: &Ledger<'_>, top: usize) -> Vec<LayoutHeat> {
    let mut weights: BTreeMap<u32, u64> = BTreeMap::new();
    for sample in ledger.transfers() {
        let object = ledger.object(sample.seed, sample.object);
        if let Some(kind) = object.and_then(|object| ledger.type_of(object)) {
            let mut tally = Sum::default();
            tally.add(sample);
            let all = weights.entry(kind.id).or_default();
            *all = all.saturating_add(tally.weight(ledger.basis));
        }
    }
    let mut ranked: Vec<_> = weights.into_iter().collect();
    ranked.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    ranked.into_iter().take(top).map(|(id, _)| layout(ledger, id)).collect()
}

fn find(ledger: &Ledger<'_>, name: &str) -> Option<u32> {
    let types = &ledger.profile.types;
    let exact = types.iter().find(|one| one.name == name);
    let last = || types.iter().find(|one| one.name.rsplit("::").next() == Some(name));
    let by_object = || {
        let object = ledger.profile.objects.iter().find(|one| one.name == name)?;
        ledger.type_of(object)
    };
    exact.or_else(last).or_else(by_object).map(|one| one.id)
}

#[derive(Default)]
struct Gathered {
    reads: Vec<u64>,
    writes: Vec<u64>,
    updates: Vec<u64>,
    cores: Vec<u64>,
    tallies: Sums,
}

impl Gathered {
    fn new(seeds: usize) -> Self {
        let zero = || vec![0; seeds];
        Self {
            reads: zero(),
            writes: zero(),
            updates: zero(),
            cores: Vec::new(),
            tallies: vec![Sum::default(); seeds],
        }
    }
}

fn layout(ledger: &Ledger<'_>, id: u32) -> LayoutHeat {
    let kind = ledger.types[&id];
    let seeds = ledger.seeds.len();
    let mut objects: BTreeMap<u64, u64> = BTreeMap::new();
    let mut starts: BTreeMap<u64, u64> = BTreeMap::new();
    let mut rows = false;
    for object in ledger.profile.objects.iter().filter(|one| one.type_id == Some(id)) {
        *objects.entry(object.seed).or_default() += 1;
        *starts.entry(object.address % ledger.line_bytes).or_default() += 1;
        rows |= object.array;
    }
    let commonest = starts.iter().rev().max_by_key(|(_, count)| **count);
    let start = commonest.map_or(0, |(start, _)| *start);

    // By the offset at which the field, or the hole, begins.
    let mut gathered: BTreeMap<u64, Gathered> = BTreeMap::new();
    let mut all = vec![Sum::default(); seeds];
    let place = |object: &Object, offset: u64| {
        if object.type_id != Some(id) || (kind.size != 0 && !object.array && offset >= kind.size) {
            return None;
        }
        let offset = if object.array { offset.checked_rem(kind.size)? } else { offset };
        Some(fields::inside(kind, offset).offset)
    };
    let mut places: BTreeMap<(usize, u32), usize> = BTreeMap::new();
    for heat in &ledger.profile.heat {
        let object = ledger.object(heat.seed, heat.object);
        let at = object.and_then(|object| place(object, heat.offset));
        let (Some(at), Some(seed)) = (at, ledger.seed(heat.seed)) else { continue };
        *places.entry((seed, heat.object)).or_default() += 1;
        let one = gathered.entry(at).or_insert_with(|| Gathered::new(seeds));
        one.reads[seed] = one.reads[seed].saturating_add(heat.reads);
        one.writes[seed] = one.writes[seed].saturating_add(heat.writes);
        one.updates[seed] = one.updates[seed].saturating_add(heat.updates);
        unite(&mut one.cores, &heat.cores);
    }
    for sample in ledger.transfers() {
        let object = ledger.object(sample.seed, sample.object);
        let at = object.and_then(|object| place(object, sample.offset));
        let (Some(at), Some(seed)) = (at, ledger.seed(sample.seed)) else { continue };
        let one = gathered.entry(at).or_insert_with(|| Gathered::new(seeds));
        one.tallies[seed].add(sample);
        all[seed].add(sample);
        unite(&mut one.cores, &sample.cores);
    }
    let mut slots = slots(kind);
    // Padding inside the elements of a row that is kept as a pattern.
    let known: BTreeSet<u64> = slots.iter().map(|slot| slot.offset).collect();
    for offset in gathered.keys().filter(|offset| !known.contains(*offset)) {
        slots.push(hole(*offset, 1));
    }
    slots.sort_by_key(|slot| slot.offset);
    let fields = slots.into_iter().map(|slot| {
        let gathered = gathered.remove(&slot.offset).unwrap_or_else(|| Gathered::new(seeds));
        field_heat(ledger, slot, start, gathered)
    });
    let fields = fields.collect();
    let uneven = rows && !kind.size.is_multiple_of(ledger.line_bytes);
    LayoutHeat {
        name: kind.name.clone(),
        size: kind.size,
        align: kind.align,
        declared: kind.declared.clone(),
        line_bytes: ledger.line_bytes,
        objects: objects.into_values().max().unwrap_or(0),
        straddles: starts.len() > 1 || start != 0 || uneven,
        starts: starts.into_iter().collect(),
        start,
        heat_cut: places.values().filter(|count| **count >= HEAT_PLACES_MAX).count() as u64,
        share: share_of(&all, &ledger.totals, ledger.basis),
        fields,
    }
}

/// A field or a hole of a type.
struct Slot {
    path: String,
    type_name: String,
    offset: u64,
    bytes: u64,
    hole: bool,
}

fn hole(offset: u64, bytes: u64) -> Slot {
    let (path, type_name) = ("padding".to_owned(), String::new());
    Slot { path, type_name, offset, bytes, hole: true }
}

/// Fields by offset, each offset once, with the holes between them. Of a row that is kept as a pattern, the
/// fields of its first element stand for all.
fn slots(kind: &Type) -> Vec<Slot> {
    if kind.fields.is_empty() {
        let (path, type_name) = (String::new(), kind.name.clone());
        return vec![Slot { path, type_name, offset: 0, bytes: kind.size, hole: false }];
    }
    let mut fields: Vec<_> = kind.fields.iter().collect();
    fields.sort_by_key(|field| field.offset);
    let (mut slots, mut end) = (Vec::new(), 0);
    let mut seen = BTreeSet::new();
    for field in &fields {
        if field.offset > end {
            slots.push(hole(end, field.offset - end));
        }
        end = end.max(field.offset.saturating_add(field.bytes));
        // Of alternatives, and of a row and its first part, the smallest: the one that look-ups find.
        let smallest = fields.iter().filter(|other| other.offset == field.offset);
        let Some(smallest) = smallest.min_by_key(|other| other.bytes) else { continue };
        if seen.insert(field.offset) {
            slots.push(Slot {
                path: smallest.path.clone(),
                type_name: smallest.type_name.clone(),
                offset: smallest.offset,
                bytes: smallest.bytes,
                hole: false,
            });
        }
    }
    if kind.size > end {
        slots.push(hole(end, kind.size - end));
    }
    slots
}

fn field_heat(ledger: &Ledger<'_>, slot: Slot, start: u64, gathered: Gathered) -> FieldHeat {
    let line = |offset: u64| start.saturating_add(offset) / ledger.line_bytes;
    let Gathered { reads, writes, updates, cores, tallies } = gathered;
    let last = slot.offset.saturating_add(slot.bytes.max(1) - 1);
    FieldHeat {
        line: line(slot.offset),
        crosses: line(slot.offset) != line(last),
        path: slot.path,
        type_name: slot.type_name,
        offset: slot.offset,
        bytes: slot.bytes,
        hole: slot.hole,
        reads: Estimate::of_counts(reads),
        writes: Estimate::of_counts(writes),
        updates: Estimate::of_counts(updates),
        cores,
        transfers: mean(&tallies, |one| one.count),
        remote_share: share(&tallies, |one| one.remote, |one| one.count),
        false_share: share(&tallies, |one| one.false_shared, |one| one.count),
        mean_latency: share(&tallies, Sum::latency, |one| one.count),
        share: share_of(&tallies, &ledger.totals, ledger.basis),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::fixture::{empty, field, profile, type_of};
    use uvfs_coherence::profile::Heat;

    #[test]
    fn fields_holes_and_lines_have_their_heat() {
        let layout = layout_heat(&Ledger::new(&profile()), "vfs::super_block::Super").unwrap();
        let shown: Vec<_> = layout
            .fields
            .iter()
            .map(|one| (one.path.as_str(), one.offset, one.bytes, one.line, one.hole))
            .collect();
        assert_eq!(
            shown,
            [
                ("flags", 0, 8, 0, false),
                ("root.lock", 8, 4, 0, false),
                ("padding", 12, 4, 0, true),
                ("root.hash", 16, 8, 0, false),
                ("padding", 24, 40, 0, true),
                ("statistics", 64, 8, 1, false),
                ("padding", 72, 56, 1, true),
            ]
        );
        let (lock, hash) = (&layout.fields[1], &layout.fields[3]);
        assert_eq!((lock.reads.mean, lock.writes.mean, lock.updates.mean), (10.0, 60.0, 100.0));
        assert_eq!((lock.transfers.mean, lock.core_count(), lock.is_written()), (80.0, 4, true));
        assert_eq!((hash.false_share.mean, hash.is_written()), (1.0, false));
        assert!(!layout.fields[0].is_touched() && hash.is_touched());
        assert_eq!((layout.objects, layout.straddles, layout.share.mean), (1, false, 0.6));
        assert!(layout.fields.iter().all(|one| !one.crosses));
        let fields: f64 = layout.fields.iter().map(|one| one.share.mean).sum();
        assert!((fields - layout.share.mean).abs() < 1e-12);
    }

    #[test]
    fn a_type_is_found_by_its_last_name_and_by_its_objects() {
        let profile = profile();
        for name in ["Super", "counters", "Dentry"] {
            assert!(layout_heat(&Ledger::new(&profile), name).is_some(), "{name}");
        }
        assert_eq!(layout_heat(&Ledger::new(&profile), "Nothing"), None);
        assert!(layouts(&Ledger::new(&empty()), 9).is_empty());
        let names: Vec<_> =
            layouts(&Ledger::new(&profile), 2).into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["vfs::super_block::Super", "AtomicU64"]);
    }

    #[test]
    fn elements_are_folded_and_share_lines() {
        let counters = layout_heat(&Ledger::new(&profile()), "counters").unwrap();
        assert_eq!(counters.fields.len(), 1);
        assert_eq!((counters.fields[0].updates.mean, counters.fields[0].core_count()), (500.0, 2));
        assert!(counters.straddles, "eight of them are in one line");
    }

    #[test]
    fn heat_that_was_cut_is_counted() {
        let mut profile = profile();
        let of_row = |one: &&Heat| one.object == 1 && one.seed == 1;
        let one = profile.heat.iter().find(of_row).unwrap().clone();
        profile.heat.retain(|one| !of_row(&one));
        let room = HEAT_PLACES_MAX as u64;
        let places = (0..room - 1).map(|at| Heat { offset: at * 8, ..one.clone() });
        profile.heat.extend(places);
        assert_eq!(layout_heat(&Ledger::new(&profile), "counters").unwrap().heat_cut, 0);
        profile.heat.push(Heat { offset: room * 8, ..one });
        assert_eq!(layout_heat(&Ledger::new(&profile), "counters").unwrap().heat_cut, 1);
        assert_eq!(layout_heat(&Ledger::new(&profile), "Super").unwrap().heat_cut, 0);
    }

    #[test]
    fn objects_that_begin_inside_lines_are_noted() {
        let mut moved = profile();
        moved.objects.iter_mut().filter(|one| one.id == 3).for_each(|one| one.address += 48);
        let layout = layout_heat(&Ledger::new(&moved), "Dentry").unwrap();
        assert!(layout.straddles);
        assert_eq!(layout.starts, [(0, 2), (48, 2)]);
        moved.objects.iter_mut().filter(|one| one.id == 2).for_each(|one| one.address += 60);
        moved.objects.iter_mut().filter(|one| one.id == 3).for_each(|one| one.address += 12);
        let layout = layout_heat(&Ledger::new(&moved), "Dentry").unwrap();
        assert_eq!((layout.start, layout.straddles), (60, true));
        assert!(layout.fields[0].crosses && layout.fields[0].line == 0);
    }

    #[test]
    fn damaged_types_do_no_harm() {
        let mut profile = profile();
        let far = field("far", u64::MAX - 1, 8, "u64");
        profile.types[0] = type_of(1, "Super", 0, &[field("zero", 0, 0, ""), far]);
        profile.types[1].size = 0;
        assert!(layout_heat(&Ledger::new(&profile), "Super").unwrap().fields.len() >= 2);
        assert_eq!(layout_heat(&Ledger::new(&profile), "counters").unwrap().fields.len(), 1);
    }
}
