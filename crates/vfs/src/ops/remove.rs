//! Removing names.

use super::change::NameChange;
use crate::backend::Authority;
use crate::caller::{Caller, Checks};
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::name::Name;
use crate::names::{Meaning, Target};
use crate::permission;
use crate::vfs::Vfs;

/// Times that a change looks again at what its names mean, because another change came between the
/// look and its beginning. Under a storm of changes of one name it then goes on with what it has:
/// the store decides, only the link count of an object may be out of date in the cache.
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

    /// As [`Vfs::unlink`]; tells what has lost the name, while it is held.
    ///
    /// # Errors
    /// As [`Vfs::unlink`].
    pub fn unlink_telling(
        &self,
        caller: &Caller,
        parent: &Node,
        name: Name<'_>,
        tell: impl FnOnce(&Node),
    ) -> Result<()> {
        let victim = self.unlink_found(caller, parent, name)?;
        tell(&victim);
        self.let_go(victim);
        Ok(())
    }

    /// As [`Vfs::unlink`]; returns the object that lost its name.
    pub(crate) fn unlink_found(
        &self,
        caller: &Caller,
        parent: &Node,
        name: Name<'_>,
    ) -> Result<Node> {
        let (victim, change) = self.begin_removal(caller, parent, name)?;
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
    /// [`crate::Error::NotDirectory`], [`crate::Error::NotEmpty`], and as [`Vfs::unlink`].
    pub fn remove_directory(&self, caller: &Caller, parent: &Node, name: Name<'_>) -> Result<()> {
        let removed = self.take_directory(caller, parent, name);
        self.notify_entry(caller, (parent, name), removed)
    }

    fn take_directory(&self, caller: &Caller, parent: &Node, name: Name<'_>) -> Result<()> {
        let (victim, change) = self.begin_removal(caller, parent, name)?;
        self.core.paths.shape_changed();
        let removed = self.core.backend().names().remove_directory(caller, parent.id(), name);
        self.unless_done(removed, [Some(&victim), None])?;
        change.commit([Some(Target::Missing), None]);
        victim.inode.forget_names(&self.core.clock);
        self.lost_a_name(parent, &victim, 1);
        Ok(())
    }

    /// Passes on what the store said of a change of names. Where it says that it failed it may be done all the same, or
    /// in part: what is cached of the `objects` concerned, how many names they have, is asked for again.
    pub(super) fn unless_done(&self, said: Result<()>, objects: [Option<&Node>; 2]) -> Result<()> {
        if said.is_err() {
            let clock = &self.core.clock;
            objects.iter().flatten().for_each(|object| object.inode.expire_attributes(clock));
        }
        said
    }

    /// Begins to take `name` out of `parent`. Returns its object too.
    fn begin_removal<'a>(
        &'a self,
        caller: &Caller,
        parent: &'a Node,
        name: Name<'a>,
    ) -> Result<(Node, NameChange<'a>)> {
        let core = &self.core;
        let mut rounds = FIND_ROUNDS;
        loop {
            let asked = parent.inode.ask_entries(&core.clock);
            let victim = self.victim(caller, parent, name)?;
            let known = (name, Meaning::Inode(victim.id()));
            let change = NameChange::begin_known(core, parent, asked, [Some(known), None]);
            rounds -= 1;
            if change.knows() || rounds == 0 {
                return Ok((victim, change));
            }
        }
    }

    /// Checks that `caller` may take `name` out of `parent`. Returns its object.
    pub(super) fn victim(&self, caller: &Caller, parent: &Node, name: Name<'_>) -> Result<Node> {
        self.writable()?;
        self.may_change_entries(caller, parent)?;
        let victim = self.child(caller, parent, name)?;
        if caller.checks == Checks::Enforce {
            let directory = self.attributes(parent, None)?;
            permission::may_remove(caller, &directory, &self.attributes(&victim, None)?)?;
        }
        Ok(victim)
    }

    /// One of the object's names, in `parent`, is gone. If that may have been the last one, the inode has to go with
    /// its last hold, and the store's space with it: where the count of its `names`, as it was cached
    /// before the store was asked to remove one, does not say, the store is asked. What is cached by now may be
    /// what a lookup beside this one learned afterwards: one is then left.
    pub(super) fn lost_a_name(&self, parent: &Node, victim: &Node, names: u32) {
        victim.inode.expire_attributes(&self.core.clock);
        // Others may have made one that was never seen here, and what is held back must not be lost by that.
        let sure = self.core.capabilities.authority == Authority::Sole
            || !victim.inode.known_pages().is_some_and(|pages| pages.holds_back());
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
            self.core.forget_mark(victim);
        }
    }
}
