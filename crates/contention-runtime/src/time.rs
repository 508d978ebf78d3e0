//! Clocks, sleeps and random numbers in virtual time.
//!
//! # Boundary
//! The program's time is its own virtual core's clock, counted from a fixed moment.
//!
//! # Concurrency
//! As [`crate::state`].
//!
//! # Why
//! A program that measures itself prints the time of the simulated machine, the same in every run.
//! The processor's own counter is [`crate::counter`]'s. Weakness: the kernel's file times are not virtual.

use crate::next::{Next, next};
use crate::state::{BUSY, OPEN, enter, gate, leave, simulation};
use crate::switch::{passing, system_call};
use crate::threads::reschedule;
use crate::waiting::{Cause, wait};
use libc::{c_int, c_uint, c_void, clockid_t, timespec, timeval};
use std::sync::atomic::Ordering;
use std::time::Duration;
use uvfs_coherence::{TICKS_PER_CYCLE, Ticks};

/// The real-time clock when the program begins: the first of January 2030.
const EPOCH: Duration = Duration::from_secs(1_893_456_000);
/// The monotonic clock then.
const STARTED: Duration = Duration::from_secs(1000);

/// The host's clock, for the profile's own cost.
pub(crate) fn host_now() -> Duration {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [libc::CLOCK_MONOTONIC as usize, &raw mut now as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes one timespec.
    unsafe { system_call(libc::SYS_clock_gettime, arguments) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn ticks_per_microsecond() -> f64 {
    simulation().configuration.machine.megahertz.value * TICKS_PER_CYCLE as f64
}

/// The processor's counter when the program begins: a step a cycle since the monotonic clock's zero.
pub(crate) fn cycles_at_start() -> u64 {
    (STARTED.as_micros() as f64 * simulation().configuration.machine.megahertz.value) as u64
}

/// How long so many ticks are.
fn duration(ticks: Ticks) -> Duration {
    let nanoseconds = ticks as f64 * 1000.0 / ticks_per_microsecond();
    Duration::from_nanos(nanoseconds as u64)
}

/// How many ticks a time is.
pub(crate) fn ticks(time: Duration) -> Ticks {
    // A century is as good as for ever, and its ticks fit.
    let time = time.min(Duration::from_secs(100_000));
    (time.as_secs_f64() * 1e6 * ticks_per_microsecond()).ceil() as Ticks
}

/// Where a clock began; none: it is not one of those that are virtual.
fn start_of(clock: clockid_t) -> Option<Duration> {
    match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE | libc::CLOCK_TAI => Some(EPOCH),
        libc::CLOCK_MONOTONIC
        | libc::CLOCK_MONOTONIC_RAW
        | libc::CLOCK_MONOTONIC_COARSE
        | libc::CLOCK_BOOTTIME => Some(STARTED),
        libc::CLOCK_PROCESS_CPUTIME_ID | libc::CLOCK_THREAD_CPUTIME_ID => Some(Duration::ZERO),
        _ => None,
    }
}

/// Reading takes time, or a program that waits until a clock has moved on would wait for ever.
fn read(clock: clockid_t) -> Option<Duration> {
    let start = start_of(clock)?;
    let state = simulation();
    if state.scheduler.is_taken() {
        // A handler of the program's came between: it reads when the last access was.
        // ORDERING: Relaxed; the same thread wrote it.
        return Some(start + duration(crate::state::PROGRESS.load(Ordering::Relaxed)));
    }
    let mut scheduler = state.scheduler.get();
    scheduler.advance(state.costs.read_clock);
    Some(start + duration(scheduler.now()))
}

fn from_timespec(time: timespec) -> Duration {
    if time.tv_sec < 0 {
        return Duration::ZERO;
    }
    Duration::new(time.tv_sec as u64, time.tv_nsec.clamp(0, 999_999_999) as u32)
}

fn to_timespec(time: Duration) -> timespec {
    timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

/// A point in time of a clock, as ticks of the current thread's clock; none: no deadline was given.
///
/// # Safety
/// `at` is null or the program's.
pub(crate) unsafe fn deadline(clock: clockid_t, at: *const timespec) -> Option<Ticks> {
    if at.is_null() {
        return None;
    }
    // SAFETY: by this function's own contract.
    let at = from_timespec(unsafe { *at });
    Some(ticks(at.saturating_sub(start_of(clock).unwrap_or(STARTED))))
}

/// A stretch of time from now on.
///
/// # Safety
/// `stretch` is null or the program's.
pub(crate) unsafe fn after(stretch: *const timespec) -> Option<Ticks> {
    if stretch.is_null() {
        return None;
    }
    // SAFETY: by this function's own contract.
    Some(simulation().scheduler.get().now() + ticks(from_timespec(unsafe { *stretch })))
}

/// Sleeps until a tick. Behind the closed gate.
fn sleep_until(until: Ticks) {
    let state = simulation();
    state.scheduler.get().advance(state.costs.futex_wait);
    wait(Cause::Sleep, Some(until), u32::MAX);
}

/// Interposed.
///
/// # Safety
/// `time` is null or writable.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let now = match gate() {
        OPEN | BUSY if crate::state::exists() => read(clock),
        _ => None,
    };
    match now {
        Some(now) if !time.is_null() => {
            // SAFETY: the program gave room for it.
            unsafe { *time = to_timespec(now) };
            0
        }
        // SAFETY: handed on as it came.
        _ => unsafe { next!(c"clock_gettime": (clockid_t, *mut timespec) -> c_int)(clock, time) },
    }
}

/// Interposed: a nanosecond.
///
/// # Safety
/// `time` is null or writable.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn clock_getres(clock: clockid_t, time: *mut timespec) -> c_int {
    if gate() == OPEN && start_of(clock).is_some() {
        if !time.is_null() {
            // SAFETY: the program gave room for it.
            unsafe { *time = timespec { tv_sec: 0, tv_nsec: 1 } };
        }
        return 0;
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"clock_getres": (clockid_t, *mut timespec) -> c_int)(clock, time) }
}

