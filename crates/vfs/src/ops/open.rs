//! Opening and closing: one request from end to end.
//!
//! An open has four steps: the permission check (`permission`), the question whether the store tracks opens (`Opens`),
//! the store's own open with no lock held, and an [`OpenFile`] that closes it when dropped. `O_TRUNC` is a change of
//! attributes after the open, so there is only one truncate.

use crate::attributes::{FileKind, SetAttributes};
use crate::backend::{FileId, FileRef, OpenMode, Opens};
use crate::caller::{Caller, Checks};
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::observers::Origin;
use crate::page::{ErrorCursor, FilePages};
use crate::permission::Access;
use crate::vfs::{Core, Vfs};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use uvfs_concurrent::shared::Shared;

/// An open file or directory. Closes when dropped, which may block on the store.
pub struct OpenFile {
    core: Shared<Core>,
    node: Node,
    file: FileId,
    mode: OpenMode,
    bypass: bool,
    /// The frontend that has it.
    origin: Origin,
    /// The write-back errors that it has reported.
    error_cursor: ErrorCursor,
    /// Dropped after the hold above.
    after_close: AfterClose,
}

/// Runs after the close of an unlinked file: checks whether its unwritten data can still be read.
#[derive(Default)]
struct AfterClose(Option<(Shared<Core>, Arc<FilePages>)>);

impl Drop for AfterClose {
    fn drop(&mut self) {
        if let Some((core, pages)) = &self.0 {
            core.look_whether_gone(pages);
        }
    }
}

impl Vfs {
    /// Opens a regular file, or a directory for listing. May block.
    ///
    /// # Errors
    /// [`Error::Access`]; [`Error::IsDirectory`] when opening a directory for writing;
    /// [`Error::SymlinkLoop`] for a symbolic link; [`Error::NoData`] for a pipe, socket or device,
    /// which only a kernel can open.
    pub fn open(&self, caller: &Caller, node: &Node, mode: OpenMode) -> Result<OpenFile> {
        match node.kind() {
            FileKind::Directory if mode.write || mode.truncate => return Err(Error::IsDirectory),
            FileKind::Symlink => return Err(Error::SymlinkLoop),
            kind if kind.is_special() => return Err(Error::NoData),
            _ => {}
        }
        if mode.write || mode.truncate {
            self.writable()?;
        }
        self.check(caller, node, wanted_access(mode))?;
        let core = &self.core;
        if let Some(opened) = self.open_shared(caller, node, mode) {
            return Ok(opened);
        }
        let file = match core.capabilities.opens {
            Opens::Stateless => (FileId::NONE, mode),
            Opens::Tracked => {
                let plain = OpenMode { truncate: false, ..mode };
                let mut wish = core.store_mode(node.kind(), plain);
                let mut opened = core.store_files().open(caller, node.id(), wish);
                if wish.read != plain.read && opened.is_err() {
                    // The caller may have the right to write and not to read.
                    wish.read = plain.read;
                    opened = core.store_files().open(caller, node.id(), wish);
                }
                let file = opened.inspect_err(|error| {
                    if matches!(error, Error::Stale) {
                        core.went_stale(node);
                    }
                })?;
                (file, wish)
            }
        };
        let opened = OpenFile::new(self, node.clone(), file, mode, caller);
        if mode.write && core.writes_back() && core.backend.xattrs().is_some() {
            // Before the first write, a kernel asks for file capabilities to remove. The write should not wait for the
            // store then. If this call fails, the kernel asks itself.
            drop(core.absent_of(node));
        }
        if mode.truncate {
            let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
            self.set_attributes(caller, node, Some(&opened), &set)?;
        }
        Ok(opened)
    }
}

impl Vfs {
    /// Like [`Vfs::open`], for a file that the store has open already. For callers whose permission was checked before.
    /// Never blocks on the store.
    pub fn try_open(&self, caller: &Caller, node: &Node, mode: OpenMode) -> Option<OpenFile> {
        let refused = caller.checks != Checks::Done || (mode.write && self.writable().is_err());
        if refused { None } else { self.open_shared(caller, node, mode) }
    }

    /// Opens `node`, which `caller` may open, without the store: the store has the file open for the same user in a
    /// suitable mode. Its earlier answer stays valid for as long as the attributes.
    fn open_shared(&self, caller: &Caller, node: &Node, mode: OpenMode) -> Option<OpenFile> {
        let core = &self.core;
        let pages = node.inode.known_pages().filter(|_| core.caches_pages())?;
        if mode.truncate || !node.inode.attributes_believed() {
            return None;
        }
        let wished = core.store_mode(node.kind(), mode);
        let file = pages.opens.share(wished, (caller.uid, caller.gid))?;
        let (core, node, error_cursor) = (core.clone(), node.clone(), pages.errors.now());
        let (origin, after_close) = (caller.origin, AfterClose::default());
        Some(OpenFile { core, node, file, mode, bypass: false, origin, error_cursor, after_close })
    }

