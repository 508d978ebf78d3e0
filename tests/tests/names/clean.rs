//! Floor: cleaning one directory, as users of the core see it: which lookups ask the store again, and which do not.
//!
//! The store is hostile: it counts its calls, and holds them at gates. The last test prints a seed (`UVFS_SEED` replays
//! it).

use std::ops::ControlFlow;
use uvfs_backends::hostile::{Call, Fault, Gate, Moment, On, Plan};
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_tests::cleaned::{Scene, content};
use uvfs_tests::{Numbers, seed};
use uvfs_vfs::{
    CachePolicy, Caller, Clean, CleanProgress, Dirty, Error, Name, Namespace, OpenOptions,
    PagePolicy, RenameMode, Resident, SyncMode, Unmount, Vfs, VfsConfig,
};

const INSIDE: [&str; 4] = ["a/foo/1", "a/foo/2", "a/foo/deep/er/3", "a/foo/deep/4"];
const OUTSIDE: [&str; 4] = ["a/1", "a/foobar/1", "a/fo/1", "b/foo/1"];

#[test]
fn names_below_are_asked_for_again_and_no_others() {
    for reap in [false, true] {
        let scene = Scene::new();
        scene.make(&INSIDE);
        scene.make(&OUTSIDE);
        assert_eq!(scene.lookups(|| scene.stat_all(&INSIDE)), 0);
        match reap {
            false => drop(scene.begin("a/foo", Clean::Names)),
            true => {
                let report = scene.clean("a/foo", Clean::Names);
                assert_eq!(report.names.freed.entries, 6, "{report:?}");
                assert_eq!(report.inodes.freed.entries, 6, "{report:?}");
                assert_eq!(report.inodes.busy.entries, 0, "{report:?}");
                assert!(report.names.freed.bytes > 0 && report.names.remaining().entries == 0);
            }
        }
        assert_eq!(scene.lookups(|| scene.stat_all(&OUTSIDE)), 0);
        assert_eq!(scene.lookups(|| scene.stat_all(&INSIDE)), 6, "four files, two directories");
        assert_eq!(scene.lookups(|| scene.stat_all(&INSIDE)), 0, "once");
        scene.end();
    }
}

#[test]
fn what_is_known_to_be_missing_is_asked_for_again() {
    let scene = Scene::new();
    scene.make(&["a/1", "b/1"]);
    let missing = |path: &str| scene.lookups(|| assert!(scene.top.stat(path).is_err()));
    for path in ["a/none", "b/none"] {
        scene.directory(&path[..1]).list_all().unwrap();
        scene.stat_all(&[&path[..1]]);
        missing(path);
        assert_eq!(missing(path), 0);
    }
    drop(scene.begin("a", Clean::Names));
    assert_eq!((missing("a/none"), missing("b/none")), (1, 0));
}

#[test]
fn a_lookup_that_starts_below_is_reported() {
    let scene = Scene::new();
    scene.make(&INSIDE);
    let deep = scene.directory("a/foo/deep");
    let look = |path: &str| scene.lookups(|| assert!(deep.stat(path).is_ok()));
    assert_eq!(look("er/3") + look("4"), 0);
    drop(scene.begin("a", Clean::Names));
    assert_eq!((look("er/3"), look("4")), (2, 1));
    assert_eq!((look("er/3"), look("4")), (0, 0));
    drop(scene.begin("", Clean::Names));
    assert_eq!(look("er/3"), 2);
}

fn move_to(scene: &Scene, from: &str, to: &str) {
    scene.top.rename(from, to, RenameMode::NoReplace).unwrap();
}

#[test]
fn a_directory_takes_along_what_was_cleaned_where_it_was() {
    let scene = Scene::new();
    scene.make(&["a/d/e/1", "b/2"]);
    drop(scene.begin("a", Clean::Both));
    move_to(&scene, "a/d", "b/d");
    assert_eq!(scene.lookups(|| scene.stat_all(&["b/d/e/1"])), 2, "e and 1");
}

