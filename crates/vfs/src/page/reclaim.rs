//! Room for pages.
//!
//! # Boundary
//! Reserves frames within the budget, and evicts pages to keep the reservation. `uvfs_containers::replacement` chooses
//! the pages.
//!
//! # Concurrency
//! A reservation ("promise") is one atomic addition, checked against the budget afterwards: two that together exceed it
//! both see that. A thread that finds no room evicts, with no lock and no guard held across a page. It skips pages that
//! are locked, dirty or being written. If no clean page is left, it writes pages back itself. Before it waits, it
//! registers a [`RoomWaiter`], which is woken for each evictable page and for each returned frame or reservation. One
//! registered thread looks at a time.
//! Never called inside a gate.
//!
//! # Why
//! Room is reserved early, because a thread inside the gate with a page locked must not wait for a write. Weaknesses:
//! reservations of many threads at once can evict a few pages too many. Memory freed by the name cache wakes no waiter,
//! so a waiter looks again every [`LOOK_ANYWAY`].

use super::{Order, PAGE, PageCache, RUN_PAGES, key};
use crate::error::{Error, Result};
use crate::vfs::Core;
use std::time::{Duration, Instant};
use uvfs_concurrent::epoch;
use uvfs_containers::frame::{Evicting, FrameId, Fresh, RoomWaiter};
use uvfs_containers::replacement::Offer;

/// One run has at most this part of the pages that may be cached.
const RUN_ONE_IN: u64 = 32;
/// But at least this number of pages.
const RUN_PAGES_MIN: u64 = 8;
/// Pages looked at under one hold of the queues' lock.
const BATCH: usize = 32;
/// Pages looked at under one hold when many cannot be evicted.
const LOOKS_MAX: usize = 1024;
/// Bytes that a page may take in its tree, at most: it may be alone in its node.
const NODE_BYTES: u64 = 576;
/// Frames that are allowed whatever the budget says.
const FRAMES_SURE: u64 = 64;
/// How long a store that refuses everything is asked again for one reservation.
const REFUSED: Duration = Duration::from_millis(200);
/// The pause between two requests to a store that refuses.
const PAUSE: Duration = Duration::from_millis(10);
/// How long a waiter sleeps, at most, without a wake-up.
const LOOK_ANYWAY: Duration = Duration::from_millis(if cfg!(test) { 3_600_000 } else { 100 });

/// Reserved frames. Dropping it returns the unused ones.
#[derive(Debug)]
pub(super) struct Room<'a> {
    cache: &'a PageCache,
    frames: u64,
}

impl<'a> Room<'a> {
    /// Takes one frame. `None` if the reservation or the address space is used up.
    pub(super) fn take(&mut self) -> Option<Fresh<'a>> {
        self.frames = self.frames.checked_sub(1)?;
        let fresh = self.cache.arena.allocate();
        // The frame is counted as allocated by now.
        self.cache.arena.redeem(fresh.is_some());
        fresh
    }
}

impl PageCache {
    /// An empty reservation, for a thread that probably needs no frame.
    pub(super) fn no_room(&self) -> Room<'_> {
        Room { cache: self, frames: 0 }
    }
}

impl Room<'_> {
    /// Returns a reservation that exceeded the budget. Wakes no waiter if the caller is one itself.
    fn withdraw(mut self, waiter: Option<&RoomWaiter<'_>>) {
        if let Some(waiter) = waiter {
            waiter.withdraw(std::mem::take(&mut self.frames));
            std::mem::forget(self);
        }
    }

    /// A frame that was taken is free again: reserves it again.
    pub(super) fn put_back(&mut self) {
        self.cache.arena.promise(1);
        self.frames += 1;
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if self.frames > 0 {
            self.cache.arena.withdraw(self.frames);
        }
    }
}

impl PageCache {
    /// Pages of one run: enough for cheap requests, but few compared with the pages that may be cached.
    pub(super) fn run_pages(&self, core: &Core) -> u64 {
        (self.frames_allowed(core) / RUN_ONE_IN).clamp(RUN_PAGES_MIN, RUN_PAGES)
    }

    /// Frames that may be in use, by the budget.
    pub(super) fn frames_allowed(&self, core: &Core) -> u64 {
        // The overhead may have grown between the two reads of it.
        let bytes = self.bytes_allowed(core).saturating_sub(self.overhead_bytes());
        (bytes / PAGE).max(FRAMES_SURE)
    }

