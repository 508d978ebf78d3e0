//! A cache in rows: each row has its own lock, a few ways and ages, and no state is shared by all rows.
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
//! Finds values by key and chooses the oldest of a row. The caller defines the values: [`translations`] keeps runs of
//! blocks, [`buffers`] the frames into which blocks are read, [`shared`] values that are in use. The caller also supplies the class of the rows' locks.
//!
//! # Invariants
//! R1. A key belongs to one row, for ever, chosen by the hash.
//! R2. A key is in at most one way of its row. A thread inserts a key under the same hold of the lock as its search.
//! R3. A hit stores an age and moves nothing. A way is found by its place; there is no list and no pointer.
//! R4. Of two ways in use, the one with the lower age was used longer ago. Ages are drawn from the row's own clock;
//!     when it overflows, the ages are redrawn in the same order.
//! R5. No operation holds two rows' locks. An operation on all rows visits them one after the other, so it sees each
//!     row at another moment.
//! R6. After `new`, nothing is allocated, but for overflows.
//!
//! Orderings: a row is accessed only under its lock. Progress: that of the lock, held for some tens of instructions.

pub mod buffers;
pub mod hash;
mod row;
pub mod shared;
pub mod translations;

#[cfg(all(test, not(loom)))]
mod tests;

use hash::RowHash;
use row::Row;
use std::fmt;
use uvfs_concurrent::lock::{LockClass, Mutex, MutexGuard};
use uvfs_concurrent::primitive::atomic::{AtomicUsize, Ordering};

/// The key of a value: small, and spread by its number.
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

/// A cache of `WAYS` values a row; `X` is further data under a row's lock. The rules are in the module's documentation.
///
/// Peacock (1992, "File System Multithreading in System V Release 4 MP") found three caches of a kernel to be its
/// points of contention, 10 to 15 %. The cause was not the hash queues but the free list behind them, in which every
/// hit moves its element. With a list for each queue, under the queue's own lock, it was less than 0.1 %. Keys that are
/// multiples of a power of two used one queue in eight there, because rows were chosen by the key's low bits. Here a
/// secret seed spreads them ([`hash`]).
///
/// Weakness: a row may be full while others are not, so a few keys are lost that one list would have kept (measured by
/// `uvfs-bench evict`). One key that all threads want is one lock.
pub struct SetAssociative<K, V, const WAYS: usize, X = ()> {
    rows: Box<[Lines<K, V, X, WAYS>]>,
    hash: RowHash,
    /// The next row to search when any victim will do. A hit does not read it.
    hand: AtomicUsize,
}

impl<K: Key, V: Clone + Default, const WAYS: usize, X: Default> SetAssociative<K, V, WAYS, X> {
    /// An empty cache of `rows` rows, at least one, whose locks are of `class`.
    pub fn new(class: &'static LockClass, rows: usize, hash: RowHash) -> Self {
        let row = |_| Lines(Mutex::new(class, Row::default()));
        Self { rows: (0..rows.max(1)).map(row).collect(), hash, hand: AtomicUsize::new(0) }
    }

    /// The number of rows.
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

    /// Inserts `value` in place of the value of `key`, into an unused way, or in place of the oldest of the row, which
    /// is returned.
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

    /// Removes every key for which `is_gone` returns true, row by row (R5). Returns their number.
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

    /// The row of `key` (R1).
    fn row_of(&self, key: K) -> usize {
        self.hash.row(key.number(), self.rows())
    }

    fn lock(&self, at: usize) -> MutexGuard<'_, Row<K, V, X, WAYS>> {
        self.rows[at].0.lock()
    }

    /// The next row in turn, when any victim will do.
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
