//! Why a mount did not come about.
//!
//! # Boundary
//! Names what failed, with its path: the mount point, the device, the helper. What helps is for the
//! program to say, which knows how it was started.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The device through which a FUSE server talks to the kernel.
pub(crate) const DEVICE: &str = "/dev/fuse";

/// Why [`crate::Mount::start`] failed. Nothing stays mounted.
#[derive(Debug)]
#[non_exhaustive]
pub enum MountError {
    /// The mount point cannot be found.
    Mountpoint {
        /// As it was given.
        path: PathBuf,
        /// What resolving it answered.
        source: io::Error,
    },
    /// `/dev/fuse` cannot be opened: the module is not loaded, or the device is not for this user.
    Device {
        /// What open(2) answered.
        source: io::Error,
    },
    /// mount(2) refused.
    Refused {
        /// The mount point.
        path: PathBuf,
        /// What it answered.
        source: io::Error,
    },
    /// `fusermount3`, which mounts for those who may not, refused or could not be run.
    Helper {
        /// The mount point.
        path: PathBuf,
        /// What it said, or why it could not be run (`NotFound`: it is not installed).
        source: io::Error,
    },
    /// The kernel mounted, but serving could not begin; it was unmounted again.
    Session {
        /// The mount point.
        path: PathBuf,
        /// What failed.
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

    /// `error` of the FUSE crate, which mounted by the helper. What the helper wrote ends with a line
    /// break that nobody wants to read.
    pub(crate) fn helper(path: &Path, error: &io::Error) -> Self {
        let source = match error.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(error.kind(), error.to_string().trim().to_owned()),
        };
        Self::Helper { path: path.to_owned(), source }
    }

    /// What the system, or the helper, answered.
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
