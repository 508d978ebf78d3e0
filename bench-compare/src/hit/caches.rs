//! Caches in which every lookup is a hit.
//!
//! # Boundary
//! The fitting cache of each crate, with its defaults but for the hasher, and room enough that
//! nothing is evicted. A hit returns the crate's result: a clone of the value, a handle, or a
//! reference under a lock or guard. A page is copied out of that.
//!
//! # Why
//! Where the crate clones, pages are behind an `Arc`; elsewhere in a box, which saves it the count.
//! dashmap and papaya never evict and keep no order of use. They are no caches, but an upper bound
//! for caches that are built on them. [`Floor`] is the bound for any cache that counts references.

use dashmap::DashMap;
use foyer_memory::{CacheBuilder, CacheProperties, S3FifoConfig};
use lru::LruCache;
use quick_cache::UnitWeighter;
use scc::HashCache;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
// The cache behind it is only ever held for a call, and no class order applies here.
#[allow(clippy::disallowed_types)]
use std::sync::Mutex;

/// One for all that let it be chosen: a folded multiplication.
type Folded = foldhash::fast::FixedState;

/// Bytes of a page.
pub(super) type Page = [u8; 4096];

/// Shards of the caches and maps that let it be chosen.
const SHARDS: usize = 64;

/// A cached value.
pub(super) trait Value: Send + Sync + 'static {
    /// Makes the value of the entry `key`.
    fn new(key: u64) -> Self;

    /// The key that it was made of; a page is copied into `buffer` for that.
    fn read(&self, buffer: &mut Page) -> u64;
}

impl Value for u64 {
    fn new(key: u64) -> Self {
        key
    }

    #[inline]
    fn read(&self, _: &mut Page) -> u64 {
        *self
    }
}

fn page(key: u64) -> Page {
    let mut page = [key as u8; 4096];
    page[..8].copy_from_slice(&key.to_le_bytes());
    page
}

#[inline]
fn copy(page: &Page, buffer: &mut Page) -> u64 {
    *buffer = *page;
    // The compiler must copy all of it.
    let [a, b, c, d, e, f, g, h, ..] = *black_box(buffer);
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

impl Value for Arc<Page> {
    fn new(key: u64) -> Self {
        Self::new(page(key))
    }

    #[inline]
    fn read(&self, buffer: &mut Page) -> u64 {
        copy(self, buffer)
    }
}

impl Value for Box<Page> {
    fn new(key: u64) -> Self {
        Self::new(page(key))
    }

    #[inline]
    fn read(&self, buffer: &mut Page) -> u64 {
        copy(self, buffer)
    }
}

/// A cache of the entries from 0 to some number.
pub(super) trait Cache: Send + Sync + Sized + 'static {
    /// With all of `entries` in it.
    fn filled(entries: u64) -> Self;

    /// Reads the entry `key`.
    fn read(&self, key: u64, buffer: &mut Page) -> Option<u64>;
}

/// Room for twice as much: shards fill unevenly.
fn room(entries: u64) -> usize {
    entries as usize * 2 + 64 * SHARDS
}

/// `quick_cache::sync::Cache`.
pub(super) struct Quick<V>(quick_cache::sync::Cache<u64, V, UnitWeighter, Folded>);

impl<V: Value + Clone> Cache for Quick<V> {
    fn filled(entries: u64) -> Self {
        let room = room(entries);
        let cache = quick_cache::sync::Cache::with(
            entries as usize,
            room as u64,
            UnitWeighter,
            Folded::default(),
            quick_cache::sync::DefaultLifecycle::default(),
        );
        (0..entries).for_each(|key| cache.insert(key, V::new(key)));
        Self(cache)
    }

    #[inline]
    fn read(&self, key: u64, buffer: &mut Page) -> Option<u64> {
        self.0.get(&key).map(|value| value.read(buffer))
    }
}

/// `moka::sync::Cache`.
pub(super) struct Moka<V>(moka::sync::Cache<u64, V, Folded>);

