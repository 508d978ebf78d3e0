//! Users of one machine on more and more processors: Peacock's figure 5 with uvfs's disk images, T(n) / (n T(1)).
//!
//! # Boundary
//! The runs and their table; the program is `examples/contention_users.rs`.
//!
//! # Why
//! Peacock (1992) ran Gaede's mix on one to five processors with eight disks. The program has four users for each
//! processor: while one waits for a disk, another one can compute. The same with one disk is shown and not judged: there all
//! users share one journal. `uvfs-bench users` measures one and two real processors. Weakness: the disks are simulated, too, and T(n) of
//! a model says nothing about the time of a real turn.

use super::known::{chart, samples};
use super::programs::{Ran, Size, Workshop, curve};
use super::{Pages, tables, uvfs};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use uvfs_bench_kit::report::Unit;
use uvfs_contention::Ledger;
use uvfs_contention::analysis::lock_groups;
use uvfs_contention::sweep::{Sweep, Work};

/// The paper's five, and beyond.
const CORES: [usize; 9] = [1, 2, 3, 4, 5, 8, 16, 32, 64];
const QUICK: [usize; 3] = [1, 5, 64];
/// Users of a processor.
const USERS: usize = 4;
/// Turns of each user that count.
const TURNS: usize = 4;
/// The paper's disks; the first is judged.
const DISKS: [usize; 2] = [8, 1];
/// The part of one processor's rate that each keeps: processors, the aim, and what the paper has.
const AIMS: [(usize, f64, Option<f64>); 2] = [(5, 0.95, Some(0.88)), (64, 0.80, None)];
/// Locks that a table names.
const LOCKS: usize = 8;

pub(super) fn run(workshop: &Workshop, pages: &mut Pages) -> io::Result<()> {
    let program = uvfs::build(workshop)?.join("contention_users");
    let image = workshop.folder().join("users.img");
    if let Err(why) = make(&image) {
        eprintln!("uvfs-bench-papers: users are left out: {why}");
        return Ok(());
    }
    let cores: &[usize] = match workshop.size {
        Size::Tiny => &[1, 4],
        Size::Quick => &QUICK,
        Size::Full => &CORES,
    };
    let mut sweeps = Vec::new();
    let mut locks = String::new();
    for disks in DISKS {
        let name = format!("{disks} disk{}", if disks == 1 { "" } else { "s" });
        eprintln!("uvfs-bench-papers: contention, users on {name}");
        let ran = runs(workshop, &program, cores, disks, &image)?;
        sweeps.push((name.clone(), curve(&ran, |one| Work::Metric(uvfs::rates(one)))?));
        if let Some((profile, _)) = ran.last() {
            let most = profile.meta.machine.cores;
            locks += &format!("\nLocks with {name} on {most} processors, times in cycles:\n");
            locks += &tables::locks(&lock_groups(&Ledger::new(profile)), LOCKS);
        }
    }
    samples(pages, "users", &sweeps, Unit::ThousandsPerSecond, 1e-3);
    pages.text(&tables::title("Peacock 1992, figure 5: turns of users by virtual processors"))?;
    pages.text(&tables::curves("users", "k/s", &sweeps, 1e-3))?;
    pages.text(&kept(&sweeps))?;
    for (name, sweep) in &sweeps {
        for point in &sweep.points {
            let case = format!("users-kept-{}", name.replace(' ', "-"));
            pages.report.sample(&case, "uvfs", point.cores, Unit::Share, point.efficiency.mean);
        }
    }
    pages.text(&tables::bends(&sweeps))?;
    pages.text(&locks)?;
    chart(pages, "users", "Users of disk images", "k/s", &sweeps, 1e-3)
}

fn runs(
    workshop: &Workshop,
    program: &Path,
    cores: &[usize],
    disks: usize,
    image: &Path,
) -> io::Result<Vec<Ran>> {
    let run = |&cores: &usize| {
        let users = (cores * USERS).to_string();
        let mode = format!("{disks}:{}", image.display());
        workshop.run(&workshop.plan(program, cores, &[TURNS.to_string(), users, mode]))
    };
    cores.iter().map(run).collect()
}

/// What each processor keeps of one processor's rate, by the number of processors, and the aims.
fn kept(sweeps: &[(String, Sweep)]) -> String {
    let Some((_, first)) = sweeps.first() else { return String::new() };
    let mut columns = vec!["T(n) / (n T(1))".to_owned()];
    columns.extend(first.points.iter().map(|point| point.cores.to_string()));
    let mut text = tables::head(&columns.iter().map(String::as_str).collect::<Vec<_>>());
    for (name, sweep) in sweeps {
        let points = sweep.points.iter().map(|point| {
            let spread = point.efficiency.plus_minus.unwrap_or(0.0);
            format!("{} ± {}", tables::percent(point.efficiency.mean), tables::percent(spread))
        });
        text += &tables::row(&std::iter::once(name.clone()).chain(points).collect::<Vec<_>>());
    }
    text += "\n";
    for (cores, aim, paper) in AIMS {
        let at = |sweep: &&(String, Sweep)| {
            let point = sweep.1.points.iter().find(|point| point.cores == cores)?;
            Some(point.efficiency.mean)
        };
        let Some(kept) = sweeps.first().as_ref().and_then(at) else { continue };
        let held = if kept >= aim { "held" } else { "missed" };
        let paper = paper.map_or_else(String::new, |paper| {
            format!("; the paper has {} there", tables::percent(paper))
        });
        let [kept, aim] = [kept, aim].map(tables::percent);
        text += &format!("- {kept} kept on {cores} processors; aim {aim}: {held}{paper}\n");
    }
    text
}

/// An empty image that mke2fs(8) makes.
fn make(path: &PathBuf) -> io::Result<()> {
    let _ = std::fs::remove_file(path);
    let mut make = Command::new("mke2fs");
    make.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-N", "4096", "-J", "size=4"]);
    let made = make.arg(path).arg("32M").output()?;
    match made.status.success() {
        true => Ok(()),
        false => {
            Err(io::Error::other(format!("mke2fs: {}", String::from_utf8_lossy(&made.stderr))))
        }
    }
}
