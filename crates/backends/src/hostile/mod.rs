//! A backend that misbehaves by plan: for tests of everything above the seam.
//!
//! # Boundary
//! Wraps any backend. A [`Plan`] defines the faults and their calls: errors before and after the
//! store did its work, delays, calls held until a test releases them, panics, short reads and
//! writes, wrong lengths, and outdated answers. Keeps a journal of the calls, and counts the
//! references that it passed out and got back.
//!
//! `forget` always reaches the store, and `close`, too: no code above a store that loses them could
//! make up for it.
//!
//! # Concurrency
//! One lock for plan, journal and counts, never held across a call of the wrapped backend: calls
//! run in parallel as they do there. Clones are one backend: give one to the file system and keep
//! the other for the plan.
//!
//! # Why
//! Deterministic where it matters: a race is a call that waits at a [`Gate`], not a sleep.
//! Weakness: the one lock orders calls that are otherwise unordered, so this finds no memory
//! ordering bugs.

mod backend;
mod call;
mod gate;
mod plan;
mod references;

pub use call::{Call, Made};
pub use gate::{Gate, LIMIT};
pub use plan::{Fault, Moment, On, Plan};

use crate::lock_order;
use references::References;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use uvfs_concurrent::lock::Mutex;
use uvfs_vfs::{Attributes, Backend, Capabilities, ChangeSink, Entry, InodeId, Name};

/// See the module. Clones are the same backend.
pub struct HostileBackend<B> {
    inner: Arc<B>,
    capabilities: Capabilities,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    plan: Plan,
    journal: Vec<Made>,
    references: References,
    lookups: HashMap<(InodeId, Vec<u8>), Option<Entry>>,
    attributes: HashMap<InodeId, Attributes>,
    sink: Option<Arc<dyn ChangeSink>>,
}

impl<B: Backend> HostileBackend<B> {
    /// Wraps `inner`, with no faults planned yet.
    pub fn new(inner: B) -> Self {
        Self::over(Arc::new(inner))
    }

    /// Wraps a backend that others use, too.
    pub fn over(inner: Arc<B>) -> Self {
        let state = Arc::new(Mutex::new(&lock_order::HOSTILE_PLAN, State::default()));
        Self { capabilities: inner.capabilities(), inner, state }
    }

    /// Claims other capabilities than the wrapped backend has.
    #[must_use]
    pub fn claiming(mut self, change: impl FnOnce(&mut Capabilities)) -> Self {
        change(&mut self.capabilities);
        self
    }

    /// The wrapped backend.
    pub fn inner(&self) -> &Arc<B> {
        &self.inner
    }

    /// Follows `plan` from now on; its rules start to count, and the journal restarts.
    pub fn follow(&self, plan: Plan) {
        let mut state = self.state.lock();
        state.plan = plan;
        state.journal.clear();
    }

    /// Injects no faults from now on. The journal stays.
    pub fn behave(&self) {
        self.state.lock().plan = Plan::new();
    }

    /// The calls since the plan began.
    pub fn journal(&self) -> Vec<Made> {
        self.state.lock().journal.clone()
    }

    /// How many calls of `call` there were since the plan began.
    pub fn made(&self, call: Call) -> usize {
        self.state.lock().journal.iter().filter(|made| made.call == call).count()
    }

    /// References passed out and not returned, by object; objects without any are left out.
    pub fn outstanding(&self) -> BTreeMap<InodeId, u64> {
        self.state.lock().references.outstanding()
    }

    /// References returned beyond those passed out; anything but 0 is a bug above.
    pub fn forgotten_too_often(&self) -> u64 {
        self.state.lock().references.over()
    }

    /// Where to report changes made behind the file system's back, if it asked to hear of them.
    pub fn sink(&self) -> Option<Arc<dyn ChangeSink>> {
        self.state.lock().sink.clone()
    }

    fn note(&self, call: Call, inode: InodeId, name: Option<Name<'_>>) -> Vec<Fault> {
        let made = Made { call, inode, name: name.map(|name| name.as_bytes().to_vec()) };
        let mut state = self.state.lock();
        let faults = state.plan.faults(&made);
        state.journal.push(made);
        faults
    }
}

impl<B> Clone for HostileBackend<B> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            capabilities: self.capabilities,
            state: self.state.clone(),
        }
    }
}

impl<B> fmt::Debug for HostileBackend<B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        out.debug_struct("HostileBackend")
            .field("plan", &state.plan)
            .field("calls", &state.journal.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
