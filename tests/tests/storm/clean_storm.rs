//! Floor: threads that clean, beside all others: the storm. Writers, readers, fsyncs, owners of names,
//! movers, listers and cleaners over a store that delays and fails. No answer is wrong, no write is lost,
//! and in the end nothing is left.
//!
//! A seed (`UVFS_SEED`) replays the choices, not the schedule. `UVFS_STRESS_SECONDS` runs longer.

use crate::shared::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use uvfs_backends::hostile::{Fault, HostileBackend, Moment, Plan};
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_tests::paged::Kind;
use uvfs_tests::{Hostile, Numbers, Watchdog, root, seed, stress, tiny, vfs_over};
use uvfs_vfs::{
    Backend, Directory, Error, File, FileKind, FileRef, InodeId, OpenOptions, PagePolicy,
    RenameMode, Result, SyncMode, Vfs, VfsConfig,
};

const DIRS: [&str; 5] = ["a", "a/b", "a/b/c", "z", "z/y"];
/// Directories that are moved, with entries below; and the deep entries of each.
const ROAMERS: [&str; 2] = ["g0", "g1"];
const DEEP: &str = "x/deep";
const RECORD: usize = 64;
const FILES: u64 = 3;
const BODY: u64 = 1600;
const WRITERS: u64 = 2;
/// Names that each owner has in each directory.
const OWNED: u64 = 5;

fn record(file: u64, at: u64, version: u64) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    for (word, into) in bytes.chunks_mut(8).enumerate() {
        into.copy_from_slice(&[file + 1, at, version][word % 3].to_le_bytes());
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

/// The planned error of the store.
const PLANNED: i32 = 5;

fn planned<T>(result: &Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.errno() == PLANNED)
}

/// Asks until the store does not fail; and whether it did fail before.
fn again<T>(mut ask: impl FnMut() -> Result<T>) -> (Result<T>, bool) {
    let mut failed = false;
    loop {
        let result = ask();
        if !planned(&result) {
            return (result, failed);
        }
        failed = true;
        std::thread::yield_now();
    }
}

/// Repeats an operation that is safe to repeat.
fn surely<T>(ask: impl FnMut() -> Result<T>) -> T {
    again(ask).0.unwrap()
}

struct Storm {
    store: Hostile,
    vfs: Arc<Vfs>,
    top: Directory,
    /// Where files and roamers are: moves begun and ended, times 8, and the directory.
    places: Vec<AtomicU64>,
    ids: Vec<InodeId>,
    written: Vec<Vec<AtomicU64>>,
    stop: AtomicBool,
    cleaned: AtomicU64,
    owned: Arc<Mutex<Vec<Model>>>,
}

/// The names of an owner: the number of a text, or `None` for a directory.
#[derive(Debug, Clone, Default)]
struct Model {
    me: u64,
    names: BTreeMap<(usize, u64), Option<usize>>,
    texts: Vec<String>,
}

static OWNED_NAMES: LockClass = LockClass::new(290, "owned", "what owners of names left");

impl Storm {
    fn thing(at: usize) -> String {
        if at < FILES as usize { format!("f{at}") } else { ROAMERS[at - FILES as usize].to_owned() }
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(SeqCst)
    }

    fn path_in(word: u64, at: usize) -> String {
        format!("{}/{}", DIRS[(word % 8) as usize], Self::thing(at))
    }

    /// Asks something at the path of a thing that moves; it is found if it does not move meanwhile.
    fn at<T>(&self, at: usize, ask: impl Fn(&str) -> Result<T>) -> T {
        loop {
            let word = self.places[at].load(SeqCst);
            let path = Self::path_in(word, at);
            let (result, _) = again(|| ask(&path));
            match result {
                Ok(answer) => return answer,
                Err(error) => {
                    let still =
                        (word / 8).is_multiple_of(2) && self.places[at].load(SeqCst) == word;
                    assert!(!still, "{path} is there, and: {error}");
                }
            }
            std::thread::yield_now();
        }
    }

