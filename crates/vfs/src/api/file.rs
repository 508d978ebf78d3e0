//! File handles.

use crate::advisory::{AdvisoryLocks, Held, LockKind, LockOwner, LockRange, LockWait};
use crate::attributes::{Attributes, SetAttributes};
use crate::backend::{AllocateMode, OpenMode, SeekTarget, SyncMode};
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::mount::Mount;
use crate::ops::OpenFile;
use crate::vfs::Vfs;
use std::sync::OnceLock;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_containers::object::Hold;

/// How to open a file: the flags of open(2).
#[derive(Debug, Clone, Copy)]
pub struct OpenOptions {
    mode: OpenMode,
    create: Option<u32>,
    exclusive: bool,
    keep_last_link: bool,
}

impl OpenOptions {
    /// O_RDONLY.
    pub fn read() -> Self {
        Self { mode: OpenMode::READ, create: None, exclusive: false, keep_last_link: false }
    }

    /// O_WRONLY.
    pub fn write() -> Self {
        let mode = OpenMode { read: false, ..OpenMode::READ_WRITE };
        Self { mode, ..Self::read() }
    }

    /// O_RDWR.
    pub fn read_write() -> Self {
        Self { mode: OpenMode::READ_WRITE, ..Self::read() }
    }

    /// O_CREAT, with these permissions before the umask.
    pub fn create(self, permissions: u32) -> Self {
        Self { create: Some(permissions), ..self }
    }

    /// O_CREAT and O_EXCL: the name must be free.
    pub fn create_new(self, permissions: u32) -> Self {
        Self { create: Some(permissions), exclusive: true, keep_last_link: true, ..self }
    }

    /// O_TRUNC.
    pub fn truncate(self) -> Self {
        Self { mode: OpenMode { truncate: true, ..self.mode }, ..self }
    }

    /// O_APPEND.
    pub fn append(self) -> Self {
        Self { mode: OpenMode { append: true, ..self.mode }, ..self }
    }

    /// O_NOFOLLOW: a last symbolic link is refused ([`Error::SymlinkLoop`]).
    pub fn no_follow(self) -> Self {
        Self { keep_last_link: true, ..self }
    }

    pub(super) fn mode(self) -> OpenMode {
        self.mode
    }

    pub(super) fn follows(self) -> bool {
        !self.keep_last_link
    }

    pub(super) fn creates(self) -> bool {
        self.create.is_some()
    }

    pub(super) fn exclusive(self) -> bool {
        self.exclusive
    }

    pub(super) fn permissions(self) -> u32 {
        self.create.unwrap_or(0)
    }
}

/// An open file. Closes when dropped, and releases its `flock` then.
#[derive(Debug)]
pub struct File {
    vfs: Vfs,
    /// The mount it was opened in, kept in use. `None`: in no namespace.
    mount: Option<Hold<Mount>>,
    open: OpenFile,
    caller: Caller,
    /// The owner of its locks, made with the first one: most files are never locked.
    owner: OnceLock<LockOwner>,
}

impl File {
    pub(super) fn new(
        vfs: Vfs,
        mount: Option<Hold<Mount>>,
        open: OpenFile,
        caller: Caller,
    ) -> Self {
        Self { vfs, mount, open, caller, owner: OnceLock::new() }
    }

    pub(super) fn vfs(&self) -> &Vfs {
        &self.vfs
    }

    pub(super) fn mount(&self) -> Option<&Hold<Mount>> {
        self.mount.as_ref()
    }

    /// The file's node.
    pub fn node(&self) -> &Node {
        self.open.node()
    }

    /// Attributes. fstat(2).
    pub fn stat(&self) -> Result<Attributes> {
        self.vfs.attributes(self.node(), Some(&self.open))
    }

