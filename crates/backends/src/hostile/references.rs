//! References that a backend handed out and got back.

use std::collections::{BTreeMap, HashMap};
use uvfs_vfs::InodeId;

/// The references of all objects. Those that were *forged* (handed out without asking the store)
/// are taken back first, and are not the store's business.
#[derive(Debug, Default)]
pub(super) struct References {
    held: HashMap<InodeId, Held>,
    over: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Held {
    real: u64,
    forged: u64,
}

impl References {
    pub(super) fn hand_out(&mut self, inode: InodeId) {
        self.held.entry(inode).or_default().real += 1;
    }

    pub(super) fn forge(&mut self, inode: InodeId) {
        self.held.entry(inode).or_default().forged += 1;
    }

    /// Takes back; returns how many are the store's.
    pub(super) fn take_back(&mut self, inode: InodeId, references: u64) -> u64 {
        let held = self.held.entry(inode).or_default();
        let forged = references.min(held.forged);
        let real = references - forged;
        held.forged -= forged;
        self.over += real.saturating_sub(held.real);
        held.real = held.real.saturating_sub(real);
        if held.real + held.forged == 0 {
            self.held.remove(&inode);
        }
        real
    }

    pub(super) fn outstanding(&self) -> BTreeMap<InodeId, u64> {
        self.held.iter().map(|(&inode, held)| (inode, held.real + held.forged)).collect()
    }

    pub(super) fn over(&self) -> u64 {
        self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forged_references_never_reach_the_store_and_excess_is_counted() {
        let mut references = References::default();
        let inode = InodeId(7);
        references.hand_out(inode);
        references.forge(inode);
        assert_eq!(references.outstanding(), BTreeMap::from([(inode, 2)]));
        assert_eq!(references.take_back(inode, 1), 0);
        assert_eq!(references.take_back(inode, 1), 1);
        assert!(references.outstanding().is_empty());
        assert_eq!(
            (references.over(), references.take_back(inode, 2), references.over()),
            (0, 2, 2)
        );
    }
}
