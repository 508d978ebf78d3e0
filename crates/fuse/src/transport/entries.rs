//! Directory replies.
//!
//! Offsets 0 and 1 of the kernel are before `.` and before `..`; from 2 on they are the backend's
//! cookies, shifted by two. The largest cookies (a file system's mark for the end) are kept within
//! the kernel's signed offsets.

use super::convert::{file_attr, file_type};
use crate::server::Server;
use fuser::{FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use uvfs_vfs::{Attributes, Cookie, Entries, FileKind, Name, Node};

/// Before the first entry of the backend.
const FIRST: u64 = 2;
const COOKIE_MAX: u64 = i64::MAX as u64 - FIRST;

/// What a reply is assumed to have room for: the C library asks for 32 KiB at a time.
const REPLY_BYTES: usize = 32 << 10;
const ENTRIES_MIN: usize = 16;

fn kernel_offset(cookie: Cookie) -> u64 {
    cookie.0.min(COOKIE_MAX) + FIRST
}

/// Where the backend's listing goes on for a kernel's `offset`.
pub(super) fn backend_cookie(offset: u64) -> Cookie {
    match offset {
        _ if offset >= i64::MAX as u64 => Cookie(i64::MAX as u64),
        _ => Cookie(offset.saturating_sub(FIRST)),
    }
}

/// Names for a `readdir`.
pub(super) struct Names<'a> {
    pub(super) reply: &'a mut ReplyDirectory,
    pub(super) used: usize,
}

impl Names<'_> {
    /// Adds what of `.` and `..` comes after `offset`. False if there was no room.
    pub(super) fn dots(&mut self, offset: u64, numbers: (u64, u64)) -> bool {
        let dots = [(0, numbers.0, "."), (1, numbers.1, "..")];
        dots.iter().filter(|(at, ..)| *at >= offset).all(|&(at, number, name)| {
            !self.reply.add(INodeNo(number), at + 1, FileType::Directory, name)
        })
    }
}

impl Entries for Names<'_> {
    fn room(&self) -> usize {
        (REPLY_BYTES.saturating_sub(self.used) / 40).max(ENTRIES_MIN)
    }

    fn wants_nodes(&self) -> bool {
        false
    }

    fn name(&mut self, name: Name<'_>, next: Cookie, number: u64, kind: FileKind) -> bool {
        let bytes = name.as_bytes();
        self.used += 24 + bytes.len();
        let (number, next) = (INodeNo(number), kernel_offset(next));
        !self.reply.add(number, next, file_type(kind), OsStr::from_bytes(bytes))
    }

    fn node(
        &mut self,
        name: Name<'_>,
        next: Cookie,
        _: Node,
        attributes: &Attributes,
        _: (Duration, Duration),
    ) -> bool {
        self.name(name, next, attributes.number, attributes.kind)
    }
}

/// Names with attributes for a `readdirplus`. Each entry sent counts a lookup.
pub(super) struct Nodes<'a> {
    pub(super) server: &'a Server,
    /// The node id of what is listed.
    pub(super) directory: u64,
    pub(super) reply: &'a mut ReplyDirectoryPlus,
    pub(super) used: usize,
    pub(super) taken: usize,
    /// Node ids counted for this reply.
    pub(super) counted: Vec<u64>,
}

impl Drop for Nodes<'_> {
    /// A reply that a panic takes down is never sent: the kernel will not forget what is in it.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.counted.iter().for_each(|&id| self.server.forget(id, 1));
        }
    }
}

impl Nodes<'_> {
    /// As [`Names::dots`]. The kernel links neither, and counts no lookup on them.
    pub(super) fn dots(
        &mut self,
        offset: u64,
        attributes: &Attributes,
        numbers: (u64, u64),
    ) -> bool {
        let dots = [(0, numbers.0, "."), (1, numbers.1, "..")];
        dots.iter().filter(|(at, ..)| *at >= offset).all(|&(at, number, name)| {
            let attr = file_attr(attributes, number);
            let (number, never) = (INodeNo(number), Duration::ZERO);
            let full = self.reply.add(number, at + 1, name, &never, &attr, Generation(0));
            self.taken += usize::from(!full);
            !full
        })
    }
}

impl Entries for Nodes<'_> {
    fn room(&self) -> usize {
        (REPLY_BYTES.saturating_sub(self.used) / 176).max(ENTRIES_MIN)
    }

    fn wants_nodes(&self) -> bool {
        true
    }

    /// A store that gives no attributes with a listing: node id 0 tells the kernel to look up.
    fn name(&mut self, name: Name<'_>, next: Cookie, number: u64, kind: FileKind) -> bool {
        let attributes = Attributes::new(number, kind, 0);
        let attr = file_attr(&attributes, number);
        self.add(name, next, (0, Generation(0)), &Duration::ZERO, &attr)
    }

    fn node(
        &mut self,
        name: Name<'_>,
        next: Cookie,
        node: Node,
        attributes: &Attributes,
        valid: (Duration, Duration),
    ) -> bool {
        let place = (self.directory, name.as_bytes());
        let (id, generation) = self.server.publish(&node, attributes, place);
        let attr = file_attr(attributes, id);
        // The protocol has two times here, the FUSE crate one: the shorter is right for both.
        let generation = Generation(generation.into());
        let taken = self.add(name, next, (id, generation), &valid.0.min(valid.1), &attr);
        match taken {
            true => self.counted.push(id),
            false => self.server.forget(id, 1),
        }
        taken
    }
}

impl Nodes<'_> {
    fn add(
        &mut self,
        name: Name<'_>,
        next: Cookie,
        (id, generation): (u64, Generation),
        valid: &Duration,
        attr: &fuser::FileAttr,
    ) -> bool {
        let bytes = name.as_bytes();
        self.used += 152 + bytes.len();
        let (id, next, name) = (INodeNo(id), kernel_offset(next), OsStr::from_bytes(bytes));
        let full = self.reply.add(id, next, name, valid, attr, generation);
        self.taken += usize::from(!full);
        !full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_survive_the_kernel() {
        for cookie in [0, 1, 2, 5, 1 << 40, COOKIE_MAX - 1] {
            let offset = kernel_offset(Cookie(cookie));
            assert!(offset >= FIRST && offset <= i64::MAX as u64);
            assert_eq!(backend_cookie(offset), Cookie(cookie));
        }
        assert_eq!(kernel_offset(Cookie(i64::MAX as u64)), i64::MAX as u64);
        assert_eq!(backend_cookie(i64::MAX as u64), Cookie(i64::MAX as u64), "the end stays it");
        assert_eq!(backend_cookie(0), Cookie(0));
    }
}
