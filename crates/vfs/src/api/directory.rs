//! Directory handles.

use super::{File, OpenOptions, ResolveMode};
use crate::attributes::{Attributes, FileKind, SetAttributes};
use crate::backend::{Cookie, FileRef, NewKind, NewNode, OpenMode, RenameMode, XattrMode};
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::name::Name;
use crate::ops::Entries;
use crate::permission::Access;
use crate::vfs::Vfs;
use crate::walk::{LastName, Manner, NoName, Symlinks, Walked};
use std::sync::Arc;
use std::time::Duration;

/// A directory, and who uses it. All paths are relative to it.
///
/// Paths are anything that is bytes: `"a/b"`, `b"a/b"`.
#[derive(Debug, Clone)]
pub struct Directory {
    vfs: Arc<Vfs>,
    node: Node,
    caller: Caller,
    mode: ResolveMode,
    umask: u32,
}

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// Where to go on after it.
    pub next: Cookie,
    /// Number of its object (`st_ino`).
    pub number: u64,
    /// Kind of its object.
    pub kind: FileKind,
}

impl Directory {
    pub(crate) fn new(vfs: Arc<Vfs>, node: Node, caller: Caller) -> Self {
        Self { vfs, node, caller, mode: ResolveMode::default(), umask: 0o022 }
    }

    /// The same directory, resolving paths in another manner.
    pub fn with_resolve(mut self, mode: ResolveMode) -> Self {
        self.mode = mode;
        self
    }

    /// The same directory, with another umask (022 at first).
    pub fn with_umask(mut self, umask: u32) -> Self {
        self.umask = umask & 0o777;
        self
    }

    /// The same directory, for another caller.
    pub fn with_caller(mut self, caller: Caller) -> Self {
        self.caller = caller;
        self
    }

    /// The directory's node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Attributes of what `path` leads to, symbolic links followed. stat(2).
    pub fn stat(&self, path: impl AsRef<[u8]>) -> Result<Attributes> {
        self.vfs.stat(self.manner(Symlinks::Follow), &self.node, path.as_ref())
    }

    /// Attributes of what `path` names, a last symbolic link not followed. lstat(2).
    pub fn symlink_stat(&self, path: impl AsRef<[u8]>) -> Result<Attributes> {
        self.vfs.stat(self.manner(Symlinks::KeepLast), &self.node, path.as_ref())
    }

    /// Whether the caller may access it so. access(2).
    pub fn access(&self, path: impl AsRef<[u8]>, wanted: Access) -> Result<()> {
        self.vfs.access(&self.caller, &self.walk(path, Symlinks::Follow)?, wanted)
    }

