//! Room for pages.
//!
//! # Boundary
//! Promises frames within the budget, and takes pages out to keep the promise. What goes is decided by
//! `uvfs_concurrent::replacement`.
//!
//! # Concurrency
//! A promise is one atomic addition, checked against the budget after it: two that would exceed it
//! together both see that. Who finds no room evicts, with no lock and no guard held across a page; what
//! is locked, dirty or being written is passed over. If nothing clean is left, pages are written back,
//! on this thread. A thread that waits for pages that others write is woken by the store's answer ([`super::progress`]).
//! Never called inside a gate.
//!
//! # Why
//! Promised before it is needed, because where it is needed (inside the gate, with a page locked) one
//! must not wait for writing. Weaknesses: promises of many threads at once can evict a little more than was needed; of
//! a page that is merely locked or referenced nobody tells, so it is looked at again every [`PAUSE`].

use super::{Order, PAGE, PageCache, RUN_PAGES, key};
use crate::error::{Error, Result};
use crate::vfs::Core;
use std::time::{Duration, Instant};
use uvfs_concurrent::epoch;
use uvfs_concurrent::frame::{Evicting, FrameId, Fresh};
use uvfs_concurrent::primitive::atomic::Ordering::{AcqRel, Acquire};
use uvfs_concurrent::replacement::Offer;

/// One run is at most this part of the pages that may be cached.
const RUN_ONE_IN: u64 = 32;
/// But at least so many pages.
const RUN_PAGES_MIN: u64 = 8;
/// Pages looked at under one hold of the queues' lock.
const BATCH: usize = 32;
/// Pages looked at under one hold when many cannot go.
const LOOKS_MAX: usize = 1024;
/// What a page may take in its tree, at most: a page promised may be alone in its node.
const NODE_BYTES: u64 = 576;
/// Frames that there are whatever the budget says.
const FRAMES_SURE: u64 = 64;
/// How long a store that refuses everything is asked again for one promise.
const REFUSED: Duration = Duration::from_millis(200);
/// Between two looks whether others are done.
const PAUSE: Duration = Duration::from_millis(1);

/// Frames promised; what is not taken goes back when dropped.
#[derive(Debug)]
pub(super) struct Room<'a> {
    cache: &'a PageCache,
    frames: u64,
}

impl<'a> Room<'a> {
    /// Takes one frame. `None` if the promise is used up, or the address space is.
    pub(super) fn take(&mut self) -> Option<Fresh<'a>> {
        self.frames = self.frames.checked_sub(1)?;
        let fresh = self.cache.arena.allocate();
        // It is counted among the allocated by now.
        // ORDERING: AcqRel, partner `promise`.
        self.cache.promised.fetch_sub(1, AcqRel);
        fresh
    }
}

impl Room<'_> {
    /// A frame that was taken is free again, and promised again.
    pub(super) fn put_back(&mut self) {
        // ORDERING: AcqRel, partner `promise`.
        self.cache.promised.fetch_add(1, AcqRel);
        self.frames += 1;
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        // ORDERING: AcqRel, partner `promise`.
        self.cache.promised.fetch_sub(self.frames, AcqRel);
    }
}

impl PageCache {
    /// Pages of one run: as many as make requests cheap, and few beside those that may be cached.
    pub(super) fn run_pages(&self, core: &Core) -> u64 {
        (self.frames_allowed(core) / RUN_ONE_IN).clamp(RUN_PAGES_MIN, RUN_PAGES)
    }

    /// Frames that may be in use, by the budget.
    pub(super) fn frames_allowed(&self, core: &Core) -> u64 {
        // The overhead may have grown between the two looks at it.
        let bytes = self.bytes_allowed(core).saturating_sub(self.overhead_bytes());
        (bytes / PAGE).max(FRAMES_SURE)
    }

