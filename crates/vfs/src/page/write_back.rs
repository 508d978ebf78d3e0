//! Write-back: brings dirty pages to the store.
//!
//! # Boundary
//! Chooses pages, their order and their time, and records errors. [`super::write`] makes pages dirty. [`super::dirty`]
//! finds the files that are due.
//!
//! # Concurrency
//! A run is a row of neighbouring dirty pages, in file order. A writer waits for the lock of the first page and only
//! tries the others, so two runs never wait for each other. With all of them locked, it changes their tags from dirty
//! to writing, copies their bytes and unlocks them. Then it asks the store. Meanwhile other threads may read these
//! pages and make them dirty again, but `WRITING` keeps them out of a second run. A run stays inside the gate, so no
//! cut and no punch passes a run that began before it.
//!
//! W1. A page that is dirty and not locked has the tag [`Tag::Dirty`].
//! W2. A page is `WRITING` from the copy of its bytes until the store has answered about them.
//!
//! W3 to W5, for the ends of runs beside concurrent `fsync`s, are in [`uvfs_concurrent::write_back::marked`], with models.
//!
//! # Why
//! Index order and large runs, because every store is slow per request. Where other programs change the store, a run
//! has gaps: only bytes written here are sent ([`super::pieces`]). `fsync` marks the pages that are dirty when it
//! begins ([`Tag::ToWrite`]) and ends when these are written (as Linux `tag_pages_for_writeback`). Each open file
//! reports an error once. The pages stay dirty, because a full store may have space later. Pages that no thread can
//! read any more are not retried ([`super::gone`]).
//! Weakness: a store that never recovers keeps the dirty pages in memory until the end ([`super::ending`]).

use super::file::FilePages;
use super::pieces::Pieces;
use super::{Alone, Borrowed, ErrorCursor, PAGE, PageCache};
use crate::attributes::{SetAttributes, SetTime, Timestamp};
use crate::backend::{Authority, FileRef, OpenMode, Opens, SyncMode};
use crate::caller::Caller;
use crate::error::{Error, Result, Retry};
use crate::ops::AttributeChange;
use crate::vfs::Core;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_concurrent::epoch;
use uvfs_concurrent::write_back::marked;
use uvfs_containers::frame::{Locked, Outcome, PageRef};
use uvfs_containers::radix::Tag;

/// When to retry a file that is not complete yet, in a store that takes whole files only.
const UNFINISHED: Duration = Duration::from_secs(1);
/// All pages of a file.
pub(super) const ALL: Range<u64> = 0..u64::MAX;
/// Threads that write one file back, at most.
pub(super) const HELPERS_MAX: u32 = 2;
/// Failed runs after which an `fsync` gives up: a dead store is not asked for every run.
const FAILURES_MAX: usize = 3;

impl Core {
    /// Writes the pages that are dirty when the call begins, and waits for runs of other threads on this file.
    ///
    /// # Errors
    /// The last error, if any of these pages did not arrive, whichever thread wrote it. Such pages stay dirty.
    pub(super) fn write_out(&self, pages: &FilePages) -> Result<()> {
        if self.takes_whole_files() {
            return self.replace_content(pages, &pages.gate.enter_alone()).map(drop);
        }
        let _inside = pages.gate.enter();
        self.write_marked(pages, FAILURES_MAX)
    }

    /// Like [`Core::write_out`], for the last tries: tries every run, and all failed pages once more.
    pub(super) fn write_every_run(&self, pages: &FilePages) -> Result<()> {
        if self.takes_whole_files() {
            return self.write_out(pages).or_else(|_| self.write_out(pages));
        }
        let _inside = pages.gate.enter();
        self.write_marked(pages, usize::MAX).or_else(|_| self.write_marked(pages, usize::MAX))
    }

    /// Like [`Core::write_out`] for the whole file. The caller is alone in the gate; on success the file has no
    /// unwritten data.
    pub(super) fn write_out_alone(&self, pages: &FilePages, alone: &Alone<'_>) -> Result<()> {
        if !pages.has_unwritten() {
            return Ok(());
        }
        match self.takes_whole_files() {
            true => _ = self.replace_content(pages, alone)?,
            false => self.write_marked(pages, FAILURES_MAX)?,
        }
        self.write_change_time(pages)?;
        if pages.has_unwritten() { Err(pages.errors.last().unwrap_or(Error::Busy)) } else { Ok(()) }
    }

