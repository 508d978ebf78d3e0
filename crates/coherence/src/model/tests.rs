//! Tests of the directory, one access after the other.

use super::*;
use crate::configuration::{Move, Target};
use crate::machine::Parameter;

const LINE: u64 = 0x4_0000;

fn quiet(cores: usize, nodes: usize) -> Machine {
    let mut machine = Machine::default().with(cores, nodes);
    machine.jitter_percent = Parameter::assumed(0.0);
    machine
}

fn access(model: &mut Model, core: usize, address: u64, operation: Operation) -> Option<Class> {
    let outcome = model.access(core, 0, 0, &Access { address, bytes: 8, operation });
    outcome.miss.map(|miss| miss.class)
}

/// Two lines in each private cache, four in each last level: one set of that many ways.
fn tiny(nodes: usize) -> Model {
    let mut machine = quiet(nodes, nodes);
    machine.cache.private_kib = Parameter::assumed(0.125);
    machine.cache.private_ways = Parameter::assumed(2.0);
    machine.cache.last_level_kib = Parameter::assumed(0.25);
    machine.cache.last_level_ways = Parameter::assumed(4.0);
    Model::new(&machine, 1)
}

#[test]
fn what_does_not_fit_goes_to_the_last_level_and_then_to_memory() {
    let mut model = tiny(1);
    let mut classes = Vec::new();
    for round in 0..2 {
        for line in 0..3 {
            classes.push((round, access(&mut model, 0, LINE + line * 64, Operation::Load)));
        }
    }
    assert!(
        classes[..3].iter().all(|(_, class)| *class == Some(Class::LocalMemory)),
        "{classes:?}"
    );
    assert!(classes[3..].iter().any(|(_, class)| *class == Some(Class::LastLevel)), "{classes:?}");
    assert!(
        classes[3..].iter().all(|(_, class)| *class != Some(Class::LocalMemory)),
        "{classes:?}"
    );
    for line in 0..64 {
        access(&mut model, 0, LINE + line * 64, Operation::Load);
    }
    assert_eq!(access(&mut model, 0, LINE, Operation::Load), Some(Class::LocalMemory));
}

#[test]
fn written_bytes_in_the_last_level_of_another_node_come_from_there() {
    let mut model = tiny(2);
    access(&mut model, 0, LINE, Operation::Store);
    let mut line = 0;
    while model.is_held_by_the_first(LINE) {
        line += 1;
        access(&mut model, 0, LINE + line * 64, Operation::Load);
    }
    assert_eq!(access(&mut model, 1, LINE, Operation::Load), Some(Class::RemoteTransfer));
    // Unwritten ones come from memory, of the node that touched the page first.
    access(&mut model, 0, LINE + 4096, Operation::Load);
    while model.is_held_by_the_first(LINE + 4096) {
        line += 1;
        access(&mut model, 0, LINE + line * 64, Operation::Load);
    }
    assert_eq!(access(&mut model, 1, LINE + 4096, Operation::Load), Some(Class::RemoteMemory));
}

#[test]
fn shared_copies_are_thrown_out_as_well() {
    let mut model = tiny(2);
    for line in 0..8 {
        access(&mut model, 1, LINE + line * 64, Operation::Load);
        access(&mut model, 0, LINE + line * 64, Operation::Load);
    }
    let hits = (0..8)
        .filter(|line| access(&mut model, 0, LINE + line * 64, Operation::Load).is_none())
        .count();
    assert!(hits <= 2, "two lines fit, {hits} hit");
}

#[test]
fn what_was_written_before_it_was_thrown_out_is_still_news() {
    let mut machine = quiet(3, 1);
    machine.cache.private_kib = Parameter::assumed(0.0625);
    machine.cache.private_ways = Parameter::assumed(1.0);
    let mut model = Model::new(&machine, 1);
    // Both cores have had it, so the writers are known; then the second core writes and loses it to its next line.
    access(&mut model, 0, LINE, Operation::Store);
    access(&mut model, 1, LINE + 8, Operation::Store);
    assert_eq!(access(&mut model, 1, LINE + 64, Operation::Load), Some(Class::LocalMemory));
    assert_eq!(access(&mut model, 2, LINE, Operation::Load), Some(Class::LastLevel));
    let load = Access { address: LINE + 16, bytes: 8, operation: Operation::Load };
    let miss = model.access(0, 0, 0, &load).miss.expect("a miss");
    assert_eq!((miss.class, miss.false_shared), (Class::LocalTransfer, true));
    assert_eq!(miss.writer, Some(0));
}

#[test]
fn a_page_is_at_home_where_it_was_touched_first() {
    let mut model = Model::new(&quiet(4, 2), 1);
    assert_eq!(access(&mut model, 3, LINE, Operation::Load), Some(Class::LocalMemory));
    assert_eq!(access(&mut model, 0, LINE + 64, Operation::Load), Some(Class::RemoteMemory));
    assert_eq!(access(&mut model, 0, LINE + 4096, Operation::Load), Some(Class::LocalMemory));
}

#[test]
fn a_request_waits_for_the_one_before() {
    let mut model = Model::new(&quiet(8, 1), 1);
    access(&mut model, 0, LINE, Operation::Store);
    let store = Access { address: LINE, bytes: 8, operation: Operation::FetchAdd };
    let start = 1000 * TICKS_PER_CYCLE;
    let misses: Vec<Miss> =
        (1..4).map(|core| model.access(core, start, 0, &store).miss.expect("a miss")).collect();
    let queues: Vec<u64> = misses.iter().map(|miss| miss.queue / TICKS_PER_CYCLE).collect();
    assert_eq!(queues, [0, 120, 240]);
    // Readers of a shared line wait only for the directory.
    let load = Access { operation: Operation::Load, ..store };
    let start = 5000 * TICKS_PER_CYCLE;
    let queues: Vec<u64> = (4..8)
        .map(|core| {
            model.access(core, start, 0, &load).miss.expect("a miss").queue / TICKS_PER_CYCLE
        })
        .collect();
    assert_eq!(queues, [0, 120, 150, 180]);
}

