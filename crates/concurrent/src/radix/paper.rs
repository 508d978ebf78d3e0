//! The ways of locking to which [`super`] is compared: one lock, and the locks of Zijlstra 2007 from the root down.
//!
//! # Boundary
//! Compiled for tests, for models and for `bench-papers` (feature `paper-locks`); no file system uses them. They keep
//! R1 and R4 to R7, and lock from the parent to the child.
//!
//! # Why
//! These are not in the bench, because they lock the tree's own nodes. Only this crate's unsafe code argues about
//! errors in that, and only its models look for them.

use super::locking::{Context, Found, Locking, Mode, Place, Wish, parent_of};
use super::node::{BITS, Node, TAGS, Word, slot_of};
use super::tree::Core;
use super::wait::Patience::Spin;
use crate::lock::order::Entered;

/// One lock for the tree, like Linux: every thread that changes the tree holds it.
#[derive(Debug, Clone, Copy)]
pub struct Serial;

/// The locks of Zijlstra 2007, section 2.4, from the root down. If the operation does not have to go back up: a ladder
/// (the child is locked, then the parent released). Otherwise: the path below the last node at which the way up must
/// end.
#[derive(Debug, Clone, Copy)]
pub struct LadderPath;

/// The tree's one lock, or the one above its root.
#[derive(Debug, Default)]
pub struct Anchor(Word);

/// The number of levels of the highest tree.
const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;

impl Locking for Serial {}
impl Locking for LadderPath {}

// ---- serial

/// The tree's lock.
#[derive(Debug)]
pub struct TreeLock<'t> {
    core: &'t Core,
    anchor: &'t Anchor,
    _entered: Entered,
}

impl Mode for Serial {
    type Anchor = Anchor;
    type Context<'t> = TreeLock<'t>;

    #[inline(always)]
    fn begin<'t>(core: &'t Core, anchor: &'t Anchor) -> TreeLock<'t> {
        let entered = Entered::new(core.class);
        anchor.0.lock(core.class, Spin);
        TreeLock { core, anchor, _entered: entered }
    }
}

impl Drop for TreeLock<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.anchor.0.unlock();
    }
}

