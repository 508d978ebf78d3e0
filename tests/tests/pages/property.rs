//! Floor: property. Random operations on a few files through the page cache, step by step against
//! vectors of bytes: write through and write back, on stores of our own and shared ones, with and
//! without tracked opens, with caches so small that pages are evicted all the time, and with large
//! ones. Every run ends without warning: written data is in the store when the file system is gone.
//!
//! The choices follow from a seed (`UVFS_SEED` replays them; the machine decides when threads write
//! back). `UVFS_STEPS` sets the steps of each combination.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uvfs_tests::paged::{Kind, assert_references_come_back, difference, stored};
use uvfs_tests::{Hostile, Ledger, Numbers, Watchdog, root, seed, tiny};
use uvfs_vfs::{
    AllocateMode, Authority, Directory, Error, File, OpenOptions, Opens, PagePolicy, SeekTarget,
    SetAttributes, SetTime, SyncMode, Timestamp, Vfs, VfsConfig,
};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Files do not grow beyond: three of them are more than small caches have.
const SIZE_MAX: u64 = 700_000;
const HANDLES_MAX: usize = 6;

/// The expected file.
#[derive(Debug, Default)]
struct Model {
    data: Vec<u8>,
    /// The time of the last change is no earlier than this; exactly this, if nothing was changed
    /// since.
    time: Option<(Timestamp, bool)>,
}

impl Model {
    fn put(&mut self, at: u64, bytes: &[u8]) {
        let (at, end) = (at as usize, at as usize + bytes.len());
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
        self.data[at..end].copy_from_slice(bytes);
        self.changed();
    }

    fn zero(&mut self, at: u64, length: u64) {
        let end = (at + length).min(self.data.len() as u64);
        if at < end {
            self.data[at as usize..end as usize].fill(0);
        }
        self.changed();
    }

    fn changed(&mut self) {
        self.time = self.time.map(|(time, _)| (time, false));
    }

    fn part(&self, at: u64, length: usize) -> &[u8] {
        let start = self.data.len().min(at as usize);
        &self.data[start..self.data.len().min(start.saturating_add(length))]
    }
}

type Shared = Rc<RefCell<Model>>;

struct Handle {
    file: File,
    model: Shared,
    append: bool,
    reads: bool,
    writes: bool,
}

struct World {
    kind: Kind,
    store: Hostile,
    ledger: Ledger,
    vfs: Arc<Vfs>,
    top: Directory,
    names: [Option<Shared>; NAMES.len()],
    handles: Vec<Handle>,
    numbers: Numbers,
    filler: u8,
}

impl World {
    fn new(kind: Kind, store: Hostile, config: VfsConfig, numbers: Numbers) -> Self {
        let (vfs, ledger) = kind.mount(&store, config);
        let top = root(&vfs);
        let names = Default::default();
        Self { kind, store, ledger, vfs, top, names, handles: Vec::new(), numbers, filler: 0 }
    }

    /// A place in a file of `size`: often where pages and files end.
    fn offset(&mut self, size: u64) -> u64 {
        let end = SIZE_MAX.min(size + 20_000);
        let at = match self.numbers.below(6) {
            0 => 0,
            1 => size,
            2 => size.saturating_sub(self.numbers.below(5000)),
            3 => self.numbers.below(end + 1) / 4096 * 4096,
            _ => self.numbers.below(end + 1),
        };
        at.min(SIZE_MAX - 1)
    }

    fn length(&mut self) -> u64 {
        match self.numbers.below(8) {
            0 => 4096,
            1 => 1 + self.numbers.below(100_000),
            2 | 3 => 1 + self.numbers.below(100),
            4 => 4096 * (1 + self.numbers.below(8)),
            _ => 1 + self.numbers.below(12_000),
        }
    }

    fn bytes(&mut self, length: u64) -> Vec<u8> {
        self.filler = self.filler.wrapping_add(1).max(1);
        let filler = self.filler;
        (0..length).map(|at| filler.wrapping_add((at / 61) as u8) | 1).collect()
    }

    fn handle(&mut self, fits: impl Fn(&Handle) -> bool) -> Option<usize> {
        let fitting: Vec<usize> =
            (0..self.handles.len()).filter(|&at| fits(&self.handles[at])).collect();
        if fitting.is_empty() { None } else { Some(*self.numbers.of(&fitting)) }
    }

