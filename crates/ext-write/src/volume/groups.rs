//! Blocks and inodes, allocated by group.
//!
//! # Concurrency
//! One lock for each group. A thread that needs room locks the group it wants, and skips others that are busy; only
//! when all that were free had none does it wait for the busy ones. An operation asks for a block when it needs one; if there is
//! none, it is undone ([`super::undo`]).
//!
//! # Why
//! A freed block is used again only when the transaction that freed it is stable ([`Waiting`]): before, a crash brings its
//! owner back. A group that was never used has no bitmap on the disk; it is made when it is first touched. A bitmap that
//! contradicts its checksum or its descriptor would give blocks of one file to another: its group is set aside, as in the
//! kernel. Nothing is allocated there, freeing there is an error, and the bitmap is never written.

use super::undo::{Op, Step};
use super::{Volume, time};
use crate::error::{Error, Result};
use crate::lock_order::{EXT_GROUP, EXT_SPACE};
use crate::store::{Handle, Role};
use std::ops::Range;
use uvfs_concurrent::lock::{Mutex, MutexGuard};
use uvfs_ext::{Group, Image, Inode, Superblock};

/// A group in use.
#[derive(Debug)]
struct State {
    group: Group,
    /// Its inode table was zeroed when the image was made.
    zeroed: bool,
    waiting: Waiting,
    /// All inodes before it are in use.
    inodes_from: u32,
    blocks: Trust,
    inodes: Trust,
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

/// The blocks of a group that were freed and must not be used again yet.
#[derive(Debug, Clone, Default)]
struct Waiting {
    blocks: u32,
    /// A bit for each block of the group; nothing while no block waits.
    words: Box<[u64]>,
}

/// What there is.
#[derive(Debug, Default)]
struct Space {
    /// Free blocks, including those that wait for a commit.
    free: u64,
    /// Freed blocks that are not to be used again yet.
    waiting: u64,
    /// The last blocks, which only trees may take.
    kept: u64,
    inodes: u64,
    directories: u64,
    /// Groups that were set aside.
    damaged: u32,
}

#[derive(Debug)]
pub(super) struct Groups {
    states: Vec<Mutex<Option<Box<State>>>>,
    space: Mutex<Space>,
}

/// Room on a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Free blocks.
    pub free_blocks: u64,
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
}

/// The new state of blocks or of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Free,
    Taken,
}

/// Whether the blocks wait for a commit while they are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    Never,
    Now,
}

/// Blocks that are kept for nodes of trees.
const KEPT: u64 = 64;

/// Whether it waits for a group that is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Busy {
    Skip,
    Wait,
}

impl Groups {
    /// Reads all descriptors: their sums are the totals, not the fields of the superblock.
    pub(super) fn new(image: &Image) -> Result<Self> {
        let mut space = Space::default();
        let groups = image.superblock().groups;
        for number in 0..groups {
            let group = image.group(number)?;
            // One that says more is found to be damaged when it is touched.
            space.free += u64::from(group.free_blocks.min(image.superblock().blocks_of(number)));
            let per_group = image.superblock().inodes_per_group;
            space.inodes += u64::from(group.free_inodes.min(per_group));
            space.directories += u64::from(group.directories);
        }
        space.kept = KEPT.min(image.superblock().blocks / 64);
        let states = (0..groups).map(|_| Mutex::new(&EXT_GROUP, None)).collect();
        Ok(Self { states, space: Mutex::new(&EXT_SPACE, space) })
    }

    pub(super) fn room(&self) -> Room {
        let space = self.space.lock();
        Room {
            free_blocks: space.free,
            free_inodes: u32::try_from(space.inodes).unwrap_or(u32::MAX),
            damaged_groups: space.damaged,
        }
    }

    /// How many blocks an allocation may take.
    fn available(&self, from: From) -> u64 {
        let space = self.space.lock();
        let kept = if from == From::Free { space.kept } else { 0 };
        space.free.saturating_sub(space.waiting + kept)
    }

    /// Blocks that data, names and attributes cannot have.
    pub(super) fn kept(&self) -> u64 {
        self.space.lock().kept
    }

    /// Whether the next commit frees blocks.
    pub(super) fn has_waiting(&self) -> bool {
        self.space.lock().waiting > 0
    }

