//! Floor: race pairs. Two operations collide, by held completions: the store has answered the first, its answer waits
//! at a gate, the second runs to its end, then the first continues. The overtaken state must not be cached.
//!
//! Deterministic, except the tests under "threads", which print a seed (`UVFS_SEED` replays the choices, not the
//! schedule).
//!
//! The store claims [`uvfs_vfs::Authority::Sole`], so that a wrong entry would stay for ever.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use uvfs_backends::hostile::{Call, Fault, Gate, Moment, On, Plan};
use uvfs_tests::paged::assert_references_come_back;
use uvfs_tests::{
    Hostile, Numbers, Watchdog, assert_references_exact, errno, hostile, inner_snapshot, root,
    seed, snapshot, tiny, vfs_over,
};
use uvfs_vfs::{
    AllocateMode, Attributes, Caller, Checks, Cookie, Directory, Entries, Error, File, FileKind,
    FileRef, Lookup, Name, Node, OpenOptions, PageCaching, RenameMode, ResolveMode, SetAttributes,
    Vfs, VfsConfig,
};

/// A file system whose every overtaken answer can be arranged.
struct Scene {
    hostile: Hostile,
    vfs: Arc<Vfs>,
    root: Directory,
    _watchdog: Watchdog,
}

impl Scene {
    fn new() -> Self {
        Self::over(hostile())
    }

    /// With the pages in the core.
    fn paged() -> Self {
        Self::over(hostile().claiming(|can| can.caching = PageCaching::Core))
    }

    fn over(hostile: Hostile) -> Self {
        let vfs = vfs_over(&hostile, VfsConfig::default());
        let root = root(&vfs);
        Self { hostile, vfs, root, _watchdog: Watchdog::new(Duration::from_secs(60)) }
    }

    /// Makes a file and forgets all about it.
    fn file(&self, path: &str) -> u64 {
        self.root.write_file(path, path).unwrap();
        let number = self.root.stat(path).unwrap().number;
        self.vfs.forget_unused();
        number
    }

    /// Makes a file with two names and forgets all about it; its number.
    fn file_of_two_names(&self, path: &str, other: &str) -> u64 {
        let number = self.file(path);
        self.root.link(path, other).unwrap();
        self.vfs.forget_unused();
        number
    }

    /// Makes a directory and forgets all about it.
    fn directory(&self, path: &str) {
        self.root.create_directory(path, 0o755).unwrap();
        self.vfs.forget_unused();
    }

    /// Holds the answer to the first call of `slow` that `on` matches until `fast` is done.
    fn overtake<T: Send>(&self, on: On, slow: impl FnOnce() -> T + Send, fast: impl FnOnce()) -> T {
        let gate = Gate::new();
        let hold = Fault::Hold(Moment::After, gate.clone());
        self.hostile.follow(Plan::new().when(on.nth(1), hold));
        std::thread::scope(|scope| {
            let slow = scope.spawn(slow);
            let opener = OpenAtEnd(&gate);
            gate.wait_for(1);
            fast();
            drop(opener);
            slow.join().unwrap()
        })
    }

    /// [`Scene::overtake`] for a `fast` that may have to wait for `slow`: it starts while the answer is held, in a
    /// separate thread, and may be first or second.
    fn beside<T: Send>(
        &self,
        on: On,
        slow: impl FnOnce() -> T + Send,
        fast: impl FnOnce() + Send,
    ) -> T {
        std::thread::scope(|scope| {
            let mut beside = None;
            let begin = || beside = Some(scope.spawn(fast));
            let slow = self.overtake(on, slow, begin);
            beside.expect("it was begun").join().unwrap();
            slow
        })
    }

    fn number(&self, path: &str) -> Option<u64> {
        self.root.stat(path).ok().map(|attributes| attributes.number)
    }

    fn rename(&self, from: &str, to: &str) {
        self.root.rename(from, to, RenameMode::Replace).unwrap();
    }

