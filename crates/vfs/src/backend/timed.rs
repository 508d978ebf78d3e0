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
    Backend, Below, ChangeSink, Creation, Data, Export, FileRef, InodeId, Inodes, Names, OpenFiles,
    ReadRun, Reservation, Waits, Watch, WriteRun, Xattrs,
};
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::forward;
use crate::latency::Latency;
use crate::name::Name;
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

    /// Times `act`.
    fn time<T>(
        &self,
        call: Call,
        file: FileRef,
        _: Option<Name<'_>>,
        act: impl FnOnce(&B, FileRef) -> T,
    ) -> T {
        let _under_way = self.times.begin(call);
        act(&self.inner, file)
    }

    fn later(&self, call: Call) -> impl FnOnce() + Send + use<B> {
        let under_way = UnderWay::new(self.times.clone(), call);
        move || drop(under_way)
    }
}

impl<B: Backend> Backend for Timed<B> {
    forward!(capabilities, root, report_to, ended, losses, tenant, counters);
    forward!(time { sync_fs: Call::sync, end: Call::sync, totals: Call::totals });
    forward!(families: names, inodes, data, open_files, creation, reservation, xattrs, export, watching);
}

impl<B: Backend> Names for Timed<B> {
    forward!(time {
        lookup: Call::lookup,
        list: Call::list,
        unlink: Call::remove,
        remove_directory: Call::remove,
        rename: Call::rename,
    });

    fn lists_below(&self, directory: InodeId) -> bool {
        self.inner.names().lists_below(directory)
    }

    fn list_below(&self, directory: InodeId, below: &mut dyn Below) -> Result<()> {
        let _under_way = self.times.begin(Call::list);
        self.inner.names().list_below(directory, below)
    }
}

impl<B: Backend> Creation for Timed<B> {
    forward!(time {
        create: Call::create,
        create_and_open: Call::create,
        create_unnamed: Call::create,
        link: Call::link,
    });
}

impl<B: Backend> Inodes for Timed<B> {
    forward!(forget);
    forward!(time {
        attributes: Call::attributes,
        set_attributes: Call::set_attributes,
        read_link: Call::read_link,
    });
}

impl<B: Backend> Data for Timed<B> {
    forward!(give_up);
    forward!(time {
        read: Call::read,
        read_with_version: Call::read,
        write: Call::write,
        write_back: Call::write,
        append: Call::write,
        replace: Call::write,
        allocate: Call::allocate,
        seek: Call::seek,
        copy_range: Call::copy,
        sync: Call::sync,
    });

    fn read_run(&self, mut run: ReadRun) {
        run.before_done(self.later(Call::read));
        self.inner.data().read_run(run);
    }

    fn write_run(&self, caller: &Caller, mut run: WriteRun) {
        run.before_done(self.later(Call::write));
        self.inner.data().write_run(caller, run);
    }
}

impl<B: Backend> Reservation for Timed<B> {
    fn reserve(&self, file: FileRef, offset: u64, length: u64) -> Result<()> {
        let Some(store) = self.inner.reservation() else { return Ok(()) };
        let _under_way = self.times.begin(Call::reserve);
        store.reserve(file, offset, length)
    }

    fn unreserve(&self, inode: InodeId, offset: u64, length: u64) {
        if let Some(store) = self.inner.reservation() {
            store.unreserve(inode, offset, length);
        }
    }
}

impl<B: Backend> OpenFiles for Timed<B> {
    forward!(os_file);
    forward!(time { open: Call::open, flush: Call::flush });

    fn close(&self, file: FileRef) {
        let _under_way = self.times.begin(Call::close);
        self.inner.open_files().close(file);
    }
}

impl<B: Backend> Xattrs for Timed<B> {
    forward!(time {
        get_xattr: Call::get_xattr,
        set_xattr: Call::set_xattr,
        list_xattrs: Call::list_xattrs,
        possible_xattrs: Call::list_xattrs,
        remove_xattr: Call::remove_xattr,
    });
}

impl<B: Backend> Export for Timed<B> {
    forward!(time { by_number: Call::find, parent_of: Call::find });
}

impl<B: Backend> Watch for Timed<B> {
    fn watch(&self, changes: Arc<dyn ChangeSink>) -> Result<()> {
        let Some(store) = self.inner.watching() else {
            return Err(Error::Unsupported("watching for changes"));
        };
        store.watch(changes)
    }

    fn reports_names(&self, directory: InodeId) -> bool {
        self.inner.watching().is_some_and(|store| store.reports_names(directory))
    }

    fn reports_attributes(&self, inode: InodeId) -> bool {
        self.inner.watching().is_some_and(|store| store.reports_attributes(inode))
    }
}
