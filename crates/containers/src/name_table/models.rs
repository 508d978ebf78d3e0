//! Models of the table's protocol, run by the model checker over all schedules. Buckets have two slots and tables grow
//! beyond one entry per bucket, so that growth and overflow take only a few steps.
//!
//! Hashes are constants: the low bits choose the bucket, the high ones the tag.

use super::stand_in::Domain;
use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use uvfs_concurrent::primitive::model::{Model, Order, reached};

static CLASS: LockClass = LockClass::new(1, "model-names", "test");

/// A value that loom watches: a read races with a thread that makes or drops it out of order.
struct Watched(UnsafeCell<u64>);

// SAFETY: written before it is published and dropped after the last reader; loom's cell checks that.
unsafe impl Sync for Watched {}

impl Watched {
    /// Written after it was made: loom dates a cell's creation at the thread's last atomic step, which a fence in `pin`
    /// may already have published.
    fn new(value: u64) -> Self {
        let made = Self(UnsafeCell::new(0));
        made.0.with_mut(|content| {
            // SAFETY: written before it is published.
            unsafe { *content = value }
        });
        made
    }

    fn read(&self) -> u64 {
        self.0.with(|value| {
            // SAFETY: read while it is published, as claimed for `Sync`.
            unsafe { *value }
        })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // A failed model unwinds; loom would report cells still in use, and end the process.
        if std::thread::panicking() {
            return;
        }
        self.0.with_mut(|value| {
            // SAFETY: dropped after the last reader, as claimed for `Sync`.
            unsafe { *value = u64::MAX }
        });
    }
}

/// Hashes with different tags; the low bits choose the bucket.
const A: u64 = 0x0003 << 48;
const B: u64 = 0x0005 << 48;
const C: u64 = 0x0007 << 48;

/// A table and its garbage.
struct World {
    table: NameTable<Watched>,
    domain: Domain,
}

fn world(expected: usize) -> Arc<World> {
    Arc::new(World { table: NameTable::new(&CLASS, expected), domain: Domain::default() })
}

impl World {
    /// Inserts `value` under the name of `hash`.
    fn insert(&self, hash: u64, value: u64) -> bool {
        let guard = self.domain.pin();
        self.table.insert(&guard, hash, hash, b"n", 0, Watched::new(value)).is_some()
    }

    fn get(&self, hash: u64) -> Option<u64> {
        let guard = self.domain.pin();
        self.table.get(&guard, hash, hash, b"n").map(|entry| entry.read())
    }

    fn remove(&self, hash: u64) -> bool {
        let guard = self.domain.pin();
        self.table.remove(&guard, hash, hash, b"n").is_some()
    }
}

/// All schedules with at most `preemptions` preemptions; see [`Model::new`].
fn check(
    preemptions: usize,
    at_least: usize,
    reaching: &'static [&'static str],
    model: impl Fn() + Sync + Send + 'static,
) {
    Model::new(at_least, reaching).preemptions(preemptions).check(model);
}

/// Notes whether a lookup found the name.
fn note(found: bool) {
    reached(if found { "found" } else { "missed" });
}

/// O1: a reader that finds a new entry sees its content. Fails with a Relaxed `put`, or either Relaxed slot load in
/// `find`.
#[test]
fn model_insert_and_lookup() {
    check(3, 150, &["found", "missed"], || {
        let world = world(2);
        let other = world.clone();
        let writer = thread::spawn(move || other.insert(A, 1));
        let seen = world.get(A);
        assert!([None, Some(1)].contains(&seen));
        note(seen.is_some());
        if seen.is_some() {
            assert_eq!(world.get(A), Some(1), "found, then missed");
        }
        writer.join().unwrap();
        assert_eq!(world.get(A), Some(1));
    });
}

