//! Textbook programs from 1 to 128 virtual cores: the class of each curve, and the line that bends it.

use super::programs::{Workshop, curve, repository};
use super::{Pages, tables};
use std::io;
use std::path::PathBuf;
use uvfs_bench_kit::chart::{Chart, Series};
use uvfs_bench_kit::report::Unit;
use uvfs_contention::run::Plan;
use uvfs_contention::sweep::{Sweep, Work};

/// In C: description, source, flags, operations of a thread. Where no line is shared there are so many that the
/// one-time work at the barrier does not bend the curve.
const C: [(&str, &str, &[&str], u32); 14] = [
    ("TTAS lock", "ttas", &[], 200),
    ("ticket lock", "ticket", &[], 200),
    ("MCS lock", "mcs", &[], 200),
    ("pthread mutex", "mutex", &[], 200),
    ("one shard, spin lock", "shards", &["-DONE"], 200),
    ("shards", "shards", &[], 2000),
    ("one counter", "one_counter", &[], 400),
    ("two counters, one line", "counters", &[], 400),
    ("8-byte slots", "slots", &[], 400),
    ("padded slots", "slots", &["-DAPART"], 8000),
    ("48-byte elements", "straddle", &[], 300),
    ("aligned elements", "straddle", &["-DAPART"], 6000),
    ("RCU-like readers", "rcu", &[], 2000),
    ("counted readers", "rcu", &["-DCOUNTED"], 200),
];

/// In Rust: description, program, operations of a thread.
const RUST: [(&str, &str, u32); 3] = [
    ("std Mutex", "mutex", 200),
    ("std RwLock read", "readers", 200),
    ("sharded HashMap", "map", 6000),
];

pub(super) fn run(workshop: &Workshop, pages: &mut Pages) -> io::Result<()> {
    let mut sweeps = Vec::new();
    let mut add = |name: &str, program: PathBuf, operations: u32| -> io::Result<()> {
        eprintln!("uvfs-bench-papers: contention, {name}");
        // On one node, so that no step of a curve is a node's.
        let ran = workshop.cores().iter().map(|&cores| {
            let args = [cores.to_string(), operations.to_string()];
            workshop.run(&Plan { nodes: 1, ..workshop.plan(&program, cores, &args) })
        });
        let ran = ran.collect::<io::Result<Vec<_>>>()?;
        let operations = f64::from(operations);
        let sweep = curve(&ran, |(profile, _)| {
            let machine = &profile.meta.machine;
            let rate = |run: &uvfs_coherence::profile::Run| {
                let microseconds = run.parallel_cycles as f64 / machine.megahertz.value;
                machine.cores as f64 * operations / microseconds
            };
            Work::Metric(profile.runs.iter().map(rate).collect())
        })?;
        sweeps.push((name.to_owned(), sweep));
        Ok(())
    };
    let folder = repository("tests/contention/known");
    for (name, source, flags, operations) in C {
        let program = workshop.c(source, &[folder.join(source).with_extension("c")], flags)?;
        add(name, program, operations)?;
    }
    let bins = workshop.cargo(&folder.join("Cargo.toml"), &["--bins"])?;
    for (name, program, operations) in RUST {
        add(name, bins.join(program), operations)?;
    }
    samples(pages, "known", &sweeps, Unit::MillionsPerSecond, 1.0);
    pages.text(&tables::title("Known answers: rate by virtual cores, one node"))?;
    pages.text(&tables::curves("program", "M/s", &sweeps, 1.0))?;
    pages.text(&tables::bends(&sweeps))?;
    let halves = sweeps.split_at(sweeps.len() / 2);
    for (part, half) in [("1", halves.0), ("2", halves.1)] {
        let name = format!("known-{part}");
        chart(pages, &name, "Known answers", "M/s", half, 1.0)?;
    }
    Ok(())
}

/// Every seed of every point.
pub(super) fn samples(
    pages: &mut Pages,
    case: &str,
    sweeps: &[(String, Sweep)],
    unit: Unit,
    scale: f64,
) {
    for (name, sweep) in sweeps {
        for point in &sweep.points {
            for value in &point.by_seed {
                pages.report.sample(case, name, point.cores, unit, value * scale);
            }
        }
    }
}

/// The curves as a picture, if there is a folder for it.
pub(super) fn chart(
    pages: &Pages,
    file: &str,
    title: &str,
    unit: &'static str,
    sweeps: &[(String, Sweep)],
    scale: f64,
) -> io::Result<()> {
    let points = |sweep: &Sweep| {
        sweep.points.iter().map(|point| (point.cores, point.throughput.mean * scale)).collect()
    };
    let series =
        |(name, sweep): &(String, Sweep)| Series { name: name.clone(), points: points(sweep) };
    let series = sweeps.iter().map(series).collect();
    let chart = Chart { title: title.to_owned(), unit, over: "virtual cores", series };
    pages.file(&format!("{file}.svg"), &chart.svg())
}
