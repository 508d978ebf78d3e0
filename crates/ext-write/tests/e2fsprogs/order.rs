//! The order of writes and flushes, which no cut of a small image finds by chance: a crash has to come while the medium has
//! the next round of the log and not yet where the log begins. The background writes beside commits, so the test looks at
//! the contents of a write, not at the one before it.

use crate::images::{Workshop, open, tools};
use crate::operations::new;
use std::collections::{HashSet, VecDeque};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_ext::{Device, Kind, Place, ROOT};
use uvfs_ext_write::{Volume, WritableMemory, WriteDevice};

static ORDER: LockClass =
    LockClass::new(404, "test-order", "what was written since the last flush");

/// How blocks of a journal begin, and commit records.
const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];
const COMMIT: [u8; 8] = [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 2];
/// Where the journal's superblock has the first block of its log.
const START: Range<usize> = 28..32;
/// The data of all files.
const DATA: u8 = 7;
const BLOCK: usize = 1024;

#[derive(Debug, Default)]
struct Seen {
    /// Written since the last flush: to places of metadata, data, to the log.
    home: bool,
    data: bool,
    log: bool,
    /// Blocks of the log in use, by the beginning that is stable.
    in_use: VecDeque<u64>,
    /// The new beginning, which is not stable; 0 if there is none.
    beginning: Option<u64>,
    /// Contents in the log without a record, with one that is not stable, and with one that is.
    brought: Vec<Vec<u8>>,
    recorded: Vec<Vec<u8>>,
    stable: HashSet<Vec<u8>>,
    heads: u32,
    records: u32,
    broken: Vec<String>,
}

impl Seen {
    fn broke(&mut self, is_broken: bool, what: &str) {
        if is_broken {
            self.broken.push(what.into());
        }
    }

    /// Contents as the log has them.
    fn escaped(block: &[u8]) -> Vec<u8> {
        let mut block = block.to_vec();
        if block.starts_with(&MAGIC) {
            block[..4].fill(0);
        }
        block
    }

    fn write_log(&mut self, offset: u64, block: &[u8]) {
        let is_used = self.in_use.contains(&offset);
        self.broke(is_used, "log in its own room");
        self.in_use.push_back(offset);
        self.log = true;
        self.brought.push(block.to_vec());
    }

    fn write_record(&mut self) {
        self.records += 1;
        self.broke(self.log, "record behind log");
        self.broke(self.data, "record behind data");
        self.recorded.append(&mut self.brought);
    }

    fn write_head(&mut self, beginning: u64) {
        self.heads += 1;
        self.broke(self.home, "head behind home");
        self.beginning = Some(beginning);
    }

    fn write_place(&mut self, block: &[u8]) {
        if block.iter().all(|byte| [0, DATA].contains(byte)) {
            self.data = true;
            return;
        }
        self.home = true;
        let is_stable = self.stable.contains(&Self::escaped(block));
        self.broke(!is_stable, "home before its record is stable");
    }

    fn flush(&mut self, keeps_heads: bool) {
        (self.home, self.data, self.log) = (false, false, false);
        self.stable.extend(self.recorded.drain(..));
        if let Some(beginning) = self.beginning.take_if(|_| keeps_heads) {
            while self.in_use.front().is_some_and(|first| *first != beginning) {
                self.in_use.pop_front();
            }
        }
    }
}

/// A device that notes writes out of order.
#[derive(Debug)]
struct Watched {
    memory: WritableMemory,
    head: u64,
    log: Vec<Range<u64>>,
    /// A new beginning of the log becomes stable.
    keeps_heads: bool,
    seen: Mutex<Seen>,
}

impl Watched {
    fn new(bytes: Vec<u8>, keeps_heads: bool) -> Self {
        let image = open(bytes.clone());
        let size = u64::from(image.superblock().block_size);
        assert_eq!(size, BLOCK as u64);
        let journal = image.inode(image.superblock().journal_inode()).unwrap();
        let runs = image.map(&journal, 0..journal.size() / size).unwrap();
        let log: Vec<_> = runs
            .iter()
            .map(|run| match run.place {
                Place::At(block) => block * size..(block + run.length) * size,
                _ => panic!("the journal has a hole"),
            })
            .collect();
        let (memory, head) = (WritableMemory::new(bytes), log[0].start);
        Self { memory, head, log, keeps_heads, seen: Mutex::new(&ORDER, Seen::default()) }
    }

    /// Where block `number` of the journal is; 0 for 0, which is no block of the log.
    fn block_of_log(&self, number: u32) -> u64 {
        let mut left = u64::from(number) * BLOCK as u64;
        for run in self.log.iter().filter(|_| number > 0) {
            if left < run.end - run.start {
                return run.start + left;
            }
            left -= run.end - run.start;
        }
        0
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
        let bytes: Vec<u8> = from.iter().flat_map(|slice| slice.iter().copied()).collect();
        let mut seen = self.seen.lock();
        for (at, block) in (offset..).step_by(BLOCK).zip(bytes.chunks(BLOCK)) {
            if at == self.head {
                let start = u32::from_be_bytes(block[START].try_into().unwrap());
                seen.write_head(self.block_of_log(start));
            } else if !self.log.iter().any(|log| log.contains(&at)) {
                // The superblock says outside of the log that the image is in use.
                if at >= 2 * BLOCK as u64 {
                    seen.write_place(block);
                }
            } else if block.starts_with(&COMMIT) {
                seen.write_record();
            } else {
                seen.write_log(at, block);
            }
        }
        drop(seen);
        self.memory.write_at(offset, from)
    }

    fn flush(&self) -> io::Result<()> {
        self.seen.lock().flush(self.keeps_heads);
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.memory.discard(offset, length)
    }
}

/// The writes out of order in work that passes the ring of the log some times.
fn broken(bytes: Vec<u8>, keeps_heads: bool) -> Vec<String> {
    let device = Arc::new(Watched::new(bytes, keeps_heads));
    let volume = Volume::open(device.clone()).unwrap();
    for round in 0..400_u32 {
        let name = format!("f{}", round % 40);
        let file = match volume.lookup(ROOT, name.as_bytes()).unwrap() {
            Some(file) => file,
            None => volume.create(ROOT, name.as_bytes(), &new(Kind::Regular)).unwrap(),
        };
        volume.write(file, u64::from(round) * 3000, &[DATA; 5000]).unwrap();
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
    let found = broken(image.clone(), true);
    assert!(found.is_empty(), "{found:?}");
    let found = broken(image, false);
    assert!(found.iter().any(|one| one == "log in its own room"), "it would find it: {found:?}");
}