    /// The caller is inside the gate, or alone in it. Gives up after `failures_max` failed runs.
    fn write_marked(&self, pages: &FilePages, failures_max: usize) -> Result<()> {
        match marked::write_marked(&Synced { core: self, pages }, failures_max) {
            true => Ok(()),
            false => Err(pages.errors.last().unwrap_or(Error::Busy)),
        }
    }

    /// Writes one run of a file, from where the last one ended. Returns its pages; 0 if nothing is dirty or the file is
    /// busy.
    pub(super) fn write_next_run(&self, pages: &FilePages) -> Result<u64> {
        if self.takes_whole_files() {
            if self.is_being_written(pages) {
                return Ok(0);
            }
            let alone = pages.gate.try_enter_alone();
            return alone.map_or(Ok(0), |alone| self.replace_content(pages, &alone));
        }
        let Some(_inside) = pages.gate.try_enter() else { return Ok(0) };
        let from = pages.local().cursor;
        let next = pages.next_tagged(from..u64::MAX, Tag::Dirty);
        let Some(first) = next.or_else(|| pages.next_tagged(0..from, Tag::Dirty)) else {
            return Ok(0);
        };
        pages.local().cursor = first + self.pages_at_once();
        self.write_run(pages, first, Tag::Dirty).result
    }

    /// Writes neighbouring dirty pages from `first` on, or as many runs as the store can use at once. The caller is
    /// inside the gate.
    fn write_run(&self, pages: &FilePages, first: u64, tag: Tag) -> Run {
        match self.queue_depth() {
            1 => self.write_one_run(pages, first, tag),
            _ => self.write_at_once(pages, first, tag),
        }
    }

