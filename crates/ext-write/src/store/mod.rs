//! The blocks of an image that is written: changed by handles, committed together, brought to their places later.
//!
//! # Boundary
//! Blocks and transactions. The operations interpret blocks and choose those to change; `log` lays out the log.
//!
//! # Concurrency
//! ```text
//!  begin ─▶ handle ─▶ modify, forget, … ─▶ drop           running transaction, any number of handles
//!                                  ▼ commit: no new handles, wait for the open ones, freeze
//!                          frozen blocks ─▶ log, flush, commit record, flush     committing, at most one
//!                                  ▼
//!                          `newer`: committed, not in place ─▶ checkpoint, in the background ─▶ in place
//! ```
//! S1. A handle belongs to the running transaction. No commit freezes while one is open, so a transaction has whole operations.
//!     A handle is counted at a door of its thread ([`uvfs_concurrent::doors`]); a commit closes all doors.
//! S2. Frozen bytes do not change: they are shared by reference, and a thread that changes the block copies them first. Checked by
//!     `freeze_model`.
//! S3. Only frozen contents are written to the device, to their place only after their commit record is stable.
//! S4. A block's newest contents are in its buffer; if that was evicted, in `newer`; if they are not there, in place.
//!     A buffer is referenced by its transaction until its contents are in `newer`.
//! S5. The log's room is used again only after a checkpoint is stable and the log's beginning, behind it, too (C1 to C6:
//!     `checkpoint`).
//! S6. After a failed write of a commit or checkpoint, and after any failed flush (`flushes`, F3), no commit and no request
//!     of the background begins any more ([`Error::Ended`]), because the stable state is not known. The blocks of a failed commit return to the running
//!     list. So it has every block that no commit brought ([`Store::uncommitted`]), and keeps it in memory for readers.

mod buffers;
mod checkpoint;
#[cfg(test)]
mod checkpoint_model;
mod ending;
mod flushes;
#[cfg(test)]
mod freeze_model;
mod gathering;
mod handle;
mod log;
mod newer;

pub use ending::Ended;
pub use handle::Handle;
pub use log::LogPlace;

use crate::device::WriteDevice;
use crate::error::{Error, Result};
use crate::hashing::Seeded;
use crate::lock_order::{EXT_HANDLES, EXT_JOURNAL, EXT_TRANSACTION};
use crate::queue::QueueCounts;
use buffers::{Buffer, Buffers, Contents};
use checkpoint::Checkpoints;
pub(crate) use flushes::Ticket;
use gathering::Gathering;
use std::collections::{BTreeSet, HashMap};
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Instant;
use uvfs_concurrent::doors::{Doors, Entry, Mark, Pool};
use uvfs_concurrent::lock::{Condvar, Mutex, MutexGuard};
use uvfs_ext::{Block, Blocks};

/// The kind of a block, for the order of writes without a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Inodes, bitmaps, descriptors, maps, attributes.
    Inodes,
    /// Names.
    Names,
    /// The superblock.
    Superblock,
}

/// The user of a store, which adds its last changes when a transaction ends.
pub trait Owner: Sync {
    /// No other handle is open: brings totals up to date.
    ///
    /// # Errors
    /// Ends writing.
    fn closing(&self, handle: &mut Handle<'_>) -> Result<()>;

    /// Blocks freed in a transaction that is stable now may be used again.
    fn committed(&self, freed: Vec<Range<u64>>);
}

/// What happened so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Handles that were begun.
    pub handles: u64,
    /// Transactions that were committed.
    pub commits: u64,
    /// Threads that waited for a commit that another thread did.
    pub shared_commits: u64,
    /// Blocks that commits brought.
    pub committed_blocks: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Blocks that checkpoints brought to their places.
    pub checkpointed_blocks: u64,
    /// Handles that waited for a commit to freeze its blocks, or for room that other handles gave back.
    pub handle_waits: u64,
    /// How long they waited in all.
    pub handle_wait_ns: u64,
    /// How long commits took in all, from the last handle's end until they were stable.
    pub commit_ns: u64,
    /// The longest one.
    pub commit_ns_max: u64,
    /// Commits that waited for a checkpoint, because the log was full.
    pub log_waits: u64,
    /// Writes and flushes that the device failed.
    pub device_errors: u64,
    /// Handles that were refused because writing had ended.
    pub refused: u64,
    /// The queue before the device.
    pub queue: QueueCounts,
}

