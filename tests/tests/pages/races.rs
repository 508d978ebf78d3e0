//! Floor: race pairs in the page cache. One call to the store is held at a gate; another operation runs beside it.
//! Either it completes, which is then asserted while the call is held, or it waits for the call, and then both orders
//! are right. Free-running threads are in `threads.rs`.
//!
//! Deterministic in the held calls; of two waiting threads the machine chooses the first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use uvfs_backends::hostile::{Call, Fault, Gate, HostileBackend, Moment, On, Plan};
use uvfs_tests::paged::{Kind, assert_references_come_back, difference, stored, until};
use uvfs_tests::{Hostile, Ledger, Watchdog, root, tiny, vfs_over, with_room};
use uvfs_vfs::{
    AllocateMode, Authority, Directory, File, InodeId, OpenOptions, Opens, PagePolicy, SyncMode,
    Vfs, VfsConfig,
};

const PAGE: usize = 4096;

/// Nothing is written back without a request.
fn patient() -> VfsConfig {
    VfsConfig { write_back_delay: Duration::from_secs(3600), ..VfsConfig::default() }
}

struct Scene {
    store: Hostile,
    ledger: Ledger,
    vfs: Arc<Vfs>,
    top: Directory,
    _watchdog: Watchdog,
}

/// Opens a gate also when the test fails: its held calls must end.
struct OpenAtEnd(Gate);

impl Drop for OpenAtEnd {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl Scene {
    fn back() -> Self {
        Self::of(Kind::sole(Opens::Tracked), patient())
    }

    fn of(kind: Kind, config: VfsConfig) -> Self {
        let store = kind.store();
        let (vfs, ledger) = kind.mount(&store, config);
        let top = root(&vfs);
        let _watchdog = Watchdog::new(Duration::from_secs(100));
        Self { store, ledger, vfs, top, _watchdog }
    }

    /// A file that is in the store and not in the cache.
    fn file(&self, path: &str, content: &[u8]) -> File {
        let honest = HostileBackend::over(self.store.inner().clone());
        root(&vfs_over(&honest, VfsConfig::default())).write_file(path, content).unwrap();
        self.open(path)
    }

    /// A file with pages that the store does not have.
    fn dirty(&self, path: &str, content: &[u8]) -> File {
        let file = self.file(path, b"");
        file.write_all_at(0, content).unwrap();
        file
    }

    fn open(&self, path: &str) -> File {
        self.top.open(path, OpenOptions::read_write()).unwrap()
    }

    /// Holds the first call that matches.
    fn hold(&self, on: On, moment: Moment) -> OpenAtEnd {
        let gate = Gate::new();
        self.store.follow(Plan::new().when(on, Fault::Hold(moment, gate.clone())));
        OpenAtEnd(gate)
    }

    fn dirty_pages(&self) -> u64 {
        self.vfs.statistics().pages.dirty_bytes / PAGE as u64
    }

    fn inode(&self, file: &File) -> InodeId {
        file.node().id()
    }

    /// The end: the contents of `path` are `expected`, and the store gets them.
    fn end(self, path: &str, expected: &[u8]) {
        self.store.behave();
        assert_eq!(difference(&self.top.read_file(path).unwrap(), expected), None);
        self.vfs.write_back_all().unwrap();
        assert_eq!(difference(&stored(&self.store, path), expected), None, "in the store");
        self.quiet_end();
    }

