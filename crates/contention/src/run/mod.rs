//! Runs a program on the simulated machine, once for each seed, and gives one profile.
//!
//! # Boundary
//! [`Plan`] to [`Profile`]: refuses plans that cannot be run ([`program`]), starts and ends processes
//! ([`process`]), puts their profiles together ([`merge`]) and has them named ([`crate::names`]). The
//! runtime acts within a run; [`session`] is for programs that cargo starts.
//!
//! # Concurrency
//! Seeds are processes, several at once; one thread looks after them. They share the folder they are started
//! in and nothing of ours.
//!
//! # Why
//! One run of a contended lock proves nothing: a table shows a mean with its spread, so the seeds are
//! part of a run and not a loop around it. Weakness: a program that writes files or takes a port does so
//! once for each seed; `--jobs 1` has them do it one after the other.

pub mod merge;
pub mod metric;
pub mod process;
pub mod program;
pub mod session;

use crate::Error;
use crate::embed::Runtime;
use crate::names;
use process::{Ended, Running, Surroundings};
use program::Program;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use uvfs_coherence::configuration::{Configuration, Relayout};
use uvfs_coherence::profile::{Mode, Run};
use uvfs_coherence::{Machine, Profile};

/// Cycles that a plain access may be ahead by default; see [`Plan::slack`].
pub const SLACK: u64 = 100;
/// Seconds of [`Plan::watchdog_seconds`] by default.
pub const WATCHDOG_SECONDS: u64 = 60;
/// Seeds of a run by default; fewer give no spread worth printing.
pub const SEEDS: u32 = 8;
/// How long the driver sleeps between two looks at its processes.
const LOOK: Duration = Duration::from_millis(4);

/// The program, the manner and the number of its runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The program: a path, or a name to be found in `PATH`.
    pub program: PathBuf,
    /// The program's arguments.
    pub args: Vec<OsString>,
    /// Cores of the machine.
    pub cores: usize,
    /// Memory nodes of the machine.
    pub nodes: usize,
    /// How many runs.
    pub seeds: u32,
    /// The seed of the first; the others follow.
    pub first_seed: u64,
    /// The machine, but for its cores and nodes.
    pub machine: Machine,
    /// Cycles that a plain access may be ahead of the slowest core before that one goes first.
    pub slack: u64,
    /// Whether computing between accesses is charged; see [`Configuration::compute`].
    pub compute: bool,
    /// Modules of the profile that [`Plan::layouts`] were made from.
    pub modules: Vec<PathBuf>,
    /// Layouts to try.
    pub layouts: Vec<Relayout>,
    /// The layout changes, as the user wrote them.
    pub what_if: Vec<String>,
    /// Seconds of processor time that a thread may spend in code that is not instrumented while others could
    /// run; then the runtime ends the program. Zero: any.
    pub watchdog_seconds: u64,
    /// Processes at once; zero: as many as the host has cores.
    pub jobs: usize,
    /// Simulated, or recorded from real threads.
    pub mode: Mode,
    /// The environment; `None`: that of this process.
    pub env: Option<Vec<(OsString, OsString)>>,
    /// The folder to run in; `None`: that of this process.
    pub folder: Option<PathBuf>,
    /// The destination of the program's own output.
    pub output: Output,
}

/// The destination of a program's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Output {
    /// The output of the first seed is shown unchanged.
    First,
    /// The output of the first seed is shown, all of it on standard error.
    FirstOnStandardError,
    /// It is kept in [`Outcome::outputs`].
    Kept,
}

impl Plan {
    /// `program` with `args` on the default machine.
    pub fn new(program: impl Into<PathBuf>, args: Vec<OsString>) -> Self {
        let machine = Machine::default();
        Self {
            program: program.into(),
            args,
            cores: machine.cores,
            nodes: machine.nodes,
            seeds: SEEDS,
            first_seed: 1,
            machine,
            slack: SLACK,
            modules: Vec::new(),
            layouts: Vec::new(),
            what_if: Vec::new(),
            compute: false,
            watchdog_seconds: WATCHDOG_SECONDS,
            jobs: 0,
            mode: Mode::Simulated,
            env: None,
            folder: None,
            output: Output::Kept,
        }
    }

