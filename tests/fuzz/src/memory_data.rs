//! File data of the memory store against two plain vectors.
//!
//! The input is a script of records of `RECORD_BYTES`; its first byte chooses the room of the
//! store, so that space runs out, too. Two files are written, cut, punched, searched and copied
//! into each other. After every step both have the size of their vectors, and in the end the bytes.
//! The places of data and holes are checked by their meaning: a hole that a search skips reads as
//! zeros, and a fully written range is data.
//!
//! A third file takes offsets near the largest possible, for which there can be no vector: there,
//! nothing may panic and no size may pass 2^63 - 1.

use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_vfs::{
    AllocateMode, Backend, Caller, Error, FileRef, InodeId, Name, NewKind, NewNode, SeekTarget,
    SetAttributes,
};

const RECORD_BYTES: usize = 8;
const STEPS_MAX: usize = 64;
/// Offsets stay below it: a few of the store's chunks.
const SPAN: u64 = 1 << 20;
const PAGE: u64 = 4096;
const CHUNK: u64 = 256 << 10;

/// One input.
///
/// # Panics
/// If it is treated as it should not be.
pub fn run(bytes: &[u8]) {
    let Some((&room, script)) = bytes.split_first() else { return };
    let size_bytes = if room % 4 == 0 { (16 + u64::from(room)) << 10 } else { 16 << 20 };
    let mut run = Run::new(size_bytes);
    for record in script.as_chunks::<RECORD_BYTES>().0.iter().take(STEPS_MAX) {
        run.step(record);
    }
    run.end();
}

struct Run {
    memory: MemoryBackend,
    files: [Modelled; 2],
    far: FileRef,
    empty_bytes: u64,
}

struct Modelled {
    file: FileRef,
    bytes: Vec<u8>,
}

impl Run {
    fn new(size_bytes: u64) -> Self {
        let config = MemoryConfig { size_bytes, ..MemoryConfig::default() };
        let memory = MemoryBackend::new(config).expect("room for a few files");
        let [one, two, far] = ["one", "two", "far"].map(|name| create(&memory, name));
        let files = [one, two].map(|file| Modelled { file, bytes: Vec::new() });
        let empty_bytes = counter(&memory, "memory_bytes");
        Self { memory, files, far, empty_bytes }
    }

    fn step(&mut self, record: &[u8; RECORD_BYTES]) {
        let [what, fill, place @ .., length0, length1] = *record;
        let which = usize::from(what >> 7);
        let start = offset(place);
        let length = length(u16::from_le_bytes([length0, length1]));
        match what & 0xf {
            0..=3 => self.write(which, start, length, fill),
            4 => self.append(which, length, fill),
            5..=6 => self.resize(which, start),
            7..=9 => self.allocate(which, fill, start, length),
            10 => self.copy(which, fill, start, length),
            11..=12 => self.search(which, start),
            13 => self.read(which, start, length),
            _ => self.far(fill, place, length),
        }
        for modelled in &self.files {
            let attributes = self.memory.inodes().attributes(modelled.file).expect("it exists");
            assert_eq!(attributes.size, modelled.bytes.len() as u64);
        }
        let used = counter(&self.memory, "memory_bytes");
        assert!(used <= counter(&self.memory, "memory_bytes_max"));
    }

    fn write(&mut self, which: usize, start: u64, length: u64, fill: u8) {
        let data = pattern(fill, length);
        let modelled = &mut self.files[which];
        match self.memory.data().write(&Caller::root(), modelled.file, start, &data) {
            Ok(count) => {
                modelled.put(start, &data[..count]);
                if count > 0 {
                    let found = self.memory.data().seek(modelled.file, start, SeekTarget::Data);
                    assert_eq!(found.expect("what was written is data"), start);
                }
            }
            Err(error) => assert!(matches!(error, Error::NoSpace), "{error}"),
        }
    }

    fn append(&mut self, which: usize, length: u64, fill: u8) {
        let modelled = &mut self.files[which];
        // Else a long script grows the vectors, not the coverage.
        if modelled.bytes.len() as u64 > 2 * SPAN {
            return;
        }
        let data = pattern(fill, length);
        match self.memory.data().append(&Caller::root(), modelled.file, &data) {
            Ok(count) => modelled.put(modelled.bytes.len() as u64, &data[..count]),
            Err(error) => assert!(matches!(error, Error::NoSpace), "{error}"),
        }
    }

