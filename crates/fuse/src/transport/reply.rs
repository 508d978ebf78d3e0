//! Answers of the server as replies.

use super::convert::{errno, missing_attr};
use crate::server::control::is_control;
use crate::server::{Attrs, EntryOut, Server};
use fuser::{
    Errno, FopenFlags, Generation, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyWrite, ReplyXattr,
};
use std::cell::RefCell;
use std::time::Duration;
use uvfs_vfs::Result;

/// The numbers of a directory and of its parent, for `.` and `..`.
pub(super) fn numbers(server: &Server, own: &Attrs) -> (u64, u64) {
    let number = own.attributes.number;
    if is_control(own.node_id) {
        return (number, server.vfs.root().number());
    }
    let parent = server.nodes.get(own.node_id).and_then(|node| node.parent());
    (number, parent.map_or(number, |parent| parent.number()))
}

pub(super) fn file_flags(keep_cache: bool) -> FopenFlags {
    if keep_cache { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() }
}

pub(super) fn send_entry(reply: ReplyEntry, answer: Result<EntryOut>) {
    match answer {
        Ok(EntryOut::Found { attrs, entry_valid, generation }) => {
            let (attr, generation) = (attrs.entry_attr(), Generation(generation.into()));
            reply.entry_with_ttls(&attrs.valid, &entry_valid, &attr, generation);
        }
        Ok(EntryOut::Missing(Duration::ZERO)) => reply.error(Errno::ENOENT),
        Ok(EntryOut::Missing(valid)) => {
            reply.entry_with_ttls(&valid, &valid, &missing_attr(), Generation(0));
        }
        Err(error) => reply.error(errno(&error)),
    }
}

pub(super) fn send_attr(reply: ReplyAttr, answer: Result<Attrs>) {
    match answer {
        Ok(attrs) => reply.attr(&attrs.valid, &attrs.attr()),
        Err(error) => reply.error(errno(&error)),
    }
}

pub(super) fn send_empty(reply: ReplyEmpty, answer: Result<()>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

pub(super) fn send_written(reply: ReplyWrite, answer: Result<usize>) {
    match answer {
        Ok(count) => reply.written(u32::try_from(count).unwrap_or(u32::MAX)),
        Err(error) => reply.error(errno(&error)),
    }
}

/// Answers a write of `(node, offset, length)` that left its bytes in pages of the kernel.
pub(super) fn send_paged(_: &Server, _: (u64, u64, u64), reply: ReplyWrite, answer: Result<usize>) {
    send_written(reply, answer);
}

/// Answers one that went past them. Also after an error the store may have a part of it.
pub(super) fn send_direct(
    server: &Server,
    (node, offset, length): (u64, u64, u64),
    reply: ReplyWrite,
    answer: Result<usize>,
) {
    server.direct.answer(node, offset, length, Box::new(move || send_written(reply, answer)));
}

/// A size of 0 asks how large the value is.
pub(super) fn send_xattr(reply: ReplyXattr, size: u32, answer: Result<Vec<u8>>) {
    match answer {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(errno(&error)),
    }
}

/// A reply that can say that a request is refused.
pub(super) trait Refusable: Send + 'static {
    /// Answers with `errno`.
    fn refuse(self, errno: Errno);
}

macro_rules! refusable {
    ($($reply:ty),* $(,)?) => {
        $(impl Refusable for $reply {
            fn refuse(self, errno: Errno) {
                self.error(errno);
            }
        })*
    };
}

refusable!(
    ReplyOpen,
    ReplyCreate,
    ReplyData,
    ReplyDirectory,
    ReplyDirectoryPlus,
    ReplyLseek,
    ReplyWrite
);

/// Lends this thread's read buffer.
pub(super) fn with_buffer<T>(size: usize, action: impl FnOnce(&mut [u8]) -> T) -> T {
    thread_local!(static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < size {
            buffer.resize(size, 0);
        }
        action(&mut buffer[..size])
    })
}
