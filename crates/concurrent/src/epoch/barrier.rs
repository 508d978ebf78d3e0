//! The two halves of an asymmetric barrier: free for a pin, a system call for the collector.
//!
//! # Boundary
//! Knows membarrier(2) and fences. The callers of each half are in [`super::domain`].
//!
//! # Why
//! A pin is a store followed by loads, and hardware may swap the two. A fence that forbids
//! this costs more than the rest of a pin. The system call membarrier(2) makes the kernel run a
//! full barrier on every core that runs a thread of this process. So the collector pays for the
//! fence, once per some hundred retired objects (Desnoyers et al. 2012, "User-Level Implementations
//! of Read-Copy Update"). Weakness: the call interrupts every core that runs this process. A kernel
//! or a system call filter may refuse it; then pins fence.

use crate::primitive::atomic::{Ordering, fence};
use crate::primitive::unseen;
use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

/// The party that pays for the barrier between a pin and the loads after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The collector, by membarrier(2). A pin is one store.
    Membarrier,
    /// Every pin, because the kernel has no membarrier(2) or a filter refuses it.
    Fence,
}

/// Asks the kernel for private expedited barriers. Called once, before the first pin.
pub(super) fn register() -> Mode {
    let offered = membarrier_query().contains_command(MembarrierCommand::PrivateExpedited);
    if offered && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok() && everywhere() {
        Mode::Membarrier
    } else {
        Mode::Fence
    }
}

/// Runs a full barrier on every thread of this process. False if the kernel refuses.
pub(super) fn everywhere() -> bool {
    membarrier(MembarrierCommand::PrivateExpedited).is_ok()
}

/// The pinning half: orders the pin's store before the loads that follow.
#[inline(always)]
pub(super) fn light(fenced: bool) {
    if fenced {
        // ORDERING: SeqCst, partner `heavy` (O1). The models have no membarrier and run this fence.
        fence(Ordering::SeqCst);
    } else {
        // ORDERING: compiler only; `heavy` does the hardware's part through membarrier (O1).
        unseen::compiler_fence(Ordering::SeqCst);
    }
}

/// The collecting half, without the system call: orders this thread's accesses against the fences.
#[inline]
pub(super) fn heavy() {
    // ORDERING: SeqCst, partner `light` (O1).
    fence(Ordering::SeqCst);
}
