//! Other users of the file or the block device of an image: refusals name them, and a command waits for those that are
//! about to end.
//!
//! # Boundary
//! Asks the kernel's tables. Taking the lock and claiming the device are the devices' own
//! ([`uvfs_ext_write::WritableFile`]).
//!
//! # Why
//! `umount` returns when the mount is out of the table, and the daemon then commits and makes the image clean. A mount or
//! a check of the same image just after that was refused. Weaknesses: a daemon whose mount is in another mount namespace
//! is taken for one that ends; the table of locks does not name processes of other PID namespaces.

use crate::mountinfo::{self, MountEntry};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use uvfs_client as client;

/// Time for a daemon to write the rest to its image. After that the daemon continues, and the command is refused.
const END_TIME: Duration = Duration::from_secs(30);
/// Time after which the command reports its wait.
const QUIET_TIME: Duration = Duration::from_millis(500);
/// The name of the process of a daemon.
const DAEMON: &str = "uvfs";
/// Time between two looks at the lock.
const LOOK: Duration = Duration::from_millis(20);

/// A process that has a file locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holder {
    pid: i32,
}

/// Opens a file that another program may have locked ([`io::ErrorKind::WouldBlock`]). If that is a daemon of ours whose mount is
/// gone, waits for its end.
///
/// # Errors
/// Those of `open`; where the lock stays, the refusal's words.
pub(super) fn when_unlocked<T>(
    path: &Path,
    mut open: impl FnMut() -> io::Result<T>,
) -> Result<io::Result<T>, String> {
    let since = Instant::now();
    let mut announced = false;
    loop {
        match open() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return Ok(done),
        }
        let Some(holder) = holder(path) else {
            // It may have ended since.
            match open() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Ok(done),
            }
            return Err("another program has it locked".into());
        };
        let pid = holder.pid;
        if !holder.is_ours() {
            return Err(format!("another program (pid {pid}) has it locked"));
        }
        if let Some(mount) = holder.mount() {
            let place = mount.mountpoint.display();
            return Err(format!("it is mounted on {place} (pid {pid}), which has it locked"));
        }
        if since.elapsed() > END_TIME {
            let seconds = END_TIME.as_secs();
            return Err(format!(
                "the daemon of a mount that ends (pid {pid}) has it locked, still after {seconds} s"
            ));
        }
        if !announced && since.elapsed() > QUIET_TIME {
            announced = true;
            let path = crate::shown::shown_name(path);
            eprintln!("uvfs: image {path}: waiting for the end of its last mount (pid {pid})");
        }
        thread::sleep(LOOK);
    }
}

/// The first process that has `path` locked by `flock`.
fn holder(path: &Path) -> Option<Holder> {
    let about = path.metadata().ok()?;
    holder_in(&fs::read_to_string("/proc/locks").ok()?, about.dev(), about.ino())
}

/// Finds the holder in the text of `/proc/locks`.
fn holder_in(locks: &str, device: u64, inode: u64) -> Option<Holder> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        // A process that waits for a lock is listed behind it, with an arrow.
        let mut words = line.split_whitespace().skip(1);
        if words.next() != Some("FLOCK") {
            return None;
        }
        let pid = words.nth(2)?.parse().ok()?;
        (words.next()? == file && pid > 0).then_some(Holder { pid })
    })
}

impl Holder {
    fn is_ours(self) -> bool {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.pid));
        name.is_ok_and(|name| name.trim_end() == DAEMON)
    }

    /// The mount that it serves.
    fn mount(self) -> Option<MountEntry> {
        let mounts = mountinfo::read().ok()?;
        mounts
            .into_iter()
            .filter(MountEntry::is_uvfs)
            .find(|mount| client::connect(mount).is_ok_and(|daemon| daemon.pid() == Some(self.pid)))
    }
}

/// The kernel's use of a block device, which excludes other users, and how to end it.
pub(super) fn of_device(path: &Path) -> String {
    let found = path.metadata().map(|about| about.rdev()).ok().and_then(|device| {
        let name = |number: u64| {
            let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
            PathBuf::from(format!("/sys/dev/block/{major}:{minor}")).canonicalize().ok()
        };
        let ours = name(device)?;
        let mounted = mountinfo::read().ok()?.into_iter().find(|mount| {
            let of = format!("/sys/dev/block/{}", mount.device);
            // The folder of a partition is below that of its disk.
            Path::new(&of).canonicalize().is_ok_and(|of| of.starts_with(&ours))
        });
        if let Some(mount) = mounted {
            let place = crate::shown::shown_name(&mount.mountpoint);
            return Some(format!("the kernel has it mounted on {place}; unmount that first"));
        }
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        let swaps = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
        for swap in swaps.map(Path::new) {
            let about = swap.metadata().ok().filter(|about| about.file_type().is_block_device());
            if about.and_then(|about| name(about.rdev())).is_some_and(|of| of.starts_with(&ours)) {
                return Some(format!("the kernel swaps to {}; swapoff ends that", swap.display()));
            }
        }
        let holders = fs::read_dir(ours.join("holders")).into_iter().flatten().flatten();
        let holders: Vec<_> =
            holders.map(|holder| holder.file_name().to_string_lossy().into_owned()).collect();
        (!holders.is_empty()).then(|| format!("it is a part of {}; name that", holders.join(", ")))
    });
    found.unwrap_or_else(|| "the kernel or another program uses it; end that first".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_found_by_the_file_and_not_by_what_waits() {
        let locks = "\
1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF
2: FLOCK  ADVISORY  WRITE 22 fe:00:777 0 EOF
3: -> FLOCK  ADVISORY  WRITE 33 fe:00:77 0 EOF
4: FLOCK  ADVISORY  READ 0 fe:00:77 0 EOF
5: FLOCK  ADVISORY  READ 44 fe:00:77 0 EOF
";
        let device = rustix::fs::makedev(0xFE, 0);
        assert_eq!(holder_in(locks, device, 77), Some(Holder { pid: 44 }));
        assert_eq!(holder_in(locks, device, 7), None);
        assert_eq!(holder_in("", device, 77), None);
    }

    /// A lock of a program that is none of ours is refused at once, by name.
    #[test]
    fn a_lock_of_another_program_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let held = fs::File::create(&path).unwrap();
        held.lock().unwrap();
        let refused = when_unlocked(&path, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
        let refused = refused.unwrap_err();
        assert!(refused.ends_with("has it locked"), "{refused}");
        let done = when_unlocked(&path, || Err::<(), _>(io::ErrorKind::NotFound.into()));
        assert_eq!(done.unwrap().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
