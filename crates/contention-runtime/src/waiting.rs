//! Threads that wait: for an address of the program, in the order in which they came.
//!
//! # Boundary
//! Queues and the blocking itself. The users of an address know its meaning: futexes, mutexes, conditions.
//!
//! # Concurrency
//! As [`crate::state`]. W1: a waiting thread is in exactly one queue, and the waker takes it out. A thread
//! whose deadline passed takes itself out when it runs. A waker may find it still queued and skips it,
//! since the scheduler says that it no longer blocks.
//!
//! # Why
//! First come, first served, as the kernel's futex. Weakness: priorities are not looked at.

use crate::state::{RUNNABLE, Table, simulation};
use crate::threads::run_next;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use uvfs_coherence::Ticks;

/// The cause of a thread's wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Cause {
    Futex(u64),
    Mutex(u64),
    Reader(u64),
    Writer(u64),
    Condition(u64),
    Barrier(u64),
    Once(u64),
    Semaphore(u64),
    Join(usize),
    Sleep,
    /// A descriptor, in a call of this name.
    Descriptor(i32),
    /// For ever: the first thread after `pthread_exit`.
    Others,
}

impl Cause {
    /// For a message.
    pub(crate) fn describe(self) -> (&'static str, u64) {
        match self {
            Self::Futex(address) => ("futex", address),
            Self::Mutex(address) => ("mutex", address),
            Self::Reader(address) => ("rwlock, to read,", address),
            Self::Writer(address) => ("rwlock, to write,", address),
            Self::Condition(address) => ("condition variable", address),
            Self::Barrier(address) => ("barrier", address),
            Self::Once(address) => ("once", address),
            Self::Semaphore(address) => ("semaphore", address),
            Self::Join(thread) => ("the end of thread", thread as u64),
            Self::Sleep => ("a deadline", 0),
            Self::Descriptor(descriptor) => ("descriptor", descriptor as u64),
            Self::Others => ("the end of all others", 0),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Waiter {
    thread: usize,
    mask: u32,
}

/// The queues.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    queues: Table<Cause, VecDeque<Waiter>>,
}

impl Queues {
    fn leave(&mut self, cause: Cause, thread: usize) {
        if let Some(queue) = self.queues.get_mut(&cause) {
            queue.retain(|waiter| waiter.thread != thread);
            if queue.is_empty() {
                self.queues.remove(&cause);
            }
        }
    }

    /// How many wait.
    pub(crate) fn count(&self, cause: Cause) -> usize {
        self.queues.get(&cause).map_or(0, VecDeque::len)
    }
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    ByAnother,
    ByDeadline,
}

/// The current thread waits. Behind the closed gate.
pub(crate) fn wait(cause: Cause, until: Option<Ticks>, mask: u32) -> Woken {
    let state = simulation();
    let thread = state.scheduler.get().current();
    state.thread(thread).cause.set(Some(cause));
    state.waiting.get().queues.entry(cause).or_default().push_back(Waiter { thread, mask });
    state.scheduler.get().block(until);
    count_runnable(-1);
    if until.is_some() {
        count_timed(1);
    }
    run_next();
    if until.is_some() {
        count_timed(-1);
    }
    let state = simulation();
    // Another queue, perhaps, than the one it went into (`move_waiters`).
    let cause = state.thread(thread).cause.take().unwrap_or(cause);
    let timed_out = state.scheduler.get().timed_out(thread);
    if timed_out {
        count_runnable(1);
        state.waiting.get().leave(cause, thread);
        Woken::ByDeadline
    } else {
        Woken::ByAnother
    }
}

/// Wakes up to `most` of those that wait with a bit of `mask`, after the latency of a wake-up.
pub(crate) fn wake(cause: Cause, most: usize, mask: u32) -> usize {
    let state = simulation();
    let at = state.scheduler.get().now() + state.costs.wake_latency;
    let mut waiting = state.waiting.get();
    let Some(queue) = waiting.queues.get_mut(&cause) else { return 0 };
    let mut woken = 0;
    let mut index = 0;
    while woken < most && index < queue.len() {
        if queue[index].mask & mask == 0 {
            index += 1;
            continue;
        }
        if let Some(waiter) = queue.remove(index) {
            // False: its deadline has passed, it only has not run since (W1).
            if state.scheduler.get().wake(waiter.thread, at) {
                woken += 1;
                count_runnable(1);
            }
        }
    }
    if queue.is_empty() {
        waiting.queues.remove(&cause);
    }
    woken
}

/// Moves up to `most` of those that wait for one thing to the queue of another.
pub(crate) fn move_waiters(from: Cause, to: Cause, most: usize) -> usize {
    let state = simulation();
    let mut waiting = state.waiting.get();
    let Some(mut queue) = waiting.queues.remove(&from) else { return 0 };
    let count = most.min(queue.len());
    let rest = queue.split_off(count);
    for waiter in &queue {
        state.thread(waiter.thread).cause.set(Some(to));
    }
    waiting.queues.entry(to).or_default().extend(queue);
    if !rest.is_empty() {
        waiting.queues.insert(from, rest);
    }
    count
}

pub(crate) fn count_runnable(change: i32) {
    // ORDERING: Relaxed; only the master changes it, and the watchdog reads a number.
    let now = RUNNABLE.load(Ordering::Relaxed).wrapping_add_signed(change);
    RUNNABLE.store(now, Ordering::Relaxed);
}

/// Threads that wait with a deadline, which have not run since; for [`crate::io`].
pub(crate) static TIMED: AtomicU32 = AtomicU32::new(0);

fn count_timed(change: i32) {
    // ORDERING: Relaxed; only the master changes and reads it.
    let now = TIMED.load(Ordering::Relaxed).wrapping_add_signed(change);
    TIMED.store(now, Ordering::Relaxed);
}
