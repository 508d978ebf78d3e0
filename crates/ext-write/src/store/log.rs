//! The log: a ring of blocks of the journal's file, written from where the last transaction ended.
//!
//! # Boundary
//! Places blocks of the log and orders their writes. `uvfs_ext::encode::journal` encodes them.

use super::write_runs;
use crate::device::WriteDevice;
use crate::error::{Error, Result};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;
use uvfs_ext::encode::journal::{Brought, JournalHead};
use uvfs_ext::{Place, Run};

/// A part of the log that one transaction may have: with less, every commit waits for a checkpoint.
const PARTS: u32 = 4;
/// The smallest transaction that operations fit into.
const CAPACITY_MIN: usize = 64;

/// A place between two transactions of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Mark {
    /// The block of the ring.
    pub(super) next: u32,
    /// Blocks that were ever written before it.
    pub(super) written: u64,
}

/// An empty journal.
#[derive(Debug)]
pub struct LogPlace {
    /// Superblock of the journal, with the features to be used.
    pub head: JournalHead,
    /// Where the blocks of its file are.
    pub runs: Vec<Run>,
    /// The number of the first transaction to be written.
    pub sequence: u32,
}

impl LogPlace {
    /// An empty journal of so many blocks in a row.
    #[cfg(test)]
    pub(super) fn empty(first: u64, blocks: u32, block_size: u32) -> Self {
        let mut head = vec![0; block_size as usize];
        let fields = [0xC03B_3998, 4, 0, block_size, blocks, 1, 1];
        for (at, field) in fields.into_iter().enumerate() {
            head[4 * at..4 * at + 4].copy_from_slice(&u32::to_be_bytes(field));
        }
        let head = JournalHead::decode(&head).expect("a journal of version 2");
        let runs = vec![Run { logical: 0, length: blocks.into(), place: Place::At(first) }];
        Self { head, runs, sequence: 1 }
    }

    /// The blocks of its file on the volume.
    pub(crate) fn ranges(&self) -> Vec<Range<u64>> {
        let place = |run: &Run| match run.place {
            Place::At(block) | Place::Unwritten(block) => Some(block..block + run.length),
            Place::Hole => None,
        };
        self.runs.iter().filter_map(place).collect()
    }

    /// Blocks of the ring.
    pub(super) fn blocks(&self) -> usize {
        let (first, end) = self.head.ring();
        end.saturating_sub(first) as usize
    }

    /// Blocks that one transaction may bring.
    pub(super) fn capacity(&self) -> Result<usize> {
        let (first, end) = self.head.ring();
        let part = (end.saturating_sub(first) / PARTS) as usize;
        let tags = self.head.tags_per_descriptor();
        // Descriptors, revocations, the commit record.
        let capacity = part.saturating_sub(part / tags + part / 8 + 4);
        if capacity < CAPACITY_MIN {
            let what = format!("its journal has {} blocks, which are too few", end - first);
            return Err(Error::NotWritable(what));
        }
        Ok(capacity)
    }
}

#[derive(Debug)]
pub(super) struct Log {
    head: JournalHead,
    runs: Vec<Run>,
    first: u32,
    end: u32,
    /// Where the next block is written.
    mark: Mark,
    /// Blocks that were ever written, and whose room is free again.
    freed: u64,
}

impl Log {
    pub(super) fn new(place: LogPlace) -> Self {
        let (first, end) = place.head.ring();
        let mark = Mark { next: first, written: 0 };
        Self { head: place.head, runs: place.runs, first, end, mark, freed: 0 }
    }

    /// Blocks that can be written before the log's beginning has to move.
    pub(super) fn free(&self) -> u64 {
        u64::from(self.end - self.first) - self.used()
    }

    /// Blocks that are in use.
    pub(super) fn used(&self) -> u64 {
        self.mark.written - self.freed
    }

    /// Where the last transaction ended.
    pub(super) fn mark(&self) -> Mark {
        self.mark
    }

