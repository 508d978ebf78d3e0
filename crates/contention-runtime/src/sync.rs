//! Mutexes, reader-writer locks, conditions, barriers, once and semaphores of POSIX.
//!
//! # Boundary
//! Waiting is virtual; the state of a lock stays the C library's own, changed by its own non-blocking
//! functions, so that recursive, error-checking and robust mutexes behave as they do there, and a child
//! that runs without this library's simulation finds them as they should be.
//!
//! # Concurrency
//! As [`crate::state`]: between reading a lock and queueing for it, no other thread runs.
//!
//! # Why
//! `trylock` until it succeeds, asleep between the tries. Each try is charged as an atomic update of the
//! lock's word by the caller's instruction. Weakness: other steps of the C library's locks, such as
//! adaptive spinning, are not modelled. Conditions and barriers keep their state here, so one that
//! is shared between processes works within this process only. The runtime says so when one is set up
//! with attributes that ask for it.

use crate::access::{charge, ordered};
use crate::next::{Next, next};
use crate::state::{Table, enter, leave, simulation};
use crate::switch::{passing, with_caller};
use crate::waiting::{Cause, Woken, wait, wake};
use libc::{
    c_int, c_uint, c_void, clockid_t, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t, sem_t,
    timespec,
};
use uvfs_coherence::Ticks;
use uvfs_coherence::profile::{LockKind, Operation};

const ACQUIRE: i32 = 2;
const RELEASE: i32 = 3;

/// Conditions and barriers as far as the runtime keeps them.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Clock of a condition variable that was set up with one.
    condition_clocks: Table<u64, clockid_t>,
    /// How many a barrier waits for.
    barriers: Table<u64, usize>,
    /// Callers of `pthread_once` that run the routine.
    once: Table<u64, usize>,
}

/// Charges an atomic access to a lock's word, by the program's instruction at `pc`.
fn touch(address: u64, pc: u64, operation: Operation, order: i32) -> u32 {
    charge(address, pc, ordered(operation, 4, order))
}

/// Takes something that `attempt` takes without waiting; `EBUSY` or `EAGAIN` of it means: wait.
/// `until`: `None` never ends, `Some` is a deadline.
fn take(
    cause: Cause,
    lock: Option<LockKind>,
    pc: u64,
    until: Option<Ticks>,
    busy: c_int,
    mut attempt: impl FnMut() -> c_int,
) -> c_int {
    let (_, address) = cause.describe();
    let begin = simulation().scheduler.get().now();
    let mut contended = false;
    loop {
        let site = touch(address, pc, Operation::CompareExchange, ACQUIRE);
        let result = attempt();
        if result != busy {
            if let Some(kind) = lock.filter(|_| result == 0 || result == libc::EOWNERDEAD) {
                crate::locking::acquired(kind, address, site, begin, contended);
            }
            return result;
        }
        contended = true;
        let state = simulation();
        state.scheduler.get().advance(state.costs.futex_wait);
        if wait(cause, until, u32::MAX) == Woken::ByDeadline {
            return libc::ETIMEDOUT;
        }
    }
}

/// Takes a lock without waiting.
fn try_take(
    address: u64,
    lock: Option<LockKind>,
    pc: u64,
    attempt: impl FnOnce() -> c_int,
) -> c_int {
    let begin = simulation().scheduler.get().now();
    let site = touch(address, pc, Operation::CompareExchange, ACQUIRE);
    let result = attempt();
    if let Some(kind) = lock.filter(|_| result == 0) {
        crate::locking::acquired(kind, address, site, begin, false);
    }
    result
}

/// Wakes, and is charged for it if a thread waited.
fn wake_paid(cause: Cause, most: usize) -> usize {
    let state = simulation();
    if state.waiting.get().count(cause) == 0 {
        return 0;
    }
    state.scheduler.get().advance(state.costs.futex_wake);
    wake(cause, most, u32::MAX)
}

macro_rules! original {
    ($name:literal, $object:ty) => {
        next!($name : (*mut $object) -> c_int)
    };
}

// Mutexes.

