//! Blocks and inodes, allocated by group.
//!
//! # Concurrency
//! One lock for each group. A thread that needs room locks the group it wants, and skips others that are busy; only
//! when all that were free had none does it wait for the busy ones ([`super::search`]). An operation asks for a block when it
//! needs one; if there is none, it is undone ([`super::undo`]).
//!
//! A change of a bitmap changes the group's record in memory. The descriptor and the checksums of bitmaps are written once,
//! at the end of the transaction ([`Groups::describe`]); the descriptor's block joins the transaction with the first change.
//!
//! # Why
//! A freed block is used again only when the transaction that freed it is stable ([`State`]): before, a crash brings its
//! owner back. A group that was never used has no bitmap on the disk; it is made when it is first touched. A bitmap that
//! contradicts its checksum or its descriptor would give blocks of one file to another: its group is set aside, as in the
//! kernel. Nothing is allocated there, freeing there is an error, and the bitmap is never written.

use super::bits::{Marked, bit, free_bits, free_run, set_bits, word_of};
use super::search::{Search, Visit};
use super::space::Space;
use super::undo::{Op, Step};
use super::windows::Windows;
use super::{Volume, time};
use crate::error::{Error, Result};
use crate::lock_order::{EXT_GROUP, EXT_SPACE};
use crate::store::{Handle, Role};
use std::ops::Range;
use uvfs_concurrent::lock::{Mutex, MutexGuard};
use uvfs_ext::{Group, Image, Inode, Superblock};

/// A group in use.
#[derive(Debug)]
pub(super) struct State {
    pub(super) group: Group,
    /// The inode table was zeroed when the image was made.
    zeroed: bool,
    /// Blocks that were freed and must not be used again yet.
    waiting: Marked,
    /// Blocks of windows: see [`super::windows`].
    pub(super) claimed: Marked,
    /// Blocks and inodes that became free here, as [`Search`] counts them.
    returned: u64,
    /// All inodes before it are in use.
    inodes_from: u32,
    blocks: Trust,
    inodes: Trust,
    /// The last transaction that has it in the list of groups to describe.
    listed: Option<u32>,
    /// Bitmaps that were changed since their checksums were made.
    blocks_changed: bool,
    inodes_changed: bool,
}

/// State of a bitmap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// It was not looked at yet.
    Unknown,
    Sound,
    /// It is damaged, and its group set aside.
    Damaged,
}

impl State {
    /// A word of the blocks that no allocation may take; `bitmap` is the group's.
    pub(super) fn used(&self, bitmap: &[u8], at: usize) -> u64 {
        word_of(bitmap, at) | self.waiting.word(at)
    }
}

impl Trust {
    fn of(sound: bool) -> Self {
        if sound { Trust::Sound } else { Trust::Damaged }
    }
}

/// Logs why a group is set aside: a writer sees only that no space is left.
fn log_damage(number: u32, of: &str) {
    log::error!(
        "image: group {number} is set aside: its bitmap of {of} is damaged; nothing is allocated there before e2fsck repairs it"
    );
}

/// What is known of groups beside their states.
#[derive(Debug, Default)]
struct Noted {
    /// Groups that were set aside.
    damaged: u32,
    /// Groups that the running transaction changed.
    changed: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct Groups {
    pub(super) states: Vec<Mutex<Option<Box<State>>>>,
    noted: Mutex<Noted>,
    pub(super) space: Space,
    pub(super) windows: Windows,
}

/// Room on a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Free blocks.
    pub free_blocks: u64,
    /// Those of them that are reserved for data that is not written yet.
    pub reserved_blocks: u64,
    /// Free inodes.
    pub free_inodes: u32,
    /// Groups with a damaged bitmap, of those that were used since the volume was opened: they are set aside.
    pub damaged_groups: u32,
}

/// Which blocks an allocation may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// All but the last ones: for data, names and attributes.
    Free,
    /// The last ones, too: for nodes of trees. An overwrite of preallocated blocks and a hole may have to split one, and
    /// both have to work on a full volume.
    Kept,
    /// Blocks that the inode of the operation has reserved.
    Reserved,
}

