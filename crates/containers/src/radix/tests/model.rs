//! Compares the tree step by step with an ordered map that has tags beside each value.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Values with their tags.
type Map = BTreeMap<u64, (NonZeroU64, [bool; TAGS])>;

/// One step, before it is interpreted: kind, two positions, a choice.
type Step = (u8, u16, u16, u8);

const KINDS: u8 = 15;

/// Indexes that lie close, in several places of the range, so that the tree grows and shrinks.
fn index(position: u16) -> u64 {
    let near = u64::from(position >> 2) % 150;
    match position & 3 {
        0 | 1 => near,
        2 => (1 << 18) - 75 + near,
        _ if position & 1 << 15 != 0 => u64::MAX - 149 + near,
        _ => (1 << 24) + near,
    }
}

fn range(one: u16, other: u16) -> RangeInclusive<u64> {
    let (one, other) = (index(one), index(other));
    one.min(other)..=one.max(other)
}

fn mask_of(choice: u8) -> (TagMask, impl Fn(&[bool; TAGS]) -> bool) {
    let mut mask = TagMask::ANY;
    // In base 3: ignored, with, without.
    let wish = |tag: usize| choice / [1, 3, 9][tag] % 3;
    for tag in Tag::ALL {
        match wish(tag as usize) {
            1 => mask = mask.and_with(tag),
            2 => mask = mask.and_without(tag),
            _ => {}
        }
    }
    let agrees = move |tags: &[bool; TAGS]| {
        (0..TAGS).all(|tag| match choice / [1, 3, 9][tag] % 3 {
            1 => tags[tag],
            2 => !tags[tag],
            _ => true,
        })
    };
    (mask, agrees)
}

/// A tree, and the map that it should equal.
struct Pair {
    tree: Tree,
    map: Map,
    next_value: u64,
}

impl Pair {
    fn new() -> Self {
        Self { tree: Tree::new(&CLASS), map: Map::new(), next_value: 1 }
    }

    fn fresh(&mut self) -> NonZeroU64 {
        self.next_value += 1;
        value(self.next_value)
    }

    fn tag_all(&mut self, range: RangeInclusive<u64>, tag: Tag, to: bool) -> usize {
        let changed = self.map.range_mut(range).filter(|(_, entry)| entry.1[tag as usize] != to);
        changed.map(|(_, entry)| entry.1[tag as usize] = to).count()
    }

    /// Applies one step to both and compares the answers.
    fn step(&mut self, (kind, one, other, choice): Step) {
        let guard = pin();
        let at = index(one);
        let tag = Tag::ALL[usize::from(choice) % TAGS];
        let there = self.map.get(&at).copied();
        match kind % KINDS {
            0 => assert_eq!(self.tree.get(at, &guard), there.map(|entry| entry.0)),
            1..=3 => {
                let new = self.fresh();
                let expected = there.map_or(Ok(()), |entry| Err(entry.0));
                assert_eq!(self.tree.insert(at, new, &guard), expected);
                self.map.entry(at).or_insert((new, [false; TAGS]));
            }
            4 => {
                let new = self.fresh();
                assert_eq!(self.tree.replace(at, new, &guard), there.map(|entry| entry.0));
                self.map.entry(at).and_modify(|entry| entry.0 = new);
            }
            5 => {
                assert_eq!(self.tree.remove(at, &guard), there.map(|entry| entry.0));
                self.map.remove(&at);
            }
            6 => {
                let wrong = self.fresh();
                let expected = there.filter(|_| choice % 2 == 0).map_or(wrong, |entry| entry.0);
                let matches = there.is_some_and(|entry| entry.0 == expected);
                assert_eq!(self.tree.remove_if(at, expected, &guard), matches);
                if matches {
                    self.map.remove(&at);
                }
            }
            7 | 8 => {
                assert_eq!(self.tree.set_tag(at, tag, &guard), there.is_some());
                self.tag_all(at..=at, tag, true);
            }
            9 => {
                let had = self.tag_all(at..=at, tag, false) == 1;
                assert_eq!(self.tree.clear_tag(at, tag, &guard), had);
            }
            10 => {
                let has = there.is_some_and(|entry| entry.1[tag as usize]);
                assert_eq!(self.tree.is_tagged(at, tag, &guard), has);
            }
            11 => self.search(range(one, other), choice),
            12 => {
                let range = range(one, other);
                let changed = self.tag_all(range.clone(), tag, true);
                assert_eq!(self.tree.set_tags(range, tag, &guard), changed);
            }
            13 => {
                let range = range(one, other);
                let changed = self.tag_all(range.clone(), tag, false);
                assert_eq!(self.tree.clear_tags(range, tag, &guard), changed);
            }
            _ => {
                let (range, to) = (range(one, other), Tag::ALL[usize::from(choice / 3) % TAGS]);
                let mut changed = 0;
                for (_, entry) in self.map.range_mut(range.clone()) {
                    if entry.1[tag as usize] && !entry.1[to as usize] {
                        entry.1[to as usize] = true;
                        changed += 1;
                    }
                }
                assert_eq!(self.tree.copy_tag(range, tag, to, &guard), changed);
            }
        }
        for tag in Tag::ALL {
            let any = self.map.values().any(|entry| entry.1[tag as usize]);
            assert_eq!(self.tree.any_tagged(tag, &guard), any, "{tag:?}");
        }
    }

