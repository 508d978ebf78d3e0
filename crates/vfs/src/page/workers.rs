//! Threads that read ahead and write back.
//!
//! # Boundary
//! Says which task is next: pages to read ahead, in their order, then the write-back that is due. What they do is
//! [`super::read`]'s and [`super::write_back`]'s; the threads are [`uvfs_concurrent::workers`]'.
//!
//! # Concurrency
//! One lock over the queue, held for a moment. Jobs to read ahead are bounded: a job too many is refused, and the reader
//! fetches for itself. At most [`WRITERS_MAX`] threads write back at once, which bounds what the store has to do for us. A
//! thread holds the core only while it works.
//!
//! # Why
//! No thread until the first mark or the first dirty page: a mount that is only looked at has none.
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

/// Threads at most.
const THREADS_MAX: usize = 4;
/// Of which write back at most.
const WRITERS_MAX: usize = 3;
/// Jobs waiting to read ahead.
const AHEAD_MAX: usize = 32;

/// See the module.
#[derive(Debug)]
pub(super) struct PageWorkers {
    workers: Workers<Tasks>,
    /// A writer has asked for write-back at once, and it goes on. Tested before the lock is taken.
    hurried: AtomicBool,
}

/// What waits.
#[derive(Debug, Default)]
struct Tasks {
    ahead: VecDeque<Ahead>,
    /// When something is to be written back, or as soon as possible after.
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
        // The reader fetches for itself; the next dirty page asks for a thread again.
        let due = self.wake.forget().map(Task::WriteBack);
        self.ahead.pop_back().map(Task::Ahead).or(due)
    }
}

impl PageWorkers {
    pub(super) fn new() -> Self {
        let workers = Workers::new(&lock_order::PAGE_WORK, "uvfs-pages", Tasks::default());
        Self { workers, hurried: AtomicBool::new(false) }
    }

    /// Reads ahead soon; the job back, if too many are waiting.
    pub(super) fn submit_ahead(&self, core: &Core, job: Ahead) -> Result<(), Ahead> {
        match self.submit(core, Task::Ahead(job)) {
            Err(Task::Ahead(job)) => Err(job),
            _ => Ok(()),
        }
    }

    /// Something is to be written back at `when`. Told after the file has its place among those that wait (Q4 of
    /// [`uvfs_concurrent::write_back::due`]).
    pub(super) fn write_back_at(&self, core: &Core, when: Instant) {
        // Refused where it is due before that.
        let _ = self.submit(core, Task::WriteBack(when));
    }

    fn submit(&self, core: &Core, task: Task) -> Result<(), Task> {
        let core = core.way;
        let performer = || move |task, queue: &Queue<Tasks>| perform(core, task, queue);
        self.workers.submit(task, THREADS_MAX, performer)
    }

    /// Too much is dirty: writes back at once, until [`PageWorkers::end_hurry`].
    pub(super) fn hurry(&self, core: &Core) {
        // ORDERING: Relaxed, both; a request that is missed now is seen with the next write.
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

    /// Ends every thread, when it is done with what it does now, and waits for that. Jobs that wait to read ahead are dropped.
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
            // Another thread may write beside.
            tasks.wake.ended(again)
        });
    }
}

/// Does `task`; when there is something to be written back next, if it was that.
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
