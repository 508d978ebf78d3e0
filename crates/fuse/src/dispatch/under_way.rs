//! Requests under way that a task waits for, and their end when that task dies.
//!
//! # Boundary
//! Holds the replies of requests that may wait for the store. Answers EINTR in place of the thread that performs the
//! request, if its task is about to die of a signal ([`crate::task::is_dying`]). Cancels nothing: the call into the store
//! goes on, and its thread then settles what the kernel does not know ([`super::pending`]).
//!
//! # Concurrency
//! I1. A reply has one sender: the thread that takes it out of its [`Waiting`], under that lock.
//! I2. Each request is looked at once a second, and at once when the kernel sends an INTERRUPT. The looks every second
//!     find what no INTERRUPT tells: a second signal (the kernel sends one INTERRUPT for each request), direct I/O, the
//!     FLUSH of a task that has been killed, an INTERRUPT that overtook its request.
//! I3. Before EINTR is sent, the ends of the files that the request may change are doubted ([`KernelEnd`]). Its thread
//!     doubts them, too, if it finds the reply taken: no end is certain that the kernel does not know.
//!
//! # Why
//! A task that waited for a source that hung could not be killed: Linux lets it go only with an answer. Other file
//! systems answer EINTR to any signal, so that a `rename` fails because a timer fired. Weakness: a request that is ended
//! keeps its thread until the store returns, and the kernel does not learn how it ended.
//!
//! [`KernelEnd`]: crate::server::nodes::NodeTable::doubt_end

use crate::lock_order;
use crate::server::{Doubts, Reply, Sender, Server};
use crate::task;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{Mutex, MutexGuard};
use uvfs_concurrent::primitive::atomic::{AtomicBool, Ordering::Relaxed};
use uvfs_concurrent::shard::{Shards, shrink_sparse};
use uvfs_concurrent::workers::{Next, Queue, Source, Workers};
use uvfs_vfs::Error;

const SHARDS: usize = 16;
/// Between two looks at all requests. A younger request is not looked at.
const PAUSE: Duration = Duration::from_secs(1);
/// The looks take at most one part in so many of a thread's time.
const PAUSE_SHARE: u32 = 10;

/// See the module.
pub(super) struct UnderWay<R> {
    requests: Shards<HashMap<u64, Arc<Waiting<R>>>>,
    server: Arc<Server>,
    looks: Workers<Looks>,
    /// All requests will be looked at.
    watched: AtomicBool,
}

/// A request under way.
struct Waiting<R> {
    /// `None` once a thread has taken it.
    reply: Mutex<Option<R>>,
    sender: Sender,
    since: Instant,
    doubts: Doubts,
    /// A FLUSH: a killed task sends it when no signal reaches the task any more.
    closes: bool,
}

/// A request's place among those under way, until it is dropped.
pub(super) struct Registered<R> {
    all: Arc<UnderWay<R>>,
    waiting: Arc<Waiting<R>>,
}

impl<R: Reply> UnderWay<R> {
    pub(super) fn new(server: Arc<Server>) -> Arc<Self> {
        let looks = Workers::new(&lock_order::FUSE_LOOKS, "uvfs-watch", Looks::default());
        let requests = Shards::new(&lock_order::FUSE_UNDER_WAY, SHARDS);
        Arc::new(Self { requests, server, looks, watched: AtomicBool::new(false) })
    }

    /// Keeps `reply` to a request of `sender`, whose task waits for it since then. `doubts`: what it may change; `closes`:
    /// it is a FLUSH.
    pub(super) fn register(
        self: &Arc<Self>,
        (sender, since): (Sender, Instant),
        (doubts, closes): (Doubts, bool),
        reply: R,
    ) -> Registered<R> {
        let reply = Mutex::new(&lock_order::FUSE_REPLY, Some(reply));
        let waiting = Arc::new(Waiting { reply, sender, since, doubts, closes });
        self.requests.of(&sender.number).lock().insert(sender.number, waiting.clone());
        self.watch();
        Registered { all: self.clone(), waiting }
    }

    /// A signal has come for the task that waits for request `number`. Waits for no store.
    pub(super) fn interrupted(self: &Arc<Self>, number: u64) {
        if let Err(Look::At(numbers)) = self.submit(Look::At(vec![number])) {
            // No thread can be started.
            numbers.into_iter().for_each(|number| self.look_at(number));
        }
    }

    /// Has all requests looked at in a while.
    fn watch(self: &Arc<Self>) {
        // ORDERING: Relaxed; a thread that still sees true is found by the last look, a second later.
        if !self.watched.load(Relaxed)
            && !self.watched.swap(true, Relaxed)
            && self.submit(Look::AtAll).is_err()
        {
            // ORDERING: Relaxed; the same hint. The next request tries again.
            self.watched.store(false, Relaxed);
        }
    }

