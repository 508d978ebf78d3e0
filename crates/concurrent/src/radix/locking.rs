//! The locks of an operation: a context value, one kind for each way of locking.
//!
//! # Boundary
//! Finds the node that an operation changes and takes the locks for it; locks the parent when the change must also be
//! made there. The operations make the changes.
//!
//! # Why
//! The context is the idea of Zijlstra 2007, section 2.4.3: the held locks are a value beside the tree, so the
//! operations are written once. The paper's own two kinds are in `paper`. Weakness: the ladder and the path need to
//! know on the way down what the operation is about to do ([`Wish`]).

use super::node::{Node, slot_of};
use super::tree::Core;
use super::wait::Patience::{Spin, StepBack};
use crate::lock::LockClass;
use crate::lock::order::Entered;
use std::fmt::Debug;

/// The way in which operations that change a tree exclude each other. No way makes lookups take a lock.
///
/// An operation enters its lock class once, for any number of nodes that it locks. So debug builds check its place
/// among other classes; the order within the tree is R3. The meter counts only acquisitions that had to wait: counting
/// the others costs as much as the operation.
pub trait Locking: Mode {}

/// An operation finds the node to change without a lock, locks it, and checks that it is alive. Locks are taken from
/// the child to the parent, and only when the parent must change.
#[derive(Debug, Clone, Copy)]
pub struct Optimistic;

impl Locking for Optimistic {}

/// The change that an operation is about to make to `slots` of a leaf.
#[derive(Debug, Clone, Copy)]
pub enum Wish {
    /// Change present values.
    Replace,
    /// Add a tag.
    Tag { tag: usize, slots: u64 },
    /// Remove a tag.
    Untag { tag: usize, slots: u64 },
    /// Remove values.
    Remove { slots: u64 },
}

/// The result of a search for an index.
#[derive(Debug)]
pub enum Found<'t> {
    /// The leaf, locked.
    Leaf(&'t Node),
    /// The tags are already as wished. No node is locked.
    AsWished,
    /// No leaf.
    Absent,
}

/// The place where an index can be inserted, whether it has a leaf or not.
#[derive(Debug)]
pub enum Place<'t> {
    /// The lowest node on the index's path, locked. Unless it is a leaf, the index's slot in it is empty.
    Node(&'t Node),
    /// The tree has no node. The root may be set from 0 by a compare-exchange.
    Empty,
}

/// The implementation of a [`Locking`] inside this module.
pub trait Mode: Sized + Send + Sync + Debug + 'static {
    /// The locks of the tree beside its nodes' locks.
    type Anchor: Default + Debug + Send + Sync;

    /// The locks that one operation holds.
    type Context<'t>: Context<'t>;

    /// Begins an operation; the context holds no lock yet, or holds its only lock until the end.
    fn begin<'t>(core: &'t Core, anchor: &'t Self::Anchor) -> Self::Context<'t>;
}

/// The locks that one operation holds. Dropping the context releases the remaining ones.
pub trait Context<'t>: Sized {
    /// Whether [`Context::leaf`] sets the tag of [`Wish::Tag`] above the leaf.
    const TAGS_DOWNWARDS: bool = false;

    /// Finds and locks the leaf of `index`.
    fn leaf(&mut self, index: u64, wish: Wish) -> Found<'t>;

    /// The same as [`Context::leaf`], if `leaf` was found to be that leaf a moment ago.
    fn leaf_again(&mut self, _leaf: &'t Node, index: u64, wish: Wish) -> Found<'t> {
        self.leaf(index, wish)
    }

    /// Finds and locks the node that an insertion at `index` changes; grows the tree if it is too low.
    fn place(&mut self, index: u64) -> Place<'t>;

    /// Locks the parent of a node that this operation holds; none if it is the root.
    fn parent(&mut self, node: &'t Node) -> Option<&'t Node>;

    /// Releases a node.
    fn release(&mut self, node: &'t Node);

    /// Releases a node that was unlinked.
    fn release_dead(&mut self, node: &'t Node);

    /// Locks the root and its child in slot 0, in this order, if that child could replace the root. Holds neither lock
    /// if it returns none.
    fn root_and_only_child(&mut self) -> Option<(&'t Node, &'t Node)>;

    /// Undoes the effect of [`Context::leaf`] above a leaf, for a [`Wish::Tag`] that does not set the tag. Releases all
    /// locks.
    fn untagged(&mut self, _index: u64, _tag: usize, leaf: &'t Node) {
        self.release(leaf);
    }
}

/// The parent of `node`, without a lock.
pub(super) fn parent_of<'t>(node: &Node) -> Option<&'t Node> {
    // SAFETY: the caller holds `node` and a pin. A linked node's parent is linked (R3), and a node that is unlinked
    // under the pin stays allocated (R6).
    unsafe { node.parent().as_ref() }
}

// ---- optimistic

/// At most a chain of nodes, each the parent of the one before.
#[derive(Debug)]
pub struct NodeLocks<'t> {
    core: &'t Core,
    _entered: Entered,
}

impl Mode for Optimistic {
    type Anchor = ();
    type Context<'t> = NodeLocks<'t>;

    #[inline(always)]
    fn begin<'t>(core: &'t Core, (): &'t ()) -> NodeLocks<'t> {
        NodeLocks { core, _entered: Entered::new(core.class) }
    }
}

impl NodeLocks<'_> {
    fn class(&self) -> &'static LockClass {
        self.core.class
    }
}

impl<'t> Context<'t> for NodeLocks<'t> {
    #[inline(always)]
    fn leaf(&mut self, index: u64, wish: Wish) -> Found<'t> {
        match self.core.leaf(index) {
            Some(leaf) => self.leaf_again(leaf, index, wish),
            None => Found::Absent,
        }
    }

    #[inline(always)]
    fn leaf_again(&mut self, mut leaf: &'t Node, index: u64, wish: Wish) -> Found<'t> {
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

    #[inline(always)]
    fn place(&mut self, index: u64) -> Place<'t> {
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

    #[inline(always)]
    fn parent(&mut self, node: &'t Node) -> Option<&'t Node> {
        let parent = parent_of(node)?;
        // Without stepping back: other threads may be waiting for `node`.
        let alive = parent.lock(self.class(), Spin);
        debug_assert!(alive, "the parent of a linked node is linked (R3)");
        Some(parent)
    }

    #[inline(always)]
    fn release(&mut self, node: &'t Node) {
        node.unlock();
    }

    fn release_dead(&mut self, node: &'t Node) {
        node.unlock_dead();
    }

    fn root_and_only_child(&mut self) -> Option<(&'t Node, &'t Node)> {
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
