//! Concurrent maps used as name caches: (parent id, name) to child id and attributes.
//!
//! # Boundary
//! A name cache built from each crate, as well as the crate permits: names of any length, a lookup by
//! a borrowed key without allocation, slashes found eight bytes at a time, short names compared
//! without a call, one guard or lock for a whole walk where the crate has such a thing, room made
//! before the first insert, and the fast hasher that suits it best.
//!
//! # Why
//! The comparison favours the maps: permissions are not checked, `.`, `..`, symbolic links and mounts
//! do not exist, nothing expires and nothing is ever evicted or renamed. [`Inline`] also cuts names
//! at 23 bytes, which saves the walk a line of memory for each component. It is no name cache but an
//! upper bound for maps.

use dashmap::DashMap;
use hashbrown::{Equivalent, HashMap};
use scc::hash_index::HashIndex;
use std::hash::{BuildHasher, Hash, Hasher};
use std::hint::black_box;
// The map behind it is only ever held for a walk, and no class order applies here.
#[allow(clippy::disallowed_types)]
use std::sync::Mutex;

/// The root's id.
const ROOT: u64 = 1;
/// Bytes of a name in an [`InlineKey`]; the last byte holds the length.
const INLINE_BYTES_MAX: usize = 23;

/// How a map keeps a name and its directory.
pub(crate) trait Form: 'static {
    /// A key as the map keeps it.
    type Key: Hash + Eq + Clone + Send + Sync + 'static;
    /// A key as a lookup passes it.
    type Query<'a>: Hash + Equivalent<Self::Key>;

    /// `name` in the directory `parent`, to be kept.
    fn key(parent: u64, name: &[u8]) -> Self::Key;

    /// The first component of `path`, and what follows its slash.
    fn first(parent: u64, path: &[u8]) -> (Self::Query<'_>, Option<&[u8]>);
}

/// Names in boxes: as long as they like.
pub(crate) struct Boxed;

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BoxedKey {
    parent: u64,
    name: Box<[u8]>,
}

/// A name in a directory, within a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Borrowed<'a> {
    parent: u64,
    name: &'a [u8],
}

impl Hash for BoxedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Borrowed { parent: self.parent, name: &self.name }.hash(state);
    }
}

impl Hash for Borrowed<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.parent);
        // The name ends the key, so its length need not be written.
        state.write(self.name);
    }
}

impl Equivalent<BoxedKey> for Borrowed<'_> {
    #[inline]
    fn equivalent(&self, key: &BoxedKey) -> bool {
        self.parent == key.parent && are_equal(self.name, &key.name)
    }
}

impl Form for Boxed {
    type Key = BoxedKey;
    type Query<'a> = Borrowed<'a>;

    fn key(parent: u64, name: &[u8]) -> BoxedKey {
        BoxedKey { parent, name: name.into() }
    }

    #[inline]
    fn first(parent: u64, path: &[u8]) -> (Borrowed<'_>, Option<&[u8]>) {
        let length = first_length(path);
        let rest = (length < path.len()).then(|| &path[length + 1..]);
        (Borrowed { parent, name: &path[..length] }, rest)
    }
}

/// Bytes of the first component of `path`.
#[inline]
fn first_length(path: &[u8]) -> usize {
    let mut length = 0;
    while let Some(&bytes) = path[length..].first_chunk() {
        let slashes = zero_bytes(u64::from_le_bytes(bytes) ^ SLASHES);
        if slashes != 0 {
            return length + (slashes.trailing_zeros() / 8) as usize;
        }
        length += 8;
    }
    let bytes = end_of(&path[length..]);
    let ends = zero_bytes(bytes ^ SLASHES) | zero_bytes(bytes);
    length + (ends.trailing_zeros() / 8) as usize
}

/// Whether two names are the same: those of up to 16 bytes by two words that may overlap.
#[inline]
fn are_equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() || one.len() > 16 {
        return one == other;
    }
    let ends = |name: &[u8]| match (name.first_chunk(), name.last_chunk()) {
        (Some(&first), Some(&last)) => (u64::from_le_bytes(first), u64::from_le_bytes(last)),
        _ => match (name.first_chunk(), name.last_chunk()) {
            (Some(&first), Some(&last)) => {
                (u32::from_le_bytes(first).into(), u32::from_le_bytes(last).into())
            }
            _ => (end_of(name), 0),
        },
    };
    ends(one) == ends(other)
}

/// Names of up to 23 bytes, in place.
pub(crate) struct Inline;

/// A short name in a directory.
#[derive(Debug, Clone, Copy, Eq)]
pub(crate) struct InlineKey {
    parent: u64,
    name: [u64; 3],
}

impl PartialEq for InlineKey {
    /// Word by word: a key that was just made is read back slowly if it is read in larger pieces.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let [one, two, three] = self.name;
        let [first, second, third] = other.name;
        (self.parent ^ other.parent) | (one ^ first) | (two ^ second) | (three ^ third) == 0
    }
}

