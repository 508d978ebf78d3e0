//! System calls that may wait for something outside: descriptors, children, signals.
//!
//! # Boundary
//! Asks first whether the call would wait. If so, other threads of the program go first; only when
//! none can run does the process really wait.
//!
//! # Concurrency
//! As [`crate::state`]. The call itself is made when its descriptor is ready, so the master does not wait
//! in it. Exceptions are `writev`, `sendmsg` and `connect`, and calls on descriptors that `poll` wrongly calls
//! ready.
//!
//! # Why
//! The other end of a pipe may be another virtual thread, which only runs if this one lets it. Weakness:
//! a device takes no virtual time, and when data come from outside is not the same in every run.

use crate::next::{Next, next};
use crate::state::{RUNNABLE, enter, leave, outside, simulation};
use crate::switch::{passing, system_call};
use crate::waiting::{Cause, TIMED, wait};
use libc::{c_int, c_void, nfds_t, pid_t, pollfd, size_t, socklen_t, ssize_t, timespec};
use std::sync::atomic::Ordering;
use std::time::Duration;
use uvfs_coherence::{TICKS_PER_CYCLE, Ticks};

/// Virtual time between two looks: from here, doubled up to there.
const FIRST_LOOK: Ticks = 20_000 * TICKS_PER_CYCLE;
const LAST_LOOK: Ticks = 2_600_000 * TICKS_PER_CYCLE;
/// The bytes that a pipe takes at once if it takes any.
const PIPE_BYTES: usize = 4096;

/// How a look ended.
enum Look {
    Ready,
    Not,
    Interrupted,
}

/// How long to wait while no descriptor is ready, in real milliseconds: not at all, a little, or without end.
fn patience() -> c_int {
    // ORDERING: Relaxed; both are changed by this thread only.
    match (RUNNABLE.load(Ordering::Relaxed), TIMED.load(Ordering::Relaxed)) {
        (0 | 1, 0) => -1,
        (0 | 1, _) => 1,
        _ => 0,
    }
}

/// Looks again and again until `look`, which may really wait for so many milliseconds, says that it is
/// ready, or the deadline comes. Behind the closed gate.
fn look_until(
    descriptor: c_int,
    deadline: Option<Ticks>,
    mut look: impl FnMut(c_int) -> Look,
) -> Look {
    let state = simulation();
    state.scheduler.get().advance(state.costs.system_call);
    let mut interval = FIRST_LOOK;
    let mut really = 0;
    loop {
        match look(really) {
            Look::Not => {}
            other => return other,
        }
        let now = simulation().scheduler.get().now();
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Look::Not;
        }
        let until = now + interval;
        interval = (interval * 2).min(LAST_LOOK);
        really = match (patience(), deadline) {
            // No other thread can run: virtual time stands still meanwhile, or jumps to the deadline.
            (-1, None) => -1,
            (_, Some(deadline)) if patience() != 0 => {
                let first = look(1);
                if !matches!(first, Look::Not) {
                    return first;
                }
                wait(Cause::Descriptor(descriptor), Some(until.min(deadline)), u32::MAX);
                0
            }
            (patience, deadline) => {
                let until = deadline.map_or(until, |deadline| until.min(deadline));
                wait(Cause::Descriptor(descriptor), Some(until), u32::MAX);
                patience.max(0)
            }
        };
    }
}

fn poll_now(descriptors: &mut [pollfd], milliseconds: c_int) -> i64 {
    let arguments =
        [descriptors.as_mut_ptr() as usize, descriptors.len(), milliseconds as usize, 0, 0, 0];
    // SAFETY: the kernel reads and writes that many records.
    let poll = || unsafe { system_call(libc::SYS_poll, arguments) };
    if milliseconds == 0 { poll() } else { outside(poll) }
}

fn look(descriptors: &mut [pollfd], milliseconds: c_int) -> Look {
    match poll_now(descriptors, milliseconds) {
        0 => Look::Not,
        error if error == -i64::from(libc::EINTR) => Look::Interrupted,
        // An error is the call's own to report.
        _ => Look::Ready,
    }
}

