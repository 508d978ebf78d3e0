//! Reads through the page cache.
//!
//! # Boundary
//! From a request to bytes: hits, fills, read-ahead, and reads around the cache when it has no room.
//!
//! # Concurrency
//! A miss puts *locked, empty* pages into the tree before it asks the store. So another reader finds such a page and
//! waits for its lock instead of asking again. A failed fill removes its pages. The error goes to the reader that
//! asked; the readers that waited find no page and ask for themselves. A fill whose pages were marked stale meanwhile
//! is not kept.
//!
//! R1. A read is short only at the end of the file. A kernel in front takes a short answer for that end, changes its
//! size, and asks for nothing behind it. So an error behind cached bytes fails the whole read.
//! R2. A short answer of the store is the end only if the size that the store reports afterwards agrees. Otherwise the
//! store is asked again, and the read fails if it insists.
//!
//! # Why
//! One fill per page, and no error cached as data. An error of pages that no reader asked for fails no reader: the fill
//! is retried without them. Weakness: when the store fails, all waiting readers ask it again, one after the other.

use super::ahead::Streams;
use super::file::FilePages;
use super::reclaim::Room;
use super::version::ROUNDS_MAX;
use super::{Borrowed, PAGE, Wanted, key};
use crate::backend::{Authority, Content, FileRef, OpenMode, Opens};
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::ops::SMALL_BYTES;
use crate::vfs::{Core, Vfs};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use uvfs_concurrent::epoch;
use uvfs_concurrent::shared::Shared;
use uvfs_containers::frame::Locked;

/// Fills of one page before it is read around the cache, because other threads evict it at once.
const FILLS_MAX: usize = 3;

/// Times that content may change between the answers to one request.
const CHANGES_MAX: usize = 16;

/// How long a fill waits for room. Reading around the cache costs little more.
const PATIENCE: Duration = Duration::from_millis(10);

/// Windows that are read ahead of a sequential reader.
const AHEAD_WINDOWS: u64 = 8;
/// All of them together have at most this part of the pages that may be cached.
const AHEAD_SHARE: u64 = 16;

/// The result of one try to fill.
enum Fill {
    /// Look again: the page is here, or was here, or the file has changed.
    Again,
    /// There is no room in the cache.
    NoRoom,
    /// The store's content has another version than the cached pages, or another size than the store reported.
    Changed,
}

