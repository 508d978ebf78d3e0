//! Programs with a textbook answer, on the model and the scheduler alone.
//!
//! # Boundary
//! Curve classes from 1 to 128 cores, true and false sharing, the same clock for the same seed. The
//! bounds are wide: they tell linear from flat from falling, not one machine from another.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! If these are wrong, no table of the tool means anything. Weakness: they agree with the textbook's
//! shapes, which is not agreement with any machine.

mod world;

use uvfs_coherence::Machine;
use uvfs_coherence::configuration::{Move, Relayout, Target};
use uvfs_coherence::profile::{Operation, Ordering};
use world::{Finished, Memory, Program, Step, machine, plain_machine, run, run_with};

const CORES: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const SEEDS: u64 = 8;
/// Operations of all threads together, at few cores.
const OPERATIONS: u64 = 2400;
/// Operations of each thread at least, where threads get in each other's way.
const LEAST: u64 = 24;
/// Operations of each thread at least where they do not, so that the first fetches do not count.
const LEAST_ALONE: u64 = 400;

const LOCK: u64 = 0x1000;
const SERVING: u64 = 0x1100;
const DATA: u64 = 0x1200;
const PRIVATE: u64 = 0x100_0000;

/// A line of a thread's own.
fn own(thread: usize) -> u64 {
    PRIVATE + thread as u64 * 256
}

/// Programs from a closure: `step(memory, state)` returns the next step; `state.at` is the program's position.
struct Script<F> {
    state: State,
    step: F,
}

#[derive(Clone, Copy)]
struct State {
    thread: usize,
    left: u64,
    at: u32,
    value: u64,
}

impl<F: FnMut(&mut Memory, &mut State) -> Step> Program for Script<F> {
    fn step(&mut self, memory: &mut Memory) -> Step {
        (self.step)(memory, &mut self.state)
    }
}

type Stepper = fn(&mut Memory, &mut State) -> Step;

fn operations(threads: usize, least: u64) -> u64 {
    (OPERATIONS / threads as u64).max(least)
}

fn programs(threads: usize, step: Stepper) -> Vec<Box<dyn Program>> {
    programs_of(threads, operations(threads, LEAST), step)
}

fn programs_of(threads: usize, left: u64, step: Stepper) -> Vec<Box<dyn Program>> {
    (0..threads)
        .map(|thread| {
            let state = State { thread, left, at: 0, value: 0 };
            Box::new(Script { state, step }) as Box<dyn Program>
        })
        .collect()
}

fn play(cores: usize, seed: u64, step: Stepper) -> Finished {
    run(&machine(cores), seed, 0, programs(cores, step))
}

/// Mean operations a kilocycle over the seeds, by number of cores.
fn curve(step: Stepper, least: u64) -> Vec<f64> {
    let point = |cores: usize| {
        let each = operations(cores, least);
        let total = (each * cores as u64) as f64;
        let cycles = |seed| run(&machine(cores), seed, 0, programs_of(cores, each, step)).cycles;
        let sum: f64 = (1..=SEEDS).map(|seed| total * 1000.0 / cycles(seed) as f64).sum();
        sum / SEEDS as f64
    };
    CORES.into_iter().map(point).collect()
}

fn check_linear(name: &str, curve: &[f64]) {
    for (cores, throughput) in CORES.iter().zip(curve) {
        let efficiency = throughput / curve[0] / *cores as f64;
        assert!(
            efficiency > 0.75,
            "{name}: efficiency {efficiency:.2} at {cores} cores of {curve:.2?}"
        );
    }
}

/// More cores bring little beyond 16, but take little away either.
fn check_plateau(name: &str, curve: &[f64]) {
    let (at_16, at_128) = (curve[4], curve[7]);
    assert!(at_128 < curve[0] * 24.0, "{name} scales: {curve:.2?}");
    assert!(at_128 > at_16 * 0.5, "{name} collapses: {curve:.2?}");
    assert!(at_128 < at_16 * 3.0, "{name} still grows: {curve:.2?}");
}

/// The best is at few cores, and many are far below it.
fn check_collapse(name: &str, curve: &[f64]) {
    let best = curve.iter().copied().fold(0.0, f64::max);
    assert!(curve[..5].contains(&best), "{name} is best late: {curve:.2?}");
    assert!(curve[7] < best * 0.4, "{name} does not collapse: {curve:.2?}");
    assert!(curve[7] < curve[6] * 1.1 && curve[6] < curve[5] * 1.1, "{name} recovers: {curve:.2?}");
}

