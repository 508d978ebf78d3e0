//! `uvfs-bench object` and `uvfs-bench slow-directory`: sources behind a link with latency, against other mounts of them.
//!
//! # Boundary
//! The steps and their output. [`link`] is the link, [`directory`] and [`mod@object`] start servers and mounts. Asserts no
//! time; each step compares what it read with what was made.
//!
//! # What the figures mean
//! A step is one command of a user on a tree of small files: `find` lists it, `stat` asks for each file by path, `cat`
//! reads each file, `large` reads one large file, `write` makes files until `cp` returns. `-first` is on a new mount,
//! `-again` the same command once more, while all is valid and, if the cache is large enough, in memory. For a bucket
//! `requests-` counts those that the store got. The servers' files are in the host's page cache.
//!
//! # Why
//! Two of the three jobs in README had no figure. Rivals are the programs that users of such sources have, with their
//! defaults and with the options that their manuals name for speed. Weakness: a link on loopback has latency and no
//! other habits of a network.

mod directory;
mod link;
mod object;

use crate::places::Places;
use crate::report::{Column, Layout, Report, Unit};
use crate::server::Server;
use crate::{cleanup, context, machine};
use clap::Args;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Directories of the tree.
const DIRECTORIES: usize = 10;
/// Bytes of a small file.
const SMALL: usize = 4096;
/// Files of the step `write`.
const WRITTEN: usize = 40;

/// Arguments of both benches.
#[derive(Debug, Args)]
pub(crate) struct RemoteArguments {
    /// Smaller inputs and fewer runs
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of a table
    #[arg(long)]
    json: bool,
    /// Only these systems, separated by commas [default: all that this machine has]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    systems: Vec<String>,
    /// Runs of which the median is taken [default: 5, or 3 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Milliseconds of a round trip [default: 20 for a directory, 5 for a bucket]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(0..=1000))]
    latency_ms: Option<u32>,
    /// Inputs so small that the figures mean nothing, for tests.
    #[arg(long, hide = true)]
    tiny: bool,
}

/// How large the inputs are.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    files: usize,
    large_bytes: usize,
}

impl RemoteArguments {
    fn sizes(&self) -> Sizes {
        match (self.tiny, self.quick) {
            (true, _) => Sizes { files: 20, large_bytes: 1 << 20 },
            (_, true) => Sizes { files: 60, large_bytes: 16 << 20 },
            _ => Sizes { files: 500, large_bytes: 64 << 20 },
        }
    }

    fn runs(&self) -> u32 {
        let few = if self.tiny { 1 } else { 3 };
        self.runs.unwrap_or(if self.quick || self.tiny { few } else { 5 })
    }

    fn latency(&self, otherwise: u32) -> Duration {
        Duration::from_millis(self.latency_ms.unwrap_or(otherwise).into())
    }
}

/// One of the compared mounts.
struct System {
    name: &'static str,
    /// The program that must be in PATH, and its Debian package.
    needs: Option<(&'static str, &'static str)>,
    /// The command that serves the mount in the foreground.
    command: MountCommand,
    /// Starts the mount that is the source of this one.
    below: Option<Box<dyn Fn() -> io::Result<Server>>>,
}

/// Makes the command for a mount point.
type MountCommand = Box<dyn Fn(&Path) -> Command>;

/// A source, and what else is known about it.
struct Source<'a> {
    /// The bench's name.
    name: &'static str,
    /// Requests so far, where they are counted.
    requests: &'a dyn Fn() -> Option<u64>,
    /// Empties a folder that `write` has filled, behind the mounts.
    forget_written: &'a dyn Fn() -> io::Result<()>,
}

/// `uvfs-bench slow-directory`.
///
/// # Errors
/// What is missing, or the step that failed, with its system.
pub(crate) fn slow_directory(arguments: &RemoteArguments) -> io::Result<()> {
    directory::run(arguments)
}

/// `uvfs-bench object`.
///
/// # Errors
/// See [`slow_directory`].
pub(crate) fn object(arguments: &RemoteArguments) -> io::Result<()> {
    object::run(arguments)
}

/// Checks the machine and finds the folders.
fn prepare() -> io::Result<Places> {
    crate::mount::check_machine()?;
    cleanup::on_signals()?;
    Places::find()
}

