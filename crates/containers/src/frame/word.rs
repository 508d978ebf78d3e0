//! The state word of one frame: its transitions, each one atomic step.
//!
//! # Boundary
//! The word only. The bytes, the identity and the free list that belong to a transition are in [`super::arena`] and
//! [`super::page`]; the protocol is in [`super`].
//!
//! # Concurrency
//! The comment of a transition says so if only one thread may make it at a time (by F3 or F5). The others are
//! compare-exchanges or additions that any thread may race.
//!
//! # Why
//! References, lock, tags and version in one word: each transition is decided by the value that it replaces. So
//! no thread ever sees half of a change of two words. Weakness: a hot page that is referenced (not read by version) is
//! one hot cache line.

use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering, fence};

/// Content lock held.
pub(super) const LOCKED: u64 = 1 << 0;
/// The bytes are the page's.
pub(super) const UPTODATE: u64 = 1 << 1;
/// The bytes are newer than the backend's.
pub(super) const DIRTY: u64 = 1 << 2;
/// Being written to the backend.
pub(super) const WRITING: u64 = 1 << 3;
/// New references are allowed. Unset: free, being evicted, or detached ("frozen").
pub(super) const ATTACHED: u64 = 1 << 4;
/// The lock's holder is changing bytes that others may be reading.
pub(super) const CHANGING: u64 = 1 << 5;
/// A thread sleeps until a flag changes.
pub(super) const WAITERS: u64 = 1 << 6;
/// The bytes, or those being filled in, are out of date.
pub(super) const STALE: u64 = 1 << 7;

const REFERENCE: u64 = 1 << 8;
const REFERENCES: u64 = 0xffff * REFERENCE;
/// The most references that are added by number; the other half is for threads that have one already.
const REFERENCES_BY_NUMBER_MAX: u64 = 0x8000 * REFERENCE;
const VERSION: u64 = 1 << 24;
const VERSIONS: u64 = !(VERSION - 1);

/// The part of the word that a reader by version must find unchanged.
pub(super) fn version(word: u64) -> u64 {
    word & VERSIONS
}

/// Whether a reader by version may begin.
pub(super) fn is_readable(word: u64) -> bool {
    word & (ATTACHED | UPTODATE | CHANGING) == ATTACHED | UPTODATE && !is_outdated(word)
}

/// Whether the bytes are out of date and contain no unwritten change.
pub(super) fn is_outdated(word: u64) -> bool {
    word & (STALE | DIRTY | WRITING) == STALE
}

/// The state after a reference was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// It was the last one and the frame is frozen: the thread that dropped it frees the frame (F3).
    Free,
    /// A page that can be evicted now.
    Idle,
    /// Other threads use it, or it must be written.
    InUse,
}

/// The word of one frame. All zero: free, never used.
#[derive(Debug)]
pub(super) struct StateWord(AtomicU64);

impl StateWord {
    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The word, and the identity and bytes that were published with it.
    #[inline]
    pub(super) fn load(&self) -> u64 {
        // ORDERING: Acquire, partners `publish` (O1), `end_change` and `set` (O4).
        self.0.load(Ordering::Acquire)
    }

    /// The word, loaded after all earlier reads of this thread.
    #[inline]
    pub(super) fn reload(&self) -> u64 {
        // ORDERING: Acquire, partner the fences of `begin_change` and `before_bytes` (O3, O5).
        fence(Ordering::Acquire);
        // ORDERING: Relaxed; after the fence.
        self.0.load(Ordering::Relaxed)
    }

    /// Whether it is the word of a free frame, or of one that only its owner has.
    pub(super) fn is_free(&self) -> bool {
        // ORDERING: Relaxed; for checks.
        self.0.load(Ordering::Relaxed) & (ATTACHED | REFERENCES) == 0
    }

