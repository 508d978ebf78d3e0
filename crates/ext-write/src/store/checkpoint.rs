//! Checkpoints: committed blocks go to their places in steps, in the background, and the log's room becomes free.
//!
//! # Boundary
//! Owns the log, [`Newer`] and the [`Queue`] that writes. [`super::Store`] freezes and commits.
//!
//! # Concurrency
//! ```text
//!  begin: all of `newer`, as of transaction N ─▶ queue ─▶ all written ─▶ flush ─▶ log begins at N + 1 ─▶ flush
//!                            ▲ drop                                       its room is free, blocks leave `newer` ◀┘
//!  commit of M > N ─▶ log ───┴▶ `newer`
//! ```
//! C1. A step writes every block that transactions up to N committed and that has not reached its place.
//! C2. One step at a time, by whichever thread has its next part to do.
//! C3. A block's place may have any of its committed contents while the log, from its beginning on, has the newest. So a commit
//!     removes the blocks that it logs from the queue; a later step writes them.
//! C4. The log's beginning moves to N + 1 and no further, between two flushes: behind the first, the step's writes are
//!     stable; behind the second, the beginning is (S5).
//! C5. At the end of a step the blocks leave `newer` that no transaction behind N brought.
//! C6. A freed block's contents are out of `newer` and of the queue, and no request with it is under way, before the owner of
//!     the store hears that its transaction is stable: from then on data may be written there.
//!
//! # Why
//! A commit that found the log full brought everything to its place, inside the `fsync` of some user. Now steps begin when a third of the log
//! is used, and only a commit that lacks room takes part. Weakness: one that lacks room waits for a whole step.

use super::ending::Ending;
use super::flushes::Flushes;
use super::log::Log;
use super::newer::{End, Newer};
use super::{Counts, LogPlace};
use crate::device::WriteDevice;
use crate::error::{Error, Result};
use crate::lock_order::{EXT_LOG, EXT_NEWER};
use crate::queue::{Queue, Work, Worker, let_pass};
use std::collections::BTreeSet;
use std::sync::Arc;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};

/// A step begins when this part of the log is in use, or this part of the memory for committed blocks.
const LOG_SHARE: u64 = 3;
const WAITING_SHARE: u64 = 2;

#[derive(Debug)]
struct State {
    newer: Newer<Arc<[u8]>>,
    /// Blocks of the log in use, as of the last commit or step.
    log_used: u64,
    checkpoints: u64,
    checkpointed_blocks: u64,
    log_waits: u64,
}

/// A part of a store that its background thread shares.
#[derive(Debug)]
pub(super) struct Checkpoints {
    pub(super) queue: Arc<Queue>,
    flushes: Flushes,
    ending: Ending,
    log: Option<Mutex<Log>>,
    log_blocks: u64,
    state: Mutex<State>,
    /// Blocks that are committed and not in their places.
    waiting: AtomicU64,
    /// Blocks that may be.
    waiting_max: u64,
    /// Requests of the background that a writer lets pass now.
    let_pass: AtomicU64,
}

impl Checkpoints {
    /// For a store whose first transaction is `sequence`; `log` is empty.
    pub(super) fn new(
        device: Arc<dyn WriteDevice>,
        block_size: usize,
        log: Option<LogPlace>,
        sequence: u32,
        waiting_max: usize,
    ) -> Self {
        let queue = Arc::new(Queue::new(device, block_size));
        let log_blocks = log.as_ref().map_or(0, LogPlace::blocks) as u64;
        let log = log.map(Log::new);
        let mark = log.as_ref().map_or_else(Default::default, Log::mark);
        let last = End { transaction: sequence.wrapping_sub(1), mark };
        let state = State {
            newer: Newer::new(last),
            log_used: 0,
            checkpoints: 0,
            checkpointed_blocks: 0,
            log_waits: 0,
        };
        Self {
            flushes: Flushes::new(queue.clone()),
            queue,
            ending: Ending::default(),
            log: log.map(|log| Mutex::new(&EXT_LOG, log)),
            log_blocks,
            state: Mutex::new(&EXT_NEWER, state),
            waiting: AtomicU64::new(0),
            waiting_max: waiting_max as u64,
            let_pass: AtomicU64::new(0),
        }
    }

    pub(super) fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// The committed contents of `block`, if they are not in their place.
    pub(super) fn newer(&self, block: u64) -> Option<Arc<[u8]>> {
        self.state.lock().newer.get(block).cloned()
    }

    /// How many blocks those are.
    pub(super) fn waiting(&self) -> u64 {
        // ORDERING: Relaxed; a size for budgets and reports.
        self.waiting.load(Relaxed)
    }

    /// Blocks of the log in use, and all of them.
    pub(super) fn log_blocks(&self) -> (u64, u64) {
        (self.state.lock().log_used, self.log_blocks)
    }

