//! Why an image cannot be written, or an operation on it not be done.

use std::fmt;
use std::io;
use std::sync::Arc;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something was not done.
///
/// [`Error::Ended`] is of the whole volume. Every other error is of one operation: it was refused, or its changes are
/// undone, and the volume continues. An operation of several steps says in its own words what a failure leaves.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The format: the image contradicts itself, or has a feature that this crate does not write.
    Format(uvfs_ext::Error),
    /// Writing has ended, because the device failed in a way after which the image could only be made worse. The text names the
    /// cause, and says whether committed data is safe. Reads continue.
    Ended(Arc<str>),
    /// The image may be read, and not written, for this reason.
    NotWritable(String),
    /// There is no room, or no inode.
    NoSpace,
    /// The index of the directory has no room for another name.
    DirectoryFull,
    /// There is something of this name.
    Exists,
    /// There is no such thing.
    NotFound,
    /// The directory has names in it.
    NotEmpty,
    /// It is a directory.
    IsDirectory,
    /// It is none.
    NotDirectory,
    /// It has as many names as can be counted.
    TooManyLinks,
    /// A name of more than 255 bytes.
    NameTooLong,
    /// A file cannot have so many bytes.
    TooLarge,
    /// A flag of the inode forbids it: immutable, or append-only.
    NotPermitted,
    /// It cannot be, for this reason.
    Invalid(&'static str),
    /// The device failed.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Format(error) => error.fmt(out),
            Error::Ended(why) => write!(out, "writing has ended: {why}"),
            Error::NotWritable(why) => write!(out, "the image can be read and not written: {why}"),
            Error::NoSpace => out.write_str("no space left in the image"),
            Error::DirectoryFull => out.write_str("the index of the directory is full"),
            Error::Exists => out.write_str("there is something of this name"),
            Error::NotFound => out.write_str("there is no such thing"),
            Error::NotEmpty => out.write_str("the directory is not empty"),
            Error::IsDirectory => out.write_str("it is a directory"),
            Error::NotDirectory => out.write_str("it is no directory"),
            Error::TooManyLinks => out.write_str("it has as many names as can be counted"),
            Error::NameTooLong => out.write_str("a name has 255 bytes at most"),
            Error::TooLarge => out.write_str("a file cannot have so many bytes"),
            Error::NotPermitted => {
                out.write_str("it is immutable or append-only (chattr, in a mount of the kernel)")
            }
            Error::Invalid(why) => out.write_str(why),
            // Not to be taken for a full image.
            Error::Io(error) if is_full(error) => write!(out, "{} below the image", words(error)),
            Error::Io(error) => write!(out, "the device: {}", words(error)),
        }
    }
}

/// Whether the file system below the image has no space left for it.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The text of an error of the system, without its number.
pub(crate) fn words(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error ").next().unwrap_or_default().to_owned()
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Format(error) => Some(error),
            Error::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<uvfs_ext::Error> for Error {
    fn from(error: uvfs_ext::Error) -> Self {
        match error {
            uvfs_ext::Error::Io(error) => Error::Io(error),
            error => Error::Format(error),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Io(error)
    }
}
