//! Many threads in few places. Run in debug builds, so the lock order is checked as well.

use super::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const THREADS: u64 = 8;
const STEPS: u64 = 10_000;
const NAMES: u64 = 6;

/// One random operation on names in `directories`; any result is fine.
fn step(memory: &MemoryBackend, directories: &[InodeId], random: &mut Random) {
    let mut place = || {
        let at = directories[random.below(directories.len() as u64) as usize];
        (at, format!("n{}", random.below(NAMES)))
    };
    let (from, to) = (place(), place());
    let (at, text) = (from.0, from.1.as_str());
    let result = match random.below(9) {
        0 => memory.make(at, text, NewKind::Regular).map(drop),
        1 => memory.make(at, text, NewKind::Directory).map(drop),
        2 => memory.drop_name(at, text),
        3 => memory.drop_directory(at, text),
        4 => write_and_forget(memory, at, text),
        5 => memory.names().lookup(&Caller::root(), at, name(text)).and_then(|entry| {
            let linked = memory.add_link(entry.inode, to.0, &to.1).map(drop);
            memory.forget(entry.inode, 1);
            linked
        }),
        6 => memory.move_name((at, text), (to.0, &to.1), RenameMode::Replace),
        7 => memory.move_name((at, text), (at, &to.1), RenameMode::Replace),
        _ => memory.move_name((at, text), (to.0, &to.1), RenameMode::Exchange),
    };
    match result {
        Ok(()) => {}
        Err(Error::Stale | Error::Corrupt(_)) => panic!("lost an object: {result:?}"),
        Err(_) => {}
    }
}

/// Writes to a file that others may unlink meanwhile: the reference keeps it.
fn write_and_forget(memory: &MemoryBackend, at: InodeId, text: &str) -> Result<()> {
    let entry = memory.names().lookup(&Caller::root(), at, name(text))?;
    let written = memory.put(entry.inode, 0, b"some data");
    assert!(!matches!(written, Err(Error::Stale)));
    assert!(memory.attributes(FileRef::unopened(entry.inode)).is_ok());
    memory.forget(entry.inode, 1);
    written.map(drop)
}

/// Checks counts against names, and removes everything below `directory`.
fn clear(memory: &MemoryBackend, directory: InodeId) {
    let names = memory.names_of(directory);
    let is_directory = |inode| memory.stat(inode).kind == FileKind::Directory;
    let below = names.iter().filter(|(_, inode)| is_directory(*inode)).count();
    assert_eq!(memory.stat(directory).links as usize, 2 + below);
    for (text, inode) in names {
        assert!(memory.stat(inode).links > 0);
        if is_directory(inode) {
            clear(memory, inode);
            memory.drop_directory(directory, &text).unwrap();
        } else {
            memory.drop_name(directory, &text).unwrap();
        }
    }
}

#[test]
fn after_a_storm_of_renames_every_count_is_exact() {
    let memory = backend(1 << 26);
    let empty = memory.used();
    let directories = [ROOT, memory.directory(ROOT, "x"), memory.directory(ROOT, "y")];
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let memory = &memory;
            scope.spawn(move || {
                give_way(seed);
                let mut random = Random::new(seed + 1);
                (0..STEPS).for_each(|_| step(memory, &directories, &mut random));
            });
        }
    });
    let names: u32 = count_names(&memory, ROOT).values().sum();
    let links: u32 = count_names(&memory, ROOT).keys().map(|&inode| memory.stat(inode).links).sum();
    assert_eq!(names, links, "names of files against their link counts");
    clear(&memory, ROOT);
    assert_eq!(memory.used(), empty);
    assert_eq!(memory.table.racy_count(), 1);
}

/// How many names each file below `directory` has.
fn count_names(
    memory: &MemoryBackend,
    directory: InodeId,
) -> std::collections::HashMap<InodeId, u32> {
    let mut counts = std::collections::HashMap::new();
    for (_, inode) in memory.names_of(directory) {
        if memory.stat(inode).kind == FileKind::Directory {
            for (inode, count) in count_names(memory, inode) {
                *counts.entry(inode).or_default() += count;
            }
        } else {
            *counts.entry(inode).or_default() += 1;
        }
    }
    counts
}

/// The directories themselves move, so ancestry is at stake: no loop may come about.
#[test]
fn directories_that_move_under_each_other_stay_a_tree() {
    let memory = backend(1 << 26);
    let empty = memory.used();
    let directories: Vec<_> = (0..6).map(|at| memory.directory(ROOT, &format!("d{at}"))).collect();
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let (memory, directories) = (&memory, &directories);
            scope.spawn(move || {
                give_way(seed);
                let mut random = Random::new(seed + 100);
                for _ in 0..STEPS {
                    let mut any = || (directories[random.below(6) as usize], random.below(6));
                    let ((from, what), (to, _)) = (any(), any());
                    let text = format!("d{what}");
                    let mode =
                        [RenameMode::Replace, RenameMode::Exchange][random.below(2) as usize];
                    let _ = memory.move_name((from, &text), (to, &text), mode);
                    let _ = memory.move_name((ROOT, &text), (to, &text), mode);
                    let _ = memory.move_name((from, &text), (ROOT, &text), mode);
                }
            });
        }
    });
    clear(&memory, ROOT);
    assert_eq!(memory.used(), empty, "all were reachable from the root");
}

