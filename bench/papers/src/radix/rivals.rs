//! The rivals' process: `bench-compare radix`, told by lines what to do.
//!
//! # Boundary
//! Starts it, asks for rounds, and reads the answers; the lines are described in
//! `bench-compare/src/radix/mod.rs`. What is missing is said with the command that builds it.

use super::keys::Pattern;
use super::systems::{Phase, Round, Span};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use uvfs_bench_kit::cleanup;

/// The first words of a program that speaks as we do.
const GREETING: &str = "bench-compare radix 1 ";

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
        command.arg("radix").stdin(Stdio::piped()).stdout(Stdio::piped());
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
        rivals.names = names.split_whitespace().map(str::to_owned).collect();
        Ok(rivals)
    }

    /// Whom it holds.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Lets `name` do a round.
    ///
    /// # Errors
    /// What it says.
    pub(super) fn round(
        &mut self,
        name: &str,
        pattern: Pattern,
        threads: usize,
        items: u64,
    ) -> Result<Round, String> {
        let request = format!("round {name} {} {threads} {items}", pattern.name());
        let sent = writeln!(self.requests, "{request}").and_then(|()| self.requests.flush());
        sent.map_err(|error| format!("the rivals' process is gone: {error}"))?;
        let answer = self.line()?;
        if let Some(why) = answer.strip_prefix("failed ") {
            return Err(why.to_owned());
        }
        let spans = parse(&answer).ok_or_else(|| format!("odd answer of the rivals: {answer}"))?;
        Ok(Round { spans, bytes_per_item: None })
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

/// The phases of an answer; none if it is no answer.
fn parse(answer: &str) -> Option<Vec<(Phase, Span)>> {
    let read = |figure: &str| {
        let (name, times) = figure.split_once('=')?;
        let phase = Phase::ALL.into_iter().find(|phase| phase.name() == name)?;
        let (wall, cpu) = times.split_once(':')?;
        let seconds = |text: &str| text.parse::<f64>().ok().filter(|time| *time > 0.0);
        Some((phase, Span { wall: seconds(wall)?, cpu: seconds(cpu)? }))
    };
    answer.strip_prefix("round ")?.split(' ').map(read).collect()
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
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A program that says `lines`, one for each request after the first.
    fn actor(name: &str, lines: &str) -> PathBuf {
        let file = format!("uvfs-bench-radix-{name}-{}", std::process::id());
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
    fn rounds_are_read_and_refusals_come_out() {
        let lines =
            "bench-compare radix 1 a b\\nround insert=0.5:1 gang=2:3\\nfailed no\\nround x=1:1\\n";
        let script = actor("play", lines);
        let mut rivals = Rivals::start(&script).unwrap();
        assert_eq!(rivals.names(), ["a", "b"]);
        let mut ask = || rivals.round("a", Pattern::Random, 2, 10);
        let spans = ask().unwrap().spans;
        assert_eq!(spans[0], (Phase::Insert, Span { wall: 0.5, cpu: 1.0 }));
        assert_eq!((spans.len(), spans[1].0), (2, Phase::Gang));
        assert_eq!(ask().unwrap_err(), "no");
        assert!(ask().unwrap_err().contains("odd answer"));
        assert!(ask().unwrap_err().contains("process"));
        fs::remove_file(script).unwrap();
    }
}