impl<'t> Context<'t> for TreeLock<'t> {
    #[inline(always)]
    fn leaf(&mut self, index: u64, _: Wish) -> Found<'t> {
        self.core.leaf(index).map_or(Found::Absent, Found::Leaf)
    }

    #[inline(always)]
    fn place(&mut self, index: u64) -> Place<'t> {
        let Some(mut node) = self.core.root_covering(index) else { return Place::Empty };
        let mut shift = node.shift();
        while shift > 0 {
            // SAFETY: `shift` is the node's and not 0; the caller is pinned (R6).
            let Some(child) = (unsafe { node.child(slot_of(index, shift)) }) else { break };
            node = child;
            shift -= BITS;
        }
        Place::Node(node)
    }

    #[inline(always)]
    fn parent(&mut self, node: &'t Node) -> Option<&'t Node> {
        parent_of(node)
    }

    #[inline(always)]
    fn release(&mut self, _: &'t Node) {}

    fn release_dead(&mut self, _: &'t Node) {}

    fn root_and_only_child(&mut self) -> Option<(&'t Node, &'t Node)> {
        self.core.root_and_only_child()
    }
}

// ---- ladder and path

/// A chain of nodes from some node down to the present one, and initially the lock above the root.
#[derive(Debug)]
pub struct PathLocks<'t> {
    core: &'t Core,
    anchor: &'t Anchor,
    anchored: bool,
    /// The held nodes are `held[first..end]`, from the top down.
    held: [Option<&'t Node>; LEVELS],
    first: usize,
    end: usize,
    _entered: Entered,
}

impl Mode for LadderPath {
    type Anchor = Anchor;
    type Context<'t> = PathLocks<'t>;

    fn begin<'t>(core: &'t Core, anchor: &'t Anchor) -> PathLocks<'t> {
        let entered = Entered::new(core.class);
        let held = [None; LEVELS];
        let mut locks =
            PathLocks { core, anchor, anchored: false, held, first: 0, end: 0, _entered: entered };
        locks.anchor();
        locks
    }
}

impl Drop for PathLocks<'_> {
    fn drop(&mut self) {
        self.release_all();
    }
}

impl<'t> PathLocks<'t> {
    fn anchor(&mut self) {
        self.anchor.0.lock(self.core.class, Spin);
        self.anchored = true;
    }

    /// Locks `node`, a child of the last one held or the root.
    fn push(&mut self, node: &'t Node) {
        let alive = node.lock(self.core.class, Spin);
        debug_assert!(alive, "linked, as its parent is held");
        self.held[self.end] = Some(node);
        self.end += 1;
    }

    /// Releases all locks above the last held node.
    fn release_above(&mut self) {
        if self.anchored {
            self.anchor.0.unlock();
            self.anchored = false;
        }
        while self.first + 1 < self.end {
            self.held[self.first].take().expect("held").unlock();
            self.first += 1;
        }
    }

    fn release_all(&mut self) {
        self.release_above();
        if self.first < self.end {
            self.held[self.first].take().expect("held").unlock();
        }
        (self.first, self.end) = (0, 0);
    }

    /// Whether the way back up ends at `node` at the latest, so that no node above it changes.
    fn ends_at(node: &Node, slots: u64, wish: Wish) -> bool {
        let stays = |tag| {
            let tagged = node.tags(tag);
            tagged & slots == 0 || tagged & !slots != 0
        };
        match wish {
            Wish::Replace | Wish::Tag { .. } => true,
            Wish::Untag { tag, .. } => stays(tag),
            Wish::Remove { .. } => node.occupied() & !slots != 0 && (0..TAGS).all(stays),
        }
    }
}

impl<'t> Context<'t> for PathLocks<'t> {
    const TAGS_DOWNWARDS: bool = true;

    fn leaf(&mut self, index: u64, wish: Wish) -> Found<'t> {
        if !self.anchored {
            self.anchor();
        }
        let root = self.core.root();
        let Some(mut node) = root.node().filter(|_| root.covers(index)) else {
            return Found::Absent;
        };
        loop {
            self.push(node);
            let shift = node.shift();
            let own = match wish {
                _ if shift > 0 => 1 << slot_of(index, shift),
                Wish::Replace => 0,
                Wish::Tag { slots, .. } | Wish::Untag { slots, .. } | Wish::Remove { slots } => {
                    slots
                }
            };
            if Self::ends_at(node, own, wish) {
                self.release_above();
            }
            if shift == 0 {
                return Found::Leaf(node);
            }
            // SAFETY: not a leaf; the caller is pinned (R6).
            let Some(child) = (unsafe { node.child(slot_of(index, shift)) }) else {
                if let Wish::Tag { tag, .. } = wish {
                    self.repair(index, tag);
                }
                return Found::Absent;
            };
            match wish {
                Wish::Tag { tag, .. } => node.set_tags(tag, node.tags(tag) | own),
                Wish::Untag { tag, .. } if node.tags(tag) & own == 0 => return Found::AsWished,
                _ => {}
            }
            node = child;
        }
    }

    fn place(&mut self, index: u64) -> Place<'t> {
        if !self.anchored {
            self.anchor();
        }
        loop {
            let root = self.core.root();
            let Some(node) = root.node() else { return Place::Empty };
            self.push(node);
            if root.covers(index) {
                break;
            }
            self.core.grow(node);
            node.unlock();
            self.end = 0;
        }
        loop {
            self.release_above();
            let node = self.held[self.first].expect("held");
            if node.shift() == 0 {
                return Place::Node(node);
            }
            // SAFETY: not a leaf; the caller is pinned (R6).
            let Some(child) = (unsafe { node.child(slot_of(index, node.shift())) }) else {
                return Place::Node(node);
            };
            self.push(child);
        }
    }

    fn parent(&mut self, node: &'t Node) -> Option<&'t Node> {
        let parent = parent_of(node)?;
        debug_assert!(
            self.held[self.first..self.end].iter().any(|held| std::ptr::eq(held.unwrap(), parent)),
            "beyond the end of the path that was foreseen"
        );
        Some(parent)
    }

    fn release(&mut self, node: &'t Node) {
        if self.end > self.first && std::ptr::eq(self.held[self.end - 1].expect("held"), node) {
            self.end -= 1;
            self.held[self.end] = None;
            node.unlock();
        }
    }

    fn release_dead(&mut self, node: &'t Node) {
        self.end -= 1;
        let last = self.held[self.end].take().expect("held");
        debug_assert!(std::ptr::eq(last, node), "the path is released from below");
        last.unlock_dead();
    }

    fn root_and_only_child(&mut self) -> Option<(&'t Node, &'t Node)> {
        self.release_all();
        self.anchor();
        let (root, child) = self.core.root_and_only_child()?;
        self.push(root);
        self.push(child);
        Some((root, child))
    }

    fn untagged(&mut self, index: u64, tag: usize, _: &'t Node) {
        self.repair(index, tag);
    }
}

impl PathLocks<'_> {
    /// Clears the bits that a [`Wish::Tag`] left above a leaf that does not get the tag, with the whole path held.
    #[cold]
    fn repair(&mut self, index: u64, tag: usize) {
        self.release_all();
        self.anchor();
        let root = self.core.root();
        let mut next = root.node().filter(|_| root.covers(index));
        while let Some(node) = next {
            self.push(node);
            // SAFETY: only if it is not a leaf; the caller is pinned (R6).
            next = (node.shift() > 0)
                .then(|| unsafe { node.child(slot_of(index, node.shift())) })
                .flatten();
        }
        // From below: a bit is cleared if the word below it is 0.
        let mut below = false;
        for node in self.held[self.first..self.end].iter().rev().flatten() {
            let shift = node.shift();
            if shift > 0 && !below {
                node.untag(tag, 1 << slot_of(index, shift));
            }
            below = node.tags(tag) != 0;
        }
        self.release_all();
    }
}
