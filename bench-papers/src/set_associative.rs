//! `uvfs-bench-papers set-associative`: the three caches of Peacock (1992, "File System Multithreading in System V Release 4
//! MP") under one lock, under locks of queues and of the free list, and in rows, with ours as the rows.
//!
//! # Boundary
//! The runs and the tables. [`crate::rows`] has the caches, `uvfs-bench-workload` the threads' work, `bench-compare rows` the rivals.
//!
//! # Why
//! The paper's figure is the share of acquisitions that found the lock held: 10 to 15 % before, less than 0.1 % after,
//! on five processors. It is a count of the lock meter, which the rivals do not have; only their rates are shown. Rows lose some hits for it; `uvfs-bench evict` counts those. For
//! more cores than this machine has, `contention --case rows` simulates them. Weakness: the work between two accesses is our choice.

use crate::rows::caches::{self, Kind, Locking};
use crate::rows::load;
use clap::Args;
use std::io;
use std::path::PathBuf;
use uvfs_bench_kit::aims::{self, Aim, Wish};
use uvfs_bench_kit::report::{Column, Layout, Report, Unit};
use uvfs_bench_kit::rivals::{Rivals, default_program, odd};
use uvfs_bench_kit::{cleanup, machine};
use uvfs_bench_workload::rows;
use uvfs_concurrent::lock::meter;

/// The paper's five, and around it, as far as the machine has them.
const CORES: [usize; 5] = [1, 2, 5, 16, 64];
/// Words of work between two accesses; see the module.
const WORK: usize = 1000;
/// Version of the lines by which the bench asks rivals.
const PROTOCOL: u32 = 1;
/// The paper's figure.
const CONTENDED_AIM: f64 = 0.1;

const EXAMPLES: &str = "Examples:
  uvfs-bench-papers set-associative --quick
  uvfs-bench-papers set-associative --work 200 --json";

/// Arguments of `set-associative`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SetAssociativeArguments {
    /// Fewer runs
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of tables
    #[arg(long)]
    json: bool,
    /// Words that a thread works through between two accesses
    #[arg(long, value_name = "N", default_value_t = WORK)]
    work: usize,
    /// Runs of each figure [default: 5, or 2 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    runs: Option<u32>,
    /// The rivals' program [default: bench-compare/target/release/bench-compare]
    #[arg(long, value_name = "PATH")]
    rivals: Option<PathBuf>,
    /// So little that the figures mean nothing, for tests.
    #[arg(long, hide = true)]
    tiny: bool,
}

/// Compared with one lock.
const LAYOUT: Layout<'static> =
    Layout { order: &[], columns: &[Column::Against(&[Locking::OneLock.name()])], notes: &[] };

/// Runs the measurements of `arguments`.
///
/// # Errors
/// Of the output.
pub(crate) fn run(arguments: &SetAssociativeArguments) -> io::Result<()> {
    cleanup::on_signals()?;
    if !arguments.json {
        println!("{}", machine::describe());
        println!("{} words of work between two accesses; threads: cores", arguments.work);
    }
    let program = arguments.rivals.clone().unwrap_or_else(default_program);
    let mut rivals = match Rivals::start(&program, "rows", PROTOCOL) {
        Ok(rivals) => Some(rivals),
        Err(why) => {
            eprintln!("uvfs-bench-papers: rivals are left out: {why}");
            None
        }
    };
    let mut report = Report::new("set-associative");
    contended(arguments, rivals.as_mut(), &mut report)?;
    let mut out = io::stdout().lock();
    if arguments.json {
        return report.write_json(&mut out);
    }
    report.write_tables(&LAYOUT, |_| true, &mut out)?;
    aims::write("the worst row decides and is named", &[judge(&report)], &mut out)
}

fn runs(arguments: &SetAssociativeArguments) -> u32 {
    arguments.runs.unwrap_or(if arguments.quick || arguments.tiny { 2 } else { 5 })
}

/// Every cache in every way, in turns.
fn each() -> impl Iterator<Item = (Kind, Locking)> {
    Kind::ALL.into_iter().flat_map(|kind| Locking::ALL.into_iter().map(move |way| (kind, way)))
}

