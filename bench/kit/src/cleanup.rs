//! Removes everything that a run made: mounts, processes, files, control groups. Also after a signal or a failure.
//!
//! # Boundary
//! A register of mountpoints, process ids, work folders and control groups. Code that makes one enters it here *before*
//! it can outlive the run, and removes it from the register when it is gone.
//!
//! # Concurrency
//! One lock around the register. The signal thread cleans up and exits the process; the main thread may be blocked in a
//! mount at that moment, so it takes no part.
//!
//! # Why
//! A mount left by a bench blocks the next one and confuses every later `df`. After SIGKILL no code can clean up; the
//! next run then removes folders whose process is gone.

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{LockClass, Mutex};

static CLASS: LockClass =
    LockClass::new(1, "bench-cleanup", "mounts and folders that a bench run must remove");

static REGISTER: LazyLock<Mutex<Register>> =
    LazyLock::new(|| Mutex::new(&CLASS, Register::default()));

#[derive(Debug, Default)]
struct Register {
    mountpoints: Vec<PathBuf>,
    processes: Vec<u32>,
    folders: Vec<PathBuf>,
    groups: Vec<PathBuf>,
}

/// From now on a signal cleans up before it ends the process.
pub fn on_signals() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("bench-signals".into()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            eprintln!("uvfs-bench: signal {signal}: cleaning up");
            everything();
            std::process::exit(128 + signal);
        }
    })?;
    Ok(())
}

/// A file system is about to be mounted at `mountpoint`.
pub fn mounting(mountpoint: &Path) {
    REGISTER.lock().mountpoints.push(mountpoint.to_path_buf());
}

/// Nothing is mounted at `mountpoint` any more.
pub fn unmounted(mountpoint: &Path) {
    REGISTER.lock().mountpoints.retain(|one| one != mountpoint);
}

/// Process `pid` was started.
pub fn started(pid: u32) {
    REGISTER.lock().processes.push(pid);
}

/// Process `pid` is about to be reaped.
pub fn ended(pid: u32) {
    REGISTER.lock().processes.retain(|&one| one != pid);
}

/// `folder` is about to be made, for this run only.
pub fn making(folder: &Path) {
    REGISTER.lock().folders.push(folder.to_path_buf());
}

/// Control group `group` is about to be made.
pub fn grouping(group: &Path) {
    REGISTER.lock().groups.push(group.to_path_buf());
}

/// Control group `group` is removed.
pub fn ungrouped(group: &Path) {
    REGISTER.lock().groups.retain(|one| one != group);
}

/// Ends every process, takes away every mount, then every folder.
pub fn everything() {
    let Register { mountpoints, processes, folders, groups } =
        std::mem::take(&mut *REGISTER.lock());
    for mountpoint in mountpoints.iter().rev() {
        // Not mounted (yet) is as good as unmounted.
        let _ = rustix::mount::unmount(mountpoint, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
    for pid in processes {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    folders.iter().for_each(|folder| remove_folder(folder));
    groups.iter().for_each(|group| remove_group(group));
}

/// Removes a control group once the processes in it, which were asked to end, have ended.
pub fn remove_group(group: &Path) {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match fs::remove_dir(group) {
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {}
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                eprintln!("uvfs-bench: {} stays: {error}", group.display());
                return;
            }
            _ => return,
        }
        if Instant::now() > deadline {
            eprintln!("uvfs-bench: {} stays: it is in use", group.display());
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Removes the folders below `work` of killed runs: they are named by process ids.
pub fn sweep(work: &Path) {
    for entry in fs::read_dir(work).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if !Path::new(&format!("/proc/{pid}")).exists() {
            eprintln!("uvfs-bench: removing the rest of run {pid}");
            remove_folder(&entry.path());
        }
    }
}

/// Removes `folder` unless something is still mounted below it: never reach through a mount.
fn remove_folder(folder: &Path) {
    for mountpoint in mounts_below(folder).iter().rev() {
        let _ = rustix::mount::unmount(mountpoint, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
    let left = mounts_below(folder);
    if left.is_empty() {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                eprintln!("uvfs-bench: {} stays: {error}", folder.display());
            }
            _ => {}
        }
    } else {
        eprintln!("uvfs-bench: {} stays: still mounted: {left:?}", folder.display());
    }
}

fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mountpoints(&table).filter(|mountpoint| mountpoint.starts_with(folder)).collect()
}

/// The fifth field. Work folders hold no characters that the kernel would write as escapes.
fn mountpoints(table: &str) -> impl Iterator<Item = PathBuf> {
    table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountpoints_are_read_from_the_kernels_table() {
        let table = "29 1 254:0 / / rw - ext4 /dev/vda rw\n41 29 0:40 / /a/b rw - fuse.x y rw\n";
        assert_eq!(mountpoints(table).collect::<Vec<_>>(), [Path::new("/"), Path::new("/a/b")]);
    }

    #[test]
    fn a_sweep_takes_only_what_dead_runs_left() {
        let work = std::env::temp_dir().join(format!("uvfs-bench-sweep-{}", std::process::id()));
        let own = work.join(std::process::id().to_string());
        let (dead, other) = (work.join(u32::MAX.to_string()), work.join("tree"));
        for folder in [&own, &dead, &other] {
            fs::create_dir_all(folder.join("x")).unwrap();
        }
        sweep(&work);
        assert!(own.exists() && other.exists() && !dead.exists());
        fs::remove_dir_all(&work).unwrap();
    }
}
