//! Attributes and extended attributes, changed together in one step.
//!
//! # Why
//! A mode and an access control list hold one right in two places. Between changes of the two, a crash or another thread would
//! see a file with rights that neither grants. So a caller reads the present attributes under the inode's lock, and sets all of
//! them in one step.

use super::flags::{may_change, may_grow};
use super::operations::SetAttributes;
use super::undo::Op;
use super::{CREDITS, State, Volume, time};
use crate::error::{Error, Result};
use uvfs_ext::encode::inode::Time;
use uvfs_ext::encode::xattr::{self, Stored};
use uvfs_ext::{Inode, Kind};

/// The attribute of a file's privileges (capabilities(7)).
const CAPABILITY: &[u8] = b"security.capability";

/// An inode as it is, while no other thread changes it.
#[derive(Debug)]
pub struct Look<'v> {
    volume: &'v Volume,
    /// The inode.
    pub inode: &'v Inode,
}

impl Look<'_> {
    /// One of its extended attributes.
    ///
    /// # Errors
    /// Where they contradict the format.
    pub fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.volume.image.xattr(self.inode, name)?)
    }
}

/// The changes of an inode.
#[derive(Debug, Default)]
pub struct Change {
    /// Attributes to set.
    pub attributes: SetAttributes,
    /// Extended attributes by name: set, or removed where there is no value, if they are there.
    pub xattrs: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// It is `touch`: both times become now, and nothing else changes. An append-only inode allows that.
    pub is_touch: bool,
}

/// The effect of a change of a file's contents on its set-ID bits and capabilities.
#[derive(Clone, Copy)]
pub enum Privileges<'a> {
    /// Nothing.
    Stay,
    /// The file's permission bits become these, and its capabilities are removed.
    Become(&'a dyn Fn(&Inode) -> u16),
}

impl std::fmt::Debug for Privileges<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Privileges::Stay => "Stay",
            Privileges::Become(_) => "Become",
        })
    }
}

/// Extended attributes, where they lie: in the inode, and in its block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Places {
    own: Vec<Stored>,
    block: Vec<Stored>,
}

impl Places {
    fn remove(&mut self, index: u8, name: &[u8]) -> bool {
        let before = self.own.len() + self.block.len();
        let is_it = |one: &Stored| one.index == index && one.name == name;
        self.own.retain(|one| !is_it(one));
        self.block.retain(|one| !is_it(one));
        self.own.len() + self.block.len() < before
    }

    /// Sets one, or removes it; whether it was there.
    fn set(
        &mut self,
        name: &[u8],
        value: Option<&[u8]>,
        inode: &Inode,
        block_size: usize,
    ) -> Result<bool> {
        let split = Stored::split_name(name);
        let (index, rest) = split.ok_or(Error::Invalid("no attribute can have this name"))?;
        let value = match (index, value) {
            (2 | 3, Some(list)) => Some(xattr::acl_from_xattr(list)?),
            (_, value) => value.map(<[u8]>::to_vec),
        };
        let was_there = self.remove(index, rest);
        if let Some(value) = value {
            let new = Stored { index, name: rest.to_vec(), value };
            self.own.push(new.clone());
            if xattr::encode_in_inode(&self.own, inode.xattr_room()).is_none() {
                self.own.pop();
                self.block.push(new);
                if xattr::needed(&self.block) > xattr::block_room(block_size) {
                    return Err(Error::NoSpace);
                }
            }
        }
        Ok(was_there)
    }
}

impl Volume {
    /// Where the extended attributes of a new inode will lie, of which `inode` has the size.
    pub(super) fn first_places(&self, inode: &Inode, xattrs: &[(&[u8], &[u8])]) -> Result<Places> {
        let block_size = self.image.superblock().block_size as usize;
        let mut places = Places::default();
        for (name, value) in xattrs {
            places.set(name, Some(value), inode, block_size)?;
        }
        Ok(places)
    }

    fn places(&self, inode: &Inode) -> Result<Places> {
        let own = xattr::decode_in_inode(inode.xattr_bytes())?;
        let block = match inode.xattr_block() {
            0 => Vec::new(),
            place => xattr::decode_block(&self.image.xattr_block(place)?)?,
        };
        Ok(Places { own, block })
    }

