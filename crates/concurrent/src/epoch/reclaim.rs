//! The seam between containers and reclamation.
//!
//! # Boundary
//! What a container needs from a reclamation scheme, and two schemes: ours, and crossbeam-epoch's
//! as the reference, behind the feature `crossbeam-reference`.
//!
//! # Why
//! The same container runs on both, so that a fault or a slowness can be laid at one door.
//! Weakness: the reference does not count bytes, and has no `synchronize`.

use super::Guard;

/// A way to find out when memory that was unlinked may be freed.
pub trait Reclaim {
    /// Keeps what was reachable when it was made from being freed.
    type Guard;

    /// Pins the calling thread; guards nest.
    fn pin() -> Self::Guard;

    /// Calls `free` on `ptr` once every guard that exists now is gone; `bytes` are garbage
    /// meanwhile.
    ///
    /// # Safety
    /// `ptr` is unlinked: no reader that pins from now on can reach it. `free` may be called on it,
    /// once, on any thread, when no guard that exists now remains.
    unsafe fn retire(guard: &Self::Guard, bytes: usize, ptr: *mut (), free: unsafe fn(*mut ()));

    /// Frees some of what can be freed, without waiting.
    fn collect();
}

/// The scheme of this module.
#[derive(Debug, Clone, Copy)]
pub struct Epoch;

impl Reclaim for Epoch {
    type Guard = Guard;

    #[inline]
    fn pin() -> Guard {
        super::pin()
    }

    // SAFETY: asks for what the trait asks for.
    unsafe fn retire(guard: &Guard, bytes: usize, ptr: *mut (), free: unsafe fn(*mut ())) {
        // SAFETY: the caller's promise is the same.
        unsafe { guard.retire(bytes, ptr, free) };
    }

    fn collect() {
        super::collect();
    }
}

/// The default collector of crossbeam-epoch.
#[cfg(feature = "crossbeam-reference")]
#[derive(Debug, Clone, Copy)]
pub struct CrossbeamEpoch;

#[cfg(feature = "crossbeam-reference")]
impl Reclaim for CrossbeamEpoch {
    type Guard = crossbeam_epoch::Guard;

    #[inline]
    fn pin() -> Self::Guard {
        crossbeam_epoch::pin()
    }

    // SAFETY: asks for what the trait asks for.
    unsafe fn retire(guard: &Self::Guard, _bytes: usize, ptr: *mut (), free: unsafe fn(*mut ())) {
        // SAFETY: the caller's promise is what `defer_unchecked` wants.
        unsafe { guard.defer_unchecked(move || free(ptr)) };
    }

    fn collect() {
        crossbeam_epoch::pin().flush();
    }
}
