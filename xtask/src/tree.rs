//! The repository's files as text, from git or made up by a test.
//!
//! # Boundary
//! Lists and reads; judges nothing. A file that is not UTF-8 is kept with its bad bytes replaced.
//!
//! # Why
//! `git ls-files` rather than a directory walk: it leaves out build outputs and ignored files, and
//! has files not yet added, so that a check before the commit has the gate's result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Path below the root, with `/`, to content.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// The working tree that holds this package.
    pub(crate) fn of_repository() -> Result<Self, String> {
        let root = root();
        let listing = Command::new("git")
            // A checkout that another user owns (in a container) is ours to read, too.
            .args([
                "-c",
                "safe.directory=*",
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(&root)
            .output()
            .map_err(|error| format!("git ls-files: {error}"))?;
        if !listing.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&listing.stderr)));
        }
        let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
        let mut files = BTreeMap::new();
        for path in listing.split('\0').filter(|path| !path.is_empty()) {
            // A file deleted but not yet staged is still listed; it is simply not there.
            if let Ok(bytes) = std::fs::read(root.join(path)) {
                files.insert(path.to_owned(), String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        Ok(Self { files })
    }

    /// The working tree; `None`, and a skipped test, on a machine without git or in a folder that is no checkout.
    #[cfg(test)]
    pub(crate) fn for_test() -> Option<Self> {
        let tree = Self::of_repository();
        if let Err(why) = &tree {
            uvfs_skip::lacking(why.trim());
        }
        tree.ok()
    }

    /// A tree of the given files.
    #[cfg(test)]
    pub(crate) fn made_up(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Self { files: files.collect() }
    }

    /// All files, in the order of their paths.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether `path` is a file, or a directory above one.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let below = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self
                .files
                .range(below.clone()..)
                .next()
                .is_some_and(|(at, _)| at.starts_with(&below))
    }
}

/// The repository's root: the parent of this package.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_exists_when_a_file_lies_below_it() {
        let tree = Tree::made_up(&[("docs/a/b.md", ""), ("docs/ab.md", "")]);
        assert!(tree.exists("docs/a") && tree.exists("docs/a/") && tree.exists("docs/a/b.md"));
        assert!(!tree.exists("docs/b") && !tree.exists("docs/a/b"));
    }

    #[test]
    fn the_repository_lists_this_file() {
        let Some(tree) = Tree::for_test() else { return };
        assert!(tree.text("xtask/src/tree.rs").is_some_and(|text| text.contains("this_file")));
    }
}