/// O1, B5: a name being replaced is never absent, and the old value never follows the new one.
/// Fails with a Relaxed `replace`.
#[test]
fn model_replace_and_lookup() {
    check(3, 300, &["old, then new", "old twice", "new twice"], || {
        let world = world(2);
        world.insert(A, 1);
        let other = world.clone();
        let writer = thread::spawn(move || assert!(other.insert(A, 2)));
        let first = world.get(A).expect("never absent");
        let second = world.get(A).expect("never absent");
        match (first, second) {
            (1, 2) => reached("old, then new"),
            (1, 1) => reached("old twice"),
            (2, 2) => reached("new twice"),
            _ => (),
        }
        assert!(first <= second, "old after new");
        writer.join().unwrap();
        assert_eq!(world.table.len(), 1);
    });
}

/// O2, O5: a name that is there during a growth is found. Fails with a Relaxed unlock in
/// `Locked::drop`, a Relaxed `control`, or a Relaxed load or store of `current`.
#[test]
fn model_growth_and_lookup() {
    check(3, 900, &["before the growth", "after the growth"], || {
        let world = world(1);
        world.insert(A, 1);
        let other = world.clone();
        let writer = thread::spawn(move || {
            // Grows from one bucket to two.
            other.insert(B, 2);
            assert_eq!(other.table.buckets(), 2);
        });
        let guard = world.domain.pin();
        let grown = world.table.buckets() == 2;
        reached(if grown { "after the growth" } else { "before the growth" });
        for _ in 0..2 {
            let found = world.table.get(&guard, A, A, b"n").expect("missed during growth");
            assert_eq!(found.read(), 1);
        }
        drop(guard);
        writer.join().unwrap();
        assert_eq!((world.get(A), world.get(B)), (Some(1), Some(2)));
    });
}

/// B3, O2: a name that was removed or replaced after it moved is not found again in the old array.
#[test]
fn model_growth_and_removal() {
    check(2, 1500, &["1", "3", "gone"], || {
        let world = world(1);
        world.insert(A, 1);
        let other = world.clone();
        let writer = thread::spawn(move || {
            other.insert(B, 2);
            other.insert(A, 3);
            assert!(other.remove(A));
        });
        let mut last = 1;
        for _ in 0..3 {
            let found = world.get(A).unwrap_or(u64::MAX);
            reached(match found {
                1 => "1",
                3 => "3",
                _ => "gone",
            });
            assert!(found >= last, "{found} after {last}");
            last = found;
        }
        writer.join().unwrap();
        assert_eq!(world.get(A), None);
    });
}

/// B3: half way through a growth, a name in a moved bucket belongs to the new array, also while it is removed. Fails
/// when lookups ignore the mark.
#[test]
fn model_half_grown_and_lookup() {
    check(3, 300, &["found", "missed"], || {
        let world = world(4);
        // Five entries begin a growth from four buckets, and one bucket moves with each write.
        [A, B | 1, B | 2, B | 3, C | 3].iter().for_each(|hash| assert!(!world.insert(*hash, 1)));
        assert!(world.insert(A, 5), "in the new array");
        let other = world.clone();
        let writer = thread::spawn(move || assert!(other.remove(A)));
        let (first, second) = (world.get(A), world.get(A));
        assert!([None, Some(5)].contains(&first) && [None, Some(5)].contains(&second));
        note(first.is_some());
        assert!(first.is_some() || second.is_none(), "found after it was missed");
        writer.join().unwrap();
        assert_eq!(world.get(A), None);
        assert_eq!(world.table.buckets(), 4, "the growth has ended, the model shows nothing");
    });
}

/// O7: two threads move one bucket each, and the last one lets readers begin in the new array. The readers find the
/// other thread's bucket there. Fails with a Relaxed `count_migrated`.
#[test]
fn model_growth_by_two() {
    check(2, 1500, &["before", "after"], || {
        let world = world(2);
        world.insert(A, 1);
        world.insert(B | 1, 2);
        let (one, two) = (world.clone(), world.clone());
        let threads =
            [thread::spawn(move || one.insert(C, 3)), thread::spawn(move || two.insert(B | 1, 4))];
        assert_eq!(world.get(A), Some(1));
        let seen = world.get(B | 1);
        reached(if seen == Some(2) { "before" } else { "after" });
        assert!([Some(2), Some(4)].contains(&seen));
        threads.into_iter().for_each(|thread| assert!(thread.join().is_ok()));
        assert_eq!([A, B | 1, C].map(|hash| world.get(hash)), [Some(1), Some(4), Some(3)]);
        assert_eq!(world.table.len(), 3);
    });
}

