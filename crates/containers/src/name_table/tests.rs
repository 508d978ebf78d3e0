//! Tests of the table without the model checker. Boundary: [`super`]'s functions, by their results.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use uvfs_concurrent::epoch;

static CLASS: LockClass = LockClass::new(1, "test-names", "test");

/// A table that computes the hashes of its keys.
struct Names<V>(NameTable<V>);

impl<V: Send + Sync + 'static> Names<V> {
    fn new(expected: usize) -> Self {
        Self(NameTable::new(&CLASS, expected))
    }
    fn get<'g>(&'g self, guard: &'g Guard, parent: u64, name: &[u8]) -> Option<&'g Entry<V>> {
        self.0.get(guard, self.0.hash(parent, name), parent, name)
    }
    fn insert<'g>(&'g self, guard: &'g Guard, parent: u64, name: &[u8], value: V) -> Option<&'g V> {
        let hash = self.0.hash(parent, name);
        self.0.insert(guard, hash, parent, name, 0, value).map(Entry::value)
    }
    fn remove<'g>(&'g self, guard: &'g Guard, parent: u64, name: &[u8]) -> Option<&'g V> {
        self.0.remove(guard, self.0.hash(parent, name), parent, name).map(Entry::value)
    }
}

fn numbered(number: u64) -> Vec<u8> {
    format!("name-{number}").into_bytes()
}

/// Counts the living values.
struct Counted(Arc<AtomicUsize>, u64);

impl Counted {
    fn new(living: &Arc<AtomicUsize>, mark: u64) -> Self {
        living.fetch_add(1, SeqCst);
        Self(living.clone(), mark)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        assert_ne!(self.0.fetch_sub(1, SeqCst), 0, "dropped twice");
    }
}

/// Collects until `done`; guards of other tests may delay the free of garbage for a while.
fn collect_until(done: impl Fn() -> bool) {
    while !done() {
        epoch::collect();
        std::thread::yield_now();
    }
}

#[test]
fn what_was_inserted_is_found_until_it_is_removed() {
    let (names, guard) = (Names::new(1), epoch::pin());
    assert!(names.get(&guard, 1, b"etc").is_none());
    assert!(names.insert(&guard, 1, b"etc", 10).is_none());
    assert!(names.insert(&guard, 2, b"etc", 20).is_none());
    let entry = names.get(&guard, 1, b"etc").unwrap();
    assert_eq!((entry.parent(), entry.name(), **entry), (1, &b"etc"[..], 10));
    assert_eq!(names.insert(&guard, 1, b"etc", 11), Some(&10));
    assert_eq!(**names.get(&guard, 1, b"etc").unwrap(), 11);
    assert_eq!(**entry, 10, "the guard keeps what was replaced");
    assert_eq!(names.remove(&guard, 1, b"etc"), Some(&11));
    assert!(names.get(&guard, 1, b"etc").is_none() && names.remove(&guard, 1, b"etc").is_none());
    assert_eq!(**names.get(&guard, 2, b"etc").unwrap(), 20);
    assert_eq!(names.0.len(), 1);
}

#[test]
fn names_of_every_length_are_distinguished() {
    let (names, guard) = (Names::new(1), epoch::pin());
    let long = vec![b'x'; NAME_BYTES_MAX];
    let lengths = || (1..200).chain([255, 1024, NAME_BYTES_MAX]);
    for length in lengths() {
        assert!(names.insert(&guard, 1, &long[..length], length).is_none());
    }
    for length in lengths() {
        assert_eq!(**names.get(&guard, 1, &long[..length]).unwrap(), length);
    }
    assert!(names.get(&guard, 1, &[&long[..], b"x"].concat()).is_none());
}

