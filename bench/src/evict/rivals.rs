//! The rivals' process: `bench-compare evict`, told what to replay.
//!
//! # Boundary
//! Starts it, sends accesses, reads the hits; the lines are described in
//! `bench-compare/src/evict.rs`. What is missing is said with the command that builds it.

use super::traces::Trace;
use crate::cleanup;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The first words of a program that speaks as we do.
const GREETING: &str = "bench-compare evict 1 ";

/// The process.
#[derive(Debug)]
pub(super) struct Rivals {
    child: Child,
    requests: BufWriter<ChildStdin>,
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
        command.arg("evict").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(not_there)?;
        cleanup::started(child.id());
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the rivals' process has no pipes".to_owned());
        };
        let (requests, answers) = (BufWriter::new(requests), BufReader::new(answers));
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

    /// Hits of the counted accesses of `trace` by `name`, in percent.
    ///
    /// # Errors
    /// What it says.
    pub(super) fn replay(&mut self, name: &str, trace: &Trace) -> Result<f64, String> {
        self.send(name, trace).map_err(|error| format!("the rivals' process is gone: {error}"))?;
        let answer = self.line()?;
        if let Some(why) = answer.strip_prefix("failed ") {
            return Err(why.to_owned());
        }
        let figures = answer.strip_prefix("hits ").and_then(|rest| rest.split_once(" counted "));
        let number = |word: &str| word.parse::<u64>().ok();
        let figures = figures.and_then(|(hits, counted)| Some((number(hits)?, number(counted)?)));
        let (hits, counted) =
            figures.ok_or_else(|| format!("odd answer of the rivals: {answer}"))?;
        Ok(100.0 * hits as f64 / counted.max(1) as f64)
    }

    fn send(&mut self, name: &str, trace: &Trace) -> std::io::Result<()> {
        writeln!(self.requests, "replay {name} {} {}", trace.capacity, trace.accesses.len())?;
        for access in &trace.accesses {
            self.requests.write_all(&access.to_le_bytes())?;
        }
        self.requests.flush()
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
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A program that greets, reads one request of three accesses, and answers `answer`.
    fn actor(name: &str, greeting: &str, answer: &str) -> PathBuf {
        let file = format!("uvfs-bench-evict-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(file);
        let script = format!(
            "#!/bin/sh\necho '{greeting}'\nread -r request\nhead -c 24 > \"$0.accesses\"\n\
             echo '{answer}'\n"
        );
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn trace() -> Trace {
        Trace { name: "t".to_owned(), capacity: 2, accesses: vec![1, 2 | 1 << 63, 1] }
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
    fn hits_become_percent_and_refusals_come_out() {
        let check = |name: &str, answer: &str, wanted: Result<f64, &str>| {
            let script = actor(name, "bench-compare evict 1 a b", answer);
            let mut rivals = Rivals::start(&script).unwrap();
            assert_eq!(rivals.names(), ["a", "b"]);
            let found = rivals.replay("a", &trace());
            assert_eq!(found, wanted.map_err(str::to_owned));
            drop(rivals);
            fs::remove_file(format!("{}.accesses", script.display())).unwrap();
            fs::remove_file(script).unwrap();
        };
        check("plays", "hits 1 counted 2", Ok(50.0));
        check("refuses", "failed no", Err("no"));
        check("babbles", "hits many", Err("odd answer of the rivals: hits many"));
    }
}
