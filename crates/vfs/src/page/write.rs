//! Writes through the page cache.
//!
//! # Boundary
//! Two modes. *Back*: into pages, which are dirty until [`super::write_back`] has brought them to the store. *Through*:
//! to the store at once, then into the cached pages. [`crate::PagePolicy`] chooses one.
//!
//! # Concurrency
//! Where the store can reserve space ([`super::space`]), bytes have their space before their page becomes dirty: the
//! writer is inside the gate between the two, so no cut and no failed write gives the space back. In mode *back*, a
//! writer is inside the gate and holds one page lock at a time. A writer that moves the end of the file, appends
//! included, has the extending turn: so two appends never overlap. In mode *through*, a writer is alone in the gate.
//! Room is reserved, and a writer slowed down, before the gate.
//!
//! # Why
//! A writer pays for the work that it causes. Above the background threshold, threads write back. From half way to the
//! hard threshold on, the writer itself writes pages back, in proportion. It works instead of sleeping: it is slowed to
//! the store's pace and never stops for longer than a run takes. Weakness: an append larger than a run (1 MiB, less in
//! a small cache) is several appends.

use super::file::FilePages;
use super::space::is_full;
use super::{PAGE, Wanted, key};
use crate::attributes::Timestamp;
use crate::backend::{Authority, FileRef, Writes};
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::ops::AttributeChange;
use crate::vfs::{Core, Vfs};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_concurrent::epoch;
use uvfs_containers::frame::Locked;
use uvfs_containers::radix::Tag;

/// Share of the allowed pages at which threads begin to write back, in percent.
const BACKGROUND_PERCENT: u64 = 10;
/// Share at which a writer writes back as much as it writes, in percent.
const HARD_PERCENT: u64 = 20;
/// A file with so many unwritten pages is due at once, if the store chooses blocks at write-back: 16 MiB.
pub(super) const STREAM_PAGES: u64 = 4096;
/// Longest wait for pages that other threads are writing, above the hard threshold.
const WAIT_MAX: Duration = Duration::from_millis(200);
/// How long a write waits for room: longer than any working store needs for a run.
const PATIENCE: Duration = Duration::from_secs(20);
/// Fills of one page that were marked stale, before it is taken as it is.
const REFILLS: usize = 3;

/// Where to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteOffset {
    /// At this offset.
    At(u64),
    /// At the end at the time of the write.
    End,
}

impl Vfs {
    /// Writes through the cache. Returns the number of bytes.
    pub(crate) fn write_cached(
        &self,
        caller: &Caller,
        node: &Node,
        file: FileRef,
        place: WriteOffset,
        data: &[u8],
    ) -> Result<usize> {
        let core = &self.core;
        let pages = core.pages_of(node);
        core.learn_page_cleans(pages);
        // Where other programs append too, only the store knows the end.
        let foreign_end = place == WriteOffset::End
            && core.capabilities.authority == Authority::Shared
            && !core.takes_whole_files();
        if !core.writes_back() || foreign_end {
            return core.write_through(caller, pages, node, (file, place), data);
        }
        let chunk_bytes = (pages.cache.run_pages(core) * PAGE) as usize;
        let (mut done, mut grew) = (0, false);
        let result = loop {
            if done == data.len() {
                break Ok(done);
            }
            let place = match place {
                WriteOffset::At(offset) => WriteOffset::At(offset + done as u64),
                WriteOffset::End => WriteOffset::End,
            };
            let chunk = &data[done..data.len().min(done + chunk_bytes)];
            let offset = match place {
                WriteOffset::At(offset) => offset,
                WriteOffset::End => pages.size().unwrap_or(0),
            };
            let written = core
                .slow_down(pages, chunk.len())
                .and_then(|()| core.write_chunk(pages, node, (file, place), chunk));
            match written {
                Ok((count, came_in)) => {
                    if core.takes_whole_files() {
                        pages.wrote_at(offset);
                    }
                    done += count;
                    grew |= came_in;
                }
                Err(error) => {
                    if core.takes_whole_files() && matches!(error, Error::NoSpace) {
                        pages.is_short_at(offset);
                    }
                    break if done > 0 { Ok(done) } else { Err(error) };
                }
            }
        };
        if grew {
            core.make_room();
            core.pages.workers.gather_later(core);
        }
        result
    }
}

