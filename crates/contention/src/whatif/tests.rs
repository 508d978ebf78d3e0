//! Tests of what-if on profiles of which the layout is known.

use super::*;
use crate::fixture::Builder;
use uvfs_coherence::configuration::Move;

/// A heap object, a row, one behind an `Arc`, a variable and one on a stack.
fn profile() -> Profile {
    let mut builder = Builder::new(4, 1, 2);
    let fields = [("lock", 0, 4), ("root.hash", 8, 8), ("root.parent", 16, 8)];
    let plain = builder.kind("fs::Super", 24, &fields);
    let shared = builder.kind(
        "alloc::sync::ArcInner<fs::Super>",
        40,
        &[
            ("strong", 0, 8),
            ("weak", 8, 8),
            ("data.lock", 16, 4),
            ("data.root.hash", 24, 8),
            ("data.root.parent", 32, 8),
        ],
    );
    builder.object("Super", 0x1010, 24, Some(plain), false);
    builder.object("[Super]", 0x2000, 240, Some(plain), true);
    builder.object("ArcInner<Super>", 0x3000, 40, Some(shared), false);
    let global = builder.object("ROOT", 0x4000, 24, Some(plain), false);
    builder.alter(global, |object| object.kind = ObjectKind::Global);
    let stack = builder.object("Super", 0x5000, 24, Some(plain), false);
    builder.alter(stack, |object| object.kind = ObjectKind::Stack);
    builder.done()
}

fn relayouts_of(text: &str) -> Result<Vec<Relayout>, Error> {
    relayouts(&profile(), &parse(text)?)
}

#[test]
fn every_object_of_the_type_is_moved_wherever_it_lies() {
    let all = relayouts_of("Super.root -> own line").unwrap();
    assert_eq!(all.len(), 4, "{all:?}");
    let globals = all.iter().filter(|one| matches!(one.target, Target::Global { size: 24, .. }));
    assert_eq!(globals.count(), 1);
    let shared = all.iter().find(|one| one.first == 16).unwrap();
    assert_eq!((shared.size, shared.new_size, shared.align), (24, 128, 64));
    for one in &all {
        let moves = [Move { from: 0, bytes: 4, to: 0 }, Move { from: 8, bytes: 16, to: 64 }];
        assert_eq!(one.moves, moves);
        assert_eq!(one.size, 24);
    }
}

#[test]
fn a_path_may_be_given_and_a_nested_field() {
    assert_eq!(relayouts_of("fs::Super.root.hash -> own line").unwrap().len(), 4);
    assert_eq!(relayouts_of("Super -> align 64").unwrap().len(), 4);
    let order = relayouts_of("Super -> order root.parent, lock").unwrap();
    assert_eq!(order[0].moves.iter().map(|one| one.to).collect::<Vec<_>>(), [8, 16, 0]);
}

#[test]
fn a_variable_is_meant_by_its_own_name() {
    let one = relayouts_of("ROOT.lock -> own line").unwrap();
    assert_eq!(one.len(), 1);
    assert!(matches!(one[0].target, Target::Global { .. }));
    let mut builder = Builder::new(4, 1, 1);
    let kind = builder.kind("AtomicU64", 8, &[]);
    for (name, address) in [("HITS", 0x1000), ("MISSES", 0x1008)] {
        let id = builder.object(name, address, 8, Some(kind), false);
        builder.alter(id, |object| object.kind = ObjectKind::Global);
    }
    let one = relayouts(&builder.done(), &parse("HITS -> align 64").unwrap()).unwrap();
    assert_eq!((one.len(), one[0].align, one[0].new_size), (1, 64, 64));
    assert_eq!(one[0].moves, [Move { from: 0, bytes: 8, to: 0 }]);
}

#[test]
fn unknown_names_are_refused_with_a_suggestion() {
    let refused = |text: &str, part: &str| {
        let line = relayouts_of(text).unwrap_err().to_string();
        assert!(line.contains(part), "{line}");
    };
    refused("Supper.lock -> own line", "no type `Supper`; did you mean `Super`?");
    refused("Super.lok -> own line", "has no field `lok`; did you mean `lock`?");
    refused("Super.completely_else -> own line", "it has lock, root.hash, root.parent");
    refused("Super.lock -> away from Super.hsh", "no field `hsh`");
    refused("Super.{lock,root} -> own line", "these are all its fields");
}

