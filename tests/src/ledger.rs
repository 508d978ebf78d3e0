//! A store that tracks its open files strictly.
//!
//! # Boundary
//! Stands between the file system and a [`Hostile`] store. If the latter claims to track opens,
//! this numbers open files, and records every call through a file that is not open, is another
//! object's, or is not open for this kind of access; such a call fails. If it claims not to, every
//! call must come without an open file.
//!
//! # Why
//! The memory store knows no open files, so its own claim would prove nothing. Weakness: here an
//! object without a name can be reached without an open file; on a host it cannot.

use crate::Hostile;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_vfs::{
    AllocateMode, Attributes, Backend, Caller, Capabilities, Cookie, Creation, Data, Entry, Error,
    Export, FileId, FileRef, InodeId, Inodes, Listing, Name, Names, NewNode, OpenFiles, OpenMode,
    Opens, RenameMode, Result, SeekTarget, SetAttributes, SyncMode, Totals, Watch, Xattrs,
};

static LEDGER: LockClass = LockClass::new(280, "ledger", "open files of a store under test");

/// Time limit for closing remaining files.
const CLOSED: Duration = Duration::from_secs(20);

/// See the module. Clones are one store.
#[derive(Debug, Clone)]
pub struct Ledger {
    store: Hostile,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    open: HashMap<FileId, (InodeId, OpenMode)>,
    wrongs: Vec<String>,
    writers: HashSet<(InodeId, ThreadId)>,
}

/// The access for which a call needs its file to be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Read,
    Write,
    /// Open, for any access.
    Open,
    /// If it uses an open file, one of this object.
    Nothing,
}

impl Ledger {
    /// Keeps the ledger of `store`.
    pub fn new(store: Hostile) -> Self {
        Self { store, state: Arc::new(Mutex::new(&LEDGER, State::default())) }
    }

    /// Asserts that every file is closed, and that every call used the right one. The thread that
    /// writes the last page of a file back closes the remaining files one after the other, and may
    /// still do so: once there were thousands, on a busy machine.
    ///
    /// # Panics
    /// If not.
    pub fn assert_settled(&self) {
        let end = Instant::now() + CLOSED;
        while self.open_files() > 0 && Instant::now() < end {
            std::thread::yield_now();
        }
        self.assert_right();
        let open: Vec<_> = self.state.lock().open.values().copied().collect();
        let some = &open[..open.len().min(3)];
        assert!(open.is_empty(), "the store still has {} open files: {some:?}", open.len());
    }

    /// Asserts that every call came by the right file.
    ///
    /// # Panics
    /// If not.
    pub fn assert_right(&self) {
        let wrongs = self.state.lock().wrongs.clone();
        assert!(wrongs.is_empty(), "{wrongs:?}");
    }

    /// How many files the store has open.
    pub fn open_files(&self) -> usize {
        self.state.lock().open.len()
    }

    /// Asserts that the file system over it is gone, with all its memory.
    ///
    /// # Panics
    /// If not.
    pub fn assert_alone(&self) {
        assert_eq!(Arc::strong_count(&self.state), 1, "somebody still has the store");
    }

    /// Whether `thread` ever wrote to `inode`.
    pub fn wrote(&self, inode: InodeId, thread: ThreadId) -> bool {
        self.state.lock().writers.contains(&(inode, thread))
    }

    fn tracks(&self) -> bool {
        self.store.capabilities().opens == Opens::Tracked
    }

    /// The file as the store knows it, if a call that has this `need` may come by it.
    fn by(&self, file: FileRef, need: Need) -> Result<FileRef> {
        let plain = FileRef::unopened(file.inode);
        let mut state = self.state.lock();
        let why = match (file.file, state.open.get(&file.file).copied()) {
            (FileId::NONE, _) if need == Need::Nothing || !self.tracks() => return Ok(plain),
            (FileId::NONE, _) => "by no open file",
            (_, None) => "by a file that is not open",
            (_, Some((inode, _))) if inode != file.inode => "by another object's file",
            (_, Some((_, mode))) => match need {
                Need::Read if !mode.read => "by a file that cannot be read",
                Need::Write if !mode.write => "by a file that cannot be written",
                _ => return Ok(plain),
            },
        };
        state.wrongs.push(format!("{need:?} of {} {why}", file.inode.0));
        Err(Error::BadHandle)
    }

    fn creation_below(&self) -> Result<&dyn Creation> {
        self.store.creation().ok_or(Error::Unsupported("creating"))
    }

    fn opened(&self, inode: InodeId, mode: OpenMode) -> FileId {
        if !self.tracks() {
            return FileId::NONE;
        }
        let mut state = self.state.lock();
        state.last += 1;
        let file = FileId(state.last);
        state.open.insert(file, (inode, mode));
        file
    }
}

impl Backend for Ledger {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn root(&self) -> Result<Entry> {
        self.store.root()
    }

    fn sync_fs(&self) -> Result<()> {
        self.store.sync_fs()
    }

    fn end(&self) -> Result<()> {
        self.store.end()
    }

    fn totals(&self) -> Result<Totals> {
        self.store.totals()
    }

    fn names(&self) -> &dyn Names {
        self
    }

