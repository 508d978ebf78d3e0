//! The paths of the walks, made before any clock runs.
//!
//! # Boundary
//! Text and expected sizes. The strings end in NUL in one array, so they are passed to the kernel
//! without a copy or a scan for the end.
//!
//! # Why
//! *Hot* is a few files again and again: everything is in the nearest cache. *Uniform* is every
//! file once, in random order: the cost of a walk when the tree does not fit. Above [`UNIFORM_MAX`]
//! files it is a random choice of so many, or the strings would take more memory than the measured
//! caches. Strings are read in order of memory, which costs all systems the same little.

use super::tree::{Place, Tree, mixed};
use std::ffi::CStr;

/// Most paths of [`Pattern::Uniform`].
pub const UNIFORM_MAX: u64 = 1 << 20;
/// Files of [`Pattern::Hot`].
pub const HOT_FILES: u64 = 8;
/// How long the sequence of hot files is.
const HOT_LENGTH: u64 = 4096;

/// Which files are walked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// A handful.
    Hot,
    /// All, in random order.
    Uniform,
}

impl Pattern {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Hot, Self::Uniform];

    /// Word in the names of cases.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Uniform => "uniform",
        }
    }
}

/// Paths and the sizes of the files that they lead to.
#[derive(Debug, Default)]
pub struct Paths {
    /// Each ends in NUL.
    text: Vec<u8>,
    /// Where each begins.
    begins: Vec<u32>,
    /// The required result of each walk.
    sizes: Vec<u64>,
}

impl Paths {
    /// The paths of `pattern` through `tree`; the same in every process.
    pub fn new(tree: &Tree, pattern: Pattern) -> Self {
        let leaves = tree.leaves();
        let mut chosen: Vec<u64> = match pattern {
            Pattern::Hot => {
                let files = HOT_FILES.min(leaves);
                let spread = |nth: u64| (nth * leaves + leaves / 2) / files;
                (0..HOT_LENGTH).map(|nth| spread(mixed(nth) % files)).collect()
            }
            Pattern::Uniform if leaves <= UNIFORM_MAX => (0..leaves).collect(),
            Pattern::Uniform => (0..UNIFORM_MAX).map(|nth| mixed(nth ^ 0x5eed) % leaves).collect(),
        };
        if pattern == Pattern::Uniform {
            shuffle(&mut chosen);
        }
        Self::of_leaves(tree, chosen)
    }

    /// The paths to the given files of `tree`.
    pub fn of_leaves(tree: &Tree, leaves: impl IntoIterator<Item = u64>) -> Self {
        let mut paths = Self::default();
        let mut path = Vec::new();
        for index in leaves {
            let place = Place { level: tree.depth(), index };
            path.clear();
            tree.write_path(place, &mut path);
            paths.push(&path, Tree::size(tree.id(place)));
        }
        paths
    }

    /// Adds a path, which holds no NUL.
    pub fn push(&mut self, path: &[u8], size: u64) {
        self.begins.push(u32::try_from(self.text.len()).unwrap_or(u32::MAX));
        self.text.extend_from_slice(path);
        self.text.push(0);
        self.sizes.push(size);
    }

    /// The paths in the order in which they are walked.
    pub fn track(&self) -> Track<'_> {
        let text = |&begin: &u32| {
            let rest = self.text.get(begin as usize..).unwrap_or_default();
            CStr::from_bytes_until_nul(rest).unwrap_or_default()
        };
        Track { paths: self.begins.iter().map(text).collect(), sizes: &self.sizes }
    }

    /// A number that differs when anything differs.
    pub fn digest(&self) -> u64 {
        let sizes = self.sizes.iter().map(|&size| size ^ 0xff);
        let numbers = self.text.iter().map(|&byte| u64::from(byte)).chain(sizes);
        numbers.fold(0, |digest, number| mixed(digest ^ number).wrapping_add(1))
    }
}

/// Paths, ready to be walked.
#[derive(Debug, Clone)]
pub struct Track<'a> {
    /// In the order of walking.
    pub paths: Vec<&'a CStr>,
    /// The size that each must show.
    pub sizes: &'a [u64],
}

/// Fisher and Yates, with numbers that are the same each time.
pub fn shuffle<T>(values: &mut [T]) {
    for at in (1..values.len()).rev() {
        values.swap(at, (mixed(at as u64 ^ 0xca4d) % (at as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn uniform_is_every_file_once_and_hot_a_handful() {
        let tree = Tree::new(3, 1000);
        let uniform = Paths::new(&tree, Pattern::Uniform);
        let track = uniform.track();
        let distinct: BTreeSet<&CStr> = track.paths.iter().copied().collect();
        assert_eq!(
            (distinct.len() as u64, track.sizes.len() as u64),
            (tree.leaves(), tree.leaves())
        );
        assert!(track.paths.iter().all(|path| path.to_bytes().split(|&b| b == b'/').count() == 3));
        let sorted: Vec<&CStr> = distinct.into_iter().collect();
        assert_ne!(track.paths, sorted, "shuffled");
        let hot = Paths::new(&tree, Pattern::Hot);
        let distinct: BTreeSet<&CStr> = hot.track().paths.into_iter().collect();
        assert_eq!(distinct.len() as u64, HOT_FILES);
    }

    #[test]
    fn paths_repeat_and_their_digest_tells_them_apart() {
        let digest = |names, pattern| Paths::new(&Tree::new(3, names), pattern).digest();
        assert_eq!(digest(500, Pattern::Uniform), digest(500, Pattern::Uniform));
        assert_ne!(digest(500, Pattern::Uniform), digest(501, Pattern::Uniform));
        assert_ne!(digest(500, Pattern::Uniform), digest(500, Pattern::Hot));
    }
}
