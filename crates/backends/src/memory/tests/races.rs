//! Concurrent operations on names: pairs, each against every outcome of some order, and storms in trees whose
//! directories are created, removed and moved, with a check of the whole tree afterwards.
//!
//! Each prints its seed when it fails; that replays the choices, not the schedule. `UVFS_ROUNDS` multiplies the rounds.

use super::*;
use std::collections::{HashMap, HashSet};
use std::sync::Barrier;
use std::thread;

fn rounds(usual: u64) -> u64 {
    let times = std::env::var("UVFS_ROUNDS").ok().and_then(|text| text.parse().ok());
    usual * times.unwrap_or(1)
}

/// Runs both at once, from many seeds.
fn meet<A: Send, B>(
    seed: u64,
    one: impl FnOnce() -> A + Send,
    other: impl FnOnce() -> B,
) -> (A, B) {
    let start = Barrier::new(2);
    thread::scope(|scope| {
        let one = scope.spawn(|| {
            give_way(seed * 2);
            start.wait();
            one()
        });
        give_way(seed * 2 + 1);
        start.wait();
        let other = other();
        (one.join().unwrap(), other)
    })
}

/// Everything about the tree that must hold when no operation is in flight and only `held` is referenced.
fn check(memory: &MemoryBackend, held: &HashSet<InodeId>) {
    let mut names = HashMap::<InodeId, u32>::new();
    let mut seen = HashSet::from([ROOT]);
    let mut to_do = vec![ROOT];
    while let Some(at) = to_do.pop() {
        let mut below = 0;
        for (text, inode) in memory.names_of(at) {
            assert_eq!(memory.find(at, &text).unwrap(), inode);
            let node = memory.table.get(inode).expect("what is named is there");
            if node.is_directory() {
                below += 1;
                assert_eq!(node.parent(), at, "`..` of {text}");
                assert!(seen.insert(inode), "a directory with two names");
                to_do.push(inode);
            } else {
                *names.entry(inode).or_default() += 1;
            }
        }
        assert_eq!(memory.stat(at).links, 2 + below, "links of a directory");
    }
    for (&inode, &count) in &names {
        assert_eq!(memory.stat(inode).links, count, "links of a file");
    }
    let reachable = seen.len() + names.len();
    let orphans = held.iter().filter(|inode| !seen.contains(inode) && !names.contains_key(inode));
    let mut lost = 0;
    for &inode in orphans {
        lost += 1;
        let attributes = memory.stat(inode);
        assert_eq!(attributes.links, 0, "without a name");
        if attributes.kind == FileKind::Directory {
            assert!(memory.names_of(inode).is_empty());
        }
    }
    assert_eq!(memory.table.racy_count(), reachable + lost, "nothing is lost, nothing is left");
    assert_eq!(memory.used().1, (reachable + lost) as u64);
}

/// Removes everything below `at`.
fn clear(memory: &MemoryBackend, at: InodeId) {
    for (text, inode) in memory.names_of(at) {
        if memory.stat(inode).kind == FileKind::Directory {
            clear(memory, inode);
            memory.drop_directory(at, &text).unwrap();
        } else {
            memory.drop_name(at, &text).unwrap();
        }
    }
}

/// One thread of a storm: works in directories that it has found and holds, some of them removed by now.
struct Worker<'a> {
    memory: &'a MemoryBackend,
    random: Random,
    /// With a reference each. The first is the root's.
    open: Vec<InodeId>,
}

