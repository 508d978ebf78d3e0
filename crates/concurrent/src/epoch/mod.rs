//! Epochs: decide when unlinked memory may be freed.
//!
//! A reader pins, follows pointers, and unpins. A writer unlinks an object, so that no new reader finds it, and retires
//! it. The object is freed once every guard that existed then is gone.
//! ```
//! let guard = uvfs_concurrent::epoch::pin();
//! guard.defer(4096, || println!("every reader of today is gone"));
//! drop(guard);
//! uvfs_concurrent::epoch::collect();
//! ```
//!
//! # Boundary
//! Owns pins, garbage and its freeing. Knows no limit: the owner of a budget reads [`garbage_bytes`] and calls
//! [`collect`]. Never hold a guard across I/O or a wait: one pin delays all freeing ([`oldest_pin`] reports it).
//!
//! # Concurrency
//! Protocol, invariants and orderings: `epoch/domain.rs`. A pin stores to one word on a line of its own,
//! to which only its thread stores. [`crate::primitive`] does not count that as a shared store. Every thread may call
//! every function, also in deferred calls and in destructors of thread-locals; only [`synchronize`] waits. After
//! `fork`, the child must not pin: a fork copies the other threads' pins and not the threads.
//!
//! # Why
//! Every lookup pins, but few operations retire. So the pin is a store without a fence, and the collector pays with
//! membarrier(2) (`liburcu`, Desnoyers et al. 2012). Three epochs as Fraser 2004. Weakness: the slowest reader delays
//! all freeing, and garbage is unbounded; garbage left at the end of the process is not freed.

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

/// Proof that this thread is pinned: objects that were reachable when it was made are not freed
/// while it lives. Stays in its thread. A leaked guard keeps all garbage of the process for ever.
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
        // SAFETY: owned (E4) and pinned. No thread-local leaves the slot later, so the last guard
        // does.
        unsafe { slot.leave_when_unpinned() };
    }
    Guard { slot: NonNull::from(slot) }
}

/// Leaves the slot of a thread that has no thread-locals any more.
#[cold]
#[inline(never)]
fn last_unpin(slot: &Slot) {
    place::set_slot(None);
    // SAFETY: this thread's (E4), not pinned any more, and forgotten by the line above.
    unsafe { slot.leave() };
}

impl Guard {
    /// Calls `free` on any thread after every guard that exists now is gone; until then `bytes`
    /// count as garbage. Does not allocate for closures of up to three words, except for an
    /// occasional bag.
    ///
    /// `free` may pin, retire and collect. If it panics, the panic hook runs,
    /// [`EpochStatistics::panics`] counts it, and the thread that called it continues.
    pub fn defer(&self, bytes: usize, free: impl FnOnce() + Send + 'static) {
        // SAFETY: a guard stays in its thread, whose slot this is (E4).
        unsafe { self.slot.as_ref().retire(bytes, Deferred::new(free)) };
    }

    /// Defers as [`Guard::defer`] does, for a bare pointer and the function that frees it. Never allocates for the
    /// pair.
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
                // SAFETY: the caller allows one call, once no guard of that time remains (E3).
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

/// Frees, on this thread, all garbage that can be freed now. Never waits. Garbage that a guard
/// (this thread's too) protects stays, and so does all garbage if another thread is collecting.
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

/// The longest time for which a present pin has been known to block the collector. A pin's clock
/// starts when it first blocks a collector, not when it is made: pinning reads no clock.
pub fn oldest_pin() -> Option<Duration> {
    place::domain().oldest_pin()
}

/// Counts of retired and freed objects and of blocked advances since the process began.
pub fn statistics() -> EpochStatistics {
    place::domain().statistics()
}
