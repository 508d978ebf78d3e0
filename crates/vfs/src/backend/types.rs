//! The types of the seam: objects, open files, entries, and parameters of requests.

use crate::attributes::{Attributes, FileKind};
use crate::error::Result;
use crate::name::Name;
use serde::Serialize;

/// An object of a backend. Never reused for another object during one mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InodeId(pub u64);

impl InodeId {
    /// The root directory, in every backend.
    pub const ROOT: Self = Self(1);

    /// The id of an object of a store that reuses its numbers, and gives each life of one a generation (`i_generation`
    /// of Linux's inodes). Not for the root.
    pub const fn of(number: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | number as u64)
    }

    /// The number and the generation of an id from [`InodeId::of`].
    pub const fn parts(self) -> (u32, u32) {
        (self.0 as u32, (self.0 >> 32) as u32)
    }
}

/// An open file of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

impl FileId {
    /// No open file, but the object itself.
    pub const NONE: Self = Self(0);
}

/// An object, and the open file through which it is used, if any.
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
    /// Attributes of the object, read no earlier than the call began.
    pub attributes: Attributes,
}

/// The whole content of a file, for a store that takes it at once ([`Data::replace`](super::Data::replace)). It is
/// constant until the store has answered. Several threads may read it in any order.
pub trait WholeContent: Sync {
    /// Bytes.
    fn size(&self) -> u64;

    /// The version of the store's content that was changed; 0 if the store reports none. A store that can compare
    /// versions refuses to replace another one ([`Error::Busy`](crate::Error::Busy)).
    fn version(&self) -> u64;

    /// Bytes from `offset` on; fewer than asked for only at the end. Bytes that were not changed here are read from the
    /// store.
    ///
    /// # Errors
    /// The store's; [`Error::Busy`](crate::Error::Busy) if it has another version by now.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize>;
}

/// The result of a read of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Content {
    /// Bytes.
    pub count: usize,
    /// The version of the content of all these bytes; 0 if the store does not report it with the bytes.
    pub version: u64,
}

/// A position in a directory. 0 is the start. Otherwise only a position from a listing is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cookie(pub u64);

/// Receives the entries of a directory, in batches of its own size.
pub trait Listing {
    /// Takes an entry by name, number (`st_ino`) and kind. The listing continues at `next` after it. Returns false when
    /// it took *nothing* and wants no more.
    fn add_name(&mut self, name: Name<'_>, next: Cookie, number: u64, kind: FileKind) -> bool;

    /// Like [`Listing::add_name`], with attributes. Carries a reference to `entry.inode` if and only if it returns
    /// true. A backend that counts references undoes its count on false.
    fn add_entry(&mut self, name: Name<'_>, next: Cookie, entry: Entry) -> bool;

    /// Whether attributes are wanted. If not, a backend with costly attributes passes names only.
    fn wants_attributes(&self) -> bool {
        true
    }
}

/// Receives the entries of several directories, in the order of a depth-first walk.
pub trait Below {
    /// A directory begins, in the open one. The first open one is the parent of the requested directory. Carries a
    /// reference to `entry.inode`.
    fn enter(&mut self, name: Name<'_>, entry: Entry);

    /// An entry of the open directory, which is no directory itself. Carries a reference to `entry.inode`.
    fn add(&mut self, name: Name<'_>, entry: Entry);

    /// The open directory ends, and its parent is open again. `whole` says that all of its entries were passed, in the
    /// order of the store.
    fn leave(&mut self, whole: bool);
}

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenMode {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Writes go to the end, until the program changes that. `Data::append` writes there, and `Data::write` at its
    /// offset. A store needs this flag only to open append-only files.
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

/// The kind of object to create.
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
    /// The kind.
    pub kind: NewKind<'a>,
    /// Wanted permission bits, before the umask.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
}

impl NewNode<'static> {
    /// The object by which an overlay file system says that a name of a lower layer is removed: the device 0/0.
    pub const WHITEOUT: Self = Self { kind: NewKind::CharDevice(0), mode: 0, umask: 0 };
}

/// The treatment of an existing target in a rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces it, atomically.
    Replace,
    /// Refuses ([`Error::Exists`](crate::Error::Exists)).
    NoReplace,
    /// Exchanges the two, atomically; both must exist.
    Exchange,
    /// Replaces it, and leaves a new [`NewNode::WHITEOUT`] at the old name, both in one step. A store that cannot:
    /// [`Error::Invalid`](crate::Error::Invalid).
    Whiteout,
    /// Refuses as [`RenameMode::NoReplace`], and otherwise leaves what [`RenameMode::Whiteout`] leaves.
    WhiteoutNoReplace,
}

impl RenameMode {
    /// Whether an object at the new name refuses the rename.
    pub fn keeps_target(self) -> bool {
        matches!(self, Self::NoReplace | Self::WhiteoutNoReplace)
    }

    /// Whether an object at the new name loses that name.
    pub fn replaces_target(self) -> bool {
        matches!(self, Self::Replace | Self::Whiteout)
    }

    /// Whether a whiteout stays at the old name.
    pub fn leaves_whiteout(self) -> bool {
        matches!(self, Self::Whiteout | Self::WhiteoutNoReplace)
    }
}

/// What `fallocate(2)` does with a range.
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

/// The target of `lseek(2)` at or after an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekTarget {
    /// The next data; [`Error::NoData`](crate::Error::NoData) when only a hole is left.
    Data,
    /// The next hole; there is one at the end of every file.
    Hole,
}

/// How much must be stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// Data, and the attributes needed to read it back (`fdatasync`).
    Data,
    /// Data and all attributes (`fsync`).
    All,
}

/// Whether setting an extended attribute may create or replace it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrMode {
    /// Either.
    Any,
    /// Only create ([`Error::Exists`](crate::Error::Exists)).
    Create,
    /// Only replace ([`Error::NoAttribute`](crate::Error::NoAttribute)).
    Replace,
}

/// Receives news of changes that others made to the store. Cheap: it only queues them.
pub trait ChangeSink: Send + Sync {
    /// The entry `name` of `parent` appeared, vanished or now means another object.
    fn entry_changed(&self, parent: InodeId, name: Name<'_>);
    /// Attributes or data of `inode` changed.
    fn inode_changed(&self, inode: InodeId);
    /// News was lost: anything may have changed.
    fn everything_changed(&self);
}

/// The end of all changes of a store, after a failure ([`crate::Backend::ended`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ended {
    /// The failure, and its consequence for the store.
    pub why: String,
    /// When it was, in seconds since 1970.
    pub since: u64,
}

/// Changes that a store took and lost ([`crate::Backend::losses`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Losses {
    /// The failure.
    pub cause: String,
    /// The objects. [`InodeId::ROOT`] with its bytes stands for the whole store.
    pub objects: Vec<Loss>,
}

/// An object of which a store lacks something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// The object.
    pub inode: InodeId,
    /// Number of the object (`st_ino`).
    pub number: u64,
    /// The kind of the object. With the number it finds the object's name in a listing of the store.
    pub kind: FileKind,
    /// Bytes of its contents that the store lacks; 0 if it lacks a name or attributes alone.
    pub bytes: u64,
}