#[test]
fn jitter_is_within_its_percent_and_by_seed() {
    let mut machine = quiet(2, 1);
    machine.jitter_percent = Parameter::assumed(10.0);
    let services = |seed| {
        let mut model = Model::new(&machine, seed);
        let store = Access { address: LINE, bytes: 8, operation: Operation::Store };
        model.access(0, 0, 0, &store);
        let service =
            |turn: usize| model.access(turn % 2, 0, 0, &store).miss.expect("a miss").service;
        (1..500).map(service).collect::<Vec<_>>()
    };
    let (one, two) = (services(1), services(2));
    assert_ne!(one, two);
    assert_eq!(one, services(1));
    let cycles = |ticks: &u64| *ticks as f64 / TICKS_PER_CYCLE as f64;
    let least = one.iter().map(cycles).fold(f64::MAX, f64::min);
    let most = one.iter().map(cycles).fold(0.0, f64::max);
    assert!((108.0..110.0).contains(&least) && (130.0..=132.0).contains(&most), "{least} {most}");
    let mean = one.iter().map(cycles).sum::<f64>() / one.len() as f64;
    assert!((118.0..122.0).contains(&mean), "{mean}");
}

#[test]
fn a_moved_field_no_longer_shares_its_line() {
    let mut model = Model::new(&quiet(2, 1), 1);
    let moves = vec![Move { from: 0, bytes: 8, to: 0 }, Move { from: 8, bytes: 8, to: 64 }];
    let target = Target::Allocation(Vec::new());
    let change = Relayout { target, size: 16, new_size: 128, align: 64, moves, first: 0 };
    model.relayout(LINE, 16, &change);
    access(&mut model, 0, LINE, Operation::Store);
    access(&mut model, 1, LINE + 8, Operation::Store);
    assert_eq!(access(&mut model, 0, LINE, Operation::Store), None);
    assert_eq!(access(&mut model, 1, LINE + 8, Operation::Store), None);
    // An access of both is two, and both lines pay: the slower one is its miss.
    let both = Access { address: LINE, bytes: 16, operation: Operation::Load };
    let outcome = model.access(0, 0, 0, &both);
    assert_eq!(outcome.miss.map(|miss| miss.class), Some(Class::LocalTransfer));
    assert_eq!(access(&mut model, 1, LINE + 8, Operation::Load), None);
    model.forget(LINE, 16);
    access(&mut model, 0, LINE, Operation::Store);
    assert_eq!(access(&mut model, 1, LINE + 8, Operation::Store), Some(Class::LocalTransfer));
}

#[test]
fn the_quick_way_is_a_short_cut_and_nothing_else() {
    for seed in 1..=8 {
        let (mut short, mut long) = (tiny(2), tiny(2));
        let mut random = Random::new(seed);
        let mut below = |end: u64| ((random.draw() >> 32) * end) >> 32;
        let (mut now, mut quick, mut last) = (0, 0, (0, LINE));
        for turn in 0..20_000 {
            // Two cores on few lines of more pages than are remembered.
            let stays = below(4) > 0;
            let core = if stays { last.0 } else { below(2) as usize };
            let page = below(3) * RECENT as u64 + below(2);
            let line = if stays { last.1 } else { LINE + page * 4096 + below(2) * 64 };
            last = (core, line);
            let address = line + below(8) * 8;
            let operation =
                [Operation::Load, Operation::Store, Operation::FetchAdd][below(3) as usize];
            let access = Access { address, bytes: 1 + below(8) as u32, operation };
            let site = turn as u32;
            let wanted = long.access(core, now, site, &access);
            let writer = (operation == Operation::Store).then_some(site);
            let plain = operation != Operation::FetchAdd;
            let found = plain.then(|| short.quick(core, address, access.bytes, writer));
            let outcome = match found.flatten() {
                None => short.access(core, now, site, &access),
                Some(contended) => {
                    quick += 1;
                    Outcome { finish: now + short.hit(), miss: None, contended }
                }
            };
            assert_eq!(outcome, wanted, "seed {seed}, turn {turn}");
            now = now.max(wanted.finish) + below(100);
        }
        assert!((1000..19_000).contains(&quick), "{quick}");
    }
}

#[test]
fn many_pages_are_found_again() {
    let mut model = Model::new(&quiet(1, 1), 1);
    let mut first = quiet(1, 1);
    first.cache.private_kib = Parameter::assumed(0.0);
    let mut unlimited = Model::new(&first, 1);
    for page in 0..5000_u64 {
        assert_eq!(access(&mut model, 0, page * 8192, Operation::Load), Some(Class::LocalMemory));
        access(&mut unlimited, 0, page * 8192, Operation::Load);
    }
    assert_eq!(unlimited.lines(), 5000);
    for page in 0..5000_u64 {
        assert_eq!(access(&mut unlimited, 0, page * 8192, Operation::Load), None);
    }
}

impl Model {
    fn is_held_by_the_first(&mut self, address: u64) -> bool {
        let index = self.find(address, 0);
        self.lines[index].holder == 0
    }
}
