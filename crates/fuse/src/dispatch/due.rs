//! A reply that is due, with the time of its request.
//!
//! # Boundary
//! Counts a request when it arrives, and its time when the answer is sent. Other modules make the answer.
//!
//! # Concurrency
//! The thread that performs the request owns it, and passes it on with the request. It counts in that thread's own
//! cells (`uvfs_concurrent::histogram`), so readers share no line here. The reply of a request that may wait is among
//! those under way ([`super::under_way`]): it may have been sent when its thread comes to it.
//!
//! # Why
//! A reply can be sent only through this type, so no request is left uncounted: neither hits, nor a worker's requests,
//! nor replies that wait until the kernel has dropped pages. The time includes the wait for a worker, as the caller's
//! time does. Weakness: two reads of the clock for each request; their cost was estimated (50 ns) and not measured.

use super::under_way::{Registered, UnderWay};
use crate::server::overtaken::{Stale, Writing};
use crate::server::{Answer, Doubts, Listed, Reply, Sender};
use crate::statistics::{Counters, Kind};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;
use uvfs_vfs::Result;

/// See the module.
pub(super) struct Due<R> {
    slot: Slot<R>,
    kind: Kind,
    since: Instant,
    /// What a write needs that comes through the kernel's pages.
    writing: Option<Writing>,
}

/// The reply.
enum Slot<R> {
    Own(R),
    Shared(Registered<R>),
    /// It was sent, or its request was ended before.
    Gone,
}

impl<R: Reply> Due<R> {
    /// To a request that has just come.
    pub(super) fn new(reply: R, kind: Kind, counters: &Counters) -> Self {
        counters.requests.of(kind).came.hit();
        Self { slot: Slot::Own(reply), kind, since: Instant::now(), writing: None }
    }

    /// From now on the request may wait, and is ended if its task dies.
    pub(super) fn share(&mut self, all: &Arc<UnderWay<R>>, sender: Sender, doubts: Doubts) {
        let closes = self.kind == Kind::flush;
        self.slot = match std::mem::replace(&mut self.slot, Slot::Gone) {
            Slot::Own(reply) => {
                Slot::Shared(all.register((sender, self.since), (doubts, closes), reply))
            }
            other => other,
        };
    }

    /// Whether the kernel still waits for the answer.
    pub(super) fn is_wanted(&self) -> bool {
        match &self.slot {
            Slot::Own(_) => true,
            Slot::Shared(registered) => registered.is_wanted(),
            Slot::Gone => false,
        }
    }

    /// From now on the request is not ended any more. False if it was.
    pub(super) fn take(&mut self) -> bool {
        if let Slot::Shared(registered) = &self.slot {
            self.slot = registered.take().map_or(Slot::Gone, Slot::Own);
        }
        matches!(self.slot, Slot::Own(_))
    }

    /// Registers a file of the host, see [`Reply::register`].
    pub(super) fn register(&self, host: &OwnedFd) -> io::Result<R::Backing> {
        let ended = || io::Error::from_raw_os_error(libc::EINTR);
        match &self.slot {
            Slot::Own(reply) => reply.register(host),
            Slot::Shared(registered) => {
                registered.reply().as_ref().ok_or_else(ended)?.register(host)
            }
            Slot::Gone => Err(ended()),
        }
    }

    /// Adds an entry, see [`Reply::add`].
    pub(super) fn add(&mut self, listed: &Listed<'_>) -> bool {
        match &mut self.slot {
            Slot::Own(reply) => reply.add(listed),
            Slot::Shared(registered) => {
                registered.reply().as_mut().is_some_and(|reply| reply.add(listed))
            }
            Slot::Gone => false,
        }
    }

    /// It is the answer to this write.
    pub(super) fn set_writing(&mut self, writing: Writing) {
        self.writing = Some(writing);
    }

    /// The write is in place: the pages that later reads may have filled without it.
    pub(super) fn end_writing(&mut self) -> Stale {
        self.writing.take().map_or(Stale::Nothing, Writing::end)
    }

    /// Sends it; its time ends when the kernel has it. It is dropped if the request was ended.
    pub(super) fn send(mut self, counters: &Counters, answer: Result<Answer<'_, R::Backing>>) {
        self.take();
        if let Slot::Own(reply) = std::mem::replace(&mut self.slot, Slot::Gone) {
            reply.send(answer);
        }
        counters.requests.of(self.kind).took.add(self.since.elapsed());
    }
}
