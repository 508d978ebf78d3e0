//! The space of the file system: one limit for data and metadata, and one for inodes.
//!
//! # Boundary
//! Counts bytes; allocates nothing. A [`Charge`] is the share that one node holds, and gives itself
//! back when dropped, so that no path can leak space.
//!
//! # Concurrency
//! Two counters, changed by single atomic operations; a node's charge is changed under that node's
//! lock. Weakness: all threads that allocate meet on one cache line, so writers charge a chunk of
//! pages at a time.

use std::sync::Arc;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_vfs::{Error, Result};

/// Cost of an inode in bytes: its node, its place in the node table, and slack of the allocator.
pub(super) const INODE_BYTES: u64 = 512;
/// Cost of a directory entry in bytes, whatever its name: the longest name and its places in both
/// indices. One cost for all, so that a rename never runs out of space.
pub(super) const ENTRY_BYTES: u64 = 448;
/// Cost of an extended attribute or an access control list in bytes, beside its name and value.
pub(super) const XATTR_BYTES: u64 = 128;

/// The limits, and what is used of them.
#[derive(Debug)]
pub(super) struct Budget {
    bytes: Limited,
    inodes: Limited,
}

#[derive(Debug)]
struct Limited {
    used: AtomicU64,
    max: u64,
}

impl Limited {
    fn new(max: u64) -> Self {
        Self { used: AtomicU64::new(0), max }
    }

    /// Takes what `wanted` makes of the rest, if it makes anything of it.
    fn take(&self, wanted: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let mut taken = None;
        // ORDERING: Relaxed; the count itself is all that is shared, nothing is reached through it.
        let _ = self.used.fetch_update(Relaxed, Relaxed, |used| {
            let rest = self.max.saturating_sub(used);
            taken = wanted(rest).filter(|&amount| amount <= rest);
            taken.map(|amount| used + amount)
        });
        taken
    }

    fn give_back(&self, amount: u64) {
        // ORDERING: Relaxed; as in `take`.
        let before = self.used.fetch_sub(amount, Relaxed);
        debug_assert!(before >= amount, "more given back than was taken");
    }

    fn racy_used(&self) -> u64 {
        // ORDERING: Relaxed; a statistic.
        self.used.load(Relaxed)
    }
}

impl Budget {
    pub(super) fn new(bytes_max: u64, inodes_max: u64) -> Arc<Self> {
        Arc::new(Self { bytes: Limited::new(bytes_max), inodes: Limited::new(inodes_max) })
    }

    /// Takes an inode and its cost.
    pub(super) fn take_inode(self: &Arc<Self>) -> Result<Charge> {
        self.inodes.take(|_| Some(1)).ok_or(Error::NoSpace)?;
        // From here on the charge gives the inode back, also when its cost cannot be paid.
        let mut charge = Charge { budget: self.clone(), bytes: 0 };
        charge.grow(INODE_BYTES)?;
        Ok(charge)
    }

    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes.max
    }
    pub(super) fn inodes_max(&self) -> u64 {
        self.inodes.max
    }
    pub(super) fn racy_bytes(&self) -> u64 {
        self.bytes.racy_used()
    }
    pub(super) fn racy_inodes(&self) -> u64 {
        self.inodes.racy_used()
    }
}

/// One inode, and the bytes that its node holds.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Charge {
    /// Takes `bytes` more, all or nothing.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<()> {
        self.bytes += self.budget.bytes.take(|_| Some(bytes)).ok_or(Error::NoSpace)?;
        Ok(())
    }

    /// Takes `fixed` bytes and as many `unit`s as there is room for, at most `wanted` and at least
    /// one. Returns how many units; 0 if nothing was taken.
    pub(super) fn grow_units(&mut self, fixed: u64, unit: u64, wanted: u64) -> u64 {
        let taken = self.budget.bytes.take(|rest| {
            let units = wanted.min(rest.checked_sub(fixed)? / unit);
            (units > 0).then(|| fixed + units * unit)
        });
        let Some(bytes) = taken else { return 0 };
        self.bytes += bytes;
        (bytes - fixed) / unit
    }

    /// Gives `bytes` back.
    pub(super) fn shrink(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.bytes, "a node gives back more than it holds");
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.budget.bytes.give_back(bytes);
    }

    /// Goes from `before` to `after` bytes of something that this charge holds.
    pub(super) fn change(&mut self, before: u64, after: u64) -> Result<()> {
        if after > before {
            return self.grow(after - before);
        }
        self.shrink(before - after);
        Ok(())
    }

    /// Lets go of `bytes` without giving them back: another charge [`Charge::adopt`]s them.
    pub(super) fn cede(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.bytes, "a node cedes more than it holds");
        self.bytes -= bytes;
    }

    /// Takes over `bytes` that another charge ceded.
    pub(super) fn adopt(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.bytes.give_back(self.bytes);
        self.budget.inodes.give_back(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_takes_within_the_limit_and_gives_all_back() {
        let budget = Budget::new(INODE_BYTES * 2 + 100, 3);
        let mut one = budget.take_inode().unwrap();
        one.grow(100).unwrap();
        let two = budget.take_inode().unwrap();
        assert!(matches!(budget.take_inode(), Err(Error::NoSpace)));
        assert_eq!(budget.racy_inodes(), 2, "an inode that cannot be paid is given back");
        assert!(matches!(one.grow(1), Err(Error::NoSpace)));
        one.shrink(60);
        one.change(40, 90).unwrap();
        assert_eq!(budget.racy_bytes(), INODE_BYTES * 2 + 90);
        drop((one, two));
        assert_eq!((budget.racy_bytes(), budget.racy_inodes()), (0, 0));
    }

    #[test]
    fn inodes_are_limited_apart_from_bytes() {
        let budget = Budget::new(1 << 30, 1);
        let _one = budget.take_inode().unwrap();
        assert!(matches!(budget.take_inode(), Err(Error::NoSpace)));
    }

    #[test]
    fn units_are_granted_as_far_as_they_fit() {
        let budget = Budget::new(INODE_BYTES + 1000, 1);
        let mut charge = budget.take_inode().unwrap();
        assert_eq!(charge.grow_units(50, 100, 3), 3);
        assert_eq!(charge.grow_units(0, 100, 100), 6);
        assert_eq!(charge.grow_units(0, 100, 1), 0);
        assert_eq!(charge.grow_units(200, 1, 1), 0);
        assert_eq!(budget.racy_bytes(), INODE_BYTES + 950);
    }
}
