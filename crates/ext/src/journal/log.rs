//! The log of a journal: its superblock, and the blocks of its transactions in the order of the ring.
//!
//! # Boundary
//! Finds committed transactions. [`super`] decides which of their blocks count.
//!
//! # Why
//! The whole ring is passed once at most, whatever the blocks in it say. A transaction that was begun and not committed is
//! no error but the usual end of a log.

use super::{Change, MAGIC, is_later};
use crate::error::{Error, Result};
use crate::format::checksum::crc32c;
use crate::format::inode::Kind;
use crate::format::layout::{JournalHeader, JournalSuper, view};
use crate::format::map::{Passed, Place, Run, windows};
use crate::image::Image;
use std::collections::HashMap;
use zerocopy::{FromBytes, IntoBytes};

pub(crate) const DESCRIPTOR: u32 = 1;
pub(crate) const COMMIT: u32 = 2;
const SUPER_V1: u32 = 3;
pub(crate) const SUPER_V2: u32 = 4;
pub(crate) const REVOKE: u32 = 5;

pub(crate) const INCOMPAT_WIDE: u32 = 0x2;
pub(crate) const INCOMPAT_ASYNC: u32 = 0x4;
pub(crate) const INCOMPAT_SUMS_V2: u32 = 0x8;
pub(crate) const INCOMPAT_SUMS_V3: u32 = 0x10;
pub(crate) const INCOMPAT_FAST: u32 = 0x20;
pub(crate) const INCOMPAT_KNOWN: u32 = 0x3F;
pub(crate) const CHECKSUM_CRC32C: u8 = 4;

pub(crate) const TAG_ESCAPED: u32 = 1;
pub(crate) const TAG_SAME_UUID: u32 = 2;
pub(crate) const TAG_LAST: u32 = 8;

/// Pieces that the log may lie in.
const PIECES_MAX: usize = 1 << 16;
/// Blocks that transactions may bring and free together, before those of the last are counted: sixteen gigabytes of blocks of 4 KiB.
const ENTRIES_MAX: usize = 1 << 22;

/// Bytes of the checksum at the end of descriptors and revocations.
pub(crate) const TAIL: usize = 4;
pub(crate) const COMMIT_SUM_AT: usize = 16;

/// A journal.
pub(super) struct Log<'a> {
    image: &'a Image,
    runs: Vec<Run>,
    head: Box<JournalSuper>,
    /// One more than the last block of the ring.
    end: u32,
    seed: u32,
    incompat: u32,
}

/// The changes of complete transactions.
#[derive(Debug, Default)]
pub(super) struct Committed {
    pub(super) transactions: u32,
    pub(super) changes: Vec<Change>,
    /// The last transaction that freed a block.
    pub(super) revoked: HashMap<u64, u32>,
    pub(super) fast_commits: bool,
}

/// A transaction whose commit block was not read yet.
#[derive(Default)]
struct Pending {
    changes: Vec<Change>,
    revoked: Vec<u64>,
    damage: Option<Error>,
}

impl<'a> Log<'a> {
    pub(super) fn open(image: &'a Image) -> Result<Self> {
        let superblock = image.superblock();
        let number = superblock.raw.journal_inode.get();
        if number == 0 {
            return Err(Error::Unsupported(
                "a journal on another device that has to be replayed".into(),
            ));
        }
        let inode = image.inode(number)?;
        if inode.kind() != Some(Kind::Regular) || inode.links() == 0 {
            return Err(fault("its inode is no file").in_inode(number));
        }
        let mut passed = Passed::default();
        let runs = image.map_on(&inode, 0..1, &mut passed)?;
        let first = runs.first().filter(|run| run.logical == 0);
        let Some(Run { place: Place::At(first), .. }) = first.copied() else {
            return Err(fault("it has no beginning").in_inode(number));
        };
        let mut bytes = vec![0; superblock.block_size as usize];
        image.source().read(first * u64::from(superblock.block_size), &mut bytes)?;
        let head = JournalSuper::read_from_prefix(&bytes).map_err(|_| fault("it is short"))?.0;
        let mut log = Self {
            image,
            runs,
            end: 0,
            seed: crc32c(!0, &head.uuid),
            incompat: 0,
            head: head.into(),
        };
        log.check(inode.size()).map_err(|error| error.at_block(first))?;
        for window in windows(1..log.head.blocks.get().into()) {
            log.runs.extend(image.map_on(&inode, window, &mut passed)?);
            if log.runs.len() > PIECES_MAX {
                return Err(fault("it is in more pieces than are read").in_inode(number));
            }
        }
        Ok(log)
    }