    /// Ends the scene: the caches and the store agree, and no reference is lost.
    fn end(self) {
        self.hostile.behave();
        assert_eq!(snapshot(&self.root), inner_snapshot(&self.hostile));
        drop(self.root);
        // A thread may be reading ahead still.
        assert_references_come_back(&self.vfs, &self.hostile);
    }
}

/// Opens a gate also when the test fails: its held calls must end.
struct OpenAtEnd<'a>(&'a Gate);

impl Drop for OpenAtEnd<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

fn chmod(file: &File, to: u32) {
    file.set_attributes(&mode(to)).unwrap();
}

/// The create begins while the store's "no such name" is on its way. It asks with the lookup and not beside
/// it, so it waits for that answer: it must then make the file all the same, and the absence must not stay.
#[test]
fn lookup_and_create() {
    let scene = Scene::new();
    let slow = scene.beside(
        On::call(Call::Lookup).name("a"),
        || scene.root.stat("a").map(drop),
        || scene.root.write_file("a", "new").unwrap(),
    );
    assert!(matches!(slow, Err(Error::NotFound)), "what was true when it asked");
    assert_eq!(scene.root.read_file("a").unwrap(), b"new");
    scene.end();
}

#[test]
fn lookup_and_unlink() {
    let scene = Scene::new();
    scene.file("a");
    let slow = scene.overtake(
        On::call(Call::Lookup).name("a"),
        || scene.root.stat("a").map(drop),
        || scene.root.remove_file("a").unwrap(),
    );
    assert!(matches!(slow, Ok(()) | Err(Error::Stale | Error::NotFound)), "{slow:?}");
    assert!(matches!(scene.root.stat("a"), Err(Error::NotFound)));
    scene.end();
}

#[test]
fn lookup_and_rename() {
    let scene = Scene::new();
    let number = scene.file("a");
    scene
        .overtake(
            On::call(Call::Lookup).name("a"),
            || scene.root.stat("a").map(drop),
            || scene.rename("a", "b"),
        )
        .unwrap();
    assert_eq!((scene.number("a"), scene.number("b")), (None, Some(number)));
    scene.end();
}

#[test]
fn lookup_and_rename_over_it() {
    let scene = Scene::new();
    let (new, _) = (scene.file("a"), scene.file("b"));
    let _ = scene.overtake(
        On::call(Call::Lookup).name("b"),
        || scene.root.stat("b"),
        || scene.rename("a", "b"),
    );
    assert_eq!((scene.number("a"), scene.number("b")), (None, Some(new)));
    scene.end();
}

/// A lookup that a move overtook once noted the old parent, and `..` led there for ever.
#[test]
fn lookup_and_move_of_a_directory() {
    let scene = Scene::new();
    for path in ["from", "to", "from/x"] {
        scene.directory(path);
    }
    // The inode must be known to both, or there is nothing to record.
    let held = scene.root.open_directory("from/x").unwrap();
    scene.vfs.forget_unused();
    scene
        .overtake(
            On::call(Call::Lookup).name("x"),
            || scene.root.stat("from/x").map(drop),
            || scene.rename("from/x", "to/x"),
        )
        .unwrap();
    assert_eq!(held.stat("..").unwrap().number, scene.number("to").unwrap());
    assert_eq!(scene.number("to/x/.."), scene.number("to"));
    drop(held);
    scene.end();
}

#[test]
fn lookup_and_chmod() {
    let scene = Scene::new();
    scene.file("a");
    let file = scene.root.open("a", OpenOptions::read()).unwrap();
    scene.vfs.forget_unused();
    scene
        .overtake(
            On::call(Call::Lookup).name("a"),
            || scene.root.stat("a").map(drop),
            || chmod(&file, 0o600),
        )
        .unwrap();
    assert_eq!(scene.root.stat("a").unwrap().mode, 0o600);
    drop(file);
    scene.end();
}