    /// Reserves at least `wanted.0` and at most `wanted.1` frames without waiting: evicts clean pages. `None` if there
    /// is no such room.
    pub(super) fn try_room(&self, core: &Core, wanted: (u64, u64)) -> Option<Room<'_>> {
        self.look_for_room(core, wanted, None)
    }

    /// Like [`PageCache::try_room`]; on behalf of `waiter` if the caller has registered one.
    fn look_for_room(
        &self,
        core: &Core,
        (least, wanted): (u64, u64),
        waiter: Option<&RoomWaiter<'_>>,
    ) -> Option<Room<'_>> {
        let room = self.promise(wanted);
        let short = self.short_of(core);
        if short == 0 {
            return Some(room);
        }
        self.give_back_free(short);
        let short = self.short_of(core);
        self.evict_for(core, short, waiter);
        let short = self.short_of(core);
        if short == 0 {
            return Some(room);
        }
        room.withdraw(waiter);
        let less = wanted.saturating_sub(short);
        if less < least {
            return None;
        }
        let room = self.promise(less);
        if self.short_of(core) == 0 {
            return Some(room);
        }
        room.withdraw(waiter);
        None
    }

    /// Frees all unused memory.
    pub(crate) fn give_back_unused(&self) {
        self.forget_buffers();
        self.give_back_free(u64::MAX);
    }

    /// Frees the memory of up to `frames` frames that are free and not reserved.
    fn give_back_free(&self, frames: u64) {
        let used = self.arena.allocated() as u64 + self.arena.promised();
        let spare = (self.arena.resident() as u64).saturating_sub(used);
        if spare > 0 {
            self.arena.trim(usize::try_from(spare.min(frames)).unwrap_or(usize::MAX));
        }
    }

    /// Reserves frames, at least and at most so many. Writes dirty pages back if necessary, and waits for the users of
    /// pages for up to `patience`.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if nothing could be written back; [`Error::NoMemory`] if everything is in use.
    pub(super) fn room(
        &self,
        core: &Core,
        wanted: (u64, u64),
        patience: Duration,
    ) -> Result<Room<'_>> {
        if let Some(room) = self.try_room(core, wanted) {
            return Ok(room);
        }
        let began = Instant::now();
        let waiter = self.arena.wait_for_room();
        loop {
            let turn = self.looks.lock();
            let look = waiter.look();
            let room = self.look_for_room(core, wanted, Some(&waiter));
            drop(turn);
            if let Some(room) = room {
                return Ok(room);
            }
            let wrote = if self.dirty() > 0 { core.write_any() } else { Ok(0) };
            let left = patience.saturating_sub(began.elapsed());
            match wrote {
                Ok(_) if left.is_zero() => return Err(Error::NoMemory),
                // Pages are in use, dirty or being written. Their threads wake this one.
                Ok(0) => waiter.sleep(look, left.min(LOOK_ANYWAY)),
                Ok(_) => {}
                // The cache is full of data that the store refuses.
                Err(_) if began.elapsed() >= patience.min(REFUSED) => return Err(Error::NoSpace),
                Err(_) => waiter.sleep(look, PAUSE),
            }
        }
    }

    fn promise(&self, frames: u64) -> Room<'_> {
        self.arena.promise(frames);
        Room { cache: self, frames }
    }

    /// Frames in use or reserved beyond the allowed number.
    fn short_of(&self, core: &Core) -> u64 {
        let promised = self.arena.promised();
        let used = self.arena.allocated() as u64 + promised;
        let used = used.max(self.arena.resident() as u64) * PAGE;
        let bytes = used + promised * NODE_BYTES + self.overhead_bytes();
        bytes.saturating_sub(self.bytes_allowed(core)).div_ceil(PAGE)
    }

    /// Bytes that the budget allows, but always enough for some pages: page descriptors and trees do not shrink with
    /// the limit.
    fn bytes_allowed(&self, core: &Core) -> u64 {
        core.pages_allowed().max(self.overhead_bytes() + FRAMES_SURE * (PAGE + NODE_BYTES))
    }

    /// Evicts `wanted` pages that are clean and not in use. Returns their number.
    pub(super) fn evict(&self, core: &Core, wanted: u64) -> u64 {
        self.evict_for(core, wanted, None)
    }

    /// Like [`PageCache::evict`], for `waiter` if one is registered.
    fn evict_for(&self, core: &Core, wanted: u64, waiter: Option<&RoomWaiter<'_>>) -> u64 {
        let freeze = |&number: &u32| {
            let id = FrameId::from_number(number);
            match waiter {
                Some(waiter) => waiter.try_evict(id),
                None => self.arena.try_evict(id),
            }
        };
        let mut gone = 0;
        let mut batch = Vec::with_capacity(BATCH);
        let mut looks = 1;
        while gone < wanted {
            batch.clear();
            // The more pages are in use or dirty, the more are looked at. No more are evicted than wanted.
            let want = BATCH.min((wanted - gone) as usize).max(looks);
            let offer = {
                let mut order = self.queues.lock();
                self.remember_departures(core, &mut order);
                order.queues.candidates(&self.arena, want, &mut batch)
            };
            if batch.is_empty() && offer == Offer::Exhausted {
                break;
            }
            let frozen = batch.iter().filter_map(freeze);
            let frozen: Vec<Evicting<'_>> = frozen.take((wanted - gone) as usize).collect();
            looks = if frozen.is_empty() { (looks * 2).min(LOOKS_MAX) } else { 1 };
            gone += frozen.len() as u64;
            self.evicted(frozen);
        }
        gone
    }

    /// The replacement remembers evictions of about as many pages as may be cached. A change of that number forgets
    /// them, so it follows large changes only.
    fn remember_departures(&self, core: &Core, order: &mut Order) {
        let allowed = self.frames_allowed(core).max(BATCH as u64);
        if allowed.abs_diff(order.capacity) > order.capacity / 4 {
            order.capacity = allowed;
            order.queues.set_capacity(usize::try_from(allowed).unwrap_or(usize::MAX));
        }
    }

    /// Removes pages frozen for eviction from their trees, then from the queues, then frees them.
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
        order.changes += keys.len() as u64;
        let queues = &mut order.queues;
        for (id, key) in keys {
            match key {
                Some(key) => queues.evicted(id.number(), key),
                // Its file is being torn down and needs no record of it.
                None => {
                    queues.remove(id.number());
                }
            }
        }
        drop(order);
        self.counters.evicted.add(frozen.len() as u64);
        frozen.into_iter().for_each(Evicting::free);
    }

    /// Evicts until the budget holds, and frees the memory of free frames. Writes nothing.
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