    /// Checks the superblock.
    fn check(&mut self, size: u64) -> Result<()> {
        let head = &self.head;
        let kind = head.kind.get();
        if head.magic.get() != MAGIC || !matches!(kind, SUPER_V1 | SUPER_V2) {
            return Err(fault("its superblock has no magic number"));
        }
        let block_size = self.image.superblock().block_size;
        if head.block_size.get() != block_size {
            return Err(fault("its blocks have another size than the volume's"));
        }
        self.incompat = if kind == SUPER_V2 { head.incompat.get() } else { 0 };
        let unknown = self.incompat & !INCOMPAT_KNOWN;
        if unknown != 0 {
            return Err(Error::Unsupported(format!("journal features {unknown:#x}")));
        }
        if self.incompat & INCOMPAT_ASYNC != 0 {
            return Err(Error::Unsupported("a journal with asynchronous commits".into()));
        }
        if self.has_sums() {
            let both = INCOMPAT_SUMS_V2 | INCOMPAT_SUMS_V3;
            if self.incompat & both == both || head.checksum_type != CHECKSUM_CRC32C {
                return Err(fault("its checksums are of no kind that can be"));
            }
            let mut copy = head.clone();
            copy.checksum = 0.into();
            if crc32c(!0, copy.as_bytes()) != head.checksum.get() {
                return Err(fault("the checksum of its superblock is wrong"));
            }
        }
        let blocks = head.blocks.get();
        let fast = match (self.incompat & INCOMPAT_FAST != 0, head.fast_commit_blocks.get()) {
            (false, _) => 0,
            (true, 0) => 256,
            (true, blocks) => blocks,
        };
        let (first, start) = (head.first.get(), head.start.get());
        self.end = blocks.saturating_sub(fast);
        if u64::from(blocks) > size / u64::from(block_size) || first == 0 || first >= self.end {
            return Err(fault("its size cannot be"));
        }
        if start != 0 && !(first..self.end).contains(&start) {
            return Err(fault("its log begins outside it"));
        }
        Ok(())
    }

    fn has_sums(&self) -> bool {
        self.incompat & (INCOMPAT_SUMS_V2 | INCOMPAT_SUMS_V3) != 0
    }

    /// The block of the volume that is block `at` of the journal.
    fn place(&self, at: u32) -> Result<u64> {
        let at = u64::from(at);
        let index = self.runs.partition_point(|run| run.logical + run.length <= at);
        match self.runs.get(index) {
            Some(Run { logical, place: Place::At(block), .. }) if *logical <= at => {
                Ok(block + (at - logical))
            }
            _ => Err(fault("it has a hole")),
        }
    }

    /// Reads block `place` of the volume.
    pub(super) fn read(&self, place: u64, into: &mut [u8]) -> Result<()> {
        self.image.source().read(place * into.len() as u64, into)
    }

    /// The block of the ring after `at`.
    fn after(&self, at: u32) -> u32 {
        if at + 1 >= self.end { self.head.first.get() } else { at + 1 }
    }

    /// The checksum that a tag has for a block of data.
    pub(super) fn data_checksum(&self, sequence: u32, bytes: &[u8]) -> u32 {
        let sum = crc32c(crc32c(self.seed, &sequence.to_be_bytes()), bytes);
        if self.incompat & INCOMPAT_SUMS_V3 != 0 { sum } else { sum & 0xFFFF }
    }

    /// Passes through the log, from its beginning to the first block that does not belong to it.
    pub(super) fn committed(&mut self) -> Result<Committed> {
        let mut committed = Committed::default();
        let mut at = self.head.start.get();
        if at == 0 {
            return Ok(committed);
        }
        let mut sequence = self.head.sequence.get();
        let mut pending = Pending::default();
        let mut last_commit = 0;
        let mut passed = 0_u32;
        let mut bytes = vec![0; self.image.superblock().block_size as usize];
        loop {
            if passed > self.end {
                return Err(fault("its log is longer than itself"));
            }
            let entries = [pending.changes.len(), pending.revoked.len()].into_iter().sum::<usize>()
                + committed.changes.len()
                + committed.revoked.len();
            if entries > ENTRIES_MAX {
                return Err(fault("its log has more than is replayed in memory"));
            }
            let place = self.place(at)?;
            self.read(place, &mut bytes)?;
            let Some(head) = view::<JournalHeader>(&bytes, 0) else { break };
            if head.magic.get() != MAGIC || head.sequence.get() != sequence {
                break;
            }
            at = self.after(at);
            passed += 1;
            match head.kind.get() {
                DESCRIPTOR => {
                    self.tail_holds(&bytes, place, &mut pending);
                    let before = pending.changes.len();
                    at = self.descriptor(&bytes, at, sequence, place, &mut pending)?;
                    passed = passed.saturating_add((pending.changes.len() - before) as u32);
                }
                REVOKE => {
                    self.tail_holds(&bytes, place, &mut pending);
                    self.revocations(&bytes, place, &mut pending);
                }
                COMMIT => {
                    let time = be64(&bytes[48..56]);
                    self.commit_holds(&mut bytes, place, &mut pending);
                    let done = std::mem::take(&mut pending);
                    if let Some(damage) = done.damage {
                        // A commit older than the last one was left from an earlier round.
                        if time < last_commit {
                            break;
                        }
                        return Err(damage);
                    }
                    last_commit = time;
                    committed.transactions += 1;
                    committed.changes.extend(done.changes);
                    for block in done.revoked {
                        let last = committed.revoked.entry(block).or_insert(sequence);
                        if is_later(sequence, *last) {
                            *last = sequence;
                        }
                    }
                    sequence = sequence.wrapping_add(1);
                }
                _ => break,
            }
        }
        committed.fast_commits = self.has_fast_commits(sequence, &mut bytes)?;
        Ok(committed)
    }

