//! Runs in progress: one thread asks the store for several, and takes the answers as they come.
//!
//! # Boundary
//! Waits for answers, and decides when to give up. [`super::read`] and [`super::write_back`] define a run and handle
//! its answer. The store limits their number ([`crate::Capabilities::queue_depth`]).
//!
//! # Concurrency
//! The store completes a run from any thread. The answer is queued under one lock, and the thread that asked takes it.
//! That thread keeps the run's state (page locks, `WRITING`, the gate). So no such state crosses threads, and a run
//! without an answer costs only its bytes. A thread only tries the locks of pages to fill. It waits for pages to write,
//! but in file order and never while it has a later run of its own in progress. So the thread that is furthest ahead
//! waits for no other.
//!
//! # Why
//! A thread for each run is right for a store that answers in microseconds. Weakness: all runs of a batch are requested
//! before the first answer is taken. The next batch begins after the last answer.

use super::read::FillRun;
use super::space::is_full;
use super::write_back::{Run, Writer, WritingRun};
use super::{Buffer, FilePages, PAGE, PageCache};
use crate::backend::{Content, FileRef, ReadRun, WriteRun};
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::lock_order;
use crate::vfs::Core;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_concurrent::primitive::atomic::{AtomicBool, Ordering::Relaxed};
use uvfs_containers::radix::Tag;

/// Most runs in progress of one thread.
const DEPTH_MAX: usize = 64;
/// Fewest pages of a run that is one of several.
const EACH_PAGES_MIN: u64 = 32;
/// All runs of one thread have at most this part of the pages that may be cached.
const SHARE: u64 = 8;
/// The interval between two checks for the end.
const LOOK: Duration = Duration::from_millis(100);

/// The store's answer for one run.
struct Arrival {
    number: usize,
    bytes: Vec<u8>,
    result: Result<Content>,
}

/// Runs of one thread. See the module.
struct InFlight<'a> {
    cache: &'a PageCache,
    arrivals: Arc<(Mutex<VecDeque<Arrival>>, Condvar)>,
    outstanding: usize,
    /// Bytes lent to the store, which count as buffers.
    lent_bytes: usize,
}

impl<'a> InFlight<'a> {
    fn new(cache: &'a PageCache) -> Self {
        let arrived = Mutex::new(&lock_order::PAGE_RUNS, VecDeque::new());
        let arrivals = Arc::new((arrived, Condvar::default()));
        Self { cache, arrivals, outstanding: 0, lent_bytes: 0 }
    }

    /// Begins one more run, in the memory of `buffer`. Returns that memory and the function to call on completion.
    fn begin(
        &mut self,
        number: usize,
        buffer: Buffer<'_>,
    ) -> (Vec<u8>, impl FnOnce(Vec<u8>, Result<Content>) + Send + use<>) {
        self.outstanding += 1;
        let bytes = buffer.into_bytes();
        self.lent_bytes += bytes.len();
        let arrivals = self.arrivals.clone();
        let done = move |bytes, result| {
            let (arrived, came) = &*arrivals;
            arrived.lock().push_back(Arrival { number, bytes, result });
            came.notify_one();
        };
        (bytes, done)
    }

    /// The next answer. `None` if no run is left, or if the end waits no longer.
    fn next(&mut self, core: &Core) -> Option<Arrival> {
        if self.outstanding == 0 {
            return None;
        }
        let (arrived, came) = &*self.arrivals;
        let ending = &core.pages.ending;
        let mut ends_since = None;
        loop {
            let mut queue = arrived.lock();
            if queue.is_empty() {
                came.wait_for(&mut queue, LOOK);
            }
            if let Some(arrival) = queue.pop_front() {
                self.outstanding -= 1;
                self.lent_bytes -= arrival.bytes.len();
                // ORDERING: Relaxed; checked repeatedly.
                ending.gave_up.store(false, Relaxed);
                return Some(arrival);
            }
            drop(queue);
            // ORDERING: Relaxed, both; checked repeatedly.
            if ending.begun.load(Relaxed) {
                let since: &mut Instant = ends_since.get_or_insert_with(Instant::now);
                // Wait less for a store that timed out once: there may be many files.
                let part = if ending.gave_up.load(Relaxed) { 10 } else { 1 };
                if since.elapsed() >= core.config.end_patience / part {
                    // ORDERING: Relaxed; checked repeatedly.
                    ending.gave_up.store(true, Relaxed);
                    return None;
                }
            }
        }
    }
}

