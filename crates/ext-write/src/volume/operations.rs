//! Operations on names and attributes.
//!
//! # Why
//! Refusals that need no handle come before one begins. An operation that fails later is undone (V3).

use super::change::Places;
use super::flags::{may_change, may_grow};
use super::groups::{From, corrupt};
use super::held::Held;
use super::tree::empty_root;
use super::undo::{Op, Step};
use super::{CREDITS_NAMES, State, Volume, time};
use crate::error::{Error, Result};
use crate::lock_order::{EXT_INODE_2, EXT_INODE_3, EXT_INODE_4};
use std::ops::ControlFlow;
use uvfs_ext::encode::extent::Extent;
use uvfs_ext::encode::inode::Time;
use uvfs_ext::{Inode, Kind, ROOT, Timestamp};

/// Names that a directory can count.
const LINKS_MAX: u16 = 65_000;
/// Bytes of a name.
const NAME_MAX: usize = 255;
/// The longest text of a link that lies in its inode.
const SHORT_LINK: usize = 60;

/// The object to create.
#[derive(Debug, Clone, Copy)]
pub struct New<'a> {
    /// Kind.
    pub kind: Kind,
    /// Permission bits.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major and minor number of a device node.
    pub device: (u32, u32),
    /// The text of a symbolic link.
    pub target: &'a [u8],
    /// Extended attributes that it has from the beginning.
    pub xattrs: &'a [(&'a [u8], &'a [u8])],
}

/// The treatment of an object that has the new name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rename {
    /// It loses the name.
    Replace,
    /// It keeps it, and the rename is refused.
    NoReplace,
    /// It gets the other one's name.
    Exchange,
    /// It loses the name or refuses the rename, and the old name gets a new character device 0/0 of this owner and group.
    Whiteout {
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// It loses the name.
        replaces: bool,
    },
}

impl Rename {
    /// Whether an object that has the new name loses it.
    fn replaces(self) -> bool {
        matches!(self, Self::Replace | Self::Whiteout { .. })
    }
}

/// Attributes to be set.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetAttributes {
    /// Permission bits.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub accessed: Option<Timestamp>,
    /// Last change of data.
    pub modified: Option<Timestamp>,
}

fn check_name(name: &[u8]) -> Result<()> {
    match name {
        b"" | b"." | b".." => Err(Error::Invalid("it is no name")),
        _ if name.len() > NAME_MAX => Err(Error::NameTooLong),
        _ if name.iter().any(|byte| matches!(byte, 0 | b'/')) => {
            Err(Error::Invalid("a name has no slash and no NUL"))
        }
        _ => Ok(()),
    }
}

impl Volume {
    /// A directory that may be changed.
    fn directory(&self, number: u32) -> Result<Inode> {
        let inode = self.load(number)?;
        if inode.kind() != Some(Kind::Directory) {
            return Err(Error::NotDirectory);
        }
        if inode.links() == 0 {
            return Err(Error::NotFound);
        }
        if !inode.is_by_extents() {
            return Err(Error::NotWritable(
                "the directory is mapped by tables, not by extents".into(),
            ));
        }
        Ok(inode)
    }

    /// Makes something new of that name.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NoSpace`], [`Error::TooManyLinks`], names and targets that cannot be; [`Error::NotPermitted`]
    /// by flags.
    pub fn create(&self, parent: u32, name: &[u8], new: &New<'_>) -> Result<u32> {
        Ok(self.make(parent, Some(name), new, 0)?.number)
    }

