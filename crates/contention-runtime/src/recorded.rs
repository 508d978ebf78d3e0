//! Recording: the program's real threads, as the host runs them, through the model's coherence states.
//!
//! # Boundary
//! Counts misses as a simulated run does; no virtual time, no waiting for the line, no lock statistics. The
//! profile says `recorded`.
//!
//! # Concurrency
//! R1. The directory is in shards by page; a shard is touched only with its lock held.
//! R2. Sites and objects have one lock each. A thread takes a second lock only if it holds the objects' lock, and
//!     then only that of a shard.
//! R3. Each thread has a recorder; `busy` keeps the runtime's own calls and handlers of
//!     signals out of it.
//!
//! # Why
//! On a machine with the cores, it shows how they really affect each other. Weakness: recording slows accesses
//! down, each by another amount, and on a machine with few cores the host's scheduler decides which accesses
//! meet: two recordings differ. Each shard has its own caches, so they share the capacity.

use crate::access::{Frames, operation_of};
use crate::objects::FRAMES;
use crate::samples::{Samples, Taken};
use crate::sites::{CALLERS, Sites};
use crate::state::{RECORDING as GATE_RECORDING, gate, simulation};
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence};
use uvfs_coherence::machine::{Machine, Parameter};
use uvfs_coherence::profile::Histogram;
use uvfs_coherence::{Access, Model};

const SHARDS: usize = 64;
const PAGE_SHIFT: u32 = 12;
const CACHED: usize = 1 << 10;
/// Between two accesses of a shard, so that none waits for the line.
const APART: u64 = 1 << 20;

/// The value that a lock guards, touched through [`Locked::with`] only.
struct Locked<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only with the lock held (`with`).
unsafe impl<T> Sync for Locked<T> {}