/// On the host's own cores.
fn contended(
    arguments: &SetAssociativeArguments,
    mut rivals: Option<&mut Rivals>,
    report: &mut Report,
) -> io::Result<()> {
    let host = std::thread::available_parallelism().map_or(1, usize::from);
    let operations = if arguments.tiny { 300 } else { 100_000 };
    for cores in CORES.into_iter().filter(|&cores| cores <= host) {
        for _ in 0..runs(arguments) {
            for (kind, locking) in each() {
                let cache = caches::new(kind, locking, rows::CAPACITY);
                rows::fill(&*cache);
                let before = meter::snapshot();
                let wall = rows::timed(&*cache, cores, operations, arguments.work);
                let counted = load::contended(&before);
                let rate = (cores * operations) as f64 / wall.as_secs_f64();
                add(report, kind, locking, cores, counted, rate);
            }
            if let Some(rivals) = rivals.as_deref_mut() {
                beside(rivals, cores, operations, arguments.work, report)
                    .map_err(io::Error::other)?;
            }
        }
    }
    Ok(())
}

/// A turn of each rival, beside the names: as those, its elements are not held.
fn beside(
    rivals: &mut Rivals,
    cores: usize,
    operations: usize,
    work: usize,
    report: &mut Report,
) -> Result<(), String> {
    for name in rivals.names().to_vec() {
        let answer = rivals.ask(&format!("run {name} {cores} {operations} {work}"))?;
        let seconds = answer.strip_prefix("ran ").and_then(|text| text.parse::<f64>().ok());
        let rate = (cores * operations) as f64 / seconds.ok_or_else(|| odd(&answer))?;
        let case = format!("{}-rate", Kind::Names.name());
        report.sample(&case, &name, cores, Unit::MillionsPerSecond, rate / 1e6);
    }
    Ok(())
}

fn add(
    report: &mut Report,
    kind: Kind,
    locking: Locking,
    cores: usize,
    (acquisitions, contended): (u64, u64),
    rate: f64,
) {
    let share = 100.0 * contended as f64 / acquisitions.max(1) as f64;
    let case = |what: &str| format!("{}-{what}", kind.name());
    report.sample(&case("contended"), locking.name(), cores, Unit::PercentContended, share);
    report.sample(&case("rate"), locking.name(), cores, Unit::MillionsPerSecond, rate / 1e6);
}

fn judge(report: &Report) -> Aim {
    let rows = || report.rows().iter().filter_map(|row| Some((row, row.summary()?.median)));
    let contended = rows().filter(|(row, _)| {
        row.unit == Unit::PercentContended && row.key.system == Locking::Rows.name()
    });
    let contended = contended
        .map(|(row, share)| (format!("{}, {} cores", row.key.case, row.key.threads), share));
    Aim::new("rows: contended acquisitions in percent", Wish::Below(CONTENDED_AIM), contended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Every way keeps a working set that fits, for any threads, and evicts the least recently used element.
    #[test]
    fn all_ways_are_caches() {
        for (kind, locking) in each() {
            let cache = caches::new(kind, locking, 1024);
            let name = (kind.name(), locking.name());
            assert!((0..100).all(|key| !cache.access(key)), "{name:?}");
            assert!((0..100).all(|key| cache.access(key)), "{name:?}");
            let hits = (0..5000).filter(|key| cache.access(1_000_000 + key)).count();
            assert_eq!(hits, 0, "{name:?}");
            assert_eq!((0..100).filter(|key| cache.access(*key)).count(), 0, "{name:?}");
            std::thread::scope(|scope| {
                for thread in 0..4u64 {
                    let cache = &cache;
                    scope.spawn(move || {
                        let mut hits: HashMap<u64, u64> = HashMap::new();
                        for turn in 0..4000 {
                            let key = (turn * (2 * thread + 1)) % 1500;
                            *hits.entry(key).or_default() += u64::from(cache.access(key));
                        }
                        assert!(hits.values().sum::<u64>() > 0);
                    });
                }
            });
            let hits = (0..2).map(|_| (0..64).filter(|key| cache.access(*key)).count()).last();
            assert_eq!(hits, Some(64), "{name:?}: nothing was lost on the way");
        }
    }

    #[test]
    fn the_worst_row_decides_and_nothing_is_met_without_figures() {
        let mut report = Report::new("test");
        let verdict = |report: &Report| format!("{:?}", judge(report));
        assert!(verdict(&report).contains("None"));
        add(&mut report, Kind::Names, Locking::Rows, 2, (1000, 1), 1e6);
        add(&mut report, Kind::Names, Locking::OneLock, 2, (1000, 900), 1e6);
        let contended = verdict(&report);
        assert!(contended.contains("names-contended, 2 cores") && contended.contains("0.1"));
    }
}
