//! A gate that holds calls until a test opens it.
//!
//! # Concurrency
//! Calls wait on a condition variable with no other lock held. A gate that is never opened releases
//! its calls after [`LIMIT`], so that a failing test ends instead of hanging.

use crate::lock_order;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{Condvar, Mutex};

/// How long a gate holds a call, and how long a test waits for one, at most.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Holds calls. Clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    open: bool,
    held: usize,
    arrived: usize,
}

impl Default for Gate {
    fn default() -> Self {
        let state = Mutex::new(&lock_order::HOSTILE_PLAN, State::default());
        Self(Arc::new(Inner { state, changed: Condvar::default() }))
    }
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Releases every held call, and holds no more.
    pub fn open(&self) {
        self.0.state.lock().open = true;
        self.0.changed.notify_all();
    }

    /// Calls held now.
    pub fn held(&self) -> usize {
        self.0.state.lock().held
    }

    /// Waits until `count` calls have arrived, in all.
    ///
    /// # Panics
    /// If they do not arrive within [`LIMIT`].
    pub fn wait_for(&self, count: usize) {
        let end = Instant::now() + LIMIT;
        let mut state = self.0.state.lock();
        while state.arrived < count {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{} of {count} calls came to the gate", state.arrived);
            self.0.changed.wait_for(&mut state, left);
        }
    }

    /// Waits here until the gate is open.
    pub(super) fn pass(&self) {
        let end = Instant::now() + LIMIT;
        let mut state = self.0.state.lock();
        state.arrived += 1;
        state.held += 1;
        self.0.changed.notify_all();
        while !state.open && Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now());
            self.0.changed.wait_for(&mut state, left);
        }
        state.held -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_holds_calls_until_it_is_opened() {
        let gate = Gate::new();
        let other = gate.clone();
        let held = std::thread::spawn(move || other.pass());
        gate.wait_for(1);
        assert_eq!(gate.held(), 1);
        gate.open();
        held.join().unwrap();
        gate.pass();
        assert_eq!(gate.held(), 0);
    }
}
