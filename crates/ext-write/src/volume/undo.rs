//! The steps of an operation, and how they are undone.
//!
//! # Boundary
//! [`Op`] is the part that an operation has in a transaction. Every change of a block goes through a method of `Op` that
//! records a [`Step`]. An operation that fails undoes its steps, the last one first, and the volume continues.
//!
//! # Concurrency
//! U1. A step is recorded as soon as it is done. It is taken back under the inode locks that the operation still holds, and
//!     under the locks of groups and orphans that the step itself takes.
//! U2. Blocks of bitmaps, descriptors and inode tables are shared with other operations of the transaction. A step there is
//!     taken back by its opposite. A block that belongs to a locked inode gets its former contents back.
//! U3. Taking back allocates nothing and reads nothing from the device: the running transaction holds every block that a step
//!     changed. If it fails nevertheless, writing ends.
//! U4. The transaction gets to know of freed blocks only when the operation has succeeded. Until then their contents stay.
//!
//! # Why
//! A transaction cannot commit half an operation. Without an undo, an operation had to reserve all blocks that it might need, and
//! any other failure halfway ended writing for all users: a full index of one directory was enough. Weakness: each changed block
//! of names and trees is copied once for each change.

use super::Volume;
use super::groups::{BlockChange, From, Use};
use crate::error::Result;
use crate::store::{Handle, Role};
use std::ops::Range;
use std::sync::Arc;
use uvfs_ext::Inode;

/// One thing that an operation did.
#[derive(Debug)]
pub(super) enum Step {
    /// It changed a block of names, of a tree or of attributes that had these contents.
    Changed(u64, Arc<[u8]>),
    /// It gave contents to a block that was free.
    Made(u64),
    /// It changed the bytes of an inode in the table.
    Inode(u32, Box<[u8]>),
    /// It allocated blocks.
    Allocated(Range<u64>, From),
    /// It freed blocks.
    Freed(Range<u64>),
    /// It allocated an inode; whether for a directory.
    AllocatedInode(u32, bool),
    /// It freed an inode; whether of a directory.
    FreedInode(u32, bool),
    /// It put an inode into the list of orphans.
    AddedOrphan(u32),
    /// It took an inode out of that list.
    RemovedOrphan(u32),
    /// It took a reference from a block of attributes that inodes share.
    Released(u64),
    /// It counted this many holds of a new inode.
    Held(u32, i64),
}

/// One operation's part of a transaction.
#[derive(Debug)]
pub(super) struct Op<'v> {
    pub(super) volume: &'v Volume,
    pub(super) handle: Handle<'v>,
    steps: Vec<Step>,
    /// Freed blocks, and whether they held metadata.
    freed: Vec<(Range<u64>, bool)>,
    /// An allocation found no block: a commit may bring some.
    pub(super) lacks_blocks: bool,
    /// Blocks that the inode of the operation has reserved for nodes, and that are left.
    pub(super) nodes: u64,
}

impl<'v> Op<'v> {
    pub(super) fn new(volume: &'v Volume, handle: Handle<'v>) -> Self {
        Self { volume, handle, steps: Vec::new(), freed: Vec::new(), lacks_blocks: false, nodes: 0 }
    }

    /// Every method that changes something begins with this; a test makes it fail.
    pub(super) fn may_fail(&self) -> Result<()> {
        #[cfg(test)]
        failing::count()?;
        Ok(())
    }

    pub(super) fn record(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Changes a block that belongs to a locked inode.
    pub(super) fn modify<R>(
        &mut self,
        block: u64,
        role: Role,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        self.may_fail()?;
        let (before, changed) = self.handle.modify_keeping(block, role, change)?;
        self.record(Step::Changed(block, before));
        Ok(changed)
    }

    /// Gives contents to a block that this operation allocated.
    pub(super) fn make(&mut self, block: u64, role: Role, bytes: Vec<u8>) {
        self.handle.replace(block, role, bytes);
        self.record(Step::Made(block));
    }

    /// Changes the bytes of an inode in the table, which this thread has locked.
    pub(super) fn change_inode_bytes(
        &mut self,
        number: u32,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        self.may_fail()?;
        let (block, place) = self.volume.place_of(number)?;
        let before = self.handle.modify(block, Role::Inodes, |block| {
            let before = block[place.clone()].into();
            change(&mut block[place]);
            before
        })?;
        self.record(Step::Inode(number, before));
        Ok(())
    }

    /// `blocks` were freed; of metadata, they leave the transaction.
    pub(super) fn note_freed(&mut self, blocks: Range<u64>, metadata: bool) {
        self.freed.push((blocks.clone(), metadata));
        self.record(Step::Freed(blocks));
    }

    /// The operation has succeeded.
    pub(super) fn succeed(&mut self) {
        for (blocks, metadata) in std::mem::take(&mut self.freed) {
            if metadata {
                self.handle.forget(blocks.clone());
            } else if self.volume.is_journaled() {
                self.forget_data(blocks.clone());
            }
            self.handle.free(blocks);
        }
    }

    /// The operation has failed: undoes its steps.
    ///
    /// # Errors
    /// See U3: writing has to end.
    pub(super) fn undo(&mut self) -> Result<()> {
        while let Some(step) = self.steps.pop() {
            self.undo_step(step)?;
        }
        Ok(())
    }

    fn undo_step(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Changed(block, before) => self.handle.restore(block, before),
            Step::Made(block) => {
                self.handle.unmake(block);
                Ok(())
            }
            Step::Inode(number, before) => {
                let superblock = self.volume.image.superblock();
                let (block, place) = self.volume.place_of(number)?;
                self.handle.modify(block, Role::Inodes, |block| {
                    Inode::restore(number, &mut block[place], &before, superblock);
                })
            }
            Step::Allocated(blocks, from) => {
                self.change_blocks(blocks, BlockChange::UndoTake(from))
            }
            Step::Freed(blocks) => self.change_blocks(blocks, BlockChange::UndoFree),
            Step::AllocatedInode(number, directory) => {
                self.change_inode_use(number, directory, Use::Free)
            }
            Step::FreedInode(number, directory) => {
                self.change_inode_use(number, directory, Use::Taken)
            }
            Step::AddedOrphan(number) => self.unlist_orphan(number).map(drop),
            Step::RemovedOrphan(number) => self.list_orphan(number).map(drop),
            Step::Released(block) => self.add_reference(block),
            Step::Held(number, holds) => {
                self.volume.change_holds(number, -holds);
                self.volume.unnamed(number, Some(false));
                Ok(())
            }
        }
    }
}

/// Failures that tests ask for.
#[cfg(test)]
pub(super) mod failing {
    use crate::error::{Error, Result};
    use std::cell::Cell;

    thread_local! {
        /// So many steps of this thread succeed before one fails.
        static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// One step after `left` others fails. `None`: none does.
    pub(crate) fn after(left: Option<u32>) {
        LEFT.set(left);
    }

    /// Whether the failure has not come yet.
    pub(crate) fn is_ahead() -> bool {
        LEFT.get().is_some()
    }

    pub(super) fn count() -> Result<()> {
        match LEFT.get() {
            Some(0) => {
                LEFT.set(None);
                Err(Error::Io(std::io::Error::other("a test wants it")))
            }
            left => {
                LEFT.set(left.map(|left| left - 1));
                Ok(())
            }
        }
    }
}
