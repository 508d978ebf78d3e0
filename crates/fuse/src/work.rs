//! Which thread runs a request.
//!
//! # Concurrency
//! A few *readers* take requests from the kernel. A hit is answered at once. Any other request may
//! wait for the store: it runs on its reader too, as long as another reader stays free for hits
//! (a [`Gate`] counts), and otherwise goes to a *worker*. Workers are started when all are busy, up
//! to a limit, and end after a while without work. So a slow store delays a hit by at most the
//! time it takes to read and answer it, and a fast store pays for no hand-over.
//!
//! # Why
//! Handing every miss over costs two thread switches, about the price of a whole FUSE round trip;
//! running all of them on readers lets as many slow ones as there are readers stop the mount.
//! Weakness: when all workers are stuck in the store, further misses queue; hits do not.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use uvfs_concurrent::gate::{Gate, Pass};
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_vfs::lock_order;

/// A request handed to a worker.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Workers at most.
pub(crate) const WORKERS_MAX: usize = 64;
/// How long a worker waits for work before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// The gate and the workers behind it.
#[derive(Debug)]
pub(crate) struct Work {
    gate: Gate,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    workers: usize,
    idle: usize,
}

impl std::fmt::Debug for State {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} queued, {} of {} idle", self.queue.len(), self.idle, self.workers)
    }
}

impl Work {
    /// For `readers` reading threads, all but one of which may be kept waiting.
    pub(crate) fn new(readers: usize) -> Self {
        let state = Mutex::new(&lock_order::FUSE_WORK, State::default());
        Self {
            gate: Gate::new(readers.saturating_sub(1)),
            shared: Arc::new(Shared { state, work: Condvar::default() }),
        }
    }

    /// Leave to run something slow on this reader, if another one stays free.
    pub(crate) fn try_inline(&self) -> Option<Pass<'_>> {
        self.gate.try_enter()
    }

    /// Runs `job` on a worker, soon.
    pub(crate) fn submit(&self, job: Job) {
        let mut state = self.shared.state.lock();
        state.queue.push_back(job);
        if state.idle >= state.queue.len() || state.workers >= WORKERS_MAX {
            drop(state);
            return self.shared.work.notify_one();
        }
        state.workers += 1;
        drop(state);
        let shared = self.shared.clone();
        let name = "uvfs-worker".to_owned();
        let started = std::thread::Builder::new().name(name).spawn(move || shared.serve());
        if started.is_err() {
            // No thread to be had. The job stays queued if somebody is there to take it;
            // otherwise this reader takes it, since a request must be answered.
            let mut state = self.shared.state.lock();
            state.workers -= 1;
            let left = if state.workers == 0 { state.queue.pop_front() } else { None };
            drop(state);
            left.into_iter().for_each(|job| job());
        }
    }

    /// Workers that exist now.
    pub(crate) fn workers(&self) -> usize {
        self.shared.state.lock().workers
    }
}

impl Shared {
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                job();
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let timed_out = self.work.wait_for(&mut state, IDLE);
            state.idle -= 1;
            if timed_out && state.queue.is_empty() {
                state.workers -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn one_reader_always_stays_free() {
        let work = Work::new(3);
        let _one = work.try_inline().unwrap();
        let _two = work.try_inline().unwrap();
        assert!(work.try_inline().is_none());
        assert!(Work::new(1).try_inline().is_none(), "a single reader never waits");
    }

    #[test]
    fn jobs_that_wait_for_each_other_all_run() {
        let work = Work::new(1);
        let (send, receive) = mpsc::channel();
        let barrier = Arc::new(std::sync::Barrier::new(8));
        for at in 0..8 {
            let (send, barrier) = (send.clone(), barrier.clone());
            work.submit(Box::new(move || {
                barrier.wait();
                send.send(at).unwrap();
            }));
        }
        let mut done: Vec<i32> = (0..8)
            .map(|_| receive.recv_timeout(Duration::from_secs(10)).expect("a job never ran"))
            .collect();
        done.sort_unstable();
        assert_eq!(done, (0..8).collect::<Vec<_>>());
        assert!(work.workers() >= 8);
    }
}
