//! One file against a plain vector, step by step, from many seeds.

use super::*;
use std::collections::BTreeSet;

const PAGE: u64 = 4096;
const SPAN: u64 = 700_000;

/// A file as simple as can be: its bytes, and which pages take space.
#[derive(Default)]
struct Model {
    bytes: Vec<u8>,
    pages: BTreeSet<u64>,
}

impl Model {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }
    fn grow(&mut self, size: u64) {
        self.bytes.resize(self.bytes.len().max(size as usize), 0);
    }
    fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        self.grow(end);
        self.bytes[offset as usize..end as usize].copy_from_slice(data);
        self.pages.extend(offset / PAGE..end.div_ceil(PAGE));
    }
    fn resize(&mut self, size: u64) {
        if size <= self.size() {
            self.pages.retain(|page| page * PAGE < size);
        }
        self.bytes.resize(size as usize, 0);
    }
    fn zero(&mut self, start: u64, end: u64) {
        let (size, start) = (self.bytes.len(), start as usize);
        self.bytes[start.min(size)..(end as usize).min(size)].fill(0);
    }
    fn punch(&mut self, start: u64, end: u64) {
        self.zero(start, end);
        self.pages.retain(|page| page * PAGE < start || (page + 1) * PAGE > end);
    }
    fn allocate(&mut self, mode: AllocateMode, start: u64, end: u64) {
        match mode {
            AllocateMode::PunchHole => return self.punch(start, end),
            AllocateMode::Zero | AllocateMode::ZeroKeepSize => self.zero(start, end),
            AllocateMode::Extend | AllocateMode::KeepSize => {}
        }
        self.pages.extend(start / PAGE..end.div_ceil(PAGE));
        if matches!(mode, AllocateMode::Extend | AllocateMode::Zero) {
            self.grow(end);
        }
    }
    fn seek(&self, offset: u64, target: SeekTarget) -> Option<u64> {
        let wanted = target == SeekTarget::Data;
        let found = (offset..self.size()).find(|at| self.pages.contains(&(at / PAGE)) == wanted);
        match target {
            _ if offset >= self.size() => None,
            SeekTarget::Data => found,
            SeekTarget::Hole => Some(found.unwrap_or(self.size())),
        }
    }
}

struct Run {
    memory: MemoryBackend,
    file: InodeId,
    model: Model,
    random: Random,
}

impl Run {
    fn new(seed: u64) -> Self {
        let memory = backend(1 << 24);
        let file = memory.file("a");
        Self { memory, file, model: Model::default(), random: Random::new(seed) }
    }

    fn step(&mut self) {
        let file = FileRef::unopened(self.file);
        let start = self.offset();
        let length = 1 + self.offset() / 4;
        match self.random.below(12) {
            0..=3 => {
                let fill = 1 + self.random.below(255) as u8;
                let data = vec![fill; length as usize];
                assert_eq!(self.memory.put(self.file, start, &data).unwrap(), data.len());
                self.model.write(start, &data);
            }
            4..=5 => {
                self.memory.resize(self.file, start).unwrap();
                self.model.resize(start);
            }
            6..=8 => {
                let mode = [
                    AllocateMode::Extend,
                    AllocateMode::KeepSize,
                    AllocateMode::PunchHole,
                    AllocateMode::PunchHole,
                    AllocateMode::Zero,
                    AllocateMode::ZeroKeepSize,
                ][self.random.below(6) as usize];
                self.memory.allocate(file, mode, start, length).unwrap();
                self.model.allocate(mode, start, start + length);
            }
            9 => self.copy(start, length),
            10 => self.check_read(start, length as usize),
            _ => {
                for target in [SeekTarget::Data, SeekTarget::Hole] {
                    let found = self.memory.seek(file, start, target).ok();
                    assert_eq!(found, self.model.seek(start, target), "{target:?} from {start}");
                }
            }
        }
        let attributes = self.memory.stat(self.file);
        assert_eq!(attributes.size, self.model.size());
        assert_eq!(attributes.blocks, self.model.pages.len() as u64 * 8);
    }

    /// Often at a page's or chunk's edge, where mistakes live.
    fn offset(&mut self) -> u64 {
        let offset = self.random.below(SPAN);
        match self.random.below(4) {
            0 => offset / PAGE * PAGE,
            1 => (offset / PAGE * PAGE).saturating_sub(1),
            2 => offset / 262_144 * 262_144,
            _ => offset,
        }
    }

    /// Checks only the content: the store decides how copied data over holes is laid out in pages.
    fn copy(&mut self, start: u64, length: u64) {
        let other = self.memory.make(ROOT, "copy", NewKind::Regular).unwrap();
        let (from, to) = (FileRef::unopened(self.file), FileRef::unopened(other));
        let count = self.memory.copy_range(from, start, to, 77, length).unwrap();
        assert_eq!(count, self.model.size().saturating_sub(start).min(length));
        let expected = self.memory.take(self.file, start, count as usize);
        assert_eq!(self.memory.take(other, 77, length as usize), expected);
        self.memory.drop_name(ROOT, "copy").unwrap();
    }

    fn check_read(&self, start: u64, length: usize) {
        let from = (start as usize).min(self.model.bytes.len());
        let to = (from + length).min(self.model.bytes.len());
        assert!(self.memory.take(self.file, start, length) == self.model.bytes[from..to]);
    }
}

#[test]
fn a_file_behaves_as_a_vector_of_bytes_and_a_set_of_pages() {
    for seed in 1..=30 {
        println!("seed {seed}");
        let mut run = Run::new(seed);
        let empty = run.memory.used();
        (0..300).for_each(|_| run.step());
        run.check_read(0, SPAN as usize * 2);
        run.memory.resize(run.file, 0).unwrap();
        assert_eq!(run.memory.used(), empty);
    }
}
