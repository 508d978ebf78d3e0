//! The tree: values by index, and how its height follows them.
//!
//! # Boundary
//! Single values, growth, shrinking, and the way up after a removal. Tags are in [`super::tags`], ranges in
//! [`super::range`], searches in [`super::gang`]; the rules (R1 to R7) are in [`super`].
//!
//! # Concurrency
//! Every function here takes a guard: unlinked nodes stay allocated as long as it lives. Unlinked nodes are retired
//! after the locks are released: retiring may free other garbage, which runs arbitrary code.
//!
//! # Why
//! The height is in one word with the root's address, so a descent finds the leaf's level without reading a header.
//! Weakness: a tree that shrinks and grows again across a level's border allocates a root each time.

use super::locking::{Found, NodeLocks, Place, Wish};
use super::node::{ALL, BITS, NODE_BYTES, Node, SLOTS, TAGS, bits, slot_of};
#[cfg(loom)]
use super::stand_in::Guard;
#[cfg(not(loom))]
use crate::pool;
use std::fmt;
use std::num::NonZeroU64;
use std::ptr::{self, NonNull};
#[cfg(not(loom))]
use uvfs_concurrent::epoch::Guard;
use uvfs_concurrent::lock::LockClass;
#[cfg(not(loom))]
use uvfs_concurrent::padded::Padded;
#[cfg(not(loom))]
use uvfs_concurrent::primitive::atomic::AtomicUsize;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering};

/// The nodes of all trees of the process, counted by lanes, so that threads do not contend. Only the sum of the lanes
/// is meaningful.
#[cfg(not(loom))]
static NODES: [Padded<AtomicUsize>; 8] = [const { Padded(AtomicUsize::new(0)) }; 8];

/// Bytes of the nodes of all trees at present, without those that count as garbage of the epoch. Adds up eight words.
#[cfg(not(loom))]
pub fn bytes_of_all() -> usize {
    // ORDERING: Relaxed; a statistic, nothing is reached through it.
    let nodes = NODES.iter().map(|lane| lane.0.load(Ordering::Relaxed));
    bytes_of(nodes.fold(0, usize::wrapping_add))
}

/// The bytes of a number of nodes that was summed lane after lane. If a node is added before its lane is read and
/// removed after, only the removal is seen, so the sum may be a little below zero.
#[cfg(not(loom))]
pub(super) fn bytes_of(nodes: usize) -> usize {
    if nodes > isize::MAX as usize { 0 } else { nodes * NODE_BYTES }
}

/// Adds `change` to the count of nodes; a wrapped number subtracts.
fn count_nodes(change: usize) {
    #[cfg(not(loom))]
    {
        let lane = &NODES[pool::lane() % NODES.len()];
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        lane.0.fetch_add(change, Ordering::Relaxed);
    }
    #[cfg(loom)]
    let _ = change;
}

/// The bits of a root word that are the root's level; nodes are aligned beyond them.
const LEVEL: u64 = 63;

/// Values by index, with tags. The protocol is in [the module](super).
///
/// Zijlstra, "Concurrent Pagecache" (Ottawa Linux Symposium 2007), split the tree's lock into one for each node. With
/// locks taken from the root down, the root was as busy as the single lock. Section 5 of the paper locks optimistically
/// from the leaf instead, and falls back to locks from above. Here no fallback is needed: ranges that never change (R1)
/// make the test for `DEAD` sufficient. Linux keeps one lock, and stores one page at a time. Weakness: a sparse tree
/// costs a node of 576 bytes for each value. Threads that change indexes of one leaf contend for its header. One slow
/// holder makes others wait.
pub struct Tree {
    pub(super) core: Core,
}

/// The part of a tree that [`NodeLocks`] refers to.
#[derive(Debug)]
pub(super) struct Core {
    /// The root's address and level, or 0. Changed by the holder of the root's lock, and from 0 by a compare-exchange.
    root: AtomicU64,
    pub(super) class: &'static LockClass,
}

/// A root word.
#[derive(Debug, Clone, Copy)]
pub(super) struct Root(u64);

impl Root {
    fn of(node: &Node) -> Self {
        Self(node.address() | u64::from(node.shift() / BITS))
    }

