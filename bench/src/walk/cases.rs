//! Names of cases: all, the selected ones, and the defaults.
//!
//! # Boundary
//! Words and numbers; measures nothing.
//!
//! # Why
//! Trees form a grid of four depths and four sizes, of which a run takes two lines through the
//! middle: all depths at 100,000 names, all sizes at depth 6. The rest of the grid is measured only
//! when selected by name, since each tree has to be built for every system.

use uvfs_bench_workload::paths::Pattern;

/// A tree of the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Components of a path.
    pub(super) depth: usize,
    /// Names in the tree.
    pub(super) names: u64,
}

impl Shape {
    /// `d6-n100000`.
    pub(super) fn name(self) -> String {
        format!("d{}-n{}", self.depth, self.names)
    }

    /// `d6-n100000-hot`.
    pub(super) fn case(self, pattern: Pattern) -> String {
        format!("{}-{}", self.name(), pattern.name())
    }
}

/// The depths of the grid.
pub(super) const DEPTHS: [usize; 4] = [1, 3, 6, 12];
/// The depth at which the cost is followed over all sizes.
pub(super) const CURVE_DEPTH: usize = 6;

/// How large the inputs of a run are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Sizes of the grid.
    pub(super) names: [u64; 4],
    /// The largest tree that is measured without being asked for.
    pub(super) names_max: u64,
    /// The size at which all depths are measured.
    pub(super) names_middle: u64,
    /// Entries of the directory of `negative-50000`.
    pub(super) negative: u64,
    /// Entries of the directory of `listing-700000`.
    pub(super) listing: u64,
    /// Names that the small caches of `reclaim` and `scan-then-hot` may keep.
    pub(super) limit: usize,
    /// Names of `bytes-per-name`.
    pub(super) bytes: u64,
    /// Changes of a thread in a round of an `fx-MW` case.
    pub(super) changes: usize,
}

pub(super) const FULL: Sizes = Sizes {
    names: [10_000, 100_000, 1_000_000, 10_000_000],
    names_max: 10_000_000,
    names_middle: 100_000,
    negative: 50_000,
    listing: 700_000,
    limit: 20_000,
    bytes: 1_000_000,
    changes: 10_000,
};
pub(super) const QUICK: Sizes =
    Sizes { names_max: 100_000, listing: 200_000, changes: 2_000, ..FULL };
pub(super) const TINY: Sizes = Sizes {
    names: [300, 600, 900, 1200],
    names_max: 600,
    names_middle: 600,
    negative: 500,
    listing: 700,
    limit: 200,
    bytes: 5_000,
    changes: 50,
};

/// The selected cases.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Empty for the default.
    patterns: Vec<String>,
    sizes: Sizes,
}

impl Wanted {
    /// The cases that match `patterns`.
    ///
    /// # Errors
    /// Names the first that matches no case, with the existing ones.
    pub(super) fn new(patterns: &[String], sizes: Sizes) -> Result<Self, String> {
        let wanted = Self { patterns: patterns.to_vec(), sizes };
        let all = wanted.all();
        match patterns.iter().find(|pattern| !all.iter().any(|case| matches(pattern, case))) {
            None => Ok(wanted),
            Some(pattern) => Err(format!("no case {pattern}; there are: {}", all.join(", "))),
        }
    }

    /// The trees to measure, small ones first, each with the patterns that are wanted of it.
    pub(super) fn trees(&self) -> Vec<(Shape, Vec<Pattern>)> {
        let patterns_of = |shape: Shape| {
            let wanted = |pattern: &Pattern| match self.patterns.is_empty() {
                true => self.by_default(shape),
                false => self.is_named(&shape.case(*pattern)),
            };
            Pattern::ALL.into_iter().filter(wanted).collect::<Vec<_>>()
        };
        let trees = self.grid().into_iter().map(|shape| (shape, patterns_of(shape)));
        trees.filter(|(_, patterns)| !patterns.is_empty()).collect()
    }

    /// Whether any of `cases`, which are measured together, is wanted.
    pub(super) fn any(&self, cases: &[String]) -> bool {
        self.patterns.is_empty() || cases.iter().any(|case| self.is_named(case))
    }

    /// The sizes that cases are named by.
    pub(super) fn sizes(&self) -> Sizes {
        self.sizes
    }

    fn is_named(&self, case: &str) -> bool {
        self.patterns.iter().any(|pattern| matches(pattern, case))
    }

    fn by_default(&self, shape: Shape) -> bool {
        let on_a_line = shape.depth == CURVE_DEPTH || shape.names == self.sizes.names_middle;
        on_a_line && shape.names <= self.sizes.names_max
    }

    fn grid(&self) -> Vec<Shape> {
        let sizes = self.sizes.names.into_iter();
        sizes.flat_map(|names| DEPTHS.map(|depth| Shape { depth, names })).collect()
    }

