//! The dentry caches of `uvfs-bench dcache`, as one thing to walk through.
//!
//! # Boundary
//! The modules themselves are the benchmark's; here they are only put together.

// What the benchmark also needs of them: loads, counts, the meter's rows.
#![allow(dead_code)]

#[path = "../../src/dcache/api.rs"]
mod api;
#[path = "../../src/dcache/audit.rs"]
mod audit;
#[path = "../../src/dcache/lists.rs"]
mod lists;
#[path = "../../src/dcache/paths.rs"]
mod paths;
#[path = "../../src/dcache/sites.rs"]
mod sites;
#[path = "../../src/dcache/slab.rs"]
mod slab;
#[path = "../../src/dcache/variants/mod.rs"]
mod variants;

use paths::{Cached, ROOT_INODE, System};
use variants::{BucketLocks, GlobalLock, LazyLru, Lookup, SeparateLru, Update, Walk};

/// Room for what is walked through, several times over.
const ENTRIES: usize = 8192;

/// A file system over one of the caches.
pub(crate) struct Tree(Box<dyn System>);

impl Tree {
    /// None: there is no variant of this name.
    pub(crate) fn new(variant: &str) -> Option<Self> {
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

    pub(crate) fn create_directory(&self, path: &str) -> bool {
        self.0.create_directory(path.as_bytes())
    }

    pub(crate) fn create(&self, path: &str) -> bool {
        self.0.create(path.as_bytes()).map(|open| self.0.close(open)).is_some()
    }

    pub(crate) fn stat(&self, path: &str) -> bool {
        self.0.stat(path.as_bytes())
    }
}