/// The work between two operations, private but for a jitter of its own.
fn between(memory: &mut Memory, state: &mut State) {
    let cycles = 300 + memory.random(100);
    memory.work(cycles);
    state.at += 1;
}

fn finish(state: &mut State) -> Step {
    state.at = 0;
    state.left -= 1;
    if state.left == 0 { Step::Exit } else { Step::Run }
}

/// One access to memory that a lock protects; three of them.
fn critical(memory: &mut Memory, state: &mut State, first: u32) {
    match state.at - first {
        0 => state.value = memory.load(DATA),
        1 => memory.store(DATA, state.value + 1),
        _ => memory.work(20),
    }
    state.at += 1;
}

fn one_counter(memory: &mut Memory, state: &mut State) -> Step {
    if state.at == 0 {
        between(memory, state);
        return Step::Run;
    }
    memory.add(DATA, 1, Ordering::Relaxed);
    finish(state)
}

fn neighbours(memory: &mut Memory, state: &mut State) -> Step {
    if state.at == 0 {
        between(memory, state);
        return Step::Run;
    }
    memory.add(DATA + state.thread as u64 % 8 * 8, 1, Ordering::Relaxed);
    finish(state)
}

/// Counts as [`neighbours`] does, but not atomically: a load, then a store, so that lines are upgraded. The first is a
/// store alone: a line that was only read yet is shared neither truly nor falsely.
fn plain_neighbours(memory: &mut Memory, state: &mut State) -> Step {
    let counter = DATA + state.thread as u64 % 8 * 8;
    match state.at {
        0 => {
            between(memory, state);
            state.at += u32::from(state.value == 0);
        }
        1 => {
            state.value = memory.load(counter);
            state.at += 1;
        }
        _ => {
            state.value += 1;
            memory.store(counter, state.value);
            return finish(state);
        }
    }
    Step::Run
}

fn shards(memory: &mut Memory, state: &mut State) -> Step {
    if state.at == 0 {
        between(memory, state);
        return Step::Run;
    }
    memory.add(own(state.thread), 1, Ordering::Relaxed);
    finish(state)
}

fn ttas(memory: &mut Memory, state: &mut State) -> Step {
    match state.at {
        0 => between(memory, state),
        1 => match memory.atomic_load(LOCK) {
            0 => state.at = 2,
            _ => memory.pause(),
        },
        2 => match memory.compare_exchange(LOCK, 0, 1, Ordering::Acquire) {
            Ok(_) => state.at = 3,
            Err(_) => state.at = 1,
        },
        3..=5 => critical(memory, state, 3),
        _ => {
            memory.release(LOCK, 0);
            return finish(state);
        }
    }
    Step::Run
}

fn ticket(memory: &mut Memory, state: &mut State) -> Step {
    match state.at {
        0 => between(memory, state),
        1 => {
            state.value = memory.add(LOCK, 1, Ordering::Relaxed);
            state.at = 2;
        }
        2 => match memory.atomic_load(SERVING) == state.value {
            true => state.at = 3,
            false => memory.pause(),
        },
        3..=5 => {
            let ticket = state.value;
            critical(memory, state, 3);
            state.value = ticket;
        }
        _ => {
            memory.release(SERVING, state.value + 1);
            return finish(state);
        }
    }
    Step::Run
}

/// A node is a line: the flag, and the address of the next one.
fn mcs(memory: &mut Memory, state: &mut State) -> Step {
    let (flag, next) = (own(state.thread), own(state.thread) + 8);
    match state.at {
        0 => between(memory, state),
        1 => {
            memory.store(next, 0);
            state.at = 2;
        }
        2 => {
            memory.store(flag, 1);
            state.at = 3;
        }
        3 => {
            state.value = memory.swap(LOCK, flag, Ordering::AcquireRelease);
            state.at = if state.value == 0 { 6 } else { 4 };
        }
        4 => {
            memory.release(state.value + 8, flag);
            state.at = 5;
        }
        5 => match memory.atomic_load(flag) {
            0 => state.at = 6,
            _ => memory.pause(),
        },
        6..=8 => critical(memory, state, 6),
        9 => {
            state.value = memory.atomic_load(next);
            state.at = if state.value == 0 { 10 } else { 12 };
        }
        10 => match memory.compare_exchange(LOCK, flag, 0, Ordering::Release) {
            Ok(_) => return finish(state),
            Err(_) => state.at = 11,
        },
        11 => {
            state.value = memory.atomic_load(next);
            if state.value == 0 {
                memory.pause();
            } else {
                state.at = 12;
            }
        }
        _ => {
            memory.release(state.value, 0);
            return finish(state);
        }
    }
    Step::Run
}

