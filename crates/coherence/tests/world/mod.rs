//! Scripted programs on virtual cores: the model, the scheduler and the locks, without a runtime.
//!
//! # Boundary
//! Memory with values, threads as state machines that make at most one access a step, counts by
//! address. The programs are in the tests.
//!
//! # Concurrency
//! None: one loop, which always steps the thread that the scheduler names.
//!
//! # Why
//! The textbook's answers are checked here where nothing but the model can be wrong. Weakness: the
//! programs are written for the purpose; real ones come with the runtime's tests.

#![allow(dead_code, unreachable_pub)] // Each test uses its part; a test is no library.

use std::collections::{BTreeMap, BTreeSet};
use uvfs_coherence::configuration::Relayout;
use uvfs_coherence::locks::{Event, Locks};
use uvfs_coherence::machine::{Machine, Parameter};
use uvfs_coherence::profile::{Operation, Ordering};
use uvfs_coherence::{Access, Miss, Model, Next, Scheduler, TICKS_PER_CYCLE, Ticks};

/// A thread's next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Go on.
    Run,
    /// Sleep while the word has this value.
    Wait { address: u64, value: u64 },
    /// Wake one that sleeps on the word.
    Wake { address: u64 },
    /// It is done.
    Exit,
}

/// A thread's program; it keeps where it is.
pub trait Program {
    /// Makes at most one access.
    fn step(&mut self, memory: &mut Memory) -> Step;
}

/// Counts of one address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    pub accesses: u64,
    pub misses: u64,
    pub transfers: u64,
    pub remote: u64,
    pub false_shared: u64,
}

/// The memory that programs see.
pub struct Memory {
    pub scheduler: Scheduler,
    pub model: Model,
    pub locks: Locks,
    values: BTreeMap<u64, u64>,
    pub counts: BTreeMap<u64, Count>,
    pub base: u64,
    compute: Ticks,
    accesses: Vec<u64>,
    random: u64,
}

impl Memory {
    /// A number below `limit`, by the seed.
    pub fn random(&mut self, limit: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.random >> 33) * limit) >> 31
    }

    /// Computes for so many cycles.
    pub fn work(&mut self, cycles: u64) {
        self.scheduler.advance(cycles * TICKS_PER_CYCLE);
    }

    /// One turn of a spin loop.
    pub fn pause(&mut self) {
        self.work(40);
    }

    pub fn peek(&self, address: u64) -> u64 {
        self.values.get(&address).copied().unwrap_or(0)
    }

    /// Charges an access of any width; it is cut at lines.
    pub fn access(&mut self, address: u64, bytes: u32, operation: Operation) -> Option<Miss> {
        let thread = self.scheduler.current();
        self.scheduler.advance(self.compute);
        self.accesses.resize(self.accesses.len().max(thread + 1), 0);
        self.accesses[thread] += 1;
        let line = self.model.line_bytes();
        let mut worst = None;
        let (mut at, end) = (self.base + address, self.base + address + u64::from(bytes));
        while at < end {
            let next = (at / line + 1) * line;
            let access = Access { address: at, bytes: (next.min(end) - at) as u32, operation };
            let (core, now) = (self.scheduler.current_core(), self.scheduler.now());
            let outcome = self.model.access(core, now, address as u32, &access);
            self.scheduler.advance_to(outcome.finish);
            worst = outcome.miss.or(worst);
            at = next;
        }
        let count = self.counts.entry(address).or_default();
        count.accesses += 1;
        if let Some(miss) = worst {
            count.misses += 1;
            count.transfers += u64::from(miss.class.is_transfer());
            count.remote += u64::from(miss.class.is_remote());
            count.false_shared += u64::from(miss.false_shared);
        }
        worst
    }

    fn event(&self, address: u64, begin: Ticks) -> Event {
        let thread = self.scheduler.current();
        Event {
            address,
            bytes: 8,
            thread: thread as u32,
            core: self.scheduler.current_core() as u32,
            site: address as u32,
            begin,
            end: self.scheduler.now(),
            accesses: self.accesses[thread],
        }
    }

    pub fn load(&mut self, address: u64) -> u64 {
        self.access(address, 8, Operation::Load);
        self.peek(address)
    }

    pub fn store(&mut self, address: u64, value: u64) {
        self.access(address, 8, Operation::Store);
        self.values.insert(address, value);
    }

    pub fn atomic_load(&mut self, address: u64) -> u64 {
        let begin = self.scheduler.now();
        self.access(address, 8, Operation::AtomicLoad);
        let (event, value) = (self.event(address, begin), self.peek(address));
        self.locks.load(&event, value);
        value
    }

    pub fn update(
        &mut self,
        address: u64,
        operation: Operation,
        ordering: Ordering,
        new: impl Fn(u64) -> u64,
    ) -> u64 {
        let begin = self.scheduler.now();
        self.access(address, 8, operation);
        let old = self.peek(address);
        self.values.insert(address, new(old));
        let event = self.event(address, begin);
        self.locks.update(&event, operation, ordering, old, new(old), true);
        old
    }

    pub fn add(&mut self, address: u64, delta: u64, ordering: Ordering) -> u64 {
        self.update(address, Operation::FetchAdd, ordering, |old| old.wrapping_add(delta))
    }

    pub fn release(&mut self, address: u64, value: u64) {
        self.update(address, Operation::AtomicStore, Ordering::Release, |_| value);
    }

    pub fn swap(&mut self, address: u64, value: u64, ordering: Ordering) -> u64 {
        self.update(address, Operation::Exchange, ordering, |_| value)
    }

    pub fn compare_exchange(
        &mut self,
        address: u64,
        from: u64,
        to: u64,
        ordering: Ordering,
    ) -> Result<u64, u64> {
        let begin = self.scheduler.now();
        self.access(address, 8, Operation::CompareExchange);
        let old = self.peek(address);
        if old == from {
            self.values.insert(address, to);
        }
        let event = self.event(address, begin);
        self.locks.update(&event, Operation::CompareExchange, ordering, old, to, old == from);
        if old == from { Ok(old) } else { Err(old) }
    }
}

