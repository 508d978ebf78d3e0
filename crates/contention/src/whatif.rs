//! The gain of a change of a structure's layout, without editing the program.
//!
//! # Grammar
//! ```text
//! Foo.bar -> own line                the field on a cache line of its own
//! Foo.{a, b} -> own line             both, together
//! Foo.{a, b} -> own lines            each on a line of its own; of an array, each element
//! Foo.lock -> away from Foo.data     the field on another line than the data
//! Foo.lock -> away from Foo.{a, b}
//! Foo -> align 64                    each Foo begins at a multiple of 64 bytes
//! Foo -> pad 64                      Foos of a row lie a multiple of 64 bytes apart
//! Foo -> order a, b, c               these fields first; the others follow in their order
//! ```
//! `Foo` is a type of the profile, with or without its path, of a variable, of the elements of a row, or
//! behind an `Arc` or `Rc`; or it is the name of a variable, which alone is then meant. A field stands for all that lies in it: `root` for `root.lock` and
//! `root.hash`. Fields that share bytes, as in a union, move together.
//!
//! # Boundary
//! Text and profile in, layouts for the runtime out ([`uvfs_coherence::configuration::Relayout`]). The caller runs them.
//!
//! # Why
//! The model can remap an address without a change of the program, so a question such as "what if this field had its own
//! line" costs one more run, not an edit. Fields that are not named keep their places, except under `order`. A real edit
//! gains as much only if the compiler keeps the layout of the other fields. Weakness: an object inside another is not found
//! by its own name; name the outer one and the path.

mod layout;
mod parse;

pub use parse::{Action, Change, parse};

use crate::analysis::Estimate;
use crate::error::Error;
use crate::ledger::parallel;
use crate::patterns::{counted, fits, means, nearest};
use crate::statistics::{Difference, ratio};
use layout::{Block, Element};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use uvfs_coherence::Profile;
use uvfs_coherence::configuration::{Relayout, Target};
use uvfs_coherence::machine::Machine;
use uvfs_coherence::profile::{Field, Object, ObjectKind, Place, Type};

/// A run that a closure is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// On this machine.
    pub machine: Machine,
    /// With these seeds, one run each.
    pub seeds: Vec<u64>,
    /// With these layouts; the runtime finds their modules in [`Request::modules`].
    pub layouts: Vec<Relayout>,
    /// Modules by the numbers that [`Request::layouts`] use.
    pub modules: Vec<PathBuf>,
    /// The changes as the user wrote them, for the profile's head.
    pub what_if: Vec<String>,
}

/// The gain of a change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evidence {
    /// The change, as the user wrote it.
    pub change: String,
    /// Cycles of the part of the run with threads, as it is.
    pub base: Estimate,
    /// Cycles of the part of the run with threads, with the change.
    pub changed: Estimate,
    /// Base minus changed: the gain, in cycles.
    pub gain: Difference,
    /// Changed over base.
    pub ratio: Option<Estimate>,
    /// Whether the interval of the difference excludes zero; `None` with a single seed.
    pub significant: Option<bool>,
    /// Transfers of lines, as it is and with the change.
    pub transfers: (Estimate, Estimate),
    /// Bytes that each object grows by; negative if it shrinks.
    pub bytes_per_object: i64,
    /// Objects that are changed, in the first seed's run.
    pub objects: u64,
}

/// The layouts for a change, one for each place of allocation and each variable of the type.
///
/// # Errors
/// A type or field that the profile does not have; a change that cannot be made; objects that cannot be
/// found again in another run. The line names the part of the text.
pub fn relayouts(profile: &Profile, change: &Change) -> Result<Vec<Relayout>, Error> {
    Ok(planned(profile, change)?.relayouts)
}

/// The meaning of a change for a profile.
struct Plan {
    relayouts: Vec<Relayout>,
    bytes_per_object: i64,
    objects: u64,
}

