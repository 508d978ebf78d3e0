//! Threads that are started when there is work and end after a while without work.
//!
//! # Boundary
//! Owns the threads and their number. A [`Source`] chooses the next task and bounds the waiting ones; the caller
//! defines the tasks.
//!
//! # Concurrency
//! One lock, of the caller's class, over the source and the counts. It is held briefly, and never while a task is
//! performed.
//!
//! # Invariants
//! W1. `alive` counts the threads that have not decided to end. A thread decides under the lock, and only if the source
//!     has nothing for it.
//! W2. `idle` counts those that sleep and have no task: a submission starts a thread if fewer threads sleep than tasks
//!     wait.
//!
//! # Why
//! One mechanism for page read-ahead and write-back, background listings and the requests of an object store. No thread
//! exists before the first task, so that a restriction of the submitter (a sandbox) also applies to the threads.
//! Weakness: a task that hangs keeps its thread, and [`Workers::stop`] waits for it.

use crate::lock::{Condvar, LockClass, Mutex};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time that a thread waits for a task before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// The queue from which the threads take their tasks. Each method is called under the workers' lock and must not block.
pub trait Source: Send + 'static {
    /// One piece of work.
    type Task: Send;

    /// Keeps `task` for a thread; returns it if too many wait.
    fn put(&mut self, task: Self::Task) -> Result<(), Self::Task>;

    /// The next action of a thread at `now`.
    fn next(&mut self, now: Instant) -> Next<Self::Task>;

    /// The number of waiting tasks.
    fn waiting(&self) -> usize;

    /// No thread could be started for the task that was put last; `alive` threads exist. Return the task to reject it;
    /// `None` leaves it queued for an existing thread or a later submission.
    fn not_started(&mut self, error: &io::Error, alive: usize) -> Option<Self::Task>;
}

/// An answer of a [`Source`] to a thread.
#[derive(Debug)]
pub enum Next<T> {
    /// A task to perform now.
    Task(T),
    /// A task is due at this time.
    At(Instant),
    /// No task: a thread that gets this answer for ten seconds ends.
    Nothing,
}

/// Tasks in the order of their submission, up to a limit.
#[derive(Debug)]
pub struct Fifo<T> {
    waiting: VecDeque<T>,
    waiting_max: usize,
    /// Called when a task is returned to the submitter because there is no thread for it, with the error and the number
    /// of threads.
    report: fn(&io::Error, usize),
}

impl<T> Fifo<T> {
    /// An empty queue. It calls `report` when a thread could not be started.
    pub fn new(waiting_max: usize, report: fn(&io::Error, usize)) -> Self {
        Self { waiting: VecDeque::new(), waiting_max, report }
    }

    /// Removes and returns every task.
    pub fn take_all(&mut self) -> VecDeque<T> {
        std::mem::take(&mut self.waiting)
    }
}

impl<T: Send + 'static> Source for Fifo<T> {
    type Task = T;

    fn put(&mut self, task: T) -> Result<(), T> {
        if self.waiting.len() >= self.waiting_max {
            return Err(task);
        }
        self.waiting.push_back(task);
        Ok(())
    }

    fn next(&mut self, _: Instant) -> Next<T> {
        self.waiting.pop_front().map_or(Next::Nothing, Next::Task)
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn not_started(&mut self, error: &io::Error, alive: usize) -> Option<T> {
        (self.report)(error, alive);
        if alive == 0 { self.waiting.pop_back() } else { None }
    }
}

/// A set of threads and their source of tasks.
#[derive(Debug)]
pub struct Workers<S> {
    queue: Arc<Queue<S>>,
    name: &'static str,
}

