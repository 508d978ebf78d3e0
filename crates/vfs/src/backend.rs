//! The seam: what a store must do to stand below the caches.
//!
//! # Boundary
//! A [`Backend`] owns objects and their data. It does not cache names, attributes or pages (the
//! core does), does not know who called beyond the [`Caller`] it is given, and never calls upwards,
//! except through the [`ChangeSink`] it was handed by [`Backend::watch`].
//!
//! # Concurrency
//! Every method may be called from many threads at once, also for one object, and may block. The
//! core calls with no lock and no guard held. Two calls on one object may be answered in any order;
//! the core orders what must be ordered (it discards an answer that another change overtook).
//!
//! # Identity
//! An [`InodeId`] names one object for as long as the core knows it. Every [`Entry`] returned
//! carries *one reference* to its inode; [`Backend::forget`] gives references back. An id whose
//! references are all gone may be forgotten by the backend, but is never given to another object.
//!
//! # A whole backend
//! Six methods are required. The others say that the store cannot do it ([`Error::Unsupported`],
//! EOPNOTSUPP); [`Error::ReadOnly`] is for stores whose [`Capabilities`] say so, and the core answers it.
//! This one serves the files of a table; the example `key_value` of `uvfs-fuse` is one that is written
//! to, and mounts it:
//!
//! ```
//! use uvfs_vfs::{Attributes, Backend, Caller, Capabilities, Cookie, Entry, Error, FileKind,
//!     FileRef, InodeId, Listing, Name, Result, Vfs, VfsConfig};
//!
//! struct Table(Vec<(&'static str, &'static str)>);
//!
//! impl Table {
//!     fn attributes_of(&self, inode: InodeId) -> Result<Attributes> {
//!         if inode == InodeId::ROOT {
//!             return Ok(Attributes::new(1, FileKind::Directory, 0o755));
//!         }
//!         let (_, text) = self.0.get(inode.0 as usize - 2).ok_or(Error::NotFound)?;
//!         let mut attributes = Attributes::new(inode.0, FileKind::Regular, 0o444);
//!         attributes.size = text.len() as u64;
//!         Ok(attributes)
//!     }
//!     fn entry(&self, inode: InodeId) -> Result<Entry> {
//!         Ok(Entry { inode, attributes: self.attributes_of(inode)? })
//!     }
//! }
//!
//! impl Backend for Table {
//!     fn capabilities(&self) -> Capabilities {
//!         Capabilities::read_only("table")
//!     }
//!     fn root(&self) -> Result<Entry> {
//!         self.entry(InodeId::ROOT)
//!     }
//!     fn lookup(&self, _: &Caller, _: InodeId, name: Name<'_>) -> Result<Entry> {
//!         let at = self.0.iter().position(|(file, _)| file.as_bytes() == name.as_bytes());
//!         self.entry(InodeId(at.ok_or(Error::NotFound)? as u64 + 2))
//!     }
//!     fn attributes(&self, file: FileRef) -> Result<Attributes> {
//!         self.attributes_of(file.inode)
//!     }
//!     fn list(&self, _: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()> {
//!         for at in from.0 as usize..self.0.len() {
//!             let entry = self.entry(InodeId(at as u64 + 2))?;
//!             let name = Name::new(self.0[at].0.as_bytes())?;
//!             if !listing.add_entry(name, Cookie(at as u64 + 1), entry) {
//!                 break;
//!             }
//!         }
//!         Ok(())
//!     }
//!     fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
//!         let text = self.0[file.inode.0 as usize - 2].1.as_bytes();
//!         let rest = text.get(offset as usize..).unwrap_or(&[]);
//!         let count = rest.len().min(into.len());
//!         into[..count].copy_from_slice(&rest[..count]);
//!         Ok(count)
//!     }
//! }
//!
//! // Walk it in process, with no kernel in the loop. (To mount it: `uvfs_fuse::Mount::start`.)
//! let vfs = Vfs::new(Table(vec![("motto", "no lock on a hit")]), VfsConfig::default())?;
//! let root = vfs.root_directory(Caller::root());
//! assert_eq!(root.stat("motto")?.size, 16);
//! assert_eq!(root.read_file("motto")?, b"no lock on a hit");
//! assert!(matches!(root.stat("missing"), Err(Error::NotFound)));
//! # Ok::<(), Error>(())
//! ```

