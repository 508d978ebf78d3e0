//! Floor: cleaning against concurrent changes. Each test found a bug, or searched for one: an old cached entry that was
//! used, an outside entry that was evicted, or an existing file reported missing.
//!
//! The store is hostile: it holds calls at gates, has changeable capabilities, and reports news. Some tests race; they
//! print no seed and need none, since the fault must not happen in any order.

use std::ops::ControlFlow;
use std::time::Duration;
use uvfs_backends::hostile::{Call, Fault, Gate, Moment, On, Plan};
use uvfs_tests::cleaned::{Scene, content, reap};
use uvfs_tests::{Watchdog, hostile};
use uvfs_vfs::{
    Authority, Backend, Caller, Clean, Dirty, FileRef, InodeId, Name, PageCaching, RenameMode,
    SetAttributes, VfsConfig,
};

/// Answers of a shared store have a long lifetime.
fn hours() -> VfsConfig {
    let hour = Duration::from_secs(3600);
    VfsConfig {
        entry_timeout: hour,
        attr_timeout: hour,
        negative_timeout: hour,
        watch: true,
        ..VfsConfig::default()
    }
}

/// Opens a gate also when a test fails.
struct OpenAtEnd<'a>(&'a Gate);

impl Drop for OpenAtEnd<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A complete directory moves below the cleaned one between effect and reaping.
#[test]
fn a_complete_directory_that_came_later_keeps_its_names() {
    let scene = Scene::new();
    scene.make(&["a/1", "b/d/x", "b/d/y"]);
    scene.directory("b/d").list_all().unwrap();
    scene.stat_all(&["b", "b/d"]);
    let cleaning = scene.begin("a", Clean::Names);
    scene.top.rename("b/d", "a/d", RenameMode::NoReplace).unwrap();
    scene.stat_all(&["a", "a/d"]);
    assert_eq!(scene.lookups(|| scene.stat_all(&["a/d/x"])), 0);
    reap(cleaning);
    assert!(scene.top.stat("a/d/x").is_ok(), "it exists all the time");
}

/// Bug: the same race without a complete directory: an entry from outside was evicted.
#[test]
fn names_of_what_came_later_are_not_evicted() {
    let scene = Scene::new();
    scene.make(&["a/1", "b/d/x", "b/d/y"]);
    scene.vfs.forget_unused();
    scene.stat_all(&["a/1", "b/d/x", "b/d/y"]);
    let cleaning = scene.begin("a", Clean::Names);
    scene.top.rename("b/d", "a/d", RenameMode::NoReplace).unwrap();
    scene.stat_all(&["a", "a/d"]);
    reap(cleaning);
    scene.stat_all(&["a", "a/d"]);
    assert_eq!(scene.lookups(|| scene.stat_all(&["a/d/x"])), 0);
}

/// A change in flight must not restore a flag that the cleaning has cleared.
#[test]
fn a_change_in_flight_does_not_resume_completeness() {
    let scene = Scene::new();
    scene.make(&["a/x", "a/y"]);
    let a = scene.directory("a");
    a.list_all().unwrap();
    let gate = Gate::new();
    let cleaning = scene.vfs.begin_clean(a.node(), Clean::Names).unwrap();
    scene
        .hostile
        .follow(Plan::new().when(On::call(Call::Create), Fault::Hold(Moment::After, gate.clone())));
    std::thread::scope(|scope| {
        let opener = OpenAtEnd(&gate);
        let making = scope.spawn(|| {
            use uvfs_vfs::{NewKind, NewNode};
            scene
                .vfs
                .create(
                    &Caller::root(),
                    a.node(),
                    Name::new(b"z").unwrap(),
                    &NewNode { kind: NewKind::Directory, mode: 0o755, umask: 0 },
                )
                .map(drop)
                .unwrap();
        });
        gate.wait_for(1);
        // Learns of the cleaning.
        assert!(a.stat("x").is_ok());
        drop(opener);
        making.join().unwrap();
    });
    reap(cleaning);
    assert!(a.stat("y").is_ok(), "it exists all the time");
}