/// The state that the threads of [`Workers`] share.
#[derive(Debug)]
pub struct Queue<S> {
    state: Mutex<State<S>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<S> {
    source: S,
    idle: usize,
    alive: usize,
    threads: Vec<JoinHandle<()>>,
    stopping: bool,
}

impl<S> Queue<S> {
    /// Changes the source, and wakes a thread if `change` returns true: there is new work for one. Takes the lock.
    pub fn update(&self, change: impl FnOnce(&mut S) -> bool) {
        if change(&mut self.state.lock().source) {
            self.changed.notify_one();
        }
    }
}

impl<S: Source> Workers<S> {
    /// A set without threads. The lock is of `class`, the threads have the name `name`.
    pub fn new(class: &'static LockClass, name: &'static str, source: S) -> Self {
        let state = State { source, idle: 0, alive: 0, threads: Vec::new(), stopping: false };
        let queue = Queue { state: Mutex::new(class, state), changed: Condvar::default() };
        Self { queue: Arc::new(queue), name }
    }

    /// Queues `task`, and starts one of at most `threads_max` threads if none sleeps. Returns the task if the source
    /// refuses it, no thread can be started, or [`Workers::stop`] was called. Does not wait for the task.
    ///
    /// `performer` makes the closure by which a new thread performs its tasks. A panic in it ends the thread; the next
    /// submission starts another.
    pub fn submit<P>(
        &self,
        task: S::Task,
        threads_max: usize,
        performer: impl FnOnce() -> P,
    ) -> Result<(), S::Task>
    where
        P: FnMut(S::Task, &Queue<S>) + Send + 'static,
    {
        let mut state = self.queue.state.lock();
        if state.stopping {
            return Err(task);
        }
        state.source.put(task)?;
        if state.idle < state.source.waiting()
            && state.alive < threads_max
            && let Err(error) = self.start(&mut state, performer())
        {
            let alive = state.alive;
            if let Some(task) = state.source.not_started(&error, alive) {
                return Err(task);
            }
        }
        drop(state);
        self.queue.changed.notify_one();
        Ok(())
    }

    /// Changes the source, as [`Queue::update`] does.
    pub fn update(&self, change: impl FnOnce(&mut S) -> bool) {
        self.queue.update(change);
    }

    /// Ends every thread after its present task, and waits for that. `take` removes from the source the tasks that will
    /// not be performed; they are dropped before the wait.
    pub fn stop<R>(&self, take: impl FnOnce(&mut S) -> R) {
        let (threads, waiting) = {
            let mut state = self.queue.state.lock();
            state.stopping = true;
            (std::mem::take(&mut state.threads), take(&mut state.source))
        };
        drop(waiting);
        self.queue.changed.notify_all();
        let me = std::thread::current().id();
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != me) {
            // The thread that panicked has reported the panic.
            let _ = thread.join();
        }
    }

    fn start<P>(&self, state: &mut State<S>, perform: P) -> io::Result<()>
    where
        P: FnMut(S::Task, &Queue<S>) + Send + 'static,
    {
        let queue = self.queue.clone();
        let body = move || run(&queue, perform);
        let thread = std::thread::Builder::new().name(self.name.to_owned()).spawn(body)?;
        state.alive += 1;
        state.threads.retain(|thread| !thread.is_finished());
        state.threads.push(thread);
        Ok(())
    }
}

fn run<S: Source>(queue: &Queue<S>, mut perform: impl FnMut(S::Task, &Queue<S>)) {
    /// Keeps W1 also if a panic ends the thread.
    struct Alive<'q, S>(&'q Queue<S>);
    impl<S> Drop for Alive<'_, S> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.state.lock().alive -= 1;
            }
        }
    }
    let _alive = Alive(queue);
    while let Some(task) = next(queue) {
        perform(task, queue);
    }
}

