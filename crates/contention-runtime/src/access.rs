//! The way of every access: charge it, let an earlier core go first, ask the model.
//!
//! # Boundary
//! Between the compiler's calls ([`crate::abi`]) and the model. Other modules charge everything that is no
//! access.
//!
//! # Concurrency
//! As [`crate::state`]: the gate is closed from [`begin`] to [`end`], so an atomic operation and its
//! record are one step. A switch happens only before an access is charged, never between the charge
//! and the operation: A1, the order of charges is the order of operations.
//!
//! # Why
//! A plain access may be ahead of the slowest core by a little (`slack`), which saves most switches.
//! An atomic access may not, since threads order themselves by atomics. Weakness: the order of
//! racing plain accesses is exact only to the slack.

use crate::compute::Nearness;
use crate::sites::CALLERS;
use crate::state::{BUSY, OPEN, PROGRESS, RECORDING, gate, leave, set_gate, simulation};
use crate::threads::reschedule;
use std::sync::atomic;
use uvfs_coherence::profile::{Operation, Ordering};
use uvfs_coherence::{Access, Miss, TICKS_PER_CYCLE, Ticks};

const OPERATIONS: [Operation; 8] = [
    Operation::Load,
    Operation::Store,
    Operation::AtomicLoad,
    Operation::AtomicStore,
    Operation::FetchAdd,
    Operation::FetchBits,
    Operation::Exchange,
    Operation::CompareExchange,
];
// ORDERING: names of the profile, by number; no atomic is accessed with them.
const ORDERINGS: [Ordering; 6] = [
    Ordering::Plain,
    Ordering::Relaxed,
    Ordering::Acquire,
    Ordering::Release,
    Ordering::AcquireRelease,
    Ordering::SequentiallyConsistent,
];

/// The kind of an access, in one word: `bytes << 8 | ordering << 4 | operation`.
pub(crate) const fn kind(operation: Operation, bytes: u32) -> u32 {
    bytes << 8 | code(operation)
}

const fn code(operation: Operation) -> u32 {
    match operation {
        Operation::Load => 0,
        Operation::Store => 1,
        Operation::AtomicLoad => 2,
        Operation::AtomicStore => 3,
        Operation::FetchAdd => 4,
        Operation::FetchBits => 5,
        Operation::Exchange => 6,
        Operation::CompareExchange => 7,
    }
}

/// The kind of an atomic access, with the ordering as the compilers number it.
#[inline(always)]
pub(crate) fn ordered(operation: Operation, bytes: u32, order: i32) -> u32 {
    const NUMBERS: [u32; 8] = [1, 2, 2, 3, 4, 5, 5, 5];
    kind(operation, bytes) | NUMBERS[(order & 7) as usize] << 4
}

pub(crate) fn operation_of(kind: u32) -> Operation {
    OPERATIONS[(kind & 7) as usize]
}

pub(crate) fn ordering_of(kind: u32) -> Ordering {
    ORDERINGS[(kind >> 4 & 7) as usize % ORDERINGS.len()]
}

pub(crate) fn bytes_of(kind: u32) -> u32 {
    kind >> 8
}

/// A plain access is about to happen.
///
/// # Safety
/// None beyond that only the pass calls it: the address is a number here, never read from or written to.
pub(crate) unsafe extern "C" fn plain(address: u64, pc: u64, kind: u32) {
    if gate() != OPEN {
        return elsewhere(address, pc, kind);
    }
    set_gate(BUSY);
    if !charge_quick(address, pc, kind) {
        charge_slowly(address, pc, kind);
    }
    set_gate(OPEN);
}

/// [`charge`], out of the way of [`charge_quick`].
#[cold]
#[inline(never)]
fn charge_slowly(address: u64, pc: u64, kind: u32) {
    charge(address, pc, kind);
}

