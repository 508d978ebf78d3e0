//! `uvfs-bench image`: a mounted disk image, against the kernel's ext4 on a loop device and against fuse2fs.
//!
//! # Boundary
//! The cases and their output. [`mounts`] makes and mounts an image. Asserts no time.
//!
//! # What the figures mean
//! *Cold* is an unused mount: each sample has its own. The image itself is in the host's page cache for all of them, so
//! that the disk has no part in the figures. A repeated access on the same mount is *warm*. `metadata-cold` and `-warm`
//! are in process, by one thread and by two ([`process`]); `large-…`, an image that is larger than its caches, is a run
//! of its own ([`large`]). `random-4k` is read with O_DIRECT, past the caches in front of the mount.
//!
//! # Why
//! A system that cannot be mounted is left out with a note; one that fails in a case drops out, and the exit status
//! shows it. Weakness: rows begin with a mount each, and all of them include the kernel's write-back for other
//! processes; the spread shows that.

mod beside;
mod large;
pub(crate) mod mounts;
mod process;
mod writing;

use crate::aims::{self, Aim, Wish};
use crate::client::{Random, read_through, together};
use crate::places::Places;
use crate::report::{Column, Layout, Report, Unit};
use crate::{cleanup, context, machine};
use clap::Args;
use mounts::{Mounted, SYSTEMS, System, Wanted};
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// How large the inputs are.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    files: usize,
    large_bytes: u64,
    stats: usize,
    random_reads: usize,
}

const FULL: Sizes =
    Sizes { files: 10_000, large_bytes: 256 << 20, stats: 100_000, random_reads: 20_000 };
const QUICK: Sizes =
    Sizes { files: 2_000, large_bytes: 32 << 20, stats: 20_000, random_reads: 4_000 };

/// Readers of small files, and jobs of random reads.
const READERS: usize = 2;
const MIB: usize = 1 << 20;
/// Name of the system in cases without a mount.
const IN_PROCESS: &str = "uvfs-in-process";

/// Arguments of the bench.
#[derive(Debug, Args)]
pub(crate) struct ImageArguments {
    /// Write: many small files made and removed, appends that are made stable, alone and beside a stream, one large file, dbench where it is installed
    #[arg(long)]
    write: bool,
    /// Smaller inputs and fewer runs
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of tables
    #[arg(long)]
    json: bool,
    /// Only these systems, separated by commas [default: all that this machine has]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    systems: Vec<String>,
    /// Runs of which the median is taken [default: 5, or 3 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// With --write: how requests come to uvfs, as the option of `uvfs mount`
    #[arg(long, value_name = "WAY", default_value = "auto", requires = "write")]
    transport: String,
    /// Instead: an image of 5 GiB with 300,000 files (20,000 with --quick), walked and read by a mount with
    /// `--cache-size 32M`, and the largest resident size of its daemon
    #[arg(long, conflicts_with = "systems")]
    large: bool,
}

/// One run of the bench.
struct Bench {
    places: Places,
    image: PathBuf,
    sizes: Sizes,
    transport: String,
    report: Report,
}

