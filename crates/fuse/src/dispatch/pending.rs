//! A reply to a request that may wait, with the pass of its reader.
//!
//! # Boundary
//! Orders two steps and performs neither: the pass returns to its gate, then the answer is sent (P2 of [`super`]).
//!
//! # Concurrency
//! The thread that performs the request owns it. If a panic drops it, it also returns the pass.
//!
//! # Why
//! One value with one way out: no handler can reply and keep its pass. Weakness: a reply that waits for the kernel to
//! drop pages is sent by another thread, through a call of its own; that is after its pass, too.

use super::due::Due;
use crate::server::overtaken::Stale;
use crate::server::{Answer, Listed, Reply, Server};
use crate::statistics::Counters;
use std::io;
use std::os::fd::OwnedFd;
use uvfs_concurrent::gate::Pass;
use uvfs_vfs::Result;

/// See the module.
pub(super) struct Pending<'p, R> {
    pass: Option<Pass<'p>>,
    due: Due<R>,
    counters: &'p Counters,
}

impl<'p, R: Reply> Pending<'p, R> {
    /// `pass`: none on a worker, and where no store waits.
    pub(super) fn new(pass: Option<Pass<'p>>, due: Due<R>, counters: &'p Counters) -> Self {
        Self { pass, due, counters }
    }

    /// As [`Reply::register`].
    pub(super) fn register(&self, host: &OwnedFd) -> io::Result<R::Backing> {
        self.due.reply().register(host)
    }

    /// As [`Reply::add`].
    pub(super) fn add(&mut self, listed: &Listed<'_>) -> bool {
        self.due.reply_mut().add(listed)
    }

    /// Answers: first the pass, then the reply.
    pub(super) fn finish(self, answer: Result<Answer<'_, R::Backing>>) {
        drop(self.pass);
        self.due.send(self.counters, answer);
    }

    /// [`Pending::finish`] for a write through the kernel's pages of `node`. If later reads have overtaken it, the kernel
    /// first drops the pages that they brought.
    pub(super) fn finish_paged(self, server: &Server, node: u64, written: Result<usize>) {
        drop(self.pass);
        let mut due = self.due;
        let stale = due.end_writing();
        let send = move |counters: &Counters| due.send(counters, written.map(Answer::Written));
        match stale {
            Stale::Nothing => send(self.counters),
            Stale::Pages(begin, end) => {
                server.direct.drop_and_answer(node, begin, end - begin, Box::new(send));
            }
            Stale::Unknown => {
                send(self.counters);
                server.direct.drop_soon(node);
            }
        }
    }

    /// [`Pending::finish`] for a write past the kernel's pages of `(node, offset, length)`, which the kernel drops
    /// first. After an error, too: the store may have part of the write.
    pub(super) fn finish_direct(
        self,
        server: &Server,
        (node, offset, length): (u64, u64, u64),
        written: Result<usize>,
    ) {
        drop(self.pass);
        let due = self.due;
        let send = move |counters: &Counters| due.send(counters, written.map(Answer::Written));
        server.direct.answer(node, offset, length, Box::new(send));
    }
}