impl Core {
    /// Pages at which threads begin to write back, and at which writers do as much as they can.
    pub(super) fn dirty_thresholds(&self) -> (u64, u64) {
        let allowed = self.pages.frames_allowed(self);
        (allowed * BACKGROUND_PERCENT / 100, (allowed * HARD_PERCENT / 100).max(1))
    }

    /// Makes a writer of `bytes` pay for the pages that are dirty already.
    fn slow_down(&self, pages: &Arc<FilePages>, bytes: usize) -> Result<()> {
        if self.takes_whole_files() {
            return self.wait_for_room_for_whole(pages, bytes);
        }
        let cache = &self.pages;
        let (background, hard) = self.dirty_thresholds();
        let dirty = cache.dirty();
        if dirty > background {
            cache.workers.hurry(self);
        }
        let half = background.midpoint(hard);
        if dirty <= half {
            return Ok(());
        }
        cache.counters.throttled.hit();
        let adds = (bytes as u64).div_ceil(PAGE);
        let owed = adds * 2 * (dirty - half) / (hard - half).max(1);
        let began = Instant::now();
        let mut paid = 0;
        while paid < owed || cache.dirty() > hard {
            // Read before the check: a page that is clean by then is not waited for.
            let seen = cache.progress.seen();
            // Only pages of this file: the store may be stuck with another one.
            match self.write_next_run(pages) {
                Ok(0) if cache.dirty() <= hard || began.elapsed() > WAIT_MAX => break,
                // The threads of the pool write the other dirty pages.
                Ok(0) => {
                    cache.workers.write_back_at(self, Instant::now());
                    if cache.dirty() > hard {
                        cache.progress.wait(seen, WAIT_MAX.saturating_sub(began.elapsed()));
                    }
                }
                Ok(count) => paid += count,
                // Accept no more data while this file's pages cannot be written.
                Err(error) if cache.dirty() > hard => return Err(error),
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Makes the size known.
    fn ensure_size(&self, pages: &FilePages, file: FileRef) -> Result<()> {
        if pages.size().is_some() {
            return Ok(());
        }
        // Alone, so that no thread changes it between the answer and its use.
        let _alone = pages.gate.enter_alone();
        if pages.size().is_none() {
            let given = self.backend().inodes().attributes(file)?;
            drop(pages.learn(&given));
        }
        Ok(())
    }

    /// Writes a part of the data of [`Vfs::write_cached`] into pages. Returns its bytes, and whether it inserted pages.
    fn write_chunk(
        &self,
        pages: &Arc<FilePages>,
        node: &Node,
        (file, place): (FileRef, WriteOffset),
        data: &[u8],
    ) -> Result<(usize, bool)> {
        // No frame is reserved for existing pages: the reservation's counter is shared by all threads.
        let mut here = match place {
            WriteOffset::At(offset) => pages.has_all(offset, data.len()),
            WriteOffset::End => false,
        };
        loop {
            self.ensure_size(pages, file)?;
            let count = (data.len() as u64).div_ceil(PAGE) + 1;
            // An append must be whole.
            let least = if place == WriteOffset::End { count } else { 1 };
            // A page that was seen may be evicted by now. Then the next round reserves a frame.
            let room = match std::mem::take(&mut here) {
                true => Ok(pages.cache.no_room()),
                false => pages.cache.room(self, (least, count), PATIENCE),
            };
            let mut room = match room {
                Ok(room) => room,
                Err(error) => return self.write_around(pages, node, (file, place, data), error),
            };
            let inside = pages.gate.enter();
            let mut writing = Writing::begin(self, pages, node);
            // From here on the size is ours, if it is known.
            let Some(size) = pages.size() else { continue };
            let extends = match place {
                WriteOffset::End => true,
                WriteOffset::At(offset) => offset + data.len() as u64 > size,
            };
            let turn = extends.then(|| inside.extend());
            let size = pages.size().unwrap_or(size);
            let offset = match place {
                WriteOffset::End => size,
                WriteOffset::At(offset) => offset,
            };
            let room_left = (i64::MAX as u64).saturating_sub(offset);
            if room_left == 0 {
                return Err(Error::TooBig);
            }
            let data = &data[..data.len().min(usize::try_from(room_left).unwrap_or(usize::MAX))];
            let (mut done, mut came_in) = (0, false);
            let (mut failed, mut reserved) = (None, offset);
            while done < data.len() {
                let at = offset + done as u64;
                if at >= reserved {
                    match self.reserve(file, at, offset + data.len() as u64) {
                        Ok(to) => reserved = to,
                        Err(error) => {
                            failed = Some(error);
                            break;
                        }
                    }
                }
                let skip = (at % PAGE) as usize;
                let bytes = &data[done..data.len().min(done + PAGE as usize - skip)];
                let mut locked = match pages.lock(at / PAGE) {
                    // The page is of an old version. Its other bytes must not be read together with ours.
                    Some(locked) if is_left_over(&locked) => {
                        pages.take_out(locked);
                        continue;
                    }
                    Some(locked) => locked,
                    None => {
                        let Some(fresh) = room.take() else { break };
                        let Some(locked) = pages.take_in(fresh, at / PAGE) else {
                            // Another thread was quicker, or the page is just being evicted.
                            room.put_back();
                            std::thread::yield_now();
                            continue;
                        };
                        let keyed = (locked.page().id(), key(pages.inode, at / PAGE), Wanted::Now);
                        pages.cache.came_in(pages.class(), std::iter::once(keyed));
                        came_in = true;
                        locked
                    }
                };
                let completed = self.complete(pages, &mut locked, file, (skip, bytes.len()));
                if let Err(error) = completed {
                    if !locked.page().is_uptodate() {
                        pages.take_out(locked);
                    }
                    failed = Some(error);
                    break;
                }
                locked.write(skip, bytes);
                // Only now: before, a reader would see a mixture of old and new bytes.
                locked.set_uptodate();
                done += bytes.len();
                writing.wrote(locked, (skip, skip + bytes.len()), offset + done as u64);
            }
            drop((turn, writing, inside, room));
            if failed.is_some() {
                let rest = offset + done as u64;
                self.unreserve_clean(pages, rest / PAGE, reserved.div_ceil(PAGE));
            }
            return match failed {
                Some(error) if done == 0 => Err(error),
                None if done == 0 => continue,
                _ => Ok((done, came_in)),
            };
        }
    }

    /// There is no room, because of `error`. If the cache is full of other files' data that the store refuses, writes
    /// around it: the failures of other files must not fail this one.
    fn write_around(
        &self,
        pages: &Arc<FilePages>,
        node: &Node,
        (file, place, data): (FileRef, WriteOffset, &[u8]),
        error: Error,
    ) -> Result<(usize, bool)> {
        if let Some(refused) = pages.why_not_written() {
            return Err(refused);
        }
        if !is_full(&error) || self.takes_whole_files() {
            return Err(error);
        }
        // As root, like the write-back threads.
        match self.write_through(&Caller::root(), pages, node, (file, place), data)? {
            0 => Err(Error::NoSpace),
            written => Ok((written, false)),
        }
    }

    /// Reads the bytes of a page that is not up to date and that the caller will not overwrite. The caller writes
    /// `count` bytes at `skip`.
    fn complete(
        &self,
        pages: &FilePages,
        locked: &mut Locked<'_>,
        file: FileRef,
        (skip, count): (usize, usize),
    ) -> Result<()> {
        if locked.page().is_uptodate() {
            return Ok(());
        }
        let start = locked.page().index() * PAGE;
        let size = pages.size().unwrap_or(0);
        // Bytes of the page that the store may have.
        let shown = size.saturating_sub(start).min(PAGE) as usize;
        if shown == 0 || (skip == 0 && count >= shown) {
            locked.zero(0..skip);
            locked.zero(skip + count..PAGE as usize);
            return Ok(());
        }
        let mut buffer = pages.cache.buffer(PAGE as usize);
        for _ in 0..REFILLS {
            let reader = pages.reader(self, file);
            let content = self.read_fully(reader.file(), start, &mut buffer[..shown])?;
            let version = self.version_of(pages, reader.file(), content)?;
            buffer[content.count..].fill(0);
            locked.write(0, &buffer);
            let admitted = pages.admit(version).map(|_version| locked.set_filled());
            match admitted {
                Some(true) => break,
                Some(false) => {}
                None => self.learn_version(pages, None, reader.file())?,
            }
        }
        Ok(())
    }

    /// Fails if the store takes bytes at the end only, and `place` is elsewhere. The caller is alone in the gate.
    fn check_appends(&self, pages: &FilePages, file: FileRef, place: WriteOffset) -> Result<()> {
        let WriteOffset::At(offset) = place else { return Ok(()) };
        if self.capabilities.writes != Writes::Append {
            return Ok(());
        }
        let known = pages.size().filter(|_| self.capabilities.authority == Authority::Sole);
        let end = match known {
            Some(size) => size,
            None => self.backend().inodes().attributes(file)?.size,
        };
        match offset == end {
            true => Ok(()),
            false => Err(Error::Unsupported("writing elsewhere than at the end of a file")),
        }
    }

    /// Writes to the store, then to the cached pages.
    fn write_through(
        &self,
        caller: &Caller,
        pages: &Arc<FilePages>,
        node: &Node,
        (file, place): (FileRef, WriteOffset),
        data: &[u8],
    ) -> Result<usize> {
        let alone = pages.gate.enter_alone();
        self.write_out_alone(pages, &alone)?;
        self.check_appends(pages, file, place)?;
        let _attributes = AttributeChange::begin(self, node);
        // Dropped on failure and on panic: the store's content is then unknown.
        let doubt = Doubt(pages, place, data.len());
        let count = self.with_space(|| match place {
            WriteOffset::At(offset) => self.backend().data().write(caller, file, offset, data),
            WriteOffset::End => self.backend().data().append(caller, file, data),
        })?;
        let count = self.believed("write", file, count, data.len())?;
        let size = pages.size();
        let sole = self.capabilities.authority == Authority::Sole;
        let offset = match place {
            WriteOffset::At(offset) => Some(offset),
            WriteOffset::End => size.filter(|_| sole),
        };
        if let (Some(offset), Some(size)) = (offset, size) {
            std::mem::forget(doubt);
            pages.overwrite(offset, &data[..count]);
            pages.set_size(size.max(offset + count as u64));
        }
        Ok(count)
    }
}

/// A write into pages in progress.
struct Writing<'a> {
    pages: &'a Arc<FilePages>,
    dirtied: u64,
    wrote: bool,
    /// The data is due early, and the file may be queued for later by a former write.
    is_early: bool,
    node: &'a Node,
    core: &'a Core,
}

impl<'a> Writing<'a> {
    fn begin(core: &'a Core, pages: &'a Arc<FilePages>, node: &'a Node) -> Self {
        let is_early = pages.begin_write(node, core.config.write_back_delay);
        Self { pages, dirtied: 0, wrote: false, is_early, node, core }
    }

    /// Bytes `piece` of `locked` were written, up to `end` of the file.
    fn wrote(&mut self, mut locked: Locked<'_>, piece: (usize, usize), end: u64) {
        let index = locked.page().index();
        self.pages.grow_to(end);
        if self.pages.mark_dirty(&mut locked, piece) {
            self.pages.tree.set_tag(index, Tag::Dirty, &epoch::pin());
            self.dirtied += 1;
        }
        self.wrote = true;
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.pages.cache.dirty_more(self.dirtied);
        let time = self.wrote.then(Timestamp::now);
        let is_queued = self.pages.end_write(self.dirtied, time);
        if self.is_early {
            self.pages.cache.dirty_files.hasten(self.pages);
        }
        if is_queued || self.is_early {
            let due = self.pages.ripens(self.core.config.write_back_delay);
            self.pages.cache.workers.write_back_at(self.core, due);
        }
        if self.core.capabilities.writes_back && self.pages.flows(STREAM_PAGES) {
            self.pages.cache.workers.write_back_at(self.core, Instant::now());
        }
        if self.wrote {
            self.node.inode.wrote(&self.core.clock);
        }
    }
}

/// A cut with an unknown result.
struct CutDoubt<'a>(&'a FilePages, u64);

impl Drop for CutDoubt<'_> {
    /// Drops the clean pages behind the new end. Unwritten data stays and determines the size. The store is asked for
    /// the size when it has that data.
    fn drop(&mut self) {
        self.0.drop_clean_from(self.1 / PAGE);
        self.0.doubt_size_when_written_back();
    }
}

