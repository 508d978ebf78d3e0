//! Cleaning one directory of a mount: our caches and the kernel's.
//!
//! 1. [`Vfs::begin_clean`]: from now on no cached entry below the directory is used, at any depth.
//! 2. The kernel is asked to evict (`kernel`), and its forgets are awaited for a bounded time. Until they arrive it
//!    holds our inodes. In the other order the kernel would look names up in caches that are about to be emptied.
//! 3. `reap`: frees unheld entries. Entries that the kernel keeps count as busy.
//!
//! One cleaning runs at a time per mount; a bounded number of others wait in order (`turns`). Deadlock rules:
//!
//! * Never from a request handler. INVAL_ENTRY takes the directory's lock in the kernel, which a lookup or an unlink
//!   holds while it waits for us. INVAL_INODE locks pages that a READ holds while it waits for us. PRUNE takes neither
//!   lock, but the caller then waits for FORGETs. A lookup in flight in a directory can delay the expiry of its
//!   negative entries.
//! * Never with a lock held: a handler may need that lock before the kernel can continue.
//! * The readers of the mount stay free: they bring the forgets and answer requests that INVAL_INODE waits for, also
//!   WRITEs of a shared mapping. (Without FUSE_WRITEBACK_CACHE the kernel has no other dirty pages.) So a file of the
//!   mount that requests a cleaning passes it to a worker. Fewer cleanings may wait than there are workers, since a
//!   READ may need one.
//!
//! # Why
//! PRUNE (protocol 7.45) is the only message that skips used nodes. It does not reach *negative* entries: the kernel
//! expires those of `server::missing` by name. Weaknesses: expired entries, and those that an unlink or a rename left,
//! keep their directory and its ancestors until the kernel needs memory; they are dropped only if the store never
//! changes. A PRUNE of the last cached child also evicts an unused parent, up to and above the cleaned directory.
//! Cleaning visits all nodes that the kernel holds.

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

    /// Cleans `directory`: the caches behind the mount, and the kernel's in front of it. The former are clean at once;
    /// the call returns when both are. Entries in use stay.
    ///
    /// `progress` is called now and then, and may end the cleaning. Evictions requested from the kernel by then are
    /// completed, and one small step of our own caches.
    ///
    /// Never call this from a thread that serves this mount, nor with a lock held that a serving thread needs.
    ///
    /// # Errors
    /// ENOTCONN if the mount has ended. EBUSY if 32 cleanings already wait. ENOTDIR.
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

/// The parts of a mount that a cleaning needs.
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

/// Reports progress until the receiver asks to stop.
struct Progress<'a> {
    tell: &'a mut dyn FnMut(CleanProgress) -> ControlFlow<()>,
    now: CleanProgress,
    stopped: bool,
}

impl Progress<'_> {
    /// Whether to continue.
    fn step(&mut self) -> bool {
        self.stopped = self.stopped || (self.tell)(self.now).is_break();
        !self.stopped
    }
}
