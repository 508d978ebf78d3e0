//! Write-back to a store that takes whole files ([`Writes::WholeFile`]): it replaces the content at once.
//!
//! # Boundary
//! Decides when a file is replaced, and builds its content. [`super::write_back`] does the rest of write-back.
//!
//! # Concurrency
//! The thread that replaces a file is alone in its gate: no writer and no cut changes the content meanwhile. Pages stay
//! dirty until the store has answered, and are read in place.
//!
//! W5. No part of a file that is open for writing reaches the store but by `fsync`, `syncfs` or `close`.
//!
//! W6. A file of which a write found no room is not put: `fsync`, `close` and the end return ENOSPC. It is put again
//! after that write was repeated, or the file was cut before it. When its last writer closes it, the unwritten data is
//! dropped, and the store's content stays.
//!
//! # Why
//! An object store has no call for a part of an object. Bytes that were not written here are read from the store during
//! the upload: a change of one byte needs no memory for the rest. A file that another program has replaced since the
//! first write to it is not replaced again. The writer gets EBUSY once, the other content stays, and the store keeps
//! ours elsewhere if it can. Weaknesses: the data written at once has to fit into a share of the cache ([`super::growth`]). Writers of the
//! same file wait for the upload. A file that two programs write is replaced at each close.

use super::file::FilePages;
use super::write_back::{Writer, WritingRun};
use super::{Alone, PAGE};
use crate::backend::{FileRef, WholeContent, Writes};
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::vfs::Core;
use uvfs_containers::radix::Tag;

impl Core {
    /// Whether the store takes whole files only.
    pub(crate) fn takes_whole_files(&self) -> bool {
        self.capabilities.writes == Writes::WholeFile
    }

    /// Whether a file is possibly incomplete: it is open for writing, and the store takes whole files only.
    pub(super) fn is_being_written(&self, pages: &FilePages) -> bool {
        self.takes_whole_files() && pages.opens.has_writer()
    }

    /// Replaces the store's file by its content here, if any page is dirty. Returns the number of dirty pages.
    pub(super) fn replace_content(&self, pages: &FilePages, _alone: &Alone<'_>) -> Result<u64> {
        if !pages.is_unwritten() {
            return Ok(0);
        }
        let _putting = self.pages.growth.put(pages);
        let refused = match self.replace_by_pages(pages) {
            Ok(()) => None,
            Err(refused) => {
                let again = pages.local().tried;
                pages.errors.record(&refused.error, again);
                pages.failed(&refused.error);
                self.pages.counters.write_errors.hit();
                if !refused.for_good {
                    self.warn_not_written(pages, &refused.error);
                    return Err(refused.error);
                }
                Some(refused.error)
            }
        };
        // The store has the content, or will never have it: no page stays dirty.
        let count = self.end_dirty(pages)?;
        refused.map_or(Ok(count), Err)
    }

    /// Marks all pages of the file as clean. Returns the number of dirty ones. The caller is alone in the gate.
    fn end_dirty(&self, pages: &FilePages) -> Result<u64> {
        let (mut at, mut count) = (0, 0);
        let mut buffer = pages.cache.buffer((pages.cache.run_pages(self) * PAGE) as usize);
        while let Some(first) = pages.next_tagged(at..u64::MAX, Tag::Dirty) {
            at = first + 1;
            if let Some(locks) = self.lock_run(pages, first, Tag::Dirty) {
                at = first + locks.len() as u64;
                count +=
                    self.end_run(WritingRun::begin(pages, first..at, locks, &mut buffer), Ok(()))?;
            }
        }
        Ok(count)
    }

