//! Bringing dirty pages to the store.
//!
//! # Boundary
//! Which pages, in what order, when, and what becomes of errors. Who makes pages dirty is
//! [`super::write`]; which file is due is found by [`super::dirty`], at the cost of those that are.
//!
//! # Concurrency
//! A run is neighbouring dirty pages, in the order of the file. Its first page is waited for, the
//! others only tried, so that two runs never wait for each other. With all of them locked, their tags
//! change from dirty to writing, their bytes are copied out, and they are unlocked before the store is
//! asked: they can be read and written meanwhile, and are then dirty again, but nobody writes them back
//! until this run is done (`WRITING`). Who writes back is inside the gate, so no cut and no punch is
//! overtaken by a run that began before it.
//!
//! W1. A page that is dirty and not locked has the tag [`Tag::Dirty`].
//! W2. A page is `WRITING` from the copy of its bytes until the store has answered about them.
//!
//! W3 and W4, of runs that fail and the `fsync`s beside them, are [`uvfs_concurrent::write_back::marked`]'s, whose models run
//! the same code.
//!
//! # Why
//! In index order and large runs, because every store is slow per request. Where others change the store, a run has gaps:
//! only the bytes that were written here go there ([`super::pieces`]). `fsync` marks what is dirty
//! when it begins ([`Tag::ToWrite`]) and is done when that is written, whatever is written meanwhile (as
//! Linux `tag_pages_for_writeback`). Errors are told once per open file and the pages stay: a store that
//! was full a moment ago may not be now. What nobody can read any more is not tried again ([`super::gone`]).
//! Weakness: a store that never recovers keeps the dirty pages in memory until the end ([`super::ending`]).

use super::file::FilePages;
use super::pieces::Pieces;
use super::{Alone, Borrowed, ErrorCursor, PAGE, PageCache};
use crate::attributes::{SetAttributes, SetTime};
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
use uvfs_concurrent::frame::{Locked, Outcome, PageRef};
use uvfs_concurrent::radix::Tag;
use uvfs_concurrent::write_back::marked;

/// How soon to look again at a file that is not whole yet, which the store takes as a whole only.
const UNFINISHED: Duration = Duration::from_secs(1);
/// All pages of a file.
pub(super) const ALL: Range<u64> = 0..u64::MAX;
/// Threads that write one file back, at most.
const HELPERS_MAX: u32 = 2;
/// Runs that may fail before an `fsync` gives up: a store that is dead is not asked for every run.
const FAILURES_MAX: usize = 3;

impl Core {
    /// Writes what is dirty in a file when the call begins, and waits for what others are writing of it.
    ///
    /// # Errors
    /// If any of it did not arrive, whoever wrote it: the last error. What did not arrive stays dirty.
    pub(super) fn write_out(&self, pages: &FilePages) -> Result<()> {
        if self.takes_whole_files() {
            return self.replace_content(pages, &pages.gate.enter_alone()).map(drop);
        }
        let _inside = pages.gate.enter();
        self.write_marked(pages, FAILURES_MAX)
    }

    /// As [`Core::write_out`], for the last tries: every run is tried, and what failed once more.
    pub(super) fn write_every_run(&self, pages: &FilePages) -> Result<()> {
        if self.takes_whole_files() {
            return self.write_out(pages).or_else(|_| self.write_out(pages));
        }
        let _inside = pages.gate.enter();
        self.write_marked(pages, usize::MAX).or_else(|_| self.write_marked(pages, usize::MAX))
    }

    /// As [`Core::write_out`] for the whole file, by who is alone; then nothing is held back.
    pub(super) fn write_out_alone(&self, pages: &FilePages, alone: &Alone<'_>) -> Result<()> {
        if !pages.holds_back() {
            return Ok(());
        }
        match self.takes_whole_files() {
            true => _ = self.replace_content(pages, alone)?,
            false => self.write_marked(pages, FAILURES_MAX)?,
        }
        self.write_change_time(pages)?;
        if pages.holds_back() { Err(pages.errors.last().unwrap_or(Error::Busy)) } else { Ok(()) }
    }

    /// The caller is inside the gate, or alone. Gives up after so many runs that failed.
    fn write_marked(&self, pages: &FilePages, failures_max: usize) -> Result<()> {
        match marked::write_marked(&Synced { core: self, pages }, failures_max) {
            true => Ok(()),
            false => Err(pages.errors.last().unwrap_or(Error::Busy)),
        }
    }

    /// Writes one run of a file, where the last one ended; how many pages. 0: nothing is dirty, or the
    /// file is busy.
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

