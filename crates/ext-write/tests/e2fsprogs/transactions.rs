//! Transactions: whole or not at all, whatever a crash leaves; one commit for all that wait; nothing after a failure.
//!
//! The blocks of a file serve as registers: an operation writes one number into some of them.

use crate::images::{Workshop, at, open, tools, whole};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use uvfs_concurrent::lock::{Condvar, LockClass, Mutex};
use uvfs_ext::{Device, Image, Place, Source};
use uvfs_ext_write::device::testing::{Faults, Faulty, Flushes, Random, Recorder};
use uvfs_ext_write::store::{Handle, Owner, Role, Store};
use uvfs_ext_write::{Error, WritableMemory, WriteDevice, log_place, recover};

const REGISTERS: u64 = 12;
/// The contents of a register that was never set; mke2fs would make a hole of zeros.
const NEVER: u8 = 200;
/// How blocks of a journal begin: such contents are stored otherwise.
const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

/// Adds nothing when a transaction ends; records freed blocks.
struct NoOwner(Mutex<Vec<Range<u64>>>);

static FREED: LockClass = LockClass::new(401, "test-freed", "blocks that may be used again");
static GATE: LockClass = LockClass::new(402, "test-gate", "whether flushes return");

impl NoOwner {
    fn new() -> Self {
        Self(Mutex::new(&FREED, Vec::new()))
    }
}

impl Owner for NoOwner {
    fn closing(&self, _: &mut Handle<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn committed(&self, freed: Vec<Range<u64>>) {
        self.0.lock().extend(freed);
    }
}

/// An image with a file of registers, open as a journal is by a writer.
fn image(workshop: &Workshop, options: &[&str]) -> Vec<u8> {
    let tree = workshop.path("tree");
    if !tree.exists() {
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("file"), vec![NEVER; REGISTERS as usize * 1024]).unwrap();
    }
    let mut bytes = workshop.image(
        &[&["-t", "ext4", "-b", "1024", "-J", "size=1"][..], options].concat(),
        "3M",
        Some(&tree),
    );
    let mut superblock = open(bytes.clone()).superblock().clone();
    superblock.set_needs_recovery(true);
    bytes[1024..2048].copy_from_slice(&superblock.encode());
    bytes
}

/// A store on `device`, and where its registers are.
fn store(device: Arc<dyn WriteDevice>) -> (Store, Vec<u64>) {
    let mut source: Option<Arc<Source>> = None;
    let image = Image::open_with(device.clone(), |of| {
        source = Some(of.clone());
        Box::new(of)
    });
    let image = image.unwrap();
    let log = log_place(&image, &source.unwrap()).unwrap();
    let file = at(&image, "file");
    let places = (0..REGISTERS).map(|register| {
        let runs = image.map(&file, register..register + 1).unwrap();
        let Place::At(place) = runs[0].place else { panic!("{runs:?}") };
        place
    });
    let places = places.collect();
    let store = Store::new(device, 1024, 256, log).unwrap();
    store.checkpoint().unwrap();
    (store, places)
}

/// A block that holds `number`, sometimes one that begins as blocks of journals do.
fn contents(number: u8) -> Vec<u8> {
    let mut block = vec![number; 1024];
    if number.is_multiple_of(3) {
        block[..4].copy_from_slice(&MAGIC);
    }
    block
}

fn set(handle: &mut Handle<'_>, place: u64, number: u8) {
    let new = contents(number);
    handle.modify(place, Role::Inodes, |bytes| bytes.copy_from_slice(&new)).unwrap();
}

fn number(block: &[u8]) -> u8 {
    if block[1023] == NEVER { 0 } else { block[1023] }
}

/// The registers of an image after its journal was replayed.
fn registers(image: &Image) -> Vec<u8> {
    let bytes = whole(image, &at(image, "file"));
    let value = |block: &[u8]| {
        assert!(block == contents(block[1023]), "a block that was never written");
        number(block)
    };
    bytes.chunks(1024).map(value).collect()
}

