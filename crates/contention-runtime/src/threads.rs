//! Threads: real ones for their stacks and thread-local variables, run one at a time by the master.
//!
//! # Boundary
//! Making, running, ending and joining threads. The scheduler chooses the next thread; [`crate::switch`]
//! changes one context for another.
//!
//! # Concurrency
//! The protocol of [`crate::switch`] (S1 to S5), with these states of a thread:
//! ```text
//!   made ── parked ──▶ runs, by the master's hand ──▶ ended ──▶ buried
//!                                                       │  joined, or detached
//! ```
//! T1. The real thread sets `ready` when it has parked. Only then does the master make it known to the scheduler.
//! T2. The master sets `wake` when the thread has ended and the master has switched away from it.
//!     The master then joins it, and only then continues: while a real thread runs, the master does not.
//! T3. A thread that ended is woken when it is joined or detached: until then, the program may use its `pthread_t`.
//! T4. Destructors of thread-local variables and of keys run before the end, as part of the program; the
//!     real thread then finds its own list empty.
//!
//! If a thread stops here: a real thread that never parks stops the master in `create`, like
//! any caller of a thread that never runs; a thread that is woken executes only the C library's own end.
//!
//! # Why
//! The C library must have made a stack and a thread control block for it to work on them. Weakness: one
//! real thread and four system calls for each thread.

use crate::access::Frames;
use crate::exclusive::Exclusive;
use crate::next::{Next as NextFunction, next};
use crate::sites::Sites;
use crate::state::{OPEN, enter, gate, leave, simulation};
use crate::switch::{
    CleanupBuffer, Context, call_caught, park, passing, switch, system_call, thread_base,
};
use crate::waiting::{Cause, Woken, count_runnable, wait, wake};
use libc::{c_int, c_void, pthread_attr_t, pthread_t};
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use uvfs_coherence::{Next, Ticks};

/// A thread's start routine.
///
/// # Safety
/// Called once, on its own thread (S4), with the argument that `pthread_create` was given.
pub(crate) type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
/// Destructor of a thread-local variable or of a key.
///
/// # Safety
/// Called once for each registration, on the thread that registered it, with the object it was registered for.
type Destructor = unsafe extern "C-unwind" fn(*mut c_void);

const SIDE_BYTES: usize = 32 << 10;

/// One thread of the program.
pub(crate) struct Thread {
    /// Context of the thread while it does not run; [`crate::switch`] reads and writes it.
    context: UnsafeCell<Context>,
    /// Start of the stack that it parks on.
    pub(crate) side: Cell<usize>,
    ready: AtomicU32,
    wake: AtomicU32,
    start: Cell<Option<Start>>,
    argument: Cell<*mut c_void>,
    result: Cell<*mut c_void>,
    pub(crate) id: usize,
    pub(crate) handle: Cell<pthread_t>,
    /// The kernel's number.
    pub(crate) number: Cell<i32>,
    pub(crate) base: Cell<u64>,
    /// The stack, lowest and past the highest address.
    pub(crate) stack: Cell<(u64, u64)>,
    frames: Exclusive<Frames>,
    pub(crate) progress: Exclusive<crate::compute::Progress>,
    pub(crate) last_address: Cell<u64>,
    pub(crate) last_pc: Cell<u64>,
    pub(crate) last_begin: Cell<Ticks>,
    pub(crate) last_site: Cell<u32>,
    pub(crate) accesses: Cell<u64>,
    pub(crate) misses: Cell<u64>,
    pub(crate) stalled: Cell<Ticks>,
    pub(crate) first_core: Cell<usize>,
    pub(crate) cause: Cell<Option<Cause>>,
    destructors: Exclusive<Vec<(Destructor, *mut c_void)>>,
    pub(crate) detached: Cell<bool>,
    pub(crate) joined: Cell<bool>,
    pub(crate) ended: Cell<bool>,
}

