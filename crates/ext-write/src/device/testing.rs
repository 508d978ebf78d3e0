//! Devices for tests: one records its writes, so that a test can build the state after a crash at any moment; one fails as
//! planned.
//!
//! # Why
//! A medium may bring writes that were not flushed in any order, in part, or never. Writes and flushes take time, and threads
//! overlap: a flush that returned covers the writes that had returned before it began. The states that a crash can leave are
//! therefore: all writes that such a flush covers, and any subset of the sectors of all other writes that had begun. A superblock of two
//! sectors with one checksum over both is not safe on such a medium, also as the kernel writes it: [`Record::with_whole`] names bytes
//! that are not torn. Weakness: a medium that breaks the sector it is writing is not imitated.

use super::{WritableMemory, WriteDevice};
use crate::lock_order::EXT_RECORD;
use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use uvfs_concurrent::lock::Mutex;
use uvfs_ext::Device;

/// The unit that reaches the medium whole.
const SECTOR: u64 = 512;

/// An event at one moment. The end of a write or flush names the moment of its beginning.
#[derive(Debug, Clone)]
enum Event {
    WriteBegins { offset: u64, bytes: Vec<u8> },
    WriteEnds(usize),
    FlushBegins,
    FlushEnds(usize),
}

/// A device in memory that records when each write and each flush began and ended.
pub struct Recorder {
    memory: WritableMemory,
    before: Vec<u8>,
    events: Mutex<Vec<Event>>,
    while_flushing: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Recorder({:?})", self.memory)
    }
}

/// What a [`Recorder`] recorded: the image before, and the events.
#[derive(Debug, Clone)]
pub struct Record {
    before: Vec<u8>,
    events: Vec<Event>,
    whole: Range<u64>,
}

impl Recorder {
    /// Records the writes to an image of these bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        let memory = WritableMemory::new(bytes.clone());
        let events = Mutex::new(&EXT_RECORD, Vec::new());
        Self { memory, before: bytes, events, while_flushing: Box::new(|| ()) }
    }

    /// Adds a call of `call` to each flush, between its beginning and its end.
    #[must_use]
    pub fn while_flushing(self, call: impl Fn() + Send + Sync + 'static) -> Self {
        Self { while_flushing: Box::new(call), ..self }
    }

    /// Records an event; returns its moment.
    fn note(&self, event: Event) -> usize {
        let mut events = self.events.lock();
        events.push(event);
        events.len() - 1
    }

    /// How much happened so far: a moment at which the image can be cut ([`Record::cut`]).
    pub fn moment(&self) -> usize {
        self.events.lock().len()
    }

    /// Everything so far.
    pub fn record(&self) -> Record {
        Record { before: self.before.clone(), events: self.events.lock().clone(), whole: 0..0 }
    }
}

impl Device for Recorder {
    fn length(&self) -> u64 {
        self.memory.length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.memory.read_at(offset, into)
    }
}

impl WriteDevice for Recorder {
    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes = from.iter().flat_map(|slice| slice.iter().copied()).collect();
        let begun = self.note(Event::WriteBegins { offset, bytes });
        self.memory.write_at(offset, from)?;
        self.note(Event::WriteEnds(begun));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let begun = self.note(Event::FlushBegins);
        (self.while_flushing)();
        self.note(Event::FlushEnds(begun));
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.memory.discard(offset, length)
    }
}

/// How a medium treats flushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushes {
    /// Earlier writes survive.
    Kept,
    /// Nothing: as a medium that lies. Only for tests that prove that they can fail.
    Dropped,
}

impl Record {
    /// How many events there are; the last moment.
    pub fn moments(&self) -> usize {
        self.events.len()
    }

    /// Returns the record of a medium that tears no write of these bytes.
    #[must_use]
    pub fn with_whole(self, whole: Range<u64>) -> Self {
        Self { whole, ..self }
    }

    /// How many writes began that change some of these bytes of the device.
    pub fn writes_to(&self, range: Range<u64>) -> usize {
        let changes = |event: &&Event| match event {
            Event::WriteBegins { offset, bytes } => {
                *offset < range.end && range.start < offset + bytes.len() as u64
            }
            _ => false,
        };
        self.events.iter().filter(changes).count()
    }

    /// The moments right behind each flush.
    pub fn flushes(&self) -> Vec<usize> {
        let flush =
            |(at, event): (usize, &Event)| matches!(event, Event::FlushEnds(_)).then_some(at + 1);
        self.events.iter().enumerate().filter_map(flush).collect()
    }

