//! `uvfs-bench hit`: the page cache when every access hits, beside the kernel's and other caches.
//!
//! # Boundary
//! The cases, their repetitions, and the report; each family of cases is a file of its own. Asserts
//! no time; checks the content of every read.
//!
//! # Rooms
//! * `traces`, `team`: the keys and the threads, shared with `bench-compare`, so that all read the
//!   same.
//! * `cases`: names and sizes. `figures`, `aims`: tables, lines and verdicts.
//! * `turns`: the timed loop. `store`, `rivals`: the measured systems.
//! * `reads`, `lookups`, `scan`, `disk`: the measurements.
//!
//! # Why
//! Reads of uvfs are whole calls of its interface, from the handle to the bytes, like `pread` of
//! the kernel's; the rivals look a page up and copy it. Lookups are the parts below that. So each
//! ratio is the gain of replacing one by the other. Weakness: the rivals run in processes of their
//! own, and all evict each other from the processor's caches.

mod aims;
mod cases;
mod disk;
mod lookups;
mod reads;
mod rivals;
mod scan;
mod store;
mod turns;

use crate::report::{Column, Layout, Report};
use crate::{cleanup, machine};
use cases::{Case, FULL, QUICK, Sizes, TINY};
use clap::Args;
use rivals::Rival;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

/// Ourselves, by the interface.
const OURS: &str = "uvfs";
/// uvfs, with room for a quarter of the written pages.
const QUARTER: &str = "uvfs-quarter";
/// Ourselves: tree, and a look whether the page is there and readable.
const FOUND: &str = "uvfs-found";
/// uvfs: tree, and a reference that is taken and released.
const HELD: &str = "uvfs-held";
/// Ourselves: as found, with eight bytes of the page.
const VALIDATED: &str = "uvfs-validated";
/// Ourselves: as held, with eight bytes of the page.
const REFERENCED: &str = "uvfs-reference";
/// A file on a tmpfs.
const KERNEL: &str = "kernel-tmpfs";
/// The kernel's cache above the disk.
const KERNEL_DISK: &str = "kernel";
/// The fastest rival that is a cache, which the aims name.
const HASH: &str = "quick_cache";

/// Ourselves first; compared with the first of these that took part.
const LAYOUT: Layout<'static> = Layout {
    order: &[OURS, FOUND, HELD, VALIDATED, REFERENCED, KERNEL],
    columns: &[Column::Times(&[KERNEL, HASH, KERNEL_DISK])],
    notes: &[],
};

const EXAMPLES: &str = "Examples:
  uvfs-bench hit --quick                         every case, small; within some minutes
  uvfs-bench hit --case read4k --threads 1,2,4   whole pages: hot, uniform, zipf
  uvfs-bench hit --case 'lookup-*' --cpu         on a machine that others use, too
  uvfs-bench hit --json --case write-back-random > lines
Rivals: cargo build --release --manifest-path bench-compare/Cargo.toml";

/// Arguments of `hit`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct HitArguments {
    /// Smaller inputs and fewer rounds
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of tables
    #[arg(long)]
    json: bool,
    /// Only cases that match this, whole or up to a dash; `*` and `?` as in a shell; may
    /// be repeated [default: all]
    #[arg(long = "case", value_name = "GLOB")]
    cases: Vec<String>,
    /// Numbers of threads that read at the same time
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,2",
        value_parser = clap::value_parser!(u16).range(1..=uvfs_bench_workload::team::THREADS_MAX as i64))]
    threads: Vec<u16>,
    /// Rounds of which the median is taken [default: 9, or 5 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: Option<u16>,
    /// The rivals' program [default: bench-compare/target/release/bench-compare]
    #[arg(long, value_name = "PATH")]
    rivals: Option<PathBuf>,
    /// Rates by the time on processors instead of the time on the clock: for a machine that others
    /// use, too. Does not see waiting threads
    #[arg(long)]
    cpu: bool,
    /// Inputs so small that the figures mean nothing, for tests.
    #[arg(long, hide = true)]
    tiny: bool,
}

