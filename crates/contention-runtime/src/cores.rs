//! Which cores there are, which one runs, which ones a thread may be on.
//!
//! # Boundary
//! The questions a program asks of the machine, answered for the simulated one.
//!
//! # Concurrency
//! As [`crate::state`].
//!
//! # Why
//! A program that has one thread or one shard a core must find the simulated cores. Weakness: a program
//! that reads `/proc` or `/sys` itself, or asks the processor (`rdpid`, restartable sequences), finds the
//! host's.

use crate::next::next;
use crate::state::{OPEN, enter, gate, leave, simulation};
use crate::threads::reschedule;
use libc::{c_int, c_long, c_uint, cpu_set_t, pthread_t};

/// Core and node of the current thread. Behind the closed gate.
pub(crate) fn here() -> (c_uint, c_uint) {
    let state = simulation();
    let core = state.scheduler.get().current_core();
    (core as c_uint, state.configuration.machine.node_of(core) as c_uint)
}

/// The thread with this kernel number; zero and the process's own mean the caller and the first.
fn thread_of(number: i32) -> Option<usize> {
    let state = simulation();
    if number == 0 {
        return Some(state.scheduler.get().current());
    }
    let threads = state.threads.get();
    threads.iter().position(|thread| thread.number.get() == number && !thread.ended.get())
}

/// Writes the mask of a thread; as the system call, the bytes written or a negated error.
///
/// # Safety
/// `mask` has that many bytes.
pub(crate) unsafe fn write_affinity(number: i32, bytes: usize, mask: *mut u8) -> c_int {
    match thread_of(number) {
        // SAFETY: by this function's own contract.
        Some(thread) => unsafe { write_mask(thread, bytes, mask) },
        None => -libc::ESRCH,
    }
}

/// # Safety
/// `mask` is writable for `bytes` bytes.
unsafe fn write_mask(thread: usize, bytes: usize, mask: *mut u8) -> c_int {
    let state = simulation();
    let cores = state.configuration.machine.cores;
    if bytes * 8 < cores {
        return -libc::EINVAL;
    }
    let scheduler = state.scheduler.get();
    let allowed = scheduler.affinity(thread);
    for byte in 0..bytes {
        let mut value = 0_u8;
        for bit in 0..8 {
            let core = byte * 8 + bit;
            let may = allowed.is_empty()
                || allowed.get(core / 64).copied().unwrap_or(0) >> (core % 64) & 1 == 1;
            value |= u8::from(core < cores && may) << bit;
        }
        // SAFETY: by this function's caller.
        unsafe { *mask.add(byte) = value };
    }
    cores.div_ceil(64) as c_int * 8
}

/// Reads a mask for a thread; zero or an error number.
///
/// # Safety
/// `mask` has that many bytes.
pub(crate) unsafe fn read_affinity(number: i32, bytes: usize, mask: *const u8) -> c_int {
    match thread_of(number) {
        // SAFETY: by this function's own contract.
        Some(thread) => unsafe { read_mask(thread, bytes, mask) },
        None => libc::ESRCH,
    }
}

/// # Safety
/// `mask` is readable for `bytes` bytes.
unsafe fn read_mask(thread: usize, bytes: usize, mask: *const u8) -> c_int {
    let mut words = vec![0_u64; bytes.div_ceil(8)];
    for byte in 0..bytes {
        // SAFETY: by this function's caller.
        words[byte / 8] |= u64::from(unsafe { *mask.add(byte) }) << (byte % 8 * 8);
    }
    let state = simulation();
    state.scheduler.get().advance(state.costs.system_call);
    let mut scheduler = state.scheduler.get();
    if !scheduler.set_affinity(thread, &words) {
        return libc::EINVAL;
    }
    let own = thread == scheduler.current();
    drop(scheduler);
    if own {
        reschedule();
    }
    0
}

fn with_errno(error: c_int) -> c_int {
    if error == 0 {
        return 0;
    }
    // SAFETY: the running thread's own error number.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// Interposed.
///
/// # Safety
/// `mask` has `bytes` bytes, as the C library's function of this name wants.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sched_getaffinity(number: i32, bytes: usize, mask: *mut cpu_set_t) -> c_int {
    if enter() {
        // SAFETY: the program's mask.
        let result = unsafe {
            mask.cast::<u8>().write_bytes(0, bytes);
            write_affinity(number, bytes, mask.cast())
        };
        leave();
        return with_errno(if result < 0 { -result } else { 0 });
    }
    // SAFETY: handed on as it came.
    unsafe {
        next!(c"sched_getaffinity": (i32, usize, *mut cpu_set_t) -> c_int)(number, bytes, mask)
    }
}

/// Interposed.
///
/// # Safety
/// `mask` has `bytes` bytes, as the C library's function of this name wants.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sched_setaffinity(number: i32, bytes: usize, mask: *const cpu_set_t) -> c_int {
    if enter() {
        // SAFETY: the program's mask.
        let result = unsafe { read_affinity(number, bytes, mask.cast()) };
        leave();
        return with_errno(result);
    }
    // SAFETY: handed on as it came.
    unsafe {
        next!(c"sched_setaffinity": (i32, usize, *const cpu_set_t) -> c_int)(number, bytes, mask)
    }
}

