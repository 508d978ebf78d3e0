//! `uvfs-bench-papers contention`: the analyser's results for programs with known answers, for known bugs, for a small
//! database server, and for uvfs; with the figures of Gough, Siddha and Chen 2007.
//!
//! # Boundary
//! The programs, their numbers of virtual cores, and the tables. The analyser makes all counts (`uvfs-contention`);
//! [`programs`] builds and runs programs.
//!
//! # Why
//! The paper shows three kinds of figure and sixteen tables of one workload; so does this, for a workload of the same
//! kind and for uvfs. Each figure is a mean over seeds with its 95 % interval. All times are a model's virtual time: a
//! busy machine changes only the duration of the run; only `speed` measures the host. Weakness: only one thread's time
//! (`single`) is compared with hardware.

mod bugs;
mod figures;
mod known;
mod paper;
mod programs;
mod rows;
mod single;
mod speed;
mod tables;
mod users;
mod uvfs;

use clap::Args;
use programs::Workshop;
use std::io::{self, Write};
use std::path::PathBuf;
use uvfs_bench_kit::report::Report;
use uvfs_bench_kit::{cleanup, machine};

/// The cases, in this order.
const CASES: [&str; 9] =
    ["single", "known", "bugs", "oltp", "paper", "uvfs", "rows", "users", "speed"];

const EXAMPLES: &str = "Cases:
  single  twenty programs of one thread: simulated time beside this machine's
  known   textbook programs from 1 to 128 cores: class of the curve, rate, what bends it
  bugs    false sharing in published crates, with the predicted gain of separating the fields
  oltp    a small database server: its curve, locks and dearest structures
  paper   histogram, structures, line tables, one node against two, of the server and of uvfs
  uvfs    curves of the warm walk, of page lookups, of inserts and removals
  rows    the caches of Peacock (1992) in three ways of locking, and metadata of a disk image
  users   the mix of programs that Peacock (1992) measured with, on disk images of eight disks and of one
  speed   what a run costs the host: against one native thread, a second, a sweep
Examples:
  uvfs-bench-papers contention --quick
  uvfs-bench-papers contention --case uvfs --svg charts
  uvfs-bench-papers contention --case known --json";

/// Arguments of `contention`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ContentionArguments {
    /// Fewer cores and two seeds
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of tables
    #[arg(long)]
    json: bool,
    /// Only this case; may be repeated [default: all]
    #[arg(long = "case", value_name = "NAME", value_parser = CASES)]
    cases: Vec<String>,
    /// Runs of each program, each with its own jitter [default: 8, or 2 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    seeds: Option<u32>,
    /// Also write figures as SVG and reports as HTML into this folder
    #[arg(long, value_name = "FOLDER")]
    svg: Option<PathBuf>,
    /// So little that the figures mean nothing, for tests.
    #[arg(long, hide = true)]
    tiny: bool,
}

/// Where the cases write to.
pub(crate) struct Pages {
    /// Samples for JSON.
    report: Report,
    json: bool,
    folder: Option<PathBuf>,
}

impl Pages {
    /// Writes text; with `--json` there is none.
    fn text(&mut self, text: &str) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Writes a file, if there is a folder for files.
    fn file(&self, name: &str, content: &str) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        std::fs::write(folder.join(name), content)
    }
}

/// Runs the cases of `arguments`.
///
/// # Errors
/// At the end: the failed cases.
pub(crate) fn run(arguments: &ContentionArguments) -> io::Result<()> {
    cleanup::on_signals()?;
    if let Some(folder) = &arguments.svg {
        std::fs::create_dir_all(folder)?;
    }
    let seeds = arguments.seeds.unwrap_or(if arguments.quick || arguments.tiny { 2 } else { 8 });
    let size = match (arguments.tiny, arguments.quick) {
        (true, _) => programs::Size::Tiny,
        (false, true) => programs::Size::Quick,
        (false, false) => programs::Size::Full,
    };
    let workshop = Workshop::new(seeds, size)?;
    let report = Report::new("contention");
    let mut pages = Pages { report, json: arguments.json, folder: arguments.svg.clone() };
    pages.text(&heading(&workshop))?;
    let mut failures = Vec::new();
    for case in CASES {
        if !arguments.cases.is_empty() && !arguments.cases.iter().any(|wanted| wanted == case) {
            continue;
        }
        eprintln!("uvfs-bench-papers: contention, {case}");
        let done = match case {
            "single" => single::run(&workshop, &mut pages),
            "known" => known::run(&workshop, &mut pages),
            "bugs" => bugs::run(&workshop, &mut pages),
            "oltp" => paper::server(&workshop, &mut pages),
            "paper" => paper::run(&workshop, &mut pages),
            "uvfs" => uvfs::run(&workshop, &mut pages),
            "rows" => rows::run(&workshop, &mut pages),
            "users" => users::run(&workshop, &mut pages),
            _ => speed::run(&workshop, &mut pages),
        };
        if let Err(why) = done {
            eprintln!("uvfs-bench-papers: {case}: {why}");
            failures.push(format!("{case}: {why}"));
        }
        if arguments.json {
            pages.report.write_json(&mut io::stdout().lock())?;
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(io::Error::other(format!("not everything was done: {}", failures.join("; ")))),
    }
}

/// The context of every figure.
fn heading(workshop: &Workshop) -> String {
    let model = workshop.machine();
    format!(
        "{}\nmodel {:016x} ({}), {} parameters of it assumed; {} seeds; figures are predictions of that model: \
         no kernel, no allocator's own lines, no prefetch, no store buffer\n",
        machine::describe(),
        model.hash(),
        model.name,
        model.assumed().len(),
        workshop.seeds,
    )
}