fn planned(profile: &Profile, change: &Change) -> Result<Plan, Error> {
    let line = profile.meta.machine.line_bytes.max(1);
    let shapes = shapes(profile, change)?;
    let mut relayouts: BTreeMap<Vec<Place>, (u64, Relayout)> = BTreeMap::new();
    let (mut bytes_per_object, mut objects) = (0, 0);
    let first_seed = profile.runs.first().map(|run| run.seed);
    let mut skipped = 0_u64;
    for object in &profile.objects {
        let Some(shape) = shapes.get(&object_key(object, change)) else { continue };
        let Some(target) = target(object) else {
            skipped += 1;
            continue;
        };
        // The place of an object tells how its elements are aligned today.
        let address = object.address.wrapping_add(shape.first);
        let aligned = 1_u64 << address.trailing_zeros().min(line.trailing_zeros());
        let plan = layout::plan(&shape.element, &change.action, line, aligned)
            .map_err(|why| Error::new(format!("\"{}\": {why}", change.text)))?;
        bytes_per_object = i64::try_from(plan.new_size).unwrap_or(i64::MAX)
            - i64::try_from(shape.element.size).unwrap_or(0);
        if Some(object.seed) == first_seed {
            objects += 1;
        }
        let relayout = Relayout {
            target,
            size: shape.element.size,
            new_size: plan.new_size,
            align: plan.align,
            moves: plan.moves,
            first: shape.first,
        };
        let key = object.frames.clone();
        let known = relayouts.entry(key).or_insert((aligned, relayout.clone()));
        // Objects of one place may be aligned differently: the common part stays.
        if aligned < known.0 {
            *known = (aligned, relayout);
        }
    }
    // A place that also allocates other things cannot be told from outside.
    for object in &profile.objects {
        let shape = shapes.get(&object_key(object, change));
        if shape.is_none() && relayouts.remove(&object.frames).is_some() {
            skipped += 1;
        }
    }
    if relayouts.is_empty() {
        let known = profile.objects.iter().filter(|object| object.type_id.is_some()).count();
        let why = if skipped > 0 {
            "its objects lie on stacks, or their places of allocation are unknown or also make other types"
        } else if known == 0 {
            "the profile has no typed objects: build with debug information (-g)"
        } else {
            "no object of it was seen in a contended line"
        };
        return Err(Error::new(format!(
            "\"{}\": nothing of `{}` can be moved: {why}",
            change.text, change.name
        )));
    }
    let relayouts = relayouts.into_values().map(|(_, relayout)| relayout).collect();
    Ok(Plan { relayouts, bytes_per_object, objects })
}

fn target(object: &Object) -> Option<Target> {
    match object.kind {
        ObjectKind::Heap if !object.frames.is_empty() => {
            Some(Target::Allocation(object.frames.clone()))
        }
        ObjectKind::Global => {
            Some(Target::Global { place: *object.frames.first()?, size: object.size })
        }
        _ => None,
    }
}

/// How the named type lies in the objects of one type of the profile.
struct Shape {
    element: Element,
    /// Bytes before it: the counts of an `Arc`.
    first: u64,
}

/// The type of an object, and whether it is meant by its own name.
type Key = (Option<u32>, bool);

fn object_key(object: &Object, change: &Change) -> Key {
    (object.type_id, is_variable(object, change))
}

fn is_variable(object: &Object, change: &Change) -> bool {
    object.kind == ObjectKind::Global && fits(&change.name, &object.name)
}

/// For each type of the profile that is or holds the named one, where its selected fields are; the same
/// for the types of variables of that name.
fn shapes(profile: &Profile, change: &Change) -> Result<BTreeMap<Key, Shape>, Error> {
    let variables = profile.objects.iter().filter(|object| is_variable(object, change));
    let variables: BTreeSet<u32> = variables.filter_map(|object| object.type_id).collect();
    let mut shapes = BTreeMap::new();
    let mut missing = None;
    for kind in &profile.types {
        let of_type = holds(kind, &change.name).map(|(prefix, first)| (prefix, first, false));
        let own = variables.contains(&kind.id).then(|| (String::new(), 0, true));
        for (prefix, first, own) in of_type.into_iter().chain(own) {
            match shape(kind, &prefix, first, change) {
                Ok(shape) => {
                    shapes.insert((Some(kind.id), own), shape);
                }
                Err(none) => missing = Some((none, kind)),
            }
        }
    }
    match (shapes.is_empty(), missing) {
        (false, _) => Ok(shapes),
        (true, Some((none, kind))) => Err(no_field(change, &none.field, &none.names, &kind.name)),
        (true, None) => Err(no_type(profile, change)),
    }
}

/// A field that a type does not have, and those that it has.
struct NoField {
    field: String,
    names: Vec<String>,
}

/// Finds the fields of `change` in the part of `kind` that lies at `first` under `prefix`.
fn shape(kind: &Type, prefix: &str, first: u64, change: &Change) -> Result<Shape, NoField> {
    let inside: Vec<(String, &Field)> = kind
        .fields
        .iter()
        .filter(|field| field.offset >= first)
        .filter_map(|field| {
            let rest = field.path.strip_prefix(prefix)?;
            Some((rest.strip_prefix('.').unwrap_or(rest).to_owned(), field))
        })
        .collect();
    let size = kind.size.saturating_sub(first);
    let mut blocks = Block::of(inside.iter().map(|(_, field)| (field.offset - first, field.bytes)));
    if blocks.is_empty() && size > 0 {
        // A value without parts.
        blocks = Block::of(std::iter::once((0, size)));
    }
    let mut element =
        Element { size, align: kind.align, blocks, selected: Vec::new(), against: Vec::new() };
    let find = |wanted: &String| -> Result<Vec<usize>, NoField> {
        // Tables write the elements of a long array as `[*]`, types as `[]`.
        let path = wanted.replace("[*]", "[]");
        let found = inside.iter().filter(|(name, _)| is_within(name, &path));
        let found: Vec<usize> =
            found.filter_map(|(_, field)| element.block_at(field.offset - first)).collect();
        let names = || inside.iter().map(|(name, _)| name.clone()).collect();
        if found.is_empty() {
            Err(NoField { field: wanted.clone(), names: names() })
        } else {
            Ok(found)
        }
    };
    let all = |wanted: &[String]| -> Result<Vec<usize>, NoField> {
        Ok(wanted.iter().map(find).collect::<Result<Vec<_>, _>>()?.concat())
    };
    let (selected, against) = (all(&change.fields)?, all(change.action.others())?);
    (element.selected, element.against) = (selected, against);
    Ok(Shape { element, first })
}

