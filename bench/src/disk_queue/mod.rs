//! `uvfs-bench disk-queue`: the experiments of Peacock (1992) on the disk queue, with the product's own queue beside them.
//!
//! # Boundary
//! Composition: machines, policies, tables. The rest is a simulation in virtual time: [`disk`], [`driver`], [`load`], [`journal`],
//! [`simulation`].
//!
//! # Method
//! Three disks and seven policies. Each process computes, then reads, writes, changes metadata or calls `fsync`. Figures are those of
//! the paper, section "Disk Queue Tuning": utilisation of processors and disk, and the length of the driver's queue; and operations a
//! second, and latencies. Nothing is measured on this machine, so the same seed gives the same figures everywhere.
//!
//! # Why
//! A queue is judged by what it does to others, over minutes, also on disks that are no longer made. Weakness: a model; its loads and two of
//! its disks are assumed.

mod disk;
mod driver;
mod figures;
mod journal;
mod load;
mod plot;
mod simulation;

use clap::Args;
use figures::{CLASSES, Figures};
use load::Machine;
use simulation::System;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

/// Arguments of `disk-queue`.
#[derive(Debug, Args)]
pub(crate) struct DiskQueueArguments {
    /// A tenth of the time
    #[arg(long)]
    quick: bool,
    /// Another sequence of operations
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Utilisation and queue length over time as SVG, a file for each disk
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// One JSON object per line instead of tables
    #[arg(long)]
    json: bool,
    /// So little time that the figures mean nothing, for tests.
    #[arg(long, hide = true)]
    tiny: bool,
}

/// Simulates every disk with every policy.
///
/// # Errors
/// Those of the output.
pub(crate) fn run(arguments: &DiskQueueArguments) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let shorter = match arguments {
        DiskQueueArguments { tiny: true, .. } => 100,
        DiskQueueArguments { quick: true, .. } => 10,
        _ => 1,
    };
    for machine in &Machine::all(shorter) {
        let rows =
            System::ALL.map(|system| (system, simulation::run(machine, system, arguments.seed)));
        match arguments.json {
            true => write_json(machine, &rows, &mut out)?,
            false => write_table(machine, &rows, &mut out)?,
        }
        if let Some(folder) = &arguments.svg {
            fs::create_dir_all(folder)?;
            let path = folder.join(format!("disk-queue-{}.svg", machine.disk.name));
            fs::write(path, plot::svg(machine, &rows))?;
        }
    }
    Ok(())
}

fn write_table(
    machine: &Machine,
    rows: &[(System, Figures)],
    out: &mut dyn Write,
) -> io::Result<()> {
    let Machine { disk, processors, processes, .. } = machine;
    writeln!(out, "\ndisk {}, {processors} processors, {processes} processes", disk.name)?;
    writeln!(
        out,
        "{:<17}{:>9}{:>6}{:>6}{:>8}{:>7}{:>8}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "policy",
        "ops/s",
        "cpu%",
        "disk%",
        "queue",
        "max",
        "dirty",
        "read p50",
        "read p99",
        "meta p99",
        "fsync p99",
        "write p99"
    )?;
    for (system, figures) in rows {
        let whole = &figures.whole;
        write!(
            out,
            "{:<17}{:>9.1}{:>6.1}{:>6.1}{:>8.1}{:>7}{:>8.0}",
            system.name(),
            figures.rate(machine),
            whole.processors(machine),
            whole.disk(machine),
            whole.queue(),
            whole.queue_max,
            whole.dirty()
        )?;
        for (class, percent) in [(0, 50), (0, 99), (1, 99), (2, 99), (3, 99)] {
            write!(out, "{:>10.2}", figures.percentile_ms(class, percent))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn write_json(
    machine: &Machine,
    rows: &[(System, Figures)],
    out: &mut dyn Write,
) -> io::Result<()> {
    for (system, figures) in rows {
        let whole = &figures.whole;
        let mut line = serde_json::json!({
            "bench": "disk-queue",
            "disk": machine.disk.name,
            "policy": system.name(),
            "operations_per_s": figures.rate(machine),
            "processors_percent": whole.processors(machine),
            "disk_percent": whole.disk(machine),
            "queue": whole.queue(),
            "queue_max": whole.queue_max,
            "dirty_blocks": whole.dirty(),
            "taken_blocks": figures.taken,
        });
        for (class, name) in CLASSES.iter().enumerate() {
            for percent in [50, 99] {
                line[format!("{name}_p{percent}_ms")] =
                    figures.percentile_ms(class, percent).into();
            }
        }
        writeln!(out, "{line}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_figures() {
        let machine = &Machine::all(10)[0];
        for system in System::ALL {
            let [first, again] = [7, 7].map(|seed| simulation::run(machine, system, seed));
            assert_eq!(first, again, "{}", system.name());
            assert_ne!(first, simulation::run(machine, system, 8), "{}", system.name());
        }
    }

    /// The figures are exact, so they may be compared: nothing is measured here.
    #[test]
    fn the_disk_of_1992_shows_what_the_paper_saw() {
        let machine = &Machine::all(10)[0];
        let of = |system| simulation::run(machine, system, 1);
        let [flood, promotion, delayed] =
            [System::Flood, System::Promotion, System::Delayed].map(of);
        let rate = |figures: &Figures| figures.rate(machine);
        assert!(flood.whole.disk(machine) > 99.0 && flood.whole.processors(machine) < 90.0);
        assert!(delayed.whole.processors(machine) > 90.0 && rate(&delayed) > rate(&flood));
        assert!(rate(&promotion) < 0.9 * rate(&flood), "out of the sweep, it costs seeks");
        assert!(promotion.whole.queue() > flood.whole.queue());
    }

    #[test]
    fn the_products_queue_shortens_the_drivers() {
        for machine in &Machine::all(10)[..1] {
            let of = |system| simulation::run(machine, system, 1);
            let [flood, ours, journal] = [System::Flood, System::Ours, System::OursJournal].map(of);
            assert!(2 * ours.whole.queue_max < flood.whole.queue_max);
            assert!(ours.percentile_ms(0, 99) < flood.percentile_ms(0, 99));
            assert!(ours.rate(machine) >= flood.rate(machine));
            assert!(journal.rate(machine) > of(System::Delayed).rate(machine));
            assert!(journal.taken > 0, "fsync takes its blocks out of the queue");
        }
    }

    #[test]
    fn a_drawing_has_three_lines_for_each_policy() {
        let machine = &Machine::all(100)[0];
        let rows = System::ALL.map(|system| (system, simulation::run(machine, system, 1)));
        let svg = plot::svg(machine, &rows);
        assert_eq!(svg.matches("<polyline").count(), 3 * rows.len());
        assert!(svg.contains(">ours-journal</text>") && !svg.contains("NaN"), "{svg}");
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }
}
