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
    Backend, Caller, Creation, Data, Entry, Error, Export, FileId, FileRef, InodeId, Inodes, Name,
    Names, NewNode, OpenFiles, OpenMode, Opens, Result, Watch, Xattrs, forward,
};

static LEDGER: LockClass = LockClass::new(280, "ledger", "open files of a store under test");

/// Time limit for closing remaining files.
const CLOSED: Duration = Duration::from_secs(20);

/// See the module. Clones are one store.
#[derive(Debug, Clone)]
pub struct Ledger {
    inner: Hostile,
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
        Self { inner: store, state: Arc::new(Mutex::new(&LEDGER, State::default())) }
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
        assert_eq!(Arc::strong_count(&self.state), 1, "another owner still has the store");
    }

    /// Whether `thread` ever wrote to `inode`.
    pub fn wrote(&self, inode: InodeId, thread: ThreadId) -> bool {
        self.state.lock().writers.contains(&(inode, thread))
    }

    fn tracks(&self) -> bool {
        self.inner.capabilities().opens == Opens::Tracked
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

    /// [`Ledger::by`] around a call.
    fn checked<T>(
        &self,
        need: Need,
        file: FileRef,
        _: Option<Name<'_>>,
        act: impl FnOnce(&Hostile, FileRef) -> Result<T>,
    ) -> Result<T> {
        act(&self.inner, self.by(file, need)?)
    }

    fn creation_below(&self) -> Result<&dyn Creation> {
        self.inner.creation().ok_or(Error::Unsupported("creating"))
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
    forward!(capabilities, root, ended, losses);
    forward!(checked { sync_fs: Need::Nothing, end: Need::Nothing, totals: Need::Nothing });
    forward!(families: names, creation, inodes, data, open_files);

    fn xattrs(&self) -> Option<&dyn Xattrs> {
        self.inner.xattrs()
    }

    fn export(&self) -> Option<&dyn Export> {
        self.inner.export()
    }

    fn watching(&self) -> Option<&dyn Watch> {
        self.inner.watching()
    }
}

impl Names for Ledger {
    forward!(checked {
        lookup: Need::Nothing,
        list: Need::Nothing,
        unlink: Need::Nothing,
        remove_directory: Need::Nothing,
        rename: Need::Nothing,
    });
}

impl Creation for Ledger {
    forward!(checked { create: Need::Nothing, link: Need::Nothing });

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
}

impl Inodes for Ledger {
    forward!(forget);
    forward!(checked {
        attributes: Need::Nothing,
        set_attributes: Need::Nothing,
        read_link: Need::Nothing,
    });
}

impl Data for Ledger {
    forward!(checked {
        read: Need::Read,
        append: Need::Write,
        allocate: Need::Write,
        seek: Need::Open,
        sync: Need::Open,
    });

    fn write(&self, caller: &Caller, file: FileRef, offset: u64, data: &[u8]) -> Result<usize> {
        let plain = self.by(file, Need::Write)?;
        self.state.lock().writers.insert((file.inode, std::thread::current().id()));
        self.inner.data().write(caller, plain, offset, data)
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
        self.inner.data().copy_range(from, from_offset, to, to_offset, length)
    }
}

impl OpenFiles for Ledger {
    fn open(&self, caller: &Caller, inode: InodeId, mode: OpenMode) -> Result<FileId> {
        self.inner.open_files().open(caller, inode, mode)?;
        Ok(self.opened(inode, mode))
    }

    fn close(&self, file: FileRef) {
        let inode = FileRef::unopened(file.inode);
        let known = self.state.lock().open.remove(&file.file);
        if known.is_none_or(|(inode, _)| inode != file.inode) {
            self.state.lock().wrongs.push(format!("close of {file:?}, open: {known:?}"));
        }
        self.inner.open_files().close(inode);
    }

    forward!(checked { flush: Need::Open });
}
