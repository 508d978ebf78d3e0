//! Chooses the thread that runs a request.
//!
//! # Concurrency
//! A few *readers* take requests from the kernel. A hit is answered at once. Any other request may wait for the store:
//! it also runs on its reader, as long as another reader stays free for hits (a [`Gate`] counts them), and otherwise on
//! a *worker*. A worker is started when all are busy, up to a limit, and ends after a while without work. So a slow
//! store delays a hit by at most the time to read and answer a request, and a fast store pays for no change of threads.
//!
//! Requests wait for workers in [`lanes`], one for each user: one user's stuck requests do not take the threads of
//! others, and the queue behind stuck requests has a bound. Beyond it a request is refused.
//!
//! # Why
//! To pass every miss to a worker costs two thread switches, about the price of a whole FUSE round trip. To run all of
//! them on readers lets a few slow ones stop the mount. Weakness: when all workers of a user are stuck in the store,
//! the user's further misses queue. Hits do not; a request that may hit or miss (an open, a listing) waits only for its
//! kind.

mod lanes;

use crate::lock_order;
use lanes::{CLOSING, Lanes, PAGES};
pub(crate) use lanes::{JOB_BYTES, LANE_WORKERS, WaitsFor};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_concurrent::gate::{Gate, Pass};
use uvfs_concurrent::lock::{Condvar, Mutex, MutexGuard};

/// A request handed to a worker: true if it may run, false if it is refused (and answers so).
pub(crate) type Job = Box<dyn FnOnce(bool) + Send>;

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
    /// Starts a worker.
    start: fn(&Arc<Shared>) -> io::Result<()>,
}

#[derive(Debug)]
struct State {
    lanes: Lanes<Job>,
    workers: usize,
    idle: usize,
}

impl Work {
    /// For `readers` reading threads, all but one of which may be kept waiting.
    pub(crate) fn new(readers: usize) -> Self {
        Self::starting(readers, Shared::start)
    }

    fn starting(readers: usize, start: fn(&Arc<Shared>) -> io::Result<()>) -> Self {
        let state = State { lanes: Lanes::new(), workers: 0, idle: 0 };
        let state = Mutex::new(&lock_order::FUSE_WORK, state);
        Self {
            gate: Gate::new(readers.saturating_sub(1)),
            shared: Arc::new(Shared { state, work: Condvar::default(), start }),
        }
    }

    /// Permission to run a slow job on this reader, if another reader stays free.
    pub(crate) fn try_inline(&self) -> Option<Pass<'_>> {
        self.gate.try_enter()
    }

    /// Runs `job` for user `uid` on a worker, soon; it keeps `bytes` of memory and may wait. Refuses it here if the
    /// user's queued requests are too many and none progresses.
    pub(crate) fn submit(&self, uid: u32, waits: WaitsFor, bytes: usize, job: Job) {
        let mut state = self.shared.state.lock();
        match state.lanes.push((uid, waits), bytes, job, Instant::now()) {
            Ok(()) => self.see_to(state),
            Err(refused) => {
                drop(state);
                refused(false);
            }
        }
    }

    /// [`Work::submit`] for a job that closes a file: it keeps next to no memory and is never refused.
    pub(crate) fn submit_closing(&self, job: Job) {
        self.submit_always(CLOSING, 0, job);
    }

    /// [`Work::submit`] for a job that writes pages of a mapping, which keep `bytes`. It is never refused: no retry
    /// would write them. The kernel bounds how many are in flight (`max_background`).
    pub(crate) fn submit_pages(&self, bytes: usize, job: Job) {
        self.submit_always(PAGES, bytes, job);
    }

    fn submit_always(&self, lane: u32, bytes: usize, job: Job) {
        let mut state = self.shared.state.lock();
        state.lanes.push_always((lane, WaitsFor::Data), bytes, job, Instant::now());
        self.see_to(state);
    }

    /// Ensures that a worker takes the queued job.
    fn see_to(&self, mut state: MutexGuard<'_, State>) {
        if state.idle >= state.lanes.runnable() || !state.lanes.may_start(state.workers) {
            drop(state);
            return self.shared.work.notify_one();
        }
        state.workers += 1;
        drop(state);
        if (self.shared.start)(&self.shared).is_err() {
            self.shared.no_thread();
        }
    }

    /// Workers that exist now.
    pub(crate) fn workers(&self) -> usize {
        self.shared.state.lock().workers
    }

    /// Requests that wait for a worker now.
    pub(crate) fn waiting(&self) -> u64 {
        self.shared.state.lock().lanes.waiting() as u64
    }
}