/// How the journal is now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Now {
    /// The running transaction.
    pub transaction: u32,
    /// Blocks that it has so far.
    pub running_blocks: u64,
    /// Blocks that it may have.
    pub capacity: u64,
    /// Blocks that are committed and not in their places.
    pub waiting_blocks: u64,
    /// Blocks of the log that are in use, as of the last commit or checkpoint.
    pub log_used: u64,
    /// Blocks of the log.
    pub log_blocks: u64,
}

/// The running transaction's list.
#[derive(Debug, Default)]
struct Running {
    blocks: HashMap<u64, (Arc<Buffer>, Role), Seeded>,
    /// Freed metadata.
    revoked: BTreeSet<u64>,
    /// All that was freed.
    freed: Vec<Range<u64>>,
}

#[derive(Debug)]
struct State {
    /// The number of the running transaction.
    running: u32,
    /// The last one that is stable.
    stable: u32,
    /// Blocks that the transaction may still have, beside those of the doors.
    pool: Pool,
    /// Threads that wait to begin a handle.
    waiting: u32,
    /// Handles are not begun: the committing thread waits for the open ones, or freezes.
    closed: bool,
    /// A thread commits, or brings everything to its place.
    busy: bool,
    /// No new handles; the open ones are committed.
    shut: Option<Arc<str>>,
    counts: Counts,
    /// Threads that ask for a commit of transactions of even and of odd numbers: of the one that is committed, and the running one.
    asking: [u32; 2],
    gathering: Gathering,
    /// The committing thread waits until so many ask; 0 if it does not.
    gathers: u32,
}

impl State {
    fn asking(&mut self, transaction: u32) -> &mut u32 {
        &mut self.asking[transaction as usize % 2]
    }
}

/// A block as a commit froze it.
struct Frozen {
    buffer: Arc<Buffer>,
    role: Role,
    bytes: Arc<[u8]>,
}

/// The blocks of an image that is written.
///
/// A thread has at most one handle. It takes its inodes' locks before the handle, and locks of groups and buffers under it. One
/// thread commits at a time; other threads that want the same transaction stable wait for it, and one commit serves all.
///
/// # Why
/// Freezing is by reference (decision 0023). Without a journal (ext2) a commit writes the frozen blocks in place, in an order that
/// e2fsck can repair: inodes, then names. With few buffers a transaction is short, and `newer` is brought to its places
/// before the log is full, because both take memory. Weakness: where operations may change more blocks together than a
/// transaction may have, threads wait for each other's handles.
#[derive(Debug)]
pub struct Store {
    /// What is committed, and the device.
    home: Arc<Checkpoints>,
    device: Arc<dyn WriteDevice>,
    /// Brings blocks to their places.
    background: Option<JoinHandle<()>>,
    block_size: usize,
    buffers: Buffers,
    running: Mutex<Running>,
    /// Handles enter the transaction and leave it; the room is the transaction's `capacity` of blocks.
    doors: Doors,
    state: Mutex<State>,
    changed: Condvar,
    /// Notified when as many threads ask for a commit as its thread waits for.
    gathered: Condvar,
    /// Blocks that a transaction may have.
    capacity: usize,
}

/// Doors for handles.
const DOORS: usize = 32;
/// Blocks that a transaction may have where there is no journal.
const CAPACITY_UNLOGGED: usize = 4096;
/// Blocks that a transaction may have however few buffers there are: less makes each commit serve few operations.
const CAPACITY_FEW: usize = 256;
/// Share of the buffers that a transaction may have, and that may wait for a checkpoint.
const CAPACITY_SHARE: usize = 4;
const WAITING_SHARE: usize = 2;
/// Bytes of a block in memory beside its contents: a buffer, its place in a table, and the allocator's overhead.
const BLOCK_OVERHEAD: u64 = 160;
/// Blocks that go to the device in one call.
const BATCH: usize = 512;

