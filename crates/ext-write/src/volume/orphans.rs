//! Inodes without names that still exist: open ones, and those whose blocks are being freed.
//!
//! # Why
//! Freeing a large file takes many transactions. After a crash the list of orphans, through the superblock and the inodes' times
//! of deletion, names the unfinished ones. A file that is being truncated is in it, too, with names: the next writer frees its end
//! again. An orphan that comes and goes in one transaction, as that of most removes, is never in the list on the disk: each remove
//! wrote its inode there twice under one lock. The superblock gets the first inode of the list when a transaction is closed, and only if
//! it differs from the one before: nothing reads it earlier, and a superblock that a crash tears between its two sectors cannot be read.
//! Weakness: the thread that closes a transaction links all that are left of it.
//!
//! # Concurrency
//! ```text
//!   list_orphan ─▶ New ─── closing (no handle is open) ──▶ Linked
//!                   └─ unlist_orphan: memory only            └─ unlist_orphan: out of the chain of inodes
//! ```
//! L1. Each orphan is new or linked. An inode becomes or ceases to be one under its lock, in a handle.
//! L2. The chain on the disk, as the running transaction has it, is that of the linked ones. When a transaction is closed all are
//!     linked: so what is committed has exactly the orphans that it needs.
//! L3. The inode's block of a new one is in the running transaction, from the handle that made it an orphan. So linking it adds no
//!     block, reads nothing and cannot fail. A new one has no time of deletion.
//! L4. While it is linked it is in its shard: readers without a handle find it.

use super::operations::is_by_tables;
use super::undo::{Op, Step};
use super::{CREDITS, SHARDS, State, Volume, spread};
use crate::error::{Error, Result};
use crate::hashing::Seeded;
use crate::lock_order::EXT_ORPHANS;
use crate::store::{Handle, Role};
use std::collections::{HashMap, HashSet};
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::shard::Shards;
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
    /// The first one in the superblock of the last transaction that has it, or of the image.
    written: u32,
}

impl List {
    fn link(&mut self, number: u32) -> &mut Link {
        self.links.get_mut(&number).expect("an inode that the list names is in it")
    }

    /// Puts `number`, which is not in the list, in front of it; returns the next one.
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
}

/// Some of the orphans (L1).
#[derive(Debug, Default)]
struct Shard {
    new: HashSet<u32, Seeded>,
    linked: HashSet<u32, Seeded>,
}

#[derive(Debug)]
pub(super) struct Orphans {
    shards: Shards<Shard>,
    list: Mutex<List>,
}

impl Orphans {
    pub(super) fn new(superblock: Superblock) -> Self {
        let written = superblock.last_orphan();
        let list = List { links: HashMap::default(), superblock, written };
        Self { shards: Shards::new(&EXT_ORPHANS, SHARDS), list: Mutex::new(&EXT_ORPHANS, list) }
    }

    fn shard(&self, number: u32) -> &Mutex<Shard> {
        self.shards.of_hash(spread(number))
    }

    /// All of the sets that `which` names, in the order of their numbers.
    fn those(&self, which: impl Fn(&Shard) -> Vec<u32>) -> Vec<u32> {
        let mut found: Vec<u32> =
            self.shards.iter().flat_map(|shard| which(&shard.lock())).collect();
        found.sort_unstable();
        found
    }

    /// The superblock, if the list does not begin as in the one that was taken last.
    pub(super) fn take_changed(&self) -> Option<Superblock> {
        let mut list = self.list.lock();
        let first = list.superblock.last_orphan();
        (std::mem::replace(&mut list.written, first) != first).then(|| list.superblock.clone())
    }

    /// The superblock with the beginning of the list.
    pub(super) fn superblock(&self) -> Superblock {
        self.list.lock().superblock.clone()
    }

    pub(super) fn has(&self, number: u32) -> bool {
        let shard = self.shard(number).lock();
        shard.new.contains(&number) || shard.linked.contains(&number)
    }
}

