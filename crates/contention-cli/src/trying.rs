//! Commands that run a program several times and compare: `numa`, `sweep`, `what-if`, `advise`.
//!
//! # Boundary
//! Which runs are made, in which order; the library interprets them.

use super::flags::{AdviseArguments, NumaArguments, SweepArguments, WhatIfArguments};
use super::{machine, reading, running};
use crate::Failure;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use uvfs_coherence::Profile;
use uvfs_contention::Ledger;
use uvfs_contention::advise::{self, Advice};
use uvfs_contention::analysis::Estimate;
use uvfs_contention::gate;
use uvfs_contention::numa::numa as compare_nodes;
use uvfs_contention::report;
use uvfs_contention::run::{self, Output, Plan, metric::Metric};
use uvfs_contention::sweep::{Measurement, Work, sweep as evaluate};
use uvfs_contention::whatif::{self, Change, Evidence, Request};

/// The placeholder for the number of cores in a program's arguments.
const CORES: &[u8] = b"{cores}";

/// `uvfs contention numa`.
pub(super) fn numa(arguments: &NumaArguments) -> Result<ExitCode, Failure> {
    reading::check_room("--output", arguments.output.as_deref())?;
    reading::check_room("--html", arguments.form.html.as_deref())?;
    let mut plan = running::program(&arguments.program.program)?;
    running::set_machine(&mut plan, &arguments.machine)?;
    running::set_seeds(&mut plan, &arguments.seeds);
    plan.output = Output::Kept;
    let several = match (arguments.machine.nodes, plan.nodes) {
        (Some(1), _) => {
            return Err(Failure::usage(
                "--nodes 1: there is nothing to compare; name two nodes or more",
            ));
        }
        (None, 1) => 2,
        (_, nodes) => nodes,
    };
    let mut profiles = Vec::new();
    for nodes in [1, several] {
        // Distances of a file are for its own nodes.
        let machine = plan.machine.clone().with(plan.cores, nodes);
        let plan = Plan { nodes, machine, ..plan.clone() };
        let what = format!("{nodes} node{}", if nodes == 1 { "" } else { "s" });
        let profile = running::complete(&plan, &what)?;
        if let Some(output) = &arguments.output {
            let output = beside(output, &what.replace(' ', "-"));
            reading::check_room("--output", Some(&output))?;
            profile.write(output)?;
        }
        profiles.push(profile);
    }
    let numa = compare_nodes(&Ledger::new(&profiles[0]), &Ledger::new(&profiles[1]))?;
    if arguments.form.is_json() {
        reading::print_json(&numa)?;
    } else {
        crate::print_line(report::numa_text(&numa, &reading::plain_options()).trim_end());
    }
    if let Some(page) = &arguments.form.html {
        reading::write_page(page, &report::numa_html(&numa, &shown(&plan)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How a sweep counts work.
#[derive(Debug)]
enum Count {
    Auto,
    Fixed,
    PerCore,
    Counted,
    Printed(Metric),
}

impl Count {
    fn parse(text: &str) -> Result<Self, Failure> {
        match text {
            "auto" => Ok(Self::Auto),
            "fixed" => Ok(Self::Fixed),
            "per-core" => Ok(Self::PerCore),
            "counted" => Ok(Self::Counted),
            _ => match text.strip_prefix("stdout:") {
                Some(pattern) => Ok(Self::Printed(
                    Metric::parse(pattern)
                        .map_err(|error| Failure::usage(format!("--work {text}: {error}")))?,
                )),
                None => Err(Failure::usage(format!(
                    "--work {text}: unknown; write auto, fixed, per-core, counted or stdout:REGEX"
                ))),
            },
        }
    }
}

/// `uvfs contention sweep`.
pub(super) fn sweep(arguments: &SweepArguments) -> Result<ExitCode, Failure> {
    reading::check_room("--output", arguments.output.as_deref())?;
    reading::check_room("--html", arguments.form.html.as_deref())?;
    let counts = core_counts(&arguments.cores)?;
    let count = Count::parse(&arguments.work)?;
    let rules = arguments.gate.as_deref().map(reading::rules).transpose()?;
    let base = machine::of_file(&arguments.machine)?;
    let nodes = arguments.nodes.unwrap_or(base.nodes);
    let machines: Vec<_> =
        counts.iter().map(|cores| base.clone().with(*cores, nodes.min(*cores))).collect();
    for machine in &machines {
        machine.validate()?;
    }
    let mut plan = running::program(&arguments.program.program)?;
    running::set_seeds(&mut plan, &arguments.seeds);
    plan.output = Output::Kept;
    let mut measured = Vec::new();
    // Reasons why the sweep is not whole: a size whose runs fail, or Ctrl-C. The other sizes are shown.
    let mut lacks = Vec::new();
    for machine in machines {
        let cores = machine.cores;
        let args = plan.args.iter().map(|word| with_cores(word, cores)).collect();
        let plan = Plan { cores, nodes: machine.nodes, machine, args, ..plan.clone() };
        let what = format!("{cores} core{}", if cores == 1 { "" } else { "s" });
        let (profile, outputs) = match running::attempt_one(&plan, &what) {
            Ok(outcome) if outcome.interrupted => {
                lacks.push(format!("interrupted on {what}"));
                break;
            }
            Ok(outcome) => match run::complete(&plan, outcome) {
                Ok(done) => done,
                Err(error) => {
                    lacks.push(format!("{what}: {error}"));
                    continue;
                }
            },
            // A program that is refused on the first size is refused on all.
            Err(failure) if measured.is_empty() && lacks.is_empty() => return Err(failure),
            Err(failure) => {
                lacks.push(format!("{what}: {failure}"));
                break;
            }
        };
        if let Some(output) = &arguments.output {
            let output = beside(output, &format!("{cores}-cores"));
            reading::check_room("--output", Some(&output))?;
            profile.write(output)?;
        }
        let work = match &count {
            Count::Auto => Work::Auto,
            Count::Fixed => Work::Fixed,
            Count::PerCore => Work::PerCore,
            Count::Counted => Work::Counted,
            Count::Printed(metric) => Work::Metric(metric.values(&outputs)?),
        };
        measured.push((profile, work));
    }
    let lacks = lacks.join("; ");
    if measured.is_empty() {
        return Err(Failure::refused(lacks));
    }
    let measurements: Vec<_> = measured
        .iter()
        .map(|(profile, work)| Measurement { profile, work: work.clone() })
        .collect();
    let sweep = evaluate(&measurements)?;
    if let Some(page) = &arguments.form.html {
        reading::write_page(page, &report::sweep_html(&sweep, &shown(&plan)))?;
    }
    if arguments.form.is_json() {
        reading::print_json(&sweep)?;
    } else {
        crate::print_line(report::sweep_text(&sweep, &reading::plain_options()).trim_end());
    }
    if !lacks.is_empty() {
        let kept: Vec<_> = sweep.points.iter().map(|point| point.cores.to_string()).collect();
        return Err(Failure::refused(format!(
            "{lacks}; the sweep has the sizes {}",
            kept.join(", ")
        )));
    }
    match (&rules, &arguments.gate) {
        (Some(rules), Some(path)) => {
            let outcome = gate::check_sweep(&sweep, rules)?;
            if !arguments.form.is_json() {
                return reading::judge(&outcome, path, false);
            }
            // The object above is all that standard output has.
            for line in reading::verdicts(&outcome, path) {
                eprintln!("uvfs: {line}");
            }
            Ok(reading::status(&outcome))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// `1,2..8,48` is 1, 2, 4, 8 and 48.
fn core_counts(text: &str) -> Result<Vec<usize>, Failure> {
    let wrong = |why: &str| {
        Failure::usage(format!(
            "--cores {text}: {why}; write numbers from 1 to 1024, as in 1,2,4..128"
        ))
    };
    let number = |word: &str| match word.trim().parse::<usize>() {
        Ok(number @ 1..=1024) => Ok(number),
        _ => Err(wrong(&format!("`{}` is no number of cores", word.trim()))),
    };
    let mut counts = Vec::new();
    for part in text.split(',') {
        match part.split_once("..") {
            None => counts.push(number(part)?),
            Some((from, to)) => {
                let (mut at, to) = (number(from)?, number(to.trim_start_matches('='))?);
                if at > to {
                    return Err(wrong("a range goes upwards"));
                }
                while at < to {
                    counts.push(at);
                    at *= 2;
                }
                counts.push(to);
            }
        }
    }
    counts.sort_unstable();
    counts.dedup();
    Ok(counts)
}

/// `word` with the number in the place of `{cores}`.
fn with_cores(word: &OsStr, cores: usize) -> OsString {
    let mut bytes = word.as_bytes();
    let mut made = Vec::new();
    while let Some(at) = bytes.windows(CORES.len()).position(|window| window == CORES) {
        made.extend_from_slice(&bytes[..at]);
        made.extend_from_slice(cores.to_string().as_bytes());
        bytes = &bytes[at + CORES.len()..];
    }
    made.extend_from_slice(bytes);
    OsString::from_vec(made)
}

/// `FILE.tag.contention`.
fn beside(output: &Path, tag: &str) -> PathBuf {
    let stem = match output.extension() {
        Some(extension) if extension == "contention" => output.with_extension(""),
        _ => output.to_path_buf(),
    };
    let mut name = stem.into_os_string();
    name.push(format!(".{tag}.contention"));
    name.into()
}

fn shown(plan: &Plan) -> String {
    let words = plan.args.iter().map(|word| word.to_string_lossy().into_owned());
    std::iter::once(plan.program.display().to_string()).chain(words).collect::<Vec<_>>().join(" ")
}

/// `uvfs contention what-if`.
pub(super) fn what_if(arguments: &WhatIfArguments) -> Result<ExitCode, Failure> {
    let (changes, file) = match arguments.words.split_last() {
        Some((last, before)) if !last.contains("->") && !before.is_empty() => {
            (before, Some(Path::new(last)))
        }
        _ => (arguments.words.as_slice(), None),
    };
    let changes = parse(changes)?;
    reading::check_room("--output", arguments.output.as_deref())?;
    if let Some(file) = file
        && (arguments.machine.cores.is_some()
            || arguments.machine.nodes.is_some()
            || arguments.machine.file.machine.is_some())
    {
        let file = file.display();
        return Err(Failure::usage(format!(
            "{file} says the machine; leave out --cores, --nodes and --machine"
        )));
    }
    let base = file.map(Profile::read).transpose()?;
    let mut plan = running::program(&arguments.program)?;
    running::set_machine(&mut plan, &arguments.machine)?;
    running::set_seeds(&mut plan, &arguments.seeds);
    let base = base.map_or_else(|| base_of(&plan), Ok)?;
    try_changes(&plan, &base, &changes, arguments.output.as_deref(), arguments.form.json)
}

/// `--what-if` of `run` and `cargo`: the unchanged program, then the changes.
pub(super) fn with_layouts(
    plan: &Plan,
    changes: &[String],
    output: Option<&Path>,
    json: bool,
) -> Result<ExitCode, Failure> {
    let changes = parse(changes)?;
    reading::check_room("--output", output)?;
    let base = base_of(plan)?;
    try_changes(plan, &base, &changes, output, json)
}

fn parse(changes: &[String]) -> Result<Vec<Change>, Failure> {
    changes
        .iter()
        .map(|text| whatif::parse(text).map_err(|error| Failure::usage(error.to_string())))
        .collect()
}

fn base_of(plan: &Plan) -> Result<Profile, Failure> {
    running::complete(&Plan { output: Output::Kept, ..plan.clone() }, "as it is")
}

/// The plan that a request asks for.
fn requested(plan: &Plan, request: &Request) -> Result<Plan, Failure> {
    let first = request.seeds.iter().min().copied().unwrap_or(1);
    let seeds = u32::try_from(request.seeds.len()).unwrap_or(u32::MAX);
    if request.seeds.iter().max().is_some_and(|last| last - first + 1 != u64::from(seeds)) {
        return Err(Failure::refused(
            "the profile lacks a seed between its first and its last; make it again with all of them",
        ));
    }
    Ok(Plan {
        machine: request.machine.clone(),
        cores: request.machine.cores,
        nodes: request.machine.nodes,
        first_seed: first,
        seeds,
        layouts: request.layouts.clone(),
        modules: request.modules.clone(),
        what_if: request.what_if.clone(),
        output: Output::Kept,
        ..plan.clone()
    })
}

/// Tries each change, and all together if there are several.
fn try_changes(
    plan: &Plan,
    base: &Profile,
    changes: &[Change],
    output: Option<&Path>,
    json: bool,
) -> Result<ExitCode, Failure> {
    // All are read against the profile before anything runs.
    for change in changes {
        whatif::relayouts(base, change)?;
    }
    let mut found = Vec::new();
    let mut last = None;
    for change in changes {
        let request = whatif::request(base, std::slice::from_ref(change))?;
        let changed = running::complete(&requested(plan, &request)?, &change.text)?;
        found.push(whatif::evidence(base, &changed, change)?);
        last = Some(changed);
    }
    if changes.len() > 1 {
        let request = whatif::request(base, changes)?;
        let changed = running::complete(&requested(plan, &request)?, "all together")?;
        let mut all = whatif::evidence(base, &changed, &changes[0])?;
        all.change = "all together".into();
        all.bytes_per_object = found.iter().map(|one| one.bytes_per_object).sum();
        all.objects = found.iter().map(|one| one.objects).sum();
        found.push(all);
        last = Some(changed);
    }
    if let (Some(path), Some(profile)) = (output, &last) {
        profile.write(path)?;
    }
    if json {
        reading::print_json(&found)?;
    } else {
        let text: Vec<_> = found.iter().map(evidence_text).collect();
        crate::print_line(&text.join("\n"));
    }
    Ok(ExitCode::SUCCESS)
}

fn estimate(value: &Estimate) -> String {
    match value.plus_minus {
        Some(half) => format!("{:.0} ± {half:.0}", value.mean),
        None => format!("{:.0}", value.mean),
    }
}

/// The gain of a change, as text.
fn evidence_text(found: &Evidence) -> String {
    let verdict = match (found.significant, found.gain.mean > 0.0) {
        (Some(true), true) => "a gain: the 95 % interval of the difference excludes zero",
        (Some(true), false) => "a loss: the 95 % interval of the difference excludes zero",
        (Some(false), _) => "no difference that the spread of the seeds would show",
        (None, _) => "one seed: it may be jitter",
    };
    let ratio = found.ratio.as_ref().map_or(String::new(), |ratio| {
        let half = ratio.plus_minus.map_or(String::new(), |half| format!(" ± {:.1}", half * 100.0));
        format!(" ({:.1}{half} %)", ratio.mean * 100.0)
    });
    format!(
        "{}\n  cycles      {} -> {}{ratio}\n  transfers   {} -> {}\n  memory      {:+} bytes an object, {} object{}\n  \
         {verdict}\n",
        found.change,
        estimate(&found.base),
        estimate(&found.changed),
        estimate(&found.transfers.0),
        estimate(&found.transfers.1),
        found.bytes_per_object,
        found.objects,
        if found.objects == 1 { "" } else { "s" },
    )
}

/// The printed part of one advice.
#[derive(Debug, Serialize)]
struct Advised {
    #[serde(flatten)]
    advice: Advice,
    /// The gain of its layout, where it was tried.
    tried: Option<Evidence>,
    /// Why it could not be tried.
    not_tried: Option<String>,
}

/// `uvfs contention advise`.
pub(super) fn advise(arguments: &AdviseArguments) -> Result<ExitCode, Failure> {
    let profile = Profile::read(&arguments.file)?;
    let advice = advise::advise(&Ledger::new(&profile));
    let mut advised: Vec<_> = advice.into_iter().map(|advice| (advice, None)).collect();
    let mut not_tried = BTreeMap::new();
    if !arguments.program.is_empty() {
        let mut plan = running::program(&arguments.program)?;
        running::set_pace(&mut plan, &arguments.pace);
        for (advice, tried) in &mut advised {
            let mut refused = None;
            let what = advice.about.clone();
            let checked = advise::check(&profile, advice, |request| {
                let run =
                    requested(&plan, request).and_then(|plan| running::complete(&plan, &what));
                run.map_err(|failure| {
                    let line = failure.to_string();
                    refused = Some(failure);
                    uvfs_contention::Error::new(line)
                })
            });
            // A program that fails fails for all; a layout that cannot be tried is that advice's matter.
            if let Some(failure) = refused {
                return Err(failure);
            }
            match checked {
                Ok(found) => *tried = found,
                Err(error) => drop(not_tried.insert(what, error.to_string())),
            }
        }
    }
    let dropped = advise::judge(&mut advised);
    if arguments.form.json {
        let advised: Vec<_> = advised
            .into_iter()
            .map(|(advice, tried)| {
                let not_tried = not_tried.remove(&advice.about);
                Advised { advice, tried, not_tried }
            })
            .collect();
        reading::print_json(&advised)?;
        return Ok(ExitCode::SUCCESS);
    }
    for (about, why) in &not_tried {
        eprintln!("uvfs: the advice on {about} was not tried: {why}");
    }
    let options = reading::plain_options();
    let text = report::advise_text(&advised, &dropped, &profile.meta.command, &options);
    crate::print_line(text.trim_end());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_counts_double_within_a_range() {
        assert_eq!(core_counts("1,2,4..64").unwrap(), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(core_counts("3..20").unwrap(), [3, 6, 12, 20]);
        assert_eq!(core_counts("8, 2,8").unwrap(), [2, 8]);
        for wrong in ["", "0", "1,x", "8..2", "2000", "1..", "-1"] {
            assert!(core_counts(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_mention_of_the_cores_is_replaced() {
        assert_eq!(with_cores(OsStr::new("--n={cores}x{cores}"), 16), "--n=16x16");
        assert_eq!(with_cores(OsStr::new("{core}"), 16), "{core}");
    }

    #[test]
    fn profiles_of_a_series_lie_beside_each_other() {
        assert_eq!(
            beside(Path::new("a/b.contention"), "8-cores"),
            Path::new("a/b.8-cores.contention")
        );
        assert_eq!(beside(Path::new("a/b"), "1-node"), Path::new("a/b.1-node.contention"));
    }
}
