//! A directory tree that is computed, not stored: levels, children, names, sizes.
//!
//! # Boundary
//! Arithmetic only. Level 0 is the root; all files are at the last level, all else are directories.
//! Inode ids count from the root (1) level by level, so an id tells the level and the place in it.
//!
//! # Why
//! Every system holds the same tree of up to ten million names, and uvfs's own memory can be
//! measured because the store below it keeps none. Names look like those of sources (5 to 12 bytes:
//! a word, a number that is unique in the directory, an ending), because name caches mostly hold
//! short names. Weakness: all directories of a level are equally large, which no real tree is.

use std::ops::Range;

/// The root's inode id.
pub const ROOT: u64 = 1;

/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = 12;

const STEMS: [&str; 16] = [
    "main", "table", "inode", "walk", "cache", "driver", "common", "util", "module", "parser",
    "config", "render", "socket", "test", "string", "buffer",
];
const ENDINGS: [&str; 6] = ["", ".c", ".h", ".rs", ".md", ".o"];

/// A place in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// 0 is the root's.
    pub level: usize,
    /// Within the level, from 0.
    pub index: u64,
}

/// The root's place.
pub const TOP: Place = Place { level: 0, index: 0 };

/// A tree of `depth` levels below its root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// How many places each level has.
    counts: Vec<u64>,
    /// The id of each level's first place.
    firsts: Vec<u64>,
}

impl Tree {
    /// A tree with exactly `names` names, its files `depth` components below the root. Each level
    /// has the same multiple of the places of the one above it.
    pub fn new(depth: usize, names: u64) -> Self {
        let depth = depth.max(1);
        let names = names.max(depth as u64);
        let growth = growth(depth, names);
        let mut counts = vec![1];
        for level in 1..depth {
            // The rest must suffice for one place on every level below.
            let used: u64 = counts.iter().skip(1).sum();
            let most = names - used - (depth - level) as u64;
            let wanted = growth.powi(i32::try_from(level).unwrap_or(i32::MAX)).round() as u64;
            counts.push(wanted.clamp(1, most));
        }
        counts.push(names - counts.iter().skip(1).sum::<u64>());
        let mut next = ROOT;
        let mut first_of = |count: &u64| {
            next += count;
            next - count
        };
        let firsts = counts.iter().map(&mut first_of).collect();
        Self { counts, firsts }
    }

    /// Components of a path to a file.
    pub fn depth(&self) -> usize {
        self.counts.len() - 1
    }

    /// All names: directories and files, without the root.
    pub fn names(&self) -> u64 {
        self.counts.iter().skip(1).sum()
    }

    /// Files.
    pub fn leaves(&self) -> u64 {
        self.counts[self.depth()]
    }

    /// Places of one level.
    pub fn count(&self, level: usize) -> u64 {
        self.counts.get(level).copied().unwrap_or(0)
    }

    /// Whether `place` is a file.
    pub fn is_leaf(&self, place: Place) -> bool {
        place.level == self.depth()
    }

    /// The inode id of `place`.
    pub fn id(&self, place: Place) -> u64 {
        self.firsts[place.level] + place.index
    }

    /// The place of inode `id`, if there is one.
    pub fn place(&self, id: u64) -> Option<Place> {
        let level = self.firsts.iter().rposition(|&first| first <= id)?;
        let index = id - self.firsts[level];
        (index < self.counts[level]).then_some(Place { level, index })
    }

    /// The indices, on the next level, of the children of `place`. Empty for a file.
    pub fn children(&self, place: Place) -> Range<u64> {
        let (own, below) = (self.counts[place.level], self.count(place.level + 1));
        (place.index * below).div_ceil(own)..((place.index + 1) * below).div_ceil(own)
    }

    /// The directory that `place` is in; the root's is itself.
    pub fn parent(&self, place: Place) -> Place {
        if place.level == 0 {
            return place;
        }
        let (above, own) = (self.counts[place.level - 1], self.counts[place.level]);
        Place { level: place.level - 1, index: place.index * above / own }
    }

    /// The name of `place`.
    pub fn name(&self, place: Place) -> Name {
        let position = place.index - self.children(self.parent(place)).start;
        let mix = mixed(self.id(place));
        let stem = STEMS[(mix % STEMS.len() as u64) as usize].as_bytes();
        let ending = match self.is_leaf(place) {
            true => ENDINGS[((mix >> 16) % ENDINGS.len() as u64) as usize].as_bytes(),
            false => b"",
        };
        let digits = position.checked_ilog10().unwrap_or(0) as usize + 1;
        let room = NAME_BYTES_MAX.saturating_sub(digits + ending.len());
        let mut name = Name { bytes: [0; NAME_BYTES_MAX], length: 0 };
        name.push(&stem[..stem.len().min(room)]);
        let mut power = 10_u64.pow(digits as u32 - 1);
        while power > 0 {
            name.push(&[b'0' + (position / power % 10) as u8]);
            power /= 10;
        }
        name.push(ending);
        name
    }