impl Thread {
    fn new(id: usize) -> Self {
        Self {
            context: UnsafeCell::default(),
            side: Cell::new(0),
            ready: AtomicU32::new(0),
            wake: AtomicU32::new(0),
            start: Cell::new(None),
            argument: Cell::new(std::ptr::null_mut()),
            result: Cell::new(std::ptr::null_mut()),
            id,
            handle: Cell::new(0),
            number: Cell::new(0),
            base: Cell::new(0),
            stack: Cell::new((0, 0)),
            frames: Exclusive::default(),
            progress: Exclusive::default(),
            last_address: Cell::new(0),
            last_pc: Cell::new(0),
            last_begin: Cell::new(0),
            last_site: Cell::new(0),
            accesses: Cell::new(0),
            misses: Cell::new(0),
            stalled: Cell::new(0),
            first_core: Cell::new(0),
            cause: Cell::new(None),
            destructors: Exclusive::default(),
            detached: Cell::new(false),
            joined: Cell::new(false),
            ended: Cell::new(false),
        }
    }

    /// The process's first thread, which is the caller; its stack ends at `top`.
    pub(crate) fn first(top: u64) -> Self {
        let mut thread = Self::new(0);
        *thread.context.get_mut() = Context::here();
        thread.base.set(thread_base() as u64);
        // SAFETY: neither call touches memory.
        unsafe {
            thread.handle.set(libc::pthread_self());
            thread.number.set(system_call(libc::SYS_gettid, [0; 6]) as i32);
        }
        // The kernel lets it grow; eight megabytes are the usual limit.
        thread.stack.set((top.saturating_sub(8 << 20), top));
        thread
    }

    /// The number of the site at `pc`, called from where this thread is.
    #[inline(always)]
    pub(crate) fn site(&self, sites: &mut Sites, pc: u64, kind: u32) -> u32 {
        // SAFETY: behind the closed gate only the three functions here have the frames, and `number` calls none of
        // them.
        let frames = unsafe { self.frames.unchecked() };
        sites.number(pc, kind, frames.hash(), || frames.callers())
    }

    #[inline]
    pub(crate) fn push(&self, caller: u64, stack: u64) {
        // SAFETY: behind the closed gate only the three functions here have the frames.
        unsafe { self.frames.unchecked() }.push(caller, stack);
    }

    /// Where the function returned to.
    #[inline]
    pub(crate) fn pop(&self) -> u64 {
        // SAFETY: behind the closed gate only the three functions here have the frames.
        unsafe { self.frames.unchecked() }.pop()
    }
}

/// The thread that runs. Behind the closed gate.
pub(crate) fn current() -> &'static Thread {
    simulation().current.get()
}

/// Lets the first thread in virtual time run; the call returns when the caller is first again. Behind the
/// closed gate.
#[cold]
#[inline(never)]
pub(crate) fn reschedule() {
    run_next();
}

/// Runs the next thread. Unlike in [`reschedule`], the caller may have blocked or ended.
pub(crate) fn run_next() {
    let next = simulation().scheduler.get().next();
    match next {
        Next::Run(thread) => switch_to(thread),
        Next::Deadlock => crate::watchdog::deadlock(),
    }
}

fn switch_to(thread: usize) {
    let state = simulation();
    let (from, to) = (state.current.get(), state.thread(thread));
    if from.id == to.id {
        return;
    }
    state.current.set(to);
    // SAFETY: the master runs this (G2), both threads live to the end of the process, and `to` was
    // parked or switched away from: it is known to the scheduler (T1) and did not end. No part of the
    // simulation is taken (G3), and nothing refers to a context but this.
    unsafe { switch(from.context.get(), to.context.get()) };
    bury_ended();
}

/// The thread that runs next after a detached thread ended lets the real one end, too.
fn bury_ended() {
    if let Some(thread) = simulation().ended.take() {
        bury(thread);
    }
}

