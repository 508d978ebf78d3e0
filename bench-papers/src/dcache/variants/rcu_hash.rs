//! `rcu-hash`: the first RCU patch. The hash is read without a lock; the LRU list is not.
//!
//! # Concurrency
//! A lookup pins the epoch and follows the chain. A used dentry gets one more reference by
//! compare-exchange. An unused one is in the LRU list, and to remove it from there the lookup needs
//! the `dcache_lock`; under it the lookup checks that the dentry is still hashed. A lookup that saw
//! a rename looks again under the lock.
//!
//! # Why
//! Section 3. The paper found that its dbench took the lock after almost every lookup, because the
//! dentry found had a count of 0.

use super::super::api::Dcache;
use super::super::sites;
use super::super::slab::{Id, Wanted};
use super::global_lock::GlobalLock;
use uvfs_concurrent::epoch;

impl GlobalLock {
    pub(super) fn d_lookup_lock_free(&self, wanted: &Wanted) -> Option<Id> {
        let _pin = epoch::pin();
        let Some(renames) = self.slab.renames() else { return self.d_lookup_locked(wanted) };
        let Some(id) = self.slab.find(wanted) else {
            return match self.slab.unmoved(renames) {
                true => None,
                false => self.d_lookup_locked(wanted),
            };
        };
        let dentry = self.slab.at(id);
        if dentry.hold_if_held() {
            if self.slab.unmoved(renames) {
                dentry.referenced.raise();
                return Some(id);
            }
            self.dput(id);
            return self.d_lookup_locked(wanted);
        }
        let mut lists = sites::d_lookup(&self.dcache_lock);
        // It may be freed by now, and its slot reused.
        let id = match dentry.hashed.get() && dentry.is(wanted) {
            true => id,
            false => self.slab.find(wanted)?,
        };
        self.dget_locked(&mut lists, id);
        Some(id)
    }
}
