//! `uvfs-bench set-associative`: the three caches of Peacock (1992, "File System Multithreading in System V Release 4
//! MP") under one lock, under locks of queues and of the free list, and in rows, with ours as the rows.
//!
//! # Boundary
//! The runs and the tables. `uvfs_bench_rows` has the caches and the threads' work.
//!
//! # Why
//! The paper's figure is the share of acquisitions that found the lock held: 10 to 15 % before, less than 0.1 % after,
//! on five processors. It is a count of the lock meter. Rows lose some hits for it, which are counted on the traces of
//! `evict`, beside a list of everything. For more cores than this machine has, `uvfs-bench-papers contention --case
//! rows` simulates them. Weakness: the work between two accesses is our choice.

use crate::aims::{self, Aim, Wish};
use crate::evict::{self, Sizes};
use crate::report::{Column, Layout, Report, Unit};
use crate::{cleanup, machine};
use clap::Args;
use std::io;
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use uvfs_bench_rows::caches::{self, Kind, Locking, Ways};
use uvfs_bench_rows::load;
use uvfs_concurrent::lock::meter;

/// The cases, in this order.
const CASES: [&str; 2] = ["hits", "contended"];
/// The paper's five, and around it, as far as the machine has them.
const CORES: [usize; 5] = [1, 2, 5, 16, 64];
/// Words of work between two accesses; see the module.
const WORK: usize = 1000;
/// The paper's figure.
const CONTENDED_AIM: f64 = 0.1;
/// Points that rows may lose against a list of everything.
const HITS_AIM: f64 = 1.0;

const EXAMPLES: &str = "Cases:
  hits        hits of rows beside least recently used of everything, on the traces of evict
  contended   contended acquisitions and rates on this machine's cores
Examples:
  uvfs-bench set-associative --quick
  uvfs-bench set-associative --case hits --json
Rivals: cargo build --release --manifest-path bench-compare/Cargo.toml";

/// Arguments of `set-associative`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SetAssociativeArguments {
    /// Smaller traces and fewer runs
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of tables
    #[arg(long)]
    json: bool,
    /// Only this case; may be repeated [default: all]
    #[arg(long = "case", value_name = "NAME", value_parser = CASES)]
    cases: Vec<String>,
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

/// Compared with one lock, and with a list of everything.
const LAYOUT: Layout<'static> = Layout {
    order: &[],
    columns: &[Column::Against(&[Locking::OneLock.name(), "lru"])],
    notes: &[],
};

/// Runs the measurements of `arguments`.
///
/// # Errors
/// At the end: the failed cases.
pub(crate) fn run(arguments: &SetAssociativeArguments) -> io::Result<()> {
    cleanup::on_signals()?;
    if !arguments.json {
        println!("{}", machine::describe());
        println!("{} words of work between two accesses; threads: cores", arguments.work);
    }
    let mut report = Report::new("set-associative");
    let mut failures = Vec::new();
    for case in CASES {
        if !arguments.cases.is_empty() && !arguments.cases.iter().any(|wanted| wanted == case) {
            continue;
        }
        eprintln!("uvfs-bench: set-associative, {case}");
        let done = match case {
            "hits" => hits(arguments, &mut report),
            _ => contended(arguments, &mut report),
        };
        if let Err(why) = done {
            eprintln!("uvfs-bench: {case}: {why}");
            failures.push(format!("{case}: {why}"));
        }
        let mut out = io::stdout().lock();
        match arguments.json {
            true => report.write_json(&mut out)?,
            false => report.write_tables(&LAYOUT, |_| true, &mut out)?,
        }
    }
    if !arguments.json {
        aims::write(
            "the worst row decides and is named",
            &judge(&report),
            &mut io::stdout().lock(),
        )?;
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(io::Error::other(format!("not everything was done: {}", failures.join("; ")))),
    }
}

fn runs(arguments: &SetAssociativeArguments) -> u32 {
    arguments.runs.unwrap_or(if arguments.quick || arguments.tiny { 2 } else { 5 })
}