#[test]
fn what_was_cleaned_before_it_came_does_not_concern_it() {
    let scene = Scene::new();
    scene.make(&["a/d/e/1", "b/2", "c/3"]);
    drop(scene.begin("b", Clean::Both));
    move_to(&scene, "a/d", "b/d");
    move_to(&scene, "c/3", "b/3");
    // A move makes the attributes of the moved object uncertain. And any other cleaning makes every walk check the
    // cleanings of its ancestors.
    scene.stat_all(&["b/d", "b/3"]);
    drop(scene.begin("c", Clean::Both));
    assert_eq!(scene.lookups(|| scene.stat_all(&["b/d/e/1", "b/3"])), 0);
    let report = scene.clean("b", Clean::Names);
    assert_eq!(
        report.names.freed.entries, 5,
        "d, e, 1, 3, and 2, which was out of use: {report:?}"
    );
}

#[test]
fn an_answer_that_was_asked_for_before_is_not_kept() {
    let scene = Scene::new();
    scene.make(&["a/1"]);
    scene.vfs.forget_unused();
    scene.stat_all(&["a"]);
    let gate = Gate::new();
    scene.hostile.follow(
        Plan::new().when(On::call(Call::Lookup).nth(1), Fault::Hold(Moment::After, gate.clone())),
    );
    let directory = scene.directory("a");
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| scene.top.stat("a/1").unwrap());
        gate.wait_for(1);
        drop(scene.vfs.begin_clean(directory.node(), Clean::Names).unwrap());
        gate.open();
        asking.join().unwrap();
    });
    assert_eq!(scene.lookups(|| scene.stat_all(&["a/1"])), 1, "the old answer was not kept");
    assert_eq!(scene.lookups(|| scene.stat_all(&["a/1"])), 0);
}

#[test]
fn pages_below_are_read_again_and_no_others() {
    for reap in [false, true] {
        let scene = Scene::new();
        let (inside, outside) = (["a/foo/1", "a/foo/deep/2"], ["a/foobar/1", "a/3"]);
        scene.make(&inside);
        scene.make(&outside);
        let open = |path: &str| scene.top.open(path, OpenOptions::read()).unwrap();
        let read_all = |paths: &[&str]| {
            scene.reads(|| paths.iter().for_each(|path| assert_eq!(content(&open(path)), *path)))
        };
        read_all(&inside);
        read_all(&outside);
        assert_eq!(read_all(&inside) + read_all(&outside), 0);
        let still_open = open(inside[0]);
        match reap {
            false => drop(scene.begin("a/foo", Clean::Pages)),
            true => {
                let report = scene.clean("a/foo", Clean::Pages);
                assert_eq!(report.pages.freed.entries, 2, "{report:?}");
                assert_eq!(report.pages.freed.bytes, 8192);
                assert_eq!(report.names.found.entries, 0, "only pages were asked for");
            }
        }
        assert_eq!(read_all(&outside), 0);
        assert_eq!(scene.reads(|| assert_eq!(content(&still_open), inside[0])), 1);
        assert_eq!(read_all(&inside), 1, "the other one");
        assert_eq!(scene.lookups(|| scene.stat_all(&inside)), 0, "names stay");
        drop(still_open);
        scene.end();
    }
}

#[test]
fn a_page_that_is_being_filled_meanwhile_does_not_stay() {
    let scene = Scene::new();
    scene.make(&["a/1"]);
    scene.vfs.forget_unused();
    let file = scene.top.open("a/1", OpenOptions::read()).unwrap();
    let gate = Gate::new();
    scene.hostile.follow(
        Plan::new().when(On::call(Call::Read).nth(1), Fault::Hold(Moment::After, gate.clone())),
    );
    let directory = scene.directory("a");
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| content(&file));
        gate.wait_for(1);
        let report = scene.vfs.clean(directory.node(), Clean::Pages, Dirty::Skip).unwrap();
        assert_eq!(report.pages.busy.entries, 1, "{report:?}");
        gate.open();
        assert_eq!(reading.join().unwrap(), "a/1");
    });
    // The reader asked once more itself, so it is cached, by an answer from after the cleaning.
    assert_eq!(scene.reads(|| drop(content(&file))), 0);
}

