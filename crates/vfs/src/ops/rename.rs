//! Moving names.

use super::change::NameChange;
use super::remove::FIND_ROUNDS;
use super::turn::Turn;
use crate::backend::RenameMode;
use crate::caller::{Caller, Checks};
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::name::Name;
use crate::names::{Key, Meaning, Target};
use crate::permission::{self, Access};
use crate::vfs::Vfs;
use uvfs_concurrent::lock::order;

impl Vfs {
    /// Moves the name `from.1` of `from.0` to `to.1` of `to.0`. May block.
    ///
    /// # Errors
    /// Those of [`crate::Names::rename`]; [`Error::Access`] and [`Error::NotPermitted`] by the
    /// rules of rename(2).
    pub fn rename(
        &self,
        caller: &Caller,
        from: (&Node, Name<'_>),
        to: (&Node, Name<'_>),
        mode: RenameMode,
    ) -> Result<()> {
        self.rename_telling(caller, from, to, mode, |_, _| {})
    }

    /// Like [`Vfs::rename`]. Passes the moved object and the replaced one to `tell`, while both are
    /// held.
    ///
    /// # Errors
    /// Like [`Vfs::rename`].
    pub fn rename_telling(
        &self,
        caller: &Caller,
        from: (&Node, Name<'_>),
        to: (&Node, Name<'_>),
        mode: RenameMode,
        tell: impl FnOnce(&Node, Option<&Node>),
    ) -> Result<()> {
        let step = self.rename_found(caller, from, to, mode)?;
        tell(&step.moved, step.target.as_ref());
        self.let_go_replaced(step);
        Ok(())
    }

    /// Like [`Vfs::rename`]. Returns the objects concerned.
    pub(crate) fn rename_found(
        &self,
        caller: &Caller,
        from: (&Node, Name<'_>),
        to: (&Node, Name<'_>),
        mode: RenameMode,
    ) -> Result<Step> {
        let moved = self.move_name(caller, from, to, mode);
        let step = self.notify_entry(caller, to, self.notify_entry(caller, from, moved))?;
        for object in [Some(&step.moved), step.target.as_ref()].into_iter().flatten() {
            self.notify_inode(caller, object, Ok(()))?;
        }
        Ok(step)
    }

    fn move_name(
        &self,
        caller: &Caller,
        from: (&Node, Name<'_>),
        to: (&Node, Name<'_>),
        mode: RenameMode,
    ) -> Result<Step> {
        let core = &self.core;
        let keyed =
            |(directory, name): (_, _)| (directory, core.names.key(Node::id(directory), name));
        let (old, new) = (keyed(from), keyed(to));
        // Checked first, because a needless change drops cached entries of both directories.
        let moves = from.0 != to.0 && self.victim(caller, from.0, old.1)?.is_directory();
        let mut turn = moves.then(|| self.take_turn());
        let (step, changes) = loop {
            let (step, changes) = self.begin_rename(caller, old, new, mode)?;
            let target_moves = mode == RenameMode::Exchange
                && step.target.as_ref().is_some_and(Node::is_directory);
            let moves = from.0 != to.0 && (step.moved.is_directory() || target_moves);
            if !moves || turn.is_some() {
                break (step, changes);
            }
            drop(changes);
            turn = Some(self.take_turn());
        };
        // If the moved object is not certain, assume a directory.
        let known = changes.iter().flatten().all(NameChange::knows);
        if !known
            || step.moved.is_directory()
            || step.target.as_ref().is_some_and(Node::is_directory)
        {
            core.paths.shape_changed();
        }
        self.write_before_replacing(&step, mode)?;
        let replaced =
            step.target.as_ref().map_or(0, |target| target.inode.last_attributes().links);
        let renamed =
            core.backend().names().rename(caller, (from.0.id(), from.1), (to.0.id(), to.1), mode);
        self.unless_done(renamed, [Some(&step.moved), step.target.as_ref()])?;
        // First the objects: a walk that finds one at its new name continues to its parent.
        self.renamed(from.0, to.0, &step, replaced, mode);
        let known = changes.iter().flatten().all(|change| change.knows() && change.alone());
        if !known {
            // Another change may have moved them again, or come before.
            step.moved.inode.forget_parent_hint();
            step.target.iter().for_each(|target| target.inode.forget_parent_hint());
        }
        let (old, new) = if known { targets(&step, mode) } else { (None, None) };
        match changes {
            [Some(change), Some(other)] => {
                change.commit([old, None]);
                other.commit([new, None]);
            }
            [change, _] => drop(change.map(|change| change.commit([old, new]))),
        }
        Ok(step)
    }

    /// A program that writes a new file and gives it the name of an old one expects the old content or the new one after
    /// a crash, also if it asks for no sync (`auto_da_alloc` of ext4). So the new content is in the store before the name.
    fn write_before_replacing(&self, step: &Step, mode: RenameMode) -> Result<()> {
        if mode.replaces_target()
            && step.target.is_some()
            && self.core.capabilities.writes_back
            && let Some(pages) = step.moved.inode.known_pages()
        {
            self.core.write_out_all(pages)?;
        }
        Ok(())
    }

    /// The object that a rename replaced may have lost its last name.
    pub(crate) fn let_go_replaced(&self, step: Step) {
        if let Some(target) = step.target {
            self.release(target);
        }
    }

    fn take_turn(&self) -> Turn<'_> {
        order::assert_none_held("a wait for another move");
        self.core.moves.take()
    }

    /// Finds the objects of a rename, and begins the change: of one directory or of two.
    fn begin_rename<'a>(
        &'a self,
        caller: &Caller,
        from: (&'a Node, Key<'a>),
        to: (&'a Node, Key<'a>),
        mode: RenameMode,
    ) -> Result<(Step, [Option<NameChange<'a>>; 2])> {
        let core = &self.core;
        let mut rounds = FIND_ROUNDS;
        loop {
            let asked = [from.0, to.0].map(|directory| directory.inode.ask_entries(&core.clock));
            let moved = self.victim(caller, from.0, from.1)?;
            let target = self.rename_target(caller, from, to, mode, &moved)?;
            let there = target.as_ref().map(Node::id).map_or(Meaning::Missing, Meaning::Inode);
            let (old, new) = ((from.1, Meaning::Inode(moved.id())), (to.1, there));
            let begin = |directory, asked, names| {
                Some(NameChange::begin_known(core, directory, asked, names))
            };
            let changes = if from.0 == to.0 {
                [begin(from.0, asked[0], [Some(old), Some(new)]), None]
            } else {
                let from = begin(from.0, asked[0], [Some(old), None]);
                [from, begin(to.0, asked[1], [Some(new), None])]
            };
            rounds -= 1;
            if rounds == 0 || changes.iter().flatten().all(NameChange::knows) {
                return Ok((Step { moved, target }, changes));
            }
        }
    }

    /// Checks the target's side, and finds the object there.
    fn rename_target(
        &self,
        caller: &Caller,
        from: (&Node, Key<'_>),
        to: (&Node, Key<'_>),
        mode: RenameMode,
        moved: &Node,
    ) -> Result<Option<Node>> {
        self.may_change_entries(caller, to.0)?;
        // A directory that changes its parent has its `..` rewritten.
        if moved.is_directory() && from.0 != to.0 {
            self.check(caller, moved, Access::WRITE)?;
        }
        let target = match self.child(caller, to.0, to.1) {
            Ok(target) => target,
            Err(Error::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        if mode.keeps_target() {
            return Err(Error::Exists);
        }
        if caller.checks == Checks::Done {
            return Ok(Some(target));
        }
        if mode == RenameMode::Exchange && target.is_directory() && from.0 != to.0 {
            self.check(caller, &target, Access::WRITE)?;
        }
        let directory = self.attributes(to.0, None)?;
        permission::may_remove(caller, &directory, &self.attributes(&target, None)?)?;
        Ok(Some(target))
    }

    /// Updates the objects concerned. `replaced`: names that the target had before.
    fn renamed(&self, from: &Node, to: &Node, step: &Step, replaced: u32, mode: RenameMode) {
        let core = &self.core;
        // Later than every lookup answered before the move.
        let learned = core.clock.stamp();
        step.moved.inode.expire_attributes(&core.clock);
        step.moved.inode.note_parent(to, learned);
        match &step.target {
            Some(target) if mode == RenameMode::Exchange => {
                target.inode.expire_attributes(&core.clock);
                target.inode.note_parent(from, learned);
            }
            // Two names of one object: nothing was replaced.
            Some(target) if step.moved != *target => self.lost_a_name(to, target, replaced),
            _ => {}
        }
    }
}

/// The objects of a rename, found before it began.
pub(crate) struct Step {
    pub(crate) moved: Node,
    pub(crate) target: Option<Node>,
}

/// The meanings of the old and the new name afterwards; `None` for "ask again".
fn targets(step: &Step, mode: RenameMode) -> (Option<Target<'_>>, Option<Target<'_>>) {
    let moved_to = Some(Target::Node(&step.moved));
    match (mode, &step.target) {
        (RenameMode::Exchange, target) => (target.as_ref().map(Target::Node), moved_to),
        // Two names of one object: the store keeps both.
        (_, Some(target)) if *target == step.moved => (None, None),
        (mode, _) if mode.leaves_whiteout() => (None, moved_to),
        _ => (Some(Target::Missing), moved_to),
    }
}
