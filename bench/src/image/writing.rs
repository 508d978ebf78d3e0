//! `uvfs-bench image --write`: a new image for each sample, written through the mount tool, the kernel's ext4 on a loop
//! device, and fuse2fs.
//!
//! # What the figures mean
//! Each system has its own barriers. The kernel and uvfs flush the host's file when a program waits for that; fuse2fs
//! writes no journal, so a crash loses more. `create` and `remove` are of one directory, `-ten` of ten, by one client
//! or by two that have five each. In process each thread has one directory with as many files as one client has in all.
//! `append-sync` is 4 KiB at the end of a thread's own file and fsync(2), by eight writers at once; `stream` ends with
//! fsync(2). `append-…` is the time of one such append, alone and beside a stream ([`beside`]).
//! `stream-read` is that file, read by the next mount: no page of it is cached. The kernel's loop device bypasses the
//! host's page cache as uvfs does; fuse2fs uses that cache.

use super::mounts::{Mounted, Wanted, make_empty};
use super::{Bench, IN_PROCESS, MIB, System, beside, timed};
use crate::aims::{Aim, Wish};
use crate::client::{read_through, together};
use crate::context;
use crate::report::{Report, Unit};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use uvfs_backends::image::{WritingConfig, WritingImage};
use uvfs_ext_write::WritableFile;
use uvfs_vfs::{Caller, NewKind, Vfs, VfsConfig};

/// Writers that wait for their appends.
const WRITERS: usize = 8;
/// Directories of the cases with ten.
const DIRECTORIES: usize = 10;
/// Clients of dbench, and its seconds.
const CLIENTS: usize = 4;
const DBENCH_SECONDS: usize = 5;

impl Bench {
    /// One sample of every case.
    pub(super) fn measure_writing(&mut self, system: System, counts: bool) -> io::Result<()> {
        let mut samples = Vec::new();
        // Room for the large file, for those of the streams, and for the small ones.
        make_empty(&self.image, 6 * self.sizes.large_bytes + (512 << 20))?;
        let mounted = self.mount_writing(system)?;
        let folder = mounted.root().join("folder");
        fs::create_dir(&folder).map_err(context(folder.display()))?;
        let files = self.sizes.files;
        for (made, removed, directories, clients) in [
            ("create", "remove", 1, 1),
            ("create-ten", "remove-ten", DIRECTORIES, 1),
            ("create-ten", "remove-ten", DIRECTORIES, 2),
        ] {
            let own = folder.join(format!("{directories}-{clients}"));
            let names = Names { directories, clients, files };
            let inside = |at: usize| own.join(format!("{at}"));
            (0..directories).try_for_each(|at| fs::create_dir_all(inside(at)))?;
            let rate = names.each(|at, name| File::create(inside(at).join(name)).map(drop))?;
            samples.push((made, clients, Unit::ThousandsPerSecond, rate));
            let rate = names.each(|at, name| fs::remove_file(inside(at).join(name)))?;
            samples.push((removed, clients, Unit::ThousandsPerSecond, rate));
        }

        let appends = files / 100;
        let taken = together(WRITERS, |at| {
            let path = folder.join(format!("log-{at}"));
            let mut log = OpenOptions::new().append(true).create_new(true).open(path)?;
            for _ in 0..appends {
                log.write_all(&[at as u8; 4096])?;
                log.sync_all()?;
            }
            Ok(())
        })?;
        let rate = (appends * WRITERS) as f64 / taken.wall.as_secs_f64() / 1e3;
        samples.push(("append-sync", WRITERS, Unit::ThousandsPerSecond, rate));

        let bytes = self.sizes.large_bytes;
        // Each byte of the streams may be in a server and in the kernel.
        beside::touch_memory(12 * bytes as usize);
        let (_, seconds) = timed(|| {
            let mut large = File::create(folder.join("large"))?;
            let piece = vec![7; MIB];
            for _ in 0..bytes / MIB as u64 {
                large.write_all(&piece)?;
            }
            large.sync_all()
        })?;
        samples.push(("stream", 1, Unit::MebibytesPerSecond, bytes as f64 / MIB as f64 / seconds));

        samples.extend(beside::measure(&folder, 3 * appends.max(100), 4 * bytes)?);

        if let Some(rate) = dbench(&folder)? {
            samples.push(("dbench", CLIENTS, Unit::MebibytesPerSecond, rate));
        }
        drop(mounted);

        let mounted = self.mount_writing(system)?;
        let large = mounted.root().join("folder/large");
        let (read, seconds) = timed(|| read_through(&large, &mut vec![0; MIB]))?;
        if read != bytes {
            return Err(io::Error::other(format!("the large file has {read} bytes of {bytes}")));
        }
        let rate = bytes as f64 / MIB as f64 / seconds;
        samples.push(("stream-read", 1, Unit::MebibytesPerSecond, rate));
        drop(mounted);
        for (case, threads, unit, value) in samples.into_iter().filter(|_| counts) {
            self.report.sample(case, system.name(), threads, unit, value);
        }
        Ok(())
    }

