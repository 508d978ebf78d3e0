//! Concurrent maps used as name caches: (parent id, name) to child id and attributes.
//!
//! # Boundary
//! What one would build from each crate, done as well as it permits: keys of 32 bytes in place with
//! names cut out of the path eight bytes at a time, no allocation on a lookup, one guard or lock for a
//! whole walk where the crate has such a thing, room made before the first insert, and of the fast
//! hashers the one with which it was fastest.
//!
//! # Why
//! The rivals are flattered, knowingly: names end at 23 bytes, permissions are not checked, `.`, `..`,
//! symbolic links and mounts do not exist, nothing expires and nothing is ever evicted or renamed.

use dashmap::DashMap;
use hashbrown::HashMap;
use scc::hash_index::HashIndex;
use std::hash::{BuildHasher, Hash, Hasher};
use std::hint::black_box;
// The map behind it is only ever held for a walk, and no class order applies here.
#[allow(clippy::disallowed_types)]
use std::sync::Mutex;

/// The root's id.
const ROOT: u64 = 1;
/// Bytes of a name in a [`Key`]; the last byte holds the length.
const NAME_BYTES_MAX: usize = 23;

/// A name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    parent: u64,
    name: [u64; 3],
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.parent);
        state.write_u64(self.name[0]);
        // Most names end in the first word or the second: the rest is the length alone.
        state.write_u64(self.name[1] ^ self.name[2].rotate_left(32));
    }
}

impl Key {
    /// `name` in the directory `parent`.
    pub(crate) fn new(parent: u64, name: &[u8]) -> Self {
        let (key, rest) = Self::first(parent, name);
        assert!(rest.is_none() && name.len() <= NAME_BYTES_MAX, "no single short name");
        key
    }

    /// The first component of `path`, and what follows its slash.
    #[inline]
    fn first(parent: u64, path: &[u8]) -> (Self, Option<&[u8]>) {
        let mut name = [0; 3];
        let mut length = 0;
        for word in &mut name {
            let bytes = match path[length..].first_chunk() {
                Some(&bytes) => u64::from_le_bytes(bytes),
                None => end_of(&path[length..]),
            };
            // The first byte that is a slash, or the NUL that `end_of` puts behind the path.
            let ends = zero_bytes(bytes ^ SLASHES) | zero_bytes(bytes);
            if ends == 0 {
                *word = bytes;
                length += 8;
                continue;
            }
            let part = ends.trailing_zeros() / 8;
            *word = bytes & ((1_u64 << (part * 8)) - 1);
            length += part as usize;
            break;
        }
        name[2] |= (length as u64) << 56;
        let rest = (length < path.len()).then(|| &path[length + 1..]);
        (Self { parent, name }, rest)
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const SLASHES: u64 = ONES * b'/' as u64;

/// The high bit of every zero byte, as far as the lowest of them.
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & (ONES << 7)
}

/// The last up to seven bytes, with NUL behind them.
fn end_of(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// What `stat` tells of a file, without what all files share.
#[derive(Debug, Clone, Copy)]
// Copied as a whole at the end of a walk; only the size is looked at.
#[allow(dead_code)]
pub(crate) struct Attributes {
    pub(crate) size: u64,
    pub(crate) atime_ns: i64,
    pub(crate) mtime_ns: i64,
    pub(crate) ctime_ns: i64,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) links: u32,
}

/// What a name leads to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Value {
    pub(crate) child: u64,
    pub(crate) attributes: Attributes,
}

impl Value {
    /// The id of a directory, or the size of the last component, all its attributes copied.
    #[inline]
    fn read(&self, last: bool) -> u64 {
        if !last {
            return self.child;
        }
        let attributes = self.attributes;
        black_box(&attributes);
        attributes.size
    }
}

/// Walks `path` by components; the size at its end.
#[inline]
fn walk(path: &[u8], mut find: impl FnMut(&Key, bool) -> Option<u64>) -> Option<u64> {
    let (mut at, mut rest) = (ROOT, path);
    loop {
        let (key, after) = Key::first(at, rest);
        match after {
            Some(after) => (at, rest) = (find(&key, false)?, after),
            None => return find(&key, true),
        }
    }
}

/// A map as a name cache.
pub(crate) trait Cache: Sync {
    /// With room for `names`.
    fn with_room(names: usize) -> Self;

    /// Adds a name.
    fn insert(&mut self, key: Key, value: Value);

    /// The size of the file at `path`.
    fn walk(&self, path: &[u8]) -> Option<u64>;
}

/// `papaya::HashMap`: lock-free, one guard a walk.
pub(crate) struct Papaya<S>(papaya::HashMap<Key, Value, S>);

impl<S: BuildHasher + Default + Sync> Cache for Papaya<S> {
    fn with_room(names: usize) -> Self {
        Self(papaya::HashMap::with_capacity_and_hasher(names, S::default()))
    }

