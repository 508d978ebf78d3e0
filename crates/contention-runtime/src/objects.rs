//! Objects: the program's allocations, its variables, stacks and thread-local parts.
//!
//! Kinds of objects:
//! - heap: one allocation; known by the return addresses at the call and its number among those;
//! - global: one variable by the module's symbol table; where that has none, one line of the module;
//! - stack: one thread's stack, its thread-local part excluded;
//! - thread-local: one module's part in one thread; its place is that of the part in the module;
//! - other: one line of mapped memory that is none of these.
//!
//! # Boundary
//! Keeps live allocations, gives counts ([`crate::samples`]) their object when memory goes.
//!
//! # Concurrency
//! As [`crate::state`].
//!
//! # Why
//! A program may free millions of objects: after the first few of an allocation site, the counts of a freed
//! object are added to one that stands for all of the same site, size and place in a line, since they
//! have the same fields. Weakness: merged objects cannot be told apart afterwards.

use crate::modules::Modules;
use crate::samples::{Taken, tally};
use crate::state::{Table, simulation};
use crate::threads::Thread;
use libc::pthread_t;
use std::collections::BTreeMap;
use uvfs_coherence::configuration::{Relayout, Target};
use uvfs_coherence::profile::{Lock, ObjectKind, Place};

/// Return addresses that are kept of an allocation.
pub(crate) const FRAMES: usize = 8;
/// Freed objects of one site that are kept apart.
const APART: u32 = 32;
/// Objects that are kept apart at the end; the least costly others of a site are added up.
pub(crate) const OBJECTS: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Live {
    bytes: u64,
    site: u32,
    thread: u32,
    ordinal: u64,
}

#[derive(Debug)]
struct AllocationSite {
    frames: [u64; FRAMES],
    count: u64,
    apart: u32,
    layout: Option<usize>,
    /// Objects that stand for several, by size and place in a line.
    common: BTreeMap<(u64, u64), u32>,
}

/// An object with counts.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) kind: ObjectKind,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) ordinal: u64,
    pub(crate) site: Option<u32>,
    pub(crate) place: Option<Place>,
    pub(crate) thread: u32,
    pub(crate) name: String,
    pub(crate) taken: Taken,
    pub(crate) locks: Vec<Lock>,
}

/// Kind, place, place in a line, bytes.
type Span = (u8, Option<Place>, u64, u64);

/// See the module.
#[derive(Default)]
pub(crate) struct Objects {
    live: Table<u64, Live>,
    sites: Vec<AllocationSite>,
    site_by_frames: Table<[u64; FRAMES], u32>,
    /// Names that the program gave, by address.
    named: BTreeMap<u64, (u64, String)>,
    done: Vec<Object>,
    /// Stacks, thread-local parts and lines so far, by place in a line and size: how many, and the last.
    spans: BTreeMap<Span, (u32, usize)>,
    layouts: Vec<([u64; FRAMES], Relayout)>,
    /// Threads that are not buried, by handle.
    pub(crate) handles: Table<pthread_t, usize>,
    largest: u64,
}

fn say_not_loaded() {
    crate::message(
        "a layout to try is for a module that is not loaded when the program begins: it changes nothing; run the program that the profile is of",
    );
}

impl Objects {
    /// The layouts to try, with the modules they name.
    pub(crate) fn set_layouts(&mut self, paths: &[std::path::PathBuf], layouts: &[Relayout]) {
        let modules = Modules::read();
        let address = |place: &Place| {
            paths.get(place.module as usize).and_then(|path| modules.address(path, place.offset))
        };
        for layout in layouts {
            match &layout.target {
                Target::Allocation(places) => {
                    let mut frames = [0; FRAMES];
                    for (frame, place) in frames.iter_mut().zip(places) {
                        *frame = address(place).unwrap_or(u64::MAX);
                    }
                    if frames.contains(&u64::MAX) {
                        say_not_loaded();
                    }
                    self.layouts.push((frames, layout.clone()));
                }
                Target::Global { place, size } => match address(place) {
                    Some(start) => simulation().model.get().relayout(start, *size, layout),
                    None => say_not_loaded(),
                },
            }
        }
    }

    fn site(&mut self, frames: &[u64; FRAMES]) -> u32 {
        if let Some(site) = self.site_by_frames.get(frames) {
            return *site;
        }
        let layout = self.layouts.iter().position(|(wanted, _)| wanted == frames);
        let site = self.sites.len() as u32;
        self.sites.push(AllocationSite {
            frames: *frames,
            count: 0,
            apart: 0,
            layout,
            common: BTreeMap::new(),
        });
        self.site_by_frames.insert(*frames, site);
        site
    }

    /// The return addresses of an allocation site.
    pub(crate) fn frames(&self, site: u32) -> &[u64; FRAMES] {
        &self.sites[site as usize].frames
    }

    fn contains_name(&self, start: u64, bytes: u64) -> bool {
        !self.named.is_empty() && self.named.range(start..start + bytes.max(1)).next().is_some()
    }
}

