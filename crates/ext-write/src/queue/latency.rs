//! How long the requests of a class took.

use super::policy::Seen;
use std::time::Instant;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};

/// Requests of one class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many ended.
    pub requests: u64,
    /// How long they took in all.
    pub ns: u64,
    /// The longest one.
    pub ns_max: u64,
}

/// Latencies that many threads count.
#[derive(Debug, Default)]
pub(super) struct Meter {
    requests: AtomicU64,
    ns: AtomicU64,
    ns_max: AtomicU64,
    /// Requests in the present window, and the complement of the shortest time, so that 0 is none.
    window: AtomicU64,
    window_least: AtomicU64,
}

impl Meter {
    /// A request that began at `since` has ended.
    pub(super) fn count(&self, since: Instant) {
        let ns = since.elapsed().as_nanos() as u64;
        // ORDERING: Relaxed, all of them; statistics, nothing is reached through them.
        self.requests.fetch_add(1, Relaxed);
        self.ns.fetch_add(ns, Relaxed);
        self.ns_max.fetch_max(ns, Relaxed);
        self.window.fetch_add(1, Relaxed);
        self.window_least.fetch_max(!ns, Relaxed);
    }

    pub(super) fn latency(&self) -> Latency {
        // ORDERING: Relaxed; as in `count`.
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        Latency { requests: of(&self.requests), ns: of(&self.ns), ns_max: of(&self.ns_max) }
    }

    /// The requests of the window that ends now.
    pub(super) fn take_window(&self) -> Seen {
        // ORDERING: Relaxed; a request that ends between the two is in either window.
        let requests = self.window.swap(0, Relaxed);
        Seen { requests, least_ns: !self.window_least.swap(0, Relaxed) }
    }
}
