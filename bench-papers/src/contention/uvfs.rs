//! uvfs itself: curves of the warm walk, of page lookups, of inserts and of removals, and the lines that bend them.
//!
//! # Why
//! The programs time themselves in virtual time, from when all threads are ready, so that the building of a tree is not
//! measured. Transfers of one operation are the difference of two runs, one with twice the operations: one-time work
//! cancels out. The dentry caches of Linder, Sarma and Soni 2002, from which ours descends, are shown beside them.
//! Weakness: a cost that grows only with time is included.

use super::known::{chart, samples};
use super::programs::{Ran, Size, Workshop, curve, repository};
use super::{Pages, tables};
use std::io;
use std::path::{Path, PathBuf};
use uvfs_bench_kit::report::Unit;
use uvfs_contention::Ledger;
use uvfs_contention::analysis::{Estimate, lines};
use uvfs_contention::sweep::Work;

/// Description, program, mode, operations of a thread.
const CASES: [(&str, &str, &str, usize); 12] = [
    ("warm walk, by components", "contention_walk", "components", 2000),
    ("warm walk, whole paths", "contention_walk", "whole", 2000),
    ("warm walk, missing name", "contention_walk", "missing", 2000),
    ("2002: one lock, as Linux 2.4", "contention_papers", "global-lock", 200),
    ("2002: hash without a lock", "contention_papers", "rcu-hash", 200),
    ("2002: lazy LRU", "contention_papers", "lazy-lru", 1000),
    ("page lookup, one file", "contention_pages", "shared", 2000),
    ("page lookup, own files", "contention_pages", "own", 2000),
    ("insert, own directories", "contention_names", "insert", 60),
    ("insert, one directory", "contention_names", "insert-shared", 60),
    ("remove, own directories", "contention_names", "remove", 60),
    ("remove, one directory", "contention_names", "remove-shared", 60),
];

/// The part of one core's rate that each core keeps: the mode of `contention_own`, operations of a thread, and the aim.
const KEPT: [(&str, usize, f64); 8] = [
    ("open-own", 300, 0.95),
    ("create-own", 200, 0.90),
    ("remove-own", 200, 0.90),
    ("rename-own", 200, 0.90),
    ("read", 300, 0.99),
    ("write-own", 200, 0.90),
    ("open-one", 100, 0.40),
    ("mix", 20, 0.80),
];

/// Lines that a table names.
const DEAREST: usize = 3;

/// The part of one core's rate that the warm walk should keep on this many cores.
const AIM: (usize, f64) = (64, 0.95);

pub(super) fn run(workshop: &Workshop, pages: &mut Pages) -> io::Result<()> {
    let programs = build(workshop)?;
    kept(workshop, pages, &programs.join("contention_own"))?;
    let mut sweeps = Vec::new();
    let mut steady =
        tables::head(&["case", "cores", "transfers an operation", "dearest field", "function"]);
    for (name, program, mode, operations) in CASES {
        eprintln!("uvfs-bench-papers: contention, {name}");
        let program = programs.join(program);
        let args = |operations: usize| [operations.to_string(), "0".into(), mode.into()];
        let ran = workshop.runs(&program, &args(operations))?;
        let sweep = curve(&ran, |one| Work::Metric(rates(one)))?;
        let cores = workshop.at_most(AIM.0);
        let [once, twice] = [operations, 2 * operations]
            .map(|operations| workshop.run(&workshop.plan(&program, cores, &args(operations))));
        let (once, twice) = (once?.0, twice?.0);
        let transfers = |run: &uvfs_coherence::profile::Run| run.transfers as f64;
        let more = tables::of_runs(&twice, transfers).mean - tables::of_runs(&once, transfers).mean;
        let each = more / (operations * cores) as f64;
        pages.report.sample("uvfs-transfers", name, cores, Unit::Entries, each);
        let dearest = lines(&Ledger::new(&twice));
        let row = dearest.first().and_then(|table| table.hottest());
        let [field, function] = [row.map(|row| &row.data), row.map(|row| &row.function)]
            .map(|text| text.map_or_else(|| "none".to_owned(), |text| format!("`{text}`")));
        steady +=
            &tables::row(&[name.into(), cores.to_string(), format!("{each:.4}"), field, function]);
        sweeps.push((name.to_owned(), sweep));
    }
    samples(pages, "uvfs", &sweeps, Unit::MillionsPerSecond, 1e-6);
    pages.text(&tables::title("uvfs: rate by virtual cores"))?;
    pages.text(&tables::curves("case", "M/s", &sweeps, 1e-6))?;
    pages.text(&tables::bends(&sweeps))?;
    pages.text(&steady)?;
    pages.text(&kept_table(&sweeps, AIM, |name| name.starts_with("warm walk")))?;
    chart(pages, "uvfs-walks", "uvfs, warm walks and page lookups", "M/s", &sweeps[..8], 1e-6)?;
    chart(pages, "uvfs-names", "uvfs, inserts and removals", "M/s", &sweeps[8..], 1e-6)
}

