//! Ranges: all changes to the slots of one leaf are made under one lock.
//!
//! # Boundary
//! Not one step for the whole range: other threads may see some leaves changed and others not yet. Within a leaf,
//! readers may see some slots changed and others not yet.
//!
//! # Why
//! A lock costs as much as the rest of a single operation. For a full leaf it is taken once instead of 64 times, and
//! tags become one store. Weakness: values are inserted and removed one by one.

use super::gang::{Part, limits};
use super::locking::{Found, Wish};
use super::node::Lines;
#[cfg(loom)]
use super::stand_in::Guard;
use super::tags::{Tag, TagMask, raise};
use super::tree::{Tree, Unlinked, settle};
use std::ops::RangeBounds;
#[cfg(not(loom))]
use uvfs_concurrent::epoch::Guard;

impl Tree {
    /// Tags all values in `range`. Returns how many did not have the tag.
    pub fn set_tags(&self, range: impl RangeBounds<u64>, tag: Tag, _guard: &Guard) -> usize {
        let mut count = 0;
        self.each_part(&range, TagMask::ANY, |part| {
            count += self.tag_in_leaf(&part, tag, None);
        });
        count
    }

    /// Also sets the tag `to` on all values in `range` that have the tag `from`. A write-back uses it to distinguish
    /// pages that were dirty when it began from pages that became dirty later. Returns how many did not have `to`.
    pub fn copy_tag(
        &self,
        range: impl RangeBounds<u64>,
        from: Tag,
        to: Tag,
        _guard: &Guard,
    ) -> usize {
        let mut count = 0;
        self.each_part(&range, from.into(), |part| {
            count += self.tag_in_leaf(&part, to, Some(from));
        });
        count
    }

    /// Tags the slots of one leaf that have a value, and the tag `from` if there is one.
    fn tag_in_leaf(&self, part: &Part<'_>, tag: Tag, from: Option<Tag>) -> usize {
        let (tag, slots) = (tag.number(), part.slots);
        let mut locks = self.locks();
        let wish = Wish::Tag { tag, slots };
        let Found::Leaf(leaf) = locks.leaf_again(part.leaf, part.base, wish) else { return 0 };
        let chosen = match from {
            // A value that has a tag is present (R5).
            Some(from) => leaf.tags(from.number()) & slots,
            None => leaf.occupied() & slots,
        };
        let new = chosen & !leaf.tags(tag);
        if new == 0 {
            locks.release(leaf);
            return 0;
        }
        raise(&mut locks, leaf, tag, new);
        locks.release(leaf);
        new.count_ones() as usize
    }

    /// Removes the tag from all values in `range`. Returns how many had it.
    pub fn clear_tags(&self, range: impl RangeBounds<u64>, tag: Tag, _guard: &Guard) -> usize {
        let (mut count, number) = (0, tag.number());
        self.each_part(&range, tag.into(), |part| {
            let mut locks = self.locks();
            let slots = part.slots;
            let wish = Wish::Untag { tag: number, slots };
            let Found::Leaf(leaf) = locks.leaf_again(part.leaf, part.base, wish) else { return };
            count += (leaf.tags(number) & slots).count_ones() as usize;
            let emptied = u32::from(leaf.untag(number, slots)) << number;
            settle(&self.core, &mut locks, leaf, emptied, &mut Unlinked::none());
        });
        count
    }

    /// Calls `change` for each leaf in `range` whose values may match `mask`.
    #[inline(always)]
    fn each_part<'t>(
        &'t self,
        range: &impl RangeBounds<u64>,
        mask: TagMask,
        mut change: impl FnMut(Part<'t>),
    ) {
        let Some((mut first, last)) = limits(range) else { return };
        while let Some(found) = self.core.next_part(first, last, mask, Lines::Header) {
            let after = found.after();
            change(found);
            match after {
                Some(after) => first = after,
                None => return,
            }
        }
    }
}
