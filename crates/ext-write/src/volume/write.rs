//! Writes of data: at once, and of data that a caller kept for a while.
//!
//! # Why
//! Data is written to its place within the handle that makes it reachable (V4), a run of blocks at a time. The size grows with
//! it: an operation that a crash interrupts leaves a file that is too short, never one with old data of other files in its
//! blocks. The handle also brings the time of the change, which for kept data is that of the write.
//! Weakness: the handle is held while the device writes.

use super::change::Privileges;
use super::data::END;
use super::flags::may_change;
use super::groups::{From, corrupt};
use super::undo::Op;
use super::{CREDITS, State, Volume, time};
use crate::error::{Error, Result};
use std::ops::Range;
use uvfs_ext::encode::extent::Extent;
use uvfs_ext::encode::inode::Time;
use uvfs_ext::{Inode, Place, Run, Timestamp};

/// Blocks that are written in one handle.
const BLOCKS_AT_ONCE: u64 = 1024;

/// The target of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteAt {
    /// There.
    Offset(u64),
    /// Wherever the file ends when it happens.
    End,
}

/// The part of a preallocated extent that becomes written by a write to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Convert {
    /// That part: the extent is split.
    Part,
    /// All of it: its other blocks get zeros.
    Extent,
}

/// Where a write got its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// From its caller, just now.
    Caller,
    /// From pages that changed at this time. They have more bytes than were written: zeros of a hole for which nothing is
    /// reserved are none, and the hole stays.
    Pages(Timestamp),
}

/// Bytes that lie in one run of a file.
struct Piece<'a> {
    range: Range<u64>,
    bytes: &'a [u8],
    source: Source,
    run: Run,
    /// The run is a hole whose blocks are reserved.
    reserved: bool,
}

impl Volume {
    /// Writes `bytes` at `offset` of a file, which grows if need be.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and those of the device: then a part of them, from the beginning, may have been written, as the size
    /// tells; [`Error::NotPermitted`] by flags.
    pub fn write(&self, number: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        match self.write_at(number, WriteAt::Offset(offset), bytes, Privileges::Stay)? {
            written if written < bytes.len() => Err(Error::NoSpace),
            _ => Ok(()),
        }
    }

    /// Writes `bytes`, and removes the rights in `privileges` from the file. Returns how many were written, from the beginning.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and those of the device, if nothing was written; [`Error::NotPermitted`] by flags.
    pub fn write_at(
        &self,
        number: u32,
        at: WriteAt,
        bytes: &[u8],
        privileges: Privileges<'_>,
    ) -> Result<usize> {
        let node = self.node(number);
        let mut state = node.state.write();
        let mut inode = self.file(number)?;
        let offset = match at {
            WriteAt::Offset(offset) => offset,
            WriteAt::End => inode.size(),
        };
        if offset < inode.size() {
            may_change(&inode)?;
        }
        self.check_end(offset, bytes)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        self.drop_privileges(&mut inode, &mut state, privileges)?;
        self.write_runs(&mut inode, &mut state, (offset, bytes), Source::Caller)
    }

    /// Writes `bytes`, which a caller has kept since `changed`: that is the time of the change. Returns how many were written,
    /// from the beginning. The caller has reserved what it wrote ([`Volume::reserve`]), and may pass zeros around it.
    ///
    /// # Errors
    /// As [`Volume::write_at`]; flags were looked at before.
    pub fn write_back(
        &self,
        number: u32,
        offset: u64,
        bytes: &[u8],
        changed: Timestamp,
        privileges: Privileges<'_>,
    ) -> Result<usize> {
        let node = self.node(number);
        let mut state = node.state.write();
        let mut inode = self.file(number)?;
        self.check_end(offset, bytes)?;
        self.drop_privileges(&mut inode, &mut state, privileges)?;
        self.write_runs(&mut inode, &mut state, (offset, bytes), Source::Pages(changed))
    }

