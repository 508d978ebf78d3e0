//! Blocks of a device in memory: rows lead to frames, and a block is read once, with no lock held.
//!
//! ```text
//!   row (16 ways, one lock) ──▶ frame: word + bytes          group of rows ──▶ free frames (one lock)
//!          │ all ways pinned
//!          └─▶ overflow: blocks on the heap, freed with their last pin
//!
//!             claim            filled              (row's lock: no pins)
//!   free ──────────▶ Filling ─────────▶ Filled ─────────────────────────▶ free, or claimed again
//!    ▲                  │ fail             │ purge
//!    │                  ▼                  ▼
//!    └── last pin ── Detached (no row leads to it)
//! ```
//!
//! # Boundary
//! Keeps blocks that callers read, and returns references to them. Does not read, write, or know the meaning of a
//! block. A caller that knows of a change on the device must purge the block.
//!
//! # Concurrency
//! `docs/protocols/blocks.md` has the invariants and the orderings: one place (B1); pins are added under the row's lock
//! (B2); the thread that fills (B3); detached frames (B4); no wait for a pin (B5); a failed read leaves nothing (B6);
//! O1, O2. W1 and W2 of waiters are in `wait`. A thread waits only for another one that reads the requested block. So a
//! thread that fills must not request blocks meanwhile. Checked by `model_*` in `models`.

mod bytes;
mod free;
mod wait;
mod word;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

use super::SetAssociative;
use super::hash::RowHash;
use super::row::Row;
use bytes::{Frames, OnHeap};
use free::{Free, Taken};
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use uvfs_concurrent::counter::Counter;
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_concurrent::padded::Padded;
use uvfs_concurrent::primitive::atomic::{AtomicU64, AtomicUsize, Ordering};
use wait::Waits;
use word::{Contents, Unpinned, Word};

/// Ways of a row.
const WAYS: usize = if cfg!(loom) { 1 } else { 16 };
/// Rows that share their frames.
const ROWS_OF_GROUP: usize = 16;
/// The smallest block, and a divisor of every block size: a page, whose memory can be returned alone.
const BLOCK_BYTES_MIN: usize = if cfg!(loom) { 1 } else { 4096 };
/// Bytes of tables for each frame: its part of a row, its word, its numbers in the free lists.
const TABLES_BYTES: usize = 16 + size_of::<Word>() + 8;

type Table = SetAssociative<u64, u32, WAYS, Overflow>;
type BufferRow = Row<u64, u32, Overflow, WAYS>;

/// The classes of a buffer cache's locks; `rows` before `free`, `waits` anywhere.
#[derive(Debug, Clone, Copy)]
pub struct BufferClasses {
    /// The class of a row's lock.
    pub rows: &'static LockClass,
    /// The class of the lock of a group's free frames.
    pub free: &'static LockClass,
    /// The class of the locks under which threads sleep until a block is read.
    pub waits: &'static LockClass,
}

/// The content of a buffer cache, and its counts so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BufferCounts {
    /// The number of rows.
    pub rows: u64,
    /// The number of blocks for which there is room.
    pub frames: u64,
    /// Bytes in use now: tables, frames that have memory, overflow.
    pub bytes: u64,
    /// Look-ups that found a filled block.
    pub hits: u64,
    /// Look-ups that made the caller read the block.
    pub misses: u64,
    /// Look-ups that found another thread reading the block.
    pub waits: u64,
    /// Blocks that were evicted for others, or by a purge or a shrink.
    pub evictions: u64,
    /// Blocks that went to the heap because all ways of their row were pinned.
    pub overflows: u64,
    /// Reads that failed.
    pub failures: u64,
}

#[derive(Debug, Default)]
struct Counters {
    hits: Counter,
    misses: Counter,
    waits: Counter,
    evictions: Counter,
    overflows: Counter,
    failures: Counter,
}

/// A block on the heap.
#[derive(Debug)]
struct Spill {
    word: Word,
    bytes: OnHeap,
}

/// The overflow of a row; one word while there is none, which is nearly always.
#[derive(Debug, Default)]
struct Overflow(Option<Box<Spills>>);

#[derive(Debug, Default)]
struct Spills(Vec<(u64, Arc<Spill>)>);

