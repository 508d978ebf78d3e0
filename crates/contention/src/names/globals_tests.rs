//! Pieces of data segments, split and joined.

use super::*;
use crate::names::tests::{empty, object, sample};
use std::path::Path;
use uvfs_coherence::profile::{Heat, Lock, LockKind};

/// Variables of 8 bytes at 0x1000, of 200 at 0x1010; nothing else.
struct Two;

impl Locate for Two {
    fn locate(&self, place: Place, thread_local: bool) -> Option<Located> {
        let (start, size, name) = match place.offset {
            0x1000..0x1008 => (0x1000, 8, "a"),
            0x1010..0x10d8 => (0x1010, 200, "b"),
            _ => return None,
        };
        let name = if thread_local { format!("own {name}") } else { name.to_string() };
        Some(Located { start, size, name, die: None })
    }
}

fn heat(object: u32, offset: u64) -> Heat {
    Heat { seed: 1, object, offset, bytes: 8, reads: 1, writes: 0, updates: 0, cores: vec![1] }
}

pub(in crate::names) fn lock(object: u32, offset: u64) -> Lock {
    Lock {
        seed: 1,
        object,
        offset,
        kind: LockKind::Word,
        acquisitions: 1,
        contended: 0,
        bounces: 0,
        wait_total: 0,
        wait_min: 0,
        wait_max: 0,
        hold_total: 0,
        hold_min: 0,
        hold_max: 0,
        waiters: Vec::new(),
    }
}

#[test]
fn lines_become_variables() {
    let mut profile = empty(Path::new("/none"));
    // Two lines of one segment, and an allocation that stays.
    profile.objects = vec![
        object(4, ObjectKind::Global, 64, &[0x1000]),
        object(5, ObjectKind::Heap, 16, &[0x2000]),
        object(6, ObjectKind::Global, 64, &[0x1040]),
    ];
    profile.objects[2].address += 0x40;
    profile.samples =
        vec![sample(4, 0), sample(4, 0x18), sample(6, 0), sample(5, 8), sample(4, 0x8)];
    profile.heat = vec![heat(6, 0x10)];
    profile.locks = vec![lock(4, 0x10)];
    let located = split(&mut profile, &Two);

    let all: Vec<_> =
        profile.objects.iter().map(|x| (x.id, x.name.as_str(), x.address, x.size)).collect();
    // `a` has the piece's own number; `b` and the piece between the variables have new ones.
    assert_eq!(
        all,
        [
            (4, "a", 0x7000_0000, 8),
            (7, "", 0x7000_0000, 64),
            (8, "b", 0x7000_0010, 200),
            (5, "", 0x7000_0000, 16)
        ]
    );
    let moved: Vec<_> = profile.samples.iter().map(|x| (x.object, x.offset)).collect();
    assert_eq!(moved, [(4, 0), (8, 8), (8, 0x30), (5, 8), (7, 8)]);
    assert_eq!((profile.heat[0].object, profile.heat[0].offset), (8, 0x40));
    assert_eq!((profile.locks[0].object, profile.locks[0].offset), (8, 0));
    assert_eq!(located.keys().copied().collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn threads_keep_their_own() {
    let mut profile = empty(Path::new("/none"));
    for thread in 0..2 {
        let mut own = object(thread, ObjectKind::ThreadLocal, 256, &[0x1000]);
        own.thread = thread;
        profile.objects.push(own);
        profile.samples.push(sample(thread, 0x18));
    }
    split(&mut profile, &Two);
    let all: Vec<_> = profile.objects.iter().map(|x| (x.id, x.name.as_str(), x.thread)).collect();
    assert_eq!(all, [(0, "own b", 0), (1, "own b", 1)]);
    let moved: Vec<_> = profile.samples.iter().map(|x| (x.object, x.offset)).collect();
    assert_eq!(moved, [(0, 8), (1, 8)]);
}

#[test]
fn seeds_do_not_mix() {
    let mut profile = empty(Path::new("/none"));
    for seed in 1..3 {
        let mut one = object(0, ObjectKind::Global, 64, &[0x1040]);
        one.seed = seed;
        profile.objects.push(one);
        let mut one = sample(0, 4);
        one.seed = seed;
        profile.samples.push(one);
    }
    split(&mut profile, &Two);
    let all: Vec<_> = profile.objects.iter().map(|x| (x.seed, x.id, x.name.as_str())).collect();
    assert_eq!(all, [(1, 0, "b"), (2, 0, "b")]);
    assert!(profile.samples.iter().all(|x| (x.object, x.offset) == (0, 0x34)));
}