impl Vfs {
    /// Reads through the cache.
    pub(crate) fn read_cached(
        &self,
        node: &Node,
        file: FileRef,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize> {
        let core = &self.core;
        let pages = core.pages_of(node);
        core.learn_page_cleans(pages);
        if core.capabilities.authority == Authority::Shared && !node.inode.attributes_believed() {
            core.refresh(node, file)?;
        }
        let (mut done, mut fills, mut fetched, mut rounds) = (0, 0, false, 0);
        let mut reading = pages.begin_reading();
        loop {
            if rounds > ROUNDS_MAX {
                done = core.read_at_once(pages, file, offset, into)?;
                break;
            }
            let size = core.size_of(node, pages, file)?;
            let end = size.min(offset.saturating_add(into.len() as u64));
            let hit = copy(pages, offset, end, into, &mut done);
            if hit > 0 {
                pages.cache.counters.hits.add(hit);
                fills = 0;
            }
            let at = offset + done as u64;
            if at >= end {
                if reading.is_some_and(|reading| pages.is_of_one_version(reading)) {
                    break;
                }
                // Some bytes may be from before a change of the content, and some from after it.
                (done, fills, rounds) = (0, 0, rounds + 1);
                reading = pages.begin_reading();
                continue;
            }
            let wanted = at / PAGE..end.div_ceil(PAGE);
            let filled = match fills {
                FILLS_MAX.. => Ok(Fill::NoRoom),
                _ => core.fill(pages, node, file, wanted),
            };
            fills += 1;
            fetched = true;
            // An error fails the whole read, also behind cached bytes (R1).
            match filled? {
                Fill::Again => {}
                Fill::Changed => {
                    (done, fills, rounds) = (0, 0, rounds + 1);
                    reading = pages.begin_reading();
                }
                Fill::NoRoom => {
                    let stop = end.min((at / PAGE + 1) * PAGE);
                    let rest = &mut into[done..done + (stop - at) as usize];
                    let count = core.read_around(pages, node, file, at, rest)?;
                    done += count;
                    fills = 0;
                    rounds += usize::from(count == 0);
                }
            }
        }
        if fetched {
            core.make_room();
            core.pages.workers.gather_later(core);
        }
        let range = offset / PAGE..(offset + done as u64).div_ceil(PAGE);
        if pages.streams.is_marked(&range) {
            core.go_ahead(pages, node, file, range);
        }
        if offset == 0 && (pages.end_expectation() || fetched) {
            core.follow_files(node);
        }
        Ok(done)
    }
}

/// The result of a read that the caches answered alone.
#[derive(Debug, Clone, Copy)]
pub struct Hit {
    /// Bytes read; fewer than asked for mean the end of the file.
    pub count: usize,
    /// The bytes behind it should be read ahead, by [`Vfs::read_ahead`].
    pub ahead: bool,
}

impl Vfs {
    /// Reads bytes if the caches have all of them, and the size is known. Never blocks on the store, nor on a thread
    /// that waits for it.
    pub fn try_read(&self, node: &Node, offset: u64, into: &mut [u8]) -> Option<Hit> {
        let core = &self.core;
        let pages = node.inode.known_pages().filter(|_| core.caches_pages())?;
        let shared = core.capabilities.authority == Authority::Shared;
        let believed = !shared || node.inode.attributes_believed();
        if !believed
            || pages.parent_hint() != node.inode.parent_hint()
            || !core.knows_page_cleans(pages)
        {
            return None;
        }
        let reading = pages.begin_reading()?;
        let end = pages.size()?.min(offset.saturating_add(into.len() as u64));
        let mut count = 0;
        let hits = copy(pages, offset, end, into, &mut count);
        if offset.saturating_add(count as u64) < end || !pages.is_of_one_version(reading) {
            return None;
        }
        pages.cache.counters.hits.add(hits);
        let range = offset / PAGE..offset.saturating_add(count as u64).div_ceil(PAGE);
        let ahead = hits > 0 && (pages.streams.is_marked(&range) || pages.is_expected());
        Some(Hit { count, ahead })
    }

    /// Reads ahead if a read of `count` bytes at `offset` has reached a mark. May block.
    pub fn read_ahead(&self, node: &Node, file: FileRef, offset: u64, count: usize) {
        let Some(pages) = node.inode.known_pages().filter(|_| self.core.caches_pages()) else {
            return;
        };
        let range = offset / PAGE..offset.saturating_add(count as u64).div_ceil(PAGE);
        if pages.streams.is_marked(&range) {
            self.core.go_ahead(pages, node, file, range);
        }
        if pages.end_expectation() {
            self.core.follow_files(node);
        }
    }
}

/// Copies cached bytes up to the first missing page. Returns the number of pages.
#[inline]
fn copy(pages: &FilePages, offset: u64, end: u64, into: &mut [u8], done: &mut usize) -> u64 {
    let guard = epoch::pin();
    let mut hits = 0;
    while offset + (*done as u64) < end {
        let at = offset + *done as u64;
        let (index, skip) = (at / PAGE, (at % PAGE) as usize);
        let count = (PAGE - skip as u64).min(end - at) as usize;
        if !pages.copy_out(index, skip, &mut into[*done..*done + count], &guard) {
            break;
        }
        *done += count;
        hits += 1;
    }
    hits
}

impl Core {
    /// The size of the file of `pages`. Asks the store if it is not known.
    pub(super) fn size_of(&self, node: &Node, pages: &FilePages, file: FileRef) -> Result<u64> {
        match pages.size() {
            Some(size) => Ok(size),
            None => {
                // A change may overtake the answer. Then the answer is not kept, but is still correct for this read.
                let given = self.refresh(node, file)?;
                Ok(pages.size().unwrap_or(given.size))
            }
        }
    }

