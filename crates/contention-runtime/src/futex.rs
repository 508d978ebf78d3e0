//! The `syscall` function: futexes in virtual time, and other calls that must not reach the kernel.
//!
//! # Boundary
//! System calls that a program makes by number, as Rust's standard library and parking_lot do for
//! futexes. All others go to the kernel.
//!
//! # Concurrency
//! As [`crate::state`]: between the comparison of a futex's word and the queueing no other thread runs.
//!
//! # Why
//! Blocking is exact even where the code that blocks is precompiled, since it must come through here.
//! Weakness: system calls by inline assembly are not seen; a futex in memory that is shared with another
//! process works within this one only.

use crate::state::{enter, leave, simulation};
use crate::switch::system_call;
use crate::threads::current;
use crate::waiting::{Cause, Woken, move_waiters, wait, wake};
use libc::{c_int, c_long, timespec};
use std::sync::atomic::{AtomicU32, Ordering};

fn failed(error: c_int) -> c_long {
    -c_long::from(error)
}

/// A futex call; a negated error number when it fails. Behind the closed gate. None: to the kernel.
///
/// # Safety
/// The arguments are those of a futex call of the program: its words are mapped, as the kernel too wants.
/// A call that gives the kernel a bad address is answered by a fault, where the kernel says `EFAULT`.
unsafe fn futex(arguments: [usize; 6]) -> Option<c_long> {
    let [address, operation, value, timeout, second, third] = arguments;
    let command = operation as c_int & libc::FUTEX_CMD_MASK;
    let clock = if operation as c_int & libc::FUTEX_CLOCK_REALTIME != 0 {
        libc::CLOCK_REALTIME
    } else {
        libc::CLOCK_MONOTONIC
    };
    let word = address as *const AtomicU32;
    let state = simulation();
    // SAFETY: by this function's caller: the words are the program's and readable.
    unsafe {
        match command {
            libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {
                // ORDERING: SeqCst, as the kernel's own comparison.
                if (*word).load(Ordering::SeqCst) != value as u32 {
                    state.scheduler.get().advance(state.costs.system_call);
                    return Some(failed(libc::EAGAIN));
                }
                let timeout = timeout as *const timespec;
                let (until, mask) = if command == libc::FUTEX_WAIT {
                    (crate::time::after(timeout), u32::MAX)
                } else {
                    (crate::time::deadline(clock, timeout), third as u32)
                };
                if mask == 0 {
                    return Some(failed(libc::EINVAL));
                }
                let begin = state.scheduler.get().now();
                state.scheduler.get().advance(state.costs.futex_wait);
                let woken = wait(Cause::Futex(address as u64), until, mask);
                crate::locking::slept(address as u64, value as u32, begin);
                Some(if woken == Woken::ByAnother { 0 } else { failed(libc::ETIMEDOUT) })
            }
            libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => {
                let mask = if command == libc::FUTEX_WAKE { u32::MAX } else { third as u32 };
                state.scheduler.get().advance(state.costs.futex_wake);
                let most = (value as u32).min(i32::MAX as u32) as usize;
                Some(wake(Cause::Futex(address as u64), most, mask) as c_long)
            }
            libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE => {
                // ORDERING: SeqCst, as the kernel's own comparison.
                let now = (*word).load(Ordering::SeqCst);
                if command == libc::FUTEX_CMP_REQUEUE && now != third as u32 {
                    return Some(failed(libc::EAGAIN));
                }
                state.scheduler.get().advance(state.costs.futex_wake);
                let from = Cause::Futex(address as u64);
                let woken = wake(from, value as u32 as usize, u32::MAX);
                let moved =
                    move_waiters(from, Cause::Futex(second as u64), timeout as u32 as usize);
                let counted = if command == libc::FUTEX_REQUEUE { woken } else { woken + moved };
                Some(counted as c_long)
            }
            libc::FUTEX_WAKE_OP => Some(wake_op(arguments)),
            _ => {
                crate::unsupported("priority-inheriting futexes; they go to the kernel");
                None
            }
        }
    }
}

