//! The parts of serving a request that need only the core: directories by path, their cached amounts, and marks.
//!
//! # Boundary
//! Translates requests into calls of the core, and results into replies. The frontend does its own part of a cleaning.
//!
//! # Why
//! The core walks a path from the mount's root, not the kernel from the host's: so a link that appears on the path, or
//! a mount on top of it, has no effect. Weakness: the walk inserts the names on the path into the cache.

mod level;
mod marks;
mod rows;

pub use level::level;
pub use marks::{Look, Marks};
pub use rows::cached;

use crate::resident::Held;
use rustix::io::Errno;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use uvfs_vfs::clean::request::Refusal;
use uvfs_vfs::{
    Caller, Checks, Error, Groups, NewOwner, Node, Origin, Powers, Resident, ResolveMode, SetIds,
    Vfs,
};

/// The directory `path` of the file system; no link on the way is followed.
///
/// # Errors
/// Why there is none, in words.
pub fn resolve(vfs: &Arc<Vfs>, path: &Path) -> Result<Node, String> {
    // The socket has checked the client already: the user of this process, which owns the mount, or root.
    let groups = rustix::process::getgroups().unwrap_or_default();
    let caller = Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: Groups::Known(groups.iter().map(|group| group.as_raw()).collect()),
        checks: Checks::Done,
        set_ids: SetIds::default(),
        powers: Powers::default(),
        new_owner: NewOwner::default(),
        origin: Origin::default(),
    };
    let root = vfs.root_directory(caller).with_resolve(ResolveMode::NO_SYMLINKS);
    match root.open_directory(path.as_os_str().as_bytes()) {
        Ok(directory) => Ok(directory.node().clone()),
        Err(Error::NotFound) => Err(Refusal::Missing.to_string()),
        Err(Error::NotDirectory) => Err(Refusal::NotDirectory.to_string()),
        Err(Error::SymlinkLoop) => Err(Refusal::Symlink.to_string()),
        Err(Error::Access | Error::NotPermitted) => Err(Refusal::NotPermitted.to_string()),
        Err(error) => Err(format!("{error}; try again")),
    }
}

fn held(resident: &Resident) -> Held {
    Held {
        names: resident.names,
        inodes: resident.inodes,
        pages: resident.pages,
        dirty: resident.dirty,
    }
}

/// Calls `unmount` until it returns something other than EBUSY, for a moment: a child between fork and exec has its
/// parent's open files, and closes them at once.
///
/// # Errors
/// Those of the last call.
pub fn end_when_idle(unmount: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let is_busy = |error: &io::Error| error.raw_os_error() == Some(Errno::BUSY.raw_os_error());
    let mut outcome = unmount();
    for pause_ms in [5, 10, 20, 40, 80] {
        if !outcome.as_ref().is_err_and(is_busy) {
            break;
        }
        std::thread::sleep(Duration::from_millis(pause_ms));
        outcome = unmount();
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
    use uvfs_vfs::VfsConfig;

    #[test]
    fn a_path_is_walked_without_following_links() {
        let backend = MemoryBackend::new(MemoryConfig::default()).unwrap();
        let vfs = Vfs::new(backend, VfsConfig::default()).unwrap();
        let root = vfs.root_directory(Caller::root());
        root.create_directory("a", 0o700).unwrap();
        root.create_directory("a/b", 0o700).unwrap();
        root.write_file("a/file", b"x").unwrap();
        root.symlink("a", "link").unwrap();
        root.symlink("b", "a/last").unwrap();
        let check = |path: &str, refusal: Refusal| {
            let refused = resolve(&vfs, Path::new(path)).unwrap_err();
            assert_eq!(refused, refusal.to_string(), "{path}");
        };
        check("/none", Refusal::Missing);
        check("/none/b", Refusal::Missing);
        check("/a/file", Refusal::NotDirectory);
        check("/a/file/b", Refusal::NotDirectory);
        check("/link", Refusal::Symlink);
        check("/link/b", Refusal::Symlink);
        check("/a/last", Refusal::Symlink);
        for path in ["/", "/a", "/a/b", "/a//./b/"] {
            assert!(resolve(&vfs, Path::new(path)).unwrap().is_directory(), "{path}");
        }
        assert_eq!(resolve(&vfs, Path::new("/")).unwrap(), *vfs.root());
    }
}
