//! `uvfs-bench memory`: the daemon's resident memory under every load that takes memory, against its size.
//!
//! # Boundary
//! Sizes, phases, output. [`phases`] has the clients, [`daemon`] the daemon, [`sampler`] the measurement. Asserts
//! nothing; it fails if a measurement was impossible.
//!
//! # What the figures mean
//! A size limits the process. The *fixed part* is the program's memory before it has cached anything, and the buffers
//! of its readers, from `uvfs stat` (`fixed bytes`). A phase's figure is its peak beyond the fixed part, in percent of
//! the size; the aim is 110. `left` is the figure a second after the phase.
//!
//! # Why
//! All phases of one run use one mount, in one order: each phase begins in the state that the last one left, like in a
//! daemon that runs for weeks. There is one more run without a size, in a control group of 32 MiB: there the kernel
//! counts, and it kills. Weakness: memory that is allocated and freed between two samples is missed.

mod daemon;
mod phases;
mod sampler;

use crate::places::Places;
use crate::report::{Report, Summary, Unit};
use crate::{cleanup, context, machine};
use clap::Args;
use daemon::Daemon;
use phases::{Client, PHASES, Phase, Sizes};
use sampler::{Sampled, Sampler};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Peaks beyond the fixed part are to stay below so many percent of the size.
const BAR_PERCENT: f64 = 110.0;
/// The limit of a daemon without a size.
const GROUP_BYTES: u64 = 32 << 20;
const MIB: f64 = (1 << 20) as f64;
const SYSTEM: &str = "uvfs";

const SECOND: Duration = Duration::from_secs(1);
const FULL: Sizes = Sizes {
    files: 300_000,
    open: 10_000,
    missing: 400_000,
    data_times: 4,
    make_for: Duration::from_secs(60),
    after: SECOND,
};
const QUICK: Sizes = Sizes {
    files: 30_000,
    open: 3_000,
    missing: 40_000,
    data_times: 2,
    make_for: Duration::from_secs(5),
    after: SECOND,
};
const TINY: Sizes = Sizes {
    files: 300,
    open: 50,
    missing: 200,
    data_times: 1,
    make_for: Duration::ZERO,
    after: Duration::from_millis(100),
};

/// Arguments of the bench.
#[derive(Debug, Args)]
pub(crate) struct MemoryArguments {
    /// Fewer files, and one run
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of tables
    #[arg(long)]
    json: bool,
    /// A size to give the daemon; may be repeated [default: 16M and 64M]
    #[arg(long = "cache-size", value_name = "SIZE")]
    sizes: Vec<String>,
    /// The source, as `uvfs mount` takes it: `image:PATH`, `s3://BUCKET?endpoint=URL`; missing files are made in it [default: a
    /// directory of the bench's inputs]
    #[arg(long)]
    source: Option<String>,
    /// For how many seconds files are made and removed [default: 60, or 5 with --quick]
    #[arg(long, value_name = "SECONDS")]
    make_for: Option<u64>,
    /// How the daemon caches file data
    /// [default: write-back for a directory, the source's own choice for another one]
    #[arg(long, value_name = "HOW")]
    page_cache: Option<String>,
    /// Only these phases, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    phases: Vec<String>,
    /// Runs of which the median is taken [default: 3, or 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Without the daemon in a control group
    #[arg(long)]
    no_group: bool,
    /// Inputs so small that the figures mean nothing, for tests.
    #[arg(long, hide = true)]
    tiny: bool,
}

/// One run of the bench.
struct Bench {
    places: Places,
    sizes: Sizes,
    phases: Vec<&'static Phase>,
    mounted: Mounted,
    runs: u32,
    report: Report,
    rows: Vec<Row>,
    failures: Vec<String>,
}

/// The source of a mount, and its options.
#[derive(Debug, Clone)]
struct Mounted {
    source: OsString,
    page_cache: Option<String>,
    /// The files lie in a folder of the mount, because the source has others.
    is_shared: bool,
}

/// The figures of one phase of one mount.
struct Row {
    label: String,
    phase: &'static str,
    bound: Bound,
    sampled: Sampled,
}

/// The limit of a mount.
#[derive(Debug, Clone, Copy)]
struct Bound {
    size_bytes: u64,
    fixed_bytes: u64,
}

impl Bound {
    /// `resident` beyond the fixed part, in percent of the size.
    fn percent(self, resident: u64) -> f64 {
        resident.saturating_sub(self.fixed_bytes) as f64 * 100.0 / self.size_bytes.max(1) as f64
    }
}

