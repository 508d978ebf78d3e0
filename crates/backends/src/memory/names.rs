//! Everything that adds, removes, moves or lists names.
//!
//! # Concurrency
//! The tree lock orders these operations; node locks, one at a time, protect each step.
//!
//! | operation | tree lock | steps, one node lock each |
//! |---|---|---|
//! | lookup | shared | the directory; the object |
//! | create | shared | the directory (owner, group, lists); the directory again (the name) |
//! | unlink | shared | the directory; the object |
//! | rename within a directory, no directory moved or replaced | shared | the directory; both objects |
//! | link, remove a directory, any other rename | alone | as many as they like |
//! | list | none | the directory, a batch at a time; each object |
//!
//! N1. What the shared operations do to *names* is one step under one directory's lock, so each is
//!     atomic among them. The others are atomic since nobody else is in the tree.
//! N2. A directory's `parent`, and whether it is removed, change only while the tree is locked alone.
//! N3. The link count of an object follows its names within the same hold of the tree lock: exact
//!     whenever no operation on them is in flight.
//!
//! # Why
//! One reader-writer lock instead of an order among directories: the checker then proves that no
//! two nodes are ever locked together. Weakness: all lookups touch the tree lock's line, and a
//! rename across directories waits for every lookup in flight.

use super::MemoryBackend;
use super::budget::ENTRY_BYTES;
use super::directory::{Listed, Target};
use super::node::{LINKS_MAX, Node, State};
use super::table::Freed;
use std::sync::Arc;
use uvfs_vfs::{
    Caller, Cookie, Entry, Error, FileKind, InodeId, Listing, Name, NewKind, NewNode, PATH_MAX,
    RenameMode, Result, Timestamp, creation,
};

/// Entries taken from a directory under one lock.
const LIST_BATCH: usize = 128;

/// A name in a directory.
type Place<'a> = (InodeId, Name<'a>);

impl MemoryBackend {
    pub(super) fn lookup_name(&self, parent: InodeId, name: Name<'_>) -> Result<Entry> {
        let _tree = self.tree.read();
        let parent = self.table.get(parent)?;
        loop {
            let target = find(&parent.state.read(), name)?;
            // Gone between the two steps: an unlink or a rename took the name from it. Look again.
            if let Some(node) = self.table.refer(target.inode) {
                return Ok(node.entry());
            }
        }
    }

    pub(super) fn create_named(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
    ) -> Result<Entry> {
        let _tree = self.tree.read();
        let parent = self.table.get(parent)?;
        check_free(&parent.state.read(), name, new.kind.kind())?;
        let node = self.new_node(caller, &parent, new)?;
        let target = Target { inode: node.inode, kind: node.kind };
        self.table.insert(node.clone(), true);
        if let Err(error) = add_name(&parent, name, target) {
            drop(self.table.set_named(node.inode, false));
            drop(self.table.forget(node.inode, 1));
            return Err(error);
        }
        Ok(node.entry())
    }

    pub(super) fn create_without_name(
        &self,
        caller: &Caller,
        parent: InodeId,
        new: &NewNode<'_>,
    ) -> Result<Entry> {
        if new.kind != NewKind::Regular {
            return Err(Error::Invalid("only a regular file can be without a name"));
        }
        let parent = self.table.get(parent)?;
        let node = self.new_node(caller, &parent, new)?;
        {
            let mut state = node.state.write();
            (state.links, state.unnamed) = (0, true);
        }
        self.table.insert(node.clone(), false);
        Ok(node.entry())
    }

    pub(super) fn link_name(
        &self,
        inode: InodeId,
        parent: InodeId,
        name: Name<'_>,
    ) -> Result<Entry> {
        // The reference that the entry carries comes first: it keeps a file without a name from
        // being freed while it gets one.
        let node = self.table.refer(inode).ok_or(Error::Stale)?;
        let linked = self.link_node(&node, parent, name);
        if linked.is_err() {
            drop(self.table.forget(inode, 1));
        }
        linked.map(|()| node.entry())
    }

    pub(super) fn unlink_name(&self, parent: InodeId, name: Name<'_>) -> Result<Freed> {
        let _tree = self.tree.read();
        let parent = self.table.get(parent)?;
        let now = Timestamp::now();
        let target = {
            let mut state = parent.state.write();
            let target = find(&state, name)?;
            if target.is_directory() {
                return Err(Error::IsDirectory);
            }
            state.take_name(name, now)?;
            state.charge.shrink(ENTRY_BYTES);
            target
        };
        Ok(self.drop_link(target, now))
    }