    /// The image if all writes that began until `moment` are there, and nothing later.
    pub fn cut(&self, moment: usize) -> Vec<u8> {
        let mut image = self.before.clone();
        for event in &self.events[..moment] {
            if let Event::WriteBegins { offset, bytes } = event {
                put(&mut image, *offset, bytes);
            }
        }
        image
    }

    /// The writes that survive a crash at `moment` for sure, by the moment at which each began.
    fn stable(&self, moment: usize) -> BTreeSet<usize> {
        let flushed = self.events[..moment].iter().filter_map(|event| match event {
            Event::FlushEnds(begun) => Some(*begun),
            _ => None,
        });
        let covered = flushed.max().unwrap_or(0);
        let ended = self.events[..covered].iter().filter_map(|event| match event {
            Event::WriteEnds(begun) => Some(*begun),
            _ => None,
        });
        ended.collect()
    }

    /// The image if, of what was written until `moment` and not flushed by then, a random part is there that `seed` chooses:
    /// each sector by itself, or whole writes, or nothing behind some point.
    pub fn torn(&self, moment: usize, seed: u64, flushes: Flushes) -> Vec<u8> {
        let stable = match flushes {
            Flushes::Kept => self.stable(moment),
            Flushes::Dropped => BTreeSet::new(),
        };
        let mut image = self.before.clone();
        let mut random = Random(seed);
        let kept_in_256 = [32, 128, 224][(random.next() % 3) as usize];
        let whole = random.next().is_multiple_of(2);
        for (begun, event) in self.events[..moment].iter().enumerate() {
            let Event::WriteBegins { offset, bytes } = event else { continue };
            if stable.contains(&begun) {
                put(&mut image, *offset, bytes);
                continue;
            }
            let all = random.next() % 256 < kept_in_256;
            let (mut offset, mut rest) = (*offset, bytes.as_slice());
            while !rest.is_empty() {
                let end = match self.whole.contains(&offset) {
                    true => self.whole.end,
                    false => (offset + 1).next_multiple_of(SECTOR),
                };
                let length = (end - offset).min(rest.len() as u64) as usize;
                if if whole { all } else { random.next() % 256 < kept_in_256 } {
                    put(&mut image, offset, &rest[..length]);
                }
                offset += length as u64;
                rest = &rest[length..];
            }
        }
        image
    }
}

