//! Everything that adds, removes, moves or lists names.
//!
//! # Concurrency
//! An operation locks everything that it changes, all at once, and so is atomic to all others. See Linux'
//! `Documentation/filesystems/directory-locking`: the parents' locks are enough for every operation, except that one
//! thread at a time may move a directory to another parent.
//!
//! | operation | moves | directories, by rising id | then objects that are none |
//! |---|---|---|---|
//! | lookup | | the parent, shared | |
//! | create | | the parent, shared (owner, group, lists); then alone (the name) | |
//! | link, unlink | | the parent | the object |
//! | remove a directory | | the parent, the directory | |
//! | rename | if a directory changes its parent | both parents, a directory that is replaced | a file that is replaced |
//! | list | | the directory, shared, a batch at a time | each object, after that |
//!
//! Lock order: moves; up to three directories, by their ids; one other object; a shard of the table. Ids never change,
//! where ancestry would. An operation finds its objects under a lock. If it finds a directory that it does not hold, it
//! releases its locks, takes all of them in order, and checks that the name still has the same target.
//!
//! N1. A name's target changes only under its directory's lock. A directory that is to get a name has links, and the operation
//!     checks that under its lock; an operation that removes its last link, under that lock, checks that it is empty.
//! N2. The link count of an object that is no directory changes under its own lock, while the lock of the directory with the
//!     name is held: under either lock, names and counts agree. A directory's counts change with its names.
//! N3. A named object is in the table, marked so, while the directory of the name is locked. An object's mark changes under
//!     the object's lock, in the step in which its links become 0 or leave it.
//! N4. A directory's parent changes only under `moves`, and while both parents are locked. So no thread changes the ancestry
//!     under a holder of `moves`: a directory with an entry, or that is locked and has links, has all its ancestors, since
//!     none of them is empty.
//! N5. Times of a moved object are set after its names, before the operation returns.
//!
//! Possible faults, and the reason why each cannot happen:
//! * *A directory moved below itself*: the moving thread walks up from the target, under `moves` (N4).
//! * *Two directories moved into each other*: the second move finds the first above its target.
//! * *An object made in a directory that is removed or replaced, even if still open*: both need the directory's lock,
//!   and one of them finds an entry, or no links (N1).
//! * *A rename over a directory that is not empty any more*: it is locked with the parents, and then checked.
//! * *Renames that cross, or exchange, or a removal of a child older than its parent*: the order is by ids.
//! * *A link beside the last unlink*: name and count change in one step, so the link is first, or finds no links and
//!   fails (N2). A file without a name so far is marked as named before an unlink of its new name can clear the mark
//!   (N3).
//! * *A lookup beside an unlink*: the found object is referenced before the directory is unlocked (N3).
//!
//! Weakness: names of one directory wait for each other. While a move walks up to the root, the parents stay locked.

use super::MemoryBackend;
use super::budget::ENTRY_BYTES;
use super::directory::{Listed, Target};
use super::node::{LINKS_MAX, Node, State};
use super::table::{Freed, pause};
use crate::lock_order;
use std::sync::Arc;
use uvfs_concurrent::lock::{LockClass, RwLockWriteGuard};
use uvfs_vfs::{
    Caller, Cookie, Creation, Entry, Error, FileId, FileKind, FileRef, InodeId, Listing, Name,
    Names, NewKind, NewNode, OpenMode, PATH_MAX, RenameMode, Result, Timestamp, creation,
};

/// Entries taken from a directory under one lock.
const LIST_BATCH: usize = 128;

/// A name in a directory.
type Place<'a> = (InodeId, Name<'a>);

impl Names for MemoryBackend {
    fn lookup(&self, _: &Caller, parent: InodeId, name: Name<'_>) -> Result<Entry> {
        let parent = self.table.get(parent)?;
        loop {
            let node = {
                let state = parent.state.read();
                let target = find(&state, name)?;
                self.table.refer(target.inode).ok_or(Error::Corrupt("a name without an object"))?
            };
            pause();
            let entry = node.entry();
            if entry.attributes.links > 0 {
                return Ok(entry);
            }
            // It lost its last name between the two steps. Look again.
            drop(self.table.forget(node.inode, 1));
        }
    }

