//! A metric's index, and this thread's access to its cell.
//!
//! # Boundary
//! The thread-local half of [`super`]; not compiled for the model checker, which has no static cells.

// These locks are part of the measurement of locks with classes, so they cannot be measured themselves: raw locks, held
// briefly, innermost.
#![allow(clippy::disallowed_types)]

use super::blocks::{Blocks, Lease};
use super::{Block, CELLS, CHUNKS};
use crate::primitive::owned::{AtomicU64, Ordering::Relaxed};
use crate::primitive::raw;
use std::cell::Cell;

static BLOCKS: Blocks<Block> = Blocks::new(Block::new);
/// Represents "no block": it has no chunks, so one test in `add` covers both cases.
static NONE: Block = Block::new();

thread_local! {
    // Without a destructor, so it can be read at any time of the thread's life.
    static MINE: Cell<&'static Block> = const { Cell::new(&NONE) };
    static LEASE: Lease<Block> = const { Lease::new(&BLOCKS, || MINE.set(&NONE)) };
}

/// The indices in use, and those that are free again.
struct Indices {
    next: usize,
    free: Vec<usize>,
}

static INDICES: raw::Mutex<Indices> = raw::Mutex::new(Indices { next: 0, free: Vec::new() });

/// One metric's cells.
#[derive(Debug)]
pub(crate) struct Slot {
    /// At or beyond [`CELLS`] * [`CHUNKS`]: the metric has no cells and uses `spare`.
    index: usize,
    /// The sum that earlier metrics left in the cells (C3).
    before: u64,
    /// For a metric without an index: one word that threads share, correct and slow.
    spare: AtomicU64,
}

impl Slot {
    /// A metric that stands at 0.
    pub(crate) fn new() -> Self {
        let index = {
            let mut indices = INDICES.lock();
            match indices.free.pop() {
                Some(index) => index,
                None if indices.next < CELLS * CHUNKS => {
                    indices.next += 1;
                    indices.next - 1
                }
                None => CELLS * CHUNKS,
            }
        };
        Self { index, before: sum(index), spare: AtomicU64::new(0) }
    }

    /// Adds to this thread's cell.
    #[inline]
    pub(crate) fn add(&self, amount: u64) {
        if !MINE.get().add(self.index, amount) {
            self.add_slowly(amount);
        }
    }

    /// Replaces the value of this thread's cell by the result of `change`; for a word that is no sum. False if the
    /// thread has no cell.
    #[inline]
    pub(crate) fn replace(&self, mut change: impl FnMut(u64) -> u64) -> bool {
        if MINE.get().replace(self.index, &mut change) {
            return true;
        }
        // The first call of a thread takes a block; a thread that is ending has none.
        self.add_slowly(0);
        MINE.get().replace(self.index, change)
    }

    /// The first add of a thread here, an add of a thread that is ending, or one without a cell.
    #[cold]
    fn add_slowly(&self, amount: u64) {
        if self.index >= CELLS * CHUNKS {
            // ORDERING: Relaxed; a statistic, nothing is reached through it.
            self.spare.fetch_add(amount, Relaxed);
            return;
        }
        let add = |block: &Block| {
            block.grow(self.index);
            block.add(self.index, amount);
        };
        match LEASE.try_with(Lease::block) {
            Ok(block) => {
                MINE.set(block);
                add(block);
            }
            Err(_) => BLOCKS.borrow(add),
        }
    }

    /// The sum over all threads, also those that have ended.
    pub(crate) fn total(&self) -> u64 {
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        let spare = self.spare.load(Relaxed);
        sum(self.index).wrapping_sub(self.before).wrapping_add(spare)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.index < CELLS * CHUNKS {
            INDICES.lock().free.push(self.index);
        }
    }
}

/// Blocks of all threads: as many as ever lived at once.
#[inline]
pub(crate) fn threads() -> u64 {
    BLOCKS.made().max(1)
}

fn sum(index: usize) -> u64 {
    let mut sum = 0u64;
    BLOCKS.each(|block| sum = sum.wrapping_add(block.read(index)));
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc;

    #[test]
    fn sums_cover_threads_that_live_and_that_have_ended() {
        let slot = Slot::new();
        let (added, wait) = mpsc::channel();
        let (go, ended) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| (0..1000).for_each(|_| slot.add(1))).join().unwrap();
            }
            let slot = &slot;
            scope.spawn(move || {
                slot.add(7);
                added.send(()).unwrap();
                let _ = ended.recv();
            });
            wait.recv().unwrap();
            assert_eq!(slot.total(), 5007);
            drop(go);
        });
        assert_eq!(slot.total(), 5007);
    }

    #[test]
    fn an_index_used_again_starts_at_zero() {
        // Other tests take indices too; one of these slots reuses an index.
        for round in 0..50 {
            let slots: Vec<_> = (0..10).map(|_| Slot::new()).collect();
            for (at, slot) in slots.iter().enumerate() {
                assert_eq!(slot.total(), 0, "round {round}");
                slot.add(at as u64 + 1);
                std::thread::scope(|scope| {
                    scope.spawn(|| slot.add(100));
                });
                assert_eq!(slot.total(), at as u64 + 101);
            }
        }
        assert!(INDICES.lock().next < 400, "indices are used again");
    }

    #[test]
    fn an_add_in_a_destructor_after_the_lease_ended_counts() {
        struct Late(Arc<Slot>);
        impl Drop for Late {
            fn drop(&mut self) {
                self.0.add(10);
            }
        }
        thread_local!(static LATE: Cell<Option<Late>> = const { Cell::new(None) });
        let slot = Arc::new(Slot::new());
        // Registered before and after the lease, so one of the destructors runs after its end, for any order that the
        // platform uses.
        for lease_first in [true, false] {
            let slot = slot.clone();
            std::thread::spawn(move || {
                if lease_first {
                    slot.add(1);
                }
                LATE.set(Some(Late(slot.clone())));
                slot.add(1);
            })
            .join()
            .unwrap();
        }
        assert_eq!(slot.total(), 23);
    }

    #[test]
    fn a_metric_without_a_cell_counts_all_the_same() {
        let slot = Slot { index: CELLS * CHUNKS, before: 0, spare: AtomicU64::new(0) };
        slot.add(3);
        std::thread::scope(|scope| {
            scope.spawn(|| slot.add(4));
        });
        assert_eq!(slot.total(), 7);
    }

    #[test]
    fn cells_of_later_chunks_are_made_when_needed() {
        let block = Block::new();
        let last = CELLS * CHUNKS - 1;
        assert!(!block.add(last, 5) && !block.add(last + 1, 5));
        block.grow(last);
        assert!(block.add(last, 5) && !block.add(0, 1));
        assert_eq!((block.read(last), block.read(0), block.read(last + 1)), (5, 0, 0));
    }
}
