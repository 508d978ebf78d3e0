//! The rivals' processes: `bench-compare hit`, told by lines what to do.
//!
//! # Boundary
//! Starts them, asks, and reads the answers; the lines are described in `bench-compare/src/hit.rs`.
//! What is missing is said with the command that builds it.
//!
//! # Why
//! One process holds one cache, so there is one for each rival: they take turns without being filled
//! again. Weakness: all of them are in memory at the same time.

use super::traces::Pattern;
use crate::cleanup;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The first words of a program that speaks as we do.
const GREETING: &str = "bench-compare hit 1 ";

/// What a rival's entries are.
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

/// Where the program is if nobody says otherwise.
pub(super) fn default_program() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench-compare");
    std::path::absolute(folder.join("target/release/bench-compare")).unwrap_or(folder)
}

/// A process that holds one rival at most.
#[derive(Debug)]
pub(super) struct Rival {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    names: Vec<String>,
    kind: Kind,
}

impl Rival {
    /// Starts `program`.
    ///
    /// # Errors
    /// What is missing, and how to build it.
    pub(super) fn start(program: &Path) -> Result<Self, String> {
        let build = "build it: cargo build --release --manifest-path bench-compare/Cargo.toml";
        let not_there = |error| format!("{}: {error}; {build}", program.display());
        let mut command = Command::new(program);
        command.arg("hit").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(not_there)?;
        cleanup::started(child.id());
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the rivals' process has no pipes".to_owned());
        };
        let answers = BufReader::new(answers);
        let mut rival = Self { child, requests, answers, names: Vec::new(), kind: Kind::Words };
        let greeting = rival.line()?;
        let names = greeting.strip_prefix(GREETING);
        let names =
            names.ok_or_else(|| format!("{} is of another version; {build}", program.display()))?;
        rival.names = names.split(' ').map(str::to_owned).collect();
        Ok(rival)
    }

    /// Whom it can hold.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Has it hold `name` with `entries`.
    ///
    /// # Errors
    /// What it says.
    pub(super) fn build(&mut self, name: &str, kind: Kind, entries: u64) -> Result<(), String> {
        self.kind = kind;
        self.ask(&format!("build{} {name} {entries}", kind.ending())).map(drop)
    }

    /// Lets it read; seconds on the clock and of all threads' processors.
    ///
    /// # Errors
    /// What it says.
    pub(super) fn run(
        &mut self,
        threads: usize,
        pattern: Pattern,
        operations: u64,
    ) -> Result<(f64, f64), String> {
        let pattern = match pattern {
            Pattern::Zipf => "zipf",
            Pattern::Uniform => "uniform",
        };
        let ending = self.kind.ending();
        let answer = self.ask(&format!("run{ending} {threads} {pattern} {operations}"))?;
        let odd = || format!("odd answer of the rivals: {answer}");
        let words: Vec<&str> = answer.split(' ').collect();
        let ["ran", wall, cpu, _] = words[..] else { return Err(odd()) };
        Ok((wall.parse().map_err(|_| odd())?, cpu.parse().map_err(|_| odd())?))
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

impl Drop for Rival {
    fn drop(&mut self) {
        cleanup::ended(self.child.id());
        // Killed, so as not to wait while it frees its entries; its own child ends with its input.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A program that says `lines`, one for each request after the first.
    fn actor(name: &str, lines: &str) -> PathBuf {
        let file = format!("uvfs-bench-hit-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(file);
        let begin =
            format!("#!/bin/sh\nexec 3<&0\nprintf '{lines}' | while IFS= read -r line; do\n");
        fs::write(&path, begin + "echo \"$line\"\nread -r request <&3\ndone\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn missing_programs_and_strangers_are_refused() {
        let why = Rival::start(Path::new("/nowhere/bench-compare")).unwrap_err();
        assert!(why.contains("/nowhere") && why.contains("cargo build --release"), "{why}");
        let why = Rival::start(Path::new("/bin/echo")).unwrap_err();
        assert!(why.contains("another version"), "{why}");
    }

    #[test]
    fn answers_are_read_and_refusals_come_out() {
        let lines = "bench-compare hit 1 a b\\nbuilt 7\\nran 0.5 1.5 ff\\nran x\\nfailed no\\n";
        let script = actor("play", lines);
        let mut rival = Rival::start(&script).unwrap();
        assert_eq!(rival.names(), ["a", "b"]);
        rival.build("a", Kind::Pages, 10).unwrap();
        assert_eq!(rival.run(2, Pattern::Zipf, 5), Ok((0.5, 1.5)));
        assert!(rival.run(2, Pattern::Zipf, 5).unwrap_err().contains("odd answer"));
        assert_eq!(rival.run(2, Pattern::Zipf, 5).unwrap_err(), "no");
        assert!(rival.build("a", Kind::Words, 10).is_err(), "it has ended");
        fs::remove_file(script).unwrap();
    }
}
