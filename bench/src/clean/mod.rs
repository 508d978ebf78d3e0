//! `uvfs-bench clean`: emptying the caches of one directory.
//!
//! # Boundary
//! The families of measurements, their order, and the report. Asserts no time; checks that the counts add up.
//!
//! # Rooms
//! * `sizes`: sizes and names. `figures`, `aims`: tables, charts, lines and verdicts.
//! * `store`: a store that counts, and simulates a disk.
//! * `names`, `bytes`: the experiment of Li (2013) in process, over names and over pages.
//! * `group`, `client`, `pressed`: the same in the kernel's caches, by a program with a memory limit.
//! * `effect`: how soon a cleaning takes effect, its disturbance, and its effect on other directories.
//! * `rivals`: other programs that clean.
//!
//! # Why
//! The patch "VFS: Directory level cache cleaning" (Li Wang, linux-fsdevel, 16 December 2013) published one table:
//! directories `1`, `2` and `3` of 180,000 to 260,000 files each are opened in the order 1, 2, 3, 1, and the second
//! pass over `1` is timed with and without cleaning `2` before `3`. At 180,000 files all three just fit; at 260,000 a
//! little over two of them do. The budget here is chosen once in the same way, and printed. Counts of misses are exact;
//! times of a simulated disk are labelled as such. Weakness: one pattern of access, the one that favours cleaning.

mod aims;
mod bytes;
mod client;
mod effect;
mod figures;
mod names;
mod pressed;
mod rivals;
mod sizes;
mod store;

pub(crate) use client::{ClientArguments, serve};
pub(crate) use pressed::said;

use crate::places::Places;
use crate::{cleanup, context, machine};
use clap::{Args, ValueEnum};
use figures::Figures;
use sizes::{FULL, QUICK, Sizes, TINY};
use std::cell::{OnceCell, RefCell};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Instant;
use uvfs_vfs::{MINIMUM_BYTES, VfsConfig};

/// Arguments of `clean`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  uvfs-bench clean --quick                            everything, a tenth of the files
  uvfs-bench clean --case names --svg charts          the patch's table again, and as a chart
  uvfs-bench clean --json --case effect >lines
  uvfs-bench clean --case rivals --system             empties the caches of the whole machine, too
Rivals: bench-compare/install.sh gets rclone and vmtouch")]
pub(crate) struct CleanArguments {
    /// A tenth of the files, and of the entries that are cleaned; within some minutes
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of tables
    #[arg(long)]
    json: bool,
    /// Only this family; may be repeated [default: all]
    #[arg(long = "case", value_name = "FAMILY")]
    families: Vec<Family>,
    /// Runs of each cell, of which the median is taken [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: Option<u16>,
    /// Write the tables of second passes as SVG files into this folder, which is made if need be
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Measure the kernel's own switch, too, which empties caches of the whole machine. Needs root
    #[arg(long)]
    system: bool,
    /// Inputs so small that the figures mean nothing, for tests.
    #[arg(long, hide = true)]
    tiny: bool,
}

/// Measurements that are made together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Family {
    /// Second passes over names, in process: over a simulated disk, and over a directory of the host
    Names,
    /// Second passes over pages, in process
    Bytes,
    /// Second passes over names, through the kernel and a mount
    Mount,
    /// Second passes over pages that the kernel has of a directory on a disk
    Host,
    /// How soon a cleaning takes effect, its disturbance, and its effect on other directories
    Effect,
    /// rclone, vmtouch, and with --system the kernel's switch
    Rivals,
}

/// One run of the bench.
struct Run {
    sizes: Sizes,
    runs: usize,
    has_system: bool,
    begin: Instant,
    places: OnceCell<Places>,
    /// The measurements that are left out, with the reason.
    skipped: RefCell<Vec<String>>,
}

/// Measures a family.
type Measure = fn(&Run, &mut Figures) -> io::Result<()>;