/// Runs the measurements of `arguments`.
///
/// # Errors
/// Unknown names, no way to mount, and at the end: the measurements that failed.
pub(crate) fn run(arguments: &MemoryArguments) -> io::Result<()> {
    let phases = chosen(&arguments.phases)?;
    crate::mount::check_machine()?;
    cleanup::on_signals()?;
    let (mut sizes, runs) = match (arguments.tiny, arguments.quick) {
        (true, _) => (TINY, 1),
        (false, true) => (QUICK, 1),
        (false, false) => (FULL, 3),
    };
    sizes.make_for = arguments.make_for.map_or(sizes.make_for, Duration::from_secs);
    let places = Places::find()?;
    if places.uvfs.is_none() {
        eprintln!("uvfs-bench: skipped: no mount tool; cargo build --release -p uvfs");
        return Ok(());
    }
    let page_cache = arguments.page_cache.clone();
    let mounted = match &arguments.source {
        Some(source) => Mounted { source: source.into(), page_cache, is_shared: true },
        None => {
            let mut source = OsString::from("dir:");
            source.push(phases::source(&places.inputs, &sizes)?);
            let page_cache = page_cache.or_else(|| Some("write-back".to_owned()));
            Mounted { source, page_cache, is_shared: false }
        }
    };
    if mounted.is_shared {
        // Through a mount without a size, which is not measured.
        let daemon = Daemon::start(&places, &mounted, "memory-fill", None, None)?;
        phases::fill_mount(&daemon.root(), &sizes)?;
    }
    let mut bench = Bench {
        places,
        sizes,
        phases,
        mounted,
        runs: arguments.runs.unwrap_or(runs),
        report: Report::new("memory"),
        rows: Vec::new(),
        failures: Vec::new(),
    };
    let named = arguments.sizes.iter().map(String::as_str).map(Some);
    let mut asked: Vec<Option<&str>> = named.collect();
    if asked.is_empty() {
        asked = vec![Some("16M"), Some("64M")];
    }
    if !arguments.no_group {
        asked.push(None);
    }
    for size in asked {
        for at in 0..bench.runs {
            // Figures measured before are printed, too.
            if let Err(error) = bench.measure(size, at) {
                bench.failures.push(format!("{}: {error}", label_of(size)));
            }
        }
    }
    let mut out = io::stdout().lock();
    match arguments.json {
        true => bench.report.write_json(&mut out)?,
        false => {
            writeln!(out, "{}", machine::describe())?;
            write_table(&bench.rows, &mut out)?;
        }
    }
    match bench.failures.is_empty() {
        true => Ok(()),
        false => Err(io::Error::other(bench.failures.join("; "))),
    }
}

/// A tree of so many files in directories of 1000, below `inputs`; made if it is not there.
///
/// # Errors
/// It cannot be made.
pub(crate) fn tree(inputs: &Path, files: usize) -> io::Result<PathBuf> {
    phases::source(inputs, &Sizes { files, ..FULL })
}

/// The label of a daemon of `size`, or of the one without a size in a group.
fn label_of(size: Option<&str>) -> String {
    size.map_or_else(|| format!("group-{}M", GROUP_BYTES >> 20), str::to_owned)
}

fn chosen(names: &[String]) -> io::Result<Vec<&'static Phase>> {
    if let Some(name) = names.iter().find(|name| !PHASES.iter().any(|phase| phase.name == **name)) {
        let all: Vec<&str> = PHASES.iter().map(|phase| phase.name).collect();
        let odd = format!("no phase {name}; there are: {}", all.join(", "));
        return Err(io::Error::other(odd));
    }
    let wanted = |phase: &&Phase| names.is_empty() || names.iter().any(|name| name == phase.name);
    Ok(PHASES.iter().filter(wanted).collect())
}

impl Bench {
    /// All phases of one mount with `size`, or of one in a control group that has none.
    fn measure(&mut self, size: Option<&str>, at: u32) -> io::Result<()> {
        let label = label_of(size);
        let group = match size {
            Some(_) => None,
            None => match crate::group::Controller::find() {
                Ok(controller) => {
                    let group = controller.make(&format!("memory-{at}"))?;
                    group.limit(GROUP_BYTES)?;
                    Some(group)
                }
                Err(why) => {
                    eprintln!("uvfs-bench: {label}: skipped: {why}");
                    return Ok(());
                }
            },
        };
        let tag = format!("memory-{label}-{at}");
        let mut daemon = Daemon::start(&self.places, &self.mounted, &tag, size, group.as_ref())?;
        let bound = daemon.bound()?;
        let root = match self.mounted.is_shared {
            true => phases::tree_in(&daemon.root(), &self.sizes),
            false => daemon.root(),
        };
        let client = Client {
            root,
            sizes: self.sizes,
            data_bytes: bound.size_bytes * self.sizes.data_times,
        };
        self.sample(&label, "fixed", Unit::Mebibytes, bound.fixed_bytes as f64 / MIB);
        let mut alive = true;
        for phase in self.phases.clone() {
            let sampler = Sampler::start(daemon.pid())?;
            let done = (phase.run)(&client, &mut daemon);
            std::thread::sleep(self.sizes.after);
            let sampled = sampler.end()?;
            alive = daemon.lives();
            if alive {
                self.take(&label, phase.name, bound, sampled);
            }
            if let Err(error) = done {
                let what = if alive { "" } else { " (the daemon is dead)" };
                let line = format!("{label} in {}: {error}{what}", phase.name);
                eprintln!("uvfs-bench: {line}");
                self.failures.push(line);
            }
            if !alive {
                break;
            }
        }
        self.sample(&label, "survived", Unit::Share, f64::from(u8::from(alive)));
        // The group can be removed when it is empty.
        drop(daemon);
        drop(group);
        Ok(())
    }

