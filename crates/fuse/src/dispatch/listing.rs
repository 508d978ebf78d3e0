//! Directory replies.
//!
//! Offsets 0 and 1 of the kernel are before `.` and before `..`; from 2 on they are the backend's
//! cookies, shifted by two. The largest cookies (a file system's mark for the end) are kept within
//! the kernel's signed offsets.

use super::pending::Pending;
use crate::server::{Answer, Attrs, Listed, Reply, Server};
use std::time::Duration;
use uvfs_vfs::{Attributes, Caller, Cookie, Entries, FileKind, Name, Node, Result};

/// Before the first entry of the backend.
const FIRST: u64 = 2;
const COOKIE_MAX: u64 = i64::MAX as u64 - FIRST;

/// The assumed room of a reply: the C library asks for 32 KiB at a time.
const REPLY_BYTES: usize = 32 << 10;
const ENTRIES_MIN: usize = 16;

fn kernel_offset(cookie: Cookie) -> u64 {
    cookie.0.min(COOKIE_MAX) + FIRST
}

/// The place in the backend's listing for a kernel's `offset`.
fn backend_cookie(offset: u64) -> Cookie {
    match offset {
        _ if offset >= i64::MAX as u64 => Cookie(i64::MAX as u64),
        _ => Cookie(offset.saturating_sub(FIRST)),
    }
}

/// Adds the names of a directory, from the kernel's `offset` on.
pub(super) fn names<R: Reply>(
    server: &Server,
    caller: &Caller,
    (node, file): (u64, u64),
    offset: u64,
    pending: &mut Pending<'_, R>,
) -> Result<Answer<'static, R::Backing>> {
    let own = server.getattr(node, file)?;
    let mut listing = Listing::new(server, node, Wants::Names, pending);
    if listing.dots(offset, &own) {
        server.list(caller, node, file, backend_cookie(offset), &mut listing)?;
    }
    Ok(Answer::Listed)
}

/// Lists as [`names`] does, with attributes: each entry that is sent counts a lookup.
pub(super) fn entries<R: Reply>(
    server: &Server,
    caller: &Caller,
    (node, file): (u64, u64),
    offset: u64,
    pending: &mut Pending<'_, R>,
) -> Result<Answer<'static, R::Backing>> {
    let own = server.getattr(node, file)?;
    let mut listing = Listing::new(server, node, Wants::Entries, pending);
    if !listing.dots(offset, &own) {
        return Ok(Answer::Listed);
    }
    match server.list(caller, node, file, backend_cookie(offset), &mut listing) {
        // Entries in the reply have been counted, so they must be sent. The kernel gets the error when it asks for the
        // next ones.
        Err(error) if listing.taken == 0 => Err(error),
        _ => Ok(Answer::Listed),
    }
}

/// The kind of entries in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wants {
    Names,
    Entries,
}

/// A reply that is being filled.
struct Listing<'a, 'p, R: Reply> {
    server: &'a Server,
    /// The node id of the listed directory.
    directory: u64,
    wants: Wants,
    pending: &'a mut Pending<'p, R>,
    used: usize,
    taken: usize,
    /// Node ids counted for this reply.
    counted: Vec<u64>,
}

impl<R: Reply> Drop for Listing<'_, '_, R> {
    /// A panic drops the reply unsent: the kernel will never forget the entries in it. Nor if the request is ended.
    fn drop(&mut self) {
        match std::thread::panicking() {
            true => self.counted.iter().for_each(|&id| self.server.forget(id, 1)),
            false => self.pending.set_counted(std::mem::take(&mut self.counted)),
        }
    }
}

impl<'a, 'p, R: Reply> Listing<'a, 'p, R> {
    fn new(
        server: &'a Server,
        directory: u64,
        wants: Wants,
        pending: &'a mut Pending<'p, R>,
    ) -> Self {
        Self { server, directory, wants, pending, used: 0, taken: 0, counted: Vec::new() }
    }

    /// Bytes of one entry without its name.
    fn entry_bytes(&self) -> usize {
        match self.wants {
            Wants::Names => 24,
            Wants::Entries => 152,
        }
    }

    /// Adds those of `.` and `..` that come after `offset`. The kernel links neither, and counts no lookup on them.
    /// Returns false if there was no room.
    fn dots(&mut self, offset: u64, own: &Attrs) -> bool {
        let numbers = self.server.numbers(own);
        let dots: [(u64, u64, &[u8]); 2] = [(0, numbers.0, b"."), (1, numbers.1, b"..")];
        dots.iter().filter(|(at, ..)| *at >= offset).all(|&(at, number, name)| {
            self.add(&Listed {
                name,
                next: at + 1,
                node: number,
                generation: 0,
                number,
                attributes: &own.attributes,
                valid: (Duration::ZERO, Duration::ZERO),
            })
        })
    }

    fn add(&mut self, listed: &Listed<'_>) -> bool {
        let taken = self.pending.add(listed);
        self.taken += usize::from(taken);
        taken
    }
}

impl<R: Reply> Entries for Listing<'_, '_, R> {
    fn room(&self) -> usize {
        // With a name of some 20 bytes, padded.
        let each = match self.wants {
            Wants::Names => 40,
            Wants::Entries => 176,
        };
        (REPLY_BYTES.saturating_sub(self.used) / each).max(ENTRIES_MIN)
    }

    fn wants_nodes(&self) -> bool {
        self.wants == Wants::Entries
    }

    /// Adds an entry of a store whose listings have no attributes: node id 0 makes the kernel look it up.
    fn name(&mut self, name: Name<'_>, next: Cookie, number: u64, kind: FileKind) -> bool {
        self.used += self.entry_bytes() + name.as_bytes().len();
        self.add(&Listed {
            name: name.as_bytes(),
            next: kernel_offset(next),
            node: 0,
            generation: 0,
            number,
            attributes: &Attributes::new(number, kind, 0),
            valid: (Duration::ZERO, Duration::ZERO),
        })
    }

    fn node(
        &mut self,
        name: Name<'_>,
        next: Cookie,
        node: Node,
        attributes: &Attributes,
        valid: (Duration, Duration),
    ) -> bool {
        if self.wants == Wants::Names {
            return self.name(name, next, attributes.number, attributes.kind);
        }
        let place = (self.directory, name.as_bytes());
        let (id, generation) = self.server.publish(&node, attributes, Some(place));
        // After it was counted: news from before then found no node id, and no notice was sent.
        let (attributes, still_valid) = self.server.believed(&node, *attributes);
        self.used += self.entry_bytes() + name.as_bytes().len();
        let taken = self.add(&Listed {
            name: name.as_bytes(),
            next: kernel_offset(next),
            node: id,
            generation,
            number: id,
            attributes: &attributes,
            valid: (self.server.name_valid(valid.0), valid.1.min(still_valid)),
        });
        match taken {
            true => self.counted.push(id),
            false => self.server.forget(id, 1),
        }
        taken
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