    /// Locks neighbouring dirty pages from `first` on. `None`: nothing to write there any more.
    pub(super) fn lock_run<'a>(
        &self,
        pages: &'a FilePages,
        first: u64,
        tag: Tag,
    ) -> Option<Vec<Locked<'a>>> {
        let mut locks = vec![lock_to_write(pages, first, tag)?];
        for index in first + 1..first + pages.cache.run_pages(self) {
            let Some(page) = pages.find(index) else { break };
            let Ok(locked) = page.try_lock() else { break };
            let page = locked.page();
            if !page.is_attached() || !page.is_dirty() || page.is_writing() {
                break;
            }
            locks.push(locked);
        }
        Some(locks)
    }

    /// Writes neighbouring dirty pages from `first` on. The caller is inside the gate.
    pub(super) fn write_one_run(&self, pages: &FilePages, first: u64, tag: Tag) -> Run {
        let Some(locks) = self.lock_run(pages, first, tag) else {
            return Run { stop: first + 1, result: Ok(0) };
        };
        let stop = first + locks.len() as u64;
        let mut buffer = pages.cache.buffer(locks.len() * PAGE as usize);
        let run = WritingRun::begin(pages, first..stop, locks, &mut buffer);
        let parts = run.parts(pages.length_from(first, buffer.len()));
        let result = self.write_fully(pages, run.start(), &buffer, parts);
        Run { stop, result: self.end_run(run, result) }
    }

    /// The store has answered about `run`. Returns the pages of the run.
    pub(super) fn end_run(&self, mut run: WritingRun<'_>, result: Result<()>) -> Result<u64> {
        match result {
            Ok(()) => {
                let count = run.writing.len() as u64;
                marked::arrive(&mut Arrived { run: &mut run, count });
                run.pages.answered(Outcome::Written);
                self.pages.counters.runs_written.hit();
                self.pages.counters.pages_written.add(count);
                Ok(count)
            }
            Err(error) => {
                run.fail(&error);
                self.warn_not_written(run.pages, &error);
                Err(error)
            }
        }
    }

    /// Writes `parts` of `data`, whose first byte is at `start` of the file, to the store.
    fn write_fully(
        &self,
        pages: &FilePages,
        start: u64,
        data: &[u8],
        mut parts: Vec<Range<usize>>,
    ) -> Result<()> {
        let writer = Writer::find(self, pages)?;
        self.look_for_others(pages, writer.file());
        let changed = pages.change_time();
        self.write_parts(&writer, (start, changed), data, &mut parts)?;
        if self.capabilities.writes_back {
            pages.change_time_taken(changed);
            // It has more space now.
            let node = pages.local().pinned_inode.clone();
            node.iter().for_each(|node| node.inode.expire_attributes(&self.clock));
        }
        self.note_stored(pages, writer.file());
        Ok(())
    }

    /// Like [`Core::write_fully`], through `writer`.
    pub(super) fn write_parts(
        &self,
        writer: &Writer<'_>,
        (start, changed): (u64, Timestamp),
        data: &[u8],
        parts: &mut [Range<usize>],
    ) -> Result<()> {
        // A retry after a lack of space continues with the rest of `parts`.
        self.with_space(|| {
            for part in parts.iter_mut() {
                while part.start < part.end {
                    let (at, rest) = (start + part.start as u64, &data[part.clone()]);
                    match self.backend().data().write_back(writer.file(), at, rest, changed)? {
                        0 => return Err(Error::NoSpace),
                        count => {
                            part.start +=
                                self.believed("write", writer.file(), count, rest.len())?;
                        }
                    }
                }
            }
            Ok(())
        })
    }

    /// Our write to `file` has succeeded: records the resulting attributes.
    pub(super) fn note_stored(&self, pages: &FilePages, file: FileRef) {
        if self.shares_files()
            && let Ok(now) = self.backend().inodes().attributes(file)
        {
            pages.stored(&now);
        }
    }

    /// Whether other programs may change files without a notice.
    fn shares_files(&self) -> bool {
        self.capabilities.authority == Authority::Shared && !self.config.watch
    }

    /// Call before a write to the store's file: detects a change by another program, which our write would mask, and
    /// invalidates the cached pages.
    pub(super) fn look_for_others(&self, pages: &FilePages, file: FileRef) {
        if self.shares_files()
            && let Ok(now) = self.backend().inodes().attributes(file)
            && pages.changed_by_others(&now)
        {
            // A new version, or the same version with another time or size.
            drop(pages.comes_to(now.version));
            pages.attributes_changed();
        }
    }

    /// If the file has no unwritten pages, sends its change time to the store, and closes the files kept open for
    /// writing.
    ///
    /// # Errors
    /// The store's error, if it did not take the time; a later call sends it again.
    pub(super) fn write_times(&self, pages: &FilePages) -> Result<()> {
        let _inside = pages.gate.enter();
        self.write_change_time(pages)
    }

    /// Like [`Core::write_times`]. The caller is inside the gate or alone in it. A thread that sets times is alone in
    /// the gate, so the last time is sent.
    fn write_change_time(&self, pages: &FilePages) -> Result<()> {
        let mut result = Ok(());
        let stated = match pages.unwritten_change_time() {
            Some(time) => {
                let Some(node) = pages.local().pinned_inode.clone() else { return Ok(()) };
                let is_taken = self.capabilities.writes_back && pages.is_change_time_taken();
                if is_taken || self.takes_whole_files() && !pages.is_change_stated() {
                    // The store took a time with the content, or set one.
                    node.inode.expire_attributes(&self.clock);
                    drop(pages.change_time_written(Some(time)));
                    self.close_released(pages);
                    return Ok(());
                }
                let change = AttributeChange::begin(self, &node);
                let set = SetAttributes { mtime: Some(SetTime::At(time)), ..Default::default() };
                let writer = Writer::find(self, pages);
                let file = writer.as_ref().map_or(FileRef::unopened(pages.inode), Writer::file);
                self.look_for_others(pages, file);
                match self.backend().inodes().set_attributes(&Caller::root(), file, &set) {
                    Ok(given) => {
                        let kept = pages.change_time_written(Some(time));
                        change.commit(given);
                        kept
                    }
                    Err(error) if error.retry() == Retry::Later => {
                        pages.failed(&error);
                        self.warn_not_written(pages, &error);
                        result = Err(error);
                        None
                    }
                    // The object has no such time or is gone: the store keeps its own time.
                    Err(_) => pages.change_time_written(Some(time)),
                }
            }
            None => pages.change_time_written(None),
        };
        drop(stated);
        self.close_released(pages);
        result
    }

    /// Closes files that all openers have left and no unwritten data needs.
    pub(super) fn close_released(&self, pages: &FilePages) {
        for file in pages.opens.closable(pages.is_unwritten()) {
            self.store_files().close(file);
        }
    }

    /// The store makes stable what it has received of `file`, or of all files if it does not know single ones. A
    /// failure is logged.
    pub(crate) fn sync_stored(&self, file: FileRef, mode: SyncMode) -> Result<()> {
        let synced = match self.backend().data().sync(file, mode) {
            Err(Error::Unsupported(_)) => self.backend().sync_fs(),
            synced => synced,
        };
        self.note_synced(file.inode, &synced);
        synced
    }

    /// fsync(2) of one open file, or of the file if opens are not tracked.
    pub(crate) fn sync_pages(
        &self,
        pages: &Arc<FilePages>,
        file: FileRef,
        mode: SyncMode,
        error_cursor: Option<&ErrorCursor>,
    ) -> Result<()> {
        let written = self.write_out(pages).and_then(|()| match (self.write_times(pages), mode) {
            // fdatasync(2) is not about times.
            (_, SyncMode::Data) => Ok(()),
            (stated, SyncMode::All) => stated,
        });
        let synced = match &written {
            Ok(()) => self.sync_stored(file, mode),
            Err(_) => Ok(()),
        };
        let untold = match error_cursor {
            Some(error_cursor) => pages.errors.check_and_advance(error_cursor),
            None => pages.errors.check_and_advance_unopened(),
        };
        match untold {
            Some(error) => Err(error),
            None => written.and(synced),
        }
    }

    /// close(2) of one descriptor: reports the errors of write-back.
    pub(crate) fn flush_pages(
        &self,
        pages: &Arc<FilePages>,
        error_cursor: &ErrorCursor,
    ) -> Result<()> {
        let shared = self.capabilities.authority == Authority::Shared;
        let written = match shared || self.takes_whole_files() {
            true => self.write_out(pages).and_then(|()| self.write_times(pages)),
            false => Ok(()),
        };
        match pages.errors.check_and_advance(error_cursor) {
            Some(error) => Err(error),
            None => written,
        }
    }

    /// Writes everything that is dirty in a file.
    pub(crate) fn write_out_all(&self, pages: &FilePages) -> Result<()> {
        if pages.has_unwritten() && !self.is_being_written(pages) {
            return self.write_out(pages);
        }
        Ok(())
    }

    /// The opener of `file` is done with it: closes it now, or when everything is written.
    pub(crate) fn close_pages(&self, pages: &FilePages, file: FileRef, mode: OpenMode) {
        let _closing = Closing { core: self, pages, file };
        let at_once = self.capabilities.authority == Authority::Shared || self.takes_whole_files();
        // An unlinked file is written when it is due, if it still has a user then.
        let named =
            !pages.local().pinned_inode.as_ref().is_some_and(|node| node.inode.is_unlinked());
        if at_once && mode.write && named && pages.has_unwritten() {
            // Openers that still have the file, or open it next, report an error.
            if self.write_out(pages).is_ok() {
                drop(self.write_times(pages));
            }
        }
    }

    /// Writes one run of any file. Returns its pages; 0 if nothing is dirty, or other threads write it.
    pub(super) fn write_any(&self) -> Result<u64> {
        let mut failed = None;
        for file in self.pages.some_dirty_files() {
            let wrote = self.write_next_run(&file);
            self.release_if_written(&file);
            match wrote {
                Ok(0) => {}
                Ok(count) => return Ok(count),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(0), Err)
    }

    /// If all pages of a file are written, sends its time and releases its inode, which may be evicted then. Without
    /// that, files whose pages were written early keep their inodes for the rest of the delay. Does nothing while a
    /// thread is alone in the gate. The caller may be inside another file's gate.
    fn release_if_written(&self, file: &FilePages) {
        if file.is_unwritten() {
            return;
        }
        if let Some(_inside) = file.gate.try_enter() {
            // A failed time is sent again later.
            let _ = self.write_change_time(file);
        }
        self.pages.dirty_files.remove_written_back(file);
    }

    /// One step of a write-back thread. Returns the time of the next step, if one is needed.
    pub(super) fn write_back_step(&self) -> Option<Instant> {
        let cache = &self.pages;
        let now = Instant::now();
        let hurry = cache.dirty() > self.dirty_thresholds().0;
        if !hurry {
            cache.workers.end_hurry();
        }
        let mut unfinished = None;
        let delay = self.config.write_back_delay;
        let mut round = cache.dirty_files.begin((now, delay), hurry, cache.space.freed());
        while let Some(file) = cache.dirty_files.next(&mut round) {
            if file.due(now, delay, hurry) > now {
                cache.dirty_files.postpone(&file, now);
                continue;
            }
            if self.discard_if_gone(&file) {
                cache.dirty_files.remove_written_back(&file);
                continue;
            }
            if self.is_being_written(&file) {
                file.postpone_until(now + UNFINISHED, delay);
                unfinished = Some(now + UNFINISHED);
                continue;
            }
            let Some(helping) = Helping::begin(&file) else { continue };
            let wrote = self.write_next_run(&file);
            drop(helping);
            match wrote {
                // Other threads write it, and it stays due.
                Ok(0) if file.is_unwritten() => {}
                Ok(0) => {
                    // A failed time is sent again later.
                    let _ = self.write_times(&file);
                    cache.dirty_files.remove_written_back(&file);
                }
                Ok(_) => {
                    self.release_if_written(&file);
                    return Some(now);
                }
                Err(_) => cache.dirty_files.postpone(&file, now),
            }
        }
        let next = unfinished.into_iter().chain(cache.dirty_files.next_due(&round, delay)).min();
        if next.is_none() {
            // From now on a thread that makes a page dirty must wake a worker.
            cache.workers.end_hurry();
        }
        next
    }

    /// Writes everything back, of all files.
    ///
    /// # Errors
    /// The last one. Every file is tried.
    pub(crate) fn sync_all_pages(&self) -> Result<()> {
        self.discard_all_gone();
        let mut result = Ok(());
        for file in self.pages.all_files() {
            if !file.has_unwritten() {
                continue;
            }
            if let Err(error) = self.write_every_run(&file).and_then(|()| self.write_times(&file)) {
                result = Err(error);
            }
        }
        result
    }
}