/// The events of a run of transactions.
struct Ran {
    /// The moments at which they were stable: (moment, number).
    stable: Vec<(usize, u8)>,
    /// The moments of commits that needed a checkpoint.
    checkpoints: Vec<usize>,
}

fn run(device: &Arc<Recorder>, transactions: u8) -> Ran {
    let (store, places) = store(device.clone());
    let no_owner = NoOwner::new();
    let mut stable = vec![(device.moment(), 0)];
    let mut random = Random(3);
    let mut checkpoints = Vec::new();
    for number in 1..=transactions {
        // The operation changes all registers; smaller ones before it change none that is looked at.
        let mut handle = store.begin(20).unwrap().unwrap();
        for place in &places {
            set(&mut handle, *place, number);
        }
        drop(handle);
        let before = (device.moment(), store.counts().checkpoints);
        if random.below(3) > 0 {
            store.commit(store.running(), &no_owner).unwrap();
            stable.push((device.moment(), number));
        }
        if random.below(8) == 0 {
            store.checkpoint().unwrap();
        }
        if store.counts().checkpoints > before.1 {
            checkpoints.extend(before.0..device.moment());
        }
    }
    Ran { stable, checkpoints }
}

/// A commit record of which half a block was written, over the rest of an older round of the ring, made the image one
/// with a damaged journal.
#[test]
fn a_transaction_is_there_whole_or_not_at_all_wherever_it_is_cut() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    for options in [&["-O", "64bit"][..], &["-O", "^64bit"], &["-O", "^metadata_csum"]] {
        let device = Arc::new(Recorder::new(image(&workshop, options)));
        let Ran { stable, checkpoints } = run(&device, 120);
        assert!(checkpoints.len() > 7, "the log was full at times: {checkpoints:?}");
        let record = device.record();
        let mut moments: Vec<usize> = record.flushes();
        moments.extend((0..record.moments()).step_by(5));
        moments.extend(std::iter::repeat_n(checkpoints, 4).flatten());
        let (mut seen, mut lost) = (BTreeSet::new(), 0);
        for (seed, moment) in moments.into_iter().enumerate() {
            let promised =
                stable.iter().rfind(|(at, _)| *at <= moment).map_or(0, |(_, number)| *number);
            let torn = record.torn(moment, seed as u64, Flushes::Kept);
            let found = registers(&open(torn.clone()));
            assert!(found.iter().all(|number| *number == found[0]), "{moment} {seed}: {found:?}");
            assert!(found[0] >= promised, "{moment} {seed}: {promised} was stable, {found:?}");
            seen.insert(found[0]);
            // The control: with a medium that drops flushes, the same test finds losses.
            let lying = record.torn(moment, seed as u64, Flushes::Dropped);
            let image = Image::open(Arc::new(uvfs_ext::MemoryDevice::new(lying)));
            lost += usize::from(image.map_or(true, |image| {
                let bytes = whole(&image, &at(&image, "file"));
                bytes.chunks(1024).any(|block| number(block) < promised)
            }));
            if seed % 40 == 0 {
                let (status, printed, theirs) =
                    workshop.fsck(&torn, &["-fy", "-E", "journal_only"]);
                assert!(status <= 1, "{printed}");
                assert_eq!(registers(&open(theirs.clone())), found, "e2fsck replays the same");
                let (status, printed, _) = workshop.fsck(&theirs, &["-fn"]);
                assert_eq!(status, 0, "{printed}");
                let ours: Arc<dyn WriteDevice> = Arc::new(WritableMemory::new(torn));
                recover(&ours).unwrap();
                let mut bytes = vec![0; ours.length() as usize];
                ours.read_at(0, &mut bytes).unwrap();
                let image = open(bytes.clone());
                assert_eq!((image.recovery(), registers(&image)), (None, found), "in its place");
                let (status, printed, _) = workshop.fsck(&bytes, &["-fn"]);
                assert_eq!(status, 0, "{printed}");
            }
        }
        assert!(seen.len() > 20 && lost > 20, "{seen:?}, {lost} lost without flushes");
    }
}