/// The result of a run.
pub struct Finished {
    pub cycles: u64,
    pub counts: BTreeMap<u64, Count>,
    pub locks: Vec<uvfs_coherence::profile::Lock>,
}

impl Finished {
    /// Sums the counts of the addresses in a range.
    pub fn sum(&self, range: std::ops::Range<u64>) -> Count {
        self.counts.range(range).fold(Count::default(), |sum, (_, count)| Count {
            accesses: sum.accesses + count.accesses,
            misses: sum.misses + count.misses,
            transfers: sum.transfers + count.transfers,
            remote: sum.remote + count.remote,
            false_shared: sum.false_shared + count.false_shared,
        })
    }

    pub fn lock(&self, address: u64) -> Option<&uvfs_coherence::profile::Lock> {
        self.locks.iter().find(|lock| lock.offset == address)
    }
}

/// A machine for known answers: as assumed, one node up to 8 cores and two above.
pub fn machine(cores: usize) -> Machine {
    Machine::default().with(cores, if cores > 8 { 2 } else { 1 })
}

/// A machine without jitter and without capacity.
pub fn plain_machine(cores: usize, nodes: usize) -> Machine {
    let mut machine = Machine::default().with(cores, nodes);
    machine.jitter_percent = Parameter::assumed(0.0);
    machine.cache.private_kib = Parameter::assumed(0.0);
    machine.cache.last_level_kib = Parameter::assumed(0.0);
    machine
}

/// Runs one program a thread, all from time zero.
pub fn run(machine: &Machine, seed: u64, base: u64, programs: Vec<Box<dyn Program>>) -> Finished {
    run_with(machine, seed, base, &[], programs)
}

/// Runs the programs with layouts to try, each with where it begins and how many bytes it is for.
pub fn run_with(
    machine: &Machine,
    seed: u64,
    base: u64,
    layouts: &[(u64, u64, Relayout)],
    mut programs: Vec<Box<dyn Program>>,
) -> Finished {
    let mut memory = Memory {
        scheduler: Scheduler::new(machine),
        model: Model::new(machine, seed),
        locks: Locks::new(),
        values: BTreeMap::new(),
        counts: BTreeMap::new(),
        base,
        compute: TICKS_PER_CYCLE,
        accesses: Vec::new(),
        random: seed,
    };
    for (start, bytes, change) in layouts {
        memory.model.relayout(base + start, *bytes, change);
    }
    for _ in 1..programs.len() {
        memory.scheduler.spawn(0);
    }
    let mut sleepers: BTreeMap<u64, BTreeSet<(u64, usize)>> = BTreeMap::new();
    let mut asleep_since: BTreeMap<usize, (u64, u64, Ticks)> = BTreeMap::new();
    let (mut order, mut left, mut last) = (0, programs.len(), 0);
    while left > 0 {
        let Next::Run(thread) = memory.scheduler.next() else { panic!("deadlock") };
        if let Some((address, value, begin)) = asleep_since.remove(&thread) {
            let event = memory.event(address, begin);
            memory.locks.futex_wait(&event, value);
        }
        while !memory.scheduler.must_yield(0) {
            match programs[thread].step(&mut memory) {
                Step::Run => {}
                Step::Wait { address, value } => {
                    memory.work(300);
                    if memory.peek(address) == value {
                        memory.work(1500);
                        order += 1;
                        sleepers.entry(address).or_default().insert((order, thread));
                        asleep_since.insert(thread, (address, value, memory.scheduler.now()));
                        memory.scheduler.block(None);
                        break;
                    }
                }
                Step::Wake { address } => {
                    memory.work(800);
                    if let Some((_, sleeper)) =
                        sleepers.get_mut(&address).and_then(BTreeSet::pop_first)
                    {
                        let at = memory.scheduler.now() + 4000 * TICKS_PER_CYCLE;
                        assert!(memory.scheduler.wake(sleeper, at));
                    }
                }
                Step::Exit => {
                    last = last.max(memory.scheduler.now());
                    memory.scheduler.exit();
                    left -= 1;
                    break;
                }
            }
        }
    }
    Finished {
        cycles: last / TICKS_PER_CYCLE,
        counts: memory.counts,
        locks: memory.locks.into_records(seed),
    }
}