    fn creation(&self) -> Option<&dyn Creation> {
        self.store.creation().map(|_| self as &dyn Creation)
    }

    fn inodes(&self) -> &dyn Inodes {
        self
    }

    fn data(&self) -> &dyn Data {
        self
    }

    fn open_files(&self) -> &dyn OpenFiles {
        self
    }

    fn xattrs(&self) -> Option<&dyn Xattrs> {
        self.store.xattrs()
    }

    fn export(&self) -> Option<&dyn Export> {
        self.store.export()
    }

    fn watching(&self) -> Option<&dyn Watch> {
        self.store.watching()
    }
}

impl Names for Ledger {
    fn lookup(&self, caller: &Caller, parent: InodeId, name: Name<'_>) -> Result<Entry> {
        self.store.names().lookup(caller, parent, name)
    }

    fn list(&self, directory: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()> {
        self.store.names().list(self.by(directory, Need::Nothing)?, from, listing)
    }

    fn unlink(&self, caller: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        self.store.names().unlink(caller, parent, name)
    }

    fn remove_directory(&self, caller: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        self.store.names().remove_directory(caller, parent, name)
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (InodeId, Name<'_>),
        to: (InodeId, Name<'_>),
        mode: RenameMode,
    ) -> Result<()> {
        self.store.names().rename(caller, from, to, mode)
    }
}

impl Creation for Ledger {
    fn create(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
    ) -> Result<Entry> {
        self.creation_below()?.create(caller, parent, name, new)
    }

    fn create_and_open(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
        mode: OpenMode,
    ) -> Result<(Entry, FileId)> {
        let (entry, _) = self.creation_below()?.create_and_open(caller, parent, name, new, mode)?;
        Ok((entry, self.opened(entry.inode, mode)))
    }

    fn create_unnamed(
        &self,
        caller: &Caller,
        parent: InodeId,
        new: &NewNode<'_>,
        mode: OpenMode,
    ) -> Result<(Entry, FileId)> {
        let (entry, _) = self.creation_below()?.create_unnamed(caller, parent, new, mode)?;
        Ok((entry, self.opened(entry.inode, mode)))
    }

    fn link(
        &self,
        caller: &Caller,
        inode: InodeId,
        parent: InodeId,
        name: Name<'_>,
    ) -> Result<Entry> {
        self.creation_below()?.link(caller, inode, parent, name)
    }
}

impl Inodes for Ledger {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        self.store.inodes().attributes(self.by(file, Need::Nothing)?)
    }

    fn forget(&self, inode: InodeId, references: u64) {
        self.store.inodes().forget(inode, references);
    }

    fn set_attributes(
        &self,
        caller: &Caller,
        file: FileRef,
        set: &SetAttributes,
    ) -> Result<Attributes> {
        self.store.inodes().set_attributes(caller, self.by(file, Need::Nothing)?, set)
    }

    fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        self.store.inodes().read_link(inode)
    }
}

impl Data for Ledger {
    fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.store.data().read(self.by(file, Need::Read)?, offset, into)
    }

    fn write(&self, caller: &Caller, file: FileRef, offset: u64, data: &[u8]) -> Result<usize> {
        let plain = self.by(file, Need::Write)?;
        self.state.lock().writers.insert((file.inode, std::thread::current().id()));
        self.store.data().write(caller, plain, offset, data)
    }

    fn append(&self, caller: &Caller, file: FileRef, data: &[u8]) -> Result<usize> {
        self.store.data().append(caller, self.by(file, Need::Write)?, data)
    }

    fn allocate(&self, file: FileRef, mode: AllocateMode, offset: u64, length: u64) -> Result<()> {
        self.store.data().allocate(self.by(file, Need::Write)?, mode, offset, length)
    }

    fn seek(&self, file: FileRef, offset: u64, target: SeekTarget) -> Result<u64> {
        self.store.data().seek(self.by(file, Need::Open)?, offset, target)
    }

    fn copy_range(
        &self,
        from: FileRef,
        from_offset: u64,
        to: FileRef,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        let (from, to) = (self.by(from, Need::Read)?, self.by(to, Need::Write)?);
        self.store.data().copy_range(from, from_offset, to, to_offset, length)
    }

    fn sync(&self, file: FileRef, mode: SyncMode) -> Result<()> {
        self.store.data().sync(self.by(file, Need::Open)?, mode)
    }
}

impl OpenFiles for Ledger {
    fn open(&self, caller: &Caller, inode: InodeId, mode: OpenMode) -> Result<FileId> {
        self.store.open_files().open(caller, inode, mode)?;
        Ok(self.opened(inode, mode))
    }

    fn close(&self, file: FileRef) {
        let inode = FileRef::unopened(file.inode);
        let known = self.state.lock().open.remove(&file.file);
        if known.is_none_or(|(inode, _)| inode != file.inode) {
            self.state.lock().wrongs.push(format!("close of {file:?}, open: {known:?}"));
        }
        self.store.open_files().close(inode);
    }

    fn flush(&self, file: FileRef) -> Result<()> {
        self.store.open_files().flush(self.by(file, Need::Open)?)
    }
}
