//! Descriptors of objects, kept open as long as there is room.
//!
//! # Boundary
//! Keeps `O_PATH` descriptors and chooses which to close. [`super::reach`] opens them.
//!
//! # Concurrency
//! A slot has its own lock, so a hit contends only with users of the same object. The ring of
//! candidates is locked only when a descriptor is added. The two are of one lock class and are
//! never held together. Descriptors are closed with no lock held: closing the last one of a deleted
//! file can make the host free gigabytes.
//!
//! # Why
//! Second chance: a hit stores a flag at most, and nothing is reordered. Weakness: a scan of more
//! directories than there is room for evicts everything that was used once.

use crate::lock_order::HOST_DESCRIPTORS;
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};

/// The descriptor of one object, if it is open.
#[derive(Debug)]
pub(super) struct DescriptorSlot {
    state: Mutex<State>,
    recent: AtomicBool,
    /// How many levels below the root it was when last seen; 0 if that is not known.
    levels: AtomicU16,
    /// The ring has an entry of it. Changed under the ring's lock.
    enrolled: AtomicBool,
}

#[derive(Debug, Clone)]
enum State {
    Closed,
    /// Open, and in the ring: may be closed at any time.
    Cached(Arc<OwnedFd>),
    /// Open until released: the only way to the object.
    Pinned(Arc<OwnedFd>),
}

impl Default for DescriptorSlot {
    fn default() -> Self {
        Self {
            state: Mutex::new(&HOST_DESCRIPTORS, State::Closed),
            recent: AtomicBool::new(false),
            levels: AtomicU16::new(0),
            enrolled: AtomicBool::new(false),
        }
    }
}

impl DescriptorSlot {
    /// The descriptor, if it is open.
    pub(super) fn get(&self) -> Option<Arc<OwnedFd>> {
        let open = match &*self.state.lock() {
            State::Closed => return None,
            State::Cached(open) | State::Pinned(open) => open.clone(),
        };
        // ORDERING: Relaxed both; a hint for eviction. The load is first, so a hit on a hot slot
        // writes nothing.
        if !self.recent.load(Relaxed) {
            self.recent.store(true, Relaxed);
        }
        Some(open)
    }

    /// How many levels below the root it was when last seen; 0 if that is not known.
    pub(super) fn levels(&self) -> usize {
        // ORDERING: Relaxed; a guess that each user checks.
        self.levels.load(Relaxed).into()
    }

    /// Notes that number; one that is too large is not known.
    pub(super) fn note_levels(&self, levels: usize) {
        // ORDERING: Relaxed; see `levels`.
        self.levels.store(u16::try_from(levels).unwrap_or(0), Relaxed);
    }

    /// Whether the descriptor is the only way to the object.
    pub(super) fn is_pinned(&self) -> bool {
        matches!(*self.state.lock(), State::Pinned(_))
    }

    /// Keeps `open`, or the descriptor that is there already, until released.
    pub(super) fn pin(&self, open: Arc<OwnedFd>) {
        let mut state = self.state.lock();
        let keep = match std::mem::replace(&mut *state, State::Closed) {
            State::Closed => open,
            State::Cached(open) | State::Pinned(open) => open,
        };
        *state = State::Pinned(keep);
    }

    /// Closes the descriptor, pinned or not, once its present users are done.
    pub(super) fn close(&self) {
        let _closed_after_unlocking = {
            let mut state = self.state.lock();
            std::mem::replace(&mut *state, State::Closed)
        };
    }

    /// Closes the descriptor unless it is pinned.
    pub(super) fn close_unless_pinned(&self) {
        drop(self.evict());
    }

    fn evict(&self) -> Option<Arc<OwnedFd>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Closed) {
            State::Cached(open) => Some(open),
            other => {
                *state = other;
                None
            }
        }
    }
}

/// Bounds how many slots hold a descriptor that is not pinned.
#[derive(Debug)]
pub(super) struct DescriptorCache {
    ring: Mutex<VecDeque<Weak<DescriptorSlot>>>,
    capacity: usize,
}

impl DescriptorCache {
    /// A cache of at most `capacity` descriptors.
    pub(super) fn new(capacity: usize) -> Self {
        Self { ring: Mutex::new(&HOST_DESCRIPTORS, VecDeque::new()), capacity: capacity.max(1) }
    }

    /// Puts `open` into `slot` and returns the slot's descriptor afterwards: the first one stays.
    pub(super) fn store(&self, slot: &Arc<DescriptorSlot>, open: OwnedFd) -> Arc<OwnedFd> {
        let open = Arc::new(open);
        {
            let mut state = slot.state.lock();
            match &*state {
                State::Closed => *state = State::Cached(open.clone()),
                State::Cached(first) | State::Pinned(first) => return first.clone(),
            }
        }
        self.enrol(slot);
        open
    }

