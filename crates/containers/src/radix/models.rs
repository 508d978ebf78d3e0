//! Models of the tree's protocol, run by the model checker over all schedules. Nodes have two slots, so
//! indexes 0 and 1 share a leaf, 0 to 3 a node of two levels, and 0 to 7 a root of three.
//!
//! Nodes know whether they are freed, and pages are cells that the checker watches. It reports a thread that reads a
//! page which the tree did not return to it.

use super::node::{BITS, Node, SLOTS, TAGS};
use super::stand_in::Domain;
use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::num::NonZeroU64;
use uvfs_concurrent::lock::LockClass;
use uvfs_concurrent::primitive::model::{Model, Order};

static CLASS: LockClass = LockClass::new(1, "model-radix", "test");

/// A tree, its garbage, and the pages of its values.
struct World {
    tree: Tree,
    domain: Domain,
    pages: [UnsafeCell<u64>; 4],
}

// SAFETY: a page is written before it is inserted, and read after it is found; loom's cells check that.
unsafe impl Sync for World {}
// SAFETY: a page is written before it is inserted, and read after it is found; loom's cells check that.
unsafe impl Send for World {}

fn value(page: u64) -> NonZeroU64 {
    NonZeroU64::new(page + 1).expect("not zero")
}

impl World {
    /// A world with pages at `indexes`.
    fn with(indexes: &[u64]) -> Arc<Self> {
        let pages = std::array::from_fn(|_| UnsafeCell::new(0));
        let world = Self { tree: Tree::new(&CLASS), domain: Domain::default(), pages };
        for &index in indexes {
            world.insert(index, 0);
        }
        Arc::new(world)
    }

    /// Writes a page, and puts it at `index`.
    fn insert(&self, index: u64, page: u64) {
        self.pages[page as usize].with_mut(|content| {
            // SAFETY: no thread has found this page yet.
            unsafe { *content = page + 7 }
        });
        let guard = self.domain.pin();
        assert_eq!(self.tree.insert(index, value(page), &guard), Ok(()));
    }

    /// Reads the page at `index`.
    fn get(&self, index: u64) -> Option<u64> {
        let guard = self.domain.pin();
        let page = self.tree.get(index, &guard)?.get() - 1;
        self.pages[page as usize].with(|content| {
            // SAFETY: found in the tree, so written before.
            assert_eq!(unsafe { *content }, page + 7);
        });
        Some(page)
    }

    fn remove(&self, index: u64) -> bool {
        let guard = self.domain.pin();
        let found = self.tree.remove(index, &guard);
        drop(guard);
        self.domain.collect();
        found.is_some()
    }

    fn tag(&self, index: u64) -> bool {
        self.tree.set_tag(index, Tag::Dirty, &self.domain.pin())
    }

    fn untag(&self, index: u64) -> bool {
        self.tree.clear_tag(index, Tag::Dirty, &self.domain.pin())
    }

    /// Whether a search by the tag finds `index`.
    fn finds_tagged(&self, index: u64) -> bool {
        let guard = self.domain.pin();
        let mut out = [(0, NonZeroU64::MIN); 1];
        self.tree.gang_tagged(index..=index, Tag::Dirty, &mut out, &guard) == 1
    }

    /// Whether a search by index finds `index`.
    fn finds(&self, index: u64) -> bool {
        let guard = self.domain.pin();
        self.tree.gang(index..=index, &mut [(0, NonZeroU64::MIN)], &guard) == 1
    }

    /// Asserts the invariants of a tree that no thread is changing (R1, R3 to R5).
    fn check(&self) {
        fn below(node: &Node, parent: *const Node) {
            assert!(std::ptr::eq(node.parent(), parent));
            assert_ne!(node.occupied(), 0, "an empty node is linked");
            for slot in 0..SLOTS {
                let occupied = node.load(slot) != 0;
                assert_eq!(node.occupied() & 1 << slot != 0, occupied);
                // SAFETY: only above level 0; no other thread is left.
                let child = (node.shift() > 0).then(|| unsafe { node.child(slot) }).flatten();
                for tag in 0..TAGS {
                    let tagged = node.tags(tag) & 1 << slot != 0;
                    assert!(occupied || !tagged);
                    assert!(child.is_none_or(|child| tagged == (child.tags(tag) != 0)));
                }
                if let Some(child) = child {
                    assert_eq!(child.shift() + BITS, node.shift());
                    below(child, node);
                }
            }
        }
        if let Some(root) = self.tree.core.root().node() {
            assert!(root.shift() == 0 || root.occupied() != 1, "the tree could be lower");
            below(root, std::ptr::null());
        }
    }
}

