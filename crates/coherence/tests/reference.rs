//! The model against a slow one that can be read in a minute.
//!
//! # Boundary
//! No jitter and no capacity; random accesses of few cores to few lines, and the properties of
//! layouts, profiles and schedules that hold for any input.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! The model keeps masks by row, sets by bit and states by holder to be fast; here every byte has its
//! own set of cores. Weakness: the two were written by the same hand.

mod world;

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use uvfs_coherence::configuration::{Move, Relayout, Target};
use uvfs_coherence::layout::{Layouts, check};
use uvfs_coherence::machine::{Machine, Parameter};
use uvfs_coherence::profile::{Class, Operation};
use uvfs_coherence::{Access, Miss, Model, Next, Outcome, Scheduler, TICKS_PER_CYCLE};
use world::plain_machine;

const OPERATIONS: [Operation; 5] = [
    Operation::Load,
    Operation::Store,
    Operation::AtomicLoad,
    Operation::FetchAdd,
    Operation::CompareExchange,
];

/// A core's copy of a line, and the writes that it missed.
#[derive(Default)]
struct Copy {
    valid: bool,
    exclusive: bool,
    touched: BTreeSet<u64>,
    lost: BTreeSet<u64>,
}

struct SlowLine {
    copies: Vec<Copy>,
    busy: u64,
    writer: Option<u32>,
    transferred: bool,
}

struct Slow {
    machine: Machine,
    lines: BTreeMap<u64, SlowLine>,
    homes: BTreeMap<u64, usize>,
}

impl Slow {
    fn access(&mut self, core: usize, now: u64, site: u32, access: &Access) -> Outcome {
        let machine = &self.machine;
        let ticks = |cycles: f64| (cycles * TICKS_PER_CYCLE as f64).round() as u64;
        let node = machine.node_of(core);
        let home = *self.homes.entry(access.address / 4096).or_insert(node);
        let line =
            self.lines.entry(access.address / machine.line_bytes).or_insert_with(|| SlowLine {
                copies: (0..machine.cores).map(|_| Copy::default()).collect(),
                busy: 0,
                writer: None,
                transferred: false,
            });
        let bytes: BTreeSet<u64> =
            (access.address..access.address + u64::from(access.bytes)).collect();
        let writes = access.operation.writes();
        let mut cost = ticks(machine.latency.hit.value);
        if access.operation.updates() {
            cost += ticks(machine.latency.atomic.value);
        }
        let mine = &line.copies[core];
        let hit = mine.valid && (mine.exclusive || !writes);
        let others: Vec<usize> = (0..machine.cores)
            .filter(|other| *other != core && line.copies[*other].valid)
            .collect();
        let owned = others.iter().any(|other| line.copies[*other].exclusive);
        let mut miss = None;
        let mut finish = now + cost;
        if !hit {
            let distances = others
                .iter()
                .map(|other| (machine.distance(node, machine.node_of(*other)), *other));
            let answering = if writes { distances.max() } else { distances.min() };
            let (class, latency) = match answering {
                Some((distance, other)) => {
                    let from = machine.node_of(other);
                    assert_eq!(distance, machine.distance(node, from));
                    let class =
                        if from == node { Class::LocalTransfer } else { Class::RemoteTransfer };
                    let latency = &machine.latency;
                    (
                        class,
                        machine.scaled(latency.local_transfer, latency.remote_transfer, from, node),
                    )
                }
                None if mine.valid => (Class::LastLevel, machine.latency.last_level.value),
                None => {
                    let class = if home == node { Class::LocalMemory } else { Class::RemoteMemory };
                    let latency = &machine.latency;
                    (class, machine.scaled(latency.local_memory, latency.remote_memory, home, node))
                }
            };
            let mut concerned = mine.lost.clone();
            let news = !concerned.is_empty();
            if writes {
                for other in &others {
                    concerned.extend(&line.copies[*other].touched);
                }
            }
            let service = ticks(latency);
            let start = now.max(line.busy);
            line.busy = start
                + match class {
                    _ if owned || writes && class.is_transfer() => service,
                    Class::LocalTransfer | Class::RemoteTransfer => {
                        ticks(machine.occupancy.shared_read.value)
                    }
                    Class::LastLevel => service,
                    Class::LocalMemory | Class::RemoteMemory => {
                        ticks(machine.occupancy.memory.value)
                    }
                };
            line.transferred |= class.is_transfer();
            miss = Some(Miss {
                class,
                queue: start - now,
                service,
                false_shared: class.is_transfer()
                    && !concerned.is_empty()
                    && concerned.is_disjoint(&bytes),
                writer: if class.is_transfer() && news { line.writer } else { None },
            });
            finish = start + service + cost;
        }
        let mine = &mut line.copies[core];
        if !hit {
            if !mine.valid {
                mine.touched.clear();
            }
            mine.valid = true;
            mine.lost.clear();
            mine.exclusive = writes || others.is_empty();
            if writes {
                mine.touched.clear();
            }
            for other in others {
                let copy = &mut line.copies[other];
                copy.exclusive = false;
                if writes {
                    copy.valid = false;
                    copy.touched.clear();
                }
            }
        }
        line.copies[core].touched.extend(&bytes);
        if writes {
            line.writer = Some(site);
            for (other, copy) in line.copies.iter_mut().enumerate() {
                if other != core {
                    copy.lost.extend(&bytes);
                }
            }
        }
        Outcome { finish, miss, contended: line.transferred }
    }
}