    /// Fetches the first page of `wanted`, and further pages that are expected to be of use. If another thread is
    /// fetching the page, waits for it.
    fn fill(
        &self,
        pages: &Arc<FilePages>,
        node: &Node,
        file: FileRef,
        wanted: Range<u64>,
    ) -> Result<Fill> {
        let first = wanted.start;
        if let Some(page) = pages.find(first) {
            if page.is_locked() {
                pages.cache.counters.waited.hit();
                page.wait_unlocked();
            } else if page.is_outdated() {
                let locked = page.lock();
                if locked.page().is_attached() && locked.page().is_outdated() {
                    pages.take_out(locked);
                }
            }
            return Ok(Fill::Again);
        }
        pages.cache.counters.misses.hit();
        let end = self.size_of(node, pages, file)?.div_ceil(PAGE);
        let asked_end = wanted.end;
        let (run, made) = match first == 0 && self.comes_whole(end) {
            true => (0..end, false),
            false => pages.streams.missed(wanted.clone(), self.window_pages(), end),
        };
        if made {
            pages.cache.parts_grew(Streams::BYTES);
        }
        if pages.streams.is_marked(&wanted) {
            // A thread fetches the next windows beside this one.
            self.go_ahead(pages, node, file, wanted);
        }
        match self.fill_run(pages, node, file, (run.clone(), asked_end)) {
            // Pages behind the request may have caused the error. A store that timed out is not asked twice. Nor does a
            // read of a part follow a whole that has not its checksum: the part would come unchecked.
            Err(error)
                if run.end > asked_end && !matches!(error, Error::TimedOut | Error::Corrupt(_)) =>
            {
                self.fill_run(pages, node, file, (first..asked_end, asked_end))
            }
            result => result,
        }
    }

    /// Whether one request fetches a whole file of so many pages. A store that serves several requests at once is remote,
    /// and the second request for a small file costs more than its bytes.
    fn comes_whole(&self, pages: u64) -> bool {
        let most = (SMALL_BYTES / PAGE).min(self.pages.run_pages(self)).min(self.window_pages());
        self.queue_depth() > 1 && pages <= most
    }

    /// Fetches pages of `run` from its start on, if the first is missing. Pages from `asked_end` on count as read
    /// ahead.
    fn fill_run(
        &self,
        pages: &Arc<FilePages>,
        node: &Node,
        file: FileRef,
        (run, asked_end): (Range<u64>, u64),
    ) -> Result<Fill> {
        let count = (run.end - run.start).min(self.pages_at_once());
        let room = pages.cache.room(self, (1, count), PATIENCE);
        let Ok(mut room) = room else { return Ok(Fill::NoRoom) };
        let _inside = pages.gate.enter();
        let is_all = run.start == 0 && pages.size().is_some_and(|size| size <= count * PAGE);
        let each = match is_all && self.comes_whole(count) {
            true => count,
            false => self.pages_of_each(count),
        };
        let parts = (run.start..run.start + count, each);
        let fills = FillRun::claim_all(pages, parts, asked_end, &mut room);
        if fills.is_empty() {
            return Ok(Fill::Again);
        }
        let filled = self.ask(pages, fills, node, file)?;
        node.inode.was_read(&self.clock);
        Ok(if filled { Fill::Again } else { Fill::Changed })
    }

    /// Pages of the largest read-ahead window.
    fn window_pages(&self) -> u64 {
        let limit = self.config.read_ahead_bytes / PAGE * self.queue_depth() as u64;
        limit.min(self.pages_at_once())
    }

    /// Pages that are read ahead of a sequential reader, at most: several windows, so that the store reads while the
    /// reader copies. A store that serves several requests at once has several in one window already.
    fn ahead_pages(&self) -> u64 {
        let window = self.window_pages();
        match self.queue_depth() {
            1 => (window * AHEAD_WINDOWS)
                .min(self.pages.frames_allowed(self) / AHEAD_SHARE)
                .max(window),
            _ => window,
        }
    }

    /// Fills the pages of `fills` from the store. False if the content is of another version. The caller is inside the
    /// gate.
    fn ask(
        &self,
        pages: &FilePages,
        mut fills: Vec<FillRun<'_>>,
        node: &Node,
        file: FileRef,
    ) -> Result<bool> {
        match fills.pop() {
            Some(only) if fills.is_empty() => self.ask_one(only, node, file),
            Some(last) => {
                fills.push(last);
                self.ask_at_once(pages, fills, node, file)
            }
            None => Ok(true),
        }
    }