/// The program was given memory. Behind the closed gate.
pub(crate) fn allocated(start: u64, bytes: u64, frames: &[u64; FRAMES]) {
    let state = simulation();
    let thread = state.scheduler.get().current() as u32;
    let objects = &mut *state.objects.get();
    let site = objects.site(frames);
    let entry = &mut objects.sites[site as usize];
    let ordinal = entry.count;
    entry.count += 1;
    if let Some(layout) = entry.layout {
        state.model.get().relayout(start, bytes, &objects.layouts[layout].1);
    }
    objects.largest = objects.largest.max(bytes);
    objects.live.insert(start, Live { bytes, site, thread, ordinal });
}

/// The program gives memory back. Behind the closed gate, before the allocator hears of it.
pub(crate) fn freed(start: u64) {
    let state = simulation();
    let mut objects = state.objects.get();
    let Some(live) = objects.live.remove(&start) else { return };
    let laid_out = objects.sites[live.site as usize].layout.is_some();
    drop(objects);
    if laid_out {
        state.model.get().forget(start, live.bytes);
    }
    retire(start, live);
}

/// Takes out the counts of a range.
fn take(start: u64, bytes: u64) -> Taken {
    crate::recorded::take(start, bytes)
        .unwrap_or_else(|| simulation().samples.get().take(start, bytes))
}

fn places() -> Vec<u64> {
    crate::recorded::places().unwrap_or_else(|| simulation().samples.get().places())
}

/// The counts of an allocation go to its object.
fn retire(start: u64, live: Live) {
    let state = simulation();
    let taken = take(start, live.bytes);
    let locks = crate::locking::take(start, live.bytes);
    let line_mask = state.line_mask;
    let objects = &mut *state.objects.get();
    let name = if objects.contains_name(start, live.bytes) {
        objects.take_name(start, live.bytes)
    } else {
        String::new()
    };
    if taken.is_empty() && locks.is_empty() {
        return;
    }
    let site = &mut objects.sites[live.site as usize];
    if site.apart < APART || !name.is_empty() {
        site.apart += 1;
        objects.done.push(Object {
            kind: ObjectKind::Heap,
            address: start,
            bytes: live.bytes,
            ordinal: live.ordinal,
            site: Some(live.site),
            place: None,
            thread: live.thread,
            name,
            taken,
            locks,
        });
        return;
    }
    let next = objects.done.len() as u32;
    let common = *site.common.entry((live.bytes, start & line_mask)).or_insert(next);
    if common == next {
        objects.done.push(Object {
            kind: ObjectKind::Heap,
            address: start,
            bytes: live.bytes,
            ordinal: live.ordinal,
            site: Some(live.site),
            place: None,
            thread: live.thread,
            name,
            taken: Taken::default(),
            locks: Vec::new(),
        });
    }
    objects.done[common as usize].add(taken, locks);
}

impl Object {
    /// Adds the counts of an object of the same kind.
    pub(crate) fn add(&mut self, taken: Taken, locks: Vec<Lock>) {
        for sample in taken.samples {
            let same = |known: &&mut crate::samples::Sample| {
                known.place == sample.place
                    && known.site == sample.site
                    && known.class == sample.class
            };
            let Some(known) = self.taken.samples.iter_mut().find(same) else {
                self.taken.samples.push(sample);
                continue;
            };
            known.count += sample.count;
            known.false_shared += sample.false_shared;
            known.service += sample.service;
            known.queue += sample.queue;
            merge_cores(&mut known.cores, &sample.cores);
            for (writer, count) in sample.writers {
                tally(&mut known.writers, writer, count);
            }
        }
        for heat in taken.heat {
            let same = |known: &&mut crate::samples::Heat| {
                known.place == heat.place && known.bytes == heat.bytes
            };
            let Some(known) = self.taken.heat.iter_mut().find(same) else {
                self.taken.heat.push(heat);
                continue;
            };
            known.reads += heat.reads;
            known.writes += heat.writes;
            known.updates += heat.updates;
            merge_cores(&mut known.cores, &heat.cores);
        }
        for lock in locks {
            crate::locking::merge(&mut self.locks, lock);
        }
    }

    /// The cost of its misses.
    fn cost(&self) -> u64 {
        self.taken.samples.iter().map(|sample| sample.service + sample.queue).sum()
    }
}

fn merge_cores(into: &mut [u64], from: &[u64]) {
    for (word, more) in into.iter_mut().zip(from) {
        *word |= more;
    }
}

impl Objects {
    fn take_name(&mut self, start: u64, bytes: u64) -> String {
        let found: Vec<u64> =
            self.named.range(start..start + bytes.max(1)).map(|entry| *entry.0).collect();
        let mut name = String::new();
        for address in found {
            if let Some((_, given)) = self.named.remove(&address)
                && address == start
            {
                name = given;
            }
        }
        name
    }

    /// The program names an object.
    pub(crate) fn name(&mut self, start: u64, bytes: u64, name: String) {
        self.named.insert(start, (bytes, name));
    }

