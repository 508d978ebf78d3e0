//! The container compared with a list for each row in order of use; and the cost of a hit.

use super::*;
use proptest::prelude::*;

static CLASS: LockClass = LockClass::new(1, "rows-test", "test");

fn cache(rows: usize) -> SetAssociative<u64, u64, 4> {
    SetAssociative::new(&CLASS, rows, RowHash::with_seeds(3, 0x9e37_79b9_7f4a_7c15))
}

/// A list for each row, the youngest last, which models the container.
struct Lists(Vec<Vec<(u64, u64)>>);

impl Lists {
    fn get(&mut self, row: usize, key: u64) -> Option<u64> {
        let list = &mut self.0[row];
        let entry = list.remove(list.iter().position(|entry| entry.0 == key)?);
        list.push(entry);
        Some(entry.1)
    }

    fn insert(&mut self, row: usize, key: u64, value: u64) -> Option<(u64, u64)> {
        let known = self.get(row, key).is_some();
        let list = &mut self.0[row];
        if known {
            list.pop();
        }
        let evicted = (list.len() == 4).then(|| list.remove(0));
        list.push((key, value));
        evicted
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn does_what_a_list_for_each_row_does(steps in prop::collection::vec((0..8u8, 0..40u64), 1..400)) {
        let cache = cache(3);
        let mut lists = Lists(vec![Vec::new(); 3]);
        for (step, key) in steps {
            let row = cache.row_of(key);
            match step {
                0..4 => prop_assert_eq!(cache.get(key), lists.get(row, key)),
                7 => {
                    let before: usize = lists.0.iter().map(Vec::len).sum();
                    lists.0.iter_mut().for_each(|list| list.retain(|entry| entry.0 % 5 != key % 5));
                    let after: usize = lists.0.iter().map(Vec::len).sum();
                    prop_assert_eq!(cache.purge(|one| one % 5 == key % 5), before - after);
                }
                value => {
                    let value = u64::from(value);
                    prop_assert_eq!(cache.insert(key, value), lists.insert(row, key, value));
                }
            }
        }
    }
}

#[test]
fn a_row_has_its_lines_for_itself() {
    assert_eq!(size_of::<Lines<u64, u32, usize, 16>>(), 256);
    let cache = cache(7);
    assert_eq!(cache.bytes() % (7 * 64), 0);
    assert!((&raw const *cache.rows).cast::<u8>().addr().is_multiple_of(64));
}

/// A hit takes the lock of its row and stores to no other shared line; so does a miss.
#[test]
#[cfg(debug_assertions)]
fn every_access_is_one_lock() {
    use uvfs_concurrent::primitive::record::{Tally, tally};
    let cache = cache(3);
    let one = Tally { locks: 1, ..Tally::default() };
    for key in 0..40 {
        assert_eq!(tally(|| cache.insert(key, key)).1, one);
        assert_eq!(tally(|| cache.get(key)).1, one);
        assert_eq!(tally(|| cache.get(key + 40)).1, one);
    }
    assert_eq!(tally(|| cache.purge(|_| false)).1, Tally { locks: 3, ..Tally::default() });
}