    /// Like [`Core::ask`], for one run.
    fn ask_one(&self, fill: FillRun<'_>, node: &Node, file: FileRef) -> Result<bool> {
        let pages = fill.pages;
        let start = fill.first * PAGE;
        let size = self.size_of(node, pages, file)?;
        let span = fill.locked.len() as u64 * PAGE;
        let wanted = size.saturating_sub(start).min(span) as usize;
        let mut buffer = pages.cache.buffer(span as usize);
        let reader = pages.reader(self, file);
        let content = self.read_fully(reader.file(), start, &mut buffer[..wanted])?;
        self.finish_fill(fill, &mut buffer, (content, wanted), (node, reader.file()))
    }

    /// The store has answered: `buffer` has `content` of a request for `wanted` bytes, for the pages of `fill`. False
    /// if they are not filled: the content is of another version, or ends before the size that the store reports (R2).
    pub(super) fn finish_fill(
        &self,
        fill: FillRun<'_>,
        buffer: &mut [u8],
        (content, wanted): (Content, usize),
        (node, file): (&Node, FileRef),
    ) -> Result<bool> {
        let pages = fill.pages;
        let version = self.version_of(pages, file, content)?;
        if content.count < wanted && !pages.has_unwritten() {
            // The file seems to be shorter than its size here: ask the store for the size. Bytes behind its end read as
            // zeros until then, as after a cut during the read.
            let now = self.refresh(node, file)?;
            if now.size > fill.first * PAGE + content.count as u64 {
                return Ok(false);
            }
        }
        buffer[content.count..].fill(0);
        let filled = fill.finish(buffer, version);
        if !filled {
            self.learn_version(pages, Some(node), file)?;
        }
        Ok(filled)
    }

    /// Reads until `into` is full or the file ends. Where the store reports versions, all bytes are of one version.
    ///
    /// # Errors
    /// The store's; [`Error::Busy`] if the content changed at every answer.
    pub(super) fn read_fully(
        &self,
        file: FileRef,
        offset: u64,
        into: &mut [u8],
    ) -> Result<Content> {
        let (mut whole, mut changes) = (Content::default(), 0);
        // A store may answer short in the middle of a file. Only an empty answer is the end.
        while whole.count < into.len() {
            let rest = &mut into[whole.count..];
            let at = offset + whole.count as u64;
            let part = self.backend().data().read_with_version(file, at, rest)?;
            let count = self.believed("read", file, part.count, rest.len())?;
            if whole.count > 0 && part.version != whole.version {
                (whole, changes) = (Content::default(), changes + 1);
                if changes == CHANGES_MAX {
                    return Err(Error::Busy);
                }
                continue;
            }
            whole.version = part.version;
            whole.count += count;
            if count == 0 {
                break;
            }
        }
        Ok(whole)
    }

