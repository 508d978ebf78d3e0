//! Threads that read ahead and write back.
//!
//! # Boundary
//! Starts threads when there is work, ends them when there is none. What they do is
//! [`super::read`]'s and [`super::write_back`]'s.
//!
//! # Concurrency
//! One lock over the queue, held for a moment. Jobs to read ahead are bounded: what is too much is
//! refused, and the reader fetches for itself. At most [`WRITERS_MAX`] threads write back at once, which
//! bounds what the store has to do for us. A thread holds the core only while it works.
//!
//! # Why
//! No thread until the first mark or the first dirty page: a mount that is only looked at has none.
//! Weakness: a store that hangs keeps its threads, and [`Workers::stop`] waits for them.

use super::read::Ahead;
use crate::lock_order;
use crate::vfs::Core;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_concurrent::primitive::atomic::{AtomicBool, Ordering::Relaxed};
use uvfs_concurrent::shared::Weak;

/// Threads at most.
const THREADS_MAX: usize = 4;
/// Of which write back at most.
const WRITERS_MAX: usize = 3;
/// Jobs waiting to read ahead.
const AHEAD_MAX: usize = 32;
/// How long a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(super) struct Workers {
    state: Arc<Mutex<State>>,
    work: Arc<Condvar>,
    /// Somebody has asked for writing back at once, and it goes on. Tested before the lock is taken.
    hurried: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    ahead: VecDeque<Ahead>,
    /// Something is to be written back at this moment, or as soon as possible after.
    due: Option<Instant>,
    writing: usize,
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    alive: usize,
    stopping: bool,
}

/// What a thread does next.
enum Task {
    Ahead(Ahead),
    WriteBack,
}

impl Workers {
    pub(super) fn new() -> Self {
        let state = Mutex::new(&lock_order::PAGE_WORK, State::default());
        Self { state: Arc::new(state), work: Arc::default(), hurried: AtomicBool::new(false) }
    }

    /// Reads ahead soon; the job back, if too many are waiting.
    pub(super) fn submit_ahead(&self, core: &Core, job: Ahead) -> Result<(), Ahead> {
        let mut state = self.state.lock();
        if state.stopping || state.ahead.len() >= AHEAD_MAX {
            return Err(job);
        }
        state.ahead.push_back(job);
        self.start_if_needed(&mut state, core);
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// Something is to be written back at `when`.
    pub(super) fn write_back_at(&self, core: &Core, when: Instant) {
        let mut state = self.state.lock();
        if state.stopping || (state.alive > 0 && state.due.is_some_and(|due| due <= when)) {
            return;
        }
        state.due = Some(state.due.map_or(when, |due| due.min(when)));
        self.start_if_needed(&mut state, core);
        drop(state);
        self.work.notify_one();
    }

    /// What waits to be written back is looked at now. For what waits already: then a thread waits, too.
    pub(super) fn hasten(&self) {
        let mut state = self.state.lock();
        if state.due.is_some() {
            state.due = Some(Instant::now());
            drop(state);
            self.work.notify_one();
        }
    }

    /// Too much is dirty: writes back at once, until [`Workers::end_hurry`].
    pub(super) fn hurry(&self, core: &Core) {
        // ORDERING: Relaxed, both; who is not heard now is heard with the next write.
        if !self.hurried.load(Relaxed) && !self.hurried.swap(true, Relaxed) {
            self.write_back_at(core, Instant::now());
        }
    }

    /// Not too much is dirty any more.
    pub(super) fn end_hurry(&self) {
        // ORDERING: Relaxed; as in `hurry`.
        if self.hurried.load(Relaxed) {
            self.hurried.store(false, Relaxed);
        }
    }

    fn start_if_needed(&self, state: &mut State, core: &Core) {
        let waiting = state.ahead.len() + usize::from(state.due.is_some());
        if state.idle >= waiting || state.alive >= THREADS_MAX {
            return;
        }
        let (shared, work, core) = (self.state.clone(), self.work.clone(), core.way);
        let body = move || run(&shared, &work, core);
        match std::thread::Builder::new().name("uvfs-pages".to_owned()).spawn(body) {
            Ok(thread) => {
                state.alive += 1;
                state.threads.retain(|thread| !thread.is_finished());
                state.threads.push(thread);
            }
            Err(error) => log::warn!("no thread to read ahead and write back: {error}"),
        }
    }

    /// Ends every thread, when it is done with what it does now, and waits for that.
    pub(super) fn stop(&self) -> Vec<Ahead> {
        let (threads, jobs) = {
            let mut state = self.state.lock();
            state.stopping = true;
            (std::mem::take(&mut state.threads), std::mem::take(&mut state.ahead))
        };
        self.work.notify_all();
        let me = std::thread::current().id();
        for thread in threads {
            if thread.thread().id() != me {
                // It has caught every panic.
                let _ = thread.join();
            }
        }
        jobs.into()
    }
}

fn run(shared: &Mutex<State>, work: &Condvar, core: Weak<Core>) {
    while let Some(task) = next(shared, work) {
        let writes = matches!(task, Task::WriteBack);
        let done = catch_unwind(AssertUnwindSafe(|| perform(task, core)));
        let again = done.unwrap_or_else(|_| {
            log::error!("reading ahead or writing back panicked; it is tried again later");
            Some(Instant::now() + Duration::from_secs(1))
        });
        if writes {
            let mut state = shared.lock();
            state.writing -= 1;
            if let Some(when) = again {
                state.due = Some(state.due.map_or(when, |due| due.min(when)));
                drop(state);
                // Another one may write beside.
                work.notify_one();
            }
        }
    }
}

/// Does `task`; when there is something to be written back next, if it was that.
fn perform(task: Task, core: Weak<Core>) -> Option<Instant> {
    let core = core.upgrade()?;
    match task {
        Task::Ahead(job) => {
            core.fetch_ahead(job);
            None
        }
        Task::WriteBack => core.write_back_step(),
    }
}

/// The next task, when there is one. `None` ends the thread, which is not counted any more then.
fn next(shared: &Mutex<State>, work: &Condvar) -> Option<Task> {
    let mut state = shared.lock();
    let mut idle_since = None;
    loop {
        if state.stopping {
            state.alive -= 1;
            return None;
        }
        if let Some(job) = state.ahead.pop_front() {
            return Some(Task::Ahead(job));
        }
        let now = Instant::now();
        let due = state.due.filter(|_| state.writing < WRITERS_MAX);
        if due.is_some_and(|due| due <= now) {
            state.due = None;
            state.writing += 1;
            return Some(Task::WriteBack);
        }
        let since = *idle_since.get_or_insert(now);
        // Who waits for what is due stays.
        if due.is_none() && now.duration_since(since) >= IDLE {
            state.alive -= 1;
            return None;
        }
        let wait = due.map_or(IDLE, |due| due.duration_since(now)).min(IDLE);
        state.idle += 1;
        work.wait_for(&mut state, wait);
        state.idle -= 1;
    }
}