    /// Freed blocks are stable, and may be used again.
    pub(super) fn reuse(&self, freed: Vec<Range<u64>>, superblock: &Superblock) {
        for run in freed {
            let number = group_of(run.start, superblock);
            if let Some(state) = &mut *self.states[number as usize].lock() {
                let start = superblock.first_block_of(number);
                let bits = (run.start - start) as u32..(run.end - start) as u32;
                state.waiting.remove(bits);
            }
            self.space.lock().waiting -= run.end - run.start;
        }
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
            let (waiting, blocks, inodes) = (Waiting::default(), Trust::Unknown, Trust::Unknown);
            **guard =
                Some(Box::new(State { group, zeroed, waiting, inodes_from: 0, blocks, inodes }));
        }
        Ok(guard.as_mut().expect("it was read just now"))
    }
}

fn group_of(block: u64, superblock: &Superblock) -> u32 {
    ((block - superblock.first_data_block) / u64::from(superblock.blocks_per_group)) as u32
}

/// Where in its block the descriptor of a group is.
fn descriptor(number: u32, superblock: &Superblock) -> Range<usize> {
    let size = usize::from(superblock.descriptor_size);
    let at = (number % superblock.descriptors_per_block()) as usize * size;
    at..at + size
}

fn bit(bytes: &[u8], at: u32) -> bool {
    bytes[at as usize / 8] >> (at % 8) & 1 == 1
}

fn set_bits(bytes: &mut [u8], bits: Range<u32>, value: bool) {
    let mut at = bits.start;
    while at < bits.end {
        let byte = &mut bytes[at as usize / 8];
        if at.is_multiple_of(8) && bits.end - at >= 8 {
            *byte = if value { 0xFF } else { 0 };
            at += 8;
        } else {
            let mask = 1 << (at % 8);
            *byte = if value { *byte | mask } else { *byte & !mask };
            at += 1;
        }
    }
}

/// How many of `bits` are not set.
fn free_bits(bytes: &[u8], bits: Range<u32>) -> u32 {
    let mut free = 0;
    each_word(bits, |at, mask| free += (!word_of(bytes, at) & mask).count_ones());
    free
}

/// Word `at` of a bitmap of whole words.
fn word_of(bytes: &[u8], at: usize) -> u64 {
    bytes[at * 8..].first_chunk().map_or(u64::MAX, |word| u64::from_le_bytes(*word))
}

/// The first of `bits` that is set in the words that `word` gives; their end if none is.
fn first_set(bits: Range<u32>, word: impl Fn(usize) -> u64) -> u32 {
    let mut at = bits.start;
    while at < bits.end {
        let rest = word(at as usize / 64) >> (at % 64);
        if rest != 0 {
            return (at + rest.trailing_zeros()).min(bits.end);
        }
        at = (at / 64 + 1) * 64;
    }
    bits.end
}

/// The first run of free bits in `bits`, of at most `want`; a shorter one only if there is none so long. A bit is in use if it
/// is set in its word, which `used` gives.
fn free_run(bits: Range<u32>, want: u32, used: impl Fn(usize) -> u64) -> Option<Range<u32>> {
    let mut best: Option<Range<u32>> = None;
    let mut at = bits.start;
    loop {
        let start = first_set(at..bits.end, |word| !used(word));
        if start == bits.end {
            return best;
        }
        let end = first_set(start..bits.end.min(start.saturating_add(want)), &used);
        if end - start == want {
            return Some(start..end);
        }
        if best.as_ref().is_none_or(|best| best.end - best.start < end - start) {
            best = Some(start..end);
        }
        at = end;
    }
}

impl Waiting {
    /// `bits`, none of which waits, wait in a group of `most` blocks.
    fn add(&mut self, bits: Range<u32>, most: u32) {
        if self.words.is_empty() {
            self.words = vec![0; most.div_ceil(64) as usize].into();
        }
        self.blocks += bits.end - bits.start;
        each_word(bits, |at, mask| self.words[at] |= mask);
    }

    /// `bits`, all of which wait, wait no more.
    fn remove(&mut self, bits: Range<u32>) {
        self.blocks -= bits.end - bits.start;
        each_word(bits, |at, mask| self.words[at] &= !mask);
        if self.blocks == 0 {
            self.words = Box::default();
        }
    }

    fn word(&self, at: usize) -> u64 {
        self.words.get(at).copied().unwrap_or(0)
    }
}