/// Runs the measurements of `arguments`.
///
/// # Errors
/// Unknown systems, no way to mount, no image, and at the end: the failed systems.
pub(crate) fn run(arguments: &ImageArguments) -> io::Result<()> {
    let mut systems = chosen(&arguments.systems)?;
    crate::mount::check_machine()?;
    cleanup::on_signals()?;
    let (sizes, runs) = if arguments.quick { (QUICK, 3) } else { (FULL, 5) };
    let places = Places::find()?;
    if arguments.large {
        return run_large(arguments, &places);
    }
    let image = match arguments.write {
        true => places.work.join("written.img"),
        false => mounts::make(&places, sizes.files, sizes.large_bytes)?,
    };
    systems.retain(|system| match system.absent(&places) {
        None => true,
        Some(why) => {
            eprintln!("uvfs-bench: {} is left out: {why}", system.name());
            false
        }
    });
    let transport = arguments.transport.clone();
    let mut bench = Bench { places, image, sizes, transport, report: Report::new("image") };
    let mut failures = Vec::new();
    // The first round only warms up: it brings the image into the host's page cache.
    for round in 0..=arguments.runs.unwrap_or(runs) {
        if arguments.systems.is_empty() {
            let measured = match arguments.write {
                true => bench.write_in_process(round > 0),
                false => bench.in_process(round > 0),
            };
            if let Err(error) = measured {
                failures.push(format!("{IN_PROCESS}: {error}"));
            }
        }
        let mut sample = |system: System| match arguments.write {
            true => bench.measure_writing(system, round > 0),
            false => bench.measure(system, round > 0),
        };
        systems.retain(|&system| match sample(system) {
            Ok(()) => true,
            Err(error) => {
                let line = format!("{}: {error}", system.name());
                eprintln!("uvfs-bench: {line}");
                failures.push(line);
                false
            }
        });
    }
    let mut out = io::stdout().lock();
    match arguments.json {
        true => bench.report.write_json(&mut out)?,
        false => {
            println!("{}", machine::describe());
            let order = SYSTEMS.map(System::name);
            let columns = [Column::Times(&["fuse2fs"]), Column::Times(&["kernel"])];
            let layout = Layout { order: &order, columns: &columns, ..Layout::default() };
            bench.report.write_tables(&layout, |_| true, &mut out)?;
            let aims = match arguments.write {
                true => writing::judge(&bench.report),
                false => judge(&bench.report),
            };
            aims::write("medians of this run", &aims, &mut out)?;
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(io::Error::other(format!("not all was measured: {}", failures.join("; ")))),
    }
}

/// `--large`.
fn run_large(arguments: &ImageArguments, places: &Places) -> io::Result<()> {
    let sizes = if arguments.quick { large::QUICK } else { large::FULL };
    let mut report = Report::new("image");
    for _ in 0..arguments.runs.unwrap_or(1) {
        large::measure(places, sizes, &mut report)?;
    }
    let mut out = io::stdout().lock();
    if arguments.json {
        return report.write_json(&mut out);
    }
    println!("{}", machine::describe());
    report.write_tables(&Layout::default(), |_| true, &mut out)?;
    let worst = report.rows().iter().filter(|row| row.unit == Unit::PercentOfSize);
    let worst = worst.filter_map(|row| Some((row.key.case.clone(), row.summary()?.max)));
    let aim = Aim::new("resident at most, in percent of the size", Wish::AtMost(110.0), worst);
    aims::write("the program itself included", &[aim], &mut out)
}

/// The aims of images, as far as one run can judge them.
fn judge(report: &Report) -> Vec<Aim> {
    let ours = System::Uvfs.name();
    // How many times as good as `than`: of seconds, fewer are better.
    let times = |case: &str, than: &str, threads: usize| {
        let [one, other] = [ours, than].map(|system| report.median(case, system, threads));
        let (one, other) = (one?, other?);
        let is_time =
            report.rows().iter().any(|row| row.key.case == case && row.unit == Unit::Seconds);
        Some(if is_time { other / one } else { one / other })
    };
    let aim = |name: &str, least: f64, cases: &[(&str, usize)], than: &str| {
        let rows = cases.iter();
        let rows = rows
            .filter_map(|&(case, threads)| Some((case.to_owned(), times(case, than, threads)?)));
        Aim::new(name, Wish::AtLeast(least), rows)
    };
    let twice = |case: &str| {
        let [one, two] = [1, 2].map(|threads| report.median(case, IN_PROCESS, threads));
        one.zip(two).map(|(one, two)| (case.to_owned(), two / one))
    };
    vec![
        aim("times fuse2fs: stat-warm", 10.0, &[("stat-warm", 1)], "fuse2fs"),
        aim(
            "times fuse2fs: find, tar, small files",
            5.0,
            &[("find-cold", 1), ("tar-cold", 1), ("small-files-cold", READERS)],
            "fuse2fs",
        ),
        aim("times kernel: find, tar", 1.0 / 1.5, &[("find-cold", 1), ("tar-cold", 1)], "kernel"),
        aim("times kernel: read-1m", 1.0, &[("read-1m", 1)], "kernel"),
        aim("times kernel: random-4k", 1.0, &[("random-4k", READERS)], "kernel"),
        aim("times fuse2fs: random-4k", 1.0, &[("random-4k", READERS)], "fuse2fs"),
        Aim::new("two threads, warm", Wish::AtLeast(1.9), twice("metadata-warm")),
        Aim::new("two threads, cold", Wish::AtLeast(1.7), twice("metadata-cold")),
    ]
}

fn chosen(names: &[String]) -> io::Result<Vec<System>> {
    let known = SYSTEMS.map(System::name);
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        let odd = format!("no system {name}; there are: {}", known.join(", "));
        return Err(io::Error::other(odd));
    }
    let wanted = |system: &System| names.is_empty() || names.iter().any(|n| n == system.name());
    Ok(SYSTEMS.into_iter().filter(wanted).collect())
}

