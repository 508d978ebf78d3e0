//! What one can have of a frame: fresh, a reference, the lock, the right to evict.
//!
//! ```text
//!   Fresh ── assign ──▶ Locked ⇄ PageRef ── last drop, detached ──▶ free
//!     │                    │ detach                                   ▲
//!     │       nobody: ── try_evict ──▶ Evicting ── free ──────────────┤
//!     └──────────────────────── drop ─────────────────────────────────┘
//! ```
//!
//! # Boundary
//! Types that stand for rights, so that what the word's transitions demand holds by construction.
//! The protocol is in [`super`].

use super::arena::{Arena, Descriptor, FrameId, Read};
use super::memory::PAGE_BYTES;
use super::word::{self, ATTACHED, DIRTY, LOCKED, Put, StateWord, UPTODATE, WAITERS, WRITING};

/// Times a thread looks at a lock before it sleeps: as long as a page takes to copy.
const SPINS_BEFORE_SLEEP: usize = if cfg!(loom) { 0 } else { 128 };

/// A frame that nobody else has. Dropped, it is free again.
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

    /// Makes it page `index` of `owner`: attached, locked, not up to date. Others come to it as
    /// soon as they have its number.
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

/// How a write to the backend ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The backend has what the page held when [`Locked::begin_writing`] was called.
    Written,
    /// It does not: the page is dirty again.
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

    /// Whose page it is.
    pub fn owner(&self) -> u64 {
        self.descriptor().owner()
    }

    /// Which page of its owner.
    pub fn index(&self) -> u64 {
        self.descriptor().index()
    }

    /// Whether the bytes are the page's. Once true, true for as long as the reference lives.
    pub fn is_uptodate(&self) -> bool {
        self.has(UPTODATE)
    }

    /// Whether it has to be written, as of now.
    pub fn is_dirty(&self) -> bool {
        self.has(DIRTY)
    }

    /// Whether it is being written, as of now.
    pub fn is_writing(&self) -> bool {
        self.has(WRITING)
    }

    /// Whether [`PageRef::mark_stale`] was called and nothing of the page has to be written: nobody should
    /// read it any more.
    pub fn is_outdated(&self) -> bool {
        word::is_outdated(self.word().load())
    }

    /// Whether it is locked, as of now.
    pub fn is_locked(&self) -> bool {
        self.has(LOCKED)
    }

    /// Whether it is still in the cache. Under the lock the answer lasts.
    pub fn is_attached(&self) -> bool {
        self.has(ATTACHED)
    }

    /// Another reference; `None` when there are more than 65,000.
    pub fn try_clone(&self) -> Option<Self> {
        let word = self.word();
        word.add_reference().then(|| Self { arena: self.arena, id: self.id })
    }

    /// Copies bytes from `offset` on without the lock, as [`Arena::read_validated`].
    ///
    /// # Panics
    /// If the range leaves the page.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Read {
        self.arena.read_validated(self.id, self.owner(), self.index(), offset, to)
    }

    /// Takes the content lock, sleeping if need be. Look at [`PageRef::is_attached`] then.
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
    /// The reference, when somebody else has the lock.
    pub fn try_lock(self) -> Result<Locked<'a>, Self> {
        if self.word().try_lock() { Ok(Locked { page: self }) } else { Err(self) }
    }

    /// Sleeps until nobody has the lock; somebody may have it again on return.
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

    /// Ends what [`Locked::begin_writing`] began; without the lock, also when the page was detached
    /// or became dirty meanwhile. Whether that is one write less to be done: false if the page is
    /// dirty for this write alone.
    pub fn end_writing(&self, outcome: Outcome) -> bool {
        let before = self.word().end_writing(outcome == Outcome::Again);
        if before & WAITERS != 0 {
            self.arena.waits.wake(self.id.0);
        }
        outcome == Outcome::Written || before & DIRTY != 0
    }

    /// Says that the bytes which somebody may be bringing in are out of date:
    /// [`Locked::set_filled`] will not take them for the page's.
    pub fn mark_stale(&self) {
        self.word().mark_stale();
    }
}