/// The directory is not cached when the file gets its pages.
#[test]
fn a_file_whose_directory_was_evicted_has_a_home() {
    let scene = Scene::new();
    scene.make(&["a/1"]);
    scene.vfs.forget_unused();
    let found = {
        let a = scene.directory("a");
        scene
            .vfs
            .lookup(&Caller::root(), a.node(), Name::new(b"1").unwrap())
            .unwrap()
            .found()
            .unwrap()
            .node
    };
    // The directory is evicted, the file is held.
    scene.vfs.forget_unused();
    let file = scene
        .vfs
        .open(&Caller::root(), &found, uvfs_vfs::OpenMode { read: true, ..Default::default() })
        .unwrap();
    let read = || {
        scene.reads(|| {
            let mut into = [0; 10];
            scene.vfs.read(&found, file.reference(), 0, &mut into).unwrap();
        })
    };
    read();
    scene.stat_all(&["a/1"]);
    assert_eq!(read(), 0);
    scene.clean("a", Clean::Pages);
    assert_eq!(read(), 1);
    assert_eq!(scene.reads(|| drop(content(&scene.open("a/1")))), 0);
}

/// An answer from before a rename has the file's old place.
#[test]
fn an_overtaken_answer_does_not_move_the_file() {
    let scene = Scene::new();
    scene.make(&["a/1", "b/2"]);
    scene.vfs.forget_unused();
    scene.stat_all(&["a", "b"]);
    let gate = Gate::new();
    scene.hostile.follow(
        Plan::new().when(
            On::call(Call::Lookup).name("1").nth(1),
            Fault::Hold(Moment::After, gate.clone()),
        ),
    );
    let a = scene.directory("a");
    std::thread::scope(|scope| {
        let opener = OpenAtEnd(&gate);
        let asking = scope.spawn(|| drop(scene.top.stat("a/1")));
        gate.wait_for(1);
        scene.top.rename("a/1", "b/1", RenameMode::NoReplace).unwrap();
        drop(opener);
        asking.join().unwrap();
    });
    drop(a);
    let file = scene.open("b/1");
    content(&file);
    assert_eq!(scene.reads(|| drop(content(&file))), 0);
    scene.clean("b", Clean::Pages);
    assert_eq!(scene.reads(|| drop(content(&file))), 1);
}

/// C5 for entries below: the cleaned directory and one below it were both evicted.
#[test]
fn what_was_cleaned_is_left_to_those_below_too() {
    for trees in 0..4 {
        let scene = Scene::over(
            hostile().claiming(|can| {
                can.authority = Authority::Shared;
            }),
            hours(),
        );
        for _ in 0..trees {
            scene.top.create_directory(format!("f{trees}"), 0o755).ok();
        }
        scene.make(&["q/d/c/x"]);
        let (one, two) = (scene.begin("q", Clean::Names), scene.begin("q", Clean::Names));
        scene.stat_all(&["q", "q/d", "q/d/c", "q/d/c/x"]);
        let id = |path: &str| scene.directory(path).node().id();
        let (q, d) = (id("q"), id("q/d"));
        let sink = scene.hostile.sink().unwrap();
        sink.entry_changed(d, Name::new(b"c").unwrap());
        reap(one); // takes c, not c/x, which is later
        drop(scene.begin("q/d", Clean::Names));
        sink.entry_changed(q, Name::new(b"d").unwrap());
        reap(two); // takes d
        let asked = scene.names_asked(|| scene.stat_all(&["q/d/c/x"]));
        assert!(asked.contains(&"c".to_string()), "the scene: {asked:?}");
        assert!(asked.contains(&"x".to_string()), "{asked:?}");
    }
}