    fn mount_writing(&self, system: System) -> io::Result<Mounted> {
        let transport = ["--transport", &self.transport];
        Mounted::with(system, &self.places, &self.image, Wanted::Writing, &transport)
    }
}

/// Files in directories, each directory one client's own.
struct Names {
    directories: usize,
    clients: usize,
    files: usize,
}

impl Names {
    /// Runs `work` with the directory and name of each file; returns thousands a second.
    fn each(&self, work: impl Fn(usize, &str) -> io::Result<()> + Sync) -> io::Result<f64> {
        let taken = together(self.clients, |client| {
            let mut own = (client..self.directories).step_by(self.clients);
            own.try_for_each(|at| {
                let mut files = 0..self.files / self.directories;
                files.try_for_each(|number| work(at, &format!("file-{number}")))
            })
        })?;
        let files = self.files / self.directories * self.directories;
        Ok(files as f64 / taken.wall.as_secs_f64() / 1e3)
    }
}

impl Bench {
    /// One sample of the measurements without a mount: files made and removed by one thread in a directory, and by two
    /// in one each.
    pub(super) fn write_in_process(&mut self, counts: bool) -> io::Result<()> {
        for threads in [1, 2] {
            make_empty(&self.image, 512 << 20)?;
            let device = Arc::new(WritableFile::open(&self.image)?);
            let image = WritingImage::open(device, &WritingConfig::default());
            let vfs = image.map_err(io::Error::other).and_then(|image| {
                Vfs::new(image, VfsConfig::default()).map_err(io::Error::other)
            })?;
            let root = vfs.root_directory(Caller::root());
            let inside = |at: usize| format!("d{at}");
            for at in 0..threads {
                root.create_directory(inside(at), 0o755).map_err(io::Error::other)?;
            }
            let open = |at: usize| root.open_directory(inside(at)).map_err(io::Error::other);
            let folders = (0..threads).map(open).collect::<io::Result<Vec<_>>>()?;
            let files = self.sizes.files * threads;
            let names = Names { directories: threads, clients: threads, files };
            let made = names.each(|at, name| {
                let made = folders[at].create(name, NewKind::Regular, 0o644);
                made.map_err(io::Error::other)
            })?;
            let removed =
                names.each(|at, name| folders[at].remove_file(name).map_err(io::Error::other))?;
            drop((folders, root, vfs));
            for (case, rate) in
                [("create", made), ("remove", removed)].into_iter().filter(|_| counts)
            {
                self.report.sample(case, IN_PROCESS, threads, Unit::ThousandsPerSecond, rate);
            }
        }
        Ok(())
    }
}

