//! New objects and new names: create, create and open, files without a name, hard links.
//!
//! # Boundary
//! Everything that adds a new object or a link to a directory. Removing and renaming:
//! [`super::names`].
//!
//! # Why
//! The host makes the object, as the caller, under the caller's umask. So the host decides owner,
//! group, setgid inheritance, default access control lists, quota and permission. The new object's
//! state is read by name afterwards; if another program replaced it meanwhile, the answer is the
//! new state. Weakness: a new object that vanishes at once is reported as
//! [`uvfs_vfs::Error::NotFound`].

use super::convert::{host_error, open_flags, stat_at, stat_of};
use super::host::Host;
use super::identity::{CHANGE_NAMES, REACH};
use super::node::HostNode;
use super::open::OpenHostFile;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::DecInt;
use rustix::thread::CapabilitySet;
use std::sync::Arc;
use uvfs_vfs::{
    Caller, Creation, Entry, Error, FileId, FileKind, InodeId, Name, NewKind, NewNode, OpenMode,
    Result,
};

impl Creation for Host {
    fn create(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
    ) -> Result<Entry> {
        let (parent, directory) = self.directory(parent)?;
        let _own = self.own_change([Some(&parent), None, None, None]);
        let needed = match new.kind {
            NewKind::CharDevice(_) | NewKind::BlockDevice(_) => REACH | CapabilitySet::MKNOD,
            _ => REACH,
        };
        self.identity.act(caller, Some(new.umask), needed, |as_caller| {
            let mode = as_caller.creation_mode(new);
            make(directory.as_fd(), name.as_bytes(), new.kind, mode).map_err(host_error)
        })?;
        let stat = stat_at(directory.as_fd(), name.as_bytes())?;
        Ok(self.entry(&stat, Some((&parent, name.as_bytes()))).0)
    }

    fn create_and_open(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
        mode: OpenMode,
    ) -> Result<(Entry, FileId)> {
        only_regular(new)?;
        let share = self.share(caller.uid)?;
        let (parent, directory) = self.directory(parent)?;
        let _own = self.own_change([Some(&parent), None, None, None]);
        self.counters.opens.hit();
        let opened = self.identity.act(caller, Some(new.umask), REACH, |as_caller| {
            let flags = open_flags(mode) | OFlags::CREATE | OFlags::EXCL;
            let creation_mode = as_caller.creation_mode(new);
            self.open_beneath(directory.as_fd(), name.as_bytes(), flags, creation_mode)
                .map_err(host_error)
        })?;
        let (entry, node) = self.entry(&stat_of(&opened)?, Some((&parent, name.as_bytes())));
        Ok((entry, self.keep_open(OpenHostFile::new(node, opened, mode), share)))
    }

    fn create_unnamed(
        &self,
        caller: &Caller,
        parent: InodeId,
        new: &NewNode<'_>,
        mode: OpenMode,
    ) -> Result<(Entry, FileId)> {
        only_regular(new)?;
        let share = self.share(caller.uid)?;
        let (_parent, directory) = self.directory(parent)?;
        self.counters.opens.hit();
        let opened = self.identity.act(caller, Some(new.umask), REACH, |as_caller| {
            let wanted = OpenMode { write: true, truncate: false, ..mode };
            let flags = open_flags(wanted) | OFlags::TMPFILE;
            let creation_mode = as_caller.creation_mode(new);
            self.open_beneath(directory.as_fd(), b".", flags, creation_mode).map_err(|errno| {
                match errno {
                    // The answers of hosts that do not know the flag.
                    Errno::ISDIR | Errno::NOENT => Error::Unsupported("files without a name"),
                    errno => host_error(errno),
                }
            })
        })?;
        let denoting: OwnedFd = self.reopen(&opened, OFlags::PATH)?;
        let (entry, node) = self.entry(&stat_of(&opened)?, None);
        node.slot.pin(Arc::new(denoting));
        self.counters.pins.hit();
        Ok((entry, self.keep_open(OpenHostFile::new(node, opened, mode), share)))
    }