    fn jobs(&self) -> usize {
        match self.jobs {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            jobs => jobs,
        }
    }

    fn configuration(
        &self,
        machine: &Machine,
        program: &Program,
        seed: u64,
        profile: PathBuf,
    ) -> Configuration {
        let words = std::iter::once(program.path.as_os_str())
            .chain(self.args.iter().map(OsString::as_os_str));
        Configuration {
            mode: self.mode,
            seed,
            machine: machine.clone(),
            profile,
            command: words.map(|word| word.to_string_lossy().into_owned()).collect(),
            slack: self.slack,
            modules: self.modules.clone(),
            layouts: self.layouts.clone(),
            what_if: self.what_if.clone(),
            compute: self.compute,
            watchdog_seconds: self.watchdog_seconds,
        }
    }
}

/// The events of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// So many runs there will be.
    Planned(u32),
    /// A run began.
    Began(u64),
    /// The run of this seed has ended.
    Ended(u64),
    /// Nothing happened; asked every few milliseconds.
    Waiting,
    /// The runs are over; names are looked up.
    Naming,
}

/// The listener's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Go {
    /// Go on.
    On,
    /// End the runs, and stop.
    Stop,
}

/// The listener for [`Event`]s.
pub type Progress<'a> = &'a mut dyn FnMut(Event) -> Go;

/// A run that did not end well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// The exit status, or 128 and the signal's number.
    pub status: u8,
    /// The event, without the program's name.
    pub cause: String,
    /// The end of its output, if that was not shown.
    pub output: String,
}

/// All runs of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// All that left a profile, together and named; `None` when none did.
    pub profile: Option<Profile>,
    /// Those that did not end well, whether or not they left a profile.
    pub failures: Vec<Failure>,
    /// Standard output by seed, of [`Output::Kept`].
    pub outputs: Vec<(u64, String)>,
    /// The objects that could not be named, in words; empty when all could.
    pub remarks: Vec<String>,
    /// Whether [`Go::Stop`] ended the runs before all had ended by themselves: those that had are here.
    pub interrupted: bool,
}

/// Runs `plan`; all runs have to end well.
///
/// # Errors
/// The errors of [`attempt`], and a run that failed, with its seed.
pub fn run(plan: &Plan, progress: Progress<'_>) -> Result<Profile, Error> {
    complete(plan, attempt(plan, progress)?).map(|(profile, _)| profile)
}

/// The profile of an outcome in which all runs ended well, with their standard output, by seed.
///
/// # Errors
/// A run that failed, with its seed, or that the runs were interrupted.
pub fn complete(plan: &Plan, outcome: Outcome) -> Result<(Profile, Vec<(u64, String)>), Error> {
    let name = plan.program.display();
    if outcome.interrupted {
        return Err(interrupted(plan));
    }
    match (outcome.failures.first(), outcome.profile) {
        (Some(failure), _) => {
            let said = failure.output.lines().rfind(|line| !line.trim().is_empty());
            let said = said.map(|line| format!(" ({line})")).unwrap_or_default();
            Err(Error::new(format!("{name}, seed {}: {}{said}", failure.seed, failure.cause)))
        }
        (None, Some(profile)) => Ok((profile, outcome.outputs)),
        (None, None) => Err(Error::new(format!("{name}: no run left a profile"))),
    }
}

/// Whether the program of `plan` can be run here at all; the error has the reason and the remedy. Starts nothing.
pub fn check(plan: &Plan) -> Result<(), Error> {
    Program::find(&plan.program).map(|_| ())
}