impl Clone for PageRef<'_> {
    /// # Panics
    /// When there are more than 65,000 references. [`Arena::try_get`] gives out half as many, so
    /// whoever clones each once does not come there; others call [`PageRef::try_clone`].
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

    /// Writes bytes from `offset` on; who is reading by version reads again. Marks nothing dirty.
    ///
    /// # Panics
    /// If the range leaves the page.
    pub fn write(&mut self, offset: usize, from: &[u8]) {
        let memory = &self.page.arena.memory;
        let inside = offset <= PAGE_BYTES && from.len() <= PAGE_BYTES - offset;
        assert!(inside, "{} bytes from {offset} on are not in a page", from.len());
        self.change(|| memory.store(self.page.id.0, offset, from));
    }

    /// Zeroes the bytes of `range`, as [`Locked::write`].
    ///
    /// # Panics
    /// If the range leaves the page.
    pub fn zero(&mut self, range: std::ops::Range<usize>) {
        let memory = &self.page.arena.memory;
        assert!(range.end <= PAGE_BYTES, "{range:?} is not in a page");
        self.change(|| memory.zero(self.page.id.0, range.start, range.len()));
    }

    /// Runs `store`, which does not panic, so that no reader accepts what it does half.
    #[inline]
    fn change(&self, store: impl FnOnce()) {
        let word = self.word();
        // Only we could set it (F5).
        if word.load() & UPTODATE == 0 {
            // Nobody reads this page by version yet; somebody may still read the one before it
            // (O5).
            word.before_bytes();
            store();
        } else {
            word.begin_change();
            store();
            word.end_change();
        }
    }

    /// Says that the bytes are the page's: others may read them.
    pub fn set_uptodate(&mut self) {
        self.word().set(UPTODATE);
    }

    /// As [`Locked::set_uptodate`], unless [`PageRef::mark_stale`] was called since the page came
    /// in or since the last call: then it returns false, and the bytes have to be brought in again.
    pub fn set_filled(&mut self) -> bool {
        self.word().set_filled()
    }

    /// Says that the bytes have to be written. Whether that is new.
    pub fn mark_dirty(&mut self) -> bool {
        self.word().set(DIRTY) & DIRTY == 0
    }

    /// Says that the bytes need not be written. Whether they had to be.
    pub fn clear_dirty(&mut self) -> bool {
        self.word().clear(DIRTY) & DIRTY != 0
    }

    /// From dirty to being written, so that changes from now on make it dirty again. False if it is
    /// clean, or an earlier write has not ended. [`PageRef::end_writing`] ends it.
    pub fn begin_writing(&mut self) -> bool {
        self.word().begin_writing()
    }

    /// Takes the page out of the cache, as truncation does: no new references; who has one keeps
    /// the bytes and the identity; the last to drop one frees the frame. False if it was detached
    /// before.
    pub fn detach(&mut self) -> bool {
        self.word().detach()
    }

    /// Unlocks and keeps the reference.
    pub fn unlock(self) -> PageRef<'a> {
        let page = PageRef::from_reference(self.page.arena, self.page.id);
        self.release();
        // Its reference is `page` now.
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

/// A frozen page that nobody has: take it out of its tree, then [`Evicting::free`]. Dropped
/// instead, it stays in the cache.
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

    /// Whose page it is.
    pub fn owner(&self) -> u64 {
        self.arena.descriptor(self.id).owner()
    }

    /// Which page of its owner.
    pub fn index(&self) -> u64 {
        self.arena.descriptor(self.id).index()
    }

    /// Frees the frame. No tree may lead to it any more.
    pub fn free(self) {
        self.arena.give(self.id);
        std::mem::forget(self);
    }

    /// The frame for another page at once, as [`Evicting::free`] and [`Arena::allocate`].
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
