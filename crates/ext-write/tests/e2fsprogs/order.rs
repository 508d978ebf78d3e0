//! The order of writes and flushes, which no cut of a small image finds by chance: a crash has to come while the medium has
//! the next round of the log and not yet where the log begins.

use crate::images::{Workshop, open, tools};
use crate::operations::new;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_ext::{Device, Kind, Place, ROOT};
use uvfs_ext_write::{Volume, WritableMemory, WriteDevice};

static ORDER: LockClass =
    LockClass::new(404, "test-order", "what was written since the last flush");

/// How a commit record begins, behind the sign of the journal.
const COMMIT: [u8; 8] = [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 2];

/// The target of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrote {
    /// The journal's superblock: where the log begins.
    Head,
    /// A block of the log.
    Log,
    /// A commit record.
    Record,
    /// A place of the volume.
    Place,
}

#[derive(Debug, Default)]
struct Seen {
    /// Since the last flush.
    since: Vec<Wrote>,
    heads: u32,
    records: u32,
    broken: Vec<String>,
}

/// A device that leaves one flush out on request, and notes writes out of order.
#[derive(Debug)]
struct Watched {
    memory: WritableMemory,
    head: u64,
    log: Vec<Range<u64>>,
    /// The flush behind a write of the head does nothing.
    lazy: bool,
    seen: Mutex<Seen>,
}

impl Watched {
    fn new(bytes: Vec<u8>, lazy: bool) -> Self {
        let image = open(bytes.clone());
        let size = u64::from(image.superblock().block_size);
        let journal = image.inode(image.superblock().journal_inode()).unwrap();
        let runs = image.map(&journal, 0..journal.size() / size).unwrap();
        let log: Vec<_> = runs
            .iter()
            .map(|run| match run.place {
                Place::At(block) => block * size..(block + run.length) * size,
                _ => panic!("the journal has a hole"),
            })
            .collect();
        let memory = WritableMemory::new(bytes);
        Self { memory, head: log[0].start, log, lazy, seen: Mutex::new(&ORDER, Seen::default()) }
    }
}

impl Device for Watched {
    fn length(&self) -> u64 {
        self.memory.length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.memory.read_at(offset, into)
    }
}

impl WriteDevice for Watched {
    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> io::Result<()> {
        let what = match self.log.iter().any(|log| log.contains(&offset)) {
            _ if offset == self.head => Wrote::Head,
            true if from[0].starts_with(&COMMIT) => Wrote::Record,
            true => Wrote::Log,
            false => Wrote::Place,
        };
        let mut seen = self.seen.lock();
        let not_behind: &[Wrote] = match what {
            // The log's room is in use until the log's new beginning is stable.
            Wrote::Log => &[Wrote::Head, Wrote::Record],
            // The blocks that it completes are written before it.
            Wrote::Record => &[Wrote::Log, Wrote::Place, Wrote::Head],
            // Blocks that the log drops are in their places before.
            Wrote::Head => &[Wrote::Place, Wrote::Record],
            // Contents come to their places behind their record.
            Wrote::Place => &[Wrote::Record],
        };
        if let Some(before) = seen.since.iter().find(|before| not_behind.contains(before)) {
            let broken = format!("{what:?} behind {before:?} without a flush");
            seen.broken.push(broken);
        }
        seen.since.push(what);
        seen.heads += u32::from(what == Wrote::Head);
        seen.records += u32::from(what == Wrote::Record);
        drop(seen);
        self.memory.write_at(offset, from)
    }

    fn flush(&self) -> io::Result<()> {
        let mut seen = self.seen.lock();
        if !(self.lazy && seen.since.last() == Some(&Wrote::Head)) {
            seen.since.clear();
        }
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.memory.discard(offset, length)
    }
}

/// The writes out of order in work that passes the ring of the log some times.
fn broken(bytes: Vec<u8>, lazy: bool) -> Vec<String> {
    let device = Arc::new(Watched::new(bytes, lazy));
    let volume = Volume::open(device.clone()).unwrap();
    for round in 0..400_u32 {
        let name = format!("f{}", round % 40);
        let file = match volume.lookup(ROOT, name.as_bytes()).unwrap() {
            Some(file) => file,
            None => volume.create(ROOT, name.as_bytes(), &new(Kind::Regular)).unwrap(),
        };
        volume.write(file, u64::from(round) * 3000, &[7; 5000]).unwrap();
        if round % 7 == 6 {
            volume.unlink(ROOT, name.as_bytes()).unwrap();
        }
        volume.sync().unwrap();
    }
    volume.close().unwrap();
    let seen = device.seen.lock();
    assert!(seen.heads > 3 && seen.records > 100, "{} times, {}", seen.heads, seen.records);
    seen.broken.clone()
}

/// Without the flush behind the log's beginning every test passed; a crash would have replayed the older transactions over
/// newer ones that had begun to take their room.
#[test]
fn a_flush_stands_between_whatever_depends_on_each_other() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let image = workshop.image(&["-t", "ext4", "-b", "1024", "-J", "size=1"], "4M", None);
    let found = broken(image.clone(), false);
    assert!(found.is_empty(), "{found:?}");
    let found = broken(image, true);
    assert!(
        found.iter().any(|one| one.starts_with("Log behind Head")),
        "it would find it: {found:?}"
    );
}
