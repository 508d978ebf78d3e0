//! A store whose answers are timed.
//!
//! # Boundary
//! Forwards every call, and counts its duration, by kind. Calls that neither wait nor fail (forgetting, capabilities,
//! counters) are forwarded untimed. A store that never waits ([`Waits::Never`]) is not wrapped: its time is processor
//! time.
//!
//! # Concurrency
//! A thread counts in its own cells (`uvfs_concurrent::histogram`). Runs that are completed on another thread count
//! there.
//!
//! # Why
//! One wrapper around the whole seam covers every call of a store. Weakness: two reads of the clock and one more
//! indirect jump for each call, which was not measured. A system call takes a microsecond or more.

use super::{
    AllocateMode, Backend, Below, Capabilities, ChangeSink, Content, Cookie, Creation, Data, Ended,
    Entry, Export, FileId, FileRef, InodeId, Inodes, Listing, Losses, Names, NewNode, OpenFiles,
    OpenMode, ReadRun, RenameMode, Reservation, SeekTarget, SyncMode, Waits, Watch, WholeContent,
    WriteRun, XattrMode, Xattrs,
};
use crate::attributes::{Attributes, SetAttributes, Totals};
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::latency::Latency;
use crate::name::Name;
use crate::tenants::Tenant;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;
use uvfs_concurrent::counter::Counter;
use uvfs_concurrent::histogram::Histogram;

macro_rules! calls {
    ($($call:ident),* $(,)?) => {
        /// Kinds of calls, by their names in reports.
        #[derive(Debug, Clone, Copy)]
        #[allow(non_camel_case_types)]
        enum Call {
            $($call,)*
        }

        const NAMES: &[&str] = &[$(stringify!($call)),*];
    };
}

calls!(
    lookup,
    list,
    remove,
    rename,
    create,
    link,
    attributes,
    set_attributes,
    read_link,
    read,
    write,
    allocate,
    seek,
    copy,
    sync,
    reserve,
    open,
    close,
    flush,
    get_xattr,
    set_xattr,
    list_xattrs,
    remove_xattr,
    find,
    totals,
);

/// Durations of a store's calls.
#[derive(Debug)]
pub(crate) struct StoreTimes {
    /// Calls that have begun.
    begun: Counter,
    /// Durations of ended calls, by kind.
    took: [Histogram; NAMES.len()],
    ended: Counter,
}

impl Default for StoreTimes {
    fn default() -> Self {
        let took = std::array::from_fn(|_| Histogram::new());
        Self { begun: Counter::new(), took, ended: Counter::new() }
    }
}

impl StoreTimes {
    fn begin(&self, call: Call) -> UnderWay<&Self> {
        UnderWay::new(self, call)
    }

    /// Calls in progress. Not a consistent snapshot, so it may be wrong by the calls that begin or end just now.
    pub(crate) fn under_way(&self) -> u64 {
        let ended = self.ended.total();
        self.begun.total().saturating_sub(ended)
    }

    /// The kinds with any calls.
    pub(crate) fn latencies(&self) -> Vec<(&'static str, Latency)> {
        let all = NAMES.iter().zip(&self.took).map(|(name, took)| (*name, Latency::from(took)));
        all.filter(|(_, latency)| latency.count > 0).collect()
    }
}

/// A call that ends when this is dropped, also by a panic.
struct UnderWay<T: AsRef<StoreTimes>> {
    times: T,
    call: Call,
    since: Instant,
}

impl<T: AsRef<StoreTimes>> UnderWay<T> {
    fn new(times: T, call: Call) -> Self {
        times.as_ref().begun.hit();
        Self { times, call, since: Instant::now() }
    }
}

impl<T: AsRef<StoreTimes>> Drop for UnderWay<T> {
    fn drop(&mut self) {
        let times = self.times.as_ref();
        times.took[self.call as usize].add(self.since.elapsed());
        times.ended.hit();
    }
}

impl AsRef<StoreTimes> for StoreTimes {
    fn as_ref(&self) -> &StoreTimes {
        self
    }
}

/// See the module.
pub(crate) struct Timed<B> {
    inner: B,
    times: Arc<StoreTimes>,
}

impl<B: Backend> Timed<B> {
    /// `inner`, whose calls are counted in `times` if it may wait.
    pub(crate) fn over(inner: B, times: &Arc<StoreTimes>) -> Box<dyn Backend> {
        match inner.capabilities().waits {
            Waits::Never => Box::new(inner),
            Waits::Sometimes => Box::new(Self { inner, times: times.clone() }),
        }
    }

    /// Times `work`.
    fn time<T>(&self, call: Call, work: impl FnOnce() -> T) -> T {
        let _under_way = self.times.begin(call);
        work()
    }

    fn later(&self, call: Call) -> impl FnOnce() + Send + use<B> {
        let under_way = UnderWay::new(self.times.clone(), call);
        move || drop(under_way)
    }

    fn store_creation(&self) -> Result<&dyn Creation> {
        self.inner.creation().ok_or(Error::Unsupported("creating"))
    }

