//! A process that is asked by lines.
//!
//! # Boundary
//! Starts it, passes lines on, ends it. What they mean is the asker's.
//!
//! # Why
//! Its lines are those of the command that asks it, so an answer is passed on as it is. It is killed
//! in the end, so as not to wait while it frees millions of entries; if this process is killed, it
//! ends with its input.

use std::io::{BufRead, BufReader, Write};
use std::process::{self, ChildStdin, ChildStdout, Command, Stdio};

/// The process.
#[derive(Debug)]
pub(crate) struct Child {
    process: process::Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Child {
    /// Starts `command`, which is to begin with the line `greeting`.
    ///
    /// # Errors
    /// If it is not there, or says something else.
    pub(crate) fn start(command: &mut Command, greeting: &str) -> Result<Self, String> {
        let program = command.get_program().display().to_string();
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = spawned.map_err(|error| format!("{program}: {error}"))?;
        let (Some(requests), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(format!("{program} has no pipes"));
        };
        let mut child = Self { process, requests, answers: BufReader::new(answers) };
        match child.line()? {
            line if line == greeting => Ok(child),
            _ => Err(format!("{program} is of another version")),
        }
    }

    /// What it answers to `request`.
    ///
    /// # Errors
    /// Why it failed.
    pub(crate) fn ask(&mut self, request: &str) -> Result<String, String> {
        let sent = writeln!(self.requests, "{request}").and_then(|()| self.requests.flush());
        sent.map_err(|error| format!("the rival's process is gone: {error}"))?;
        let answer = self.line()?;
        match answer.strip_prefix("failed ") {
            Some(why) => Err(why.to_owned()),
            None => Ok(answer),
        }
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => Err("the rival's process ended".to_owned()),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(format!("the rival's process: {error}")),
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

    /// A program that says `lines`, one for each request after the first.
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
        let mut child = Child::start(&mut actor("hello\\nran 1\\nfailed no\\n"), "hello").unwrap();
        assert_eq!(child.ask("run"), Ok("ran 1".to_owned()));
        assert_eq!(child.ask("run"), Err("no".to_owned()));
        assert!(child.ask("run").unwrap_err().contains("process"));
    }

    #[test]
    fn strangers_and_missing_programs_are_refused() {
        let stranger = Child::start(&mut actor("bonjour\\n"), "hello").unwrap_err();
        assert!(stranger.contains("another version"), "{stranger}");
        let missing = Child::start(&mut Command::new("/nowhere/rival"), "hello").unwrap_err();
        assert!(missing.starts_with("/nowhere/rival: "), "{missing}");
    }
}