#[test]
fn what_the_store_does_not_have_yet_is_never_lost() {
    for dirty in [Dirty::Skip, Dirty::WriteFirst] {
        let scene = Scene::lazy();
        scene.make(&["a/1", "b/2"]);
        let directory = scene.directory("a");
        let report = scene.vfs.clean(directory.node(), Clean::Both, dirty).unwrap();
        match dirty {
            Dirty::Skip => {
                assert_eq!(report.pages.dirty.entries, 1, "{report:?}");
                assert_eq!(report.inodes.dirty.entries, 1, "{report:?}");
                assert_eq!(report.pages.freed.entries, 0);
            }
            Dirty::WriteFirst => {
                assert_eq!(report.pages.freed.entries, 1, "{report:?}");
                assert_eq!(report.inodes.freed.entries, 1, "{report:?}");
                assert_eq!(scene.hostile.made(Call::Write), 1, "not that of b");
            }
        }
        let read = |path: &str| scene.top.read_file(path).unwrap();
        assert_eq!((read("a/1"), read("b/2")), (b"a/1".to_vec(), b"b/2".to_vec()));
    }
}

#[test]
fn a_store_that_takes_nothing_keeps_the_pages_dirty() {
    let scene = Scene::lazy();
    scene.make(&["a/1"]);
    let directory = scene.directory("a");
    scene.hostile.follow(Plan::new().when(On::call(Call::Write), Fault::Fail(Moment::Before, 28)));
    let report = scene.vfs.clean(directory.node(), Clean::Pages, Dirty::WriteFirst).unwrap();
    assert_eq!((report.not_written, report.pages.dirty.entries), (1, 1), "{report:?}");
    scene.hostile.follow(Plan::new());
    assert_eq!(scene.top.read_file("a/1").unwrap(), b"a/1");
}

#[test]
fn what_is_in_use_stays_and_is_counted() {
    let scene = Scene::new();
    scene.make(&["a/1", "a/2", "a/d/3"]);
    let (open, inner) =
        (scene.top.open("a/1", OpenOptions::read()).unwrap(), scene.directory("a/d"));
    let report = scene.clean("a", Clean::Names);
    assert_eq!(report.names.freed.entries, 4, "names go in any case");
    assert_eq!(report.inodes.freed.entries, 2, "2 and d/3: {report:?}");
    assert_eq!(report.inodes.busy.entries, 2, "1 and d: {report:?}");
    assert_eq!(content(&open), "a/1");
    assert!(inner.stat("3").is_ok());
    drop((open, inner));
    scene.end();
}

#[test]
fn a_file_lies_where_it_was_last_found() {
    let scene = Scene::new();
    scene.make(&["a/1", "b/2"]);
    scene.top.link("a/1", "b/1").unwrap();
    scene.stat_all(&["b/1", "a/1"]);
    scene.top.read_file("b/1").unwrap();
    let node = scene.top.open("a/1", OpenOptions::read()).unwrap();
    let below = |path: &str| scene.vfs.is_below(node.node(), scene.directory(path).node());
    let home = if below("a") { "a" } else { "b" };
    assert!(below("a") != below("b") && below(""));
    let other = if home == "a" { "b" } else { "a" };
    assert_eq!(scene.clean(other, Clean::Pages).pages.found.entries, 0);
    assert_eq!(scene.clean(home, Clean::Pages).pages.freed.entries, 1);
}

