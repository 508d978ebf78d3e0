//! What the caches hold and did.

use serde::Serialize;
use uvfs_concurrent::counter::Counter;

/// Event counters of the core; striped, so counting fights over no line.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) name_hits: Counter,
    pub(crate) negative_hits: Counter,
    pub(crate) name_misses: Counter,
    pub(crate) names_evicted: Counter,
    pub(crate) attribute_hits: Counter,
    pub(crate) attribute_misses: Counter,
    pub(crate) inodes_evicted: Counter,
    pub(crate) page_hits: Counter,
    pub(crate) page_misses: Counter,
    pub(crate) pages_evicted: Counter,
    pub(crate) discarded: Counter,
    pub(crate) stale: Counter,
    pub(crate) news: Counter,
}

/// One cache: what it holds, what it may hold, how it was used.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CacheStatistics {
    /// Held now: entries, or bytes for `pages`.
    pub held: u64,
    /// May be held; the same unit.
    pub limit: u64,
    /// Requests answered.
    pub hits: u64,
    /// Requests passed to the store.
    pub misses: u64,
    /// Entries dropped for room.
    pub evicted: u64,
}

/// A snapshot of everything the core counts.
#[derive(Debug, Clone, Serialize)]
pub struct Statistics {
    /// Kind of store.
    pub store: &'static str,
    /// Names.
    pub names: CacheStatistics,
    /// Names known to be missing: lookups answered so.
    pub negative_hits: u64,
    /// Inodes; hits and misses are attribute requests.
    pub inodes: CacheStatistics,
    /// Inodes in use by somebody.
    pub inodes_active: u64,
    /// File data in the core's cache.
    pub pages: CacheStatistics,
    /// Answers of the store not kept, because a change overtook them.
    pub discarded: u64,
    /// Times the store had changed behind the caches.
    pub stale: u64,
    /// News of others' changes received from the store.
    pub news: u64,
    /// Counters of the backend.
    pub backend: Vec<(&'static str, u64)>,
}