impl PageCache {
    /// Some of the files that wait to be written back.
    fn some_dirty_files(&self) -> Vec<Arc<FilePages>> {
        let mut some = self.dirty_files.some();
        // Files that no thread writes now come first: the store may be stuck with the others.
        some.sort_by_key(|file| file.local().helpers);
        some
    }
}

impl FilePages {
    /// Bytes of the file among `length` bytes from page `first` on. Read after those pages (F3 of [`super::file`]).
    pub(super) fn length_from(&self, first: u64, length: usize) -> usize {
        let size = self.size().unwrap_or(u64::MAX);
        size.saturating_sub(first * PAGE).min(length as u64) as usize
    }

    /// Waits for all pages that are being written when the call begins. Returns whether there were any.
    fn wait_for_writing(&self) -> bool {
        let (mut at, mut any) = (0, false);
        while let Some(index) = self.next_tagged(at..u64::MAX, Tag::Writing) {
            at = index + 1;
            any = true;
            if let Some(page) = self.find(index) {
                page.wait_written();
            }
        }
        any
    }

    /// When this file is to be written back.
    pub(super) fn due(&self, now: Instant, delay: Duration, hurry: bool) -> Instant {
        let mut local = self.local();
        if let Some(pause) = local.pause
            && pause.for_space.is_some_and(|then| then != self.cache.space.freed())
        {
            // Space was freed since: all data of the file is tried now.
            local.since = None;
            local.pause = None;
        }
        let ripe = match local.since {
            _ if hurry => now,
            Some(since) => since + delay,
            None => now,
        };
        local.pause.map_or(ripe, |pause| ripe.max(pause.until))
    }
}

