//! The artefacts of Gough, Siddha and Chen 2007, for a small database server and for uvfs: the histogram of
//! latencies (figure 1), the dearest structures by subsystem (figure 2), tables of single cache lines
//! (figures 3 to 18), and the same program on one node and on two (section 3).

use super::programs::{Workshop, curve, repository};
use super::{Pages, figures, known, tables, uvfs};
use std::io;
use std::path::{Path, PathBuf};
use uvfs_bench_kit::report::Unit;
use uvfs_coherence::Profile;
use uvfs_coherence::profile::Run;
use uvfs_contention::Ledger;
use uvfs_contention::analysis::{groups, histogram, lock_groups, structures};
use uvfs_contention::compare::{Comparison, Status, compare};
use uvfs_contention::run::Plan;
use uvfs_contention::sweep::Work;

/// Cores of a look; the paper's machine had eight processors, of two cores each.
const CORES: usize = 16;
/// The paper has tables of so many lines.
const TABLES: usize = 16;
/// Transactions of a processor.
const TRANSACTIONS: u32 = 60;

/// The server's own case: its curve and its locks.
pub(super) fn server(workshop: &Workshop, pages: &mut Pages) -> io::Result<()> {
    let program = oltp(workshop)?;
    let ran = workshop.runs(&program, &[TRANSACTIONS.to_string()])?;
    let sweep = curve(&ran, |(profile, printed)| {
        let machine = &profile.meta.machine;
        let done = printed.iter().map(|text| number_after(text, "transactions").unwrap_or(0.0));
        let seconds = |run: &Run| run.parallel_cycles as f64 / machine.megahertz.value / 1e6;
        Work::Metric(done.zip(&profile.runs).map(|(done, run)| done / seconds(run)).collect())
    })?;
    let sweeps = [("transactions".to_owned(), sweep)];
    known::samples(pages, "oltp", &sweeps, Unit::ThousandsPerSecond, 1e-3);
    pages.text(&tables::title("A small database server"))?;
    pages.text(&tables::curves("server", "k/s", &sweeps, 1e-3))?;
    pages.text(&tables::bends(&sweeps))?;
    if let Some((profile, _)) = ran.last() {
        let cores = profile.meta.machine.cores;
        pages.text(&format!("\nLocks on {cores} cores, times in cycles:\n"))?;
        pages.text(&tables::locks(&lock_groups(&Ledger::new(profile)), 12))?;
    }
    known::chart(pages, "oltp", "A small database server", "k/s", &sweeps, 1e-3)
}

/// All figures, of the server and of uvfs.
pub(super) fn run(workshop: &Workshop, pages: &mut Pages) -> io::Result<()> {
    let server = oltp(workshop)?;
    artefacts(workshop, pages, "oltp", "The server", &server, &[TRANSACTIONS.to_string()])?;
    let walk = uvfs::build(workshop)?.join("contention_names");
    let operations = uvfs::operations(workshop, 60).to_string();
    let args = [operations, "0".to_owned(), "both".to_owned()];
    artefacts(workshop, pages, "uvfs", "uvfs, inserts and removals", &walk, &args)
}

fn oltp(workshop: &Workshop) -> io::Result<PathBuf> {
    let folder = repository("bench-papers/oltp");
    let names = ["main", "sched", "timer", "slab", "aio", "block", "log"];
    let sources = names.map(|name| folder.join(name).with_extension("c"));
    workshop.c("oltp", &sources, &[])
}

fn number_after(text: &str, name: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    words.find(|word| *word == name)?;
    words.next()?.parse().ok()
}

fn artefacts(
    workshop: &Workshop,
    pages: &mut Pages,
    file: &str,
    title: &str,
    program: &Path,
    args: &[String],
) -> io::Result<()> {
    eprintln!("uvfs-bench-papers: contention, figures of {file}");
    let two = workshop.plan(program, workshop.at_most(CORES), args);
    let two = Plan { nodes: 2, ..two };
    let one = Plan { nodes: 1, ..two.clone() };
    let (split, _) = workshop.run(&two)?;
    let (single, _) = workshop.run(&one)?;
    pages.text(&tables::title(&format!("{title}: {} cores, 2 nodes", two.cores)))?;
    latencies(pages, file, &split)?;
    dearest(pages, file, &split)?;
    pages.text(&format!("\n### The {TABLES} dearest lines\n"))?;
    for table in groups(&Ledger::new(&split)).iter().take(TABLES) {
        pages.text(&tables::line(table))?;
    }
    nodes(pages, file, &single, &split)
}