impl Op<'_> {
    /// Puts an inode into the list, if it is not in it.
    pub(super) fn add_orphan(&mut self, number: u32) -> Result<()> {
        self.may_fail()?;
        if self.list_orphan(number)? {
            self.record(Step::AddedOrphan(number));
        }
        Ok(())
    }

    /// Takes an inode out of the list, if it is in it.
    pub(super) fn remove_orphan(&mut self, number: u32) -> Result<()> {
        self.may_fail()?;
        if self.unlist_orphan(number)? {
            self.record(Step::RemovedOrphan(number));
        }
        Ok(())
    }

    /// Makes an inode an orphan; false if it is one. If it fails, nothing is changed.
    pub(super) fn list_orphan(&mut self, number: u32) -> Result<bool> {
        let orphans = &self.volume.orphans;
        if orphans.has(number) {
            return Ok(false);
        }
        // L3.
        let (block, _) = self.volume.place_of(number)?;
        self.handle.modify(block, Role::Inodes, |_| ())?;
        orphans.shard(number).lock().new.insert(number);
        Ok(true)
    }

    /// Makes an inode no orphan; false if it is none. If it fails, nothing is changed.
    pub(super) fn unlist_orphan(&mut self, number: u32) -> Result<bool> {
        let shard = self.volume.orphans.shard(number);
        let mut orphans = shard.lock();
        let is_linked = orphans.linked.contains(&number);
        let was_new = orphans.new.remove(&number);
        drop(orphans);
        if is_linked {
            self.unlink(number)?;
            shard.lock().linked.remove(&number);
        }
        Ok(is_linked || was_new)
    }

    /// Takes an inode out of the chain. If it fails, nothing is changed.
    fn unlink(&mut self, number: u32) -> Result<()> {
        let mut list = self.volume.orphans.list.lock();
        let link = *list.link(number);
        if link.before != 0 {
            // Of the two, only this one may have to be read.
            self.put_deleted(link.before, link.behind)?;
        }
        if let Err(error) = self.put_deleted(number, 0) {
            if link.before != 0 {
                self.put_deleted(link.before, number)?;
            }
            return Err(error);
        }
        list.remove(number, link);
        Ok(())
    }

    /// Sets the time of deletion of an inode: it is the list's (V2), and each change of the list has its opposite.
    pub(super) fn put_deleted(&mut self, number: u32, deleted: u32) -> Result<()> {
        self.volume.put_deleted(&mut self.handle, number, deleted)
    }
}