impl Store {
    /// The blocks of `device`, through about `buffers` in memory; with a journal if there is a `log`, which is empty.
    ///
    /// # Errors
    /// A journal that is too small; no thread for the background.
    pub fn new(
        device: Arc<dyn WriteDevice>,
        block_size: u32,
        buffers: usize,
        log: Option<LogPlace>,
    ) -> Result<Self> {
        let (sequence, capacity) = match &log {
            Some(place) => (place.sequence, place.capacity()?),
            None => (1, CAPACITY_UNLOGGED),
        };
        let capacity = capacity.min((buffers / CAPACITY_SHARE).max(CAPACITY_FEW));
        let waiting_max = (buffers / WAITING_SHARE).max(2 * capacity);
        let has_log = log.is_some();
        let home = Checkpoints::new(device, block_size as usize, log, sequence, waiting_max);
        let home = Arc::new(home);
        let background = has_log.then(|| {
            let home = home.clone();
            Builder::new().name("uvfs-ext-write".into()).spawn(move || home.run())
        });
        let (doors, mut pool) = (Doors::new(&EXT_HANDLES, DOORS), Pool::default());
        doors.open(sequence, capacity, &mut pool);
        let state = State {
            running: sequence,
            stable: sequence.wrapping_sub(1),
            pool,
            waiting: 0,
            closed: false,
            busy: false,
            shut: None,
            counts: Counts::default(),
            asking: [0; 2],
            gathering: Gathering::default(),
            gathers: 0,
        };
        Ok(Self {
            device: home.queue.clone(),
            home,
            background: background.transpose()?,
            block_size: block_size as usize,
            buffers: Buffers::new(buffers),
            running: Mutex::new(&EXT_TRANSACTION, Running::default()),
            doors,
            state: Mutex::new(&EXT_JOURNAL, state),
            changed: Condvar::default(),
            gathered: Condvar::default(),
            capacity,
        })
    }

    /// The device below.
    pub fn device(&self) -> &Arc<dyn WriteDevice> {
        &self.device
    }

    /// Blocks that one handle may ask for.
    pub fn credits_max(&self) -> usize {
        self.capacity / 2
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        let mut counts = self.state.lock().counts;
        counts.handles = self.doors.entered();
        self.home.count(&mut counts);
        counts
    }

    /// How the journal is now.
    pub fn now(&self) -> Now {
        let running_blocks = self.running.lock().blocks.len() as u64;
        let (log_used, log_blocks) = self.home.log_blocks();
        Now {
            transaction: self.running(),
            running_blocks,
            capacity: self.capacity as u64,
            waiting_blocks: self.home.waiting(),
            log_used,
            log_blocks,
        }
    }

    /// Whether the running transaction has changed anything.
    pub fn has_changes(&self) -> bool {
        let running = self.running.lock();
        !running.blocks.is_empty() || !running.revoked.is_empty()
    }

    /// Bytes of buffers, and of blocks that wait for a checkpoint. A block that lies in both is counted twice: it does
    /// as soon as it is changed again.
    pub fn held_bytes(&self) -> u64 {
        let blocks = self.buffers.held() + self.home.waiting();
        self.buffers.table_bytes() + blocks * (self.block_size as u64 + BLOCK_OVERHEAD)
    }

    /// Drops about so many bytes of unused buffers.
    pub fn shrink(&self, bytes: u64) {
        self.buffers.shrink(bytes.div_ceil(self.block_size as u64));
    }

    /// No handle is begun any more; those that are open end as usual.
    pub fn shut(&self, why: &str) {
        let mut state = self.state.lock();
        state.shut.get_or_insert_with(|| why.into());
        self.doors.mark(Mark::Closed);
    }

    /// Why writing has ended, if it has.
    pub fn failure(&self) -> Option<Ended> {
        self.home.ending().get().cloned()
    }

    /// A ticket for all writes to the device until now: see `Store::flush_behind`.
    pub(crate) fn ticket(&self) -> Ticket {
        self.home.flushes().ticket()
    }

    /// Returns when all writes before `ticket` survive a crash; flushes unless another thread has done that since.
    ///
    /// # Errors
    /// [`Error::Ended`]: a failed flush ends writing, also one that another thread asked for.
    pub(crate) fn flush_behind(&self, ticket: Ticket) -> Result<()> {
        self.home.flushes().wait(ticket).map_err(|error| self.end_writing(error))
    }

    /// Returns when all writes to the device before the call survive a crash.
    ///
    /// # Errors
    /// [`Error::Ended`]: see `Store::flush_behind`.
    pub fn flush(&self) -> Result<()> {
        self.flush_behind(self.ticket())
    }

    /// Ends writing because of `error`, unless it has ended already: no further transaction commits. Returns the error that
    /// callers get from now on, and logs it once.
    pub fn end_writing(&self, error: Error) -> Error {
        self.home.end_writing(error)
    }

