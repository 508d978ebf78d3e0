//! One object: its attributes, its content, and its charge on the budget.
//!
//! # Boundary
//! A [`Node`] knows only itself. [`super::table`] counts names and references, and [`super::names`] changes them.
//!
//! # Concurrency
//! All mutable fields are in [`State`], behind the node's own lock, except a directory's parent. [`super::names`]
//! defines which nodes may be locked together, and the order; a lock's class shows whether it is a directory's.

use super::budget::{Charge, INODE_BYTES, XATTR_BYTES};
use super::directory::Directory;
use super::pages::{PAGE_BYTES, Pages};
use crate::lock_order;
use std::collections::BTreeMap;
use uvfs_concurrent::lock::{RwLock, RwLockReadGuard};
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_vfs::acl::Acl;
use uvfs_vfs::creation::Resolved;
use uvfs_vfs::permission;
use uvfs_vfs::{Attributes, Caller, Entry, Error, FileKind, InodeId, NewKind, Result, Timestamp};

/// Most names of one object, and most subdirectories of one directory plus two.
pub(super) const LINKS_MAX: u32 = u32::MAX - 1;
/// Size that a directory shows for each entry, `.` and `..` included.
const ENTRY_SHOWN_BYTES: u64 = 20;
/// An access time is brought up to date at least this often.
const ACCESS_TIME_SECONDS: i64 = 24 * 60 * 60;
/// The extended attribute with the rights of a program, which any change of the program ends.
const CAPABILITY_XATTR: &[u8] = b"security.capability";

/// One object.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) inode: InodeId,
    pub(super) kind: FileKind,
    pub(super) created: Timestamp,
    /// The directory that this directory is in; of other objects, that it was made in.
    parent: AtomicU64,
    pub(super) state: RwLock<State>,
}

/// The mutable fields of an object.
#[derive(Debug)]
pub(super) struct State {
    /// First, so that it is dropped first: the space of a removed object is free before its pages' memory is, which
    /// takes some milliseconds for each 100 MiB.
    pub(super) charge: Charge,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) links: u32,
    /// Created without a name, and never had one: the only object without names that may get one.
    pub(super) unnamed: bool,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) access: Option<Acl>,
    pub(super) default: Option<Acl>,
    pub(super) content: Content,
}

/// The content of an object, by kind.
#[derive(Debug)]
pub(super) enum Content {
    File(File),
    Directory(Directory),
    Symlink(Box<[u8]>),
    /// A pipe, socket or device: just its device number.
    Special(u32),
}

/// The data of a regular file.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) size: u64,
    pub(super) pages: Pages,
}

impl Node {
    /// A new object with one name (a directory: with itself and its `..` counted), paid from
    /// `charge`.
    pub(super) fn new(
        inode: InodeId,
        kind: &NewKind<'_>,
        parent: InodeId,
        resolved: Resolved,
        mut charge: Charge,
    ) -> Result<Self> {
        let content = match *kind {
            NewKind::Regular => Content::File(File::default()),
            NewKind::Directory => Content::Directory(Directory::default()),
            NewKind::Symlink(text) => {
                charge.grow(text.len() as u64)?;
                Content::Symlink(text.into())
            }
            NewKind::Fifo | NewKind::Socket => Content::Special(0),
            NewKind::CharDevice(device) | NewKind::BlockDevice(device) => Content::Special(device),
        };
        charge.grow(acl_cost(resolved.access.as_ref()) + acl_cost(resolved.default.as_ref()))?;
        let kind = kind.kind();
        let now = Timestamp::now();
        let state = State {
            mode: resolved.mode,
            uid: resolved.uid,
            gid: resolved.gid,
            links: if kind == FileKind::Directory { 2 } else { 1 },
            unnamed: false,
            atime: now,
            mtime: now,
            ctime: now,
            xattrs: BTreeMap::new(),
            access: resolved.access,
            default: resolved.default,
            content,
            charge,
        };
        let class = match kind {
            FileKind::Directory => &lock_order::MEMORY_DIRECTORY,
            _ => &lock_order::MEMORY_NODE,
        };
        let parent = AtomicU64::new(parent.0);
        Ok(Self { inode, kind, created: now, parent, state: RwLock::new(class, state) })
    }

    /// Whether names can be in it.
    pub(super) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// The parent of this directory; it is stable while no thread moves directories (N4 of [`super::names`]).
    pub(super) fn parent(&self) -> InodeId {
        // ORDERING: Relaxed; the lock for moves orders it.
        InodeId(self.parent.load(Relaxed))
    }

    /// Records this directory's new parent. The caller holds the lock of moves.
    pub(super) fn set_parent(&self, parent: InodeId) {
        // ORDERING: Relaxed; the reason is in `parent`.
        self.parent.store(parent.0, Relaxed);
    }

    /// An entry for this object. The caller has counted the reference.
    pub(super) fn entry(&self) -> Entry {
        Entry { inode: self.inode, attributes: self.attributes(&self.state.read()) }
    }

