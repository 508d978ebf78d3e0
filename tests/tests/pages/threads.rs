//! Floor: threads. Writers, readers, fsyncs, truncations, appends, news and evictions beside each
//! other, on few files, over a store that gets every order that the machine finds. Every 64 bytes
//! of a file contain their writer, their place and their version: a reader never sees a record of
//! another place, a torn one, or one older than the version confirmed before its read.
//!
//! A seed (`UVFS_SEED`) replays the choices, not the schedule. `UVFS_STRESS_SECONDS` runs longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use uvfs_backends::hostile::HostileBackend;
use uvfs_tests::paged::{Kind, assert_references_come_back, stored};
use uvfs_tests::{Hostile, Numbers, Watchdog, root, seed, stress, tiny, vfs_over};
use uvfs_vfs::{
    Authority, Directory, File, InodeId, OpenOptions, PagePolicy, SyncMode, Vfs, VfsConfig,
};

const RECORD: usize = 64;
const FILES: u64 = 3;
/// Records of the part of a file that is never cut: 600 KiB, so that all files together are more than
/// small caches hold.
const BODY: u64 = 9600;
const TAIL_AT: u64 = BODY * RECORD as u64;
/// Writers; each has records of its own in every file.
const WRITERS: u64 = 2;

fn record(file: u64, at: u64, version: u64) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    for (word, into) in bytes.chunks_mut(8).enumerate() {
        let value = [file + 1, at, version][word % 3];
        into.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// The version of a record; 0 if it was never written.
fn version(bytes: &[u8], file: u64, at: u64) -> u64 {
    if bytes.iter().all(|&byte| byte == 0) {
        return 0;
    }
    let version = u64::from_le_bytes(bytes[16..24].try_into().unwrap());
    assert!(bytes == record(file, at, version), "foreign or torn, at {at} of {file}: {bytes:?}");
    version
}

struct Scene {
    store: Hostile,
    vfs: Arc<Vfs>,
    top: Directory,
    /// The last version of each record whose write has returned.
    written: Vec<Vec<AtomicU64>>,
    stop: AtomicBool,
    ids: Vec<InodeId>,
}

impl Scene {
    fn name(file: u64) -> String {
        format!("f{file}")
    }

    fn open(&self, file: u64) -> File {
        self.top.open(Self::name(file), OpenOptions::read_write()).unwrap()
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(SeqCst)
    }

    fn confirmed(&self, file: u64, at: u64) -> u64 {
        self.written[file as usize][at as usize].load(SeqCst)
    }

    /// Writes runs of its own records: those whose number, counted in blocks of 50, is its own.
    fn writer(&self, me: u64, mut numbers: Numbers) {
        let files: Vec<File> = (0..FILES).map(|file| self.open(file)).collect();
        while self.goes_on() {
            let file = numbers.below(FILES);
            let block = numbers.below(BODY / 50 / WRITERS) * WRITERS + me;
            let first = block * 50 + numbers.below(25);
            let count = 1 + numbers.below(25);
            let mut data = Vec::new();
            for at in first..first + count {
                data.extend(record(file, at, self.confirmed(file, at) + 1));
            }
            files[file as usize].write_all_at(first * RECORD as u64, &data).unwrap();
            for at in first..first + count {
                self.written[file as usize][at as usize].fetch_add(1, SeqCst);
            }
        }
    }

    fn reader(&self, _: u64, mut numbers: Numbers) {
        let mut file = numbers.below(FILES);
        let mut open = self.open(file);
        let mut bytes = vec![0; 300 * RECORD];
        while self.goes_on() {
            if numbers.below(20) == 0 {
                file = numbers.below(FILES);
                open = self.open(file);
            }
            let first = numbers.below(BODY);
            let count = (1 + numbers.below(300)).min(BODY - first);
            let before: Vec<u64> =
                (first..first + count).map(|at| self.confirmed(file, at)).collect();
            let wanted = count as usize * RECORD;
            let got = open.read_at(first * RECORD as u64, &mut bytes[..wanted]).unwrap();
            assert_eq!(got, wanted, "the body is never cut");
            for (at, (bytes, before)) in bytes[..got].chunks(RECORD).zip(before).enumerate() {
                let seen = version(bytes, file, first + at as u64);
                assert!(seen >= before, "{seen} at {at} + {first}, and {before} was confirmed");
            }
        }
    }

    /// Writes confirmed before an fsync are in the store after it.
    fn syncer(&self, _: u64, mut numbers: Numbers) {
        while self.goes_on() {
            let file = numbers.below(FILES);
            let before: Vec<u64> = (0..BODY).map(|at| self.confirmed(file, at)).collect();
            self.open(file).sync(SyncMode::All).unwrap();
            let there = stored(&self.store, &Self::name(file));
            for (at, before) in before.into_iter().enumerate() {
                let seen = version(&there[at * RECORD..(at + 1) * RECORD], file, at as u64);
                assert!(seen >= before, "{seen} at {at} in the store, and {before} was synced");
            }
        }
    }

    /// Grows and truncates the tail; no other thread moves the end.
    fn cutter(&self, _: u64, mut numbers: Numbers) {
        let files: Vec<File> = (0..FILES).map(|file| self.open(file)).collect();
        while self.goes_on() {
            let file = numbers.below(FILES);
            let open = &files[file as usize];
            let (first, count) = (BODY + numbers.below(100), 1 + numbers.below(300));
            let mut data = Vec::new();
            (first..first + count).for_each(|at| data.extend(record(file, at, 1)));
            match numbers.below(3) {
                0 => open.write_all_at(first * RECORD as u64, &data).unwrap(),
                1 => open.set_size(TAIL_AT + numbers.below(300) * RECORD as u64).unwrap(),
                _ => open.set_size(TAIL_AT).unwrap(),
            }
        }
    }

    /// Reads at the end of the file: records of the place, or zeros, or nothing.
    fn tail_reader(&self, _: u64, mut numbers: Numbers) {
        let mut bytes = vec![0; 100 * RECORD];
        while self.goes_on() {
            let file = numbers.below(FILES);
            let open = self.open(file);
            let first = BODY + numbers.below(300);
            let got = open.read_at(first * RECORD as u64, &mut bytes).unwrap();
            for (at, bytes) in bytes[..got].chunks(RECORD).enumerate() {
                version(bytes, file, first + at as u64);
            }
        }
    }

    /// Makes the caches doubt and forget.
    fn troubler(&self, _: u64, mut numbers: Numbers) {
        let news = self.store.sink().expect("the file system watches");
        while self.goes_on() {
            match numbers.below(4) {
                0 => news.everything_changed(),
                1 | 2 => news.inode_changed(*numbers.of(&self.ids)),
                _ => self.vfs.forget_unused(),
            }
            (0..numbers.below(200)).for_each(|_| std::thread::yield_now());
        }
    }
}

/// Ends the others when one of them fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, SeqCst);
        }
    }
}

