//! Dirty pages that no thread can read any more.
//!
//! # Boundary
//! Handles a file with no name, no open and no other hold: drops its dirty pages, closes it in the store, and so frees
//! its space. A thread that returns a hold on such a file calls [`crate::Vfs::release`]. Write-back threads and writers
//! that were refused space look for such files, too.
//!
//! # Concurrency
//! Dirty data itself holds the inode, so dropping the last other hold does not tear it down. A thread that drops a hold
//! on an inode without a name looks *afterwards*. Of several such threads, the last one sees no other hold. A short
//! hold (a walk over all inodes) may hide the file from it. Then a write-back thread finds the file when it is due. No
//! thread waits here for a run in progress: the file is then due at once.
//!
//! # Why
//! While the store was full, such pages were retried without end, and their open file used the space that they needed.
//! Where other programs change the store, a file may have a name that was never seen here. So the store is asked for
//! the link count before pages are dropped. Weakness: a host program that has such a file open sees only the data that
//! the store has.

use super::Alone;
use super::file::FilePages;
use super::write_back::ALL;
use crate::backend::{Authority, FileRef};
use crate::error::Error;
use crate::inode::Node;
use crate::vfs::{Core, Vfs};
use std::sync::Arc;
use std::time::Instant;

impl Vfs {
    /// Returns `node`. If it was the last hold on a file without a name, drops the data that the store does not have.
    /// The file's space is free on return. May block.
    pub fn release(&self, node: Node) {
        self.core.release(node);
    }
}

impl Core {
    /// Like [`Vfs::release`].
    pub(crate) fn release(&self, node: Node) {
        let pages = self.held_back_of_unlinked(&node);
        drop(node);
        if let Some(pages) = pages {
            self.look_whether_gone(&pages);
        }
    }

    /// The pages of `node`, if it has no name and has unwritten data.
    pub(crate) fn held_back_of_unlinked(&self, node: &Node) -> Option<Arc<FilePages>> {
        let pages = node.inode.is_unlinked().then(|| node.inode.known_pages())??;
        pages.has_unwritten().then(|| pages.clone())
    }

    /// A hold on the file of `pages`, which has no name, was dropped.
    pub(crate) fn look_whether_gone(&self, pages: &FilePages) {
        if pages.is_abandoned() && !self.discard_if_gone(pages) {
            // A thread is writing it back just now, or the store did not answer.
            pages.be_due();
            self.pages.workers.write_back_at(self, Instant::now());
        }
    }

    /// Drops the unwritten data of a file that no thread can read any more, and closes it in the store. False if it is
    /// no such file, or if that is not possible at once.
    pub(super) fn discard_if_gone(&self, pages: &FilePages) -> bool {
        pages.is_abandoned()
            && self.store_has_no_name(pages)
            && self.discard(pages, FilePages::is_abandoned)
    }

    /// Drops the unwritten data of `pages` if no thread is inside the gate and `may` is still true. False if not.
    pub(super) fn discard(&self, pages: &FilePages, may: impl Fn(&FilePages) -> bool) -> bool {
        let Some(alone) = pages.gate.try_enter_alone() else { return false };
        if !may(pages) {
            return false;
        }
        self.discard_alone(pages, alone);
        true
    }

    /// Drops the unwritten data of `pages`. The caller is alone in their gate.
    pub(super) fn discard_alone(&self, pages: &FilePages, alone: Alone<'_>) {
        pages.drop_range(ALL);
        pages.local().short = None;
        self.unreserve_pages(pages, 0, u64::MAX);
        drop(alone);
        let changed = pages.unwritten_change_time();
        let node = pages.change_time_written(changed);
        // Before the hold is dropped: the store may then forget the object.
        self.close_released(pages);
        if self.takes_whole_files() {
            pages.doubt_size();
            node.iter().for_each(|node| node.inode.expire_attributes(&self.clock));
        }
        drop(node);
        self.space_came();
    }

    /// Whether the file has no name in the store either. A name found there is recorded.
    pub(super) fn store_has_no_name(&self, pages: &FilePages) -> bool {
        if self.capabilities.authority == Authority::Sole {
            return true;
        }
        let open = pages.opens.writer();
        let file = open.as_ref().map_or(FileRef::unopened(pages.inode), |open| open.0);
        let answer = self.backend().inodes().attributes(file);
        if let Some(open) = open {
            pages.end_use(self, open);
        }
        match answer {
            Ok(now) if now.links > 0 => {
                let node = pages.local().pinned_inode.clone();
                if let Some(node) = node {
                    node.inode.set_unlinked(false);
                }
                false
            }
            Ok(_) => true,
            Err(error) => matches!(error, Error::Stale | Error::NotFound),
        }
    }

    /// Drops the unwritten data of a file that has no name, whatever still holds it. For the end.
    pub(super) fn discard_if_removed(&self, pages: &FilePages) {
        if pages.is_removed() && self.store_has_no_name(pages) {
            self.discard(pages, FilePages::is_removed);
        }
    }

    /// Drops the unwritten data of all files that no thread can read any more.
    pub(super) fn discard_all_gone(&self) {
        if self.inodes.unlinked_in_use() == 0 {
            return;
        }
        for pages in self.pages.dirty_files.all() {
            self.discard_if_gone(&pages);
        }
    }
}

impl FilePages {
    /// Whether it has unwritten data and no name.
    fn is_removed(&self) -> bool {
        self.local().pinned_inode.as_ref().is_some_and(|node| node.inode.is_unlinked())
    }

    /// Whether it has no name, no open, and no hold but that of its unwritten data.
    pub(super) fn is_abandoned(&self) -> bool {
        let local = self.local();
        let alone = |node: &Node| node.inode.is_unlinked() && node.inode.racy_holds() == 1;
        let alone = local.pinned_inode.as_ref().is_some_and(alone);
        drop(local);
        alone && !self.opens.any_wanted()
    }
}
