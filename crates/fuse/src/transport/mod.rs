//! How requests arrive and replies are sent.
//!
//! # Boundary
//! [`crate::server`] uses plain values. This folder alone names the protocol (`uvfs-fuse-protocol`) and the kernel's end
//! of a mount (`uvfs-fuse-device`): a session decodes messages into [`Request`]s and encodes answers ([`Reply`]), and is
//! the [`KernelCache`] for notices.
//!
//! [`Request`]: crate::server::Request
//! [`Reply`]: crate::server::Reply

mod convert;
mod decode;
mod greeting;
mod reply;
mod session;

pub use session::Transport;
pub(crate) use session::{Connection, Session};

use std::io;

/// The kernel's caches of one mount, addressed by node id. Only [`forget_attributes`] never blocks; a handler must
/// never call the others.
///
/// [`forget_attributes`]: KernelCache::forget_attributes
pub(crate) trait KernelCache: Send + Sync {
    /// Drops the cached entry of `name` in `parent`. An uncached name is no error.
    fn forget_entry(&self, parent: u64, name: &[u8]) -> io::Result<()>;
    /// Makes the kernel revalidate `name` in `parent` before its next use, and detaches nothing. Like
    /// [`forget_entry`](KernelCache::forget_entry), it waits for requests in flight in `parent`. An uncached name is no
    /// error.
    fn ask_again(&self, parent: u64, name: &[u8]) -> io::Result<()>;
    /// Forgets attributes and pages of a node. ENOENT if the kernel has no such inode: it has forgotten it, or is about
    /// to make it from a reply.
    fn forget_inode(&self, node: u64) -> io::Result<()>;
    /// Drops the cached attributes of a node, for which the kernel waits for nothing.
    fn forget_attributes(&self, node: u64) -> io::Result<()>;
    /// Forgets attributes of a node, and the pages that have bytes of `offset..offset + length`; to its end if
    /// `length` is 0. Waits for reads of these pages that are under way.
    fn forget_pages(&self, node: u64, offset: u64, length: u64) -> io::Result<()>;
    /// Evicts the names and the inode of each unused one of `nodes`, in this order; a directory with cached children
    /// counts as used. EINVAL if the kernel cannot (before Linux 6.18), also for no nodes at all, which has no other
    /// effect. At most 512.
    fn prune(&self, nodes: &[u64]) -> io::Result<()>;
    /// Asks again about every name before it is used next.
    fn forget_everything(&self) -> io::Result<()>;
}
