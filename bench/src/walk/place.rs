//! The place of the benchmark: a tmpfs of its own, and the free memory.
//!
//! # Boundary
//! Makes the run's folder below the build's target folder and mounts there; the register in
//! [`crate::cleanup`] removes both after a failure or a signal.

use crate::{cleanup, context};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The folder of this run, made at first use.
pub(super) fn folder() -> io::Result<PathBuf> {
    let base = base_of(&std::env::current_exe()?);
    let work = base.join(std::process::id().to_string());
    if !work.exists() {
        cleanup::sweep(&base);
        cleanup::making(&work);
        fs::create_dir_all(&work).map_err(context(work.display()))?;
    }
    Ok(work)
}

/// Where all runs of `program` keep their folders: below the target folder, beside the profiles.
fn base_of(program: &Path) -> PathBuf {
    let profile = program.ancestors().skip(1).find(|folder| !folder.ends_with("deps"));
    let target = profile.and_then(Path::parent).unwrap_or(Path::new("target"));
    target.join("uvfs-bench")
}

/// A tmpfs of this run, and a handle of its top directory. Unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Tmpfs {
    at: PathBuf,
    top: Option<OwnedFd>,
}

impl Tmpfs {
    /// Mounts one.
    ///
    /// # Errors
    /// Says that it needs root if that is why.
    pub(crate) fn mount(name: &str) -> io::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            let why = "mounting a tmpfs needs root";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let at = folder()?.join(name);
        fs::create_dir_all(&at).map_err(context(at.display()))?;
        cleanup::mounting(&at);
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount(c"uvfs-bench", &at, c"tmpfs", flags, c"size=1g,nr_inodes=0,mode=755")
            .map_err(io::Error::from)
            .map_err(context("mounting a tmpfs"))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut mounted = Self { at, top: None };
        mounted.top = Some(rustix::fs::open(&mounted.at, flags, Mode::empty())?);
        Ok(mounted)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.at
    }

    /// Descriptor of the top directory.
    ///
    /// # Errors
    /// None while it is mounted.
    pub(super) fn top(&self) -> io::Result<&OwnedFd> {
        self.top.as_ref().ok_or_else(|| io::Error::other("the tmpfs is gone"))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        self.top = None;
        // If it is still in use, the register has it.
        if rustix::mount::unmount(&self.at, UnmountFlags::NOFOLLOW).is_ok() {
            cleanup::unmounted(&self.at);
            let _ = fs::remove_dir(&self.at);
        }
    }
}

/// A field of `/proc/meminfo`, in bytes.
pub(super) fn meminfo(field: &str) -> Option<u64> {
    field_bytes(&fs::read_to_string("/proc/meminfo").ok()?, field)
}

/// Memory of this process that is in place, in bytes.
pub(super) fn resident_bytes() -> Option<u64> {
    field_bytes(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS")
}

/// `Field:   123 kB` in bytes.
fn field_bytes(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Left for everything else on the machine.
const RESERVE_BYTES: u64 = 3 << 29;

/// Whether `names` of about `bytes_each` fit into the memory that is left; otherwise why not.
pub(super) fn fits(names: u64, bytes_each: u64) -> Result<(), String> {
    let needed = names * bytes_each;
    match meminfo("MemAvailable") {
        Some(left) if left < needed + RESERVE_BYTES => Err(format!(
            "{names} names need about {} MiB, and of {} MiB left {} stay free",
            needed >> 20,
            left >> 20,
            RESERVE_BYTES >> 20
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_their_tests_share_a_base() {
        for program in ["/t/release/uvfs-bench", "/t/release/deps/uvfs_bench-0f"] {
            assert_eq!(base_of(Path::new(program)), Path::new("/t/uvfs-bench"));
        }
    }

    #[test]
    fn fields_are_read_by_their_whole_name() {
        let text = "MemTotal:  10 kB\nMemAvailableX: 7 kB\nMemAvailable:   20 kB\n";
        assert_eq!(field_bytes(text, "MemAvailable"), Some(20 * 1024));
        assert_eq!(field_bytes(text, "MemFree"), None);
        assert!(resident_bytes().is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn what_does_not_fit_is_said_with_its_size() {
        assert!(fits(1, 1).is_ok());
        let why = fits(1 << 40, 1 << 10).unwrap_err();
        assert!(why.contains("1099511627776 names need about"), "{why}");
    }
}