/// A thread that found no room looked again every millisecond, for up to twenty seconds. In these tests a thread looks
/// again only when it is woken, so a lost wake-up hangs them. The looks are counted.
#[cfg(test)]
mod tests {
    use super::super::write::WriteOffset;
    use super::super::write_back_tests::{UNOPENED, dirty};
    use super::*;
    use crate::Caller;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Waits for `wanted` frames beside `end`, which makes the room. Other tests' trees take less in the meantime than
    /// the callers leave free.
    fn waits_until(core: &Core, wanted: u64, end: impl FnOnce()) {
        let cache = &core.pages;
        let looks = || cache.arena.looks_for_room();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| cache.room(core, (wanted, wanted), HOUR).map(drop));
            while looks() == 0 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(looks(), 1, "nothing happened");
            end();
            waits.join().unwrap().unwrap();
        });
    }

    /// Reserves every available frame: most at once, then one by one those that the bytes for nodes leave.
    fn all(core: &Core) -> Vec<Room<'_>> {
        let promised = |wanted| core.pages.try_room(core, (1, wanted));
        let most = promised(core.pages.frames_allowed(core));
        most.into_iter().chain(std::iter::from_fn(|| promised(1))).collect()
    }

    #[test]
    fn a_waiter_for_a_promise_looks_when_it_comes_back() {
        let (_store, vfs, _node) = dirty();
        vfs.core.sync_all_pages().unwrap();
        let mut rooms = all(&vfs.core);
        let most = rooms.swap_remove(0);
        waits_until(&vfs.core, most.frames / 4 * 3, || drop(most));
        assert!(vfs.core.pages.arena.looks_for_room() <= 2 + rooms.len() as u64);
    }

    #[test]
    fn a_waiter_for_pages_looks_when_their_last_users_are_done() {
        let (_store, vfs, node) = dirty();
        let bytes = vec![1; 64 * PAGE as usize];
        let (caller, place) = (Caller::root(), WriteOffset::At(0));
        vfs.write_cached(&caller, &node, UNOPENED, place, &bytes).unwrap();
        vfs.core.sync_all_pages().unwrap();
        let pages = vfs.core.pages_of(&node);
        let used: Vec<_> = (0..64).map(|index| pages.find(index).unwrap()).collect();
        let _rooms = all(&vfs.core);
        assert!((0..64).all(|index| pages.find(index).is_some()), "what is used stays");
        waits_until(&vfs.core, 48, || {
            // The waiter's turn comes when all are done: between them its own evictions would wake it, too.
            let _turn = vfs.core.pages.looks.lock();
            drop(used);
        });
        assert!(vfs.core.pages.arena.looks_for_room() <= 1 + 64, "one for each at most");
    }
}
