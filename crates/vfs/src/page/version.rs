//! Versions of a file's content, as the store reports them: all pages are of one version.
//!
//! # Boundary
//! Keeps the known version, and invalidates pages when it changes. [`super::read`] and [`super::write`] ask the store.
//! Does nothing where a store reports no versions ([`Attributes::version`] is 0), or where only this mount changes the
//! store.
//!
//! # Concurrency
//! V1. The wanted version changes under the lock of [`super::file::WriteState`], under which a replacement of the pages
//! begins ([`Edition`]). The replacement ends when all clean pages are out or marked as stale.
//! V2. Content is inserted under that lock, if it is of the wanted version ([`FilePages::admit`]). Otherwise the store
//! is asked for its version, and then for the content again.
//! V3. A read copies page after page with no lock, and checks at its end that its edition is still current. If not, it
//! begins again. After some rounds it keeps writers out and asks the store once for the whole range.
//!
//! # Why
//! A store that replaces whole objects answers each request from one of them, and no time of change tells which. A read
//! between two such requests returned the head of one object and the tail of the other. Two loads for each read prevent
//! that, and no page has to store its version. Unwritten data has no version: it lies over any content. Weakness: the
//! rest of a partly written page keeps the version under the write until the store has the page; then the page is
//! dropped.

use super::PAGE;
use super::file::{FilePages, LocalGuard};
use crate::attributes::Attributes;
use crate::backend::{Content, FileRef};
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::vfs::Core;
use uvfs_concurrent::edition::{Edition, Reading};
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};

/// Rounds of a read that meets new content, before it keeps writers out.
pub(super) const ROUNDS_MAX: usize = 3;
/// Times that a file may become shorter during a read that keeps writers out.
const CHANGES_MAX: usize = 16;

/// Versions of a file whose store reports them.
#[derive(Debug, Default)]
pub(super) struct Versions {
    edition: Edition,
    /// The wanted version, never 0 once it is known. Stored under the lock (V1).
    wanted: AtomicU64,
}

/// The state of the pages when a read began.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReadState {
    /// The store has reported no version so far.
    Nothing,
    /// The pages were of this edition.
    Edition(Reading),
}

/// The pages are being replaced by those of another version, until it is dropped.
#[derive(Debug)]
#[must_use = "the old pages go when it is dropped"]
pub(crate) struct Replacing<'a>(&'a FilePages);

impl Drop for Replacing<'_> {
    fn drop(&mut self) {
        self.0.drop_outdated();
        if let Some(versions) = self.0.versions.get() {
            versions.edition.end_replacing();
        }
    }
}

impl FilePages {
    /// The store reports content of `version`. Drops the pages of another version when the result is dropped. Drop it
    /// after the new size is known.
    pub(super) fn comes_to(&self, version: u64) -> Option<Replacing<'_>> {
        if version == 0 || !self.shared {
            return None;
        }
        let (versions, made) = self.versions.get_or_make(Versions::default);
        if made {
            self.cache.parts_grew(size_of::<Versions>());
        }
        let local = self.local();
        if self.version() == version {
            return None;
        }
        self.set_version(&local, version);
        versions.edition.begin_replacing();
        Some(Replacing(self))
    }

    /// Takes over the version and the size that the store reports.
    pub(crate) fn learn(&self, given: &Attributes) -> Option<Replacing<'_>> {
        let replacing = self.comes_to(given.version);
        self.learn_size(given.size);
        replacing
    }

    /// Permits the insertion of content of `version` while the result is held. `None` if it is not permitted (V2).
    pub(super) fn admit(&self, version: u64) -> Option<LocalGuard<'_>> {
        let local = self.local();
        let fits = [0, version].contains(&self.version());
        fits.then_some(local)
    }

    /// Whether the store reports versions of this file. False while that is not known.
    pub(super) fn has_versions(&self) -> bool {
        self.version() != 0
    }

    /// The wanted version; 0 if none was reported.
    pub(super) fn version(&self) -> u64 {
        // ORDERING: Relaxed; stored under the lock, which orders it for threads that must not miss a change (V2).
        self.versions.get().map_or(0, |versions| versions.wanted.load(Relaxed))
    }

    /// All clean pages are of `version`, if versions are reported.
    pub(super) fn set_version(&self, _local: &LocalGuard<'_>, version: u64) {
        if let Some(versions) = self.versions.get().filter(|_| version != 0) {
            // ORDERING: Relaxed; a reader that must not miss it holds the lock (V2).
            versions.wanted.store(version, Relaxed);
        }
    }

    /// Begins a read; `None` while the pages are being replaced (V3).
    #[inline]
    pub(super) fn begin_reading(&self) -> Option<ReadState> {
        match self.versions.get() {
            None => Some(ReadState::Nothing),
            Some(versions) => versions.edition.read().map(ReadState::Edition),
        }
    }

    /// Whether all pages found since then are of one version.
    #[inline]
    pub(super) fn is_of_one_version(&self, seen: ReadState) -> bool {
        match (seen, self.versions.get()) {
            (ReadState::Nothing, None) => true,
            (ReadState::Edition(reading), Some(versions)) => versions.edition.stands(reading),
            _ => false,
        }
    }
}

impl Core {
    /// The version of `content`, which was just read: from the answer itself, or from a new request. 0 if the store
    /// reports none.
    pub(super) fn version_of(
        &self,
        pages: &FilePages,
        file: FileRef,
        content: Content,
    ) -> Result<u64> {
        if content.version != 0 || !pages.has_versions() {
            return Ok(content.version);
        }
        // Content read since the last change is of the current version, or is not inserted (V2).
        Ok(self.backend().inodes().attributes(file)?.version)
    }

    /// Content was read that is of another version than the pages: asks for the current version.
    pub(super) fn learn_version(
        &self,
        pages: &FilePages,
        node: Option<&Node>,
        file: FileRef,
    ) -> Result<()> {
        let now = match node {
            Some(node) => self.refresh(node, file)?,
            None => self.backend().inodes().attributes(file)?,
        };
        // `None`, unless a change of attributes has overtaken the answer, which was not kept then.
        if let Some(replacing) = pages.comes_to(now.version) {
            pages.doubt_size_when_written_back();
            drop(replacing);
        }
        Ok(())
    }

    /// Reads in one request of the store, after a write-back and with all writers kept out. For content that changes
    /// too often to be read page by page.
    pub(super) fn read_at_once(
        &self,
        pages: &FilePages,
        file: FileRef,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize> {
        let alone = pages.gate.enter_alone();
        self.write_out_alone(pages, &alone)?;
        let reader = pages.reader(self, file);
        for _ in 0..CHANGES_MAX {
            let size = self.backend().inodes().attributes(reader.file())?.size;
            let wanted = size.saturating_sub(offset).min(into.len() as u64) as usize;
            let content = self.read_fully(reader.file(), offset, &mut into[..wanted])?;
            // Fewer bytes are the end of the file only if the store reports that size, too.
            if content.count == wanted {
                pages.cache.counters.around.add((wanted as u64).div_ceil(PAGE));
                return Ok(wanted);
            }
        }
        Err(Error::Corrupt("the store has fewer bytes of the file than it says"))
    }
}