    fn resize(&mut self, which: usize, size: u64) {
        let modelled = &mut self.files[which];
        resize(&self.memory, modelled.file, size).expect("a size takes no room");
        modelled.bytes.resize(size as usize, 0);
    }

    fn allocate(&mut self, which: usize, mode: u8, start: u64, length: u64) {
        let mode = allocate_mode(mode);
        let modelled = &mut self.files[which];
        match self.memory.data().allocate(modelled.file, mode, start, length) {
            Ok(()) => modelled.allocate(mode, start as usize, (start + length) as usize),
            Err(error) => assert!(matches!(error, Error::NoSpace), "{error}"),
        }
    }

    fn copy(&mut self, which: usize, selector: u8, start: u64, length: u64) {
        let to = if selector & 1 == 0 { 1 - which } else { which };
        let at = u64::from(selector >> 1) * (SPAN / 128) + u64::from(selector >> 5);
        let (from_file, to_file) = (self.files[which].file, self.files[to].file);
        let copied = self.memory.data().copy_range(from_file, start, to_file, at, length);
        let size = self.files[which].bytes.len() as u64;
        let whole = length.min(size.saturating_sub(start));
        match copied {
            Ok(count) => {
                assert!(count <= whole && (count > 0 || whole == 0));
                let from = start.min(size) as usize;
                let bytes = self.files[which].bytes[from..from + count as usize].to_vec();
                self.files[to].put(at, &bytes);
            }
            Err(Error::Invalid(_)) => assert!(which == to && start.abs_diff(at) < whole),
            Err(error) => assert!(matches!(error, Error::NoSpace), "{error}"),
        }
    }

    fn search(&self, which: usize, start: u64) {
        let Modelled { file, bytes } = &self.files[which];
        let size = bytes.len() as u64;
        let data = self.memory.data().seek(*file, start, SeekTarget::Data);
        let hole = self.memory.data().seek(*file, start, SeekTarget::Hole);
        if start >= size {
            assert!(matches!(data, Err(Error::NoData)) && matches!(hole, Err(Error::NoData)));
            return;
        }
        let data = match data {
            Ok(data) => data,
            Err(Error::NoData) => size,
            Err(error) => panic!("{error}"),
        };
        assert!(bytes[start as usize..data as usize].iter().all(|&byte| byte == 0));
        let hole = hole.expect("there is a hole at the end of every file");
        assert!((start..=size).contains(&data) && (start..=size).contains(&hole));
        assert_eq!(data == start, hole > start, "one of the two is here");
        if hole < size {
            let after = self.memory.data().seek(*file, hole, SeekTarget::Data).unwrap_or(size);
            assert!(after > hole && bytes[hole as usize..after as usize].iter().all(|&b| b == 0));
        }
    }

    fn read(&self, which: usize, start: u64, length: u64) {
        let Modelled { file, bytes } = &self.files[which];
        let mut into = vec![0xee; length as usize];
        let count = self.memory.data().read(*file, start, &mut into).expect("a regular file");
        let from = bytes.len().min(start as usize);
        let to = bytes.len().min((start + length) as usize);
        assert!(into[..count] == bytes[from..to], "read {count} bytes at {start}");
        assert!(into[count..].iter().all(|&byte| byte == 0xee), "bytes past the end were touched");
    }

    /// Offsets for which only limits can be checked.
    fn far(&mut self, mode: u8, place: [u8; 4], length: u64) {
        let base = [i64::MAX as u64, u64::MAX, 1 << 62, 1 << 44][usize::from(mode >> 6)];
        let start =
            base.wrapping_add(1 << 11).wrapping_sub(u64::from(u32::from_le_bytes(place)) >> 8);
        let (memory, far, one) = (&self.memory, self.far, self.files[0].file);
        let written =
            memory.data().write(&Caller::root(), far, start, &pattern(mode, length)).is_ok();
        assert!(!written || start < i64::MAX as u64);
        let _ = resize(memory, far, start.wrapping_add(length));
        let _ = memory.data().seek(far, start, SeekTarget::Data);
        let _ = memory.data().seek(far, start.wrapping_sub(length), SeekTarget::Hole);
        let _ = memory.data().read(far, start, &mut [0; 64]);
        let _ = memory.data().copy_range(one, 0, far, start, length);
        let _ = memory.data().copy_range(far, start, far, 0, u64::MAX.wrapping_sub(start) & 0xffff);
        // A reservation of an exabyte is refused for lack of room, page by page: only small ranges
        // here.
        let _ = memory.data().allocate(far, allocate_mode(mode), start, length);
        assert!(memory.inodes().attributes(far).expect("it exists").size <= i64::MAX as u64);
        resize(memory, far, 0).expect("a cut takes no room");
    }

