//! The one domain of the process, and each thread's slot in it.
//!
//! # Boundary
//! Thread-locals only, for `std` and for the model checker. The protocol is in [`super::domain`].
//!
//! # Concurrency
//! A thread claims a slot at its first pin and leaves it when its thread-locals are destroyed. A
//! destructor that pins after that gets a slot for the lifetime of its guards.
//!
//! # Why
//! The pointer to the slot has no destructor and a constant start value, so reading it is one load.
//! The destructor is in a second thread-local, which is touched once per thread. Weakness: a
//! long-lived thread that pins once keeps its slot, and every round looks at that slot.

use super::domain::{Domain, Slot};
use std::cell::Cell;
use std::ptr::NonNull;

/// Leaves the thread's slot when it is dropped.
struct Exit(Cell<Option<NonNull<Slot>>>);

impl Drop for Exit {
    fn drop(&mut self) {
        let Some(slot) = self.0.get() else { return };
        // SAFETY: slots live as long as their domain, which outlives the thread.
        let slot = unsafe { slot.as_ref() };
        if slot.is_pinned() {
            // SAFETY: this thread's slot (E4), pinned by a guard in another thread-local that is
            // destroyed later.
            unsafe { slot.leave_when_unpinned() };
        } else {
            set_slot(None);
            // SAFETY: this thread's slot (E4), not pinned, and forgotten by the line above.
            unsafe { slot.leave() };
        }
    }
}

#[cfg(not(loom))]
mod locals {
    use super::*;
    use crate::epoch::barrier;
    use std::sync::OnceLock;

    thread_local! {
        static SLOT: Cell<Option<NonNull<Slot>>> = const { Cell::new(None) };
        static EXIT: Exit = const { Exit(Cell::new(None)) };
    }

    pub(in crate::epoch) fn domain() -> &'static Domain {
        static DOMAIN: OnceLock<Domain> = OnceLock::new();
        DOMAIN.get_or_init(|| Domain::new(barrier::register(), barrier::everywhere))
    }

    /// The slot of this thread, if it has one.
    #[inline]
    pub(in crate::epoch) fn slot() -> Option<NonNull<Slot>> {
        SLOT.with(Cell::get)
    }

    pub(in crate::epoch) fn set_slot(slot: Option<NonNull<Slot>>) {
        SLOT.with(|local| local.set(slot));
    }

    /// Registers the slot to be left when the thread exits. False if it is too late for that.
    pub(in crate::epoch) fn leave_at_exit(slot: &Slot) -> bool {
        EXIT.try_with(|exit| exit.0.set(Some(NonNull::from(slot)))).is_ok()
    }
}

/// Slots in loom's locals, so that models of other structures can pin: a domain per execution.
#[cfg(loom)]
mod locals {
    use super::*;
    use crate::epoch::barrier::Mode;
    use loom::sync::Arc;

    // The threads keep the domain: loom drops statics before the locals of the main thread.
    loom::lazy_static! {
        static ref DOMAIN: Arc<Domain> = Arc::new(Domain::new(Mode::Fence, || true));
    }
    loom::thread_local! {
        static SLOT: Cell<Option<NonNull<Slot>>> = Cell::new(None);
        static EXIT: (Exit, Arc<Domain>) = (Exit(Cell::new(None)), Arc::clone(&DOMAIN));
    }

    pub(in crate::epoch) fn domain() -> &'static Domain {
        &DOMAIN
    }

    pub(in crate::epoch) fn slot() -> Option<NonNull<Slot>> {
        SLOT.try_with(Cell::get).ok().flatten()
    }

    pub(in crate::epoch) fn set_slot(slot: Option<NonNull<Slot>>) {
        // If the local is already destroyed, no later call reads it either.
        let _ = SLOT.try_with(|local| local.set(slot));
    }

    pub(in crate::epoch) fn leave_at_exit(slot: &Slot) -> bool {
        EXIT.try_with(|exit| exit.0.0.set(Some(NonNull::from(slot)))).is_ok()
    }
}

pub(super) use locals::{domain, leave_at_exit, set_slot, slot};

/// Runs `work` with a slot of this thread, without pinning it.
pub(super) fn with_slot(work: impl FnOnce(&Slot)) {
    if let Some(slot) = slot() {
        // SAFETY: slots live as long as their domain, which outlives the thread.
        return work(unsafe { slot.as_ref() });
    }
    let slot = domain().join();
    set_slot(Some(NonNull::from(slot)));
    let kept = leave_at_exit(slot);
    work(slot);
    if !kept {
        set_slot(None);
        // SAFETY: this thread joined (E4), `work` has returned and leaves no pin, and the line
        // above forgot the slot.
        unsafe { slot.leave() };
    }
}