/// A crash while a journal is brought to the image left half of it, and the journal empty.
#[test]
fn a_recovery_that_is_cut_is_done_again() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let device = Arc::new(Recorder::new(image(&workshop, &[])));
    run(&device, 40);
    let crashed = device.record().cut(device.moment());
    let before = registers(&open(crashed.clone()));
    assert!(before[0] > 30);
    let device = Arc::new(Recorder::new(crashed));
    let writer: Arc<dyn WriteDevice> = device.clone();
    assert!(recover(&writer).unwrap().is_some());
    assert_eq!(recover(&writer).unwrap(), None, "once is enough");
    let record = device.record();
    for moment in 0..=record.moments() {
        for seed in 0..4 {
            let again: Arc<dyn WriteDevice> =
                Arc::new(WritableMemory::new(record.torn(moment, seed, Flushes::Kept)));
            recover(&again).unwrap();
            let mut bytes = vec![0; again.length() as usize];
            again.read_at(0, &mut bytes).unwrap();
            assert_eq!(registers(&open(bytes)), before, "{moment} {seed}");
        }
    }
}

/// A freed block held data again when an older version of it, metadata, came back from the journal over it.
#[test]
fn freed_metadata_does_not_come_back_over_data() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let device = Arc::new(Recorder::new(image(&workshop, &[])));
    let (store, places) = store(device.clone());
    let no_owner = NoOwner::new();
    let change = |number| {
        let mut handle = store.begin(2).unwrap().unwrap();
        set(&mut handle, places[0], number);
    };
    change(1);
    store.commit(store.running(), &no_owner).unwrap();
    change(2);
    let mut handle = store.begin(2).unwrap().unwrap();
    handle.forget(places[0]..places[0] + 1);
    handle.free(places[0]..places[0] + 1);
    drop(handle);
    assert_eq!(*no_owner.0.lock(), [], "a crash now would bring its owner back");
    store.commit(store.running(), &no_owner).unwrap();
    let freed: Vec<_> = std::mem::take(&mut *no_owner.0.lock());
    assert_eq!(freed, [Range { start: places[0], end: places[0] + 1 }]);
    let first = |image: &Image| whole(image, &at(image, "file"))[0];
    // Data of another file, which is written past the journal.
    device.write_at(places[0] * 1024, &[IoSlice::new(&[77; 1024])]).unwrap();
    device.flush().unwrap();
    assert_eq!(first(&open(device.record().cut(device.moment()))), 77);
    store.checkpoint().unwrap();
    assert_eq!(first(&open(device.record().cut(device.moment()))), 77);
    // Metadata again, in a later transaction.
    let mut handle = store.begin(2).unwrap().unwrap();
    handle.replace(places[0], Role::Inodes, contents(5));
    drop(handle);
    store.commit(store.running(), &no_owner).unwrap();
    assert_eq!(first(&open(device.record().cut(device.moment()))), 5);
}

/// A device whose flushes wait until they may go on.
#[derive(Debug)]
struct Gate {
    device: Recorder,
    /// Flushes that may return, and those that wait.
    state: Mutex<(u32, u32)>,
    changed: Condvar,
}

impl Gate {
    fn new(bytes: Vec<u8>) -> Self {
        let state = Mutex::new(&GATE, (u32::MAX, 0));
        Self { device: Recorder::new(bytes), state, changed: Condvar::default() }
    }

    fn close(&self) {
        self.state.lock().0 = 0;
    }

    fn open(&self) {
        self.state.lock().0 = u32::MAX;
        self.changed.notify_all();
    }

