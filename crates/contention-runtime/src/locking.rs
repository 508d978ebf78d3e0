//! The input of the lock statistics, and how their records find their objects.
//!
//! # Boundary
//! Between the calls that see a lock (atomics, futexes, pthread) and [`uvfs_coherence::locks`].
//!
//! # Concurrency
//! As [`crate::state`].
//!
//! # Why
//! The statistics know addresses only, as the samples do, so they are taken out in the same way. Weakness:
//! locks of freed objects that are added up lose their own shortest and longest waits' object.

use crate::access::{bytes_of, operation_of, ordering_of};
use crate::state::simulation;
use crate::threads::current;
use uvfs_coherence::Ticks;
use uvfs_coherence::locks::{Event, Locks};
use uvfs_coherence::profile::{Lock, LockKind, Operation};

/// The statistics of a run.
pub(crate) struct Locking {
    locks: Locks,
    /// At the end: all that is left, by address.
    left: Option<Vec<Lock>>,
}

impl Locking {
    pub(crate) fn new() -> Self {
        Self { locks: Locks::new(), left: None }
    }
}

/// An access of the current thread that began at `begin` and ends now.
fn event(address: u64, bytes: u32, site: u32, begin: Ticks) -> Event {
    let scheduler = simulation().scheduler.get();
    Event {
        address,
        bytes,
        thread: scheduler.current() as u32,
        core: scheduler.current_core() as u32,
        site,
        begin,
        end: scheduler.now(),
        accesses: current().accesses.get(),
    }
}

/// An atomic access found `old` and left `new`; `success` is false for a compare-exchange that left it.
#[inline]
pub(crate) fn observe(address: u64, kind: u32, site: u32, old: u64, new: u64, success: bool) {
    let event = event(address, bytes_of(kind), site, current().last_begin.get());
    let locks = &mut simulation().locking.get().locks;
    match operation_of(kind) {
        Operation::AtomicLoad => locks.load(&event, old),
        operation => locks.update(&event, operation, ordering_of(kind), old, new, success),
    }
}

/// The current thread slept on a futex since `begin`, because it held `value`.
pub(crate) fn slept(address: u64, value: u32, begin: Ticks) {
    let event = event(address, 4, current().last_site.get(), begin);
    simulation().locking.get().locks.futex_wait(&event, u64::from(value));
}

/// The current thread has taken a pthread lock; the call began at `begin`.
pub(crate) fn acquired(kind: LockKind, address: u64, site: u32, begin: Ticks, contended: bool) {
    let event = event(address, 4, site, begin);
    simulation().locking.get().locks.pthread_acquired(kind, &event, contended);
}

/// The current thread continues behind a condition, a barrier or a semaphore; the call began at `begin`.
pub(crate) fn went_on(kind: LockKind, address: u64, site: u32, begin: Ticks, waited: bool) {
    acquired(kind, address, site, begin, waited);
}

/// The current thread lets a pthread lock go.
pub(crate) fn released(kind: LockKind, address: u64, site: u32) {
    let now = simulation().scheduler.get().now();
    let event = event(address, 4, site, now);
    simulation().locking.get().locks.pthread_released(kind, &event);
}

/// Takes out the locks of a range of memory, with their offsets from its start.
pub(crate) fn take(start: u64, bytes: u64) -> Vec<Lock> {
    if bytes == 0 {
        return Vec::new();
    }
    let state = simulation();
    let locking = &mut *state.locking.get();
    let mut found = match &mut locking.left {
        None => locking.locks.take(state.configuration.seed, start, bytes),
        Some(left) => {
            let first = left.partition_point(|lock| lock.offset < start);
            let end = left.partition_point(|lock| lock.offset < start.saturating_add(bytes));
            left.drain(first..end).collect()
        }
    };
    for lock in &mut found {
        lock.offset -= start;
    }
    found
}

/// At the end: addresses of the locks that are left, in order.
pub(crate) fn places() -> Vec<u64> {
    let state = simulation();
    let Locking { locks, left } = &mut *state.locking.get();
    let left = left.get_or_insert_with(|| {
        let locks = std::mem::take(locks);
        let mut left = locks.into_records(state.configuration.seed);
        left.sort_by_key(|lock| lock.offset);
        left
    });
    left.iter().map(|lock| lock.offset).collect()
}

/// Adds a lock to those of an object that stands for several.
pub(crate) fn merge(locks: &mut Vec<Lock>, more: Lock) {
    let same = |known: &&mut Lock| known.offset == more.offset && known.kind == more.kind;
    let Some(known) = locks.iter_mut().find(same) else {
        locks.push(more);
        return;
    };
    let least = |known_count: u64, known: u64, count: u64, other: u64| match (known_count, count) {
        (0, _) => other,
        (_, 0) => known,
        _ => known.min(other),
    };
    known.wait_min = least(known.contended, known.wait_min, more.contended, more.wait_min);
    known.hold_min = least(known.acquisitions, known.hold_min, more.acquisitions, more.hold_min);
    known.acquisitions += more.acquisitions;
    known.contended += more.contended;
    known.bounces += more.bounces;
    known.wait_total += more.wait_total;
    known.wait_max = known.wait_max.max(more.wait_max);
    known.hold_total += more.hold_total;
    known.hold_max = known.hold_max.max(more.hold_max);
    for (site, count) in more.waiters {
        crate::samples::tally(&mut known.waiters, site, count);
    }
    known.waiters.sort_by_key(|waiter| std::cmp::Reverse(waiter.1));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(contended: u64, wait: u64) -> Lock {
        Lock {
            seed: 1,
            object: 0,
            offset: 8,
            kind: LockKind::Word,
            acquisitions: 10,
            contended,
            bounces: 1,
            wait_total: contended * wait,
            wait_min: wait,
            wait_max: wait,
            hold_total: 100,
            hold_min: 10,
            hold_max: 10,
            waiters: vec![(4, contended)],
        }
    }

    #[test]
    fn locks_of_one_kind_are_added_up() {
        let mut locks = Vec::new();
        for more in [lock(0, 0), lock(2, 50), lock(1, 70)] {
            merge(&mut locks, more);
        }
        assert_eq!(locks.len(), 1);
        let all = &locks[0];
        assert_eq!((all.acquisitions, all.contended, all.wait_total), (30, 3, 170));
        assert_eq!((all.wait_min, all.wait_max, all.hold_min), (50, 70, 10));
        assert_eq!(all.waiters, [(4, 3)]);
        merge(&mut locks, Lock { offset: 16, ..lock(0, 0) });
        assert_eq!(locks.len(), 2);
    }
}