    /// Promises `least` to `wanted` frames without waiting for anything: evicts what is clean. `None` if
    /// there is no such room.
    pub(super) fn try_room(&self, core: &Core, (least, wanted): (u64, u64)) -> Option<Room<'_>> {
        let room = self.promise(wanted);
        let short = self.short_of(core);
        if short == 0 {
            return Some(room);
        }
        self.give_back_free(short);
        let short = self.short_of(core);
        self.evict(core, short);
        let short = self.short_of(core);
        if short == 0 {
            return Some(room);
        }
        drop(room);
        let less = wanted.saturating_sub(short);
        if less < least {
            return None;
        }
        let room = self.promise(less);
        (self.short_of(core) == 0).then_some(room)
    }

    /// Gives back all memory that nobody uses.
    pub(crate) fn give_back_unused(&self) {
        self.forget_buffers();
        self.give_back_free(u64::MAX);
    }

    /// Gives the memory of up to `frames` frames back that are free and promised to nobody.
    fn give_back_free(&self, frames: u64) {
        // ORDERING: Acquire, partner `promise`.
        let used = self.arena.allocated() as u64 + self.promised.load(Acquire);
        let spare = (self.arena.resident() as u64).saturating_sub(used);
        if spare > 0 {
            self.arena.trim(usize::try_from(spare.min(frames)).unwrap_or(usize::MAX));
        }
    }

    /// Promises frames, at least and at most so many; writes dirty pages back if it has to, and waits for
    /// those who use pages for as long as `patience` says.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if nothing could be written back; [`Error::NoMemory`] if everything is in use.
    pub(super) fn room(
        &self,
        core: &Core,
        wanted: (u64, u64),
        patience: Duration,
    ) -> Result<Room<'_>> {
        let began = Instant::now();
        loop {
            // Before the look: what is clean by then is not waited for.
            let seen = self.progress.seen();
            if let Some(room) = self.try_room(core, wanted) {
                return Ok(room);
            }
            let wrote = if self.dirty() > 0 { core.write_any() } else { Ok(0) };
            match wrote {
                Ok(0) if began.elapsed() >= patience => return Err(Error::NoMemory),
                // The cache is full of what the store refuses.
                Err(_) if began.elapsed() >= patience.min(REFUSED) => return Err(Error::NoSpace),
                Ok(0) | Err(_) => {}
                Ok(_) if began.elapsed() >= patience => return Err(Error::NoMemory),
                Ok(_) => continue,
            }
            // Being written by others, who wake us; or locked or referenced, of which nobody tells.
            self.progress.wait(seen, PAUSE);
        }
    }

    fn promise(&self, frames: u64) -> Room<'_> {
        // ORDERING: AcqRel, partner itself: of two promises the later one sees the earlier.
        self.promised.fetch_add(frames, AcqRel);
        Room { cache: self, frames }
    }

    /// Frames in use or promised beyond what is allowed.
    fn short_of(&self, core: &Core) -> u64 {
        // ORDERING: Acquire, partner `promise`.
        let promised = self.promised.load(Acquire);
        let used = self.arena.allocated() as u64 + promised;
        let used = used.max(self.arena.resident() as u64) * PAGE;
        let bytes = used + promised * NODE_BYTES + self.overhead_bytes();
        bytes.saturating_sub(self.bytes_allowed(core)).div_ceil(PAGE)
    }

    /// Bytes that the budget allows, but never so few that no page can be had: what describes pages and
    /// finds them does not shrink with the limit.
    fn bytes_allowed(&self, core: &Core) -> u64 {
        core.pages_allowed().max(self.overhead_bytes() + FRAMES_SURE * (PAGE + NODE_BYTES))
    }

    /// Takes `wanted` pages out that are clean and not in use; how many it were.
    pub(super) fn evict(&self, core: &Core, wanted: u64) -> u64 {
        let mut gone = 0;
        let mut batch = Vec::with_capacity(BATCH);
        let mut looks = 1;
        while gone < wanted {
            batch.clear();
            // The more are in use or dirty, the more are looked at; no more go than are wanted.
            let want = BATCH.min((wanted - gone) as usize).max(looks);
            let offer = {
                let mut order = self.queues.lock();
                self.remember_departures(core, &mut order);
                order.queues.candidates(&self.arena, want, &mut batch)
            };
            if batch.is_empty() && offer == Offer::Exhausted {
                break;
            }
            let frozen =
                batch.iter().filter_map(|&id| self.arena.try_evict(FrameId::from_number(id)));
            let frozen: Vec<Evicting<'_>> = frozen.take((wanted - gone) as usize).collect();
            looks = if frozen.is_empty() { (looks * 2).min(LOOKS_MAX) } else { 1 };
            gone += frozen.len() as u64;
            self.evicted(frozen);
        }
        gone
    }

    /// Departures are remembered for about as many pages as there may be. Changing that forgets them, so
    /// it follows large changes only.
    fn remember_departures(&self, core: &Core, order: &mut Order) {
        let allowed = self.frames_allowed(core).max(BATCH as u64);
        if allowed.abs_diff(order.capacity) > order.capacity / 4 {
            order.capacity = allowed;
            order.queues.set_capacity(usize::try_from(allowed).unwrap_or(usize::MAX));
        }
    }

    /// Pages frozen for eviction go: out of their trees, then out of the queues, then free.
    fn evicted(&self, frozen: Vec<Evicting<'_>>) {
        let mut keys = Vec::with_capacity(frozen.len());
        for page in &frozen {
            let inode = self.file_of(page.owner()).map(|file| {
                file.tree.remove_if(page.index(), page.id().to_value(), &epoch::pin());
                file.inode
            });
            keys.push((page.id(), inode.map(|inode| key(inode, page.index()))));
        }
        let mut order = self.queues.lock();
        let queues = &mut order.queues;
        for (id, key) in keys {
            match key {
                Some(key) => queues.evicted(id.number(), key),
                // Its file is going, and takes no notice of it any more.
                None => {
                    queues.remove(id.number());
                }
            }
        }
        drop(order);
        self.counters.evicted.add(frozen.len() as u64);
        frozen.into_iter().for_each(Evicting::free);
    }

    /// Evicts until the budget holds, and gives the memory of free frames back; writes nothing.
    pub(crate) fn trim_to_budget(&self, core: &Core) {
        let short = self.short_of(core);
        if short == 0 {
            return;
        }
        self.forget_buffers();
        self.give_back_free(short);
        let short = self.short_of(core);
        let gone = self.evict(core, short);
        self.give_back_free(gone);
    }
}