/// Closes an open file, also if writing it out panics.
struct Closing<'a> {
    core: &'a Core,
    pages: &'a FilePages,
    file: FileRef,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let Self { core, pages, file } = *self;
        let close = || {
            if pages.opens.release(file.file, pages.is_unwritten()) {
                core.store_files().close(file);
            }
            // A run that ended meanwhile may have written the last unwritten page.
            core.close_released(pages);
            core.drop_what_is_short(pages);
        };
        if std::thread::panicking() {
            // A second panic would end the process: this one is caught.
            let _ = catch_unwind(AssertUnwindSafe(close));
        } else {
            close();
        }
    }
}

/// A thread that writes a file back.
struct Helping<'a>(&'a FilePages);

impl<'a> Helping<'a> {
    /// `None` if enough threads write the file: a store stuck with one file leaves threads for the others.
    fn begin(file: &'a FilePages) -> Option<Self> {
        let mut local = file.local();
        if local.helpers >= HELPERS_MAX {
            return None;
        }
        local.helpers += 1;
        Some(Self(file))
    }
}

impl Drop for Helping<'_> {
    fn drop(&mut self) {
        self.0.local().helpers -= 1;
    }
}

/// The result of one run, or of several.
pub(super) struct Run {
    /// The index behind it.
    pub(super) stop: u64,
    /// How many pages it had.
    pub(super) result: Result<u64>,
}

