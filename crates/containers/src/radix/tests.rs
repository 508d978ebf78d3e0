//! Tests of the tree: single steps here, against a map in [`model`], by threads in [`history`] and
//! [`races`].

mod history;
mod model;
mod races;
pub(super) mod stir;

use super::node::{ALL, BITS, NODE_BYTES, Node, SLOTS, TAGS, bits};
use super::*;
use std::num::NonZeroU64;
use uvfs_concurrent::epoch::pin;
use uvfs_concurrent::lock::LockClass;

static CLASS: LockClass = LockClass::new(1, "radix-test", "test");

fn value(of: u64) -> NonZeroU64 {
    NonZeroU64::new(of).expect("not zero")
}

/// Pseudo-random numbers, the same in every run (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Asserts the invariants of a tree that no thread is changing (R1, R3, R4, R5).
fn check_structure(tree: &mut Tree) {
    fn below(node: &Node, parent: *const Node) -> usize {
        assert!(node.is_free());
        assert!(std::ptr::eq(node.parent(), parent));
        assert_ne!(node.occupied(), 0, "an empty node is linked");
        let mut nodes = 1;
        for slot in 0..SLOTS {
            let occupied = node.occupied() & 1 << slot != 0;
            assert_eq!(occupied, node.load(slot) != 0, "slot {slot}");
            let tagged: Vec<bool> = (0..TAGS).map(|tag| node.tags(tag) & 1 << slot != 0).collect();
            assert!(occupied || tagged.iter().all(|&tagged| !tagged), "an empty slot has a tag");
            if occupied && node.shift() > 0 {
                // SAFETY: not a leaf; no thread frees, because the tree is borrowed exclusively.
                let child = unsafe { node.child(slot) }.expect("occupied");
                assert_eq!(child.shift(), node.shift() - BITS);
                assert_eq!(child.offset(), slot);
                for (tag, &tagged) in tagged.iter().enumerate() {
                    assert_eq!(tagged, child.tags(tag) != 0, "tag {tag} of slot {slot}");
                }
                nodes += below(child, node);
            }
        }
        nodes
    }
    let nodes = tree.core.root().node().map_or(0, |root| {
        assert!(root.shift() == 0 || root.occupied() != 1, "the tree could be lower");
        below(root, std::ptr::null())
    });
    assert_eq!(tree.bytes_racy(&pin()), nodes * NODE_BYTES);
}

#[test]
fn what_was_inserted_is_found_until_it_is_removed() {
    let mut tree = Tree::new(&CLASS);
    let guard = pin();
    for index in [0, 63, 64, 4095, 4096, 1 << 40, u64::MAX] {
        assert_eq!(tree.insert(index, value(index | 1), &guard), Ok(()));
        assert_eq!(tree.insert(index, value(9), &guard), Err(value(index | 1)));
    }
    check_structure(&mut tree);
    assert_eq!(tree.len_racy(&guard), 7);
    assert_eq!(tree.get(1 << 40, &guard), Some(value(1 << 40 | 1)));
    assert_eq!(tree.get(1 << 41, &guard), None);
    assert_eq!(tree.replace(64, value(8), &guard), Some(value(65)));
    assert_eq!(tree.replace(65, value(8), &guard), None);
    assert!(!tree.remove_if(64, value(7), &guard));
    assert!(tree.remove_if(64, value(8), &guard));
    for index in [u64::MAX, 1 << 40, 4096, 4095, 63, 0] {
        assert_eq!(tree.remove(index, &guard), Some(value(index | 1)));
        assert_eq!(tree.remove(index, &guard), None);
        check_structure(&mut tree);
    }
    assert!(tree.is_empty());
    assert_eq!(tree.bytes_racy(&guard), 0);
}

#[test]
fn a_tree_that_became_small_is_low_again() {
    let mut tree = Tree::new(&CLASS);
    let guard = pin();
    assert_eq!(tree.bytes_racy(&guard), 0, "nothing is allocated for an empty tree");
    tree.insert(3, value(3), &guard).unwrap();
    assert_eq!(tree.bytes_racy(&guard), NODE_BYTES);
    tree.insert(u64::MAX, value(4), &guard).unwrap();
    assert_eq!(tree.bytes_racy(&guard), 21 * NODE_BYTES, "two ways down from the root");
    assert!(tree.set_tag(3, Tag::Writing, &guard));
    tree.remove(u64::MAX, &guard);
    assert_eq!(tree.bytes_racy(&guard), NODE_BYTES);
    assert!(tree.is_tagged(3, Tag::Writing, &guard));
    check_structure(&mut tree);
}

