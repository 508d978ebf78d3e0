//! Blocks of entries of directories.
//!
//! # Boundary
//! One block. The index ([`super::index`]) or a search chooses the block of a name. A block may end with a checksum that
//! looks like an entry; [`Entries::of`] excludes it.

use super::{put_half, put_word};
use crate::error::{Error, Result};
use crate::format::checksum::crc32c;
use crate::format::inode::{Inode, Kind};
use crate::format::layout::word;
use crate::format::superblock::Superblock;

/// Bytes of a block's checksum with what makes it look like an entry.
const TAIL: usize = 12;
const HEAD: usize = 8;

/// The bytes of an entry with a name of this length.
pub fn entry_bytes(name_length: usize) -> usize {
    (HEAD + name_length).next_multiple_of(4)
}

/// The entries of a block, to be changed.
#[derive(Debug)]
pub struct Entries<'a> {
    bytes: &'a mut [u8],
    /// Where the entries end and the checksum begins.
    end: usize,
    typed: bool,
}

/// An entry that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Name of the entry.
    pub name: &'a [u8],
    /// The inode that it names.
    pub inode: u32,
    /// The inode's kind, as the block says.
    pub kind: u8,
}

impl Superblock {
    /// Bytes of a directory's block that entries may take.
    pub fn entries_end(&self) -> usize {
        let tail = if self.features.metadata_checksum() { TAIL } else { 0 };
        self.block_size as usize - tail
    }
}

/// A length as sixteen bits have it: 64 KiB does not fit.
fn stored_length(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

/// Where an entry lies, and its head.
#[derive(Debug, Clone, Copy)]
struct Span {
    at: usize,
    length: usize,
    inode: u32,
    name_length: usize,
}

impl Span {
    /// The name in the block that it is an entry of.
    fn name(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.at + HEAD..self.at + HEAD + self.name_length]
    }

    /// Bytes that it needs.
    fn used(self) -> usize {
        if self.inode == 0 { 0 } else { entry_bytes(self.name_length) }
    }

    fn is(self, bytes: &[u8], name: &[u8]) -> bool {
        // Names of a directory often begin alike and have one length: their ends tell them apart.
        let last = |name: &[u8]| name.last().copied();
        self.inode != 0
            && self.name_length == name.len()
            && last(self.name(bytes)) == last(name)
            && self.name(bytes) == name
    }
}

/// The entries of a block, free ones included. Every search of a block runs through this: it reads a head at once, and
/// checks it once.
#[inline(always)]
fn spans(bytes: &[u8], end: usize) -> impl Iterator<Item = Result<Span>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let head = bytes[..end].get(at..).and_then(|rest| rest.first_chunk::<HEAD>());
        let span = head.map(|head| {
            let head = u64::from_le_bytes(*head);
            // Sixteen bits have no place for 64 KiB.
            let length = match (head >> 32 & 0xFFFF) as usize {
                0 | 0xFFFF if bytes.len() == 0x1_0000 => bytes.len(),
                length => length,
            };
            let name_length = (head >> 48 & 0xFF) as usize;
            Span { at, length, inode: head as u32, name_length }
        });
        let fits = |span: &Span| {
            let needed = if span.inode == 0 { 12 } else { (HEAD + span.name_length).max(12) };
            span.length >= needed && span.length.is_multiple_of(4) && at + span.length <= end
        };
        match span.filter(fits) {
            Some(span) => {
                at += span.length;
                Some(Ok(span))
            }
            None => {
                at = end;
                Some(Err(bad_length()))
            }
        }
    })
}

#[cold]
fn bad_length() -> Error {
    Error::corrupt("an entry of the directory has a length that cannot be")
}

