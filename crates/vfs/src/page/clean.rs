//! Cleans the pages of one file: knows its directory, and applies the cleans of that directory.
//!
//! # Boundary
//! Removes pages. [`crate::clean`] records which directories were cleaned, and when.
//!
//! # Concurrency
//! P1. A thread that reads or writes through the cache first applies the cleans that it can know of
//! ([`crate::vfs::Core::learn_page_cleans`]): it compares two words, and if they differ removes the clean pages. So a
//! thread that comes after a clean finds no page from before it.
//! P2. The content of a fill in progress is older than the clean: its pages are marked as stale, and the thread that
//! fills them discards them.
//! P3. Pages that are dirty or being written stay: they are not from the store, but on their way to it.
//! P4. A file that moves between directories first applies the cleans of the old one. Earlier cleans of the new
//! directory do not concern it.
//!
//! P5. A file takes the class of its directory ([`crate::policy`]) when it moves there, with cleans, and when a mark
//! changes, and passes it to its pages. The class changes under the lock over `directory`. A class found for a
//! directory that the file has left, or at an earlier generation, does not replace a newer one.
//!
//! # Why
//! With a mark per page, the first read after a clean would be as fast as all others. But every hit would have to check
//! it, and pages lie in trees without directories. Weakness: the first reader of a large file pays for removing its
//! pages, some 200 ns each, if it comes before the reaper.

use super::file::FilePages;
use super::{PAGE, PageCache};
use crate::backend::InodeId;
use crate::clean::Tally;
use crate::error::Result;
use crate::inode::{Inode, NOWHERE, Node, Ticket};
use crate::lock_order;
use crate::vfs::Core;
use std::sync::Arc;
use uvfs_concurrent::generations::UpTo;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use uvfs_containers::class::Class;

/// Pages reclassified at a time.
const BATCH: usize = 32;

/// A file's directory, and the cleans that the file has applied.
#[derive(Debug)]
pub(super) struct ParentHint {
    /// The generation of cleans up to which they were applied.
    cleans: UpTo,
    /// Cleans up to this moment of the clock do not concern the file any more.
    emptied: AtomicU64,
    /// The id of the directory, as the inode has it. Stored under the lock below.
    id: AtomicU64,
    /// That directory, unless it was not cached when the file was put there.
    directory: Mutex<Option<Node>>,
    /// The class of its pages, and the generation for which that was found. Stored under `directory`.
    class: AtomicU8,
    classed: AtomicU64,
}

impl ParentHint {
    /// For a file that has no pages yet, in any directory.
    pub(super) fn new(now: Ticket) -> Self {
        Self {
            cleans: UpTo::default(),
            emptied: AtomicU64::new(now.to_word()),
            id: AtomicU64::new(0),
            directory: Mutex::new(&lock_order::PAGES_HOME, None),
            class: AtomicU8::new(0),
            classed: AtomicU64::new(0),
        }
    }
}

impl FilePages {
    /// The file's directory, if it is known.
    pub(crate) fn directory(&self) -> Option<Node> {
        self.hint.directory.lock().clone()
    }

    /// The class of new pages.
    pub(super) fn class(&self) -> Class {
        // ORDERING: Relaxed; a hint, nothing is reached through it.
        Class::from_byte(self.hint.class.load(Relaxed))
    }

    /// `directory`, if the file still lies there, has this class as of `generation` (P5).
    fn learn_class(&self, directory: InodeId, class: Class, generation: u64) {
        let changed = {
            let _home = self.hint.directory.lock();
            // ORDERING: Relaxed, all of these; stored under this lock only.
            let newer = self.hint.classed.load(Relaxed) <= generation;
            if !newer || self.parent_hint() != Some(directory) {
                return;
            }
            // ORDERING: Relaxed, both; stored under this lock only.
            self.hint.classed.store(generation, Relaxed);
            let before = Class::from_byte(self.hint.class.swap(class as u8, Relaxed));
            self.cache.reclassed(before, class);
            before != class
        };
        if changed {
            self.reclassify_pages();
        }
    }

    /// Gives the file's class to its existing pages.
    fn reclassify_pages(&self) {
        let mut at = 0;
        loop {
            let mut batch = Vec::with_capacity(BATCH);
            while batch.len() < BATCH
                && let Some(index) = self.next(at..u64::MAX)
            {
                at = index + 1;
                batch.extend(self.find(index));
            }
            if batch.is_empty() {
                return;
            }
            // These pages are held, so their frames still belong to them.
            self.cache.set_class(batch.iter().map(|page| page.id()), || self.class());
        }
    }

    /// The id of the file's directory.
    #[inline]
    pub(crate) fn parent_hint(&self) -> Option<InodeId> {
        // ORDERING: Relaxed; only compared.
        Some(InodeId(self.hint.id.load(Relaxed))).filter(|&id| id != InodeId(0))
    }

    /// Whether a clean at `tick` concerns the file: it was there then, and has not been cleaned since.
    pub(crate) fn is_concerned(&self, tick: u64) -> bool {
        // ORDERING: Acquire, partner `learn_pages`.
        self.hint.emptied.load(Acquire) <= tick
    }

    /// Takes the hold on that directory out: the inode is torn down.
    pub(crate) fn take_home(&self) -> Option<Node> {
        self.hint.directory.lock().take()
    }

