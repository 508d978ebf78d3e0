//! The page cache: file data of stores that are slower than memory.
//!
//! Keeps pages of 4 KiB, reads ahead, writes back, and stays within the budget. Not used for stores in memory, nor for
//! files that the kernel reads itself ([`crate::PageCaching::Store`]). `uvfs_containers` has replacement, tree, frames.
//!
//! # Concurrency
//! A hit takes no lock and stores to no shared line: it copies under the page's version ([`uvfs_containers::frame`]).
//! Operations on one file are ordered by *gate* ([`gate`]), *extending turn* (the end of the file) and *page lock*,
//! taken in this order. They are states outside [`crate::lock_order`]: a thread may keep them while it asks the store.
//! A thread waits for one page at a time, and locks the others of a run upwards by trying.
//!
//! | against        | hit          | fill          | write         | write back    | cut, punch    | evict         |
//! |----------------|--------------|---------------|---------------|---------------|---------------|---------------|
//! | **hit**        | nothing      | not up to date until filled | the page's version | nothing (only read) | version; size first | version |
//! | **fill**       |              | page lock: one fills, others wait | page lock | not dirty | the gate | not up to date and locked |
//! | **write**      |              |               | page lock; turn at the end | page lock | the gate | page lock; dirty |
//! | **write back** |              |               |               | `WRITING`: one run at a time | the gate | `WRITING` |
//! | **cut, punch** |              |               |               |               | the gate      | page lock or freezing: one of both |
//! | **evict**      |              |               |               |               |               | freezing: one wins |
//!
//! News of a change in the store never waits: it marks pages in the middle of a fill as stale, and the fill discards
//! them. Room is reserved before the gate ([`reclaim`]), because making room enters other files' gates.
//!
//! # Why
//! The concurrent page cache of Zijlstra (OLS 2007). Weakness: a miss copies data twice, to a buffer and to the page.

mod ahead;
mod clean;
mod dirty;
mod ending;
mod errors;
mod failures;
mod file;
mod gate;
mod gone;
mod growth;
mod in_flight;
mod opens;
mod pieces;
mod progress;
mod read;
mod reclaim;
mod space;
mod version;
mod whole;
mod workers;
mod write;
mod write_back;
#[cfg(test)]
mod write_back_tests;

use dirty::DirtyFiles;
pub(crate) use errors::ErrorCursor;
use failures::Failures;
pub(crate) use file::FilePages;
use gate::Alone;
use growth::Growth;
use opens::Borrowed;
use progress::Progress;
pub use read::Hit;
use space::Space;
pub(crate) use write::WriteOffset;

use crate::backend::InodeId;
use crate::error::Result;
use crate::inode::Ticket;
use crate::lock_order;
use crate::statistics::PageStatistics;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Weak};
use uvfs_concurrent::counter::Counter;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::Ordering::Relaxed;
use uvfs_concurrent::primitive::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize};
use uvfs_concurrent::shard::Shards;
use uvfs_containers::class::Class;
use uvfs_containers::frame::{Arena, FrameId, PAGE_BYTES};
use uvfs_containers::radix;
use uvfs_containers::replacement::Queues;
use workers::PageWorkers;

/// Bytes of a page, as file offsets are counted.
pub(crate) const PAGE: u64 = PAGE_BYTES as u64;
/// Address space for frames: 64 GiB of pages, or more if the budget is larger. Not memory.
const FRAMES_MIN: u64 = (64 << 30) / PAGE;
/// Buffers kept for later runs, at most.
const BUFFERS_MAX: usize = 4;
/// Pages of the largest run that is read or written in one request: 1 MiB.
pub(crate) const RUN_PAGES: u64 = 256;
const SHARDS: usize = 16;

/// State that the pages of all files share.
#[derive(Debug)]
pub(crate) struct PageCache {
    arena: Arena,
    queues: Mutex<Order>,
    /// The replacement's clock, readable without its lock.
    clock: AtomicU32,
    files: Shards<HashMap<u64, Weak<FilePages>>>,
    file_count: AtomicU64,
    /// Bytes of the parts that only some files have.
    part_bytes: AtomicUsize,
    /// The share of these bytes that belongs to files whose inodes are torn down. Readers may still use it.
    leaving_bytes: AtomicU64,
    /// Files with the class [`Class::Keep`].
    kept_files: AtomicU64,
    owners: AtomicU64,
    /// Held by the one thread that looks for room although other threads were refused room.
    looks: Mutex<()>,
    /// Pages dirty or being written. Lags behind during a write.
    dirty: AtomicI64,
    dirty_files: DirtyFiles,
    buffers: Mutex<Vec<Vec<u8>>>,
    /// Bytes of buffers, in use and not.
    buffer_bytes: AtomicU64,
    workers: PageWorkers,
    space: Space,
    progress: Progress,
    growth: Growth,
    ending: in_flight::Ending,
    failures: Failures,
    counters: Counters,
}

