//! Where the source of a mount is, after others may have moved it.
//!
//! # Boundary
//! Asks the kernel for the name of an open directory, and never the source itself, which may hang.
//!
//! # Why
//! A mount serves the directory, not the path: `uvfs stat` went on showing the path where something else, or
//! nothing, was by then. Weakness: the descriptor is opened after the mount's own, so of a source that is replaced
//! in that moment it shows the other one.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use std::path::{Path, PathBuf};

/// A directory, and where it was.
#[derive(Debug)]
pub(super) struct Place {
    directory: OwnedFd,
    path: PathBuf,
}

impl Place {
    /// Of the directory at `path`.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()?;
        let path = named(&directory)?;
        Some(Self { directory, path })
    }

    /// What became of it, unless it is where it was.
    pub(super) fn moved(&self) -> Option<String> {
        if rustix::fs::fstat(&self.directory).is_ok_and(|now| now.st_nlink == 0) {
            return Some("removed".into());
        }
        let now = named(&self.directory)?;
        (now != self.path).then(|| now.to_string_lossy().into_owned())
    }
}

fn named(directory: &OwnedFd) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_source_that_went_elsewhere_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let (before, after) = (base.join("before"), base.join("after"));
        fs::create_dir(&before).unwrap();
        let place = Place::of(&before).unwrap();
        assert_eq!(place.moved(), None);
        fs::rename(&before, &after).unwrap();
        fs::create_dir(&before).unwrap();
        assert_eq!(place.moved().as_deref(), after.to_str());
        fs::remove_dir(&after).unwrap();
        assert_eq!(place.moved().as_deref(), Some("removed"));
    }
}
