//! Per-thread cells: words to which only their own thread stores.
//!
//! ```text
//!              chunk 0          chunk 1
//!  block A  ┌ 0 1 2 … 511 ┐  ┌ 512 … ┐      a column is one metric,
//!  block B  └ 0 1 2 … 511 ┘     (none)      a row belongs to one living thread
//! ```
//!
//! # Boundary
//! Adds numbers and sums them up. A metric has an index ([`Slot`]) and a cell in every block; see [`crate::counter`].
//!
//! # Concurrency
//! C1. A block belongs to at most one thread; only its owner stores to its cells and chunk pointers.
//! C2. Blocks and chunks are never moved or freed. When a thread ends, its block passes with its content to the next
//!     thread that starts ([`blocks`]). A sum over all blocks therefore covers ended threads.
//! C3. The cell of a sum only grows (modulo 2^64). A metric that reuses the index of a dropped one records the sum that
//!     it found and subtracts it. So no thread ever stores to another thread's cell.
//!
//! O1. `grow` (Release) → `read` (Acquire): a thread that sees a chunk sees its cells zeroed.
//! Progress: an add is one load and one store, wait-free; a first add may take a lock or allocate.
//! Checked by `model_read_while_growing` and the tests below.
//!
//! # Why
//! A striped counter costs an atomic read-modify-write (7 ns here, more when shared) and 2 KiB. A cell costs a store,
//! and 8 bytes a thread. Weakness: a sum reads every thread's block: for reports, not for hot paths.

use crate::primitive::owned::{AtomicPtr, AtomicU64, Ordering};
use std::ptr;

#[cfg(not(loom))]
pub(crate) mod blocks;
#[cfg(not(loom))]
mod slot;

#[cfg(not(loom))]
pub(crate) use slot::{Slot, threads};

/// Cells of one chunk.
const CELLS: usize = if cfg!(loom) { 2 } else { 512 };
/// Chunks of one block. With [`CELLS`] this bounds the number of metrics with cells.
const CHUNKS: usize = if cfg!(loom) { 2 } else { 128 };

/// Cells that are allocated together, alone on their cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Chunk {
    cells: [AtomicU64; CELLS],
    /// Represents the zeros, whose writing the model checker does not see: written when the chunk is made, read with
    /// every cell.
    #[cfg(loom)]
    made: loom::cell::UnsafeCell<()>,
}

// SAFETY: `made` is written before the chunk is published and only read afterwards (O1), which the model checks.
#[cfg(loom)]
unsafe impl Sync for Chunk {}

impl Chunk {
    fn new() -> Self {
        let chunk = Self {
            cells: std::array::from_fn(|_| AtomicU64::new(0)),
            #[cfg(loom)]
            made: loom::cell::UnsafeCell::new(()),
        };
        #[cfg(loom)]
        chunk.made.with_mut(|_| ());
        chunk
    }

    fn cell(&self, index: usize) -> &AtomicU64 {
        #[cfg(loom)]
        self.made.with(|_| ());
        &self.cells[index % CELLS]
    }
}

/// The cells of one thread. Ownership passes through the lock of [`blocks`], so an owner's relaxed loads see all stores
/// of earlier owners. The first add of a thread, and of a thread to a chunk, takes that lock or allocates.
#[derive(Debug)]
#[repr(align(128))]
struct Block {
    chunks: [AtomicPtr<Chunk>; CHUNKS],
}

impl Block {
    /// A block without chunks.
    #[cfg(not(loom))]
    const fn new() -> Self {
        Self { chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS] }
    }

    /// A block without chunks.
    #[cfg(loom)]
    fn new() -> Self {
        Self { chunks: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())) }
    }

    /// Adds to a cell of the caller's own block. False when the cell does not exist (yet).
    #[inline]
    fn add(&self, index: usize, amount: u64) -> bool {
        let Some(chunk) = self.chunks.get(index / CELLS) else { return false };
        // ORDERING: Relaxed; the caller stored this pointer itself, or has owned the block since (C1).
        let chunk = chunk.load(Ordering::Relaxed);
        if chunk.is_null() {
            return false;
        }
        // SAFETY: `grow` stored the pointer of a leaked chunk, which stays where it is (C2).
        let cell = unsafe { (*chunk).cell(index) };
        // ORDERING: Relaxed; a statistic, and no other thread stores here (C1), so no addition is lost.
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        true
    }

    /// Replaces the value of a cell of the caller's own block by the result of `change`. False as for [`Block::add`].
    #[inline]
    #[cfg(not(loom))]
    fn replace(&self, index: usize, mut change: impl FnMut(u64) -> u64) -> bool {
        let Some(chunk) = self.chunks.get(index / CELLS) else { return false };
        // ORDERING: Relaxed; the caller owns the block (C1).
        let chunk = chunk.load(Ordering::Relaxed);
        if chunk.is_null() {
            return false;
        }
        // SAFETY: `grow` stored the pointer of a leaked chunk, which never moves (C2).
        let cell = unsafe { (*chunk).cell(index) };
        // ORDERING: Relaxed; a statistic, and no other thread stores here (C1).
        cell.store(change(cell.load(Ordering::Relaxed)), Ordering::Relaxed);
        true
    }

    /// Makes the chunk of cell `index`, in the caller's own block.
    fn grow(&self, index: usize) {
        let chunk = &self.chunks[index / CELLS];
        // ORDERING: Relaxed; the caller owns the block (C1).
        if chunk.load(Ordering::Relaxed).is_null() {
            // ORDERING: Release, partner `read` (O1). Relaxed would publish the chunk before its zeros.
            chunk.store(Box::leak(Box::new(Chunk::new())), Ordering::Release);
        }
    }

    /// The value of a cell of any thread's block.
    fn read(&self, index: usize) -> u64 {
        let Some(chunk) = self.chunks.get(index / CELLS) else { return 0 };
        // ORDERING: Acquire, partner `grow` (O1).
        let chunk = chunk.load(Ordering::Acquire);
        if chunk.is_null() {
            return 0;
        }
        // SAFETY: `grow` stored the pointer of a leaked chunk (C2), whose zeros are visible (O1).
        let cell = unsafe { (*chunk).cell(index) };
        // ORDERING: Relaxed; a sum claims no order among the cells.
        cell.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitive::model::{Model, reached};
    use loom::sync::Arc;

    /// O1: a report runs while a thread makes its first chunk. Fails with a Relaxed `grow`, or a Relaxed `read`: a cell
    /// is then read before it is initialized.
    #[test]
    fn model_read_while_growing() {
        Model::new(16, &["nothing yet", "in between", "all"]).check(|| {
            let block = Arc::new(Block::new());
            let reader = {
                let block = block.clone();
                loom::thread::spawn(move || block.read(3))
            };
            for amount in [1, 2] {
                if !block.add(3, amount) {
                    block.grow(3);
                    assert!(block.add(3, amount));
                }
            }
            let seen = reader.join().unwrap();
            reached(["nothing yet", "in between", "never", "all"][seen as usize & 3]);
            assert!([0, 1, 3].contains(&seen), "{seen}");
            assert_eq!((block.read(3), block.read(0), block.read(9)), (3, 0, 0));
        });
    }
}
