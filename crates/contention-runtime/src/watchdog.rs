//! Ends a run that would never end: a spin loop without visible accesses, or threads that all wait.
//!
//! # Boundary
//! Notices, says where, writes the profile, ends the process: 70 after a spin loop, 71 after a deadlock.
//!
//! # Concurrency
//! One native thread, which sleeps, reads [`PROGRESS`], and sends the master a signal. The master writes the
//! message in the handler. The native thread touches nothing of the simulation.
//!
//! # Why
//! The master runs one thread until that calls the runtime. A loop in code that was not instrumented, which
//! waits for another thread, never does. Weakness: long work in such code looks the same; the limit is
//! the user's.

use crate::next::next;
use crate::state::{OPEN, PROGRESS, RUNNABLE, exists, gate, set_gate, simulation};
use crate::switch::{interrupted_at, system_call};
use libc::{c_int, c_void, pthread_attr_t, pthread_t, siginfo_t, timespec};
use std::ffi::CStr;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

const PERIOD_NANOSECONDS: i64 = 50_000_000;
static MASTER: AtomicI32 = AtomicI32::new(0);
static LIMIT_SECONDS: AtomicU64 = AtomicU64::new(0);

/// The signal that tells the master to say where it is.
fn telling() -> c_int {
    libc::SIGRTMAX() - 3
}

/// Begins to watch.
pub(crate) fn start() {
    // ORDERING: Relaxed, both: the new thread starts after.
    LIMIT_SECONDS.store(simulation().configuration.watchdog_seconds, Ordering::Relaxed);
    MASTER.store(simulation().thread(0).number.get(), Ordering::Relaxed);
    let mut handle: pthread_t = 0;
    let (all, mut before) = (!0_u64, 0_u64);
    type Start = extern "C" fn(*mut c_void) -> *mut c_void;
    let create = next!(c"pthread_create": (*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int);
    // SAFETY: the masks are the kernel's size; the action and the thread's routine are this library's.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let tell: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = tell;
        action.sa_sigaction = tell as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        next!(c"sigaction": (c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int)(
            telling(),
            &action,
            std::ptr::null_mut(),
        );
        let mask = |new: *const u64, old: *mut u64| {
            system_call(
                libc::SYS_rt_sigprocmask,
                [libc::SIG_SETMASK as usize, new as usize, old as usize, 8, 0, 0],
            )
        };
        mask(&all, &mut before);
        if create(&mut handle, std::ptr::null(), watch, std::ptr::null_mut()) != 0 {
            crate::message("there is no thread for the watchdog: endless loops are not noticed");
        }
        mask(&before, std::ptr::null_mut());
    }
}

/// Processor time of the master, in nanoseconds.
fn master_time(master: i32) -> u64 {
    // As glibc's `pthread_getcpuclockid`: the complement of the number, and "scheduler's, of a thread".
    let clock = (!master << 3) | 6;
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [clock as usize, &raw mut time as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes one timespec.
    unsafe { system_call(libc::SYS_clock_gettime, arguments) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

extern "C" fn watch(_: *mut c_void) -> *mut c_void {
    // ORDERING: Relaxed, here and below: numbers that are compared, nothing is reached through them.
    let master = MASTER.load(Ordering::Relaxed);
    let limit = LIMIT_SECONDS.load(Ordering::Relaxed) * 1_000_000_000;
    let mut seen = (0, 0);
    loop {
        let period = timespec { tv_sec: 0, tv_nsec: PERIOD_NANOSECONDS };
        // SAFETY: sleeps; then perhaps signals the master, which has handlers for both signals.
        unsafe {
            system_call(libc::SYS_nanosleep, [&raw const period as usize, 0, 0, 0, 0, 0]);
            let process = system_call(libc::SYS_getpid, [0; 6]) as usize;
            let signal = |number: c_int| {
                let arguments = [process, master as usize, number as usize, 0, 0, 0];
                system_call(libc::SYS_tgkill, arguments);
            };
            // ORDERING: Relaxed; a number, nothing is reached through it.
            let pending = crate::process::PENDING.swap(0, Ordering::Relaxed);
            if pending != 0 {
                // To the process: in a recorded run the first thread may be gone, or not want it.
                system_call(libc::SYS_kill, [process, pending as usize, 0, 0, 0, 0]);
            }
            // ORDERING: Relaxed, both; numbers, nothing is reached through them.
            let progress = PROGRESS.load(Ordering::Relaxed);
            let stuck = gate() == OPEN && RUNNABLE.load(Ordering::Relaxed) > 1;
            let time = master_time(master);
            if progress != seen.0 || !stuck || limit == 0 {
                seen = (progress, time);
            } else if time.saturating_sub(seen.1) > limit {
                signal(telling());
                seen = (progress, time);
            }
        }
    }
}

/// # Safety
/// The kernel calls it.
unsafe extern "C" fn tell(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    if gate() != OPEN {
        return;
    }
    set_gate(crate::state::BUSY);
    // SAFETY: the kernel's third argument.
    let pc = unsafe { interrupted_at(context) };
    // ORDERING: Relaxed; written before there was a watchdog to send this signal.
    let seconds = LIMIT_SECONDS.load(Ordering::Relaxed);
    crate::message(&format!(
        "thread {} ran for {seconds} s of processor time in code that is not instrumented, at {}, while others could run: build that code with `uvfs contention`, or raise --watchdog",
        simulation().scheduler.get().current(),
        describe(pc),
    ));
    list_threads();
    end(70)
}

/// No thread can run, and no deadline will come.
pub(crate) fn deadlock() -> ! {
    crate::message("deadlock: every thread waits for another");
    list_threads();
    end(71)
}

fn end(status: i32) -> ! {
    crate::report::write(Some(status));
    crate::process::leave_now(status)
}

fn list_threads() {
    const MOST: usize = 64;
    let alive = || simulation().all_threads().into_iter().filter(|thread| !thread.ended.get());
    for thread in alive().take(MOST) {
        let state = match thread.cause.get().map(|cause| cause.describe()) {
            None => "runs or could run".to_string(),
            Some((what, address)) if address > 65_536 => {
                format!("waits for the {what} at {}", describe(address))
            }
            Some((what, number)) => format!("waits for {what} {number}"),
        };
        let inside = match thread.last_pc.get() {
            0 => String::new(),
            pc => format!(", last seen at {}", describe(pc)),
        };
        crate::message(&format!("  thread {}: {state}{inside}", thread.id));
    }
    if let Some(more) = alive().count().checked_sub(MOST).filter(|more| *more > 0) {
        crate::message(&format!("  and {more} more"));
    }
}

/// An address for a person: symbol, module and offset, as far as they are known.
fn describe(address: u64) -> String {
    // SAFETY: all zero is a valid record; the names that come back live as long as the module.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address as *const c_void, &mut info) == 0 || info.dli_fname.is_null() {
            let bytes = exists().then(|| simulation().objects.get().live_around(address)).flatten();
            return match bytes {
                Some((start, bytes)) => {
                    format!(
                        "{address:#x} ({} bytes into an allocation of {bytes})",
                        address - start
                    )
                }
                None => format!("{address:#x}"),
            };
        }
        let module = CStr::from_ptr(info.dli_fname).to_string_lossy();
        let offset = address - info.dli_fbase as u64;
        if info.dli_sname.is_null() {
            return format!("{address:#x} ({module}+{offset:#x})");
        }
        let symbol = CStr::from_ptr(info.dli_sname).to_string_lossy();
        format!("{address:#x} ({symbol}, {module}+{offset:#x})")
    }
}
