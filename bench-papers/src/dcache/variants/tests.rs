//! Every variant against one model, and against itself under threads.

use super::super::api::Dcache;
use super::super::audit::audit;
use super::super::loads::Numbers;
use super::super::paths::{Cached, Open, ROOT_INODE, System};
use super::super::slab::Wanted;
use super::{BucketLocks, GlobalLock, LazyLru, Lookup, SeparateLru, Update, Walk};
use std::collections::HashMap;
use std::thread;
use uvfs_concurrent::primitive::atomic::{AtomicBool, Ordering};

const ROOM: usize = 64;

/// Runs `check` on each variant, small enough that it prunes.
fn each(check: impl Check) {
    let global = |lookup, walk| Cached::new(GlobalLock::new(ROOM, ROOT_INODE, lookup, walk));
    check.check("global-lock", &global(Lookup::Locked, Walk::References));
    check.check("rcu-hash", &global(Lookup::LockFree, Walk::References));
    check.check("fast-walk", &global(Lookup::Locked, Walk::UnderLock));
    check.check("bucket-locks", &Cached::new(BucketLocks::new(ROOM, ROOT_INODE)));
    check.check("separate-lru", &Cached::new(SeparateLru::new(ROOM, ROOT_INODE)));
    let lazy = |update| Cached::new(LazyLru::new(ROOM, ROOT_INODE, update));
    check.check("lazy-lru-timer", &lazy(Update::Timer));
    check.check("lazy-lru-traversal", &lazy(Update::Traversal));
}

trait Check {
    fn check<D: Dcache>(&self, name: &str, system: &Cached<D>);
}

/// Random operations against a map from paths to kinds.
struct AgreesWithModel;

impl Check for AgreesWithModel {
    fn check<D: Dcache>(&self, name: &str, system: &Cached<D>) {
        let mut numbers = Numbers(7);
        // True for directories.
        let mut model: HashMap<String, bool> = HashMap::new();
        let mut open: Vec<Open> = Vec::new();
        for step in 0..20_000 {
            let directory = ["", "d0/", "d1/", "d0/e/"][numbers.below(4)];
            let path = format!("{directory}f{}", numbers.below(24));
            let other = format!("{directory}f{}", numbers.below(24));
            let made = directory.trim_end_matches('/');
            let above = made.is_empty() || model.get(made) == Some(&true);
            let kind = model.get(&path).copied();
            let said = format!("{name}, step {step}: {path}, {other}");
            match numbers.below(12) {
                0..3 => assert_eq!(system.stat(path.as_bytes()), kind.is_some(), "{said}"),
                3 => {
                    let found = system.open(path.as_bytes());
                    assert_eq!(found.is_some(), kind.is_some(), "{said}");
                    open.extend(found);
                }
                4 => open.pop().into_iter().for_each(|open| system.close(open)),
                5..7 => {
                    let created = system.create(path.as_bytes());
                    assert_eq!(created.is_some(), above && kind.is_none(), "{said}");
                    if let Some(created) = created {
                        open.push(created);
                        model.insert(path, false);
                    }
                }
                7 => {
                    let removed = system.remove(path.as_bytes());
                    assert_eq!(removed, kind == Some(false), "{said}");
                    model.remove(&path);
                }
                8 => {
                    let renamed = system.rename(path.as_bytes(), other.as_bytes());
                    assert_eq!(renamed, kind == Some(false), "{said}");
                    if renamed {
                        model.remove(&path);
                        model.insert(other, false);
                    }
                }
                9 if !made.is_empty() => {
                    let below = model.keys().any(|path| path.starts_with(directory));
                    let (outer, there) = (model.get("d0") == Some(&true), model.contains_key(made));
                    if there {
                        assert_eq!(system.remove_directory(made.as_bytes()), !below, "{said}");
                        if !below {
                            model.remove(made);
                        }
                    } else {
                        let can = made != "d0/e" || outer;
                        assert_eq!(system.create_directory(made.as_bytes()), can, "{said}");
                        if can {
                            model.insert(made.to_owned(), true);
                        }
                    }
                }
                10 => {
                    let below = model.keys().filter_map(|path| path.strip_prefix(directory));
                    let count = below.filter(|rest| !rest.contains('/')).count();
                    let expected = above.then_some(count);
                    assert_eq!(system.list(made.as_bytes()), expected, "{said}");
                }
                _ => {
                    let around = format!("d0/e/../../{path}");
                    let there = model.contains_key("d0/e") && kind.is_some();
                    assert_eq!(system.stat(around.as_bytes()), there, "{said}");
                    system.tick();
                }
            }
        }
        open.into_iter().for_each(|open| system.close(open));
        assert_eq!(audit(&system.dcache), Ok(()), "{name}");
    }
}

