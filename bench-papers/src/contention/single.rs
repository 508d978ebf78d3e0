//! One thread's simulated time beside the time it takes on this machine, of twenty programs and of ten held out.
//!
//! # Why
//! The cost charged between accesses decides the shape of every curve of a program that computes. The clock and the two
//! latencies beyond the private cache are measured natively, by programs that are not among the twenty. All else is the
//! default machine, whose `pipeline` was tuned on these twenty: they prove nothing for other programs. The ten
//! (`held_out.c`) were written after it, and nothing was changed for them. Both sides run one warm-up round: a
//! processor that sees the same input often enough predicts its branches. Weakness: a busy machine, or another user of
//! its last-level cache, changes the native side.

use super::programs::{Size, Workshop, repository};
use super::{Pages, tables};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use uvfs_bench_kit::report::Unit;
use uvfs_coherence::Machine;
use uvfs_coherence::machine::Parameter;
use uvfs_contention::run::Plan;

/// A root is an instruction, and no library is needed.
const ROOT_INLINE: &str = "-fno-math-errno";
/// How far simulated time may be from native.
const MOST: f64 = 0.25;
/// Programs of the aim; the one after them is known to miss it.
const PROGRAMS: usize = 20;
/// Native processes, of which the median counts; of the measured parameters, rounds of which the quickest counts.
const ROUNDS: usize = 31;

pub(super) fn run(workshop: &Workshop, pages: &mut Pages) -> io::Result<()> {
    let rounds = if workshop.size == Size::Tiny { 1 } else { ROUNDS };
    let tuned = Programs::new(workshop, "single")?;
    let machine = this_machine(&tuned.native, rounds)?;
    pages.text(&tables::title("One thread: simulated time and this machine's"))?;
    pages.text(&format!(
        "{:.0} MHz, last level {:.0} cycles, memory {:.0} cycles, as measured here.\n\n",
        machine.megahertz.value,
        machine.latency.last_level.value,
        machine.latency.local_memory.value,
    ))?;
    compare(workshop, pages, &machine, &tuned, rounds)?;
    pages.text("\nHeld out: no parameter was chosen by these.\n\n")?;
    compare(workshop, pages, &machine, &Programs::new(workshop, "held_out")?, rounds)
}

/// One source, for the simulated machine and for this one.
struct Programs {
    simulated: PathBuf,
    native: PathBuf,
}

impl Programs {
    fn new(workshop: &Workshop, name: &str) -> io::Result<Self> {
        let source = repository(&format!("tests/contention/known/{name}.c"));
        let simulated = workshop.c(name, std::slice::from_ref(&source), &[ROOT_INLINE])?;
        let native = simulated.with_file_name(format!("{name}-plain"));
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-g", ROOT_INLINE, "-o"]).arg(&native).arg(&source);
        match gcc.status()?.success() {
            true => Ok(Self { simulated, native }),
            false => Err(io::Error::other(format!("gcc: {}", source.display()))),
        }
    }

    /// Nanoseconds of a turn on this machine: the median of so many processes, each with the work of the simulated one.
    fn native(&self, kind: &str, rounds: usize) -> io::Result<f64> {
        let mut all = Vec::new();
        for _ in 0..rounds {
            all.push(nanoseconds(&output(Command::new(&self.native).args([kind, "1"]))?)?);
        }
        all.sort_by(f64::total_cmp);
        Ok(all[all.len() / 2])
    }
}

fn compare(
    workshop: &Workshop,
    pages: &mut Pages,
    machine: &Machine,
    programs: &Programs,
    rounds: usize,
) -> io::Result<()> {
    let mut ratios = BTreeMap::new();
    let mut text =
        tables::head(&["program", "native", "simulated", "ratio", "accesses only", "ratio"]);
    let list = output(Command::new(&programs.native).arg("list"))?;
    for (number, line) in list.lines().enumerate() {
        let (name, what) = line.split_once('\t').unwrap_or((line, ""));
        // Without optimisation, a walk of a large memory takes minutes.
        if workshop.size == Size::Tiny
            && !["sum", "multiply-chain", "quarter-round"].contains(&name)
        {
            continue;
        }
        let took = programs.native(name, rounds)?;
        let mut row = vec![format!("{name}: {what}"), format!("{took:.2} ns")];
        for compute in [true, false] {
            let plan = Plan {
                seeds: 1,
                jobs: 1,
                compute,
                machine: machine.clone().with(1, 1),
                ..workshop.plan(&programs.simulated, 1, &[name.to_owned(), "1".to_owned()])
            };
            let (_, printed) = workshop.run(&plan)?;
            let model = nanoseconds(printed.first().map_or("", String::as_str))?;
            row.extend([format!("{model:.2} ns"), format!("{:.2}", model / took)]);
            if compute {
                pages.report.sample("single", name, 1, Unit::Slowdown, model / took);
                if number < PROGRAMS {
                    ratios.insert(name.to_owned(), model / took);
                }
            }
        }
        text += &tables::row(&row);
    }
    pages.text(&text)?;
    let missed: Vec<_> = ratios
        .iter()
        .filter(|(_, ratio)| (*ratio - 1.0).abs() > MOST)
        .map(|(name, ratio)| format!("{name} {ratio:.2}"))
        .collect();
    pages.text(&format!(
        "\nWithin {:.0} % of native: {} of {}; missed: {}\n",
        MOST * 100.0,
        ratios.len() - missed.len(),
        ratios.len(),
        if missed.is_empty() { "none".to_owned() } else { missed.join(", ") },
    ))
}

/// The default machine with the measurable properties of this one.
fn this_machine(native: &Path, rounds: usize) -> io::Result<Machine> {
    let measure =
        |kind: &str| nanoseconds(&output(Command::new(native).args([kind, &rounds.to_string()]))?);
    let mut machine = Machine::default();
    // Eight additions a turn.
    let megahertz = 8000.0 / measure("clock")?;
    machine.megahertz = Parameter::measured(megahertz.round());
    let cycles = |nanoseconds: f64| (nanoseconds * megahertz / 1000.0).round();
    let last_level = cycles(measure("last-level")?).max(20.0);
    machine.latency.last_level = Parameter::measured(last_level);
    machine.latency.local_memory = Parameter::measured(cycles(measure("memory")?).max(last_level));
    machine.latency.remote_memory = Parameter::scaled(machine.latency.local_memory.value * 1.6);
    // As much as a core of a large server sees of it; the walks are either well within it or well beyond.
    machine.cache.last_level_kib = Parameter::assumed(16384.0);
    machine.cache.last_level_ways = Parameter::assumed(16.0);
    machine.cache.private_ways = Parameter::assumed(8.0);
    Ok(machine)
}

fn output(command: &mut Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(io::Error::other(format!("{command:?}: {}", output.status))),
    }
}

/// The output of `single`: a name and nanoseconds.
fn nanoseconds(line: &str) -> io::Result<f64> {
    let number = line.split_whitespace().nth(1).and_then(|word| word.parse::<f64>().ok());
    let number = number.filter(|number| *number > 0.0);
    number.ok_or_else(|| io::Error::other(format!("single: no time: {line:?}")))
}
