//! One epoch and the threads that take part in it.
//!
//! # Boundary
//! Owns the protocol below. Thread-locals and the one domain of the process are in [`super::place`]; models and tests
//! make domains of their own.
//!
//! # Concurrency
//! Epoch word: `epoch:46 | 0:1 | fenced:1 | 0:16`. A slot's word, to which only the slot's thread stores:
//! `epoch:46 | leaving:1 | fenced:1 | depth:16`.
//! ```text
//!  Path of a bag: slot ──▶ incoming ──▶ current ──▶ previous ──▶ ready ──▶ freed
//!                   full, or swept   a round     advance      advance
//! ```
//! `docs/protocols/epoch.md` has the states, the invariants and the orderings: pinned slots (E1); rounds of the thread
//! that has the turn (E2); no reader reaches a bag in `ready` (E3); a slot has one thread (E4) and that thread sets its
//! bag pointer (E5); membarrier may start to fail (E6); O1 to O6.
//!
//! Progress: `pin` and unpin are wait-free; `retire` is lock-free and frees at most a bounded batch of other threads'
//! garbage; only `synchronize` waits. Checked by `super::models` and `super::tests`.
//!
//! # Why
//! A pin stores to no shared line. Weakness: one reader that stays pinned delays the free of everything retired since.
//! It is reported (`oldest_pin`) and not prevented; hazard pointers would bound it and cost a fence per hop.

use super::barrier::{self, Mode};
use super::garbage::{Bag, Deferred, Incoming};
use super::turn::Turn;
use crate::padded::Padded;
use crate::primitive::atomic::{AtomicBool, AtomicPtr, Ordering, fence};
// Statistics only: no pointer is reached through them, and the model checker need not see them.
use crate::primitive::unseen::AtomicU64 as Tally;
use crate::primitive::{atomic, owned};
#[cfg(loom)]
use loom::cell::Cell;
#[cfg(not(loom))]
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{fmt, iter, ptr};

/// Depth of nested pins in a word.
const DEPTH: u64 = 0xffff;
/// Set in the epoch word when pins must fence, and in a slot's word whose thread does so.
const FENCED: u64 = 1 << 16;
/// Set in a slot's word when its last unpin must leave the slot.
const LEAVING: u64 = 1 << 17;
/// One epoch. It may wrap: epochs are compared for equality only.
const EPOCH: u64 = 1 << 18;

/// A bag joins `current` at one advance and is ready after the next.
const ROUNDS: usize = 2;
/// Bags that one `retire` frees, at least and at most.
const BATCH: (usize, usize) = (2, 64);

/// The part of one thread in a domain.
#[repr(align(128))]
pub(super) struct Slot {
    /// The word of the module's picture. Only the slot's thread stores here, so cores do not contend for this line.
    word: owned::AtomicU64,
    /// The slot's thread is freeing: objects that a deferred call retires wait for the next batch.
    freeing: Cell<bool>,
    domain: ptr::NonNull<Domain>,
    /// Apart from `word`: a thread that adds up garbage reads it, and must not cause a miss at the slot's next pin.
    seen: Padded<Seen>,
    shared: Padded<Shared>,
}

/// Fields that other threads read without asking whether the slot is pinned.
struct Seen {
    /// The slot that was linked before this one; does not change once this one is linked.
    older: *mut Slot,
    /// Bytes retired through this slot, ever; stored to by its thread only.
    retired_bytes: owned::AtomicU64,
    /// Objects retired through this slot, ever.
    retired_objects: Tally,
}

/// Fields to which other threads store.
struct Shared {
    /// Retired objects on their way to a full bag, or null.
    bag: AtomicPtr<Bag>,
    /// A thread uses this slot.
    claimed: AtomicBool,
    /// The pin (word without depth) that was first seen to block an advance at `blocked_since_ns`.
    blocking: Tally,
    blocked_since_ns: Tally,
}

/// The epoch, its slots and the garbage. Must not move once a thread has joined.
pub(super) struct Domain {
    epoch: Padded<atomic::AtomicU64>,
    slots: AtomicPtr<Slot>,
    incoming: Padded<Incoming>,
    limbo: Padded<Turn<Limbo>>,
    /// Runs a barrier on all threads; false if it could not. Replaced in tests.
    everywhere: fn() -> bool,
    advances: Tally,
    blocked_advances: Tally,
    /// Not a `Tally`, so that the checker sees it, like `Seen::retired_bytes` (O6).
    freed_bytes: owned::AtomicU64,
    freed_objects: Tally,
    panics: Tally,
}