/// Lets the real thread end (T2). The thread has ended and was switched away from.
fn bury(thread: usize) {
    let thread = simulation().thread(thread);
    crate::objects::forget_stack(thread);
    // ORDERING: Release, partner `sleep`: the thread sees the context that the last switch kept.
    thread.wake.store(1, Ordering::Release);
    futex_wake(&thread.wake);
    let mut result = std::ptr::null_mut();
    // SAFETY: the real thread is joinable (`create`) and no other code joins it.
    unsafe {
        next!(c"pthread_join": (pthread_t, *mut *mut c_void) -> c_int)(
            thread.handle.get(),
            &mut result,
        )
    };
    // SAFETY: no thread parks there any more; mapped by `create`.
    unsafe { crate::memory::unmap(thread.side.get() as *mut u8, SIDE_BYTES) };
    thread.side.set(0);
    *thread.frames.get() = Frames::default();
    *thread.destructors.get() = Vec::new();
    simulation().objects.get().handles.remove(&thread.handle.get());
}

fn futex_wake(word: &AtomicU32) {
    let arguments = [word.as_ptr() as usize, 129, 1, 0, 0, 0];
    // SAFETY: wakes the threads that wait on the word; touches no memory.
    unsafe { system_call(libc::SYS_futex, arguments) };
}

fn futex_wait(word: &AtomicU32) {
    // ORDERING: Acquire, partner the store before `futex_wake`.
    while word.load(Ordering::Acquire) == 0 {
        let arguments = [word.as_ptr() as usize, 128, 0, 0, 0, 0];
        // SAFETY: sleeps while the word is zero; touches no memory.
        unsafe { system_call(libc::SYS_futex, arguments) };
    }
}

/// The work of a real thread while the master runs it: none, on a stack of its own (S2).
///
/// # Safety
/// `thread` is the address of the calling thread's own `Thread`.
unsafe extern "C" fn sleep(thread: usize) {
    // SAFETY: the thread lives to the end of the process; only its two words are touched.
    let (ready, wake) = unsafe {
        let thread = thread as *const Thread;
        (&(*thread).ready, &(*thread).wake)
    };
    // ORDERING: Release, partner `create`: a thread that sees it sees the context that `park` kept (T1).
    ready.store(1, Ordering::Release);
    futex_wake(ready);
    futex_wait(wake);
}

/// Where every real thread begins.
///
/// # Safety
/// The C library calls it, on the new thread, with the `Thread` that `create_virtual` gave it.
unsafe extern "C-unwind" fn native_start(thread: *mut c_void) -> *mut c_void {
    // SAFETY: it lives to the end of the process. `create_virtual` waits until we have parked, so the thread is ours
    // until then; then the master comes here (T1).
    let thread = unsafe { &*thread.cast::<Thread>() };
    // SAFETY: the thread is ours; nothing else refers to the context, and `park` is given this thread's own.
    unsafe {
        *thread.context.get() = Context::here();
        thread.base.set(thread_base() as u64);
        thread.number.set(system_call(libc::SYS_gettid, [0; 6]) as i32);
        crate::counter::allow_here();
        let top = thread.side.get() + SIDE_BYTES;
        park(thread.context.get(), top, sleep, std::ptr::from_ref(thread) as usize);
    }
    // From here on the master runs this, behind the closed gate.
    bury_ended();
    let mut buffer = CleanupBuffer::new();
    // SAFETY: the program gave the routine and its argument; this is its thread (S4).
    unsafe {
        if let Some(start) = thread.start.get() {
            leave();
            // The result of a cancelled thread; a thread that calls `pthread_exit` names its own.
            thread.result.set(usize::MAX as *mut c_void);
            call_caught(&mut buffer, start, thread.argument.get(), thread.result.as_ptr());
        }
        run_destructors();
        finish(thread);
        // From here on the real thread runs this, and the master waits for its end (T2).
        thread.result.get()
    }
}