    fn list(&self, directory: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()> {
        let directory = self.table.get(directory.inode)?;
        self.accessed(&directory, directory.state.read());
        let mut position = from.0;
        loop {
            let batch = directory.state.read().directory()?.below(position, LIST_BATCH);
            let Some(last) = batch.last() else { return Ok(()) };
            position = last.cookie;
            for listed in &batch {
                if !self.offer(&directory, listed, listing)? {
                    return Ok(());
                }
            }
        }
    }

    fn unlink(&self, _: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        self.unlink_name(parent, name).map(drop)
    }

    fn remove_directory(&self, _: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        self.remove_directory_name(parent, name).map(drop)
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (InodeId, Name<'_>),
        to: (InodeId, Name<'_>),
        mode: RenameMode,
    ) -> Result<()> {
        if !mode.leaves_whiteout() {
            return self.rename_name(from, to, mode, None).map(drop);
        }
        let node = self.new_node(caller, &*self.table.get(from.0)?, None, &NewNode::WHITEOUT)?;
        let whiteout = Target { inode: node.inode, kind: node.kind };
        self.table.insert(node, false);
        let renamed = self.rename_name(from, to, mode, Some(whiteout));
        // Without a name, it is freed.
        drop(self.table.forget(whiteout.inode, 1));
        renamed.map(drop)
    }
}

impl Creation for MemoryBackend {
    fn create(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
    ) -> Result<Entry> {
        let parent = self.table.get(parent)?;
        let node = self.new_node(caller, &parent, Some(name), new)?;
        let target = Target { inode: node.inode, kind: node.kind };
        self.table.insert(node.clone(), true);
        if let Err(error) = add_name(&parent, name, target) {
            drop(self.table.set_named(node.inode, false));
            drop(self.table.forget(node.inode, 1));
            return Err(error);
        }
        Ok(node.entry())
    }

    fn create_unnamed(
        &self,
        caller: &Caller,
        parent: InodeId,
        new: &NewNode<'_>,
        _: OpenMode,
    ) -> Result<(Entry, FileId)> {
        Ok((self.create_without_name(caller, parent, new)?, FileId::NONE))
    }

    fn link(&self, _: &Caller, inode: InodeId, parent: InodeId, name: Name<'_>) -> Result<Entry> {
        // The reference of the entry is taken first: it keeps a file without a name from being freed while it gets one.
        let node = self.table.refer(inode).ok_or(Error::Stale)?;
        let linked = self.link_node(&node, parent, name);
        if linked.is_err() {
            drop(self.table.forget(inode, 1));
        }
        linked.map(|()| node.entry())
    }
}

impl MemoryBackend {
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
        let node = self.new_node(caller, &parent, None, new)?;
        {
            let mut state = node.state.write();
            (state.links, state.unnamed) = (0, true);
        }
        self.table.insert(node.clone(), false);
        Ok(node.entry())
    }

    pub(super) fn unlink_name(&self, parent: InodeId, name: Name<'_>) -> Result<Freed> {
        let parent = self.table.get(parent)?;
        let mut state = parent.state.write();
        let target = find(&state, name)?;
        if target.is_directory() {
            return Err(Error::IsDirectory);
        }
        let now = Timestamp::now();
        state.take_name(name, now)?;
        state.charge.shrink(ENTRY_BYTES);
        self.drop_link(target, now)
    }

    pub(super) fn remove_directory_name(&self, parent: InodeId, name: Name<'_>) -> Result<Freed> {
        let parent = self.table.get(parent)?;
        loop {
            let target = find(&parent.state.read(), name)?;
            if !target.is_directory() {
                return Err(Error::NotDirectory);
            }
            // Gone since: the name is, too.
            let Ok(victim) = self.table.get(target.inode) else { continue };
            let mut held = Held::lock([Some(&parent), Some(&victim), None]);
            let (parent, victim) = (held.place(&parent), held.place(&victim));
            if find(held.at(parent), name).ok() != Some(target) {
                continue;
            }
            check_empty(held.at(victim))?;
            let now = Timestamp::now();
            held.at(parent).take_name(name, now)?;
            held.at(parent).charge.shrink(ENTRY_BYTES);
            return Ok(self.drop_links(target, held.at(victim), now));
        }
    }

    pub(super) fn rename_name(
        &self,
        from: Place<'_>,
        to: Place<'_>,
        mode: RenameMode,
        whiteout: Option<Target>,
    ) -> Result<Freed> {
        let source = self.table.get(from.0)?;
        let target = if from.0 == to.0 { source.clone() } else { self.table.get(to.0)? };
        if !source.is_directory() || !target.is_directory() {
            find(&source.state.read(), from.1)?;
            return Err(Error::NotDirectory);
        }
        // A directory that is replaced, once it is known which.
        let mut victim: Option<Arc<Node>> = None;
        let mut moves = None;
        loop {
            let held = Held::lock([Some(&source), Some(&target), victim.as_deref()]);
            match self.rename_held(
                (&source, from.1),
                (&target, to.1),
                (mode, whiteout),
                held,
                moves.is_some(),
            )? {
                Attempt::Done(done, now) => {
                    drop(moves);
                    pause();
                    done.moved.into_iter().flatten().for_each(|moved| self.moved(moved, now));
                    return Ok(done.freed);
                }
                Attempt::NeedsMoves => moves = Some(self.moves.lock()),
                Attempt::Needs(node) => victim = Some(node),
            }
        }
    }

    /// A new object as `caller` would make it in `parent`, under `name` if that is free, in no table and under no
    /// name yet.
    fn new_node(
        &self,
        caller: &Caller,
        parent: &Node,
        name: Option<Name<'_>>,
        new: &NewNode<'_>,
    ) -> Result<Arc<Node>> {
        let (attributes, default) = {
            let state = parent.state.read();
            match name {
                Some(name) => check_free(&state, name, new.kind.kind())?,
                None => check_alive(&state)?,
            }
            (parent.attributes(&state), state.default.clone())
        };
        if let NewKind::Symlink(text) = new.kind {
            match text.len() {
                0 => return Err(Error::NotFound),
                1..=PATH_MAX => {}
                _ => return Err(Error::NameTooLong),
            }
        }
        let resolved = creation::resolve(caller, &attributes, default.as_ref(), new);
        let charge = self.budget.take_inode()?;
        let inode = self.table.new_id();
        Ok(Arc::new(Node::new(inode, &new.kind, parent.inode, resolved, charge)?))
    }

    fn link_node(&self, node: &Node, parent: InodeId, name: Name<'_>) -> Result<()> {
        let parent = self.table.get(parent)?;
        pause();
        let mut directory = parent.state.write();
        check_free(&directory, name, node.kind)?;
        if node.is_directory() {
            return Err(Error::NotPermitted);
        }
        let mut state = node.state.write();
        match state.links {
            0 if !state.unnamed => return Err(Error::NotFound),
            LINKS_MAX.. => return Err(Error::TooManyLinks),
            _ => {}
        }
        let now = Timestamp::now();
        directory.charge.grow(ENTRY_BYTES)?;
        directory.put_name(name, Target { inode: node.inode, kind: node.kind }, now)?;
        state.links += 1;
        state.unnamed = false;
        state.ctime = now;
        // The node has a name and a reference: this frees nothing.
        drop(self.table.set_named(node.inode, true));
        Ok(())
    }

    /// Removes the link of an already removed name from its object, which is no directory. The caller holds the name's
    /// directory.
    fn drop_link(&self, target: Target, now: Timestamp) -> Result<Freed> {
        let node = self.table.get(target.inode)?;
        let mut state = node.state.write();
        state.links = state.links.saturating_sub(1);
        state.ctime = now;
        Ok(if state.links == 0 { self.table.set_named(target.inode, false) } else { None })
    }

    /// Removes the links of an empty directory whose name is already removed; it also counts its own `.`.
    fn drop_links(&self, target: Target, state: &mut State, now: Timestamp) -> Freed {
        state.links = 0;
        state.ctime = now;
        self.table.set_named(target.inode, false)
    }

    /// A rename with both parents locked, or a report of other locks that it needs. Changes nothing unless it succeeds.
    fn rename_held(
        &self,
        from: (&Node, Name<'_>),
        to: (&Node, Name<'_>),
        (mode, whiteout): (RenameMode, Option<Target>),
        mut held: Held<'_>,
        may_move: bool,
    ) -> Result<Attempt> {
        let within = from.0.inode == to.0.inode;
        let (source, target) = (held.place(from.0), held.place(to.0));
        let moved = find(held.at(source), from.1)?;
        check_alive(held.at(target))?;
        let there = held.at(target).directory()?.get(to.1.as_bytes());
        let directories = moved.is_directory() || there.is_some_and(|there| there.is_directory());
        if directories && !within {
            if !may_move {
                return Ok(Attempt::NeedsMoves);
            }
            self.check_ancestry(moved, there, from.0, to.0, mode)?;
        }
        let step = decide(moved, there, mode)?;
        let now = Timestamp::now();
        let mut done = Done { freed: None, moved: [Some(moved), None] };
        match step {
            Step::Nothing => done.moved = [None, None],
            Step::Exchange(other) => {
                if !within {
                    check_room(held.at(target), moved, Some(other))?;
                    check_room(held.at(source), other, Some(moved))?;
                }
                held.at(target).put_name(to.1, moved, now)?;
                held.at(source).put_name(from.1, other, now)?;
                done.moved[1] = Some(other);
                if !within {
                    self.set_parent(moved, to.0)?;
                    self.set_parent(other, from.0)?;
                }
            }
            Step::Move(replaced) => {
                let victim = match replaced.filter(Target::is_directory) {
                    None => None,
                    Some(replaced) => {
                        let node = self.table.get(replaced.inode)?;
                        let Some(place) = held.find(&node) else {
                            return Ok(Attempt::Needs(node));
                        };
                        check_empty(held.at(place))?;
                        Some(place)
                    }
                };
                if !within {
                    check_room(held.at(target), moved, replaced)?;
                }
                if let Some(whiteout) = whiteout {
                    if replaced.is_none() {
                        held.at(target).charge.grow(ENTRY_BYTES)?;
                    }
                    held.at(source).put_name(from.1, whiteout, now)?;
                    drop(self.table.set_named(whiteout.inode, true));
                } else {
                    held.at(source).take_name(from.1, now)?;
                }
                held.at(target).put_name(to.1, moved, now)?;
                // The removed entry's charge pays for the new one, or is returned.
                if whiteout.is_some() {
                    // Both directories have as many entries as they pay for.
                } else if replaced.is_some() {
                    held.at(source).charge.shrink(ENTRY_BYTES);
                } else if !within {
                    held.at(source).charge.cede(ENTRY_BYTES);
                    held.at(target).charge.adopt(ENTRY_BYTES);
                }
                if !within {
                    self.set_parent(moved, to.0)?;
                }
                done.freed = match (replaced, victim) {
                    (Some(replaced), Some(place)) => self.drop_links(replaced, held.at(place), now),
                    (Some(replaced), None) => self.drop_link(replaced, now)?,
                    (None, _) => None,
                };
            }
        }
        Ok(Attempt::Done(done, now))
    }

    /// Refuses a move that would make a loop. If several rules are broken, this order returns the error of Linux. The
    /// caller holds `moves` and both directories.
    fn check_ancestry(
        &self,
        moved: Target,
        there: Option<Target>,
        source: &Node,
        target: &Node,
        mode: RenameMode,
    ) -> Result<()> {
        let loops = Err(Error::Invalid("a directory cannot move below itself"));
        match (mode, there) {
            (mode, Some(_)) if mode.keeps_target() => return Ok(()),
            (RenameMode::Exchange, None) => return Ok(()),
            _ if self.is_within(target, moved)? => return loops,
            _ => {}
        }
        match (mode, there) {
            (mode, Some(there)) if mode.replaces_target() && self.is_within(source, there)? => {
                Err(Error::NotEmpty)
            }
            (RenameMode::Exchange, Some(there))
                if there.inode != moved.inode && self.is_within(source, there)? =>
            {
                loops
            }
            _ => Ok(()),
        }
    }

    /// Whether `node` is the directory `ancestor` or below it. The caller holds `moves`, and `node`, which has a name.
    fn is_within(&self, node: &Node, ancestor: Target) -> Result<bool> {
        if !ancestor.is_directory() {
            return Ok(false);
        }
        if node.inode == ancestor.inode {
            return Ok(true);
        }
        let mut at = node.parent();
        // The root is its own parent.
        while at != ancestor.inode && at != InodeId::ROOT {
            at = self.table.get(at)?.parent();
        }
        Ok(at == ancestor.inode)
    }

    /// Records in a directory its new parent. The caller holds `moves`.
    fn set_parent(&self, target: Target, parent: &Node) -> Result<()> {
        if target.is_directory() {
            self.table.get(target.inode)?.set_parent(parent.inode);
        }
        Ok(())
    }

    /// Notes in an object that its name changed.
    fn moved(&self, target: Target, now: Timestamp) {
        // An unlink beside us may have freed it already.
        let Ok(node) = self.table.get(target.inode) else { return };
        node.state.write().ctime = now;
    }

    /// Passes one entry to a listing; false if it takes no more.
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
            // The object is freed: so its name is removed or has another target by now.
            match directory.state.read().directory()?.again(listed) {
                Some(now) => target = now,
                None => return Ok(true),
            }
        }
    }
}

/// Directories that are locked together.
struct Held<'a> {
    /// By rising id, none twice.
    locked: [Option<(InodeId, RwLockWriteGuard<'a, State>)>; 3],
}

/// Classes of directories that are locked together, in the order in which they are locked.
static CLASSES: [&LockClass; 3] = [
    &lock_order::MEMORY_DIRECTORY,
    &lock_order::MEMORY_DIRECTORY_2,
    &lock_order::MEMORY_DIRECTORY_3,
];

impl<'a> Held<'a> {
    /// Locks these, in the order of their ids.
    fn lock(mut nodes: [Option<&'a Node>; 3]) -> Self {
        nodes.sort_unstable_by_key(|node| node.map(|node| node.inode));
        let mut locked = [None, None, None];
        let mut count = 0;
        let mut last = None;
        for node in nodes.into_iter().flatten() {
            debug_assert!(node.is_directory(), "other objects come after all directories");
            if last != Some(node.inode) {
                pause();
                locked[count] = Some((node.inode, node.state.write_as(CLASSES[count])));
                count += 1;
                last = Some(node.inode);
            }
        }
        Self { locked }
    }

    /// Where `node` is among them, if it is locked.
    fn find(&self, node: &Node) -> Option<usize> {
        let is = |locked: &Option<(InodeId, _)>| {
            locked.as_ref().is_some_and(|(inode, _)| *inode == node.inode)
        };
        self.locked.iter().position(is)
    }

    /// Where `node` is, which was locked here.
    fn place(&self, node: &Node) -> usize {
        self.find(node).expect("it was given to `lock`")
    }

    /// The state at an index that [`Held::find`] or [`Held::place`] returned.
    fn at(&mut self, place: usize) -> &mut State {
        &mut self.locked[place].as_mut().expect("a place in use").1
    }
}

/// The result of an attempt to rename with some directories locked.
enum Attempt {
    Done(Done, Timestamp),
    /// A directory changes its parent, so that `moves` has to be held.
    NeedsMoves,
    /// This directory is replaced, so that it has to be locked as well.
    Needs(Arc<Node>),
}

/// The work that is left after a rename.
struct Done {
    freed: Freed,
    /// The objects that moved.
    moved: [Option<Target>; 2],
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

/// The steps of a rename.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Both names mean one object already.
    Nothing,
    /// One name is removed, and replaces the target of the other one.
    Move(Option<Target>),
    /// The other name's object moves to the first name.
    Exchange(Target),
}

fn decide(moved: Target, there: Option<Target>, mode: RenameMode) -> Result<Step> {
    match (mode, there) {
        (mode, Some(_)) if mode.keeps_target() => Err(Error::Exists),
        (RenameMode::Exchange, None) => Err(Error::NotFound),
        (_, Some(there)) if there.inode == moved.inode => Ok(Step::Nothing),
        (RenameMode::Exchange, Some(there)) => Ok(Step::Exchange(there)),
        (_, None) => Ok(Step::Move(None)),
        (_, Some(there)) => match (moved.is_directory(), there.is_directory()) {
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

fn check_empty(state: &State) -> Result<()> {
    if state.directory()?.is_empty() { Ok(()) } else { Err(Error::NotEmpty) }
}

/// Whether a directory can count one more subdirectory, if `moved` in the place of `replaced` is one.
fn check_room(state: &State, moved: Target, replaced: Option<Target>) -> Result<()> {
    let more = moved.is_directory() && !replaced.is_some_and(|replaced| replaced.is_directory());
    if more && state.links >= LINKS_MAX {
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
