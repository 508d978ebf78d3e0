//! Threads that wait for a free frame, and frames that are promised to a thread before it allocates them.
//!
//! ```text
//!   the waiter                         the thread that makes room
//!   announce (waiting + 1)             put, free or withdraw: read-modify-write of a word
//!   read `events`                      look at `waiting`
//!   look: read-modify-write of         if a thread waits: `events` + 1, wake
//!         every count and word
//!   sleep while `events` is the same
//! ```
//!
//! # Boundary
//! Promises, announcements and sleep. The caller looks for room and decides how many frames are enough.
//!
//! # Concurrency
//! `docs/protocols/frame.md` has the invariants and the orderings: a waiter announces itself and then looks (V1); the
//! thread that makes room looks for waiters afterwards (V2); `events` is counted under the lock (V3); withdrawn
//! promises (V4); the announcement is seen (O9); a promise is redeemed once (O10).
//!
//! Progress: making room costs one load while no thread waits; a waiter depends on the users of pages. Checked by the
//! models `model_waits_…`, one for each place that makes room, and `model_a_frame_is_promised_or_allocated`.

use super::arena::{Arena, FrameId};
use super::page::Evicting;
use std::time::Duration;
use uvfs_concurrent::lock::{Condvar, LockClass, Mutex, MutexGuard};
use uvfs_concurrent::padded::Padded;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering};

/// The promises and waiters of an arena. The protocol is in the module's documentation.
///
/// A thread that found no room used to look again every millisecond. The pattern is store buffering (each side writes
/// and then reads the other side's word), which release and acquire alone do not order. It needs a fence on both sides
/// or a read-modify-write of one word on both. A thread that drops a reference does one anyway. So the protocol adds
/// only a load of a line that is written when a wait begins or ends. A reader by version does not pay even that.
/// Weakness: each page that becomes free wakes every waiter.
#[derive(Debug)]
pub(super) struct Vacancy {
    /// Frames promised and not allocated yet.
    promised: Padded<AtomicU64>,
    /// Announced waiters. Written when a wait begins or ends, read by every thread that makes room.
    waiting: Padded<AtomicU64>,
    /// How many times room was made while a thread waited.
    events: Mutex<u64>,
    made: Condvar,
    looks: AtomicU64,
}

impl Vacancy {
    pub(super) fn new(class: &'static LockClass) -> Self {
        Self {
            promised: Padded(AtomicU64::new(0)),
            waiting: Padded(AtomicU64::new(0)),
            events: Mutex::new(class, 0),
            made: Condvar::default(),
            looks: AtomicU64::new(0),
        }
    }

    /// Room was made, by a read-modify-write that comes before this call (V2).
    #[inline]
    pub(super) fn tell(&self) {
        // ORDERING: Relaxed; the read-modify-write before it makes an announcement visible (O9).
        if self.waiting.0.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        *self.events.lock() += 1;
        self.made.notify_all();
    }

    #[cfg(not(loom))]
    fn sleep<'a>(
        &'a self,
        mut events: MutexGuard<'a, u64>,
        limit: Duration,
    ) -> MutexGuard<'a, u64> {
        self.made.wait_for(&mut events, limit);
        events
    }

    /// The model checker has no condition variable here: looks again after other threads ran, for ever.
    #[cfg(loom)]
    fn sleep<'a>(&'a self, mut events: MutexGuard<'a, u64>, _: Duration) -> MutexGuard<'a, u64> {
        let before = *events;
        while *events == before {
            drop(events);
            loom::thread::yield_now();
            events = self.events.lock();
        }
        events
    }
}

/// Promises of frames. The caller compares afterwards whether there are as many.
impl Arena {
    /// Promises `frames`: of two promises the later one counts the earlier, if both callers then read
    /// [`Arena::promised`].
    pub fn promise(&self, frames: u64) {
        // ORDERING: Release, partner `withdraw` (O9). `promised` makes earlier steps of other threads visible.
        self.vacancy().promised.0.fetch_add(frames, Ordering::Release);
    }