/// The end of a thread: the master switches away for ever.
///
/// # Safety
/// `thread` is the running one.
unsafe fn finish(thread: &Thread) {
    if !enter() {
        // The child of a fork by this thread, or the simulation is over: there is no other thread.
        // SAFETY: the end of the last thread ends the process in this way.
        unsafe { libc::exit(0) };
    }
    let state = simulation();
    thread.ended.set(true);
    let id = thread.id;
    let now = state.scheduler.get().now();
    state.parallel_to.set(state.parallel_to.get().max(now));
    if thread.detached.get() {
        state.ended.set(Some(id));
    }
    wake(Cause::Join(id), 1, u32::MAX);
    state.alive.set(state.alive.get() - 1);
    if state.alive.get() == 0 {
        wake(Cause::Others, 1, u32::MAX);
    }
    simulation().scheduler.get().exit();
    count_runnable(-1);
    run_next();
}

/// Interposed `pthread_create`.
///
/// # Safety
/// As POSIX says: `handle` is writable, `attributes` null or set up, `start` may be called with `argument`.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pthread_create(
    handle: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let create = next!(c"pthread_create": (*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int);
    if !enter() {
        // SAFETY: handed on as it came.
        return unsafe { create(handle, attributes, start, argument) };
    }
    // SAFETY: the program's arguments, by the contract of `pthread_create`.
    let result = unsafe { create_virtual(handle, attributes, start, argument, create) };
    let yields = result == 0 && simulation().scheduler.get().must_yield(0);
    if yields {
        reschedule();
    }
    leave();
    result
}

/// The stack of a real thread that has not ended, as `[start, end)`: where the C library mapped it or the program gave it,
/// with the thread's control block and its thread-local parts. Not one byte of a neighbour.
pub(crate) fn stack_of(thread: pthread_t) -> (u64, u64) {
    // SAFETY: the thread has not ended; the attributes are initialised by the first call, read, and destroyed.
    unsafe {
        let mut attributes: pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(thread, &mut attributes) != 0 {
            return (0, 0);
        }
        let (mut start, mut bytes) = (std::ptr::null_mut(), 0);
        libc::pthread_attr_getstack(&attributes, &mut start, &mut bytes);
        libc::pthread_attr_destroy(&mut attributes);
        (start as u64, start as u64 + bytes as u64)
    }
}