    /// Ends writing if the device is gone.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn check(&self) -> Result<()> {
        self.device.check().map_err(|error| self.end_writing(error.into()))
    }

    /// The changed blocks that no commit brought, in order. After the end of writing these are all changes that the image lacks.
    pub fn uncommitted(&self) -> Vec<u64> {
        let mut blocks: Vec<u64> = self.running.lock().blocks.keys().copied().collect();
        blocks.sort_unstable();
        blocks
    }

    /// The number of the running transaction: a handle's changes are stable when that is.
    pub fn running(&self) -> u32 {
        self.state.lock().running
    }

    /// The last transaction that has changes: the running one, or the one before it. While a commit freezes the running
    /// one its list is empty already.
    pub fn last_with_changes(&self) -> u32 {
        let state = self.state.lock();
        let has_changes = state.closed || self.has_changes();
        state.running.wrapping_sub(u32::from(!has_changes))
    }

    /// The contents of `block` now.
    ///
    /// # Errors
    /// Those of the device.
    pub fn read(&self, block: u64) -> Result<Arc<[u8]>> {
        let buffer = self.buffers.get(block);
        let mut contents = buffer.contents.lock();
        self.load(block, &mut contents).cloned()
    }

    /// The contents of `block` that its place may lack: those of a buffer, or committed ones.
    pub(crate) fn newer(&self, block: u64) -> Option<Arc<[u8]>> {
        // A commit has its blocks in buffers until they are among the committed ones.
        let buffer = self.buffers.find(block);
        let bytes = buffer.and_then(|buffer| buffer.contents.lock().bytes.clone());
        bytes.or_else(|| self.home.newer(block))
    }

    /// The contents of `block` now, if `check` finds them in order; it is not asked again while they stay in memory.
    ///
    /// # Errors
    /// Those of the device; those of `check`, which reads no blocks.
    pub fn read_checked<E: From<Error>>(
        &self,
        block: u64,
        check: &dyn Fn(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<Arc<[u8]>, E> {
        let buffer = self.buffers.get(block);
        let mut contents = buffer.contents.lock();
        let bytes = self.load(block, &mut contents)?.clone();
        if !contents.checked {
            check(&bytes)?;
            contents.checked = true;
        }
        Ok(bytes)
    }

    fn load<'c>(&self, block: u64, contents: &'c mut Contents) -> Result<&'c mut Arc<[u8]>> {
        if contents.bytes.is_none() {
            contents.bytes = Some(match self.home.newer(block) {
                Some(newer) => newer,
                None => {
                    let mut bytes = vec![0; self.block_size];
                    self.device.read_at(block * self.block_size as u64, &mut bytes)?;
                    bytes.into()
                }
            });
        }
        Ok(contents.bytes.as_mut().expect("it was read just now"))
    }

    /// A handle that may add `credits` blocks to the running transaction; `None` if there is no room for so many until
    /// that is committed.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn begin(&self, credits: usize) -> Result<Option<Handle<'_>>> {
        debug_assert!(credits <= self.credits_max(), "{credits} credits");
        self.home.slow_down();
        let door = self.doors.mine();
        if self.home.ending().get().is_none()
            && let Some(number) = self.doors.enter(door, credits)
        {
            return Ok(Some(Handle::new(self, door, number, credits)));
        }
        self.begin_slowly(door, credits)
    }

    /// Begins a handle where the thread's door does not let it in.
    fn begin_slowly(&self, door: usize, credits: usize) -> Result<Option<Handle<'_>>> {
        let mut waited: Option<Instant> = None;
        let mut state = self.state.lock();
        let entered = loop {
            if let Err(ended) = self.home.ending().check() {
                state.counts.refused += 1;
                break Err(ended);
            }
            if let Some(why) = &state.shut {
                break Err(Error::Ended(why.clone()));
            }
            if !state.closed {
                match self.doors.enter_slowly(door, credits, &mut state.pool) {
                    Entry::In(number) => break Ok(Some(number)),
                    Entry::Never => break Ok(None),
                    Entry::Later => {}
                }
            }
            waited.get_or_insert_with(Instant::now);
            state.waiting += 1;
            self.changed.wait(&mut state);
            state.waiting -= 1;
        };
        if let Some(since) = waited {
            state.counts.handle_waits += 1;
            state.counts.handle_wait_ns += since.elapsed().as_nanos() as u64;
        }
        if state.waiting == 0 && !state.closed && state.shut.is_none() {
            self.doors.calm(&mut state.pool);
        }
        Ok(entered?.map(|number| Handle::new(self, door, number, credits)))
    }

    fn end(&self, door: usize, credits: usize, added: usize) {
        if self.doors.leave(door, credits, added) {
            drop(self.state.lock());
            self.changed.notify_all();
        }
    }

    /// Returns when transaction `number` is stable, with the data that its handles wrote. Another thread's commit may have
    /// begun before the call: `Store::flush_behind` waits for data that is in no transaction.
    ///
    /// # Errors
    /// [`Error::Ended`]: then it is not, and will not be.
    pub fn commit(&self, number: u32, owner: &dyn Owner) -> Result<()> {
        assert!(
            !handle::thread_has_handle(),
            "a commit waits for all handles, also for this thread's"
        );
        let mut waited = false;
        let mut state = self.state.lock();
        loop {
            self.home.ending().check()?;
            if number.wrapping_sub(state.stable) as i32 <= 0 {
                state.counts.shared_commits += u64::from(waited);
                return Ok(());
            }
            if !std::mem::replace(&mut waited, true) {
                *state.asking(number) += 1;
                if state.gathers > 0 && *state.asking(number) >= state.gathers {
                    self.gathered.notify_one();
                }
            }
            if !state.busy {
                break;
            }
            self.changed.wait(&mut state);
        }
        state.busy = true;
        self.gather(&mut state);
        state.closed = true;
        self.doors.close(|| self.changed.wait(&mut state));
        if let Err(ended) = self.home.ending().check() {
            // An operation failed halfway meanwhile. Handles are refused, whatever the doors say.
            (state.busy, state.closed) = (false, false);
            self.changed.notify_all();
            return Err(ended);
        }
        let transaction = state.running;
        drop(state);
        let since = Instant::now();
        let mut closing = Handle::closing(self, transaction);
        let closed = owner.closing(&mut closing);
        drop(closing);
        let running = std::mem::take(&mut *self.running.lock());
        let mut frozen: Vec<Frozen> = running.blocks.into_values().map(Frozen::of).collect();
        let mut state = self.state.lock();
        state.running = transaction.wrapping_add(1);
        if state.shut.is_none() {
            self.doors.open(transaction.wrapping_add(1), self.capacity, &mut state.pool);
        }
        state.closed = false;
        state.counts.committed_blocks += frozen.len() as u64;
        self.changed.notify_all();
        drop(state);
        let written = closed.and_then(|()| self.write(transaction, &mut frozen, &running.revoked));
        let written = match written {
            Ok(()) => {
                owner.committed(running.freed);
                Ok(())
            }
            Err(error) => {
                self.take_back(frozen);
                // Before the next commit may begin.
                Err(self.end_writing(error))
            }
        };
        let mut state = self.state.lock();
        state.busy = false;
        if written.is_ok() {
            state.stable = transaction;
            state.counts.commits += 1;
            let elapsed = since.elapsed();
            let took = elapsed.as_nanos() as u64;
            state.counts.commit_ns += took;
            state.counts.commit_ns_max = state.counts.commit_ns_max.max(took);
            let served = std::mem::take(state.asking(transaction));
            let next = *state.asking(transaction.wrapping_add(1));
            state.gathering.end(served, next, elapsed);
        }
        self.changed.notify_all();
        written
    }

    /// Waits for threads that are expected to ask for the running transaction, too; handles are begun meanwhile.
    fn gather(&self, state: &mut MutexGuard<'_, State>) {
        let running = state.running;
        let asking = *state.asking(running);
        let Some((expected, most)) = state.gathering.begin(asking) else { return };
        let until = Instant::now() + most;
        state.gathers = expected;
        while *state.asking(running) < expected {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.home.ending().get().is_some() {
                break;
            }
            self.gathered.wait_for(state, left);
        }
        state.gathers = 0;
        let all = *state.asking(running) >= expected;
        state.gathering.waited(all);
    }

    /// Puts the blocks of a failed commit back into the running list (S6).
    fn take_back(&self, frozen: Vec<Frozen>) {
        let mut running = self.running.lock();
        for Frozen { buffer, role, .. } in frozen {
            running.blocks.entry(buffer.block).or_insert((buffer, role));
        }
    }

    /// Brings everything that is committed to its place; the log is empty afterwards.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn checkpoint(&self) -> Result<()> {
        if !self.home.has_log() {
            return Ok(());
        }
        let mut state = self.state.lock();
        while state.busy {
            self.changed.wait(&mut state);
        }
        self.home.ending().check()?;
        state.busy = true;
        drop(state);
        let done = self.home.all();
        self.state.lock().busy = false;
        self.changed.notify_all();
        done
    }

    /// After a checkpoint: marks the journal as empty.
    ///
    /// # Errors
    /// Those of the device; [`Error::Ended`].
    pub fn close_log(&self) -> Result<()> {
        let state = self.state.lock();
        self.home.ending().check()?;
        let next = state.running;
        drop(state);
        self.home.close(next)
    }

    /// Writes a transaction: to the log, or where there is none to the blocks' places.
    fn write(&self, number: u32, frozen: &mut [Frozen], revoked: &BTreeSet<u64>) -> Result<()> {
        if !self.home.has_log() {
            return self.write_in_place(frozen);
        }
        let mut sorted: Vec<_> = frozen.iter().map(|one| (one.buffer.block, &one.bytes)).collect();
        sorted.sort_unstable_by_key(|one| one.0);
        self.home.commit(number, &sorted, revoked)
    }

    fn write_in_place(&self, frozen: &mut [Frozen]) -> Result<()> {
        frozen.sort_unstable_by_key(|one| (one.role, one.buffer.block));
        // The data that the inodes will name.
        self.flush()?;
        for same in frozen.chunk_by(|one, other| one.role == other.role) {
            self.write_blocks(same.iter().map(|one| (one.buffer.block, &*one.bytes)))?;
            self.flush()?;
        }
        Ok(())
    }

    /// Writes blocks in the order of their numbers, neighbours together.
    fn write_blocks<'b>(&self, blocks: impl Iterator<Item = (u64, &'b [u8])>) -> Result<()> {
        write_runs(&*self.device, self.block_size, blocks)
    }
}

