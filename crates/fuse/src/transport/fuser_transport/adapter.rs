//! What the handlers stand on: which thread runs a request, and which files the kernel gets directly.
//!
//! # Concurrency
//! Handlers run on any reader. [`Adapter::run`] keeps one of them free for hits; [`Shared`] is what goes
//! along to a worker.

use super::super::backing::{Backings, without_set_id_privilege};
use super::super::convert::errno;
use super::super::reply::{Refusable, with_buffer};
use crate::server::Server;
use crate::work::{Job, Work};
use fuser::{BackingId, FileHandle, INodeNo, ReplyData, ReplyEmpty, Request};
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use uvfs_concurrent::gate::Pass;
use uvfs_concurrent::primitive::atomic::{AtomicBool, Ordering::Relaxed};
use uvfs_vfs::{Caller, Error, FileKind, Hit, OpenFile, Result, Waits};

/// The FUSE crate's view of a [`Server`].
pub(in crate::transport) struct Adapter {
    pub(super) shared: Arc<Shared>,
}

/// What a closure on a worker needs.
pub(super) struct Shared {
    pub(super) server: Arc<Server>,
    pub(super) work: Arc<Work>,
    backings: Backings,
    /// Host files are passed through: wished for, and granted by the kernel.
    pub(super) passthrough: Arc<AtomicBool>,
    /// The store never waits: everything runs on the reader.
    pub(super) prompt: bool,
}

impl Adapter {
    pub(in crate::transport) fn new(
        server: Arc<Server>,
        work: Arc<Work>,
    ) -> (Self, Arc<AtomicBool>) {
        let passthrough = Arc::new(AtomicBool::new(false));
        let prompt = server.vfs.capabilities().waits == Waits::Never;
        let backings = Backings::new();
        let granted = passthrough.clone();
        (Self { shared: Arc::new(Shared { server, work, backings, passthrough, prompt }) }, granted)
    }

    pub(super) fn server(&self) -> &Server {
        &self.shared.server
    }

    pub(super) fn caller(&self, request: &Request) -> Caller {
        self.server().caller(request.uid(), request.gid(), request.pid())
    }

    /// Runs `work`, which may wait: here if another reader stays free, otherwise on a worker. Then
    /// `reply`, which never waits: the reader counts as free by then, since whoever gets the reply
    /// may send the next request before this thread runs on. The reply is EAGAIN if too much of the
    /// user's waits already and none of it gets on ([`crate::work`]).
    pub(super) fn run<T>(
        &self,
        request: &Request,
        work: impl FnOnce(&Shared) -> Result<T> + Send + 'static,
        reply: impl FnOnce(Result<T>) + Send + 'static,
    ) {
        match self.may_wait_here() {
            Some(pass) => self.shared.guarded(|shared| {
                let answer = work(shared);
                drop(pass);
                reply(answer);
            }),
            None => self.hand_over(request.uid(), 0, |shared| reply(shared.and_then(work))),
        }
    }

    /// As [`Adapter::run`], of a `job` that replies by itself.
    pub(super) fn run_whole<R: Refusable>(
        &self,
        request: &Request,
        reply: R,
        job: impl FnOnce(&Shared, R) + Send + 'static,
    ) {
        match self.may_wait_here() {
            Some(pass) => self.shared.guarded(|shared| {
                job(shared, reply);
                drop(pass);
            }),
            None => self.hand_over(request.uid(), 0, |shared| match shared {
                Ok(shared) => job(shared, reply),
                Err(refused) => reply.refuse(errno(&refused)),
            }),
        }
    }

    /// Closes an open file and replies. Never refused: nobody would close it otherwise.
    pub(super) fn run_release(&self, handle: FileHandle, reply: ReplyEmpty) {
        let Some(file) = self.server().release(handle.0) else { return reply.ok() };
        let file = match Arc::try_unwrap(file).map(OpenFile::try_close) {
            Ok(Ok(())) => {
                self.server().counters.hits.hit();
                return reply.ok();
            }
            Ok(Err(file)) => Arc::new(file),
            // A request of the same file is under way; it closes, if it is the last.
            Err(file) => file,
        };
        let close = move |shared: &Shared| {
            shared.closed(file);
            reply.ok();
        };
        match self.may_wait_here() {
            Some(pass) => self.shared.guarded(|shared| {
                close(shared);
                drop(pass);
            }),
            None => {
                let shared = self.shared.clone();
                self.shared.server.counters.pooled.hit();
                let job = move |_| shared.guarded(close);
                self.shared.work.submit_closing(Box::new(job));
            }
        }
    }

