//! Objects and their bytes.
//!
//! # Boundary
//! The table has the attributes. Each read is one request for a range of the inode's version, or of its base.

use super::table::{Local, Node, What};
use super::{ObjectBackend, Shared};
use crate::store::{Span, Store, StoreError};
use uvfs_vfs::{
    Attributes, Caller, Content, Creation, Data, Entry, Error, FileId, FileRef, InodeId, Inodes,
    Name, NewNode, OpenFiles, OpenMode, ReadRun, Result, SetAttributes, SyncMode, WholeContent,
};

impl Shared {
    pub(super) fn attributes_of(&self, id: InodeId) -> Result<Attributes> {
        if id == InodeId::ROOT {
            return Ok(self.directory(1));
        }
        let node = self.table.get(id).ok_or(Error::Stale)?;
        Ok(match &node.what {
            What::Directory => self.directory(node.number),
            What::Object { size, modified, .. } | What::Local(Local { size, modified, .. }) => {
                self.file(&node, *size, *modified)
            }
            What::Orphan { size, .. } => {
                Attributes { links: 0, ..self.file(&node, *size, self.since) }
            }
        })
    }

    pub(super) fn read(&self, id: InodeId, offset: u64, into: &mut [u8]) -> Result<Content> {
        let node = self.table.get(id).ok_or(Error::Stale)?;
        let (stored, size) = match &node.what {
            What::Directory => return Err(Error::IsDirectory),
            What::Object { tag, size, .. } => (Some((tag, *size)), *size),
            What::Local(Local { base, size, .. }) => {
                (base.as_ref().map(|(tag, keep)| (tag, *keep)), *size)
            }
            What::Orphan { content: Some(content), size } => {
                let count = copy_from(content, offset, *size, into);
                return Ok(Content { count, version: node.version });
            }
            // Data that was not read before its name was removed is gone.
            What::Orphan { content: None, size } => {
                return if offset < *size { Err(Error::Stale) } else { Ok(Content::default()) };
            }
        };
        // No longer than `into`.
        let count = size.saturating_sub(offset).min(into.len() as u64) as usize;
        let (keep, of) = stored.map_or((0, None), |(tag, keep)| (keep, Some(tag)));
        let from_store = keep.saturating_sub(offset).min(count as u64);
        if let Some(tag) = of.filter(|_| from_store > 0) {
            let key = node.key();
            let span = match &node.what {
                What::Object { size, .. } if from_store == *size => Span::Whole,
                _ => Span::Range(offset..offset + from_store),
            };
            let read = self.store.read(&key, tag, span, &mut into[..from_store as usize]);
            // Perhaps this file has another version or name by now; or a put of it has replaced that version, whose answer was lost.
            if let Err(StoreError::Changed | StoreError::NotFound) = read
                && (self.is_elsewhere(&node)
                    || self.settle(id, &key).is_ok_and(|now| now.is_some_and(|now| now != *tag)))
            {
                return self.read(id, offset, into);
            }
            read.map_err(|error| {
                if let (StoreError::Changed | StoreError::NotFound, Some((directory, name))) =
                    (&error, node.place())
                {
                    // The next open finds the new version.
                    self.went_elsewhere(directory, name);
                }
                self.user_error("reading", &key, error)
            })?;
        }
        into[from_store as usize..count].fill(0);
        Ok(Content { count, version: node.version })
    }

    /// Whether the file has another version or another name than `node` by now.
    fn is_elsewhere(&self, node: &Node) -> bool {
        let now = self.table.get(node.id);
        now.is_some_and(|now| now.what.tag() != node.what.tag() || now.key() != node.key())
    }
}

/// Copies the bytes of `content`, followed by zeros up to `size`, from `offset` on; returns their number.
fn copy_from(content: &[u8], offset: u64, size: u64, into: &mut [u8]) -> usize {
    let count = size.saturating_sub(offset).min(into.len() as u64) as usize;
    let rest = usize::try_from(offset).ok().and_then(|offset| content.get(offset..)).unwrap_or(&[]);
    let known = rest.len().min(count);
    into[..known].copy_from_slice(&rest[..known]);
    into[known..count].fill(0);
    count
}

impl Inodes for Shared {
    fn set_attributes(&self, _: &Caller, file: FileRef, set: &SetAttributes) -> Result<Attributes> {
        self.set_attributes(file, set)
    }

    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        self.attributes_of(file.inode)
    }

    fn forget(&self, inode: InodeId, references: u64) {
        self.table.forget(inode, references);
    }
}

impl Inodes for ObjectBackend {
    fn set_attributes(&self, _: &Caller, file: FileRef, set: &SetAttributes) -> Result<Attributes> {
        self.shared.set_attributes(file, set)
    }

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

    fn replace(&self, _: &Caller, file: FileRef, content: &dyn WholeContent) -> Result<Attributes> {
        self.shared.replace(file.inode, content)
    }

    fn give_up(&self, file: FileRef) {
        self.shared.give_up(file);
    }

    fn sync(&self, file: FileRef, _: SyncMode) -> Result<()> {
        self.shared.upload_local(file.inode)
    }
}

impl Creation for Shared {
    fn create(
        &self,
        _: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
    ) -> Result<Entry> {
        self.create(parent, name, new)
    }

    fn create_and_open(
        &self,
        _: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
        mode: OpenMode,
    ) -> Result<(Entry, FileId)> {
        self.create_and_open(parent, name, new, mode)
    }

    fn link(&self, _: &Caller, _: InodeId, _: InodeId, _: Name<'_>) -> Result<Entry> {
        Err(Error::NotPermitted)
    }
}

impl OpenFiles for Shared {
    fn open(&self, _: &Caller, inode: InodeId, mode: OpenMode) -> Result<FileId> {
        self.open(inode, mode)
    }

    fn close(&self, file: FileRef) {
        self.close(file);
    }

    fn flush(&self, file: FileRef) -> Result<()> {
        self.flush(file)
    }
}
