//! Creating objects and names.

use super::change::{AttributeChange, NameChange};
use super::{Found, OpenFile};
use crate::attributes::{Attributes, FileKind};
use crate::backend::{FileId, NewKind, NewNode, OpenMode, Opens};
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::inode::{NOWHERE, Node, Recording, Ticket};
use crate::name::Name;
use crate::names::{Key, Target};
use crate::permission::Access;
use crate::vfs::{Reported, Vfs};
use std::time::Duration;

impl Vfs {
    /// Creates an object (mknod, mkdir, symlink). May block.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Access`], [`Error::NoSpace`], ...; [`Error::NotPermitted`] for a
    /// device node by an unprivileged caller.
    pub fn create(
        &self,
        caller: &Caller,
        parent: &Node,
        name: Name<'_>,
        new: &NewNode<'_>,
    ) -> Result<Found> {
        let made = self.make(caller, parent, name, new);
        self.notify_entry(caller, (parent, name), made)
    }

    fn make(
        &self,
        caller: &Caller,
        parent: &Node,
        name: Name<'_>,
        new: &NewNode<'_>,
    ) -> Result<Found> {
        let allowed = self.may_create(caller, parent, new);
        let (core, key) = (&self.core, self.core.names.key(parent.id(), name));
        allowed.map_err(|error| self.unless_taken(caller, parent, key, error))?;
        let change = NameChange::begin(core, parent, key);
        let ticket = core.clock.at_most_now();
        let entry = core.store_creation()?.create(caller, parent.id(), name, new)?;
        let place = (parent.id(), Some(name));
        let entry = core.as_made(entry, new.kind.kind(), place, FileId::NONE)?;
        let node = core.adopt(&entry, ticket);
        node.inode.note_parent(parent, ticket);
        if node.is_directory() {
            self.declare_empty(&node, ticket);
        }
        Ok(self.finish_creation(change, node, entry.attributes))
    }

    /// A new directory has no names, so it is complete.
    fn declare_empty(&self, directory: &Node, ticket: Ticket) {
        let core = &self.core;
        let changes = directory.inode.dir_state().entries.lock();
        // Neither its entries nor the directory itself may have changed, or have been evicted and
        // cached again.
        if changes.admits(ticket) && directory.inode.changed() <= ticket {
            let losses = core.names.losses().of(directory.id().0);
            let listed =
                core.keeps_listings().then(|| Recording::new(&core.listed).finish(&core.listed));
            directory.inode.declare_complete(losses, core.complete_expiry(Reported::NO), listed);
            drop(changes);
            core.has_list(directory);
        }
    }

    /// Creates a regular file under a free name and opens it: O_CREAT with O_EXCL. May block.
    pub fn create_and_open(
        &self,
        caller: &Caller,
        parent: &Node,
        name: Name<'_>,
        new: &NewNode<'_>,
        mode: OpenMode,
    ) -> Result<(Found, OpenFile)> {
        let made = self.make_and_open(caller, parent, name, new, mode);
        self.notify_entry(caller, (parent, name), made)
    }

    fn make_and_open(
        &self,
        caller: &Caller,
        parent: &Node,
        name: Name<'_>,
        new: &NewNode<'_>,
        mode: OpenMode,
    ) -> Result<(Found, OpenFile)> {
        if self.core.capabilities.opens == Opens::Stateless {
            let found = self.make(caller, parent, name, new)?;
            let file = OpenFile::new(self, found.node.clone(), (FileId::NONE, mode), mode, caller);
            return Ok((found, file));
        }
        let allowed = self.may_create(caller, parent, new);
        let (core, key) = (&self.core, self.core.names.key(parent.id(), name));
        allowed.map_err(|error| self.unless_taken(caller, parent, key, error))?;
        let change = NameChange::begin(core, parent, key);
        let ticket = core.clock.at_most_now();
        let stored = core.store_mode(FileKind::Regular, mode);
        let store = core.store_creation()?;
        let (entry, file) = store.create_and_open(caller, parent.id(), name, new, stored)?;
        let entry = core.as_made(entry, FileKind::Regular, (parent.id(), Some(name)), file)?;
        let node = core.adopt(&entry, ticket);
        node.inode.note_parent(parent, ticket);
        let file = OpenFile::new(self, node.clone(), (file, stored), mode, caller);
        Ok((self.finish_creation(change, node, entry.attributes), file))
    }

