//! Cleaning one directory of a mount: our caches and the kernel's.
//!
//! # Boundary
//! Orders the steps and waits for the kernel. What our own caches do is [`Vfs::begin_clean`]; what the
//! kernel is asked, and how it answers, is in `kernel`; the messages are in [`crate::transport`].
//!
//! # Order
//! 1. `begin_clean`: nothing that we cached is used any more, at any depth.
//! 2. The kernel is asked to let go, and its forgets are awaited, for a bounded time. Until they come
//!    it holds our inodes, and the next step could not free them. In the other order it would look
//!    names up in caches that are about to go.
//! 3. `reap`: frees what is not held any more. What the kernel keeps counts as busy.
//!
//! # Concurrency
//! One cleaning at a time per mount; others wait in order, a bounded number of them (`turns`). The
//! deadlock rules:
//!
//! * Never from a request handler. For INVAL_ENTRY the kernel takes the lock of the directory, and holds it
//!   already while a lookup or an unlink there waits for us; for INVAL_INODE it locks pages, and holds those
//!   of a READ that waits for us. PRUNE takes neither, but after it forgets are awaited. What is recorded as
//!   missing is told by name: where there is some, a lookup in flight in that directory delays the cleaning.
//! * Never with a lock held, for a handler may want it before the kernel can go on.
//! * The readers of the mount stay free: they bring the forgets, and the replies that INVAL_INODE waits
//!   for. That includes WRITE requests: it brings changes made through a shared mapping to us first.
//!   (This mount does not ask for FUSE_WRITEBACK_CACHE, so the kernel has no other dirty pages.)
//!
//! So whoever serves a file of the mount itself that asks for cleaning hands it to a worker, and does not
//! wait for it on the reader; and fewer may wait for their turn than there are workers, since a READ may
//! be queued for one.
//!
//! # Why
//! PRUNE is the only message that passes over what is in use: an open file, a process's current directory.
//! It is used wherever the kernel has it. Sources: `include/uapi/linux/fuse.h` (FUSE_NOTIFY_PRUNE, protocol
//! 7.45), `fs/fuse/{dev,dir,inode}.c`, `Documentation/filesystems/fuse/fuse.rst`. *Negative* entries have no
//! node, so no PRUNE reaches them: those that the kernel was told of are recorded (`server::missing`), and it is
//! told by name to ask again. Weaknesses: it does not drop them at that, nor those that an unlink or a rename
//! left behind, and keeps the directory that they are in (and those above) until it wants the room; only where
//! the store never changes they are dropped. With its last cached child an unused directory goes too, whoever
//! asked: also the cleaned one and those above, if nothing else is cached there. And finding what the kernel
//! holds below the directory looks at all that it holds.

mod kernel;
mod pressure;
mod requested;
#[cfg(test)]
mod tests;
mod turns;

pub(crate) use pressure::{Pressure, Relief};
pub(crate) use turns::Turns;

use crate::notify::Notices;
use crate::server::nodes::NodeTable;
use crate::statistics::Counters;
use crate::transport::KernelCache;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use uvfs_vfs::{Clean, CleanProgress, CleanReport, Dirty, Node, Vfs};

/// How the kernel was asked to let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KernelHow {
    /// It was not asked: it held nothing there, or the cleaning was ended before.
    #[default]
    Nothing,
    /// Pages of files only.
    Pages,
    /// By node (FUSE_NOTIFY_PRUNE, Linux 6.18): names, inodes and their pages, but for those in use.
    Pruned,
    /// By name, on an older kernel: names of everything but directories, which it keeps. A file that is
    /// open works on; `/proc/PID/fd` shows its name as deleted.
    Entries,
}

/// What the kernel did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelReport {
    /// How it was asked.
    pub how: KernelHow,
    /// Objects below the directory that it held before.
    pub held: u64,
    /// Those of them that it let go.
    pub let_go: u64,
    /// Those that it keeps: in use, or looked up again since, or not asked for; or directories in which it
    /// remembers missing names, not to be believed but not dropped either.
    pub kept: u64,
    /// Names below that it believed to be missing, and was told to ask again about.
    pub missing: u64,
    /// Files whose pages were dropped one by one, without their names.
    pub files: u64,
    /// Directories whose names could not be had from the store, when asking by name.
    pub unlisted: u64,
    /// How long its answers were awaited.
    pub waited: Duration,
    /// The first message that it refused, and why.
    pub refused: Option<String>,
}

/// What a cleaning of a directory of a mount did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MountCleanReport {
    /// In our caches.
    pub caches: CleanReport,
    /// In the kernel's.
    pub kernel: KernelReport,
    /// Whether it was ended before it was done.
    pub ended_early: bool,
    /// How long it took in all, waiting for others included.
    pub took: Duration,
}