    fn submit(self: &Arc<Self>, look: Look) -> Result<(), Look> {
        let this = Arc::downgrade(self);
        let performer = || move |look, queue: &Queue<Looks>| Self::perform(&this, look, queue);
        self.looks.submit(look, 1, performer)
    }

    /// The work of the thread that looks.
    fn perform(this: &Weak<Self>, look: Look, queue: &Queue<Looks>) {
        let Some(this) = this.upgrade() else { return };
        match look {
            Look::At(numbers) => numbers.into_iter().for_each(|number| this.look_at(number)),
            Look::AtAll => {
                let began = Instant::now();
                if this.look_at_all() {
                    let ended = Instant::now();
                    let next = ended + PAUSE.max((ended - began) * PAUSE_SHARE);
                    queue.update(|looks| {
                        looks.all = Some(next);
                        false
                    });
                }
            }
        }
    }

    fn look_at(&self, number: u64) {
        let found = self.requests.of(&number).lock().get(&number).cloned();
        found.into_iter().for_each(|waiting| self.look(&waiting));
    }

    /// Looks at every request that is not young. False if twice there was none at all.
    fn look_at_all(&self) -> bool {
        let mut old = Vec::new();
        let (now, mut any) = (Instant::now(), false);
        for shard in self.requests.iter() {
            let requests = shard.lock();
            any |= !requests.is_empty();
            let is_old = |one: &&Arc<Waiting<R>>| now.duration_since(one.since) >= PAUSE;
            old.extend(requests.values().filter(is_old).cloned());
        }
        old.iter().for_each(|waiting| self.look(waiting));
        // ORDERING: Relaxed; a request that came meanwhile may not have seen it, so one more look follows the change.
        self.watched.swap(any, Relaxed) || any
    }

    /// Ends the request if its task is dying.
    fn look(&self, waiting: &Waiting<R>) {
        let task = waiting.sender.task;
        if task::is_dying(task) || (waiting.closes && task::was_killed(task)) {
            self.end(waiting);
        }
    }

    fn end(&self, waiting: &Waiting<R>) {
        let Some(reply) = waiting.reply.lock().take() else { return };
        self.doubt_ends(&waiting.doubts);
        self.server.counters.ended_early.hit();
        reply.send(Err(Error::from_errno(libc::EINTR)));
    }

    fn doubt_ends(&self, doubts: &Doubts) {
        doubts.nodes.iter().for_each(|&node| self.server.nodes.doubt_end(node));
    }
}

impl<R: Reply> Registered<R> {
    /// Whether the kernel still waits for the answer.
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting.reply.lock().is_some()
    }

    /// The reply, for as long as the result is held; `None` inside if it is taken.
    pub(super) fn reply(&self) -> MutexGuard<'_, Option<R>> {
        self.waiting.reply.lock()
    }

    /// Takes the reply. `None`: the request was ended before. Then the kernel is asked to forget what it may have changed.
    pub(super) fn take(&self) -> Option<R> {
        let reply = self.waiting.reply.lock().take();
        if reply.is_none() {
            self.all.doubt_ends(&self.waiting.doubts);
            self.all.server.tell_doubts(&self.waiting.doubts);
        }
        reply
    }
}

impl<R> Drop for Registered<R> {
    fn drop(&mut self) {
        let number = self.waiting.sender.number;
        let mut requests = self.all.requests.of(&number).lock();
        requests.remove(&number);
        shrink_sparse(&mut requests);
    }
}

/// What to look at.
#[derive(Debug)]
enum Look {
    /// These requests, now.
    At(Vec<u64>),
    /// All, in a while.
    AtAll,
}

#[derive(Debug, Default)]
struct Looks {
    now: Vec<u64>,
    /// When to look at all.
    all: Option<Instant>,
}

impl Source for Looks {
    type Task = Look;

    fn put(&mut self, look: Look) -> Result<(), Look> {
        match look {
            Look::At(numbers) => self.now.extend(numbers),
            Look::AtAll => self.all = Some(Instant::now() + PAUSE),
        }
        Ok(())
    }

    fn next(&mut self, now: Instant) -> Next<Look> {
        if !self.now.is_empty() {
            return Next::Task(Look::At(std::mem::take(&mut self.now)));
        }
        match self.all {
            None => Next::Nothing,
            Some(when) if when > now => Next::At(when),
            Some(_) => {
                self.all = None;
                Next::Task(Look::AtAll)
            }
        }
    }

    fn waiting(&self) -> usize {
        usize::from(!self.now.is_empty() || self.all.is_some())
    }

    fn not_started(&mut self, _: &io::Error, alive: usize) -> Option<Look> {
        if alive > 0 {
            return None;
        }
        self.all = None;
        match std::mem::take(&mut self.now) {
            numbers if numbers.is_empty() => Some(Look::AtAll),
            numbers => Some(Look::At(numbers)),
        }
    }
}