    fn shift(self) -> u32 {
        (self.0 & LEVEL) as u32 * BITS
    }

    /// Whether `index` is within the range of this root.
    #[inline(always)]
    pub(super) fn covers(self, index: u64) -> bool {
        index >> self.shift() < SLOTS as u64
    }

    /// The root; none in an empty tree.
    #[inline(always)]
    pub(super) fn node<'t>(self) -> Option<&'t Node> {
        // SAFETY: the word held a root's address when it was loaded, and the loader is pinned (R6).
        (self.0 != 0).then(|| unsafe { Node::at(self.0 & !LEVEL) })
    }
}

impl Core {
    /// The present root.
    #[inline(always)]
    pub(super) fn root(&self) -> Root {
        // ORDERING: Acquire, partner `set_root` and `plant` (O1).
        Root(self.root.load(Ordering::Acquire))
    }

    /// Sets the root. For a holder of the present root's lock.
    fn set_root(&self, root: Option<&Node>) {
        let root = root.map_or(Root(0), Root::of);
        // ORDERING: Release, partner `root` (O1).
        self.root.store(root.0, Ordering::Release);
    }

    /// Makes `root` the root of an empty tree; false if the tree is not empty.
    pub(super) fn plant(&self, root: &Node) -> bool {
        let root = Root::of(root);
        // ORDERING: Release, partner `root` (O1).
        self.root.compare_exchange(0, root.0, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// The leaf of `index`, if there is one. Takes no lock and stores nothing.
    #[inline(always)]
    pub(super) fn leaf<'t>(&self, index: u64) -> Option<&'t Node> {
        let root = self.root();
        let mut node = root.node()?;
        if !root.covers(index) {
            return None;
        }
        let mut shift = root.shift();
        while shift > 0 {
            // SAFETY: above level 0, so not a leaf; the caller is pinned (R6).
            node = unsafe { node.child(slot_of(index, shift)) }?;
            shift -= BITS;
        }
        Some(node)
    }

    /// Puts a node above `root`, which the caller holds and which is the root.
    #[cold]
    pub(super) fn grow(&self, root: &Node) {
        let above = self.node(root.shift() + BITS, 0, ptr::null_mut());
        for tag in 0..TAGS {
            above.set_tags(tag, u64::from(root.tags(tag) != 0));
        }
        above.fill(0, root.address());
        root.set_parent(ptr::from_ref(above).cast_mut());
        self.set_root(Some(above));
    }

    /// The root and its child in slot 0, if the root seems to have no other child. Exact for the holder of the root.
    pub(super) fn root_and_only_child<'t>(&self) -> Option<(&'t Node, &'t Node)> {
        let root = self.root().node()?;
        if root.shift() == 0 || root.occupied() != 1 {
            return None;
        }
        // SAFETY: above level 0; the caller is pinned (R6).
        Some((root, unsafe { root.child(0) }?))
    }

    /// A new node, counted.
    pub(super) fn node<'t>(&self, shift: u32, offset: usize, parent: *mut Node) -> &'t Node {
        count_nodes(1);
        let node = Node::allocate(shift, offset as u32, parent);
        // SAFETY: just made; freed by `discard`, or after it was unlinked and retired.
        unsafe { node.as_ref() }
    }

    /// A chain of nodes, each with one child, from `shift` down to a leaf for `index`, which `fill`
    /// fills. Its top hangs below `parent`, or will be a root if that is null.
    pub(super) fn chain<'t>(
        &self,
        index: u64,
        mut shift: u32,
        parent: *mut Node,
        fill: impl FnOnce(&Node),
    ) -> &'t Node {
        let offset = if parent.is_null() { 0 } else { slot_of(index, shift + BITS) };
        let top = self.node(shift, offset, parent);
        let mut node = top;
        while shift > 0 {
            shift -= BITS;
            let slot = slot_of(index, shift + BITS);
            let child = self.node(shift, slot, ptr::from_ref(node).cast_mut());
            node.fill(slot, child.address());
            node = child;
        }
        fill(node);
        top
    }

    /// Frees a chain that was never linked.
    #[cold]
    pub(super) fn discard(&self, mut node: &Node) {
        loop {
            let below = bits(node.occupied()).next().filter(|_| node.shift() > 0);
            // SAFETY: only above level 0; only this thread has the chain.
            let child = below.and_then(|slot| unsafe { node.child(slot) });
            // SAFETY: no other thread knows the chain.
            unsafe { Node::free(ptr::from_ref(node).cast_mut().cast()) };
            count_nodes(1usize.wrapping_neg());
            match child {
                Some(child) => node = child,
                None => return,
            }
        }
    }

    /// The shift of the lowest root that covers `index`.
    pub(super) fn shift_for(index: u64) -> u32 {
        let significant = u64::BITS - index.leading_zeros();
        significant.saturating_sub(1) / BITS * BITS
    }
}

