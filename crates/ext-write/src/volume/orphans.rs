//! Inodes without names that are still there: open ones, and those whose blocks are being freed.
//!
//! # Why
//! Freeing a large file takes many transactions. The list of orphans, through the superblock and the inodes' times of deletion,
//! says to whoever opens the image after a crash what was not finished. A file that is cut is in it too, with names: then its
//! end is freed again.

use super::groups::From;
use super::{CREDITS, Op, State, Volume, put_superblock};
use crate::error::{Error, Result};
use crate::lock_order::EXT_ORPHANS;
use uvfs_concurrent::lock::Mutex;
use uvfs_ext::{Inode, Superblock};

/// Extents that one transaction frees.
const EXTENTS_AT_ONCE: usize = 6;

#[derive(Debug)]
struct List {
    /// The first one first.
    inodes: Vec<u32>,
    superblock: Superblock,
}

#[derive(Debug)]
pub(super) struct Orphans(Mutex<List>);

impl Orphans {
    pub(super) fn new(superblock: Superblock) -> Self {
        Self(Mutex::new(&EXT_ORPHANS, List { inodes: Vec::new(), superblock }))
    }

    /// The superblock with the beginning of the list.
    pub(super) fn superblock(&self) -> Superblock {
        self.0.lock().superblock.clone()
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.0.lock().inodes.contains(&number)
    }
}

impl Op<'_> {
    /// Puts an inode in front of the list, if it is not in it.
    pub(super) fn add_orphan(&mut self, number: u32) -> Result<()> {
        let volume = self.volume;
        let mut list = volume.orphans.0.lock();
        if list.inodes.contains(&number) {
            return Ok(());
        }
        let next = list.superblock.last_orphan();
        self.change_inode_bytes(number, |bytes| {
            Inode::set_deleted(number, bytes, next, volume.image.superblock());
        })?;
        list.superblock.set_last_orphan(number);
        list.inodes.insert(0, number);
        put_superblock(&mut self.handle, &list.superblock)
    }

    /// Takes an inode out of the list.
    pub(super) fn remove_orphan(&mut self, number: u32) -> Result<()> {
        let volume = self.volume;
        let mut list = volume.orphans.0.lock();
        let Some(at) = list.inodes.iter().position(|one| *one == number) else { return Ok(()) };
        let next = list.inodes.get(at + 1).copied().unwrap_or(0);
        self.change_inode_bytes(number, |bytes| {
            Inode::set_deleted(number, bytes, 0, volume.image.superblock());
        })?;
        if at == 0 {
            list.superblock.set_last_orphan(next);
            put_superblock(&mut self.handle, &list.superblock)?;
        } else {
            let before = list.inodes[at - 1];
            self.change_inode_bytes(before, |bytes| {
                Inode::set_deleted(before, bytes, next, volume.image.superblock());
            })?;
        }
        list.inodes.remove(at);
        Ok(())
    }
}

impl Volume {
    /// Frees an orphan without names, which this thread has locked.
    pub(super) fn delete(&self, mut inode: Inode, state: &mut State) -> Result<()> {
        let directory = inode.kind() == Some(uvfs_ext::Kind::Directory);
        self.free_extents(&mut inode, 0, state)?;
        self.operate(CREDITS, 0, |op| {
            if inode.xattr_block() != 0 {
                op.release_xattr_block(&mut inode)?;
            }
            op.remove_orphan(inode.number)?;
            inode.set_size(0);
            op.put_inode(&inode, state)?;
            op.free_inode(&inode, directory)
        })
    }

    /// Frees the blocks of a file from block `from` on, in as many transactions as it takes; it is in the list of orphans.
    pub(super) fn free_extents(
        &self,
        inode: &mut Inode,
        from: u64,
        state: &mut State,
    ) -> Result<()> {
        if !inode.is_by_extents() {
            return Ok(());
        }
        let directory = inode.kind() == Some(uvfs_ext::Kind::Directory);
        loop {
            // A tree that is taken apart may be split once before it shrinks.
            let freed = self.operate_from(From::Kept, CREDITS, 6, |op| {
                let extents = op.remove_extents(inode, from..1 << 32, EXTENTS_AT_ONCE)?;
                for extent in &extents {
                    let blocks = extent.start..extent.start + u64::from(extent.length);
                    if directory {
                        op.handle.forget(blocks.clone());
                    }
                    op.free_blocks(blocks)?;
                    op.add_blocks(inode, -i64::from(extent.length))?;
                }
                if !extents.is_empty() {
                    op.put_inode(inode, state)?;
                }
                Ok(extents.len())
            })?;
            if freed == 0 {
                return Ok(());
            }
        }
    }

    /// Frees all orphans without names, whoever holds them.
    pub(super) fn drop_orphans(&self) -> Result<()> {
        let orphans = self.orphans.0.lock().inodes.clone();
        for number in orphans {
            let node = self.node(number);
            let mut state = node.state.write();
            if self.orphans.has(number) {
                let inode = self.load(number)?;
                if inode.links() == 0 {
                    self.delete(inode, &mut state)?;
                }
            }
        }
        Ok(())
    }

    /// Brings to an end what a crash interrupted.
    pub(super) fn finish_orphans(&self) -> Result<()> {
        let mut found = Vec::new();
        let mut next = self.orphans.0.lock().superblock.last_orphan();
        while next != 0 {
            let (block, bytes) = self.place_of(next)?;
            let inode =
                Inode::decode(next, &self.store.read(block)?[bytes], self.image.superblock())?;
            if found.contains(&next) || inode.kind().is_none() {
                return Err(Error::NotWritable(
                    "its list of orphans is wrong: let e2fsck look".into(),
                ));
            }
            found.push(next);
            next = inode.deleted();
        }
        self.orphans.0.lock().inodes = found.clone();
        for number in found {
            let node = self.node(number);
            let mut state = node.state.write();
            let mut inode = self.load(number)?;
            if inode.links() == 0 {
                self.delete(inode, &mut state)?;
            } else {
                let size = u64::from(self.image.superblock().block_size);
                let kept = inode.size().div_ceil(size);
                self.free_extents(&mut inode, kept, &mut state)?;
                self.operate(CREDITS, 0, |op| op.remove_orphan(number))?;
            }
        }
        Ok(())
    }
}