    fn check_end(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let size = u64::from(self.image.superblock().block_size);
        let end = offset.checked_add(bytes.len() as u64);
        match end.filter(|end| end.div_ceil(size) <= END) {
            Some(_) => Ok(()),
            None => Err(Error::TooLarge),
        }
    }

    /// Writes `bytes` at `offset`, run by run; returns how many, from the beginning.
    fn write_runs(
        &self,
        inode: &mut Inode,
        state: &mut State,
        (offset, bytes): (u64, &[u8]),
        source: Source,
    ) -> Result<usize> {
        let size = u64::from(self.image.superblock().block_size);
        let end = offset + bytes.len() as u64;
        if offset > inode.size() {
            self.clear_behind_end(inode)?;
        }
        if self.overwrite_whole(inode, state, (offset, bytes), source)? {
            return Ok(bytes.len());
        }
        let mut at = offset;
        while at < end {
            let block = at / size;
            let last = end.div_ceil(size).min(block + BLOCKS_AT_ONCE);
            let mut run = self.image.map(inode, block..last)?[0];
            let mut reserved = false;
            if run.place == Place::Hole {
                let range = run.logical..run.logical + run.length;
                let (is_reserved, part) = self.reserved_part(inode.number, range);
                (run.length, reserved) = (part.end - part.start, is_reserved);
            }
            let range = at..end.min((run.logical + run.length) * size);
            let part = &bytes[(at - offset) as usize..(range.end - offset) as usize];
            if run.place == Place::Hole && !reserved && source != Source::Caller {
                let zeros = zero_blocks(part, at, size);
                if zeros > 0 {
                    at = range.end.min(at + zeros);
                    continue;
                }
                // Up to the next block of zeros.
                run.length = blocks_with_data(part, at, size);
            }
            let range = at..end.min((run.logical + run.length) * size);
            let part = &part[..(range.end - at) as usize];
            match self.write_piece(
                inode,
                state,
                Piece { range, bytes: part, source, run, reserved },
            ) {
                Ok(to) => at = to,
                Err(error) if at == offset => return Err(error),
                Err(_) => break,
            }
        }
        if at > inode.size() {
            // Its end is a hole.
            self.operate_on(inode, CREDITS, |op, inode| {
                inode.set_size(at);
                set_changed(inode, source);
                op.put_inode(inode, state)
            })?;
        }
        Ok((at - offset) as usize)
    }

    /// Writes the beginning of `piece`; gives how far it came.
    fn write_piece(&self, inode: &mut Inode, state: &mut State, piece: Piece<'_>) -> Result<u64> {
        let nodes = self.reserved_nodes(inode.number);
        let data = match piece.run.place {
            Place::At(_) if self.is_journaled() => self.whole_blocks() as usize,
            _ => 0,
        };
        let written = self.operate_on(inode, CREDITS + data, |op, inode| {
            op.nodes = if piece.reserved { nodes } else { 0 };
            let to = op.write_piece(inode, state, &piece, Convert::Part)?;
            Ok((to, op.nodes))
        });
        match (written, piece.run.place) {
            (Ok((to, left)), _) => {
                if piece.reserved {
                    let size = u64::from(self.image.superblock().block_size);
                    self.claimed(inode, piece.run.logical..to.div_ceil(size), left);
                } else if !matches!(piece.run.place, Place::At(_)) {
                    self.renew_nodes(inode);
                }
                Ok(to)
            }
            // There is no block for a node of the tree: without a split, none is needed.
            (Err(Error::NoSpace), Place::Unwritten(_)) => {
                self.operate_on(inode, CREDITS, |op, inode| {
                    op.write_piece(inode, state, &piece, Convert::Extent)
                })
            }
            (Err(error), _) => Err(error),
        }
    }
}

/// Bytes from `at` on in whole blocks of which `bytes`, which begin there, have only zeros.
fn zero_blocks(bytes: &[u8], at: u64, size: u64) -> u64 {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count() as u64;
    if zeros == bytes.len() as u64 {
        zeros
    } else {
        ((at + zeros) / size * size).saturating_sub(at)
    }
}

