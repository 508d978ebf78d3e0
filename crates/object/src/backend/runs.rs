//! Threads that read runs of pages, so that many requests are under way for one reader.
//!
//! # Boundary
//! Takes runs, and completes each by one request. Starts threads when there is work, ends them when there was none for a
//! while.
//!
//! # Concurrency
//! One lock over the queue, held for a moment. The core bounds how many runs wait.
//!
//! # Why
//! No thread until the first run, so that whatever fences the thread that asks for it (a sandbox) fences these too. Weakness: the
//! end of a mount waits for requests that are under way.

use super::Shared;
use crate::lock_order::OBJECT_RUNS;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_vfs::ReadRun;

/// How long a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(super) struct Runs {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    threads_max: usize,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<ReadRun>,
    idle: usize,
    alive: usize,
    threads: Vec<JoinHandle<()>>,
    stopping: bool,
}

impl Runs {
    pub(super) fn new(shared: Arc<Shared>, threads_max: usize) -> Self {
        let state = Mutex::new(&OBJECT_RUNS, State::default());
        Self { shared, queue: Arc::new(Queue { state, work: Condvar::default() }), threads_max }
    }

    pub(super) fn threads_max(&self) -> usize {
        self.threads_max
    }

    /// Reads `run` soon, and completes it.
    pub(super) fn submit(&self, run: ReadRun) {
        let mut state = self.queue.state.lock();
        state.waiting.push_back(run);
        if state.idle < state.waiting.len() && state.alive < self.threads_max {
            let (shared, queue) = (self.shared.clone(), self.queue.clone());
            let body = move || work(&shared, &queue);
            match std::thread::Builder::new().name("uvfs-object".to_owned()).spawn(body) {
                Ok(thread) => {
                    state.alive += 1;
                    state.threads.retain(|thread| !thread.is_finished());
                    state.threads.push(thread);
                }
                Err(error) if state.alive > 0 => log::warn!("no further thread to read: {error}"),
                Err(error) => {
                    log::warn!("no thread to read: {error}; the caller reads");
                    let run = state.waiting.pop_back();
                    drop(state);
                    run.into_iter().for_each(|run| perform(&self.shared, run));
                    return;
                }
            }
        }
        drop(state);
        self.queue.work.notify_one();
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        let (threads, waiting) = {
            let mut state = self.queue.state.lock();
            state.stopping = true;
            (std::mem::take(&mut state.threads), std::mem::take(&mut state.waiting))
        };
        // Their askers are told that nobody answers.
        drop(waiting);
        self.queue.work.notify_all();
        let me = std::thread::current().id();
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != me) {
            // It has caught every panic.
            let _ = thread.join();
        }
    }
}

fn work(shared: &Shared, queue: &Queue) {
    while let Some(run) = next(queue) {
        // A run that is dropped is completed with an error.
        if catch_unwind(AssertUnwindSafe(|| perform(shared, run))).is_err() {
            log::error!("reading from the store panicked; the read has failed");
        }
    }
}

fn perform(shared: &Shared, mut run: ReadRun) {
    let (inode, offset) = (run.file().inode, run.offset());
    let result = shared.read(inode, offset, run.buffer());
    run.complete(result);
}

/// The next run, when there is one. `None` ends the thread, which is not counted any more then.
fn next(queue: &Queue) -> Option<ReadRun> {
    let mut state = queue.state.lock();
    let mut timed_out = false;
    loop {
        if let Some(run) = state.waiting.pop_front() {
            return Some(run);
        }
        if state.stopping || timed_out {
            state.alive -= 1;
            return None;
        }
        state.idle += 1;
        timed_out = queue.work.wait_for(&mut state, IDLE);
        state.idle -= 1;
    }
}