/// # Safety
/// `mutex` is one of the program's that is set up.
unsafe fn try_mutex(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the program's mutex; does not wait. An error-checking mutex that the caller has answers
    // EBUSY to a try, where a lock must answer EDEADLK: then its owner is the caller.
    unsafe {
        let result = original!(c"pthread_mutex_trylock", pthread_mutex_t)(mutex);
        let words = mutex.cast::<c_int>();
        let (owner, kind) = (*words.add(2), *words.add(4) & 3);
        let own = owner == crate::threads::current().number.get();
        if result == libc::EBUSY && own && kind == libc::PTHREAD_MUTEX_ERRORCHECK {
            return libc::EDEADLK;
        }
        result
    }
}

fn lock_mutex(mutex: *mut pthread_mutex_t, pc: u64, until: Option<Ticks>) -> c_int {
    let cause = Cause::Mutex(mutex as u64);
    // SAFETY: the program's mutex.
    take(cause, Some(LockKind::Mutex), pc, until, libc::EBUSY, || unsafe { try_mutex(mutex) })
}

fn unlock_mutex(mutex: *mut pthread_mutex_t, pc: u64) -> c_int {
    let address = mutex as u64;
    let site = touch(address, pc, Operation::Exchange, RELEASE);
    // SAFETY: the program's mutex.
    let result = unsafe { original!(c"pthread_mutex_unlock", pthread_mutex_t)(mutex) };
    // SAFETY: the program's mutex; a recursive mutex that is still held has an owner.
    let free = unsafe { *mutex.cast::<c_int>() } == 0;
    if result == 0 && free {
        crate::locking::released(LockKind::Mutex, address, site);
        wake_paid(Cause::Mutex(address), 1);
    }
    result
}

with_caller!(pthread_mutex_lock => mutex_lock, "rsi");
/// # Safety
/// `mutex` is one of the program's that is set up.
unsafe extern "C-unwind" fn mutex_lock(mutex: *mut pthread_mutex_t, pc: u64) -> c_int {
    if !enter() {
        // SAFETY: handed on as it came.
        return unsafe { original!(c"pthread_mutex_lock", pthread_mutex_t)(mutex) };
    }
    let result = lock_mutex(mutex, pc, None);
    leave();
    result
}

with_caller!(pthread_mutex_trylock => mutex_trylock, "rsi");
/// # Safety
/// `mutex` is one of the program's that is set up.
unsafe extern "C-unwind" fn mutex_trylock(mutex: *mut pthread_mutex_t, pc: u64) -> c_int {
    let original = original!(c"pthread_mutex_trylock", pthread_mutex_t);
    if !enter() {
        // SAFETY: handed on as it came.
        return unsafe { original(mutex) };
    }
    // SAFETY: the program's mutex.
    let result = try_take(mutex as u64, Some(LockKind::Mutex), pc, || unsafe { original(mutex) });
    leave();
    result
}

with_caller!(pthread_mutex_unlock => mutex_unlock, "rsi");
/// # Safety
/// `mutex` is one of the program's that is set up.
unsafe extern "C-unwind" fn mutex_unlock(mutex: *mut pthread_mutex_t, pc: u64) -> c_int {
    if !enter() {
        // SAFETY: handed on as it came.
        return unsafe { original!(c"pthread_mutex_unlock", pthread_mutex_t)(mutex) };
    }
    let result = unlock_mutex(mutex, pc);
    leave();
    result
}

with_caller!(pthread_mutex_timedlock => mutex_timedlock, "rdx");
/// # Safety
/// `mutex` is one of the program's that is set up; `at` is readable.
unsafe extern "C-unwind" fn mutex_timedlock(
    mutex: *mut pthread_mutex_t,
    at: *const timespec,
    pc: u64,
) -> c_int {
    if !enter() {
        let original =
            next!(c"pthread_mutex_timedlock": (*mut pthread_mutex_t, *const timespec) -> c_int);
        // SAFETY: handed on as it came.
        return unsafe { original(mutex, at) };
    }
    // SAFETY: the program's deadline.
    let until = unsafe { crate::time::deadline(libc::CLOCK_REALTIME, at) };
    let result = lock_mutex(mutex, pc, until);
    leave();
    result
}

