//! `uvfs-bench watch`: the cost of being watched, and the time to report a level of the tree, with many names cached.
//!
//! # Boundary
//! One mount of a tree, its measurements, and their output. [`watchers`] has the watchers. Asserts nothing; it fails if
//! a measurement was impossible.
//!
//! # What the figures mean
//! `idle-…` is CPU time in percent of one core without file requests: the daemon's, and the watchers' own (`uvfs top`,
//! `uvfs web`; the page and the scraper are threads of this process, which stand for other programs). `walk-…` is the
//! rate of `lstat` over warm names, in turns with the watchers stopped and running; `walk-slower` is the median of the
//! pairs. `level-counted-…` is one level reported after a name has changed, `level-again-…` the same level requested
//! again.
//!
//! # Why
//! On a shared machine a difference of 1 % is visible only in pairs: so the two walks take turns, of seconds each, with
//! the same watchers stopped and continued by a signal. Weakness: the kernel answers the walker, so its slowdown is the
//! watchers' use of the machine, and not their effect on the daemon's locks.

mod watchers;

use crate::clean::said;
use crate::places::Places;
use crate::report::{Layout, Report, Summary, Unit};
use crate::server::Server;
use crate::{cleanup, context, machine, memory};
use clap::Args;
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use watchers::{Page, Watchers};

const SYSTEM: &str = "uvfs";
/// The bars: CPU of watched idleness in percent of a core, how many times as long a walk may take, and a level's answer.
const IDLE_PERCENT: f64 = 2.0;
const SLOWER: f64 = 1.01;
const LEVEL_MS: f64 = 200.0;
/// A file that is created and removed.
const FRESH: &str = "d0000/fresh";
/// After watchers started or stopped.
const SETTLE: Duration = Duration::from_secs(2);

/// How much is measured.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    files: usize,
    idle: Duration,
    pairs: u32,
    turn: Duration,
    levels: u32,
}

const FULL: Sizes = Sizes {
    files: 1_000_000,
    idle: Duration::from_secs(40),
    pairs: 8,
    turn: Duration::from_secs(6),
    levels: 15,
};
const QUICK: Sizes = Sizes {
    files: 100_000,
    idle: Duration::from_secs(15),
    pairs: 4,
    turn: Duration::from_secs(3),
    levels: 9,
};
const TINY: Sizes = Sizes {
    files: 300,
    idle: Duration::from_millis(300),
    pairs: 1,
    turn: Duration::from_millis(100),
    levels: 2,
};

/// Arguments of the bench.
#[derive(Debug, Args)]
pub(crate) struct WatchArguments {
    /// Fewer files and shorter turns
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of tables
    #[arg(long)]
    json: bool,
    /// Names to have cached, in directories of 1000 [default: 1000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    files: Option<u32>,
    /// Inputs so small that the figures mean nothing, for tests.
    #[arg(long, hide = true)]
    tiny: bool,
}

/// Runs the measurements of `arguments`.
///
/// # Errors
/// No way to mount, and the measurements that failed.
pub(crate) fn run(arguments: &WatchArguments) -> io::Result<()> {
    crate::mount::check_machine()?;
    cleanup::on_signals()?;
    let sizes = match (arguments.tiny, arguments.quick) {
        (true, _) => TINY,
        (false, true) => QUICK,
        (false, false) => FULL,
    };
    let files = arguments.files.map_or(sizes.files, |files| files as usize);
    let places = Places::find()?;
    let Some(uvfs) = places.uvfs.clone() else {
        eprintln!("uvfs-bench: skipped: no mount tool; cargo build --release -p uvfs");
        return Ok(());
    };
    let source = memory::tree(&places.inputs, files)?;
    // Of a run that was killed.
    let _ = fs::remove_file(source.join(FRESH));
    let mut bench = Bench::start(&places, uvfs, &source, Sizes { files, ..sizes })?;
    bench.measure()?;
    let mut out = io::stdout().lock();
    match arguments.json {
        true => bench.report.write_json(&mut out),
        false => {
            println!("{}; {files} files", machine::describe());
            println!(
                "bars: idle-watched below {IDLE_PERCENT} % of a core, walk-slower below {SLOWER}, levels below {LEVEL_MS} ms"
            );
            bench.report.write_tables(&Layout::default(), |_| true, &mut out)
        }
    }
}

struct Bench {
    server: Server,
    uvfs: PathBuf,
    sizes: Sizes,
    report: Report,
}

impl Bench {
    fn start(places: &Places, uvfs: PathBuf, source: &Path, sizes: Sizes) -> io::Result<Self> {
        let mountpoint = places.work.join("watch");
        let mut from = std::ffi::OsString::from("dir:");
        from.push(source);
        let mut command = Command::new(&uvfs);
        command.arg("mount").arg(from).arg(&mountpoint).args(["--cache-size", "4G"]);
        command.args(["--attr-timeout", "1h", "--entry-timeout", "1h", "--metrics", "127.0.0.1:0"]);
        let server = Server::start(&mut command, mountpoint, &places.work.join("watch.log"))?;
        Ok(Self { server, uvfs, sizes, report: Report::new("watch") })
    }

    fn root(&self) -> PathBuf {
        self.server.mountpoint().to_path_buf()
    }