    /// Creates a regular file that has no name yet, in the file system of `parent`: O_TMPFILE.
    /// [`Vfs::link`] may give it one. May block.
    pub fn create_unnamed(
        &self,
        caller: &Caller,
        parent: &Node,
        new: &NewNode<'_>,
        mode: OpenMode,
    ) -> Result<OpenFile> {
        self.may_create(caller, parent, new)?;
        let core = &self.core;
        let ticket = core.clock.at_most_now();
        let stored = core.store_mode(FileKind::Regular, mode);
        let (entry, file) =
            core.store_creation()?.create_unnamed(caller, parent.id(), new, stored)?;
        let entry = core.as_made(entry, FileKind::Regular, (parent.id(), None), file)?;
        let node = core.adopt(&entry, ticket);
        node.inode.set_unlinked(true);
        node.inode.set_nameless();
        Ok(OpenFile::new(self, node, (file, stored), mode, caller))
    }

    /// Gives `node` a further name: a hard link. May block.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for a directory; [`Error::Exists`]; [`Error::TooManyLinks`].
    pub fn link(
        &self,
        caller: &Caller,
        node: &Node,
        parent: &Node,
        name: Name<'_>,
    ) -> Result<Found> {
        let linked = self.link_name(caller, node, parent, name);
        self.notify_inode(caller, node, self.notify_entry(caller, (parent, name), linked))
    }

    fn link_name(
        &self,
        caller: &Caller,
        node: &Node,
        parent: &Node,
        name: Name<'_>,
    ) -> Result<Found> {
        let allowed = self.may_link(caller, node, parent);
        let (core, key) = (&self.core, self.core.names.key(parent.id(), name));
        allowed.map_err(|error| self.unless_taken(caller, parent, key, error))?;
        let change = NameChange::begin(core, parent, key);
        let links = AttributeChange::begin(core, node);
        let ticket = core.clock.at_most_now();
        let entry = core.store_creation()?.link(caller, node.id(), parent.id(), name)?;
        // The store may have answered for another object that has taken the name since.
        match entry.inode == node.id() {
            true => links.commit(entry.attributes),
            false => drop(links),
        }
        let linked = core.adopt(&entry, ticket);
        linked.inode.set_unlinked(false);
        if matches!(linked.inode.parent_hint(), None | Some(NOWHERE)) {
            linked.inode.note_parent(parent, ticket);
        }
        Ok(self.finish_creation(change, linked, entry.attributes))
    }

    /// Commits the change that gave `node` its name.
    fn finish_creation(&self, change: NameChange<'_>, node: Node, attributes: Attributes) -> Found {
        let kept = change.commit([Some(Target::Node(&node)), None]);
        let entry_valid =
            if kept { self.core.entry_expiry(Reported::NO).remains() } else { Duration::ZERO };
        Found::new(node, attributes, entry_valid)
    }

    fn may_create(&self, caller: &Caller, parent: &Node, new: &NewNode<'_>) -> Result<()> {
        self.writable()?;
        self.may_change_entries(caller, parent)?;
        match new.kind {
            NewKind::CharDevice(_) | NewKind::BlockDevice(_)
                if self.core.enforces(caller) && !caller.is_privileged() =>
            {
                Err(Error::NotPermitted)
            }
            NewKind::Symlink([]) => Err(Error::NotFound),
            NewKind::Symlink(target) if target.len() > crate::PATH_MAX => Err(Error::NameTooLong),
            _ => Ok(()),
        }
    }

    fn may_link(&self, caller: &Caller, node: &Node, parent: &Node) -> Result<()> {
        self.writable()?;
        self.may_change_entries(caller, parent)?;
        if node.is_directory() { Err(Error::NotPermitted) } else { Ok(()) }
    }

    /// The error for a name that cannot be made because of `why`: an existing name takes
    /// precedence over every other error.
    fn unless_taken(&self, caller: &Caller, parent: &Node, key: Key<'_>, why: Error) -> Error {
        let hidden = matches!(why, Error::NotDirectory)
            || self.check(caller, parent, Access::EXECUTE).is_err();
        if !hidden && self.child(caller, parent, key).is_ok() { Error::Exists } else { why }
    }

    /// Whether `caller` may add, remove or rename entries of `directory`.
    pub(super) fn may_change_entries(&self, caller: &Caller, directory: &Node) -> Result<()> {
        if !directory.is_directory() {
            return Err(Error::NotDirectory);
        }
        self.check(caller, directory, Access::WRITE | Access::EXECUTE)
    }
}
