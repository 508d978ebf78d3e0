//! Extended attributes: read, and the block that those have which do not fit into the inode.

use super::{Op, Volume};
use crate::error::{Error, Result};
use crate::store::Role;
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

    /// One of them.
    ///
    /// # Errors
    /// As [`Volume::xattrs`].
    pub fn xattr(&self, number: u32, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let node = self.node(number);
        let _state = node.state.read();
        Ok(self.image.xattr(&self.load(number)?, name)?)
    }

    /// Their names.
    ///
    /// # Errors
    /// As [`Volume::xattrs`].
    pub fn xattr_names(&self, number: u32) -> Result<Vec<Vec<u8>>> {
        let node = self.node(number);
        let _state = node.state.read();
        Ok(self.image.xattr_names(&self.load(number)?)?)
    }
}

impl Op<'_> {
    /// Gives an inode a block with these attributes, or none if there are none.
    pub(super) fn put_xattr_block(&mut self, inode: &mut Inode, stored: &[Stored]) -> Result<()> {
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