    fn quiet_end(self) {
        drop(self.top);
        assert_references_come_back(&self.vfs, &self.store);
        self.ledger.assert_settled();
    }
}

fn read(file: &File, at: usize, count: usize) -> Vec<u8> {
    let mut buffer = vec![0xAA; count];
    let count = file.read_at(at as u64, &mut buffer).unwrap();
    buffer.truncate(count);
    buffer
}

fn write(file: &File, at: usize, data: &[u8]) {
    file.write_all_at(at as u64, data).unwrap();
}

fn first(call: Call) -> On {
    On::call(call).nth(1)
}

/// Lets others run for a while.
fn give_way() {
    (0..100).for_each(|_| std::thread::yield_now());
}

#[test]
fn fill_and_fill() {
    let scene = Scene::back();
    let file = scene.file("a", &[7; PAGE]);
    let gate = scene.hold(first(Call::Read), Moment::After);
    std::thread::scope(|scope| {
        let one = scope.spawn(|| read(&file, 0, PAGE));
        gate.0.wait_for(1);
        let other = scope.spawn(|| read(&file, 100, 50));
        until(|| scene.vfs.statistics().pages.waited > 0);
        drop(gate);
        assert!(one.join().unwrap() == [7; PAGE] && other.join().unwrap() == [7; 50]);
    });
    assert_eq!(scene.store.made(Call::Read), 1, "one asked, the other waited");
    drop(file);
    scene.end("a", &[7; PAGE]);
}

/// Two readers of different pages do not wait for each other.
#[test]
fn fill_and_fill_of_another_page() {
    let scene = Scene::back();
    let file = scene.file("a", &[7; 20 * PAGE]);
    let gate = scene.hold(first(Call::Read), Moment::Before);
    std::thread::scope(|scope| {
        let one = scope.spawn(|| read(&file, 17 * PAGE, PAGE));
        gate.0.wait_for(1);
        assert_eq!(read(&file, 10 * PAGE, 10), [7; 10]);
        drop(gate);
        one.join().unwrap();
    });
    drop(file);
    scene.end("a", &[7; 20 * PAGE]);
}

/// A change that must not run beside a fill waits for it; in either order, the outcome is the change's.
fn fill_and_change(change: impl Fn(&File) + Sync, expected: &[u8]) {
    for policy in [PagePolicy::WriteBack, PagePolicy::WriteThrough] {
        for moment in [Moment::Before, Moment::After] {
            let kind = Kind { policy, ..Kind::sole(Opens::Tracked) };
            let scene = Scene::of(kind, patient());
            let file = scene.file("a", &[7; 10 * PAGE]);
            let gate = scene.hold(first(Call::Read), moment);
            std::thread::scope(|scope| {
                let slow = scope.spawn(|| read(&file, 0, 10 * PAGE));
                gate.0.wait_for(1);
                let fast = scope.spawn(|| change(&file));
                give_way();
                drop(gate);
                let seen = slow.join().unwrap();
                assert!(seen.iter().all(|&byte| byte == 7 || byte == 0), "never anything else");
                fast.join().unwrap();
            });
            drop(file);
            scene.end("a", expected);
        }
    }
}

#[test]
fn fill_and_truncate() {
    let mut expected = vec![0; 8 * PAGE];
    expected[..10].fill(7);
    let change = |file: &File| {
        file.set_size(10).unwrap();
        file.set_size(8 * PAGE as u64).unwrap();
    };
    fill_and_change(change, &expected);
}

#[test]
fn fill_and_punch() {
    let mut expected = vec![7; 10 * PAGE];
    expected[PAGE..3 * PAGE + 5].fill(0);
    let length = 2 * PAGE as u64 + 5;
    let change = |file: &File| file.allocate(AllocateMode::PunchHole, 4096, length).unwrap();
    fill_and_change(change, &expected);
}

#[test]
fn fill_and_write() {
    let mut expected = vec![7; 10 * PAGE];
    expected[4000..5000].fill(0);
    fill_and_change(|file| write(file, 4000, &[0; 1000]), &expected);
}

#[test]
fn fill_and_write_back() {
    let scene = Scene::back();
    let file = scene.file("a", &[7; 10 * PAGE]);
    write(&file, 5 * PAGE, &[8; PAGE]);
    let gate = scene.hold(first(Call::Read), Moment::Before);
    let mut expected = vec![7; 10 * PAGE];
    expected[5 * PAGE..6 * PAGE].fill(8);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| read(&file, 0, PAGE));
        gate.0.wait_for(1);
        file.sync(SyncMode::All).unwrap();
        assert_eq!(difference(&stored(&scene.store, "a"), &expected), None);
        drop(gate);
        slow.join().unwrap();
    });
    drop(file);
    scene.end("a", &expected);
}