/// Two directories, each to be moved into the other at once: one may win, not both.
#[test]
fn two_directories_do_not_swallow_each_other() {
    let memory = backend(1 << 20);
    let (a, b) = (memory.directory(ROOT, "a"), memory.directory(ROOT, "b"));
    for seed in 0..2000 {
        let start = Barrier::new(2);
        let attempt = |what: &str, into, seed| {
            give_way(seed);
            start.wait();
            memory.move_name((ROOT, what), (into, what), RenameMode::Replace).is_ok()
        };
        let (first, second) = thread::scope(|scope| {
            let first = scope.spawn(|| attempt("a", b, seed * 2));
            (attempt("b", a, seed * 2 + 1), first.join().unwrap())
        });
        assert!(first != second, "round {seed}: both moved, or none");
        let _ = memory.move_name((a, "b"), (ROOT, "b"), RenameMode::Replace);
        let _ = memory.move_name((b, "a"), (ROOT, "a"), RenameMode::Replace);
    }
}

/// A file made in a directory that is removed at once: one of the two is refused.
#[test]
fn nothing_is_made_in_a_directory_while_it_goes() {
    let memory = backend(1 << 20);
    let root = Caller::root();
    for seed in 0..2000 {
        let entry = memory.create(&root, ROOT, name("d"), &new(NewKind::Directory)).unwrap();
        let start = Barrier::new(2);
        let (made, removed) = thread::scope(|scope| {
            let maker = scope.spawn(|| {
                give_way(seed * 2);
                start.wait();
                memory.make(entry.inode, "x", NewKind::Regular).is_ok()
            });
            give_way(seed * 2 + 1);
            start.wait();
            let removed = memory.drop_directory(ROOT, "d").is_ok();
            (maker.join().unwrap(), removed)
        });
        assert!(made != removed, "round {seed}: both happened, or none");
        if made {
            memory.drop_name(entry.inode, "x").unwrap();
            memory.drop_directory(ROOT, "d").unwrap();
        }
        memory.forget(entry.inode, 1);
    }
}

/// A name that is replaced again and again is never absent and never half-made.
#[test]
fn a_replaced_name_is_always_there() {
    let memory = backend(1 << 24);
    let other = memory.directory(ROOT, "other");
    memory.file("target");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // ORDERING: Relaxed; only says when to stop.
                while !done.load(Ordering::Relaxed) {
                    assert!(memory.find(ROOT, "target").is_ok());
                    let names = memory.names_of(ROOT);
                    assert_eq!(names.iter().filter(|(name, _)| name == "target").count(), 1);
                }
            });
        }
        scope.spawn(|| {
            for at in 0..3000 {
                let place = if at % 2 == 0 { ROOT } else { other };
                let made = memory.make(place, "new", NewKind::Regular).unwrap();
                memory.put(made, 0, b"x").unwrap();
                memory.move_name((place, "new"), (ROOT, "target"), RenameMode::Replace).unwrap();
            }
            // ORDERING: Relaxed; only says when to stop.
            done.store(true, Ordering::Relaxed);
        });
    });
}

/// Space is one budget for all threads: together they never get more than there is.
#[test]
fn writers_share_the_budget_exactly() {
    let memory = backend(8 << 20);
    let files: Vec<_> = (0..4).map(|at| memory.file(&format!("f{at}"))).collect();
    let empty = memory.used();
    for _ in 0..5 {
        thread::scope(|scope| {
            for &file in &files {
                let memory = &memory;
                scope.spawn(move || {
                    let data = vec![1; 100_000];
                    while memory.put(file, memory.stat(file).size, &data).is_ok() {}
                });
            }
        });
        let blocks: u64 = files.iter().map(|&file| memory.stat(file).blocks).sum();
        assert!(blocks * 512 > 7 << 20 && memory.used().0 <= 8 << 20);
        files.iter().for_each(|&file| assert!(memory.resize(file, 0).is_ok()));
        assert_eq!(memory.used(), empty);
    }
}

/// Appends of several threads interleave, but none overwrites another.
#[test]
fn appends_of_many_threads_all_arrive_whole() {
    let memory = backend(1 << 24);
    let file = memory.file("log");
    thread::scope(|scope| {
        for mark in 1..=4u8 {
            let memory = &memory;
            scope.spawn(move || {
                for _ in 0..500 {
                    let line = [mark; 100];
                    let target = FileRef::unopened(file);
                    assert_eq!(memory.append(&Caller::root(), target, &line).unwrap(), 100);
                }
            });
        }
    });
    let lines = memory.take(file, 0, 1 << 20);
    assert_eq!(lines.len(), 4 * 500 * 100);
    assert!(lines.chunks(100).all(|line| line.iter().all(|byte| *byte == line[0])));
}