/// The new state of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Free,
    Taken,
}

/// A change of the use of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockChange {
    /// They are allocated, and were counted before ([`Space::take`]).
    Take,
    /// An allocation is undone.
    UndoTake(From),
    /// They are freed, and wait for a commit.
    Free,
    /// That is undone.
    UndoFree,
}

/// Blocks that are kept for nodes of trees.
const KEPT: u64 = 64;

/// What an allocation does with blocks of other files' windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claims {
    Avoid,
    Take,
}

/// Whether it waits for a group that is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Busy {
    Skip,
    Wait,
}

impl Groups {
    /// Reads all descriptors: their sums are the totals, not the fields of the superblock.
    pub(super) fn new(image: &Image) -> Result<Self> {
        let (mut free, mut inodes) = (0, 0);
        let superblock = image.superblock();
        for number in 0..superblock.groups {
            let group = image.group(number)?;
            // One that says more is found to be damaged when it is touched.
            free += u64::from(group.free_blocks.min(superblock.blocks_of(number)));
            inodes += u64::from(group.free_inodes.min(superblock.inodes_per_group));
        }
        let kept = KEPT.min(superblock.blocks / 64);
        Ok(Self {
            states: (0..superblock.groups).map(|_| Mutex::new(&EXT_GROUP, None)).collect(),
            noted: Mutex::new(&EXT_SPACE, Noted::default()),
            space: Space::new(free, kept, inodes),
            windows: Windows::new(),
        })
    }

    pub(super) fn room(&self) -> Room {
        Room {
            free_blocks: self.space.free(),
            reserved_blocks: self.space.reserved(),
            free_inodes: u32::try_from(self.space.inodes()).unwrap_or(u32::MAX),
            damaged_groups: self.noted.lock().damaged,
        }
    }

    /// Freed blocks are stable, and may be used again.
    pub(super) fn reuse(&self, freed: Vec<Range<u64>>, superblock: &Superblock) {
        for run in freed {
            let number = group_of(run.start, superblock);
            if let Some(state) = &mut *self.states[number as usize].lock() {
                let start = superblock.first_block_of(number);
                let bits = (run.start - start) as u32..(run.end - start) as u32;
                state.waiting.remove(bits);
                state.returned += 1;
            }
            self.space.freed(run.end - run.start);
        }
    }

    /// Writes the descriptors of the groups that the transaction changed, with the checksums of their bitmaps. No other
    /// handle is open.
    pub(super) fn describe(&self, handle: &mut Handle<'_>, superblock: &Superblock) -> Result<()> {
        let changed = std::mem::take(&mut self.noted.lock().changed);
        for number in changed {
            let mut guard = self.states[number as usize].lock();
            let state = guard.as_mut().expect("a group that was changed is in memory");
            let group = &mut state.group;
            if std::mem::take(&mut state.blocks_changed) {
                let bitmap = handle.read(group.block_bitmap)?;
                group.block_bitmap_checksum = superblock.block_bitmap_checksum(&bitmap);
            }
            if std::mem::take(&mut state.inodes_changed) {
                let bitmap = handle.read(group.inode_bitmap)?;
                group.inode_bitmap_checksum = superblock.inode_bitmap_checksum(&bitmap);
            }
            handle.modify(superblock.descriptor_block(number), Role::Inodes, |bytes| {
                group.encode(number, &mut bytes[descriptor(number, superblock)], superblock);
            })?;
        }
        Ok(())
    }

    fn load<'g>(
        &self,
        guard: &'g mut MutexGuard<'_, Option<Box<State>>>,
        number: u32,
        image: &Image,
        handle: &Handle<'_>,
    ) -> Result<&'g mut State> {
        if guard.is_none() {
            let group = image.group(number)?.clone();
            let superblock = image.superblock();
            let block = handle.read(superblock.descriptor_block(number))?;
            let zeroed = Group::table_is_zeroed(&block[descriptor(number, superblock)]);
            **guard = Some(Box::new(State {
                group,
                zeroed,
                waiting: Marked::default(),
                claimed: Marked::default(),
                returned: 0,
                inodes_from: 0,
                blocks: Trust::Unknown,
                inodes: Trust::Unknown,
                listed: None,
                blocks_changed: false,
                inodes_changed: false,
            }));
        }
        Ok(guard.as_mut().expect("it was read just now"))
    }
}