/// Hits on the traces of `evict`.
fn hits(arguments: &SetAssociativeArguments, report: &mut Report) -> io::Result<()> {
    let sizes = match (arguments.tiny, arguments.quick) {
        (true, _) => Sizes::TINY,
        (false, true) => Sizes::QUICK,
        (false, false) => Sizes::FULL,
    };
    let ours: [(&str, evict::Maker); 2] = [
        ("rows of 16", |capacity| access(Box::new(Ways::<16>::new(capacity)))),
        ("rows of 8", |capacity| access(Box::new(Ways::<8>::new(capacity)))),
    ];
    let stamped: (&str, evict::Maker) = ("rows of 8, stamped", |capacity| {
        access(caches::new(Kind::Names, Locking::Rows, capacity))
    });
    let others = [ours[0], ours[1], stamped];
    let rivals = arguments.rivals.clone();
    let mut failures = Vec::new();
    evict::compare(sizes, &others, &["quick_cache", "scc"], rivals, |case, system, replayed| {
        let percent = match replayed {
            Ok(percent) => percent,
            Err(why) => return failures.push(format!("{system} in {case}: {why}")),
        };
        report.sample(case, system, 1, Unit::Percent, percent);
    });
    match failures.is_empty() {
        true => Ok(()),
        false => Err(io::Error::other(failures.join("; "))),
    }
}

fn access(cache: Box<dyn caches::Cache>) -> Box<dyn FnMut(u64) -> bool> {
    Box::new(move |key| cache.access(key))
}

/// Every cache in every way, in turns.
fn each() -> impl Iterator<Item = (Kind, Locking)> {
    Kind::ALL.into_iter().flat_map(|kind| Locking::ALL.into_iter().map(move |way| (kind, way)))
}

/// On the host's own cores.
fn contended(arguments: &SetAssociativeArguments, report: &mut Report) -> io::Result<()> {
    let host = std::thread::available_parallelism().map_or(1, usize::from);
    let operations = if arguments.tiny { 300 } else { 100_000 };
    for cores in CORES.into_iter().filter(|&cores| cores <= host) {
        for _ in 0..runs(arguments) {
            for (kind, locking) in each() {
                let cache = caches::new(kind, locking, load::CAPACITY);
                load::fill(&*cache);
                let before = meter::snapshot();
                let wall = timed(&*cache, cores, operations, arguments.work);
                let counted = load::contended(&before);
                let rate = (cores * operations) as f64 / wall.as_secs_f64();
                add(report, kind, locking, cores, counted, rate);
            }
        }
    }
    Ok(())
}

/// How long `threads` threads need for `operations` accesses each, from when all are there.
fn timed(cache: &dyn caches::Cache, threads: usize, operations: usize, work: usize) -> Duration {
    let start = &Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let body = |me| {
            move || {
                start.wait();
                (0..operations).map(|turn| load::turn(cache, me, turn, work)).sum::<u64>()
            }
        };
        let all: Vec<_> = (0..threads).map(|me| scope.spawn(body(me))).collect();
        start.wait();
        let begin = Instant::now();
        all.into_iter().for_each(|one| drop(std::hint::black_box(one.join())));
        begin.elapsed()
    })
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

fn judge(report: &Report) -> [Aim; 2] {
    let rows = || report.rows().iter().filter_map(|row| Some((row, row.summary()?.median)));
    let contended = rows().filter(|(row, _)| {
        row.unit == Unit::PercentContended && row.key.system == Locking::Rows.name()
    });
    let contended = contended
        .map(|(row, share)| (format!("{}, {} cores", row.key.case, row.key.threads), share));
    let lost =
        rows().filter(|(row, _)| row.key.system == "rows of 16").filter_map(|(row, hits)| {
            Some((row.key.case.clone(), report.median(&row.key.case, "lru", 1)? - hits))
        });
    [
        Aim::new("rows: contended acquisitions in percent", Wish::Below(CONTENDED_AIM), contended),
        Aim::new("rows of 16: points of hits less than a list", Wish::AtMost(HITS_AIM), lost),
    ]
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
        let verdicts = |report: &Report| judge(report).map(|aim| format!("{aim:?}"));
        assert!(verdicts(&report).iter().all(|aim| aim.contains("None")));
        add(&mut report, Kind::Names, Locking::Rows, 2, (1000, 1), 1e6);
        add(&mut report, Kind::Names, Locking::OneLock, 2, (1000, 900), 1e6);
        for (system, hits) in [("lru", 50.0), ("rows of 16", 48.5)] {
            report.sample("loop", system, 1, Unit::Percent, hits);
        }
        let [contended, lost] = verdicts(&report);
        assert!(contended.contains("names-contended, 2 cores") && contended.contains("0.1"));
        assert!(lost.contains("loop") && lost.contains("1.5"), "{lost}");
    }
}