/// A write through the cache with an unknown result.
struct Doubt<'a>(&'a FilePages, WriteOffset, usize);

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        let Self(pages, place, length) = *self;
        let (first, last) = match (place, pages.size()) {
            (WriteOffset::At(offset), _) => {
                (offset / PAGE, (offset + length as u64).div_ceil(PAGE))
            }
            (WriteOffset::End, size) => (size.unwrap_or(0) / PAGE, u64::MAX),
        };
        pages.drop_range(first..last);
        pages.doubt_size();
    }
}

impl Core {
    /// Calls `work`, by which the store changes the bytes from `start` to `end` of a file. No data is unwritten then,
    /// and no other thread is inside. Drops the cached pages of the range.
    pub(crate) fn change_by_store<T>(
        &self,
        node: &Node,
        (start, end): (u64, u64),
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let pages = self.pages_of(node);
        let alone = pages.gate.enter_alone();
        self.write_out_alone(pages, &alone)?;
        let _doubt = Doubt(pages, WriteOffset::At(start), end.saturating_sub(start) as usize);
        work()
    }

    /// Calls `work`, which sets a file's times. An unsent time is sent before or after it.
    pub(crate) fn change_times(
        &self,
        pages: &FilePages,
        work: impl FnOnce() -> Result<crate::Attributes>,
    ) -> Result<crate::Attributes> {
        let _alone = pages.gate.enter_alone();
        let given = work()?;
        pages.set_change(given.mtime);
        Ok(given)
    }