with_caller!(pthread_mutex_clocklock => mutex_clocklock, "rcx");
/// # Safety
/// `mutex` is one of the program's that is set up; `at` is readable.
unsafe extern "C-unwind" fn mutex_clocklock(
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    at: *const timespec,
    pc: u64,
) -> c_int {
    if !enter() {
        let original = next!(c"pthread_mutex_clocklock": (*mut pthread_mutex_t, clockid_t, *const timespec) -> c_int);
        // SAFETY: handed on as it came.
        return unsafe { original(mutex, clock, at) };
    }
    // SAFETY: the program's deadline.
    let until = unsafe { crate::time::deadline(clock, at) };
    let result = lock_mutex(mutex, pc, until);
    leave();
    result
}

// Spin locks: the waiter spins, in virtual time, with a pause between two looks.

with_caller!(pthread_spin_lock => spin_lock, "rsi");
/// # Safety
/// `lock` is one of the program's that is set up.
unsafe extern "C-unwind" fn spin_lock(lock: *mut c_int, pc: u64) -> c_int {
    let attempt = original!(c"pthread_spin_trylock", c_int);
    if !enter() {
        // SAFETY: handed on as it came.
        return unsafe { original!(c"pthread_spin_lock", c_int)(lock) };
    }
    let address = lock as u64;
    let begin = simulation().scheduler.get().now();
    let mut contended = false;
    loop {
        let site = touch(address, pc, Operation::CompareExchange, ACQUIRE);
        // SAFETY: the program's lock.
        if unsafe { attempt(lock) } == 0 {
            crate::locking::acquired(LockKind::Spin, address, site, begin, contended);
            break;
        }
        contended = true;
        // As the C library: look until it is free, then try again.
        loop {
            touch(address, pc, Operation::AtomicLoad, 0);
            // SAFETY: the program's lock; 1 is its free state on x86-64.
            if unsafe { lock.read_volatile() } > 0 {
                break;
            }
        }
    }
    leave();
    0
}

with_caller!(pthread_spin_trylock => spin_trylock, "rsi");
/// # Safety
/// `lock` is one of the program's that is set up.
unsafe extern "C-unwind" fn spin_trylock(lock: *mut c_int, pc: u64) -> c_int {
    let attempt = original!(c"pthread_spin_trylock", c_int);
    if !enter() {
        // SAFETY: handed on as it came.
        return unsafe { attempt(lock) };
    }
    // SAFETY: the program's lock.
    let result = try_take(lock as u64, Some(LockKind::Spin), pc, || unsafe { attempt(lock) });
    leave();
    result
}

with_caller!(pthread_spin_unlock => spin_unlock, "rsi");
/// # Safety
/// `lock` is one of the program's that is set up.
unsafe extern "C-unwind" fn spin_unlock(lock: *mut c_int, pc: u64) -> c_int {
    let original = original!(c"pthread_spin_unlock", c_int);
    if !enter() {
        // SAFETY: handed on as it came.
        return unsafe { original(lock) };
    }
    let site = touch(lock as u64, pc, Operation::AtomicStore, RELEASE);
    crate::locking::released(LockKind::Spin, lock as u64, site);
    // SAFETY: the program's lock.
    let result = unsafe { original(lock) };
    leave();
    result
}

// Reader-writer locks.

fn lock_shared(lock: *mut pthread_rwlock_t, pc: u64, until: Option<Ticks>) -> c_int {
    let attempt = original!(c"pthread_rwlock_tryrdlock", pthread_rwlock_t);
    let cause = Cause::Reader(lock as u64);
    // SAFETY: the program's lock; does not wait.
    take(cause, Some(LockKind::Shared), pc, until, libc::EBUSY, || unsafe { attempt(lock) })
}

fn lock_alone(lock: *mut pthread_rwlock_t, pc: u64, until: Option<Ticks>) -> c_int {
    let attempt = original!(c"pthread_rwlock_trywrlock", pthread_rwlock_t);
    let cause = Cause::Writer(lock as u64);
    // SAFETY: the program's lock; does not wait.
    take(cause, Some(LockKind::Exclusive), pc, until, libc::EBUSY, || unsafe { attempt(lock) })
}