    fn step(&mut self) -> &'static str {
        match self.numbers.below(100) {
            0..8 => self.open(),
            8..13 => self.close(),
            13..35 => self.read(),
            35..60 => self.write(),
            60..66 => self.truncate(),
            66..72 => self.allocate(),
            72..76 => self.copy(),
            76..80 => self.seek(),
            80..85 => self.sync(),
            85..91 => self.stat(),
            91..94 => self.set_time(),
            94..96 => self.unlink(),
            96..98 => {
                self.vfs.forget_unused();
                "forget"
            }
            98 => {
                self.vfs.write_back_all().unwrap();
                "write all back"
            }
            _ => self.compare(),
        }
    }

    fn open(&mut self) -> &'static str {
        if self.handles.len() >= HANDLES_MAX {
            return self.close();
        }
        let at = self.numbers.below(NAMES.len() as u64) as usize;
        let (mut options, reads, writes) = match self.numbers.below(4) {
            0 => (OpenOptions::read(), true, false),
            1 => (OpenOptions::write(), false, true),
            _ => (OpenOptions::read_write(), true, true),
        };
        let append = writes && self.numbers.below(4) == 0;
        let cut = writes && self.numbers.below(5) == 0;
        if append {
            options = options.append();
        }
        if cut {
            options = options.truncate();
        }
        let model = self.names[at].get_or_insert_default().clone();
        if cut {
            model.borrow_mut().data.clear();
            model.borrow_mut().changed();
        }
        let file = self.top.open(NAMES[at], options.create(0o644)).unwrap();
        self.handles.push(Handle { file, model, append, reads, writes });
        "open"
    }

    fn close(&mut self) -> &'static str {
        if let Some(at) = self.handle(|_| true) {
            self.handles.swap_remove(at);
        }
        "close"
    }

    fn read(&mut self) -> &'static str {
        let Some(at) = self.handle(|handle| handle.reads) else { return self.open() };
        let size = self.handles[at].model.borrow().data.len() as u64;
        let (offset, length) = (self.offset(size), self.length());
        let handle = &self.handles[at];
        let mut buffer = vec![0xAA; length as usize];
        let count = handle.file.read_at(offset, &mut buffer).unwrap();
        let model = handle.model.borrow();
        let wrong = difference(&buffer[..count], model.part(offset, length as usize));
        assert!(wrong.is_none(), "read of {length} at {offset}: {}", wrong.unwrap());
        "read"
    }

    fn write(&mut self) -> &'static str {
        let Some(at) = self.handle(|handle| handle.writes) else { return self.open() };
        let size = self.handles[at].model.borrow().data.len() as u64;
        let (offset, mut length) = (self.offset(size), self.length());
        let handle = &self.handles[at];
        let offset = if handle.append { size } else { offset };
        length = length.min(SIZE_MAX.saturating_sub(offset));
        let data = self.bytes(length);
        let handle = &self.handles[at];
        let count = handle.file.write_at(offset, &data).unwrap();
        assert_eq!(count, data.len(), "a healthy store takes all");
        if count > 0 {
            handle.model.borrow_mut().put(offset, &data);
        }
        if handle.append { "append" } else { "write" }
    }

    fn truncate(&mut self) -> &'static str {
        let Some(at) = self.handle(|handle| handle.writes) else { return self.open() };
        let size = self.handles[at].model.borrow().data.len() as u64;
        let to = self.offset(size);
        let handle = &self.handles[at];
        handle.file.set_size(to).unwrap();
        let mut model = handle.model.borrow_mut();
        model.data.resize(to as usize, 0);
        model.changed();
        "truncate"
    }

    fn allocate(&mut self) -> &'static str {
        let Some(at) = self.handle(|handle| handle.writes) else { return self.open() };
        let size = self.handles[at].model.borrow().data.len() as u64;
        let (offset, length) = (self.offset(size), self.length());
        let length = length.min(SIZE_MAX - offset);
        let modes = [
            AllocateMode::Extend,
            AllocateMode::KeepSize,
            AllocateMode::PunchHole,
            AllocateMode::PunchHole,
            AllocateMode::Zero,
            AllocateMode::ZeroKeepSize,
        ];
        let mode = *self.numbers.of(&modes);
        let handle = &self.handles[at];
        handle.file.allocate(mode, offset, length).unwrap();
        let mut model = handle.model.borrow_mut();
        let extends = matches!(mode, AllocateMode::Extend | AllocateMode::Zero);
        if extends && (offset + length) as usize > model.data.len() {
            model.data.resize((offset + length) as usize, 0);
        }
        match mode {
            AllocateMode::PunchHole | AllocateMode::Zero | AllocateMode::ZeroKeepSize => {
                model.zero(offset, length);
            }
            AllocateMode::Extend | AllocateMode::KeepSize => model.changed(),
        }
        "allocate"
    }

    fn copy(&mut self) -> &'static str {
        let from = self.handle(|handle| handle.reads);
        let to = self.handle(|handle| handle.writes && !handle.append);
        let (Some(from), Some(to)) = (from, to) else { return self.open() };
        let size = |at: usize| self.handles[at].model.borrow().data.len() as u64;
        let (from_size, to_size) = (size(from), size(to));
        let (from_offset, to_offset) = (self.offset(from_size), self.offset(to_size));
        // "To the end" was refused as too big wherever it did not begin at 0.
        let fits = (SIZE_MAX - to_offset).min(SIZE_MAX - from_offset);
        let length = if to_offset + from_size <= SIZE_MAX && self.numbers.below(4) == 0 {
            u64::MAX
        } else {
            self.length().min(fits)
        };
        let (source, target) = (&self.handles[from], &self.handles[to]);
        let copied = source.file.copy_range(from_offset, &target.file, to_offset, length);
        let same = Rc::ptr_eq(&source.model, &target.model);
        let (low, high) = (from_offset.min(to_offset), from_offset.max(to_offset));
        let expected = source.model.borrow().part(from_offset, length as usize).to_vec();
        if same && high < low + expected.len() as u64 {
            assert!(matches!(copied, Err(Error::Invalid(_))), "{copied:?}");
            return "copy";
        }
        assert_eq!(copied.unwrap(), expected.len() as u64);
        if !expected.is_empty() {
            target.model.borrow_mut().put(to_offset, &expected);
        } else {
            target.model.borrow_mut().changed();
        }
        "copy"
    }

    fn seek(&mut self) -> &'static str {
        let Some(at) = self.handle(|_| true) else { return self.open() };
        let size = self.handles[at].model.borrow().data.len() as u64;
        let offset = self.offset(size);
        let handle = &self.handles[at];
        let model = handle.model.borrow();
        let zeros = |from: u64, to: u64| {
            model.data[from as usize..to as usize].iter().all(|&byte| byte == 0)
        };
        match handle.file.seek(offset, SeekTarget::Data) {
            Ok(data) => {
                assert!((offset..size).contains(&data), "data at {data} of {size}");
                assert!(zeros(offset, data), "data before {data}, from {offset} on");
            }
            Err(Error::NoData) => assert!(offset >= size || zeros(offset, size), "data is there"),
            Err(error) => panic!("{error}"),
        }
        match handle.file.seek(offset, SeekTarget::Hole) {
            Ok(hole) => {
                assert!((offset..=size).contains(&hole), "a hole at {hole} of {size}");
                let end = size.min((hole / 4096 + 1) * 4096);
                assert!(zeros(hole.min(end), end), "data in the hole at {hole}");
            }
            Err(Error::NoData) => assert!(offset >= size),
            Err(error) => panic!("{error}"),
        }
        "seek"
    }

    fn sync(&mut self) -> &'static str {
        let Some(at) = self.handle(|_| true) else { return self.open() };
        let mode = *self.numbers.of(&[SyncMode::Data, SyncMode::All]);
        let handle = &self.handles[at];
        handle.file.sync(mode).unwrap();
        let name = self
            .names
            .iter()
            .position(|named| named.as_ref().is_some_and(|named| Rc::ptr_eq(named, &handle.model)));
        if let Some(name) = name {
            let wrong = difference(&stored(&self.store, NAMES[name]), &handle.model.borrow().data);
            assert!(wrong.is_none(), "the store after fsync: {}", wrong.unwrap());
        }
        "sync"
    }

    fn stat(&mut self) -> &'static str {
        let Some(at) = self.handle(|_| true) else { return self.open() };
        let handle = &self.handles[at];
        let seen = handle.file.stat().unwrap();
        let mut model = handle.model.borrow_mut();
        assert_eq!(seen.size, model.data.len() as u64, "size by stat");
        match model.time {
            Some((time, true)) => assert_eq!(seen.mtime, time, "it was not changed"),
            Some((time, false)) => assert!(seen.mtime >= time, "{:?} after {time:?}", seen.mtime),
            None => {}
        }
        model.time = Some((seen.mtime, true));
        "stat"
    }

    fn set_time(&mut self) -> &'static str {
        let Some(at) = self.handle(|handle| handle.writes) else { return self.open() };
        let time = Timestamp {
            seconds: 1_000_000_000 + self.numbers.below(1000) as i64,
            nanoseconds: self.numbers.below(1_000_000_000) as u32,
        };
        let handle = &self.handles[at];
        let set = SetAttributes { mtime: Some(SetTime::At(time)), ..SetAttributes::default() };
        handle.file.set_attributes(&set).unwrap();
        handle.model.borrow_mut().time = Some((time, true));
        "set the time"
    }

    fn unlink(&mut self) -> &'static str {
        let at = self.numbers.below(NAMES.len() as u64) as usize;
        if self.names[at].take().is_some() {
            self.top.remove_file(NAMES[at]).unwrap();
        }
        "unlink"
    }

    /// Everything that can be read.
    fn compare(&mut self) -> &'static str {
        for handle in self.handles.iter().filter(|handle| handle.reads) {
            let wrong =
                difference(&handle.file.read_to_end().unwrap(), &handle.model.borrow().data);
            assert!(wrong.is_none(), "by an open file: {}", wrong.unwrap());
        }
        for (name, model) in NAMES.iter().zip(&self.names) {
            let Some(model) = model else { continue };
            let wrong = difference(&self.top.read_file(name).unwrap(), &model.borrow().data);
            assert!(wrong.is_none(), "`{name}`: {}", wrong.unwrap());
        }
        "compare"
    }

    /// The end; with `warning`, everything is written back before. The store then has the contents
    /// that were seen.
    fn end(mut self, warning: bool) {
        self.compare();
        let seen = |name: &str| self.top.stat(name).unwrap();
        let times: Vec<_> = NAMES.iter().zip(&self.names).collect();
        let times: Vec<_> =
            times.iter().map(|(name, model)| model.as_ref().map(|_| seen(name).mtime)).collect();
        let Self { kind, store, ledger, vfs, top, names, handles, .. } = self;
        drop(handles);
        drop(top);
        if warning {
            vfs.write_back_all().unwrap();
            assert_references_come_back(&vfs, &store);
            ledger.assert_settled();
        }
        drop(vfs);
        ledger.assert_settled();
        ledger.assert_alone();
        assert_eq!(store.forgotten_too_often(), 0);
        for ((name, model), time) in NAMES.iter().zip(&names).zip(times) {
            let Some(model) = model else { continue };
            let wrong = difference(&stored(&store, name), &model.borrow().data);
            assert!(wrong.is_none(), "the store's `{name}` at the end: {}", wrong.unwrap());
            let (vfs, _) = kind.mount(&store, VfsConfig::default());
            let again = root(&vfs).stat(name).unwrap();
            assert_eq!(again.size, model.borrow().data.len() as u64);
            assert_eq!(Some(again.mtime), time, "the time of the last change of `{name}`");
        }
    }
}

