//! `uvfs-bench-papers dcache`: "Scalability of the Directory Entry Cache" (Linder, Sarma and Soni, Ottawa
//! Linux Symposium 2002) run again, with the product beside the paper's steps.
//!
//! # Boundary
//! The runs and their order. `variants` holds the paper's steps, `loads` the workloads, `results`,
//! `tables` and `figures` the results. Asserts no time.
//!
//! # Why
//! Everything happens in this process, without a kernel: the subject is locking. The number of lock
//! acquisitions per operation is exact on any machine. The threads' waiting time is not: the paper
//! had 8 and 16 processors. Weakness: the variants stop at names, while the product also keeps
//! attributes, checks permissions and has a real store behind it.

mod api;
mod audit;
mod figures;
mod lists;
mod loads;
mod measure;
mod paths;
mod product;
mod results;
mod sites;
mod slab;
mod tables;
pub mod tree;
mod variants;

use clap::Args;
use loads::Kind;
use measure::Variant;
use results::Results;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use uvfs_bench_kit::{context, machine};

/// Options of `uvfs-bench-papers dcache`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  uvfs-bench-papers dcache                                  everything, a few minutes
  uvfs-bench-papers dcache --quick --svg charts             everything smaller, figures as files too
  uvfs-bench-papers dcache --threads 1,2 --variant global-lock --variant uvfs
  uvfs-bench-papers dcache --json >results.jsonl")]
pub(crate) struct DcacheArguments {
    /// Fewer operations and runs; ends within a minute
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of tables and figures
    #[arg(long)]
    json: bool,
    /// Numbers of client threads, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4",
          value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Vec<u32>,
    /// Write figures 1 to 6 as SVG files into this folder, which is made if need be
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Only this variant; may be repeated [default: all]
    #[arg(long = "variant", value_name = "NAME")]
    variants: Vec<Variant>,
    /// Operations of each client [default: 100000, or 20000 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(100..=100_000_000))]
    operations: Option<u32>,
    /// Runs of which the median is taken [default: 5, or 3 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
}

/// Runs the measurements of `arguments`.
///
/// # Errors
/// A folder that cannot be made, or a wrong answer of a variant.
pub(crate) fn run(arguments: &DcacheArguments) -> io::Result<()> {
    let quick = arguments.quick;
    let operations = arguments.operations.unwrap_or(if quick { 20_000 } else { 100_000 }) as usize;
    let runs = arguments.runs.unwrap_or(if quick { 3 } else { 5 });
    let variants: BTreeSet<Variant> = match arguments.variants.is_empty() {
        true => Variant::ALL.into(),
        false => arguments.variants.iter().copied().collect(),
    };
    let variants: Vec<Variant> = variants.into_iter().collect();
    let threads: BTreeSet<u32> = arguments.threads.iter().copied().collect();
    let threads: Vec<usize> = threads.into_iter().map(|threads| threads as usize).collect();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if let Some(folder) = &arguments.svg {
        fs::create_dir_all(folder).map_err(context(folder.display()))?;
    }
    let results = measure(&variants, &threads, operations, runs)?;
    let mut out = io::stdout().lock();
    if arguments.json {
        if let Some(folder) = arguments.svg.as_deref() {
            figures::write(&results, &variants, &threads, Some(folder), &mut io::sink())?;
        }
        return results.write_json(&mut out);
    }
    write_header(cores, operations, runs, &mut out)?;
    tables::write(&results, &variants, &threads, cores, &mut out)?;
    figures::write(&results, &variants, &threads, arguments.svg.as_deref(), &mut out)
}

/// All runs: in each round every variant has its turn.
fn measure(
    variants: &[Variant],
    threads: &[usize],
    operations: usize,
    runs: u32,
) -> io::Result<Results> {
    let mut results = Results::default();
    for kind in Kind::ALL {
        for &clients in threads {
            let load = kind.load(clients, operations);
            for round in 1..=runs {
                eprintln!("{}, threads {clients}, round {round} of {runs}", kind.name());
                for &variant in variants {
                    results.add(kind, clients, variant, measure::run(variant, kind, &load)?);
                }
            }
        }
    }
    Ok(results)
}

fn write_header(
    cores: usize,
    operations: usize,
    runs: u32,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "{}", machine::describe())?;
    writeln!(
        out,
        "\
Linder, Sarma and Soni 2002, run again in process: {operations} operations per client, {runs} runs in turns.
Throughput is a median; lock figures come from a pass of their own with every hold timed, tables from
the run with the median throughput.
Compare acquisitions: they are exact. Contention and waiting on {cores} cores say little about the
paper's 8 and 16 processors, and less where threads outnumber cores or other programs run: then most
of a wait is for a thread that is not running, and most of a long hold is being preempted.
global: dcache_lock and d_lru_lock. con, util, hold, wait: of these and the bucket locks; for uvfs, which
has none of them, of all its locks; over many locks, util is a sum. behind: locks that are no
part of the cache (i_sem, allocator, store). Data is neither written nor read. uvfs also checks
permissions, copies attributes and keeps real objects; the other variants stop at names."
    )
}
