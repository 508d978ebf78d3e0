//! `uvfs-bench walk`: walking paths in process, against the kernel and against concurrent maps.
//!
//! # Boundary
//! The cases, their repetitions, and the report; each family of cases is a file of its own. Asserts
//! no time; checks the result of every walk.
//!
//! # Rooms
//! * `cases`: names and sizes. `figures`, `aims`: tables, lines and verdicts.
//! * `contestants`, `store`, `rivals`, `files`, `place`: the measured systems, and their places.
//! * `grid`, `fxmark`, `storms`, `bytes`: the measurements.
//!
//! # Why
//! The kernel's figures contain the entry into the kernel, which a program pays; uvfs's and the
//! maps' contain none. Maps check no permission and evict nothing. So each ratio is the gain of
//! replacing one by the other, not a comparison of hash tables.

mod aims;
mod bytes;
mod cases;
mod contestants;
mod figures;
mod files;
mod fxmark;
mod grid;
mod latency;
pub(crate) mod place;
mod rivals;
mod store;
mod storms;

use crate::report::Report;
use crate::{cleanup, machine};
use cases::{FULL, QUICK, Sizes, TINY, Wanted};
use clap::Args;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Ourselves, by components.
const UVFS: &str = "uvfs";
/// Ourselves, by memos of whole paths.
const UVFS_WHOLE: &str = "uvfs-whole-path";
/// `fstatat` on a tmpfs.
const KERNEL: &str = "kernel-tmpfs";
/// The maps of `bench-compare` that are name caches.
const RIVALS: [&str; 4] = ["papaya", "dashmap", "scc", "mutex-map"];
/// Maps that cut names at 23 bytes: no name caches, but a bound on what those could reach.
const BOUNDS: [&str; 2] = ["papaya-inline", "mutex-map-inline"];

const EXAMPLES: &str = "Examples:
  uvfs-bench walk --quick                        every case, small; within a minute
  uvfs-bench walk --case 'd6-n100000-*'          one tree, hot and uniform
  uvfs-bench walk --case 'fx-MR*' --threads 1,2,4
  uvfs-bench walk --json --case d12 > lines      all trees of that depth, as JSON lines
Rivals: cargo build --release --manifest-path bench-compare/Cargo.toml";

/// Arguments of `walk`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WalkArguments {
    /// Smaller inputs and fewer rounds; ends within a minute
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of tables
    #[arg(long)]
    json: bool,
    /// Only cases that match this, whole or up to a dash; `*` and `?` as in a shell; may
    /// be repeated [default: two lines through the grid of trees, and all other cases]
    #[arg(long = "case", value_name = "GLOB")]
    cases: Vec<String>,
    /// Numbers of threads that walk at the same time
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,2",
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
    /// The rivals' program [default: bench-compare/target/release/bench-compare]
    #[arg(long, value_name = "PATH")]
    rivals: Option<PathBuf>,
    /// Rounds of which the median is taken [default: 9, or 5 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: Option<u16>,
    /// Inputs so small that the figures mean nothing, for tests.
    #[arg(long, hide = true)]
    tiny: bool,
    /// Fills the caches with this number of names and prints the growth of this process in bytes.
    #[arg(long, hide = true, value_name = "NAMES")]
    grown_by: Option<u64>,
}

/// One run of the bench.
struct Run {
    sizes: Sizes,
    rounds: usize,
    /// How long one system walks in one round.
    target: Duration,
    threads: Vec<usize>,
    rivals: PathBuf,
    /// A case begins no further round after this.
    case_limit: Option<Duration>,
    begin: Instant,
    /// The notes about systems that are left out.
    left_out: RefCell<BTreeSet<String>>,
    failures: RefCell<Vec<String>>,
}

