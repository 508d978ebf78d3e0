//! The seam: the interface of a store below the caches.
//!
//! # Boundary
//! A [`Backend`] owns objects and their data. It does not cache names, attributes or pages (the core does). It knows
//! its callers only by the [`Caller`](crate::Caller) argument. It never calls upwards, except through the
//! [`ChangeSink`] of [`Watch::watch`].
//!
//! # Concurrency
//! Every method may be called from many threads at once, also for one object, and may block. The core calls with no
//! lock and no guard held. Two calls on one object may be answered in any order. The core orders them where necessary
//! (it discards an answer that another change overtook).
//!
//! # Identity
//! An [`InodeId`] names one object for as long as the core knows it. Every [`Entry`] returned carries *one reference*
//! to its inode; [`Inodes::forget`] returns references. A backend may forget an id without references, but never uses
//! it for another object. A store that reuses its numbers makes ids of number and generation ([`InodeId::of`]).

mod families;
mod layer;
mod runs;
mod timed;
mod types;

pub use families::{
    Creation, Data, Export, Inodes, Names, OpenFiles, Reservation, Untracked, Watch, Xattrs,
};
pub use runs::{ReadRun, WriteRun};
pub(crate) use timed::{StoreTimes, Timed};
pub use types::*;

use crate::attributes::Totals;
use crate::error::Result;
use crate::tenants::Tenant;
use std::fmt;
use std::sync::Arc;

/// The party that checks permissions when the core is asked to enforce them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforcer {
    /// The core, by mode bits and access control lists.
    Core,
    /// The store, which acts as the caller; the core checks as well where it can.
    Store,
}

/// The parties that can change the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authority {
    /// Only this file system: cached entries stay true.
    Sole,
    /// Others too: cached names and attributes expire ([`crate::VfsConfig`]).
    Shared,
}

/// Whether a call into the backend can wait for something slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// Never: frontends may call from a thread that other requests wait for.
    Never,
    /// It may: frontends answer hits on other threads.
    Sometimes,
}

/// Whether the backend tracks open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opens {
    /// No: [`OpenFiles::open`] is never called, every [`FileRef`] is unopened, and an unlinked object
    /// lives until its last reference is forgotten.
    Stateless,
    /// Yes.
    Tracked,
}

/// Where file data is cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageCaching {
    /// In the core's page cache: the store is slower than memory.
    Core,
    /// Not in the core: the store already keeps it in memory (a RAM file system, a host directory).
    Store,
}

/// How a store accepts writes to a file. The core refuses other writes with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// Any bytes, in any order.
    Anywhere,
    /// Bytes at the end, one write after the other ([`Data::write`] at the end of the file, or [`Data::append`]),
    /// before the call that writes them returns. A write elsewhere is [`Error::Unsupported`](crate::Error::Unsupported)
    /// (EOPNOTSUPP).
    Append,
    /// The whole content at once ([`Data::replace`]), at `fsync`, `syncfs` and when the file is closed. Until then it
    /// is in the caches; more than they can hold is [`Error::NoSpace`](crate::Error::NoSpace) (ENOSPC). Opens must be
    /// tracked.
    WholeFile,
}

/// The source of directory listings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listings {
    /// The store, each time.
    Asked,
    /// The core keeps whole listings, in the budget, and answers from them for as long as they are valid. Positions
    /// ([`Cookie`]) of the store stay below 2⁶². Where others change the store, an expired listing stays valid for its
    /// period once more, while it is renewed in the background.
    Kept,
}

/// Properties of a backend; read once, at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Name of the kind of store, for reports: `memory`, `directory`, ...
    pub store: &'static str,
    /// The party that checks permissions.
    pub enforcer: Enforcer,
    /// The parties that can change the store.
    pub authority: Authority,
    /// Whether calls can be slow.
    pub waits: Waits,
    /// Whether opens are tracked.
    pub opens: Opens,
    /// Where pages are cached.
    pub caching: PageCaching,
    /// Written data is best brought to the store later ([`crate::PagePolicy::Auto`] then writes back), by
    /// [`Data::write_back`], which takes the time of the change. Opens must not be tracked.
    pub writes_back: bool,
    /// Nothing can be changed.
    pub read_only: bool,
    /// POSIX access control lists exist, as `system.posix_acl_*` attributes.
    pub acls: bool,
    /// [`OpenFiles::os_file`] can return host files for the kernel to read and write directly.
    pub os_files: bool,
    /// Those files may be on a file system that is stacked on another one (overlay, FUSE). The kernel counts the levels
    /// and allows two.
    pub os_stacked: bool,
    /// An object's time of birth never changes, and distinguishes it from later objects with its number. Then handles
    /// of objects outlive their cache entries.
    pub births: bool,
    /// Runs of pages that the store can use at once for one thread. Above 1 it is called by [`Data::read_run`] and
    /// [`Data::write_run`], which it answers later and in any order.
    pub queue_depth: usize,
    /// How it accepts writes. Other than [`Writes::Anywhere`], the core caches its files, whatever `caching` and the
    /// settings are.
    pub writes: Writes,
    /// The source of directory listings.
    pub listings: Listings,
}