    /// Reads at `offset`; fewer bytes than asked for mean the end of the file. pread(2).
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.open.readable()?;
        self.vfs.read(self.node(), self.open.reference(), offset, into)
    }

    /// Everything from the start to the end.
    pub fn read_to_end(&self) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        let mut chunk = vec![0; 128 << 10];
        loop {
            match self.read_at(content.len() as u64, &mut chunk)? {
                0 => return Ok(content),
                count => content.extend_from_slice(&chunk[..count]),
            }
        }
    }

    /// Writes at `offset` (at the end if opened to append). pwrite(2).
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<usize> {
        self.open.writable()?;
        let file = self.open.reference();
        let count = if self.open.mode().append {
            self.vfs.append(&self.caller, self.node(), file, data)?
        } else {
            self.vfs.write(&self.caller, self.node(), file, offset, data)?
        };
        if self.open.mode().sync && self.vfs.core.writes_back() {
            self.vfs.sync_open(&self.open, SyncMode::Data)?;
        }
        Ok(count)
    }

    /// Writes all of `data` at `offset`.
    pub fn write_all_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            match self.write_at(offset + done as u64, &data[done..])? {
                0 => return Err(Error::NoSpace),
                count => done += count,
            }
        }
        Ok(())
    }

    /// Changes attributes. fchmod(2), fchown(2), ftruncate(2), futimens(3).
    pub fn set_attributes(&self, set: &SetAttributes) -> Result<Attributes> {
        if set.size.is_some() {
            self.open.writable()?;
        }
        let changed = self.vfs.set_attributes(&self.caller, self.node(), Some(&self.open), set)?;
        Ok(changed)
    }

    /// Cuts or extends the file. ftruncate(2).
    pub fn set_size(&self, size: u64) -> Result<()> {
        self.set_attributes(&SetAttributes { size: Some(size), ..SetAttributes::default() })?;
        Ok(())
    }

    /// Reserves or clears a range. fallocate(2).
    pub fn allocate(&self, mode: AllocateMode, offset: u64, length: u64) -> Result<()> {
        self.open.writable()?;
        self.vfs.allocate(
            &self.caller,
            self.node(),
            self.open.reference(),
            mode,
            offset,
            length,
        )?;
        Ok(())
    }

    /// Finds data or a hole at or after `offset`. lseek(2).
    pub fn seek(&self, offset: u64, target: SeekTarget) -> Result<u64> {
        self.vfs.seek(self.node(), self.open.reference(), offset, target)
    }

    /// Copies a range of this file into another. copy_file_range(2).
    pub fn copy_range(&self, offset: u64, to: &File, to_offset: u64, length: u64) -> Result<u64> {
        self.open.readable()?;
        to.open.writable()?;
        if !self.vfs.same(&to.vfs) {
            return Err(Error::CrossDevice);
        }
        let source = (self.node(), self.open.reference(), offset);
        let target = (to.node(), to.open.reference(), to_offset);
        let copied = self.vfs.copy_range(&self.caller, source, target, length)?;
        Ok(copied)
    }

    /// Returns when the file is stable. fsync(2), fdatasync(2).
    pub fn sync(&self, mode: SyncMode) -> Result<()> {
        self.vfs.sync_open(&self.open, mode)
    }

    /// Takes a record lock for `owner` (fcntl(2), F_SETLK and F_SETLKW). Use one owner per process
    /// or task for POSIX semantics, or [`File::lock_owner`] for those of open file descriptions.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], [`Error::Deadlock`]; [`Error::BadHandle`] if the file is not open for
    /// reading or writing, as the kind of lock requires.
    pub fn lock(
        &self,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
        wait: LockWait,
    ) -> Result<()> {
        match kind {
            LockKind::Shared => self.open.readable()?,
            LockKind::Exclusive => self.open.writable()?,
        }
        self.locks().lock(owner, kind, range, wait)
    }

    /// Releases record locks of `owner` within `range`. fcntl(2), F_UNLCK.
    pub fn unlock(&self, owner: LockOwner, range: LockRange) {
        self.locks().unlock(owner, range);
    }

    /// The first conflicting record lock. fcntl(2), F_GETLK.
    pub fn test_lock(&self, owner: LockOwner, kind: LockKind, range: LockRange) -> Option<Held> {
        self.locks().test(owner, kind, range)
    }

    /// Locks the whole file for this handle. flock(2).
    pub fn lock_whole(&self, kind: LockKind, wait: LockWait) -> Result<()> {
        self.locks().lock_whole(self.lock_owner(), kind, wait)
    }

    /// Releases the handle's whole-file lock. flock(2), LOCK_UN.
    pub fn unlock_whole(&self) {
        self.locks().unlock_whole(self.lock_owner());
    }

    /// This handle as an owner of record locks.
    pub fn lock_owner(&self) -> LockOwner {
        static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
        // ORDERING: Relaxed; only distinct numbers are wanted.
        *self.owner.get_or_init(|| LockOwner(NEXT.fetch_add(1, Relaxed)))
    }

    fn locks(&self) -> &AdvisoryLocks {
        self.node().inode.rest().locks.get_or_make(AdvisoryLocks::default).0
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // Without an owner it has no lock.
        let Some(&owner) = self.owner.get() else { return };
        if let Some(locks) = self.node().inode.known_rest().and_then(|used| used.locks.get()) {
            locks.unlock(owner, LockRange::ALL);
            locks.unlock_whole(owner);
        }
    }
}