#[test]
fn fill_and_news() {
    for authority in [Authority::Sole, Authority::Shared] {
        let kind = Kind { authority, ..Kind::sole(Opens::Tracked) };
        let scene = Scene::of(kind, VfsConfig { watch: true, ..patient() });
        let file = scene.file("a", &[7; PAGE]);
        let news = scene.store.sink().unwrap();
        let gate = scene.hold(first(Call::Read), Moment::After);
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| read(&file, 0, PAGE));
            gate.0.wait_for(1);
            scene.file("a", &[8; PAGE]);
            news.inode_changed(scene.inode(&file));
            drop(gate);
            let seen = slow.join().unwrap();
            assert!(seen == [7; PAGE] || seen == [8; PAGE], "one of both as a whole");
        });
        assert_eq!(read(&file, 0, PAGE), [8; PAGE], "what is out of date was kept");
        assert!(scene.vfs.statistics().pages.stale > 0);
        drop(file);
        scene.end("a", &[8; PAGE]);
    }
}

/// News does not touch written data that is not in the store yet.
#[test]
fn write_and_news() {
    let scene = Scene::of(Kind::sole(Opens::Tracked), VfsConfig { watch: true, ..patient() });
    let file = scene.dirty("a", &[7; 3 * PAGE]);
    scene.store.sink().unwrap().everything_changed();
    assert_eq!(file.stat().unwrap().size, 3 * PAGE as u64);
    drop(file);
    scene.end("a", &[7; 3 * PAGE]);
}

/// A run is held on its way to the store, and a change starts that must not run beside it.
fn write_back_and_change(change: impl Fn(&File) + Sync, expected: &[u8]) {
    for moment in [Moment::Before, Moment::After] {
        let scene = Scene::back();
        let file = scene.dirty("a", &[7; 10 * PAGE]);
        let gate = scene.hold(first(Call::Write), moment);
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| file.sync(SyncMode::All));
            gate.0.wait_for(1);
            let fast = scope.spawn(|| change(&file));
            give_way();
            drop(gate);
            slow.join().unwrap().unwrap();
            fast.join().unwrap();
        });
        drop(file);
        scene.end("a", expected);
    }
}

#[test]
fn write_back_and_truncate() {
    let mut expected = vec![0; 9 * PAGE];
    expected[..PAGE + 10].fill(7);
    let change = |file: &File| {
        file.set_size(PAGE as u64 + 10).unwrap();
        file.set_size(9 * PAGE as u64).unwrap();
    };
    write_back_and_change(change, &expected);
}

#[test]
fn write_back_and_truncate_to_nothing() {
    write_back_and_change(|file| file.set_size(0).unwrap(), &[]);
}

#[test]
fn write_back_and_punch() {
    let mut expected = vec![7; 10 * PAGE];
    expected[100..5 * PAGE].fill(0);
    let length = 5 * PAGE as u64 - 100;
    let change = |file: &File| file.allocate(AllocateMode::PunchHole, 100, length).unwrap();
    write_back_and_change(change, &expected);
}

#[test]
fn write_back_and_write() {
    let scene = Scene::back();
    let file = scene.dirty("a", &[1; PAGE]);
    let gate = scene.hold(first(Call::Write), Moment::Before);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| file.sync(SyncMode::All));
        gate.0.wait_for(1);
        write(&file, 0, &[2; PAGE]);
        assert_eq!(read(&file, 0, PAGE), [2; PAGE], "while the old one is on its way");
        drop(gate);
        slow.join().unwrap().unwrap();
    });
    assert_eq!(stored(&scene.store, "a"), [1; PAGE], "what there was when it began");
    assert_eq!(scene.dirty_pages(), 1);
    file.sync(SyncMode::All).unwrap();
    assert_eq!(stored(&scene.store, "a"), [2; PAGE]);
    assert_eq!(scene.dirty_pages(), 0);
    drop(file);
    scene.end("a", &[2; PAGE]);
}

/// The old version arrives before the new one, also when a thread waits to write the new one.
#[test]
fn write_back_and_write_and_fsync() {
    let scene = Scene::back();
    let file = scene.dirty("a", &[1; PAGE]);
    let gate = scene.hold(first(Call::Write), Moment::Before);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| file.sync(SyncMode::All));
        gate.0.wait_for(1);
        write(&file, 0, &[2; PAGE]);
        let other = scope.spawn(|| {
            file.sync(SyncMode::All).unwrap();
            assert_eq!(stored(&scene.store, "a"), [2; PAGE], "fsync returned");
        });
        give_way();
        drop(gate);
        slow.join().unwrap().unwrap();
        other.join().unwrap();
    });
    drop(file);
    scene.end("a", &[2; PAGE]);
}

