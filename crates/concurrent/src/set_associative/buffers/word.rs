//! The state word of one frame: `FILLING:1 | FAILED:1 | DETACHED:1 | pins:29`.
//!
//! # Boundary
//! The word and its steps; the protocol, its invariants and orderings, is in [`super`].

use crate::primitive::atomic::{AtomicU32, Ordering};

/// The bytes are being read in, by the one thread that claimed the frame.
const FILLING: u32 = 1 << 31;
/// Reading them in failed.
const FAILED: u32 = 1 << 30;
/// No row leads to the frame.
const DETACHED: u32 = 1 << 29;
const PINS: u32 = DETACHED - 1;

/// See the module. On a cache line of its own: neighbours belong to other blocks.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Word(AtomicU32);

/// How an unpin left the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unpinned {
    /// Others have it still.
    Used,
    /// Nobody has it, and its row leads to it.
    Idle,
    /// Nobody has it and nothing leads to it: the caller frees it (B4).
    Free,
}

/// What a waiter finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contents {
    Filling,
    Filled,
    Failed,
}

impl Word {
    /// Begins to fill, with one pin, the caller's. By the thread that has the frame alone, under the lock of the row
    /// that will lead to it.
    pub(super) fn claim(&self) {
        // ORDERING: Relaxed; others come to it by the row, under its lock.
        self.0.store(FILLING | 1, Ordering::Relaxed);
    }

    /// Counts a pin, under the lock of the row that leads to the frame (B2).
    pub(super) fn pin(&self) -> Contents {
        // ORDERING: Acquire, partner `filled` (O1).
        let before = self.0.fetch_add(1, Ordering::Acquire);
        debug_assert!(before & DETACHED == 0, "pinned by a row that does not lead to it");
        contents(before)
    }

    /// Gives a pin back.
    pub(super) fn unpin(&self) -> Unpinned {
        // ORDERING: AcqRel; Release, partners `is_idle`, `detach` and the last `unpin` (O2); Acquire, because it
        // may be this one that frees.
        let before = self.0.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before & PINS != 0, "a pin that nobody had");
        match (before & PINS, before & DETACHED) {
            (1, 0) => Unpinned::Idle,
            (1, _) => Unpinned::Free,
            _ => Unpinned::Used,
        }
    }

    /// Whether nobody has it; under the lock of the row that leads to it this remains so (B2).
    pub(super) fn is_idle(&self) -> bool {
        // ORDERING: Acquire, partner `unpin` (O2).
        self.0.load(Ordering::Acquire) & PINS == 0
    }

    /// No row leads to it from now on; under the row's lock. True if nobody has it: the caller frees it (B4).
    #[must_use]
    pub(super) fn detach(&self) -> bool {
        // ORDERING: Acquire, partner `unpin` (O2). Nothing that the purger did concerns the bytes.
        self.0.fetch_or(DETACHED, Ordering::Acquire) & PINS == 0
    }

    /// The bytes are the block's. By the thread that claimed the frame.
    pub(super) fn filled(&self) {
        // ORDERING: Release, partners `pin` and `contents` (O1): who sees it filled sees the bytes.
        self.0.fetch_and(!FILLING, Ordering::Release);
    }

    /// The bytes could not be read. By the thread that claimed the frame, under the row's lock; no row leads to
    /// it from now on.
    pub(super) fn fail(&self) {
        // ORDERING: Relaxed; of one word every thread sees the steps in order, so with the end the failure, and
        // bytes are not looked at.
        self.0.fetch_or(FAILED | DETACHED, Ordering::Relaxed);
        // ORDERING: Relaxed; as above.
        self.0.fetch_and(!FILLING, Ordering::Relaxed);
    }

    /// What the frame holds, for a thread that has a pin.
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