    /// Adds what it counts.
    pub(super) fn count(&self, counts: &mut Counts) {
        let state = self.state.lock();
        counts.checkpoints = state.checkpoints;
        counts.checkpointed_blocks = state.checkpointed_blocks;
        counts.log_waits = state.log_waits;
        drop(state);
        counts.queue = self.queue.counts();
        counts.device_errors = counts.queue.errors;
    }

    pub(super) fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Ends writing because of `error`; returns the error that callers get from now on.
    pub(super) fn end_writing(&self, error: Error) -> Error {
        let error = self.ending.end(error, &*self.queue);
        self.queue.fail();
        error
    }

    pub(super) fn flushes(&self) -> &Flushes {
        &self.flushes
    }

    fn flush(&self) -> Result<()> {
        self.flushes.wait(self.flushes.ticket())
    }

    /// Lets some background requests pass if the log, or the memory for committed blocks, is almost full.
    pub(super) fn slow_down(&self) {
        // ORDERING: Relaxed; advice.
        let number = self.let_pass.load(Relaxed);
        if number > 0 {
            self.queue.wait_for_requests(number);
        }
    }

    /// Writes a transaction to the log: stable when it returns. `blocks` are in the order of their numbers.
    pub(super) fn commit(
        &self,
        number: u32,
        blocks: &[(u64, &Arc<[u8]>)],
        freed: &BTreeSet<u64>,
    ) -> Result<()> {
        let log = self.log.as_ref().expect("there is a log");
        self.make_room(log, blocks.len(), freed.len())?;
        let mut log = log.lock();
        self.ending.check()?;
        log.write(number, blocks, freed, &*self.queue, &|| self.flush())?;
        let end = End { transaction: number, mark: log.mark() };
        let mut state = self.state.lock();
        let brought = blocks.iter().map(|(block, bytes)| (*block, (*bytes).clone()));
        state.newer.commit(end, freed, brought);
        // Under this lock: a step that begins behind it has what this transaction brought, and must keep that.
        self.queue.drop_blocks(freed, blocks.iter().map(|(block, _)| *block));
        state.log_used = log.used();
        let is_long = self.publish(&state);
        drop(state);
        drop(log);
        self.queue.wait_for_blocks(freed);
        if is_long {
            self.queue.ask();
        }
        Ok(())
    }

    /// Publishes sizes; returns whether a step should begin.
    fn publish(&self, state: &State) -> bool {
        let waiting = state.newer.len() as u64;
        let slow = let_pass(state.log_used, self.log_blocks);
        // ORDERING: Relaxed, both; sizes and advice, set under the lock.
        self.waiting.store(waiting, Relaxed);
        self.let_pass.store(slow.max(let_pass(waiting, self.waiting_max)), Relaxed);
        state.log_used * LOG_SHARE > self.log_blocks || waiting * WAITING_SHARE > self.waiting_max
    }

    /// Returns when a transaction fits into the log and memory.
    fn make_room(&self, log: &Mutex<Log>, blocks: usize, freed: usize) -> Result<()> {
        let mut waited = false;
        loop {
            let log = log.lock();
            // One that is too large for an empty log is refused by the log.
            let log_lacks = log.used() > 0 && log.blocks_for(blocks, freed) as u64 > log.free();
            drop(log);
            let waiting = self.waiting();
            let memory_lacks = waiting > 0 && waiting + blocks as u64 > self.waiting_max;
            if !log_lacks && !memory_lacks {
                return Ok(());
            }
            if log_lacks && !waited {
                waited = true;
                self.state.lock().log_waits += 1;
            }
            self.begin();
            self.take_part()?;
        }
    }

    /// Begins a step, unless one is under way. Its blocks are in the queue before a commit can free or replace them.
    fn begin(&self) -> bool {
        self.state.lock().newer.begin(|blocks| self.queue.put_batch(blocks))
    }

    /// Does a part of the step under way, or waits for one.
    fn take_part(&self) -> Result<()> {
        match self.queue.work(Worker::Waiter) {
            Ok(Work::End) => self.end(),
            Ok(_) => self.ending.check(),
            Err(error) => Err(self.end_writing(error.into())),
        }
    }

    /// Ends the step under way, whose blocks are written.
    fn end(&self) -> Result<()> {
        let ended = self.move_beginning().map_err(|error| self.end_writing(error));
        self.queue.end_batch();
        ended
    }

    fn move_beginning(&self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let Some(step) = self.state.lock().newer.step() else { return Ok(()) };
        self.flush()?;
        log.lock().begin_at(step.mark, step.transaction.wrapping_add(1), &*self.queue)?;
        self.flush()?;
        let mut log = log.lock();
        log.free_until(step.mark);
        let mut state = self.state.lock();
        state.log_used = log.used();
        state.checkpoints += 1;
        state.checkpointed_blocks += state.newer.end();
        self.publish(&state);
        Ok(())
    }

