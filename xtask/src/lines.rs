//! `cargo xtask lines`: the amount of code, by package, and the part of it that `cargo build` compiles.
//!
//! # Boundary
//! Counts lines of non-test Rust that hold code: no blank line, no comment. Judges nothing.
//!
//! # Why
//! Size is a cost, and counts made in different ways cannot be compared. Weakness: a module is a test's only if its
//! `mod` says `#[cfg(test)]`; helpers that only other tests call count as code.

use crate::supply;
use crate::tidy::Code;
use crate::tree::{self, Tree};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Prints a line for each package, the largest first, and the two sums.
pub(crate) fn print() -> Result<(), String> {
    let metadata = supply::metadata("Cargo.toml").ok_or("cargo metadata does not answer")?;
    let packages = Packages::new(&metadata);
    let counts = counts(&Tree::of_repository()?, &packages);
    let mut rows: Vec<_> = counts.iter().collect();
    rows.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let (mut all, mut built) = (0, 0);
    for (folder, count) in rows {
        let is_built = packages.built.contains(folder);
        all += count;
        built += if is_built { *count } else { 0 };
        println!(
            "{count:7}  {folder}{}",
            if is_built { "" } else { "  (not in the default build)" }
        );
    }
    println!("{built:7}  in the default build\n{all:7}  in the workspace");
    Ok(())
}

/// The workspace's packages by their folders below the root.
#[derive(Debug, Default)]
struct Packages {
    all: BTreeSet<String>,
    /// The part that `cargo build` compiles: the default members and their dependencies, without tests.
    built: BTreeSet<String>,
}

impl Packages {
    fn new(metadata: &Value) -> Self {
        let root = format!("{}/", tree::root().display());
        let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
        let folder = |path: &str| Some(path.strip_prefix(&root)?.trim_end_matches('/').to_owned());
        let mut packages = Self::default();
        let mut needs: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut open = Vec::new();
        let members = list(&metadata["workspace_default_members"]);
        for package in list(&metadata["packages"]) {
            let manifest = package["manifest_path"].as_str().unwrap_or("");
            let Some(here) = manifest.strip_suffix("/Cargo.toml").and_then(folder) else {
                continue;
            };
            let dependencies = list(&package["dependencies"]);
            let needed = dependencies.iter().filter(|one| one["kind"] != "dev");
            let needed = needed.filter_map(|one| folder(one["path"].as_str()?));
            needs.insert(here.clone(), needed.collect());
            if members.contains(&package["id"]) {
                open.push(here.clone());
            }
            packages.all.insert(here);
        }
        while let Some(next) = open.pop() {
            if packages.built.insert(next.clone()) {
                open.extend(needs.remove(&next).unwrap_or_default());
            }
        }
        packages
    }

    /// The package whose library or command `path` is a part of.
    fn of<'p>(&'p self, path: &str) -> Option<&'p String> {
        let inside = |folder: &&String| {
            let rest = path.strip_prefix(folder.as_str());
            rest.is_some_and(|rest| rest.starts_with("/src/") || rest == "/build.rs")
        };
        self.all.iter().find(inside)
    }
}

/// Lines of code by package.
fn counts(tree: &Tree, packages: &Packages) -> BTreeMap<String, usize> {
    let files = tree.files().filter(|(path, _)| path.ends_with(".rs"));
    let files = files.filter_map(|(path, text)| Some((path, Code::new(text), packages.of(path)?)));
    let files: Vec<_> = files.collect();
    let tests: BTreeSet<String> =
        files.iter().flat_map(|(path, code, _)| test_modules(path, code)).collect();
    let mut counts = BTreeMap::new();
    for (path, code, folder) in files {
        let stem = path.trim_end_matches(".rs");
        // The file itself, or a folder above it.
        let is_test = stem.match_indices('/').any(|(at, _)| tests.contains(&stem[..at]));
        let code = code.lines().filter(|(_, line, test)| !test && !line.trim().is_empty());
        let count = if is_test || tests.contains(stem) { 0 } else { code.count() };
        *counts.entry(folder.clone()).or_default() += count;
    }
    counts
}

/// The modules that `path` declares for tests alone, as paths without an ending.
fn test_modules(path: &str, code: &Code) -> Vec<String> {
    let stem = path.trim_end_matches(".rs");
    let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    let base = if matches!(name, "mod" | "lib" | "main") { folder } else { stem };
    let tests = code.lines().filter(|(_, _, test)| *test);
    let named = tests.filter_map(|(_, line, _)| {
        let rest = line.trim().strip_suffix(';')?;
        rest.rsplit_once("mod ").map(|(_, name)| format!("{base}/{name}"))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_counts_and_tests_and_comments_do_not() {
        let tree = Tree::made_up(&[
            (
                "a/src/lib.rs",
                "//! A.\n\n#[cfg(test)]\nmod probe;\nmod b;\n#[cfg(test)]\nmod tests {\n    use x;\n}\n",
            ),
            (
                "a/src/b.rs",
                "/* no\nno */\nfn b() {\n    \"\n// a line of a literal\n\";\n}\n#[cfg(test)]\nmod c;\n",
            ),
            ("a/src/b/c.rs", "fn c() {}\n"),
            ("a/src/probe/deep.rs", "fn deep() {}\n"),
            ("a/tests/all.rs", "fn all() {}\n"),
            ("b/build.rs", "fn main() {}\n"),
        ]);
        let all = ["a", "b"].map(str::to_owned).into();
        let counts = counts(&tree, &Packages { all, ..Packages::default() });
        // `mod b;`, and the function of `b.rs`: a literal, too, is blank.
        assert_eq!(counts, BTreeMap::from([("a".into(), 4), ("b".into(), 1)]));
    }

    #[test]
    fn what_tests_alone_need_is_not_built() {
        let root = tree::root();
        let at = |name: &str| root.join(name).display().to_string();
        let package = |name: &str, dependencies: Value| {
            let manifest = format!("{}/Cargo.toml", at(name));
            serde_json::json!({"id": name, "manifest_path": manifest, "dependencies": dependencies})
        };
        let needs =
            serde_json::json!([{"path": at("b"), "kind": null}, {"path": at("c"), "kind": "dev"}]);
        let packages = [package("a", needs), package("b", Value::Null), package("c", Value::Null)];
        let packages = Packages::new(
            &serde_json::json!({"packages": packages, "workspace_default_members": ["a"]}),
        );
        assert_eq!(packages.built, ["a", "b"].map(str::to_owned).into());
        assert_eq!(packages.all.len(), 3);
    }
}