macro_rules! rwlock_calls {
    ($($name:ident $target:ident $register:literal $text:literal
       ($($extra:ident : $type:ty),*) $until:expr, $lock:ident);* $(;)?) => { $(
        with_caller!($name => $target, $register);
        /// # Safety
        /// `lock` is one of the program's that is set up; a deadline is readable.
        unsafe extern "C-unwind" fn $target(lock: *mut pthread_rwlock_t, $($extra: $type,)* pc: u64) -> c_int {
            if !enter() {
                // SAFETY: handed on as it came.
                return unsafe {
                    next!($text : (*mut pthread_rwlock_t, $($type),*) -> c_int)(lock, $($extra),*)
                };
            }
            // SAFETY: the program's deadline, where there is one.
            let until: Option<Ticks> = unsafe { $until };
            let result = $lock(lock, pc, until);
            leave();
            result
        }
    )* };
}

#[allow(unused_unsafe)] // Not all of them have a deadline to read.
mod rwlock {
    use super::*;
    use crate::time::deadline;
    rwlock_calls!(
        pthread_rwlock_rdlock rdlock "rsi" c"pthread_rwlock_rdlock" () None, lock_shared;
        pthread_rwlock_wrlock wrlock "rsi" c"pthread_rwlock_wrlock" () None, lock_alone;
        pthread_rwlock_timedrdlock timedrdlock "rdx" c"pthread_rwlock_timedrdlock"
            (at: *const timespec) deadline(libc::CLOCK_REALTIME, at), lock_shared;
        pthread_rwlock_timedwrlock timedwrlock "rdx" c"pthread_rwlock_timedwrlock"
            (at: *const timespec) deadline(libc::CLOCK_REALTIME, at), lock_alone;
        pthread_rwlock_clockrdlock clockrdlock "rcx" c"pthread_rwlock_clockrdlock"
            (clock: clockid_t, at: *const timespec) deadline(clock, at), lock_shared;
        pthread_rwlock_clockwrlock clockwrlock "rcx" c"pthread_rwlock_clockwrlock"
            (clock: clockid_t, at: *const timespec) deadline(clock, at), lock_alone;
    );
}

with_caller!(pthread_rwlock_tryrdlock => rwlock_tryrdlock, "rsi");
/// # Safety
/// `lock` is one of the program's that is set up.
unsafe extern "C-unwind" fn rwlock_tryrdlock(lock: *mut pthread_rwlock_t, pc: u64) -> c_int {
    let attempt = original!(c"pthread_rwlock_tryrdlock", pthread_rwlock_t);
    if !enter() {
        // SAFETY: handed on as it came.
        return unsafe { attempt(lock) };
    }
    // SAFETY: the program's lock.
    let result = try_take(lock as u64, Some(LockKind::Shared), pc, || unsafe { attempt(lock) });
    leave();
    result
}

with_caller!(pthread_rwlock_trywrlock => rwlock_trywrlock, "rsi");
/// # Safety
/// `lock` is one of the program's that is set up.
unsafe extern "C-unwind" fn rwlock_trywrlock(lock: *mut pthread_rwlock_t, pc: u64) -> c_int {
    let attempt = original!(c"pthread_rwlock_trywrlock", pthread_rwlock_t);
    if !enter() {
        // SAFETY: handed on as it came.
        return unsafe { attempt(lock) };
    }
    // SAFETY: the program's lock.
    let result = try_take(lock as u64, Some(LockKind::Exclusive), pc, || unsafe { attempt(lock) });
    leave();
    result
}

