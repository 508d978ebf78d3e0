//! The XArray's process: its place, and its variants.
//!
//! # Boundary
//! Finds and starts `xarray-bench`, which `bench-compare/xarray` describes.
//!
//! # Why
//! The process lives through all rounds, asleep, with the memory of its last one: the rivals in this
//! process keep theirs, too.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use uvfs_bench_workload::child::Child;

/// The variants of the xarray: its lock is a spinlock, or a mutex.
pub(super) const NAMES: [&str; 2] = ["xarray", "xarray-mutex"];

const GREETING: &str = "xarray-bench 1 xarray xarray-mutex";

/// Where the program is.
pub(super) fn program() -> PathBuf {
    place(|name| env::var_os(name).filter(|value| !value.is_empty()))
}

fn place(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    if let Some(path) = variable("XARRAY_BENCH") {
        return path.into();
    }
    let home = || PathBuf::from(variable("HOME").unwrap_or_default()).join(".cache");
    let cache = variable("XDG_CACHE_HOME").map_or_else(home, PathBuf::from);
    cache.join("uvfs-bench/xarray/xarray-bench")
}

/// Starts `program`.
///
/// # Errors
/// Names the missing program, and how to build it.
pub(super) fn start(program: &Path) -> Result<Child, String> {
    Child::start(&mut Command::new(program), GREETING)
        .map(|(child, _)| child)
        .map_err(|why| format!("{why}; build it: bench-compare/xarray/build.sh"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_and_missing_programs_are_said_with_how_to_build_it() {
        for (program, why) in [("/bin/echo", "another version"), ("/nowhere/xarray", "/nowhere")] {
            let refusal = start(Path::new(program)).unwrap_err();
            assert!(refusal.contains(why) && refusal.contains("build.sh"), "{refusal}");
        }
    }

    #[test]
    fn the_program_is_where_the_environment_says() {
        let among = |set: &'static [(&str, &str)]| {
            let value = move |name: &str| set.iter().find(|one| one.0 == name).map(|one| one.1);
            place(move |name| value(name).map(OsString::from))
        };
        let tail = "uvfs-bench/xarray/xarray-bench";
        assert_eq!(among(&[("HOME", "/h")]), Path::new("/h/.cache").join(tail));
        let cache = &[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")];
        assert_eq!(among(cache), Path::new("/c").join(tail));
        assert_eq!(among(&[("HOME", "/h"), ("XARRAY_BENCH", "/x")]), Path::new("/x"));
    }
}