    fn open(&self, file: u64) -> File {
        self.at(file as usize, |path| self.top.open(path, OpenOptions::read_write()))
    }

    /// A handle of a directory with owned names: by its path, or deep in a moved one.
    fn directory(&self, at: usize) -> Directory {
        match DIRS.get(at) {
            Some(path) => surely(|| self.top.open_directory(path)),
            None => {
                let roamer = FILES as usize + at - DIRS.len();
                self.at(roamer, |path| self.top.open_directory(format!("{path}/{DEEP}")))
            }
        }
    }

    fn confirmed(&self, file: u64, at: u64) -> u64 {
        self.written[file as usize][at as usize].load(SeqCst)
    }

    fn writer(&self, me: u64, mut numbers: Numbers) {
        let mut open: Vec<Option<File>> = (0..FILES).map(|_| None).collect();
        while self.goes_on() {
            let file = numbers.below(FILES);
            if numbers.below(10) == 0 {
                open[file as usize] = None;
            }
            let handle = open[file as usize].get_or_insert_with(|| self.open(file));
            let block = numbers.below(BODY / 50 / WRITERS) * WRITERS + me;
            let first = block * 50 + numbers.below(25);
            let count = 1 + numbers.below(25);
            let mut data = Vec::new();
            for at in first..first + count {
                data.extend(record(file, at, self.confirmed(file, at) + 1));
            }
            surely(|| handle.write_all_at(first * RECORD as u64, &data));
            for at in first..first + count {
                self.written[file as usize][at as usize].fetch_add(1, SeqCst);
            }
        }
    }

    fn reader(&self, _: u64, mut numbers: Numbers) {
        let mut file = 0;
        let mut open = self.open(file);
        let mut bytes = vec![0; 200 * RECORD];
        while self.goes_on() {
            if numbers.below(10) == 0 {
                file = numbers.below(FILES);
                open = self.open(file);
            }
            let first = numbers.below(BODY);
            let count = (1 + numbers.below(200)).min(BODY - first);
            let before: Vec<u64> =
                (first..first + count).map(|at| self.confirmed(file, at)).collect();
            let mut done = 0;
            while done < count as usize * RECORD {
                let into = &mut bytes[done..count as usize * RECORD];
                let got = surely(|| open.read_at(first * RECORD as u64 + done as u64, &mut *into));
                assert!(got > 0, "the file is never cut: {done} of {count} at {first} of {file}");
                done += got;
            }
            for (at, (bytes, before)) in bytes.chunks(RECORD).zip(before).enumerate() {
                let seen = version(bytes, file, first + at as u64);
                assert!(seen >= before, "{seen} at {at} + {first}, and {before} was confirmed");
            }
        }
    }

    fn stored(&self, file: u64) -> Vec<u8> {
        let mut content = vec![0; BODY as usize * RECORD];
        let id = FileRef::unopened(self.ids[file as usize]);
        let count = self.store.inner().data().read(id, 0, &mut content).unwrap();
        assert_eq!(count, content.len());
        content
    }

    /// Writes confirmed before an fsync are in the store after it.
    fn syncer(&self, _: u64, mut numbers: Numbers) {
        while self.goes_on() {
            let file = numbers.below(FILES);
            let before: Vec<u64> = (0..BODY).map(|at| self.confirmed(file, at)).collect();
            let open = self.open(file);
            surely(|| match numbers.below(5) {
                0 => self.vfs.write_back_all(),
                _ => open.sync(SyncMode::All),
            });
            let there = self.stored(file);
            for (at, before) in before.into_iter().enumerate() {
                let seen = version(&there[at * RECORD..(at + 1) * RECORD], file, at as u64);
                assert!(seen >= before, "{seen} at {at} in the store, and {before} was synced");
            }
        }
    }

