//! The state word of one frame: `FILLING:1 | FAILED:1 | DETACHED:1 | pins:29`.
//!
//! # Boundary
//! The word and its steps. The protocol, with its invariants and orderings, is in [`super`].

use uvfs_concurrent::primitive::atomic::{AtomicU32, Ordering};

/// The bytes are being read in, by the one thread that claimed the frame.
const FILLING: u32 = 1 << 31;
/// Reading them in failed.
const FAILED: u32 = 1 << 30;
/// No row leads to the frame.
const DETACHED: u32 = 1 << 29;
const PINS: u32 = DETACHED - 1;

/// The word of one frame. On a cache line of its own: neighbours belong to other blocks.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Word(AtomicU32);

/// The state after an unpin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unpinned {
    /// Other threads still have a pin.
    Used,
    /// No pin is left, and a row leads to the frame.
    Idle,
    /// No pin is left and no row leads to the frame: the caller frees it (B4).
    Free,
}

/// The state that a waiter finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contents {
    Filling,
    Filled,
    Failed,
}

impl Word {
    /// Begins to fill, with one pin, the caller's. For the thread that alone has the frame, under the lock of the row
    /// that will lead to it.
    pub(super) fn claim(&self) {
        // ORDERING: Relaxed; other threads reach the frame by the row, under its lock.
        self.0.store(FILLING | 1, Ordering::Relaxed);
    }

    /// Counts a pin, under the lock of the row that leads to the frame (B2).
    pub(super) fn pin(&self) -> Contents {
        // ORDERING: Acquire, partner `filled` (O1).
        let before = self.0.fetch_add(1, Ordering::Acquire);
        debug_assert!(before & DETACHED == 0, "pinned by a row that does not lead to it");
        contents(before)
    }

    /// Drops a pin.
    pub(super) fn unpin(&self) -> Unpinned {
        // ORDERING: AcqRel; Release, partners `is_idle`, `detach` and the last `unpin` (O2); Acquire, because this
        // thread may be the one that frees.
        let before = self.0.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before & PINS != 0, "a pin that was not counted");
        match (before & PINS, before & DETACHED) {
            (1, 0) => Unpinned::Idle,
            (1, _) => Unpinned::Free,
            _ => Unpinned::Used,
        }
    }

    /// Whether the frame has no pin; stable under the lock of the row that leads to it (B2).
    pub(super) fn is_idle(&self) -> bool {
        // ORDERING: Acquire, partner `unpin` (O2).
        self.0.load(Ordering::Acquire) & PINS == 0
    }

    /// Declares that no row leads to the frame from now on; under the row's lock. True if it has no pin: the caller
    /// frees it (B4).
    #[must_use]
    pub(super) fn detach(&self) -> bool {
        // ORDERING: Acquire, partner `unpin` (O2). The purger has not touched the bytes, so no Release is needed.
        self.0.fetch_or(DETACHED, Ordering::Acquire) & PINS == 0
    }

    /// The bytes are the block's. For the thread that claimed the frame.
    pub(super) fn filled(&self) {
        // ORDERING: Release, partners `pin` and `contents` (O1): a thread that sees it filled sees the bytes.
        self.0.fetch_and(!FILLING, Ordering::Release);
    }

    /// The bytes could not be read. For the thread that claimed the frame, under the row's lock; no row leads to it
    /// from now on.
    pub(super) fn fail(&self) {
        // ORDERING: Relaxed; every thread sees the steps of one word in order, so it sees the failure with the end, and
        // does not read the bytes.
        self.0.fetch_or(FAILED | DETACHED, Ordering::Relaxed);
        // ORDERING: Relaxed; ordered after the failure, in the same word.
        self.0.fetch_and(!FILLING, Ordering::Relaxed);
    }

    /// The state of the frame, for a thread that has a pin.
    pub(super) fn contents(&self) -> Contents {
        // ORDERING: Acquire, partner `filled` (O1).
        contents(self.0.load(Ordering::Acquire))
    }
}

fn contents(word: u32) -> Contents {
    match (word & FILLING, word & FAILED) {
        (0, 0) => Contents::Filled,
        (0, _) => Contents::Failed,
        _ => Contents::Filling,
    }
}