/// A page that is on its way is no neighbour for the next run, though it is dirty again: its new version would
/// overtake the old one, and the old one would stay.
#[test]
fn write_back_and_write_of_a_neighbour() {
    let scene = Scene::back();
    let file = scene.file("a", &[0; 2 * PAGE]);
    write(&file, PAGE, &[1; PAGE]);
    let gate = scene.hold(first(Call::Write), Moment::Before);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| file.sync(SyncMode::All));
        gate.0.wait_for(1);
        write(&file, 0, &[2; 2 * PAGE]);
        let other = scope.spawn(|| file.sync(SyncMode::All));
        while scene.store.made(Call::Write) < 2 {
            std::thread::yield_now();
        }
        drop(gate);
        slow.join().unwrap().unwrap();
        other.join().unwrap().unwrap();
    });
    assert_eq!(difference(&stored(&scene.store, "a"), &[2; 2 * PAGE]), None, "fsync returned");
    drop(file);
    scene.end("a", &[2; 2 * PAGE]);
}

#[test]
fn write_back_and_fsync() {
    let scene = Scene::back();
    let file = scene.dirty("a", &[1; 5 * PAGE]);
    let gate = scene.hold(first(Call::Write), Moment::Before);
    let opened = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| scene.vfs.write_back_all());
        gate.0.wait_for(1);
        let waits = scope.spawn(|| {
            file.sync(SyncMode::Data).unwrap();
            assert!(opened.load(SeqCst), "fsync returned while its pages were on their way");
            assert_eq!(stored(&scene.store, "a"), [1; 5 * PAGE]);
        });
        give_way();
        opened.store(true, SeqCst);
        drop(gate);
        slow.join().unwrap().unwrap();
        waits.join().unwrap();
    });
    drop(file);
    scene.end("a", &[1; 5 * PAGE]);
}

/// An fsync that waited for another one's run, which failed, retries those pages itself: it returns the error, and the
/// data is there all the same.
#[test]
fn an_fsync_tries_what_another_run_did_not_bring() {
    let scene = Scene::back();
    let file = scene.dirty("a", &[1; PAGE]);
    let gate = Gate::new();
    let plan = Plan::new().when(first(Call::Write), Fault::Hold(Moment::Before, gate.clone()));
    let fails = Fault::Fail(Moment::Before, libc::EIO);
    scene.store.follow(plan.when(first(Call::Write), fails));
    let gate = OpenAtEnd(gate);
    std::thread::scope(|scope| {
        // Two attempts of its own would do.
        let slow = scope.spawn(|| scene.open("a").sync(SyncMode::Data));
        gate.0.wait_for(1);
        let waits = scope.spawn(|| {
            let synced = file.sync(SyncMode::Data);
            assert!(synced.is_err(), "it was not told of the error");
            assert_eq!(stored(&scene.store, "a"), [1; PAGE]);
        });
        give_way();
        drop(gate);
        assert!(slow.join().unwrap().is_err());
        waits.join().unwrap();
    });
    drop(file);
    scene.end("a", &[1; PAGE]);
}

/// A thread that waits for pages that another one is writing gets the error if they did not arrive.
fn fsync_beside_a_write_back_that(fails: Fault) {
    for _ in 0..50 {
        let scene = Scene::back();
        let file = scene.dirty("a", &[1; 5 * PAGE]);
        let gate = Gate::new();
        let plan = Plan::new().when(first(Call::Write), Fault::Hold(Moment::Before, gate.clone()));
        scene.store.follow(plan.when(first(Call::Write), fails.clone()));
        let gate = OpenAtEnd(gate);
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| {
                let write = || scene.vfs.write_back_all();
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(write))
                    .is_ok_and(|r| r.is_ok())
            });
            gate.0.wait_for(1);
            let waits = scope.spawn(|| {
                let synced = file.sync(SyncMode::Data);
                let there = stored(&scene.store, "a") == [1; 5 * PAGE];
                assert!(synced.is_err() || there, "fsync said that it is there, and it is not");
            });
            give_way();
            drop(gate);
            slow.join().unwrap();
            waits.join().unwrap();
        });
        drop(file);
        scene.end("a", &[1; 5 * PAGE]);
    }
}