    fn insert(&mut self, key: Key, value: Value) {
        self.0.pin().insert(key, value);
    }

    fn walk(&self, path: &[u8]) -> Option<u64> {
        let map = self.0.pin();
        walk(path, |key, last| map.get(key).map(|value| value.read(last)))
    }
}

/// `dashmap::DashMap`: shards of a table, each behind a reader-writer lock.
pub(crate) struct Dash<S>(DashMap<Key, Value, S>);

impl<S: BuildHasher + Default + Clone + Sync> Cache for Dash<S> {
    fn with_room(names: usize) -> Self {
        Self(DashMap::with_capacity_and_hasher(names, S::default()))
    }

    fn insert(&mut self, key: Key, value: Value) {
        self.0.insert(key, value);
    }

    fn walk(&self, path: &[u8]) -> Option<u64> {
        walk(path, |key, last| self.0.get(key).map(|value| value.read(last)))
    }
}

/// `scc::HashIndex`: made for reading, without locks; one guard a walk.
pub(crate) struct Scc<S: BuildHasher>(HashIndex<Key, Value, S>);

impl<S: BuildHasher + Default + Sync> Cache for Scc<S> {
    fn with_room(names: usize) -> Self {
        Self(HashIndex::with_capacity_and_hasher(names, S::default()))
    }

    fn insert(&mut self, key: Key, value: Value) {
        // It is told of every name once.
        let _ = self.0.insert_sync(key, value);
    }

    fn walk(&self, path: &[u8]) -> Option<u64> {
        let guard = scc::Guard::new();
        walk(path, |key, last| self.0.peek(key, &guard).map(|value| value.read(last)))
    }
}

/// One lock around one table, as libfuse's high-level interface has it; taken once a walk.
#[allow(clippy::disallowed_types)]
pub(crate) struct Locked<S>(Mutex<HashMap<Key, Value, S>>);

#[allow(clippy::disallowed_types)]
impl<S: BuildHasher + Default + Send> Cache for Locked<S> {
    fn with_room(names: usize) -> Self {
        Self(Mutex::new(HashMap::with_capacity_and_hasher(names, S::default())))
    }

    fn insert(&mut self, key: Key, value: Value) {
        if let Ok(map) = self.0.get_mut() {
            map.insert(key, value);
        }
    }

    fn walk(&self, path: &[u8]) -> Option<u64> {
        let map = self.0.lock().ok()?;
        walk(path, |key, last| map.get(key).map(|value| value.read(last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_cut_at_their_slashes() {
        for path in ["a", "ab/c", "sevenby/x", "eightbyt/x", "ninebytes/x", "a/", "abc/defghijk/l"]
        {
            let mut slow = path.splitn(2, '/');
            let (name, rest) = (slow.next().unwrap(), slow.next());
            let (key, after) = Key::first(7, path.as_bytes());
            assert_eq!(after, rest.map(str::as_bytes), "{path}");
            assert_eq!(key, Key::new(7, name.as_bytes()), "{path}");
        }
        let long = "n".repeat(NAME_BYTES_MAX);
        let path = format!("{long}/x");
        assert_eq!(Key::first(7, path.as_bytes()), (Key::new(7, long.as_bytes()), Some(&b"x"[..])));
    }

    #[test]
    fn keys_differ_where_names_or_parents_do() {
        let names =
            ["a", "b", "aa", "a\u{1}", "main1.c", "main1.h", "twelve-bytes", "twelve-bytez"];
        for (nth, one) in names.iter().enumerate() {
            for other in &names[nth + 1..] {
                assert_ne!(Key::new(1, one.as_bytes()), Key::new(1, other.as_bytes()));
            }
            assert_ne!(Key::new(1, one.as_bytes()), Key::new(2, one.as_bytes()));
        }
    }

    fn check<C: Cache>() {
        let attributes = Attributes {
            size: 42,
            atime_ns: 0,
            mtime_ns: 0,
            ctime_ns: 0,
            mode: 0o644,
            uid: 0,
            gid: 0,
            links: 1,
        };
        let mut cache = C::with_room(2);
        cache.insert(Key::new(ROOT, b"directory"), Value { child: 2, attributes });
        cache.insert(Key::new(2, b"file"), Value { child: 3, attributes });
        assert_eq!(cache.walk(b"directory/file"), Some(42));
        for path in [&b"directory/none"[..], b"none/file", b"file", b"directory/file/x"] {
            assert_eq!(cache.walk(path), None);
        }
    }

    #[test]
    fn every_cache_finds_what_is_there_and_nothing_else() {
        check::<Papaya<foldhash::fast::RandomState>>();
        check::<Dash<foldhash::fast::RandomState>>();
        check::<Scc<foldhash::fast::RandomState>>();
        check::<Locked<rustc_hash::FxBuildHasher>>();
    }
}