/// 0 free, 1 taken, 2 taken with a sleeper, like the mutexes of libraries. It does not spin.
fn mutex(memory: &mut Memory, state: &mut State) -> Step {
    match state.at {
        0 => between(memory, state),
        1 => match memory.compare_exchange(LOCK, 0, 1, Ordering::Acquire) {
            Ok(_) => state.at = 5,
            Err(_) => state.at = 3,
        },
        3 => match memory.swap(LOCK, 2, Ordering::Acquire) {
            0 => state.at = 5,
            _ => state.at = 4,
        },
        4 => {
            state.at = 3;
            return Step::Wait { address: LOCK, value: 2 };
        }
        5..=7 => critical(memory, state, 5),
        8 => {
            if memory.swap(LOCK, 0, Ordering::Release) != 2 {
                return finish(state);
            }
            state.at = 9;
        }
        9 => {
            state.at = 10;
            return Step::Wake { address: LOCK };
        }
        _ => return finish(state),
    }
    Step::Run
}

/// Readers follow a pointer; thread 0 replaces its target now and then.
fn rcu(memory: &mut Memory, state: &mut State) -> Step {
    match state.at {
        0 => between(memory, state),
        1 => {
            if state.thread == 0 && state.left == 1 {
                memory.release(LOCK, 1);
            } else {
                memory.atomic_load(LOCK);
            }
            state.at = 2;
        }
        _ => {
            memory.load(DATA);
            return finish(state);
        }
    }
    Step::Run
}

/// Readers count themselves in and out of data that no thread writes.
fn reader_count(memory: &mut Memory, state: &mut State) -> Step {
    match state.at {
        0 => between(memory, state),
        1 => {
            memory.add(LOCK, 1, Ordering::Acquire);
            state.at = 2;
        }
        2 => {
            memory.load(DATA);
            state.at = 3;
        }
        _ => {
            memory.add(LOCK, 1_u64.wrapping_neg(), Ordering::Release);
            return finish(state);
        }
    }
    Step::Run
}

/// Elements of 48 bytes, one a thread, in a row: every other one straddles two lines.
fn straddling(memory: &mut Memory, state: &mut State) -> Step {
    let element = DATA + state.thread as u64 * 48;
    match state.at {
        0 => between(memory, state),
        field @ 1..=5 => {
            memory.store(element + u64::from(field) * 8, 1);
            state.at += 1;
        }
        _ => {
            memory.store(element, 1);
            return finish(state);
        }
    }
    Step::Run
}

/// Writes elements that have a line of their own each.
fn aligned(memory: &mut Memory, state: &mut State) -> Step {
    let element = DATA + state.thread as u64 * 64;
    match state.at {
        0 => between(memory, state),
        field @ 1..=5 => {
            memory.store(element + u64::from(field) * 8, 1);
            state.at += 1;
        }
        _ => {
            memory.store(element, 1);
            return finish(state);
        }
    }
    Step::Run
}

#[test]
fn what_shares_nothing_scales() {
    check_linear("shards", &curve(shards, LEAST_ALONE));
    for cores in CORES {
        assert_eq!(play(cores, 1, shards).sum(0..u64::MAX).transfers, 0, "{cores} cores");
    }
}

#[test]
fn readers_of_what_is_rarely_written_scale() {
    check_linear("rcu", &curve(rcu, LEAST_ALONE));
    let finished = play(64, 1, rcu);
    let pointer = finished.counts[&LOCK];
    assert!(
        pointer.transfers <= 3 * 64,
        "each reader gets it, and once more after the write: {pointer:?}"
    );
    assert_eq!(finished.counts[&DATA].transfers, 63, "and what it leads to once");
}

#[test]
fn one_counter_saturates() {
    check_plateau("one counter", &curve(one_counter, LEAST));
    let count = play(32, 1, one_counter).counts[&DATA];
    assert_eq!(count.false_shared, 0, "all of them write the same bytes: {count:?}");
    assert!(count.transfers * 10 > count.accesses * 9, "{count:?}");
}

