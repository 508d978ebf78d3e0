//! Requests to the caches in `bench-compare hit`: to hold entries, and to read them.
//!
//! # Boundary
//! Writes requests and reads answers; the lines are described in `bench-compare/src/hit.rs`.
//!
//! # Why
//! One process holds one cache, so there is one for each rival: they take turns without being filled
//! again. Weakness: all of them are in memory at the same time.

use crate::rivals::{Rivals, odd};
use std::path::Path;
use uvfs_bench_workload::traces::Pattern;

/// The kind of a rival's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Words,
    Pages,
}

impl Kind {
    /// Behind the word of a request.
    fn ending(self) -> &'static str {
        match self {
            Self::Words => "",
            Self::Pages => "-page",
        }
    }
}

/// A process that holds one rival at most.
#[derive(Debug)]
pub(super) struct Rival {
    process: Rivals,
    kind: Kind,
}

impl Rival {
    /// Starts `program`.
    ///
    /// # Errors
    /// The missing part, and how to build it.
    pub(super) fn start(program: &Path) -> Result<Self, String> {
        Ok(Self { process: Rivals::start(program, "hit", 1)?, kind: Kind::Words })
    }

    /// The rivals that it can hold.
    pub(super) fn names(&self) -> &[String] {
        self.process.names()
    }

    /// Has it hold `name` with `entries`.
    ///
    /// # Errors
    /// Its answer.
    pub(super) fn build(&mut self, name: &str, kind: Kind, entries: u64) -> Result<(), String> {
        self.kind = kind;
        self.process.ask(&format!("build{} {name} {entries}", kind.ending())).map(drop)
    }

    /// Has it read; returns seconds on the clock and of all threads' processors.
    ///
    /// # Errors
    /// Its answer.
    pub(super) fn run(
        &mut self,
        threads: usize,
        pattern: Pattern,
        operations: u64,
    ) -> Result<(f64, f64), String> {
        let (ending, pattern) = (self.kind.ending(), pattern.name());
        ran(&self.process.ask(&format!("run{ending} {threads} {pattern} {operations}"))?)
    }
}

fn ran(answer: &str) -> Result<(f64, f64), String> {
    let words: Vec<&str> = answer.split(' ').collect();
    let ["ran", wall, cpu, _] = words[..] else { return Err(odd(answer)) };
    let seconds = |word: &str| word.parse().map_err(|_| odd(answer));
    Ok((seconds(wall)?, seconds(cpu)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        assert_eq!(ran("ran 0.5 1.5 ff"), Ok((0.5, 1.5)));
        for odd in ["ran x", "ran x 1 ff", "built 7"] {
            assert!(ran(odd).unwrap_err().contains("odd answer"), "{odd}");
        }
    }
}
