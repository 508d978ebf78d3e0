//! The state word of one frame: its transitions, each one atomic step.
//!
//! # Boundary
//! The word and nothing it speaks of. Which bytes, which identity and which free list go with a
//! transition is in [`super::arena`] and [`super::page`]; the protocol is in [`super`].
//!
//! # Concurrency
//! Transitions that only one thread may make at a time (by F3 or F5) say so; the others are
//! compare-exchanges or additions that any thread may race.
//!
//! # Why
//! References, lock, tags and version in one word: what may be done next is decided by the value
//! that is replaced, so no pair of words is ever seen half changed. Weakness: a hot page that is
//! referenced (not read by version) is one hot cache line.

use crate::primitive::atomic::{AtomicU64, Ordering, fence};

/// Content lock held.
pub(super) const LOCKED: u64 = 1 << 0;
/// The bytes are the page's.
pub(super) const UPTODATE: u64 = 1 << 1;
/// The bytes are newer than the backend's.
pub(super) const DIRTY: u64 = 1 << 2;
/// On its way to the backend.
pub(super) const WRITING: u64 = 1 << 3;
/// New references are given out. Unset: free, being evicted, or detached ("frozen").
pub(super) const ATTACHED: u64 = 1 << 4;
/// The lock's holder is changing bytes that others may be reading.
pub(super) const CHANGING: u64 = 1 << 5;
/// Somebody sleeps until a flag changes.
pub(super) const WAITERS: u64 = 1 << 6;
/// The bytes, or those being filled in, are out of date.
pub(super) const STALE: u64 = 1 << 7;

const REFERENCE: u64 = 1 << 8;
const REFERENCES: u64 = 0xffff * REFERENCE;
/// References given out by number; the other half is for those who have one already.
const REFERENCES_BY_NUMBER_MAX: u64 = 0x8000 * REFERENCE;
const VERSION: u64 = 1 << 24;
const VERSIONS: u64 = !(VERSION - 1);

/// What a reader by version has to find again.
pub(super) fn version(word: u64) -> u64 {
    word & VERSIONS
}

/// Whether a reader by version may begin.
pub(super) fn is_readable(word: u64) -> bool {
    word & (ATTACHED | UPTODATE | CHANGING) == ATTACHED | UPTODATE && !is_outdated(word)
}

/// Whether the bytes are out of date and nothing of them is ours.
pub(super) fn is_outdated(word: u64) -> bool {
    word & (STALE | DIRTY | WRITING) == STALE
}

/// What a reference that was given back leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// It was the last one and the frame is frozen: who gave it back frees the frame (F3).
    Free,
    /// A page that can be evicted now.
    Idle,
    /// Others have it, or it is to be written.
    InUse,
}