/// Waits until a descriptor is ready, unless its calls never wait. False: a signal came.
fn until_ready(descriptor: c_int, events: i16) -> bool {
    let mut one = [pollfd { fd: descriptor, events, revents: 0 }];
    if matches!(look(&mut one, 0), Look::Ready) {
        let state = simulation();
        state.scheduler.get().advance(state.costs.system_call);
        return true;
    }
    let arguments = [descriptor as usize, libc::F_GETFL as usize, 0, 0, 0, 0];
    // SAFETY: asks for flags.
    let flags = unsafe { system_call(libc::SYS_fcntl, arguments) };
    if flags < 0 || flags & i64::from(libc::O_NONBLOCK) != 0 {
        return true;
    }
    !matches!(look_until(descriptor, None, |real| look(&mut one, real)), Look::Interrupted)
}

/// Before a call on a descriptor: `Some(-1)` if a signal came meanwhile.
fn before(descriptor: c_int, events: i16) -> Option<ssize_t> {
    if !enter() {
        return None;
    }
    let ready = until_ready(descriptor, events);
    leave();
    (!ready).then(interrupted)
}

fn interrupted() -> ssize_t {
    // SAFETY: the running thread's own error number.
    unsafe { *libc::__errno_location() = libc::EINTR };
    -1
}

macro_rules! descriptor_calls {
    ($($name:ident $target:ident $text:literal $events:ident ($($argument:ident : $type:ty),*) -> $result:ty);* $(;)?) => { $(
        passing!($name => $target, Next::new($text));

        /// Interposed: other threads go first until the descriptor is ready.
        ///
        /// # Safety
        /// As the C library's function of this name: the buffers are as long as they are said to be.
        unsafe extern "C-unwind" fn $target(descriptor: c_int, $($argument: $type),*) -> $result {
            if let Some(result) = before(descriptor, libc::$events) {
                return result as $result;
            }
            // SAFETY: handed on as it came.
            unsafe { next!($text : (c_int, $($type),*) -> $result)(descriptor, $($argument),*) }
        }
    )* };
}

descriptor_calls!(
    read virtual_read c"read" POLLIN (buffer: *mut c_void, bytes: size_t) -> ssize_t;
    readv virtual_readv c"readv" POLLIN (pieces: *const libc::iovec, count: c_int) -> ssize_t;
    writev virtual_writev c"writev" POLLOUT (pieces: *const libc::iovec, count: c_int) -> ssize_t;
    recv virtual_recv c"recv" POLLIN (buffer: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t;
    recvfrom virtual_recvfrom c"recvfrom" POLLIN
        (buffer: *mut c_void, bytes: size_t, flags: c_int, from: *mut libc::sockaddr, length: *mut socklen_t) -> ssize_t;
    recvmsg virtual_recvmsg c"recvmsg" POLLIN (message: *mut libc::msghdr, flags: c_int) -> ssize_t;
    sendto virtual_sendto c"sendto" POLLOUT
        (buffer: *const c_void, bytes: size_t, flags: c_int, to: *const libc::sockaddr, length: socklen_t) -> ssize_t;
    sendmsg virtual_sendmsg c"sendmsg" POLLOUT (message: *const libc::msghdr, flags: c_int) -> ssize_t;
    accept virtual_accept c"accept" POLLIN (from: *mut libc::sockaddr, length: *mut socklen_t) -> c_int;
    accept4 virtual_accept4 c"accept4" POLLIN (from: *mut libc::sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
);

/// Whether a write of more than a pipe takes at once must be cut: into a pipe or a socket.
fn takes_pieces(descriptor: c_int) -> bool {
    // SAFETY: all zero is a valid record, which the kernel fills.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        if libc::fstat(descriptor, &mut status) != 0 {
            return false;
        }
        let kind = status.st_mode & libc::S_IFMT;
        let flags = libc::fcntl(descriptor, libc::F_GETFL);
        (kind == libc::S_IFIFO || kind == libc::S_IFSOCK) && flags & libc::O_NONBLOCK == 0
    }
}