impl Shared {
    fn start(self: &Arc<Self>) -> io::Result<()> {
        let shared = self.clone();
        let name = "uvfs-worker".to_owned();
        std::thread::Builder::new().name(name).spawn(move || shared.serve())?;
        Ok(())
    }

    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some((lane, job)) = state.lanes.take() {
                drop(state);
                job(true);
                state = self.state.lock();
                state.lanes.done(lane, Instant::now());
                continue;
            }
            state.idle += 1;
            let timed_out = self.work.wait_for(&mut state, IDLE);
            state.idle -= 1;
            if timed_out && state.lanes.runnable() == 0 {
                state.workers -= 1;
                return;
            }
        }
    }

    /// No thread could be started. Queued jobs stay if a worker exists to take them. Otherwise this reader runs them all,
    /// since each request must be answered: other readers may have counted a worker, too, and left their jobs to it.
    fn no_thread(&self) {
        let mut state = self.state.lock();
        state.workers -= 1;
        while state.workers == 0
            && let Some((lane, job)) = state.lanes.take()
        {
            drop(state);
            job(true);
            state = self.state.lock();
            state.lanes.done(lane, Instant::now());
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
            work.submit(
                0,
                WaitsFor::Data,
                0,
                Box::new(move |_| {
                    barrier.wait();
                    send.send(at).unwrap();
                }),
            );
        }
        let mut done: Vec<i32> = (0..8)
            .map(|_| receive.recv_timeout(Duration::from_secs(10)).expect("a job never ran"))
            .collect();
        done.sort_unstable();
        assert_eq!(done, (0..8).collect::<Vec<_>>());
        assert!(work.workers() >= 8);
    }

    /// Bug: two readers queued a job each and counted a worker each, and no thread could be started. The first saw the
    /// second one's worker and left its job. The second ran one job. The caller of the other waited for good.
    #[test]
    fn no_job_is_left_when_no_thread_can_be_started() {
        static BOTH_COUNTED: std::sync::Barrier = std::sync::Barrier::new(2);
        let work = Work::starting(1, |_| {
            BOTH_COUNTED.wait();
            Err(io::ErrorKind::WouldBlock.into())
        });
        let (send, done) = mpsc::channel();
        std::thread::scope(|scope| {
            for at in 0..2 {
                let (send, work) = (send.clone(), &work);
                let job = Box::new(move |run| send.send((at, run)).unwrap());
                scope.spawn(move || work.submit(0, WaitsFor::Data, 0, job));
            }
        });
        let mut done: Vec<_> = done.try_iter().collect();
        done.sort_unstable();
        assert_eq!(done, [(0, true), (1, true)]);
        assert_eq!((work.workers(), work.waiting()), (0, 0));
    }

    /// A hundred requests of one user stood in the way of everybody: there were 64 workers for all.
    #[test]
    fn a_users_stuck_requests_take_no_thread_of_others() {
        let work = Work::new(1);
        // Any class that may be held while work is submitted.
        let gate = Arc::new(Mutex::new(&lock_order::FUSE_BACKING, ()));
        let closed = gate.lock();
        for _ in 0..500 {
            let gate = gate.clone();
            work.submit(1, WaitsFor::Data, 0, Box::new(move |_| drop(gate.lock())));
        }
        let (send, done) = mpsc::channel();
        for uid in 2..50 {
            let send = send.clone();
            work.submit(
                uid,
                WaitsFor::Data,
                0,
                Box::new(move |run| send.send((uid, run)).unwrap()),
            );
        }
        for _ in 2..50 {
            let (uid, run) = done.recv_timeout(Duration::from_secs(20)).expect("stuck with user 1");
            assert!(run, "user {uid} was refused");
        }
        assert!((500 - LANE_WORKERS..500).contains(&(work.waiting() as usize)));
        drop(closed);
    }
}
