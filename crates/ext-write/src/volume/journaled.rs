//! Data through the journal: [`DataMode::Journal`].
//!
//! # Boundary
//! Overwrites of blocks that a file has. New blocks are written in place in both modes (V4): a crash before the commit leaves them
//! free.
//!
//! # Concurrency
//! J1. A block that a file overwrites changes in its buffer, in a handle, under the inode's lock. Until a checkpoint its place has
//!     older contents.
//! J2. A reader of data looks at buffers and at committed blocks first, then in place, under the inode's lock: a block that is in
//!     neither has its newest contents in place, and no writer changes it meanwhile.
//! J3. A freed block without a buffer or a committed copy cannot be in the log, because committed copies are kept until the
//!     log's start has passed them. The others are revoked when they are freed, so no replay writes them over later contents.
//! J4. A block that was never overwritten has no buffer with contents, so writes in place pass no buffer.
//! J5. A transaction that has data of a file has the block of its inode, too: so [`super::lost`] finds the file if no commit
//!     brings that transaction.
//!
//! # Why
//! An overwrite in place is torn by a crash: some sectors new, some old. In a transaction it is whole. Weakness: overwritten data is
//! written twice, and read before it is changed.

use super::undo::Op;
use super::write::{Source, set_changed};
use super::{CREDITS, State, Volume};
use crate::error::Result;
use crate::store::Role;
use std::ops::Range;
use uvfs_ext::{Inode, Place};

/// The way of a file's data to the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataMode {
    /// In place, before the transaction that makes it reachable. A crash may tear an overwrite.
    #[default]
    Ordered,
    /// Overwrites go through the journal: each block has its old contents or the new ones after a crash, and so has a write of at
    /// most [`Volume::whole_blocks`] blocks that a file has.
    Journal,
}

/// Blocks of data that one transaction certainly takes together.
pub(super) const WHOLE_BLOCKS: usize = 64;

impl Volume {
    /// The way of data to the image.
    pub fn data_mode(&self) -> DataMode {
        self.data
    }

    /// Blocks of a write over existing data that reach the image together, or not at all.
    pub fn whole_blocks(&self) -> u64 {
        let most = self.store.credits_max().saturating_sub(CREDITS);
        WHOLE_BLOCKS.min(most).max(1) as u64
    }

    pub(super) fn is_journaled(&self) -> bool {
        self.data == DataMode::Journal
    }

    /// Reads a file (J2).
    pub(super) fn read_newest(&self, inode: &Inode, offset: u64, into: &mut [u8]) -> Result<usize> {
        if !self.is_journaled() || !inode.is_by_extents() || offset >= inode.size() {
            return Ok(self.image.read(inode, offset, into)?);
        }
        let size = u64::from(self.image.superblock().block_size);
        let end = inode.size().min(offset.saturating_add(into.len() as u64));
        let mut newer = Vec::new();
        for run in self.image.map(inode, offset / size..end.div_ceil(size))? {
            let Place::At(block) = run.place else { continue };
            let held = (0..run.length).filter_map(|at| {
                let bytes = self.store.newer(block + at)?;
                Some((run.logical + at, bytes))
            });
            newer.extend(held);
        }
        let length = self.image.read(inode, offset, into)?;
        for (logical, bytes) in newer {
            let begin = (logical * size).max(offset);
            let end = ((logical + 1) * size).min(offset + length as u64);
            if begin < end {
                let within = (begin % size) as usize;
                let part = &mut into[(begin - offset) as usize..(end - offset) as usize];
                part.copy_from_slice(&bytes[within..within + part.len()]);
            }
        }
        Ok(length)
    }

    /// Overwrites data in one transaction; false if it is too much, or not all of it has blocks.
    pub(super) fn overwrite_whole(
        &self,
        inode: &mut Inode,
        state: &mut State,
        (offset, bytes): (u64, &[u8]),
        source: Source,
    ) -> Result<bool> {
        let size = u64::from(self.image.superblock().block_size);
        let end = offset + bytes.len() as u64;
        let blocks = offset / size..end.div_ceil(size);
        let number = blocks.end - blocks.start;
        if !self.is_journaled() || end > inode.size() || number > self.whole_blocks() {
            return Ok(false);
        }
        let runs = self.image.map(inode, blocks)?;
        if !runs.iter().all(|run| matches!(run.place, Place::At(_))) {
            return Ok(false);
        }
        self.operate_on(inode, CREDITS + number as usize, |op, inode| {
            for run in &runs {
                let Place::At(block) = run.place else { continue };
                let begin = offset.max(run.logical * size);
                let behind = end.min((run.logical + run.length) * size);
                let part = &bytes[(begin - offset) as usize..(behind - offset) as usize];
                op.overwrite(block, run.logical, begin, part)?;
            }
            set_changed(inode, source);
            op.put_inode(inode, state)
        })?;
        Ok(true)
    }

    /// Zeros the written part of `range` of a file, some blocks in a transaction.
    pub(super) fn clear_journaled(&self, inode: &Inode, range: Range<u64>) -> Result<()> {
        let size = u64::from(self.image.superblock().block_size);
        let (step, mut at) = (self.whole_blocks(), range.start);
        while at < range.end {
            let to = range.end.min((at / size + step) * size);
            let part = at..to;
            self.operate(CREDITS + step as usize, |op| op.clear(inode, part.clone()))?;
            at = to;
        }
        Ok(())
    }
}

impl Op<'_> {
    /// Writes `part` at byte `from` of a file over blocks that begin at `place` with block `first` of the file (J1).
    pub(super) fn overwrite(
        &mut self,
        place: u64,
        first: u64,
        from: u64,
        part: &[u8],
    ) -> Result<()> {
        let size = u64::from(self.volume.image.superblock().block_size);
        let (mut at, mut rest) = (from, part);
        while !rest.is_empty() {
            let within = (at % size) as usize;
            let (some, behind) = rest.split_at(rest.len().min(size as usize - within));
            self.modify(place + at / size - first, Role::Inodes, |bytes| {
                bytes[within..within + some.len()].copy_from_slice(some);
            })?;
            at += some.len() as u64;
            rest = behind;
        }
        Ok(())
    }

    /// Zeros the written part of `range` of a file.
    pub(super) fn clear(&mut self, inode: &Inode, range: Range<u64>) -> Result<()> {
        if !self.volume.is_journaled() {
            return self.volume.clear_in_place(inode, range);
        }
        // J5; an operation that clears in several transactions puts the inode into the last one alone.
        let (table, _) = self.volume.place_of(inode.number)?;
        self.handle.modify(table, Role::Inodes, |_| ())?;
        let size = u64::from(self.volume.image.superblock().block_size);
        let blocks = range.start / size..range.end.div_ceil(size);
        for run in self.volume.image.map(inode, blocks)? {
            if let Place::At(block) = run.place {
                let from = range.start.max(run.logical * size);
                let to = range.end.min((run.logical + run.length) * size);
                self.overwrite(block, run.logical, from, &vec![0; (to - from) as usize])?;
            }
        }
        Ok(())
    }

    /// Takes freed blocks of data out of the journal (J3).
    pub(super) fn forget_data(&mut self, blocks: Range<u64>) {
        for block in blocks {
            if self.volume.store.newer(block).is_some() {
                self.handle.forget(block..block + 1);
            }
        }
    }
}