    fn replace_by_pages(&self, pages: &FilePages) -> std::result::Result<(), Refused> {
        if pages.is_short() {
            return Err(Error::NoSpace.into());
        }
        let writer = Writer::find(self, pages)?;
        let size = match pages.size() {
            Some(size) => size,
            None => self.backend().inodes().attributes(writer.file())?.size,
        };
        let reader = pages.reader(self, writer.file());
        let version = pages.version_written_over();
        let content = Pages { core: self, pages, file: reader.file(), size, version };
        // Another program has replaced it, and a reader has seen that: the clean pages here are of the new version.
        if version != 0 && pages.version() != version {
            return Err(Refused { error: Error::Busy, for_good: true });
        }
        let store = self.backend().data();
        match store.replace(&Caller::root(), writer.file(), &content) {
            Ok(now) => pages.stored(&now),
            Err(error) => {
                let for_good = matches!(error, Error::Busy);
                return Err(Refused { error, for_good });
            }
        }
        Ok(())
    }

    /// The last writer of the file is gone: if a part of the file did not fit, none of it is put (W6).
    pub(super) fn drop_what_is_short(&self, pages: &FilePages) {
        if !self.takes_whole_files() || !pages.is_short() || pages.opens.has_writer() {
            return;
        }
        let alone = pages.gate.enter_alone();
        if pages.is_short() && !pages.opens.has_writer() {
            let place = self.place_of(pages.inode);
            log::warn!(
                "{place}: the file did not fit into the caches, and none of it was written; raise the cache size"
            );
            let _putting = self.pages.growth.put(pages);
            self.give_up(pages);
            self.discard_alone(pages, alone);
        }
    }

    /// The dirty data of the file will not be put. Its name leads to the store's content.
    pub(super) fn give_up(&self, pages: &FilePages) {
        if self.takes_whole_files() && (pages.is_unwritten() || pages.is_short()) {
            self.backend().data().give_up(FileRef::unopened(pages.inode));
        }
    }
}

/// The error of a content that was not taken.
struct Refused {
    error: Error,
    /// It is not retried.
    for_good: bool,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self { error, for_good: false }
    }
}

impl FilePages {
    /// A write at `offset` found no room: the file lacks it (W6).
    pub(super) fn is_short_at(&self, offset: u64) {
        self.local().short = Some(offset);
    }

    /// A write at `offset` has found room. If the file lacked just that write, it is complete again.
    pub(super) fn wrote_at(&self, offset: u64) {
        let mut local = self.local();
        if local.short == Some(offset) {
            local.short = None;
        }
    }

    /// Whether a write found no room, and was neither repeated nor cut off since.
    pub(super) fn is_short(&self) -> bool {
        self.local().short.is_some()
    }
}

/// The content of a file here: its pages, and between them the store's content.
struct Pages<'a> {
    core: &'a Core,
    pages: &'a FilePages,
    file: FileRef,
    size: u64,
    version: u64,
}

impl WholeContent for Pages<'_> {
    fn size(&self) -> u64 {
        self.size
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let length = self.size.saturating_sub(offset).min(into.len() as u64) as usize;
        let into = &mut into[..length];
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let (index, skip) = (at / PAGE, (at % PAGE) as usize);
            let rest = &mut into[done..];
            if let Some(locked) = self.pages.lock(index) {
                let page = locked.page();
                // A clean page that is stale or not filled has no valid content.
                if page.is_uptodate() && (page.is_dirty() || !page.is_outdated()) {
                    let count = rest.len().min(PAGE as usize - skip);
                    locked.read(skip, &mut rest[..count]);
                    done += count;
                    continue;
                }
            }
            let next = self.pages.next(index + 1..u64::MAX).unwrap_or(u64::MAX);
            let count = rest
                .len()
                .min(usize::try_from(next.saturating_mul(PAGE) - at).unwrap_or(usize::MAX));
            self.read_stored(at, &mut rest[..count])?;
            done += count;
        }
        Ok(length)
    }
}

impl Pages<'_> {
    /// The store's content there; zeros behind its end.
    fn read_stored(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let content = self.core.read_fully(self.file, offset, into)?;
        if self.version != 0 && content.version != 0 && content.version != self.version {
            return Err(Error::Busy);
        }
        into[content.count..].fill(0);
        Ok(())
    }
}