impl Overflow {
    fn find(&self, block: u64) -> Option<&Arc<Spill>> {
        let spills = self.0.as_ref()?;
        spills.0.iter().find(|(one, _)| *one == block).map(|(_, spill)| spill)
    }

    fn push(&mut self, block: u64, spill: Arc<Spill>) {
        self.0.get_or_insert_default().0.push((block, spill));
    }

    /// Keeps the blocks for which `keep` returns true.
    fn retain(&mut self, mut keep: impl FnMut(u64, &Arc<Spill>) -> bool) {
        let Some(spills) = &mut self.0 else { return };
        spills.0.retain(|(block, spill)| keep(*block, spill));
        if spills.0.is_empty() {
            self.0 = None;
        }
    }
}

/// Rows that share frames.
#[derive(Debug)]
struct Group {
    free: Mutex<Free>,
    /// The next row of the group to give up a frame.
    hand: AtomicUsize,
}

/// The cache of a device's blocks. The protocol is in the module's documentation.
///
/// Structural blocks of a file system are small, hot, and read in place. With a word beside the row, a reader drops its
/// pin without the row's lock. Blocks have at least 4 KiB, so that their memory can be returned
/// ([`BufferCache::shrink`]); a store with smaller blocks keeps several in one. Weakness: 88 bytes of tables for each
/// block, mostly for a cache line that only its own readers share.
pub struct BufferCache {
    table: Table,
    groups: Box<[Padded<Group>]>,
    words: Box<[Word]>,
    frames: Frames,
    waits: Waits,
    block_bytes: usize,
    held_bytes: Padded<AtomicU64>,
    counters: Counters,
}