#[test]
fn write_back_that_fails_and_fsync() {
    fsync_beside_a_write_back_that(Fault::Fail(Moment::Before, libc::EIO));
}

#[test]
fn write_back_that_panics_and_fsync() {
    uvfs_tests::paged::quietly();
    fsync_beside_a_write_back_that(Fault::Panic(Moment::Before));
}

/// An fsync does not wait for writes to another page that start during it.
#[test]
fn fsync_waits_for_its_own_pages_only() {
    let scene = Scene::back();
    let file = scene.dirty("a", &[1; PAGE]);
    let gate = scene.hold(first(Call::Write), Moment::Before);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| file.sync(SyncMode::All));
        gate.0.wait_for(1);
        for page in [1, 2, 100] {
            write(&file, page * PAGE, &[2; PAGE]);
        }
        drop(gate);
        slow.join().unwrap().unwrap();
    });
    assert_eq!((scene.store.made(Call::Write), scene.dirty_pages()), (1, 3));
    drop(file);
    let mut expected = vec![0; 101 * PAGE];
    expected[..PAGE].fill(1);
    expected[PAGE..3 * PAGE].fill(2);
    expected[100 * PAGE..].fill(2);
    scene.end("a", &expected);
}

/// Two threads that move the end: the first is held while it reads the page of which it writes a part.
#[test]
fn append_and_append() {
    let scene = Scene::back();
    let file = scene.file("a", &[7; 100]);
    let appends = scene.top.open("a", OpenOptions::write().append()).unwrap();
    let gate = scene.hold(first(Call::Read), Moment::After);
    std::thread::scope(|scope| {
        let one = scope.spawn(|| write(&appends, 0, &[1; 10]));
        gate.0.wait_for(1);
        let other = scope.spawn(|| write(&appends, 0, &[2; 20]));
        give_way();
        drop(gate);
        one.join().unwrap();
        other.join().unwrap();
    });
    let expected = [&[7; 100][..], &[1; 10], &[2; 20]].concat();
    drop((file, appends));
    scene.end("a", &expected);
}

#[test]
fn append_and_write_at_end() {
    let scene = Scene::back();
    let file = scene.file("a", &[7; 100]);
    let appends = scene.top.open("a", OpenOptions::write().append()).unwrap();
    let gate = scene.hold(first(Call::Read), Moment::After);
    std::thread::scope(|scope| {
        let one = scope.spawn(|| write(&appends, 0, &[1; 10]));
        gate.0.wait_for(1);
        let other = scope.spawn(|| write(&file, 100, &[2; 5]));
        give_way();
        drop(gate);
        one.join().unwrap();
        other.join().unwrap();
    });
    drop((file, appends));
    scene.end("a", &[&[7; 100][..], &[2; 5], &[1; 5]].concat());
}

/// Reads the first three pages: the third one has the mark, so the fifth and more are fetched by a
/// thread of their own, and held.
fn hold_read_ahead(scene: &Scene, file: &File) -> OpenAtEnd {
    let gate = scene.hold(On::call(Call::Read).nth(2), Moment::After);
    for page in 0..3 {
        assert_eq!(read(file, page * PAGE, PAGE), [7; PAGE]);
    }
    gate.0.wait_for(1);
    gate
}

#[test]
fn read_ahead_and_truncate() {
    let scene = Scene::back();
    let file = scene.file("a", &[7; 40 * PAGE]);
    let gate = hold_read_ahead(&scene, &file);
    std::thread::scope(|scope| {
        let cut = scope.spawn(|| {
            file.set_size(5 * PAGE as u64 + 1).unwrap();
            file.set_size(7 * PAGE as u64).unwrap();
        });
        give_way();
        drop(gate);
        cut.join().unwrap();
    });
    drop(file);
    let mut expected = vec![0; 7 * PAGE];
    expected[..5 * PAGE + 1].fill(7);
    scene.end("a", &expected);
}