/// Nodes unlinked by one operation, chained by their parent pointers, which no other thread reads any more.
pub(super) struct Unlinked {
    first: *mut Node,
    /// The root was left with one node below it, or seemed to be.
    root_alone: bool,
}

impl Unlinked {
    pub(super) fn none() -> Self {
        Self { first: ptr::null_mut(), root_alone: false }
    }

    fn add(&mut self, node: &Node) {
        node.set_parent(self.first);
        self.first = ptr::from_ref(node).cast_mut();
    }
}

/// Goes up from `node`, which is held and which lost values or tags; `emptied` are the tags whose words became 0 there.
/// Unlinks empty nodes. Releases all locks.
#[inline(always)]
pub(super) fn settle<'t>(
    core: &Core,
    locks: &mut NodeLocks<'t>,
    node: &'t Node,
    emptied: u32,
    unlinked: &mut Unlinked,
) {
    if emptied == 0 && node.occupied() != 0 {
        locks.release(node);
    } else {
        settle_above(core, locks, node, emptied, unlinked);
    }
}

#[inline(never)]
fn settle_above<'t>(
    core: &Core,
    locks: &mut NodeLocks<'t>,
    mut node: &'t Node,
    mut emptied: u32,
    unlinked: &mut Unlinked,
) {
    loop {
        let empty = node.occupied() == 0;
        if emptied == 0 && !empty {
            break;
        }
        let Some(parent) = locks.parent(node) else {
            if empty {
                core.set_root(None);
                locks.release_dead(node);
                unlinked.add(node);
                return;
            }
            break;
        };
        // Bits before slots, and both from below (R5).
        let bit = node.bit_above();
        let mut emptied_above = 0;
        for tag in 0..TAGS {
            if emptied & 1 << tag != 0 && parent.untag(tag, bit) {
                emptied_above |= 1 << tag;
            }
        }
        if empty {
            parent.empty(node.offset());
            locks.release_dead(node);
            unlinked.add(node);
            unlinked.root_alone |= parent.occupied() == 1 && parent.parent().is_null();
        } else {
            locks.release(node);
        }
        (node, emptied) = (parent, emptied_above);
    }
    locks.release(node);
}

impl Tree {
    /// An empty tree, without any node yet. Its locks are of `class`.
    pub fn new(class: &'static LockClass) -> Self {
        let root = AtomicU64::new(0);
        Self { core: Core { root, class } }
    }

