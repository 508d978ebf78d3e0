//! A reply that is due, with the time of its request.
//!
//! # Boundary
//! Counts a request when it arrives, and its time when the answer is sent. Other modules make the answer.
//!
//! # Concurrency
//! The thread that performs the request owns it, and passes it on with the request. It counts in that thread's own
//! cells (`uvfs_concurrent::histogram`), so readers share no line here.
//!
//! # Why
//! A reply can be sent only through this type, so no request is left uncounted: neither hits, nor a worker's requests,
//! nor replies that wait until the kernel has dropped pages. The time includes the wait for a worker, as the caller's
//! time does. Weakness: two reads of the clock for each request; their cost was estimated (50 ns) and not measured.

use crate::server::overtaken::{Stale, Writing};
use crate::server::{Answer, Reply};
use crate::statistics::{Counters, Kind};
use std::time::Instant;
use uvfs_vfs::Result;

/// See the module.
pub(super) struct Due<R> {
    reply: R,
    kind: Kind,
    since: Instant,
    /// Of a write through the kernel's pages.
    writing: Option<Writing>,
}

impl<R: Reply> Due<R> {
    /// To a request that has just come.
    pub(super) fn new(reply: R, kind: Kind, counters: &Counters) -> Self {
        counters.requests.of(kind).came.hit();
        Self { reply, kind, since: Instant::now(), writing: None }
    }

    pub(super) fn reply(&self) -> &R {
        &self.reply
    }

    pub(super) fn reply_mut(&mut self) -> &mut R {
        &mut self.reply
    }

    /// It is the answer to this write.
    pub(super) fn set_writing(&mut self, writing: Writing) {
        self.writing = Some(writing);
    }

    /// The write is in place: the pages that later reads may have filled without it.
    pub(super) fn end_writing(&mut self) -> Stale {
        self.writing.take().map_or(Stale::Nothing, Writing::end)
    }

    /// Sends it; its time ends when the kernel has it.
    pub(super) fn send(self, counters: &Counters, answer: Result<Answer<'_, R::Backing>>) {
        self.reply.send(answer);
        counters.requests.of(self.kind).took.add(self.since.elapsed());
    }
}