    /// Reads a part of one page around the cache. Returns 0 if it is of another version than the cached pages, or if
    /// the store answers fewer bytes (R2). Then the size is renewed.
    fn read_around(
        &self,
        pages: &FilePages,
        node: &Node,
        file: FileRef,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize> {
        pages.cache.counters.around.hit();
        let _inside = pages.gate.enter();
        if let Some(locked) = pages.lock(offset / PAGE)
            && locked.page().is_uptodate()
            && !locked.page().is_outdated()
        {
            locked.read((offset % PAGE) as usize, into);
            return Ok(into.len());
        }
        let reader = pages.reader(self, file);
        let content = self.read_fully(reader.file(), offset, into)?;
        let version = self.version_of(pages, reader.file(), content)?;
        if content.count < into.len() && !pages.has_unwritten() {
            self.refresh(node, reader.file())?;
            return Ok(0);
        }
        into[content.count..].fill(0);
        if pages.admit(version).is_some() {
            return Ok(into.len());
        }
        self.learn_version(pages, Some(node), reader.file())?;
        Ok(0)
    }

    /// Fetches the whole of a small file that no thread has read yet, for an expected reader. Whether it is here now,
    /// and was not before.
    pub(crate) fn fetch_small(&self, node: &Node, file: FileRef) -> bool {
        let pages = self.pages_of(node);
        self.learn_page_cleans(pages);
        let Ok(size) = self.size_of(node, pages, file) else { return false };
        if size == 0 || pages.find(0).is_some() {
            return false;
        }
        let count = size.div_ceil(PAGE).min(self.pages_at_once());
        let Some(mut room) = pages.cache.try_room(self, (1, count)) else { return false };
        let Some(_inside) = pages.gate.try_enter() else { return false };
        let fills = FillRun::claim_all(pages, (0..count, count), 0, &mut room);
        if fills.is_empty() {
            return false;
        }
        pages.expect();
        let filled = self.ask(pages, fills, node, file).is_ok_and(|filled| filled);
        if filled {
            pages.cache.counters.ahead.add(count);
        } else {
            pages.end_expectation();
        }
        filled
    }

    /// A reader came to a mark in `range`: fetches the expected pages in the background.
    fn go_ahead(&self, pages: &Arc<FilePages>, node: &Node, file: FileRef, range: Range<u64>) {
        let Some(size) = pages.size() else { return };
        let run = pages.streams.came_to_mark(range, self.ahead_pages(), size.div_ceil(PAGE));
        if run.is_empty() {
            return;
        }
        let Some(reader) = PinnedReader::new(self, pages, file) else { return };
        let job = Ahead { pages: pages.clone(), node: node.clone(), reader, run };
        // If too much is in progress already, the reader will miss, and fetch the pages itself.
        drop(self.pages.workers.submit_ahead(self, job));
    }

    /// Does the job of [`Core::go_ahead`], a window at a time. No thread waits for it, so it reports no errors.
    pub(super) fn fetch_ahead(&self, job: Ahead) {
        let window = self.window_pages().max(1);
        let mut start = job.run.start;
        while start < job.run.end {
            let run = start..job.run.end.min(start + window);
            start = run.end;
            if job.pages.streams.is_waiting(&run) {
                self.fetch_window(&job, run);
            }
            // Else the reader has passed these pages already.
        }
    }

    fn fetch_window(&self, job: &Ahead, window: Range<u64>) {
        let pages = &job.pages;
        if let Some(mut room) = pages.cache.try_room(self, (1, window.end - window.start))
            && let Some(_inside) = pages.gate.try_enter()
        {
            // Only now: making room takes a while, and pages behind the reader are of no use.
            let mut run = pages.streams.begin(&window);
            while run.start < run.end && pages.find(run.start).is_some() {
                run.start += 1;
            }
            let nothing_asked = run.start;
            let each = self.pages_of_each(run.end - run.start);
            let fills = FillRun::claim_all(pages, (run, each), nothing_asked, &mut room);
            let count: u64 = fills.iter().map(|fill| fill.locked.len() as u64).sum();
            if count > 0
                && self.ask(pages, fills, &job.node, job.reader.file).is_ok_and(|filled| filled)
            {
                pages.cache.counters.ahead.add(count);
            }
        }
    }
}

/// Pages to fetch in the background.
#[derive(Debug)]
pub(super) struct Ahead {
    pages: Arc<FilePages>,
    node: Node,
    reader: PinnedReader,
    run: Range<u64>,
}

/// A file to read by, for as long as a job lasts.
#[derive(Debug)]
struct PinnedReader {
    core: Shared<Core>,
    pages: Arc<FilePages>,
    file: FileRef,
    /// An open file of the store, which stays open until this is dropped.
    borrowed: Option<Borrowed>,
}

impl PinnedReader {
    /// `None` if the store tracks opens and no open file can be read.
    fn new(core: &Core, pages: &Arc<FilePages>, wished: FileRef) -> Option<Self> {
        let borrowed = pages.opens.reader(wished);
        if borrowed.is_none() && core.capabilities.opens == Opens::Tracked {
            return None;
        }
        let file = borrowed.as_ref().map_or(wished, |borrowed| borrowed.0);
        Some(Self { core: core.handle(), pages: pages.clone(), file, borrowed })
    }
}

impl Drop for PinnedReader {
    fn drop(&mut self) {
        if let Some(borrowed) = self.borrowed.take() {
            self.pages.end_use(&self.core, borrowed);
        }
    }
}

/// A file to read by, returned when dropped.
pub(super) struct Reader<'a> {
    core: &'a Core,
    pages: &'a FilePages,
    file: FileRef,
    borrowed: Option<Borrowed>,
    opened: bool,
}

impl FilePages {
    /// A file of the store to read by: `wished`, or another open file if that one is not open for reading, or one
    /// opened for this read.
    pub(super) fn reader<'a>(&'a self, core: &'a Core, wished: FileRef) -> Reader<'a> {
        let mut reader = Reader { core, pages: self, file: wished, borrowed: None, opened: false };
        if core.capabilities.opens == Opens::Stateless {
            return reader;
        }
        reader.borrowed = self.opens.reader(wished);
        match &reader.borrowed {
            Some(borrowed) => reader.file = borrowed.0,
            None => {
                // A caller that may write a part of a page need not have the right to read the rest. The cache has it.
                let opened = core.store_files().open(&Caller::root(), self.inode, OpenMode::READ);
                if let Ok(file) = opened {
                    reader.file = FileRef { inode: self.inode, file };
                    reader.opened = true;
                }
            }
        }
        reader
    }

