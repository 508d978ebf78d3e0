//! The methods of a store, in families that are each implemented where their code is.
//!
//! # Boundary
//! The parent module states the common rules (identity, concurrency, errors). Names are single components, never `.`,
//! `..` or empty. A method that is not implemented returns [`Error::Unsupported`] (EOPNOTSUPP).
//!
//! # Concurrency
//! [`super`] states it: many threads may call at once, and a call may block.
//!
//! # Why
//! A store of one table implements four methods, and one with a journal has a file for each family. Linux splits the
//! same way (`inode_operations`, `file_operations`, `xattr_handler`). Weakness: a call takes one more indirect jump
//! than through one wide trait, 2 ns.

use super::{
    AllocateMode, Below, ChangeSink, Content, Cookie, Entry, FileId, FileRef, InodeId, Listing,
    NewNode, OpenMode, ReadRun, RenameMode, SeekTarget, SyncMode, WholeContent, WriteRun,
    XattrMode,
};
use crate::attributes::{Attributes, SetAttributes, Timestamp};
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::name::Name;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The names in directories: finding, listing, removing and moving them.
pub trait Names: Send + Sync {
    /// Finds `name` in `parent`. [`Error::NotFound`] if there is none, [`Error::Stale`] if `parent`
    /// itself is gone.
    fn lookup(&self, caller: &Caller, parent: InodeId, name: Name<'_>) -> Result<Entry>;

    /// Lists a directory from `from` on, until its end or until the listing wants no more. `.` and
    /// `..` are left out. Entries that exist throughout a listing in several calls are seen exactly
    /// once, whatever else changes; cookies stay valid while the directory exists.
    fn list(&self, directory: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()>;

    /// Whether to list `directory` together with its successors in its parent ([`Names::list_below`]) and not alone.
    /// Asked before a listing of a store whose listings are kept ([`Listings`](super::Listings)); may ask no store.
    fn lists_below(&self, directory: InodeId) -> bool {
        let _ = directory;
        false
    }

    /// Lists `directory` and its successors in its parent, as far as one request to the store reaches. Called if
    /// [`Names::lists_below`] says so. An error costs only the request.
    fn list_below(&self, directory: InodeId, below: &mut dyn Below) -> Result<()> {
        let _ = (directory, below);
        Err(Error::Unsupported("listing several directories"))
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
}

/// New objects and new names, for a store that can make them.
pub trait Creation: Send + Sync {
    /// Creates an object under a name that must be free ([`Error::Exists`]).
    fn create(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
    ) -> Result<Entry>;

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
    /// [`Creation::link`].
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
}

/// The objects: attributes, the text of symbolic links, the references that the core holds.
pub trait Inodes: Send + Sync {
    /// The attributes now.
    fn attributes(&self, file: FileRef) -> Result<Attributes>;

    /// Returns `references` references to `inode`.
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
}

/// The bytes of regular files.
pub trait Data: Inodes {
    /// Reads a run of bytes. The core asks for runs of whole pages where it caches them. Fewer bytes
    /// than asked for mean the end of the file.
    fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize>;

    /// Like [`Data::read`], but also returns the version of the content that the bytes belong to. For a store whose
    /// attributes have versions and whose answers name the one that was read. Then no second request is needed.
    fn read_with_version(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<Content> {
        Ok(Content { count: self.read(file, offset, into)?, version: 0 })
    }

    /// Reads a run and completes it, on any thread, at once or later, with the result of [`Data::read_with_version`].
    /// Called for stores that can use several runs at once
    /// ([`Capabilities::queue_depth`](super::Capabilities::queue_depth)).
    fn read_run(&self, mut run: ReadRun) {
        let (file, offset) = (run.file(), run.offset());
        let result = self.read_with_version(file, offset, run.buffer());
        run.complete(result);
    }

    /// Like [`Data::read_run`]: writes a run, and completes it with the result of [`Data::write`].
    fn write_run(&self, caller: &Caller, run: WriteRun) {
        let result = self.write(caller, run.file(), run.offset(), run.data());
        run.complete(result);
    }

    /// Writes bytes; returns how many. For stores of [`Writes::Append`](super::Writes::Append), `offset` is the end.
    /// Writes at `offset` even if the file was opened to append: an appending program may change its mode, and stores
    /// to a mapping have an offset. Clears set-id bits unless the caller keeps them ([`Caller::keeps_set_ids`]).
    fn write(&self, caller: &Caller, file: FileRef, offset: u64, data: &[u8]) -> Result<usize> {
        let _ = (caller, file, offset, data);
        Err(Error::Unsupported("writing"))
    }

    /// Writes bytes that were kept here since `changed`, the time of the last change of the file; returns how many. Around
    /// bytes that were written, they have others as they are in the file: zeros of a hole may stay one. Called for
    /// stores of [`Capabilities::writes_back`](super::Capabilities::writes_back); then no other call tells that time.
    fn write_back(
        &self,
        file: FileRef,
        offset: u64,
        data: &[u8],
        changed: Timestamp,
    ) -> Result<usize> {
        let _ = changed;
        self.write(&Caller::root(), file, offset, data)
    }

    /// Writes bytes at the end of the file at the time of the write; returns how many. The default is right only while
    /// no other caller appends. Every store that others change, or that several callers use at once, overrides it. The
    /// file may be open without [`OpenMode::append`].
    fn append(&self, caller: &Caller, file: FileRef, data: &[u8]) -> Result<usize> {
        let end = self.attributes(file)?.size;
        self.write(caller, file, end, data)
    }

    /// Replaces the whole content, and returns the attributes after that: for a store of
    /// [`Writes::WholeFile`](super::Writes::WholeFile), which gets no [`Data::write`]. While it reads `content`, it
    /// must hold no lock that its own reads need. Users see the old content or the new one, never a part.
    ///
    /// # Errors
    /// [`Error::Busy`] if the store's content is not of [`WholeContent::version`] any more, because others have
    /// replaced it. That is final: the store has kept the new content elsewhere if it could, and the core does not
    /// retry. After any other error the core retries.
    fn replace(
        &self,
        caller: &Caller,
        file: FileRef,
        content: &dyn WholeContent,
    ) -> Result<Attributes> {
        let _ = (caller, file, content);
        Err(Error::Unsupported("replacing the content of a file"))
    }

    /// Drops the data written to `file` that [`Data::replace`] did not get. The store forgets its state of that file.
    /// The name leads to the store's content.
    fn give_up(&self, file: FileRef) {
        let _ = file;
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

    /// Returns when all earlier writes of the file are stable. After [`Error::Unsupported`], which the default returns,
    /// the core calls [`Backend::sync_fs`](super::Backend::sync_fs): a store that makes everything stable at once
    /// implements only that.
    fn sync(&self, file: FileRef, mode: SyncMode) -> Result<()> {
        let _ = (file, mode);
        Err(Error::Unsupported("making one file stable"))
    }
}

/// Space reserved for later writes (delayed allocation). Where written data stays in the caches for a while, its writer
/// gets the error for a full store, not the thread that writes back.
pub trait Reservation: Send + Sync {
    /// Reserves the space for these bytes beyond the space of the file, all or nothing. Refuses bytes that the file may not
    /// get. Until they are written or
    /// [unreserved](Reservation::unreserve), a write of them is not refused for lack of space. Space that is reserved
    /// already is not counted twice. A store that can set no space aside may still refuse what no file of it can have.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Quota`]; [`Error::TooBig`] past the largest size of the file.
    fn reserve(&self, file: FileRef, offset: u64, length: u64) -> Result<()>;

    /// These bytes will not be written: frees their reserved space, if there is any.
    fn unreserve(&self, inode: InodeId, offset: u64, length: u64);
}

/// Open files, for a store that tracks them ([`Opens::Tracked`](super::Opens::Tracked)).
pub trait OpenFiles: Send + Sync {
    /// Opens an object: a regular file, or a directory for listing.
    fn open(&self, caller: &Caller, inode: InodeId, mode: OpenMode) -> Result<FileId>;

    /// Closes a result of `open`, `create_and_open` or `create_unnamed`. Called once.
    fn close(&self, file: FileRef);

    /// A descriptor of the open file was closed: the last moment to report a write error.
    fn flush(&self, file: FileRef) -> Result<()> {
        let _ = file;
        Ok(())
    }

    /// The host file behind an open file, if reading and writing it directly means the same as
    /// reading and writing through this backend. Its offset is not used.
    fn os_file(&self, file: FileRef) -> Option<Arc<OwnedFd>> {
        let _ = file;
        None
    }
}

/// The open files of a store that does not track them ([`Opens::Stateless`](super::Opens::Stateless)): does nothing.
#[derive(Debug, Clone, Copy)]
pub struct Untracked;

impl OpenFiles for Untracked {
    fn open(&self, _: &Caller, _: InodeId, _: OpenMode) -> Result<FileId> {
        Ok(FileId::NONE)
    }

    fn close(&self, _: FileRef) {}
}

/// Extended attributes (xattr(7)).
pub trait Xattrs: Send + Sync {
    /// The value of an extended attribute, or [`Error::NoAttribute`].
    fn get_xattr(&self, caller: &Caller, inode: InodeId, name: &[u8]) -> Result<Vec<u8>>;

    /// Sets an extended attribute. Setting `system.posix_acl_access` changes the mode with it.
    fn set_xattr(
        &self,
        caller: &Caller,
        inode: InodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()>;

    /// The names of all extended attributes.
    fn list_xattrs(&self, caller: &Caller, inode: InodeId) -> Result<Vec<Vec<u8>>>;

    /// All names under which `inode` may have an extended attribute, for any caller: every other name has none. `None`
    /// where the store has no cheap call for that. Then it is asked for each name.
    fn possible_xattrs(&self, inode: InodeId) -> Result<Option<Vec<Vec<u8>>>> {
        let _ = inode;
        Ok(None)
    }

    /// Removes an extended attribute, or [`Error::NoAttribute`].
    fn remove_xattr(&self, caller: &Caller, inode: InodeId, name: &[u8]) -> Result<()>;
}

/// Finds objects again by a number that outlives all cache entries (Linux: `export_operations`).
pub trait Export: Send + Sync {
    /// The object with the user-visible `number` (`st_ino`), in any place. For a frontend whose users return with a
    /// number after all else was forgotten. [`Error::Stale`] if the object is gone.
    fn by_number(&self, number: u64) -> Result<Entry>;

    /// The parent of `directory`, for one that was found by its number. The root's parent is itself.
    fn parent_of(&self, directory: InodeId) -> Result<Entry>;
}

/// News of changes that others make in the store.
pub trait Watch: Send + Sync {
    /// Starts to report changes that others make, until the backend is dropped.
    fn watch(&self, changes: Arc<dyn ChangeSink>) -> Result<()>;

    /// Whether every change that others make to the names of `directory` from now on is reported, and every change of
    /// the attributes of those objects in it that are no directories and have no other name. The core asks this before a
    /// question to the store; if so, it believes the answer for [`crate::VfsConfig::reported_timeouts`]. A change that
    /// the answer does not show is reported also if the answer is still on its way. May start to watch the directory.
    fn reports_names(&self, directory: InodeId) -> bool {
        let _ = directory;
        false
    }

    /// Whether every change of the attributes of `inode` is reported, as long as it has one name.
    fn reports_attributes(&self, inode: InodeId) -> bool {
        let _ = inode;
        false
    }
}
