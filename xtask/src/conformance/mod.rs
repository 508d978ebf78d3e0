//! `cargo xtask conformance`: mounts each backend for real and runs the suites on it.
//!
//! # Boundary
//! Decides which suite runs on which backend, and counts. [`mount`] mounts, [`suite`] watches a suite; the tests are in
//! `tests/conformance`.
//!
//! # Concurrency
//! A thread for each backend, with one suite at a time: most of a suite is waiting. The threads share only the machine.
//! Ctrl-C sets a flag that every wait polls, so the mounts are always taken down.
//!
//! # Why
//! Each suite gets a fresh mount: a hanging suite is ended with its connection, and the next one has a sound mount. The
//! same suites run on a plain directory (`--host`), which is the oracle: a suite that fails there is wrong. Weakness:
//! needs root, because the suites change owners.

mod install;
mod mount;
mod suite;

use crate::steps;
use crate::tree;
use clap::{Args, ValueEnum};
use mount::{Mount, Watch};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Every suite, quickest first, with the seconds it may take: quick, full.
const SUITES: &[(&str, u64, u64)] = &[
    ("posix", 240, 480),
    ("pjdfstest", 180, 420),
    ("tree", 240, 600),
    ("git", 240, 600),
    ("sqlite", 240, 600),
    ("fsx", 240, 900),
    ("metadata", 240, 600),
    ("dbench", 180, 420),
];

/// One kind of mount.
#[derive(Debug, PartialEq, Eq)]
struct Kind {
    name: &'static str,
    backend: Backend,
    /// Options of the mount.
    options: &'static [&'static str],
    /// The only suite, with the only cases of it.
    only: Option<(&'static str, &'static str)>,
}

/// Results that depend on the path of data to a host directory: by the kernel alone, in requests, or through our pages.
const HABITS: Option<(&str, &str)> = Some(("posix", "habits."));

const KINDS: &[Kind] = &[
    Kind { name: "memory", backend: Backend::Memory, options: &[], only: None },
    Kind { name: "dir", backend: Backend::Dir, options: &[], only: None },
    Kind { name: "image", backend: Backend::Image, options: &[], only: None },
    Kind {
        name: "dir-requests",
        backend: Backend::Dir,
        options: &["--no-passthrough"],
        only: HABITS,
    },
    Kind {
        name: "dir-write-through",
        backend: Backend::Dir,
        options: &["--page-cache", "write-through"],
        only: HABITS,
    },
    Kind {
        name: "dir-write-back",
        backend: Backend::Dir,
        options: &["--page-cache", "write-back"],
        only: HABITS,
    },
];

/// The size of a disk image that a suite runs on; it takes as much as is written to it.
const IMAGE_SIZE: &str = "2G";

/// What to run, and on what.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Backends to mount.
    #[arg(long, value_enum, default_value = "all")]
    backend: Backend,
    /// Only this suite (may be repeated).
    #[arg(long, value_name = "NAME")]
    suite: Vec<String>,
    /// Short runs, as the gate does.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Full runs (the default).
    #[arg(long)]
    full: bool,
    /// Run on a plain host directory instead of a mount: the oracle.
    #[arg(long)]
    host: bool,
    /// Keep sources, mount points and logs.
    #[arg(long)]
    keep: bool,
    /// Where the host directories lie (default: below the build's target directory).
    #[arg(long, value_name = "DIRECTORY")]
    dir_parent: Option<PathBuf>,
    /// Use this `uvfs` instead of building one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// More options for `uvfs mount`, as one word each.
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    mount_option: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Backend {
    Memory,
    Dir,
    Image,
    All,
}

pub(crate) use install::missing as install;
pub(crate) use mount::impossible;
pub(crate) use suite::Score;

/// Runs the suites and fails when a case failed.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let suites = chosen(&options.suite)?;
    if let Some(why) = (!options.host).then(impossible).flatten() {
        println!("skipped: conformance: {why}");
        return Ok(());
    }
    let mut total = install(options.host);
    let watch = Watch::install()?;
    let place = Place::new(options)?;
    let targets = targets(options)?;
    let all = |target| all(&place, target, &suites, options, &watch);
    let all = &all;
    let scores = std::thread::scope(|scope| {
        let running: Vec<_> =
            targets.iter().map(|target| scope.spawn(move || all(target))).collect();
        let scores =
            running.into_iter().map(|running| running.join().map_err(|_| "a thread ended"));
        scores.collect::<Result<Vec<_>, _>>()
    })?;
    scores.into_iter().for_each(|score| total.add(score));
    if watch.interrupted() {
        place.remove(true);
        return Err("interrupted; everything is unmounted".into());
    }
    if !options.keep {
        place.remove(total.failed > 0);
    }
    println!("{total}");
    match total.failed {
        0 => Ok(()),
        failed => Err(format!("{failed} cases failed; logs below {}", place.logs.display())),
    }
}

