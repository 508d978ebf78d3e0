//! Which locks an operation holds: a context value, one kind for each way to lock.
//!
//! # Boundary
//! Finds the node that an operation changes and locks what has to be locked for it; locks the parent
//! when the change has to go up. What is changed is the operations' affair.
//!
//! # Why
//! The context is the idea of Zijlstra 2007, section 2.4.3: which locks are held is a value beside
//! the tree, so the operations are written once; the paper's own two kinds are in `paper`. Weakness: the
//! ladder and the path need to know on the way down what the operation is about to do ([`Wish`]).

use super::node::{Node, slot_of};
use super::tree::Core;
use super::wait::Patience::{Spin, StepBack};
use crate::lock::LockClass;
use crate::lock::order::Entered;
use std::fmt::Debug;

/// How operations that change a tree keep out of each other's way. Lookups take no lock in any.
pub trait Locking: Mode {}

/// The node to be changed is found without a lock, locked, and tested for being alive. Locks go from
/// the child to the parent, and only when the parent has to change.
#[derive(Debug, Clone, Copy)]
pub struct Optimistic;

impl Locking for Optimistic {}

/// What an operation is going to do in a leaf, to `slots`.
#[derive(Debug, Clone, Copy)]
pub enum Wish {
    /// Change values that are there.
    Replace,
    /// Add a tag.
    Tag { tag: usize, slots: u64 },
    /// Take a tag away.
    Untag { tag: usize, slots: u64 },
    /// Remove values.
    Remove { slots: u64 },
}

/// What was found at an index.
#[derive(Debug)]
pub enum Found<'t> {
    /// The leaf, locked.
    Leaf(&'t Node),
    /// The tags are as wished already. Nothing is locked.
    AsWished,
    /// No leaf.
    Absent,
}

/// Where an index that has no leaf, or has one, can be inserted.
#[derive(Debug)]
pub enum Place<'t> {
    /// The lowest node on the way, locked. Unless it is a leaf, the index's slot in it is empty.
    Node(&'t Node),
    /// The tree has no node. The root may be set from 0 by a compare-exchange.
    Empty,
}

/// What [`Locking`] stands for inside this module.
pub trait Mode: Sized + Send + Sync + Debug + 'static {
    /// What the tree has beside its nodes' locks.
    type Anchor: Default + Debug + Send + Sync;

    /// The locks that one operation holds.
    type Context<'t>: Context<'t>;

    /// An operation begins; it holds nothing yet, or what it holds to its end.
    fn begin<'t>(core: &'t Core, anchor: &'t Self::Anchor) -> Self::Context<'t>;
}

/// The locks that one operation holds. Those left are released with it.
pub trait Context<'t>: Sized {
    /// Whether [`Context::leaf`] sets the tag of [`Wish::Tag`] above the leaf.
    const TAGS_DOWNWARDS: bool = false;

    /// Finds and locks the leaf of `index`.
    fn leaf(&mut self, index: u64, wish: Wish) -> Found<'t>;

    /// As [`Context::leaf`], when `leaf` was found to be that leaf a moment ago.
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

    /// Locks the root and its child in slot 0, if that child could take its place: the root, then the
    /// child. Holds neither if none is returned.
    fn root_and_only_child(&mut self) -> Option<(&'t Node, &'t Node)>;

    /// Undoes what [`Context::leaf`] did for a [`Wish::Tag`] above a leaf that does not get the tag.
    /// Releases everything.
    fn untagged(&mut self, _index: u64, _tag: usize, leaf: &'t Node) {
        self.release(leaf);
    }
}

/// The parent of `node`, without a lock.
pub(super) fn parent_of<'t>(node: &Node) -> Option<&'t Node> {
    // SAFETY: the caller holds `node` and a pin; a linked node's parent is linked (R3), and what is
    // unlinked while we are pinned stays allocated (R6).
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
            // Without the lock: right by R5, see the module.
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
                // Somebody linked a child before we had the lock.
                node.unlock();
            }
        }
    }

    #[inline(always)]
    fn parent(&mut self, node: &'t Node) -> Option<&'t Node> {
        let parent = parent_of(node)?;
        // Not stepping back: others may be waiting for `node`.
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