/// All keys have one hash: their tags are equal and they share a bucket of every array.
#[test]
fn equal_hashes_only_make_a_chain() {
    let (table, guard) = (NameTable::new(&CLASS, 1), epoch::pin());
    const HASH: u64 = 0xabcd_ef01_2345_6789;
    let count = 60u64;
    for number in 0..count {
        assert!(table.insert(&guard, HASH, 1, &numbered(number), 0, number).is_none());
    }
    let statistics = table.statistics(&guard);
    assert_eq!(statistics.entries, 60);
    assert!(statistics.chain_max >= 9 || statistics.moved > 0, "{statistics:?}");
    for number in 0..count {
        assert_eq!(**table.get(&guard, HASH, 1, &numbered(number)).unwrap(), number);
    }
    for number in (0..count).rev() {
        assert_eq!(**table.remove(&guard, HASH, 1, &numbered(number)).unwrap(), number);
        assert!(table.get(&guard, HASH, 1, &numbered(number)).is_none());
    }
    let statistics = table.statistics(&guard);
    assert_eq!((statistics.entries, statistics.overflow_buckets), (0, 0), "all are unlinked");
}

#[test]
fn a_chain_that_loses_its_middle_keeps_its_ends() {
    let (table, guard) = (NameTable::new(&CLASS, 1000), epoch::pin());
    (0..28).for_each(|n| {
        table.insert(&guard, 5, 1, &numbered(n), 0, n);
    });
    assert_eq!(table.statistics(&guard).overflow_buckets, 3);
    (7..21).for_each(|n| assert!(table.remove(&guard, 5, 1, &numbered(n)).is_some()));
    assert_eq!(table.statistics(&guard).overflow_buckets, 1);
    let left = |n| table.get(&guard, 5, 1, &numbered(n)).is_some();
    assert!((0..28).all(|n| left(n) != (7..21).contains(&n)));
    (30..45).for_each(|n| {
        table.insert(&guard, 5, 1, &numbered(n), 0, n);
    });
    assert!((30..45).all(left));
}

#[test]
fn a_lookup_stores_to_nothing_shared() {
    let (names, guard) = (Names::new(1), epoch::pin());
    (0..1000).for_each(|n| {
        names.insert(&guard, 1, &numbered(n), n);
    });
    #[cfg(debug_assertions)]
    for n in 0..1100 {
        let (_, tally) =
            uvfs_concurrent::primitive::record::tally(|| names.get(&guard, 1, &numbered(n)));
        assert_eq!((tally.stores, tally.rmws, tally.locks), (0, 0, 0));
    }
    assert_eq!(names.0.len(), 1000);
}

#[test]
fn an_insertion_knows_what_it_replaces() {
    let (names, guard) = (Names::new(1), epoch::pin());
    let hash = names.0.hash(1, b"a");
    let next =
        |found: Option<&Entry<i32>>| ((7, Class::Once), found.map_or(5, |entry| **entry + 1));
    let first = names.0.insert_with(&guard, hash, 1, b"a", next);
    assert!(first.replaced.is_none() && **first.entry == 5);
    let second = names.0.insert_with(&guard, hash, 1, b"a", next);
    assert_eq!((**second.entry, second.entry.weight()), (6, 7));
    assert_eq!(second.entry.class(), Class::Once);
    assert_eq!(second.replaced.map(|entry| **entry), Some(5));
}

#[test]
fn a_panic_in_an_insertion_unlocks_the_bucket() {
    let names = Names::new(1);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let guard = epoch::pin();
        let hash = names.0.hash(1, b"a");
        names.0.insert_with(&guard, hash, 1, b"a", |_| panic!("on purpose"));
    }));
    assert!(panicked.is_err());
    let guard = epoch::pin();
    assert!(names.insert(&guard, 1, b"a", 1).is_none());
    uvfs_concurrent::lock::order::assert_none_held("the next test");
}

#[test]
fn an_entry_is_removed_only_while_it_is_the_one() {
    let (names, guard) = (Names::new(1), epoch::pin());
    names.insert(&guard, 1, b"a", 1);
    let first = names.get(&guard, 1, b"a").unwrap();
    names.insert(&guard, 1, b"a", 2);
    let second = names.get(&guard, 1, b"a").unwrap();
    assert!(!names.0.remove_entry(&guard, first));
    assert_eq!(**names.get(&guard, 1, b"a").unwrap(), 2);
    // Also after the entry has moved.
    (0..500).for_each(|n| {
        names.insert(&guard, 2, &numbered(n), 0);
    });
    assert!(names.0.remove_entry(&guard, second) && !names.0.remove_entry(&guard, second));
    assert!(names.get(&guard, 1, b"a").is_none());
}