    /// The live allocation around an address: its start and size. Looks at all of them.
    pub(crate) fn live_around(&self, address: u64) -> Option<(u64, u64)> {
        let around = |(start, live): (&u64, &Live)| {
            (*start..*start + live.bytes).contains(&address).then_some((*start, live.bytes))
        };
        self.live.iter().find_map(around)
    }
}

/// A thread's stack and its thread-local parts go. Behind the closed gate.
pub(crate) fn forget_stack(thread: &Thread) {
    let state = simulation();
    let (start, end) = thread.stack.get();
    if end <= start {
        return;
    }
    let modules = state.modules.get();
    for module in &modules.all {
        let Some((offset, bytes)) = module.thread_part else { continue };
        let at = thread.base.get().wrapping_sub(module.thread_distance);
        if module.thread_distance > 1 << 20 {
            continue;
        }
        let place = Place { module: module.record.id, offset };
        collect(at, bytes, ObjectKind::ThreadLocal, Some(place), thread.id);
    }
    collect(start, end - start, ObjectKind::Stack, None, thread.id);
}

/// Takes the counts of a range as one object, if there are any.
fn collect(start: u64, bytes: u64, kind: ObjectKind, place: Option<Place>, thread: usize) {
    let state = simulation();
    let taken = take(start, bytes);
    let locks = crate::locking::take(start, bytes);
    if taken.is_empty() && locks.is_empty() {
        return;
    }
    // Ended threads beyond the first few are added up, as freed objects are.
    let line_mask = state.line_mask;
    let objects = &mut *state.objects.get();
    let key = (kind as u8, place, start & line_mask, bytes);
    let next = objects.done.len();
    let (count, last) = objects.spans.entry(key).or_insert((0, next));
    if kind != ObjectKind::Global && *count >= APART {
        let last = *last;
        return objects.done[last].add(taken, locks);
    }
    *count += 1;
    *last = next;
    objects.done.push(Object {
        kind,
        address: start,
        bytes,
        ordinal: 0,
        site: None,
        place,
        thread: thread as u32,
        name: String::new(),
        taken,
        locks,
    });
}

/// At the end: all that is left gets its object. Returns them, the costliest apart, the others of a kind
/// added up.
pub(crate) fn finish() -> Vec<Object> {
    let mut all = places();
    all.extend(crate::locking::places());
    all.sort_unstable();
    all.dedup();
    finish_heap(&all);
    finish_named();
    *simulation().modules.get() = Modules::read();
    for (index, thread) in simulation().all_threads().into_iter().enumerate() {
        if thread.side.get() != 0 || index == 0 {
            forget_stack(thread);
        }
    }
    let line_bytes = simulation().line_mask + 1;
    for place in places().into_iter().chain(crate::locking::places()) {
        let variable = simulation().modules.get().variable(place, line_bytes);
        match variable {
            Some((module, start, bytes)) => {
                collect(start, bytes, ObjectKind::Global, Some(module), 0);
            }
            None => collect(place & !(line_bytes - 1), line_bytes, ObjectKind::Other, None, 0),
        }
    }
    reduce(std::mem::take(&mut simulation().objects.get().done))
}

/// Live allocations that something was counted in.
fn finish_heap(places: &[u64]) {
    let objects = simulation().objects.get();
    let mut live: Vec<(u64, Live)> =
        objects.live.iter().map(|(start, live)| (*start, *live)).collect();
    drop(objects);
    live.sort_unstable_by_key(|entry| entry.0);
    let mut last = None;
    for place in places {
        let after = live.partition_point(|(start, _)| start <= place);
        let Some((start, found)) = after.checked_sub(1).map(|before| live[before]) else {
            continue;
        };
        if *place < start + found.bytes && last != Some(start) {
            last = Some(start);
            simulation().objects.get().sites[found.site as usize].apart = 0;
            retire(start, found);
        }
    }
}

/// Memory that the program named and that is no allocation.
fn finish_named() {
    let named = std::mem::take(&mut simulation().objects.get().named);
    for (start, (bytes, name)) in named {
        let before = simulation().objects.get().done.len();
        collect(start, bytes, ObjectKind::Other, None, 0);
        for object in &mut simulation().objects.get().done[before..] {
            object.name.clone_from(&name);
        }
    }
}

fn reduce(mut objects: Vec<Object>) -> Vec<Object> {
    if objects.len() <= OBJECTS {
        return objects;
    }
    let line_mask = simulation().line_mask;
    objects.sort_by_key(|object| std::cmp::Reverse(object.cost()));
    let rest = objects.split_off(OBJECTS);
    let mut common: BTreeMap<(u32, u64, u64, Option<Place>), usize> = BTreeMap::new();
    for object in rest {
        let bytes = if object.kind == ObjectKind::Other { 0 } else { object.bytes };
        let site = object.site.map_or(u32::MAX - object.kind as u32, |site| site);
        let key = (site, bytes, object.address & line_mask, object.place);
        match common.get(&key) {
            Some(index) => objects[*index].add(object.taken, object.locks),
            None => {
                common.insert(key, objects.len());
                objects.push(object);
            }
        }
    }
    objects
}