impl Worker<'_> {
    fn place(&mut self) -> (InodeId, String) {
        let at = self.open[self.random.below(self.open.len() as u64) as usize];
        (at, format!("n{}", self.random.below(4)))
    }

    /// Holds an object found in the place of another, if it is a directory.
    fn hold(&mut self, entry: Result<Entry>) -> Result<()> {
        let entry = entry?;
        let mut letting_go = entry.inode;
        if entry.attributes.kind == FileKind::Directory {
            if self.open.len() < 6 {
                self.open.push(entry.inode);
                return Ok(());
            }
            let at = 1 + self.random.below(self.open.len() as u64 - 1) as usize;
            std::mem::swap(&mut self.open[at], &mut letting_go);
        }
        self.memory.forget(letting_go, 1);
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        let (memory, caller) = (self.memory, Caller::root());
        let (from, to) = (self.place(), self.place());
        let (at, text) = (from.0, from.1.as_str());
        match self.random.below(12) {
            0 => memory.make(at, text, NewKind::Regular).map(drop),
            1 => memory.make(at, text, NewKind::Symlink(b"x")).map(drop),
            2 | 3 => {
                let made = memory.create(&caller, at, name(text), &new(NewKind::Directory));
                self.hold(made)
            }
            4 => memory.drop_name(at, text),
            5 => memory.drop_directory(at, text),
            6 => {
                let found = memory.names().lookup(&caller, at, name(text));
                if let Ok(entry) = &found {
                    assert!(entry.attributes.links > 0, "a lookup found what has no name");
                }
                self.hold(found)
            }
            7 => {
                let file = memory.names().lookup(&caller, at, name(text))?.inode;
                let linked = memory.add_link(file, to.0, &to.1).map(drop);
                memory.forget(file, 1);
                linked
            }
            8 => {
                let regular = new(NewKind::Regular);
                let made = memory.create_unnamed(&caller, at, &regular, OpenMode::READ)?;
                let linked = memory.add_link(made.0.inode, to.0, &to.1).map(drop);
                memory.forget(made.0.inode, 1);
                linked
            }
            9 => memory.move_name((at, text), (to.0, &to.1), RenameMode::Replace),
            10 => memory.move_name((at, text), (to.0, &to.1), RenameMode::NoReplace),
            _ => memory.move_name((at, text), (to.0, &to.1), RenameMode::Exchange),
        }
    }
}