#[test]
fn counters_of_one_line_are_all_falsely_shared() {
    for step in [neighbours as Stepper, plain_neighbours] {
        for cores in [2, 4, 8] {
            let finished = play(cores, 1, step);
            let (counters, private) = (finished.sum(DATA..DATA + 64), play(cores, 1, shards));
            assert!(counters.transfers * 2 > counters.accesses, "{cores} cores: {counters:?}");
            assert_eq!(counters.false_shared, counters.transfers, "{cores} cores");
            assert!(
                finished.cycles * 10 > private.cycles * 12,
                "{} and {}",
                finished.cycles,
                private.cycles
            );
        }
    }
}

#[test]
fn spinning_locks_collapse() {
    check_collapse("test and test-and-set", &curve(ttas, LEAST));
    check_collapse("ticket", &curve(ticket, LEAST));
}

#[test]
fn queueing_and_sleeping_locks_do_not() {
    check_plateau("queue", &curve(mcs, LEAST));
    check_plateau("mutex", &curve(mutex, LEAST));
}

#[test]
fn a_queueing_lock_beats_a_spinning_one_with_many_cores() {
    let cycles = |step| play(128, 1, step).cycles;
    assert!(cycles(mcs) * 3 < cycles(ttas));
    assert!(cycles(mcs) * 2 < cycles(ticket));
}

#[test]
fn counting_readers_keeps_them_from_scaling() {
    check_plateau("reader count", &curve(reader_count, LEAST));
    let finished = play(32, 1, reader_count);
    assert_eq!(finished.counts[&LOCK].false_shared, 0);
    assert_eq!(finished.counts[&DATA].transfers, 31, "the data stays with everybody");
}

#[test]
fn elements_across_lines_are_falsely_shared_until_aligned() {
    check_linear("aligned", &curve(aligned, LEAST_ALONE));
    for cores in [8, 64] {
        let (across, alone) = (play(cores, 1, straddling), play(cores, 1, aligned));
        let count = across.sum(DATA..PRIVATE);
        assert!(count.transfers > 0);
        assert_eq!(count.false_shared, count.transfers);
        assert_eq!(alone.sum(DATA..PRIVATE).transfers, 0);
        assert!(across.cycles * 10 > alone.cycles * 12, "{} and {}", across.cycles, alone.cycles);
    }
}

#[test]
fn a_field_beside_a_lock_is_falsely_shared_and_the_lock_is_not() {
    fn step(memory: &mut Memory, state: &mut State) -> Step {
        if state.at == 1 {
            memory.load(LOCK + 16);
        }
        ttas(memory, state)
    }
    let finished = play(16, 1, step);
    let (field, lock) = (finished.counts[&(LOCK + 16)], finished.counts[&LOCK]);
    assert!(field.transfers > 100, "{field:?} {lock:?}");
    // Except for the first time, before any write.
    assert!(field.transfers - field.false_shared < 16, "{field:?}");
    assert!(
        lock.false_shared * 20 < lock.transfers,
        "the field takes the lock from no thread that wants it: {lock:?}"
    );
}

#[test]
fn a_layout_that_is_tried_costs_what_the_changed_source_costs() {
    const OBJECT: u64 = 0x8000;
    fn step(memory: &mut Memory, state: &mut State, field: u64) -> Step {
        if state.at == 1 {
            memory.load(OBJECT + field);
        }
        if state.at == 2 {
            memory.add(OBJECT, 1, Ordering::AcquireRelease);
            return finish(state);
        }
        between(memory, state);
        Step::Run
    }
    fn before(memory: &mut Memory, state: &mut State) -> Step {
        step(memory, state, 16)
    }
    fn after(memory: &mut Memory, state: &mut State) -> Step {
        step(memory, state, 64)
    }
    let moves = vec![Move { from: 0, bytes: 16, to: 0 }, Move { from: 16, bytes: 8, to: 64 }];
    let target = Target::Allocation(Vec::new());
    let change = Relayout { target, size: 24, new_size: 128, align: 64, moves, first: 0 };
    for cores in [2, 8, 32] {
        for seed in 1..=SEEDS {
            let base = play(cores, seed, before);
            let changed = play(cores, seed, after);
            let layouts = [(OBJECT, 24, change.clone())];
            let tried = run_with(&machine(cores), seed, 0, &layouts, programs(cores, before));
            assert_eq!(tried.cycles, changed.cycles, "{cores} cores, seed {seed}");
            let field = tried.counts[&(OBJECT + 16)];
            assert_eq!(field, changed.counts[&(OBJECT + 64)]);
            assert!(field.transfers < cores as u64, "only the first time: {field:?}");
            let field = base.counts[&(OBJECT + 16)];
            assert!(field.transfers > 10 * cores as u64, "{cores} cores, seed {seed}: {field:?}");
        }
    }
}

