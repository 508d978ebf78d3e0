//! A process that answers requests: a line in, a line out.
//!
//! # Boundary
//! Starts it, passes lines on, ends it. The caller defines the lines; only one rule is common to all: an answer that
//! begins with `failed ` is a refusal.
//!
//! # Why
//! The process is killed in the end, so that the bench does not wait while it frees millions of entries; if the bench
//! is killed, the process ends with its input. Weakness: an answer has no time limit.

use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::process::{self, ChildStdin, ChildStdout, Command, Stdio};

/// The process.
#[derive(Debug)]
pub struct Child {
    process: process::Child,
    requests: BufWriter<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Child {
    /// Starts `command`, whose first line must begin with `greeting`; returns the rest of that line, too.
    ///
    /// # Errors
    /// If the program does not exist, or sends another line.
    pub fn start(command: &mut Command, greeting: &str) -> Result<(Self, String), String> {
        let program = command.get_program().display().to_string();
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = spawned.map_err(|error| format!("{program}: {error}"))?;
        let (Some(requests), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(format!("{program} has no pipes"));
        };
        let (requests, answers) = (BufWriter::new(requests), BufReader::new(answers));
        let mut child = Self { process, requests, answers };
        let line = child.line()?;
        match line.strip_prefix(greeting) {
            Some(rest) => Ok((child, rest.to_owned())),
            None => Err(format!("{program} is of another version")),
        }
    }

    /// Process id of the child.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The answer to `request`.
    ///
    /// # Errors
    /// The reason for a refusal, or that the process has ended.
    pub fn ask(&mut self, request: &str) -> Result<String, String> {
        self.ask_with(request, |_| Ok(()))
    }

    /// The answer to `request` and the bytes that `more` writes behind it.
    ///
    /// # Errors
    /// Those of [`Child::ask`].
    pub fn ask_with(
        &mut self,
        request: &str,
        more: impl FnOnce(&mut BufWriter<ChildStdin>) -> io::Result<()>,
    ) -> Result<String, String> {
        let out = &mut self.requests;
        let sent = writeln!(out, "{request}").and_then(|()| more(out)).and_then(|()| out.flush());
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

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that prints `lines`, one for each request after the first.
    fn actor(lines: &str) -> Command {
        let script = format!(
            "exec 3<&0; printf '{lines}' | while read -r line; do echo $line; read -r request <&3; done"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        command
    }

    #[test]
    fn answers_and_refusals_come_out() {
        let mut command = actor("hello 1 a b\\nran 1\\nfailed no\\n");
        let (mut child, rest) = Child::start(&mut command, "hello 1 ").unwrap();
        assert_eq!(rest, "a b");
        assert_eq!(child.ask("run"), Ok("ran 1".to_owned()));
        assert_eq!(child.ask("run"), Err("no".to_owned()));
        assert!(child.ask("run").unwrap_err().contains("process"));
    }

    #[test]
    fn bytes_follow_their_request() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo hello; read -r request; head -c 3; echo"]);
        let (mut child, _) = Child::start(&mut command, "hello").unwrap();
        let answer = child.ask_with("three bytes", |out| out.write_all(b"abc"));
        assert_eq!(answer, Ok("abc".to_owned()));
    }

    #[test]
    fn strangers_and_missing_programs_are_refused() {
        let stranger = Child::start(&mut actor("bonjour\\n"), "hello").unwrap_err();
        assert!(stranger.contains("another version"), "{stranger}");
        let missing = Child::start(&mut Command::new("/nowhere/rival"), "hello").unwrap_err();
        assert!(missing.starts_with("/nowhere/rival: "), "{missing}");
    }
}
