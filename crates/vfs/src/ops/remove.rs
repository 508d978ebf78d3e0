//! Removing names.

use super::change::NameChange;
use crate::backend::Authority;
use crate::caller::{Caller, Checks};
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::name::Name;
use crate::names::{Key, Meaning, Target};
use crate::permission;
use crate::vfs::Vfs;

/// Times that a change looks up its names again, because another change came between the look-up and its begin. After
/// that, under many changes of one name, it continues with its last answer. The store decides, and only an object's
/// cached link count may be out of date.
pub(super) const FIND_ROUNDS: usize = 8;

impl Vfs {
    /// Removes a name that is not a directory's. The object lives on while it has other names, is
    /// open, or is held. May block.
    ///
    /// # Errors
    /// [`crate::Error::IsDirectory`], [`crate::Error::Access`], [`crate::Error::NotPermitted`] by the sticky rule.
    pub fn unlink(&self, caller: &Caller, parent: &Node, name: Name<'_>) -> Result<()> {
        self.unlink_telling(caller, parent, name, |_| {})
    }

    /// Like [`Vfs::unlink`]. Passes the object that lost the name to `tell`, while it is held.
    ///
    /// # Errors
    /// Like [`Vfs::unlink`].
    pub fn unlink_telling(
        &self,
        caller: &Caller,
        parent: &Node,
        name: Name<'_>,
        tell: impl FnOnce(&Node),
    ) -> Result<()> {
        let victim = self.unlink_found(caller, parent, name)?;
        tell(&victim);
        self.release(victim);
        Ok(())
    }

    /// Like [`Vfs::unlink`]. Returns the object that lost its name.
    pub(crate) fn unlink_found(
        &self,
        caller: &Caller,
        parent: &Node,
        name: Name<'_>,
    ) -> Result<Node> {
        let key = self.core.names.key(parent.id(), name);
        let (victim, change) = self.begin_removal(caller, parent, key)?;
        let names = victim.inode.last_attributes().links;
        let removed = self.core.backend().names().unlink(caller, parent.id(), name);
        let removed = self.unless_done(removed, [Some(&victim), None]);
        if removed.is_ok() {
            change.commit([Some(Target::Missing), None]);
            self.lost_a_name(parent, &victim, names);
        }
        let removed = self.notify_entry(caller, (parent, name), removed);
        self.notify_inode(caller, &victim, removed)?;
        Ok(victim)
    }

    /// Removes an empty directory. May block.
    ///
    /// # Errors
    /// [`crate::Error::NotDirectory`], [`crate::Error::NotEmpty`], and those of [`Vfs::unlink`].
    pub fn remove_directory(&self, caller: &Caller, parent: &Node, name: Name<'_>) -> Result<()> {
        let removed = self.take_directory(caller, parent, name);
        self.notify_entry(caller, (parent, name), removed)
    }

    fn take_directory(&self, caller: &Caller, parent: &Node, name: Name<'_>) -> Result<()> {
        let key = self.core.names.key(parent.id(), name);
        let (victim, change) = self.begin_removal(caller, parent, key)?;
        self.core.paths.shape_changed();
        let removed = self.core.backend().names().remove_directory(caller, parent.id(), name);
        self.unless_done(removed, [Some(&victim), None])?;
        change.commit([Some(Target::Missing), None]);
        victim.inode.forget_names(&self.core.clock);
        self.lost_a_name(parent, &victim, 1);
        Ok(())
    }

    /// Returns the store's answer about a change of names. A failed change may have been done, wholly or in part. So
    /// the cached attributes of the `objects` concerned, with their link counts, expire.
    pub(super) fn unless_done(&self, said: Result<()>, objects: [Option<&Node>; 2]) -> Result<()> {
        if said.is_err() {
            let clock = &self.core.clock;
            objects.iter().flatten().for_each(|object| object.inode.expire_attributes(clock));
        }
        said
    }

    /// Begins the removal of a name from `parent`. Returns its object too.
    fn begin_removal<'a>(
        &'a self,
        caller: &Caller,
        parent: &'a Node,
        key: Key<'a>,
    ) -> Result<(Node, NameChange<'a>)> {
        let core = &self.core;
        let mut rounds = FIND_ROUNDS;
        loop {
            let asked = parent.inode.ask_entries(&core.clock);
            let victim = self.victim(caller, parent, key)?;
            let known = (key, Meaning::Inode(victim.id()));
            let change = NameChange::begin_known(core, parent, asked, [Some(known), None]);
            rounds -= 1;
            if change.knows() || rounds == 0 {
                return Ok((victim, change));
            }
        }
    }

    /// Checks that `caller` may remove a name from `parent`. Returns its object.
    pub(super) fn victim(&self, caller: &Caller, parent: &Node, key: Key<'_>) -> Result<Node> {
        self.writable()?;
        self.may_change_entries(caller, parent)?;
        let victim = self.child(caller, parent, key)?;
        if caller.checks == Checks::Enforce {
            let directory = self.attributes(parent, None)?;
            permission::may_remove(caller, &directory, &self.attributes(&victim, None)?)?;
        }
        Ok(victim)
    }

    /// One of the object's names, in `parent`, is gone. If it was the last one, the inode and the store's space must be
    /// freed with the last hold. `names` is the link count that was cached before the removal; if it does not decide,
    /// the store is asked. The present count may come from a concurrent lookup after the removal, so 1 may mean that
    /// one name is left.
    pub(super) fn lost_a_name(&self, parent: &Node, victim: &Node, names: u32) {
        victim.inode.expire_attributes(&self.core.clock);
        // Other programs may have made a name that was never seen here. Unwritten data must not be lost because of
        // that.
        let sure = self.core.capabilities.authority == Authority::Sole
            || !victim.inode.known_pages().is_some_and(|pages| pages.has_unwritten());
        let unlinked = (names <= 1 && sure)
            || victim.is_directory()
            || match self.refresh_node(victim) {
                Ok(now) => now.links == 0,
                Err(error) => matches!(error, Error::Stale | Error::NotFound),
            };
        victim.inode.lost_name_in(parent.id());
        if unlinked {
            victim.inode.set_unlinked(true);
            victim.inode.set_nameless();
            self.core.pages.failures().removed(victim.id());
            self.core.forget_mark(victim);
        }
    }
}
