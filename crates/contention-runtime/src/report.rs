//! The profile at the end of a run.
//!
//! # Boundary
//! From the simulation's counts to the records of [`uvfs_coherence::profile`].
//!
//! # Concurrency
//! As [`crate::state`]; the gate is [`OFF`] from here on.
//!
//! # Why
//! Written once, whole, by the process itself: no second process has to be alive when this one crashes.
//! Weakness: a process that is killed leaves no profile.

use crate::access::{bytes_of, operation_of, ordering_of};
use crate::modules::Modules;
use crate::objects::finish;
use crate::state::{OFF, RECORDING, end, exists, gate, simulation};
use uvfs_coherence::TICKS_PER_CYCLE;
use uvfs_coherence::profile::{
    FORMAT, HEAT_PLACES_MAX, Heat, Lock, Meta, Mode, Object, Place, Profile, Run, Sample, Site,
    Thread,
};

/// Ends the simulation and writes its profile. A second call does nothing, nor does one in a child that a
/// system call made unseen.
pub(crate) fn write(status: Option<i32>) {
    if !exists() || gate() == OFF || crate::process::number() != simulation().process {
        return;
    }
    let recorded = match end() {
        OFF => return,
        before => before == RECORDING,
    };
    let threads = if recorded { crate::recorded::finish() } else { Vec::new() };
    let mut profile = profile(status);
    if recorded {
        add_recorded(&mut profile, &threads);
    }
    let path = &simulation().configuration.profile;
    if let Err(error) = profile.write(path) {
        crate::message(&error.to_string());
    }
}

/// Rounded to whole cycles.
fn cycles(ticks: u64) -> u64 {
    (ticks + TICKS_PER_CYCLE / 2) / TICKS_PER_CYCLE
}

fn places(modules: &Modules, addresses: &[u64]) -> Vec<Place> {
    addresses
        .iter()
        .take_while(|address| **address != 0)
        .filter_map(|address| modules.place(*address))
        .collect()
}

fn profile(status: Option<i32>) -> Profile {
    let found = finish();
    let state = simulation();
    let seed = state.configuration.seed;
    let mut profile = Profile::new(Meta {
        format: FORMAT,
        tool: concat!("uvfs ", env!("CARGO_PKG_VERSION")).to_string(),
        mode: state.configuration.mode,
        command: state.configuration.command.clone(),
        machine: state.configuration.machine.clone(),
        computing: state.computes,
        what_if: state.configuration.what_if.clone(),
    });
    let simulated = state.configuration.mode == Mode::Simulated;
    let modules = state.modules.get();
    profile.modules = modules.all.iter().map(|module| module.record.clone()).collect();
    let mut used = vec![false; state.sites.get().all().len()];
    for (id, object) in found.into_iter().enumerate() {
        let frames = match (object.site, object.place) {
            (Some(site), _) => places(&modules, state.objects.get().frames(site)),
            (None, Some(place)) => vec![place],
            (None, None) => Vec::new(),
        };
        profile.objects.push(Object {
            seed,
            id: id as u32,
            kind: object.kind,
            address: object.address,
            size: object.bytes,
            ordinal: object.ordinal,
            frames,
            thread: object.thread,
            name: object.name,
            type_id: None,
            array: false,
            allocated_in: String::new(),
        });
        for sample in object.taken.samples {
            used[sample.site as usize] = true;
            let writer = sample.writers.iter().max_by_key(|entry| entry.1).copied();
            if let Some((site, _)) = writer {
                used[site as usize] = true;
            }
            profile.samples.push(Sample {
                seed,
                object: id as u32,
                offset: sample.place,
                site: sample.site,
                class: sample.class,
                count: sample.count,
                false_shared: sample.false_shared,
                service: cycles(sample.service),
                queue: cycles(sample.queue),
                cores: sample.cores,
                writer,
            });
        }
        let heat = hottest(object.taken.heat);
        profile.heat.extend(heat.into_iter().map(|heat| Heat {
            seed,
            object: id as u32,
            offset: heat.place,
            bytes: heat.bytes,
            reads: heat.reads,
            writes: heat.writes,
            updates: heat.updates,
            cores: heat.cores,
        }));
        for lock in object.locks {
            let lock = Lock { object: id as u32, ..lock };
            for (site, _) in &lock.waiters {
                used[*site as usize] = true;
            }
            profile.locks.push(lock);
        }
    }
    drop(modules);
    sites(&mut profile, &used, seed);
    let latencies = std::mem::take(&mut state.samples.get().latencies);
    profile.histograms = latencies.into_records(seed);
    threads(&mut profile, seed);
    let all = state.all_threads();
    let last = all.iter().map(|thread| state.scheduler.get().clock(thread.id)).max();
    let last = last.unwrap_or(0);
    let from = state.parallel_from.get().unwrap_or(0);
    let to = match state.parallel_from.get() {
        Some(_) if state.alive.get() == 0 => state.parallel_to.get(),
        _ => last,
    };
    let samples = state.samples.get();
    let host = crate::time::host_now().saturating_sub(state.host_start);
    profile.runs.push(Run {
        seed,
        cycles: if simulated { cycles(last) } else { 0 },
        parallel_cycles: if simulated { cycles(to - from) } else { 0 },
        accesses: all.iter().map(|thread| thread.accesses.get()).sum(),
        misses: samples.misses,
        transfers: samples.transfers,
        remote_transfers: samples.remote_transfers,
        work: state.work.get(),
        threads: all.len() as u64,
        switches: state.scheduler.get().switches(),
        status,
        host_nanoseconds: host.as_nanos() as u64,
    });
    profile
}