    fn all(&self) -> Vec<String> {
        let cases = |shape: Shape| Pattern::ALL.map(|pattern| shape.case(pattern));
        let grid = self.grid().into_iter().flat_map(cases);
        grid.chain(others(self.sizes).into_iter().flatten()).collect()
    }
}

/// Names of the cases besides the grid; those measured together stand together.
pub(super) fn others(sizes: Sizes) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> =
        super::fxmark::CASES.iter().map(|case| vec![format!("fx-{}", case.name())]).collect();
    all.extend([
        negative(sizes),
        words("negative-storm", &["", "-idle"]),
        words("rename-storm", &["", "-idle", "-p99", "-idle-p99", "-renames"]),
        listing(sizes),
        words("reclaim", &["-idle-p99", "-p99", "-p99-ratio"]),
        words("scan-then-hot", &["-before", "-first", "-settled", "-hits"]),
        words("bytes-per-name", &[""]),
    ]);
    all
}

/// The two cases of `negative-50000`.
pub(super) fn negative(sizes: Sizes) -> Vec<String> {
    words(&format!("negative-{}", sizes.negative), &["", "-hit"])
}

/// The cases of `listing-700000`.
pub(super) fn listing(sizes: Sizes) -> Vec<String> {
    let kinds = ["-idle-p50", "-idle-p99", "-p50", "-p99", "-p99-ratio"];
    words(&format!("listing-{}", sizes.listing), &kinds)
}

/// `prefix` with each of `endings`.
pub(super) fn words(prefix: &str, endings: &[&str]) -> Vec<String> {
    endings.iter().map(|ending| format!("{prefix}{ending}")).collect()
}

/// Whether `pattern` matches `case`: the whole of it, or its beginning up to a `-`. `*` matches any
/// characters and `?` any one character.
pub(super) fn matches(pattern: &str, case: &str) -> bool {
    let ends = case.match_indices('-').map(|(at, _)| at).chain([case.len()]);
    ends.into_iter().any(|end| glob(pattern.as_bytes(), &case.as_bytes()[..end]))
}

fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|skip| glob(rest, &text[skip..])),
        ([b'?', rest @ ..], [_, text @ ..]) => glob(rest, text),
        ([one, rest @ ..], [other, text @ ..]) => one == other && glob(rest, text),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trees(patterns: &[&str], sizes: Sizes) -> Vec<String> {
        let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
        let wanted = Wanted::new(&patterns, sizes).unwrap();
        let of = |(shape, patterns): (Shape, Vec<Pattern>)| {
            patterns.into_iter().map(move |pattern| shape.case(pattern))
        };
        wanted.trees().into_iter().flat_map(of).collect()
    }

    #[test]
    fn a_run_takes_all_depths_at_one_size_and_all_sizes_at_one_depth() {
        let default = trees(&[], FULL);
        assert_eq!(default.len(), 2 * 7);
        for case in ["d1-n100000-hot", "d12-n100000-uniform", "d6-n10000000-uniform"] {
            assert!(default.contains(&case.to_owned()), "{case} of {default:?}");
        }
        assert!(!default.contains(&"d1-n10000-hot".to_owned()));
        assert_eq!(trees(&[], QUICK).len(), 2 * 5, "without the largest trees");
    }

    #[test]
    fn names_choose_from_the_whole_grid() {
        assert_eq!(trees(&["d1-n10000-hot"], QUICK), ["d1-n10000-hot"]);
        assert_eq!(trees(&["d12-n10000000"], QUICK).len(), 2, "by its beginning");
        assert_eq!(trees(&["d?-n10000-hot"], FULL).len(), 3);
        assert_eq!(trees(&["*-hot"], FULL).len(), 16);
        assert!(trees(&["fx-*"], FULL).is_empty());
    }

    #[test]
    fn beginnings_end_at_a_dash() {
        assert!(matches("negative-storm", "negative-storm-idle"));
        assert!(matches("negative", "negative-storm"));
        assert!(!matches("negative-s", "negative-storm"));
        assert!(!matches("d6-n1000", "d6-n10000-hot"));
        assert!(matches("fx-M?PL", "fx-MRPL") && !matches("fx-M?PL", "fx-MRPM"));
        assert!(matches("*", "bytes-per-name"));
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        let refusal = Wanted::new(&["nonsense".to_owned()], FULL).err().unwrap();
        assert!(refusal.starts_with("no case nonsense; there are: d1-n10000-hot"), "{refusal}");
        assert!(refusal.contains("fx-MRPL") && refusal.contains("scan-then-hot-hits"), "{refusal}");
    }

    #[test]
    fn every_name_can_be_asked_for() {
        let nothing = Wanted::new(&[], FULL).unwrap();
        for case in nothing.all() {
            let wanted = Wanted::new(std::slice::from_ref(&case), FULL).unwrap();
            let groups = others(FULL).iter().filter(|cases| wanted.any(cases)).count();
            assert_eq!(groups + wanted.trees().len(), 1, "{case}");
        }
    }
}
