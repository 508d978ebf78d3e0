//! A store that computes its tree: the [`Backend`] below uvfs wherever memory or size matters.
//!
//! # Boundary
//! Read-only, by one file system alone, never slow. Keeps nothing, so all memory that grows during
//! a walk belongs to the caches above it.
//!
//! # Why
//! With the memory backend below, every name would be held twice and the figure of one would be the
//! sum of both. Directories are 0755 and files 0644 of user 0, like on the tmpfs beside it. The
//! walker is another user, so that each directory's mode is checked.

use uvfs_bench_workload::tree::{Place, ROOT, Tree};
use uvfs_vfs::{
    Attributes, Backend, Caller, Capabilities, Cookie, Data, Entry, Error, FileKind, FileRef,
    InodeId, Inodes, Listing, Name, Names, PageCaching, Result, Timestamp, Waits,
};

/// A [`Tree`] as a store.
#[derive(Debug)]
pub(super) struct ComputedStore {
    tree: Tree,
    /// All times of all objects.
    time: Timestamp,
}

impl ComputedStore {
    /// `tree`, all of it made now.
    pub(super) fn new(tree: Tree) -> Self {
        Self { tree, time: Timestamp::now() }
    }

    fn place(&self, inode: InodeId) -> Result<Place> {
        self.tree.place(inode.0).ok_or(Error::NotFound)
    }

    fn entry(&self, place: Place) -> Entry {
        let id = self.tree.id(place);
        let leaf = self.tree.is_leaf(place);
        let attributes = Attributes {
            number: id,
            kind: if leaf { FileKind::Regular } else { FileKind::Directory },
            mode: if leaf { 0o644 } else { 0o755 },
            links: if leaf { 1 } else { 2 },
            uid: 0,
            gid: 0,
            device: 0,
            size: if leaf { Tree::size(id) } else { 0 },
            blocks: 0,
            block_size: 4096,
            atime: self.time,
            mtime: self.time,
            ctime: self.time,
            btime: None,
            version: 0,
        };
        Entry { inode: InodeId(id), attributes }
    }
}

impl Backend for ComputedStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            waits: Waits::Never,
            caching: PageCaching::Store,
            ..Capabilities::read_only("computed")
        }
    }

    fn root(&self) -> Result<Entry> {
        Ok(self.entry(self.place(InodeId(ROOT))?))
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

impl Names for ComputedStore {
    fn lookup(&self, _: &Caller, parent: InodeId, name: Name<'_>) -> Result<Entry> {
        let child = self.tree.child(self.place(parent)?, name.as_bytes());
        Ok(self.entry(child.ok_or(Error::NotFound)?))
    }

    fn list(&self, directory: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()> {
        let place = self.place(directory.inode)?;
        let children = self.tree.children(place);
        for index in (children.start + from.0)..children.end {
            let child = Place { level: place.level + 1, index };
            let (name, entry) = (self.tree.name(child), self.entry(child));
            let next = Cookie(index - children.start + 1);
            let name = Name::new(name.as_bytes())?;
            if !listing.add_entry(name, next, entry) {
                break;
            }
        }
        Ok(())
    }
}

impl Inodes for ComputedStore {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        Ok(self.entry(self.place(file.inode)?).attributes)
    }
}

impl Data for ComputedStore {
    fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        let size = self.attributes(file)?.size;
        let rest = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = rest.min(into.len());
        into[..count].fill(0);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use uvfs_bench_workload::paths::{Paths, Pattern};
    use uvfs_vfs::{Vfs, VfsConfig};

    #[test]
    fn a_walk_through_the_caches_finds_the_computed_sizes() {
        let tree = Tree::new(3, 400);
        let vfs = Vfs::new(ComputedStore::new(tree.clone()), VfsConfig::default()).unwrap();
        let top = vfs.root_directory(Caller::new(1000, 1000, &[]));
        let paths = Paths::new(&tree, Pattern::Uniform);
        let track = paths.track();
        for (path, &size) in track.paths.iter().zip(track.sizes) {
            assert_eq!(top.stat(path.to_bytes()).unwrap().size, size, "{path:?}");
        }
        assert!(matches!(top.stat("none"), Err(Error::NotFound)));
        assert!(matches!(top.write_file("new", ""), Err(Error::ReadOnly)));
    }

    #[test]
    fn listings_and_lookups_agree() {
        let tree = Tree::new(1, 1300);
        let vfs = Vfs::new(ComputedStore::new(tree), VfsConfig::default()).unwrap();
        let top = vfs.root_directory(Caller::root());
        let listed = top.list_all().unwrap();
        let names: BTreeSet<&[u8]> = listed.iter().map(|entry| &entry.name[..]).collect();
        assert_eq!((listed.len(), names.len()), (1300, 1300));
        for entry in &listed {
            assert_eq!(top.stat(&entry.name).unwrap().number, entry.number);
        }
    }

    #[test]
    fn files_read_as_zeros_to_their_end() {
        let store = ComputedStore::new(Tree::new(1, 10));
        let file = FileRef::unopened(InodeId(5));
        let size = store.attributes(file).unwrap().size;
        let mut buffer = [7; 16];
        assert_eq!(store.read(file, size - 3, &mut buffer).unwrap(), 3);
        assert_eq!(buffer[..4], [0, 0, 0, 7]);
    }
}