#[test]
fn counts_return_to_where_they_began_and_values_are_dropped_once() {
    let living = Arc::new(AtomicUsize::new(0));
    let names = Names::new(10_000);
    let base = names.0.bytes();
    assert_eq!(base, array::bytes(names.0.buckets().ilog2()));
    let guard = epoch::pin();
    let mut bytes = base;
    for n in 0..10_000 {
        names.insert(&guard, n % 7, &numbered(n), Counted::new(&living, n));
        bytes += names.get(&guard, n % 7, &numbered(n)).unwrap().bytes();
    }
    assert_eq!(names.0.len(), 10_000);
    let overflow = names.0.statistics(&guard).overflow_buckets;
    assert_eq!(names.0.bytes(), bytes + overflow * 64);
    for n in 0..5000 {
        assert_eq!(
            names.insert(&guard, n % 7, &numbered(n), Counted::new(&living, 1)).unwrap().1,
            n
        );
    }
    assert_eq!(names.0.bytes(), bytes + overflow * 64, "replacing changes no size");
    (0..9_990).for_each(|n| assert!(names.remove(&guard, n % 7, &numbered(n)).is_some()));
    assert_eq!(names.0.len(), 10);
    drop(guard);
    collect_until(|| living.load(SeqCst) == 10);
    let guard = epoch::pin();
    (9_990..10_000).for_each(|n| assert!(names.remove(&guard, n % 7, &numbered(n)).is_some()));
    assert_eq!((names.0.len(), names.0.bytes()), (0, base));
    names.insert(&guard, 1, b"last", Counted::new(&living, 0));
    drop(guard);
    drop(names);
    collect_until(|| living.load(SeqCst) == 0);
}

#[test]
fn a_table_dropped_while_it_grows_drops_every_value() {
    let living = Arc::new(AtomicUsize::new(0));
    let names = Names::new(1);
    let guard = epoch::pin();
    let mut n = 0;
    while names.0.statistics(&guard).moved == 0 || names.0.buckets() < 64 {
        names.insert(&guard, 1, &numbered(n), Counted::new(&living, n));
        n += 1;
    }
    drop(guard);
    drop(names);
    collect_until(|| living.load(SeqCst) == 0);
}

#[test]
fn growth_keeps_the_load_and_the_array_bytes_honest() {
    let (names, guard) = (Names::new(1), epoch::pin());
    assert_eq!(names.0.buckets(), 1);
    for n in 0..100_000 {
        names.insert(&guard, n >> 10, &numbered(n), n);
    }
    assert!(names.0.capacity() >= 100_000 && names.0.capacity() < 400_000);
    assert!((0..100_000).all(|n| **names.get(&guard, n >> 10, &numbered(n)).unwrap() == n));
    let statistics = names.0.statistics(&guard);
    assert_eq!((statistics.entries, statistics.moved), (100_000, 0));
    assert!(statistics.chain_max <= 4, "{statistics:?}");
    let expected = array::bytes(names.0.buckets().ilog2()) + 64 * statistics.overflow_buckets;
    assert_eq!(names.0.bytes(), expected + 100_000 * 64);
}

#[test]
fn one_revolution_of_the_clock_visits_every_entry_once() {
    let (names, guard) = (Names::new(1000), epoch::pin());
    (0..1000).for_each(|n| {
        names.insert(&guard, 1, &numbered(n), n);
    });
    let hand = Hand::new();
    let mut seen = HashMap::new();
    let steps = names.0.buckets().div_ceil(10);
    let mut buckets = 0;
    for _ in 0..steps {
        let want = 10.min(names.0.buckets() - buckets);
        let swept = names.0.sweep(&guard, &hand, want, |entry| {
            *seen.entry(**entry).or_insert(0) += 1;
            if **entry % 2 == 0 { Verdict::Remove } else { Verdict::Keep }
        });
        buckets += swept.buckets;
        assert_eq!(swept.removed_bytes, swept.removed * 64);
    }
    assert!(seen.len() == 1000 && seen.values().all(|count| *count == 1));
    assert_eq!(names.0.len(), 500);
    assert!((0..1000).all(|n| names.get(&guard, 1, &numbered(n)).is_some() == (n % 2 == 1)));
}

