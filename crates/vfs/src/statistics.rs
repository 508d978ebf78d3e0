//! What the caches hold and did.

use crate::walk::Reason;
use serde::Serialize;
use uvfs_concurrent::counter::Counter;

/// Event counters of the core; striped, so counting fights over no line.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) name_hits: Counter,
    pub(crate) negative_hits: Counter,
    pub(crate) name_misses: Counter,
    pub(crate) names_evicted: Counter,
    pub(crate) waited: Counter,
    pub(crate) walks: WalkCounters,
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
    /// May be held; the same unit. None for names and inodes, which share `metadata`.
    pub limit: Option<u64>,
    /// Requests answered.
    pub hits: u64,
    /// Requests passed to the store.
    pub misses: u64,
    /// Entries dropped for room.
    pub evicted: u64,
}

/// A budget of bytes.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct BudgetStatistics {
    /// Held now.
    pub held_bytes: u64,
    /// May be held.
    pub limit_bytes: u64,
    /// Let go, and kept only until every reader has passed; of the whole process.
    pub garbage_bytes: u64,
}

/// Path walks, and why some did not stay on the fast path.
#[derive(Debug, Clone, Serialize)]
pub struct WalkStatistics {
    /// Answered by a memo of the whole path.
    pub whole: u64,
    /// Walked by components. Ended without a lock, a reference or a store.
    pub fast: u64,
    /// Went on by the slow walk, by reason.
    pub slow: Vec<(&'static str, u64)>,
}

/// Counts walks.
#[derive(Debug, Default)]
pub(crate) struct WalkCounters {
    pub(crate) fast: Counter,
    pub(crate) whole: Counter,
    slow: [Counter; Reason::ALL.len()],
}

impl WalkCounters {
    /// A walk left the fast path.
    pub(crate) fn slow(&self, reason: Reason) {
        self.slow[reason as usize].hit();
    }

    pub(crate) fn statistics(&self) -> WalkStatistics {
        let slow = Reason::ALL.iter().map(|&why| (why.name(), self.slow[why as usize].total()));
        WalkStatistics { whole: self.whole.total(), fast: self.fast.total(), slow: slow.collect() }
    }
}

/// A snapshot of everything the core counts.
#[derive(Debug, Clone, Serialize)]
pub struct Statistics {
    /// Kind of store.
    pub store: &'static str,
    /// Names and inodes together.
    pub metadata: BudgetStatistics,
    /// Names.
    pub names: CacheStatistics,
    /// Names known to be missing that are held now; counted in `names` too.
    pub negatives: u64,
    /// Names known to be missing: lookups answered so.
    pub negative_hits: u64,
    /// Lookups that waited for another one's answer about the same name.
    pub waited: u64,
    /// Memos of whole paths that are held.
    pub paths: u64,
    /// Path walks of the in-process API.
    pub walks: WalkStatistics,
    /// Inodes; hits and misses are attribute requests.
    pub inodes: CacheStatistics,
    /// Inodes in use by somebody.
    pub inodes_active: u64,
    /// Inodes that were queued to be forgotten first, because no name leads to them.
    pub orphans: u64,
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