impl Bench {
    /// One sample of the measurements without a mount, in turns with one thread and with two.
    fn in_process(&mut self, counts: bool) -> io::Result<()> {
        let paths = mounts::paths(self.sizes.files);
        for threads in [1, 2] {
            let rates = process::rates(&self.image, &paths, threads)?;
            for (case, rate) in [("metadata-cold", rates.cold), ("metadata-warm", rates.warm)] {
                if counts {
                    self.report.sample(case, IN_PROCESS, threads, Unit::ThousandsPerSecond, rate);
                }
            }
        }
        Ok(())
    }

    /// One sample of every case.
    fn measure(&mut self, system: System, counts: bool) -> io::Result<()> {
        let mut samples = Vec::new();
        let mounted = self.mount(system)?;
        let (files, seconds) = timed(|| walk(mounted.root()))?;
        if files.len() != self.sizes.files + 1 {
            let odd = format!("{} files of {}", files.len(), self.sizes.files + 1);
            return Err(io::Error::other(odd));
        }
        samples.push(("find-cold", 1, Unit::Seconds, seconds));
        let (_, seconds) = timed(|| walk(mounted.root()))?;
        samples.push(("find-warm", 1, Unit::Seconds, seconds));
        let (_, seconds) = timed(|| {
            let paths = files.iter().cycle().take(self.sizes.stats);
            paths.map(fs::symlink_metadata).try_for_each(|about| about.map(drop))
        })?;
        let rate = self.sizes.stats as f64 / seconds / 1e3;
        samples.push(("stat-warm", 1, Unit::ThousandsPerSecond, rate));
        drop(mounted);

        let mounted = self.mount(system)?;
        let (_, seconds) = timed(|| tar(&mounted.root().join(mounts::TREE)))?;
        samples.push(("tar-cold", 1, Unit::Seconds, seconds));
        drop(mounted);

        let mounted = self.mount(system)?;
        let taken = together(READERS, |at| {
            let mut buffer = vec![0; MIB];
            let mut own = files.iter().skip(at).step_by(READERS);
            own.try_for_each(|path| match path.ends_with(mounts::LARGE) {
                true => Ok(()),
                false => read_through(path, &mut buffer).map(drop),
            })
        })?;
        let rate = self.sizes.files as f64 / taken.wall.as_secs_f64() / 1e3;
        samples.push(("small-files-cold", READERS, Unit::ThousandsPerSecond, rate));
        drop(mounted);

        let mounted = self.mount(system)?;
        let large = mounted.root().join(mounts::LARGE);
        let (read, seconds) = timed(|| read_through(&large, &mut vec![0; MIB]))?;
        if read != self.sizes.large_bytes {
            return Err(io::Error::other(format!("the large file has {read} bytes")));
        }
        samples.push(("read-1m", 1, Unit::MebibytesPerSecond, read as f64 / MIB as f64 / seconds));
        let taken = together(READERS, |at| {
            random(&large, self.sizes.large_bytes, self.sizes.random_reads, at as u64)
        })?;
        let rate = (self.sizes.random_reads * READERS) as f64 / taken.wall.as_secs_f64() / 1e3;
        samples.push(("random-4k", READERS, Unit::ThousandsPerSecond, rate));
        drop(mounted);

        for (case, threads, unit, value) in samples.into_iter().filter(|_| counts) {
            self.report.sample(case, system.name(), threads, unit, value);
        }
        Ok(())
    }