fn run(kind: Kind, config: VfsConfig, seed: u64, length: Duration) {
    let store = kind.store();
    let honest = HostileBackend::over(store.inner().clone());
    for file in 0..FILES {
        let outside = root(&vfs_over(&honest, VfsConfig::default()));
        outside.write_file(Scene::name(file), vec![0; TAIL_AT as usize]).unwrap();
    }
    let (vfs, ledger) = kind.mount(&store, VfsConfig { watch: true, ..config });
    let top = root(&vfs);
    let ids = (0..FILES)
        .map(|file| top.open(Scene::name(file), OpenOptions::read()).unwrap().node().id())
        .collect();
    let words = || (0..BODY).map(|_| AtomicU64::new(0)).collect();
    let written = (0..FILES).map(|_| words()).collect();
    let scene = Scene { store, vfs, top, written, stop: AtomicBool::new(false), ids };
    std::thread::scope(|scope| {
        let scene = &scene;
        let start = |at: u64, act: fn(&Scene, u64, Numbers)| {
            scope.spawn(move || {
                let _stops = Stops(&scene.stop);
                act(scene, at, Numbers(seed ^ at << 32));
            });
        };
        (0..WRITERS).for_each(|me| start(me, Scene::writer));
        let others: [fn(&Scene, u64, Numbers); 6] = [
            Scene::reader,
            Scene::reader,
            Scene::syncer,
            Scene::cutter,
            Scene::tail_reader,
            Scene::troubler,
        ];
        (WRITERS..).zip(others).for_each(|(at, act)| start(at, act));
        let end = Instant::now() + length;
        while scene.goes_on() && Instant::now() < end {
            std::thread::park_timeout(Duration::from_millis(10));
        }
        scene.stop.store(true, SeqCst);
    });
    let Scene { store, vfs, top, written, .. } = scene;
    drop(top);
    vfs.write_back_all().unwrap();
    assert_references_come_back(&vfs, &store);
    ledger.assert_settled();
    drop(vfs);
    ledger.assert_alone();
    for file in 0..FILES {
        let there = stored(&store, &Scene::name(file));
        for (at, bytes) in there.chunks(RECORD).enumerate() {
            let seen = version(bytes, file, at as u64);
            let last = written[file as usize].get(at).map(|last| last.load(SeqCst));
            assert!(last.is_none_or(|last| seen == last), "{seen} and not {last:?} in the end");
        }
    }
}

/// Runs every kind that has `policy`, with small caches and with large ones.
fn run_all(policy: PagePolicy, authority: Authority) {
    let _watchdog = Watchdog::new(stress::length(Duration::from_secs(60)) * 4);
    let seed = seed();
    let length = stress::length(Duration::from_secs(3)) / 4;
    for kind in Kind::all() {
        if kind.policy != policy || kind.authority != authority {
            continue;
        }
        let write_back_delay = Duration::from_millis(3);
        run(kind, VfsConfig { write_back_delay, ..tiny() }, seed, length);
        run(kind, VfsConfig { write_back_delay, ..VfsConfig::default() }, !seed, length);
    }
}

#[test]
fn write_back_to_a_store_of_our_own() {
    run_all(PagePolicy::WriteBack, Authority::Sole);
}

#[test]
fn write_back_to_a_shared_store() {
    run_all(PagePolicy::WriteBack, Authority::Shared);
}

#[test]
fn write_through_to_a_store_of_our_own() {
    run_all(PagePolicy::WriteThrough, Authority::Sole);
}

#[test]
fn write_through_to_a_shared_store() {
    run_all(PagePolicy::WriteThrough, Authority::Shared);
}
