//! The rights to a frame: fresh, a reference, the lock, the right to evict.
//!
//! ```text
//!   Fresh ── assign ──▶ Locked ⇄ PageRef ── last drop, detached ──▶ free
//!     │                    │ detach                                   ▲
//!     │       unused: ── try_evict ──▶ Evicting ── free ──────────────┤
//!     └──────────────────────── drop ─────────────────────────────────┘
//! ```
//!
//! # Boundary
//! Types that stand for rights, so that the requirements of the word's transitions hold by construction. The protocol
//! is in [`super`].

use super::arena::{Arena, Descriptor, FrameId, Read};
use super::memory::PAGE_BYTES;
use super::word::{self, ATTACHED, DIRTY, LOCKED, Put, StateWord, UPTODATE, WAITERS, WRITING};

/// Times a thread tries a lock before it sleeps: about the time to copy a page.
const SPINS_BEFORE_SLEEP: usize = if cfg!(loom) { 0 } else { 128 };

/// A frame that no other thread has. Dropped, it is free again.
#[derive(Debug)]
#[must_use = "dropped, the frame is free again"]
pub struct Fresh<'a> {
    arena: &'a Arena,
    id: FrameId,
}

impl<'a> Fresh<'a> {
    pub(super) fn new(arena: &'a Arena, id: FrameId) -> Self {
        Self { arena, id }
    }

    /// The frame.
    pub fn id(&self) -> FrameId {
        self.id
    }

    /// Makes it page `index` of `owner`: attached, locked, not up to date. Other threads can reach it as soon as they
    /// have its number.
    pub fn assign(self, owner: u64, index: u64) -> Locked<'a> {
        self.arena.descriptor(self.id).assign(owner, index);
        let page = PageRef { arena: self.arena, id: self.id };
        std::mem::forget(self);
        Locked { page }
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        self.arena.give(self.id);
    }
}

/// The outcome of a write to the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The backend has the page's bytes of the moment when [`Locked::begin_writing`] was called.
    Written,
    /// The backend does not have them: the page is dirty again.
    Again,
}

/// A counted reference: the frame holds this page until it is dropped (F2).
#[derive(Debug)]
pub struct PageRef<'a> {
    arena: &'a Arena,
    id: FrameId,
}

impl<'a> PageRef<'a> {
    /// Takes over a reference that was counted already.
    #[inline]
    pub(super) fn from_reference(arena: &'a Arena, id: FrameId) -> Self {
        Self { arena, id }
    }

