//! The runtime that an instrumented program carries: its threads become virtual cores of a simulated machine.
//!
//! # Boundary
//! A library that is preloaded into a program which was compiled with the ThreadSanitizer pass. [`abi`]
//! receives the accesses, [`access`] charges them by the model of [`uvfs_coherence`], [`threads`] and
//! [`switch`] run one thread at a time, the earliest in virtual time; [`sync`], [`futex`], [`time`],
//! [`io`], [`cores`] and [`heap`] stand before the C library's functions; [`report`] writes the profile.
//! Without a configuration in the environment everything is handed on and nothing is said.
//!
//! # Concurrency
//! In a simulated run one OS thread, the master, runs all of the program ([`state`], [`switch`]).
//! In a recorded run the program's own threads run as they are ([`recorded`]).
//!
//! # Why
//! `unsafe` and atomics are used here, which the workspace otherwise keeps to one crate: contexts, entry
//! points of a C interface and interposed functions cannot be written without (decision 0016).
//! Weakness: what neither the compiler's pass nor the C library's functions show is not seen: inline
//! assembly, precompiled code, the kernel.

// A test binary exports none of the entry points, so that it is not interposed itself.
#![cfg_attr(test, allow(dead_code))]

mod abi;
mod access;
mod cores;
mod futex;
mod heap;
mod io;
mod locking;
mod memory;
mod modules;
mod next;
mod objects;
mod process;
mod recorded;
mod report;
mod samples;
mod sites;
mod start;
mod state;
mod switch;
mod sync;
mod threads;
mod time;
mod waiting;
mod watchdog;

#[global_allocator]
static ARENA: memory::Arena = memory::Arena::new();

/// Says one line on the standard error output.
pub(crate) fn message(text: &str) {
    let line = format!("uvfs contention: {text}\n");
    let arguments = [2, line.as_ptr() as usize, line.len(), 0, 0, 0];
    // SAFETY: writes the line's bytes.
    unsafe { switch::system_call(libc::SYS_write, arguments) };
}

/// Says once that the program does what is not simulated.
pub(crate) fn unsupported(what: &str) {
    use std::sync::atomic::{AtomicBool, Ordering};
    static SAID: AtomicBool = AtomicBool::new(false);
    // ORDERING: Relaxed; whether it was said, nothing is reached through it.
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    message(&format!("not simulated: {what}"));
}
