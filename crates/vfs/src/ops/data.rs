//! File data: reading, writing, and the calls beside them.
//!
//! Functions here take a node and a backend file reference rather than an [`OpenFile`], since a
//! frontend whose store does not track opens has none.

use super::OpenFile;
use super::change::AttributeChange;
use crate::attributes::SetAttributes;
use crate::backend::{AllocateMode, FileRef, PageCaching, SeekTarget, SyncMode};
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::inode::{Clock, Node, Ticket};
use crate::page::{FOLIO_BYTES, InodePages};
use crate::permission;
use crate::vfs::Vfs;
use std::sync::Arc;

/// Largest file and offset: 2^63 - 1.
pub(super) const FILE_SIZE_MAX: u64 = i64::MAX as u64;

/// Set-user-id and set-group-id.
const SET_IDS: u32 = 0o6000;

/// Bytes moved at once by a copy that the store cannot do itself.
const COPY_CHUNK: usize = 1 << 20;

/// A change of a file's data in flight. Ends when dropped.
#[derive(Debug)]
pub(super) struct DataChange<'a> {
    clock: &'a Clock,
    pages: Option<(&'a InodePages, Ticket)>,
    _attributes: Option<AttributeChange<'a>>,
}

impl Drop for DataChange<'_> {
    fn drop(&mut self) {
        if let Some((pages, begin)) = self.pages {
            pages.end_change(self.clock, begin);
        }
    }
}