    /// Removes pages that are clean and not in use, and makes fills in progress discard theirs. Never waits.
    pub(crate) fn drop_clean(&self) -> Tally {
        let (mut tally, mut at) = (Tally::default(), 0);
        while let Some(index) = self.next(at..u64::MAX) {
            at = index + 1;
            let Some(page) = self.find(index) else { continue };
            tally.found.add(1, PAGE);
            if page.is_dirty() || page.is_writing() {
                tally.dirty.add(1, PAGE);
                continue;
            }
            match page.try_lock() {
                Ok(locked) if !locked.page().is_attached() => {
                    // Another thread has removed it.
                    tally.freed.add(1, PAGE);
                }
                Ok(locked) if locked.page().is_dirty() || locked.page().is_writing() => {
                    tally.dirty.add(1, PAGE);
                }
                Ok(locked) => {
                    self.take_out(locked);
                    tally.freed.add(1, PAGE);
                }
                Err(page) => {
                    page.mark_stale();
                    tally.busy.add(1, PAGE);
                }
            }
        }
        tally
    }

    /// Cached pages, and the number of them that the store does not have yet.
    pub(crate) fn resident(&self) -> (u64, u64) {
        let (mut pages, mut at) = (0, 0);
        while let Some(index) = self.next(at..u64::MAX) {
            pages += 1;
            at = index + 1;
        }
        (pages, self.local().unwritten.max(0) as u64)
    }
}

impl Core {
    /// Whether all cleans of the file's directory are applied.
    #[inline]
    pub(crate) fn knows_page_cleans(&self, pages: &FilePages) -> bool {
        pages.hint.cleans.knows(self.cleans.now())
    }

    /// Applies the cleans of the file's directory (P1).
    #[inline]
    pub(crate) fn learn_page_cleans(&self, pages: &FilePages) {
        let now = self.cleans.now();
        // Pages of that clean are out by then (G4 of `generations`).
        if !pages.hint.cleans.knows(now) {
            self.learn_pages(pages, now);
        }
    }

    #[cold]
    fn learn_pages(&self, pages: &FilePages, now: u64) -> Tally {
        pages.hint.cleans.learn(now, || self.drop_cleaned(pages))
    }

    fn drop_cleaned(&self, pages: &FilePages) -> Tally {
        let mut tally = Tally::default();
        let known = pages.directory().or_else(|| self.inodes.peek(pages.parent_hint()?));
        let known = known.filter(|directory| self.learn_cleans(&directory.inode));
        if let Some(directory) = known {
            self.learn_page_class(pages, &directory);
            let tick = directory.inode.cleaned().pages;
            // ORDERING: Acquire, partner the store below: a late caller finds nothing to remove.
            if tick > pages.hint.emptied.load(Acquire) {
                tally = pages.drop_clean();
                // ORDERING: Release, partner the load above.
                pages.hint.emptied.fetch_max(tick, Release);
            }
        } else if pages.parent_hint() != Some(NOWHERE) {
            // It is not known whether that directory was cleaned.
            tally = pages.drop_clean();
        }
        tally
    }

    /// Applies the cleans of the file's directory. Returns the pages removed.
    pub(crate) fn reap_pages(&self, pages: &FilePages) -> Tally {
        self.learn_pages(pages, self.cleans.now())
    }

    /// Writes the dirty pages of a file, and sends the store its unsent time.
    pub(crate) fn bring_to_store(&self, pages: &FilePages) -> Result<()> {
        self.write_out_all(pages).and_then(|()| self.write_times(pages))
    }

    /// Moves the pages to the directory of `inode`, their inode (P4).
    #[cold]
    pub(crate) fn move_pages_to_hint(&self, inode: &Inode, pages: &FilePages) {
        // The inode may be moved again meanwhile.
        while pages.parent_hint() != inode.parent_hint() {
            let id = inode.parent_hint();
            let directory = id.and_then(|id| self.inodes.peek(id));
            let moment = self.moment_between_cleans(|| self.learn_page_cleans(pages));
            let old = {
                let mut home = pages.hint.directory.lock();
                // ORDERING: Release, partner `is_concerned` and `learn_pages`.
                pages.hint.emptied.fetch_max(moment.to_word(), Release);
                // ORDERING: Relaxed; only compared.
                pages.hint.id.store(id.map_or(0, |id| id.0), Relaxed);
                std::mem::replace(&mut *home, directory)
            };
            // Dropped with no lock held: it may be the last hold.
            drop(old);
        }
        self.learn_page_policy(pages);
    }

    /// The file takes the class of its directory (P5).
    pub(crate) fn learn_page_policy(&self, pages: &FilePages) {
        let directory = pages.directory().or_else(|| self.inodes.peek(pages.parent_hint()?));
        if let Some(directory) = directory {
            self.learn_page_class(pages, &directory);
        }
    }

    fn learn_page_class(&self, pages: &FilePages, directory: &Node) {
        let now = self.marks.changes();
        if let Some(class) = self.learn_policy(&directory.inode) {
            pages.learn_class(directory.id(), class, now);
        }
    }
}

impl PageCache {
    /// Every file that has pages or had them.
    pub(crate) fn files(&self) -> Vec<Arc<FilePages>> {
        self.all_files()
    }
}