    /// Creates as [`Volume::create`] does, and returns the object held.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn create_held(&self, parent: u32, name: &[u8], new: &New<'_>) -> Result<Held> {
        self.make(parent, Some(name), new, 1).map(Held)
    }

    /// Makes a regular file without a name near `parent`, held. It may get one by [`Volume::link`]; otherwise it ends with its
    /// last hold, or at the next crash.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn create_unnamed(&self, parent: u32, new: &New<'_>) -> Result<Held> {
        self.make(parent, None, new, 1).map(Held)
    }

    fn make(&self, parent: u32, name: Option<&[u8]>, new: &New<'_>, holds: i64) -> Result<Inode> {
        name.map_or(Ok(()), check_name)?;
        if name.is_none() && new.kind != Kind::Regular {
            return Err(Error::Invalid("only a regular file can be without a name"));
        }
        let superblock = self.image.superblock();
        let target_fits = new.target.len() < superblock.block_size as usize;
        if new.kind == Kind::Symlink
            && (new.target.is_empty() || !target_fits || new.target.contains(&0))
        {
            return Err(Error::Invalid("no link can have this text"));
        }
        let node = self.node(parent);
        let mut state = node.state.write();
        let mut directory = self.directory(parent)?;
        if let Some(name) = name
            && self.image.lookup(&directory, name)?.is_some()
        {
            return Err(Error::Exists);
        }
        may_grow(&directory)?;
        let mode = new.kind.mode() | new.permissions & 0xFFF;
        let places = match new.xattrs {
            [] => Places::default(),
            xattrs => self.first_places(&Inode::fresh(parent, mode, 0, superblock)?, xattrs)?,
        };
        let is_directory = new.kind == Kind::Directory;
        if is_directory {
            add_link(&mut directory, superblock.features.ro_compat & 0x20 != 0)?;
        }
        let (inode, transaction) =
            self.operate_on(&mut directory, CREDITS_NAMES, |op, directory| {
                let owner = (new.uid, new.gid);
                let mut inode = op.new_inode(parent, name.unwrap_or_default(), mode, owner)?;
                let number = inode.number;
                inode.set_links(if is_directory { 2 } else { u16::from(name.is_some()) });
                match new.kind {
                    Kind::Regular | Kind::Directory => {
                        inode.set_has_extents(true);
                        inode.set_block(empty_root());
                    }
                    Kind::CharDevice | Kind::BlockDevice => {
                        inode.set_device(new.device.0, new.device.1)
                    }
                    Kind::Symlink => op.put_target(&mut inode, new.target)?,
                    Kind::Fifo | Kind::Socket => {}
                }
                if is_directory {
                    op.make_directory(&mut inode, parent)?;
                }
                op.put_places(&mut inode, &Places::default(), &places)?;
                // Held before another thread can find it.
                let node = self.node(number);
                self.change_holds(number, holds);
                self.unnamed(number, Some(name.is_none()));
                op.record(Step::Held(number, holds));
                match name {
                    Some(name) => {
                        op.put_inode(&inode, &mut State::default())?;
                        op.add_name(directory, name, number, new.kind.entry())?;
                        op.touch(directory, &mut state)?;
                    }
                    None => {
                        // Its time of deletion, by which it is in the list, comes behind what is written here.
                        op.put_inode(&inode, &mut State::default())?;
                        op.add_orphan(number)?;
                    }
                }
                drop(node);
                Ok((inode, op.handle.transaction()))
            })?;
        let node = self.node(inode.number);
        let mut state = node.state.write_as(&EXT_INODE_2);
        (state.changed, state.reached) = (Some(transaction), Some(transaction));
        drop(state);
        Ok(inode)
    }

    /// Gives something that is no directory another name.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn link(&self, number: u32, parent: u32, name: &[u8]) -> Result<()> {
        self.link_held(number, parent, name).map(|inode| drop(self.forget(inode.0.number)))
    }

    /// Links as [`Volume::link`] does, and returns the object held once more.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn link_held(&self, number: u32, parent: u32, name: &[u8]) -> Result<Held> {
        check_name(name)?;
        if number == parent {
            return Err(Error::IsDirectory);
        }
        let (node, child) = (self.node(parent), self.node(number));
        let mut state = node.state.write();
        let mut child_state = child.state.write_as(&EXT_INODE_2);
        let directory = self.directory(parent)?;
        let inode = self.load(number)?;
        match inode.kind() {
            Some(Kind::Directory) | None => return Err(Error::IsDirectory),
            Some(_) if inode.links() == 0 && !self.unnamed(number, None) => {
                return Err(Error::NotFound);
            }
            Some(_) if inode.links() >= LINKS_MAX => return Err(Error::TooManyLinks),
            Some(_) => {}
        }
        if self.image.lookup(&directory, name)?.is_some() {
            return Err(Error::Exists);
        }
        may_grow(&directory)?;
        may_change(&inode)?;
        let mut both = (directory, inode);
        self.operate_on(&mut both, CREDITS_NAMES, |op, (directory, inode)| {
            let kind = inode.kind().map_or(0, Kind::entry);
            op.add_name(directory, name, number, kind)?;
            op.touch(directory, &mut state)?;
            if inode.links() == 0 {
                op.remove_orphan(number)?;
            }
            inode.set_links(inode.links() + 1);
            inode.set_time(Time::Changed, time::now());
            op.put_inode(inode, &mut child_state)
        })?;
        let (_, inode) = both;
        self.unnamed(number, Some(false));
        self.change_holds(number, 1);
        Ok(Held(inode))
    }

    /// Removes the name of something that is no directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDirectory`]; [`Error::NotPermitted`] by flags.
    pub fn unlink(&self, parent: u32, name: &[u8]) -> Result<()> {
        self.remove(parent, name, false)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::NotEmpty`]; [`Error::NotPermitted`] by flags.
    pub fn rmdir(&self, parent: u32, name: &[u8]) -> Result<()> {
        self.remove(parent, name, true)
    }

    fn remove(&self, parent: u32, name: &[u8], is_directory: bool) -> Result<()> {
        check_name(name)?;
        let node = self.node(parent);
        let mut state = node.state.write();
        let directory = self.directory(parent)?;
        let number = self.image.lookup(&directory, name)?.ok_or(Error::NotFound)?;
        if number == parent {
            return Err(Error::Invalid("a directory has its own number in it"));
        }
        let child = self.node(number);
        let mut child_state = child.state.write_as(&EXT_INODE_2);
        let inode = self.load(number)?;
        may_change(&directory)?;
        self.check_victim(&inode, is_directory)?;
        let mut both = (directory, inode);
        self.operate_on(&mut both, CREDITS_NAMES, |op, (directory, inode)| {
            op.remove_name(directory, name)?;
            if is_directory {
                drop_link(directory);
            }
            op.touch(directory, &mut state)?;
            op.lose_name(inode, &mut child_state)
        })?;
        let (_, inode) = both;
        drop(state);
        self.delete_unheld(inode, &mut child_state);
        Ok(())
    }

    /// Whether something may lose a name in a directory that may lose one, as a directory or as something else.
    fn check_victim(&self, inode: &Inode, as_directory: bool) -> Result<()> {
        may_change(inode)?;
        let is_directory = inode.kind() == Some(Kind::Directory);
        match (is_directory, as_directory) {
            (true, false) => return Err(Error::IsDirectory),
            (false, true) => return Err(Error::NotDirectory),
            _ => {}
        }
        if is_directory {
            let mut empty = true;
            self.image.list(inode, 0, &mut |entry| {
                empty &= matches!(&*entry.name, b"." | b"..");
                if empty { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            if !empty {
                return Err(Error::NotEmpty);
            }
        }
        if is_by_tables(inode) {
            return Err(Error::NotWritable("it is mapped by tables, not by extents".into()));
        }
        Ok(())
    }

    /// Frees an inode that has lost its last name, unless it is held. The name is removed in any case: an inode that cannot be
    /// freed now stays in the list of orphans, for [`Volume::close`] and for the next writer.
    fn delete_unheld(&self, inode: Inode, state: &mut State) {
        if inode.links() == 0 && self.holds(inode.number) == 0 {
            let _ = self.delete(inode, state);
        }
    }

    /// Renames an object, perhaps into another directory; an object that has that name already loses it.
    ///
    /// # Errors
    /// As [`Volume::rename_as`].
    pub fn rename(&self, from: u32, name: &[u8], to: u32, new_name: &[u8]) -> Result<()> {
        self.rename_as(from, name, to, new_name, Rename::Replace)
    }

    /// Renames an object, perhaps into another directory; `how` decides about an object that has that name already.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Exists`], [`Error::NotEmpty`], [`Error::IsDirectory`], [`Error::NotDirectory`];
    /// [`Error::Invalid`] for a directory that would come below itself; [`Error::NotPermitted`] by flags.
    pub fn rename_as(
        &self,
        from: u32,
        name: &[u8],
        to: u32,
        new_name: &[u8],
        how: Rename,
    ) -> Result<()> {
        check_name(name)?;
        check_name(new_name)?;
        if from == to {
            let node = self.node(from);
            let mut state = node.state.write();
            let moved = self.found(from, name)?;
            let victim = self.found(from, new_name)?;
            return self.rename_locked(
                (from, name),
                &mut state,
                None,
                new_name,
                how,
                (moved, victim),
            );
        }
        // No other thread moves anything between directories: the ancestors stay.
        let _moving = self.renames.lock();
        let from_first = self.is_above(from, to)? || !self.is_above(to, from)? && from < to;
        loop {
            let moved = self.lookup(from, name)?;
            let victim = self.lookup(to, new_name)?;
            // Neither may move below itself, and no inode is locked after one of its children.
            if let Some(moved) = moved
                && self.is_directory(moved)?
                && self.is_above(moved, to)?
            {
                return Err(Error::Invalid("a directory does not come below itself"));
            }
            if let Some(victim) = victim
                && self.is_directory(victim)?
                && self.is_above(victim, from)?
            {
                return Err(match how {
                    Rename::Replace | Rename::Whiteout { replaces: true, .. } => Error::NotEmpty,
                    Rename::NoReplace | Rename::Whiteout { .. } => Error::Exists,
                    Rename::Exchange => Error::Invalid("a directory does not come below itself"),
                });
            }
            let (first, second) = if from_first { (from, to) } else { (to, from) };
            let (first, second) = (self.node(first), self.node(second));
            let mut first = first.state.write();
            let mut second = second.state.write_as(&EXT_INODE_2);
            // Renames within a directory do not wait for ours.
            if (moved, victim) != (self.found(from, name)?, self.found(to, new_name)?) {
                continue;
            }
            let (state, to_state) =
                if from_first { (&mut *first, &mut *second) } else { (&mut *second, &mut *first) };
            let to = Some((to, to_state));
            return self.rename_locked((from, name), state, to, new_name, how, (moved, victim));
        }
    }

    /// The inode that `name` means in a directory that this thread has locked.
    fn found(&self, directory: u32, name: &[u8]) -> Result<Option<u32>> {
        Ok(self.image.lookup(&self.directory(directory)?, name)?)
    }

    fn is_directory(&self, number: u32) -> Result<bool> {
        Ok(self.inode(number)?.kind() == Some(Kind::Directory))
    }

    /// Whether directory `one` is `other` or above it. The caller excludes moves of directories.
    fn is_above(&self, one: u32, other: u32) -> Result<bool> {
        // Directories that are above each other would be walked for ever: each walk that is twice as long as the one before
        // looks for the directory at which it began (Brent).
        let (mut at, mut mark, mut steps, mut walk) = (other, 0, 0_u64, 1_u64);
        while at != one && at != ROOT {
            if at == mark {
                return Err(corrupt("directories are above each other", 0));
            }
            steps += 1;
            if steps == walk {
                (mark, steps, walk) = (at, 0, walk * 2);
            }
            at = self.lookup(at, b"..")?.ok_or(Error::NotFound)?;
        }
        Ok(at == one)
    }

    fn rename_locked(
        &self,
        (from, name): (u32, &[u8]),
        from_state: &mut State,
        to: Option<(u32, &mut State)>,
        new_name: &[u8],
        how: Rename,
        (moved, victim): (Option<u32>, Option<u32>),
    ) -> Result<()> {
        let superblock = self.image.superblock();
        let mut source = self.directory(from)?;
        let moved = moved.ok_or(Error::NotFound)?;
        let mut target = match &to {
            Some((number, _)) => Some(self.directory(*number)?),
            None => None,
        };
        match (how, victim) {
            (Rename::NoReplace | Rename::Whiteout { replaces: false, .. }, Some(_)) => {
                return Err(Error::Exists);
            }
            (Rename::Exchange, None) => return Err(Error::NotFound),
            _ => {}
        }
        if victim == Some(moved) {
            return Ok(());
        }
        let to_number = to.as_ref().map_or(from, |(number, _)| *number);
        if victim == Some(from) {
            return Err(Error::NotEmpty);
        }
        if moved == to_number || moved == from || victim == Some(to_number) {
            return Err(Error::Invalid("a directory does not come below itself"));
        }
        let (moved_node, victim_node) = (self.node(moved), victim.map(|victim| self.node(victim)));
        let mut moved_state = None;
        let mut victim_state = None;
        if victim.is_none_or(|victim| moved < victim) {
            moved_state = Some(moved_node.state.write_as(&EXT_INODE_3));
        }
        if let Some(node) = &victim_node {
            let class = if moved_state.is_some() { &EXT_INODE_4 } else { &EXT_INODE_3 };
            victim_state = Some(node.state.write_as(class));
        }
        let mut moved_state =
            moved_state.unwrap_or_else(|| moved_node.state.write_as(&EXT_INODE_4));
        let inode = self.load(moved)?;
        let other = victim.map(|victim| self.load(victim)).transpose()?;
        let is_directory = inode.kind() == Some(Kind::Directory);
        let other_is_directory =
            other.as_ref().is_some_and(|other| other.kind() == Some(Kind::Directory));
        may_change(&source)?;
        may_change(&inode)?;
        let into = target.as_ref().unwrap_or(&source);
        match &other {
            Some(other) => may_change(into).and_then(|()| may_change(other))?,
            None => may_grow(into)?,
        }
        if let Some(other) = &other
            && how.replaces()
        {
            match (is_directory, other_is_directory) {
                (true, false) => return Err(Error::NotDirectory),
                (false, true) => return Err(Error::IsDirectory),
                _ => self.check_victim(other, is_directory)?,
            }
        }
        let uncounted = superblock.features.ro_compat & 0x20 != 0;
        // A directory counts its subdirectories: a rename may add one, remove one, or both.
        let comes = is_directory && target.is_some();
        let goes = other_is_directory && (target.is_some() || how.replaces());
        match (how, &mut target) {
            (Rename::Exchange, Some(target)) => {
                if comes && !goes {
                    add_link(target, uncounted)?;
                    drop_link(&mut source);
                } else if goes && !comes {
                    add_link(&mut source, uncounted)?;
                    drop_link(target);
                }
            }
            (Rename::Exchange, None) => {}
            (_, Some(target)) => {
                if comes && !goes {
                    add_link(target, uncounted)?;
                }
                if comes {
                    drop_link(&mut source);
                }
            }
            (_, None) if goes => drop_link(&mut source),
            (_, None) => {}
        }
        let mut to_state = to.map(|(_, state)| state);
        let mut inodes = (source, target, inode, other);
        self.operate_on(&mut inodes, CREDITS_NAMES, |op, (source, target, inode, other)| {
            let kind = inode.kind().map_or(0, Kind::entry);
            {
                let into = target.as_mut().unwrap_or(source);
                match other {
                    Some(_) => op.replace_name(into, new_name, moved, kind)?,
                    None => op.add_name(into, new_name, moved, kind)?,
                }
            }
            match (&mut *other, &mut victim_state) {
                (Some(other), Some(state)) if how == Rename::Exchange => {
                    let kind = other.kind().map_or(0, Kind::entry);
                    op.replace_name(source, name, other.number, kind)?;
                    if other_is_directory && target.is_some() {
                        op.set_parent(other, from)?;
                    }
                    other.set_time(Time::Changed, time::now());
                    op.put_inode(other, state)?;
                }
                (Some(other), Some(state)) => {
                    op.give_up_name(source, name, how)?;
                    op.lose_name(other, state)?;
                }
                _ => op.give_up_name(source, name, how)?,
            }
            if comes {
                op.set_parent(inode, to_number)?;
            }
            op.touch(source, from_state)?;
            if let (Some(target), Some(state)) = (target, &mut to_state) {
                op.touch(target, state)?;
            }
            inode.set_time(Time::Changed, time::now());
            op.put_inode(inode, &mut moved_state)
        })?;
        let (.., other) = inodes;
        if let (Some(gone), Some(mut state)) = (other, victim_state)
            && how.replaces()
        {
            self.delete_unheld(gone, &mut state);
        }
        Ok(())
    }
}