/// An insertion during a growth, into a bucket that may have to move first: neither is lost. Fails
/// with a Relaxed `next`, `set_next` or `lock`.
#[test]
fn model_insert_and_insert_grow() {
    check(2, 3500, &Order::ALL, || {
        let world = world(1);
        world.insert(A, 1);
        let other = world.clone();
        let order = Order::default();
        let theirs = order.clone();
        let writer = thread::spawn(move || theirs.other(|| other.insert(B | 1, 2)));
        order.one(|| world.insert(C, 3));
        writer.join().unwrap();
        assert_eq!([A, B | 1, C].map(|hash| world.get(hash)), [Some(1), Some(2), Some(3)]);
        assert_eq!(world.table.len(), 3);
    });
}

/// O3: a reader that follows a link sees the overflow bucket. Fails with a Relaxed unlock in `Locked::drop`, or a
/// Relaxed `control`; for the second link, with a Relaxed store in `set_link`.
#[test]
fn model_overflow_and_lookup() {
    for filled in [2, 4] {
        check(3, 50, &["found", "missed"], move || {
            // With so many buckets it does not grow; all names are in one of them.
            let world = world(8);
            (0..filled).for_each(|n| assert!(!world.insert(A | n << 50, n)));
            let other = world.clone();
            let writer = thread::spawn(move || other.insert(B | 1 << 60, 9));
            let seen = world.get(B | 1 << 60);
            note(seen.is_some());
            assert!([None, Some(9)].contains(&seen));
            assert_eq!(world.get(A), Some(0));
            writer.join().unwrap();
        });
    }
}

/// B4: a name in an overflow bucket is found while its bucket moves, which cuts the link to it. Fails when
/// `get` loads a control word after the slots.
#[test]
fn model_overflow_that_moves_and_lookup() {
    check(2, 12, &Order::ALL, || {
        let world = world(4);
        // Three in the bucket that moves first, so one of them in an overflow bucket; the table is full.
        (0..3).for_each(|n| assert!(!world.insert(A | n << 50, n)));
        assert!(!world.insert(B | 1, 7));
        let (other, order) = (world.clone(), Order::default());
        let theirs = order.clone();
        let writer = thread::spawn(move || theirs.other(|| other.insert(B | 2, 8)));
        let seen = order.one(|| world.get(A | 2 << 50));
        assert_eq!(seen, Some(2), "missed while its bucket moved");
        writer.join().unwrap();
        let guard = world.domain.pin();
        assert_eq!(world.table.statistics(&guard).moved, 1, "it did not move");
    });
}

/// B6: two writers find at the same time that the table should grow. One of them begins the growth, and entries that
/// either of them moves are in the next array. Fails when `grow_if_full` loads `growing` and sets it in two steps.
#[test]
fn model_two_growers() {
    check(2, 500, &Order::ALL, || {
        let world = world(2);
        world.insert(A, 1);
        world.insert(B | 1, 2);
        let (other, order) = (world.clone(), Order::default());
        let theirs = order.clone();
        let writer = thread::spawn(move || theirs.other(|| other.insert(C | 1, 4)));
        order.one(|| world.insert(C, 3));
        writer.join().unwrap();
        let found = [A, B | 1, C, C | 1].map(|hash| world.get(hash));
        assert_eq!(found, [Some(1), Some(2), Some(3), Some(4)], "in an array that no reader knows");
        assert_eq!(world.table.len(), 4);
    });
}

