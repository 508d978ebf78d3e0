//! The journal, replayed into a map in memory: which block of the journal is newer than which of the volume.
//!
//! # Boundary
//! Reads the log, never writes. The map holds places, not contents: sixteen bytes for each block.
//!
//! # Why
//! An image that was not unmounted is consistent only with its journal. Snapshots, seized disks and disks of running
//! machines are all of this kind. A transaction counts if its commit block is there and right, as for the kernel. An image
//! with a damaged committed transaction is refused: without it, the image may be inconsistent. Weakness: fast commits are
//! reported and not replayed, checksums of the first kind (of 2008) are not verified.

mod log;

pub(crate) use log::{
    CHECKSUM_CRC32C, COMMIT, COMMIT_SUM_AT, DESCRIPTOR, INCOMPAT_ASYNC, INCOMPAT_FAST,
    INCOMPAT_KNOWN, INCOMPAT_SUMS_V2, INCOMPAT_SUMS_V3, INCOMPAT_WIDE, REVOKE, SUPER_V2,
    TAG_ESCAPED, TAG_LAST, TAG_SAME_UUID, TAIL,
};

use crate::error::{Error, Result};
use crate::image::{Image, Recovery};
use log::Log;
use std::collections::HashMap;

/// Blocks of a journal begin with it. A logged copy of a block that begins with it has zeros instead.
pub(crate) const MAGIC: u32 = 0xC03B_3998;

/// A block whose newest contents are in the journal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newer {
    /// Where they are.
    pub(crate) block: u64,
    /// They begin with the journal's magic number, which the journal itself may not hold.
    escaped: bool,
}

impl Newer {
    /// Restores the magic number that the journal could not hold, in bytes that were read from `within` the block on.
    pub(crate) fn restore(self, within: u64, bytes: &mut [u8]) {
        if !self.escaped || within >= 4 {
            return;
        }
        let magic = MAGIC.to_be_bytes();
        let missing = &magic[within as usize..];
        bytes.iter_mut().zip(missing).for_each(|(byte, magic)| *byte = *magic);
    }
}

/// Which blocks of the volume the journal has newer.
#[derive(Debug, Default)]
pub(crate) struct Overlay(HashMap<u64, Newer>);

impl Overlay {
    pub(crate) fn find(&self, block: u64) -> Option<Newer> {
        self.0.get(&block).copied()
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = u64> {
        self.0.keys().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// A block that a transaction brings.
#[derive(Debug)]
struct Change {
    sequence: u32,
    block: u64,
    from: u64,
    escaped: bool,
    checksum: Option<u32>,
}

/// Replays the journal of an image that was opened without it.
pub(crate) fn replay(image: &Image) -> Result<(Overlay, Recovery)> {
    let mut log = Log::open(image)?;
    let committed = log.committed()?;
    let mut overlay = HashMap::new();
    let mut recovery = Recovery {
        transactions: committed.transactions,
        fast_commits: committed.fast_commits,
        ..Recovery::default()
    };
    let mut bytes = vec![0; image.superblock().block_size as usize];
    for change in &committed.changes {
        let revoked = committed.revoked.get(&change.block);
        if revoked.is_some_and(|last| !is_later(change.sequence, *last)) {
            recovery.revoked += 1;
            continue;
        }
        if let Some(expected) = change.checksum {
            log.read(change.from, &mut bytes)?;
            if log.data_checksum(change.sequence, &bytes) != expected {
                let what = "journal: the checksum of a block that was committed is wrong";
                return Err(Error::corrupt(what).at_block(change.from));
            }
        }
        let newer = Newer { block: change.from, escaped: change.escaped };
        overlay.insert(change.block, newer);
    }
    recovery.blocks = overlay.len();
    Ok((Overlay(overlay), recovery))
}

/// Whether a sequence number comes after another; they wrap.
fn is_later(one: u32, other: u32) -> bool {
    one.wrapping_sub(other) as i32 > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escaped_block_gets_its_beginning_back_wherever_a_read_begins() {
        let newer = Newer { block: 9, escaped: true };
        for within in 0..6_u64 {
            let mut bytes = [0; 8];
            newer.restore(within, &mut bytes);
            let magic = MAGIC.to_be_bytes();
            let expected: Vec<u8> = magic
                .iter()
                .copied()
                .chain([0; 8])
                .chain([0; 8])
                .skip(within as usize)
                .take(8)
                .collect();
            assert_eq!(bytes[..], expected[..], "from {within} on");
        }
    }

    #[test]
    fn sequence_numbers_wrap() {
        assert!(is_later(1, 0) && is_later(0, u32::MAX) && !is_later(5, 5) && !is_later(0, 1));
    }
}
