//! Epochs: when may memory that was unlinked be freed?
//!
//! A reader pins, follows pointers, and unpins. A writer unlinks an object so that no new reader
//! finds it, and retires it; it is freed once every guard that existed then is gone.
//!
//! ```
//! let guard = uvfs_concurrent::epoch::pin();
//! guard.defer(4096, || println!("every reader of today is gone"));
//! drop(guard);
//! uvfs_concurrent::epoch::collect();
//! ```
//!
//! # Boundary
//! Owns pins, garbage and its freeing. Does not know what is retired, nor how many bytes are too
//! many: whoever has a budget reads [`garbage_bytes`] and calls [`collect`]. Never hold a guard
//! across I/O or a wait: one pin keeps everything from being freed ([`oldest_pin`] reports it).
//!
//! # Concurrency
//! Protocol, invariants and orderings: `epoch/domain.rs`. A pin stores to one word, which only its
//! own thread stores to, on a line of its own; it is not a shared store, and [`crate::primitive`]
//! counts it as none. Every thread may call every function, deferred calls and destructors of
//! thread-locals included; only [`synchronize`] waits. After `fork`, the child must not pin: a fork
//! copies the other threads' pins and not the threads.
//!
//! # Why
//! Pins are on the path of every lookup, retiring is not; so the pin is a store without a fence,
//! and the collector pays with membarrier(2) (after `liburcu`'s memb flavour, Desnoyers et al.
//! 2012). Three epochs as in Fraser 2004, "Practical lock freedom". Weakness: freeing is delayed by
//! the slowest reader and its amount is unbounded; what is left when the process ends is not freed.

mod barrier;
mod domain;
mod garbage;
mod place;
mod turn;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

pub use barrier::Mode;
pub use domain::EpochStatistics;

use domain::Slot;
use garbage::Deferred;
use std::ptr::NonNull;
use std::time::Duration;

/// Proof that this thread is pinned: nothing that was reachable when it was made is freed while it
/// lives. Stays in its thread. Leaking one keeps all garbage of the process for ever.
pub struct Guard {
    /// A slot of the calling thread; it lives as long as the process. Makes the guard `!Send`.
    slot: NonNull<Slot>,
}

/// Pins the calling thread. Guards nest, and may be dropped in any order.
///
/// # Panics
/// With more than 65535 guards in one thread.
#[inline]
pub fn pin() -> Guard {
    let Some(slot) = place::slot() else { return first_pin() };
    // SAFETY: the slot is this thread's (E4), the guard unpins it once.
    unsafe { slot.as_ref().pin() };
    Guard { slot }
}

/// The first pin of a thread, or one of a thread whose thread-locals are gone.
#[cold]
#[inline(never)]
fn first_pin() -> Guard {
    let slot = place::domain().join();
    place::set_slot(Some(NonNull::from(slot)));
    // SAFETY: just joined, so the slot is this thread's (E4); the guard unpins it once.
    unsafe { slot.pin() };
    if !place::leave_at_exit(slot) {
        // SAFETY: ours (E4) and pinned. Nobody would give it back later, so the last guard does.
        unsafe { slot.leave_when_unpinned() };
    }
    Guard { slot: NonNull::from(slot) }
}

/// Gives a slot back whose thread has no thread-locals any more.
#[cold]
#[inline(never)]
fn last_unpin(slot: &Slot) {
    place::set_slot(None);
    // SAFETY: this thread's (E4), not pinned any more, and forgotten by the line above.
    unsafe { slot.leave() };
}

impl Guard {
    /// Calls `free` after every guard that exists now is gone, on any thread; until then `bytes`
    /// count as garbage. Does not allocate for closures of up to three words, except for a bag now
    /// and then.
    ///
    /// `free` may pin, retire and collect. If it panics, the panic hook runs and
    /// [`EpochStatistics::panics`] counts it, but whoever happened to call it goes on.
    pub fn defer(&self, bytes: usize, free: impl FnOnce() + Send + 'static) {
        // SAFETY: a guard stays in its thread, whose slot this is (E4).
        unsafe { self.slot.as_ref().retire(bytes, Deferred::new(free)) };
    }

    /// As [`Guard::defer`], for a bare pointer and the function that frees it. Never allocates for
    /// the pair.
    ///
    /// # Safety
    /// `ptr` is unlinked: no reader that pins from now on can reach it. `free` may be called on it,
    /// once, on any thread, when no guard that exists now remains.
    pub unsafe fn retire(&self, bytes: usize, ptr: *mut (), free: unsafe fn(*mut ())) {
        struct Retired(*mut (), unsafe fn(*mut ()));
        // SAFETY: the caller allows `free` on any thread.
        unsafe impl Send for Retired {}
        impl Retired {
            fn free(self) {
                // SAFETY: the caller allows one call, once no guard of then remains (E3).
                unsafe { (self.1)(self.0) }
            }
        }
        let retired = Retired(ptr, free);
        self.defer(bytes, move || retired.free());
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: slots live as long as the process, or under the model checker as its run.
        let slot = unsafe { self.slot.as_ref() };
        // SAFETY: a guard stays in its thread, whose slot this is (E4), and pinned it once.
        if unsafe { slot.unpin() } {
            last_unpin(slot);
        }
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

/// Bytes retired and not freed yet, in the bags of all threads. Adds up one word per thread.
pub fn garbage_bytes() -> usize {
    place::domain().garbage().0
}

/// Frees, on this thread, all that can be freed now. Never waits: what a guard (this thread's too)
/// holds back stays, and so does everything if another thread is collecting at the moment.
pub fn collect() {
    // SAFETY: `with_slot` passes a slot of this thread (E4).
    place::with_slot(|slot| unsafe { place::domain().collect(slot) });
}

/// Waits until every guard that exists now, on any thread, is gone; sleeps if that takes long.
///
/// # Panics
/// If this thread holds a guard: it would wait for itself.
pub fn synchronize() {
    // SAFETY: `with_slot` passes a slot of this thread (E4).
    place::with_slot(|slot| unsafe { place::domain().synchronize(slot) });
}

/// Whether this thread holds a guard: then it must not [`synchronize`].
pub fn is_pinned() -> bool {
    // SAFETY: slots live as long as the process, or under the model checker as its run.
    place::slot().is_some_and(|slot| unsafe { slot.as_ref() }.is_pinned())
}

/// For how long the longest present pin has been known to hold garbage back. The clock of a pin
/// starts when a collector is first blocked by it, not when it is made: pinning reads no clock.
pub fn oldest_pin() -> Option<Duration> {
    place::domain().oldest_pin()
}

/// What was retired, freed and blocked since the process began.
pub fn statistics() -> EpochStatistics {
    place::domain().statistics()
}