    fn wait_for_flush(&self) {
        let mut state = self.state.lock();
        while state.1 == 0 {
            self.changed.wait(&mut state);
        }
    }
}

impl Device for Gate {
    fn length(&self) -> u64 {
        self.device.length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.device.read_at(offset, into)
    }
}

impl WriteDevice for Gate {
    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> io::Result<()> {
        self.device.write_at(offset, from)
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.1 += 1;
        self.changed.notify_all();
        while state.0 == 0 {
            self.changed.wait(&mut state);
        }
        state.1 -= 1;
        drop(state);
        self.device.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.device.discard(offset, length)
    }
}

/// While a transaction is written, operations change the blocks that it froze, and readers see the changes; the frozen contents
/// are written. One commit serves all threads that want the next transaction stable.
#[test]
fn operations_go_on_during_a_commit_and_one_commit_serves_all_waiters() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let gate = Arc::new(Gate::new(image(&workshop, &[])));
    let (store, places) = store(gate.clone());
    let no_owner = NoOwner::new();
    let change = |number| {
        let mut handle = store.begin(3).unwrap().unwrap();
        for place in &places[..3] {
            set(&mut handle, *place, number);
        }
        handle.transaction()
    };
    let first = change(1);
    gate.close();
    let before = store.counts().commits;
    let last = thread::scope(|scope| {
        scope.spawn(|| store.commit(first, &no_owner).unwrap());
        gate.wait_for_flush();
        // The commit waits for the device with its blocks frozen.
        let waiting: Vec<_> = [2, 3, 4].map(change).into();
        assert_eq!(waiting, [first + 1; 3], "the next transaction runs");
        assert_eq!(store.read(places[0]).unwrap()[500], 4, "readers see the newest");
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let (store, no_owner) = (&store, &no_owner);
                scope.spawn(move || store.commit(first + 1, no_owner).unwrap())
            })
            .collect();
        gate.open();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        first + 1
    });
    assert_eq!(store.running(), last + 1);
    assert_eq!(store.counts().commits - before, 2, "one for the first, one for the other three");
    // Of the commits behind the last checkpoint, a cut behind the first one's record shows the frozen contents.
    let record = gate.device.record();
    let seen: Vec<u8> =
        record.flushes().into_iter().map(|at| registers(&open(record.cut(at)))[0]).collect();
    let mut steps = seen.clone();
    steps.dedup();
    assert_eq!(steps, [0, 1, 4], "{seen:?}: 2 and 3 were never stable alone");
}

/// A commit takes whole operations: it waits for the open handle, and a handle that begins meanwhile is in the next one.
#[test]
fn a_commit_waits_for_open_handles_and_new_ones_wait_for_it() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let device = Arc::new(Recorder::new(image(&workshop, &[])));
    let (store, places) = store(device.clone());
    let no_owner = NoOwner::new();
    let mut handle = store.begin(4).unwrap().unwrap();
    let transaction = handle.transaction();
    set(&mut handle, places[0], 1);
    thread::scope(|scope| {
        let commit = scope.spawn(|| store.commit(transaction, &no_owner).unwrap());
        // A test cannot see that the thread waits, but that it has not gone past this point.
        for _ in 0..50 {
            thread::yield_now();
        }
        assert!(!commit.is_finished());
        // Before the other one may: of two handles of one transaction the later wins.
        set(&mut handle, places[1], 1);
        let late = scope.spawn(|| {
            let mut handle = store.begin(4).unwrap().unwrap();
            set(&mut handle, places[1], 9);
            handle.transaction()
        });
        drop(handle);
        commit.join().unwrap();
        let late = late.join().unwrap();
        // It began before the commit closed the transaction, or behind it.
        let stable = registers(&open(device.record().cut(device.moment())));
        assert_eq!(stable[0], 1, "{stable:?}");
        assert_eq!(stable[1], if late == transaction { 9 } else { 1 }, "{stable:?}");
    });
}