/// Interposed.
///
/// # Safety
/// Each is null or writable.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn gettimeofday(time: *mut timeval, zone: *mut c_void) -> c_int {
    if gate() == OPEN
        && let Some(now) = read(libc::CLOCK_REALTIME)
    {
        if !time.is_null() {
            let (seconds, rest) = (now.as_secs() as i64, i64::from(now.subsec_micros()));
            // SAFETY: the program gave room for it.
            unsafe { *time = timeval { tv_sec: seconds, tv_usec: rest } };
        }
        return 0;
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"gettimeofday": (*mut timeval, *mut c_void) -> c_int)(time, zone) }
}

/// Interposed.
///
/// # Safety
/// `result` is null or writable.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn time(result: *mut libc::time_t) -> libc::time_t {
    if gate() == OPEN
        && let Some(now) = read(libc::CLOCK_REALTIME)
    {
        if !result.is_null() {
            // SAFETY: the program gave room for it.
            unsafe { *result = now.as_secs() as i64 };
        }
        return now.as_secs() as i64;
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"time": (*mut libc::time_t) -> libc::time_t)(result) }
}

passing!(clock_nanosleep => virtual_clock_nanosleep, Next::new(c"clock_nanosleep"));

/// Interposed. Returns an error number.
///
/// # Safety
/// `request` is readable, `remain` null or writable.
unsafe extern "C-unwind" fn virtual_clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    request: *const timespec,
    remain: *mut timespec,
) -> c_int {
    if start_of(clock).is_some() && enter() {
        // SAFETY: the program's request.
        let until = unsafe {
            if flags & libc::TIMER_ABSTIME != 0 { deadline(clock, request) } else { after(request) }
        };
        if let Some(until) = until {
            sleep_until(until);
        }
        leave();
        return 0;
    }
    // SAFETY: handed on as it came.
    unsafe {
        next!(c"clock_nanosleep": (clockid_t, c_int, *const timespec, *mut timespec) -> c_int)(
            clock, flags, request, remain,
        )
    }
}

