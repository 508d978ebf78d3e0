//! Objects and their bytes.
//!
//! # Boundary
//! Attributes are the table's; each read is one request for a range of the version that the inode is.

use super::table::What;
use super::{ObjectBackend, Shared};
use crate::store::Store;
use uvfs_vfs::{Attributes, Content, Data, Error, FileRef, InodeId, Inodes, ReadRun, Result};

impl Shared {
    pub(super) fn attributes_of(&self, id: InodeId) -> Result<Attributes> {
        if id == InodeId::ROOT {
            return Ok(self.directory(1));
        }
        let node = self.table.get(id).ok_or(Error::Stale)?;
        Ok(match &node.what {
            What::Directory => self.directory(node.number()),
            What::Object { size, modified, .. } => {
                self.file(node.number(), *size, *modified, node.version())
            }
        })
    }

    pub(super) fn read(&self, id: InodeId, offset: u64, into: &mut [u8]) -> Result<Content> {
        let node = self.table.get(id).ok_or(Error::Stale)?;
        let What::Object { tag, size, .. } = &node.what else { return Err(Error::IsDirectory) };
        let end = size.min(&offset.saturating_add(into.len() as u64)).to_owned();
        let range = offset.min(end)..end;
        // No longer than `into`.
        let count = (range.end - range.start) as usize;
        if count > 0 {
            let key = node.key();
            let read = self.store.read(&key, tag, range, &mut into[..count]);
            read.map_err(|error| self.told("reading", &key, error))?;
        }
        Ok(Content { count, version: node.version() })
    }
}

impl Inodes for Shared {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        self.attributes_of(file.inode)
    }

    fn forget(&self, inode: InodeId, references: u64) {
        self.table.forget(inode, references);
    }
}

impl Inodes for ObjectBackend {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        self.shared.attributes_of(file.inode)
    }

    fn forget(&self, inode: InodeId, references: u64) {
        self.shared.table.forget(inode, references);
    }
}

impl Data for ObjectBackend {
    fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        Ok(self.shared.read(file.inode, offset, into)?.count)
    }

    fn read_with_version(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<Content> {
        self.shared.read(file.inode, offset, into)
    }

    fn read_run(&self, run: ReadRun) {
        self.runs.submit(run);
    }
}
