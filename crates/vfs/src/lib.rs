#![forbid(unsafe_code)]
//! The uvfs core: a kernel's file-system caches, for programs.
//!
//! # Boundary
//! Owns the walk, the name cache, inodes, pages and the operations on them. Below it is a
//! [`Backend`]; above it a frontend (`uvfs-fuse`) or a program that uses the in-process API
//! ([`Directory`], [`File`]). Contains no unsafe code, does no I/O of its own, and depends on
//! neither FUSE nor any store.
//!
//! # Reading order
//! [`Backend`] (the seam, with a whole backend as example), [`Vfs`] and [`Directory`] (its use),
//! [`walk`] (paths), [`clean`] (freeing memory by directory). Inside, follow a request through the
//! module `ops`: `open`, then `change`, which keeps cached names true, then `inode`.

pub mod acl;
mod advisory;
mod api;
pub mod attributes;
pub mod backend;
mod background;
mod budget;
pub mod caller;
pub mod clean;
mod config;
mod contract;
pub mod creation;
pub mod error;
mod flight;
mod inode;
mod latency;
pub mod lock_order;
mod mount;
pub mod name;
mod names;
mod observers;
mod ops;
mod page;
mod paths;
pub mod permission;
mod policy;
mod reclaim;
mod statistics;
mod tenants;
mod unwritten;
mod vfs;
pub mod walk;

pub use advisory::{Held, LockKind, LockOwner, LockRange, LockWait, waits_for_lock};
pub use api::{Directory, DirectoryEntry, File, OpenOptions, ResolveMode};
pub use attributes::{Attributes, FileKind, SetAttributes, SetTime, Timestamp, Totals};
pub use backend::{
    AllocateMode, Authority, Backend, Below, Capabilities, ChangeSink, Content, Cookie, Creation,
    Data, Ended, Enforcer, Entry, Export, FileId, FileRef, InodeId, Inodes, Listing, Listings,
    Loss, Losses, Names, NewKind, NewNode, OpenFiles, OpenMode, Opens, PageCaching, ReadRun,
    RenameMode, Reservation, SeekTarget, SyncMode, Untracked, Waits, Watch, WholeContent, WriteRun,
    Writes, XattrMode, Xattrs,
};
pub use budget::MINIMUM_BYTES;
pub use caller::{Caller, Checks, GroupList, GroupReader, Groups, NewOwner, Powers, SetIds};
pub use clean::{
    Amount, CHILDREN_MAX, Clean, CleanProgress, CleanReport, CleanStage, Cleaning, Dirty, Resident,
    ResidentChild, ResidentDirectory, ResidentLevel, Tally,
};
pub use config::{PagePolicy, READ_AHEAD_MAX, TIMEOUT_MAX, Timeouts, VfsConfig};
pub use error::{Error, Result, Retry};
pub use inode::Node;
#[cfg(debug_assertions)]
pub use inode::pass_time;
pub use latency::{Latency, LatencyBucket};
pub use mount::{MountId, MountInfo, Namespace, Unmount};
pub use name::{NAME_MAX, Name, PATH_MAX};
pub use observers::Origin;
pub use ops::{Entries, Found, HANDLE_BYTES, Lookup, OpenFile};
pub use page::Hit;
pub use permission::Access;
pub use policy::{CachePolicy, POLICIES_MAX, USER_POLICIES_MAX};
pub use statistics::{
    BudgetStatistics, CacheStatistics, ListingStatistics, PolicyStatistics, Statistics,
    WalkStatistics,
};
pub use tenants::Tenant;
pub use unwritten::Unwritten;
pub use vfs::Vfs;
pub use walk::{Resolve, Symlinks};