passing!(write => virtual_write, Next::new(c"write"));

/// Interposed: as much at a time as surely does not wait.
///
/// # Safety
/// `buffer` is readable for `bytes` bytes.
unsafe extern "C-unwind" fn virtual_write(
    descriptor: c_int,
    buffer: *const c_void,
    bytes: size_t,
) -> ssize_t {
    let original = next!(c"write": (c_int, *const c_void, size_t) -> ssize_t);
    let pieces = crate::state::gate() == crate::state::OPEN
        && bytes > PIPE_BYTES
        && takes_pieces(descriptor);
    let mut done = 0;
    loop {
        if let Some(result) = before(descriptor, libc::POLLOUT) {
            return if done > 0 { done as ssize_t } else { result };
        }
        let piece = if pieces { (bytes - done).min(PIPE_BYTES) } else { bytes };
        // SAFETY: within the program's buffer.
        let result = unsafe { original(descriptor, buffer.byte_add(done), piece) };
        if result < 0 {
            return if done > 0 { done as ssize_t } else { result };
        }
        done += result as usize;
        if !pieces || done >= bytes || result == 0 {
            return done as ssize_t;
        }
    }
}

passing!(send => virtual_send, Next::new(c"send"));

/// Interposed: as `write`.
///
/// # Safety
/// `buffer` is readable for `bytes` bytes.
unsafe extern "C-unwind" fn virtual_send(
    descriptor: c_int,
    buffer: *const c_void,
    bytes: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: handed on with the same meaning.
    unsafe { virtual_sendto(descriptor, buffer, bytes, flags, std::ptr::null(), 0) }
}

/// A time limit in milliseconds, as a deadline; none for a negative one. Behind the closed gate.
fn deadline(milliseconds: c_int) -> Option<Ticks> {
    let stretch = Duration::from_millis(u64::try_from(milliseconds).ok()?);
    Some(simulation().scheduler.get().now() + crate::time::ticks(stretch))
}

fn poll_until(descriptors: &mut [pollfd], deadline: Option<Ticks>) -> Option<c_int> {
    let first = descriptors.first().map_or(-1, |one| one.fd);
    match look_until(first, deadline, |real| look(descriptors, real)) {
        Look::Interrupted => None,
        Look::Not => Some(0),
        Look::Ready => Some(poll_now(descriptors, 0) as c_int),
    }
}

/// # Safety
/// `descriptors` points to `count` records that no other thread uses during the call, or `count` is zero.
unsafe fn records<'a>(descriptors: *mut pollfd, count: nfds_t) -> &'a mut [pollfd] {
    if count == 0 {
        return &mut [];
    }
    // SAFETY: by the caller: the program's array.
    unsafe { std::slice::from_raw_parts_mut(descriptors, count as usize) }
}

fn result_of(result: Option<c_int>) -> c_int {
    match result {
        None => interrupted() as c_int,
        Some(result) if result >= 0 => result,
        Some(error) => {
            // SAFETY: the running thread's own error number.
            unsafe { *libc::__errno_location() = -error };
            -1
        }
    }
}

passing!(poll => virtual_poll, Next::new(c"poll"));

/// Interposed.
///
/// # Safety
/// `descriptors` points to `count` records.
unsafe extern "C-unwind" fn virtual_poll(
    descriptors: *mut pollfd,
    count: nfds_t,
    milliseconds: c_int,
) -> c_int {
    if !enter() {
        // SAFETY: handed on as it came.
        return unsafe {
            next!(c"poll": (*mut pollfd, nfds_t, c_int) -> c_int)(descriptors, count, milliseconds)
        };
    }
    // SAFETY: the program's array.
    let result = poll_until(unsafe { records(descriptors, count) }, deadline(milliseconds));
    leave();
    result_of(result)
}

passing!(ppoll => virtual_ppoll, Next::new(c"ppoll"));