/// Blocks from that of `at` on before one of which `bytes`, which begin at `at`, have only zeros.
fn blocks_with_data(bytes: &[u8], at: u64, size: u64) -> u64 {
    let first = size - at % size;
    let (head, rest) = bytes.split_at((first as usize).min(bytes.len()));
    debug_assert!(head.iter().any(|byte| *byte != 0));
    let blocks = rest.chunks(size as usize);
    1 + blocks.take_while(|block| block.iter().any(|byte| *byte != 0)).count() as u64
}

/// Sets the times of a change of contents. That of kept data is not set back by what happened since.
pub(super) fn set_changed(inode: &mut Inode, source: Source) {
    let now = match source {
        Source::Caller => time::now(),
        Source::Pages(changed) => changed,
    };
    inode.set_time(Time::Modified, now);
    let before = inode.changed();
    if source == Source::Caller
        || (before.seconds, before.nanoseconds) < (now.seconds, now.nanoseconds)
    {
        inode.set_time(Time::Changed, now);
    }
}

impl Op<'_> {
    /// Writes the beginning of `piece`; gives how far it came.
    fn write_piece(
        &mut self,
        inode: &mut Inode,
        state: &mut State,
        piece: &Piece<'_>,
        convert: Convert,
    ) -> Result<u64> {
        let size = u64::from(self.volume.image.superblock().block_size);
        let (run, range) = (piece.run, &piece.range);
        let part_to = |end: u64| {
            let end = range.end.min(end * size);
            (end, &piece.bytes[..(end - range.start) as usize])
        };
        let end = match run.place {
            Place::At(block) if self.volume.is_journaled() => {
                let begin = range.start / size;
                let most = begin + self.volume.whole_blocks();
                let (end, part) = part_to(most.min(run.logical + run.length));
                self.overwrite(block, run.logical, range.start, part)?;
                end
            }
            Place::At(block) => {
                let (end, part) = part_to(run.logical + run.length);
                self.put_data(block, run.logical, range.start, part, true)?;
                end
            }
            Place::Unwritten(block) => {
                let extent = self.last_extent_before(inode, run.logical + 1)?;
                let extent = extent.filter(|extent| extent.end() > run.logical);
                let extent = extent.ok_or_else(|| corrupt("an extent is in two places", block))?;
                let first = u64::from(extent.logical);
                let blocks = run.logical..(run.logical + run.length).min(extent.end());
                let (end, part) = part_to(blocks.end);
                let blocks = blocks.start..end.div_ceil(size);
                self.put_data(block, run.logical, range.start, part, false)?;
                if convert == Convert::Part {
                    self.mark_written(inode, blocks)?;
                } else {
                    let at = |logical: u64| (extent.start + (logical - first)) * size;
                    self.volume.write_zeros(at(first)..at(blocks.start))?;
                    self.volume.write_zeros(at(blocks.end)..at(extent.end()))?;
                    self.mark_written(inode, first..extent.end())?;
                }
                end
            }
            Place::Hole => {
                let most = u64::from(Extent::length_max(false)).min(run.length);
                let goal = self.goal(inode, run.logical)?;
                let from = if piece.reserved { From::Reserved } else { From::Free };
                let blocks = self.allocate_next(inode.number, goal, most as u32, from)?;
                let length = (blocks.end - blocks.start) as u32;
                let (end, part) = part_to(run.logical + u64::from(length));
                self.put_data(blocks.start, run.logical, range.start, part, false)?;
                let logical = run.logical as u32;
                let extent = Extent { logical, start: blocks.start, length, unwritten: false };
                self.insert_extent(inode, extent)?;
                self.add_blocks(inode, i64::from(length))?;
                end
            }
        };
        let grows = end > inode.size();
        if grows {
            inode.set_size(end);
        }
        set_changed(inode, piece.source);
        match run.place {
            Place::At(_) if !grows && !self.volume.is_journaled() => {
                self.put_times(inode, state)?
            }
            _ => self.put_inode(inode, state)?,
        }
        Ok(end)
    }
}
