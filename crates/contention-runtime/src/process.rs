//! The end of a process, and its children.
//!
//! # Boundary
//! Exits, fatal signals, forks. The profile itself is [`crate::report`]'s.
//!
//! # Concurrency
//! Signals reach the master only: real threads sleep with all of them blocked. A signal that comes while
//! the gate is closed, or in a recorded run while the thread's recorder is at work and may hold a lock (R3), is
//! put off (`PENDING`) and sent again by the watchdog, so a handler of this library never sees the simulation
//! half changed. A fault within the runtime itself is not put off; then there is no profile. The program's
//! own handlers are the kernel's to call: behind the closed gate their calls are handed on.
//!
//! # Why
//! After a crash a user needs the profile most. The program sees none of this library's
//! handlers: a query gets the default. Weakness: a program that is killed leaves no profile.

use crate::next::next;
use crate::state::{BUSY, OFF, OPEN, RECORDING, enter, exists, gate, leave, set_gate, simulation};
use crate::switch::system_call;
use libc::{c_int, c_void, sighandler_t, siginfo_t};
use std::sync::atomic::{AtomicI32, Ordering};

/// Signals that end a process unless it says otherwise.
const FATAL: [c_int; 21] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGIO,
    libc::SIGPWR,
];
/// Those that the running instruction itself causes.
const FAULTS: usize = 6;

/// A signal that came at a bad moment; zero is none.
pub(crate) static PENDING: AtomicI32 = AtomicI32::new(0);

/// The process's number, by the kernel: a child's is another even where it shares this memory.
pub(crate) fn number() -> i32 {
    // SAFETY: asks for a number.
    unsafe { system_call(libc::SYS_getpid, [0; 6]) as i32 }
}

/// Ends the process at once.
pub(crate) fn leave_now(status: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { system_call(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    unreachable!("the process has ended")
}

/// # Safety
/// The kernel calls it.
type Action = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
/// # Safety
/// As `sigaction`: each action is null or valid.
type SetAction =
    unsafe extern "C-unwind" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

pub(crate) fn original_sigaction() -> SetAction {
    next!(c"sigaction": (c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int)
}

pub(crate) fn own_action() -> libc::sigaction {
    // SAFETY: all zero is a valid action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: Action = on_fatal;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    action
}

/// Sets up handlers, the end of the process and the child's side of a fork. Once, before the program.
pub(crate) fn prepare() {
    const STACK_BYTES: usize = 1 << 20;
    // SAFETY: the declarations are those of glibc's headers and of its start files.
    unsafe extern "C" {
        fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
        fn __register_atfork(
            prepare: Option<extern "C" fn()>,
            parent: Option<extern "C" fn()>,
            child: Option<extern "C" fn()>,
            library: *mut c_void,
        ) -> c_int;
    }
    // SAFETY: the stack is mapped and stays; the handlers are functions of this library, which is never
    // unloaded; the actions are valid.
    unsafe {
        on_exit(at_exit, std::ptr::null_mut());
        __register_atfork(None, None, Some(in_child), std::ptr::null_mut());
        let stack = libc::stack_t {
            ss_sp: crate::memory::map(STACK_BYTES).cast(),
            ss_flags: 0,
            ss_size: STACK_BYTES,
        };
        if !stack.ss_sp.is_null() {
            libc::sigaltstack(&stack, std::ptr::null_mut());
        }
        for signal in FATAL {
            let mut before: libc::sigaction = std::mem::zeroed();
            original_sigaction()(signal, std::ptr::null(), &mut before);
            if before.sa_sigaction == libc::SIG_DFL {
                original_sigaction()(signal, &own_action(), std::ptr::null_mut());
            }
        }
    }
}

extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    crate::report::write(Some(status & 0xff));
}

/// The child of a fork has the forking thread only, and runs as it is.
extern "C" fn in_child() {
    set_gate(OFF);
    crate::counter::allow();
}

/// # Safety
/// The kernel calls it.
unsafe extern "C" fn on_fatal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    if signal == libc::SIGSEGV && crate::counter::has_begun() {
        // SAFETY: the kernel's own arguments for this signal; in a simulated run faults are the master's.
        if unsafe {
            crate::counter::answer(context) || crate::counter::hand_on(signal, info, context)
        } {
            return;
        }
    }
    let is_fault = FATAL[..FAULTS].contains(&signal) || signal == libc::SIGABRT;
    let at_work = gate() == BUSY || crate::recorded::is_at_work();
    match gate() {
        BUSY | RECORDING if !is_fault && at_work => {
            // ORDERING: Relaxed; the watchdog sends the signal again, nothing is reached through it.
            PENDING.store(signal, Ordering::Relaxed);
            return;
        }
        BUSY | RECORDING if at_work => {
            crate::message("the runtime itself failed; there is no profile of this run")
        }
        _ => crate::report::write(Some(128 + signal)),
    }
    set_gate(OFF);
    // SAFETY: the default action, taken when this handler returns: a fault happens again, and a signal that was
    // sent is sent again.
    unsafe {
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        original_sigaction()(signal, &default, std::ptr::null_mut());
        if !FATAL[..FAULTS].contains(&signal) {
            send(signal);
        }
    }
}

/// Sends a signal to the calling thread.
fn send(signal: c_int) {
    // SAFETY: three system calls without memory.
    unsafe {
        let process = system_call(libc::SYS_getpid, [0; 6]) as usize;
        let thread = system_call(libc::SYS_gettid, [0; 6]) as usize;
        system_call(libc::SYS_tgkill, [process, thread, signal as usize, 0, 0, 0]);
    }
}

/// Interposed: the program does not see this library's handlers, nor take them away for the default.
///
/// # Safety
/// `new` is null or a valid action, `old` null or writable.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let original = original_sigaction();
    let fault = signal == libc::SIGSEGV && crate::counter::has_begun();
    // SAFETY: the program's actions; the kernel gets copies of them.
    unsafe {
        let without_ours = (!new.is_null())
            .then(|| {
                Some(libc::sigaction {
                    sa_mask: crate::counter::without_ours(&(*new).sa_mask)?,
                    ..*new
                })
            })
            .flatten();
        let new = without_ours.as_ref().map_or(new, |copy| &raw const *copy);
        if !fault && (!exists() || gate() == OFF || !FATAL.contains(&signal)) {
            return original(signal, new, old);
        }
        let own = own_action();
        if fault {
            let mut before: libc::sigaction = std::mem::zeroed();
            original(signal, std::ptr::null(), &mut before);
            crate::counter::show(&mut before);
            let asked = new.as_ref().map(|new| crate::counter::keep(new, own));
            let result = asked.map_or(0, |asked| original(signal, &asked, std::ptr::null_mut()));
            if !old.is_null() {
                *old = before;
            }
            return result;
        }
        let defaulted = !new.is_null() && (*new).sa_sigaction == libc::SIG_DFL;
        let mut before: libc::sigaction = std::mem::zeroed();
        let result = original(signal, if defaulted { &own } else { new }, &mut before);
        if result == 0 && !old.is_null() {
            if before.sa_sigaction == own.sa_sigaction {
                before.sa_sigaction = libc::SIG_DFL;
                before.sa_flags = 0;
            }
            *old = before;
        }
        result
    }
}