    pub(super) fn remove_directory_name(&self, parent: InodeId, name: Name<'_>) -> Result<Freed> {
        let _tree = self.tree.write();
        let parent = self.table.get(parent)?;
        let target = find(&parent.state.read(), name)?;
        if !target.is_directory() {
            return Err(Error::NotDirectory);
        }
        self.check_empty(target)?;
        let now = Timestamp::now();
        {
            let mut state = parent.state.write();
            state.take_name(name, now)?;
            state.charge.shrink(ENTRY_BYTES);
        }
        Ok(self.drop_link(target, now))
    }

    pub(super) fn rename_name(
        &self,
        from: Place<'_>,
        to: Place<'_>,
        mode: RenameMode,
    ) -> Result<Freed> {
        if from.0 == to.0
            && let Some(freed) = self.rename_within(from.0, from.1, to.1, mode)?
        {
            return Ok(freed);
        }
        self.rename_anywhere(from, to, mode)
    }

    pub(super) fn list_names(
        &self,
        inode: InodeId,
        from: Cookie,
        listing: &mut dyn Listing,
    ) -> Result<()> {
        let directory = self.table.get(inode)?;
        directory.accessed(directory.state.read());
        let mut position = from.0;
        loop {
            let batch = directory.state.read().directory()?.after(position, LIST_BATCH);
            let Some(last) = batch.last() else { return Ok(()) };
            position = last.cookie;
            for listed in &batch {
                if !self.offer(&directory, listed, listing)? {
                    return Ok(());
                }
            }
        }
    }

    /// A new object as `caller` would make it in `parent`, in no table and under no name yet.
    fn new_node(&self, caller: &Caller, parent: &Node, new: &NewNode<'_>) -> Result<Arc<Node>> {
        if let NewKind::Symlink(text) = new.kind {
            match text.len() {
                0 => return Err(Error::NotFound),
                1..=PATH_MAX => {}
                _ => return Err(Error::NameTooLong),
            }
        }
        let (attributes, default) = {
            let state = parent.state.read();
            check_alive(&state)?;
            (parent.attributes(&state), state.default.clone())
        };
        let resolved = creation::resolve(caller, &attributes, default.as_ref(), new);
        let charge = self.budget.take_inode()?;
        let inode = self.table.new_id();
        Ok(Arc::new(Node::new(inode, &new.kind, parent.inode, resolved, charge)?))
    }

    fn link_node(&self, node: &Node, parent: InodeId, name: Name<'_>) -> Result<()> {
        let _tree = self.tree.write();
        let parent = self.table.get(parent)?;
        check_free(&parent.state.read(), name, node.kind)?;
        if node.kind == FileKind::Directory {
            return Err(Error::NotPermitted);
        }
        {
            let state = node.state.read();
            match state.links {
                0 if !state.unnamed => return Err(Error::NotFound),
                LINKS_MAX.. => return Err(Error::TooManyLinks),
                _ => {}
            }
        }
        add_name(&parent, name, Target { inode: node.inode, kind: node.kind })?;
        {
            let mut state = node.state.write();
            state.links += 1;
            state.unnamed = false;
            state.ctime = Timestamp::now();
        }
        // Named and referenced: this frees nothing.
        drop(self.table.set_named(node.inode, true));
        Ok(())
    }

    /// Takes the link of a name that is gone already from its object.
    fn drop_link(&self, target: Target, now: Timestamp) -> Freed {
        // A name keeps its object in the table, and this was one: the object is there.
        let node = self.table.get(target.inode).ok()?;
        let links = {
            let mut state = node.state.write();
            // A directory's one name counts for its own `.` too.
            state.links = if target.is_directory() { 0 } else { state.links.saturating_sub(1) };
            state.ctime = now;
            state.links
        };
        if links == 0 { self.table.set_named(target.inode, false) } else { None }
    }

    fn check_empty(&self, target: Target) -> Result<()> {
        let node = self.table.get(target.inode)?;
        if node.state.read().directory()?.is_empty() { Ok(()) } else { Err(Error::NotEmpty) }
    }