    fn store_xattrs(&self) -> Result<&dyn Xattrs> {
        self.inner.xattrs().ok_or(Error::Unsupported("extended attributes"))
    }

    fn store_export(&self) -> Result<&dyn Export> {
        self.inner.export().ok_or(Error::Unsupported("finding an object by its number"))
    }
}

impl<B: Backend> Backend for Timed<B> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn root(&self) -> Result<Entry> {
        self.inner.root()
    }

    fn names(&self) -> &dyn Names {
        self
    }

    fn creation(&self) -> Option<&dyn Creation> {
        self.inner.creation().map(|_| self as &dyn Creation)
    }

    fn inodes(&self) -> &dyn Inodes {
        self
    }

    fn data(&self) -> &dyn Data {
        self
    }

    fn reservation(&self) -> Option<&dyn Reservation> {
        self.inner.reservation().map(|_| self as &dyn Reservation)
    }

    fn open_files(&self) -> &dyn OpenFiles {
        self
    }

    fn xattrs(&self) -> Option<&dyn Xattrs> {
        self.inner.xattrs().map(|_| self as &dyn Xattrs)
    }

    fn export(&self) -> Option<&dyn Export> {
        self.inner.export().map(|_| self as &dyn Export)
    }

    fn watching(&self) -> Option<&dyn Watch> {
        self.inner.watching().map(|_| self as &dyn Watch)
    }

    fn report_to(&self, changes: Arc<dyn ChangeSink>) {
        self.inner.report_to(changes);
    }

    fn sync_fs(&self) -> Result<()> {
        self.time(Call::sync, || self.inner.sync_fs())
    }

    fn end(&self) -> Result<()> {
        self.time(Call::sync, || self.inner.end())
    }

    fn ended(&self) -> Option<Ended> {
        self.inner.ended()
    }

    fn losses(&self) -> Option<Losses> {
        self.inner.losses()
    }

    fn totals(&self) -> Result<Totals> {
        self.time(Call::totals, || self.inner.totals())
    }

    fn tenant(&self) -> Option<Arc<dyn Tenant>> {
        self.inner.tenant()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.inner.counters()
    }
}

impl<B: Backend> Names for Timed<B> {
    fn lookup(&self, caller: &Caller, parent: InodeId, name: Name<'_>) -> Result<Entry> {
        self.time(Call::lookup, || self.inner.names().lookup(caller, parent, name))
    }

    fn list(&self, directory: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()> {
        self.time(Call::list, || self.inner.names().list(directory, from, listing))
    }

    fn list_below(&self, directory: InodeId, below: &mut dyn Below) -> Result<()> {
        self.time(Call::list, || self.inner.names().list_below(directory, below))
    }

    fn unlink(&self, caller: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        self.time(Call::remove, || self.inner.names().unlink(caller, parent, name))
    }

    fn remove_directory(&self, caller: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        self.time(Call::remove, || self.inner.names().remove_directory(caller, parent, name))
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (InodeId, Name<'_>),
        to: (InodeId, Name<'_>),
        mode: RenameMode,
    ) -> Result<()> {
        self.time(Call::rename, || self.inner.names().rename(caller, from, to, mode))
    }
}

impl<B: Backend> Creation for Timed<B> {
    fn create(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
    ) -> Result<Entry> {
        let store = self.store_creation()?;
        self.time(Call::create, || store.create(caller, parent, name, new))
    }

    fn create_and_open(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
        mode: OpenMode,
    ) -> Result<(Entry, FileId)> {
        let store = self.store_creation()?;
        self.time(Call::create, || store.create_and_open(caller, parent, name, new, mode))
    }

    fn create_unnamed(
        &self,
        caller: &Caller,
        parent: InodeId,
        new: &NewNode<'_>,
        mode: OpenMode,
    ) -> Result<(Entry, FileId)> {
        let store = self.store_creation()?;
        self.time(Call::create, || store.create_unnamed(caller, parent, new, mode))
    }

    fn link(
        &self,
        caller: &Caller,
        inode: InodeId,
        parent: InodeId,
        name: Name<'_>,
    ) -> Result<Entry> {
        let store = self.store_creation()?;
        self.time(Call::link, || store.link(caller, inode, parent, name))
    }
}

impl<B: Backend> Inodes for Timed<B> {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        self.time(Call::attributes, || self.inner.inodes().attributes(file))
    }

    fn forget(&self, inode: InodeId, references: u64) {
        self.inner.inodes().forget(inode, references);
    }

    fn set_attributes(
        &self,
        caller: &Caller,
        file: FileRef,
        set: &SetAttributes,
    ) -> Result<Attributes> {
        let inodes = self.inner.inodes();
        self.time(Call::set_attributes, || inodes.set_attributes(caller, file, set))
    }

    fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        self.time(Call::read_link, || self.inner.inodes().read_link(inode))
    }
}

impl<B: Backend> Data for Timed<B> {
    fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.time(Call::read, || self.inner.data().read(file, offset, into))
    }

