//! Ownership of blocks: each thread that asks leases one, and returns it when the thread ends.
//!
//! # Boundary
//! Ownership only; the users define the content of a block ([`super`] and the lock meter's table).
//!
//! # Concurrency
//! One raw lock, taken at a thread's first request, at its end, and by a thread that visits all blocks.
//! B1. A block is leased to at most one thread, or free; its memory is never freed.
//! B2. A lease ends in a thread-local destructor. Later events of the thread (other destructors) borrow a free block
//!     for a moment ([`Blocks::borrow`]). So they are not lost, and no second thread ever stores to a leased block.
//!
//! # Why Passing a block on instead of adding it to a common total keeps reports exact. There is no step in which a
//! number is in two places or in none. Weakness: memory for the largest number of threads that ever lived at once.

// These locks are part of the measurement of locks with classes, so they cannot be measured themselves: raw locks, held
// briefly, innermost.
#![allow(clippy::disallowed_types)]

use crate::primitive::raw;
use crate::primitive::unseen::{AtomicU64, Ordering::Relaxed};
use std::cell::Cell;

/// All blocks of one kind.
pub(crate) struct Blocks<B: 'static> {
    make: fn() -> B,
    lists: raw::Mutex<Lists<B>>,
    /// The number of blocks made: read by code that divides an amount among all threads.
    made: AtomicU64,
}

struct Lists<B: 'static> {
    all: Vec<&'static B>,
    free: Vec<&'static B>,
}

impl<B: Sync> Blocks<B> {
    /// No blocks yet; `make` makes one.
    pub(crate) const fn new(make: fn() -> B) -> Self {
        Self {
            make,
            lists: raw::Mutex::new(Lists { all: Vec::new(), free: Vec::new() }),
            made: AtomicU64::new(0),
        }
    }

    /// Calls `visit` for every block, leased or free. No block changes hands meanwhile.
    pub(crate) fn each(&self, visit: impl FnMut(&'static B)) {
        self.lists.lock().all.iter().copied().for_each(visit);
    }

    /// The number of blocks made.
    #[inline]
    pub(crate) fn made(&self) -> u64 {
        // ORDERING: Relaxed; a number, which may lag.
        self.made.load(Relaxed)
    }

    /// Runs `work` with a free block that only the caller has meanwhile (B2).
    pub(crate) fn borrow<R>(&self, work: impl FnOnce(&'static B) -> R) -> R {
        let block = self.take();
        let result = work(block);
        self.give_back(block);
        result
    }

    fn take(&self) -> &'static B {
        let mut lists = self.lists.lock();
        if let Some(block) = lists.free.pop() {
            return block;
        }
        let block: &'static B = Box::leak(Box::new((self.make)()));
        lists.all.push(block);
        // ORDERING: Relaxed; a number, which may lag.
        self.made.store(lists.all.len() as u64, Relaxed);
        block
    }

    fn give_back(&self, block: &'static B) {
        self.lists.lock().free.push(block);
    }
}

/// A thread's claim on its block, kept in a thread-local so that it ends with the thread.
pub(crate) struct Lease<B: Sync + 'static> {
    blocks: &'static Blocks<B>,
    block: Cell<Option<&'static B>>,
    /// Makes the thread forget shortcuts to its block, before another thread can own it.
    forget: fn(),
}

impl<B: Sync> Lease<B> {
    /// No block yet.
    pub(crate) const fn new(blocks: &'static Blocks<B>, forget: fn()) -> Self {
        Self { blocks, block: Cell::new(None), forget }
    }

    /// The thread's block, from now to its end.
    pub(crate) fn block(&self) -> &'static B {
        self.block.get().unwrap_or_else(|| {
            let block = self.blocks.take();
            self.block.set(Some(block));
            block
        })
    }
}

impl<B: Sync> Drop for Lease<B> {
    fn drop(&mut self) {
        (self.forget)();
        if let Some(block) = self.block.take() {
            self.blocks.give_back(block);
        }
    }
}