impl<V: Value + Clone> Cache for Moka<V> {
    fn filled(entries: u64) -> Self {
        let builder = moka::sync::Cache::builder().max_capacity(room(entries) as u64);
        let cache = builder.initial_capacity(entries as usize).build_with_hasher(Folded::default());
        for key in 0..entries {
            cache.insert(key, V::new(key));
        }
        cache.run_pending_tasks();
        Self(cache)
    }

    #[inline]
    fn read(&self, key: u64, buffer: &mut Page) -> Option<u64> {
        self.0.get(&key).map(|value| value.read(buffer))
    }
}

/// `foyer_memory::Cache`, evicting by S3-FIFO.
pub(super) struct Foyer<V: Value>(foyer_memory::Cache<u64, V, Folded, CacheProperties>);

impl<V: Value> Cache for Foyer<V> {
    fn filled(entries: u64) -> Self {
        let builder = CacheBuilder::new(room(entries)).with_shards(SHARDS);
        let builder = builder.with_eviction_config(S3FifoConfig::default());
        let cache = builder.with_hash_builder(Folded::default()).build();
        for key in 0..entries {
            cache.insert(key, V::new(key));
        }
        Self(cache)
    }

    #[inline]
    fn read(&self, key: u64, buffer: &mut Page) -> Option<u64> {
        self.0.get(&key).map(|entry| entry.value().read(buffer))
    }
}

/// `scc::HashCache`: sets of 32, each with its order of use; read under the set's lock.
pub(super) struct Sets<V>(HashCache<u64, V, Folded>);

impl<V: Value> Cache for Sets<V> {
    fn filled(entries: u64) -> Self {
        // Eight entries on average in a set: with sixteen, some sets would be full.
        let room = entries as usize * 4;
        let cache = HashCache::with_capacity_and_hasher(room, room, Folded::default());
        for key in 0..entries {
            // Every key is new.
            let _ = cache.put_sync(key, V::new(key));
        }
        Self(cache)
    }

    #[inline]
    fn read(&self, key: u64, buffer: &mut Page) -> Option<u64> {
        self.0.read_sync(&key, |_, value| value.read(buffer))
    }
}

/// `tinyufo::TinyUfo`. It has a hasher of its own.
pub(super) struct Ufo<V: Clone>(tinyufo::TinyUfo<u64, V>);

impl<V: Value + Clone> Cache for Ufo<V> {
    fn filled(entries: u64) -> Self {
        let cache = tinyufo::TinyUfo::new(room(entries), room(entries));
        for key in 0..entries {
            cache.put(key, V::new(key), 1);
        }
        Self(cache)
    }

    #[inline]
    fn read(&self, key: u64, buffer: &mut Page) -> Option<u64> {
        self.0.get(&key).map(|value| value.read(buffer))
    }
}

/// `lru::LruCache` behind a lock, or as many of them as there are `PARTS`, a power of two.
#[allow(clippy::disallowed_types)]
pub(super) struct Lru<V, const PARTS: usize>(Vec<Padded<Mutex<LruCache<u64, V, Folded>>>>);

/// On lines of its own.
#[repr(align(128))]
struct Padded<T>(T);

impl<V, const PARTS: usize> Lru<V, PARTS> {
    /// The part of `key`: the upper bits of a product, as its map uses others.
    #[inline]
    fn part(key: u64) -> usize {
        if PARTS == 1 {
            0
        } else {
            (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % PARTS
        }
    }
}

#[allow(clippy::disallowed_types)]
impl<V: Value + Clone, const PARTS: usize> Cache for Lru<V, PARTS> {
    fn filled(entries: u64) -> Self {
        let room = if PARTS == 1 { entries as usize } else { room(entries) / PARTS };
        let room = NonZeroUsize::new(room).unwrap_or(NonZeroUsize::MIN);
        let part = |_| Padded(Mutex::new(LruCache::with_hasher(room, Folded::default())));
        let mut parts: Vec<_> = (0..PARTS).map(part).collect();
        for key in 0..entries {
            if let Ok(part) = parts[Self::part(key)].0.get_mut() {
                part.put(key, V::new(key));
            }
        }
        Self(parts)
    }

