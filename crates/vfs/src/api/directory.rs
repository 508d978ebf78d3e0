//! Directory handles.

use super::{File, OpenOptions, ResolveMode};
use crate::attributes::{Attributes, FileKind, SetAttributes};
use crate::backend::{Cookie, FileRef, NewKind, NewNode, OpenMode, RenameMode, XattrMode};
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::mount::Inside;
use crate::name::Name;
use crate::ops::{Entries, Lookup, OpenFile};
use crate::permission::Access;
use crate::vfs::Vfs;
use crate::walk::{LastName, Manner, MountedNode, NoName, Start, Symlinks, Walked};
use std::time::Duration;

/// A directory and its caller. All paths are relative to it.
///
/// A handle from a [`crate::Namespace`] has a mount: its paths cross mounts, and it keeps its mount
/// in use.
///
/// Paths are anything that is bytes: `"a/b"`, `b"a/b"`.
#[derive(Debug, Clone)]
pub struct Directory {
    vfs: Vfs,
    node: Node,
    /// `None`: in no namespace.
    inside: Option<Inside>,
    caller: Caller,
    mode: ResolveMode,
    umask: u32,
}

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Name of the entry.
    pub name: Vec<u8>,
    /// The position behind it.
    pub next: Cookie,
    /// Number of its object (`st_ino`).
    pub number: u64,
    /// Kind of its object.
    pub kind: FileKind,
}

impl Directory {
    pub(crate) fn new(vfs: Vfs, node: Node, caller: Caller) -> Self {
        Self { vfs, node, inside: None, caller, mode: ResolveMode::default(), umask: 0o022 }
    }

    /// Makes the directory a part of a namespace.
    pub(crate) fn within(self, inside: Inside) -> Self {
        Self { inside: Some(inside), ..self }
    }

    pub(crate) fn inside(&self) -> Option<&Inside> {
        self.inside.as_ref()
    }

    pub(crate) fn vfs(&self) -> &Vfs {
        &self.vfs
    }

    /// Sets the manner in which paths are resolved.
    pub fn with_resolve(mut self, mode: ResolveMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the umask (022 at first).
    pub fn with_umask(mut self, umask: u32) -> Self {
        self.umask = umask & 0o777;
        self
    }

    /// Sets the caller.
    pub fn with_caller(mut self, caller: Caller) -> Self {
        self.caller = caller;
        self
    }

    /// The directory's node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Attributes of the object of `path`, symbolic links followed. stat(2).
    pub fn stat(&self, path: impl AsRef<[u8]>) -> Result<Attributes> {
        self.vfs.stat(self.manner(Symlinks::Follow), self.start(), path.as_ref())
    }

    /// Attributes of the object of `path`, a last symbolic link not followed. lstat(2).
    pub fn symlink_stat(&self, path: impl AsRef<[u8]>) -> Result<Attributes> {
        self.vfs.stat(self.manner(Symlinks::KeepLast), self.start(), path.as_ref())
    }

    /// Whether the caller has the `wanted` access to it. access(2).
    pub fn access(&self, path: impl AsRef<[u8]>, wanted: Access) -> Result<()> {
        let spot = self.walk(path, Symlinks::Follow)?;
        spot.vfs(&self.vfs).access(&self.caller, &spot.node, wanted)
    }

    /// The text of a symbolic link. readlink(2).
    pub fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let spot = self.walk(path, Symlinks::KeepLast)?;
        spot.vfs(&self.vfs).read_link(&spot.node)
    }

    /// A handle for a directory below.
    pub fn open_directory(&self, path: impl AsRef<[u8]>) -> Result<Directory> {
        let spot = self.walk(path, Symlinks::Follow)?;
        if !spot.node.is_directory() {
            return Err(Error::NotDirectory);
        }
        let (vfs, inside) = (spot.vfs(&self.vfs).clone(), self.inside_at(&spot));
        let Self { caller, mode, umask, .. } = self;
        let (caller, mode, umask) = (caller.clone(), *mode, *umask);
        Ok(Self { vfs, node: spot.node, inside, caller, mode, umask })
    }