    /// Ends the use of an open file of the store.
    pub(super) fn end_use(&self, core: &Core, borrowed: Borrowed) {
        if let Some(file) = self.opens.give_back(borrowed, self.is_unwritten()) {
            core.store_files().close(file);
        }
    }
}

impl Reader<'_> {
    pub(super) fn file(&self) -> FileRef {
        self.file
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        if let Some(borrowed) = self.borrowed.take() {
            self.pages.end_use(self.core, borrowed);
        }
        if self.opened {
            self.core.store_files().close(self.file);
        }
    }
}

/// Empty pages that this thread has inserted and must fill. It removes those that it does not fill.
pub(super) struct FillRun<'a> {
    pages: &'a FilePages,
    first: u64,
    locked: Vec<Locked<'a>>,
}

impl<'a> FillRun<'a> {
    /// Like [`FillRun::claim`], for a run in parts of `each` pages. Empty if the first page exists by now.
    fn claim_all(
        pages: &'a FilePages,
        (run, each): (Range<u64>, u64),
        asked_end: u64,
        room: &mut Room<'a>,
    ) -> Vec<Self> {
        let (mut fills, mut at) = (Vec::new(), run.start);
        while at < run.end {
            let part = at..run.end.min(at + each.max(1));
            at = part.end;
            let fill = Self::claim(pages, part, asked_end, room);
            match fill.locked.is_empty() {
                true if fills.is_empty() => break,
                true => {}
                false => fills.push(fill),
            }
        }
        fills
    }

    /// First page of the run.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Bytes of its pages.
    pub(super) fn span(&self) -> usize {
        self.locked.len() * PAGE as usize
    }

    /// Inserts missing pages of `run` from its start on, up to the first existing page, as far as there is room. Pages
    /// from `asked_end` on count as read ahead.
    fn claim(pages: &'a FilePages, run: Range<u64>, asked_end: u64, room: &mut Room<'a>) -> Self {
        let mut locked = Vec::with_capacity((run.end - run.start) as usize);
        for index in run.clone() {
            let Some(page) = room.take().and_then(|fresh| pages.take_in(fresh, index)) else {
                break;
            };
            locked.push(page);
        }
        let keyed = locked.iter().map(|page| {
            let (id, index) = (page.page().id(), page.page().index());
            let wanted = if index < asked_end { Wanted::Now } else { Wanted::Ahead };
            (id, key(pages.inode, index), wanted)
        });
        pages.cache.came_in(pages.class(), keyed);
        Self { pages, first: run.start, locked }
    }

    /// `data` is the store's content, of `version`. Removes the pages that were marked stale meanwhile. False if all
    /// are removed, because `version` is not the wanted one.
    fn finish(mut self, data: &[u8], version: u64) -> bool {
        for (locked, data) in self.locked.iter_mut().zip(data.chunks(PAGE as usize)) {
            locked.write(0, data);
        }
        let (mut filled, mut stale) = (Vec::with_capacity(self.locked.len()), Vec::new());
        let admitted = self.pages.admit(version);
        for mut locked in self.locked.drain(..) {
            let is_filled = admitted.is_some() && locked.set_filled();
            if is_filled { filled.push(locked) } else { stale.push(locked) }
        }
        let was_admitted = admitted.is_some();
        drop(admitted);
        // Pages are unlocked and removed with no lock held.
        drop(filled);
        self.pages.cache.counters.stale.add(stale.len() as u64);
        stale.into_iter().for_each(|locked| self.pages.take_out(locked));
        was_admitted
    }
}

impl Drop for FillRun<'_> {
    fn drop(&mut self) {
        self.locked.drain(..).for_each(|locked| self.pages.take_out(locked));
    }
}
