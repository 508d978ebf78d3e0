//! Names and new objects of an image that is written; objects by number.

use super::data::Refused;
use super::{WritingImage, kind_to, number_of, unpacked};
use crate::image::{id_of, kind_of};
use uvfs_ext_write::{Listed, New, Rename, Volume};
use uvfs_vfs::acl::{ACCESS_XATTR, Acl, DEFAULT_XATTR};
use uvfs_vfs::{
    Caller, Cookie, Creation, Entry, Error, Export, FileId, FileRef, InodeId, Inodes, Listing,
    Name, Names, NewKind, NewNode, OpenMode, RenameMode, Result, creation,
};

/// Entries taken from a directory in one step.
const BATCH: usize = 64;

impl Names for WritingImage {
    fn lookup(&self, _: &Caller, parent: InodeId, name: Name<'_>) -> Result<Entry> {
        let parent = number_of(parent);
        let held = self.guarded(parent, |volume| volume.lookup_held(parent, name.as_bytes()))?;
        self.entry(&held.ok_or(Error::NotFound)?)
    }

    fn list(&self, directory: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()> {
        let (number, hold) = (number_of(directory.inode), listing.wants_attributes());
        let mut position = from.0;
        loop {
            let list = |volume: &Volume| volume.list_held(number, position, BATCH, hold);
            let (listed, ended) = self.guarded(number, list)?;
            let mut listed = listed.into_iter();
            while let Some(one) = listed.next() {
                position = one.next;
                let wanted = self.offer(&one, listing);
                if !matches!(wanted, Ok(true)) {
                    for rest in listed.filter_map(|one| one.held) {
                        self.give_back(rest.0.number, 1);
                    }
                    return wanted.map(drop);
                }
            }
            if ended {
                return Ok(());
            }
        }
    }

    fn unlink(&self, _: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        let parent = number_of(parent);
        self.guarded(parent, |volume| volume.unlink(parent, name.as_bytes()))
    }

    fn remove_directory(&self, _: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        let parent = number_of(parent);
        self.guarded(parent, |volume| volume.rmdir(parent, name.as_bytes()))
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (InodeId, Name<'_>),
        to: (InodeId, Name<'_>),
        mode: RenameMode,
    ) -> Result<()> {
        let how = match mode {
            RenameMode::Replace => Rename::Replace,
            RenameMode::NoReplace => Rename::NoReplace,
            RenameMode::Exchange => Rename::Exchange,
            RenameMode::Whiteout | RenameMode::WhiteoutNoReplace => {
                let parent = self.attributes(FileRef::unopened(from.0))?;
                let new = creation::resolve(caller, &parent, None, &NewNode::WHITEOUT);
                Rename::Whiteout { uid: new.uid, gid: new.gid, replaces: mode.replaces_target() }
            }
        };
        let (name, new_name) = (from.1.as_bytes(), to.1.as_bytes());
        let (from, to) = (number_of(from.0), number_of(to.0));
        self.guarded(from, |volume| volume.rename_as(from, name, to, new_name, how))
    }
}

impl WritingImage {
    /// Passes an entry to `listing`; false if that takes no more.
    fn offer(&self, one: &Listed, listing: &mut dyn Listing) -> Result<bool> {
        let (name, next) = (Name::new(&one.name)?, Cookie(one.next));
        if let Some(held) = &one.held {
            let entry = self.entry(held)?;
            let taken = listing.add_entry(name, next, entry);
            if !taken {
                self.give_back(one.number, 1);
            }
            return Ok(taken);
        }
        // Without attributes, or with a faulty inode: its name is shown, and its use reports the fault.
        let kind = match one.kind {
            Some(kind) => kind,
            None => self
                .guarded(one.number, |volume| volume.inode(one.number))?
                .kind()
                .ok_or(Error::Stale)?,
        };
        Ok(listing.add_name(name, next, one.number.into(), kind_of(kind)))
    }

    /// Makes an object with `make`, from the initial inode of `new` below `parent`.
    fn make(
        &self,
        caller: &Caller,
        parent: InodeId,
        new: &NewNode<'_>,
        make: impl FnOnce(&New<'_>) -> uvfs_ext_write::Result<uvfs_ext_write::Held>,
    ) -> Result<Entry> {
        let parent = number_of(parent);
        let (about, default) = self.poisoned.guarded(parent, || {
            let looked = self.volume.look(parent, |look| {
                Ok::<_, Refused>((self.attributes_of(look.inode)?, look.xattr(DEFAULT_XATTR)?))
            });
            looked.map_err(|refused| refused.0)
        })?;
        let default = default.map(|list| Acl::parse(&list)).transpose()?.flatten();
        let resolved = creation::resolve(caller, &about, default.as_ref(), new);
        let lists = [(ACCESS_XATTR, &resolved.access), (DEFAULT_XATTR, &resolved.default)];
        let lists: Vec<_> = lists
            .iter()
            .filter_map(|(name, list)| Some((*name, list.as_ref()?.to_bytes())))
            .collect();
        let xattrs: Vec<(&[u8], &[u8])> =
            lists.iter().map(|(name, list)| (*name, &**list)).collect();
        let (target, device) = match new.kind {
            NewKind::Symlink([]) => return Err(Error::NotFound),
            NewKind::Symlink(text) if text.len() >= about.block_size as usize => {
                return Err(Error::NameTooLong);
            }
            NewKind::Symlink(text) => (text, 0),
            NewKind::CharDevice(device) | NewKind::BlockDevice(device) => (&b""[..], device),
            _ => (&b""[..], 0),
        };
        let new = New {
            kind: kind_to(new.kind.kind()),
            permissions: (resolved.mode & 0o7777) as u16,
            uid: resolved.uid,
            gid: resolved.gid,
            device: unpacked(device),
            target,
            xattrs: &xattrs,
        };
        let held = self.guarded(parent, |_| make(&new))?;
        self.entry(&held)
    }
}

impl Creation for WritingImage {
    fn create(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
    ) -> Result<Entry> {
        self.make(caller, parent, new, |new| {
            self.volume.create_held(number_of(parent), name.as_bytes(), new)
        })
    }

    fn create_unnamed(
        &self,
        caller: &Caller,
        parent: InodeId,
        new: &NewNode<'_>,
        _: OpenMode,
    ) -> Result<(Entry, FileId)> {
        let entry = self
            .make(caller, parent, new, |new| self.volume.create_unnamed(number_of(parent), new))?;
        Ok((entry, FileId::NONE))
    }

    fn link(&self, _: &Caller, inode: InodeId, parent: InodeId, name: Name<'_>) -> Result<Entry> {
        let (inode, parent) = (number_of(inode), number_of(parent));
        match self.guarded(parent, |volume| volume.link_held(inode, parent, name.as_bytes())) {
            Ok(held) => self.entry(&held),
            Err(Error::IsDirectory) => Err(Error::NotPermitted),
            Err(error) => Err(error),
        }
    }
}

impl Export for WritingImage {
    fn by_number(&self, number: u64) -> Result<Entry> {
        let number = u32::try_from(number).map_err(|_| Error::Stale)?;
        if number > self.volume.superblock().inodes || self.volume.is_own(number) {
            return Err(Error::Stale);
        }
        // The number may be old: an unused inode is gone, not faulty.
        let held = self.guarded(number, |volume| volume.hold(number)).map_err(|_| Error::Stale)?;
        if held.0.links() == 0 {
            self.give_back(number, 1);
            return Err(Error::Stale);
        }
        let entry = self.entry(&held)?;
        debug_assert_eq!(entry.inode, id_of(&held.0));
        Ok(entry)
    }

    fn parent_of(&self, directory: InodeId) -> Result<Entry> {
        let directory = number_of(directory);
        let parent = self.guarded(directory, |volume| volume.lookup(directory, b".."))?;
        let parent = parent.ok_or(Error::Corrupt("a directory of the image has no parent"))?;
        self.entry(&self.guarded(parent, |volume| volume.hold(parent))?)
    }
}