/// Does what the kernel's `futex_atomic_op_inuser` does.
///
/// # Safety
/// As [`futex`]; the second word is writable.
unsafe fn wake_op([address, _, value, timeout, second, third]: [usize; 6]) -> c_long {
    let code = third as u32;
    let argument = {
        let raw = code << 8 >> 20;
        if code >> 28 & 8 != 0 { 1 << (raw & 31) } else { raw }
    };
    let apply = |old: u32| match code >> 28 & 7 {
        0 => argument,
        1 => old.wrapping_add(argument),
        2 => old | argument,
        3 => old & !argument,
        _ => old ^ argument,
    };
    // ORDERING: SeqCst, as the kernel's own update.
    let update = |old| Some(apply(old));
    // SAFETY: by the caller: the word is the program's and writable.
    let old = unsafe {
        (*(second as *const AtomicU32)).fetch_update(Ordering::SeqCst, Ordering::SeqCst, update)
    };
    let (Ok(old) | Err(old)) = old;
    let (old, against) = (old as i32, (code << 20) as i32 >> 20);
    let meets = match code >> 24 & 15 {
        0 => old == against,
        1 => old != against,
        2 => old < against,
        3 => old <= against,
        4 => old > against,
        _ => old >= against,
    };
    let state = simulation();
    state.scheduler.get().advance(state.costs.futex_wake);
    let mut woken = wake(Cause::Futex(address as u64), value as u32 as usize, u32::MAX);
    if meets {
        woken += wake(Cause::Futex(second as u64), timeout as u32 as usize, u32::MAX);
    }
    woken as c_long
}

/// Interposed.
///
/// # Safety
/// As the system call. It is variadic in C: of a call with fewer arguments the last ones are whatever
/// the registers and the caller's frame hold, and neither this library nor the kernel looks at them.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let arguments = [a, b, c, d, e, f];
    // SAFETY: the program's system call.
    let result = unsafe { dispatch(number, arguments) };
    if (-4095..0).contains(&result) {
        // SAFETY: the running thread's own error number.
        unsafe { *libc::__errno_location() = -result as c_int };
        return -1;
    }
    result
}

/// # Safety
/// As the system call of that number.
unsafe fn dispatch(number: c_long, arguments: [usize; 6]) -> c_long {
    let [a, b, c, ..] = arguments;
    // SAFETY: each arm passes on the program's own arguments.
    unsafe {
        match number {
            libc::SYS_futex if enter() => {
                let done = futex(arguments);
                leave();
                if let Some(done) = done {
                    return done;
                }
            }
            libc::SYS_getrandom if crate::time::random(a as *mut u8, b) => return b as c_long,
            libc::SYS_gettid if enter() => {
                let number = current().number.get();
                leave();
                return c_long::from(number);
            }
            libc::SYS_getcpu if enter() => {
                let (core, node) = crate::cores::here();
                leave();
                for (pointer, value) in [(a, core), (b, node)] {
                    if pointer != 0 {
                        *(pointer as *mut u32) = value;
                    }
                }
                return 0;
            }
            libc::SYS_sched_yield => return c_long::from(libc::sched_yield()),
            libc::SYS_clock_gettime => {
                return c_long::from(libc::clock_gettime(a as i32, b as *mut timespec));
            }
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep if enter() => {
                let (flags, request) =
                    if number == libc::SYS_nanosleep { (0, a) } else { (b as i32, c) };
                let clock = if number == libc::SYS_nanosleep { 0 } else { a as i32 };
                leave();
                return -c_long::from(libc::clock_nanosleep(
                    clock,
                    flags,
                    request as *const timespec,
                    std::ptr::null_mut(),
                ));
            }
            libc::SYS_sched_getaffinity if enter() => {
                let bytes = crate::cores::write_affinity(a as i32, b, c as *mut u8);
                leave();
                return c_long::from(bytes);
            }
            libc::SYS_sched_setaffinity if enter() => {
                let result = crate::cores::read_affinity(a as i32, b, c as *const u8);
                leave();
                return -c_long::from(result);
            }
            libc::SYS_clone | libc::SYS_clone3 if crate::process::raw_clone(number, a) => {
                return crate::process::raw_fork(number, arguments);
            }
            // As the function `vfork`: the child gets a copy.
            libc::SYS_fork | libc::SYS_vfork => {
                return crate::process::raw_fork(libc::SYS_fork, [0; 6]);
            }
            libc::SYS_execve | libc::SYS_execveat => _ = crate::counter::allow(),
            libc::SYS_exit_group | libc::SYS_exit => crate::report::write(Some(a as i32 & 0xff)),
            _ => {
                if enter() {
                    let state = simulation();
                    state.scheduler.get().advance(state.costs.system_call);
                    leave();
                }
            }
        }
        system_call(number, arguments)
    }
}
