//! How requests come and replies go.
//!
//! # Boundary
//! [`crate::server`] speaks in plain values; what is in this folder speaks to the kernel, and names the FUSE crate
//! alone (`cargo xtask tidy` checks it). Today there is one transport, over that crate's read-write loop
//! (`fuser_transport`); one over io_uring has to supply the same: a session that decodes [`Request`]s, a [`Reply`]
//! that encodes answers, and a [`KernelCache`].
//!
//! [`Request`]: crate::server::Request
//! [`Reply`]: crate::server::Reply

mod convert;
mod fuser_transport;
mod reply;
mod session;

pub(crate) use session::{Connection, Session, Wanted};

use std::io;

/// The kernel's caches of one mount, addressed by node id. Calls may block, but for [`forget_attributes`]; the
/// others never from a handler.
///
/// [`forget_attributes`]: KernelCache::forget_attributes
pub(crate) trait KernelCache: Send + Sync {
    /// Forgets what `name` in `parent` means. What was not cached is no error.
    fn forget_entry(&self, parent: u64, name: &[u8]) -> io::Result<()>;
    /// Asks again about `name` in `parent` before it is used next, and detaches nothing. Like the message
    /// above, it waits for requests in flight in `parent`. What was not cached is no error.
    fn ask_again(&self, parent: u64, name: &[u8]) -> io::Result<()>;
    /// Forgets attributes and pages of a node.
    fn forget_inode(&self, node: u64) -> io::Result<()>;
    /// Forgets attributes of a node, for which the kernel waits for nothing.
    fn forget_attributes(&self, node: u64) -> io::Result<()>;
    /// Forgets attributes of a node, and the pages that have bytes of `offset..offset + length`; to its end if
    /// `length` is 0. Waits for reads of these pages that are under way.
    fn forget_pages(&self, node: u64, offset: u64, length: u64) -> io::Result<()>;
    /// Lets go of the names and the inode of each of `nodes` that nobody uses, in this order; a directory
    /// with cached children counts as used. EINVAL if the kernel cannot (before Linux 6.18), also for no
    /// nodes at all, which has no other effect. At most 512.
    fn prune(&self, nodes: &[u64]) -> io::Result<()>;
    /// Asks again about every name before it is used next.
    fn forget_everything(&self) -> io::Result<()>;
}