with_caller!(pthread_rwlock_unlock => rwlock_unlock, "rsi");
/// # Safety
/// `lock` is one of the program's that is set up.
unsafe extern "C-unwind" fn rwlock_unlock(lock: *mut pthread_rwlock_t, pc: u64) -> c_int {
    let original = original!(c"pthread_rwlock_unlock", pthread_rwlock_t);
    if !enter() {
        // SAFETY: handed on as it came.
        return unsafe { original(lock) };
    }
    let address = lock as u64;
    let site = touch(address, pc, Operation::FetchAdd, RELEASE);
    // The C library keeps the writer's thread in the seventh word, zero while readers have the lock.
    // SAFETY: the program's lock.
    let alone = unsafe { *lock.cast::<c_int>().add(6) } != 0;
    let kind = if alone { LockKind::Exclusive } else { LockKind::Shared };
    crate::locking::released(kind, address, site);
    // SAFETY: the program's lock.
    let result = unsafe { original(lock) };
    if result == 0 {
        // As the C library prefers readers unless told otherwise; a writer that finds one waits on.
        wake_paid(Cause::Reader(address), usize::MAX);
        wake_paid(Cause::Writer(address), 1);
    }
    leave();
    result
}

fn one_process_only(shared: c_int) {
    if shared == libc::PTHREAD_PROCESS_SHARED {
        crate::unsupported("conditions and barriers between processes; they work within this one");
    }
}

// Condition variables.

/// Interposed: remembers the clock.
///
/// # Safety
/// `condition` is writable; `attributes` is null or set up.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pthread_cond_init(
    condition: *mut pthread_cond_t,
    attributes: *const libc::pthread_condattr_t,
) -> c_int {
    if enter() {
        let mut clock = libc::CLOCK_REALTIME;
        if !attributes.is_null() {
            // SAFETY: the program's attributes.
            unsafe { libc::pthread_condattr_getclock(attributes, &mut clock) };
            let mut shared = libc::PTHREAD_PROCESS_PRIVATE;
            // SAFETY: the same.
            unsafe { libc::pthread_condattr_getpshared(attributes, &mut shared) };
            one_process_only(shared);
        }
        let clocks = &mut simulation().kept.get().condition_clocks;
        if clock == libc::CLOCK_REALTIME {
            clocks.remove(&(condition as u64));
        } else {
            clocks.insert(condition as u64, clock);
        }
        leave();
    }
    let original = next!(c"pthread_cond_init" @ c"GLIBC_2.3.2": (*mut pthread_cond_t, *const libc::pthread_condattr_t) -> c_int);
    // SAFETY: handed on as it came.
    unsafe { original(condition, attributes) }
}

fn wait_condition(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: Option<Ticks>,
    pc: u64,
) -> c_int {
    let address = condition as u64;
    let site = touch(address, pc, Operation::FetchAdd, ACQUIRE);
    let result = unlock_mutex(mutex, pc);
    if result != 0 {
        return result;
    }
    let state = simulation();
    let begin = state.scheduler.get().now();
    state.scheduler.get().advance(state.costs.futex_wait);
    let woken = wait(Cause::Condition(address), until, u32::MAX);
    crate::locking::went_on(LockKind::Condition, address, site, begin, true);
    let result = lock_mutex(mutex, pc, None);
    match (result, woken) {
        (0, Woken::ByDeadline) => libc::ETIMEDOUT,
        _ => result,
    }
}

passing!(pthread_cond_wait => cond_wait, Next::versioned(c"pthread_cond_wait", c"GLIBC_2.3.2"), "rdx");
/// # Safety
/// Both are the program's and set up; the caller has the mutex.
unsafe extern "C-unwind" fn cond_wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    pc: u64,
) -> c_int {
    if !enter() {
        let original = next!(c"pthread_cond_wait" @ c"GLIBC_2.3.2": (*mut pthread_cond_t, *mut pthread_mutex_t) -> c_int);
        // SAFETY: handed on as it came.
        return unsafe { original(condition, mutex) };
    }
    let result = wait_condition(condition, mutex, None, pc);
    leave();
    result
}