/// Interposed. The signal mask is set only around a call that finds something at once.
///
/// # Safety
/// As [`virtual_poll`]; `timeout` and `mask` are null or readable.
unsafe extern "C-unwind" fn virtual_ppoll(
    descriptors: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    if mask.is_null() && enter() {
        // SAFETY: the program's array and time.
        let result =
            unsafe { poll_until(records(descriptors, count), crate::time::after(timeout)) };
        leave();
        return result_of(result);
    }
    // SAFETY: handed on as it came.
    unsafe {
        next!(c"ppoll": (*mut pollfd, nfds_t, *const timespec, *const libc::sigset_t) -> c_int)(
            descriptors,
            count,
            timeout,
            mask,
        )
    }
}

passing!(select => virtual_select, Next::new(c"select"));

/// Interposed.
///
/// # Safety
/// Each set is null or has `count` bits; `timeout` is null or readable.
unsafe extern "C-unwind" fn virtual_select(
    count: c_int,
    reads: *mut libc::fd_set,
    writes: *mut libc::fd_set,
    errors: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    type Sets = *mut libc::fd_set;
    let original = next!(c"select": (c_int, Sets, Sets, Sets, *mut libc::timeval) -> c_int);
    // Larger sets are not read here: the master then waits in the kernel.
    if count <= libc::FD_SETSIZE as c_int && enter() {
        // SAFETY: the program's sets, which are read here and written by the call below.
        let result = unsafe {
            let deadline = (!timeout.is_null()).then(|| {
                let stretch = Duration::from_secs((*timeout).tv_sec.max(0) as u64)
                    + Duration::from_micros((*timeout).tv_usec.max(0) as u64);
                simulation().scheduler.get().now() + crate::time::ticks(stretch)
            });
            let mut wanted = Vec::new();
            for descriptor in 0..count {
                let mut events = 0;
                for (set, event) in
                    [(reads, libc::POLLIN), (writes, libc::POLLOUT), (errors, libc::POLLPRI)]
                {
                    if !set.is_null() && libc::FD_ISSET(descriptor, set) {
                        events |= event;
                    }
                }
                if events != 0 {
                    wanted.push(pollfd { fd: descriptor, events, revents: 0 });
                }
            }
            poll_until(&mut wanted, deadline)
        };
        leave();
        if result.is_none() {
            return interrupted() as c_int;
        }
        let mut none = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: the program's sets; nothing is waited for any more.
        return unsafe { original(count, reads, writes, errors, &mut none) };
    }
    // SAFETY: handed on as it came.
    unsafe { original(count, reads, writes, errors, timeout) }
}

passing!(epoll_pwait => virtual_epoll_pwait, Next::new(c"epoll_pwait"));

/// Interposed.
///
/// # Safety
/// `events` has room for `most`; `mask` is null or readable.
unsafe extern "C-unwind" fn virtual_epoll_pwait(
    queue: c_int,
    events: *mut libc::epoll_event,
    most: c_int,
    milliseconds: c_int,
    mask: *const libc::sigset_t,
) -> c_int {
    let original = next!(c"epoll_pwait": (c_int, *mut libc::epoll_event, c_int, c_int, *const libc::sigset_t) -> c_int);
    let mut milliseconds = milliseconds;
    if enter() {
        // The queue itself is readable when it has an event.
        let mut one = [pollfd { fd: queue, events: libc::POLLIN, revents: 0 }];
        let result = poll_until(&mut one, deadline(milliseconds));
        leave();
        if result.is_none() {
            return interrupted() as c_int;
        }
        milliseconds = 0;
    }
    // SAFETY: handed on; in a simulated run nothing is waited for any more.
    unsafe { original(queue, events, most, milliseconds, mask) }
}

passing!(epoll_wait => virtual_epoll_wait, Next::new(c"epoll_wait"));

/// Interposed.
///
/// # Safety
/// `events` has room for `most`.
unsafe extern "C-unwind" fn virtual_epoll_wait(
    queue: c_int,
    events: *mut libc::epoll_event,
    most: c_int,
    milliseconds: c_int,
) -> c_int {
    // SAFETY: the same without a mask.
    unsafe { virtual_epoll_pwait(queue, events, most, milliseconds, std::ptr::null()) }
}

passing!(wait4 => virtual_wait4, Next::new(c"wait4"));

