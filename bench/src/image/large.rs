//! An image that is far larger than its mount's caches: whether the daemon stays within its size.
//!
//! # Boundary
//! Makes the image once (6 GB of disk while it is made), mounts it with a small `--cache-size`, walks and reads all of
//! it, and reports the daemon's largest resident size.
//!
//! # Why
//! Apart from the other cases: it takes minutes. Weakness: the files are small and one large one; there are no
//! concurrent requests.

use super::mounts::{self, Mounted, System, Wanted};
use super::{tar, timed, walk};
use crate::client::read_through;
use crate::places::Places;
use crate::report::{Report, Unit};
use std::io;

/// The mount's limit.
const CACHE_SIZE: &str = "32M";
const CACHE_MIB: f64 = 32.0;

/// Small files and bytes of the large one: 5 GiB together, with the tables.
pub(super) const FULL: (usize, u64) = (300_000, 2600 << 20);
pub(super) const QUICK: (usize, u64) = (20_000, 64 << 20);

/// Adds the figures to `report`.
pub(super) fn measure(
    places: &Places,
    (files, bytes): (usize, u64),
    report: &mut Report,
) -> io::Result<()> {
    let image = mounts::make(places, files, bytes)?;
    let mounted = Mounted::with(
        System::Uvfs,
        places,
        &image,
        Wanted::Reading,
        &["--cache-size", CACHE_SIZE],
    )?;
    let pid = mounted.pid().ok_or_else(|| io::Error::other("no daemon"))?;
    let name = System::Uvfs.name();
    let mut add = |case: &str, seconds: f64| -> io::Result<()> {
        report.sample(case, name, 1, Unit::Seconds, seconds);
        let peak = peak_mib(pid)?;
        report.sample(&format!("{case}-peak"), name, 1, Unit::Mebibytes, peak);
        report.sample(
            &format!("{case}-of-size"),
            name,
            1,
            Unit::PercentOfSize,
            100.0 * peak / CACHE_MIB,
        );
        Ok(())
    };
    let (found, seconds) = timed(|| walk(mounted.root()))?;
    if found.len() != files + 1 {
        return Err(io::Error::other(format!("{} files of {}", found.len(), files + 1)));
    }
    add("large-find", seconds)?;
    let (_, seconds) = timed(|| tar(&mounted.root().join(mounts::TREE)))?;
    add("large-tar", seconds)?;
    let large = mounted.root().join(mounts::LARGE);
    let (read, seconds) = timed(|| read_through(&large, &mut vec![0; super::MIB]))?;
    if read != bytes {
        return Err(io::Error::other(format!("the large file has {read} bytes of {bytes}")));
    }
    add("large-read", seconds)
}

/// The most that process `pid` has had resident, with its program.
fn peak_mib(pid: u32) -> io::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.map(|kib| kib / 1024.0).ok_or_else(|| io::Error::other("no peak of the daemon"))
}