    fn mount(&self, system: System) -> io::Result<Mounted> {
        Mounted::start(system, &self.places, &self.image, Wanted::Reading)
    }
}

/// The result of `work`, and its time in seconds.
fn timed<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<(T, f64)> {
    let begin = Instant::now();
    Ok((work()?, begin.elapsed().as_secs_f64()))
}

/// The files below `root`, each of whose attributes were asked for, as by `find -size`.
fn walk(root: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut files, mut waiting) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).map_err(context(directory.display()))? {
            let path = entry?.path();
            match fs::symlink_metadata(&path)?.is_dir() {
                true => waiting.push(path),
                false => files.push(path),
            }
        }
    }
    Ok(files)
}

/// Has tar(1) pack `folder`. Through a pipe: if tar writes to /dev/null, it reads nothing.
fn tar(folder: &Path) -> io::Result<()> {
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(folder).args(["-cf", "-", "."]).stdout(Stdio::piped());
    let mut child = tar.spawn().map_err(context("tar"))?;
    let mut packed = child.stdout.take().ok_or_else(|| io::Error::other("tar has no output"))?;
    let mut piece = vec![0; MIB];
    while packed.read(&mut piece)? > 0 {}
    match child.wait()? {
        status if status.success() => Ok(()),
        status => Err(io::Error::other(format!("tar: {status}"))),
    }
}

/// A buffer with the alignment of direct reads.
#[repr(align(4096))]
struct Page([u8; 4096]);

/// Reads pages here and there of the file at `path`, past the caches in front of it.
fn random(path: &Path, bytes: u64, reads: usize, seed: u64) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let (mut page, mut numbers) = (Box::new(Page([0; 4096])), Random(seed));
    let pages = bytes / page.0.len() as u64;
    for _ in 0..reads {
        file.read_exact_at(&mut page.0, numbers.next() % pages * 4096)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_systems_come_with_the_known_ones() {
        let refused = chosen(&["nonsense".to_owned()]).unwrap_err().to_string();
        assert_eq!(refused, "no system nonsense; there are: uvfs, kernel, fuse2fs");
        assert_eq!(chosen(&[]).unwrap(), SYSTEMS);
        assert_eq!(chosen(&["kernel".to_owned()]).unwrap(), [System::Kernel]);
    }

    /// The whole of it, without the mounts: a walk finds each file, tar packs them, pages are read within the file.
    #[test]
    fn every_file_is_found_packed_and_read() {
        let folder = std::env::temp_dir().join(format!("uvfs-bench-image-{}", std::process::id()));
        fs::create_dir_all(folder.join("a/b")).unwrap();
        for name in ["one", "a/two", "a/b/three"] {
            fs::write(folder.join(name), [7; 8192]).unwrap();
        }
        let mut found = walk(&folder).unwrap();
        found.sort();
        assert_eq!(found, ["a/b/three", "a/two", "one"].map(|name| folder.join(name)));
        tar(&folder).unwrap();
        assert!(tar(&folder.join("none")).is_err());
        // Not every file system reads directly.
        match random(&folder.join("one"), 8192, 10, 1) {
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::InvalidInput),
            Ok(()) => assert!(random(&folder.join("one"), 1 << 30, 10, 1).is_err()),
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
