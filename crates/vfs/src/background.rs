//! Threads for what nobody waits for: files of a directory that is read in order, and listings that have expired.
//!
//! # Boundary
//! Starts threads when there is work, as many as the store can use at once, and ends them when there was none for a while. What they do
//! is [`crate::ops`]'. Runs of pages of one file have threads of their own.
//!
//! # Concurrency
//! One lock over the queue, held for a moment. What is too much is refused: it was a favour. A thread holds the core only
//! while it works.
//!
//! # Why
//! A small file is one request, and a request blocks its thread: as many threads as requests. Weakness: a store that hangs keeps
//! them, and [`Background::stop`] waits for them.

use crate::inode::Node;
use crate::lock_order;
use crate::vfs::Core;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_concurrent::shared::Weak;

/// Jobs that may wait.
const WAITING_MAX: usize = 256;
/// Threads at most, whatever the store can use.
const THREADS_MAX: usize = 64;
/// How long a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Job {
    /// The directory is listed again.
    List(Node),
    /// The file at this place of the directory is fetched, if it is still expected to be read.
    Fetch {
        /// The directory.
        directory: Node,
        /// The file.
        file: Node,
        /// Its place in the list.
        place: usize,
    },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Background {
    queue: Arc<Queue>,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Job>,
    idle: usize,
    alive: usize,
    threads: Vec<JoinHandle<()>>,
    stopping: bool,
}

impl Background {
    pub(crate) fn new() -> Self {
        let state = Mutex::new(&lock_order::BACKGROUND, State::default());
        Self { queue: Arc::new(Queue { state, work: Condvar::default() }) }
    }

    /// Does `job` soon; the job back if there is too much to do, or no thread.
    pub(crate) fn submit(&self, core: &Core, job: Job) -> Result<(), Job> {
        let threads_max = core.capabilities.queue_depth.clamp(1, THREADS_MAX);
        let mut state = self.queue.state.lock();
        if state.stopping || state.waiting.len() >= WAITING_MAX {
            return Err(job);
        }
        if state.idle <= state.waiting.len() && state.alive < threads_max {
            let (queue, core) = (self.queue.clone(), core.way);
            let body = move || run(&queue, core);
            match std::thread::Builder::new().name("uvfs-background".to_owned()).spawn(body) {
                Ok(thread) => {
                    state.alive += 1;
                    state.threads.retain(|thread| !thread.is_finished());
                    state.threads.push(thread);
                }
                Err(_) if state.alive == 0 => return Err(job),
                Err(error) => log::warn!("no further thread for the background: {error}"),
            }
        }
        state.waiting.push_back(job);
        drop(state);
        self.queue.work.notify_one();
        Ok(())
    }

    /// Ends every thread, when it is done with what it does now, and waits for that.
    pub(crate) fn stop(&self) {
        let (threads, jobs) = {
            let mut state = self.queue.state.lock();
            state.stopping = true;
            (std::mem::take(&mut state.threads), std::mem::take(&mut state.waiting))
        };
        // They hold nodes.
        drop(jobs);
        self.queue.work.notify_all();
        let me = std::thread::current().id();
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != me) {
            // It has caught every panic.
            let _ = thread.join();
        }
    }
}

fn run(queue: &Queue, core: Weak<Core>) {
    while let Some(job) = next(queue) {
        let Some(core) = core.upgrade() else { continue };
        let perform = || match job {
            Job::List(directory) => core.refresh_listing(&directory),
            Job::Fetch { directory, file, place } => core.fetch_file(&directory, &file, place),
        };
        if catch_unwind(AssertUnwindSafe(perform)).is_err() {
            log::error!(
                "a listing or a read in the background panicked; it is done when it is needed"
            );
        }
    }
}

/// The next job, when there is one. `None` ends the thread, which is not counted any more then.
fn next(queue: &Queue) -> Option<Job> {
    let mut state = queue.state.lock();
    let mut timed_out = false;
    loop {
        if state.stopping {
            state.alive -= 1;
            return None;
        }
        if let Some(job) = state.waiting.pop_front() {
            return Some(job);
        }
        if timed_out {
            state.alive -= 1;
            return None;
        }
        state.idle += 1;
        timed_out = queue.work.wait_for(&mut state, IDLE);
        state.idle -= 1;
    }
}