impl Vfs {
    /// Reads bytes; fewer than asked for mean the end of the file. May block.
    pub fn read(&self, node: &Node, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.data_of(node)?;
        if offset >= FILE_SIZE_MAX || into.is_empty() {
            return Ok(0);
        }
        let count = match self.core.capabilities.caching {
            PageCaching::Store => self.core.backend().read(file, offset, into)?,
            PageCaching::Core => self.read_cached(node, file, offset, into)?,
        };
        node.inode.was_read();
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
        self.writable()?;
        self.data_of(node)?;
        let Some(room) = FILE_SIZE_MAX.checked_sub(offset).filter(|&room| room > 0) else {
            return Err(Error::TooBig);
        };
        let data = &data[..data.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        let _change = self.begin_data_change(node, offset, offset + data.len() as u64);
        self.core.backend().write(caller, file, offset, data)
    }

    /// Writes bytes at the end of the file, wherever that is by then. May block.
    pub fn append(
        &self,
        caller: &Caller,
        node: &Node,
        file: FileRef,
        data: &[u8],
    ) -> Result<usize> {
        self.writable()?;
        self.data_of(node)?;
        let _change = self.begin_data_change(node, 0, u64::MAX);
        self.core.backend().append(caller, file, data)
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
        if length == 0 {
            return Err(Error::Invalid("an empty range"));
        }
        let end = offset.checked_add(length).filter(|&end| end <= FILE_SIZE_MAX);
        let end = end.ok_or(Error::TooBig)?;
        {
            let _change = self.begin_data_change(node, offset, end);
            self.core.backend().allocate(file, mode, offset, length)?;
        }
        self.drop_set_ids(caller, node, file)
    }

    /// lseek(2) with SEEK_DATA or SEEK_HOLE. May block.
    pub fn seek(&self, node: &Node, file: FileRef, offset: u64, target: SeekTarget) -> Result<u64> {
        self.data_of(node)?;
        if offset > FILE_SIZE_MAX {
            return Err(Error::NoData);
        }
        self.core.backend().seek(file, offset, target)
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
        let end = to.2.checked_add(length).ok_or(Error::TooBig)?;
        let source_end = from.2.checked_add(length).ok_or(Error::TooBig)?;
        if from.0 == to.0 && from.2 < end && to.2 < source_end {
            return Err(Error::Invalid("source and target overlap"));
        }
        let change = self.begin_data_change(to.0, to.2, end);
        let result = self.core.backend().copy_range(from.1, from.2, to.1, to.2, length);
        drop(change);
        match result {
            Err(Error::Unsupported(_)) => self.copy_through_memory(caller, from, to, length),
            Ok(copied) => {
                self.drop_set_ids(caller, to.0, to.1)?;
                Ok(copied)
            }
            failed => failed,
        }
    }

    /// Returns when the file's data (and attributes, if asked) are stable. May block.
    pub fn sync(&self, file: FileRef, mode: SyncMode) -> Result<()> {
        self.core.backend().sync(file, mode)
    }

    /// A descriptor of the file was closed: reports what writing it ran into. May block.
    pub fn flush(&self, file: FileRef) -> Result<()> {
        self.core.backend().flush(file)
    }

    /// The bytes from `start` to `end` of `node` are about to change.
    pub(super) fn begin_data_change<'a>(
        &'a self,
        node: &'a Node,
        start: u64,
        end: u64,
    ) -> DataChange<'a> {
        let mut change = self.begin_page_change(node, start, end);
        change._attributes = Some(AttributeChange::begin(&self.core, node));
        change
    }

    /// As [`Vfs::begin_data_change`], for a caller that has begun to change the attributes itself.
    pub(super) fn begin_page_change<'a>(
        &'a self,
        node: &'a Node,
        start: u64,
        end: u64,
    ) -> DataChange<'a> {
        let clock = &self.core.clock;
        let pages = (self.core.capabilities.caching == PageCaching::Core).then(|| {
            let pages = &**self.pages_of(node);
            (pages, pages.begin_change(clock, start, end))
        });
        DataChange { clock, pages, _attributes: None }
    }

    /// Who is not privileged and changes a file's data takes its set-id bits away. A backend does
    /// that for a write, where it knows the caller; for other changes it is done here.
    fn drop_set_ids(&self, caller: &Caller, node: &Node, file: FileRef) -> Result<()> {
        if caller.is_privileged() || node.inode.last_attributes().mode & SET_IDS == 0 {
            return Ok(());
        }
        let attributes = self.core.refresh(node, file)?;
        let mode = permission::set_ids_after_write(caller, &attributes);
        if mode == attributes.mode {
            return Ok(());
        }
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let _change = AttributeChange::begin(&self.core, node);
        self.core.backend().set_attributes(&Caller::root(), file, &set).map(drop)
    }

    fn pages_of<'a>(&self, node: &'a Node) -> &'a Arc<InodePages> {
        node.inode
            .rest()
            .used()
            .pages
            .get_or_init(|| Arc::new(InodePages::new(self.core.pages.clone())))
    }

    fn data_of(&self, node: &Node) -> Result<()> {
        match node.kind() {
            crate::FileKind::Regular => Ok(()),
            crate::FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    /// Reads folio by folio: from the cache, or from the store into the cache.
    fn read_cached(
        &self,
        node: &Node,
        file: FileRef,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize> {
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let (index, skip) = (at / FOLIO_BYTES as u64, (at % FOLIO_BYTES as u64) as usize);
            let folio = match self.folio(node, file, index) {
                Ok(folio) => folio,
                // What was read before the failure is good; the next call meets the failure.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            let rest = folio.get(skip..).unwrap_or(&[]);
            let count = rest.len().min(into.len() - done);
            into[done..done + count].copy_from_slice(&rest[..count]);
            done += count;
            if folio.len() < FOLIO_BYTES || count == 0 {
                break;
            }
        }
        Ok(done)
    }

    fn folio(&self, node: &Node, file: FileRef, index: u64) -> Result<Arc<[u8]>> {
        let core = &self.core;
        let pages = self.pages_of(node);
        if let Some(folio) = pages.find(index) {
            core.counters.page_hits.hit();
            return Ok(folio);
        }
        core.counters.page_misses.hit();
        let ticket = core.clock.now();
        let mut data = vec![0; FOLIO_BYTES];
        let mut filled = 0;
        // A store may answer short in the middle of a file; only an empty answer is the end.
        while filled < FOLIO_BYTES {
            let offset = index * FOLIO_BYTES as u64 + filled as u64;
            match core.backend().read(file, offset, &mut data[filled..])? {
                0 => break,
                count => filled += count.min(FOLIO_BYTES - filled),
            }
        }
        data.truncate(filled);
        let folio: Arc<[u8]> = data.into();
        pages.insert(&core.counters, index, folio.clone(), ticket);
        Ok(folio)
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
