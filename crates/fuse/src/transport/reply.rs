//! Answers as the FUSE crate's replies.
//!
//! # Boundary
//! Encodes and decides nothing. [`crate::dispatch`] knows which answers a request may have; an answer that does not fit
//! the reply is a bug, and becomes EIO.
//!
//! # Why
//! One type for all replies of the crate, so that generic code is compiled once. Weakness: it has the size of the
//! largest.

use super::convert::{errno, file_attr, file_type, missing_attr};
use crate::server::{Answer, EntryOut, Listed, Opened, Reply, Through};
use fuser::{
    BackingId, Errno, FileHandle, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek,
    ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr,
};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use uvfs_vfs::Result;

macro_rules! replies {
    ($($kind:ident($reply:ty)),* $(,)?) => {
        /// See the module.
        pub(super) enum FuserReply {
            /// Of a message that has no answer.
            None,
            $($kind($reply),)*
        }

        impl FuserReply {
            fn error(self, errno: Errno) {
                match self {
                    Self::None => {}
                    $(Self::$kind(reply) => reply.error(errno),)*
                }
            }
        }
    };
}

replies!(
    Attr(ReplyAttr),
    Create(ReplyCreate),
    Data(ReplyData),
    Empty(ReplyEmpty),
    Entry(ReplyEntry),
    Ioctl(ReplyIoctl),
    Names(ReplyDirectory),
    Entries(ReplyDirectoryPlus),
    Offset(ReplyLseek),
    Open(ReplyOpen),
    Poll(ReplyPoll),
    Totals(ReplyStatfs),
    Value(ReplyXattr),
    Written(ReplyWrite),
);

impl Reply for FuserReply {
    type Backing = BackingId;

    fn register(&self, host: &OwnedFd) -> io::Result<BackingId> {
        match self {
            Self::Open(reply) => reply.open_backing(host),
            Self::Create(reply) => reply.open_backing(host),
            _ => Err(io::Error::from_raw_os_error(libc::ENOTTY)),
        }
    }

    fn add(&mut self, listed: &Listed<'_>) -> bool {
        let Listed { next, number, attributes, .. } = *listed;
        let name = OsStr::from_bytes(listed.name);
        match self {
            Self::Names(reply) => {
                !reply.add(INodeNo(number), next, file_type(attributes.kind), name)
            }
            Self::Entries(reply) => {
                let (node, generation) = (INodeNo(listed.node), listed.generation.into());
                let attr = file_attr(attributes, number);
                !reply.add(node, next, name, &listed.valid, &attr, Generation(generation))
            }
            _ => false,
        }
    }

    fn send(self, answer: Result<Answer<'_, BackingId>>) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.error(errno(&error)),
        };
        match (self, answer) {
            (reply, Answer::NeedNotAsk) => reply.error(Errno::ENOSYS),
            (Self::None, Answer::Done) => {}
            (Self::Empty(reply), Answer::Done) => reply.ok(),
            (Self::Entry(reply), Answer::Entry(entry)) => send_entry(reply, &entry),
            (Self::Attr(reply), Answer::Attrs(attrs)) => reply.attr(&attrs.valid, &attrs.attr()),
            (Self::Data(reply), Answer::Bytes(data)) => reply.data(data),
            (Self::Value(reply), Answer::Bytes(value)) => reply.data(value),
            (Self::Value(reply), Answer::Size(size)) => reply.size(size),
            (Self::Open(reply), Answer::Opened(opened)) => send_opened(reply, &opened),
            (Self::Create(reply), Answer::Created { attrs, valid, generation, opened }) => {
                let (attr, generation) = (attrs.entry_attr(), Generation(generation.into()));
                let handle = FileHandle(opened.handle);
                let flags = flags_of(&opened.through);
                match &opened.through {
                    Through::Host(id) | Through::HostByRequests(id) => {
                        reply.created_passthrough(&valid, &attr, generation, handle, flags, id);
                    }
                    _ => reply.created(&valid, &attr, generation, handle, flags),
                }
            }
            (Self::Written(reply), Answer::Written(count)) => {
                reply.written(u32::try_from(count).unwrap_or(u32::MAX));
            }
            (Self::Offset(reply), Answer::Offset(offset)) => reply.offset(offset as i64),
            (Self::Totals(reply), Answer::Totals(totals)) => reply.statfs(
                totals.blocks,
                totals.blocks_free,
                totals.blocks_available,
                totals.files,
                totals.files_free,
                totals.block_size,
                totals.name_max,
                totals.block_size,
            ),
            (Self::Names(reply), Answer::Listed) => reply.ok(),
            (Self::Entries(reply), Answer::Listed) => reply.ok(),
            (reply, answer) => {
                log::error!("an answer that does not fit its request: {answer:?}");
                reply.error(Errno::EIO);
            }
        }
    }
}

fn send_entry(reply: ReplyEntry, entry: &EntryOut) {
    match entry {
        EntryOut::Found { attrs, entry_valid, generation } => {
            let (attr, generation) = (attrs.entry_attr(), Generation((*generation).into()));
            reply.entry_with_ttls(&attrs.valid, entry_valid, &attr, generation);
        }
        EntryOut::Missing(Duration::ZERO) => reply.error(Errno::ENOENT),
        EntryOut::Missing(valid) => {
            reply.entry_with_ttls(valid, valid, &missing_attr(), Generation(0));
        }
    }
}

fn send_opened(reply: ReplyOpen, opened: &Opened<BackingId>) {
    let (handle, flags) = (FileHandle(opened.handle), flags_of(&opened.through));
    match &opened.through {
        Through::Host(id) | Through::HostByRequests(id) => {
            reply.opened_passthrough(handle, flags, id);
        }
        _ => reply.opened(handle, flags),
    }
}

fn flags_of(through: &Through<BackingId>) -> FopenFlags {
    match through {
        Through::Pages { keep: true } => FopenFlags::FOPEN_KEEP_CACHE,
        Through::Listing { keep: true } => {
            FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE
        }
        // It prevails over passthrough, but in mmap(2).
        Through::Requests | Through::HostByRequests(_) => FopenFlags::FOPEN_DIRECT_IO,
        Through::Pages { keep: false } | Through::Listing { keep: false } | Through::Host(_) => {
            FopenFlags::empty()
        }
    }
}
