//! Gang lookups: many values in one call, by index or by tag, without a lock.
//!
//! # Boundary
//! Reads only. Each value found was present at some instant during the call, and each value present all the time is
//! found. A gang lookup is as exact as as many single lookups (also in Linux, since 2.6.27), and is no snapshot.
//!
//! # Why
//! A leaf is found from the root every time: three or four loads for 64 slots, and no repair when the tree changes its
//! height meanwhile. Weakness: a search by several tags reads the tags one after another. A page that passes a tag from
//! one word to another may be seen with both or none.

use super::node::{ALL, BITS, Lines, Node, SLOTS, TAGS, bits, slot_of};
#[cfg(loom)]
use super::stand_in::Guard;
use super::tags::TagMask;
use super::tree::{Core, Tree};
use std::num::NonZeroU64;
use std::ops::{Bound, RangeBounds};
#[cfg(not(loom))]
use uvfs_concurrent::epoch::Guard;

/// First and last index of a range; none if it is empty.
pub(super) fn limits(range: &impl RangeBounds<u64>) -> Option<(u64, u64)> {
    let first = match range.start_bound() {
        Bound::Included(&first) => first,
        Bound::Excluded(&before) => before.checked_add(1)?,
        Bound::Unbounded => 0,
    };
    let last = match range.end_bound() {
        Bound::Included(&last) => last,
        Bound::Excluded(&end) => end.checked_sub(1)?,
        Bound::Unbounded => u64::MAX,
    };
    (first <= last).then_some((first, last))
}

/// A leaf, and the slots whose indexes lie in a range.
pub(super) struct Part<'t> {
    pub(super) leaf: &'t Node,
    /// The index of the leaf's slot 0.
    pub(super) base: u64,
    /// The range's slots.
    pub(super) slots: u64,
}

impl Part<'_> {
    /// The index after this leaf; none after the last leaf of all.
    pub(super) fn after(&self) -> Option<u64> {
        self.base.checked_add(SLOTS as u64)
    }
}

/// The slots of `first`'s leaf whose indexes lie in `first..=last`, and the leaf's first index.
#[inline]
pub(super) fn part(first: u64, last: u64) -> (u64, u64) {
    let base = first & !(SLOTS as u64 - 1);
    let beyond = (last - base).min(SLOTS as u64 - 1);
    (base, ALL << (first - base) & ALL >> (SLOTS as u64 - 1 - beyond))
}

/// The slots of `node` that may lead to values with the tags of `mask`.
#[inline]
fn candidates(node: &Node, mask: TagMask) -> u64 {
    // A value that has a tag is present (R5).
    let all = if mask.with == 0 { node.occupied() } else { ALL };
    (0..TAGS).filter(|tag| mask.with & 1 << tag != 0).fold(all, |slots, tag| slots & node.tags(tag))
}

impl Core {
    /// The first leaf with a slot in `first..=last` whose values may match `mask`. Prefetches `lines` of a later leaf.
    #[inline]
    pub(super) fn next_part<'t>(
        &self,
        mut first: u64,
        last: u64,
        mask: TagMask,
        lines: Lines,
    ) -> Option<Part<'t>> {
        'root: loop {
            let root = self.root();
            let mut node = root.node()?;
            if first > last || !root.covers(first) {
                return None;
            }
            let mut shift = node.shift();
            while shift > 0 {
                let from = slot_of(first, shift);
                let slots = candidates(node, mask) & ALL << from;
                // SAFETY: above level 0, so not a leaf; the caller is pinned (R6).
                let child = |slot| unsafe { node.child(slot) }.map(|child| (slot, child));
                let Some((slot, child)) = bits(slots).find_map(child) else {
                    // No further match below this node: continue after its range.
                    let range = u64::MAX >> (63 - (shift + BITS - 1).min(63));
                    first = (first | range).checked_add(1)?;
                    continue 'root;
                };
                // A short visit ends before one line has arrived, a long one does not.
                let ahead = if lines == Lines::Header { 3 } else { 1 };
                if let Some(later) = bits(slots & (ALL - 1) << slot).nth(ahead - 1) {
                    node.prefetch(later, lines);
                }
                if slot > from {
                    first = first >> shift & !(SLOTS as u64 - 1);
                    first = (first | slot as u64) << shift;
                    if first > last {
                        return None;
                    }
                }
                node = child;
                shift -= BITS;
            }
            let (base, slots) = part(first, last);
            return Some(Part { leaf: node, base, slots });
        }
    }
}

/// The slots among `slots` whose tags match `mask`.
#[inline]
fn matching(leaf: &Node, slots: u64, mask: TagMask) -> u64 {
    let mut slots = slots & candidates(leaf, mask);
    for tag in (0..TAGS).filter(|tag| mask.without & 1 << tag != 0) {
        slots &= !leaf.tags(tag);
    }
    slots
}

impl Tree {
    /// The values in `range`, in order of their indexes, as many as fit into `out`. Returns their number.
    #[inline]
    pub fn gang(
        &self,
        range: impl RangeBounds<u64>,
        out: &mut [(u64, NonZeroU64)],
        guard: &Guard,
    ) -> usize {
        self.gang_tagged(range, TagMask::ANY, out, guard)
    }

    /// The values in `range` whose tags match `mask`, in order of their indexes, as many as fit into `out`. Returns
    /// their number.
    #[inline]
    pub fn gang_tagged(
        &self,
        range: impl RangeBounds<u64>,
        mask: impl Into<TagMask>,
        out: &mut [(u64, NonZeroU64)],
        _guard: &Guard,
    ) -> usize {
        let (mask, mut found) = (mask.into(), 0);
        let Some((mut first, last)) = limits(&range) else { return 0 };
        while found < out.len() {
            let Some(part) = self.core.next_part(first, last, mask, Lines::All) else { break };
            for slot in bits(matching(part.leaf, part.slots, mask)) {
                if let Some(value) = part.leaf.value(slot) {
                    let Some(place) = out.get_mut(found) else { return found };
                    *place = (part.base + slot as u64, value);
                    found += 1;
                }
            }
            match part.after() {
                Some(after) => first = after,
                None => break,
            }
        }
        found
    }

    /// All values in `range`, in order of their indexes.
    pub fn iter<'t>(
        &'t self,
        range: impl RangeBounds<u64>,
        guard: &'t Guard,
    ) -> impl Iterator<Item = (u64, NonZeroU64)> + 't {
        self.iter_tagged(range, TagMask::ANY, guard)
    }

    /// All values in `range` whose tags match `mask`, in order of their indexes.
    pub fn iter_tagged<'t>(
        &'t self,
        range: impl RangeBounds<u64>,
        mask: impl Into<TagMask>,
        _guard: &'t Guard,
    ) -> impl Iterator<Item = (u64, NonZeroU64)> + 't {
        let mask = mask.into();
        let mut rest = limits(&range);
        let parts = std::iter::from_fn(move || {
            let (first, last) = rest?;
            let part = self.core.next_part(first, last, mask, Lines::All)?;
            rest = part.after().filter(|&after| after <= last).map(|after| (after, last));
            Some(part)
        });
        parts.flat_map(move |Part { leaf, base, slots }| {
            let value = move |slot| Some((base + slot as u64, leaf.value(slot)?));
            bits(matching(leaf, slots, mask)).filter_map(value)
        })
    }
}