#[test]
fn a_sweep_reaches_all_entries_across_growths_and_ends_them() {
    let (names, guard) = (Names::new(1), epoch::pin());
    let hand = Hand::new();
    for n in 0..3000 {
        names.insert(&guard, 1, &numbered(n), n);
        names.0.sweep(&guard, &hand, 3, |_| Verdict::Keep);
    }
    let mut seen = std::collections::HashSet::new();
    let mut buckets = 0;
    // Two revolutions: a growth in progress may end in the first one.
    while buckets < 2 * names.0.buckets() {
        buckets += names
            .0
            .sweep(&guard, &hand, 7, |entry| {
                seen.insert(**entry);
                Verdict::Keep
            })
            .buckets;
    }
    assert_eq!(seen.len(), 3000);
    assert_eq!(names.0.statistics(&guard).moved, 0, "sweeping ends a growth");
    let swept = names.0.sweep(&guard, &hand, usize::MAX, |_| Verdict::Remove);
    assert_eq!((swept.visited, swept.removed, swept.buckets), (3000, 3000, names.0.buckets()));
    assert!(names.0.is_empty());
}

#[derive(Debug, Clone)]
enum Operation {
    Insert(u64, u8, u32),
    InsertWith(u64, u8, u32),
    Remove(u64, u8),
    RemoveEntry(u64, u8),
    Get(u64, u8),
    Sweep(u8, u32),
    ForEach,
}

fn operation() -> impl Strategy<Value = Operation> {
    let key = || (0..4u64, any::<u8>());
    prop_oneof![
        6 => (key(), any::<u32>()).prop_map(|((p, n), value)| Operation::Insert(p, n, value)),
        2 => (key(), any::<u32>()).prop_map(|((p, n), value)| Operation::InsertWith(p, n, value)),
        3 => key().prop_map(|(p, n)| Operation::Remove(p, n)),
        1 => key().prop_map(|(p, n)| Operation::RemoveEntry(p, n)),
        4 => key().prop_map(|(p, n)| Operation::Get(p, n)),
        1 => (any::<u8>(), any::<u32>()).prop_map(|(b, value)| Operation::Sweep(b, value)),
        1 => Just(Operation::ForEach),
    ]
}

/// Names of different lengths, some longer than a line.
fn name_of(number: u8) -> Vec<u8> {
    vec![number | 1; usize::from(number) % 70 + 1]
        .into_iter()
        .chain(number.to_string().into_bytes())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn random_operations_agree_with_a_map(
        operations in proptest::collection::vec(operation(), 1..800),
        few_hashes in any::<bool>(),
    ) {
        let (table, guard) = (NameTable::new(&CLASS, 1), epoch::pin());
        let mut map = BTreeMap::new();
        let hand = Hand::new();
        let hash = |parent, name: &[u8]| {
            let hash = table.hash(parent, name);
            // Long chains, and many equal tags.
            if few_hashes { hash & 0x0003_0000_0000_0003 } else { hash }
        };
        for operation in operations {
            match operation {
                Operation::Insert(p, n, value) => {
                    let name = name_of(n);
                    let replaced = table.insert(&guard, hash(p, &name), p, &name, 0, value);
                    prop_assert_eq!(replaced.map(|e| **e), map.insert((p, name), value));
                }
                Operation::InsertWith(p, n, value) => {
                    let name = name_of(n);
                    let was = map.get(&(p, name.clone())).copied();
                    let value = value.max(was.unwrap_or(0));
                    table.insert_with(&guard, hash(p, &name), p, &name, |found| {
                        assert_eq!(found.map(|e| **e), was);
                        ((0, Class::Normal), value)
                    });
                    map.insert((p, name), value);
                }
                Operation::Remove(p, n) => {
                    let name = name_of(n);
                    let removed = table.remove(&guard, hash(p, &name), p, &name);
                    prop_assert_eq!(removed.map(|e| **e), map.remove(&(p, name)));
                }
                Operation::RemoveEntry(p, n) => {
                    let name = name_of(n);
                    if let Some(entry) = table.get(&guard, hash(p, &name), p, &name) {
                        prop_assert!(table.remove_entry(&guard, entry));
                        prop_assert!(map.remove(&(p, name)).is_some());
                    }
                }
                Operation::Get(p, n) => {
                    let name = name_of(n);
                    let found = table.get(&guard, hash(p, &name), p, &name);
                    prop_assert_eq!(found.map(|e| **e), map.get(&(p, name)).copied());
                }
                Operation::Sweep(buckets, limit) => {
                    let mut gone = Vec::new();
                    table.sweep(&guard, &hand, usize::from(buckets), |entry| {
                        if **entry < limit / 2 {
                            gone.push((entry.parent(), entry.name().to_vec()));
                            Verdict::Remove
                        } else {
                            Verdict::Keep
                        }
                    });
                    for key in gone {
                        prop_assert!(map.remove(&key).is_some());
                    }
                }
                Operation::ForEach => {
                    let mut seen = BTreeMap::new();
                    table.for_each(&guard, |entry| {
                        let key = (entry.parent(), entry.name().to_vec());
                        assert!(seen.insert(key, **entry).is_none(), "visited twice");
                    });
                    prop_assert_eq!(&seen, &map);
                }
            }
            prop_assert_eq!(table.len(), map.len());
        }
    }
}