/// Why a page is inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// A caller asked for it.
    Now,
    /// Read ahead: a caller may ask for it.
    Ahead,
}

/// The replacement's order, and for how many evicted pages it keeps a record.
#[derive(Debug)]
struct Order {
    queues: Queues,
    capacity: u64,
    /// Pages ever inserted or removed.
    changes: u64,
}

/// Counts events of the page cache.
#[derive(Debug, Default)]
struct Counters {
    hits: Counter,
    misses: Counter,
    waited: Counter,
    around: Counter,
    ahead: Counter,
    evicted: Counter,
    stale: Counter,
    runs_written: Counter,
    pages_written: Counter,
    write_errors: Counter,
    throttled: Counter,
}

fn new_arena(frames: u32) -> io::Result<Arena> {
    Arena::new(&lock_order::PAGE_WAITS, &lock_order::ROOM_WAITS, frames)
}

/// Address space for frames: plenty, so that a budget can grow. Where little is available, at least `needed` frames and
/// about half of the available space, because others need some too.
fn reserve(needed: u32) -> Result<(Arena, u32)> {
    let plenty = needed.max(FRAMES_MIN as u32);
    if let Ok(arena) = new_arena(plenty) {
        return Ok((arena, plenty));
    }
    let mut frames = plenty;
    while frames / 2 > needed {
        frames /= 2;
        if new_arena(frames).is_ok() {
            break;
        }
    }
    let frames = (frames / 2).max(needed);
    Ok((new_arena(frames)?, frames))
}

impl PageCache {
    /// For a budget of `limit_bytes`, which may change later.
    ///
    /// # Errors
    /// The address space is not available.
    pub(crate) fn new(limit_bytes: u64) -> Result<Self> {
        let needed = (limit_bytes / PAGE).min(u64::from(u32::MAX) / 2) as u32;
        let (arena, frames) = reserve(needed)?;
        let mut queues = Queues::new(frames);
        queues.set_capacity(usize::try_from(limit_bytes / PAGE).unwrap_or(usize::MAX));
        arena.expect(usize::try_from(limit_bytes / PAGE).unwrap_or(usize::MAX));
        Ok(Self {
            arena,
            queues: Mutex::new(
                &lock_order::PAGE_QUEUES,
                Order { queues, capacity: limit_bytes / PAGE, changes: 0 },
            ),
            clock: AtomicU32::new(0),
            files: Shards::new(&lock_order::PAGE_FILES, SHARDS),
            file_count: AtomicU64::new(0),
            part_bytes: AtomicUsize::new(0),
            leaving_bytes: AtomicU64::new(0),
            kept_files: AtomicU64::new(0),
            owners: AtomicU64::new(1),
            looks: Mutex::new(&lock_order::ROOM_LOOKS, ()),
            dirty: AtomicI64::new(0),
            dirty_files: DirtyFiles::new(),
            buffers: Mutex::new(&lock_order::PAGE_BUFFERS, Vec::new()),
            buffer_bytes: AtomicU64::new(0),
            workers: PageWorkers::new(),
            space: Space::new(),
            progress: Progress::new(),
            growth: Growth::new(),
            ending: in_flight::Ending::default(),
            failures: Failures::new(),
            counters: Counters::default(),
        })
    }

    /// The budget has changed.
    pub(crate) fn expect(&self, limit_bytes: u64) {
        self.arena.expect(usize::try_from(limit_bytes / PAGE).unwrap_or(usize::MAX));
        // More pages may be dirty now, and more may exist.
        self.progress.made();
        self.arena.room_grew();
    }

    /// Failures that no caller may see.
    pub(crate) fn failures(&self) -> &Failures {
        &self.failures
    }

    /// Makes the pages of a file that has none yet.
    pub(crate) fn file(
        self: &Arc<Self>,
        inode: InodeId,
        now: Ticket,
        shared: bool,
    ) -> Arc<FilePages> {
        // ORDERING: Relaxed; only distinct numbers are wanted.
        let owner = self.owners.fetch_add(1, Relaxed);
        let file = Arc::new(FilePages::new(self.clone(), (inode, owner), now, shared));
        self.files.of(&owner).lock().insert(owner, Arc::downgrade(&file));
        // ORDERING: Relaxed; a size.
        self.file_count.fetch_add(1, Relaxed);
        file
    }

    fn forget_file(&self, owner: u64, class: Class) {
        self.files.of(&owner).lock().remove(&owner);
        self.reclassed(class, Class::Normal);
        // ORDERING: Relaxed; a size.
        self.file_count.fetch_sub(1, Relaxed);
    }

    /// A file has made one of the parts that only some files have.
    fn parts_grew(&self, bytes: usize) {
        // ORDERING: Relaxed; a size.
        self.part_bytes.fetch_add(bytes, Relaxed);
    }

