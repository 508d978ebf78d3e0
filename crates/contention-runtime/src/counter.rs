//! The processor's own counter (`rdtsc`) in virtual time.
//!
//! # Boundary
//! Reads of that counter, which are instructions and not calls; and, since an answer needs the signal
//! SIGSEGV, the program's own use of that signal.
//!
//! # Concurrency
//! ```text
//!            refuse                          read: the kernel sends SIGSEGV, `answer` moves on behind it
//!   ALLOWED ───────▶ REFUSED ──────────────▶ ┐
//!      ▲                │ ▲                  │ by the program: virtual time, still REFUSED
//!      └──── allow ─────┘ └──────────────────┘ by the kernel's page of functions: the real counter
//! ```
//! C1. While a simulated program runs, its one master thread is REFUSED. A real thread inherits that and is ALLOWED
//!     before it parks: it has all signals blocked, and at its end it runs only code of the C library.
//! C2. A child and a program that takes this one's place are ALLOWED before they begin: they inherit the flag,
//!     and even the loader's first read would end them. Where the C library makes the child itself, as for
//!     `system`, the master is ALLOWED across the call.
//! C3. While REFUSED, SIGSEGV is not blocked and its handler is this library's: the kernel ends a process that faults
//!     with it blocked. The program's own handler is called for all other faults, with its own mask and stack.
//!
//! # Why
//! Lock meters, tracing and benchmark crates read the counter to save a call. Each such read would bring the host's time,
//! which differs between runs, into a simulated run. A read costs a signal, about a microsecond of the host. Weakness:
//! `pidfd_spawn` of glibc 2.39 is not interposed; a child of it ends with SIGSEGV.

use crate::next::next;
use crate::state::{OFF, OPEN, gate, simulation};
use crate::switch::{
    answer_counter, counter, counter_read, interrupted_at, prepared, refuse_counter,
};
use libc::{FILE, c_char, c_int, c_void, pid_t, sigaction, siginfo_t, sigset_t};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use uvfs_coherence::TICKS_PER_CYCLE;

/// Whether the master is refused the counter.
static REFUSED: AtomicBool = AtomicBool::new(false);
/// The program's handler of SIGSEGV.
static HANDLER: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
/// Flags of that handler.
static FLAGS: AtomicI32 = AtomicI32::new(0);

// ORDERING: Relaxed, all of this module's: one thread, and its own signal handler, read and write them.
const ORDER: Ordering = Ordering::Relaxed;

/// Whether SIGSEGV is this library's: from [`begin`] on, in children too.
static BEGUN: AtomicBool = AtomicBool::new(false);
/// The value that the program read last.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Takes SIGSEGV over, with a handler that a library of the program's may have set before; from here on the
/// program reads virtual time (C1). `own` is the action of this library's handler.
pub(crate) fn begin(own: sigaction) {
    let kernel = crate::process::original_sigaction();
    // SAFETY: valid actions.
    unsafe {
        let mut had: sigaction = std::mem::zeroed();
        kernel(libc::SIGSEGV, std::ptr::null(), &mut had);
        if had.sa_sigaction != own.sa_sigaction {
            let asked = keep(&had, own);
            kernel(libc::SIGSEGV, &asked, std::ptr::null_mut());
        }
        let mut unblocked: sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut unblocked, libc::SIGSEGV);
        next!(c"sigprocmask": (c_int, *const sigset_t, *mut sigset_t) -> c_int)(
            libc::SIG_UNBLOCK,
            &unblocked,
            std::ptr::null_mut(),
        );
    }
    // ORDERING: Relaxed; as said at `ORDER`.
    BEGUN.store(true, ORDER);
    refuse();
}

fn refuse() {
    // ORDERING: Relaxed; as said at `ORDER`.
    REFUSED.store(refuse_counter(true), ORDER);
}

/// From here on the program reads the processor's counter (C2). Returns the setting before.
pub(crate) fn allow() -> bool {
    // ORDERING: Relaxed; as said at `ORDER`.
    let was = REFUSED.swap(false, ORDER);
    if was {
        refuse_counter(false);
    }
    was
}

/// The calling real thread reads the processor's counter (C1).
pub(crate) fn allow_here() {
    if has_begun() {
        refuse_counter(false);
    }
}