/// Bags by the number of advances since they arrived.
#[derive(Default)]
struct Limbo {
    current: VecDeque<Box<Bag>>,
    previous: VecDeque<Box<Bag>>,
    ready: VecDeque<Box<Bag>>,
}

impl Limbo {
    fn is_empty(&self) -> bool {
        self.current.is_empty() && self.previous.is_empty() && self.ready.is_empty()
    }

    /// A part of the ready bags; it grows with their number, so that a backlog shrinks.
    fn batch(&mut self) -> VecDeque<Box<Bag>> {
        let size = (self.ready.len() / 8).clamp(BATCH.0, BATCH.1);
        self.ready.drain(..size.min(self.ready.len())).collect()
    }
}

/// Counts of a domain since it began, and its present state.
#[derive(Debug, Clone, Copy)]
pub struct EpochStatistics {
    /// The party that pays for barriers now.
    pub mode: Mode,
    /// Threads that take part now.
    pub threads: usize,
    /// Times the epoch advanced.
    pub advances: u64,
    /// Times the epoch could not advance, because a thread was pinned at an older epoch.
    pub blocked_advances: u64,
    /// Objects freed.
    pub freed_objects: u64,
    /// Bytes freed, as stated when they were retired.
    pub freed_bytes: u64,
    /// Objects retired and not freed yet.
    pub garbage_objects: usize,
    /// Bytes retired and not freed yet.
    pub garbage_bytes: usize,
    /// Deferred calls that panicked. The panic did not propagate.
    pub panics: u64,
}

// SAFETY: `freeing` is used by the slot's thread only (E4), `older` does not change once the slot
// is linked, `domain` is only turned into a shared reference; the rest is atomic.
unsafe impl Sync for Slot {}

// SAFETY: bags are `Send`; slots are `Sync`, and freed by `drop` only.
unsafe impl Send for Domain {}
// SAFETY: bags are reached under the rules E2 and E5; everything else is atomic or in a `Turn`.
unsafe impl Sync for Domain {}

impl Slot {
    /// The domain of this slot.
    pub(super) fn domain(&self) -> &Domain {
        // SAFETY: slots are reached only through their domain, which must not move and outlives
        // them.
        unsafe { self.domain.as_ref() }
    }

    /// Pins the slot, or pins it once more.
    ///
    /// # Safety
    /// The caller is the slot's thread (E4), and calls [`Slot::unpin`] once for this.
    #[inline]
    pub(super) unsafe fn pin(&self) {
        // ORDERING: Relaxed; this thread's own word.
        let word = self.word.load(Ordering::Relaxed);
        if word & DEPTH == 0 {
            // ORDERING: Relaxed; an old epoch blocks an advance, but is safe (E3).
            let now = self.domain().epoch.load(Ordering::Relaxed);
            // ORDERING: Release, partner `blocked` (O2): a round that sees this pin sees the last one ended.
            self.word.store(now + 1, Ordering::Release);
            barrier::light(now & FENCED != 0);
        } else {
            if word & DEPTH == DEPTH {
                too_many_guards();
            }
            // ORDERING: Release, partner `blocked` (O2): without the outer pin's fence, no other store shows that an
            // earlier pin ended.
            self.word.store(word + 1, Ordering::Release);
        }
    }

    /// Ends one pin. True if it was the last pin of a slot that must be left now.
    ///
    /// # Safety
    /// The caller is the slot's thread (E4) and pinned it.
    #[inline]
    #[must_use]
    pub(super) unsafe fn unpin(&self) -> bool {
        // ORDERING: Relaxed; this thread's own word.
        let word = self.word.load(Ordering::Relaxed) - 1;
        // ORDERING: Release, partner `blocked` (O2): all reads under the pin come before it.
        self.word.store(word, Ordering::Release);
        word & (DEPTH | LEAVING) == LEAVING
    }

    /// Whether the slot is pinned; for its own thread.
    pub(super) fn is_pinned(&self) -> bool {
        // ORDERING: Relaxed; this thread's own word.
        self.word.load(Ordering::Relaxed) & DEPTH != 0
    }

