//! Advisory locks: POSIX record locks and BSD `flock`.
//!
//! # Boundary
//! Decides which owner holds which range of one file, for users of the in-process API. A FUSE mount
//! leaves advisory locks to the kernel, which sees every user of that mount (docs/semantics.md).
//!
//! # Concurrency
//! One lock and one condition variable per file that has ever been locked. A waiter sleeps with no
//! lock of ours but its own file's. A deadlock among POSIX locks is found before sleeping, by
//! following the edges from waiters to holders (fcntl(2), EDEADLK). The thread that frees a range
//! removes the edges of that file's waiters. So a waiter that was woken and has not run yet has no
//! edge. It adds an edge again if it finds another conflict.
//!
//! # Why
//! A sorted list per file: files have few locks. Bad at: thousands of ranges in one file, which are
//! searched linearly.

use crate::error::{Error, Result};
use crate::lock_order;
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use uvfs_concurrent::lock::{Condvar, Mutex};

/// The holder of a lock: one per process for POSIX locks, one per open file for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockOwner(pub u64);

/// Shared or exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Several owners may hold it together.
    Shared,
    /// One owner alone.
    Exclusive,
}

/// The behaviour when another owner holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWait {
    /// Fail with [`Error::WouldBlock`].
    No,
    /// Sleep until it is free; [`Error::Deadlock`] if that cannot happen.
    Yes,
}

/// A range of bytes, `end` not included; `u64::MAX` is "to the end of any file".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl LockRange {
    /// Every byte.
    pub const ALL: Self = Self { start: 0, end: u64::MAX };

    fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// A held record lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Owner of the lock.
    pub owner: LockOwner,
    /// Kind of the lock.
    pub kind: LockKind,
    /// Range of the lock.
    pub range: LockRange,
}

/// All advisory locks of one file.
#[derive(Debug)]
pub(crate) struct AdvisoryLocks {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    records: Vec<Held>,
    whole: HashMap<LockOwner, LockKind>,
    /// Threads that wait for a record lock.
    waiters: usize,
}

impl Default for AdvisoryLocks {
    fn default() -> Self {
        Self {
            state: Mutex::new(&lock_order::INODE_LOCKS, State::default()),
            freed: Condvar::default(),
        }
    }
}

impl AdvisoryLocks {
    /// Sets a record lock on `range`, replacing the owner's earlier locks there (as `F_SETLK[W]`).
    pub(crate) fn lock(
        &self,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
        wait: LockWait,
    ) -> Result<()> {
        if range.start >= range.end {
            return Err(Error::Invalid("the range of the lock is empty"));
        }
        let mut state = self.state.lock();
        loop {
            let holders: Vec<_> =
                state.conflicts(owner, kind, range).map(|held| held.owner).collect();
            if holders.is_empty() {
                break;
            }
            if wait == LockWait::No {
                return Err(Error::WouldBlock);
            }
            let edge = waits().lock().begin(self.address(), owner, holders)?;
            state.waiters += 1;
            self.freed.wait(&mut state);
            state.waiters -= 1;
            waits().lock().edges.retain(|waiting| waiting.id != edge);
        }
        state.carve(owner, range);
        state.records.push(Held { owner, kind, range });
        // A downgrade or a split may remove a conflict of others.
        self.wake_waiters(&state);
        Ok(())
    }

    /// Releases the owner's record locks within `range`.
    pub(crate) fn unlock(&self, owner: LockOwner, range: LockRange) {
        let mut state = self.state.lock();
        state.carve(owner, range);
        self.wake_waiters(&state);
    }

    /// Wakes the threads that wait for a record lock. They check for conflicts again, so their
    /// edges are removed now: the caller may request one of their locks before they have run.
    fn wake_waiters(&self, state: &State) {
        if state.waiters > 0 {
            let file = self.address();
            waits().lock().edges.retain(|waiting| waiting.file != file);
        }
        self.freed.notify_all();
    }

    /// Identifies this file in the process, for as long as a thread waits for it.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The first record lock that conflicts with the owner's request (as `F_GETLK`).
    pub(crate) fn test(&self, owner: LockOwner, kind: LockKind, range: LockRange) -> Option<Held> {
        self.state.lock().conflicts(owner, kind, range).next().copied()
    }

