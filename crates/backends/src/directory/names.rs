//! Names that exist: finding, removing and moving them.
//!
//! # Boundary
//! Entries of directories and the table's view of them. Making new ones: [`super::create`].
//!
//! # Concurrency
//! The host orders changes; the table follows. A rename announces the new name before and drops the
//! old one after, so a concurrent walk finds the object by one of the two. A name is forgotten only
//! after the host removed it. If two changes of one name overlap, the table may keep a wrong name;
//! its use finds another object or none, and the next lookup corrects it.
//!
//! # Why
//! An object without a known name cannot be found again, but callers may still have it open, or
//! have it as their working directory. So it gets a pinned descriptor before the host removes the
//! name: afterwards it is too late. Weakness: each removal of a known object costs opening it
//! first.

use super::convert::{HostStat, host_error, stat_at};
use super::host::Host;
use super::identity::CHANGE_NAMES;
use super::node::{HostNode, KnownName};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, RenameFlags};
use std::sync::Arc;
use uvfs_vfs::{
    Caller, Cookie, Entry, Error, FileKind, FileRef, InodeId, Listing, Name, RenameMode, Result,
};

/// A known object that is about to lose a name.
struct Victim {
    node: Arc<HostNode>,
    /// Pinned by us for this removal.
    pinned: bool,
}

/// One side of a rename: a directory and a name in it.
struct Side<'a> {
    parent: Arc<HostNode>,
    directory: Arc<OwnedFd>,
    name: &'a [u8],
}

impl Side<'_> {
    fn stat(&self) -> Option<HostStat> {
        stat_at(self.directory.as_fd(), self.name).ok()
    }
}

impl uvfs_vfs::Names for Host {
    fn lookup(&self, _: &Caller, parent: InodeId, name: Name<'_>) -> Result<Entry> {
        let (parent, directory) = self.directory(parent)?;
        let (open, bytes) = (directory.as_fd(), name.as_bytes());
        let mut heard = parent.heard();
        let mut stat = stat_at(open, bytes);
        if matches!(stat, Err(Error::NotFound)) && !self.answer_missing(&parent, name, heard) {
            heard = parent.heard();
            stat = stat_at(open, bytes);
        }
        Ok(self.answer((&stat?, heard), (&parent, open), name).0)
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (InodeId, Name<'_>),
        to: (InodeId, Name<'_>),
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = (self.side(from)?, self.side(to)?);
        let (moved, target) = (from.stat(), to.stat());
        let same = moved.zip(target).is_some_and(|(moved, target)| moved.key == target.key);
        if same {
            // Two names of one object, or one name twice: nothing is moved.
            return self.host_rename(caller, &from, &to, mode);
        }
        let moved = moved.and_then(|stat| self.nodes.find(&stat));
        match mode {
            RenameMode::Exchange => {
                let target = target.and_then(|stat| self.nodes.find(&stat));
                self.exchange(caller, (&from, moved), (&to, target))
            }
            mode => {
                let victim = match target.filter(|_| mode.replaces_target()) {
                    Some(stat) => self.victim(&to, &stat)?,
                    None => None,
                };
                self.replace(caller, (&from, moved), (&to, victim), mode)
            }
        }
    }

    fn list(&self, directory: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()> {
        Host::list(self, directory, from, listing)
    }

    fn unlink(&self, caller: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        self.remove(caller, parent, name, AtFlags::empty())
    }

    fn remove_directory(&self, caller: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        self.remove(caller, parent, name, AtFlags::REMOVEDIR)
    }
}

impl Host {
    /// Removes a name; `flags` says whether it must be a directory's.
    pub(super) fn remove(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: Name<'_>,
        flags: AtFlags,
    ) -> Result<()> {
        let side = self.side((parent, name))?;
        let victim = match side.stat() {
            Some(stat) => self.victim(&side, &stat)?,
            None => None,
        };
        let node = victim.as_ref().map(|victim| &*victim.node);
        let _own = self.own_change([Some(&side.parent), node, None, None]);
        let removed = self.identity.act(caller, None, CHANGE_NAMES, |_| {
            rustix::fs::unlinkat(&side.directory, side.name, flags).map_err(host_error)
        });
        if let Some(victim) = &victim {
            self.settle_victim(&side, victim, removed.is_ok());
        }
        if removed.is_ok() {
            side.parent.forget_child(side.name);
        }
        removed
    }

    fn side<'a>(&self, (parent, name): (InodeId, Name<'a>)) -> Result<Side<'a>> {
        let (parent, directory) = self.directory(parent)?;
        Ok(Side { parent, directory, name: name.as_bytes() })
    }