/// Interposed: other threads go first until the child has ended.
///
/// # Safety
/// `status` and `usage` are null or writable.
unsafe extern "C-unwind" fn virtual_wait4(
    child: pid_t,
    status: *mut c_int,
    options: c_int,
    usage: *mut libc::rusage,
) -> pid_t {
    let original = next!(c"wait4": (pid_t, *mut c_int, c_int, *mut libc::rusage) -> pid_t);
    if options & libc::WNOHANG != 0 || !enter() {
        // SAFETY: handed on as it came.
        return unsafe { original(child, status, options, usage) };
    }
    let mut found = 0;
    let ended = look_until(-1, None, |real| {
        // SAFETY: the program's arguments. Where no other thread can run, this really waits.
        found = unsafe {
            if real > 0 {
                poll_now(&mut [], real);
            }
            if real < 0 {
                outside(|| original(child, status, options, usage))
            } else {
                original(child, status, options | libc::WNOHANG, usage)
            }
        };
        if found == 0 { Look::Not } else { Look::Ready }
    });
    leave();
    if matches!(ended, Look::Ready) { found } else { interrupted() as pid_t }
}

passing!(waitpid => virtual_waitpid, Next::new(c"waitpid"));

/// Interposed.
///
/// # Safety
/// `status` is null or writable.
unsafe extern "C-unwind" fn virtual_waitpid(
    child: pid_t,
    status: *mut c_int,
    options: c_int,
) -> pid_t {
    // SAFETY: the same without a usage.
    unsafe { virtual_wait4(child, status, options, std::ptr::null_mut()) }
}

passing!(waitid => virtual_waitid, Next::new(c"waitid"));

/// Interposed.
///
/// # Safety
/// `info` is null or writable.
unsafe extern "C-unwind" fn virtual_waitid(
    kind: libc::idtype_t,
    child: libc::id_t,
    info: *mut libc::siginfo_t,
    options: c_int,
) -> c_int {
    let original =
        next!(c"waitid": (libc::idtype_t, libc::id_t, *mut libc::siginfo_t, c_int) -> c_int);
    if options & libc::WNOHANG == 0 && enter() {
        look_until(-1, None, |real| {
            // SAFETY: all zero is a valid record; the state is left for the call below.
            unsafe {
                if real > 0 {
                    poll_now(&mut [], real);
                }
                let mut seen: libc::siginfo_t = std::mem::zeroed();
                let options = options | libc::WNOWAIT;
                let result = if real < 0 {
                    outside(|| original(kind, child, &mut seen, options))
                } else {
                    original(kind, child, &mut seen, options | libc::WNOHANG)
                };
                if result == 0 && seen.si_signo == 0 { Look::Not } else { Look::Ready }
            }
        });
        leave();
    }
    // SAFETY: handed on as it came.
    unsafe { original(kind, child, info, options) }
}

passing!(sigwait => virtual_sigwait, Next::new(c"sigwait"));

/// Interposed: other threads go first until the signal is there.
///
/// # Safety
/// `set` is readable, `signal` writable.
unsafe extern "C-unwind" fn virtual_sigwait(
    set: *const libc::sigset_t,
    signal: *mut c_int,
) -> c_int {
    let original = next!(c"sigwait": (*const libc::sigset_t, *mut c_int) -> c_int);
    let timed = next!(c"sigtimedwait": (*const libc::sigset_t, *mut libc::siginfo_t, *const timespec) -> c_int);
    if enter() {
        let mut found = 0;
        look_until(-1, None, |real| {
            let time = timespec {
                tv_sec: if real < 0 { 3600 } else { 0 },
                tv_nsec: i64::from(real.max(0)) * 1_000_000,
            };
            // SAFETY: the program's set.
            found = outside(|| unsafe { timed(set, std::ptr::null_mut(), &time) });
            if found > 0 { Look::Ready } else { Look::Not }
        });
        leave();
        // SAFETY: the program gave room for it.
        unsafe { *signal = found };
        return 0;
    }
    // SAFETY: handed on as it came.
    unsafe { original(set, signal) }
}
