//! Mounts: several file systems, and parts of them, under one root.
//!
//! # Boundary
//! A [`Namespace`] says what is mounted where. It has nothing to do with the kernel's mounts: it is
//! seen by who starts at [`Namespace::root_directory`], and by nobody else. Crossing from one file
//! system to another is the walk's business, which asks here; rights are those of each file system. Whoever
//! has the namespace may mount: it is a capability, no caller's id is asked for.
//!
//! # Concurrency
//! N1. The [`Table`] is a value behind one pointer ([`Published`]). A fast walk reads the pointer once
//!     and keeps to that table: it sees a mount, and all that lies in it, or nothing of it. A slow walk,
//!     which may wait for a store, asks the newest table at each crossing.
//! N2. Who is in a mount holds it: a handle, an open file, a slow walk. [`Unmount::Busy`] retires the
//!     mount, which succeeds only if nobody does, before it publishes the table without it; who
//!     finds a retired mount in an old table waits for the lock, and so for the new one.
//! N3. An inode's count of mounts (`is_mounted`) is raised before the table that has the mount is
//!     published, and lowered when nobody sees that table any more. So who walks by a table never
//!     misses a mount of it, whatever happens meanwhile.
//! N4. Old tables are dropped by who replaced them, after the last reader and with no lock held: that
//!     may end a mount, and that may end a file system.
//!
//! # Why
//! As Linux: mounts are keyed by the mount they are in and the directory there, so that a directory that is
//! reached by two bind mounts has a mount in the one and not in the other. Weakness: mounting and
//! unmounting wait for every walk in the process that is under way.

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
use uvfs_concurrent::object::{Hold, Object, Ref};
use uvfs_concurrent::published::Published;

/// A directory of a file system, to be seen in another place. Ends with its last hold and reference.
pub(crate) struct Mount {
    pub(crate) id: u64,
    /// Its root: the file system's, or the source of a bind mount.
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

    /// Nobody is in it. It stays mounted if it was; if not, it goes with this reference.
    fn inactive(last: Ref<Self>) {
        drop(last);
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Mount({}, {:?}, {:?})", self.id, self.vfs, self.root)
    }
}

/// Where a handle is: in which mount of which namespace.
#[derive(Debug, Clone)]
pub(crate) struct Inside {
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) mount: Hold<Mount>,
}

/// Number of a mount in its namespace; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MountId(pub u64);

/// One mount, for reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountInfo {
    /// Its number.
    pub id: MountId,
    /// The mount it is in, and the directory there; `None` for the namespace's root.
    pub on: Option<(MountId, InodeId)>,
    /// Kind of its store.
    pub store: &'static str,
    /// Its root in the store: another one than [`InodeId::ROOT`] if part of a file system is mounted.
    pub root: InodeId,
    /// Handles, open files and walks that are in it now.
    pub users: u64,
}

/// How to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmount {
    /// Only if nobody is in it and nothing is mounted in it; otherwise [`Error::Busy`].
    Busy,
    /// At once, with all that is mounted in it (`MNT_DETACH` of umount2(2)). Who is in it stays there,
    /// and goes on working; each detached mount is on its own, and `..` ends at its root.
    Lazy,
}

/// A root directory, and what is mounted below it.
pub struct Namespace {
    table: Published<Table>,
    root: Ref<Mount>,
    /// The last id given. Held by who replaces the table.
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

    /// The root directory, for `caller`. What is opened from it crosses mounts.
    pub fn root_directory(self: &Arc<Self>, caller: Caller) -> Directory {
        let (vfs, node) = (Vfs::clone(&self.root.vfs), self.root.root.clone());
        let inside = Inside { namespace: self.clone(), mount: self.root_mount() };
        Directory::new(vfs, node, caller).within(inside)
    }

    /// Mounts the root of `vfs` on the directory `mountpoint`, on top of what is mounted there. As
    /// mount(2). Waits for the walks under way.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `mountpoint` is not of this namespace or in a detached mount;
    /// [`Error::NotFound`] if it has been removed; [`Error::Busy`] for the namespace's root;
    /// [`Error::NoSpace`] for a directory that 65535 mounts are on.
    pub fn mount(&self, mountpoint: &Directory, vfs: Arc<Vfs>) -> Result<()> {
        let root = vfs.root().clone();
        self.attach(mountpoint, vfs, root)
    }

