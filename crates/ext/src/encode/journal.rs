//! Blocks of a journal: its superblock, descriptors, revocations, commits.
//!
//! # Boundary
//! One block each. `uvfs-ext-write` decides in which order they reach the disk, and which of them survive a crash.

use crate::error::{Error, Result};
use crate::format::checksum::crc32c;
use crate::format::layout::JournalSuper;
use crate::format::superblock::Superblock;
use crate::journal::{
    CHECKSUM_CRC32C, COMMIT, COMMIT_SUM_AT, DESCRIPTOR, INCOMPAT_ASYNC, INCOMPAT_FAST,
    INCOMPAT_KNOWN, INCOMPAT_SUMS_V2, INCOMPAT_SUMS_V3, INCOMPAT_WIDE, MAGIC, REVOKE, SUPER_V2,
    TAG_ESCAPED, TAG_LAST, TAG_SAME_UUID, TAIL,
};
use zerocopy::{FromBytes, IntoBytes};

const HEAD: usize = 12;
const REVOKE_HEAD: usize = 16;
const UUID: usize = 16;
const INCOMPAT_REVOKE: u32 = 1;

/// The superblock of a journal that is written, and the layout of blocks that follows from it.
#[derive(Debug, Clone)]
pub struct JournalHead {
    raw: Box<JournalSuper>,
    block_size: usize,
    /// The bytes of the block behind the superblock.
    rest: Vec<u8>,
}

/// A block that a transaction brings.
#[derive(Debug, Clone, Copy)]
pub struct Brought<'a> {
    /// Where it belongs.
    pub block: u64,
    /// Contents of the block.
    pub bytes: &'a [u8],
}

impl JournalHead {
    /// Reads the first block of a journal whose log is empty or was replayed.
    ///
    /// # Errors
    /// What this crate does not write: other kinds, asynchronous commits, blocks of another size.
    pub fn decode(block: &[u8]) -> Result<Self> {
        let (raw, rest) = JournalSuper::read_from_prefix(block)
            .map_err(|_| Error::corrupt("journal: its superblock is short"))?;
        let unsupported = |what: &str| Err(Error::Unsupported(format!("writing a journal {what}")));
        if raw.magic.get() != MAGIC || raw.kind.get() != SUPER_V2 {
            return unsupported("of the first kind");
        }
        let incompat = raw.incompat.get();
        if incompat & !INCOMPAT_KNOWN != 0 || incompat & INCOMPAT_ASYNC != 0 {
            return unsupported("with features that are not known, or with asynchronous commits");
        }
        if raw.ro_compat.get() != 0 {
            return unsupported("with features that are not known");
        }
        if raw.block_size.get() as usize != block.len() {
            return unsupported("whose blocks have another size than the volume's");
        }
        if raw.users.get() > 1 {
            return unsupported("that several file systems share");
        }
        Ok(Self { raw: Box::new(raw), block_size: block.len(), rest: rest.to_vec() })
    }

    /// The ring of the log: its first block in the journal, and one more than its last.
    pub fn ring(&self) -> (u32, u32) {
        let fast =
            match (self.raw.incompat.get() & INCOMPAT_FAST, self.raw.fast_commit_blocks.get()) {
                (0, _) => 0,
                (_, 0) => 256,
                (_, blocks) => blocks,
            };
        (self.raw.first.get(), self.raw.blocks.get().saturating_sub(fast))
    }

    /// The number of the transaction at which a replay begins, or would.
    pub fn sequence(&self) -> u32 {
        self.raw.sequence.get()
    }

    /// Sets the features of the logs that this crate writes: wide numbers on wide volumes, checksums of the third kind
    /// where the volume has checksums.
    pub fn set_features(&mut self, superblock: &Superblock) {
        let mut incompat = self.raw.incompat.get() | INCOMPAT_REVOKE;
        incompat &= !(INCOMPAT_SUMS_V2 | INCOMPAT_SUMS_V3 | INCOMPAT_WIDE);
        if superblock.features.wide() {
            incompat |= INCOMPAT_WIDE;
        }
        self.raw.checksum_type = 0;
        // This crate does not write checksums of the first kind, of 2008.
        self.raw.compat = (self.raw.compat.get() & !1).into();
        if superblock.features.metadata_checksum() {
            incompat |= INCOMPAT_SUMS_V3;
            self.raw.checksum_type = CHECKSUM_CRC32C;
        }
        self.raw.incompat = incompat.into();
    }

    /// Says where a replay begins, with which transaction: at no block (0) if there is nothing to replay.
    pub fn set_tail(&mut self, block: u32, sequence: u32) {
        self.raw.start = block.into();
        self.raw.sequence = sequence.into();
    }