    /// Makes the last unpin report that the slot must be left.
    ///
    /// # Safety
    /// The caller is the slot's thread (E4) and has it pinned.
    pub(super) unsafe fn leave_when_unpinned(&self) {
        // ORDERING: Relaxed; this thread's own word.
        let word = self.word.load(Ordering::Relaxed);
        // ORDERING: Release, partner `blocked` (O2), like every store to the word.
        self.word.store(word | LEAVING, Ordering::Release);
    }

    /// Leaves the slot, and passes its bag to the collector.
    ///
    /// # Safety
    /// The caller is the slot's thread (E4), has not pinned it, and does not use it again.
    pub(super) unsafe fn leave(&self) {
        debug_assert!(!self.is_pinned(), "left while pinned");
        if let Some(bag) = self.take_bag() {
            self.domain().incoming.push(bag);
        }
        // ORDERING: Release, partner `join` (O4).
        self.shared.claimed.store(false, Ordering::Release);
    }

    /// The bag, if there is one and no other thread takes it (E5).
    fn take_bag(&self) -> Option<Box<Bag>> {
        // ORDERING: Relaxed; an empty slot's line is not written.
        if self.shared.bag.load(Ordering::Relaxed).is_null() {
            return None;
        }
        // ORDERING: Acquire, partner `retire` (O3).
        let bag = self.shared.bag.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: the bag came from a box, and after the swap this thread owns it (E5).
        (!bag.is_null()).then(|| unsafe { Box::from_raw(bag) })
    }

    /// Calls `free` once every pin that exists now has ended; may free a batch of older garbage.
    ///
    /// # Safety
    /// The caller is the slot's thread (E4).
    pub(super) unsafe fn retire(&self, bytes: usize, free: Deferred) {
        let mut bag = self.take_bag().unwrap_or_else(Bag::new);
        bag.add(bytes, free);
        // ORDERING: Relaxed; counted before the bag is passed on, which publishes it (O3, O6).
        let (had_bytes, had_objects) = (
            self.seen.retired_bytes.load(Ordering::Relaxed),
            self.seen.retired_objects.load(Ordering::Relaxed),
        );
        // ORDERING: Relaxed; the bag's Release publishes it (O3, O6).
        self.seen.retired_bytes.store(had_bytes.wrapping_add(bytes as u64), Ordering::Relaxed);
        // ORDERING: Relaxed; the bag's Release publishes it (O3, O6).
        self.seen.retired_objects.store(had_objects + 1, Ordering::Relaxed);
        if bag.is_full() {
            self.domain().incoming.push(bag);
            // SAFETY: the caller's promise.
            unsafe { self.domain().tend(self) };
        } else {
            // ORDERING: Release, partner `take_bag` (O3).
            self.shared.bag.store(Box::into_raw(bag), Ordering::Release);
        }
    }

    /// Records that this pin blocks an advance, unless it is already recorded.
    fn note_blocking(&self, pin: u64) {
        // ORDERING: Relaxed, here and below; a report, written by the thread that has the turn.
        if self.shared.blocking.load(Ordering::Relaxed) != pin {
            let now = since_start().as_nanos() as u64;
            self.shared.blocked_since_ns.store(now, Ordering::Relaxed);
            // ORDERING: Relaxed; a report.
            self.shared.blocking.store(pin, Ordering::Relaxed);
        }
    }

    /// The time since the present pin was first seen to block an advance.
    fn blocking_for(&self) -> Option<Duration> {
        // ORDERING: Relaxed, here and below; a report.
        let word = self.word.load(Ordering::Relaxed);
        let blocking = self.shared.blocking.load(Ordering::Relaxed);
        if word & DEPTH == 0 || word & !DEPTH != blocking {
            return None;
        }
        // ORDERING: Relaxed; a report.
        let since = Duration::from_nanos(self.shared.blocked_since_ns.load(Ordering::Relaxed));
        Some(since_start().saturating_sub(since))
    }
}

#[cold]
#[inline(never)]
fn too_many_guards() -> ! {
    panic!("more than {DEPTH} guards in one thread");
}

/// Time since the first call of this function.
fn since_start() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

