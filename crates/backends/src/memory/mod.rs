//! A complete file system in memory, bounded, and gone with the process.
//!
//! # Boundary
//! Keeps names, attributes and data of its own objects. Checks no permissions (the core or the
//! kernel does); only does what a change does by itself, such as taking set-id bits away.
//!
//! # Rooms
//! * `budget`: the limits, and the share that each object holds of them.
//! * `pages`: sparse file data. `directory`: names of one directory. `node`: one object.
//! * `table`: all objects by id, with their references. `stripe`: what threads have parts of their own of.
//! * `names`, `data`, `xattrs`: the operations.
//!
//! # Concurrency
//! Operations on names lock the directories they change, and the objects whose links they change (`names` says in
//! which order); only moving a directory to another parent takes a lock for all. Shards of the table, and the lock
//! under which space moves between threads, come last. Lookups, attributes, and reads and writes of different files
//! run in parallel; so do changes of names in different directories, which share no line that is written while there
//! is space enough, but for shards of the table.
//!
//! # Space
//! Every page of 4096 bytes that a file has counts, and so does what is kept about it, at fixed prices
//! that are no less than what it takes: 512 bytes an inode, 448 a name, 640 for each 256 KiB of a file
//! with a page in it, 128 and its own length an extended attribute, a symbolic link's text. A full
//! file system answers ENOSPC; a write that does not fit as a whole is cut short. Removing
//! everything gives back all but the root.
//!
//! # Weakness
//! Memory that was given back may stay with the allocator of the process. The limit is on what is
//! kept, not on what the host has: a limit above the host's memory is an out-of-memory kill waiting.

mod budget;
mod data;
mod directory;
mod names;
mod node;
mod pages;
mod stripe;
mod table;
#[cfg(test)]
mod tests;
mod xattrs;

use budget::{Budget, ENTRY_BYTES, INODE_BYTES};
use data::WriteAt;
use node::{Content, Node, State};
use pages::{PAGE_BYTES, pages_within};
use std::fmt;
use std::sync::Arc;
use table::Table;
use uvfs_concurrent::lock::{Mutex, RwLockReadGuard};
use uvfs_concurrent::padded::Padded;
use uvfs_vfs::creation::Resolved;
use uvfs_vfs::{
    AllocateMode, Attributes, Authority, Backend, Caller, Capabilities, Cookie, Enforcer, Entry,
    Error, FileId, FileRef, InodeId, Listing, Name, NewKind, NewNode, OpenMode, Opens, PageCaching,
    RenameMode, Result, SeekTarget, SetAttributes, SyncMode, Totals, Waits, XattrMode, lock_order,
};

/// The least that [`MemoryConfig::size_bytes`] may be: the root, and one page with its names.
pub const SIZE_BYTES_MIN: u64 = 16 * 1024;

/// When reading moves the access time of an object, in the words of mount(8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccessTimes {
    /// When it is not later than the last change, or a day old.
    #[default]
    Relatime,
    /// As that, and never of a directory.
    Nodiratime,
    /// Never.
    Noatime,
}

/// How a [`MemoryBackend`] is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Most bytes of data and metadata together. Default 1 GiB. Watch `memory_bytes`.
    pub size_bytes: u64,
    /// Most objects. Default 2^20. Watch `memory_inodes`.
    pub inodes_max: u64,
    /// Permission bits of the root. Default 0755.
    pub root_mode: u32,
    /// Owner of the root. Default 0.
    pub root_uid: u32,
    /// Group of the root. Default 0.
    pub root_gid: u32,
    /// When reading moves access times. Default [`AccessTimes::Relatime`].
    pub access_times: AccessTimes,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            size_bytes: 1 << 30,
            inodes_max: 1 << 20,
            root_mode: 0o755,
            root_uid: 0,
            root_gid: 0,
            access_times: AccessTimes::Relatime,
        }
    }
}

