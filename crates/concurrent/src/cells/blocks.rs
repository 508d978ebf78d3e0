//! Ownership of blocks: each thread that asks leases one, and returns it when the thread ends.
//!
//! # Boundary
//! Ownership only; the users define the content of a block ([`super`] and the lock meter's table).
//!
//! # Concurrency
//! One raw lock, taken at a thread's first request and at its end. A thread that visits all blocks follows a chain, which only grows.
//! B1. A block is leased to at most one thread, or free; its memory is never freed.
//! B2. A lease ends in a thread-local destructor. Later events of the thread (other destructors) borrow a free block
//!     for a moment ([`Blocks::borrow`]). So they are not lost, and no second thread ever stores to a leased block.
//!
//! # Why
//! Visits took the lock, too. On 64 simulated cores threads waited for it more than for any other lock, because the sizes
//! by which caches decide about eviction are summed after every few additions.
//!
//! Passing a block on instead of adding it to a common total keeps reports exact. There is no step in which a number is in
//! two places or in none. Weakness: memory for the largest number of threads that ever lived at once.

// These locks are part of the measurement of locks with classes, so they cannot be measured themselves: raw locks, held
// briefly, innermost.
#![allow(clippy::disallowed_types)]

use crate::primitive::raw;
use crate::primitive::unseen::{AtomicU64, Ordering::Relaxed};
use std::cell::Cell;
use std::sync::OnceLock;

/// All blocks of one kind.
pub(crate) struct Blocks<B: 'static> {
    make: fn() -> B,
    first: Next<B>,
    lists: raw::Mutex<Lists<B>>,
    /// The number of blocks made: read by code that divides an amount among all threads.
    made: AtomicU64,
}

struct Lists<B: 'static> {
    last: Option<&'static Link<B>>,
    free: Vec<&'static B>,
}

/// The chain from here on. It is set once, behind what it leads to.
type Next<B> = OnceLock<&'static Link<B>>;

struct Link<B: 'static> {
    block: B,
    next: Next<B>,
}

impl<B: Sync> Blocks<B> {
    /// No blocks yet; `make` makes one.
    pub(crate) const fn new(make: fn() -> B) -> Self {
        Self {
            make,
            first: OnceLock::new(),
            lists: raw::Mutex::new(Lists { last: None, free: Vec::new() }),
            made: AtomicU64::new(0),
        }
    }

    /// Calls `visit` for every block, leased or free. Blocks may change hands meanwhile; one that is made meanwhile may be missing.
    pub(crate) fn each(&self, mut visit: impl FnMut(&'static B)) {
        let mut next = &self.first;
        while let Some(link) = next.get() {
            visit(&link.block);
            next = &link.next;
        }
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
        let link: &'static Link<B> =
            Box::leak(Box::new(Link { block: (self.make)(), next: OnceLock::new() }));
        let end = lists.last.replace(link).map_or(&self.first, |last| &last.next);
        // Only here, under the lock, so it is empty.
        let _ = end.set(link);
        // ORDERING: Relaxed; a number, which may lag.
        self.made.fetch_add(1, Relaxed);
        &link.block
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A sum over all threads waited for the lock by which threads begin and end, and all sums for each other.
    #[test]
    fn a_visit_takes_no_lock_and_finds_all_blocks_that_were_made() {
        static BLOCKS: Blocks<u8> = Blocks::new(|| 7);
        BLOCKS.borrow(|_| BLOCKS.borrow(|_| ()));
        let lists = BLOCKS.lists.lock();
        let mut seen = 0;
        BLOCKS.each(|block| seen += block);
        drop(lists);
        assert_eq!((seen, BLOCKS.made()), (14, 2));
    }
}
