//! The way to the caches of a uvfs mount.
//!
//! # Boundary
//! Says whether a directory lies in a uvfs mount, without asking its daemon, and passes a request on to
//! the one that serves it.
//!
//! # Why
//! Weakness: daemons have no such request yet, so it is refused, with what helps meanwhile.

use crate::Failure;
use crate::mountinfo::{self, MountEntry};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use uvfs_vfs::clean::request::Request;

/// The uvfs mount that `directory` lies in, if it does.
///
/// # Errors
/// If /proc does not tell.
pub(super) fn mounted(directory: &OwnedFd) -> Result<Option<MountEntry>, Failure> {
    let path = format!("/proc/self/fdinfo/{}", directory.as_raw_fd());
    let text = fs::read_to_string(&path).map_err(|error| {
        Failure::refused(format!("{path}: {}; mount /proc", crate::cause(&error)))
    })?;
    let Some(id) = mount_id(&text) else { return Ok(None) };
    let mount = mountinfo::read()?.into_iter().find(|mount| mount.id == id);
    Ok(mount.filter(MountEntry::is_uvfs))
}

/// Cleans a directory of a uvfs mount.
pub(super) fn clean(mount: &MountEntry, request: &Request) -> Failure {
    let (mountpoint, source) = (mount.mountpoint.display(), mount.source.display());
    Failure::refused(format!(
        "{request}: in the uvfs mount {mountpoint}, whose daemon cannot clean one directory yet; clean its \
         source {source}, or give the mount less memory (`uvfs set {mountpoint} cache-size=SIZE`)"
    ))
}

/// The number of the mount in the text of an fdinfo file.
fn mount_id(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_ours_has_no_mount_of_ours() {
        let directory = fs::File::open("/proc").unwrap();
        assert_eq!(mounted(&directory.into()).unwrap(), None);
        assert_eq!(mount_id("pos:\t0\nflags:\t02\nmnt_id:\t27\nino:\t5\n"), Some(27));
        assert_eq!(mount_id("pos:\t0\n"), None);
    }

    #[test]
    fn the_refusal_names_mount_and_remedy() {
        let mount = MountEntry {
            id: 1,
            device: mountinfo::Device { major: 0, minor: 50 },
            mountpoint: "/mnt/data".into(),
            file_system: mountinfo::FILE_SYSTEM_TYPE.into(),
            source: "/srv/data".into(),
            owner_uid: 5,
        };
        let request = Request::parse(b"2:/mnt/data/x").unwrap();
        let line = clean(&mount, &request).to_string();
        for part in ["2:/mnt/data/x: ", "/mnt/data,", "/srv/data", "cache-size"] {
            assert!(line.contains(part), "{line}");
        }
    }
}