/// A frontend's result of an overtaken answer: either the new attributes, or the old ones without a lifetime.
#[test]
fn an_overtaken_lookup_promises_nothing() {
    let scene = Scene::new();
    scene.file("a");
    let file = scene.root.open("a", OpenOptions::read()).unwrap();
    scene.vfs.forget_unused();
    let (caller, name) = (Caller::root(), Name::new(b"a").unwrap());
    let answer = scene.overtake(
        On::call(Call::Lookup).name("a"),
        || scene.vfs.lookup(&caller, scene.vfs.root(), name).unwrap(),
        || chmod(&file, 0o600),
    );
    let Lookup::Found(found) = answer else { panic!("a is there") };
    let honest = found.attributes.mode == 0o600 || found.attributes_valid.is_zero();
    assert!(honest, "old attributes are promised for {:?}", found.attributes_valid);
    drop((found, file));
    scene.end();
}

/// An overtaken answer has no lifetime for the name, either: a frontend must not cache it.
#[test]
fn an_overtaken_lookup_promises_no_name() {
    let scene = Scene::new();
    scene.file("a");
    let (caller, name) = (Caller::root(), Name::new(b"a").unwrap());
    let look = || scene.vfs.lookup(&caller, scene.vfs.root(), name).unwrap();
    let on = || On::call(Call::Lookup).name("a");
    match scene.overtake(on(), look, || scene.rename("a", "b")) {
        Lookup::Found(found) => assert_eq!(found.entry_valid, Duration::ZERO),
        Lookup::Missing(_) => panic!("it was there when it was asked for"),
    }
    scene.vfs.forget_unused();
    match scene.overtake(on(), look, || scene.rename("b", "a")) {
        Lookup::Missing(valid) => assert_eq!(valid, Duration::ZERO),
        Lookup::Found(_) => panic!("it was not there when it was asked for"),
    }
    scene.end();
}

#[test]
fn stat_and_chmod() {
    let scene = Scene::new();
    scene.file("a");
    let file = scene.root.open("a", OpenOptions::read_write()).unwrap();
    file.write_all_at(0, b"so that the attributes must be asked for").unwrap();
    let slow = scene.overtake(
        On::call(Call::Attributes),
        || file.stat().unwrap(),
        || {
            scene.root.set_attributes("a", &mode(0o600)).unwrap();
        },
    );
    assert_eq!(slow.mode, 0o644);
    assert_eq!(file.stat().unwrap().mode, 0o600);
    drop(file);
    scene.end();
}

#[test]
fn write_and_stat() {
    let scene = Scene::new();
    scene.file("a");
    let file = scene.root.open("a", OpenOptions::read_write()).unwrap();
    file.write_all_at(0, b"12345").unwrap();
    scene.overtake(
        On::call(Call::Attributes),
        || file.stat().unwrap(),
        || file.write_all_at(5, b"678").unwrap(),
    );
    assert_eq!(file.stat().unwrap().size, 8);
    let slow = scene.overtake(
        On::call(Call::Write),
        || file.write_all_at(8, b"90"),
        || assert!(matches!(file.stat().unwrap().size, 8 | 10)),
    );
    slow.unwrap();
    assert_eq!(file.stat().unwrap().size, 10);
    drop(file);
    scene.end();
}

#[test]
fn read_fill_and_write() {
    let scene = Scene::paged();
    scene.file("a");
    let file = scene.root.open("a", OpenOptions::write()).unwrap();
    let slow = scene.beside(
        On::call(Call::Read),
        || scene.root.read_file("a").unwrap(),
        || file.write_all_at(0, b"A").unwrap(),
    );
    assert!(slow == b"a" || slow == b"A", "{slow:?}");
    assert_eq!(scene.root.read_file("a").unwrap(), b"A");
    drop(file);
    scene.end();
}

#[test]
fn read_fill_and_truncate() {
    let scene = Scene::paged();
    scene.root.write_file("a", [7; 100_000]).unwrap();
    let file = scene.root.open("a", OpenOptions::read_write()).unwrap();
    let mut buffer = vec![0; 100_000];
    let count = scene.beside(
        On::call(Call::Read),
        || file.read_at(0, &mut buffer).unwrap(),
        || {
            file.set_size(10).unwrap();
            file.set_size(200_000).unwrap();
        },
    );
    let seen = &buffer[..count];
    assert!(count >= 10 && seen[..10].iter().all(|&byte| byte == 7));
    assert!(seen.iter().all(|&byte| byte == 7 || byte == 0), "neither before nor after the cut");
    let content = scene.root.read_file("a").unwrap();
    assert_eq!(content.len(), 200_000);
    assert!(content[..10].iter().all(|&byte| byte == 7));
    assert!(content[10..].iter().all(|&byte| byte == 0), "cut bytes came back");
    drop(file);
    scene.end();
}