/// A store moves directories; cached parents form a circle.
#[test]
fn parents_that_make_a_circle_end_no_lookup() {
    let scene = Scene::over(
        hostile().claiming(|can| {
            can.authority = Authority::Shared;
        }),
        VfsConfig { negative_timeout: Duration::ZERO, ..hours() },
    );
    let _dog = Watchdog::new(Duration::from_secs(5));
    scene.top.create_directory("a", 0o755).unwrap();
    scene.top.create_directory("a/b", 0o755).unwrap();
    let (a, b) = (scene.directory("a"), scene.directory("a/b"));
    let store = scene.hostile.inner();
    let name = |name: &'static [u8]| Name::new(name).unwrap();
    let root = Caller::root();
    store
        .names()
        .rename(
            &root,
            (a.node().id(), name(b"b")),
            (InodeId::ROOT, name(b"b")),
            RenameMode::NoReplace,
        )
        .unwrap();
    store
        .names()
        .rename(
            &root,
            (InodeId::ROOT, name(b"a")),
            (b.node().id(), name(b"a")),
            RenameMode::NoReplace,
        )
        .unwrap();
    assert!(b.stat("a").is_ok());
    drop(scene.vfs.begin_clean(scene.top.node(), Clean::Names).unwrap());
    let _ = a.stat("none");
}

/// The other name of a file is removed.
#[test]
fn a_file_with_one_name_left_lies_there() {
    let scene = Scene::new();
    scene.make(&["a/1", "b/2"]);
    scene.top.link("a/1", "b/1").unwrap();
    scene.top.remove_file("a/1").unwrap();
    let file = scene.open("b/1");
    content(&file);
    scene.clean("b", Clean::Pages);
    assert_eq!(scene.reads(|| drop(content(&file))), 1);
}

/// A file that exists all the time is found all the time.
#[test]
fn no_file_is_denied_while_the_reaper_goes() {
    let scene = Scene::new();
    scene.make(&["a/b/x", "a/b/y"]);
    let b = scene.directory("a/b");
    let over = std::sync::atomic::AtomicBool::new(false);
    let (mut denied, mut looks) = (0u64, 0u64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let until = std::time::Instant::now() + Duration::from_secs(3);
            while std::time::Instant::now() < until
                && !over.load(std::sync::atomic::Ordering::Relaxed)
            {
                uvfs_tests::for_each_node(&scene.vfs, b.node(), |_, _| ());
                let _ = scene.vfs.clean(scene.top.node(), Clean::Names, Dirty::Skip).unwrap();
            }
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            for name in ["x", "y"] {
                looks += 1;
                if b.stat(name).is_err() {
                    denied += 1;
                    over.store(true, std::sync::atomic::Ordering::Relaxed);
                }
            }
        }
    });
    assert_eq!(denied, 0);
}

/// A cleaning of everything, while a directory moves: after both, no older entry is used.
#[test]
fn a_cleaning_of_all_is_not_missed_by_a_move() {
    let scene = Scene::new();
    scene.make(&["a/1", "b/1", "a/d/x"]);
    let d = scene.directory("a/d");
    let start = std::sync::Barrier::new(2);
    let rounds = 30_000;
    let mut missed = 0;
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            for round in 0..rounds {
                start.wait();
                let (from, to) = if round % 2 == 0 { ("a/d", "b/d") } else { ("b/d", "a/d") };
                scene.top.rename(from, to, RenameMode::NoReplace).unwrap();
                start.wait();
            }
        });
        for round in 0..rounds {
            d.stat("x").unwrap();
            scene.hostile.follow(Plan::new());
            start.wait();
            for _ in 0..(round * 7) % 4000 {
                std::hint::spin_loop();
            }
            drop(scene.vfs.begin_clean(scene.top.node(), Clean::Names).unwrap());
            start.wait();
            let asked = scene.lookups(|| assert!(d.stat("x").is_ok()));
            if asked == 0 {
                missed += 1;
            }
        }
        mover.join().unwrap();
    });
    assert_eq!(missed, 0);
}