/// Calls `change` for each word that has some of `bits`, with a mask of these.
fn each_word(bits: Range<u32>, mut change: impl FnMut(usize, u64)) {
    let mut at = bits.start;
    while at < bits.end {
        let end = bits.end.min((at / 64 + 1) * 64);
        change(at as usize / 64, u64::MAX >> (64 - (end - at)) << (at % 64));
        at = end;
    }
}

impl Op<'_> {
    /// Takes up to `want` blocks in a row, near `goal`.
    pub(super) fn allocate(&mut self, goal: u64, want: u32, from: From) -> Result<Range<u64>> {
        self.may_fail()?;
        let available = self.volume.groups.available(from);
        let want = u64::from(want).min(available) as u32;
        let superblock = self.volume.image.superblock();
        let goal = if superblock.has_block(goal) { goal } else { superblock.first_data_block };
        let first = group_of(goal, superblock);
        for busy in [Busy::Skip, Busy::Wait] {
            for step in 0..if want == 0 { 0 } else { superblock.groups } {
                let number = (first + step) % superblock.groups;
                let from = if step == 0 { goal - superblock.first_block_of(number) } else { 0 };
                if let Some(run) = self.allocate_in(number, from as u32, want, busy)? {
                    return Ok(run);
                }
            }
        }
        self.lacks_blocks = true;
        Err(Error::NoSpace)
    }

    fn allocate_in(
        &mut self,
        number: u32,
        from: u32,
        want: u32,
        busy: Busy,
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
        if state.group.free_blocks <= state.waiting.blocks
            || !self.blocks_are_sound(number, state)?
        {
            return Ok(None);
        }
        self.make_block_bitmap(number, state)?;
        let (start, bits) = (superblock.first_block_of(number), superblock.blocks_of(number));
        let bitmap = self.handle.read(state.group.block_bitmap)?;
        let used = |at: usize| word_of(&bitmap, at) | state.waiting.word(at);
        let mut found = free_run(from..bits, want, used);
        if found.is_none() && from > 0 {
            found = free_run(0..bits, want, used);
        }
        // The change below would copy the bytes if this reference stayed.
        drop(bitmap);
        let Some(run) = found else { return Ok(None) };
        self.change_bits(number, state, run.clone(), Use::Taken, Waits::Never)?;
        let run = start + u64::from(run.start)..start + u64::from(run.end);
        self.record(Step::Allocated(run.clone()));
        Ok(Some(run))
    }

    /// Frees `blocks`, which a file had; they are used again when this is stable.
    pub(super) fn free_blocks(&mut self, blocks: Range<u64>) -> Result<()> {
        self.free_as(blocks, false)
    }

    /// The same for blocks that held metadata.
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
            self.change_bits(number, state, bits, Use::Free, Waits::Now)?;
            self.note_freed(run.clone(), metadata);
            rest.start = run.end;
        }
        Ok(())
    }

    /// Undoes an allocation or freeing of blocks of one group.
    pub(super) fn change_blocks(&mut self, run: Range<u64>, to: Use, waits: Waits) -> Result<()> {
        let (volume, superblock) = (self.volume, self.volume.image.superblock());
        let number = group_of(run.start, superblock);
        let start = superblock.first_block_of(number);
        let mut guard = volume.groups.states[number as usize].lock();
        let state = volume.groups.load(&mut guard, number, &volume.image, &self.handle)?;
        let bits = (run.start - start) as u32..(run.end - start) as u32;
        self.change_bits(number, state, bits, to, waits)
    }

    /// Changes the use of some blocks of a group: its bitmap, its descriptor and the sums. If it fails, nothing is changed.
    fn change_bits(
        &mut self,
        number: u32,
        state: &mut State,
        bits: Range<u32>,
        to: Use,
        waits: Waits,
    ) -> Result<()> {
        let (volume, superblock) = (self.volume, self.volume.image.superblock());
        let (group, count) = (&mut state.group, bits.end - bits.start);
        // Behind this, nothing can fail: both blocks are in the transaction.
        self.pin(superblock.descriptor_block(number))?;
        let sum = self.handle.modify(group.block_bitmap, Role::Inodes, |bytes| {
            set_bits(bytes, bits.clone(), to == Use::Taken);
            superblock.block_bitmap_checksum(bytes)
        })?;
        group.block_bitmap_checksum = sum;
        match to {
            Use::Taken => group.free_blocks = group.free_blocks.saturating_sub(count),
            Use::Free => group.free_blocks += count,
        }
        match (waits, to) {
            (Waits::Never, _) => {}
            (Waits::Now, Use::Free) => state.waiting.add(bits, superblock.blocks_per_group),
            (Waits::Now, Use::Taken) => state.waiting.remove(bits),
        }
        self.put_descriptor(number, &state.group)?;
        let (count, mut space) = (u64::from(count), volume.groups.space.lock());
        match to {
            Use::Taken => space.free = space.free.saturating_sub(count),
            Use::Free => space.free += count,
        }
        match (waits, to) {
            (Waits::Never, _) => {}
            (Waits::Now, Use::Free) => space.waiting += count,
            (Waits::Now, Use::Taken) => space.waiting -= count,
        }
        Ok(())
    }

    /// Brings a block into the transaction, so that changing it later cannot fail.
    fn pin(&mut self, block: u64) -> Result<()> {
        self.handle.modify(block, Role::Inodes, |_| ())
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
        let (inodes, blocks) = {
            let space = self.volume.groups.space.lock();
            if space.inodes == 0 {
                return Err(Error::NoSpace);
            }
            let groups = u64::from(superblock.groups);
            ((space.inodes / groups) as u32, (space.free / groups) as u32)
        };
        let wanted = if directory { (inodes, blocks) } else { (1, 0) };
        for (busy, least) in [(Busy::Skip, wanted), (Busy::Skip, (1, 0)), (Busy::Wait, (1, 0))] {
            for step in 0..superblock.groups {
                let number = (first + step) % superblock.groups;
                if let Some(inode) = self.allocate_inode_in(number, directory, least, busy)? {
                    return Ok(inode);
                }
            }
        }
        Err(Error::NoSpace)
    }

    fn allocate_inode_in(
        &mut self,
        number: u32,
        directory: bool,
        least: (u32, u32),
        busy: Busy,
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
        if state.group.no_inodes {
            let mut bytes = vec![0; superblock.block_size as usize];
            set_bits(&mut bytes, per_group..8 * superblock.block_size, true);
            self.handle.replace(state.group.inode_bitmap, Role::Inodes, bytes);
            state.group.no_inodes = false;
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
        self.put_deleted(inode.number, time::seconds() as u32)?;
        self.change_inode_use(inode.number, directory, Use::Free)?;
        self.record(Step::FreedInode(inode.number, directory));
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

    /// Changes the use of an inode of a group: its bitmap, its descriptor and the sums. If it fails, nothing is changed.
    fn change_inode_bit(
        &mut self,
        number: u32,
        state: &mut State,
        at: u32,
        directory: bool,
        to: Use,
    ) -> Result<()> {
        let (volume, superblock) = (self.volume, self.volume.image.superblock());
        // Behind this, nothing can fail: both blocks are in the transaction.
        self.pin(superblock.descriptor_block(number))?;
        let sum = self.handle.modify(state.group.inode_bitmap, Role::Inodes, |bytes| {
            set_bits(bytes, at..at + 1, to == Use::Taken);
            superblock.inode_bitmap_checksum(bytes)
        })?;
        let group = &mut state.group;
        group.inode_bitmap_checksum = sum;
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
            }
        }
        self.put_descriptor(number, &state.group)?;
        let (directories, mut space) = (u64::from(directory), volume.groups.space.lock());
        match to {
            Use::Taken => {
                space.inodes = space.inodes.saturating_sub(1);
                space.directories += directories;
            }
            Use::Free => {
                space.inodes += 1;
                space.directories = space.directories.saturating_sub(directories);
            }
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
                let mut space = self.volume.groups.space.lock();
                space.free = space.free.saturating_sub(group.free_blocks.min(bits).into());
                space.damaged += u32::from(state.inodes != Trust::Damaged);
                drop(space);
                log_damage(number, "blocks");
            }
        }
        Ok(state.blocks == Trust::Sound)
    }

    /// The same of the bitmap of a group's inodes; none is in use that the descriptor says was never used.
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
                let mut space = self.volume.groups.space.lock();
                space.inodes = space.inodes.saturating_sub(group.free_inodes.min(bits).into());
                space.damaged += u32::from(state.blocks != Trust::Damaged);
                drop(space);
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
        let superblock = self.volume.image.superblock();
        let mut bytes = self.first_block_bitmap(number);
        set_bits(&mut bytes, superblock.blocks_of(number)..8 * superblock.block_size, true);
        state.group.block_bitmap_checksum = superblock.block_bitmap_checksum(&bytes);
        state.group.no_block_bitmap = false;
        self.handle.replace(state.group.block_bitmap, Role::Inodes, bytes);
        Ok(())
    }

    fn put_descriptor(&mut self, number: u32, group: &Group) -> Result<()> {
        let superblock = self.volume.image.superblock();
        self.handle.modify(superblock.descriptor_block(number), Role::Inodes, |bytes| {
            group.encode(number, &mut bytes[descriptor(number, superblock)], superblock);
        })
    }
}