    /// Blocks of the log that a transaction takes.
    pub(super) fn blocks_for(&self, blocks: usize, revoked: usize) -> usize {
        let descriptors = blocks.div_ceil(self.head.tags_per_descriptor());
        blocks + descriptors + revoked.div_ceil(self.head.revocations_per_block()) + 1
    }

    /// The block of the volume that is block `at` of the journal.
    fn place(&self, at: u32) -> Result<u64> {
        let at = u64::from(at);
        let index = self.runs.partition_point(|run| run.logical + run.length <= at);
        match self.runs.get(index) {
            Some(Run { logical, place: Place::At(block), .. }) if *logical <= at => {
                Ok(block + (at - logical))
            }
            _ => {
                Err(uvfs_ext::Error::Corrupt(uvfs_ext::Fault::new("the journal has a hole")).into())
            }
        }
    }

    /// Takes the next block of the ring.
    fn take(&mut self) -> Result<u64> {
        let Mark { next, written } = self.mark;
        let place = self.place(next)?;
        let next = if next + 1 >= self.end { self.first } else { next + 1 };
        self.mark = Mark { next, written: written + 1 };
        Ok(place)
    }

    /// Writes transaction `number`: stable when it returns.
    pub(super) fn write(
        &mut self,
        number: u32,
        blocks: &[(u64, &Arc<[u8]>)],
        revoked: &BTreeSet<u64>,
        device: &dyn WriteDevice,
        flush: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        if self.blocks_for(blocks.len(), revoked.len()) as u64 > self.free() {
            let what =
                format!("a transaction of {} blocks does not fit into the journal", blocks.len());
            return Err(Error::NotWritable(what));
        }
        let mut log: Vec<(u64, Cow<'_, [u8]>)> = Vec::new();
        let revoked: Vec<u64> = revoked.iter().copied().collect();
        for some in revoked.chunks(self.head.revocations_per_block()) {
            let block = self.head.revocation(number, some);
            log.push((self.take()?, block.into()));
        }
        for some in blocks.chunks(self.head.tags_per_descriptor()) {
            let brought: Vec<_> =
                some.iter().map(|(block, bytes)| Brought { block: *block, bytes }).collect();
            let descriptor = self.head.descriptor(number, &brought);
            log.push((self.take()?, descriptor.into()));
            for (_, bytes) in some {
                let escaped = JournalHead::escaped(bytes);
                log.push((self.take()?, escaped.map_or(Cow::Borrowed(&***bytes), Cow::Owned)));
            }
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let commit = self.head.commit(number, now.as_secs(), now.subsec_nanos());
        let size = commit.len();
        let place = self.take()?;
        // The checksum covers the whole block, the record only its start. Zero the block first, or stale bytes of an
        // older round make a torn record look damaged.
        log.push((place, vec![0; size].into()));
        write_runs(device, size, log.iter().map(|(place, bytes)| (*place, &**bytes)))?;
        // The log before its commit record, and the data that it will make reachable.
        flush()?;
        device.write_at(place * size as u64, &[IoSlice::new(&commit)])?;
        flush()
    }

    /// A replay begins at `mark` with transaction `next`. The room before it stays in use.
    pub(super) fn begin_at(
        &mut self,
        mark: Mark,
        next: u32,
        device: &dyn WriteDevice,
    ) -> Result<()> {
        self.head.set_tail(mark.next, next);
        self.write_head(device)
    }

    /// The room before `mark`, where the log begins now, may be used again.
    pub(super) fn free_until(&mut self, mark: Mark) {
        self.freed = mark.written;
    }

    /// Says that there is nothing to replay.
    pub(super) fn close(&mut self, next: u32, device: &dyn WriteDevice) -> Result<()> {
        self.head.set_tail(0, next);
        self.write_head(device)
    }

    fn write_head(&self, device: &dyn WriteDevice) -> Result<()> {
        let head = self.head.encode();
        device.write_at(self.place(0)? * head.len() as u64, &[IoSlice::new(&head)])?;
        Ok(())
    }
}