#[test]
fn tags_are_summarised_above_and_go_with_the_value() {
    let mut tree = Tree::new(&CLASS);
    let guard = pin();
    for index in (0..100_000).step_by(1000) {
        tree.insert(index, value(1), &guard).unwrap();
    }
    assert!(!tree.set_tag(1001, Tag::Dirty, &guard), "nothing is there");
    assert!(!tree.set_tag(1 << 30, Tag::Dirty, &guard));
    assert!(!tree.any_tagged(Tag::Dirty, &guard));
    for _ in 0..2 {
        assert!(tree.set_tag(77_000, Tag::Dirty, &guard));
        assert!(tree.any_tagged(Tag::Dirty, &guard));
    }
    assert!(tree.is_tagged(77_000, Tag::Dirty, &guard));
    assert!(!tree.is_tagged(77_000, Tag::Writing, &guard));
    tree.replace(77_000, value(2), &guard);
    assert!(tree.is_tagged(77_000, Tag::Dirty, &guard), "a replacement keeps the tags");
    check_structure(&mut tree);
    tree.remove(77_000, &guard);
    assert!(!tree.any_tagged(Tag::Dirty, &guard));
    tree.insert(77_000, value(3), &guard).unwrap();
    assert!(!tree.is_tagged(77_000, Tag::Dirty, &guard));
    assert!(!tree.clear_tag(77_000, Tag::Dirty, &guard));
    check_structure(&mut tree);
}

#[test]
fn searches_by_several_tags_look_at_each_value() {
    let tree = Tree::new(&CLASS);
    let guard = pin();
    for index in 0..1000 {
        tree.insert(index, value(index + 1), &guard).unwrap();
    }
    assert_eq!(tree.set_tags(100..300, Tag::Dirty, &guard), 200);
    assert_eq!(tree.set_tags(200.., Tag::Writing, &guard), 800);
    let found = |mask: TagMask| {
        let found: Vec<u64> = tree.iter_tagged(.., mask, &guard).map(|(at, _)| at).collect();
        (found.len(), found.first().copied(), found.last().copied())
    };
    let dirty = TagMask::with(Tag::Dirty);
    assert_eq!(found(dirty.and_without(Tag::Writing)), (100, Some(100), Some(199)));
    assert_eq!(found(dirty.and_with(Tag::Writing)), (100, Some(200), Some(299)));
    assert_eq!(found(TagMask::without(Tag::Writing)), (200, Some(0), Some(199)));
    assert_eq!(found(TagMask::ANY), (1000, Some(0), Some(999)));
    assert_eq!(tree.copy_tag(..150, Tag::Dirty, Tag::ToWrite, &guard), 50);
    assert_eq!(tree.copy_tag(..160, Tag::Dirty, Tag::ToWrite, &guard), 10, "only new ones");
    assert_eq!(found(Tag::ToWrite.into()), (60, Some(100), Some(159)));
    assert_eq!(tree.clear_tags(.., Tag::Dirty, &guard), 200);
    assert_eq!(found(dirty), (0, None, None));
}

#[test]
fn gang_lookups_stop_when_they_are_full() {
    let tree = Tree::new(&CLASS);
    let guard = pin();
    let indexes: Vec<u64> = (0..50).map(|at| at * 37).chain([1 << 50, u64::MAX]).collect();
    for &index in &indexes {
        tree.insert(index, value(index | 1), &guard).unwrap();
    }
    let (mut out, mut seen, mut first) = ([(0, NonZeroU64::MIN); 7], Vec::new(), 0);
    loop {
        let found = tree.gang(first.., &mut out, &guard);
        seen.extend(out[..found].iter().map(|(index, _)| *index));
        match out[..found].last().and_then(|last| last.0.checked_add(1)) {
            Some(next) => first = next,
            None => break,
        }
    }
    assert_eq!(seen, indexes);
    assert_eq!(tree.gang(5..5, &mut out, &guard), 0);
    assert_eq!(tree.gang(1..=37, &mut out, &guard), 1);
    assert_eq!(tree.gang(0.., &mut [], &guard), 0);
    assert_eq!(tree.iter(1 << 50.., &guard).count(), 2);
}