/// Whether SIGSEGV is this library's (C3).
pub(crate) fn has_begun() -> bool {
    // ORDERING: Relaxed; as said at `ORDER`.
    BEGUN.load(ORDER)
}

/// Answers a SIGSEGV that a read of the counter caused; false: something else did.
///
/// # Safety
/// `context` is the third argument of the kernel's call of the handler of SIGSEGV, on the master.
pub(crate) unsafe fn answer(context: *mut c_void) -> bool {
    // SAFETY: by this function's own contract.
    let Some(bytes) = (unsafe { counter_read(context) }) else { return false };
    if gate() == OFF {
        // The run is over: the instruction runs again, and is allowed.
        return allow() || refuse_counter(false);
    }
    // SAFETY: by this function's own contract.
    let by_kernel = in_kernels_page(unsafe { interrupted_at(context) });
    let value = if by_kernel {
        refuse_counter(false);
        let value = counter();
        refuse_counter(true);
        value
    } else {
        virtual_counter()
    };
    let here = if by_kernel || gate() != OPEN { (0, 0) } else { crate::cores::here() };
    // SAFETY: by this function's own contract; `bytes` is the answer of `counter_read`.
    unsafe { answer_counter(context, bytes, value, here) };
    true
}

/// One step a cycle of the simulated machine, from the start of the monotonic clock. A read takes as long as
/// reading a clock. A handler of the program that runs while the gate is closed, and so the simulation half
/// changed, reads the last value again.
fn virtual_counter() -> u64 {
    if gate() == OPEN {
        let state = simulation();
        state.scheduler.get().advance(state.costs.read_clock);
        let now = crate::time::cycles_at_start() + state.scheduler.get().now() / TICKS_PER_CYCLE;
        // ORDERING: Relaxed; as said at `ORDER`.
        LAST.store(now, ORDER);
    }
    LAST.load(ORDER)
}

/// Whether an instruction is of the functions that the kernel maps into each process (vDSO), such as
/// `clock_gettime`: it reckons with the real counter.
fn in_kernels_page(at: u64) -> bool {
    const BYTES: u64 = 8192;
    // SAFETY: only reads the kernel's auxiliary vector of the process.
    let start = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    start != 0 && (start..start + BYTES).contains(&at)
}

/// Hands a SIGSEGV on to the program's own handler; false: it has none.
///
/// # Safety
/// The arguments are those of the handler that calls this.
pub(crate) unsafe fn hand_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) -> bool {
    // ORDERING: Relaxed; as said at `ORDER`.
    let (handler, flags) = (HANDLER.load(ORDER), FLAGS.load(ORDER));
    if [libc::SIG_DFL, libc::SIG_IGN].contains(&handler) {
        return false;
    }
    if flags & libc::SA_RESETHAND != 0 {
        // ORDERING: Relaxed; as said at `ORDER`.
        HANDLER.store(libc::SIG_DFL, ORDER);
    }
    // SAFETY: the program gave the kernel this address with these flags as its handler.
    unsafe {
        if flags & libc::SA_SIGINFO != 0 {
            type Three = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);
            std::mem::transmute::<usize, Three>(handler)(signal, info, context);
        } else {
            type One = unsafe extern "C-unwind" fn(c_int);
            std::mem::transmute::<usize, One>(handler)(signal);
        }
    }
    true
}

/// Keeps the program's request for SIGSEGV; returns the request for the kernel in its place (C3).
pub(crate) fn keep(wanted: &sigaction, own: sigaction) -> sigaction {
    // ORDERING: Relaxed; as said at `ORDER`.
    HANDLER.store(wanted.sa_sigaction, ORDER);
    FLAGS.store(wanted.sa_flags, ORDER);
    if [libc::SIG_DFL, libc::SIG_IGN].contains(&wanted.sa_sigaction) {
        return own;
    }
    // Not blocked in the handler either: it may read the counter.
    let flags = (wanted.sa_flags | libc::SA_SIGINFO | libc::SA_NODEFER) & !libc::SA_RESETHAND;
    sigaction { sa_sigaction: own.sa_sigaction, sa_flags: flags, ..*wanted }
}

/// Shows the program its own handler of SIGSEGV in the kernel's answer.
pub(crate) fn show(action: &mut sigaction) {
    // ORDERING: Relaxed; as said at `ORDER`.
    action.sa_sigaction = HANDLER.load(ORDER);
    action.sa_flags = FLAGS.load(ORDER);
}

