//! `uvfs-bench image --write`: a new image for each sample, written through the mount tool, the kernel's ext4 on a loop device, and
//! fuse2fs.
//!
//! # What the figures mean
//! Each system has its own barriers: the kernel and uvfs flush the host's file when a program waits for that, fuse2fs writes
//! no journal and leaves more to a crash. `create` and `remove` are of one directory; `append-sync` is 4 KiB behind the
//! end of an own file and fsync(2), by eight writers at once; `stream` ends with fsync(2).

use super::mounts::{Mounted, Wanted, make_empty};
use super::{Bench, MIB, System, timed};
use crate::client::together;
use crate::context;
use crate::report::Unit;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Writers that wait for their appends.
const WRITERS: usize = 8;
/// Clients of dbench, and its seconds.
const CLIENTS: usize = 4;
const DBENCH_SECONDS: usize = 5;

impl Bench {
    /// One sample of every case.
    pub(super) fn measure_writing(&mut self, system: System, counts: bool) -> io::Result<()> {
        let mut samples = Vec::new();
        // Room for the large file twice, and for what comes with small ones.
        make_empty(&self.image, 2 * self.sizes.large_bytes + (512 << 20))?;
        let mounted = Mounted::start(system, &self.places, &self.image, Wanted::Writing)?;
        let folder = mounted.root().join("folder");
        fs::create_dir(&folder).map_err(context(folder.display()))?;
        let files = self.sizes.files;
        let path = |number: usize| folder.join(format!("file-{number}"));
        let (_, seconds) =
            timed(|| (0..files).try_for_each(|number| File::create(path(number)).map(drop)))?;
        samples.push(("create", 1, Unit::ThousandsPerSecond, files as f64 / seconds / 1e3));
        let (_, seconds) =
            timed(|| (0..files).try_for_each(|number| fs::remove_file(path(number))))?;
        samples.push(("remove", 1, Unit::ThousandsPerSecond, files as f64 / seconds / 1e3));

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
        let (_, seconds) = timed(|| {
            let mut large = File::create(folder.join("large"))?;
            let piece = vec![7; MIB];
            for _ in 0..bytes / MIB as u64 {
                large.write_all(&piece)?;
            }
            large.sync_all()
        })?;
        samples.push(("stream", 1, Unit::MebibytesPerSecond, bytes as f64 / MIB as f64 / seconds));

        if let Some(rate) = dbench(&folder)? {
            samples.push(("dbench", CLIENTS, Unit::MebibytesPerSecond, rate));
        }
        drop(mounted);
        for (case, threads, unit, value) in samples.into_iter().filter(|_| counts) {
            self.report.sample(case, system.name(), threads, unit, value);
        }
        Ok(())
    }
}

/// What dbench says of `folder`; `None` where it is not installed.
fn dbench(folder: &Path) -> io::Result<Option<f64>> {
    let mut run = Command::new("dbench");
    run.arg("-D").arg(folder).args(["-t", &DBENCH_SECONDS.to_string(), &CLIENTS.to_string()]);
    let done = match run.stdin(Stdio::null()).output() {
        Ok(done) => done,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let told = String::from_utf8_lossy(&done.stdout);
    match throughput(&told) {
        Some(rate) if done.status.success() => Ok(Some(rate)),
        _ => {
            let last = told.lines().last().unwrap_or_default();
            Err(io::Error::other(format!("dbench: {}: {last}", done.status)))
        }
    }
}

/// The figure in the line that dbench ends with.
fn throughput(told: &str) -> Option<f64> {
    let line = told.lines().rev().find_map(|line| line.trim().strip_prefix("Throughput "))?;
    line.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_dbench_is_read() {
        let told = "   4   873  99.10 MB/sec  execute\n\nThroughput 87.5678 MB/sec  4 clients  4 procs  max_latency=3 ms\n";
        assert_eq!(throughput(told), Some(87.5678));
        assert_eq!(throughput("open failed"), None);
    }
}
