//! File data: reading, writing, and the calls beside them.
//!
//! Functions here take a node and a backend file reference rather than an [`OpenFile`], since a
//! frontend whose store does not track opens has none.

use super::OpenFile;
use super::change::AttributeChange;
use crate::attributes::SetAttributes;
use crate::backend::{AllocateMode, FileRef, InodeId, SeekTarget, SyncMode, Writes};
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::inode::{CAPABILITY_XATTR, Node};
use crate::page::WriteOffset;
use crate::permission;
use crate::vfs::Vfs;

/// Largest file and offset: 2^63 - 1.
pub(super) const FILE_SIZE_MAX: u64 = i64::MAX as u64;

/// Set-user-id and set-group-id.
const SET_IDS: u32 = 0o6000;

/// Bytes moved at once by a copy that the store cannot do itself.
const COPY_CHUNK: usize = 1 << 20;

impl Vfs {
    /// Reads bytes; fewer than asked for mean the end of the file. May block.
    pub fn read(&self, node: &Node, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.data_of(node)?;
        if offset >= FILE_SIZE_MAX || into.is_empty() {
            return Ok(0);
        }
        if self.core.caches_pages() {
            return self.read_cached(node, file, offset, into);
        }
        let count = self.core.backend().data().read(file, offset, into)?;
        let count = self.core.believed("read", file, count, into.len())?;
        node.inode.was_read(&self.core.clock);
        Ok(count)
    }

    /// Writes bytes and returns how many: all, or fewer with something written. May block.
    ///
    /// # Errors
    /// [`Error::TooBig`] past 2^63 - 1; [`Error::NoSpace`] if nothing could be written.
    pub fn write(
        &self,
        caller: &Caller,
        node: &Node,
        file: FileRef,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let written = self.write_at(caller, (node, file), offset, data);
        if let Ok(count) = written {
            self.core.pages.failures().took(node.id(), offset..offset.saturating_add(count as u64));
        }
        self.notify_inode(caller, node, written)
    }

