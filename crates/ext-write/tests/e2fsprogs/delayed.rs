//! Data that is written later than its blocks are reserved: it always finds them.

use crate::images::{Workshop, at, open, tools, whole};
use crate::operations::{new, volume};
use std::collections::BTreeSet;
use uvfs_ext::{Kind, ROOT, Timestamp};
use uvfs_ext_write::device::testing::Random;
use uvfs_ext_write::{Error, Grow, Privileges, Volume};

const PAGE: u64 = 4096;
const CHANGED: Timestamp = Timestamp { seconds: 1_234_567, nanoseconds: 89 };

/// A file as a page cache has it: its bytes, and the pages that the volume lacks.
#[derive(Default)]
struct Kept {
    number: u32,
    bytes: Vec<u8>,
    dirty: BTreeSet<u64>,
}

impl Kept {
    fn new(volume: &Volume, name: &str) -> Self {
        let number = volume.create(ROOT, name.as_bytes(), &new(Kind::Regular)).unwrap();
        Self { number, ..Self::default() }
    }

    /// Writes into pages; false if the volume is full.
    fn write(&mut self, volume: &Volume, offset: u64, bytes: &[u8]) -> bool {
        let end = offset + bytes.len() as u64;
        match volume.reserve(self.number, offset..end) {
            Ok(()) => {}
            Err(Error::NoSpace) => return false,
            Err(error) => panic!("{error}"),
        }
        self.bytes.resize(self.bytes.len().max(end as usize), 0);
        self.bytes[offset as usize..end as usize].copy_from_slice(bytes);
        self.dirty.extend(offset / PAGE..end.div_ceil(PAGE));
        true
    }

    /// Brings some neighbouring pages from `first` on to the volume.
    fn write_back(&mut self, volume: &Volume, first: u64, most: u64) {
        let end = (first..first + most).take_while(|page| self.dirty.contains(page)).last();
        let Some(last) = end else { return };
        let range = first * PAGE..((last + 1) * PAGE).min(self.bytes.len() as u64);
        let bytes = &self.bytes[range.start as usize..range.end as usize];
        let written = volume.write_back(self.number, range.start, bytes, CHANGED, Privileges::Stay);
        let written = written.unwrap_or_else(|error| panic!("pages {first} to {last}: {error}"));
        assert_eq!(written, bytes.len(), "accepted data is written");
        self.dirty.retain(|page| !(first..=last).contains(page));
    }

    fn write_all_back(&mut self, volume: &Volume) {
        while let Some(first) = self.dirty.first().copied() {
            self.write_back(volume, first, 64);
        }
    }

    fn cut(&mut self, volume: &Volume, length: u64) {
        volume.truncate(self.number, length).unwrap();
        self.bytes.resize(length as usize, 0);
        self.dirty.retain(|page| *page < length.div_ceil(PAGE));
    }
}

/// Takes every block that data may take.
fn fill(volume: &Volume) {
    let file = volume.create(ROOT, b"fill", &new(Kind::Regular)).unwrap();
    for length in [1 << 20, 1024] {
        while let Ok(()) = {
            let end = volume.inode(file).unwrap().size();
            volume.write(file, end, &vec![3; length])
        } {}
    }
}

fn options(block_size: &'static str) -> [&'static str; 8] {
    let journal = if block_size == "1024" { "size=1" } else { "size=4" };
    ["-t", "ext4", "-b", block_size, "-J", journal, "-N", "512"]
}