passing!(nanosleep => virtual_nanosleep, Next::new(c"nanosleep"));

/// Interposed.
///
/// # Safety
/// `request` is readable, `remain` null or writable.
unsafe extern "C-unwind" fn virtual_nanosleep(
    request: *const timespec,
    remain: *mut timespec,
) -> c_int {
    if enter() {
        // SAFETY: the program's request.
        if let Some(until) = unsafe { after(request) } {
            sleep_until(until);
        }
        leave();
        return 0;
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"nanosleep": (*const timespec, *mut timespec) -> c_int)(request, remain) }
}

fn sleep_for(stretch: Duration) -> bool {
    let entered = enter();
    if entered {
        let now = simulation().scheduler.get().now();
        sleep_until(now + ticks(stretch));
        leave();
    }
    entered
}

passing!(usleep => virtual_usleep, Next::new(c"usleep"));

/// Interposed.
///
/// # Safety
/// None: it takes a number.
unsafe extern "C-unwind" fn virtual_usleep(microseconds: c_uint) -> c_int {
    if sleep_for(Duration::from_micros(u64::from(microseconds))) {
        return 0;
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"usleep": (c_uint) -> c_int)(microseconds) }
}

passing!(sleep => virtual_sleep, Next::new(c"sleep"));

/// Interposed.
///
/// # Safety
/// None: it takes a number.
unsafe extern "C-unwind" fn virtual_sleep(seconds: c_uint) -> c_uint {
    if sleep_for(Duration::from_secs(u64::from(seconds))) {
        return 0;
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"sleep": (c_uint) -> c_uint)(seconds) }
}

/// Interposed.
///
/// # Safety
/// None: it has no arguments.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn sched_yield() -> c_int {
    if enter() {
        let state = simulation();
        state.scheduler.get().advance(state.costs.yield_now);
        state.scheduler.get().yield_core();
        reschedule();
        leave();
        return 0;
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"sched_yield": () -> c_int)() }
}

/// Interposed: Rust's `thread::yield_now` calls `sched_yield`, some C programs this.
///
/// # Safety
/// None: it has no arguments.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pthread_yield() -> c_int {
    // SAFETY: as `sched_yield`.
    unsafe { sched_yield() }
}

/// Fills memory with the run's own random numbers. Behind the closed gate.
///
/// # Safety
/// `buffer` is writable for `bytes` bytes.
unsafe fn fill_random(buffer: *mut u8, bytes: usize) {
    let state = simulation();
    for offset in 0..bytes {
        let mut value = state.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.random.set(value);
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // SAFETY: by this function's caller.
        unsafe { *buffer.add(offset) = (value >> 32) as u8 };
    }
}

/// Random numbers of the seed; false: there is no simulation, ask the kernel.
///
/// # Safety
/// `buffer` has that many bytes.
pub(crate) unsafe fn random(buffer: *mut u8, bytes: usize) -> bool {
    let entered = enter();
    if entered {
        // SAFETY: by this function's own contract.
        unsafe { fill_random(buffer, bytes) };
        leave();
    }
    entered
}

/// Interposed.
///
/// # Safety
/// `buffer` is writable for `bytes` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn getrandom(buffer: *mut c_void, bytes: usize, flags: c_uint) -> isize {
    // SAFETY: the program gave that many bytes.
    if unsafe { random(buffer.cast(), bytes) } {
        return bytes as isize;
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"getrandom": (*mut c_void, usize, c_uint) -> isize)(buffer, bytes, flags) }
}

/// Interposed.
///
/// # Safety
/// `buffer` is writable for `bytes` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn getentropy(buffer: *mut c_void, bytes: usize) -> c_int {
    // SAFETY: the program gave that many bytes.
    if bytes <= 256 && unsafe { random(buffer.cast(), bytes) } {
        return 0;
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"getentropy": (*mut c_void, usize) -> c_int)(buffer, bytes) }
}