/// Interposed.
///
/// # Safety
/// `mask` has `bytes` bytes, as the C library's function of this name wants.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_getaffinity_np(
    handle: pthread_t,
    bytes: usize,
    mask: *mut cpu_set_t,
) -> c_int {
    if enter() {
        let thread = simulation().objects.get().handles.get(&handle).copied();
        // SAFETY: the program's mask.
        let result = thread.map(|thread| unsafe {
            mask.cast::<u8>().write_bytes(0, bytes);
            write_mask(thread, bytes, mask.cast())
        });
        leave();
        if let Some(result) = result {
            return if result < 0 { -result } else { 0 };
        }
    }
    // SAFETY: handed on as it came.
    unsafe {
        next!(c"pthread_getaffinity_np": (pthread_t, usize, *mut cpu_set_t) -> c_int)(
            handle, bytes, mask,
        )
    }
}

/// Interposed.
///
/// # Safety
/// `mask` has `bytes` bytes, as the C library's function of this name wants.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_setaffinity_np(
    handle: pthread_t,
    bytes: usize,
    mask: *const cpu_set_t,
) -> c_int {
    if enter() {
        let thread = simulation().objects.get().handles.get(&handle).copied();
        // SAFETY: the program's mask.
        let result = thread.map(|thread| unsafe { read_mask(thread, bytes, mask.cast()) });
        leave();
        if let Some(result) = result {
            return result;
        }
    }
    // SAFETY: handed on as it came.
    unsafe {
        next!(c"pthread_setaffinity_np": (pthread_t, usize, *const cpu_set_t) -> c_int)(
            handle, bytes, mask,
        )
    }
}

/// Interposed: kept here and applied when a thread is made with it, since the host may lack the core.
///
/// # Safety
/// `mask` has `bytes` bytes, as the C library's function of this name wants.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_attr_setaffinity_np(
    attributes: *mut libc::pthread_attr_t,
    bytes: usize,
    mask: *const cpu_set_t,
) -> c_int {
    if enter() {
        let mut words = vec![0_u64; bytes.div_ceil(8)];
        for byte in 0..bytes {
            // SAFETY: the program's mask.
            let value = unsafe { *mask.cast::<u8>().add(byte) };
            words[byte / 8] |= u64::from(value) << (byte % 8 * 8);
        }
        simulation().attribute_masks.get().insert(attributes as u64, words);
        leave();
        return 0;
    }
    // SAFETY: handed on as it came.
    unsafe {
        next!(c"pthread_attr_setaffinity_np": (*mut libc::pthread_attr_t, usize, *const cpu_set_t) -> c_int)(
            attributes, bytes, mask,
        )
    }
}

/// Interposed.
///
/// # Safety
/// `attributes` was set up by `pthread_attr_init`; here its address is only a key.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_attr_destroy(attributes: *mut libc::pthread_attr_t) -> c_int {
    if enter() {
        simulation().attribute_masks.get().remove(&(attributes as u64));
        leave();
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"pthread_attr_destroy": (*mut libc::pthread_attr_t) -> c_int)(attributes) }
}

/// Interposed.
///
/// # Safety
/// None: it has no arguments.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sched_getcpu() -> c_int {
    if enter() {
        let (core, _) = here();
        leave();
        return core as c_int;
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"sched_getcpu": () -> c_int)() }
}

/// Interposed.
///
/// # Safety
/// Each of the two is null or writable.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn getcpu(core: *mut c_uint, node: *mut c_uint) -> c_int {
    if enter() {
        let here = here();
        leave();
        for (pointer, value) in [(core, here.0), (node, here.1)] {
            if !pointer.is_null() {
                // SAFETY: the program gave room for it.
                unsafe { *pointer = value };
            }
        }
        return 0;
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"getcpu": (*mut c_uint, *mut c_uint) -> c_int)(core, node) }
}

/// Interposed: the number of cores; all else is the host's.
///
/// # Safety
/// None: it takes a number.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sysconf(name: c_int) -> c_long {
    if gate() == OPEN && (name == libc::_SC_NPROCESSORS_ONLN || name == libc::_SC_NPROCESSORS_CONF)
    {
        return simulation().configuration.machine.cores as c_long;
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"sysconf": (c_int) -> c_long)(name) }
}

/// Interposed.
///
/// # Safety
/// None: it has no arguments.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn get_nprocs() -> c_int {
    if gate() == OPEN {
        return simulation().configuration.machine.cores as c_int;
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"get_nprocs": () -> c_int)() }
}

/// Interposed.
///
/// # Safety
/// None: it has no arguments.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn get_nprocs_conf() -> c_int {
    if gate() == OPEN {
        return simulation().configuration.machine.cores as c_int;
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"get_nprocs_conf": () -> c_int)() }
}

/// Interposed: the number of the thread that runs, not of the master.
///
/// # Safety
/// None: it has no arguments.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn gettid() -> c_int {
    if enter() {
        let number = crate::threads::current().number.get();
        leave();
        return number;
    }
    // SAFETY: asks the kernel.
    unsafe { crate::switch::system_call(libc::SYS_gettid, [0; 6]) as c_int }
}