    /// The attributes in `state`, which is this node's.
    pub(super) fn attributes(&self, state: &State) -> Attributes {
        let (size, blocks, device) = match &state.content {
            Content::File(file) => (file.size, file.pages.count() * (PAGE_BYTES / 512), 0),
            Content::Directory(directory) => {
                ((directory.len() as u64 + 2) * ENTRY_SHOWN_BYTES, 0, 0)
            }
            Content::Symlink(text) => (text.len() as u64, 0, 0),
            Content::Special(device) => (0, 0, *device),
        };
        Attributes {
            number: self.inode.0,
            kind: self.kind,
            mode: state.mode,
            links: state.links,
            uid: state.uid,
            gid: state.gid,
            device,
            size,
            blocks,
            block_size: PAGE_BYTES as u32,
            atime: state.atime,
            mtime: state.mtime,
            ctime: state.ctime,
            btime: Some(self.created),
            version: 0,
        }
    }

    /// Marks the object as read, if its access time is old; `state` is this node's.
    pub(super) fn accessed(&self, state: RwLockReadGuard<'_, State>) {
        let now = Timestamp::now();
        if access_time_is_old(&state, now) {
            drop(state);
            self.state.write().atime = now;
        }
    }

    /// Ends the privileges that a change of the content by `caller` ends. `state` is this node's.
    pub(super) fn drop_privileges(&self, caller: &Caller, state: &mut State) {
        if state.mode & 0o6000 != 0 {
            state.mode = permission::set_ids_after_write(caller, &self.attributes(state));
        }
        state.drop_capabilities();
    }
}

impl State {
    pub(super) fn file(&self) -> Result<&File> {
        match &self.content {
            Content::File(file) => Ok(file),
            Content::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    /// The file, and the charge that its pages are paid from.
    pub(super) fn file_mut(&mut self) -> Result<(&mut File, &mut Charge)> {
        match &mut self.content {
            Content::File(file) => Ok((file, &mut self.charge)),
            Content::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    pub(super) fn directory(&self) -> Result<&Directory> {
        match &self.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    pub(super) fn directory_mut(&mut self) -> Result<&mut Directory> {
        match &mut self.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    /// Marks the content, and with it the attributes, as changed at `now`.
    pub(super) fn modified(&mut self, now: Timestamp) {
        (self.mtime, self.ctime) = (now, now);
    }

    /// Ends the rights that a program has by its extended attribute.
    pub(super) fn drop_capabilities(&mut self) {
        if self.xattrs.is_empty() {
            return;
        }
        if let Some(value) = self.xattrs.remove(CAPABILITY_XATTR) {
            self.charge.shrink(xattr_cost(CAPABILITY_XATTR, &value));
        }
    }
}

/// The cost of an extended attribute.
pub(super) fn xattr_cost(name: &[u8], value: &[u8]) -> u64 {
    XATTR_BYTES + (name.len() + value.len()) as u64
}

/// The cost of an access control list.
pub(super) fn acl_cost(acl: Option<&Acl>) -> u64 {
    acl.map_or(0, |acl| XATTR_BYTES + size_of_val(acl.entries()) as u64)
}

/// Older than the last change, or a day: as `relatime` mounts do, so that reading rarely writes.
fn access_time_is_old(state: &State, now: Timestamp) -> bool {
    state.atime <= state.mtime
        || state.atime <= state.ctime
        || now.seconds - state.atime.seconds >= ACCESS_TIME_SECONDS
}

// The node itself, its counts in an `Arc`, and a slot of the node table at its emptiest.
const _: () = assert!(size_of::<Node>() as u64 + 16 + 64 <= INODE_BYTES);

#[cfg(test)]
mod tests {
    use super::super::budget::Budget;
    use super::*;

    fn file(mode: u32) -> Node {
        let charge = Budget::new(1 << 20, 1).take_inode().unwrap();
        let resolved = Resolved { mode, uid: 1, gid: 2, access: None, default: None };
        Node::new(InodeId(7), &NewKind::Regular, InodeId::ROOT, resolved, charge).unwrap()
    }

    #[test]
    fn reading_moves_the_access_time_only_past_a_change_or_a_day() {
        let node = file(0o644);
        let old = Timestamp { seconds: 1, nanoseconds: 0 };
        let recent = Timestamp { seconds: Timestamp::now().seconds - 60, nanoseconds: 0 };
        let set = |atime, change| {
            let mut state = node.state.write();
            (state.atime, state.mtime, state.ctime) = (atime, change, change);
        };
        let moved = || {
            let before = node.state.read().atime;
            node.accessed(node.state.read());
            node.state.read().atime != before
        };
        set(recent, recent);
        assert!(moved());
        assert!(!moved());
        set(old, Timestamp::default());
        assert!(moved());
    }

    #[test]
    fn a_change_of_content_ends_privileges() {
        let node = file(0o6755);
        let mut state = node.state.write();
        state.charge.grow(xattr_cost(CAPABILITY_XATTR, b"all")).unwrap();
        state.xattrs.insert(CAPABILITY_XATTR.to_vec(), b"all".to_vec());
        node.drop_privileges(&Caller::root(), &mut state);
        assert_eq!(state.mode, 0o6755);
        assert!(state.xattrs.is_empty());
        node.drop_privileges(&Caller::new(1, 2, &[]), &mut state);
        assert_eq!(state.mode, 0o755);
    }
}
