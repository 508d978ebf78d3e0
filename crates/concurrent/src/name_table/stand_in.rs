//! What stands for [`crate::epoch`] in the models of the table: a count of pins.
//!
//! # Boundary
//! Pins, retires and frees under the model checker; nothing else. The epochs have models of their
//! own.
//!
//! # Concurrency
//! S1. Garbage is freed when the count is 0 after it was retired: who pins later in the order of
//!     the count sees what was unlinked before (an unpin releases, a pin acquires).
//!
//! # Why
//! Models explore every step of what they use, so they should use little; and garbage must be freed
//! where the checker sees a race with a reader, as a failure of the model. Weakness: a reader that
//! keeps pinning keeps everything.

use crate::primitive::atomic::{AtomicUsize, Ordering};
use std::cell::RefCell;
use std::ptr::NonNull;

/// A pointer and the function that frees it.
// SAFETY: whoever calls the function keeps its promise; see `Domain`.
type Retired = (*mut (), unsafe fn(*mut ()));

/// Pins and garbage of one model.
#[derive(Debug, Default)]
pub(super) struct Domain {
    pins: AtomicUsize,
    /// Reached by one model thread at a time: they take turns between atomic steps only.
    garbage: RefCell<Vec<Retired>>,
}

// SAFETY: loom runs one thread at a time, and no atomic step lies inside a borrow of `garbage`.
unsafe impl Sync for Domain {}
// SAFETY: what is retired may be freed on any thread.
unsafe impl Send for Domain {}

/// As [`crate::epoch::Guard`].
#[derive(Debug)]
pub struct Guard(NonNull<Domain>);

#[cfg(test)]
impl Domain {
    /// The guard must be dropped before the domain.
    pub(super) fn pin(&self) -> Guard {
        // ORDERING: Acquire, partner `Guard::drop` (S1).
        self.pins.fetch_add(1, Ordering::Acquire);
        Guard(NonNull::from(self))
    }

    /// Frees all garbage if nobody is pinned.
    pub(super) fn collect(&self) {
        let garbage = self.garbage.take();
        // ORDERING: Acquire, partner `Guard::drop` (S1).
        if self.pins.load(Ordering::Acquire) == 0 {
            garbage.into_iter().for_each(|(pointer, free)| {
                // SAFETY: retired before the load, and every pin since comes after the unlinking
                // (S1).
                unsafe { free(pointer) }
            });
        } else {
            self.garbage.borrow_mut().extend(garbage);
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.garbage.take().into_iter().for_each(|(pointer, free)| {
                // SAFETY: exclusive: no pins.
                unsafe { free(pointer) }
            });
        }
    }
}

impl Guard {
    /// As [`crate::epoch::Guard::retire`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn retire(&self, _bytes: usize, pointer: *mut (), free: unsafe fn(*mut ())) {
        // SAFETY: the domain outlives its guards.
        unsafe { self.0.as_ref() }.garbage.borrow_mut().push((pointer, free));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: the domain outlives its guards.
        let domain = unsafe { self.0.as_ref() };
        // ORDERING: Release, partners `pin` and `collect` (S1).
        domain.pins.fetch_sub(1, Ordering::Release);
    }
}
