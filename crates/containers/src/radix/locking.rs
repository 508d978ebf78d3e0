//! The locks of an operation: one value, which finds nodes and holds them.
//!
//! # Boundary
//! Finds the node that an operation changes and takes the locks for it; locks the parent when the change must also be
//! made there. The operations make the changes.
//!
//! # Why
//! The held locks are a value beside the tree, as in Zijlstra 2007, section 2.4.3, so that each operation is written
//! once. A node to change is found without a lock, locked, and checked to be alive. Locks are taken from the child to
//! the parent, and only when the parent must change. The paper's other ways (one lock for the tree, locks from the root
//! down) were compared: bench/results/pages-2026-11-21.md. Weakness: a thread that waits for a held node spins.

use super::node::{Node, slot_of};
use super::tree::Core;
use super::wait::Patience::{Spin, StepBack};
use uvfs_concurrent::lock::LockClass;
use uvfs_concurrent::lock::order::Entered;

/// The change that an operation is about to make to a leaf.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wish {
    /// Replace or remove values.
    Change,
    /// Add a tag to `slots`.
    Tag { tag: usize, slots: u64 },
    /// Remove a tag from `slots`.
    Untag { tag: usize, slots: u64 },
}

/// The result of a search for an index.
#[derive(Debug)]
pub(super) enum Found<'t> {
    /// The leaf, locked.
    Leaf(&'t Node),
    /// The tags are already as wished. No node is locked.
    AsWished,
    /// No leaf.
    Absent,
}

/// The place where an index can be inserted, whether it has a leaf or not.
#[derive(Debug)]
pub(super) enum Place<'t> {
    /// The lowest node on the index's path, locked. Unless it is a leaf, the index's slot in it is empty.
    Node(&'t Node),
    /// The tree has no node. The root may be set from 0 by a compare-exchange.
    Empty,
}

/// The locks of one operation: at most a chain of nodes, each the parent of the one before.
///
/// An operation enters its lock class once, for any number of nodes that it locks. So debug builds check its place
/// among other classes; the order within the tree is R3. The meter counts only acquisitions that had to wait: counting
/// the others costs as much as the operation.
#[derive(Debug)]
pub(super) struct NodeLocks<'t> {
    core: &'t Core,
    _entered: Entered,
}

impl<'t> NodeLocks<'t> {
    /// Begins an operation; no node is locked yet.
    #[inline(always)]
    pub(super) fn new(core: &'t Core) -> Self {
        Self { core, _entered: Entered::new(core.class) }
    }

    fn class(&self) -> &'static LockClass {
        self.core.class
    }

    /// Finds and locks the leaf of `index`.
    #[inline(always)]
    pub(super) fn leaf(&mut self, index: u64, wish: Wish) -> Found<'t> {
        match self.core.leaf(index) {
            Some(leaf) => self.leaf_again(leaf, index, wish),
            None => Found::Absent,
        }
    }

    /// Finds as [`Self::leaf`] does, if `leaf` was found to be that leaf a moment ago.
    #[inline(always)]
    pub(super) fn leaf_again(&mut self, mut leaf: &'t Node, index: u64, wish: Wish) -> Found<'t> {
        loop {
            // Without the lock: right by R5, see `Tree::set_tag`.
            match wish {
                Wish::Tag { tag, slots } if leaf.tags(tag) & slots == slots => {
                    return Found::AsWished;
                }
                Wish::Untag { tag, slots } if leaf.tags(tag) & slots == 0 => {
                    return Found::AsWished;
                }
                _ => {}
            }
            if leaf.lock(self.class(), StepBack) {
                return Found::Leaf(leaf);
            }
            let Some(other) = self.core.leaf(index) else { return Found::Absent };
            leaf = other;
        }
    }

    /// Finds and locks the node that an insertion at `index` changes; grows the tree if it is too low.
    #[inline(always)]
    pub(super) fn place(&mut self, index: u64) -> Place<'t> {
        'again: loop {
            let root = self.core.root();
            let Some(mut node) = root.node() else { return Place::Empty };
            if !root.covers(index) {
                if node.lock(self.class(), StepBack) {
                    if node.parent().is_null() {
                        self.core.grow(node);
                    }
                    node.unlock();
                }
                continue;
            }
            loop {
                let mut shift = node.shift();
                while shift > 0 {
                    // SAFETY: `shift` is the node's and not 0; the caller is pinned (R6).
                    let Some(child) = (unsafe { node.child(slot_of(index, shift)) }) else { break };
                    node = child;
                    shift -= super::node::BITS;
                }
                if !node.lock(self.class(), StepBack) {
                    continue 'again;
                }
                if shift == 0 || node.load(slot_of(index, shift)) == 0 {
                    return Place::Node(node);
                }
                // Another thread linked a child before this one had the lock.
                node.unlock();
            }
        }
    }

    /// Locks the parent of a node that this operation holds; none if it is the root.
    #[inline(always)]
    pub(super) fn parent(&mut self, node: &'t Node) -> Option<&'t Node> {
        let parent = parent_of(node)?;
        // Without stepping back: other threads may be waiting for `node`.
        let alive = parent.lock(self.class(), Spin);
        debug_assert!(alive, "the parent of a linked node is linked (R3)");
        Some(parent)
    }

    /// Releases a node.
    #[inline(always)]
    pub(super) fn release(&mut self, node: &'t Node) {
        node.unlock();
    }

    /// Releases a node that was unlinked.
    pub(super) fn release_dead(&mut self, node: &'t Node) {
        node.unlock_dead();
    }

    /// Locks the root and its child in slot 0, if that child could replace the root. Holds neither lock if it returns
    /// none.
    pub(super) fn root_and_only_child(&mut self) -> Option<(&'t Node, &'t Node)> {
        let (root, child) = self.core.root_and_only_child()?;
        if !child.lock(self.class(), StepBack) {
            return None;
        }
        if !std::ptr::eq(child.parent(), root) {
            child.unlock();
            return None;
        }
        let alive = root.lock(self.class(), Spin);
        debug_assert!(alive, "the parent of a linked node is linked (R3)");
        Some((root, child))
    }
}

/// The parent of `node`, without a lock.
fn parent_of<'t>(node: &Node) -> Option<&'t Node> {
    // SAFETY: the caller holds `node` and a pin. A linked node's parent is linked (R3), and a node that is unlinked
    // under the pin stays allocated (R6).
    unsafe { node.parent().as_ref() }
}