/// Every key always has a value, whose version only rises; the table grows from one bucket
/// meanwhile.
#[test]
fn readers_see_rising_versions_while_the_table_grows() {
    const KEYS: u64 = 64;
    const OTHERS: u64 = if cfg!(debug_assertions) { 50_000 } else { 100_000 };
    let living = Arc::new(AtomicUsize::new(0));
    let names = Names::new(1);
    let done = AtomicBool::new(false);
    {
        let guard = epoch::pin();
        (0..KEYS).for_each(|key| {
            names.insert(&guard, 0, &numbered(key), Counted::new(&living, 0));
        });
    }
    /// Stops the other threads, also when a writer panics.
    struct SetOnDrop<'a>(&'a AtomicBool);
    impl Drop for SetOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    std::thread::scope(|scope| {
        let ending = SetOnDrop(&done);
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = [0; KEYS as usize];
                while !done.load(SeqCst) {
                    let guard = epoch::pin();
                    for key in 0..KEYS {
                        let entry = names.get(&guard, 0, &numbered(key)).expect("never absent");
                        assert!(entry.1 >= last[key as usize], "an old value came back");
                        last[key as usize] = entry.1;
                    }
                }
            });
        }
        let writers: Vec<_> = (1..=2u64)
            .map(|writer| {
                let (names, living) = (&names, &living);
                scope.spawn(move || {
                    for n in 0..OTHERS {
                        let guard = epoch::pin();
                        names.insert(&guard, writer, &numbered(n), Counted::new(living, 0));
                        // Both writers raise the version of the same keys.
                        let (key, hash) =
                            (numbered(n % KEYS), names.0.hash(0, &numbered(n % KEYS)));
                        names.0.insert_with(&guard, hash, 0, &key, |found| {
                            let version = found.expect("never absent").1;
                            ((0, Class::Normal), Counted::new(living, version + 1))
                        });
                        if n % 4 == 0 {
                            let gone = names.remove(&guard, writer, &numbered(n / 2));
                            assert!(gone.is_some() || writer == 2, "only the sweep removes, too");
                        }
                    }
                })
            })
            .collect();
        let hand = Hand::new();
        // A sweeper that removes entries which the writers removed or will not read again.
        let (names, done) = (&names, &done);
        scope.spawn(move || {
            while !done.load(SeqCst) {
                let guard = epoch::pin();
                names.0.sweep(&guard, &hand, 16, |entry| {
                    if entry.parent() == 2 { Verdict::Remove } else { Verdict::Keep }
                });
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        drop(ending);
    });
    let guard = epoch::pin();
    let versions: u64 = (0..KEYS).map(|key| names.get(&guard, 0, &numbered(key)).unwrap().1).sum();
    assert_eq!(versions, 2 * OTHERS, "an update was lost");
    let of_writer_one =
        (0..OTHERS).filter(|n| names.get(&guard, 1, &numbered(*n)).is_some()).count();
    assert_eq!(of_writer_one as u64, OTHERS - OTHERS / 4);
    let mut all = 0;
    names.0.for_each(&guard, |_| all += 1);
    assert_eq!(names.0.len(), all);
    drop(guard);
    collect_until(|| living.load(SeqCst) == all);
    drop(names);
    assert_eq!(living.load(SeqCst), 0);
}