/// Runs two threads on a world with pages 0 at `indexes`, for every schedule with at most `preemptions`
/// preemptions, and checks the result.
fn check(
    preemptions: usize,
    indexes: &'static [u64],
    one: impl Fn(&World) + Send + Sync + Copy + 'static,
    other: impl Fn(&World) + Send + Sync + Copy + 'static,
    after: impl Fn(&World) + Send + Sync + Copy + 'static,
) {
    Model::new(15, &Order::ALL).preemptions(preemptions).steps(10_000).check(move || {
        let world = World::with(indexes);
        let others = world.clone();
        let seen = Order::default();
        let theirs = seen.clone();
        let thread = thread::spawn(move || theirs.other(|| other(&others)));
        seen.one(|| one(&world));
        thread.join().unwrap();
        after(&world);
        world.check();
    });
}

/// O1: a thread that finds a page sees its content; in an existing leaf, in a new one, in a new tree. Fails with a
/// Relaxed `Node::store`, `Node::load`, `Core::plant` or `Core::root`.
#[test]
fn model_insert_and_lookup() {
    for indexes in [&[0][..], &[0, 4], &[]] {
        let insert = |world: &World| world.insert(1, 1);
        let get = |world: &World| {
            let seen = world.get(1);
            assert!([None, Some(1)].contains(&seen));
            assert!(seen.is_none() || world.get(1) == seen, "found, then missed");
        };
        check(3, indexes, insert, get, |world| assert_eq!(world.get(1), Some(1)));
    }
}

/// R4, R6: a page is looked up while it is removed and its leaf is unlinked and freed. Fails if the leaf
/// is retired before the parent's slot is emptied, or freed at once.
#[test]
fn model_lookup_and_remove() {
    let get = |world: &World| {
        let first = world.get(0);
        assert!(first.is_some() || world.get(0).is_none(), "missed, then found");
    };
    let remove = |world: &World| assert!(world.remove(0));
    check(3, &[0, 2], get, remove, |world| assert_eq!(world.get(0), None));
}

/// R2, O2: two insertions into one leaf, and two that each want to make it. Fails with a Relaxed `Word::unlock`, a
/// Relaxed `Word::lock`, or if `place` does not load the slot again under the lock.
#[test]
fn model_insert_and_insert() {
    fn run(indexes: &'static [u64]) {
        let one = |world: &World| world.insert(0, 1);
        let other = |world: &World| world.insert(1, 2);
        check(3, indexes, one, other, |world| {
            assert_eq!((world.get(0), world.get(1)), (Some(1), Some(2)));
        });
    }
    run(&[2]);
    run(&[]);
    // In an existing leaf.
    let (one, other) = (
        |world: &World| world.insert(2, 1),
        |world: &World| {
            assert!(world.remove(3));
        },
    );
    check(3, &[0, 3], one, other, |world| {
        assert_eq!((world.get(2), world.get(3)), (Some(1), None));
    });
}

/// R4, O2: an insertion finds the leaf, and before it has the lock the leaf is emptied and unlinked. Fails if
/// `unlock_dead` leaves the node free to be locked. With a Relaxed `unlock_dead`, or a `Word::lock` that is Relaxed on
/// failure, the insertion finds the dead leaf again and again.
#[test]
fn model_insert_into_a_leaf_that_goes_away() {
    let insert = |world: &World| world.insert(1, 1);
    let remove = |world: &World| assert!(world.remove(0));
    check(3, &[0, 2], insert, remove, |world| {
        assert_eq!((world.get(0), world.get(1)), (None, Some(1)));
    });
}

/// R5, the tag race: one thread clears a leaf's last tag and goes up, the other tags the neighbour. Fails if
/// `settle_above` releases the leaf before the parent's bit is cleared.
#[test]
fn model_tag_and_untag_in_one_leaf() {
    let untag = |world: &World| assert!(world.untag(0));
    let tag = |world: &World| {
        assert!(world.tag(1));
        assert!(world.finds_tagged(1), "tagged, and not found by its tag");
    };
    check_tagged(&[0, 1, 2], &[0], untag, tag, |world| assert!(world.finds_tagged(1)));
}

/// R5: a clear goes up from one leaf while a tag goes up from the next leaf, and they are both in the parent. Fails if
/// `settle_above` continues above a node that still has the tag, or has it again, or if `raise_above` sets a parent's
/// bit without holding it.
#[test]
fn model_clear_goes_up_and_a_tag_comes_below() {
    let untag = |world: &World| assert!(world.untag(0));
    let tag = |world: &World| {
        assert!(world.tag(2));
        assert!(world.finds_tagged(2), "tagged, and not found by its tag");
    };
    check_tagged(&[0, 2, 4], &[0], untag, tag, |world| assert!(world.finds_tagged(2)));
}

