//! `uvfs-bench users`: users of one machine on one and two real processors, on a disk image that is written.
//!
//! # Boundary
//! The systems, the turns and the aims. The mix of programs is [`uvfs_bench_workload::users`]. More processors than this
//! machine has are simulated: `uvfs-bench-papers contention --case users`.
//!
//! # Why
//! Peacock (1992) gives T(n) / (n T(1)) for Gaede's mix of programs, 88 % on five processors. Here T(2) / T(1) of uvfs in
//! process stands beside the kernel's ext4 on a loop device. `computing` is the same programs over no file system: the most
//! that this machine's second processor gives. All users share one disk, whose image is in a tmpfs, so that no real disk is
//! in the figure; each system must give the same digest. Weakness: the kernel's users make system calls, ours do not.

mod host;

use crate::aims::{self, Aim, Wish};
use crate::client::together;
use crate::image::mounts::{self, Mounted, System, Wanted};
use crate::places::Places;
use crate::report::{Column, Layout, Report, Unit};
use crate::walk::place::Tmpfs;
use crate::{cleanup, machine};
use clap::Args;
use host::Folder;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use uvfs_backends::image::{WritingConfig, WritingImage};
use uvfs_bench_workload::users::{Disk, Nowhere, User, furnish};
use uvfs_ext_write::WritableFile;
use uvfs_vfs::{Caller, Vfs, VfsConfig};

const CASE: &str = "turns";
/// Programs over no file system.
const COMPUTING: &str = "computing";
/// In process, without a kernel in between.
const OURS: &str = "uvfs";
/// ext4 on a loop device.
const KERNEL: &str = "kernel";
const SYSTEMS: [&str; 3] = [OURS, KERNEL, COMPUTING];
/// Bytes of an image.
const IMAGE: u64 = 256 << 20;
/// The aim for two processors, as a multiple of one.
const TWICE: f64 = 1.85;

const EXAMPLES: &str = "Examples:
  uvfs-bench users --quick
  uvfs-bench users --systems uvfs,computing --json";

/// Arguments of the bench.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UsersArguments {
    /// Fewer turns and runs
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of tables
    #[arg(long)]
    json: bool,
    /// Only these systems, separated by commas [default: all that this machine has]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = SYSTEMS)]
    systems: Vec<String>,
    /// Runs of which the median is taken [default: 9, or 3 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// So little that the figures mean nothing, for tests.
    #[arg(long, hide = true)]
    tiny: bool,
}

/// One run of the bench.
struct Bench {
    places: Places,
    /// Where images are; gone with this.
    _memory: Option<Tmpfs>,
    image: PathBuf,
    turns: usize,
}

/// Runs the measurements of `arguments`.
///
/// # Errors
/// Of the machine, and at the end: the failed systems.
pub(crate) fn run(arguments: &UsersArguments) -> io::Result<()> {
    cleanup::on_signals()?;
    let (turns, runs) = match (arguments.tiny, arguments.quick) {
        (true, _) => (3, 1),
        (false, true) => (400, 3),
        (false, false) => (2000, 9),
    };
    let bench = Bench::new(turns)?;
    let wanted = |name: &&str| {
        arguments.systems.is_empty() || arguments.systems.iter().any(|one| one == name)
    };
    let mut systems: Vec<&str> = SYSTEMS.into_iter().filter(wanted).collect();
    systems.retain(|system| match bench.absent(system) {
        None => true,
        Some(why) => {
            eprintln!("uvfs-bench: {system} is left out: {why}");
            false
        }
    });
    let mut report = Report::new("users");
    let mut digests = HashMap::new();
    let mut failures = Vec::new();
    for _ in 0..arguments.runs.unwrap_or(runs) {
        for threads in [1, 2] {
            systems.retain(|system| {
                let sampled = bench.sample(system, threads).and_then(|(rate, digest)| {
                    let first = *digests.entry(threads).or_insert(digest);
                    if first != digest {
                        return Err(io::Error::other("its users saw something else"));
                    }
                    report.sample(CASE, system, threads, Unit::ThousandsPerSecond, rate);
                    Ok(())
                });
                let why = sampled.err().map(|error| format!("{system}: {error}"));
                failures.extend(why.iter().cloned());
                why.is_none()
            });
        }
    }
    let mut out = io::stdout().lock();
    if arguments.json {
        report.write_json(&mut out)?;
    } else {
        println!("{}", machine::describe());
        let columns = [Column::Times(&[KERNEL])];
        let layout = Layout { order: &SYSTEMS, columns: &columns, ..Layout::default() };
        report.write_tables(&layout, |_| true, &mut out)?;
        aims::write("medians of this run", &judge(&report), &mut out)?;
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(io::Error::other(format!("not all was measured: {}", failures.join("; ")))),
    }
}

/// What the second processor gives each system.
fn judge(report: &Report) -> Vec<Aim> {
    let twice = |system: &str| {
        let [one, two] = [1, 2].map(|threads| report.median(CASE, system, threads));
        one.zip(two).map(|(one, two)| (system.to_owned(), two / one))
    };
    let title = |system: &str| format!("{system}: times one processor, on two");
    let ours = Aim::new(title(OURS), Wish::AtLeast(TWICE), twice(OURS));
    let others = [KERNEL, COMPUTING];
    let others = others.map(|system| Aim::new(title(system), Wish::Shown, twice(system)));
    std::iter::once(ours).chain(others).collect()
}

