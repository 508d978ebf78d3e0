//! `uvfs-bench evict`: hits that replacement policies keep of sequences of accesses.
//!
//! # Boundary
//! Counts hits; no time is measured. `traces` has the traces, `policies` the policies of this process, `rivals` asks
//! those of other crates, and `aims` judges.
//!
//! # Why
//! A hit ratio is the same on any machine and in every run, so one run is enough and figures can be compared with those
//! of other papers. All caches have room for the same number of pages, whatever else they need. Weakness: pages here
//! cost nothing to read, and none is dirty or in use.

mod aims;
mod policies;
mod rivals;
mod traces;

use crate::report::{Column, Layout, Report, Unit};
use crate::rivals::Rivals;
use crate::{cleanup, context, machine};
use clap::Args;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use traces::{Sizes, Trace};

/// Compared with a policy that knows the future.
const LAYOUT: Layout<'static> =
    Layout { order: &[], columns: &[Column::Against(&[policies::OPTIMUM])], notes: &[] };

const EXAMPLES: &str = "Examples:
  uvfs-bench evict --quick
  uvfs-bench evict --case scan-sub-page --case zipf-0.99 --json
  uvfs-bench evict --trace pages.txt --capacity 100000
Rivals: cargo build --release --manifest-path bench-compare/Cargo.toml";

/// Arguments of `evict`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EvictArguments {
    /// A cache and traces of a quarter of the size; ends within a minute
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of tables
    #[arg(long)]
    json: bool,
    /// Only this trace; may be repeated [default: all]
    #[arg(long = "case", value_name = "NAME", value_parser = traces::NAMES)]
    cases: Vec<String>,
    /// Replays this file instead: a page's number in each line, decimal or 0x and hexadecimal
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cases", "quick"])]
    trace: Option<PathBuf>,
    /// Pages that the cache has room for [default: a tenth of those in FILE]
    #[arg(long, value_name = "PAGES", requires = "trace",
        value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    capacity: Option<u32>,
    /// The rivals' program [default: bench-compare/target/release/bench-compare]
    #[arg(long, value_name = "PATH")]
    rivals: Option<PathBuf>,
    /// Inputs so small that the figures mean nothing, for tests.
    #[arg(long, hide = true)]
    tiny: bool,
}

/// Misses of the accesses from `counted` on, in a least-recently-used cache.
pub(crate) fn least_recent_misses(capacity: usize, accesses: Vec<u64>, counted: usize) -> u64 {
    let mut accesses = accesses;
    let all = accesses.len() - counted;
    accesses[..counted].iter_mut().for_each(|access| *access |= traces::UNCOUNTED);
    let trace = Trace { name: String::new(), capacity, accesses };
    all as u64 - (policies::replay("lru", &trace) * all as f64 / 100.0).round() as u64
}

/// Replays the traces of `arguments`.
///
/// # Errors
/// A trace that cannot be read; at the end: the rivals that failed, by case.
pub(crate) fn run(arguments: &EvictArguments) -> io::Result<()> {
    cleanup::on_signals()?;
    let program = arguments.rivals.clone().unwrap_or_else(crate::rivals::default_program);
    let mut rivals = match Rivals::start(&program, "evict", 1) {
        Ok(rivals) => Some(rivals),
        Err(why) => {
            eprintln!("uvfs-bench: rivals are left out: {why}");
            None
        }
    };
    if !arguments.json {
        println!("{}", machine::describe());
        println!("hits in percent; the same on any machine");
    }
    let (mut report, mut failures) = (Report::new("evict"), Vec::new());
    let mut replay = |trace: &Trace| -> io::Result<()> {
        replay_all(trace, rivals.as_mut(), &mut report, &mut failures);
        let mut out = io::stdout().lock();
        match arguments.json {
            true => report.write_json(&mut out),
            false => report.write_tables(&LAYOUT, |_| true, &mut out),
        }
    };
    if let Some(path) = &arguments.trace {
        replay(&read(path, arguments.capacity)?)?;
    } else {
        let sizes = match (arguments.tiny, arguments.quick) {
            (true, _) => Sizes::TINY,
            (false, true) => Sizes::QUICK,
            (false, false) => Sizes::FULL,
        };
        let is_wanted = |name: &&str| {
            arguments.cases.is_empty() || arguments.cases.iter().any(|case| case == name)
        };
        for name in traces::NAMES.iter().filter(|name| is_wanted(name)) {
            replay(&traces::make(name, sizes))?;
        }
        if !arguments.json {
            let how = format!(
                "rivals: {}; the worst trace decides and is named",
                aims::RIVALS.join(", ")
            );
            crate::aims::write(&how, &aims::judge(&report), &mut io::stdout().lock())?;
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(io::Error::other(format!("not all was replayed: {}", failures.join("; ")))),
    }
}

fn read(path: &Path, capacity: Option<u32>) -> io::Result<Trace> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let capacity = capacity.map(|pages| pages as usize);
    File::open(path)
        .and_then(|file| traces::read(&name, BufReader::new(file), capacity))
        .map_err(context(path.display()))
}

/// Replays `trace` through every system; one row each.
fn replay_all(
    trace: &Trace,
    rivals: Option<&mut Rivals>,
    report: &mut Report,
    failures: &mut Vec<String>,
) {
    let mut add = |system: &str, percent: f64| {
        report.sample(&trace.name, system, 1, Unit::Percent, percent);
    };
    for name in policies::NAMES.into_iter().chain([policies::ROWS]) {
        add(name, policies::replay(name, trace));
    }
    let Some(rivals) = rivals else { return };
    for name in rivals.names().to_vec() {
        match rivals::replay(rivals, &name, trace) {
            Ok(percent) => add(&name, percent),
            Err(why) => failures.push(format!("{name} in {}: {why}", trace.name)),
        }
    }
}
