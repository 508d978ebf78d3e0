//! A reply that is due, and since when.
//!
//! # Boundary
//! Counts a request when it comes, and how long it took when its answer has gone out. What is answered is others'.
//!
//! # Concurrency
//! Owned by the thread that does the request, and handed on with it. It counts in that thread's own cells
//! (`uvfs_concurrent::histogram`), so that no two readers meet here.
//!
//! # Why
//! A reply cannot be sent but through this, so nothing is left out by mistake: what the caches answer, what a worker does, and
//! what waits until the kernel has dropped pages. The waiting for a worker is in the time, as it is in the caller's.
//! Weakness: two looks at the clock for each request; what they cost was estimated (50 ns) and not measured.

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