/// A read and a write of the same place are about to happen; the write is the dearer one.
///
/// # Safety
/// None beyond that only the pass calls it: the address is a number here, never read from or written to.
pub(crate) unsafe extern "C" fn compound(address: u64, pc: u64, kind: u32) {
    if gate() != OPEN {
        return elsewhere(address, pc, kind);
    }
    set_gate(BUSY);
    let state = simulation();
    // SAFETY: behind the closed gate; for this one call of pure code.
    unsafe { state.scheduler.unchecked() }.advance(state.costs.compute);
    if !charge_quick(address, pc, kind) {
        charge_slowly(address, pc, kind);
    }
    set_gate(OPEN);
}

/// So many bytes are about to be accessed.
///
/// # Safety
/// None beyond that only the pass calls it: the address is a number here, never read from or written to.
pub(crate) unsafe extern "C" fn range(address: u64, bytes: usize, pc: u64, kind: u32) {
    if bytes == 0 {
        return;
    }
    let end = address + bytes as u64;
    let mut at = address;
    while at < end {
        // No line is shorter than 32 bytes, and no vector register much longer.
        let piece = ((at | 31) + 1).min(end) - at;
        copied();
        // SAFETY: `plain` has no requirements; it looks at no memory of the program.
        unsafe { plain(at, pc, kind & 0xff | (piece as u32) << 8) };
        at += piece;
    }
}

/// The C library copies a register's width in a cycle.
fn copied() {
    if gate() == OPEN && simulation().computes {
        set_gate(BUSY);
        simulation().scheduler.get().advance(TICKS_PER_CYCLE);
        set_gate(OPEN);
    }
}

/// How far ahead of the slowest core a thread may be that computes and accesses nothing, as a multiple of the slack. No
/// other thread sees its work, so the limit only has to exist.
const BLOCKS_AHEAD: Ticks = 16;

/// A block of the program begins: the instructions since the last point take their time. Other threads may be due: a loop of
/// blocks whose accesses are not seen would otherwise never end.
///
/// # Safety
/// As [`plain`]: the argument is a number here.
pub(crate) unsafe extern "C" fn block(pc: u64) {
    if gate() != OPEN {
        return;
    }
    set_gate(BUSY);
    let state = simulation();
    if state.computes {
        reach(pc);
        // Without a slack, some still: a switch for each block would be all that is done.
        let ahead = (state.slack * BLOCKS_AHEAD).max(1000 * TICKS_PER_CYCLE);
        if state.scheduler.get().must_yield(ahead) {
            reschedule();
        }
    }
    set_gate(OPEN);
}

/// The running thread is behind the call that returns to `pc`.
#[inline(always)]
fn reach(pc: u64) {
    let state = simulation();
    if !state.computes {
        return;
    }
    let thread = state.current.get();
    // SAFETY: behind the closed gate, and until their last use only these three are called, which know nothing of
    // the simulation.
    let (compute, progress, scheduler) = unsafe {
        (state.compute.unchecked(), thread.progress.unchecked(), state.scheduler.unchecked())
    };
    let (cost, stalled) = compute.reach(progress, pc);
    thread.stalled.set(thread.stalled.get() + stalled);
    scheduler.advance(cost);
    // ORDERING: Relaxed; the watchdog only looks whether it moves, and only the master moves it.
    PROGRESS.store(scheduler.now(), atomic::Ordering::Relaxed);
}

/// The core's first cache looks for the line of an access that its own caches answer; one that it does not have
/// comes later, unless it was fetched ahead.
#[inline(always)]
fn touch(address: u64, pc: u64, core: usize) {
    let state = simulation();
    // SAFETY: behind the closed gate, and until their last use only these two are called, which know nothing of the simulation.
    let (compute, progress) =
        unsafe { (state.compute.unchecked(), state.current.get().progress.unchecked()) };
    let line = address & !state.line_mask;
    match compute.touch(core, line / (state.line_mask + 1)) {
        Nearness::Here => compute.arrives(progress, pc, line),
        Nearness::Streamed => {}
        Nearness::Away => compute.longer(progress, pc, compute.second_level, line),
    }
}