/// Runs `plan`, and says of each run that failed how.
///
/// # Errors
/// The program or the machine is refused, nothing could be started, or [`Go::Stop`] came before any run had ended.
pub fn attempt(plan: &Plan, progress: Progress<'_>) -> Result<Outcome, Error> {
    let machine = plan.machine.clone().with(plan.cores, plan.nodes);
    machine.validate()?;
    let program = Program::find(&plan.program)?;
    let runtime = Runtime::install()?;
    let surroundings = Surroundings::new(&runtime)?;
    let seeds = plan.first_seed..plan.first_seed.saturating_add(u64::from(plan.seeds));
    let mut waiting: VecDeque<u64> = seeds.collect();
    let mut running: Vec<Running> = Vec::new();
    let mut ended: Vec<Ended> = Vec::new();
    let mut go = progress(Event::Planned(plan.seeds));
    while go == Go::On && !(waiting.is_empty() && running.is_empty()) {
        go = progress(Event::Waiting);
        while running.len() < plan.jobs() {
            let Some(seed) = waiting.pop_front() else { break };
            let shown = seed == plan.first_seed;
            let configuration =
                plan.configuration(&machine, &program, seed, surroundings.file(seed, "contention"));
            running.push(Running::start(plan, &program, &surroundings, &configuration, shown)?);
            go = progress(Event::Began(seed)).max_stop(go);
        }
        let before = running.len();
        let mut still = Vec::new();
        for mut run in running {
            match run.look()? {
                None => still.push(run),
                Some(end) => {
                    go = progress(Event::Ended(end.seed)).max_stop(go);
                    ended.push(end);
                }
            }
        }
        running = still;
        if running.len() == before {
            std::thread::sleep(LOOK);
        }
    }
    if go == Go::Stop {
        Running::end_all(running);
        // Ctrl-C also goes to the programs: those that it ended are no failures.
        ended.retain(|end| !SIGNALS.contains(&end.status));
        if ended.is_empty() {
            return Err(interrupted(plan));
        }
    }
    progress(Event::Naming);
    ended.sort_by_key(|end| end.seed);
    Ok(Outcome { interrupted: go == Go::Stop, ..gather(&program, ended)? })
}

/// The statuses of a program that SIGINT or SIGTERM ended.
const SIGNALS: [u8; 2] = [128 + 2, 128 + 15];

fn interrupted(plan: &Plan) -> Error {
    Error::new(format!("{}: interrupted; nothing was written", plan.program.display()))
}

impl Go {
    fn max_stop(self, other: Self) -> Self {
        if self == Self::Stop { self } else { other }
    }
}

/// Merges the results of the runs.
fn gather(program: &Program, ended: Vec<Ended>) -> Result<Outcome, Error> {
    let mut profiles = Vec::new();
    let mut outcome = Outcome {
        profile: None,
        failures: Vec::new(),
        outputs: Vec::new(),
        remarks: Vec::new(),
        interrupted: false,
    };
    for end in ended {
        let Ended { seed, status, profile, output, mut failure } = end;
        match profile {
            Ok(mut profile) => {
                if let Some(run) = profile.runs.iter_mut().find(|run: &&mut Run| run.seed == seed) {
                    run.status = Some(i32::from(status));
                }
                profiles.push(profile);
            }
            Err(error) => {
                // A run that died has said why already.
                failure.get_or_insert(Failure {
                    seed,
                    status: status.max(1),
                    cause: error.to_string(),
                    output: String::new(),
                });
            }
        }
        outcome.failures.extend(failure);
        outcome.outputs.extend(output.map(|output| (seed, output)));
    }
    if !profiles.is_empty() {
        let mut profile = merge::merge(profiles)?;
        let missing = names::name(&mut profile)?;
        if !program.debug {
            outcome.remarks.push(format!(
                "{}: no debug information, so fields have no names; build it with -g, and do not strip it",
                program.path.display()
            ));
        } else {
            outcome.remarks.extend(remarks(&missing));
        }
        outcome.profile = Some(profile);
    }
    Ok(outcome)
}

/// Gaps that a user can close: the system's own libraries have no types, and need none.
fn remarks(missing: &names::Missing) -> Vec<String> {
    let of_system =
        |path: &str| ["/lib", "/usr/lib", "["].iter().any(|start| path.starts_with(start));
    missing
        .modules
        .iter()
        .filter(|module| !of_system(&module.path) && !module.path.ends_with(crate::embed::LIBRARY))
        .map(|module| format!("{}: {}; {}", module.path, module.reason, module.reason.remedy()))
        .collect()
}
