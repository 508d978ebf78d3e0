//! Why a mount did not come about.
//!
//! # Boundary
//! Names the failed part with its path: the mount point, the device, the helper. The program, which knows how it was
//! started, names the remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use uvfs_fuse_device::PATH as DEVICE;

/// Why [`crate::Mount::start`] failed. Nothing stays mounted.
#[derive(Debug)]
#[non_exhaustive]
pub enum MountError {
    /// The mount point cannot be found.
    Mountpoint {
        /// The path, as it was given.
        path: PathBuf,
        /// The error of resolving it.
        source: io::Error,
    },
    /// `/dev/fuse` cannot be opened: the module is not loaded, or the device is not for this user.
    Device {
        /// The error of open(2).
        source: io::Error,
    },
    /// mount(2) refused.
    Refused {
        /// The mount point.
        path: PathBuf,
        /// The error of mount(2).
        source: io::Error,
    },
    /// `fusermount3`, which mounts for users without the right to, refused or could not be run.
    Helper {
        /// The mount point.
        path: PathBuf,
        /// The helper's output, or the reason why it could not be run (`NotFound`: it is not installed).
        source: io::Error,
    },
    /// The kernel mounted, but serving could not begin; it was unmounted again.
    Session {
        /// The mount point.
        path: PathBuf,
        /// The failed step.
        source: io::Error,
    },
}

impl MountError {
    pub(crate) fn refused(path: &Path, source: io::Error) -> Self {
        Self::Refused { path: path.to_owned(), source }
    }

    pub(crate) fn session(path: &Path, source: io::Error) -> Self {
        Self::Session { path: path.to_owned(), source }
    }

    /// `error` of running the helper, or its words.
    pub(crate) fn helper(path: &Path, error: &io::Error) -> Self {
        let source = match error.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(error.kind(), in_a_line(&error.to_string())),
        };
        Self::Helper { path: path.to_owned(), source }
    }

    /// The error of the system or of the helper.
    pub fn cause(&self) -> &io::Error {
        match self {
            MountError::Mountpoint { source, .. }
            | MountError::Device { source }
            | MountError::Refused { source, .. }
            | MountError::Helper { source, .. }
            | MountError::Session { source, .. } => source,
        }
    }
}

/// The helper's output, one or more lines with line ends, as a cause within one line.
pub(crate) fn in_a_line(written: &str) -> String {
    let lines = written.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

impl fmt::Display for MountError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = self.cause();
        match self {
            MountError::Mountpoint { path, .. } => {
                write!(out, "mountpoint {}: {cause}", path.display())
            }
            MountError::Device { .. } => write!(out, "{DEVICE}: {cause}"),
            MountError::Refused { path, .. } => {
                write!(out, "mountpoint {}: mount(2): {cause}", path.display())
            }
            MountError::Helper { path, .. } => {
                write!(out, "mountpoint {}: by fusermount3: {cause}", path.display())
            }
            MountError::Session { path, .. } => {
                write!(out, "mountpoint {}: serving cannot begin: {cause}", path.display())
            }
        }
    }
}

impl std::error::Error for MountError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.cause())
    }
}

impl From<MountError> for io::Error {
    fn from(error: MountError) -> Self {
        io::Error::new(error.cause().kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: a user read "user has no write access to mountpoint /m\n; see --log-level debug", with the two characters
    /// of the line break. It was the end of the output of `fusermount3`, and causes are shown in one line.
    #[test]
    fn the_words_of_the_helper_have_no_line_breaks() {
        let said = "fusermount3: user has no write access to mountpoint /m\n";
        let error = MountError::helper(Path::new("/m"), &io::Error::other(said));
        assert_eq!(
            error.to_string(),
            "mountpoint /m: by fusermount3: fusermount3: user has no write access to mountpoint /m"
        );
        let warned = io::Error::other("fusermount3: first\n\n  fusermount3: second\r\n");
        let error = MountError::helper(Path::new("/m"), &warned);
        assert_eq!(error.cause().to_string(), "fusermount3: first; fusermount3: second");
        let refused = io::Error::from_raw_os_error(libc::EPERM);
        let error = MountError::helper(Path::new("/m"), &refused);
        assert_eq!(error.cause().raw_os_error(), Some(libc::EPERM), "as the system said it");
    }
}