#[test]
fn every_variant_agrees_with_a_map() {
    each(AgreesWithModel);
}

/// Threads that share all names: create, remove, rename, look up, prune, tick.
struct CountsSurviveThreads;

impl Check for CountsSurviveThreads {
    fn check<D: Dcache>(&self, name: &str, system: &Cached<D>) {
        assert!(system.create_directory(b"shared"));
        let client = |seed: u64| {
            let mut numbers = Numbers(seed);
            let path =
                |numbers: &mut Numbers| format!("shared/f{}", numbers.below(100)).into_bytes();
            for _ in 0..10_000 {
                let (one, other) = (path(&mut numbers), path(&mut numbers));
                match numbers.below(10) {
                    0 => system.create(&one).into_iter().for_each(|open| system.close(open)),
                    1 => drop(system.remove(&one)),
                    2 => drop(system.rename(&one, &other)),
                    3 => system.tick(),
                    4 => drop(system.dcache.prune_dcache(3)),
                    5..8 => drop(system.stat(&one)),
                    _ => system.open(&one).into_iter().for_each(|open| system.close(open)),
                }
            }
        };
        thread::scope(|scope| {
            (0..4).for_each(|seed| drop(scope.spawn(move || client(seed))));
        });
        assert_eq!(audit(&system.dcache), Ok(()), "{name}");
    }
}

#[test]
fn counts_are_exact_after_threads_that_share_everything() {
    each(CountsSurviveThreads);
}

/// While files are renamed to and fro, in chains that others share, every other name is found.
struct RenameHidesNothing;

impl Check for RenameHidesNothing {
    fn check<D: Dcache>(&self, name: &str, system: &Cached<D>) {
        let make = |path: String| {
            system.close(system.create(path.as_bytes()).expect("it is new"));
        };
        (0..8).for_each(|file| make(format!("a{file}")));
        (0..32).for_each(|file| make(format!("beside{file}")));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let renamer = scope.spawn(|| {
                for file in (0..8).cycle().take(8_000) {
                    let (one, other) = (format!("a{file}"), format!("b{file}"));
                    assert!(system.rename(one.as_bytes(), other.as_bytes()), "{name}");
                    assert!(system.rename(other.as_bytes(), one.as_bytes()), "{name}");
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    // Only cached entries: a miss would ask the store, and be right again.
                    let root = system.dcache.root();
                    // ORDERING: Acquire, partner the store below.
                    while !done.load(Ordering::Acquire) {
                        for file in 0..32 {
                            let path = format!("beside{file}");
                            let found = system.dcache.d_lookup(&Wanted::new(root, path.as_bytes()));
                            let found =
                                found.unwrap_or_else(|| panic!("{name}: {path} was hidden"));
                            system.dcache.dput(found);
                        }
                    }
                });
            }
            let renamed = renamer.join();
            // ORDERING: Release, partner the load above.
            done.store(true, Ordering::Release);
            assert!(renamed.is_ok(), "{name}: the renamer panicked");
        });
        assert!(system.stat(b"a0") && !system.stat(b"b0"), "{name}");
        assert_eq!(audit(&system.dcache), Ok(()), "{name}");
    }
}

#[test]
fn a_rename_hides_no_other_name() {
    each(RenameHidesNothing);
}
