//! A complete file system in memory, bounded, and gone with the process.
//!
//! # Boundary
//! Keeps names, attributes and data of its own objects. Checks no permissions (the core or the kernel does); performs
//! only the side effects of a change, such as clearing set-id bits.
//!
//! # Concurrency
//! Operations on names lock the directories that they change, and the objects whose links they change (`names` has the
//! order); only the move of a directory to another parent takes a lock of the whole store. Shards of the table, and the
//! lock under which space moves between threads (`budget`), come last. Lookups, attributes, and reads and writes of
//! different files run in parallel. So do changes of names in different directories: while there is enough space they
//! share no written line except shards of the table.
//!
//! # Space
//! Every page of 4096 bytes in a file counts. Metadata counts at fixed prices that are at least its size: 512 bytes an
//! inode, 448 a name, 640 for each 256 KiB of a file with a page in it, 128 and its own length an extended attribute, a
//! symbolic link's text. A full file system answers ENOSPC; a write that does not fit as a whole is cut short. After
//! all objects are removed only the root's cost is used.
//!
//! # Weakness
//! Freed memory may stay with the allocator of the process. The limit is on the stored bytes, not on the host's memory:
//! with a limit above that, the process may be killed for lack of memory.

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

use crate::lock_order;
use budget::{Budget, ENTRY_BYTES, INODE_BYTES};
use node::{Content, Node, State};
use pages::{PAGE_BYTES, pages_within};
use std::fmt;
use std::sync::Arc;
use table::Table;
use uvfs_concurrent::lock::{Mutex, RwLockReadGuard};
use uvfs_concurrent::padded::Padded;
use uvfs_vfs::creation::Resolved;
use uvfs_vfs::{
    Authority, Backend, Capabilities, Creation, Data, Enforcer, Entry, Error, Export, InodeId,
    Inodes, Listings, Names, NewKind, Opens, PageCaching, Reservation, Result, Totals, Waits,
    Writes, Xattrs,
};

/// The least that [`MemoryConfig::size_bytes`] may be: the root, and one page with its names.
pub const SIZE_BYTES_MIN: u64 = 16 * 1024;

/// When reading moves the access time of an object, in the words of mount(8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccessTimes {
    /// When it is not later than the last change, or a day old.
    #[default]
    Relatime,
    /// When `Relatime` moves it, and never of a directory.
    Nodiratime,
    /// Never.
    Noatime,
}

/// Options of a [`MemoryBackend`].
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
    /// Held to move a directory to another parent: [`names`]. On its own line, apart from fields that are only read.
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
            writes_back: false,
            read_only: false,
            acls: true,
            os_files: false,
            os_stacked: false,
            births: true,
            queue_depth: 1,
            writes: Writes::Anywhere,
            // They are in memory here.
            listings: Listings::Asked,
        }
    }

    fn root(&self) -> Result<Entry> {
        let root = self.table.refer(InodeId::ROOT);
        Ok(root.ok_or(Error::Corrupt("the memory file system has no root"))?.entry())
    }

    /// Free files are those that both limits have room for. Available blocks are fewer than free ones: a new file of
    /// that size takes space beside its pages, too.
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

    fn names(&self) -> &dyn Names {
        self
    }

    fn creation(&self) -> Option<&dyn Creation> {
        Some(self)
    }

    fn inodes(&self) -> &dyn Inodes {
        self
    }

    fn data(&self) -> &dyn Data {
        self
    }

    fn export(&self) -> Option<&dyn Export> {
        Some(self)
    }

    fn reservation(&self) -> Option<&dyn Reservation> {
        Some(self)
    }

    fn xattrs(&self) -> Option<&dyn Xattrs> {
        Some(self)
    }
}

impl Export for MemoryBackend {
    /// Numbers are ids, and never another object's.
    fn by_number(&self, number: u64) -> Result<Entry> {
        Ok(self.table.refer(InodeId(number)).ok_or(Error::Stale)?.entry())
    }

    fn parent_of(&self, directory: InodeId) -> Result<Entry> {
        let parent = self.table.get(directory)?.parent();
        Ok(self.table.refer(parent).ok_or(Error::Stale)?.entry())
    }
}