    fn link(
        &self,
        caller: &Caller,
        inode: InodeId,
        parent: InodeId,
        name: Name<'_>,
    ) -> Result<Entry> {
        let node = self.node(inode)?;
        if node.kind == FileKind::Directory {
            return Err(Error::NotPermitted);
        }
        let (parent, directory) = self.directory(parent)?;
        let object = self.descriptor(&node)?;
        let _own = self.own_change([Some(&parent), Some(&node), None, None]);
        self.identity.act(caller, None, CHANGE_NAMES, |_| {
            let number = DecInt::from_fd(&object);
            let flags = AtFlags::SYMLINK_FOLLOW;
            rustix::fs::linkat(&self.proc_fds, number, &directory, name.as_bytes(), flags)
                .map_err(host_error)
        })?;
        let stat = stat_at(directory.as_fd(), name.as_bytes())?;
        let entry = self.entry(&stat, Some((&parent, name.as_bytes()))).0;
        // It has a name again: its descriptor is no longer the only way to it.
        self.release_pin(&node);
        Ok(entry)
    }
}

impl Host {
    /// The node of a directory and a descriptor of it, watched if there is a change sink.
    pub(super) fn directory(&self, id: InodeId) -> Result<(Arc<HostNode>, Arc<OwnedFd>)> {
        let node = self.node(id)?;
        if node.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        let open = self.descriptor(&node)?;
        if let Some(watches) = self.watches.get() {
            watches.add(self, &node, &open);
        }
        Ok((node, open))
    }
}

fn make(
    directory: BorrowedFd<'_>,
    name: &[u8],
    kind: NewKind<'_>,
    mode: Mode,
) -> std::result::Result<(), Errno> {
    let node = |kind, device: u32| rustix::fs::mknodat(directory, name, kind, mode, device.into());
    match kind {
        NewKind::Directory => rustix::fs::mkdirat(directory, name, mode),
        NewKind::Symlink(text) => rustix::fs::symlinkat(text, directory, name),
        NewKind::Regular => node(FileType::RegularFile, 0),
        NewKind::Fifo => node(FileType::Fifo, 0),
        NewKind::Socket => node(FileType::Socket, 0),
        NewKind::CharDevice(device) => node(FileType::CharacterDevice, device),
        NewKind::BlockDevice(device) => node(FileType::BlockDevice, device),
    }
}

