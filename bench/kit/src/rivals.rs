//! The rivals' process, `bench-compare`: started, greeted, asked.
//!
//! # Boundary
//! Each bench defines its requests; `bench-compare` describes them, in the module of the bench's name. If the program
//! is missing, the error names the command that builds it.

use crate::cleanup;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command};
use uvfs_bench_workload::child::Child;

const BUILD: &str = "build it: cargo build --release --manifest-path bench-compare/Cargo.toml";

/// The default place of the program.
pub fn default_program() -> PathBuf {
    crate::repository().join("bench-compare/target/release/bench-compare")
}

/// The process that holds the rivals of one bench.
#[derive(Debug)]
pub struct Rivals {
    child: Child,
    names: Vec<String>,
}

impl Rivals {
    /// Starts `program` as the rivals of `bench`, with `version` of its protocol.
    ///
    /// # Errors
    /// The missing part, and how to build it.
    pub fn start(program: &Path, bench: &str, version: u32) -> Result<Self, String> {
        let greeting = format!("bench-compare {bench} {version} ");
        let started = Child::start(Command::new(program).arg(bench), &greeting);
        let (child, names) = started.map_err(|why| format!("{why}; {BUILD}"))?;
        cleanup::started(child.id());
        Ok(Self { child, names: names.split_whitespace().map(str::to_owned).collect() })
    }

    /// The rivals that it can be.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The answer to `request`.
    ///
    /// # Errors
    /// The reason for a refusal, or that the process has ended.
    pub fn ask(&mut self, request: &str) -> Result<String, String> {
        self.child.ask(request)
    }

    /// The answer to `request` and the bytes that `more` writes behind it.
    ///
    /// # Errors
    /// Those of [`Rivals::ask`].
    pub fn ask_with(
        &mut self,
        request: &str,
        more: impl FnOnce(&mut io::BufWriter<ChildStdin>) -> io::Result<()>,
    ) -> Result<String, String> {
        self.child.ask_with(request, more)
    }
}

/// The error for an answer that does not fit the request.
pub fn odd(answer: &str) -> String {
    format!("odd answer of the rivals: {answer}")
}

impl Drop for Rivals {
    fn drop(&mut self) {
        cleanup::ended(self.child.id());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_and_strangers_are_refused_with_how_to_build_them() {
        let why = Rivals::start(Path::new("/nowhere/bench-compare"), "walk", 2).unwrap_err();
        assert!(why.contains("/nowhere") && why.contains("cargo build --release"), "{why}");
        let why = Rivals::start(Path::new("/bin/echo"), "walk", 2).unwrap_err();
        assert!(why.contains("another version") && why.contains("cargo build"), "{why}");
    }
}