impl Volume {
    /// What there is.
    pub fn room(&self) -> Room {
        self.groups.room()
    }

    /// Free blocks that are kept for nodes of trees.
    pub fn kept_blocks(&self) -> u64 {
        self.groups.kept()
    }
}

pub(super) fn corrupt(what: &str, block: u64) -> Error {
    uvfs_ext::Error::Corrupt(uvfs_ext::Fault::new(what).block(block)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bitmap of `words` words in which only `free` is free.
    fn bitmap(words: usize, free: &[Range<u32>]) -> Vec<u8> {
        let mut bytes = vec![0xFF; words * 8];
        for run in free {
            set_bits(&mut bytes, run.clone(), false);
        }
        bytes
    }

    #[test]
    fn the_longest_run_is_found_where_none_is_long_enough() {
        let bytes = bitmap(2, &[3..5, 20..24, 28..34, 60..70]);
        let mut waiting = Waiting::default();
        waiting.add(30..31, 128);
        waiting.add(62..66, 128);
        let used = |at| word_of(&bytes, at) | waiting.word(at);
        let find = |from, want| free_run(from..128, want, used);
        assert_eq!(find(0, 1), Some(3..4));
        assert_eq!(find(0, 4), Some(20..24));
        assert_eq!(find(0, 9), Some(20..24), "a block that waits ends a run");
        assert_eq!(find(24, 9), Some(66..70), "it does at the edge of a word, too");
        assert_eq!(find(29, 3), Some(31..34));
        assert_eq!(find(70, 9), None);
        let free = |from, want| free_run(from..128, want, |at| word_of(&bytes, at));
        assert_eq!(free(0, 9), Some(60..69), "a run goes on in the next word");
        assert_eq!(free_run(0..62, 9, |at| word_of(&bytes, at)), Some(28..34), "up to the end");
    }

    #[test]
    fn blocks_wait_by_bits_and_the_last_one_frees_the_words() {
        let mut waiting = Waiting::default();
        for bits in [0..1, 5..64, 64..128, 130..300] {
            waiting.add(bits, 320);
        }
        let all = |waiting: &Waiting| -> Vec<u32> {
            (0..320).filter(|at| waiting.word(*at as usize / 64) >> (at % 64) & 1 == 1).collect()
        };
        assert_eq!(all(&waiting), (0..1).chain(5..128).chain(130..300).collect::<Vec<_>>());
        for bits in [5..64, 64..128, 130..290] {
            waiting.remove(bits);
        }
        assert_eq!(all(&waiting), (0..1).chain(290..300).collect::<Vec<_>>());
        assert_eq!(waiting.blocks, 11);
        waiting.remove(0..1);
        waiting.remove(290..300);
        assert!(waiting.words.is_empty());
    }

    /// Each allocation compared each free block with every run that was freed since the last commit: after thousands of
    /// removals a create took milliseconds. Now it looks at each word of the group once at most, however many blocks wait.
    #[test]
    fn a_search_looks_at_each_word_once_however_many_blocks_wait() {
        const BITS: u32 = 32768;
        let mut bytes = bitmap(BITS as usize / 64, &[]);
        let mut waiting = Waiting::default();
        for at in (0..BITS - 64).step_by(2) {
            set_bits(&mut bytes, at..at + 1, false);
            waiting.add(at..at + 1, BITS);
        }
        set_bits(&mut bytes, BITS - 1..BITS, false);
        let looked = std::cell::Cell::new(0);
        let found = free_run(0..BITS, 8, |at| {
            looked.set(looked.get() + 1);
            word_of(&bytes, at) | waiting.word(at)
        });
        assert_eq!(found, Some(BITS - 1..BITS));
        assert!(looked.get() <= BITS / 64 + 2, "{} words", looked.get());
    }
}
