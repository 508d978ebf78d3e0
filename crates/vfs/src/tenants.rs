//! Others that take memory from the one budget: a store's tables, a frontend's.
//!
//! # Boundary
//! Knows who shares the budget and what they hold. Who has too much, and who is asked first, is decided in
//! [`crate::reclaim`].
//!
//! # Concurrency
//! A tenant joins under a lock, and is asked what it holds under the same lock, shared; where nobody has joined, one word
//! says so and no lock is taken. What they held when somebody last asked is one word, which every operation reads; it
//! is asked again whenever a thread looks whether there is too much ([`crate::budget`]). A tenant is asked to shrink with no
//! lock held.
//!
//! # Why
//! A table of a frontend or a store grows with what is cached, but is not the core's; while it was measured
//! from outside, as memory of the process besides the caches, 300,000 files took eight times the budget before
//! anybody had looked. Weakness: a tenant's bytes are what it says they are.

use crate::lock_order;
use std::fmt;
use std::sync::{Arc, Weak};
use uvfs_concurrent::lock::RwLock;
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Something that holds memory by what is cached, and shares the budget ([`crate::VfsConfig::cache_bytes`]).
pub trait Tenant: Send + Sync + 'static {
    /// Bytes that it holds now. Called whenever something is added to the caches, with a lock held: it reads
    /// counters, takes no lock and asks nobody.
    fn held_bytes(&self) -> u64;

    /// Asks it to hold about `bytes` less, as soon as it can: the caches are beyond their budget, and what they
    /// could evict themselves is gone. Called again and again while that is so. Returns at once.
    fn shrink(&self, bytes: u64);
}

/// All that share one budget.
pub(crate) struct Tenants {
    all: RwLock<Vec<Weak<dyn Tenant>>>,
    /// Whether anybody ever joined; set under the lock.
    any: AtomicBool,
    /// What they held when somebody last counted.
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
        // ORDERING: Relaxed; who does not see it yet counts as if it came a moment earlier.
        self.any.store(true, Relaxed);
    }

    /// Asks all what they hold.
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

    /// What they held when somebody last counted.
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
        assert_eq!(tenants.held_bytes(), 0, "nobody has asked yet");
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