    /// Begins an operation.
    #[inline(always)]
    pub(super) fn locks(&self) -> NodeLocks<'_> {
        NodeLocks::new(&self.core)
    }

    /// The value at `index`. Takes no lock and stores to no shared line.
    ///
    /// A lookup is right although its node may be unlinked meanwhile. The node was linked when it was found. When it
    /// was unlinked, within the call, it did not contain the index (R4, R7).
    #[inline]
    pub fn get(&self, index: u64, _guard: &Guard) -> Option<NonZeroU64> {
        self.core.leaf(index)?.value(slot_of(index, 0))
    }

    /// Puts `value` at `index`, if there is no value.
    ///
    /// # Errors
    /// Returns the present value.
    #[inline]
    pub fn insert(&self, index: u64, value: NonZeroU64, _guard: &Guard) -> Result<(), NonZeroU64> {
        let mut locks = self.locks();
        let node = match locks.place(index) {
            Place::Node(node) => node,
            Place::Empty => return self.insert_first(index, value, locks),
        };
        if node.shift() > 0 {
            self.insert_chain(node, index, |leaf| leaf.fill_run(index, &[value]));
        } else {
            let slot = slot_of(index, 0);
            if let Some(found) = node.value(slot) {
                locks.release(node);
                return Err(found);
            }
            node.fill(slot, value.get());
        }
        locks.release(node);
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn insert_first(
        &self,
        index: u64,
        value: NonZeroU64,
        mut locks: NodeLocks<'_>,
    ) -> Result<(), NonZeroU64> {
        loop {
            match locks.place(index) {
                Place::Empty => {
                    if self.plant(index, |leaf| leaf.fill_run(index, &[value])) {
                        return Ok(());
                    }
                }
                Place::Node(node) if node.shift() > 0 => {
                    self.insert_chain(node, index, |leaf| leaf.fill_run(index, &[value]));
                    locks.release(node);
                    return Ok(());
                }
                Place::Node(node) => {
                    let slot = slot_of(index, 0);
                    let found = node.value(slot);
                    if found.is_none() {
                        node.fill(slot, value.get());
                    }
                    locks.release(node);
                    return found.map_or(Ok(()), Err);
                }
            }
        }
    }

    /// Gives an empty tree its first nodes; false if the tree is not empty any more.
    pub(super) fn plant(&self, index: u64, fill: impl FnOnce(&Node)) -> bool {
        let root = self.core.chain(index, Core::shift_for(index), ptr::null_mut(), fill);
        let planted = self.core.plant(root);
        if !planted {
            self.core.discard(root);
        }
        planted
    }

    /// Links a new leaf, filled by `fill`, with the nodes above it, below `node`, which is held and has an empty slot
    /// for `index`.
    #[inline(never)]
    pub(super) fn insert_chain(&self, node: &Node, index: u64, fill: impl FnOnce(&Node)) {
        let parent = ptr::from_ref(node).cast_mut();
        let chain = self.core.chain(index, node.shift() - BITS, parent, fill);
        node.fill(slot_of(index, node.shift()), chain.address());
    }

    /// Replaces the value at `index`, if there is one; returns the old value. Tags stay.
    #[inline]
    pub fn replace(&self, index: u64, value: NonZeroU64, _guard: &Guard) -> Option<NonZeroU64> {
        let mut locks = self.locks();
        let Found::Leaf(leaf) = locks.leaf(index, Wish::Change) else { return None };
        let slot = slot_of(index, 0);
        let found = leaf.value(slot);
        if found.is_some() {
            leaf.store(slot, value.get());
        }
        locks.release(leaf);
        found
    }

    /// Removes the value at `index` and its tags.
    #[inline]
    pub fn remove(&self, index: u64, guard: &Guard) -> Option<NonZeroU64> {
        self.remove_matching(index, |_| true, guard)
    }

    /// Removes the value at `index` and its tags, if it is `expected`.
    #[inline]
    pub fn remove_if(&self, index: u64, expected: NonZeroU64, guard: &Guard) -> bool {
        self.remove_matching(index, |found| found == expected, guard).is_some()
    }

    #[inline(always)]
    fn remove_matching(
        &self,
        index: u64,
        matches: impl FnOnce(NonZeroU64) -> bool,
        guard: &Guard,
    ) -> Option<NonZeroU64> {
        let mut unlinked = Unlinked::none();
        let mut locks = self.locks();
        let slot = slot_of(index, 0);
        let slots = 1 << slot;
        let Found::Leaf(leaf) = locks.leaf(index, Wish::Change) else { return None };
        let Some(found) = leaf.value(slot).filter(|&found| matches(found)) else {
            locks.release(leaf);
            return None;
        };
        let emptied = leaf.untag_all(slots);
        leaf.empty(slot);
        settle(&self.core, &mut locks, leaf, emptied, &mut unlinked);
        drop(locks);
        self.retire(unlinked, guard);
        Some(found)
    }

    /// Retires unlinked nodes, and makes the tree lower if possible. Called with no lock held.
    #[inline(always)]
    pub(super) fn retire(&self, unlinked: Unlinked, guard: &Guard) {
        if !unlinked.first.is_null() {
            self.retire_nodes(unlinked, guard);
        }
    }

    #[cold]
    #[inline(never)]
    fn retire_nodes(&self, mut unlinked: Unlinked, guard: &Guard) {
        if unlinked.root_alone {
            self.shrink(&mut unlinked);
        }
        let mut nodes = 0;
        while let Some(node) = NonNull::new(unlinked.first) {
            // SAFETY: unlinked, so only this thread has it until it is retired below.
            unlinked.first = unsafe { node.as_ref() }.parent();
            nodes += 1;
            // SAFETY: unlinked (R4): a thread that pins from now on does not find it. It came from `allocate`, and the
            // thread that unlinked it retires it once.
            unsafe { guard.retire(NODE_BYTES, node.as_ptr().cast(), Node::free) };
        }
        count_nodes(0usize.wrapping_sub(nodes));
    }

    /// While the root has only a node in slot 0, that node becomes the root. The old root keeps its slot, for readers
    /// inside it.
    fn shrink(&self, unlinked: &mut Unlinked) {
        let mut locks = self.locks();
        while let Some((root, child)) = locks.root_and_only_child() {
            let lower = root.parent().is_null() && root.occupied() == 1;
            if lower {
                child.set_parent(ptr::null_mut());
                self.core.set_root(Some(child));
            }
            locks.release(child);
            if !lower {
                locks.release(root);
                return;
            }
            locks.release_dead(root);
            unlinked.add(root);
        }
    }

    /// Whether the tree has no value at this instant.
    pub fn is_empty(&self) -> bool {
        self.core.root().0 == 0
    }

    /// Bytes of the tree's nodes; retired nodes count as garbage of the epoch instead. Visits the nodes above the
    /// leaves, one for 4096 values of a dense tree. Not exact if the tree changes meanwhile.
    pub fn bytes_racy(&self, _guard: &Guard) -> usize {
        fn nodes(node: &Node) -> usize {
            match node.shift() {
                0 => 1,
                BITS => 1 + node.occupied().count_ones() as usize,
                // SAFETY: not a leaf; the caller is pinned (R6).
                _ => bits(node.occupied())
                    .filter_map(|slot| unsafe { node.child(slot) })
                    .map(nodes)
                    .fold(1, usize::wrapping_add),
            }
        }
        self.core.root().node().map_or(0, nodes) * NODE_BYTES
    }

    /// The number of values; visits every node. Not exact if the tree changes meanwhile.
    #[cfg(test)]
    pub(super) fn len_racy(&self, _guard: &Guard) -> usize {
        fn below(node: &Node) -> usize {
            if node.shift() == 0 {
                return node.occupied().count_ones() as usize;
            }
            // SAFETY: not a leaf; the caller is pinned (R6).
            bits(node.occupied()).filter_map(|slot| unsafe { node.child(slot) }).map(below).sum()
        }
        self.core.root().node().map_or(0, below)
    }
}

