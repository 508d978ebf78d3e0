//! Replaces [`uvfs_concurrent::epoch`] in the models of the table: a count of pins.
//!
//! # Boundary
//! Pins, retires and frees under the model checker; nothing else. The epochs have models of their
//! own.
//!
//! # Concurrency
//! S1. Garbage is freed when the count is 0 after it was retired. A thread that pins later in the
//!     order of the count sees the earlier unlinking (an unpin releases, a pin acquires).
//!
//! # Why
//! Models explore every step of the code that they use, so they should use little. Garbage must be
//! freed where the checker sees a race with a reader, as a failure of the model. Weakness: a reader
//! that keeps pinning keeps all garbage.

use std::cell::RefCell;
use std::ptr::NonNull;
use uvfs_concurrent::primitive::atomic::{AtomicUsize, Ordering};

/// A pointer and the function that frees it.
// SAFETY: the caller of the function keeps its promise; see `Domain`.
type Retired = (*mut (), unsafe fn(*mut ()));

/// Pins and garbage of one model.
#[derive(Debug, Default)]
pub(super) struct Domain {
    pins: AtomicUsize,
    /// One model thread at a time reaches it: loom switches threads only at atomic steps.
    garbage: RefCell<Vec<Retired>>,
}

// SAFETY: loom runs one thread at a time, and no atomic step lies inside a borrow of `garbage`.
unsafe impl Sync for Domain {}
// SAFETY: retired objects may be freed on any thread.
unsafe impl Send for Domain {}

/// Replaces [`uvfs_concurrent::epoch::Guard`].
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

    /// Frees all garbage if no thread is pinned.
    pub(super) fn collect(&self) {
        let garbage = self.garbage.take();
        // ORDERING: Acquire, partner `Guard::drop` (S1).
        if self.pins.load(Ordering::Acquire) == 0 {
            garbage.into_iter().for_each(|(pointer, free)| {
                // SAFETY: retired before the load, and every later pin comes after the unlinking
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
    /// Replaces [`uvfs_concurrent::epoch::Guard::retire`].
    ///
    /// # Safety
    /// The same as for that function.
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