    /// The text of a symbolic link. readlink(2).
    pub fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.vfs.read_link(&self.walk(path, Symlinks::KeepLast)?)
    }

    /// A handle for a directory below.
    pub fn open_directory(&self, path: impl AsRef<[u8]>) -> Result<Directory> {
        let node = self.walk(path, Symlinks::Follow)?;
        if !node.is_directory() {
            return Err(Error::NotDirectory);
        }
        Ok(Self { node, ..self.clone() })
    }

    /// Opens a file as `options` say. open(2).
    pub fn open(&self, path: impl AsRef<[u8]>, options: OpenOptions) -> Result<File> {
        let symlinks = if options.follows() { Symlinks::Follow } else { Symlinks::KeepLast };
        // Between "not there" and "create it" somebody else may create it: then it is there.
        for _ in 0..16 {
            let (directory, name) = match self.walked(path.as_ref(), symlinks)? {
                Walked::Node(_) if options.exclusive() => return Err(Error::Exists),
                Walked::Node(node) if options.creates() && node.is_directory() => {
                    return Err(Error::IsDirectory);
                }
                Walked::Node(node) => return self.open_node(&node, options),
                Walked::Missing { .. } if !options.creates() => return Err(Error::NotFound),
                Walked::Missing { slash: true, .. } => return Err(Error::IsDirectory),
                Walked::Missing { directory, name, .. } => (directory, name),
            };
            let new = self.new_node(NewKind::Regular, options.permissions());
            let name_ref = Name::new(&name)?;
            let created =
                self.vfs.create_and_open(&self.caller, &directory, name_ref, &new, options.mode());
            match created {
                Ok((_, file)) => {
                    self.vfs.tell_entry(&directory, &name);
                    return Ok(File::new(self.vfs.clone(), file, self.caller.clone()));
                }
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
        let file = self.vfs.create_unnamed(&self.caller, &directory, &new, mode)?;
        Ok(File::new(self.vfs.clone(), file, self.caller.clone()))
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
        let last = self.last_name(path, |_| Error::Exists)?;
        if last.slash && kind != NewKind::Directory {
            return Err(Error::NotFound);
        }
        let new = self.new_node(kind, mode);
        self.vfs.create(&self.caller, &last.directory, Name::new(&last.name)?, &new)?;
        self.vfs.tell_entry(&last.directory, &last.name);
        Ok(())
    }

    /// Gives what `old` names a further name. link(2).
    pub fn link(&self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Result<()> {
        self.link_node(&self.walk(old, Symlinks::KeepLast)?, new)
    }

    /// Gives an open file (perhaps one without a name) a name. linkat(2), AT_EMPTY_PATH.
    pub fn link_file(&self, file: &File, new: impl AsRef<[u8]>) -> Result<()> {
        self.link_node(file.node(), new)
    }

    /// Removes a name that is not a directory's. unlink(2).
    pub fn remove_file(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let last = self.last_name(path, |_| Error::IsDirectory)?;
        if last.slash {
            return Err(Error::NotDirectory);
        }
        let name = Name::new(&last.name)?;
        let victim = self.vfs.unlink_found(&self.caller, &last.directory, name)?;
        self.vfs.tell_entry(&last.directory, &last.name);
        self.vfs.tell_inode(&victim);
        Ok(())
    }

    /// Removes an empty directory. rmdir(2).
    pub fn remove_directory(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let last = self.last_name(path, |end| match end {
            NoName::Dot => Error::Invalid("`.` cannot be removed"),
            NoName::DotDot => Error::NotEmpty,
            NoName::Root => Error::Busy,
        })?;
        self.vfs.remove_directory(&self.caller, &last.directory, Name::new(&last.name)?)?;
        self.vfs.tell_entry(&last.directory, &last.name);
        Ok(())
    }

    /// Moves a name. renameat2(2).
    pub fn rename(
        &self,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
        mode: RenameMode,
    ) -> Result<()> {
        let from = self.last_name(from, |_| Error::Busy)?;
        let to = self.last_name(to, |_| match mode {
            RenameMode::NoReplace => Error::Exists,
            _ => Error::Busy,
        })?;
        if from.slash || to.slash {
            let moved = self.vfs.lookup(&self.caller, &from.directory, Name::new(&from.name)?)?;
            if !moved.found()?.node.is_directory() {
                return Err(Error::NotDirectory);
            }
        }
        let source = (&from.directory, Name::new(&from.name)?);
        let target = (&to.directory, Name::new(&to.name)?);
        let step = self.vfs.rename_found(&self.caller, source, target, mode)?;
        self.vfs.tell_entry(&from.directory, &from.name);
        self.vfs.tell_entry(&to.directory, &to.name);
        self.vfs.tell_inode(&step.moved);
        step.target.iter().for_each(|target| self.vfs.tell_inode(target));
        Ok(())
    }

    /// Changes attributes of what `path` leads to. chmod(2), chown(2), truncate(2), utimensat(2).
    pub fn set_attributes(
        &self,
        path: impl AsRef<[u8]>,
        set: &SetAttributes,
    ) -> Result<Attributes> {
        let node = self.walk(path, Symlinks::Follow)?;
        let attributes = self.vfs.set_attributes(&self.caller, &node, None, set)?;
        self.vfs.tell_inode(&node);
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
        let node = self.walk(path, Symlinks::Follow)?;
        self.vfs.get_xattr(&self.caller, &node, name.as_ref())
    }

    /// Sets an extended attribute. setxattr(2).
    pub fn set_xattr(
        &self,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        let node = self.walk(path, Symlinks::Follow)?;
        self.vfs.set_xattr(&self.caller, &node, name.as_ref(), value.as_ref(), mode)?;
        self.vfs.tell_inode(&node);
        Ok(())
    }

    /// Names of the extended attributes. listxattr(2).
    pub fn list_xattrs(&self, path: impl AsRef<[u8]>) -> Result<Vec<Vec<u8>>> {
        self.vfs.list_xattrs(&self.caller, &self.walk(path, Symlinks::Follow)?)
    }

    /// Removes an extended attribute. removexattr(2).
    pub fn remove_xattr(&self, path: impl AsRef<[u8]>, name: impl AsRef<[u8]>) -> Result<()> {
        let node = self.walk(path, Symlinks::Follow)?;
        self.vfs.remove_xattr(&self.caller, &node, name.as_ref())?;
        self.vfs.tell_inode(&node);
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

    fn open_node(&self, node: &Node, options: OpenOptions) -> Result<File> {
        let file = self.vfs.open(&self.caller, node, options.mode())?;
        if options.mode().truncate {
            self.vfs.tell_inode(node);
        }
        Ok(File::new(self.vfs.clone(), file, self.caller.clone()))
    }

    fn link_node(&self, node: &Node, new: impl AsRef<[u8]>) -> Result<()> {
        let last = self.last_name(new, |_| Error::Exists)?;
        if last.slash {
            return Err(Error::NotFound);
        }
        self.vfs.link(&self.caller, node, &last.directory, Name::new(&last.name)?)?;
        self.vfs.tell_entry(&last.directory, &last.name);
        self.vfs.tell_inode(node);
        Ok(())
    }

    fn new_node<'a>(&self, kind: NewKind<'a>, mode: u32) -> NewNode<'a> {
        NewNode { kind, mode: mode & 0o7777, umask: self.umask }
    }

    fn walk(&self, path: impl AsRef<[u8]>, symlinks: Symlinks) -> Result<Node> {
        match self.walked(path.as_ref(), symlinks)? {
            Walked::Node(node) => Ok(node),
            Walked::Missing { .. } => Err(Error::NotFound),
        }
    }

    fn walked(&self, path: &[u8], symlinks: Symlinks) -> Result<Walked> {
        self.vfs.walk(self.manner(symlinks), &self.node, path)
    }

    /// The last name of `path`, to be made, or what `refused` says where there is none.
    fn last_name(
        &self,
        path: impl AsRef<[u8]>,
        refused: impl Fn(NoName) -> Error,
    ) -> Result<LastName> {
        let manner = self.manner(Symlinks::KeepLast);
        self.vfs.walk_to_name(manner, &self.node, path.as_ref(), refused)
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