    /// Writes the dirty pages from `first` on: those that are neighbours, or as many runs as the store can use at
    /// once. The caller is inside the gate.
    fn write_run(&self, pages: &FilePages, first: u64, tag: Tag) -> Run {
        match self.queue_depth() {
            1 => self.write_one_run(pages, first, tag),
            _ => self.write_at_once(pages, first, tag),
        }
    }

    /// Locks the dirty pages from `first` on that are neighbours. `None`: nothing to write there any more.
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

    /// Writes the dirty pages from `first` on that are neighbours. The caller is inside the gate.
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

    /// The store has answered about `run`: how many pages it has now.
    pub(super) fn end_run(&self, mut run: WritingRun<'_>, result: Result<()>) -> Result<u64> {
        match result {
            Ok(()) => {
                let count = run.end(Outcome::Written);
                self.pages.counters.runs_written.hit();
                self.pages.counters.pages_written.add(count);
                Ok(count)
            }
            Err(error) => {
                run.fail(&error);
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
        self.write_parts(&writer, start, data, &mut parts)?;
        self.note_stored(pages, writer.file());
        Ok(())
    }

    /// As [`Core::write_fully`], by `writer`.
    pub(super) fn write_parts(
        &self,
        writer: &Writer<'_>,
        start: u64,
        data: &[u8],
        parts: &mut [Range<usize>],
    ) -> Result<()> {
        // With what is left of them, if there is no space at first.
        self.with_space(|| {
            for part in parts.iter_mut() {
                while part.start < part.end {
                    let (at, rest) = (start + part.start as u64, &data[part.clone()]);
                    match self.backend().data().write(&Caller::root(), writer.file(), at, rest)? {
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

    /// What was written to `file` has made it what it is now.
    pub(super) fn note_stored(&self, pages: &FilePages, file: FileRef) {
        if self.shares_files()
            && let Ok(now) = self.backend().inodes().attributes(file)
        {
            pages.stored(&now);
        }
    }

    /// Whether others may change files without telling.
    fn shares_files(&self) -> bool {
        self.capabilities.authority == Authority::Shared && !self.config.watch
    }

    /// Before a change of the store's file: if others have changed it, which our change would hide, what
    /// is cached of it goes.
    pub(super) fn look_for_others(&self, pages: &FilePages, file: FileRef) {
        if self.shares_files()
            && let Ok(now) = self.backend().inodes().attributes(file)
            && pages.changed_by_others(&now)
        {
            // Another version, or another time or size.
            drop(pages.comes_to(now.version));
            pages.attributes_changed();
        }
    }

    /// If nothing of a file waits to be written, tells the store when it changed, and closes what was
    /// kept open for writing.
    ///
    /// # Errors
    /// Why the store was not told: it failed, and is told later.
    pub(super) fn write_times(&self, pages: &FilePages) -> Result<()> {
        let _inside = pages.gate.enter();
        self.write_change_time(pages)
    }

    /// As [`Core::write_times`], by who is inside the gate or alone: somebody who sets times is alone, so the
    /// time told is the last one.
    fn write_change_time(&self, pages: &FilePages) -> Result<()> {
        let mut result = Ok(());
        let told = match pages.unwritten_change_time() {
            Some(time) => {
                let Some(node) = pages.local().keeps.clone() else { return Ok(()) };
                if self.takes_whole_files() && !pages.is_change_stated() {
                    // It has a time since it took the content.
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
                        result = Err(error);
                        None
                    }
                    // It has no such time, or no such file any more: it keeps its own.
                    Err(_) => pages.change_time_written(Some(time)),
                }
            }
            None => pages.change_time_written(None),
        };
        drop(told);
        self.close_released(pages);
        result
    }

    /// Closes what everybody has left and nothing waits for.
    pub(super) fn close_released(&self, pages: &FilePages) {
        for file in pages.opens.closable(pages.is_unwritten()) {
            self.store_files().close(file);
        }
    }

    /// fsync(2) of one open file, or of the file if nobody tracks opens.
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
            (told, SyncMode::All) => told,
        });
        let synced = match &written {
            Ok(()) => self.backend().data().sync(file, mode),
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

    /// close(2) of one descriptor: tells what went wrong.
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
        if pages.holds_back() && !self.is_being_written(pages) {
            return self.write_out(pages);
        }
        Ok(())
    }

    /// Whoever opened `file` is done with it: closes it, now or when everything is written.
    pub(crate) fn close_pages(&self, pages: &FilePages, file: FileRef, mode: OpenMode) {
        let _closing = Closing { core: self, pages, file };
        let at_once = self.capabilities.authority == Authority::Shared || self.takes_whole_files();
        // One without a name is written when it is due, if somebody still has it then.
        let named = !pages.local().keeps.as_ref().is_some_and(|node| node.inode.is_unlinked());
        if at_once && mode.write && named && pages.holds_back() {
            // What goes wrong is told to who has the file open still, or opens it next.
            if self.write_out(pages).is_ok() {
                drop(self.write_times(pages));
            }
        }
    }

    /// Writes one run of any file; how many pages. 0: nothing is dirty, or it is being written.
    pub(super) fn write_any(&self) -> Result<u64> {
        let mut failed = None;
        for file in self.pages.some_dirty_files() {
            match self.write_next_run(&file) {
                Ok(0) => {}
                Ok(count) => return Ok(count),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(0), Err)
    }

    /// One step of a thread that writes back; when there is something for the next, if at all.
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
                // Others write it, and it stays due.
                Ok(0) if file.is_unwritten() => {}
                Ok(0) => {
                    // What failed is tried again.
                    let _ = self.write_times(&file);
                    cache.dirty_files.remove_written_back(&file);
                }
                Ok(_) => return Some(now),
                Err(error) => {
                    self.warn_not_written(&file, &error);
                    cache.dirty_files.postpone(&file, now);
                }
            }
        }
        let next = unfinished.into_iter().chain(cache.dirty_files.next_due(&round, delay)).min();
        if next.is_none() {
            // Whoever makes something dirty from now on has to say so.
            cache.workers.end_hurry();
        }
        next
    }

    /// Writes everything back, of all files.
    ///
    /// # Errors
    /// The last one; every file is tried.
    pub(crate) fn sync_all_pages(&self) -> Result<()> {
        self.discard_all_gone();
        let mut result = Ok(());
        for file in self.pages.all_files() {
            if !file.holds_back() {
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
        // Those first that nobody writes now: their store may be stuck.
        some.sort_by_key(|file| file.local().helpers);
        some
    }
}

impl FilePages {
    /// Bytes of the file among the `length` ones from page `first` on. Read after those pages (F3 of [`super::file`]).
    pub(super) fn length_from(&self, first: u64, length: usize) -> usize {
        let size = self.size().unwrap_or(u64::MAX);
        size.saturating_sub(first * PAGE).min(length as u64) as usize
    }

    /// Waits for all pages that are being written when the call begins. Whether there were any.
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
            // Some has come: all of it is tried now.
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

/// An open file that is being left, also if writing it out panics.
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
            // It may have been the last thing that was written while we looked.
            core.close_released(pages);
            core.drop_what_is_short(pages);
        };
        if std::thread::panicking() {
            // One panic of the store is enough: a second one would end the process.
            let _ = catch_unwind(AssertUnwindSafe(close));
        } else {
            close();
        }
    }
}

/// A thread that writes a file back.
struct Helping<'a>(&'a FilePages);

impl<'a> Helping<'a> {
    /// `None` if enough do already: a store that is stuck with one file has some left for the others.
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

/// What became of a run, or of several.
pub(super) struct Run {
    /// The index behind it.
    pub(super) stop: u64,
    /// How many pages it had.
    pub(super) result: Result<u64>,
}

/// Locks page `index` to write it; waits for who writes it now. `None`: nothing to write any more.
fn lock_to_write(pages: &FilePages, index: u64, tag: Tag) -> Option<Locked<'_>> {
    loop {
        let locked = pages.lock(index)?;
        if locked.page().is_writing() {
            // It may be dirty again after that, even if it is not now.
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
    /// One that is open for writing, or one opened for this.
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

/// Pages on their way to the store. Dirty again if that is not finished.
pub(super) struct WritingRun<'a> {
    pages: &'a FilePages,
    range: Range<u64>,
    writing: Vec<PageRef<'a>>,
    /// What of each page was written here.
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

    /// The parts of the run's bytes that go to the store, of the first `length` ones.
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

    /// Where its bytes begin in the file.
    pub(super) fn start(&self) -> u64 {
        self.range.start * PAGE
    }

    /// Bytes of its pages.
    pub(super) fn span(&self) -> usize {
        (self.range.end - self.range.start) as usize * PAGE as usize
    }

    /// The store did not take it.
    fn fail(&mut self, error: &Error) {
        marked::fail(&mut Failed { run: self, error });
    }

    /// The store has answered; how many pages that were. Once.
    fn end(&mut self, outcome: Outcome) -> u64 {
        let writing = std::mem::take(&mut self.writing);
        let count = writing.len() as u64;
        if count == 0 {
            return 0;
        }
        let guard = epoch::pin();
        self.pages.tree.clear_tags(self.range.clone(), Tag::Writing, &guard);
        drop(guard);
        // One that was written to meanwhile is dirty on its own account: it counts once.
        let less = writing.iter().filter(|page| page.end_writing(outcome)).count() as u64;
        self.pages.answered(less, outcome);
        count
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

/// A run that the store did not take.
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
        self.run.end(Outcome::Again);
    }
}

/// A file, as an `fsync` sees it.
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
