//! The paper's dentry caches as one thing to walk through, for programs that the analyser runs.
//!
//! # Boundary
//! Chooses a cache by its name and forwards to it.

use super::paths::{Cached, ROOT_INODE, System};
use super::variants::{BucketLocks, GlobalLock, LazyLru, Lookup, SeparateLru, Update, Walk};
use std::fmt;

/// Room for the walked names, several times over.
const ENTRIES: usize = 8192;

/// A file system over one of the caches.
pub struct Tree(Box<dyn System>);

impl Tree {
    /// None: there is no variant of this name.
    pub fn new(variant: &str) -> Option<Self> {
        let global = |lookup, walk| Cached::new(GlobalLock::new(ENTRIES, ROOT_INODE, lookup, walk));
        Some(Self(match variant {
            "global-lock" => Box::new(global(Lookup::Locked, Walk::References)),
            "rcu-hash" => Box::new(global(Lookup::LockFree, Walk::References)),
            "fast-walk" => Box::new(global(Lookup::Locked, Walk::UnderLock)),
            "bucket-locks" => Box::new(Cached::new(BucketLocks::new(ENTRIES, ROOT_INODE))),
            "separate-lru" => Box::new(Cached::new(SeparateLru::new(ENTRIES, ROOT_INODE))),
            "lazy-lru" => {
                Box::new(Cached::new(LazyLru::new(ENTRIES, ROOT_INODE, Update::Traversal)))
            }
            _ => return None,
        }))
    }

    /// Makes a directory; false if it cannot.
    pub fn create_directory(&self, path: &str) -> bool {
        self.0.create_directory(path.as_bytes())
    }

    /// Makes a file; false if it cannot.
    pub fn create(&self, path: &str) -> bool {
        self.0.create(path.as_bytes()).map(|open| self.0.close(open)).is_some()
    }

    /// Walks to `path`; false if it does not exist.
    pub fn stat(&self, path: &str) -> bool {
        self.0.stat(path.as_bytes())
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").finish_non_exhaustive()
    }
}
