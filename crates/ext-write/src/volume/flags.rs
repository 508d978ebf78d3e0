//! Operations that the flags of an inode forbid to every caller (chattr(1)).
//!
//! # Boundary
//! The rules are those of Linux (`may_delete`, `may_setattr`, `xattr_permission`, `vfs_fallocate`). Operations call them where
//! the kernel does: after errors about a missing or an existing name, before the kinds of objects are compared.
//!
//! | | immutable | append-only |
//! |---|---|---|
//! | write, allocate | refused | allowed behind the last byte |
//! | truncate, punch, zero | refused | refused |
//! | mode, owner, times, extended attributes | refused | refused; `touch` (both times become now) is allowed |
//! | link, unlink, rename, replace by a rename | refused | refused |
//! | in a directory: a new name | refused | allowed |
//! | in a directory: remove or rename a name | refused | refused |
//!
//! # Why
//! The check is here and not at the opening of a file: the store does not see opens, because each would cost two requests of
//! the kernel. Weakness: a file that may not be written can be opened for writing, and its first write fails.

use crate::error::{Error, Result};
use uvfs_ext::Inode;

/// Refuses changes of an immutable inode.
pub(super) fn may_grow(inode: &Inode) -> Result<()> {
    if inode.is_immutable() { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Refuses changes of an immutable or append-only inode.
pub(super) fn may_change(inode: &Inode) -> Result<()> {
    if inode.is_append_only() { Err(Error::NotPermitted) } else { may_grow(inode) }
}
