//! Variables: pieces of data segments become the variables that lie there.
//!
//! # Boundary
//! Splits and joins objects of the kinds `Global` and `ThreadLocal`, and moves samples, heat and locks
//! along. Which variable is where, [`super::module`] knows.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! The runtime sees addresses, not variables: its object may be a line or a whole segment.
//! After this stage offsets count from the variable's start, as those of a field must. Weakness: two
//! variables that the compiler merged into one are told as one of them.

use super::module::Located;
use std::collections::{BTreeMap, BTreeSet};
use uvfs_coherence::Profile;
use uvfs_coherence::profile::{Object, ObjectKind, Place};

/// Whether the object is a piece of a module's data.
pub(super) fn is_variable(object: &Object) -> bool {
    matches!(object.kind, ObjectKind::Global | ObjectKind::ThreadLocal) && !object.frames.is_empty()
}

/// The variable that `place` lies in, `thread_local` or not.
pub(super) trait Locate {
    fn locate(&self, place: Place, thread_local: bool) -> Option<Located>;
}

/// Makes objects of variables; returns the variable of each, by place in the profile.
pub(super) fn split(profile: &mut Profile, locate: &dyn Locate) -> BTreeMap<usize, (u32, Located)> {
    // Which offsets of each piece are spoken of.
    let mut asked: BTreeMap<(u64, u32), BTreeSet<u64>> = BTreeMap::new();
    for object in profile.objects.iter().filter(|object| is_variable(object)) {
        asked.insert((object.seed, object.id), BTreeSet::new());
    }
    let spoken = profile.samples.iter().map(|x| (x.seed, x.object, x.offset));
    let spoken = spoken.chain(profile.heat.iter().map(|x| (x.seed, x.object, x.offset)));
    for (seed, object, offset) in
        spoken.chain(profile.locks.iter().map(|x| (x.seed, x.object, x.offset)))
    {
        if let Some(offsets) = asked.get_mut(&(seed, object)) {
            offsets.insert(offset);
        }
    }
    let mut free: BTreeMap<u64, u32> = BTreeMap::new();
    for object in &profile.objects {
        let next = free.entry(object.seed).or_default();
        *next = (*next).max(object.id.saturating_add(1));
    }
    // (seed, old object, old offset) to (new object, new offset).
    let mut moved: BTreeMap<(u64, u32, u64), (u32, u64)> = BTreeMap::new();
    // By seed, module, thread and start of the variable: its object.
    let mut made: BTreeMap<(u64, u32, Option<u32>, u64), u32> = BTreeMap::new();
    let mut known: BTreeMap<(Place, bool), Option<Located>> = BTreeMap::new();
    let mut objects = Vec::with_capacity(profile.objects.len());
    let mut located = BTreeMap::new();
    for object in std::mem::take(&mut profile.objects) {
        if !is_variable(&object) {
            objects.push(object);
            continue;
        }
        let thread_local = object.kind == ObjectKind::ThreadLocal;
        let origin = object.frames[0];
        let mut offsets = asked.remove(&(object.seed, object.id)).unwrap_or_default();
        if offsets.is_empty() {
            offsets.insert(0);
        }
        // Its number goes to the first variable found in it.
        let mut own = Some(object.id);
        let mut kept = false;
        for offset in offsets {
            let at = origin.offset.wrapping_add(offset);
            let place = Place { module: origin.module, offset: at };
            let found = known
                .entry((place, thread_local))
                .or_insert_with(|| locate.locate(place, thread_local));
            let Some(found) = found.clone() else {
                if !kept {
                    kept = true;
                    // Unknown pieces stay unchanged, under their old number or a new one.
                    let id = own.take().unwrap_or_else(|| fresh(&mut free, object.seed));
                    objects.push(Object { id, ..object.clone() });
                    moved.insert((object.seed, object.id, u64::MAX), (id, 0));
                }
                if let Some((id, _)) = moved.get(&(object.seed, object.id, u64::MAX)).copied() {
                    moved.insert((object.seed, object.id, offset), (id, offset));
                }
                continue;
            };
            let thread = thread_local.then_some(object.thread);
            let key = (object.seed, origin.module, thread, found.start);
            let id = *made.entry(key).or_insert_with(|| {
                let id = own.take().unwrap_or_else(|| fresh(&mut free, object.seed));
                let start = Place { module: origin.module, offset: found.start };
                located.insert(objects.len(), (origin.module, found.clone()));
                objects.push(Object {
                    id,
                    address: object.address.wrapping_add(found.start.wrapping_sub(origin.offset)),
                    size: found.size,
                    frames: vec![start],
                    name: found.name.clone(),
                    ..object.clone()
                });
                id
            });
            moved.insert((object.seed, object.id, offset), (id, at.wrapping_sub(found.start)));
        }
    }
    profile.objects = objects;
    let place = |seed: u64, object: &mut u32, offset: &mut u64| {
        if let Some(new) = moved.get(&(seed, *object, *offset)) {
            (*object, *offset) = *new;
        }
    };
    profile.samples.iter_mut().for_each(|x| place(x.seed, &mut x.object, &mut x.offset));
    profile.heat.iter_mut().for_each(|x| place(x.seed, &mut x.object, &mut x.offset));
    profile.locks.iter_mut().for_each(|x| place(x.seed, &mut x.object, &mut x.offset));
    located
}

fn fresh(free: &mut BTreeMap<u64, u32>, seed: u64) -> u32 {
    let next = free.entry(seed).or_default();
    let id = *next;
    *next = next.saturating_add(1);
    id
}

#[cfg(test)]
#[path = "globals_tests.rs"]
pub(super) mod tests;