    /// Adds a reference, if new references are allowed.
    #[inline]
    pub(super) fn try_reference(&self) -> bool {
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & ATTACHED == 0 || word & REFERENCES >= REFERENCES_BY_NUMBER_MAX {
                return false;
            }
            let next = word + REFERENCE;
            // ORDERING: Acquire, partner `publish` (O1): the identity read next belongs to this word.
            match self.0.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Adds a reference for a thread that has one. False if the word is full.
    pub(super) fn add_reference(&self) -> bool {
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        while word & REFERENCES != REFERENCES {
            let next = word + REFERENCE;
            // ORDERING: Relaxed; the caller's own reference keeps the frame, nothing new is reached.
            match self.0.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Drops a reference.
    #[inline]
    pub(super) fn put(&self) -> Put {
        // ORDERING: AcqRel; Release for the thread that freezes or frees, Acquire because it may be this one (O2), and
        // partner `look` (O9).
        let before = self.0.fetch_sub(REFERENCE, Ordering::AcqRel);
        debug_assert!(before & REFERENCES != 0, "a reference that was not counted");
        match before & (REFERENCES | ATTACHED) {
            REFERENCE => Put::Free,
            last if last == REFERENCE | ATTACHED && before & (LOCKED | DIRTY | WRITING) == 0 => {
                Put::Idle
            }
            _ => Put::InUse,
        }
    }

    /// The look of a thread that waits for room, before it checks whether the page is in use.
    pub(super) fn look(&self) {
        // ORDERING: Release, partner `put` (O9): a thread that makes the page idle after this sees the announcement.
        self.0.fetch_or(0, Ordering::Release);
    }

    /// Freezes a page without users. True: only the caller has the frame (F3). In an arena a locked page always has a
    /// reference today, so the check of LOCKED changes nothing there.
    pub(super) fn try_freeze(&self) -> bool {
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let idle = word & (REFERENCES | LOCKED | DIRTY | WRITING) == 0;
            if !idle || word & ATTACHED == 0 {
                return false;
            }
            let next = (word & !ATTACHED).wrapping_add(VERSION);
            // ORDERING: Acquire, partner `put` (O2): the holders have finished before the frame is reused.
            match self.0.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Undoes `try_freeze`. For the thread that froze the page.
    pub(super) fn thaw(&self) {
        // ORDERING: Acquire, partner `look` (O9): the page can be evicted again. `publish` released the identity; every
        // later step is a read-modify-write, like this one, and passes that on (O1).
        self.0.fetch_or(ATTACHED, Ordering::Acquire);
    }

    /// Forbids new references from now on. For the lock's holder, which has a reference. True the first time.
    pub(super) fn detach(&self) -> bool {
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        while word & ATTACHED != 0 {
            let next = (word & !ATTACHED).wrapping_add(VERSION);
            // ORDERING: Relaxed; nothing is published: F3 needs only the step, and bytes written afterwards come after
            // the fence of `begin_change` (O3).
            match self.0.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Attaches a page: locked, not up to date, one reference. For the thread that took the frame off the free list,
    /// after it wrote the identity.
    pub(super) fn publish(&self) {
        // ORDERING: Relaxed; no other thread changes the word of a free frame (F6).
        let word = self.0.load(Ordering::Relaxed);
        debug_assert!(word & (ATTACHED | REFERENCES) == 0, "published twice");
        // ORDERING: Release, partners `try_reference` and `load` (O1).
        self.0.store(version(word) | REFERENCE | ATTACHED | LOCKED, Ordering::Release);
    }

    /// Called by the owner of a frozen frame before it changes the identity or bytes. A reader by version that began
    /// before the freeze may still read them.
    pub(super) fn before_bytes(&self) {
        // ORDERING: Release, partner `reload` (O5): a reader that sees a new byte or identity sees a later version.
        fence(Ordering::Release);
    }

    /// Takes the content lock if it is free.
    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        while word & LOCKED == 0 {
            let next = word | LOCKED;
            // ORDERING: Acquire, partner `unlock` (O6).
            match self.0.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Releases the content lock. True if a thread may sleep for it: the caller must wake it.
    #[inline]
    #[must_use]
    pub(super) fn unlock(&self) -> bool {
        // ORDERING: Release, partner `try_lock` and `wait_mark` (O6).
        let before = self.0.fetch_and(!(LOCKED | WAITERS), Ordering::Release);
        debug_assert!(before & LOCKED != 0, "not locked");
        before & WAITERS != 0
    }

    /// The lock's holder is about to change bytes that readers by version may look at.
    #[inline]
    pub(super) fn begin_change(&self) {
        // ORDERING: Relaxed; ordered before the bytes by the fence.
        let before = self.0.fetch_add(VERSION | CHANGING, Ordering::Relaxed);
        debug_assert!(before & (LOCKED | CHANGING) == LOCKED, "only the lock's holder, once");
        // ORDERING: Release, partner `reload` (O3): a reader that sees a byte of the change sees CHANGING too.
        fence(Ordering::Release);
    }

    /// The change is over.
    #[inline]
    pub(super) fn end_change(&self) {
        // ORDERING: Release, partner `load` (O4): a reader that may read again sees the whole change.
        self.0.fetch_and(!CHANGING, Ordering::Release);
    }

    /// Sets flags; returns the old word. For the lock's holder.
    #[inline]
    pub(super) fn set(&self, flags: u64) -> u64 {
        // ORDERING: Release, partner `load` (O4): a reader that sees UPTODATE sees the bytes.
        self.0.fetch_or(flags, Ordering::Release)
    }

    /// Reports that the bytes which the lock's holder is reading in are out of date. For any thread.
    pub(super) fn mark_stale(&self) {
        // ORDERING: Release, partner `set_filled` (F8): a thread that then asks the store again does not get an answer
        // from before the report.
        self.0.fetch_or(STALE, Ordering::Release);
    }

    /// Declares that the bytes are the page's, unless they were reported out of date since the last call. Then it
    /// returns false and clears the report. For the lock's holder.
    pub(super) fn set_filled(&self) -> bool {
        let filled = |word| if word & STALE == 0 { word | UPTODATE } else { word & !STALE };
        // ORDERING: AcqRel; Release, partner `load` (O4): a reader that sees UPTODATE sees the bytes; Acquire, partner
        // `mark_stale` (F8).
        let before =
            self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| Some(filled(word)));
        before.is_ok_and(|word| word & STALE == 0)
    }

    /// Clears flags; returns the old word. For the lock's holder.
    pub(super) fn clear(&self, flags: u64) -> u64 {
        // ORDERING: Relaxed; the tags order nothing by themselves, `unlock` follows (O6).
        self.0.fetch_and(!flags, Ordering::Relaxed)
    }

    /// Changes dirty to writing. False unless it is dirty and not being written. For the lock's holder.
    pub(super) fn begin_writing(&self) -> bool {
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        while word & (DIRTY | WRITING) == DIRTY {
            let next = word & !DIRTY | WRITING;
            // ORDERING: Relaxed; the written bytes are read under the lock (O6).
            match self.0.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Ends the write; dirty again if `again`. Returns the old word: if it has WAITERS, the caller must wake them. A
    /// DIRTY that was set meanwhile stays (F7).
    #[must_use]
    pub(super) fn end_writing(&self, again: bool) -> u64 {
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            debug_assert!(word & WRITING != 0, "no write is under way");
            let next = word & !(WRITING | WAITERS) | if again { DIRTY } else { 0 };
            // ORDERING: Release, partners `wait_mark` and the freeze of eviction (O7, O2): a thread that finds the page
            // written sees that the write is complete.
            match self.0.compare_exchange_weak(word, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return word,
                Err(now) => word = now,
            }
        }
    }

    /// Marks the word for a sleeper, unless all of `flags` are clear. True: the caller must sleep.
    pub(super) fn wait_mark(&self, flags: u64) -> bool {
        let sleeper = |word| if word & flags != 0 { Some(word | WAITERS) } else { None };
        // ORDERING: Acquire when it fails, partners `unlock` and `end_writing` (O6, O7); Relaxed when it succeeds,
        // because only the step matters (W1).
        self.0.fetch_update(Ordering::Relaxed, Ordering::Acquire, sleeper).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A locked page always has a reference today, so the references alone would protect an arena's pages; the word
    /// guarantees it by itself.
    #[test]
    fn a_word_is_frozen_only_when_idle() {
        for busy in [LOCKED, DIRTY, WRITING, REFERENCE] {
            let word = StateWord(AtomicU64::new(ATTACHED | UPTODATE | busy));
            assert!(!word.try_freeze(), "{busy:#x}");
            assert_eq!(word.load(), ATTACHED | UPTODATE | busy, "and it is as it was");
        }
        let idle = StateWord(AtomicU64::new(ATTACHED | UPTODATE));
        assert!(idle.try_freeze() && !idle.try_freeze());
        assert_eq!(idle.load(), UPTODATE | VERSION);
    }
}