    /// Calls `look` with an inode, which no other thread changes meanwhile. `look` must call no operation.
    ///
    /// # Errors
    /// [`Error::NotFound`]; those of `look`.
    pub fn look<R, E: From<Error>>(
        &self,
        number: u32,
        look: impl FnOnce(&Look<'_>) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        let node = self.node(number);
        let _state = node.state.read();
        look(&Look { volume: self, inode: &self.load(number)? })
    }

    /// Changes an inode as `decide` says after reading it; the time of the change is now. Returns the state
    /// afterwards.
    ///
    /// # Errors
    /// Those of `decide`, and then nothing is changed; [`Error::NotPermitted`] by the inode's flags; [`Error::Invalid`] for a name that the format has no place for;
    /// [`Error::NoSpace`] where an extended attribute does not fit, or there is no block for it; [`Error::NotFound`].
    pub fn change<E: From<Error>>(
        &self,
        number: u32,
        decide: impl FnOnce(&Look<'_>) -> std::result::Result<Change, E>,
    ) -> std::result::Result<Inode, E> {
        let node = self.node(number);
        let mut state = node.state.write();
        let mut inode = self.load(number)?;
        may_grow(&inode)?;
        let change = decide(&Look { volume: self, inode: &inode })?;
        if !change.is_touch {
            may_change(&inode)?;
        }
        self.apply(&mut inode, &mut state, &change)?;
        Ok(inode)
    }

    /// Changes an inode that this thread has locked.
    fn apply(&self, inode: &mut Inode, state: &mut State, change: &Change) -> Result<()> {
        let block_size = self.image.superblock().block_size as usize;
        let places = match change.xattrs.is_empty() {
            true => None,
            false => {
                let before = self.places(inode)?;
                let mut after = before.clone();
                for (name, value) in &change.xattrs {
                    after.set(name, value.as_deref(), inode, block_size)?;
                }
                Some((before, after))
            }
        };
        self.operate_on(inode, CREDITS, |op, inode| {
            if let Some((before, after)) = &places {
                op.put_places(inode, before, after)?;
            }
            let set = &change.attributes;
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
            op.put_times(inode, state)
        })
    }

    /// Removes the rights in `privileges`, before the contents of a file change that this thread has locked.
    pub(super) fn drop_privileges(
        &self,
        inode: &mut Inode,
        state: &mut State,
        privileges: Privileges<'_>,
    ) -> Result<()> {
        let Privileges::Become(permissions) = privileges else { return Ok(()) };
        if inode.kind() != Some(Kind::Regular) {
            return Ok(());
        }
        let permissions = permissions(inode) & 0xFFF;
        let has_xattrs = !inode.xattr_bytes().is_empty() || inode.xattr_block() != 0;
        let capable = has_xattrs && self.image.xattr(inode, CAPABILITY)?.is_some();
        if permissions == inode.mode() & 0xFFF && !capable {
            return Ok(());
        }
        let attributes =
            SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
        let xattrs = if capable { vec![(CAPABILITY.to_vec(), None)] } else { Vec::new() };
        self.apply(inode, state, &Change { attributes, xattrs, is_touch: false })
    }

    /// Sets an extended attribute, or removes it where there is no value.
    ///
    /// # Errors
    /// As [`Volume::change`]; [`Error::NotFound`] if one is to be removed that is not there.
    pub fn set_xattr(&self, number: u32, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.change(number, |look| {
            if value.is_none() {
                Stored::split_name(name)
                    .ok_or(Error::Invalid("no attribute can have this name"))?;
                look.xattr(name)?.ok_or(Error::NotFound)?;
            }
            let xattrs = vec![(name.to_vec(), value.map(<[u8]>::to_vec))];
            Ok::<_, Error>(Change { xattrs, ..Change::default() })
        })
        .map(drop)
    }

    /// Sets attributes; the time of the change is now.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn set_attributes(&self, number: u32, set: &SetAttributes) -> Result<()> {
        let change = Change { attributes: *set, ..Change::default() };
        self.change(number, |_| Ok::<_, Error>(change)).map(drop)
    }
}

impl Op<'_> {
    /// Changes the extended attributes of an inode from the old to the new ones.
    pub(super) fn put_places(
        &mut self,
        inode: &mut Inode,
        before: &Places,
        after: &Places,
    ) -> Result<()> {
        if before.block != after.block {
            self.put_xattr_block(inode, &after.block)?;
        }
        if before.own != after.own {
            let space = xattr::encode_in_inode(&after.own, inode.xattr_room());
            inode.set_xattr_space(&space.ok_or(Error::NoSpace)?);
        }
        Ok(())
    }
}