    /// Locks the whole file as `flock(2)` does: independent of record locks.
    pub(crate) fn lock_whole(
        &self,
        owner: LockOwner,
        kind: LockKind,
        wait: LockWait,
    ) -> Result<()> {
        let mut state = self.state.lock();
        // A conversion releases the old lock first, as flock(2) warns.
        if state.whole.get(&owner).is_some_and(|&old| old != kind) {
            state.whole.remove(&owner);
            self.freed.notify_all();
        }
        while state.whole.iter().any(|(&other, &held)| {
            other != owner && (kind == LockKind::Exclusive || held == LockKind::Exclusive)
        }) {
            if wait == LockWait::No {
                return Err(Error::WouldBlock);
            }
            self.freed.wait(&mut state);
        }
        state.whole.insert(owner, kind);
        Ok(())
    }

    /// Releases the owner's `flock`.
    pub(crate) fn unlock_whole(&self, owner: LockOwner) {
        self.state.lock().whole.remove(&owner);
        self.freed.notify_all();
    }
}

impl State {
    fn conflicts(
        &self,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
    ) -> impl Iterator<Item = &Held> {
        self.records.iter().filter(move |held| {
            held.owner != owner
                && held.range.overlaps(range)
                && (kind == LockKind::Exclusive || held.kind == LockKind::Exclusive)
        })
    }

    /// Removes `range` from the locks of `owner`, splitting records that reach beyond it.
    fn carve(&mut self, owner: LockOwner, range: LockRange) {
        let mut rest = Vec::new();
        self.records.retain(|held| {
            if held.owner != owner || !held.range.overlaps(range) {
                return true;
            }
            let before = LockRange { start: held.range.start, end: range.start };
            let after = LockRange { start: range.end, end: held.range.end };
            for part in [before, after] {
                if part.start < part.end {
                    rest.push(Held { range: part, ..*held });
                }
            }
            false
        });
        self.records.append(&mut rest);
    }
}

/// The threads that wait for a record lock of any file, and the owners that each waits for.
#[derive(Debug, Default)]
struct Waits {
    edges: Vec<Edge>,
    last_id: u64,
}

#[derive(Debug)]
struct Edge {
    id: u64,
    file: usize,
    owner: LockOwner,
    /// Several, if a lock is shared.
    holders: Vec<LockOwner>,
}

impl Waits {
    /// A thread of `owner` begins to wait for `holders`. Returns the id of its edge.
    fn begin(&mut self, file: usize, owner: LockOwner, holders: Vec<LockOwner>) -> Result<u64> {
        let (mut pending, mut seen) = (holders.clone(), HashSet::new());
        while let Some(at) = pending.pop() {
            if at == owner {
                return Err(Error::Deadlock);
            }
            if seen.insert(at) {
                let waiting = self.edges.iter().filter(|edge| edge.owner == at);
                pending.extend(waiting.flat_map(|edge| &edge.holders));
            }
        }
        self.last_id += 1;
        self.edges.push(Edge { id: self.last_id, file, owner, holders });
        Ok(self.last_id)
    }
}

fn waits() -> &'static Mutex<Waits> {
    static WAITS: OnceLock<Mutex<Waits>> = OnceLock::new();
    WAITS.get_or_init(|| Mutex::new(&lock_order::LOCK_WAITS, Waits::default()))
}