    /// Brings everything that is stable to its place; no commit is under way. The log's beginning is written in any case.
    pub(super) fn all(&self) -> Result<()> {
        while !self.begin() {
            self.take_part()?;
        }
        while self.state.lock().newer.step().is_some() {
            self.take_part()?;
        }
        Ok(())
    }

    /// After that: marks the log as empty, for a next transaction of this number.
    pub(super) fn close(&self, next: u32) -> Result<()> {
        if let Some(log) = &self.log {
            log.lock().close(next, &*self.queue)?;
            self.flush().map_err(|error| self.end_writing(error))?;
        }
        Ok(())
    }

    /// The background thread: begins steps and does their parts, until the queue is closed.
    pub(super) fn run(&self) {
        loop {
            match self.queue.work(Worker::Background) {
                Ok(Work::Closed) => return,
                Ok(Work::Wrote) => {}
                Ok(Work::None) => {
                    if self.publish(&self.state.lock()) {
                        self.begin();
                    }
                }
                // A failure ends writing, which has logged it.
                Ok(Work::End) => drop(self.end()),
                Err(error) => drop(self.end_writing(error.into())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::{Faults, Faulty};
    use crate::device::{WritableMemory, WriteDevice};
    use std::io::{self, IoSlice};
    use std::thread;
    use uvfs_concurrent::lock::{Condvar, LockClass};
    use uvfs_ext::Device;

    const SIZE: usize = 1024;
    /// Where the journal is: its superblock, and the log behind it.
    const JOURNAL: u64 = 1000;
    const JOURNAL_BLOCKS: u32 = 400;

    static EVENTS: LockClass =
        LockClass::new(405, "test-events", "what a device did, and whether it waits");

    #[derive(Debug, Default)]
    struct Seen {
        /// h: the journal's superblock, l: the log, p: a place, f: a flush.
        events: String,
        /// Writes of places wait.
        closed: bool,
        waiting: bool,
    }

    #[derive(Debug)]
    struct Watched {
        memory: WritableMemory,
        seen: Mutex<Seen>,
        changed: Condvar,
    }

    impl Watched {
        fn new() -> Arc<Self> {
            let memory = WritableMemory::new(vec![0; 2000 * SIZE]);
            let seen = Mutex::new(&EVENTS, Seen::default());
            Arc::new(Self { memory, seen, changed: Condvar::default() })
        }

        fn place(&self, block: u64) -> u8 {
            self.memory.bytes()[block as usize * SIZE]
        }
    }

    impl Device for Watched {
        fn length(&self) -> u64 {
            self.memory.length()
        }

        fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
            self.memory.read_at(offset, into)
        }
    }

    impl WriteDevice for Watched {
        fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> io::Result<()> {
            let mut seen = self.seen.lock();
            let event = match (offset / SIZE as u64).checked_sub(JOURNAL) {
                None => 'p',
                Some(0) => 'h',
                Some(_) => 'l',
            };
            seen.events.push(event);
            while event == 'p' && seen.closed {
                seen.waiting = true;
                self.changed.notify_all();
                self.changed.wait(&mut seen);
            }
            drop(seen);
            self.memory.write_at(offset, from)
        }

        fn flush(&self) -> io::Result<()> {
            self.seen.lock().events.push('f');
            Ok(())
        }

        fn discard(&self, _: u64, _: u64) -> io::Result<bool> {
            Ok(false)
        }
    }

    /// Checkpoints without their background thread: only the test's threads take part.
    fn checkpoints(device: Arc<dyn WriteDevice>) -> Checkpoints {
        let log = LogPlace::empty(JOURNAL, JOURNAL_BLOCKS, SIZE as u32);
        Checkpoints::new(device, SIZE, Some(log), 1, 1000)
    }

    fn commit(
        to: &Checkpoints,
        number: u32,
        blocks: std::ops::Range<u64>,
        freed: &[u64],
    ) -> Result<()> {
        let bytes: Arc<[u8]> = vec![number as u8; SIZE].into();
        let blocks: Vec<_> = blocks.map(|block| (block, &bytes)).collect();
        to.commit(number, &blocks, &freed.iter().copied().collect())
    }

    /// Half of the log's room was used again before its new beginning was stable, and nothing noticed: only a commit that waits for
    /// room writes right behind the beginning.
    #[test]
    fn a_commit_that_lacks_room_brings_a_step_to_its_end() {
        let device = Watched::new();
        let checkpoints = checkpoints(device.clone());
        for number in 1..40 {
            commit(&checkpoints, number, 10..70, &[]).unwrap();
        }
        let mut counts = Counts::default();
        checkpoints.count(&mut counts);
        assert!(counts.checkpoints > 3 && counts.log_waits == counts.checkpoints, "{counts:?}");
        assert_eq!(counts.queue.taken, 60 * counts.checkpoints, "by the committing thread");
        assert_eq!(counts.queue.runs, counts.checkpoints, "neighbours go together");
        checkpoints.all().unwrap();
        assert!((10..70).all(|block| device.place(block) == 39));
        assert_eq!((checkpoints.waiting(), checkpoints.log_blocks().0), (0, 0));
        let events = &device.seen.lock().events;
        assert!(
            !events.contains("hl"),
            "the room is used before the beginning is stable: {events}"
        );
        assert!(!events.contains("ph"), "the beginning moves before places are stable: {events}");
    }

    /// A step wrote blocks that a commit had brought again meanwhile, and a later step wrote them again.
    #[test]
    fn a_step_leaves_out_what_commits_bring_again_meanwhile() {
        let device = Watched::new();
        let checkpoints = checkpoints(device.clone());
        commit(&checkpoints, 1, 10..20, &[]).unwrap();
        assert!(checkpoints.begin() && !checkpoints.begin());
        commit(&checkpoints, 2, 12..15, &[17]).unwrap();
        while checkpoints.state.lock().newer.step().is_some() {
            checkpoints.take_part().unwrap();
        }
        assert_eq!([11, 12, 14, 15, 17].map(|block| device.place(block)), [1, 0, 0, 1, 0]);
        let counts = checkpoints.queue.counts();
        assert_eq!((counts.put, counts.replaced, counts.dropped, counts.taken), (10, 3, 1, 6));
        assert_eq!(checkpoints.waiting(), 3, "for the next step");
        assert_eq!((checkpoints.newer(12).unwrap()[0], checkpoints.newer(11)), (2, None));
        checkpoints.all().unwrap();
        assert_eq!([11, 12, 14, 15, 17].map(|block| device.place(block)), [1, 2, 2, 1, 0]);
    }

    /// Data was written to a block that was free again, and an older write of it as metadata, which had been under way, came
    /// over it.
    #[test]
    fn a_freed_block_is_free_when_no_request_with_it_is_under_way() {
        let device = Watched::new();
        let checkpoints = checkpoints(device.clone());
        commit(&checkpoints, 1, 10..12, &[]).unwrap();
        assert!(checkpoints.begin());
        device.seen.lock().closed = true;
        thread::scope(|scope| {
            scope.spawn(|| checkpoints.take_part().unwrap());
            let mut seen = device.seen.lock();
            while !seen.waiting {
                device.changed.wait(&mut seen);
            }
            drop(seen);
            let data = scope.spawn(|| {
                commit(&checkpoints, 2, 13..14, &[11]).unwrap();
                device.memory.write_at(11 * SIZE as u64, &[IoSlice::new(&[77; SIZE])]).unwrap();
            });
            // Time for a commit that does not wait.
            for _ in 0..1000 {
                if data.is_finished() {
                    break;
                }
                thread::yield_now();
            }
            device.seen.lock().closed = false;
            device.changed.notify_all();
        });
        assert_eq!((device.place(10), device.place(11)), (1, 77));
    }

    /// S6. A block that did not reach its place stays in the log, and readers find it.
    #[test]
    fn a_failed_write_of_a_step_ends_writing() {
        let device = Arc::new(Faulty::new(WritableMemory::new(vec![0; 2000 * SIZE])));
        let checkpoints = checkpoints(device.clone());
        commit(&checkpoints, 1, 10..20, &[]).unwrap();
        device.plan(Faults { writes: Some(0), once: true, ..Faults::default() });
        assert!(matches!(checkpoints.all(), Err(Error::Ended(_))));
        assert!(matches!(commit(&checkpoints, 2, 10..20, &[]), Err(Error::Ended(_))));
        assert!(matches!(checkpoints.all(), Err(Error::Ended(_))), "no second step");
        assert_eq!((checkpoints.newer(11).unwrap()[0], checkpoints.queue.errors()), (1, 1));
    }

    /// S6. Blocks that waited in the queue when a commit failed are not written.
    #[test]
    fn the_end_of_writing_stops_a_step() {
        let device = Watched::new();
        let checkpoints = checkpoints(device.clone());
        commit(&checkpoints, 1, 10..20, &[]).unwrap();
        assert!(checkpoints.begin());
        checkpoints.end_writing(Error::Invalid("for some other reason"));
        assert!(matches!(checkpoints.take_part(), Err(Error::Ended(_))));
        assert_eq!((device.place(11), checkpoints.newer(11).unwrap()[0]), (0, 1));
    }
}