/// One run of the bench.
struct Run {
    sizes: Sizes,
    rounds: usize,
    threads: Vec<usize>,
    rivals: PathBuf,
    by_cpu: bool,
    begin: Instant,
    /// The notes about systems that are left out.
    left_out: RefCell<BTreeSet<String>>,
    failures: RefCell<Vec<String>>,
}

/// Runs the measurements of `arguments`.
///
/// # Errors
/// Unknown cases, and at the end: the systems that failed, by case.
pub(crate) fn run(arguments: &HitArguments) -> io::Result<()> {
    let (sizes, rounds) = match (arguments.tiny, arguments.quick) {
        (true, _) => (TINY, 2),
        (false, true) => (QUICK, 5),
        (false, false) => (FULL, 9),
    };
    let wanted = cases::wanted(&arguments.cases, &sizes).map_err(io::Error::other)?;
    cleanup::on_signals()?;
    let run = Run {
        sizes,
        rounds: arguments.runs.map_or(rounds, usize::from),
        threads: arguments.threads.iter().map(|&threads| usize::from(threads)).collect(),
        rivals: arguments.rivals.clone().unwrap_or_else(crate::rivals::default_program),
        by_cpu: arguments.cpu,
        begin: Instant::now(),
        left_out: RefCell::default(),
        failures: RefCell::default(),
    };
    if !arguments.json {
        println!("{}", machine::describe());
        let clock = if run.by_cpu { "; rates by processor time" } else { "" };
        println!("threads are pinned to cores; {} rounds, in turns{clock}", run.rounds);
    }
    let mut figures = Report::new("hit");
    let mut out = io::stdout().lock();
    let families: [Measure; 4] = [reads::measure, lookups::measure, scan::measure, disk::measure];
    for measure in families {
        measure(&run, &wanted, &mut figures)?;
        match arguments.json {
            true => figures.write_json(&mut out)?,
            false => figures.write_tables(&LAYOUT, |_| true, &mut out)?,
        }
    }
    if !arguments.json {
        crate::aims::write(
            "the worst row decides and is named",
            &aims::judge(&figures, &run.sizes),
            &mut out,
        )?;
    }
    let failures = run.failures.into_inner();
    if failures.is_empty() {
        return Ok(());
    }
    Err(io::Error::other(format!("not everything was measured: {}", failures.join("; "))))
}

/// Runs the selected cases of a family.
type Measure = fn(&Run, &[Case], &mut Report) -> io::Result<()>;

impl Run {
    fn progress(&self, what: &str) {
        eprintln!("uvfs-bench: {:6.1} s  {what}", self.begin.elapsed().as_secs_f64());
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

    /// A process for each rival, none of which holds anything yet.
    fn rivals(&self, case: &str) -> Vec<(String, Rival)> {
        let names = match Rival::start(&self.rivals) {
            Ok(first) => first.names().to_vec(),
            Err(why) => {
                self.leave_out("the rivals", case, &why);
                return Vec::new();
            }
        };
        let started = names.into_iter().map(|name| Some((name, Rival::start(&self.rivals).ok()?)));
        started.flatten().collect()
    }
}

/// Left for everything else on the machine.
const RESERVE_BYTES: u64 = 3 << 29;

/// Whether `bytes` fit into the memory that is left; otherwise why not.
fn fits(bytes: u64) -> Result<(), String> {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    match kib.map(|kib| kib * 1024) {
        Some(left) if left < bytes + RESERVE_BYTES => Err(format!(
            "it needs about {} MiB, and of {} MiB left {} stay free",
            bytes >> 20,
            left >> 20,
            RESERVE_BYTES >> 20
        )),
        _ => Ok(()),
    }
}

/// An error of uvfs as one of the system.
fn other(error: uvfs_vfs::Error) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_said_with_its_size() {
        assert!(fits(1).is_ok());
        let why = fits(1 << 50).unwrap_err();
        assert!(why.starts_with("it needs about 1073741824 MiB"), "{why}");
    }
}
