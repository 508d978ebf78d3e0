//! Rules for the dependencies, checked without the network: licences, sources, `*` requirements.
//!
//! # Boundary
//! Reads `deny.toml` (the list of licences) and cargo's resolved and downloaded packages. Asks no registry. Known
//! vulnerabilities come from a database that changes daily: `cargo deny check advisories`, where that is installed.
//!
//! # Why
//! cargo-deny is the tool for this and runs, too, where it is installed; but the gate's machines lack it, so nothing
//! read its file. Weakness: an expression of licences is evaluated here by forty lines of our own.

use crate::steps::{cargo, step};
use crate::{skips, tree};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// The only place that code comes from, besides this repository.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks every package that is resolved for this machine; fails on the first step with a fault.
pub(crate) fn check() -> Result<(), String> {
    let path = tree::root().join("deny.toml");
    let rules =
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let allowed = allowed(&rules)?;
    match metadata("Cargo.toml") {
        None => skips::step("licences are not checked: cargo has not downloaded every crate"),
        Some(metadata) => {
            let found = Found::new(&metadata, &allowed);
            found.faults.iter().for_each(|fault| println!("{fault}"));
            let twice = found.twice.join(", ");
            println!("supply: {} packages; in two versions: {twice}", found.packages);
            if !found.faults.is_empty() {
                return Err(format!("supply: {} faults", found.faults.len()));
            }
        }
    }
    if Command::new("cargo-deny").arg("--version").output().is_err() {
        skips::step("cargo-deny is not installed; our own check stands alone");
        return Ok(());
    }
    step(cargo().args(["deny", "--offline", "check", "licenses", "bans", "sources"]))
}

/// Cargo's data about the package at `manifest`; `None` if it would have to download.
pub(crate) fn metadata(manifest: &str) -> Option<Value> {
    let mut command = cargo();
    command.args(["metadata", "--offline", "--locked", "--format-version", "1"]);
    // Crates of other platforms are never downloaded.
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    command.args(["--filter-platform", &host, "--manifest-path", manifest]);
    let output = command.stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| serde_json::from_slice(&output.stdout).ok())?
}

/// The strings of `allow = [...]`.
fn allowed(rules: &str) -> Result<Vec<&str>, String> {
    let list = rules.split_once("\nallow = [").and_then(|(_, rest)| rest.split_once(']'));
    let (list, _) = list.ok_or("deny.toml: no `allow = [...]`")?;
    Ok(list.split('"').skip(1).step_by(2).collect())
}

#[derive(Debug, Default)]
struct Found {
    packages: usize,
    faults: Vec<String>,
    /// Names that occur in several versions: they cost build time, and are no fault.
    twice: Vec<String>,
}

impl Found {
    fn new(metadata: &Value, allowed: &[&str]) -> Self {
        let mut found = Self::default();
        let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
        for package in metadata["packages"].as_array().into_iter().flatten() {
            let text = |key: &str| package[key].as_str().unwrap_or("");
            let (name, version) = (text("name"), text("version"));
            found.packages += 1;
            *versions.entry(name).or_default() += 1;
            if !permitted(text("license"), allowed) {
                let licence = text("license");
                found.faults.push(format!("{name} {version}: licence `{licence}` is not allowed"));
            }
            let source = &package["source"];
            if !source.is_null() && source != REGISTRY {
                found.faults.push(format!("{name} {version}: comes from {source}"));
            }
            // Our own requirements; those of other crates are not our choice.
            let ours = package["dependencies"].as_array().filter(|_| source.is_null());
            for wanted in ours.into_iter().flatten() {
                if wanted["req"] == "*" && wanted["path"].is_null() {
                    found.faults.push(format!("{name}: any version of {} will do", wanted["name"]));
                }
            }
        }
        let twice = versions.into_iter().filter(|(_, count)| *count > 1);
        found.twice = twice.map(|(name, _)| name.to_owned()).collect();
        found
    }
}