    /// The place of `name` in the directory `parent`, if it exists.
    pub fn child(&self, parent: Place, name: &[u8]) -> Option<Place> {
        let digits = name.iter().skip_while(|byte| !byte.is_ascii_digit());
        let position = digits
            .take_while(|byte| byte.is_ascii_digit())
            .take(NAME_BYTES_MAX)
            .fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
        let children = self.children(parent);
        let index = children.start + position;
        let child = Place { level: parent.level + 1, index };
        (children.contains(&index) && self.name(child).as_bytes() == name).then_some(child)
    }

    /// The size of the file with this id: it checks walks.
    pub fn size(id: u64) -> u64 {
        1 + mixed(id) % 65_521
    }

    /// Appends the path from the root to `place`.
    pub fn write_path(&self, place: Place, path: &mut Vec<u8>) {
        let mut chain = [TOP; 32];
        let mut at = place;
        for above in chain.iter_mut().take(place.level) {
            *above = at;
            at = self.parent(at);
        }
        for (nth, &one) in chain.iter().take(place.level).rev().enumerate() {
            if nth > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(self.name(one).as_bytes());
        }
    }
}

/// A name, kept in place.
#[derive(Debug, Clone, Copy)]
pub struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    length: usize,
}

impl Name {
    /// Bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn push(&mut self, more: &[u8]) {
        self.bytes[self.length..self.length + more.len()].copy_from_slice(more);
        self.length += more.len();
    }
}

/// A number that looks random and depends on `value` alone (splitmix64).
pub fn mixed(value: u64) -> u64 {
    let mut mixed = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The number g with g + g² + ... + g^depth = names.
fn growth(depth: usize, names: u64) -> f64 {
    let sum = |growth: f64| (0..depth).fold(0.0, |sum, _| (sum + 1.0) * growth);
    let (mut low, mut high) = (1.0, names as f64);
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        match sum(middle) > names as f64 {
            true => high = middle,
            false => low = middle,
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const SHAPES: [(usize, u64); 7] =
        [(1, 1), (1, 10_000), (3, 2_000), (6, 7), (6, 5_000), (12, 3_000), (12, 12)];

    #[test]
    fn a_tree_is_the_same_each_time_and_has_the_size_asked_for() {
        for (depth, names) in SHAPES {
            let tree = Tree::new(depth, names);
            assert_eq!(tree, Tree::new(depth, names));
            assert_eq!((tree.depth(), tree.names()), (depth, names));
            assert!((1..=depth).all(|level| tree.count(level) > 0), "{tree:?}");
        }
        let tree = Tree::new(6, 100_000);
        assert_eq!((tree.count(1), tree.leaves()), (7, 84_918), "the published figures are of it");
        let mut path = Vec::new();
        tree.write_path(Place { level: 6, index: 4711 }, &mut path);
        let path = String::from_utf8(path).unwrap();
        assert_eq!(path, "cache0/parser2/socket2/cache0/util0/main3.h");
    }

    #[test]
    fn every_place_is_found_by_its_id_and_by_its_name() {
        for (depth, names) in SHAPES {
            let tree = Tree::new(depth, names);
            let mut seen = 0;
            for level in 0..depth {
                for index in 0..tree.count(level) {
                    let place = Place { level, index };
                    assert_eq!(tree.place(tree.id(place)), Some(place));
                    let mut siblings = BTreeSet::new();
                    for index in tree.children(place) {
                        let child = Place { level: level + 1, index };
                        let name = tree.name(child);
                        assert_eq!(tree.parent(child), place);
                        assert_eq!(tree.child(place, name.as_bytes()), Some(child));
                        assert!((2..=NAME_BYTES_MAX).contains(&name.as_bytes().len()));
                        assert!(siblings.insert(name.as_bytes().to_vec()), "{siblings:?}");
                        seen += 1;
                    }
                }
            }
            assert_eq!(seen, names);
            assert_eq!(tree.place(names + 2), None);
            assert_eq!(tree.place(0), None);
        }
    }

    #[test]
    fn names_that_are_not_there_are_not_found() {
        let tree = Tree::new(1, 100);
        for name in [&b""[..], b"main", b"main100", b"nothing3", b"99999999999999999999", b"3main"]
        {
            assert_eq!(tree.child(TOP, name), None);
        }
        let leaf = Place { level: 1, index: 5 };
        assert_eq!(tree.child(leaf, b"main0"), None);
    }
}
