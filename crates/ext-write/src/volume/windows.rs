//! Allocation windows: blocks behind a growing file that other files leave to it.
//!
//! # Boundary
//! A window is advice. It lies in memory only, no count of free blocks knows it, and when no other block is free it is given up.
//!
//! # Concurrency
//! A thread takes a file's window out of the table, releases its blocks, allocates, and puts a new window back. The lock of the
//! table and that of a group are never held together. So a set of claims has exactly the blocks of the windows that are in the
//! table or in the hands of a thread.
//!
//! # Why
//! Files that grow in turns, each with an `fsync`, got blocks in turns: a log of a thousand appends beside another one had a
//! thousand extents. A window doubles while its file grows in order, as in the kernel's allocator. A file that was written once
//! has none, so small files lie side by side.

use super::bits::first_set;
use super::groups::{From, Groups, group_of};
use super::undo::Op;
use crate::error::Result;
use crate::hashing::Seeded;
use crate::lock_order::EXT_WINDOWS;
use std::collections::HashMap;
use std::ops::Range;
use uvfs_concurrent::lock::Mutex;
use uvfs_ext::Superblock;

/// Blocks of a file's first window, and of its largest one.
const FIRST: u32 = 8;
const MOST: u32 = 2048;
const SHARDS: usize = 16;
/// Windows of a shard: with more, any other file loses its window.
const SHARD_MAX: usize = 64;

/// Blocks that a growing file takes next.
#[derive(Debug)]
struct Window {
    /// May be empty; it begins where the file's last allocation ended.
    blocks: Range<u64>,
    /// Blocks that it was to have.
    size: u32,
}

/// The windows of a volume, by the numbers of inodes.
#[derive(Debug)]
pub(super) struct Windows(Vec<Mutex<HashMap<u32, Window, Seeded>>>);

impl Windows {
    pub(super) fn new() -> Self {
        let shard = || Mutex::new(&EXT_WINDOWS, HashMap::default());
        Self(std::iter::repeat_with(shard).take(SHARDS).collect())
    }

    fn take(&self, inode: u32) -> Option<Window> {
        self.0[inode as usize % SHARDS].lock().remove(&inode)
    }

    /// Returns windows that have to be released: the file's former one, or one that had to make room.
    fn put(&self, inode: u32, window: Window) -> [Option<Window>; 2] {
        let mut shard = self.0[inode as usize % SHARDS].lock();
        let full = shard.len() >= SHARD_MAX && !shard.contains_key(&inode);
        let other = if full { shard.keys().next().copied() } else { None };
        let evicted = other.and_then(|other| shard.remove(&other));
        [evicted, shard.insert(inode, window)]
    }
}

impl Groups {
    /// The file does not grow any more, or its blocks are gone.
    pub(super) fn release_window(&self, inode: u32, superblock: &Superblock) {
        if let Some(window) = self.windows.take(inode) {
            self.release(window.blocks, superblock);
        }
    }

    /// Gives all windows up, because no other block is free.
    pub(super) fn release_all_windows(&self, superblock: &Superblock) {
        for shard in &self.windows.0 {
            let taken = std::mem::take(&mut *shard.lock());
            taken.into_values().for_each(|window| self.release(window.blocks, superblock));
        }
    }

    fn release(&self, blocks: Range<u64>, superblock: &Superblock) {
        if blocks.is_empty() {
            return;
        }
        let number = group_of(blocks.start, superblock);
        let start = superblock.first_block_of(number);
        let mut guard = self.states[number as usize].lock();
        let state = guard.as_mut().expect("a group with claims is in memory");
        state.claimed.remove((blocks.start - start) as u32..(blocks.end - start) as u32);
    }
}

impl Op<'_> {
    /// Takes up to `want` blocks in a row near `goal` for a file that grows, and claims blocks behind them if it has grown in
    /// order before.
    pub(super) fn allocate_next(
        &mut self,
        inode: u32,
        goal: u64,
        want: u32,
        from: From,
    ) -> Result<Range<u64>> {
        let (groups, superblock) = (&self.volume.groups, self.volume.image.superblock());
        let mut size = 0;
        if let Some(window) = groups.windows.take(inode) {
            if window.blocks.start == goal {
                size = window.size.saturating_mul(2).clamp(FIRST, MOST);
            }
            groups.release(window.blocks, superblock);
        }
        let blocks = self.allocate(goal, want, from)?;
        let claimed = self.claim(blocks.end, size)?;
        let released = groups.windows.put(inode, Window { blocks: claimed, size });
        released.into_iter().flatten().for_each(|window| groups.release(window.blocks, superblock));
        Ok(blocks)
    }

    /// Claims the free blocks from `start` on in the group of the block before it, at most `most`.
    fn claim(&mut self, start: u64, most: u32) -> Result<Range<u64>> {
        let (groups, superblock) = (&self.volume.groups, self.volume.image.superblock());
        let number = group_of(start - 1, superblock);
        let (first, bits) = (superblock.first_block_of(number), superblock.blocks_of(number));
        let from = (start - first) as u32;
        let range = from..from.saturating_add(most).min(bits);
        if range.is_empty() {
            return Ok(start..start);
        }
        let mut guard = groups.states[number as usize].lock();
        let state = guard.as_mut().expect("a block of it was allocated just now");
        let bitmap = self.handle.read(state.group.block_bitmap)?;
        let end = first_set(range, |at| state.used(&bitmap, at) | state.claimed.word(at));
        if end > from {
            state.claimed.add(from..end, superblock.blocks_per_group);
        }
        Ok(start..first + u64::from(end))
    }
}