    /// Like [`Vfs::flush`], if nothing was written through the open file and no data is unwritten. Never blocks on the
    /// store.
    pub fn try_flush(&self, file: &OpenFile) -> Option<Result<()>> {
        let pages = file.node.inode.known_pages().filter(|_| self.core.caches_pages())?;
        if file.mode.write || pages.has_unwritten() {
            return None;
        }
        Some(pages.errors.check_and_advance(&file.error_cursor).map_or(Ok(()), Err))
    }
}

impl Core {
    /// The store's open mode for a file that was opened with `mode` here. Where pages are cached, partly written pages
    /// are read first, and every write has an offset.
    pub(super) fn store_mode(&self, kind: FileKind, mode: OpenMode) -> OpenMode {
        if self.caches_pages() && kind == FileKind::Regular {
            OpenMode { read: mode.read || mode.write, append: false, ..mode }
        } else {
            mode
        }
    }
}

fn wanted_access(mode: OpenMode) -> Access {
    let mut wanted = Access::empty();
    wanted.set(Access::READ, mode.read);
    wanted.set(Access::WRITE, mode.write || mode.truncate);
    wanted
}

impl OpenFile {
    /// `file` was opened in the store with the mode beside it.
    pub(super) fn new(
        vfs: &Vfs,
        node: Node,
        (file, stored): (FileId, OpenMode),
        mode: OpenMode,
        opener: &Caller,
    ) -> Self {
        let core = vfs.core.clone();
        let mut error_cursor = ErrorCursor::default();
        if core.caches_pages() && node.kind() == FileKind::Regular {
            let pages = core.pages_of(&node);
            error_cursor = pages.errors.now();
            if file != FileId::NONE {
                pages.opens.opened(file, stored, (opener.uid, opener.gid));
            }
        }
        let (origin, after_close) = (opener.origin, AfterClose::default());
        Self { core, node, file, mode, bypass: false, origin, error_cursor, after_close }
    }

    /// The write-back errors that it has reported.
    pub(super) fn error_cursor(&self) -> &ErrorCursor {
        &self.error_cursor
    }

    /// The object.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Mode in which the file is open.
    pub fn mode(&self) -> OpenMode {
        self.mode
    }

    /// Closes it without the store, if another open file shares the store's file, no data is unwritten, and nothing was
    /// written through this one.
    ///
    /// # Errors
    /// The open file otherwise. Drop it where that may block.
    pub fn try_close(mut self) -> std::result::Result<(), Self> {
        let shared = match self.node.inode.known_pages() {
            Some(pages) => {
                let plain = !self.mode.write && !self.bypass && self.file != FileId::NONE;
                plain && !pages.has_unwritten() && pages.opens.release_shared(self.file)
            }
            None => false,
        };
        if !shared {
            return Err(self);
        }
        // Its drop has nothing left to do.
        self.file = FileId::NONE;
        Ok(())
    }

    /// The backend's reference to it.
    pub fn reference(&self) -> FileRef {
        FileRef { inode: self.node.id(), file: self.file }
    }

    /// The host file behind it, for a frontend that lets the kernel read and write directly. From now on, until this is
    /// dropped, the object's attributes are always read from the store. If it is open for writing, no frontend may
    /// cache them.
    pub fn bypass(&mut self) -> Option<Arc<OwnedFd>> {
        let file = self.core.store_files().os_file(self.reference())?;
        if !std::mem::replace(&mut self.bypass, true) {
            self.node.inode.begin_bypass(self.mode.write);
            self.notify_bypass();
        }
        Some(file)
    }

    /// Undoes the last [`OpenFile::bypass`]: the kernel refused it.
    pub fn cancel_bypass(&mut self) {
        if std::mem::replace(&mut self.bypass, false) {
            self.node.inode.end_bypass(&self.core.clock, self.mode.write);
            self.notify_bypass();
        }
    }

    /// Writes around us are invisible. Other frontends are notified when they may begin, and cache nothing of the file
    /// from then on. They are notified again when these writes have ended.
    fn notify_bypass(&self) {
        if self.mode.write {
            let id = self.node.id();
            self.core.observers.notify(self.origin, |observer| observer.inode_changed(id));
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.cancel_bypass();
        if let Some(pages) = self.core.held_back_of_unlinked(&self.node) {
            self.after_close.0 = Some((self.core.clone(), pages));
        }
        if self.file == FileId::NONE {
            return;
        }
        match self.node.inode.known_pages() {
            Some(pages) => self.core.close_pages(pages, self.reference(), self.mode),
            None => self.core.store_files().close(self.reference()),
        }
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "OpenFile({:?}, {:?})", self.node, self.file)
    }
}