/// # Safety
/// As `pthread_create`.
type Create =
    unsafe extern "C-unwind" fn(*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int;

/// # Safety
/// As `pthread_create`; `create` is the C library's function.
unsafe fn create_virtual(
    handle: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
    create: Create,
) -> c_int {
    let state = simulation();
    let id = state.threads.get().len();
    let thread = Thread::new(id);
    let side = crate::memory::map(SIDE_BYTES);
    if side.is_null() {
        return libc::EAGAIN;
    }
    thread.side.set(side as usize);
    thread.start.set(Some(start));
    thread.argument.set(argument);
    // SAFETY: `attributes` is the program's or null; the detached state is put back below.
    unsafe {
        if !attributes.is_null() {
            let mut detached = 0;
            next!(c"pthread_attr_getdetachstate": (*const pthread_attr_t, *mut c_int) -> c_int)(
                attributes,
                &mut detached,
            );
            thread.detached.set(detached == libc::PTHREAD_CREATE_DETACHED);
            if thread.detached.get() {
                let joinable = libc::PTHREAD_CREATE_JOINABLE;
                libc::pthread_attr_setdetachstate(attributes.cast_mut(), joinable);
            }
        }
    }
    let pointer = Box::into_raw(Box::new(thread));
    // SAFETY: made a line above; it is given back below only if the real thread never had the address.
    let thread: &'static Thread = unsafe { &*pointer };
    let all = !0_u64;
    let mut before = 0_u64;
    let mut made: pthread_t = 0;
    // The real thread takes no signals: it inherits this mask.
    // SAFETY: both masks are of the kernel's size, eight bytes; `pointer` lives on in `threads`.
    let result = unsafe {
        set_mask(&all, &mut before);
        let result = create(&mut made, attributes, native_start, pointer.cast());
        set_mask(&before, std::ptr::null_mut());
        result
    };
    if thread.detached.get() {
        let detached = libc::PTHREAD_CREATE_DETACHED;
        // SAFETY: `attributes` is not null, because `detached` was read from it. Restores the state that was changed there.
        unsafe { libc::pthread_attr_setdetachstate(attributes.cast_mut(), detached) };
    }
    if result != 0 {
        // SAFETY: no thread was made that could park there.
        unsafe { crate::memory::unmap(side, SIDE_BYTES) };
        // SAFETY: it was a box, and neither a thread nor a list has the address; `thread` is not used any more.
        drop(unsafe { Box::from_raw(pointer) });
        return result;
    }
    // Acquires the changes that `sleep` released (T1).
    futex_wait(&thread.ready);
    // SAFETY: the program gave room for it.
    unsafe { *handle = made };
    thread.handle.set(made);
    thread.stack.set(stack_of(made));
    state.scheduler.get().advance(state.costs.thread_create);
    let mut scheduler = state.scheduler.get();
    let now = scheduler.now();
    state.parallel_from.set(state.parallel_from.get().or(Some(now)));
    let scheduled = scheduler.spawn(now + state.costs.thread_start);
    debug_assert_eq!(scheduled, id, "both count threads from zero");
    if let Some(mask) =
        state.attribute_masks.get().get(&(attributes as u64)).filter(|_| !attributes.is_null())
    {
        scheduler.set_affinity(id, mask);
    }
    thread.first_core.set(scheduler.core(id));
    state.objects.get().handles.insert(made, id);
    state.threads.get().push(thread);
    state.alive.set(state.alive.get() + 1);
    count_runnable(1);
    0
}

/// # Safety
/// Each is null or points to eight bytes.
unsafe fn set_mask(new: *const u64, old: *mut u64) {
    let arguments = [libc::SIG_SETMASK as usize, new as usize, old as usize, 8, 0, 0];
    // SAFETY: by this function's caller.
    unsafe { system_call(libc::SYS_rt_sigprocmask, arguments) };
}

/// Joins: `until` is a deadline in virtual time; `Some(0)` does not wait.
///
/// # Safety
/// `result` is null or writable.
unsafe fn join(
    handle: pthread_t,
    result: *mut *mut c_void,
    until: Option<Ticks>,
    wait_for: bool,
) -> Option<c_int> {
    let state = simulation();
    let id = *state.objects.get().handles.get(&handle)?;
    let me = state.scheduler.get().current();
    if id == me {
        return Some(libc::EDEADLK);
    }
    if id == 0 || state.thread(id).detached.get() || state.thread(id).joined.get() {
        return Some(libc::EINVAL);
    }
    if !state.thread(id).ended.get() {
        if !wait_for {
            return Some(libc::EBUSY);
        }
        state.scheduler.get().advance(state.costs.futex_wait);
        state.thread(id).joined.set(true);
        let woken = wait(Cause::Join(id), until, u32::MAX);
        simulation().thread(id).joined.set(false);
        if woken == Woken::ByDeadline && !simulation().thread(id).ended.get() {
            return Some(libc::ETIMEDOUT);
        }
    }
    let state = simulation();
    state.thread(id).joined.set(true);
    let value = state.thread(id).result.get();
    bury(id);
    if !result.is_null() {
        // SAFETY: the program gave room for it.
        unsafe { *result = value };
    }
    Some(0)
}

passing!(pthread_join => virtual_pthread_join, NextFunction::new(c"pthread_join"));

/// Interposed.
///
/// # Safety
/// `handle` is a thread that was not joined before; `result` is null or writable.
unsafe extern "C-unwind" fn virtual_pthread_join(
    handle: pthread_t,
    result: *mut *mut c_void,
) -> c_int {
    if enter() {
        // SAFETY: the program's arguments.
        let done = unsafe { join(handle, result, None, true) };
        leave();
        if let Some(done) = done {
            return done;
        }
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"pthread_join": (pthread_t, *mut *mut c_void) -> c_int)(handle, result) }
}