/// Names of a directory outside, which was evicted and found again.
#[test]
fn outside_nothing_is_asked_again() {
    let scene = Scene::over(
        hostile().claiming(|can| {
            can.authority = Authority::Shared;
        }),
        hours(),
    );
    scene.make(&["in/1", "out/c/x"]);
    for n in 0..300 {
        scene.top.create_directory(format!("in/{n}d"), 0o755).unwrap();
        scene.stat_all(&[&format!("in/{n}d")]);
    }
    let one = scene.begin("out", Clean::Names);
    scene.stat_all(&["out", "out/c", "out/c/x"]);
    let out = scene.directory("out").node().id();
    scene.clean("in", Clean::Names);
    scene.hostile.sink().unwrap().entry_changed(out, Name::new(b"c").unwrap());
    reap(one); // takes c, not c/x
    let asked = scene.names_asked(|| scene.stat_all(&["out/c/x"]));
    assert!(asked.contains(&"c".to_string()), "the scene: {asked:?}");
    assert!(!asked.contains(&"x".to_string()), "{asked:?}");
}

/// Inodes found after the cleaning are not evicted by it.
#[test]
fn inodes_found_after_are_not_taken() {
    let scene = Scene::over(
        hostile().claiming(|can| {
            can.authority = Authority::Shared;
            can.caching = PageCaching::Core;
        }),
        VfsConfig {
            entry_timeout: Duration::ZERO,
            negative_timeout: Duration::ZERO,
            attr_timeout: Duration::from_secs(3600),
            ..VfsConfig::default()
        },
    );
    scene.make(&["a/1"]);
    let cleaning = scene.begin("a", Clean::Names);
    // A thread keeps using it: names have no lifetime here, so every inode is an orphan when idle.
    let mut rounds = 0;
    let _ = cleaning.reap(Dirty::Skip, &mut |progress| {
        rounds += 1;
        scene.top.stat("a/1").unwrap();
        assert!(rounds < 5000, "does not end: {progress:?}");
        ControlFlow::Continue(())
    });
}

/// A cleaning of everything reaches the pages of a file that moves (P4).
#[test]
fn a_cleaning_of_all_is_not_missed_by_a_moving_file() {
    let scene = Scene::new();
    scene.make(&["a/1", "b/2"]);
    let file = scene.open("a/1");
    let start = std::sync::Barrier::new(2);
    let rounds = 30_000;
    let mut missed = 0;
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            for round in 0..rounds {
                start.wait();
                let (from, to) = if round % 2 == 0 { ("a/1", "b/1") } else { ("b/1", "a/1") };
                scene.top.rename(from, to, RenameMode::NoReplace).unwrap();
                start.wait();
            }
        });
        for round in 0..rounds {
            content(&file);
            scene.hostile.follow(Plan::new());
            start.wait();
            for _ in 0..(round * 7) % 4000 {
                std::hint::spin_loop();
            }
            drop(scene.vfs.begin_clean(scene.top.node(), Clean::Pages).unwrap());
            start.wait();
            if scene.reads(|| drop(content(&file))) == 0 {
                missed += 1;
            }
        }
        mover.join().unwrap();
    });
    assert_eq!(missed, 0);
}

/// Pages that are made while the file moves.
#[test]
fn pages_made_while_the_file_moves() {
    let scene = Scene::new();
    scene.make(&["a/1", "b/2"]);
    let start = std::sync::Barrier::new(2);
    let rounds = 40_000;
    let mut missed = 0;
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            for round in 0..rounds {
                let (from, to) = if round % 2 == 0 { ("a/1", "b/1") } else { ("b/1", "a/1") };
                start.wait();
                scene.top.rename(from, to, RenameMode::NoReplace).unwrap();
                start.wait();
                start.wait();
            }
        });
        for round in 0..rounds {
            scene.vfs.forget_unused();
            let (from, to) = if round % 2 == 0 { ("a", "b") } else { ("b", "a") };
            let node = scene
                .vfs
                .lookup(&Caller::root(), scene.directory(from).node(), Name::new(b"1").unwrap())
                .unwrap()
                .found()
                .unwrap()
                .node;
            scene.hostile.follow(Plan::new());
            start.wait();
            for _ in 0..(round * 7) % 3000 {
                std::hint::spin_loop();
            }
            let open = scene
                .vfs
                .open(
                    &Caller::root(),
                    &node,
                    uvfs_vfs::OpenMode { read: true, ..Default::default() },
                )
                .unwrap();
            start.wait();
            drop((open, node));
            let file = scene.open(&format!("{to}/1"));
            content(&file);
            drop(scene.begin(to, Clean::Pages));
            if scene.reads(|| drop(content(&file))) == 0 {
                missed += 1;
            }
            start.wait();
        }
        mover.join().unwrap();
    });
    assert_eq!(missed, 0);
}