/// Every suite on one target.
fn all(
    place: &Place,
    target: &Target,
    suites: &[Suite],
    options: &Options,
    watch: &Watch,
) -> Score {
    let mut total = Score::default();
    for (name, quick, full) in suites {
        let Some(cases) = target.cases(name) else { continue };
        let limit = Duration::from_secs(if options.quick { *quick } else { *full });
        total.add(one(place, target, (name, cases), limit, options, watch));
        if watch.interrupted() {
            break;
        }
    }
    total
}

/// The file system under a suite.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Host,
    Mounted { kind: &'static Kind, binary: PathBuf },
}

impl Target {
    fn name(&self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Mounted { kind, .. } => kind.name,
        }
    }

    /// Which cases of the suite `name` run here: none, or those that contain a text (which may be empty).
    fn cases(&self, name: &str) -> Option<&'static str> {
        match self {
            Self::Mounted { kind: Kind { only: Some((suite, cases)), .. }, .. } => {
                (*suite == name).then_some(cases)
            }
            _ => Some(""),
        }
    }
}

/// Directories of one run. Mount points lie in the temporary directory, which every user may search.
struct Place {
    logs: PathBuf,
    points: PathBuf,
    sources: PathBuf,
}

impl Place {
    fn new(options: &Options) -> Result<Self, String> {
        let base = steps::target().join("conformance");
        let parent = options.dir_parent.clone().unwrap_or_else(|| base.clone());
        let run = format!("run-{}", std::process::id());
        let place = Self {
            logs: base.join(&run).join("logs"),
            points: std::env::temp_dir().join(format!("uvfs-{run}")),
            sources: parent.join(&run).join("dirs"),
        };
        for directory in [&place.logs, &place.points, &place.sources] {
            fs::create_dir_all(directory).map_err(|error| shown(directory, &error))?;
        }
        Ok(place)
    }

    /// Removes remaining files; logs only after a run without failures. Mount points are removed one by one when empty,
    /// so a mount that could not be taken down loses nothing.
    fn remove(&self, keep_logs: bool) {
        for point in fs::read_dir(&self.points).into_iter().flatten().flatten() {
            let _ = fs::remove_dir(point.path());
        }
        let _ = fs::remove_dir(&self.points);
        let _ = fs::remove_dir_all(&self.sources);
        if !keep_logs {
            let _ = fs::remove_dir_all(&self.logs);
        }
        for run in [&self.sources, &self.logs].map(|below| below.parent()).into_iter().flatten() {
            let _ = fs::remove_dir(run);
        }
    }
}

/// One suite on one target: makes the place, runs, takes it down, prints the score.
fn one(
    place: &Place,
    target: &Target,
    (name, cases): (&str, &str),
    limit: Duration,
    options: &Options,
    watch: &Watch,
) -> Score {
    let start = Instant::now();
    let title = format!("{} {name}", target.name());
    let score = match prepared(place, target, name, options) {
        Ok((directory, mount)) => {
            let logs = &place.logs;
            let job = suite::Job { name, cases, directory: &directory, logs, title: &title, limit };
            let image = source(place, target, name).join("disk.img");
            let image = image.exists().then_some(&*image);
            judged(&job, mount, image, options.quick, watch)
        }
        Err(message) => Score::default().and_failed(&title, &message),
    };
    println!("{title}: {score} ({} s)", start.elapsed().as_secs());
    if !options.keep {
        let _ = fs::remove_dir_all(source(place, target, name));
    }
    score
}

/// Runs the suite and unmounts; a mount that died or cannot be unmounted is a separate failure.
fn judged(
    job: &suite::Job<'_>,
    mount: Option<Mount>,
    image: Option<&Path>,
    quick: bool,
    watch: &Watch,
) -> Score {
    let outcome = suite::run(job, quick, mount.as_ref(), watch);
    // An aborted mount has failed already; dropping it takes down the rest.
    let ended = match mount.filter(|_| !outcome.cut) {
        Some(mount) => mount.end().and_then(|()| match image {
            Some(image) => sound(image),
            None => Ok(()),
        }),
        None => Ok(()),
    };
    match ended {
        Ok(()) => outcome.score,
        Err(message) => outcome.score.and_failed(job.title, &message),
    }
}

/// A new disk image of ext4 in `folder`.
fn image(binary: &Path, folder: &Path) -> Result<PathBuf, String> {
    let path = folder.join("disk.img");
    let mut make = Command::new(binary);
    make.args(["image", "create", "--size", IMAGE_SIZE]).arg(&path).stdin(Stdio::null());
    let made = make.output().map_err(|error| shown(binary, &error))?;
    match made.status.success() {
        true => Ok(path),
        false => Err(String::from_utf8_lossy(&made.stderr).trim().to_owned()),
    }
}

