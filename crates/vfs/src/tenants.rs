//! Other consumers of the one budget: a store's tables, a frontend's.
//!
//! # Boundary
//! Has the tenants and the bytes that they hold. [`crate::reclaim`] decides about excess and the order of requests.
//!
//! # Concurrency
//! A tenant joins under a lock, and reports its bytes under the same lock, shared. If no tenant has joined, one word
//! says so and no lock is taken. The sum at the last count is one word, which every operation reads. It is renewed
//! whenever a thread checks for excess ([`crate::budget`]). A tenant is asked to shrink with no lock held.
//!
//! # Why
//! A table of a frontend or a store grows with the cached entries, but is not the core's. When it was measured from
//! outside, as other memory of the process, 300,000 files took eight times the budget before a thread looked. Weakness:
//! a tenant's bytes are its own claim.

use crate::lock_order;
use std::fmt;
use std::sync::{Arc, Weak};
use uvfs_concurrent::lock::RwLock;
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A holder of memory that grows with the cached entries, and that shares the budget
/// ([`crate::VfsConfig::cache_bytes`]).
pub trait Tenant: Send + Sync + 'static {
    /// Bytes that it holds now. Called at additions to the caches, with a lock held: it must only read counters, and
    /// take no lock.
    fn held_bytes(&self) -> u64;

    /// Asks it to hold about `bytes` less, as soon as it can: the caches are beyond their budget, and have evicted what
    /// they can. Called repeatedly while that is so. Returns at once.
    fn shrink(&self, bytes: u64);
}

/// All that share one budget.
pub(crate) struct Tenants {
    all: RwLock<Vec<Weak<dyn Tenant>>>,
    /// Whether a tenant ever joined; set under the lock.
    any: AtomicBool,
    /// The sum of their bytes at the last count.
    held_bytes: AtomicU64,
}

impl Tenants {
    pub(crate) fn new() -> Self {
        let all = RwLock::new(&lock_order::TENANTS, Vec::new());
        Self { all, any: AtomicBool::new(false), held_bytes: AtomicU64::new(0) }
    }

    /// `tenant` shares the budget until it is dropped.
    pub(crate) fn join(&self, tenant: Weak<dyn Tenant>) {
        let mut all = self.all.write();
        all.retain(|one| one.strong_count() > 0);
        all.push(tenant);
        // ORDERING: Relaxed; a thread that does not see it yet counts as if it came a moment earlier.
        self.any.store(true, Relaxed);
    }

    /// Adds up the bytes of all.
    pub(crate) fn count(&self) {
        // ORDERING: Relaxed; see `join`.
        if !self.any.load(Relaxed) {
            return;
        }
        let all = self.all.read();
        let held = all.iter().filter_map(Weak::upgrade).map(|tenant| tenant.held_bytes()).sum();
        drop(all);
        // ORDERING: Relaxed; a size that may lag.
        if self.held_bytes.load(Relaxed) != held {
            self.held_bytes.store(held, Relaxed);
        }
    }

    /// The sum of their bytes at the last count.
    pub(crate) fn held_bytes(&self) -> u64 {
        // ORDERING: Relaxed; a size that may lag.
        self.held_bytes.load(Relaxed)
    }

    /// Asks all to hold less.
    pub(crate) fn shrink(&self, bytes: u64) {
        let all: Vec<Arc<dyn Tenant>> = self.all.read().iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|tenant| tenant.shrink(bytes));
    }
}

impl fmt::Debug for Tenants {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Tenants").field("held_bytes", &self.held_bytes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Table {
        held: AtomicU64,
        asked: AtomicU64,
    }

    impl Tenant for Table {
        fn held_bytes(&self) -> u64 {
            self.held.load(Relaxed)
        }
        fn shrink(&self, bytes: u64) {
            self.asked.fetch_add(bytes, Relaxed);
        }
    }

    #[test]
    fn tenants_count_and_are_asked_until_they_are_gone() {
        let tenants = Tenants::new();
        let tables: [Arc<Table>; 2] = Default::default();
        for table in &tables {
            let weak: Weak<Table> = Arc::downgrade(table);
            tenants.join(weak);
        }
        tables[0].held.store(3, Relaxed);
        tables[1].held.store(4, Relaxed);
        assert_eq!(tenants.held_bytes(), 0, "no thread has asked yet");
        tenants.count();
        assert_eq!(tenants.held_bytes(), 7);
        tenants.shrink(5);
        assert_eq!(tables.each_ref().map(|table| table.asked.load(Relaxed)), [5, 5]);
        let [first, last] = tables;
        drop(first);
        tenants.count();
        assert_eq!(tenants.held_bytes(), 4);
        drop(last);
        tenants.count();
        assert_eq!(tenants.held_bytes(), 0);
    }
}
