//! Runs that are with the store: one thread has several under way, and takes their answers as they come.
//!
//! # Boundary
//! Waits for answers, and knows when to give up. What a run is, and what its answer means, is [`super::read`]'s and
//! [`super::write_back`]'s; how many runs there are, the store says ([`crate::Capabilities::queue_depth`]).
//!
//! # Concurrency
//! The store completes a run from any thread; its answer is queued under one lock, and the thread that asked takes
//! it. That thread keeps what belongs to the run (page locks, the marks of being written, the gate), so nothing of it crosses
//! threads, and a run whose answer never comes costs only its bytes. Locks of pages to be filled are got by
//! trying; pages to be written are waited for, but in the order of the file and never behind a run of one's own, so that of
//! several threads the one that is farthest waits for none of the others.
//!
//! # Why
//! A thread for each run is what the rest of the cache does, and is right for a store that answers in
//! microseconds. Weakness: a run is asked for as a whole before the first is taken in; the next batch
//! begins when the last answer of this one has come.

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
use uvfs_concurrent::radix::Tag;

/// Most runs of one thread under way at once.
const DEPTH_MAX: usize = 64;
/// Fewest pages of a run that is one of several.
const EACH_PAGES_MIN: u64 = 32;
/// All runs of one thread have at most this part of the pages that may be cached.
const SHARE: u64 = 8;
/// Between two looks whether the end has come.
const LOOK: Duration = Duration::from_millis(100);

/// What the store said of one run.
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
    /// Bytes that the store has, which count as buffers.
    lent_bytes: usize,
}

impl<'a> InFlight<'a> {
    fn new(cache: &'a PageCache) -> Self {
        let arrived = Mutex::new(&lock_order::PAGE_RUNS, VecDeque::new());
        let arrivals = Arc::new((arrived, Condvar::default()));
        Self { cache, arrivals, outstanding: 0, lent_bytes: 0 }
    }

    /// One run more, in the memory of `buffer`; and what its completion calls.
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

    /// The next answer. `None` when there are no more, or the end does not wait for them any longer.
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
                // ORDERING: Relaxed; as below.
                ending.gave_up.store(false, Relaxed);
                return Some(arrival);
            }
            drop(queue);
            // ORDERING: Relaxed, both; looked at again and again.
            if ending.begun.load(Relaxed) {
                let since: &mut Instant = ends_since.get_or_insert_with(Instant::now);
                // Less for a store that let its time pass once: there may be many files.
                let part = if ending.gave_up.load(Relaxed) { 10 } else { 1 };
                if since.elapsed() >= core.config.end_patience / part {
                    // ORDERING: Relaxed; as above.
                    ending.gave_up.store(true, Relaxed);
                    return None;
                }
            }
        }
    }
}

impl Drop for InFlight<'_> {
    /// Memory of answers that never came, or that nobody took in, is the store's from now on.
    fn drop(&mut self) {
        // ORDERING: Relaxed; a count, as wherever buffers are counted.
        self.cache.buffer_bytes.fetch_sub(self.lent_bytes as u64, Relaxed);
    }
}

/// Whether the page cache ends: then nobody waits for ever.
#[derive(Debug, Default)]
pub(super) struct Ending {
    begun: AtomicBool,
    /// The store has let its time pass, and has not answered since: it is waited for less long.
    gave_up: AtomicBool,
}

impl Ending {
    /// From now on the store has so long for each answer as [`crate::VfsConfig::end_patience`] says.
    pub(super) fn begin(&self) {
        // ORDERING: Relaxed, both; looked at again and again.
        self.gave_up.store(false, Relaxed);
        self.begun.store(true, Relaxed);
    }

    /// It is over: whoever uses the file system after it waits as before.
    pub(super) fn end(&self) {
        // ORDERING: Relaxed; as above.
        self.begun.store(false, Relaxed);
    }
}

impl Core {
    /// Runs of one thread under way at once, at most.
    pub(super) fn queue_depth(&self) -> usize {
        self.capabilities.queue_depth.clamp(1, DEPTH_MAX)
    }

    /// Pages that one thread asks for at once, at most.
    pub(super) fn pages_at_once(&self) -> u64 {
        let run = self.pages.run_pages(self);
        match self.queue_depth() as u64 {
            1 => run,
            depth => (run * depth).min(self.pages.frames_allowed(self) / SHARE).max(run),
        }
    }

    /// Pages of each of the runs as which `count` pages are asked for.
    pub(super) fn pages_of_each(&self, count: u64) -> u64 {
        let each = count.div_ceil(self.queue_depth() as u64);
        each.max(EACH_PAGES_MIN).min(self.pages.run_pages(self))
    }

    /// Fills the pages of `fills` from the store, all at once. An error of the first one is the caller's; pages behind are
    /// asked for again by whoever comes there. The caller is inside the gate.
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
            let (bytes, done) = in_flight.begin(number, pages.cache.buffer(fill.span()));
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
                    // The end, or a short answer in the middle.
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
        // Those that did not come go out of the cache.
        result
    }

    /// As [`Core::write_one_run`], with as many runs under way as the store can use, of the dirty pages from `first` on.
    /// The caller is inside the gate.
    pub(super) fn write_at_once(&self, pages: &FilePages, first: u64, tag: Tag) -> Run {
        let Ok(writer) = Writer::find(self, pages) else {
            // One run notes why.
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
                let mut buffer = cache.buffer(locks.len() * PAGE as usize);
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
                    // Nothing, or in pieces: those go one after the other, when its turn comes.
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
        // Those that the end waits for no longer stay dirty.
        for (run, _) in runs.into_iter().flatten() {
            failed = self.end_run(run, Err(Error::TimedOut)).err();
        }
        // If nothing came there, what is there now is others'.
        if written > 0 {
            self.note_stored(pages, writer.file());
        }
        Run { stop, result: failed.map_or(Ok(written), Err) }
    }

    /// The store has answered about the only one of `parts`, or was not asked yet: what is left goes there now.
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
            // Space may be on its way.
            Err(error) if is_full(&error) => {}
            Err(error) => return Err(error),
        }
        self.write_parts(writer, start, data, parts)
    }
}