/// Whether an inode has blocks that tables map: they are not freed by us.
pub(super) fn is_by_tables(inode: &Inode) -> bool {
    let mapped = match inode.kind() {
        Some(Kind::Regular | Kind::Directory) => inode.block_bytes() != &[0; 60],
        Some(Kind::Symlink) => inode.size() >= SHORT_LINK as u64,
        _ => false,
    };
    mapped && !inode.is_by_extents()
}

/// Counts one more directory in another; one with too many to count has 1, where the volume allows it.
fn add_link(directory: &mut Inode, uncounted: bool) -> Result<()> {
    match directory.links() {
        1 => {}
        LINKS_MAX.. if uncounted => directory.set_links(1),
        LINKS_MAX.. => return Err(Error::TooManyLinks),
        links => directory.set_links(links + 1),
    }
    Ok(())
}

fn drop_link(directory: &mut Inode) {
    if directory.links() > 2 {
        directory.set_links(directory.links() - 1);
    }
}

impl Op<'_> {
    /// A directory was changed.
    fn touch(&mut self, directory: &mut Inode, state: &mut State) -> Result<()> {
        let now = time::now();
        directory.set_time(Time::Modified, now);
        directory.set_time(Time::Changed, now);
        self.put_inode(directory, state)
    }

    /// An inode near `parent`, not written yet.
    fn new_inode(
        &mut self,
        parent: u32,
        name: &[u8],
        mode: u16,
        (uid, gid): (u32, u32),
    ) -> Result<Inode> {
        let is_directory = mode & 0xF000 == Kind::Directory.mode();
        let number = self.allocate_inode(parent, is_directory, name)?;
        let now = time::now();
        let generation = now.nanoseconds ^ (now.seconds as u32).rotate_left(12);
        let superblock = self.volume.image.superblock();
        let mut inode = Inode::fresh(number, mode, generation, superblock)?;
        inode.set_owner(uid, gid);
        for which in [Time::Accessed, Time::Modified, Time::Changed, Time::Born] {
            inode.set_time(which, now);
        }
        Ok(inode)
    }

    /// A rename takes its object away from a name of `directory`.
    fn give_up_name(&mut self, directory: &mut Inode, name: &[u8], how: Rename) -> Result<()> {
        let Rename::Whiteout { uid, gid, .. } = how else {
            return self.remove_name(directory, name);
        };
        let kind = Kind::CharDevice;
        let mut inode = self.new_inode(directory.number, name, kind.mode(), (uid, gid))?;
        inode.set_links(1);
        inode.set_device(0, 0);
        let node = self.volume.node(inode.number);
        self.volume.unnamed(inode.number, Some(false));
        self.put_inode(&inode, &mut State::default())?;
        drop(node);
        self.replace_name(directory, name, inode.number, kind.entry())
    }

    /// Something lost a name; its last one puts it into the list of orphans.
    fn lose_name(&mut self, inode: &mut Inode, state: &mut State) -> Result<()> {
        let is_directory = inode.kind() == Some(Kind::Directory);
        inode.set_links(if is_directory { 0 } else { inode.links().saturating_sub(1) });
        inode.set_time(Time::Changed, time::now());
        if inode.links() == 0 {
            self.add_orphan(inode.number)?;
        }
        self.put_inode(inode, state)
    }

    /// The text of a new link.
    fn put_target(&mut self, inode: &mut Inode, target: &[u8]) -> Result<()> {
        inode.set_size(target.len() as u64);
        if target.len() < SHORT_LINK {
            let mut block = [0; 60];
            block[..target.len()].copy_from_slice(target);
            inode.set_block(block);
            return Ok(());
        }
        inode.set_has_extents(true);
        inode.set_block(empty_root());
        let start = self.allocate(self.volume.home_of(inode.number), 1, From::Free)?.start;
        self.put_data(start, 0, 0, target, false)?;
        self.insert_extent(inode, Extent { logical: 0, start, length: 1, unwritten: false })?;
        self.add_blocks(inode, 1)
    }
}