/// Locks page `index` to write it. Waits for a run that writes it now. `None`: nothing to write any more.
fn lock_to_write(pages: &FilePages, index: u64, tag: Tag) -> Option<Locked<'_>> {
    loop {
        let locked = pages.lock(index)?;
        if locked.page().is_writing() {
            // It may be dirty again after that run, even if it is not now.
            let page = locked.unlock();
            page.wait_written();
        } else if locked.page().is_dirty() {
            return Some(locked);
        } else {
            if tag == Tag::ToWrite {
                pages.tree.clear_tag(index, tag, &epoch::pin());
            }
            return None;
        }
    }
}

/// A file of the store to write by.
pub(super) struct Writer<'a> {
    core: &'a Core,
    pages: &'a FilePages,
    file: Option<Borrowed>,
    opened: Option<FileRef>,
}

impl<'a> Writer<'a> {
    /// A file that is open for writing, or one opened for this run.
    pub(super) fn find(core: &'a Core, pages: &'a FilePages) -> Result<Self> {
        let mut writer = Self { core, pages, file: None, opened: None };
        if core.capabilities.opens == Opens::Tracked {
            writer.file = pages.opens.writer();
            if writer.file.is_none() {
                let mode = OpenMode { read: false, ..OpenMode::READ_WRITE };
                let file = core.store_files().open(&Caller::root(), pages.inode, mode)?;
                writer.opened = Some(FileRef { inode: pages.inode, file });
            }
        }
        Ok(writer)
    }

    /// When the file last changed.
    pub(super) fn change_time(&self) -> Timestamp {
        self.pages.change_time()
    }

    pub(super) fn file(&self) -> FileRef {
        let known = self.file.as_ref().map(|borrowed| borrowed.0).or(self.opened);
        known.unwrap_or(FileRef::unopened(self.pages.inode))
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        if let Some(borrowed) = self.file.take() {
            self.pages.end_use(self.core, borrowed);
        }
        if let Some(file) = self.opened.take() {
            self.core.store_files().close(file);
        }
    }
}

/// Pages on their way to the store. Dropped before its end, it makes them dirty again.
pub(super) struct WritingRun<'a> {
    pages: &'a FilePages,
    range: Range<u64>,
    writing: Vec<PageRef<'a>>,
    /// The bytes of each page that were written here.
    pieces: Vec<Pieces>,
}

impl<'a> WritingRun<'a> {
    /// Copies the locked pages into `buffer`; from then on they are being written.
    pub(super) fn begin(
        pages: &'a FilePages,
        range: Range<u64>,
        mut locks: Vec<Locked<'a>>,
        buffer: &mut [u8],
    ) -> Self {
        for (locked, into) in locks.iter_mut().zip(buffer.chunks_mut(PAGE as usize)) {
            locked.begin_writing();
            locked.read(0, into);
        }
        marked::begin(&mut Begun { pages, range: range.clone() });
        let pieces = pages.take_pieces(range.clone());
        let writing = locks.into_iter().map(Locked::unlock).collect();
        Self { pages, range, writing, pieces }
    }