/// Steps over inodes without a name: not their number times the depth of the cleaned directory.
#[test]
fn a_deep_chain_beside_many_idle_inodes() {
    let scene = Scene::over(
        hostile().claiming(|can| {
            can.authority = Authority::Shared;
        }),
        VfsConfig {
            entry_timeout: Duration::ZERO,
            negative_timeout: Duration::ZERO,
            ..VfsConfig::default()
        },
    );
    for depth in [25, 50, 100] {
        let chain = format!("chain{depth}");
        let mut path = chain.clone();
        scene.top.create_directory(&path, 0o755).unwrap();
        for _ in 0..depth {
            path += "/d";
            scene.top.create_directory(&path, 0o755).unwrap();
        }
        for n in 0..5_000 {
            if depth == 25 {
                scene.top.create_directory(format!("{n}"), 0o755).unwrap();
            }
        }
        let cleaning = scene.begin(&chain, Clean::Names);
        let mut steps = 0;
        cleaning.reap(Dirty::Skip, &mut |_| {
            steps += 1;
            ControlFlow::Continue(())
        });
    }
}

/// An answer from before a cleaning does not bring back the attributes that it had.
#[test]
fn an_old_answer_does_not_replace_a_later_one() {
    let scene = Scene::new();
    scene.make(&["a/1"]);
    scene.top.link("a/1", "a/2").unwrap();
    let file = scene.open("a/1").node().id();
    scene.vfs.forget_unused();
    let directory = scene.directory("a");
    let gate = Gate::new();
    let late = On::call(Call::Lookup).name("1").nth(1);
    scene.hostile.follow(Plan::new().when(late, Fault::Hold(Moment::After, gate.clone())));
    std::thread::scope(|scope| {
        let opener = OpenAtEnd(&gate);
        let asking = scope.spawn(|| assert!(directory.stat("1").is_ok()));
        gate.wait_for(1);
        let set = SetAttributes { uid: Some(7), ..SetAttributes::default() };
        let file = FileRef::unopened(file);
        scene.hostile.inner().inodes().set_attributes(&Caller::root(), file, &set).unwrap();
        drop(scene.vfs.begin_clean(directory.node(), Clean::Both).unwrap());
        assert_eq!(directory.stat("2").unwrap().uid, 7);
        drop(opener);
        asking.join().unwrap();
    });
    assert_eq!(directory.stat("2").unwrap().uid, 7, "seen once, it stays");
}

/// A file with one removed name, whose other name was not looked up since: the next cleaning evicts its pages.
#[test]
fn a_file_of_which_a_name_went_is_cleaned_before_the_other_is_asked_for() {
    let scene = Scene::new();
    scene.make(&["a/1", "b/2"]);
    scene.top.link("a/1", "b/1").unwrap();
    content(&scene.open("a/1"));
    scene.top.remove_file("a/1").unwrap();
    scene.clean("b", Clean::Pages | Clean::Names);
    assert_eq!(scene.reads(|| drop(content(&scene.open("b/1")))), 1);
}