/// After a failed write the log's state is unknown, so nothing more is written.
#[test]
fn a_failed_commit_ends_writing_and_leaves_what_was_stable() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let plans = (0..3).map(|writes| Faults { writes: Some(writes), ..Faults::default() });
    let plans =
        plans.chain((0..2).map(|flushes| Faults { flushes: Some(flushes), ..Faults::default() }));
    let mut ended = 0;
    for plan in plans {
        let device = Arc::new(Faulty::new(WritableMemory::new(image(&workshop, &[]))));
        let (store, places) = store(device.clone());
        let no_owner = NoOwner::new();
        let change = |number| {
            let mut handle = store.begin(2)?.unwrap();
            set(&mut handle, places[0], number);
            Ok::<_, Error>(())
        };
        change(1).unwrap();
        store.commit(store.running(), &no_owner).unwrap();
        change(2).unwrap();
        device.plan(plan);
        let done = store.commit(store.running(), &no_owner);
        let found = registers(&open(device.device().bytes()))[0];
        if done.is_ok() {
            assert_eq!(found, 2, "{plan:?}");
            continue;
        }
        ended += 1;
        assert!(matches!(done, Err(Error::Ended(_))), "{plan:?} {done:?}");
        // Of a transaction whose commit failed it is unknown whether it is there; it is whole in either case.
        assert!(found == 1 || found == 2, "{plan:?} {found}");
        device.plan(Faults::default());
        assert!(matches!(change(3), Err(Error::Ended(_))), "{plan:?}: no new operations");
        assert!(matches!(store.checkpoint(), Err(Error::Ended(_))) && store.close_log().is_err());
        assert!(store.failure().is_some());
        assert_eq!(store.read(places[0]).unwrap()[1000], 2, "reading goes on");
    }
    assert_eq!(ended, 4);
}

/// More blocks than there are buffers: an evicted block is read again with its last change, wherever that is.
#[test]
fn what_is_evicted_comes_back_from_where_it_is_newest() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let device = Arc::new(Recorder::new(image(&workshop, &[])));
    let (store, places) = store(device);
    let no_owner = NoOwner::new();
    for round in 1..5 {
        let mut handle = store.begin(20).unwrap().unwrap();
        for (register, place) in (0..).zip(&places) {
            set(&mut handle, *place, 10 * round + register);
        }
        drop(handle);
        if round % 2 == 0 {
            store.commit(store.running(), &no_owner).unwrap();
        }
        if round == 4 {
            store.checkpoint().unwrap();
        }
        for block in 1500..3000 {
            store.read(block).unwrap();
        }
        for (register, place) in (0..).zip(&places) {
            assert_eq!(store.read(*place).unwrap()[700], 10 * round + register);
        }
    }
}

/// Each lookup of a name computed the checksum of its block again: most of the cost of a lookup.
#[test]
fn a_block_is_judged_once_while_it_stays_in_memory() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let device = Arc::new(WritableMemory::new(image(&workshop, &[])));
    let (store, places) = store(device);
    let asked = Mutex::new(&GATE, 0);
    let read = || {
        store.read_checked(places[0], &|bytes| {
            *asked.lock() += 1;
            if bytes[0] == NEVER { Ok(()) } else { Err(Error::Invalid("odd")) }
        })
    };
    assert!(read().is_ok() && read().is_ok());
    assert_eq!(*asked.lock(), 1);
    // A forgotten block may be reused, so it is read and checked again.
    let mut handle = store.begin(4).unwrap().unwrap();
    handle.replace(places[0], Role::Inodes, vec![1; 1024]);
    assert!(read().is_ok(), "what is written is in order by itself");
    handle.forget(places[0]..places[0] + 1);
    handle.replace(places[0], Role::Inodes, vec![1; 1024]);
    assert!(read().is_err());
    assert!(read().is_err(), "what is not in order stays so");
    assert_eq!(*asked.lock(), 3);
}
