//! The rivals' process: `bench-compare walk`, told by lines what to do.
//!
//! # Boundary
//! Starts it, asks, and reads the answers; the lines are described in `bench-compare/src/main.rs`.
//! What is missing is said with the command that builds it.
//!
//! # Why
//! A fresh process for each tree, because an allocator that has given back ten million entries is not
//! the one that a fresh cache would meet.

use super::contestants::Course;
use super::workload::paths::Pattern;
use crate::cleanup;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The first words of a program that speaks as we do.
const GREETING: &str = "bench-compare walk 2 ";

/// The process.
#[derive(Debug)]
pub(super) struct Rivals {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    names: Vec<String>,
}

/// Where the program is if nobody says otherwise.
pub(super) fn default_program() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench-compare");
    std::path::absolute(folder.join("target/release/bench-compare")).unwrap_or(folder)
}

impl Rivals {
    /// Starts `program`.
    ///
    /// # Errors
    /// What is missing, and how to build it.
    pub(super) fn start(program: &Path) -> Result<Self, String> {
        let build = "build it: cargo build --release --manifest-path bench-compare/Cargo.toml";
        let not_there = |error| format!("{}: {error}; {build}", program.display());
        let mut command = Command::new(program);
        command.arg("walk").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(not_there)?;
        cleanup::started(child.id());
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the rivals' process has no pipes".to_owned());
        };
        let answers = BufReader::new(answers);
        let mut rivals = Self { child, requests, answers, names: Vec::new() };
        let greeting = rivals.line()?;
        let names = greeting.strip_prefix(GREETING);
        let names =
            names.ok_or_else(|| format!("{} is of another version; {build}", program.display()))?;
        rivals.names = names.split(' ').map(str::to_owned).collect();
        Ok(rivals)
    }

    /// Whom it holds.
    pub(super) fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    /// Builds `name` over the tree of `course`; the bytes of memory that it took.
    ///
    /// # Errors
    /// What it says, or that its tree is another one.
    pub(super) fn build(&mut self, name: &str, course: &Course) -> Result<u64, String> {
        let (depth, names) = (course.tree.depth(), course.tree.names());
        let answer = self.ask(&format!("build {name} {depth} {names}"))?;
        let odd = || format!("odd answer of the rivals: {answer}");
        let (bytes, digest) =
            answer.strip_prefix("built ").and_then(|rest| rest.split_once(' ')).ok_or_else(odd)?;
        if u64::from_str_radix(digest, 16).ok() != Some(course.digest()) {
            return Err("the rivals were built from an older tree: build them again".to_owned());
        }
        bytes.parse().map_err(|_| odd())
    }

    /// Lets `name` walk a round; nanoseconds a walk.
    ///
    /// # Errors
    /// What it says.
    pub(super) fn round(
        &mut self,
        name: &str,
        pattern: Pattern,
        threads: usize,
        target: Duration,
    ) -> Result<f64, String> {
        let ms = target.as_millis().max(1);
        let answer = self.ask(&format!("round {name} {} {threads} {ms}", pattern.name()))?;
        let ns = answer.strip_prefix("ns ").and_then(|ns| ns.parse().ok());
        ns.ok_or_else(|| format!("odd answer of the rivals: {answer}"))
    }

    fn ask(&mut self, request: &str) -> Result<String, String> {
        let sent = writeln!(self.requests, "{request}").and_then(|()| self.requests.flush());
        sent.map_err(|error| format!("the rivals' process is gone: {error}"))?;
        let answer = self.line()?;
        match answer.strip_prefix("failed ") {
            Some(why) => Err(why.to_owned()),
            None => Ok(answer),
        }
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => Err("the rivals' process ended".to_owned()),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(format!("the rivals' process: {error}")),
        }
    }
}

impl Drop for Rivals {
    fn drop(&mut self) {
        cleanup::ended(self.child.id());
        // Killed, so as not to wait while it frees millions of entries.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::tree::Tree;
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A program that says `lines`, one for each request after the first.
    fn actor(name: &str, lines: &str) -> PathBuf {
        let file = format!("uvfs-bench-rivals-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(file);
        let begin =
            format!("#!/bin/sh\nexec 3<&0\nprintf '{lines}' | while IFS= read -r line; do\n");
        fs::write(&path, begin + "echo \"$line\"\nread -r request <&3\ndone\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_missing_program_is_said_with_how_to_build_it() {
        let why = Rivals::start(Path::new("/nowhere/bench-compare")).unwrap_err();
        assert!(why.contains("/nowhere") && why.contains("cargo build --release"), "{why}");
    }

    #[test]
    fn strangers_are_refused() {
        let why = Rivals::start(Path::new("/bin/echo")).unwrap_err();
        assert!(why.contains("another version"), "{why}");
    }

    #[test]
    fn answers_are_read_and_refusals_come_out() {
        let script = actor("play", "bench-compare walk 2 a b\\nbuilt 7 0\\nns 12.5\\nfailed no\\n");
        let mut rivals = Rivals::start(&script).unwrap();
        assert_eq!(rivals.names(), ["a", "b"]);
        let course = Course::new(Tree::new(2, 50));
        let older = rivals.build("a", &course).unwrap_err();
        assert!(older.contains("older tree"), "{older}");
        let mut round = || rivals.round("a", Pattern::Hot, 1, Duration::from_millis(3));
        assert_eq!(round(), Ok(12.5));
        assert_eq!(round(), Err("no".to_owned()));
        assert!(round().unwrap_err().contains("process"));
        fs::remove_file(script).unwrap();
    }
}