#[test]
fn the_last_indexes_work() {
    let mut tree = Tree::new(&CLASS);
    let guard = pin();
    let first = u64::MAX - 99;
    (first..=u64::MAX).for_each(|index| tree.insert(index, value(1), &guard).unwrap());
    assert_eq!(tree.set_tags(.., Tag::Dirty, &guard), 100);
    assert_eq!(tree.iter_tagged(first.., Tag::Dirty, &guard).count(), 100);
    check_structure(&mut tree);
    (first..=u64::MAX).for_each(|index| _ = tree.remove(index, &guard).unwrap());
    assert!(tree.is_empty());
}

#[test]
fn a_tree_is_dropped_with_what_is_in_it() {
    let tree = Tree::new(&CLASS);
    let guard = pin();
    for index in 0..10_000 {
        tree.insert(index * 1000, value(1), &guard).unwrap();
    }
    assert!(format!("{tree:?}").contains("levels"));
    drop(tree);
}

#[test]
fn nodes_for_dense_indexes_cost_nine_bytes_and_a_little() {
    let tree = Tree::new(&CLASS);
    let guard = pin();
    for index in 0..1 << 16 {
        tree.insert(index, value(index + 1), &guard).unwrap();
    }
    let per_value = tree.bytes_racy(&guard) as f64 / f64::from(1 << 16);
    assert!(per_value <= 9.2, "{per_value}");
}

#[test]
fn slots_of_a_leaf_are_chosen_by_range() {
    use super::gang::part;
    assert_eq!(part(0, 0), (0, 1));
    assert_eq!(part(64, u64::MAX), (64, ALL));
    assert_eq!(part(70, 72), (64, 0b111 << 6));
    assert_eq!(part(u64::MAX, u64::MAX), (u64::MAX - 63, 1 << 63));
    assert_eq!(bits(0b1010_0001).collect::<Vec<_>>(), [0, 5, 7]);
}

/// The effect of operations on shared memory, in a tree that needs no new node.
#[test]
#[cfg(debug_assertions)]
fn lookups_store_nothing_and_changes_take_one_lock() {
    use uvfs_concurrent::primitive::record::tally;
    let tree = Tree::new(&CLASS);
    let guard = pin();
    for index in (0..1 << 13).filter(|index| index % 64 != 5) {
        tree.insert(index, value(1), &guard).unwrap();
    }
    let stores = |work: &mut dyn FnMut()| {
        let tally = tally(work).1;
        (tally.stores, tally.rmws)
    };
    let nothing = (0, 0);
    assert_eq!(stores(&mut || assert!(tree.get(77, &guard).is_some())), nothing);
    assert_eq!(stores(&mut || assert_eq!(tree.iter(.., &guard).count(), 63 << 7)), nothing);
    let (one_lock, and_parents) = (1, 3);
    assert_eq!(stores(&mut || tree.insert(5, value(1), &guard).unwrap()).1, one_lock);
    assert_eq!(stores(&mut || assert!(tree.set_tag(70, Tag::Dirty, &guard))).1, and_parents);
    assert_eq!(stores(&mut || assert!(tree.set_tag(71, Tag::Dirty, &guard))).1, one_lock);
    assert_eq!(stores(&mut || assert!(tree.set_tag(71, Tag::Dirty, &guard))), nothing, "again");
    assert_eq!(stores(&mut || assert!(tree.clear_tag(71, Tag::Dirty, &guard))).1, one_lock);
    assert_eq!(stores(&mut || assert!(!tree.clear_tag(71, Tag::Dirty, &guard))), nothing, "again");
    assert_eq!(stores(&mut || assert!(tree.is_tagged(70, Tag::Dirty, &guard))), nothing);
    let whole_leaf = || assert_eq!(tree.set_tags(128..192, Tag::Dirty, &guard), 63);
    let (mut whole_leaf, and_parent) = (whole_leaf, 2);
    assert_eq!(stores(&mut whole_leaf).1, and_parent, "63 values");
    assert_eq!(stores(&mut || assert!(tree.remove(5, &guard).is_some())).1, one_lock);
}

/// Bug: a sum below zero was multiplied; where overflow is checked, that ended the reading thread.
#[test]
fn a_sum_below_zero_is_none() {
    use super::tree::bytes_of;
    assert_eq!((bytes_of(usize::MAX), bytes_of(1usize.wrapping_sub(3))), (0, 0));
    assert_eq!(bytes_of(2), 2 * bytes_of(1));
}