/// B7: removals that unlink an overflow bucket do not hide the buckets behind it.
#[test]
fn model_unlink_and_lookup() {
    check(2, 100, &["before", "after"], || {
        let world = world(8);
        // Two in the head, two in the first overflow bucket, one in the second.
        (0..5).for_each(|n| assert!(!world.insert(A | n << 50, n)));
        let other = world.clone();
        let writer = thread::spawn(move || {
            assert!(other.remove(A | 2 << 50));
            assert!(other.remove(A | 3 << 50));
        });
        assert_eq!(world.get(A | 4 << 50), Some(4));
        reached(if world.table.len() == 5 { "before" } else { "after" });
        writer.join().unwrap();
        world.domain.collect();
        let guard = world.domain.pin();
        assert_eq!(world.table.statistics(&guard).overflow_buckets, 1);
    });
}

/// O4: two writers of one name, and one of another in the same bucket; each takes effect once.
/// Fails with a Relaxed `lock`, or a Relaxed unlock in `Locked::drop`.
#[test]
fn model_two_writers() {
    check(3, 900, &["first", "second"], || {
        let world = world(4);
        let other = world.clone();
        let writer = thread::spawn(move || {
            let replaced = other.insert(A, 1);
            other.insert(B, 2);
            replaced
        });
        let replaced = world.insert(A, 3);
        reached(if replaced { "second" } else { "first" });
        assert_ne!(writer.join().unwrap(), replaced, "one of the two came first");
        assert_eq!(world.table.len(), 2);
        assert_eq!(world.get(A), Some(if replaced { 3 } else { 1 }));
        assert_eq!(world.get(B), Some(2));
    });
}

/// B7: an entry is freed only when no reader can have it. Fails when `remove_where` frees it at once.
#[test]
fn model_remove_and_reclaim() {
    check(3, 350, &["found", "missed"], || {
        let world = world(2);
        world.insert(A, 1);
        let other = world.clone();
        let reader = thread::spawn(move || {
            let seen = other.get(A);
            note(seen.is_some());
            assert!([None, Some(1)].contains(&seen));
        });
        assert!(world.remove(A));
        (0..3).for_each(|_| world.domain.collect());
        reader.join().unwrap();
        assert_eq!(world.get(A), None);
    });
}

/// O6: a reader that misses a removed name sees the remover's earlier stores. Fails with a Relaxed `take`.
#[test]
fn model_a_miss_sees_what_the_remover_did() {
    check(3, 60, &["found", "missed"], || {
        let world = world(2);
        world.insert(A, 1);
        let before = Arc::new(Watched::new(0));
        let (other, cell) = (world.clone(), before.clone());
        let remover = thread::spawn(move || {
            // Pinned first, so that the epoch orders nothing between the write and the removal.
            let guard = other.domain.pin();
            cell.0.with_mut(|value| {
                // SAFETY: no thread reads it before the removal.
                unsafe { *value = 7 }
            });
            assert!(other.table.remove(&guard, A, A, b"n").is_some());
        });
        let seen = world.get(A);
        note(seen.is_some());
        if seen.is_none() {
            assert_eq!(before.read(), 7);
        }
        remover.join().unwrap();
    });
}

/// A sweep removes one entry while another name of the bucket is looked up, and the table grows. Entries that stay are
/// found; a removed entry is removed once. Fails with a Relaxed slot load in `words`, or a Relaxed `put`.
#[test]
fn model_sweep_and_lookup() {
    check(2, 3500, &["removed", "not there yet"], || {
        let world = world(1);
        world.insert(A, 1);
        let other = world.clone();
        let sweeper = thread::spawn(move || {
            let guard = other.domain.pin();
            let verdict = |entry: &Entry<Watched>| match entry.read() {
                2 => Verdict::Remove,
                _ => Verdict::Keep,
            };
            other.table.sweep(&guard, &Hand::new(), 2, verdict).removed
        });
        world.insert(B, 2);
        assert_eq!(world.get(A), Some(1));
        let removed = sweeper.join().unwrap();
        reached(if removed == 1 { "removed" } else { "not there yet" });
        assert_eq!(world.get(A), Some(1));
        assert_eq!(world.get(B).is_some(), removed == 0);
        assert_eq!(world.table.len(), 2 - removed);
    });
}