impl Drop for InFlight<'_> {
    /// Memory of answers that never came, or that no thread took, belongs to the store from now on.
    fn drop(&mut self) {
        // ORDERING: Relaxed; a size that may lag.
        self.cache.buffer_bytes.fetch_sub(self.lent_bytes as u64, Relaxed);
    }
}

/// Whether the page cache ends: then no thread waits without a limit.
#[derive(Debug, Default)]
pub(super) struct Ending {
    begun: AtomicBool,
    /// The store has timed out and not answered since: the next wait is shorter.
    gave_up: AtomicBool,
}

impl Ending {
    /// From now on the store has [`crate::VfsConfig::end_patience`] for each answer.
    pub(super) fn begin(&self) {
        // ORDERING: Relaxed, both; checked repeatedly.
        self.gave_up.store(false, Relaxed);
        self.begun.store(true, Relaxed);
    }

    /// The end is over: later users wait without a limit again.
    pub(super) fn end(&self) {
        // ORDERING: Relaxed; checked repeatedly.
        self.begun.store(false, Relaxed);
    }
}

impl Core {
    /// Runs of one thread in progress, at most.
    pub(super) fn queue_depth(&self) -> usize {
        self.capabilities.queue_depth.clamp(1, DEPTH_MAX)
    }

    /// Pages that one thread requests at once, at most.
    pub(super) fn pages_at_once(&self) -> u64 {
        let run = self.pages.run_pages(self);
        match self.queue_depth() as u64 {
            1 => run,
            depth => (run * depth).min(self.pages.frames_allowed(self) / SHARE).max(run),
        }
    }

    /// Pages of each run, if `count` pages are requested.
    pub(super) fn pages_of_each(&self, count: u64) -> u64 {
        let each = count.div_ceil(self.queue_depth() as u64);
        each.max(EACH_PAGES_MIN).min(self.pages.run_pages(self))
    }