    /// Moves files and directories about.
    fn mover(&self, _: u64, mut numbers: Numbers) {
        while self.goes_on() {
            let at = numbers.below(self.places.len() as u64) as usize;
            let word = self.places[at].load(SeqCst);
            let to = numbers.below(DIRS.len() as u64);
            if to == word % 8 {
                continue;
            }
            let (from, new) = (Self::path_in(word, at), Self::path_in(to, at));
            self.places[at].fetch_add(8, SeqCst);
            let (moved, failed) = again(|| self.top.rename(&from, &new, RenameMode::NoReplace));
            match moved {
                Ok(()) => {}
                // It was done, and only the answer was lost.
                Err(Error::NotFound | Error::Exists) if failed => {}
                Err(error) => panic!("{from} to {new}: {error}"),
            }
            self.places[at].store((word / 8 + 2) * 8 + to, SeqCst);
            assert!(again(|| self.top.stat(&new)).0.is_ok(), "{new} was moved there");
            let old = again(|| self.top.stat(&from)).0;
            assert!(matches!(old, Err(Error::NotFound)), "{from} was moved away: {old:?}");
            (0..numbers.below(50)).for_each(|_| std::thread::yield_now());
        }
    }

    /// Owns names, and knows their objects.
    fn owner(&self, me: u64, mut numbers: Numbers) {
        let mut model = Model { me, ..Model::default() };
        let places = (DIRS.len() + ROAMERS.len()) as u64;
        let mut held: Vec<_> = (0..places as usize).map(|at| self.directory(at)).collect();
        while self.goes_on() {
            let mut slot = || (numbers.below(places) as usize, numbers.below(OWNED));
            let (one, other) = (slot(), slot());
            if numbers.below(10) == 0 {
                held[one.0] = self.directory(one.0);
            }
            let kind = numbers.below(12);
            self.own(&mut model, &held, (one, other), kind);
            self.check(&model, &held, one);
        }
        self.owned.lock().push(model);
    }

    fn own(
        &self,
        model: &mut Model,
        held: &[Directory],
        (one, other): ((usize, u64), (usize, u64)),
        kind: u64,
    ) {
        let label = |slot: (usize, u64)| format!("own-{}-{}", model.me, slot.1);
        let (label_one, label_other) = (label(one), label(other));
        let directory = &held[one.0];
        let (meaning, target) = (model.names.get(&one).copied(), model.names.get(&other).copied());
        let done = |(result, failed): (Result<()>, bool), lost: fn(&Error) -> bool| match result {
            Ok(()) => {}
            Err(error) if failed && lost(&error) => {}
            Err(error) => panic!("{label_one} in {}, {label_other}: {error}", one.0),
        };
        let missing = |error: &Error| matches!(error, Error::NotFound);
        let exists = |error: &Error| matches!(error, Error::Exists);
        match (kind, meaning) {
            (0..4, None | Some(Some(_))) => {
                let text = format!("{}-{}", model.me, model.texts.len()).repeat(20);
                surely(|| directory.write_file(&label_one, &text));
                match meaning {
                    // By any name.
                    Some(Some(at)) => model.texts[at] = text,
                    _ => {
                        model.names.insert(one, Some(model.texts.len()));
                        model.texts.push(text);
                    }
                }
            }
            (4, None) => {
                done(again(|| directory.create_directory(&label_one, 0o755)), exists);
                model.names.insert(one, None);
            }
            (4..7, Some(Some(_))) => {
                done(again(|| directory.remove_file(&label_one)), missing);
                model.names.remove(&one);
            }
            (4..7, Some(None)) => {
                done(again(|| directory.remove_directory(&label_one)), missing);
                model.names.remove(&one);
            }
            // Within one directory: a handle is where paths begin.
            (7..9, Some(Some(at))) if target.is_none() && one.0 == other.0 => {
                done(again(|| directory.link(&label_one, &label_other)), exists);
                model.names.insert(other, Some(at));
            }
            (9..11, Some(Some(at)))
                if one.0 == other.0 && target != Some(None) && target != meaning =>
            {
                let mode = RenameMode::Replace;
                done(again(|| directory.rename(&label_one, &label_other, mode)), missing);
                model.names.remove(&one);
                model.names.insert(other, Some(at));
            }
            // From one directory to another, from the top.
            (11, Some(Some(at)))
                if one.0 < DIRS.len() && other.0 < DIRS.len() && target.is_none() =>
            {
                let from = format!("{}/{label_one}", DIRS[one.0]);
                let to = format!("{}/{label_other}", DIRS[other.0]);
                let moved = again(|| self.top.rename(&from, &to, RenameMode::NoReplace));
                done(moved, |error| matches!(error, Error::NotFound | Error::Exists));
                model.names.remove(&one);
                model.names.insert(other, Some(at));
            }
            _ => {}
        }
    }

