//! `uvfs contention run` and `record`, and the common parts of all commands that run programs.
//!
//! # Boundary
//! Flags to a [`Plan`], progress on a terminal, failures of runs in words. The runs are the library's.

use super::flags::{MachineFlags, PaceFlags, RecordArguments, RunArguments, SeedFlags, ShowFlags};
use super::{build, machine, reading, trying};
use crate::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use uvfs_coherence::file::DEFAULT_NAME;
use uvfs_coherence::profile::Mode;
use uvfs_coherence::{Machine, Profile};
use uvfs_contention::run::{self, Event, Go, Outcome, Output, Plan};
use uvfs_terminal::interrupt::Interrupt;

/// `uvfs contention run`.
pub(super) fn run(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    let mut plan = program(&arguments.program.program)?;
    set_machine(&mut plan, &arguments.machine)?;
    set_seeds(&mut plan, &arguments.seeds);
    plan.output = shown(&arguments.show);
    let output = arguments.profile.output.clone().unwrap_or_else(|| DEFAULT_NAME.into());
    if !arguments.layout.what_if.is_empty() {
        return trying::with_layouts(
            &plan,
            &arguments.layout.what_if,
            Some(&output),
            arguments.show.form.is_json(),
        );
    }
    run_and_show(&plan, &output, &arguments.show)
}

/// `uvfs contention record`.
pub(super) fn record(arguments: &RecordArguments) -> Result<ExitCode, Failure> {
    let mut plan = program(&arguments.program.program)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    plan.machine = Machine { name: "this machine, its costs assumed".into(), ..Machine::default() };
    (plan.cores, plan.nodes, plan.seeds, plan.mode) = (cores, 1, 1, Mode::Recorded);
    plan.output = shown(&arguments.show);
    eprintln!(
        "uvfs: real threads on {cores} cores of this machine: what is seen depends on its load, and differs from \
         run to run"
    );
    let output = arguments.profile.output.clone().unwrap_or_else(|| DEFAULT_NAME.into());
    run_and_show(&plan, &output, &arguments.show)
}

fn run_and_show(plan: &Plan, output: &Path, show: &ShowFlags) -> Result<ExitCode, Failure> {
    let options = reading::options(show)?;
    reading::check_room("--output", Some(output))?;
    reading::check_room("--html", show.form.html.as_deref())?;
    // A refused plan is not announced.
    run::check(plan)?;
    if let Some(text) = beforehand(plan, is_pipe()) {
        eprintln!("uvfs: {text}");
    }
    let outcome = attempt(plan)?;
    if let Some(profile) = &outcome.profile {
        keep_old(output);
        profile.write(output)?;
        reading::show(profile, show, &options)?;
        if !show.form.is_json() {
            eprintln!("uvfs: {}: the profile", output.display());
        }
    }
    let status = tell(&plan.program, &outcome);
    if outcome.interrupted {
        let kept = outcome.profile.as_ref().map_or(0, |profile| profile.runs.len());
        return Err(Failure::refused(format!(
            "{}: interrupted; the profile has the {kept} of {} runs that had ended",
            plan.program.display(),
            plan.seeds
        )));
    }
    Ok(status)
}

/// The notice before a run of a program that writes files or reads from a pipe: it is run once per seed.
fn beforehand(plan: &Plan, pipe: bool) -> Option<String> {
    if plan.seeds < 2 {
        return None;
    }
    let input = if pipe {
        "; standard input is a pipe, which only the first reads: give it as a file, < FILE"
    } else {
        ""
    };
    Some(format!(
        "{} is run {} times, once per seed, and does all that it does as often (--seeds 1: once){input}",
        plan.program.display(),
        plan.seeds
    ))
}

/// Whether standard input can be read by one run only.
fn is_pipe() -> bool {
    std::fs::metadata("/proc/self/fd/0").is_ok_and(|found| found.file_type().is_fifo())
}

/// Keeps the present profile beside the new one, as `NAME.old`; if it cannot be renamed, it is overwritten. A file of
/// that name that is no profile stays.
fn keep_old(profile: &Path) {
    let mut old = profile.as_os_str().to_owned();
    old.push(".old");
    if profile.is_file() && reading::is_room_for_profile(Path::new(&old)) {
        let _ = std::fs::rename(profile, old);
    }
}

/// Reports failed runs; returns the exit status.
pub(super) fn tell(program: &Path, outcome: &Outcome) -> ExitCode {
    for remark in &outcome.remarks {
        eprintln!("uvfs: {remark}");
    }
    for failure in &outcome.failures {
        if !failure.output.is_empty() {
            eprint!("{}", failure.output);
            if !failure.output.ends_with('\n') {
                eprintln!();
            }
        }
        eprintln!("uvfs: {}, seed {}: {}", program.display(), failure.seed, failure.cause);
    }
    match outcome.failures.first() {
        None => ExitCode::SUCCESS,
        Some(failure) => ExitCode::from(failure.status.max(1)),
    }
}