    /// Turns a pinned descriptor back into one that may be closed.
    pub(super) fn unpin(&self, slot: &Arc<DescriptorSlot>) {
        {
            let mut state = slot.state.lock();
            match std::mem::replace(&mut *state, State::Closed) {
                State::Pinned(open) => *state = State::Cached(open),
                other => {
                    *state = other;
                    return;
                }
            }
        }
        self.enrol(slot);
    }

    /// Closes about half of the descriptors, after the host refused a new one.
    pub(super) fn shrink(&self) {
        let keep = self.len() / 2;
        self.evict_down_to(keep);
    }

    /// How many descriptors there are; a snapshot that counts some closed ones.
    pub(super) fn len(&self) -> usize {
        self.ring.lock().len()
    }

    fn enrol(&self, slot: &Arc<DescriptorSlot>) {
        let mut ring = self.ring.lock();
        // A slot that was pinned, or closed, keeps its place: with one entry for each use the ring would
        // be full of the busiest few. ORDERING: Relaxed; the ring's lock orders.
        if !slot.enrolled.swap(true, Relaxed) {
            ring.push_back(Arc::downgrade(slot));
        }
        drop(ring);
        self.evict_down_to(self.capacity);
    }

    fn evict_down_to(&self, keep: usize) {
        let (mut victims, mut spared) = (Vec::new(), Vec::new());
        {
            let mut ring = self.ring.lock();
            // Everybody gets one second chance; after a full round the flags are down.
            let mut chances = ring.len();
            while ring.len() > keep {
                let Some(slot) = ring.pop_front() else { break };
                let Some(open) = slot.upgrade() else { continue };
                // ORDERING: Relaxed; see `DescriptorSlot::get`.
                if chances > 0 && open.recent.swap(false, Relaxed) {
                    chances -= 1;
                    ring.push_back(slot);
                    spared.push(open);
                } else {
                    // ORDERING: Relaxed; the ring's lock orders. A thread that later stores a
                    // descriptor enrols the slot again, also if that descriptor is the one closed
                    // below.
                    open.enrolled.store(false, Relaxed);
                    victims.push(open);
                }
            }
        }
        victims.iter().for_each(|slot| drop(slot.evict()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    fn filled(cache: &DescriptorCache) -> Arc<DescriptorSlot> {
        let slot = Arc::default();
        cache.store(&slot, descriptor());
        slot
    }

    #[test]
    fn the_least_recently_used_is_closed_first() {
        let cache = DescriptorCache::new(3);
        let slots: Vec<_> = (0..3).map(|_| filled(&cache)).collect();
        slots[0].get();
        let _fourth = filled(&cache);
        assert!(slots[0].get().is_some() && slots[1].get().is_none() && slots[2].get().is_some());
        assert_eq!(cache.len(), 3);
    }

    #[test]
    fn a_pinned_descriptor_stays_until_it_is_released() {
        let cache = DescriptorCache::new(2);
        let slot = filled(&cache);
        slot.pin(Arc::new(descriptor()));
        let _others: Vec<_> = (0..5).map(|_| filled(&cache)).collect();
        slot.close_unless_pinned();
        assert!(slot.get().is_some() && slot.is_pinned());
        cache.unpin(&slot);
        let _more: Vec<_> = (0..5).map(|_| filled(&cache)).collect();
        assert!(slot.get().is_none());
    }

    /// Each pin and each close left an entry behind: a directory that was renamed often pushed the others
    /// out, and was closed itself while it was in use.
    #[test]
    fn a_slot_has_one_place_however_often_it_is_pinned_or_closed() {
        let cache = DescriptorCache::new(4);
        let slots: Vec<_> = (0..4).map(|_| filled(&cache)).collect();
        for _ in 0..100 {
            slots[0].pin(Arc::new(descriptor()));
            cache.unpin(&slots[0]);
            slots[1].close();
            cache.store(&slots[1], descriptor());
        }
        assert_eq!(cache.len(), 4);
        assert!(slots.iter().all(|slot| slot.get().is_some()));
    }

    #[test]
    fn the_first_of_two_descriptors_for_one_object_stays() {
        let cache = DescriptorCache::new(2);
        let slot = Arc::default();
        let first = cache.store(&slot, descriptor());
        assert!(Arc::ptr_eq(&first, &cache.store(&slot, descriptor())));
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn shrinking_halves_and_a_dead_slot_makes_room() {
        let cache = DescriptorCache::new(8);
        let slots: Vec<_> = (0..8).map(|_| filled(&cache)).collect();
        cache.shrink();
        assert_eq!(slots.iter().filter(|slot| slot.get().is_some()).count(), 4);
        drop(slots);
        let kept: Vec<_> = (0..8).map(|_| filled(&cache)).collect();
        assert!(kept.iter().all(|slot| slot.get().is_some()));
    }
}