    /// The parts of the run's first `length` bytes that go to the store.
    pub(super) fn parts(&self, length: usize) -> Vec<Range<usize>> {
        let mut parts: Vec<Range<usize>> = Vec::new();
        for (at, pieces) in self.pieces.iter().enumerate() {
            for (from, to) in pieces.ranges() {
                let start = at * PAGE as usize + from;
                let stop = (at * PAGE as usize + to).min(length);
                match parts.last_mut() {
                    _ if start >= stop => {}
                    Some(last) if last.end == start => last.end = stop,
                    _ => parts.push(start..stop),
                }
            }
        }
        parts
    }

    /// The offset of its first byte in the file.
    pub(super) fn start(&self) -> u64 {
        self.range.start * PAGE
    }

    /// Bytes of its pages.
    pub(super) fn span(&self) -> usize {
        (self.range.end - self.range.start) as usize * PAGE as usize
    }

    /// The store refused the run.
    fn fail(&mut self, error: &Error) {
        marked::fail(&mut Failed { run: self, error });
    }

    /// The store has answered. Returns how many of the pages a write meanwhile has made dirty and counted again.
    fn end(&mut self, outcome: Outcome) -> u64 {
        let writing = std::mem::take(&mut self.writing);
        self.pages.tree.clear_tags(self.range.clone(), Tag::Writing, &epoch::pin());
        writing.iter().filter(|page| page.end_writing(outcome)).count() as u64
    }
}

/// A run that is about to go to the store.
struct Begun<'a> {
    pages: &'a FilePages,
    range: Range<u64>,
}

impl marked::Begin for Begun<'_> {
    fn make_written(&mut self) {
        self.pages.tree.set_tags(self.range.clone(), Tag::Writing, &epoch::pin());
    }

    fn clear_dirty(&mut self) {
        let guard = epoch::pin();
        self.pages.tree.clear_tags(self.range.clone(), Tag::Dirty, &guard);
        self.pages.tree.clear_tags(self.range.clone(), Tag::ToWrite, &guard);
    }
}

/// A run that the store took.
struct Arrived<'a, 'p> {
    run: &'a mut WritingRun<'p>,
    count: u64,
}

impl marked::Arrive for Arrived<'_, '_> {
    fn count(&mut self) {
        // A write that made a page dirty meanwhile has counted it again.
        self.run.pages.count_less(self.count);
    }

    fn end(&mut self) {
        self.run.end(Outcome::Written);
    }
}

/// A run that the store refused.
struct Failed<'a, 'p> {
    run: &'a mut WritingRun<'p>,
    error: &'a Error,
}

impl marked::Fail for Failed<'_, '_> {
    fn make_dirty(&mut self) {
        let (pages, range) = (self.run.pages, self.run.range.clone());
        pages.give_pieces_back(self.run.writing.iter().zip(std::mem::take(&mut self.run.pieces)));
        pages.tree.set_tags(range, Tag::Dirty, &epoch::pin());
    }

    fn note_error(&mut self) {
        let pages = self.run.pages;
        let again = pages.local().tried;
        pages.errors.record(self.error, again);
        pages.failed(self.error);
        pages.cache.counters.write_errors.hit();
    }

    fn end(&mut self) {
        // These pages are dirty once, and were counted twice.
        let twice = self.run.end(Outcome::Again);
        self.run.pages.count_less(twice);
        self.run.pages.answered(Outcome::Again);
    }
}

/// A file, seen by an `fsync`.
struct Synced<'a> {
    core: &'a Core,
    pages: &'a FilePages,
}

impl marked::Marked for Synced<'_> {
    fn errors(&self) -> u64 {
        self.pages.errors.count()
    }

    fn mark_dirty(&self) {
        self.pages.tree.copy_tag(ALL, Tag::Dirty, Tag::ToWrite, &epoch::pin());
    }

    fn next_marked(&self, from: u64) -> Option<u64> {
        self.pages.next_tagged(from..u64::MAX, Tag::ToWrite)
    }

    fn write_run(&self, first: u64) -> (u64, bool) {
        let run = self.core.write_run(self.pages, first, Tag::ToWrite);
        (run.stop, run.result.is_err())
    }

    fn wait_for_runs(&self) -> bool {
        self.pages.wait_for_writing()
    }
}

impl Drop for WritingRun<'_> {
    /// The thread panicked.
    fn drop(&mut self) {
        if !self.writing.is_empty() {
            self.fail(&Error::Corrupt("writing back panicked"));
        }
    }
}
