//! Mounts: several file systems, and parts of them, under one root.
//!
//! # Boundary
//! A [`Namespace`] has the mounts and their places. It is independent of the kernel's mounts: only handles from
//! [`Namespace::root_directory`] see it. The walk crosses from one file system to another by its table. Rights are
//! those of each file system. A namespace is a capability: its holder may mount, without a check of ids.
//!
//! # Concurrency
//! N1. The [`Table`] is a value behind one pointer ([`Published`]). A fast walk reads the pointer once and uses only
//! that table: it sees a mount with all that is in it, or nothing of it. A slow walk may wait for a store, so it reads
//! the newest table at each crossing.
//! N2. A handle, an open file or a slow walk inside a mount holds a reference to it. [`Unmount::Busy`] retires the
//! mount, which succeeds only without such references, and then publishes the table without it. A walk that finds a
//! retired mount in an old table waits for the lock, and so for the new table.
//! N3. An inode's count of mounts (`is_mounted`) is raised before the table with the mount is published, and lowered
//! when no thread sees that table any more. So a walk never misses a mount of its table.
//! N4. The thread that replaces a table drops the old one, after the last reader and with no lock held: that may end a
//! mount and its file system.
//!
//! # Why
//! Like Linux, mounts are keyed by their parent mount and the directory there. A directory reached by two bind mounts
//! can have a mount in one of them only. Weakness: mounting and unmounting wait for every running walk.

mod table;

pub(crate) use table::Table;

use self::table::{Attachment, Mountpoint};
use crate::api::Directory;
use crate::backend::InodeId;
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::lock_order;
use crate::vfs::Vfs;
use std::fmt;
use std::sync::Arc;
use uvfs_concurrent::epoch;
use uvfs_concurrent::hold::HoldWord;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::published::Published;
use uvfs_containers::object::{Hold, Object, Ref};

/// A directory of a file system, visible in another place. Ends with its last hold and reference.
pub(crate) struct Mount {
    pub(crate) id: u64,
    /// Root of the mount: the file system's, or the source of a bind mount.
    pub(crate) root: Node,
    pub(crate) vfs: Arc<Vfs>,
    users: HoldWord,
}

impl Mount {
    fn new(id: u64, vfs: Arc<Vfs>, root: Node) -> Ref<Self> {
        let mount = Hold::new(Self { id, root, vfs, users: HoldWord::new() });
        mount.try_ref().expect("a new object has room for references")
    }
}

impl Object for Mount {
    fn word(&self) -> &HoldWord {
        &self.users
    }

    /// No handle, file or walk is in it. It stays mounted if it was. If not, it ends with this reference.
    fn inactive(last: Ref<Self>) {
        drop(last);
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Mount({}, {:?}, {:?})", self.id, self.vfs, self.root)
    }
}

/// The place of a handle: its mount and namespace.
#[derive(Debug, Clone)]
pub(crate) struct Inside {
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) mount: Hold<Mount>,
}

/// Number of a mount in its namespace, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MountId(pub u64);

/// One mount, for reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountInfo {
    /// Number of the mount.
    pub id: MountId,
    /// The mount it is in, and the directory there; `None` for the namespace's root.
    pub on: Option<(MountId, InodeId)>,
    /// Kind of its store.
    pub store: &'static str,
    /// Root of the mount in the store; not [`InodeId::ROOT`] if part of a file system is mounted.
    pub root: InodeId,
    /// Handles, open files and walks that are in it now.
    pub users: u64,
}

/// How to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmount {
    /// Only if no handle, file or walk is in it, and nothing is mounted in it; otherwise [`Error::Busy`].
    Busy,
    /// At once, with all mounts in it (`MNT_DETACH` of umount2(2)). Handles, files and walks in it stay there and
    /// continue to work. Each detached mount is on its own, and `..` ends at its root.
    Lazy,
}

/// A root directory, and the mounts below it.
pub struct Namespace {
    table: Published<Table>,
    root: Ref<Mount>,
    /// The last id given. Its lock is held by the thread that replaces the table.
    changes: Mutex<u64>,
}

const ROOT_ID: u64 = 1;