    /// Every byte is right, and removing everything frees the room.
    fn end(self) {
        for modelled in &self.files {
            let mut into = vec![0xee; modelled.bytes.len() + 1];
            let count =
                self.memory.data().read(modelled.file, 0, &mut into).expect("a regular file");
            assert!(into[..count] == modelled.bytes[..], "{count} bytes at the end");
        }
        for modelled in &self.files {
            resize(&self.memory, modelled.file, 0).expect("a cut takes no room");
        }
        assert_eq!(counter(&self.memory, "memory_bytes"), self.empty_bytes);
    }
}

impl Modelled {
    fn grow(&mut self, size: usize) {
        self.bytes.resize(self.bytes.len().max(size), 0);
    }

    fn put(&mut self, start: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let start = start as usize;
        self.grow(start + data.len());
        self.bytes[start..start + data.len()].copy_from_slice(data);
    }

    fn allocate(&mut self, mode: AllocateMode, start: usize, end: usize) {
        if matches!(mode, AllocateMode::Extend | AllocateMode::Zero) {
            self.grow(end);
        }
        if !matches!(mode, AllocateMode::Extend | AllocateMode::KeepSize) {
            let size = self.bytes.len();
            self.bytes[start.min(size)..end.min(size)].fill(0);
        }
    }
}

fn create(memory: &MemoryBackend, name: &str) -> FileRef {
    let name = Name::new(name.as_bytes()).expect("a plain name");
    let new = NewNode { kind: NewKind::Regular, mode: 0o644, umask: 0 };
    let entry = memory
        .creation()
        .unwrap()
        .create(&Caller::root(), InodeId::ROOT, name, &new)
        .expect("room for it");
    FileRef::unopened(entry.inode)
}

fn resize(memory: &MemoryBackend, file: FileRef, size: u64) -> Result<(), Error> {
    let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
    memory.inodes().set_attributes(&Caller::root(), file, &set).map(drop)
}

fn counter(memory: &MemoryBackend, name: &str) -> u64 {
    let counters = memory.counters();
    counters.iter().find(|counter| counter.0 == name).expect("a counter of that name").1
}

fn allocate_mode(selector: u8) -> AllocateMode {
    match selector % 8 {
        0 => AllocateMode::Extend,
        1 => AllocateMode::KeepSize,
        2 => AllocateMode::Zero,
        3 => AllocateMode::ZeroKeepSize,
        _ => AllocateMode::PunchHole,
    }
}

/// Bytes that depend on their place: a shift by one is seen.
fn pattern(fill: u8, length: u64) -> Vec<u8> {
    (0..length).map(|at| fill.wrapping_add(at as u8).wrapping_add((at >> 8) as u8)).collect()
}

/// Mostly a page or two, sometimes more than a chunk: long runs cost time and rarely find more.
fn length(word: u16) -> u64 {
    let length = u64::from(word);
    1 + if length % 16 == 0 { length * 5 } else { length / 8 }
}

/// Often at the edge of a page or of a chunk of pages, where mistakes live.
fn offset(place: [u8; 4]) -> u64 {
    let [manner, place @ ..] = place;
    let offset = u64::from(u32::from_le_bytes([place[0], place[1], place[2], 0])) % SPAN;
    match manner % 6 {
        0 => offset / PAGE * PAGE,
        1 => (offset / PAGE * PAGE).saturating_sub(1),
        2 => offset / CHUNK * CHUNK,
        3 => (offset / CHUNK * CHUNK).saturating_sub(1),
        4 => offset % (2 * PAGE),
        _ => offset,
    }
}
