//! Tags: set, cleared, queried, and summarised in the nodes above.
//!
//! # Boundary
//! Single indexes here. Ranges, which change several slots of a leaf under one lock, are in [`super::range`]. R5, in
//! [`super`], explains why a set changes the nodes above before the leaf's bit, and a clear after it.
//!
//! # Why
//! Setting a tag that is already set takes no lock, because dirtying a dirty page is the common case. Weakness: the
//! first tag of a leaf holds as many locks as there are levels without that tag.

use super::locking::{Found, NodeLocks, Wish};
use super::node::{Node, slot_of};
#[cfg(loom)]
use super::stand_in::Guard;
use super::tree::{Tree, Unlinked, settle};
#[cfg(not(loom))]
use uvfs_concurrent::epoch::Guard;

/// A mark on a value. Every node records which of its slots lead to values with the mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Tag {
    /// Differs from the version in the store.
    Dirty = 0,
    /// Being written.
    Writing = 1,
    /// Was dirty when a thread began to write all dirty values.
    ToWrite = 2,
}

impl Tag {
    /// All tags.
    pub const ALL: [Tag; 3] = [Tag::Dirty, Tag::Writing, Tag::ToWrite];

    #[inline(always)]
    pub(super) fn number(self) -> usize {
        self as usize
    }
}

/// Values with some tags and without some others.
///
/// ```
/// use uvfs_containers::radix::{Tag, TagMask};
/// let to_start = TagMask::with(Tag::Dirty).and_without(Tag::Writing);
/// # let _ = to_start;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TagMask {
    pub(super) with: u32,
    pub(super) without: u32,
}

impl TagMask {
    /// Every value, with any tags.
    pub const ANY: Self = Self { with: 0, without: 0 };

    /// Values with `tag`.
    pub const fn with(tag: Tag) -> Self {
        Self::ANY.and_with(tag)
    }

    /// Values without `tag`.
    pub const fn without(tag: Tag) -> Self {
        Self::ANY.and_without(tag)
    }

    /// Restricts this mask to values that also have `tag`.
    #[must_use]
    pub const fn and_with(self, tag: Tag) -> Self {
        Self { with: self.with | 1 << tag as u32, ..self }
    }

    /// Restricts this mask to values that do not have `tag`.
    #[must_use]
    pub const fn and_without(self, tag: Tag) -> Self {
        Self { without: self.without | 1 << tag as u32, ..self }
    }
}

impl From<Tag> for TagMask {
    fn from(tag: Tag) -> Self {
        Self::with(tag)
    }
}

/// Sets the tag on `slots` of a held leaf, after setting it above. The caller releases the leaf.
#[inline(always)]
pub(super) fn raise<'t>(locks: &mut NodeLocks<'t>, leaf: &'t Node, tag: usize, slots: u64) {
    let before = leaf.tags(tag);
    if before == 0 {
        raise_above(locks, leaf, tag);
    }
    leaf.set_tags(tag, before | slots);
}

/// Sets the bits above `node`, which is held and whose word for `tag` is 0: the highest first, with every node between
/// held meanwhile (R5).
#[inline(never)]
fn raise_above<'t>(locks: &mut NodeLocks<'t>, node: &'t Node, tag: usize) {
    let Some(parent) = locks.parent(node) else { return };
    let before = parent.tags(tag);
    if before == 0 {
        raise_above(locks, parent, tag);
    }
    parent.set_tags(tag, before | node.bit_above());
    locks.release(parent);
}

impl Tree {
    /// Tags the value at `index`; false if there is none. Takes no lock if it already has the tag.
    ///
    /// Why a tag is never lost. The classic failure: one thread clears the last bit of a leaf and goes up. Another sets
    /// a bit in the leaf, sees the parent's bit still set, and stops. Then the first clears the parent's bit, and no
    /// search finds the tag. Here the second thread waits for the leaf, which is held until the parent's bit is
    /// cleared, and then sets both. *Without a lock*: this function returns at once when the leaf's bit is set. At the
    /// instant of that load the value is present and every bit above is set (R5), because a thread sets those before
    /// the leaf's bit. The load acquires that thread's stores (O3), so a search that begins afterwards sees no older
    /// words. Those bits are cleared only after this bit, by a clear that comes after this call in the order of the
    /// leaf's word. An earlier clear that is still on its way up has emptied the leaf's word, so this load would not
    /// have seen the bit. [`Tree::clear_tag`] returns at once when the bit is clear: the tag is gone at that instant.
    /// Bits above may stay set until the clearing thread has finished; a search below them finds nothing.
    #[inline]
    pub fn set_tag(&self, index: u64, tag: Tag, _guard: &Guard) -> bool {
        let (tag, slot) = (tag.number(), slot_of(index, 0));
        let slots = 1 << slot;
        let mut locks = self.locks();
        let leaf = match locks.leaf(index, Wish::Tag { tag, slots }) {
            Found::Leaf(leaf) => leaf,
            // A value that has a tag is present (R5).
            Found::AsWished => return true,
            Found::Absent => return false,
        };
        if leaf.value(slot).is_none() {
            locks.release(leaf);
            return false;
        }
        raise(&mut locks, leaf, tag, slots);
        locks.release(leaf);
        true
    }

    /// Removes a tag from the value at `index`; returns whether it had the tag. Takes no lock if it did not.
    #[inline]
    pub fn clear_tag(&self, index: u64, tag: Tag, _guard: &Guard) -> bool {
        let (tag, slots) = (tag.number(), 1 << slot_of(index, 0));
        let mut locks = self.locks();
        let Found::Leaf(leaf) = locks.leaf(index, Wish::Untag { tag, slots }) else { return false };
        let had = leaf.tags(tag) & slots != 0;
        let emptied = u32::from(leaf.untag(tag, slots)) << tag;
        settle(&self.core, &mut locks, leaf, emptied, &mut Unlinked::none());
        had
    }
}

#[cfg(test)]
impl Tree {
    /// Whether the value at `index` has the tag. Takes no lock.
    pub(super) fn is_tagged(&self, index: u64, tag: Tag, _guard: &Guard) -> bool {
        let tagged = |leaf: &Node| leaf.tags(tag.number()) & 1 << slot_of(index, 0) != 0;
        self.core.leaf(index).is_some_and(tagged)
    }

    /// Whether any value has the tag: the root's summary. May stay true while a thread is still clearing the last tag;
    /// never false while a value has the tag.
    pub(super) fn any_tagged(&self, tag: Tag, _guard: &Guard) -> bool {
        self.core.root().node().is_some_and(|root| root.tags(tag.number()) != 0)
    }
}
