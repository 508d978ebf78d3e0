//! Contents of files: made longer and shorter, preallocated, punched. [`super::write`] writes them.
//!
//! # Why
//! The rest of a file's last block is zeroed when the file becomes shorter, and again when it grows: another writer may have left
//! data there.

use super::change::Privileges;
use super::flags::{may_change, may_grow};
use super::groups::From;
use super::undo::Op;
use super::{CREDITS, State, Volume, time};
use crate::error::{Error, Result};
use std::io::IoSlice;
use std::ops::Range;
use uvfs_ext::encode::extent::Extent;
use uvfs_ext::encode::inode::Time;
use uvfs_ext::{Inode, Kind, Passed, Place, windows};

/// Blocks that are set aside in one handle.
const BLOCKS_AT_ONCE: u64 = 1024;
/// Zeros that are written in one call.
const ZEROS_AT_ONCE: u64 = 1 << 20;
/// One more than the last block that a file can have.
pub(super) const END: u64 = (1 << 32) - 1;

impl Volume {
    /// Sets the size of a file.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn truncate(&self, number: u32, length: u64) -> Result<()> {
        self.truncate_as(number, length, Privileges::Stay)
    }

    /// Sets the size of a file, and removes the rights in `privileges` from it.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn truncate_as(&self, number: u32, length: u64, privileges: Privileges<'_>) -> Result<()> {
        let node = self.node(number);
        let mut state = node.state.write();
        let mut inode = self.file(number)?;
        may_change(&inode)?;
        self.drop_privileges(&mut inode, &mut state, privileges)?;
        self.set_length(inode, &mut state, length)?;
        let size = u64::from(self.image.superblock().block_size);
        self.drop_reserved(number, length.div_ceil(size)..u64::MAX);
        Ok(())
    }

    pub(super) fn set_length(
        &self,
        mut inode: Inode,
        state: &mut State,
        length: u64,
    ) -> Result<()> {
        let size = u64::from(self.image.superblock().block_size);
        if length.div_ceil(size) > END {
            return Err(Error::TooLarge);
        }
        // Also at the same size: blocks that were set aside behind the end go.
        let shorter = length <= inode.size() && has_extents(&inode);
        if length > inode.size() {
            self.clear_behind_end(&inode)?;
        }
        let kept = length.div_ceil(size);
        self.operate_on(&mut inode, CREDITS, |op, inode| {
            let before = inode.clone();
            inode.set_size(length);
            let now = time::now();
            inode.set_time(Time::Modified, now);
            inode.set_time(Time::Changed, now);
            if shorter {
                op.add_orphan(inode.number)?;
            }
            op.put_inode(inode, state)?;
            if length < before.size() {
                // Other kernels map the whole block, and rely on zeros where they make the file longer. Last, because what
                // this overwrites is not taken back.
                op.clear(&before, length..length.next_multiple_of(size))?;
            }
            Ok(())
        })?;
        if shorter {
            self.free_extents(&mut inode, kept, state)?;
            // One without names stays in the list.
            if inode.links() > 0 {
                self.operate(CREDITS, |op| op.remove_orphan(inode.number))?;
            }
        }
        Ok(())
    }

    /// Sets blocks aside for `range` of a file, which are zeros until they are written; the size grows to the end of the
    /// range if `grow` says so.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: then a part of them, from the beginning, may be set aside; [`Error::NotPermitted`] by flags.
    pub fn allocate(&self, number: u32, range: Range<u64>, grow: Grow) -> Result<()> {
        self.allocate_as(number, range, grow, Privileges::Stay)
    }

    /// Allocates as [`Volume::allocate`] does, and takes from the file what `privileges` says.
    ///
    /// # Errors
    /// As [`Volume::allocate`].
    pub fn allocate_as(
        &self,
        number: u32,
        range: Range<u64>,
        grow: Grow,
        privileges: Privileges<'_>,
    ) -> Result<()> {
        let node = self.node(number);
        let mut state = node.state.write();
        let mut inode = self.file(number)?;
        self.drop_privileges(&mut inode, &mut state, privileges)?;
        self.set_aside(&mut inode, &mut state, range.clone())?;
        self.end_allocation(inode, &mut state, range.end, grow)
    }

    /// Makes zeros of `range` of a file, with blocks of its own; the size grows to the end of the range if `grow` says so.
    ///
    /// # Errors
    /// As [`Volume::allocate`].
    pub fn zero(
        &self,
        number: u32,
        range: Range<u64>,
        grow: Grow,
        privileges: Privileges<'_>,
    ) -> Result<()> {
        let node = self.node(number);
        let mut state = node.state.write();
        let mut inode = self.file(number)?;
        may_change(&inode)?;
        self.drop_privileges(&mut inode, &mut state, privileges)?;
        self.set_aside(&mut inode, &mut state, range.clone())?;
        self.clear(&inode, range.clone())?;
        self.end_allocation(inode, &mut state, range.end, grow)?;
        if self.is_journaled() {
            // The zeros are in a transaction.
            state.reached = state.changed;
        }
        Ok(())
    }

    /// Preallocation changes the file's times, also where it allocated nothing.
    fn end_allocation(
        &self,
        mut inode: Inode,
        state: &mut State,
        end: u64,
        grow: Grow,
    ) -> Result<()> {
        if grow == Grow::Size && end > inode.size() {
            return self.set_length(inode, state, end);
        }
        self.operate_on(&mut inode, CREDITS, |op, inode| {
            let now = time::now();
            inode.set_time(Time::Modified, now);
            inode.set_time(Time::Changed, now);
            op.put_times(inode, state)
        })
    }

    /// Gives the holes in `range` of a file blocks that were not written.
    fn set_aside(&self, inode: &mut Inode, state: &mut State, range: Range<u64>) -> Result<()> {
        let size = u64::from(self.image.superblock().block_size);
        let (mut at, end) = (range.start / size, range.end.div_ceil(size));
        if end > END {
            return Err(Error::TooLarge);
        }
        while at < end {
            let run = self.image.map(inode, at..end)?[0];
            if run.place == Place::Hole {
                let most = u64::from(Extent::length_max(true)).min(run.length).min(BLOCKS_AT_ONCE);
                let length = self.operate_on(inode, CREDITS, |op, inode| {
                    let goal = op.goal(inode, run.logical)?;
                    let blocks = op.allocate(goal, most as u32, From::Free)?;
                    let length = (blocks.end - blocks.start) as u32;
                    let logical = run.logical as u32;
                    let extent = Extent { logical, start: blocks.start, length, unwritten: true };
                    op.insert_extent(inode, extent)?;
                    op.add_blocks(inode, i64::from(length))?;
                    inode.set_time(Time::Changed, time::now());
                    op.put_inode(inode, state)?;
                    Ok(length)
                })?;
                self.drop_reserved(inode.number, at..at + u64::from(length));
                self.renew_nodes(inode);
                at += u64::from(length);
            } else {
                at += run.length;
            }
        }
        Ok(())
    }

    /// Makes a hole of `range` of a file: zeros, and whole blocks are freed. The size stays.
    ///
    /// # Errors
    /// Those of the device.
    pub fn punch(&self, number: u32, range: Range<u64>) -> Result<()> {
        self.punch_as(number, range, Privileges::Stay)
    }

    /// Punches as [`Volume::punch`] does, and takes from the file what `privileges` says.
    ///
    /// # Errors
    /// As [`Volume::punch`].
    pub fn punch_as(
        &self,
        number: u32,
        range: Range<u64>,
        privileges: Privileges<'_>,
    ) -> Result<()> {
        let size = u64::from(self.image.superblock().block_size);
        let node = self.node(number);
        let mut state = node.state.write();
        let mut inode = self.file(number)?;
        may_change(&inode)?;
        self.drop_privileges(&mut inode, &mut state, privileges)?;
        self.drop_reserved(number, range.start.div_ceil(size)..range.end / size);
        if range.start >= inode.size() {
            // As the kernel's: asking for a hole changes the file, also where there is nothing.
            return self.end_allocation(inode, &mut state, range.end, Grow::Nothing);
        }
        // Behind the end nothing is kept either.
        let range = if range.end >= inode.size() {
            range.start..inode.size().next_multiple_of(size)
        } else {
            range
        };
        let whole = range.start.div_ceil(size)..range.end / size;
        let ends = if whole.start >= whole.end {
            vec![range.clone()]
        } else {
            vec![range.start..whole.start * size, whole.end * size..range.end]
        };
        for end in ends.into_iter().filter(|end| !end.is_empty()) {
            self.clear(&inode, end)?;
        }
        // A hole that reaches the end in the last block frees that too, where nothing is behind it.
        loop {
            let most = 6;
            let freed = self.operate_on(&mut inode, CREDITS, |op, inode| {
                let extents = op.remove_extents(inode, whole.clone(), most)?;
                for extent in &extents {
                    op.free_blocks(extent.start..extent.start + u64::from(extent.length))?;
                    op.add_blocks(inode, -i64::from(extent.length))?;
                }
                let now = time::now();
                inode.set_time(Time::Modified, now);
                inode.set_time(Time::Changed, now);
                op.put_inode(inode, &mut state)?;
                Ok(extents.len())
            })?;
            if freed == 0 {
                return Ok(());
            }
        }
    }

    /// The next data of a file at or behind `offset`, or the next hole; there is one at the end. `None` if there is no data any
    /// more, or no file. Blocks that were set aside are a hole until they are written.
    ///
    /// # Errors
    /// As [`Volume::inode`].
    pub fn seek(&self, number: u32, offset: u64, data: bool) -> Result<Option<u64>> {
        let node = self.node(number);
        let _state = node.state.read();
        let inode = self.load(number)?;
        let (size, block) = (inode.size(), u64::from(self.image.superblock().block_size));
        if offset >= size {
            return Ok(None);
        }
        let mut passed = Passed::default();
        for window in windows(offset / block..size.div_ceil(block)) {
            for run in self.image.map_on(&inode, window, &mut passed)? {
                if matches!(run.place, Place::At(_)) == data {
                    return Ok(Some((run.logical * block).max(offset).min(size)));
                }
            }
        }
        Ok((!data).then_some(size))
    }

    /// Zeros behind the end of a file up to the end of its last block: a part of it when it grows.
    pub(super) fn clear_behind_end(&self, inode: &Inode) -> Result<()> {
        let size = u64::from(self.image.superblock().block_size);
        let from = inode.size();
        if from.is_multiple_of(size) {
            Ok(())
        } else {
            self.clear(inode, from..from.next_multiple_of(size))
        }
    }

    /// Zeros the written part of `range` of a file.
    fn clear(&self, inode: &Inode, range: Range<u64>) -> Result<()> {
        match self.is_journaled() {
            true => self.clear_journaled(inode, range),
            false => self.clear_in_place(inode, range),
        }
    }

    pub(super) fn clear_in_place(&self, inode: &Inode, range: Range<u64>) -> Result<()> {
        let size = u64::from(self.image.superblock().block_size);
        for run in self.image.map(inode, range.start / size..range.end.div_ceil(size))? {
            if let Place::At(block) = run.place {
                let from = range.start.max(run.logical * size);
                let to = range.end.min((run.logical + run.length) * size);
                let at = block * size + (from - run.logical * size);
                self.write_zeros(at..at + (to - from))?;
            }
        }
        Ok(())
    }

    /// Writes zeros to these bytes of the device.
    pub(super) fn write_zeros(&self, range: Range<u64>) -> Result<()> {
        let zeros = vec![0; (range.end - range.start).min(ZEROS_AT_ONCE) as usize];
        let mut at = range.start;
        while at < range.end {
            let some = &zeros[..(range.end - at).min(ZEROS_AT_ONCE) as usize];
            self.store.device().write_at(at, &[IoSlice::new(some)])?;
            at += some.len() as u64;
        }
        Ok(())
    }

    /// A regular file whose data this crate writes, and which may grow.
    pub(super) fn file(&self, number: u32) -> Result<Inode> {
        let inode = self.load(number)?;
        match inode.kind() {
            Some(Kind::Regular) => {}
            Some(Kind::Directory) => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid("it is no regular file")),
        }
        may_grow(&inode)?;
        if !inode.is_by_extents() {
            return Err(Error::NotWritable("the file is mapped by tables, not by extents".into()));
        }
        Ok(inode)
    }
}