    fn write_at(
        &self,
        caller: &Caller,
        (node, file): (&Node, FileRef),
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        self.writable()?;
        self.data_of(node)?;
        let Some(room) = FILE_SIZE_MAX.checked_sub(offset).filter(|&room| room > 0) else {
            return Err(Error::TooBig);
        };
        let data = &data[..data.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        if self.core.caches_pages() {
            if self.core.writes_back() {
                // Write-back runs as root, not as `caller`.
                self.drop_privileges(caller, node, file)?;
            }
            return self.write_cached(caller, node, file, WriteOffset::At(offset), data);
        }
        let _change = AttributeChange::begin(&self.core, node);
        let count = self.core.backend().data().write(caller, file, offset, data)?;
        self.core.believed("write", file, count, data.len())
    }

    /// Writes bytes at the end of the file, wherever that is by then. May block.
    pub fn append(
        &self,
        caller: &Caller,
        node: &Node,
        file: FileRef,
        data: &[u8],
    ) -> Result<usize> {
        let written = self.write_at_end(caller, node, file, data);
        self.notify_inode(caller, node, written)
    }

    fn write_at_end(
        &self,
        caller: &Caller,
        node: &Node,
        file: FileRef,
        data: &[u8],
    ) -> Result<usize> {
        self.writable()?;
        self.data_of(node)?;
        if self.core.caches_pages() {
            if self.core.writes_back() {
                self.drop_privileges(caller, node, file)?;
            }
            return self.write_cached(caller, node, file, WriteOffset::End, data);
        }
        let _change = AttributeChange::begin(&self.core, node);
        let count = self.core.backend().data().append(caller, file, data)?;
        self.core.believed("append", file, count, data.len())
    }

    /// fallocate(2). Clears set-id bits as a write does. May block.
    pub fn allocate(
        &self,
        caller: &Caller,
        node: &Node,
        file: FileRef,
        mode: AllocateMode,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        self.writable()?;
        self.data_of(node)?;
        if self.core.capabilities.writes != Writes::Anywhere {
            return Err(Error::Unsupported("fallocate"));
        }
        if length == 0 {
            return Err(Error::Invalid("the range is empty"));
        }
        let end = offset.checked_add(length).filter(|&end| end <= FILE_SIZE_MAX);
        let end = end.ok_or(Error::TooBig)?;
        let changed = self.change_data(node, (offset, end), || {
            self.core.backend().data().allocate(file, mode, offset, length)
        });
        let changed = changed.and_then(|()| self.drop_privileges(caller, node, file));
        self.notify_inode(caller, node, changed)
    }

    /// lseek(2) with SEEK_DATA or SEEK_HOLE. May block.
    pub fn seek(&self, node: &Node, file: FileRef, offset: u64, target: SeekTarget) -> Result<u64> {
        self.data_of(node)?;
        if offset > FILE_SIZE_MAX {
            return Err(Error::NoData);
        }
        if let Some(pages) = node.inode.known_pages() {
            // Only the store knows where its holes are, so it needs the written data first.
            self.core.write_out_all(pages)?;
            if pages.has_unwritten() && self.core.takes_whole_files() {
                // It does not know them before the file is complete. Until then all of it counts as data.
                let size = self.attributes(node, None)?.size;
                return match target {
                    _ if offset >= size => Err(Error::NoData),
                    SeekTarget::Data => Ok(offset),
                    SeekTarget::Hole => Ok(size),
                };
            }
        }
        self.core.backend().data().seek(file, offset, target)
    }

    /// copy_file_range(2): by the store if it can, otherwise through memory. May block.
    pub fn copy_range(
        &self,
        caller: &Caller,
        from: (&Node, FileRef, u64),
        to: (&Node, FileRef, u64),
        length: u64,
    ) -> Result<u64> {
        self.writable()?;
        self.data_of(from.0)?;
        self.data_of(to.0)?;
        // A caller may pass any length to copy up to the source's end.
        let mut length = length.min(u64::MAX - from.2.max(to.2));
        let overlap = |length: u64| {
            from.0 == to.0 && from.2 < to.2.saturating_add(length) && to.2 < from.2 + length
        };
        if overlap(length) {
            let size = self.attributes(from.0, None)?.size;
            length = length.min(size.saturating_sub(from.2));
            if overlap(length) {
                return Err(Error::Invalid("source and target overlap"));
            }
        }
        let end = to.2 + length;
        if self.core.capabilities.writes != Writes::Anywhere {
            return self.copy_through_memory(caller, from, to, length);
        }
        if let Some(pages) = from.0.inode.known_pages() {
            self.core.write_out_all(pages)?;
        }
        let result = self.change_data(to.0, (to.2, end), || {
            self.core.backend().data().copy_range(from.1, from.2, to.1, to.2, length)
        });
        match result {
            Err(Error::Unsupported(_)) => self.copy_through_memory(caller, from, to, length),
            result => {
                let result = result.and_then(|copied| {
                    self.drop_privileges(caller, to.0, to.1)?;
                    Ok(copied)
                });
                self.notify_inode(caller, to.0, result)
            }
        }
    }

    /// Returns when the file's data (and attributes, if asked) are stable. fsync(2) of the object, for
    /// frontends whose store does not track opens; others use [`Vfs::sync_open`]. May block.
    ///
    /// # Errors
    /// The store's; an error of write-back is reported once.
    pub fn sync(&self, node: &Node, file: FileRef, mode: SyncMode) -> Result<()> {
        match node.inode.known_pages() {
            Some(pages) => self.core.sync_pages(pages, file, mode, None),
            None => self.sync_unpaged(node, file, mode),
        }
    }

    /// Like [`Vfs::sync`], for an object without pages. That of the root is for all files where data is written back: a kernel
    /// passes no `syncfs` on.
    fn sync_unpaged(&self, node: &Node, file: FileRef, mode: SyncMode) -> Result<()> {
        if node.id() == InodeId::ROOT && self.core.capabilities.writes_back {
            self.core.sync_all_pages()?;
        }
        self.core.sync_stored(file, mode)
    }

    /// Like [`Vfs::sync`], for one open file, which reports every error of write-back once.
    pub fn sync_open(&self, file: &OpenFile, mode: SyncMode) -> Result<()> {
        match file.node().inode.known_pages() {
            Some(pages) => {
                self.core.sync_pages(pages, file.reference(), mode, Some(file.error_cursor()))
            }
            None => self.sync_unpaged(file.node(), file.reference(), mode),
        }
    }

    /// A descriptor of the open file was closed: reports the errors of its write-back. If other programs see the store,
    /// brings written data there first. May block.
    pub fn flush(&self, file: &OpenFile) -> Result<()> {
        if let Some(pages) = file.node().inode.known_pages() {
            self.core.flush_pages(pages, file.error_cursor())?;
        }
        self.core.store_files().flush(file.reference())
    }

    /// Calls `work`, by which the store itself changes the bytes of `range` of a file.
    fn change_data<T>(
        &self,
        node: &Node,
        range: (u64, u64),
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let change = || {
            let _attributes = AttributeChange::begin(&self.core, node);
            work()
        };
        if self.core.caches_pages() {
            self.core.change_by_store(node, range, change)
        } else {
            change()
        }
    }

    /// Whether a change of `node`'s data by `caller` may clear set-id bits. A frontend whose client caches modes then
    /// notifies it.
    pub fn may_lose_set_ids(&self, caller: &Caller, node: &Node) -> bool {
        node.inode.last_attributes().mode & SET_IDS != 0 && !caller.keeps_set_ids()
    }

    /// Removes the file's capabilities, and clears the set-id bits that a change of data by `caller` does not leave. A
    /// backend does that for a write, where it knows the caller. Other changes, and writes that are written back later, call
    /// this function.
    fn drop_privileges(&self, caller: &Caller, node: &Node, file: FileRef) -> Result<()> {
        self.drop_capabilities(node)?;
        if !self.may_lose_set_ids(caller, node) {
            return Ok(());
        }
        let attributes = self.core.refresh(node, file)?;
        let mode = permission::set_ids_after_write(caller, &attributes);
        if mode == attributes.mode {
            return Ok(());
        }
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let _change = AttributeChange::begin(&self.core, node);
        self.core.backend().inodes().set_attributes(&Caller::root(), file, &set).map(drop)
    }

    /// Removes the file's capabilities. A kernel does that itself before it writes through its own pages, and leaves it to
    /// us where it does not.
    fn drop_capabilities(&self, node: &Node) -> Result<()> {
        if !self.has_xattrs() || node.inode.absent().lacks(CAPABILITY_XATTR) {
            return Ok(());
        }
        let caller = Caller::root();
        match self.get_xattr(&caller, node, CAPABILITY_XATTR) {
            Ok(_) => self.remove_xattr(&caller, node, CAPABILITY_XATTR),
            Err(
                Error::NoAttribute | Error::Unsupported(_) | Error::Access | Error::NotPermitted,
            ) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn data_of(&self, node: &Node) -> Result<()> {
        match node.kind() {
            crate::FileKind::Regular => Ok(()),
            crate::FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    fn copy_through_memory(
        &self,
        caller: &Caller,
        from: (&Node, FileRef, u64),
        to: (&Node, FileRef, u64),
        length: u64,
    ) -> Result<u64> {
        let mut buffer = vec![0; COPY_CHUNK.min(usize::try_from(length).unwrap_or(COPY_CHUNK))];
        let mut done = 0;
        while done < length {
            let want = buffer.len().min(usize::try_from(length - done).unwrap_or(COPY_CHUNK));
            let got = match self.read(from.0, from.1, from.2 + done, &mut buffer[..want]) {
                Ok(0) => break,
                Ok(got) => got,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            match self.write(caller, to.0, to.1, to.2 + done, &buffer[..got]) {
                Ok(put) => {
                    done += put as u64;
                    if put < got {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

impl OpenFile {
    /// Fails unless the file is open for reading.
    pub fn readable(&self) -> Result<()> {
        if self.mode().read { Ok(()) } else { Err(Error::BadHandle) }
    }

    /// Fails unless the file is open for writing.
    pub fn writable(&self) -> Result<()> {
        if self.mode().write { Ok(()) } else { Err(Error::BadHandle) }
    }
}