/// Writes blocks in the given order, neighbours together.
fn write_runs<'b>(
    device: &dyn WriteDevice,
    block_size: usize,
    blocks: impl Iterator<Item = (u64, &'b [u8])>,
) -> Result<()> {
    let mut first = 0;
    let mut run: Vec<IoSlice<'_>> = Vec::new();
    for (block, bytes) in blocks {
        if first + run.len() as u64 != block || run.len() == BATCH {
            if !run.is_empty() {
                device.write_at(first * block_size as u64, &run)?;
            }
            run.clear();
            first = block;
        }
        run.push(IoSlice::new(bytes));
    }
    if !run.is_empty() {
        device.write_at(first * block_size as u64, &run)?;
    }
    Ok(())
}

impl Drop for Store {
    /// The background ends behind its present request: what it did not bring to its place is in the log.
    fn drop(&mut self) {
        self.home.queue.close();
        if let Some(background) = self.background.take() {
            // A panic there was reported where it was.
            let _ = background.join();
        }
    }
}

impl Frozen {
    fn of((buffer, role): (Arc<Buffer>, Role)) -> Self {
        let mut contents = buffer.contents.lock();
        contents.transaction = None;
        let bytes = contents.bytes.clone().expect("what was changed was read");
        drop(contents);
        Self { buffer, role, bytes }
    }
}

/// The newest contents, for the readers of the format.
#[derive(Debug)]
pub struct Newest(pub Arc<Store>);

impl Blocks for Newest {
    fn block(&self, number: u64) -> uvfs_ext::Result<Block<'_>> {
        self.0.read(number).map(Block::pinned).map_err(|error| Unread::from(error).0)
    }

    fn checked(
        &self,
        number: u64,
        check: &dyn Fn(&[u8]) -> uvfs_ext::Result<()>,
    ) -> uvfs_ext::Result<Block<'_>> {
        let bytes = self.0.read_checked(number, &|bytes| check(bytes).map_err(Unread));
        bytes.map(Block::pinned).map_err(|unread| unread.0)
    }
}

/// Why a block was not read, in the words of the format.
struct Unread(uvfs_ext::Error);

impl From<Error> for Unread {
    fn from(error: Error) -> Self {
        Self(uvfs_ext::Error::Io(match error {
            Error::Io(error) => error,
            other => std::io::Error::other(other),
        }))
    }
}