impl Node {
    /// Puts `values` into consecutive empty slots of a leaf, beginning with that of `index`. For a holder of the lock,
    /// or before the leaf is linked.
    pub(super) fn fill_run(&self, index: u64, values: &[NonZeroU64]) {
        let first = slot_of(index, 0);
        if !values.is_empty() {
            self.occupy(self.occupied() | run(first, values.len()));
        }
        for (slot, value) in (first..).zip(values) {
            self.store(slot, value.get());
        }
    }
}

/// `length` slots from `first` on, at least one.
pub(super) fn run(first: usize, length: usize) -> u64 {
    ALL >> (SLOTS - length) << first
}

impl Drop for Tree {
    fn drop(&mut self) {
        /// Frees a node and all nodes below it; returns their number.
        fn free(node: &Node) -> usize {
            let mut nodes = 1;
            if node.shift() > 0 {
                // SAFETY: not a leaf; exclusive, so no other thread frees nodes.
                let children = bits(node.occupied()).filter_map(|slot| unsafe { node.child(slot) });
                nodes += children.map(free).sum::<usize>();
            }
            // SAFETY: exclusive: every user of the tree borrows it. Its children were freed above.
            unsafe { Node::free(ptr::from_ref(node).cast_mut().cast()) };
            nodes
        }
        let nodes = self.core.root().node().map_or(0, free);
        if nodes > 0 {
            count_nodes(0usize.wrapping_sub(nodes));
        }
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree")
            .field("levels", &self.core.root().node().map_or(0, |root| root.shift() / BITS + 1))
            .finish_non_exhaustive()
    }
}
