//! The one simulation of the process, and the gate before it.
//!
//! # Boundary
//! Owns all that a run knows. Decides nothing.
//!
//! # Concurrency
//! G1. Every entry of this library reads the gate first. The simulation is touched only where the gate is open; code
//!     that touches it closes the gate before and opens it after.
//! G2. In a simulated run the master is the only thread that runs the program, so the gate needs no
//!     atomic exchange: it keeps out signal handlers, and calls that the runtime itself makes.
//! G3. No part of the simulation is taken across a switch: other contexts take it meanwhile. All code has a shared
//!     reference; fields that change are cells, or [`Exclusive`]s, which are taken for one statement and checked.
//! G4. Once the gate is [`OFF`] it stays so: in a child, and after the profile is written.
//! G5. In a recorded run the simulation is touched with the lock of `recorded`'s objects held. Once the
//!     gate is [`OFF`] and that lock was taken and released, the thread that ended the run touches it.
//!
//! # Why
//! A flag that two plain stores move costs nothing beside an access. Weakness: a thread that was made by
//! a raw `clone` would come through the open gate; such calls are refused (`process`).

use crate::exclusive::Exclusive;
use crate::objects::Objects;
use crate::samples::Samples;
use crate::sites::Sites;
use crate::threads::Thread;
use std::cell::{Cell, UnsafeCell};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use uvfs_coherence::configuration::Configuration;
use uvfs_coherence::{Model, Scheduler, Ticks};

/// The program runs and is simulated.
pub(crate) const OPEN: u32 = 0;
/// The runtime is at work.
pub(crate) const BUSY: u32 = 1;
/// Everything is handed on as if this library were not there.
pub(crate) const OFF: u32 = 2;
/// The master waits in the kernel; the simulation is as when the gate is open, but calls are handed on.
pub(crate) const OUTSIDE: u32 = 4;
/// Real threads run, accesses are recorded.
pub(crate) const RECORDING: u32 = 3;

/// See [`gate`]; entry points in assembly read it too.
pub(crate) static GATE: AtomicU32 = AtomicU32::new(OFF);

/// The gate as it is.
#[inline(always)]
pub(crate) fn gate() -> u32 {
    // ORDERING: Relaxed; one thread (G2), or a value that no longer changes (G4).
    GATE.load(Ordering::Relaxed)
}

#[inline(always)]
pub(crate) fn set_gate(value: u32) {
    // ORDERING: Relaxed; as `gate`.
    GATE.store(value, Ordering::Relaxed);
}

/// Closes the gate permanently (G4); returns its state before. Of several threads that end a recorded run at once, one finds
/// that it was not [`OFF`].
pub(crate) fn end() -> u32 {
    // ORDERING: AcqRel, partner itself: the second thread sees the changes of the first.
    GATE.swap(OFF, Ordering::AcqRel)
}