/// A held file that lost one name is reached by a cleaning of everything, too.
#[test]
fn a_held_file_of_which_a_name_went_is_cleaned_with_all() {
    let scene = Scene::new();
    scene.make(&["a/1", "b/2"]);
    scene.top.link("a/1", "b/1").unwrap();
    let held = scene.open("a/1");
    content(&held);
    scene.top.remove_file("a/1").unwrap();
    scene.clean("", Clean::Pages | Clean::Names);
    assert_eq!(scene.reads(|| drop(content(&held))), 1);
    assert_eq!(scene.reads(|| drop(content(&scene.open("b/1")))), 0);
}

/// Two renames, one after the other in the store, and ended the other way round.
#[test]
fn two_renames_at_once_leave_the_file_where_it_is() {
    let scene = Scene::new();
    scene.make(&["a/1", "b/2", "c/3"]);
    let file = scene.open("a/1");
    let mut missed = 0;
    for _ in 0..2_000 {
        // a -> b -> c, by two threads.
        std::thread::scope(|scope| {
            scope.spawn(|| scene.top.rename("a/1", "b/1", RenameMode::NoReplace).unwrap());
            scope.spawn(|| while scene.top.rename("b/1", "c/1", RenameMode::NoReplace).is_err() {});
        });
        content(&file);
        drop(scene.begin("c", Clean::Pages));
        if scene.reads(|| drop(content(&scene.open("c/1")))) == 0 {
            missed += 1;
        }
        scene.top.rename("c/1", "a/1", RenameMode::NoReplace).unwrap();
    }
    assert_eq!(missed, 0);
}

/// A lookup of the old name beside the rename.
#[test]
fn a_lookup_of_the_old_name_does_not_move_the_file_back() {
    let scene = Scene::new();
    scene.make(&["a/1", "b/2"]);
    let file = scene.open("a/1");
    let mut missed = 0;
    for _ in 0..2_000 {
        drop(scene.begin("a", Clean::Names));
        std::thread::scope(|scope| {
            scope.spawn(|| _ = scene.top.stat("a/1"));
            scope.spawn(|| scene.top.rename("a/1", "b/1", RenameMode::NoReplace).unwrap());
        });
        content(&file);
        drop(scene.begin("b", Clean::Pages));
        if scene.reads(|| drop(content(&scene.open("b/1")))) == 0 {
            missed += 1;
        }
        scene.top.rename("b/1", "a/1", RenameMode::NoReplace).unwrap();
    }
    assert_eq!(missed, 0);
}

/// A held file that lost one name is cleaned with the directory of the other name, while the kernel, for one, holds it.
#[test]
fn a_held_file_of_which_a_name_went_is_cleaned_where_it_is() {
    let scene = Scene::new();
    scene.make(&["a/1", "b/2"]);
    scene.top.link("a/1", "b/1").unwrap();
    let held = scene.open("a/1");
    content(&held);
    scene.top.remove_file("a/1").unwrap();
    scene.clean("b", Clean::Pages | Clean::Names);
    assert_eq!(scene.reads(|| drop(content(&scene.open("b/1")))), 1);
}

/// A name is removed while the other one is looked up.
#[test]
fn a_name_that_goes_beside_a_lookup_of_the_other() {
    let scene = Scene::new();
    scene.make(&["a/1", "b/2"]);
    let file = scene.open("a/1");
    let mut missed = 0;
    for _ in 0..2_000 {
        scene.top.link("a/1", "b/1").unwrap();
        assert!(scene.top.stat("a/1").is_ok());
        drop(scene.begin("a", Clean::Names));
        assert!(scene.top.stat("a/1").is_ok());
        drop(scene.begin("b", Clean::Names));
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(scene.top.stat("b/1").is_ok()));
            scope.spawn(|| scene.top.remove_file("a/1").unwrap());
        });
        content(&file);
        drop(scene.begin("b", Clean::Pages));
        if scene.reads(|| drop(content(&scene.open("b/1")))) == 0 {
            missed += 1;
        }
        scene.top.rename("b/1", "a/1", RenameMode::NoReplace).unwrap();
    }
    assert_eq!(missed, 0);
}