/// A plan for the words of a command line: a program with its arguments, or a cargo command, whose program is
/// built and found.
pub(super) fn program(words: &[OsString]) -> Result<Plan, Failure> {
    // clap takes the first `--`, not one behind an option that it does not know.
    let words = if words.first().is_some_and(|word| word == "--") { &words[1..] } else { words };
    let Some((first, rest)) = words.split_first() else {
        return Err(Failure::usage("no program; write it and its arguments behind --"));
    };
    if first == OsStr::new("cargo") {
        return build::find(rest);
    }
    Ok(Plan::new(PathBuf::from(first), rest.to_vec()))
}

/// Takes the machine that `flags` name.
pub(super) fn set_machine(plan: &mut Plan, flags: &MachineFlags) -> Result<(), Failure> {
    plan.machine = machine::of_flags(flags)?;
    (plan.cores, plan.nodes) = (plan.machine.cores, plan.machine.nodes);
    Ok(())
}

/// Takes the seeds and how they are run.
pub(super) fn set_seeds(plan: &mut Plan, flags: &SeedFlags) {
    plan.seeds = flags.seeds;
    plan.first_seed = flags.first_seed;
    set_pace(plan, &flags.pace);
}

/// Takes how each seed is run.
pub(super) fn set_pace(plan: &mut Plan, flags: &PaceFlags) {
    plan.slack = flags.slack;
    plan.watchdog_seconds = flags.watchdog;
    plan.compute = flags.compute;
    plan.jobs = flags.jobs.map_or(0, |jobs| jobs as usize);
}

/// Where the output of the first run goes.
pub(super) fn shown(show: &ShowFlags) -> Output {
    if show.form.is_json() { Output::FirstOnStandardError } else { Output::First }
}

/// Runs `plan` with progress on a terminal, until Ctrl-C.
pub(super) fn attempt(plan: &Plan) -> Result<Outcome, Failure> {
    attempt_one(plan, "")
}

/// Runs `plan` and fails unless every run ends well.
pub(super) fn complete(plan: &Plan, what: &str) -> Result<Profile, Failure> {
    let mut watcher = Watcher::new(what)?;
    Ok(run::run(plan, &mut |event| watcher.see(event))?)
}

/// Runs one of several plans, each of which has its own progress.
pub(super) fn attempt_one(plan: &Plan, what: &str) -> Result<Outcome, Failure> {
    let mut watcher = Watcher::new(what)?;
    Ok(run::attempt(plan, &mut |event| watcher.see(event))?)
}

/// Shows how far the runs are, and listens for Ctrl-C.
#[derive(Debug)]
pub(super) struct Watcher {
    interrupt: Interrupt,
    bar: ProgressBar,
    first_seed: Option<u64>,
    first_ended: bool,
    quiet_until_first: bool,
}

impl Watcher {
    /// `what` is the purpose of the runs. It is empty where the program itself writes to the terminal; then no progress is
    /// shown until its run has ended.
    pub(super) fn new(what: &str) -> Result<Self, Failure> {
        let bar = ProgressBar::hidden();
        let style = ProgressStyle::with_template("{msg} {bar:24} {pos}/{len} seeds, {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(if what.is_empty() { "other runs".to_string() } else { what.to_string() });
        Ok(Self {
            interrupt: Interrupt::by_signals().map_err(Failure::refused)?,
            bar,
            first_seed: None,
            first_ended: false,
            quiet_until_first: what.is_empty(),
        })
    }

    pub(super) fn see(&mut self, event: Event) -> Go {
        match event {
            Event::Planned(seeds) => self.bar.set_length(u64::from(seeds)),
            Event::Ended(seed) => {
                self.bar.inc(1);
                self.first_ended |= self.first_seed == Some(seed) || self.bar.position() > 1;
                let may_show = self.first_ended || !self.quiet_until_first;
                if may_show && self.bar.is_hidden() && std::io::stderr().is_terminal() {
                    self.bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
                }
            }
            // Runs begin in the order of their seeds.
            Event::Began(seed) => self.first_seed = self.first_seed.or(Some(seed)),
            Event::Waiting => {}
            Event::Naming => self.bar.finish_and_clear(),
        }
        if self.interrupt.is_set() { Go::Stop } else { Go::On }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that wrote its output file eight times, and read its input once, was a surprise.
    #[test]
    fn several_runs_are_said_beforehand() {
        let plan = |seeds| Plan { seeds, ..Plan::new("prog", Vec::new()) };
        assert_eq!(beforehand(&plan(1), true), None);
        let said = beforehand(&plan(8), false).expect("eight runs");
        assert!(said.contains("prog is run 8 times") && !said.contains("pipe"), "{said}");
        assert!(beforehand(&plan(8), true).expect("eight runs").contains("< FILE"));
    }

    #[test]
    fn the_profile_before_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("uvfs.contention");
        keep_old(&path);
        std::fs::write(&path, "one").expect("written");
        keep_old(&path);
        assert!(!path.exists());
        let old = folder.path().join("uvfs.contention.old");
        assert_eq!(std::fs::read(&old).expect("kept"), b"one");
        // This one is no profile, so it is not replaced.
        std::fs::write(&path, "two").expect("written");
        keep_old(&path);
        assert_eq!(std::fs::read(&old).expect("kept"), b"one");
    }
}
