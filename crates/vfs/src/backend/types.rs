//! The words of the seam: objects, open files, entries, and what is asked of them.

use crate::attributes::{Attributes, FileKind};
use crate::error::Result;
use crate::name::Name;

/// An object of a backend. Never reused for another object during one mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InodeId(pub u64);

impl InodeId {
    /// The root directory, in every backend.
    pub const ROOT: Self = Self(1);

    /// The id of an object of a store that uses its numbers again, and gives each life of one a generation
    /// (`i_generation` of Linux's inodes). Not for the root.
    pub const fn of(number: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | number as u64)
    }

    /// The number and the generation that it was made of by [`InodeId::of`].
    pub const fn parts(self) -> (u32, u32) {
        (self.0 as u32, (self.0 >> 32) as u32)
    }
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

/// The whole content of a file, for a store that takes it at once ([`Data::replace`](super::Data::replace)). It stays as it
/// is until the store has answered, and may be read in any order by several threads.
pub trait WholeContent: Sync {
    /// Bytes.
    fn size(&self) -> u64;

    /// The version of the store's content that was changed, 0 if the store tells none. One that can compare refuses to replace
    /// another one ([`Error::Busy`](crate::Error::Busy)).
    fn version(&self) -> u64;

    /// Bytes from `offset` on; fewer than asked for only at the end. What was not changed here is read from the store.
    ///
    /// # Errors
    /// The store's; [`Error::Busy`](crate::Error::Busy) if it has another version by now.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize>;
}

/// What a store has read of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Content {
    /// Bytes.
    pub count: usize,
    /// The version of the content that they are of, all of them; 0 if the store does not know with the bytes.
    pub version: u64,
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

/// Receives the entries of several directories, one below or beside the other, in the order of a walk that goes down first.
pub trait Below {
    /// A directory begins, in the one that is open; at first that is the parent of the one that was asked for. Carries a
    /// reference to `entry.inode`.
    fn enter(&mut self, name: Name<'_>, entry: Entry);

    /// An entry of the directory that is open, which is no directory. Carries a reference to `entry.inode`.
    fn add(&mut self, name: Name<'_>, entry: Entry);

    /// The directory that is open ends, and the one that it was entered from is open again. `whole` says that all of its
    /// entries were told, in the order of the store.
    fn leave(&mut self, whole: bool);
}

/// How a file is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenMode {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Writes are meant to go to the end, until the program changes that: `Data::append` does that, and `Data::write` goes
    /// where it says. A store needs it only to open what may be nothing but appended to.
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
    /// Refuses ([`Error::Exists`](crate::Error::Exists)).
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
    /// The next data; [`Error::NoData`](crate::Error::NoData) when only a hole is left.
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
    /// Only create ([`Error::Exists`](crate::Error::Exists)).
    Create,
    /// Only replace ([`Error::NoAttribute`](crate::Error::NoAttribute)).
    Replace,
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
