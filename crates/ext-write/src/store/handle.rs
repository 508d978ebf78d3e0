//! One operation's part of the running transaction.

use super::{Role, Store};
use crate::error::{Error, Result};
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

thread_local! {
    static OPEN: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread has a handle: then it must not wait for a holder of another handle, which may need a commit.
pub(crate) fn thread_has_handle() -> bool {
    OPEN.get()
}

/// One operation's part of the running transaction: all of it is stable together, or nothing. It ends when it is dropped.
#[derive(Debug)]
pub struct Handle<'s> {
    store: &'s Store,
    /// The door by which it leaves.
    door: usize,
    transaction: u32,
    credits: usize,
    added: usize,
    changed: bool,
    /// It is the committing thread's own, which the transaction does not wait for.
    is_closing: bool,
}

impl<'s> Handle<'s> {
    pub(super) fn new(store: &'s Store, door: usize, transaction: u32, credits: usize) -> Self {
        assert!(!OPEN.replace(true), "a thread has one handle at most: a second could wait for it");
        Self { store, door, transaction, credits, added: 0, changed: false, is_closing: false }
    }

    pub(super) fn closing(store: &'s Store, transaction: u32) -> Self {
        let credits = usize::MAX;
        Self { store, door: 0, transaction, credits, added: 0, changed: false, is_closing: true }
    }

    /// The transaction that it is a part of.
    pub fn transaction(&self) -> u32 {
        self.transaction
    }

    /// Blocks that it may still add.
    pub fn credits_left(&self) -> usize {
        self.credits.saturating_sub(self.added)
    }

    /// Changes the contents of `block`, which are read if they were not.
    ///
    /// # Errors
    /// Those of the device; then nothing is changed.
    pub fn modify<R>(
        &mut self,
        block: u64,
        role: Role,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        // S2: a thread that froze the buffer or reads it keeps its own copy.
        self.contents(block, role, |bytes| change(Arc::make_mut(bytes)))
    }

    /// Does the same, and returns the contents before the change.
    ///
    /// # Errors
    /// As [`Handle::modify`].
    pub fn modify_keeping<R>(
        &mut self,
        block: u64,
        role: Role,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<(Arc<[u8]>, R)> {
        self.contents(block, role, |bytes| {
            let before = bytes.clone();
            (before, change(Arc::make_mut(bytes)))
        })
    }

    /// Gives `block`, which this handle modified, the contents back that it had before.
    ///
    /// # Errors
    /// None for a block of the running transaction, which is in memory.
    pub fn restore(&mut self, block: u64, before: Arc<[u8]>) -> Result<()> {
        self.contents(block, Role::Inodes, |bytes| *bytes = before)
    }

    /// Takes `block`, which this handle gave contents and which was free before, out of the transaction: it is free again, and
    /// data may go there at once.
    pub fn unmake(&mut self, block: u64) {
        let buffer = self.store.buffers.get(block);
        let mut contents = buffer.contents.lock();
        *contents = super::Contents::default();
        self.store.running.lock().blocks.remove(&block);
    }

    fn contents<R>(
        &mut self,
        block: u64,
        role: Role,
        change: impl FnOnce(&mut Arc<[u8]>) -> R,
    ) -> Result<R> {
        let buffer = self.store.buffers.get(block);
        let mut contents = buffer.contents.lock();
        self.store.load(block, &mut contents)?;
        if contents.transaction != Some(self.transaction) {
            contents.transaction = Some(self.transaction);
            self.store.running.lock().blocks.insert(block, (buffer.clone(), role));
            self.add();
        }
        let bytes = contents.bytes.as_mut().expect("it was read just now");
        self.changed = true;
        Ok(change(bytes))
    }

    /// Gives `block` new contents, whatever it had.
    pub fn replace(&mut self, block: u64, role: Role, bytes: Vec<u8>) {
        debug_assert_eq!(bytes.len(), self.store.block_size);
        self.changed = true;
        let buffer = self.store.buffers.get(block);
        let mut contents = buffer.contents.lock();
        contents.bytes = Some(bytes.into());
        if contents.transaction != Some(self.transaction) {
            contents.transaction = Some(self.transaction);
            self.store.running.lock().blocks.insert(block, (buffer.clone(), role));
            self.add();
        }
    }

    /// The contents of `block` now.
    ///
    /// # Errors
    /// Those of the device.
    pub fn read(&self, block: u64) -> Result<Arc<[u8]>> {
        self.store.read(block)
    }

    /// Revokes `blocks`, which hold no metadata any more: when this transaction is stable, older copies are neither
    /// replayed nor checkpointed.
    pub fn forget(&mut self, blocks: Range<u64>) {
        self.changed = true;
        for block in blocks {
            let buffer = self.store.buffers.get(block);
            let mut contents = buffer.contents.lock();
            *contents = super::Contents::default();
            let mut running = self.store.running.lock();
            running.blocks.remove(&block);
            running.revoked.insert(block);
        }
    }

    /// `blocks` are free, and may be used again when this transaction is stable.
    pub fn free(&mut self, blocks: Range<u64>) {
        self.store.running.lock().freed.push(blocks);
    }

    fn add(&mut self) {
        self.added += 1;
        debug_assert!(
            self.added <= self.credits,
            "an operation took more than its {} credits",
            self.credits
        );
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if self.changed && std::thread::panicking() {
            // Half an operation: S1.
            let why = "an operation panicked halfway, which is a fault of uvfs";
            self.store.end_writing(Error::Ended(why.into()));
        }
        if !self.is_closing {
            OPEN.set(false);
            self.store.end(self.door, self.credits, self.added);
        }
    }
}
