//! Attributes as words, so that they can be copied without a lock.
//!
//! # Boundary
//! Packs and unpacks. The inode decides when the words are valid and which thread writes them.
//!
//! # Why
//! `stat` of one hot file by all threads must not share a lock or a count: each thread copies
//! twelve words under a sequence ([`SequencedWords`]). The words that a walk needs (expiry, mode,
//! owner) come first, on the line that also holds the inode's id. Weakness: a preferred I/O size is
//! rounded down to a power of two, and a device node has no blocks. Stores use no others.

use super::{Absent, Expiry};
use crate::attributes::{Attributes, FileKind, Timestamp};
use uvfs_concurrent::sequence::{RacyWords, SequencedWords};

/// Words of one inode.
pub(super) const WORDS: usize = 12;
pub(super) type CachedWords = SequencedWords<WORDS>;

/// Index of each word.
pub(super) const EXPIRY: usize = 0;
pub(super) const MODE: usize = 1;
const OWNER: usize = 2;
const SIZE: usize = 3;
const BLOCKS: usize = 4;
pub(super) const NUMBER: usize = 5;
const SECONDS: usize = 6;
const NANOSECONDS: usize = 10;

/// Parts of the mode word: `links:32 | unused:4 | absent:8 | block shift:6 | no acl:1 | btime:1 | mode:12`.
/// [`Absent`] has the absent attributes, access control lists among them.
const MODE_BITS: u64 = 0o7777;
const HAS_BTIME: u64 = 1 << 12;
const BLOCK_SHIFT: u32 = 14;
const BLOCK_BITS: u64 = 0x3f;
const LINKS_SHIFT: u32 = 32;

/// The attributes of a directory that a search permission check needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guarding {
    pub(crate) expiry: Expiry,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// It is known to have no access control list beyond the mode.
    pub(crate) no_acl: bool,
}

pub(super) fn pack(attributes: &Attributes, expiry: Expiry, absent: Absent) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    let times = [
        attributes.atime,
        attributes.mtime,
        attributes.ctime,
        attributes.btime.unwrap_or_default(),
    ];
    words[EXPIRY] = expiry.to_word();
    words[MODE] = u64::from(attributes.mode) & MODE_BITS
        | if attributes.btime.is_some() { HAS_BTIME } else { 0 }
        | absent.to_word()
        | u64::from(attributes.block_size.checked_ilog2().unwrap_or(BLOCK_BITS as u32))
            << BLOCK_SHIFT
        | u64::from(attributes.links) << LINKS_SHIFT;
    words[OWNER] = u64::from(attributes.uid) | u64::from(attributes.gid) << 32;
    words[SIZE] = attributes.size;
    words[BLOCKS] = match attributes.kind {
        FileKind::CharDevice | FileKind::BlockDevice => u64::from(attributes.device),
        _ => attributes.blocks,
    };
    words[NUMBER] = attributes.number;
    for (at, time) in times.into_iter().enumerate() {
        words[SECONDS + at] = time.seconds as u64;
        words[NANOSECONDS + at / 2] |= u64::from(time.nanoseconds) << (32 * (at % 2));
    }
    words
}

#[inline]
pub(super) fn unpack(kind: FileKind, words: &[u64; WORDS]) -> Attributes {
    let word = |at: usize| words[at];
    let mode = word(MODE);
    let time = |at: usize| Timestamp {
        seconds: word(SECONDS + at) as i64,
        nanoseconds: (word(NANOSECONDS + at / 2) >> (32 * (at % 2))) as u32,
    };
    let (device, blocks) = match kind {
        FileKind::CharDevice | FileKind::BlockDevice => (word(BLOCKS) as u32, 0),
        _ => (0, word(BLOCKS)),
    };
    Attributes {
        number: word(NUMBER),
        kind,
        mode: (mode & MODE_BITS) as u32,
        links: (mode >> LINKS_SHIFT) as u32,
        uid: word(OWNER) as u32,
        gid: (word(OWNER) >> 32) as u32,
        device,
        size: word(SIZE),
        blocks,
        block_size: 1u32.checked_shl((mode >> BLOCK_SHIFT & BLOCK_BITS) as u32).unwrap_or(0),
        atime: time(0),
        mtime: time(1),
        ctime: time(2),
        btime: (mode & HAS_BTIME != 0).then(|| time(3)),
        version: 0,
    }
}

/// The attributes for a search, out of the same words.
#[inline]
pub(super) fn guarding(words: &RacyWords<'_>) -> Guarding {
    let (mode, owner) = (words.get(MODE), words.get(OWNER));
    Guarding {
        expiry: Expiry::from_word(words.get(EXPIRY)),
        mode: (mode & MODE_BITS) as u32,
        uid: owner as u32,
        gid: (owner >> 32) as u32,
        no_acl: mode & Absent::ACCESS_ACL.to_word() != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(kind: FileKind) -> Attributes {
        let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        Attributes {
            number: u64::MAX - 5,
            kind,
            mode: 0o7751,
            links: u32::MAX,
            uid: 1000,
            gid: u32::MAX - 1,
            device: if kind == FileKind::CharDevice { 0x1234_5678 } else { 0 },
            size: 1 << 62,
            blocks: if kind == FileKind::CharDevice { 0 } else { 77 },
            block_size: 4096,
            atime: time(i64::MIN, 999_999_999),
            mtime: time(-1, 1),
            ctime: time(i64::MAX, 0),
            btime: Some(time(5, 6)),
            version: 0,
        }
    }

    #[test]
    fn attributes_survive_the_words() {
        for kind in [FileKind::Regular, FileKind::Directory, FileKind::CharDevice] {
            let plain = sample(kind);
            let variants =
                [plain, Attributes { btime: None, block_size: 1 << 31, mode: 0, ..plain }];
            for attributes in variants {
                let words = pack(&attributes, Expiry::NEVER, Absent::UNKNOWN);
                assert_eq!(unpack(kind, &words), attributes);
                assert_eq!(words[EXPIRY], Expiry::NEVER.to_word());
            }
        }
        let none = Attributes { block_size: 0, ..sample(FileKind::Regular) };
        let words = pack(&none, Expiry::EXPIRED, Absent::all_but([]));
        assert_eq!(unpack(FileKind::Regular, &words), none);
        assert_eq!(Absent::from_word(words[MODE]), Absent::all_but([]));
    }

    #[test]
    fn a_search_sees_the_same_mode_and_owner() {
        let attributes = sample(FileKind::Directory);
        let words = pack(&attributes, Expiry::NEVER, Absent::ACCESS_ACL);
        let cached = CachedWords::new(words);
        let seen = cached.read(|words| guarding(&words)).unwrap();
        assert_eq!((seen.mode, seen.uid, seen.gid), (attributes.mode, 1000, u32::MAX - 1));
        assert!(seen.no_acl && Absent::from_word(words[MODE]) == Absent::ACCESS_ACL);
    }
}
