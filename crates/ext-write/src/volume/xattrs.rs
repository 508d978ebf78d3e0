//! Extended attributes: read, and the block that those have which do not fit into the inode.

use super::Volume;
use super::groups::From;
use super::undo::{Op, Step};
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

    /// The extended attribute `name` of an inode.
    ///
    /// # Errors
    /// As [`Volume::xattrs`].
    pub fn xattr(&self, number: u32, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let node = self.node(number);
        let _state = node.state.read();
        Ok(self.image.xattr(&self.load(number)?, name)?)
    }

    /// Names of an inode's extended attributes.
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
        let alone = old != 0 && xattr::references(&self.volume.image.xattr_block(old)?) <= 1;
        if stored.is_empty() {
            return self.release_xattr_block(inode);
        }
        if alone {
            let block = xattr::encode_block(stored, 1, old, superblock).ok_or(Error::NoSpace)?;
            return self.modify(old, Role::Inodes, |bytes| bytes.copy_from_slice(&block));
        }
        let place = {
            // One that others have too stays as it is for them.
            let home = self.volume.home_of(inode.number);
            let place = self.allocate(home, 1, From::Free)?.start;
            if old != 0 {
                self.release_xattr_block(inode)?;
            }
            self.add_blocks(inode, 1)?;
            inode.set_xattr_block(place);
            place
        };
        let block = xattr::encode_block(stored, 1, place, superblock).ok_or(Error::NoSpace)?;
        self.make(place, Role::Inodes, block);
        Ok(())
    }

    /// Takes the block of attributes from an inode; the last one that has it frees it.
    pub(super) fn release_xattr_block(&mut self, inode: &mut Inode) -> Result<()> {
        self.may_fail()?;
        let place = inode.xattr_block();
        let left = self.change_references(place, |references| references.saturating_sub(1))?;
        self.record(Step::Released(place));
        inode.set_xattr_block(0);
        self.add_blocks(inode, -1)?;
        if left == 0 { self.free_metadata(place..place + 1) } else { Ok(()) }
    }

    /// Takes the release of a block of attributes back.
    pub(super) fn add_reference(&mut self, place: u64) -> Result<()> {
        self.change_references(place, |references| references.saturating_add(1)).map(drop)
    }

    /// Changes how many inodes have the block at `place`; returns the new count.
    fn change_references(&mut self, place: u64, change: impl FnOnce(u32) -> u32) -> Result<u32> {
        let superblock = self.volume.image.superblock();
        self.volume.image.xattr_block(place)?;
        self.handle.modify(place, Role::Inodes, |block| {
            let references = change(xattr::references(block));
            xattr::set_references(block, references, place, superblock);
            references
        })
    }
}