/// Interposed.
///
/// # Safety
/// As `pthread_join`.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pthread_tryjoin_np(
    handle: pthread_t,
    result: *mut *mut c_void,
) -> c_int {
    if enter() {
        // SAFETY: the program's arguments.
        let done = unsafe { join(handle, result, None, false) };
        leave();
        if let Some(done) = done {
            return done;
        }
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"pthread_tryjoin_np": (pthread_t, *mut *mut c_void) -> c_int)(handle, result) }
}

passing!(pthread_timedjoin_np => virtual_pthread_timedjoin_np, NextFunction::new(c"pthread_timedjoin_np"));

/// Interposed.
///
/// # Safety
/// As `pthread_join`; `deadline` is readable.
unsafe extern "C-unwind" fn virtual_pthread_timedjoin_np(
    handle: pthread_t,
    result: *mut *mut c_void,
    deadline: *const libc::timespec,
) -> c_int {
    if enter() {
        // SAFETY: the program's arguments.
        let done = unsafe {
            let until = crate::time::deadline(libc::CLOCK_REALTIME, deadline);
            join(handle, result, until, true)
        };
        leave();
        if let Some(done) = done {
            return done;
        }
    }
    // SAFETY: handed on as it came.
    unsafe {
        next!(c"pthread_timedjoin_np": (pthread_t, *mut *mut c_void, *const libc::timespec) -> c_int)(
            handle, result, deadline,
        )
    }
}

passing!(pthread_clockjoin_np => virtual_pthread_clockjoin_np, NextFunction::new(c"pthread_clockjoin_np"));

/// Interposed.
///
/// # Safety
/// As `pthread_join`; `deadline` is readable.
unsafe extern "C-unwind" fn virtual_pthread_clockjoin_np(
    handle: pthread_t,
    result: *mut *mut c_void,
    clock: libc::clockid_t,
    deadline: *const libc::timespec,
) -> c_int {
    if enter() {
        // SAFETY: the program's arguments.
        let done = unsafe {
            let until = crate::time::deadline(clock, deadline);
            join(handle, result, until, true)
        };
        leave();
        if let Some(done) = done {
            return done;
        }
    }
    // SAFETY: handed on as it came.
    unsafe {
        next!(c"pthread_clockjoin_np": (pthread_t, *mut *mut c_void, libc::clockid_t, *const libc::timespec) -> c_int)(
            handle, result, clock, deadline,
        )
    }
}

/// Interposed: the C library notes it, and the thread ends where it next asks, but is not woken for it.
///
/// # Safety
/// `handle` is a thread that was neither joined nor detached before.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pthread_cancel(handle: pthread_t) -> c_int {
    if gate() == OPEN {
        crate::unsupported(
            "`pthread_cancel` of a thread that waits; it ends only once it runs again",
        );
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"pthread_cancel": (pthread_t) -> c_int)(handle) }
}

/// Interposed.
///
/// # Safety
/// `handle` is a thread that was neither joined nor detached before.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pthread_detach(handle: pthread_t) -> c_int {
    if enter() {
        let state = simulation();
        let known = state.objects.get().handles.get(&handle).copied();
        let mut result = 0;
        if let Some(id) = known {
            if state.thread(id).detached.get() {
                result = libc::EINVAL;
            } else {
                state.thread(id).detached.set(true);
                if state.thread(id).ended.get() {
                    bury(id);
                }
            }
        }
        leave();
        if known.is_some() {
            return result;
        }
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"pthread_detach": (pthread_t) -> c_int)(handle) }
}

/// The steps of `pthread_exit` before the C library unwinds the stack; returns the library's function.
pub(crate) extern "C" fn prepare_exit(value: *mut c_void) -> usize {
    static NEXT: crate::next::Next = crate::next::Next::new(c"pthread_exit");
    if gate() == OPEN && enter() {
        let first = simulation().scheduler.get().current() == 0;
        if first {
            // The first thread has no routine of ours to come back to: it waits for all others, and
            // then is the last to leave. Its cleanup handlers do not run.
            if simulation().alive.get() > 0 {
                wait(Cause::Others, None, u32::MAX);
            }
            leave();
            // SAFETY: ends the process as the end of the last thread would.
            unsafe { libc::exit(0) };
        }
        current().result.set(value);
        leave();
    }
    NEXT.address()
}

