//! Errors of operations, and whether to try again.
//!
//! # Boundary
//! The one error type of the seam and of the in-process API, and the one place where it becomes an
//! errno ([`Error::errno`]). Has no path: the layer that has the path adds it.
//!
//! # Why
//! Errors travel from a store through caches to a kernel. On the way, the handling depends on
//! whether the same call may succeed later; hence [`Retry`] beside the errno.

use std::fmt;

/// The result of every operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why an operation failed.
///
/// Backends return the most exact variant. [`Error::from_errno`] helps backends that use system
/// calls.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// No such name, or the object is gone.
    NotFound,
    /// The name is taken.
    Exists,
    /// A directory was needed.
    NotDirectory,
    /// Anything but a directory was needed.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// Mode bits or an access control list forbid it (EACCES).
    Access,
    /// Only the owner or a privileged caller may do it (EPERM).
    NotPermitted,
    /// The file system, or the object, cannot be changed.
    ReadOnly,
    /// No room left.
    NoSpace,
    /// The caller's quota is used up.
    Quota,
    /// Past the largest file size or offset.
    TooBig,
    /// A name over 255 bytes or a path over 4096.
    NameTooLong,
    /// An invalid argument. Names it.
    Invalid(&'static str),
    /// Not within one file system, or out of the directory that a walk must stay in.
    CrossDevice,
    /// No further hard link to the object is possible.
    TooManyLinks,
    /// Too many symbolic links, or one where none is allowed.
    SymlinkLoop,
    /// In use in a way that excludes this.
    Busy,
    /// A running program is being written, or a file being written is run.
    TextBusy,
    /// The object changed or vanished behind the caches: drop its cached entries and walk again.
    Stale,
    /// The backend does not support this; retrying is useless. Names it.
    Unsupported(&'static str),
    /// No such extended attribute.
    NoAttribute,
    /// No data or hole at or after the offset (ENXIO), or no such device.
    NoData,
    /// The given buffer is too small.
    Range,
    /// Another owner holds a lock, or the call would wait and may not.
    WouldBlock,
    /// Waiting for the lock would never end.
    Deadlock,
    /// Too many open files, here or below.
    TooManyFiles,
    /// The caller has too many files open (EMFILE).
    TooManyOwnFiles,
    /// Not enough memory within the budget.
    NoMemory,
    /// The handle is not open, or not in the required mode.
    BadHandle,
    /// A signal ended the wait.
    Interrupted,
    /// The store did not answer in time; it may later.
    TimedOut,
    /// The store answered with an I/O error.
    Io(std::io::Error),
    /// The store's data, or our own state, contradicts itself. Names it.
    Corrupt(&'static str),
}

/// Whether the same call may succeed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Not unless something else changes.
    Never,
    /// At once, after dropping the object's cached entries.
    AfterRefresh,
    /// Later, unchanged.
    Later,
}

impl Error {
    /// The errno that a kernel would return. The only place where errors become numbers.
    pub fn errno(&self) -> i32 {
        match self {
            Error::NotFound => libc::ENOENT,
            Error::Exists => libc::EEXIST,
            Error::NotDirectory => libc::ENOTDIR,
            Error::IsDirectory => libc::EISDIR,
            Error::NotEmpty => libc::ENOTEMPTY,
            Error::Access => libc::EACCES,
            Error::NotPermitted => libc::EPERM,
            Error::ReadOnly => libc::EROFS,
            Error::NoSpace => libc::ENOSPC,
            Error::Quota => libc::EDQUOT,
            Error::TooBig => libc::EFBIG,
            Error::NameTooLong => libc::ENAMETOOLONG,
            Error::Invalid(_) => libc::EINVAL,
            Error::CrossDevice => libc::EXDEV,
            Error::TooManyLinks => libc::EMLINK,
            Error::SymlinkLoop => libc::ELOOP,
            Error::Busy => libc::EBUSY,
            Error::TextBusy => libc::ETXTBSY,
            Error::Stale => libc::ESTALE,
            Error::Unsupported(_) => libc::EOPNOTSUPP,
            Error::NoAttribute => libc::ENODATA,
            Error::NoData => libc::ENXIO,
            Error::Range => libc::ERANGE,
            Error::WouldBlock => libc::EAGAIN,
            Error::Deadlock => libc::EDEADLK,
            Error::TooManyFiles => libc::ENFILE,
            Error::TooManyOwnFiles => libc::EMFILE,
            Error::NoMemory => libc::ENOMEM,
            Error::BadHandle => libc::EBADF,
            Error::Interrupted => libc::EINTR,
            Error::TimedOut => libc::ETIMEDOUT,
            Error::Io(error) => error.raw_os_error().unwrap_or(libc::EIO),
            Error::Corrupt(_) => libc::EIO,
        }
    }

    /// The variant for a system call's errno; unknown numbers stay visible in [`Error::Io`].
    pub fn from_errno(errno: i32) -> Self {
        match errno {
            libc::ENOENT => Error::NotFound,
            libc::EEXIST => Error::Exists,
            libc::ENOTDIR => Error::NotDirectory,
            libc::EISDIR => Error::IsDirectory,
            libc::ENOTEMPTY => Error::NotEmpty,
            libc::EACCES => Error::Access,
            libc::EPERM => Error::NotPermitted,
            libc::EROFS => Error::ReadOnly,
            libc::ENOSPC => Error::NoSpace,
            libc::EDQUOT => Error::Quota,
            libc::EFBIG => Error::TooBig,
            libc::ENAMETOOLONG => Error::NameTooLong,
            libc::EINVAL => Error::Invalid("refused by the store"),
            libc::EXDEV => Error::CrossDevice,
            libc::EMLINK => Error::TooManyLinks,
            libc::ELOOP => Error::SymlinkLoop,
            libc::EBUSY => Error::Busy,
            libc::ETXTBSY => Error::TextBusy,
            libc::ESTALE => Error::Stale,
            libc::EOPNOTSUPP | libc::ENOSYS => Error::Unsupported("not supported by the store"),
            libc::ENODATA => Error::NoAttribute,
            libc::ENXIO => Error::NoData,
            libc::ERANGE => Error::Range,
            libc::EAGAIN => Error::WouldBlock,
            libc::EDEADLK => Error::Deadlock,
            libc::ENFILE | libc::EMFILE => Error::TooManyFiles,
            libc::ENOMEM => Error::NoMemory,
            libc::EBADF => Error::BadHandle,
            libc::EINTR => Error::Interrupted,
            libc::ETIMEDOUT => Error::TimedOut,
            other => Error::Io(std::io::Error::from_raw_os_error(other)),
        }
    }

    /// Whether trying again can help.
    pub fn retry(&self) -> Retry {
        match self {
            Error::Stale => Retry::AfterRefresh,
            Error::Io(_)
            | Error::TimedOut
            | Error::WouldBlock
            | Error::Interrupted
            | Error::Busy
            | Error::TooManyFiles
            | Error::TooManyOwnFiles
            | Error::NoMemory => Retry::Later,
            _ => Retry::Never,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Invalid(what) | Error::Unsupported(what) | Error::Corrupt(what) => {
                write!(out, "{what} ({})", std::io::Error::from_raw_os_error(self.errno()))
            }
            Error::Io(error) => write!(out, "{error}"),
            other => write!(out, "{}", std::io::Error::from_raw_os_error(other.errno())),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => Error::from_errno(errno),
            None => Error::Io(error),
        }
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        std::io::Error::from_raw_os_error(error.errno())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_survives_the_way_there_and_back() {
        // EMFILE and ENOSYS are folded into their neighbours on purpose.
        let folded = [(libc::EMFILE, libc::ENFILE), (libc::ENOSYS, libc::EOPNOTSUPP)];
        for errno in 1..=libc::EDQUOT {
            let expected = folded.iter().find(|pair| pair.0 == errno).map_or(errno, |pair| pair.1);
            assert_eq!(Error::from_errno(errno).errno(), expected);
        }
    }

    #[test]
    fn errors_say_whether_to_try_again() {
        assert_eq!(Error::Stale.retry(), Retry::AfterRefresh);
        assert_eq!(Error::NotFound.retry(), Retry::Never);
        assert_eq!(Error::TimedOut.retry(), Retry::Later);
        assert_eq!(Error::Io(std::io::Error::other("x")).errno(), libc::EIO);
    }
}