impl Op<'_> {
    /// Frees some extents of a file that lie behind block `from`; returns their number.
    fn free_some(&mut self, inode: &mut Inode, from: u64) -> Result<usize> {
        let directory = inode.kind() == Some(uvfs_ext::Kind::Directory);
        let extents = self.remove_extents(inode, from..1 << 32, EXTENTS_AT_ONCE)?;
        for extent in &extents {
            let blocks = extent.start..extent.start + u64::from(extent.length);
            match directory {
                true => self.free_metadata(blocks)?,
                false => self.free_blocks(blocks)?,
            }
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
    fn put_deleted(&self, handle: &mut Handle<'_>, number: u32, deleted: u32) -> Result<()> {
        let superblock = self.image.superblock();
        let (block, place) = self.place_of(number)?;
        handle.modify(block, Role::Inodes, |block| {
            Inode::set_deleted(number, &mut block[place], deleted, superblock);
        })
    }

    /// Links the new orphans. No other handle is open (L2).
    pub(super) fn link_orphans(&self, handle: &mut Handle<'_>) -> Result<()> {
        for number in self.orphans.those(|shard| shard.new.iter().copied().collect()) {
            let mut list = self.orphans.list.lock();
            self.put_deleted(handle, number, list.superblock.last_orphan())?;
            list.push(number);
            drop(list);
            // L4.
            let mut shard = self.orphans.shard(number).lock();
            shard.new.remove(&number);
            shard.linked.insert(number);
        }
        Ok(())
    }

    /// Frees an orphan without names, which this thread has locked.
    pub(super) fn delete(&self, mut inode: Inode, state: &mut State) -> Result<()> {
        let directory = inode.kind() == Some(uvfs_ext::Kind::Directory);
        // An inode with few extents is freed in one step with them.
        let few = inode.is_by_extents() && is_shallow(&inode);
        if !few {
            self.free_extents(&mut inode, 0, state)?;
        }
        self.operate_on(&mut inode, CREDITS, |op, inode| {
            if few {
                op.free_some(inode, 0)?;
            }
            if inode.xattr_block() != 0 {
                op.release_xattr_block(inode)?;
            }
            op.remove_orphan(inode.number)?;
            inode.set_size(0);
            op.put_inode(inode, state)?;
            op.free_inode(inode, directory)
        })?;
        self.drop_reserved(inode.number, 0..u64::MAX);
        Ok(())
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
            // A tree whose end is freed never grows.
            let freed = self.operate_on(inode, CREDITS, |op, inode| {
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

    /// Frees all orphans without names, also those that are held. One that cannot be freed stays in the list, for the next writer.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub(super) fn drop_orphans(&self) -> Result<()> {
        let all = |shard: &Shard| shard.new.union(&shard.linked).copied().collect();
        for number in self.orphans.those(all) {
            let node = self.node(number);
            let mut state = node.state.write();
            if self.orphans.has(number) {
                stays(self.drop_orphan(number, &mut state))?;
            }
        }
        Ok(())
    }

    fn drop_orphan(&self, number: u32, state: &mut State) -> Result<()> {
        let inode = self.load(number)?;
        if inode.links() == 0 { self.delete(inode, state) } else { Ok(()) }
    }

    /// Completes the work that a crash interrupted. An orphan that cannot be freed stays in the list, with its blocks.
    ///
    /// # Errors
    /// [`Error::NotWritable`] for a list that cannot be, or an orphan that is not freed by us; [`Error::Ended`].
    pub(super) fn finish_orphans(&self) -> Result<()> {
        let found = self.listed_orphans()?;
        {
            let mut list = self.orphans.list.lock();
            list.superblock.set_last_orphan(0);
            for number in found.iter().rev() {
                list.push(*number);
            }
        }
        for number in &found {
            self.orphans.shard(*number).lock().linked.insert(*number);
        }
        for number in found {
            let node = self.node(number);
            let mut state = node.state.write();
            stays(self.finish_orphan(number, &mut state))?;
        }
        Ok(())
    }

    fn finish_orphan(&self, number: u32, state: &mut State) -> Result<()> {
        let mut inode = self.load(number)?;
        if inode.links() == 0 {
            return self.delete(inode, state);
        }
        let kept = inode.size().div_ceil(self.block_size());
        self.free_extents(&mut inode, kept, state)?;
        self.operate(CREDITS, |op| op.remove_orphan(number))
    }

    /// The list of orphans as a crash left it.
    pub(super) fn listed_orphans(&self) -> Result<Vec<u32>> {
        let refuse = |why: &str| Err(Error::NotWritable(format!("{why}: let e2fsck look")));
        let (mut found, mut seen) = (Vec::new(), HashSet::<u32, Seeded>::default());
        let mut next = self.orphans.list.lock().superblock.last_orphan();
        while next != 0 {
            let (block, bytes) = self.place_of(next)?;
            let inode =
                Inode::decode(next, &self.store.read(block)?[bytes], self.image.superblock())?;
            if !seen.insert(next) || inode.kind().is_none() {
                return refuse("its list of orphans is wrong");
            }
            if is_by_tables(&inode) {
                return refuse("a file that is to be freed is mapped by tables, not by extents");
            }
            found.push(next);
            next = inode.deleted();
        }
        Ok(found)
    }
}

/// The result for one orphan: only the end of writing concerns the others.
fn stays(done: Result<()>) -> Result<()> {
    match done {
        Err(Error::Ended(why)) => Err(Error::Ended(why)),
        _ => Ok(()),
    }
}