/// The faults that e2fsck finds in an unmounted image.
fn sound(image: &Path) -> Result<(), String> {
    let done = Command::new("e2fsck").arg("-fn").arg(image).stdin(Stdio::null()).output();
    let done = done.map_err(|error| format!("e2fsck: {error}"))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!("e2fsck: {}", String::from_utf8_lossy(&done.stdout).trim())),
    }
}

/// A fresh directory to test: a plain one, or a new mount.
fn prepared(
    place: &Place,
    target: &Target,
    name: &str,
    options: &Options,
) -> Result<(PathBuf, Option<Mount>), String> {
    let source = source(place, target, name);
    fs::create_dir_all(&source).map_err(|error| shown(&source, &error))?;
    let Target::Mounted { kind, binary } = target else {
        return Ok((source, None));
    };
    let point = place.points.join(format!("{}-{name}", kind.name));
    fs::create_dir_all(&point).map_err(|error| shown(&point, &error))?;
    let source = match kind.backend {
        Backend::Memory => "memory:".to_owned(),
        Backend::Image => format!("image:{}", image(binary, &source)?.display()),
        Backend::Dir | Backend::All => format!("dir:{}", source.display()),
    };
    let log = place.logs.join(format!("{}-{name}.mount.log", kind.name));
    let mut given: Vec<_> = kind.options.iter().map(|&option| option.to_owned()).collect();
    given.extend_from_slice(&options.mount_option);
    let mount = Mount::new(binary, &source, &point, &given, &log)?;
    Ok((point, Some(mount)))
}

/// The host directory that `target` serves to the suite `name`, or that is tested itself.
fn source(place: &Place, target: &Target, name: &str) -> PathBuf {
    place.sources.join(format!("{}-{name}", target.name()))
}

fn targets(options: &Options) -> Result<Vec<Target>, String> {
    if options.host {
        return Ok(vec![Target::Host]);
    }
    let binary = match &options.binary {
        Some(binary) => fs::canonicalize(binary).map_err(|error| shown(binary, &error))?,
        None => built(options.quick)?,
    };
    let wanted = |kind: &&Kind| [kind.backend, Backend::All].contains(&options.backend);
    let mounted = |kind| Target::Mounted { kind, binary: binary.clone() };
    Ok(KINDS.iter().filter(wanted).map(mounted).collect())
}

/// A short run takes the build that the tests have made already: a release build takes longer than the
/// suites.
fn built(quick: bool) -> Result<PathBuf, String> {
    let mut build = steps::cargo();
    build.args(["build", "-p", "uvfs", "--bin", "uvfs"]);
    if !quick {
        build.arg("--release");
    }
    steps::step(&mut build)?;
    Ok(steps::target().join(if quick { "debug/uvfs" } else { "release/uvfs" }))
}

type Suite = (&'static str, u64, u64);

fn chosen(names: &[String]) -> Result<Vec<Suite>, String> {
    let known = |name: &String| SUITES.iter().find(|suite| suite.0 == name).copied();
    let unknown = |name: &String| {
        let all: Vec<_> = SUITES.iter().map(|suite| suite.0).collect();
        format!("no suite `{name}`; there are {}", all.join(", "))
    };
    if names.is_empty() {
        return Ok(SUITES.to_vec());
    }
    names.iter().map(|name| known(name).ok_or_else(|| unknown(name))).collect()
}

/// The folder of a suite's script.
fn scripts() -> PathBuf {
    tree::root().join("tests/conformance/suites")
}

fn shown(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_has_its_script_and_every_script_is_run() {
        let mut files: Vec<_> = fs::read_dir(scripts())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let mut names: Vec<_> = SUITES.iter().map(|suite| format!("{}.sh", suite.0)).collect();
        files.sort();
        names.sort();
        assert_eq!(files, names);
    }

    #[test]
    fn a_kind_with_cases_of_its_own_runs_nothing_else() {
        let target = |kind| Target::Mounted { kind, binary: PathBuf::new() };
        for kind in KINDS {
            let run = SUITES.iter().filter_map(|suite| target(kind).cases(suite.0));
            match kind.only {
                Some((_, cases)) => assert_eq!(run.collect::<Vec<_>>(), [cases], "{kind:?}"),
                None => assert!(run.eq(SUITES.iter().map(|_| "")), "{kind:?}"),
            }
        }
    }

    #[test]
    fn suites_are_chosen_by_name() {
        assert_eq!(chosen(&[]).unwrap().len(), SUITES.len());
        assert_eq!(chosen(&["git".into()]).unwrap()[0].0, "git");
        assert!(chosen(&["gti".into()]).unwrap_err().contains("there are posix"));
    }
}