/// A plain access that left the core's own cache; returns the time that passes in order. The core waits for a line of another core.
/// A line from a cache below or from memory overlaps with instructions that do not need it.
fn miss_in_order(address: u64, pc: u64, core: usize, writes: bool, miss: &Miss) -> Ticks {
    let state = simulation();
    let mut compute = state.compute.get();
    let nearness = compute.touch(core, address / (state.line_mask + 1));
    if miss.class.is_transfer() {
        return miss.queue + miss.service;
    }
    if nearness == Nearness::Streamed || writes {
        compute.fetched(&mut state.current.get().progress.get(), rough(miss.service));
        return miss.queue;
    }
    let by = rough(miss.service);
    let line = address & !state.line_mask;
    compute.longer(&mut state.current.get().progress.get(), pc, by, line);
    miss.queue
}

/// Three binary digits of a latency, so that the same path is met again.
fn rough(latency: Ticks) -> Ticks {
    let step = 1 << (latency.max(8).ilog2() - 3);
    (latency + step / 2) / step * step
}

/// An atomic access that was charged, until [`end`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token {
    address: u64,
    site: u32,
    kind: u32,
}

const NOWHERE: u32 = u32::MAX;

/// An atomic operation is about to happen. Closes the gate until [`end`].
#[inline]
pub(crate) fn begin(address: u64, pc: u64, kind: u32) -> Token {
    if gate() != OPEN {
        elsewhere(address, pc, kind);
        return Token { address, site: NOWHERE, kind };
    }
    set_gate(BUSY);
    let site = charge(address, pc, kind);
    Token { address, site, kind }
}

/// It has happened: the cell held `old`, and now holds `new`. `success` is false for a compare-exchange
/// that left the cell alone.
#[inline]
pub(crate) fn end(token: Token, old: u64, new: u64, success: bool) {
    if token.site == NOWHERE {
        return;
    }
    crate::locking::observe(token.address, token.kind, token.site, old, new, success);
    leave();
}

/// An access where nothing is simulated.
#[cold]
fn elsewhere(address: u64, pc: u64, kind: u32) {
    if gate() == RECORDING {
        crate::recorded::access(address, pc, kind);
    }
}

/// Charges an access, behind the closed gate; the site's number.
#[inline(always)]
pub(crate) fn charge(address: u64, pc: u64, kind: u32) -> u32 {
    let bytes = u64::from(kind >> 8);
    let state = simulation();
    if (address & state.line_mask) + bytes > state.line_mask + 1 {
        return charge_split(address, pc, kind);
    }
    charge_one(address, pc, kind, kind)
}

/// An access of several lines is one access a line, all of one site.
#[cold]
#[inline(never)]
fn charge_split(address: u64, pc: u64, kind: u32) -> u32 {
    let end = address + u64::from(kind >> 8);
    let mut at = address;
    let mut site = NOWHERE;
    while at < end {
        let next = ((at | simulation().line_mask) + 1).min(end);
        site = charge_one(at, pc, kind & 0xff | ((next - at) as u32) << 8, kind);
        at = next;
    }
    site
}

/// Threads meet at atomic accesses: everything before one is charged before it. An access that updates waits for all
/// that is under way.
fn reach_atomic(pc: u64, kind: u32) {
    let state = simulation();
    // Called by the C library, perhaps.
    let known = state.compute.get().knows(pc);
    if known {
        reach(pc);
    }
    if operation_of(kind).updates() {
        let thread = state.current.get();
        let time = state.compute.get().drain(&mut thread.progress.get());
        state.scheduler.get().advance(time);
    }
}