    /// A name has the object that its owner made, and no other.
    fn check(&self, model: &Model, held: &[Directory], slot: (usize, u64)) {
        let label = format!("own-{}-{}", model.me, slot.1);
        let directory = &held[slot.0];
        let (seen, _) = again(|| directory.stat(&label));
        match model.names.get(&slot) {
            None => assert!(matches!(seen, Err(Error::NotFound)), "{label}: {seen:?}"),
            Some(None) => assert_eq!(seen.unwrap().kind, FileKind::Directory),
            Some(Some(at)) => {
                seen.unwrap_or_else(|error| panic!("{label} in {}: {error}", slot.0));
                let content = surely(|| directory.read_file(&label));
                assert_eq!(content, model.texts[*at].as_bytes(), "{label} in {}", slot.0);
            }
        }
    }

    /// Asks for names that never were, and lists.
    fn asker(&self, _: u64, mut numbers: Numbers) {
        while self.goes_on() {
            let at = numbers.below((DIRS.len() + ROAMERS.len()) as u64) as usize;
            let directory = self.directory(at);
            for _ in 0..10 {
                let label = format!("never-{}", numbers.below(20));
                let (seen, _) = again(|| directory.stat(&label));
                assert!(matches!(seen, Err(Error::NotFound)), "{label}: {seen:?}");
            }
            let listed = surely(|| directory.list_all());
            let stay = listed.iter().filter(|entry| entry.name == b"stay").count();
            assert_eq!(stay, 1, "in {at}");
            assert!(!listed.iter().any(|entry| entry.name.starts_with(b"never")));
            assert_eq!(surely(|| directory.read_file("stay")), b"here", "in {at}");
        }
    }

    fn cleaner(&self, _: u64, mut numbers: Numbers) {
        while self.goes_on() {
            let all = DIRS.len() + ROAMERS.len();
            let at = numbers.below(all as u64 + 1) as usize;
            let directory = if at == all { self.top.clone() } else { self.directory(at) };
            for _ in 0..numbers.below(10) {
                let clean = some_clean(&mut numbers);
                drop(self.vfs.begin_clean(directory.node(), clean).unwrap());
                self.cleaned.fetch_add(1, SeqCst);
                std::thread::yield_now();
            }
            let clean = some_clean(&mut numbers);
            reap(self.vfs.begin_clean(directory.node(), clean).unwrap(), &mut numbers);
            self.cleaned.fetch_add(1, SeqCst);
            if numbers.below(10) == 0 {
                for one in self.vfs.resident_by_directory(directory.node()) {
                    let path = String::from_utf8(one.path.unwrap_or_default()).unwrap();
                    assert!(!path.contains("never"), "{path}");
                    assert!(one.resident.names.bytes >= one.resident.names.entries);
                }
            }
            (0..numbers.below(30)).for_each(|_| std::thread::yield_now());
        }
    }
}