    /// Mounts the directory `source`, of this namespace or of any file system, on `mountpoint`; without
    /// what is mounted below it. As `MS_BIND` of mount(2). Waits for the walks under way.
    ///
    /// # Errors
    /// As [`Namespace::mount`].
    pub fn bind(&self, mountpoint: &Directory, source: &Directory) -> Result<()> {
        self.attach(mountpoint, Arc::new(source.vfs().clone()), source.node().clone())
    }

    /// Unmounts the mount that `root` is the root directory of. Takes the handle, which would keep the
    /// mount in use. Waits for the walks under way.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `root` is not the root of a mount that is mounted here;
    /// [`Error::Busy`] as [`Unmount::Busy`] says, and for the namespace's root.
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

    /// What is mounted, the root first, then in the order of mounting.
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
            // On top of what is there already, as Linux does.
            let (parent, at) = match table.covering(inside.mount.id, mountpoint.node().id()) {
                Some(top) => (top.try_clone(), top.root.clone()),
                None => (inside.mount.try_ref(), mountpoint.node().clone()),
            };
            let parent = parent.ok_or(Error::NoMemory)?;
            if parent.id == ROOT_ID && at == self.root.root {
                return Err(Error::Busy);
            }
            let at = Mountpoint::new(at)?;
            // Who takes its name away later than this look sees the mount, and takes that away.
            if at.node().inode.is_unlinked() {
                return Err(Error::NotFound);
            }
            *last_id += 1;
            table.attach(Attachment { mount: Mount::new(*last_id, vfs, root), parent, at });
            self.table.replace(table)
        };
        drop(replaced.wait());
        // Who removed the directory meanwhile looked into the table before this mount was in it.
        self.directory_removed();
        Ok(())
    }

    /// Takes away the mounts that `choose` names, with what is in them.
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

    /// Where `directory` is, if it is in this namespace.
    fn place<'d>(&self, directory: &'d Directory) -> Result<&'d Inside> {
        match directory.inside() {
            Some(inside) if std::ptr::eq(&*inside.namespace, self) => Ok(inside),
            _ => Err(Error::Invalid("the directory is not of this namespace")),
        }
    }

    fn copy(&self) -> Table {
        self.table.read(&epoch::pin()).clone()
    }

    /// The table of this moment.
    #[inline]
    pub(crate) fn table<'g>(&'g self, guard: &'g epoch::Guard) -> &'g Table {
        self.table.read(guard)
    }

    /// The mount that is the root.
    #[inline]
    pub(crate) fn root(&self) -> &Ref<Mount> {
        &self.root
    }

    /// A hold on the mount that is the root; it is never retired.
    pub(crate) fn root_mount(&self) -> Hold<Mount> {
        self.root.try_hold().expect("nobody retires the root mount")
    }

    /// What is mounted on `directory` of `mount`, held.
    pub(crate) fn covering(&self, mount: &Mount, directory: &Node) -> Option<Hold<Mount>> {
        let (covering, ()) = self.held(|table| {
            let covering = table.covering(mount.id, directory.id())?;
            Some((covering, ()))
        })?;
        Some(covering)
    }

    /// The mount that `mount` is mounted in, held, and the directory there.
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
            // Given back with no guard. Then wait until who retired it has published that.
            drop(missed);
            drop(self.changes.lock());
        }
    }

    /// Whether something is mounted on `node`, in whichever mount it is seen.
    pub(crate) fn is_mountpoint(&self, node: &Node) -> bool {
        let on_it =
            |table: &Table| table.attachments().any(|attachment| attachment.at.node() == node);
        node.inode.is_mounted() && on_it(self.table.read(&epoch::pin()))
    }

    /// A directory has lost its name: what is mounted on directories that nobody can name any more is
    /// taken away, as Linux's `detach_mounts` does. Finds those too that were removed past this
    /// namespace.
    pub(crate) fn directory_removed(&self) {
        let removed = |table: &Table| -> Vec<u64> {
            let all = table.attachments();
            let lost = all.filter(|attachment| attachment.at.node().inode.is_unlinked());
            lost.map(|attachment| attachment.mount.id).collect()
        };
        let none = removed(self.table.read(&epoch::pin())).is_empty();
        if !none {
            // `Lazy` asks for nothing, so it cannot be refused.
            let _ = self.detach(|table| Ok(removed(table)));
        }
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Namespace({:?}, {} mounts)", self.root, self.mounts().len())
    }
}