impl Bench {
    fn new(turns: usize) -> io::Result<Self> {
        let places = Places::find()?;
        let memory = match Tmpfs::mount("users") {
            Ok(memory) => Some(memory),
            Err(error) => {
                eprintln!("uvfs-bench: images are on the disk of the build: {error}");
                None
            }
        };
        let folder = memory.as_ref().map_or(places.work.as_path(), Tmpfs::path);
        let image = folder.join("users.img");
        Ok(Self { image, places, _memory: memory, turns })
    }

    /// Why this machine does not have a system.
    fn absent(&self, system: &str) -> Option<String> {
        if system != COMPUTING && Places::in_path("mke2fs").is_none() {
            return Some("no mke2fs; apt-get install e2fsprogs".to_owned());
        }
        (system == KERNEL).then(|| System::Kernel.absent(&self.places)).flatten()
    }

    /// Thousands of turns a second of so many users, each on a processor, and the digest of what they saw.
    fn sample(&self, system: &str, threads: usize) -> io::Result<(f64, u64)> {
        match system {
            COMPUTING => {
                let each = |at| {
                    let disk = Nowhere::default();
                    furnish(&disk)?;
                    User::settle(disk, at)
                };
                self.timed(threads, each)
            }
            KERNEL => {
                mounts::make_empty(&self.image, IMAGE)?;
                let (kernel, wanted) = (System::Kernel, Wanted::Writing);
                let mounted = Mounted::start(kernel, &self.places, &self.image, wanted)?;
                let root = Folder::new(mounted.root());
                furnish(&root).map_err(io::Error::other)?;
                self.timed(threads, |at| User::settle(root.clone(), at))
            }
            _ => {
                mounts::make_empty(&self.image, IMAGE)?;
                let vfs = open(&self.image)?;
                let root = vfs.root_directory(Caller::root());
                furnish(&root).map_err(io::Error::other)?;
                self.timed(threads, |at| User::settle(root.clone(), at))
            }
        }
    }

    /// The turns of users that `settle` makes, against the clock; each thread first takes some that do not count.
    fn timed<D: Disk>(
        &self,
        threads: usize,
        settle: impl Fn(usize) -> Result<User<D>, String> + Sync,
    ) -> io::Result<(f64, u64)> {
        let ready = std::sync::Barrier::new(threads);
        let (sum, nanoseconds) = (AtomicU64::new(0), AtomicU64::new(0));
        together(threads, |at| {
            let settled = settle(at).and_then(|user| {
                let warm = self.turns..self.turns + self.turns / 10;
                warm.map(|turn| user.turn(turn)).collect::<Result<Vec<_>, _>>()?;
                Ok(user)
            });
            // A user without a disk waits with the others, or they would wait for ever.
            ready.wait();
            let user = settled.map_err(io::Error::other)?;
            let begin = std::time::Instant::now();
            let seen = (0..self.turns).try_fold(0, |seen: u64, turn| {
                Ok::<_, String>(seen.wrapping_add(user.turn(turn)?))
            });
            let took = begin.elapsed().as_nanos() as u64;
            // ORDERING: Relaxed; the threads are joined before it is read.
            sum.fetch_add(seen.map_err(io::Error::other)?, Ordering::Relaxed);
            nanoseconds.fetch_max(took, Ordering::Relaxed);
            Ok(())
        })?;
        let seconds = nanoseconds.into_inner() as f64 / 1e9;
        Ok(((threads * self.turns) as f64 / seconds / 1e3, sum.into_inner()))
    }
}

/// The image in this process, with the caches of a mount.
fn open(image: &Path) -> io::Result<Arc<Vfs>> {
    let device = Arc::new(WritableFile::open(image)?);
    let store = WritingImage::open(device, &WritingConfig::default()).map_err(io::Error::other)?;
    Vfs::new(store, VfsConfig::default()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_second_processor_is_judged() {
        let mut report = Report::new("test");
        for (system, one, two) in [(OURS, 2.0, 3.6), (KERNEL, 1.0, 1.2)] {
            report.sample(CASE, system, 1, Unit::ThousandsPerSecond, one);
            report.sample(CASE, system, 2, Unit::ThousandsPerSecond, two);
        }
        let verdicts: Vec<_> = judge(&report).iter().map(Aim::verdict).collect();
        assert_eq!(verdicts, ["missed", "no aim", "not measured"]);
    }

    #[test]
    fn users_of_a_folder_of_the_host_see_what_those_of_no_file_system_see() {
        let path = std::env::temp_dir().join(format!("uvfs-bench-users-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let folder = Folder::new(&path);
        let nowhere = Nowhere::default();
        furnish(&folder).unwrap();
        furnish(&nowhere).unwrap();
        let (one, other) = (User::settle(folder, 1).unwrap(), User::settle(nowhere, 1).unwrap());
        (0..5).for_each(|turn| assert_eq!(one.turn(turn), other.turn(turn)));
        std::fs::remove_dir_all(&path).unwrap();
    }
}