/// The entries in use in a block whose entries end at `end`.
///
/// # Errors
/// Where a length cannot be.
pub fn entries(bytes: &[u8], end: usize) -> Result<Vec<Entry<'_>>> {
    let mut found = Vec::new();
    for span in spans(bytes, end) {
        let span = span?;
        if span.inode != 0 {
            let (name, inode, kind) = (span.name(bytes), span.inode, bytes[span.at + 7]);
            found.push(Entry { name, inode, kind });
        }
    }
    Ok(found)
}

/// The inode that `name` means in a block whose entries end at `end`. Does not check later entries.
///
/// # Errors
/// Where a length cannot be.
pub fn find(bytes: &[u8], end: usize, name: &[u8]) -> Result<Option<u32>> {
    for span in spans(bytes, end) {
        let span = span?;
        if span.is(bytes, name) {
            return Ok(Some(span.inode));
        }
    }
    Ok(None)
}

/// The first entry behind which there is room for `needed` bytes: where it is, its length, how much of that it uses.
fn room(bytes: &[u8], end: usize, needed: usize) -> Result<Option<(usize, usize, usize)>> {
    for span in spans(bytes, end) {
        let span = span?;
        if span.length >= span.used() + needed {
            return Ok(Some((span.at, span.length, span.used())));
        }
    }
    Ok(None)
}

/// Whether a name of this length has room in a block whose entries end at `end`.
///
/// # Errors
/// Where a length cannot be.
pub fn has_room(bytes: &[u8], end: usize, name_length: usize) -> Result<bool> {
    Ok(room(bytes, end, entry_bytes(name_length))?.is_some())
}

impl<'a> Entries<'a> {
    /// The entries of a block of `superblock`'s.
    pub fn of(bytes: &'a mut [u8], superblock: &Superblock) -> Self {
        Self { end: superblock.entries_end(), typed: superblock.features.filetype(), bytes }
    }

    /// Makes it a block without entries.
    pub fn clear(&mut self) {
        self.bytes.fill(0);
        put_half(self.bytes, 4, stored_length(self.end));
    }

    /// Makes it the first block of a directory.
    pub fn make_first(&mut self, own: u32, parent: u32) {
        self.clear();
        self.put(0, 12, b".", own, Kind::Directory.entry());
        self.put(12, self.end - 12, b"..", parent, Kind::Directory.entry());
    }

    /// Adds a name that is not there; false if there is no room.
    ///
    /// # Errors
    /// Where the block cannot be; nothing is changed.
    pub fn insert(&mut self, name: &[u8], inode: u32, kind: u8) -> Result<bool> {
        let room = room(self.bytes, self.end, entry_bytes(name.len()))?;
        let Some((at, length, used)) = room else { return Ok(false) };
        if used > 0 {
            put_half(self.bytes, at + 4, stored_length(used));
        }
        self.put(at + used, length - used, name, inode, kind);
        Ok(true)
    }

    /// Removes a name; the inode that it named, if it was there.
    ///
    /// # Errors
    /// Where the block cannot be; nothing is changed.
    pub fn remove(&mut self, name: &[u8]) -> Result<Option<u32>> {
        let Some((before, at, length)) = self.find(name)? else { return Ok(None) };
        let inode = word(self.bytes, at);
        match before {
            // The entry before it takes its room.
            Some((before, before_length)) => {
                put_half(self.bytes, before + 4, stored_length(before_length + length));
                self.bytes[at..at + length].fill(0);
            }
            None => {
                put_word(self.bytes, at, 0);
                self.bytes[at + 6..at + length].fill(0);
            }
        }
        Ok(inode)
    }

    /// Makes a name mean another inode; the one that it named, if it was there.
    ///
    /// # Errors
    /// Where the block cannot be; nothing is changed.
    pub fn replace(&mut self, name: &[u8], inode: u32, kind: u8) -> Result<Option<u32>> {
        let Some((_, at, _)) = self.find(name)? else { return Ok(None) };
        let old = word(self.bytes, at);
        put_word(self.bytes, at, inode);
        self.bytes[at + 7] = if self.typed { kind } else { 0 };
        Ok(old)
    }