    /// Fills the pages of `fills` from the store, all at once. Returns an error of the first run. Later readers ask
    /// again for pages of other failed runs. The caller is inside the gate.
    pub(super) fn ask_at_once(
        &self,
        pages: &FilePages,
        fills: Vec<FillRun<'_>>,
        node: &Node,
        file: FileRef,
    ) -> Result<bool> {
        let size = self.size_of(node, pages, file)?;
        let reader = pages.reader(self, file);
        let mut in_flight = InFlight::new(&pages.cache);
        let wanted_of = |fill: &FillRun<'_>| {
            size.saturating_sub(fill.first() * PAGE).min(fill.span() as u64) as usize
        };
        let mut fills: Vec<_> = fills.into_iter().map(Some).collect();
        for (number, fill) in fills.iter().flatten().enumerate() {
            let (bytes, done) =
                in_flight.begin(number, pages.cache.buffer(fill.span()).at_memory_start());
            match wanted_of(fill) {
                0 => done(bytes, Ok(Content::default())),
                wanted => {
                    let start = fill.first() * PAGE;
                    let run = ReadRun::new(reader.file(), start, (bytes, wanted), done);
                    self.backend().data().read_run(run);
                }
            }
        }
        let mut result = Err(Error::TimedOut);
        while let Some(Arrival { number, bytes, result: answer }) = in_flight.next(self) {
            let Some(fill) = fills[number].take() else { continue };
            let mut buffer = Buffer::of(&pages.cache, bytes, fill.span());
            let wanted = wanted_of(&fill);
            let filled = answer
                .and_then(|content| {
                    self.believed("read", reader.file(), content.count, wanted).map(|_| content)
                })
                .and_then(|content| match content.count < wanted {
                    // The end of the file, or a short answer in the middle.
                    true => {
                        let start = fill.first() * PAGE;
                        self.read_fully(reader.file(), start, &mut buffer[..wanted])
                    }
                    false => Ok(content),
                })
                .and_then(|content| {
                    let answered = (node, reader.file());
                    self.finish_fill(fill, &mut buffer, (content, wanted), answered)
                });
            if number == 0 {
                result = filled;
            }
        }
        // Pages of unanswered runs are removed from the cache.
        result
    }

    /// Like [`Core::write_one_run`] for the dirty pages from `first` on, with as many runs in progress as the store can
    /// use. The caller is inside the gate.
    pub(super) fn write_at_once(&self, pages: &FilePages, first: u64, tag: Tag) -> Run {
        let Ok(writer) = Writer::find(self, pages) else {
            // A single run records the error.
            return self.write_one_run(pages, first, tag);
        };
        self.look_for_others(pages, writer.file());
        let (cache, depth) = (&pages.cache, self.queue_depth());
        let mut in_flight = InFlight::new(cache);
        let (most, mut taken) = (self.pages_at_once(), 0);
        let mut runs = Vec::with_capacity(depth);
        let (mut next, mut stop) = (Some(first), first + 1);
        while let Some(index) = next.take().filter(|_| runs.len() < depth && taken < most) {
            stop = index + 1;
            if let Some(locks) = self.lock_run(pages, index, tag) {
                stop = index + locks.len() as u64;
                taken += locks.len() as u64;
                let mut buffer = cache.buffer(locks.len() * PAGE as usize).at_memory_start();
                let run = WritingRun::begin(pages, index..stop, locks, &mut buffer);
                let parts = run.parts(pages.length_from(index, buffer.len()));
                let (bytes, done) = in_flight.begin(runs.len(), buffer);
                runs.push(Some((run, parts.clone())));
                match parts.as_slice() {
                    [part] => {
                        let at = index * PAGE + part.start as u64;
                        let run = WriteRun::new(writer.file(), at, (bytes, part.clone()), done);
                        self.backend().data().write_run(&Caller::root(), run);
                    }
                    // Nothing, or in pieces: pieces are written one after the other, in this run's turn.
                    _ => done(bytes, Ok(Content::default())),
                }
            }
            next = pages.next_tagged(stop..u64::MAX, tag);
        }
        let (mut written, mut failed) = (0, None);
        while let Some(Arrival { number, bytes, result }) = in_flight.next(self) {
            let Some((run, mut parts)) = runs[number].take() else { continue };
            let buffer = Buffer::of(cache, bytes, run.span());
            let result = self.after_answer(&writer, run.start(), (&buffer, &mut parts), result);
            match self.end_run(run, result) {
                Ok(count) => written += count,
                Err(error) => failed = Some(error),
            }
        }
        // Runs that the end waits for no longer stay dirty.
        for (run, _) in runs.into_iter().flatten() {
            failed = self.end_run(run, Err(Error::TimedOut)).err();
        }
        // If no run arrived, other programs made the store's present content.
        if written > 0 {
            self.note_stored(pages, writer.file());
        }
        Run { stop, result: failed.map_or(Ok(written), Err) }
    }

    /// The store has answered about the only one of `parts`, or was not asked yet. Writes the rest now.
    fn after_answer(
        &self,
        writer: &Writer<'_>,
        start: u64,
        (data, parts): (&[u8], &mut Vec<Range<usize>>),
        result: Result<Content>,
    ) -> Result<()> {
        match result {
            Ok(Content { count, .. }) => {
                if let [part] = parts.as_mut_slice() {
                    part.start += self.believed("write", writer.file(), count, part.len())?;
                }
            }
            // Space may be freed soon.
            Err(error) if is_full(&error) => {}
            Err(error) => return Err(error),
        }
        self.write_parts(writer, (start, writer.change_time()), data, parts)
    }
}