/// Figure 1.
fn latencies(pages: &mut Pages, file: &str, profile: &Profile) -> io::Result<()> {
    let found = histogram(&Ledger::new(profile));
    let mut text = String::from("\n### Latencies of misses\n");
    text += &tables::head(&[
        "answered by",
        "misses",
        "of misses",
        "of latency",
        "cycles",
        "service",
        "peak",
    ]);
    for class in &found.classes {
        text += &tables::row(&[
            uvfs_contention::analysis::histogram::class_name(class.class).to_owned(),
            tables::estimate(&class.misses),
            tables::percent(class.miss_share.mean),
            tables::percent(class.latency_share.mean),
            tables::estimate(&class.mean_latency),
            tables::estimate(&class.mean_service),
            class.peak.map_or_else(|| "none".to_owned(), |peak| peak.to_string()),
        ]);
    }
    text += &format!(
        "\n{} of misses are answered on the own node, with {} of all latency (the paper: 46 %, 27 %); {} by \
         another core's cache, with {}.\n",
        tables::percent(found.local_misses.mean),
        tables::percent(found.local_latency.mean),
        tables::percent(found.transfer_misses.mean),
        tables::percent(found.transfer_latency.mean),
    );
    pages.text(&text)?;
    let share = found.local_misses.mean;
    pages.report.sample("paper-local-misses", file, profile.meta.machine.cores, Unit::Share, share);
    pages.text(&figures::histogram_text(&found))?;
    pages.file(&format!("{file}-histogram.svg"), &figures::histogram_svg(&found))
}

/// Figure 2.
fn dearest(pages: &mut Pages, file: &str, profile: &Profile) -> io::Result<()> {
    let found = structures(&Ledger::new(profile));
    let mut text = format!(
        "\n### The dearest structures\n\nThe {} dearest of {} lines with transfers have {} of all latency.\n",
        found.lines,
        found.lines_with_transfers,
        tables::percent(found.share.mean)
    );
    text += &tables::head(&[
        "subsystem",
        "structure",
        "of latency",
        "lines",
        "transfers",
        "remote",
        "false",
        "field",
    ]);
    for subsystem in &found.subsystems {
        for one in &subsystem.structures {
            text += &tables::row(&[
                subsystem.name.clone(),
                one.name.clone(),
                tables::percent(one.share.mean),
                one.lines.to_string(),
                tables::estimate(&one.samples),
                tables::percent(one.remote_share.mean),
                tables::percent(one.false_share.mean),
                one.field.clone(),
            ]);
        }
    }
    pages.text(&text)?;
    pages.file(&format!("{file}-structures.svg"), &figures::structures_svg(&found))
}

/// Section 3.
fn nodes(pages: &mut Pages, file: &str, single: &Profile, split: &Profile) -> io::Result<()> {
    // Only the nodes differ: the question of this table.
    let found =
        compare(&Ledger::new(single), &Ledger::new(split), true).map_err(io::Error::other)?;
    pages.text("\n### One node against two\n")?;
    let mut text = tables::head(&["figure", "one node", "two nodes", "ratio"]);
    for total in &found.totals {
        let ratio = total.change.ratio.as_ref().map_or_else(String::new, tables::estimate);
        let [old, new] = [&total.change.old, &total.change.new].map(tables::estimate);
        text += &tables::row(&[total.name.clone(), old, new, ratio]);
    }
    text += &paying("function", &found, |found| &found.functions);
    text += &paying("field", &found, |found| &found.fields);
    let slower = |run: &Run| run.parallel_cycles as f64;
    let [one, two] = [single, split].map(|profile| tables::of_runs(profile, slower).mean);
    pages.report.sample(
        "paper-two-nodes",
        file,
        split.meta.machine.cores,
        Unit::Slowdown,
        two / one,
    );
    pages.text(&text)
}

type Rows = Vec<uvfs_contention::compare::Row>;

/// The structures that pay for the second node.
fn paying(what: &str, found: &Comparison, rows: impl Fn(&Comparison) -> &Rows) -> String {
    let mut text = tables::head(&[what, "cycles of misses, one node", "two nodes", "ratio"]);
    let more = |row: &&uvfs_contention::compare::Row| {
        matches!(row.latency.status, Status::More | Status::New | Status::Unclear)
    };
    for row in rows(found).iter().filter(more).take(10) {
        let ratio = row.latency.ratio.as_ref().map_or_else(String::new, tables::estimate);
        let [old, new] = [&row.latency.old, &row.latency.new].map(tables::estimate);
        text += &tables::row(&[format!("`{}`", row.name), old, new, ratio]);
    }
    text
}