#[test]
fn read_fill_and_punch() {
    let scene = Scene::paged();
    scene.root.write_file("a", [7; 20_000]).unwrap();
    let file = scene.root.open("a", OpenOptions::read_write()).unwrap();
    let mut buffer = [0; 20_000];
    let count = scene.beside(
        On::call(Call::Read),
        || file.read_at(0, &mut buffer).unwrap(),
        || file.allocate(AllocateMode::PunchHole, 4096, 4096).unwrap(),
    );
    assert_eq!(count, 20_000);
    let hole = 4096..8192;
    assert!(buffer.iter().enumerate().all(|(at, &byte)| byte == 7 || hole.contains(&at)));
    assert!(scene.root.read_file("a").unwrap()[hole].iter().all(|&byte| byte == 0));
    drop(file);
    scene.end();
}

/// A reader beside a write in flight sees the old or the new data, and leaves no old data behind.
#[test]
fn write_and_read_fill() {
    let scene = Scene::paged();
    scene.root.write_file("a", "old").unwrap();
    let file = scene.root.open("a", OpenOptions::read_write()).unwrap();
    let slow = scene.beside(
        On::call(Call::Write),
        || file.write_all_at(0, b"new"),
        || {
            let seen = scene.root.read_file("a").unwrap();
            assert!(seen == b"old" || seen == b"new", "{seen:?}");
        },
    );
    slow.unwrap();
    assert_eq!(scene.root.read_file("a").unwrap(), b"new");
    drop(file);
    scene.end();
}

#[test]
fn list_and_unlink() {
    let scene = Scene::new();
    scene.file("a");
    scene.file("b");
    let list = || {
        let mut nodes = Nodes::default();
        let (caller, unopened) = (Caller::root(), FileRef::unopened(scene.vfs.root().id()));
        scene.vfs.list(&caller, scene.vfs.root(), unopened, Cookie(0), &mut nodes).unwrap();
        nodes.0.len()
    };
    let slow = scene.overtake(On::call(Call::List), list, || scene.root.remove_file("a").unwrap());
    assert_eq!(slow, 2);
    assert_eq!(scene.number("a"), None);
    scene.end();
}

#[test]
fn list_and_rename_over() {
    let scene = Scene::new();
    let (new, _) = (scene.file("a"), scene.file("b"));
    let list = || {
        let mut nodes = Nodes::default();
        let (caller, unopened) = (Caller::root(), FileRef::unopened(scene.vfs.root().id()));
        scene.vfs.list(&caller, scene.vfs.root(), unopened, Cookie(0), &mut nodes).unwrap();
    };
    scene.overtake(On::call(Call::List), list, || scene.rename("a", "b"));
    assert_eq!((scene.number("a"), scene.number("b")), (None, Some(new)));
    scene.end();
}

/// The object is forgotten while the answer that refers to it is in flight. The lookup uses its other name: one by the
/// same name would wait for that answer, and only the gate's limit would release it.
#[test]
fn forget_and_lookup() {
    let scene = Scene::new();
    let number = scene.file_of_two_names("a", "b");
    let slow = scene.overtake(
        On::call(Call::Lookup).name("a"),
        || scene.root.stat("a").unwrap().number,
        || {
            assert_eq!(scene.number("b"), Some(number));
            scene.vfs.forget_unused();
        },
    );
    assert_eq!(slow, number);
    scene.end();
}