    fn replace(
        &self,
        caller: &Caller,
        (from, moved): (&Side<'_>, Option<Arc<HostNode>>),
        (to, victim): (&Side<'_>, Option<Victim>),
        mode: RenameMode,
    ) -> Result<()> {
        let nodes = [Some(&*from.parent), Some(&*to.parent), moved.as_deref()];
        let node = victim.as_ref().map(|victim| &*victim.node);
        let _own = self.own_change([nodes[0], nodes[1], nodes[2], node]);
        let announced = moved.as_ref().is_some_and(|moved| self.announce(moved, to));
        let renamed = self.host_rename(caller, from, to, mode);
        if let Some(victim) = &victim {
            self.settle_victim(to, victim, renamed.is_ok());
        }
        if let Some(moved) = &moved {
            self.settle_moved(moved, from, to, announced, renamed.is_ok());
        } else if renamed.is_ok() {
            to.parent.forget_child(to.name);
        }
        if renamed.is_ok() && moved.is_none() {
            from.parent.forget_child(from.name);
        }
        renamed
    }

    fn exchange(
        &self,
        caller: &Caller,
        (from, first): (&Side<'_>, Option<Arc<HostNode>>),
        (to, second): (&Side<'_>, Option<Arc<HostNode>>),
    ) -> Result<()> {
        let _own = self.own_change([
            Some(&from.parent),
            Some(&to.parent),
            first.as_deref(),
            second.as_deref(),
        ]);
        let announced = [
            first.as_ref().is_some_and(|node| self.announce(node, to)),
            second.as_ref().is_some_and(|node| self.announce(node, from)),
        ];
        let renamed = self.host_rename(caller, from, to, RenameMode::Exchange);
        if let Some(node) = &first {
            self.settle_moved(node, from, to, announced[0], renamed.is_ok());
        }
        if let Some(node) = &second {
            self.settle_moved(node, to, from, announced[1], renamed.is_ok());
        }
        renamed
    }

    fn host_rename(
        &self,
        caller: &Caller,
        from: &Side<'_>,
        to: &Side<'_>,
        mode: RenameMode,
    ) -> Result<()> {
        let flags = match mode {
            RenameMode::Replace => RenameFlags::empty(),
            RenameMode::NoReplace => RenameFlags::NOREPLACE,
            RenameMode::Exchange => RenameFlags::EXCHANGE,
            RenameMode::Whiteout => RenameFlags::WHITEOUT,
            RenameMode::WhiteoutNoReplace => RenameFlags::WHITEOUT | RenameFlags::NOREPLACE,
        };
        self.identity.act(caller, None, CHANGE_NAMES, |_| {
            rustix::fs::renameat_with(&from.directory, from.name, &to.directory, to.name, flags)
                .map_err(host_error)
        })
    }

    /// The known object at `side`, held so that it can be reached without the name, if need be.
    ///
    /// # Errors
    /// If it would be lost to open files that have no descriptor.
    fn victim(&self, side: &Side<'_>, stat: &HostStat) -> Result<Option<Victim>> {
        let Some(node) = self.nodes.find(stat) else { return Ok(None) };
        let known = KnownName { parent: side.parent.clone(), name: side.name.into() };
        self.nodes.learn(&node, known);
        let by_another_name =
            stat.attributes.links > 1 && node.is_known_otherwise(&side.parent, side.name);
        let stays_reachable = node.kind != FileKind::Directory && by_another_name;
        if stays_reachable || node.slot.is_pinned() || !self.nodes.is_referenced(&node) {
            return Ok(Some(Victim { node, pinned: false }));
        }
        // Without a free descriptor the removal is made all the same: the object is then stale for
        // callers that hold it without having it open.
        let pinned = self.descriptor(&node).map(|open| node.slot.pin(open)).is_ok();
        if !pinned {
            self.hold_by_open_files(&node)?;
        }
        Ok(Some(Victim { node, pinned }))
    }

    /// After the host was asked to remove the victim's name at `side`.
    fn settle_victim(&self, side: &Side<'_>, victim: &Victim, removed: bool) {
        let Victim { node, pinned } = victim;
        if !removed {
            if *pinned {
                self.release_pin(node);
            }
            return;
        }
        self.nodes.unlearn(node, &side.parent, side.name);
        if *pinned {
            self.counters.pins.hit();
            self.note_own_change(node);
        } else if !node.slot.is_pinned() && node.names().1.is_empty() {
            self.nodes.detach(node);
        }
        if *pinned && !self.nodes.is_referenced(node) {
            // Forgotten meanwhile: no later forget would release the pin.
            node.slot.close();
        }
    }

    fn announce(&self, node: &Arc<HostNode>, at: &Side<'_>) -> bool {
        self.nodes.announce(node, &at.parent, at.name)
    }

    /// After the host was asked to move `node`.
    fn settle_moved(
        &self,
        node: &Arc<HostNode>,
        from: &Side<'_>,
        to: &Side<'_>,
        announced: bool,
        renamed: bool,
    ) {
        if renamed {
            let known = KnownName { parent: to.parent.clone(), name: to.name.into() };
            self.nodes.learn(node, known);
            to.parent.settle_child(to.name, node.id);
            self.nodes.unlearn(node, &from.parent, from.name);
            self.note_own_change(node);
        } else if announced {
            self.nodes.unlearn(node, &to.parent, to.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::testing::{Scratch, root_caller};
    use std::fs;
    use uvfs_vfs::{Backend, Error, FileRef, OpenMode, SetAttributes};

    #[test]
    fn an_unlinked_file_works_while_it_is_referenced_and_is_gone_when_it_is_forgotten() {
        let scratch = Scratch::new();
        let inode = scratch.make_file(InodeId::ROOT, "f").unwrap();
        let file =
            scratch.backend.open_files().open(&root_caller(), inode, OpenMode::READ_WRITE).unwrap();
        let open = FileRef { inode, file };
        scratch.unlink(InodeId::ROOT, "f").unwrap();
        scratch.close_descriptors();
        scratch.backend.data().write(&root_caller(), open, 0, b"alive").unwrap();
        assert_eq!(scratch.attributes(inode).unwrap().size, 5);
        let mode = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        let set = scratch.backend.inodes().set_attributes(
            &root_caller(),
            FileRef::unopened(inode),
            &mode,
        );
        assert_eq!(set.unwrap().mode, 0o600);
        scratch.backend.open_files().close(open);
        assert_eq!(scratch.attributes(inode).unwrap().links, 0);
        scratch.backend.inodes().forget(inode, 1);
        assert!(matches!(scratch.attributes(inode), Err(Error::Stale)));
        assert_eq!(scratch.counter("nodes"), 1);
    }

    #[test]
    fn a_removed_directory_still_answers_processes_that_stand_in_it() {
        let scratch = Scratch::new();
        let folder = scratch.make_directory(InodeId::ROOT, "d").unwrap();
        let inner = scratch.make_file(folder, "f").unwrap();
        assert!(matches!(scratch.remove_directory(InodeId::ROOT, "d"), Err(Error::NotEmpty)));
        assert!(matches!(scratch.unlink(InodeId::ROOT, "d"), Err(Error::IsDirectory)));
        assert!(matches!(scratch.remove_directory(folder, "f"), Err(Error::NotDirectory)));
        scratch.unlink(folder, "f").unwrap();
        scratch.remove_directory(InodeId::ROOT, "d").unwrap();
        scratch.close_descriptors();
        assert!(scratch.attributes(folder).is_ok() && scratch.attributes(inner).is_ok());
        assert!(matches!(scratch.lookup(folder, "f"), Err(Error::NotFound)));
        assert!(matches!(scratch.make_file(folder, "g"), Err(Error::NotFound)));
    }

    #[test]
    fn a_failed_removal_leaves_nothing_pinned() {
        let scratch = Scratch::new();
        let folder = scratch.make_directory(InodeId::ROOT, "d").unwrap();
        scratch.make_file(folder, "f").unwrap();
        assert!(scratch.remove_directory(InodeId::ROOT, "d").is_err());
        assert_eq!(scratch.counter("pins"), 0);
        assert!(!scratch.host().node(folder).unwrap().slot.is_pinned());
    }

    #[test]
    fn a_rename_keeps_the_object_and_its_contents_reachable() {
        let scratch = Scratch::new();
        let [a, b] = ["a", "b"].map(|name| scratch.make_directory(InodeId::ROOT, name).unwrap());
        let moved = scratch.make_directory(a, "m").unwrap();
        let file = scratch.make_file(moved, "f").unwrap();
        scratch.rename(a, "m", b, "n", RenameMode::NoReplace).unwrap();
        scratch.close_descriptors();
        assert!(scratch.attributes(file).is_ok());
        assert_eq!(scratch.lookup(b, "n").unwrap(), moved);
        let below = scratch.rename(InodeId::ROOT, "b", moved, "x", RenameMode::Replace);
        assert!(matches!(below, Err(Error::Invalid(_))));
        let taken = scratch.rename(InodeId::ROOT, "a", InodeId::ROOT, "b", RenameMode::NoReplace);
        assert!(matches!(taken, Err(Error::Exists)));
        let full = scratch.rename(InodeId::ROOT, "a", InodeId::ROOT, "b", RenameMode::Replace);
        assert!(matches!(full, Err(Error::NotEmpty)));
        scratch.close_descriptors();
        assert!(scratch.attributes(file).is_ok(), "failed renames changed nothing");
    }

    #[test]
    fn a_replaced_file_lives_on_and_an_exchange_swaps_both() {
        let scratch = Scratch::new();
        fs::write(scratch.path("a"), b"a").unwrap();
        fs::write(scratch.path("b"), b"bb").unwrap();
        let [a, b] = ["a", "b"].map(|name| scratch.lookup(InodeId::ROOT, name).unwrap());
        scratch.rename(InodeId::ROOT, "a", InodeId::ROOT, "b", RenameMode::Exchange).unwrap();
        scratch.close_descriptors();
        assert_eq!(scratch.attributes(a).unwrap().size, 1);
        assert_eq!(scratch.lookup(InodeId::ROOT, "a").unwrap(), b);
        scratch.rename(InodeId::ROOT, "a", InodeId::ROOT, "b", RenameMode::Replace).unwrap();
        scratch.close_descriptors();
        assert_eq!(scratch.attributes(a).unwrap().links, 0, "replaced, but referenced");
        assert_eq!(scratch.attributes(b).unwrap().size, 2);
        let missing = scratch.rename(InodeId::ROOT, "x", InodeId::ROOT, "b", RenameMode::Exchange);
        assert!(matches!(missing, Err(Error::NotFound)));
    }

    #[test]
    fn renaming_one_name_of_an_object_onto_another_changes_nothing() {
        let scratch = Scratch::new();
        fs::write(scratch.path("a"), b"a").unwrap();
        fs::hard_link(scratch.path("a"), scratch.path("b")).unwrap();
        let a = scratch.lookup(InodeId::ROOT, "a").unwrap();
        assert_eq!(scratch.lookup(InodeId::ROOT, "b").unwrap(), a);
        scratch.rename(InodeId::ROOT, "a", InodeId::ROOT, "b", RenameMode::Replace).unwrap();
        assert_eq!(scratch.attributes(a).unwrap().links, 2);
        scratch.unlink(InodeId::ROOT, "a").unwrap();
        scratch.close_descriptors();
        assert_eq!(scratch.attributes(a).unwrap().links, 1);
    }
}
