//! A store of files whose every page is full of its own number.
//!
//! # Boundary
//! The [`Backend`] below uvfs here: read-only, by one file system alone, its data computed, so that
//! all memory that grows belongs to the cache above it. Counts the data requests of each file.
//!
//! # Why
//! A page of known content shows a wrong hit, and the count of requests is the count of misses.
//! Weakness: it is faster than any real store, so no misses may be timed over it.

use super::cases::PAGE;
use std::sync::Arc;
use uvfs_concurrent::counter::Counter;
use uvfs_vfs::{
    Attributes, Backend, Caller, Capabilities, Cookie, Data, Entry, Error, FileKind, FileRef,
    InodeId, Inodes, Listing, Name, Names, Result, Timestamp,
};

const ROOT: InodeId = InodeId(1);
/// Files are numbered from here on.
const FIRST: u64 = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct NumberedStore {
    /// Size of each file; their names are their numbers, from `0` on.
    sizes: Vec<u64>,
    asked: Arc<[Counter]>,
    time: Timestamp,
}

impl NumberedStore {
    /// A store of files of `sizes`.
    pub(super) fn new(sizes: &[u64]) -> Self {
        let asked = sizes.iter().map(|_| Counter::new()).collect();
        Self { sizes: sizes.to_vec(), asked, time: Timestamp::now() }
    }

    /// How often data of each file was asked for.
    pub(super) fn asked(&self) -> Arc<[Counter]> {
        self.asked.clone()
    }

    fn file(&self, inode: InodeId) -> Result<usize> {
        let file = inode.0.checked_sub(FIRST).ok_or(Error::IsDirectory)? as usize;
        (file < self.sizes.len()).then_some(file).ok_or(Error::NotFound)
    }

    fn entry(&self, inode: InodeId) -> Result<Entry> {
        let size = if inode == ROOT { None } else { Some(self.sizes[self.file(inode)?]) };
        let attributes = Attributes {
            number: inode.0,
            kind: if size.is_some() { FileKind::Regular } else { FileKind::Directory },
            mode: if size.is_some() { 0o644 } else { 0o755 },
            links: if size.is_some() { 1 } else { 2 },
            uid: 0,
            gid: 0,
            device: 0,
            size: size.unwrap_or(0),
            blocks: 0,
            block_size: PAGE as u32,
            atime: self.time,
            mtime: self.time,
            ctime: self.time,
            btime: None,
            version: 0,
        };
        Ok(Entry { inode, attributes })
    }
}

impl Backend for NumberedStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::read_only("numbered")
    }

    fn root(&self) -> Result<Entry> {
        self.entry(ROOT)
    }

    fn names(&self) -> &dyn Names {
        self
    }

    fn inodes(&self) -> &dyn Inodes {
        self
    }

    fn data(&self) -> &dyn Data {
        self
    }
}

impl Names for NumberedStore {
    fn lookup(&self, _: &Caller, _: InodeId, name: Name<'_>) -> Result<Entry> {
        let name = std::str::from_utf8(name.as_bytes()).ok();
        let file: u64 = name.and_then(|name| name.parse().ok()).ok_or(Error::NotFound)?;
        self.entry(InodeId(FIRST + file))
    }

    fn list(&self, _: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()> {
        for file in from.0..self.sizes.len() as u64 {
            let name = file.to_string();
            let entry = self.entry(InodeId(FIRST + file))?;
            if !listing.add_entry(Name::new(name.as_bytes())?, Cookie(file + 1), entry) {
                break;
            }
        }
        Ok(())
    }
}

impl Inodes for NumberedStore {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        Ok(self.entry(file.inode)?.attributes)
    }
}

impl Data for NumberedStore {
    fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        let file = self.file(file.inode)?;
        self.asked[file].add(1);
        let rest = self.sizes[file].saturating_sub(offset);
        let count = into.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        fill(offset, &mut into[..count]);
        Ok(count)
    }
}

/// The data of a file from `offset` on: each eight bytes are the number of their page.
pub(super) fn fill(offset: u64, into: &mut [u8]) {
    let mut at = offset;
    let mut rest = into;
    while !rest.is_empty() {
        let count = rest.len().min((PAGE - at % PAGE) as usize);
        let (part, behind) = rest.split_at_mut(count);
        let mut word = (at / PAGE).to_le_bytes();
        word.rotate_left((at % 8) as usize);
        for bytes in part.chunks_mut(word.len()) {
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
        (at, rest) = (at + count as u64, behind);
    }
}

/// The number that `bytes`, which lie on a multiple of eight, begin with.
#[inline]
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(u64::MAX, |word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvfs_vfs::{OpenOptions, Vfs, VfsConfig};

    #[test]
    fn every_word_is_the_number_of_its_page() {
        let mut all = vec![0; 5 * 4096];
        fill(0, &mut all);
        let words = all.chunks(8).enumerate();
        words.for_each(|(nth, word)| assert_eq!(number(word), nth as u64 / 512));
        for (offset, count) in [(0, 0), (3, 5), (4090, 20), (8191, 4099), (4096, 1)] {
            let mut part = vec![0xee; count];
            fill(offset as u64, &mut part);
            assert_eq!(part, all[offset..offset + count], "{offset} {count}");
        }
    }

    #[test]
    fn files_are_found_and_their_store_is_asked_once() {
        let store = NumberedStore::new(&[10_000, 4096]);
        let asked = store.asked();
        let vfs = Vfs::new(store, VfsConfig::default()).unwrap();
        let top = vfs.root_directory(Caller::root());
        assert_eq!(top.list_all().unwrap().len(), 2);
        assert!(matches!(top.stat("2"), Err(Error::NotFound)));
        let file = top.open("0", OpenOptions::read()).unwrap();
        for _ in 0..3 {
            let content = file.read_to_end().unwrap();
            assert_eq!((content.len(), number(&content[8192..])), (10_000, 2));
        }
        assert!((1..4).contains(&asked[0].total()), "{}", asked[0].total());
        assert_eq!(asked[1].total(), 0);
    }
}