passing!(pthread_cond_timedwait => cond_timedwait, Next::versioned(c"pthread_cond_timedwait", c"GLIBC_2.3.2"), "rcx");
/// # Safety
/// Both are the program's and set up; the caller has the mutex; `at` is readable.
unsafe extern "C-unwind" fn cond_timedwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    at: *const timespec,
    pc: u64,
) -> c_int {
    if !enter() {
        let original = next!(c"pthread_cond_timedwait" @ c"GLIBC_2.3.2": (*mut pthread_cond_t, *mut pthread_mutex_t, *const timespec) -> c_int);
        // SAFETY: handed on as it came.
        return unsafe { original(condition, mutex, at) };
    }
    let clock = simulation().kept.get().condition_clocks.get(&(condition as u64)).copied();
    let clock = clock.unwrap_or(libc::CLOCK_REALTIME);
    // SAFETY: the program's deadline.
    let until = unsafe { crate::time::deadline(clock, at) };
    let result = wait_condition(condition, mutex, until, pc);
    leave();
    result
}

passing!(pthread_cond_clockwait => cond_clockwait, Next::new(c"pthread_cond_clockwait"), "r8");
/// # Safety
/// Both are the program's and set up; the caller has the mutex; `at` is readable.
unsafe extern "C-unwind" fn cond_clockwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    at: *const timespec,
    pc: u64,
) -> c_int {
    if !enter() {
        let original = next!(c"pthread_cond_clockwait": (*mut pthread_cond_t, *mut pthread_mutex_t, clockid_t, *const timespec) -> c_int);
        // SAFETY: handed on as it came.
        return unsafe { original(condition, mutex, clock, at) };
    }
    // SAFETY: the program's deadline.
    let until = unsafe { crate::time::deadline(clock, at) };
    let result = wait_condition(condition, mutex, until, pc);
    leave();
    result
}

fn signal(condition: *mut pthread_cond_t, pc: u64, most: usize) {
    touch(condition as u64, pc, Operation::AtomicLoad, ACQUIRE);
    wake_paid(Cause::Condition(condition as u64), most);
}

with_caller!(pthread_cond_signal => cond_signal, "rsi");
/// # Safety
/// `condition` is one of the program's that is set up.
unsafe extern "C-unwind" fn cond_signal(condition: *mut pthread_cond_t, pc: u64) -> c_int {
    if !enter() {
        let original =
            next!(c"pthread_cond_signal" @ c"GLIBC_2.3.2": (*mut pthread_cond_t) -> c_int);
        // SAFETY: handed on as it came.
        return unsafe { original(condition) };
    }
    signal(condition, pc, 1);
    leave();
    0
}

with_caller!(pthread_cond_broadcast => cond_broadcast, "rsi");
/// # Safety
/// `condition` is one of the program's that is set up.
unsafe extern "C-unwind" fn cond_broadcast(condition: *mut pthread_cond_t, pc: u64) -> c_int {
    if !enter() {
        let original =
            next!(c"pthread_cond_broadcast" @ c"GLIBC_2.3.2": (*mut pthread_cond_t) -> c_int);
        // SAFETY: handed on as it came.
        return unsafe { original(condition) };
    }
    signal(condition, pc, usize::MAX);
    leave();
    0
}

/// Interposed: no thread waits natively, so the C library would have none to wait for.
///
/// # Safety
/// `condition` is set up, and no thread waits for it.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pthread_cond_destroy(condition: *mut pthread_cond_t) -> c_int {
    if enter() {
        simulation().kept.get().condition_clocks.remove(&(condition as u64));
        leave();
    }
    let original = next!(c"pthread_cond_destroy" @ c"GLIBC_2.3.2": (*mut pthread_cond_t) -> c_int);
    // SAFETY: handed on as it came.
    unsafe { original(condition) }
}

// Barriers.

/// Interposed: remembers how many.
///
/// # Safety
/// `barrier` is writable; `attributes` is null or set up.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pthread_barrier_init(
    barrier: *mut c_void,
    attributes: *const c_void,
    count: c_uint,
) -> c_int {
    let original = next!(c"pthread_barrier_init": (*mut c_void, *const c_void, c_uint) -> c_int);
    // SAFETY: handed on as it came.
    let result = unsafe { original(barrier, attributes, count) };
    if result == 0 && enter() {
        if !attributes.is_null() {
            let mut shared = libc::PTHREAD_PROCESS_PRIVATE;
            // SAFETY: the program's attributes; the C library has just taken them.
            unsafe { libc::pthread_barrierattr_getpshared(attributes.cast(), &mut shared) };
            one_process_only(shared);
        }
        simulation().kept.get().barriers.insert(barrier as u64, count as usize);
        leave();
    }
    result
}