/// A set of signals to block, without the one that must not be (C3).
///
/// # Safety
/// `set` is null or a set of the program's.
pub(crate) unsafe fn without_ours(set: *const sigset_t) -> Option<sigset_t> {
    if set.is_null() || !has_begun() {
        return None;
    }
    // SAFETY: by this function's own contract; the signal's number is valid.
    unsafe {
        let mut set = *set;
        libc::sigdelset(&mut set, libc::SIGSEGV);
        Some(set)
    }
}

/// Calls `sigprocmask` (C3).
///
/// # Safety
/// `new` is null or a set, `old` null or writable.
unsafe fn mask(
    next: unsafe extern "C-unwind" fn(c_int, *const sigset_t, *mut sigset_t) -> c_int,
    how: c_int,
    new: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    // SAFETY: by this function's own contract; the unblocked set may contain any signal.
    unsafe {
        match without_ours(new) {
            Some(set) if how != libc::SIG_UNBLOCK => next(how, &set, old),
            _ => next(how, new, old),
        }
    }
}

/// Interposed.
///
/// # Safety
/// `new` is null or a set, `old` null or writable.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn sigprocmask(
    how: c_int,
    new: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    let next = next!(c"sigprocmask": (c_int, *const sigset_t, *mut sigset_t) -> c_int);
    // SAFETY: the program's sets.
    unsafe { mask(next, how, new, old) }
}

/// Interposed.
///
/// # Safety
/// As `sigprocmask`.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pthread_sigmask(
    how: c_int,
    new: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    let next = next!(c"pthread_sigmask": (c_int, *const sigset_t, *mut sigset_t) -> c_int);
    // SAFETY: the program's sets.
    unsafe { mask(next, how, new, old) }
}

/// Runs a call in which the C library makes a child and starts a program in it (C2).
fn allowed<T>(call: impl FnOnce() -> T) -> T {
    let was = allow();
    let result = call();
    if was && gate() != OFF {
        refuse();
    }
    result
}

/// One of the two `posix_spawn`: a name and its documentation.
macro_rules! spawning {
    ($name:ident, $next:literal) => {
        /// Interposed.
        ///
        /// # Safety
        /// As in the C library.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C-unwind" fn $name(
            child: *mut pid_t,
            program: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            arguments: *const *mut c_char,
            environment: *const *mut c_char,
        ) -> c_int {
            type Words = *const *mut c_char;
            let next = next!($next: (*mut pid_t, *const c_char, *const c_void, *const c_void, Words, Words) -> c_int);
            // SAFETY: handed on as it came.
            allowed(|| unsafe { next(child, program, actions, attributes, arguments, environment) })
        }
    };
}

spawning!(posix_spawn, c"posix_spawn");
spawning!(posix_spawnp, c"posix_spawnp");

/// Interposed.
///
/// # Safety
/// As in the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn system(command: *const c_char) -> c_int {
    let next = next!(c"system": (*const c_char) -> c_int);
    // SAFETY: handed on as it came.
    allowed(|| unsafe { next(command) })
}

/// Interposed.
///
/// # Safety
/// As in the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn popen(command: *const c_char, kind: *const c_char) -> *mut FILE {
    let next = next!(c"popen": (*const c_char, *const c_char) -> *mut FILE);
    // SAFETY: handed on as it came.
    allowed(|| unsafe { next(command, kind) })
}

/// The functions by which another program takes this one's place (C2). If that fails, the counter stays
/// allowed.
macro_rules! replacing {
    ($($name:ident => $prepare:ident, $next:literal;)*) => {$(
        extern "C" fn $prepare() -> usize {
            static NEXT: crate::next::Next = crate::next::Next::new($next);
            allow();
            crate::next::look(&NEXT)
        }
        prepared!($name => $prepare);
    )*};
}

replacing! {
    execve => before_execve, c"execve";
    execv => before_execv, c"execv";
    execvp => before_execvp, c"execvp";
    execvpe => before_execvpe, c"execvpe";
    execl => before_execl, c"execl";
    execlp => before_execlp, c"execlp";
    execle => before_execle, c"execle";
    fexecve => before_fexecve, c"fexecve";
    execveat => before_execveat, c"execveat";
}
