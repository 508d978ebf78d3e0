//! Directories: blocks of entries, entries in the inode, their checksums and their rules.
//!
//! # Boundary
//! Lists, and finds by reading everything; finding through the index is [`super::htree`].
//!
//! # Why
//! A name that could lead out of its directory (`/`, NUL, a second `..`) is refused here, so that no user of this crate
//! has to think of it. Encrypted names are shown in an alphabet that file names can have; their key is never here.

use super::blocks::Block;
use super::checksum::crc32c;
use super::inode::{Inode, Kind};
use super::layout::{EntryHead, IndexEntry, view, views, word};
use super::map::Place;
use crate::ROOT;
use crate::error::{Error, Result};
use crate::image::Image;
use std::borrow::Cow;
use std::ops::ControlFlow;

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// Name of the entry; encrypted names are encoded.
    pub name: Cow<'a, [u8]>,
    /// The inode that it names.
    pub inode: u32,
    /// The inode's kind, where the entry has it.
    pub kind: Option<Kind>,
    /// The position of the next entry.
    pub next: u64,
}

/// Blocks that are mapped at a time.
const WINDOW: u64 = 256;
/// Blocks of a directory that are read together, where they lie together.
const AHEAD: u64 = 16;
/// Least length of an entry: its head and a short name.
const ENTRY_MIN: usize = 12;
/// Bytes of a block's checksum with what makes it look like an entry.
const TAIL: usize = 12;
/// Entries of a directory in its inode begin behind the number of its parent.
const INLINE_HEAD: usize = 4;

