//! Host files that the kernel reads and writes directly (FUSE passthrough).
//!
//! # Concurrency
//! The kernel requires that all opens of an inode agree: all through one backing file, or all
//! through us. The first open decides, and the last close forgets the decision. A lock per mount
//! covers both, also while the kernel registers the file (an ioctl that does not wait).
//!
//! # Why
//! The kernel writes a passed-through file with the credentials that registered it. With root's it
//! would not clear set-id bits, so a thread without CAP_FSETID registers the file: then every write
//! clears them. A file that has such a bit at its open is not passed through at all: its writers'
//! rights matter, and only this server knows them. Weakness: if a set-id bit is set while the file
//! is open this way, a write of user 0 clears it, too.

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
        // Count every open, also when no host file is offered (any more): all opens of an inode
        // must agree, and `close` counts each of them back.
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

    /// The kernel refused a host file. If it will refuse every one, none is offered again.
    fn passthrough_refused(&self, error: &io::Error) {
        let never = [libc::EPERM, libc::ENOTTY];
        if error.raw_os_error().is_some_and(|errno| never.contains(&errno)) {
            log::warn!(
                "the kernel refuses direct access to host files ({error}); the daemon copies their data"
            );
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
