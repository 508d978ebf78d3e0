//! `uvfs-bench-papers radix`: the experiment of Zijlstra 2007 with our tree, and its rivals.
//!
//! # Boundary
//! The systems, their turns, and the report. `systems` implements a round; `rivals` sends requests
//! to the rivals. Asserts no time; checks the result of every operation.
//!
//! # Why
//! The paper inserts, tags, untags and removes 16,777,216 items by two threads, each in its own
//! half of the range or in turns with the other. It compares one lock, locks from the root down,
//! and optimistic locks. Here are the first and the last, with lookups and searches besides;
//! bench/results/pages-2026-11-21.md has our figures of the second. One lock is around our tree, so
//! that it also pays for the tree's own locks. All systems of a setting take
//! turns, so disturbances of the machine affect all alike. Weakness: the rivals are built with
//! other crates' allocators and run in other processes, so they first touch memory at another time
//! than ours.

mod aims;
mod figures;
mod rivals;
mod systems;
mod tables;

use clap::Args;
use figures::Figures;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use uvfs_bench_kit::rivals::{Rivals, default_program};
use uvfs_bench_kit::{cleanup, machine};
use uvfs_bench_workload::keys::Pattern;

/// The paper's.
const ITEMS: u64 = 1 << 24;
const ITEMS_QUICK: u64 = 1 << 20;
const ITEMS_TINY: u64 = 1 << 12;

/// With `--quick`, a setting begins no further round after this.
const QUICK_LIMIT: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "Examples:
  uvfs-bench-papers radix --quick
  uvfs-bench-papers radix --systems serial,optimistic    the paper's tables alone
  uvfs-bench-papers radix --items 4194304 --systems optimistic,xarray,congee --json
Rivals: cargo build --release --manifest-path bench-compare/Cargo.toml";

/// Arguments of `radix`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RadixArguments {
    /// 2^20 items, and no further round once a setting took five seconds; ends within a minute
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of tables
    #[arg(long)]
    json: bool,
    /// Items of a round [default: 16777216, as in the paper]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 31))]
    items: Option<u64>,
    /// Only these systems, separated by commas [default: ours and all rivals that are built]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    systems: Vec<String>,
    /// Numbers of threads that share a round's items
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,2",
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
    /// The rivals' program [default: bench-compare/target/release/bench-compare]
    #[arg(long, value_name = "PATH")]
    rivals: Option<PathBuf>,
    /// Rounds of which the median is taken [default: 5, or 3 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: Option<u16>,
    /// Inputs so small that the figures mean nothing, for tests.
    #[arg(long, hide = true)]
    tiny: bool,
}

/// One that takes part.
enum System {
    Ours(&'static str),
    Rival(String),
}

impl System {
    fn name(&self) -> &str {
        match self {
            System::Ours(name) => name,
            System::Rival(name) => name,
        }
    }
}

/// Runs the measurements of `arguments`.
///
/// # Errors
/// Unknown systems, and at the end: the failed systems.
pub(crate) fn run(arguments: &RadixArguments) -> io::Result<()> {
    cleanup::on_signals()?;
    let items = arguments.items.unwrap_or(match (arguments.tiny, arguments.quick) {
        (true, _) => ITEMS_TINY,
        (false, true) => ITEMS_QUICK,
        (false, false) => ITEMS,
    });
    let rounds = arguments.runs.unwrap_or(if arguments.quick || arguments.tiny { 3 } else { 5 });
    let program = arguments.rivals.clone().unwrap_or_else(default_program);
    let mut rivals = match Rivals::start(&program, "radix", 1) {
        Ok(rivals) => Some(rivals),
        Err(why) => {
            eprintln!("uvfs-bench-papers: rivals are left out: {why}");
            None
        }
    };
    let mut systems = chosen(&arguments.systems, rivals.as_ref()).map_err(io::Error::other)?;
    if !arguments.json {
        println!("{}", machine::describe());
        println!("{items} items; threads are pinned to cores; systems in turns");
    }
    let (mut figures, mut failures) = (Figures::new(items), Vec::new());
    let begin = Instant::now();
    for pattern in Pattern::ALL {
        for &threads in &arguments.threads {
            let threads = usize::from(threads);
            let setting = Instant::now();
            for round in 0..rounds {
                if arguments.quick && round > 0 && setting.elapsed() > QUICK_LIMIT {
                    break;
                }
                eprintln!(
                    "uvfs-bench-papers: {:6.1} s  {}, threads: {threads}, round {}",
                    begin.elapsed().as_secs_f64(),
                    pattern.name(),
                    round + 1
                );
                systems.retain(|system| {
                    let done = match (system, rivals.as_mut()) {
                        (System::Ours(name), _) => systems::round(name, pattern, threads, items),
                        (System::Rival(name), Some(rivals)) => {
                            rivals::round(rivals, name, pattern, threads, items)
                        }
                        (System::Rival(_), None) => Err("it is not there".to_owned()),
                    };
                    match done {
                        Ok(done) => figures.add(system.name(), pattern, threads, &done),
                        Err(why) => {
                            let line = format!("{} {}: {why}", system.name(), pattern.name());
                            eprintln!("uvfs-bench-papers: {line}");
                            failures.push(line);
                            return false;
                        }
                    }
                    true
                });
            }
        }
    }
    let mut out = io::stdout().lock();
    if arguments.json {
        figures.write_json(&mut out)?;
    } else {
        tables::write_paper(&figures, &mut out)?;
        tables::write_rates(&figures, &mut out)?;
        let how = "medians on the clock; the row farthest from its aim decides";
        uvfs_bench_kit::aims::write(how, &aims::judge(&figures), &mut out)?;
    }
    if failures.is_empty() {
        return Ok(());
    }
    Err(io::Error::other(format!("not everything was measured: {}", failures.join("; "))))
}

/// The measured systems, ours first.
fn chosen(wanted: &[String], rivals: Option<&Rivals>) -> Result<Vec<System>, String> {
    let theirs = rivals.map_or(&[][..], Rivals::names);
    let all = || {
        let ours = systems::NAMES.into_iter().map(System::Ours);
        ours.chain(theirs.iter().cloned().map(System::Rival))
    };
    if let Some(unknown) = wanted.iter().find(|name| !all().any(|one| one.name() == **name)) {
        let names: Vec<String> = all().map(|system| system.name().to_owned()).collect();
        return Err(format!("no system {unknown}; there are: {}", names.join(", ")));
    }
    Ok(all()
        .filter(|system| wanted.is_empty() || wanted.iter().any(|name| name == system.name()))
        .collect())
}