/// Runs the measurements of `arguments`.
///
/// # Errors
/// Unknown cases, and at the end: the systems that failed, by case.
pub(crate) fn run(arguments: &WalkArguments) -> io::Result<()> {
    if let Some(names) = arguments.grown_by {
        return bytes::print_growth(names);
    }
    let (sizes, rounds, ms) = match (arguments.tiny, arguments.quick) {
        (true, _) => (TINY, 2, 1),
        (false, true) => (QUICK, 5, 20),
        (false, false) => (FULL, 9, 100),
    };
    let wanted = Wanted::new(&arguments.cases, sizes).map_err(io::Error::other)?;
    cleanup::on_signals()?;
    let run = Run {
        sizes,
        rounds: arguments.runs.map_or(rounds, usize::from),
        target: Duration::from_millis(ms),
        threads: arguments.threads.iter().map(|&threads| usize::from(threads)).collect(),
        rivals: arguments.rivals.clone().unwrap_or_else(crate::rivals::default_program),
        case_limit: arguments.quick.then_some(Duration::from_secs(1)),
        begin: Instant::now(),
        left_out: RefCell::default(),
        failures: RefCell::default(),
    };
    if !arguments.json {
        println!("{}", machine::describe());
        println!("threads are pinned to cores; rounds of {ms} ms, in turns");
    }
    let figures = run.everything(&wanted, arguments.json)?;
    if !arguments.json {
        let mut out = io::stdout().lock();
        figures::write_curve(&figures, &sizes.names, &mut out)?;
        crate::aims::write(
            "medians of this run; the worst row decides and is named",
            &aims::judge(&figures, sizes),
            &mut out,
        )?;
    }
    let failures = run.failures.into_inner();
    if failures.is_empty() {
        return Ok(());
    }
    Err(io::Error::other(format!("not everything was measured: {}", failures.join("; "))))
}

type Measure = fn(&Run, &mut Report) -> io::Result<()>;

impl Run {
    fn everything(&self, wanted: &Wanted, json: bool) -> io::Result<Report> {
        let mut figures = Report::new("walk");
        let mut out = io::stdout().lock();
        let mut write = |figures: &mut Report| match json {
            true => figures.write_json(&mut out),
            false => figures.write_tables(&figures::LAYOUT, |_| true, &mut out),
        };
        for (shape, patterns) in wanted.trees() {
            grid::measure(self, shape, &patterns, &mut figures)?;
            write(&mut figures)?;
        }
        for case in fxmark::CASES {
            if wanted.any(&[format!("fx-{}", case.name())]) {
                fxmark::measure(self, case, &mut figures)?;
                write(&mut figures)?;
            }
        }
        let rest: [Measure; 7] = [
            storms::negative,
            storms::negative_storm,
            storms::rename_storm,
            storms::listing,
            storms::reclaim,
            storms::scan_then_hot,
            bytes::measure,
        ];
        let names = cases::others(wanted.sizes()).split_off(fxmark::CASES.len());
        for (cases, measure) in names.iter().zip(rest) {
            if wanted.any(cases) {
                measure(self, &mut figures)?;
                write(&mut figures)?;
            }
        }
        Ok(figures)
    }

    fn progress(&self, what: &str) {
        eprintln!("uvfs-bench: {:6.1} s  {what}", self.begin.elapsed().as_secs_f64());
    }

    /// Whether the run has to end within a minute.
    fn is_quick(&self) -> bool {
        self.case_limit.is_some()
    }

    /// Whether round `round` of a case that began at `begin` is one too many. Three always happen.
    fn is_late(&self, begin: Instant, round: usize) -> bool {
        round > 3 && self.case_limit.is_some_and(|limit| begin.elapsed() > limit)
    }

    /// Whether `system` takes part; reports it if not.
    fn may_hold(&self, system: &str, case: &str, fits: Result<(), String>) -> bool {
        match fits {
            Ok(()) => true,
            Err(why) => {
                self.leave_out(system, case, &why);
                false
            }
        }
    }

    /// Says, once for each reason, that `system` is not measured.
    fn leave_out(&self, system: &str, case: &str, why: &str) {
        if self.left_out.borrow_mut().insert(format!("{system}: {why}")) {
            eprintln!("uvfs-bench: {case}: {system} is left out: {why}");
        }
    }

    /// Says that `system` dropped out of `case`.
    fn failed(&self, system: &str, case: &str, why: &str) {
        let line = format!("{system} in {case}: {why}");
        eprintln!("uvfs-bench: {line}");
        self.failures.borrow_mut().push(line);
    }
}
