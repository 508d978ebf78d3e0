//! A hold on an inode: the handle that operations and frontends pass around.
//!
//! # Boundary
//! Returns an object's constant properties and its cached state, without a request to the store. While a hold exists,
//! the inode stays in the table ([`uvfs_concurrent::hold`]).
//!
//! # Concurrency
//! Cloning and dropping count on the inode's own word. Dropping the last hold may tear the inode down, so hold no lock
//! then.
//!
//! # Why
//! One public type for every kind of object, because the kernel does not name the kind in its requests. Weakness: an
//! operation on the wrong kind fails at run time.

use super::Inode;
use super::cached::NUMBER;
use crate::attributes::FileKind;
use crate::backend::InodeId;
use std::fmt;
use uvfs_containers::object::{Hold, Ref};

/// A hold on an inode. Cloning adds a hold, and dropping removes it.
#[derive(Clone)]
pub struct Node {
    pub(crate) inode: Hold<Inode>,
}

impl Node {
    /// A hold on an inode found by a reference, unless it has been torn down.
    pub(crate) fn try_hold(inode: &Ref<Inode>) -> Option<Self> {
        inode.try_hold().map(|inode| Self { inode })
    }

    /// The object's id.
    pub fn id(&self) -> InodeId {
        self.inode.id
    }

    /// The object's type; never changes.
    pub fn kind(&self) -> FileKind {
        self.inode.kind()
    }

    /// The number users see (`st_ino`).
    pub fn number(&self) -> u64 {
        self.inode.cached.racy_one(NUMBER)
    }

    /// The parent directory, if this is a directory below the root whose parent is known.
    pub fn parent(&self) -> Option<Node> {
        self.inode.parent()
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.inode.is_directory()
    }

    /// Whether its last name is known to be gone.
    pub fn is_unlinked(&self) -> bool {
        self.inode.is_unlinked()
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.inode.same(&other.inode)
    }
}

impl Eq for Node {}

impl fmt::Debug for Node {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.inode)
    }
}