    #[inline]
    fn descriptor(&self) -> &'a Descriptor {
        self.arena.descriptor(self.id)
    }

    #[inline]
    fn word(&self) -> &'a StateWord {
        &self.descriptor().word
    }

    fn has(&self, flag: u64) -> bool {
        self.word().load() & flag != 0
    }

    /// The frame.
    #[inline]
    pub fn id(&self) -> FrameId {
        self.id
    }

    /// The owner of the page.
    pub fn owner(&self) -> u64 {
        self.descriptor().owner()
    }

    /// The index of the page within its owner.
    pub fn index(&self) -> u64 {
        self.descriptor().index()
    }

    /// Whether the bytes are the page's. Once true, true for as long as the reference lives.
    pub fn is_uptodate(&self) -> bool {
        self.has(UPTODATE)
    }

    /// Whether it must be written, at this moment.
    pub fn is_dirty(&self) -> bool {
        self.has(DIRTY)
    }

    /// Whether it is being written, at this moment.
    pub fn is_writing(&self) -> bool {
        self.has(WRITING)
    }

    /// Whether [`PageRef::mark_stale`] was called and no byte of the page must be written: it must not be read any
    /// more.
    pub fn is_outdated(&self) -> bool {
        word::is_outdated(self.word().load())
    }

    /// Whether it is locked, at this moment.
    pub fn is_locked(&self) -> bool {
        self.has(LOCKED)
    }

    /// Whether it is still in the cache. Stable under the lock.
    pub fn is_attached(&self) -> bool {
        self.has(ATTACHED)
    }

    /// Another reference; `None` when there are more than 65,000.
    pub fn try_clone(&self) -> Option<Self> {
        let word = self.word();
        word.add_reference().then(|| Self { arena: self.arena, id: self.id })
    }

    /// Copies bytes from `offset` on without the lock, like [`Arena::read_validated`].
    ///
    /// # Panics
    /// If the range leaves the page.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Read {
        self.arena.read_validated(self.id, self.owner(), self.index(), offset, to)
    }

    /// Takes the content lock, sleeping if necessary. The caller must check [`PageRef::is_attached`] afterwards.
    pub fn lock(self) -> Locked<'a> {
        let word = self.word();
        let mut spins = 0;
        while !word.try_lock() {
            if spins < SPINS_BEFORE_SLEEP {
                spins += 1;
                std::hint::spin_loop();
            } else {
                self.arena.waits.sleep(self.id.0, word, LOCKED);
            }
        }
        Locked { page: self }
    }

    /// Takes the content lock if it is free.
    ///
    /// # Errors
    /// Returns the reference if another thread has the lock.
    pub fn try_lock(self) -> Result<Locked<'a>, Self> {
        if self.word().try_lock() { Ok(Locked { page: self }) } else { Err(self) }
    }

    /// Sleeps until the page is unlocked; another thread may have locked it again on return.
    pub fn wait_unlocked(&self) {
        self.wait(LOCKED);
    }

    /// Sleeps until it is not being written.
    pub fn wait_written(&self) {
        self.wait(WRITING);
    }

    fn wait(&self, flag: u64) {
        if self.has(flag) {
            self.arena.waits.sleep(self.id.0, self.word(), flag);
        }
    }

    /// Ends a write that [`Locked::begin_writing`] began; without the lock, also if the page was detached or became
    /// dirty meanwhile. Returns whether one write fewer is pending: false if the page is dirty only because of this
    /// write.
    pub fn end_writing(&self, outcome: Outcome) -> bool {
        let before = self.word().end_writing(outcome == Outcome::Again);
        if before & WAITERS != 0 {
            self.arena.waits.wake(self.id.0);
        }
        outcome == Outcome::Written || before & DIRTY != 0
    }

    /// Reports that the bytes which a thread may be reading in are out of date: [`Locked::set_filled`] will not accept
    /// them as the page's.
    pub fn mark_stale(&self) {
        self.word().mark_stale();
    }
}

impl Clone for PageRef<'_> {
    /// # Panics
    /// When there are more than 65,000 references. [`Arena::try_get`] allows half as many, so callers that clone each
    /// reference once stay below the limit; others call [`PageRef::try_clone`].
    fn clone(&self) -> Self {
        self.try_clone().expect("fewer than 65,000 references")
    }
}

impl Drop for PageRef<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.word().put() {
            Put::Free => self.arena.give(self.id),
            Put::Idle => self.arena.vacancy().tell(),
            Put::InUse => {}
        }
    }
}

/// The content lock of a page, with a reference. Dropped, it unlocks.
#[derive(Debug)]
#[must_use = "dropped, the page is unlocked"]
pub struct Locked<'a> {
    page: PageRef<'a>,
}

