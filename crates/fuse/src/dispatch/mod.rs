//! From a request to its answer: the one place that defines the work of each request, its thread, and the time of its
//! answer.
//!
//! # Boundary
//! Takes [`Request`]s and fills [`Reply`]s; names no transport. [`crate::server`] implements the operations.
//!
//! # Concurrency
//! Any number of readers call this. The caches' hits are answered at once ([`at_once`]). Any other request runs on its
//! reader as long as another reader stays free, and otherwise on a worker ([`crate::work`]), by the same code
//! ([`perform`]).
//!
//! P1. A reader that may wait has a pass, and only [`Pending`] has the reply to a request that may wait.
//! P2. [`Pending`] returns the pass before it sends. The program may send its next request as soon as it has the
//!     answer, before this thread runs on. That request would find all readers busy and go to a worker, for two thread
//!     switches.
//!
//! # Why
//! A handler that sent its own reply could send it too early, and ten did. Weakness: requests of all kinds have one
//! size, that of the largest.

mod at_once;
mod backing;
mod due;
mod listing;
mod pending;
mod perform;
#[cfg(test)]
mod tests;
mod under_way;

use self::backing::Backings;
use self::due::Due;
use self::pending::Pending;
use self::under_way::UnderWay;
use crate::server::{Reply, Request, Sender, Server};
use crate::work::{JOB_BYTES, Job, WaitsFor, Work};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use uvfs_concurrent::gate::Pass;
use uvfs_concurrent::primitive::atomic::{AtomicBool, Ordering::Relaxed};
use uvfs_vfs::{Error, InodeId, OpenFile, Waits};

/// See the module.
pub(crate) struct Dispatcher<R: Reply> {
    shared: Arc<Shared<R>>,
}

/// The state that a request needs on whichever thread it runs.
struct Shared<R: Reply> {
    server: Arc<Server>,
    work: Arc<Work>,
    backings: Backings<R::Backing>,
    under_way: Arc<UnderWay<R>>,
    /// Host files are passed through: wished for, and granted by the kernel.
    passthrough: Arc<AtomicBool>,
    /// A descriptor that cannot read writes past the kernel's pages, into ours.
    past_pages: bool,
    /// The store never waits: everything runs on the reader.
    prompt: bool,
    readers: Readers,
}

/// Whether a request may wait on the thread that took it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Yes, if another one stays free.
    MayWait,
    /// No: no other thread takes its place.
    NeverWait,
}

/// The workers that run a request which its reader cannot run.
enum Lane {
    /// Those of the requesting user; refused if too much of it waits already and no request progresses.
    User(u32, WaitsFor),
    /// Pages of a mapping. Never refused: the data of a refused write would be lost for good, and the program that
    /// stored it would get no error.
    Pages,
    /// The closing of a file, or the release of a removed one. Never refused: nothing else would do it.
    Closing,
}

