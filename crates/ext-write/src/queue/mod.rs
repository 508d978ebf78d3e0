//! The queue between a store and its device.
//!
//! # Boundary
//! Synchronous requests pass at once, on the thread of their caller, and are timed. Background writes wait here by block
//! ([`Pending`]) in one batch at a time: [`Policy`] leads the thread that writes them. What a batch is for is the owner's to know.
//!
//! # Concurrency
//! ```text
//!  None ─ put_batch ─▶ Batch ─ last block written ─▶ Ending ─ end_batch ─▶ None
//!                        └── a write failed, or `fail` ──▶ Failed
//! ```
//! Q3. Nothing that waits is promoted. A thread that needs the batch done takes requests out and writes them itself
//!     (`Worker::Waiter`); the depth is not its limit.
//! Q4. One thread ends a batch: `Queue::work` says `Work::End` once.
//! Q5. Behind a failure no background request begins.
//!
//! # Why
//! Peacock (1992) found a high wall between the file system and the driver: a flood of writes that the file system could not take back, and
//! synchronous requests behind it. Promotion of requests that a process waited for made it worse: the queue never became empty. Weakness: one
//! background thread, so a device gets one background request at a time, and more only from waiters.

mod latency;
mod pending;
mod policy;

pub use latency::Latency;
pub use pending::{Pending, Run};
pub use policy::{DEPTH_MAX, KINDS, PIECE, Policy, Seen, WINDOW_NS, let_pass};

use crate::device::WriteDevice;
use crate::error::words;
use crate::lock_order::EXT_QUEUE;
use latency::Meter;
use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{Condvar, Mutex, MutexGuard};
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_ext::Device;

/// How long a writer waits for one background request to pass, and the background for a flush.
const PASS_MAX: Duration = Duration::from_millis(2);

/// A class of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Read,
    Write,
    Flush,
    Background,
}

/// What happened so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Blocks that wait now.
    pub waiting: u64,
    /// Pieces of a background request now.
    pub depth: u64,
    /// Blocks that were put.
    pub put: u64,
    /// Blocks that left without a write, because a commit brought newer contents.
    pub replaced: u64,
    /// Blocks that left without a write, because they were freed.
    pub dropped: u64,
    /// Requests.
    pub runs: u64,
    /// Blocks that were written together with the one before them.
    pub merged: u64,
    /// Blocks that waiting threads wrote themselves.
    pub taken: u64,
    /// Writes and flushes that failed.
    pub errors: u64,
    /// Synchronous reads.
    pub reads: Latency,
    /// Synchronous writes.
    pub writes: Latency,
    /// Flushes.
    pub flushes: Latency,
    /// Background writes.
    pub background: Latency,
}

/// A thread that works for a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Worker {
    /// The queue's own.
    Background,
    /// One that needs the batch done.
    Waiter,
}

/// What [`Queue::work`] did, or wants.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// It wrote some blocks.
    Wrote,
    /// All blocks are written: end the batch.
    End,
    /// There is no batch. For the background thread: a batch is wanted.
    None,
    /// The background thread ends.
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    None,
    Batch,
    Ending,
    Failed,
}

#[derive(Debug)]
struct State {
    pending: Pending<Arc<[u8]>>,
    phase: Phase,
    policy: Policy,
    window: Instant,
    /// Flushes that the policy knows of.
    flushes: u64,
    /// The background wrote in this window.
    wrote: bool,
    /// A batch is wanted.
    asked: bool,
    closed: bool,
    counts: QueueCounts,
}

/// A device behind a queue.
#[derive(Debug)]
pub(crate) struct Queue {
    device: Arc<dyn WriteDevice>,
    block_size: usize,
    state: Mutex<State>,
    changed: Condvar,
    /// Synchronous requests under way.
    synchronous: AtomicU64,
    errors: AtomicU64,
    meters: [Meter; KINDS + 1],
}

impl Queue {
    pub(crate) fn new(device: Arc<dyn WriteDevice>, block_size: usize) -> Self {
        let state = State {
            pending: Pending::default(),
            phase: Phase::None,
            policy: Policy::default(),
            window: Instant::now(),
            flushes: 0,
            wrote: false,
            asked: false,
            closed: false,
            counts: QueueCounts::default(),
        };
        Self {
            device,
            block_size,
            state: Mutex::new(&EXT_QUEUE, state),
            changed: Condvar::default(),
            synchronous: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            meters: std::array::from_fn(|_| Meter::default()),
        }
    }

