//! Devices for tests: one that records its writes, so that a crash at any moment can be looked at, and one that fails by
//! plan.
//!
//! # Why
//! A medium may bring writes that were not flushed in any order, in part, or never. The states that a crash can leave are
//! therefore: everything up to the last flush that returned, and any subset of the pieces written since. A piece is a page, or
//! what [`Record::with_pieces`] says: 512 bytes is the most that media promise to write as one, but a superblock of two
//! such pieces with one checksum over both is not safe on them whoever writes it. Weakness: a medium that breaks the piece it
//! is writing is not imitated.

use super::{WritableMemory, WriteDevice};
use crate::lock_order::EXT_RECORD;
use std::io::{self, IoSlice};
use uvfs_concurrent::lock::Mutex;
use uvfs_ext::Device;

/// What reaches the medium as one, unless it is said otherwise.
const PAGE: u64 = 4096;

#[derive(Debug, Clone)]
enum Event {
    Write { offset: u64, bytes: Vec<u8> },
    Flush,
}

/// A device in memory that records each write and each flush.
#[derive(Debug)]
pub struct Recorder {
    memory: WritableMemory,
    before: Vec<u8>,
    events: Mutex<Vec<Event>>,
}

/// What a [`Recorder`] recorded: the image before, and what happened.
#[derive(Debug, Clone)]
pub struct Record {
    before: Vec<u8>,
    events: Vec<Event>,
    piece: u64,
}

impl Recorder {
    /// Records what is done to an image of these bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        let memory = WritableMemory::new(bytes.clone());
        Self { memory, before: bytes, events: Mutex::new(&EXT_RECORD, Vec::new()) }
    }

    /// How much happened so far: a moment at which the image can be cut ([`Record::cut`]).
    pub fn moment(&self) -> usize {
        self.events.lock().len()
    }

    /// Everything so far.
    pub fn record(&self) -> Record {
        Record { before: self.before.clone(), events: self.events.lock().clone(), piece: PAGE }
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
        self.memory.write_at(offset, from)?;
        let bytes = from.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.events.lock().push(Event::Write { offset, bytes });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.events.lock().push(Event::Flush);
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.memory.discard(offset, length)
    }
}

/// What a medium makes of flushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushes {
    /// What was written before them is there.
    Kept,
    /// Nothing: as a medium that lies. Only for tests that prove that they can fail.
    Dropped,
}

impl Record {
    /// How many events there are; the last moment.
    pub fn moments(&self) -> usize {
        self.events.len()
    }

    /// The same on a medium that writes so many bytes as one.
    #[must_use]
    pub fn with_pieces(self, piece: u64) -> Self {
        Self { piece, ..self }
    }

    /// The moments right behind each flush.
    pub fn flushes(&self) -> Vec<usize> {
        let flush = |(at, event): (usize, &Event)| matches!(event, Event::Flush).then_some(at + 1);
        self.events.iter().enumerate().filter_map(flush).collect()
    }

    /// The image if all that was written until `moment` is there, and nothing later.
    pub fn cut(&self, moment: usize) -> Vec<u8> {
        let mut image = self.before.clone();
        for event in &self.events[..moment] {
            if let Event::Write { offset, bytes } = event {
                put(&mut image, *offset, bytes);
            }
        }
        image
    }

    /// The image if, of what was written until `moment` and not flushed by then, a random part is there that `seed` chooses:
    /// each piece by itself, or whole writes, or nothing behind some point.
    pub fn torn(&self, moment: usize, seed: u64, flushes: Flushes) -> Vec<u8> {
        let is_flush = |event: &Event| matches!(event, Event::Flush);
        let stable = match flushes {
            Flushes::Kept => self.events[..moment].iter().rposition(is_flush).unwrap_or(0),
            Flushes::Dropped => 0,
        };
        let mut image = self.cut(stable);
        let mut random = Random(seed);
        let kept_in_256 = [32, 128, 224][(random.next() % 3) as usize];
        let whole = random.next().is_multiple_of(2);
        for event in &self.events[stable..moment] {
            let Event::Write { offset, bytes } = event else { continue };
            let all = random.next() % 256 < kept_in_256;
            let (mut offset, mut rest) = (*offset, bytes.as_slice());
            while !rest.is_empty() {
                let length = (self.piece - offset % self.piece).min(rest.len() as u64) as usize;
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

    /// What lies behind it.
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
        let record = device.record().with_pieces(512);
        assert_eq!((record.flushes(), record.moments()), (vec![flushed], last + 1));
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
        assert_eq!(kept.len(), 8, "three pieces that are there or not: {kept:?}");
        assert!(kept.iter().all(|image| image[0] != 0 && image[1] == 1 && image[7] == 0));
        assert!(torn(Flushes::Dropped).iter().any(|image| image[1] == 0), "a flush that lies");
        assert_eq!(record.torn(last, 7, Flushes::Kept), record.torn(last, 7, Flushes::Kept));
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