/// Bug: the object is changed and then forgotten while an answer about it is in flight: the new inode of that answer
/// once kept the old attributes for ever.
#[test]
fn forget_and_chmod_and_lookup() {
    let scene = Scene::new();
    scene.file_of_two_names("a", "b");
    scene
        .overtake(
            On::call(Call::Lookup).name("a"),
            || scene.root.stat("a").map(drop),
            || {
                scene.root.set_attributes("b", &mode(0o600)).unwrap();
                scene.vfs.forget_unused();
            },
        )
        .unwrap();
    assert_eq!(scene.root.stat("a").unwrap().mode, 0o600);
    scene.end();
}

#[test]
fn last_release_and_lookup() {
    let scene = Scene::new();
    scene.file("a");
    let file = scene.root.open("a", OpenOptions::read()).unwrap();
    scene.vfs.forget_unused();
    let _ = scene.overtake(
        On::call(Call::Lookup).name("a"),
        || scene.root.stat("a"),
        || {
            scene.root.remove_file("a").unwrap();
            drop(file);
        },
    );
    assert_eq!(scene.number("a"), None);
    scene.end();
}

#[test]
fn rename_and_rename() {
    let scene = Scene::new();
    let number = scene.file("a");
    scene.overtake(
        On::call(Call::Rename).name("a"),
        || scene.rename("a", "b"),
        || scene.rename("b", "c"),
    );
    let seen = (scene.number("a"), scene.number("b"), scene.number("c"));
    assert_eq!(seen, (None, None, Some(number)));
    scene.end();
}

/// Bug: the object at a name changed between finding it and renaming it: the new name was once cached with the object
/// that had been found, although another one was moved.
#[test]
fn rename_and_rename_onto_its_source() {
    let scene = Scene::new();
    let (_, newcomer) = (scene.file("a"), scene.file("c"));
    // The one that was found must stay known, or the wrong entry leads nowhere and is dropped.
    let found = scene.root.open("a", OpenOptions::read()).unwrap();
    scene.vfs.forget_unused();
    scene.overtake(
        On::call(Call::Lookup).name("a"),
        || scene.rename("a", "b"),
        || scene.rename("c", "a"),
    );
    // And its attributes, or the name is looked up again because of them.
    found.stat().unwrap();
    let seen = (scene.number("a"), scene.number("b"), scene.number("c"));
    assert_eq!(seen, (None, Some(newcomer), None));
    drop(found);
    scene.end();
}

/// A removal that a rename onto its name overtakes: the object that loses its name must be updated.
#[test]
fn unlink_and_rename_onto_its_victim() {
    let scene = Scene::new();
    scene.file("a");
    scene.file("c");
    let newcomer = scene.root.open("c", OpenOptions::read()).unwrap();
    scene.overtake(
        On::call(Call::Lookup).name("a"),
        || scene.root.remove_file("a").unwrap(),
        || {
            scene.rename("c", "a");
            assert_eq!(newcomer.stat().unwrap().links, 1);
        },
    );
    assert_eq!(newcomer.stat().unwrap().links, 0);
    drop(newcomer);
    scene.end();
}

/// While a rename is in flight, a name from the cache and a name from the store must not together
/// show a state that never was: the object under neither name.
#[test]
fn rename_and_lookup_of_both_names() {
    let scene = Scene::new();
    scene.file("a");
    let file = scene.root.open("a", OpenOptions::write()).unwrap();
    assert_eq!(scene.number("b"), None, "cached as missing");
    scene.overtake(
        On::call(Call::Rename).name("a"),
        || scene.rename("a", "b"),
        || {
            file.write_all_at(0, b"so that its attributes must be asked for").unwrap();
            let (old, new) = (scene.number("a"), scene.number("b"));
            assert!(old.is_some() || new.is_some(), "under neither name");
        },
    );
    drop(file);
    scene.end();
}

/// A listing shows a name that is being created; a lookup after it must not deny it.
#[test]
fn create_and_list_and_lookup() {
    let scene = Scene::new();
    assert_eq!(scene.number("a"), None, "cached as missing");
    scene.overtake(
        On::call(Call::Create).name("a"),
        || scene.root.write_file("a", "").unwrap(),
        || {
            let listed = scene.root.list_all().unwrap().len();
            assert_eq!(listed == 1, scene.number("a").is_some());
        },
    );
    scene.end();
}