impl BufferCache {
    /// A cache of blocks of `block_bytes`, a power of two of at least 4 KiB, in at most about `bytes_max` bytes, but at
    /// least one row of 16 blocks. Memory follows as blocks are inserted; the tables exist from the start.
    ///
    /// # Errors
    /// Another size of blocks, or the system refuses to reserve the address space.
    pub fn new(classes: BufferClasses, bytes_max: usize, block_bytes: usize) -> io::Result<Self> {
        if !block_bytes.is_power_of_two() || block_bytes < BLOCK_BYTES_MIN {
            let why =
                format!("buffers of {block_bytes} bytes: a power of two of 4096 or more is needed");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        // Frame numbers have 32 bits.
        let rows = bytes_max / (block_bytes + TABLES_BYTES) / WAYS;
        let rows = rows.clamp(1, u32::MAX as usize / WAYS);
        let table = Table::new(classes.rows, rows, RowHash::process());
        let group = |first: usize| {
            let rows = ROWS_OF_GROUP.min(rows - first);
            let free = Free::new((first * WAYS) as u32, rows * WAYS, rows);
            Padded(Group { free: Mutex::new(classes.free, free), hand: AtomicUsize::new(0) })
        };
        let frames = rows * WAYS;
        let cache = Self {
            table,
            groups: (0..rows).step_by(ROWS_OF_GROUP).map(group).collect(),
            words: (0..frames).map(|_| Word::default()).collect(),
            frames: Frames::new(frames, block_bytes)?,
            waits: Waits::new(classes.waits),
            block_bytes,
            held_bytes: Padded(AtomicU64::new(0)),
            counters: Counters::default(),
        };
        let groups = size_of_val(&*cache.groups) + frames * 2 * size_of::<u32>();
        cache.hold(cache.table.bytes() + size_of_val(&*cache.words) + groups);
        Ok(cache)
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Block `block`; `read` fills it if it is not cached, while other threads that want it wait.
    ///
    /// `read` is called with no lock held and must not request blocks of this cache. Bytes that it does not write keep
    /// their old content.
    ///
    /// # Errors
    /// Those of `read`, which are not kept: the next caller reads again.
    pub fn get<E>(
        &self,
        block: u64,
        read: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Buffer<'_>, E> {
        loop {
            match self.look(block, Want::Bytes) {
                Look::Filled(pin) => {
                    self.counters.hits.hit();
                    return Ok(Buffer(pin));
                }
                Look::Claimed(mut filling) => {
                    read(filling.bytes())?;
                    return Ok(filling.filled());
                }
                Look::Filling(pin) => {
                    self.counters.waits.hit();
                    if pin.wait() == Contents::Filled {
                        return Ok(Buffer(pin));
                    }
                }
                // Does not occur for `Want::Bytes`.
                Look::Left => {}
            }
        }
    }

    /// Block `block`, for the caller to fill, for read-ahead. `None` if it is cached or being read, or if it would only
    /// fit into the overflow.
    pub fn try_claim(&self, block: u64) -> Option<Filling<'_>> {
        match self.look(block, Want::Claim) {
            Look::Claimed(filling) => Some(filling),
            _ => None,
        }
    }

    /// Purges every block for which `is_gone` returns true, row by row. A block in use stays unchanged for its users,
    /// and no other thread finds it. Returns their number.
    pub fn purge(&self, mut is_gone: impl FnMut(u64) -> bool) -> usize {
        let mut purged = 0;
        for at in 0..self.table.rows() {
            let mut row = self.table.lock(at);
            for way in 0..WAYS {
                if row.is_used(way) && is_gone(row.key(way)) {
                    let (_, frame) = row.clear(way);
                    if self.words[frame as usize].detach() {
                        self.put(at, frame);
                    }
                    purged += 1;
                }
            }
            row.extra.retain(|block, spill| {
                let gone = is_gone(block);
                if gone {
                    purged += 1;
                    if spill.word.detach() {
                        self.release(self.block_bytes);
                    }
                }
                !gone
            });
        }
        purged
    }

    /// Gives the memory of about `bytes` bytes back to the system, one block of a row after the other, each the oldest
    /// of its row. Gives back less if the rest is in use. Returns the number of bytes. Later misses slowly allocate the
    /// memory again.
    pub fn shrink(&self, bytes: u64) -> u64 {
        let block = self.block_bytes as u64;
        let (mut given, mut in_vain) = (0, 0);
        while given < bytes && in_vain < self.table.rows() {
            let at = self.table.next_row();
            let free = self.groups[at / ROWS_OF_GROUP].free.lock().take_in_place();
            let Some(frame) = free.or_else(|| self.evict(at, 0)) else {
                in_vain += 1;
                continue;
            };
            // SAFETY: only this thread has the frame (B1), and there is no reference to its bytes.
            unsafe { self.frames.give_back(frame) };
            self.groups[at / ROWS_OF_GROUP].free.lock().put_absent(frame);
            self.release(self.block_bytes);
            (given, in_vain) = (given + block, 0);
        }
        given
    }

    /// Bytes in use now: tables, frames that have memory, overflow. Takes no lock.
    pub fn held_bytes(&self) -> u64 {
        // ORDERING: Relaxed; a size that may lag.
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// The present size, and the counts so far.
    pub fn counts(&self) -> BufferCounts {
        let Counters { hits, misses, waits, evictions, overflows, failures } = &self.counters;
        BufferCounts {
            rows: self.table.rows() as u64,
            frames: self.words.len() as u64,
            bytes: self.held_bytes(),
            hits: hits.total(),
            misses: misses.total(),
            waits: waits.total(),
            evictions: evictions.total(),
            overflows: overflows.total(),
            failures: failures.total(),
        }
    }

    fn look(&self, block: u64, want: Want) -> Look<'_> {
        let at = self.table.row_of(block);
        let (mut robbed, mut may_rob) = (None, true);
        loop {
            let mut row = self.table.lock(at);
            if let Some(place) = self.find(&mut row, block) {
                if let Some(frame) = robbed {
                    self.put(at, frame);
                }
                if want == Want::Claim {
                    return Look::Left;
                }
                let contents = self.word(&place).pin();
                let pin = Pin { cache: self, at, place };
                return match contents {
                    Contents::Filled => Look::Filled(pin),
                    _ => Look::Filling(pin),
                };
            }
            let place = match self.make_room(&mut row, at, robbed.take(), may_rob) {
                Room::Way(way, frame) => {
                    self.words[frame as usize].claim();
                    row.set(way, block, frame);
                    Place::Frame(frame)
                }
                Room::Rob => {
                    drop(row);
                    (robbed, may_rob) = (self.rob(at), false);
                    continue;
                }
                Room::None if want == Want::Claim => return Look::Left,
                Room::None => {
                    let spill =
                        Spill { word: Word::default(), bytes: OnHeap::new(self.block_bytes) };
                    spill.word.claim();
                    let spill = Arc::new(spill);
                    row.extra.push(block, spill.clone());
                    self.counters.overflows.hit();
                    self.hold(self.block_bytes);
                    Place::Spill(spill)
                }
            };
            self.counters.misses.hit();
            return Look::Claimed(Filling(Some((Pin { cache: self, at, place }, block))));
        }
    }

    /// The place of `block`, which is then the youngest of its row.
    fn find(&self, row: &mut BufferRow, block: u64) -> Option<Place> {
        if let Some(way) = row.find(block) {
            row.touch(way);
            return Some(Place::Frame(row.value(way)));
        }
        row.extra.find(block).map(|spill| Place::Spill(spill.clone()))
    }

    /// A way with a frame: a free one, or the row's oldest. A row with less than its share first takes a frame from
    /// another row.
    fn make_room(
        &self,
        row: &mut BufferRow,
        at: usize,
        robbed: Option<u32>,
        may_rob: bool,
    ) -> Room {
        match (row.unused(), robbed) {
            (Some(way), Some(frame)) => return Room::Way(way, frame),
            (Some(way), None) => match self.groups[at / ROWS_OF_GROUP].free.lock().take() {
                Taken::InPlace(frame) => return Room::Way(way, frame),
                Taken::Absent(frame) => {
                    self.hold(self.block_bytes);
                    return Room::Way(way, frame);
                }
                Taken::Nothing { share } if may_rob && row.count() < share => return Room::Rob,
                Taken::Nothing { .. } => {}
            },
            (None, Some(frame)) => self.put(at, frame),
            (None, None) => {}
        }
        match self.take_oldest(row) {
            // The cleared way is the first unused one, or another unused one is as good.
            Some(frame) => row.unused().map_or(Room::None, |way| Room::Way(way, frame)),
            None => Room::None,
        }
    }

    /// The frame of the row's oldest block without pins; the block is evicted (B2).
    fn take_oldest(&self, row: &mut BufferRow) -> Option<u32> {
        let way = row.oldest(|frame| self.words[*frame as usize].is_idle())?;
        self.counters.evictions.hit();
        Some(row.clear(way).1)
    }

    /// The frame of the oldest block of row `at`, if the row has more than `share`.
    fn evict(&self, at: usize, share: usize) -> Option<u32> {
        let mut row = self.table.lock(at);
        if row.count() > share { self.take_oldest(&mut row) } else { None }
    }

    /// A frame of another row of the group that has more than one; the rows take turns. Called with no lock held.
    fn rob(&self, at: usize) -> Option<u32> {
        let first = at / ROWS_OF_GROUP * ROWS_OF_GROUP;
        let rows = ROWS_OF_GROUP.min(self.table.rows() - first);
        let hand = &self.groups[at / ROWS_OF_GROUP].hand;
        (0..rows).find_map(|_| {
            // ORDERING: Relaxed; a turn, nothing is reached through it.
            let other = first + hand.fetch_add(1, Ordering::Relaxed) % rows;
            if other == at { None } else { self.evict(other, 1) }
        })
    }

    /// Frees a frame that has memory, to its group.
    fn put(&self, at: usize, frame: u32) {
        self.groups[at / ROWS_OF_GROUP].free.lock().put(frame);
    }

    /// Drops the blocks of row `at`'s overflow that have no pins.
    #[cold]
    fn trim(&self, at: usize) {
        let mut row = self.table.lock(at);
        row.extra.retain(|_, spill| {
            let used = !spill.word.is_idle();
            if !used {
                self.release(self.block_bytes);
            }
            used
        });
    }

    fn word<'a>(&'a self, place: &'a Place) -> &'a Word {
        match place {
            Place::Frame(frame) => &self.words[*frame as usize],
            Place::Spill(spill) => &spill.word,
        }
    }

    fn hold(&self, bytes: usize) {
        // ORDERING: Relaxed; a size that may lag.
        self.held_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn release(&self, bytes: usize) {
        // ORDERING: Relaxed; a size that may lag.
        self.held_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

impl fmt::Debug for BufferCache {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BufferCache").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// The purpose of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    /// The block's bytes.
    Bytes,
    /// To fill the block, if no other thread has filled it or does.
    Claim,
}

/// The outcome of a look-up.
enum Look<'a> {
    Filled(Pin<'a>),
    /// Another thread reads it.
    Filling(Pin<'a>),
    /// The caller must fill it.
    Claimed(Filling<'a>),
    /// There is no block to fill.
    Left,
}

/// The place into which a block can be inserted.
enum Room {
    Way(usize, u32),
    /// A frame of another row, once the lock is released.
    Rob,
    /// Only the overflow.
    None,
}

/// The place of a block.
#[derive(Debug)]
enum Place {
    Frame(u32),
    Spill(Arc<Spill>),
}

/// A pin of a block.
#[derive(Debug)]
struct Pin<'a> {
    cache: &'a BufferCache,
    /// The block's row.
    at: usize,
    place: Place,
}

impl Pin<'_> {
    fn word(&self) -> &Word {
        self.cache.word(&self.place)
    }

    /// Sleeps until the block is filled or the read failed; then wakes the block's next sleeper.
    fn wait(&self) -> Contents {
        let waits = &self.cache.waits;
        if waits.sleep(self.word()) {
            waits.wake_one(self.word());
        }
        self.word().contents()
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        match (self.word().unpin(), &self.place) {
            (Unpinned::Free, Place::Frame(frame)) => self.cache.put(self.at, *frame),
            (Unpinned::Free, Place::Spill(_)) => self.cache.release(self.cache.block_bytes),
            (Unpinned::Idle, Place::Spill(_)) => self.cache.trim(self.at),
            _ => {}
        }
    }
}

/// The bytes of a block, which stays cached as long as this lives.
#[derive(Debug)]
pub struct Buffer<'a>(Pin<'a>);

impl Deref for Buffer<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: filled, and no thread changes the bytes while this pin exists (B3, B2).
        unsafe {
            match &self.0.place {
                Place::Frame(frame) => self.0.cache.frames.get(*frame),
                Place::Spill(spill) => spill.bytes.get(),
            }
        }
    }
}

/// A block that only the caller fills. If it is dropped without [`Filling::filled`], the read has failed.
#[derive(Debug)]
#[must_use = "others wait for the block to be filled in"]
pub struct Filling<'a>(Option<(Pin<'a>, u64)>);

