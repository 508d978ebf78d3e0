//! A reply to a request that may wait, with the pass of its reader.
//!
//! # Boundary
//! Orders three steps: the answer is settled if the request was ended before, the pass returns to its gate, then the
//! answer is sent (P2 of [`super`]).
//!
//! # Concurrency
//! The thread that performs the request owns it. If a panic drops it, it also returns the pass.
//!
//! # Why
//! One value with one way out: no handler can reply and keep its pass, and none can forget that its answer may not be
//! wanted any more. Weakness: a reply that waits for the kernel to drop pages is sent by another thread, through a call
//! of its own; that is after its pass, too.

use super::Shared;
use super::due::Due;
use crate::server::overtaken::Stale;
use crate::server::{Answer, EntryOut, Listed, Reply};
use crate::statistics::Counters;
use std::io;
use std::os::fd::OwnedFd;
use uvfs_concurrent::gate::Pass;
use uvfs_vfs::{InodeId, Result};

/// See the module.
pub(super) struct Pending<'p, R: Reply> {
    pass: Option<Pass<'p>>,
    due: Due<R>,
    shared: &'p Shared<R>,
    /// Node ids that the entries of a listing have counted.
    counted: Vec<u64>,
    /// Objects that lost or got a name.
    renamed: Vec<InodeId>,
}

impl<'p, R: Reply> Pending<'p, R> {
    /// `pass`: none on a worker, and where no store waits.
    pub(super) fn new(pass: Option<Pass<'p>>, due: Due<R>, shared: &'p Shared<R>) -> Self {
        Self { pass, due, shared, counted: Vec::new(), renamed: Vec::new() }
    }

    /// Calls [`Reply::register`] of the reply.
    pub(super) fn register(&self, host: &OwnedFd) -> io::Result<R::Backing> {
        self.due.register(host)
    }

    /// Calls [`Reply::add`] of the reply.
    pub(super) fn add(&mut self, listed: &Listed<'_>) -> bool {
        self.due.add(listed)
    }

    /// The entries that were added have counted these node ids.
    pub(super) fn set_counted(&mut self, counted: Vec<u64>) {
        self.counted = counted;
    }

    /// The request changes names of these objects.
    pub(super) fn set_renamed(&mut self, renamed: Vec<InodeId>) {
        self.renamed = renamed;
    }

    /// Whether the kernel still waits for the answer.
    pub(super) fn is_wanted(&self) -> bool {
        self.due.is_wanted()
    }

    /// Answers: first the pass, then the reply.
    pub(super) fn finish(mut self, answer: Result<Answer<'_, R::Backing>>) {
        if !self.due.take() {
            self.settle(&answer);
        }
        drop(self.pass);
        self.due.send(&self.shared.server.counters, answer);
    }

    /// The kernel does not get `answer`: takes back what was counted for it.
    fn settle(&self, answer: &Result<Answer<'_, R::Backing>>) {
        let server = &*self.shared.server;
        self.counted.iter().for_each(|&node| server.forget(node, 1));
        self.renamed.iter().for_each(|&inode| server.notices.tell_inode(inode));
        let Ok(answer) = answer else { return };
        match answer {
            Answer::Entry(EntryOut::Found { attrs, .. }) => server.forget(attrs.node_id, 1),
            Answer::Opened(opened) => self.shared.close_unanswered(opened.handle),
            Answer::Created { attrs, opened, .. } => {
                self.shared.close_unanswered(opened.handle);
                server.forget(attrs.node_id, 1);
            }
            _ => {}
        }
    }

    /// [`Pending::finish`] for a write through the kernel's pages of `node`. If later reads have overtaken it, the kernel
    /// first drops the pages that they brought.
    pub(super) fn finish_paged(self, node: u64, written: Result<usize>) {
        drop(self.pass);
        let (server, mut due) = (&*self.shared.server, self.due);
        let stale = due.end_writing();
        let send = move |counters: &Counters| due.send(counters, written.map(Answer::Written));
        match stale {
            Stale::Nothing => send(&server.counters),
            Stale::Pages(begin, end) => {
                server.direct.drop_and_answer(node, begin, end - begin, Box::new(send));
            }
            Stale::Unknown => {
                send(&server.counters);
                server.direct.drop_soon(node);
            }
        }
    }

    /// [`Pending::finish`] for a write past the kernel's pages of `(node, offset, length)`, which the kernel drops
    /// first. After an error, too: the store may have part of the write.
    pub(super) fn finish_direct(
        self,
        (node, offset, length): (u64, u64, u64),
        written: Result<usize>,
    ) {
        drop(self.pass);
        let due = self.due;
        let send = move |counters: &Counters| due.send(counters, written.map(Answer::Written));
        self.shared.server.direct.answer(node, offset, length, Box::new(send));
    }
}