fn steps() -> u64 {
    std::env::var("UVFS_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(400)
}

/// Says where a run was when it fails.
struct Place(Kind, &'static str, u64, u64);

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}, {} caches, run {}, after step {}", self.0, self.1, self.2, self.3);
        }
    }
}

fn run(policy: PagePolicy, authority: Authority) {
    let seed = seed();
    let _watchdog = Watchdog::new(Duration::from_secs(60) + Duration::from_millis(steps()) * 50);
    for (at, opens) in [Opens::Stateless, Opens::Tracked].into_iter().enumerate() {
        let kind = Kind { policy, authority, opens };
        let small = VfsConfig { write_back_delay: Duration::from_millis(5), ..tiny() };
        let doubtful = VfsConfig { attr_timeout: Duration::ZERO, ..small.clone() };
        let runs = [("small", small), ("doubtful", doubtful), ("large", VfsConfig::default())];
        for (run, (what, config)) in runs.into_iter().enumerate() {
            let numbers = Numbers(seed ^ (at * 8 + run) as u64);
            let mut world = World::new(kind, kind.store(), config, numbers);
            let mut place = Place(kind, what, run as u64, 0);
            for step in 0..steps() {
                let _did = world.step();
                place.3 = step;
            }
            world.ledger.assert_right();
            let warning = world.numbers.below(2) == 0;
            world.end(warning);
        }
    }
}

#[test]
fn write_through_to_a_store_of_our_own_is_a_vector() {
    run(PagePolicy::WriteThrough, Authority::Sole);
}

#[test]
fn write_through_to_a_shared_store_is_a_vector() {
    run(PagePolicy::WriteThrough, Authority::Shared);
}

#[test]
fn write_back_to_a_store_of_our_own_is_a_vector() {
    run(PagePolicy::WriteBack, Authority::Sole);
}

#[test]
fn write_back_to_a_shared_store_is_a_vector() {
    run(PagePolicy::WriteBack, Authority::Shared);
}