use crate::attributes::{Attributes, FileKind, SetAttributes, Totals};
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::tenants::Tenant;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// An object of a backend. Never reused for another object during one mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InodeId(pub u64);

impl InodeId {
    /// The root directory, in every backend.
    pub const ROOT: Self = Self(1);
}

/// An open file of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

impl FileId {
    /// No open file: the object itself is meant.
    pub const NONE: Self = Self(0);
}

/// An object, and the open file through which it is meant, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileRef {
    /// The object.
    pub inode: InodeId,
    /// The open file, or [`FileId::NONE`].
    pub file: FileId,
}

impl FileRef {
    /// `inode` itself, through no open file.
    pub fn unopened(inode: InodeId) -> Self {
        Self { inode, file: FileId::NONE }
    }
}

/// A directory entry as a backend returns it. Carries one reference to `inode`.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The object.
    pub inode: InodeId,
    /// Its attributes, read no earlier than the call began.
    pub attributes: Attributes,
}

/// A position in a directory. 0 is the start; otherwise only what a listing returned is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cookie(pub u64);

/// Receives the entries of a directory, in batches as large as it likes.
pub trait Listing {
    /// Takes an entry by name, number (`st_ino`) and kind. `next` is where to go on after it.
    /// Returns false when it took *nothing* and wants no more.
    fn add_name(&mut self, name: Name<'_>, next: Cookie, number: u64, kind: FileKind) -> bool;

    /// As [`Listing::add_name`], with attributes. Carries a reference to `entry.inode` if and only
    /// if it returns true: a backend that counts references undoes its count on false.
    fn add_entry(&mut self, name: Name<'_>, next: Cookie, entry: Entry) -> bool;

    /// Whether attributes are wanted. A backend for which they are not free then gives names only.
    fn wants_attributes(&self) -> bool {
        true
    }
}

/// How a file is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenMode {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Every write goes to the end.
    pub append: bool,
    /// Cut to size 0 first.
    pub truncate: bool,
    /// Around the store's own page cache (O_DIRECT).
    pub direct: bool,
    /// Every write is stable when it returns (O_SYNC or O_DSYNC).
    pub sync: bool,
}

impl OpenMode {
    /// Reading only.
    pub const READ: Self = Self {
        read: true,
        write: false,
        append: false,
        truncate: false,
        direct: false,
        sync: false,
    };
    /// Reading and writing.
    pub const READ_WRITE: Self = Self { write: true, ..Self::READ };
}

/// What to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewKind<'a> {
    /// An empty file.
    Regular,
    /// An empty directory.
    Directory,
    /// A symbolic link with this text.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A local socket's name.
    Socket,
    /// A character device node with this `st_rdev`.
    CharDevice(u32),
    /// A block device node with this `st_rdev`.
    BlockDevice(u32),
}

impl NewKind<'_> {
    /// The kind of the object that will exist.
    pub fn kind(&self) -> FileKind {
        match self {
            NewKind::Regular => FileKind::Regular,
            NewKind::Directory => FileKind::Directory,
            NewKind::Symlink(_) => FileKind::Symlink,
            NewKind::Fifo => FileKind::Fifo,
            NewKind::Socket => FileKind::Socket,
            NewKind::CharDevice(_) => FileKind::CharDevice,
            NewKind::BlockDevice(_) => FileKind::BlockDevice,
        }
    }
}

/// An object to create. Owner and group follow from the caller and the parent (setgid), the mode
/// from `mode`, `umask` and the parent's default ACL, which replaces the umask: see
/// [`crate::creation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewNode<'a> {
    /// What.
    pub kind: NewKind<'a>,
    /// Wanted permission bits, before the umask.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
}

/// What a rename does with an existing target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces it, atomically.
    Replace,
    /// Refuses ([`Error::Exists`]).
    NoReplace,
    /// Exchanges the two, atomically; both must exist.
    Exchange,
}

/// What `fallocate(2)` is to do with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocateMode {
    /// Reserve space; extend the size if the range ends beyond it.
    Extend,
    /// Reserve space; leave the size.
    KeepSize,
    /// Make a hole; leave the size.
    PunchHole,
    /// Make zeros; extend the size if the range ends beyond it.
    Zero,
    /// Make zeros; leave the size.
    ZeroKeepSize,
}

