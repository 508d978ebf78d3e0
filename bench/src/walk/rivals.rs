//! Requests to the maps in `bench-compare walk`: to hold a tree, and to walk it for a round.
//!
//! # Boundary
//! Writes requests and reads answers; the lines are described in `bench-compare/src/main.rs`.
//!
//! # Why
//! A fresh process for each tree, because an allocator that has freed ten million entries differs
//! from that of a fresh cache.

use super::contestants::Course;
use crate::rivals::{Rivals, odd};
use std::path::Path;
use std::time::Duration;
use uvfs_bench_workload::paths::Pattern;

/// Starts `program`.
///
/// # Errors
/// The missing part, and how to build it.
pub(super) fn start(program: &Path) -> Result<Rivals, String> {
    Rivals::start(program, "walk", 2)
}

/// Builds `name` over the tree of `course`; returns the bytes of memory that it took.
///
/// # Errors
/// Its answer, or that its tree is another one.
pub(super) fn build(rivals: &mut Rivals, name: &str, course: &Course) -> Result<u64, String> {
    let (depth, names) = (course.tree.depth(), course.tree.names());
    built(&rivals.ask(&format!("build {name} {depth} {names}"))?, course.digest())
}

fn built(answer: &str, wanted: u64) -> Result<u64, String> {
    let words = answer.strip_prefix("built ").and_then(|rest| rest.split_once(' '));
    let (bytes, digest) = words.ok_or_else(|| odd(answer))?;
    if u64::from_str_radix(digest, 16).ok() != Some(wanted) {
        return Err("the rivals were built from an older tree: build them again".to_owned());
    }
    bytes.parse().map_err(|_| odd(answer))
}

/// Has `name` walk a round; returns nanoseconds a walk.
///
/// # Errors
/// Its answer.
pub(super) fn round(
    rivals: &mut Rivals,
    name: &str,
    pattern: Pattern,
    threads: usize,
    target: Duration,
) -> Result<f64, String> {
    let ms = target.as_millis().max(1);
    walked(&rivals.ask(&format!("round {name} {} {threads} {ms}", pattern.name()))?)
}

fn walked(answer: &str) -> Result<f64, String> {
    let ns = answer.strip_prefix("ns ").and_then(|ns| ns.parse().ok());
    ns.ok_or_else(|| odd(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        assert_eq!(built("built 7 ff", 255), Ok(7));
        assert!(built("built 7 0", 255).unwrap_err().contains("older tree"));
        assert!(built("built x ff", 255).unwrap_err().contains("odd answer"));
        assert_eq!(walked("ns 12.5"), Ok(12.5));
        assert!(walked("ran 1").unwrap_err().contains("odd answer"));
    }
}