crate::switch::prepared!(pthread_exit => prepare_exit);

const KEYS: usize = 1024;
/// Destructors of keys; a function's address, or zero.
static KEY_DESTRUCTORS: [AtomicUsize; KEYS] = [const { AtomicUsize::new(0) }; KEYS];
static KEYS_END: AtomicUsize = AtomicUsize::new(0);

/// Interposed: remembers the destructor.
///
/// # Safety
/// `key` is writable.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pthread_key_create(
    key: *mut u32,
    destructor: Option<Destructor>,
) -> c_int {
    let create = next!(c"pthread_key_create": (*mut u32, Option<Destructor>) -> c_int);
    // SAFETY: handed on as it came; on success the key is set.
    unsafe {
        let result = create(key, destructor);
        if result == 0 && (*key as usize) < KEYS {
            let address = destructor.map_or(0, |destructor| destructor as usize);
            // ORDERING: Relaxed; read by the master, which also runs this, or in no run at all.
            KEY_DESTRUCTORS[*key as usize].store(address, Ordering::Relaxed);
            KEYS_END.fetch_max(*key as usize + 1, Ordering::Relaxed);
        }
        result
    }
}

/// Interposed.
///
/// # Safety
/// None: a number that is no key is an error.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pthread_key_delete(key: u32) -> c_int {
    if let Some(slot) = KEY_DESTRUCTORS.get(key as usize) {
        // ORDERING: Relaxed; read by the master, which also runs this, or in no run at all.
        slot.store(0, Ordering::Relaxed);
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"pthread_key_delete": (u32) -> c_int)(key) }
}

/// Interposed: Rust and C++ register a thread-local variable's destructor with it.
///
/// # Safety
/// `destructor` may be called with `object` when the thread ends.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __cxa_thread_atexit_impl(
    destructor: Destructor,
    object: *mut c_void,
    library: *mut c_void,
) -> c_int {
    if enter() {
        let kept = simulation().scheduler.get().current() != 0;
        if kept {
            current().destructors.get().push((destructor, object));
        }
        leave();
        if kept {
            return 0;
        }
    }
    // SAFETY: handed on as it came.
    unsafe {
        next!(c"__cxa_thread_atexit_impl": (Destructor, *mut c_void, *mut c_void) -> c_int)(
            destructor, object, library,
        )
    }
}

/// Runs the remaining destructors of the ending thread, as the C library would (T4). The gate is open.
///
/// # Safety
/// The running thread has left its start routine.
unsafe fn run_destructors() {
    loop {
        if !enter() {
            return;
        }
        let last = current().destructors.get().pop();
        leave();
        let Some((destructor, object)) = last else { break };
        // SAFETY: the program registered both for this moment.
        unsafe { destructor(object) };
    }
    // As PTHREAD_DESTRUCTOR_ITERATIONS.
    for _ in 0..4 {
        let mut found = false;
        // ORDERING: Relaxed; stored by the master, which also runs this.
        let end = KEYS_END.load(Ordering::Relaxed);
        for (key, destructor) in KEY_DESTRUCTORS[..end].iter().enumerate() {
            // ORDERING: Relaxed; stored by the master, which also runs this.
            let address = destructor.load(Ordering::Relaxed);
            // SAFETY: reads the running thread's own value (S4).
            let value = unsafe { libc::pthread_getspecific(key as u32) };
            if address == 0 || value.is_null() {
                continue;
            }
            found = true;
            // SAFETY: the address is that of a destructor (`pthread_key_create`), called as POSIX says.
            unsafe {
                libc::pthread_setspecific(key as u32, std::ptr::null());
                std::mem::transmute::<usize, Destructor>(address)(value);
            }
        }
        if !found {
            break;
        }
    }
}