pub(super) fn group_of(block: u64, superblock: &Superblock) -> u32 {
    ((block - superblock.first_data_block) / u64::from(superblock.blocks_per_group)) as u32
}

/// Where in its block the descriptor of a group is.
fn descriptor(number: u32, superblock: &Superblock) -> Range<usize> {
    let size = usize::from(superblock.descriptor_size);
    let at = (number % superblock.descriptors_per_block()) as usize * size;
    at..at + size
}

impl Op<'_> {
    /// Takes up to `want` blocks in a row, near `goal`.
    pub(super) fn allocate(&mut self, goal: u64, want: u32, kind: From) -> Result<Range<u64>> {
        self.may_fail()?;
        let has_one = self.volume.groups.space.has(kind);
        let superblock = self.volume.image.superblock();
        let goal = if superblock.has_block(goal) { goal } else { superblock.first_data_block };
        let first = group_of(goal, superblock);
        let passes =
            [(Busy::Skip, Claims::Avoid), (Busy::Wait, Claims::Avoid), (Busy::Wait, Claims::Take)];
        let mut search = Search::new(superblock.groups, first, passes.len());
        while has_one && let Some(visit) = search.next() {
            let how = passes[visit.pass];
            if visit.is_first && how.1 == Claims::Take {
                self.volume.groups.release_all_windows(superblock);
            }
            let near = goal - superblock.first_block_of(first);
            let wanted = (if visit.is_first { near as u32 } else { 0 }, want);
            if let Some(run) = self.allocate_in(visit, wanted, how, kind, &mut search)? {
                return Ok(run);
            }
        }
        self.lacks_blocks = true;
        Err(Error::NoSpace)
    }

    fn allocate_in(
        &mut self,
        Visit { number, .. }: Visit,
        (from, want): (u32, u32),
        (busy, claims): (Busy, Claims),
        kind: From,
        search: &mut Search,
    ) -> Result<Option<Range<u64>>> {
        let (volume, superblock) = (self.volume, self.volume.image.superblock());
        let lock = &volume.groups.states[number as usize];
        let Some(mut guard) = (match busy {
            Busy::Skip => lock.try_lock(),
            Busy::Wait => Some(lock.lock()),
        }) else {
            return Ok(None);
        };
        let state = volume.groups.load(&mut guard, number, &volume.image, &self.handle)?;
        search.found_none(state.returned);
        let claimed = if claims == Claims::Avoid { state.claimed.blocks } else { 0 };
        if state.group.free_blocks <= state.waiting.blocks + claimed
            || !self.blocks_are_sound(number, state)?
        {
            return Ok(None);
        }
        self.make_block_bitmap(number, state)?;
        let (start, bits) = (superblock.first_block_of(number), superblock.blocks_of(number));
        let bitmap = self.handle.read(state.group.block_bitmap)?;
        let claimed = |at| if claims == Claims::Avoid { state.claimed.word(at) } else { 0 };
        let used = |at| state.used(&bitmap, at) | claimed(at);
        let mut found = free_run(from..bits, want, used);
        if found.is_none() && from > 0 {
            found = free_run(0..bits, want, used);
        }
        // The change below would copy the bytes if this reference stayed.
        drop(bitmap);
        let Some(run) = found else { return Ok(None) };
        let taken = volume.groups.space.take(u64::from(run.end - run.start), kind);
        if taken == 0 {
            return Ok(None);
        }
        let bits = run.start..run.start + taken as u32;
        self.change_bits(number, state, bits, BlockChange::Take)
            .inspect_err(|_| volume.groups.space.untake(taken, kind))?;
        let run = start + u64::from(run.start)..start + u64::from(run.start) + taken;
        self.record(Step::Allocated(run.clone(), kind));
        Ok(Some(run))
    }

    /// Frees `blocks`, which a file had; they are used again when this is stable.
    pub(super) fn free_blocks(&mut self, blocks: Range<u64>) -> Result<()> {
        self.free_as(blocks, false)
    }

    /// Frees blocks that held metadata.
    pub(super) fn free_metadata(&mut self, blocks: Range<u64>) -> Result<()> {
        self.free_as(blocks, true)
    }

    fn free_as(&mut self, blocks: Range<u64>, metadata: bool) -> Result<()> {
        self.may_fail()?;
        let (volume, superblock) = (self.volume, self.volume.image.superblock());
        let usable = volume.image.usable(blocks.clone());
        usable.map_err(|what| corrupt(&what, blocks.start))?;
        let mut rest = blocks;
        while !rest.is_empty() {
            let number = group_of(rest.start, superblock);
            let start = superblock.first_block_of(number);
            let run = rest.start..rest.end.min(start + u64::from(superblock.blocks_of(number)));
            let mut guard = volume.groups.states[number as usize].lock();
            let state = volume.groups.load(&mut guard, number, &volume.image, &self.handle)?;
            let bits = (run.start - start) as u32..(run.end - start) as u32;
            if !self.blocks_are_sound(number, state)? {
                let what = "blocks are to be freed in a group whose bitmap is damaged";
                return Err(corrupt(what, run.start));
            }
            let bitmap = self.handle.read(state.group.block_bitmap)?;
            if state.group.no_block_bitmap || !bits.clone().all(|at| bit(&bitmap, at)) {
                let what = "blocks that are freed are free already";
                return Err(corrupt(what, run.start));
            }
            drop(bitmap);
            self.change_bits(number, state, bits, BlockChange::Free)?;
            self.note_freed(run.clone(), metadata);
            rest.start = run.end;
        }
        Ok(())
    }

    /// Undoes an allocation or freeing of blocks of one group.
    pub(super) fn change_blocks(&mut self, run: Range<u64>, change: BlockChange) -> Result<()> {
        let (volume, superblock) = (self.volume, self.volume.image.superblock());
        let number = group_of(run.start, superblock);
        let start = superblock.first_block_of(number);
        let mut guard = volume.groups.states[number as usize].lock();
        let state = volume.groups.load(&mut guard, number, &volume.image, &self.handle)?;
        let bits = (run.start - start) as u32..(run.end - start) as u32;
        self.change_bits(number, state, bits, change)
    }

    /// Changes the use of some blocks of a group: its bitmap, its record and the sums. If it fails, nothing is changed.
    fn change_bits(
        &mut self,
        number: u32,
        state: &mut State,
        bits: Range<u32>,
        change: BlockChange,
    ) -> Result<()> {
        let (volume, superblock) = (self.volume, self.volume.image.superblock());
        self.list_for_description(number, state)?;
        // Behind this, nothing can fail: both blocks are in the transaction.
        self.handle.modify(state.group.block_bitmap, Role::Inodes, |bytes| {
            let is_taken = matches!(change, BlockChange::Take | BlockChange::UndoFree);
            set_bits(bytes, bits.clone(), is_taken);
        })?;
        state.blocks_changed = true;
        let (group, count) = (&mut state.group, bits.end - bits.start);
        match change {
            BlockChange::Take | BlockChange::UndoTake(_) => {}
            BlockChange::Free => state.waiting.add(bits, superblock.blocks_per_group),
            BlockChange::UndoFree => state.waiting.remove(bits),
        }
        match change {
            BlockChange::Take | BlockChange::UndoFree => {
                group.free_blocks = group.free_blocks.saturating_sub(count);
            }
            BlockChange::UndoTake(_) | BlockChange::Free => group.free_blocks += count,
        }
        state.returned += u64::from(matches!(change, BlockChange::UndoTake(_)));
        let count = u64::from(count);
        match change {
            BlockChange::Take => {}
            BlockChange::UndoTake(from) => volume.groups.space.untake(count, from),
            BlockChange::Free => volume.groups.space.free_later(count),
            BlockChange::UndoFree => volume.groups.space.unfree(count),
        }
        Ok(())
    }

    /// Lists a group for [`Groups::describe`], with the first change of a transaction. The block of its descriptor is in the
    /// transaction then, so changing it at the end cannot fail.
    fn list_for_description(&mut self, number: u32, state: &mut State) -> Result<()> {
        let transaction = self.handle.transaction();
        if state.listed == Some(transaction) {
            return Ok(());
        }
        let (groups, superblock) = (&self.volume.groups, self.volume.image.superblock());
        self.handle.modify(superblock.descriptor_block(number), Role::Inodes, |_| ())?;
        state.listed = Some(transaction);
        groups.noted.lock().changed.push(number);
        Ok(())
    }

    /// Takes an inode: a directory far from others if its parent is the root, anything else near its parent.
    pub(super) fn allocate_inode(
        &mut self,
        parent: u32,
        directory: bool,
        name: &[u8],
    ) -> Result<u32> {
        self.may_fail()?;
        let superblock = self.volume.image.superblock();
        let home = (parent - 1) / superblock.inodes_per_group;
        let top = directory && parent == uvfs_ext::ROOT;
        let spread = name.iter().fold(0_u32, |hash, byte| hash.wrapping_mul(31) + u32::from(*byte));
        let first = if top { spread % superblock.groups } else { home };
        // A directory is placed in a group with more room than the average; when there is no such group, anywhere.
        let wanted = if directory {
            let (space, groups) = (&self.volume.groups.space, u64::from(superblock.groups));
            ((space.inodes() / groups) as u32, (space.free() / groups) as u32)
        } else {
            (1, 0)
        };
        let passes = [(Busy::Skip, wanted), (Busy::Skip, (1, 0)), (Busy::Wait, (1, 0))];
        let mut search = Search::new(superblock.groups, first, passes.len());
        while let Some(visit) = search.next() {
            let how = passes[visit.pass];
            let found = self.allocate_inode_in(visit.number, directory, how, &mut search)?;
            if let Some(inode) = found {
                return Ok(inode);
            }
        }
        Err(Error::NoSpace)
    }

    fn allocate_inode_in(
        &mut self,
        number: u32,
        directory: bool,
        (busy, least): (Busy, (u32, u32)),
        search: &mut Search,
    ) -> Result<Option<u32>> {
        let (volume, superblock) = (self.volume, self.volume.image.superblock());
        let lock = &volume.groups.states[number as usize];
        let Some(mut guard) = (match busy {
            Busy::Skip => lock.try_lock(),
            Busy::Wait => Some(lock.lock()),
        }) else {
            return Ok(None);
        };
        let state = volume.groups.load(&mut guard, number, &volume.image, &self.handle)?;
        search.found_none(state.returned);
        let poor = state.group.free_inodes < least.0.max(1) || state.group.free_blocks < least.1;
        if poor {
            return Ok(None);
        }
        if !self.inodes_are_sound(number, state)? {
            return Ok(None);
        }
        let per_group = superblock.inodes_per_group;
        // Group 0 begins with the format's own.
        let own = if number == 0 { superblock.first_inode() - 1 } else { 0 };
        let bitmap = if state.group.no_inodes {
            None
        } else {
            Some(self.handle.read(state.group.inode_bitmap)?)
        };
        let found = match &bitmap {
            None => Some(own..own + 1),
            Some(bitmap) => {
                let from = own.max(state.inodes_from).min(per_group);
                free_run(from..per_group, 1, |at| word_of(bitmap, at))
            }
        };
        drop(bitmap);
        let Some(run) = found else { return Ok(None) };
        state.inodes_from = run.end;
        if self.blocks_are_sound(number, state)? {
            self.make_block_bitmap(number, state)?;
        }
        self.list_for_description(number, state)?;
        if state.group.no_inodes {
            let mut bytes = vec![0; superblock.block_size as usize];
            set_bits(&mut bytes, per_group..8 * superblock.block_size, true);
            self.handle.replace(state.group.inode_bitmap, Role::Inodes, bytes);
            (state.group.no_inodes, state.inodes_changed) = (false, true);
            if superblock.features.metadata_checksum() || superblock.features.gdt_checksum() {
                state.group.unused_inodes = per_group;
            }
        }
        // It begins with zeros. What was never used before it is no inode, and must not look like one.
        let used = per_group - state.group.unused_inodes;
        let never_used = run.start >= used;
        let from = if never_used && !state.zeroed { used } else { run.start };
        self.clear_inodes(&state.group, from..run.start + 1)?;
        if never_used {
            state.group.unused_inodes = per_group - run.start - 1;
        }
        let inode = number * per_group + run.start + 1;
        self.change_inode_bit(number, state, run.start, directory, Use::Taken)?;
        self.record(Step::AllocatedInode(inode, directory));
        Ok(Some(inode))
    }

    /// Writes zeros over inodes that are not in use.
    fn clear_inodes(&mut self, group: &Group, inodes: Range<u32>) -> Result<()> {
        let superblock = self.volume.image.superblock();
        let size = usize::from(superblock.inode_size);
        let per_block = superblock.block_size / u32::from(superblock.inode_size);
        // More than a block's worth is skipped only where something else took inodes out of order.
        for block in inodes.start / per_block..=(inodes.end - 1) / per_block {
            let from = inodes.start.max(block * per_block) - block * per_block;
            let to = inodes.end.min((block + 1) * per_block) - block * per_block;
            let place = group.inode_table + u64::from(block);
            self.handle.modify(place, Role::Inodes, |bytes| {
                bytes[from as usize * size..to as usize * size].fill(0);
            })?;
        }
        Ok(())
    }

    /// Frees an inode whose blocks are free already.
    pub(super) fn free_inode(&mut self, inode: &Inode, directory: bool) -> Result<()> {
        self.may_fail()?;
        self.change_inode_use(inode.number, directory, Use::Free)?;
        self.record(Step::FreedInode(inode.number, directory));
        // Last, because it is not taken back: an orphan again would be a new one, which has no time (L3 of `orphans`).
        self.put_deleted(inode.number, time::seconds() as u32)?;
        self.volume.groups.release_window(inode.number, self.volume.image.superblock());
        Ok(())
    }

    pub(super) fn change_inode_use(&mut self, inode: u32, directory: bool, to: Use) -> Result<()> {
        let (volume, superblock) = (self.volume, self.volume.image.superblock());
        let number = (inode - 1) / superblock.inodes_per_group;
        let at = (inode - 1) % superblock.inodes_per_group;
        let mut guard = volume.groups.states[number as usize].lock();
        let state = volume.groups.load(&mut guard, number, &volume.image, &self.handle)?;
        let sound = self.inodes_are_sound(number, state)? && !state.group.no_inodes;
        if !sound || bit(&self.handle.read(state.group.inode_bitmap)?, at) != (to == Use::Free) {
            let what = "an inode is to be freed that its group's bitmap does not have";
            return Err(corrupt(what, state.group.inode_bitmap));
        }
        self.change_inode_bit(number, state, at, directory, to)
    }

    /// Changes the use of an inode of a group: its bitmap, its record and the sums. If it fails, nothing is changed.
    fn change_inode_bit(
        &mut self,
        number: u32,
        state: &mut State,
        at: u32,
        directory: bool,
        to: Use,
    ) -> Result<()> {
        let volume = self.volume;
        self.list_for_description(number, state)?;
        // Behind this, nothing can fail: both blocks are in the transaction.
        self.handle.modify(state.group.inode_bitmap, Role::Inodes, |bytes| {
            set_bits(bytes, at..at + 1, to == Use::Taken);
        })?;
        state.inodes_changed = true;
        let group = &mut state.group;
        let directories = u32::from(directory);
        match to {
            Use::Taken => {
                group.free_inodes = group.free_inodes.saturating_sub(1);
                group.directories += directories;
            }
            Use::Free => {
                group.free_inodes += 1;
                group.directories = group.directories.saturating_sub(directories);
                state.inodes_from = state.inodes_from.min(at);
                state.returned += 1;
            }
        }
        match to {
            Use::Taken => volume.groups.space.take_inode(),
            Use::Free => volume.groups.space.free_inode(),
        }
        Ok(())
    }

    /// Whether the bitmap of a group's blocks is valid: its checksum, its number of free blocks, and that metadata is in
    /// use. If not, the group is set aside, with what it said was free.
    fn blocks_are_sound(&self, number: u32, state: &mut State) -> Result<bool> {
        if state.blocks == Trust::Unknown {
            let superblock = self.volume.image.superblock();
            let (group, bits) = (&state.group, superblock.blocks_of(number));
            let first = self.first_block_bitmap(number);
            let bitmap = match group.no_block_bitmap {
                true => first.clone().into(),
                false => self.handle.read(group.block_bitmap)?,
            };
            let sum = superblock.features.metadata_checksum() && !group.no_block_bitmap;
            let sound = (!sum
                || superblock.block_bitmap_checksum(&bitmap) == group.block_bitmap_checksum)
                && free_bits(&bitmap, 0..bits) == group.free_blocks
                && bitmap.iter().zip(&first).all(|(bits, metadata)| bits & metadata == *metadata);
            state.blocks = Trust::of(sound);
            if !sound {
                let groups = &self.volume.groups;
                groups.space.lose(group.free_blocks.min(bits).into());
                groups.noted.lock().damaged += u32::from(state.inodes != Trust::Damaged);
                log_damage(number, "blocks");
            }
        }
        Ok(state.blocks == Trust::Sound)
    }

    /// Whether the bitmap of a group's inodes is valid: its checksum, its number of free inodes, and that no inode is
    /// in use which the descriptor says was never used.
    fn inodes_are_sound(&self, number: u32, state: &mut State) -> Result<bool> {
        if state.inodes == Trust::Unknown {
            let superblock = self.volume.image.superblock();
            let (group, bits) = (&state.group, superblock.inodes_per_group);
            let sound = if group.no_inodes {
                group.free_inodes == bits
            } else {
                let bitmap = self.handle.read(group.inode_bitmap)?;
                let used = bits - group.unused_inodes;
                (!superblock.features.metadata_checksum()
                    || superblock.inode_bitmap_checksum(&bitmap) == group.inode_bitmap_checksum)
                    && free_bits(&bitmap, 0..bits) == group.free_inodes
                    && free_bits(&bitmap, used..bits) == group.unused_inodes
            };
            // The first inodes of all are the format's own.
            let sound = sound && (number > 0 || !group.no_inodes);
            state.inodes = Trust::of(sound);
            if !sound {
                let groups = &self.volume.groups;
                groups.space.lose_inodes(group.free_inodes.min(bits).into());
                groups.noted.lock().damaged += u32::from(state.blocks != Trust::Damaged);
                log_damage(number, "inodes");
            }
        }
        Ok(state.inodes == Trust::Sound)
    }

    /// The bitmap of a group in which only metadata is in use.
    fn first_block_bitmap(&self, number: u32) -> Vec<u8> {
        let (image, superblock) = (&self.volume.image, self.volume.image.superblock());
        let start = superblock.first_block_of(number);
        let mut bytes = vec![0; superblock.block_size as usize];
        for run in image.metadata_of(number) {
            set_bits(&mut bytes, (run.start - start) as u32..(run.end - start) as u32, true);
        }
        bytes
    }

    /// The bitmap of a group whose blocks were never touched: its metadata, and the bits behind its end.
    fn make_block_bitmap(&mut self, number: u32, state: &mut State) -> Result<()> {
        if !state.group.no_block_bitmap {
            return Ok(());
        }
        self.list_for_description(number, state)?;
        let superblock = self.volume.image.superblock();
        let mut bytes = self.first_block_bitmap(number);
        set_bits(&mut bytes, superblock.blocks_of(number)..8 * superblock.block_size, true);
        (state.group.no_block_bitmap, state.blocks_changed) = (false, true);
        self.handle.replace(state.group.block_bitmap, Role::Inodes, bytes);
        Ok(())
    }
}

impl Volume {
    /// What there is.
    pub fn room(&self) -> Room {
        self.groups.room()
    }

    /// Free blocks that are kept for nodes of trees.
    pub fn kept_blocks(&self) -> u64 {
        self.groups.space.kept()
    }
}

pub(super) fn corrupt(what: &str, block: u64) -> Error {
    uvfs_ext::Error::Corrupt(uvfs_ext::Fault::new(what).block(block)).into()
}
