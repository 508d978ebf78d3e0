//! Whether a mount may have been made so recently that its daemon has no socket yet.
//!
//! # Boundary
//! Computes how long a missing socket may still appear. [`crate::connect`] waits for it.
//!
//! # Why
//! The socket is named by the mount's device number, which exists only when the mount does. A client that finds a mount
//! in the table in between finds no socket, and took it for a program's without one. `uvfs mount` returns and prints
//! only when the socket answers. A unit that waits for the mount point, or a script that reads the table, does not wait
//! for that. The control file system of FUSE has the time when a connection was made. Weakness: where that is not
//! mounted, like in most containers, any mount may be young. A command then waits for all of them together for
//! [`UNKNOWN`], also for dead ones.

use crate::mountinfo::MountEntry;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

/// Where the kernel has a directory for each connection, named by the device number.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// How old a mount is whose daemon surely has its socket, or will have none.
const MOMENT: Duration = Duration::from_secs(2);
/// How long one command waits for mounts of unknown age.
const UNKNOWN: Duration = Duration::from_millis(500);

/// Whether the socket of `mount` may appear in a moment.
pub(super) fn may_be_starting(mount: &MountEntry) -> bool {
    match age(Path::new(CONNECTIONS), mount.device.minor) {
        Some(age) => age < MOMENT,
        None => {
            static FIRST: OnceLock<Instant> = OnceLock::new();
            FIRST.get_or_init(Instant::now).elapsed() < UNKNOWN
        }
    }
}

/// The age of the connection of the mount with this device number, if it is known. The kernel's names are the whole
/// number; all FUSE mounts have major number 0.
fn age(connections: &Path, minor: u32) -> Option<Duration> {
    let folder = connections.join(minor.to_string());
    let made = fs::metadata(folder).ok()?.modified().ok()?;
    // A clock that was set back since makes it young.
    Some(SystemTime::now().duration_since(made).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_a_connection_is_that_of_its_directory() {
        let connections = tempfile::tempdir().unwrap();
        let of = |minor| age(connections.path(), minor);
        assert_eq!(of(7), None, "nothing tells");
        let folder = connections.path().join("7");
        fs::create_dir(&folder).unwrap();
        assert!(of(7).unwrap() < MOMENT);
        let hour = Duration::from_secs(3600);
        let folder = fs::File::open(folder).unwrap();
        folder.set_modified(SystemTime::now() - hour).unwrap();
        assert!(of(7).unwrap() >= hour);
        folder.set_modified(SystemTime::now() + hour).unwrap();
        assert_eq!(of(7).unwrap(), Duration::ZERO, "a clock that was set back");
    }
}