/// See the module. All zero: free, never used.
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

    /// The word, after everything that this thread read before.
    #[inline]
    pub(super) fn reload(&self) -> u64 {
        // ORDERING: Acquire, partner the fences of `begin_change` and `before_bytes` (O3, O5).
        fence(Ordering::Acquire);
        // ORDERING: Relaxed; after the fence.
        self.0.load(Ordering::Relaxed)
    }

    /// Whether it is the word of a free frame, or of one that is its owner's alone.
    pub(super) fn is_free(&self) -> bool {
        // ORDERING: Relaxed; for checks.
        self.0.load(Ordering::Relaxed) & (ATTACHED | REFERENCES) == 0
    }

    /// A new reference, if any is given out.
    #[inline]
    pub(super) fn try_reference(&self) -> bool {
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & ATTACHED == 0 || word & REFERENCES >= REFERENCES_BY_NUMBER_MAX {
                return false;
            }
            let next = word + REFERENCE;
            // ORDERING: Acquire, partner `publish` (O1): the identity read next is this one's.
            match self.0.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// One more reference for who has one. False if the word is full.
    pub(super) fn add_reference(&self) -> bool {
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        while word & REFERENCES != REFERENCES {
            let next = word + REFERENCE;
            // ORDERING: Relaxed; the caller's own reference keeps the frame, nothing new is
            // reached.
            match self.0.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Gives a reference back.
    #[inline]
    pub(super) fn put(&self) -> Put {
        // ORDERING: AcqRel; Release for who freezes or frees, Acquire because it may be us (O2), and partner
        // `look` (O9).
        let before = self.0.fetch_sub(REFERENCE, Ordering::AcqRel);
        debug_assert!(before & REFERENCES != 0, "a reference that nobody had");
        match before & (REFERENCES | ATTACHED) {
            REFERENCE => Put::Free,
            last if last == REFERENCE | ATTACHED && before & (LOCKED | DIRTY | WRITING) == 0 => {
                Put::Idle
            }
            _ => Put::InUse,
        }
    }

    /// A look of one who waits for room, before he finds out whether the page is in use.
    pub(super) fn look(&self) {
        // ORDERING: Release, partner `put` (O9): who makes the page idle after this sees the announcement.
        self.0.fetch_or(0, Ordering::Release);
    }

    /// Freezes a page that nobody uses. True: the frame is the caller's alone (F3). A locked page has a
    /// reference today, so that LOCKED is looked at changes nothing in an arena.
    pub(super) fn try_freeze(&self) -> bool {
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let idle = word & (REFERENCES | LOCKED | DIRTY | WRITING) == 0;
            if !idle || word & ATTACHED == 0 {
                return false;
            }
            let next = (word & !ATTACHED).wrapping_add(VERSION);
            // ORDERING: Acquire, partner `put` (O2): the holders are done before the frame is
            // reused.
            match self.0.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Undoes `try_freeze`. By who froze it.
    pub(super) fn thaw(&self) {
        // ORDERING: Acquire, partner `look` (O9): the page can be evicted again. The identity is what `publish`
        // released, and every step since, this one too, is a read-modify-write and passes that on (O1).
        self.0.fetch_or(ATTACHED, Ordering::Acquire);
    }

    /// No new references from now on. By the lock's holder, who has a reference. True the first
    /// time.
    pub(super) fn detach(&self) -> bool {
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        while word & ATTACHED != 0 {
            let next = (word & !ATTACHED).wrapping_add(VERSION);
            // ORDERING: Relaxed; nothing is published: F3 needs the step alone, and bytes written
            // afterwards come behind the fence of `begin_change` (O3).
            match self.0.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Attaches a page: locked, not up to date, one reference. By who took the frame off the free
    /// list, after he wrote the identity.
    pub(super) fn publish(&self) {
        // ORDERING: Relaxed; nobody changes the word of a free frame (F6).
        let word = self.0.load(Ordering::Relaxed);
        debug_assert!(word & (ATTACHED | REFERENCES) == 0, "published twice");
        // ORDERING: Release, partners `try_reference` and `load` (O1).
        self.0.store(version(word) | REFERENCE | ATTACHED | LOCKED, Ordering::Release);
    }

    /// What an owner of a frozen frame does before he changes identity or bytes that a reader by
    /// version, who began before the freeze, may still look at.
    pub(super) fn before_bytes(&self) {
        // ORDERING: Release, partner `reload` (O5): who sees the new sees that the version moved
        // on.
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

    /// Releases the content lock. True if somebody may sleep for it: wake them.
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
        // ORDERING: Release, partner `reload` (O3): who sees a byte of the change sees CHANGING
        // too.
        fence(Ordering::Release);
    }

    /// The change is over.
    #[inline]
    pub(super) fn end_change(&self) {
        // ORDERING: Release, partner `load` (O4): who may read again sees the change whole.
        self.0.fetch_and(!CHANGING, Ordering::Release);
    }

    /// Sets flags; the word before. By the lock's holder.
    #[inline]
    pub(super) fn set(&self, flags: u64) -> u64 {
        // ORDERING: Release, partner `load` (O4): who sees UPTODATE sees the bytes.
        self.0.fetch_or(flags, Ordering::Release)
    }

    /// Says that the bytes which the lock's holder is bringing in are out of date. By anybody.
    pub(super) fn mark_stale(&self) {
        // ORDERING: Release, partner `set_filled` (F8): who then asks the store again does not get an
        // answer from before the news.
        self.0.fetch_or(STALE, Ordering::Release);
    }

    /// The bytes are the page's, unless they were said to be out of date since the last call: then
    /// false, and that is forgotten. By the lock's holder.
    pub(super) fn set_filled(&self) -> bool {
        let filled = |word| if word & STALE == 0 { word | UPTODATE } else { word & !STALE };
        // ORDERING: AcqRel; Release, partner `load` (O4): who sees UPTODATE sees the bytes; Acquire,
        // partner `mark_stale` (F8).
        let before =
            self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| Some(filled(word)));
        before.is_ok_and(|word| word & STALE == 0)
    }

    /// Clears flags; the word before. By the lock's holder.
    pub(super) fn clear(&self, flags: u64) -> u64 {
        // ORDERING: Relaxed; the tags order nothing by themselves, `unlock` follows (O6).
        self.0.fetch_and(!flags, Ordering::Relaxed)
    }

    /// Dirty becomes writing. False unless it is dirty and not being written. By the lock's holder.
    pub(super) fn begin_writing(&self) -> bool {
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        while word & (DIRTY | WRITING) == DIRTY {
            let next = word & !DIRTY | WRITING;
            // ORDERING: Relaxed; the bytes written are read under the lock (O6).
            match self.0.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// The write is over; dirty again if `again`. The word before: if it has WAITERS, wake them.
    /// DIRTY that was set meanwhile stays (F7).
    #[must_use]
    pub(super) fn end_writing(&self, again: bool) -> u64 {
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            debug_assert!(word & WRITING != 0, "nobody writes");
            let next = word & !(WRITING | WAITERS) | if again { DIRTY } else { 0 };
            // ORDERING: Release, partners `wait_mark` and the freeze of eviction (O7, O2): who
            // finds it written finds the write done.
            match self.0.compare_exchange_weak(word, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return word,
                Err(now) => word = now,
            }
        }
    }

    /// Marks the word for a sleeper, unless all of `flags` are clear. True: sleep.
    pub(super) fn wait_mark(&self, flags: u64) -> bool {
        let sleeper = |word| if word & flags != 0 { Some(word | WAITERS) } else { None };
        // ORDERING: Acquire when it fails, partners `unlock` and `end_writing` (O6, O7); Relaxed
        // when it succeeds, the step alone counts (W1).
        self.0.fetch_update(Ordering::Relaxed, Ordering::Acquire, sleeper).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Whoever locks a page has a reference today, so the references alone would keep an arena's pages;
    /// the word promises it by itself.
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