#[test]
fn two_nodes_cost_more_than_one() {
    for step in [ttas as Stepper, mutex, one_counter] {
        let cycles = |nodes| {
            let machine = Machine::default().with(8, nodes);
            run(&machine, 1, 0, programs(8, step)).cycles
        };
        assert!(cycles(2) * 10 > cycles(1) * 11, "{} and {}", cycles(2), cycles(1));
    }
}

#[test]
fn the_same_seed_gives_the_same_clock_wherever_the_program_lies() {
    for step in [ttas as Stepper, ticket, mcs, mutex, rcu, plain_neighbours] {
        for (nodes, shifts) in [(1, [64, 0x7f00_0000_1040]), (2, [4096, 0x7f00_0000_1000])] {
            let machine = Machine::default().with(16, nodes);
            let clock = |seed, base| run(&machine, seed, base, programs(16, step)).cycles;
            let first = clock(7, 0);
            assert_eq!(first, clock(7, 0));
            for base in shifts {
                assert_eq!(first, clock(7, base), "at {base:#x}, {nodes} nodes");
            }
        }
    }
}

#[test]
fn another_seed_gives_another_clock() {
    let clocks: std::collections::BTreeSet<u64> =
        (1..=SEEDS).map(|seed| play(16, seed, ttas).cycles).collect();
    assert_eq!(clocks.len() as u64, SEEDS);
}

#[test]
fn one_thread_pays_for_memory_once() {
    fn step(memory: &mut Memory, state: &mut State) -> Step {
        memory.access(DATA + state.left % 100 * 8, 8, Operation::Store);
        finish(state)
    }
    let mut programs = programs(1, step);
    programs.truncate(1);
    let finished = run(&plain_machine(1, 1), 1, 0, programs);
    // 800 bytes from 0x1200 on are 13 lines; each is fetched once for 230 cycles.
    assert_eq!(finished.sum(0..u64::MAX).misses, 13);
    assert_eq!(finished.cycles, 13 * 230 + OPERATIONS + OPERATIONS / 2);
}

#[test]
fn the_thread_count_may_exceed_the_cores() {
    let machine = machine(4);
    let finished = run(&machine, 1, 0, programs(12, shards));
    assert_eq!(finished.sum(0..u64::MAX).accesses, 12 * operations(12, LEAST));
    let alone = run(&machine, 1, 0, programs(4, shards));
    // Three times as many threads, each with a third of the work.
    assert!(finished.cycles * 10 < alone.cycles * 15, "{} and {}", finished.cycles, alone.cycles);
}

#[test]
fn locks_are_found_and_what_is_none_is_not() {
    let spin = play(8, 1, ttas);
    let lock = spin.lock(LOCK).expect("the word");
    assert_eq!(lock.kind, uvfs_coherence::profile::LockKind::Word);
    assert_eq!(lock.acquisitions, operations(8, LEAST) * 8);
    assert!(
        lock.contended > lock.acquisitions / 2 && lock.bounces > lock.acquisitions / 2,
        "{lock:?}"
    );
    assert_eq!(spin.locks.len(), 1);

    let finished = play(8, 1, mutex);
    let lock = finished.lock(LOCK).expect("the mutex");
    assert_eq!(lock.acquisitions, operations(8, LEAST) * 8);
    assert!(lock.contended > 0 && lock.hold_min > 20 && lock.wait_max > lock.hold_min, "{lock:?}");
    assert_eq!(finished.locks.len(), 1);

    let finished = play(8, 1, ticket);
    assert!(finished.lock(LOCK).is_none(), "a ticket is never given back");
    let serving = finished.lock(SERVING).expect("awaited");
    assert_eq!(serving.kind, uvfs_coherence::profile::LockKind::Awaited);
    assert!(serving.contended > 0 && serving.hold_total == 0, "{serving:?}");

    let finished = play(8, 1, mcs);
    let flags = finished.locks.iter().filter(|lock| lock.offset >= PRIVATE);
    assert_eq!(flags.count(), 8, "every thread waits on its own node");

    assert_eq!(play(8, 1, one_counter).locks, []);
    assert_eq!(play(8, 1, reader_count).locks, [], "no reader ever waits");
}
