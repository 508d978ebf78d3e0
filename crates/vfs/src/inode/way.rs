//! From an inode to what it belongs to.
//!
//! # Boundary
//! Owns nothing: the file system may be gone.
//!
//! # Why
//! One for each shard of the table. Were it the `Weak` itself in each inode, all who make or drop an inode would
//! meet on the count of those. Weakness: to use it counts on the file system's own line all the same.

use crate::vfs::Core;
use std::sync::{Arc, Weak};

/// See the module.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Way(Weak<Core>);

impl Way {
    /// To `core`.
    pub(super) fn new(core: &Arc<Core>) -> Arc<Self> {
        Arc::new(Self(Arc::downgrade(core)))
    }

    /// None: the file system is gone.
    pub(super) fn upgrade(&self) -> Option<Arc<Core>> {
        self.0.upgrade()
    }
}