impl Domain {
    /// A domain with the barriers of `mode`; `Mode::Membarrier` calls `everywhere`.
    pub(super) fn new(mode: Mode, everywhere: fn() -> bool) -> Self {
        let fenced = if mode == Mode::Fence { FENCED } else { 0 };
        Self {
            epoch: Padded(atomic::AtomicU64::new(fenced)),
            slots: AtomicPtr::new(ptr::null_mut()),
            incoming: Padded(Incoming::new()),
            limbo: Padded(Turn::new(Limbo::default())),
            everywhere,
            advances: Tally::new(0),
            blocked_advances: Tally::new(0),
            freed_bytes: owned::AtomicU64::new(0),
            freed_objects: Tally::new(0),
            panics: Tally::new(0),
        }
    }

    /// Claims a slot for the calling thread.
    pub(super) fn join(&self) -> &Slot {
        let slot = self.slots().find(|slot| slot.claim()).unwrap_or_else(|| self.link());
        // ORDERING: SeqCst, partner `barrier` (E6): if a round's load of `claimed` missed this claim, this thread sees
        // FENCED.
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed; from here on this thread pins with this epoch word or a newer one.
        let now = self.epoch.load(Ordering::Relaxed);
        // ORDERING: Release, partner `blocked` (O2), like every store to the word; the fence would suffice.
        slot.word.store(now, Ordering::Release);
        slot
    }

    /// Makes a claimed slot and links it.
    fn link(&self) -> &Slot {
        let slot = Box::into_raw(Box::new(Slot {
            word: owned::AtomicU64::new(0),
            freeing: Cell::new(false),
            domain: ptr::NonNull::from(self),
            seen: Padded(Seen {
                older: ptr::null_mut(),
                retired_bytes: owned::AtomicU64::new(0),
                retired_objects: Tally::new(0),
            }),
            shared: Padded(Shared {
                bag: AtomicPtr::new(ptr::null_mut()),
                claimed: AtomicBool::new(true),
                // Equals no word without its depth.
                blocking: Tally::new(u64::MAX),
                blocked_since_ns: Tally::new(0),
            }),
        }));
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut head = self.slots.load(Ordering::Relaxed);
        loop {
            // SAFETY: just allocated and not linked yet, so only this thread has it.
            unsafe { (*slot).seen.0.older = head };
            // ORDERING: Release, partner `slots` (O5).
            match self.slots.compare_exchange_weak(head, slot, Ordering::Release, Ordering::Relaxed)
            {
                // SAFETY: slots live until the domain is dropped.
                Ok(_) => return unsafe { &*slot },
                Err(now) => head = now,
            }
        }
    }

    /// Every slot, claimed or not.
    fn slots(&self) -> impl Iterator<Item = &Slot> {
        // ORDERING: Acquire, partner `link` (O5). Older slots were linked before, in one order.
        let newest = self.slots.load(Ordering::Acquire);
        // SAFETY: slots live until the domain is dropped, and `older` is set before they are
        // linked.
        iter::successors(unsafe { newest.as_ref() }, |slot| unsafe { slot.seen.older.as_ref() })
    }

    /// The heavy barrier. Returns the epoch word, which no other thread changes now (E2).
    fn barrier(&self) -> u64 {
        barrier::heavy();
        // ORDERING: Relaxed; only the thread that has the turn changes it, which is this one.
        let mut now = self.epoch.load(Ordering::Relaxed);
        if now & FENCED == 0 && !(self.everywhere)() {
            now |= FENCED;
            // ORDERING: Relaxed; rounds wait for pins without it (E6).
            self.epoch.store(now, Ordering::Relaxed);
        }
        barrier::heavy();
        now
    }

    /// Whether a slot keeps the epoch from advancing.
    fn blocked(&self, now: u64) -> bool {
        let mut blocked = false;
        for slot in self.slots() {
            // ORDERING: Acquire, partner every store to the word (O2).
            let word = slot.word.load(Ordering::Acquire);
            let pinned = word & DEPTH != 0;
            if pinned && word / EPOCH != now / EPOCH {
                slot.note_blocking(word & !DEPTH);
                blocked = true;
            }
            // ORDERING: Acquire, partner `leave` (O4; the next round's fence would suffice). If this load misses a
            // `join`, the joining thread sees FENCED (E6).
            let unfenced = now & !word & FENCED != 0;
            blocked |= unfenced && (pinned || slot.shared.claimed.load(Ordering::Acquire));
        }
        blocked
    }

