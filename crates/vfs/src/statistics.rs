//! Contents and counters of the caches.

use crate::backend::Ended;
use crate::latency::Latency;
use crate::walk::Reason;
use serde::{Serialize, Serializer};
use uvfs_concurrent::counter::Counter;

/// Event counters of the core; each thread counts in its own cells.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) name_hits: Counter,
    pub(crate) negative_hits: Counter,
    pub(crate) name_misses: Counter,
    pub(crate) names_evicted: Counter,
    pub(crate) waited: Counter,
    pub(crate) listing_hits: Counter,
    pub(crate) listing_misses: Counter,
    pub(crate) listing_stale_hits: Counter,
    pub(crate) listings_refreshed: Counter,
    pub(crate) listings_ahead: Counter,
    pub(crate) files_ahead: Counter,
    pub(crate) walks: WalkCounters,
    pub(crate) attribute_hits: Counter,
    pub(crate) attribute_misses: Counter,
    pub(crate) inodes_evicted: Counter,
    pub(crate) discarded: Counter,
    pub(crate) stale: Counter,
    pub(crate) news: Counter,
}

/// One cache: its contents, its limit, its use.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CacheStatistics {
    /// Entries held now.
    pub held: u64,
    /// Limit of the entries held, in the same unit. None for names and inodes, which `budget` bounds together.
    pub limit: Option<u64>,
    /// Requests answered.
    pub hits: u64,
    /// Requests passed to the store.
    pub misses: u64,
    /// Entries dropped for room.
    pub evicted: u64,
}

/// Whole listings, kept for stores that allow it ([`crate::Listings`]).
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ListingStatistics {
    /// Bytes held now.
    pub held_bytes: u64,
    /// Directories listed from the cache.
    pub hits: u64,
    /// Directories that the store was asked to list.
    pub misses: u64,
    /// Names and listings answered from a list that had expired, while it was refreshed.
    pub stale_hits: u64,
    /// Directories listed again because their list had expired.
    pub refreshed: u64,
    /// Directories that came with the listing of a sibling.
    pub ahead: u64,
    /// Files fetched because other files of their directory were read in order.
    pub files_ahead: u64,
}

/// The one budget of all caches, and its shares.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct BudgetStatistics {
    /// The present [`crate::VfsConfig::cache_bytes`].
    pub limit_bytes: u64,
    /// The part of it for the process's other memory.
    pub overhead_bytes: u64,
    /// The least value of that, by the configuration: the program and its buffers, before anything is cached.
    pub fixed_bytes: u64,
    /// Held now by all together; with `overhead_bytes` at most `limit_bytes`, except for entries in use.
    pub held_bytes: u64,
    /// Held by names, inodes, memos of whole paths, and their tables, and by tenants.
    pub metadata_bytes: u64,
    /// The part of `metadata_bytes` held by tenants: tables of the frontend and of the store.
    pub tenant_bytes: u64,
    /// Limit of `metadata_bytes` with the present size of pages.
    pub metadata_max_bytes: u64,
    /// Held by pages.
    pub page_bytes: u64,
    /// Limit of `page_bytes` with the present size of names and inodes.
    pub page_max_bytes: u64,
    /// Retired, and kept only until every reader has passed; of the whole process.
    pub garbage_bytes: u64,
}

/// File data in the core's cache.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct PageStatistics {
    /// Bytes held now: pages, their descriptors and trees.
    pub held: u64,
    /// Bytes that may be held now.
    pub limit: u64,
    /// Pages of 4 KiB in use.
    pub pages: u64,
    /// Bytes that the store does not have yet.
    pub dirty_bytes: u64,
    /// Pages read from the cache.
    pub hits: u64,
    /// Times that the store was asked because a page was missing.
    pub misses: u64,
    /// Times that a reader waited for a page that another reader was fetching.
    pub waited: u64,
    /// Reads around the cache, because there was no room in it.
    pub around: u64,
    /// Pages read ahead in the background.
    pub read_ahead: u64,
    /// Pages dropped for room.
    pub evicted: u64,
    /// Pages fetched and not kept, because the store changed meanwhile.
    pub stale: u64,
    /// Runs of pages written back.
    pub runs_written: u64,
    /// Pages written back.
    pub pages_written: u64,
    /// Runs that the store refused; their pages stayed.
    pub write_errors: u64,
    /// Writes that were slowed down because too many pages were dirty.
    pub throttled: u64,
}

/// Path walks, and why some did not stay on the fast path.
#[derive(Debug, Clone, Serialize)]
pub struct WalkStatistics {
    /// Answered by a memo of the whole path.
    pub whole: u64,
    /// Walked by components. Ended without a lock, a reference or a store.
    pub fast: u64,
    /// Continued by the slow walk, by reason.
    #[serde(serialize_with = "as_object")]
    pub slow: Vec<(&'static str, u64)>,
}

/// Marks by [`crate::Vfs::set_policy`], and the entries cached by these marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PolicyStatistics {
    /// Marked directories.
    pub marks: u64,
    /// Passes over the caches because a mark was set, or a directory moved to a place with another policy.
    pub passes: u64,
    /// Bytes of names with the class `Keep`, with their inodes.
    pub kept_name_bytes: u64,
    /// Names with the class `Once`.
    pub once_names: u64,
    /// Pages with the class `Keep`.
    pub kept_pages: u64,
    /// Pages with the class `Once`.
    pub once_pages: u64,
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

/// A snapshot of all counts of the core.
#[derive(Debug, Clone, Serialize)]
pub struct Statistics {
    /// Kind of store.
    pub store: &'static str,
    /// The budget of names, inodes and pages together.
    pub budget: BudgetStatistics,
    /// Names.
    pub names: CacheStatistics,
    /// Negative names held now; counted in `names` too.
    pub negatives: u64,
    /// Lookups answered by a negative name.
    pub negative_hits: u64,
    /// Lookups that waited for another lookup of the same name.
    pub waited: u64,
    /// Whole listings of directories.
    pub listings: ListingStatistics,
    /// Memos of whole paths that are held.
    pub paths: u64,
    /// Path walks of the in-process API.
    pub walks: WalkStatistics,
    /// Inodes; hits and misses are attribute requests.
    pub inodes: CacheStatistics,
    /// Inodes in use. With more than 65,536 inodes held, the number may be some seconds old (20 s for a million).
    pub inodes_active: u64,
    /// Inodes queued to be evicted first, because no name leads to them.
    pub orphans: u64,
    /// File data in the core's cache.
    pub pages: PageStatistics,
    /// Marks, and entries cached by them.
    pub policies: PolicyStatistics,
    /// Answers of the store not kept, because a change overtook them.
    pub discarded: u64,
    /// Times the store had changed behind the caches.
    pub stale: u64,
    /// News of changes by others received from the store.
    pub news: u64,
    /// Counters of the backend.
    #[serde(serialize_with = "as_object")]
    pub backend: Vec<(&'static str, u64)>,
    /// Durations of the store's calls, by kind of call. Not measured for a store that never waits.
    #[serde(serialize_with = "as_object")]
    pub store_latency: Vec<(&'static str, Latency)>,
    /// The failure after which the store takes no changes any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_ended: Option<Ended>,
    /// Calls of the store in progress now.
    pub store_under_way: u64,
}

/// Named values as an object: a reader looks a value up by its name.
fn as_object<T: Serialize, S: Serializer>(
    values: &[(&'static str, T)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(values.iter().map(|(name, value)| (name, value)))
}