/// Every thread of the page cache read ahead of sequential readers of a store that hung, and more read-ahead waited. A
/// write-back that was due stayed behind all of it, so the promise of `--write-back-delay` failed.
#[test]
fn read_ahead_and_write_back() {
    const READERS: usize = 8;
    let delay = Duration::from_millis(1);
    let config = VfsConfig { write_back_delay: delay, ..VfsConfig::default() };
    let scene = Scene::of(Kind::sole(Opens::Tracked), config);
    let names: Vec<_> = (0..READERS).map(|reader| format!("read {reader}")).collect();
    let files: Vec<_> = names.iter().map(|name| scene.file(name, &[7; 40 * PAGE])).collect();
    let written = scene.file("a", b"");
    let gate = OpenAtEnd(Gate::new());
    let hold = Fault::Hold(Moment::Before, gate.0.clone());
    let ahead = |file| On::call(Call::Read).inode(scene.inode(file)).from(2);
    let plan = files.iter().fold(Plan::new(), |plan, file| plan.when(ahead(file), hold.clone()));
    scene.store.follow(plan);
    for file in &files {
        (0..3).for_each(|page| assert_eq!(read(file, page * PAGE, PAGE), [7; PAGE]));
    }
    gate.0.wait_for(4);
    let read_ahead = || scene.vfs.statistics().pages.read_ahead;
    let before = read_ahead();
    write(&written, 0, &[8; PAGE]);
    until(|| scene.dirty_pages() == 0);
    assert_eq!(read_ahead(), before, "it was written beside the reads that hang");
    drop(gate);
    drop((files, written));
    scene.end("a", &[8; PAGE]);
}

/// The store closes a file when its last reader ends, not when its opener closes it.
#[test]
fn read_ahead_and_close() {
    let scene = Scene::back();
    let file = scene.file("a", &[7; 40 * PAGE]);
    let gate = hold_read_ahead(&scene, &file);
    drop(file);
    assert_eq!(scene.ledger.open_files(), 1, "a thread reads by it");
    drop(gate);
    until(|| scene.ledger.open_files() == 0);
    scene.end("a", &[7; 40 * PAGE]);
}

#[test]
fn read_ahead_and_evict() {
    let scene = Scene::of(Kind::sole(Opens::Tracked), VfsConfig { ..tiny() });
    let file = scene.file("a", &[7; 40 * PAGE]);
    let other = scene.file("b", &[8; 600 * PAGE]);
    let gate = hold_read_ahead(&scene, &file);
    assert_eq!(difference(&read(&other, 0, 600 * PAGE), &[8; 600 * PAGE]), None);
    drop(gate);
    assert_eq!(read(&file, 0, 40 * PAGE), [7; 40 * PAGE]);
    assert!(scene.vfs.statistics().pages.evicted > 0);
    drop((file, other));
    scene.end("a", &[7; 40 * PAGE]);
}

#[test]
fn drop_vfs_and_read_ahead() {
    let scene = Scene::back();
    let file = scene.file("a", &[7; 40 * PAGE]);
    write(&file, 30 * PAGE, &[8; PAGE]);
    let gate = hold_read_ahead(&scene, &file);
    drop(file);
    let Scene { store, ledger, vfs, top, _watchdog } = scene;
    drop(top);
    std::thread::scope(|scope| {
        let end = scope.spawn(|| drop(vfs));
        give_way();
        drop(gate);
        end.join().unwrap();
    });
    ledger.assert_settled();
    assert_eq!(stored(&store, "a")[30 * PAGE..31 * PAGE], [8; PAGE]);
}

#[test]
fn unlink_and_write_back() {
    for moment in [Moment::Before, Moment::After] {
        let scene = Scene::back();
        let file = scene.dirty("a", &[7; 10 * PAGE]);
        let gate = scene.hold(first(Call::Write), moment);
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| scene.vfs.write_back_all());
            gate.0.wait_for(1);
            scene.top.remove_file("a").unwrap();
            assert_eq!(read(&file, 0, PAGE), [7; PAGE]);
            drop(file);
            drop(gate);
            slow.join().unwrap().unwrap();
        });
        assert_eq!(scene.dirty_pages(), 0);
        scene.quiet_end();
    }
}

