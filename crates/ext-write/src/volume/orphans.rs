//! Inodes without names that are still there: open ones, and those whose blocks are being freed.
//!
//! # Why
//! Freeing a large file takes many transactions. The list of orphans, through the superblock and the inodes' times of deletion,
//! says to whoever opens the image after a crash what was not finished. A file that is cut is in it too, with names: then its
//! end is freed again. What the superblock says of it is brought up to date when a transaction is closed, as its totals are:
//! nobody reads it before.

use super::groups::From;
use super::{CREDITS, Op, State, Volume};
use crate::error::{Error, Result};
use crate::hashing::Seeded;
use crate::lock_order::EXT_ORPHANS;
use std::collections::HashMap;
use uvfs_concurrent::lock::Mutex;
use uvfs_ext::{Inode, Superblock};

/// Extents that one transaction frees.
const EXTENTS_AT_ONCE: usize = 6;

/// An inode of the list, and its neighbours there; 0 for none.
#[derive(Debug, Clone, Copy)]
struct Link {
    before: u32,
    behind: u32,
}

#[derive(Debug)]
struct List {
    links: HashMap<u32, Link, Seeded>,
    /// It names the first one.
    superblock: Superblock,
}

impl List {
    fn link(&mut self, number: u32) -> &mut Link {
        self.links.get_mut(&number).expect("who is named in the list is in it")
    }

    /// Puts `number`, which is not in the list, in front of it; gives the one behind.
    fn push(&mut self, number: u32) -> u32 {
        let behind = self.superblock.last_orphan();
        self.links.insert(number, Link { before: 0, behind });
        if behind != 0 {
            self.link(behind).before = number;
        }
        self.superblock.set_last_orphan(number);
        behind
    }

    /// Takes out `number`, which had these neighbours.
    fn remove(&mut self, number: u32, Link { before, behind }: Link) {
        self.links.remove(&number);
        match before {
            0 => self.superblock.set_last_orphan(behind),
            before => self.link(before).behind = behind,
        }
        if behind != 0 {
            self.link(behind).before = before;
        }
    }

    /// All of them, the first one first.
    fn inodes(&self) -> Vec<u32> {
        let next = |number: u32| self.links.get(&number).map_or(0, |link| link.behind);
        let first = self.superblock.last_orphan();
        let rest = |number: &u32| Some(next(*number)).filter(|number| *number != 0);
        std::iter::successors(Some(first).filter(|number| *number != 0), rest).collect()
    }
}

#[derive(Debug)]
pub(super) struct Orphans(Mutex<List>);

impl Orphans {
    pub(super) fn new(superblock: Superblock) -> Self {
        Self(Mutex::new(&EXT_ORPHANS, List { links: HashMap::default(), superblock }))
    }

    /// The superblock with the beginning of the list.
    pub(super) fn superblock(&self) -> Superblock {
        self.0.lock().superblock.clone()
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.0.lock().links.contains_key(&number)
    }
}

impl Op<'_> {
    /// Puts an inode in front of the list, if it is not in it.
    pub(super) fn add_orphan(&mut self, number: u32) -> Result<()> {
        let volume = self.volume;
        let mut list = volume.orphans.0.lock();
        if list.links.contains_key(&number) {
            return Ok(());
        }
        let next = list.superblock.last_orphan();
        self.change_inode_bytes(number, |bytes| {
            Inode::set_deleted(number, bytes, next, volume.image.superblock());
        })?;
        list.push(number);
        Ok(())
    }

    /// Takes an inode out of the list.
    pub(super) fn remove_orphan(&mut self, number: u32) -> Result<()> {
        let volume = self.volume;
        let mut list = volume.orphans.0.lock();
        let Some(&link) = list.links.get(&number) else { return Ok(()) };
        self.change_inode_bytes(number, |bytes| {
            Inode::set_deleted(number, bytes, 0, volume.image.superblock());
        })?;
        if link.before != 0 {
            self.change_inode_bytes(link.before, |bytes| {
                Inode::set_deleted(link.before, bytes, link.behind, volume.image.superblock());
            })?;
        }
        list.remove(number, link);
        Ok(())
    }
}

impl Op<'_> {
    /// Frees some extents of a file that lie behind block `from`; gives how many, 0 where there are none.
    fn free_some(&mut self, inode: &mut Inode, from: u64) -> Result<usize> {
        let directory = inode.kind() == Some(uvfs_ext::Kind::Directory);
        let extents = self.remove_extents(inode, from..1 << 32, EXTENTS_AT_ONCE)?;
        for extent in &extents {
            let blocks = extent.start..extent.start + u64::from(extent.length);
            if directory {
                self.handle.forget(blocks.clone());
            }
            self.free_blocks(blocks)?;
            self.add_blocks(inode, -i64::from(extent.length))?;
        }
        Ok(extents.len())
    }
}

/// Whether all extents of an inode lie in itself: at most four.
fn is_shallow(inode: &Inode) -> bool {
    inode.block_bytes()[6..8] == [0, 0]
}

impl Volume {
    /// Frees an orphan without names, which this thread has locked.
    pub(super) fn delete(&self, mut inode: Inode, state: &mut State) -> Result<()> {
        let directory = inode.kind() == Some(uvfs_ext::Kind::Directory);
        // What has few extents goes in one step with them.
        let few = inode.is_by_extents() && is_shallow(&inode);
        if !few {
            self.free_extents(&mut inode, 0, state)?;
        }
        self.operate_from(From::Kept, CREDITS, 0, |op| {
            if few {
                op.free_some(&mut inode, 0)?;
            }
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
        loop {
            // A tree that is taken apart may be split once before it shrinks.
            let freed = self.operate_from(From::Kept, CREDITS, 6, |op| {
                let freed = op.free_some(inode, from)?;
                if freed > 0 {
                    op.put_inode(inode, state)?;
                }
                Ok(freed)
            })?;
            if freed == 0 {
                return Ok(());
            }
        }
    }

    /// Frees all orphans without names, whoever holds them.
    pub(super) fn drop_orphans(&self) -> Result<()> {
        let orphans = self.orphans.0.lock().inodes();
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
        {
            let mut list = self.orphans.0.lock();
            list.superblock.set_last_orphan(0);
            for number in found.iter().rev() {
                list.push(*number);
            }
        }
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
