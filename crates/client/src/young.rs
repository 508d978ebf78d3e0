//! Whether a mount may have been made so recently that its daemon has no socket yet, or a socket is a former mount's.
//!
//! # Boundary
//! Compares times. [`crate::connect`] waits for a missing socket, and does not use a former mount's.
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

/// Whether the socket at `path` was bound before `mount` was made. Then it is of a mount that had this device number before,
/// and whose daemon still ends.
pub(super) fn is_of_former_mount(path: &Path, mount: &MountEntry) -> bool {
    is_before(path, Path::new(CONNECTIONS), mount.device.minor)
}

fn is_before(socket: &Path, connections: &Path, minor: u32) -> bool {
    let bound = fs::symlink_metadata(socket).and_then(|about| about.modified());
    let made = fs::metadata(connections.join(minor.to_string())).and_then(|about| about.modified());
    bound.is_ok_and(|bound| made.is_ok_and(|made| bound < made))
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

    /// A mount got the device number of one whose daemon was still writing. Until the new daemon had its socket, commands
    /// reached the old one, and a mount of the old one's image was refused with the new one's mountpoint.
    #[test]
    fn a_socket_that_is_older_than_its_mount_is_a_former_ones() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, connection) = (folder.path().join("0:7"), folder.path().join("7"));
        let before = || is_before(&socket, folder.path(), 7);
        assert!(!before(), "there is neither");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(!before(), "nothing tells when the mount was made");
        fs::create_dir(&connection).unwrap();
        let connection = fs::File::open(&connection).unwrap();
        let bound = socket.metadata().unwrap().modified().unwrap();
        for (made, is_former) in [(bound + Duration::from_millis(1), true), (bound, false)] {
            connection.set_modified(made).unwrap();
            assert_eq!(before(), is_former);
        }
    }
}