/// Accepted data was lost at write-back, because the nodes of a file with many extents were counted for blocks of 4 KiB: a
/// node of 1 KiB maps a quarter of that. The kept blocks hide the lack of 64 nodes.
#[test]
fn nodes_of_scattered_blocks_are_reserved_for_the_size_of_a_block() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let (device, volume) = volume(&workshop.image(&options("1024"), "16M", None));
    let mut file = Kept::new(&volume, "scattered");
    for page in 0..3600 {
        assert!(file.write(&volume, page * PAGE, &[page as u8 | 1; 1000]));
    }
    fill(&volume);
    // From the end: a leaf that is full is split again and again.
    for page in (0..3600).rev() {
        file.write_back(&volume, page, 1);
    }
    assert_eq!(volume.room().reserved_blocks, 0);
    volume.close().unwrap();
    let (status, printed, _) = workshop.fsck(&device.bytes(), &["-fn"]);
    assert_eq!(status, 0, "{printed}");
    let image = open(device.bytes());
    let inode = at(&image, "scattered");
    assert!(whole(&image, &inode) == file.bytes);
    assert!(inode.sectors() < 2 * (3600 + 200), "a page has one block that was written: {inode:?}");
}

/// A file of four extents has no node. Its fifth extent was promised a block and no node for it, and other files took the last
/// ones.
#[test]
fn a_file_whose_root_is_full_has_its_first_node_reserved() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let (device, volume) = volume(&workshop.image(&options("1024"), "8M", None));
    let mut files: Vec<Kept> =
        (0..150).map(|number| Kept::new(&volume, &format!("f{number}"))).collect();
    for file in &mut files {
        for block in 0..4 {
            assert!(file.write(&volume, block * 2 * PAGE, &[7; 1000]));
            file.write_all_back(&volume);
        }
        assert!(file.write(&volume, 8 * PAGE, &[8; 1000]));
    }
    fill(&volume);
    files.iter_mut().for_each(|file| file.write_all_back(&volume));
    assert_eq!(volume.room().reserved_blocks, 0);
    volume.close().unwrap();
    let (status, printed, _) = workshop.fsck(&device.bytes(), &["-fn"]);
    assert_eq!(status, 0, "{printed}");
}

/// Blocks that the running transaction has freed are no room for data that waits: a commit has to bring them first.
#[test]
fn freed_blocks_are_promised_behind_a_commit_only() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let (_, volume) = volume(&workshop.image(&options("1024"), "8M", None));
    let old = volume.create(ROOT, b"old", &new(Kind::Regular)).unwrap();
    volume.write(old, 0, &[1; 500 << 10]).unwrap();
    fill(&volume);
    let mut file = Kept::new(&volume, "new");
    assert!(!file.write(&volume, 0, &[2; 100 << 10]), "it is full");
    volume.sync().unwrap();
    volume.unlink(ROOT, b"old").unwrap();
    let commits = volume.counts().commits;
    assert!(file.write(&volume, 0, &[2; 400 << 10]));
    assert_eq!(volume.counts().commits, commits + 1);
    file.write_all_back(&volume);
    assert_eq!(volume.room().reserved_blocks, 0);
}

#[test]
fn reserved_blocks_are_taken_for_others_and_come_back() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let (_, volume) = volume(&workshop.image(&options("4096"), "32M", None));
    let free = volume.room().free_blocks;
    let room = volume.held_bytes();
    let mut file = Kept::new(&volume, "file");
    assert!(file.write(&volume, 0, &[1; 10 * PAGE as usize]));
    assert_eq!((volume.room().free_blocks, volume.room().reserved_blocks), (free, 11));
    assert!(volume.held_bytes() > room, "the list counts");
    volume.reserve(file.number, 5 * PAGE..12 * PAGE).unwrap();
    assert_eq!(volume.room().reserved_blocks, 13, "none twice, and one node");
    volume.unreserve(file.number, 10 * PAGE..u64::MAX);
    assert_eq!(volume.room().reserved_blocks, 11);
    file.cut(&volume, 2 * PAGE + 1);
    assert!(matches!(volume.room().reserved_blocks, 3 | 4), "{:?}", volume.room());
    volume.punch(file.number, PAGE..2 * PAGE).unwrap();
    file.bytes[PAGE as usize..2 * PAGE as usize].fill(0);
    file.dirty.remove(&1);
    file.write_all_back(&volume);
    assert_eq!((volume.room().free_blocks, volume.room().reserved_blocks), (free - 2, 0));
    let inode = volume.inode(file.number).unwrap();
    assert_eq!((inode.modified(), inode.size()), (CHANGED, 2 * PAGE + 1));
    assert!(inode.changed().seconds > CHANGED.seconds, "the cut was later");
    assert!(file.write(&volume, 0, &[5; 3 * PAGE as usize]));
    assert_eq!(volume.room().reserved_blocks, 1, "an overwrite reserves nothing");
    volume.unlink(ROOT, b"file").unwrap();
    assert_eq!(volume.room().reserved_blocks, 0, "a removal");
    assert!(matches!(volume.reserve(file.number, 0..1), Err(Error::NotFound)));
    volume.sync().unwrap();
    assert_eq!(volume.room().free_blocks, free);
}