/// Keeps only the hottest places of a large object, such as an array that all cores read.
fn hottest(mut heat: Vec<crate::samples::Heat>) -> Vec<crate::samples::Heat> {
    if heat.len() > HEAT_PLACES_MAX {
        heat.sort_by_key(|heat| std::cmp::Reverse(heat.reads + heat.writes + heat.updates));
        heat.truncate(HEAT_PLACES_MAX);
    }
    heat
}

/// The sites that something refers to, with the numbers they have.
fn sites(profile: &mut Profile, used: &[bool], seed: u64) {
    let state = simulation();
    let modules = &*state.modules.get();
    for (id, site) in state.sites.get().all().iter().enumerate().filter(|(id, _)| used[*id]) {
        // An address in no module (generated code, a closed library) is shown as the start of the program.
        let place = modules.place(site.pc).unwrap_or(Place { module: 0, offset: 0 });
        profile.sites.push(Site {
            seed,
            id: id as u32,
            place,
            callers: places(modules, &site.callers),
            operation: operation_of(site.kind),
            bytes: bytes_of(site.kind),
            ordering: ordering_of(site.kind),
            frames: Vec::new(),
            function: String::new(),
        });
    }
}

/// The figures that a recorded run has from elsewhere.
fn add_recorded(profile: &mut Profile, threads: &[crate::recorded::Summary]) {
    let seed = simulation().configuration.seed;
    profile.histograms = crate::recorded::histograms(seed);
    profile.threads.clear();
    for (id, thread) in threads.iter().enumerate() {
        profile.threads.push(Thread {
            seed,
            id: id as u32,
            core: thread.core as u32,
            accesses: thread.accesses,
            misses: thread.misses,
            stalled: cycles(thread.stalled),
            blocked: 0,
            cycles: 0,
            began: 0,
        });
    }
    for run in &mut profile.runs {
        run.threads = threads.len() as u64;
        run.accesses = threads.iter().map(|thread| thread.accesses).sum();
    }
}

fn threads(profile: &mut Profile, seed: u64) {
    let state = simulation();
    let scheduler = state.scheduler.get();
    for thread in state.all_threads() {
        profile.threads.push(Thread {
            seed,
            id: thread.id as u32,
            core: thread.first_core.get() as u32,
            accesses: thread.accesses.get(),
            misses: thread.misses.get(),
            stalled: cycles(thread.stalled.get()),
            blocked: cycles(scheduler.blocked(thread.id)),
            cycles: cycles(scheduler.clock(thread.id)),
            began: cycles(scheduler.began(thread.id)),
        });
    }
}
