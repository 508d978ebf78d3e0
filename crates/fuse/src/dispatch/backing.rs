//! Host files that the kernel reads and writes directly (FUSE passthrough).
//!
//! # Concurrency
//! The kernel wants all opens of an inode to agree: all through one and the same backing file, or
//! all through us. The first open decides and the last close forgets; a lock per mount covers both,
//! also while the kernel is asked to take the file (an ioctl that waits for nobody).
//!
//! # Why
//! A write through the kernel is made with the credentials that registered the file. Ours would be
//! root's, for which a kernel does not clear set-id bits, so the file is registered by a thread that
//! has put CAP_FSETID aside: then every write clears them. And a file that has such a bit when it
//! is opened is not passed through at all: who writes it matters, and only we know. Weakness: a
//! set-id bit set while the file is open so is cleared by a write of user 0 too.

use super::Shared;
use crate::lock_order;
use crate::server::{Reply, Server};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::Ordering::Relaxed;
use uvfs_vfs::{FileKind, InodeId, OpenFile};

struct Backing<B> {
    opens: u64,
    /// `None`: through us.
    id: Option<Arc<B>>,
}

/// Backing files in use; `B` is one that the kernel has taken.
pub(super) struct Backings<B> {
    state: Mutex<HashMap<InodeId, Backing<B>>>,
}

impl<B> Backings<B> {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(&lock_order::FUSE_BACKING, HashMap::new()) }
    }

    /// Counts an open of `inode`. The first one decides, by `register`, whether the kernel gets a
    /// host file; the others follow.
    pub(super) fn join(
        &self,
        inode: InodeId,
        register: impl FnOnce() -> Option<B>,
    ) -> Option<Arc<B>> {
        let mut state = self.state.lock();
        let backing = state
            .entry(inode)
            .or_insert_with(|| Backing { opens: 0, id: register().map(Arc::new) });
        backing.opens += 1;
        backing.id.clone()
    }

    /// One open fewer.
    pub(super) fn leave(&self, inode: InodeId) {
        let mut state = self.state.lock();
        let Some(backing) = state.get_mut(&inode) else { return };
        backing.opens -= 1;
        let gone = if backing.opens == 0 { state.remove(&inode) } else { None };
        drop(state);
        drop(gone);
    }

    /// Inodes that count as open.
    #[cfg(test)]
    pub(super) fn inodes(&self) -> usize {
        self.state.lock().len()
    }
}

impl<R: Reply> Shared<R> {
    /// Whether, and through which host file, the kernel may read and write `file` directly.
    pub(super) fn backing(
        &self,
        file: &mut OpenFile,
        register: impl FnOnce(&OwnedFd) -> io::Result<R::Backing>,
    ) -> Option<Arc<R::Backing>> {
        if !self.server.settings.passthrough || file.node().kind() != FileKind::Regular {
            return None;
        }
        // Every open is counted, also when nothing is offered (any more): all opens of an inode
        // must agree, and `close` counts all of them back.
        let host = file.bypass();
        let set_id = file_has_set_id(&self.server, file);
        let backing = self.backings.join(file.node().id(), || {
            let host = host.filter(|_| !set_id && self.passes_through())?;
            let registered = without_set_id_privilege(|| register(&host));
            registered.inspect_err(|error| self.passthrough_refused(error)).ok()
        });
        match &backing {
            Some(_) => self.server.counters.passthrough_opens.hit(),
            None => file.cancel_bypass(),
        }
        backing
    }

    /// The kernel did not take a host file. What it will never take is not offered again.
    fn passthrough_refused(&self, error: &io::Error) {
        let never = [libc::EPERM, libc::ENOTTY];
        if error.raw_os_error().is_some_and(|errno| never.contains(&errno)) {
            log::warn!("the kernel takes no host files from us ({error}); data goes through uvfs");
            // ORDERING: Relaxed; opens that still see true are refused the same way.
            self.passthrough.store(false, Relaxed);
        }
    }
}

fn file_has_set_id(server: &Server, file: &OpenFile) -> bool {
    match server.vfs.attributes(file.node(), Some(file)) {
        Ok(attributes) => attributes.mode & 0o6000 != 0,
        Err(_) => true,
    }
}

/// Runs `register` without CAP_FSETID on this thread.
fn without_set_id_privilege<T>(register: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = capabilities(None)?;
    let mut reduced = before;
    reduced.effective.remove(CapabilitySet::FSETID);
    set_capabilities(None, reduced)?;
    let result = register();
    set_capabilities(None, before)?;
    result
}
