//! Floor: hostile backend under the page cache. A scripted scenario with one fault at every call of it in turn; random
//! faults for a while; stores that are dead, full, or recover. Asserted each time: nothing hangs, data confirmed by
//! `fsync` is in the store, every open file gets every error of write-back once, no error is cached as data, and when
//! the fault is over all written data arrives.
//!
//! Deterministic, except the random test, which prints a seed (`UVFS_SEED` replays its choices).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_backends::directory::{DirectoryBackend, DirectoryConfig};
use uvfs_backends::hostile::{Call, Fault, Gate, HostileBackend, Made, Moment, On, Plan};
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_object::s3::{Address, S3Store};
use uvfs_object::{ObjectBackend, ObjectConfig};
use uvfs_tests::paged::{Kind, assert_references_come_back, difference, quietly, stored, until};
use uvfs_tests::s3::{BUCKET_NAME, S3Server};
use uvfs_tests::{Hostile, Ledger, Numbers, Watchdog, errno, root, seed, stress, tiny};
use uvfs_vfs::{
    AllocateMode, Authority, Backend, Caller, Directory, File, FileRef, OpenOptions, Opens,
    PageCaching, PagePolicy, Result, SeekTarget, SetAttributes, SetTime, SyncMode, Timestamp, Vfs,
    VfsConfig,
};

const PAGE: usize = 4096;

/// Nothing is written back without a request; news of changes arrives.
fn patient() -> VfsConfig {
    let write_back_delay = Duration::from_secs(3600);
    VfsConfig { write_back_delay, watch: true, ..VfsConfig::default() }
}

/// The possible contents of a file after operations of which some failed. Each writes bytes of its own number; zero is
/// a hole. One bit for each possible number of a byte.
#[derive(Debug, Clone)]
struct Possible {
    bytes: Vec<u64>,
    sizes: Vec<usize>,
}

impl Possible {
    fn new() -> Self {
        Self { bytes: vec![1; 16 * PAGE], sizes: vec![0] }
    }

    fn sizes(&mut self, done: bool, change: impl Fn(usize) -> usize) {
        let mut changed: Vec<usize> = self.sizes.iter().map(|&size| change(size)).collect();
        if !done {
            // A part may have been done.
            changed.extend(self.sizes.iter().copied());
        }
        changed.sort_unstable();
        changed.dedup();
        self.sizes = changed;
    }

    fn wrote(&mut self, done: bool, number: u32, at: usize, length: usize) {
        for byte in &mut self.bytes[at..at + length] {
            *byte = if done { 1 << number } else { *byte | 1 << number };
        }
        match done {
            true => self.sizes(true, |size| size.max(at + length)),
            // Page by page.
            false => {
                for end in (at..at + length).step_by(PAGE).chain([at + length]) {
                    let end = if end == at + length { end } else { end / PAGE * PAGE };
                    self.sizes(false, |size| size.max(end));
                }
            }
        }
    }

    fn cut(&mut self, done: bool, size: usize) {
        for byte in &mut self.bytes[size..] {
            *byte = if done { 1 } else { *byte | 1 };
        }
        self.sizes(done, |_| size);
    }

    fn zeroed(&mut self, done: bool, at: usize, length: usize) {
        for byte in &mut self.bytes[at..at + length] {
            *byte = if done { 1 } else { *byte | 1 };
        }
    }

    fn wrong(&self, seen: &[u8]) -> Option<String> {
        if !self.sizes.contains(&seen.len()) {
            return Some(format!("{} bytes, and not {:?}", seen.len(), self.sizes));
        }
        let at = seen.iter().zip(&self.bytes).position(|(&byte, may)| may >> byte & 1 == 0)?;
        Some(format!("byte {at} is {}, may be {:b}", seen[at], self.bytes[at]))
    }
}

/// Two open files of one file, and its possible contents.
struct Script {
    store: Hostile,
    top: Directory,
    files: [File; 2],
    possible: Possible,
    /// Errors that fsync returned to each open file.
    returned: [Vec<i32>; 2],
}

