//! Operations on names and attributes.
//!
//! # Why
//! Everything that can be refused is refused before a handle begins: see V3.

use super::names::GROWTH;
use super::tree::empty_root;
use super::{CREDITS, CREDITS_NAMES, Op, State, Volume, time};
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

/// What is created.
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
    /// [`Error::Exists`], [`Error::NoSpace`], [`Error::TooManyLinks`], names and targets that cannot be.
    pub fn create(&self, parent: u32, name: &[u8], new: &New<'_>) -> Result<u32> {
        check_name(name)?;
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
        if self.image.lookup(&directory, name)?.is_some() {
            return Err(Error::Exists);
        }
        let is_directory = new.kind == Kind::Directory;
        if is_directory {
            add_link(&mut directory, superblock.features.ro_compat & 0x20 != 0)?;
        }
        let (number, transaction) = self.operate(CREDITS_NAMES, GROWTH + 4, |op| {
            let number = op.allocate_inode(parent, is_directory, name)?;
            let now = time::now();
            let mode = new.kind.mode() | new.permissions & 0xFFF;
            let generation = now.nanoseconds ^ (now.seconds as u32).rotate_left(12);
            let mut inode = Inode::fresh(number, mode, generation, superblock)?;
            inode.set_owner(new.uid, new.gid);
            inode.set_links(if is_directory { 2 } else { 1 });
            for which in [Time::Accessed, Time::Modified, Time::Changed, Time::Born] {
                inode.set_time(which, now);
            }
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
            // What was there before had a time of deletion.
            op.change_inode_bytes(number, |bytes| bytes.fill(0))?;
            op.put_inode(&inode, &mut State::default())?;
            op.add_name(&mut directory, name, number, new.kind.entry())?;
            op.touch(&mut directory, &mut state)?;
            Ok((number, op.handle.transaction()))
        })?;
        self.node(number).state.write_as(&EXT_INODE_2).changed = Some(transaction);
        Ok(number)
    }

    /// Gives something that is no directory another name.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn link(&self, number: u32, parent: u32, name: &[u8]) -> Result<()> {
        check_name(name)?;
        if number == parent {
            return Err(Error::IsDirectory);
        }
        let (node, child) = (self.node(parent), self.node(number));
        let mut state = node.state.write();
        let mut child_state = child.state.write_as(&EXT_INODE_2);
        let mut directory = self.directory(parent)?;
        let mut inode = self.load(number)?;
        match inode.kind() {
            Some(Kind::Directory) | None => return Err(Error::IsDirectory),
            Some(_) if inode.links() == 0 => return Err(Error::NotFound),
            Some(_) if inode.links() >= LINKS_MAX => return Err(Error::TooManyLinks),
            Some(_) => {}
        }
        if self.image.lookup(&directory, name)?.is_some() {
            return Err(Error::Exists);
        }
        self.operate(CREDITS_NAMES, GROWTH, |op| {
            let kind = inode.kind().map_or(0, Kind::entry);
            op.add_name(&mut directory, name, number, kind)?;
            op.touch(&mut directory, &mut state)?;
            inode.set_links(inode.links() + 1);
            inode.set_time(Time::Changed, time::now());
            op.put_inode(&inode, &mut child_state)
        })
    }

    /// Removes the name of something that is no directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDirectory`].
    pub fn unlink(&self, parent: u32, name: &[u8]) -> Result<()> {
        self.remove(parent, name, false)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::NotEmpty`].
    pub fn rmdir(&self, parent: u32, name: &[u8]) -> Result<()> {
        self.remove(parent, name, true)
    }

    fn remove(&self, parent: u32, name: &[u8], is_directory: bool) -> Result<()> {
        check_name(name)?;
        let node = self.node(parent);
        let mut state = node.state.write();
        let mut directory = self.directory(parent)?;
        let number = self.image.lookup(&directory, name)?.ok_or(Error::NotFound)?;
        if number == parent {
            return Err(Error::Invalid("a directory has its own number in it"));
        }
        let child = self.node(number);
        let mut child_state = child.state.write_as(&EXT_INODE_2);
        let mut inode = self.load(number)?;
        self.check_victim(&inode, is_directory)?;
        self.operate(CREDITS_NAMES, 0, |op| {
            op.remove_name(&directory, name)?;
            if is_directory {
                drop_link(&mut directory);
            }
            op.touch(&mut directory, &mut state)?;
            op.lose_name(&mut inode, &mut child_state)
        })?;
        drop(state);
        self.delete_unheld(inode, &mut child_state)
    }

    /// Whether something may lose a name, as a directory or as something else.
    fn check_victim(&self, inode: &Inode, as_directory: bool) -> Result<()> {
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
        let mapped = match inode.kind() {
            Some(Kind::Regular | Kind::Directory) => inode.block_bytes() != &[0; 60],
            Some(Kind::Symlink) => inode.size() >= SHORT_LINK as u64,
            _ => false,
        };
        if mapped && !inode.is_by_extents() {
            return Err(Error::NotWritable("it is mapped by tables, not by extents".into()));
        }
        Ok(())
    }

    /// Frees what lost its last name, unless somebody holds it.
    fn delete_unheld(&self, inode: Inode, state: &mut State) -> Result<()> {
        if inode.links() > 0 || self.holds(inode.number) > 0 {
            return Ok(());
        }
        self.delete(inode, state)
    }

    /// Gives something another name, in another directory perhaps; what has that name already loses it.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotEmpty`], [`Error::IsDirectory`], [`Error::NotDirectory`]; [`Error::Invalid`] for a directory
    /// that would come below itself.
    pub fn rename(&self, from: u32, name: &[u8], to: u32, new_name: &[u8]) -> Result<()> {
        check_name(name)?;
        check_name(new_name)?;
        if from == to {
            let node = self.node(from);
            let mut state = node.state.write();
            return self.rename_locked(from, name, &mut state, None, new_name);
        }
        // Nobody else moves anything between directories: who is above whom stays.
        let _moving = self.renames.lock();
        let above = |one: u32, other: u32| -> Result<bool> {
            let mut at = other;
            for _ in 0..self.image.superblock().inodes {
                if at == one || at == ROOT {
                    return Ok(at == one);
                }
                at = self.lookup(at, b"..")?.ok_or(Error::NotFound)?;
            }
            Err(Error::Invalid("directories are above each other"))
        };
        let from_first = above(from, to)? || !above(to, from)? && from < to;
        // The directory that is moved may not be above the one that it comes into.
        if let Some(moved) = self.lookup(from, name)?
            && self.inode(moved)?.kind() == Some(Kind::Directory)
            && above(moved, to)?
        {
            return Err(Error::Invalid("a directory does not come below itself"));
        }
        let (first, second) = if from_first { (from, to) } else { (to, from) };
        let (first, second) = (self.node(first), self.node(second));
        let mut first = first.state.write();
        let mut second = second.state.write_as(&EXT_INODE_2);
        let (state, to_state) =
            if from_first { (&mut *first, &mut *second) } else { (&mut *second, &mut *first) };
        self.rename_locked(from, name, state, Some((to, to_state)), new_name)
    }

    fn rename_locked(
        &self,
        from: u32,
        name: &[u8],
        from_state: &mut State,
        to: Option<(u32, &mut State)>,
        new_name: &[u8],
    ) -> Result<()> {
        let superblock = self.image.superblock();
        let mut source = self.directory(from)?;
        let moved = self.image.lookup(&source, name)?.ok_or(Error::NotFound)?;
        let mut target = match &to {
            Some((number, _)) => Some(self.directory(*number)?),
            None => None,
        };
        let victim = self.image.lookup(target.as_ref().unwrap_or(&source), new_name)?;
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
        let is_directory = self.load(moved)?.kind() == Some(Kind::Directory);
        if let Some(victim) = victim {
            let victim = self.load(victim)?;
            match (is_directory, victim.kind() == Some(Kind::Directory)) {
                (true, false) => return Err(Error::NotDirectory),
                (false, true) => return Err(Error::IsDirectory),
                _ => {}
            }
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
        let mut inode = self.load(moved)?;
        let mut gone = match victim {
            Some(victim) => {
                let gone = self.load(victim)?;
                self.check_victim(&gone, is_directory)?;
                Some(gone)
            }
            None => None,
        };
        let moves_directory = is_directory && target.is_some();
        if let Some(target) = &mut target
            && moves_directory
            && gone.is_none()
        {
            add_link(target, superblock.features.ro_compat & 0x20 != 0)?;
        }
        let mut to_state = to.map(|(_, state)| state);
        self.operate(CREDITS_NAMES, GROWTH, |op| {
            let kind = inode.kind().map_or(0, Kind::entry);
            {
                let into = target.as_mut().unwrap_or(&mut source);
                match gone {
                    Some(_) => op.replace_name(into, new_name, moved, kind)?,
                    None => op.add_name(into, new_name, moved, kind)?,
                }
            }
            op.remove_name(&source, name)?;
            if moves_directory {
                op.set_parent(&inode, to_number)?;
                drop_link(&mut source);
            } else if is_directory && gone.is_some() {
                drop_link(&mut source);
            }
            op.touch(&mut source, from_state)?;
            if let (Some(target), Some(state)) = (&mut target, &mut to_state) {
                op.touch(target, state)?;
            }
            inode.set_time(Time::Changed, time::now());
            op.put_inode(&inode, &mut moved_state)?;
            if let (Some(gone), Some(state)) = (&mut gone, &mut victim_state) {
                op.lose_name(gone, state)?;
            }
            Ok(())
        })?;
        if let (Some(gone), Some(mut state)) = (gone, victim_state) {
            self.delete_unheld(gone, &mut state)?;
        }
        Ok(())
    }

    /// Sets attributes; the time of the change is now.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn set_attributes(&self, number: u32, set: &SetAttributes) -> Result<()> {
        let node = self.node(number);
        let mut state = node.state.write();
        let mut inode = self.load(number)?;
        self.operate(CREDITS, 0, |op| {
            if let Some(permissions) = set.permissions {
                inode.set_permissions(permissions);
            }
            let (uid, gid) = (set.uid.unwrap_or(inode.uid()), set.gid.unwrap_or(inode.gid()));
            inode.set_owner(uid, gid);
            for (which, time) in [(Time::Accessed, set.accessed), (Time::Modified, set.modified)] {
                if let Some(time) = time {
                    inode.set_time(which, time);
                }
            }
            inode.set_time(Time::Changed, time::now());
            op.put_inode(&inode, &mut state)
        })
    }
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
        let start = self.allocate(self.volume.home_of(inode.number), 1)?.start;
        self.put_data(start, 0, 0, target, false)?;
        self.insert_extent(inode, Extent { logical: 0, start, length: 1, unwritten: false })?;
        self.add_blocks(inode, 1)
    }
}