    fn measure(&mut self) -> io::Result<()> {
        let root = self.root();
        let directories = walked(&root, self.sizes.files)?;
        let answer = self.stat()?;
        let names = answer["core"]["names"]["held"].as_u64().unwrap_or(0);
        if (names as usize) < self.sizes.files {
            return Err(io::Error::other(format!(
                "{names} names are cached of {}",
                self.sizes.files
            )));
        }
        let metrics = answer["options"]["metrics"].as_str().unwrap_or("").to_owned();
        let page = Page::start(&self.uvfs, &root)?;
        self.levels(&page)?;
        self.idle("idle-unwatched", None)?;
        let mut watchers = Watchers::start(&self.uvfs, &root, page, &metrics)?;
        thread::sleep(SETTLE);
        self.idle("idle-watched", Some(&watchers))?;
        self.walks(&directories, &mut watchers)?;
        watchers.end()
    }

    /// The report of `uvfs stat --json`. The control socket may come a moment after the mount.
    fn stat(&self) -> io::Result<Value> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let mut stat = Command::new(&self.uvfs);
            match said(stat.arg("stat").arg(self.root()).arg("--json")) {
                Ok(text) => return Ok(serde_json::from_str(&text)?),
                Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(50)),
                Err(error) => return Err(error),
            }
        }
    }

    fn sample(&mut self, case: &str, unit: Unit, value: f64) {
        self.report.sample(case, SYSTEM, 1, unit, value);
    }

    /// Levels of the root and of one directory, by the page's server.
    fn levels(&mut self, page: &Page) -> io::Result<()> {
        let fresh = self.root().join(FRESH);
        for (label, directory) in [("root", "/"), ("directory", "/d0000")] {
            for _ in 0..self.sizes.levels {
                // A new name: the last count is outdated.
                fs::write(&fresh, b"").map_err(context(fresh.display()))?;
                let counted = page.level(directory)?;
                let again = page.level(directory)?;
                fs::remove_file(&fresh)?;
                for (what, took) in [("counted", counted), ("again", again)] {
                    let case = format!("level-{what}-{label}");
                    self.sample(&case, Unit::Microseconds, took.as_secs_f64() * 1e6);
                }
            }
        }
        Ok(())
    }

    /// CPU time of the daemon and of the watchers.
    fn idle(&mut self, case: &str, watchers: Option<&Watchers>) -> io::Result<()> {
        let mut pids = vec![("daemon", self.server.pid())];
        pids.extend(watchers.iter().flat_map(|watchers| watchers.pids()));
        let used = |pid: &u32| cpu_of(*pid);
        let before = pids.iter().map(|(_, pid)| used(pid)).collect::<io::Result<Vec<_>>>()?;
        let begin = Instant::now();
        thread::sleep(self.sizes.idle);
        let wall = begin.elapsed().as_secs_f64();
        let mut sum = 0.0;
        for ((name, pid), before) in pids.iter().zip(before) {
            let percent = used(pid)?.saturating_sub(before).as_secs_f64() * 100.0 / wall;
            sum += percent;
            self.sample(&format!("{case}-{name}"), Unit::PercentOfCore, percent);
        }
        self.sample(case, Unit::PercentOfCore, sum);
        Ok(())
    }

    /// Rates of a warm walk, in turns unwatched and watched.
    fn walks(&mut self, directories: &[Vec<PathBuf>], watchers: &mut Watchers) -> io::Result<()> {
        let mut pairs = Vec::new();
        for at in 0..self.sizes.pairs {
            let mut rates = [0.0; 2];
            // Each is first every other time.
            for turn in [at % 2, 1 - at % 2] {
                let is_watched = turn == 1;
                watchers.pause(!is_watched)?;
                thread::sleep(self.sizes.turn / 10);
                let rate = rate(directories, self.sizes.turn)?;
                rates[turn as usize] = rate;
                let case = if is_watched { "walk-watched" } else { "walk-unwatched" };
                self.sample(case, Unit::ThousandsPerSecond, rate / 1e3);
            }
            pairs.push(rates[0] / rates[1]);
        }
        watchers.pause(false)?;
        let median = Summary::of(&pairs).map_or(0.0, |summary| summary.median);
        self.sample("walk-slower", Unit::Slowdown, median);
        Ok(())
    }
}

/// CPU time of process `pid`, with that of threads that have ended: a daemon answers each watcher with a separate
/// thread, and a sum over the existing threads misses most of it. In ticks of 10 ms.
fn cpu_of(pid: u32) -> io::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).map_err(context(&path))?;
    // Behind the name, which may have anything in it.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks = times.map(|ticks| ticks.parse::<u64>().map_err(io::Error::other));
    let ticks: u64 = ticks.sum::<io::Result<u64>>()?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// All files below `root`, by directory, each of them looked at.
fn walked(root: &Path, files: usize) -> io::Result<Vec<Vec<PathBuf>>> {
    let (mut all, mut seen) = (Vec::new(), 0);
    for directory in fs::read_dir(root)? {
        let directory = directory?;
        if !directory.file_type()?.is_dir() {
            continue;
        }
        let mut paths = Vec::new();
        for entry in fs::read_dir(directory.path()).map_err(context(directory.path().display()))? {
            let path = entry?.path();
            fs::symlink_metadata(&path).map_err(context(path.display()))?;
            paths.push(path);
        }
        seen += paths.len();
        all.push(paths);
    }
    match seen == files {
        true => Ok(all),
        false => Err(io::Error::other(format!("{seen} files of {files}"))),
    }
}

/// Names a second, looked at for `time`.
fn rate(directories: &[Vec<PathBuf>], time: Duration) -> io::Result<f64> {
    let (begin, mut count) = (Instant::now(), 0);
    for paths in directories.iter().cycle() {
        for path in paths {
            fs::symlink_metadata(path)?;
        }
        count += paths.len();
        if begin.elapsed() >= time {
            break;
        }
    }
    Ok(count as f64 / begin.elapsed().as_secs_f64())
}