/// Closes the gate if it is open; false: it was not, and the call is to be handed on.
#[inline(always)]
pub(crate) fn enter() -> bool {
    if gate() != OPEN {
        return false;
    }
    set_gate(BUSY);
    // ORDERING: Relaxed; the watchdog only looks whether it moves, and only the master moves it.
    PROGRESS.store(PROGRESS.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    true
}

/// Opens it again, unless the simulation has ended meanwhile (G4).
#[inline(always)]
pub(crate) fn leave() {
    if gate() == BUSY {
        set_gate(OPEN);
    }
}

/// Waits in the kernel, behind the closed gate: signals are handled as if it were open.
pub(crate) fn outside<T>(wait: impl FnOnce() -> T) -> T {
    set_gate(OUTSIDE);
    let result = wait();
    if gate() == OUTSIDE {
        set_gate(BUSY);
    }
    result
}

/// Moves with every call into the runtime; the watchdog's only input from it.
pub(crate) static PROGRESS: AtomicU64 = AtomicU64::new(0);
/// Threads that could run, as of the last change; for the watchdog.
pub(crate) static RUNNABLE: AtomicU32 = AtomicU32::new(1);

/// Costs that the runtime itself charges, in ticks.
#[derive(Debug)]
pub(crate) struct Costs {
    pub(crate) compute: Ticks,
    pub(crate) call: Ticks,
    pub(crate) pause: Ticks,
    pub(crate) futex_wait: Ticks,
    pub(crate) futex_wake: Ticks,
    pub(crate) wake_latency: Ticks,
    pub(crate) thread_create: Ticks,
    pub(crate) thread_start: Ticks,
    pub(crate) yield_now: Ticks,
    pub(crate) read_clock: Ticks,
    pub(crate) allocate: Ticks,
    pub(crate) system_call: Ticks,
    /// A plain access that hits, with the instructions before it: nothing where these are charged themselves.
    pub(crate) plain: Ticks,
}

/// All that a run knows.
pub(crate) struct Simulation {
    pub(crate) configuration: Configuration,
    pub(crate) costs: Costs,
    pub(crate) slack: Ticks,
    /// Whether instructions between accesses are charged one by one.
    pub(crate) computes: bool,
    pub(crate) compute: Exclusive<crate::compute::Compute>,
    /// Bytes of a line, less one.
    pub(crate) line_mask: u64,
    pub(crate) scheduler: Exclusive<Scheduler>,
    pub(crate) model: Exclusive<Model>,
    pub(crate) locking: Exclusive<crate::locking::Locking>,
    pub(crate) sites: Exclusive<Sites>,
    pub(crate) samples: Exclusive<Samples>,
    pub(crate) objects: Exclusive<Objects>,
    /// They live to the end of the process: contexts point to them.
    pub(crate) threads: Exclusive<Vec<&'static Thread>>,
    /// Threads that have not ended, the first one not counted.
    pub(crate) alive: Cell<usize>,
    /// The running one of `threads`.
    pub(crate) current: Cell<&'static Thread>,
    /// The detached thread that ended; the next one to run buries it.
    pub(crate) ended: Cell<Option<usize>>,
    pub(crate) modules: Exclusive<crate::modules::Modules>,
    pub(crate) waiting: Exclusive<crate::waiting::Queues>,
    pub(crate) kept: Exclusive<crate::sync::Kept>,
    /// Affinities of thread attributes, by the attributes' address.
    pub(crate) attribute_masks: Exclusive<Table<u64, Vec<u64>>>,
    pub(crate) random: Cell<u64>,
    /// The process's number: a child that shares or copies this memory is another.
    pub(crate) process: i32,
    pub(crate) work: Cell<u64>,
    /// When the first thread was made.
    pub(crate) parallel_from: Cell<Option<Ticks>>,
    /// When the last thread ended.
    pub(crate) parallel_to: Cell<Ticks>,
    pub(crate) host_start: std::time::Duration,
}

impl Simulation {
    /// The thread of this number.
    pub(crate) fn thread(&self, id: usize) -> &'static Thread {
        self.threads.get()[id]
    }

    /// All threads so far.
    pub(crate) fn all_threads(&self) -> Vec<&'static Thread> {
        self.threads.get().clone()
    }
}

struct Slot(UnsafeCell<Option<Simulation>>);

// SAFETY: touched only behind the gate (G1, G2).
unsafe impl Sync for Slot {}

static SIMULATION: Slot = Slot(UnsafeCell::new(None));

/// Puts the simulation in its place; once, before the gate opens.
pub(crate) fn install(simulation: Simulation) {
    // SAFETY: the gate has not been open yet, so no other thread is here (G1).
    unsafe { *SIMULATION.0.get() = Some(simulation) };
}

/// The simulation. The caller has closed the gate (G1).
#[inline(always)]
pub(crate) fn simulation() -> &'static Simulation {
    // SAFETY: one thread behind the closed gate (G1, G2); the gate opens only after `install`, and from then on
    // there are shared references only.
    unsafe { (*SIMULATION.0.get()).as_ref().unwrap_unchecked() }
}

/// Whether there is a simulation at all, running or ended.
pub(crate) fn exists() -> bool {
    // SAFETY: only compares; written once, before the program's first instruction.
    unsafe { (*SIMULATION.0.get()).is_some() }
}

/// A hash that is the same in every run.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Fixed(u64);

impl Hasher for Fixed {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

/// A table with an order that no code may rely on, but which is the same in every run.
pub(crate) type Table<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Fixed>>;