#[inline(always)]
fn charge_one(address: u64, pc: u64, kind: u32, whole: u32) -> u32 {
    let atomic = kind & 0xf > 1;
    let state = simulation();
    state.scheduler.get().advance(state.costs.compute);
    let thread = state.current.get();
    if atomic && state.computes {
        reach_atomic(pc, kind);
    }
    if thread.last_address.get() == address && thread.last_pc.get() == pc {
        if kind & 0xf == code(Operation::AtomicLoad) {
            // The same load again with nothing between: a turn of a spin loop.
            state.scheduler.get().advance(state.costs.pause);
        }
    } else {
        thread.last_address.set(address);
        thread.last_pc.set(pc);
    }
    let yields = state.scheduler.get().must_yield(if atomic { 0 } else { state.slack });
    if yields {
        // It comes back on this thread.
        reschedule();
    }
    thread.accesses.set(thread.accesses.get() + 1);
    let site = thread.site(&mut state.sites.get(), pc, whole);
    let access = Access { address, bytes: kind >> 8, operation: operation_of(kind) };
    let mut scheduler = state.scheduler.get();
    let core = scheduler.current_core();
    let now = scheduler.now();
    // ORDERING: Relaxed; the watchdog only looks whether it moves, and only the master moves it.
    PROGRESS.store(now, atomic::Ordering::Relaxed);
    thread.last_begin.set(now);
    thread.last_site.set(site);
    let outcome = state.model.get().access(core, now, site, &access);
    let mut finish = outcome.finish;
    if state.computes && !atomic {
        finish = now;
        match &outcome.miss {
            Some(miss) => {
                finish += miss_in_order(address, pc, core, access.operation.writes(), miss);
            }
            None => touch(address, pc, core),
        }
    } else if state.computes {
        state.compute.get().touch(core, address / (state.line_mask + 1));
    }
    scheduler.advance_to(finish);
    if let Some(miss) = &outcome.miss {
        thread.misses.set(thread.misses.get() + 1);
        thread.stalled.set(thread.stalled.get() + (finish - now));
        state.samples.get().miss(address, site, core, miss);
    }
    if outcome.contended {
        state.samples.get().heat(address, kind, core);
    }
    site
}

/// Charges a plain access that the core's own cache answers while no other thread is due; false: it is another access, and
/// nothing was done. It does the same as [`charge`], in fewer steps; only a store needs its site's number, which
/// the model keeps. The address is not noted as the thread's last: an atomic load that follows has another `pc`.
#[inline(always)]
fn charge_quick(address: u64, pc: u64, kind: u32) -> bool {
    let state = simulation();
    let bytes = kind >> 8;
    let crosses = (address & state.line_mask) + u64::from(bytes) > state.line_mask + 1;
    // SAFETY: behind the closed gate, and until the last use of these three only they are called: pure code of
    // `coherence` and `sites`, which knows nothing of the simulation. `reschedule` is not.
    let (scheduler, model, sites) =
        unsafe { (state.scheduler.unchecked(), state.model.unchecked(), state.sites.unchecked()) };
    if crosses || !scheduler.may_go_on(state.costs.compute, state.slack) {
        return false;
    }
    let thread = state.current.get();
    let core = scheduler.current_core();
    let writer = (kind & 0xf == code(Operation::Store)).then(|| thread.site(sites, pc, kind));
    let Some(contended) = model.quick(core, address, bytes, writer) else { return false };
    thread.accesses.set(thread.accesses.get() + 1);
    thread.last_pc.set(pc);
    // ORDERING: Relaxed; the watchdog only looks whether it moves. It moves with every access.
    PROGRESS.store(scheduler.now(), atomic::Ordering::Relaxed);
    scheduler.advance(state.costs.plain);
    if state.computes {
        touch(address, pc, core);
    }
    if contended {
        state.samples.get().heat(address, kind, core);
    }
    true
}