    pub(crate) fn counts(&self) -> QueueCounts {
        let state = self.state.lock();
        let latency = |class: Class| self.meters[class as usize].latency();
        QueueCounts {
            waiting: state.pending.len() as u64,
            depth: state.policy.depth().into(),
            errors: self.errors(),
            reads: latency(Class::Read),
            writes: latency(Class::Write),
            flushes: latency(Class::Flush),
            background: latency(Class::Background),
            ..state.counts
        }
    }

    /// Writes and flushes that failed.
    pub(crate) fn errors(&self) -> u64 {
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        self.errors.load(Relaxed)
    }

    /// Puts blocks that are to be written; false if there is a batch already, or one has failed.
    pub(crate) fn put_batch(&self, blocks: impl Iterator<Item = (u64, Arc<[u8]>)>) -> bool {
        let mut state = self.state.lock();
        if state.phase != Phase::None {
            return false;
        }
        state.phase = Phase::Batch;
        for (block, bytes) in blocks {
            state.counts.put += 1;
            state.pending.put(block, bytes);
        }
        self.changed.notify_all();
        true
    }

    /// The thread that [`Work::End`] was said to has ended the batch.
    pub(crate) fn end_batch(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Ending {
            state.phase = Phase::None;
        }
        self.changed.notify_all();
    }

    /// No background request begins any more (Q5).
    pub(crate) fn fail(&self) {
        let mut state = self.state.lock();
        state.phase = Phase::Failed;
        state.pending.clear();
        self.changed.notify_all();
    }

    /// The background thread is to begin a batch.
    pub(crate) fn ask(&self) {
        let mut state = self.state.lock();
        if !state.asked {
            state.asked = true;
            self.changed.notify_all();
        }
    }

    /// The background thread is to end.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Blocks wait no more: for the `replaced` ones newer contents are stable elsewhere. Requests under way go on.
    pub(crate) fn drop_blocks(&self, freed: &BTreeSet<u64>, replaced: impl Iterator<Item = u64>) {
        let mut state = self.state.lock();
        if state.pending.is_empty() {
            return;
        }
        for block in freed {
            state.counts.dropped += u64::from(state.pending.remove(*block).is_some());
        }
        for block in replaced {
            state.counts.replaced += u64::from(state.pending.remove(block).is_some());
        }
        self.changed.notify_all();
    }

    /// Returns when no request with one of these blocks is under way.
    pub(crate) fn wait_for_blocks(&self, blocks: &BTreeSet<u64>) {
        let mut state = self.state.lock();
        while blocks.iter().any(|block| state.pending.is_under_way(*block)) {
            self.changed.wait(&mut state);
        }
    }

    /// Waits until so many background requests have passed, or the batch has ended, or for some milliseconds.
    pub(crate) fn wait_for_requests(&self, number: u64) {
        let mut state = self.state.lock();
        let until = state.counts.runs + number;
        let since = Instant::now();
        while state.phase == Phase::Batch && state.counts.runs < until {
            let Some(left) = (PASS_MAX * number as u32).checked_sub(since.elapsed()) else {
                return;
            };
            self.changed.wait_for(&mut state, left);
        }
    }

    /// Does one step of the batch, or waits for its next one; returns what it did.
    ///
    /// # Errors
    /// Those of the device; then no background request begins any more.
    pub(crate) fn work(&self, worker: Worker) -> io::Result<Work> {
        let mut state = self.state.lock();
        loop {
            if worker == Worker::Background && state.closed {
                return Ok(Work::Closed);
            }
            let phase = state.phase;
            match phase {
                Phase::Batch if state.pending.is_empty() => {
                    state.phase = Phase::Ending;
                    return Ok(Work::End);
                }
                Phase::Batch => {
                    let most = self.blocks_of_next(&mut state, worker);
                    if let Some(run) = (most > 0).then(|| state.pending.take(most)).flatten() {
                        return self.write_run(state, run, worker).map(|()| Work::Wrote);
                    }
                    if worker == Worker::Background && state.pending.requests() == 0 {
                        // Flushes and windows do not wake this thread.
                        self.changed.wait_for(&mut state, PASS_MAX);
                        continue;
                    }
                }
                Phase::None | Phase::Failed if worker == Worker::Waiter => return Ok(Work::None),
                Phase::None if std::mem::take(&mut state.asked) => return Ok(Work::None),
                Phase::None | Phase::Ending | Phase::Failed => {}
            }
            self.changed.wait(&mut state);
        }
    }