/// What `lseek(2)` is to find at or after an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekTarget {
    /// The next data; [`Error::NoData`] when only a hole is left.
    Data,
    /// The next hole; there is one at the end of every file.
    Hole,
}

/// How much must be stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// Data, and what is needed to read it back (`fdatasync`).
    Data,
    /// Data and all attributes (`fsync`).
    All,
}

/// Whether setting an extended attribute may create or replace it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrMode {
    /// Either.
    Any,
    /// Only create ([`Error::Exists`]).
    Create,
    /// Only replace ([`Error::NoAttribute`]).
    Replace,
}

/// Who checks permissions when the core is asked to enforce them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforcer {
    /// The core, by mode bits and access control lists.
    Core,
    /// The store, which acts as the caller; the core checks as well where it can.
    Store,
}

/// Who can change the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authority {
    /// Only this file system: what is cached stays true.
    Sole,
    /// Others too: cached names and attributes expire ([`crate::VfsConfig`]).
    Shared,
}

/// Whether a call into the backend can wait for something slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// Never: frontends may call from a thread that others wait for.
    Never,
    /// It may: frontends keep hits apart from it.
    Sometimes,
}

/// Whether the backend wants to know which files are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opens {
    /// No: [`Backend::open`] is never called, every [`FileRef`] is unopened, and an unlinked object
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

/// What a backend is and can do; asked once, at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Name of the kind of store, for reports: `memory`, `directory`, ...
    pub store: &'static str,
    /// Who checks permissions.
    pub enforcer: Enforcer,
    /// Who can change the store.
    pub authority: Authority,
    /// Whether calls can be slow.
    pub waits: Waits,
    /// Whether opens are tracked.
    pub opens: Opens,
    /// Where pages are cached.
    pub caching: PageCaching,
    /// Nothing can be changed.
    pub read_only: bool,
    /// A rename that replaces is atomic.
    pub atomic_rename: bool,
    /// Holes take no space.
    pub sparse: bool,
    /// Extended attributes exist.
    pub xattrs: bool,
    /// POSIX access control lists exist, as `system.posix_acl_*` attributes.
    pub acls: bool,
    /// [`Backend::os_file`] can return host files for the kernel to read and write directly.
    pub os_files: bool,
    /// An object's time of birth never changes, and tells it from those that have its number later: handles
    /// of objects outlive what is cached of them.
    pub births: bool,
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
            read_only: true,
            atomic_rename: false,
            sparse: false,
            xattrs: false,
            acls: false,
            os_files: false,
            births: false,
        }
    }

    /// A store that can be written to; otherwise as [`Capabilities::read_only`]. Methods that it does
    /// not have answer [`Error::Unsupported`].
    pub fn read_write(store: &'static str) -> Self {
        Self { read_only: false, ..Self::read_only(store) }
    }
}

/// Receives news of changes that others made to the store. Cheap: only queues.
pub trait ChangeSink: Send + Sync {
    /// The entry `name` of `parent` appeared, vanished or now means another object.
    fn entry_changed(&self, parent: InodeId, name: Name<'_>);
    /// Attributes or data of `inode` changed.
    fn inode_changed(&self, inode: InodeId);
    /// News was lost: anything may have changed.
    fn everything_changed(&self);
}

/// A store of objects. See the module for identity, concurrency and an example.
///
/// Errors: each method returns the most exact [`Error`] it can; those named in its description are
/// part of the contract. Names are single components, never `.`, `..` or empty.
pub trait Backend: Send + Sync + 'static {
    /// What this backend is and can do. Constant for its life.
    fn capabilities(&self) -> Capabilities;

    /// The root directory, [`InodeId::ROOT`].
    fn root(&self) -> Result<Entry>;

