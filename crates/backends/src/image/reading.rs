//! The families of an image: names, objects, bytes, attributes, objects by number.

use super::{ImageBackend, id_of, kind_of, number_of};
use std::ops::ControlFlow;
use uvfs_ext::{DirectoryEntry, Inode, Passed, Place, windows};
use uvfs_vfs::{
    Attributes, Caller, Cookie, Data, Entry, Error, Export, FileRef, InodeId, Inodes, Listing,
    Name, Names, Result, SeekTarget, XattrMode, Xattrs,
};

impl Names for ImageBackend {
    fn lookup(&self, _: &Caller, parent: InodeId, name: Name<'_>) -> Result<Entry> {
        self.poisoned.guarded(number_of(parent), || {
            let parent = self.inode(parent)?;
            let found = self.reported(self.image.lookup(&parent, name.as_bytes()))?;
            self.entry(found.ok_or(Error::NotFound)?)
        })
    }

    fn list(&self, directory: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()> {
        self.poisoned.guarded(number_of(directory.inode), || {
            let inode = self.inode(directory.inode)?;
            let ahead = listing.wants_attributes() && self.cache.is_some();
            let (mut failed, mut at, mut brought) = (None, from.0, from.0);
            let listed = self.image.list(&inode, from.0, &mut |entry| {
                if ahead && at >= brought {
                    brought = self.read_ahead_of(&inode, at);
                }
                at = entry.next;
                match self.add(&entry, listing) {
                    Ok(true) => ControlFlow::Continue(()),
                    Ok(false) => ControlFlow::Break(()),
                    Err(error) => {
                        failed = Some(error);
                        ControlFlow::Break(())
                    }
                }
            });
            self.reported(listed)?;
            failed.map_or(Ok(()), Err)
        })
    }
}

/// Entries of a directory whose inodes are read together.
const AHEAD_ENTRIES: usize = 64;

impl ImageBackend {
    /// Reads the inodes of the entries of `directory` from position `from` on; returns the position after which to
    /// continue.
    fn read_ahead_of(&self, directory: &Inode, from: u64) -> u64 {
        let (mut numbers, mut behind) = (Vec::with_capacity(AHEAD_ENTRIES), u64::MAX);
        // The listing reports faults of the directory.
        let _ = self.image.list(directory, from, &mut |entry| {
            numbers.push(entry.inode);
            if numbers.len() < AHEAD_ENTRIES {
                return ControlFlow::Continue(());
            }
            behind = entry.next;
            ControlFlow::Break(())
        });
        self.image.read_ahead_inodes(&numbers);
        behind
    }

    /// Passes an entry to `listing`; false if that takes no more.
    fn add(&self, entry: &DirectoryEntry<'_>, listing: &mut dyn Listing) -> Result<bool> {
        if *entry.name == *b"." || *entry.name == *b".." {
            return Ok(true);
        }
        let name = Name::new(&entry.name)?;
        let next = Cookie(entry.next);
        if !listing.wants_attributes()
            && let Some(kind) = entry.kind
        {
            return Ok(listing.add_name(name, next, entry.inode.into(), kind_of(kind)));
        }
        match (self.entry(entry.inode), entry.kind) {
            (Ok(found), _) => Ok(listing.add_entry(name, next, found)),
            // One faulty inode does not hide the others: its name is shown, and its use reports the fault.
            (Err(Error::Corrupt(_)), Some(kind)) => {
                Ok(listing.add_name(name, next, entry.inode.into(), kind_of(kind)))
            }
            (Err(error), _) => Err(error),
        }
    }
}

impl Inodes for ImageBackend {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        self.poisoned
            .guarded(number_of(file.inode), || self.attributes_of(&self.inode(file.inode)?))
    }

    fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        self.poisoned.guarded(number_of(inode), || {
            let inode = self.inode(inode)?;
            self.reported(self.image.read_link(&inode))
        })
    }
}

impl Data for ImageBackend {
    fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.poisoned.guarded(number_of(file.inode), || {
            let inode = self.inode(file.inode)?;
            let read = match &self.cache {
                Some(cache) => {
                    let map = |wanted| cache.map(&self.image, &inode, wanted);
                    self.image.read_mapped(&inode, offset, into, map)
                }
                None => self.image.read(&inode, offset, into),
            };
            self.reported(read)
        })
    }

    fn seek(&self, file: FileRef, offset: u64, target: SeekTarget) -> Result<u64> {
        self.poisoned.guarded(number_of(file.inode), || {
            let inode = self.inode(file.inode)?;
            let size = inode.size();
            if offset >= size {
                return Err(Error::NoData);
            }
            if inode.is_inline() {
                return Ok(if target == SeekTarget::Data { offset } else { size });
            }
            let block = u64::from(self.image.superblock().block_size);
            let mut passed = Passed::default();
            for window in windows(offset / block..size.div_ceil(block)) {
                for run in self.reported(self.image.map_on(&inode, window, &mut passed))? {
                    let data = matches!(run.place, Place::At(_));
                    if data == (target == SeekTarget::Data) {
                        return Ok((run.logical * block).max(offset).min(size));
                    }
                }
            }
            match target {
                SeekTarget::Data => Err(Error::NoData),
                SeekTarget::Hole => Ok(size),
            }
        })
    }
}

impl Xattrs for ImageBackend {
    fn get_xattr(&self, _: &Caller, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        self.poisoned.guarded(number_of(inode), || {
            let inode = self.inode(inode)?;
            self.reported(self.image.xattr(&inode, name))?.ok_or(Error::NoAttribute)
        })
    }

    fn set_xattr(&self, _: &Caller, _: InodeId, _: &[u8], _: &[u8], _: XattrMode) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn list_xattrs(&self, caller: &Caller, inode: InodeId) -> Result<Vec<Vec<u8>>> {
        self.poisoned.guarded(number_of(inode), || {
            let inode = self.inode(inode)?;
            let mut names = self.reported(self.image.xattr_names(&inode))?;
            // As the kernel's own file systems: others do not see that there are any.
            names.retain(|name| caller.is_privileged() || !name.starts_with(b"trusted."));
            Ok(names)
        })
    }

    fn possible_xattrs(&self, inode: InodeId) -> Result<Option<Vec<Vec<u8>>>> {
        self.poisoned.guarded(number_of(inode), || {
            let inode = self.inode(inode)?;
            self.reported(self.image.xattr_names(&inode)).map(Some)
        })
    }

    fn remove_xattr(&self, _: &Caller, _: InodeId, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }
}

impl Export for ImageBackend {
    fn by_number(&self, number: u64) -> Result<Entry> {
        let number = u32::try_from(number).map_err(|_| Error::Stale)?;
        let superblock = self.image.superblock();
        let own = number < superblock.first_inode() && number != uvfs_ext::ROOT;
        if own || number > superblock.inodes {
            return Err(Error::Stale);
        }
        self.poisoned.guarded(number, || {
            // The number may be old, perhaps of another image: an unused inode is gone, not faulty.
            let inode = self.image.inode(number).map_err(|_| Error::Stale)?;
            if inode.links() == 0 || inode.kind().is_none() {
                return Err(Error::Stale);
            }
            Ok(Entry { inode: id_of(&inode), attributes: self.attributes_of(&inode)? })
        })
    }

    fn parent_of(&self, directory: InodeId) -> Result<Entry> {
        self.poisoned.guarded(number_of(directory), || {
            let inode = self.inode(directory)?;
            let parent = self.reported(self.image.lookup(&inode, b".."))?;
            self.entry(parent.ok_or(Error::Corrupt("a directory of the image has no parent"))?)
        })
    }
}