/// The part of one core's rate that each of many cores keeps while all of them open or change their own files, and the
/// lines that move between them.
fn kept(workshop: &Workshop, pages: &mut Pages, program: &Path) -> io::Result<()> {
    let cores = workshop.at_most(AIM.0);
    let mut table = tables::head(&[
        "operation",
        "kept by each",
        "aim",
        "us an operation, one core",
        "all",
        "transfers an operation",
        "lines with most of the latency",
    ]);
    for (mode, full, aim) in KEPT {
        eprintln!("uvfs-bench-papers: contention, kept-{mode}");
        let operations = operations(workshop, full);
        let args = |operations: usize, threads: usize| {
            [operations.to_string(), threads.to_string(), mode.into()]
        };
        let run = |operations: usize, cores: usize| {
            workshop.run(&workshop.plan(program, cores, &args(operations, cores)))
        };
        let (one, all, twice) =
            (run(operations, 1)?, run(operations, cores)?, run(2 * operations, cores)?);
        let alone = Estimate::of(&rates(&one)).mean;
        let together = rates(&all);
        let parts: Vec<f64> = together.iter().map(|rate| rate / (cores as f64 * alone)).collect();
        for part in &parts {
            pages.report.sample(&format!("kept-{mode}"), "uvfs", cores, Unit::Share, *part);
        }
        let transfers = |run: &uvfs_coherence::profile::Run| run.transfers as f64;
        let more =
            tables::of_runs(&twice.0, transfers).mean - tables::of_runs(&all.0, transfers).mean;
        let each = more / (operations * cores) as f64;
        pages.report.sample(&format!("transfers-{mode}"), "uvfs", cores, Unit::Entries, each);
        let kept = Estimate::of(&parts);
        let verdict = if kept.mean >= aim { "held" } else { "missed" };
        let micros = |rate: f64| tables::digits(1e6 / rate);
        table += &tables::row(&[
            mode.into(),
            format!(
                "{} ± {}",
                tables::percent(kept.mean),
                tables::percent(kept.plus_minus.unwrap_or(0.0))
            ),
            format!("{}: {verdict}", tables::percent(aim)),
            micros(alone),
            micros(Estimate::of(&together).mean / cores as f64),
            format!("{each:.3}"),
            dearest(&twice.0),
        ]);
    }
    pages.text(&tables::title(&format!(
        "uvfs: what each of {cores} cores keeps of one core's rate"
    )))?;
    pages.text(&table)
}

/// The lines that cost most, with their shares of all latency.
fn dearest(profile: &uvfs_coherence::Profile) -> String {
    let lines = lines(&Ledger::new(profile));
    let name = |table: &uvfs_contention::analysis::LineTable| {
        let row = table.hottest();
        let [field, function] = [row.map(|row| &row.data), row.map(|row| &row.function)]
            .map(|text| text.map_or("none", |text| text.as_str()));
        format!("`{field}` in `{function}` {}", tables::percent(table.share.mean))
    };
    let names: Vec<_> = lines.iter().take(DEAREST).map(name).collect();
    if names.is_empty() { "none".into() } else { names.join("; ") }
}

/// The folder of the programs.
pub(super) fn build(workshop: &Workshop) -> io::Result<PathBuf> {
    Ok(workshop.cargo(&repository("bench-papers/Cargo.toml"), &["--examples"])?.join("examples"))
}

/// The operations of the size of a look.
pub(super) fn operations(workshop: &Workshop, full: usize) -> usize {
    if workshop.size == Size::Tiny { full / 10 } else { full }
}

/// Operations a second of each run, from the program's output: the mean of its threads' rates times their number.
pub(super) fn rates((profile, printed): &Ran) -> Vec<f64> {
    let rate = |text: &String| {
        let mut words = text.split_whitespace();
        let mut number = |name: &str| -> Option<f64> {
            words.find(|word| *word == name)?;
            words.next()?.parse().ok()
        };
        let (work, threads) = (number("operations")?, number("threads")?);
        Some(work / number("thread-nanoseconds")? * threads * 1e9)
    };
    let rates: Vec<f64> = printed.iter().filter_map(rate).collect();
    // One rate fewer means a run without output, which the curve refuses.
    debug_assert!(rates.len() <= profile.runs.len());
    rates
}

/// Whether the curves that are `wanted` keep a part of one core's rate on so many cores.
pub(super) fn kept_table(
    sweeps: &[(String, uvfs_contention::sweep::Sweep)],
    (cores, aim): (usize, f64),
    wanted: impl Fn(&str) -> bool,
) -> String {
    let mut text = String::from("\n");
    for (name, sweep) in sweeps.iter().filter(|(name, _)| wanted(name)) {
        let Some(point) = sweep.points.iter().find(|point| point.cores == cores) else { continue };
        let kept = point.efficiency.mean;
        let held = if kept >= aim { "held" } else { "missed" };
        text += &format!(
            "- {name}: efficiency {} on {cores} cores; aim {}: {held}\n",
            tables::percent(kept),
            tables::percent(aim)
        );
    }
    text
}