impl Hash for InlineKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.parent);
        state.write_u64(self.name[0]);
        // Most names end in the first word or the second: the rest is the length alone.
        state.write_u64(self.name[1] ^ self.name[2].rotate_left(32));
    }
}

impl Form for Inline {
    type Key = InlineKey;
    type Query<'a> = InlineKey;

    fn key(parent: u64, name: &[u8]) -> InlineKey {
        let (key, rest) = Self::first(parent, name);
        assert!(rest.is_none() && name.len() <= INLINE_BYTES_MAX, "no single short name");
        key
    }

    #[inline]
    fn first(parent: u64, path: &[u8]) -> (InlineKey, Option<&[u8]>) {
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
        (InlineKey { parent, name }, rest)
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

/// The fields of `stat` that differ between files.
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

/// The object that a name leads to.
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
fn walk<'p, F: Form>(
    path: &'p [u8],
    mut find: impl FnMut(&F::Query<'p>, bool) -> Option<u64>,
) -> Option<u64> {
    let (mut at, mut rest) = (ROOT, path);
    loop {
        let (query, after) = F::first(at, rest);
        match after {
            Some(after) => (at, rest) = (find(&query, false)?, after),
            None => return find(&query, true),
        }
    }
}

/// A map as a name cache.
pub(crate) trait Cache: Sync {
    /// With room for `names`.
    fn with_room(names: usize) -> Self;

    /// Adds `name` in the directory `parent`.
    fn insert(&mut self, parent: u64, name: &[u8], value: Value);

    /// The size of the file at `path`.
    fn walk(&self, path: &[u8]) -> Option<u64>;
}

/// `papaya::HashMap`: lock-free, one guard a walk.
pub(crate) struct Papaya<F: Form, S>(papaya::HashMap<F::Key, Value, S>);

impl<F: Form, S: BuildHasher + Default + Sync> Cache for Papaya<F, S> {
    fn with_room(names: usize) -> Self {
        Self(papaya::HashMap::with_capacity_and_hasher(names, S::default()))
    }

    fn insert(&mut self, parent: u64, name: &[u8], value: Value) {
        self.0.pin().insert(F::key(parent, name), value);
    }

    fn walk(&self, path: &[u8]) -> Option<u64> {
        let map = self.0.pin();
        walk::<F>(path, |query, last| map.get(query).map(|value| value.read(last)))
    }
}

/// `dashmap::DashMap`: shards of a table, each behind a reader-writer lock. Its own `get` asks for a
/// key by reference, which would have to be made first; its shards can be asked by hash.
pub(crate) struct Dash<S>(DashMap<BoxedKey, Value, S>);

impl<S: BuildHasher + Default + Clone + Sync> Cache for Dash<S> {
    fn with_room(names: usize) -> Self {
        Self(DashMap::with_capacity_and_hasher(names, S::default()))
    }

    fn insert(&mut self, parent: u64, name: &[u8], value: Value) {
        self.0.insert(Boxed::key(parent, name), value);
    }

    fn walk(&self, path: &[u8]) -> Option<u64> {
        walk::<Boxed>(path, |query, last| {
            let hash = self.0.hash_usize(query);
            let shard = self.0.shards()[self.0.determine_shard(hash)].read();
            let (_, value) = shard.get(hash as u64, |(key, _)| query.equivalent(key))?;
            Some(value.get().read(last))
        })
    }
}

/// `scc::HashIndex`: made for reading, without locks; one guard a walk.
pub(crate) struct Scc<S: BuildHasher>(HashIndex<BoxedKey, Value, S>);

impl<S: BuildHasher + Default + Sync> Cache for Scc<S> {
    fn with_room(names: usize) -> Self {
        Self(HashIndex::with_capacity_and_hasher(names, S::default()))
    }

    fn insert(&mut self, parent: u64, name: &[u8], value: Value) {
        // Every name is inserted once.
        let _ = self.0.insert_sync(Boxed::key(parent, name), value);
    }

    fn walk(&self, path: &[u8]) -> Option<u64> {
        let guard = scc::Guard::new();
        walk::<Boxed>(path, |query, last| self.0.peek(query, &guard).map(|value| value.read(last)))
    }
}

/// One lock around one table, as libfuse's high-level interface has it; taken once a walk.
#[allow(clippy::disallowed_types)]
pub(crate) struct Locked<F: Form, S>(Mutex<HashMap<F::Key, Value, S>>);

#[allow(clippy::disallowed_types)]
impl<F: Form, S: BuildHasher + Default + Send> Cache for Locked<F, S> {
    fn with_room(names: usize) -> Self {
        Self(Mutex::new(HashMap::with_capacity_and_hasher(names, S::default())))
    }

    fn insert(&mut self, parent: u64, name: &[u8], value: Value) {
        if let Ok(map) = self.0.get_mut() {
            map.insert(F::key(parent, name), value);
        }
    }

    fn walk(&self, path: &[u8]) -> Option<u64> {
        let map = self.0.lock().ok()?;
        walk::<F>(path, |query, last| map.get(query).map(|value| value.read(last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    type Fx = rustc_hash::FxBuildHasher;
    type Folded = foldhash::fast::FixedState;

    #[test]
    fn components_are_cut_at_their_slashes() {
        let long = "n".repeat(INLINE_BYTES_MAX) + "/x";
        for path in
            ["a", "ab/c", "sevenby/x", "eightbyt/x", "ninebytes/x", "a/", "abc/defghijk/l", &long]
        {
            let mut slow = path.splitn(2, '/');
            let (name, rest) = (slow.next().unwrap(), slow.next());
            let (key, after) = Inline::first(7, path.as_bytes());
            assert_eq!(after, rest.map(str::as_bytes), "{path}");
            assert_eq!(key, Inline::key(7, name.as_bytes()), "{path}");
            let (query, after) = Boxed::first(7, path.as_bytes());
            assert_eq!((query.parent, query.name), (7, name.as_bytes()), "{path}");
            assert_eq!(after, rest.map(str::as_bytes), "{path}");
        }
    }

    #[test]
    fn names_of_every_length_are_cut_and_compared() {
        for length in 0..=255 {
            let name = vec![b'n'; length];
            let path = [&name, &b"/x"[..]].concat();
            let (query, after) = Boxed::first(7, &path);
            assert_eq!((query.name, after), (&*name, Some(&b"x"[..])));
            assert_eq!(Boxed::first(7, &name).0.name, name);
            assert!(query.equivalent(&Boxed::key(7, &name)));
            assert!(!query.equivalent(&Boxed::key(8, &name)));
            assert!(!query.equivalent(&Boxed::key(7, &path)));
            for at in 0..length {
                let mut other = name.clone();
                other[at] = b'm';
                assert!(!query.equivalent(&Boxed::key(7, &other)), "{length} {at}");
            }
        }
    }

    #[test]
    fn keys_differ_where_names_or_parents_do() {
        let names =
            ["a", "b", "aa", "a\u{1}", "main1.c", "main1.h", "twelve-bytes", "twelve-bytez"];
        for (nth, one) in names.iter().enumerate() {
            for other in &names[nth + 1..] {
                assert_ne!(Inline::key(1, one.as_bytes()), Inline::key(1, other.as_bytes()));
            }
            assert_ne!(Inline::key(1, one.as_bytes()), Inline::key(2, one.as_bytes()));
        }
    }

    const ATTRIBUTES: Attributes = Attributes {
        size: 42,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
        mode: 0o644,
        uid: 0,
        gid: 0,
        links: 1,
    };

    /// A cache of one file of size 42 for each of `names`, all in a directory.
    fn filled<C: Cache>(names: &BTreeSet<Vec<u8>>) -> C {
        let mut cache = C::with_room(2);
        cache.insert(ROOT, b"directory", Value { child: 2, attributes: ATTRIBUTES });
        for (nth, name) in names.iter().enumerate() {
            cache.insert(2, name, Value { child: 3 + nth as u64, attributes: ATTRIBUTES });
        }
        cache
    }

    fn check<C: Cache>(longest: usize) {
        let names = (1..=longest).map(|length| {
            let spread = |nth: usize| b'a' + (nth * 7 + length) as u8 % 26;
            (0..length).map(spread).collect::<Vec<u8>>()
        });
        let names: BTreeSet<Vec<u8>> = names.collect();
        let cache = filled::<C>(&names);
        let below = |name: &[u8]| [&b"directory/"[..], name].concat();
        for name in &names {
            assert_eq!(cache.walk(&below(name)), Some(42));
            assert_eq!(cache.walk(name), None, "it is not in the root");
            let mut other = name.clone();
            *other.last_mut().unwrap() = b'!';
            assert_eq!(cache.walk(&below(&other)), None);
            assert_eq!(cache.walk(&[&below(name)[..], b"/x"].concat()), None);
        }
        for path in [&b"directory/none"[..], b"none/file", b"directory/", b""] {
            assert_eq!(cache.walk(path), None);
        }
    }

    #[test]
    fn every_cache_finds_what_is_there_and_nothing_else() {
        check::<Papaya<Boxed, Fx>>(255);
        check::<Dash<Fx>>(255);
        check::<Scc<Folded>>(255);
        check::<Locked<Boxed, Fx>>(255);
        check::<Papaya<Inline, Fx>>(INLINE_BYTES_MAX);
        check::<Locked<Inline, Fx>>(INLINE_BYTES_MAX);
    }

    #[test]
    #[should_panic(expected = "no single short name")]
    fn the_bound_is_no_name_cache() {
        let _ = Inline::key(ROOT, &[b'n'; INLINE_BYTES_MAX + 1]);
    }
}
