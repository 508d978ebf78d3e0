//! One structure, split by key into lock-protected shards.
//!
//! # Boundary
//! Chooses the shard and returns its lock. The caller defines the content of a shard and its bound.
//!
//! # Why
//! The plain beginning: a lock per shard, so that two threads contend only on keys of one shard. Bad at: scans over
//! everything (they lock each shard in turn and see no single instant), and a hot key, whose shard lock every hit still
//! takes. The lock-free name table replaces it there.

use crate::lock::{LockClass, Mutex};
use crate::padded::Padded;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, RandomState};

/// Entries for which a table has room without being sparse.
const FEW: usize = 64;

/// Which of `count` equal parts of a structure the calling thread uses. Threads that start one after another, or at equal
/// distances, mostly have different ones.
#[cfg(not(loom))]
pub fn of_thread(count: usize) -> usize {
    use crate::primitive::unseen::{AtomicUsize, Ordering::Relaxed};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // Multiplied: neighbours are far apart, and so are every eighth. ORDERING: Relaxed; only the number counts.
        static MINE: usize = NEXT.fetch_add(1, Relaxed).wrapping_mul(0x9E37_79B9) >> 16 & 0xFFFF;
    }
    MINE.with(|mine| *mine % count)
}

/// Shrinks `table` if it is mostly empty; called after an entry was removed. The standard tables never shrink by
/// themselves, and no budget counts their room once the entries are removed.
pub fn shrink_sparse<K: Eq + Hash, V, S: BuildHasher>(table: &mut HashMap<K, V, S>) {
    if is_sparse(table.len(), table.capacity()) {
        table.shrink_to(2 * table.len());
    }
}

/// Shrinks a sparse set, as [`shrink_sparse`] a sparse table.
pub fn shrink_sparse_set<K: Eq + Hash, S: BuildHasher>(set: &mut HashSet<K, S>) {
    if is_sparse(set.len(), set.capacity()) {
        set.shrink_to(2 * set.len());
    }
}

/// An eighth: between two shrinks as many entries are removed as are moved.
fn is_sparse(entries: usize, room: usize) -> bool {
    room > FEW && entries < room / 8
}

/// `2^n` shards of `T`, each behind its own [`Mutex`] on its own cache lines.
#[derive(Debug)]
pub struct Shards<T> {
    shards: Box<[Padded<Mutex<T>>]>,
    hasher: RandomState,
}

impl<T: Default> Shards<T> {
    /// Makes at least `wanted` shards (rounded up to a power of two), locked under `class`.
    pub fn new(class: &'static LockClass, wanted: usize) -> Self {
        let count = wanted.max(1).next_power_of_two();
        let shards = (0..count).map(|_| Padded(Mutex::new(class, T::default()))).collect();
        Self { shards, hasher: RandomState::new() }
    }
}

impl<T> Shards<T> {
    /// The shard of `key`. The hash is seeded per process, against flooding.
    pub fn of<K: Hash + ?Sized>(&self, key: &K) -> &Mutex<T> {
        self.of_hash(self.hasher.hash_one(key))
    }

    /// The shard of a key with this hash, whose low bits are spread, and secret if programs choose keys.
    pub fn of_hash(&self, hash: u64) -> &Mutex<T> {
        &self.shards[hash as usize & (self.shards.len() - 1)]
    }

    /// All shards, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = &Mutex<T>> {
        self.shards.iter().map(|shard| &shard.0)
    }

    /// The number of shards.
    pub fn count(&self) -> usize {
        self.shards.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    static CLASS: LockClass = LockClass::new(1, "test-shard", "test");

    /// Bug: tables of a process that had 30,000 files kept 8 MiB after all files were removed.
    #[test]
    fn a_table_that_was_emptied_has_little_room() {
        let (mut table, mut set) = (HashMap::new(), HashSet::new());
        (0..10_000u64).for_each(|key| _ = (table.insert(key, key), set.insert(key)));
        for key in 0..10_000 {
            table.remove(&key);
            set.remove(&key);
            shrink_sparse(&mut table);
            shrink_sparse_set(&mut set);
            assert_eq!(table.len(), 9_999 - key as usize);
            assert_eq!(table.contains_key(&9_999), key < 9_999);
        }
        assert!(table.capacity() <= 2 * FEW && set.capacity() <= 2 * FEW);
    }

    #[test]
    fn threads_at_equal_distances_have_different_parts() {
        let mut seen = HashSet::new();
        for at in 0..128 {
            let part = std::thread::scope(|scope| scope.spawn(|| of_thread(32)).join().unwrap());
            assert_eq!(of_thread(32), of_thread(32));
            if at % 8 == 0 {
                seen.insert(part);
            }
        }
        assert!(seen.len() >= 8, "{seen:?}");
    }

    #[test]
    fn a_key_stays_in_its_shard() {
        let shards: Shards<HashMap<u64, u64>> = Shards::new(&CLASS, 5);
        assert_eq!(shards.count(), 8);
        for key in 0..1000u64 {
            shards.of(&key).lock().insert(key, key * 2);
        }
        assert!((0..1000u64).all(|key| shards.of(&key).lock().get(&key) == Some(&(key * 2))));
        assert_eq!(shards.iter().map(|shard| shard.lock().len()).sum::<usize>(), 1000);
    }
}