    /// The block that holds the superblock.
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = self.raw.clone();
        raw.checksum = 0.into();
        if self.has_sums() {
            raw.checksum = crc32c(!0, raw.as_bytes()).into();
        }
        [raw.as_bytes(), &self.rest].concat()
    }

    fn has_sums(&self) -> bool {
        self.raw.incompat.get() & INCOMPAT_SUMS_V3 != 0
    }

    fn wide(&self) -> bool {
        self.raw.incompat.get() & INCOMPAT_WIDE != 0
    }

    fn seed(&self) -> u32 {
        crc32c(!0, &self.raw.uuid)
    }

    /// Bytes of a block that tags or freed blocks may take.
    fn end(&self) -> usize {
        self.block_size - if self.has_sums() { TAIL } else { 0 }
    }

    fn tag_bytes(&self) -> usize {
        match (self.has_sums(), self.wide()) {
            (true, _) => 16,
            (false, true) => 12,
            (false, false) => 8,
        }
    }

    /// How many blocks one descriptor can announce.
    pub fn tags_per_descriptor(&self) -> usize {
        (self.end() - HEAD - UUID) / self.tag_bytes()
    }

    /// How many freed blocks one block can list.
    pub fn revocations_per_block(&self) -> usize {
        (self.end() - REVOKE_HEAD) / if self.wide() { 8 } else { 4 }
    }

    fn block(&self, kind: u32, sequence: u32) -> Vec<u8> {
        let mut block = vec![0; self.block_size];
        put(&mut block, 0, MAGIC);
        put(&mut block, 4, kind);
        put(&mut block, 8, sequence);
        block
    }

    fn seal(&self, block: &mut [u8]) {
        if self.has_sums() {
            let end = self.end();
            let sum = crc32c(self.seed(), block);
            put(block, end, sum);
        }
    }

    /// The copy that the log holds of a block which begins with the journal's magic number: with zeros instead of it.
    /// `None` for any other block, which the log holds unchanged.
    pub fn escaped(bytes: &[u8]) -> Option<Vec<u8>> {
        bytes.starts_with(&MAGIC.to_be_bytes()).then(|| {
            let mut copy = bytes.to_vec();
            copy[..4].fill(0);
            copy
        })
    }

    /// A descriptor that announces the blocks behind it; `brought` has their true contents.
    ///
    /// # Panics
    /// With more than [`JournalHead::tags_per_descriptor`], or none.
    pub fn descriptor(&self, sequence: u32, brought: &[Brought<'_>]) -> Vec<u8> {
        assert!((1..=self.tags_per_descriptor()).contains(&brought.len()));
        let mut block = self.block(DESCRIPTOR, sequence);
        let mut at = HEAD;
        for (number, one) in brought.iter().enumerate() {
            let escaped = Self::escaped(one.bytes);
            let mut flags = if escaped.is_some() { TAG_ESCAPED } else { 0 };
            flags |= if number > 0 { TAG_SAME_UUID } else { 0 };
            flags |= if number + 1 == brought.len() { TAG_LAST } else { 0 };
            put(&mut block, at, one.block as u32);
            put(&mut block, at + 4, flags);
            if self.wide() {
                put(&mut block, at + 8, (one.block >> 32) as u32);
            }
            if self.has_sums() {
                let bytes = escaped.as_deref().unwrap_or(one.bytes);
                let sum = crc32c(crc32c(self.seed(), &sequence.to_be_bytes()), bytes);
                put(&mut block, at + 12, sum);
            }
            at += self.tag_bytes();
            if number == 0 {
                block[at..at + UUID].copy_from_slice(&self.raw.uuid);
                at += UUID;
            }
        }
        self.seal(&mut block);
        block
    }

    /// A list of blocks whose older contents in the log are not to be replayed.
    ///
    /// # Panics
    /// With more than [`JournalHead::revocations_per_block`].
    pub fn revocation(&self, sequence: u32, freed: &[u64]) -> Vec<u8> {
        assert!(freed.len() <= self.revocations_per_block());
        let mut block = self.block(REVOKE, sequence);
        let size = if self.wide() { 8 } else { 4 };
        put(&mut block, HEAD, (REVOKE_HEAD + freed.len() * size) as u32);
        for (slot, freed) in block[REVOKE_HEAD..].chunks_exact_mut(size).zip(freed) {
            slot.copy_from_slice(&freed.to_be_bytes()[8 - size..]);
        }
        self.seal(&mut block);
        block
    }

    /// The end of a transaction that was committed at a time: seconds and nanoseconds since 1970.
    pub fn commit(&self, sequence: u32, seconds: u64, nanoseconds: u32) -> Vec<u8> {
        let mut block = self.block(COMMIT, sequence);
        block[48..56].copy_from_slice(&seconds.to_be_bytes());
        put(&mut block, 56, nanoseconds);
        if self.has_sums() {
            let sum = crc32c(self.seed(), &block);
            put(&mut block, COMMIT_SUM_AT, sum);
        }
        block
    }
}

/// Journals are big-endian.
fn put(bytes: &mut [u8], offset: usize, word: u32) {
    bytes[offset..offset + 4].copy_from_slice(&word.to_be_bytes());
}