    /// Answers a read from the caches, if they have all of it. Otherwise the reply is given back.
    pub(super) fn read_here(
        &self,
        request: &Request,
        (node, file): (INodeNo, FileHandle),
        (offset, size): (u64, u32),
        reply: ReplyData,
    ) -> Option<ReplyData> {
        let server = self.server();
        let mut reply = Some(reply);
        let hit = with_buffer(size as usize, |buffer| {
            let hit = server.try_read(node.0, file.0, offset, buffer)?;
            server.counters.hits.hit();
            reply.take().into_iter().for_each(|reply| reply.data(&buffer[..hit.count]));
            Some(hit)
        });
        if let Some(Hit { count, ahead: true }) = hit {
            let ahead = move |shared: &Shared| {
                shared.server.read_ahead(node.0, file.0, offset, count);
                Ok(())
            };
            // Refused or not: nobody waits for it.
            self.run(request, ahead, |_| {});
        }
        reply
    }

    /// Leave to run what may wait on this reader; given back when dropped.
    pub(super) fn may_wait_here(&self) -> Option<Option<Pass<'_>>> {
        let shared = &self.shared;
        let leave = match shared.prompt {
            true => Some(None),
            false => shared.work.try_inline().map(Some),
        };
        if leave.is_some() {
            shared.server.counters.inline.hit();
        }
        leave
    }

    /// Has a worker run `job`, which keeps `bytes` of memory until then.
    pub(super) fn hand_over(
        &self,
        uid: u32,
        bytes: usize,
        job: impl FnOnce(Result<&Shared>) + Send + 'static,
    ) {
        let job = self.job(job);
        self.shared.work.submit(uid, bytes, job);
    }

    /// As [`Self::hand_over`], of pages of a mapping: what a refused write would lose is lost for good,
    /// and who stored it has no call to tell.
    pub(super) fn hand_over_pages(
        &self,
        bytes: usize,
        job: impl FnOnce(Result<&Shared>) + Send + 'static,
    ) {
        let job = self.job(job);
        self.shared.work.submit_pages(bytes, job);
    }

    fn job(&self, job: impl FnOnce(Result<&Shared>) + Send + 'static) -> Job {
        let shared = self.shared.clone();
        let counters = &self.shared.server.counters;
        counters.pooled.hit();
        Box::new(move |runs: bool| {
            shared.guarded(|shared| match runs {
                true => job(Ok(shared)),
                false => {
                    shared.server.counters.refused.hit();
                    job(Err(Error::WouldBlock));
                }
            });
        })
    }
}

impl Shared {
    /// A panic fails the one request: its reply, dropped on the way out, answers EIO.
    pub(super) fn guarded(&self, job: impl FnOnce(&Shared)) {
        if catch_unwind(AssertUnwindSafe(|| job(self))).is_err() {
            self.server.counters.panics.hit();
            log::error!("a request handler panicked; the request failed with EIO");
        }
    }

    fn passthrough(&self) -> bool {
        // ORDERING: Relaxed; set before the first request, and once more to false.
        self.passthrough.load(Relaxed)
    }

    /// Whether, and through which host file, the kernel may read and write `file` directly.
    pub(super) fn backing(
        &self,
        file: &mut OpenFile,
        open_backing: impl FnOnce(&OwnedFd) -> io::Result<BackingId>,
    ) -> Option<Arc<BackingId>> {
        if !self.server.settings.passthrough || file.node().kind() != FileKind::Regular {
            return None;
        }
        // Every open is counted, also when nothing is offered (any more): all opens of an inode
        // must agree, and `closed` counts all of them back.
        let host = file.bypass();
        let set_id = file_has_set_id(&self.server, file);
        let backing = self.backings.join(file.node().id(), || {
            let host = host.filter(|_| !set_id && self.passthrough())?;
            let registered = without_set_id_privilege(|| open_backing(&host));
            registered.inspect_err(|error| self.passthrough_refused(error)).ok()
        });
        match &backing {
            Some(_) => self.server.counters.passthrough_opens.hit(),
            None => file.cancel_bypass(),
        }
        backing
    }

    /// The kernel did not take a host file. What it will never take is not offered again.
    fn passthrough_refused(&self, error: &io::Error) {
        let never = [libc::EPERM, libc::ENOTTY];
        if error.raw_os_error().is_some_and(|errno| never.contains(&errno)) {
            log::warn!("the kernel takes no host files from us ({error}); data goes through uvfs");
            // ORDERING: Relaxed; opens that still see true are refused the same way.
            self.passthrough.store(false, Relaxed);
        }
    }

    /// Closes `file`, and counts its open back.
    fn closed(&self, file: Arc<OpenFile>) {
        if self.server.settings.passthrough && file.node().kind() == FileKind::Regular {
            self.backings.leave(file.node().id());
        }
    }
}

fn file_has_set_id(server: &Server, file: &OpenFile) -> bool {
    match server.vfs.attributes(file.node(), Some(file)) {
        Ok(attributes) => attributes.mode & 0o6000 != 0,
        Err(_) => true,
    }
}