    /// Opens a file with `options`. open(2).
    pub fn open(&self, path: impl AsRef<[u8]>, options: OpenOptions) -> Result<File> {
        let symlinks = if options.follows() { Symlinks::Follow } else { Symlinks::KeepLast };
        // Another caller may create it between "not found" and our create: then it exists.
        for _ in 0..16 {
            let (directory, name) = match self.walked(path.as_ref(), symlinks)? {
                Walked::Node(_) if options.exclusive() => return Err(Error::Exists),
                Walked::Node(spot) if options.creates() && spot.node.is_directory() => {
                    return Err(Error::IsDirectory);
                }
                Walked::Node(spot) => return self.open_spot(&spot, options),
                Walked::Missing { .. } if !options.creates() => return Err(Error::NotFound),
                Walked::Missing { slash: true, .. } => return Err(Error::IsDirectory),
                Walked::Missing { directory, name, .. } => (directory, name),
            };
            let new = self.new_node(NewKind::Regular, options.permissions());
            let name_ref = Name::new(&name)?;
            let (vfs, mode) = (directory.vfs(&self.vfs), options.mode());
            match vfs.create_and_open(&self.caller, &directory.node, name_ref, &new, mode) {
                Ok((_, file)) => return Ok(self.file(&directory, file)),
                Err(Error::Exists) if !options.exclusive() => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::WouldBlock)
    }

    /// Opens a new file without a name in the directory at `path`. O_TMPFILE.
    pub fn open_unnamed(&self, path: impl AsRef<[u8]>, permissions: u32) -> Result<File> {
        let directory = self.walk(path, Symlinks::Follow)?;
        let new = self.new_node(NewKind::Regular, permissions);
        let mode = OpenMode::READ_WRITE;
        let vfs = directory.vfs(&self.vfs);
        let file = vfs.create_unnamed(&self.caller, &directory.node, &new, mode)?;
        Ok(self.file(&directory, file))
    }

    /// Creates a directory. mkdir(2).
    pub fn create_directory(&self, path: impl AsRef<[u8]>, permissions: u32) -> Result<()> {
        self.create(path, NewKind::Directory, permissions)
    }

    /// Creates a symbolic link to `target`. symlink(2).
    pub fn symlink(&self, target: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<()> {
        self.create(path, NewKind::Symlink(target.as_ref()), 0o777)
    }

    /// Creates an object of any kind. mknod(2), mkdir(2), symlink(2).
    pub fn create(&self, path: impl AsRef<[u8]>, kind: NewKind<'_>, mode: u32) -> Result<()> {
        let last = self.last_name(path.as_ref(), |_| Error::Exists)?;
        if last.slash && kind != NewKind::Directory {
            return Err(Error::NotFound);
        }
        let new = self.new_node(kind, mode);
        let (vfs, directory) = (last.directory.vfs(&self.vfs), &last.directory.node);
        vfs.create(&self.caller, directory, last.name, &new)?;
        Ok(())
    }

    /// Gives the object of `old` a further name. link(2).
    pub fn link(&self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Result<()> {
        let old = self.walk(old, Symlinks::KeepLast)?;
        let last = self.link_target(new.as_ref())?;
        if !self.same_mount(&old, &last.directory) {
            return Err(Error::CrossDevice);
        }
        self.link_node(&old.node, &last)
    }

    /// Gives an open file (perhaps one without a name) a name. linkat(2), AT_EMPTY_PATH.
    pub fn link_file(&self, file: &File, new: impl AsRef<[u8]>) -> Result<()> {
        let last = self.link_target(new.as_ref())?;
        let here = self.inside_at(&last.directory);
        let same_mount = match (file.mount(), &here) {
            (Some(mount), Some(here)) => mount.same(&here.mount),
            (None, None) => true,
            _ => false,
        };
        if !same_mount || !file.vfs().same(last.directory.vfs(&self.vfs)) {
            return Err(Error::CrossDevice);
        }
        self.link_node(file.node(), &last)
    }

    /// Removes a name that is not a directory's. unlink(2).
    pub fn remove_file(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let last = self.last_name(path.as_ref(), |_| Error::IsDirectory)?;
        if last.slash {
            return Err(Error::NotDirectory);
        }
        let (vfs, directory) = (last.directory.vfs(&self.vfs), &last.directory.node);
        let victim = vfs.unlink_found(&self.caller, directory, last.name)?;
        vfs.release(victim);
        Ok(())
    }

    /// Removes an empty directory. rmdir(2).
    pub fn remove_directory(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let last = self.last_name(path.as_ref(), |end| match end {
            NoName::Dot => Error::Invalid("`.` cannot be removed"),
            NoName::DotDot => Error::NotEmpty,
            NoName::Root => Error::Busy,
        })?;
        self.refuse_mountpoint(&last.directory, last.name)?;
        let (vfs, directory) = (last.directory.vfs(&self.vfs), &last.directory.node);
        vfs.remove_directory(&self.caller, directory, last.name)?;
        self.directory_removed();
        Ok(())
    }

    /// Moves a name. renameat2(2).
    pub fn rename(
        &self,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
        mode: RenameMode,
    ) -> Result<()> {
        let from = self.last_name(from.as_ref(), |_| Error::Busy)?;
        let to = self.last_name(to.as_ref(), |_| match mode {
            mode if mode.keeps_target() => Error::Exists,
            _ => Error::Busy,
        })?;
        if !self.same_mount(&from.directory, &to.directory) {
            return Err(Error::CrossDevice);
        }
        let vfs = from.directory.vfs(&self.vfs);
        if from.slash || to.slash {
            let moved = vfs.lookup(&self.caller, &from.directory.node, from.name)?;
            if !moved.found()?.node.is_directory() {
                return Err(Error::NotDirectory);
            }
        }
        let source = (&from.directory.node, from.name);
        let target = (&to.directory.node, to.name);
        self.refuse_mountpoint(&from.directory, source.1)?;
        self.refuse_mountpoint(&to.directory, target.1)?;
        let step = vfs.rename_found(&self.caller, source, target, mode)?;
        if step.target.as_ref().is_some_and(Node::is_directory) {
            self.directory_removed();
        }
        vfs.let_go_replaced(step);
        Ok(())
    }

    /// Changes attributes of the object of `path`. chmod(2), chown(2), truncate(2), utimensat(2).
    pub fn set_attributes(
        &self,
        path: impl AsRef<[u8]>,
        set: &SetAttributes,
    ) -> Result<Attributes> {
        let spot = self.walk(path, Symlinks::Follow)?;
        let vfs = spot.vfs(&self.vfs);
        let attributes = vfs.set_attributes(&self.caller, &spot.node, None, set)?;
        Ok(attributes)
    }

    /// Entries from `from` on, at least one if any is left, without `.` and `..`.
    pub fn list(&self, from: Cookie) -> Result<Vec<DirectoryEntry>> {
        let mode = OpenMode::READ;
        let file = self.vfs.open(&self.caller, &self.node, mode)?;
        self.list_open(file.reference(), from)
    }

    /// All entries.
    pub fn list_all(&self) -> Result<Vec<DirectoryEntry>> {
        let file = self.vfs.open(&self.caller, &self.node, OpenMode::READ)?;
        let mut all: Vec<DirectoryEntry> = Vec::new();
        loop {
            let from = all.last().map_or(Cookie(0), |entry| entry.next);
            let more = self.list_open(file.reference(), from)?;
            if more.is_empty() {
                return Ok(all);
            }
            all.extend(more);
        }
    }

    fn list_open(&self, file: FileRef, from: Cookie) -> Result<Vec<DirectoryEntry>> {
        let mut names = Names(Vec::new());
        self.vfs.list(&self.caller, &self.node, file, from, &mut names)?;
        Ok(names.0)
    }

    /// The value of an extended attribute. getxattr(2).
    pub fn get_xattr(&self, path: impl AsRef<[u8]>, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let spot = self.walk(path, Symlinks::Follow)?;
        spot.vfs(&self.vfs).get_xattr(&self.caller, &spot.node, name.as_ref())
    }

    /// Sets an extended attribute. setxattr(2).
    pub fn set_xattr(
        &self,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        let spot = self.walk(path, Symlinks::Follow)?;
        let vfs = spot.vfs(&self.vfs);
        vfs.set_xattr(&self.caller, &spot.node, name.as_ref(), value.as_ref(), mode)?;
        Ok(())
    }

    /// Names of the extended attributes. listxattr(2).
    pub fn list_xattrs(&self, path: impl AsRef<[u8]>) -> Result<Vec<Vec<u8>>> {
        let spot = self.walk(path, Symlinks::Follow)?;
        spot.vfs(&self.vfs).list_xattrs(&self.caller, &spot.node)
    }

    /// Removes an extended attribute. removexattr(2).
    pub fn remove_xattr(&self, path: impl AsRef<[u8]>, name: impl AsRef<[u8]>) -> Result<()> {
        let spot = self.walk(path, Symlinks::Follow)?;
        let vfs = spot.vfs(&self.vfs);
        vfs.remove_xattr(&self.caller, &spot.node, name.as_ref())?;
        Ok(())
    }

    /// The whole content of a file.
    pub fn read_file(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.open(path, OpenOptions::read())?.read_to_end()
    }

    /// Makes `content` the whole content of a file, creating it if need be.
    pub fn write_file(&self, path: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Result<()> {
        let options = OpenOptions::write().create(0o666).truncate();
        self.open(path, options)?.write_all_at(0, content.as_ref())
    }

    fn open_spot(&self, spot: &MountedNode, options: OpenOptions) -> Result<File> {
        let vfs = spot.vfs(&self.vfs);
        let file = vfs.open(&self.caller, &spot.node, options.mode())?;
        Ok(self.file(spot, file))
    }

    /// A handle for `open`, in the mount of `spot`.
    fn file(&self, spot: &MountedNode, open: OpenFile) -> File {
        let here = self.inside.as_ref();
        let mount = here.map(|inside| spot.mount.as_ref().unwrap_or(&inside.mount).clone());
        File::new(spot.vfs(&self.vfs).clone(), mount, open, self.caller.clone())
    }

    fn inside_at(&self, spot: &MountedNode) -> Option<Inside> {
        let inside = self.inside.as_ref()?;
        let mount = spot.mount.as_ref().unwrap_or(&inside.mount).clone();
        Some(Inside { namespace: inside.namespace.clone(), mount })
    }

    /// Whether both are in one mount. Two mounts of one file system are two.
    fn same_mount(&self, one: &MountedNode, other: &MountedNode) -> bool {
        let Some(inside) = &self.inside else { return true };
        let mount = |spot: &MountedNode| spot.mount.as_ref().unwrap_or(&inside.mount).id;
        mount(one) == mount(other)
    }

    /// Fails with [`Error::Busy`] if a mount is on `name` of `directory`.
    fn refuse_mountpoint(&self, directory: &MountedNode, name: Name<'_>) -> Result<()> {
        let Some(inside) = &self.inside else { return Ok(()) };
        let vfs = directory.vfs(&self.vfs);
        match vfs.lookup(&self.caller, &directory.node, name) {
            Ok(Lookup::Found(found)) if inside.namespace.is_mountpoint(&found.node) => {
                // A caller without the right to change the directory gets that error, and does not
                // learn of the mount.
                vfs.check(&self.caller, &directory.node, Access::WRITE)?;
                Err(Error::Busy)
            }
            // The change itself reports other errors.
            _ => Ok(()),
        }
    }

    fn directory_removed(&self) {
        if let Some(inside) = &self.inside {
            inside.namespace.directory_removed();
        }
    }

    /// The new name of a link.
    fn link_target<'p>(&self, new: &'p [u8]) -> Result<LastName<'p>> {
        let last = self.last_name(new, |_| Error::Exists)?;
        if last.slash { Err(Error::NotFound) } else { Ok(last) }
    }

    fn link_node(&self, node: &Node, last: &LastName<'_>) -> Result<()> {
        let (vfs, directory) = (last.directory.vfs(&self.vfs), &last.directory.node);
        vfs.link(&self.caller, node, directory, last.name)?;
        Ok(())
    }

    fn new_node<'a>(&self, kind: NewKind<'a>, mode: u32) -> NewNode<'a> {
        NewNode { kind, mode: mode & 0o7777, umask: self.umask }
    }