/// Whether licences of `allowed` satisfy the SPDX expression; `/` is the old word for `OR`.
fn permitted(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    alternatives(&mut words, allowed) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

/// `a OR b`: `AND` binds closer.
fn alternatives(words: &mut Words<'_>, allowed: &[&str]) -> bool {
    let mut met = all_of(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        met |= all_of(words, allowed);
    }
    met
}

fn all_of(words: &mut Words<'_>, allowed: &[&str]) -> bool {
    let mut met = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        met &= one(words, allowed);
    }
    met
}

fn one(words: &mut Words<'_>, allowed: &[&str]) -> bool {
    match words.next() {
        Some("(") => {
            let met = alternatives(words, allowed);
            words.next_if_eq(&")").is_some() && met
        }
        Some(name) if words.next_if_eq(&"WITH").is_some() => {
            let exception = words.next().unwrap_or("");
            allowed.contains(&format!("{name} WITH {exception}").as_str())
        }
        Some(name) => allowed.contains(&name),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn an_expression_is_met_or_not() {
        let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"];
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
            "MIT AND GPL-3.0 OR Unicode-3.0",
        ] {
            assert!(permitted(good, &allowed), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "MIT AND (GPL-3.0 OR LGPL-3.0)",
            "MIT WITH LLVM-exception",
            "(MIT",
            "MIT)",
        ] {
            assert!(!permitted(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn faults_name_the_package() {
        let package = |name: &str, version: &str, licence: &str, source: Value| {
            serde_json::json!({ "name": name, "version": version, "license": licence,
                "source": source, "dependencies": [] })
        };
        let mut ours = package("ours", "0.1.0", "MIT", Value::Null);
        ours["dependencies"] = serde_json::json!([
            { "name": "loose", "req": "*", "path": null },
            { "name": "beside", "req": "*", "path": "/beside" },
        ]);
        let metadata = serde_json::json!({ "packages": [
            ours,
            package("good", "1.0.0", "MIT", REGISTRY.into()),
            package("good", "2.0.0", "MIT", REGISTRY.into()),
            package("closed", "1.0.0", "Secret", REGISTRY.into()),
            package("forked", "1.0.0", "MIT", "git+https://example.org/forked".into()),
        ]});
        let found = Found::new(&metadata, &["MIT"]);
        assert_eq!((found.packages, found.twice), (5, vec!["good".to_owned()]));
        assert_eq!(found.faults.len(), 3, "{:?}", found.faults);
        for (fault, words) in
            found.faults.iter().zip(["any version of \"loose\"", "closed 1.0.0", "forked 1.0.0"])
        {
            assert!(fault.contains(words), "{fault}");
        }
    }

    /// `cargo run` builds the tool with the features of all default members, and `cargo install --locked` with its own. base64
    /// had two features more for a crate of the tests: 8 crates, the tool among them, were compiled by both.
    #[test]
    fn cargo_run_and_cargo_install_build_the_same_crates() {
        let crates = |package: &[&str]| -> Option<BTreeSet<String>> {
            let mut command = cargo();
            command.args(["tree", "--offline", "--locked", "--edges", "normal,build"]);
            command.args(["--prefix", "none", "--format", "{p} {f}"]).args(package);
            let output = command.output().ok().filter(|output| output.status.success())?;
            let text = String::from_utf8(output.stdout).unwrap();
            Some(text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect())
        };
        let (Some(install), Some(run)) = (crates(&["--package", "uvfs"]), crates(&[])) else {
            return uvfs_skip::lacking("cargo tree: cargo has not downloaded every crate");
        };
        let apart: Vec<_> = install.difference(&run).collect();
        assert!(install.len() > 100 && apart.is_empty(), "with other features: {apart:?}");
    }

    #[test]
    fn the_list_of_the_repository_is_read() {
        let rules = std::fs::read_to_string(tree::root().join("deny.toml")).unwrap();
        let allowed = allowed(&rules).unwrap();
        assert!(allowed.contains(&"MIT") && allowed.contains(&"Apache-2.0 WITH LLVM-exception"));
        assert!(!allowed.iter().any(|licence| licence.contains("GPL")), "{allowed:?}");
    }
}