    /// One round (E2). True if the epoch advanced.
    fn round(&self, limbo: &mut Limbo) -> bool {
        let mut arrived = VecDeque::new();
        self.incoming.take(&mut arrived);
        let now = self.barrier();
        limbo.current.append(&mut arrived);
        if self.blocked(now) {
            // ORDERING: Relaxed; a statistic.
            self.blocked_advances.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        limbo.ready.append(&mut limbo.previous);
        std::mem::swap(&mut limbo.previous, &mut limbo.current);
        // ORDERING: Relaxed; carries nothing: the thread that frees has it from the limbo, under the turn (E3).
        self.epoch.store(now.wrapping_add(EPOCH), Ordering::Relaxed);
        // ORDERING: Relaxed; a statistic.
        self.advances.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// One round and a bounded batch, run by a thread that has filled a bag.
    ///
    /// # Safety
    /// The caller is `slot`'s thread (E4).
    unsafe fn tend(&self, slot: &Slot) {
        if slot.freeing.get() {
            return;
        }
        let batch = self.limbo.try_with(|limbo| {
            self.round(limbo);
            limbo.batch()
        });
        // SAFETY: the caller's promise.
        unsafe { self.free(slot, batch.unwrap_or_default()) };
    }

    /// Frees everything that can be freed now. Never waits: it frees nothing if another thread is collecting, or if a
    /// deferred call calls it.
    ///
    /// # Safety
    /// The caller is `slot`'s thread (E4).
    pub(super) unsafe fn collect(&self, slot: &Slot) {
        if slot.freeing.get() {
            return;
        }
        self.sweep();
        let all = self.limbo.try_with(|limbo| {
            for _ in 0..ROUNDS {
                if (limbo.is_empty() && self.incoming.racy_is_empty()) || !self.round(limbo) {
                    break;
                }
            }
            std::mem::take(&mut limbo.ready)
        });
        // SAFETY: the caller's promise.
        unsafe { self.free(slot, all.unwrap_or_default()) };
    }

    /// Waits until every pin that exists now has ended, and frees the garbage that those pins delayed.
    ///
    /// # Safety
    /// The caller is `slot`'s thread (E4).
    pub(super) unsafe fn synchronize(&self, slot: &Slot) {
        assert!(!slot.is_pinned(), "synchronize would wait for the guard of its own thread");
        self.sweep();
        let (mut advances_left, mut turns) = (ROUNDS, 0);
        while advances_left > 0 {
            let Some((advanced, ready)) = self.limbo.try_with(|limbo| {
                // By E3 for a bag without objects: two advances after this call's first barrier.
                (self.round(limbo), std::mem::take(&mut limbo.ready))
            }) else {
                pause(&mut turns);
                continue;
            };
            if !slot.freeing.get() {
                // SAFETY: the caller's promise.
                unsafe { self.free(slot, ready) };
            } else {
                ready.into_iter().for_each(|bag| self.incoming.push(bag));
            }
            if advanced {
                advances_left -= 1;
            } else {
                pause(&mut turns);
            }
        }
    }

    /// Takes the bags that are not full yet.
    fn sweep(&self) {
        self.slots().filter_map(Slot::take_bag).for_each(|bag| self.incoming.push(bag));
    }

    /// Frees the content of bags that were ready (E3).
    ///
    /// # Safety
    /// The caller is `slot`'s thread (E4), and is not already inside this function.
    unsafe fn free(&self, slot: &Slot, bags: VecDeque<Box<Bag>>) {
        slot.freeing.set(true);
        for bag in bags {
            let freed = bag.free();
            // ORDERING: Relaxed; a statistic.
            self.freed_objects.fetch_add(freed.objects as u64, Ordering::Relaxed);
            // ORDERING: Relaxed; a statistic.
            self.panics.fetch_add(freed.panics as u64, Ordering::Relaxed);
            // ORDERING: Release, partner `garbage` (O6).
            self.freed_bytes.fetch_add(freed.bytes as u64, Ordering::Release);
        }
        slot.freeing.set(false);
    }

    /// Bytes and objects retired and not freed. Exact if no thread retires or frees meanwhile; otherwise too high by at
    /// most the amount freed during the call.
    pub(super) fn garbage(&self) -> (usize, usize) {
        // ORDERING: Acquire, partner `free` (O6): all that it counted was counted as retired before.
        let freed_bytes = self.freed_bytes.load(Ordering::Acquire);
        // ORDERING: Relaxed, like the loads below; statistics.
        let freed_objects = self.freed_objects.load(Ordering::Relaxed);
        let (mut bytes, mut objects) = (0u64, 0u64);
        for slot in self.slots() {
            // ORDERING: Relaxed; a statistic.
            bytes = bytes.wrapping_add(slot.seen.retired_bytes.load(Ordering::Relaxed));
            // ORDERING: Relaxed; a statistic.
            objects = objects.wrapping_add(slot.seen.retired_objects.load(Ordering::Relaxed));
        }
        let (bytes, objects) =
            (bytes.wrapping_sub(freed_bytes), objects.saturating_sub(freed_objects));
        (bytes as usize, objects as usize)
    }

    /// Objects retired and not freed, like [`Domain::garbage`], but by loads that the checker does not see.
    #[cfg(all(test, loom))]
    pub(super) fn garbage_objects(&self) -> u64 {
        // ORDERING: Relaxed, both; the model runs its threads in turns.
        let retired = self.slots().map(|slot| slot.seen.retired_objects.load(Ordering::Relaxed));
        // ORDERING: Relaxed; the model runs its threads in turns.
        retired.sum::<u64>() - self.freed_objects.load(Ordering::Relaxed)
    }

    /// The longest time that a present pin has been seen to block an advance.
    pub(super) fn oldest_pin(&self) -> Option<Duration> {
        self.slots().filter_map(Slot::blocking_for).max()
    }

    /// Slots made so far.
    #[cfg(all(test, not(loom)))]
    pub(super) fn slot_count(&self) -> usize {
        self.slots().count()
    }

    pub(super) fn statistics(&self) -> EpochStatistics {
        let (garbage_bytes, garbage_objects) = self.garbage();
        // ORDERING: Relaxed, all of them; a report claims no order among its figures.
        let fenced = self.epoch.load(Ordering::Relaxed) & FENCED != 0;
        let claimed = |slot: &&Slot| slot.shared.claimed.load(Ordering::Relaxed);
        let read = |tally: &Tally| tally.load(Ordering::Relaxed);
        EpochStatistics {
            mode: if fenced { Mode::Fence } else { Mode::Membarrier },
            threads: self.slots().filter(claimed).count(),
            advances: read(&self.advances),
            blocked_advances: read(&self.blocked_advances),
            freed_objects: read(&self.freed_objects),
            // ORDERING: Relaxed; a report.
            freed_bytes: self.freed_bytes.load(Ordering::Relaxed),
            garbage_objects,
            garbage_bytes,
            panics: read(&self.panics),
        }
    }
}

impl Slot {
    /// Takes the slot if no thread has it.
    fn claim(&self) -> bool {
        let claimed = &self.shared.claimed;
        // ORDERING: Relaxed, a guess; then Acquire, partner `leave` (O4). The fence in `join` would suffice, but the
        // thread sanitizer does not understand fences.
        !claimed.load(Ordering::Relaxed)
            && claimed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl Drop for Domain {
    /// Frees all garbage: without threads there are no readers.
    fn drop(&mut self) {
        // Objects that a deferred call retires arrive through a slot, hence the loop.
        loop {
            self.sweep();
            let mut bags = VecDeque::new();
            self.incoming.take(&mut bags);
            let limbo = self.limbo.try_with(std::mem::take).unwrap_or_default();
            bags.extend(limbo.current.into_iter().chain(limbo.previous).chain(limbo.ready));
            if bags.is_empty() {
                break;
            }
            bags.into_iter().for_each(|bag| _ = bag.free());
        }
        // ORDERING: Relaxed; the domain is owned exclusively.
        let mut slot = self.slots.load(Ordering::Relaxed);
        while !slot.is_null() {
            // SAFETY: `link` allocated it, and no other thread has the domain or its slots any more.
            slot = unsafe { Box::from_raw(slot) }.seen.older;
        }
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").field("statistics", &self.statistics()).finish()
    }
}

/// Lets other threads run: first yields, then sleeps for growing times, up to a millisecond.
fn pause(turns: &mut u32) {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    match *turns {
        0..8 => std::thread::yield_now(),
        more => std::thread::sleep(Duration::from_micros(1 << (more - 4).min(10))),
    }
    *turns += 1;
}