#[test]
fn what_cannot_be_found_again_is_said() {
    let mut builder = Builder::new(4, 1, 1);
    let kind = builder.kind("Super", 24, &[("lock", 0, 4), ("hash", 8, 8)]);
    let object = builder.object("Super", 0x1000, 24, Some(kind), false);
    builder.alter(object, |object| object.kind = ObjectKind::Stack);
    let change = parse("Super.lock -> own line").unwrap();
    let line = relayouts(&builder.done(), &change).unwrap_err().to_string();
    assert!(line.contains("lie on stacks"), "{line}");
    let none = Builder::new(4, 1, 1).done();
    let line = relayouts(&none, &change).unwrap_err().to_string();
    assert!(line.contains("debug information"), "{line}");
}

#[test]
fn a_place_that_allocates_other_things_is_left_alone() {
    let mut builder = Builder::new(4, 1, 1);
    let kind = builder.kind("Super", 24, &[("lock", 0, 4), ("hash", 8, 8)]);
    let mine = builder.object("Super", 0x1000, 24, Some(kind), false);
    let other = builder.object("Other", 0x2000, 24, None, false);
    for id in [mine, other] {
        builder.alter(id, |object| object.frames = vec![Place { module: 0, offset: 7 }]);
    }
    let change = parse("Super.lock -> own line").unwrap();
    assert!(relayouts(&builder.done(), &change).is_err());
}

#[test]
fn the_least_aligned_object_of_a_place_decides() {
    let mut builder = Builder::new(4, 1, 1);
    let kind = builder.kind("Super", 24, &[("lock", 0, 4), ("hash", 8, 8)]);
    let (high, low) = (
        builder.object("Super", 0x1000, 24, Some(kind), false),
        builder.object("Super", 0x2010, 24, Some(kind), false),
    );
    for id in [high, low] {
        builder.alter(id, |object| object.frames = vec![Place { module: 0, offset: 7 }]);
    }
    let all = relayouts(&builder.done(), &parse("Super -> pad 32").unwrap()).unwrap();
    assert_eq!((all.len(), all[0].align, all[0].new_size), (1, 16, 32));
}

#[test]
fn a_change_is_run_and_weighed() {
    let base = profile();
    let change = parse("Super.lock -> own line").unwrap();
    let mut asked = None;
    let evidence = evaluate(&base, &change, |request| {
        asked = Some(request.clone());
        let mut faster = profile();
        faster.runs.iter_mut().for_each(|run| run.parallel_cycles = 400_000 + run.seed);
        Ok(faster)
    })
    .unwrap();
    let asked = asked.unwrap();
    assert_eq!((asked.seeds, asked.layouts.len()), (vec![0, 1], 4));
    assert_eq!(asked.what_if, ["Super.lock -> own line"]);
    assert_eq!((evidence.base.mean, evidence.gain.mean), (1e6, 599_999.5));
    assert_eq!(evidence.significant, Some(true));
    assert!((evidence.ratio.unwrap().mean - 0.4).abs() < 1e-5);
    assert_eq!((evidence.bytes_per_object, evidence.objects), (104, 4));
}

#[test]
fn two_changes_of_one_type_are_refused() {
    let changes = ["Super.lock -> own line", "Super -> align 64"].map(|text| parse(text).unwrap());
    let line = request(&profile(), &changes).unwrap_err().to_string();
    assert!(line.contains("one after the other"), "{line}");
}

#[test]
fn an_error_of_the_run_and_another_machine_are_passed_on() {
    let change = parse("Super.lock -> own line").unwrap();
    let failed = evaluate(&profile(), &change, |_| Err(Error::new("no program")));
    assert_eq!(failed.unwrap_err().to_string(), "no program");
    let other = evaluate(&profile(), &change, |_| {
        let mut other = profile();
        other.meta.machine.cores = 8;
        Ok(other)
    });
    assert!(other.unwrap_err().to_string().contains("cores: 4 against 8"));
}