    /// A rename within one directory that leaves directories alone: one step under its lock, beside
    /// other shared operations. `None` if directories take part.
    fn rename_within(
        &self,
        directory: InodeId,
        from: Name<'_>,
        to: Name<'_>,
        mode: RenameMode,
    ) -> Result<Option<Freed>> {
        let _tree = self.tree.read();
        let directory = self.table.get(directory)?;
        let now = Timestamp::now();
        let (moved, step) = {
            let mut state = directory.state.write();
            let moved = find(&state, from)?;
            let there = state.directory()?.get(to.as_bytes());
            if moved.is_directory() || there.is_some_and(|there| there.is_directory()) {
                return Ok(None);
            }
            let step = decide(moved, there, mode)?;
            match step {
                Step::Nothing => return Ok(Some(None)),
                Step::Exchange(other) => {
                    state.put_name(from, other, now)?;
                }
                Step::Move(replaced) => {
                    state.take_name(from, now)?;
                    if replaced.is_some() {
                        state.charge.shrink(ENTRY_BYTES);
                    }
                }
            }
            state.put_name(to, moved, now)?;
            (moved, step)
        };
        self.moved(moved, None, now);
        Ok(Some(match step {
            Step::Move(Some(replaced)) => self.drop_link(replaced, now),
            Step::Exchange(other) => {
                self.moved(other, None, now);
                None
            }
            _ => None,
        }))
    }

    fn rename_anywhere(&self, from: Place<'_>, to: Place<'_>, mode: RenameMode) -> Result<Freed> {
        let _tree = self.tree.write();
        let (source, target) = (self.table.get(from.0)?, self.table.get(to.0)?);
        let moved = find(&source.state.read(), from.1)?;
        let there = {
            let state = target.state.read();
            check_alive(&state)?;
            state.directory()?.get(to.1.as_bytes())
        };
        // Where several rules are broken, this order gives the error that Linux gives.
        if !matches!((mode, there), (RenameMode::NoReplace, Some(_)) | (RenameMode::Exchange, None))
        {
            self.check_loops(moved, &target)?;
        }
        if mode == RenameMode::Replace
            && there.is_some_and(|there| self.check_loops(there, &source).is_err())
        {
            return Err(Error::NotEmpty);
        }
        let step = decide(moved, there, mode)?;
        let now = Timestamp::now();
        match step {
            Step::Nothing => Ok(None),
            Step::Exchange(other) => {
                self.check_loops(other, &source)?;
                check_room(&target, moved, Some(other))?;
                check_room(&source, other, Some(moved))?;
                target.state.write().put_name(to.1, moved, now)?;
                source.state.write().put_name(from.1, other, now)?;
                self.moved(moved, Some(to.0), now);
                self.moved(other, Some(from.0), now);
                Ok(None)
            }
            Step::Move(replaced) => {
                if let Some(replaced) = replaced.filter(Target::is_directory) {
                    self.check_empty(replaced)?;
                }
                if from.0 != to.0 {
                    check_room(&target, moved, replaced)?;
                }
                target.state.write().put_name(to.1, moved, now)?;
                source.state.write().take_name(from.1, now)?;
                // The entry that went away pays for the one that came, or is given back.
                if replaced.is_some() {
                    source.state.write().charge.shrink(ENTRY_BYTES);
                } else {
                    source.state.write().charge.cede(ENTRY_BYTES);
                    target.state.write().charge.adopt(ENTRY_BYTES);
                }
                self.moved(moved, Some(to.0), now);
                Ok(replaced.and_then(|replaced| self.drop_link(replaced, now)))
            }
        }
    }

    /// Refuses to put a directory into itself or below. Needs the tree locked alone.
    fn check_loops(&self, moved: Target, into: &Node) -> Result<()> {
        let mut at = into.inode;
        while moved.is_directory() && at != InodeId::ROOT {
            if at == moved.inode {
                return Err(Error::Invalid("a directory cannot move below itself"));
            }
            at = self.table.get(at)?.state.read().directory()?.parent;
        }
        Ok(())
    }

    /// Notes in an object that its name changed, and in a directory where it is now.
    fn moved(&self, target: Target, parent: Option<InodeId>, now: Timestamp) {
        // An unlink beside us may have freed it already.
        let Ok(node) = self.table.get(target.inode) else { return };
        let mut state = node.state.write();
        state.ctime = now;
        if let (Some(parent), Ok(directory)) = (parent, state.directory_mut()) {
            directory.parent = parent;
        }
    }