    /// Such a part is freed.
    fn parts_shrank(&self, bytes: usize) {
        // ORDERING: Relaxed; a size.
        self.part_bytes.fetch_sub(bytes, Relaxed);
    }

    /// The inode of a file with `bytes` of memory is torn down.
    fn leaving_more(&self, bytes: u64) {
        // ORDERING: Relaxed; a size.
        self.leaving_bytes.fetch_add(bytes, Relaxed);
    }

    /// `bytes` of such files are freed.
    fn leaving_less(&self, bytes: u64) {
        // ORDERING: Relaxed; a size.
        self.leaving_bytes.fetch_sub(bytes, Relaxed);
    }

    /// A file's class has changed.
    fn reclassed(&self, from: Class, to: Class) {
        // ORDERING: Relaxed, both; a size.
        match (from, to) {
            (Class::Keep, Class::Keep) => {}
            (Class::Keep, _) => _ = self.kept_files.fetch_sub(1, Relaxed),
            (_, Class::Keep) => _ = self.kept_files.fetch_add(1, Relaxed),
            _ => {}
        }
    }

    fn file_of(&self, owner: u64) -> Option<Arc<FilePages>> {
        self.files.of(&owner).lock().get(&owner)?.upgrade()
    }

    /// Every file that has pages or had them.
    fn all_files(&self) -> Vec<Arc<FilePages>> {
        let files = self
            .files
            .iter()
            .flat_map(|shard| shard.lock().values().filter_map(Weak::upgrade).collect::<Vec<_>>());
        files.collect()
    }

    /// The replacement's clock.
    #[inline]
    fn clock(&self) -> u32 {
        // ORDERING: Relaxed; a stamp that may lag.
        self.clock.load(Relaxed)
    }

    /// Inserts new pages of a file, as (frame, key, why). They are locked, so no thread removes them yet.
    fn came_in(&self, class: Class, pages: impl Iterator<Item = (FrameId, u64, Wanted)>) {
        let mut order = self.queues.lock();
        let Order { queues, changes, .. } = &mut *order;
        for (id, key, wanted) in pages {
            *changes += 1;
            let ahead = wanted == Wanted::Ahead;
            queues.admit_as(&self.arena, id.number(), key, (class, ahead));
        }
        // ORDERING: Relaxed; a stamp that may lag, stored under the lock.
        self.clock.store(queues.clock(), Relaxed);
    }

    /// Sets the class of resident pages. Evaluates `class` under the queue lock, so the later of two callers stores the
    /// current class.
    fn set_class(&self, pages: impl Iterator<Item = FrameId>, class: impl FnOnce() -> Class) {
        let queues = &mut self.queues.lock().queues;
        let class = class();
        pages.for_each(|id| _ = queues.set_class(id.number(), class));
    }

    /// Pages in the classes `Keep` and `Once`.
    pub(crate) fn classes(&self) -> (u64, u64) {
        let queues = &self.queues.lock().queues;
        (queues.len_of(Class::Keep) as u64, queues.len_of(Class::Once) as u64)
    }

    /// Removes a page from the queues without an eviction. Its frame is not free yet.
    fn leaves(&self, id: FrameId) {
        let mut order = self.queues.lock();
        order.changes += 1;
        order.queues.remove(id.number());
    }

    /// Pages ever inserted or removed, pages dirty, pages written. Equal values mean that nothing has changed in
    /// between.
    pub(crate) fn changes(&self) -> (u64, u64, u64) {
        let moved = self.queues.lock().changes;
        (moved, self.dirty(), self.counters.pages_written.total())
    }

    /// `pages` more are dirty.
    fn dirty_more(&self, pages: u64) {
        // Every writer reads this line: a write over dirty pages does not store to it.
        if pages > 0 {
            // ORDERING: Relaxed; a count that may lag.
            self.dirty.fetch_add(pages as i64, Relaxed);
        }
    }

    /// `pages` fewer are dirty or being written.
    fn dirty_less(&self, pages: u64) {
        // ORDERING: Relaxed; a count that may lag. The lock of `progress` orders it for threads that wait for room.
        self.dirty.fetch_sub(pages as i64, Relaxed);
    }

    /// Pages dirty or being written.
    fn dirty(&self) -> u64 {
        // ORDERING: Relaxed; a count that may lag.
        self.dirty.load(Relaxed).max(0) as u64
    }