fn storm(kind: Kind, config: VfsConfig, seed: u64, length: Duration) {
    let store = kind.store();
    let honest = HostileBackend::over(store.inner().clone());
    let outside = root(&vfs_over(&honest, VfsConfig::default()));
    for path in DIRS {
        outside.create_directory(path, 0o755).unwrap();
        outside.write_file(format!("{path}/stay"), "here").unwrap();
    }
    for roamer in ROAMERS {
        for path in ["", "/x", "/x/deep"] {
            outside.create_directory(format!("a/{roamer}{path}"), 0o755).unwrap();
        }
        outside.write_file(format!("a/{roamer}/{DEEP}/stay"), "here").unwrap();
    }
    for file in 0..FILES {
        outside.write_file(format!("a/f{file}"), vec![0; BODY as usize * RECORD]).unwrap();
    }
    let (vfs, ledger) = kind.mount(&store, config);
    let words = || (0..BODY).map(|_| AtomicU64::new(0)).collect();
    let scene = Storm {
        store: store.clone(),
        vfs: vfs.clone(),
        top: root(&vfs),
        places: (0..FILES as usize + ROAMERS.len()).map(|_| AtomicU64::new(0)).collect(),
        ids: (0..FILES).map(|file| inner_id(&store, &format!("a/f{file}"))).collect(),
        written: (0..FILES).map(|_| words()).collect(),
        stop: AtomicBool::new(false),
        cleaned: AtomicU64::new(0),
        owned: Arc::new(Mutex::new(&OWNED_NAMES, Vec::new())),
    };
    let acts: [Act<Storm>; 10] = [
        Storm::writer,
        Storm::writer,
        Storm::reader,
        Storm::syncer,
        Storm::mover,
        Storm::owner,
        Storm::owner,
        Storm::asker,
        Storm::cleaner,
        Storm::cleaner,
    ];
    let mut faults = delays();
    faults.extend([Moment::Before, Moment::After].map(|moment| Fault::Fail(moment, PLANNED)));
    play(&scene, &scene.stop, (seed, length), &acts, |round| {
        if round % 20 == 1 {
            store.follow(Plan::random(seed ^ round, 0.03, faults.clone()));
        }
    });
    store.behave();
    surely(|| vfs.write_back_all());
    for file in 0..FILES {
        for (at, bytes) in scene.stored(file).chunks(RECORD).enumerate() {
            let seen = version(bytes, file, at as u64);
            assert_eq!(seen, scene.confirmed(file, at as u64), "at {at} of {file}, in the end");
        }
    }
    // The store has the owners' final state, and the caches show the same.
    let outside = vfs_over(&HostileBackend::over(store.inner().clone()), VfsConfig::default());
    for top in [root(&outside), scene.top.clone()] {
        let roamers = (FILES as usize..scene.places.len())
            .map(|at| format!("{}/{DEEP}", Storm::path_in(scene.places[at].load(SeqCst), at)));
        let paths = DIRS.iter().map(|path| (*path).to_owned()).chain(roamers);
        let held: Vec<_> = paths.map(|path| top.open_directory(path).unwrap()).collect();
        let models = scene.owned.lock().clone();
        for model in models {
            let slots = (0..held.len()).flat_map(|at| (0..OWNED).map(move |label| (at, label)));
            slots.for_each(|slot| scene.check(&model, &held, slot));
        }
    }
    println!("{kind:?}: {} cleanings", scene.cleaned.load(SeqCst));
    drop(scene);
    ledger.assert_settled();
    assert_empty(&vfs, &store);
    drop(vfs);
    ledger.assert_alone();
}

fn storms(policy: PagePolicy) {
    let _turn = Turn::take();
    let _watchdog = Watchdog::new(stress::length(Duration::from_secs(120)) * 3);
    let seed = seed();
    let length = stress::length(Duration::from_secs(6)) / 8;
    for kind in Kind::all().into_iter().filter(|kind| kind.policy == policy) {
        let config = VfsConfig { write_back_delay: Duration::from_millis(3), ..tiny() };
        storm(kind, config, seed, length);
        storm(kind, VfsConfig::default(), !seed, length);
    }
}

#[test]
fn cleaning_beside_all_others_writing_back() {
    storms(PagePolicy::WriteBack);
}

#[test]
fn cleaning_beside_all_others_writing_through() {
    storms(PagePolicy::WriteThrough);
}