    /// How many blocks the next request of this thread may have.
    fn blocks_of_next(&self, state: &mut State, worker: Worker) -> usize {
        let piece = (PIECE / self.block_size).max(1);
        if worker == Worker::Waiter {
            return piece * DEPTH_MAX as usize;
        }
        if state.window.elapsed().as_nanos() as u64 >= WINDOW_NS {
            let seen = std::array::from_fn(|kind| self.meters[kind].take_window());
            let wrote = std::mem::take(&mut state.wrote);
            state.policy.window(&seen, wrote);
            state.window = Instant::now();
        }
        let flushes = self.meters[Class::Flush as usize].latency().requests;
        if std::mem::replace(&mut state.flushes, flushes) != flushes {
            state.policy.flushed();
        }
        // ORDERING: Relaxed; a size that may lag.
        let synchronous = self.synchronous.load(Relaxed);
        piece * state.policy.next(synchronous, state.pending.requests() as u32) as usize
    }

    fn write_run(
        &self,
        mut state: MutexGuard<'_, State>,
        run: Run<Arc<[u8]>>,
        worker: Worker,
    ) -> io::Result<()> {
        let blocks = run.contents.len() as u64;
        state.wrote = true;
        state.policy.began();
        state.counts.runs += 1;
        state.counts.merged += blocks - 1;
        state.counts.taken += if worker == Worker::Waiter { blocks } else { 0 };
        drop(state);
        let slices: Vec<_> = run.contents.iter().map(|bytes| IoSlice::new(bytes)).collect();
        let at = run.first * self.block_size as u64;
        let run_bytes = blocks * self.block_size as u64;
        let done =
            self.timed(Class::Background, (at, run_bytes), || self.device.write_at(at, &slices));
        let mut state = self.state.lock();
        state.pending.ended(run.first);
        if done.is_err() {
            state.phase = Phase::Failed;
            state.pending.clear();
        }
        self.changed.notify_all();
        done
    }

    /// Does `request`, of `length` bytes at `offset`.
    fn timed<T>(
        &self,
        class: Class,
        (offset, length): (u64, u64),
        request: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let since = Instant::now();
        let done = request();
        self.meters[class as usize].count(since);
        if let Err(error) = &done
            && class != Class::Read
        {
            // ORDERING: Relaxed; as in `errors`.
            let count = self.errors.fetch_add(1, Relaxed) + 1;
            if is_logged(count) {
                let request = match class {
                    Class::Flush => "a flush".into(),
                    _ => format!("a write of {length} bytes at {offset}"),
                };
                log::warn!("image: the device failed {request}, error {count}: {}", words(error));
            }
        }
        done
    }

    fn synchronous<T>(
        &self,
        class: Class,
        place: (u64, u64),
        request: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        // ORDERING: Relaxed, both; a size that may lag.
        self.synchronous.fetch_add(1, Relaxed);
        let done = self.timed(class, place, request);
        self.synchronous.fetch_sub(1, Relaxed);
        done
    }
}

/// Whether the error of this number is logged: the first hundred are, and then each time that their count has doubled. A
/// dead device fails every request.
fn is_logged(count: u64) -> bool {
    count <= 100 || count.is_power_of_two()
}

impl Device for Queue {
    fn length(&self) -> u64 {
        self.device.length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let place = (offset, into.len() as u64);
        self.synchronous(Class::Read, place, || self.device.read_at(offset, into))
    }
}

impl WriteDevice for Queue {
    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> io::Result<()> {
        let length = from.iter().map(|part| part.len() as u64).sum();
        self.synchronous(Class::Write, (offset, length), || self.device.write_at(offset, from))
    }

    fn flush(&self) -> io::Result<()> {
        self.synchronous(Class::Flush, (0, 0), || self.device.flush())
    }

    fn check(&self) -> io::Result<()> {
        self.device.check()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.device.discard(offset, length)
    }
}
