//! Where the source of a mount is, after others may have moved it.
//!
//! # Boundary
//! Asks the kernel for the name of an open directory, or of the file of an image, and the source itself only by a [`Probe`]: it may hang.
//!
//! # Why
//! A mount serves the directory or the file, not the path: `uvfs stat` kept showing a path where another object, or
//! nothing, was by then. Weakness: the descriptor is opened after the mount's own. If the source is replaced between the
//! two, the path is that of the replacement.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use uvfs_control::probe::{Asked, Probe};

/// Time in which a source answers for its root, or hangs.
const ANSWER_TIME: Duration = Duration::from_millis(200);

/// A directory or a file, and where it was.
#[derive(Debug)]
pub(super) struct Place {
    source: Arc<OwnedFd>,
    path: PathBuf,
    /// Device and inode of the source.
    pub(super) identity: (u64, u64),
    /// Whether it has been removed.
    removed: Probe<bool>,
}

/// The present state of a source.
#[derive(Debug, Default)]
pub(super) struct Now {
    /// The present path, unless that is the old one; or that it was removed.
    pub(super) moved: Option<String>,
    /// For how long it has not answered, if it does not.
    pub(super) silent: Option<Duration>,
}

impl Place {
    /// The place of the directory or the file at `path`.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let source = rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()?;
        let about = rustix::fs::fstat(&source).ok()?;
        let (path, identity) = (named(&source)?, (about.st_dev, about.st_ino));
        Some(Self { source: Arc::new(source), path, identity, removed: Probe::default() })
    }

    /// The present state of the source.
    pub(super) fn now(&self) -> Now {
        let silent = match self.ask() {
            Asked::Answer(true) => return Now { moved: Some("removed".into()), silent: None },
            Asked::Silent(since) => Some(since),
            Asked::Answer(false) | Asked::NotAsked => None,
        };
        let now = named(&self.source).filter(|now| *now != self.path);
        Now { moved: now.map(|now| now.to_string_lossy().into_owned()), silent }
    }

    /// Whether it does not answer now.
    pub(super) fn hangs(&self) -> bool {
        matches!(self.ask(), Asked::Silent(_))
    }

    fn ask(&self) -> Asked<bool> {
        let source = self.source.clone();
        self.removed
            .ask(ANSWER_TIME, move || rustix::fs::fstat(&source).is_ok_and(|now| now.st_nlink == 0))
    }
}

fn named(source: &OwnedFd) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", source.as_raw_fd())).ok()
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
        assert_eq!(place.now().moved, None);
        fs::rename(&before, &after).unwrap();
        fs::create_dir(&before).unwrap();
        assert_eq!(place.now().moved.as_deref(), after.to_str());
        fs::remove_dir(&after).unwrap();
        assert_eq!(place.now().moved.as_deref(), Some("removed"));
        let image = base.join("image");
        fs::write(&image, "").unwrap();
        let place = Place::of(&image).unwrap();
        assert_eq!(place.now().moved, None);
        fs::write(base.join("another"), "").unwrap();
        fs::rename(base.join("another"), &image).unwrap();
        assert_eq!(place.now().moved.as_deref(), Some("removed"));
    }
}