/// Files written, cut, punched, preallocated and removed, on volumes that are nearly full: whatever was accepted is written, in
/// any order, and nothing stays reserved.
#[test]
fn accepted_data_is_written_on_a_full_volume() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    for (block_size, seeds) in [("1024", 0..6), ("2048", 6..8), ("4096", 8..10)] {
        let image = workshop.image(&options(block_size), "24M", None);
        for seed in seeds {
            let (device, volume) = volume(&image);
            let mut random = Random(seed);
            let mut files: Vec<Kept> =
                (0..8).map(|number| Kept::new(&volume, &format!("f{number}"))).collect();
            let balloon = volume.create(ROOT, b"balloon", &new(Kind::Regular)).unwrap();
            for _ in 0..1500 {
                let one = random.below(8) as usize;
                let file = &mut files[one];
                let offset = random.below(600 * PAGE);
                let most = if random.below(4) == 0 { 200_000 } else { 3000 };
                let length = 1 + random.below(most);
                match random.below(24) {
                    0..12 => {
                        let bytes = vec![random.next() as u8; length as usize];
                        file.write(&volume, offset, &bytes);
                    }
                    12..16 => {
                        let next = file.dirty.range(offset / PAGE..).next().copied();
                        if let Some(first) = next {
                            file.write_back(&volume, first, 1 + random.below(64));
                        }
                    }
                    16 => file.write_all_back(&volume),
                    17 => {
                        file.write_all_back(&volume);
                        volume.punch(file.number, offset..offset + length).unwrap();
                        let most = file.bytes.len();
                        let end = most.min((offset + length) as usize);
                        file.bytes[end.min(offset as usize)..end].fill(0);
                    }
                    18 => {
                        file.write_all_back(&volume);
                        let range = offset..offset + length;
                        match volume.allocate(file.number, range.clone(), Grow::Size) {
                            Ok(()) => {
                                let most = file.bytes.len().max(range.end as usize);
                                file.bytes.resize(most, 0);
                            }
                            Err(Error::NoSpace) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    19 => file.cut(&volume, offset),
                    20 => {
                        let name = format!("f{one}");
                        volume.unlink(ROOT, name.as_bytes()).unwrap();
                        *file = Kept::new(&volume, &name);
                    }
                    // All that is left, and some of it back.
                    21 => {
                        let end = volume.inode(balloon).unwrap().size();
                        let _ = volume.write(balloon, end, &vec![9; 4 << 20]);
                    }
                    22 => {
                        let end = volume.inode(balloon).unwrap().size();
                        volume.truncate(balloon, end.saturating_sub(300_000)).unwrap();
                    }
                    _ => volume.sync().unwrap(),
                }
            }
            files.iter_mut().for_each(|file| file.write_all_back(&volume));
            assert_eq!(volume.room().reserved_blocks, 0, "seed {seed}");
            volume.close().unwrap();
            let (status, printed, _) = workshop.fsck(&device.bytes(), &["-fn"]);
            assert_eq!(status, 0, "seed {seed}: {printed}");
            let image = open(device.bytes());
            for (number, file) in files.iter().enumerate() {
                let found = whole(&image, &at(&image, &format!("f{number}")));
                assert!(found == file.bytes, "seed {seed}: f{number}: {}", found.len());
            }
        }
    }
}