    fn walk(&self, path: impl AsRef<[u8]>, symlinks: Symlinks) -> Result<MountedNode> {
        match self.walked(path.as_ref(), symlinks)? {
            Walked::Node(spot) => Ok(spot),
            Walked::Missing { .. } => Err(Error::NotFound),
        }
    }

    fn walked<'p>(&self, path: &'p [u8], symlinks: Symlinks) -> Result<Walked<'p>> {
        self.vfs.walk(self.manner(symlinks), self.start(), path)
    }

    fn start(&self) -> Start<'_> {
        Start { node: &self.node, inside: self.inside.as_ref() }
    }

    /// The last name of `path`, to be made, or the result of `refused` where there is none.
    fn last_name<'p>(
        &self,
        path: &'p [u8],
        refused: impl Fn(NoName) -> Error,
    ) -> Result<LastName<'p>> {
        let manner = self.manner(Symlinks::KeepLast);
        self.vfs.walk_to_name(manner, self.start(), path, refused)
    }

    fn manner(&self, symlinks: Symlinks) -> Manner<'_> {
        Manner {
            caller: &self.caller,
            resolve: self.mode.resolve,
            symlinks: self.mode.symlinks(symlinks),
        }
    }
}

/// Gathers names.
struct Names(Vec<DirectoryEntry>);

impl Entries for Names {
    fn room(&self) -> usize {
        512usize.saturating_sub(self.0.len())
    }

    fn wants_nodes(&self) -> bool {
        false
    }

    fn name(&mut self, name: Name<'_>, next: Cookie, number: u64, kind: FileKind) -> bool {
        if self.room() == 0 {
            return false;
        }
        self.0.push(DirectoryEntry { name: name.as_bytes().to_vec(), next, number, kind });
        true
    }

    fn node(
        &mut self,
        name: Name<'_>,
        next: Cookie,
        _: Node,
        attributes: &Attributes,
        _: (Duration, Duration),
    ) -> bool {
        self.name(name, next, attributes.number, attributes.kind)
    }
}