impl<'a> Filling<'a> {
    /// The bytes to fill; their old content belongs to another block.
    pub fn bytes(&mut self) -> &mut [u8] {
        let Some((pin, _)) = &self.0 else { return &mut [] };
        // SAFETY: being filled, which only its one `Filling` does (B3), and `self` is borrowed mutably.
        unsafe {
            match &pin.place {
                Place::Frame(frame) => pin.cache.frames.get_mut(*frame),
                Place::Spill(spill) => spill.bytes.get_mut(),
            }
        }
    }

    /// The block is filled.
    ///
    /// # Panics
    /// Never: it is filled once.
    pub fn filled(mut self) -> Buffer<'a> {
        let (pin, _) = self.0.take().expect("it is taken by this and by `drop` alone");
        pin.word().filled();
        pin.cache.waits.wake_one(pin.word());
        Buffer(pin)
    }
}

impl Drop for Filling<'_> {
    /// The read failed: no thread finds the block any more, and the waiters look again (B6).
    fn drop(&mut self) {
        let Some((pin, block)) = self.0.take() else { return };
        pin.cache.counters.failures.hit();
        let mut row = pin.cache.table.lock(pin.at);
        match &pin.place {
            Place::Frame(frame) => {
                // It is not found if it was purged meanwhile.
                if let Some(way) = row.find(block).filter(|&way| row.value(way) == *frame) {
                    row.clear(way);
                }
            }
            Place::Spill(spill) => row.extra.retain(|_, one| !Arc::ptr_eq(one, spill)),
        }
        pin.word().fail();
        drop(row);
        pin.cache.waits.wake_one(pin.word());
    }
}