    /// Does `work`, which sets a file's size to `size`, once or twice.
    pub(crate) fn change_size(
        &self,
        node: &Node,
        size: u64,
        work: impl Fn() -> Result<crate::Attributes>,
    ) -> Result<crate::Attributes> {
        let pages = self.pages_of(node);
        let _alone = pages.gate.enter_alone();
        // On failure and on panic: the store may have done the cut.
        let doubt = CutDoubt(pages, size);
        let was_empty = pages.size() == Some(0);
        let is_cut = size > 0 && pages.size().is_none_or(|now| size <= now);
        let mut given = work()?;
        if is_cut && self.capabilities.writes == Writes::Anywhere && pages.has_unwritten() {
            // The store may lack the bytes up to `size`, and have grown the file. At a cut to the present size, it frees
            // the space that was set aside behind the end.
            given = work()?;
        }
        std::mem::forget(doubt);
        if size == 0 && !was_empty && self.capabilities.writes_back {
            pages.is_emptied();
        }
        pages.cut(size);
        self.pages.failures.took(node.id(), size..u64::MAX);
        // The store may have seen no cut: bytes behind its own end existed only here.
        self.unreserve_pages(pages, size.div_ceil(PAGE), u64::MAX);
        pages.set_change(given.mtime);
        self.space_came();
        Ok(given)
    }
}

/// Whether a page is of no use any more: it is of an old version, and the bytes written here have arrived.
fn is_left_over(locked: &Locked<'_>) -> bool {
    let page = locked.page();
    page.is_outdated() && !page.is_dirty() && !page.is_writing()
}