/// What a cleaning does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CleanStage {
    /// It waits for another one.
    #[default]
    Waiting,
    /// It asks the kernel to let go.
    Kernel,
    /// It frees our caches.
    Caches,
}

/// How far a cleaning has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MountProgress {
    /// What it does now.
    pub stage: CleanStage,
    /// Objects below the directory that the kernel holds.
    pub held: u64,
    /// Those that it was asked about so far.
    pub sent: u64,
    /// Those that it let go so far, as far as is known.
    pub let_go: u64,
    /// Our caches.
    pub caches: CleanProgress,
}

/// Cleans directories of a mount, from any thread but those that serve it. Outlives the mount, and fails
/// from then on.
#[derive(Clone)]
pub struct Cleaner(Weak<Bridge>);

impl Cleaner {
    pub(crate) fn of(bridge: &Arc<Bridge>) -> Self {
        Self(Arc::downgrade(bridge))
    }

    /// Cleans `directory`: the caches behind the mount, and the kernel's in front. Takes effect at once for
    /// the former; returns when both are done. What is in use stays.
    ///
    /// `progress` is called now and then, and may end it: what has been asked of the kernel by then is
    /// done, and of our caches at most a small step more.
    ///
    /// Never call it from a thread that serves this mount, nor with a lock held that serving needs.
    ///
    /// # Errors
    /// ENOTCONN if the mount has ended. EBUSY if 32 wait already. ENOTDIR.
    pub fn clean(
        &self,
        directory: &Node,
        clean: Clean,
        dirty: Dirty,
        progress: &mut dyn FnMut(MountProgress) -> ControlFlow<()>,
    ) -> io::Result<MountCleanReport> {
        let bridge = self.0.upgrade().ok_or_else(turns::mount_ended)?;
        bridge.clean(directory, clean, dirty, progress)
    }
}

impl fmt::Debug for Cleaner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mount = if self.0.strong_count() > 0 { "a mount" } else { "a mount that has ended" };
        write!(out, "Cleaner(of {mount})")
    }
}

/// What cleaning needs of a mount.
pub(crate) struct Bridge {
    vfs: Arc<Vfs>,
    nodes: Arc<NodeTable>,
    counters: Arc<Counters>,
    kernel: Box<dyn KernelCache>,
    notices: Arc<Notices>,
    /// Whether the kernel knows how to prune, once it has been asked.
    prunes: OnceLock<bool>,
    turns: Arc<Turns>,
}

impl Bridge {
    pub(crate) fn new(
        vfs: Arc<Vfs>,
        nodes: Arc<NodeTable>,
        counters: Arc<Counters>,
        kernel: Box<dyn KernelCache>,
        notices: Arc<Notices>,
        turns: Arc<Turns>,
    ) -> Arc<Self> {
        Arc::new(Self { vfs, nodes, counters, kernel, notices, prunes: OnceLock::new(), turns })
    }

    /// See [`Cleaner::clean`].
    pub(crate) fn clean(
        &self,
        directory: &Node,
        clean: Clean,
        dirty: Dirty,
        tell: &mut dyn FnMut(MountProgress) -> ControlFlow<()>,
    ) -> io::Result<MountCleanReport> {
        let began = Instant::now();
        let turn = self.turns.enter().inspect_err(|_| self.counters.cleans_refused.hit())?;
        // In front of those that wait: it takes effect at once.
        let cleaning = self
            .vfs
            .begin_clean(directory, clean)
            .map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
        let mut progress = Progress { tell, now: MountProgress::default(), stopped: false };
        let mut kernel = KernelReport::default();
        if turn.wait(|| progress.step())? {
            progress.now.stage = CleanStage::Kernel;
            kernel = self.empty_kernel(directory, clean, &mut progress);
        }
        progress.now.stage = CleanStage::Caches;
        let caches = cleaning.reap(dirty, &mut |caches| {
            progress.now.caches = caches;
            if progress.step() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        drop(turn);
        self.counters.cleans.hit();
        let ended_early = progress.stopped;
        Ok(MountCleanReport { caches, kernel, ended_early, took: began.elapsed() })
    }
}

/// Tells how far it has come, until somebody wants no more.
struct Progress<'a> {
    tell: &'a mut dyn FnMut(MountProgress) -> ControlFlow<()>,
    now: MountProgress,
    stopped: bool,
}

impl Progress<'_> {
    /// Whether to go on.
    fn step(&mut self) -> bool {
        self.stopped = self.stopped || (self.tell)(self.now).is_break();
        !self.stopped
    }
}