    fn search(&self, range: RangeInclusive<u64>, choice: u8) {
        let guard = pin();
        let (mask, agrees) = mask_of(choice);
        let within = self.map.range(range.clone());
        let expected: Vec<(u64, NonZeroU64)> = within
            .filter(|(_, entry)| agrees(&entry.1))
            .map(|(&index, entry)| (index, entry.0))
            .collect();
        let mut out = vec![(0, NonZeroU64::MIN); usize::from(choice)];
        let found = self.tree.gang_tagged(range.clone(), mask, &mut out, &guard);
        assert_eq!(out[..found], expected[..expected.len().min(usize::from(choice))]);
        let all: Vec<_> = self.tree.iter_tagged(range, mask, &guard).collect();
        assert_eq!(all, expected);
    }

    fn check(&mut self) {
        check_structure(&mut self.tree);
        let guard = pin();
        let all: Vec<_> = self.tree.iter(.., &guard).collect();
        let expected: Vec<_> = self.map.iter().map(|(&at, entry)| (at, entry.0)).collect();
        assert_eq!(all, expected);
        for (&at, entry) in &self.map {
            for tag in Tag::ALL {
                assert_eq!(self.tree.is_tagged(at, tag, &guard), entry.1[tag as usize]);
            }
        }
        assert_eq!(self.tree.len_racy(&guard), self.map.len());
    }
}

fn run(steps: &[Step]) {
    let mut pair = Pair::new();
    for &step in steps {
        pair.step(step);
    }
    pair.check();
}

proptest! {
    #[test]
    fn random_operations_agree_with_a_map(
        steps in prop::collection::vec(any::<Step>(), 1..300),
    ) {
        run(&steps);
    }
}

/// A long run, in which the tree fills, empties and changes its height many times.
#[test]
fn a_million_random_operations_agree_with_a_map() {
    let (mut random, mut pair) = (Random(2007), Pair::new());
    for count in 0..1_000_000 {
        let word = random.next();
        let (mut kind, choice) = (word as u8, (word >> 40) as u8);
        // Ranges are rare, so that the tree is mostly neither full nor empty.
        if kind % KINDS >= 11 && !word.is_multiple_of(16) {
            kind %= 11;
        }
        pair.step((kind, (word >> 8) as u16, (word >> 24) as u16, choice));
        if count % 10_000 == 0 {
            pair.check();
        }
    }
    pair.check();
}
