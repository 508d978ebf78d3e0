//! A program that opens and reads files on request, in a control group with a memory limit.
//!
//! # Boundary
//! The bench started again as a child. One line in, one line out:
//!
//! ```text
//! clean-client 1               (at the start)
//! open 20000 /mnt/1            ns 180402911     opens and closes every file
//! read 20 /srv/1               ns 9402911       reads every file to its end
//!                              failed WHY
//! ```
//!
//! # Why
//! The kernel charges cached memory to the group that touched it first, so a separate process must
//! touch it: the bench and the servers keep their memory.

use super::bytes::PIECE;
use super::store::FilePath;
use crate::{cleanup, context};
use clap::Args;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

const GREETING: &str = "clean-client 1";

/// Arguments of the child.
#[derive(Debug, Args)]
pub(crate) struct ClientArguments {
    /// The control group to join
    group: PathBuf,
}

/// Serves requests until there are no more.
///
/// # Errors
/// A group that cannot be joined.
pub(crate) fn serve(arguments: &ClientArguments) -> io::Result<()> {
    let members = arguments.group.join("cgroup.procs");
    // 0 means the writing process.
    fs::write(&members, "0").map_err(context(members.display()))?;
    println!("{GREETING}");
    for line in io::stdin().lock().lines() {
        match answer(&line?) {
            Ok(ns) => println!("ns {ns}"),
            Err(why) => println!("failed {why}"),
        }
        io::stdout().flush()?;
    }
    Ok(())
}

fn answer(line: &str) -> io::Result<u128> {
    let mut words = line.splitn(3, ' ');
    let (verb, files, directory) = (words.next(), words.next(), words.next());
    let odd = || io::Error::other(format!("no such request: {line}"));
    let files: u64 = files.and_then(|files| files.parse().ok()).ok_or_else(odd)?;
    let mut path = FilePath::below(directory.ok_or_else(odd)?);
    let mut piece = vec![0; PIECE];
    let begin = Instant::now();
    for number in 0..files {
        let mut file = File::open(path.of(number))?;
        match verb {
            Some("open") => {}
            Some("read") => while file.read(&mut piece)? > 0 {},
            _ => return Err(odd()),
        }
    }
    Ok(begin.elapsed().as_nanos())
}

/// The child, as its parent sees it.
#[derive(Debug)]
pub(super) struct Client {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Client {
    /// Starts `bench` again, in `group`.
    pub(super) fn start(bench: &Path, group: &Path) -> io::Result<Self> {
        let mut command = Command::new(bench);
        command.arg("clean-client").arg(group).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        cleanup::started(child.id());
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the client has no pipes"));
        };
        let mut client = Self { child, requests, answers: BufReader::new(answers) };
        match client.line()? {
            line if line == GREETING => Ok(client),
            line => Err(io::Error::other(format!("the client said {line}"))),
        }
    }

    /// Seconds to open every file of `directory`.
    pub(super) fn open(&mut self, files: u64, directory: &Path) -> io::Result<f64> {
        self.ask(&format!("open {files} {}", directory.display()))
    }

    /// Seconds to read them.
    pub(super) fn read(&mut self, files: u64, directory: &Path) -> io::Result<f64> {
        self.ask(&format!("read {files} {}", directory.display()))
    }

    fn ask(&mut self, request: &str) -> io::Result<f64> {
        writeln!(self.requests, "{request}")?;
        self.requests.flush()?;
        let answer = self.line()?;
        let ns = answer.strip_prefix("ns ").and_then(|ns| ns.parse::<f64>().ok());
        ns.map(|ns| ns / 1e9).ok_or_else(|| io::Error::other(format!("the client: {answer}")))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line)? {
            0 => Err(io::Error::other("the client ended; was its memory too little?")),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        cleanup::ended(self.child.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_opened_and_read_and_nonsense_is_refused() {
        let folder = std::env::temp_dir().join(format!("uvfs-bench-client-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let directory = folder.to_str().unwrap();
        let mut path = FilePath::below(directory);
        for number in 0..3 {
            fs::write(path.of(number), "content").unwrap();
        }
        for verb in ["open", "read"] {
            assert!(answer(&format!("{verb} 3 {directory}")).unwrap() > 0);
            assert!(answer(&format!("{verb} 4 {directory}")).is_err(), "there are three");
        }
        for line in ["", "open", "open x /", "close 3 /tmp", &format!("write 1 {directory}")] {
            assert!(answer(line).is_err(), "{line}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
