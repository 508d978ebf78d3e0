//! The cases of `hit`: their names, their sizes, and the selected ones.
//!
//! # Boundary
//! Names and numbers; nothing is measured here.
//!
//! # Why
//! Each case is named by its true size, so that no line of a quick run is mistaken for one of a full
//! run. Weakness: the number of operations of a round is not in the name; it is the same for all systems.

use uvfs_bench_workload::traces::Pattern;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

/// How large everything is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Size of the file that is resident.
    pub(super) file_bytes: u64,
    /// Pages of that file that are read where it is hot.
    pub(super) hot_pages: u64,
    /// Reads of a page by one thread in a round.
    pub(super) reads: u64,
    /// Pages that are looked up.
    pub(super) entries: u64,
    /// Lookups, and short reads, by one thread in a round.
    pub(super) lookups: u64,
    /// Budget of the cache that is scanned through.
    pub(super) budget_bytes: u64,
    /// Size of the file that is written.
    pub(super) written_bytes: u64,
}

pub(super) const FULL: Sizes = Sizes {
    file_bytes: 1 << 30,
    hot_pages: 256,
    reads: 1 << 18,
    entries: 1 << 20,
    lookups: 1 << 22,
    budget_bytes: 64 << 20,
    written_bytes: 1 << 30,
};
pub(super) const QUICK: Sizes = Sizes {
    file_bytes: 256 << 20,
    reads: 1 << 16,
    entries: 1 << 18,
    lookups: 1 << 20,
    budget_bytes: 16 << 20,
    written_bytes: 128 << 20,
    ..FULL
};
/// The figures mean nothing.
pub(super) const TINY: Sizes = Sizes {
    file_bytes: 2 << 20,
    hot_pages: 16,
    reads: 256,
    entries: 1 << 10,
    lookups: 1 << 10,
    budget_bytes: 8 << 20,
    written_bytes: 8 << 20,
};

/// The kind of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    /// Whole pages of a few.
    ReadHot,
    /// Whole pages of all.
    Read(Pattern),
    /// 64 bytes somewhere in a page.
    ReadShort,
    /// One MiB after the other.
    ReadLong,
    /// From a key to its page.
    Lookup(Pattern),
    /// The hits on a hot set around a scan.
    Scan,
    /// Pages written in random order, and brought to the disk.
    WriteBack,
}

impl Case {
    pub(super) const ALL: [Self; 9] = [
        Self::ReadHot,
        Self::Read(Pattern::Uniform),
        Self::Read(Pattern::Zipf),
        Self::ReadShort,
        Self::ReadLong,
        Self::Lookup(Pattern::Uniform),
        Self::Lookup(Pattern::Zipf),
        Self::Scan,
        Self::WriteBack,
    ];

    /// Name in the report. The scan has an ending for each of its phases.
    pub(super) fn name(self, sizes: &Sizes) -> String {
        let file = bytes(sizes.file_bytes);
        match self {
            Self::ReadHot => format!("read4k-hot-{}", bytes(sizes.hot_pages * PAGE)),
            Self::Read(Pattern::Uniform) => format!("read4k-uniform-{file}"),
            Self::Read(Pattern::Zipf) => format!("read4k-zipf-{file}"),
            Self::ReadShort => format!("read64-zipf-{file}"),
            Self::ReadLong => format!("read1m-sequential-{file}"),
            Self::Lookup(Pattern::Uniform) => format!("lookup-uniform-{}", sizes.entries),
            Self::Lookup(Pattern::Zipf) => format!("lookup-zipf-{}", sizes.entries),
            Self::Scan => format!("scan-10x-{}", bytes(sizes.budget_bytes)),
            Self::WriteBack => format!("write-back-random-{}", bytes(sizes.written_bytes)),
        }
    }
}

/// `1g`, `64m`, `64k`.
fn bytes(bytes: u64) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 30) => format!("{}g", bytes >> 30),
        bytes if bytes.is_multiple_of(1 << 20) => format!("{}m", bytes >> 20),
        bytes => format!("{}k", bytes >> 10),
    }
}

/// The cases that `patterns` mean; all if there are none.
///
/// # Errors
/// A pattern that means no case, with those that there are.
pub(super) fn wanted(patterns: &[String], sizes: &Sizes) -> Result<Vec<Case>, String> {
    let means = |pattern: &String, case: &Case| matches(pattern, &case.name(sizes));
    if let Some(none) = patterns.iter().find(|one| !Case::ALL.iter().any(|case| means(one, case))) {
        let all: Vec<String> = Case::ALL.iter().map(|case| case.name(sizes)).collect();
        return Err(format!("no case {none}; there are: {}", all.join(", ")));
    }
    let is_wanted =
        |case: &Case| patterns.is_empty() || patterns.iter().any(|one| means(one, case));
    Ok(Case::ALL.into_iter().filter(is_wanted).collect())
}

/// Whether `pattern` matches `case`: the whole of it, or its beginning up to a `-`. `*` matches any
/// characters and `?` any one character.
fn matches(pattern: &str, case: &str) -> bool {
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

    fn named(patterns: &[&str]) -> Vec<String> {
        let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
        wanted(&patterns, &QUICK).unwrap().into_iter().map(|case| case.name(&QUICK)).collect()
    }

    #[test]
    fn cases_are_chosen_by_patterns_and_beginnings() {
        assert_eq!(named(&[]).len(), Case::ALL.len());
        let hot = ["read4k-hot-1m", "read4k-uniform-256m", "read4k-zipf-256m"];
        assert_eq!(named(&["read4k"]), hot);
        assert_eq!(named(&["*-zipf"]).len(), 3);
        assert_eq!(
            named(&["lookup-zipf-262144", "scan-10x"]),
            ["lookup-zipf-262144", "scan-10x-16m"]
        );
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        let refusal = wanted(&["read".to_owned()], &FULL).unwrap_err();
        assert!(refusal.starts_with("no case read; there are: read4k-hot-1m, "), "{refusal}");
        assert!(refusal.ends_with("write-back-random-1g"), "{refusal}");
    }

    #[test]
    fn sizes_of_runs_have_different_names() {
        let of = |sizes: &Sizes| Case::ALL[1..].iter().map(|case| case.name(sizes)).collect();
        let [full, quick, tiny]: [Vec<String>; 3] = [&FULL, &QUICK, &TINY].map(of);
        assert!(full.iter().all(|name| !quick.contains(name) && !tiny.contains(name)));
    }
}