impl<T> Locked<T> {
    const fn new(value: T) -> Self {
        Self { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    fn with<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> R {
        // ORDERING: Acquire, partner the store below: a thread with the lock sees all changes made under it.
        while self.locked.swap(true, Ordering::Acquire) {
            std::hint::spin_loop();
        }
        // SAFETY: the lock is ours, and no thread takes it twice (R2, R3).
        let result = use_it(unsafe { &mut *self.value.get() });
        // ORDERING: Release, partner the swap above.
        self.locked.store(false, Ordering::Release);
        result
    }
}

struct Shard {
    model: Model,
    samples: Samples,
    tick: u64,
}

/// One thread's own.
struct Recorder {
    core: usize,
    stack: (u64, u64),
    frames: Frames,
    accesses: u64,
    misses: u64,
    stalled: u64,
    busy: bool,
    sites: Vec<(u64, u64, u32, u32)>,
}

struct Recording {
    shards: Vec<Locked<Shard>>,
    sites: Locked<Sites>,
    /// Guards the simulation's objects.
    objects: Locked<()>,
    threads: Locked<Vec<*mut Recorder>>,
    work: AtomicU64,
    /// Bytes of a line, less one.
    line_mask: u64,
    cores: usize,
}

struct Slot(UnsafeCell<Option<Recording>>);

// SAFETY: written once, before the program's first thread makes another (`prepare`).
unsafe impl Sync for Slot {}

static RECORDING: Slot = Slot(UnsafeCell::new(None));

thread_local! {
    static RECORDER: Cell<*mut Recorder> = const { Cell::new(std::ptr::null_mut()) };
    /// Whether it is being made.
    static MAKING: Cell<bool> = const { Cell::new(false) };
}

fn recording() -> Option<&'static Recording> {
    // SAFETY: as the slot.
    unsafe { (*RECORDING.0.get()).as_ref() }
}

/// Before the program's first instruction.
pub(crate) fn prepare(machine: &Machine, seed: u64) {
    let mut part = machine.clone();
    let share = |size: Parameter| Parameter { value: size.value / SHARDS as f64, ..size };
    part.cache.private_kib = share(part.cache.private_kib);
    part.cache.last_level_kib = share(part.cache.last_level_kib);
    let shard = |_| {
        Locked::new(Shard {
            model: Model::new(&part, seed),
            samples: Samples::new(machine.line_bytes, machine.cores),
            tick: 0,
        })
    };
    let recording = Recording {
        shards: (0..SHARDS).map(shard).collect(),
        sites: Locked::new(Sites::new()),
        objects: Locked::new(()),
        threads: Locked::new(Vec::new()),
        work: AtomicU64::new(0),
        line_mask: machine.line_bytes - 1,
        cores: machine.cores,
    };
    // SAFETY: as the slot.
    unsafe { *RECORDING.0.get() = Some(recording) };
}

/// Calls with the thread's own recorder, unless it is in use further out (R3).
fn with_recorder<R>(recording: &Recording, call: impl FnOnce(&mut Recorder) -> R) -> Option<R> {
    let mut own = RECORDER.get();
    if own.is_null() {
        if MAKING.replace(true) {
            return None;
        }
        own = Box::into_raw(Box::new(Recorder {
            core: 0,
            stack: (0, 0),
            frames: Frames::default(),
            accesses: 0,
            misses: 0,
            stalled: 0,
            busy: true,
            sites: vec![(0, 0, u32::MAX, 0); CACHED],
        }));
        RECORDER.set(own);
        let number = recording.threads.with(|threads| {
            threads.push(own);
            threads.len() - 1
        });
        // SAFETY: it is this thread's own and lives to the end of the process; `pthread_self` touches nothing.
        unsafe {
            (*own).core = number % recording.cores;
            (*own).stack = crate::threads::stack_of(libc::pthread_self());
            (*own).busy = false;
        }
        MAKING.set(false);
    }
    // SAFETY: this thread's own (R3); a call further out has set `busy` and is not disturbed.
    unsafe {
        if (*own).busy {
            return None;
        }
        (*own).busy = true;
        // ORDERING: SeqCst, for the compiler only, here and below: a handler on this thread finds `busy` set
        // whenever a lock may be held.
        compiler_fence(Ordering::SeqCst);
        let result = call(&mut *own);
        // ORDERING: SeqCst, for the compiler only: a handler on this thread finds `busy` set.
        compiler_fence(Ordering::SeqCst);
        (*own).busy = false;
        Some(result)
    }
}

/// Whether the calling thread was interrupted within this module, perhaps with a lock.
pub(crate) fn is_at_work() -> bool {
    let own = RECORDER.get();
    // SAFETY: this thread's own (R3); only a flag is read, of a recorder that lives for ever.
    MAKING.get() || (!own.is_null() && unsafe { (*own).busy })
}

fn shard_of(address: u64) -> usize {
    ((address >> PAGE_SHIFT).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize
}

/// An access of a real thread.
pub(crate) fn access(address: u64, pc: u64, kind: u32) {
    let Some(recording) = recording() else { return };
    with_recorder(recording, |own| {
        let site = site(recording, own, pc, kind);
        let line_mask = recording.line_mask;
        let end = address + u64::from(kind >> 8);
        let mut at = address;
        while at < end {
            let next = ((at | line_mask) + 1).min(end);
            let part = kind & 0xff | ((next - at) as u32) << 8;
            one_line(recording, own, at, part, site);
            at = next;
        }
    });
}

fn site(recording: &Recording, own: &mut Recorder, pc: u64, kind: u32) -> u32 {
    let context = own.frames.hash();
    let hash = (pc ^ context.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let slot = (hash >> 54) as usize & (CACHED - 1);
    let (known_pc, known_context, known_kind, known) = own.sites[slot];
    if (known_pc, known_context, known_kind) == (pc, context, kind) {
        return known;
    }
    let callers: [u64; CALLERS] = own.frames.callers();
    let site = recording.sites.with(|sites| sites.number(pc, kind, context, || callers));
    own.sites[slot] = (pc, context, kind, site);
    site
}

fn one_line(recording: &Recording, own: &mut Recorder, address: u64, kind: u32, site: u32) {
    own.accesses += 1;
    let missed = recording.shards[shard_of(address)].with(|shard| {
        shard.tick += APART;
        let access = Access { address, bytes: kind >> 8, operation: operation_of(kind) };
        let outcome = shard.model.access(own.core, shard.tick, site, &access);
        if let Some(miss) = &outcome.miss {
            shard.samples.miss(address, site, own.core, miss);
        }
        if outcome.contended {
            shard.samples.heat(address, kind, own.core);
        }
        outcome.miss.map(|miss| miss.service)
    });
    if let Some(service) = missed {
        own.misses += 1;
        own.stalled += service;
    }
}

/// A function begins in a real thread.
pub(crate) fn function_entry(caller: u64, stack: u64) {
    if let Some(recording) = recording() {
        with_recorder(recording, |own| own.frames.push(caller, stack));
    }
}

/// A function ends.
pub(crate) fn function_exit() {
    if let Some(recording) = recording() {
        with_recorder(recording, |own| own.frames.pop());
    }
}

/// The program was given memory.
pub(crate) fn allocated(start: u64, bytes: u64, frames: impl FnOnce((u64, u64)) -> [u64; FRAMES]) {
    if let Some(recording) = recording() {
        with_recorder(recording, |own| {
            let frames = frames(own.stack);
            recording.objects.with(|()| {
                // Not after `finish` has had the lock (G5).
                if gate() == GATE_RECORDING {
                    crate::objects::allocated(start, bytes, &frames);
                }
            });
        });
    }
}

/// The program gives memory back.
pub(crate) fn freed(start: u64) {
    if let Some(recording) = recording() {
        with_recorder(recording, |_| {
            recording.objects.with(|()| {
                // Not after `finish` has had the lock (G5).
                if gate() == GATE_RECORDING {
                    crate::objects::freed(start);
                }
            });
        });
    }
}

/// Takes out the counts of a range, from all shards with pages of it; none: this is no recording.
pub(crate) fn take(start: u64, bytes: u64) -> Option<Taken> {
    let recording = recording()?;
    let mut all = Taken::default();
    let (first, last) = (start >> PAGE_SHIFT, (start + bytes.max(1) - 1) >> PAGE_SHIFT);
    let mut add = |index: usize, start: u64, bytes: u64, offset: u64| {
        let mut part = recording.shards[index].with(|shard| shard.samples.take(start, bytes));
        part.samples.iter_mut().for_each(|sample| sample.place += offset);
        part.heat.iter_mut().for_each(|heat| heat.place += offset);
        all.samples.append(&mut part.samples);
        all.heat.append(&mut part.heat);
    };
    if last - first >= SHARDS as u64 {
        (0..SHARDS).for_each(|index| add(index, start, bytes, 0));
        return Some(all);
    }
    for page in first..=last {
        let from = start.max(page << PAGE_SHIFT);
        let to = (start + bytes).min((page + 1) << PAGE_SHIFT);
        add(shard_of(from), from, to.saturating_sub(from), from - start);
    }
    Some(all)
}

/// Addresses at which something was counted, in order; none: this is no recording.
pub(crate) fn places() -> Option<Vec<u64>> {
    let mut places = Vec::new();
    for shard in &recording()?.shards {
        places.extend(shard.with(|shard| shard.samples.places()));
    }
    places.sort_unstable();
    Some(places)
}

/// Work that the program counted.
pub(crate) fn work(count: u64) {
    if let Some(recording) = recording() {
        // ORDERING: Relaxed; a statistic.
        recording.work.fetch_add(count, Ordering::Relaxed);
    }
}

/// One thread, for the profile.
pub(crate) struct Summary {
    pub(crate) core: usize,
    pub(crate) accesses: u64,
    pub(crate) misses: u64,
    /// In ticks.
    pub(crate) stalled: u64,
}

/// At the end: passes the counts to the simulation, so the report is the same. Threads that still run may be
/// a few accesses ahead of their reported counts.
pub(crate) fn finish() -> Vec<Summary> {
    let Some(recording) = recording() else { return Vec::new() };
    // A thread that works on the objects finishes; one that arrives later finds the gate shut (G5).
    recording.objects.with(|()| ());
    let state = simulation();
    recording.sites.with(|sites| std::mem::swap(sites, &mut *state.sites.get()));
    // ORDERING: Relaxed; a statistic.
    state.work.set(recording.work.load(Ordering::Relaxed));
    for shard in &recording.shards {
        shard.with(|shard| {
            state.samples.get().misses += shard.samples.misses;
            state.samples.get().transfers += shard.samples.transfers;
            state.samples.get().remote_transfers += shard.samples.remote_transfers;
        });
    }
    let summary = |own: &*mut Recorder| {
        // SAFETY: recorders live to the end of the process; the numbers are only read.
        let own = unsafe { &**own };
        Summary { core: own.core, accesses: own.accesses, misses: own.misses, stalled: own.stalled }
    };
    recording.threads.with(|threads| threads.iter().map(summary).collect())
}

/// Histograms of all shards, added up.
pub(crate) fn histograms(seed: u64) -> Vec<Histogram> {
    let mut all: Vec<Histogram> = Vec::new();
    for shard in recording().into_iter().flat_map(|recording| &recording.shards) {
        let latencies = shard.with(|shard| std::mem::take(&mut shard.samples.latencies));
        for more in latencies.into_records(seed) {
            let same = |known: &&mut Histogram| {
                known.class == more.class && known.with_queue == more.with_queue
            };
            match all.iter_mut().find(same) {
                None => all.push(more),
                Some(known) => {
                    for (bucket, count) in more.buckets {
                        *known.buckets.entry(bucket).or_default() += count;
                    }
                }
            }
        }
    }
    all
}
