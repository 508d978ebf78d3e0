//! The arrows between crates, read from their manifests.
//!
//! # Boundary
//! Knows which crate may name which other. Reads `Cargo.toml` line by line: section headers and
//! keys, nothing else of TOML.
//!
//! # Why
//! The layout is the architecture only while the arrows point one way. A crate without a row here is
//! a fault too, so that a new room states its arrows on the day it is built.

use super::Fault;
use crate::tree::Tree;

/// A crate and its allowed dependencies; `tests` are those that only its tests may use.
struct Arrows {
    folder: &'static str,
    may_use: &'static [&'static str],
    tests: &'static [&'static str],
}

/// The crate by which a test reports that it did not run: every crate's tests may use it.
const SKIP: &str = "uvfs-skip";

const ARROWS: &[Arrows] = &[
    Arrows { folder: "concurrent", may_use: &[], tests: &[] },
    Arrows { folder: "containers", may_use: &["uvfs-concurrent"], tests: &[] },
    Arrows { folder: "residency", may_use: &[], tests: &[] },
    // The format alone: tools use it without the layer.
    Arrows { folder: "ext", may_use: &[], tests: &[] },
    Arrows {
        folder: "ext-write",
        may_use: &["uvfs-concurrent", "uvfs-containers", "uvfs-ext"],
        tests: &[],
    },
    Arrows {
        folder: "vfs",
        may_use: &["uvfs-concurrent", "uvfs-containers"],
        tests: &["uvfs-backends"],
    },
    Arrows {
        folder: "backends",
        may_use: &["uvfs-concurrent", "uvfs-containers", "uvfs-vfs", "uvfs-ext", "uvfs-ext-write"],
        tests: &[],
    },
    // Apart from the other stores: it brings a client of HTTP.
    Arrows { folder: "object", may_use: &["uvfs-concurrent", "uvfs-vfs"], tests: &[] },
    Arrows {
        folder: "control",
        may_use: &["uvfs-concurrent", "uvfs-vfs"],
        tests: &["uvfs-backends"],
    },
    // The codec alone: other servers use it without the layer.
    Arrows { folder: "fuse-protocol", may_use: &[], tests: &[] },
    Arrows { folder: "fuse-device", may_use: &["uvfs-concurrent"], tests: &[] },
    Arrows {
        folder: "fuse",
        may_use: &[
            "uvfs-concurrent",
            "uvfs-vfs",
            "uvfs-control",
            "uvfs-fuse-protocol",
            "uvfs-fuse-device",
        ],
        tests: &["uvfs-backends"],
    },
    Arrows {
        folder: "cli",
        may_use: &[
            "uvfs-concurrent",
            "uvfs-vfs",
            "uvfs-backends",
            "uvfs-ext",
            "uvfs-ext-write",
            "uvfs-object",
            "uvfs-control",
            "uvfs-cleaning",
            "uvfs-image-tools",
            "uvfs-metrics",
            "uvfs-live",
            "uvfs-client",
            "uvfs-fuse",
            "uvfs-terminal",
        ],
        tests: &["uvfs-browser", "uvfs-residency"],
    },
    Arrows {
        folder: "client",
        may_use: &["uvfs-vfs", "uvfs-control", "uvfs-terminal"],
        tests: &[],
    },
    Arrows {
        folder: "cleaning",
        may_use: &[
            "uvfs-concurrent",
            "uvfs-vfs",
            "uvfs-control",
            "uvfs-client",
            "uvfs-residency",
            "uvfs-terminal",
        ],
        tests: &[],
    },
    Arrows {
        folder: "image-tools",
        may_use: &["uvfs-ext", "uvfs-ext-write", "uvfs-control", "uvfs-client", "uvfs-terminal"],
        tests: &[],
    },
    Arrows { folder: "http", may_use: &[], tests: &[] },
    Arrows {
        folder: "metrics",
        may_use: &["uvfs-vfs", "uvfs-control", "uvfs-client", "uvfs-http", "uvfs-terminal"],
        tests: &[],
    },
    Arrows {
        folder: "live",
        may_use: &[
            "uvfs-concurrent",
            "uvfs-vfs",
            "uvfs-control",
            "uvfs-client",
            "uvfs-http",
            "uvfs-terminal",
        ],
        tests: &[],
    },
    Arrows { folder: "terminal", may_use: &[], tests: &[] },
    // Not `cli`: a user that only mounts neither builds nor carries the analyser.
    Arrows {
        folder: "contention-cli",
        may_use: &["uvfs-coherence", "uvfs-contention", "uvfs-terminal"],
        tests: &["uvfs-tests"],
    },
    Arrows { folder: "coherence", may_use: &[], tests: &[] },
    Arrows { folder: "contention", may_use: &["uvfs-coherence"], tests: &[] },
    Arrows { folder: "contention-runtime", may_use: &["uvfs-coherence"], tests: &[] },
];