#[test]
fn after_a_storm_in_moving_directories_the_tree_is_whole() {
    for seed in 0..rounds(6) {
        println!("seed {seed}");
        // A small one is at its limit now and then.
        let memory = backend([1 << 24, 24 * 1024][seed as usize % 2]);
        let empty = memory.used();
        let storm = |thread: u64| {
            give_way(seed * 100 + thread);
            let open = vec![memory.root().unwrap().inode];
            let random = Random::new(seed * 100 + thread + 1);
            let mut worker = Worker { memory: &memory, random, open };
            for _ in 0..6000 {
                let result = worker.step();
                let lost = matches!(result, Err(Error::Stale | Error::Corrupt(_)));
                assert!(!lost, "seed {seed}: lost an object: {result:?}");
            }
            worker.open
        };
        // All references are released after the check of the tree.
        let held: HashSet<InodeId> = thread::scope(|scope| {
            let storm = &storm;
            let threads: Vec<_> = (0..4).map(|at| scope.spawn(move || storm(at))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        check(&memory, &held);
        clear(&memory, ROOT);
        check(&memory, &held);
        // The number of references of each is unknown; a larger number releases them all.
        held.iter().for_each(|&inode| while_held(&memory, inode));
        assert_eq!(memory.used(), empty, "seed {seed}");
        assert_eq!(memory.table.racy_count(), 1);
    }
}

/// Gives back every reference to an object that has no name.
fn while_held(memory: &MemoryBackend, inode: InodeId) {
    while inode != ROOT && memory.table.get(inode).is_ok() {
        memory.forget(inode, 1);
    }
}

#[test]
fn link_and_last_unlink() {
    let memory = backend(1 << 20);
    let caller = Caller::root();
    let empty = memory.used();
    for seed in 0..rounds(500) {
        let file = memory.create(&caller, ROOT, name("a"), &new(NewKind::Regular)).unwrap().inode;
        let (linked, removed) =
            meet(seed, || memory.add_link(file, ROOT, "b"), || memory.drop_name(ROOT, "a"));
        removed.unwrap();
        assert_eq!(memory.stat(file).links, u32::from(linked.is_ok()), "seed {seed}");
        match linked {
            Ok(_) => memory.drop_name(ROOT, "b").unwrap(),
            Err(error) => assert!(matches!(error, Error::NotFound), "seed {seed}: {error:?}"),
        }
        memory.forget(file, 1);
        assert_eq!(memory.used(), empty, "seed {seed}");
    }
}

/// An object without a name gets its first and loses it at once.
#[test]
fn first_link_and_its_unlink() {
    let memory = backend(1 << 20);
    let caller = Caller::root();
    let empty = memory.used();
    for seed in 0..rounds(500) {
        let regular = new(NewKind::Regular);
        let (entry, _) = memory.create_unnamed(&caller, ROOT, &regular, OpenMode::READ).unwrap();
        let (linked, ()) = meet(
            seed,
            || memory.add_link(entry.inode, ROOT, "a"),
            || while memory.drop_name(ROOT, "a").is_err() {},
        );
        linked.unwrap();
        assert_eq!(memory.stat(entry.inode).links, 0);
        memory.forget(entry.inode, 1);
        assert_eq!(memory.used(), empty, "seed {seed}: it is marked as named, and is not");
    }
}

#[test]
fn rename_over_a_directory_and_create_in_it() {
    let memory = backend(1 << 20);
    let caller = Caller::root();
    for seed in 0..rounds(500) {
        let other = memory.directory(ROOT, "other");
        let within = seed % 2 == 0;
        let moved = memory.directory(if within { ROOT } else { other }, "moved");
        let victim =
            memory.create(&caller, ROOT, name("victim"), &new(NewKind::Directory)).unwrap().inode;
        let from = (if within { ROOT } else { other }, "moved");
        let (made, renamed) = meet(
            seed,
            || memory.make(victim, "x", NewKind::Regular),
            || memory.move_name(from, (ROOT, "victim"), RenameMode::Replace),
        );
        let there = memory.find(ROOT, "victim").unwrap();
        match (made, renamed) {
            (Ok(_), Err(Error::NotEmpty)) => assert_eq!(there, victim),
            (Err(Error::NotFound), Ok(())) => {
                assert_eq!(there, moved);
                assert!(memory.names_of(victim).is_empty());
            }
            both => panic!("seed {seed}: {both:?}"),
        }
        check(&memory, &HashSet::from([victim]));
        clear(&memory, ROOT);
        memory.forget(victim, 1);
    }
}

/// Two directories must not swallow each other where no directory in common has a lock that keeps the moves apart.
#[test]
fn two_moves_without_a_common_parent() {
    let memory = backend(1 << 20);
    let (p, q) = (memory.directory(ROOT, "p"), memory.directory(ROOT, "q"));
    let (a, b) = (memory.directory(p, "a"), memory.directory(q, "b"));
    for seed in 0..rounds(500) {
        let (one, other) = meet(
            seed,
            || memory.move_name((p, "a"), (b, "a"), RenameMode::Replace).is_ok(),
            || memory.move_name((q, "b"), (a, "b"), RenameMode::Replace).is_ok(),
        );
        assert!(one != other, "seed {seed}: both moved, or none");
        check(&memory, &HashSet::new());
        if one {
            memory.move_name((b, "a"), (p, "a"), RenameMode::Replace).unwrap();
        } else {
            memory.move_name((a, "b"), (q, "b"), RenameMode::Replace).unwrap();
        }
    }
}

/// Into a directory that is removed: a file, a directory, from outside.
#[test]
fn rename_into_a_directory_and_its_removal() {
    let memory = backend(1 << 20);
    let caller = Caller::root();
    for seed in 0..rounds(500) {
        let kind = [NewKind::Regular, NewKind::Directory][seed as usize % 2];
        memory.make(ROOT, "x", kind).unwrap();
        let into = memory.create(&caller, ROOT, name("d"), &new(NewKind::Directory)).unwrap().inode;
        let (moved, removed) = meet(
            seed,
            || memory.move_name((ROOT, "x"), (into, "x"), RenameMode::Replace),
            || memory.drop_directory(ROOT, "d"),
        );
        match (moved, removed) {
            (Ok(()), Err(Error::NotEmpty)) | (Err(Error::NotFound), Ok(())) => {}
            both => panic!("seed {seed}: {both:?}"),
        }
        check(&memory, &HashSet::from([into]));
        clear(&memory, ROOT);
        memory.forget(into, 1);
    }
}

/// An older directory below a younger one, so that the order of ids is against that of the tree.
#[test]
fn removals_above_and_below_against_the_order_of_ids() {
    let memory = backend(1 << 20);
    let empty = memory.used();
    for seed in 0..rounds(300) {
        let old = memory.directory(ROOT, "old");
        let young = memory.directory(ROOT, "young");
        memory.move_name((ROOT, "old"), (young, "old"), RenameMode::Replace).unwrap();
        memory.directory(old, "deep");
        let (deep, _) = meet(
            seed,
            || {
                while memory.drop_directory(old, "deep").is_err() {}
                memory.drop_directory(young, "old")
            },
            || while memory.drop_directory(ROOT, "young").is_err() {},
        );
        deep.unwrap();
        assert_eq!(memory.used(), empty);
    }
}

/// From both sides, files and directories: every object still exists, once, and no thread waits for ever.
#[test]
fn exchanges_that_cross() {
    let memory = backend(1 << 20);
    let (a, b) = (memory.directory(ROOT, "a"), memory.directory(ROOT, "b"));
    let mut all = Vec::new();
    for (at, text) in [(a, "f"), (b, "f")] {
        all.push(memory.make(at, text, NewKind::Regular).unwrap());
    }
    for (at, text) in [(a, "d"), (b, "d")] {
        all.push(memory.directory(at, text));
    }
    for seed in 0..rounds(500) {
        let (one, other) = meet(
            seed,
            || {
                memory.move_name((a, "f"), (b, "d"), RenameMode::Exchange)?;
                memory.move_name((a, "d"), (b, "d"), RenameMode::Exchange)
            },
            || {
                memory.move_name((b, "f"), (a, "d"), RenameMode::Exchange)?;
                memory.move_name((b, "f"), (a, "f"), RenameMode::Exchange)
            },
        );
        one.and(other).unwrap();
        let mut there: Vec<_> =
            [a, b].into_iter().flat_map(|at| memory.names_of(at)).map(|(_, inode)| inode).collect();
        there.sort_unstable();
        all.sort_unstable();
        assert_eq!(there, all, "seed {seed}");
        check(&memory, &HashSet::new());
    }
}

/// A file moves back and forth between two directories: it is always in one, and never in both.
#[test]
fn a_file_that_moves_is_in_one_place() {
    let memory = backend(1 << 20);
    let (a, b) = (memory.directory(ROOT, "a"), memory.directory(ROOT, "b"));
    memory.make(a, "f", NewKind::Regular).unwrap();
    for seed in 0..rounds(20) {
        let (moves, looks) = meet(
            seed,
            || {
                for _ in 0..200 {
                    memory.move_name((a, "f"), (b, "f"), RenameMode::NoReplace).unwrap();
                    memory.move_name((b, "f"), (a, "f"), RenameMode::NoReplace).unwrap();
                }
            },
            || {
                for _ in 0..200 {
                    for at in [a, b] {
                        if let Ok(entry) = memory.names().lookup(&Caller::root(), at, name("f")) {
                            assert_eq!(entry.attributes.links, 1);
                            memory.forget(entry.inode, 1);
                        }
                    }
                }
            },
        );
        let ((), ()) = (moves, looks);
        check(&memory, &HashSet::new());
    }
}
