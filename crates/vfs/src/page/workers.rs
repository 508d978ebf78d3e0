//! Threads that read ahead and write back.
//!
//! # Boundary
//! Chooses the next task: pages to read ahead, in order, then the write-back that is due. [`super::read`] and
//! [`super::write_back`] do the tasks. [`uvfs_concurrent::workers`] has the threads.
//!
//! # Concurrency
//! One lock over the queue, held for a moment. Read-ahead jobs are bounded: further ones are refused, and the reader
//! fetches for itself. At most [`WRITERS_MAX`] threads write back at once, which bounds the load on the store. A thread
//! holds the core only while it works.
//!
//! # Why
//! No thread exists until the first mark or the first dirty page: a mount that only lists directories has none.
//! Weakness: a store that hangs keeps its threads, and [`PageWorkers::stop`] waits for them.

use super::read::Ahead;
use crate::lock_order;
use crate::vfs::Core;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use uvfs_concurrent::primitive::atomic::{AtomicBool, Ordering::Relaxed};
use uvfs_concurrent::shared::Weak;
use uvfs_concurrent::workers::{Next, Queue, Source, Workers};
use uvfs_concurrent::write_back::due::Wake;

/// Threads, at most.
const THREADS_MAX: usize = 4;
/// Threads that write back at once, at most.
const WRITERS_MAX: usize = 3;
/// Read-ahead jobs in the queue, at most.
const AHEAD_MAX: usize = 32;

/// See the module.
#[derive(Debug)]
pub(super) struct PageWorkers {
    workers: Workers<Tasks>,
    /// A writer has asked for write-back at once, which is still in progress. Tested before the lock is taken.
    hurried: AtomicBool,
}

/// Tasks that wait for a thread.
#[derive(Debug, Default)]
struct Tasks {
    ahead: VecDeque<Ahead>,
    /// The time of the next write-back. It begins then or as soon as possible after.
    wake: Wake<Instant>,
}

enum Task {
    Ahead(Ahead),
    /// A step of write-back, not before this moment.
    WriteBack(Instant),
}

impl Source for Tasks {
    type Task = Task;

    fn put(&mut self, task: Task) -> Result<(), Task> {
        match task {
            Task::Ahead(_) if self.ahead.len() >= AHEAD_MAX => return Err(task),
            Task::Ahead(job) => self.ahead.push_back(job),
            // A thread waits for that moment already.
            Task::WriteBack(when) if !self.wake.look_at(when) => return Err(task),
            Task::WriteBack(_) => {}
        }
        Ok(())
    }

    fn next(&mut self, now: Instant) -> Next<Task> {
        if let Some(job) = self.ahead.pop_front() {
            return Next::Task(Task::Ahead(job));
        }
        if let Some(due) = self.wake.begin(now, WRITERS_MAX) {
            return Next::Task(Task::WriteBack(due));
        }
        self.wake.next_if_fewer(WRITERS_MAX).map_or(Next::Nothing, Next::At)
    }

    fn waiting(&self) -> usize {
        self.ahead.len() + usize::from(self.wake.next().is_some())
    }

    fn not_started(&mut self, error: &io::Error, alive: usize) -> Option<Task> {
        log::warn!("no thread to read ahead and write back: {error}");
        if alive > 0 {
            return None;
        }
        // The reader fetches for itself. The next dirty page asks for a thread again.
        let due = self.wake.forget().map(Task::WriteBack);
        self.ahead.pop_back().map(Task::Ahead).or(due)
    }
}

impl PageWorkers {
    pub(super) fn new() -> Self {
        let workers = Workers::new(&lock_order::PAGE_WORK, "uvfs-pages", Tasks::default());
        Self { workers, hurried: AtomicBool::new(false) }
    }

    /// Queues a read-ahead job. Returns the job if too many are waiting.
    pub(super) fn submit_ahead(&self, core: &Core, job: Ahead) -> Result<(), Ahead> {
        match self.submit(core, Task::Ahead(job)) {
            Err(Task::Ahead(job)) => Err(job),
            _ => Ok(()),
        }
    }

    /// Write-back is due at `when`. Call it after the file has its place among those that wait (Q4 of
    /// [`uvfs_concurrent::write_back::due`]).
    pub(super) fn write_back_at(&self, core: &Core, when: Instant) {
        // Refused if it is due before that.
        let _ = self.submit(core, Task::WriteBack(when));
    }

    fn submit(&self, core: &Core, task: Task) -> Result<(), Task> {
        let core = core.weak_self;
        let performer = || move |task, queue: &Queue<Tasks>| perform(core, task, queue);
        self.workers.submit(task, THREADS_MAX, performer)
    }

    /// Too many pages are dirty: writes back at once, until [`PageWorkers::end_hurry`].
    pub(super) fn hurry(&self, core: &Core) {
        // ORDERING: Relaxed, both; a request that is missed now is seen with the next write.
        if !self.hurried.load(Relaxed) && !self.hurried.swap(true, Relaxed) {
            self.write_back_at(core, Instant::now());
        }
    }

    /// The number of dirty pages is below the limit again.
    pub(super) fn end_hurry(&self) {
        // ORDERING: Relaxed; a request that is missed now is seen with the next write.
        if self.hurried.load(Relaxed) {
            self.hurried.store(false, Relaxed);
        }
    }

    /// Ends every thread after its present task, and waits for that. Drops the read-ahead jobs in the queue.
    pub(super) fn stop(&self) {
        self.workers.stop(|tasks| std::mem::take(&mut tasks.ahead));
    }
}

fn perform(core: Weak<Core>, task: Task, queue: &Queue<Tasks>) {
    let writes = matches!(task, Task::WriteBack(_));
    let done = catch_unwind(AssertUnwindSafe(|| step(core, task)));
    let again = done.unwrap_or_else(|_| {
        log::error!("reading ahead or writing back panicked; it is tried again later");
        Some(Instant::now() + Duration::from_secs(1))
    });
    if writes {
        queue.update(|tasks| {
            // Another thread may write beside this one.
            tasks.wake.ended(again)
        });
    }
}

/// Does `task`. After a write-back, returns the time of the next one.
fn step(core: Weak<Core>, task: Task) -> Option<Instant> {
    let core = core.upgrade()?;
    match task {
        Task::Ahead(job) => {
            core.fetch_ahead(job);
            None
        }
        Task::WriteBack(_) => core.write_back_step(),
    }
}