    /// Reads the tags of a descriptor; returns the block behind the data that follows it.
    fn descriptor(
        &self,
        bytes: &[u8],
        mut at: u32,
        sequence: u32,
        place: u64,
        pending: &mut Pending,
    ) -> Result<u32> {
        let (v2, v3) =
            (self.incompat & INCOMPAT_SUMS_V2 != 0, self.incompat & INCOMPAT_SUMS_V3 != 0);
        let wide = self.incompat & INCOMPAT_WIDE != 0;
        let length = match (v3, wide, v2) {
            (true, ..) => 16,
            (_, true, true) => 14,
            (_, true, false) => 12,
            (_, false, true) => 10,
            (_, false, false) => 8,
        };
        let end = bytes.len() - if self.has_sums() { TAIL } else { 0 };
        let mut offset = size_of::<JournalHeader>();
        while offset + length <= end {
            let tag = &bytes[offset..offset + length];
            let flags = if v3 { be32(&tag[4..8]) } else { be32(&tag[4..8]) & 0xFFFF };
            let high = if wide { be32(&tag[8..12]) } else { 0 };
            let block = u64::from(high) << 32 | u64::from(be32(&tag[..4]));
            let checksum = match (v3, v2) {
                (true, _) => Some(be32(&tag[12..16])),
                (_, true) => Some(be32(&tag[4..8]) >> 16),
                _ => None,
            };
            if block >= self.image.superblock().blocks {
                let what = format!("it brings block {block}, which is outside the volume");
                pending.damage.get_or_insert(fault(&what).at_block(place));
            }
            let from = self.place(at)?;
            let escaped = flags & TAG_ESCAPED != 0;
            pending.changes.push(Change { sequence, block, from, escaped, checksum });
            at = self.after(at);
            offset += length + if flags & TAG_SAME_UUID == 0 { 16 } else { 0 };
            if flags & TAG_LAST != 0 {
                break;
            }
        }
        Ok(at)
    }

    fn revocations(&self, bytes: &[u8], place: u64, pending: &mut Pending) {
        let used = be32(&bytes[12..16]) as usize;
        let end = bytes.len() - if self.has_sums() { TAIL } else { 0 };
        let Some(list) = bytes.get(16..used).filter(|_| used <= end) else {
            let what = fault("a list of freed blocks is longer than its block");
            pending.damage.get_or_insert(what.at_block(place));
            return;
        };
        if self.incompat & INCOMPAT_WIDE != 0 {
            pending.revoked.extend(list.chunks_exact(8).map(be64));
        } else {
            pending.revoked.extend(list.chunks_exact(4).map(|block| u64::from(be32(block))));
        }
    }

    /// Notes a wrong checksum at the end of a block.
    fn tail_holds(&self, bytes: &[u8], place: u64, pending: &mut Pending) {
        if !self.has_sums() {
            return;
        }
        let (body, stored) = bytes.split_at(bytes.len() - TAIL);
        if crc32c(crc32c(self.seed, body), &[0; TAIL]) != be32(stored) {
            let what = fault("the checksum of a block of its log is wrong").at_block(place);
            pending.damage.get_or_insert(what);
        }
    }

    /// Notes a wrong checksum of a commit block.
    fn commit_holds(&self, bytes: &mut [u8], place: u64, pending: &mut Pending) {
        if !self.has_sums() {
            return;
        }
        let stored = be32(&bytes[COMMIT_SUM_AT..COMMIT_SUM_AT + 4]);
        bytes[COMMIT_SUM_AT..COMMIT_SUM_AT + 4].fill(0);
        if crc32c(self.seed, bytes) != stored {
            let what = fault("the checksum of a commit is wrong").at_block(place);
            pending.damage.get_or_insert(what);
        }
    }

    /// Whether the area of fast commits has any that belong behind the last transaction.
    fn has_fast_commits(&self, sequence: u32, bytes: &mut [u8]) -> Result<bool> {
        const HEAD: [u8; 2] = [9, 0];
        if self.incompat & INCOMPAT_FAST == 0 {
            return Ok(false);
        }
        // The block between the log and their area belongs to neither.
        let first = self.end + 1;
        if first >= self.head.blocks.get() {
            return Ok(false);
        }
        self.read(self.place(first)?, bytes)?;
        Ok(bytes[..2] == HEAD && bytes[8..12] == sequence.to_le_bytes())
    }
}

fn be32(bytes: &[u8]) -> u32 {
    bytes[..4].iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn be64(bytes: &[u8]) -> u64 {
    bytes[..8].iter().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn fault(what: &str) -> Error {
    Error::corrupt(format!("journal: {what}"))
}