fn only_regular(new: &NewNode<'_>) -> Result<()> {
    match new.kind {
        NewKind::Regular => Ok(()),
        _ => Err(Error::Invalid("only a regular file is created and opened in one step")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::testing::{Scratch, root_caller};
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    use uvfs_vfs::{Backend, FileRef};

    #[test]
    fn every_kind_is_made_as_the_host_makes_it() {
        let scratch = Scratch::new();
        let long = vec![b'x'; 255];
        let name = Name::new(&long).unwrap();
        let new = NewNode { kind: NewKind::Regular, mode: 0o666, umask: 0o027 };
        let made = scratch
            .backend
            .creation()
            .unwrap()
            .create(&root_caller(), InodeId::ROOT, name, &new)
            .unwrap();
        assert_eq!((made.attributes.mode, made.attributes.links), (0o640, 1));
        scratch.make(InodeId::ROOT, "pipe", NewKind::Fifo).unwrap();
        scratch.make(InodeId::ROOT, "socket", NewKind::Socket).unwrap();
        scratch.make(InodeId::ROOT, "link", NewKind::Symlink(b"../x \xff")).unwrap();
        let kind = |name| fs::symlink_metadata(scratch.path(name)).unwrap().file_type();
        assert!(kind("pipe").is_fifo() && kind("socket").is_socket() && kind("link").is_symlink());
        let taken = scratch.make(InodeId::ROOT, "pipe", NewKind::Regular);
        assert!(matches!(taken, Err(Error::Exists)));
        match scratch.make(InodeId::ROOT, "device", NewKind::BlockDevice(0x1_0708)) {
            Ok(inode) => assert_eq!(scratch.attributes(inode).unwrap().device, 0x1_0708),
            Err(error) => uvfs_skip::lacking(format_args!("device nodes ({error})")),
        }
    }

    #[test]
    fn create_and_open_succeeds_where_the_mode_forbids_the_open() {
        let scratch = Scratch::new();
        let new = NewNode { kind: NewKind::Regular, mode: 0o000, umask: 0 };
        let name = Name::new(b"f").unwrap();
        let (entry, file) = scratch
            .backend
            .creation()
            .unwrap()
            .create_and_open(&root_caller(), InodeId::ROOT, name, &new, OpenMode::READ_WRITE)
            .unwrap();
        let open = FileRef { inode: entry.inode, file };
        assert_eq!(scratch.backend.data().write(&root_caller(), open, 0, b"x").unwrap(), 1);
        assert_eq!(entry.attributes.mode, 0);
        let again = scratch.backend.creation().unwrap().create_and_open(
            &root_caller(),
            InodeId::ROOT,
            name,
            &new,
            OpenMode::READ,
        );
        assert!(matches!(again, Err(Error::Exists)));
    }

    #[test]
    fn a_file_without_a_name_is_used_and_then_gets_one() {
        let scratch = Scratch::new();
        let new = NewNode { kind: NewKind::Regular, mode: 0o600, umask: 0 };
        let made = scratch.backend.creation().unwrap().create_unnamed(
            &root_caller(),
            InodeId::ROOT,
            &new,
            OpenMode::READ_WRITE,
        );
        let (entry, file) = match made {
            Ok(made) => made,
            Err(error) => {
                return uvfs_skip::lacking(format_args!("files without a name ({error})"));
            }
        };
        let open = FileRef { inode: entry.inode, file };
        scratch.backend.data().write(&root_caller(), open, 0, b"text").unwrap();
        scratch.close_descriptors();
        assert_eq!(scratch.attributes(entry.inode).unwrap().links, 0);
        let name = Name::new(b"named").unwrap();
        let linked = scratch
            .backend
            .creation()
            .unwrap()
            .link(&root_caller(), entry.inode, InodeId::ROOT, name)
            .unwrap();
        assert_eq!((linked.inode, linked.attributes.links), (entry.inode, 1));
        assert_eq!(fs::read(scratch.path("named")).unwrap(), b"text");
        scratch.close_descriptors();
        scratch.backend.open_files().close(open);
        assert_eq!(scratch.attributes(entry.inode).unwrap().size, 4);
        scratch.backend.inodes().forget(entry.inode, 2);
        assert_eq!(scratch.counter("nodes"), 1);
    }

    #[test]
    fn hard_links_are_one_object_and_each_name_reaches_it() {
        let scratch = Scratch::new();
        let folder = scratch.make_directory(InodeId::ROOT, "d").unwrap();
        let file = scratch.make_file(InodeId::ROOT, "a").unwrap();
        let link = |parent, name: &str| {
            let name = Name::new(name.as_bytes()).unwrap();
            scratch.backend.creation().unwrap().link(&root_caller(), file, parent, name)
        };
        assert_eq!(link(folder, "b").unwrap().inode, file);
        assert_eq!(link(InodeId::ROOT, "c").unwrap().attributes.links, 3);
        assert!(matches!(link(InodeId::ROOT, "c"), Err(Error::Exists)));
        for (parent, name, left) in
            [(InodeId::ROOT, "a", 2), (folder, "b", 1), (InodeId::ROOT, "c", 0)]
        {
            scratch.unlink(parent, name).unwrap();
            scratch.close_descriptors();
            assert_eq!(scratch.attributes(file).unwrap().links, left, "after {name}");
        }
        let name = Name::new(b"back").unwrap();
        let refused =
            scratch.backend.creation().unwrap().link(&root_caller(), file, InodeId::ROOT, name);
        assert!(matches!(refused, Err(Error::NotFound)), "the last name is gone");
        let refused =
            scratch.backend.creation().unwrap().link(&root_caller(), folder, InodeId::ROOT, name);
        assert!(matches!(refused, Err(Error::NotPermitted)));
    }

    #[test]
    fn a_symbolic_link_gets_a_second_name_itself() {
        let scratch = Scratch::new();
        fs::write(scratch.path("target"), b"").unwrap();
        let link = scratch.make(InodeId::ROOT, "l", NewKind::Symlink(b"target")).unwrap();
        let name = Name::new(b"m").unwrap();
        let entry = scratch
            .backend
            .creation()
            .unwrap()
            .link(&root_caller(), link, InodeId::ROOT, name)
            .unwrap();
        assert_eq!((entry.inode, entry.attributes.links), (link, 2));
        assert_eq!(fs::metadata(scratch.path("target")).unwrap().nlink(), 1);
    }
}