impl Capabilities {
    /// A store that is only read, by this file system alone, and slower than memory.
    pub fn read_only(store: &'static str) -> Self {
        Self {
            store,
            enforcer: Enforcer::Core,
            authority: Authority::Sole,
            waits: Waits::Sometimes,
            opens: Opens::Stateless,
            caching: PageCaching::Core,
            writes_back: false,
            read_only: true,
            acls: false,
            os_files: false,
            os_stacked: false,
            births: false,
            queue_depth: 1,
            writes: Writes::Anywhere,
            listings: Listings::Asked,
        }
    }

    /// A store that can be written to; otherwise like [`Capabilities::read_only`]. Methods that it does not implement
    /// return [`Error::Unsupported`](crate::Error::Unsupported).
    pub fn read_write(store: &'static str) -> Self {
        Self { read_only: false, ..Self::read_only(store) }
    }
}

/// A store of objects. See the module for identity and concurrency.
///
/// A store implements *families* of methods, each where its code is: [`Names`], [`Inodes`] and [`Data`] always,
/// [`Creation`], [`Reservation`], [`OpenFiles`], [`Xattrs`], [`Export`] and [`Watch`] if it has them. Four methods of
/// the first three are required. The others return [`Error::Unsupported`](crate::Error::Unsupported) (EOPNOTSUPP). For
/// a store with read-only [`Capabilities`], the core returns [`Error::ReadOnly`](crate::Error::ReadOnly).
///
/// This store serves the files of a table. The example `key_value` of `uvfs-fuse` is a writable one, and mounts it:
///
/// ```
/// use uvfs_vfs::{Attributes, Backend, Caller, Capabilities, Cookie, Data, Entry, Error, FileKind,
///     FileRef, InodeId, Inodes, Listing, Name, Names, Result, Vfs, VfsConfig};
///
/// struct Table(Vec<(&'static str, &'static str)>);
///
/// impl Table {
///     fn attributes_of(&self, inode: InodeId) -> Result<Attributes> {
///         if inode == InodeId::ROOT {
///             return Ok(Attributes::new(1, FileKind::Directory, 0o755));
///         }
///         let (_, text) = self.0.get(inode.0 as usize - 2).ok_or(Error::NotFound)?;
///         let mut attributes = Attributes::new(inode.0, FileKind::Regular, 0o444);
///         attributes.size = text.len() as u64;
///         Ok(attributes)
///     }
///     fn entry(&self, inode: InodeId) -> Result<Entry> {
///         Ok(Entry { inode, attributes: self.attributes_of(inode)? })
///     }
/// }
///
/// impl Backend for Table {
///     fn capabilities(&self) -> Capabilities {
///         Capabilities::read_only("table")
///     }
///     fn root(&self) -> Result<Entry> {
///         self.entry(InodeId::ROOT)
///     }
///     fn names(&self) -> &dyn Names { self }
///     fn inodes(&self) -> &dyn Inodes { self }
///     fn data(&self) -> &dyn Data { self }
/// }
///
/// impl Inodes for Table {
///     fn attributes(&self, file: FileRef) -> Result<Attributes> {
///         self.attributes_of(file.inode)
///     }
/// }
///
/// impl Names for Table {
///     fn lookup(&self, _: &Caller, _: InodeId, name: Name<'_>) -> Result<Entry> {
///         let at = self.0.iter().position(|(file, _)| file.as_bytes() == name.as_bytes());
///         self.entry(InodeId(at.ok_or(Error::NotFound)? as u64 + 2))
///     }
///     fn list(&self, _: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()> {
///         for at in from.0 as usize..self.0.len() {
///             let entry = self.entry(InodeId(at as u64 + 2))?;
///             let name = Name::new(self.0[at].0.as_bytes())?;
///             if !listing.add_entry(name, Cookie(at as u64 + 1), entry) {
///                 break;
///             }
///         }
///         Ok(())
///     }
/// }
///
/// impl Data for Table {
///     fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
///         let text = self.0[file.inode.0 as usize - 2].1.as_bytes();
///         let rest = text.get(offset as usize..).unwrap_or(&[]);
///         let count = rest.len().min(into.len());
///         into[..count].copy_from_slice(&rest[..count]);
///         Ok(count)
///     }
/// }
///
/// // Walk it in process, with no kernel in the loop. (To mount it: `uvfs_fuse::Mount::start`.)
/// let vfs = Vfs::new(Table(vec![("motto", "no lock on a hit")]), VfsConfig::default())?;
/// let root = vfs.root_directory(Caller::root());
/// assert_eq!(root.stat("motto")?.size, 16);
/// assert_eq!(root.read_file("motto")?, b"no lock on a hit");
/// assert!(matches!(root.stat("missing"), Err(Error::NotFound)));
/// # Ok::<(), Error>(())
/// ```
///
/// Errors: each method returns the most exact [`Error`](crate::Error) it can; those named in its description are
/// part of the contract. Names are single components, never `.`, `..` or empty.
pub trait Backend: Send + Sync + 'static {
    /// The properties of this backend. Constant for its life.
    fn capabilities(&self) -> Capabilities;

    /// The root directory, [`InodeId::ROOT`].
    fn root(&self) -> Result<Entry>;

    /// Names and directories.
    fn names(&self) -> &dyn Names;

    /// New objects, if the store can make any.
    fn creation(&self) -> Option<&dyn Creation> {
        None
    }

    /// Objects and their attributes.
    fn inodes(&self) -> &dyn Inodes;

    /// The bytes of files.
    fn data(&self) -> &dyn Data;

    /// Reservations for later writes, if the store supports them. Otherwise it may refuse data whose `write` has
    /// already returned.
    fn reservation(&self) -> Option<&dyn Reservation> {
        None
    }

    /// Open files, if the store tracks them ([`Opens::Tracked`]).
    fn open_files(&self) -> &dyn OpenFiles {
        &Untracked
    }

    /// Extended attributes, if there are any.
    fn xattrs(&self) -> Option<&dyn Xattrs> {
        None
    }

    /// Objects by number, if the store has an index of them. Otherwise they are found again by name only.
    fn export(&self) -> Option<&dyn Export> {
        None
    }

    /// News of changes by others, if the store has it.
    fn watching(&self) -> Option<&dyn Watch> {
        None
    }

    /// Gives the store a sink for names with a new meaning that it finds during another operation: a rename is refused
    /// because others have replaced its target. Called once, before all other calls.
    fn report_to(&self, changes: Arc<dyn ChangeSink>) {
        drop(changes);
    }

    /// Returns when everything that the store has received is stable: the place for a group commit and for its errors
    /// (`sync_fs` of Linux's `super_operations`; syncfs(2)). Every dirty page was written before. Also called for fsync(2)
    /// of one file, unless the store has [`Data::sync`]; then the pages of that file were written before.
    ///
    /// The default is right for a store that is read only, whose writes are stable when they return, or that ends with
    /// the process. Every other store overrides it: a program takes its success for a promise.
    fn sync_fs(&self) -> Result<()> {
        Ok(())
    }

    /// The file system ends: pages were written as far as possible, and later calls only return references. An error is
    /// reported as a possible loss. Called at least once, in time, and again if a user of the file system outlives its
    /// end.
    fn end(&self) -> Result<()> {
        self.sync_fs()
    }

    /// The failure after which the store takes no changes any more.
    fn ended(&self) -> Option<Ended> {
        None
    }

    /// The changes that the store took and lost. Called after [`Backend::end`] has failed, and may take as long. `None` if the
    /// store does not know.
    fn losses(&self) -> Option<Losses> {
        None
    }

    /// Totals of the store.
    fn totals(&self) -> Result<Totals> {
        Ok(Totals {
            block_size: 4096,
            blocks: 0,
            blocks_free: 0,
            blocks_available: 0,
            files: 0,
            files_free: 0,
            name_max: 255,
        })
    }

    /// The store's tenant of the budget, if it has tables that grow with its cached objects. Read once.
    fn tenant(&self) -> Option<Arc<dyn Tenant>> {
        None
    }

    /// Counters of the backend, for reports: (name, value).
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

impl fmt::Debug for dyn Backend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Backend({})", self.capabilities().store)
    }
}