fn machines() -> impl Strategy<Value = Machine> {
    let sizes = prop_oneof![
        Just((1, 1)),
        Just((2, 1)),
        Just((4, 2)),
        Just((6, 3)),
        Just((128, 2)),
        Just((130, 2)),
        Just((200, 5))
    ];
    (sizes, prop_oneof![Just(32_u64), Just(64)]).prop_map(|((cores, nodes), line_bytes)| {
        let mut machine = plain_machine(cores, nodes);
        machine.line_bytes = line_bytes;
        if nodes > 2 {
            // No two alike, so that the nearest and the farthest are one each.
            machine.distances = (0..nodes)
                .map(|from| {
                    (0..nodes)
                        .map(|to| if from == to { 10 } else { 15 + (from + to * 3) as u32 })
                        .collect()
                })
                .collect();
        }
        machine
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn the_model_is_the_slow_one(
        machine in machines(),
        steps in prop::collection::vec((0_usize..8, 0_u64..4, 0_u64..8, 0_u32..4, 0_usize..5, 0_u64..4000), 1..300),
    ) {
        let mut model = Model::new(&machine, 1);
        let mut slow = Slow { machine: machine.clone(), lines: BTreeMap::new(), homes: BTreeMap::new() };
        let mut now = 0;
        for (site, (core, line, slot, width, operation, pause)) in steps.into_iter().enumerate() {
            // Few cores, from both ends of the machine, so that lines are shared.
            let core = if core < 4 { core } else { machine.cores - 1 - (core - 4).min(machine.cores - 1) } % machine.cores;
            let bytes = 1_u64 << width;
            let address = 0x7000 + line * 2048 + (slot * 4 / bytes * bytes) % machine.line_bytes;
            let access = Access { address, bytes: bytes as u32, operation: OPERATIONS[operation] };
            let expected = slow.access(core, now, site as u32, &access);
            let outcome = model.access(core, now, site as u32, &access);
            prop_assert_eq!(outcome, expected, "step {}: core {} {:?}", site, core, access);
            now += pause;
        }
    }

    #[test]
    fn with_capacity_hits_are_never_invented(
        steps in prop::collection::vec((0_usize..4, 0_u64..64, any::<bool>()), 1..2000),
    ) {
        // One way of eight lines: nearly every line is thrown out again. Whatever is thrown out, a core
        // must not hit a line that another one wrote since it had it.
        let mut machine = plain_machine(4, 2);
        machine.cache.private_kib = Parameter::assumed(0.5);
        machine.cache.private_ways = Parameter::assumed(1.0);
        machine.cache.last_level_kib = Parameter::assumed(1.0);
        machine.cache.last_level_ways = Parameter::assumed(2.0);
        let mut model = Model::new(&machine, 3);
        let mut valid: BTreeSet<(usize, u64)> = BTreeSet::new();
        for (core, line, writes) in steps {
            let operation = if writes { Operation::Store } else { Operation::Load };
            let access = Access { address: line * 64, bytes: 8, operation };
            let hit = model.access(core, 0, 0, &access).miss.is_none();
            if hit {
                prop_assert!(valid.contains(&(core, line)));
            }
            if writes {
                valid.retain(|(_, other)| *other != line);
            }
            valid.insert((core, line));
        }
    }

    #[test]
    fn every_byte_has_one_place(
        sizes in prop::collection::vec(1_u64..24, 1..8),
        shuffle in prop::collection::vec(any::<u16>(), 8),
        gap in 0_u64..40,
        align in 0_u32..8,
        first in prop_oneof![Just(0_u64), Just(8), Just(16)],
        elements in 1_u64..5,
        start in 0_u64..16,
        tail in 0_u64..8,
    ) {
        // Fields in another order, some of them moved, with gaps between.
        let size: u64 = sizes.iter().sum();
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|index| shuffle[*index]);
        let moved = sizes.len() / 2 + 1;
        let mut to = gap;
        let mut moves = Vec::new();
        for index in order.into_iter().take(moved) {
            let from = sizes[..index].iter().sum();
            moves.push(Move { from, bytes: sizes[index], to });
            to += sizes[index] + gap % 3;
        }
        let rest: u64 = size - moves.iter().map(|step| step.bytes).sum::<u64>();
        let change = Relayout {
            target: Target::Allocation(Vec::new()),
            size,
            new_size: to + rest,
            align: 1 << align,
            moves,
            first,
        };
        prop_assert!(check(&change).is_ok(), "{:?}", check(&change));
        let mut layouts = Layouts::new(64);
        let (start, bytes) = (0x5000 + start * 8, first + elements * size + tail);
        layouts.add(start, bytes, &change);
        // Its neighbour as well: two objects must not meet either.
        layouts.add(start + bytes, bytes, &change);
        let mut places = BTreeMap::new();
        for byte in start - 64..start + 2 * bytes + 64 {
            let pieces = layouts.translate(byte, 1);
            prop_assert_eq!(pieces.len(), 1);
            prop_assert_eq!(places.insert(pieces[0].0, byte), None, "byte {:#x}", byte);
        }
        // A wide access is the sum of its bytes, cut at lines.
        for byte in start..start + bytes {
            let pieces = layouts.translate(byte, 16);
            prop_assert_eq!(pieces.iter().map(|(_, bytes)| bytes).sum::<u32>(), 16);
            let mut at = byte;
            for (address, bytes) in pieces {
                prop_assert!(address % 64 + u64::from(bytes) <= 64);
                for inner in 0..u64::from(bytes) {
                    prop_assert_eq!(layouts.translate(at, 1)[0].0, address + inner);
                    at += 1;
                }
            }
        }
        layouts.forget(start, bytes);
        prop_assert_eq!(layouts.translate(start, 1), vec![(start, 1)]);
    }

    #[test]
    fn the_earliest_thread_runs_and_none_is_lost(
        cores in 1_usize..6,
        threads in 1_usize..14,
        steps in prop::collection::vec((0_u8..10, 1_u64..5000, any::<u16>()), 1..400),
    ) {
        let mut machine = plain_machine(cores, 1);
        machine.cost.time_slice = Parameter::assumed(1000.0);
        let mut scheduler = Scheduler::new(&machine);
        for thread in 1..threads {
            scheduler.spawn(thread as u64);
        }
        let mut asleep = BTreeSet::new();
        let (mut exited, mut pinned) = (0, false);
        let mut last = vec![0; threads];
        for (what, ticks, pick) in steps {
            match scheduler.next() {
                Next::Deadlock => {
                    prop_assert_eq!(asleep.len() + exited, threads);
                    let Some(thread) = asleep.pop_first() else { break };
                    prop_assert!(scheduler.wake(thread, 0));
                    continue;
                }
                Next::Run(thread) => {
                    asleep.remove(&thread);
                    prop_assert_eq!(scheduler.current(), thread);
                    prop_assert_eq!(scheduler.core(thread), scheduler.current_core());
                    prop_assert!(!scheduler.must_yield(0) || cores < threads);
                    prop_assert!(scheduler.clock(thread) >= last[thread], "a clock went back");
                    for other in 0..threads {
                        let runs = !scheduler.is_blocked(other) && !scheduler.has_exited(other);
                        if runs && threads <= cores && !pinned {
                            prop_assert!(scheduler.clock(other) >= scheduler.now());
                        }
                    }
                    scheduler.advance(ticks);
                    last[thread] = scheduler.now();
                    match what {
                        0 => {
                            scheduler.block(None);
                            asleep.insert(thread);
                        }
                        1 => scheduler.block(Some(scheduler.now() + u64::from(pick))),
                        2 => {
                            let at = scheduler.now() + u64::from(pick);
                            if let Some(other) = asleep.pop_first() {
                                prop_assert!(scheduler.wake(other, at));
                                prop_assert!(!scheduler.is_blocked(other));
                                prop_assert!(!scheduler.timed_out(other));
                            }
                        }
                        3 => {
                            pinned = true;
                            prop_assert!(scheduler.set_affinity(thread, &[1 << (usize::from(pick) % cores)]));
                        }
                        4 => scheduler.yield_core(),
                        5 if exited + 1 < threads => {
                            scheduler.exit();
                            exited += 1;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}