    /// Gives one entry to a listing; false when it wants no more.
    fn offer(&self, directory: &Node, listed: &Listed, listing: &mut dyn Listing) -> Result<bool> {
        let name = Name::new(&listed.name)?;
        let next = Cookie(listed.cookie);
        let mut target = listed.target;
        if !listing.wants_attributes() {
            return Ok(listing.add_name(name, next, target.inode.0, target.kind));
        }
        loop {
            if let Some(node) = self.table.refer(target.inode) {
                let taken = listing.add_entry(name, next, node.entry());
                if !taken {
                    drop(self.table.forget(target.inode, 1));
                }
                return Ok(taken);
            }
            // The object is gone: the name is too, or means another one by now.
            match directory.state.read().directory()?.again(listed) {
                Some(now) => target = now,
                None => return Ok(true),
            }
        }
    }
}

impl State {
    /// Makes `name` mean `target`; counts subdirectories and marks the change.
    fn put_name(&mut self, name: Name<'_>, target: Target, now: Timestamp) -> Result<()> {
        let before = self.directory_mut()?.put(name.as_bytes(), target);
        self.links += u32::from(target.is_directory());
        self.links -= u32::from(before.is_some_and(|before| before.is_directory()));
        self.modified(now);
        Ok(())
    }

    /// Removes `name`; counts subdirectories and marks the change.
    fn take_name(&mut self, name: Name<'_>, now: Timestamp) -> Result<()> {
        let before = self.directory_mut()?.remove(name.as_bytes()).ok_or(Error::NotFound)?;
        self.links -= u32::from(before.is_directory());
        self.modified(now);
        Ok(())
    }
}

/// What a rename comes to.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Both names mean one object already.
    Nothing,
    /// One name goes, and replaces what the other one meant.
    Move(Option<Target>),
    /// The other name's object comes back.
    Exchange(Target),
}

fn decide(moved: Target, there: Option<Target>, mode: RenameMode) -> Result<Step> {
    match (mode, there) {
        (RenameMode::NoReplace, Some(_)) => Err(Error::Exists),
        (RenameMode::Exchange, None) => Err(Error::NotFound),
        (_, Some(there)) if there.inode == moved.inode => Ok(Step::Nothing),
        (RenameMode::Exchange, Some(there)) => Ok(Step::Exchange(there)),
        (_, None) => Ok(Step::Move(None)),
        (RenameMode::Replace, Some(there)) => match (moved.is_directory(), there.is_directory()) {
            (true, false) => Err(Error::NotDirectory),
            (false, true) => Err(Error::IsDirectory),
            _ => Ok(Step::Move(Some(there))),
        },
    }
}

fn find(state: &State, name: Name<'_>) -> Result<Target> {
    state.directory()?.get(name.as_bytes()).ok_or(Error::NotFound)
}

/// A removed directory takes no new names.
fn check_alive(state: &State) -> Result<()> {
    state.directory()?;
    if state.links == 0 { Err(Error::NotFound) } else { Ok(()) }
}

/// Whether an object of `kind` can get `name` in this directory.
fn check_free(state: &State, name: Name<'_>, kind: FileKind) -> Result<()> {
    check_alive(state)?;
    if state.directory()?.get(name.as_bytes()).is_some() {
        return Err(Error::Exists);
    }
    if kind == FileKind::Directory && state.links >= LINKS_MAX {
        return Err(Error::TooManyLinks);
    }
    Ok(())
}

/// Whether `directory` can count one more subdirectory, if `moved` in the place of `replaced` is one.
fn check_room(directory: &Node, moved: Target, replaced: Option<Target>) -> Result<()> {
    let more = moved.is_directory() && !replaced.is_some_and(|replaced| replaced.is_directory());
    if more && directory.state.read().links >= LINKS_MAX {
        return Err(Error::TooManyLinks);
    }
    Ok(())
}

/// Puts a new name into a directory, and charges for it.
fn add_name(parent: &Node, name: Name<'_>, target: Target) -> Result<()> {
    let mut state = parent.state.write();
    check_free(&state, name, target.kind)?;
    state.charge.grow(ENTRY_BYTES)?;
    state.put_name(name, target, Timestamp::now())
}