/// Waits for the next task. `None` ends the thread, which is then not counted any more.
fn next<S: Source>(queue: &Queue<S>) -> Option<S::Task> {
    let mut state = queue.state.lock();
    let mut idle_since = None;
    loop {
        if state.stopping {
            state.alive -= 1;
            return None;
        }
        let now = Instant::now();
        let wait = match state.source.next(now) {
            Next::Task(task) => return Some(task),
            Next::At(when) => {
                idle_since.get_or_insert(now);
                when.saturating_duration_since(now).min(IDLE)
            }
            Next::Nothing if now.duration_since(*idle_since.get_or_insert(now)) >= IDLE => {
                state.alive -= 1;
                return None;
            }
            Next::Nothing => IDLE,
        };
        state.idle += 1;
        queue.changed.wait_for(&mut state, wait);
        state.idle -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    static WORKERS: LockClass = LockClass::new(1, "test-workers", "tasks of this test");

    type Task = Box<dyn FnOnce() + Send>;

    fn silent(_: &io::Error, _: usize) {}

    fn workers(waiting_max: usize) -> Workers<Fifo<Task>> {
        Workers::new(&WORKERS, "test-workers", Fifo::new(waiting_max, silent))
    }

    fn performer() -> impl FnMut(Task, &Queue<Fifo<Task>>) {
        |task, _| task()
    }

    fn says(to: &Sender<u32>, word: u32) -> Task {
        let to = to.clone();
        Box::new(move || to.send(word).unwrap())
    }

    #[test]
    fn one_thread_performs_tasks_in_their_order() {
        let (workers, (to, said)) = (workers(8), channel());
        for word in 0..3 {
            assert!(workers.submit(says(&to, word), 1, performer).is_ok());
        }
        assert_eq!([0; 3].map(|_| said.recv().unwrap()), [0, 1, 2]);
        workers.stop(Fifo::take_all);
    }

    /// Tasks that wait for each other: they end only if each has a thread of its own.
    #[test]
    fn tasks_that_block_get_threads_up_to_the_limit_and_the_rest_is_refused() {
        let (workers, (to, said), (go, gone)) = (workers(1), channel(), channel::<()>());
        let gone = Arc::new(Mutex::new(&BLOCKED, gone));
        let blocked = |word| -> Task {
            let (to, gone) = (to.clone(), gone.clone());
            Box::new(move || {
                to.send(word).unwrap();
                let _ = gone.lock().recv();
            })
        };
        for word in 0..2 {
            assert!(workers.submit(blocked(word), 2, performer).is_ok());
            assert_eq!(said.recv().unwrap(), word);
        }
        assert!(workers.submit(blocked(2), 2, performer).is_ok(), "it waits");
        assert!(workers.submit(blocked(3), 2, performer).is_err(), "one too many waits");
        drop(go);
        assert_eq!(said.recv().unwrap(), 2);
        workers.stop(Fifo::take_all);
    }

    static BLOCKED: LockClass = LockClass::new(2, "test-blocked", "the end of blocked tasks");

    #[test]
    fn what_waits_at_the_stop_is_dropped_and_what_comes_later_refused() {
        let (workers, (to, said), (go, gone)) = (workers(8), channel(), channel::<()>());
        let first = to.clone();
        let blocks = Box::new(move || {
            first.send(0).unwrap();
            let _ = gone.recv();
        });
        assert!(workers.submit(blocks, 1, performer).is_ok());
        assert_eq!(said.recv().unwrap(), 0);
        assert!(workers.submit(says(&to, 1), 1, performer).is_ok());
        // The stop waits for the running task, which ends when the stop takes the waiting tasks.
        workers.stop(|source| {
            drop(go);
            source.take_all()
        });
        assert!(workers.submit(says(&to, 2), 1, performer).is_err());
        drop(to);
        assert_eq!(said.recv().ok(), None, "neither was performed");
    }

    /// Bug: a thread that a panic ended was still counted, and no other was started in its place.
    #[test]
    fn a_thread_that_panics_makes_room_for_another() {
        let (workers, (to, said)) = (workers(8), channel());
        let panics = Box::new(|| panic!("a task of this test"));
        assert!(workers.submit(panics, 1, performer).is_ok());
        let mut tries = 0;
        // Until the first thread has ended, the task waits for it; then the thread that a later submission starts
        // performs it.
        loop {
            assert!(workers.submit(says(&to, 1), 1, performer).is_ok() || tries > 0);
            if said.recv_timeout(Duration::from_millis(50)).is_ok() {
                break;
            }
            tries += 1;
            assert!(tries < 1000, "no thread performs tasks any more");
        }
        workers.stop(Fifo::take_all);
    }
}