impl<'a> Locked<'a> {
    #[inline]
    fn word(&self) -> &'a StateWord {
        self.page.word()
    }

    /// The reference.
    #[inline]
    pub fn page(&self) -> &PageRef<'a> {
        &self.page
    }

    /// Copies bytes from `offset` on.
    ///
    /// # Panics
    /// If the range leaves the page.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        self.page.arena.memory.load(self.page.id.0, offset, to);
    }

    /// Writes bytes from `offset` on; concurrent readers by version read again. Does not mark the page dirty.
    ///
    /// # Panics
    /// If the range leaves the page.
    pub fn write(&mut self, offset: usize, from: &[u8]) {
        let memory = &self.page.arena.memory;
        let inside = offset <= PAGE_BYTES && from.len() <= PAGE_BYTES - offset;
        assert!(inside, "{} bytes from {offset} on are not in a page", from.len());
        self.change(|| memory.store(self.page.id.0, offset, from));
    }

    /// Zeroes the bytes of `range`, like [`Locked::write`].
    ///
    /// # Panics
    /// If the range leaves the page.
    pub fn zero(&mut self, range: std::ops::Range<usize>) {
        let memory = &self.page.arena.memory;
        assert!(range.end <= PAGE_BYTES, "{range:?} is not in a page");
        self.change(|| memory.zero(self.page.id.0, range.start, range.len()));
    }

    /// Runs `store`, which must not panic, so that no reader accepts half of its effect.
    #[inline]
    fn change(&self, store: impl FnOnce()) {
        let word = self.word();
        // Only this thread, as the lock's holder, could set it (F5).
        if word.load() & UPTODATE == 0 {
            // No reader by version reads this page yet; a reader may still read the frame's previous page (O5).
            word.before_bytes();
            store();
        } else {
            word.begin_change();
            store();
            word.end_change();
        }
    }

    /// Declares that the bytes are the page's: others may read them.
    pub fn set_uptodate(&mut self) {
        self.word().set(UPTODATE);
    }

    /// Like [`Locked::set_uptodate`], unless [`PageRef::mark_stale`] was called since the page was inserted or since
    /// the last call. Then it returns false, and the bytes must be read in again.
    pub fn set_filled(&mut self) -> bool {
        self.word().set_filled()
    }

    /// Declares that the bytes must be written. True if they were clean.
    pub fn mark_dirty(&mut self) -> bool {
        self.word().set(DIRTY) & DIRTY == 0
    }

    /// Declares that the bytes need not be written. True if they were dirty.
    pub fn clear_dirty(&mut self) -> bool {
        self.word().clear(DIRTY) & DIRTY != 0
    }

    /// Changes dirty to writing, so that later changes make the page dirty again. False if it is clean, or if an
    /// earlier write has not ended. [`PageRef::end_writing`] ends it.
    pub fn begin_writing(&mut self) -> bool {
        self.word().begin_writing()
    }

    /// Takes the page out of the cache, as truncation does: no new references. Existing references keep the bytes and
    /// the identity; the last one to drop frees the frame. False if it was detached before.
    pub fn detach(&mut self) -> bool {
        self.word().detach()
    }

    /// Unlocks and keeps the reference.
    pub fn unlock(self) -> PageRef<'a> {
        let page = PageRef::from_reference(self.page.arena, self.page.id);
        self.release();
        // `page` owns the reference now.
        std::mem::forget(self);
        page
    }

    fn release(&self) {
        if self.word().unlock() {
            self.page.arena.waits.wake(self.page.id.0);
        }
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.release();
    }
}

/// A frozen page without users: take it out of its tree, then [`Evicting::free`]. Dropped instead, it stays in the
/// cache.
#[derive(Debug)]
#[must_use = "dropped, the page stays"]
pub struct Evicting<'a> {
    arena: &'a Arena,
    id: FrameId,
}

impl<'a> Evicting<'a> {
    pub(super) fn new(arena: &'a Arena, id: FrameId) -> Self {
        Self { arena, id }
    }

    /// The frame.
    pub fn id(&self) -> FrameId {
        self.id
    }

    /// The owner of the page.
    pub fn owner(&self) -> u64 {
        self.arena.descriptor(self.id).owner()
    }

    /// The index of the page within its owner.
    pub fn index(&self) -> u64 {
        self.arena.descriptor(self.id).index()
    }

    /// Frees the frame. No tree may lead to it any more.
    pub fn free(self) {
        self.arena.give(self.id);
        std::mem::forget(self);
    }

    /// The frame for another page at once: [`Evicting::free`] and [`Arena::allocate`] in one step.
    pub fn reuse(self) -> Fresh<'a> {
        let fresh = Fresh::new(self.arena, self.id);
        std::mem::forget(self);
        fresh
    }
}

impl Drop for Evicting<'_> {
    fn drop(&mut self) {
        self.arena.descriptor(self.id).word.thaw();
        self.arena.vacancy().tell();
    }
}