impl Namespace {
    /// A namespace with the root of `vfs` as its root, and nothing mounted in it.
    pub fn new(vfs: Arc<Vfs>) -> Arc<Self> {
        let node = vfs.root().clone();
        let root = Mount::new(ROOT_ID, vfs, node);
        let changes = Mutex::new(&lock_order::MOUNTS, ROOT_ID);
        Arc::new(Self { table: Published::new(Table::default()), root, changes })
    }

    /// The root directory, for `caller`. Handles opened from it cross mounts.
    pub fn root_directory(self: &Arc<Self>, caller: Caller) -> Directory {
        let (vfs, node) = (Vfs::clone(&self.root.vfs), self.root.root.clone());
        let inside = Inside { namespace: self.clone(), mount: self.root_mount() };
        Directory::new(vfs, node, caller).within(inside)
    }

    /// Mounts the root of `vfs` on the directory `mountpoint`, on top of earlier mounts there. As mount(2). Waits for
    /// running walks.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `mountpoint` is not of this namespace or in a detached mount;
    /// [`Error::NotFound`] if it has been removed; [`Error::Busy`] for the namespace's root;
    /// [`Error::NoSpace`] for a directory that 65535 mounts are on.
    pub fn mount(&self, mountpoint: &Directory, vfs: Arc<Vfs>) -> Result<()> {
        let root = vfs.root().clone();
        self.attach(mountpoint, vfs, root)
    }

    /// Mounts the directory `source`, of this namespace or of any file system, on `mountpoint`, without the mounts
    /// below it. As `MS_BIND` of mount(2). Waits for running walks.
    ///
    /// # Errors
    /// Those of [`Namespace::mount`].
    pub fn bind(&self, mountpoint: &Directory, source: &Directory) -> Result<()> {
        self.attach(mountpoint, Arc::new(source.vfs().clone()), source.node().clone())
    }

    /// Unmounts the mount with the root directory `root`. Takes the handle, which would keep the mount in use. Waits
    /// for running walks.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `root` is not the root of a mount that is mounted here;
    /// [`Error::Busy`] under the rule of [`Unmount::Busy`], and for the namespace's root.
    pub fn unmount(&self, root: Directory, how: Unmount) -> Result<()> {
        let inside = self.place(&root)?;
        if *root.node() != inside.mount.root {
            return Err(Error::Invalid("not the root directory of a mount"));
        }
        let mount = inside.mount.try_ref().ok_or(Error::NoMemory)?;
        drop(root);
        self.detach(|table| match table.place_of(mount.id) {
            _ if mount.id == ROOT_ID => Err(Error::Busy),
            None => Err(Error::Invalid("not mounted")),
            Some(_) if how == Unmount::Lazy => Ok(vec![mount.id]),
            Some(_) if table.has_inner(mount.id) || !mount.word().retire() => Err(Error::Busy),
            Some(_) => Ok(vec![mount.id]),
        })
    }

    /// All mounts, the root first, then in the order of mounting.
    pub fn mounts(&self) -> Vec<MountInfo> {
        let info = |mount: &Mount, on| MountInfo {
            id: MountId(mount.id),
            on,
            store: mount.vfs.capabilities().store,
            root: mount.root.id(),
            users: mount.users.racy_holds(),
        };
        let guard = epoch::pin();
        let below = self.table.read(&guard).attachments();
        let mut all: Vec<_> = below
            .map(|attachment| {
                let on = (MountId(attachment.parent.id), attachment.at.node().id());
                info(&attachment.mount, Some(on))
            })
            .collect();
        all.push(info(&self.root, None));
        all.sort_by_key(|info| info.id);
        all
    }

    fn attach(&self, mountpoint: &Directory, vfs: Arc<Vfs>, root: Node) -> Result<()> {
        let inside = self.place(mountpoint)?;
        let replaced = {
            let mut last_id = self.changes.lock();
            let mut table = self.copy();
            if inside.mount.id != ROOT_ID && table.place_of(inside.mount.id).is_none() {
                return Err(Error::Invalid("the mountpoint is in a detached mount"));
            }
            // On top of earlier mounts there, as Linux does.
            let (parent, at) = match table.covering(inside.mount.id, mountpoint.node().id()) {
                Some(top) => (top.try_clone(), top.root.clone()),
                None => (inside.mount.try_ref(), mountpoint.node().clone()),
            };
            let parent = parent.ok_or(Error::NoMemory)?;
            if parent.id == ROOT_ID && at == self.root.root {
                return Err(Error::Busy);
            }
            let at = Mountpoint::new(at)?;
            // A thread that removes its name after this check sees the mount, and removes that, too.
            if at.node().inode.is_unlinked() {
                return Err(Error::NotFound);
            }
            *last_id += 1;
            table.attach(Attachment { mount: Mount::new(*last_id, vfs, root), parent, at });
            self.table.replace(table)
        };
        drop(replaced.wait());
        // A thread that removed the directory meanwhile read the table before this mount was in it.
        self.directory_removed();
        Ok(())
    }