    fn sample(&mut self, label: &str, what: &str, unit: Unit, value: f64) {
        self.report.sample(&format!("{label}-{what}"), SYSTEM, 1, unit, value);
    }

    fn take(&mut self, label: &str, phase: &'static str, bound: Bound, sampled: Sampled) {
        let percent = bound.percent(sampled.resident_bytes);
        self.sample(label, phase, Unit::PercentOfSize, percent);
        for (what, bytes) in [
            ("peak", sampled.resident_bytes),
            ("anonymous", sampled.anonymous_bytes),
            ("left", sampled.left_bytes),
        ] {
            self.sample(label, &format!("{phase}-{what}"), Unit::Mebibytes, bytes as f64 / MIB);
        }
        self.rows.push(Row { label: label.to_owned(), phase, bound, sampled });
    }
}

/// A table for each size, a line for each phase: medians of its runs.
fn write_table(rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    let mut labels: Vec<&str> = rows.iter().map(|row| row.label.as_str()).collect();
    labels.dedup();
    for label in labels {
        let of_label: Vec<&Row> = rows.iter().filter(|row| row.label == label).collect();
        let Some(first) = of_label.first() else { continue };
        let (size, fixed) = (first.bound.size_bytes, first.bound.fixed_bytes);
        writeln!(
            out,
            "\n{label}: {:.1} MiB of which the program takes {:.1} [MiB; percent of the size beyond what the \
             program takes; below {BAR_PERCENT} is within it]",
            size as f64 / MIB,
            fixed as f64 / MIB
        )?;
        let head = ["peak", "anonymous", "left", "percent", "max", "runs"];
        let head: String = head.iter().map(|name| format!(" {name:>10}")).collect();
        writeln!(out, "  {:<14}{head}", "phase")?;
        for phase in &PHASES {
            let of_phase: Vec<&Row> =
                of_label.iter().filter(|row| row.phase == phase.name).copied().collect();
            let median = |of: fn(&Row) -> f64| {
                Summary::of(&of_phase.iter().map(|row| of(row)).collect::<Vec<_>>())
            };
            let Some(percent) = median(|row| row.bound.percent(row.sampled.resident_bytes)) else {
                continue;
            };
            write!(out, "  {:<14}", phase.name)?;
            let sizes: [fn(&Row) -> f64; 3] = [
                |row| row.sampled.resident_bytes as f64 / MIB,
                |row| row.sampled.anonymous_bytes as f64 / MIB,
                |row| row.sampled.left_bytes as f64 / MIB,
            ];
            for of in sizes {
                write!(out, " {:>10.1}", median(of).map_or(0.0, |all| all.median))?;
            }
            let verdict = if percent.max > BAR_PERCENT { "  beyond" } else { "" };
            let (median, max, runs) = (percent.median, percent.max, of_phase.len());
            writeln!(out, " {median:>10.1} {max:>10.1} {runs:>10}{verdict}")?;
        }
    }
    out.flush().map_err(context("standard output"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_reported_beyond_the_fixed_part() {
        let bound = Bound { size_bytes: 16 << 20, fixed_bytes: 6 << 20 };
        assert_eq!([6 << 20, 22 << 20, 1 << 20].map(|peak| bound.percent(peak)), [0.0, 100.0, 0.0]);
    }

    #[test]
    fn unknown_phases_come_with_the_known_ones() {
        let refused = chosen(&["nonsense".to_owned()]).unwrap_err().to_string();
        assert!(refused.contains("no phase nonsense; there are: names, "), "{refused}");
        assert_eq!(chosen(&[]).unwrap().len(), PHASES.len());
        assert_eq!(chosen(&["open".to_owned()]).unwrap().len(), 1);
    }

    #[test]
    fn a_table_says_what_is_beyond_the_size() {
        let bound = Bound { size_bytes: 16 << 20, fixed_bytes: 6 << 20 };
        let row = |phase, resident_bytes| {
            let sampled = Sampled { resident_bytes, anonymous_bytes: 1, left_bytes: 2, looks: 3 };
            Row { label: "16M".into(), phase, bound, sampled }
        };
        let mut out = Vec::new();
        write_table(&[row("names", 20 << 20), row("open", 40 << 20)], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let line = |phase: &str| text.lines().find(|line| line.starts_with(phase)).unwrap();
        assert!(
            line("  open").ends_with("beyond") && !line("  names").ends_with("beyond"),
            "{text}"
        );
    }
}