pub(super) fn faults(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in tree.files() {
        let Some(folder) =
            path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        match ARROWS.iter().find(|arrows| arrows.folder == folder) {
            Some(arrows) => check(arrows, path, text, &mut faults),
            None => faults.push(Fault::new(path, 0, "this crate has no row of arrows in xtask")),
        }
    }
    faults
}

fn check(arrows: &Arrows, path: &str, text: &str, faults: &mut Vec<Fault>) {
    for dependency in dependencies(text).filter(|dependency| watched(dependency.name)) {
        let name = dependency.name;
        let of_tests = || name == SKIP || arrows.tests.contains(&name);
        let allowed = arrows.may_use.contains(&name) || dependency.dev && of_tests();
        if !allowed {
            let message = format!("`{}` may not depend on `{name}`", arrows.folder);
            faults.push(Fault::new(path, dependency.line, message));
        }
    }
}

/// Our own crates.
fn watched(name: &str) -> bool {
    name == "uvfs" || name.starts_with("uvfs-")
}

struct Dependency<'a> {
    name: &'a str,
    line: usize,
    dev: bool,
}

fn dependencies(manifest: &str) -> impl Iterator<Item = Dependency<'_>> {
    let mut section = "";
    manifest.lines().enumerate().filter_map(move |(at, line)| {
        let line = line.trim();
        let line_number = at + 1;
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
            // `[dependencies.name]` names its dependency in the header.
            let (outer, name) = section.rsplit_once('.')?;
            let dev = kind(outer)?;
            return Some(Dependency { name, line: line_number, dev });
        }
        let name = line.split(['.', '=', ' ']).next().filter(|name| !name.is_empty())?;
        Some(Dependency { name: name.trim_matches('"'), line: line_number, dev: kind(section)? })
    })
}

/// Whether a section holds dependencies, and if so whether only tests see them.
fn kind(section: &str) -> Option<bool> {
    match section.rsplit('.').next()? {
        "dependencies" | "build-dependencies" => Some(false),
        "dev-dependencies" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(folder: &str, manifest: &str) -> Vec<String> {
        let path = format!("crates/{folder}/Cargo.toml");
        faults(&Tree::made_up(&[(&path, manifest)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn arrows_point_one_way() {
        assert!(
            check("vfs", "[dependencies]\nuvfs-concurrent.workspace = true\nlog = \"1\"\n")
                .is_empty()
        );
        let wrong = check("concurrent", "[dependencies]\nuvfs-vfs = { path = \"../vfs\" }\n");
        assert_eq!(
            wrong,
            ["crates/concurrent/Cargo.toml:2: `concurrent` may not depend on `uvfs-vfs`"]
        );
    }

    #[test]
    fn tests_may_look_further() {
        let manifest = "[dev-dependencies]\nuvfs-backends.workspace = true\n";
        assert!(check("fuse", manifest).is_empty() && check("vfs", manifest).is_empty());
        assert_eq!(check("fuse", "[dependencies]\nuvfs-backends.workspace = true\n").len(), 1);
        assert_eq!(check("concurrent", manifest).len(), 1);
        assert!(check("concurrent", "[dev-dependencies]\nuvfs-skip.workspace = true\n").is_empty());
        assert_eq!(check("concurrent", "[dependencies]\nuvfs-skip.workspace = true\n").len(), 1);
    }

    #[test]
    fn every_way_to_write_a_dependency_is_read() {
        assert_eq!(check("vfs", "[dependencies.uvfs-fuse]\npath = \"../fuse\"\n").len(), 1);
        assert_eq!(
            check("vfs", "[target.'cfg(unix)'.dependencies]\nuvfs-fuse.workspace = true\n").len(),
            1
        );
        assert_eq!(check("vfs", "[build-dependencies]\n\"uvfs-fuse\" = \"1\"\n").len(), 1);
        assert!(check("vfs", "[features]\nuvfs-fuse = []\n").is_empty());
    }

    #[test]
    fn a_new_crate_states_its_arrows() {
        assert!(check("nfs", "[package]\n")[0].contains("no row of arrows"));
    }
}
