//! Versions of a file's content, as the store tells them: the pages are of one.
//!
//! # Boundary
//! What is known of the version here, and which pages go when it changes. Who asks the store is [`super::read`] and
//! [`super::write`]; where a store says nothing of versions ([`Attributes::version`] is 0), or nobody else changes it, nothing
//! here happens.
//!
//! # Concurrency
//! V1. The version wanted is changed under the lock of [`super::file::Local`], under which a replacement of the pages begins
//!     ([`Edition`]). The replacement ends when all that is clean is out or marked as stale.
//! V2. Content comes in under that lock, if it is of the version wanted ([`FilePages::admit`]). Otherwise the store is asked which version it has, and then for the content again.
//! V3. A read copies page after page with no lock, and asks at its end whether its edition still stands. If not it begins
//!     again; after some rounds it keeps writers out and asks the store once for all that it wants.
//!
//! # Why
//! A store that replaces whole objects answers each request from one of them, and no time of change tells which. A read
//! that met the change between two requests returned the head of one and the tail of the other. Two loads for each read
//! keep them apart, no page has to name its version, and a change costs what dropping the pages costs. What was
//! written here and is not in the store yet is of no version: it lies over whatever there is. Weakness: of a page that was
//! written in part, the rest stays of the version that it was written over until it is in the store; then it goes.

use super::PAGE;
use super::file::{FilePages, LocalGuard};
use crate::attributes::Attributes;
use crate::backend::{Content, FileRef};
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::vfs::Core;
use uvfs_concurrent::edition::{Edition, Reading};
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};

/// Times a read begins again because the content changed, before it keeps others out.
pub(super) const ROUNDS_MAX: usize = 3;
/// Times that a file may become shorter under a read that keeps others out.
const CHANGES_MAX: usize = 16;

/// What is known of versions, of a file whose store tells them.
#[derive(Debug, Default)]
pub(super) struct Versions {
    edition: Edition,
    /// The one that is wanted, never 0 once it is known. Stored under the lock (V1).
    wanted: AtomicU64,
}

/// What a read saw before it began.
#[derive(Debug, Clone, Copy)]
pub(super) enum Seen {
    /// No version was told so far.
    Nothing,
    /// The pages were of an edition.
    Edition(Reading),
}

/// The pages are being replaced by those of another version; done when dropped.
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
    /// The store says that the content is of `version`. What is here of another one goes when the answer is dropped,
    /// which is to be after the size of the new one is known.
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

    /// Takes in what the store says of the content: its version and its size.
    pub(crate) fn learn(&self, given: &Attributes) -> Option<Replacing<'_>> {
        let replacing = self.comes_to(given.version);
        self.learn_size(given.size);
        replacing
    }

    /// Content of `version` may come in while the answer is held; `None` if it may not (V2).
    pub(super) fn admit(&self, version: u64) -> Option<LocalGuard<'_>> {
        let local = self.local();
        let fits = [0, version].contains(&self.version());
        fits.then_some(local)
    }

    /// Whether the store tells versions of this file; false while that is not known.
    pub(super) fn has_versions(&self) -> bool {
        self.version() != 0
    }

    /// The version that is wanted; 0 if none was told.
    pub(super) fn version(&self) -> u64 {
        // ORDERING: Relaxed; stored under the lock, which orders it for whoever must not miss a change (V2).
        self.versions.get().map_or(0, |versions| versions.wanted.load(Relaxed))
    }

    /// What is clean here is of `version`, if versions are told.
    pub(super) fn set_version(&self, _local: &LocalGuard<'_>, version: u64) {
        if let Some(versions) = self.versions.get().filter(|_| version != 0) {
            // ORDERING: Relaxed; as in `version`.
            versions.wanted.store(version, Relaxed);
        }
    }

    /// Begins to read; `None` while the pages are being replaced (V3).
    #[inline]
    pub(super) fn begin_reading(&self) -> Option<Seen> {
        match self.versions.get() {
            None => Some(Seen::Nothing),
            Some(versions) => versions.edition.read().map(Seen::Edition),
        }
    }

    /// Whether all pages that were found since are of one version.
    #[inline]
    pub(super) fn is_of_one_version(&self, seen: Seen) -> bool {
        match (seen, self.versions.get()) {
            (Seen::Nothing, None) => true,
            (Seen::Edition(reading), Some(versions)) => versions.edition.stands(reading),
            _ => false,
        }
    }
}

impl Core {
    /// The version of `content`, which was just read: as the store said with it, or says now, if it tells any.
    pub(super) fn version_of(
        &self,
        pages: &FilePages,
        file: FileRef,
        content: Content,
    ) -> Result<u64> {
        if content.version != 0 || !pages.has_versions() {
            return Ok(content.version);
        }
        // What was read since the last change is of the version that there is now, or did not come in (V2).
        Ok(self.backend().inodes().attributes(file)?.version)
    }

    /// What was read is of another version than what is here: asks which one there is.
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
        // Nothing, unless a change of attributes has overtaken the answer, which was not kept then.
        if let Some(replacing) = pages.comes_to(now.version) {
            pages.doubt_size_when_written_back();
            drop(replacing);
        }
        Ok(())
    }

    /// Reads in one request of the store, with nothing held back and nobody writing: what changes too often to be
    /// read page by page.
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
            // Fewer are the end of the file only if the store says so too.
            if content.count == wanted {
                pages.cache.counters.around.add((wanted as u64).div_ceil(PAGE));
                return Ok(wanted);
            }
        }
        Err(Error::Corrupt("the store has fewer bytes of the file than it says"))
    }
}