/// Interposed, with the meaning that it has in the C library.
///
/// # Safety
/// `handler` is a handler, or one of the two special values.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: all zero is a valid action; both are of this call.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = handler;
        new.sa_flags = libc::SA_RESTART;
        if sigaction(number, &new, &mut old) == 0 { old.sa_sigaction } else { libc::SIG_ERR }
    }
}

/// Interposed: a child that shared this memory would change the simulation, so it gets a copy, as POSIX
/// allows.
///
/// # Safety
/// None: it has no arguments.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn vfork() -> libc::pid_t {
    // SAFETY: as the program's call.
    unsafe { libc::fork() }
}

fn end(status: c_int) {
    crate::report::write(Some(status & 0xff));
}

/// Interposed.
///
/// # Safety
/// None: it takes a number.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn _exit(status: c_int) -> ! {
    end(status);
    leave_now(status)
}

/// Interposed.
///
/// # Safety
/// None: it takes a number.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(non_snake_case)] // The C library's name.
unsafe extern "C" fn _Exit(status: c_int) -> ! {
    end(status);
    leave_now(status)
}

/// Interposed.
///
/// # Safety
/// None: it takes a number.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn quick_exit(status: c_int) {
    end(status);
    // SAFETY: as the program's call.
    unsafe { next!(c"quick_exit": (c_int))(status) };
}

/// A thread that this library did not make would run beside the master: such a call ends the program. Whether
/// the child, if it is to be a process, gets a copy of the memory.
pub(crate) fn raw_clone(number: i64, flags: usize) -> bool {
    // The flags of `clone3` are the first word of its argument.
    let flags = match number {
        // SAFETY: the program passes a structure of at least eight bytes to that call.
        libc::SYS_clone3 => unsafe { *(flags as *const usize) },
        _ => flags,
    };
    refuse_thread(flags);
    flags & libc::CLONE_VM as usize == 0
}

/// A raw `fork`, or a `clone` that copies the memory: as after the C library's fork, the child runs unsimulated (G4).
///
/// # Safety
/// As the system call.
pub(crate) unsafe fn raw_fork(number: i64, arguments: [usize; 6]) -> i64 {
    // SAFETY: by this function's own contract; the child continues here, on its copy of this stack.
    let child = unsafe { system_call(number, arguments) };
    if child == 0 {
        in_child();
    }
    child
}

fn refuse_thread(flags: usize) {
    let (shares, waits) = (libc::CLONE_VM as usize, libc::CLONE_VFORK as usize);
    if flags & shares != 0 && flags & waits == 0 && gate() == OPEN {
        set_gate(BUSY);
        crate::message(
            "the program makes a thread by a raw `clone`, which cannot be simulated: use `pthread_create`, or `uvfs contention record`",
        );
        crate::report::write(Some(72));
        leave_now(72);
    }
}

/// The steps of `clone` before the C library's own.
extern "C" fn prepare_clone(_function: usize, _stack: usize, flags: c_int) -> usize {
    static NEXT: crate::next::Next = crate::next::Next::new(c"clone");
    refuse_thread(flags as usize);
    NEXT.address()
}

crate::switch::prepared!(clone => prepare_clone);

/// Counts work that the program has finished; weak in the program, so that it runs without this library.
// SAFETY: a name of this library's own, as its header says (E1).
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn uvfs_contention_work(count: u64) {
    if enter() {
        let work = &simulation().work;
        work.set(work.get() + count);
        leave();
    } else if gate() == crate::state::RECORDING {
        crate::recorded::work(count);
    }
}

/// Names an object.
///
/// # Safety
/// `name` ends in zero.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn uvfs_contention_object(
    start: *const c_void,
    bytes: usize,
    name: *const libc::c_char,
) {
    if enter() {
        // SAFETY: by this function's own contract.
        let name = unsafe { std::ffi::CStr::from_ptr(name) };
        let name = name.to_string_lossy().into_owned();
        simulation().objects.get().name(start as u64, bytes as u64, name);
        leave();
    }
}
