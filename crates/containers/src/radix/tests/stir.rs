//! Delays threads between the steps of the protocol, in tests.
//!
//! # Why
//! The steps are a few instructions apart, and a wrong order shows only if another thread runs
//! between them. Without the delays, tests that break the rules on purpose passed for hours.

use std::cell::Cell;

thread_local!(static STATE: Cell<u64> = const { Cell::new(0) });

/// Called before or after a step: mostly returns at once, sometimes lets other threads run first.
pub(in crate::radix) fn stir() {
    let state = STATE.get();
    // Each thread has its own sequence, because the address of its local is its own.
    let seed =
        if state == 0 { STATE.with(|own| std::ptr::from_ref(own).addr() as u64) } else { state };
    let next = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    STATE.set(next | 1);
    match next >> 56 {
        0 => std::thread::yield_now(),
        1..16 => (0..next >> 48 & 0xff).for_each(|_| std::hint::spin_loop()),
        _ => {}
    }
}