    #[inline]
    fn read(&self, key: u64, buffer: &mut Page) -> Option<u64> {
        // Copied out after the lock is released.
        let value = self.0[Self::part(key)].0.lock().ok()?.get(&key).cloned();
        value.map(|value| value.read(buffer))
    }
}

/// `dashmap::DashMap`, read under a shard's lock.
pub(super) struct Dash<V>(DashMap<u64, V, Folded>);

impl<V: Value> Cache for Dash<V> {
    fn filled(entries: u64) -> Self {
        let map = DashMap::with_capacity_and_hasher_and_shard_amount(
            entries as usize,
            Folded::default(),
            SHARDS,
        );
        for key in 0..entries {
            map.insert(key, V::new(key));
        }
        Self(map)
    }

    #[inline]
    fn read(&self, key: u64, buffer: &mut Page) -> Option<u64> {
        self.0.get(&key).map(|value| value.read(buffer))
    }
}

/// `papaya::HashMap`, read under a guard.
pub(super) struct Papaya<V>(papaya::HashMap<u64, V, Folded>);

impl<V: Value> Cache for Papaya<V> {
    fn filled(entries: u64) -> Self {
        let map = papaya::HashMap::with_capacity_and_hasher(entries as usize, Folded::default());
        let pinned = map.pin();
        for key in 0..entries {
            pinned.insert(key, V::new(key));
        }
        drop(pinned);
        Self(map)
    }

    #[inline]
    fn read(&self, key: u64, buffer: &mut Page) -> Option<u64> {
        self.0.pin().get(&key).map(|value| value.read(buffer))
    }
}

/// An array, in which a hit takes a reference and releases it.
pub(super) struct Floor<V>(Vec<Counted<V>>);

struct Counted<V> {
    references: AtomicU32,
    value: V,
}

impl<V: Value> Cache for Floor<V> {
    fn filled(entries: u64) -> Self {
        let entry = |key| Counted { references: AtomicU32::new(1), value: V::new(key) };
        Self((0..entries).map(entry).collect())
    }

    #[inline]
    fn read(&self, key: u64, buffer: &mut Page) -> Option<u64> {
        let entry = self.0.get(key as usize)?;
        // ORDERING: Acquire, partner the Release below, as a cache that reuses its entries needs it.
        if entry.references.fetch_add(1, Ordering::Acquire) == 0 {
            return None;
        }
        let read = entry.value.read(buffer);
        // ORDERING: Release, partner the Acquire above: the reading ends before the entry is free.
        entry.references.fetch_sub(1, Ordering::Release);
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<C: Cache>(entries: u64) {
        let cache = C::filled(entries);
        let mut buffer = [0; 4096];
        for key in 0..entries {
            assert_eq!(cache.read(key, &mut buffer), Some(key));
        }
        assert_eq!(cache.read(entries, &mut buffer), None, "what was not put in is not there");
    }

    #[test]
    fn every_cache_holds_all_words() {
        for entries in [1, 3000] {
            check::<Quick<u64>>(entries);
            check::<Moka<u64>>(entries);
            check::<Foyer<u64>>(entries);
            check::<Sets<u64>>(entries);
            check::<Ufo<u64>>(entries);
            check::<Lru<u64, 1>>(entries);
            check::<Lru<u64, 64>>(entries);
            check::<Dash<u64>>(entries);
            check::<Papaya<u64>>(entries);
            check::<Floor<u64>>(entries);
        }
    }

    #[test]
    fn a_page_is_copied_whole() {
        let mut buffer = [0; 4096];
        for key in [0, 7, 1 << 20] {
            assert_eq!(<Arc<Page> as Value>::new(key).read(&mut buffer), key);
            assert_eq!(buffer, page(key));
            assert_eq!(<Box<Page> as Value>::new(key + 1).read(&mut buffer), key + 1);
            assert_eq!(buffer, page(key + 1));
        }
    }

    #[test]
    fn references_are_given_back() {
        let floor = Floor::<u64>::filled(2);
        for _ in 0..3 {
            floor.read(1, &mut [0; 4096]);
        }
        assert!(floor.0.iter().all(|entry| entry.references.load(Ordering::SeqCst) == 1));
    }
}