/// A function begins; `stack` is where its return address is kept. Others may be due: a loop that waits by nothing
/// but calls of functions, which look where no access is seen, would go on for ever.
///
/// # Safety
/// As [`plain`]: both arguments are numbers here.
pub(crate) unsafe extern "C" fn function_entry(caller: u64, stack: u64) {
    if gate() != OPEN {
        if gate() == RECORDING {
            crate::recorded::function_entry(caller, stack);
        }
        return;
    }
    set_gate(BUSY);
    let state = simulation();
    state.scheduler.get().advance(state.costs.call);
    if state.computes {
        // SAFETY: the stack is where the caller of `__tsan_func_entry` keeps where that returns to.
        reach(unsafe { *(stack as *const u64) });
    }
    // ORDERING: Relaxed; the watchdog only looks whether it moves, and only the master moves it.
    PROGRESS.store(state.scheduler.get().now(), atomic::Ordering::Relaxed);
    state.current.get().push(caller, stack);
    let yields = state.scheduler.get().must_yield(state.slack);
    if yields {
        reschedule();
    }
    set_gate(OPEN);
}

/// A function ends.
///
/// # Safety
/// As [`plain`]: the argument is a number here.
pub(crate) unsafe extern "C" fn function_exit(pc: u64) {
    if gate() != OPEN {
        if gate() == RECORDING {
            crate::recorded::function_exit();
        }
        return;
    }
    // A handler that comes between calls functions of its own.
    set_gate(BUSY);
    reach(pc);
    let state = simulation();
    let caller = state.current.get().pop();
    if state.computes {
        let cost = state.compute.get().go_to(&mut state.current.get().progress.get(), caller);
        state.scheduler.get().advance(cost);
    }
    set_gate(OPEN);
}

/// The functions around an access: a stack of return addresses that the compiler's calls maintain.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// Hash of the innermost functions.
    hash: u64,
    frames: Vec<Frame>,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    caller: u64,
    stack: u64,
    hash: u64,
}

impl Frames {
    /// Enters a function. Frames that `longjmp` or an exception left are below the new one, and go.
    #[inline]
    pub(crate) fn push(&mut self, caller: u64, stack: u64) {
        while self.frames.last().is_some_and(|last| last.stack <= stack) {
            self.frames.pop();
        }
        let mut hash = caller.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut weight = 0xbf58_476d_1ce4_e5b9_u64;
        for frame in self.frames.iter().rev().take(CALLERS - 1) {
            hash ^= frame.caller.wrapping_mul(weight).rotate_left(21);
            weight = weight.wrapping_mul(weight);
        }
        self.frames.push(Frame { caller, stack, hash });
        self.hash = hash;
    }

    /// Where the function that ends was called from.
    #[inline]
    pub(crate) fn pop(&mut self) -> u64 {
        let ended = self.frames.pop();
        self.hash = self.frames.last().map_or(0, |frame| frame.hash);
        ended.map_or(0, |frame| frame.caller)
    }

    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn callers(&self) -> [u64; CALLERS] {
        let mut callers = [0; CALLERS];
        for (caller, frame) in callers.iter_mut().zip(self.frames.iter().rev()) {
            *caller = frame.caller;
        }
        callers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_says_what_it_was_made_of() {
        for operation in OPERATIONS {
            for (order, ordering) in
                [(0, Ordering::Relaxed), (2, Ordering::Acquire), (3, Ordering::Release)]
            {
                for bytes in [1, 2, 4, 8, 16, 64] {
                    let kind = ordered(operation, bytes, order);
                    assert_eq!(operation_of(kind), operation);
                    assert_eq!(ordering_of(kind), ordering);
                    assert_eq!(bytes_of(kind), bytes);
                }
            }
            assert_eq!(ordering_of(kind(operation, 8)), Ordering::Plain);
        }
    }

    #[test]
    fn frames_that_a_jump_left_are_dropped() {
        let mut frames = Frames::default();
        frames.push(1, 100);
        frames.push(2, 90);
        let inner = frames.hash();
        frames.push(3, 80);
        // Both inner functions are left by a jump; the outermost then calls another.
        frames.push(4, 95);
        assert_eq!(frames.callers(), [4, 1, 0, 0]);
        frames.pop();
        frames.push(2, 90);
        assert_eq!(frames.hash(), inner);
        assert_eq!(frames.callers(), [2, 1, 0, 0]);
    }
}