/// Many threads insert and remove the same few names: each removal has its insertion.
#[test]
fn writers_of_the_same_names_agree_on_their_changes() {
    let living = Arc::new(AtomicUsize::new(0));
    let names = Names::new(1);
    let base = AtomicUsize::new(0);
    let went: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let (names, living, base) = (&names, &living, &base);
                scope.spawn(move || {
                    let mut random = 0x9e37_79b9 + thread;
                    let mut went = 0;
                    for _ in 0..20_000 {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        let (name, guard) = (numbered(random % 40), epoch::pin());
                        if random & 1 << 40 == 0 {
                            base.fetch_add(1, SeqCst);
                            let new = Counted::new(living, random);
                            went += usize::from(names.insert(&guard, 1, &name, new).is_some());
                        } else {
                            went += usize::from(names.remove(&guard, 1, &name).is_some());
                        }
                    }
                    went
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(base.load(SeqCst), went + names.0.len());
    collect_until(|| living.load(SeqCst) == names.0.len());
}

#[test]
fn an_entry_has_a_class_until_it_is_gone() {
    let table = NameTable::<u64>::new(&CLASS, 8);
    let guard = epoch::pin();
    let hash = table.hash(1, b"a");
    let kept = table.insert_with(&guard, hash, 1, b"a", |_| ((2, Class::Keep), 1));
    assert!(kept.replaced.is_none());
    let first = table.get(&guard, hash, 1, b"a").unwrap();
    assert_eq!((first.class(), first.weight()), (Class::Keep, 2));
    assert_eq!(table.set_class(&guard, first, Class::Once), Some(Class::Keep));
    first.touch(3);
    assert_eq!((first.class(), first.weight()), (Class::Once, 3), "apart from the weight");
    assert!(table.insert(&guard, hash, 1, b"a", 0, 2).is_some_and(|old| std::ptr::eq(old, first)));
    assert_eq!(table.set_class(&guard, first, Class::Keep), None, "replaced");
    assert_eq!(first.class(), Class::Once, "as it left");
    let second = table.get(&guard, hash, 1, b"a").unwrap();
    assert_eq!(second.class(), Class::Normal);
    assert!(table.remove_if(&guard, hash, 2, |_| true).is_none(), "another directory");
    assert!(table.remove_if(&guard, hash, 1, |entry| entry.class() == Class::Once).is_none());
    let found = table.find_if(&guard, hash, 1, |entry| **entry == 2);
    assert!(found.is_some() && table.find_if(&guard, hash, 1, |_| false).is_none());
    assert!(table.remove_if(&guard, u64::from(hash as u32), 1, |_| true).is_some());
    assert_eq!(table.set_class(&guard, second, Class::Keep), None, "removed");
}

#[test]
fn a_refused_insertion_changes_nothing() {
    let (names, guard) = (Names::new(1), epoch::pin());
    assert!(names.insert(&guard, 1, b"a", 7).is_none());
    let refused = names.0.insert_if(&guard, names.0.hash(1, b"a"), 1, b"a", |known| {
        assert_eq!(known.map(|known| **known), Some(7));
        None
    });
    assert!(refused.is_none());
    assert!(names.0.insert_if(&guard, names.0.hash(1, b"b"), 1, b"b", |_| None).is_none());
    assert_eq!(names.get(&guard, 1, b"a").map(|entry| **entry), Some(7));
    assert_eq!(names.0.len(), 1);
}