/// The aims of writing, as far as one run can judge them.
pub(super) fn judge(report: &Report) -> Vec<Aim> {
    const SMALL: [(&str, usize); 4] =
        [("create", 1), ("remove", 1), ("create-ten", 1), ("remove-ten", 1)];
    let times = |ours: &str, case: &str, threads: usize, than: &str| {
        let [one, other] = [ours, than].map(|system| report.median(case, system, threads));
        Some((case.to_owned(), one? / other?))
    };
    let aim = |name: &str, least: f64, cases: &[(&str, usize)], than: &str| {
        let rows = cases.iter();
        let rows =
            rows.filter_map(|&(case, threads)| times(System::Uvfs.name(), case, threads, than));
        Aim::new(name, Wish::AtLeast(least), rows)
    };
    let at_most = |name: &str, most: f64, (case, threads): (&str, usize)| {
        let ratio = times(System::Uvfs.name(), case, threads, "kernel");
        Aim::new(name, Wish::AtMost(most), ratio)
    };
    let twice = |system: &str, case: &str| {
        let [one, two] = [1, 2].map(|threads| report.median(case, system, threads));
        one.zip(two).map(|(one, two)| (case.to_owned(), two / one))
    };
    let both = |cases: [&str; 2], system: &str| {
        cases.into_iter().filter_map(|case| twice(system, case)).collect::<Vec<_>>()
    };
    let ahead = ["create", "remove"];
    let ahead = ahead.into_iter().filter_map(|case| times(IN_PROCESS, case, 1, "kernel"));
    vec![
        aim("times fuse2fs: create and remove", 15.0, &SMALL, "fuse2fs"),
        aim("times kernel: create and remove", 1.0 / 3.0, &SMALL, "kernel"),
        Aim::new("in process, times kernel", Wish::AtLeast(1.0), ahead),
        aim("times kernel: append-sync", 1.2, &[("append-sync", WRITERS)], "kernel"),
        aim("times kernel: stream", 0.95, &[("stream", 1)], "kernel"),
        aim("times kernel: stream-read", 1.0, &[("stream-read", 1)], "kernel"),
        aim("times kernel: beside-stream", 0.9, &[(beside::STREAM, 2)], "kernel"),
        at_most("the kernel's: append alone", 1.0, (beside::ALONE_P50, 1)),
        at_most("the kernel's: append beside a stream, p50", 1.0, (beside::P50, 2)),
        at_most("the kernel's: append beside a stream, p99", 1.2, (beside::P99, 2)),
        aim("times fuse2fs: dbench", 6.0, &[("dbench", CLIENTS)], "fuse2fs"),
        aim("times kernel: dbench", 0.75, &[("dbench", CLIENTS)], "kernel"),
        Aim::new(
            "two clients by mount",
            Wish::AtLeast(1.8),
            both(["create-ten", "remove-ten"], System::Uvfs.name()),
        ),
        Aim::new(
            "two threads in process",
            Wish::AtLeast(1.8),
            both(["create", "remove"], IN_PROCESS),
        ),
    ]
}

/// The result of dbench in `folder`; `None` if it is not installed.
fn dbench(folder: &Path) -> io::Result<Option<f64>> {
    let mut run = Command::new("dbench");
    run.arg("-D").arg(folder).args(["-t", &DBENCH_SECONDS.to_string(), &CLIENTS.to_string()]);
    let done = match run.stdin(Stdio::null()).output() {
        Ok(done) => done,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let printed = String::from_utf8_lossy(&done.stdout);
    match throughput(&printed) {
        Some(rate) if done.status.success() => Ok(Some(rate)),
        _ => {
            let last = printed.lines().last().unwrap_or_default();
            Err(io::Error::other(format!("dbench: {}: {last}", done.status)))
        }
    }
}

/// The figure in the line that dbench ends with.
fn throughput(printed: &str) -> Option<f64> {
    let line = printed.lines().rev().find_map(|line| line.trim().strip_prefix("Throughput "))?;
    line.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_dbench_is_read() {
        let printed = "   4   873  99.10 MB/sec  execute\n\nThroughput 87.5678 MB/sec  4 clients  4 procs  max_latency=3 ms\n";
        assert_eq!(throughput(printed), Some(87.5678));
        assert_eq!(throughput("open failed"), None);
    }
}
