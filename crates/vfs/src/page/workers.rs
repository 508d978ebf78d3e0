//! Threads that read ahead and write back.
//!
//! # Boundary
//! Chooses the next task: a due write-back if none is in progress, pages to read ahead, in order, further write-back,
//! then memory to gather in huge pages. [`super::read`] and [`super::write_back`] do the first two.
//! [`uvfs_concurrent::workers`] has the threads.
//!
//! # Concurrency
//! One lock over the queue, held for a moment. Read-ahead jobs are bounded: further ones are refused, and the reader
//! fetches for itself. At most [`WRITERS_MAX`] threads write back at once, which bounds the load on the store. At most
//! [`READERS_MAX`] read ahead, so that reads that hang leave a thread for write-back. A thread holds the core only while
//! it works.
//!
//! # Why
//! No thread exists until the first mark or the first dirty page: a mount that only lists directories has none.
//! Memory is gathered when the cache has not grown for a while, because gathering is slow in a virtual machine, and a
//! stream would wait for it. Weakness: a store that hangs keeps its threads, and [`PageWorkers::stop`] waits for them.

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
const THREADS_MAX: usize = READERS_MAX + 1;
/// Threads that read ahead at once, at most.
const READERS_MAX: usize = 4;
/// Threads that write back at once, at most.
const WRITERS_MAX: usize = 3;
/// Read-ahead jobs in the queue, at most.
const AHEAD_MAX: usize = 32;
/// How long the cache must not have grown before its memory is gathered.
const SETTLED: Duration = Duration::from_secs(1);
/// Between two blocks of memory: other threads may have page faults meanwhile, which wait for a block.
const PAUSE: Duration = Duration::from_millis(10);

/// See the module.
#[derive(Debug)]
pub(super) struct PageWorkers {
    workers: Workers<Tasks>,
    /// A writer has asked for write-back at once, which is still in progress. Tested before the lock is taken.
    hurried: AtomicBool,
    /// The task of gathering exists.
    gathers: AtomicBool,
}

/// Tasks that wait for a thread.
#[derive(Debug, Default)]
struct Tasks {
    ahead: VecDeque<Ahead>,
    /// Threads that read ahead now.
    readers: usize,
    /// The time of the next write-back. It begins then or as soon as possible after.
    wake: Wake<Instant>,
    /// When to gather memory, and how many frames were in use when that was set.
    gather: Option<(Instant, usize)>,
}

enum Task {
    Ahead(Ahead),
    /// A step of write-back, not before this moment.
    WriteBack(Instant),
    /// Gather memory, not before this moment, if no more frames are in use than these.
    Gather(Instant, usize),
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
            Task::Gather(when, used) => self.gather = Some((when, used)),
        }
        Ok(())
    }

    fn next(&mut self, now: Instant) -> Next<Task> {
        // A first write-back goes before every read-ahead: a crash loses what is not written within the delay.
        if let Some(due) = self.wake.begin(now, 1) {
            return Next::Task(Task::WriteBack(due));
        }
        if self.readers < READERS_MAX
            && let Some(job) = self.ahead.pop_front()
        {
            self.readers += 1;
            return Next::Task(Task::Ahead(job));
        }
        if let Some(due) = self.wake.begin(now, WRITERS_MAX) {
            return Next::Task(Task::WriteBack(due));
        }
        let due = self.wake.next_if_fewer(WRITERS_MAX);
        match self.gather {
            Some((when, used)) if when <= now => {
                self.gather = None;
                Next::Task(Task::Gather(when, used))
            }
            Some((when, _)) => Next::At(due.map_or(when, |due| due.min(when))),
            None => due.map_or(Next::Nothing, Next::At),
        }
    }

    fn waiting(&self) -> usize {
        self.ahead.len()
            + usize::from(self.wake.next().is_some())
            + usize::from(self.gather.is_some())
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
        Self { workers, hurried: AtomicBool::new(false), gathers: AtomicBool::new(false) }
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

    /// Pages were inserted: gathers their memory in huge pages when no more are.
    pub(super) fn gather_later(&self, core: &Core) {
        // ORDERING: Relaxed, both; a request that is missed now is made when the next pages come.
        if !self.gathers.load(Relaxed)
            && core.pages.arena.can_gather()
            && !self.gathers.swap(true, Relaxed)
        {
            let task = Task::Gather(Instant::now() + SETTLED, core.pages.arena.used());
            if self.submit(core, task).is_err() {
                // ORDERING: Relaxed; the next pages make the request again.
                self.gathers.store(false, Relaxed);
            }
        }
    }

    /// Gathers a block of memory, if no more than `used` frames are in use. Returns the next task of this kind.
    fn gather(&self, core: &Core, used: usize) -> Option<(Instant, usize)> {
        let arena = &core.pages.arena;
        let now = arena.used();
        if now > used {
            return Some((Instant::now() + SETTLED, now));
        }
        arena.gather();
        if arena.can_gather() {
            return Some((Instant::now() + PAUSE, now));
        }
        // ORDERING: Relaxed; as in `gather_later`.
        self.gathers.store(false, Relaxed);
        None
    }

    /// Ends every thread after its present task, and waits for that. Drops the read-ahead jobs in the queue.
    pub(super) fn stop(&self) {
        self.workers.stop(|tasks| std::mem::take(&mut tasks.ahead));
    }
}

fn perform(core: Weak<Core>, task: Task, queue: &Queue<Tasks>) {
    match task {
        Task::Ahead(job) => {
            let _ = guarded(core, |core| core.fetch_ahead(job));
            // This thread may write back next, so another one may have to take the next job.
            queue.update(|tasks| {
                tasks.readers -= 1;
                !tasks.ahead.is_empty()
            });
        }
        Task::WriteBack(_) => {
            let later = |()| Some(Instant::now() + Duration::from_secs(1));
            let again = guarded(core, Core::write_back_step).unwrap_or_else(later);
            // Another thread may write beside this one.
            queue.update(|tasks| tasks.wake.ended(again));
        }
        Task::Gather(_, used) => {
            let next = guarded(core, |core| core.pages.workers.gather(core, used));
            queue.update(|tasks| {
                tasks.gather = next.unwrap_or(None);
                false
            });
        }
    }
}

/// Does `work`, if the core is still there. An error: it panicked.
fn guarded<T: Default>(core: Weak<Core>, work: impl FnOnce(&Core) -> T) -> Result<T, ()> {
    let Some(core) = core.upgrade() else { return Ok(T::default()) };
    catch_unwind(AssertUnwindSafe(|| work(&core))).map_err(|_| {
        log::error!("reading ahead or writing back panicked; it is tried again later");
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gathering memory takes the time of a thread, so it comes behind everything that a program may wait for.
    #[test]
    fn memory_is_gathered_last_and_not_before_its_time() {
        let mut tasks = Tasks::default();
        let now = Instant::now();
        let later = now + SETTLED;
        assert!(tasks.put(Task::Gather(later, 5)).is_ok() && tasks.waiting() == 1);
        assert!(matches!(tasks.next(now), Next::At(when) if when == later));
        assert!(tasks.put(Task::WriteBack(later)).is_ok());
        assert!(matches!(tasks.next(later), Next::Task(Task::WriteBack(_))));
        assert!(matches!(tasks.next(later), Next::Task(Task::Gather(_, 5))));
        assert_eq!(tasks.waiting(), 0);
    }
}
