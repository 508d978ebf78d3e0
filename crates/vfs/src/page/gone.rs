//! Dirty pages that nobody can read any more.
//!
//! # Boundary
//! A file without a name that nobody has open and nobody else holds: its dirty pages go, the store closes it, and its
//! space is free. Who gives up a hold on such a file says so ([`crate::Vfs::let_go`]); threads that write back, and
//! whoever is refused for want of space, look too.
//!
//! # Concurrency
//! What is dirty holds its inode, so the last hold but that one ends nothing by itself: a thread that gives up a hold
//! on an inode without a name looks *afterwards*. Of several at once, the one whose step came last sees no other
//! hold. A hold of a moment (a walk over all inodes) may hide the file from it; the threads that write back then find
//! it when it is due. Nobody waits here for a run that is under way: the file is then due at once.
//!
//! # Why
//! Such pages were tried for ever while the store was full, and their open file held the very space that they
//! lacked. Where others change the store, a name may exist that was never seen here: the store is asked for its count
//! of names before anything is dropped. Weakness: a program on the host that has such a file open sees what had been
//! brought to the store by then, and no more.

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
    /// Gives `node` back. If it was the last hold on a file without a name, what was written to the file and is not in
    /// the store is dropped, and its space is free on return. May block.
    pub fn let_go(&self, node: Node) {
        self.core.let_go(node);
    }
}

impl Core {
    /// As [`Vfs::let_go`].
    pub(crate) fn let_go(&self, node: Node) {
        let pages = self.held_back_of_unlinked(&node);
        drop(node);
        if let Some(pages) = pages {
            self.look_whether_gone(&pages);
        }
    }

    /// The pages of `node`, if it has no name and something of it is held back.
    pub(crate) fn held_back_of_unlinked(&self, node: &Node) -> Option<Arc<FilePages>> {
        let pages = node.inode.is_unlinked().then(|| node.inode.known_pages())??;
        pages.holds_back().then(|| pages.clone())
    }

    /// A hold on the file of `pages`, which has no name, is gone.
    pub(crate) fn look_whether_gone(&self, pages: &FilePages) {
        if pages.is_abandoned() && !self.discard_if_gone(pages) {
            // Somebody is writing it back just now, or the store did not say.
            pages.be_due();
            self.pages.workers.write_back_at(self, Instant::now());
        }
    }

    /// Drops what is held back of a file that nobody can read any more, and lets the store close it. False if it is no
    /// such file, or that cannot be done at once.
    pub(super) fn discard_if_gone(&self, pages: &FilePages) -> bool {
        pages.is_abandoned()
            && self.store_has_no_name(pages)
            && self.discard(pages, FilePages::is_abandoned)
    }

    /// Drops what is held back of `pages` if it still `may` be, when nobody is inside. False if not.
    pub(super) fn discard(&self, pages: &FilePages, may: impl Fn(&FilePages) -> bool) -> bool {
        let Some(alone) = pages.gate.try_enter_alone() else { return false };
        if !may(pages) {
            return false;
        }
        self.discard_alone(pages, alone);
        true
    }

    /// Drops what is held back of `pages`, by a thread that is alone in their gate.
    pub(super) fn discard_alone(&self, pages: &FilePages, alone: Alone<'_>) {
        pages.drop_range(ALL);
        pages.local().short = None;
        self.unreserve_pages(pages, 0, u64::MAX);
        drop(alone);
        let changed = pages.unwritten_change_time();
        let node = pages.change_time_written(changed);
        // Before the hold goes: with it the store may forget the object.
        self.close_released(pages);
        if self.takes_whole_files() {
            pages.doubt_size();
            node.iter().for_each(|node| node.inode.expire_attributes(&self.clock));
        }
        drop(node);
        self.space_came();
    }

    /// Whether the store has no name for it either; one that nobody knew of is known from now on.
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
                let node = pages.local().keeps.clone();
                if let Some(node) = node {
                    node.inode.set_unlinked(false);
                }
                false
            }
            Ok(_) => true,
            Err(error) => matches!(error, Error::Stale | Error::NotFound),
        }
    }

    /// Drops what is held back of a file that has no name, whoever still holds it: for the end.
    pub(super) fn discard_if_removed(&self, pages: &FilePages) {
        if pages.is_removed() && self.store_has_no_name(pages) {
            self.discard(pages, FilePages::is_removed);
        }
    }

    /// Drops what is held back of all files that nobody can read any more.
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
    /// Whether something is held back of it, and no name leads to it.
    fn is_removed(&self) -> bool {
        self.local().keeps.as_ref().is_some_and(|node| node.inode.is_unlinked())
    }

    /// Whether no name leads to it, nobody has it open, and nothing but what is held back holds it.
    pub(super) fn is_abandoned(&self) -> bool {
        let local = self.local();
        let alone = |node: &Node| node.inode.is_unlinked() && node.inode.racy_holds() == 1;
        let alone = local.keeps.as_ref().is_some_and(alone);
        drop(local);
        alone && !self.opens.any_wanted()
    }
}
