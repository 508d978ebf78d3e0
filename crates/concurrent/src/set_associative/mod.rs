//! A cache in rows: each with a lock, a few ways and ages of its own, and nothing that all rows share.
//!
//! ```text
//!            ┌ lock · clock · used · ages ─┬─ values ─┬─ keys ──────────┐  whole cache lines,
//!   row 0    │  A                          │          │                 │  no line of two rows
//!   row 1    │                             │          │                 │
//!    ⋮       └─────────────────────────────┴──────────┴─────────────────┘
//!   key ── seeded hash ──▶ row        hit: one age is stored        miss: the oldest way is replaced
//! ```
//!
//! # Boundary
//! Finds values by key and says which of a row is the oldest. What a value stands for is the caller's:
//! [`translations`] keeps runs of blocks in it, [`buffers`] the frames that blocks are read into. The class of
//! the rows' locks is the caller's too.
//!
//! # Invariants
//! R1. A key belongs to one row, for ever: the hash says which.
//! R2. A key is in at most one way of its row. Whoever puts one in has looked for it under the same hold of
//!     the row's lock.
//! R3. A hit stores an age and moves nothing. A way is found by its place; there is no list and no pointer.
//! R4. Of two ways in use, the one with the lower age was used longer ago. Ages are drawn from the row's own
//!     clock; when it has run out, the ages are drawn anew in the same order.
//! R5. No operation holds two rows' locks. What concerns all rows visits them one after the other, so it sees
//!     each row at another moment.
//! R6. After `new`, nothing is allocated.
//!
//! Orderings: a row is read and written under its lock alone.
//! Progress: as the lock of one row; holds are some tens of instructions.
//!
//! # Why
//! Peacock (1992, "File System Multithreading in System V Release 4 MP") found three caches of a kernel to be
//! its points of contention, 10 to 15 %: not the hash queues but the free list behind them, which every hit
//! moves its element in. With a list for each queue, under the queue's own lock, it was less than 0.1 %. Keys
//! that are multiples of a power of two used one queue in eight there, because rows were chosen by the key's low
//! bits; here a seed that nobody outside knows spreads them ([`hash`]).
//!
//! Weakness: a row is full while others are not, so a few keys are lost that one list would have kept (measured by
//! `uvfs-bench set-associative`); and one key that all threads want is one lock.

pub mod buffers;
pub mod hash;
mod row;
pub mod translations;

#[cfg(all(test, not(loom)))]
mod tests;

use crate::lock::{LockClass, Mutex, MutexGuard};
use crate::primitive::atomic::{AtomicUsize, Ordering};
use hash::RowHash;
use row::Row;
use std::fmt;

/// What values are found by: small, and spread by its number.
pub trait Key: Copy + Eq + Default {
    /// A number that is different for every key.
    fn number(self) -> u64;
}

impl Key for u64 {
    fn number(self) -> u64 {
        self
    }
}

/// A row with its lock, on cache lines of its own.
#[repr(align(64))]
struct Lines<K, V, X, const WAYS: usize>(Mutex<Row<K, V, X, WAYS>>);

/// A cache of `WAYS` values a row; `X` is what else lies under a row's lock. See the module.
pub struct SetAssociative<K, V, const WAYS: usize, X = ()> {
    rows: Box<[Lines<K, V, X, WAYS>]>,
    hash: RowHash,
    /// The row that is asked next when any victim will do. Not one that a hit looks at.
    hand: AtomicUsize,
}

impl<K: Key, V: Copy + Default, const WAYS: usize, X: Default> SetAssociative<K, V, WAYS, X> {
    /// An empty cache of `rows` rows, at least one, whose locks are of `class`.
    pub fn new(class: &'static LockClass, rows: usize, hash: RowHash) -> Self {
        let row = |_| Lines(Mutex::new(class, Row::default()));
        Self { rows: (0..rows.max(1)).map(row).collect(), hash, hand: AtomicUsize::new(0) }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of the rows; they do not change.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.rows)
    }

    /// The value of `key`, which is then the youngest of its row.
    pub fn get(&self, key: K) -> Option<V> {
        let mut row = self.lock(self.row_of(key));
        let way = row.find(key)?;
        row.touch(way);
        Some(row.value(way))
    }

    /// Puts `value` in the place of what `key` had, or of nothing, or of the oldest of the row, which is
    /// returned.
    pub fn insert(&self, key: K, value: V) -> Option<(K, V)> {
        let mut row = self.lock(self.row_of(key));
        if let Some(way) = row.find(key).or_else(|| row.unused()) {
            row.set(way, key, value);
            return None;
        }
        let way = row.oldest(|_| true)?;
        let evicted = row.clear(way);
        row.set(way, key, value);
        Some(evicted)
    }

    /// Removes every key that `is_gone` says so of, row by row (R5). How many.
    pub fn purge(&self, mut is_gone: impl FnMut(K) -> bool) -> usize {
        let mut purged = 0;
        for at in 0..self.rows() {
            let mut row = self.lock(at);
            for way in 0..WAYS {
                if row.is_used(way) && is_gone(row.key(way)) {
                    row.clear(way);
                    purged += 1;
                }
            }
        }
        purged
    }

    /// The row that `key` belongs to (R1).
    fn row_of(&self, key: K) -> usize {
        self.hash.row(key.number(), self.rows())
    }

    fn lock(&self, at: usize) -> MutexGuard<'_, Row<K, V, X, WAYS>> {
        self.rows[at].0.lock()
    }

    /// The row whose turn it is when any victim will do.
    fn next_row(&self) -> usize {
        // ORDERING: Relaxed; a turn, nothing is reached through it.
        self.hand.fetch_add(1, Ordering::Relaxed) % self.rows()
    }
}

impl<K, V, const WAYS: usize, X> fmt::Debug for SetAssociative<K, V, WAYS, X> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SetAssociative")
            .field("rows", &self.rows.len())
            .field("ways", &WAYS)
            .finish_non_exhaustive()
    }
}