/// The reverse: removed from the listing, and missing for a lookup.
#[test]
fn unlink_and_list_and_lookup() {
    let scene = Scene::new();
    scene.file("a");
    assert!(scene.number("a").is_some(), "cached");
    scene.overtake(
        On::call(Call::Unlink).name("a"),
        || scene.root.remove_file("a").unwrap(),
        || {
            let listed = scene.root.list_all().unwrap().len();
            assert_eq!(listed == 1, scene.number("a").is_some());
        },
    );
    scene.end();
}

/// A walk confined to `jail` must not leave it because a directory in it is moved out meanwhile and another walk has
/// already seen it at its new place.
#[test]
fn confined_walk_and_move_out_of_the_jail() {
    let scene = Scene::new();
    for path in ["jail", "jail/x", "jail/x/y", "out"] {
        scene.directory(path);
    }
    scene.file("out/secret");
    let jail = scene.root.open_directory("jail").unwrap().with_resolve(ResolveMode::BENEATH);
    let (walking, moving) = (Gate::new(), Gate::new());
    scene.hostile.follow(
        Plan::new()
            .when(On::call(Call::Lookup).name("y").nth(1), hold(&walking))
            .when(On::call(Call::Rename), hold(&moving)),
    );
    std::thread::scope(|scope| {
        let _ends = (OpenAtEnd(&walking), OpenAtEnd(&moving));
        let walk = scope.spawn(|| jail.stat("x/y/../../secret"));
        walking.wait_for(1);
        let moved = scope.spawn(|| scene.rename("jail/x", "out/x"));
        moving.wait_for(1);
        assert!(scene.number("out/x").is_some(), "the store has moved it");
        walking.open();
        let found = walk.join().unwrap();
        assert!(found.is_err(), "escaped to {found:?}");
        moving.open();
        moved.join().unwrap();
    });
    assert!(jail.stat("x").is_err());
    drop(jail);
    scene.end();
}

fn hold(gate: &Gate) -> Fault {
    Fault::Hold(Moment::After, gate.clone())
}

/// A frontend that checks permissions itself unlinks a name that the cache has dropped: the object
/// once kept its cached link count for ever.
#[test]
fn unlink_of_an_uncached_name_reaches_its_object() {
    let scene = Scene::new();
    scene.file("a");
    scene.root.link("a", "b").unwrap();
    let file = scene.root.open("b", OpenOptions::read()).unwrap();
    scene.vfs.forget_unused();
    assert_eq!(file.stat().unwrap().links, 2);
    let caller = Caller { checks: Checks::Done, ..Caller::root() };
    let name = |text: &'static str| Name::new(text.as_bytes()).unwrap();
    scene.vfs.unlink(&caller, scene.vfs.root(), name("a")).unwrap();
    assert_eq!(file.stat().unwrap().links, 1);
    scene.vfs.forget_unused();
    scene
        .vfs
        .rename(
            &caller,
            (scene.vfs.root(), name("b")),
            (scene.vfs.root(), name("c")),
            RenameMode::Replace,
        )
        .unwrap();
    scene.vfs.forget_unused();
    scene.vfs.unlink(&caller, scene.vfs.root(), name("c")).unwrap();
    assert_eq!(file.stat().unwrap().links, 0);
    drop(file);
    scene.end();
}

/// Bug: renaming one name of an object over another changes nothing; an old name that the cache had evicted was once
/// cached as missing.
#[test]
fn rename_onto_a_twin_keeps_both_names() {
    let scene = Scene::new();
    scene.file("a");
    scene.root.link("a", "b").unwrap();
    let caller = Caller { checks: Checks::Done, ..Caller::root() };
    let name = |text: &'static str| Name::new(text.as_bytes()).unwrap();
    for known in ["a", "b"] {
        scene.vfs.forget_unused();
        assert!(scene.number(known).is_some());
        let (from, to) = ((scene.vfs.root(), name("a")), (scene.vfs.root(), name("b")));
        scene.vfs.rename(&caller, from, to, RenameMode::Replace).unwrap();
        assert_eq!(scene.number("a"), scene.number("b"));
        assert!(scene.number("a").is_some());
    }
    scene.end();
}

