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
//! E1. Each exported name is the C library's, or the compilers', and the function has the type that the name
//!     has there: a caller cannot tell it from the original but by what it says it does.
//! E2. An entry in assembly touches, before it jumps or calls, only `rax`, argument registers that its
//!     function does not use, and stack that it gives back: all that the convention lets a callee change.
//!     It calls with the stack aligned to 16 bytes. No interposed function takes floating-point arguments.
//! E3. No panic leaves the library: the library is built to abort (profile `contention-runtime`).
//! E4. An entry leaves the error number alone unless it reports an error: what the runtime asks of the kernel
//!     between, it asks by [`switch::system_call`], which knows no error number.
//!
//! # Why
//! `unsafe` and atomics are used here, which the workspace otherwise keeps to one crate: contexts, entry
//! points of a C interface and interposed functions cannot be written without them (decision 0016).
//! Weakness: inline assembly, precompiled code and the kernel are not seen.

// Only x86-64 Linux with glibc is supported. Elsewhere this is an empty library that is not embedded, and the
// rest of the workspace is tested. Another processor needs a file beside `src/switch/x86_64.rs` with the items
// that `src/switch/mod.rs` lists.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
// A test binary exports none of the entry points, so that it is not interposed itself.
#![cfg_attr(test, allow(dead_code))]

mod abi;
mod access;
mod code;
mod compute;
mod cores;
mod counter;
mod exclusive;
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
    // In one call, and without an allocation: a fault in the arena itself is told in this way too.
    let pieces = ["uvfs contention: ", text, "\n"].map(|piece| libc::iovec {
        iov_base: piece.as_ptr().cast_mut().cast(),
        iov_len: piece.len(),
    });
    let arguments = [2, pieces.as_ptr() as usize, pieces.len(), 0, 0, 0];
    // SAFETY: the kernel reads the pieces, which live until it returns.
    unsafe { switch::system_call(libc::SYS_writev, arguments) };
}

/// Reports once that the program uses a function that is not simulated.
pub(crate) fn unsupported(what: &str) {
    use std::sync::atomic::{AtomicBool, Ordering};
    static SAID: AtomicBool = AtomicBool::new(false);
    // ORDERING: Relaxed; whether it was said, nothing is reached through it.
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    message(&format!("not simulated: {what}"));
}