/// Makes the tree of small files and the large file below `root`, which a source shows.
fn make_tree(root: &Path, sizes: Sizes) -> io::Result<()> {
    for file in 0..sizes.files {
        let folder = root.join(format!("tree/d{}", file % DIRECTORIES));
        fs::create_dir_all(&folder).map_err(context(folder.display()))?;
        fs::write(folder.join(format!("f{file}")), content(file, SMALL))?;
    }
    fs::write(root.join("large"), content(sizes.files, sizes.large_bytes))
}

/// Bytes that differ from file to file.
fn content(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 + seed * 31) as u8).collect()
}

/// Measures every step with every system in turns, and prints the report.
fn measure(
    arguments: &RemoteArguments,
    places: &Places,
    source: &Source<'_>,
    mut systems: Vec<System>,
) -> io::Result<()> {
    if let Some(unknown) =
        arguments.systems.iter().find(|name| systems.iter().all(|system| system.name != **name))
    {
        let names: Vec<_> = systems.iter().map(|system| system.name).collect();
        let message = format!("no system `{unknown}`; there are {}", names.join(", "));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    systems.retain(|system| {
        arguments.systems.is_empty() || arguments.systems.iter().any(|name| name == system.name)
    });
    systems.retain(|system| match system.needs {
        Some((program, package)) if Places::in_path(program).is_none() => {
            eprintln!("uvfs-bench: {} is left out: apt-get install {package}", system.name);
            false
        }
        _ => true,
    });
    let mut report = Report::new(source.name);
    let mut failures = Vec::new();
    for _ in 0..arguments.runs() {
        systems.retain(|system| match one_run(arguments, places, source, system, &mut report) {
            Ok(()) => true,
            Err(error) => {
                eprintln!("uvfs-bench: {}: {error}", system.name);
                failures.push(format!("{}: {error}", system.name));
                false
            }
        });
    }
    let mut out = io::stdout().lock();
    match arguments.json {
        true => report.write_json(&mut out)?,
        false => {
            println!("{}", machine::describe());
            let columns = [Column::Against(&["uvfs"])];
            let layout = Layout { columns: &columns, ..Layout::default() };
            report.write_tables(&layout, |_| true, &mut out)?;
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(io::Error::other(failures.join("; "))) }
}

/// All steps on a new mount of `system`.
fn one_run(
    arguments: &RemoteArguments,
    places: &Places,
    source: &Source<'_>,
    system: &System,
    report: &mut Report,
) -> io::Result<()> {
    let sizes = arguments.sizes();
    (source.forget_written)()?;
    let mountpoint = places.work.join(format!("{}-{}", source.name, system.name));
    let log = places.work.join(format!("{}-{}.log", source.name, system.name));
    let below = system.below.as_ref().map(|start| start()).transpose()?;
    let server = Server::start(&mut (system.command)(&mountpoint), mountpoint, &log)?;
    let root = server.mountpoint().display().to_string();
    let small = sizes.files * SMALL;
    let steps: [(&str, String, usize); 5] = [
        ("find", format!("find {root}/tree -type f | wc -l"), sizes.files),
        ("stat", format!("stat -c %s {root}/tree/*/* | awk '{{s += $1}} END {{print s}}'"), small),
        ("cat", format!("cat {root}/tree/*/* | wc -c"), small),
        ("large", format!("cat {root}/large | wc -c"), sizes.large_bytes),
        (
            "write",
            format!(
                "mkdir -p {root}/new && cp {root}/tree/d0/f0 {root}/new/0 && for i in $(seq 2 {WRITTEN}); do cp {root}/new/0 {root}/new/$i; done && ls {root}/new | wc -l"
            ),
            WRITTEN,
        ),
    ];
    for (step, script, expected) in steps {
        let times: &[&str] = if step == "write" { &[""] } else { &["-first", "-again"] };
        for time in times {
            let case = format!("{step}{time}");
            let before = (source.requests)();
            let began = Instant::now();
            let output = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).output()?;
            let took = began.elapsed();
            let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            if said != expected.to_string() {
                let errors = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                let message = format!("{case}: {said:?} and not {expected}: {errors}");
                return Err(io::Error::other(message));
            }
            report.sample(&case, system.name, 1, Unit::Seconds, took.as_secs_f64());
            if let (Some(before), Some(after)) = (before, (source.requests)()) {
                let case = format!("requests-{case}");
                report.sample(&case, system.name, 1, Unit::Entries, (after - before) as f64);
            }
        }
    }
    // The mount above ends first.
    drop(server);
    drop(below);
    Ok(())
}