    fn read_with_version(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<Content> {
        self.time(Call::read, || self.inner.data().read_with_version(file, offset, into))
    }

    fn read_run(&self, mut run: ReadRun) {
        run.before_done(self.later(Call::read));
        self.inner.data().read_run(run);
    }

    fn write_run(&self, caller: &Caller, mut run: WriteRun) {
        run.before_done(self.later(Call::write));
        self.inner.data().write_run(caller, run);
    }

    fn write(&self, caller: &Caller, file: FileRef, offset: u64, data: &[u8]) -> Result<usize> {
        self.time(Call::write, || self.inner.data().write(caller, file, offset, data))
    }

    fn append(&self, caller: &Caller, file: FileRef, data: &[u8]) -> Result<usize> {
        self.time(Call::write, || self.inner.data().append(caller, file, data))
    }

    fn replace(
        &self,
        caller: &Caller,
        file: FileRef,
        content: &dyn WholeContent,
    ) -> Result<Attributes> {
        self.time(Call::write, || self.inner.data().replace(caller, file, content))
    }

    fn give_up(&self, file: FileRef) {
        self.inner.data().give_up(file);
    }

    fn allocate(&self, file: FileRef, mode: AllocateMode, offset: u64, length: u64) -> Result<()> {
        self.time(Call::allocate, || self.inner.data().allocate(file, mode, offset, length))
    }

    fn seek(&self, file: FileRef, offset: u64, target: SeekTarget) -> Result<u64> {
        self.time(Call::seek, || self.inner.data().seek(file, offset, target))
    }

    fn copy_range(
        &self,
        from: FileRef,
        from_offset: u64,
        to: FileRef,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        let data = self.inner.data();
        self.time(Call::copy, || data.copy_range(from, from_offset, to, to_offset, length))
    }

    fn sync(&self, file: FileRef, mode: SyncMode) -> Result<()> {
        self.time(Call::sync, || self.inner.data().sync(file, mode))
    }
}

impl<B: Backend> Reservation for Timed<B> {
    fn reserve(&self, file: FileRef, offset: u64, length: u64) -> Result<()> {
        let Some(store) = self.inner.reservation() else { return Ok(()) };
        self.time(Call::reserve, || store.reserve(file, offset, length))
    }

    fn unreserve(&self, inode: InodeId, offset: u64, length: u64) {
        if let Some(store) = self.inner.reservation() {
            store.unreserve(inode, offset, length);
        }
    }
}

impl<B: Backend> OpenFiles for Timed<B> {
    fn open(&self, caller: &Caller, inode: InodeId, mode: OpenMode) -> Result<FileId> {
        self.time(Call::open, || self.inner.open_files().open(caller, inode, mode))
    }

    fn close(&self, file: FileRef) {
        self.time(Call::close, || self.inner.open_files().close(file));
    }

    fn flush(&self, file: FileRef) -> Result<()> {
        self.time(Call::flush, || self.inner.open_files().flush(file))
    }

    fn os_file(&self, file: FileRef) -> Option<Arc<OwnedFd>> {
        self.inner.open_files().os_file(file)
    }
}

impl<B: Backend> Xattrs for Timed<B> {
    fn get_xattr(&self, caller: &Caller, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        let store = self.store_xattrs()?;
        self.time(Call::get_xattr, || store.get_xattr(caller, inode, name))
    }

    fn set_xattr(
        &self,
        caller: &Caller,
        inode: InodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let store = self.store_xattrs()?;
        self.time(Call::set_xattr, || store.set_xattr(caller, inode, name, value, mode))
    }

    fn list_xattrs(&self, caller: &Caller, inode: InodeId) -> Result<Vec<Vec<u8>>> {
        let store = self.store_xattrs()?;
        self.time(Call::list_xattrs, || store.list_xattrs(caller, inode))
    }

    fn possible_xattrs(&self, inode: InodeId) -> Result<Option<Vec<Vec<u8>>>> {
        let store = self.store_xattrs()?;
        self.time(Call::list_xattrs, || store.possible_xattrs(inode))
    }

    fn remove_xattr(&self, caller: &Caller, inode: InodeId, name: &[u8]) -> Result<()> {
        let store = self.store_xattrs()?;
        self.time(Call::remove_xattr, || store.remove_xattr(caller, inode, name))
    }
}

impl<B: Backend> Export for Timed<B> {
    fn by_number(&self, number: u64) -> Result<Entry> {
        let store = self.store_export()?;
        self.time(Call::find, || store.by_number(number))
    }

    fn parent_of(&self, directory: InodeId) -> Result<Entry> {
        let store = self.store_export()?;
        self.time(Call::find, || store.parent_of(directory))
    }
}

impl<B: Backend> Watch for Timed<B> {
    fn watch(&self, changes: Arc<dyn ChangeSink>) -> Result<()> {
        let Some(store) = self.inner.watching() else {
            return Err(Error::Unsupported("watching for changes"));
        };
        store.watch(changes)
    }
}
