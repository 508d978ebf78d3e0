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

use fuser::BackingId;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use uvfs_concurrent::lock::Mutex;
use uvfs_vfs::{InodeId, lock_order};

struct Backing {
    opens: u64,
    /// `None`: through us.
    id: Option<Arc<BackingId>>,
}

/// Backing files in use.
pub(super) struct Backings {
    state: Mutex<HashMap<InodeId, Backing>>,
}

impl Backings {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(&lock_order::FUSE_BACKING, HashMap::new()) }
    }

    /// Counts an open of `inode`. The first one decides, by `register`, whether the kernel gets a
    /// host file; the others follow.
    pub(super) fn join(
        &self,
        inode: InodeId,
        register: impl FnOnce() -> Option<BackingId>,
    ) -> Option<Arc<BackingId>> {
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
}

/// Runs `register` without CAP_FSETID on this thread.
pub(super) fn without_set_id_privilege<T>(
    register: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let before = capabilities(None)?;
    let mut reduced = before;
    reduced.effective.remove(CapabilitySet::FSETID);
    set_capabilities(None, reduced)?;
    let result = register();
    set_capabilities(None, before)?;
    result
}
