//! What the handlers stand on: which thread runs a request, and which files the kernel gets directly.
//!
//! # Concurrency
//! Handlers run on any reader. [`Adapter::run`] keeps one of them free for hits; [`Shared`] is what goes
//! along to a worker.

use super::super::backing::{Backings, without_set_id_privilege};
use crate::server::Server;
use crate::work::Work;
use fuser::{BackingId, Request};
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use uvfs_concurrent::primitive::atomic::{AtomicBool, Ordering::Relaxed};
use uvfs_vfs::{Caller, FileKind, OpenFile, Waits};

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
    /// may send the next request before this thread runs on.
    pub(super) fn run<T>(
        &self,
        work: impl FnOnce(&Shared) -> T + Send + 'static,
        reply: impl FnOnce(T) + Send + 'static,
    ) {
        let shared = &self.shared;
        let counters = &shared.server.counters;
        let pass = if shared.prompt { None } else { shared.work.try_inline() };
        if shared.prompt || pass.is_some() {
            counters.inline.hit();
            return shared.guarded(|shared| {
                let answer = work(shared);
                drop(pass);
                reply(answer);
            });
        }
        counters.pooled.hit();
        let shared = self.shared.clone();
        let job = move |shared: &Shared| reply(work(shared));
        self.shared.work.submit(Box::new(move || shared.guarded(job)));
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
        // must agree, and `released` counts all of them back.
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

    pub(super) fn released(&self, handle: u64) {
        let Some(file) = self.server.release(handle) else { return };
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