impl<R: Reply> Dispatcher<R> {
    /// `past_pages`: the kernel lets writes pass by its pages, and drops those that they change.
    pub(crate) fn new(
        server: Arc<Server>,
        work: Arc<Work>,
        readers: Readers,
        past_pages: bool,
    ) -> Self {
        let prompt = server.vfs.capabilities().waits == Waits::Never;
        let passthrough = Arc::new(AtomicBool::new(false));
        let past_pages = past_pages && server.keeps_pages();
        let (backings, under_way) = (Backings::new(), UnderWay::new(server.clone()));
        let shared =
            Shared { server, work, backings, under_way, passthrough, past_pages, prompt, readers };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn server(&self) -> &Server {
        &self.shared.server
    }

    /// Whether host files are passed through; the transport sets it when the kernel has granted that.
    pub(crate) fn passthrough(&self) -> &Arc<AtomicBool> {
        &self.shared.passthrough
    }

    /// A signal has come for the task that waits for request `number`.
    pub(crate) fn interrupt(&self, number: u64) {
        if !self.shared.prompt {
            self.shared.under_way.interrupted(number);
        }
    }

    /// Carries out `request`, now or soon, and answers it.
    pub(crate) fn dispatch(&self, sender: Sender, request: Request<'_>, reply: R) {
        let shared = &self.shared;
        let due = Due::new(reply, request.kind(), &shared.server.counters);
        // Before the answer: after it, the kernel may forget the node.
        let about = shared.server.heat.is_turn().then(|| shared.about(&request)).flatten();
        shared.guarded(|_| {
            let due = at_once::answer(shared, sender, &request, due);
            if let Some(directory) = about {
                shared.server.heat.note(directory, due.is_some());
            }
            let Some(mut due) = due else { return };
            // A task that the daemon cannot see has the number 0.
            if !shared.prompt && sender.task != 0 && request.may_end_early() {
                due.share(&shared.under_way, sender, request.doubts());
            }
            let pass = match perform::needs_worker(&request) {
                true => None,
                false => shared.may_wait_here(),
            };
            match pass {
                // On this thread the kernel's buffer can be used without a copy.
                Some(pass) => perform::perform(shared, sender, request, shared.pending(pass, due)),
                None => hand_over(shared, sender, request, due),
            }
        });
    }
}

/// Has a worker do `request`.
fn hand_over<R: Reply>(shared: &Arc<Shared<R>>, sender: Sender, request: Request<'_>, due: Due<R>) {
    let lane = perform::lane(&request, sender);
    let (bytes, request) = (request.kept_bytes(), request.into_owned());
    shared.submit(lane, bytes, move |shared, may_run| match may_run {
        // It was ended while it waited: there is nothing to settle.
        Ok(()) if !due.is_wanted() => {}
        Ok(()) => perform::perform(shared, sender, request, shared.pending(None, due)),
        Err(refused) => due.send(&shared.server.counters, Err(refused)),
    });
}

/// Closes `file`, which no handle names any more, and replies.
fn close<R: Reply>(shared: &Arc<Shared<R>>, file: Arc<OpenFile>, due: Due<R>) {
    match shared.may_wait_here() {
        Some(pass) => perform::close(shared, file, shared.pending(pass, due)),
        None => shared.submit(Lane::Closing, 0, move |shared, _| {
            perform::close(shared, file, shared.pending(None, due));
        }),
    }
}

impl<R: Reply> Shared<R> {
    /// A panic fails this one request: its reply answers EIO when it is dropped.
    fn guarded(&self, job: impl FnOnce(&Self)) {
        if catch_unwind(AssertUnwindSafe(|| job(self))).is_err() {
            self.server.counters.panics.hit();
            log::error!("a request handler panicked; the request failed with EIO");
        }
    }

    /// Which directory `request` is about.
    #[cold]
    fn about(&self, request: &Request<'_>) -> Option<InodeId> {
        request.about().and_then(|id| self.server.nodes.directory_of(id))
    }

    /// The answer that `due` is, of a request that may be waited for with `pass`.
    fn pending<'p>(&'p self, pass: Option<Pass<'p>>, due: Due<R>) -> Pending<'p, R> {
        Pending::new(pass, due, self)
    }

    /// Permission to run on this reader a job that may wait: with a pass, or without one if the store never waits.
    fn may_wait_here(&self) -> Option<Option<Pass<'_>>> {
        let leave = match (self.prompt, self.readers) {
            (true, _) => Some(None),
            (false, Readers::MayWait) => self.work.try_inline().map(Some),
            (false, Readers::NeverWait) => None,
        };
        if leave.is_some() {
            self.server.counters.inline.hit();
        }
        leave
    }

    /// Has a worker run `job`, which keeps `bytes` of memory until then. A refused job is called with the refusal.
    fn submit(
        self: &Arc<Self>,
        lane: Lane,
        bytes: usize,
        job: impl FnOnce(&Arc<Self>, Result<(), Error>) + Send + 'static,
    ) {
        let shared = self.clone();
        self.server.counters.pooled.hit();
        let kept = (bytes + JOB_BYTES) as u64;
        // ORDERING: Relaxed; a size.
        self.server.queued_bytes.fetch_add(kept, Relaxed);
        let job: Job = Box::new(move |runs| {
            shared.guarded(|_| match runs {
                true => job(&shared, Ok(())),
                false => {
                    shared.server.counters.refused.hit();
                    job(&shared, Err(Error::WouldBlock));
                }
            });
            // ORDERING: Relaxed; a size.
            shared.server.queued_bytes.fetch_sub(kept, Relaxed);
        });
        match lane {
            Lane::User(uid, waits) => self.work.submit(uid, waits, bytes, job),
            Lane::Pages => self.work.submit_pages(bytes, job),
            Lane::Closing => self.work.submit_closing(job),
        }
    }

    fn passes_through(&self) -> bool {
        // ORDERING: Relaxed; set before the first request, and once more to false.
        self.passthrough.load(Relaxed)
    }
}
