//! The gate of one file's pages: many threads inside, or one alone.
//!
//! # Boundary
//! Only admits threads. The matrix in [`super`] lists the operations that exclude each other.
//!
//! # Concurrency
//! Being inside is a state, not a lock: a thread keeps it across calls to the store, and waiters sleep. The lock of the
//! state is held for a moment. A thread must not enter the gate twice: it would wait for the exclusive holder, which
//! waits for it.
//!
//! # Why
//! A truncate must not overlap a fill that asked the store for the old end, nor a run that is being written behind the
//! new one. Linux has `i_rwsem` and `invalidate_lock` for that. Here fills and writes of different pages run side by
//! side, and only those that move the end of the file take turns. A thread that waits to be alone keeps newcomers out.
//! After it, the threads that waited meanwhile enter before the next exclusive holder, so neither side starves the
//! other. Weakness: an exclusive holder waits for the slowest fill.

use crate::lock_order;
use uvfs_concurrent::lock::{Condvar, Mutex};

/// See the module.
#[derive(Debug)]
pub(crate) struct FileGate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    inside: u32,
    alone: bool,
    /// Threads that wait to be alone. They keep newcomers out.
    wanting: u32,
    /// Threads that wait to enter beside others.
    waiting: u32,
    /// The number of them that enter before the next exclusive holder.
    let_in: u32,
    extending: bool,
}

/// Inside, beside others. Until dropped.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a FileGate);

/// Inside, alone. Until dropped.
#[derive(Debug)]
pub(crate) struct Alone<'a>(&'a FileGate);

/// The only thread that moves the end of the file. Until dropped.
#[derive(Debug)]
pub(crate) struct Extending<'a>(&'a FileGate);

impl FileGate {
    pub(crate) fn new() -> Self {
        let state = Mutex::new(&lock_order::FILE_GATE, State::default());
        Self { state, changed: Condvar::default() }
    }

    /// Enters beside others: to fill, write, or write back.
    pub(crate) fn enter(&self) -> Inside<'_> {
        let mut state = self.state.lock();
        state.waiting += 1;
        while state.alone || (state.wanting > 0 && state.let_in == 0) {
            self.changed.wait(&mut state);
        }
        state.waiting -= 1;
        state.let_in = state.let_in.saturating_sub(1);
        state.inside += 1;
        Inside(self)
    }

    /// Like [`FileGate::enter`], if that is possible at once.
    pub(crate) fn try_enter(&self) -> Option<Inside<'_>> {
        let mut state = self.state.lock();
        if state.alone || state.wanting > 0 {
            return None;
        }
        state.inside += 1;
        Some(Inside(self))
    }

    /// Enters when no other thread is inside, and keeps others out: to cut, punch, or let the store change the file
    /// itself.
    pub(crate) fn enter_alone(&self) -> Alone<'_> {
        let mut state = self.state.lock();
        state.wanting += 1;
        while state.alone || state.inside > 0 || state.let_in > 0 {
            self.changed.wait(&mut state);
        }
        state.wanting -= 1;
        state.alone = true;
        Alone(self)
    }
}

impl FileGate {
    /// Like [`FileGate::enter_alone`], if no thread is inside now or is to enter next.
    pub(crate) fn try_enter_alone(&self) -> Option<Alone<'_>> {
        let mut state = self.state.lock();
        if state.alone || state.inside > 0 || state.let_in > 0 {
            return None;
        }
        state.alone = true;
        Some(Alone(self))
    }
}

impl<'a> Inside<'a> {
    /// Waits until no other thread moves the end of the file.
    pub(crate) fn extend(&self) -> Extending<'a> {
        let mut state = self.0.state.lock();
        while state.extending {
            self.0.changed.wait(&mut state);
        }
        state.extending = true;
        Extending(self.0)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.inside -= 1;
        if state.inside == 0 && state.wanting > 0 {
            drop(state);
            self.0.changed.notify_all();
        }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.alone = false;
        state.let_in = state.waiting;
        drop(state);
        self.0.changed.notify_all();
    }
}

impl Drop for Extending<'_> {
    fn drop(&mut self) {
        self.0.state.lock().extending = false;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

    #[test]
    fn one_alone_meets_no_other_and_newcomers_wait_for_it() {
        let (gate, alone, inside) = (FileGate::new(), AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let _inside = gate.enter();
                        inside.fetch_add(1, SeqCst);
                        assert!(!alone.load(SeqCst));
                        inside.fetch_sub(1, SeqCst);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let _alone = gate.enter_alone();
                        assert!(!alone.swap(true, SeqCst));
                        assert_eq!(inside.load(SeqCst), 0);
                        assert!(gate.try_enter().is_none());
                        alone.store(false, SeqCst);
                    }
                });
            }
        });
        let both = (gate.enter(), gate.try_enter());
        assert!(both.1.is_some());
    }

    #[test]
    fn one_at_a_time_moves_the_end() {
        let (gate, end) = (FileGate::new(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let inside = gate.enter();
                        let _extending = inside.extend();
                        // A load and a store: two threads here at once would lose additions.
                        end.store(end.load(SeqCst) + 1, SeqCst);
                    }
                });
            }
        });
        assert_eq!(end.into_inner(), 4000);
    }
}
