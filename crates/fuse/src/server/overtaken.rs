//! Reads that overtake writes: the pages that the kernel must drop before a writer gets its answer.
//!
//! ```text
//!  kernel   copies bytes into page 0, sends WRITE 8 │ page 0 goes │ sends READ 10 of page 0 │ caches the old page
//!  uvfs     a thread takes WRITE 8, and is preempted              │ answers READ 10         │ performs WRITE 8
//! ```
//!
//! # Boundary
//! Says which pages of a write later reads may have filled without it. [`crate::direct`] has the kernel drop them.
//!
//! # Concurrency
//! The kernel numbers its requests in the order in which it sends them. Several threads take them, so a later one may
//! be served first, even before the thread with the earlier one runs at all.
//!
//! O1. A read is noted before its bytes are looked for. A write asks after its bytes are in place, and before its
//!     answer. Both take the lock of the file's shard, so a read that missed the bytes was noted before the write asks.
//! O2. From its arrival on, a write collects the reads of its file with higher numbers. It finds those before its arrival
//!     among the last [`RECENT`] reads of the shard. If later ones have pushed some of these out, the write does not know.
//! O3. The kernel keeps the last page of a write locked until the answer if that page was not cached. No later read has
//!     brought such a page. So to drop the pages that later reads have brought never waits for the write itself.
//!
//! # Why
//! A reader got zeros at the end of a file that another program appended to, or the old bytes of a page, and on a store
//! of its own for good. To hold back each read until no earlier write can be under way would need one thread that takes
//! all requests. Weakness: the kernel may lose a page between the copy and the request; no server can see that.

use crate::lock_order;
use std::collections::VecDeque;
use std::sync::Arc;
use uvfs_concurrent::shard::Shards;

const PAGE: u64 = 4096;
const SHARDS: usize = 16;
/// Reads noted in a shard.
const RECENT: usize = 64;

/// A range of bytes: its begin and its end.
type Range = (u64, u64);

/// See the module.
pub(crate) struct Overtaken(Shards<Shard>);

#[derive(Default)]
struct Shard {
    reads: VecDeque<Read>,
    /// The highest number of a read that is not noted any more.
    lost: u64,
    writes: Vec<Write>,
}

struct Read {
    node: u64,
    number: u64,
    range: Range,
}

/// A write under way.
struct Write {
    node: u64,
    number: u64,
    range: Range,
    stale: Stale,
}

/// The pages of a write that later reads may have filled with older bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stale {
    Nothing,
    /// Those from here to there.
    Pages(u64, u64),
    /// Any.
    Unknown,
}

/// A write under way, until it is dropped.
pub(crate) struct Writing {
    all: Arc<Overtaken>,
    node: u64,
    number: u64,
}

impl Overtaken {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Shards::new(&lock_order::FUSE_OVERTAKEN, SHARDS)))
    }

    /// Request `number` reads `node` into the kernel's pages. Call this before its bytes are looked for (O1).
    pub(crate) fn reads(&self, node: u64, number: u64, (offset, length): (u64, u64)) {
        let range = pages(offset, length);
        let mut shard = self.0.of(&node).lock();
        for write in &mut shard.writes {
            write.meets(node, number, range);
        }
        if shard.reads.len() == RECENT
            && let Some(oldest) = shard.reads.pop_front()
        {
            shard.lost = shard.lost.max(oldest.number);
        }
        shard.reads.push_back(Read { node, number, range });
    }

    /// Request `number` writes `node` from the kernel's pages. Call this as soon as it has come (O2).
    pub(crate) fn writes(
        self: &Arc<Self>,
        node: u64,
        number: u64,
        (offset, length): (u64, u64),
    ) -> Writing {
        let mut shard = self.0.of(&node).lock();
        let stale = if number < shard.lost { Stale::Unknown } else { Stale::Nothing };
        let mut write = Write { node, number, range: pages(offset, length), stale };
        for read in &shard.reads {
            write.meets(read.node, read.number, read.range);
        }
        shard.writes.push(write);
        Writing { all: self.clone(), node, number }
    }
}

impl Write {
    /// A read is noted: it brings pages of this write if it was sent later.
    fn meets(&mut self, node: u64, number: u64, (begin, end): Range) {
        let (begin, end) = (begin.max(self.range.0), end.min(self.range.1));
        if node != self.node || number < self.number || begin >= end {
            return;
        }
        self.stale = match self.stale {
            Stale::Nothing => Stale::Pages(begin, end),
            Stale::Pages(first, last) => Stale::Pages(first.min(begin), last.max(end)),
            Stale::Unknown => Stale::Unknown,
        };
    }
}

impl Writing {
    /// Ends it. The caller has not answered, and the bytes are in place (O1).
    pub(crate) fn end(self) -> Stale {
        self.take()
    }

    fn take(&self) -> Stale {
        let mut shard = self.all.0.of(&self.node).lock();
        let is_this = |write: &Write| (write.node, write.number) == (self.node, self.number);
        let found = shard.writes.iter().position(is_this);
        found.map_or(Stale::Nothing, |at| shard.writes.swap_remove(at).stale)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.take();
    }
}

/// The whole pages of these bytes.
fn pages(offset: u64, length: u64) -> Range {
    let end = offset.saturating_add(length);
    (offset & !(PAGE - 1), end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_finds_the_pages_that_later_reads_have_brought() {
        let all = Overtaken::new();
        all.reads(7, 4, (0, 4096));
        all.reads(7, 10, (0, 100));
        all.reads(8, 12, (4096, 4096));
        // Of pages 0 to 2, READ 10 brought the first and READ 14 the last; READ 4 was sent before.
        let write = all.writes(7, 6, (4000, 8192));
        all.reads(7, 14, (8192, 4096));
        let behind = all.writes(7, 16, (4000, 200));
        let beside = all.writes(7, 6 + 1, (1 << 20, 4096));
        assert_eq!(write.end(), Stale::Pages(0, 12288));
        assert_eq!((behind.end(), beside.end()), (Stale::Nothing, Stale::Nothing));
        let dropped = all.writes(7, 18, (0, 1));
        drop(dropped);
        assert!(all.0.iter().all(|shard| shard.lock().writes.is_empty()));
    }

    #[test]
    fn a_write_knows_when_reads_were_forgotten_before_it_came() {
        let all = Overtaken::new();
        for number in 0..=RECENT as u64 {
            all.reads(7, 100 + number, (1 << 30, 1));
        }
        assert_eq!(all.writes(7, 99, (0, 1)).end(), Stale::Unknown);
        assert_eq!(all.writes(7, 101, (0, 1)).end(), Stale::Nothing);
        // From its arrival on, a write needs no record.
        let write = all.writes(7, 102, (0, 1));
        for number in 0..=2 * RECENT as u64 {
            all.reads(7, 200 + number, (1 << 30, 1));
        }
        assert_eq!(write.end(), Stale::Nothing);
    }
}