impl Image {
    /// Calls `tell` with each entry of `directory` from position `from` on (0, or an entry's `next`), `.` and `..` too,
    /// until `tell` breaks.
    ///
    /// # Errors
    /// [`Error::NotDirectory`]; where the directory contradicts the format.
    pub fn list(
        &self,
        directory: &Inode,
        from: u64,
        tell: &mut dyn FnMut(DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        if directory.kind() != Some(Kind::Directory) {
            return Err(Error::NotDirectory);
        }
        let done = if directory.is_inline() {
            self.list_inline(directory, from, tell)
        } else {
            self.list_blocks(directory, from, tell)
        };
        done.map_err(|error| error.in_inode(directory.number))
    }

    /// The inode that `name` means in `directory`.
    ///
    /// # Errors
    /// As [`Image::list`].
    pub fn lookup(&self, directory: &Inode, name: &[u8]) -> Result<Option<u32>> {
        let by_index = directory.is_indexed()
            && self.superblock().features.dir_index()
            && !directory.is_inline()
            && !directory.is_encrypted()
            && !directory.folds_case()
            && name != b"."
            && name != b".."
            && directory.kind() == Some(Kind::Directory);
        if by_index {
            let found = self.lookup_indexed(directory, name);
            if let Some(found) = found.map_err(|error| error.in_inode(directory.number))? {
                return Ok(found);
            }
        }
        let mut found = None;
        self.list(directory, 0, &mut |entry| {
            if *entry.name == *name {
                found = Some(entry.inode);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    fn list_blocks(
        &self,
        directory: &Inode,
        from: u64,
        tell: &mut dyn FnMut(DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let size = u64::from(self.superblock().block_size);
        let blocks = directory.size().div_ceil(size);
        let mut logical = from / size;
        while logical < blocks {
            let window = logical..blocks.min(logical + WINDOW);
            for run in self.map(directory, window)? {
                let end = run.logical + run.length;
                for at in run.logical..end {
                    let place = place_of(run.place, at - run.logical)?;
                    if at.is_multiple_of(AHEAD) || at == run.logical {
                        let ahead = (AHEAD - at % AHEAD).min(end - at);
                        self.blocks().read_ahead(place..place + ahead);
                    }
                    let block = self.directory_block(directory, place, at)?;
                    let listed = self.entries(directory, &block, at * size, from, tell);
                    if listed.map_err(|error| error.at_block(place))?.is_break() {
                        return Ok(());
                    }
                }
            }
            logical += WINDOW;
        }
        Ok(())
    }

    /// Where block `logical` of a directory lies.
    pub(crate) fn directory_place(&self, directory: &Inode, logical: u64) -> Result<u64> {
        let size = u64::from(self.superblock().block_size);
        if logical >= directory.size().div_ceil(size) {
            return Err(Error::corrupt("its index leads behind its end"));
        }
        let runs = self.map(directory, logical..logical + 1)?;
        place_of(runs.first().map_or(Place::Hole, |run| run.place), 0)
    }

    /// A block of a directory whose checksum is right: block `logical` of it, at `place`.
    ///
    /// # Errors
    /// A wrong checksum; those of the device.
    pub fn directory_block(
        &self,
        directory: &Inode,
        place: u64,
        logical: u64,
    ) -> Result<Block<'_>> {
        if !self.superblock().features.metadata_checksum() {
            return self.blocks().block(place);
        }
        self.blocks().checked(place, &|block| {
            let holds = match index_offset(self, directory, block, logical) {
                Some(offset) => index_checksum_holds(directory, block, offset),
                None => leaf_checksum_holds(directory, block),
            };
            let what = "the checksum of a block of a directory is wrong";
            if holds { Ok(()) } else { Err(Error::corrupt(what).at_block(place)) }
        })
    }

    /// The inode that the entry of `name`, which is no `.` and no `..`, has in `bytes`. Checks neither later entries nor
    /// other names.
    pub(crate) fn find_entry(&self, bytes: &[u8], name: &[u8]) -> Result<Option<u32>> {
        match crate::encode::directory::find(bytes, bytes.len(), name)? {
            Some(inode) if !self.may_be_named(inode) => Err(bad("names an inode that cannot be")),
            found => Ok(found),
        }
    }

    /// Calls `tell` with each entry in `bytes`, whose first one has position `base`.
    pub(crate) fn entries(
        &self,
        directory: &Inode,
        bytes: &[u8],
        base: u64,
        from: u64,
        tell: &mut dyn FnMut(DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let mut offset = 0;
        while offset < bytes.len() {
            let head: &EntryHead = view(bytes, offset).ok_or_else(|| bad("is short"))?;
            let length = entry_length(head.length.get(), bytes.len());
            let name_length = usize::from(head.name_length);
            let end = offset + length;
            let inode = head.inode.get();
            if length < ENTRY_MIN || !length.is_multiple_of(4) || end > bytes.len() {
                return Err(bad("has a length that cannot be"));
            }
            if 8 + name_length > length {
                return Err(bad("is shorter than its name"));
            }
            let name = &bytes[offset + 8..offset + 8 + name_length];
            let position = base + offset as u64;
            offset = end;
            if inode == 0 || position < from {
                continue;
            }
            if !self.may_be_named(inode) {
                return Err(bad("names an inode that cannot be"));
            }
            let typed = self.superblock().features.filetype();
            let kind = if typed { Kind::of_entry(head.kind) } else { None };
            let name = self.checked_name(directory, name, position)?;
            let entry = DirectoryEntry { name, inode, kind, next: base + end as u64 };
            if tell(entry).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Whether a name may lead to `inode`: those that the format keeps for itself have none, but for the root.
    fn may_be_named(&self, inode: u32) -> bool {
        let superblock = self.superblock();
        inode == ROOT || (superblock.first_inode()..=superblock.inodes).contains(&inode)
    }

    fn checked_name<'a>(
        &self,
        directory: &Inode,
        name: &'a [u8],
        position: u64,
    ) -> Result<Cow<'a, [u8]>> {
        if name.is_empty() {
            return Err(bad("has no name"));
        }
        let dots = name == b"." || name == b"..";
        if directory.is_encrypted() && !dots {
            return Ok(Cow::Owned(encoded(name)));
        }
        // All bytes, without a way out: short names are looked through faster so.
        if name.iter().fold(false, |odd, byte| odd | (*byte == 0) | (*byte == b'/')) {
            return Err(bad("has a name with a slash or a NUL in it"));
        }
        // They stand at the beginning: at 0 and 12, and nowhere else.
        if dots && position != if name.len() == 1 { 0 } else { 12 } {
            return Err(bad("is `.` or `..` and does not stand where those do"));
        }
        Ok(Cow::Borrowed(name))
    }

    fn list_inline(
        &self,
        directory: &Inode,
        from: u64,
        tell: &mut dyn FnMut(DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        // `.` and `..` are positions 0 and 12; entries in the inode start at 24, entries in its attribute at 128.
        const FIRST: u64 = 24;
        const SECOND: u64 = 128;
        let parent = word(directory.block(), 0).unwrap_or(0);
        if !self.may_be_named(parent) {
            return Err(Error::corrupt("its parent is an inode that cannot be"));
        }
        let dots = [(b".".as_slice(), directory.number, 0), (b"..", parent, 12)];
        for (name, inode, at) in dots.into_iter().filter(|(.., at)| from <= *at) {
            let kind = Some(Kind::Directory);
            if tell(DirectoryEntry { name: name.into(), inode, kind, next: at + 12 }).is_break() {
                return Ok(());
            }
        }
        let own = &directory.block()[INLINE_HEAD..];
        if self.entries(directory, own, FIRST, from, tell)?.is_break() {
            return Ok(());
        }
        let more = self.inline_tail(directory)?;
        self.entries(directory, &more, SECOND, from, tell).map(|_| ())
    }
}

/// A directory has no holes.
fn place_of(place: Place, within: u64) -> Result<u64> {
    match place {
        Place::At(block) => Ok(block + within),
        Place::Unwritten(_) | Place::Hole => Err(Error::corrupt("a directory has a hole")),
    }
}

/// Two values stand for the length that sixteen bits cannot have.
fn entry_length(stored: u16, block_bytes: usize) -> usize {
    match usize::from(stored) {
        0 | 0xFFFF if block_bytes == 0x1_0000 => block_bytes,
        length => length,
    }
}

/// Where the entries of the index begin in a block of it, if it is one.
pub(crate) fn index_offset(
    image: &Image,
    directory: &Inode,
    block: &[u8],
    logical: u64,
) -> Option<usize> {
    if !directory.is_indexed() || !image.superblock().features.dir_index() {
        return None;
    }
    if logical == 0 {
        // Behind `.`, `..` and the head of the root, which says how long it is.
        let length = usize::from(*block.get(29)?);
        return Some(24 + length);
    }
    let head: &EntryHead = view(block, 0)?;
    let whole = entry_length(head.length.get(), block.len()) == block.len();
    (head.inode.get() == 0 && whole).then_some(8)
}

/// Limit and count of the node of an index whose entries begin at `offset`.
pub(crate) fn limit_and_count(block: &[u8], offset: usize) -> Option<(usize, usize)> {
    let both = word(block, offset)?;
    Some(((both & 0xFFFF) as usize, (both >> 16) as usize))
}

fn index_checksum_holds(directory: &Inode, block: &[u8], offset: usize) -> bool {
    let Some((limit, count)) = limit_and_count(block, offset) else { return false };
    if count > limit {
        return false;
    }
    let tail = offset + limit * size_of::<IndexEntry>();
    let used: Option<&[IndexEntry]> = views(block, offset, count);
    let (Some(reserved), Some(stored), Some(_)) =
        (block.get(tail..tail + 4), word(block, tail + 4), used)
    else {
        return false;
    };
    let sum = crc32c(directory.seed(), &block[..offset + count * size_of::<IndexEntry>()]);
    crc32c(crc32c(sum, reserved), &[0; 4]) == stored
}

fn leaf_checksum_holds(directory: &Inode, block: &[u8]) -> bool {
    const HEAD: [u8; 8] = [0, 0, 0, 0, 12, 0, 0, 0xDE];
    let Some(at) = block.len().checked_sub(TAIL) else { return false };
    block[at..at + 8] == HEAD && word(block, at + 8) == Some(crc32c(directory.seed(), &block[..at]))
}

fn bad(what: &str) -> Error {
    Error::corrupt(format!("an entry of the directory {what}"))
}

/// An encrypted name in letters, digits, `-` and `_`, and of a length that a name may have.
fn encoded(name: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const WHOLE_MAX: usize = 180;
    let mut text = Vec::new();
    for three in name[..name.len().min(WHOLE_MAX)].chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        text.extend((0..=three.len()).map(|at| ALPHABET[(bits >> (18 - 6 * at) & 63) as usize]));
    }
    if name.len() > WHOLE_MAX {
        text.extend(format!("~{:08x}", crc32c(!0, name)).into_bytes());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encrypted_names_are_names() {
        assert_eq!(encoded(b"Man"), b"TWFu");
        assert_eq!(encoded(b"\xff\xff/"), b"__8v");
        assert_eq!(encoded(b"a"), b"YQ");
        let long = encoded(&[0; 255]);
        assert!(long.len() <= 255 && !long.contains(&b'/'));
        assert_ne!(long, encoded(&[0; 254]));
    }
}