/// Once, a file that was created and opened in one step lay nowhere until it was looked up.
#[test]
fn a_file_lies_where_it_was_created_linked_or_moved() {
    let scene = Scene::new();
    scene.make(&["a/1", "b/2"]);
    let options = OpenOptions::write().create(0o600);
    let file = scene.top.open("a/new", options).unwrap();
    let lies = |path: &str| scene.vfs.is_below(file.node(), scene.directory(path).node());
    assert!(lies("a") && !lies("b"));
    move_to(&scene, "a/new", "b/new");
    assert!(lies("b") && !lies("a"));
    scene.top.link("b/new", "a/other").unwrap();
    scene.top.remove_file("b/new").unwrap();
    assert!(!lies("b"), "it has no name there");
    let (caller, other) = (Caller::root(), Name::new(b"other").unwrap());
    assert!(scene.vfs.lookup(&caller, scene.directory("a").node(), other).is_ok());
    assert!(lies("a"), "found again");
    scene.top.remove_file("a/other").unwrap();
    assert!(!lies("a") && !lies(""), "it has no name at all");
    let unnamed = scene.top.open_unnamed("a", 0o600).unwrap();
    scene.top.link_file(&unnamed, "b/named").unwrap();
    assert!(scene.vfs.is_below(unnamed.node(), scene.directory("b").node()));
}

#[test]
fn what_is_mounted_below_is_not_cleaned() {
    let (outer, inner) = (Scene::new(), Scene::new());
    outer.make(&["a/b/1", "a/2"]);
    inner.make(&["c/3"]);
    let namespace = Namespace::new(outer.vfs.clone());
    let top = namespace.root_directory(Caller::root());
    let mountpoint = top.open_directory("a/b").unwrap();
    namespace.mount(&mountpoint, inner.vfs.clone()).unwrap();
    let look = |path: &str| assert!(top.stat(path).is_ok(), "{path}");
    look("a/b/c/3");
    drop(outer.begin("a", Clean::Both));
    assert_eq!(inner.lookups(|| look("a/b/c/3")), 0);
    assert_eq!(outer.lookups(|| look("a/2")), 1);
    drop(inner.begin("", Clean::Both));
    assert_eq!(outer.lookups(|| look("a/2")), 0);
    assert_eq!(inner.lookups(|| look("a/b/c/3")), 2);
    drop(mountpoint);
    namespace.unmount(top.open_directory("a/b").unwrap(), Unmount::Lazy).unwrap();
}

#[test]
fn the_reaper_can_be_stopped() {
    let scene = Scene::new();
    scene.make(&INSIDE);
    let directory = scene.directory("a");
    let cleaning = scene.vfs.begin_clean(directory.node(), Clean::Both).unwrap();
    let mut steps = 0;
    let report = cleaning.reap(Dirty::Skip, &mut |progress: CleanProgress| {
        steps += 1;
        assert!(progress.done <= progress.total);
        ControlFlow::Break(())
    });
    assert_eq!(steps, 1);
    assert!(report.names.freed.entries < 7);
    drop(directory);
    assert_eq!(scene.lookups(|| scene.stat_all(&INSIDE)), 7, "out of use all the same");
    scene.end();
}

#[test]
fn only_directories_are_cleaned() {
    let scene = Scene::new();
    scene.make(&["1"]);
    let file = scene.top.open("1", OpenOptions::read()).unwrap();
    let refused = scene.vfs.clean(file.node(), Clean::Both, Dirty::Skip);
    assert!(matches!(refused, Err(Error::NotDirectory)));
}

#[test]
fn what_is_cached_is_counted_by_directory() {
    let scene = Scene::lazy();
    scene.make(&INSIDE);
    scene.make(&OUTSIDE);
    let directory = scene.directory("a/foo");
    let mut all = scene.vfs.resident_by_directory(directory.node());
    all.sort_by(|one, other| one.path.cmp(&other.path));
    let seen: Vec<_> = all
        .iter()
        .map(|one| {
            let path = String::from_utf8(one.path.clone().unwrap()).unwrap();
            (path, one.resident.names.entries, one.resident.dirty.entries)
        })
        .collect();
    let expected = [("", 3, 2), ("deep", 2, 1), ("deep/er", 1, 1)];
    assert_eq!(seen, expected.map(|(path, names, dirty)| (path.to_string(), names, dirty)));
    let sum = scene.vfs.resident(directory.node());
    assert_eq!((sum.names.entries, sum.pages.entries), (6, 4));
    scene.vfs.clean(directory.node(), Clean::Both, Dirty::WriteFirst).unwrap();
    assert_eq!(scene.vfs.resident(directory.node()), Default::default());
}

