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

use crate::server::{Answer, Reply};
use crate::statistics::{Counters, Kind};
use std::time::Instant;
use uvfs_vfs::Result;

/// See the module.
pub(super) struct Due<R> {
    reply: R,
    kind: Kind,
    since: Instant,
}

impl<R: Reply> Due<R> {
    /// To a request that has just come.
    pub(super) fn new(reply: R, kind: Kind, counters: &Counters) -> Self {
        counters.requests.of(kind).came.hit();
        Self { reply, kind, since: Instant::now() }
    }

    pub(super) fn reply(&self) -> &R {
        &self.reply
    }

    pub(super) fn reply_mut(&mut self) -> &mut R {
        &mut self.reply
    }

    /// Sends it; its time ends when the kernel has it.
    pub(super) fn send(self, counters: &Counters, answer: Result<Answer<'_, R::Backing>>) {
        self.reply.send(answer);
        counters.requests.of(self.kind).took.add(self.since.elapsed());
    }
}