    /// A buffer of `bytes` with arbitrary content. It begins at a page of memory: a store that bypasses the host's
    /// cache takes such a buffer as it is, and copies any other.
    fn buffer(&self, bytes: usize) -> Buffer<'_> {
        let mut data = self.buffers.lock().pop().unwrap_or_default();
        let needed = bytes + PAGE as usize;
        if data.len() < needed {
            // ORDERING: Relaxed; a size that may lag.
            self.buffer_bytes.fetch_add((needed - data.len()) as u64, Relaxed);
            data.resize(needed, 0);
        }
        let start = data.as_ptr().align_offset(PAGE as usize).min(PAGE as usize);
        Buffer { cache: self, data, start, bytes }
    }

    /// Frees the unused buffers.
    fn forget_buffers(&self) {
        let gone = std::mem::take(&mut *self.buffers.lock());
        let bytes = gone.iter().map(|data| data.len() as u64).sum();
        // ORDERING: Relaxed; a size that may lag.
        self.buffer_bytes.fetch_sub(bytes, Relaxed);
    }

    /// Bytes of frames, their descriptors and the trees.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.arena.resident() as u64 * PAGE + self.overhead_bytes()
    }

    fn overhead_bytes(&self) -> u64 {
        // ORDERING: Relaxed; a size that may lag.
        let buffers = self.buffer_bytes.load(Relaxed);
        (self.arena.descriptor_bytes() + radix::bytes_of_all()) as u64 + buffers
    }

    /// Bytes of files beside their pages. Files of inodes that are torn down are not counted
    /// ([`PageCache::leaving_bytes`]).
    pub(crate) fn file_bytes(&self) -> usize {
        // ORDERING: Relaxed; a size that may lag.
        let parts = self.part_bytes.load(Relaxed);
        // ORDERING: Relaxed; a size that may lag.
        let all = self.file_count.load(Relaxed) as usize * FILE_BYTES + parts;
        all.saturating_sub(usize::try_from(self.leaving_bytes()).unwrap_or(usize::MAX))
    }

    /// Bytes of files whose inodes are torn down. They are freed when every reader has passed its grace period.
    pub(crate) fn leaving_bytes(&self) -> u64 {
        // ORDERING: Relaxed; a size that may lag.
        self.leaving_bytes.load(Relaxed)
    }

    /// Files that have pages or had them, and the number of them with the class `Keep`.
    pub(crate) fn file_counts(&self) -> (usize, usize) {
        // ORDERING: Relaxed, both; sizes that may lag.
        (self.file_count.load(Relaxed) as usize, self.kept_files.load(Relaxed) as usize)
    }

    /// Contents and counters of the cache.
    pub(crate) fn statistics(&self, limit: u64) -> PageStatistics {
        let counters = &self.counters;
        PageStatistics {
            held: self.held_bytes(),
            limit,
            pages: self.arena.allocated() as u64,
            dirty_bytes: self.dirty() * PAGE,
            hits: counters.hits.total(),
            misses: counters.misses.total(),
            waited: counters.waited.total(),
            around: counters.around.total(),
            read_ahead: counters.ahead.total(),
            evicted: counters.evicted.total(),
            stale: counters.stale.total(),
            runs_written: counters.runs_written.total(),
            pages_written: counters.pages_written.total(),
            write_errors: counters.write_errors.total(),
            throttled: counters.throttled.total(),
        }
    }
}

/// Bytes of one file's [`FilePages`], with its table entries and the allocator's overhead.
pub(crate) const FILE_BYTES: usize = size_of::<FilePages>() + 96;

/// Reusable memory for one run.
#[derive(Debug)]
struct Buffer<'a> {
    cache: &'a PageCache,
    data: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl<'a> Buffer<'a> {
    /// Lets it begin where its memory begins, as the store expects of a run that it answers later.
    fn at_memory_start(mut self) -> Self {
        self.start = 0;
        self
    }

    /// Takes the memory out, which stays counted until [`Buffer::of`] takes it back.
    fn into_bytes(mut self) -> Vec<u8> {
        let data = std::mem::take(&mut self.data);
        std::mem::forget(self);
        data
    }

    /// Wraps `data` from [`Buffer::into_bytes`] again.
    fn of(cache: &'a PageCache, data: Vec<u8>, bytes: usize) -> Self {
        Self { cache, start: 0, bytes: bytes.min(data.len()), data }
    }
}

impl std::ops::Deref for Buffer<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.data[self.start..self.start + self.bytes]
    }
}

impl std::ops::DerefMut for Buffer<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.data[self.start..self.start + self.bytes]
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        let mut buffers = self.cache.buffers.lock();
        if buffers.len() < BUFFERS_MAX {
            buffers.push(std::mem::take(&mut self.data));
        } else {
            // ORDERING: Relaxed; a size that may lag.
            self.cache.buffer_bytes.fetch_sub(self.data.len() as u64, Relaxed);
        }
    }
}

/// The key under which the replacement remembers a page.
fn key(inode: InodeId, index: u64) -> u64 {
    // Mixed like splitmix64: keys of one file's pages must not share their low bits.
    let mut mixed = inode.0.rotate_left(32) ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 31)
}
