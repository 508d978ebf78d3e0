//! The watchers: `uvfs top` on a terminal, the page of `uvfs web`, and a scraper of metrics.
//!
//! # Boundary
//! Starts and stops them. The page's requests are those of its script (crates/live/src/web/page.js): figures every two
//! seconds, a level every five or more seldom where it takes long. The scraper's requests come every second, more often
//! than any real one's.
//!
//! # Concurrency
//! The page and the scraper are one thread each; one flag pauses them, and another ends them.

use crate::context;
use crate::http::exchange;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use uvfs_concurrent::primitive::atomic::{AtomicBool, Ordering::Relaxed};

const FIGURES_EVERY: Duration = Duration::from_secs(2);
const LEVEL_EVERY: Duration = Duration::from_secs(5);
/// A look at a level is followed by a pause of so many times its duration, as in the page's script.
const RESTS: u32 = 100;
const SCRAPE_EVERY: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);
const ANSWER_TIME: Duration = Duration::from_secs(20);

/// A process that ends when dropped.
#[derive(Debug)]
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server of the page, and the way to ask it.
#[derive(Debug)]
pub(super) struct Page {
    server: Ended,
    way: Way,
}

/// Address and token of the page's server.
#[derive(Debug, Clone)]
struct Way {
    host: String,
    token: String,
    mountpoint: String,
}

impl Page {
    /// Starts `uvfs web` for the mount at `root`.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn start(uvfs: &Path, root: &Path) -> io::Result<Self> {
        let web = Command::new(uvfs).arg("web").arg(root).stdout(Stdio::piped()).spawn();
        let mut server = Ended(web.map_err(context("uvfs web"))?);
        let odd = || io::Error::other("uvfs web: no address");
        let mut line = String::new();
        BufReader::new(server.0.stdout.take().ok_or_else(odd)?).read_line(&mut line)?;
        let address = line.trim_end().strip_prefix("uvfs: http://").ok_or_else(odd)?;
        let (host, token) = address.split_once("/#").ok_or_else(odd)?;
        let mountpoint = root.display().to_string();
        let way = Way { host: host.to_owned(), token: token.to_owned(), mountpoint };
        Ok(Self { server, way })
    }

    /// The time of a level of `directory`.
    ///
    /// # Errors
    /// There was no answer.
    pub(super) fn level(&self, directory: &str) -> io::Result<Duration> {
        self.way.level(directory)
    }
}

impl Way {
    fn ask(&self, line: &str, body: Option<&Value>) -> io::Result<Value> {
        let Self { host, token, .. } = self;
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = format!(
            "{line} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nAuthorization: Bearer {token}\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let text = exchange(host, ANSWER_TIME, &request).map_err(context(host))?;
        Ok(serde_json::from_str(&text)?)
    }

    fn level(&self, directory: &str) -> io::Result<Duration> {
        let body = json!({"mountpoint": self.mountpoint, "directory": directory, "by": "names", "most": 100});
        let begin = Instant::now();
        let answer = self.ask("POST /api/level", Some(&body))?;
        match answer["level"].is_object() {
            true => Ok(begin.elapsed()),
            false => Err(io::Error::other(format!("level of {directory}: {answer}"))),
        }
    }

    /// The work of the page's script between two refreshes; returns the time of the next level.
    fn look(&self, level: Instant) -> io::Result<Instant> {
        self.ask("GET /api/figures", None)?;
        if Instant::now() < level {
            return Ok(level);
        }
        let took = self.level("/")?;
        Ok(Instant::now() + LEVEL_EVERY.max(took * RESTS))
    }
}

/// The flags of the watching threads.
#[derive(Debug, Default)]
struct Flags {
    pauses: AtomicBool,
    ends: AtomicBool,
}

/// All three.
#[derive(Debug)]
pub(super) struct Watchers {
    terminal: Ended,
    top: u32,
    page: Page,
    flags: Arc<Flags>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Watchers {
    /// Watches the mount at `root`, with `page` and the metrics at `metrics`.
    ///
    /// # Errors
    /// One of them does not start.
    pub(super) fn start(uvfs: &Path, root: &Path, page: Page, metrics: &str) -> io::Result<Self> {
        // A terminal for it, from util-linux.
        let mut terminal = Command::new("script");
        terminal.args(["-qec", r#"exec "$UVFS" top "$ROOT""#, "/dev/null"]);
        terminal.env("UVFS", uvfs).env("ROOT", root).env("TERM", "xterm");
        terminal.stdin(Stdio::piped()).stdout(Stdio::null());
        let terminal = Ended(terminal.spawn().map_err(context("script"))?);
        let top = child_of(terminal.0.id())?;
        let flags = Arc::new(Flags::default());
        let (way, host) = (page.way.clone(), metrics.to_owned());
        let mut level = Instant::now();
        let look = move || {
            level = way.look(level)?;
            Ok(())
        };
        let scrape = move || {
            let request =
                format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            exchange(&host, ANSWER_TIME, &request).map(drop).map_err(context(&host))
        };
        let threads = vec![
            every(FIGURES_EVERY, flags.clone(), look),
            every(SCRAPE_EVERY, flags.clone(), scrape),
        ];
        Ok(Self { terminal, top, page, flags, threads })
    }

    /// Process ids of the watchers.
    pub(super) fn pids(&self) -> [(&'static str, u32); 2] {
        [("top", self.top), ("web", self.page.server.0.id())]
    }

    /// Stops all of them, or continues them.
    ///
    /// # Errors
    /// One of them has ended.
    pub(super) fn pause(&mut self, pauses: bool) -> io::Result<()> {
        // ORDERING: Relaxed; seen soon enough.
        self.flags.pauses.store(pauses, Relaxed);
        let signal = if pauses { Signal::STOP } else { Signal::CONT };
        let top =
            Pid::from_raw(self.top.cast_signed()).ok_or_else(|| io::Error::other("no top"))?;
        kill_process(top, signal).map_err(|error| io::Error::other(format!("uvfs top: {error}")))
    }

    /// Ends them.
    ///
    /// # Errors
    /// The error of one of them.
    pub(super) fn end(self) -> io::Result<()> {
        // ORDERING: Relaxed; a flag, nothing is reached through it.
        self.flags.ends.store(true, Relaxed);
        let Self { terminal, threads, page, .. } = self;
        drop(terminal);
        let ended = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a watcher panicked")))
        });
        let ended = ended.collect::<io::Result<()>>();
        drop(page);
        ended
    }
}

/// Calls `look` every `pause` until that is to end.
fn every(
    pause: Duration,
    flags: Arc<Flags>,
    mut look: impl FnMut() -> io::Result<()> + Send + 'static,
) -> JoinHandle<io::Result<()>> {
    thread::spawn(move || {
        let mut next = Instant::now();
        // ORDERING: Relaxed, both; flags, nothing is reached through them.
        while !flags.ends.load(Relaxed) {
            // ORDERING: Relaxed; a flag, nothing is reached through it.
            if Instant::now() >= next && !flags.pauses.load(Relaxed) {
                look()?;
                next = Instant::now() + pause;
            }
            thread::sleep(LOOK);
        }
        Ok(())
    })
}

/// The one child of `pid`, once it is there.
fn child_of(pid: u32) -> io::Result<u32> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        match children.split_whitespace().next().and_then(|child| child.parse().ok()) {
            Some(child) => return Ok(child),
            None if Instant::now() > deadline => return Err(io::Error::other("top did not start")),
            None => thread::sleep(LOOK),
        }
    }
}