with_caller!(pthread_barrier_wait => barrier_wait, "rsi");
/// # Safety
/// `barrier` is one of the program's that is set up.
unsafe extern "C-unwind" fn barrier_wait(barrier: *mut c_void, pc: u64) -> c_int {
    let address = barrier as u64;
    if enter() {
        let count = simulation().kept.get().barriers.get(&address).copied();
        if let Some(count) = count {
            let begin = simulation().scheduler.get().now();
            let site = touch(address, pc, Operation::FetchAdd, 4);
            let waiting = simulation().waiting.get().count(Cause::Barrier(address));
            let result = if waiting + 1 >= count {
                crate::locking::went_on(LockKind::Barrier, address, site, begin, false);
                wake_paid(Cause::Barrier(address), usize::MAX);
                -1 // PTHREAD_BARRIER_SERIAL_THREAD
            } else {
                let state = simulation();
                state.scheduler.get().advance(state.costs.futex_wait);
                wait(Cause::Barrier(address), None, u32::MAX);
                crate::locking::went_on(LockKind::Barrier, address, site, begin, true);
                touch(address, pc, Operation::AtomicLoad, ACQUIRE);
                0
            };
            leave();
            return result;
        }
        leave();
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"pthread_barrier_wait": (*mut c_void) -> c_int)(barrier) }
}

/// Interposed.
///
/// # Safety
/// `barrier` is set up, and no thread waits at it.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pthread_barrier_destroy(barrier: *mut c_void) -> c_int {
    if enter() {
        simulation().kept.get().barriers.remove(&(barrier as u64));
        leave();
    }
    // SAFETY: handed on as it came.
    unsafe { next!(c"pthread_barrier_destroy": (*mut c_void) -> c_int)(barrier) }
}

// Once. A routine that leaves by an exception is not supported: later callers would wait for ever, and
// the runtime then names the control word.

with_caller!(pthread_once => once, "rdx");
/// # Safety
/// `control` is a control word of the program's; `routine` may be called.
unsafe extern "C-unwind" fn once(
    control: *mut c_int,
    routine: unsafe extern "C-unwind" fn(),
    pc: u64,
) -> c_int {
    const DONE: c_int = 2;
    if !enter() {
        // SAFETY: the routine and the control word are handed on as they came.
        let original = next!(c"pthread_once": (*mut c_int, unsafe extern "C-unwind" fn()) -> c_int);
        // SAFETY: the program's own arguments, unchanged.
        return unsafe { original(control, routine) };
    }
    let address = control as u64;
    loop {
        touch(address, pc, Operation::AtomicLoad, ACQUIRE);
        // SAFETY: the program's control word.
        if unsafe { control.read_volatile() } & DONE != 0 {
            break;
        }
        let state = simulation();
        let runs = state.kept.get().once.contains_key(&address);
        if runs {
            state.scheduler.get().advance(state.costs.futex_wait);
            wait(Cause::Once(address), None, u32::MAX);
            continue;
        }
        let me = state.scheduler.get().current();
        state.kept.get().once.insert(address, me);
        touch(address, pc, Operation::CompareExchange, ACQUIRE);
        leave();
        // SAFETY: the program's routine, called once.
        unsafe { routine() };
        if !enter() {
            return 0;
        }
        touch(address, pc, Operation::AtomicStore, RELEASE);
        // SAFETY: the program's control word; the C library stores the same value when it is done.
        unsafe { control.write_volatile(DONE) };
        simulation().kept.get().once.remove(&address);
        wake_paid(Cause::Once(address), usize::MAX);
        break;
    }
    leave();
    0
}

// Semaphores.

/// Sets `errno` and returns -1, or returns 0.
fn with_errno(result: c_int) -> c_int {
    if result == 0 {
        return 0;
    }
    // SAFETY: the running thread's own error number.
    unsafe { *libc::__errno_location() = result };
    -1
}

