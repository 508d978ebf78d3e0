//! Ranges: what is done to the slots of one leaf is done under one lock.
//!
//! # Boundary
//! Not one step for the whole range: other threads may see some leaves changed and others not yet.
//! Within a leaf, readers may see some slots changed and others not yet.
//!
//! # Why
//! A lock costs as much as all else of a single operation; for a full leaf it is paid once instead of
//! 64 times, and tags become one store. Weakness: a removal calls back after each leaf, and values
//! wait for it in 512 bytes on the stack.

use super::gang::{Part, limits};
use super::locking::{Context, Found, Locking, Place, Wish};
use super::node::{Lines, SLOTS, bits, slot_of};
#[cfg(loom)]
use super::stand_in::Guard;
use super::tags::{Tag, TagMask, raise};
use super::tree::{Tree, Unlinked, run, settle};
#[cfg(not(loom))]
use crate::epoch::Guard;
use std::num::NonZeroU64;
use std::ops::RangeBounds;

impl<L: Locking> Tree<L> {
    /// Puts `values` at `first` and the indexes after it, up to the first that has a value already.
    /// Returns how many were put there.
    ///
    /// # Panics
    /// If there are more values than indexes from `first` on.
    pub fn insert_run(&self, first: u64, values: &[NonZeroU64], guard: &Guard) -> usize {
        let mut inserted = 0;
        while inserted < values.len() {
            let index = first.checked_add(inserted as u64).expect("indexes end here");
            let room = SLOTS - slot_of(index, 0);
            let rest = &values[inserted..];
            let rest = &rest[..rest.len().min(room)];
            let now = self.insert_in_leaf(index, rest, guard);
            inserted += now;
            if now < rest.len() {
                break;
            }
        }
        inserted
    }

    /// As `insert_run`, for values of one leaf.
    fn insert_in_leaf(&self, index: u64, values: &[NonZeroU64], _guard: &Guard) -> usize {
        let mut locks = self.locks();
        loop {
            match locks.place(index) {
                Place::Empty => {
                    if self.plant(index, |leaf| leaf.fill_run(index, values)) {
                        return values.len();
                    }
                }
                Place::Node(node) if node.shift() > 0 => {
                    self.insert_chain(node, index, |leaf| leaf.fill_run(index, values));
                    locks.release(node);
                    return values.len();
                }
                Place::Node(leaf) => {
                    let first = slot_of(index, 0);
                    let taken = leaf.occupied() & run(first, values.len());
                    let free = bits(taken).next().map_or(values.len(), |slot| slot - first);
                    leaf.fill_run(index, &values[..free]);
                    locks.release(leaf);
                    return free;
                }
            }
        }
    }

    /// Takes all values in `range` out, and calls `removed` for each, with no lock held. Returns how
    /// many.
    pub fn remove_run(
        &self,
        range: impl RangeBounds<u64>,
        guard: &Guard,
        mut removed: impl FnMut(u64, NonZeroU64),
    ) -> usize {
        let mut count = 0;
        self.each_part(&range, TagMask::ANY, |part| {
            let mut values = [0; SLOTS];
            let taken = self.remove_in_leaf(&part, &mut values, guard);
            for slot in bits(taken) {
                if let Some(value) = NonZeroU64::new(values[slot]) {
                    removed(part.base + slot as u64, value);
                }
            }
            count += taken.count_ones() as usize;
        });
        count
    }

    /// Takes the values in one leaf out, into `values`; which slots had one.
    fn remove_in_leaf(&self, part: &Part<'_>, values: &mut [u64; SLOTS], guard: &Guard) -> u64 {
        let slots = part.slots;
        let mut unlinked = Unlinked::none();
        let mut locks = self.locks();
        let wish = Wish::Remove { slots };
        let Found::Leaf(leaf) = locks.leaf_again(part.leaf, part.base, wish) else { return 0 };
        let taken = leaf.occupied() & slots;
        let emptied = leaf.untag_all(taken);
        for slot in bits(taken) {
            values[slot] = leaf.load(slot);
            leaf.store(slot, 0);
        }
        leaf.occupy(leaf.occupied() & !taken);
        settle(&self.core, &mut locks, leaf, emptied, &mut unlinked);
        drop(locks);
        self.retire(unlinked, guard);
        taken
    }

    /// Tags all values in `range`. Returns how many did not have the tag.
    pub fn set_tags(&self, range: impl RangeBounds<u64>, tag: Tag, _guard: &Guard) -> usize {
        let mut count = 0;
        self.each_part(&range, TagMask::ANY, |part| {
            count += self.tag_in_leaf(&part, tag, None);
        });
        count
    }

    /// Tags all values in `range` that have the tag `from` with `to` too, as one that writes back does
    /// to tell what was dirty when it began from what became so later. Returns how many did not have
    /// `to`.
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

    /// Tags those in one leaf that have a value, and the tag `from` if one is asked for.
    fn tag_in_leaf(&self, part: &Part<'_>, tag: Tag, from: Option<Tag>) -> usize {
        let (tag, slots) = (tag.number(), part.slots);
        let mut locks = self.locks();
        let wish = Wish::Tag { tag, slots };
        let Found::Leaf(leaf) = locks.leaf_again(part.leaf, part.base, wish) else { return 0 };
        let chosen = match from {
            // Who has a tag is there (R5).
            Some(from) => leaf.tags(from.number()) & slots,
            None => leaf.occupied() & slots,
        };
        let new = chosen & !leaf.tags(tag);
        if new == 0 {
            locks.untagged(part.base, tag, leaf);
            return 0;
        }
        raise(&mut locks, leaf, tag, new);
        locks.release(leaf);
        new.count_ones() as usize
    }

    /// Takes the tag from all values in `range`. Returns how many had it.
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

    /// Calls `change` for each leaf in `range` that may have what `mask` wants.
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