/// Whether a file has any blocks.
fn has_extents(inode: &Inode) -> bool {
    // How many entries the root of its tree has.
    inode.block_bytes()[2..4] != [0, 0]
}

/// Whether a file grows when blocks are set aside behind its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grow {
    /// It does.
    Size,
    /// The size stays.
    Nothing,
}

impl Op<'_> {
    /// Where block `logical` of a file is best put: behind the block before it, else near the inode.
    pub(super) fn goal(&self, inode: &Inode, logical: u64) -> Result<u64> {
        Ok(match self.last_extent_before(inode, logical)? {
            Some(before) => before.start + (logical - u64::from(before.logical)),
            None => self.volume.home_of(inode.number),
        })
    }

    /// Writes `part` at byte `from` of a file into blocks that begin at `place` with block `first` of the file. Blocks that are
    /// not `old` get zeros where `part` does not reach.
    pub(super) fn put_data(
        &self,
        place: u64,
        first: u64,
        from: u64,
        part: &[u8],
        old: bool,
    ) -> Result<()> {
        let size = u64::from(self.volume.image.superblock().block_size);
        let within = from - first * size;
        let before = vec![0; if old { 0 } else { within as usize }];
        let end = from + part.len() as u64;
        let behind = vec![0; if old { 0 } else { (end.next_multiple_of(size) - end) as usize }];
        let at = place * size + if old { within } else { 0 };
        let slices = [IoSlice::new(&before), IoSlice::new(part), IoSlice::new(&behind)];
        Ok(self.volume.store.device().write_at(at, &slices)?)
    }
}