/// Runs the measurements of `arguments`.
///
/// # Errors
/// The measurements that failed although this machine has everything for them.
pub(crate) fn run(arguments: &CleanArguments) -> io::Result<()> {
    let sizes = match (arguments.tiny, arguments.quick) {
        (true, _) => TINY,
        (false, true) => QUICK,
        (false, false) => FULL,
    };
    cleanup::on_signals()?;
    if let Some(folder) = &arguments.svg {
        fs::create_dir_all(folder).map_err(context(folder.display()))?;
    }
    let run = Run {
        sizes,
        runs: arguments.runs.map_or(sizes.runs, usize::from),
        has_system: arguments.system,
        begin: Instant::now(),
        places: OnceCell::new(),
        skipped: RefCell::default(),
    };
    if !arguments.json {
        println!("{}", machine::describe());
    }
    let families: [(Family, Measure); 6] = [
        (Family::Names, names::measure),
        (Family::Bytes, bytes::measure),
        (Family::Mount, pressed::measure_mount),
        (Family::Host, pressed::measure_host),
        (Family::Effect, effect::measure),
        (Family::Rivals, rivals::measure),
    ];
    let (mut figures, mut failures) = (Figures::default(), Vec::new());
    let mut out = io::stdout().lock();
    for (family, measure) in families {
        if !arguments.families.is_empty() && !arguments.families.contains(&family) {
            continue;
        }
        if let Err(error) = measure(&run, &mut figures) {
            eprintln!("uvfs-bench: {family:?}: {error}");
            failures.push(format!("{family:?}: {error}"));
        }
        match arguments.json {
            true => figures.write_json(&mut out)?,
            false => figures.write_tables(&mut out)?,
        }
    }
    if let Some(folder) = &arguments.svg {
        figures.write_charts(folder)?;
    }
    if !arguments.json {
        crate::aims::write(
            "the row that decides is named",
            &aims::judge(&figures, &sizes),
            &mut out,
        )?;
        for line in run.skipped.borrow().iter() {
            println!("  skipped: {line}");
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(io::Error::other(format!("not all was measured: {}", failures.join("; ")))),
    }
}

impl Run {
    fn progress(&self, what: &str) {
        eprintln!("uvfs-bench: {:6.1} s  {what}", self.begin.elapsed().as_secs_f64());
    }

    /// Records that `what` is not measured.
    fn skip(&self, what: &str, why: &str) {
        eprintln!("uvfs-bench: {what}: skipped: {why}");
        self.skipped.borrow_mut().push(format!("{what}: {why}"));
    }

    /// The folders and programs, found when they are first needed.
    fn places(&self) -> io::Result<&Places> {
        if let Some(places) = self.places.get() {
            return Ok(places);
        }
        let places = Places::find()?;
        Ok(self.places.get_or_init(|| places))
    }

    /// A fresh folder of this run, on the disk of the build.
    fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.places()?.work.join(name);
        fs::create_dir_all(&folder).map_err(context(folder.display()))?;
        Ok(folder)
    }
}

/// Settings of caches with exactly `room` bytes and lifetimes beyond the run: a name looked up a second ago is a hit,
/// and not asked for again.
fn config(room: u64) -> VfsConfig {
    let hour = std::time::Duration::from_secs(3600);
    VfsConfig {
        cache_bytes: MINIMUM_BYTES + room,
        overhead_bytes: MINIMUM_BYTES,
        attr_timeout: hour,
        entry_timeout: hour,
        ..VfsConfig::default()
    }
}

/// The smallest room, to a hundredth, that `fits`; and a hundredth more. `fits` less than `most`.
fn smallest_room(most: u64, fits: impl Fn(u64) -> io::Result<bool>) -> io::Result<u64> {
    let (mut below, mut enough) = (0, most);
    if !fits(most)? {
        return Err(io::Error::other(format!("three directories do not fit into {most} bytes")));
    }
    while enough - below > enough / 100 {
        let middle = below.midpoint(enough);
        match fits(middle)? {
            true => enough = middle,
            false => below = middle,
        }
    }
    Ok(enough + enough / 100)
}

/// An error of uvfs as one of the system.
fn other(error: uvfs_vfs::Error) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_room_is_found_to_a_hundredth() {
        let room = smallest_room(1 << 20, |room| Ok(room >= 123_456)).unwrap();
        assert!((123_456..=126_000).contains(&room), "{room}");
        assert!(smallest_room(1000, |_| Ok(false)).is_err());
    }

    #[test]
    fn a_room_is_what_the_caches_get() {
        for room in [16 << 10, 1 << 20, 1 << 30] {
            let config = config(room);
            assert!(config.validate().is_ok());
            assert_eq!(config.cache_bytes - config.overhead_bytes, room);
        }
    }
}