/// The numbers do not depend on how they are asked for.
#[test]
fn one_level_tells_what_all_levels_tell() {
    let scene = Scene::lazy();
    scene.make(&INSIDE);
    scene.make(&OUTSIDE);
    for place in ["a", "a/foo", "a/foo/deep", "a/foo/deep/er"] {
        let directory = scene.directory(place);
        let mut expected = std::collections::BTreeMap::<Vec<u8>, Resident>::new();
        for one in scene.vfs.resident_by_directory(directory.node()) {
            let path = one.path.expect("all of it is cached");
            let first = path.split(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
            let sum = expected.entry(first).or_default();
            *sum = sum.plus(&one.resident);
        }
        let level = scene.vfs.resident_level(directory.node());
        assert_eq!(level.rest, Resident::default());
        assert_eq!(level.own, expected.remove(&Vec::new()).unwrap_or_default(), "{place}");
        let counted = level.children.iter().map(|one| (one.name.clone().unwrap(), one.resident));
        assert_eq!(counted.collect::<std::collections::BTreeMap<_, _>>(), expected, "{place}");
        for child in &level.children {
            let towards = |below| scene.vfs.child_towards(directory.node(), below);
            assert_eq!(towards(child.inode), Some(child.inode));
            assert_eq!(towards(directory.node().id()), Some(directory.node().id()));
            let outside = scene.directory("b");
            assert_eq!(towards(outside.node().id()), None);
        }
    }
    let (top, deep) = (scene.directory("a"), scene.directory("a/foo/deep/er"));
    let foo = scene.directory("a/foo").node().id();
    assert_eq!(scene.vfs.child_towards(top.node(), deep.node().id()), Some(foo));
}

/// A counted level is reported again while nothing changed. Each change makes it outdated, and its memory is in the
/// budget. Bug: a page that refreshed every five seconds kept a core busy for a tenth of its time.
#[test]
fn a_level_is_counted_as_it_is_after_anything_changed() {
    let scene = Scene::lazy();
    scene.make(&INSIDE);
    let directory = scene.directory("a/foo");
    let sum = |level: &uvfs_vfs::ResidentLevel| {
        level.children.iter().fold(level.own.plus(&level.rest), |sum, one| sum.plus(&one.resident))
    };
    let compare = |what: &str| {
        let level = scene.vfs.resident_level(directory.node());
        // Not the cached count.
        assert_eq!(sum(&level), scene.vfs.resident(directory.node()), "{what}");
        assert_eq!(scene.vfs.resident_level(directory.node()), level, "{what}: asked again");
        let all = scene.vfs.resident_by_directory(directory.node());
        let again = scene.vfs.resident_by_directory(directory.node());
        assert_eq!((all.len(), &all), (again.len(), &again), "{what}: by directory");
        let all = all.iter().fold(Resident::default(), |sum, one| sum.plus(&one.resident));
        assert_eq!(all, sum(&level), "{what}: by directory");
        level
    };
    let held = || scene.vfs.statistics().budget.metadata_bytes;
    let before = held();
    let first = compare("at first");
    assert!(held() > before, "what is kept is accounted for");
    scene.top.write_file("a/foo/new", b"x").unwrap();
    assert_ne!(compare("a name and a page"), first);
    scene.top.write_file("a/foo/new", vec![b'x'; 20_000]).unwrap();
    let larger = compare("pages of a file that was there");
    let file = scene.top.open("a/foo/new", OpenOptions::read_write()).unwrap();
    file.sync(SyncMode::All).unwrap();
    let written = compare("nothing but dirty pages became clean");
    assert_ne!(sum(&written).dirty, sum(&larger).dirty);
    file.write_all_at(0, b"y").unwrap();
    assert_ne!(sum(&compare("a clean page became dirty")).dirty, sum(&written).dirty);
    drop(file);
    scene.top.rename("a/foo/new", "a/foo/deep/new", RenameMode::Replace).unwrap();
    assert_ne!(compare("moved into another directory").own, written.own);
    scene.top.rename("a/foo/deep/er", "a/foo/er", RenameMode::Replace).unwrap();
    let moved = compare("a directory moved");
    assert!(moved.children.iter().any(|child| child.name.as_deref() == Some(b"er")));
    scene.top.remove_file("a/foo/deep/new").unwrap();
    compare("a name went");
    scene
        .vfs
        .set_policy(&scene.directory("a/foo/er").node().clone(), Some(CachePolicy::Keep))
        .unwrap();
    let marked = scene.vfs.resident_level(directory.node());
    let keep = marked.children.iter().filter(|child| child.policy == Some(CachePolicy::Keep));
    assert_eq!(keep.count(), 1, "a mark shows at once");
    scene.vfs.clean(directory.node(), Clean::Both, Dirty::WriteFirst).unwrap();
    assert_eq!(sum(&compare("cleaned")), Resident::default());
}

/// A level may be as large as the cache; its report is bounded.
#[test]
fn a_level_of_very_many_directories_has_a_bound_and_loses_nothing() {
    let memory = MemoryBackend::new(MemoryConfig::default()).unwrap();
    let vfs = Vfs::new(memory, VfsConfig::default()).unwrap();
    let root = vfs.root_directory(Caller::root());
    let most = uvfs_vfs::CHILDREN_MAX;
    for at in 0..most + 100 {
        let path = format!("{at}");
        root.create_directory(&path, 0o755).unwrap();
        root.create_directory(format!("{path}/in"), 0o755).unwrap();
    }
    let level = vfs.resident_level(vfs.root());
    assert_eq!(level.children.len(), most);
    assert_eq!(level.own.names.entries, most as u64 + 100);
    let sum = level.children.iter().fold(level.rest, |sum, one| sum.plus(&one.resident));
    assert_eq!((sum.names.entries, level.rest.names.entries), (most as u64 + 100, 100));
    assert!(level.children.iter().all(|child| child.name.is_some()), "those told apart have names");
}

/// Compared with the store: a tree that changes at random, cleaned at random.
#[test]
fn cleaning_at_random_changes_no_answer() {
    let seed = seed();
    let scene = Scene::with(VfsConfig { pages: PagePolicy::WriteBack, ..VfsConfig::default() });
    let mut numbers = Numbers(seed);
    let mut known = std::collections::BTreeMap::new();
    let directories = ["a", "b", "a/c", "a/c/d", "b/e"];
    for directory in directories {
        scene.top.create_directory(directory, 0o755).unwrap();
    }
    for step in 0..20_000u64 {
        let directory = *numbers.of(&directories);
        let path = format!("{directory}/{}", numbers.below(6));
        match numbers.below(10) {
            0..3 => {
                let text = format!("{step}");
                scene.top.write_file(&path, &text).unwrap();
                known.insert(path, text);
            }
            3..6 => match known.get(&path) {
                Some(text) => {
                    assert_eq!(scene.top.read_file(&path).unwrap(), text.as_bytes(), "{path}");
                }
                None => assert!(matches!(scene.top.stat(&path), Err(Error::NotFound)), "{path}"),
            },
            6 => {
                let gone = scene.top.remove_file(&path).is_ok();
                assert_eq!(gone, known.remove(&path).is_some(), "{path}");
            }
            7 => {
                let to = format!("{}/{}", numbers.of(&directories), numbers.below(6));
                let moved = scene.top.rename(&path, &to, RenameMode::Replace).is_ok();
                assert_eq!(moved, known.contains_key(&path), "{path} to {to}");
                if let Some(text) = known.remove(&path) {
                    known.insert(to, text);
                }
            }
            _ => {
                let clean = *numbers.of(&[Clean::Pages, Clean::Names, Clean::Both]);
                let dirty = *numbers.of(&[Dirty::Skip, Dirty::WriteFirst]);
                let held = scene.directory(directory);
                match numbers.below(2) {
                    0 => drop(scene.vfs.begin_clean(held.node(), clean).unwrap()),
                    _ => drop(scene.vfs.clean(held.node(), clean, dirty).unwrap()),
                }
            }
        }
    }
    scene.vfs.write_back_all().unwrap();
    scene.end();
}