    /// Ends the promise of one frame after an attempt to allocate it; `was_had` if it is allocated now. If it is not,
    /// that makes room for others.
    pub fn redeem(&self, was_had: bool) {
        self.withdraw_in_silence(1);
        if !was_had {
            self.vacancy().tell();
        }
    }

    /// Withdraws a promise of `frames`, which makes room for others. `frames` may be 0, after [`Arena::redeem`]: from
    /// its allocation until then, a frame counts twice.
    pub fn withdraw(&self, frames: u64) {
        self.withdraw_in_silence(frames);
        self.vacancy().tell();
    }

    /// Withdraws the promise of an announced waiter that could not use it (V4): wakes no thread.
    fn withdraw_in_silence(&self, frames: u64) {
        // ORDERING: AcqRel; Release, partner `promised` (O10), and Acquire, partner `promise` of a waiter (O9).
        self.vacancy().promised.0.fetch_sub(frames, Ordering::AcqRel);
    }

    /// Frames promised and not yet redeemed. If both count, read this before [`Arena::allocated`].
    pub fn promised(&self) -> u64 {
        // ORDERING: Acquire, partner `redeem` (O10).
        self.vacancy().promised.0.load(Ordering::Acquire)
    }

    /// The caller allows more frames than before: every waiter looks again.
    pub fn room_grew(&self) {
        // An event for every waiter: no word changes, so the lock orders it against a look.
        self.vacancy().wake();
    }

    /// Announces a waiter for room.
    pub fn wait_for_room(&self) -> RoomWaiter<'_> {
        // ORDERING: Relaxed; published by the looks that follow (O9).
        self.vacancy().waiting.0.fetch_add(1, Ordering::Relaxed);
        RoomWaiter { arena: self }
    }

    /// How many times announced waiters have looked.
    pub fn looks_for_room(&self) -> u64 {
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        self.vacancy().looks.load(Ordering::Relaxed)
    }
}

/// A waiter for room, announced until this is dropped.
///
/// No wake-up is lost: of the two read-modify-writes of one word one comes first. If the one that makes room is first,
/// the waiter's look finds the room. If the waiter's is first, the other one reads its result, or that of a later
/// read-modify-write. So the announcement happened before the look at `waiting`, which finds it. Then `events` differs,
/// or the waiter sleeps and is woken (V3). Only `publish` stores to a page's word, by a thread that has a free frame.
/// If that frame was freed after the look, the waiter was woken. If it was freed before, its page is entered in the
/// list of pages to evict, under the lock of the look.
#[derive(Debug)]
pub struct RoomWaiter<'a> {
    arena: &'a Arena,
}

/// The number of events when a look began.
#[derive(Debug, Clone, Copy)]
pub struct Look(u64);

impl<'a> RoomWaiter<'a> {
    /// Begins to look. The caller must read the counts of free and promised frames after this, and check pages in use
    /// by [`RoomWaiter::try_evict`]. One waiter at a time (V4).
    pub fn look(&self) -> Look {
        let vacancy = self.arena.vacancy();
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        vacancy.looks.fetch_add(1, Ordering::Relaxed);
        let look = Look(*vacancy.events.lock());
        self.arena.look_at_free_frames();
        look
    }

    /// Like [`Arena::try_evict`]; if the page is in use, the end of that use wakes the waiter.
    pub fn try_evict(&self, id: FrameId) -> Option<Evicting<'a>> {
        let word = self.arena.word_of(id)?;
        word.look();
        self.arena.try_evict(id)
    }

    /// Withdraws a promise that could not be used.
    pub fn withdraw(&self, frames: u64) {
        self.arena.withdraw_in_silence(frames);
    }

    /// Sleeps until room has been made since `look` began, for at most `limit`.
    pub fn sleep(&self, look: Look, limit: Duration) {
        let vacancy = self.arena.vacancy();
        let events = vacancy.events.lock();
        if *events == look.0 {
            drop(vacancy.sleep(events, limit));
        }
    }
}

impl Drop for RoomWaiter<'_> {
    fn drop(&mut self) {
        // ORDERING: Relaxed; a thread that still sees it wakes no sleeper.
        self.arena.vacancy().waiting.0.fetch_sub(1, Ordering::Relaxed);
    }
}