    /// Removes the mounts that `choose` returns, with all mounts in them.
    fn detach(&self, choose: impl FnOnce(&Table) -> Result<Vec<u64>>) -> Result<()> {
        let mut gone = Vec::new();
        let replaced = {
            let _changes = self.changes.lock();
            let mut table = self.copy();
            for mount in choose(&table)? {
                table.detach(mount, &mut gone);
            }
            self.table.replace(table)
        };
        drop(replaced.wait());
        Ok(())
    }

    /// The place of `directory`, if it is in this namespace.
    fn place<'d>(&self, directory: &'d Directory) -> Result<&'d Inside> {
        match directory.inside() {
            Some(inside) if std::ptr::eq(&*inside.namespace, self) => Ok(inside),
            _ => Err(Error::Invalid("the directory is not of this namespace")),
        }
    }

    fn copy(&self) -> Table {
        self.table.read(&epoch::pin()).clone()
    }

    /// The present table.
    #[inline]
    pub(crate) fn table<'g>(&'g self, guard: &'g epoch::Guard) -> &'g Table {
        self.table.read(guard)
    }

    /// The root mount.
    #[inline]
    pub(crate) fn root(&self) -> &Ref<Mount> {
        &self.root
    }

    /// A hold on the root mount, which is never retired.
    pub(crate) fn root_mount(&self) -> Hold<Mount> {
        self.root.try_hold().expect("the root mount is never retired")
    }

    /// The mount on `directory` of `mount`, held.
    pub(crate) fn covering(&self, mount: &Mount, directory: &Node) -> Option<Hold<Mount>> {
        let (covering, ()) = self.held(|table| {
            let covering = table.covering(mount.id, directory.id())?;
            Some((covering, ()))
        })?;
        Some(covering)
    }

    /// The parent mount of `mount`, held, and the directory there.
    pub(crate) fn above(&self, mount: &Mount) -> Option<(Hold<Mount>, Node)> {
        self.held(|table| {
            let place = table.place_of(mount.id)?;
            Some((&place.parent, place.at.node().clone()))
        })
    }

    /// A hold on the mount that `find` finds in the newest table.
    fn held<T>(
        &self,
        find: impl for<'t> Fn(&'t Table) -> Option<(&'t Ref<Mount>, T)>,
    ) -> Option<(Hold<Mount>, T)> {
        loop {
            let missed = {
                let guard = epoch::pin();
                let (mount, rest) = find(self.table.read(&guard))?;
                match mount.try_hold() {
                    Some(mount) => return Some((mount, rest)),
                    None => rest,
                }
            };
            // Dropped with no guard. Then wait until the thread that retired it has published that.
            drop(missed);
            drop(self.changes.lock());
        }
    }

    /// Whether a mount is on `node`, in any mount through which it is seen.
    pub(crate) fn is_mountpoint(&self, node: &Node) -> bool {
        let on_it =
            |table: &Table| table.attachments().any(|attachment| attachment.at.node() == node);
        node.inode.is_mounted() && on_it(self.table.read(&epoch::pin()))
    }

    /// A directory has lost its name: removes mounts on directories that no name reaches any more, as Linux's
    /// `detach_mounts` does. Also finds directories that were removed outside this namespace.
    pub(crate) fn directory_removed(&self) {
        let removed = |table: &Table| -> Vec<u64> {
            let all = table.attachments();
            let lost = all.filter(|attachment| attachment.at.node().inode.is_unlinked());
            lost.map(|attachment| attachment.mount.id).collect()
        };
        let none = removed(self.table.read(&epoch::pin())).is_empty();
        if !none {
            // `Lazy` has no conditions, so it cannot be refused.
            let _ = self.detach(|table| Ok(removed(table)));
        }
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Namespace({:?}, {} mounts)", self.root, self.mounts().len())
    }
}