/// Whether `owner` waits for an advisory lock of any file system in this process now.
pub fn waits_for_lock(owner: LockOwner) -> bool {
    waits().lock().edges.iter().any(|edge| edge.owner == owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    const A: LockOwner = LockOwner(901);
    const B: LockOwner = LockOwner(902);

    fn range(start: u64, end: u64) -> LockRange {
        LockRange { start, end }
    }

    #[test]
    fn ranges_split_and_only_overlaps_conflict() {
        let locks = AdvisoryLocks::default();
        locks.lock(A, LockKind::Exclusive, range(0, 100), LockWait::No).unwrap();
        locks.unlock(A, range(40, 60));
        assert!(locks.lock(B, LockKind::Exclusive, range(40, 60), LockWait::No).is_ok());
        let refused = locks.lock(B, LockKind::Shared, range(39, 41), LockWait::No);
        assert!(matches!(refused, Err(Error::WouldBlock)));
        assert_eq!(locks.test(B, LockKind::Shared, range(60, 61)).unwrap().range, range(60, 100));
        assert!(locks.lock(A, LockKind::Shared, range(0, 40), LockWait::No).is_ok(), "downgrade");
        assert!(locks.lock(B, LockKind::Shared, range(0, 40), LockWait::No).is_ok());
        assert!(matches!(
            locks.lock(A, LockKind::Shared, range(5, 5), LockWait::No),
            Err(Error::Invalid(_))
        ));
    }

    #[test]
    fn a_waiter_gets_the_lock_when_it_is_freed() {
        let locks = Arc::new(AdvisoryLocks::default());
        let (a, b) = (LockOwner(911), LockOwner(912));
        locks.lock(a, LockKind::Exclusive, LockRange::ALL, LockWait::No).unwrap();
        let other = locks.clone();
        let waiter = std::thread::spawn(move || {
            other.lock(b, LockKind::Exclusive, range(7, 8), LockWait::Yes)
        });
        std::thread::sleep(Duration::from_millis(30));
        assert!(!waiter.is_finished());
        locks.unlock(a, LockRange::ALL);
        waiter.join().unwrap().unwrap();
    }

    #[test]
    fn a_deadlock_is_refused_instead_of_slept_through() {
        let locks = Arc::new(AdvisoryLocks::default());
        let (a, b) = (LockOwner(921), LockOwner(922));
        locks.lock(a, LockKind::Exclusive, range(0, 1), LockWait::No).unwrap();
        locks.lock(b, LockKind::Exclusive, range(1, 2), LockWait::No).unwrap();
        let other = locks.clone();
        let waiter = std::thread::spawn(move || {
            other.lock(b, LockKind::Exclusive, range(0, 1), LockWait::Yes)
        });
        while !waits_for_lock(b) {
            std::thread::yield_now();
        }
        let refused = locks.lock(a, LockKind::Exclusive, range(1, 2), LockWait::Yes);
        assert!(matches!(refused, Err(Error::Deadlock)));
        locks.unlock(a, LockRange::ALL);
        waiter.join().unwrap().unwrap();
    }

    /// The first owner frees the lock that the second waits for, and requests the lock that the
    /// second holds. It got a deadlock error while the second had been woken and had not run. Here,
    /// a waiter that never runs represents the second.
    #[test]
    fn a_woken_waiter_is_no_part_of_a_deadlock() {
        let locks = AdvisoryLocks::default();
        let (a, b) = (LockOwner(931), LockOwner(932));
        locks.lock(a, LockKind::Exclusive, range(0, 1), LockWait::No).unwrap();
        locks.state.lock().waiters += 1;
        waits().lock().begin(locks.address(), b, vec![a]).unwrap();
        let asks = || waits().lock().begin(locks.address(), a, vec![b]);
        assert!(matches!(asks(), Err(Error::Deadlock)), "the second waits for the first");
        locks.unlock(a, range(0, 1));
        let edge = asks().expect("the second waits for no owner");
        waits().lock().edges.retain(|waiting| waiting.id != edge);
    }

    #[test]
    fn whole_file_locks_are_shared_or_exclusive() {
        let locks = AdvisoryLocks::default();
        locks.lock_whole(A, LockKind::Shared, LockWait::No).unwrap();
        locks.lock_whole(B, LockKind::Shared, LockWait::No).unwrap();
        let upgrade = locks.lock_whole(A, LockKind::Exclusive, LockWait::No);
        assert!(matches!(upgrade, Err(Error::WouldBlock)));
        locks.unlock_whole(B);
        assert!(locks.lock_whole(A, LockKind::Exclusive, LockWait::No).is_ok());
        assert!(matches!(
            locks.lock_whole(B, LockKind::Shared, LockWait::No),
            Err(Error::WouldBlock)
        ));
    }
}