/// A file system in memory. See the module.
pub struct MemoryBackend {
    /// Who moves a directory to another parent: [`names`]. Away from the others, which nobody writes.
    moves: Padded<Mutex<()>>,
    table: Table,
    budget: Budget,
    access_times: AccessTimes,
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("MemoryBackend").field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl MemoryBackend {
    /// An empty file system.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `config` has no room for a root and one small file.
    pub fn new(config: MemoryConfig) -> Result<Self> {
        if config.size_bytes < SIZE_BYTES_MIN {
            return Err(Error::Invalid("a memory file system needs at least 16 KiB"));
        }
        if config.inodes_max < 2 {
            return Err(Error::Invalid("a memory file system needs at least 2 inodes"));
        }
        let budget = Budget::new(config.size_bytes, config.inodes_max);
        let table = Table::new();
        let resolved = Resolved {
            mode: config.root_mode & 0o7777,
            uid: config.root_uid,
            gid: config.root_gid,
            access: None,
            default: None,
        };
        let root = InodeId::ROOT;
        let charge = budget.take_inode()?;
        table.insert(Arc::new(Node::new(root, &NewKind::Directory, root, resolved, charge)?), true);
        // The table starts an object with a reference; the root's is given out by `root`.
        drop(table.forget(root, 1));
        let moves = Padded(Mutex::new(&lock_order::MEMORY_MOVES, ()));
        Ok(Self { moves, table, budget, access_times: config.access_times })
    }

    /// `node`, whose state this is, was read.
    fn accessed(&self, node: &Node, state: RwLockReadGuard<'_, State>) {
        let directory = matches!(state.content, Content::Directory(_));
        match self.access_times {
            AccessTimes::Noatime => {}
            AccessTimes::Nodiratime if directory => {}
            AccessTimes::Nodiratime | AccessTimes::Relatime => node.accessed(state),
        }
    }
}

impl Backend for MemoryBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            store: "memory",
            enforcer: Enforcer::Core,
            authority: Authority::Sole,
            waits: Waits::Never,
            opens: Opens::Stateless,
            caching: PageCaching::Store,
            read_only: false,
            atomic_rename: true,
            sparse: true,
            xattrs: true,
            acls: true,
            os_files: false,
            births: true,
        }
    }

    fn root(&self) -> Result<Entry> {
        let root = self.table.refer(InodeId::ROOT);
        Ok(root.ok_or(Error::Corrupt("the memory file system has no root"))?.entry())
    }

    fn lookup(&self, _: &Caller, parent: InodeId, name: Name<'_>) -> Result<Entry> {
        self.lookup_name(parent, name)
    }

    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        let node = self.table.get(file.inode)?;
        let state = node.state.read();
        Ok(node.attributes(&state))
    }

    fn list(&self, directory: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()> {
        self.list_names(directory.inode, from, listing)
    }

    fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.read_data(file.inode, offset, into)
    }

    fn forget(&self, inode: InodeId, references: u64) {
        drop(self.table.forget(inode, references));
    }

    fn set_attributes(
        &self,
        caller: &Caller,
        file: FileRef,
        set: &SetAttributes,
    ) -> Result<Attributes> {
        self.change_attributes(caller, file.inode, set)
    }

    fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        let node = self.table.get(inode)?;
        let state = node.state.read();
        let Content::Symlink(text) = &state.content else {
            return Err(Error::Invalid("not a symbolic link"));
        };
        let text = text.to_vec();
        self.accessed(&node, state);
        Ok(text)
    }

    fn create(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
    ) -> Result<Entry> {
        self.create_named(caller, parent, name, new)
    }

    fn create_unnamed(
        &self,
        caller: &Caller,
        parent: InodeId,
        new: &NewNode<'_>,
        _: OpenMode,
    ) -> Result<(Entry, FileId)> {
        Ok((self.create_without_name(caller, parent, new)?, FileId::NONE))
    }

    fn link(&self, _: &Caller, inode: InodeId, parent: InodeId, name: Name<'_>) -> Result<Entry> {
        self.link_name(inode, parent, name)
    }

    fn unlink(&self, _: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        self.unlink_name(parent, name).map(drop)
    }

    fn remove_directory(&self, _: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        self.remove_directory_name(parent, name).map(drop)
    }

    fn rename(
        &self,
        _: &Caller,
        from: (InodeId, Name<'_>),
        to: (InodeId, Name<'_>),
        mode: RenameMode,
    ) -> Result<()> {
        self.rename_name(from, to, mode).map(drop)
    }

    fn write(&self, caller: &Caller, file: FileRef, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_data(caller, file.inode, WriteAt::Offset(offset), data)
    }

    fn append(&self, caller: &Caller, file: FileRef, data: &[u8]) -> Result<usize> {
        self.write_data(caller, file.inode, WriteAt::End, data)
    }

    fn allocate(&self, file: FileRef, mode: AllocateMode, offset: u64, length: u64) -> Result<()> {
        self.allocate_data(file.inode, mode, offset, length)
    }

    fn seek(&self, file: FileRef, offset: u64, target: SeekTarget) -> Result<u64> {
        self.seek_data(file.inode, offset, target)
    }

    fn copy_range(
        &self,
        from: FileRef,
        from_offset: u64,
        to: FileRef,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        self.copy_data((from, from_offset), (to, to_offset), length)
    }

    /// Nothing to do, truly: memory is as stable as this store gets, and every write is in it when
    /// it returns.
    fn sync(&self, file: FileRef, _: SyncMode) -> Result<()> {
        self.table.get(file.inode).map(drop)
    }

    fn get_xattr(&self, _: &Caller, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        self.xattr(inode, name)
    }

    fn set_xattr(
        &self,
        caller: &Caller,
        inode: InodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.change_xattr(caller, inode, name, value, mode)
    }

    fn list_xattrs(&self, _: &Caller, inode: InodeId) -> Result<Vec<Vec<u8>>> {
        self.xattr_names(inode)
    }

    fn possible_xattrs(&self, inode: InodeId) -> Result<Option<Vec<Vec<u8>>>> {
        self.xattr_names(inode).map(Some)
    }

    fn remove_xattr(&self, _: &Caller, inode: InodeId, name: &[u8]) -> Result<()> {
        self.drop_xattr(inode, name)
    }

    /// Numbers are ids, and never another object's.
    fn by_number(&self, number: u64) -> Result<Entry> {
        Ok(self.table.refer(InodeId(number)).ok_or(Error::Stale)?.entry())
    }

    fn parent_of(&self, directory: InodeId) -> Result<Entry> {
        let parent = self.table.get(directory)?.parent();
        Ok(self.table.refer(parent).ok_or(Error::Stale)?.entry())
    }

    /// Free files are those that both limits have room for. Available blocks are fewer than free ones: a
    /// new file that is as large as they say takes space beside its pages, too.
    fn totals(&self) -> Result<Totals> {
        let free = self.budget.bytes_max().saturating_sub(self.budget.racy_bytes());
        let inodes = self.budget.inodes_max();
        let inodes_free = inodes.saturating_sub(self.budget.racy_inodes());
        Ok(Totals {
            block_size: PAGE_BYTES as u32,
            blocks: self.budget.bytes_max() / PAGE_BYTES,
            blocks_free: free / PAGE_BYTES,
            blocks_available: pages_within(free.saturating_sub(INODE_BYTES + ENTRY_BYTES)),
            files: inodes,
            files_free: inodes_free.min(free / INODE_BYTES),
            name_max: uvfs_vfs::NAME_MAX as u32,
        })
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("memory_bytes", self.budget.racy_bytes()),
            ("memory_bytes_max", self.budget.bytes_max()),
            ("memory_inodes", self.budget.racy_inodes()),
            ("memory_inodes_max", self.budget.inodes_max()),
        ]
    }
}