    /// Finds `name` in `parent`. [`Error::NotFound`] if there is none, [`Error::Stale`] if `parent`
    /// itself is gone.
    fn lookup(&self, caller: &Caller, parent: InodeId, name: Name<'_>) -> Result<Entry>;

    /// The attributes now.
    fn attributes(&self, file: FileRef) -> Result<Attributes>;

    /// Lists a directory from `from` on, until its end or until the listing wants no more. `.` and
    /// `..` are left out. Entries that exist throughout a listing in several calls are seen exactly
    /// once, whatever else changes; cookies stay valid while the directory exists.
    fn list(&self, directory: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()>;

    /// Reads a run of bytes. The core asks for runs of whole pages where it caches them. Fewer bytes
    /// than asked for mean the end of the file.
    fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize>;

    /// Gives back `references` references to `inode`.
    fn forget(&self, inode: InodeId, references: u64) {
        let _ = (inode, references);
    }

    /// Changes attributes and returns them all. A change of size by an unprivileged caller, and
    /// every change of owner or group, clears set-id bits as the kernel does.
    fn set_attributes(
        &self,
        caller: &Caller,
        file: FileRef,
        set: &SetAttributes,
    ) -> Result<Attributes> {
        let _ = (caller, file, set);
        Err(Error::Unsupported("changing attributes"))
    }

    /// The text of a symbolic link.
    fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        let _ = inode;
        Err(Error::Invalid("not a symbolic link"))
    }

    /// Creates an object under a name that must be free ([`Error::Exists`]).
    fn create(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
    ) -> Result<Entry> {
        let _ = (caller, parent, name, new);
        Err(Error::Unsupported("creating"))
    }

    /// Creates a regular file under a free name and opens it, in one step: the open succeeds even
    /// if `new.mode` forbids it.
    fn create_and_open(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
        mode: OpenMode,
    ) -> Result<(Entry, FileId)> {
        let _ = mode;
        Ok((self.create(caller, parent, name, new)?, FileId::NONE))
    }

    /// Creates a regular file with no name (O_TMPFILE), and opens it. It may get a name by
    /// [`Backend::link`].
    fn create_unnamed(
        &self,
        caller: &Caller,
        parent: InodeId,
        new: &NewNode<'_>,
        mode: OpenMode,
    ) -> Result<(Entry, FileId)> {
        let _ = (caller, parent, new, mode);
        Err(Error::Unsupported("files without a name"))
    }

    /// Gives `inode` (not a directory) a further name, which must be free.
    fn link(
        &self,
        caller: &Caller,
        inode: InodeId,
        parent: InodeId,
        name: Name<'_>,
    ) -> Result<Entry> {
        let _ = (caller, inode, parent, name);
        Err(Error::Unsupported("hard links"))
    }

    /// Removes a name that is not a directory's ([`Error::IsDirectory`]). An object with no name
    /// left lives on while it is open or referenced.
    fn unlink(&self, caller: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        let _ = (caller, parent, name);
        Err(Error::Unsupported("removing"))
    }

    /// Removes an empty directory ([`Error::NotEmpty`], [`Error::NotDirectory`]).
    fn remove_directory(&self, caller: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        let _ = (caller, parent, name);
        Err(Error::Unsupported("removing directories"))
    }

    /// Moves a name. Refuses to move a directory below itself ([`Error::Invalid`]), to replace a
    /// directory by something else ([`Error::IsDirectory`]) or the reverse
    /// ([`Error::NotDirectory`]), or a directory that is not empty ([`Error::NotEmpty`]). Two names
    /// of one object: succeeds and changes nothing.
    fn rename(
        &self,
        caller: &Caller,
        from: (InodeId, Name<'_>),
        to: (InodeId, Name<'_>),
        mode: RenameMode,
    ) -> Result<()> {
        let _ = (caller, from, to, mode);
        Err(Error::Unsupported("renaming"))
    }

    /// Opens an object: a regular file, or a directory for listing. Not called for
    /// [`Opens::Stateless`].
    fn open(&self, caller: &Caller, inode: InodeId, mode: OpenMode) -> Result<FileId> {
        let _ = (caller, inode, mode);
        Ok(FileId::NONE)
    }

    /// Closes what `open`, `create_and_open` or `create_unnamed` returned. Called once.
    fn close(&self, file: FileRef) {
        let _ = file;
    }

    /// Writes bytes; returns how many. At the end of the file if it was opened to append. Clears
    /// set-id bits unless the caller is privileged.
    fn write(&self, caller: &Caller, file: FileRef, offset: u64, data: &[u8]) -> Result<usize> {
        let _ = (caller, file, offset, data);
        Err(Error::Unsupported("writing"))
    }

    /// Writes bytes at the end of the file, wherever that is when it happens; returns how many.
    /// The default is right only while nobody else appends: every store that others change, or that is
    /// asked by several callers at once, overrides it. A file may be open here without
    /// [`OpenMode::append`]: one whose pages are cached is.
    fn append(&self, caller: &Caller, file: FileRef, data: &[u8]) -> Result<usize> {
        let end = self.attributes(file)?.size;
        self.write(caller, file, end, data)
    }

    /// Reserves or clears a range.
    fn allocate(&self, file: FileRef, mode: AllocateMode, offset: u64, length: u64) -> Result<()> {
        let _ = (file, mode, offset, length);
        Err(Error::Unsupported("fallocate"))
    }

    /// Finds data or a hole at or after `offset`; [`Error::NoData`] at or past the end.
    fn seek(&self, file: FileRef, offset: u64, target: SeekTarget) -> Result<u64> {
        let size = self.attributes(file)?.size;
        match target {
            _ if offset >= size => Err(Error::NoData),
            SeekTarget::Data => Ok(offset),
            SeekTarget::Hole => Ok(size),
        }
    }

    /// Copies within the store; returns how many bytes. [`Error::Unsupported`] makes the core copy
    /// by reading and writing.
    fn copy_range(
        &self,
        from: FileRef,
        from_offset: u64,
        to: FileRef,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        let _ = (from, from_offset, to, to_offset, length);
        Err(Error::Unsupported("copying within the store"))
    }

    /// Returns when what was written before is stable.
    fn sync(&self, file: FileRef, mode: SyncMode) -> Result<()> {
        let _ = (file, mode);
        Ok(())
    }

    /// A descriptor of the open file was closed: the last moment to report a write error.
    fn flush(&self, file: FileRef) -> Result<()> {
        let _ = file;
        Ok(())
    }

    /// The value of an extended attribute, or [`Error::NoAttribute`].
    fn get_xattr(&self, caller: &Caller, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        let _ = (caller, inode, name);
        Err(Error::Unsupported("extended attributes"))
    }

    /// Sets an extended attribute. Setting `system.posix_acl_access` changes the mode with it.
    fn set_xattr(
        &self,
        caller: &Caller,
        inode: InodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let _ = (caller, inode, name, value, mode);
        Err(Error::Unsupported("extended attributes"))
    }

    /// The names of all extended attributes.
    fn list_xattrs(&self, caller: &Caller, inode: InodeId) -> Result<Vec<Vec<u8>>> {
        let _ = (caller, inode);
        Err(Error::Unsupported("extended attributes"))
    }

    /// All names under which `inode` may have an extended attribute, whoever asks: every other name
    /// has none. `None` where the store cannot tell that by one cheap call; then each name is asked for.
    fn possible_xattrs(&self, inode: InodeId) -> Result<Option<Vec<Vec<u8>>>> {
        let _ = inode;
        Ok(None)
    }

    /// Removes an extended attribute, or [`Error::NoAttribute`].
    fn remove_xattr(&self, caller: &Caller, inode: InodeId, name: &[u8]) -> Result<()> {
        let _ = (caller, inode, name);
        Err(Error::Unsupported("extended attributes"))
    }

    /// The object that users know by `number` (`st_ino`), wherever it lies: for a frontend whose users come
    /// back with a number after everything else was forgotten. [`Error::Stale`] if there is none any more.
    /// Stores that keep no index of numbers do not have it; their objects are found again by name.
    fn by_number(&self, number: u64) -> Result<Entry> {
        let _ = number;
        Err(Error::Unsupported("finding an object by its number"))
    }

    /// The directory in which `directory` lies, for one that was found by its number; the root's is itself.
    fn parent_of(&self, directory: InodeId) -> Result<Entry> {
        let _ = directory;
        Err(Error::Unsupported("finding the parent of a directory"))
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

    /// The host file behind an open file, if reading and writing it directly means the same as
    /// reading and writing through this backend. Its offset is not used.
    fn os_file(&self, file: FileRef) -> Option<Arc<OwnedFd>> {
        let _ = file;
        None
    }

    /// Starts to report changes that others make, until the backend is dropped.
    fn watch(&self, changes: Arc<dyn ChangeSink>) -> Result<()> {
        let _ = changes;
        Err(Error::Unsupported("watching for changes"))
    }

    /// What shares the budget with the caches, if this store keeps tables that grow with what is cached
    /// of it. Asked once.
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
