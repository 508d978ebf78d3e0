//! Requests that a reader answers without permission to wait: cache hits, and requests that need no store.
//!
//! # Boundary
//! If it cannot answer, it hands the unanswered reply back and leaves the caches unchanged.
//!
//! # Concurrency
//! Nothing here waits for a store or for another request, except three jobs with that permission: reading ahead,
//! closing a file, and releasing a removed one.
//!
//! # Why
//! Separate from [`super::perform`], so that a hit takes no pass and copies nothing. Weakness: a hit that finds pages to
//! read ahead starts that on this reader, if it may wait.

use super::due::Due;
use super::{Lane, Shared, close};
use crate::buffers::with_buffer;
use crate::server::control::is_control;
use crate::server::{Answer, Opened, Reply, Request, Sender, Through, WriteFrom};
use crate::work::WaitsFor;
use std::sync::Arc;
use uvfs_vfs::{Error, Hit, OpenFile, Result};

/// Answers `request` if that needs no wait; otherwise returns the reply.
pub(super) fn answer<R: Reply>(
    shared: &Arc<Shared<R>>,
    sender: Sender,
    request: &Request<'_>,
    mut due: Due<R>,
) -> Option<Due<R>> {
    let server = &*shared.server;
    match *request {
        Request::Read { node, file, offset, size, into_pages } => {
            if into_pages {
                server.direct.pages_come(node);
                server.overtaken.reads(node, sender.number, (offset, size.into()));
            }
            return read(shared, sender, (node, file, offset, size), due);
        }
        Request::Write { node, offset, ref data, how, .. }
            if how.from != WriteFrom::Direct && !is_control(node) =>
        {
            server.direct.pages_come(node);
            // The pages of a mapping stay until they are written.
            if how.from == WriteFrom::Paged {
                let range = (offset, data.len() as u64);
                due.set_writing(server.overtaken.writes(node, sender.number, range));
            }
            return Some(due);
        }
        Request::GetXattr { size, .. } | Request::ListXattr { size, .. } => {
            let Some(found) = value(shared, sender, request) else { return Some(due) };
            match found {
                Ok(value) => send_value(size, value, |answer| due.send(&server.counters, answer)),
                Err(error) => due.send(&server.counters, Err(error)),
            }
            return None;
        }
        Request::Forget { node, lookups } => {
            forget(shared, node, lookups, due);
            return None;
        }
        Request::Release { file } | Request::ReleaseDir { file } => {
            release(shared, file, due);
            return None;
        }
        _ => {}
    }
    match plain(shared, sender, request) {
        Some(answer) => due.send(&server.counters, answer),
        None => return Some(due),
    }
    None
}

/// Sends answers that borrow no data.
fn plain<R: Reply>(
    shared: &Shared<R>,
    sender: Sender,
    request: &Request<'_>,
) -> Option<Result<Answer<'static, R::Backing>>> {
    let server = &*shared.server;
    let hit = |answer| {
        server.counters.hits.hit();
        Some(Ok(answer))
    };
    match request {
        Request::Lookup { parent, name } => {
            hit(Answer::Entry(server.try_lookup(sender.uid, *parent, name)?))
        }
        Request::GetAttr { node, .. } => hit(Answer::Attrs(server.try_getattr(*node)?)),
        Request::Statx { node, .. } => hit(Answer::AttrsAndBirth(server.try_getattr(*node)?)),
        Request::Open { .. } | Request::OpenDir { .. } if server.stateless() => {
            Some(Ok(Answer::NeedNotAsk))
        }
        Request::Open { node, flags, .. } | Request::OpenDir { node, flags }
            if is_control(*node) =>
        {
            let opened = server.control.open(*node, *flags, sender.uid);
            // Direct I/O: the kernel must not merge or cache writes to this file.
            let through = |handle| {
                Answer::Opened(Opened { handle, through: Through::Requests { keep: true } })
            };
            Some(opened.map(through))
        }
        Request::Open { node, flags, .. } => {
            let file = server.try_open(&server.caller(sender), *node, *flags)?;
            let (handle, keep) = server.opened(Arc::new(file), sender.task);
            hit(Answer::Opened(Opened { handle, through: shared.through(None, *flags, keep) }))
        }
        Request::Write { node, offset, data, how, .. } if is_control(*node) => {
            server.control.accepts(*offset, *how, data.len()).err().map(Err)
        }
        Request::Flush { .. } if !server.wants_flush() => Some(Ok(Answer::NeedNotAsk)),
        Request::Flush { file } => {
            let flushed = server.try_flush(*file)?;
            server.counters.hits.hit();
            Some(flushed.map(|()| Answer::Done))
        }
        Request::SetXattr { .. } | Request::RemoveXattr { .. } if !server.vfs.has_xattrs() => {
            Some(Ok(Answer::NeedNotAsk))
        }
        // The kernel then answers for itself, for as long as the mount lasts: always ready, as files are.
        Request::Poll {} => Some(Ok(Answer::NeedNotAsk)),
        Request::IoCtl {} => Some(Err(Error::from_errno(libc::ENOTTY))),
        _ => None,
    }
}

