//! Builds programs like `uvfs contention cc` and `uvfs contention cargo`, and runs them.
//!
//! # Boundary
//! Knows the places of sources in this repository. Runs programs only through `uvfs_contention::run`.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use uvfs_coherence::machine::Parameter;
use uvfs_coherence::{Machine, Profile};
use uvfs_contention::build::cargo::{Invocation, Setup};
use uvfs_contention::build::{compiler, flags};
use uvfs_contention::run::{self, Go, Plan};
use uvfs_contention::sweep::{Measurement, Sweep, Work, classify, fit, sweep};

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// So small that figures mean nothing.
    Tiny,
    /// Some core counts.
    Quick,
    /// All.
    Full,
}

/// Where programs are built and how they are run.
#[derive(Debug)]
pub(super) struct Workshop {
    folder: PathBuf,
    /// Runs of each program.
    pub(super) seeds: u32,
    /// How much is done.
    pub(super) size: Size,
}

/// A profile with the program's output in each of its runs.
pub(super) type Ran = (Profile, Vec<String>);

impl Workshop {
    /// A folder in the target folder; the contents of the last run are used again.
    pub(super) fn new(seeds: u32, size: Size) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let profile = program.ancestors().skip(1).find(|folder| !folder.ends_with("deps"));
        let target = profile.and_then(Path::parent).unwrap_or(Path::new("target"));
        let folder = target.join("uvfs-bench-contention");
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder, seeds, size })
    }

    /// The folder of built programs and of their inputs.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Core counts of a curve.
    pub(super) fn cores(&self) -> &'static [usize] {
        match self.size {
            Size::Tiny => &[1, 4],
            Size::Quick => &[1, 4, 16, 64],
            Size::Full => &[1, 2, 4, 8, 16, 32, 64, 128],
        }
    }

    /// The core count for tables of single lines, at most `wanted`.
    pub(super) fn at_most(&self, wanted: usize) -> usize {
        if self.size == Size::Tiny { 4 } else { wanted }
    }

    /// The machine without its cores: the default one, with free thread creation, which would otherwise dominate
    /// programs that run for a virtual millisecond.
    pub(super) fn machine(&self) -> Machine {
        let mut machine = Machine::default();
        machine.cost.thread_create = Parameter::assumed(20.0);
        machine.cost.thread_start = Parameter::assumed(100.0);
        machine
    }

    /// Compiles C sources into the program `name`.
    pub(super) fn c(&self, name: &str, sources: &[PathBuf], flags: &[&str]) -> io::Result<PathBuf> {
        let program = self.folder.join(format!("{name}{}", flags.concat()));
        let mut words: Vec<OsString> = ["-O2", "-g", "-pthread"].map(OsString::from).into();
        words.extend(flags.iter().map(OsString::from));
        words.extend(sources.iter().map(OsString::from));
        words.extend(["-o".into(), program.clone().into()]);
        match compiler::run(&["gcc".to_owned()], &words).map_err(io::Error::other)? {
            0 => Ok(program),
            status => Err(io::Error::other(format!("gcc: {name}: status {status}"))),
        }
    }

    /// Builds with cargo in release; returns the folder of the programs.
    pub(super) fn cargo(&self, manifest: &Path, what: &[&str]) -> io::Result<PathBuf> {
        let mut words: Vec<OsString> = ["build", "--release", "--quiet"].map(OsString::from).into();
        words.extend(what.iter().map(OsString::from));
        words.extend(["--manifest-path".into(), manifest.into()]);
        words.extend(["--target-dir".into(), self.folder.clone().into()]);
        let setup = Invocation::parse(&words).and_then(Setup::prepare).map_err(io::Error::other)?;
        let mut command = setup.command(&["env".to_owned()]).map_err(io::Error::other)?;
        let status = command.stdin(Stdio::null()).status()?;
        if !status.success() {
            return Err(io::Error::other(format!("{}: cargo: {status}", manifest.display())));
        }
        Ok(setup.folder.join(flags::TARGET).join("release"))
    }

    /// A plan for `program` on `cores`: one node for up to seven, two for more, like a server.
    pub(super) fn plan(&self, program: &Path, cores: usize, args: &[String]) -> Plan {
        Plan {
            cores,
            nodes: if cores < 8 { 1 } else { 2 },
            seeds: self.seeds,
            machine: self.machine(),
            ..Plan::new(program, args.iter().map(OsString::from).collect())
        }
    }

    /// Runs a plan; every run has to end well.
    pub(super) fn run(&self, plan: &Plan) -> io::Result<Ran> {
        let ran =
            run::attempt(plan, &mut |_| Go::On).and_then(|outcome| run::complete(plan, outcome));
        let ran = ran.map_err(io::Error::other)?;
        Ok((ran.0, ran.1.into_iter().map(|(_, text)| text).collect()))
    }

    /// Runs `program` on each core count.
    pub(super) fn runs(&self, program: &Path, args: &[String]) -> io::Result<Vec<Ran>> {
        let cores = self.cores().iter();
        cores.map(|&cores| self.run(&self.plan(program, cores, args))).collect()
    }
}

/// The curve of runs in which each core did the same, with its class and its law.
pub(super) fn curve(ran: &[Ran], work: impl Fn(&Ran) -> Work) -> io::Result<Sweep> {
    let measured: Vec<Measurement<'_>> =
        ran.iter().map(|one| Measurement { profile: &one.0, work: work(one) }).collect();
    let mut sweep = sweep(&measured).map_err(io::Error::other)?;
    // A sweep gives no class where computing costs a flat sum. What bends these curves is sharing, not computing.
    let points: Vec<_> = sweep.points.iter().map(|at| (at.cores, at.by_seed.clone())).collect();
    sweep.shape = Some(classify(&points).0);
    let means: Vec<_> =
        sweep.points.iter().map(|at| (at.cores as f64, at.throughput.mean)).collect();
    sweep.law = fit(&means);
    Ok(sweep)
}

/// A folder of this repository.
pub(super) fn repository(path: &str) -> PathBuf {
    uvfs_bench_kit::repository().join(path)
}
