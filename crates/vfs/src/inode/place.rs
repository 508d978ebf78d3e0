//! An object's place: the parent of a directory, and a hint for anything else.
//!
//! # Boundary
//! Owns both facts and the order in which answers may replace them. The core applies a move to pages and policies.
//!
//! # Concurrency
//! A directory's parent is a hold, under a lock of its own. An answer replaces it only if its question was later than
//! that of the known parent. For other objects, the hint is one word with a flag ([`Whereabouts`]): a thread that
//! changes it and a thread that moves pages by it agree without a lock.
//!
//! # Why
//! A directory has one name, so its parent is exact. A file may have many: the directory where it was last found is
//! enough to decide which cleans and policies concern it. Weakness: a file with names in two directories is asked for
//! again when it was found in the other one.

use super::rest::Parent;
use super::{Inode, NOWHERE, Node, Ticket, flag};
use crate::backend::InodeId;
use uvfs_concurrent::primitive::atomic::Ordering::Relaxed;
use uvfs_concurrent::whereabouts::Whereabouts;
use uvfs_containers::object::Hold;

impl Inode {
    /// The parent directory, if this is a directory below the root.
    pub(crate) fn parent(&self) -> Option<Node> {
        let parent = self.known_directory()?.parent.lock();
        parent.as_ref().map(|parent| Node { inode: parent.inode.clone() })
    }

    /// The parent directory, and the moment at which this directory moved there.
    pub(crate) fn parent_since(&self) -> Option<(Node, Ticket)> {
        let parent = self.known_directory()?.parent.lock();
        parent.as_ref().map(|parent| (Node { inode: parent.inode.clone() }, parent.joined))
    }

    /// Records the parent of a directory from a question at `ticket`. A later answer stays; returns false if that is
    /// another parent.
    pub(crate) fn set_parent(&self, parent: &Node, ticket: Ticket) -> bool {
        if self.id == InodeId::ROOT {
            return true;
        }
        let (slot, mut joined, mut left) = (&self.dir_state().parent, Ticket::default(), None);
        let old = loop {
            let mut slot = slot.lock();
            match &mut *slot {
                Some(known) if ticket < known.learned => return known.inode.same(&parent.inode),
                Some(known) if known.inode.same(&parent.inode) => {
                    known.learned = ticket;
                    return true;
                }
                // It leaves a place: first it applies the cleans there.
                Some(known) if left != Some(known.inode.id) => {
                    left = Some(known.inode.id);
                    drop(slot);
                    let Some(core) = self.core.upgrade() else { return false };
                    joined = core.moment_between_cleans(|| _ = core.learn_cleans(self));
                }
                _ => {
                    break slot.replace(Parent {
                        inode: parent.inode.clone(),
                        learned: ticket,
                        joined,
                    });
                }
            }
        };
        // Dropped with no lock held: it may be the last hold.
        let moved = old.is_some();
        drop(old);
        if moved && let Some(core) = self.core.upgrade() {
            core.policy_moved(self);
        }
        true
    }

    /// Not for a directory: an answer that no change has overtaken found it in `parent`. The caller has the lock over
    /// that directory's entries, and moves the pages after it has released the lock ([`Inode::move_pages_to_hint`]).
    pub(crate) fn found_in(&self, parent: InodeId) {
        self.whereabouts().set(parent.0, || ());
    }

    /// Like [`Inode::found_in`], for a file that may have pages with another parent hint: these move before the new place is
    /// visible. `stands` says whether no change has overtaken the answer. The caller holds no lock.
    pub(crate) fn bring_pages_to(&self, parent: &Node, stands: impl Fn() -> bool) {
        let elsewhere =
            self.known_pages().is_some_and(|pages| pages.parent_hint() != Some(parent.id()));
        if !elsewhere || !stands() {
            return;
        }
        self.set_parent_hint(parent);
        if !stands() {
            // A change may have moved the file between the check and our store.
            self.forget_parent_hint();
        }
    }

    /// For a change that has made or moved the object: it is in `parent` now.
    pub(crate) fn note_parent(&self, parent: &Node, ticket: Ticket) {
        match self.is_directory() {
            true => _ = self.set_parent(parent, ticket),
            false => self.set_parent_hint(parent),
        }
    }

    /// Not for a directory: the place of the object.
    fn whereabouts(&self) -> Whereabouts<'_> {
        Whereabouts {
            id: &self.names_after_or_parent,
            flags: &self.cached.beside,
            mark: flag::PARENT_UNKNOWN,
        }
    }

    /// Not for a directory: the object is in `parent`.
    fn set_parent_hint(&self, parent: &Node) {
        self.whereabouts().set(parent.id().0, || self.move_pages_to_hint());
    }

    /// Not for a directory: its name in `parent` is gone. Its place is not known until one of its other names is asked
    /// for again.
    pub(crate) fn lost_name_in(&self, parent: InodeId) {
        if !self.is_directory() && self.whereabouts().id() == parent.0 {
            self.forget_parent_hint();
        }
    }

    /// Not for a directory: it may be in `parent`, or in its known place.
    pub(crate) fn doubt_parent_hint(&self, parent: InodeId) {
        let known = self.whereabouts().id();
        if known != parent.0 && known != NOWHERE.0 {
            self.forget_parent_hint();
        }
    }

    /// Not for a directory: its place is not known any more.
    pub(crate) fn forget_parent_hint(&self) {
        if self.is_directory() || self.whereabouts().id() == NOWHERE.0 {
            return;
        }
        self.whereabouts().doubt();
        self.move_pages_to_hint();
    }

    /// Moves its pages to its own place.
    pub(crate) fn move_pages_to_hint(&self) {
        if let Some(pages) = self.known_pages()
            && pages.parent_hint() != self.parent_hint()
            && let Some(core) = self.core.upgrade()
        {
            core.move_pages_to_hint(self, pages);
        }
    }

    /// Not for a directory: its last name is gone, or it never had one.
    pub(crate) fn set_nameless(&self) {
        if !self.is_directory() {
            // ORDERING: Relaxed; an id, whose inode is looked up under its shard's lock.
            self.names_after_or_parent.store(NOWHERE.0, Relaxed);
            self.move_pages_to_hint();
        }
    }

    /// The id of its directory, as far as it is cached; [`NOWHERE`] without a name, `None` if it is not known.
    pub(crate) fn parent_hint(&self) -> Option<InodeId> {
        if self.is_directory() {
            return self.parent().map(|parent| parent.id());
        }
        Some(InodeId(self.whereabouts().id())).filter(|&id| id != InodeId(0))
    }

    /// Takes out the hold on its directory: the inode is being torn down.
    pub(super) fn take_parent(&self) -> Option<Hold<Inode>> {
        let parent = self.known_directory().and_then(|known| known.parent.lock().take());
        match parent {
            Some(parent) => Some(parent.inode),
            None => Some(self.known_pages()?.take_home()?.inode),
        }
    }
}