fn take_semaphore(semaphore: *mut sem_t, pc: u64, until: Option<Ticks>) -> c_int {
    let cause = Cause::Semaphore(semaphore as u64);
    let result = take(cause, Some(LockKind::Semaphore), pc, until, libc::EAGAIN, || {
        // SAFETY: the program's semaphore; on failure the running thread's error number says why.
        unsafe {
            let attempt = original!(c"sem_trywait", sem_t);
            if attempt(semaphore) == 0 { 0 } else { *libc::__errno_location() }
        }
    });
    with_errno(result)
}

passing!(sem_wait => semaphore_wait, Next::new(c"sem_wait"), "rsi");
/// # Safety
/// `semaphore` is one of the program's that is set up.
unsafe extern "C-unwind" fn semaphore_wait(semaphore: *mut sem_t, pc: u64) -> c_int {
    if !enter() {
        // SAFETY: handed on as it came.
        return unsafe { original!(c"sem_wait", sem_t)(semaphore) };
    }
    let result = take_semaphore(semaphore, pc, None);
    leave();
    result
}

passing!(sem_timedwait => semaphore_timedwait, Next::new(c"sem_timedwait"), "rdx");
/// # Safety
/// `semaphore` is one of the program's that is set up; `at` is readable.
unsafe extern "C-unwind" fn semaphore_timedwait(
    semaphore: *mut sem_t,
    at: *const timespec,
    pc: u64,
) -> c_int {
    if !enter() {
        // SAFETY: handed on as it came.
        return unsafe {
            next!(c"sem_timedwait": (*mut sem_t, *const timespec) -> c_int)(semaphore, at)
        };
    }
    // SAFETY: the program's deadline.
    let until = unsafe { crate::time::deadline(libc::CLOCK_REALTIME, at) };
    let result = take_semaphore(semaphore, pc, until);
    leave();
    result
}

passing!(sem_clockwait => semaphore_clockwait, Next::new(c"sem_clockwait"), "rcx");
/// # Safety
/// `semaphore` is one of the program's that is set up; `at` is readable.
unsafe extern "C-unwind" fn semaphore_clockwait(
    semaphore: *mut sem_t,
    clock: clockid_t,
    at: *const timespec,
    pc: u64,
) -> c_int {
    if !enter() {
        // SAFETY: handed on as it came.
        return unsafe {
            next!(c"sem_clockwait": (*mut sem_t, clockid_t, *const timespec) -> c_int)(
                semaphore, clock, at,
            )
        };
    }
    // SAFETY: the program's deadline.
    let until = unsafe { crate::time::deadline(clock, at) };
    let result = take_semaphore(semaphore, pc, until);
    leave();
    result
}

with_caller!(sem_trywait => semaphore_trywait, "rsi");
/// # Safety
/// `semaphore` is one of the program's that is set up.
unsafe extern "C-unwind" fn semaphore_trywait(semaphore: *mut sem_t, pc: u64) -> c_int {
    let attempt = original!(c"sem_trywait", sem_t);
    if !enter() {
        // SAFETY: handed on as it came.
        return unsafe { attempt(semaphore) };
    }
    // SAFETY: the program's semaphore.
    let result = try_take(semaphore as u64, None, pc, || unsafe { attempt(semaphore) });
    leave();
    result
}

with_caller!(sem_post => semaphore_post, "rsi");
/// # Safety
/// `semaphore` is one of the program's that is set up.
unsafe extern "C-unwind" fn semaphore_post(semaphore: *mut sem_t, pc: u64) -> c_int {
    let original = original!(c"sem_post", sem_t);
    if !enter() {
        // SAFETY: handed on as it came.
        return unsafe { original(semaphore) };
    }
    touch(semaphore as u64, pc, Operation::FetchAdd, RELEASE);
    // SAFETY: the program's semaphore.
    let result = unsafe { original(semaphore) };
    if result == 0 {
        wake_paid(Cause::Semaphore(semaphore as u64), 1);
    }
    leave();
    result
}