type Step = (&'static str, fn(&mut Script) -> Result<()>);

/// Every step records its possible effects, whether or not it fails or panics.
const SCENARIO: &[Step] = &[
    ("write", |script| script.write(0, 1, 0, 3 * PAGE + 100)),
    ("fsync", |script| script.sync(0)),
    ("overwrite", |script| script.write(1, 2, 100, 5000)),
    ("append", Script::append),
    ("fsync again", |script| script.sync(1)),
    ("news", Script::news),
    ("write a part", |script| script.write(0, 4, 6000, 50)),
    ("read", |script| script.read().map(drop)),
    ("write before cut", |script| script.write(0, 5, 2 * PAGE, 6 * PAGE)),
    ("cut", |script| script.cut(PAGE + 1904)),
    ("write behind a hole", |script| script.write(1, 6, 9 * PAGE + 5, 700)),
    ("fsync a third time", |script| script.sync(0)),
    ("write to be punched", |script| script.write(1, 7, 0, 2 * PAGE)),
    ("punch", |script| script.punch(4000, 500)),
    ("write a page", |script| script.write(0, 8, 4 * PAGE, PAGE)),
    ("time", Script::time),
    ("seek", |script| script.files[0].seek(0, SeekTarget::Hole).map(drop)),
    ("write in the end", |script| script.write(0, 9, 10 * PAGE, 2 * PAGE)),
    ("fsync in the end", |script| script.sync(1)),
    ("write and leave it", |script| script.write(0, 10, 300, 20)),
    ("close and open", Script::reopen),
];

impl Script {
    fn new(store: Hostile, top: Directory) -> Self {
        let open = || top.open("a", OpenOptions::read_write().create(0o644)).unwrap();
        let files = [open(), open()];
        Self { store, top, files, possible: Possible::new(), returned: Default::default() }
    }

    fn note<T>(
        &mut self,
        act: impl FnOnce(&Self) -> Result<T>,
        effect: impl Fn(&mut Possible, bool),
    ) -> Result<T> {
        let result = catch_unwind(AssertUnwindSafe(|| act(self)));
        effect(&mut self.possible, matches!(result, Ok(Ok(_))));
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn write(&mut self, by: usize, number: u8, at: usize, length: usize) -> Result<()> {
        self.note(
            |script| script.files[by].write_all_at(at as u64, &vec![number; length]),
            |possible, done| possible.wrote(done, number.into(), at, length),
        )
    }

    fn append(&mut self) -> Result<()> {
        let sizes = self.possible.sizes.clone();
        self.note(
            |script| {
                let file = script.top.open("a", OpenOptions::write().append())?;
                file.write_all_at(0, &[3; 5000])
            },
            |possible, done| match (&sizes[..], done) {
                (&[size], true) => possible.wrote(true, 3, size, 5000),
                _ => sizes.iter().for_each(|&size| possible.wrote(false, 3, size, 5000)),
            },
        )
    }

    fn cut(&mut self, size: usize) -> Result<()> {
        self.note(
            |script| script.files[1].set_size(size as u64),
            |possible, done| possible.cut(done, size),
        )
    }

    fn punch(&mut self, at: usize, length: usize) -> Result<()> {
        self.note(
            |script| script.files[0].allocate(AllocateMode::PunchHole, at as u64, length as u64),
            |possible, done| possible.zeroed(done, at, length),
        )
    }

    /// An external change: clean pages are dropped.
    fn news(&mut self) -> Result<()> {
        self.store.sink().unwrap().inode_changed(self.files[0].node().id());
        Ok(())
    }

    fn time(&mut self) -> Result<()> {
        let time = Timestamp { seconds: 1_000_000_000, nanoseconds: 0 };
        let set = SetAttributes { mtime: Some(SetTime::At(time)), ..SetAttributes::default() };
        self.files[0].set_attributes(&set).map(drop)
    }

    fn reopen(&mut self) -> Result<()> {
        let open = || self.top.open("a", OpenOptions::read_write());
        drop(open()?);
        drop(open()?);
        Ok(())
    }

    fn read(&self) -> Result<Vec<u8>> {
        let content = self.files[0].read_to_end()?;
        assert_eq!(self.possible.wrong(&content), None, "what is read");
        Ok(content)
    }

    fn sync(&mut self, by: usize) -> Result<()> {
        let result = self.files[by].sync(SyncMode::All);
        match &result {
            Ok(()) => {
                let there = stored(&self.store, "a");
                assert_eq!(self.possible.wrong(&there), None, "in the store after fsync");
            }
            Err(error) => self.returned[by].push(error.errno()),
        }
        result
    }
}

/// A run of the scenario: the result of each step (an errno, -1 for a panic), and the number of its calls.
fn run(script: &mut Script) -> Vec<(&'static str, i32, usize)> {
    let mut results = Vec::new();
    for (name, step) in SCENARIO {
        let before = script.store.journal().len();
        let result = catch_unwind(AssertUnwindSafe(|| errno(&step(script)))).unwrap_or(-1);
        results.push((*name, result, script.store.journal().len() - before));
    }
    results
}

/// The step in which call `at` was made.
fn struck(results: &[(&'static str, i32, usize)], at: usize) -> usize {
    let mut calls = 0;
    let mut step = results.iter().position(|(_, _, made)| {
        calls += made;
        calls >= at
    });
    step.take().expect("the call was made")
}

/// The fault is over: everything arrives, and no reference is owed.
fn finish(script: Script, vfs: Arc<Vfs>, ledger: &Ledger) {
    let Script { store, top, files, possible, .. } = script;
    let content = files[0].read_to_end().unwrap();
    assert_eq!(possible.wrong(&content), None, "what is read in the end");
    assert_eq!(difference(&top.read_file("a").unwrap(), &content), None);
    files[0].sync(SyncMode::All).unwrap();
    assert_eq!(difference(&stored(&store, "a"), &content), None, "in the store in the end");
    assert_eq!(files[0].stat().unwrap().size, content.len() as u64);
    drop((files, top));
    assert_references_come_back(&vfs, &store);
    ledger.assert_settled();
    drop(vfs);
    ledger.assert_alone();
    assert_eq!(difference(&stored(&store, "a"), &content), None, "after the end");
}

/// Whether the call was made to bring data to the store, so that every open file hears of its failure.
fn writes_back(made: &Made, opened: bool) -> bool {
    made.call == Call::Write || (opened && made.call == Call::Open)
}

fn at_every_call(what: &str, fault: &Fault, expected: i32) {
    let _watchdog = Watchdog::new(Duration::from_secs(200));
    for kind in Kind::back() {
        let mut calls = usize::MAX;
        let mut at = 0;
        while at < calls {
            at += 1;
            let store = kind.store();
            let (vfs, ledger) = kind.mount(&store, patient());
            let mut script = Script::new(store.clone(), root(&vfs));
            // The first run is without any fault, and counts.
            let nth = if calls == usize::MAX { u64::MAX } else { at as u64 };
            store.follow(Plan::new().when(On::any().nth(nth), fault.clone()));
            let results = run(&mut script);
            if calls == usize::MAX {
                assert!(results.iter().all(|&(_, errno, _)| errno == 0), "{results:?}");
                calls = results.iter().map(|&(_, _, made)| made).sum();
                at = 0;
                store.behave();
                finish(script, vfs, &ledger);
                continue;
            }
            let journal = store.journal();
            let (made, step) = (&journal[at - 1], struck(&results, at));
            let place = Place(format!(
                "{what} at call {at} ({made:?}) in `{}`, {kind:?}: {results:?}",
                results[step].0
            ));
            store.behave();
            // An open file without the error gets it now; from then on there is none.
            for by in [0, 1] {
                let _ = script.sync(by);
            }
            let returned = script.returned.clone();
            for by in [0, 1] {
                script.sync(by).expect("told once");
            }
            let opened = results[step].0 != "append" && results[step].0 != "close and open";
            let append = results[step].0 == "append";
            if writes_back(made, opened) && (!append || kind.authority == Authority::Shared) {
                let errno = if expected == -1 { libc::EIO } else { expected };
                // Only the store's own append counts here.
                let own = append && made.call == Call::Write;
                assert!(own || returned == [vec![errno], vec![errno]], "told {returned:?}");
            } else if matches!(made.call, Call::Sync | Call::SetAttributes) {
                let own = returned.iter().map(Vec::len).sum::<usize>();
                assert!(own <= 1, "only the caller gets the error: {returned:?}");
            } else {
                assert!(
                    returned.iter().all(Vec::is_empty),
                    "nothing that concerns them: {returned:?}"
                );
            }
            for (at, (name, errno, _)) in results.iter().enumerate() {
                let late = name.starts_with("fsync") && at > step;
                assert!(at == step || late || *errno == 0, "`{name}` failed by {errno}");
                assert!(at != step || [0, expected].contains(errno), "`{name}` failed by {errno}");
            }
            finish(script, vfs, &ledger);
            drop(place);
        }
    }
}

/// Prints the place of the fault when a run fails.
struct Place(String);

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

fn errors_at_every_call(moment: Moment) {
    for errno in [libc::EIO, libc::ENOSPC, libc::ETIMEDOUT] {
        at_every_call(&format!("{errno} {moment:?}"), &Fault::Fail(moment, errno), errno);
    }
}

#[test]
fn an_error_before_the_work_at_every_call() {
    errors_at_every_call(Moment::Before);
}

#[test]
fn an_error_after_the_work_at_every_call() {
    errors_at_every_call(Moment::After);
}

#[test]
fn a_panic_before_the_work_at_every_call() {
    quietly();
    at_every_call("panic before", &Fault::Panic(Moment::Before), -1);
}

#[test]
fn a_panic_after_the_work_at_every_call() {
    quietly();
    at_every_call("panic after", &Fault::Panic(Moment::After), -1);
}

/// Only the reader that asked gets an error of reading; a thread that waited for the page asks again.
#[test]
fn a_read_error_is_its_readers_own() {
    let _watchdog = Watchdog::new(Duration::from_secs(60));
    for errno in [libc::EIO, libc::ETIMEDOUT] {
        let store = Kind::sole(Opens::Tracked).store();
        let (vfs, ledger) = Kind::sole(Opens::Tracked).mount(&store, patient());
        let top = root(&vfs);
        top.write_file("a", [7; 100]).unwrap();
        vfs.write_back_all().unwrap();
        let file = top.open("a", OpenOptions::read()).unwrap();
        store.sink().unwrap().inode_changed(file.node().id());
        let gate = Gate::new();
        let first = On::call(Call::Read).nth(1);
        let hold = Fault::Hold(Moment::Before, gate.clone());
        let plan = Plan::new().when(first.clone(), hold);
        store.follow(plan.when(first, Fault::Fail(Moment::Before, errno)));
        std::thread::scope(|scope| {
            let one = scope.spawn(|| file.read_to_end());
            gate.wait_for(1);
            let other = scope.spawn(|| file.read_to_end());
            until(|| vfs.statistics().pages.waited > 0);
            gate.open();
            assert_eq!(uvfs_tests::errno(&one.join().unwrap()), errno);
            assert_eq!(other.join().unwrap().unwrap(), [7; 100]);
        });
        assert_eq!(file.read_to_end().unwrap(), [7; 100]);
        drop((file, top));
        assert_references_come_back(&vfs, &store);
        ledger.assert_settled();
    }
}

/// Pages of the file that is read with a damaged page in it.
const DAMAGED: u64 = 12;

/// Reads a file of [`DAMAGED`] pages and a few bytes, once for each page that may be damaged, cold and partly cached.
/// A read of healthy bytes is whole; a read of the damaged page is an error, or whole if the page was cached.
fn every_page_damaged<B: Backend>(
    (name, policy): (&str, PagePolicy),
    store: impl Fn() -> HostileBackend<B>,
) {
    let content: Vec<u8> = (0..DAMAGED * PAGE as u64 + 100).map(|at| (at % 251) as u8).collect();
    for (ahead, errno) in [(0, libc::EIO), (512 << 10, libc::EIO), (512 << 10, libc::ESTALE)] {
        let config = VfsConfig { read_ahead_bytes: ahead, pages: policy, ..patient() };
        let store = store();
        let vfs = Vfs::new(store.clone(), config).unwrap();
        let top = root(&vfs);
        if top.stat(name).is_err() {
            top.write_file(name, &content).unwrap();
            vfs.write_back_all().unwrap();
        }
        let file = top.open(name, OpenOptions::read()).unwrap();
        for bad in 0..=DAMAGED {
            let damage = bad * PAGE as u64..(bad + 1) * PAGE as u64;
            let place =
                Place(format!("page {bad} fails by {errno}, {ahead} are read ahead, {name}"));
            for cached in [None, Some(bad.saturating_sub(1)), Some(0), Some(bad + 2)] {
                store.follow(
                    Plan::new().when(On::call(Call::Read), Fault::Damaged(damage.clone(), errno)),
                );
                store.sink().unwrap().inode_changed(file.node().id());
                let read = |offset: u64, length: usize| {
                    let mut into = vec![0xAA; length];
                    let whole = &content[offset.min(content.len() as u64) as usize..];
                    let whole = &whole[..whole.len().min(length)];
                    let end = offset + whole.len() as u64;
                    match file.read_at(offset, &mut into) {
                        Ok(count) => {
                            assert_eq!(
                                difference(&into[..count], whole),
                                None,
                                "{offset} {length}"
                            );
                        }
                        Err(error) => {
                            let asked = offset < damage.end && damage.start < end;
                            assert!(asked, "{length} bytes at {offset} are healthy: {error}");
                            assert_eq!(error.errno(), errno, "{length} bytes at {offset}");
                        }
                    }
                };
                if let Some(page) = cached {
                    read(page * PAGE as u64 + 10, 20);
                } else {
                    let mut into = vec![0; content.len()];
                    let cold = uvfs_tests::errno(&file.read_at(0, &mut into));
                    assert_eq!(cold, errno, "nothing of it was cached");
                }
                read(0, content.len());
                for page in (0..=DAMAGED).rev() {
                    read(page * PAGE as u64, PAGE);
                    read((page * PAGE as u64).saturating_sub(50), 3 * PAGE);
                }
                read(0, content.len() + 1);
            }
            drop(place);
        }
        store.behave();
        assert_eq!(difference(&file.read_to_end().unwrap(), &content), None, "it was never lost");
    }
}

/// Bug: `cp` of a file ended truncated with status 0: a read that found its first pages in the cache, and then an
/// error, returned the first part. The kernel takes that for the end of the file, and sets its size so.
#[test]
fn a_read_with_an_error_in_it_is_never_short() {
    let _watchdog = Watchdog::new(Duration::from_secs(100));
    for kind in Kind::all().into_iter().filter(|kind| kind.opens == Opens::Stateless) {
        every_page_damaged(("memory", kind.policy), || kind.store());
    }
    // Several runs at once.
    let kind = Kind::sole(Opens::Stateless);
    every_page_damaged(("runs", kind.policy), || kind.store().claiming(|can| can.queue_depth = 8));
    let folder = tempfile::tempdir().unwrap();
    every_page_damaged(("directory", PagePolicy::WriteBack), || {
        let config = DirectoryConfig::default();
        let directory = DirectoryBackend::open(folder.path(), config).unwrap();
        HostileBackend::new(directory).claiming(|can| can.caching = PageCaching::Core)
    });
}

/// A bucket had the fault, too: an error behind cached pages was a short read.
#[test]
fn a_read_of_an_object_with_an_error_in_it_is_never_short() {
    let _watchdog = Watchdog::new(Duration::from_secs(100));
    let server = S3Server::start().unwrap();
    let content: Vec<u8> = (0..DAMAGED * PAGE as u64 + 100).map(|at| (at % 251) as u8).collect();
    server.put("object", &content);
    let text = format!("//{BUCKET_NAME}?endpoint={}&anonymous=true", server.endpoint());
    every_page_damaged(("object", PagePolicy::Auto), || {
        let bucket = S3Store::connect(&Address::parse(&text, |_| None).unwrap()).unwrap();
        HostileBackend::new(ObjectBackend::new(bucket, ObjectConfig::default()))
    });
}

/// Bug: a store ended its answer early, though it still reported a longer file: zeros were cached in the place of the
/// rest, and read for good. A file that did become shorter ends at its new end.
#[test]
fn an_answer_that_ends_early_is_not_filled_with_zeros() {
    let _watchdog = Watchdog::new(Duration::from_secs(60));
    for kind in Kind::all() {
        let store = kind.store();
        let (vfs, ledger) = kind.mount(&store, patient());
        let top = root(&vfs);
        top.write_file("a", content(10)).unwrap();
        vfs.write_back_all().unwrap();
        let file = top.open("a", OpenOptions::read()).unwrap();
        let node = file.node().id();
        let forget = || store.sink().unwrap().inode_changed(node);
        let mut into = vec![0; 20 * PAGE];
        for nth in 1..=4 {
            store.follow(Plan::new().when(On::call(Call::Read).nth(nth), Fault::Short(0)));
            forget();
            assert_eq!(file.read_at(0, &mut into).unwrap(), 10 * PAGE, "answer {nth} was empty");
            assert_eq!(
                difference(&into[..10 * PAGE], &content(10)),
                None,
                "answer {nth} was empty"
            );
        }
        store.follow(Plan::new().when(On::call(Call::Read), Fault::Short(0)));
        forget();
        assert_eq!(errno(&file.read_at(0, &mut into)), libc::EIO, "it has a size, and no bytes");
        store.behave();
        assert_eq!(file.read_at(0, &mut into).unwrap(), 10 * PAGE);
        let reference = FileRef::unopened(node);
        let set = SetAttributes { size: Some(5 * PAGE as u64 + 7), ..SetAttributes::default() };
        store.inner().inodes().set_attributes(&Caller::root(), reference, &set).unwrap();
        forget();
        assert_eq!(file.read_at(PAGE as u64, &mut into).unwrap(), 4 * PAGE + 7, "its true end");
        assert_eq!(difference(&into[..4 * PAGE], &content(10)[PAGE..5 * PAGE]), None);
        drop((file, top));
        assert_references_come_back(&vfs, &store);
        ledger.assert_settled();
    }
}

/// A truncation that the store did and reported as failed, while there is unwritten data: cached data beyond it must
/// not be shown when the store does not have it.
#[test]
fn a_cut_that_was_done_and_failed() {
    let _watchdog = Watchdog::new(Duration::from_secs(60));
    for kind in Kind::back() {
        for fault in [Fault::Fail(Moment::After, libc::EIO), Fault::Panic(Moment::After)] {
            quietly();
            let store = kind.store();
            let (vfs, ledger) = kind.mount(&store, patient());
            let top = root(&vfs);
            top.write_file("a", [7; 10 * PAGE]).unwrap();
            vfs.write_back_all().unwrap();
            let file = top.open("a", OpenOptions::read_write()).unwrap();
            file.write_all_at(0, &[8; 10]).unwrap();
            store.follow(Plan::new().when(On::call(Call::SetAttributes).nth(1), fault.clone()));
            let cut = catch_unwind(AssertUnwindSafe(|| file.set_size(100)));
            assert!(!matches!(cut, Ok(Ok(()))));
            store.behave();
            file.sync(SyncMode::All).unwrap();
            let (seen, there) = (file.read_to_end().unwrap(), stored(&store, "a"));
            assert_eq!(difference(&seen, &there), None, "cache and store, {fault:?}, {kind:?}");
            drop((file, top));
            assert_references_come_back(&vfs, &store);
            ledger.assert_settled();
        }
    }
}

/// A file of records: whose, which, and which version, eight times over.
const RECORD: usize = 64;

fn record(file: u64, at: u64, version: u64) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    for (word, into) in bytes.chunks_mut(8).enumerate() {
        let value = [file + 1, at, version][word % 3];
        into.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// The version in a record of `file` at `at`; 0 if it was never written.
fn version(bytes: &[u8], file: u64, at: u64) -> u64 {
    if bytes.iter().all(|&byte| byte == 0) {
        return 0;
    }
    let version = u64::from_le_bytes(bytes[16..24].try_into().unwrap());
    assert_eq!(bytes, record(file, at, version), "a record that was not written there");
    version
}

/// The attempts with each record of one file.
struct Records {
    file: u64,
    name: String,
    /// The last version whose write succeeded, and the last one that was tried.
    versions: Vec<(u64, u64)>,
    handles: [File; 2],
    /// Errors of writing back that were counted when each open file was last asked.
    counted: [u64; 2],
}

impl Records {
    /// The contents must be at least the written ones.
    fn check(&self, content: &[u8], where_to: &str) {
        for (at, &(good, tried)) in self.versions.iter().enumerate() {
            let bytes = content.get(at * RECORD..(at + 1) * RECORD);
            let there = bytes.map_or(0, |bytes| version(bytes, self.file, at as u64));
            assert!(
                (good..=tried).contains(&there),
                "record {at} of {} {where_to}: {there} and not {good}..={tried}",
                self.name
            );
        }
    }
}

/// Faults at random, beside threads that write back all the time.
fn random_faults(kind: Kind, files: u64, seed: u64, length: Duration) {
    const COUNT: u64 = 6000;
    let store = kind.store();
    let config = VfsConfig { write_back_delay: Duration::from_millis(1), ..tiny() };
    let (vfs, ledger) = kind.mount(&store, config);
    let top = root(&vfs);
    let mut all: Vec<Records> = (0..files)
        .map(|file| {
            let name = format!("f{file}");
            let open = || top.open(&name, OpenOptions::read_write().create(0o644)).unwrap();
            let handles = [open(), open()];
            Records { file, handles, name, versions: vec![(0, 0); COUNT as usize], counted: [0; 2] }
        })
        .collect();
    let errnos = [libc::EIO, libc::ENOSPC, libc::ETIMEDOUT, libc::EINTR];
    let both = [Moment::Before, Moment::After];
    let faults = errnos.iter().flat_map(|&errno| both.map(|moment| Fault::Fail(moment, errno)));
    let faults = faults.chain([Fault::Short(1000), Fault::Short(5000)]);
    store.follow(Plan::random(seed, 0.1, faults.collect()));
    let mut numbers = Numbers(seed);
    let began = Instant::now();
    while began.elapsed() < length {
        let file = numbers.below(files) as usize;
        let by = numbers.below(2) as usize;
        let (at, records) = (numbers.below(COUNT), &mut all[file]);
        match numbers.below(20) {
            0 => {
                let result = records.handles[by].sync(SyncMode::All);
                records.counted[by] = vfs.statistics().pages.write_errors;
                if result.is_ok() {
                    records.check(&stored(&store, &records.name), "in the store after fsync");
                }
            }
            1..8 => {
                let mut bytes = [0xAA; 4 * RECORD];
                let Ok(count) = records.handles[by].read_at(at * RECORD as u64, &mut bytes) else {
                    continue;
                };
                for (next, bytes) in bytes[..count].chunks_exact(RECORD).enumerate() {
                    let at = at + next as u64;
                    let Some(&(good, tried)) = records.versions.get(at as usize) else { continue };
                    let there = version(bytes, records.file, at);
                    assert!((good..=tried).contains(&there), "{there}, not {good}..={tried}");
                }
            }
            _ => {
                let count = (1 + numbers.below(100)).min(COUNT - at);
                let mut data = Vec::new();
                for at in at..at + count {
                    let entry = &mut records.versions[at as usize];
                    entry.1 += 1;
                    data.extend(record(records.file, at, entry.1));
                }
                if records.handles[by].write_all_at(at * RECORD as u64, &data).is_ok() {
                    for entry in &mut records.versions[at as usize..(at + count) as usize] {
                        entry.0 = entry.1;
                    }
                }
            }
        }
    }
    store.behave();
    vfs.write_back_all().unwrap();
    let errors = vfs.statistics().pages.write_errors;
    for records in &all {
        for by in [0, 1] {
            let returned = records.handles[by].sync(SyncMode::All).is_err();
            assert!(
                returned || files > 1 || records.counted[by] == errors,
                "an error was not told"
            );
            records.handles[by].sync(SyncMode::All).expect("told once");
        }
        records.check(&records.handles[0].read_to_end().unwrap(), "in the end");
        // As if everything ended here, without warning.
        records.check(&stored(&store, &records.name), "in the store in the end");
    }
    all.iter_mut().for_each(|records| records.versions.clear());
    drop((all, top));
    assert_references_come_back(&vfs, &store);
    ledger.assert_settled();
}

#[test]
fn random_faults_lose_nothing_that_fsync_confirmed() {
    let _watchdog = Watchdog::new(stress::length(Duration::from_secs(60)) * 4);
    let seed = seed();
    let length = stress::length(Duration::from_secs(6)) / 8;
    for (at, kind) in Kind::back().into_iter().enumerate() {
        for files in [1, 3] {
            random_faults(kind, files, seed ^ (at as u64 * 4 + files), length);
        }
    }
}

/// Writes pages until the store's error returns; returns the number of accepted ones.
fn write_until_refused(file: &File, errno: i32) -> usize {
    for page in 0..4000 {
        let result = file.write_all_at((page * PAGE) as u64, &[(page % 251) as u8 + 1; PAGE]);
        if let Err(error) = result {
            assert_eq!(error.errno(), errno, "after {page} pages: {error}");
            return page;
        }
    }
    panic!("16 MiB were taken, and the caches have room for one");
}

fn content(pages: usize) -> Vec<u8> {
    (0..pages).flat_map(|page| [(page % 251) as u8 + 1; PAGE]).collect()
}

/// A store that takes nothing: writes succeed until there is no room, then fail; accepted data stays, is read, and
/// arrives when the store is back.
fn a_store_that_takes_nothing(errno: i32) {
    let _watchdog = Watchdog::new(Duration::from_secs(60));
    for kind in Kind::back() {
        let store = kind.store();
        let (vfs, ledger) = kind.mount(&store, tiny());
        let top = root(&vfs);
        top.write_file("other", [9; 100]).unwrap();
        vfs.write_back_all().unwrap();
        let file = top.open("a", OpenOptions::read_write().create(0o644)).unwrap();
        let second = top.open("a", OpenOptions::read_write()).unwrap();
        store.follow(Plan::new().when(On::call(Call::Write), Fault::Fail(Moment::Before, errno)));
        let pages = write_until_refused(&file, errno);
        assert!(pages > 10, "{pages}");
        assert_eq!(difference(&file.read_to_end().unwrap()[..pages * PAGE], &content(pages)), None);
        assert_eq!(top.read_file("other").unwrap(), [9; 100], "others are read");
        assert_eq!(uvfs_tests::errno(&file.sync(SyncMode::All)), errno);
        assert_eq!(uvfs_tests::errno(&second.sync(SyncMode::All)), errno);
        assert!(vfs.statistics().pages.dirty_bytes >= (pages * PAGE) as u64, "nothing is dropped");
        store.behave();
        vfs.write_back_all().unwrap();
        assert_eq!(vfs.statistics().pages.dirty_bytes, 0);
        assert_eq!(difference(&stored(&store, "a")[..pages * PAGE], &content(pages)), None);
        file.write_all_at(0, &[1; PAGE]).expect("it goes on");
        // Not after the delay, for which the test would wait.
        vfs.write_back_all().unwrap();
        drop((file, second, top));
        assert_references_come_back(&vfs, &store);
        ledger.assert_settled();
    }
}

#[test]
fn a_dead_store_comes_back() {
    a_store_that_takes_nothing(libc::EIO);
    a_store_that_takes_nothing(libc::ETIMEDOUT);
}

#[test]
fn a_full_store_gets_room() {
    a_store_that_takes_nothing(libc::ENOSPC);
}

/// A store with little space, truly.
#[test]
fn a_small_store_gets_room() {
    let _watchdog = Watchdog::new(Duration::from_secs(60));
    for kind in Kind::back() {
        let config = MemoryConfig { size_bytes: 512 << 10, ..Default::default() };
        let store = kind.claimed_by(HostileBackend::new(MemoryBackend::new(config).unwrap()));
        let (vfs, ledger) = kind.mount(&store, patient());
        let top = root(&vfs);
        top.write_file("big", [9; 200 << 10]).unwrap();
        vfs.write_back_all().unwrap();
        let file = top.open("a", OpenOptions::read_write().create(0o644)).unwrap();
        file.write_all_at(0, &content(100)).unwrap();
        assert_eq!(errno(&file.sync(SyncMode::All)), libc::ENOSPC);
        assert_eq!(difference(&file.read_to_end().unwrap(), &content(100)), None);
        top.remove_file("big").unwrap();
        vfs.forget_unused();
        file.sync(SyncMode::All).expect("there is room now");
        assert_eq!(difference(&stored(&store, "a"), &content(100)), None);
        drop((file, top));
        assert_references_come_back(&vfs, &store);
        ledger.assert_settled();
    }
}

/// The end over a store that takes nothing ends, and releases everything.
#[test]
fn the_end_over_a_dead_store_ends() {
    let _watchdog = Watchdog::new(Duration::from_secs(60));
    for kind in Kind::back() {
        for call in [None, Some(Call::Write)] {
            let store = kind.store();
            let (vfs, ledger) = kind.mount(&store, patient());
            let top = root(&vfs);
            let file = top.open("a", OpenOptions::read_write().create(0o644)).unwrap();
            file.write_all_at(0, &content(10)).unwrap();
            let on = call.map_or(On::any(), On::call);
            store.follow(Plan::new().when(on, Fault::Fail(Moment::Before, libc::EIO)));
            drop((file, top));
            drop(vfs);
            ledger.assert_settled();
            ledger.assert_alone();
        }
    }
}

/// One failure at the end must not lose the rest: writable data is written, and failed writes are retried.
#[test]
fn the_end_tries_again() {
    quietly();
    let _watchdog = Watchdog::new(Duration::from_secs(60));
    for kind in Kind::back() {
        for fault in [Fault::Fail(Moment::Before, libc::ETIMEDOUT), Fault::Panic(Moment::Before)] {
            for nth in 1..=3 {
                let store = kind.store();
                let (vfs, ledger) = kind.mount(&store, patient());
                let top = root(&vfs);
                let content = content(1);
                // Ten pages that are no neighbours, and another file.
                let files = ["a", "b"]
                    .map(|name| top.open(name, OpenOptions::read_write().create(0o644)).unwrap());
                for (file, page) in files.iter().flat_map(|file| (0..5).map(move |at| (file, at))) {
                    file.write_all_at(page * 2 * PAGE as u64, &content).unwrap();
                }
                if kind.authority == Authority::Sole {
                    // A shared one writes when a file is closed.
                    drop((files, top));
                    store.follow(Plan::new().when(On::call(Call::Write).nth(nth), fault.clone()));
                } else {
                    store.follow(Plan::new().when(On::call(Call::Write).nth(nth), fault.clone()));
                    let _ = catch_unwind(AssertUnwindSafe(|| drop((files, top))));
                }
                let end = catch_unwind(AssertUnwindSafe(|| drop(vfs)));
                assert!(end.is_ok(), "the end panicked");
                ledger.assert_settled();
                for name in ["a", "b"] {
                    let stored = stored(&store, name);
                    let lost: Vec<usize> = (0..5)
                        .filter(|page| {
                            let at = page * 2 * PAGE;
                            stored.get(at..at + PAGE) != Some(&content[..])
                        })
                        .collect();
                    assert!(
                        lost.is_empty(),
                        "{name} lost {lost:?} by {fault:?} at {nth}, {kind:?}"
                    );
                }
            }
        }
    }
}