fn put(image: &mut [u8], offset: u64, bytes: &[u8]) {
    let at = offset as usize;
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Numbers that a seed repeats (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// The next one.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// One below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// When a [`Faulty`] device fails.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// So many writes succeed; each later one fails and writes half of its bytes.
    pub writes: Option<u64>,
    /// So many flushes succeed.
    pub flushes: Option<u64>,
    /// One fails, and those behind it succeed again.
    pub once: bool,
}

/// A device that fails by plan.
#[derive(Debug)]
pub struct Faulty<D> {
    device: D,
    left: Mutex<Faults>,
}

impl<D: WriteDevice> Faulty<D> {
    /// `device`, without faults until [`Faulty::plan`].
    pub fn new(device: D) -> Self {
        Self { device, left: Mutex::new(&EXT_RECORD, Faults::default()) }
    }

    /// From now on it fails by `faults`.
    pub fn plan(&self, faults: Faults) {
        *self.left.lock() = faults;
    }

    /// The device behind it.
    pub fn device(&self) -> &D {
        &self.device
    }
}

/// Takes one from `left`; false if there was none.
fn take(left: &mut Option<u64>, once: bool) -> bool {
    match left {
        None => true,
        Some(0) => {
            if once {
                *left = None;
            }
            false
        }
        Some(left) => {
            *left -= 1;
            true
        }
    }
}

fn broken() -> io::Error {
    io::Error::from(rustix::io::Errno::IO)
}

impl<D: WriteDevice> Device for Faulty<D> {
    fn length(&self) -> u64 {
        self.device.length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.device.read_at(offset, into)
    }
}

impl<D: WriteDevice> WriteDevice for Faulty<D> {
    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> io::Result<()> {
        let succeeds = {
            let left = &mut *self.left.lock();
            take(&mut left.writes, left.once)
        };
        if succeeds {
            return self.device.write_at(offset, from);
        }
        let bytes: Vec<u8> = from.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.device.write_at(offset, &[IoSlice::new(&bytes[..bytes.len() / 2])])?;
        Err(broken())
    }

    fn flush(&self) -> io::Result<()> {
        let succeeds = {
            let left = &mut *self.left.lock();
            take(&mut left.flushes, left.once)
        };
        if succeeds { self.device.flush() } else { Err(broken()) }
    }

    fn check(&self) -> io::Result<()> {
        self.device.check()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.device.discard(offset, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(device: &impl WriteDevice, offset: u64, fill: u8, length: usize) {
        device.write_at(offset, &[IoSlice::new(&vec![fill; length])]).unwrap();
    }

    #[test]
    fn a_cut_keeps_what_was_flushed_and_any_part_of_the_rest() {
        const PIECE: usize = 512;
        let device = Recorder::new(vec![0; 8 * PIECE]);
        write(&device, 0, 1, 2 * PIECE);
        device.flush().unwrap();
        let flushed = device.moment();
        write(&device, 2 * PIECE as u64, 2, 2 * PIECE);
        write(&device, 0, 3, PIECE);
        let last = device.moment();
        write(&device, 7 * PIECE as u64, 9, PIECE);
        let record = device.record();
        assert_eq!((record.flushes(), record.moments()), (vec![flushed], last + 2));
        let pieces = |image: Vec<u8>| -> Vec<u8> {
            image.chunks(PIECE).map(|piece| piece[0].min(piece[PIECE - 1])).collect()
        };
        assert_eq!(pieces(record.cut(0)), [0; 8]);
        assert_eq!(pieces(record.cut(flushed)), [1, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(pieces(record.cut(last)), [3, 1, 2, 2, 0, 0, 0, 0]);
        let torn = |flushes| -> std::collections::BTreeSet<Vec<u8>> {
            (0..500).map(|seed| pieces(record.torn(last, seed, flushes))).collect()
        };
        let kept = torn(Flushes::Kept);
        assert_eq!(kept.len(), 8, "three sectors that are there or not: {kept:?}");
        assert!(kept.iter().all(|image| image[0] != 0 && image[1] == 1 && image[7] == 0));
        assert!(torn(Flushes::Dropped).iter().any(|image| image[1] == 0), "a flush that lies");
        assert_eq!(record.torn(last, 7, Flushes::Kept), record.torn(last, 7, Flushes::Kept));
        assert_eq!((record.writes_to(0..PIECE as u64), record.writes_to(0..0)), (2, 0));
        let record = record.with_whole(2 * PIECE as u64..4 * PIECE as u64);
        for seed in 0..500 {
            let image = pieces(record.torn(last, seed, Flushes::Kept));
            assert!(matches!(image[2..4], [0, 0] | [2, 2]), "{image:?}");
        }
    }

    /// A flush was recorded as a point, so everything that had been written before its end counted as stable.
    #[test]
    fn a_flush_covers_what_had_been_written_when_it_began() {
        let (meanwhile, started) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let (go, start) = (Mutex::new(&EXT_RECORD, meanwhile.1), started.0);
        let device = Recorder::new(vec![0; 512]).while_flushing(move || {
            start.send(()).unwrap();
            go.lock().recv().unwrap();
        });
        let (late, last) = std::thread::scope(|scope| {
            let flush = scope.spawn(|| device.flush().unwrap());
            started.1.recv().unwrap();
            write(&device, 100, 7, 10);
            let late = device.moment();
            meanwhile.0.send(()).unwrap();
            flush.join().unwrap();
            meanwhile.0.send(()).unwrap();
            let first = device.moment();
            device.flush().unwrap();
            assert!(late < first);
            (first, device.moment())
        });
        let record = device.record();
        let lost = |moment| (0..50).any(|seed| record.torn(moment, seed, Flushes::Kept)[100] == 0);
        assert!(lost(late), "the flush that returned had begun before the write");
        assert!(!lost(last), "the next one had not");
    }

    #[test]
    fn a_faulty_device_fails_by_plan() {
        let device = Faulty::new(WritableMemory::new(vec![0; 100]));
        write(&device, 0, 1, 10);
        device.plan(Faults { writes: Some(1), flushes: Some(0), once: false });
        write(&device, 10, 1, 10);
        let error = device.write_at(20, &[IoSlice::new(&[1; 10])]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5), "EIO");
        assert!(device.flush().is_err());
        assert_eq!(device.device().bytes()[15..30], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0]);
        device.plan(Faults::default());
        device.flush().unwrap();
    }
}
