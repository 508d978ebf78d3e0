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
use std::time::Instant;
use uvfs_control::cleaned::{Cleaned, Kernel};
use uvfs_vfs::{Clean, CleanProgress, CleanStage, Dirty, Node, Vfs};

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
        progress: &mut dyn FnMut(CleanProgress) -> ControlFlow<()>,
    ) -> io::Result<Cleaned> {
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
        tell: &mut dyn FnMut(CleanProgress) -> ControlFlow<()>,
    ) -> io::Result<Cleaned> {
        let began = Instant::now();
        let turn = self.turns.enter().inspect_err(|_| self.counters.cleans_refused.hit())?;
        // In front of those that wait: it takes effect at once.
        let cleaning = self
            .vfs
            .begin_clean(directory, clean)
            .map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
        let now = CleanProgress { stage: CleanStage::Waiting, ..CleanProgress::default() };
        let mut progress = Progress { tell, now, stopped: false };
        let mut kernel = Kernel::default();
        if turn.wait(|| progress.step())? {
            progress.now.stage = CleanStage::Frontend;
            kernel = self.empty_kernel(directory, clean, &mut progress);
        }
        let mut caches = cleaning.reap(dirty, &mut |now| {
            progress.now = now;
            if progress.step() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        drop(turn);
        self.counters.cleans.hit();
        caches.took = began.elapsed();
        Ok(Cleaned { caches, kernel: Some(kernel), interrupted: progress.stopped, source: None })
    }
}

/// Tells how far it has come, until somebody wants no more.
struct Progress<'a> {
    tell: &'a mut dyn FnMut(CleanProgress) -> ControlFlow<()>,
    now: CleanProgress,
    stopped: bool,
}

impl Progress<'_> {
    /// Whether to go on.
    fn step(&mut self) -> bool {
        self.stopped = self.stopped || (self.tell)(self.now).is_break();
        !self.stopped
    }
}