    /// The entry before that of `name` with its length, and where that one is.
    #[expect(clippy::type_complexity, reason = "three numbers, used next to here")]
    fn find(&self, name: &[u8]) -> Result<Option<(Option<(usize, usize)>, usize, usize)>> {
        let mut before = None;
        for span in spans(self.bytes, self.end) {
            let span = span?;
            if span.is(self.bytes, name) {
                return Ok(Some((before, span.at, span.length)));
            }
            before = Some((span.at, span.length));
        }
        Ok(None)
    }

    fn put(&mut self, at: usize, length: usize, name: &[u8], inode: u32, kind: u8) {
        put_word(self.bytes, at, inode);
        put_half(self.bytes, at + 4, stored_length(length));
        self.bytes[at + 6] = name.len() as u8;
        self.bytes[at + 7] = if self.typed { kind } else { 0 };
        self.bytes[at + HEAD..at + HEAD + name.len()].copy_from_slice(name);
    }

    /// Brings the checksum into the block, which is one of `directory` with entries and no node of its index.
    pub fn seal(self, directory: &Inode) {
        if self.end == self.bytes.len() {
            return;
        }
        let sum = crc32c(directory.seed(), &self.bytes[..self.end]);
        let tail = &mut self.bytes[self.end..];
        tail.copy_from_slice(&[0, 0, 0, 0, TAIL as u8, 0, 0, 0xDE, 0, 0, 0, 0]);
        put_word(tail, 8, sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: &mut [u8]) -> Entries<'_> {
        let end = bytes.len() - TAIL;
        Entries { bytes, end, typed: true }
    }

    fn names(bytes: &[u8]) -> Vec<Vec<u8>> {
        let listed = entries(bytes, bytes.len() - TAIL).unwrap();
        listed.into_iter().map(|entry| entry.name.to_vec()).collect()
    }

    /// Against a list: inserts and removals of names, in an order that a seed repeats.
    #[test]
    fn a_block_holds_what_was_put_in() {
        let mut seed = 1_u64;
        let mut random = move |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut bytes = vec![0; 1024];
        block(&mut bytes).make_first(20, 2);
        let mut model = vec![b".".to_vec(), b"..".to_vec()];
        let mut refused = 0;
        for step in 0..4000 {
            if random(3) > 0 {
                let length = 1 + random(60) as usize;
                let mut name = format!("{step}-").into_bytes();
                name.resize(length.max(name.len()), b'x');
                if block(&mut bytes).insert(&name, 12 + step, 1).unwrap() {
                    model.push(name);
                } else {
                    refused += 1;
                    let used: usize = model.iter().map(|name| entry_bytes(name.len())).sum();
                    assert!(used + 200 > 1024 - TAIL || model.len() > 3, "room is found");
                }
            } else if model.len() > 2 {
                let at = 2 + random(model.len() as u64 - 2) as usize;
                let name = model.swap_remove(at);
                assert!(block(&mut bytes).remove(&name).unwrap().is_some());
                assert_eq!(block(&mut bytes).remove(&name).unwrap(), None);
            }
            let (mut found, mut expected) = (names(&bytes), model.clone());
            assert_eq!(found[..2], expected[..2]);
            found.sort();
            expected.sort();
            assert_eq!(found, expected);
        }
        assert!(refused > 100, "it was full at times");
        assert_eq!(block(&mut bytes).replace(b"..", 77, 2).unwrap(), Some(2));
        assert_eq!(block(&mut bytes).replace(b"none", 77, 2).unwrap(), None);
    }

    #[test]
    fn lengths_that_cannot_be_are_reported() {
        let mut bytes = vec![0; 1024];
        block(&mut bytes).clear();
        assert_eq!(names(&bytes), [b""; 0]);
        for length in [0_u16, 8, 13, 1020] {
            put_half(&mut bytes, 4, length);
            assert!(block(&mut bytes).insert(b"a", 12, 1).is_err(), "{length}");
        }
    }
}