/// Whether `path` is `wanted` or lies in it.
fn is_within(path: &str, wanted: &str) -> bool {
    path.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Where in `kind` the type called `name` lies: the path to it and its offset.
fn holds(kind: &Type, name: &str) -> Option<(String, u64)> {
    if means(name, &kind.name) {
        return Some((String::new(), 0));
    }
    let inner = counted(&kind.name)?;
    if !means(name, inner) {
        return None;
    }
    let path = ["data", "value"]
        .into_iter()
        .find(|path| kind.fields.iter().any(|field| is_within(&field.path, path)))?;
    let first = kind.fields.iter().filter(|field| is_within(&field.path, path));
    Some((path.to_owned(), first.map(|field| field.offset).min()?))
}

fn no_type(profile: &Profile, change: &Change) -> Error {
    let names = || {
        profile.types.iter().map(|kind| {
            let name = counted(&kind.name).unwrap_or(&kind.name);
            name.split('<').next().and_then(|path| path.rsplit("::").next()).unwrap_or(name)
        })
    };
    let wanted = change.name.rsplit("::").next().unwrap_or(&change.name);
    let advice = match nearest(wanted, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if profile.types.is_empty() => {
            "the profile has no types: build with debug information (-g)".to_owned()
        }
        None => format!("it has {}", listed(names())),
    };
    Error::new(format!("\"{}\": the profile has no type `{}`; {advice}", change.text, change.name))
}

fn no_field(change: &Change, field: &str, names: &[String], kind: &str) -> Error {
    let tops = names.iter().map(String::as_str);
    let advice = match nearest(field, tops.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("it has {}", listed(tops)),
    };
    Error::new(format!("\"{}\": `{kind}` has no field `{field}`; {advice}", change.text))
}

/// At most eight names.
fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    names.dedup();
    let more = if names.len() > 8 { ", ..." } else { "" };
    names.truncate(8);
    format!("{}{more}", names.join(", "))
}

/// The request that tries changes on the machine and with the seeds of `profile`.
///
/// # Errors
/// As [`relayouts`]; two changes of one type.
pub fn request(profile: &Profile, changes: &[Change]) -> Result<Request, Error> {
    let mut layouts: Vec<Relayout> = Vec::new();
    for change in changes {
        for relayout in relayouts(profile, change)? {
            if layouts.iter().any(|known| known.target == relayout.target) {
                return Err(Error::new(format!(
                    "\"{}\": another change is already made to `{}`: try them one after the other",
                    change.text, change.name
                )));
            }
            layouts.push(relayout);
        }
    }
    let last = profile.modules.iter().map(|module| module.id as usize + 1).max().unwrap_or(0);
    let mut modules = vec![PathBuf::new(); last];
    for module in &profile.modules {
        modules[module.id as usize] = PathBuf::from(&module.path);
    }
    Ok(Request {
        machine: profile.meta.machine.clone(),
        seeds: profile.runs.iter().map(|run| run.seed).collect(),
        layouts,
        modules,
        what_if: changes.iter().map(|change| change.text.clone()).collect(),
    })
}

/// Tries one change: the profile as it is, and the run that `run` makes with the new layout.
///
/// # Errors
/// The errors of [`request`] and of `run`.
pub fn evaluate(
    base: &Profile,
    change: &Change,
    mut run: impl FnMut(&Request) -> Result<Profile, Error>,
) -> Result<Evidence, Error> {
    let request = request(base, std::slice::from_ref(change))?;
    let changed = run(&request)?;
    evidence(base, &changed, change)
}

/// Compares the profile as it is with one that was made under the change.
///
/// # Errors
/// As [`relayouts`]; profiles of different machines.
pub fn evidence(base: &Profile, changed: &Profile, change: &Change) -> Result<Evidence, Error> {
    let differing = crate::compare::differences(base, changed);
    if !differing.is_empty() {
        return Err(Error::new(format!(
            "\"{}\": the two runs are not of the same machine: {}; run both with the same --machine",
            change.text,
            differing.join(", ")
        )));
    }
    let plan = planned(base, change)?;
    let cycles = |profile: &Profile| -> Vec<f64> {
        profile.runs.iter().map(|run| parallel(run) as f64).collect()
    };
    let transfers =
        |profile: &Profile| Estimate::of_counts(profile.runs.iter().map(|run| run.transfers));
    let (old, new) = (cycles(base), cycles(changed));
    let gain = Difference::between(&new, &old);
    Ok(Evidence {
        change: change.text.clone(),
        base: Estimate::of(&old),
        changed: Estimate::of(&new),
        gain,
        ratio: ratio(&old, &new),
        significant: gain.is_significant(),
        transfers: (transfers(base), transfers(changed)),
        bytes_per_object: plan.bytes_per_object,
        objects: plan.objects,
    })
}

#[cfg(test)]
mod tests;