/// The value of an extended attribute, or of the list of them, if the caches have it.
fn value<R: Reply>(
    shared: &Shared<R>,
    sender: Sender,
    request: &Request<'_>,
) -> Option<Result<Option<Vec<u8>>>> {
    let server = &*shared.server;
    if !server.vfs.has_xattrs() {
        return Some(Ok(None));
    }
    let known = match request {
        Request::GetXattr { node, name, .. } => {
            server.try_getxattr(&server.caller(sender), *node, name)?
        }
        Request::ListXattr { node, .. } => Ok(server.try_listxattr(*node)?),
        _ => return None,
    };
    server.counters.hits.hit();
    Some(known.map(Some))
}

/// Tells `send` the answer that a caller with room for `size` bytes gets; `None`: the kernel need not ask. A size of 0
/// asks how large the value is.
pub(super) fn send_value<B>(
    size: u32,
    value: Option<Vec<u8>>,
    send: impl FnOnce(Result<Answer<'_, B>>),
) {
    match value {
        None => send(Ok(Answer::NeedNotAsk)),
        Some(value) if size == 0 => send(Ok(Answer::Size(value.len() as u32))),
        Some(value) if value.len() > size as usize => send(Err(Error::Range)),
        Some(value) => send(Ok(Answer::Bytes(&value))),
    }
}

/// Answers a read from the caches if they have all of it. Otherwise returns the reply.
fn read<R: Reply>(
    shared: &Arc<Shared<R>>,
    sender: Sender,
    (node, file, offset, size): (u64, u64, u64, u32),
    due: Due<R>,
) -> Option<Due<R>> {
    let server = &*shared.server;
    let mut due = Some(due);
    let hit = with_buffer(size as usize, |buffer| {
        let hit = server.try_read(node, file, offset, buffer)?;
        server.counters.hits.hit();
        let data = &buffer[..hit.count];
        let answer = |due: Due<R>| due.send(&server.counters, Ok(Answer::Bytes(data)));
        due.take().into_iter().for_each(answer);
        Some(hit)
    });
    if let Some(Hit { count, ahead: true }) = hit {
        let ahead = move |shared: &Shared<R>| shared.server.read_ahead(node, file, offset, count);
        match shared.may_wait_here() {
            Some(_pass) => ahead(shared),
            // Refused or not, no request waits for it.
            None => {
                shared.submit(Lane::User(sender.uid, WaitsFor::Data), 0, move |shared, may_run| {
                    if may_run.is_ok() {
                        ahead(shared);
                    }
                })
            }
        }
    }
    due
}

/// Returns lookups to the table. Freeing their nodes may need the store: this reader does that only if it may wait, and
/// a worker otherwise. It is never refused.
fn forget<R: Reply>(shared: &Arc<Shared<R>>, node: u64, lookups: u64, due: Due<R>) {
    let gone = shared.server.give_back(node, lookups);
    due.send(&shared.server.counters, Ok(Answer::Done));
    let Some(gone) = gone else { return };
    if !gone.may_wait() {
        return shared.server.nodes.release(gone);
    }
    match shared.may_wait_here() {
        Some(_pass) => shared.server.nodes.release(gone),
        None => shared.submit(Lane::Closing, 0, move |shared, _| shared.server.nodes.release(gone)),
    }
}

/// Closes an open file and replies. Never refused: nothing else would close the file.
fn release<R: Reply>(shared: &Arc<Shared<R>>, handle: u64, due: Due<R>) {
    let counters = &shared.server.counters;
    let Some(file) = shared.server.release(handle) else {
        return due.send(counters, Ok(Answer::Done));
    };
    match Arc::try_unwrap(file).map(OpenFile::try_close) {
        Ok(Ok(())) => {
            counters.hits.hit();
            due.send(counters, Ok(Answer::Done));
        }
        Ok(Err(file)) => close(shared, Arc::new(file), due),
        // A request of the same file is under way; it closes, if it is the last.
        Err(file) => close(shared, file, due),
    }
}