/// A file without a name that is not open is forgotten with all its unwritten data.
#[test]
fn unlink_of_dirty_pages_writes_nothing() {
    let config = VfsConfig { write_back_delay: Duration::from_millis(1), ..VfsConfig::default() };
    let scene = Scene::of(Kind::sole(Opens::Tracked), config);
    // The threads write back while this is written: they get errors until the name is removed.
    let fails = Fault::Fail(Moment::Before, libc::EIO);
    let file = scene.file("a", b"");
    scene.store.follow(Plan::new().when(On::call(Call::Write), fails));
    write(&file, 0, &[7; 20 * PAGE]);
    scene.top.remove_file("a").unwrap();
    assert_eq!(read(&file, 0, 20 * PAGE), [7; 20 * PAGE], "by the open file");
    drop(file);
    until(|| scene.dirty_pages() == 0);
    until(|| scene.ledger.open_files() == 0);
    scene.store.behave();
    scene.quiet_end();
}

/// A file that the store is stuck with does not stop a healthy one.
#[test]
fn two_files_throttle() {
    let config = VfsConfig { write_back_delay: Duration::from_secs(3600), ..tiny() };
    let scene = Scene::of(Kind::sole(Opens::Tracked), config);
    let (stuck, healthy) = (scene.file("a", b""), scene.file("b", b""));
    let on = On::call(Call::Write).inode(scene.inode(&stuck));
    let gate = scene.hold(on, Moment::Before);
    let done = AtomicBool::new(false);
    let inode = scene.inode(&stuck);
    std::thread::scope(|scope_of_threads| {
        // This one ends up writing by itself, and is stuck.
        let spawned = scope_of_threads.spawn(|| {
            (0..100).for_each(|page| write(&stuck, page * 2 * PAGE, &[1; PAGE]));
        });
        let stuck_thread = spawned.thread().id();
        until(|| scene.ledger.wrote(inode, stuck_thread));
        let spawned = scope_of_threads.spawn(|| {
            (0..300).for_each(|page| write(&healthy, page * PAGE, &[2; PAGE]));
            healthy.sync(SyncMode::All).unwrap();
            done.store(true, SeqCst);
        });
        let thread = spawned.thread().id();
        until(|| done.load(SeqCst) || scene.ledger.wrote(inode, thread));
        let caught = scene.ledger.wrote(inode, thread);
        drop(gate);
        assert!(!caught, "the writer of the healthy file went to the store with the stuck one");
    });
    assert_eq!(difference(&stored(&scene.store, "b"), &[2; 300 * PAGE]), None);
    drop((stuck, healthy));
    scene.end("b", &[2; 300 * PAGE]);
}

/// Bug: late read-ahead threads fetched pages that their reader had fetched, used and released meanwhile. With busy
/// processors every second page of a file was read twice, and evicted others.
#[test]
fn reading_ahead_and_its_faster_reader() {
    const PAGES: usize = 2048;
    let config = VfsConfig { write_back_delay: patient().write_back_delay, ..with_room(2 << 20) };
    let scene = Scene::of(Kind::sole(Opens::Tracked), config);
    let busy: Vec<File> = (0..4).map(|at| scene.file(&at.to_string(), &[7; 64 * PAGE])).collect();
    let content: Vec<u8> = (0..PAGES * PAGE).map(|at| (at / PAGE) as u8).collect();
    let file = scene.file("file", &content);
    let gate = OpenAtEnd(Gate::new());
    // The first read of such a file waits for its first pages; the second read is another thread's.
    let plan = busy.iter().fold(Plan::new(), |plan, file| {
        let second = On::call(Call::Read).inode(scene.inode(file)).from(2);
        plan.when(second, Fault::Hold(Moment::Before, gate.0.clone()))
    });
    scene.store.follow(plan);
    for file in &busy {
        assert_eq!(read(file, 0, PAGE), [7; PAGE]);
        assert_eq!(read(file, 2 * PAGE, PAGE), [7; PAGE]);
    }
    gate.0.wait_for(4);
    // All threads are at the gate: further read-ahead waits now.
    let came_in = || {
        let pages = scene.vfs.statistics().pages;
        pages.evicted + pages.pages
    };
    let before = came_in();
    for at in 0..PAGES {
        assert_eq!(read(&file, at * PAGE, PAGE), content[at * PAGE..][..PAGE]);
    }
    assert_eq!(came_in() - before, PAGES as u64);
    drop(file);
    gate.0.open();
    // Waiting work is done, or found to be done already.
    until(|| scene.vfs.statistics().inodes_active == 5);
    assert_eq!(came_in() - before, PAGES as u64, "pages came in twice");
    drop(busy);
    scene.quiet_end();
}