// Threads.

/// Some threads create, unlink, look up and rename few names. At the end caches and store agree.
#[test]
fn threads_on_few_names_leave_caches_and_store_agreed() {
    let seed = seed();
    for (round, config) in [tiny(), VfsConfig::default()].into_iter().enumerate() {
        let _watchdog = Watchdog::new(Duration::from_secs(120));
        let hostile = hostile();
        let jitter = vec![Fault::Delay(Moment::After, Duration::from_micros(50))];
        hostile.follow(Plan::random(seed, 0.3, jitter));
        let vfs = vfs_over(&hostile, config);
        let top = root(&vfs);
        top.create_directory("d", 0o777).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let top = top.clone();
                scope.spawn(move || wander(&top, seed ^ (round as u64 * 64 + thread)));
            }
        });
        hostile.behave();
        assert_eq!(snapshot(&top), inner_snapshot(&hostile));
        drop(top);
        assert_references_exact(&vfs, &hostile);
    }
}

const NAMES: [&str; 4] = ["a", "b", "d/a", "d/b"];

fn wander(root: &Directory, seed: u64) {
    let mut numbers = Numbers(seed);
    for _ in 0..1500 {
        let (one, other) = (*numbers.of(&NAMES), *numbers.of(&NAMES));
        let (done, allowed): (_, &[i32]) = match numbers.below(8) {
            0 | 1 => {
                let created = root.open(one, OpenOptions::write().create_new(0o644));
                (created.map(drop), &[libc::EEXIST])
            }
            2 => (root.remove_file(one), &[libc::ENOENT]),
            3 => (root.rename(one, other, RenameMode::Replace), &[libc::ENOENT]),
            4 => (root.rename(one, other, RenameMode::Exchange), &[libc::ENOENT]),
            5 => (root.link(one, other), &[libc::ENOENT, libc::EEXIST]),
            _ => (root.stat(one).map(drop), &[libc::ENOENT]),
        };
        let errno = errno(&done);
        // An object that vanished between finding and using it is stale, not an error of the test.
        let fine = errno == 0 || errno == libc::ESTALE || allowed.contains(&errno);
        assert!(fine, "{one} {other}: {done:?}");
    }
}

#[test]
fn a_name_that_is_being_replaced_is_never_absent() {
    let _watchdog = Watchdog::new(Duration::from_secs(120));
    let hostile = hostile();
    let vfs = vfs_over(&hostile, tiny());
    let top = root(&vfs);
    top.write_file("target", "0").unwrap();
    let seen: BTreeSet<u64> = std::thread::scope(|scope| {
        let replacer = scope.spawn(|| {
            for at in 0..2000 {
                top.write_file("new", at.to_string()).unwrap();
                top.rename("new", "target", RenameMode::Replace).unwrap();
            }
        });
        let mut seen = BTreeSet::new();
        while !replacer.is_finished() {
            let found = top.stat("target").expect("absent while being replaced");
            assert_eq!(found.kind, FileKind::Regular);
            seen.insert(found.number);
        }
        seen
    });
    println!("{} different objects seen", seen.len());
    drop(top);
    assert_references_exact(&vfs, &hostile);
}

/// Entries with their nodes, held as a kernel would.
#[derive(Default)]
struct Nodes(Vec<(Vec<u8>, Node)>);

impl Entries for Nodes {
    fn room(&self) -> usize {
        64
    }

    fn wants_nodes(&self) -> bool {
        true
    }

    fn name(&mut self, _: Name<'_>, _: Cookie, _: u64, _: FileKind) -> bool {
        true
    }

    fn node(
        &mut self,
        name: Name<'_>,
        _: Cookie,
        node: Node,
        _: &Attributes,
        _: (Duration, Duration),
    ) -> bool {
        self.0.push((name.as_bytes().to_vec(), node));
        true
    }
}
