//! Extended attributes: set and removed, in the inode while they fit there, else in a block.

use super::{CREDITS, Op, Volume, time};
use crate::error::{Error, Result};
use crate::store::Role;
use uvfs_ext::encode::inode::Time;
use uvfs_ext::encode::xattr::{self, Stored};
use uvfs_ext::{Inode, Xattr};

impl Volume {
    /// All extended attributes of an inode.
    ///
    /// # Errors
    /// [`Error::NotFound`]; where they contradict the format.
    pub fn xattrs(&self, number: u32) -> Result<Vec<Xattr>> {
        let node = self.node(number);
        let _state = node.state.read();
        Ok(self.image.xattrs(&self.load(number)?)?)
    }

    /// Sets an extended attribute, or removes it where there is no value.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that the format has no place for; [`Error::NoSpace`] where it does not fit, or there is no
    /// block for it; [`Error::NotFound`].
    pub fn set_xattr(&self, number: u32, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let split = Stored::split_name(name);
        let (index, rest) = split.ok_or(Error::Invalid("no attribute can have this name"))?;
        let value = match (index, value) {
            (2 | 3, Some(list)) => Some(xattr::acl_from_xattr(list)?),
            (_, value) => value.map(<[u8]>::to_vec),
        };
        let node = self.node(number);
        let mut state = node.state.write();
        let mut inode = self.load(number)?;
        let superblock = self.image.superblock();
        let is_it = |one: &Stored| one.index == index && one.name == rest;
        let mut own = xattr::decode_in_inode(inode.xattr_bytes())?;
        let mut block = match inode.xattr_block() {
            0 => Vec::new(),
            place => xattr::decode_block(&self.store.read(place)?)?,
        };
        let before = (own.clone(), block.clone());
        own.retain(|one| !is_it(one));
        block.retain(|one| !is_it(one));
        if let Some(value) = value {
            let new = Stored { index, name: rest.to_vec(), value };
            own.push(new.clone());
            if xattr::encode_in_inode(&own, inode.xattr_room()).is_none() {
                own.pop();
                block.push(new);
                if xattr::needed(&block) > xattr::block_room(superblock.block_size as usize) {
                    return Err(Error::NoSpace);
                }
            }
        } else if before == (own.clone(), block.clone()) {
            return Err(Error::NotFound);
        }
        self.operate(CREDITS, 1, |op| {
            if block != before.1 {
                op.put_xattr_block(&mut inode, &block)?;
            }
            if own != before.0 {
                let space = xattr::encode_in_inode(&own, inode.xattr_room());
                inode.set_xattr_space(&space.ok_or(Error::NoSpace)?);
            }
            inode.set_time(Time::Changed, time::now());
            op.put_inode(&inode, &mut state)
        })
    }
}

impl Op<'_> {
    /// Gives an inode a block with these attributes, or none if there are none.
    fn put_xattr_block(&mut self, inode: &mut Inode, stored: &[Stored]) -> Result<()> {
        let superblock = self.volume.image.superblock();
        let old = inode.xattr_block();
        let alone = old != 0 && xattr::references(&self.handle.read(old)?) <= 1;
        if stored.is_empty() {
            return self.release_xattr_block(inode);
        }
        let place = if alone {
            old
        } else {
            // One that others have too stays as it is for them.
            let place = self.allocate(self.volume.home_of(inode.number), 1)?.start;
            if old != 0 {
                self.release_xattr_block(inode)?;
            }
            self.add_blocks(inode, 1)?;
            inode.set_xattr_block(place);
            place
        };
        let block = xattr::encode_block(stored, 1, place, superblock).ok_or(Error::NoSpace)?;
        self.handle.replace(place, Role::Inodes, block);
        Ok(())
    }

    /// Takes the block of attributes from an inode; the last one that has it frees it.
    pub(super) fn release_xattr_block(&mut self, inode: &mut Inode) -> Result<()> {
        let superblock = self.volume.image.superblock();
        let place = inode.xattr_block();
        let left = self.handle.modify(place, Role::Inodes, |block| {
            let left = xattr::references(block).saturating_sub(1);
            xattr::set_references(block, left, place, superblock);
            left
        })?;
        inode.set_xattr_block(0);
        self.add_blocks(inode, -1)?;
        if left == 0 { self.free_metadata(place..place + 1) } else { Ok(()) }
    }
}