/// R5, O3: a thread finds a tag set and therefore takes no lock. Its next search finds the tag, even if the thread that
/// set it has not finished. Fails if `raise` tags the leaf before the nodes above, with a Relaxed `set_tags`, or a
/// Relaxed `tags`.
#[test]
fn model_tag_that_is_set_already() {
    let tag = |world: &World| {
        assert!(world.tag(0));
        assert!(world.finds_tagged(0), "tagged, and not found by its tag");
    };
    check(3, &[0, 2, 4], tag, tag, |world| assert!(world.finds_tagged(0)));
}

/// R5: a thread that found a page removed cannot tag it, also not by finding the old tag. Fails if a removal empties
/// the slot before it clears the tags.
#[test]
fn model_tag_of_a_page_that_is_removed() {
    let remove = |world: &World| assert!(world.remove(0));
    let look = |world: &World| {
        assert!(world.get(0).is_some() || !world.tag(0), "gone, and then tagged");
    };
    check_tagged(&[0, 1], &[0], remove, look, |world| assert!(!world.finds_tagged(0)));
}

/// R5, O4: a value that a search misses is missed by a later lookup; a value that a lookup finds is found by a later
/// search. Fails with a Relaxed `occupy`, a Relaxed `occupied`, or if `empty` or `fill` swap their steps.
#[test]
fn model_search_and_lookup_agree() {
    let remove = |world: &World| assert!(world.remove(0));
    let look = |world: &World| {
        assert!(world.finds(0) || world.get(0).is_none(), "missed by the search only");
    };
    check(3, &[0, 1], remove, look, |_| ());
    let insert = |world: &World| world.insert(0, 1);
    let look = |world: &World| {
        assert!(world.get(0).is_none() || world.finds(0), "missed by the search only");
    };
    check(3, &[1], insert, look, |_| ());
}

/// R7: the tree grows while the old root gets a value, or its first tag. Fails if `place` calls `grow` without the
/// lock, if `grow` does not set the old root's parent, or with a Relaxed `Core::set_root`.
#[test]
fn model_grow_and_change() {
    let grow = |world: &World| world.insert(2, 1);
    let insert = |world: &World| world.insert(1, 2);
    check(3, &[0], grow, insert, |world| {
        assert_eq!((world.get(1), world.get(2)), (Some(2), Some(1)));
    });
    let tag = |world: &World| {
        assert!(world.tag(0));
        assert!(world.finds_tagged(0), "tagged, and not found by its tag");
    };
    check(3, &[0], grow, tag, |world| assert!(world.finds_tagged(0)));
}

/// R7: the tree shrinks while the new root is tagged, or the old one gets a value. Fails if `shrink`
/// takes no lock of the new root, or leaves the old one alive.
#[test]
fn model_shrink_and_change() {
    let shrink = |world: &World| assert!(world.remove(2));
    let tag = |world: &World| {
        assert!(world.tag(0));
        assert!(world.finds_tagged(0), "tagged, and not found by its tag");
    };
    check(3, &[0, 2], shrink, tag, |world| assert!(world.finds_tagged(0)));
    let insert = |world: &World| world.insert(3, 1);
    check(3, &[0, 2], shrink, insert, |world| assert_eq!(world.get(3), Some(1)));
}

/// R7: two removals each leave the root with one child, and both make the tree lower. Fails if `root_and_only_child`
/// does not check the child's parent again once it has the child.
#[test]
fn model_shrink_and_shrink() {
    let one = |world: &World| assert!(world.remove(4));
    let other = |world: &World| assert!(world.remove(2));
    check(3, &[0, 2, 4], one, other, |world| assert_eq!(world.get(0), Some(0)));
}

/// Checks as [`check`] does, with tags on `tagged` at the beginning.
fn check_tagged(
    indexes: &'static [u64],
    tagged: &'static [u64],
    one: impl Fn(&World) + Send + Sync + Copy + 'static,
    other: impl Fn(&World) + Send + Sync + Copy + 'static,
    after: impl Fn(&World) + Send + Sync + Copy + 'static,
) {
    Model::new(15, &Order::ALL).preemptions(3).steps(10_000).check(move || {
        let world = World::with(indexes);
        tagged.iter().for_each(|&index| assert!(world.tag(index)));
        let others = world.clone();
        let seen = Order::default();
        let theirs = seen.clone();
        let thread = thread::spawn(move || theirs.other(|| other(&others)));
        seen.one(|| one(&world));
        thread.join().unwrap();
        after(&world);
        world.check();
    });
}
